"""The privacy loss ``a - b Z + c Z^2`` of a Gaussian posterior with or without one record.

In one direction, that of the record's prediction error, the posterior without the record is
``P = N(0, 1)``; with it, it is P reweighted by ``exp(-(g - m z)^2 / (2 m))``, which is
``Q = N(g / (1 + m), 1 / (1 + m))``, up to the sign of z. All that is orthogonal is equal. So two
numbers say everything: the *leverage* ``m = x' H^-1 x`` and the *gap* ``g = sqrt(gamma m) |e|``,
where H is the precision over gamma and e the prediction error, both without the record.

With ``R^2 = (g - m Z)^2 / m`` and ``K = (log(1 + m) + g^2 / (m (1 + m))) / 2`` the loss of P
against Q is ``R^2 / 2 - K``. It is above epsilon outside of an interval of Z, and the reverse
loss is above epsilon inside of one: the profiles are four normal tails each. No source prints
them; they are derived here, and the tests integrate both densities.

**Order.** The pair (m, g) is easier to tell apart the larger g is, at equal m; and (m', g') is a
randomised function of (m, g), so never easier to tell apart, where m' <= m and
``g'^2 / (m' (1 + m')) <= g^2 / (m (1 + m))``. First: at the ends of the interval the densities
are as ``1 : e^epsilon``, so the derivative of both profiles by ``E = g / sqrt(m)`` is
``(p(r) - p(-r)) m / (1 + m) >= 0``, p the density of R at its ends. Second: ``a R + N(0, t^2)``
turns the pair into one of any smaller m' with ``E'^2 / (1 + m') = E^2 / (1 + m)``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accountants import special
from accountants.errors import DomainError, probability
from accountants.rounding import UNIT, Array, up

_SPECIAL = 1e-14
"""Relative error allowed for ndtr, as in `accountants.notions.gaussian`."""

LARGEST = 1e7
"""A leverage or a gap above this has no finite epsilon here; nobody would release at it."""


def profile(epsilon: Array | float, leverage: Array | float, gap: Array | float) -> Array:
    """Return upper bounds of delta(epsilon) that hold in both directions.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.
    leverage, gap
        Non-negative, of the data set without the record; all three broadcast.
    """
    return np.maximum(removed(epsilon, leverage, gap), added(epsilon, leverage, gap))


def epsilon(delta: float, leverage: Array | float, gap: Array | float) -> Array:
    """Return the least epsilon at ``delta`` in both directions, from above, for all pairs at once.

    Found by bisection; what is returned has been evaluated. Infinite at ``delta = 0``.

    Examples
    --------
    >>> float(epsilon(1e-6, leverage=0.01, gap=0.1).round(4))
    0.4795
    """
    delta = probability("delta", delta)
    leverage, gap = np.broadcast_arrays(np.asarray(leverage, float), np.asarray(gap, float))
    m, g = np.minimum(leverage, 2 * LARGEST), np.minimum(gap, 2 * LARGEST)
    high = np.log1p(m) + g * g / 2 + (m - math.log(max(delta, 1e-300))) * (m + g) + 1e-300
    for _ in range(60):  # until it holds, or nothing does
        fails = profile(high, leverage, gap) > delta
        if not np.any(fails & (high < 1e300)):
            break
        high = np.where(fails, np.minimum(2 * high, 1e300), high)
    low = np.zeros_like(high)
    high = np.where(profile(0.0, leverage, gap) <= delta, 0.0, high)
    for _ in range(70):
        middle = (low + high) / 2
        fails = profile(middle, leverage, gap) > delta
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
    result: Array = np.where(profile(high, leverage, gap) <= delta, high, np.inf)
    return result


def removed(epsilon: Array | float, leverage: Array | float, gap: Array | float) -> Array:
    """Return upper bounds of ``sup_A P(A) - e^epsilon Q(A)``, P without the record, Q with it."""
    e, m, g, large = _inputs(epsilon, leverage, gap)
    near, far, inner, outer = _ends(e, m, g)
    certain = _above(-near) + _above(-far)
    value = certain - _below(-inner, e) - _below(-outer, e)
    return _outward(value, certain, large, (m == 0) & (g == 0))


def added(epsilon: Array | float, leverage: Array | float, gap: Array | float) -> Array:
    """Return upper bounds of ``sup_A Q(A) - e^epsilon P(A)``, P without the record, Q with it."""
    e, m, g, large = _inputs(epsilon, leverage, gap)
    near, far, inner, outer = _ends(-e, m, g)
    certain = _above(inner)
    value = certain + _above(-far, e) - _below(near, e) - _below(-outer)
    # R^2 is never below 0: where its threshold is, past all rounding, no loss exceeds epsilon
    middle, side = g / np.sqrt(1 + m), np.sqrt(m) * np.sqrt(np.log1p(m))
    low = np.sqrt(m) * np.sqrt(2 * e) > np.hypot(middle, side) * (1 + 1e-9)
    return _outward(value, certain, large, low | ((m == 0) & (g == 0)))


def _inputs(*given: Array | float) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    epsilon, leverage, gap = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in given))
    if not all(np.all(v >= 0) for v in (epsilon, leverage, gap)):
        raise DomainError("epsilon, leverage and gap must be non-negative numbers, and not NaN")
    large = (leverage > LARGEST) | (gap > LARGEST)
    e: Array = np.minimum(epsilon, 1e300)
    return e, np.where(large, 1.0, leverage), np.where(large, 1.0, gap), large


def _ends(epsilon: Array, m: Array, g: Array) -> tuple[Array, Array, Array, Array]:
    """Return the ends of ``|R| < r``, where the loss is epsilon, in deviations of P and of Q.

    They are ``(r - E, r + E) / sqrt(m)`` in those of P, ``E = g / sqrt(m)``. At the true r the
    profile is stationary, so an error h of the first end costs of the order of h^2; the others
    follow from the first without cancellation.
    """
    threshold, middle = 2 * epsilon + np.log1p(m), g / np.sqrt(1 + m)
    side = np.sqrt(m) * np.sqrt(np.abs(threshold))  # squares would underflow
    inside = np.sqrt(np.maximum(middle - side, 0.0)) * np.sqrt(middle + side)
    reach = np.where(threshold >= 0, np.hypot(side, middle), inside) + g
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.where(reach > 0, (threshold - middle * middle) / reach, 0.0)
        far = np.where(m > 0, near + 2 * g / m, np.inf)
        outer = np.where(m > 0, near * np.sqrt(1 + m) + middle + 2 * (middle / m), np.inf)
    return near, far, near * np.sqrt(1 + m) + middle, outer


def _above(x: Array, log_weight: Array | float = 0.0) -> Array:
    """Return an upper bound of ``e^log_weight Phi(x)``."""
    return np.exp(np.minimum(np.add(*_logarithm(x, log_weight)), 700.0))


def _below(x: Array, log_weight: Array | float = 0.0) -> Array:
    """Return a lower bound of ``e^log_weight Phi(x)``."""
    return np.exp(np.minimum(np.subtract(*_logarithm(x, log_weight)), 700.0))


def _logarithm(x: Array, log_weight: Array | float) -> tuple[Array, Array]:
    """Return the logarithm and its error; that of the argument is a few units in each."""
    with np.errstate(over="ignore"):
        error = _SPECIAL + 16 * UNIT * (1 + np.minimum(x, 0.0) ** 2 + np.abs(log_weight))
    return np.asarray(special.log_ndtr(x)) + log_weight, np.minimum(error, 1e300)


def _outward(
    value: Array, certain: Array, large: NDArray[np.bool_], nothing: NDArray[np.bool_]
) -> Array:
    """Return the bound as a probability; ``certain`` alone bounds it too."""
    bound = np.clip(up(np.minimum(value, certain), 8) + 1e-300, 0.0, 1.0)
    result: Array = np.where(large, 1.0, np.where(nothing, 0.0, bound))
    return result
