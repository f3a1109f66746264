"""Per-instance losses of learners and sums, against leaving records out and exact densities."""

from __future__ import annotations

import itertools
import math
import pickle

import mpmath as mp
import numpy as np
import pytest
from scipy import optimize, special

import accountants
import adaptive_dp as dp
from accountants.errors import DomainError
from adaptive_dp import plot
from adaptive_dp.instance import (
    RidgeBounds,
    clipped_sum_mus,
    composed_mus,
    gaussian_epsilons,
    objective_losses,
    output_epsilons,
    output_mus,
    per_instance,
    posterior_epsilons,
    worst_output_mu,
)
from adaptive_dp.instance import (
    ridge as quadratic,
)
from adaptive_dp.instance.plan import ORDERS, laplace_renyi
from adaptive_dp.instance.records import posterior_pairs
from adaptive_dp.instance.ridge import leave_one_out


def ball(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.maximum(1, np.linalg.norm(x, axis=1))[:, None]


def fit(x, y, ridge):
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)


def figure(n):
    """The data of Wang 2019, Fig. 1, at n records: unit rows, |y| <= 1, ten columns."""
    rng = np.random.Generator(np.random.PCG64(21))
    x = rng.normal(size=(n, 10))
    x /= np.linalg.norm(x, axis=1)[:, None]
    theta = rng.normal(size=10)
    y = np.clip(x @ theta / np.linalg.norm(theta) + 0.1 * rng.normal(size=n), -1, 1)
    return x, y


def test_ridge_records_equal_leaving_each_out():
    rng = np.random.default_rng(1)
    x, y, ridge = ball(rng, 40, 3), rng.uniform(-1, 1, 40), 0.7
    result = leave_one_out(x, y, ridge)
    theta = fit(x, y, ridge)
    for i in range(40):
        keep = np.arange(40) != i
        left = x[keep].T @ x[keep] + ridge * np.eye(3)
        without = fit(x[keep], y[keep], ridge)
        truth = (
            x[i] @ np.linalg.solve(left, x[i]),
            abs(y[i] - x[i] @ without),
            np.linalg.norm(theta - without),
        )
        for bound, value in zip(
            (result.leverage, result.error, result.influence), truth, strict=True
        ):
            assert value <= bound[i] <= value + 1e-10


def test_ridge_records_bound_the_exact_ones_where_solving_loses_digits():
    """Nearly collinear columns: rounding goes outward by the condition of the matrix."""
    rng = np.random.default_rng(2)
    base = rng.normal(size=8)
    x = np.stack([base, base + 1e-5 * rng.normal(size=8)], axis=1)
    y, ridge = rng.normal(size=8), 1e-9
    result = leave_one_out(x, y, ridge)
    with mp.workdps(60):
        exact = mp.matrix(x.tolist())
        h = exact.T * exact + ridge * mp.eye(2)
        theta = mp.lu_solve(h, exact.T * mp.matrix(y.tolist()))
        for i in range(8):
            row = exact[i, :].T
            solved = mp.lu_solve(h, row)
            inside = (row.T * solved)[0]
            error = abs(y[i] - (row.T * theta)[0]) / (1 - inside)
            assert result.leverage[i] >= inside / (1 - inside)
            assert result.error[i] >= error
            assert result.influence[i] >= error * mp.norm(solved)


def test_output_perturbation_is_the_gaussian_of_leaving_one_out():
    rng = np.random.default_rng(3)
    x, y = ball(rng, 30, 4), rng.uniform(-1, 1, 30)
    mus = output_mus(x, y, ridge=1.0, sigma=2.0).reveal()
    epsilons = output_epsilons(x, y, ridge=1.0, sigma=2.0, delta=1e-6).reveal()
    for i in range(0, 30, 7):
        keep = np.arange(30) != i
        mu = np.linalg.norm(fit(x, y, 1.0) - fit(x[keep], y[keep], 1.0)) / 2.0
        assert mu <= mus[i] <= mu + 1e-10
        assert epsilons[i] == pytest.approx(
            accountants.Gaussian(mu=mu).epsilon_at(1e-6).upper, rel=1e-6
        )


