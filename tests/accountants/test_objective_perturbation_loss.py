"""The loss of objective perturbation, against integrals of the exact densities of minimizers."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

from accountants import (
    Distribution,
    DomainError,
    Gaussian,
    Guarantee,
    ObjectivePerturbation,
    Pure,
    Repeated,
    Sequential,
    Spend,
    certify,
)
from accountants.distribution import lattice
from accountants.numerics import Bounds
from accountants.testing import check

EPSILONS = np.array([-2.0, -0.7, -0.2, 0.0, 0.05, 0.2, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0])
ORDERS = np.array([1.05, 1.5, 2.0, 4.0, 12.0, 40.0])


# --- losses of a score, as slopes and second derivatives


def logistic(z, sharp):  # type: ignore[no-untyped-def]
    s = 1 / (1 + np.exp(np.clip(-sharp * z, -700, 700)))
    return s - 1, sharp * s * (1 - s)


def huber(z, sharp):  # type: ignore[no-untyped-def]
    return np.clip(sharp * z, -1, 1), np.where(np.abs(sharp * z) < 1, sharp, 0.0)


def hinge(z, sharp):  # type: ignore[no-untyped-def]
    return np.clip(sharp * z - 1, -1, 0), np.where((sharp * z > 0) & (sharp * z < 1), sharp, 0.0)


SMOOTHNESS = {logistic: 0.25, huber: 1.0, hinge: 1.0}
"""The second derivative's bound at sharp = 1; slopes are in [-1, 1]."""


def density(gradient, hessian, sigma):  # type: ignore[no-untyped-def]
    return np.exp(-(gradient**2) / (2 * sigma**2)) / math.sqrt(2 * math.pi) / sigma * hessian


def one_dimension(kind, sharp, lam, sigma, others, row):  # type: ignore[no-untyped-def]
    """Return the masses of both densities in cells of theta, with and without ``row``."""
    limit = (len(others) + 1 + 9 * sigma) / lam
    # dense where a density may be narrow, with an edge where a slope may bend
    bends = [(s + k / sharp) / x for x, s in [*others, row] for k in (-1, 0, 1)]
    dense = [b + _near(4 / sharp) for b in bends]
    theta = np.unique(np.concatenate([np.linspace(-limit, limit, 6001), bends, *dense]))
    middle, width = (theta[1:] + theta[:-1]) / 2, np.diff(theta)
    gradient, hessian = lam * middle, np.full(len(middle), lam)
    for x, shift in others:
        slope, second = kind(x * middle - shift, sharp)
        gradient, hessian = gradient + slope * x, hessian + second * x * x
    slope, second = kind(row[0] * middle - row[1], sharp)
    with_row = density(gradient + slope * row[0], hessian + second * row[0] ** 2, sigma)
    return with_row * width, density(gradient, hessian, sigma) * width


def _near(limit):  # type: ignore[no-untyped-def]
    side = np.geomspace(1e-4 * limit, limit, 600)
    return np.concatenate([-side, side])


