"""Exact confidence bounds: from guesses at one threshold, and for all thresholds at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from attrs import frozen
from scipy import special

from accountants.confidence import lower, odds, upper
from accountants.numerics import Array

# -----------------------------------------------------------------------------
# Exact confidence bounds from guesses: how much better than a claim allows they are.
#
# Nouns. A *try* is one run of a side that a fair coin chose. The auditor guesses the side, or
# abstains. Tries are independent; a try is guessed right with probability c, wrong with w. Let the
# outcomes where "first" is guessed be E1, and E0 those of "second"; first and second have laws P,
# Q.
#
# *Claims in terms of c and w.* ``c = (P(E1) + Q(E0)) / 2`` and ``w = (Q(E1) + P(E0)) / 2``. If
# ``P(S) <= e^eps Q(S) + delta`` and the same with P and Q exchanged for all events S, then
# ``c <= e^eps w + d``, d = delta; or d = delta / 2 where only one of the two guesses is ever made.
# So ``eps >= log((c - d) / w)``: both directions speak through one event, and need no union bound.
#
# *Two ways to bound it*, from R right and W wrong guesses in T tries:
#
# * apart: ``R ~ Bin(T, c)``, ``W ~ Bin(T, w)``, half of the error for each bound;
# * ratio: given that a guess was made it is right with ``r = c / (c + w)``, so ``R ~ Bin(R + W,
# r)``
#   exactly, and ``(c - d) / w = (1 - d / c) r / (1 - r)``, which grows in c and in r. A tenth of
#   the
#   error is for c; where d = 0 nothing of it is.
#
# *Gaussian DP.* If the laws are mu-GDP then ``P(S) <= G(Q(S))`` with ``G(x) = Phi(Phi^-1(x) + mu)``
# for all S, both ways, G concave: ``c <= G(w)`` by Jensen with both guesses, ``2c <= G(2w)`` with
# one. Hence ``mu >= Phi^-1(kc) - Phi^-1(kw)``, k = 1 or 2 (Dong, Roth and Su 2022, section 2.2, for
# the trade-off; the averaging is our own proof). Where no try abstains, w = 1 - c: one bound does.
#
# All bounds of probabilities are Clopper and Pearson's (1934).


Way = Literal["apart", "ratio"]

_SLACK = 1e-9
"""Relative rounding error granted to the quantiles, outward; theirs is about 1e-12."""

_FOR_C = 0.1
"""The part of the error that bounds c in the ratio's way."""


@frozen
class Guesses:
    """Right and wrong guesses in so many tries; ``sides`` is how many sides were ever guessed."""

    right: int
    wrong: int
    tries: int
    sides: int = 2

    def factor(self) -> float:
        """Return k: 1 for both sides, 2 for one."""
        return 2.0 / self.sides


def epsilon(seen: Guesses, delta: float, share: float, way: Way) -> float:
    """Return a lower bound of epsilon at ``delta``, at least 0."""
    least = delta / seen.factor()
    if way == "ratio":
        part = _FOR_C if least > 0 else 0.0
        most = lower(seen.right, seen.tries, part * share) if part else math.inf
        value = odds(seen.right, seen.right + seen.wrong, (1 - part) * share)
        value *= max(0.0, 1 - least / most) if most > 0 else 0.0
    else:
        excess = lower(seen.right, seen.tries, share / 2) - least
        value = max(0.0, excess) / upper(seen.wrong, seen.tries, share / 2)
    return max(0.0, math.log(value) * (1 - _SLACK)) if value > 1 else 0.0


def delta(seen: Guesses, epsilon: float, share: float, way: Way) -> float:
    """Return a lower bound of delta at ``epsilon``, at least 0."""
    grows = math.exp(min(epsilon, 700.0))
    if way == "ratio":
        ratio = odds(seen.right, seen.right + seen.wrong, (1 - _FOR_C) * share)
        most = lower(seen.right, seen.tries, _FOR_C * share)
        value = most * (1 - grows / ratio) if ratio > 0 else 0.0
    else:
        value = lower(seen.right, seen.tries, share / 2)
        value -= grows * upper(seen.wrong, seen.tries, share / 2)
    return min(1.0, max(0.0, seen.factor() * value * (1 - _SLACK)))


