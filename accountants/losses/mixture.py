"""The loss of Gaussian noise around random shifts: groups of units in one sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.errors import DomainError, integer, nonnegative, probability
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianPair
from accountants.numerics import UNIT, Array, Bounds, bracket, ceiling, down, flooring, up
from accountants.pair import LooseBound, Pair

_FAR = 39.0
"""Under the standard normal law less than 1e-300 lies farther out."""

_TABLE = 4096
"""So many points of the loss are known before an outcome is looked for."""

_LARGEST = 64.0
"""Shifts above this are bounded by the largest of them alone."""

_MOST_SUMMED = 120
"""Sums of more shifts, with the probability of each exact, would take seconds."""

_MOST_DRAWN = 1000
"""As of sums, of the units of a group that are in a sample."""


def _shifts(value: Iterable[float]) -> tuple[float, ...]:
    return tuple(nonnegative("a shift of GaussianMixture", each) for each in value)


def _chances(value: Iterable[float]) -> tuple[float, ...]:
    return tuple(probability("a probability of GaussianMixture", each) for each in value)


@frozen(slots=False, cache_hash=True)
class GaussianMixture(PrivacyLoss):
    r"""Standard normal noise around a random shift, which is 0 where the unit or group is absent.

    The pair is ``P = sum_i p_i N(s_i, 1)`` against ``Q = N(0, 1)``, what is left of the probability
    having shift 0. It dominates ``P' = sum_i p_i N(c_i, I)`` against ``Q' = N(0, I)`` for vectors
    of norms ``|c_i| <= s_i``. Proof: an event of probability a under Q' has at most
    ``Phi(Phi^-1(a) + |c_i|)`` under N(c_i, I) (Neyman and Pearson), so at most
    ``sum_i p_i Phi(Phi^-1(a) + s_i)`` under P'. That much the half-line of probability a under Q
    has under P. So no test of P' against Q' is better than that of P against Q, either way round.
    For the same reason shifts and the probability of each or more are rounded up.

    Where both data sets have a random shift, as some units leave and others join, the pair is P
    against ``Q = sum_j q_j N(-t_j, 1)``, the shifts of the one away from those of the other. It
    dominates ``sum_i p_i N(c_i, I)`` against ``sum_j q_j N(d_j, I)`` for ``|d_j| <= t_j``, by the
    same proof: an event of probability a under N(0, I) has at least ``Phi(Phi^-1(a) - |d_j|)``
    under N(d_j, I), and the half-line has all of these extremes at once.

    A group of k units that are present or absent together, in a Poisson sample of rate q, is such
    a mixture over the subsets that are in the sample: j of them with a binomial probability, whose
    vectors, each of norm at most mu, add up to a norm of at most j mu. Vectors that were chosen
    by what was released before are covered, since the pair does not depend on them. Of those that
    leave and those that join, noise around the sum of all other units is the N(0, I).

    Parameters
    ----------
    shifts
        Rising, in standard deviations of the noise, positive.
    probabilities
        As many; their sum is at most 1.
    opposite_shifts, opposite_probabilities
        Of the other data set, likewise; none where it has none of the units.

    References
    ----------
    After Choquette-Choo, Ganesh, Steinke and Thakurta 2024 (mixtures of Gaussians) and Ganesh 2024,
    arXiv 2401.10294 (groups); the proof above is our own.

    Examples
    --------
    Three people who join or leave together, each in one of 1,000 samples of 1% with noise 2:

    >>> from accountants import Distribution, Gaussian, Grouped, Repeated, Sampled, Spend, measure
    >>> steps = Repeated(Sampled(Spend(Gaussian(mu=0.5)), rate=0.01), 1000)
    >>> print(measure(Grouped(steps, size=3), Distribution(), delta=1e-6).bounds)
    [2.377, 2.37701]
    >>> drawn = GaussianMixture.of_sample(mu=0.5, rate=0.5, leaving=2)
    >>> drawn.shifts, drawn.probabilities
    ((0.5, 1.0), (0.5, 0.25))

    Two leave as one joins:

    >>> step = Spend(GaussianMixture.of_sample(mu=0.5, rate=0.01, leaving=2, joining=1))
    >>> print(measure(Repeated(step, 1000), Distribution(), delta=1e-6).bounds)
    [2.18747, 2.18748]
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "mixture of Gaussians, proven for vectors (after Ganesh 2024)"

    shifts: tuple[float, ...] = field(converter=_shifts)
    probabilities: tuple[float, ...] = field(converter=_chances)
    opposite_shifts: tuple[float, ...] = field(default=(), converter=_shifts)
    opposite_probabilities: tuple[float, ...] = field(default=(), converter=_chances)

    def __attrs_post_init__(self) -> None:
        opposite = (self.opposite_shifts, self.opposite_probabilities)
        for shifts, chances in ((self.shifts, self.probabilities), opposite):
            rising = all(a < b for a, b in zip((0.0, *shifts), shifts, strict=False))
            if len(shifts) != len(chances) or not rising:
                raise DomainError(
                    "GaussianMixture needs positive shifts that rise and a probability of each, "
                    f"got {shifts!r} and {chances!r}"
                )
            if sum(map(Fraction, chances)) > 1:
                raise DomainError(
                    f"GaussianMixture.probabilities add up to more than 1: {chances!r}"
                )
        if not self.shifts:
            raise DomainError("GaussianMixture needs positive shifts, got none")

    @classmethod
    def of_sample(
        cls, mu: float, rate: float, *, leaving: int, joining: int = 0
    ) -> GaussianMixture:
        """Return the loss of units, each in a Poisson sample of the one data set or of the other.

        Parameters
        ----------
        mu
            The loss of one unit that is in the sample: how far it moves the sum at most, in
            standard deviations of the noise.
        rate
            The probability with which each unit enters, independently.
        leaving, joining
            How many units one data set alone has, and how many the other; both directions are
            bounded. Very many (above 1,000) count as if they were all in the sample.
        """
        mu, q = nonnegative("GaussianMixture.of_sample's mu", mu), probability("a rate", rate)
        integer("GaussianMixture.of_sample's leaving", leaving)
        integer("GaussianMixture.of_sample's joining", joining, least=0)
        return mixture_of(_binomial(mu, q, leaving), _binomial(mu, q, joining))

    def pair(self) -> Pair:
        """Return the mixture against the noise, or against the other mixture."""
        one, other = self._likely(), self._opposite()._likely() if self.opposite_shifts else []
        if not one and not other:
            return GaussianPair(0.0)
        if any(s > _LARGEST or s < 1e-6 for s, _ in (*one, *other)):
            # jointly convex hockey-sticks: the largest shift, always, bounds them
            return LooseBound(GaussianPair(self.mu()))
        columns = [tuple(each[i] for each in side) for side in (one, other) for i in (0, 1)]
        if not one:
            return MixturePair(*columns[2:]).reversed()
        return MixturePair(*columns)

    def _likely(self) -> list[tuple[float, float]]:
        """Return the shifts of one data set that are possible, and their probabilities."""
        return [(s, p) for s, p in zip(self.shifts, self.probabilities, strict=True) if p]

    def _opposite(self) -> GaussianMixture:
        return GaussianMixture(self.opposite_shifts, self.opposite_probabilities)

    def _alone(self) -> GaussianMixture:
        return GaussianMixture(self.shifts, self.probabilities)

    def mu(self) -> float:
        """Return how far the largest shifts are apart: hockey-sticks are jointly convex."""
        most = max((s for s, _ in self._likely()), default=0.0)
        if not self.opposite_shifts:
            return most
        return up(most + max((s for s, _ in self._opposite()._likely()), default=0.0))

    def _law(self) -> dict[Fraction, Fraction]:
        """Return the exact law of one data set's shift, rising."""
        rest: Fraction = 1 - sum(map(Fraction, self.probabilities), Fraction())
        return {Fraction(): rest} | dict(
            zip(map(Fraction, self.shifts), map(Fraction, self.probabilities), strict=True)
        )

    def _distances(self) -> list[tuple[float, float]]:
        """Return how far apart both shifts are, the larger of one with the smaller of the other.

        Moments of the likelihood ratio are jointly convex, whichever shifts come together.
        """
        if not self.opposite_shifts:
            return [(0.0, float(max(0.0, 1 - math.fsum(self.probabilities)))), *self._likely()]
        rising, falling = list(self._law().items()), list(self._opposite()._law().items())
        found: list[tuple[float, float]] = []
        while rising and falling:
            (s, p), (t, q) = rising.pop(0), falling.pop()
            both = min(p, q)
            found.append((ceiling(s + t), float(both)))
            rising[:0] = [(s, p - both)] if p > both else []
            falling += [(t, q - both)] if q > both else []
        return found

    def renyi(self, orders: Array) -> Array:
        """Return ``log sum_i p_i e^{a (a-1) s_i^2 / 2} / (a - 1)``, by convexity, both ways."""
        some = [(s, math.log(p)) for s, p in self._distances() if p]
        with np.errstate(over="ignore", invalid="ignore"):
            logs = np.array([orders * (orders - 1) * s * s / 2 + log for s, log in some])
            largest = logs.max(axis=0)
            # what is rounded of each exponent and of their sum; a divergence is never negative
            wrong = 16 * UNIT * (len(some) + 4 + np.abs(logs).max(axis=0))
            total = largest + np.log(np.exp(logs - largest).sum(axis=0)) + wrong
            curve = up(np.maximum(total, 0.0) / (orders - 1))
            most = up(orders * self.mu() * self.mu() / 2)  # in this order mu^2 cannot underflow
        # what overflows is not a number, and no bound
        return np.asarray(np.fmin(curve, most))

    def joined(self, size: int) -> GaussianMixture:
        """Return the mixture of ``size`` independent shifts' sums; of very many the largest sum.

        Of a loss with shifts on both sides that is ``size`` times as many units on each.
        """
        k = integer("group size", size)
        if k == 1:
            return self
        opposite = _summed(self._opposite(), k) if self.opposite_shifts else {}
        return mixture_of(_summed(self, k), opposite)

    def grouped(self, size: int) -> PrivacyLoss:
        """Return that of any ``size`` units: as many on both sides are no fewer than either."""
        k = integer("group size", size)
        if k == 1:
            return self
        if self.opposite_shifts and self._opposite() != self._alone():
            return super().grouped(k)  # of units of either kind on either side nothing is known
        more = _summed(self, k)
        return mixture_of(more, more)

    def replaced(self) -> PrivacyLoss:
        """Return the loss of one unit that leaves as another of the same loss joins."""
        if self.opposite_shifts:
            return self.grouped(2)
        return mixture_of(self._law(), self._law())

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order mixtures of the same shifts by how likely each or more is, on both sides."""
        if not isinstance(other, GaussianMixture) or self.shifts != other.shifts:
            return False
        if self.opposite_shifts != other.opposite_shifts:
            return False
        sides = (
            (self.probabilities, other.probabilities),
            (self.opposite_probabilities, other.opposite_probabilities),
        )
        for ours, theirs in sides:
            ahead = Fraction()
            for p, q in zip(ours[::-1], theirs[::-1], strict=True):
                ahead += Fraction(p) - Fraction(q)
                if ahead < 0:
                    return False
        return True


Law = Mapping[Fraction, Fraction]


def _binomial(mu: float, rate: float, size: int) -> Law:
    """Return the law of the shift of ``size`` units in a sample; very many are all in it."""
    if size > _MOST_DRAWN:
        return {size * Fraction(mu): Fraction(1)}
    q = Fraction(rate)
    return {
        j * Fraction(mu): math.comb(size, j) * q**j * (1 - q) ** (size - j) for j in range(size + 1)
    }


def _summed(loss: GaussianMixture, times: int) -> Law:
    """Return the law of the sum of independent shifts of one side."""
    if times * len(loss.shifts) > _MOST_SUMMED:
        # jointly convex hockey-sticks: the largest shift, always, bounds them
        return {
            times * max((Fraction(s) for s, _ in loss._likely()), default=Fraction()): Fraction(1)
        }
    total = {Fraction(): Fraction(1)}
    for _ in range(times):
        more: dict[Fraction, Fraction] = {}
        for (s, p), (t, q) in ((one, two) for one in total.items() for two in loss._law().items()):
            more[s + t] = more.get(s + t, Fraction()) + p * q
        total = more
    return total


def mixture_of(law: Law, opposite: Law = MappingProxyType({})) -> GaussianMixture:
    """Return laws' loss, each shift rounded up, and the probability of each or more."""
    return GaussianMixture(*_rounded(law), *_rounded(opposite))


