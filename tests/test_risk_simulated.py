"""Measured excess risk, with known minimizers, lies under the bound in every cell.

A true bound fails a test with probability below 1e-6: six standard errors are taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from accountants.errors import DomainError
from adaptive_dp import risk
from adaptive_dp.risk import Setting, Upper

Floats = NDArray[np.float64]
BUDGETS = [(1.0, 0.0), (0.2, 0.0), (1.0, 1e-6), (4.0, 1e-3)]
RUNS = 4000


def draws(rng: np.random.Generator, width: int, scale: float, bound: Upper) -> Floats:
    """Noise of the law that a bound names, shape (RUNS, width)."""
    z = rng.normal(size=(RUNS, width))
    if "Gaussian" in bound.method:
        return scale * z
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z * rng.gamma(width, scale, RUNS)[:, None]


def ball(w: Floats, radius: float) -> Floats:
    return w * np.minimum(1.0, radius / np.maximum(np.linalg.norm(w, axis=-1), 1e-300))[..., None]


def under(measured: Floats, bound: float, share: float = 0.0) -> None:
    """The mean is below the bound, and above a share of it."""
    error = 6 * np.std(measured) / math.sqrt(len(measured))
    assert np.mean(measured) - error <= bound
    assert np.mean(measured) + error >= share * bound


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("width", [1, 8])
def test_output_perturbation(width: int, epsilon: float, delta: float) -> None:
    """Quadratics: w* is a mean. Cones and a quadratic: F = n (a |w| + mu/2 |w|^2)."""
    rng, n, mu = np.random.default_rng(1), 500, 0.5
    x = ball(rng.normal(size=(n, width)), 0.6)
    constants = Setting(
        n=n,
        width=width,
        lipschitz=0.8,
        radius=1,
        strong_convexity=mu,
        smoothness=mu,
        stationary=True,
    )
    for method, share in (
        (risk.smooth_output_perturbation, 0.0),
        (risk.output_perturbation, 0.0),
    ):
        bound = method(constants, epsilon, delta)
        w = ball(x.mean(0) + draws(rng, width, bound.choices["scale"], bound), 1.0)
        excess = n * mu / 2 * np.sum((w - x.mean(0)) ** 2, axis=1)
        under(excess, min(bound.total, constants.trivial), share)
        certain = method(constants, epsilon, delta, failure=0.05)
        rate = np.mean(excess > certain.total)
        assert stats.binom.cdf(int(rate * RUNS) - 1, RUNS, 0.05) < 1 - 1e-7
    bound = risk.output_perturbation(constants, epsilon, delta)
    w = ball(draws(rng, width, bound.choices["scale"], bound), 1.0)
    size = np.linalg.norm(w, axis=1)
    under(n * (0.3 * size + mu / 2 * size**2), bound.total)


def test_the_smooth_bound_is_attained() -> None:
    """Quadratics of curvature mu without projection: (n beta / 2) E|z|^2 exactly."""
    rng, constants = (
        np.random.default_rng(2),
        Setting(
            n=10**5,
            width=5,
            lipschitz=1,
            radius=1,
            strong_convexity=1,
            smoothness=1,
            stationary=True,
        ),
    )
    for delta in (0.0, 1e-5):
        bound = risk.smooth_output_perturbation(constants, 1.0, delta)
        z = draws(rng, 5, bound.choices["scale"], bound)
        excess = constants.n / 2 * np.sum(z**2, axis=1)
        under(excess, bound.total, share=1.0)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_regularised(epsilon: float, delta: float) -> None:
    """Linear losses (the minimizer on the boundary) and cones; quadratics where smooth."""
    rng, n, width = np.random.default_rng(3), 4000, 6
    constants = Setting(n=n, width=width, lipschitz=1, radius=1, smoothness=0.5, stationary=True)
    bound = risk.regularized_output_perturbation(constants, epsilon, delta)
    z = draws(rng, width, bound.choices["scale"], bound)
    e = np.eye(width)[0]
    w = ball(min(1.0, n / bound.choices["lambda"]) * e + z, 1.0)
    under(n * (1 - w[:, 0]), bound.total)
    centre = min(0.8, n / bound.choices["lambda"])  # of n |w - .8 e| + lambda/2 |w|^2
    under(n * np.linalg.norm(ball(centre * e + z, 1.0) - 0.8 * e, axis=1), bound.total)
    bound = risk.smooth_regularized_output_perturbation(constants, epsilon, delta)
    z = draws(rng, width, bound.choices["scale"], bound)
    w = ball(n * 0.5 / (n * 0.5 + bound.choices["lambda"]) * e + z, 1.0)
    under(n * 0.25 * np.sum((w - e) ** 2, axis=1), bound.total)


@pytest.mark.parametrize("width", [1, 5, 50])
def test_exponential_mechanism(width: int) -> None:
    """F = n |w| attains p / c: its length is a truncated Gamma."""
    rng = np.random.default_rng(4)
    constants = Setting(n=10**5, width=width, lipschitz=1, radius=1)
    for failure in (None, 0.01):
        bound = risk.exponential_mechanism(constants, 1.0, failure=failure)
        size = rng.gamma(width, 1 / (bound.choices["c"] * constants.n), 3 * RUNS)
        excess = constants.n * size[size <= 1]
        assert len(excess) > RUNS
        if failure is None:
            under(excess, bound.total, share=0.99)
        else:
            count = int(np.sum(excess > bound.total))
            assert stats.binom.cdf(count - 1, len(excess), failure) < 1 - 1e-7


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_objective_perturbation(epsilon: float, delta: float) -> None:
    """Logistic regression whose own minimizer is found first, then each perturbed one."""
    rng, n, width, runs = np.random.default_rng(5), 400, 3, 300
    x = ball(rng.normal(size=(n, width)), 1.0)
    y = np.where(rng.random(n) < special.expit(x @ np.array([1.0, -1.0, 0.5])), 1.0, -1.0)
    rows = x * y[:, None]

    def solve(b: Floats, weight: float) -> Floats:
        w = np.zeros_like(b)
        for _ in range(30):
            s = special.expit(-w @ rows.T)
            gradient = -s @ rows + weight * w + b
            hessian = np.einsum("ri,ij,ik->rjk", s * (1 - s), rows, rows)
            w = w - np.linalg.solve(hessian + weight * np.eye(width), gradient[..., None])[..., 0]
        return w

    def value(w: Floats) -> Floats:
        return np.logaddexp(0, -w @ rows.T).sum(-1)

    best = solve(np.zeros((1, width)), 0.0)
    constants = Setting(
        n=n,
        width=width,
        lipschitz=1,
        radius=float(np.linalg.norm(best)) * 1.01,
        smoothness=0.25,
        linear=True,
        stationary=True,
    )
    bound = risk.objective_perturbation(constants, epsilon, delta)
    b = draws(rng, width, bound.choices["scale"], bound)[:runs]
    excess = value(solve(b, bound.choices["lambda"])) - value(best)
    under(excess, bound.total)
    assert np.all(excess > -1e-6)
    certain = risk.objective_perturbation(constants, epsilon, delta, failure=0.05)
    b = draws(rng, width, certain.choices["scale"], certain)[:runs]
    excess = value(solve(b, certain.choices["lambda"])) - value(best)
    count = int(np.sum(excess > certain.total))
    assert stats.binom.cdf(count - 1, runs, 0.05) < 1 - 1e-7


def descend(
    gradient: Callable[[Floats], Floats],
    steps: int,
    step: Callable[[int], float],
    sigma: float,
    start: Floats,
    weights: Callable[[int], float],
    radius: float,
    late: bool = False,
) -> Floats:
    """Averages of noisy projected descent, one row a run; ``late`` averages the new points."""
    rng = np.random.default_rng(6)
    w, total, weight = start, np.zeros_like(start), 0.0
    for t in range(1, steps + 1):
        new = w - step(t) * (gradient(w) + sigma * rng.normal(size=w.shape))
        new = ball(new, radius)
        total, weight = total + weights(t) * (new if late else w), weight + weights(t)
        w = new
    return total / weight


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (4.0, 1e-3)])
@pytest.mark.parametrize("steps", [5, 100])
def test_descent(steps: int, epsilon: float, delta: float) -> None:
    """Cones, quadratics, and both: the minimizer is 0.9 e, the start 0."""
    n, width, runs = 300, 4, 300
    c = 0.9 * np.eye(width)[0]
    start = np.zeros((runs, width))
    constants = Setting(
        n=n, width=width, lipschitz=1, radius=1, strong_convexity=0.25, smoothness=0.25
    )

    def cone(w: Floats) -> Floats:
        return n * (w - c) / np.maximum(np.linalg.norm(w - c, axis=1), 1e-300)[:, None]

    bound = risk.noisy_descent(constants, epsilon, delta, steps=steps)
    w = descend(
        cone, steps, lambda t: bound.choices["step"], bound.choices["sigma"], start, lambda t: 1, 1
    )
    under(n * np.linalg.norm(w - c, axis=1), bound.total)
    bound = risk.smooth_descent(constants, epsilon, delta, steps=steps)
    w = descend(
        lambda w: n * 0.25 * (w - c),
        steps,
        lambda t: bound.choices["step"],
        bound.choices["sigma"],
        start,
        lambda t: 1,
        1,
        late=True,
    )
    under(n * 0.125 * np.sum((w - c) ** 2, axis=1), bound.total)
    bound = risk.strong_descent(constants, epsilon, delta, steps=steps)
    w = descend(
        lambda w: n * 0.25 * (w - c) + 0.5 * cone(w),
        steps,
        lambda t: 2 / (n * 0.25 * (t + 1)),
        bound.choices["sigma"],
        start,
        lambda t: t,
        1,
    )
    distance = np.linalg.norm(w - c, axis=1)
    under(n * (0.125 * distance**2 + 0.5 * distance), bound.total)


def test_descent_by_rank() -> None:
    """Records of rank 5 in 5, 50 and 500 dimensions: excess and bound do not grow with them."""
    n, rank, steps, runs = 60, 5, 60, 60
    measured, bounds = [], []
    for width in (5, 50, 500):
        rng = np.random.default_rng(7)
        basis = np.linalg.qr(rng.normal(size=(width, rank)))[0]
        x = ball(rng.normal(size=(n, rank)), 1.0) @ basis.T
        truth = basis @ (np.ones(rank) / math.sqrt(rank))
        constants = Setting(
            n=n, width=width, lipschitz=1, radius=1, linear=True, rank=rank, stationary=True
        )
        bound = risk.linear_descent(constants, 8.0, 1e-5, steps=steps, norm=1.0)
        w = descend(
            lambda w, x=x, truth=truth: np.sign((w - truth) @ x.T) @ x,
            steps,
            lambda t, bound=bound: bound.choices["step"],
            bound.choices["sigma"],
            np.zeros((runs, width)),
            lambda t: 1,
            math.inf,
        )
        excess = np.abs((w - truth) @ x.T).sum(1)
        under(excess, bound.total)
        measured.append((excess.mean(), excess.std() / math.sqrt(runs)))
        bounds.append(bound.total)
        z = bound.choices["sigma"] * rng.normal(size=(RUNS, width))
        g = np.sign(-truth @ x.T) @ x
        under(np.sum(((g + z) @ basis) ** 2, axis=1), n**2 + rank * bound.choices["sigma"] ** 2)
    assert bounds == pytest.approx([bounds[0]] * 3)
    (first, error), (last, other) = measured[0], measured[-1]
    assert abs(first - last) <= 6 * math.hypot(error, other)


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.0), (2.0, 1e-6)])
def test_population(epsilon: float, delta: float) -> None:
    """Quadratics about points of a sphere: the population's excess is (mu/2)|w - mean|^2."""
    rng, n, width, mu, runs = np.random.default_rng(8), 50, 3, 1.0, 2000
    mean = np.array([0.3, 0.0, 0.0])
    x = ball(mean + 0.3 * rng.choice([-1.0, 1.0], size=(runs, n, width)), 1.0)
    centre = x.mean((0, 1))
    constants = Setting(
        n=n, width=width, lipschitz=2, radius=1, strong_convexity=mu, smoothness=mu, stationary=True
    )
    for method in (risk.output_perturbation, risk.smooth_output_perturbation):
        bound = method(constants, epsilon, delta, population=True)
        w = ball(x.mean(1) + draws(rng, width, bound.choices["scale"], bound)[:runs], 1.0)
        excess = n * mu / 2 * np.sum((w - centre) ** 2, axis=1)
        under(excess, min(bound.total, constants.trivial))
    bound = risk.smooth_regularized_output_perturbation(constants, epsilon, delta, population=True)
    regularized = n / (n + bound.choices["lambda"]) * x.mean(1)
    w = ball(regularized + draws(rng, width, bound.choices["scale"], bound)[:runs], 1.0)
    under(n * mu / 2 * np.sum((w - centre) ** 2, axis=1), bound.total)
    if delta:
        bound = risk.smooth_descent(constants, epsilon, delta, steps=30, population=True)
        w = descend(
            lambda w: n * (w - x.mean(1)),
            30,
            lambda t: bound.choices["step"],
            bound.choices["sigma"],
            np.zeros((runs, width)),
            lambda t: 1,
            1,
            late=True,
        )
        under(n * mu / 2 * np.sum((w - centre) ** 2, axis=1), bound.total)


