"""The sufficient statistics of least squares, as one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data import Columns
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats, Selected
from adaptive_dp.queries.domains import Ball, Interval, interval
from adaptive_dp.queries.gram import MOST, pack, unpack
from adaptive_dp.queries.sum import enforced
from adaptive_dp.queries.weighted_rows import GOAL, UNIT, weighted


@frozen
class StackedMoments(Query):
    """``(X'X, X'y)`` in one vector, features divided by the radius, targets mapped onto [-1, 1].

    A row gives ``c = (xx', xy)`` with ``|x| <= 1``, ``|y| <= 1``; the matrix is packed so that its
    l2 norm is Frobenius'. Rows longer than the radius are shortened with their targets
    (`adaptive_dp.queries.weighted_rows`). Proofs (own), with up to a rows against b:

    * a unit appears or vanishes, l2: ``|c|^2 = |x|^4 + |x|^2 y^2 <= 2``: ``sqrt(2) a``, attained;
    * is exchanged, l2: ``<c, c'> = t^2 + t y y'`` with ``t = x'x'`` is at least ``-1/4`` (at
      ``t = 1/2, y y' = -1``), so ``|A - B|^2 <= 2 a^2 + 2 b^2 + a b / 2``; attained where d > 1;
    * l1, each row: ``|x|^2 + sqrt 2 sum_{i<j} |x_i x_j| + |x|_1 |y|`` is at most
      ``1 + (d-1)/sqrt 2 + sqrt d``, at equal coordinates.

    The maximum norm is at most the l2 norm. Totals are clamped to those of 2^30 of the longest
    rows, and rounded twice to floats: at most 2^-21.5 off in each of ``d (d + 3) / 2 <= 2 d^2``
    entries, so between two data sets ``2^-20 d`` in l2, and ``2^-20.5`` for each entry in l1. Rows
    are of norm at most ``1 - d 2^-20``, which moves either norm by more.

    Parameters
    ----------
    radius
        The length to which longer rows are shortened, and by which features are divided.
    width
        The number of features, an intercept included.
    target, bounds
        The target's column and its declared bounds.

    References
    ----------
    Vu and Slavkovic 2009 release sufficient statistics with Laplace noise, Sheffet 2017 and Wang
    2018 the matrix with symmetric Gaussian noise; the sensitivity of all together is derived here.
    """

    kind: ClassVar[str] = "stacked_moments"
    reads: ClassVar[type] = Ball

    radius: float
    width: int
    target: str
    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the matrix's size and the target."""
        return f"second moments {self.width} x {self.width}, and with {self.target}"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces; the target must have the declared bounds."""
        return with_target(inputs[0], self.radius, self.width, self.target, self.bounds)

    def dimension(self, domain: Ball) -> int:
        """Return the size of the packed triangle and of the vector."""
        return self.width * (self.width + 3) // 2

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        if norm == 1:
            d = self.width
            return change.both * (1 + (d - 1) / math.sqrt(2) + math.sqrt(d))
        a, b = change.rows, change.both - change.rows
        return math.sqrt(2 * a * a + 2 * b * b + a * b / 2)

    def present(self, value: Any) -> Floats:
        """Return the released matrix and beside it the vector, shape (d, d + 1)."""
        packed = np.asarray(value)
        return np.column_stack([unpack(packed[: -self.width]), packed[-self.width :]])

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the packed matrix and the vector, shape (d (d + 3) / 2,)."""
        selected: Selected = inputs[0]

        def block(columns: Columns) -> Integers:
            # whole numbers up to 2^20 in blocks of 2^12 rows: every partial sum is below 2^53
            rows, goal = weighted(selected, columns, self.target, self.bounds, self.radius)
            both = np.column_stack([rows.T @ rows, rows.T @ goal])
            return both.astype(np.int64).ravel()

        total = selected.rows.total(block).reshape(self.width, self.width + 1)
        matrix = value_of(total[:, :-1], 2 * UNIT)
        return np.concatenate([pack(matrix), value_of(total[:, -1], UNIT + GOAL)])


def with_target(ball: Ball, radius: float, width: int, target: str, bounds: Interval) -> Ball:
    """Return the ball of features divided by ``radius``; refuse a target with other bounds."""
    require(
        bounds == ball.table.interval(target),
        f"the bounds of {target!r} must be those that {ball.table.name!r} declares",
    )
    enforced(ball, radius, width)
    require(radius > 0, f"a radius must be positive, got {radius!r}")
    return enforced(ball, 1.0, width)


def value_of(steps: Any, bits: int) -> Floats:
    """Return whole numbers of steps of ``2^-bits`` as floats, clamped to 2^30."""
    largest = MOST * 2**bits
    clamped = [float(min(max(int(v), -largest), largest)) for v in steps.flat]
    return np.array(clamped).reshape(steps.shape) * 2.0**-bits
