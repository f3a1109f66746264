"""Second moments of bounded vectors and regressions, and what is released of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, grid
from adaptive_dp.data.linear_systems import (
    BITS,
    Moments,
    constrained,
    least_eigenvalue,
    norm,
    precise,
    solution,
)
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Ball, Floats, Interval, Selected, finite_float, interval
from adaptive_dp.queries.sums import enforced
from adaptive_dp.queries.vectors import onto_unit

# -----------------------------------------------------------------------------
# The second-moment matrix of bounded vectors.


MAX_ROWS_IN_MOMENTS = 2**30
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
    return int(MAX_ROWS_IN_MOMENTS * (radius / unit) ** 2)


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
    input_type: ClassVar[type] = Ball

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
    input_type: ClassVar[type] = Ball

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


# -----------------------------------------------------------------------------
# Rows of a regression, features and target shortened together, as whole steps.
#
# A row whose features are longer than C is multiplied by ``C / |x|``, its target too. That is a
# weight, a function of the features alone: where the target is linear in them, the coefficients
# stay
# what they were, while a long row can move no sum further than one of length C. To shorten the
# features only would bend the line.
#
# Everything here looks at each row by itself, so that a row's share of a sum is the same whatever
# the
# other rows are.


GOAL = 19
"""Targets in [-1, 1] are whole multiples of 2^-19."""

UNIT = 20
"""Features in the unit ball are whole multiples of 2^-20."""


def weighted(
    selected: Selected, columns: Columns, target: str, bounds: Interval, radius: float
) -> tuple[Floats, Floats]:
    """Return features in steps of 2^-20 and targets in steps of 2^-19, as whole floats.

    Parameters
    ----------
    selected
        The features' vectors, shape (n, d).
    columns
        The block of rows that they and the target are computed from.
    target, bounds
        The target's column, mapped from its bounds onto [-1, 1].
    radius
        C: longer rows are shortened to it; then features are divided by it.

    Returns
    -------
    Features of norm at most ``1 - d 2^-20``, shape (n, d), which leaves room for the rounding of
    totals, and targets of size at most 1, shape (n,).
    """
    goal = onto_unit(columns[target], bounds)
    shorter: float | Floats
    if selected.box and selected.box.longest <= radius:  # as the plan says: no row is longer
        shorter = _room(selected.box.width) / radius
        steps = np.empty((selected.box.width, len(goal))).T
        selected.box.write(columns, shorter * 2.0**UNIT, steps.T)
    else:
        vectors, lengths = _measured(selected.of(columns))
        shorter = _room(vectors.shape[1]) / np.maximum(lengths, radius)
        steps = vectors * (shorter * 2.0**UNIT)[:, None]
    return np.rint(steps, out=steps), np.rint(goal * (shorter * (radius * 2.0**GOAL)))


def _room(width: int) -> float:
    """Return the length of the longest row; it keeps room for being rounded, sqrt(d) / 2 steps."""
    largest = inside(1.0, width, UNIT) - math.sqrt(width) * 2.0 ** -(UNIT + 1)
    return max(0.0, largest) * (1 - 2.0**-40)


def _measured(vectors: Floats) -> tuple[Floats, Floats]:
    """Return vectors and their lengths; where a length is no number, what is none becomes 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(grid.squares(vectors))
        if not np.isfinite(lengths).all():
            vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
            lengths = np.sqrt(grid.squares(vectors))
    return vectors, lengths


# -----------------------------------------------------------------------------
# The sufficient statistics of least squares, as one vector.


