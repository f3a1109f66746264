"""The loss of Gaussian noise around a random shift: groups of units in one sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.errors import DomainError, integer, nonnegative, probability
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianPair
from accountants.numerics import UNIT, Array, ceiling, down, flooring, up
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

    A group of k units that are present or absent together, in a Poisson sample of rate q, is such
    a mixture over the subsets that are in the sample: j of them with a binomial probability, whose
    vectors, each of norm at most mu, add up to a norm of at most j mu. Vectors that were chosen
    by what was released before are covered, since the pair does not depend on them.

    Parameters
    ----------
    shifts
        Rising, in standard deviations of the noise, positive.
    probabilities
        As many; their sum is at most 1.

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
    [0, 2.37701]
    >>> binomial_mixture(mu=0.5, rate=0.5, size=2)
    GaussianMixture(shifts=(0.5, 1.0), probabilities=(0.5, 0.25))
    """

    theorem: ClassVar[str] = "mixture of Gaussians, proven for vectors (after Ganesh 2024)"

    shifts: tuple[float, ...] = field(converter=_shifts)
    probabilities: tuple[float, ...] = field(converter=_chances)

    def __attrs_post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0.0, *self.shifts), self.shifts, strict=False))
        if len(self.shifts) != len(self.probabilities) or not rising or not self.shifts:
            raise DomainError(
                "GaussianMixture needs positive shifts that rise and a probability of each, got "
                f"{self.shifts!r} and {self.probabilities!r}"
            )
        if sum(map(Fraction, self.probabilities)) > 1:
            raise DomainError(
                f"GaussianMixture.probabilities add up to more than 1: {self.probabilities!r}"
            )

    def pair(self) -> Pair:
        """Return the mixture against the noise."""
        some = [(s, p) for s, p in zip(self.shifts, self.probabilities, strict=True) if p]
        if not some:
            return GaussianPair(0.0)
        if some[-1][0] > _LARGEST or some[0][0] < 1e-6:
            # jointly convex hockey-sticks: the largest shift, always, bounds them
            return LooseBound(GaussianPair(some[-1][0]))
        return MixturePair(tuple(s for s, _ in some), tuple(p for _, p in some))

    def mu(self) -> float:
        """Return the largest shift: hockey-sticks are jointly convex."""
        return max(
            (s for s, p in zip(self.shifts, self.probabilities, strict=True) if p), default=0
        )

    def renyi(self, orders: Array) -> Array:
        """Return ``log sum_i p_i e^{a (a-1) s_i^2 / 2} / (a - 1)``, by convexity, both ways."""
        kept = [(0.0, float(max(0.0, 1 - math.fsum(self.probabilities))))]
        kept += zip(self.shifts, self.probabilities, strict=True)
        some = [(s, math.log(p)) for s, p in kept if p]
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

    def grouped(self, size: int) -> GaussianMixture:
        """Return the mixture of ``size`` independent shifts' sums; of very many the largest sum."""
        k = integer("group size", size)
        if k * len(self.shifts) > _MOST_SUMMED:
            # jointly convex hockey-sticks: the largest shift, always, bounds them
            return mixture_of({k * Fraction(self.mu()): Fraction(1)})
        law = {Fraction(): 1 - sum(map(Fraction, self.probabilities))}
        law |= dict(zip(map(Fraction, self.shifts), map(Fraction, self.probabilities), strict=True))
        total = {Fraction(): Fraction(1)}
        for _ in range(k):
            more: dict[Fraction, Fraction] = {}
            for (s, p), (t, q) in ((one, two) for one in total.items() for two in law.items()):
                more[s + t] = more.get(s + t, Fraction()) + p * q
            total = more
        return mixture_of(total)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order mixtures of the same shifts by how likely each or more is."""
        if not isinstance(other, GaussianMixture) or self.shifts != other.shifts:
            return False
        both = zip(self.probabilities[::-1], other.probabilities[::-1], strict=True)
        ahead = Fraction()
        for p, q in both:
            ahead += Fraction(p) - Fraction(q)
            if ahead < 0:
                return False
        return True


def binomial_mixture(mu: float, rate: float, size: int) -> GaussianMixture:
    """Return the loss of ``size`` units, each in the sample with probability ``rate``.

    Very many count as if they were all in the sample.
    """
    if size > _MOST_DRAWN:
        return mixture_of({size * Fraction(mu): Fraction(1)})
    q = Fraction(rate)
    return mixture_of(
        {
            j * Fraction(mu): math.comb(size, j) * q**j * (1 - q) ** (size - j)
            for j in range(size + 1)
        }
    )


def mixture_of(law: Mapping[Fraction, Fraction]) -> GaussianMixture:
    """Return a law's loss, each shift rounded up, and the probability of each or more."""
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
    return GaussianMixture(rising, chances[::-1])


