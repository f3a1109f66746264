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

Where units are replaced, losses fall as far as they rise, and as likely: under Q ``-L_j`` has the
law of L_j under P. So, of the other losses' sum S, ``E_Q (1 - e^{S + u})_+`` is their own
hockey-stick at u, ``E_P (1 - e^{u - S})_+``, which is at most ``delta(u)``, and at most
``delta(eps)`` if ``u >= eps``. By the union bound ``rest <= e^eps sum_i Q(x_i > b_i) delta(eps)``.
What is left is cut off at -b_i as well: where ``x_i < -b_i``, of the same probability under P, the
others' sum must be above ``2 eps + u``, which adds ``sum_i Q(x_i > b_i) delta(eps)`` at most. Both
are a share of delta, small where the b_i lie far enough out.

Where delta is about the probability that the unit takes part in any step, two plain facts bound
epsilon. Two compositions' outcomes can be made equal but for a probability of
``1 - prod_i (1 - TV_i)`` (maximal couplings): no larger delta needs any epsilon. And the event E
has ``delta(eps) >= P(E) - e^eps Q(E)``, so that ``eps >= log((P(E) - delta) / Q(E))``.

Of little noise (`Taking`) what E lacks is computed instead, with b_i somewhere from ``mu_i / 2``
on:

``delta(eps) = E_P[(1 - e^{eps - L})_+; not E] + P(E) - E_P[min(1, e^{eps - L}); E]``.

The first term is 0 for ``b_i = mu_i / 2``, where ``R <= 1``, else Chernoff's bound is next to
nothing. The last one, the deficit, is a sum over how many outcomes lie beyond their points. Let
``d_i(y) = E_P[min(1, e^{y - L_i}); x_i > b_i]``, of normal tails; it is concave in ``e^y``, as a
minimum of linear functions is. Where step i's outcome alone is beyond, S the sum of the others'
losses, the deficit is ``E_P[d_i(eps - S)]`` over them. There ``E_P e^{-S} = prod_j Q_j(x <= b) =:
Q_o`` and ``prod_j P_j(x <= b) =: P_o``, so it is at most ``P_o d_i(eps + log(Q_o / P_o))``
(Jensen), and at least what the chord over the range of ``e^{-S}`` says, from ``prod_j R_j(b_j)^-1``
to ``prod_j (1 - q_j)^-1``. The mean is next to the latter, as hardly anyone takes part unseen, so
both bounds are next to each other. Where two are beyond, the loss of one of them is integrated over
cells in the same way, on each of which ``e^{-L}`` has the mean ``Q(cell) / P(cell)``. The deficit
of three and more is at most ``e^{c eps} E_P[e^{-cL}; three or more]``, c in [0, 1], as
``min(1, e^v) <= e^{cv}``: two who take part are seldom seen as little as one is.

P(E) less delta is computed to fifty digits, so that epsilon keeps its digits where delta is as near
to P(E) as floats allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from functools import cached_property

import numpy as np
from attrs import frozen

