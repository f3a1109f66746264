"""The band over all thresholds: its coverage by simulation, and exact profiles above it."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import attrs
import broken_mechanisms
import numpy as np
import pytest
from scipy import stats

import accountants
import adaptive_dp as dp
from accountants.guarantee import implied, largest_probability
from adaptive_dp import audit
from adaptive_dp.audit import distinguishing
from adaptive_dp.audit.confidence import Band, choose_thresholds, count_at_or_above
from adaptive_dp.audit.distinguishing import Event

REPEATS = 2_000
SHARE = 0.05
GRID = np.linspace(-2.5, 3.5, 32)


def drawn(rng: np.random.Generator, law: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    if law == "normal":
        return rng.standard_normal(count) + 1, rng.standard_normal(count)
    return rng.poisson(2.0, count).astype(float), rng.poisson(1.0, count).astype(float)


def truth(law: str, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probability of a score of at least each threshold, on both sides."""
    if law == "normal":
        return stats.norm.sf(thresholds - 1), stats.norm.sf(thresholds)
    below = np.ceil(thresholds) - 1
    return stats.poisson.sf(below, 2.0), stats.poisson.sf(below, 1.0)


def misses(law: str, *, spread: bool) -> int:
    """How many of the repetitions have a wrong bound in the band, at any threshold."""
    rng = np.random.default_rng(11)
    p, q = truth(law, GRID)
    exact = np.concatenate([p, 1 - q]), np.concatenate([q, 1 - p])  # right, wrong
    share = SHARE if spread else SHARE * 2 * len(GRID)
    levels: dict[Any, tuple[float, ...]] = {}
    result = 0
    for _ in range(REPEATS):
        one, two = (count_at_or_above(each, GRID) for each in drawn(rng, law, 300))
        right, wrong = [], []
        for hits, other in [*zip(one, two, strict=True), *zip(300 - two, 300 - one, strict=True)]:
            key = (int(hits), int(other))
            if key not in levels:
                # one threshold of a band of as many: its two bounds at the level of each
                alone = Band((0.0,), (key[0],), (key[1],), (300, 300), share / len(GRID))
                corner = alone.corners()[0]
                levels[key] = (corner.right, corner.wrong)
            right.append(levels[key][0])
            wrong.append(levels[key][1])
        result += bool((np.array(right) > exact[0]).any() or (np.array(wrong) < exact[1]).any())
    return result


@pytest.mark.parametrize("law", ["normal", "poisson"])
def test_the_band_covers_all_thresholds_at_once(law: str) -> None:
    """At most 5% of repetitions may miss: more than 155 of 2,000 has probability below 1e-7."""
    limit = 155
    assert stats.binom.sf(limit, REPEATS, SHARE) < 1e-7
    assert misses(law, spread=True) <= limit


def test_without_its_share_for_each_threshold_it_would_not() -> None:
    """The same simulation finds bounds that hold one by one and not together."""
    assert misses("normal", spread=False) > 300


def test_a_corner_has_the_bounds_of_clopper_and_pearson() -> None:
    band = Band((0.0, 1.0), (90, 40), (70, 5), (100, 80), 0.08)
    corners = band.corners()
    assert [(each.guess, each.threshold) for each in corners] == [
        ("first", 0.0),
        ("first", 1.0),
        ("second", 0.0),
        ("second", 1.0),
    ]
    for corner, hits, tries, bad, others in (
        (corners[1], 40, 100, 5, 80),
        (corners[2], 10, 80, 10, 100),
    ):
        low = stats.binomtest(hits, tries).proportion_ci(1 - 2 * 0.02, method="exact").low
        high = stats.binomtest(bad, others).proportion_ci(1 - 2 * 0.02, method="exact").high
        assert corner.right == pytest.approx(low, rel=1e-7)
        assert corner.right <= low
        assert corner.wrong == pytest.approx(high, rel=1e-7)
        assert corner.wrong >= high
        assert band.guesses(corner) == (hits, bad)
    assert corners[1].delta(corners[1].epsilon(0.01)) == pytest.approx(0.01, rel=1e-6)
    assert corners[2].epsilon(0.01) == corners[2].delta(0.0) == 0.0