def group_of_sample(mu: float, rate: float, leaving: int, joining: int = 0) -> GaussianMixture:
    """Return `GaussianMixture.of_sample` with a lower end, that of a group next to it."""
    laws = (_binomial(mu, rate, leaving), _binomial(mu, rate, joining))
    columns = [column for law in laws for column in _rounded_down(law)]
    shifts = (*columns[0], *columns[2])
    known = columns[0] and all(1e-6 <= s <= _LARGEST for s in shifts)
    return _SampledGroup(
        *_rounded(laws[0]), *_rounded(laws[1]), attained=MixturePair(*columns) if known else None
    )


def _rounded_down(law: Law) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return shifts and probabilities, both a little less; what is left is added to shift 0."""
    # mu may have been rounded up by some units
    some = [(flooring(s * _LESS), flooring(p)) for s, p in sorted(law.items()) if s]
    return tuple(s for s, p in some if p), tuple(p for _, p in some if p)


_LESS = 1 - Fraction(1, 2**48)


@frozen(slots=False, cache_hash=True)
class _SampledGroup(GaussianMixture):
    """Units that are in a sample or not: shifts and probabilities are those of no group, but above.

    Somewhat smaller shifts, each or more somewhat less likely, are a mixture that this one
    dominates, and the group's own mixture, too, by the proof of `GaussianMixture`. The group's own
    some mechanism attains: each unit's vector is the same one of norm mu, and that of a unit of
    the other data set its opposite.
    """

    attains_group: ClassVar[bool] = True

    attained: MixturePair | None = field(default=None, kw_only=True)

    def pair(self) -> Pair:
        """Return the mixture, as an upper bound."""
        pair = super().pair()
        return LooseBound(pair) if pair.is_tight() else pair

    def attained_pair(self) -> Pair | None:
        """Return the mixture of a little less."""
        return self.attained

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the pair's profile, from below that of a little less."""
        bounds = super().profile(epsilon)
        if bounds is None or self.attained is None:
            return bounds
        every = (self.attained, self.attained.reversed())
        lower = max(float(each.profile(np.array([epsilon]))[0][0]) for each in every)
        return bracket(max(bounds.lower, down(lower)), bounds.upper)


