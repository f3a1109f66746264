"""The posterior restricted to a ball: a row's range, the excess, and the acceptance rate."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.special import gammainc
from scipy.stats import chi2, kstwobign, multivariate_normal

import adaptive_dp as dp
from adaptive_dp.data.linear_systems import Moments
from adaptive_dp.instance.posterior_mechanisms import BATCH, row_range
from adaptive_dp.noise.stream import SeededStream


def moments(rows: Any) -> Moments:
    steps = np.rint(np.asarray(rows) * 2**19).astype(object)
    return (steps.T @ steps).view(Moments)


def repeated(row: list[float], times: int) -> Moments:
    """Of as many equal rows."""
    steps = np.rint(np.array(row) * 2**19).astype(object)
    return (np.outer(steps, steps) * times).view(Moments)


class Counted(SeededStream):
    """Counts the proposals that are drawn."""

    drawn = 0

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> Any:
        self.drawn += shape[0]
        return super().gaussian(sigma, shape)


class TestRange:
    @pytest.mark.parametrize("radius", [0.1, 0.5, 0.99, 1.0, 1.5, 4.0])
    def test_by_all_rows_on_a_grid(self, radius: float) -> None:
        t, worst = np.linspace(-radius, radius, 2001), 0.0
        for x, y in itertools.product(np.linspace(0, 1, 21), np.linspace(-1, 1, 41)):
            worst = max(worst, float(np.ptp((y - x * t) ** 2)))
        assert worst == pytest.approx(row_range(radius), rel=1e-5)
        assert worst <= row_range(radius) * (1 + 1e-12)

    @pytest.mark.parametrize("radius", [0.3, 1.0, 2.5])
    def test_an_exchange_costs_at_most_two_rows(self, radius: float) -> None:
        """Pairs of rows in the plane, on a disc; at most a radius of 1 it is attained."""
        r, angle = np.meshgrid(np.linspace(0, radius, 9), np.linspace(0, 2 * math.pi, 49))
        w = np.stack([(r * np.cos(angle)).ravel(), (r * np.sin(angle)).ravel()])
        turns = np.linspace(0, 2 * math.pi, 9)[:-1]
        xs = [(s * math.cos(a), s * math.sin(a)) for s in (0.5, 1.0) for a in turns] + [(0.0, 0.0)]
        losses = [(y - np.array(x) @ w) ** 2 for x in xs for y in (-1.0, 0.0, 0.5, 1.0)]
        worst = max(float(np.ptp(a - b)) for a, b in itertools.combinations(losses, 2))
        assert worst <= 2 * row_range(radius) * (1 + 1e-12)
        assert worst > (1 - 1e-9) * 2 * row_range(radius) or radius > 1

    @pytest.mark.parametrize("radius", [1.0, 1.1, 2.5, 8.0, 1e3])
    def test_two_rows_that_attain_it_in_a_larger_ball(self, radius: float) -> None:
        """The rows of `row_range`'s proof: no factor below two would do."""
        x, u = np.array([1.0, 0.0]), np.array([-1 / radius, math.sqrt(1 - 1 / radius**2)])
        assert np.linalg.norm(u) <= 1 + 1e-15
        moved = [(1 - x @ w) ** 2 - (1 - u @ w) ** 2 for w in (-radius * x, -radius * u)]
        assert moved[0] - moved[1] == pytest.approx(2 * row_range(radius), rel=1e-12)

    def test_ops_in_a_small_ball(self) -> None:
        table = dp.dataset("t", columns={"a": (0, 1), "y": (0, 1)})
        for radius in (0.1, 0.5, 3.0):
            plan = dp.Pipeline(w=table.solve(dp.OPS(["a"], "y", radius=radius), epsilon=1.0))
            assert 0.999 < plan.with_delta(0.0).certify().epsilon <= 1.0
            (result,) = [n["mechanism"] for n in plan.to_document()["nodes"] if "mechanism" in n]
            assert result["gamma"] >= 2 / (1 + result["radius"]) ** 2 * (1 - 1e-12)


