"""The second-moment matrix of bounded vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, grid
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats, Selected
from adaptive_dp.queries.domains import Ball
from adaptive_dp.queries.sum import enforced

MOST = 2**30
"""Second moments are clamped to those of this many of the longest rows."""


def second_moment(selected: Selected, radius: float, width: int) -> tuple[NDArray[Any], float]:
    """Return ``X'X`` in whole steps, shape (d, d), and the step; for vectors shortened inside R."""
    radius = inside(radius, width, 18)
    unit = grid.ball(np.zeros((1, width)), radius)[1]

    def block(columns: Columns) -> Integers:
        vectors = grid.ball_steps(selected.of(columns), radius)[0]
        # whole numbers below 2^20 in blocks of 2^12 rows: every partial sum is below 2^53
        return (vectors.T @ vectors).astype(np.int64).ravel()

    if radius not in selected.found:
        selected.found[radius] = selected.rows.total(block).reshape(width, width)
    return selected.found[radius], unit


def inside(radius: float, width: int, bits: int) -> float:
    """Return the radius that leaves room for rounding: ``R (1 - d 2^-bits)``."""
    return radius * max(0.0, 1 - width * 2.0**-bits)


def most(radius: float, unit: float) -> int:
    """Return `MOST` R^2, in whole steps of ``unit^2``."""
    return int(MOST * (radius / unit) ** 2)


def packed_sensitivity(square: float, width: int, change: Change, norm: float) -> float:
    """Return how far a unit moves packed moments of rows of squared norm at most ``square``.

    The proof is in `Gram`.
    """
    d = width
    if not change.replaced or d == 1:
        trace = change.rows * square
        return trace * (1 + (d - 1) / math.sqrt(2)) if norm == 1 else trace
    apart = square * math.hypot(change.rows, change.both - change.rows)
    return apart * (math.sqrt(d * (d + 1) / 2) if norm == 1 else 1.0)


def pack(matrix: Floats) -> Floats:
    """Return the upper triangle, off-diagonal entries times sqrt 2: Frobenius becomes l2."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2)))


def unpack(packed: NDArray[Any]) -> Floats:
    """Return the symmetric matrix of a packed triangle."""
    width = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    rows, columns = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[rows, columns] = np.asarray(packed) / np.where(rows == columns, 1.0, math.sqrt(2))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


@frozen
class Gram(Query):
    """``sum x x'`` over the rows, packed so that its l2 norm is Frobenius'.

    With norms at most R a unit of up to r rows adds a positive semi-definite A of trace at
    most t = r R^2. Where it appears: ``|A|_F <= t`` (l2), and in l1
    ``|x|^2 + sqrt 2 sum_{i<j} |x_i x_j| <= t (1 + (d-1)/sqrt 2)``, at equal coordinates. Where
    it is exchanged: ``|A - B|_F^2 <= |A|_F^2 + |B|_F^2 <= 2 t^2``, since ``<A, B> >= 0``
    (with a rows against b, ``(a^2 + b^2) R^4``), reached by orthogonal rows (t alone for
    d = 1); in l1 at most ``sqrt(d(d+1)/2)`` times that, reached for d = 2.

    The moments are whole steps, clamped to those of 2^30 rows of norm R, and rounded twice to
    floats (the step is a power of two; times sqrt 2): at most 2^-21.5 R^2 off in each entry, so
    between two data sets 2^-20.5 d R^2 in Frobenius norm. Rows are shortened to
    ``R (1 - d 2^-18)``, as for the smallest eigenvalue, which moves the moments by more.

    References
    ----------
    Sheffet 2017 and Wang 2018 (AdaSSP) release this matrix with symmetric noise.
    """

    kind: ClassVar[str] = "gram"
    reads: ClassVar[type] = Ball

    radius: float
    width: int

    def label(self) -> str:
        """Return the matrix's size."""
        return f"second moments {self.width} x {self.width}"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces."""
        return enforced(inputs[0], self.radius, self.width)

    def dimension(self, domain: Ball) -> int:
        """Return the size of the packed triangle."""
        return domain.width * (domain.width + 1) // 2

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (the maximum norm is at most the l2 norm)."""
        return packed_sensitivity(domain.radius**2, domain.width, change, norm)

    def present(self, value: Any) -> Floats:
        """Return the released matrix."""
        return unpack(np.asarray(value))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the packed matrix, shape (d (d+1) / 2,)."""
        steps, unit = second_moment(inputs[0], self.radius, self.width)
        largest = most(self.radius, unit)
        clamped = np.array([[float(min(max(v, -largest), largest)) for v in row] for row in steps])
        return pack(clamped * unit * unit)


@frozen
class SmallestEigenvalue(Query):
    """The smallest eigenvalue of ``sum x x'``.

    By Weyl's inequality it moves by at most the largest eigenvalue of what a unit adds
    (``r R^2``), or by the larger of the extreme eigenvalues of a difference of two such.

    So does the trace t, and what is released is ``min(lambda, max(0, L - t))`` with
    L = 2^30 R^2: the eigenvalue, unless there are some 10^9 rows. Where it is the eigenvalue,
    ``|X'X| <= t <= L``, so its entries are rounded by at most 2^-53 L, together 2^-53 d L, and
    LAPACK's backward error is at most 2^-49 d L: between two data sets 2^-17.9 d R^2. Rows are
    shortened to ``R (1 - d 2^-18)``, which moves it by as much less.

    References
    ----------
    Wang 2018, Algorithm 2 (AdaSSP), line 1.
    """

    kind: ClassVar[str] = "smallest_eigenvalue"
    reads: ClassVar[type] = Ball

    radius: float
    width: int

    def label(self) -> str:
        """Return the query."""
        return "smallest eigenvalue"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces."""
        return enforced(inputs[0], self.radius, self.width)

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return ``r R^2`` (one number: any norm)."""
        return change.rows * domain.radius**2

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue."""
        steps, unit = second_moment(inputs[0], self.radius, self.width)
        left = float(max(0, most(self.radius, unit) - sum(steps.diagonal()))) * unit * unit
        if left == 0:
            return 0.0
        least = float(np.linalg.eigvalsh(steps.astype(np.float64) * unit * unit)[0])
        return min(max(0.0, least), left)