@frozen(slots=False, cache_hash=True)
class MixturePair(Pair):
    """The mixture against the noise: ``r(x) = p_0 + sum_i p_i e^{s_i (x - s_i/2)}`` rises in x.

    The outcome of a loss is found in a table, then by Newton's steps on ``log r``, which is convex.
    """

    shifts: tuple[float, ...]
    probabilities: tuple[float, ...]

    def tail_error(self) -> float:
        """Return that of an outcome whose loss is off by the rounding of ``log p_i``."""
        rare = 1 - math.log(min(self.probabilities))
        return 1e-13 + 8 * UNIT * rare * (_FAR + 2 * self.shifts[-1]) / self.shifts[0]

    @cached_property
    def _rest(self) -> float:
        return max(0.0, float(1 - sum(map(Fraction, self.probabilities))))

    def bottom(self) -> float:
        """Return ``log p_0``."""
        return down(math.log(self._rest), 8) if self._rest > 0 else -math.inf

    def _losses(self, x: Array) -> tuple[Array, Array]:
        """Return ``log r`` and its derivative."""
        p = np.array(self.probabilities)[:, None]
        s = np.array(self.shifts)[:, None]
        exponents = s * (x - s / 2)
        largest = exponents.max(axis=0)
        if self._rest > 0:
            largest = np.maximum(largest, 0.0)
        weights = p * np.exp(exponents - largest)
        total = weights.sum(axis=0) + self._rest * np.exp(-largest)
        slope = (s * weights).sum(axis=0) / total
        # near r = 1 from r - 1, which keeps its digits
        less_one = (p * np.expm1(np.minimum(exponents, 1.0))).sum(axis=0)
        near = (largest < 1) & (np.abs(less_one) < 0.5)
        return np.where(near, np.log1p(np.maximum(less_one, -0.5)), largest + np.log(total)), slope

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        x = np.linspace(-_FAR, _FAR + self.shifts[-1], _TABLE)
        return x, np.maximum.accumulate(self._losses(x)[0])

    def _outcome(self, loss: Array) -> Array:
        """Return x with ``log r(x) = loss``; infinite where that is far out."""
        places, losses = self._table
        x = np.interp(loss, losses, places)
        step = places[1] - places[0]
        low, high = x - step, x + step
        for _ in range(6):
            value, slope = self._losses(x)
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = x - (value - loss) / slope
            x = np.where(np.isfinite(moved), np.clip(moved, low, high), x)
        return np.where(loss < losses[0], -np.inf, np.where(loss > losses[-1], np.inf, x))

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails right of the outcome."""
        x = self._outcome(np.asarray(loss, dtype=np.float64))
        return self._sum(-x, 1.0), np.asarray(special.ndtr(-x))

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails left of the outcome."""
        x = self._outcome(np.asarray(loss, dtype=np.float64))
        return self._sum(x, -1.0), np.asarray(special.ndtr(x))

    def _sum(self, x: Array, side: float) -> Array:
        total = self._rest * np.asarray(special.ndtr(x))
        for p, s in zip(self.probabilities, self.shifts, strict=True):
            total = total + p * special.ndtr(x + side * s)
        return np.asarray(total)