from accountants import special
from accountants.distribution import contour
from accountants.losses.cut_sample import CutSample
from accountants.losses.gaussian import GaussianPair
from accountants.losses.sampled_gaussians import log_moments_of_each
from accountants.losses.sampling import ReplacedGaussianPair, SampledGaussianPair, SampledPair
from accountants.numerics import UNIT, Array, Bounds, bracket, up
from accountants.pair import Pair, Reversed

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
    again
        Or a bound of ``sum_i Q(x_i > b_i)``, of which delta is at most ``e^eps + 1`` times that
        share too large.
    """

    most: float
    rest: tuple[tuple[Pair, int], ...]
    above: tuple[float, float]
    below: tuple[float, float]
    never: float
    again: float

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
        # delta <= most + (e^eps + 1) sum Q(x_i > b_i) delta
        share = np.minimum(1.0, (grown + 1) * (1 + room) * self.again)
        most, wrong = (part / (1 - share) * (1 + 4 * UNIT) for part in (most, wrong))
        inside = (epsilons <= self.most) & np.isfinite(grown)  # beyond 709 nothing is known
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
        u of the module's docstring, and the bound of the last probability. Of replaced units u is
        epsilon; ``fall`` is about how far the losses of most outcomes go.
    replaced
        Whether units are replaced, in all steps.
    """

    mu: Array
    rate: Array
    times: Array
    others: tuple[tuple[Pair, int], ...]
    fall: float
    never: float
    replaced: bool = False

    @staticmethod
    def of(spends: Sequence[tuple[Pair, int]]) -> _Large | None:
        """Return them; None where there are none, or other losses may fall without end."""
        if (columns := _columns(spends)) is not None:
            m, q, n = columns
            if not ((q <= 0.5) & (m >= 1e-3) & (m <= 12)).all():
                return None
            typical = 2 * q * np.exp(-m * m / 2) * np.sinh(m)
            fall = 8 * math.sqrt(float(n @ (typical * typical)))
            return _Large(m, q, n, (), fall, 0.0, True) if fall > 0 else None
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
        if self.replaced:
            b = _outcomes(self.mu, self.rate, 2 * epsilon * (1 + 1e-9))
            # and so far out that next to nothing happens again
            log_share = math.log(_AGAIN / float(self.times.sum())) - epsilon
            least = float(_FAR[np.argmax(special.log_ndtr(-_FAR) <= log_share)])
            return np.asarray(np.maximum(b, least), dtype=np.float64)
        least = (epsilon + self.fall) * (1 + 1e-12)
        # e^L = 1 - q + q r there
        log_r = np.log1p(np.expm1(least) / self.rate) if least < 600 else least - np.log(self.rate)
        return np.asarray((log_r + 1e-12 * (1 + np.abs(log_r))) / self.mu + self.mu / 2)

    def masses(self, b: Array) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return bounds of P(E) and of Q(E)."""
        return _masses(self.mu, self.rate, self.times, b, self.replaced)

    def alone(self, epsilon: float) -> float:
        """Return about what E adds to delta."""
        above, below = self.masses(self.points(epsilon))
        return above[1] - math.exp(min(epsilon, 600.0)) * below[0]

    def split(self, most: float) -> Split:
        """Return the composition in two, for epsilons up to ``most``."""
        b = self.points(most)
        above, below = self.masses(b)
        cut = [
            (CutSample(float(m), float(q), float(at), left=float(at) * self.replaced), int(n))
            for m, q, n, at in zip(self.mu, self.rate, self.times, b, strict=True)
        ]
        # log1p(-Q(E)) is at least that of the sum
        again = -math.log1p(-below[1]) * (1 + 4 * UNIT) if self.replaced else 0.0
        return Split(most, (*cut, *self.others), above, below, self.never, again)


_AGAIN = 1e-9
"""Of replaced units points lie so far out that delta is too large by this share, if they can."""

_FAR = np.linspace(0.0, 39.0, 400)


def _outcomes(mu: Array, rate: Array, loss: float) -> Array:
    """Return for each kind of replaced units' samples the outcome of a loss."""
    pairs = map(ReplacedGaussianPair, mu.tolist(), rate.tolist())
    return np.array([pair.outcome(np.array([loss]))[0] for pair in pairs])


def _columns(spends: Sequence[tuple[Pair, int]]) -> tuple[Array, Array, Array] | None:
    """Return mu, rate and times of replaced units' samples; None where there are others."""
    some = [(p.mu, p.rate, n) for p, n in spends if isinstance(p, ReplacedGaussianPair)]
    if not some or len(some) < len(spends):
        return None
    mu, rate, times = np.array(some, dtype=np.float64).T
    return mu, rate, times