def sticks(p, q, epsilon):  # type: ignore[no-untyped-def]
    """Cells are midpoint values, which for these densities are off by less than 1e-5."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def divergence(p, q, order):  # type: ignore[no-untyped-def]
    positive = (p > 0) & (q > 0)
    logs = order * np.log(p[positive]) + (1 - order) * np.log(q[positive])
    return float((logs.max() + np.log(np.exp(logs - logs.max()).sum())) / (order - 1))


def held(loss, p, q) -> tuple[float, float]:  # type: ignore[no-untyped-def]
    """Assert every bound for both directions; return the nearest that a profile came."""
    assert [p.sum(), q.sum()] == pytest.approx([1, 1], abs=1e-4)
    pair, nearest = loss.pair(), [0.0, 0.0]
    curve = loss.renyi(ORDERS)
    for side, (a, b) in enumerate(((p, q), (q, p))):
        bound = pair.profile(EPSILONS)[1]
        for epsilon, delta in zip(EPSILONS, bound, strict=True):
            truth = sticks(a, b, epsilon)
            assert truth <= delta * (1 + 1e-4) + 1e-4 * (epsilon < 0.3) + 1e-9
            if truth > 1e-9 and epsilon > 0.3:
                nearest[side] = max(nearest[side], truth / delta)
        for order, most in zip(ORDERS, curve, strict=True):
            assert divergence(a, b, order) <= most * (1 + 1e-4) + 1e-3
    return nearest[0], nearest[1]


@pytest.mark.parametrize("kind", [logistic, huber, hinge])
def test_minimizers_of_one_coefficient_stay_below(kind) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(7)
    for _ in range(25):
        sharp, lam = math.exp(rng.uniform(-2, 3)), math.exp(rng.uniform(-2, 3))
        sigma = math.exp(rng.uniform(-0.5, 1.7))
        others = [(rng.choice([-1, 1]) * rng.uniform(0.3, 1), rng.normal()) for _ in range(4)]
        row = (rng.choice([-1.0, 1.0]), rng.normal())
        p, q = one_dimension(kind, sharp, lam, sigma, others[: rng.integers(0, 5)], row)
        loss = ObjectivePerturbation(1 / sigma, math.log1p(SMOOTHNESS[kind] * sharp / lam))
        held(loss, p, q)


def test_the_bound_is_nearly_attained_and_needs_its_factor() -> None:
    # a slope that is the same everywhere: the Gaussian mechanism
    p, q = one_dimension(huber, 1e-6, 1.0, 1.0, [], (1.0, -2e6))
    assert held(ObjectivePerturbation(1.0, 1e-6), p, q)[0] == pytest.approx(0.5, abs=0.01)
    # a slope that jumps at 0: without the row both ends of b tell, each as a Gaussian would
    p, q = one_dimension(huber, 2.0, 1.0, 0.6, [], (1.0, 0.0))
    loss = ObjectivePerturbation(1 / 0.6, math.log1p(2.0))
    held(loss, p, q)
    single = Gaussian(1 / 0.6).profile(5.0).lower
    assert sticks(q, p, 5.0) > 1.9 * single
    assert sticks(p, q, 5.0) < 1.01 * Gaussian(1 / 0.6).profile(5.0 - math.log1p(2.0)).upper


def test_any_shift_of_a_normal_law_that_falls_stays_below() -> None:
    """T(t) = t + r(t), r falling in [-m, m], T' >= e^-c: what the proof comes down to."""
    rng = np.random.default_rng(3)
    t = np.linspace(-12, 12, 24001)
    middle, width = (t[1:] + t[:-1]) / 2, np.diff(t)
    phi = np.exp(-(middle**2) / 2) / math.sqrt(2 * math.pi)
    for _ in range(40):
        m, c = math.exp(rng.uniform(-2, 1)), math.exp(rng.uniform(-4, 1))
        start, drops = m * rng.uniform(-1, 1), np.zeros(len(middle))
        for _ in range(rng.integers(0, 4)):
            a, b = np.sort(rng.normal(0, 2, 2))
            drops[(middle > a) & (middle < b)] = 1 - math.exp(-c * rng.uniform(0.3, 1))
        r = np.maximum(-m, start - np.cumsum(drops * width))
        slope = np.where(r > -m, 1 - drops, 1.0)
        seen = np.exp(-((middle + r) ** 2) / 2) / math.sqrt(2 * math.pi) * slope
        held(ObjectivePerturbation(m, c), phi * width, seen * width / (seen * width).sum())


