"""Correlated noise on balls-and-bins batches: integrals over the outcomes of all rounds.

As in `test_banded`, the truth is the density of the rounds' outcomes with the unit, a mixture over
its bins, against that without it: it knows nothing of Gram matrices, nor of allocations.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy import special
from test_banded import EPSILONS, banded, claimed, true_delta
from test_toeplitz import matrix, square_root

from accountants import (
    Allocated,
    Distribution,
    DomainError,
    Sequential,
    Spend,
    Term,
    Toeplitz,
    allocated_matrix_factorization,
    confidence,
    from_json,
    matrix_factorization,
    measure,
    to_json,
    worlds,
)
from accountants.losses.gaussian import Gaussian, GaussianBound


def bins(n: int, batches: int) -> list[tuple[tuple[int, ...], float]]:
    """The rounds of each bin, all equally likely."""
    return [(tuple(range(j, n, batches)), 1 / batches) for j in range(batches)]


CASES = [
    (np.eye(2), 2, 1.0),
    (np.tril(np.ones((2, 2))), 2, 1.5),
    (banded(2, 2), 1, 0.8),
    (banded(3, 1), 2, 1.0),
    (banded(3, 2), 2, 1.2),
    (banded(3, 3), 3, 0.7),
    (banded(3, 2, seed=4), 3, 2.0),
    (matrix(Toeplitz(square_root(3), 3)), 3, 1.0),
    (np.array([[1.0, 0, 0], [0, 1, 0], [0.9, 0.4, 0.1]]), 3, 1.0),
    # the first bin shares with the last one alone
    (np.array([[0.1, 0, 0], [0, 1, 0], [1, 0, 1]]), 3, 1.0),
    (banded(2, 2), 5, 1.0),
]


@pytest.mark.parametrize(("encoder", "batches", "sigma"), CASES)
def test_the_bound_is_never_below_the_truth(
    encoder: np.ndarray, batches: int, sigma: float
) -> None:
    n = len(encoder)
    lower, upper = claimed(allocated_matrix_factorization(encoder, sigma, batches), EPSILONS)
    for low, high, epsilon in zip(lower, upper, EPSILONS, strict=True):
        truth = true_delta(encoder, bins(n, batches), sigma, epsilon)
        assert low * (1 - 1e-11) <= truth <= high * (1 + 1e-11)


@pytest.mark.parametrize(("n", "own", "common"), [(2, 1.5, 0.9), (3, 1.0, 0.4), (3, 0.5, 0.5)])
def test_bins_that_share_alike_cost_what_is_claimed(n: int, own: float, common: float) -> None:
    """Then no step of the proof loses anything but the spread of the allocation's ratios."""
    gram = common + np.diag(np.full(n, own - common + 1e-9))
    # lower triangular, with that Gram matrix of its columns
    encoder = np.linalg.cholesky(gram).T[::-1, ::-1]
    term = allocated_matrix_factorization(encoder, 1.0, n)
    truth = [true_delta(encoder, bins(n, n), 1.0, epsilon) for epsilon in EPSILONS]
    upper = claimed(term, EPSILONS)[1]
    assert np.all(upper * (1 + 1e-6) >= truth)
    np.testing.assert_allclose(upper, truth, rtol=2e-3)


@pytest.mark.parametrize("batches", [2, 3])
def test_rows_that_follow_what_was_released_cost_no_more(batches: int) -> None:
    encoder = banded(3, 3, seed=1)
    [upper] = claimed(allocated_matrix_factorization(encoder, 0.8, batches), (0.5,))[1]
    fixed = true_delta(encoder, bins(3, batches), 0.8, 0.5)

    def cautious(earlier: np.ndarray, j: int) -> np.ndarray:
        return np.asarray(special.expit(2 * earlier.sum(axis=0)))

    def bold(earlier: np.ndarray, j: int) -> np.ndarray:
        return np.asarray(earlier[-1] > 0.3, dtype=np.float64)

    for unit in (cautious, bold):
        # rows of norm 1, whatever happens, are the worst: that step of the proof, on its own
        assert true_delta(encoder, bins(3, batches), 0.8, 0.5, unit) < fixed * (1 + 1e-6)
    assert fixed < upper


def test_negative_entries_are_counted_by_their_size() -> None:
    """Rows may change their signs from round to round: the truth on a fine grid, for two rounds."""
    grid = np.linspace(-9, 9, 601)
    y = np.array(np.meshgrid(grid, grid, indexing="ij"))
    cell = np.exp(-(y**2).sum(axis=0) / 2) / (2 * math.pi) * (grid[1] - grid[0]) ** 2
    for encoder in (np.array([[1.0, 0], [-0.7, 0.9]]), np.array([[1.0, 0], [0.7, -0.9]])):
        for signs in ([1, 1], [1, -1]):
            means = encoder * signs
            ratio = np.mean([np.exp(np.tensordot(m, y, 1) - m @ m / 2) for m in means.T], axis=0)
            term = allocated_matrix_factorization(encoder, 1.0, 2)
            for epsilon, upper in zip(EPSILONS, claimed(term, EPSILONS)[1], strict=True):
                removal = (np.maximum(ratio - math.exp(epsilon), 0) * cell).sum()
                addition = (np.maximum(1 - math.exp(epsilon) * ratio, 0) * cell).sum()
                assert max(removal, addition) <= upper * (1 + 1e-3)


def delta(term: Term, epsilon: float) -> float:
    bounds = measure(term, Distribution(), epsilon=epsilon).bounds
    assert bounds is not None
    return bounds.upper


