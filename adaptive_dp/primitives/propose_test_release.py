"""Propose a bound of the local sensitivity, test it privately, and release with noise for it."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.bounded_grid import on_grid
from adaptive_dp.primitives.integer_noise import passes
from adaptive_dp.primitives.smooth import (
    declared_parameter,
    failure_parameter,
    paid,
    steps_loss,
    usable,
)
from adaptive_dp.primitives.smooth_laplace import laplace


class ProposeTestRelease(Mechanism):
    """Release f(x) + Lap(2 bound / epsilon) if x is far from where A_0 > bound, else NaN.

    The distance d(x) is the least k with ``A_k > bound``, and x passes if ``d + N > T``, N with
    masses proportional to ``e^{-epsilon |k| / 2}`` and T the least with ``P(N > T) <= delta``.

    (epsilon, delta)-DP for one step. Where A_0 is at most ``bound`` at x or at x', f moves by no
    more: epsilon/2 for the test, since d moves by at most 1, and epsilon/2 for what follows. Where
    it is above at both, both d are 0: each passes with probability at most delta, and with the
    same one, so their laws are within delta. The cases exclude each other: neither is a delta
    paid in the first, nor an epsilon in the second. (With ``T = log(1/delta) / epsilon`` for an
    epsilon each, it is ``(2 epsilon, delta / 2)``, not ``(2 epsilon, 2 delta)``.)

    Parameters
    ----------
    epsilon, delta
        For one changed row; half of epsilon is the test's.
    bound
        The proposed bound of the local sensitivity, in units of the value: chosen without
        looking at the data.

    References
    ----------
    Dwork and Lei 2009; Dwork and Roth 2014, section 7.2; the constants as above.

    Examples
    --------
    >>> ProposeTestRelease(epsilon=1.0, delta=1e-6, bound=0.1).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Stability
    theorem: ClassVar[str] = "Dwork & Lei 2009; Dwork & Roth 2014, sec. 7.2 (propose-test-release)"
    sampler: ClassVar[str] = (
        f"two-sided geometric on whole numbers; Laplace, {FLOAT_SAMPLER}, rounded to a grid of the "
        "bounds"
    )

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()
    bound: float = declared_parameter("bound")

    def release(self, value: Stability, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds, or NaN."""
        half = usable(self.epsilon) / 2
        if not passes(value.within(self.bound), half, self.delta, stream):
            return np.array(math.nan)
        noisy = value.value + laplace(stream) * (self.bound * (1 + 1e-12) / half)
        return on_grid(noisy, value.lower, value.upper, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(paid(self.epsilon), self.delta), distance)
