"""Second moments of bounded vectors and of regressions, and what is released of them.

In reading order: the second-moment matrix and its least eigenvalue (`Gram`, `SmallestEigenvalue`);
the sufficient statistics of least squares in one vector (`StackedMoments`); exact moments that
several queries share (`MomentsOf`, and the queries of it); ridge coefficients in a ball.

All sums are exact: rows are rounded to integer multiples of a power of two inside their ball, and
integers are added. What then rounds is the conversion to floats (and LAPACK), and each class bounds
that: either its rows are shortened by more than the rounding can move the sum, or its sensitivity
is enlarged by it. Totals are clamped to those of 2^30 of the longest rows, which is 1-Lipschitz.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, Columns, Examples, grid
from adaptive_dp.data.examples import exact_sum
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
from adaptive_dp.data.scan import MORE_ROWS, RowSum, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Ball,
    Box,
    Floats,
    Interval,
    Selected,
    finite_float,
    interval,
)
from adaptive_dp.queries.examples import ExamplesDomain
from adaptive_dp.queries.sums import BallQuery, BallSteps, enforced_ball, sides_in_steps
from adaptive_dp.queries.vectors import onto_unit

# -----------------------------------------------------------------------------
# The second-moment matrix of bounded vectors, and its smallest eigenvalue.


MAX_ROWS_IN_MOMENTS = 2**30
"""Second moments are clamped to those of this many of the longest rows."""


def inner_radius(radius: float, width: int, bits: int) -> float:
    """Return the radius that leaves room for rounding: ``R (1 - d 2^-bits)``."""
    return radius * max(0.0, 1 - width * 2.0**-bits)


def packed_sensitivity(square: float, width: int, change: Change, norm: float) -> float:
    """Return how far a unit moves packed moments of rows of squared norm at most ``square``.

    The derivation is in `Gram`.
    """
    d = width
    if not change.replaced or d == 1:
        trace = change.rows * square  # |A|_F <= tr A for A positive semi-definite
        return trace * (1 + (d - 1) / math.sqrt(2)) if norm == 1 else trace
    if math.isinf(norm):
        # diagonal entries move by at most max(a, b) R^2, sqrt 2 x_i x_j in [-R^2, R^2] / sqrt 2
        return square * max(change.rows, change.both / math.sqrt(2))
    # |A - B|_F^2 <= |A|_F^2 + |B|_F^2, since <A, B> >= 0
    frobenius = square * math.hypot(change.rows, change.both - change.rows)
    # |v|_1 <= sqrt(dim) |v|_2 with d (d + 1) / 2 coordinates
    return frobenius * (math.sqrt(d * (d + 1) / 2) if norm == 1 else 1.0)


def pack(matrix: Floats) -> Floats:
    """Return the upper triangle, off-diagonal entries times sqrt 2: Frobenius becomes l2."""
    rows, columns, factors = _triangle(len(matrix))
    return np.asarray(matrix[rows, columns] * factors)


def unpack(packed: NDArray[Any]) -> Floats:
    """Return the symmetric matrix of a packed triangle."""
    width = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    rows, columns, factors = _triangle(width)
    matrix = np.zeros((width, width))
    matrix[rows, columns] = np.asarray(packed) / factors
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


@lru_cache(maxsize=4)  # an interval unpacks thousands of one width
def _triangle(width: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the places of a triangle's entries, and by what each is multiplied in it."""
    rows, columns = np.triu_indices(width)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2))


@frozen
class SecondMoment(BallQuery):
    """Base of the queries of ``X'X``, whose rows are clipped to `inner`, a little less than R."""

    @property
    def inner(self) -> float:
        """The radius to which vectors are clipped."""
        return inner_radius(self.radius, self.width, 18)

    @property
    def unit(self) -> float:
        """The step of a coordinate."""
        return grid.step(self.inner, grid.BALL_BITS)

    @property
    def largest(self) -> int:
        """``MAX_ROWS_IN_MOMENTS R^2`` in steps of ``unit^2``, the largest trace."""
        return int(MAX_ROWS_IN_MOMENTS * (self.radius / self.unit) ** 2)

    def block(self, value: Selected) -> SecondMoments:
        """Return ``X'X`` of a block: the same for all queries of the same vectors."""
        return SecondMoments(BallSteps(value.of, self.inner))

    def finish(self, total: NDArray[Any]) -> Any:
        """Return the query's value from ``X'X`` in steps of ``unit^2``, as Python integers."""
        return self.value(total.reshape(self.width, self.width))

    def value(self, steps: NDArray[Any]) -> Any:
        """Return the query's value from ``X'X`` in steps, shape (d, d)."""
        raise NotImplementedError


