"""The event by which an auditor guesses: thresholds on a score, chosen on learning draws."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
from attrs import evolve, frozen
from scipy import special

from accountants.errors import DomainError, whole
from accountants.numerics import Array
from adaptive_dp.audit import confidence as bounds
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.confidence import (
    Band,
    Corner,
    Guesses,
    Way,
    choose_thresholds,
    count_at_or_above,
)
from adaptive_dp.audit.neighbors import LogRatio, Neighbors, Outcomes, Sampler, check_seed, stream
from adaptive_dp.audit.result import Audit, Outcome, Witness
from adaptive_dp.audit.scores import Scorer, Table, scorers, table
from adaptive_dp.noise.stream import Stream

_CUTS = 400

_NEVER = -1
"""The place, among the cuts, of a threshold that no score reaches."""

_SELECTION_DOUBT = 3.0
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
    def directions(self) -> int:
        """How many of the two guesses, "first" and "second", the event can lead to; at least 1."""
        return max(1, int(self.high < math.inf) + int(self.low > -math.inf))

    def words(self) -> str:
        """Return the event as a sentence."""
        parts = []
        if self.high < math.inf:
            parts.append(f"first where it is at least {self.high:.6g}")
        if self.low > -math.inf:
            parts.append(f"second where it is at most {self.low:.6g}")
        return f"by {self.scorer.words}: {', '.join(parts) or 'no guess'}"


def count_guesses(event: Event, first: Array, second: Array) -> tuple[int, int]:
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
        self.counted = _rates_above(first, second, self.cuts, tries, known=False)
        self.high = (
            _rates_above(first, second, self.cuts, tries, known=True) if known else self.counted
        )
        self.low = _rates_above(-second, -first, -self.cuts, tries, known=known)

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


def _rates_above(
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


def choose_event(
    scorer: Scorer,
    rates: Rates,
    points: tuple[tuple[float, float], ...],
    tries: int,
    share: float,
) -> Event:
    """Return the event whose bound is foreseen to exceed a point of the claim by the most."""
    best, place = Event(scorer, math.inf, -math.inf), (_NEVER, _NEVER)
    gains, highs, lows = _best_thresholds(rates, points, tries, share)
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
    return evolve(best, way=_choose_way(rates, *place, best, tries, share))


def _best_thresholds(
    rates: Rates, points: Sequence[tuple[float, float]], tries: int, share: float
) -> tuple[Array, Array, Array]:
    """Return of each point the epsilon that is foreseen, and which cuts are high and low.

    One side alone (the other is `_NEVER`), or both, each in turn while the other is held.
    """
    normal = abs(float(special.ndtri(share)))
    many = 1 / (1 / tries + _SELECTION_DOUBT / rates.drawn)
    deltas, row = np.array([[delta] for _, delta in points]), np.arange(len(points))

    def best(spot: str, others: Array | None) -> tuple[Array, Array]:
        right, wrong = rates.sums(spot, others)
        least = deltas / 2 if others is None else deltas
        gains = bounds.predicted_epsilon(right, wrong, many, least, normal)
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


def _choose_way(rates: Rates, high: int, low: int, event: Event, tries: int, share: float) -> Way:
    """Return the way with the better bound at the foreseen numbers of guesses."""
    guesses = [(rates.high, high), (rates.low, low)]
    right = sum(side[0][i] for side, i in guesses if i != _NEVER)
    wrong = sum(side[1][i] for side, i in guesses if i != _NEVER)
    seen = Guesses(round(right * tries), round(wrong * tries), tries, event.directions)
    ways: tuple[Way, Way] = ("ratio", "apart")
    return max(ways, key=lambda way: bounds.epsilon(seen, event.delta, share, way))


def choose_split(rates: Rates, tries: int, share: float) -> tuple[float, float]:
    """Return a threshold for guessing at every try, and the mu it is foreseen to show."""
    c = rates.counted[0] + 0.5 - rates.counted[1]
    drawn = tries if math.isinf(rates.drawn) else 1 / (1 / tries + _SELECTION_DOUBT / rates.drawn)
    best = int(np.argmax(c))
    right = round(float(c[best]) * drawn)
    return float(rates.cuts[best]), bounds.mu_of_all(right, round(drawn), share)


# -----------------------------------------------------------------------------
# Try to tell two samplers apart better than a claim allows.
#
# Half by half: on the learning draws of each pair, scores are trained, and an event and a point of
# the claim's curve are chosen; then the most promising pair alone is tested, with that one event,
# on
# fresh draws. So nothing is chosen on the draws that certify, and the confidence is spent once,
# however many pairs, scores, events and directions were looked at.
#
# Nine tenths of the error that the confidence allows are the event's; the last is that of a band
# over
# all thresholds of the event's score, which looks at all points of the claim. Either may refute it:
# by the union bound, one of them accuses what keeps its claim with at most the allowed probability.


_LEARNING_PART = {False: 0.4, True: 0.1}
"""The part of the draws that is learned from, up to `_ENOUGH`; beyond, a tenth; by whether the
likelihood is known."""

_LEARNING_DRAWS = 100_000
_TRAINING_DRAWS = 100_000
"""At most so many draws a side train a score; the others of the learning draws choose the event."""

_BAND_PART = 0.1
"""The part of the allowed error that is the band's."""

