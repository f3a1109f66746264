"""Encoders given by their coefficients: brute force over rounds, and the matrix they stand for."""

from __future__ import annotations

import math
import time

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from scipy import linalg
from test_tree import exact_square

from accountants import (
    DomainError,
    Gaussian,
    Toeplitz,
    World,
    banded_matrix_factorization,
    column_sensitivity,
    from_json,
    matrix_factorization,
    participation_sensitivity,
    to_json,
    worlds,
)
from accountants.losses.gaussian import GaussianBound


def square_root(n: int) -> np.ndarray:
    return np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, n)))


def matrix(encoder: Toeplitz) -> np.ndarray:
    column = np.zeros(encoder.rounds)
    column[: len(encoder.coefficients)] = encoder.coefficients
    return np.asarray(linalg.toeplitz(column, np.zeros(encoder.rounds)))


FALLING = [
    square_root(9),
    square_root(4),
    np.append(1.0, np.array([0.3, 0.2]) @ np.array([[0.9], [0.5]]) ** np.arange(8)),
    np.sort(np.random.default_rng(5).uniform(0, 1, 9))[::-1],
    np.ones(7),
]
PATTERNS = [(1, 1), (2, 1), (2, 3), (3, 2), (4, 2), (9, 1), (3, 20), (10**6, 4)]


@pytest.mark.parametrize(("k", "b"), PATTERNS)
@pytest.mark.parametrize("coefficients", FALLING)
def test_falling_coefficients_are_exact(coefficients: np.ndarray, k: int, b: int) -> None:
    compact = Toeplitz(coefficients, 9)
    full = matrix(compact)
    exact = mp.sqrt(exact_square(full, min(k, 9), b))
    for encoder in (compact, full):
        computed = participation_sensitivity(encoder, k, b)
        assert truth.real(computed) >= exact
        truth.within(computed, exact, 1e-13)
    assert isinstance(matrix_factorization(compact, 1.0, k, b), Gaussian)


@pytest.mark.parametrize(("k", "b"), PATTERNS)
def test_other_coefficients_are_bounded(k: int, b: int) -> None:
    draw = np.random.default_rng(k + b)
    for coefficients in (draw.normal(size=8), np.arange(1.0, 8), draw.normal(size=3), [0.0, 1.0]):
        compact = Toeplitz(coefficients, 8)
        full = matrix(compact)
        exact = mp.sqrt(exact_square(full, min(k, 8), b))
        computed = participation_sensitivity(compact, k, b)
        assert truth.real(computed) >= exact
        assert truth.real(participation_sensitivity(full, k, b)) >= exact
        assert participation_sensitivity(full, k, b) <= computed * (1 + 1e-13)
        if k == 1 or len(coefficients) <= b:
            truth.within(computed, exact, 1e-13)
        elif np.min(coefficients) < 0:
            assert isinstance(matrix_factorization(compact, 1.0, k, b), GaussianBound)


def test_a_gaussian_is_claimed_only_where_it_is_attained() -> None:
    """Rows of 1 in rounds 0, b, 2b, ... move C by as much as is claimed, or it is a bound."""
    draw = np.random.default_rng(2)
    seen = set()
    for coefficients in (*FALLING, draw.uniform(size=7), draw.normal(size=4), -square_root(5)):
        encoder = Toeplitz(coefficients, 9)
        for k, b in [(2, 3), (3, 2), (2, 4), (4, 1)]:
            loss = matrix_factorization(encoder, 1.0, k, b)
            moved = np.linalg.norm(matrix(encoder)[:, np.arange(k) * b].sum(axis=1))
            seen.add(type(loss))
            if isinstance(loss, Gaussian):
                assert math.isclose(loss.mu(), moved, rel_tol=1e-12)
    assert seen == {Gaussian, GaussianBound}


@pytest.mark.parametrize(("n", "bands"), [(6, 2), (7, 3), (7, 7), (8, 3), (5, 1), (3, 9)])
def test_the_first_group_is_the_costliest(n: int, bands: int) -> None:
    compact = Toeplitz(np.random.default_rng(n).uniform(0.1, 1, min(bands, n)), n)
    term = banded_matrix_factorization(compact, 1.0, bands, 0.2)
    assert from_json(to_json(term)) == term
    # of the matrix all groups are priced, and those that another one exceeds are pruned
    [mine], [theirs] = (
        worlds(each)
        for each in (term, banded_matrix_factorization(matrix(compact), 1.0, bands, 0.2))
    )
    assert sum(mine.spends.values()) == sum(theirs.spends.values()) == math.ceil(n / bands)
    for ours, full in zip(spent(mine), spent(theirs), strict=True):
        assert math.isclose(ours, full, rel_tol=1e-13)


def spent(world: World) -> list[float]:
    mus = [(loss.body.gaussian_mu(), times) for loss, times in world.spends.items()]  # type: ignore[attr-defined]
    return sorted(mu for mu, times in mus for _ in range(times))


def test_a_hundred_thousand_rounds() -> None:
    n, start = 100_000, time.process_time()
    root = Toeplitz(square_root(n), n)
    assert math.isclose(column_sensitivity(root), np.linalg.norm(square_root(n)), rel_tol=1e-12)
    # every round of n: the norm of the prefix sums of c, which are (2i + 1) c_i
    every = np.linalg.norm((2 * np.arange(n) + 1.0) * square_root(n))
    assert math.isclose(participation_sensitivity(root, n, 1), every, rel_tol=1e-9)
    assert participation_sensitivity(root, n, 1) >= every * (1 - 1e-12)
    assert participation_sensitivity(root, 10, 10_000) < 10 * column_sensitivity(root)
    banded = Toeplitz(square_root(1000), n)
    [world] = worlds(banded_matrix_factorization(banded, 1.0, 1000, 0.01))
    assert sum(world.spends.values()) == 100
    squares = participation_sensitivity(banded, n, 1000) ** 2
    assert math.isclose(squares, 100 * column_sensitivity(banded) ** 2, rel_tol=1e-12)
    assert time.process_time() - start < 5


def test_extreme_coefficients() -> None:
    for scale in (1e-99, 1e99):
        c = scale * square_root(5)
        assert math.isclose(
            participation_sensitivity(Toeplitz(c, 9), 2, 2) / scale,
            participation_sensitivity(Toeplitz(square_root(5), 9), 2, 2),
            rel_tol=1e-12,
        )
    tiny = Toeplitz([1.0, 1e-200, 5e-324], 9)
    assert participation_sensitivity(tiny, 3, 1) >= math.sqrt(3)
    assert participation_sensitivity(Toeplitz([0.0], 3), 2) <= 1e-323


@pytest.mark.parametrize(
    "make",
    [
        lambda: Toeplitz([], 3),
        lambda: Toeplitz(1.0, 3),
        lambda: Toeplitz([[1.0]], 3),
        lambda: Toeplitz([1.0, [2.0]], 3),  # type: ignore[arg-type]
        lambda: Toeplitz([1.0, math.nan], 3),
        lambda: Toeplitz([1.0, 0.5], 1),
        lambda: Toeplitz([1.0], 0),
        lambda: banded_matrix_factorization(Toeplitz([1.0, 0.5, 0.1], 5), 1.0, 2, 0.1),
        lambda: participation_sensitivity(Toeplitz([1.0], 4), 0),
    ],
)
def test_refusals(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()
