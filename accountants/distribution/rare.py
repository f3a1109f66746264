r"""Rare large losses, exactly: samples in which a unit seldom takes part, and then loses much.

Of steps with independent losses ``L_i``, let E be the event that the outcome of some step lies
beyond a point ``b_i``, where ``L_i >= eps + u``. Without it, what is left are the laws cut off at
b_i (`accountants.losses.cut_sample`), whose largest loss is about ``eps + u`` and whose moments a
contour can use. On E the composed loss is all but surely above eps, where the hockey-stick is a
difference of two masses:

``delta(eps) = E_P[(1 - e^{eps - L})_+; not E] + P(E) - e^eps Q(E) + rest``,
``rest = e^eps E_Q[(1 - e^{L - eps})_+; E]``,

since ``(1 - e^{-y})_+ = 1 - e^{-y} + e^{-y} (1 - e^{y})_+`` and ``E_P[e^{-L}; A] = Q(A)``. The last
term is at least 0. It is at most ``e^eps Q(L < eps, E)``, and as all other losses must then add up
to less than -u,

``Q(L < eps, E) <= sum_i Q(x_i > b_i) e^{-theta u} prod_j E_Q e^{-theta L_j}``, theta > 0,

Chernoff's bound, in which the factor of i may stay: it is at least 1 (Jensen, as ``E_Q e^L = 1``).

Where delta is about the probability that the unit takes part in any step, two plain facts bound
epsilon. Two compositions' outcomes can be made equal but for a probability of
``1 - prod_i (1 - TV_i)`` (maximal couplings): no larger delta needs any epsilon. And the event E
has ``delta(eps) >= P(E) - e^eps Q(E)``, so that ``eps >= log((P(E) - delta) / Q(E))``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import frozen

from accountants import special
from accountants.distribution import contour
from accountants.losses.cut_sample import CutSample
from accountants.losses.sampled_gaussians import log_moments_of_each
from accountants.losses.sampling import SampledGaussianPair
from accountants.numerics import UNIT, Array, Bounds, bracket, up
from accountants.pair import Pair

_NEVER = 45.0
"""That the other losses outweigh a large one has a probability of e^-45 at most."""

_MASS = 4e-12
"""The relative error of normal tails."""

_NARROW = 1e-9
"""A bracket of epsilon that is relatively narrower is not improved."""


@frozen(eq=False)
class Split:
    """A composition in two: without E, and on E.

    Parameters
    ----------
    most
        The largest epsilon for which it holds.
    rest
        The laws without E.
    above, below
        Bounds of P(E) and of Q(E), each from below and from above.
    never
        A bound of ``Q(L < eps | E)``.
    """

    most: float
    rest: tuple[tuple[Pair, int], ...]
    above: tuple[float, float]
    below: tuple[float, float]
    never: float

    def profile(self, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds of delta, up to the largest epsilon."""
        bounds = contour.profile(self.rest, epsilons, scattered=False, whole=False)
        low, high = bounds if bounds is not None else (np.zeros(len(epsilons)), np.ones(1))
        # e^eps, rounded to both sides
        grown, room = np.exp(epsilons), 8 * UNIT * (1 + epsilons)
        least = low + self.above[0] - grown * (1 + room) * self.below[1]
        most = high + self.above[1] - grown * (1 - room) * self.below[0]
        most = most + grown * (1 + room) * self.below[1] * self.never
        # of the sums: each term is at most 1
        wrong = 8 * UNIT * (high + self.above[1] + grown * self.below[1])
        inside = epsilons <= self.most
        return (
            np.where(inside, np.maximum(0.0, least - wrong), 0.0),
            np.where(inside, np.minimum(1.0, most + wrong), 1.0),
        )