def test_uniform_convergence() -> None:
    """sup over W of linear losses is R |mean - sample mean|, times L: both bounds hold."""
    rng, n, width = np.random.default_rng(9), 100, 4
    x = rng.choice([-0.5, 0.5], size=(3000, n, width))
    gaps = n * np.linalg.norm(x.mean(1), axis=1)
    for linear in (True, False):
        constants = Setting(n=n, width=width, lipschitz=1, radius=1, linear=linear)
        under(gaps, risk.uniform_gap(constants))


def test_tilted_and_adversarial() -> None:
    """In one dimension, on a grid: the tilted risk; and |wx - y| against moves of x by rho."""
    rng, n, mu = np.random.default_rng(10), 60, 1.0
    x = rng.choice([-0.5, 0.5], size=n, p=[0.3, 0.7])
    w = np.linspace(-1, 1, 20_001)
    losses = x[:, None] * w + mu / 2 * w**2
    constants = Setting(
        n=n, width=1, lipschitz=1.5, radius=1, strong_convexity=mu, smoothness=mu, stationary=True
    )
    for delta in (0.0, 1e-5):
        bound = risk.tilted_output_perturbation(constants, 2.0, delta, tilt=0.7, span=1.2)
        value = (special.logsumexp(0.7 * losses, axis=0) - math.log(n)) / 0.7
        z = draws(rng, 1, bound.choices["scale"], bound)[:, 0]
        out = np.clip(w[np.argmin(value)] + z, -1, 1)
        under(np.interp(out, w, value) - value.min(), bound.mean)
    for rho in (0.0, 0.3):
        harder = risk.adversarial(constants, lipschitz=mu + 0.5 + rho)
        assert harder.smoothness == math.inf
        losses = np.abs(x[:, None] * w - 0.2) + rho * np.abs(w) + mu / 2 * w**2
        value = losses.sum(0)
        bound = risk.output_perturbation(harder, 2.0, 1e-5)
        z = draws(rng, 1, bound.choices["scale"], bound)[:, 0]
        out = np.clip(w[np.argmin(value)] + z, -1, 1)
        under(np.interp(out, w, value) - value.min(), bound.total)


