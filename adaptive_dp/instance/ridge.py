"""Ridge regression: each record's leverage and influence, and its posterior's privacy loss.

`leave_one_out` computes leverage and prediction error of all records; the functions after it are
the privacy loss of the posterior with or without a record of given leverage and error. Both round
outward.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from accountants import special
from accountants.errors import DomainError, positive, probability
from accountants.numerics import UNIT, Array, up
from adaptive_dp.graph.errors import DataError

# -----------------------------------------------------------------------------
# Leverage, prediction error and influence of each record.
#
# With ``H = X'X + ridge I`` and ``theta = H^-1 X'y``, and for record i what is left without it
# marked by -i (Sherman and Morrison 1950):
#
# ``m' = x_i' H^-1 x_i``, ``m = x_i' H_-i^-1 x_i = m' / (1 - m')``,
# ``y_i - x_i' theta_-i = (y_i - x_i' theta) / (1 - m')``,
# ``theta - theta_-i = H^-1 x_i (y_i - x_i' theta) / (1 - m')``.


@frozen(eq=False, repr=False)
class LeaveOneOut:
    """Upper bounds for every record of a data set, against the data set without it.

    Parameters
    ----------
    leverage
        m of each record, without it; shape (n,).
    error
        ``|y_i - x_i' theta_-i|``, the prediction error without the record; shape (n,).
    influence
        ``|theta - theta_-i|_2``; shape (n,).
    """

    leverage: Array
    error: Array
    influence: Array


def leave_one_out(x: ArrayLike, y: ArrayLike, ridge: float) -> LeaveOneOut:
    """Return leverage, prediction error and influence of all records.

    Rounding goes outward, see `relative_rounding`; what overflows or is ill-conditioned past that
    is infinite. A row with a number that is not finite counts as zeros.

    Parameters
    ----------
    x, y
        Of shapes (n, d) and (n,).
    ridge
        Positive.
    """
    ridge = positive("ridge", ridge)
    a, b = checked_table(x, y)
    with np.errstate(all="ignore"):
        h = a.T @ a + ridge * np.eye(a.shape[1])
        if not np.isfinite(h).all():
            return LeaveOneOut(*(np.full(len(a), np.inf) for _ in range(3)))
        values, vectors = np.linalg.eigh(h)
        least = max(float(values[0]), ridge / 2)
        rounding = relative_rounding(a, float(values[-1]) / least)
        solved = (a @ vectors / np.maximum(values, least)) @ vectors.T  # rows H^-1 x_i
        theta = solved.T @ b
        square = np.einsum("ij,ij->i", a, a)
        in_sample = np.einsum("ij,ij->i", a, solved) * (1 + rounding)  # m', rounded up
        in_sample = np.minimum(in_sample, up(square / (square + ridge), 8))  # for X'X >= x x'
        # 1 - m', rounded down: all three bounds are divided by it (Sherman and Morrison 1950)
        remainder = (1 - in_sample) * (1 - rounding) if rounding < 0.5 else np.zeros(len(a))
        size = float(np.linalg.norm(theta) + np.linalg.norm(b) / np.sqrt(values[-1]))
        slack = rounding * (np.abs(b) + np.sqrt(square) * size)
        error = up((np.abs(b - a @ theta) + slack) / remainder, 8)
        influence = up(error * np.linalg.norm(solved, axis=1) * (1 + rounding), 8)
        bounds = up(in_sample / remainder, 8), error, influence
    return LeaveOneOut(*(np.where((remainder > 0) & np.isfinite(v), v, np.inf) for v in bounds))


def relative_rounding(a: Array, condition: float) -> float:
    """Return the relative error of a solution of a linear system in ``A'A``, from rounding.

    Parameters
    ----------
    a
        A, shape (n, d).
    condition
        The condition number of the matrix that is solved with.

    Notes
    -----
    To form the matrix and right-hand sides of n rows and d columns costs at most n units in each
    entry, so ``n d`` of its norm, and to solve a few times ``d^2``; the condition multiplies both
    (Higham 2002, Thm 7.2).
    """
    n, d = a.shape
    return float(8 * (n + d + 8) * d * UNIT * condition)


def checked_table(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Return records as float64 arrays (n, d) and (n,), those with a non-finite number as zeros.

    Raises
    ------
    DataError
        If the shapes do not fit; the message shows no data.
    """
    a, b = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    if a.ndim != 2 or b.shape != a.shape[:1]:
        raise DataError(
            f"x must have a row and y a number for each record, got arrays of {a.ndim} "
            f"and {b.ndim} dimensions, or of different lengths"
        )
    not_finite = ~(np.isfinite(a).all(axis=1) & np.isfinite(b))
    a[not_finite], b[not_finite] = 0.0, 0.0
    return a, b


