"""Banded correlated noise on Poisson samples: integrals over the outcomes of the mechanism itself.

The truth knows no blocks and no sampled Gaussians: it is the density of all rounds' outcomes with
the unit, a mixture over every way that its coins may fall, against that without it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from accountants import (
    Distribution,
    DomainError,
    Renyi,
    Sampled,
    Sequential,
    Spend,
    Term,
    banded_matrix_factorization,
    certify,
    column_sensitivity,
    from_json,
    matrix_factorization,
    measure,
    to_json,
    worlds,
)
from accountants.losses.gaussian import Gaussian

EPSILONS = (0.0, 0.5, 2.5)


def banded(n: int, bands: int, seed: int = 0) -> np.ndarray:
    """Random entries, none negative, on the diagonal and the bands below it."""
    full = np.random.default_rng(seed).uniform(0.2, 1.0, (n, n))
    return np.tril(full) - np.tril(full, -bands)


def log_sum(terms: np.ndarray) -> np.ndarray:
    most = terms.max(axis=0)
    return np.asarray(most + np.log(np.exp(terms - most).sum(axis=0)))


def true_delta(  # type: ignore[no-untyped-def]
    encoder: np.ndarray,
    coins: list[tuple[tuple[int, ...], float]],
    sigma: float,
    epsilon: float,
    unit: Callable[[np.ndarray, int], np.ndarray] = lambda earlier, j: np.ones(earlier.shape[1]),
) -> float:
    """delta(epsilon), the larger direction, of rows of one number.

    ``coins`` are the sets of rounds that the unit may be in, with their probabilities. Its value in
    round j may depend on the rows before j (``unit``, which gives numbers in [0, 1]). The other
    units add nothing: what they add is known from earlier rows and is subtracted. All rows but
    the last are integrated by the trapezoidal rule, which for such functions converges faster than
    any power; over the last, in which the ratio rises, the densities are half-lines.
    """
    n = len(encoder)
    reach = 8.0 + np.abs(encoder).sum() / sigma
    grid = np.linspace(-8.0, reach, {2: 8000, 3: 120}[n])
    earlier = np.array(np.meshgrid(*[grid] * (n - 1), indexing="ij")).reshape(n - 1, -1)
    # in units of sigma; the rows' means for each set of rounds
    values = [unit(earlier[:j], j) if j else np.ones(earlier.shape[1]) for j in range(n)]
    logs, ends = [], []
    for rounds, chance in coins:
        mean = [sum(encoder[i, j] * values[j] for j in rounds) / sigma for i in range(n)]
        mean = [np.broadcast_to(m, earlier.shape[1:]) for m in mean]
        log = math.log(chance) + sum(m * y - m * m / 2 for m, y in zip(mean, earlier, strict=False))
        logs.append(np.broadcast_to(log, earlier.shape[1:]))
        ends.append(mean[-1])
    weight, last = np.array(logs), np.array(ends)
    cell = np.exp(-(earlier**2).sum(axis=0) / 2) * (
        (grid[1] - grid[0]) / math.sqrt(2 * math.pi)
    ) ** (n - 1)

    def last_row_where_ratio_is(log_ratio: float) -> np.ndarray:
        low, high = np.full(earlier.shape[1], -40.0), np.full(earlier.shape[1], 40.0 + reach)
        # a root off by 1e-7 takes 1e-13 or so: at the root the difference of the densities is 0
        for _ in range(30):
            middle = (low + high) / 2
            is_below = log_sum(weight + last * (middle - last / 2)) < log_ratio
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return high

    x = last_row_where_ratio_is(epsilon)
    removal = (np.exp(weight) * special.ndtr(last - x)).sum(axis=0) - math.exp(
        epsilon
    ) * special.ndtr(-x)
    x = last_row_where_ratio_is(-epsilon)
    addition = special.ndtr(x) - math.exp(epsilon) * (np.exp(weight) * special.ndtr(x - last)).sum(
        axis=0
    )
    return max(float(removal @ cell), float(addition @ cell))


def in_turn(n: int, bands: int, group: int, rate: float) -> list[tuple[tuple[int, ...], float]]:
    """Every set of rounds of a unit of that group, with its probability."""
    rounds = range(group, n, bands)
    return [
        (chosen, rate**k * (1 - rate) ** (len(rounds) - k))
        for k in range(len(rounds) + 1)
        for chosen in itertools.combinations(rounds, k)
    ]


def claimed(term: Term, epsilons: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of delta at each epsilon, the costliest world's."""
    accountant, ends = Distribution(), []
    for world in worlds(term):
        state = accountant.start()
        for loss, times in world.spends.items():
            state = accountant.compose(state, loss, times)
        ends.append(accountant.profile(state, np.array(epsilons)))
    lower, upper = np.array(ends).max(axis=0)
    return lower, upper


