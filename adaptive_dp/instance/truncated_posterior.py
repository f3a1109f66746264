"""A sample of the ridge posterior that is kept to a ball: pure epsilon, for any data."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss
from accountants.rounding import up
from adaptive_dp.graph.convert import number, positive
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.instance.posterior_sample import rounded
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.rows.definite import Moments, constrained

BATCH = 512
"""Proposals at a time."""


class TruncatedPosterior(Mechanism):
    """A draw of the posterior ``N(theta, (1/gamma) H^-1)`` kept to the ball ``|w| <= radius``.

    Its density is ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on the ball, but for a constant. A
    row with ``|x| <= 1, |y| <= 1`` moves the exponent by ``gamma (y - x'w)^2 / 2``, between 0 and
    ``gamma (1 + radius)^2 / 2``: the log ratio of two neighbours has that range, for any data.

    Without the ball no gamma would do for all data: n rows of ``|x| = sqrt(ridge / n)``, y = 1,
    make ``|theta| = sqrt(n / ridge) / 2``, and with it the loss of the next row as large as one
    likes. With at most n rows ``|theta| <= sqrt(n / ridge) / 2`` is the bound.

    It is drawn by rejection. With the minimiser w* in the ball and its multiplier k, the exponent
    is that of ``N(w*, (H + k I)^-1 / gamma)``, on the ball less ``gamma k (radius^2 - |w|^2) / 2``.
    How long that takes depends on the data. So that it ends for few rows too, a prior wider than
    the ball, is narrowed; the loss does not depend on it.

    Parameters
    ----------
    gamma
        The inverse temperature: the loss's range is ``gamma (1 + radius)^2 / 2`` for a row.
    ridge
        Of the prior ``N(0, I / (gamma ridge))``. What is used is at least
        ``2 d / (gamma radius^2)``, so that the prior fits into the ball.
    radius
        Of the ball, in [2^-20, 2^20].

    References
    ----------
    Wang, Fienberg and Smola 2015, Thm 1 (one posterior sample), with the range in place of the
    absolute value; Dimitrakakis et al. 2017.
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Moments
    theorem: ClassVar[str] = "Wang, Fienberg & Smola 2015, Thm 1, as a bounded range"
    sampler: ClassVar[str] = f"truncated Gaussian by rejection, {FLOAT_SAMPLER}"

    gamma: float = budget_parameter("gamma")
    ridge: float = field(converter=number)
    radius: float = field(converter=number)

    def __attrs_post_init__(self) -> None:
        for name, value, low, high in (
            ("ridge", self.ridge, 2.0**-9, 2.0**40),
            ("radius", self.radius, 2.0**-20, 2.0**20),
        ):
            if not (positive(value) and low <= value <= high):
                raise DeclarationError(
                    f"TruncatedPosterior.{name} must be in [{low:g}, {high:g}], got {value!r}"
                )

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of the coefficients."""
        return (value[0] - 1,)

    def release(self, value: Moments, stream: Stream) -> NDArray[Any]:
        """Return the draw."""
        ridge = max(self.ridge, min(2 * (len(value) - 1) / self.gamma / self.radius**2, 1e300))
        found = ball_draw(value, stream, self.gamma, ridge, self.radius)
        return rounded(found, 2.0 ** (math.floor(math.log2(self.radius)) - 40))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the bounded range of ``distance`` rows that come or go."""
        return BoundedRange(up(distance * self.gamma * (1 + self.radius) ** 2 / 2, 16))


def ball_draw(
    moments: Moments, stream: Stream, gamma: float, ridge: float, radius: float
) -> NDArray[Any]:
    """Return one draw of ``exp(-gamma (w - theta)' H (w - theta) / 2)`` on ``|w| <= radius``.

    With w* the minimiser in the ball and k its multiplier, ``H (w* - theta) = -k w*``, so on the
    ball ``(w - theta)' H (w - theta)`` is, but for a constant,
    ``(w - w*)' (H + k I) (w - w*) + k (radius^2 - |w|^2)``; k is 0 where w* is inside. The first
    term is a Gaussian's, the second makes proposals rarer that are inside.
    """
    lower, centre, extra = constrained(moments, ridge, radius)
    factor = np.array([[float(v) for v in row] + [0.0] * (len(lower) - len(row)) for row in lower])
    middle, rate = np.array([float(v) for v in centre]), gamma * float(extra) / 2
    backward = np.linalg.inv(factor) / math.sqrt(gamma)
    while True:
        proposals = middle + stream.gaussian(1.0, (BATCH, len(middle))) @ backward
        inside = radius**2 - (proposals**2).sum(axis=1)
        kept = (inside >= 0) & (np.log(stream.uniform((BATCH,))) <= -rate * inside)
        if kept.any():
            found: NDArray[Any] = proposals[int(kept.argmax())]
            return found
