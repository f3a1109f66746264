"""Which mechanism for which query: the table of applicability, as data.

A *family* is one idea: what it applies to, and when it is efficient to compute (the two columns by
which surveys compare them). A *row* is a mechanism of a family: what it promises, where it is good
and what speaks against it. `adaptive_dp.mechanisms.advice` reads advice off it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from attrs import NOTHING, frozen

from adaptive_dp.graph.compile import ReleasePath, distance
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, lineage
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import check_delta
from adaptive_dp.graph.values import fields_of
from adaptive_dp.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    DistanceToInstability,
    Exponential,
    Gaussian,
    GaussianSparseVector,
    Laplace,
    LowerBound,
    NoisyMax,
    Norm,
    PermuteAndFlip,
    ProposeTestRelease,
    QuantileExponential,
    ReleasedSensitivity,
    SmoothCauchy,
    SmoothLaplace,
    SmoothLaplaceLogNormal,
    SmoothStudent,
    SparseVector,
    UpperBound,
)
from adaptive_dp.noise import lattice

PURE = "epsilon"
"""What a row promises that needs no delta."""


@frozen
class Family:
    """One idea of how to release a value.

    Parameters
    ----------
    name, applies, efficient
        What it is called, what it applies to, and when it is efficient.
    least, most
        How many numbers the value must have at least, and at most, for it to make sense.
    """

    name: str
    applies: str
    efficient: str
    least: int = 1
    most: float = math.inf


@frozen
class Row:
    """A mechanism, and when to choose it.

    Parameters
    ----------
    mechanism, family
        The class, and the idea behind it.
    promises
        The kind of its loss; all but `PURE` have an epsilon at a positive delta alone.
    good, but
        Where it does well, and what speaks against it.
    factor
        Of noise that is added, the standard deviation on each of d numbers at delta, in units of
        the sensitivity over a small epsilon; by it such rows are compared.
    """

    mechanism: type[Mechanism]
    family: Family
    promises: str
    good: str
    but: str
    factor: Callable[[int, float], float] | None = None

    @property
    def theorem(self) -> str:
        """What its loss rests on."""
        return self.mechanism.theorem

    @property
    def needs(self) -> tuple[str, ...]:
        """The parameters that must be known beforehand: no noise, no budget, no default."""
        required = [f for f in fields_of(self.mechanism) if f.default is NOTHING]
        return tuple(f.name for f in required if "role" not in f.metadata)


def _two(dimension: int, delta: float) -> float:
    """Laplace noise of scale b has the variance 2 b^2."""
    return math.sqrt(2)


def _normal(dimension: int, delta: float) -> float:
    """Gaussian noise, by the classical calibration (Dwork and Roth 2014, Thm A.1)."""
    return math.sqrt(2 * math.log(1.25 / delta))


def _ball(dimension: int, delta: float) -> float:
    """A radius of law Gamma(d, b) has the mean square d (d + 1) b^2, shared by d numbers."""
    return math.sqrt(dimension + 1)


GLOBAL = Family(
    "Global sensitivity",
    "numbers, and vectors of them",
    "the global sensitivity is known, and finite",
)
SCORES = Family(
    "Exponential mechanism",
    "a choice among finitely many candidates, by scores",
    "the candidates can be listed",
    least=2,
)
RANKS = Family(
    "Exponential mechanism on an interval",
    "a median, or another quantile",
    "the score is constant between data points",
)
SPARSE = Family(
    "Sparse vector",
    "numbers of which it is asked whether they are above a threshold",
    "few of them are above it",
)
SMOOTH = Family(
    "Smooth sensitivity",
    "numerical queries, not of high dimension",
    "the smooth sensitivity, or a smooth upper bound of the local one, is quick to compute",
)
STABLE = Family(
    "Distance to instability",
    "arbitrary queries; needs a local sensitivity of 0 in a neighbourhood of the data",
    "the distance to instability is quick to compute",
)
TESTED = Family(
    "Propose-test-release",
    "numerical queries; needs a good guess of a stable bound of the local sensitivity",
    "the distance to data of a larger local sensitivity is quick to compute",
)
BOUNDED = Family(
    "Privately bounding the local sensitivity",
    "numerical queries",
    "the local sensitivity is quick to bound, and to release privately",
)
MARGIN = Family(
    "A bound for what follows",
    "one number on which the loss of a later mechanism depends",
    "the global sensitivity is known, and finite",
    most=1,
)

DELTA, RENYI = "(epsilon, delta)", "Renyi DP"
FLAT, ONE_SIDED = "its noise is for the worst case", "it is off by several sigma, on the safe side"

TABLE = (
    Row(DiscreteLaplace, GLOBAL, PURE, "counts are to stay whole", FLAT, _two),
    Row(Laplace, GLOBAL, PURE, "numbers are few, or one unit moves few of them", FLAT, _two),
    Row(DiscreteGaussian, GLOBAL, "zCDP", "many counts are to stay whole", FLAT, _normal),
    Row(Gaussian, GLOBAL, "Gaussian DP", "numbers or releases are many", FLAT, _normal),
    Row(
        Norm,
        GLOBAL,
        PURE,
        "one unit moves a vector in all directions",
        "its noise is drawn in float64",
        _ball,
    ),
    Row(PermuteAndFlip, SCORES, PURE, "there is one choice to make", "it composes worse"),
    Row(Exponential, SCORES, PURE, "there are many choices to make", "the expected score is lower"),
    Row(NoisyMax, SCORES, PURE, "it must match what others use", "the expected score is lower"),
    Row(
        QuantileExponential,
        RANKS,
        PURE,
        "data are dense near the quantile",
        "its error is in ranks",
    ),
    Row(
        SmoothLaplace,
        SMOOTH,
        DELTA,
        "the data have no wide gaps",
        "beta is smaller, so S is larger",
    ),
    Row(
        SmoothStudent,
        SMOOTH,
        PURE,
        "the smooth sensitivity S is small",
        "tails are wide, `z^-4` at 3 degrees",
    ),
    Row(
        SmoothCauchy,
        SMOOTH,
        PURE,
        "S is small, and its centre matters more than its tails",
        "tails are very wide, `z^-2`",
    ),
    Row(
        SmoothLaplaceLogNormal,
        SMOOTH,
        "zCDP",
        "it stands beside Gaussian releases",
        "tails are heavier than any exponential",
    ),
    Row(
        DistanceToInstability,
        STABLE,
        DELTA,
        "the winner is clear",
        "it says None where others are close",
    ),
    Row(
        ReleasedSensitivity,
        BOUNDED,
        DELTA,
        "the local sensitivity changes slowly",
        "the bound is too large by `e^{slope log(1/delta)/epsilon}`",
    ),
    Row(
        ProposeTestRelease,
        TESTED,
        DELTA,
        "the guess holds far around",
        "it says NaN where it does not",
    ),
    Row(SparseVector, SPARSE, PURE, "few are above", "it says only which"),
    Row(GaussianSparseVector, SPARSE, RENYI, "such runs are many", "it ends after K values"),
    Row(LowerBound, MARGIN, DELTA, "more is better, as of an eigenvalue", ONE_SIDED),
    Row(UpperBound, MARGIN, DELTA, "less is better, as of a norm", ONE_SIDED),
)
"""Every mechanism of the toolbox; in a family, and between families, the first choice first."""


# -----------------------------------------------------------------------------
# Advice: which mechanisms can release a query, best first, from the table of applicability.
#
# It is no proof: what a release costs, its certificate says.


@frozen
class Advice:
    """A row of the table that can release a query, and why it stands where it does."""

    row: Row
    why: str

    @property
    def mechanism(self) -> type[Mechanism]:
        """The mechanism's class."""
        return self.row.mechanism

    def __str__(self) -> str:
        return f"{self.mechanism.__name__}: {self.why}"