@pytest.mark.parametrize(
    ("n", "bands", "rate", "sigma"),
    [(2, 1, 0.3, 1.0), (2, 2, 0.5, 0.7), (3, 2, 0.1, 1.5), (3, 2, 0.6, 0.5)],
)
def test_the_claim_is_the_truth_of_the_worst_group(
    n: int, bands: int, rate: float, sigma: float
) -> None:
    c = banded(n, bands)
    term = banded_matrix_factorization(c, sigma, bands, rate)
    truth = np.array(
        [
            max(true_delta(c, in_turn(n, bands, g, rate), sigma, epsilon) for g in range(bands))
            for epsilon in EPSILONS
        ]
    )
    lower, upper = claimed(term, EPSILONS)
    assert np.all(lower * (1 - 1e-11) <= truth)
    assert np.all(truth <= upper * (1 + 1e-11))
    assert np.all(upper - lower <= 1e-6 * truth)


def test_rows_that_follow_what_was_released_cost_no_more() -> None:
    c, rate = banded(3, 2, seed=1), 0.4
    [upper] = claimed(banded_matrix_factorization(c, 0.8, 2, rate), (0.5,))[1]

    def cautious(earlier: np.ndarray, j: int) -> np.ndarray:
        return np.asarray(special.expit(2 * earlier.sum(axis=0)))

    true = true_delta(c, in_turn(3, 2, 0, rate), 0.8, 0.5, cautious)
    assert 0.5 * upper < true < 0.99 * upper


def test_a_unit_in_rounds_whose_bands_overlap_costs_more() -> None:
    """Plain Poisson sampling in each round: a sampled Gaussian for each column under-reports."""
    c, rate = banded(2, 2), 0.3
    everyone = in_turn(2, 1, 0, rate)
    naive = Sequential([Sampled(Spend(Gaussian(mu)), rate) for mu in np.linalg.norm(c, axis=0)])
    upper = claimed(naive, EPSILONS)[1]
    truth = np.array([true_delta(c, everyone, 1.0, epsilon) for epsilon in EPSILONS])
    assert np.all(upper < 0.98 * truth)
    # what the naive sequence is right for: the same columns, made orthogonal
    apart = np.diag(np.linalg.norm(c, axis=0))
    np.testing.assert_allclose(upper[1], true_delta(apart, everyone, 1.0, EPSILONS[1]), rtol=1e-7)


def test_an_encoder_with_more_bands_is_refused() -> None:
    for encoder in (banded(5, 3), banded(5, 2).T, np.eye(5)[:, :4]):
        with pytest.raises(DomainError, match=r"bands|square"):
            banded_matrix_factorization(encoder, 1.0, 2, 0.1)
    with pytest.raises(DomainError, match="rate"):
        banded_matrix_factorization(np.eye(2), 1.0, 2, 1.1)


def test_a_toeplitz_encoder_is_the_published_bound() -> None:
    """ceil(n / b) rounds of the largest norm: attained by the first group if b divides n."""
    n, bands, rate, sigma = 12, 3, 0.05, 0.9
    c = sum(v * np.eye(n, k=-k) for k, v in enumerate([1.0, 0.5, 0.375]))
    [world] = worlds(banded_matrix_factorization(c, sigma, bands, rate))
    [(loss, times)] = world.spends.items()
    assert times == n // bands
    assert loss.rate == rate  # type: ignore[attr-defined]
    mu = math.sqrt(1 + 0.25 + 0.375**2) / sigma
    assert mu <= loss.body.gaussian_mu() <= mu * (1 + 1e-14)  # type: ignore[attr-defined]


def test_without_sampling_it_is_matrix_factorization() -> None:
    c = banded(7, 3, seed=2)
    square = max(
        sum(loss.body.gaussian_mu() ** 2 * k for loss, k in world.spends.items())  # type: ignore[attr-defined]
        for world in worlds(banded_matrix_factorization(c, 2.0, 3, 1.0))
    )
    known = matrix_factorization(c, 2.0, participations=3, separation=3).mu()
    assert math.isclose(square, known**2, rel_tol=1e-12)


def test_tiny_columns_and_bands_beyond_the_last_round() -> None:
    c = np.diag([1.0, 1e-250, 5e-324, 0.0])
    term = banded_matrix_factorization(c, 1.0, 9, 1.0)
    assert len(term.choices) == 4
    spent = [choice.parts[0].part.part.loss.mu() for choice in term.choices]  # type: ignore[attr-defined]
    assert all(mu >= exact for mu, exact in zip(spent, np.diag(c), strict=True))
    assert spent[1] <= 1e-250 * (1 + 1e-14)
    assert spent[3] <= 1e-323
    assert column_sensitivity(c) >= 1.0


def test_a_document_holds_it_and_all_accountants_agree() -> None:
    term = banded_matrix_factorization(banded(6, 2), 1.0, 2, 0.1)
    assert from_json(to_json(term)) == term
    truth = measure(term, Distribution(), delta=1e-5).bounds
    assert measure(term, Renyi(), delta=1e-5).bounds.upper >= truth.lower
    assert all(
        answer.bounds is None or answer.bounds.upper >= truth.lower
        for answer in certify(term, delta=1e-5).values()
    )