@frozen
class StackedMoments(Query):
    """``(X'X, X'y)`` in one vector, features divided by the radius, targets mapped onto [-1, 1].

    A row gives ``c = (xx', xy)`` with ``|x| <= 1``, ``|y| <= 1``; the matrix is packed so that its
    l2 norm is Frobenius'. Rows longer than the radius are shortened with their targets
    (`adaptive_dp.queries.moments`). Proofs (own), with up to a rows against b:

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
    input_type: ClassVar[type] = Ball

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
    if bounds != ball.table.interval(target):
        raise DeclarationError(
            f"the bounds of {target!r} must be those that {ball.table.name!r} declares"
        )
    enforced(ball, radius, width)
    if not (radius > 0):
        raise DeclarationError(f"a radius must be positive, got {radius!r}")
    return enforced(ball, 1.0, width)


def value_of(steps: Any, bits: int) -> Floats:
    """Return whole numbers of steps of ``2^-bits`` as floats, clamped to 2^30."""
    largest = MAX_ROWS_IN_MOMENTS * 2**bits
    clamped = [float(min(max(int(v), -largest), largest)) for v in steps.flat]
    return np.array(clamped).reshape(steps.shape) * 2.0**-bits


# -----------------------------------------------------------------------------
# What a regression needs of its rows: exact second moments, and what is released of them.
#
# Rows are mapped into the unit ball, ``|x| <= 1``, and targets into [-1, 1], on a grid; all numbers
# here are in these units.


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
    input_type: ClassVar[type] = Ball

    radius: float
    target: str
    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return what they are moments of."""
        return f"moments with {self.target}"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the size; the target must have the declared bounds."""
        ball: Ball = inputs[0]
        if not (finite_float("a radius", self.radius) > 0):
            raise DeclarationError(f"a radius must be positive: {self.radius!r}")
        if self.bounds != ball.table.interval(self.target):
            raise DeclarationError(
                f"the bounds of {self.target!r} must be those that {ball.table.name!r} declares"
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
    input_type: ClassVar[type] = MomentsDomain
    output_type: ClassVar[type] = Moments

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
        if norm != 0:
            raise DeclarationError(
                "exact_moments say how many rows change, not how far they move: release them with "
                f"PosteriorSample or TruncatedPosterior, whose norm is 0, got norm {norm!r}"
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
    input_type: ClassVar[type] = MomentsDomain

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
    input_type: ClassVar[type] = MomentsDomain
    max_released_inputs: ClassVar[int] = 2

    def label(self) -> str:
        """Return the query."""
        return "log norm of the coefficients"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``1 + 2^-14`` for each row that comes or goes."""
        return change.both * (1 + SLACK)

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's; both released values are needed."""
        if len(inputs) != 3:
            raise DeclarationError(
                "a coefficient_norm reads a ridge and a bound beside the moments"
            )
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


# -----------------------------------------------------------------------------
# What is released of exact second moments: the matrix, the vector, the least eigenvalue.
#
# All three read one transform (`adaptive_dp.queries.moments.MomentsOf`), so the rows are passed
# over
# once. In it ``|x| <= 1`` and ``|y| <= 1`` hold exactly, row by row, and sums are whole numbers;
# what
# is given is clamped to the sums of 2^30 of the longest rows (which moves no two of them apart),
# and
# then rounded to floats. Each sensitivity is that of whole numbers, a little enlarged for that
# rounding, which the docstrings bound.


@frozen
class GramOfMoments(Query):
    """``sum x x'``, packed so that its l2 norm is Frobenius'.

    The sensitivity is that of `adaptive_dp.queries.moments.Gram` for R = 1, times ``1 + d 2^-20``.
    Rounding (of the clamped number, and of its product with sqrt 2) moves each of the
    ``d (d + 1) / 2`` entries by at most 2^-21.5, so between two data sets their l2 norm by
    ``2^-20.5 d``, and their l1 norm by ``2^-21.5 d (d + 1)``: less than ``d 2^-20`` times the least
    sensitivity, which is 1 in l2 and ``1 + (d - 1) / sqrt 2`` in l1.
    """

    kind: ClassVar[str] = "gram_of_moments"
    input_type: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "second moments"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the size of the packed triangle."""
        return domain.width * (domain.width + 1) // 2

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        return packed_sensitivity(1.0, domain.width, change, norm) * (1 + domain.width * 2.0**-20)

    def present(self, value: Any) -> Floats:
        """Return the released matrix."""
        return unpack(np.asarray(value))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the packed matrix, shape (d (d+1) / 2,)."""
        return pack(value_of(np.asarray(inputs[0])[:-1, :-1], 2 * BITS))


