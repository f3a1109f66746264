"""Bounds of the ridge posterior's loss in closed form: looser than the exact ones, and readable.

With leverage m and prediction error e of the data set without the record, and ``t = log(2/delta)``,

``epsilon = |g^2/(1+m) - log(1+m)| / 2 + m t + g sqrt(2 t)``, ``g = sqrt(gamma m) |e|``.

It holds for the loss ``a - g Z + (m/2) Z^2`` of the data set without the record, since
``|Z| <= sqrt(2 t)`` but for delta, and for that of the one with it if ``t >= 1``: this is at most
``log(1+m)/2 + g^2 / (2 (1+m)^2) + g sqrt(2 t)``, and ``log(1+m) <= m t``.

As printed (Wang 2019, eqs. 4.3 and 4.4, and Remark 11) the terms in t are a half and ``1/sqrt 2``
of these, which stands for 41 times the delta, and 4.4 is not equal to 4.3. In terms of what is seen
with the record, ``m' = x'(H + xx')^-1 x`` and its residual e', it is ``m = m' / (1 - m')`` and
``e = e' / (1 - m')``.
"""

from __future__ import annotations

import math

import numpy as np

from accountants.errors import DomainError, probability
from accountants.rounding import Array, up
from adaptive_dp.instance.worst_posterior import PosteriorBounds


def record_epsilon(delta: float, leverage: Array | float, gap: Array | float) -> Array:
    """Return an epsilon that holds at ``delta`` in both directions, for all pairs at once.

    Parameters
    ----------
    delta
        In (0, 1).
    leverage, gap
        Non-negative, of the data set without the record.
    """
    t = _deviations(delta)
    m, g = np.asarray(leverage, np.float64), np.asarray(gap, np.float64)
    shift, shape = g * g / (1 + m), np.log1p(m)
    rounding = 1e-15 * (shift + shape)  # their difference may be less
    return up(np.abs(shift - shape) / 2 + m * t + g * math.sqrt(2 * t), 16) + rounding


def data_set_epsilon(delta: float, gamma: float, bounds: PosteriorBounds) -> float:
    """Return ``sqrt(2 gamma t) L / sqrt(h) + gamma L^2 / (2 (h + B^2)) + t B^2 / h``.

    For all records that may be added; for those that may be removed too, at the curvature and
    the residual that are left (see `worst_posterior`). B bounds ``|x|``, h is the curvature, and
    ``L = B residual``. It is `record_epsilon` at the worst leverage and gap, without the logarithm,
    which the term in t covers: so as in Remark 11 of Wang 2019, with t for ``(1 + t) / 2``.
    """
    t = _deviations(delta)
    m = bounds.leverage()
    g = bounds.gap(gamma, m)
    return up(g * math.sqrt(2 * t) + g * g / (2 * (1 + m)) + m * t, 16)


def _deviations(delta: float) -> float:
    delta = probability("delta", delta, below_one=True)
    if delta == 0:
        raise DomainError("delta must be positive, got 0: the loss of a posterior is unbounded")
    return max(1.0, up(math.log(2 / delta)))
