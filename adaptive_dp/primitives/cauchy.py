"""Cauchy noise in proportion to the smooth sensitivity: pure epsilon, at the least scale."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import PrivacyLoss, Pure
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.smooth import noisy, paid, room, steps_loss, usable
from adaptive_dp.primitives.student import largest_shift, smoothness, student


class SmoothCauchy(Mechanism):
    """Add ``S/a`` times Cauchy noise (density ``1 / (pi (1 + z^2))``), S the smooth sensitivity.

    ``cosh eps = max(1 + a^2/2, cosh beta + a^2 e^{-beta}/2)`` is the exact loss: about
    ``eps^2 = a^2 + beta^2``, where the sum of the parts is ``a + beta`` (see `largest_shift` at
    one degree of freedom). The noise has no variance: half of it lies within S/a, but one draw in
    a hundred is beyond 64 S/a. `SmoothStudent` has lighter tails at a larger scale.

    Parameters
    ----------
    epsilon
        Pure, for one changed row; ``beta = eps / sqrt 2``.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (Cauchy noise, ``a = beta = eps/6``); the
    exact loss is derived in `largest_shift`.

    Examples
    --------
    >>> SmoothCauchy(epsilon=1.0).loss(distance=1)
    Pure(epsilon=1.0)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Stability
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; exact loss of Cauchy laws (hyperbolic "
        "distance)"
    )
    sampler: ClassVar[str] = f"Cauchy, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")

    def release(self, value: Stability, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        epsilon = usable(self.epsilon)
        beta = smoothness(epsilon, 1)
        shift = largest_shift(epsilon, room(beta), 1)
        return noisy(value, beta, shift, lambda s: student(1, s), stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the pure loss of ``distance`` changed rows."""
        return steps_loss(Pure(paid(self.epsilon)), distance)
