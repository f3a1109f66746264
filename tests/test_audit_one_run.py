"""Audits by one run: the bound against enumeration, broken training found, correct not."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import accountants
import adaptive_dp as dp
from accountants.errors import DomainError
from adaptive_dp import audit
from adaptive_dp.audit.canaries import gaussian_mu, guess_probability, least_epsilon
from adaptive_dp.audit.pipelines import Transcripts

EPSILON, DELTA = 4.98, 1e-5
"""Gaussian noise of sigma 4 for 20 steps: mu = sqrt(20) / 4, by which epsilon is 4.98."""


def tail(masses: Any, least: int) -> float:
    return float(sum(masses[least:]))


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_the_bound_is_exact_for_randomized_response(epsilon: float) -> None:
    """Guesses at m responses: the number of right ones, over all 2^m ways to lie."""
    m, q = 8, 1 / (1 + math.exp(-epsilon))
    masses = np.zeros(m + 1)
    for bits in itertools.product((0, 1), repeat=m):
        masses[sum(bits)] += math.prod(q if t else 1 - q for t in bits)
    for right in range(m + 1):
        assert guess_probability(right, m, m, epsilon, 0.0) == pytest.approx(
            tail(masses, right), rel=1e-7
        )
        assert guess_probability(right, m, m, epsilon, 0.0) >= tail(masses, right) * (1 - 1e-12)


@pytest.mark.parametrize("delta", [1e-3, 0.02, 0.2])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_bound_covers_failures(epsilon: float, delta: float) -> None:
    """With probability delta all canaries, or each for itself, or some, are revealed."""
    m, q = 10, 1 / (1 + math.exp(-epsilon))
    plain = stats.binom.pmf(np.arange(m + 1), m, q)
    for right in range(m + 1):
        bound = guess_probability(right, m, m, epsilon, delta)
        together = delta + (1 - delta) * tail(plain, right)
        apart = stats.binom.sf(right - 1, m, delta + (1 - delta) * q)
        assert bound >= min(1.0, max(together, apart)) * (1 - 1e-12)
        for some in range(1, m + 1):  # m / some times as often, which is delta for each of them
            often = min(1.0, delta * m / some)
            mixed = often * stats.binom.sf(right - some - 1, m - some, q)
            mixed += (1 - often) * tail(plain, right)
            assert bound >= min(1.0, mixed) * (1 - 1e-12)


def test_the_least_epsilon_is_where_the_chance_is() -> None:
    result = least_epsilon(80, 100, 100, 1e-5, 0.05)
    assert (
        guess_probability(80, 100, 100, result, 1e-5)
        <= 0.05
        <= guess_probability(80, 100, 100, result + 1e-3, 1e-5)
    )
    assert least_epsilon(50, 100, 100, 0.0, 0.05) == 0.0
    most = -math.log(0.05 ** (-1 / 2000) - 1)  # where q^2000 = 0.05
    assert least_epsilon(2000, 2000, 2000, 0.0, 0.05) == pytest.approx(most, abs=1e-5)


def test_a_gaussian_claim_is_read_as_mu() -> None:
    mu = gaussian_mu(EPSILON, DELTA)
    assert mu == pytest.approx(math.sqrt(20) / 4, rel=2e-3)
    a, b = mu / 2 - EPSILON / mu, -mu / 2 - EPSILON / mu
    assert special.ndtr(a) - math.exp(EPSILON) * special.ndtr(b) == pytest.approx(DELTA, rel=1e-6)


def noisy_descent(
    rng: np.random.Generator, *, noise: float = 4.0, clip: bool = True, once: bool = False
) -> Any:
    """Twenty steps of one-hot gradients of norm 3, clipped to 1, with noise."""

    def train(included: Any) -> Any:
        gradient = np.where(included, 1.0 if clip else 3.0, 0.0)
        drawn = rng.normal(0.0, noise, (1 if once else 20, len(included)))
        return np.asarray(20 * gradient + drawn.sum(axis=0))

    return train


def flagged(runs: int, **broken: Any) -> tuple[int, int]:
    """How many of some runs are flagged by the theorem, and by the reading as Gaussian DP."""
    rng = np.random.default_rng(7)
    plain = evidence = 0
    for seed in range(runs):
        train = noisy_descent(rng, **broken)
        result = audit.one_run(train, 2000, (EPSILON, DELTA), confidence=0.95, seed=seed)
        plain += result.verdict == "violation"
        evidence += result.mu_lower > gaussian_mu(EPSILON, DELTA)
        assert (result.verdict == "suspected") == (
            result.mu_lower > gaussian_mu(EPSILON, DELTA) and result.epsilon_lower <= EPSILON
        )
    return plain, evidence


def test_correct_descent_is_not_accused() -> None:
    """Each reading errs with probability 0.05 at most: P(> 7 of 10) < 1e-7."""
    plain, evidence = flagged(10)
    assert plain == 0
    assert evidence <= 7


def test_broken_descent_is_detected() -> None:
    assert flagged(5, noise=2.0)[1] == 5
    assert flagged(5, clip=False)[1] == 5
    assert flagged(5, once=True) == (5, 5)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DomainError, match="shape"):
        audit.one_run(lambda included: included[:-1], 100, (1.0, 0.0))
    with pytest.raises(DomainError, match="canaries"):
        audit.one_run(lambda included: included, 3, (1.0, 0.0))
    with pytest.raises(DomainError, match="confidence"):
        audit.one_run(lambda included: included, 30, (1.0, 0.0), confidence=1.0)
    with pytest.raises(DomainError):
        audit.one_run(lambda included: included, 30, accountants.Gaussian(1.0))
    with pytest.raises(DomainError, match="got 3, 2, 2"):
        guess_probability(3, 2, 2, 1.0, 0.0)


def test_the_text_says_what_is_assumed_of_mu() -> None:
    rng = np.random.default_rng(0)
    text = str(audit.one_run(lambda c: c + rng.normal(0, 1, 100), 100, (1.0, 1e-5), seed=0))
    assert "if canaries are independent" in text
    assert "of 100 canaries" in text
    assert "each side" not in text


@pytest.mark.parametrize("scale", [1.0, 1e300])
def test_scores_of_two_values_tell_all(scale: float) -> None:
    """Whether most canaries are in or most are out, the higher value is guessed in."""
    for seed in range(8):
        result = audit.one_run(lambda included: scale * included, 101, (0.5, 0.0), seed=seed)
        assert (result.witness.right, result.witness.wrong) == (101, 0)


def test_a_certificate_is_a_claim() -> None:
    plan = dp.Pipeline(n=dp.dataset("rows", columns={}).count().release(dp.Laplace(scale=1)))
    result = audit.one_run(lambda included: included, 100, plan.certify(), seed=0)
    assert (result.verdict, result.epsilon) == ("violation", plan.certify().epsilon)


@pytest.mark.parametrize("shift", [0.0, pytest.param(3.0, marks=pytest.mark.slow)])
def test_a_rule_that_is_fitted_to_the_scores_shows_no_more_than_mu(shift: float) -> None:
    """Independent Gaussian scores with mu = 1: the bound of each run errs with 0.05 at most.

    P(Bin(60, 0.05) > 15) < 1e-7.
    """
    rng = np.random.default_rng(5)
    above = 0
    for seed in range(60):
        result = audit.one_run(
            lambda c: shift + c + rng.normal(0, 1, len(c)), 200, (4.0, 1e-5), seed=seed
        )
        above += result.mu_lower > 1.0
    assert above <= 15


@pytest.mark.parametrize("delta", [1e-15, 1e-9, 0.5])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 50.0])
def test_any_claim_is_read_as_mu(epsilon: float, delta: float) -> None:
    assert 0 < gaussian_mu(epsilon, delta) < 100


def test_scores_that_are_no_numbers_are_scores() -> None:
    result = audit.one_run(lambda c: np.where(c, np.nan, -np.inf), 100, (1.0, 0.0), seed=0)
    assert result.verdict != "violation"


CANARIES = 200
ROUNDS, CLIP, SIGMA = 4, 0.25, 0.5


def descent(clip: float) -> dp.Pipeline:
    """The library's clipped gradients of one-hot rows: each of norm 1/2, before it is clipped."""
    names = [f"x{i}" for i in range(CANARIES)]
    columns: Any = {**dict.fromkeys(names, (-1.0, 1.0)), "y": ["no", "yes"]}
    rows = dp.dataset("rows", columns=columns).examples(names, "y", norm=1.0, intercept=False)
    start: Any = dp.public([[0.0] * CANARIES])

    def step(state: Any, rows: Any) -> Any:
        query = rows.gradients(dp.Logistic(), at=start).sum(clip=clip)
        return query.release(dp.Gaussian(sigma=SIGMA))

    return dp.Pipeline(last=dp.repeat(step, ROUNDS, rows, start=0.0)).with_delta(1e-5)


@pytest.mark.parametrize(("clip", "refuted"), [(CLIP, False), (1.0, True)])
def test_descent_of_the_library_is_audited_by_its_transcript(clip: float, refuted: bool) -> None:
    """What is certified for one norm holds for it; a norm that clips nothing breaks it."""
    certificate = descent(CLIP).certify()

    def train(included: Any) -> Any:
        eye = np.eye(CANARIES)[included]
        data: dict[str, Any] = {f"x{i}": eye[:, i] for i in range(CANARIES)}
        data["y"] = ["yes"] * len(eye)
        # of one in twenty draws there is evidence against what is right
        transcript = Transcripts.of(descent(clip), {"rows": data}).one(4)
        return -np.sum([np.ravel(each) for each in transcript[:ROUNDS]], axis=0)

    result = audit.one_run(train, CANARIES, (certificate.epsilon, certificate.delta), seed=1)
    assert result.verdict == ("suspected" if refuted else "underpowered")
