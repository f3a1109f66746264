"""The exact loss of a ridge posterior, its worst case and its closed forms, against brute force."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from accountants import Gaussian
from accountants.errors import DomainError
from adaptive_dp.instance import ridge as quadratic
from adaptive_dp.instance.records import RidgeBounds, largest_gamma, worst_epsilon, worst_profile


def exact(epsilon, m, g, digits=60):
    """Both directions' profiles, from P = N(E, m) and Q = N(E/(1+m), m/(1+m)) in many digits."""
    with mp.workdps(digits):
        e, m, g = mp.mpf(epsilon), mp.mpf(m), mp.mpf(g)
        shift = g / mp.sqrt(m)
        level = (mp.log(1 + m) + shift**2 / (1 + m)) / 2

        def outside(r, mean, variance):
            return mp.ncdf((-r - mean) / mp.sqrt(variance)) + mp.ncdf(
                (mean - r) / mp.sqrt(variance)
            )

        def both(r):
            return outside(r, shift, m), outside(r, shift / (1 + m), m / (1 + m))

        p, q = both(mp.sqrt(2 * (e + level)))
        removed = p - mp.exp(e) * q
        if level <= e:
            return removed, mp.mpf(0)
        p, q = both(mp.sqrt(2 * (level - e)))
        return removed, (1 - q) - mp.exp(e) * (1 - p)


# Bounds of the loss in closed form: looser than the exact ones, and readable.
#
# With leverage m and prediction error e of the data set without the record, and
# ``t = log(2/delta)``,
#
# ``epsilon = |g^2/(1+m) - log(1+m)| / 2 + m t + g sqrt(2 t)``, ``g = sqrt(gamma m) |e|``.
#
# It holds for the loss ``a - g Z + (m/2) Z^2`` of the data set without the record, since
# ``|Z| <= sqrt(2 t)`` but for delta, and for that of the one with it if ``t >= 1``: this is at most
# ``log(1+m)/2 + g^2 / (2 (1+m)^2) + g sqrt(2 t)``, and ``log(1+m) <= m t``.
#
# As printed (Wang 2019, eqs. 4.3 and 4.4, and Remark 11) the terms in t are a half and ``1/sqrt 2``
# of these, which stands for 41 times the delta, and 4.4 is not equal to 4.3. In terms of the
# data set with the record, ``m' = x'(H + xx')^-1 x`` and its residual e', it is
# ``m = m' / (1 - m')`` and ``e = e' / (1 - m')``.


def record_epsilon(delta, m, g):
    t = max(1.0, math.log(2 / delta))
    return abs(g * g / (1 + m) - math.log1p(m)) / 2 + m * t + g * math.sqrt(2 * t)


def data_set_epsilon(delta, gamma, bounds):
    """`record_epsilon` at the worst leverage and gap, without the logarithm (the t term is more).

    ``sqrt(2 gamma t) L / sqrt(h) + gamma L^2 / (2 (h + B^2)) + t B^2 / h``, ``L = B residual``: as
    in Remark 11 of Wang 2019, with t for ``(1 + t) / 2``.
    """
    t = max(1.0, math.log(2 / delta))
    m = bounds.leverage()
    g = bounds.gap(gamma, m)
    return g * math.sqrt(2 * t) + g * g / (2 * (1 + m)) + m * t


def posterior(x, y, ridge, gamma):
    """Mean and covariance, by the normal equations."""
    h = x.T @ x + ridge * np.eye(x.shape[1])
    return np.linalg.solve(h, x.T @ y), np.linalg.inv(h) / gamma


def log_density(t, mean, covariance):
    off = t - mean
    value = np.einsum("...i,ij,...j->...", off, np.linalg.inv(covariance), off)
    return -value / 2 - np.linalg.slogdet(2 * np.pi * covariance)[1] / 2


def pair(x, y, ridge, gamma, z):
    """Leverage and gap of the record z = (x, y) beside the data set."""
    mean, covariance = posterior(x, y, ridge, gamma)
    m = gamma * z[0] @ covariance @ z[0]
    return float(m), float(math.sqrt(gamma * m) * abs(z[1] - z[0] @ mean))


