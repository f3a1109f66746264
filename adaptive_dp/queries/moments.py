"""What a regression needs of its rows: exact second moments, and what is released of them.

Rows are mapped into the unit ball, ``|x| <= 1``, and targets into [-1, 1], on a grid; all numbers
here are in these units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data import Columns, grid
from adaptive_dp.data.linear_systems import BITS, Moments, least_eigenvalue, norm, precise, solution
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Operation, Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats, Selected
from adaptive_dp.queries.domains import Ball, Interval, interval, number
from adaptive_dp.queries.vectors import onto_unit

STEP = 16
"""The least eigenvalue is given in steps of 2^-16."""

SLACK = 2.0**-14
"""By how much rounding can add to a sensitivity: twice the step, and twice that again."""

REACH = 1 + 2 * SLACK
"""What a bound of one of these queries must reach over, for one row and all rounding."""

LEAST, MOST = 2.0**-9, 2.0**40
"""A ridge is kept in these bounds, an eigenvalue's bound below the latter."""

FARTHEST = 2.0**30
"""`CoefficientNorm` is cut off here; a bound of it that is near tells nothing."""


@frozen
class MomentsDomain:
    """Second moments of ``width`` coordinates and a target."""

    width: int


@frozen
class MomentsOf(Operation):
    """The exact second moments of vectors and a target, ``sum (x, y)(x, y)'``.

    A vector is divided by ``radius`` and clipped to the unit ball, the target mapped from its
    bounds onto [-1, 1]; both are rounded to multiples of 2^-19 inside.
    """

    kind: ClassVar[str] = "moments"
    reads: ClassVar[type] = Ball

    radius: float
    target: str
    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return what they are moments of."""
        return f"moments with {self.target}"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the size; the target must have the declared bounds."""
        ball: Ball = inputs[0]
        require(number("a radius", self.radius) > 0, f"a radius must be positive: {self.radius!r}")
        require(
            self.bounds == ball.table.interval(self.target),
            f"the bounds of {self.target!r} must be those that {ball.table.name!r} declares",
        )
        return MomentsDomain(ball.width)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Moments:
        """Return the moments, in steps of 2^-38."""
        selected: Selected = inputs[0]

        def block(columns: Columns) -> Integers:
            # whole numbers up to 2^19 in blocks of 2^12 rows: every partial sum is below 2^53
            points = self._points(selected, columns)
            return (points @ points.T).astype(np.int64).ravel()

        total = selected.rows.total(block)
        width = math.isqrt(len(total))
        whole = np.array([int(v) for v in total], dtype=object).reshape(width, width)
        return whole.view(Moments)

    def _points(self, selected: Selected, columns: Columns) -> Floats:
        """Return rows of the unit ball and targets in steps of 2^-19, whole floats, (d + 1, m).

        Where no row can be longer than ``R (1 - d 2^-19)``, they are not measured: a row then has
        norm at most ``2^19 - d`` in steps, to which rounding adds at most ``sqrt(d) / 2``. Which
        way is taken follows from the plan, never from the rows.
        """
        goal = onto_unit(columns[self.target], self.bounds, 2.0**BITS)
        box = selected.box
        if box and 1e-100 < box.longest < self.radius * (1 - box.width * 2.0**-BITS):
            points = np.empty((box.width + 1, len(goal)))
            box.write(columns, 2.0**BITS / self.radius, points[:-1])
        else:
            steps, unit = grid.ball_steps(selected.of(columns) / self.radius, 1.0)
            assert unit == 2.0**-BITS
            points = np.empty((steps.shape[1] + 1, len(goal)))
            points[:-1] = steps.T
        points[-1] = goal
        return np.rint(points, out=points)


