"""Symmetric sampled pairs: how their moments fall, and what follows for many of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from accountants import (
    Distribution,
    Gaussian,
    Laplace,
    Pair,
    Repeated,
    ReplacedSample,
    Spend,
    Subset,
    Term,
    measure,
)
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair
from accountants.losses.sampling import MixedPair, ReplacedGaussianPair
from accountants.numerics import Array, Complex
from accountants.pair import symmetric_decay

Moment = Callable[[Complex], Complex]


def normal(x: Array, mean: float) -> Array:
    return np.asarray(np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi))


def replaced(mu: float, q: float) -> Moment:
    """``E_P e^{zL}`` by the trapezoid rule over the outcome."""
    x = np.linspace(-30, 30, 24001)
    n = (1 - q) * normal(x, 0) + q * normal(x, mu)
    d = (1 - q) * normal(x, 0) + q * normal(x, -mu)
    loss = np.log(n) - np.log(d)
    weight = n * (x[1] - x[0])
    return lambda z: np.array([np.sum(weight * np.exp(one * loss)) for one in np.ravel(z)])


def mixed(s: Array, density: Array, q: float, atom: float) -> Moment:
    """``E_P e^{zL}`` from the inner losses above 0 and their density under Q, the last an atom."""
    w = np.log1p(q * np.expm1(s))
    weight = density * np.gradient(s)
    weight[[0, -1]] /= 2
    weight[-1] += atom
    rest = 1 - np.sum(weight * (np.exp(w) + 1))  # at loss 0
    return lambda z: np.array(
        [np.sum(weight * (np.exp((1 + one) * w) + np.exp(-one * w))) + rest for one in np.ravel(z)]
    )


def cases() -> list[tuple[Pair, Moment]]:
    found: list[tuple[Pair, Moment]] = []
    for mu, q in ((1.0, 0.01), (0.3, 0.5), (2.0, 0.1)):
        found.append((ReplacedGaussianPair(mu, q), replaced(mu, q)))
        s = np.linspace(0, 40 * mu, 40001)
        density = normal(s / mu, -mu / 2) / mu
        found.append((MixedPair(GaussianPair(mu), q), mixed(s, density, q, 0.0)))
    s = np.linspace(0, 2.0, 20001)
    inner = mixed(s, np.exp(-(s + 2) / 2) / 4, 0.2, math.exp(-2) / 2)
    return [*found, (MixedPair(LaplacePair(2.0), 0.2), inner)]


@pytest.mark.parametrize(("pair", "moment"), cases())
def test_no_moment_is_above_its_decay(pair: Pair, moment: Moment) -> None:
    half = pair._half() if isinstance(pair, MixedPair) else None
    for tilt in (0.01, 0.7, 5.0):
        t = np.geomspace(0.05, 400, 60)
        z = np.asarray(tilt + 1j * t, dtype=np.complex128)
        size = np.log(np.abs(moment(z)) / moment(np.array([tilt + 0j])).real)
        bounds = [pair.decay(tilt, t)]
        if half is not None:
            bounds.append(symmetric_decay(pair, half, tilt, t))
        for bound in bounds:
            # each bound holds for all that follows
            assert np.all(np.maximum.accumulate(size[::-1])[::-1] <= bound + 1e-9)
            assert np.all(np.diff(bound) <= 1e-12)
            assert bound[-1] < 0


def contour(moment: Moment, times: int, epsilon: float, c: float, end: float) -> float:
    """Return delta by its integral along a line, by the trapezoid rule."""
    t = np.linspace(0, end, 4001)
    z = np.asarray(c + 1j * t, dtype=np.complex128)
    values = np.exp(times * np.log(moment(z)) - z * epsilon) / (z * (z + 1))
    values[0] /= 2
    return float(values.real.sum() * (t[1] - t[0]) / math.pi)


@pytest.mark.parametrize(
    ("term", "moment", "times", "c", "end"),
    [
        (ReplacedSample(Spend(Gaussian(1.0)), 0.01), replaced(1.0, 0.01), 10**5, 0.55, 4.0),
        (ReplacedSample(Spend(Gaussian(1.0)), 0.5), replaced(1.0, 0.5), 10**6, 0.005, 0.05),
        pytest.param(
            Subset(Spend(Gaussian(1.0)), 100, 10_000),
            mixed(
                s := np.linspace(0, 40, 40001),
                normal(s, -0.5),
                0.01,
                0.0,
            ),
            10**4,
            2.0,
            25.0,
            marks=pytest.mark.slow,
        ),
        (
            Subset(Spend(Laplace(2.0)), 200, 1000),
            mixed(
                u := np.linspace(0, 2.0, 20001),
                np.exp(-(u + 2) / 2) / 4,
                0.2,
                math.exp(-2) / 2,
            ),
            10**4,
            0.15,
            2.0,
        ),
    ],
)
def test_many_samples_agree_with_the_integral(
    term: Term, moment: Moment, times: int, c: float, end: float
) -> None:
    bounds = measure(Repeated(term, times), Distribution(), delta=1e-5).bounds
    assert bounds is not None
    delta = contour(moment, times, bounds.upper, c, end)
    assert delta == pytest.approx(1e-5, rel=1e-5)
    if isinstance(term, ReplacedSample):
        assert bounds.upper - bounds.lower < 1e-7 * (1 + bounds.upper)
