"""The loss of a softmax's objective perturbation, against the exact densities of minimizers.

An outcome W is a noise b under each data set, ``b = -grad J(W)``: for each b of a grid, or of a
sample, the minimizer is computed by Newton's method, and with it both densities there.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from accountants import DomainError, ObjectivePerturbation
from accountants.testing import check

Rows = list[tuple[np.ndarray, int, float]]
"""Features, class, and how many such rows there are."""

ORDERS = np.array([1.05, 1.5, 2.0, 4.0, 12.0])


def contrasts(k: int) -> np.ndarray:
    """Return an orthonormal basis of the k-vectors that add up to 0: noise along 1 is no matter."""
    full, _ = np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, : k - 1]]))
    return full[:, 1:]


def derivatives(w: np.ndarray, rows: Rows, k: int, ridge: float) -> tuple[Any, Any]:
    """Return gradients (N, (k-1)p) and Hessians of J at N points."""
    basis, size = contrasts(k), w.shape[1]
    at = w.reshape(len(w), k - 1, -1)
    gradient, hessian = ridge * w, np.tile(ridge * np.eye(size), (len(w), 1, 1))
    for x, label, count in rows:
        z = at @ x @ basis.T
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        inner = p @ basis
        slope = inner - basis[label]
        gradient = gradient + count * (slope[:, :, None] * x).reshape(len(w), -1)
        second = np.einsum("ni,ia,ib->nab", p, basis, basis)
        second -= inner[:, :, None] * inner[:, None, :]
        hessian += count * np.einsum("nab,i,j->naibj", second, x, x).reshape(len(w), size, size)
    return gradient, hessian


def minimizers(b: np.ndarray, rows: Rows, k: int, ridge: float) -> np.ndarray:
    """Return the W with ``grad J(W) = -b``, for each b."""
    w = np.zeros_like(b)
    for _ in range(400):
        gradient, hessian = derivatives(w, rows, k, ridge)
        off = np.linalg.norm(gradient + b, axis=1)
        left = off > 1e-9
        if not left.any():
            return w
        step = np.linalg.solve(hessian[left], (gradient + b)[left][:, :, None])[:, :, 0]
        t, there = np.ones(len(step)), w[left] - step
        for _ in range(40):
            after = derivatives(there, rows, k, ridge)[0] + b[left]
            bad = np.linalg.norm(after, axis=1) > (1 - t / 4) * off[left] + 1e-10
            if not bad.any():
                break
            t = np.where(bad, t / 2, t)
            there = w[left] - t[:, None] * step
        w[left] = there
    raise AssertionError("Newton's method did not end")


def log_ratios(b: np.ndarray, one: Rows, other: Rows, k: int, ridge: float, sigma: float) -> Any:
    """Return ``log p_one / p_other`` at the outcomes of noise b under ``one``."""
    w = minimizers(b, one, k, ridge)
    (g, h), (g2, h2) = derivatives(w, one, k, ridge), derivatives(w, other, k, ridge)
    shift = ((g2**2).sum(axis=1) - (g**2).sum(axis=1)) / (2 * sigma**2)
    return shift + np.linalg.slogdet(h)[1] - np.linalg.slogdet(h2)[1]


def grid(size: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a grid of standard normal noise, and their masses."""
    axis = np.linspace(-7.5, 7.5, cells)
    points = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1).reshape(-1, size)
    mass = np.exp(-(points**2).sum(axis=1) / 2)
    return points, mass / mass.sum()


def determinant(k: int, ridge: float, spared: float) -> float:
    """Return c: the largest ``D(v) - K v``, by brute force, with a rounding to spare."""
    v = np.linspace(0, 1 - 1 / k, 100_001)
    return float(((k - 1) * np.log1p(v / ((k - 1) * ridge)) - spared * v).max()) + 1e-9


def held(loss: ObjectivePerturbation, logs: Any, mass: Any, slack: float) -> float:
    """Assert all bounds; return the nearest that a profile came to its own."""
    nearest, c, m = 0.0, loss.determinant, loss.mu_
    for part in (0.0, 0.3, 0.7, 1.2, 2.0, 3.0):
        epsilon = c + part * m * (m / 2 + 1)
        truth = float(mass @ np.maximum(0, -np.expm1(np.minimum(0, epsilon - logs))))
        # what the docstring claims, below where the pair's chord ends too
        stick = ndtr(m / 2 - (epsilon - c) / m)
        stick -= math.exp(epsilon - c) * ndtr(-m / 2 - (epsilon - c) / m)
        if loss.rows == 1 or epsilon - c >= m * m / 2:
            claim = loss.rows * (loss.classes - 1) * stick
            assert truth <= claim * (1 + slack) + 1e-8
            nearest = max(nearest, truth / claim) if truth > 1e-6 else nearest
        assert truth <= loss.profile(epsilon).upper * (1 + slack) + 1e-8
    for order, most in zip(ORDERS, loss.renyi(ORDERS), strict=True):
        moment = float(mass @ np.exp((order - 1) * logs))
        assert math.log(moment) / (order - 1) <= most * (1 + slack) + 1e-6
    return nearest