def suitable(
    query: PrivateQuery[Any], *, delta: float = 0.0, knows: Collection[str] = ()
) -> list[Advice]:
    """Return the mechanisms that can release a query, best first, each with the reason.

    Noise for the global sensitivity is compared by its size on each number, at one release. First
    of all come mechanisms whose parameters you know, last those that wait for one that you do not.
    The table's order decides the rest. It is about the query alone: mechanisms that are `given`
    released values belong to the learners of which they are steps.

    Parameters
    ----------
    query
        A private query, before its release.
    delta
        The plan's, in [0, 1); at 0 mechanisms are left out that promise nothing without one.
    knows
        Names of parameters that can be told without looking at the data: a ``bound`` of the local
        sensitivity, by how much that changes a step (``slope``), a ``threshold``, ``queries``, or
        the ``reach`` and ``failure`` of a bound.

    Raises
    ------
    DeclarationError
        If it is no query, or no mechanism has such a parameter, or delta is no probability.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 120), "town": ["a", "b"]})
    >>> [found] = dp.suitable(people["town"].mode(), delta=1e-6)
    >>> found.mechanism.__name__, found.row.promises
    ('DistanceToInstability', '(epsilon, delta)')
    >>> print(dp.suitable(people.count())[0])
    DiscreteLaplace: global sensitivity, noise of about 1.41/epsilon on each number; good where
    counts are to stay whole, but its noise is for the worst case
    """
    delta, names = check_delta(delta), {knows} if isinstance(knows, str) else set(knows)
    if not (isinstance(query, PrivateQuery) and isinstance(query.operation, Query)):
        raise DeclarationError(
            "suitable is about a private query such as people.count(), before its release, got a "
            f"{type(query).__name__}"
        )
    parameters = {name for row in TABLE for name in row.needs}
    others = ", ".join(sorted(map(str, names - parameters)))
    if others:
        raise DeclarationError(
            f"no mechanism waits for {others}; what one may know beforehand is among "
            f"{', '.join(sorted(parameters))}"
        )
    found = []
    families = list(dict.fromkeys(row.family for row in TABLE))
    chain = [
        Node(h, h.operation.label(), "", (), (), (), (), i) for i, h in enumerate(lineage(query))
    ]
    path = ReleasePath(chain[-1], tuple(chain))
    for row in filter(lambda row: _fits(row, path, delta), TABLE):
        size = _size(row, path, delta)
        missing = [name for name in row.needs if name not in names]
        ready = (2 if missing else 0) if row.needs else 1
        place = ready, families.index(row.family), size
        found.append((place, Advice(row, _why(row, size, missing))))
    return [advice for _, advice in sorted(found, key=lambda each: each[0])]