def test_counts_are_those_of_a_plain_comparison() -> None:
    rng = np.random.default_rng(0)
    scores, thresholds = rng.integers(0, 9, 500).astype(float), np.array([-1.0, 0.0, 4.0, 8.5])
    assert count_at_or_above(scores, thresholds).tolist() == [
        (scores >= t).sum() for t in thresholds
    ]
    assert count_at_or_above(scores, np.zeros(0)).tolist() == []


def test_thresholds_reach_into_both_tails() -> None:
    cuts = np.linspace(0, 1, 1001)
    result = choose_thresholds(cuts, 1 - cuts, 10_000, (0.123456, math.inf, -math.inf))
    assert 0.123456 in result
    assert 20 < len(result) <= 33
    assert result.min() <= 0.01
    assert result.max() >= 0.99
    assert len(choose_thresholds(np.array([5.0]), np.array([1.0]), 100)) == 0


def laplace(epsilon: float) -> float:
    """Delta of the Laplace mechanism of epsilon 1 (Balle, Barthe and Gaboardi 2018)."""
    return max(0.0, 1 - math.exp((epsilon - 1) / 2))


def gaussian(epsilon: float) -> float:
    """Delta of the Gaussian mechanism of mu = 1 (Balle and Wang 2018, theorem 8)."""
    return float(stats.norm.cdf(0.5 - epsilon) - math.exp(epsilon) * stats.norm.cdf(-0.5 - epsilon))


def unknown(name: str) -> audit.Neighbors:
    return broken_mechanisms.black(
        lambda v, s: broken_mechanisms.coarse(v + getattr(s, name)(1.0, v.shape)),
        0.0,
        1.0,
    )


@pytest.mark.parametrize(
    ("name", "exact", "near"),
    [("laplace", laplace, (0.0, 0.5)), ("gaussian", gaussian, (0.0, 1.0))],
)
def test_the_profile_lies_below_the_exact_one(name: str, exact: Any, near: Any) -> None:
    """With a confidence of 1 - 1e-7: so rarely would a correct band fail here."""
    claim = accountants.Laplace(1.0) if name == "laplace" else accountants.Gaussian(mu=1.0)
    result = audit.distinguish(unknown(name), claim, samples=40_000, confidence=1 - 1e-7, seed=3)
    points = result.profile(np.linspace(0, 3, 61).tolist())
    for each in points:
        assert each.shown <= exact(each.epsilon) + 1e-15
        assert each.claimed >= exact(each.epsilon) - 1e-15
    assert all(a.shown >= b.shown for a, b in itertools.pairwise(points))
    assert all(a.claimed >= b.claimed for a, b in itertools.pairwise(points))
    for epsilon in near:
        (point,) = result.profile([epsilon])
        assert point.shown > exact(epsilon) - 0.06


def test_the_tradeoff_lies_below_the_exact_one_and_the_claim_above() -> None:
    """The most powerful test of mu = 1 is right with Phi(Phi^-1(wrong) + 1)."""
    exact = audit.mechanism(
        dp.Gaussian(sigma=1.0), (0.0, 1.0), samples=20_000, confidence=1 - 1e-7, seed=1
    )
    points = exact.tradeoff()
    assert {each.guess for each in points} == {"first", "second"}
    for each in points:
        best = stats.norm.cdf(stats.norm.ppf(each.wrong) + 1)
        assert each.right < best <= each.claimed + 1e-12
    firsts = [each for each in points if each.guess == "first"]
    assert all(a.right >= b.right and a.wrong >= b.wrong for a, b in itertools.pairwise(firsts))
    assert all(a.threshold < b.threshold for a, b in itertools.pairwise(firsts))