def test_the_profiles_against_three_hundred_digits():
    rng = np.random.default_rng(1)
    for _ in range(120):
        m, g = 10 ** rng.uniform(-12, 2), 10 ** rng.uniform(-8, 1.3)
        epsilon = (m + g) * 10 ** rng.uniform(-3, 1.2)
        removed, added = exact(epsilon, m, g, digits=300)
        bounds = quadratic.removal_profile(epsilon, m, g), quadratic.addition_profile(epsilon, m, g)
        for bound, truth in zip(bounds, (removed, added), strict=True):
            assert bound >= truth
            assert bound <= truth * (1 + 1e-4) + 1e-18


def test_the_profiles_against_an_integral_of_both_densities():
    for m, g, epsilon in [(0.01, 0.1, 0.2), (0.5, 1.0, 1.0), (3.0, 0.2, 0.4)]:
        x = np.linspace(-12, 12, 2_000_001)
        p = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        q = np.exp(-((x - g / (1 + m)) ** 2) * (1 + m) / 2) * math.sqrt((1 + m) / (2 * math.pi))
        removed = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x)
        added = np.trapezoid(np.maximum(q - math.exp(epsilon) * p, 0), x)
        assert quadratic.removal_profile(epsilon, m, g) == pytest.approx(removed, rel=1e-6)
        assert quadratic.addition_profile(epsilon, m, g) == pytest.approx(added, rel=1e-6)


