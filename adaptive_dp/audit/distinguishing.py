"""Audits of two samplers: an event is learned on some draws, and tested on others."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
from attrs import evolve, frozen
from scipy import special

from accountants.errors import DomainError, integer
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
from adaptive_dp.audit.scores import LAST_BIT, Scorer, Table, scorers, table
from adaptive_dp.noise.stream import Stream

_CUTS = 400
"""At most so many candidate thresholds are compared."""

_NEVER = -1
"""The index, among the cuts, of a threshold that no score reaches."""

_SELECTION_DOUBT = 3.0
"""The rates at the best of many thresholds are optimistic: they count as estimated from a third of
the draws that they were learned from. It affects the choice of the event alone."""


@frozen(eq=False)
class Event:
    """Guess "first" where the score is at least ``high``, "second" where it is at most ``low``.

    Parameters
    ----------
    epsilon, delta
        The point of the claim that it tests.
    way
        How the bounds are made from its guesses; see `adaptive_dp.audit.confidence`.
    value
        By how much its bound was predicted to exceed the claimed epsilon, relative to that.
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
        """Return the event as a phrase for the result."""
        parts = []
        if self.high < math.inf:
            parts.append(f"first where it is at least {self.high:.6g}")
        if self.low > -math.inf:
            parts.append(f"second where it is at most {self.low:.6g}")
        return f"by {self.scorer.words}: {', '.join(parts) or 'no guess'}"


def count_guesses(event: Event, first: Array, second: Array) -> tuple[int, int]:
    """Return how many guesses are right and wrong, from the scores of both data sets' draws."""
    right = np.count_nonzero(first >= event.high) + np.count_nonzero(second <= event.low)
    wrong = np.count_nonzero(second >= event.high) + np.count_nonzero(first <= event.low)
    return int(right), int(wrong)


class Rates:
    """The rates of right and wrong guesses at candidate thresholds, from learning draws.

    Parameters
    ----------
    known_ratio
        True where the score is declared as the log-likelihood ratio L: the rate of wrong guesses is
        then computed from the right ones, ``w(E) = E[e^-|L|; right in E]`` (a change of measure),
        where the counts do not contradict that.
    """

    def __init__(self, first: Array, second: Array, *, known_ratio: bool) -> None:
        scores = np.concatenate([first, second])
        # a few scores first, since sorting all of them is in vain where values rarely repeat
        if len(np.unique(scores[: 4 * _CUTS])) <= _CUTS and len(np.unique(scores)) <= _CUTS:
            self.cuts = np.unique(scores)
        else:
            # quantiles, and ranks in geometric progression into both tails, where large epsilons
            # are decided
            even = np.linspace(0, 1, _CUTS - 60)
            tail = np.geomspace(1 / len(scores), 2 / _CUTS, 30)
            ranks = np.concatenate([even, tail, 1 - tail])
            # "higher" takes a score that was seen, so that ties stay on one side of a cut
            self.cuts = np.unique(np.quantile(scores, ranks, method="higher"))
        tries = len(scores)
        self.draws = tries
        # rates by a change of measure need no allowance for having been selected among many
        self.drawn = math.inf if known_ratio else float(tries)
        self.counted = _rates_above(first, second, self.cuts, tries, known_ratio=False)
        self.high = (
            _rates_above(first, second, self.cuts, tries, known_ratio=True)
            if known_ratio
            else self.counted
        )
        # "second" is guessed on low scores: with signs and sides exchanged it is a guess on high
        # ones
        self.low = _rates_above(-second, -first, -self.cuts, tries, known_ratio=known_ratio)

    def sums(self, threshold: str, others: Array | None) -> tuple[Array, Array]:
        """Return rates with all cuts for one threshold, and the other at some of them, or never.

        Parameters
        ----------
        threshold
            "high" or "low": the threshold that takes all cuts.
        others
            Indices of the other threshold; a row for each. None for one row, without the other.
        """
        free, held = (self.high, self.low) if threshold == "high" else (self.low, self.high)
        if others is None:
            return free
        # all pairs of cuts: a row for each index of the held threshold
        return free[0] + held[0][others, None], free[1] + held[1][others, None]