class TestLaw:
    @pytest.mark.parametrize("width", [1, 2, 4])
    def test_it_is_a_gaussian_on_the_ball(self, width: int) -> None:
        """``exp(-c |y - Xw|^2)`` is ``N(w*, (2 c X'X)^-1)``: log densities differ by a constant."""
        rng = np.random.default_rng(width)
        x, c = rng.normal(size=(9, width)), 0.37
        y = x @ rng.normal(size=width) + 0.1 * rng.normal(size=9)
        best = np.linalg.lstsq(x, y, rcond=None)[0]
        w = rng.uniform(-1, 1, (50, width))
        direct = -c * ((y - w @ x.T) ** 2).sum(axis=1)
        normal = multivariate_normal(best, np.linalg.inv(2 * c * x.T @ x)).logpdf(w)
        assert np.ptp(direct - normal) < 1e-12 * max(1.0, float(np.abs(direct).max()))

    @pytest.mark.parametrize("width", [2, pytest.param(6, marks=pytest.mark.slow)])
    def test_the_marginal_law_of_one_informed_coefficient(self, width: int) -> None:
        """Its marginal is one integral; w* is just inside. Kolmogorov at a false alarm of 1e-8."""
        x, y, times, gamma, ridge, count = 0.9, 0.85, 400, 0.5, 1.0, 600
        sampler, stream = dp.TruncatedPosterior(gamma, ridge, 1.0), SeededStream(width)
        m = repeated([x, *[0.0] * (width - 1), y], times)
        draws = np.sort([sampler.release(m, stream)[0] for _ in range(count)])
        w = np.linspace(-1, 1, 200_001)
        rest = chi2.logcdf(np.maximum(gamma * ridge * (1 - w**2), 1e-300), width - 1)
        log = -gamma / 2 * (times * (y - x * w) ** 2 + ridge * w**2) + rest
        law = cumulative_trapezoid(np.exp(log - log.max()), w, initial=0)
        off = np.abs(np.interp(draws, w, law / law[-1]) - np.arange(1, count + 1) / count).max()
        assert off < kstwobign.isf(1e-8) / math.sqrt(count) + 1 / count


class TestProposals:
    @pytest.mark.parametrize("width", [2, 6, 20])
    @pytest.mark.parametrize("times", [0, 30, 10**4, 10**7, 10**10])
    @pytest.mark.parametrize("y", [0.0, 0.45, 0.899, 0.999])
    def test_one_batch_is_enough(self, width: int, times: int, y: float) -> None:
        """The data determine one coefficient to any precision, and the others not at all."""
        stream = Counted(1)
        sampler = dp.TruncatedPosterior(gamma=0.5, ridge=1.0, radius=1.0)
        m = repeated([0.9, *[0.0] * (width - 1), y], times)
        draws = [sampler.release(m, stream) for _ in range(3)]
        assert stream.drawn <= 3 * BATCH * (1 if y < 0.9 or times < 10**5 else 200)
        assert max(np.linalg.norm(draws, axis=1)) <= 1 + 1e-9


class TestExcess:
    @pytest.mark.parametrize(("width", "wanted"), [(1, 4), (5, 20), (50, 200), (200, 800)])
    def test_dimensions_times_temperature_is_attained(self, width: int, wanted: float) -> None:
        """``n |w|`` on the unit ball at ``c = epsilon / (2 diameter)``: linear in p.

        With L = 1, diameter 2 and epsilon 1 the bound ``p 2 L diameter / epsilon`` is 4 p. The
        radius has a gamma law that is cut off: its mean is a ratio of incomplete gamma functions.
        """
        rate = 0.25
        means = [
            width / rate * gammainc(width + 1, rate * n) / gammainc(width, rate * n)
            for n in (2.0 * width, 8.0 * width, 100.0 * width, 100_000.0)
        ]
        assert means == sorted(means)
        assert means[-1] == pytest.approx(wanted, rel=1e-6)
        assert max(means) <= wanted * (1 + 1e-12)

    @pytest.mark.parametrize("y", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])
    def test_of_the_draws(self, y: float) -> None:
        """Their mean of F less its minimum is at most d / gamma; 6 deviations, 1e-8."""
        rng, gamma, ridge, radius, d = np.random.default_rng(4), 0.7, 1.0, 0.8, 4
        x = rng.normal(size=(50, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True) * 1.001
        rows = np.c_[x, y * np.sign(x[:, 0])]
        sampler, stream = dp.TruncatedPosterior(gamma, ridge, radius), SeededStream(5)
        m = moments(rows)
        w = np.array([sampler.release(m, stream) for _ in range(400)])

        def cost(w: np.ndarray) -> Any:
            return (((rows[:, -1:] - x @ w.T) ** 2).sum(axis=0) + ridge * (w**2).sum(axis=1)) / 2

        best = np.zeros((1, d))
        for _ in range(20_000):
            best = best - 0.01 * (best @ x.T - rows[:, -1]) @ x - 0.01 * ridge * best
            best *= min(1.0, radius / np.linalg.norm(best))
        gaps = cost(w) - cost(best)
        assert gaps.min() >= -1e-9
        assert 0.2 * d / gamma < gaps.mean() < d / gamma + 6 * gaps.std() / 20


@pytest.mark.parametrize("radius", [1.0, 1.7, 4.0, 50.0])
def test_an_exchanged_row_attains_twice_the_range(radius: float) -> None:
    """Two rows of norm 1, both targets 1: no smaller range holds for two features."""
    one = np.array([1.0, 0.0])
    two = np.array([-1 / radius, math.sqrt(1 - 1 / radius**2)])
    values = [(1 - one @ w) ** 2 - (1 - two @ w) ** 2 for w in (-radius * one, -radius * two)]
    assert max(values) - min(values) == pytest.approx(2 * row_range(radius))