def test_exchanged_rows_in_two_dimensions_stay_below() -> None:
    rng = np.random.default_rng(11)
    for trial in range(10):
        sharp, lam = math.exp(rng.uniform(-1, 2)), math.exp(rng.uniform(-1, 1.5))
        sigma, angle = math.exp(rng.uniform(0.3, 1.5)), rng.uniform(0, math.pi)
        kind = (logistic, huber)[trial % 2]
        rows = [(np.array([1.0, 0.0]), rng.normal() / 2)]
        rows.append((np.array([math.cos(angle), math.sin(angle)]), rng.normal() / 2))
        limit = (1 + 7 * sigma) / lam
        axis = np.linspace(-limit, limit, 801)
        theta = np.stack(np.meshgrid(axis, axis, indexing="ij"))
        area, laws = (axis[1] - axis[0]) ** 2, []
        for x, shift in rows:
            slope, second = kind(np.tensordot(x, theta, 1) - shift, sharp)
            gradient = lam * theta + slope * x[:, None, None]
            determinant = lam**2 + lam * second  # |x| = 1
            law = np.exp(-(gradient**2).sum(axis=0) / (2 * sigma**2)) * determinant
            laws.append((law * area / (2 * math.pi * sigma**2)).ravel())
        determinant = math.log1p(SMOOTHNESS[kind] * sharp / lam)
        p, q = (law / law.sum() for law in laws)
        assert abs(laws[0].sum() - 1) < 0.02
        loss = ObjectivePerturbation(2 / sigma, determinant, 2)
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
            bound = loss.profile(epsilon).upper
            assert max(sticks(p, q, epsilon), sticks(q, p, epsilon)) <= 1.02 * bound + 1e-6


def test_tails_of_two_signs_are_below_those_of_one() -> None:
    """P(|u'b| + |v'b| > 2z) <= 2 P(Z > z) for z^2 >= 3, whatever the angle."""
    for z in (1.7320509, 2.0, 3.0, 5.0):
        for share in np.linspace(0, 1, 201)[1:-1]:
            inside = mp.erf(z / mp.sqrt(2 * share)) * mp.erf(z / mp.sqrt(2 * (1 - share)))
            assert 1 - inside <= mp.erfc(z / mp.sqrt(2)) * (1 + mp.mpf(10) ** -12)


def test_the_profile_is_the_formula() -> None:
    def stick(epsilon, m):  # type: ignore[no-untyped-def]
        a, b = m / 2 - epsilon / m, -m / 2 - epsilon / m
        return mp.ncdf(a) - mp.exp(epsilon) * mp.ncdf(b)

    with mp.workdps(40):
        for m, c, epsilon in [(0.2, 0.1, 1.0), (1.0, 0.1, 4.0), (1.0, 0.1, 9.0), (0.5, 0.0, 2.0)]:
            mm, cc, e = mp.mpf(m), mp.mpf(c), mp.mpf(epsilon)
            truth = max(stick(e - cc, mm), 2 * stick(e, mm))
            delta = ObjectivePerturbation(m, c).profile(epsilon).upper
            assert truth <= delta <= truth * (1 + mp.mpf(10) ** -9)
        delta = ObjectivePerturbation(0.4, 0.1, 2).profile(2.0).upper
        truth = 2 * stick(mp.mpf(2) - mp.mpf(0.1), mp.mpf(0.4))
        assert truth <= delta <= truth * (1 + mp.mpf(10) ** -9)
        # never above the earlier bound
        for m, c, epsilon in [(0.2, 0.1, 0.5), (1.0, 0.3, 2.0), (3.0, 0.01, 12.0)]:
            formula = 2 * stick(mp.mpf(epsilon) - mp.mpf(c), mp.mpf(m))
            assert ObjectivePerturbation(m, c).profile(epsilon).upper <= formula * (1 + 1e-9)


def test_a_search_composes_as_a_gaussian_of_its_own() -> None:
    """The bound is at least that of both composed, by quadrature, and hardly more."""
    m, c, a = 0.4, 0.15, 0.04
    loss = ObjectivePerturbation(m, c, 1, a)
    z = np.linspace(-38, 38, 152001)
    mass = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    own = np.maximum(m * m / 2 + m * z, 0) + c
    for epsilon in (0.6, 0.9, 1.4, 2.5):
        # P's direction: any law of at most this log-ratio, and the search's Gaussian inside
        far = epsilon - own
        inner = ndtr(a / 2 - far / a) - np.exp(far) * ndtr(-a / 2 - far / a)
        truth = float(np.sum(inner * mass))
        delta = loss.profile(epsilon).upper
        assert truth <= delta * (1 + 1e-3)
        if epsilon > 2:
            alone = Gaussian(math.hypot(m, a)).profile(epsilon - c).upper
            both = 2 * Gaussian(math.hypot(m, a)).profile(epsilon).upper
            assert delta == pytest.approx(max(alone, both), rel=1e-9)


