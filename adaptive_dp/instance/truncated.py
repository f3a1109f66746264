"""Draws of a Gaussian that is cut off at a ball, by rejection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.stream import Stream
from adaptive_dp.rows.definite import Moments, constrained

BATCH = 512


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
