"""Simulated samples some rounds apart: ratios by enumeration, deltas by integrals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import special
from test_allocated_matrix import bins
from test_banded import true_delta
from test_toeplitz import matrix, square_root

from accountants import (
    Bounds,
    Distribution,
    DomainError,
    Gaussian,
    PrivacyLoss,
    Repeated,
    Sampled,
    SimulatedDelta,
    Spend,
    Toeplitz,
    allocated_matrix_factorization,
    measure,
    simulated_matrix_factorization,
)
from accountants.testing.simulation import log_ratios


def patterns(n: int, b: int, p: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every set of rounds of a unit, by a chain of its states that started long ago.

    State 0 is free, state w must wait w rounds; the stationary law by powers of the chain.
    """
    chain = np.zeros((b, b))
    chain[0, 0] = 1 - p
    chain[0, b - 1] += p
    for wait in range(1, b):
        chain[wait, wait - 1] = 1.0
    start = np.linalg.matrix_power((chain + np.eye(b)) / 2, 10**5)[0]
    for taken in itertools.product((False, True), repeat=n):
        state = start.copy()
        for here in taken:
            following = np.zeros(b)
            if here:
                following[b - 1] = p * state[0]
            else:
                following[0] = (1 - p) * state[0]
                following[: b - 1] += state[1:]
            state = following
        if state.sum() > 0:
            yield tuple(np.flatnonzero(taken).tolist()), float(state.sum())


@pytest.mark.parametrize(("n", "b", "p"), [(6, 1, 0.3), (6, 2, 0.3), (7, 3, 0.8), (5, 7, 0.5)])
def test_ratios_are_those_of_all_sets_of_rounds(n: int, b: int, p: float) -> None:
    encoder = Toeplitz([0.9, 0.5, 0.2][: min(b, n)], n)
    rows = np.random.default_rng(1).normal(0.3, 1.5, (20, n))
    chances = dict(patterns(n, b, p))
    assert math.isclose(sum(chances.values()), 1.0, rel_tol=1e-9)
    means = {s: matrix(encoder)[:, list(s)].sum(axis=1) for s in chances}
    exact = np.log(sum(chances[s] * np.exp(rows @ m - m @ m / 2) for s, m in means.items()))
    np.testing.assert_allclose(log_ratios(encoder, b, p, rows), exact, atol=1e-9)


@pytest.mark.parametrize(("n", "b"), [(6, 1), (6, 2), (7, 3), (4, 6)])
def test_bins_are_both_a_mean_and_the_limit_of_the_recursion(n: int, b: int) -> None:
    rows = np.random.default_rng(2).normal(0.3, 1.5, (20, n))
    banded, full = (Toeplitz(square_root(k) * 0.8, n) for k in (min(b, n), n))
    for encoder in (banded, full):
        means = [matrix(encoder)[:, list(s)].sum(axis=1) for s, _ in bins(n, b)]
        exact = np.log(np.mean([np.exp(rows @ m - m @ m / 2) for m in means], axis=0))
        np.testing.assert_allclose(log_ratios(encoder, b, 1.0, rows), exact, atol=1e-11)
    nearly = log_ratios(banded, b, 1 - 1e-9, rows)
    np.testing.assert_allclose(nearly, log_ratios(banded, b, 1.0, rows), atol=1e-5)


def simulated(
    encoder: Toeplitz, sigma: float, b: int, p: float, epsilon: float, draws: int = 40_000
) -> SimulatedDelta:
    return simulated_matrix_factorization(
        encoder,
        sigma,
        separation=b,
        rate=p,
        epsilon=epsilon,
        draws=draws,
        rng=np.random.default_rng(7),
        failure=1e-9,
    )


def test_poisson_samples_are_those_of_the_accountant() -> None:
    term = Repeated(Sampled(Spend(Gaussian(1.0)), 0.2), 12)
    for epsilon in (0.2, 1.5):
        truth = measure(term, Distribution(), epsilon=epsilon).bounds
        assert truth is not None
        answer = simulated(Toeplitz([1.0], 12), 1.0, 1, 0.2, epsilon)
        assert answer.lower <= truth.lower <= truth.upper <= answer.upper
        assert abs(answer.estimate - truth.upper) < 0.05 * truth.upper


@pytest.mark.parametrize(("b", "p"), [(2, 0.4), (3, 0.7), (2, 1.0), (3, 1.0)])
def test_deltas_are_integrals_over_the_outcomes(b: int, p: float) -> None:
    encoder = Toeplitz([1.0, 0.6], 3)
    coins = [(s, c) for s, c in (bins(3, b) if p == 1 else patterns(3, b, p)) if c > 0]
    truth = true_delta(matrix(encoder), coins, 1.0, 0.5)
    answer = simulated(encoder, 1.0, b, p, 0.5, 100_000)
    assert answer.lower < truth < answer.upper
    assert answer.upper - answer.lower < 0.15 * truth


def test_the_proven_bound_of_bins_is_above() -> None:
    for c in (square_root(3), square_root(40)):
        encoder = Toeplitz(c, 40)
        bound = measure(
            allocated_matrix_factorization(encoder, 4.0, 10), Distribution(), epsilon=0.5
        ).bounds
        answer = simulated(encoder, 4.0, 10, 1.0, 0.5)
        assert bound is not None
        assert answer.lower < bound.upper < 10 * answer.estimate


def test_no_draw_is_no_proof() -> None:
    """Where nothing was seen, the interval says so; nothing of it is a loss or a bracket."""
    answer = simulated(Toeplitz([1.0], 4), 5.0, 2, 0.1, 8.0, 1000)
    assert answer.estimate == answer.lower == 0.0
    # n draws without a hit: delta < 1 - share^(1/n)
    assert answer.upper >= -math.expm1(math.log(1e-9 / 4) / 1000)
    assert not isinstance(answer, Bounds | PrivacyLoss)
    with pytest.raises(DomainError, match="PrivacyLoss"):
        Spend(answer)  # type: ignore[arg-type]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """At a failure of 0.3 some of 200 are wrong, and no more than that but by chance of 1e-6."""
    truth = 2 * float(special.ndtr(0.5)) - 1
    wrong = 0
    rng = np.random.default_rng(3)
    for _ in range(200):
        answer = simulated_matrix_factorization(
            Toeplitz([1.0], 1),
            1.0,
            separation=1,
            rate=1.0,
            epsilon=0.0,
            draws=50,
            rng=rng,
            failure=0.3,
        )
        wrong += not answer.lower <= truth <= answer.upper
    # Hoeffding: 60 expected at most, exceeded by 38 with probability below 1e-6
    assert 0 < wrong <= 98


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 0.0},
        {"rate": 1.1},
        {"separation": 0},
        {"separation": 1},
        {"epsilon": -1.0},
        {"draws": 0},
        {"failure": 0.0},
        {"noise_multiplier": 0.0},
        {"encoder": Toeplitz([1.0, -0.5], 4)},
    ],
)
def test_refusals(change: dict[str, object]) -> None:
    asked = {
        "encoder": Toeplitz([1.0, 0.5], 4),
        "noise_multiplier": 1.0,
        "separation": 2,
        "rate": 0.5,
        "epsilon": 1.0,
        "draws": 10,
        "rng": np.random.default_rng(1),
    }
    with pytest.raises(DomainError):
        simulated_matrix_factorization(**(asked | change))  # type: ignore[arg-type]
