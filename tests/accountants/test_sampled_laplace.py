"""The sampled Laplace: its moments, how they fall, and what many steps cost."""

from __future__ import annotations

import math

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from pairs_truth import moments_hold

from accountants import Distribution, Laplace, Repeated, Sampled, Spend, measure
from accountants.losses.laplace import LaplacePair
from accountants.losses.sampling import SampledLaplacePair, sampled_pair


def moment(eps: float, rate: float, power: mp.mpc) -> mp.mpc:
    """``E_Q R^s`` by a quadrature of mpmath's own."""
    e, q = truth.real(eps), truth.real(rate)

    def mixed(loss: mp.mpf) -> mp.mpc:
        return mp.exp(power * mp.log(1 - q + q * mp.exp(loss)))

    pieces = 2 + int(abs(power) * eps / 20)
    inside = mp.quad(lambda x: mp.exp(-(x + e) / 2) / 4 * mixed(x), mp.linspace(-e, e, pieces))
    return mixed(-e) / 2 + mp.exp(-e) / 2 * mixed(e) + inside


@pytest.mark.parametrize(("eps", "rate"), [(1.0, 0.5), (0.1, 0.01), (4.0, 1e-3), (2.0, 0.99)])
def test_moments_are_within_their_reported_error(eps: float, rate: float) -> None:
    pair = sampled_pair(LaplacePair(eps), rate)
    assert isinstance(pair, SampledLaplacePair)
    z = np.array([0.5, 12 - 7j, 0.01 + 60j, 1e-7, -3 + 2j])
    with mp.workdps(20):
        moments_hold(pair, z, lambda point: mp.log(moment(eps, rate, point + 1)))
        back = pair.reversed()
        moments_hold(back, z, lambda point: mp.log(moment(eps, rate, -point)))


@pytest.mark.parametrize(("eps", "rate"), [(1.0, 0.5), (3.0, 0.02)])
@pytest.mark.parametrize("tilt", [0.2, 4.0])
def test_moments_fall_as_bounded(eps: float, rate: float, tilt: float) -> None:
    pair = sampled_pair(LaplacePair(eps), rate)
    for side, power in ((pair, lambda z: z + 1), (pair.reversed(), lambda z: -z)):
        starts = np.geomspace(0.3, 40.0, 4)
        beyond = side.decay(tilt, starts)
        with mp.workdps(20):
            here = abs(moment(eps, rate, power(mp.mpc(tilt))))
            for i, start in enumerate(starts):
                for t in (1.01 * start, 3 * start):
                    ratio = abs(moment(eps, rate, power(mp.mpc(tilt, t)))) / here
                    assert mp.log(ratio) <= beyond[i] + mp.mpf(10) ** -14


@pytest.mark.parametrize(("eps", "rate", "tilt"), [(0.02, 0.01, 40.0), (1.0, 0.003, 3.0)])
def test_moments_of_many_fall_as_bounded_between_two_ends(
    eps: float, rate: float, tilt: float
) -> None:
    pair, times = sampled_pair(LaplacePair(eps), rate), 10**6
    sigma = eps * rate * math.sqrt(times)
    starts = np.linspace(1.0, 200.0, 12) / sigma
    stops = starts * 1.2
    bounds = SampledLaplacePair.decays_between(((pair, times),), tilt, starts, stops)
    assert bounds[-1] < -30
    with mp.workdps(40):
        here = abs(moment(eps, rate, mp.mpc(tilt + 1)))
        for start, stop, bound in zip(starts, stops, bounds, strict=True):
            for t in np.linspace(start, stop, 3):
                ratio = abs(moment(eps, rate, mp.mpc(tilt + 1, t))) / here
                assert times * mp.log(ratio) <= bound


def removal_delta(eps: float, rate: float, steps: int, at: float, tilt: float) -> float:
    """The contour integral by plain sums, with no bounds: both quadratures are dense."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    body = np.concatenate([[-eps, eps], eps * nodes]).astype(np.longdouble)
    inside = np.exp(-(body[2:] + eps) / 2) / 4 * weights * eps
    masses = np.concatenate([[0.5, np.exp(-np.longdouble(eps)) / 2], inside])
    loss = np.log1p(rate * np.expm1(body))
    width = eps * rate * math.sqrt(steps)
    # a narrow law asks for many t, a wide one for a short step
    t = np.arange(6000) * (12 / width / 6000)
    z = tilt + 1j * t.astype(np.longdouble)
    moments = np.array([(masses * np.exp((point + 1) * loss)).sum() for point in z])
    terms = (np.exp(steps * np.log(moments) - z * np.longdouble(at)) / (z * (z + 1))).real
    return float((terms.sum() - terms[0] / 2) * (t[1] - t[0]) / np.pi)


@pytest.mark.parametrize(
    ("eps", "rate", "steps", "tilt"),
    [(1.0, 0.5, 10**5, 0.01), (1.0, 0.01, 10**5, 1.3), (0.225, 7.28e-5, 6 * 10**6, 15.0)],
)
def test_many_steps(eps: float, rate: float, steps: int, tilt: float) -> None:
    term = Repeated(Sampled(Spend(Laplace(eps)), rate), steps)
    bounds = measure(term, Distribution(), delta=1e-5).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper
    low, high = (removal_delta(eps, rate, steps, at, tilt) for at in (bounds.lower, bounds.upper))
    assert low >= 1e-5 * (1 - 1e-6)
    assert high <= 1e-5 * (1 + 1e-6)