@frozen
class SecondMoments:
    """``X'X`` of a block of vectors, clipped to a ball, in squared steps: shape (d * d,)."""

    vectors: BallSteps

    def __call__(self, columns: Columns) -> Integers:
        """Return the integers."""
        vectors: Floats = once(columns, self.vectors)  # clips each row
        # integers below 2^20 in blocks of 2^12 rows: every partial sum is below 2^53, so exact
        return np.asarray((vectors.T @ vectors).astype(np.int64).ravel())


def guarded_eigenvalue(steps: NDArray[Any], largest: int, unit: float) -> float:
    """Return ``min(lambda, max(0, L - t))`` of a matrix in steps of ``unit^2``.

    Parameters
    ----------
    steps
        Python integers, shape (d, d): a matrix of trace t and least eigenvalue lambda.
    largest
        L, in steps.
    unit
        A power of two.
    """
    # L - t, in exact integers: below it the matrix's entries are at most L in size
    headroom = float(max(0, largest - sum(steps.diagonal()))) * unit * unit
    if headroom == 0:
        return 0.0
    least = float(np.linalg.eigvalsh(steps.astype(np.float64) * unit * unit)[0])
    return min(max(0.0, least), headroom)


@frozen
class Gram(SecondMoment):
    """The second-moment matrix ``sum x x'`` of vectors, each clipped to l2 norm R.

    It is packed into its upper triangle, off-diagonal entries times sqrt 2, so that the l2 norm is
    the Frobenius norm.

    *Sensitivity*. A unit of up to r rows adds a positive semi-definite matrix A of trace at most
    ``t = r R^2``.

    * *Appears or vanishes*: ``|A|_F <= t`` (l2 and maximum norm); in l1
      ``|x|^2 + sqrt 2 sum_{i<j} |x_i x_j| <= t (1 + (d-1)/sqrt 2)``, attained at equal coordinates.
    * *Exchanged*, a rows for b: ``|A - B|_F^2 <= |A|_F^2 + |B|_F^2 <= (a^2 + b^2) R^4``, since
      ``<A, B> >= 0``, attained by orthogonal rows; ``max(a, b) R^2`` for d = 1. In l1 at most
      ``sqrt(d(d+1)/2)`` times that, attained for d = 2. In the maximum norm the diagonal moves by
      ``max(a, b) R^2`` at most, an entry ``sqrt 2 x_i x_j`` by ``(a + b) R^2 / sqrt 2``.

    Where coordinates have bounds, ``|x_i| <= s_i`` (`Ball.sides`), the maximum norm is at most that
    of ``max(a, b) s_i^2`` and ``sqrt 2 (a + b) s_i s_j`` as well.

    *Rounding*. The moments are integer steps, clamped to those of 2^30 rows of norm R, and rounded
    twice to floats (the step is a power of two; times sqrt 2): at most 2^-21.5 R^2 off in each
    entry, so between two data sets 2^-20.5 d R^2 in Frobenius norm. Rows are shortened to
    ``R (1 - d 2^-18)``, which makes the sensitivity of the exact moments smaller by more than that.

    Parameters
    ----------
    radius
        R.
    width
        d, the number of coordinates.

    References
    ----------
    Sheffet 2017 and Wang 2018 (AdaSSP) release this matrix with symmetric noise.
    """

    kind: ClassVar[str] = "gram"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the matrix's size."""
        return f"second moments {self.width} x {self.width}"

    def dimension(self, domain: Ball) -> int:
        """Return the size of the packed triangle."""
        return domain.width * (domain.width + 1) // 2

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        by_norm = packed_sensitivity(domain.radius**2, domain.width, change, norm)
        ends = sides_in_steps(domain, self.inner)
        if not math.isinf(norm) or ends is None:
            return by_norm
        low, high, unit = ends
        *others, largest = sorted(float(s) for s in np.maximum(-low, high) * unit)
        beside = others[-1] if others else 0.0
        entries = (change.rows * largest * largest, change.both * math.sqrt(2) * largest * beside)
        # 2^-20.5 R^2 for the rounding of an entry, see the class docstring
        return min(by_norm, max(entries) * (1 + 1e-12) + 2.0**-20 * domain.radius**2)

    def present(self, value: Any) -> Floats:
        """Return the released matrix."""
        return unpack(np.asarray(value))

    def value(self, steps: NDArray[Any]) -> Floats:
        """Return the packed matrix, shape (d (d+1) / 2,)."""
        unit, most = self.unit, self.largest
        clamped = np.array([[float(min(max(v, -most), most)) for v in row] for row in steps])
        return pack(clamped * unit * unit)