@frozen
class CrossOfMoments(Query):
    """``sum x y``.

    A row gives a vector of norm at most 1, hence of l1 norm at most ``sqrt(d)``; an exchange moves
    the sum by two of them (own proof: the triangle inequality). Rounding moves each entry by at
    most 2^-23, between two data sets by ``2^-22 sqrt(d)`` in l2 and ``2^-22 d`` in l1: less than
    ``d 2^-20`` times either.
    """

    kind: ClassVar[str] = "cross_of_moments"
    input_type: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "moments with the target"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the number of features."""
        return domain.width

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        d = domain.width
        return change.both * (math.sqrt(d) if norm == 1 else 1.0) * (1 + d * 2.0**-20)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the vector, shape (d,)."""
        return value_of(np.asarray(inputs[0])[:-1, -1], 2 * BITS)


@frozen
class EigenvalueOfMoments(Query):
    """The least eigenvalue of ``X'X``, in floats.

    As `adaptive_dp.queries.moments.SmallestEigenvalue` for R = 1: what is given is
    ``min(lambda, max(0, 2^30 - trace))``. By Weyl's inequality the eigenvalue moves by at most r
    for a unit of up to r rows, exchanged or not, and so does the trace, whose terms are not
    negative.
    Where it is the eigenvalue, the matrix's entries are at most 2^30: between two data sets their
    rounding and LAPACK's move it by at most ``2^-17.9 d``, for which the sensitivity is
    ``r (1 + d 2^-17)``.

    `adaptive_dp.queries.moments.LeastEigenvalue` is nearer, and takes decimals of 120 digits: at
    a hundred coefficients half a second, where this takes a millisecond.

    References
    ----------
    Wang 2018, Algorithm 2 (AdaSSP), line 1.
    """

    kind: ClassVar[str] = "eigenvalue_of_moments"
    input_type: ClassVar[type] = MomentsDomain

    def label(self) -> str:
        """Return the query."""
        return "smallest eigenvalue"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's."""
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (one number: any norm)."""
        return change.rows * (1 + domain.width * 2.0**-17)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue."""
        matrix = np.asarray(inputs[0])[:-1, :-1]
        left = float(max(0, (MAX_ROWS_IN_MOMENTS << 2 * BITS) - sum(matrix.diagonal()))) * 2.0 ** (
            -2 * BITS
        )
        if left == 0:
            return 0.0
        least = float(np.linalg.eigvalsh(value_of(matrix, 2 * BITS))[0])
        return min(max(0.0, least), left)


# -----------------------------------------------------------------------------
# Ridge coefficients in a ball, with a sensitivity that holds for any data.


@frozen
class ConstrainedCoefficients(Query):
    """The ridge coefficients in the ball ``|w| <= radius``.

    They minimize ``F(w) = |y - Xw|^2 / 2 + ridge |w|^2 / 2``, which is ridge-strongly convex, over
    a ball in which a row's share of it has a gradient of at most ``G = 1 + radius``. So a row that
    comes or goes moves them by at most ``G / ridge`` in l2 norm. Each is rounded to 2^-40.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Lemma 7 (strong convexity).
    """

    kind: ClassVar[str] = "constrained_coefficients"
    input_type: ClassVar[type] = MomentsDomain

    ridge: float
    radius: float

    def label(self) -> str:
        """Return the query."""
        return f"ridge coefficients in norm {self.radius:.4g}"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's; refuse a ridge or radius that is out of bounds."""
        sizes = {"ridge": (self.ridge, LEAST, MOST), "radius": (self.radius, 2.0**-20, 2.0**20)}
        for name, (value, low, high) in sizes.items():
            if not (low <= finite_float(f"a {name}", value) <= high):
                raise DeclarationError(f"a {name} must be in [{low:g}, {high:g}], got {value!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the number of coefficients."""
        return domain.width

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``G / ridge`` for each row, times sqrt(d) in l1, and the rounding."""
        each = change.both * (1 + self.radius) / self.ridge * (1 + 1e-12)
        rounding = 2.0**-39 * domain.width
        return each * (math.sqrt(domain.width) if norm == 1 else 1.0) + rounding

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the coefficients, shape (d,)."""
        _, found, _ = constrained(inputs[0], self.ridge, self.radius)
        return np.array([round(v * 2**40) * 2.0**-40 for v in found])