def mu(seen: Guesses, share: float) -> float:
    """Return a lower bound of the least mu for which the sides are mu-GDP, at least 0."""
    k = seen.factor()
    low = min(1.0, k * lower(seen.right, seen.tries, share / 2))
    high = min(1.0, k * upper(seen.wrong, seen.tries, share / 2))
    return _mu(low, high)


def mu_of_all(right: int, tries: int, share: float) -> float:
    """Return `mu` for a rule, fixed before the tries, that guesses at every one of them."""
    low = lower(right, tries, share)
    return _mu(low, 1 - low)


def _mu(low: float, high: float) -> float:
    if low <= high:
        return 0.0
    return max(0.0, float(special.ndtri(low) - special.ndtri(high)) * (1 - _SLACK))


def detectable(seen: Guesses, claimed: float, delta: float, share: float, way: Way) -> float:
    """Return the least epsilon at ``delta`` that would have been shown to exceed ``claimed``.

    With probability about 0.9, by an event on which as many guesses are made: then
    ``c + w`` is what was seen, ``c - d = e^eps w``. Infinite where there is none up to 100.
    """
    made, least = seen.right + seen.wrong, delta / seen.factor()
    rate = made / seen.tries
    if made == 0 or rate <= least:
        return math.inf

    def found(value: float) -> bool:
        wrong = (rate - least) / (1 + math.exp(value))
        bad = _quantile(0.9, made, wrong / rate)
        again = Guesses(made - bad, bad, seen.tries, seen.sides)
        return epsilon(again, delta, share, way) > claimed

    low, high = claimed, 100.0
    if low >= high or not found(high):
        return math.inf
    while high - low > 1e-4 * (1 + low):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _quantile(level: float, tries: int, chance: float) -> int:
    """Return the least k with ``P(Bin(tries, chance) <= k) >= level``."""
    low, high = -1, tries
    while high - low > 1:
        k = (low + high) // 2
        reached = special.betainc(tries - k, k + 1, 1 - chance) >= level
        low, high = (low, k) if reached else (k, high)
    return high


def foreseen(
    right: np.ndarray, wrong: np.ndarray, tries: float, least: np.ndarray | float, normal: float
) -> np.ndarray:
    """Return about what `epsilon` will be, for arrays of rates c and w; -inf where nothing.

    Normal approximations, Wilson and Hilferty's for few wrong guesses. For choosing an event only.
    """
    many = wrong * tries + 1
    most = many * (1 - 1 / (9 * many) + normal / (3 * np.sqrt(many))) ** 3
    excess = right - least
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.log(most / np.maximum(wrong * tries, 0.5)) ** 2
        spread = spread + normal**2 * right / (tries * excess**2)
        value = np.log(excess * tries / np.maximum(wrong * tries, 0.5)) - np.sqrt(spread)
    return np.where((excess > 0) & (right * tries >= 1), value, -np.inf)


# -----------------------------------------------------------------------------
# All thresholds of a score at once: a band of the trade-off curve and of the privacy profile.
#
# Nouns. P and Q are the laws of the first side and of the second. A *corner* is an event "the score
# is at least t" (who sees it guesses "first") or "the score is below t" ("second"): it has a lower
# bound of the probability that the guess is made where it is right, and an upper bound of the
# probability that it is made where it is wrong.
#
# *Validity.* The score and the K thresholds ``t_1 < ... < t_K`` were fixed before the draws, of
# which
# m are of P and n of Q; m may be random, if it does not depend on the scores. So the number of
# draws
# of P at or above t_k is ``Bin(m, P(s >= t_k))``, and Clopper and Pearson's (1934) one-sided bound
# of
# it is wrong with probability at most ``a = share / (2K)``; the same for Q. All 2K bounds hold
# together with probability at least ``1 - share``, by the union bound. Then, and at once,
#
# * both guesses at each threshold: ``P(s < t) <= 1 - low`` and ``Q(s < t) >= 1 - high`` are the
# same
#   2K statements, read from the other side;
# * all thresholds t, also those between: ``P(s >= t) >= P(s >= t_k+1)`` and
#   ``Q(s >= t) <= Q(s >= t_k)`` for ``t_k <= t <= t_k+1``;
# * all epsilon: the hockey-stick divergence is a supremum over events, so it is at least
#   ``right - e^epsilon wrong`` of each corner.
#
# *Why these thresholds.* Own measurements, of Laplace and Gaussian laws, lower bounds of delta: 32
# thresholds by Bonferroni, half of them spread evenly and half geometrically into both tails, were
# within 0.003 of the equal-levels band over all order statistics (Berk and Jones 1979), whose exact
# level takes a recursion quadratic in the draws; 8 lose up to 0.03 in the middle, 256 up to 0.007.
# Dvoretzky, Kiefer and Wolfowitz's inequality with Massart's (1990) constant is up to 0.007 better
# in the middle, but its width does not shrink in the tails, where an event decides at larger
# epsilon:
# there it shows 0 where these show more.