def _rates_above(
    hits: Array, misses: Array, cuts: Array, tries: int, *, known_ratio: bool
) -> tuple[Array, Array]:
    """Return the rates of right and wrong guesses at or above each cut."""
    sorted_hits, sorted_misses = np.sort(hits), np.sort(misses)
    # on a cut itself the guess is made: scores equal to it are counted
    positions = np.searchsorted(sorted_hits, cuts, side="left")
    right = len(sorted_hits) - positions
    wrong = (len(sorted_misses) - np.searchsorted(sorted_misses, cuts, side="left")).astype(
        np.float64
    )
    if known_ratio:
        # sums of e^-L over all hits from each one upwards; the last entry is for a cut above all of
        # them
        weight = np.concatenate(
            [np.cumsum(np.exp(-np.clip(sorted_hits, -50.0, 700.0))[::-1])[::-1], [0.0]]
        )
        weighted = weight[positions]
        # less variance than counting; where the two differ by 5 standard deviations, the score is
        # not the declared ratio, and the counts are taken
        wrong = np.where(np.abs(wrong - weighted) < 5 * np.sqrt(weighted) + 5, weighted, wrong)
    return right / tries, wrong / tries


def choose_event(
    scorer: Scorer,
    rates: Rates,
    points: tuple[tuple[float, float], ...],
    tries: int,
    share: float,
) -> Event:
    """Return the event whose bound is predicted to exceed a point of the claim by the most."""
    best, indices = Event(scorer, math.inf, -math.inf), (_NEVER, _NEVER)
    gains, highs, lows = _best_thresholds(rates, points, tries, share)
    for i, (epsilon, delta) in enumerate(points):
        # relative to the claim, or to 0.05 where that is nearly 0; the first point is taken in any
        # case
        value = (float(gains[i]) - epsilon) / max(epsilon, 0.05)
        if value > best.value or best.value == -math.inf:
            indices = high, low = int(highs[i]), int(lows[i])
            best = Event(
                scorer,
                math.inf if high == _NEVER else float(rates.cuts[high]),
                -math.inf if low == _NEVER else float(rates.cuts[low]),
                epsilon,
                delta,
                "ratio",
                value,
            )
    return evolve(best, way=_choose_way(rates, *indices, best, tries, share))


def _best_thresholds(
    rates: Rates, points: Sequence[tuple[float, float]], tries: int, share: float
) -> tuple[Array, Array, Array]:
    """Return for each point the predicted epsilon, and the indices of its two thresholds.

    One threshold alone (the other is `_NEVER`), or both: each is optimised in turn while the other
    is held fixed.
    """
    normal = abs(float(special.ndtri(share)))
    # variances add: that of the test tries, and that of rates estimated by the selection
    effective_tries = 1 / (1 / tries + _SELECTION_DOUBT / rates.drawn)
    deltas, row = np.array([[delta] for _, delta in points]), np.arange(len(points))

    def best(spot: str, others: Array | None) -> tuple[Array, Array]:
        right, wrong = rates.sums(spot, others)
        # d = delta / 2 where only one of the two guesses is made: see `confidence`
        slack = deltas / 2 if others is None else deltas
        gains = bounds.predicted_epsilon(right, wrong, effective_tries, slack, normal)
        if others is not None:  # the two regions must be disjoint
            apart = rates.cuts - rates.cuts[others, None]
            gains = np.where(apart > 0 if spot == "high" else apart < 0, gains, -np.inf)
        best_index = np.argmax(gains, axis=1)
        return gains[row, best_index], best_index

    def both(spot: str, start: Array, other: str) -> tuple[Array, Array, Array]:
        best_index = start
        # a few rounds suffice: a worse event costs power alone
        for _ in range(3):
            other_index = best(other, best_index)[1]
            gain, next_index = best(spot, other_index)
            if np.array_equal(next_index, best_index):
                break  # a fixed point of the alternation
            best_index = next_index
        return gain, next_index, other_index

    # starts of the alternation: the best single threshold of either side
    alone, high = best("high", None)
    other, low = best("low", None)
    first, upper, below = both("high", high, "low")
    second, lower, above = both("low", low, "high")
    never = np.full(len(points), _NEVER)
    gains = np.array([alone, other, first, second])
    chosen = np.argmax(gains, axis=0), row
    # in the order of gains: high alone, low alone, both from high, both from low
    highs, lows = np.array([high, never, upper, above]), np.array([never, low, below, lower])
    return gains[chosen], highs[chosen], lows[chosen]


