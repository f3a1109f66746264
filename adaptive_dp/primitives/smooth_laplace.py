"""Laplace noise in proportion to the smooth sensitivity: (epsilon, delta), with light tails."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.fine_uniform import fine_uniform
from adaptive_dp.primitives.smooth import (
    failure_parameter,
    noisy,
    paid,
    room,
    steps_loss,
    usable,
)


def failure(epsilon: float, beta: float, shift: float) -> float:
    r"""Return the exact worst delta at epsilon of the pair of `smooth`, for Laplace noise.

    Let the laws be Lap(0, 1), Q, and Lap(s, e^b), P, with ``0 <= s <= a`` and ``b >= 0``, in units
    of the smaller scale. ``log dP/dQ > eps`` on ``E = {z > t} and {z < -t'}`` alone, with
    ``t - s = (eps + b - s)/(1 - e^-b) >= 0`` and ``t' + s = (eps + b + s)/(1 - e^-b)``, whence

    ``delta = (1 - e^-b) e^{-(eps + b)/(e^b - 1)} cosh(s / (e^b - 1))``.

    It grows in s. It grows in b, since P(E) does for each E beyond s and below 0, and delta is
    the largest ``P(E) - e^eps Q(E)``. So the worst is at ``b = beta``, ``s = a``. The other way
    round, and for b = 0, the log-ratio is at most ``c + a e^{-c}``, ``0 <= c <= beta``, at most
    the larger of a and ``beta + a e^{-beta}``, which must not exceed epsilon.
    """
    if max(shift, beta + shift * math.exp(-beta)) > epsilon:
        return 1.0
    grow = math.expm1(beta)
    tail = math.exp(-(epsilon + beta - shift) / grow) + math.exp(-(epsilon + beta + shift) / grow)
    return -math.expm1(-beta) * tail / 2


def laplace_smoothness(epsilon: float, delta: float) -> float:
    """Return the largest beta, rounded down, at which delta holds with ``a = epsilon / 2``.

    Half of epsilon for each is best to first order: beta is nearly in proportion to ``eps - a``.
    """
    low, high = 0.0, epsilon / 2 * (1 - 1e-9)
    if failure(epsilon, room(high), epsilon / 2) <= delta * (1 - 1e-9):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        fits = failure(epsilon, room(middle), epsilon / 2) <= delta * (1 - 1e-9)
        low, high = (middle, high) if fits else (low, middle)
    return low


def laplace(stream: Stream) -> float:
    """Return a draw of density ``e^{-|z|}/2``."""
    sign = 1.0 if bool(stream.bernoulli(0.5, 1)[0]) else -1.0
    return -sign * math.log(fine_uniform(stream))


class SmoothLaplace(Mechanism):
    """Add ``S/a`` times Laplace noise to a number that follows the data, ``a = epsilon / 2``.

    Parameters
    ----------
    epsilon, delta
        For one changed row. S is the smooth sensitivity at `laplace_smoothness`, about
        ``epsilon / (2 log(1/delta))``.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (``beta = eps / (2 log(2/delta))``); the exact
    delta is derived in `failure`.

    Examples
    --------
    >>> SmoothLaplace(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Stability
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; exact delta of shifted and stretched "
        "Laplace laws"
    )
    sampler: ClassVar[str] = f"Laplace, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()

    def release(self, value: Stability, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        epsilon = usable(self.epsilon)
        beta = laplace_smoothness(epsilon, self.delta)
        return noisy(value, beta, epsilon / 2, laplace, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(paid(self.epsilon), self.delta), distance)
