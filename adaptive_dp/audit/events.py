"""The event by which an auditor guesses: thresholds on a score, chosen on learning draws."""

from __future__ import annotations

import math

import numpy as np
from attrs import evolve, frozen
from scipy import special

from accountants.rounding import Array
from adaptive_dp.audit import bounds
from adaptive_dp.audit.bounds import Guesses, Way
from adaptive_dp.audit.learners import Scorer

_CUTS = 400

_DOUBT = 3.0
"""Rates at the best of many thresholds are taken to be as uncertain as those of a third of the
draws that they were learned from."""


@frozen(eq=False)
class Event:
    """Guess "first" where the score is at least ``high``, "second" where it is at most ``low``.

    Parameters
    ----------
    epsilon, delta
        The point of the claim that it is to test.
    way
        How its guesses are bounded.
    value
        By how much its bound was foreseen to exceed the claimed epsilon, in parts of that.
    """

    scorer: Scorer
    high: float
    low: float
    epsilon: float = 0.0
    delta: float = 0.0
    way: Way = "ratio"
    value: float = -math.inf

    @property
    def sides(self) -> int:
        """How many sides are ever guessed."""
        return max(1, int(self.high < math.inf) + int(self.low > -math.inf))

    def words(self) -> str:
        """Return the event as a sentence."""
        parts = []
        if self.high < math.inf:
            parts.append(f"first where it is at least {self.high:.6g}")
        if self.low > -math.inf:
            parts.append(f"second where it is at most {self.low:.6g}")
        return f"by {self.scorer.words}: {', '.join(parts) or 'no guess'}"


def guessed(event: Event, first: Array, second: Array) -> tuple[int, int]:
    """Return how many guesses are right and wrong, from the scores of both sides' draws."""
    right = np.count_nonzero(first >= event.high) + np.count_nonzero(second <= event.low)
    wrong = np.count_nonzero(second >= event.high) + np.count_nonzero(first <= event.low)
    return int(right), int(wrong)


class Rates:
    """The rates of right and wrong guesses at candidate thresholds, from learning draws.

    Parameters
    ----------
    known
        True where the score is said to be the log-likelihood ratio L: wrong guesses are then
        weighed from the right ones, ``w(E) = E[e^-|L|; right in E]``, where counts do not
        contradict that.
    """

    def __init__(self, first: Array, second: Array, *, known: bool) -> None:
        both = np.concatenate([first, second])
        if len(np.unique(both[: 4 * _CUTS])) <= _CUTS and len(np.unique(both)) <= _CUTS:
            self.cuts = np.unique(both)
        else:
            near = np.linspace(0, 1, _CUTS - 60)
            tail = np.geomspace(1 / len(both), 2 / _CUTS, 30)
            ranks = np.concatenate([near, tail, 1 - tail])
            self.cuts = np.unique(np.quantile(both, ranks, method="higher"))
        tries = len(both)
        self.draws = tries
        self.drawn = math.inf if known else float(tries)
        self.counted = _above(first, second, self.cuts, tries, known=False)
        self.high = _above(first, second, self.cuts, tries, known=True) if known else self.counted
        self.low = _above(-second, -first, -self.cuts, tries, known=known)

    def sums(self, high: int | None, low: int | None, spot: str) -> tuple[Array, Array]:
        """Return rates with all cuts for one threshold, the other at an index, or never."""
        own, other, fixed = (
            (self.high, self.low, low) if spot == "high" else (self.low, self.high, high)
        )
        if fixed is None:
            return own
        return own[0] + other[0][fixed], own[1] + other[1][fixed]


def _above(
    hits: Array, misses: Array, cuts: Array, tries: int, *, known: bool
) -> tuple[Array, Array]:
    """Return the rates of hits and misses at or above each cut."""
    up, down = np.sort(hits), np.sort(misses)
    at = np.searchsorted(up, cuts, side="left")
    right = len(up) - at
    wrong = (len(down) - np.searchsorted(down, cuts, side="left")).astype(np.float64)
    if known:
        weight = np.concatenate([np.cumsum(np.exp(-np.clip(up, -50.0, 700.0))[::-1])[::-1], [0.0]])
        weighed = weight[at]
        wrong = np.where(np.abs(wrong - weighed) < 5 * np.sqrt(weighed) + 5, weighed, wrong)
    return right / tries, wrong / tries


def choose(
    scorer: Scorer,
    rates: Rates,
    points: tuple[tuple[float, float], ...],
    tries: int,
    share: float,
) -> Event:
    """Return the event whose bound is foreseen to exceed a point of the claim by the most."""
    best = Event(scorer, math.inf, -math.inf)
    for epsilon, delta in points:
        gain, high, low = _thresholds(rates, delta, tries, share)
        value = (gain - epsilon) / max(epsilon, 0.05)
        if value > best.value or best.value == -math.inf:
            found = Event(
                scorer,
                math.inf if high is None else float(rates.cuts[high]),
                -math.inf if low is None else float(rates.cuts[low]),
                epsilon,
                delta,
                "ratio",
                value,
            )
            best = evolve(found, way=_way(rates, high, low, found, tries, share))
    return best


def _thresholds(
    rates: Rates, delta: float, tries: int, share: float
) -> tuple[float, int | None, int | None]:
    """Return the epsilon that is foreseen, and which cuts are the thresholds (None: never).

    One side alone, or both, each threshold in turn while the other is held.
    """
    normal = abs(float(special.ndtri(share)))
    many = 1 / (1 / tries + _DOUBT / rates.drawn)

    def best(spot: str, other: int | None) -> tuple[float, int]:
        c, w = rates.sums(other, other, spot)
        least = delta / 2 if other is None else delta
        gains = bounds.foreseen(c, w, many, least, normal)
        if other is not None:  # the two regions must not meet
            apart = rates.cuts - rates.cuts[other]
            gains = np.where(apart > 0 if spot == "high" else apart < 0, gains, -np.inf)
        at = int(np.argmax(gains))
        return float(gains[at]), at

    alone, high = best("high", None)
    other, low = best("low", None)
    options: list[tuple[float, int | None, int | None]] = [(alone, high, None), (other, None, low)]
    upper, lower = high, low
    for _ in range(3):
        lower = best("low", upper)[1]
        gain, upper = best("high", lower)
    options.append((gain, upper, lower))
    upper, lower = high, low
    for _ in range(3):
        upper = best("high", lower)[1]
        gain, lower = best("low", upper)
    options.append((gain, upper, lower))
    return max(options, key=lambda option: option[0])


def _way(
    rates: Rates, high: int | None, low: int | None, event: Event, tries: int, share: float
) -> Way:
    """Return the way with the better bound at the foreseen numbers of guesses."""
    right = sum(side[0][i] for side, i in ((rates.high, high), (rates.low, low)) if i is not None)
    wrong = sum(side[1][i] for side, i in ((rates.high, high), (rates.low, low)) if i is not None)
    seen = Guesses(round(right * tries), round(wrong * tries), tries, event.sides)
    ways: tuple[Way, Way] = ("ratio", "apart")
    return max(ways, key=lambda way: bounds.epsilon(seen, event.delta, share, way))


def split(rates: Rates, tries: int, share: float) -> tuple[float, float]:
    """Return a threshold for guessing at every try, and the mu it is foreseen to show."""
    c = rates.counted[0] + 0.5 - rates.counted[1]
    drawn = tries if math.isinf(rates.drawn) else 1 / (1 / tries + _DOUBT / rates.drawn)
    best = int(np.argmax(c))
    right = round(float(c[best]) * drawn)
    return float(rates.cuts[best]), bounds.mu_of_all(right, round(drawn), share)
