"""Which mechanism for which query: a table of applicability, and advice that is read off it.

A *family* is one idea: what it applies to, and when it is efficient to compute (the two columns by
which surveys compare them). A *row* of the table is a mechanism of a family: what it promises,
where it does well and what speaks against it. `suitable` returns the rows that can release a query.
The advice is not a proof: what a release costs is in its certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from attrs import NOTHING, evolve, frozen

from accountants import Secret
from adaptive_dp.graph.compile import distance
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node, structure
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import Pipeline, check_delta, public_data
from adaptive_dp.graph.run import private_values
from adaptive_dp.graph.values import fields_of, html_text, positive
from adaptive_dp.mechanisms import (
    BetweenThresholds,
    DiscreteGaussian,
    DiscreteLaplace,
    DistanceToInstability,
    Exponential,
    Gaussian,
    GaussianSparseVector,
    InverseSensitivity,
    JointTopK,
    Laplace,
    LowerBound,
    NoisyMax,
    NoisyMaxWithGap,
    Norm,
    PartitionSelection,
    PermuteAndFlip,
    ProposeTestRelease,
    QuantileExponential,
    ReleasedSensitivity,
    SmoothCauchy,
    SmoothLaplace,
    SmoothLaplaceLogNormal,
    SmoothStudent,
    SparseVector,
    SparseVectorWithGap,
    ThresholdGaussian,
    ThresholdLaplace,
    TopK,
    TopKeys,
    UpperBound,
    WeightedGaussian,
)
from adaptive_dp.noise import lattice

PURE = "epsilon"
"""The promise of a row that needs no delta."""


@frozen
class Family:
    """One idea of how to release a value.

    Parameters
    ----------
    name
        Its name.
    applies
        What it applies to.
    efficient
        When it is efficient to compute.
    min_dimension, max_dimension
        How many numbers the value must have at least, and at most, for it to make sense.
    """

    name: str
    applies: str
    efficient: str
    min_dimension: int = 1
    max_dimension: float = math.inf


@frozen
class Row:
    """A mechanism, and when to choose it.

    Parameters
    ----------
    mechanism
        The class.
    family
        The idea behind it.
    promises
        The kind of its loss; all but `PURE` have an epsilon at a positive delta alone.
    strength
        Where it does well.
    drawback
        What speaks against it.
    factor
        For additive noise, a function from (d, delta) to the standard deviation on each of d
        numbers, in units of the sensitivity over a small epsilon; such rows are compared by it.
    """

    mechanism: type[Mechanism]
    family: Family
    promises: str
    strength: str
    drawback: str
    factor: Callable[[int, float], float] | None = None

    @property
    def theorem(self) -> str:
        """The theorem of the mechanism's loss."""
        return self.mechanism.theorem

    @property
    def required_parameters(self) -> tuple[str, ...]:
        """The parameters that must be chosen before calibration: no noise, budget or default."""
        # no default, and no role such as noise or budget: the user must choose it
        required = [f for f in fields_of(self.mechanism) if f.default is NOTHING]
        return tuple(f.name for f in required if "role" not in f.metadata)


def _laplace_factor(dimension: int, delta: float) -> float:
    """Return sqrt(2): Laplace noise of scale b has the variance 2 b^2."""
    return math.sqrt(2)


def _gaussian_factor(dimension: int, delta: float) -> float:
    """Return the sigma of the classical calibration (Dwork and Roth 2014, Thm A.1)."""
    return math.sqrt(2 * math.log(1.25 / delta))


def _norm_factor(dimension: int, delta: float) -> float:
    """Return sqrt(d + 1): a radius of law Gamma(d, b) has mean square d (d + 1) b^2, over d."""
    return math.sqrt(dimension + 1)


