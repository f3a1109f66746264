"""The test of tests: any public test made private, by a private count of its rejections."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.scan import RowFunction
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, group, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.outputs import released_ends
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import deep_copy, number, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ensembles import aligned_copy
from adaptive_dp.pate.model import FAILURES, quiet, seeded, settings_parameter
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Categories, Interval, numbers
from adaptive_dp.queries.examples import declarations, draw_parts
from adaptive_dp.queries.table import Table, complete_rows
from adaptive_dp.queries.transforms import category_index
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.proportions import Tulap, binomial_ends, count_tails

MOST_PARTS = 100_000
"""Parts, at most."""


@frozen
class ColumnNumbers(RowFunction):
    """A column as numbers: clipped to its bounds, or positions of its categories."""

    of: str
    declared: Interval | Categories

    def __call__(self, columns: Columns) -> NDArray[np.float64]:
        """Return a number for each row."""
        values = columns[self.of]
        if isinstance(self.declared, Categories):
            return category_index(values, self.declared.values).astype(np.float64)
        return np.clip(numbers(values), self.declared.lower, self.declared.upper)


@frozen
class Rejections(Query):
    """How many of several parts of the rows a test rejects.

    Each unit is in one part, by a uniform draw of its own that no data affects; or, where the
    number of units is fixed, by its place in a random order, so that parts are of one size. In
    each part the test is called with that part's rows alone, and rejects where the p-value that it
    returns is at most a level. A test that fails, or returns anything but a number in [0, 1], does
    not reject.

    *Sensitivity* 1, in any norm since it is one number, whatever the relation and however many rows
    a unit has: given all draws, data sets that differ in one unit differ in the rows of one part
    alone (a unit whose rows are exchanged keeps its part, since draws are independent and of one
    law), and the test in another part sees the same numbers in the same order. So with the same
    draws the count moves by at most 1, and the law of a release of it is a mixture over draws.
    Parts of one size need as many units in both data sets: the order is one of their numbers, so
    that all others keep their parts where one unit's rows are exchanged.

    Parameters
    ----------
    columns
        What the test reads: columns with bounds or categories.
    test
        A function of a mapping from columns to arrays that returns a p-value.
    parts
        How many.
    level
        At or below which a p-value rejects, inside (0, 1).
    declared
        The columns' declarations.
    settings
        Keyword arguments of the test.
    balanced
        Whether parts are of one size, to one unit.

    References
    ----------
    Kazan, Shi, Groce and Bray 2023, Algorithm 1 and Theorem 3.1.
    """

    kind: ClassVar[str] = "rejections"
    column_fields: ClassVar[tuple[str, ...]] = ("columns",)
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = domains.Table
    random: ClassVar[bool] = True

    columns: tuple[str, ...] = field(converter=strings)
    test: Function
    parts: int = field(converter=number)
    level: float = field(converter=number)
    declared: Mapping[str, domains.Column] = field(converter=domains.columns)
    settings: Mapping[str, Any] = settings_parameter("a public test")
    balanced: bool = False

    def label(self) -> str:
        """Return the test and the number of parts."""
        return f"rejections of {self.test.label} in {self.parts} parts"

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the columns, the number of parts and the level."""
        table: domains.Table = inputs[0]
        if not (isinstance(self.parts, int) and 2 <= self.parts <= MOST_PARTS):
            raise DeclarationError(
                f"a test of tests needs an int of 2 to {MOST_PARTS:,} parts, got {self.parts!r}"
            )
        nulls.check_inside("a test of tests' level", self.level, 0.0, 1.0)
        if not self.columns:
            raise DeclarationError("a test of tests needs at least one column, got none")
        for name in self.columns:
            if not isinstance(table.find(name), Interval | Categories):
                raise DeclarationError(
                    f"a test of tests reads columns with bounds or categories; {name!r} has neither"
                )
            domains.check_declared(table, name, self.declared)
        return table

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return 1, or refuse parts of one size where the number of units may differ."""
        if self.balanced and not (change.replaced and change.fixed):
            raise DeclarationError(
                "parts of one size need a fixed number of units, each of one row: all rows of a "
                "replace_one table without a unit column; use balanced=False"
            )
        return 1.0

    def step(self, domain: domains.Table) -> float:
        """Return 1."""
        return 1.0

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Call the test on made-up rows, so that its errors are public."""
        generator = np.random.default_rng(0)
        made_up: dict[str, NDArray[Any]] = {}
        for name in self.columns:
            declared = self.declared[name]
            if isinstance(declared, Interval):
                made_up[name] = generator.uniform(declared.lower, declared.upper, 200)
            else:
                assert isinstance(declared, Categories)
                made_up[name] = labels(generator.integers(0, len(declared.values), 200), declared)
        try:
            with quiet(os.getpid()), seeded(0):
                float(self.test.resolve()(made_up, **deep_copy(dict(self.settings))))
        except FAILURES as error:
            raise RunError(
                f"the test {self.test.label!r} fails on made-up rows: {type(error).__name__}: "
                f"{error}; it must return a p-value of a mapping from columns to arrays"
            ) from error

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the number of parts in which the test rejects."""
        rows: Rows = inputs[0]
        units = rows.units
        count = int(units.max(initial=-1)) + 1
        if self.balanced:  # of all rows, those without a value too
            place = np.empty(count, dtype=np.int64)
            place[np.argsort(stream.words(count), kind="stable")] = np.arange(count)
            part_of_row = (place % self.parts)[units]
        else:
            part_of_row = draw_parts(stream, [1 / self.parts] * self.parts, count)[units]
        seeds = stream.words(self.parts)
        table: dict[str, NDArray[np.float64]] = {}
        for name in self.columns:
            table[name] = rows.values(ColumnNumbers(name, self.declared[name]))  # type: ignore[arg-type]
            categories = isinstance(self.declared[name], Categories)
            lacking = table[name] < 0 if categories else np.isnan(table[name])
            part_of_row[lacking] = self.parts  # in none
        order = np.argsort(part_of_row, kind="stable")
        ends = np.searchsorted(part_of_row[order], np.arange(self.parts + 1))
        table = {name: values[order] for name, values in table.items()}
        test = self.test.resolve()
        rejected = 0
        with quiet(os.getpid()):
            for i in range(self.parts):
                part = {}
                for name, values in table.items():
                    own, declared = values[ends[i] : ends[i + 1]], self.declared[name]
                    # memory of its own, whose place does not depend on other parts
                    part[name] = (
                        labels(own.astype(np.int64), declared)
                        if isinstance(declared, Categories)
                        else aligned_copy(own)
                    )
                with seeded(int(seeds[i])):
                    rejected += self._rejects(test, part)
        return float(rejected)

    def _rejects(self, test: Callable[..., Any], part: Any) -> bool:
        try:
            p = float(test(part, **deep_copy(dict(self.settings))))
        except FAILURES:
            return False
        return 0.0 <= p <= self.level


def labels(codes: NDArray[np.int64], declared: Categories) -> NDArray[Any]:
    """Return the categories at positions, as an array."""
    return np.asarray(np.array(declared.values)[codes])


def any_test(
    table: Table,
    columns: Sequence[str],
    test: Callable[..., float],
    *,
    parts: int,
    level: float = 0.2,
    mechanism: Mechanism | None = None,
    **settings: Any,
) -> Released[dict[str, float]]:
    """Make any public test private: run it in parts of the rows, and count its rejections.

    Units are split at random into ``parts``, of one size where the number of rows is fixed
    (``replace_one``, each row a unit, no filter before); in each the test is run, and rejects where
    its p-value is at most ``level``. One unit changes one part, so that the number of rejections
    moves by at most 1, whatever the test is. Under the hypothesis it is at most a
    ``Binomial(parts, level)`` number, and the p-value is that of the most powerful private test of
    a proportion above ``level`` (`proportion`): exact where the public test is.

    Parameters
    ----------
    table
        A data set, or part of it; rows that lack a value are left out. A unit's rows are all in one
        part: whether they are independent is for the public test to say.
    columns
        What the test reads: columns with bounds (to which values are clipped) or categories.
    test
        A function of a mapping from column names to arrays, that returns a p-value. It must have no
        state between calls; NumPy's and ``random``'s shared generators are seeded for each. Where
        it fails in a part, it does not reject there.
    parts
        How many. Few large parts make the test strong in each, many make the noise of the count
        small beside their number: some 8 at epsilon 1, of ten rows or more; at epsilon .1 as many
        as the test allows.
    level
        Of the test in each part, usually larger than that of the whole: .1 to .3.
    mechanism
        By default `Tulap`.
    settings
        Further keyword arguments of the test: numbers, str, lists and mappings of these.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, the released number of rejections, ``"p_value"``, and
        ``"estimate"``, their share: the power that the public test has in as many rows as a part
        has. Its interval is of that power in the population, the mean over the sizes of the parts.

    Notes
    -----
    What the public test's hypothesis is about has no interval here: nothing is released of it but
    whether parts reject. The interval of the power is that of a binomial count with noise,
    inverted; parts of unequal sizes have powers of their own, and the number of rejections then
    has lighter tails than the binomial one with their mean (Hoeffding 1956, Theorem 5).

    References
    ----------
    Kazan, Shi, Groce and Bray 2023, Algorithm 1 and Theorem 3.1.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> from scipy import stats
    >>> def normal(rows):
    ...     return stats.shapiro(rows["x"]).pvalue
    >>> people = dp.dataset("people", columns={"x": (0, 10)})
    >>> test = dp.statistics.any_test(people, ["x"], normal, parts=20)
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
    >>> skewed = np.random.default_rng(1).exponential(1, 2_000)
    >>> plan.simulate(seed=1, people={"x": skewed})["test"]["p_value"] < 1e-6
    True
    """
    nulls.check_table("a test of tests", table)
    if not callable(test):
        raise DeclarationError(
            f"a test of tests needs a function that returns a p-value, got {type(test).__name__}"
        )
    names = strings(columns)
    change = change_at(table)
    balanced = change.replaced and change.fixed
    query = Rejections(
        names,
        Function.of(test),
        parts,
        level,
        declarations(table.domain, names),
        settings,
        balanced,
    )
    noise = nulls.known_noise("a test of tests", mechanism, Tulap())
    rows = table if balanced else complete_rows(table, names)
    counted: PrivateQuery[float] = PrivateQuery(query, (rows,))
    count = counted.release(noise, name="rejections")
    kind, scale = nulls.noise_of(count, noise)
    result = post(rejections_test, count, scale, parts=query.parts, share=query.level, kind=kind)
    return group("any_test", result, table)


def _rejections_ends(
    inputs: list[Any], level: float, sampling: bool, *, parts: int, share: float, kind: str
) -> dict[str, Any]:
    constants: dict[str, Any] = {"null": share, "alternative": "two-sided", "kind": kind}
    return binomial_ends(inputs, level, sampling, size=parts, **constants)


@released_ends(_rejections_ends)
def rejections_test(
    count: float, scale: float, *, parts: int, share: float, kind: str
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `any_test`."""
    greater, _ = count_tails(float(count), parts, share, kind, float(scale))
    return {
        "statistic": float(count),
        "p_value": nulls.at_least(greater),
        "estimate": min(max(float(count) / parts, 0.0), 1.0),
    }