def readers(query: Query) -> list[str]:
    """Return the names of the mechanisms that read what a query gives, in the table's order."""
    rows = [
        row.mechanism for row in TABLE if issubclass(query.output_type, row.mechanism.input_type)
    ]
    return [kind.__name__ for kind in dict.fromkeys(rows)]


def _fits(row: Row, path: ReleasePath, delta: float) -> bool:
    """Return whether a mechanism reads what the query gives, and can promise something of it."""
    query, domain = _query(path)
    few, many, kind = row.family.least, row.family.most, row.mechanism
    if not (
        issubclass(query.output_type, kind.input_type)
        and (delta > 0 or row.promises == PURE)
        and few <= query.dimension(domain) <= many
    ):
        return False
    try:
        return math.isfinite(distance(path, _norm(kind)))
    except DeclarationError:  # the query knows nothing in that norm
        return False


def _query(path: ReleasePath) -> tuple[Query, Any]:
    handle = path.steps[-1].handle
    assert isinstance(handle.operation, Query)
    return handle.operation, handle.domain


def _norm(kind: type[Mechanism]) -> float:
    """Return the norm of a mechanism's distances; where a parameter says which, the Euclidean."""
    return 2 if isinstance(kind.norm, property) else kind.norm


def _size(row: Row, path: ReleasePath, delta: float) -> float:
    """Return the standard deviation on each number over a small epsilon; 0 where none is known."""
    if row.factor is None:
        return 0.0
    query, domain = _query(path)
    norm, dimension = _norm(row.mechanism), query.dimension(domain)
    whole = row.mechanism in (DiscreteLaplace, DiscreteGaussian)
    moved = lattice.rounding_distance(query.step(domain), 1.0) if whole else 0.0
    size = row.factor(dimension, delta) * (distance(path, norm) + moved * dimension ** (1 / norm))
    return float(f"{size:.9g}")  # ties are ties, whatever the rounding


def _why(row: Row, size: float, missing: list[str]) -> str:
    """Return the reason in a sentence."""
    noise = f", noise of about {size:.3g}/epsilon on each number" if row.factor else ""
    known = [name for name in row.needs if name not in missing]
    told = f"; its {' and '.join(known)} can be told" if known else ""
    wait = f"; it waits for its {' and '.join(missing)}" if missing else ""
    return f"{row.family.name.lower()}{noise}; good where {row.good}, but {row.but}{told}{wait}"