def random_rows(rng: Any, k: int, p: int, least: int = 0) -> Rows:
    rows = []
    for _ in range(rng.integers(least, 5)):
        x = rng.normal(size=p)
        x *= rng.choice([1.0, rng.uniform(0.2, 1)]) / np.linalg.norm(x)
        rows.append((x, int(rng.integers(k)), float(rng.choice([1, 1, 6]))))
    return rows


@pytest.mark.parametrize("k", [3, 4])
def test_a_row_that_comes_or_goes_stays_below(k: int) -> None:
    rng = np.random.default_rng(k)
    points, mass = grid(k - 1, 101 if k == 3 else 27)
    for trial in range(14 if k == 3 else 3):
        # very small and large ridges, and noise from a tenth to some times the shift
        ridge, sigma = math.exp(rng.uniform(-6, 2)), math.exp(rng.uniform(-1.5, 1.2))
        others, mu = random_rows(rng, k, 1), math.sqrt(2) / sigma
        x = np.array([rng.choice([-1.0, 1.0]) * (1 if trial % 3 else rng.uniform(0.2, 1))])
        row = (x, int(rng.integers(k)), 1.0)
        loss = ObjectivePerturbation(mu, determinant(k, ridge, mu * mu / 4), classes=k)
        for one, other in (([*others, row], others), (others, [*others, row])):
            logs = log_ratios(points * sigma, one, other, k, ridge, sigma)
            held(loss, logs, mass, 0.03)


def test_a_light_row_pays_for_its_whole_determinant() -> None:
    """Weights multiply the Hessian once and the shift twice: K spares nothing."""
    points, mass = grid(2, 101)
    spared = False
    for weight, ridge, sigma in [(0.3, 0.05, 0.5), (0.1, 0.01, 0.4), (0.6, 0.3, 1.0)]:
        mu, row = math.sqrt(2) / sigma, (np.array([1.0]), 0, weight)
        others = [(np.array([1.0]), 0, 1.0)]
        loss = ObjectivePerturbation(mu, determinant(3, ridge, 0.0), classes=3)
        logs = log_ratios(points * sigma, [*others, row], others, 3, ridge, sigma)
        held(loss, logs, mass, 0.03)
        spared |= loss.determinant > 1 + determinant(3, ridge, mu * mu / 4)
    assert spared


def test_several_features_and_rows_that_are_exchanged_stay_below() -> None:
    """Samples of 20,000: 6 standard errors, a false alarm below 1e-8 for each of 200 numbers."""
    rng = np.random.default_rng(5)
    for trial in range(6):
        ridge, sigma = math.exp(rng.uniform(-4, 1)), math.exp(rng.uniform(-0.3, 1.2))
        others, mu = random_rows(rng, 3, 2), math.sqrt(2) / sigma
        first, second = random_rows(rng, 3, 2, 4)[:2]
        first, second = (*first[:2], 1.0), (*second[:2], 1.0)
        if trial % 2:  # the largest shift that there is: opposite rows, classes exchanged
            second = (-first[0], (first[1] + 1) % 3, 1.0)
        b = rng.normal(size=(20_000, 4)) * sigma
        exchanged = ([*others, first], [*others, second], 2)
        for one, other, n in (exchanged, (others, [*others, first], 1)):
            c = determinant(3, ridge, n * mu * mu / 4)
            loss = ObjectivePerturbation(n * mu, c, n, classes=3)
            logs = log_ratios(b, one, other, 3, ridge, sigma)
            m = loss.mu_
            for part in (0.5, 0.8, 1.2, 2.0):
                epsilon = c + m * m / 2 + part * m
                sticks = np.maximum(0, -np.expm1(np.minimum(0, epsilon - logs)))
                error = 6 * sticks.std() / math.sqrt(len(sticks)) + 1e-3
                assert sticks.mean() <= loss.profile(epsilon).upper + error


