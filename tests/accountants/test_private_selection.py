"""Private selection: the exact law of the best of K runs of small ordered mechanisms."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from attrs import frozen
from scipy.optimize import brentq
from scipy.stats import norm

from accountants import (
    Approximate,
    DomainError,
    Gaussian,
    GaussianSparseVector,
    Laplace,
    PrivacyLoss,
    Pure,
    Repeated,
    Spend,
    certify,
    tightest,
)
from accountants.losses.given import ZeroConcentrated
from accountants.losses.selection import PoissonSelection, PrivateSelection

Law = list[mp.mpf]
ORDERS = np.array([1.02, 1.3, 2.0, 5.0, 17.0])


def truncated(shape: float, stopping: float) -> Callable[[mp.mpf], mp.mpf]:
    """E x^K, K truncated negative binomial."""
    eta, gamma = truth.real(shape), truth.real(stopping)
    if eta == 0:
        return lambda x: mp.log(1 - (1 - gamma) * x) / mp.log(gamma)
    return lambda x: ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


def poisson(mean: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: mp.exp(truth.real(mean) * (x - 1))


def best(run: Law, generating: Callable[[mp.mpf], mp.mpf]) -> Law:
    """The law of the best outcome (the last is the best), and of no outcome if that may be."""
    sums = [mp.mpf(0)]
    for mass in run:
        sums.append(sums[-1] + mass)
    sums[-1] = mp.mpf(1)
    masses = [generating(b) - generating(a) for a, b in pairwise(sums)]
    none = generating(mp.mpf(0))
    return [*masses, none] if none > 1e-40 else masses


def ordered(seed: int, spread: float) -> tuple[Law, Law]:
    draw = np.random.default_rng(seed)
    size = int(draw.integers(2, 6))
    p = [mp.mpf(float(v)) for v in draw.random(size) ** 3 + 1e-4]
    q = [v * mp.exp(spread * float(s)) for v, s in zip(p, draw.uniform(-1, 1, size), strict=True)]
    return [v / sum(p) for v in p], [v / sum(q) for v in q]


@frozen
class FinitePair(PrivacyLoss):
    """A discrete run by its exact curve, with or without its pure epsilon."""

    p: tuple[mp.mpf, ...]
    q: tuple[mp.mpf, ...]
    bounded: bool = True

    def pure(self) -> float | None:
        if not self.bounded:
            return None
        return float(max(abs(mp.log(a / b)) for a, b in zip(self.p, self.q, strict=True))) * (
            1 + 1e-14
        )

    def renyi(self, orders: np.ndarray) -> np.ndarray:
        logs = np.log(np.array([[float(v) for v in self.p], [float(v) for v in self.q]]))
        a = np.asarray(orders)[..., None]
        some = [np.logaddexp.reduce(a * u + (1 - a) * v, axis=-1) for u, v in (logs, logs[::-1])]
        less = np.asarray(orders) - 1
        return np.maximum(*some) / less + 1e-12 * (1 + 1 / less)


FAMILIES = [
    (truncated(1, 0.1), lambda base: PrivateSelection(base, 1.0, 0.1)),
    (truncated(0, 0.01), lambda base: PrivateSelection(base, 0.0, 0.01)),
    (truncated(-0.5, 0.001), lambda base: PrivateSelection(base, -0.5, 0.001)),
    (truncated(2.5, 0.3), lambda base: PrivateSelection(base, 2.5, 0.3)),
    (truncated(1, 0.99), lambda base: PrivateSelection(base, 1.0, 0.99)),
    (poisson(0.1), lambda base: PoissonSelection(base, 0.1)),
    (poisson(1.0), lambda base: PoissonSelection(base, 1.0)),
    (poisson(50.0), lambda base: PoissonSelection(base, 50.0)),
]


@pytest.mark.parametrize("spread", [0.02, 0.4, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_no_selection_exceeds_its_loss(seed: int, spread: float) -> None:
    p, q = ordered(seed, spread)
    for bounded in (True, False):
        base = FinitePair(tuple(p), tuple(q), bounded)
        for generating, make in FAMILIES:
            loss = make(base)
            pair = list(zip(best(p, generating), best(q, generating), strict=True))
            for order, value in zip(ORDERS, loss.renyi(ORDERS), strict=True):
                assert truth.renyi(pair, order) <= value
            pure = loss.pure()
            assert (pure is not None) == bounded
            if pure is not None:
                assert max(abs(mp.log(a / b)) for a, b in pair) <= pure
                exact = truth.Profile(pair)
                for e in (0.0, pure / 4):
                    bracket = loss.profile(e)
                    assert bracket is not None
                    assert exact(e) <= bracket.upper


@pytest.mark.parametrize(("shape", "stopping"), [(1, 1e-4), (0, 1e-6), (2, 1e-3), (-0.5, 1e-8)])
def test_pure_epsilon_is_nearly_attained(shape: float, stopping: float) -> None:
    """A rare outcome just below a somewhat less rare better one."""
    generating, grow = truncated(shape, stopping), mp.e
    top = truth.real(stopping) * 1000
    low = top / 10**6
    for _ in range(40):
        p = [1 - grow * low - top, grow * low, top]
        q = [1 - low - grow * top, low, grow * top]
        epsilon = abs(mp.log(best(p, generating)[1] / best(q, generating)[1]))
        if min(*p, *q) > 0 and epsilon > 0.985 * (2 + shape):
            break
        top, low = top / mp.mpf("0.8"), low / mp.mpf("0.8")
    loss = PrivateSelection(Pure(1.0), shape, stopping)
    assert 0.98 * (2 + shape) <= epsilon <= loss.pure()
    assert math.isclose(loss.pure(), 2 + shape, rel_tol=1e-14)


def test_curve_is_near_what_a_selection_attains() -> None:
    """The same extreme run at finite orders: within the terms in log(1/gamma) and log E K."""
    p, q = [0.9, 0.05, 0.05], [0.7, 0.1, 0.2]
    run = [[truth.real(v) for v in law] for law in (p, q)]
    pair = list(zip(*(best(law, truncated(1, 0.2)) for law in run), strict=True))
    loss = PrivateSelection(FinitePair(tuple(run[0]), tuple(run[1])), 1.0, 0.2)
    for order in (2.0, 8.0, 32.0):
        value = float(loss.renyi(np.array([order]))[0])
        assert truth.renyi(pair, order) <= value <= 4 * truth.renyi(pair, order) + 2


def test_printed_poisson_theorem_fails_for_few_runs_and_ours_holds() -> None:
    """With a mean below 1 the printed ``log(mean)/(order - 1)`` is negative."""
    p, q = ordered(1, 0.01)
    base, mean, order = FinitePair(tuple(p), tuple(q)), 0.1, 2.0
    printed = float(base.renyi(np.array([order]))[0]) + math.log(mean) / (order - 1)
    pair = list(zip(best(p, poisson(mean)), best(q, poisson(mean)), strict=True))
    exact = truth.renyi(pair, order)
    assert printed < 0 < exact <= float(PoissonSelection(base, mean).renyi(np.array([order]))[0])


@pytest.mark.parametrize("stopping", [1e-100, 1e-12, 1e-3, 0.5, 0.999, 1 - 1e-12])
@pytest.mark.parametrize("shape", [-0.999, -0.5, -1e-9, 0.0, 1e-300, 1e-9, 0.5, 1.0, 7.0, 1e6])
def test_expected_runs(shape: float, stopping: float) -> None:
    with mp.workdps(400):
        eta, gamma = truth.real(shape), truth.real(stopping)
        if shape == 0:
            exact = (1 - gamma) / (gamma * -mp.log(gamma))
        else:
            exact = eta * (1 - gamma) / (gamma * (1 - gamma**eta))
        runs = PrivateSelection(Pure(1.0), shape, stopping).runs()
        assert exact <= runs <= exact * (1 + mp.mpf("1e-10"))


def surviving(
    generating: Callable[[mp.mpf], mp.mpf], keep_probability: mp.mpf
) -> Callable[[mp.mpf], mp.mpf]:
    """E x^K given that each of K runs was accepted."""
    return lambda x: generating(keep_probability * x) / generating(keep_probability)


def test_failures_of_runs() -> None:
    """The chance that any of K runs fails, and the law of the best where none does."""
    for generating, make in FAMILIES:
        loss = make(Approximate(0.3, 1e-4))
        exact = 1 - generating(1 - truth.real(1e-4))
        assert exact <= loss.delta_floor() <= 60 * exact
        # given no failure: the same family with fewer runs
        p, q = truth.response(0.3)[0], truth.response(0.3)[1]
        run, other = [p[0], q[0]], [p[1], q[1]]
        given = surviving(generating, 1 - truth.real(1e-4))
        pair = list(zip(best(run, given), best(other, given), strict=True))
        for order, value in zip(ORDERS, loss.renyi(ORDERS), strict=True):
            assert truth.renyi(pair, order) <= value


def test_curves_of_higher_orders_bound_lower_ones() -> None:
    loss = PrivateSelection(Gaussian(0.1), 1.0, 0.01)
    orders = 1 + np.geomspace(1e-6, 1e3, 60)
    curve = loss.renyi(orders)
    assert np.all(np.diff(curve) >= -1e-12)
    assert curve[0] < 1
    assert np.all(loss.renyi(orders.reshape(6, 10)) == curve.reshape(6, 10))


@pytest.mark.parametrize(
    "base", [Gaussian(0.05), Pure(0.05), Laplace(0.05), ZeroConcentrated(1e-3)]
)
def test_under_every_accountant(base: PrivacyLoss) -> None:
    for loss in (PrivateSelection(base, 0.0, 0.05), PoissonSelection(base, 10.0)):
        answers = certify(Repeated(Spend(loss), 2), 1e-5)
        bounded = base.pure() is not None
        for name in ("basic", "advanced", "renyi"):
            bounds = answers[name].bounds
            assert bounds is not None
            assert bounds.lower == 0.0
            assert bounds.upper < math.inf
        assert (answers["concentrated"].bounds is not None) == bounded
        assert (answers["gaussian"].bounds is not None) == bounded


def test_groups_and_order() -> None:
    loss = PrivateSelection(Pure(0.1), 1.0, 0.1)
    assert loss.grouped(3) == PrivateSelection(Pure(0.1).grouped(3), 1.0, 0.1)
    assert loss.grouped(3).dominates(loss)
    assert not loss.dominates(PrivateSelection(Pure(0.1), 1.0, 0.05))
    several = PoissonSelection(Pure(0.1), 5.0)
    assert several.grouped(2).dominates(several)
    assert not several.dominates(loss)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrivateSelection(1.0, 1.0, 0.1),  # type: ignore[arg-type]
        lambda: PrivateSelection(Pure(1.0), -1.0, 0.1),
        lambda: PrivateSelection(Pure(1.0), math.inf, 0.1),
        lambda: PrivateSelection(Pure(1.0), "1", 0.1),  # type: ignore[arg-type]
        lambda: PrivateSelection(Pure(1.0), 1.0, 1.0),
        lambda: PrivateSelection(Pure(1.0), 1.0, 0.0),
        lambda: PrivateSelection(Pure(1.0), 1.0, 1e-200),
        lambda: PoissonSelection(Pure(1.0), 0.0),
        lambda: PoissonSelection(None, 1.0),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters(make: Callable[[], object]) -> None:
    with pytest.raises(DomainError):
        make()


def test_a_curve_without_a_value_at_infinity_keeps_its_others() -> None:
    """Where two infinities meet at one order, finite orders must not lose their bounds."""
    for loss in (
        PrivateSelection(Pure(epsilon=1.0), 0.0, 0.1),
        GaussianSparseVector(10.0, 20.0, 1000),
    ):
        with np.errstate(invalid="ignore"):
            both = loss.renyi(np.array([2.0, np.inf]))
        assert both[0] == loss.renyi(np.array([2.0]))[0]


def best_of_gaussians(
    mu: float, stopping: float, order: np.ndarray, edges: np.ndarray
) -> list[np.ndarray]:  # type: ignore[type-arg]
    """The laws of the best of a geometric number of draws of N(mu, 1), and of N(0, 1), by cells.

    The last cell of ``order`` is the best. A cell's mass is that of its survival functions: exact
    whatever the order is inside of it.
    """
    laws = []
    for mean in (mu, 0.0):
        upper = np.asarray(norm.sf(edges - mean))
        lower = np.asarray(norm.cdf(edges - mean))
        masses = np.where(edges[1:] > mean, -np.diff(upper), np.diff(lower))[order]
        beyond = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
        kept = stopping + (1 - stopping) * beyond
        laws.append(stopping * masses / (kept[:-1] * kept[1:]))
    return laws


@pytest.mark.parametrize(
    ("mu", "stopping", "low", "least"),
    [(0.1, 0.5, -0.44, 1.14), (0.3, 0.1, -0.94, 1.45), (1.0, 0.01, -1.31, 1.79)],
)
def test_a_score_that_is_worse_than_the_likelihood_ratio(
    mu: float, stopping: float, low: float, least: float
) -> None:
    """Outcomes below ``low`` are the best, then the largest: it is within 1.2% of the bound."""
    edges = np.concatenate([[-np.inf], np.linspace(-8, 10, 4001), [np.inf]])
    at, delta = np.arange(len(edges) - 1), 1e-6
    below = at[edges[1:] <= low]
    epsilons = []
    for order in (at, np.concatenate([at[len(below) :], below[::-1]])):
        p, q = best_of_gaussians(mu, stopping, order, edges)
        assert p.sum() == pytest.approx(1)
        assert q.sum() == pytest.approx(1)
        epsilons.append(
            brentq(lambda e: np.maximum(p - math.exp(e) * q, 0).sum() - delta, 0.0, 40.0)  # noqa: B023
        )
    one, bound = (
        certify(Spend(loss), delta=delta)
        for loss in (Gaussian(mu), PrivateSelection(Gaussian(mu), shape=1.0, stopping=stopping))
    )
    base = tightest(one).bounds.upper
    by_ratio, worst = (epsilon / base for epsilon in epsilons)
    assert by_ratio < least < worst
    assert worst < tightest(bound).bounds.upper / base < 1.012 * worst


def test_the_best_of_gaussian_runs_at_extremes() -> None:
    """It falls in epsilon, is nowhere 0, and is beside failures of the runs."""
    for mu, shape, stopping in ((1e-4, 1.0, 1e-12), (0.3, -0.999, 0.1), (30.0, 0.0, 0.999999)):
        loss = PrivateSelection(Gaussian(mu), shape=shape, stopping=stopping)
        found = [loss.profile(e) for e in (0.0, 0.1, 1.0, 10.0, 1e3, 1e6)]
        deltas = [bounds.upper for bounds in found if bounds is not None]
        assert len(deltas) == 6
        assert all(a >= b > 0 for a, b in pairwise(deltas))
        assert tightest(certify(Spend(loss), delta=0.0)).bounds.upper == math.inf
    # far beyond what floats hold, the curve alone
    assert PrivateSelection(Gaussian(0.3), shape=1e6, stopping=1e-12).profile(1.0) is None