def test_the_order_of_pairs():
    """Harder to tell apart: less gap; or less leverage at the same g^2 / (m (1 + m)), or less."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        m, g = 10 ** rng.uniform(-4, 1.5), 10 ** rng.uniform(-2, 1)
        epsilon = (m + g) * 10 ** rng.uniform(-2, 0.7)
        less = m * rng.uniform(0.01, 1)
        other = g * math.sqrt(less * (1 + less) / (m * (1 + m)))
        most = exact(epsilon, m, g)
        for pair in ((m, g * rng.uniform(0.1, 1)), (less, other)):
            assert all(a <= b for a, b in zip(exact(epsilon, *pair), most, strict=True))


def test_epsilon_is_where_the_profile_crosses_delta():
    leverages, gaps = np.meshgrid([1e-9, 1e-3, 0.1, 3.0], [0.0, 1e-6, 0.1, 2.0])
    epsilons = quadratic.posterior_epsilon(1e-6, leverages, gaps)
    for m, g, epsilon in zip(leverages.flat, gaps.flat, epsilons.flat, strict=True):
        assert max(exact(epsilon, m, g)) <= 1e-6
        assert epsilon == 0 or max(exact(epsilon * (1 - 1e-6), m, g)) > 1e-6


def test_without_leverage_it_is_a_gaussian():
    for gap in (1e-3, 0.3, 2.0):
        truth = Gaussian(mu=gap).epsilon_at(1e-6)
        assert (
            truth.lower <= quadratic.posterior_epsilon(1e-6, 0.0, gap) <= truth.upper * (1 + 1e-6)
        )


def test_extreme_pairs_are_bounded():
    assert quadratic.posterior_epsilon(1e-6, 0.0, 0.0) == 0
    assert quadratic.posterior_epsilon(0.0, 0.1, 0.1) == math.inf
    assert quadratic.posterior_epsilon(1e-6, 1e308, 1e308) == math.inf
    assert quadratic.posterior_epsilon(1e-6, math.inf, 0.0) == math.inf
    for m, g in itertools.product((0.0, 5e-324, 1e-300, 1e-20, 1e7), (0.0, 5e-324, 1e-160, 1e7)):
        assert 0 <= quadratic.posterior_profile(0.0, m, g) <= 1
        assert quadratic.posterior_epsilon(1e-6, m, g) < math.inf
    with pytest.raises(DomainError, match="NaN"):
        quadratic.posterior_profile(1.0, math.nan, 0.0)


def test_the_loss_is_that_of_real_posteriors():
    """``log p_Z(t) / p_{Z+z}(t) = R^2 / 2 - K`` with R the scaled prediction error, at any t."""
    rng = np.random.default_rng(2)
    x, y, z = rng.normal(size=(12, 3)), rng.normal(size=12), (rng.normal(size=3), 0.7)
    gamma, ridge = 1.7, 0.6
    m, g = pair(x, y, ridge, gamma, z)
    t = rng.normal(size=(20, 3))
    without = posterior(x, y, ridge, gamma)
    with_z = posterior(np.vstack([x, z[0]]), np.append(y, z[1]), ridge, gamma)
    ratio = log_density(t, *without) - log_density(t, *with_z)
    square = gamma * (z[1] - t @ z[0]) ** 2
    level = (math.log1p(m) + g * g / m / (1 + m)) / 2
    assert np.abs(ratio - (square / 2 - level)).max() < 1e-10


def test_the_printed_covariance_is_not_the_posteriors():
    """The density is e^(-gamma/2 (|y - Xt|^2 + ridge |t|^2)); (1/ridge)(X'X)^-1 is not its."""
    rng = np.random.default_rng(7)
    x, y, gamma, ridge = rng.normal(size=(30, 2)), rng.normal(size=30), 1.7, 0.6
    mean, covariance = posterior(x, y, ridge, gamma)
    t = mean + 0.3 * rng.normal(size=(6, 2))
    goal = -gamma / 2 * (((y - t @ x.T) ** 2).sum(1) + ridge * (t**2).sum(1))
    assert np.ptp(goal - log_density(t, mean, covariance)) < 1e-12 * 1e3
    assert np.ptp(goal - log_density(t, mean, np.linalg.inv(x.T @ x) / ridge)) > 0.1


def brute(bounds, gamma, epsilon, points=20):
    """The worst exact delta over leverages up to the bound, at the largest residual."""
    worst = 0.0
    top = bounds.norm**2 / bounds.curvature
    for m in top * np.geomspace(1e-3, 1, points):
        g = math.sqrt(gamma * m) * bounds.residual
        worst = max(worst, float(max(exact(epsilon, m, g))))
        if bounds.removals:
            out = min(top, bounds.norm**2 / (bounds.norm**2 + bounds.ridge)) * m / top
            out = out / (1 - out)
            g = math.sqrt(gamma * out) * bounds.residual * (1 + out)
            worst = max(worst, float(max(exact(epsilon, out, g))))
    return worst


@pytest.mark.parametrize("removals", [False, True])
@pytest.mark.parametrize(
    ("curvature", "gamma", "epsilon"),
    [
        (100.0, 0.2, 0.5),
        (100.0, 9.0, 2.0),
        (4.0, 2.0, 3.9),  # near F^2 / 2, where the added record's loss falls in leverage
        (2.0, 3.0, 5.0),
        (0.5, 0.01, 1.0),
        (0.5, 40.0, 30.0),  # a leverage above the golden ratio
    ],
)
def test_the_worst_pair_bounds_every_pair(curvature, gamma, epsilon, removals):
    bounds = RidgeBounds(curvature=curvature, ridge=0.3, norm=1.0, residual=2.0, removals=removals)
    bound = worst_profile(epsilon, gamma, bounds)
    truth = brute(bounds, gamma, epsilon)
    assert truth <= bound
    if removals or curvature == 100:
        assert bound <= truth * (1 + 1e-6) + 1e-300


def test_the_worst_profile_of_an_added_record_is_not_always_at_the_largest_leverage():
    """Why large epsilons take the bound by the invariant: here less leverage loses more."""
    end, epsilon = math.sqrt(8.0), 3.25
    corner, less = 0.25, 0.2
    assert (
        exact(epsilon, less, end * math.sqrt(less))[1]
        > exact(epsilon, corner, end * math.sqrt(corner))[1]
    )
    bounds = RidgeBounds(curvature=4, ridge=0, norm=1, residual=end, removals=False)
    assert worst_profile(epsilon, 1.0, bounds) >= exact(epsilon, less, end * math.sqrt(less))[1]


@pytest.mark.parametrize("seed", range(4))
def test_no_record_of_random_data_sets_exceeds_the_worst(seed):
    rng = np.random.default_rng(seed)
    n, d, ridge = int(rng.integers(1, 30)), int(rng.integers(1, 4)), 10 ** rng.uniform(-1, 1)
    x = rng.normal(size=(n, d))
    x /= np.maximum(1, np.linalg.norm(x, axis=1))[:, None]
    y = np.clip(rng.normal(size=n), -1, 1)
    mean, _ = posterior(x, y, ridge, 1.0)
    least = float(np.linalg.eigvalsh(x.T @ x)[0]) + ridge
    bounds = RidgeBounds(
        curvature=least * (1 - 1e-12),
        ridge=ridge * (1 - 1e-12),
        norm=1,
        residual=1 + float(np.linalg.norm(mean)),
    )
    gamma = largest_gamma(8.0, 1e-3, bounds)
    pairs = []
    for i in range(n):  # removals
        keep = np.arange(n) != i
        pairs.append(pair(x[keep], y[keep], ridge, gamma, (x[i], y[i])))
    for _ in range(20):  # additions
        z = rng.normal(size=d)
        z *= rng.choice([1.0, rng.uniform()]) / np.linalg.norm(z)
        pairs.append(pair(x, y, ridge, gamma, (z, rng.choice([-1.0, 1.0]))))
    assert quadratic.posterior_epsilon(1e-3, *np.transpose(pairs)).max() <= 8.0


def test_the_largest_gamma_is_attained_by_a_data_set():
    """One dimension, all mass in the removed record's direction: nothing is wasted."""
    ridge, n = 2.0, 50
    x, y = np.ones((n, 1)), np.full(n, -1.0)
    mean, _ = posterior(x, y, ridge, 1.0)
    residual = 1 + abs(float(mean[0]))
    added = RidgeBounds(curvature=n + ridge, ridge=ridge, norm=1, residual=residual, removals=False)
    gamma = largest_gamma(1.0, 1e-6, added)
    m, g = pair(x, y, ridge, gamma, (np.ones(1), 1.0))
    assert quadratic.posterior_epsilon(1e-6, m, g) == pytest.approx(1.0, abs=1e-9)
    assert worst_epsilon(1e-6, gamma, added) == pytest.approx(1.0, abs=1e-9)


def test_the_reference_calibration():
    bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    delta = 1e-6 / 3
    gamma = largest_gamma(0.5, delta, bounds)
    assert gamma == pytest.approx(0.2346, abs=5e-5)
    assert data_set_epsilon(delta, 0.0937, bounds) <= 0.5
    assert data_set_epsilon(delta, 0.0938, bounds) > 0.5
    assert worst_epsilon(delta, 0.2714, bounds) > 0.5  # what the printed Remark 11 allows
    both = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2)
    assert 0.22 < largest_gamma(0.5, delta, both) < gamma


