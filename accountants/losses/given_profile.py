"""Losses of which finitely many guarantees are known: (epsilon, delta)s, or errors of tests."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import ClassVar

from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.discretise import from_profile, logarithm, lower_hull
from accountants.errors import DomainError, nonnegative, probability, whole
from accountants.loss import PrivacyLoss
from accountants.losses.approximate import Approximate
from accountants.rounding import ceiling

Points = tuple[tuple[float, float], ...]


def _pairs(what: str, value: Iterable[tuple[float, float]]) -> Points:
    try:
        points = tuple((first, second) for first, second in value)
    except (TypeError, ValueError):
        points = ()
    if not points:
        raise DomainError(f"{what} must be at least one pair of numbers, got {value!r}")
    return points


def _points(value: Iterable[tuple[float, float]]) -> Points:
    return tuple(
        (nonnegative("PrivacyProfile's epsilon", e), probability("PrivacyProfile's delta", d))
        for e, d in sorted(_pairs("PrivacyProfile.points", value))
    )


@frozen(slots=False, cache_hash=True)
class PrivacyProfile(PrivacyLoss):
    """A mechanism that is (epsilon_i, delta_i)-DP at each of finitely many points, all at once.

    Between the points its profile lies under their convex hull in ``e^epsilon``
    (`accountants.discretise`); beyond the last it is at most the last delta, which is the
    probability of failure. One point is `Approximate`.

    Parameters
    ----------
    points
        Pairs (epsilon, delta), in any order; each guarantee holds in both directions of one
        neighbour relation.

    References
    ----------
    Zhu, Dong and Wang 2022, Prop. 7 and Lemma 9 (a convex profile is that of a pair); Vadhan
    2017, Lemma 2.2 (groups).

    Examples
    --------
    >>> loss = PrivacyProfile([(0.5, 1e-2), (1.0, 1e-6)])
    >>> loss.failure(), loss.pure(), round(loss.profile(0.5).upper, 9)
    (1e-06, 1.0, 0.01)
    """

    theorem: ClassVar[str] = "given (epsilon, delta)s: Zhu, Dong & Wang 2022 (convex profiles)"

    points: Points = field(converter=_points)

    @cached_property
    def _worst(self) -> tuple[float, Atoms]:
        return from_profile([e for e, _ in self.points], [d for _, d in self.points])

    def failure(self) -> float:
        """Return the least delta, at the largest epsilon of use."""
        return self._worst[0]

    def pair(self) -> Atoms:
        """Return the atoms of the hull, outside of the failure."""
        return self._worst[1]

    def profile(self, epsilon: float) -> Bounds:
        """Return the pair's with its failure, as an upper bound."""
        known = super().profile(epsilon)
        assert known is not None
        return Bounds(0.0, known.upper)

    def grouped(self, size: int) -> PrivacyProfile:
        """Return the profile of each point's group privacy."""
        k = whole("group size", size)
        grouped = (Approximate(e, d).grouped(k) for e, d in self.points)
        return PrivacyProfile([(loss.epsilon, loss.delta) for loss in grouped])

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether each point here is no better than some point of the other profile."""
        if isinstance(other, PrivacyProfile):
            return all(any(a <= e and b <= d for a, b in other.points) for e, d in self.points)
        return self == other


def _errors(value: Iterable[tuple[float, float]]) -> Points:
    points = tuple(
        (probability("TradeOff's alpha", a), probability("TradeOff's beta", b))
        for a, b in sorted(_pairs("TradeOff.points", value))
    )
    for a, b in points:
        if Fraction(a) + Fraction(b) > 1:
            raise DomainError(
                f"TradeOff needs alpha + beta <= 1, which guessing attains, got {a} and {b}"
            )
    return points


@frozen(slots=False, cache_hash=True)
class TradeOff(PrivacyLoss):
    """A mechanism of which the trade-off function T is bounded below at finitely many points.

    T(alpha) is the least type II error of any test of type I error alpha. It is convex, T(0) is
    at most 1 and T(1) = 0. So ``T(a) >= b`` forces, for convexity's sake,

    ``T(x) >= 1 - (1 - b) x / a`` right of a, and ``T(x) >= b (1 - x)/(1 - a)`` left of it;

    nothing more is known between the points (a chord of lower bounds is none). In the other
    direction T is its own inverse, so ``T(b) >= a`` as well. With F the largest of these,
    ``delta(epsilon) = sup_x 1 - e^epsilon x - T(x)`` is at most the same of F: a maximum of
    lines, one for each corner of F that points down.

    Parameters
    ----------
    points
        Pairs (alpha, beta), ``T(alpha) >= beta``, in any order; each in both directions. The
        failure is 1 minus the largest lower bound near alpha = 0, so give small alphas.

    References
    ----------
    Dong, Roth and Su 2022, Props 1 and 6 (duality); groups by Vadhan 2017, Lemma 2.2, on the
    profile.

    Examples
    --------
    >>> loss = TradeOff([(0.001, 0.99), (0.3, 0.4)])
    >>> round(loss.failure(), 6)
    0.009009
    """

    theorem: ClassVar[str] = "trade-off function at given points: Dong, Roth & Su 2022, Prop. 6"

    points: Points = field(converter=_errors)

    @cached_property
    def _profile(self) -> PrivacyProfile:
        return PrivacyProfile(_guarantees(self.points))

    def failure(self) -> float:
        """Return that of the profile."""
        return self._profile.failure()

    def pair(self) -> Atoms:
        """Return that of the profile."""
        return self._profile.pair()

    def profile(self, epsilon: float) -> Bounds:
        """Return that of the points' guarantees."""
        return self._profile.profile(epsilon)

    def grouped(self, size: int) -> PrivacyProfile:
        """Return the group privacy of the profile."""
        return self._profile.grouped(size)


