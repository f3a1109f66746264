"""Real numbers as integer multiples of a power of two, so that sums over rows are exact.

Here the values of every private sum are clipped: those of a column by `interval_steps`, vectors by
`ball` (called by the queries, above all `adaptive_dp.queries.sums`).

A column clipped to [lo, hi] is rounded to multiples of a step that divides the largest bound into
2^22 to 2^23 parts, inside the bounds; a row of a vector of norm at most B is rounded to steps of
about B / 2^19, after its norm has been clipped by as much as rounding can add. What is summed thus
obeys the declared bounds exactly, not only up to rounding. Totals are clamped to 2^53 steps, which
floats hold exactly: more than 10^9 rows at the largest bound. A total that was rounded could change
by more than its sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.data.rows import Integers

Floats = NDArray[np.float64]

BITS = 22
"""The largest bound of a column has between 2^22 and 2^23 steps."""

BALL_BITS = 19
"""The radius of a ball has between 2^19 and 2^20 steps."""

EXACT = 2**53
"""Integers up to here are floats."""

INT64_LIMIT = 2**62
"""Sums of int64 are kept as such while they are below; larger ones become Python integers."""


def exact_add(a: Any, b: Any) -> Any:
    """Return the exact sum of two integers or arrays of them; None stands for no rows."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, np.ndarray):
        # |a + b| <= |a| + |b| < 2^62 cannot overflow int64
        if a.dtype != object and b.dtype != object and largest(a) + largest(b) < INT64_LIMIT:
            return a + b
        return a.astype(object) + b
    return int(a) + int(b)  # as Python integers: an int64 would overflow


def largest(a: NDArray[Any]) -> int:
    """Return the largest absolute value of integers."""
    return max(int(a.max(initial=0)), -int(a.min(initial=0)))


def total(steps: int, unit: float) -> float:
    """Return ``steps * unit`` exactly (``unit`` is a power of two), clamped to `EXACT` steps."""
    # clamping is 1-Lipschitz: it never increases the distance of two neighbouring totals
    return float(min(max(steps, -EXACT), EXACT)) * unit


def step(bound: float, bits: int) -> float:
    """Return the largest power of two that is at most ``bound / 2**bits`` (1 for bound 0)."""
    if bound <= 0:
        return 1.0
    return math.ldexp(1.0, max(-1022, math.frexp(bound)[1] - 1 - bits))


def interval_steps(values: Floats, lower: float, upper: float) -> Floats:
    """Return ``values`` clipped to [lower, upper], in steps: integers, as floats that hold them.

    The step is `step` of the larger bound and `BITS`. NaN counts as the point of [lower, upper]
    next to 0.
    """
    unit, low, high, missing = _limits(lower, upper)
    with np.errstate(over="ignore", invalid="ignore"):
        # by a power of two, exact where it does not overflow; the product with its inverse, a
        # normal number, is the quotient
        steps = np.multiply(values, 1 / unit)
        # the clipping to the declared bounds: low unit and high unit are inside of them, and
        # clipping to integers and rounding to integers may change places
        np.clip(steps, low, high, out=steps)
        np.rint(steps, out=steps)
        # the maximum is NaN where any value is
        if steps.size and math.isnan(float(steps.max())):
            steps[np.isnan(steps)] = missing
    return steps


@lru_cache(maxsize=256)
def _limits(lower: float, upper: float) -> tuple[float, float, float, float]:
    """Return the step of an interval, and in steps its ends and what NaN counts as."""
    unit = step(max(abs(lower), abs(upper)), BITS)
    # low unit >= lower and high unit <= upper, exactly: a float quotient could underflow to 0,
    # which may lie outside of tiny bounds
    low = math.ceil(Fraction(lower) / Fraction(unit))
    high = math.floor(Fraction(upper) / Fraction(unit))
    if low > high:  # narrower than a step: one point, rounded toward 0 so as not to exceed a bound
        low = high = int((lower + upper) / 2 / unit)
    missing = round(min(max(0.0, lower), upper) / unit)
    return unit, float(low), float(high), float(min(max(missing, low), high))


def ball(values: Floats, radius: float) -> tuple[Integers, float]:
    """Return rows of norm at most ``radius`` as integer multiples of the returned step.

    Parameters
    ----------
    values
        Shape (n, d); rows longer than ``radius`` are scaled down, NaN counts as 0.
    """
    steps, unit = ball_steps(values, radius)
    return steps.astype(np.int64), unit


def ball_steps(values: Floats, radius: float) -> tuple[Floats, float]:
    """Return the integers of `ball` as floats, which hold them exactly."""
    width = values.shape[1]
    unit = step(radius, BALL_BITS)
    # A computed sum of `width` squares has a relative error of at most width * 2^-53 (each of its
    # roundings adds 2^-53), and its root half of that: (1 - slack) covers it.
    slack = max(2.0**-40, width * 2.0**-52)
    # Rounding moves each coordinate by at most unit / 2, so a row by at most unit sqrt(width) / 2:
    # |rounded| <= |clipped| + unit sqrt(width) / 2 <= radius.
    inner = max(0.0, radius - unit * math.sqrt(width) / 2) * (1 - slack)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squared_norms = squares(values)
        # False for NaN; for the rest neither the factor inner / norm nor its squares underflow
        plain = (squared_norms < 1e200) & (inner >= 1e-140)
        # rows that are surely inside stay as they are, with room for the error of `squared_norms`
        factor = np.where(
            squared_norms < inner * inner * (1 - 2.0**-40), 1.0, inner / np.sqrt(squared_norms)
        )
        # the clipping to the ball: rows longer than `inner` are scaled down to it
        steps = values * (factor / unit)[:, None]
        np.rint(steps, out=steps)
    rest = np.flatnonzero(~plain)
    if len(rest):
        steps[rest] = np.rint(_shortened(values[rest], radius, inner) / unit)
    return steps, unit