def _rounded(law: Law) -> tuple[list[float], list[float]]:
    shifts: dict[float, Fraction] = {}
    for shift, chance in law.items():
        if shift and chance:
            at = ceiling(shift)
            shifts[at] = shifts.get(at, Fraction()) + chance
    rising, left = sorted(shifts), Fraction(1)
    chances: list[float] = []
    for step in reversed(rising):
        # up from the largest shift on, as long as anything is left: each or more is more likely
        likely = ceiling(shifts[step])
        chances.append(likely if Fraction(likely) <= left else flooring(left))
        left -= Fraction(chances[-1])
    return rising, chances[::-1]


@frozen(slots=False, cache_hash=True)
class _Mixed:
    """``r(x) = p_0 + sum_i p_i e^{s_i (x - s_i/2)}``, of a mixture against the noise."""

    shifts: tuple[float, ...]
    probabilities: tuple[float, ...]

    def wrong(self) -> float:
        """Return the error of tails beyond an outcome that is off by the rounding of ``log r``."""
        if not self.shifts:
            return 0.0
        rare = 1 - math.log(min(self.probabilities))
        return 8 * UNIT * rare * (_FAR + 2 * self.shifts[-1]) / self.shifts[0]

    @cached_property
    def rest(self) -> float:
        return max(0.0, float(1 - sum(map(Fraction, self.probabilities))))

    def farthest(self) -> float:
        return self.shifts[-1] if self.shifts else 0.0

    def losses(self, x: Array) -> tuple[Array, Array]:
        """Return ``log r`` and its derivative."""
        p = np.array(self.probabilities)[:, None]
        s = np.array(self.shifts)[:, None]
        if not self.shifts:
            return np.zeros_like(x), np.zeros_like(x)
        exponents = s * (x - s / 2)
        largest = exponents.max(axis=0)
        if self.rest > 0:
            largest = np.maximum(largest, 0.0)
        weights = p * np.exp(exponents - largest)
        total = weights.sum(axis=0) + self.rest * np.exp(-largest)
        slope = (s * weights).sum(axis=0) / total
        # near r = 1 from r - 1, which keeps its digits
        less_one = (p * np.expm1(np.minimum(exponents, 1.0))).sum(axis=0)
        near = (largest < 1) & (np.abs(less_one) < 0.5)
        return np.where(near, np.log1p(np.maximum(less_one, -0.5)), largest + np.log(total)), slope

    def tail(self, x: Array, side: float) -> Array:
        """Return the mass beyond, of a mixture whose shifts are on that side."""
        total = self.rest * np.asarray(special.ndtr(x))
        for p, s in zip(self.probabilities, self.shifts, strict=True):
            total = total + p * special.ndtr(x + side * s)
        return np.asarray(total)