def _masses(
    mu: Array, rate: Array, times: Array, b: Array, replaced: bool
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return bounds of the probabilities under P and Q that any outcome lies beyond its point."""
    q = special.ndtr(-b)
    p = (1 - rate) * q + rate * special.ndtr(mu - b)
    if replaced:
        q = (1 - rate) * q + rate * special.ndtr(-mu - b)
    wrong = _MASS + 16 * len(b) * UNIT
    ends = []
    for each in (p, q):
        total = -math.expm1(-float(times @ -np.log1p(-each)))
        ends.append((total * (1 - wrong), min(1.0, total * (1 + wrong) + 1e-300)))
    return ends[0], ends[1]


def apart(spends: Sequence[tuple[Pair, int]], delta: float) -> Bounds | None:
    """Return 0 where maximal couplings of all steps differ with probability delta at most.

    A step's total variation distance is ``q (2 Phi(mu / 2) - 1)``, in both directions, as P is the
    larger density from ``mu / 2`` on; of a unit that is replaced ``q (2 Phi(mu) - 1)``, from 0 on.
    """
    some = []
    for pair, times in spends:
        body = pair.pair if isinstance(pair, Reversed) else pair
        if isinstance(body, ReplacedGaussianPair):
            some.append((2 * body.mu, body.rate, times))
        elif isinstance(body, SampledPair) and isinstance(body.body, GaussianPair):
            some.append((body.body.mu, body.rate, times))
        else:
            return None
    mu, rate, times = np.array(some, dtype=np.float64).T
    each = rate * special.erf(mu * math.sqrt(1 / 8)) * (1 + 1e-14)
    if not (each < 1).all():
        return None
    logs = float(times @ -np.log1p(-each))
    most = -math.expm1(-logs) * (1 + 8 * UNIT * (len(mu) + 8))
    return Bounds(0.0, 0.0) if most <= delta else None


def by_participation(spends: Sequence[tuple[Pair, int]], delta: float) -> Bounds | None:
    """Return what follows of one event: a large loss in any step; None of other pairs."""
    columns = _columns(spends)
    replaced = columns is not None
    some = [(p.body.mu, p.rate, n) for p, n in spends if type(p) is SampledGaussianPair]
    if columns is None and not some:
        return None
    mu, rate, times = np.array(some, dtype=np.float64).T if columns is None else columns
    lower, losses = 0.0, np.geomspace(1e-9, 600.0, 200)
    for _ in range(3):
        # any points b_i will do; those of one loss are about the best
        found = np.zeros(len(losses))
        for i, loss in enumerate(losses.tolist()):
            single = np.log1p(math.expm1(loss) / rate) / mu + mu / 2
            b = _outcomes(mu, rate, loss) if replaced else single
            above, below = _masses(mu, rate, times, b, replaced)
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
    if not any(type(pair) in (SampledGaussianPair, ReplacedGaussianPair) for pair, _ in spends):
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


# --- by how many outcomes are large


@frozen(eq=False)
class Taking:
    """Sampled Gaussians by how many outcomes lie beyond points b_i (see the module).

    Parameters
    ----------
    mu, rate, times
        Of each kind of step.
    b
        The points, at least ``mu / 2``.
    """

    mu: Array
    rate: Array
    times: Array
    b: Array

    @cached_property
    def beyond(self) -> tuple[Array, Array]:
        """Return ``P_i(x > b_i)`` and ``Q_i(x > b_i)``, within ``_MASS`` of themselves."""
        q = special.ndtr(-self.b)
        return (1 - self.rate) * q + self.rate * special.ndtr(self.mu - self.b), q

    @cached_property
    def some(self) -> tuple[Decimal, Decimal]:
        """Return bounds of the probability under P that any outcome lies beyond its point."""
        with localcontext(_DIGITS):
            log, wrong = Decimal(0), Decimal(0)
            for mu, q, n, b in zip(self.mu, self.rate, self.times, self.b, strict=True):
                rate, steps = Decimal(float(q)), Decimal(int(n))
                out, tail = (Decimal(float(special.ndtr(x))) for x in (b - mu, -b))
                log += steps * (1 - rate * (1 - out) - (1 - rate) * tail).ln()
                # the tails are wrong by their share; at most half of a step is beyond
                wrong += 4 * steps * Decimal(_MASS) * (rate * out + tail)
            return 1 - (log + wrong).exp() - _SPARE, 1 - (log - wrong).exp() + _SPARE

    @cached_property
    def _log_below(self) -> tuple[Array, Array, Array, Array]:
        """Return of each kind ``log P(x <= b)``, ``log Q(x <= b)``, ``log P / ((1-q) Q)``; errors.

        The errors are of all three, relative to what is small in them.
        """
        p, q = self.beyond
        more = self.rate / (1 - self.rate) * special.ndtr(self.b - self.mu) / special.ndtr(self.b)
        return np.log1p(-p), np.log1p(-q), np.log1p(more), 4 * _MASS * (p + q)

    def _others(self, *kinds: int) -> tuple[float, float, float, float, float]:
        """Return facts of the others' sum S, where they all lie below their points.

        Their log-probabilities under P and Q; ``-log(1 - q)`` of all; a bound of one minus the
        chord's share of the largest ``e^{-S}``; and the error of the logs.
        """
        log_p, log_q, more, wrong = self._log_below
        number = self.times.copy()
        np.subtract.at(number, list(kinds), 1.0)
        rest = float(number @ -np.log1p(-self.rate))
        gap = float(number @ more) * (1 + 1e-9)  # log of the largest e^-S over its mean
        # the least e^-S: all others at their points
        loss = np.log1p(self.rate * np.expm1(np.minimum(self.mu * self.b - self.mu**2 / 2, 600.0)))
        reach = float(number @ (loss - np.log1p(-self.rate))) * (1 - 1e-9) - 1e-12
        share = 1.0 if reach <= 0 else -math.expm1(-gap) / -math.expm1(-reach) * (1 + 1e-9)
        share = min(share, 1.0) if number.any() else 0.0  # no others at all
        error = float(number @ wrong) + 64 * UNIT * (1 + rest)
        return float(number @ log_p), float(number @ log_q), rest, share, error

    def _deficit(self, i: int, y: Array) -> tuple[Array, Array]:
        """Return bounds of ``d_i(y) = E_P[min(1, e^{y - L_i}); x_i > b_i]``."""
        mu, q, b = self.mu[i], self.rate[i], self.b[i]
        log_rest = math.log1p(-q)
        with np.errstate(all="ignore"):
            # e^y = 1 - q + q r there
            log_r = np.where(y < 30, np.log(np.expm1(np.minimum(y, 30.0)) + q), y) - math.log(q)
        at = np.where(y > log_rest, np.maximum(b, np.nan_to_num(log_r, nan=-1e9) / mu + mu / 2), b)
        # any point serves for an upper bound; next to the best one what is lost is a square
        first = (1 - q) * (special.ndtr(-b) - special.ndtr(-at))
        second = q * np.where(
            at < mu,
            special.ndtr(at - mu) - special.ndtr(b - mu),
            special.ndtr(mu - b) - special.ndtr(mu - at),
        )
        with np.errstate(over="ignore"):
            third = np.exp(np.minimum(y + special.log_ndtr(-at), 0.0))
        sizes = (1 - q) * special.ndtr(-b) + q * special.ndtr(at - mu) + third
        wrong = (4 * _MASS + 64 * UNIT * (1 + np.abs(y))) * sizes + 1e-300
        value = np.maximum(0.0, first) + np.maximum(0.0, second) + third
        return np.maximum(0.0, value - wrong), value + wrong

    def deficit(self, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds of ``E_P[min(1, e^{eps - L}); some x_i > b_i]``."""
        low, high = np.zeros(len(epsilons)), np.zeros(len(epsilons))
        for i in range(len(self.mu)):
            mass, mean, least, most, share = self._facts(i)
            # concave in e^-S: above at its mean (Jensen), below on the chord over its range
            top = self._deficit(i, epsilons + mean[1])[1]
            chord = (1 - share) * self._deficit(i, epsilons + most)[0]
            chord = chord + share * self._deficit(i, epsilons - least)[0]
            low = low + self.times[i] * mass[0] * chord
            high = high + self.times[i] * mass[1] * top
        more = np.exp(self._log_more(2, epsilons))
        if (more > _SKIPPED * low).any() and len(self.mu) <= _KINDS:
            both = self._of_two(epsilons)
            more = np.minimum(more, both[1] + np.exp(self._log_more(3, epsilons)))
            low = low + both[0]
        high = np.minimum(1.0, high + more)
        return low * (1 - 1e-13), high * (1 + 1e-13)

    def _facts(
        self, *kinds: int
    ) -> tuple[tuple[float, float], tuple[float, float], float, float, float]:
        """Return bounds of P(others below), of ``log E e^-S``, and S's range, with a share."""
        log_p, log_q, rest, share, error = self._others(*kinds)
        mass = math.exp(log_p - error) * (1 - 4 * UNIT), math.exp(log_p + error) * (1 + 4 * UNIT)
        mean = log_q - log_p
        return mass, (mean - error, mean + error), self._largest(*kinds), rest * (1 - 1e-14), share

    def _of_two(self, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds of the part in which two outcomes are beyond their points."""
        low, high = np.zeros(len(epsilons)), np.zeros(len(epsilons))
        far = float(epsilons.max()) + 40.0
        for i in range(len(self.mu)):
            p, q, loss = self._cells(i, far)
            slip = 2e-12 * (1 + loss)  # of the rounding of x and of the loss
            for j in range(i, len(self.mu)):
                number = self.times[i] * (self.times[j] if j > i else (self.times[i] - 1) / 2)
                if number <= 0:
                    continue
                mass, mean, _, most, share = self._facts(i, j)
                # in a cell e^-L has the mean Q / P, within what it is at both ends
                with np.errstate(all="ignore"):
                    inner = np.where(p[0] > 0, np.log(q[1] / p[0]), np.inf)
                inner = np.minimum(inner, -loss[:-1]) + slip[:-1]
                top = self._deficit(j, epsilons[:, None] + (mean[1] + inner))[1]
                high = high + number * mass[1] * (top @ p[1])
                width = np.diff(loss[:-1])
                ends = self._deficit(j, epsilons[:, None] + (most - loss[:-1] - slip[:-1]))[0]
                with np.errstate(all="ignore"):
                    away = q[0][:-1] / p[1][:-1] * np.exp(loss[1:-1] - slip[1:-1]) - 1
                    left = away / np.expm1(width) - 4 * slip[1:-1] / width
                left = np.clip(np.nan_to_num(left), 0.0, 1.0)
                chord = left * ends[:, :-1] + (1 - left) * ends[:, 1:]
                low = low + (1 - share) * number * mass[0] * (chord @ p[0][:-1])
        return low * (1 - 1e-12), high * (1 + 1e-12)

    def _cells(self, i: int, far: float) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """Return bounds of the masses of cells from b_i on, under P and Q, and losses between."""
        mu, q, b = float(self.mu[i]), float(self.rate[i]), float(self.b[i])
        last = max((far - math.log(q)) / mu + mu / 2, b + 1.0)
        x = np.append(np.linspace(b, last, _CELLS), np.inf)
        upper, lower = special.ndtr(-x), special.ndtr(x - mu)
        none = -np.diff(upper)
        off = 4 * _MASS * upper[:-1]
        less = special.ndtr(mu - x)
        taken = np.where(x[1:] < mu, np.diff(lower), -np.diff(less))
        wrong = 4 * _MASS * np.where(x[1:] < mu, lower[1:], less[:-1])
        p, error = (1 - q) * none + q * taken, off + q * wrong + 1e-300
        with np.errstate(over="ignore"):
            loss = np.logaddexp(math.log1p(-q), math.log(q) + mu * x - mu * mu / 2)
        return (
            (np.maximum(0.0, p - error), np.maximum(0.0, p) + error),
            (np.maximum(0.0, none - off), np.maximum(0.0, none) + off + 1e-300),
            loss,
        )

    def _largest(self, *kinds: int) -> float:
        """Return an upper bound of the sum of the others' losses, where they are below."""
        number = self.times.copy()
        np.subtract.at(number, list(kinds), 1.0)
        return float(number @ self._losses) * (1 + 1e-12)

    @cached_property
    def _losses(self) -> Array:
        """Return the losses at the points b_i, none negative."""
        body = np.minimum(self.mu * self.b - self.mu**2 / 2, 600.0) + 1e-12
        above = np.log1p(self.rate * np.expm1(body)) * (1 + 1e-12)
        return np.asarray(np.where(self.b > self.mu / 2, above, 0.0), dtype=np.float64)

    def _log_more(self, count: int, epsilons: Array) -> Array:
        """Return logs of bounds of the part in which ``count`` or more are beyond (Chernoff).

        ``min(1, e^v) <= e^{cv}`` for c in [0, 1]; ``R^a <= (1-q)^a + (q r)^a`` and, by Hoelder's
        inequality, ``E[R^a; x <= b] <= P^a Q^c``, ``a = 1 - c``.
        """
        c = np.linspace(0.0, 1.0, 65)
        a, log_rest = 1 - c, np.log1p(-self.rate)[:, None]
        mu, b = self.mu[:, None], self.b[:, None]
        log_p, log_q = self._log_below[:2]
        below = a * log_p[:, None] + c * log_q[:, None]
        beyond = np.logaddexp(
            a * log_rest + special.log_ndtr(-b),
            a * np.log(self.rate)[:, None] - a * c * mu * mu / 2 + special.log_ndtr(a * mu - b),
        )
        ratio = (self.times[:, None] * np.exp(beyond - below)).sum(axis=0)
        logs = self.times @ below + count * np.log(ratio) - math.lgamma(count + 1) + ratio
        logs = logs + epsilons[:, None] * c
        return np.asarray((logs + 1e-9 * (1 + np.abs(logs))).min(axis=1), dtype=np.float64)

    def _none(self, epsilons: Array) -> Array:
        """Return bounds of ``E_P[(1 - e^{eps - L})_+; all x_i <= b_i]``.

        Chernoff's, of ``E[R^a; x <= b] <= (1-q)^a (Phi(b) + Phi(b - mu) o ((1 + u)^a - 1) / u)``,
        o the odds of q and ``u = o r(b)``: a power ``a >= 1`` is convex.
        """
        most = float(self.times @ self._losses) * (1 + 1e-12)
        c = np.geomspace(1e-2, 1e4, 121)
        a, log_rest = 1 + c, np.log1p(-self.rate)[:, None]
        log_odds = np.log(self.rate)[:, None] - log_rest
        log_u = log_odds + (self.mu * self.b - self.mu**2 / 2)[:, None]
        with np.errstate(all="ignore"):
            grown = a * np.log1p(np.exp(np.minimum(log_u, 600.0)))
            grown = np.where(grown < 30, np.log(np.expm1(np.minimum(grown, 30.0))), grown)
            far = special.log_ndtr(self.b - self.mu)[:, None] + log_odds + grown - log_u
            all_ = np.logaddexp(special.log_ndtr(self.b)[:, None], far)
            logs = self.times @ (a * log_rest + all_) + contour.chernoff_factor(c)
            noise = self.times @ (np.abs(a * log_rest) + np.abs(all_)) + 1
            paid = epsilons[:, None] * c
            logs = logs + 1e-9 * noise - paid + 1e-9 * paid
        logs = np.where(np.isnan(logs), 0.0, logs)
        bound = np.exp(np.minimum(0.0, logs.min(axis=1)))
        return np.where(epsilons >= most, 0.0, bound)

    def profile(self, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds of delta."""
        low, high = self.deficit(epsilons)
        least, most = (float(each) for each in self.some)
        lower = (least - high) * (1 - 4 * UNIT) - 4 * UNIT * least
        upper = (most - low) * (1 + 4 * UNIT) + 4 * UNIT * most + self._none(epsilons)
        return np.maximum(0.0, lower), np.minimum(1.0, upper)

    def beside(self, epsilon: float, place: float) -> Taking:
        """Return the same with points at a place between a loss of 0 and of epsilon."""
        log_r = np.log1p(math.expm1(min(epsilon, 600.0)) / self.rate)
        return Taking(self.mu, self.rate, self.times, self.mu / 2 + place * log_r / self.mu)

    def guess(self, delta: float) -> float:
        """Return about the epsilon that one step alone asks for."""
        epsilons = np.geomspace(1e-4, _FARTHEST, 300)
        x = np.log1p(np.expm1(epsilons) / self.rate[:, None]) / self.mu[:, None]
        x = x + self.mu[:, None] / 2
        q, rate = special.ndtr(-x), self.rate[:, None]
        p = (1 - rate) * q + rate * special.ndtr(self.mu[:, None] - x)
        reached = np.flatnonzero(self.times @ (p - np.exp(epsilons) * q) > delta)
        return float(epsilons[reached[-1]]) if len(reached) else float(epsilons[0])

    def bracket(self, delta: float, lower: float, upper: float) -> tuple[float, float]:
        """Return a bracket of epsilon inside of one."""
        with localcontext(_DIGITS):
            least, most = (float(each - Decimal(delta)) for each in self.some)
        least, most = least - 4 * UNIT * abs(least), most + 4 * UNIT * abs(most)
        if not most > 0:
            return lower, upper
        points = np.linspace(lower, min(upper, _FARTHEST), 33)
        for _ in range(_ROUNDS):
            low, high = self.deficit(points)
            # delta is more than P(some) less the deficit, and at most that and what else there is
            enough = low - self._none(points) >= most
            lower = max(lower, float(points[high < least].max(initial=0.0)))
            upper = min(upper, float(points[enough].min(initial=math.inf)))
            if not lower < upper or upper - lower <= _NARROW * upper:
                break
            middle = np.log(np.maximum(low, 1e-320) / 2 + np.maximum(high, 1e-320) / 2)
            guess = float(np.interp(math.log(most), np.maximum.accumulate(middle), points))
            around = guess * (1 + _AROUND)
            points = np.unique(np.clip(around, lower, min(upper, _FARTHEST)))
        return lower, upper


_DIGITS = Context(prec=50)
_SPARE = Decimal("1e-40")
_SKIPPED = 1e-10
"""Two outcomes beyond that add at most this share are bounded by Chernoff alone."""

_KINDS = 4
"""Of more kinds of steps two outcomes beyond are bounded by Chernoff alone."""

_CELLS = 600
_MOST_POINTS = 256
"""Of more epsilons too much time would be taken."""

_FAR_BELOW = 1e-6
"""Of a delta that is a smaller share of P(some) the deficit has no digits."""

_FARTHEST = 600.0
_ONE_BY_ONE = 64
"""Of more kinds of steps too much time would be taken."""

_WHERE = (0.0, 0.15, 0.3, 0.5, 0.7)
"""Where the points lie between a loss of 0 and of epsilon: what is tried."""


def _taking(spends: Sequence[tuple[Pair, int]]) -> Taking | None:
    """Return samples of little noise, their points at a loss of 0; None of others."""
    if len(spends) > _ONE_BY_ONE:
        return None
    found = []
    for pair, times in spends:
        if type(pair) is not SampledGaussianPair or not 6 <= pair.body.mu <= 60:
            return None
        if not 1e-15 <= pair.rate <= 0.5:
            return None
        found.append((pair.body.mu, pair.rate, times))
    mu, rate, times = np.array(found, dtype=np.float64).T

    return Taking(mu, rate, times, mu / 2)


def by_number(
    spends: Sequence[tuple[Pair, int]], delta: float, known: Bounds | None
) -> Bounds | None:
    """Return a bracket of epsilon from how many outcomes are large; None where none is of use."""
    taking = _taking(spends)
    if taking is None or not _FAR_BELOW * (some := float(taking.some[1])) < delta < some:
        return None
    lower, upper = (known.lower, known.upper) if known is not None else (0.0, math.inf)
    near = taking.guess(delta)
    for place in _WHERE:
        lower, upper = taking.beside(near, place).bracket(delta, lower, upper)
        if not lower < upper or upper - lower <= _NARROW * upper:
            break
    return bracket(lower, upper)


def by_number_profile(
    spends: Sequence[tuple[Pair, int]], epsilons: Array
) -> tuple[Array, Array] | None:
    """Return bounds of delta from how many outcomes are large; None of other pairs."""
    taking = _taking(spends)
    if taking is None or not 0 < len(epsilons) <= _MOST_POINTS:
        return None
    low, high = np.zeros(len(epsilons)), np.ones(len(epsilons))
    for place in _WHERE:
        wide = np.flatnonzero(~(high <= low * (1 + _NARROW)))
        if not len(wide):
            break
        made = taking.beside(float(np.median(epsilons[wide])), place)
        for some in np.array_split(wide, -(-len(wide) // 64)):
            ends = made.profile(epsilons[some])
            low[some], high[some] = np.maximum(low[some], ends[0]), np.minimum(high[some], ends[1])
    return low, high