def _shortened(values: Floats, radius: float, inner: float) -> Floats:
    clean = np.nan_to_num(values, nan=0.0, posinf=radius, neginf=-radius)
    largest = np.abs(clean).max(axis=1, initial=0.0, keepdims=True)
    largest = np.where(largest > 0, largest, 1.0)
    directions = clean / largest
    lengths = np.sqrt(squares(directions))[:, None]
    with np.errstate(over="ignore"):
        longer = largest * lengths > inner
    # not by the factor inner / norm, which would be subnormal for huge rows
    shortened = directions * (inner / np.where(longer, lengths, 1.0))
    return np.asarray(np.where(longer, shortened, clean))


def squares(values: Floats) -> Floats:
    """Return each row's sum of squares, shape (n,).

    Column by column, so that the order of the additions is the same for every row, however many
    rows there are. `numpy.sum` chooses its order by an array's shape and layout: the last bit of
    a row's norm would then depend on the other rows.
    """
    total = np.zeros(len(values))
    product = np.empty(len(values))
    for column in values.T:
        np.multiply(column, column, out=product)
        total += product
    return total


# -----------------------------------------------------------------------------
# The premise of exact sums: what a row adds does not depend on its place in a block. Correctly
# rounded operations (+ - * /, the root) have it by IEEE 754. Exponentials, logarithms and
# hyperbolic functions are rounded as their implementation likes, and a vector unit might treat the
# rest of a block, or an address, by other code: then the last bit of a row's slope would depend on
# how many other rows there are, and a clipped sum could move by more than its sensitivity.
# Products of matrices must be those of float64, so that integers below 2^53 are exact in any order.
# Neither can be proven of whatever NumPy and BLAS are installed; both are tried once in a process.


class UnstableArithmeticError(RuntimeError):
    """Floating-point functions of this machine are not what exact sums rest on."""


@cache
def check_arithmetic() -> None:
    """Refuse NumPy or BLAS whose results depend on where in an array a number is.

    Some thousand numbers go through each function alone, in blocks of all lengths from 1 to 67, at
    all offsets below 17, and as rows of a matrix; results must be equal to the bit. Products of
    matrices of integers, whose entries reach 2^53, are compared with those of Python's integers.

    Raises
    ------
    UnstableArithmeticError
        If they are not.
    """
    x = np.random.default_rng(2026).normal(size=1024) * np.geomspace(1e-8, 700.0, 1024)
    for name, function in _functions().items():
        unstable = False
        with np.errstate(all="ignore"):
            whole = function(x)
            for cut in [*range(1, 68), 1000]:
                start = cut % 17
                part = function(x[start : start + cut])
                unstable |= not np.array_equal(part, whole[start : start + cut], equal_nan=True)
            # as scores of several classes lie, or those of a copy at another address
            rows = function(x.reshape(4, 256)), function(x.reshape(64, 16)), function(x.copy())
        unstable |= not all(np.array_equal(r.ravel(), whole, equal_nan=True) for r in rows)
        if unstable:
            raise UnstableArithmeticError(
                f"{name} of NumPy {np.__version__} depends on a number's place in an array on this "
                "machine, so that sums of gradients are not as private as they are declared; "
                "install another build of NumPy"
            )
    _check_products()


def _functions() -> dict[str, Callable[[Floats], Floats]]:
    """Return the functions of which losses, networks and norms are made; looked up when asked."""
    return {
        "exp": np.exp,
        "log1p": np.log1p,
        "logaddexp": lambda x: np.logaddexp(0.0, x),
        "tanh": np.tanh,
        "tanh of float32": lambda x: np.tanh(x.astype(np.float32)),
        "hypot": lambda x: np.hypot(x, 1.5),
        "sqrt": lambda x: np.sqrt(np.abs(x)),
    }


def _check_products() -> None:
    generator = np.random.default_rng(2027)
    # 200 products of at most 2^45 are below 2^53
    a, b = (generator.integers(-(2**22), 2**22, size=shape) for shape in ((9, 200), (200, 35)))
    exact = a @ b  # of int64: no BLAS, and no rounding
    left, right = a.astype(np.float64), b.astype(np.float64)
    out = np.empty(exact.shape)
    np.matmul(left, right, out=out)
    columns = np.asfortranarray(right)
    products = [left @ right, (right.T @ left.T).T, left @ columns, out]
    products.append(np.hstack([left @ right[:, i : i + 1] for i in range(right.shape[1])]))
    if not all(np.array_equal(each, exact) for each in products):
        raise UnstableArithmeticError(
            "products of matrices of float64 are not exact for integers below 2^53 on this "
            "machine, as sums of gradients need; install another build of NumPy or its BLAS"
        )