@frozen(eq=False)
class _Large:
    """The sampled Gaussians of a composition, and by how much all losses may fall.

    Parameters
    ----------
    mu, rate, times
        Of each that is cut.
    others
        What is not.
    fall, never
        u of the module's docstring, and the bound of the last probability.
    """

    mu: Array
    rate: Array
    times: Array
    others: tuple[tuple[Pair, int], ...]
    fall: float
    never: float

    @staticmethod
    def of(spends: Sequence[tuple[Pair, int]]) -> _Large | None:
        """Return them; None where there are none, or other losses may fall without end."""
        some, others = [], []
        for pair, times in spends:
            one = pair if type(pair) is SampledGaussianPair else None
            if one is not None and one.rate <= 0.5 and 1e-3 <= one.body.mu <= 12:
                some.append((one.body.mu, one.rate, times))
            else:
                others.append((pair, times))
        bottom = -sum(pair.bottom() * times for pair, times in spends) * (1 + 1e-9)
        if not some or not 0 < bottom < math.inf:
            return None
        # the losses never add up to less than the bottom; nearly never to less than u
        theta = _NEVER / bottom * np.array([3.0, 9.0, 27.0, 81.0])
        mu, rate, times = np.array(some, dtype=np.float64).T
        fall, never = bottom, 0.0
        falls = (_backward(mu, rate, times, tuple(others), theta) + _NEVER) / theta
        at = int(np.argmin(falls))
        if falls[at] < bottom:
            # a little more than u: theta u is computed within units of its size
            fall, never = float(falls[at]) * (1 + 1e-9), math.exp(1e-6 - _NEVER)
        return _Large(mu, rate, times, tuple(others), fall, never)

    def points(self, epsilon: float) -> Array:
        """Return b_i, beyond which a loss is at least ``eps + u``."""
        least = (epsilon + self.fall) * (1 + 1e-12)
        # e^L = 1 - q + q r there
        log_r = np.log1p(np.expm1(least) / self.rate) if least < 600 else least - np.log(self.rate)
        return np.asarray((log_r + 1e-12 * (1 + np.abs(log_r))) / self.mu + self.mu / 2)

    def masses(self, b: Array) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return bounds of P(E) and of Q(E)."""
        return _masses(self.mu, self.rate, self.times, b)

    def alone(self, epsilon: float) -> float:
        """Return about what E adds to delta."""
        above, below = self.masses(self.points(epsilon))
        return above[1] - math.exp(min(epsilon, 600.0)) * below[0]

    def split(self, most: float) -> Split:
        """Return the composition in two, for epsilons up to ``most``."""
        b = self.points(most)
        above, below = self.masses(b)
        cut = [
            (CutSample(float(m), float(q), float(at)), int(n))
            for m, q, n, at in zip(self.mu, self.rate, self.times, b, strict=True)
        ]
        return Split(most, (*cut, *self.others), above, below, self.never)


def _masses(
    mu: Array, rate: Array, times: Array, b: Array
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return bounds of the probabilities under P and Q that any outcome lies beyond its point."""
    q = special.ndtr(-b)
    p = (1 - rate) * q + rate * special.ndtr(mu - b)
    wrong = _MASS + 16 * len(b) * UNIT
    ends = []
    for each in (p, q):
        total = -math.expm1(-float(times @ -np.log1p(-each)))
        ends.append((total * (1 - wrong), min(1.0, total * (1 + wrong) + 1e-300)))
    return ends[0], ends[1]


def by_participation(spends: Sequence[tuple[Pair, int]], delta: float) -> Bounds | None:
    """Return what follows of whether the unit is in any sample; None of other pairs."""
    some = [(pair, times) for pair, times in spends if type(pair) is SampledGaussianPair]
    if not some:
        return None
    if len(some) == len(spends):
        # maximal couplings: the largest delta there is, at an epsilon of 0
        apart = [(float(pair.profile(np.zeros(1))[1][0]), times) for pair, times in some]
        logs = math.fsum(times * -math.log1p(-each) for each, times in apart if each < 1)
        wrong = 8 * UNIT * (len(apart) + 8)
        if all(each < 1 for each, _ in apart) and -math.expm1(-logs) * (1 + wrong) <= delta:
            return Bounds(0.0, 0.0)
    mu, rate, times = np.array(
        [(pair.body.mu, pair.rate, times) for pair, times in some], dtype=np.float64
    ).T
    lower, losses = 0.0, np.geomspace(1e-3, 600.0, 200)
    for _ in range(2):
        # any points b_i will do; those of one loss are about the best
        found = np.zeros(len(losses))
        for i, loss in enumerate(losses.tolist()):
            b = (math.log(math.expm1(loss)) - np.log(rate)) / mu + mu / 2
            above, below = _masses(mu, rate, times, b)
            gain = (above[0] - delta) * (1 - 4 * UNIT)
            if gain > below[1]:
                ratio = math.log(gain / below[1])
                found[i] = ratio * (1 - 4 * UNIT) - 4 * UNIT
        best = int(np.argmax(found))
        lower = max(lower, float(found[best]))
        # then between the neighbours of the best
        losses = np.linspace(losses[max(0, best - 1)], losses[min(best + 1, 199)], 200)
    return Bounds(lower, math.inf)