def test_calibration_says_zero_where_nothing_fits():
    bounds = RidgeBounds(curvature=1, ridge=1, norm=1, residual=1)
    assert largest_gamma(0.01, 1e-6, bounds) == 0  # the leverage alone costs more
    assert largest_gamma(1.0, 0.0, bounds) == 0
    loose = RidgeBounds(curvature=1, ridge=0, norm=1, residual=1)  # nothing may be left
    assert largest_gamma(1.0, 1e-6, loose) == 0
    assert worst_epsilon(1e-6, 1.0, loose) == math.inf
    with pytest.raises(DomainError, match=r"RidgeBounds\.ridge"):
        RidgeBounds(curvature=1, ridge=2, norm=1, residual=1)


def test_removals_must_be_covered():
    """One record (1, 1) against none: bounds at the larger set that cover additions only fail."""
    ridge, delta = 0.2, 1e-3
    larger = RidgeBounds(
        curvature=1 + ridge, ridge=ridge, norm=1, residual=1 + 1 / (1 + ridge), removals=False
    )
    m = 1 / ridge
    gamma = 1.0
    epsilon = data_set_epsilon(delta, gamma, larger)
    assert max(exact(epsilon, m, math.sqrt(gamma * m))) > 20 * delta
    epsilon = worst_epsilon(delta, gamma, larger)
    assert max(exact(epsilon, m, math.sqrt(gamma * m))) > 20 * delta
    covered = RidgeBounds(curvature=1 + ridge, ridge=ridge, norm=1, residual=1 + 1 / (1 + ridge))
    epsilon = worst_epsilon(delta, gamma, covered)
    assert max(exact(epsilon, m, math.sqrt(gamma * m))) <= delta


