"""Exact lower confidence bounds on epsilon, delta and mu, from guesses by an auditor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from attrs import frozen
from scipy import special

from accountants.confidence import lower, odds, upper
from accountants.numerics import Array

# -----------------------------------------------------------------------------
# Lower bounds from guesses at one event.
#
# The definitions of all functions of this part. A *try* is one run of the mechanism on one of two
# neighbouring data sets, chosen by a fair random bit. The auditor guesses which of the two it was,
# or abstains. Tries are independent; a try is guessed right with probability c and wrong with
# probability w. "first" is guessed on the event E1 and "second" on the event E0, disjoint from it;
# the outcomes of the first data set have law P, those of the second have law Q.
#
# *(epsilon, delta)-DP in terms of c and w.* ``c = (P(E1) + Q(E0)) / 2`` and
# ``w = (Q(E1) + P(E0)) / 2``. If ``P(S) <= e^eps Q(S) + delta`` and the same with P and Q exchanged
# for all events S, then ``c <= e^eps w + d``, where d = delta, or d = delta / 2 where only one of
# the two guesses is ever made. So ``eps >= log((c - d) / w)``: one event speaks for both
# directions, and no union bound over the directions is needed.
#
# *Two ways to bound it* from R right and W wrong guesses in T tries, with error probability a
# (``share``):
#
# * "apart": ``R ~ Bin(T, c)`` and ``W ~ Bin(T, w)``, a / 2 for each bound (union bound);
# * "ratio": given that a guess was made, it is right with ``r = c / (c + w)``, so that
#   ``R ~ Bin(R + W, r)`` exactly, and ``(c - d) / w = (1 - d / c) r / (1 - r)``, which grows in c
#   and in r. A tenth of a is for the bound of c; where d = 0 none is needed.
#
# *Gaussian DP.* If the two laws are mu-GDP then ``P(S) <= G(Q(S))`` with
# ``G(x) = Phi(Phi^-1(x) + mu)`` for all S, in both directions, and G is concave: ``c <= G(w)`` by
# Jensen's inequality. Hence ``mu >= Phi^-1(c) - Phi^-1(w)`` (Dong, Roth and Su 2022, section 2.2,
# for the trade-off; the averaging is our own proof). Where no try abstains, w = 1 - c: one bound
# suffices.
#
# All bounds of probabilities are those of Clopper and Pearson (1934), `accountants.confidence`.


Way = Literal["apart", "ratio"]

_SLACK = 1e-9
"""Relative rounding error granted to the quantiles, outward; theirs is about 1e-12."""

_FOR_C = 0.1
"""The part of the error probability that is spent on the bound of c in the way "ratio"."""


@frozen
class Guesses:
    """How many guesses were right and wrong.

    Parameters
    ----------
    right, wrong, tries
        R, W and T; on the other tries no guess was made.
    directions
        2 where both guesses were possible, 1 where only one of "first" and "second" was.
    """

    right: int
    wrong: int
    tries: int
    directions: int = 2

    def factor(self) -> float:
        """Return k: 1 where both guesses were possible, 2 where only one was."""
        return 2.0 / self.directions


def epsilon(guesses: Guesses, delta: float, share: float, way: Way) -> float:
    """Return a lower bound of epsilon at ``delta``, at least 0.

    Parameters
    ----------
    guesses
        What was counted.
    delta
        Of the tested point of the claim.
    share
        The probability with which the bound may be wrong.
    way
        "apart" or "ratio"; fixed before the tries.

    References
    ----------
    Clopper and Pearson 1934; the ratio's law is derived above.
    """
    slack = delta / guesses.factor()  # d: delta, or half of it where one guess alone is possible
    if way == "ratio":
        part_for_c = _FOR_C if slack > 0 else 0.0
        c_lower = (
            lower(guesses.right, guesses.tries, part_for_c * share) if part_for_c else math.inf
        )
        # P(R >= right) given R + W: a lower bound of r / (1 - r)
        ratio = odds(guesses.right, guesses.right + guesses.wrong, (1 - part_for_c) * share)
        # (1 - d / c) r / (1 - r) grows in c: the lower bound of c makes it smaller, as it must
        ratio *= max(0.0, 1 - slack / c_lower) if c_lower > 0 else 0.0
    else:
        # (c - d) / w is bounded by a lower c and an upper w, half of the error for each
        excess = lower(guesses.right, guesses.tries, share / 2) - slack
        ratio = max(0.0, excess) / upper(guesses.wrong, guesses.tries, share / 2)
    # a lower bound must not be rounded up: the slack is above the quantiles' own error
    return max(0.0, math.log(ratio) * (1 - _SLACK)) if ratio > 1 else 0.0


def delta(guesses: Guesses, epsilon: float, share: float, way: Way) -> float:
    """Return a lower bound of delta at ``epsilon``, at least 0."""
    factor = math.exp(min(epsilon, 700.0))  # e^epsilon, without overflow
    if way == "ratio":
        odds_lower = odds(guesses.right, guesses.right + guesses.wrong, (1 - _FOR_C) * share)
        c_lower = lower(guesses.right, guesses.tries, _FOR_C * share)
        # c - e^eps w = c (1 - e^eps (1 - r) / r), which grows in c where it is positive, and in r
        value = c_lower * (1 - factor / odds_lower) if odds_lower > 0 else 0.0
    else:
        value = lower(guesses.right, guesses.tries, share / 2)
        # c - e^eps w, from a lower c and an upper w
        value -= factor * upper(guesses.wrong, guesses.tries, share / 2)
    return min(1.0, max(0.0, guesses.factor() * value * (1 - _SLACK)))


def mu_of_all(right: int, tries: int, share: float) -> float:
    """Return a lower bound of the least mu for which the two laws are mu-GDP, at least 0.

    By a rule, fixed before the tries, that guesses at every one of them: ``right`` of its guesses
    are right.

    References
    ----------
    Dong, Roth and Su 2022, Section 2.2 (the Gaussian trade-off); Jensen's inequality, see above.
    """
    # no try abstains, so w = 1 - c and one bound serves for both
    c_lower = lower(right, tries, share)
    # Phi^-1 is increasing: where c is at most 1/2 no mu above 0 is shown
    if c_lower <= 1 - c_lower:
        return 0.0
    difference = float(special.ndtri(c_lower) - special.ndtri(1 - c_lower))
    return max(0.0, difference * (1 - _SLACK))


def detectable_epsilon(
    guesses: Guesses, claimed: float, delta: float, share: float, way: Way
) -> float:
    """Return the least epsilon at ``delta`` that would have been shown to exceed ``claimed``.

    With probability about 0.9, by an event on which as many guesses are made: ``c + w`` is then the
    observed rate, and ``c - d = e^eps w``. Infinite where no epsilon up to 100 would be shown. It
    measures the audit's power, and is not a bound.
    """
    guess_count, slack = guesses.right + guesses.wrong, delta / guesses.factor()
    rate = guess_count / guesses.tries
    if guess_count == 0 or rate <= slack:
        return math.inf

    def exceeds_claim(value: float) -> bool:
        # from c + w = rate and c - d = e^value w
        wrong = (rate - slack) / (1 + math.exp(value))
        wrong_count = _quantile(0.9, guess_count, wrong / rate)
        simulated = Guesses(
            guess_count - wrong_count, wrong_count, guesses.tries, guesses.directions
        )
        return epsilon(simulated, delta, share, way) > claimed

    return least_above(exceeds_claim, claimed, 100.0)


def least_above(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number above ``low`` for which ``holds``, to 1e-4 of it, by bisection.

    ``holds`` must be False below some number and True above it. Infinite where that is not below
    ``high``.
    """
    if low >= high or not holds(high):
        return math.inf
    # holds(high) throughout, so what is returned was tried
    while high - low > 1e-4 * (1 + low):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _quantile(level: float, tries: int, probability: float) -> int:
    """Return the least k with ``P(Bin(tries, probability) <= k) >= level``."""
    low, high = -1, tries
    # by bisection: P(Bin <= low) < level <= P(Bin <= high)
    while high - low > 1:
        k = (low + high) // 2
        # P(Bin(n, p) <= k) = I_{1-p}(n - k, k + 1), the regularised incomplete beta function
        enough = special.betainc(tries - k, k + 1, 1 - probability) >= level
        low, high = (low, k) if enough else (k, high)
    return high