def _backward(
    mu: Array, rate: Array, times: Array, others: tuple[tuple[Pair, int], ...], theta: Array
) -> Array:
    """Return upper bounds of ``sum_j log E_Q e^{-theta L_j}``, as R is at least 1 - q."""
    values, errors = log_moments_of_each(mu, rate, times, -theta.astype(np.complex128))
    each = np.minimum(up(values.real + errors, 4), up(theta * -np.log1p(-rate)[:, None], 8))
    total = (times @ each) * (1 + (len(mu) + 8) * UNIT)
    if others:
        reverse = contour.composition(tuple((pair.reversed(), n) for pair, n in others))
        total = up(total + reverse.upper(theta), 4)
    return np.where(np.isnan(total), np.inf, total)


def epsilon(spends: Sequence[tuple[Pair, int]], delta: float) -> Bounds | None:
    """Return a bracket of epsilon at ``0 < delta < 1``; None where nothing is large and rare."""
    if not any(type(pair) is SampledGaussianPair for pair, _ in spends):
        return None
    large = _Large.of(spends)
    if large is None or not large.alone(0.0) > 0:
        return None
    # what E adds alone asks for this epsilon, what is left for some more
    least = _where(large, delta)
    most = 1.5 * least + (large.fall if least == 0 else 0.0)
    for _ in range(_TRIES):
        split = large.split(most)
        share = delta - split.above[1] + math.exp(min(most, 600.0)) * split.below[0]
        bounds = contour.epsilon(split.rest, share, scattered=False) if 0 < share < 1 else None
        if bounds is None or bounds.lower == 0:  # Chernoff's bound alone
            return None
        if bounds.upper < most:
            return _root(split, delta, bounds.upper)
        most = max(2 * most, bounds.upper + large.fall)
    return None


def _root(split: Split, delta: float, guess: float) -> Bounds:
    """Return where delta is crossed, from a guess: what E takes depends on epsilon, a little."""
    lower, upper = 0.0, math.inf
    for _ in range(_ROUNDS):
        points = np.unique(np.clip(guess * (1 + _AROUND), 0.0, split.most))
        low, high = split.profile(points)
        lower = max(lower, float(points[low > delta].max(initial=0.0)))
        upper = min(upper, float(points[high <= delta].min(initial=math.inf)))
        if upper - lower <= _NARROW * lower:
            break
        middle = np.log(np.maximum(low, 1e-300) / 2 + np.maximum(high, 1e-300) / 2)
        moved = float(np.interp(-math.log(delta), -middle, points))
        if abs(moved - guess) <= 1e-14 * guess:
            break
        guess = moved
    return bracket(lower, upper)


_ROUNDS = 6
_AROUND = np.concatenate([[0.0], np.geomspace(1e-12, 0.3, 24), -np.geomspace(1e-12, 0.3, 24)])
_TRIES = 4


def _where(large: _Large, delta: float) -> float:
    """Return about the least epsilon at which E alone adds at most delta."""
    if not large.alone(0.0) > delta:
        return 0.0
    low, high = 0.0, 1e-6
    while large.alone(high) > delta and high < 600:
        low, high = high, 4 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if large.alone(middle) > delta else (low, middle)
    return high


def profile(spends: Sequence[tuple[Pair, int]], epsilons: Array) -> tuple[Array, Array] | None:
    """Return bounds of delta at many epsilons; None where nothing is large and rare."""
    large = _Large.of(spends)
    if large is None:
        return None
    low, high = np.zeros(len(epsilons)), np.ones(len(epsilons))
    # epsilons of about one size, beside u, share their cuts
    octave = np.floor(np.log2(1 + epsilons / large.fall))
    for each in np.unique(octave).tolist():
        some = np.flatnonzero(octave == each)
        most = float(epsilons[some].max())
        if not large.alone(most) > 0:
            continue
        split, first = large.split(most), some[np.argmin(epsilons[some])]
        # where a contour is of no use one epsilon says so
        low[first : first + 1], high[first : first + 1] = split.profile(epsilons[first : first + 1])
        if high[first] <= 2 * low[first] and len(some) > 1:
            low[some], high[some] = split.profile(epsilons[some])
    return low, high