GLOBAL = Family(
    "Global sensitivity",
    "numbers, and vectors of them",
    "the global sensitivity is known, and finite",
)
SCORES = Family(
    "Exponential mechanism",
    "a choice among finitely many candidates by their scores",
    "the candidates can be listed",
    min_dimension=2,
)
RANKS = Family(
    "Exponential mechanism on an interval",
    "a median, or another quantile",
    "the score is constant between data points",
)
SPARSE = Family(
    "Sparse vector",
    "numbers, each compared with a threshold",
    "few of them are above it",
)
INVERSE = Family(
    "Inverse sensitivity",
    "numerical queries, and others with a path length",
    "it is quick to say what few changed rows can reach",
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
KEYS = Family(
    "Partition selection",
    "keys that nobody declared, and how many units have each",
    "the keys that occur fit in memory",
)
MARGIN = Family(
    "A bound for later mechanisms",
    "one number on which the loss of a later mechanism depends",
    "the global sensitivity is known, and finite",
    max_dimension=1,
)

DELTA, RENYI = "(epsilon, delta)", "Renyi DP"
FLAT, ONE_SIDED = "its noise is for the worst case", "it is off by several sigma, on the safe side"

TABLE = (
    Row(DiscreteLaplace, GLOBAL, PURE, "counts must stay integers", FLAT, _laplace_factor),
    Row(
        Laplace,
        GLOBAL,
        PURE,
        "numbers are few, or one unit moves few of them",
        FLAT,
        _laplace_factor,
    ),
    Row(DiscreteGaussian, GLOBAL, "zCDP", "many counts must stay integers", FLAT, _gaussian_factor),
    Row(Gaussian, GLOBAL, "Gaussian DP", "numbers or releases are many", FLAT, _gaussian_factor),
    Row(
        Norm,
        GLOBAL,
        PURE,
        "one unit moves a vector in all directions",
        "its noise is drawn in float64",
        _norm_factor,
    ),
    Row(PermuteAndFlip, SCORES, PURE, "there is a single choice to make", "it composes worse"),
    Row(Exponential, SCORES, PURE, "there are many choices to make", "the expected score is lower"),
    Row(TopK, SCORES, PURE, "the best few are wanted, in order", "each of them is paid"),
    Row(
        JointTopK,
        SCORES,
        PURE,
        "many of the best are wanted, and their scores are far apart",
        "it is as good as its worst place",
    ),
    Row(NoisyMax, SCORES, PURE, "it must match what others use", "the expected score is lower"),
    Row(NoisyMaxWithGap, SCORES, PURE, "the winner's lead is wanted too", "it composes worse"),
    Row(
        QuantileExponential,
        RANKS,
        PURE,
        "data are dense near the quantile, or many rows share a value",
        "its error is in ranks",
    ),
    Row(
        InverseSensitivity,
        INVERSE,
        PURE,
        "few rows decide the value",
        "bounds by sums of local sensitivities are wide",
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
        "other releases are Gaussian",
        "tails are heavier than any exponential",
    ),
    Row(
        DistanceToInstability,
        STABLE,
        DELTA,
        "the winner is clear",
        "it returns None where others are close",
    ),
    Row(
        ReleasedSensitivity,
        BOUNDED,
        PURE,
        "the local sensitivity changes slowly",
        "a slope near epsilon, or one not of the logarithm, costs the delta",
    ),
    Row(
        ProposeTestRelease,
        TESTED,
        DELTA,
        "the guess holds far from the data too",
        "it returns NaN where it does not",
    ),
    Row(SparseVector, SPARSE, PURE, "few are above", "it releases only which"),
    Row(
        SparseVectorWithGap,
        SPARSE,
        PURE,
        "leads are wanted too, or many are far above",
        "its leads have the noise of two numbers",
    ),
    Row(
        BetweenThresholds,
        SPARSE,
        DELTA,
        "only values between two thresholds matter",
        "it ends at the first of them",
    ),
    Row(GaussianSparseVector, SPARSE, RENYI, "such runs are many", "it ends after K values"),
    Row(ThresholdLaplace, KEYS, DELTA, "a unit has one key, or few", "rare keys do not show"),
    Row(ThresholdGaussian, KEYS, DELTA, "a unit has many keys", "rare keys do not show"),
    Row(
        PartitionSelection,
        KEYS,
        DELTA,
        "a unit has one key, and counts are not needed",
        "it releases only which",
    ),
    Row(
        WeightedGaussian,
        KEYS,
        DELTA,
        "a unit has many keys, and counts are not needed",
        "it releases only which",
    ),
    Row(
        TopKeys,
        KEYS,
        DELTA,
        "a unit has many keys, and the few of the largest counts are wanted",
        "each of them is paid",
    ),
    Row(LowerBound, MARGIN, DELTA, "a larger value is better, such as an eigenvalue", ONE_SIDED),
    Row(UpperBound, MARGIN, DELTA, "a smaller value is better, such as a norm", ONE_SIDED),
)
"""Every mechanism of the toolbox; in a family, and between families, the first choice first."""


@frozen
class Advice:
    """A mechanism that can release a query, and why it has its place in the order.

    Parameters
    ----------
    row
        The row of the table.
    query
        What it releases.
    why
        The reason, in a sentence.
    """

    row: Row
    query: PrivateQuery[Any]
    why: str

    @property
    def mechanism(self) -> type[Mechanism]:
        """The mechanism's class."""
        return self.row.mechanism

    def __str__(self) -> str:
        return f"{self.mechanism.__name__}: {self.why}"

    def _repr_html_(self) -> str:
        return html_text(self)


def suitable(
    query: PrivateQuery[Any],
    *,
    delta: float = 0.0,
    knows: Collection[str] = (),
    epsilon: float = 1.0,
    rows: int = 1_000,
    **data: Any,
) -> list[Advice]:
    """Return the mechanisms that can release a query, best first, each with the reason.

    First come mechanisms whose parameters you know, last those with a parameter that you do not.
    Additive noise for the global sensitivity is compared by its size on each number, at one
    release. Mechanisms whose noise follows the data are compared by their error on data that are
    not private, which nine of ten releases at epsilon and delta keep. The table's order decides the
    rest. Only the query counts: mechanisms that are `given` released values belong to the learners
    whose steps they are.

    Parameters
    ----------
    query
        A private query, before its release.
    delta
        The plan's, in [0, 1); at 0 mechanisms that promise nothing without one are left out.
    knows
        Names of parameters whose values you know without looking at the data: a ``bound`` of the
        local sensitivity, by how much that changes a step (``slope``), a ``threshold``,
        ``queries``, or the ``reach`` and ``failure`` of a bound.
    epsilon
        Of the one release at which errors are compared.
    rows
        On how many made-up rows errors are compared, uniform over what is declared.
    data
        Public data like the private ones, or data made up otherwise, by the data sets' names: the
        order of mechanisms that follow the data can be another on them.

    Returns
    -------
    list of Advice
        Best first; ``advice.mechanism`` is the class, ``advice.query`` what it releases: for a mode
        at delta 0 the histogram, whose largest count is chosen.

    Raises
    ------
    DeclarationError
        If it is not a query, or no mechanism has such a parameter, or delta is not a probability;
        or if it is 0, and no mechanism can release such a query without one.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 120), "town": ["a", "b"]})
    >>> advice = dp.suitable(people["town"].mode(), delta=1e-6)[0]
    >>> advice.mechanism.__name__, advice.row.promises
    ('DistanceToInstability', '(epsilon, delta)')
    >>> print(dp.suitable(people.count())[0])
    DiscreteLaplace: global sensitivity, noise of about 1.41/epsilon on each number; good where
    counts must stay integers, but its noise is for the worst case
    >>> for advice in dp.suitable(people["age"].median()):
    ...     print(advice.mechanism.__name__)
    QuantileExponential
    InverseSensitivity
    SmoothCauchy
    SmoothStudent
    ReleasedSensitivity
    """
    if not (positive(epsilon) and math.isfinite(epsilon)):
        raise DeclarationError(f"suitable's epsilon must be a positive number, got {epsilon!r}")
    advice = _by_table(query, check_delta(delta), knows)
    # a mode is the first of the largest counts, which can be chosen among as scores too
    histogram = getattr(query.operation, "histogram", None)
    if isinstance(histogram, Query):
        scores = PrivateQuery[Any](histogram, query.inputs)
        advice += [
            evolve(each, why=f"of its histogram, {each.why}")
            for each in _by_table(scores, delta)
            if each.row.family is SCORES
        ]
    if not advice and (with_delta := _by_table(query, 1e-6, knows)):
        names = ", ".join(f"dp.{each.mechanism.__name__}" for each in with_delta[:3])
        raise DeclarationError(
            f"no mechanism can release {query.operation.label()} at delta 0; with a delta, such as "
            f"suitable(query, delta=1e-6), there are {names}"
        )
    # those that follow the data and need nothing stand together in the table's order
    places = [i for i, each in enumerate(advice) if _is_compared(each)]
    if len(places) > 1:
        errors = _errors([advice[i] for i in places], epsilon, delta, rows, data)
        # the path lengths of a quantile are ranks at best: what draws say between the two is chance
        by_rank = [error for error, each in errors if each.row.family is RANKS]
        errors = [
            (max(error, *by_rank) if by_rank and each.row.family is INVERSE else error, each)
            for error, each in errors
        ]
        errors.sort(key=lambda pair: pair[0])  # a stable sort, and all are known or none is
        for i, (error, each) in zip(places, errors, strict=True):
            off = (
                "" if math.isnan(error) else f"; nine of ten releases are off by up to {error:.2g}"
            )
            advice[i] = evolve(each, why=each.why + off)
    return advice


def _is_compared(advice: Advice) -> bool:
    """Return whether the error of a mechanism depends on the data, and is known on others."""
    return advice.row.family in (RANKS, INVERSE, SMOOTH) and not advice.row.required_parameters


DRAWS = 101
"""Releases of which errors are computed: nine of ten are within .84 to .96 of all, in 95%."""


def _errors(
    advice: Sequence[Advice], epsilon: float, delta: float, rows: int, data: dict[str, Any]
) -> list[tuple[float, Advice]]:
    """Return the error that nine of ten releases keep, on data that are given or made up."""
    budget = {"epsilon": epsilon, "delta": delta}
    pairs = []
    for each in advice:
        declared = {f.name for f in fields_of(each.mechanism) if f.default is NOTHING}
        mechanism = each.mechanism(**{k: v for k, v in budget.items() if k in declared})
        plan = Pipeline(value=each.query.release(mechanism))
        if plan.free:
            plan = plan.calibrate(epsilon=epsilon, delta=delta)
        *others, node = plan.structure.releases
        if others:  # on which the query depends: its value is another in each run
            return [(math.nan, each) for each in advice]
        many = Pipeline(**{f"v{i}": each.query.release(node.mechanism) for i in range(DRAWS)})
        many = many.with_delta(delta)
        bound, _ = public_data(plan.structure, rows, data)
        [name] = {path.steps[-1].name for path in many.structure.releases}
        true = private_values(many, {n: Secret(v) for n, v in bound.items()}, 0, [name])[name]
        value = true.reveal().value
        released = many.simulate(seed=0, **bound).values()
        pairs.append((float(np.quantile([abs(float(v) - value) for v in released], 0.9)), each))
    return pairs


def _by_table(query: PrivateQuery[Any], delta: float, knows: Collection[str] = ()) -> list[Advice]:
    """Return the mechanisms that can release a query, in the table's order."""
    names = {knows} if isinstance(knows, str) else set(knows)
    if not (isinstance(query, PrivateQuery) and isinstance(query.operation, Query)):
        made = "; it is a release already, whose noise calibrate chooses"
        raise DeclarationError(
            "suitable takes a private query such as people.count(), before its release, got a "
            f"{type(query).__name__}{made if isinstance(query, Released) else ''}"
        )
    # any row's required parameter may be known, also of a row that cannot release this query
    parameters = {name for row in TABLE for name in row.required_parameters}
    unknown = ", ".join(sorted(map(str, names - parameters)))
    if unknown:
        raise DeclarationError(
            f"no mechanism has a required parameter {unknown}; knows takes names among "
            f"{', '.join(sorted(parameters))}"
        )
    # the query's lineage as nodes, from which its distance is computed
    nodes = structure([((query.operation.label(),), query)])
    steps = nodes.lineage(nodes.of(query))
    # families in the order of the table, which is their order of preference
    families = list(dict.fromkeys(row.family for row in TABLE))
    ranked = []
    for row in filter(lambda row: _applies(row, steps, delta), TABLE):
        size = _noise_size(row, steps, delta)
        missing = [name for name in row.required_parameters if name not in names]
        # 0: all its parameters are known; 1: it has none; 2: one is missing
        # a mechanism that is fully known comes before one that needs nothing, both before a guess
        readiness = (2 if missing else 0) if row.required_parameters else 1
        rank = readiness, families.index(row.family), size
        ranked.append((rank, Advice(row, query, _reason(row, size, missing))))
    # by rank alone, as `Advice` has no order; the sort is stable: ties keep the table's order
    return [advice for _, advice in sorted(ranked, key=lambda pair: pair[0])]


def default(query: PrivateQuery[Any]) -> Mechanism:
    """Return the mechanism of a query that is released without one, with its noise free.

    The first that `suitable` names, at delta 0 before others, of those that need no parameter and
    whose noise is drawn exactly.

    Raises
    ------
    DeclarationError
        If there is none, with those that need a parameter.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 120), "town": ["a", "b"]})
    >>> for query in (people.count(), people["age"].sum(), people["age"].median()):
    ...     print(default(query))
    DiscreteLaplace(scale=noise)
    Laplace(scale=noise)
    QuantileExponential(scale=noise)
    >>> people["town"].mode().release()
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DeclarationError: a mode of 2 bins has no default mechanism; release it
    by one whose parameters you choose, such as .release(dp.DistanceToInstability(...))
    """
    # a plan has a delta only where it is asked for
    advice = [*_by_table(query, 0.0), *_by_table(query, 1e-6)]
    for each in advice:
        declared = fields_of(each.mechanism)
        if each.mechanism is not Norm and all(f.default is not NOTHING for f in declared):
            return each.mechanism()
    names = dict.fromkeys(f".release(dp.{each.mechanism.__name__}(...))" for each in advice)
    hint = f", such as {' or '.join(list(names)[:2])}" if names else ""
    raise DeclarationError(
        f"a {query.operation.label()} has no default mechanism; release it by one whose parameters "
        f"you choose{hint}"
    )


def readers(query: Query) -> list[str]:
    """Return the names of the mechanisms that read a query's output, in the table's order."""
    mechanisms = [
        row.mechanism for row in TABLE if issubclass(query.output_type, row.mechanism.input_type)
    ]
    return [mechanism.__name__ for mechanism in dict.fromkeys(mechanisms)]


def _applies(row: Row, steps: Sequence[Node], delta: float) -> bool:
    """Return whether a mechanism reads the query's output, and promises something at delta."""
    query, domain = _query_and_domain(steps)
    mechanism, family = row.mechanism, row.family
    # the query's type, the plan's delta and the number of coordinates must all fit
    if not (
        issubclass(query.output_type, mechanism.input_type)
        and (delta > 0 or row.promises == PURE)
        and family.min_dimension <= query.dimension(domain) <= family.max_dimension
    ):
        return False
    try:
        return math.isfinite(distance(steps, _norm(mechanism)))
    except DeclarationError:  # the query has no sensitivity in that norm
        return False


def _query_and_domain(steps: Sequence[Node]) -> tuple[Query, Any]:
    handle = steps[-1].handle
    assert isinstance(handle.operation, Query)
    return handle.operation, handle.domain


def _norm(mechanism: type[Mechanism]) -> float:
    """Return the norm of a mechanism's distances; 2 where it depends on a parameter."""
    return 2 if isinstance(mechanism.norm, property) else mechanism.norm


def _noise_size(row: Row, steps: Sequence[Node], delta: float) -> float:
    """Return the standard deviation on each number times epsilon; 0 where no factor is known.

    Of keys that nobody declared, about the count from which on a key shows, times epsilon.
    """
    if row.family is KEYS:
        rows, spread = distance(steps, 1), distance(steps, 2)
        tail = math.log(max(rows, 1) / delta)
        if row.mechanism is ThresholdLaplace:
            return rows * tail
        gaussian = spread * _gaussian_factor(1, delta) * math.sqrt(2 * tail)
        return gaussian if row.mechanism is ThresholdGaussian else math.inf  # no counts
    if row.factor is None:
        return 0.0
    query, domain = _query_and_domain(steps)
    norm, dimension = _norm(row.mechanism), query.dimension(domain)
    # discrete noise rounds the value to integers, which moves each coordinate by up to 1
    is_discrete = row.mechanism in (DiscreteLaplace, DiscreteGaussian)
    rounding = lattice.rounding_distance(query.step(domain), 1.0) if is_discrete else 0.0
    # rounding moves d coordinates by that much each, and the l_p norm by d^(1/p) times it
    sensitivity = distance(steps, norm) + rounding * dimension ** (1 / norm)
    return float(f"{row.factor(dimension, delta) * sensitivity:.9g}")  # ties survive rounding


def _reason(row: Row, size: float, missing: list[str]) -> str:
    """Return why a row has its place, in a sentence."""
    noise = f", noise of about {size:.3g}/epsilon on each number" if row.factor else ""
    # only required parameters are mentioned; those with a default are no obstacle
    available = [name for name in row.required_parameters if name not in missing]
    have = f"; its {' and '.join(available)} is known" if available else ""
    lack = f"; it needs a value for {' and '.join(missing)}" if missing else ""
    reason = f"{row.family.name.lower()}{noise}; good where {row.strength}, but {row.drawback}"
    return f"{reason}{have}{lack}"
