"""The loss of amplification by shuffling local reports.

A report is drawn by a *local randomizer* from its unit's value, and leaves in a random order. What
the shuffled reports tell about one unit follows from the part of the other reports that does not
depend on their values. It is taken out of each as a mixture, and whoever sees the reports is told
which of them are of that part, and all of the others: that can only help, and does not depend on
the unit.

**Any randomizer of a pure epsilon** (clones). With ``w = e^eps / (1 + e^eps)`` the unit's two laws
are ``w U + (1-w) V`` and ``(1-w) U + w V`` for some laws U and V, and any other report is drawn
from ``(U + V)/2`` with probability ``e^-eps``. So with ``C ~ Bin(n-1, e^-eps)`` of those, what is
left is the number of reports from U out of ``m = C + 1``.

**Randomized response with k answers** (the privacy blanket). Any report is a uniform answer with
probability ``k / (e^eps + k - 1)``, whatever its unit's value is. So with C of those, binomial,
what is left are m reports: C uniform answers, and the unit's own. Let a and b of the m be the two
answers that the unit's two values are. Against uniform answers alone the likelihood of a histogram
is in proportion to ``(e^eps - 1) a + m`` under the one value, to ``(e^eps - 1) b + m`` under the
other: only ``N = a + b`` and a count. N has the same law under both.

**Two answers** are both the unit's, so that the blanket wastes what the others' own values hide, up
to the root of 2 in epsilon. What must hold of one shuffle is for fixed values of the others, the
worst there are: the supremum of delta over the number m of zeros among them, at each epsilon. The
first few m's are computed one by one (`_of_first`), and all larger ones are proven to be no worse
(`_beyond`), so that both ends are next to each other (`_worst`). Of several shuffles each has
values of its own, which may depend on earlier answers: the pair of all those suprema bounds them.
Where that proof fails, many m's are bounded at once by what the laws of their reports share
(`_shared`), which is no more than the blanket's.

The first two are counts of fair coins. With a of N from the one side, b = N - a, and s not
negative, the likelihood ratio is ``(a + s) / (b + s)``, where a fair coin's law of a has weights
``2 (a + s) / (N + 2s)`` under P and ``2 (b + s) / (N + 2s)`` under Q: s is ``m / (e^eps - 1)``, for
clones with N = m. Fewer coins are easier to tell apart: more may be thrown by whoever looks. So is
a smaller ``s / N``: the ratio of another s' is that of a report which is now and then replaced by
another coin. So the counts of a block are rounded down, and with them ``s / N``. Far counts are
told apart, up to their own largest loss (`_far`), and ratios are spread outward onto a grid.

A narrower law for randomized response that is published, of counts a and b alone out of n, with
the parameters ``p = q = e^eps`` and ``beta = (e^eps - 1) / (e^eps + k - 1)`` of the variation-ratio
reduction, is too small: of two users with three answers, kept twice as likely, delta at ``t = 1.9``
is 1/160 by it and 1/80 in truth, where the other user's answer is the unit's. The tests enumerate.
"""

from __future__ import annotations

import heapq
import math
from itertools import pairwise
from typing import ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants.errors import DomainError, integer
from accountants.finite import FinitePair, from_profile, spread
from accountants.loss import PrivacyLoss, _profile
from accountants.losses.discrete import RandomizedResponse
from accountants.losses.pure import ResponsePair
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    bracket,
    expm1,
    log1p,
    remembered,
)
from accountants.pair import LooseBound, Pair

_COUNT_TAIL = 70.0
"""Counts are followed as far as all but ``e^-70`` of them go."""

_TAILS = (_COUNT_TAIL, 90.0, 120.0, 160.0, 210.0, 280.0, 370.0, 490.0, 650.0)
"""What is cut off has a loss that is bounded in all but so little, and so on."""

_CELLS = 2000
_MERGED = 4000
"""Lower bounds merge outcomes into so many."""

_GUARANTEES, _FEWEST_GUARANTEES = 1000, 400
"""So many guarantees of two answers are where delta is not negligible."""

_LATTICE = 32_000
"""Larger multiples of a step are on no lattice of the accountants."""

_VALUES, _FEWEST, _EFFORT = 512, 24, 1.5e6
"""So often blocks of the others' values are cut, fewer times where their laws are long."""

_ENOUGH = 1e-6
"""Nor is a block cut whose epsilons are no farther than this above those attained."""

_COUNTED = 1e-11
"""Where delta is less, bounds of a block are not compared: transforms round too much."""

_TOGETHER = 64
"""So many others are also bounded together."""

_FIRST = 65
"""Of so many numbers of others with the other value, the fewest, delta is computed for each."""

_OUTCOMES = 2_000_000
"""Nor are more outcomes than this kept, of all numbers together."""

_STRETCHES = 16
"""All larger numbers are bounded in so many stretches."""

_PERIOD = 40.0
"""Counts this many standard deviations apart are taken for one by the Fourier sums."""

_BESIDE = 1.0
"""The best threshold is within this of where it is looked for."""

_FEWEST_SPREAD = 8.0
"""Of a smaller standard deviation of the count Fourier sums are no use."""

_NEGLIGIBLE = 1e-14
"""Guarantees are dense where delta is above this."""

_MOST_REPORTS = 10**8
"""More reports than this count as this many."""

_LARGEST_LOSS = 600.0
"""Reports of a larger epsilon are not amplified."""

_LEAST_LOSS = 1e-12
"""Nor are those of a smaller one."""

_LEAST = 1e-290
"""Lower bounds leave out outcomes of less mass, which may have lost digits to underflow."""

_ATOMS = 1_000_000
"""About so many outcomes are spread."""


def _local(value: PrivacyLoss) -> PrivacyLoss:
    if not isinstance(value, PrivacyLoss):
        raise DomainError(
            f"Shuffled.local must be the privacy loss of one report, got {value!r}; of an "
            "epsilon-DP report of which no more is known it is Pure(epsilon)"
        )
    if value.pure() is None or value.delta_floor() > 0:
        raise DomainError(
            f"Shuffled.local must have a pure epsilon and no delta, got {value!r}; reports of "
            "other losses are not amplified here"
        )
    return value


def _reports(value: int) -> int:
    return integer("Shuffled.reports", value)