def test_the_figures_numbers():
    """Median and largest over the records, and the bound for every record that may come."""
    rounded = {100: (4.7e-3, 0.030, 0.29), 1000: (3.6e-4, 2.6e-3, 0.019)}
    rounded[10_000] = (2.0e-5, 2.1e-4, 1.3e-3)
    for n, (median, largest, everyone) in rounded.items():
        x, y = figure(n)
        result = output_epsilons(x, y, ridge=1.0, sigma=4.0, delta=1e-6).reveal()
        assert float(np.median(result)) == pytest.approx(median, rel=0.05)
        assert float(result.max()) == pytest.approx(largest, rel=0.05)
        theta = fit(x, y, 1.0)
        curvature = float(np.linalg.eigvalsh(x.T @ x)[0]) + 1
        residual = 1 + float(np.linalg.norm(theta))
        printed = gaussian_epsilons(residual / curvature / 4.0, 1e-6)
        assert float(printed) == pytest.approx(everyone, rel=0.05)
        added = RidgeBounds(curvature=curvature, ridge=1, norm=1, residual=residual, removals=False)
        both = RidgeBounds(curvature=curvature, ridge=1, norm=1, residual=residual)
        worst = worst_output_mu(added, sigma=4.0), worst_output_mu(both, sigma=4.0)
        assert worst[0] <= residual / curvature / 4.0 * (1 + 1e-9)
        assert result.max() < gaussian_epsilons(worst[0], 1e-6) < gaussian_epsilons(worst[1], 1e-6)


def test_the_printed_solution_of_the_figure_has_no_shape():
    x, y = np.ones((5, 3)), np.ones(5)
    with pytest.raises(ValueError, match="mismatch"):
        x @ y  # (X'X + I)^-1 X y
    assert fit(x, y, 1.0).shape == (3,)


@pytest.mark.parametrize("removals", [False, True])
def test_the_worst_output_mu_bounds_every_record(removals):
    rng = np.random.default_rng(4)
    for _ in range(40):
        n, d, ridge = int(rng.integers(1, 8)), int(rng.integers(1, 4)), 10 ** rng.uniform(-1, 1)
        x, y = ball(rng, n, d), rng.uniform(-1, 1, n)
        theta = fit(x, y, ridge)
        bounds = RidgeBounds(
            curvature=(float(np.linalg.eigvalsh(x.T @ x)[0].clip(0)) + ridge) * (1 - 1e-9),
            ridge=ridge * (1 - 1e-9),
            norm=1,
            residual=1 + float(np.linalg.norm(theta)),
            removals=removals,
        )
        worst = worst_output_mu(bounds, sigma=1.0)
        for _ in range(20):
            z, t = ball(rng, 1, d), rng.choice([-1.0, 1.0], 1)
            z *= rng.choice([1.0, 1 / np.linalg.norm(z)])
            change = fit(np.vstack([x, z]), np.append(y, t), ridge) - theta
            assert np.linalg.norm(change) <= worst
        if removals:
            assert (output_mus(x, y, ridge=ridge, sigma=1.0).reveal() <= worst * (1 + 1e-8)).all()


def test_posterior_epsilons_are_those_of_leaving_each_out():
    rng = np.random.default_rng(5)
    x, y, ridge, gamma = ball(rng, 25, 2), rng.uniform(-1, 1, 25), 0.5, 0.3
    result = posterior_epsilons(x, y, ridge=ridge, gamma=gamma, delta=1e-5).reveal()
    leverage, gap = posterior_pairs(x, y, ridge=ridge, gamma=gamma)
    for i in range(25):
        keep = np.arange(25) != i
        h = x[keep].T @ x[keep] + ridge * np.eye(2)
        m = x[i] @ np.linalg.solve(h, x[i])
        g = math.sqrt(gamma * m) * abs(y[i] - x[i] @ np.linalg.solve(h, x[keep].T @ y[keep]))
        assert (leverage[i], gap[i]) == pytest.approx((m, g), rel=1e-10)
        assert leverage[i] >= m * (1 - 1e-13)
        assert result[i] == pytest.approx(float(quadratic.posterior_epsilon(1e-5, m, g)), rel=1e-8)


