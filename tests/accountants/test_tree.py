"""Tree aggregation and matrix factorization: nodes by enumeration, sensitivities by brute force."""

from __future__ import annotations

import itertools
import math

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest

from accountants import DomainError, Gaussian, Repeated, Spend, certify
from accountants.losses.gaussian import GaussianBound
from accountants.losses.tree import (
    column_sensitivity,
    matrix_factorization,
    participation_sensitivity,
    tree_aggregation,
    tree_nodes,
)


def nodes_of_leaves(rounds: int, padded: bool) -> int:
    """The largest number of released dyadic intervals that a leaf lies in."""
    size = 1
    while size < rounds:
        size *= 2
    most = 0
    for leaf in range(rounds):
        width, count = 1, 0
        while width <= size:
            start = leaf // width * width
            count += padded or start + width <= rounds
            width *= 2
        most = max(most, count)
    return most


@pytest.mark.parametrize("padded", [False, True])
def test_nodes_by_enumeration(padded: bool) -> None:
    for rounds in [*range(1, 70), 127, 128, 129, 1000, 1023, 1024, 1025]:
        assert tree_nodes(rounds, padded=padded) == nodes_of_leaves(rounds, padded)


def test_a_thousand_rounds() -> None:
    loss = tree_aggregation(noise_multiplier=3.0, rounds=1000)
    alpha = np.array([2.0, 7.5])
    exact = 11 * alpha / (2 * 9.0)
    assert np.all(loss.renyi(alpha) >= exact)
    np.testing.assert_allclose(loss.renyi(alpha), exact, rtol=1e-14)
    # a prefix of at most 1000 leaves is at most 10 nodes (the padded tree's root is of 1024)
    assert max(i.bit_count() for i in range(1, 1001)) <= 10


def test_tree_encoder_has_the_tree_s_sensitivity() -> None:
    rows = []
    for width in (1, 2, 4, 8, 16):
        for start in range(0, 16, width):
            row = np.zeros(13)
            row[start : start + width] = 1
            rows.append(row)
    assert math.isclose(column_sensitivity(rows) ** 2, tree_nodes(13), rel_tol=1e-13)


def patterns(n: int, k: int, b: int):  # type: ignore[no-untyped-def]
    for m in range(1, k + 1):
        for chosen in itertools.combinations(range(n), m):
            if all(right - left >= b for left, right in itertools.pairwise(chosen)):
                yield list(chosen)


def exact_square(c: np.ndarray, k: int, b: int) -> mp.mpf:
    """The largest sum of |X_ij| over a pattern, from the floats exactly."""
    rows = [[truth.real(float(v)) for v in row] for row in c]
    n = c.shape[1]
    x = [[abs(mp.fsum(r[i] * r[j] for r in rows)) for j in range(n)] for i in range(n)]
    return max(mp.fsum(x[i][j] for i in p for j in p) for p in patterns(n, k, b))


def encoders():  # type: ignore[no-untyped-def]
    draw = np.random.default_rng(7)
    yield np.tril(np.ones((8, 8)))
    yield np.linalg.cholesky(np.tril(np.ones((7, 7))).T @ np.tril(np.ones((7, 7)))).T
    yield np.abs(draw.normal(size=(5, 8)))
    yield draw.normal(size=(6, 8))
    root = [1.0]
    for i in range(1, 9):
        root.append(root[-1] * (2 * i - 1) / (2 * i))
    yield np.array([[root[i - j] if i >= j else 0.0 for j in range(9)] for i in range(9)])


@pytest.mark.parametrize(("k", "b"), [(1, 1), (2, 1), (2, 3), (3, 2), (4, 2), (9, 1), (3, 20)])
def test_participation_is_never_below_brute_force(k: int, b: int) -> None:
    for c in encoders():
        computed = participation_sensitivity(c, k, b)
        assert truth.real(computed) ** 2 >= exact_square(c, k, b)


@pytest.mark.parametrize(("k", "b"), [(2, 2), (3, 2), (2, 3), (4, 3), (9, 3)])
def test_banded_encoders_are_exact(k: int, b: int) -> None:
    draw = np.random.default_rng(3)
    for n in (5, 9):
        c = np.array(
            [[draw.uniform(0.1, 1) if 0 <= i - j < b else 0.0 for j in range(n)] for i in range(n)]
        )
        truth.within(participation_sensitivity(c, k, b), mp.sqrt(exact_square(c, k, b)), 1e-12)


def test_all_rounds_together_are_exact() -> None:
    """One round apart, as many as there are: every set is allowed, the full one is the worst."""
    c = np.tril(np.ones((6, 6)))
    exact = mp.sqrt(truth.real(float((c.T @ c).sum())))
    truth.within(participation_sensitivity(c, 6, 1), exact, 1e-12)


def test_vectors_move_no_further() -> None:
    """Rows u_i of norm 1 in several dimensions, signs mixed."""
    draw = np.random.default_rng(11)
    for c in encoders():
        bound = participation_sensitivity(c, 3, 2)
        for chosen in patterns(c.shape[1], 3, 2):
            u = draw.normal(size=(len(chosen), 3))
            u /= np.linalg.norm(u, axis=1)[:, None]
            assert np.linalg.norm(c[:, chosen] @ u) <= bound


def test_large_encoder_is_fast_enough() -> None:
    c = np.tril(np.ones((400, 400)))
    assert participation_sensitivity(c, 4, 100) >= math.sqrt(400)


def test_matrix_factorization_under_every_accountant() -> None:
    c = np.tril(np.ones((6, 6)))
    loss = matrix_factorization(c, 30.0)
    assert isinstance(loss, Gaussian)
    assert math.isclose(loss.mu(), math.sqrt(6) / 30)
    several = matrix_factorization(c, 30.0, participations=2, separation=3)
    assert isinstance(several, GaussianBound)
    for each in (loss, several):
        for name, answer in certify(Repeated(Spend(each), 3), 1e-5).items():
            assert answer.bounds is not None, name
    answers = certify(Spend(several), 1e-5)
    assert answers["gaussian"].bounds.lower == 0.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tree_nodes(0),
        lambda: tree_aggregation(0.0, 10),
        lambda: column_sensitivity([1.0, 2.0]),
        lambda: column_sensitivity([[math.nan]]),
        lambda: column_sensitivity([["a"]]),
        lambda: column_sensitivity([[1e200]]),
        lambda: participation_sensitivity([[1.0]], 0),
        lambda: participation_sensitivity([[1.0]], 1, 0),
        lambda: matrix_factorization([[1.0]], -1.0),
    ],
)
def test_bad_parameters(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()
