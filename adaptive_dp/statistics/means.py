"""Means, covariances and principal components of columns for which no bounds are declared.

*The range of a column* is found first, of a histogram over powers of two and then of histograms
over what was left, each with Gaussian noise: ends move inward past bins that hold no more rows than
noise alone shows (`inner_part`). So the number of rows that may lie outside follows from the noise,
not from the width of the data, whatever their units are. A column with declared bounds starts from
these.

*The mean of one column* clips to an interval outside of which there are about as many rows as the
noise of their sum, by a last histogram (`clip_frame`): the clipping quantile of Huang, Liang and Yi
2021.

*Of several columns* rows are seen in a *frame* of released numbers (`Framed`), so that their norm
is bounded, and rounds of clipped offsets follow, as of one cluster (`ClusterSums`): the radius
shrinks to the spread of the rows, as in CoinPress (Biswas, Dong, Kamath and Ullman 2020), but by
released distances instead of by assumed tails.

*Covariances* are second moments in a frame that is drawn nearer to the rows' own ellipsoid in each
round (the iterated preconditioning of CoinPress): the noise is then in proportion to the ellipsoid,
also where its axes differ by orders of magnitude. A number in front of each row makes moments tell
the mean as well, about which the next round looks: a mean that is known as well as the long axes
allow would hide the short ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data import Columns
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, group, parameter, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.values import as_int, number, strings
from adaptive_dp.mechanisms.additive import largest_mu
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Ball, Floats, Interval, Selected, Table, numbers
from adaptive_dp.queries.moments import Gram
from adaptive_dp.queries.order_statistics import MAGNITUDES
from adaptive_dp.queries.sums import VectorSum
from adaptive_dp.queries.table import Table as Rows
from adaptive_dp.queries.table import Vectors, complete_rows
from adaptive_dp.statistics.clustering import (
    ClusterSums,
    lloyd_step,
    round_inputs,
    shared_gaussian,
    start,
)

ZOOMS = 3
"""How often a range is narrowed after the histogram over powers of two."""

BINS = 32
"""The bins of a range."""

RANGES = 0.12
"""The share of mu^2 that finding ranges costs, in all."""

FEW = 0.01
"""The share of mu^2 of the number of rows, where it only tells how many rows a range holds."""

TAILS = 0.1
"""The share of mu^2 of the histogram by which one column is clipped."""

ROWS = 0.13
"""The share of mu^2 of the number of rows, for the mean of one column."""

ROUNDS = 20
"""The rounds of a covariance: where noise is a tenth of the rows' second moment, 19 of them see an
axis of a billionth of the longest."""

STRETCH = 1e9
"""The most that a direction is stretched, over the rows' mean spread in units of their ranges."""

MIDDLE = 0.05
"""The share of mu^2 of a first mean, for a covariance."""

INTERCEPT = 0.4
"""What stands in front of rows whose second moments are released, over the rows' norm: the mean's
noise is least at 1, the covariance's at 0."""

CLEAR, TAIL = 5.0, 3.0
"""Bins hold rows where they are this many deviations of noise: for a range, and for clipping."""

MARGIN, BESIDE = 0.75, 0.3
"""What is added on either side, over the width: of a range, and of the interval of clipping."""

# -----------------------------------------------------------------------------
# Rows in a frame of released numbers.