THRESHOLDS = 32

_BAND_SLACK = 1e-9
"""Relative rounding error granted, outward; that of the lines below is some 1e-15."""


@frozen
class Corner:
    """A threshold on the score, as an event by which to guess.

    Parameters
    ----------
    guess
        "first" where the score is at least ``threshold``, "second" where it is below.
    threshold
        Of the score.
    right, wrong
        A lower bound of the probability of the event where the guess is right, and an upper bound
        of its probability where it is wrong. Those of all corners hold together.
    """

    guess: Literal["first", "second"]
    threshold: float
    right: float
    wrong: float

    def delta(self, epsilon: float) -> float:
        """Return a lower bound of delta at ``epsilon``, at least 0."""
        value = self.right - math.exp(min(epsilon, 700.0)) * self.wrong
        return min(1.0, max(0.0, value * (1 - _BAND_SLACK)))

    def epsilon(self, delta: float) -> float:
        """Return a lower bound of epsilon at ``delta``, at least 0."""
        if self.right <= delta:
            return 0.0
        value = (self.right - delta) / self.wrong
        return max(0.0, math.log(value) * (1 - _BAND_SLACK)) if value > 1 else 0.0


@frozen
class Band:
    """How many fresh draws of both sides score at least each of some thresholds.

    Parameters
    ----------
    thresholds
        Of a score that was fixed before the draws; ascending, shape (K,).
    first, second
        How many draws of each side score at least so much, shape (K,).
    draws
        How many there are of the first side, and of the second.
    share
        The probability with which any of the band's bounds may be wrong.
    """

    thresholds: tuple[float, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    draws: tuple[int, int]
    share: float

    @property
    def level(self) -> float:
        """The part of ``share`` of each single bound."""
        return self.share / (2 * max(1, len(self.thresholds)))

    def corners(self) -> tuple[Corner, ...]:
        """Return two corners for each threshold: those of one guess, then those of the other."""
        return (*self._guesses(0), *self._guesses(1))

    def _guesses(self, side: int) -> Iterator[Corner]:
        (m, n), a = self.draws, self.level
        for t, one, two in zip(self.thresholds, self.first, self.second, strict=True):
            if side == 0:
                yield Corner("first", t, lower(one, m, a), upper(two, n, a))
            else:
                yield Corner("second", t, lower(n - two, n, a), upper(m - one, m, a))

    def guesses(self, corner: Corner) -> tuple[int, int]:
        """Return how many guesses by a corner were right, and wrong."""
        k = self.thresholds.index(corner.threshold)
        if corner.guess == "first":
            return self.first[k], self.second[k]
        return self.draws[1] - self.second[k], self.draws[0] - self.first[k]


def marks(cuts: Array, above: Array, draws: int, more: tuple[float, ...] = ()) -> Array:
    """Return the thresholds of a band.

    Parameters
    ----------
    cuts, above
        Candidates, ascending, and which part of some learning draws of both sides scores at least
        so much.
    draws
        How many learning draws there are.
    more
        Others to take, where they are finite.
    """
    tails = THRESHOLDS // 4
    even = np.linspace(0, 1, THRESHOLDS - 2 * tails + 2)[1:-1]
    tail = np.geomspace(min(3 / draws, even[0] / 2), even[0], tails, endpoint=False)
    wanted = np.concatenate([even, tail, 1 - tail])
    places = np.searchsorted(-above, -wanted)
    found = cuts[np.unique(places[places < len(cuts)])]
    extra = [each for each in more if math.isfinite(each)]
    chosen: Array = np.unique(np.concatenate([found, np.asarray(extra, dtype=np.float64)]))
    return chosen


def counted(scores: Array, thresholds: Array) -> np.ndarray:
    """Return how many scores are at or above each threshold; those are ascending."""
    places = np.searchsorted(thresholds, scores, side="right")
    cells = np.bincount(places, minlength=len(thresholds) + 1)
    return np.cumsum(cells[::-1])[::-1][1:]