Corner = tuple[float, Fraction, Fraction]
"""A point of F; its first entry is of no use here."""


def _guarantees(points: Points) -> list[tuple[float, float]]:
    """Return an (epsilon, delta) at each kink, from epsilon 0 on, of the maximum of the lines.

    Lines ``1 - y - t x`` of points (x, y) meet on their maximum at minus the slopes of the lower
    hull of the points.
    """
    hull = lower_hull(_corners(points))
    kinks = []
    for (_, x, y), (_, right, low) in pairwise(hull):
        t = (y - low) / (right - x)
        if t >= 1:
            # epsilon = log t rounded up, delta rounded up: each holds by monotonicity
            kinks.append((logarithm(t), ceiling(1 - y - t * x)))
    return kinks or [(0.0, 1.0)]


def _corners(points: Points) -> list[Corner]:
    """Return the lower ends of F: at each alpha, and where two lines meet between two alphas.

    All lines on the right of their points pass (0, 1), all on the left (1, 0); of each kind the
    flattest, or steepest, is F's.
    """
    both = {(Fraction(a), Fraction(b)) for a, b in points if a and b}
    known = sorted(both | {(b, a) for a, b in both})
    if not known:
        return []
    # right of each alpha: the flattest of the lines from (0, 1), which bounds T the most
    fall = list(accumulate(((1 - b) / a for a, b in known), min))
    rise = list(accumulate((b / (1 - a) for a, b in reversed(known)), max))[::-1]
    least = {Fraction(): rise[0], 1 / fall[-1]: Fraction()}
    for (a, _), (right, _), r, s in zip(known, known[1:], fall, rise[1:], strict=False):
        meet = (1 - s) / (r - s) if r > s else a  # else they are the same line
        for x in (a, right, *([meet] if a < meet < right else [])):
            # both lines bound T from below, so the larger does
            y = max(1 - r * x, s * (1 - x))
            least[x] = min(least.get(x, y), y)
    for x, y in ((known[0][0], rise[0] * (1 - known[0][0])), (known[-1][0], known[-1][1])):
        least[x] = min(least.get(x, y), y)
    return [(0.0, x, least[x]) for x in sorted(least)]