# -- objective perturbation ------------------------------------------------------------------------


def log_density(theta, x, y, ridge, sigma):
    """Of the minimizer of J + b't: b = -grad J, with the derivatives of J by mpmath."""
    with mp.workdps(40):
        t = [mp.mpf(v) for v in theta]
        d = len(t)
        gradient = [ridge * v for v in t]
        hessian = mp.eye(d) * ridge
        for row, label in zip(x.tolist(), y.tolist(), strict=True):
            p = 1 / (1 + mp.exp(label * mp.fdot(row, t)))
            for a in range(d):
                gradient[a] -= label * p * row[a]
                for b in range(d):
                    hessian[a, b] += p * (1 - p) * row[a] * row[b]
        return -mp.fsum(v * v for v in gradient) / (2 * mp.mpf(sigma) ** 2) + mp.log(
            mp.det(hessian)
        )


def test_the_density_is_that_of_the_minimizer():
    """In one dimension: P(minimizer <= t) = P(-b <= grad J(t)), differentiated numerically."""
    rng = np.random.default_rng(10)
    x, y, ridge, sigma = rng.uniform(-1, 1, (8, 1)), np.sign(rng.normal(size=8)), 0.7, 1.3

    def below(t):
        p = special.expit(-y * x[:, 0] * t)
        return special.ndtr((ridge * t - (y * x[:, 0] * p).sum()) / sigma)

    for t in (-1.0, 0.3, 2.0):
        slope = (below(t + 1e-5) - below(t - 1e-5)) / 2e-5
        printed = math.exp(float(log_density([t], x, y, ridge, sigma)))
        assert printed / (sigma * math.sqrt(2 * math.pi)) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("d", [1, 3])
def test_the_objective_loss_is_the_log_ratio_of_densities(d):
    """An equality (printed as an inequality), and with the data's own Hessian at theta."""
    rng = np.random.default_rng(11 + d)
    x, y = rng.uniform(-1, 1, (9, d)), np.sign(rng.normal(size=9))
    ridge, sigma = 0.7, 1.3
    for theta in (rng.normal(size=d), 3 * rng.normal(size=d)):
        result = objective_losses(x, y, theta, ridge=ridge, sigma=sigma).reveal()
        full = log_density(theta, x, y, ridge, sigma)
        for i in range(9):
            keep = np.arange(9) != i
            truth = abs(full - log_density(theta, x[keep], y[keep], ridge, sigma))
            assert truth <= result[i] <= truth + 1e-10
        assert np.ptp(result) > 1e-3


def test_the_objective_loss_needs_the_ridge_in_the_hessian():
    """Negative control: without the regulariser in the Hessian the equality fails."""
    x, y, theta = np.full((3, 1), 0.9), np.ones(3), np.array([0.5])
    exact = objective_losses(x, y, theta, ridge=1.0, sigma=1.0).reveal()[0]
    p = special.expit(-0.45)
    share = p * (1 - p) * 0.81 / (3 * p * (1 - p) * 0.81)
    gradient, total = -p * 0.9, -3 * p * 0.9 + 0.5
    wrong = abs(-math.log1p(-share) + gradient**2 / 2 - gradient * total)
    assert abs(wrong - exact) > 0.1


def test_the_objective_figure():
    rng = np.random.Generator(np.random.PCG64(22))
    n, d, ridge, sigma = 1000, 2, 1.0, 5.0
    x = ball(rng, n, d)
    y = np.sign(x @ np.array([3.0, -2.0]) + 0.3 * rng.normal(size=n))
    b = rng.normal(size=d) * sigma

    def gradient(t):
        return -x.T @ (y * special.expit(-y * (x @ t))) + ridge * t + b

    theta = optimize.fsolve(gradient, np.zeros(d), xtol=1e-12)
    result = objective_losses(x, y, theta, ridge=ridge, sigma=sigma).reveal()
    worst = -math.log(1 - 0.25 / ridge) + 1 / (2 * sigma**2) + np.linalg.norm(b) / sigma**2
    assert float(np.median(result)) == pytest.approx(0.0007, abs=1e-4)
    assert float(result.max()) == pytest.approx(0.104, abs=1e-3)
    assert worst == pytest.approx(0.436, abs=1e-3)


