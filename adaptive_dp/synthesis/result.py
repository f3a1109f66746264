"""The released model: counts of any table, how far they are from the truth, and rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from accountants.document import short_repr
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.outputs import Comparison, ConfidenceInterval, Entries, Summarized
from adaptive_dp.graph.values import as_int
from adaptive_dp.queries.domains import ColumnValues
from adaptive_dp.synthesis.marginals import LARGEST_ANSWER, CellOf
from adaptive_dp.synthesis.model import Floats, Model, boxes_of, model_of
from adaptive_dp.synthesis.rows import sampled_codes, values_of_codes
from adaptive_dp.synthesis.workload import (
    LARGEST,
    WEIGHT_STEPS,
    Axis,
    Columns,
    Layout,
    Taken,
    axis,
    layout_of,
    subsets,
    taken,
)


class Synthetic(Mapping[str, Any], Summarized):
    """A released model of a table's columns: it answers counts, bounds errors and draws rows.

    All that it does is post-processing of released numbers, and costs nothing. It is a mapping of
    these numbers, so that it can be kept as JSON.

    Parameters
    ----------
    released
        What `Synthesizer` released.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"], "ill": ["no", "yes"]})
    >>> model = dp.synthesize(people, "all 2-way", epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(model=model).with_delta(1e-6)
    >>> rows = {"town": ["A"] * 3000 + ["B"] * 1000, "ill": ["no", "no", "yes", "yes"] * 1000}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> model
    <synthetic model of town, ill>
    >>> model.labels("town")
    ('A', 'B', None)
    >>> model.table(["ill"]).shape, bool(model.error(["town", "ill"]) < 0.1)
    ((3,), True)
    """

    def __init__(self, released: Mapping[str, Any]) -> None:
        self._released = dict(released)

    def __getitem__(self, name: str) -> Any:
        return self._released[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._released)

    def __len__(self) -> int:
        return len(self._released)

    def __repr__(self) -> str:
        return f"<synthetic model of {', '.join(self.columns)}>"

    def __reduce__(self) -> Any:
        return Synthetic, (self._released,)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The columns as axes of tables."""
        return tuple(axis(each) for each in self._released["axes"])

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(each.name for each in self.axes)

    @cached_property
    def model(self) -> Model:
        """The readings of released tables."""
        sizes = [each.size for each in self.axes]
        found = model_of(sizes, self._released)
        assert found is not None
        found.impossible = boxes_of(self["impossible"])
        found.prior = model_of(sizes, self["prior"])
        return found

    @cached_property
    def layout(self) -> Layout:
        """The tables of the workload."""
        return layout_of(
            {
                "sizes": [each.size for each in self.axes],
                "workload": self["workload"],
                "weights": self["weights"],
            }
        )

    def labels(self, column: str) -> tuple[Any, ...]:
        """Return what a column's cells are: categories, bins, and None for what is missing."""
        return self.axes[self._place(column)].labels

    def _place(self, column: str) -> int:
        if column not in self.columns:
            raise DeclarationError(f"the model is of {list(self.columns)}, not of {column!r}")
        return self.columns.index(column)

    def _table(self, columns: Sequence[str]) -> tuple[Columns, list[int]]:
        """Return a table's columns ascending, and where each asked column is among them."""
        asked = [columns] if isinstance(columns, str) else list(columns)
        places = [self._place(name) for name in asked]
        if not places or len(set(places)) < len(places):
            raise DeclarationError(f"a table needs different columns, got {asked!r}")
        table = tuple(sorted(places))
        cells = math.prod(self.axes[i].size for i in table)
        if cells > LARGEST:
            raise DeclarationError(
                f"a table of {asked!r} has {cells:,} cells, of which {LARGEST:,} fit"
            )
        return table, [table.index(i) for i in places]

    @property
    def total(self) -> float:
        """The released number of rows."""
        return self.model.total

    def table(self, columns: Sequence[str]) -> Floats:
        """Return the number of rows by some columns, an axis for each in the order given.

        Non-negative, with the model's total. Cells are those of `labels`.
        """
        table, order = self._table(columns)
        return np.transpose(self.model.answer(table), order)

    def is_measured(self, columns: Sequence[str]) -> bool:
        """Return whether the table, or one that it is a part of, was measured."""
        return self.model.is_read(self._table(columns)[0])

    def count(self, where: Mapping[str, Any]) -> float:
        """Return the number of rows that meet conditions.

        Parameters
        ----------
        where
            By column a category, or a list of them; of numbers a range ``(low, high)``, without its
            upper end; None for what is missing. Of a bin that a range cuts, the part of its width
            is taken.

        See Also
        --------
        interval : Of the same conditions.
        share : Of the rows that meet others.
        """
        table, cells = self._taken(where)
        return self._weighed(self.model.answer(table), [each.part for each in cells])

    def share(self, where: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> float:
        """Return the share of rows that meet conditions, of those that meet others.

        Parameters
        ----------
        where, given
            As of `count`; without ``given`` of all rows.

        See Also
        --------
        interval : With ``given`` too.
        """
        both, given = self._both(where, given)
        whole = self.count(given) if given else self.total
        return min(1.0, self.count(both) / max(whole, 1e-300))

    @staticmethod
    def _both(where: Any, given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        beside = {} if given is None else dict(given)
        twice = sorted(set(where) & set(beside))
        if twice:
            raise DeclarationError(f"{twice[0]!r} is in where and in given: leave it out of one")
        return {**where, **beside}, beside

    def _taken(self, where: Mapping[str, Any]) -> tuple[Columns, list[Taken]]:
        if not (isinstance(where, Mapping) and where):
            raise DeclarationError(
                "conditions are a mapping such as {'age': (18, 65), 'ill': 'yes'}, got "
                f"{short_repr(where)}"
            )
        table, _ = self._table(list(where))
        return table, [taken(self.axes[i], where[self.axes[i].name]) for i in table]

    @staticmethod
    def _weighed(counts: Floats, cells: Sequence[Floats]) -> float:
        for own in cells:
            counts = np.tensordot(own, counts, axes=(0, 0))
        return float(counts)

    def _ends(self, where: Mapping[str, Any], level: float) -> tuple[Floats, Floats]:
        """Return the ends of an interval for the number of rows that meet conditions."""
        table, cells = self._taken(where)
        count, ends = self.count(where), list[float]()
        for own, sign in (([each.whole for each in cells], -1), ([each.any for each in cells], 1)):
            weights = np.array(1.0)
            for along in own:
                weights = np.multiply.outer(weights, along)
            allowed = self.model.allowed(table)
            if allowed is not None:  # what is known to be empty needs no reading
                weights = np.where(allowed, weights, 0.0)
            if not weights.any():
                middle = away = 0.0
            elif self.model.is_read(table):
                middle = float((weights * self.model.estimate(table)).sum())
                away = float(ndtri(0.5 + level / 2)) * math.sqrt(
                    self.model.variance(table, weights)
                )
            else:
                middle = float((weights * self.model.answer(table)).sum())
                away = self._apart(table, level)[0 if sign < 0 else 1]
            # of a bin that is cut, none or all rows may be meant
            ends.append(max(middle + sign * away, 0.0))
        # the answer is shrunk: an interval that is widened to hold it covers no less
        return np.asarray(min(ends[0], count)), np.asarray(max(ends[1], count))

    def _share_ends(self, where: Any, given: Any, level: float) -> tuple[Floats, Floats]:
        """Return the ends of a quotient's interval: both counts fail with half of the rest."""
        both, given = self._both(where, given)
        each = 1 - (1 - level) / 2
        low, high = self._ends(both, each)
        least, most = self._ends(given, each) if given else self._total_ends(each)
        return (
            np.asarray(low / most if most > 0 else 0.0),
            np.asarray(min(1.0, high / least) if least > 0 else 1.0),
        )

    def _total_ends(self, level: float) -> tuple[Floats, Floats]:
        # the answer is at least 1, what was read may be less
        middle = float(self.model.means[()])
        away = float(ndtri(0.5 + level / 2)) * self.model.deviation(())
        low, high = max(middle - away, 0.0), middle + away
        return np.asarray(min(low, self.total)), np.asarray(max(high, self.total))

    def interval(
        self,
        columns: Sequence[str] | Mapping[str, Any],
        level: float = 0.95,
        *,
        given: Mapping[str, Any] | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the ends of an interval for the true count of each cell of a table.

        Of conditions, as of `count`, for the number of rows that meet them; a bin that a range
        cuts counts as empty at the lower end, and whole at the upper one. With ``given`` for their
        `share`: it holds where the intervals of both counts do, each of which fails with half of
        the probability.

        Of a table that was measured, or is a part of one that was: the least-squares count of all
        readings, which is Gaussian, with its known deviation. It is for each cell by itself. The
        answer, which is shrunk, non-negative and of the common total, may lie beyond: the interval
        is widened to it, and covers no less. Which tables were measured again depends on what
        noise there was before; how often intervals cover the truth is measured on the page on
        synthetic data.

        Of any other table of the workload, or a part of one: the answer, and about the bound of
        `error` on either side, in rows, cut off at 0. Own proof: with errors x of the answers,
        which add up to D, and ``|x|_1 <= G``, those of some cells add up to a, and those of all
        others to D - a; so ``|a| + |D - a| <= G``, and a is in ``[(D - G) / 2, (D + G) / 2]``. G is
        the bound of `error`, and D follows from the number of rows, as the table of no columns
        says it; of what may fail, the latter has a tenth.

        Parameters
        ----------
        columns
            As of `table`, or conditions as of `count`.
        level
            The probability, in (0, 1).
        given
            Conditions that the rows meet of which a share is meant; ``{}`` for all rows.

        Raises
        ------
        NoIntervalError
            For a table that was neither measured nor a candidate.
        """
        if given is not None and not isinstance(columns, Mapping):
            raise DeclarationError("given is for the share of rows that meet conditions")
        if isinstance(columns, Mapping):
            share = _level(level)
            if given is None:
                return self._ends(columns, share)
            return self._share_ends(columns, given, share)
        table, order = self._table(columns)
        share = _level(level)
        if self.model.is_read(table):
            middle = self.model.estimate(table)
            below = above = float(ndtri(0.5 + share / 2)) * self.model.deviation(table)
        else:
            middle, (below, above) = self.model.answer(table), self._apart(table, share)
        # the answer is shrunk: an interval that is widened to hold it covers no less
        answer = self.model.answer(table)
        low = np.minimum(np.maximum(middle - below, 0.0), answer)
        high = np.maximum(middle + above, answer)
        allowed = self.model.allowed(table)
        if allowed is not None:
            low, high = np.where(allowed, low, 0.0), np.where(allowed, high, 0.0)
        return np.transpose(low, order), np.transpose(high, order)

    def error(self, columns: Sequence[str], level: float = 0.95) -> float:
        """Return a bound of how far a table's answers are off, as a share of all rows.

        The bound is of the total variation distance, half of the sum of the absolute errors over
        all cells, over the released total: at least ``level`` of such bounds hold.

        Notes
        -----
        *Measured tables.* The readings' least-squares counts y have Gaussian noise, of deviation s
        in each of n cells. The error of the answers a is at most ``|a - y|_1 + |noise|_1``, and the
        latter is a sqrt(n)-Lipschitz function of the noise whose covariance is at most ``s^2 n``
        times a projection; it is bounded cell by cell with the mean ``sqrt(2/pi) s n`` and
        concentration of each independent residual.

        *Other candidates*, own proof along the lines of AIM's. Let the last choice, among m
        candidates with scores q at scale b, be of c. With probability ``1 - e^-l`` no score is
        above ``q_c + b (log m + l)`` (McSherry and Talwar 2007, Thm 7). A score is a weight times
        the error of the answers before that round, less a penalty that is known. The error of c
        itself follows from its counts, whose noise was drawn afterwards: with x the errors and z
        the noise, ``E |x + z|_1 = sum f(x_i)`` with ``f(x) = E |x + z|``, which is even and convex,
        so that ``sum f(x_i) >= n f(|x|_1 / n)`` (Jensen); and ``|x + z|_1`` is a sqrt(n)-Lipschitz
        function of z, hence at least its mean less ``s sqrt(2 n l)`` with probability
        ``1 - e^-l`` (Cirel'son, Ibragimov and Sudakov 1976). Both fail with (1 - level) / 2 each.
        What the answers have changed since is known.
        """
        table, _ = self._table(columns)
        return self._largest_gap(table, _level(level)) / 2 / self.total

    def _largest_gap(self, table: Columns, level: float) -> float:
        """Return a bound of the sum of a table's absolute errors, in rows."""
        if self.model.is_read(table):
            return self._measured_gap(table, level)
        last, place = self["last"], self.layout.place.get(table)
        # what could not be chosen was not compared with what was
        if place is None or last is None or place in last["closed"]:
            names = [self.columns[i] for i in table]
            raise NoIntervalError(
                f"no bound is known of the table of {names}: it was neither measured nor among "
                "those that the last choice was of"
            )
        failing = (1 - level) / 2
        weights = self.layout.steps / WEIGHT_STEPS
        chosen, scale = int(last["place"]), float(last["scale"])
        sigma, cells = float(last["sigma"]), self.layout.cells
        gap = _largest_error(float(last["gaps"]), sigma, int(cells[chosen]), failing)
        penalty = float(last["penalty"]) * sigma
        score = weights[chosen] * (gap - penalty * cells[chosen])
        # McSherry and Talwar 2007: the choice's score is this near to the largest
        score += scale * (math.log(len(cells)) + math.log(1 / failing))
        before = self.layout.part(np.asarray(self["before"]), place)
        moved = float(np.abs(self.model.answer(table) - before).sum())
        # rounding of answers and of the penalty to 2^-8 of a row, in both tables
        rounded = (int(cells[place]) + int(cells[chosen])) * 2.0**-7
        bound = score / weights[place] + penalty * int(cells[place]) + moved + rounded
        return max(float(bound), 0.0)

    def _apart(self, table: Columns, level: float) -> tuple[float, float]:
        """Return how far the count of some cells of an unread table may be below and above."""
        failing = 1 - level
        gap = self._largest_gap(table, 1 - 0.9 * failing)
        low, high = (float(end) for end in self._total_ends(1 - 0.1 * failing))
        answered = float(self.model.answer(table).sum())
        # the errors of some cells and of all others: see `interval`
        return max(answered - low + gap, 0.0) / 2, max(gap - answered + high, 0.0) / 2

    def _measured_gap(self, table: Columns, level: float) -> float:
        """Return a bound of a measured table's error: of its answers from y, and of y's noise."""
        model, n = self.model, math.prod(self.model.shape(table))
        away = float(np.abs(model.answer(table) - model.estimate(table)).sum())
        deviation = model.deviation(table)
        # the noise's covariance is a sum of multiples of orthogonal projections; the norm of it is
        # the largest of them, and |z|_1 is sqrt(n)-Lipschitz
        largest = max(
            math.sqrt(1 / model.precisions[part] / model.ratio(table, part))
            for part in subsets(table)
        )
        mean = math.sqrt(2 / math.pi) * deviation * n
        return away + mean + largest * math.sqrt(2 * n * math.log(1 / (1 - level)))

    def summary(self, level: float) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the number of rows, and the counts of each column, with intervals and labels."""
        values: dict[str, Any] = {"total": self.total}
        low, high = (float(end) for end in self._total_ends(level))
        trees: dict[str, Any] = {"total": ConfidenceInterval(low, high)}
        labels: dict[str, Any] = {}
        for each in self.axes:
            values[each.name] = self.table([each.name])
            trees[each.name] = ConfidenceInterval(*self.interval([each.name], level))
            labels[each.name] = Entries(tuple(_words(each)))
        return values, trees, labels

    def comparison(self) -> Comparison:
        """Return how rows, which it draws for that, compare with the released tables."""
        count = min(max(1, round(self.total)), COMPARED)
        try:
            rows = self.rows(count, seed=0)
        except DeclarationError as refusal:  # what is released is shown all the same
            return Comparison(0, {}, [], [str(refusal), *self.contradictions()])
        columns = {}
        for each in self.axes:
            made = np.bincount(self._codes(each, rows[each.name]), minlength=each.size)
            low, high = self.interval([each.name])
            ends = [self.table([each.name]), low, high, made * (self.total / count)]
            columns[each.name] = (_words(each), *(end.tolist() for end in ends))
        tables = []
        for names, (far, error) in self.distances(rows).items():
            low, high = self.interval(names)
            unsure = (low <= 0) & (high > 0)
            places = [self._codes(self.axes[self._place(name)], rows[name]) for name in names]
            share = float(unsure[tuple(places)].sum()) / count
            tables.append((names, unsure.size, error, far, int(unsure.sum()), share))
        return Comparison(count, columns, tables, self.contradictions())

    def contradictions(self, level: float = 0.999) -> list[str]:
        """Return what was declared to be so of no row, and is so of some as released counts say.

        Of conditions whose columns were measured together alone: of others nothing is known.
        Answers and rows are wrong where a declaration is.

        Parameters
        ----------
        level
            The probability with which a declaration that is right is not in the list, of each.
        """
        found = []
        for columns, cells in self.model.impossible:
            if not self.model.is_read(columns):
                continue
            weights = np.array(1.0)
            for own in cells:
                weights = np.multiply.outer(weights, own)
            rows = float((weights * self.model.estimate(columns)).sum())
            least = rows - float(ndtri(level)) * math.sqrt(self.model.variance(columns, weights))
            if least > 0:
                says = "; ".join(
                    f"{self.axes[i].name}: "
                    + ", ".join(
                        word for word, held in zip(_words(self.axes[i]), own, strict=True) if held
                    )
                    for i, own in zip(columns, cells, strict=True)
                )
                found.append(
                    f"declared impossible, but about {rows:,.0f} rows are there, at least "
                    f"{least:,.0f} ({says})"
                )
        return found

    def distances(self, rows: Mapping[str, Any]) -> dict[tuple[str, ...], tuple[float, float]]:
        """Return how far rows are from each measured table, beside that table's own bound.

        It looks at released numbers and at the rows alone, not at the data: where rows are farther
        from a table than it may itself be from the truth, more rows, or rows of the table, help.

        Parameters
        ----------
        rows
            Synthetic rows by column, as `rows` returns them.

        Returns
        -------
        dict
            By the columns of each measured table that is part of no other: the total variation
            distance of the rows' shares from the released ones, and `error` of the table.
        """
        codes = [self._codes(each, rows[each.name]) for each in self.axes]
        found = {}
        read = [table for table in self.model.means if table]
        for table in sorted(t for t in read if not any(set(t) < set(other) for other in read)):
            shape = self.model.shape(table)
            counts = np.zeros(shape)
            np.add.at(counts, tuple(codes[i] for i in table), 1.0)
            shares = self.model.target(table) / self.total
            far = float(np.abs(counts / max(1.0, counts.sum()) - shares).sum()) / 2
            names = tuple(self.columns[i] for i in table)
            found[names] = far, self.error(names)
        return found

    def _codes(self, column: Axis, values: Any) -> Integers:
        """Return the cells of values along an axis."""
        array = np.array(list(values), dtype=object if column.values is not None else np.float64)
        found = CellOf(ColumnValues(column.name), column)({column.name: array})
        if (found < 0).any():
            raise DeclarationError(f"{column.name!r} has values that are in none of its cells")
        return found

    def _wanted(self) -> list[Columns]:
        """Return the tables of a workload of few tables."""
        found = self.layout.wanted
        return found if len(found) <= MOST_WANTED else []

    def _pairs(self) -> list[Columns]:
        """Return the pairs of columns in tables of a workload of more."""
        if len(self.layout.wanted) <= MOST_WANTED:
            return []
        outside = set(self.layout.outside)
        pairs: list[Columns] = [t for t in self.layout.tables if len(t) == 2 and t not in outside]
        return pairs if len(pairs) <= MOST_PAIRS else []

    def rows(
        self, count: int | None = None, *, seed: int | None = None, whole: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return synthetic rows: a list or an array by column, as ``pandas.DataFrame`` takes it.

        Categories are as declared, and None where the value is missing. A number is drawn evenly
        from its bin.

        Parameters
        ----------
        count
            How many; by default the released number of rows.
        seed
            Of the draws, which need not be secret: what they are drawn from is released.
        whole
            Columns of whole numbers: rounded down, inside of their bin.
        """
        number = max(1, round(self.total)) if count is None else as_int(count)
        if number is None or not 1 <= number <= LARGEST_ANSWER:
            raise DeclarationError(f"rows needs a count of at least 1, got {short_repr(count)}")
        for name in whole:
            if self.axes[self._place(name)].edges is None:
                raise DeclarationError(f"{name!r} is a column of categories, not of numbers")
        draw = np.random.default_rng(seed)
        codes = sampled_codes(self.model, number, draw, self._wanted(), self._pairs())
        return {
            each.name: values_of_codes(each, codes[:, i], draw, whole=each.name in whole)
            for i, each in enumerate(self.axes)
        }


MOST_WANTED = 500
"""Rows are brought nearer to the answers of tables of the workload if they are at most so many."""

MOST_PAIRS = 10_000
"""Of more tables the pairs inside of them take their place, if these are at most so many."""

COMPARED = 20_000
"""How many rows are drawn to compare them with released tables."""


def _words(column: Axis) -> list[str]:
    """Return what the cells of an axis are, in words that differ."""
    found = ["missing" if label is None else str(label) for label in column.labels]
    if column.released is not None and column.edges is None:  # of keys, of which some are not there
        known = [each for each in column.values or () if each is not None]
        unused = [f"no key {i + 1}" for i in range(column.released - len(known))]
        return [*known, *unused, "all others"]
    return found


def _level(level: Any) -> float:
    if isinstance(level, bool) or not (isinstance(level, int | float) and 0 < level < 1):
        raise DeclarationError(f"a level must be in (0, 1), got {short_repr(level)}")
    return float(level)


def _largest_error(gaps: float, sigma: float, cells: int, failing: float) -> float:
    """Return the |x|_1 up to which ``|x + z|_1`` is as small as it was: see `Synthetic.error`."""
    mean = (gaps + sigma * math.sqrt(2 * cells * math.log(1 / failing))) / cells / sigma
    # f(x) = E |x + Z| of a standard normal Z grows from sqrt(2/pi), and lies above x
    low, high = 0.0, max(mean, 0.0) + 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _folded_mean(middle) <= mean else (low, middle)
    return high * sigma * cells


def _folded_mean(x: float) -> float:
    """Return ``E |x + Z|`` for a standard normal Z."""
    return float(math.sqrt(2 / math.pi) * math.exp(-x * x / 2) + x * (1 - 2 * ndtr(-x)))