def _choose_way(rates: Rates, high: int, low: int, event: Event, tries: int, share: float) -> Way:
    """Return the way with the better bound at the expected numbers of guesses."""
    chosen = [(side, i) for side, i in ((rates.high, high), (rates.low, low)) if i != _NEVER]
    # rates of the two regions add, since they are disjoint
    right, wrong = (sum(side[k][i] for side, i in chosen) for k in (0, 1))
    guesses = Guesses(round(right * tries), round(wrong * tries), tries, event.directions)
    ways: tuple[Way, Way] = ("ratio", "apart")
    return max(ways, key=lambda way: bounds.epsilon(guesses, event.delta, share, way))


def choose_split(rates: Rates, tries: int, share: float) -> tuple[float, float]:
    """Return a threshold for guessing at every try, and the mu that it is predicted to show."""
    # c = (P(s >= t) + Q(s < t)) / 2, where rates are per try and half of the tries are of each side
    c = rates.counted[0] + 0.5 - rates.counted[1]
    effective_tries = (
        tries if math.isinf(rates.drawn) else 1 / (1 / tries + _SELECTION_DOUBT / rates.drawn)
    )
    best = int(np.argmax(c))
    right = round(float(c[best]) * effective_tries)
    return float(rates.cuts[best]), bounds.mu_of_all(right, round(effective_tries), share)


# -----------------------------------------------------------------------------
# The protocol: which draws learn, and which test.
#
# 1. On the learning draws of each pair, scores are trained on one part, and an event and a point of
#    the claim's curve are chosen on the other part (`_learn`).
# 2. The most promising pair alone is tested, with that one event, on test draws (`_test`).
#
# The test draws choose nothing: given the learning draws, the event is fixed, and the exact bounds
# of `adaptive_dp.audit.confidence` hold. So the confidence is spent once, however many pairs,
# scores, events and directions were compared.
#
# Nine tenths of the error that the confidence allows are for the event; the last tenth is for a
# band over all thresholds of the event's score, which covers all points of the claim. Either may
# refute it: by the union bound, a true claim is refuted with at most the allowed probability.


_LEARNING_PART = {False: 0.4, True: 0.1}
"""The part of the draws that is learned from, by whether the likelihood ratio is known."""

_LEARNING_DRAWS = 100_000
"""At most so many draws are learned from, or a tenth of all where that is more."""

_TRAINING_DRAWS = 100_000
"""At most so many draws of each data set train scores; the others choose the event."""

_BAND_PART = 0.1
"""The part of the allowed error that is spent on the band."""

_CHUNK_NUMBERS = 1 << 22
"""At most about so many numbers are in memory at once."""