@frozen
class ExactMoments(Query):
    """The moments themselves, for mechanisms that know what a row can do to them."""

    kind: ClassVar[str] = "exact_moments"
    reads: ClassVar[type] = MomentsDomain
    gives: ClassVar[type] = Moments

    def label(self) -> str:
        """Return the query."""
        return "regression moments"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the number of rows that come or go; refuse any norm but 0.

        The moments are arrays, which other mechanisms read too, but in steps of 2^-38.
        """
        require(
            norm == 0,
            "exact_moments say how many rows change, not how far they move: release them with "
            f"PosteriorSample or TruncatedPosterior, whose norm is 0, got norm {norm!r}",
        )
        return float(change.both)

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the number of coefficients."""
        return domain.width

    def run(self, inputs: Sequence[Any], stream: Stream) -> Moments:
        """Return a copy of the moments."""
        copied: Moments = inputs[0].copy()
        return copied


@frozen
class LeastEigenvalue(Query):
    """The least eigenvalue of ``X'X``, rounded down to a multiple of 2^-16.

    Weyl's inequality: a row ``|x| <= 1`` raises it by 0 to 1, 1 being a multiple of the step, and
    an exchanged one moves it by at most 1. A tie with a multiple of the step may be rounded
    either way, one step.
    """

    kind: ClassVar[str] = "least_eigenvalue"
    reads: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "least eigenvalue"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``r (1 + 2^-14)``."""
        return change.rows * (1 + SLACK)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue."""
        return min(least_eigenvalue(inputs[0], STEP), 2**52) * 2.0**-STEP


@frozen
class CoefficientNorm(Query):
    """``log(1 + |theta|) / log(1 + 1/h)`` of ridge coefficients, whatever the released values are.

    Beside the moments it reads a ridge and a lower bound l of the least eigenvalue, and solves
    ``H theta = X'y`` with ``H = X'X + (ridge + k) I``, ``k = max(0, l - lambda_min)``: where the
    bound is wrong, the ridge makes it true. So ``H >= h I``, ``h = ridge + l``, always.

    Let a row (x, y) come, and k fall by c: c is in [0, 1], as the eigenvalue rises by that.
    ``theta' - theta = H'^-1 (x y - (x x' - c I) theta)``, and all eigenvalues of ``x x' - c I`` are
    in [-1, 1], so ``|theta' - theta| <= (1 + |theta|) / h``, and the same with theta' on the right:
    the logarithm moves by at most ``log(1 + 1/h)``, and the value by 1. The rounding of
    lambda_min makes that ``1 + 2^-16``; the value is rounded to 2^-20.

    References
    ----------
    Wang 2018 (AdaOPS), where l is trusted; the correction k, and that it costs nothing, are
    derived here. As printed, with ``ridge * lambda_min`` for their sum, the sensitivity fails.
    """

    kind: ClassVar[str] = "coefficient_norm"
    reads: ClassVar[type] = MomentsDomain
    beside: ClassVar[int] = 2

    def label(self) -> str:
        """Return the query."""
        return "log norm of the coefficients"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``1 + 2^-14`` for each row that comes or goes."""
        return change.both * (1 + SLACK)

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's; both released values are needed."""
        require(len(inputs) == 3, "a coefficient_norm reads a ridge and a bound beside the moments")
        return inputs[0]  # type: ignore[no-any-return]

    @precise
    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the value."""
        moments, ridge, bound = inputs[0], *kept(inputs[1], inputs[2])
        least = least_eigenvalue(moments, STEP) * Decimal(2) ** -STEP
        missing = max(Decimal(0), Decimal(bound) - least)
        size = norm(solution(moments, Decimal(ridge) + missing)[1])
        value = (1 + size).ln() / Decimal(unit(ridge, bound))
        return math.floor(min(value, Decimal(FARTHEST)) * 2**20) * 2.0**-20


def kept(ridge: float, bound: float) -> tuple[float, float]:
    """Return a released ridge in [2^-9, 2^40], and a bound in [0, 2^40]; NaN tells nothing."""
    r, b = float(ridge), float(bound)
    return (
        MOST if math.isnan(r) else min(max(r, LEAST), MOST),
        0.0 if math.isnan(b) else min(max(b, 0.0), MOST),
    )


def unit(ridge: float, bound: float) -> float:
    """Return ``log(1 + 1/h)``, in which `CoefficientNorm` is counted; for `kept` values."""
    return math.log1p(1 / (ridge + bound))