def test_nothing_is_paid_that_no_data_set_needs() -> None:
    """Without rows, at a small ridge, the least of the noise's scores has all of p."""
    points, mass = grid(2, 201)
    row, sigma, ridge = [(np.array([1.0]), 0, 1.0)], 1.0, 1e-4
    mu = math.sqrt(2)
    logs = log_ratios(points * sigma, [], row, 3, ridge, sigma)
    nearest = held(ObjectivePerturbation(mu, 0.0, classes=3), logs, mass, 0.02)
    assert nearest > 0.9
    # the law of the largest of 0, X_1 and X_2, by an integral over t_y: near to the sum of two
    epsilon, m = 4.0, 1.0

    def stick(y: float) -> float:
        # P(max_j m (t_j - y) + m^2 > l) over e^{eps - l}, l from epsilon on
        def tail(level: float) -> float:
            one = ndtr((level - m * m) / m + y)
            return math.exp(epsilon - level) * (1 - one * one)

        inner = quad(tail, epsilon, epsilon + 30, limit=200)[0]
        return math.exp(-y * y / 2) / math.sqrt(2 * math.pi) * inner

    exact = quad(stick, -9, 9, limit=200)[0]
    truth = float(mass @ np.maximum(0, -np.expm1(np.minimum(0, epsilon - logs))))
    assert truth == pytest.approx(exact, rel=0.01)
    assert 0.93 < exact / ObjectivePerturbation(mu, 0.0, classes=3).profile(epsilon).upper < 1


def test_the_determinant_is_no_less_than_any_hessian_in_the_simplex() -> None:
    rng = np.random.default_rng(0)
    for k in (2, 3, 5, 10):
        for ridge in (1e-3, 0.1, 2.0):
            p = rng.dirichlet(np.full(k, rng.choice([0.3, 1, 10])), 400)
            p = np.vstack([p, np.full(k, 1 / k)])
            second = np.einsum("ni,ij->nij", p, np.eye(k)) - p[:, :, None] * p[:, None, :]
            logs = np.linalg.slogdet(np.eye(k) + second / ridge)[1]
            for spared in (0.0, 0.5, 30.0):
                c = determinant(k, ridge, spared)
                assert (logs - spared * (1 - (p**2).sum(axis=1))).max() <= c
            # attained where all classes are as probable
            assert logs.max() == pytest.approx(determinant(k, ridge, 0.0), rel=1e-6)


def test_the_profile_and_the_divergence_are_the_formulas() -> None:
    with mp.workdps(40):
        cases = [(0.2, 0.1, 1, 10, 1.0), (1.5, 0.0, 1, 3, 8.0), (0.4, 0.1, 2, 4, 2.5)]
        for m, c, rows, k, epsilon in cases:
            mm, e = mp.mpf(m), mp.mpf(epsilon) - mp.mpf(c)
            stick = mp.ncdf(mm / 2 - e / mm) - mp.exp(e) * mp.ncdf(-mm / 2 - e / mm)
            delta = ObjectivePerturbation(m, c, rows, classes=k).profile(epsilon).upper
            truth = rows * (k - 1) * stick
            assert truth <= delta <= truth * (1 + mp.mpf(10) ** -9)
        cases = [(0.2, 0.1, 1, 10, 30.0), (1.0, 0.3, 1, 3, 4.0), (0.5, 0.2, 2, 5, 9.0)]
        for m, c, rows, k, order in cases:
            t, mean = mp.mpf(order) - 1, mp.mpf(m) ** 2 / 2

            def excess(
                z: Any, t: Any = t, m: float = m, own: Any = mean if rows == 1 else 0
            ) -> Any:
                return mp.npdf(z) * (mp.exp(t * (own + m * z)) - 1)

            start = -mp.mpf(m) / 2 if rows == 1 else mp.mpf(0)
            area = mp.quad(excess, [start, 1, t * m, t * m + 4, t * m + 20])
            truth = c + (0 if rows == 1 else mean) + mp.log(1 + (k - 1) * area) / t
            found = ObjectivePerturbation(m, c, rows, classes=k).renyi(np.array([order]))[0]
            assert truth <= found <= truth * (1 + mp.mpf(10) ** -9)
            low = ObjectivePerturbation(m, c, rows, classes=k).renyi(
                np.geomspace(1.0001, order, 50)
            )
            assert (np.diff(low) >= 0).all()


CASES = [(0.2, 0.1, 1, 0.0, 3), (5.0, 0.3, 1, 0.0, 10), (0.4, 0.1, 2, 0.01, 4)]


@pytest.mark.parametrize("case", [*CASES, (0.3, 0.0, 1, 0.0, 2)])
def test_holds_together(case: tuple[Any, ...]) -> None:
    check(ObjectivePerturbation(*case), others=[ObjectivePerturbation(0.1, 0.01, 1, 0.0, 3)])


def test_several_classes_are_not_compared_with_one_score() -> None:
    softmax = ObjectivePerturbation(0.2, 0.1, classes=3)
    assert not softmax.dominates(ObjectivePerturbation(0.1, 0.1))
    assert softmax.dominates(ObjectivePerturbation(0.1, 0.1, classes=3))
    assert softmax.grouped(2).classes == 3
    with pytest.raises(DomainError):
        ObjectivePerturbation(0.2, 0.1, classes=0)