def predicted_epsilon(
    right: np.ndarray, wrong: np.ndarray, tries: float, slack: np.ndarray | float, normal: float
) -> np.ndarray:
    """Return approximately what `epsilon` will be, for arrays of rates c and w; -inf where nothing.

    By normal approximations, that of Wilson and Hilferty (1931) where wrong guesses are few. It
    only chooses the event that the test draws use, so an error of it costs power, never validity.
    """
    wrong_count = wrong * tries + 1
    # Wilson and Hilferty: an upper bound of a Poisson mean from a count, by a cubed normal quantile
    wrong_upper = (
        wrong_count * (1 - 1 / (9 * wrong_count) + normal / (3 * np.sqrt(wrong_count))) ** 3
    )
    excess = right - slack
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.log(wrong_upper / np.maximum(wrong * tries, 0.5)) ** 2
        spread = spread + normal**2 * right / (tries * excess**2)
        value = np.log(excess * tries / np.maximum(wrong * tries, 0.5)) - np.sqrt(spread)
    return np.where((excess > 0) & (right * tries >= 1), value, -np.inf)


# -----------------------------------------------------------------------------
# Lower bounds from all thresholds of a score at once: a band of the trade-off curve.
#
# P and Q are the laws of the first and of the second data set's scores. A *corner* is an event "the
# score is at least t" (on which "first" is guessed) or "the score is below t" ("second"), with a
# lower bound of its probability where the guess is right, and an upper bound of its probability
# where the guess is wrong.
#
# *Validity.* The score and the K thresholds ``t_1 < ... < t_K`` were fixed before the draws, of
# which m are of P and n of Q; m may be random, if it does not depend on the scores. So the number
# of draws of P at or above t_k is ``Bin(m, P(s >= t_k))``, and Clopper and Pearson's (1934)
# one-sided bound of it is wrong with probability at most ``a = share / (2K)``; the same for Q. All
# 2K bounds hold together with probability at least ``1 - share``, by the union bound. It then holds
# at once
#
# * for both guesses at each threshold: ``P(s < t) <= 1 - low`` and ``Q(s < t) >= 1 - high`` are the
#   same 2K statements about the complements;
# * for all thresholds t, also those between: ``P(s >= t) >= P(s >= t_k+1)`` and
#   ``Q(s >= t) <= Q(s >= t_k)`` for ``t_k <= t <= t_k+1``;
# * for all epsilon: the hockey-stick divergence is a supremum over events, so it is at least
#   ``right - e^epsilon wrong`` of each corner.
#
# *Why these thresholds.* Own measurements, of Laplace and Gaussian laws, lower bounds of delta: 32
# thresholds by Bonferroni, half of them spread evenly and half geometrically into both tails, were
# within 0.003 of the equal-levels band over all order statistics (Berk and Jones 1979), whose exact
# level takes a recursion quadratic in the draws; 8 lose up to 0.03 in the middle, 256 up to 0.007.
# Dvoretzky, Kiefer and Wolfowitz's inequality with Massart's (1990) constant is up to 0.007 better
# in the middle, but its width does not shrink in the tails, where an event decides at larger
# epsilon: there it shows 0 where these show more.


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
        # one event of the supremum that the hockey-stick divergence is
        value = self.right - math.exp(min(epsilon, 700.0)) * self.wrong
        return min(1.0, max(0.0, value * (1 - _BAND_SLACK)))

    def epsilon(self, delta: float) -> float:
        """Return a lower bound of epsilon at ``delta``, at least 0."""
        # (right - delta) / wrong is then at most 0, so the event shows nothing
        if self.right <= delta:
            return 0.0
        value = (self.right - delta) / self.wrong
        return max(0.0, math.log(value) * (1 - _BAND_SLACK)) if value > 1 else 0.0