@frozen(slots=False, cache_hash=True)
class MixturePair(Pair):
    """A mixture against the noise, or against a mixture of shifts to the other side.

    The loss ``log r(x) - log r'(-x)`` rises in x, r' being the other mixture's. Its outcome is
    found in a table, then by Newton's steps, which bisections keep inside of the cell.
    """

    shifts: tuple[float, ...]
    probabilities: tuple[float, ...]
    opposite_shifts: tuple[float, ...] = ()
    opposite_probabilities: tuple[float, ...] = ()

    @cached_property
    def _sides(self) -> tuple[_Mixed, _Mixed]:
        return (
            _Mixed(self.shifts, self.probabilities),
            _Mixed(self.opposite_shifts, self.opposite_probabilities),
        )

    def tail_error(self) -> float:
        """Return that of both sides: the slope of their losses' sum is no smaller than either."""
        return 1e-13 + sum(side.wrong() for side in self._sides)

    def bottom(self) -> float:
        """Return ``log p_0``, where the other law is the noise alone."""
        rest = self._sides[0].rest
        return down(math.log(rest), 8) if rest > 0 and not self.opposite_shifts else -math.inf

    def _losses(self, x: Array) -> tuple[Array, Array]:
        """Return the loss and its derivative."""
        (one, rise), (other, fall) = self._sides[0].losses(x), self._sides[1].losses(-x)
        return (one - other, rise + fall) if self.opposite_shifts else (one, rise)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        one, other = self._sides
        x = np.linspace(-_FAR - other.farthest(), _FAR + one.farthest(), _TABLE)
        return x, np.maximum.accumulate(self._losses(x)[0])

    def _outcome(self, loss: Array) -> Array:
        """Return x of that loss; infinite where that is far out."""
        places, losses = self._table
        beyond = (loss < losses[0]), (loss > losses[-1])
        loss = np.clip(loss, losses[0], losses[-1])  # what is beyond has no root to be found
        x = np.interp(loss, losses, places)
        step = places[1] - places[0]
        low, high = x - step, x + step
        for _ in range(40 if self.opposite_shifts else 6):
            value, slope = self._losses(x)
            if self.opposite_shifts:
                # not convex: Newton's steps could leave the cell's part that the root is in
                low, high = np.where(value < loss, x, low), np.where(value > loss, x, high)
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = x - (value - loss) / slope
            if self.opposite_shifts:
                moved = np.where((moved < low) | (moved > high), (low + high) / 2, moved)
            last, x = x, np.where(np.isfinite(moved), np.clip(moved, low, high), x)
            # of a loss that is met but for its rounding a further step would follow the rounding
            met = np.abs(value - loss) <= 2 * UNIT * (1 + np.abs(loss))
            if np.all(met | (np.abs(x - last) <= 1e-15 * (1 + np.abs(x)))):
                break
        return np.where(beyond[0], -np.inf, np.where(beyond[1], np.inf, x))

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails right of the outcome."""
        x = self._outcome(np.asarray(loss, dtype=np.float64))
        return self._sides[0].tail(-x, 1.0), self._sides[1].tail(-x, -1.0)

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails left of the outcome."""
        x = self._outcome(np.asarray(loss, dtype=np.float64))
        return self._sides[0].tail(x, -1.0), self._sides[1].tail(x, 1.0)