def test_orthogonal_columns_are_an_allocation() -> None:
    """The identity is DP-SGD on balls-and-bins batches, each bin's epochs one Gaussian."""
    for encoder in (np.eye(12), Toeplitz([1.0], 12)):
        term = allocated_matrix_factorization(encoder, 3.0, 4)
        known = Allocated(Spend(Gaussian(math.sqrt(3) / 3)), 4)
        assert math.isclose(delta(term, 0.5), delta(known, 0.5), rel_tol=1e-9)
    # at most that of as many places as there are whose bands do not overlap
    term = allocated_matrix_factorization(Toeplitz([1.0, 0.5, 0.2], 24), 3.0, 12)
    known = Allocated(Spend(Gaussian(math.sqrt(2 * 1.29) / 3)), 4)
    assert 0.5 * delta(known, 0.5) < delta(term, 0.5) < delta(known, 0.5)


def spend(mu: float) -> Spend:
    return Spend(GaussianBound(mu))


@pytest.mark.parametrize(
    ("nested", "known"),
    [
        (Allocated(Allocated(spend(0.8), 3), 4), Allocated(spend(0.8), 12)),
        (
            Allocated(Sequential([spend(0.6), Allocated(spend(0.8), 3)]), 1),
            Sequential([spend(0.6), Allocated(spend(0.8), 3)]),
        ),
        (
            Allocated(Sequential([spend(0.6), Allocated(spend(0.8), 1)]), 5),
            Allocated(spend(1.0), 5),
        ),
    ],
)
def test_nested_allocations_by_what_they_are_otherwise(nested: Term, known: Term) -> None:
    for epsilon in EPSILONS:
        # both are spread outward, one of them more often
        assert 1 - 1e-3 < delta(nested, epsilon) / delta(known, epsilon) < 1.01
        assert from_json(to_json(nested)) == nested


@pytest.mark.parametrize(("runs", "places"), [(10, 3), (4, 8)])
def test_a_nested_allocation_by_draws(runs: int, places: int) -> None:
    """Clopper and Pearson's intervals, of the ratio's own draws: wrong with probability 4e-9."""
    rng, draws, epsilon = np.random.default_rng(1), 100_000, 0.5
    log = rng.normal(size=(draws, runs, 1)) * 0.7 - 0.7**2 / 2
    log = log + rng.normal(size=(draws, runs, places)) * 0.8 - 0.8**2 / 2
    absent = np.log(np.exp(log).mean(axis=(1, 2)))
    log[:, 0] += 0.7**2
    log[:, 0, 0] += 0.8**2
    present = np.log(np.exp(log).mean(axis=(1, 2)))
    ends = []
    for loss in (present, -absent):
        hits = int((rng.random(draws) < -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())
        ends.append([bound(hits, draws, 1e-9) for bound in (confidence.lower, confidence.upper)])
    low, high = np.array(ends).max(axis=0)
    claim = delta(Allocated(Sequential([spend(0.7), Allocated(spend(0.8), places)]), runs), epsilon)
    assert low <= claim <= high
    assert high < 1.5 * low


def test_a_nested_allocation_that_is_not_followed_has_no_pair() -> None:
    for body in (Sequential([spend(4.0), Allocated(spend(4.0), 2)]), Allocated(spend(1e-12), 3)):
        [world] = worlds(Allocated(body, 3))
        [loss] = world.spends
        pair = loss.pair()
        assert pair is None or pair.is_tight() is False


@pytest.mark.parametrize(("n", "batches"), [(12, 4), (13, 5), (9, 9), (5, 7), (20, 6)])
def test_coefficients_are_cost_what_their_matrix_does(n: int, batches: int) -> None:
    draw = np.random.default_rng(n)
    for coefficients in (square_root(n), square_root(3), draw.uniform(-1, 1, n)):
        compact = Toeplitz(coefficients, n)
        mine, theirs = (
            allocated_matrix_factorization(each, 2.0, batches)
            for each in (compact, matrix(compact))
        )
        assert from_json(to_json(mine)) == mine
        for part, full in zip(squares(mine), squares(theirs), strict=True):
            assert math.isclose(part, full, rel_tol=1e-9)


def squares(term: Term) -> list[float]:
    match term:
        case Sequential(parts=parts):
            return [square for part in parts for square in squares(part)]
        case Allocated(part=part):
            return squares(part)
    return [term.loss.mu() ** 2]  # type: ignore[attr-defined]


def test_an_encoder_of_zeros_costs_nothing() -> None:
    for encoder in (np.zeros((3, 3)), Toeplitz([0.0], 3)):
        assert allocated_matrix_factorization(encoder, 1.0, 2) == Sequential([])


def test_it_is_never_above_all_rounds_unsampled() -> None:
    for c, n, batches in [(square_root(40), 40, 10), (square_root(4), 40, 10), (np.ones(6), 6, 3)]:
        sampled = allocated_matrix_factorization(Toeplitz(c, n), 2.0, batches)
        every = matrix_factorization(Toeplitz(c, n), 2.0, n // batches, batches)
        assert delta(sampled, 1.0) <= delta(Spend(GaussianBound(every.mu())), 1.0) * (1 + 1e-9)


def test_a_hundred_thousand_rounds() -> None:
    start = time.process_time()
    term = allocated_matrix_factorization(Toeplitz(square_root(64), 100_000), 8.0, 2_000)
    assert delta(term, 1.0) < delta(Spend(Gaussian(math.sqrt(sum(squares(term))))), 1.0) / 30
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "make",
    [
        lambda: allocated_matrix_factorization(np.ones((2, 2)), 1.0, 2),
        lambda: allocated_matrix_factorization(np.eye(3)[:, :2], 1.0, 2),
        lambda: allocated_matrix_factorization(np.eye(3), 1.0, 0),
        lambda: allocated_matrix_factorization(np.eye(3), 0.0, 2),
    ],
)
def test_refusals(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()
