"""Renyi curves at order infinity: the pure epsilon, never less than it and never no number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accountants import Approximate, Composite, Gaussian, Laplace, Pure
from accountants.definitions import pure_to_renyi, renyi_divergence
from accountants.losses import (
    DiscreteLaplace,
    PermuteAndFlip,
    PoissonSelection,
    PrivateSelection,
    RandomizedResponse,
)

ORDERS = np.array([1.5, 2.0, 1e6, 1e300, math.inf])


def test_randomized_response_at_infinity_is_its_epsilon() -> None:
    for eps in (0.0, 1e-300, 0.3, 1.0, 30.0, 700.0):
        assert pure_to_renyi(eps, np.array([2.0, math.inf]))[1] == eps


@pytest.mark.parametrize(
    ("loss", "epsilon"),
    [
        (Pure(1.0), 1.0),
        (Laplace(1.0), 1.0),
        (Approximate(1.0, 1e-5), 1.0),
        (Gaussian(0.0), 0.0),
        (Gaussian(1.0), math.inf),
        (Composite({Gaussian(0.5): 1, Pure(1.0): 1}), math.inf),
        (RandomizedResponse(1.0, 4), 1.0),
        (DiscreteLaplace(2.0, 3), 1.5),
        (PermuteAndFlip(1.0), 1.0),
        (PrivateSelection(Pure(0.5), 1.0, 0.1), 1.5),  # (2 + eta) eps
        (PrivateSelection(Gaussian(0.5), 1.0, 0.1), math.inf),
        (PoissonSelection(Gaussian(0.5), 10.0), math.inf),
        # eps + mu delta(0), RR(eps)'s delta at 0 being tanh(eps / 2)
        (PoissonSelection(Pure(0.5), 10.0), 0.5 + 10 * math.tanh(0.25)),
        (PoissonSelection(Approximate(0.5, 1e-3), 3.0), 0.5 + 3 * math.tanh(0.25)),
    ],
    ids=repr,
)
def test_at_infinity_a_curve_is_the_pure_epsilon(loss: object, epsilon: float) -> None:
    curve = renyi_divergence(loss, ORDERS)  # type: ignore[arg-type]
    assert not np.isnan(curve).any()
    assert (np.diff(curve[:-1]) >= -1e-12 * curve[:-2] - 1e-300).all()
    assert curve[-1] >= epsilon * (1 - 1e-15)
    assert epsilon == math.inf or curve[-1] <= epsilon + 1e-9 * max(1.0, epsilon)