@frozen
class Band:
    """How many test draws of both sides score at least each of some thresholds.

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
        """The error probability of each single bound: ``share`` over 2K (union bound)."""
        return self.share / (2 * max(1, len(self.thresholds)))

    def corners(self) -> tuple[Corner, ...]:
        """Return two corners for each threshold: those of "first", then those of "second"."""
        (m, n), level = self.draws, self.level
        counts = list(zip(self.thresholds, self.first, self.second, strict=True))
        first = [Corner("first", t, lower(a, m, level), upper(b, n, level)) for t, a, b in counts]
        # the complements of the same counts: no further statement enters the union bound
        second = [
            Corner("second", t, lower(n - b, n, level), upper(m - a, m, level))
            for t, a, b in counts
        ]
        return (*first, *second)

    def guesses(self, corner: Corner) -> tuple[int, int]:
        """Return how many guesses by a corner were right, and wrong."""
        k = self.thresholds.index(corner.threshold)
        if corner.guess == "first":
            return self.first[k], self.second[k]
        return self.draws[1] - self.second[k], self.draws[0] - self.first[k]


def choose_thresholds(
    cuts: Array, above: Array, draws: int, extra: tuple[float, ...] = ()
) -> Array:
    """Return the thresholds of a band, chosen on the learning draws alone.

    Parameters
    ----------
    cuts, above
        Candidates, ascending, and the fraction of the learning draws of both data sets whose score
        is at least that much.
    draws
        How many learning draws there are.
    extra
        Others to take, where they are finite.
    """
    # half of the ranks evenly, a quarter geometrically into each tail
    tails = THRESHOLDS // 4
    even = np.linspace(0, 1, THRESHOLDS - 2 * tails + 2)[1:-1]
    tail = np.geomspace(min(3 / draws, even[0] / 2), even[0], tails, endpoint=False)
    ranks = np.concatenate([even, tail, 1 - tail])
    # the fraction above falls as cuts ascend, so both are negated for the search
    positions = np.searchsorted(-above, -ranks)
    quantiles = cuts[np.unique(positions[positions < len(cuts)])]
    finite = [each for each in extra if math.isfinite(each)]
    thresholds: Array = np.unique(np.concatenate([quantiles, np.asarray(finite, dtype=np.float64)]))
    return thresholds


def count_at_or_above(scores: Array, thresholds: Array) -> np.ndarray:
    """Return how many scores are at or above each threshold; those are ascending."""
    # the cell of a score is the number of thresholds that it reaches
    positions = np.searchsorted(thresholds, scores, side="right")
    cells = np.bincount(positions, minlength=len(thresholds) + 1)
    # sums from the top: a threshold is reached in its own cell and in all above it
    return np.cumsum(cells[::-1])[::-1][1:]
