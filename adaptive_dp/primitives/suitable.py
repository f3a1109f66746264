"""Advice: which mechanisms can release a query, best first, from the table of applicability.

It is no proof: what a release costs, its certificate says.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from attrs import frozen

from adaptive_dp.graph.arguments import certified_at
from adaptive_dp.graph.charge import Charge
from adaptive_dp.graph.compile import distance
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, lineage
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.structure import Node
from adaptive_dp.noise import lattice
from adaptive_dp.primitives.applicability import PURE, TABLE, Row
from adaptive_dp.primitives.discrete_gaussian import DiscreteGaussian
from adaptive_dp.primitives.discrete_laplace import DiscreteLaplace


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
    delta, names = certified_at(delta), {knows} if isinstance(knows, str) else set(knows)
    require(
        isinstance(query, PrivateQuery) and isinstance(query.operation, Query),
        "suitable is about a private query such as people.count(), before its release, got a "
        f"{type(query).__name__}",
    )
    parameters = {name for row in TABLE for name in row.needs}
    others = ", ".join(sorted(map(str, names - parameters)))
    require(
        not others,
        f"no mechanism waits for {others}; what one may know beforehand is among "
        f"{', '.join(sorted(parameters))}",
    )
    found = []
    families = list(dict.fromkeys(row.family for row in TABLE))
    chain = [
        Node(h, h.operation.label(), "", (), (), (), (), i) for i, h in enumerate(lineage(query))
    ]
    charge = Charge(chain[-1], tuple(chain))
    for row in filter(lambda row: _fits(row, charge, delta), TABLE):
        size = _size(row, charge, delta)
        missing = [name for name in row.needs if name not in names]
        ready = (2 if missing else 0) if row.needs else 1
        place = ready, families.index(row.family), size
        found.append((place, Advice(row, _why(row, size, missing))))
    return [advice for _, advice in sorted(found, key=lambda each: each[0])]


def readers(query: Query) -> list[str]:
    """Return the names of the mechanisms that read what a query gives, in the table's order."""
    rows = [row.mechanism for row in TABLE if issubclass(query.gives, row.mechanism.reads)]
    return [kind.__name__ for kind in dict.fromkeys(rows)]


def _fits(row: Row, charge: Charge, delta: float) -> bool:
    """Return whether a mechanism reads what the query gives, and can promise something of it."""
    query, domain = _query(charge)
    few, many, kind = row.family.least, row.family.most, row.mechanism
    if not (
        issubclass(query.gives, kind.reads)
        and (delta > 0 or row.promises == PURE)
        and few <= query.dimension(domain) <= many
    ):
        return False
    try:
        return math.isfinite(distance(charge, _norm(kind)))
    except DeclarationError:  # the query knows nothing in that norm
        return False


def _query(charge: Charge) -> tuple[Query, Any]:
    handle = charge.chain[-1].handle
    assert isinstance(handle.operation, Query)
    return handle.operation, handle.domain


def _norm(kind: type[Mechanism]) -> float:
    """Return the norm of a mechanism's distances; where a parameter says which, the Euclidean."""
    return 2 if isinstance(kind.norm, property) else kind.norm


def _size(row: Row, charge: Charge, delta: float) -> float:
    """Return the standard deviation on each number over a small epsilon; 0 where none is known."""
    if row.factor is None:
        return 0.0
    query, domain = _query(charge)
    norm, dimension = _norm(row.mechanism), query.dimension(domain)
    whole = row.mechanism in (DiscreteLaplace, DiscreteGaussian)
    moved = lattice.rounding_distance(query.step(domain), 1.0) if whole else 0.0
    size = row.factor(dimension, delta) * (distance(charge, norm) + moved * dimension ** (1 / norm))
    return float(f"{size:.9g}")  # ties are ties, whatever the rounding


def _why(row: Row, size: float, missing: list[str]) -> str:
    """Return the reason in a sentence."""
    noise = f", noise of about {size:.3g}/epsilon on each number" if row.factor else ""
    known = [name for name in row.needs if name not in missing]
    told = f"; its {' and '.join(known)} can be told" if known else ""
    wait = f"; it waits for its {' and '.join(missing)}" if missing else ""
    return f"{row.family.name.lower()}{noise}; good where {row.good}, but {row.but}{told}{wait}"
