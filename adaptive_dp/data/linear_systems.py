"""Exact second moments of regression rows, and linear systems of them solved in decimals.

A float Cholesky factor of ``X'X + ridge I`` has an error of its largest eigenvalue times 2^-53. A
data set with enough rows makes that larger than any ridge, and so larger than what one row adds.
Integers in decimals of 120 digits have an error below 1e-80 of what one row adds, for up to 1e20
rows and curvatures of 1e-3 or more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
Vector = list[Decimal]
Matrix = list[list[Decimal]]

BITS = 19
"""Rows of the unit ball are integer multiples of 2^-19, their moments of 2^-38."""

_CONTEXT = Context(prec=120, traps=[Overflow, DivisionByZero, InvalidOperation])


class Moments(np.ndarray[Any, Any]):
    """``sum (x, y)(x, y)'`` in steps of 2^-38: an object array of integers, (d+1, d+1)."""


def precise(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its decimals have 120 digits."""

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with localcontext(_CONTEXT):
            return function(*args, **kwargs)

    return inside


@precise
def system(moments: Moments, ridge: Decimal | float) -> tuple[Matrix, Vector]:
    """Return ``X'X + ridge I`` and ``X'y``."""
    # the last row and column belong to y
    step, width = Decimal(2) ** (-2 * BITS), len(moments) - 1
    every = [[Decimal(int(v)) * step for v in row] for row in np.asarray(moments)]
    matrix = [row[:width] for row in every[:width]]
    for i in range(width):
        matrix[i][i] += Decimal(ridge)
    return matrix, [row[width] for row in every[:width]]


@precise
def factor(matrix: Matrix) -> Matrix | None:
    """Return Cholesky's lower factor; None where the matrix is not positive definite."""
    lower: Matrix = []
    for i, row in enumerate(matrix):
        row_of_factor: Vector = []
        # row by row: each entry needs only rows above and entries to the left
        for j in range(i):
            row_of_factor.append((row[j] - _dot(row_of_factor, lower[j][:j])) / lower[j][j])
        # what is left of the diagonal entry: positive in every row of a definite matrix
        pivot = row[i] - _dot(row_of_factor, row_of_factor)
        if pivot <= 0:
            return None
        lower.append([*row_of_factor, pivot.sqrt()])
    return lower


@precise
def forward(lower: Matrix, vector: Vector) -> Vector:
    """Return ``L^-1 v``."""
    solved: Vector = []
    # row i of L z = v: what the solved entries explain is taken away
    for i, row in enumerate(lower):
        solved.append((vector[i] - _dot(row[:i], solved)) / row[i])
    return solved


@precise
def backward(lower: Matrix, vector: Vector) -> Vector:
    """Return ``L'^-1 v``."""
    width = len(lower)
    solved = [Decimal(0)] * width
    for i in reversed(range(width)):
        # column i of L below its diagonal is row i of L' after its diagonal
        later = [lower[j][i] for j in range(i + 1, width)]
        solved[i] = (vector[i] - _dot(later, solved[i + 1 :])) / lower[i][i]
    return solved


@precise
def norm(vector: Vector) -> Decimal:
    """Return the Euclidean norm."""
    return _dot(vector, vector).sqrt()


@precise
def solution(moments: Moments, ridge: Decimal | float) -> tuple[Matrix, Vector]:
    """Return the factor of ``X'X + ridge I`` (ridge at least 1e-3), and ``theta``."""
    matrix, cross = system(moments, ridge)
    lower = factor(matrix)
    assert lower is not None, "X'X is positive semi-definite, and the ridge positive"
    # X'X + ridge I = L L': solve L z = X'y, then L' theta = z
    return lower, backward(lower, forward(lower, cross))


@precise
def least_eigenvalue(moments: Moments, bits: int) -> int:
    """Return the least eigenvalue of ``X'X`` in steps of ``2^-bits``, rounded down; at least 0.

    It may be off by one where the eigenvalue is within 1e-80 of a multiple of the step.
    """
    return least_eigenvalue_of(system(moments, 0)[0], bits)


@precise
def least_eigenvalue_of(matrix: Matrix, bits: int) -> int:
    """Return the least eigenvalue of a positive semi-definite matrix, as `least_eigenvalue`."""
    plain = np.array([[float(v) for v in row] for row in matrix])
    guess = int(max(0.0, float(np.linalg.eigvalsh(plain)[0])) * 2.0**bits)

    def below(steps: int) -> bool:
        # steps 2^-bits < lambda_min if and only if M - steps 2^-bits I is positive definite,
        # which Cholesky's factorisation decides
        shift = steps * Decimal(2) ** -bits
        shifted = [
            [v - shift if i == j else v for j, v in enumerate(row)] for i, row in enumerate(matrix)
        ]
        return steps <= 0 or factor(shifted) is not None

    # the float is only where the search begins: bracket by doubling, then bisect
    low, high, width = guess, guess + 1, 1
    while not below(low):
        low, width = low - width, 2 * width
    # `low` is below the eigenvalue now; raise `high` until it is not
    width = 1
    while below(high):
        low, high, width = max(low, high), high + width, 2 * width
    # invariant: `low` is below the eigenvalue (or at most 0), and `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return max(0, low)


@precise
def constrained(moments: Moments, ridge: float, radius: float) -> tuple[Matrix, Vector, Decimal]:
    """Return the ridge regression constrained to the ball ``|w| <= radius``.

    Its coefficients solve ``(X'X + (ridge + k) I) w = X'y``, where k is the multiplier of the
    ball's constraint, 0 where that does not bind.

    Returns
    -------
    factor, coefficients, multiplier

    References
    ----------
    More and Sorensen 1983: Newton's steps on ``1/radius - 1/|w(k)|`` increase to k.
    """
    most, extra = Decimal(radius), Decimal(0)
    lower, coefficients = solution(moments, ridge)
    for _ in range(200):
        size = norm(coefficients)
        if size <= most * (1 + Decimal("1e-60")):
            break
        # |L^-1 w|^2 = w'(X'X + (ridge + k) I)^-1 w, which the derivative of 1/|w(k)| needs
        half = forward(lower, coefficients)
        extra += (size / most - 1) * size * size / _dot(half, half)
        lower, coefficients = solution(moments, Decimal(ridge) + extra)
    return lower, coefficients, extra


def _dot(a: Sequence[Decimal], b: Sequence[Decimal]) -> Decimal:
    return sum((x * y for x, y in zip(a, b, strict=True)), Decimal(0))