def distinguish(
    pairs: Neighbors | Sequence[Neighbors],
    claim: Claimed | Claim,
    *,
    samples: int = 100_000,
    confidence: float = 0.999,
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
        Runs on each data set of each pair, on average; at least 100. Of all pairs but the most
        promising only the learning draws are made, four tenths of these or fewer.
    confidence
        The probability with which each bound, and the whole band, holds, and with which a true
        claim is not refuted, however many pairs there are.
    delta
        The delta at which a curve is tested; by default the learning draws choose.
    seed
        For reproducible audits; by default the operating system's randomness, as in a run.
    assumptions
        Sentences that the result repeats: premises that the audit cannot check.

    Returns
    -------
    Audit
        Its bounds rest on the test draws alone.

    Raises
    ------
    DomainError
        If there is no pair, nothing to refute, or a parameter is out of its domain.

    References
    ----------
    Clopper and Pearson 1934 (the bounds, on draws that chose nothing); the statements in terms of
    guesses are proven in `adaptive_dp.audit.confidence`.

    Examples
    --------
    >>> from adaptive_dp.audit import Neighbors
    >>> def bits(rate):
    ...     return lambda count, stream: stream.bernoulli(rate, count).tolist()
    >>> pair = Neighbors("True with probability 3/4, or with 1/4", bits(0.75), bits(0.25))
    >>> distinguish(pair, claim=0.5, samples=10_000, seed=0).verdict
    'violation'
    >>> distinguish(pair, claim=1.0987, samples=10_000, seed=0).verdict  # the truth is log(3)
    'consistent'
    """
    started = time.perf_counter()
    all_pairs = [pairs] if isinstance(pairs, Neighbors) else list(pairs)
    if not all_pairs:
        raise DomainError("an audit needs at least one pair of neighbouring data sets")
    runs = integer("samples", samples, least=100)
    error, seed = allowed_error(confidence), check_seed(seed)
    tested_claim, share = as_claim(claim, delta), (1 - _BAND_PART) * error
    learn, tries = draws(all_pairs, runs)
    # first all learning draws, then the choice of one pair, then the test draws of that pair alone
    learned = [
        _learn(pair, tested_claim, learn, tries, share, seed, i) for i, pair in enumerate(all_pairs)
    ]
    best = max(range(len(all_pairs)), key=lambda i: learned[i].event.value)
    best_learned, pair = learned[best], all_pairs[best]
    guesses, all_right, band = _test(best_learned, pair, tries, _BAND_PART * error, seed, best)
    event = best_learned.event
    epsilon = bounds.epsilon(guesses, event.delta, share, event.way)
    # the guesses' error is (1 - _BAND_PART) of what is allowed, the band's the rest: union bound
    power = bounds.detectable_epsilon(guesses, event.epsilon, event.delta, share, event.way)
    verdict: Outcome = "consistent" if power <= 2 * event.epsilon + 1 else "underpowered"
    result = Audit(
        claim=tested_claim.words,
        epsilon=event.epsilon,
        delta=event.delta,
        epsilon_lower=epsilon,
        delta_lower=bounds.delta(guesses, event.epsilon, share, event.way),
        # stated by itself and never used in the verdict, so it may spend the whole error
        mu_lower=bounds.mu_of_all(all_right, tries, error),
        confidence=confidence,
        samples=runs,
        pairs=tuple(candidate.words for candidate in all_pairs),
        witness=Witness(pair.words, event.words(), guesses.right, guesses.wrong, guesses.tries),
        verdict="violation" if epsilon > event.epsilon else verdict,
        power=power,
        assumptions=tuple(assumptions),
        seconds=time.perf_counter() - started,
        seed=seed,
        claimed=tested_claim.points,
        band=band,
    )
    # the band is used only where the event itself does not refute; both have their share of error
    if result.verdict != "violation":
        result = _refuted_by_band(result, band, event.scorer.words)
    if result.verdict == "violation" and LAST_BIT in result.witness.event:
        return evolve(result, notes=(*result.notes, LOW_BITS))
    return result


def draws(pairs: Sequence[Neighbors], samples: int) -> tuple[int, int]:
    """Return how many learning draws each data set of each pair has, and the tries of the test."""
    learning_part = _LEARNING_PART[all(pair.log_ratio is not None for pair in pairs)]
    # learning is capped, so that of many draws most are for the test
    learn = min(round(learning_part * samples), max(_LEARNING_DRAWS, samples // 10))
    # tries on both data sets together, of one pair
    return learn, 2 * (samples - learn)


LOW_BITS = (
    "low bits: the noise is added in floating point, and the lowest bits of the sum tell what it "
    "was added to (Mironov 2012); draw it on a lattice, as dp.Laplace and dp.Gaussian do, or round"
)
"""What a result notes where the last bits of an outcome refute a claim."""


def _refuted_by_band(result: Audit, band: Band, scorer: str) -> Audit:
    """Return a violation where the band goes beyond a point of the claim, else the same audit."""

    def excess(option: tuple[Corner, float, float]) -> float:
        corner, epsilon, delta = option
        # on the scale on which events are chosen
        return (corner.epsilon(delta) - epsilon) / max(epsilon, 0.05)

    options = [(c, *point) for c in band.corners() for point in result.claimed]
    best = max(options, key=excess, default=None)
    if best is None or excess(best) <= 0:
        return result
    corner, epsilon, delta = best
    # all corners hold together, so the best of them may be chosen on the very draws that it bounds
    right, wrong = band.guesses(corner)
    # a corner makes one guess only, on draws of both sides
    guesses = Guesses(right, wrong, sum(band.draws), directions=1)
    # "apart" gives each of its two bounds half of the share: the level of one bound of the band
    power = bounds.detectable_epsilon(guesses, epsilon, delta, 2 * band.level, "apart")
    relation = "at least" if corner.guess == "first" else "below"
    words = f"by {scorer}: {corner.guess} where it is {relation} {corner.threshold:.6g}"
    return evolve(
        result,
        epsilon=epsilon,
        delta=delta,
        epsilon_lower=corner.epsilon(delta),
        delta_lower=corner.delta(epsilon),
        witness=Witness(result.witness.pair, words, right, wrong, guesses.tries),
        verdict="violation",
        power=power,
    )


@frozen(eq=False)
class _LearnedPair:
    """What was learned of a pair.

    Parameters
    ----------
    event
        The one to test.
    thresholds
        Of the event's score, for the band.
    scorer, middle
        A score and its threshold for guesses at every try, which bound mu.
    width
        How many columns outcomes have as a table.
    log_ratio
        Where the likelihood is known.
    """

    event: Event
    thresholds: Array
    scorer: Scorer
    middle: float
    width: int
    log_ratio: LogRatio | None

    def scores(self, outcomes: Outcomes) -> dict[int, Array]:
        """Return the scores of outcomes, by the identity of their scorers."""
        # the event's scorer and that of mu are often the same object, scored once
        scores: dict[int, Array] = {}
        features: Table | None = None
        for scorer in (self.event.scorer, self.scorer):
            if id(scorer) in scores:
                continue
            if scorer.words == _RATIO_WORDS:
                assert self.log_ratio is not None
                scores[id(scorer)] = _ratio_scores(self.log_ratio, outcomes)
            else:
                # outcomes become a table only where a learned score needs one
                features = table(outcomes, self.width) if features is None else features
                scores[id(scorer)] = scorer.score(features)
        return scores


_RATIO_WORDS = "the mechanism's own log-likelihood ratio"


def _ratio_scores(log_ratio: LogRatio, outcomes: Outcomes) -> Array:
    ratios = np.asarray(log_ratio(outcomes), dtype=np.float64)
    if ratios.shape != (len(outcomes),):
        raise DomainError(
            f"a log-ratio must return one number for each of {len(outcomes)} outcomes, got an "
            f"array of shape {ratios.shape}"
        )
    # NaN is no evidence; infinities become the extreme finite scores
    return np.nan_to_num(ratios, nan=0.0, posinf=1e300, neginf=-1e300)


def _learn(
    pair: Neighbors,
    tested_claim: Claim,
    learn: int,
    tries: int,
    share: float,
    seed: int | None,
    pair_index: int,
) -> _LearnedPair:
    """Train scores on some of the learning draws, and choose an event on the others."""
    # each use has a stream of its own: 0 and 1 draw the learning outcomes, 2 seeds the learners, 3
    # chooses the data set of each try, 4 and 5 draw the test outcomes
    first_outcomes = _draw(pair.first, learn, stream(seed, pair_index, 0))
    second_outcomes = _draw(pair.second, learn, stream(seed, pair_index, 1))
    tables = [table(first_outcomes), table(second_outcomes)]
    # outcomes may have different lengths: both tables, and those of test draws, get the widest
    width = max(each.numbers.shape[1] for each in tables)
    first, second = (each.with_width(width) for each in tables)
    # learners see the rows before the cut, and events are chosen on those after it
    cut = min(round(0.6 * learn), _TRAINING_DRAWS)
    rng = _generator(stream(seed, pair_index, 2))
    learners = scorers(first.rows(slice(cut)), second.rows(slice(cut)), rng)
    candidates: list[tuple[Event, Rates, float, float]] = []

    def consider(scorer: Scorer, a: Array, b: Array, is_ratio: bool) -> None:
        rates = Rates(a, b, known_ratio=is_ratio)
        event = choose_event(scorer, rates, tested_claim.points, tries, share)
        candidates.append((event, rates, *choose_split(rates, tries, share)))

    if pair.log_ratio is not None:
        # never called: `_LearnedPair.scores` computes the ratio from outcomes, not from tables
        ratio_scorer = Scorer(_RATIO_WORDS, lambda _: np.zeros(0))
        consider(
            ratio_scorer,
            _ratio_scores(pair.log_ratio, first_outcomes),
            _ratio_scores(pair.log_ratio, second_outcomes),
            True,
        )
    # beside a known ratio learned scores rarely win, so they get fewer rows
    rest = slice(cut, None) if pair.log_ratio is None else slice(cut, cut + _TRAINING_DRAWS)
    a, b = first.rows(rest), second.rows(rest)
    for scorer in learners:
        consider(scorer, scorer.score(a), scorer.score(b), False)
    # an audit still needs an event: this one does not depend on the outcomes
    if not candidates:
        constant = Scorer("nothing: all outcomes are equal", lambda t: np.zeros(len(t)))
        consider(constant, np.zeros(len(a)), np.zeros(len(b)), False)
    event, rates, *_ = max(candidates, key=lambda each: each[0].value)
    # per try, so over both sides it is the fraction of all learning draws
    above = rates.counted[0] + rates.counted[1]
    low = float(np.nextafter(event.low, np.inf)) if event.low > -np.inf else event.low
    # the event guesses "second" up to and with its low threshold, a corner strictly below its own
    thresholds = choose_thresholds(rates.cuts, above, rates.draws, (event.high, low))
    # the score for mu may be another one: it guesses at every try
    halved, _, middle, _ = max(candidates, key=lambda each: each[3])
    return _LearnedPair(event, thresholds, halved.scorer, middle, width, pair.log_ratio)


def _generator(source: Stream) -> np.random.Generator:
    return np.random.default_rng(np.frombuffer(source.words(4), dtype=np.uint64))


def _test(
    learned: _LearnedPair,
    pair: Neighbors,
    tries: int,
    share: float,
    seed: int | None,
    pair_index: int,
) -> tuple[Guesses, int, Band]:
    """Return the guesses in test tries, how many of those at every try are right, and the band."""
    # the number of tries that a fair random bit each gives to the first data set: the tries are
    # independent, and the number of runs does not depend on the scores, as the band's proof needs
    rng = _generator(stream(seed, pair_index, 3))
    first_count = int(rng.binomial(tries, 0.5))
    right = wrong = all_right = 0
    none = np.zeros(0)
    counts_above = np.zeros((2, len(learned.thresholds)), dtype=np.int64)
    for side, (sampler, count) in enumerate(
        ((pair.first, first_count), (pair.second, tries - first_count))
    ):
        # the two sides are independent, each with a stream of its own
        source = stream(seed, pair_index, 4 + side)
        for outcomes in _chunks(sampler, count, source, learned.width):
            scores = learned.scores(outcomes)
            event_scores = scores[id(learned.event.scorer)]
            # the other side's scores are empty here: it is counted in its own turn
            right_here, wrong_here = count_guesses(
                learned.event, *((none, event_scores) if side else (event_scores, none))
            )
            right, wrong = right + right_here, wrong + wrong_here
            counts_above[side] += count_at_or_above(event_scores, learned.thresholds)
            # at every try "first" is guessed from `middle` upwards, "second" below it
            above = int(np.count_nonzero(scores[id(learned.scorer)] >= learned.middle))
            all_right += len(event_scores) - above if side else above
    first, second = (tuple(each) for each in counts_above.tolist())
    band = Band(
        tuple(learned.thresholds.tolist()), first, second, (first_count, tries - first_count), share
    )
    return Guesses(right, wrong, tries, learned.event.directions), all_right, band


def _chunks(sampler: Sampler, count: int, source: Stream, width: int) -> Iterator[Outcomes]:
    # outcomes of `width` numbers each, so that a chunk fits into memory
    chunk = max(1000, _CHUNK_NUMBERS // max(1, width))
    for start in range(0, count, chunk):
        yield _draw(sampler, min(chunk, count - start), source)


def _draw(sampler: Sampler, count: int, source: Stream) -> Outcomes:
    outcomes = sampler(count, source)
    if len(outcomes) != count:
        raise DomainError(f"a sampler was asked for {count} outcomes and returned {len(outcomes)}")
    return outcomes