CASES = list(itertools.product((1e-2, 1e-4, 1e-6), (1e-3, 1e-2, 0.1, 1.0), (0.05, 0.3, 1.0, 2.0)))


def test_the_corrected_record_bound_holds_where_the_printed_fails():
    failures, ratios = 0, []
    for delta, m, g in CASES:
        t = math.log(2 / delta)
        base = abs(g * g / (1 + m) - math.log1p(m)) / 2
        truth = max(exact(base + m / 2 * t + g * math.sqrt(t), m, g))
        failures += truth > delta
        ratios.append(float(truth / delta))
        ours = record_epsilon(delta, m, g)
        assert max(exact(ours, m, g)) <= delta
        assert quadratic.posterior_epsilon(delta, m, g) <= ours
    assert failures == 26
    assert 40 < max(ratios) < 42


def test_the_closed_bound_holds_for_large_delta_too():
    for delta, m, g in itertools.product((0.5, 0.8, 0.99), (0.01, 1.0, 20.0), (0.0, 0.1, 3.0)):
        assert max(exact(record_epsilon(delta, m, g), m, g)) <= delta


def test_in_sample_and_out_of_sample_forms_are_equal_only_as_corrected():
    gamma, m, e, t = 2.0, 0.5, 1.0, math.log(2e6)
    inside, residual = m / (1 + m), e / (1 + m)
    log = -math.log1p(-inside)
    out = abs(-math.log1p(m) + gamma * m / (1 + m) * e * e) / 2 + m / 2 * t
    out += math.sqrt(gamma * m * t) * e
    printed = abs(log - gamma * inside / (1 - inside) * residual**2) / 2 + inside / 2 * t
    printed += math.sqrt(gamma * inside * t) * residual
    assert (round(printed, 2), round(out, 2)) == (4.51, 7.57)
    ours = abs(log - gamma * inside * residual**2 / (1 - inside) ** 2) / 2
    ours += inside / (1 - inside) * t
    ours += math.sqrt(2 * gamma * inside / (1 - inside) ** 3 * t) * residual
    g = math.sqrt(gamma * m) * e
    assert record_epsilon(1e-6, m, g) == pytest.approx(ours, rel=1e-12)


def test_the_corrected_data_set_bound_holds_where_the_printed_fails():
    worst = 0.0
    grid = itertools.product((0.5, 5.0, 50.0), (0.01, 0.1, 1.0), (1e-3, 1e-6), (0.0, 0.5, 3.0))
    for ridge, gamma, delta, size in grid:
        lipschitz, t = size + 1, math.log(2 / delta)
        printed = math.sqrt(gamma * lipschitz**2 * t / ridge) + (1 + t) / (2 * ridge)
        printed += gamma * lipschitz**2 / (2 * (ridge + 1))
        bounds = RidgeBounds(
            curvature=ridge, ridge=ridge, norm=1, residual=lipschitz, removals=False
        )
        ours = data_set_epsilon(delta, gamma, bounds)
        for scale in (1.0, 0.3):
            m, e = scale**2 / ridge, 1 + size * scale
            g = math.sqrt(gamma * m) * e
            worst = max(worst, float(max(exact(printed, m, g))) / delta)
            assert max(exact(ours, m, g)) <= delta
        assert ridge == 0.5 or worst_profile(ours, gamma, bounds) <= delta
    assert 32 < worst < 34


EXTREME = (1e-300, 1.0, 1e300)


def test_extreme_bounds_are_answered_outward():
    for curvature, norm, residual in itertools.product(EXTREME, EXTREME, (0.0, *EXTREME[1:])):
        for removals in (False, True):
            bounds = RidgeBounds(
                curvature=curvature, ridge=0.0, norm=norm, residual=residual, removals=removals
            )
            gamma = largest_gamma(1.0, 1e-6, bounds)
            assert 0 <= gamma < math.inf
            assert gamma == 0 or worst_profile(1.0, gamma, bounds) <= 1e-6
            assert worst_epsilon(1e-6, 1.0, bounds) >= 0