@frozen
class Framed(Operation):
    """Columns without bounds as one vector a row, seen from a released point, in released units.

    ``z = M (x - c)``, c and M the released ``center`` and ``matrix`` of a mapping, the second
    input; M is a number for each column, or a matrix. What a row becomes depends on it and on
    released numbers alone, to the last bit: sums over columns are added one after the other. The
    query that sums the vectors clips them to ``radius``, exactly.

    Parameters
    ----------
    names
        Columns of numbers, with or without bounds.
    radius
        The norm to which vectors are shortened, in units of the frame.
    intercept
        A number that is put in front, and shortened with the vector, so that second moments tell
        the mean too; 0 for none.
    """

    kind: ClassVar[str] = "framed"
    column_fields: ClassVar[tuple[str, ...]] = ("names",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True
    max_released_inputs: ClassVar[int] = 1

    names: tuple[str, ...] = field(converter=strings)
    radius: float
    intercept: float = field(default=0.0, converter=number)

    def label(self) -> str:
        """Return the columns."""
        shown = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"({shown}) in a released frame"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball; a released frame is needed, and columns of numbers."""
        if len(inputs) != 2:
            raise DeclarationError("framed needs a table and a released frame")
        if not self.names or len(set(self.names)) != len(self.names):
            raise DeclarationError(f"framed needs different columns, got {list(self.names)!r}")
        if not 1e-100 <= self.radius <= 1e100:
            raise DeclarationError(f"a frame's radius must be positive, got {self.radius!r}")
        if not 0 <= self.intercept <= self.radius:
            raise DeclarationError(
                f"a frame's intercept is from 0 to its radius, got {self.intercept!r}"
            )
        refuse_other_columns(inputs[0], self.names)
        names = (("intercept",) if self.intercept else ()) + self.names
        return Ball(names, self.radius, inputs[0])

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the rows' vectors; the query that sums them bounds them exactly."""
        names, frame, first = self.names, inputs[1], int(self.intercept > 0)
        center = _finite(frame["center"]).reshape(-1)
        matrix = _finite(frame["matrix"])

        def of(columns: Columns) -> Floats:
            with np.errstate(over="ignore", invalid="ignore"):
                shifted = [
                    np.clip(numbers(columns[name]), -1e150, 1e150) - c
                    for name, c in zip(names, center, strict=True)
                ]
                result = np.full((len(shifted[0]), first + len(names)), float(self.intercept))
                if matrix.ndim == 1:
                    for i, (z, m) in enumerate(zip(shifted, matrix, strict=True)):
                        result[:, first + i] = z * m
                    return result
                for i, row in enumerate(matrix.reshape(len(names), len(names))):
                    # one column after the other: a product of matrices may add in another order
                    total = shifted[0] * row[0]
                    for z, m in zip(shifted[1:], row[1:], strict=True):
                        total += z * m
                    result[:, first + i] = total
                return result

        return Selected(inputs[0], of)


def _finite(values: Any) -> Floats:
    """Return released numbers of a size that cannot overflow."""
    given = np.asarray(values, dtype=np.float64)
    return np.clip(np.nan_to_num(given, nan=0.0), -1e100, 1e100)


def refuse_other_columns(table: Table, names: Sequence[str]) -> None:
    """Refuse columns that are not of numbers."""
    for name in names:
        declared = table.find(name)
        if not (declared is None or isinstance(declared, Interval)) or name == table.unit:
            raise DeclarationError(
                f"means are of columns of numbers; {name!r} is declared as {declared}"
            )


# -----------------------------------------------------------------------------
# Post-processing: ranges, frames and moments.


def first_clear(values: Floats, least: float) -> int | None:
    """Return the first place where w bins up to it hold ``least sqrt(w)`` rows, w = 1, 2, 4, ...

    None where there is no such place. Of bins without rows, whose noise is sigma, a sum is above
    ``5 sigma sqrt(w)`` with a probability of 3e-7.

    Examples
    --------
    >>> first_clear(np.array([1.0, -1.0, 9.0, 60.0, 80.0]), 50.0)
    3
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places, width = [], 1
    while width <= len(values):
        over = np.flatnonzero(sums[width:] - sums[:-width] > least * math.sqrt(width))
        places += [int(over[0]) + width - 1] if len(over) else []
        width *= 2
    return min(places, default=None)


def first_ranges(*released: Any, declared: list[Any]) -> Floats:
    """Return for each column a range about 0, or its declared bounds.

    The end is twice that of the highest bin of magnitudes that holds rows. Of a column in which
    none does it is taken from all columns' counts together, which noise hides less.

    Parameters
    ----------
    released
        Of each column that has no bounds: counts of magnitudes, and their noise.
    declared
        The bounds of each column, or None.
    """
    counts = [np.asarray(each, dtype=np.float64) for each in released[::2]]
    sigmas = [float(each) for each in released[1::2]]
    found = [first_clear(c[::-1], CLEAR * s) for c, s in zip(counts, sigmas, strict=True)]
    if None in found:
        pooled = np.sum(counts, axis=0)
        place = first_clear(pooled[::-1], CLEAR * math.hypot(*sigmas))
        if place is None:  # too few rows to show anywhere: the largest of sums of counts
            place = len(pooled) - 1 - int(np.argmax(pooled))
        found = [place if each is None else each for each in found]
    ends = iter(found)
    ranges = []
    for bounds in declared:
        end = 0.0 if bounds is not None else 2 * MAGNITUDES[len(MAGNITUDES) - 1 - (next(ends) or 0)]
        ranges.append([-end, end] if bounds is None else list(bounds))
    return np.array(ranges, dtype=np.float64)


def narrowed(before: Any, rows: float, *released: Any, declared: list[Any]) -> Floats:
    """Return the part of each range that holds rows, with `MARGIN` of its width on either side.

    A range stays as it is where rows are in more than a fourth of it: narrower ranges would lose
    tails that are too thin for the noise, and `clip_frame` or the rounds of the mean find these. It
    stays, too, where the part does not hold four fifths of the rows, and a range about 0 where the
    part does not reach the values for which `first_ranges` chose its end.

    Parameters
    ----------
    before
        The ranges, shape (k, 2).
    rows
        The released number of rows.
    released
        Of each range, the counts of `BINS` equal parts of it, and their noise.
    declared
        As of `first_ranges`.
    """
    ranges = np.array(before, dtype=np.float64)
    for i, (counts, sigma) in enumerate(zip(released[::2], released[1::2], strict=True)):
        part = inner_part(np.asarray(counts, dtype=np.float64), CLEAR * float(sigma), 0.8 * rows)
        if part is None or 4 * (part[1] - part[0] + 1) > BINS:
            continue
        inner = part_of(ranges[i], part, 0.0)
        about_zero = declared[i] is None and ranges[i, 0] == -ranges[i, 1]
        # rows were seen from a fourth of the end on
        if not about_zero or 4 * max(-inner[0], inner[1]) > ranges[i, 1] * (1 + 1e-9):
            ranges[i] = part_of(ranges[i], part, MARGIN)
    return ranges


def inner_part(counts: Floats, least: float, rows: float) -> tuple[int, int] | None:
    """Return the first and last of the bins outside of which noise hides all rows that there are.

    None where noise hides too many: no bins show, or those that do hold fewer rows than ``rows``.

    Examples
    --------
    >>> inner_part(np.array([0.0, 2.0, 90.0, 80.0, -1.0, 1.0]), 5.0, 150.0)
    (2, 3)
    """
    first, last = first_clear(counts, least), first_clear(counts[::-1], least)
    if first is None or last is None:
        return None
    last = len(counts) - 1 - last
    return (first, last) if float(counts[first : last + 1].sum()) > rows else None


def part_of(ends: Any, part: tuple[int, int], margin: float) -> list[float]:
    """Return the ends of some of `BINS` equal parts of a range, and a part of their width beside.

    >>> part_of([0.0, 32.0], (2, 3), 0.5)
    [1.0, 5.0]
    """
    low, high = (float(end) for end in ends)
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    first, last = (middle + half * (2 * i / BINS - 1) for i in (part[0], part[1] + 1))
    beside = margin * (last - first)
    return [max(low, first - beside), min(high, last + beside)]


def unit_edges() -> list[float]:
    """Return the ends of `BINS` equal parts of [-1, 1]."""
    return [2 * i / BINS - 1 for i in range(BINS + 1)]


def clip_frame(before: Any, rows: float, counts: Any, sigma: float) -> dict[str, Any]:
    """Return the frame in which the interval that one column is clipped to is [-1, 1].

    The ends lie a little outside of where the last bins hold `TAIL` deviations of noise: a number
    of rows of about the noise of their sum may be clipped, which costs the mean about as much as
    that noise (Huang, Liang and Yi 2021, Theorem 3.3).
    """
    (ends,) = np.asarray(before, dtype=np.float64).tolist()
    part = inner_part(np.asarray(counts, dtype=np.float64), TAIL * float(sigma), 0.9 * rows)
    return box_frame([ends if part is None else part_of(ends, part, BESIDE)])


def clipped_mean(frame: Mapping[str, Any], total: Any, count: float, *, names: list[str]) -> Any:
    """Return the mean in data units of the sum in a frame and the number of rows."""
    # a sum over no rows is 0, and so is the offset
    offset = float(np.asarray(total).reshape(-1)[0]) / max(float(count), 1.0)
    unit = float(np.asarray(frame["matrix"]).reshape(-1)[0])
    return {names[0]: float(np.asarray(frame["center"]).reshape(-1)[0]) + offset / unit}


def box_frame(ranges: Any) -> dict[str, Any]:
    """Return the frame in which columns' ranges are [-1, 1]."""
    low, high = np.asarray(ranges, dtype=np.float64).T
    half = high / 2 - low / 2
    return {"center": low + half, "matrix": 1 / np.where(half > 0, half, 1.0)}


def point_of(frame: Mapping[str, Any], state: Mapping[str, Any]) -> Floats:
    """Return in data units the one centre of a state in a frame of numbers."""
    center = np.asarray(state["centers"], dtype=np.float64)[0]
    return np.asarray(np.asarray(frame["center"]) + center / np.asarray(frame["matrix"]))


def mean_of_state(
    frame: Mapping[str, Any], state: Mapping[str, Any], *, names: list[str]
) -> dict[str, float]:
    """Return the mean by column."""
    return dict(zip(names, point_of(frame, state).tolist(), strict=True))


def mean_in_frame(
    frame: Mapping[str, Any], state: Mapping[str, Any], *, names: list[str]
) -> dict[str, float]:
    """Return the mean by column of the one centre of a state in a frame of a matrix."""
    back = np.linalg.inv(np.asarray(frame["matrix"], dtype=np.float64))
    center = np.asarray(state["centers"], dtype=np.float64)[0]
    mean = np.asarray(frame["center"], dtype=np.float64) + back @ center
    return dict(zip(names, mean.tolist(), strict=True))


def round_frame(
    frame: Mapping[str, Any], state: Mapping[str, Any], *, radius: float
) -> dict[str, Any]:
    """Return the frame about the mean in which rows have a mean square of one a column.

    Parameters
    ----------
    frame, state
        In which the mean was found.
    radius
        The root of the rows' mean squared norm in the new frame.
    """
    units = np.asarray(frame["matrix"], dtype=np.float64)
    units = units * (radius / max(float(state["spread"]), 1e-12))
    return {
        "center": point_of(frame, state),
        "matrix": np.diag(units),
        "units": units,
        "rows": max(float(np.asarray(state["total"])[0]) / float(state["weight"]), 1.0),
    }


def central(moments: Any, intercept: float) -> tuple[Floats, Floats]:
    """Return the mean and the covariance of second moments of rows with a number in front.

    The covariance is the nearest positive semi-definite matrix. Rows that were shortened count as
    that share of a row, squared.
    """
    matrix = np.asarray(moments, dtype=np.float64)
    matrix = (matrix + matrix.T) / 2
    matrix /= max(float(matrix[0, 0]) / intercept**2, 1.0)
    mean = matrix[0, 1:] / intercept
    values, basis = np.linalg.eigh(matrix[1:, 1:] - np.outer(mean, mean))
    return mean, np.asarray((basis * np.maximum(values, 0.0)) @ basis.T)


def whitened(
    frame: Mapping[str, Any], moments: Any, sigma: float, *, intercept: float
) -> dict[str, Any]:
    """Return the frame about the released mean in which the released covariance is at most 1.

    ``M <- (C + e I)^(-1/2) M``, C the covariance and e the edge of the spectrum of its noise: along
    directions that noise hides nothing is stretched further. A mean that is off by more than the
    rows' spread along a short axis would hide that axis: so it moves with the frame.
    """
    mean, found = central(moments, intercept)
    edge = float(sigma) * math.sqrt(2 * len(found)) / float(frame["rows"])
    values, basis = np.linalg.eigh(found)
    # what noise does not tell from 1 stays: many rounds would else add up their noise in the frame
    shown = np.where(np.abs(values - 1) <= 2 * edge, 1.0, values + edge)
    matrix = np.asarray(frame["matrix"], dtype=np.float64)
    # no direction is stretched further than rows are numbers: one without spread would be for ever
    lengths = np.linalg.norm(basis.T @ (matrix / frame["units"]), axis=1)
    root = (basis / np.sqrt(np.maximum(shown, (lengths / STRETCH) ** 2))) @ basis.T
    center = np.asarray(frame["center"], dtype=np.float64) + np.linalg.solve(matrix, mean)
    return {**frame, "center": center, "matrix": root @ matrix}


def in_data_units(
    frame: Mapping[str, Any], moments: Any, *, names: list[str], intercept: float
) -> dict[str, Any]:
    """Return the mean and the covariance of what was released in a frame."""
    back = np.linalg.inv(np.asarray(frame["matrix"], dtype=np.float64))
    mean, found = central(moments, intercept)
    matrix = back @ found @ back.T
    return {
        "columns": list(names),
        "mean": np.asarray(frame["center"], dtype=np.float64) + back @ mean,
        "covariance": (matrix + matrix.T) / 2,
    }


def principal(found: Mapping[str, Any], *, components: int) -> dict[str, Any]:
    """Return the leading eigenvectors of a covariance, each with its largest entry positive."""
    values, basis = np.linalg.eigh(np.asarray(found["covariance"], dtype=np.float64))
    chosen = basis[:, ::-1][:, :components].T
    largest = np.abs(chosen).argmax(axis=1)
    signs = np.where(chosen[np.arange(components), largest] < 0, -1.0, 1.0)
    return {
        "columns": list(found["columns"]),
        "mean": found["mean"],
        "components": chosen * signs[:, None],
        "variances": np.maximum(values[::-1][:components], 0.0),
    }


# -----------------------------------------------------------------------------
# The learners.


@frozen
class OfColumns:
    """Base of what is learned of columns without bounds: its budget, and the columns' ranges."""

    columns: tuple[str, ...] = field(converter=strings)
    free: str = field(default="sigma", kw_only=True)

    title: ClassVar[str]

    def __attrs_post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise DeclarationError(
                f"{self.title} needs different columns, at least one, got {list(self.columns)!r}"
            )

    def build(self, table: Rows, epsilon: float | None, delta: float | None) -> Released[Any]:
        """Return the released result, with a budget of its own, or free noise without one."""
        if (epsilon is None) != (delta is None):
            raise DeclarationError(
                f"{self.title} needs epsilon and delta, or neither of them to leave its noise free"
            )
        mu = None
        if epsilon is not None and delta is not None:
            if not (0 < epsilon < math.inf and 0 < delta < 1):
                raise DeclarationError(
                    f"{self.title}'s noise is Gaussian: it needs epsilon > 0 and 0 < delta < 1, "
                    f"got {epsilon!r} and {delta!r}"
                )
            mu = largest_mu(epsilon, delta)
        refuse_other_columns(table.domain, self.columns)
        # rows in which a column is missing are left out, by a visible filter
        return group(self.title, self.learn(complete_rows(table, self.columns), mu), table)

    def learn(self, table: Rows, mu: float | None) -> Released[Any]:
        """Return the released result, of all of mu."""
        raise NotImplementedError

    def release(
        self, query: PrivateQuery[Any], table: Rows, mu: float | None, share: float, name: str
    ) -> tuple[Released[Any], Released[float]]:
        """Return a query's release with a share of mu^2, and its noise."""
        noise = shared_gaussian(query, table, mu, share, self.free)
        released = query.release(noise, name=name)
        return released, parameter(released, "sigma")

    def ranges(
        self, table: Rows, mu: float | None, share: float, rows: Released[float]
    ) -> Released[Any]:
        """Return the range of each column, found with a share of mu^2 in all: shape (k, 2)."""
        each = share / (len(self.columns) * (1 + ZOOMS))
        declared: list[Any] = []
        released: list[Released[Any]] = []
        for name in self.columns:
            bounds = table.domain.find(name)
            if isinstance(bounds, Interval):
                declared.append([float(bounds.lower), float(bounds.upper)])
                continue
            declared.append(None)
            sizes = table[name].clip(-MAGNITUDES[-1], MAGNITUDES[-1]).abs()
            counts = sizes.histogram([0.0, *MAGNITUDES])
            released += self.release(counts, table, mu, each, f"magnitudes_{name}")
        ranges: Released[Any] = (
            post(first_ranges, *released, declared=declared) if released else public(declared)
        )
        for i in range(ZOOMS):
            found = self.histograms(table, ranges, mu, each, f"range_{i + 1}")
            ranges = post(narrowed, ranges, rows, *found, declared=declared)
        return ranges

    def histograms(
        self, table: Rows, ranges: Released[Any], mu: float | None, share: float, what: str
    ) -> list[Released[Any]]:
        """Return for each column the counts of `BINS` equal parts of its range, and their noise."""
        scaled = table.rescale(list(self.columns), ranges)
        released: list[Released[Any]] = []
        for name in self.columns:
            counts = scaled[name].histogram(unit_edges())
            released += self.release(counts, table, mu, share, f"{what}_{name}")
        return released

    def middle(
        self, table: Rows, mu: float | None, shares: Sequence[float]
    ) -> tuple[Released[Any], Released[Any]]:
        """Return the frame of the columns' ranges, and the state of rounds that find the mean."""
        width = len(self.columns)
        rows, _ = self.release(table.count(), table, mu, FEW, "count")
        frame = post(box_frame, self.ranges(table, mu, RANGES - FEW, rows))
        reach = math.sqrt(width) * (1 + 1e-12)
        return frame, self.mean_rounds(table, frame, reach, mu, shares, "mean")

    def mean_rounds(
        self,
        table: Rows,
        frame: Released[Any],
        reach: float,
        mu: float | None,
        shares: Sequence[float],
        name: str,
    ) -> Released[Any]:
        """Return the state of rounds of clipped offsets from one centre, in a frame."""
        width = len(self.columns)
        vectors = Vectors(Framed(self.columns, reach), (table, frame))
        operation = ClusterSums(vectors.domain.radius, width, 1)
        state: Released[Any] = post(start, public(width), reach=reach)
        for i, share in enumerate(shares):
            query: PrivateQuery[Any] = PrivateQuery(operation, (vectors, post(round_inputs, state)))
            sums, noise = self.release(query, table, mu, share, f"{name}_{i + 1}")
            steps: dict[str, Any] = {"reach": reach, "medians": False, "keep": True}
            state = post(lloyd_step, state, sums, noise, **steps)
        return state

    def moments(
        self, table: Rows, frame: Released[Any], mu: float | None, share: float, name: str
    ) -> tuple[Released[Any], Released[float]]:
        """Return the second moments in a frame in which those of the rows are about 1, and noise.

        Rows have the intercept in front.
        """
        width, first = len(self.columns), self.intercept
        radius = first * math.sqrt(1 + 1 / INTERCEPT**2)
        rows = Vectors(Framed(self.columns, radius, first), (table, frame))
        query: PrivateQuery[Any] = PrivateQuery(Gram(radius, width + 1), (rows,))
        return self.release(query, table, mu, share, name)

    @property
    def intercept(self) -> float:
        """What stands in front of rows whose second moments are released: a share of their norm.

        That norm is what a standard normal row exceeds with a probability of a tenth at most
        (Laurent and Massart 2000, Lemma 1).
        """
        width, log = len(self.columns), math.log(10)
        return INTERCEPT * math.sqrt(width + 2 * math.sqrt(width * log) + 2 * log)

    def ellipsoid(
        self, table: Rows, frame: Released[Any], mu: float | None, share: float, times: int
    ) -> Released[Any]:
        """Return the frame, drawn nearer to the rows' ellipsoid in rounds.

        The last two have half of the share: many rounds find axes of very different lengths, and
        few, with less noise, one frame that fits.
        """
        parts = [("shape", times, share)] if times else []
        if times > 2:
            parts = [("first_shape", times - 2, share / 2), ("shape", 2, share / 2)]
        for name, rounds, part in parts:

            def body(
                before: Released[Any], rows: Rows, name: str = name, each: float = part / rounds
            ) -> Released[Any]:
                found, noise = self.moments(rows, before, mu, each, name)
                return post(whitened, before, found, noise, intercept=self.intercept)

            frame = repeat(body, rounds, table, start=frame)
        return frame


@frozen
class Mean(OfColumns):
    """The means of columns for which no bounds are declared: each clipped as its noise asks.

    Parameters
    ----------
    columns
        Columns of numbers, with or without bounds. Rows in which one is missing are left out.
    correlated
        Of several columns: whether rows are first seen in a frame of their own covariance, which
        costs a fifth of the budget. Then noise in each direction is in proportion to the rows'
        spread in it, whatever combinations of columns that direction is: for columns that are
        strongly correlated.
    free
        Where no budget is given: the name of the free noise.

    Returns
    -------
    dict
        The mean by column, in data units.

    Notes
    -----
    Of one column, ranges have `RANGES` of mu^2, the histogram by which it is clipped `TAILS`, the
    number of rows `ROWS`, and the sum the rest. Of several, three rounds of clipped offsets from
    the mean so far have a tenth, 15 % and 75 % of what ranges leave.

    References
    ----------
    Huang, Liang and Yi 2021 (clipping at a quantile); Biswas, Dong, Kamath and Ullman 2020
    (CoinPress); Karwa and Vadhan 2018 (ranges by histograms).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"income": None})
    >>> mean = people.solve(dp.statistics.Mean(["income"]), epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(mean=mean).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> income = np.random.default_rng(1).lognormal(10, 0.8, 20_000)
    >>> found = plan.simulate(seed=1, people={"income": income})["mean"]["income"]
    >>> abs(found / income.mean() - 1) < 0.01
    True
    """

    correlated: bool = field(default=False, kw_only=True)

    title: ClassVar[str] = "Mean"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not isinstance(self.correlated, bool):
            raise DeclarationError(
                f"Mean.correlated must be True or False, got {self.correlated!r}"
            )

    def learn(self, table: Rows, mu: float | None) -> Released[dict[str, float]]:
        """Return the means."""
        names = list(self.columns)
        if len(names) > 1:
            rest = 1 - RANGES
            if not self.correlated:
                frame, state = self.middle(table, mu, [0.1 * rest, 0.15 * rest, 0.75 * rest])
                return post(mean_of_state, frame, state, names=names)
            box, first = self.middle(table, mu, [0.03 * rest, 0.07 * rest])
            root = math.sqrt(len(names))
            frame = post(round_frame, box, first, radius=root)
            frame = self.ellipsoid(table, frame, mu, 0.2 * rest, ROUNDS - 1)
            last = [0.1 * rest, 0.6 * rest]
            state = self.mean_rounds(table, frame, 3 * root, mu, last, "own_mean")
            return post(mean_in_frame, frame, state, names=names)
        count, _ = self.release(table.count(), table, mu, ROWS, "count")
        ranges = self.ranges(table, mu, RANGES, count)
        tails = self.histograms(table, ranges, mu, TAILS, "tails")
        chosen = post(clip_frame, ranges, count, *tails)
        share = 1 - RANGES - TAILS - ROWS
        rows = Vectors(Framed(self.columns, 1.0), (table, chosen))
        query: PrivateQuery[Any] = PrivateQuery(VectorSum(1.0, 1), (rows,))
        total, _ = self.release(query, table, mu, share, "sum")
        return post(clipped_mean, chosen, total, count, names=names)


@frozen
class Covariance(OfColumns):
    """The mean and the covariance matrix of columns for which no bounds are declared.

    Parameters
    ----------
    columns
        Columns of numbers, with or without bounds. Rows in which one is missing are left out.
    rounds
        How often the frame is adapted to the rows' ellipsoid, and the last round: all but the last
        have a fourth of what the first mean leaves of mu^2. Each shortens the shortest axis that is
        not yet seen by the root of the noise's share of a row's second moment: of 100,000 rows
        of 5 columns at epsilon 1, to a seventh. Of too few rows short axes are never found, and
        the covariance is far too long along them: of 5,000 rows, axes of a millionth of the
        longest.
    free
        Where no budget is given: the name of the free noise.

    Returns
    -------
    dict
        ``columns``, ``mean`` and ``covariance``, in data units.

    References
    ----------
    Biswas, Dong, Kamath and Ullman 2020, Algorithm 4 (CoinPress); Dwork, Talwar, Thakurta and Zhang
    2014 (the release of one round, Analyze Gauss).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"height": None, "weight": None})
    >>> learner = dp.statistics.Covariance(["height", "weight"])
    >>> plan = dp.Pipeline(found=people.solve(learner, epsilon=1.0, delta=1e-6))
    >>> normal = np.random.default_rng(1).multivariate_normal
    >>> height, weight = normal([1.7, 70], [[0.01, 0.6], [0.6, 100]], 50_000).T
    >>> data = {"height": height, "weight": weight}
    >>> found = plan.with_delta(1e-6).simulate(seed=1, people=data)["found"]
    >>> (found["covariance"] / np.outer([0.1, 10], [0.1, 10])).round(1).tolist()
    [[1.0, 0.6], [0.6, 1.0]]
    """

    rounds: int = field(default=ROUNDS, kw_only=True)

    title: ClassVar[str] = "Covariance"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if as_int(self.rounds) is None or not 1 <= self.rounds <= 100:
            raise DeclarationError(
                f"{self.title}.rounds must be an int from 1 to 100, got {self.rounds!r}"
            )

    def learn(self, table: Rows, mu: float | None) -> Released[dict[str, Any]]:
        """Return the mean and the covariance."""
        names = list(self.columns)
        box, state = self.middle(table, mu, [0.2 * MIDDLE, 0.8 * MIDDLE])
        rest = 1 - RANGES - MIDDLE
        early = 0.25 * rest if self.rounds > 1 else 0.0
        frame = post(round_frame, box, state, radius=math.sqrt(len(names)))
        frame = self.ellipsoid(table, frame, mu, early, self.rounds - 1)
        moments, _ = self.moments(table, frame, mu, rest - early, "moments")
        return post(in_data_units, frame, moments, names=names, intercept=self.intercept)


@frozen
class PCA(Covariance):
    """The principal components of columns for which no bounds are declared.

    The eigenvectors of a released covariance: by default of one round, whose noise is the same in
    all directions of the frame of the columns' ranges. For components of small variance, more
    ``rounds`` are better.

    Parameters
    ----------
    columns, rounds, free
        As of `Covariance`.
    components
        How many, at most as many as there are columns.

    Returns
    -------
    dict
        ``columns``, ``mean``, ``components`` of shape (k, d), rows of norm 1, and ``variances``.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang 2014 (Analyze Gauss).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"a": None, "b": None})
    >>> learner = dp.statistics.PCA(["a", "b"], components=1)
    >>> plan = dp.Pipeline(found=people.solve(learner, epsilon=1.0, delta=1e-6))
    >>> a = np.random.default_rng(1).normal(size=20_000)
    >>> data = {"a": a, "b": 2 * a}
    >>> found = plan.with_delta(1e-6).simulate(seed=1, people=data)["found"]
    >>> found["components"].round(1).tolist()
    [[0.4, 0.9]]
    """

    rounds: int = field(default=1, kw_only=True)
    components: int = field(default=1, kw_only=True)

    title: ClassVar[str] = "PCA"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if as_int(self.components) is None or not 1 <= self.components <= len(self.columns):
            raise DeclarationError(
                f"PCA.components must be an int from 1 to the number of columns, got "
                f"{self.components!r}"
            )

    def learn(self, table: Rows, mu: float | None) -> Released[dict[str, Any]]:
        """Return the components."""
        return post(principal, super().learn(table, mu), components=self.components)