def test_the_minimizer_moves_by_plus_the_gradient_at_the_other_minimizer():
    """``t - t' = (mean Hessian without z)^-1 grad l(t'; z)``; printed with a minus (Lemma 17)."""

    def gradient(t):
        return special.expit(t - 0.2) + 2 * special.expit(2 * t + 1) + 0.3 * t - 0.8

    def record(t):
        return 1.3 * special.expit(1.3 * t - 0.4)

    def curvature(t):
        a, b = special.expit(t - 0.2), special.expit(2 * t + 1)
        return a * (1 - a) + 4 * b * (1 - b) + 0.3

    without = optimize.brentq(gradient, -50, 50, xtol=1e-14)
    full = optimize.brentq(lambda t: gradient(t) + record(t), -50, 50, xtol=1e-14)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    s = (nodes + 1) / 2
    mean = (curvature(s * without + (1 - s) * full) * weights / 2).sum()
    assert without - full == pytest.approx(record(full) / mean, rel=1e-10)
    assert abs(without - full + record(full) / mean) > 0.1  # the printed sign
    # in ridge regression the Hessian is constant, and ours is the same identity
    x, y, ridge = np.array([[1.0], [0.5]]), np.array([1.0, -1.0]), 0.5
    theta, left = fit(x, y, ridge), fit(x[:1], y[:1], ridge)
    change = (x[1] @ theta - y[1]) * x[1] / (x[0] @ x[0] + ridge)
    assert left - theta == pytest.approx(change, rel=1e-12)
    assert leave_one_out(x, y, ridge).influence[1] == pytest.approx(abs(change[0]), rel=1e-12)


# -- sums and composition --------------------------------------------------------------------------


def test_a_clipped_sum_charges_each_record_for_its_own_length():
    x = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e308, 1e308], [np.nan, 0], [5e-324, 0]])
    mus = clipped_sum_mus(x, bound=2.0, sigma=4.0).reveal()
    assert mus == pytest.approx([0.5, 0.125, 0.0, 0.5, 0.5, 0.0], abs=1e-15)
    assert mus[2] <= 1e-300
    assert (mus[[0, 1, 3]] >= [0.5, 0.125, 0.5]).all()


def test_gaussian_composition_is_exact():
    mus = composed_mus([[0.3, 0.0], [0.4, 0.0], [1.2, 0.0]])
    assert mus == pytest.approx([1.3, 0.0], rel=1e-14)
    assert mus[0] >= 1.3
    truth = accountants.Gaussian(mu=1.3).epsilon_at(1e-5)
    assert truth.lower <= gaussian_epsilons(mus, 1e-5)[0] <= truth.upper * (1 + 1e-9)
    assert gaussian_epsilons(mus, 1e-5)[1] == 0
    assert gaussian_epsilons(mus, 0.0).tolist() == [math.inf, 0.0]


def test_the_worst_instance_of_randomized_response_is_its_loss():
    """Two answers, each kept with probability e/(1+e): by enumeration, at every epsilon."""
    keep = math.e / (1 + math.e)
    tables = {}
    for rows in itertools.product((0, 1), repeat=2):
        first, second = ([keep, 1 - keep] if bit == 0 else [1 - keep, keep] for bit in rows)
        tables[rows] = np.outer(first, second).ravel()
    for epsilon in (0.0, 0.3, 0.9, 1.0):
        worst = 0.0
        for rows, i in itertools.product(tables, range(2)):
            near = tuple(1 - bit if k == i else bit for k, bit in enumerate(rows))
            gain = np.maximum(tables[rows] - math.exp(epsilon) * tables[near], 0).sum()
            worst = max(worst, float(gain))
        truth = accountants.RandomizedResponse(1.0).profile(epsilon)
        assert truth.lower - 1e-12 <= worst <= truth.upper + 1e-12