@frozen
class ExampleMoments(Query):
    """The second-moment matrix ``sum w x x'`` of the rows of examples, w their weights or 1.

    It is packed as that of `Gram`, and moves as far, with R the examples' radius.

    *Rounding*. Rows are integer steps and lie in the ball, so that the moments are exact integers.
    They are clamped to those of 2^30 rows of norm R and rounded twice to floats, at most 2^-21.5
    R^2 off in each entry: between two data sets 2^-20.5 d R^2 in Frobenius norm and 2^-20.5 R^2
    for each of ``d (d + 1) / 2`` entries in l1, which the sensitivity is enlarged by.
    """

    kind: ClassVar[str] = "example_moments"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain

    def label(self) -> str:
        """Return the query."""
        return "second moments of the rows"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the domain of the examples."""
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the size of the packed triangle."""
        return domain.width * (domain.width + 1) // 2

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factor 1 + 1e-12 rounds it up."""
        d, square = domain.width, domain.radius**2
        exact = packed_sensitivity(square, d, change, norm)
        rounding = 2.0**-20 * square * (d * d if norm == 1 else d)
        return (exact + rounding) * (1 + 1e-12)

    def present(self, value: Any) -> Floats:
        """Return the released matrix."""
        return unpack(np.asarray(value))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the packed matrix, shape (d (d+1) / 2,)."""
        examples: AnyExamples = inputs[0]
        total, unit, d = examples.total(example_moments), examples.unit, examples.width
        most = int(MAX_ROWS_IN_MOMENTS * (examples.radius / unit) ** 2)
        # as Python integers: the bound may be above those of 64 bits
        inside = np.clip(total.astype(object), -most, most).astype(np.float64)
        return pack(inside.reshape(d, d) * unit * unit)


def example_moments(examples: Examples) -> NDArray[Any]:
    """Return ``sum x x'`` in squared steps, exactly, shape (d * d,); of weights w, of sqrt(w) x."""

    def products() -> Iterator[Floats]:
        for where, block in examples.blocks():
            if examples.labels.ndim == 2:
                # weights are in [0, 1], and rounding toward 0 makes no row longer
                np.trunc(block * np.sqrt(examples.labels[where, 1:]), out=block)
            # a row's norm is at most 2^20 steps: partial sums over 1024 rows are at most 2^50
            yield (block.T @ block).reshape(-1)

    return exact_sum(products(), examples.width**2)


def covariances(moments: Floats, *, half: Any) -> Floats:
    """Return covariances from the second moments of a 1 and of columns scaled to [-1, 1].

    Parameters
    ----------
    moments
        Shape (p + 1, p + 1).
    half
        Half of the width of each column's bounds, shape (p,).
    """
    rows = max(1.0, float(moments[0, 0]))
    means = np.clip(moments[0, 1:] / rows, -1, 1)
    matrix = moments[1:, 1:] / rows - np.outer(means, means)
    # the nearest positive semi-definite matrix; values in [-1, 1] have a variance of 1 at most
    roots, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    matrix = (vectors * np.clip(roots, 0.0, float(len(means)))) @ vectors.T
    return np.asarray(matrix * np.outer(half, half))


def correlations(matrix: Floats) -> Floats:
    """Return the correlations of a released covariance matrix, 0 beside variances of 0."""
    spread = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    scale = np.outer(spread, spread)
    result = np.divide(matrix, scale, out=np.zeros_like(matrix), where=scale > 0)
    np.fill_diagonal(result, 1.0)
    return np.asarray(np.clip(result, -1.0, 1.0))


def first_entry(matrix: Floats) -> float:
    """Return the entry of row 0 and column 0."""
    return float(matrix[0, 0])


def root(value: float) -> float:
    """Return the square root of a released number, 0 of one below 0."""
    return math.sqrt(max(0.0, value))


