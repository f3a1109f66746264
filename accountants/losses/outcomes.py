"""Losses of one's own: from probabilities of outcomes, from densities, from a trade-off function.

`FiniteOutcomes` is the exact loss of a mechanism with finitely many outcomes. Its trade-off
function is a polygon, one edge for each outcome, and every polygon is that of such a mechanism; so
a convex trade-off function of which points are known is bounded by a polygon below it. Densities on
an interval become guarantees at many epsilons (`accountants.losses.given.PrivacyProfile`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from numbers import Rational
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import DomainError, InapplicableError, probability
from accountants.finite import FinitePair, gaussian_mu, logarithm, lower_hull
from accountants.loss import PrivacyLoss, _profile
from accountants.losses.given import PrivacyProfile
from accountants.numerics import UNIT, Array, Bounds, ceiling, flooring, up
from accountants.pair import Pair

_LEAST = Fraction(1, 10**290)
"""An outcome less likely than this under one law is taken to be impossible under it."""

_SUM = 1e-9
"""Probabilities that are given as floats may miss a sum of 1 by so much: their rounding."""


def _fractions(value: Iterable[Any]) -> tuple[Fraction, ...]:
    return tuple(map(_fraction, value))


def _fraction(value: Any) -> Fraction:
    try:
        number = Fraction(value)
    except (TypeError, ValueError, OverflowError):
        number = Fraction(-1)
    if isinstance(value, bool | str) or number < 0:
        raise DomainError(f"a probability must be a non-negative number, got {value!r}")
    return number


@frozen(slots=False, cache_hash=True)
class FiniteOutcomes(PrivacyLoss):
    """A mechanism with finitely many outcomes, by their probabilities with the unit and without it.

    The privacy loss takes the values ``log(p_i / q_i)``, outcomes of one value being one. Under
    one law alone an outcome may be impossible: let a be P's mass where Q has none, and b Q's where
    P has none. Where a = b, that mass is the delta floor, and the rest is a pair as it is. Where
    a > b, a is the floor, and as much as a - b of Q's mass is taken away from the outcomes of the
    least loss, so that there the ratio becomes one level ``e^l``. Then, for every t, with q' for
    what is left of q,

    ``a + sum_i (p_i - t q'_i)_+ >= a + sum_i (p_i - t q_i)_+``, and in the other direction
    ``a + sum_i (q'_i - t p_i)_+ >= b + sum_i (q_i - t p_i)_+``,

    since ``(q_i - t p_i)_+ <= (q'_i - t p_i)_+ + q_i - q'_i``. Level l is at most 0, because
    ``sum_i min(p_i, q_i) <= 1 - a``. So one such loss alone keeps its exact profile at every
    epsilon from 0 on, and a composition has an upper bound.

    Parameters
    ----------
    p, q
        As many, non-negative, each adding up to 1. A float is the rational number that it is.
    attained
        Whether some neighbours have just these two laws, so that lower bounds follow.

    References
    ----------
    Zhu, Dong and Wang 2022, Def. 7 and Thm 10 (pairs and their composition); Dong, Roth and Su
    2022, Props 2 and 4 (trade-off functions); proven above where a and b differ.

    See Also
    --------
    accountants.PrivacyLoss.from_probabilities : makes it from mappings or arrays.

    Examples
    --------
    >>> three, one = Fraction(3, 4), Fraction(1, 4)
    >>> loss = FiniteOutcomes(p=[three, one], q=[one, three])
    >>> round(loss.pure(), 12) == round(math.log(3), 12), round(loss.mu(), 6)
    (True, 1.34898)
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "probabilities of all outcomes: Zhu, Dong & Wang 2022, Thm 10"

    p: tuple[Fraction, ...] = field(converter=_fractions)
    q: tuple[Fraction, ...] = field(converter=_fractions)
    attained: bool = True

    def __attrs_post_init__(self) -> None:
        if len(self.p) != len(self.q) or sum(self.p) != 1 or sum(self.q) != 1:
            raise DomainError(
                "FiniteOutcomes needs as many probabilities under p as under q, each adding up to "
                f"1, got {len(self.p)} with sum {float(sum(self.p))!r} and {len(self.q)} with sum "
                f"{float(sum(self.q))!r}; PrivacyLoss.from_probabilities divides floats by it"
            )

    @cached_property
    def _worst(self) -> tuple[Fraction, FinitePair]:
        """Return the delta floor, and the pair beside it."""
        atoms: dict[Fraction, tuple[Fraction, Fraction]] = {}
        a, b, exact = Fraction(), Fraction(), self.attained
        for p, q in zip(self.p, self.q, strict=True):
            if min(p, q) < _LEAST:  # an outcome that is split into two tells no less
                a, b, exact = a + p, b + q, exact and not (p and q)
                continue
            before = atoms.get(p / q, (Fraction(), Fraction()))
            atoms[p / q] = before[0] + p, before[1] + q
        rising = [atoms[ratio] for ratio in sorted(atoms)]
        if a < b:
            rising = _swapped(_without(_swapped(rising), b - a))
        elif a > b:
            rising = _without(rising, a - b)
        floor = max(a, b)
        if not rising or floor >= 1:
            return Fraction(1), FinitePair((0.0,), (1.0,), (1.0,), tight=False)
        return floor, _pair(
            [(p / (1 - floor), q / (1 - floor)) for p, q in rising], exact and a == b
        )

    def delta_floor(self) -> float:
        """Return the probability of what is possible under one law alone."""
        return ceiling(self._worst[0])

    def pair(self) -> FinitePair:
        """Return the other outcomes' losses."""
        return self._worst[1]

    def pure(self) -> float:
        """Return the largest loss either way, beside the delta floor."""
        return max(0.0, self.pair().top(), -self.pair().bottom())

    def mu(self) -> float:
        """Return the least mu whose trade-off curve lies below the polygon, rounded up."""
        return gaussian_mu(self.pair())

    def profile(self, epsilon: float) -> Bounds:
        """Return the pair's with its delta floor; below, what some event shows if attained."""
        bounds = _profile(self.pair(), self.delta_floor(), epsilon)
        if not self.attained or self.pair().is_tight() or epsilon > 700:
            return bounds
        # any event bounds the hockey-stick from below: {p > e^eps q}, either way round
        p, q, ratio = (*self._floats, math.exp(epsilon))
        shown = max(
            float(np.maximum(one * (1 - 1e-13) - ratio * other * (1 + 1e-13), 0.0).sum())
            for one, other in ((p, q), (q, p))
        )
        return Bounds(min(max(bounds.lower, shown * (1 - 1e-12)), bounds.upper), bounds.upper)

    def grouped(self, size: int) -> PrivacyProfile:
        """Return the profile of each guarantee's group privacy (`PrivacyProfile.grouped`)."""
        losses = sorted({0.0, *map(abs, self.pair().losses)})
        some = losses[:: -(-len(losses) // 256)]
        points = [(each, self.profile(each).upper) for each in {*some, self.pure()}]
        return PrivacyProfile(points).grouped(size)

    @cached_property
    def _floats(self) -> tuple[Array, Array]:
        return np.array(self.p, dtype=np.float64), np.array(self.q, dtype=np.float64)


Atoms = Sequence[tuple[Fraction, Fraction]]
"""Masses under P and under Q, by rising ratio."""


def _swapped(atoms: Atoms) -> list[tuple[Fraction, Fraction]]:
    return [(q, p) for p, q in reversed(atoms)]


def _without(atoms: Atoms, amount: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Return the atoms with so much less under Q, taken where the ratio is least."""
    p, q = Fraction(), Fraction()
    for i, (first, second) in enumerate(atoms):
        p, q = p + first, q + second
        left = q - amount
        # one atom of all so far, unless its ratio would be above that of the next
        last = i + 1 == len(atoms)
        if left > 0 and (last or p * atoms[i + 1][1] <= left * atoms[i + 1][0]):
            rest = list(atoms[i + 1 :])
            if rest and p * rest[0][1] == left * rest[0][0]:
                return [(p + rest[0][0], left + rest[0][1]), *rest[1:]]
            return [(p, left), *rest]
    return []


def _pair(atoms: Atoms, tight: bool) -> FinitePair:
    losses = [logarithm(p / q) if p >= q else -logarithm(q / p) for p, q in atoms]
    kept: list[tuple[float, Fraction, Fraction]] = []
    for loss, (p, q) in zip(losses, atoms, strict=True):
        if kept and loss <= kept[-1][0]:  # ratios that are one float: their mean is between them
            before = kept.pop()
            p, q = before[1] + p, before[2] + q
        kept.append((loss, p, q))
    largest = max(abs(loss) for loss, _, _ in kept)
    return FinitePair(
        [loss for loss, _, _ in kept],
        [float(p) for _, p, _ in kept],
        [float(q) for _, _, q in kept],
        # of the masses, and of e^loss where the loss is rounded
        error=(16 + 4 * largest) * UNIT,
        tight=tight,
        multiple=_multiple([loss for loss, _, _ in kept], [p / q for _, p, q in kept]),
        loss_error=4 * UNIT if largest else 0.0,
    )


def _multiple(losses: Sequence[float], ratios: Sequence[Fraction]) -> float | None:
    """Return the least positive loss, where each ratio is a power of that loss's ratio."""
    sizes = [(abs(loss), max(r, 1 / r)) for loss, r in zip(losses, ratios, strict=True) if r != 1]
    if not sizes or len(sizes) != len([loss for loss in losses if loss]):
        return None
    step, base = min(sizes)
    for size, ratio in sizes:
        power = round(size / step)
        if power > 1024 or base**power != ratio:
            return None
    return step


def from_probabilities(p: Any, q: Any) -> FiniteOutcomes:
    """Return `FiniteOutcomes` of mappings from outcomes to probabilities, or of arrays."""
    if isinstance(p, Mapping) and isinstance(q, Mapping):
        outcomes = list(dict.fromkeys([*p, *q]))
        first, second = ([law.get(outcome, 0) for outcome in outcomes] for law in (p, q))
    elif isinstance(p, Mapping) or isinstance(q, Mapping):
        raise DomainError("from_probabilities needs two mappings or two arrays, got one of each")
    else:
        first, second = list(p), list(q)
    if len(first) != len(second):
        raise DomainError(
            f"from_probabilities needs a probability of each outcome under both laws, got "
            f"{len(first)} and {len(second)}"
        )
    return FiniteOutcomes(_law(first, "p"), _law(second, "q"))


def _law(values: Sequence[Any], name: str) -> tuple[Fraction, ...]:
    """Return probabilities with a sum of 1; floats are divided by theirs."""
    numbers = [value.item() if isinstance(value, np.generic) else value for value in values]
    masses = _fractions(numbers)
    total = sum(masses, Fraction())
    rounded = any(isinstance(number, float) for number in numbers)
    if total != 1 and not (rounded and abs(total - 1) <= _SUM):
        raise DomainError(
            f"the probabilities {name} must add up to 1, got {float(total)!r}; give "
            "fractions.Fraction where they are no floats"
        )
    return tuple(mass / total for mass in masses)


# -----------------------------------------------------------------------------
# Trade-off functions. T(alpha) is the least type II error of a test of P against Q with type I
# error alpha, here the probability under Q of rejecting it. T is convex, falls, and T(1) = 0.
#
# A polygon is the trade-off function of one outcome an edge: an edge as wide as Q's mass, and as
# high as P's. What is missing at the ends is possible under one law alone.
#
# Of a convex T that is known at points, the chord of two points, continued beyond them, lies below
# T. So between two points T is above the chord before and the chord after, continued, and above the
# value at the later point. Those lines meet in a corner between the two; the lower hull of all
# corners is a polygon below T. Every mechanism with that T has no larger hockey-stick than that of
# the polygon: ``delta(eps) = sup_x 1 - e^eps x - T(x)``, both ways.


_ROUNDING = Fraction(1, 10**12)
"""Values of a function that returns floats are right to this, relative."""

Points = Sequence[tuple[Fraction, Fraction]]


def from_tradeoff(
    tradeoff: Callable[[float], float] | Iterable[tuple[Any, Any]],
    *,
    at: Iterable[float] | None = None,
    polygon: bool = False,
) -> FiniteOutcomes:
    """Return the polygon of the points, or one below every convex function through them."""
    rounding = Fraction()
    if callable(tradeoff):
        alphas = _ALPHAS if at is None else sorted(at)
        pairs = [(alpha, float(tradeoff(float(alpha)))) for alpha in alphas]
        rounding = _ROUNDING
    elif at is not None:
        raise DomainError("from_tradeoff takes `at` with a function alone, got points")
    else:
        pairs = sorted(tradeoff)
    points = [(_share(alpha, "alpha"), _share(beta, "beta")) for alpha, beta in pairs]
    _check_convex(points, rounding)
    if polygon:
        if points[0][0] != 0 or points[-1][1] != 0 or rounding:
            raise DomainError(
                "a polygon is given by its points alone, from alpha = 0 to beta = 0, got "
                f"{pairs[0]} to {pairs[-1]}"
            )
        return _polygon(points, attained=True)
    corners = _corners(points, rounding)
    hull = lower_hull([(0.0, *corner) for corner in corners])
    return _polygon([(x, y) for _, x, y in hull], attained=False)


_ALPHAS = [math.erfc(-z / math.sqrt(2)) / 2 for z in np.linspace(-7.5, 7.0, 500).tolist()]
"""Where a trade-off function is asked if nothing is said: normal quantiles, in equal steps."""


def _share(value: Any, name: str) -> Fraction:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, Rational) and not isinstance(number, bool) and 0 <= Fraction(number) <= 1:
        return Fraction(number)  # exact, which a float of it may not be
    return Fraction(probability(f"a trade-off function's {name}", number))


def _check_convex(points: Points, rounding: Fraction) -> None:
    """Refuse points through which no trade-off function goes, given their rounding."""
    alphas = [alpha for alpha, _ in points]
    if len(points) < 2 or any(a >= b for a, b in pairwise(alphas)):
        raise DomainError(
            f"a trade-off function needs two points or more, with different alphas; got "
            f"{len(points)}"
        )
    for alpha, beta in points:
        if alpha + beta * (1 - rounding) > 1:
            raise DomainError(
                "a trade-off function has alpha + beta <= 1, which guessing attains, got "
                f"{float(alpha)!r} and {float(beta)!r}"
            )
    ends = [(Fraction(), Fraction(1), Fraction(1))] if alphas[0] > 0 else []
    known = [*ends, *((a, b * (1 - rounding), b * (1 + rounding)) for a, b in points)]
    if alphas[-1] < 1:
        known.append((Fraction(1), Fraction(), Fraction()))
    # T(0) is at most 1: a slope from (0, 1) is at least as steep as T's there
    slopes = [
        ((c - b_) / (y - x), (c_ - b) / (y - x))
        for (x, b, b_), (y, c, c_) in pairwise(known[len(ends) :])
    ]
    if any(least > 0 for least, _ in slopes):
        raise DomainError("a trade-off function falls, and the values given do not")
    if any(one[0] > two[1] for one, two in pairwise(slopes)):
        raise DomainError("a trade-off function is convex, and the values given are not")


def _corners(points: Points, rounding: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Return the corners of the lower bound, each moved down and to the left to floats."""
    low = [(a, b * (1 - rounding)) for a, b in points]
    high = [(a, min(1 - a, b * (1 + rounding))) for a, b in points]
    if points[0][0] > 0:
        # nothing is known left of the first point, but that T(0) is at most 1
        low, high = [(Fraction(), Fraction(-1)), *low], [(Fraction(), Fraction(1)), *high]
    if points[-1][0] < 1:
        low, high = [*low, (Fraction(1), Fraction())], [*high, (Fraction(1), Fraction())]
    corners: list[tuple[Fraction, Fraction]] = []
    for i, ((a, b), (c, d)) in enumerate(pairwise(low)):
        # the chord after, from the least at its start to the most at its end, continued; T falls
        after = Fraction()
        if i + 2 < len(low):
            after = min(after, (high[i + 2][1] - d) / (high[i + 2][0] - c))
        start = d - after * (c - a)
        if i == 0:  # no chord before: the line of the chord after, from alpha = 0 on
            first = min(start, high[0][1])
            corners += [(a, first if b < 0 else min(b, first)), (c, d)]
            continue
        before = (b - high[i - 1][1]) / (a - high[i - 1][0])
        # b + before (x - a) = start + after (x - a)
        if b > start and before < after:
            away = (b - start) / (after - before)
            if away < c - a:
                corners.append((a + away, b + before * away))
        corners.append((c, d))
    # down and to the left of each corner of a falling function lies a lower bound of it
    return sorted({(Fraction(flooring(x)), Fraction(max(0.0, flooring(y)))) for x, y in corners})


def _polygon(points: Points, *, attained: bool) -> FiniteOutcomes:
    """Return one outcome an edge, and what is possible under one law alone."""
    q = [b - a for (a, _), (b, _) in pairwise(points)]
    p = [a - b for (_, a), (_, b) in pairwise(points)]
    lone_p, lone_q = 1 - points[0][1], 1 - points[-1][0]
    if lone_p:
        p, q = [lone_p, *p], [Fraction(), *q]
    if lone_q:
        p, q = [*p, Fraction()], [*q, lone_q]
    return FiniteOutcomes(p, q, attained)


# -----------------------------------------------------------------------------
# Privacy profiles: a curve's values at many epsilons are guarantees, and their hull lies above it.


def from_curve(
    curve: Callable[[float], float] | Iterable[tuple[float, float]],
    *,
    at: Iterable[float] | None = None,
) -> PrivacyProfile:
    """Return the guarantees that a curve gives at many epsilons."""
    if not callable(curve):
        if at is not None:
            raise DomainError("from_curve takes `at` with a function alone, got points")
        return _falling(PrivacyProfile(curve))

    def delta(epsilon: float) -> float:
        return probability("a curve's delta", curve(epsilon))

    epsilons = _useful_epsilons(delta) if at is None else sorted(at)
    return _falling(PrivacyProfile([(float(each), delta(float(each))) for each in epsilons]))


def _falling(profile: PrivacyProfile) -> PrivacyProfile:
    for (a, high), (b, low) in pairwise(profile.points):
        if low > high:
            raise DomainError(
                f"a privacy profile falls in epsilon, got delta {high!r} at {a!r} and {low!r} at "
                f"{b!r}"
            )
    return profile


def _useful_epsilons(delta: Callable[[float], float]) -> list[float]:
    """Return many epsilons up to where delta is next to nothing, most of them where it is not."""
    reaches = []
    for small in (1e-12, 1e-100):
        reach = 2.0**-30
        while reach < 500 and delta(reach) > small:
            reach *= 2
        low = reach / 2
        for _ in range(12):  # a guess will do
            middle = (low + reach) / 2
            low, reach = (middle, reach) if delta(middle) > small else (low, middle)
        reaches.append(reach)
    near, far = reaches
    return sorted({*np.linspace(0, near, 301).tolist(), *np.linspace(near, far, 101).tolist()})


# -----------------------------------------------------------------------------
# Densities on an interval, cut into cells.
#
# Of each cell the facts that the caller states bound the integral of either density, and the
# log-ratio L in it, by [l, u]. With masses p in [p-, p+] and q in [q-, q+] of a cell,
#
# ``int (dP - t dQ)_+  <=  p+ - t q-``                where log t <= l: the cell counts as a whole;
# ``int (dP - t dQ)_+  <=  p+ (1 - t e^-u)``          where l < log t < u, since ``dQ >= e^-u dP``;
# nothing, where u <= log t. What lies outside of the interval counts as an infinite loss.
#
# The values given are taken to be right to a relative 1e-14 (beside 1), which every bound is moved
# outward by.


_CELLS = 2**16
_VALUE = 1e-14
"""How far a log-density that is computed may be off, beside 1 and relative."""


@frozen(eq=False)
class _Cells:
    """Bounds of the masses of one law, and of its log-density, cell by cell."""

    least: Array
    most: Array
    low: Array
    high: Array


def from_densities(
    log_p: Callable[[Array], Array],
    log_q: Callable[[Array], Array],
    *,
    support: tuple[float, float],
    lipschitz: float | None = None,
    log_concave: bool = False,
    monotone: bool = False,
    outside: float = 0.0,
) -> PrivacyProfile:
    """Return guarantees at many epsilons, from facts about two densities."""
    start, end = (float(each) for each in support)
    beyond = probability("outside", outside)
    if not (math.isfinite(start) and math.isfinite(end) and start < end):
        raise DomainError(f"support must be two finite numbers that rise, got {support!r}")
    if lipschitz is None and not log_concave:
        raise DomainError(
            "from_densities needs a fact that bounds densities between points: lipschitz= of both "
            "log-densities, or log_concave=True"
        )
    if lipschitz is not None and not 0 <= lipschitz < math.inf:
        raise DomainError(f"lipschitz must be a non-negative number, got {lipschitz!r}")
    edges = np.linspace(start, end, _CELLS + 1)
    values = [_values(each, edges, name) for each, name in ((log_p, "log_p"), (log_q, "log_q"))]
    laws = [
        _bounded_cells(f, np.diff(edges), lipschitz, log_concave, name, beyond)
        for f, name in zip(values, ("log_p", "log_q"), strict=True)
    ]
    low, high = laws[0].low - laws[1].high, laws[0].high - laws[1].low
    if monotone:
        ends = _monotone_losses(*values)
        low, high = np.maximum(low, ends[0]), np.minimum(high, ends[1])
    forward = _guarantees(laws[0], laws[1], low, high, beyond)
    return PrivacyProfile(forward, reverse=_guarantees(laws[1], laws[0], -high, -low, beyond))


def _values(log_density: Callable[[Array], Array], edges: Array, name: str) -> Array:
    values = np.asarray(log_density(edges), dtype=np.float64)
    if values.shape != edges.shape or not np.all(np.isfinite(values)):
        raise DomainError(
            f"{name} must return a finite number for each of an array of points of the support; "
            "where one law has no density, cut it off the support and count it in outside="
        )
    return values


def _exponential(one: Array, other: Array, width: Array) -> Array:
    """Return the integral of the exponential of a line from ``one`` to ``other``."""
    fall = np.abs(one - other)
    mean = np.where(fall > 0, -np.expm1(-fall) / np.where(fall > 0, fall, 1.0), 1.0)
    return np.asarray(width * np.exp(np.maximum(one, other)) * mean)


def _bounded_cells(
    f: Array,
    width: Array,
    lipschitz: float | None,
    log_concave: bool,
    name: str,
    outside: float,
) -> _Cells:
    left, right, noise = f[:-1], f[1:], _VALUE * (1 + np.abs(f))
    slack = np.maximum(noise[:-1], noise[1:])
    cells = []
    if lipschitz is not None:
        cells.append(_lipschitz_cells(left, right, width, lipschitz, slack, name))
    if log_concave:
        cells.append(_concave_cells(left, right, width, slack, name))
    # every fact bounds, so the better bounds hold; a log-density off by 4 of its errors at most,
    # where a chord is continued by one cell
    off = 4 * slack
    result = _Cells(
        np.max([c.least for c in cells], axis=0) * np.exp(-off) * (1 - 1e-14),
        np.min([c.most for c in cells], axis=0) * np.exp(off) * (1 + 1e-14) + 1e-300,
        np.max([c.low for c in cells], axis=0) - off,
        np.min([c.high for c in cells], axis=0) + off,
    )
    least, most = math.fsum(result.least.tolist()), math.fsum(result.most.tolist())
    if least > 1 or most < 1 - outside:
        raise DomainError(
            f"{name} is no density of mass 1 but for outside={outside:g}: its integral over the "
            f"support is between {least:.9g} and {most:.9g}"
        )
    return result


def _lipschitz_cells(
    left: Array, right: Array, width: Array, steepest: float, slack: Array, name: str
) -> _Cells:
    """Bound by the lines of slope ``steepest`` up, and down, from both ends of each cell."""
    move = steepest * width
    if np.any(np.abs(right - left) > move * (1 + 1e-9) + 2 * slack):
        raise DomainError(f"{name} moves faster than lipschitz={steepest:g} between two points")
    peak = np.maximum((left + right + move) / 2, np.maximum(left, right))
    trough = np.minimum((left + right - move) / 2, np.minimum(left, right))
    share = (right - left) / (2 * move) if steepest > 0 else np.zeros_like(left)
    first = width * np.clip(0.5 + share, 0.0, 1.0)  # to the peak; to the trough the rest
    most = _exponential(left, peak, first) + _exponential(peak, right, width - first)
    least = _exponential(left, trough, width - first) + _exponential(trough, right, first)
    return _Cells(least, most, trough, peak)


def _concave_cells(left: Array, right: Array, width: Array, slack: Array, name: str) -> _Cells:
    """Bound below by each cell's chord, above by its neighbours' chords, continued."""
    slope = (right - left) / width
    noise = 4 * (slack[1:] + slack[:-1]) / np.minimum(width[1:], width[:-1])
    if np.any(slope[1:] - slope[:-1] > noise):
        raise DomainError(f"{name} is not concave at the points that were tried")
    before, after = np.append(slope[0], slope[:-1]), np.append(slope[1:], slope[-1])
    # at the ends there is one neighbour alone: its line bounds the whole cell
    before[0], after[-1] = after[0], before[-1]
    left_top, right_top = left.copy(), right.copy()
    left_top[0] = right[0] - after[0] * width[0]
    right_top[-1] = left[-1] + before[-1] * width[-1]
    bend = before - after
    share = np.where(bend > 0, (right_top - left_top) / width - after, 0.0)
    first = width * np.clip(share / np.where(bend > 0, bend, 1.0), 0.0, 1.0)
    # at the meeting point either line; the larger where rounding tells them apart
    peak = np.maximum(left_top + before * first, right_top - after * (width - first))
    peak = np.maximum(peak, np.minimum(left_top, right_top))
    most = _exponential(left_top, peak, first) + _exponential(peak, right_top, width - first)
    high = np.maximum(peak, np.maximum(left_top, right_top))
    return _Cells(_exponential(left, right, width), most, np.minimum(left, right), high)


def _monotone_losses(f: Array, g: Array) -> tuple[Array, Array]:
    """Return the least and largest loss of each cell, at its ends."""
    loss, noise = f - g, 2 * _VALUE * (2 + np.abs(f) + np.abs(g))
    moves, slack = np.diff(loss), noise[1:] + noise[:-1]
    if np.any(moves > slack) and np.any(moves < -slack):
        raise DomainError("log_p - log_q is not monotone at the points that were tried")
    return (
        np.minimum(loss[1:] - noise[1:], loss[:-1] - noise[:-1]),
        np.maximum(loss[1:] + noise[1:], loss[:-1] + noise[:-1]),
    )


def _guarantees(p: _Cells, q: _Cells, low: Array, high: Array, outside: float) -> list[Any]:
    """Return epsilons and upper bounds of the hockey-stick of P against Q there."""
    top = float(max(0.0, high.max()))
    some = high > 0
    by_high, by_low = (np.argsort(each[some], kind="stable") for each in (high, low))
    highs, lows = high[some][by_high], low[some][by_low]
    whole, paid = p.most[some], q.least[some]
    worst = whole * np.exp(-high[some])

    def tails(values: Array, order: Any) -> Array:
        return np.append(np.cumsum(values[order][::-1])[::-1], 0.0)

    above = [tails(each, by_high) for each in (whole, worst)]
    inside = [tails(each, by_low) for each in (whole, worst, paid)]
    rounding = 8 * (len(whole) + 8) * UNIT

    def delta(epsilons: Array) -> Array:
        ratio = np.exp(epsilons)
        i = np.searchsorted(highs, epsilons, side="right")
        j = np.searchsorted(lows, epsilons, side="left")
        # cells between l and u, then those above
        between = above[0][i] - inside[0][j] - ratio * (above[1][i] - inside[1][j])
        total = between + inside[0][j] - ratio * inside[2][j]
        wrong = rounding * (above[0][i] + ratio * (above[1][i] + inside[2][j]))
        bound = np.minimum(np.maximum(total, 0.0) + wrong, above[0][i] * (1 + rounding))
        return np.asarray(np.minimum(1.0, up(bound + outside, 8)))

    epsilons = np.array(_useful_epsilons(lambda at: float(delta(np.array([at]))[0] - outside)))
    epsilons = np.append(epsilons[epsilons < top], up(top, 8))
    # beyond the largest loss nothing but the outside is left
    deltas = np.append(delta(epsilons[:-1]), outside)
    return list(zip(epsilons.tolist(), np.minimum.accumulate(deltas).tolist(), strict=True))


# -----------------------------------------------------------------------------
# Samples: an estimate, from which nothing follows.


def _counts(value: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(each) for each in value)


@frozen
class EstimatedLoss(PrivacyLoss):
    """What samples suggest of a loss: an estimate, which no accountant certifies by.

    Samples prove no upper bound: the outcome that gives a unit away may not be among them. For a
    proven lower bound, see `adaptive_dp.audit`.

    Parameters
    ----------
    p, q
        How often each outcome was seen, with the unit and without it.

    See Also
    --------
    accountants.PrivacyLoss.from_samples : counts the outcomes.

    Examples
    --------
    >>> loss = EstimatedLoss(p=[75, 25], q=[25, 75])
    >>> round(loss.estimate(epsilon=0.5), 4)
    0.3378
    >>> loss.pure()
    Traceback (most recent call last):
        ...
    accountants.errors.InapplicableError: EstimatedLoss is an estimate from samples, and proves ...
    """

    theorem: ClassVar[str] = "an estimate from samples, which proves nothing"

    p: tuple[int, ...] = field(converter=_counts)
    q: tuple[int, ...] = field(converter=_counts)

    def __attrs_post_init__(self) -> None:
        counts = (*self.p, *self.q)
        if (
            len(self.p) != len(self.q)
            or min(counts, default=0) < 0
            or not any(self.p) * any(self.q)
        ):
            raise DomainError(
                "EstimatedLoss needs as many counts under p as under q, none negative and some of "
                f"each, got {len(self.p)} and {len(self.q)}"
            )

    def estimate(self, epsilon: float) -> float:
        """Return the hockey-stick of the frequencies, the larger of both directions."""
        p, q = (np.array(each) / sum(each) for each in (self.p, self.q))
        ratio = math.exp(epsilon)
        return float(max(np.maximum(p - ratio * q, 0).sum(), np.maximum(q - ratio * p, 0).sum()))

    def _refuse(self) -> InapplicableError:
        return InapplicableError(
            "EstimatedLoss is an estimate from samples, and proves no bound; state the "
            "probabilities (PrivacyLoss.from_probabilities) or densities (from_densities)"
        )

    def delta_floor(self) -> float:
        """Refuse."""
        raise self._refuse()

    def pair(self) -> Pair:
        """Refuse."""
        raise self._refuse()

    def pure(self) -> float:
        """Refuse."""
        raise self._refuse()

    def renyi(self, orders: Array) -> Array:
        """Refuse."""
        raise self._refuse()

    def profile(self, epsilon: float) -> Bounds:
        """Refuse."""
        raise self._refuse()


def from_samples(p: Sequence[Any], q: Sequence[Any], bins: int | None = None) -> EstimatedLoss:
    """Return the frequencies of outcomes, or of numbers in bins of equal counts."""
    if bins is not None:
        both = np.concatenate([np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)])
        edges = np.unique(np.quantile(both, np.linspace(0, 1, bins + 1)[1:-1]))
        p, q = (np.searchsorted(edges, np.asarray(each)).tolist() for each in (p, q))
    first, second = (Counter[Hashable](each) for each in (p, q))
    outcomes = list(dict.fromkeys([*first, *second]))
    return EstimatedLoss([first[each] for each in outcomes], [second[each] for each in outcomes])