def test_laplace_curves_bound_those_of_the_accountants():
    for pure in (1e-3, 0.2, 3.0, 50.0):
        orders = ORDERS[::8]
        truth = accountants.Laplace(pure).renyi(orders)
        result = laplace_renyi(orders, pure)
        assert (result >= truth * (1 - 1e-12)).all()
        assert result == pytest.approx(truth, rel=1e-3)


def test_the_worst_instance_of_a_histogram_is_its_certificate():
    people = dp.dataset("people", columns={"kind": ["a", "b"], "age": (0, 10)})
    plan = dp.Pipeline(
        h=people["kind"].histogram().release(dp.Laplace(scale=2.0)),
        s=people["age"].sum().release(dp.Laplace(scale=20.0)),
    )
    worst = 0.0
    for kind, age in itertools.product(["a", "b", "neither"], [0.0, 3.0, 10.0, 99.0, math.nan]):
        result = per_instance(plan, people={"kind": [kind, "a"], "age": [age, 0.0]})
        own = (kind != "neither") / 2 + min(0 if math.isnan(age) else age, 10) / 20
        assert own <= result.reveal()[0] <= own + 1e-12
        worst = max(worst, float(result.reveal()[0]))
    assert worst == pytest.approx(plan.certify().epsilon, rel=1e-9)


# -- privacy of the results ------------------------------------------------------------------------


def test_results_are_private():
    losses = output_epsilons(np.eye(2), np.ones(2), ridge=1.0, sigma=1.0, delta=1e-5)
    assert repr(losses) == f"{losses}" == "<private>"
    with pytest.raises(TypeError):
        bool(losses)
    with pytest.raises(TypeError):
        pickle.dumps(losses)
    with pytest.raises(dp.DataError, match="private"):
        plot.per_instance(losses)


ODD = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0]


@pytest.mark.parametrize("value", ODD)
def test_odd_records_raise_nothing_and_are_not_under_reported(value):
    x, y = np.array([[value, 1.0], [1.0, 0.5], [0.2, 0.1]]), np.array([1.0, value, 0.5])
    for result in (
        posterior_epsilons(x, y, ridge=1.0, gamma=0.1, delta=1e-6),
        output_epsilons(x, y, ridge=1.0, sigma=1.0, delta=1e-6),
        objective_losses(x, y, [0.1, 0.2], ridge=1.0, sigma=1.0),
        clipped_sum_mus(x, bound=1.0, sigma=1.0),
    ):
        values = result.reveal()
        assert values.shape == (3,)
        assert (values >= 0).all()
    if abs(value) == 1e308:  # what overflows is infinite
        assert output_epsilons(x, y, ridge=1.0, sigma=1.0, delta=1e-6).reveal().max() == math.inf


def test_no_records_at_all():
    x, y = np.empty((0, 2)), np.empty(0)
    assert output_mus(x, y, ridge=1.0, sigma=1.0).reveal().shape == (0,)
    assert posterior_epsilons(x, y, ridge=1.0, gamma=1.0, delta=0.1).reveal().shape == (0,)
    assert objective_losses(x, y, [0.0, 0.0], ridge=1.0, sigma=1.0).reveal().shape == (0,)
    assert clipped_sum_mus(x, bound=1.0, sigma=1.0).reveal().shape == (0,)


def test_what_was_declared_is_checked():
    with pytest.raises(dp.DataError):
        output_mus(np.eye(2), np.ones(3), ridge=1.0, sigma=1.0)
    with pytest.raises(dp.DataError, match=r"\b2\b"):
        objective_losses(np.eye(2), np.ones(2), [1.0], ridge=1.0, sigma=1.0)
    with pytest.raises(DomainError, match="ridge"):
        output_mus(np.eye(2), np.ones(2), ridge=0.0, sigma=1.0)
    with pytest.raises(DomainError, match="non-negative"):
        gaussian_epsilons([-1.0], 1e-6)


def test_the_picture():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    axes = plot.per_instance([0.1, 0.2, 0.2, 0.0, math.inf], worst=1.0)
    assert sum(p.get_height() for p in axes.patches) == 3
    assert plot.per_instance([], ax=axes) is axes
    pyplot.close("all")