@frozen(cache_hash=True)
class Shuffled(PrivacyLoss):
    """Reports of ``reports`` units by one local randomizer, in a random order.

    Neighbours differ in the value of one unit (replace-one). `RandomizedResponse` is amplified by
    what its answers are (the privacy blanket; of two answers, all values of the others), any other
    loss by its pure epsilon alone (clones); the section above has the proofs.

    With a loss other than `RandomizedResponse`, the reports may also come one by one, by
    randomizers chosen from the earlier ones, if the units, not the reports, are shuffled first.

    Parameters
    ----------
    local
        The loss of one report between any two values of its unit. It has a pure epsilon.
    reports
        n, the integer of reports, the unit's own included; at least 1.

    References
    ----------
    Feldman, McMillan and Talwar 2021, Thm 3.2 and 2023, Thm 3.1 (clones); Balle, Bell, Gascon and
    Nissim 2019, Lemma 5.3 (blanket); Su, Cheng and Wang 2025 (the blanket is the best mixture).

    Examples
    --------
    >>> from accountants import Pure
    >>> Shuffled(Pure(1.0), reports=10_000).profile(0.1).upper < 1e-5
    True
    >>> Shuffled(RandomizedResponse(1.0, 16), reports=10_000).profile(0.02).upper < 1e-5
    True
    """

    theorem: ClassVar[str] = (
        "shuffling: Feldman, McMillan & Talwar 2021, Thm 3.2; 2023, Thm 3.1; Balle, Bell, Gascon & "
        "Nissim 2019, Lemma 5.3"
    )

    local: PrivacyLoss = field(converter=_local)
    reports: int = field(converter=_reports)

    def pair(self) -> Pair:
        """Return the pair of the counts."""
        eps = self.pure()
        if self.reports == 1:
            return self.local.pair() or ResponsePair(eps)
        if not _LEAST_LOSS <= eps <= _LARGEST_LOSS:
            return LooseBound(ResponsePair(eps))
        if isinstance(self.local, RandomizedResponse):
            if self.local.categories == 2:
                return _two_answers(eps, self.reports)
            return _blanket(eps, self.local.categories, self.reports)
        return _clones(eps, self.reports)

    def attained_pair(self) -> Pair | None:
        """Return a pair below that of reports of which all others have one and the same value.

        That is a third value, and the counts of two of the answers alone are seen; of two answers,
        the others have one of the unit's values.
        """
        if self.reports == 1:
            return self.local.attained_pair()
        local, eps = self.local, self.pure()
        known = isinstance(local, RandomizedResponse) and self.reports <= _MOST_REPORTS
        if not (known and _LEAST_LOSS <= eps <= _LARGEST_LOSS):
            return None
        assert isinstance(local, RandomizedResponse)
        return _attained(eps, local.categories, self.reports)

    def pure(self) -> float:
        """Return that of one report."""
        eps = self.local.pure()
        assert eps is not None
        return eps

    def profile(self, epsilon: float) -> Bounds:
        """Return the pair's profile, and nothing from the reports' own epsilon on."""
        if self.reports == 1:
            return self.local.profile(epsilon) or _profile(self.pair(), 0.0, epsilon)
        if epsilon >= self.pure():
            return Bounds(0.0, 0.0)
        attained = self.attained_pair()
        upper = _profile(self.pair(), 0.0, epsilon).upper
        lower = 0.0 if attained is None else _profile(attained, 0.0, epsilon).lower
        return bracket(lower, upper)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Fewer reports of a loss that dominates, or of any with a larger epsilon by clones.

        Of randomized responses with as many answers, one of a smaller epsilon is that of a larger
        one whose answers are now and then drawn again, each for itself.
        """
        if not isinstance(other, Shuffled) or self.reports > other.reports:
            return False
        if isinstance(self.local, RandomizedResponse):
            return isinstance(other.local, RandomizedResponse) and self.local.dominates(other.local)
        # clones bound any randomizer of that epsilon, and C falls in epsilon
        return self.pure() >= other.pure()


@remembered(64)
def _clones(eps: float, reports: int) -> FinitePair:
    others = min(reports, _MOST_REPORTS) - 1
    clones, weights, steps = _counts(eps, 1, others, _blocks(others * math.exp(-eps), 256))
    least = 1 / math.expm1(eps) * (1 - 8 * UNIT)
    laws = [_law(int(c) + 1, (c + 1) * least, w) for c, w in zip(clones, weights, strict=True)]
    return _mirrored(laws, eps, _far(eps, 1, others), steps)


@remembered(64)
def _blanket(eps: float, categories: int, reports: int) -> FinitePair:
    others = min(reports, _MOST_REPORTS) - 1
    coins = (others + 1) * 2.0 / (math.expm1(eps) + categories)
    # blocks of one count, or of two
    blocks = _blocks(coins, 256) if categories == 2 else math.isqrt(_blocks(coins, 1024))
    blocks = max(blocks, 6)
    counts, weights, steps = _counts(eps, categories, others, blocks)
    laws, most = [], 0
    for count, weight in zip(counts, weights, strict=True):
        m = int(count) + 1
        s = m / math.expm1(eps) * (1 - 8 * UNIT)
        if categories == 2:
            laws.append(_law(m, s, weight))
            continue
        for low, high, share in _pairs(m, s, categories, blocks):
            # of a block the fewest coins, and the least s / N, which is at the most coins; no coin
            # tells nothing, and so less than one
            tossed = max(low, min(high, 1))
            least = s * max(tossed, 1) / max(high, 1) * (1 - 8 * UNIT)
            laws.append(_law(tossed, least, weight * share))
        most = max(most, 2 * math.ceil(math.sqrt(4 * _COUNT_TAIL * m)) + 64)
    return _mirrored(laws, eps, _far(eps, categories, others), steps + 16 * most)


def _blocks(mean: float, most: int) -> int:
    """Return into how many blocks a count of this mean is cut: the larger, the narrower it is."""
    support = 1 + min(mean, math.sqrt(_COUNT_TAIL / 2 * mean))
    return int(np.clip(_ATOMS / support, 8, most))


def _counts(eps: float, answers: int, others: int, blocks: int) -> tuple[Array, Array, int]:
    """Return counts C of ``Bin(others, answers / (e^eps - 1 + answers))``, the least of blocks.

    With the blocks' masses, and the steps of the recursion. C is below the range with probability
    ``e^-70``. What is above the range is spread over it:
    downward.
    """
    mean = others * (answers / (math.expm1(eps) + answers))
    rest = others * (math.expm1(eps) / (math.expm1(eps) + answers))
    deviation = min(_below(mean, _COUNT_TAIL), _above(rest, _COUNT_TAIL))
    least = max(0, math.floor((mean - deviation) * (1 - 1e-12)))
    most = min(others, math.ceil(mean + 15 + math.sqrt(200 + 80 * min(mean, rest))))
    c = np.arange(least, most + 1, dtype=np.float64)
    odds = (1 - 8 * UNIT) * answers / math.expm1(eps)  # rounded down: fewer of them
    ratio = (others - c[:-1]) / c[1:] * odds
    weights = _by_ratios(ratio, int(np.clip(math.floor(mean) - least, 0, len(c) - 1)))
    starts = _starts(weights, blocks)
    # a block counts as its least c: fewer amplify less
    return c[starts], np.add.reduceat(weights, starts) / weights.sum(), 8 * len(c)


def _below(mean: float, tail: float) -> float:
    """Return how far below its mean a binomial is with probability ``e^-tail`` (Chernoff)."""
    # e^{-d^2 / (2 mean)}
    return math.sqrt(2 * mean * tail)


def _above(mean: float, tail: float) -> float:
    """Return how far above its mean a binomial is with that probability (Chernoff)."""
    # e^{-d^2 / (2 mean + 2 d / 3)}
    return tail / 3 + math.sqrt(tail * tail / 9 + 2 * mean * tail)


def _far(eps: float, answers: int, others: int) -> list[tuple[float, float]]:
    """Return losses, and bounds of the probability that the loss may be so far out.

    Counts within their tails of ``e^-t`` each, five in all, are symmetric under both laws, with no
    larger a loss than at the fewest coins, the least s / N, and the farthest count. The last is
    the reports' own epsilon: told apart.
    """
    gain, far = math.expm1(eps), []
    mean, rest = others * (answers / (gain + answers)), others * (gain / (gain + answers))
    tails = [t for t in _TAILS if t <= max(_COUNT_TAIL, 680 - eps)]
    for tail, after in pairwise([*tails, math.inf]):
        loss = eps
        if after < math.inf:
            m = 1 + max(0.0, mean - min(_below(mean, after), _above(rest, after))) * (1 - 1e-9)
            fewest, share = m, 1.0
            if answers > 2:
                pairs = (m - 1) * 2 / answers
                fewest = max(1.0, pairs - _below(pairs, after))
                share = min(1.0, 2 / answers + (_above(pairs, after) + 3) / m)
            # the ratio is (1 + y) / (1 - y), y = x / (1 + 2 k), s / N at least k: and so
            # 1 + 2 x / (1 - x + 2 k), which loses no digits where y is next to 1
            x, k = min(1.0, math.sqrt(2 * after / fewest) * (1 + 1e-14)), 1 / (gain * share)
            loss = min(eps, math.log1p(2 * x / (1 - x + 2 * k)) * (1 + 1e-9))
        far.append((loss, 8 * math.exp(-tail)))
    return far


def _by_ratios(ratio: Array, mode: int) -> Array:
    """Return masses of these successive ratios, in units of that at the mode."""
    rising = np.cumprod(ratio[mode:])
    falling = np.cumprod(1 / ratio[:mode][::-1])[::-1]
    return np.concatenate([falling, [1.0], rising])


def _starts(weights: Array, blocks: int) -> NDArray[np.intp]:
    """Return where blocks of masses start, dense where most of the mass is."""
    mode, size = int(np.argmax(weights)), len(weights)
    if size <= blocks:
        return np.arange(size)
    t = np.linspace(-1, 1, blocks)
    edges = mode + np.where(t < 0, mode, size - 1 - mode) * (0.3 * t + 0.7 * t**3)
    inside = np.clip(np.floor(edges), 0, size - 1)
    return np.unique(np.append(0, inside)).astype(np.intp)


def _pairs(m: int, s: float, categories: int, blocks: int) -> list[tuple[int, int, float]]:
    """Return blocks of N, the reports with one of two answers: least, most, probability.

    N has the weights ``(N/2 + s) Bin(m, 2/k)(N)``, between the laws ``Bin(m-1, 2/k)`` and that plus
    1. By Chernoff's bounds they are outside of what is followed with probability ``2 e^-70``.
    """
    share = 2 / categories
    mean = (m - 1) * share
    least = max(0, math.floor((mean - _below(mean, _COUNT_TAIL)) * (1 - 1e-12)))
    most = min(m, math.ceil(mean + _above(mean, _COUNT_TAIL)) + 2)
    n = np.arange(least, most + 1, dtype=np.float64)
    ratio = (m - n[:-1]) / n[1:] * (share / (1 - share))
    weights = _by_ratios(ratio, int(np.clip(math.floor(mean) - least, 0, len(n) - 1)))
    weights = weights * (n / 2 + s)
    weights = weights / weights.sum()
    starts = _starts(weights, blocks)
    masses = np.add.reduceat(weights, starts)
    ends = np.append(starts[1:], len(n)) - 1
    return [
        (least + int(i), least + int(j), float(mass))
        for i, j, mass in zip(starts, ends, masses, strict=True)
    ]


Law = tuple[Array, Array]
"""Losses, from 0 on, and their masses under Q."""


def _law(coins: int, s: float, weight: float = 1.0) -> Law:
    """Return the losses, and masses under Q, of the counts ``a >= N/2`` of N fair coins.

    By Hoeffding's bound a count is farther than ``sqrt(35 N) + 1`` from the middle with probability
    ``2 e^-70``, as likely under P.
    """
    first = (coins + 1) // 2
    # Hoeffding: counts farther out have probability 2 e^-70, and are told apart (`_mirrored`)
    last = min(coins, math.ceil(coins / 2 + math.sqrt(_COUNT_TAIL / 2 * coins) + 2))
    a = np.arange(first, last + 1, dtype=np.float64)
    g = np.cumprod(np.concatenate([[1.0], (coins - a[:-1]) / a[1:]]))
    g = g / (2 * g.sum() - (0.0 if coins % 2 else g[0]))
    b = coins - a
    # log((a + s) / (b + s)), from the ratio less 1
    return np.log1p((a - b) / (b + s)), weight * (2 * g * (b + s) / (coins + 2 * s))


def _mirrored(
    laws: list[Law], eps: float, far: list[tuple[float, float]], steps: int
) -> FinitePair:
    """Return the symmetric pair on a grid, from the losses from 0 on and their masses under Q.

    What is off the tails is randomized response, with the losses and probabilities of ``far``.
    """
    losses = np.concatenate([law[0] for law in laws])
    q = np.concatenate([law[1] for law in laws])
    steps += 8 * max(len(law[0]) for law in laws) + 128 * _CELLS + 256
    cells = math.ceil(eps / (min(eps, float(losses.max()) or eps) / _CELLS))
    step = eps / cells * (1 + 4 * UNIT)
    ties = float(q[losses == 0].sum())
    count = int(losses.max() / step) + 4
    grid = np.expm1(step * np.arange(count))
    # spread on the grid of e^l - 1: a mean-preserving spread under Q
    mass = spread([(np.expm1(losses[losses > 0]), q[losses > 0])], grid)
    # rounded up to the grid, and just beyond it
    places = [max(math.ceil(loss / step), 1) for loss, _ in far]
    told = [chance / (1 + math.exp(loss)) for loss, chance in far]
    occupied = np.flatnonzero(mass[1:]) + 1
    at, place = np.unique(np.append(occupied, places), return_inverse=True)
    less = np.bincount(place, np.append(mass[occupied], told)).astype(np.float64)
    points, middle = at * step, 2 * mass[0] + ties
    more = less * np.exp(points)
    every = np.concatenate([-points[::-1], [0.0], points])
    p = np.concatenate([less[::-1], [middle], more])
    return FinitePair(every, p, p[::-1], steps * UNIT, tight=False, multiple=step)


@remembered(64)
def _two_answers(eps: float, reports: int) -> FinitePair:
    """Return the pair of the guarantees of two answers: the blanket's, or by the others' values.

    If j of the others have the one value, they report ``Bin(j, 1-r) + Bin(n-1-j, r)`` ones, ``r = 1
    / (e^eps + 1)``, and the unit one more with chance 1-r or r. A direction at j is the other one
    at n-1-j, so that all j's in one direction are enough. That of the most ones is the worst but
    for where the counts lie beside the threshold (`_worst`).
    """
    blanket = _blanket(eps, 2, reports)
    losses = np.array([loss for loss in blanket.losses if loss >= 0])
    near = losses[blanket.profile(losses)[1] > _NEGLIGIBLE]
    last = float(near[-1]) if len(near) and near[-1] > 0 else eps
    # integers of a step, so many of them that accountants have a lattice for them all, if any
    count = int(np.clip(_LATTICE * last / eps, _FEWEST_GUARANTEES, _GUARANTEES))
    cells = math.ceil(eps / (min(last, eps) / count))
    step, dense = eps / cells * (1 + 4 * UNIT), min(count, cells)
    far = np.geomspace(dense, cells, 40) if dense < cells else [cells]
    k = np.unique(np.append(np.arange(dense), np.rint(far))).astype(int)
    at = k * step
    others = min(reports, _MOST_REPORTS) - 1
    deltas = blanket.profile(at[:-1])[1]
    # what is next to nothing is not looked at
    some = deltas > 1e-28
    deltas[some] = np.minimum(deltas[some], _worst(eps, others, at[:-1][some], each=False)[1])
    # every report is eps-DP
    floor, pair = from_profile(at.tolist(), [*deltas.tolist(), 0.0])
    if floor:
        return blanket
    return _with_values(evolve(pair, multiple=step) if cells <= _LATTICE else pair, eps, others)


@frozen(slots=False, cache_hash=True)
class ValuesPair(FinitePair):
    """Outcomes, with the profile of the worst values of the others at each loss.

    Of one shuffle alone: in a composition a pair is one law, and the atoms are it.

    Parameters
    ----------
    eps, others
        The loss of a response of two answers, and the number of others.
    """

    eps: float = 0.0
    others: int = 0

    def profile(self, epsilon: Array) -> tuple[Array, Array]:
        """Return the least and the most that the largest delta over all values can be."""
        low, high = super().profile(epsilon)
        at = np.abs(epsilon)
        # what is next to nothing is left to the outcomes
        inside = (at < self.eps) & (high > 1e-27)
        least, most = _worst(self.eps, self.others, at[inside], each=True)
        # below 0 it is that of the other direction: 1 - e^eps + e^eps delta(-eps)
        past = np.minimum(epsilon[inside], 0.0)
        least, most = (np.exp(past) * end - np.expm1(past) for end in (least, most))
        if not self.tight:
            most = np.minimum(most, high[inside])
        low[inside], high[inside] = least * (1 - 16 * UNIT), most * (1 + 16 * UNIT)
        return low, np.minimum(high, 1.0)


def _with_values(pair: FinitePair, eps: float, others: int) -> ValuesPair:
    return ValuesPair(
        pair.losses,
        pair.p,
        pair.q,
        pair.error,
        pair.tight,
        pair.multiple,
        pair.loss_error,
        eps,
        others,
    )


def _worst(eps: float, others: int, at: Array, *, each: bool) -> tuple[Array, Array]:
    """Return bounds of the largest delta over all values of the others, at epsilons from 0 on.

    The numbers of zeros from 0 on are computed one by one, all larger ones bounded together
    (`_beyond`). Where the two are apart, many more are computed, if ``each``. Where nothing is
    known of the larger ones, they are bounded in blocks.
    """
    size = 24 * math.sqrt(max(others * math.exp(-eps), 1.0)) + 500
    many = int(_OUTCOMES / size)
    low, high = np.zeros(len(at)), np.full(len(at), np.inf)
    # in deviations of the count: delta falls by about so much of it, or its square, in epsilon
    z = at * math.sqrt(others * math.exp(-eps)) / -math.expm1(-eps)
    enough = 3e-7 * np.maximum(z, z * z)
    for most in (_FIRST if many > 2 * _FIRST else 1, many)[: 2 if each else 1]:
        count = min(others + 1, most)
        apart = np.flatnonzero((high > low * (1 + enough) + 1e-28) & ((z > 0.02) | (low == 0)))
        if not len(apart):
            break
        low[apart], high[apart] = _of_first(eps, others, count, at[apart])
        if count <= others:
            high[apart] = np.maximum(high[apart], _beyond(eps, others, count, at[apart]))
    if len(unknown := np.flatnonzero(np.isinf(high))):
        high[unknown] = _over_values(eps, others, at[unknown])
    return low, np.minimum(high, 1.0)


@remembered(8)
def _laws_of_first(eps: float, others: int, count: int) -> tuple[Array, Array, float, float, int]:
    """Return laws of the number of ones, for 0, 1... zeros among the others' values, and tails.

    In column c is the probability of c ones more than a number near the law's mean, and of still
    more. With the relative error of each, one that transforms add, and the column of the mean.
    """
    r = math.exp(-eps) / (1 + math.exp(-eps))
    laws, starts, worst_off, most_steps = [], [], 0.0, 0
    for zeros in range(count):
        lies, p, steps = _binomial(others - zeros, r, math.exp(-eps))
        truths, q, further = _binomial(zeros, r, math.exp(-eps))
        law, off = _convolved(p[::-1], q)
        laws.append(law)
        mean = round((others - zeros) * (1 - r) + zeros * r)
        starts.append(others - zeros - int(lies[-1]) + int(truths[0]) - mean)
        worst_off, most_steps = max(worst_off, off), max(most_steps, steps + further)
    least = min(starts)
    size = max(start + len(law) for start, law in zip(starts, laws, strict=True)) - least
    every = np.zeros((count, size))
    for row, start, law in zip(every, starts, laws, strict=True):
        row[start - least : start - least + len(law)] = law
    after = np.zeros((count, size))
    after[:, :-1] = np.cumsum(every[:, :0:-1], axis=1)[:, ::-1]
    wrong = (most_steps + 4 * size + 64 + 8 * eps) * UNIT
    return every, after, wrong, worst_off, -least


def _of_first(eps: float, others: int, count: int, at: Array) -> tuple[Array, Array]:
    """Return bounds of the largest delta for fewer zeros than ``count``, by all thresholds.

    What a test gains rises in its threshold, and falls (`_of_law`). So of many laws only
    thresholds about the first law's best are looked at, if in none of them an end is the best.
    """
    laws, after, wrong, off, middle = _laws_of_first(eps, others, count)
    r = math.exp(-eps) / (1 + math.exp(-eps))
    variance = max(others * r * (1 - r), 1.0)
    low, high = np.zeros(len(at)), np.zeros(len(at))
    gained, paid = (-np.expm1(at - eps) * (1 - r)).tolist(), np.expm1(at).tolist()
    for i, (a, grown) in enumerate(zip(gained, paid, strict=True)):
        # as in `_of_law`: what transforms and tails leave out
        slack = off * (a + (laws.shape[1] + 1) * grown) + 7 * math.exp(-_COUNT_TAIL)
        columns = slice(0, laws.shape[1])
        if count > _FIRST:
            best = int(np.argmax(a * laws[0] - grown * after[0]))
            further = 8 + math.ceil(1.2 * (best - middle) ** 2 / variance)
            columns = slice(max(0, best - 8), min(laws.shape[1], best + further))
        gains = (a * (1 + wrong)) * laws[:, columns] - (grown * (1 - wrong)) * after[:, columns]
        if gains.shape != laws.shape:
            ends = np.maximum(gains[:, 0], gains[:, -1])
            if not np.all(gains.max(axis=1) * (1 - 1e-9) - 2 * slack > ends):
                columns = slice(0, laws.shape[1])
                gains = (a * (1 + wrong)) * laws - (grown * (1 - wrong)) * after
        row, column = divmod(int(np.argmax(gains)), gains.shape[1])
        f, tail = laws[row, columns.start + column], after[row, columns.start + column]
        high[i] = max(float(gains[row, column]), 0.0) * (1 + 1e-12) + slack
        least = ((a * (1 - wrong)) * f - (grown * (1 + wrong)) * tail) * (1 - 1e-12)
        low[i] = max(float(least) - slack, 0.0)
    return low, high


def _beyond(eps: float, others: int, first: int, at: Array) -> Array:
    """Return bounds of delta at epsilons for all numbers m of zeros from ``first`` to ``others``.

    Infinite where none is found. With ``w = tau + i theta`` let ``A(w) = r + (1-r) e^w`` and ``B(w)
    = 1-r + r e^w`` be the moments of a report of a one and of a zero, ``n = others``, and ``W(w) =
    a e^w - (t-1) / (1 - e^-w)`` with a and t of `_of_law`. What the test of all counts from s on
    gains, summed over s with the weights ``e^{ws}``, is ``A^(n-m) B^m W``. So by a sum over K
    angles, for every tau > 0, and exactly,

    ``sum_l G_m(s + l K) e^{tau l K} = (1/K) sum_theta A^n e^{-w u} e^{m E} W =: Phi(m, u)``,

    where ``E = log(B / A) + c w``, and ``u = s + c m``. Here c is minus the slope of ``log(B / A)``
    at tau, so that E hardly turns, and Phi is a smooth function of real m and u: the lattice of the
    counts is left behind. Terms of l < 0 are -(t-1) but for next to nothing: a constant. Those of
    l > 0 are above ``-(t-1) P(S_m >= s + l K)``, which Bernstein's bound takes care of.

    For m in a stretch about m', and u near u', every term of the sum of Phi or of its derivatives
    is that at (m', u') times ``e^{(m-m')E(tau)} e^{-(u-u') tau}``, positive and the same for all,
    times what is within ``e^{|m-m'| |E - E(tau)| + |u-u'| |theta|} - 1`` of 1. That gives the
    signs of the following, if they are clear at (m', u').

    - ``e^{tau (u - u')} dPhi/du`` falls in u within ``2 + h`` of u', and is positive at ``u' - h``,
      negative at ``u' + h``. So Phi rises, up to its one maximum there, and falls. As laws of S_m
      are log-concave, so does G in s: if the best s were not among those within ``2 + h``, two
      neighbours in ``[u' + h, u' + h + 2]`` would rise, or in its mirror image. So G is at most the
      maximum D(m) of Phi there.
    - ``dPhi/dm`` is negative where the maximum may be, and with it D' (the maximum's own move has
      no weight). Where its sign is not clear, its bound is integrated.

    Then no m beyond the first has a larger delta than D(first). For epsilons next to 0 D is flat,
    and what is integrated is about ``10 / (n r (1-r))`` of it.
    """
    result = np.full(len(at), np.inf)
    # a smaller r tells more: 1 - q is exact
    q = float(np.nextafter(1 - (1 - 8 * UNIT) * math.exp(-eps) / (1 + math.exp(-eps)), 1.0))
    r = 1 - q
    deviation = math.sqrt(others * q * r)
    if deviation < _FEWEST_SPREAD or others - first < _STRETCHES:
        return result
    for start in range(0, len(at), 32):
        some = slice(start, start + 32)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not known
            result[some] = _stretches(eps, (others, first), (q, r, deviation), at[some])
    return result


def _stretches(
    eps: float, numbers: tuple[int, int], law: tuple[float, float, float], at: Array
) -> Array:
    """Return the bounds of `_beyond` for some epsilons: arrays are by epsilon, stretch, angle."""
    (n, first), (q, r, deviation) = numbers, law
    period = math.ceil(_PERIOD * deviation)
    # a test gains the more, the larger a and the smaller t - 1
    a = -np.expm1(at - eps) * q * (1 + 128 * UNIT * (1 + 1 / eps) * np.exp(at))
    a = a[:, None, None]
    grown = (np.expm1(at) * (1 - 8 * UNIT))[:, None, None]
    # the ratio f(s-1) / f(s) of the best s is about e^tau
    tau = np.maximum(np.log1p(grown / a), 0.01 / deviation)
    # angles beyond count for e^-70
    farthest = math.sqrt(35 * math.exp(float(tau.max()))) / deviation
    most = period // 2
    if farthest < 1:
        most = min(most, math.ceil(2 * math.asin(farthest) / (2 * math.pi / period)))
    theta = (2 * math.pi / period * np.arange(most + 1))[None, None, :]
    share = np.full(most + 1, 2.0 / period)  # an angle and its negative
    share[0] = 1.0 / period
    if 2 * most == period:
        share[-1] = 1.0 / period
    w = tau + 1j * theta
    moved = expm1(w)
    one, one_off = log1p(q * moved, 34 * UNIT * np.abs(q * moved))
    zero, zero_off = log1p(r * moved, 34 * UNIT * np.abs(r * moved))
    rise = np.exp(tau)
    slope_one, slope_zero = (x * rise / (1 + x * (rise - 1)) for x in (q, r))
    c = slope_one - slope_zero
    e = zero - one + c * w
    e_off = one_off + zero_off + 8 * UNIT * (np.abs(zero) + np.abs(one) + np.abs(c * w))
    level = e[:, :, :1].real
    bend = np.abs(e - level) + 2 * e_off
    gain, paid = a * (1 + moved), grown / expm1(-w)
    weight = share * (gain + paid)
    size = np.abs(gain) + np.abs(paid)  # of which W may be a small difference

    edges = np.linspace(first, n, _STRETCHES + 1)
    half = np.append(0.0, np.full(_STRETCHES, (n - first) / _STRETCHES / 2 * (1 + 1e-12)))
    middle = np.append(first, (edges[1:] + edges[:-1]) / 2)[None, :, None]
    half = half[None, :, None]
    u = np.broadcast_to(n * slope_one, (len(at), _STRETCHES + 1, 1)).copy()

    def terms() -> tuple[Array, Array]:
        exponent = n * one + middle * e - u * w
        scale = exponent[:, :, :1].real
        return weight * np.exp(exponent - scale), scale

    for _ in range(4):  # to where dPhi/du is about 0
        term, _ = terms()
        ascent, bending = -(term * w).real.sum(axis=2), -(term * (theta * theta)).real.sum(axis=2)
        bending -= (term * tau * theta).imag.sum(axis=2)
        step = ascent / np.where(bending == 0, 1.0, bending)
        u -= np.clip(step, -5 - deviation / 9, 5 + deviation / 9)[:, :, None]
    term, scale = terms()
    # the rounding of each term: of its exponent, and of its weight
    exponents = (
        n * one_off
        + middle * e_off
        + 8 * UNIT * (n * np.abs(one) + middle * np.abs(e) + np.abs(u * w))
    )
    modulus = share * size * np.exp((n * one + middle * e - u * w).real - scale)
    noise = modulus * (4 * exponents + 128 * UNIT)
    modulus = np.abs(term)

    def moves(distance: float | Array) -> Array:
        """Return by how much terms may move that far from u', beside their common factor."""
        moved = np.expm1(half * bend + distance * theta) * (1 + 1e-9)
        return np.asarray(modulus * moved + noise, dtype=np.float64)

    def total(x: Array, off: Array) -> tuple[Array, Array]:
        return x.real.sum(axis=2), off.sum(axis=2) * (1 + 1e-9)

    phi, phi_off = total(term, noise)
    # the slope of e^{tau (u - u')} dPhi/du, within 2 + h of u'
    fall, fall_off = total(term * (1j * w * theta), np.abs(w) * theta * moves(2 + _BESIDE))
    turn = np.exp(-1j * _BESIDE * theta)
    after, side_off = total(-term * w * turn, np.abs(w) * moves(0.0))
    before, _ = total(-term * w / turn, noise)
    at_middle, middle_off = total(-term * w, np.abs(w) * noise)
    # how far from u' the maximum may be
    away = np.abs(at_middle) + side_off + middle_off
    away = np.minimum(_BESIDE, away / np.maximum(-fall - fall_off, 1e-300))[:, :, None]
    by_number, number_off = total(term * e, np.abs(e) * moves(away) + 2 * modulus * e_off)
    margin = 1e-10 * (np.abs(w) * modulus).sum(axis=2)
    clear = (fall + fall_off < 0) & (after + side_off < -margin) & (before - side_off > margin)
    mean = n * q
    tau, level, scale, u = tau[:, :, 0], level[:, :, 0], scale[:, :, 0], u[:, :, 0]
    # the maxima of two stretches, at their common end, are one
    near = np.abs(np.diff(u, axis=1, prepend=u[:, :1])) <= 2
    # thresholds not far from the middle, for the terms of other l
    inside = (u >= mean - 4) & (u + 3 + n * (1 - 2 * r - c[:, :, 0]) - mean <= period / 2)
    known = (clear & near & inside).all(axis=1)

    # no scale is much above 1 where u' is found
    known &= np.all(scale <= 10, axis=1)

    # D at the first: Phi at u', and what it may rise to where its slope is 0
    best = phi[:, 0] + phi_off[:, 0]
    slope = np.abs(at_middle[:, 0]) + middle_off[:, 0]
    best += slope * slope / np.abs(fall[:, 0] + fall_off[:, 0]) * np.exp(_BESIDE * tau[:, 0])
    known &= (at < eps / 2) & (tau[:, 0] < 1) & np.all(half[:, :, 0] * np.abs(level) < 20, axis=1)
    reach = np.exp(np.minimum(half[:, :, 0] * np.abs(level) + 3 * tau, 30.0))
    rises = np.maximum(by_number + number_off, 0.0) * 2 * half[:, :, 0] * reach
    grown, tau, heights = grown[:, 0, 0], tau[:, 0], np.exp(np.minimum(scale, 10.0))
    best = best * heights[:, 0] + (rises * heights).sum(axis=1)
    # what sums of few angles leave out: |A|^2 and |B|^2 fall as 1 - 4 v sin^2(theta / 2), with v
    # at least r q e^-tau
    lost = np.zeros(len(at))
    if most < period // 2:
        sine = math.sin(math.pi / period * (most + 1))
        lost = size[:, 0, 0] * (reach * heights).max(axis=1)
        lost *= np.exp(-2 * n * q * r * np.exp(-tau) * sine * sine * (1 - 1e-9))
    # terms of l > 0, by Bernstein's bound, whose exponents fall at least in proportion to l
    ahead = period - 8
    exponent = tau * period - ahead**2 / (2 * deviation**2 + 2 * ahead / 3)
    lost += 3 * grown * np.exp(np.minimum(exponent, 0.0))
    # those of l < 0 are a constant, and at most so much less: P(S_m < s - K / 2) and less
    behind = np.exp(-tau * period - (period / 2) ** 2 / (2 * deviation**2 + period / 3))
    known &= (exponent < -80) & np.isfinite(best)
    known &= np.all(margin * heights > (8 * (lost + 4 * behind))[:, None], axis=1)
    best += grown / np.expm1(np.minimum(tau * period, 700.0)) + lost
    return np.where(known, np.maximum(best, 0.0) * (1 + 1e-11) + 1e-300, np.inf)


def _over_values(eps: float, others: int, at: Array) -> Array:
    """Return bounds of delta at epsilons, for all numbers of ones among the others' values.

    Blocks of numbers are bounded at once (`_of_values`), and the block whose bound is the farthest
    above is cut, as long as that pays.
    """

    def bounded(zeros: int, most: int) -> tuple[float, int, int, Array]:
        """Return a block of numbers of zeros by how much it may be cut, and its bounds."""
        deltas = _of_values(eps, others - most, zeros, most - zeros, at)
        # in epsilons: delta falls the faster, the less it is
        excess = (deltas / worst - 1)[counted] / (1 - np.log(worst[counted]))
        # one number is not cut
        largest = float(excess.max(initial=0.0)) if zeros < most else 0.0
        return -largest, zeros, most, deltas

    worst = _of_values(eps, others, 0, 0, at)
    worst = np.maximum(worst, 1e-300)
    counted = worst > _COUNTED
    if others == 0:
        return worst
    blocks = [bounded(1, others)]
    size = 24 * math.sqrt(max(others * math.exp(-eps), 1.0)) + 500
    for _ in range(int(np.clip(_EFFORT / size, _FEWEST, _VALUES))):
        excess, low, high, _ = blocks[0]
        if excess > -_ENOUGH:
            break
        heapq.heappop(blocks)
        # fewer zeros are worse: they are looked at more closely
        middle = min(max(low, math.isqrt(low * high)), high - 1)
        heapq.heappush(blocks, bounded(low, middle))
        heapq.heappush(blocks, bounded(middle + 1, high))
    return np.asarray(np.max([worst, *(block[3] for block in blocks)], axis=0))


def _of_values(eps: float, ones: int, zeros: int, either: int, at: Array) -> Array:
    """Return bounds of delta at epsilons where so many others have each value, and so many any.

    Those that have any value are bounded in two ways. Each of them by its own blanket: a report is
    a fair coin with probability 2r, all others of them are told, and fewer coins tell more. Or all
    together (`_shared`): but for a probability that is told, their number of ones has the law
    kappa, shifted by what their values are, which is told. By convexity delta is at most that of
    kappa, and the probability times that without them.
    """
    r = math.exp(-eps) / (1 + math.exp(-eps))
    coins = 2 * r * either
    coins = max(0, math.floor((coins - _below(coins, _COUNT_TAIL)) * (1 - 1e-12)))
    fair = _binomial(coins, 0.5, 1.0)[1:] if coins else None
    deltas = _of_law(eps, ones, zeros, fair, at)
    if either >= _TOGETHER and (shared := _shared(eps, either)) is not None:
        kappa, steps, told = shared
        alone = _of_law(eps, ones, zeros, None, at)
        together = _of_law(eps, ones, zeros, (kappa, steps), at) + told * alone
        deltas = np.minimum(deltas, together * (1 + 1e-12))
    return np.minimum(deltas, 1.0)


@remembered(256)
def _shared(eps: float, units: int) -> tuple[Array, int, float] | None:
    """Return a part of the law of ones of ``units`` reports that is in it whatever their values.

    With its rounding in steps, and the rest of the mass. Let m be the units, or one less, and i of
    them ones (another one is told). The characteristic function of their number is
    ``rho^m e^{i theta mean_i} e^{i (m - 2i) beta}``: with ``v = r (1-r)``, ``rho^2 = 1 - 4 v
    sin^2(theta / 2)`` does not depend on i, and ``beta = arg(1-r + r e^{i theta}) - r theta`` has
    the slope ``-v (1-2r) (1 - cos theta) / rho^2``, so that ``|beta| <= v (1-2r) (theta - sin
    theta) / rho^2``, and rises. Half of them ones, the law is symmetric, ``beta`` without weight,
    and its mean ``m / 2``. As the mean of another is within 1/2 of an integer, the law shifted by
    it is nowhere farther from that one than ``(1/pi) int_0^pi rho^m (m |beta| + theta/2)``, by
    ``|cos x - cos y| <= |x - y|``. So much less of the law of halves is in all of them. What is
    left is log-concave: ``(a-e)^2 - (b-e)(c-e)`` is linear in e, and not negative at 0 and at the
    lesser of b and c.
    """
    m = units - units % 2
    r = math.exp(-eps) / (1 + math.exp(-eps))
    v, half = r * (1 - r), math.expm1(eps) / (math.exp(eps) + 1)
    width = 40 / math.sqrt(m * v)
    theta = np.append(np.linspace(0.0, min(width, math.pi), 8000), math.pi)
    less = np.minimum(4 * v * np.sin(theta / 2) ** 2, 1 - 1e-16)
    # rho falls, beta and theta rise: an upper sum. theta - sin theta is at most theta^3 / 6
    falling = np.exp(m / 2 * np.log1p(-less[:-1]))
    beta = v * half * theta[1:] ** 3 / 6 / np.maximum(1 - less[1:], half * half)
    rising = m * beta + theta[1:] / 2
    apart = float((falling * rising) @ np.diff(theta)) / math.pi * (1 + 1e-9)
    _, p, steps = _binomial(m // 2, r, math.exp(-eps))
    halves, off = _convolved(p[::-1], p)
    # a part of it, where what is left is not little beside what is taken away: a relative error
    # of halves is at most eleven times as large of what is left
    used = np.flatnonzero(halves >= 1.1 * apart)
    if not len(used):
        return None
    kappa = halves[used[0] : used[-1] + 1] - apart
    steps = 12 * (2 * steps + len(halves)) + math.ceil(12 * off / apart / UNIT)
    mass = float(kappa.sum()) * (1 - (steps + len(kappa)) * UNIT)
    return kappa, steps, 1 - mass


def _of_law(eps: float, ones: int, zeros: int, more: tuple[Array, int] | None, at: Array) -> Array:
    """Return bounds of delta where so many others have each value, and ``more`` is added to them.

    The law f of the number of ones is log-concave, as a convolution of such (Newton). So
    ``f(s-1) / f(s)`` rises, and the best test takes all counts from some s on. With ``t =
    e^epsilon``, ``a = (1 - r) - t r`` and ``b = t (1 - r) - r``, what it gains is ``sum_{u >= s}
    (a f(u-1) - b f(u))``, which is ``a f(s-1) - (t - 1) sum_{u >= s} f(u)``.
    """
    r = math.exp(-eps) / (1 + math.exp(-eps))
    # of those with a one, the reports that are turned round, from the last to the first
    _, p, steps = _binomial(ones, r, math.exp(-eps))
    _, q, further = _binomial(zeros, r, math.exp(-eps))
    law, off = _convolved(p[::-1], q)
    steps += further
    if more is not None:
        steps += more[1] + 2 * len(law)
        earlier = off * float(more[0].sum())
        law, off = _convolved(law, more[0])
        off = (off + earlier) * (1 + 1e-9)
    size = len(law)
    wrong = (steps + 4 * size + 64 + 8 * eps) * UNIT
    # as t >= 1, the best s is where f falls; some before that cost nothing
    mode = int(np.argmax(law))
    start = max(0, mode - size // 16)
    before = np.append(0.0, law)[start:]
    after = np.append(np.cumsum(law[::-1])[::-1], 0.0)[start:]
    law, mode = law[start:], mode - start
    a, grown = -np.expm1(at - eps) * (1 - r), np.expm1(at)
    # from s to s + 1 what a test gains grows by b f(s) - a f(s-1): it rises up to the s before
    # which f(s-1) / f(s) is below b / a (`first`), and falls from the s on from which it is above
    # (`last`)
    # counts so far out that the transform's rounding shows are not looked at: what they gain is at
    # most a f(s-1)
    seen = mode + int(np.searchsorted(-law[mode:], -100 * off)) if off else len(law)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = before[: seen + 1] / np.append(law[:seen], 0.0)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    least = np.minimum.accumulate(ratio[::-1])[::-1]
    first = np.searchsorted(np.maximum.accumulate(ratio), (a + grown) / a)
    last = np.searchsorted(least, (a + grown) / a)
    best = a * before[first] * (1 + wrong) - grown * after[first] * (1 - wrong)
    # between them, where rounding or transforms blur the ratio, it grows by no more than if all
    # ratios were the least of them
    slope = np.maximum(a + grown - a * np.where(last > first, least[first], np.inf), 0.0)
    best += slope * (after[first] - after[last])
    best = np.maximum(best, a * float(law[seen:].max(initial=0.0)) * (1 + wrong))
    deltas = np.maximum(best, 0.0) + off * (a + (size + 1) * grown)
    # the rounding of ratios, in all that is before; what the counts leave out, at both ends of all
    # three, and that fewer are coins
    return np.asarray(deltas * (1 + 1e-12) + 7 * math.exp(-_COUNT_TAIL), dtype=np.float64)


def _convolved(p: Array, q: Array) -> tuple[Array, float]:
    """Return the convolution of two laws, and how far it is off beside its relative rounding."""
    size = len(p) + len(q) - 1
    if min(len(p), len(q)) <= 512:
        return np.convolve(p, q), 0.0
    # by a transform, whose rounding is below 64 units of the norms
    padded = 1 << size.bit_length()
    law = np.fft.irfft(np.fft.rfft(p, padded) * np.fft.rfft(q, padded), padded)[:size]
    off = 64 * math.log2(padded) * UNIT * float(np.sqrt((p @ p) * (q @ q)))
    return np.maximum(law, 0.0), off


@remembered(64)
def _attained(eps: float, categories: int, reports: int) -> FinitePair:
    """Return the counts' pair where all others have one value; cells of outcomes are one outcome.

    Of more than two answers all others have a third one. Of two, they have the unit's under Q.
    """
    grown = math.expm1(eps)
    if categories == 2:
        ones, q, steps = _binomial(reports, 1 / (grown + 2), math.exp(-eps))
        # (e^eps h + e^-eps (n - h)) / n, as 1 and what is more
        more = (ones * grown + (reports - ones) * math.expm1(-eps)) / reports
        small = np.log1p(np.maximum(more, -0.5))
        ratio = (ones * math.exp(eps) + (reports - ones) * math.exp(-eps)) / reports
        losses = np.where(more > -0.5, small, np.log(ratio))
        return _with_values(_in_cells([(losses, q)], steps, False), eps, reports - 1)
    n, q, steps = _binomial(reports, 2 / (grown + categories), 2 / (grown + categories - 2))
    s = (n + (categories - 2) / (grown + categories - 2) * (reports - n)) / grown
    weights = q * (n / 2 + s)
    weights = weights / weights.sum()
    starts = _starts(weights, _blocks(float(n[len(n) // 2]), 48))
    masses = np.add.reduceat(weights, starts)
    ends = np.append(starts[1:], len(n)) - 1
    laws = []
    for i, j, mass in zip(starts, ends, masses, strict=True):
        low, high = int(n[i]), int(n[j])
        # of a block the most coins, and the largest s / N: that tells less. No coin tells nothing
        if low == 0:
            laws.append((np.zeros(1), np.array([mass])))
        else:
            laws.append(_law(high, float(s[i]) * high / low * (1 + 8 * UNIT), float(mass)))
    steps += 16 * max(len(law[0]) for law in laws)
    return _in_cells(laws, steps, True)


def _binomial(trials: int, chance: float, odds: float) -> tuple[Array, Array, int]:
    """Return counts of a binomial, all but ``e^-70`` at each end, their masses, and the steps."""
    mean = trials * chance
    least = max(0, math.floor((mean - _below(mean, _COUNT_TAIL)) * (1 - 1e-12)))
    most = min(trials, math.ceil(mean + _above(mean, _COUNT_TAIL)) + 1)
    n = np.arange(least, most + 1, dtype=np.float64)
    ratio = (trials - n[:-1]) / n[1:] * odds
    weights = _by_ratios(ratio, int(np.clip(math.floor(mean) - least, 0, len(n) - 1)))
    return n, weights / weights.sum(), 16 * len(n) + 64


def _in_cells(laws: list[Law], steps: int, mirrored: bool) -> FinitePair:
    """Return the outcomes of each cell as one outcome, at their mean ratio under Q.

    If mirrored, the losses are those from 0 on of a symmetric pair.
    """
    losses = np.concatenate([law[0] for law in laws])
    q = np.concatenate([law[1] for law in laws])
    losses, q = losses[q > _LEAST], q[q > _LEAST]
    middle = float(q[losses == 0].sum()) if mirrored else 0.0
    if mirrored:
        losses, q = losses[losses > 0], q[losses > 0]
    width = max(float(np.ptp(losses)) / _MERGED, 1e-300)
    _, cell = np.unique(np.rint(losses / width), return_inverse=True)
    under_q = np.bincount(cell, q).astype(np.float64)
    under_p = np.bincount(cell, q * np.exp(losses)).astype(np.float64)
    at = np.log(under_p / under_q)
    # cells that rounding makes one, or puts before another, are left out: that only lowers
    earlier = np.append(-np.inf, np.maximum.accumulate(at)[:-1])
    rising = (at > earlier) & ((at > 0) | (not mirrored))
    at, p, q = at[rising], under_p[rising], under_q[rising]
    if mirrored:
        at = np.concatenate([-at[::-1], [0.0], at])
        p, q = np.concatenate([q[::-1], [middle], p]), np.concatenate([p[::-1], [middle], q])
    # e^loss is off by units of the loss
    largest = 4 * float(np.abs(losses).max())
    error = (3 * steps + 2 * int(np.bincount(cell).max()) + 64 + largest) * UNIT
    return FinitePair(at, p, q, error)