def test_the_divergence_is_the_integral() -> None:
    for m, c, order in [(0.2, 0.1, 1.5), (1.0, 0.3, 4.0), (2.0, 0.05, 20.0)]:
        with mp.workdps(30):
            k = mp.mpf(order) - 1
            points = [-40, -m / 2, 0, m, k * m, k * m + 20 + 2 * m]

            def moment(z, k=k, m=m):  # type: ignore[no-untyped-def]
                return mp.npdf(z) * mp.exp(k * max(0, m * m / 2 + m * z))

            one, two = mp.quad(moment, points), 2 * mp.quad(moment, points[2:])
            truth = max(c + mp.log(one) / k, mp.log(two) / k)
        divergence = ObjectivePerturbation(m, c).renyi(np.array([order]))[0]
        assert truth <= divergence <= truth * (1 + 1e-9)


CASES = [(0.2, 0.1), (1.0, 0.1), (5.0, 3.0), (0.05, 0.004), (0.2, 0.0), (0.4, 0.1, 2)]


@pytest.mark.parametrize("case", [*CASES, (0.6, 0.3, 3), (0.2, 0.1, 1, 0.02)])
def test_holds_together(case: tuple[float, ...]) -> None:
    check(ObjectivePerturbation(*case), others=[ObjectivePerturbation(0.1, 0.01)])


def test_every_accountant_answers_or_says_why_not() -> None:
    term = Sequential((Spend(ObjectivePerturbation(0.2, 0.1)), Spend(Gaussian(0.01))))
    answers = certify(term, delta=1e-6)
    for name in ("basic", "advanced", "renyi", "distribution"):
        bounds = answers[name].bounds
        assert bounds is not None
        assert 0.83 < bounds.upper < 1.6
    for name in ("concentrated", "gaussian"):
        assert answers[name].bounds is None
        assert "ObjectivePerturbation" in answers[name].reason
    many = certify(Repeated(Spend(ObjectivePerturbation(0.05, 0.01)), 8), delta=1e-6)
    alone = certify(Spend(ObjectivePerturbation(0.05, 0.01)), delta=1e-6)
    assert many["distribution"].bounds.upper < 8 * alone["distribution"].bounds.upper
    assert many["distribution"].bounds.upper > Gaussian(0.05 * math.sqrt(8)).epsilon_at(1e-6).upper


@pytest.mark.parametrize("case", [(0.2, 0.1, 1, 1), (0.18, 0.1, 2, 1), (1.2, 0.1, 1, 3)])
def test_one_lattice_is_as_tight_as_the_finest(case: tuple[float, float, int, int]) -> None:
    # where no second lattice is asked the first is as good, with a release beside it
    mu, determinant, rows, count = case
    fit = ObjectivePerturbation(mu, determinant, rows, mu / 400)
    spends = [(fit.pair(), count), (Gaussian(0.05).pair(), 1)]
    term = Sequential([Repeated(Spend(fit), count), Spend(Gaussian(0.05))])
    finest = lattice.scattered(spends, 1e-7, Bounds(0.0, 100.0))
    assert finest is not None
    assert finest.upper - finest.lower < 1e-7 * finest.upper
    assert Guarantee(term, Distribution()).epsilon(delta=1e-7).upper <= finest.upper * (1 + 1e-7)


def test_bad_parameters_are_refused() -> None:
    for bad in [(0.0, 0.1), (-1.0, 0.1), (1.0, -0.1), (1.0, math.inf), (2e3, 0.1), (1e-12, 0.1)]:
        with pytest.raises(DomainError):
            ObjectivePerturbation(*bad)
    for bad in [(1.0, 0.1, 0), (1.0, 0.1, 1, 0.2), (1.0, 0.1, 1, -0.1)]:
        with pytest.raises(DomainError):
            ObjectivePerturbation(*bad)
    several = ObjectivePerturbation(0.1, 0.2).grouped(3)
    assert several.rows == 3
    assert min(several.mu_ / 0.3, several.determinant / 0.6) >= 1 - 2**-52
    assert not ObjectivePerturbation(0.1, 0.2).dominates(Pure(0.1))