# -----------------------------------------------------------------------------
# The privacy loss ``a - b Z + c Z^2`` of a Gaussian posterior with or without one record.
#
# In one direction, that of the record's prediction error, the posterior without the record is
# ``P = N(0, 1)``; with it, it is P reweighted by ``exp(-(g - m z)^2 / (2 m))``, which is
# ``Q = N(g / (1 + m), 1 / (1 + m))``, up to the sign of z. All that is orthogonal is equal. So two
# numbers say everything: the *leverage* ``m = x' H^-1 x`` and the *gap* ``g = sqrt(gamma m) |e|``,
# where H is the precision over gamma and e the prediction error, both without the record.
#
# With ``R^2 = (g - m Z)^2 / m`` and ``K = (log(1 + m) + g^2 / (m (1 + m))) / 2`` the loss of P
# against Q is ``R^2 / 2 - K``. It is above epsilon outside of an interval of Z, and the reverse
# loss is above epsilon inside of one: the profiles are four normal tails each. No source prints
# them; they are derived here, and the tests integrate both densities.
#
# **Order.** The pair (m, g) is easier to tell apart the larger g is, at equal m; and (m', g') is a
# randomised function of (m, g), so never easier to tell apart, where m' <= m and
# ``g'^2 / (m' (1 + m')) <= g^2 / (m (1 + m))``. First: at the ends of the interval the densities
# are as ``1 : e^epsilon``, so the derivative of both profiles by ``E = g / sqrt(m)`` is
# ``(p(r) - p(-r)) m / (1 + m) >= 0``, p the density of R at its ends. Second: ``a R + N(0, t^2)``
# turns the pair into one of any smaller m' with ``E'^2 / (1 + m') = E^2 / (1 + m)``.


_SPECIAL = 1e-14
"""Relative error allowed for ndtr, as in `accountants.definitions`."""

LARGEST = 1e7
"""A leverage or a gap above this has no finite epsilon here, and no useful one at all."""


def posterior_profile(epsilon: Array | float, leverage: Array | float, gap: Array | float) -> Array:
    """Return upper bounds of delta(epsilon) that hold in both directions.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.
    leverage, gap
        Non-negative, of the data set without the record; all three broadcast.
    """
    return np.maximum(
        removal_profile(epsilon, leverage, gap), addition_profile(epsilon, leverage, gap)
    )


def posterior_epsilon(delta: float, leverage: Array | float, gap: Array | float) -> Array:
    """Return the least epsilon at ``delta`` in both directions, from above, for all pairs at once.

    Found by bisection; what is returned has been evaluated. Infinite at ``delta = 0``.

    Examples
    --------
    >>> float(posterior_epsilon(1e-6, leverage=0.01, gap=0.1).round(4))
    0.4795
    """
    delta = probability("delta", delta)
    leverage, gap = np.broadcast_arrays(np.asarray(leverage, float), np.asarray(gap, float))
    m, g = np.minimum(leverage, 2 * LARGEST), np.minimum(gap, 2 * LARGEST)
    high = np.log1p(m) + g * g / 2 + (m - math.log(max(delta, 1e-300))) * (m + g) + 1e-300
    for _ in range(60):  # doubled until it holds, or nothing does
        fails = posterior_profile(high, leverage, gap) > delta
        if not np.any(fails & (high < 1e300)):
            break
        high = np.where(fails, np.minimum(2 * high, 1e300), high)
    low = np.zeros_like(high)
    high = np.where(posterior_profile(0.0, leverage, gap) <= delta, 0.0, high)
    for _ in range(70):
        middle = (low + high) / 2
        fails = posterior_profile(middle, leverage, gap) > delta
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
    result: Array = np.where(posterior_profile(high, leverage, gap) <= delta, high, np.inf)
    return result


