"""All thresholds of a score at once: a band of the trade-off curve and of the privacy profile.

Nouns. P and Q are the laws of the first side and of the second. A *corner* is an event "the score
is at least t" (who sees it guesses "first") or "the score is below t" ("second"): it has a lower
bound of the probability that the guess is made where it is right, and an upper bound of the
probability that it is made where it is wrong.

*Validity.* The score and the K thresholds ``t_1 < ... < t_K`` were fixed before the draws, of which
m are of P and n of Q; m may be random, if it does not depend on the scores. So the number of draws
of P at or above t_k is ``Bin(m, P(s >= t_k))``, and Clopper and Pearson's (1934) one-sided bound of
it is wrong with probability at most ``a = share / (2K)``; the same for Q. All 2K bounds hold
together with probability at least ``1 - share``, by the union bound. Then, and at once,

* both guesses at each threshold: ``P(s < t) <= 1 - low`` and ``Q(s < t) >= 1 - high`` are the same
  2K statements, read from the other side;
* all thresholds t, also those between: ``P(s >= t) >= P(s >= t_k+1)`` and
  ``Q(s >= t) <= Q(s >= t_k)`` for ``t_k <= t <= t_k+1``;
* all epsilon: the hockey-stick divergence is a supremum over events, so it is at least
  ``right - e^epsilon wrong`` of each corner.

*Why these thresholds.* Own measurements, of Laplace and Gaussian laws, lower bounds of delta: 32
thresholds by Bonferroni, half of them spread evenly and half geometrically into both tails, were
within 0.003 of the equal-levels band over all order statistics (Berk and Jones 1979), whose exact
level takes a recursion quadratic in the draws; 8 lose up to 0.03 in the middle, 256 up to 0.007.
Dvoretzky, Kiefer and Wolfowitz's inequality with Massart's (1990) constant is up to 0.007 better
in the middle, but its width does not shrink in the tails, where an event decides at larger epsilon:
there it shows 0 where these show more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from attrs import frozen

from accountants.confidence import lower, upper
from accountants.rounding import Array

THRESHOLDS = 32

_SLACK = 1e-9
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
        return min(1.0, max(0.0, value * (1 - _SLACK)))

    def epsilon(self, delta: float) -> float:
        """Return a lower bound of epsilon at ``delta``, at least 0."""
        if self.right <= delta:
            return 0.0
        value = (self.right - delta) / self.wrong
        return max(0.0, math.log(value) * (1 - _SLACK)) if value > 1 else 0.0


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
