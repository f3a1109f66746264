"""A discrete pair that dominates whatever keeps finitely many (epsilon, delta) guarantees.

With ``t = e^eps`` a hockey-stick h(t) is convex, falls from h(0) = 1, and in the other direction
is ``1 - t + t h(1/t)``. A guarantee (eps, delta) in both directions therefore says
``h(t) <= delta`` and ``h(1/t) <= 1 - (1 - delta)/t``, and h lies under the lower convex hull g of
all these points, of (0, 1), and of the level of the last of them. A convex g is itself the
hockey-stick of a pair: with the ratio r = dP/dQ, ``h(t) = E_Q (r - t)_+`` has the slope
``-Q(r > t)``. So the atoms of r lie at the vertices of the hull, Q's mass there is by how much
the slope of g grows, P's is t times that, and the level D of g at infinity is what P has where Q
has nothing. The hull is its own mirror image, so Q has the same D
where P has nothing: the two are told apart with probability D, and otherwise are the atoms.

All this is done in exact rationals, with ``e^eps`` rounded up in its 89th digit (h falls, so a
guarantee at eps is one at anything above). What is left is the rounding of each mass to a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

from attrs import frozen

from accountants.atoms import Atoms
from accountants.errors import DomainError, nonnegative, probability
from accountants.rounding import ceiling

LARGEST = 600.0
"""A guarantee at an epsilon above this is not used: masses would leave the floats."""

_LEAST = 1e-290
"""A vertex with less mass than this is left out, for the same reason."""

_NEAREST = 1e-30
"""Positive epsilons below this are raised to it."""

_DIGITS = Context(prec=90)

Guarantees = Sequence[tuple[float, Fraction]]
"""Pairs of epsilon, rising from 0 or more, and delta, falling, below 1."""


@frozen
class Vertex:
    """An atom: the loss and its masses, the failure's not taken out."""

    loss: float
    p: Fraction
    q: Fraction


def from_profile(epsilons: Iterable[float], deltas: Iterable[float]) -> tuple[float, Atoms]:
    """Return the failure and the pair that dominate all that keeps the guarantees given.

    Parameters
    ----------
    epsilons
        Non-negative and finite, in any order.
    deltas
        As many, in [0, 1]; each guarantee holds in both directions.

    Returns
    -------
    failure : float
        The probability with which the two are told apart: the least delta that is of use.
    pair : Atoms
        The pair otherwise; its losses are epsilons given and their negatives.

    References
    ----------
    Derived in the module's docstring: the lower convex hull of the guarantees' points is a
    hockey-stick.

    Examples
    --------
    >>> failure, pair = from_profile([0.5, 1.0], [0.1, 1e-6])
    >>> failure, pair.losses
    (1e-06, (-1.0, -0.5, 0.5, 1.0))
    """
    guarantees = useful(epsilons, deltas)
    while guarantees:
        atoms = vertices(guarantees)
        weak = {abs(v.loss) for v in atoms if min(v.p, v.q) < _LEAST}
        if not weak:
            return _conditional(atoms, guarantees[-1][1])
        # fewer guarantees have a higher hull
        guarantees = [g for g in guarantees if g[0] not in weak]
    return 1.0, Atoms((0.0,), (1.0,), (1.0,), exact=False)


def useful(epsilons: Iterable[float], deltas: Iterable[float]) -> list[tuple[float, Fraction]]:
    """Return the guarantees by rising epsilon, without those that an earlier one implies."""
    eps = [nonnegative("an epsilon of a profile", value) for value in epsilons]
    levels = [probability("a delta of a profile", value) for value in deltas]
    if len(eps) != len(levels) or not eps:
        raise DomainError(
            f"a profile needs a delta for each epsilon and at least one of them, got {len(eps)} "
            f"epsilons and {len(levels)} deltas"
        )
    kept: list[tuple[float, Fraction]] = []
    for at, level in sorted(zip(eps, levels, strict=True)):
        # a guarantee that an earlier one implies says nothing more
        if level < (kept[-1][1] if kept else 1) and at <= LARGEST:
            # a larger epsilon promises less: sound
            raised = max(at, _NEAREST) if at else 0.0
            if kept and kept[-1][0] == raised:
                kept.pop()
            kept.append((raised, Fraction(level)))
    return kept


def vertices(guarantees: Guarantees) -> list[Vertex]:
    """Return the atoms of the hull, by rising loss; their masses add up to 1 - D."""
    right = [(eps, exponential(eps), delta) for eps, delta in guarantees]
    # the mirror image: a guarantee at eps says h(1/t) <= 1 - (1 - delta)/t
    left = [(-eps, 1 / t, 1 - (1 - delta) / t) for eps, t, delta in reversed(right) if eps]
    hull = lower_hull([(0.0, Fraction(), Fraction(1)), *left, *right])
    slopes = [(b[2] - a[2]) / (b[1] - a[1]) for a, b in pairwise(hull)]
    steps = zip(hull[1:], slopes, [*slopes[1:], Fraction()], strict=True)
    # Q's mass is by how much the slope grows, P's t times that
    return [Vertex(at, t * (after - before), after - before) for (at, t, _), before, after in steps]


def exponential(eps: float) -> Fraction:
    """Return a rational at least ``e^eps``, and within 1e-87 of it."""
    if eps == 0:
        # rounded up: a guarantee at eps is one at anything above
        return Fraction(1)
    return Fraction(_DIGITS.exp(Decimal(eps))) * (1 + Fraction(1, 10**88))


def logarithm(ratio: Fraction) -> float:
    """Return a float at least ``log ratio``, for a ratio of at least 1; 0 exactly for 1."""
    if ratio == 1:
        return 0.0
    quotient = _DIGITS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    # rounded up past the 90 digits' own error
    return ceiling(Fraction(_DIGITS.ln(quotient)) + Fraction(1, 10**80))


def lower_hull(
    points: Sequence[tuple[float, Fraction, Fraction]],
) -> list[tuple[float, Fraction, Fraction]]:
    """Return the lower convex hull of points by rising second entry (Andrew's chain)."""
    hull: list[tuple[float, Fraction, Fraction]] = []
    for point in points:
        # a point above the chord of its neighbours is not a vertex
        while len(hull) > 1 and not _below(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _below(
    a: tuple[float, Fraction, Fraction],
    b: tuple[float, Fraction, Fraction],
    c: tuple[float, Fraction, Fraction],
) -> bool:
    """Whether b lies below the chord from a to c."""
    return (b[2] - a[2]) * (c[1] - a[1]) < (c[2] - a[2]) * (b[1] - a[1])


def _conditional(hull: Sequence[Vertex], failure: Fraction) -> tuple[float, Atoms]:
    rest = 1 - failure
    atoms = Atoms(
        [v.loss for v in hull],
        # given that the two are not told apart: divided by 1 - D
        [float(v.p / rest) for v in hull],
        [float(v.q / rest) for v in hull],
        exact=False,
    )
    return ceiling(failure), atoms