def hockey(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    grows = math.exp(epsilon)
    return float(max(np.maximum(p - grows * q, 0).sum(), np.maximum(q - grows * p, 0).sum()))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_claim_implies_holds_for_every_pair_that_keeps_it(seed: int) -> None:
    """Small laws, all of their events, and points that they keep exactly."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(5, 0.7)), rng.dirichlet(np.full(5, 0.7))
    points = tuple((e, hockey(p, q, e)) for e in (0.1, 0.7, 2.0))
    for epsilon in np.linspace(0, 4, 33):
        assert implied(points, epsilon) >= hockey(p, q, epsilon) - 1e-14
    for epsilon, delta in points:
        assert implied(points, epsilon) <= delta * (1 + 1e-9) + 1e-14
    for chosen in itertools.product([False, True], repeat=5):
        event = np.array(chosen)
        assert largest_probability(points, float(q[event].sum())) >= p[event].sum() - 1e-14
        assert largest_probability(points, float(p[event].sum())) >= q[event].sum() - 1e-14


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_a_point_implies_no_more_than_its_worst_mechanism_does(delta: float) -> None:
    """Randomized response that tells the truth with probability delta keeps it exactly."""
    grows = math.e
    scale = (1 - delta) / (1 + grows)
    p, q = np.array([delta, grows * scale, scale, 0]), np.array([0, scale, grows * scale, delta])
    for epsilon in np.linspace(0, 1, 11):
        assert implied(((1.0, delta),), epsilon) == pytest.approx(
            hockey(p, q, epsilon), rel=1e-9, abs=1e-14
        )


def test_a_claim_that_the_band_goes_beyond_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the event that was chosen never guesses: the witness is a threshold then."""
    chosen = distinguishing.choose_event

    def blind(*given: Any) -> Event:
        return attrs.evolve(chosen(*given), high=math.inf, low=-math.inf, epsilon=1.0)

    monkeypatch.setattr(distinguishing, "choose_event", blind)
    result = audit.distinguish(broken_mechanisms.response(2.0), 1.0, samples=3_000, seed=1)
    assert result.verdict == "violation"
    assert 1.6 < result.epsilon_lower <= 2.0
    assert 0 < result.delta_lower < hockey(*response(2.0), 1.0)
    assert "where it is" in result.witness.event
    assert result.witness.right > result.witness.wrong > 0
    assert 1.0 < result.power < math.inf
    assert any(each.right > each.claimed for each in result.tradeoff())
    honest = audit.distinguish(broken_mechanisms.response(1.0), 1.0, samples=3_000, seed=1)
    assert honest.verdict != "violation"


def response(epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    p = np.array([math.exp(epsilon), 1.0]) / (1 + math.exp(epsilon))
    return p, p[::-1]


def test_a_violation_shows_in_the_profile() -> None:
    result = audit.mechanism(dp.Laplace(scale=0.5), (0.0, 1.0), 1.0, samples=20_000, seed=1)
    (point,) = result.profile([1.0])
    assert point.shown > 0.3 > point.claimed
    assert all(
        each.shown <= max(0.0, 1 - math.exp(each.epsilon / 2 - 1)) for each in result.profile()
    )


def test_results_carry_their_curves() -> None:
    result = audit.distinguish(broken_mechanisms.response(1.0), 1.0, samples=1_000, seed=1)
    document = json.loads(result.to_json())
    assert document["claimed"] == [[1.0, 0.0]]
    assert document["tradeoff"][0]["guess"] == "first"
    assert document["profile"][0]["epsilon"] == 0.0
    same = audit.Neighbors("", lambda runs, s: [None] * runs, lambda runs, s: [None] * runs)
    nothing = audit.distinguish(same, 1.0, samples=1_000, seed=1)
    assert all(each.right < each.wrong for each in nothing.tradeoff())
    assert {each.shown for each in nothing.profile()} == {0.0}
    with pytest.raises(accountants.AccountingError, match="epsilon"):
        result.profile([-1.0])


def test_one_run_has_a_profile_and_no_thresholds() -> None:
    def respond(included: Any) -> Any:
        return included ^ (np.random.default_rng(0).random(len(included)) < 1 / (1 + math.exp(4)))

    result = audit.one_run(respond, 1000, (1.0, 1e-3), confidence=0.95, seed=0)
    assert result.tradeoff() == ()
    assert result.profile([1.0])[0].shown == 1e-3
    assert json.loads(result.to_json())["band"] is None


@pytest.mark.parametrize("wrong", ["95%", "0.95", None, True, 0, 1.0, -0.5, math.nan, [0.9]])
def test_a_confidence_that_is_none_is_refused_at_once(wrong: Any) -> None:
    plan = dp.Pipeline(n=dp.dataset("people", columns={}).count().release(dp.Laplace(scale=1)))
    calls = [
        lambda: audit.mechanism(dp.Laplace(scale=1), (0.0, 1.0), 1.0, confidence=wrong),
        lambda: audit.distinguish(broken_mechanisms.response(1.0), 1.0, confidence=wrong),
        lambda: audit.one_run(lambda included: included, 100, 1.0, confidence=wrong),
        lambda: plan.audit(confidence=wrong),
    ]
    for call in calls:
        with pytest.raises(accountants.DomainError, match="confidence"):
            call()