@frozen
class SmallestEigenvalue(SecondMoment):
    """The smallest eigenvalue of ``sum x x'``, for vectors clipped to l2 norm R.

    *Sensitivity*, one number and so in any norm. By Weyl's inequality, where a unit appears or
    vanishes the eigenvalue moves by at most the largest eigenvalue of what the unit adds,
    ``r R^2``; where it is exchanged, by at most the larger of the extreme eigenvalues of a
    difference of two such matrices, which is at most ``r R^2`` too.

    *Rounding*. The trace t moves by at most as much, and what is released is
    ``min(lambda, max(0, L - t))`` with L = 2^30 R^2: the eigenvalue, unless there are about 10^9
    rows (a minimum of two functions moves by at most what either does). Where it is the eigenvalue,
    ``|X'X| <= t <= L``, so its entries are rounded by at most 2^-53 L, together 2^-53 d L, and
    LAPACK's backward error is at most 2^-49 d L: between two data sets 2^-17.9 d R^2. Rows are
    shortened to ``R (1 - d 2^-18)``, which moves it by as much less.

    References
    ----------
    Wang 2018, Algorithm 2 (AdaSSP), line 1.
    """

    kind: ClassVar[str] = "smallest_eigenvalue"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "smallest eigenvalue"

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return ``r R^2`` (one number: any norm)."""
        return change.rows * domain.radius**2

    def value(self, steps: NDArray[Any]) -> float:
        """Return the eigenvalue."""
        return guarded_eigenvalue(steps, self.largest, self.unit)


# -----------------------------------------------------------------------------
# Rows of a regression, features and target shortened together.
#
# A row whose features are longer than C is multiplied by ``C / |x|``, its target too. That is a
# weight, which depends on the features alone: where the target is linear in them, the coefficients
# stay what they were, while a long row can move no sum further than one of length C. Shortening
# the features alone would bias the coefficients. Every function here treats each row by itself, so
# that a row's share of a sum does not depend on other rows, to the last bit.


GOAL = 19
"""Targets in [-1, 1] are integer multiples of 2^-GOAL."""

UNIT = 20
"""Features in the unit ball are integer multiples of 2^-UNIT."""


def weighted_rows(
    selected: Selected, columns: Columns, target: str, bounds: Interval, radius: float
) -> tuple[Floats, Floats]:
    """Return features in steps of 2^-20 and targets in steps of 2^-19: integers, as floats.

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
    targets = onto_unit(columns[target], bounds)
    factor: float | Floats
    if selected.box and selected.box.longest <= radius:  # by the declared bounds no row is longer
        factor = _largest_norm(selected.box.width) / radius
        steps = selected.box.times(columns, factor * 2.0**UNIT).T
    else:
        vectors, lengths = _with_lengths(selected.of(columns))
        # |x| factor <= the largest norm, for rows longer and shorter than C
        factor = _largest_norm(vectors.shape[1]) / np.maximum(lengths, radius)
        steps = vectors * (factor * 2.0**UNIT)[:, None]
    return np.rint(steps, out=steps), np.rint(targets * (factor * (radius * 2.0**GOAL)))


def _largest_norm(width: int) -> float:
    """Return the largest norm of a row before rounding: ``1 - d 2^-20`` less sqrt(d) / 2 steps."""
    # rounding moves each of d coordinates by half a step, the row by at most sqrt(d) / 2 steps
    largest = inner_radius(1.0, width, UNIT) - math.sqrt(width) * 2.0 ** -(UNIT + 1)
    return max(0.0, largest) * (1 - 2.0**-40)