def test_measured_slopes() -> None:
    """Measured and proved excess fall and grow with the same powers of n, p and epsilon."""

    def both(n: int, width: int, epsilon: float) -> tuple[float, float]:
        rng = np.random.default_rng(11)
        constants = Setting(
            n=n,
            width=width,
            lipschitz=1,
            radius=1,
            strong_convexity=1,
            smoothness=1,
            stationary=True,
        )
        bound = risk.smooth_output_perturbation(constants, epsilon)
        z = draws(rng, width, bound.choices["scale"], bound)
        return float(np.mean(np.sum(z**2, axis=1)) / 2), bound.mean

    base = both(1000, 40, 1.0)
    for other, power in (
        (both(8000, 40, 1.0), -2 * math.log(8)),
        (both(1000, 40, 8.0), -2 * math.log(8)),
        (both(1000, 320, 1.0), math.log(320 * 321 / (40 * 41))),
    ):
        for one, two in zip(base, other, strict=True):
            assert math.log(two / one) == pytest.approx(power, abs=0.05)


def test_an_adversary_may_move_the_minimizer_to_the_boundary() -> None:
    """``|w - x - 3|^2 / 2`` on [-1, 1], x = 0: from inside to 1, where the slope is -2 a record."""
    constants = risk.quadratic([[1.0]], n=100, radius=1.0)
    harder = risk.adversarial(constants, lipschitz=5.0, smoothness=1.0)
    with pytest.raises(DomainError):
        risk.smooth_output_perturbation(harder, 1.0)
    bound = risk.output_perturbation(harder, 1.0)
    noise = np.random.default_rng(8).laplace(scale=bound.choices["scale"], size=RUNS)
    output = np.clip(1.0 + noise, -1.0, 1.0)
    under(harder.n * ((output - 3.0) ** 2 - 4.0) / 2, bound.total)
    too_small = risk.adversarial(constants, lipschitz=5.0, smoothness=1.0, stationary=True)
    least = np.mean(harder.n * ((output - 3.0) ** 2 - 4.0) / 2)
    assert risk.smooth_output_perturbation(too_small, 1.0).total < least / 5