_CHUNK_NUMBERS = 1 << 22
"""About so many numbers are held at once."""


def distinguish(
    pairs: Neighbors | Sequence[Neighbors],
    claim: Claimed | Claim,
    *,
    samples: int = 100_000,
    confidence: float = 0.95,
    delta: float | None = None,
    seed: int | None = None,
    assumptions: Sequence[str] = (),
) -> Audit:
    """Audit anything that can be run on two neighbouring data sets.

    Parameters
    ----------
    pairs
        One or several; the claim must hold for all of them.
    claim
        An epsilon, (epsilon, delta), a `PrivacyLoss`, a `Guarantee` or a certificate.
    samples
        Runs on each side of each pair, on average; at least 100. Of pairs but the most promising
        only the learning draws are made, four tenths of these or fewer.
    confidence
        The probability with which each bound, and the whole band, holds, and with which what keeps
        its claim is not accused, however many pairs there are.
    delta
        At which point of a curve to test; by default the learning draws choose.
    seed
        For reproducible audits; by default the operating system's randomness, as in a run.
    assumptions
        Sentences to carry into the result.

    Raises
    ------
    DomainError
        If there is no pair, nothing to refute, or a parameter is out of its domain.

    References
    ----------
    Clopper and Pearson 1934, of guesses on draws that chose nothing; see the docstrings of
    `adaptive_dp.audit.confidence` and `adaptive_dp.audit.confidence`.

    Examples
    --------
    >>> from adaptive_dp.audit import Neighbors
    >>> def coin(chance):
    ...     return lambda count, stream: stream.bernoulli(chance, count).tolist()
    >>> pair = Neighbors("heads with 3/4, or with 1/4", coin(0.75), coin(0.25))
    >>> distinguish(pair, claim=0.5, samples=10_000, seed=0).verdict
    'violation'
    >>> distinguish(pair, claim=1.0987, samples=10_000, seed=0).verdict  # the truth is log(3)
    'consistent'
    """
    begun = time.perf_counter()
    many = [pairs] if isinstance(pairs, Neighbors) else list(pairs)
    if not many:
        raise DomainError("an audit needs at least one pair of neighbouring data sets")
    runs = whole("samples", samples, least=100)
    error, seed = allowed_error(confidence), check_seed(seed)
    held, share = as_claim(claim, delta), (1 - _BAND_PART) * error
    part = _LEARNING_PART[all(each.log_ratio is not None for each in many)]
    learn = min(round(part * runs), max(_LEARNING_DRAWS, runs // 10))
    tries = 2 * (runs - learn)
    plans = [_learn(pair, held, learn, tries, share, seed, i) for i, pair in enumerate(many)]
    best = max(range(len(many)), key=lambda i: plans[i].event.value)
    plan, pair = plans[best], many[best]
    seen, all_right, band = _test(plan, pair, tries, _BAND_PART * error, seed, best)
    event = plan.event
    epsilon = bounds.epsilon(seen, event.delta, share, event.way)
    power = bounds.detectable_epsilon(seen, event.epsilon, event.delta, share, event.way)
    verdict: Outcome = "consistent" if power <= 2 * event.epsilon + 1 else "underpowered"
    found = Audit(
        claim=held.words,
        epsilon=event.epsilon,
        delta=event.delta,
        epsilon_lower=epsilon,
        delta_lower=bounds.delta(seen, event.epsilon, share, event.way),
        mu_lower=bounds.mu_of_all(all_right, tries, error),
        confidence=confidence,
        samples=runs,
        pairs=tuple(each.words for each in many),
        witness=Witness(pair.words, event.words(), seen.right, seen.wrong, seen.tries),
        verdict="violation" if epsilon > event.epsilon else verdict,
        power=power,
        assumptions=tuple(assumptions),
        seconds=time.perf_counter() - begun,
        seed=seed,
        claimed=held.points,
        band=band,
    )
    return (
        found if found.verdict == "violation" else _refuted_by_band(found, band, event.scorer.words)
    )


def _refuted_by_band(found: Audit, band: Band, scorer: str) -> Audit:
    """Return a violation where the band goes beyond a point of the claim, else the same audit."""

    def beyond(option: tuple[Corner, float, float]) -> float:
        corner, epsilon, delta = option
        return (corner.epsilon(delta) - epsilon) / max(epsilon, 0.05)

    options = [(c, *point) for c in band.corners() for point in found.claimed]
    best = max(options, key=beyond, default=None)
    if best is None or beyond(best) <= 0:
        return found
    corner, epsilon, delta = best
    right, wrong = band.guesses(corner)
    seen = Guesses(right, wrong, sum(band.draws), directions=1)
    power = bounds.detectable_epsilon(seen, epsilon, delta, 2 * band.level, "apart")
    where = "at least" if corner.guess == "first" else "below"
    words = f"by {scorer}: {corner.guess} where it is {where} {corner.threshold:.6g}"
    return evolve(
        found,
        epsilon=epsilon,
        delta=delta,
        epsilon_lower=corner.epsilon(delta),
        delta_lower=corner.delta(epsilon),
        witness=Witness(found.witness.pair, words, right, wrong, seen.tries),
        verdict="violation",
        power=power,
    )


@frozen(eq=False)
class _LearnedPair:
    """What was learned of a pair: the event, thresholds for the band, a score and middle for mu."""

    event: Event
    thresholds: Array
    scorer: Scorer
    middle: float
    width: int
    log_ratio: LogRatio | None

    def scores(self, outcomes: Outcomes) -> dict[int, Array]:
        """Return the scores of outcomes, by the identity of their scorers."""
        found: dict[int, Array] = {}
        features: Table | None = None
        for each in (self.event.scorer, self.scorer):
            if id(each) in found:
                continue
            if each.words == _RATIO_WORDS:
                assert self.log_ratio is not None
                found[id(each)] = _ratio_scores(self.log_ratio, outcomes)
            else:
                features = table(outcomes, self.width) if features is None else features
                found[id(each)] = each.score(features)
        return found


_RATIO_WORDS = "the mechanism's own log-likelihood ratio"


def _ratio_scores(log_ratio: LogRatio, outcomes: Outcomes) -> Array:
    found = np.asarray(log_ratio(outcomes), dtype=np.float64)
    if found.shape != (len(outcomes),):
        raise DomainError(
            f"a log-ratio must return one number for each of {len(outcomes)} outcomes, got an "
            f"array of shape {found.shape}"
        )
    return np.nan_to_num(found, nan=0.0, posinf=1e300, neginf=-1e300)


def _learn(
    pair: Neighbors,
    held: Claim,
    learn: int,
    tries: int,
    share: float,
    seed: int | None,
    place: int,
) -> _LearnedPair:
    """Train scores on some draws, and choose an event by the others."""
    one = _draw(pair.first, learn, stream(seed, place, 0))
    two = _draw(pair.second, learn, stream(seed, place, 1))
    tables = [table(one), table(two)]
    width = max(each.numbers.shape[1] for each in tables)
    first, second = (_pad_columns(each, width) for each in tables)
    cut = min(round(0.6 * learn), _TRAINING_DRAWS)
    rng = np.random.default_rng(np.frombuffer(stream(seed, place, 2).words(4), dtype=np.uint64))
    learners = scorers(first.rows(slice(cut)), second.rows(slice(cut)), rng)
    found: list[tuple[Event, Rates, float, float]] = []

    def consider(scorer: Scorer, a: Array, b: Array, known: bool) -> None:
        rates = Rates(a, b, known=known)
        event = choose_event(scorer, rates, held.points, tries, share)
        found.append((event, rates, *choose_split(rates, tries, share)))

    if pair.log_ratio is not None:
        known = Scorer(_RATIO_WORDS, lambda _: np.zeros(0))
        consider(
            known, _ratio_scores(pair.log_ratio, one), _ratio_scores(pair.log_ratio, two), True
        )
    rest = slice(cut, None) if pair.log_ratio is None else slice(cut, cut + _TRAINING_DRAWS)
    a, b = first.rows(rest), second.rows(rest)
    for scorer in learners:
        consider(scorer, scorer.score(a), scorer.score(b), False)
    if not found:
        constant = Scorer("nothing: all outcomes are alike", lambda t: np.zeros(len(t)))
        consider(constant, np.zeros(len(a)), np.zeros(len(b)), False)
    event, rates, *_ = max(found, key=lambda each: each[0].value)
    above = rates.counted[0] + rates.counted[1]
    low = float(np.nextafter(event.low, np.inf)) if event.low > -np.inf else event.low
    thresholds = choose_thresholds(
        rates.cuts, above, rates.draws, (event.high, low)
    )  # "second" up to its low
    halved, _, middle, _ = max(found, key=lambda each: each[3])
    return _LearnedPair(event, thresholds, halved.scorer, middle, width, pair.log_ratio)


def _pad_columns(found: Table, width: int) -> Table:
    missing = width - found.numbers.shape[1]
    return (
        Table(found.patterns, np.pad(found.numbers, ((0, 0), (0, missing)))) if missing else found
    )


def _test(
    plan: _LearnedPair, pair: Neighbors, tries: int, share: float, seed: int | None, place: int
) -> tuple[Guesses, int, Band]:
    """Return the guesses in fresh tries, how many are right of those at every try, and a band."""
    coins = stream(seed, place, 3)
    rng = np.random.default_rng(np.frombuffer(coins.words(4), dtype=np.uint64))
    heads = int(rng.binomial(tries, 0.5))
    right = wrong = all_right = 0
    nothing = np.zeros(0)
    above_each = np.zeros((2, len(plan.thresholds)), dtype=np.int64)
    for side, (sampler, count) in enumerate(((pair.first, heads), (pair.second, tries - heads))):
        source = stream(seed, place, 4 + side)
        for outcomes in _chunks(sampler, count, source, plan.width):
            scores = plan.scores(outcomes)
            mine = scores[id(plan.event.scorer)]
            hit, miss = count_guesses(plan.event, *((nothing, mine) if side else (mine, nothing)))
            right, wrong = right + hit, wrong + miss
            above_each[side] += count_at_or_above(mine, plan.thresholds)
            above = int(np.count_nonzero(scores[id(plan.scorer)] >= plan.middle))
            all_right += len(mine) - above if side else above
    first, second = (tuple(each) for each in above_each.tolist())
    band = Band(tuple(plan.thresholds.tolist()), first, second, (heads, tries - heads), share)
    return Guesses(right, wrong, tries, plan.event.directions), all_right, band


def _chunks(sampler: Sampler, count: int, source: Stream, width: int) -> Iterator[Outcomes]:
    most = max(1000, _CHUNK_NUMBERS // max(1, width))
    for start in range(0, count, most):
        yield _draw(sampler, min(most, count - start), source)


def _draw(sampler: Sampler, count: int, source: Stream) -> Outcomes:
    found = sampler(count, source)
    if len(found) != count:
        raise DomainError(f"a sampler was asked for {count} outcomes and returned {len(found)}")
    return found
