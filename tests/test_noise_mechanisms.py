"""Discrete mechanisms and the norm mechanism: losses by brute force, noise by its law."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.compile import interpolate_norm
from adaptive_dp.mechanisms.additive import ball_noise, sigma_for
from adaptive_dp.noise import SeededStream

WIDE = np.arange(-400, 401)


def renyi(masses, shift, order):
    """Return the Renyi divergence between a law on `WIDE` and the same, shifted."""
    p, q = masses[shift:], masses[: len(masses) - shift]
    some = (p > 1e-60) & (q > 1e-60)
    return math.log(float((p[some] ** order * q[some] ** (1 - order)).sum())) / (order - 1)


def laplace_masses(b):
    masses = np.exp(-np.abs(WIDE) / b)
    return masses / masses.sum()


def gaussian_masses(s):
    masses = np.exp(-(WIDE**2) / (2 * s * s))
    return masses / masses.sum()


@pytest.mark.parametrize("distance", [1.0, 1.9999, 3.0])
@pytest.mark.parametrize("scale", [0.7, 2.0, 6.0])
def test_discrete_laplace_costs_at_least_what_it_does(distance, scale):
    loss = dp.DiscreteLaplace(scale).cost(distance, 5, 1.0)
    shift, masses = math.floor(distance), laplace_masses(scale)
    truth = np.log(masses[50 + shift : -50] / masses[50 : -50 - shift]).max()
    assert truth * (1 - 1e-9) <= loss.pure() <= truth * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [1.5, 4.0])
def test_discrete_gaussian_costs_at_least_what_vectors_do(sigma):
    """Every integer vector of three coordinates within the distance, at some orders."""
    masses, orders = gaussian_masses(sigma), np.array([1.5, 2.0, 4.0])
    one = [{a: renyi(masses, a, order) for a in (1, 2)} | {0: 0.0} for order in orders]
    for distance in (1.0, 1.3, math.sqrt(2), math.sqrt(3), 2.0):
        claimed = dp.DiscreteGaussian(sigma).cost(distance * (1 + 1e-15), 3, 1.0).renyi(orders)
        for v in itertools.product((0, 1, 2), repeat=3):
            if math.hypot(*v) <= distance * (1 + 1e-12):
                for at, claim in zip(one, claimed, strict=True):
                    assert sum(at[a] for a in v) <= claim * (1 + 1e-9)
    scalar = dp.DiscreteGaussian(sigma).cost(2.0, 1, 1.0)
    assert scalar == accountants.DiscreteGaussian(sigma, 2)
    assert dp.DiscreteGaussian(sigma).cost(1.0, 7, 1.0) == accountants.DiscreteGaussian(sigma, 1)
    assert dp.DiscreteGaussian(sigma).cost(2.0, 3, 1.0).rho() == pytest.approx(2 / sigma**2)


def test_values_that_are_not_integers_are_rounded_and_charged():
    assert dp.DiscreteLaplace(3.0).cost(1.5, 2, 0.5).pure() == pytest.approx(1.0)  # 1.5 + 2: 3
    assert dp.DiscreteLaplace(3.0).cost(1.5, 2, 1.0).pure() == pytest.approx(1 / 3)
    assert dp.DiscreteGaussian(3.0).cost(1.5, 1, 0.0) == accountants.DiscreteGaussian(3.0, 2)
    for kind in (dp.DiscreteLaplace, dp.DiscreteGaussian):
        assert kind(3.0).cost(0.5, 4, 2.0).pure() == 0.0  # integers less than 1 apart
        result = kind(3.0).release(np.array([0.4, 7.6]), SeededStream(0))
        assert (result == np.rint(result)).all()


@pytest.mark.parametrize("kind", [dp.DiscreteLaplace, dp.DiscreteGaussian])
@pytest.mark.parametrize("scale", [1e-300, 0.05, 0.5, 3.0, 9.0])
def test_the_stated_deviation_is_that_of_the_law(kind, scale):
    if scale < 0.05:
        assert kind(scale).deviation() == 0.0
        return
    masses = laplace_masses(scale) if kind is dp.DiscreteLaplace else gaussian_masses(scale)
    truth = math.sqrt(float(WIDE**2 @ masses))
    assert kind(scale).deviation() == pytest.approx(truth, rel=1e-9, abs=1e-80)


@pytest.mark.parametrize("kind", [dp.DiscreteLaplace, dp.DiscreteGaussian])
def test_noise_that_is_too_large_for_integers_is_refused(kind):
    with pytest.raises(dp.DeclarationError, match=r"2\^50.*\b1e\b"):
        kind(1e16)
    assert kind(dp.Free("b")).deviation() is None
    table = dp.dataset("t", columns={"x": (0, 1)})
    plan = dp.Pipeline(a=table.count().release(kind(dp.Free("b")))).calibrate(1.0, 1e-6)
    assert plan.certify(1e-6).epsilon <= 1.0
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint


POWERS = [1, 1.5, 2, 3, math.inf]


def coordinate_cdf(p, d):
    """Return a distribution function of |z_1| for density exp(-|z|_p): radius times share.

    |z_1| = r s with r of law Gamma(d). For p < inf s^p has the law Beta(1/p, (d-1)/p); for inf it
    is 1 with probability 1/d and uniform otherwise.
    """
    if math.isinf(p):

        def share(s):
            return np.where(s >= 1, 1.0, s * (d - 1) / d)
    else:

        def share(s):
            return special.betainc(1 / p, (d - 1) / p, np.minimum(s, 1.0) ** p)

    def density(r):
        return r ** (d - 1) * math.exp(-r) / math.factorial(d - 1)

    def cdf(x):
        return integrate.quad(lambda r: density(r) * float(share(x / r)), 0, 60, points=[x])[0]

    return cdf


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("d", [2, 5])
def test_norm_noise_follows_its_law(p, d):
    """Kolmogorov-Smirnov distances of radius and coordinate at n = 4000: a false alarm at
    t = 0.045 is below 2 exp(-2 n t^2) = 1.9e-7; noise that is 25 % too large is rejected."""
    n = 4000
    stream = SeededStream(d)
    noise = np.array([ball_noise(stream, p, d) for _ in range(n)])
    radius = np.linalg.norm(noise, p, axis=1)
    at = np.arange(1, n + 1) / n
    assert np.abs(np.sort(stats.gamma(d).cdf(radius)) - at).max() <= 0.045
    assert np.abs(np.sort(stats.gamma(d).cdf(radius * 1.25)) - at).max() > 0.045
    cdf = coordinate_cdf(p, d)
    for column in (0, d - 1):
        for x in (0.1, 0.5, 1.0, 2.0, 4.0):
            assert abs(np.mean(np.abs(noise[:, column]) <= x) - cdf(x)) <= 0.045
        assert abs(np.mean(noise[:, column] > 0) - 0.5) <= 0.045


@pytest.mark.parametrize("p", [1, 7.5, 1e6, math.inf])
def test_norm_noise_is_finite_at_extremes(p):
    for d in (0, 1, 2000):
        noise = ball_noise(SeededStream(1), p, d)
        assert noise.shape == (d,)
        assert np.isfinite(noise).all()
    for scale in (5e-324, 1e-300, 1e299):
        for value in (0.0, 1e308, -math.inf, math.nan):
            assert np.isfinite(
                dp.Norm(scale, p=p).release(np.full(3, value), SeededStream(1))
            ).all()


def test_norm_loss():
    assert dp.Norm(4.0, p=2).cost(1.0, 3, 4.0**-10).pure() == 0.25
    assert dp.Norm(4.0).cost(1.0, 1, 1.0) == accountants.Laplace(0.25)
    added = dp.Norm(2.0**26, p=3).cost(1.0, 8, 0.0).pure() * 2.0**26 - 1
    assert added == pytest.approx(2.0)  # steps of 1 in eight coordinates, to the third: 8^(1/3)
    for wrong in (0.5, -1, math.nan, "2", True, None):
        with pytest.raises(dp.DeclarationError, match=r"Norm\.p.*\b1\b"):
            dp.Norm(1.0, p=wrong)


@pytest.mark.parametrize("p", [1, 1.1, 1.5, 1.9, 2, 2.5, 4, 30, math.inf])
def test_distances_between_given_norms_are_never_too_short(p):
    """Over sets of vectors: the largest p-norm is at most the bound from the three given ones."""
    generator = np.random.default_rng(3)
    for d in (1, 2, 5, 50):
        for _ in range(50):
            some = generator.standard_cauchy((4, d)) * 10.0 ** generator.uniform(-100, 100)
            bound = interpolate_norm(
                lambda n, some=some: max(float(np.linalg.norm(v, n)) for v in some), p
            )
            for v in some:
                largest = np.abs(v).max()
                assert largest * np.linalg.norm(v / largest, p) <= bound * (1 + 1e-12)
    assert interpolate_norm(lambda n: 0.0, p) == pytest.approx(0.0, abs=1e-300)


def test_norm_in_a_plan():
    table = dp.dataset("t", columns={"x": (0, 3), "y": (0, 4)})
    vectors = table.vectors(["x", "y"]).sum()
    plan = dp.Pipeline(a=vectors.release(dp.Norm(scale=dp.Free("b"), p=3))).calibrate(2.0)
    assert 1.9999 <= plan.certify(0.0).epsilon <= 2.0
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    assert dp.verify(plan.certify(0.0)).holds
    box = dp.Pipeline(a=vectors.release(dp.Norm(scale=5.0, p=math.inf)))
    assert dp.load(box.to_json()).fingerprint == box.fingerprint
    assert plan.simulate(seed=1, t={"x": [1.0], "y": [2.0]})["a"].shape == (2,)


@pytest.mark.parametrize("mu", [1.0, 3e-5, 2.0**-18, 0.99999 * 2.0**-18])
@pytest.mark.parametrize(("dimension", "step"), [(1, 0.0), (200, 0.0), (200, 1.0)])
def test_a_sigma_for_a_mu_is_the_least_one(mu: float, dimension: int, step: float) -> None:
    """By search: what a release costs falls in sigma but where the steps of its lattice double."""
    sigma = sigma_for(mu, 1.0, dimension, step)

    def cost(sigma: float) -> float:
        return dp.Gaussian(sigma).cost(1.0, dimension, step).mu()

    assert cost(sigma) <= mu
    assert all(cost(sigma * (1 - share)) > mu for share in np.geomspace(1e-9, 0.5, 200))
