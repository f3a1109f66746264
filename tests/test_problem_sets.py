"""Projections against brute force and an optimizer of another kind; proximal maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from scipy.optimize import minimize

from adaptive_dp import erm as pb
from adaptive_dp.erm import L1, Ridge

AXES = np.array([0.3, 1.0, 2.0, 0.8])
SETS: dict[str, Any] = {
    "ball": pb.Ball(1.3),
    "box": pb.Box(-0.5, np.array([0.5, 1.0, 2.0, 0.0])),
    "simplex": pb.Simplex(1.0),
    "large simplex": pb.Simplex(7.3),
    "ellipsoid": pb.Ellipsoid(AXES),
}
each_set = pytest.mark.parametrize("name", SETS)
points = st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4).map(np.array)
CONSTRAINTS: dict[str, list[dict[str, Any]]] = {
    "ball": [{"type": "ineq", "fun": lambda v: 1.3**2 - v @ v}],
    "box": [
        {"type": "ineq", "fun": lambda v: v + 0.5},
        {"type": "ineq", "fun": lambda v: np.array([0.5, 1.0, 2.0, 0.0]) - v},
    ],
    "simplex": [
        {"type": "ineq", "fun": lambda v: v},
        {"type": "eq", "fun": lambda v: v.sum() - 1},
    ],
    "large simplex": [
        {"type": "ineq", "fun": lambda v: v},
        {"type": "eq", "fun": lambda v: v.sum() - 7.3},
    ],
    "ellipsoid": [{"type": "ineq", "fun": lambda v: 1 - ((v / AXES) ** 2).sum()}],
}


@each_set
def test_projection_is_the_nearest_point(name: str) -> None:
    rng = np.random.default_rng(12)
    for _ in range(8):
        w = rng.normal(scale=3, size=4)
        ours = SETS[name].project(w)
        reference = minimize(
            lambda v, w=w: ((v - w) ** 2).sum() / 2,
            np.full(4, 0.0) if "simplex" not in name else np.full(4, 0.25),
            jac=lambda v, w=w: v - w,
            constraints=CONSTRAINTS[name],
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert np.allclose(ours, reference.x, atol=2e-5)
        assert np.linalg.norm(ours - w) <= np.linalg.norm(reference.x - w) + 1e-7


@each_set
@given(points, points)
@examples(150)
def test_projecting_twice_is_once_and_nothing_moves_apart(
    name: str, a: np.ndarray, b: np.ndarray
) -> None:
    one, two = SETS[name].project(a), SETS[name].project(b)
    assert np.array_equal(SETS[name].project(one), one)
    size = 1e-12 * (1 + np.abs(one).max() + np.abs(two).max())
    size += 1e-9 * np.linalg.norm(a - b) if "ellipsoid" in name else 0.0
    assert np.linalg.norm(one - two) <= np.linalg.norm(a - b) * (1 + 1e-12) + size


@each_set
@given(points, points)
@examples(80)
def test_what_is_left_points_away_from_the_set(name: str, a: np.ndarray, b: np.ndarray) -> None:
    """``(a - Pa).(v - Pa) <= 0`` for every v of the set: what characterises the projection."""
    near, v = SETS[name].project(a), SETS[name].project(b)
    size = np.linalg.norm(a - near) * (np.linalg.norm(v - near) + 1)
    assert (a - near) @ (v - near) <= 1e-9 * size


def test_points_are_within_in_floating_point() -> None:
    rng = np.random.default_rng(13)
    for _ in range(300):
        w = rng.normal(size=5) * 10.0 ** rng.uniform(-5, 150)
        near = pb.Ball(0.7).project(w)
        assert np.linalg.norm(near) <= 0.7 * (1 + 2e-16)
        assert np.linalg.norm(near) >= min(0.7 * (1 - 1e-14), np.linalg.norm(w))
        flat = pb.Simplex(1.0).project(w)
        assert flat.min() >= 0
        assert abs(math.fsum(flat) - 1) < 1e-14


def test_simplex_against_halving() -> None:
    """The threshold by bisection, without sorting."""
    rng = np.random.default_rng(14)
    for p in (1, 2, 7, 300):
        w = rng.normal(size=p)
        low, high = w.min() - 1, w.max()
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(w - middle, 0).sum() > 1 else (low, middle)
        assert np.allclose(pb.Simplex().project(w), np.maximum(w - low, 0), atol=1e-13)


@each_set
@given(points)
@examples(80)
def test_projection_errors_are_small(name: str, a: np.ndarray) -> None:
    one = SETS[name]
    assert 0 <= one.projection_error(a) <= 1e-9 * (1 + np.abs(a).max())


def test_bad_sets_are_refused_and_bad_points_stay_bad() -> None:
    with pytest.raises(ValueError, match=r"Ball\.radius"):
        pb.Ball(0.0)
    with pytest.raises(ValueError, match="Box"):
        pb.Box(1.0, 0.0)
    with pytest.raises(ValueError, match=r"Ellipsoid\.axes"):
        pb.Ellipsoid([1.0, -1.0])
    for one in SETS.values():
        assert not np.isfinite(one.project(np.array([0.0, math.nan, 0.0, 0.0]))).all()


@pytest.mark.parametrize("penalty", [Ridge(0.7), L1(0.7)])
def test_prox_minimizes(penalty: Any) -> None:
    rng, grid = np.random.default_rng(15), np.linspace(-4, 4, 80001)
    for w in rng.uniform(-3, 3, 12):
        for step in (0.1, 2.0):
            slope = 0.7 * np.abs(grid) if isinstance(penalty, L1) else 0.35 * grid**2
            best = grid[np.argmin(step * slope + (grid - w) ** 2 / 2)]
            assert penalty.prox(np.array([w]), step)[0] == pytest.approx(best, abs=1.1e-4)


def test_penalties_and_their_gradients() -> None:
    w, h = np.array([1.0, -2.0]), 1e-6
    for penalty, value in ((Ridge(3.0), 7.5), (L1(3.0), 9.0)):
        assert penalty.value(w) == pytest.approx(value)
        for j in range(2):
            e = np.eye(2)[j] * h
            slope = (penalty.value(w + e) - penalty.value(w - e)) / (2 * h)
            assert penalty.gradient(w)[j] == pytest.approx(slope, rel=1e-6)
