"""The event by which an auditor guesses: thresholds on a score, chosen on learning draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import evolve, frozen
from scipy import special

from accountants.rounding import Array
from adaptive_dp.audit import bounds
from adaptive_dp.audit.bounds import Guesses, Way
from adaptive_dp.audit.learners import Scorer

_CUTS = 400

_NEVER = -1
"""The place, among the cuts, of a threshold that no score reaches."""

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

    def sums(self, spot: str, others: Array | None) -> tuple[Array, Array]:
        """Return rates with all cuts for one threshold, and the other at some of them, or never.

        Parameters
        ----------
        spot
            "high" or "low": the threshold that takes all cuts.
        others
            The other's indices; a row for each. Where it is None there is one row.
        """
        own, other = (self.high, self.low) if spot == "high" else (self.low, self.high)
        if others is None:
            return own
        return own[0] + other[0][others, None], own[1] + other[1][others, None]


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
    best, place = Event(scorer, math.inf, -math.inf), (_NEVER, _NEVER)
    gains, highs, lows = _thresholds(rates, points, tries, share)
    for i, (epsilon, delta) in enumerate(points):
        value = (float(gains[i]) - epsilon) / max(epsilon, 0.05)
        if value > best.value or best.value == -math.inf:
            place = high, low = int(highs[i]), int(lows[i])
            best = Event(
                scorer,
                math.inf if high == _NEVER else float(rates.cuts[high]),
                -math.inf if low == _NEVER else float(rates.cuts[low]),
                epsilon,
                delta,
                "ratio",
                value,
            )
    return evolve(best, way=_way(rates, *place, best, tries, share))


def _thresholds(
    rates: Rates, points: Sequence[tuple[float, float]], tries: int, share: float
) -> tuple[Array, Array, Array]:
    """Return of each point the epsilon that is foreseen, and which cuts are high and low.

    One side alone (the other is `_NEVER`), or both, each in turn while the other is held.
    """
    normal = abs(float(special.ndtri(share)))
    many = 1 / (1 / tries + _DOUBT / rates.drawn)
    deltas, row = np.array([[delta] for _, delta in points]), np.arange(len(points))

    def best(spot: str, others: Array | None) -> tuple[Array, Array]:
        right, wrong = rates.sums(spot, others)
        least = deltas / 2 if others is None else deltas
        gains = bounds.foreseen(right, wrong, many, least, normal)
        if others is not None:  # the two regions must not meet
            apart = rates.cuts - rates.cuts[others, None]
            gains = np.where(apart > 0 if spot == "high" else apart < 0, gains, -np.inf)
        at = np.argmax(gains, axis=1)
        return gains[row, at], at

    def both(spot: str, begin: Array, other: str) -> tuple[Array, Array, Array]:
        at = begin
        for _ in range(3):
            held = best(other, at)[1]
            gain, moved = best(spot, held)
            if np.array_equal(moved, at):
                break  # it would go on like that
            at = moved
        return gain, moved, held

    alone, high = best("high", None)
    other, low = best("low", None)
    first, upper, below = both("high", high, "low")
    second, lower, above = both("low", low, "high")
    never = np.full(len(points), _NEVER)
    gains = np.array([alone, other, first, second])
    chosen = np.argmax(gains, axis=0), row
    highs, lows = np.array([high, never, upper, above]), np.array([never, low, below, lower])
    return gains[chosen], highs[chosen], lows[chosen]


def _way(rates: Rates, high: int, low: int, event: Event, tries: int, share: float) -> Way:
    """Return the way with the better bound at the foreseen numbers of guesses."""
    guesses = [(rates.high, high), (rates.low, low)]
    right = sum(side[0][i] for side, i in guesses if i != _NEVER)
    wrong = sum(side[1][i] for side, i in guesses if i != _NEVER)
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
