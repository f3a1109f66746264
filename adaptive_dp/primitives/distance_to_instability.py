"""Releasing a choice as it is where no few changes of the data would change it."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Choice
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.integer_noise import passes
from adaptive_dp.primitives.smooth import failure_parameter, paid, steps_loss, usable


class DistanceToInstability(Mechanism):
    """Release f(x) itself if ``d(x) + N > T``, else nothing: None.

    d(x) is how many steps x is from where a further one may change f; N has masses proportional
    to ``e^{-epsilon |k|}``, and T is the least with ``P(N > T) <= delta``: about
    ``log(1/(2 delta)) / epsilon``.

    (epsilon, delta)-DP for one step: where f(x) = f(x'), d moves by at most 1, and what is released
    is a function of ``d + N``: epsilon. Where f(x) and f(x') differ both d are 0, so that f is
    released with probability at most delta, and with the same one: their laws are within delta.
    The two cases exclude each other, so no sum is paid. (With the threshold ``log(1/epsilon) /
    epsilon``, as is sometimes printed, f is released with probability epsilon/2 at d = 0.)

    Parameters
    ----------
    epsilon, delta
        For one changed row.

    References
    ----------
    Dwork and Lei 2009; Dwork and Roth 2014, section 7.3 (stability); the discrete noise and the
    constant as above.

    Examples
    --------
    >>> DistanceToInstability(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Choice
    chooses: ClassVar[bool] = True
    theorem: ClassVar[str] = "Dwork & Roth 2014, sec. 7.3 (distance to instability)"
    sampler: ClassVar[str] = "two-sided geometric on whole numbers, by independent binary digits"

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()

    def release(self, value: Choice, stream: Stream) -> NDArray[np.float64]:
        """Return the choice's index, or NaN."""
        stable = passes(value.distance, usable(self.epsilon), self.delta, stream)
        return np.array(float(value.index) if stable else math.nan)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(paid(self.epsilon), self.delta), distance)