def _with_lengths(vectors: Floats) -> tuple[Floats, Floats]:
    """Return vectors and their l2 norms; where a norm is not finite, NaN and infinity become 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(grid.squares(vectors))
        if not np.isfinite(lengths).all():
            vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
            lengths = np.sqrt(grid.squares(vectors))
    return vectors, lengths


# -----------------------------------------------------------------------------
# The sufficient statistics of least squares, as one vector.


@frozen
class StackedMoments(BallQuery):
    """The sufficient statistics of least squares, ``(X'X, X'y)``, in one vector.

    Features are divided by the radius, targets mapped onto [-1, 1]. A row gives ``c = (xx', xy)``
    with ``|x| <= 1``, ``|y| <= 1``; the matrix is packed so that its l2 norm is the Frobenius norm.
    Rows longer than the radius are shortened with their targets (`weighted_rows`).

    *Sensitivity* (own proofs), with up to a rows against b:

    * *appears or vanishes*, l2: ``|c|^2 = |x|^4 + |x|^2 y^2 <= 2``: ``sqrt(2) a``, attained;
    * *exchanged*, l2: ``<c, c'> = t^2 + t y y'`` with ``t = x'x'`` is at least ``-1/4`` (at
      ``t = 1/2, y y' = -1``), so ``|A - B|^2 <= 2 a^2 + 2 b^2 + a b / 2``; attained where d > 1;
    * l1, each row: ``|x|^2 + sqrt 2 sum_{i<j} |x_i x_j| + |x|_1 |y|`` is at most
      ``1 + (d-1)/sqrt 2 + sqrt d``, at equal coordinates.

    * maximum norm: ``x_i y`` is in [-1, 1], ``x_i^2`` in [0, 1], ``sqrt 2 x_i x_j`` within
      ``1 / sqrt 2`` of 0: a where it appears or vanishes, ``a + b`` where exchanged, both attained.

    *Rounding*. Totals are clamped to those of 2^30 of the longest
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
    column_fields: ClassVar[tuple[str, ...]] = ("target",)

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
        if math.isinf(norm):
            return float(change.both)  # of ``x_i y``; the matrix's entries move by less
        if norm == 1:
            d = self.width
            # the triangle inequality over a + b rows, each at most this in l1
            return change.both * (1 + (d - 1) / math.sqrt(2) + math.sqrt(d))
        a, b = change.rows, change.both - change.rows  # b = 0 where the unit appears or vanishes
        # |A - B|^2 = |A|^2 + |B|^2 - 2 <A, B>, and <c, c'> >= -1/4
        return math.sqrt(2 * a * a + 2 * b * b + a * b / 2)

    def present(self, value: Any) -> Floats:
        """Return the released matrix and, as a last column, the vector; shape (d, d + 1)."""
        packed = np.asarray(value)
        return np.column_stack([unpack(packed[: -self.width]), packed[-self.width :]])

    def block(self, value: Selected) -> Callable[[Columns], Integers]:
        """Return ``(X'X, X'y)`` of a block, in steps."""

        def sums(columns: Columns) -> Integers:
            # integers up to 2^20 in blocks of 2^12 rows: every partial sum is below 2^53, so exact
            rows, targets = weighted_rows(value, columns, self.target, self.bounds, self.radius)
            return np.column_stack([rows.T @ rows, rows.T @ targets]).astype(np.int64).ravel()

        return sums

    def finish(self, total: NDArray[Any]) -> Floats:
        """Return the packed matrix and the vector, shape (d (d + 3) / 2,)."""
        steps = total.reshape(self.width, self.width + 1)
        matrix = from_steps(steps[:, :-1], 2 * UNIT)
        return np.concatenate([pack(matrix), from_steps(steps[:, -1], UNIT + GOAL)])


def with_target(ball: Ball, radius: float, width: int, target: str, bounds: Interval) -> Ball:
    """Return the ball of features divided by ``radius``; refuse a target with other bounds."""
    ball.table.check_bounds(target, bounds)
    enforced_ball(ball, radius, width)
    if not (radius > 0):
        raise DeclarationError(f"a radius must be positive, got {radius!r}")
    return evolve(enforced_ball(ball, 1.0, width), sides=())  # of features before the division


def from_steps(steps: Any, bits: int) -> Floats:
    """Return integer numbers of steps of ``2^-bits`` as floats, clamped to 2^30."""
    largest = MAX_ROWS_IN_MOMENTS * 2**bits
    clamped = [float(min(max(int(v), -largest), largest)) for v in steps.flat]
    return np.array(clamped).reshape(steps.shape) * 2.0**-bits


# -----------------------------------------------------------------------------
# Exact second moments of a regression, and what is released of them.
#
# Rows are mapped into the unit ball, ``|x| <= 1``, and targets into [-1, 1], on a grid; all numbers
# below are in these units. Several queries read one transform (`MomentsOf`), so that the rows are
# read once.


STEP = 16
"""The least eigenvalue is given in steps of 2^-16."""

SLACK = 2.0**-14
"""What is added to a sensitivity for rounding: four steps, twice what two roundings can move."""

REACH = 1 + 2 * SLACK
"""The most that one row moves one of these queries, all rounding included."""

LEAST, MOST = 2.0**-9, 2.0**40
"""Released ridges are clamped to [LEAST, MOST], lower bounds of eigenvalues to [0, MOST]."""

FARTHEST = 2.0**30
"""`CoefficientNorm` is clamped to this."""


@frozen
class MomentsDomain:
    """The domain of second moments of ``width`` features and a target."""

    width: int


@frozen
class MomentsOf(Operation):
    """The exact second moments of vectors and a target: the matrix ``sum (x, y)(x, y)'``.

    A vector is divided by ``radius`` and clipped to the unit ball, the target mapped from its
    bounds onto [-1, 1]; both are rounded to multiples of 2^-19 inside.
    """

    kind: ClassVar[str] = "moments"
    is_computed: ClassVar[bool] = True
    column_fields: ClassVar[tuple[str, ...]] = ("target",)
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
        ball.table.check_bounds(self.target, self.bounds)
        return MomentsDomain(ball.width)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum of the rows' moments, in steps of 2^-38."""
        selected: Selected = inputs[0]
        features = UnitFeatures(selected.of, selected.box, self.radius)
        block = RegressionMoments(features, Products(features), self.target, self.bounds)

        def finish(total: NDArray[Any]) -> Moments:
            width = math.isqrt(len(total))
            matrix = np.array([int(v) for v in total], dtype=object).reshape(width, width)
            return matrix.view(Moments)

        return RowSum(selected.rows, block, finish)


@frozen
class UnitFeatures:
    """Vectors divided by a radius and clipped to the unit ball, in steps of 2^-19.

    Where by the declared bounds no vector can be longer than ``R (1 - d 2^-19)``, norms are not
    computed: a row then has norm at most ``2^19 - d`` in steps, to which rounding adds at most
    ``sqrt(d) / 2``. Which branch is taken depends on the plan alone, never on the rows.
    """

    of: Callable[[Columns], Floats]
    box: Box | None
    radius: float

    def __call__(self, columns: Columns) -> Floats:
        """Return integers as floats, a row in each column: shape (d, m)."""
        box = self.box
        if box and 1e-100 < box.longest < self.radius * (1 - box.width * 2.0**-BITS):
            points = box.times(columns, 2.0**BITS / self.radius)
            return np.rint(points, out=points)
        steps, unit = grid.ball_steps(once(columns, self.of) / self.radius, 1.0)
        assert unit == 2.0**-BITS
        return steps.T


@frozen
class Products:
    """``X'X`` of a block of features, which regressions of several targets share."""

    features: UnitFeatures

    def __call__(self, columns: Columns) -> Floats:
        """Return integers as floats, shape (d, d)."""
        points = once(columns, self.features)
        # integers up to 2^19 in blocks of 2^14 rows: every partial sum is up to 2^52, so exact
        return np.asarray(points @ points.T)


@frozen
class RegressionMoments:
    """``(X, y)'(X, y)`` of a block of rows, in steps of 2^-38: shape ((d + 1)^2,)."""

    rows_at_once: ClassVar[int] = MORE_ROWS  # below 2^14, for which `Products` are exact

    features: UnitFeatures
    products: Products
    target: str
    bounds: Interval

    def __call__(self, columns: Columns) -> Integers:
        """Return the integers."""
        points = once(columns, self.features)
        targets = onto_unit(columns[self.target], self.bounds, 2.0**BITS)
        np.rint(targets, out=targets)
        total = np.empty((len(points) + 1, len(points) + 1))
        total[:-1, :-1] = once(columns, self.products)
        # exact as the products: targets are integers up to 2^19 too
        total[:-1, -1] = total[-1, :-1] = points @ targets
        total[-1, -1] = targets @ targets
        return total.astype(np.int64).ravel()


class MomentsQuery(Query):
    """Base of the queries of exact moments: their first input is a `MomentsOf`."""

    input_type: ClassVar[type] = MomentsDomain

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the domain of the moments."""
        return inputs[0]  # type: ignore[no-any-return]


@frozen
class ExactMoments(MomentsQuery):
    """The moments themselves, for mechanisms whose loss is proven for exact moments.

    The sensitivity is the number of rows added and removed, in norm 0: r for a unit of up to r rows
    that appears or vanishes, a + b for a rows exchanged for b.
    """

    kind: ClassVar[str] = "exact_moments"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = Moments

    def label(self) -> str:
        """Return the query."""
        return "regression moments"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the number of rows added and removed; refuse any norm but 0.

        Other mechanisms read arrays too, and would add noise to integers in steps of 2^-38.
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
class LeastEigenvalue(MomentsQuery):
    """The least eigenvalue of ``X'X``, rounded down to a multiple of 2^-16.

    *Sensitivity*, one number and so in any norm. By Weyl's inequality a row ``|x| <= 1`` that
    appears raises the eigenvalue by 0 to 1, one that vanishes lowers it by as much, and an
    exchanged one moves it by at most 1: r for a unit of up to r rows. Rounding down keeps that,
    since 1 is a multiple of the step; a tie with a multiple may be rounded either way, one step,
    for which the sensitivity is ``r (1 + 2^-14)``.
    """

    kind: ClassVar[str] = "least_eigenvalue"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "least eigenvalue"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``r (1 + 2^-14)``."""
        # Weyl's inequality, and the rounding to steps of 2^-16
        return change.rows * (1 + SLACK)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue."""
        return min(least_eigenvalue(inputs[0], STEP), 2**52) * 2.0**-STEP


@frozen
class CoefficientNorm(MomentsQuery):
    """The log norm of ridge coefficients, ``log(1 + |theta|) / log(1 + 1/h)``.

    Its further inputs are two released values, a ridge and a lower bound l of the least
    eigenvalue. It solves ``H theta = X'y`` with ``H = X'X + (ridge + k) I``,
    ``k = max(0, l - lambda_min)``: where the bound is wrong, a larger ridge makes it true. So
    ``H >= h I``, ``h = ridge + l``, whatever the released values are.

    *Sensitivity*. Let a row (x, y) appear, and k fall by c: c is in [0, 1], as the eigenvalue
    rises by that. ``theta' - theta = H'^-1 (x y - (x x' - c I) theta)``, and all eigenvalues of
    ``x x' - c I`` are in [-1, 1], so ``|theta' - theta| <= (1 + |theta|) / h``, and the same with
    theta' on the right: the logarithm moves by at most ``log(1 + 1/h)``, and the value by 1. The
    rounding of lambda_min makes that ``1 + 2^-16``; the value is rounded to 2^-20.

    References
    ----------
    Wang 2018 (AdaOPS), where l is trusted; the correction k, and that it costs nothing, are
    derived here. As printed, with ``ridge * lambda_min`` for their sum, the sensitivity fails.
    """

    kind: ClassVar[str] = "coefficient_norm"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 2

    def label(self) -> str:
        """Return the query."""
        return "log norm of the coefficients"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``1 + 2^-14`` for each row added or removed: an exchange counts both."""
        # 1 + 2^-16 for lambda_min's rounding, and two roundings of the value by 2^-20
        return change.both * (1 + SLACK)

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the domain of the moments; both released values are needed."""
        if len(inputs) != 3:
            raise DeclarationError(
                "a coefficient_norm needs three inputs: the moments, a ridge and a bound"
            )
        return inputs[0]  # type: ignore[no-any-return]

    @precise
    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the value."""
        moments, ridge, bound = inputs[0], *clamp_released(inputs[1], inputs[2])
        least = least_eigenvalue(moments, STEP) * Decimal(2) ** -STEP
        missing = max(Decimal(0), Decimal(bound) - least)
        size = norm(solution(moments, Decimal(ridge) + missing)[1])
        value = (1 + size).ln() / Decimal(unit(ridge, bound))
        return math.floor(min(value, Decimal(FARTHEST)) * 2**20) * 2.0**-20


def clamp_released(ridge: float, bound: float) -> tuple[float, float]:
    """Return a released ridge in [2^-9, 2^40] and a bound in [0, 2^40]; NaN is the safe end."""
    r, b = float(ridge), float(bound)
    return (
        MOST if math.isnan(r) else min(max(r, LEAST), MOST),
        0.0 if math.isnan(b) else min(max(b, 0.0), MOST),
    )


def unit(ridge: float, bound: float) -> float:
    """Return ``log(1 + 1/h)``, the unit of `CoefficientNorm`, for clamped values."""
    return math.log1p(1 / (ridge + bound))


# -----------------------------------------------------------------------------
# Floats of exact second moments: the matrix, the vector, the least eigenvalue.
#
# ``|x| <= 1`` and ``|y| <= 1`` hold exactly, row by row, and sums are integers, clamped to those of
# 2^30 of the longest rows and then rounded to floats. Each sensitivity is that of the integers,
# enlarged for that rounding, which the docstrings bound.


@frozen
class GramOfMoments(MomentsQuery):
    """The second-moment matrix ``sum x x'`` of exact moments, packed as `Gram` packs it.

    *Sensitivity*, for each kind of change that of `Gram` for R = 1, times ``1 + d 2^-20``.
    Rounding (of the clamped number, and of its product with sqrt 2) moves each of the
    ``d (d + 1) / 2`` entries by at most 2^-21.5, so between two data sets their l2 norm by
    ``2^-20.5 d``, and their l1 norm by ``2^-21.5 d (d + 1)``: less than ``d 2^-20`` times the least
    sensitivity, which is 1 in l2 and ``1 + (d - 1) / sqrt 2`` in l1.
    """

    kind: ClassVar[str] = "gram_of_moments"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "second moments"

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the size of the packed triangle."""
        return domain.width * (domain.width + 1) // 2

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        # the last factor: rounding to floats, at most d 2^-20 of the least sensitivity
        return packed_sensitivity(1.0, domain.width, change, norm) * (1 + domain.width * 2.0**-20)

    def present(self, value: Any) -> Floats:
        """Return the released matrix."""
        return unpack(np.asarray(value))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the packed matrix, shape (d (d+1) / 2,)."""
        return pack(from_steps(np.asarray(inputs[0])[:-1, :-1], 2 * BITS))


@frozen
class CrossOfMoments(MomentsQuery):
    """The vector ``sum x y`` of exact moments.

    *Sensitivity* (triangle inequality). A row gives a vector of l2 norm at most 1, hence of l1 norm
    at most ``sqrt(d)``: r times that where a unit of up to r rows appears or vanishes, a + b times
    where a rows are exchanged for b. Rounding moves each entry by at most 2^-23,
    and between two data sets the vector by ``2^-22 sqrt(d)`` in l2 and ``2^-22 d`` in l1: less than
    ``d 2^-20`` times either.
    """

    kind: ClassVar[str] = "cross_of_moments"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "moments with the target"

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the number of features."""
        return domain.width

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        d = domain.width
        # the triangle inequality over rows, |v|_1 <= sqrt(d) |v|_2, and rounding to floats
        return change.both * (math.sqrt(d) if norm == 1 else 1.0) * (1 + d * 2.0**-20)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the vector, shape (d,)."""
        return from_steps(np.asarray(inputs[0])[:-1, -1], 2 * BITS)


@frozen
class EigenvalueOfMoments(MomentsQuery):
    """The least eigenvalue of ``X'X`` of exact moments, computed in floats.

    *Sensitivity*, as of `SmallestEigenvalue` for R = 1: the value is
    ``min(lambda, max(0, 2^30 - trace))``. By Weyl's inequality the eigenvalue moves by at most r
    for a unit of up to r rows, exchanged or not, and so does the trace, whose terms are not
    negative. Where it is the eigenvalue, the matrix's entries are at most 2^30: between two data
    sets their rounding and LAPACK's move it by at most ``2^-17.9 d``, for which the sensitivity is
    ``r (1 + d 2^-17)``.

    `LeastEigenvalue` needs less room for rounding, but computes with decimals of 120 digits: at a
    hundred coefficients half a second, where this takes a millisecond.

    References
    ----------
    Wang 2018, Algorithm 2 (AdaSSP), line 1.
    """

    kind: ClassVar[str] = "eigenvalue_of_moments"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "smallest eigenvalue"

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (one number: any norm)."""
        return change.rows * (1 + domain.width * 2.0**-17)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the eigenvalue."""
        matrix = np.asarray(inputs[0])[:-1, :-1]
        # L = 2^30: rows of norm 1
        return guarded_eigenvalue(matrix, MAX_ROWS_IN_MOMENTS << 2 * BITS, 2.0**-BITS)


# -----------------------------------------------------------------------------
# Ridge coefficients in a ball, with a sensitivity that holds for any data.


@frozen
class ConstrainedCoefficients(MomentsQuery):
    """The ridge coefficients in the ball ``|w| <= radius``.

    They minimize ``F(w) = |y - Xw|^2 / 2 + ridge |w|^2 / 2`` over the ball.

    *Sensitivity*. F is ridge-strongly convex, and in the ball a row's term has a gradient of norm
    at most ``G = 1 + radius``. So a row that appears or vanishes moves the minimizer by at most
    ``G / ridge`` in l2 norm, and a rows exchanged for b by a + b times that. Each coefficient is
    rounded to a multiple of 2^-40, once more for each of two data sets.

    Parameters
    ----------
    ridge
        In [2^-9, 2^40], in units of the sum.
    radius
        Of the ball, in [2^-20, 2^20].

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Lemma 7 (strong convexity).
    """

    kind: ClassVar[str] = "constrained_coefficients"
    column_fields: ClassVar[tuple[str, ...]] = ()

    ridge: float
    radius: float

    def label(self) -> str:
        """Return the query."""
        return f"ridge coefficients in norm {self.radius:.4g}"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the domain of the moments; refuse a ridge or radius out of bounds."""
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
        # Chaudhuri, Monteleoni and Sarwate 2011, Lemma 7: G / ridge a row; 1e-12 rounds it up
        per_row = change.both * (1 + self.radius) / self.ridge * (1 + 1e-12)
        rounding = 2.0**-39 * domain.width  # in l1, at least what it is in l2
        return per_row * (math.sqrt(domain.width) if norm == 1 else 1.0) + rounding

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the coefficients, shape (d,)."""
        _, coefficients, _ = constrained(inputs[0], self.ridge, self.radius)
        return np.array([round(v * 2**40) * 2.0**-40 for v in coefficients])