def removal_profile(epsilon: Array | float, leverage: Array | float, gap: Array | float) -> Array:
    """Return upper bounds of ``sup_A P(A) - e^epsilon Q(A)``, P without the record, Q with it."""
    e, m, g, large = _inputs(epsilon, leverage, gap)
    near, far, inner, outer = _interval_ends(e, m, g)
    # the loss of P against Q exceeds epsilon outside of an interval: two tails of P, rounded up,
    # less e^epsilon times the same two of Q, rounded down
    certain = _tail_above(-near) + _tail_above(-far)
    value = certain - _tail_below(-inner, e) - _tail_below(-outer, e)
    return _outward(value, certain, large, (m == 0) & (g == 0))


def addition_profile(epsilon: Array | float, leverage: Array | float, gap: Array | float) -> Array:
    """Return upper bounds of ``sup_A Q(A) - e^epsilon P(A)``, P without the record, Q with it."""
    e, m, g, large = _inputs(epsilon, leverage, gap)
    near, far, inner, outer = _interval_ends(-e, m, g)
    # the loss of Q against P exceeds epsilon inside of an interval: Q's mass of it, rounded up,
    # less e^epsilon times P's, rounded down, each as a difference of two tails
    certain = _tail_above(inner)
    value = certain + _tail_above(-far, e) - _tail_below(near, e) - _tail_below(-outer)
    # R^2 is never below 0: where its threshold is, past all rounding, no loss exceeds epsilon
    middle, side = g / np.sqrt(1 + m), np.sqrt(m) * np.sqrt(np.log1p(m))
    is_empty = np.sqrt(m) * np.sqrt(2 * e) > np.hypot(middle, side) * (1 + 1e-9)
    return _outward(value, certain, large, is_empty | ((m == 0) & (g == 0)))


def _inputs(*values: Array | float) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Return epsilon, leverage and gap as arrays of one shape, and where they are too large.

    Where one is, leverage and gap are 1 in place of it: the results there are not used.
    """
    epsilon, leverage, gap = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in values))
    if not all(np.all(v >= 0) for v in (epsilon, leverage, gap)):
        raise DomainError("epsilon, leverage and gap must be non-negative numbers, and not NaN")
    large = (leverage > LARGEST) | (gap > LARGEST)
    e: Array = np.minimum(epsilon, 1e300)
    return e, np.where(large, 1.0, leverage), np.where(large, 1.0, gap), large


def _interval_ends(epsilon: Array, m: Array, g: Array) -> tuple[Array, Array, Array, Array]:
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


def _tail_above(x: Array, log_weight: Array | float = 0.0) -> Array:
    """Return an upper bound of ``e^log_weight Phi(x)``."""
    return np.exp(np.minimum(np.add(*_log_tail(x, log_weight)), 700.0))


def _tail_below(x: Array, log_weight: Array | float = 0.0) -> Array:
    """Return a lower bound of ``e^log_weight Phi(x)``."""
    return np.exp(np.minimum(np.subtract(*_log_tail(x, log_weight)), 700.0))


def _log_tail(x: Array, log_weight: Array | float) -> tuple[Array, Array]:
    """Return ``log Phi(x) + log_weight`` and its error, that of the argument included.

    A few units in x move ``log Phi(x)`` by as many times ``x^2`` where x is negative.
    """
    with np.errstate(over="ignore"):
        error = _SPECIAL + 16 * UNIT * (1 + np.minimum(x, 0.0) ** 2 + np.abs(log_weight))
    return np.asarray(special.log_ndtr(x)) + log_weight, np.minimum(error, 1e300)


def _outward(
    value: Array, certain: Array, large: NDArray[np.bool_], nothing: NDArray[np.bool_]
) -> Array:
    """Return the bound as a probability, rounded up; ``certain`` alone bounds it too.

    It is 1 where the inputs are too large, and 0 where ``nothing`` can be lost.
    """
    bound = np.clip(up(np.minimum(value, certain), 8) + 1e-300, 0.0, 1.0)
    result: Array = np.where(large, 1.0, np.where(nothing, 0.0, bound))
    return result
