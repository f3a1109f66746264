"""What learners minimize, by what minimizes: certified solutions of every kind of problem."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize as peer
from test_problem import problem

from adaptive_dp import erm as pb
from adaptive_dp.erm import Curved, certify, minimize
from adaptive_dp.erm.objective import Objective

PLAIN = [pb.Logistic(), pb.SmoothedHinge(0.5), pb.HuberHinge(0.5), pb.Huber(0.5), pb.Multinomial(4)]
BOUNDED = [*PLAIN, pb.Squared(), pb.Poisson(most=2.0)]


def cases() -> dict[str, Any]:
    problems: dict[str, Any] = {}
    for loss in PLAIN:
        problems[f"{type(loss).__name__} everywhere"] = problem(loss, radius=None)
    problems["Squared everywhere"] = problem(pb.Squared(), radius=None)
    for loss in BOUNDED:
        name = type(loss).__name__
        for radius in (0.1, 5.0):  # at the boundary, inside
            problems[f"{name} in {radius}"] = problem(loss, radius=radius)
            problems[f"tilted {name} in {radius}"] = pb.Tilted(problem(loss, radius=radius), 2.5)
    for loss in (pb.Logistic(), pb.SmoothedHinge(0.5)):
        for radius in (0.1, None):
            inner = problem(loss, radius=radius)
            name = f"adversarial {type(loss).__name__} in {radius}"
            problems[name] = pb.Adversarial(inner, 0.3, smoothing=1e-3)
            problems[f"{name}, weak"] = pb.Adversarial(inner, 2.0, smoothing=1e-3)
    return problems


CASES = cases()
each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_solutions_are_certified(name: str) -> None:
    """Against SciPy's SLSQP, which knows neither the constants nor the proof."""
    one: Objective = CASES[name]
    tolerance = 1e-6 * one.strong_convexity
    solution = minimize(one, tolerance)
    assert solution.residual <= tolerance
    inner = one if isinstance(one, pb.Problem) else one.problem  # type: ignore[attr-defined]
    ball = (
        [] if inner.radius is None else [{"type": "ineq", "fun": lambda v: inner.radius**2 - v @ v}]
    )
    start = np.full(one.width, 0.01)
    reference = peer(
        one.value,
        start,
        jac=one.gradient,
        method="SLSQP" if ball else "BFGS",
        constraints=ball,
        options={"maxiter": 300, **({"ftol": 1e-15} if ball else {"gtol": 1e-9})},
    )
    assert np.linalg.norm(solution.w - reference.x) <= 2e-4
    assert one.value(solution.w) <= one.value(one.project(reference.x)) + 1e-9


@each_case
def test_second_derivatives(name: str) -> None:
    one: Any = CASES[name]
    assert isinstance(one, Curved)
    h, rng = 1e-6, np.random.default_rng(3)
    inner = one if isinstance(one, pb.Problem) else one.problem
    if isinstance(inner.loss, pb.SmoothedHinge | pb.HuberHinge | pb.Huber):
        return  # not everywhere: the search may be slower for it, the proof does not use them
    w = rng.normal(size=one.width) * 0.4
    columns = [
        (one.gradient(w + h * e) - one.gradient(w - h * e)) / (2 * h) for e in np.eye(len(w))
    ]
    np.testing.assert_allclose(one.hessian(w), np.array(columns), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("budget", [0.3, 2.0])
def test_smoothed_adversarial_risk(budget: float) -> None:
    """Above the exact risk by at most ``n L rho s``; its constants hold between any two points."""
    inner = problem(pb.Logistic(), radius=2.0)
    exact, one = pb.Adversarial(inner, budget), pb.Adversarial(inner, budget, smoothing=0.01)
    assert exact.smoothness == math.inf
    rng = np.random.default_rng(4)
    for _ in range(200):
        w, v = rng.normal(size=(2, 3)) * 10.0 ** rng.uniform(-3, 0)
        w, v = one.project(w), one.project(v)
        assert 0 <= one.value(w) - exact.value(w) <= 40 * budget * 0.01 * (1 + 1e-9)
        apart = float(np.linalg.norm(w - v))
        ga, gb = one.gradient(w), one.gradient(v)
        assert np.linalg.norm(ga - gb) <= one.smoothness * apart * (1 + 1e-9)
        assert (ga - gb) @ (w - v) >= one.strong_convexity * apart**2 * (1 - 1e-9) - 1e-12
        assert np.linalg.norm(ga) <= one.lipschitz
    with pytest.raises(ValueError, match="smoothing"):
        pb.Adversarial(inner, budget, math.inf, smoothing=0.1)


def test_rounding_of_an_adversarial_gradient() -> None:
    one = pb.Adversarial(problem(pb.Logistic(), n=500), 0.3, smoothing=1e-3)
    p, rng = one.problem, np.random.default_rng(5)
    for size in (1e-4, 1e-2, 1.0):
        w = one.project(rng.normal(size=3) * size)
        long = w.astype(np.longdouble)
        x, y = p.x.astype(np.longdouble), p.y.astype(np.longdouble)
        far = np.sqrt((long * long).sum() + np.longdouble(1e-3) ** 2)
        features = x - (np.longdouble(0.3) * y)[:, None] * (long / far)
        m = y * (x @ long) - np.longdouble(0.3) * far
        exact = ((-y / (1 + np.exp(m)))[:, None] * features).sum(axis=0) + p.ridge * long
        error = float(np.linalg.norm((exact - one.gradient(w)).astype(float)))
        assert error <= one.rounding(w) <= 1e-9


def test_kinks_leave_the_gradient_without_a_proof() -> None:
    """A subgradient of the wrong side is as far as 2 L from the right one: that is what is said."""
    one = problem(pb.Hinge(), radius=None)
    assert certify(one, np.zeros(3)).residual >= 2 * one.parts
    with pytest.raises(ValueError, match="smooth"):
        minimize(one, 0.1)


@pytest.mark.parametrize("loss", [pb.SmoothedHinge(0.02), pb.HuberHinge(0.02), pb.Huber(0.02)])
def test_kinks_of_the_gradient_do_not_stop_newton(loss: pb.Loss) -> None:
    """Values fall where the gradient's norm need not; descent alone would take 10^5 steps."""
    one = problem(loss, n=400, radius=None, ridge=1e-3)
    solution = minimize(one, 1e-6)
    assert solution.residual <= 1e-6
    assert solution.gradients < 2000 * one.parts
