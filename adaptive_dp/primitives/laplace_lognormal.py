"""Laplace log-normal noise in proportion to the smooth sensitivity: concentrated DP."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import PrivacyLoss, ZeroConcentrated
from accountants.rounding import up
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.fine_uniform import fine_uniform
from adaptive_dp.primitives.smooth import noisy, paid, room, steps_loss, usable
from adaptive_dp.primitives.smooth_laplace import laplace

SIGMA = math.sqrt(1 / 3)


def laplace_lognormal(stream: Stream) -> float:
    """Return a draw of ``X e^{sigma Y}``, X Laplace's of scale 1 and Y standard normal."""
    radius = math.sqrt(-2 * math.log(fine_uniform(stream)))
    normal = radius * math.cos(2 * math.pi * float(stream.uniform()))
    return laplace(stream) * math.exp(SIGMA * normal)


class SmoothLaplaceLogNormal(Mechanism):
    r"""Add ``S/a`` times ``Z = X e^{sigma Y}``: Laplace noise of a log-normal scale.

    The pair of `smooth` is ``eps^2/2``-zCDP with ``eps = b/sigma + e^{3 sigma^2 / 2} s``:

    * A shift by s: with ``V = e^{-sigma Y}`` the density is ``E[V e^{-|z| V}] / 2``, and the
      derivative of its logarithm at most ``E[V^2 w] / E[V w]`` in size, ``w = e^{-|z| V}``. That is
      a mean of V under a law that w, falling in V, tilts downward: at most its value at z = 0,
      ``E V^2 / E V = e^{3 sigma^2 / 2}``. So a shift by s is pure ``e^{3 sigma^2/2} s``-DP, hence
      half its square in zCDP.
    * A stretch by e^b: ``X e^{sigma (Y + b / sigma)}``, a function of a normal variable shifted by
      ``b / sigma``: ``(b / sigma)^2 / 2``.
    * One after the other the roots of the rhos add up, by the inequality ``D_alpha(P||R) <=
      k alpha/(k alpha - 1) D_{(k alpha - 1)/(k - 1)}(P||Q) + D_{k alpha}(Q||R)`` at the best k,
      ``1 + sqrt(rho_1/rho_2)``, as for groups (Bun and Steinke 2016, section 5).

    Half of eps for each, and ``sigma^2 = 1/3``, maximise ``a beta``.

    Parameters
    ----------
    epsilon
        A changed row costs ``epsilon^2 / 2`` in zCDP.

    References
    ----------
    Bun and Steinke 2019 (Laplace log-normal); the proof is as above.

    Examples
    --------
    >>> SmoothLaplaceLogNormal(epsilon=1.0).loss(distance=1).rho().__round__(6)
    0.5
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Stability
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; Bun & Steinke 2019 (Laplace log-normal)"
    )
    sampler: ClassVar[str] = f"Laplace log-normal, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")

    def release(self, value: Stability, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        beta, shift = lognormal_split(usable(self.epsilon))
        return noisy(value, beta, shift, laplace_lognormal, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the zCDP loss of ``distance`` changed rows."""
        epsilon = min(paid(self.epsilon), 1e140)  # far beyond what noise is made for
        return steps_loss(ZeroConcentrated(up(epsilon * epsilon / 2)), distance)


def lognormal_split(epsilon: float) -> tuple[float, float]:
    """Return beta and a, rounded down, with ``beta/sigma + e^{3 sigma^2/2} a <= epsilon``."""
    beta = SIGMA * epsilon / 2
    return beta, (epsilon - room(beta) / SIGMA) * math.exp(-1.5 * SIGMA**2) * (1 - 1e-9)
