"""Releasing an upper bound of the local sensitivity privately, and noise in proportion to it."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.bounded_grid import on_grid, step
from adaptive_dp.primitives.integer_noise import integer_noise, threshold
from adaptive_dp.primitives.smooth import (
    declared_parameter,
    failure_parameter,
    flag,
    paid,
    steps_loss,
    usable,
)
from adaptive_dp.primitives.smooth_laplace import laplace


class ReleasedSensitivity(Mechanism):
    r"""Release ``f(x) + Lap(2 B / epsilon)``, B a private upper bound of the local sensitivity.

    Let L be a bound of A_0, and let g(L), for ``g = log`` or ``g(L) = L``, move by at most
    ``slope`` a step. On the levels ``l = ceil(g(L) / slope)``, which move by at most 1,

    ``B = g^{-1}(slope (l + N + T))``,

    N with masses proportional to ``e^{-epsilon |k| / 2}``, T the least with ``P(N < -T) <= delta``.

    (epsilon, delta)-DP for one step: ``B >= L(x) >= |f(x) - f(x')|`` unless ``N < -T``. So for an
    event E, ``P_x(E) <= P_x(E, B >= |f - f'|) + delta <= e^{eps/2 + eps/2} P_{x'}(E) + delta``:
    half for B, which is not released itself, and half for Laplace noise of that scale.

    That g(L) moves so little is not taken on trust: L is ``max_k e^{-slope k} A_k`` for the
    logarithm, ``max_k A_k - slope k`` else. Both are at least A_0, and are A_0 itself where it
    moves no more than that.

    Parameters
    ----------
    epsilon, delta
        For one changed row; half of epsilon is for the bound.
    slope
        By how much log A_0 moves in one step (or A_0, in units of the value).
    logarithmic
        Whether ``slope`` is of the logarithm.

    References
    ----------
    Dwork and Lei 2009 (the scale first); Karwa and Vadhan 2018 (on a logarithmic scale); the
    proof is as above.

    Examples
    --------
    >>> ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.1).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Stability
    theorem: ClassVar[str] = "private bound of the local sensitivity: Dwork & Lei 2009"
    sampler: ClassVar[str] = (
        f"two-sided geometric on whole numbers; Laplace, {FLOAT_SAMPLER}, rounded to a grid of the "
        "bounds"
    )

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()
    slope: float = declared_parameter("slope")
    logarithmic: bool = attrs.field(default=True, validator=flag)

    def release(self, value: Stability, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        half = usable(self.epsilon) / 2
        moved = integer_noise(half, stream) + threshold(half, self.delta)
        scale = self.bounded(value, moved) / half
        return on_grid(value.value + laplace(stream) * scale, value.lower, value.upper, stream)

    def bounded(self, value: Stability, moved: int) -> float:
        """Return B for a noise of ``moved = N + T``; private. At least the grid's step.

        Levels are a little farther apart than ``slope``, by more than all rounding of L.
        """
        least, widest = step(value.lower, value.upper), value.upper - value.lower
        if self.logarithmic:
            apart = self.slope + 1e-11
            level = math.ceil(math.log(value.smooth(self.slope, least) / least) / apart)
            return least * math.exp(min(max(apart * (level + moved), 0.0), 700.0)) * (1 + 1e-9)
        apart = self.slope + widest * 2.0**-40 + least
        level = math.ceil(value.linear(self.slope, least) / apart)
        return max(least, apart * (level + moved)) * (1 + 1e-9)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(paid(self.epsilon), self.delta), distance)
