"""Handles of tables, columns and vectors: the methods by which users write queries.

Each method returns a new handle; nothing is computed until a plan runs. The operations that
the methods add to the graph are defined in the other modules of `adaptive_dp.queries`.
"""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data import Rows
from adaptive_dp.data.cells import DATES, day
from adaptive_dp.graph.errors import DeclarationError, LeakError
from adaptive_dp.graph.handles import (
    Average,
    Handle,
    Private,
    PrivateQuery,
    Released,
    change_at,
    lineage,
    post,
    private_path,
    unaliased,
)
from adaptive_dp.graph.mechanism import LocalSensitivity, Mechanism
from adaptive_dp.graph.operation import Neighbors, Query
from adaptive_dp.graph.outputs import check_level
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import as_tuple, html_text, number, visible
from adaptive_dp.queries.check import Check, check_data
from adaptive_dp.queries.counts import Count, CountDistinct, Counts, Histogram, of_constant
from adaptive_dp.queries.domains import (
    Categories,
    Clip,
    ColumnOf,
    Dates,
    Interval,
    Strings,
    keeps_row_count,
)
from adaptive_dp.queries.examples import ExamplesOf, declarations
from adaptive_dp.queries.expressions import (
    Computed,
    Condition,
    Expression,
    Rescaled,
    Where,
    WithColumns,
    as_condition,
    holds_strings,
    is_filled,
    refuse_other_data,
    refuse_strings,
    text_of,
)
from adaptive_dp.queries.groups import Groups, by_presence, group_by, reshaped, with_margins
from adaptive_dp.queries.joins import join_with
from adaptive_dp.queries.labeled import LabeledRows, open_handle
from adaptive_dp.queries.moments import (
    Gram,
    SmallestEigenvalue,
    correlations,
    covariances,
    first_entry,
    root,
)
from adaptive_dp.queries.order_statistics import (
    MAGNITUDES,
    BruteForce,
    BruteForceChoice,
    CountsByCell,
    Instance,
    Mode,
    Quantile,
    QuantileEnd,
    QuantileLevel,
    TrimmedMean,
    Variance,
    cumulative_shares,
    numbers_at,
    occupied_range,
    search_levels,
    with_ends,
)
from adaptive_dp.queries.source import BoundContributions, Source
from adaptive_dp.queries.sums import (
    Mean,
    Sum,
    VectorSum,
    bounded,
    present_ratio,
    ratio,
    scale_noise,
)
from adaptive_dp.queries.transforms import Filter, Part, Partition, Sample
from adaptive_dp.queries.vectors import NormClip, Times, VectorsOf

Array = NDArray[np.float64]
S = TypeVar("S", covariant=True)
P = ParamSpec("P")


_HINTS = {
    "release": "; release a query of it, such as .count(), or ['age'].sum() of a column",
    "mean": "; ask it of a column, such as people['age'].average()",
    "sum": "; ask it of a column, such as people['age'].sum()",
    "average": "; ask it of a column, such as people['age'].average()",
    "histogram": "; ask it of a column, such as people['age'].histogram(edges=[...])",
    "count": "; ask it of the table: people.count()",
    "filter": "; ask it of the table: people.filter(people['age'] >= 18)",
}
"""Hints for methods that another kind of handle has, by name."""


class Solver(Protocol[S]):
    """A learner: it builds a subgraph of queries and releases over a table."""

    def build(self, table: Table, epsilon: float | None, delta: float | None) -> Released[S]:
        """Return the learner's released result."""
        ...


def from_schema(
    schema: Any,
    *,
    name: str | None = None,
    bounds: Mapping[str, Any] | None = None,
    categories: Mapping[str, Any] | None = None,
    neighbors: Neighbors | None = None,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    size: int | None = None,
) -> Table:
    """Declare a private table by a schema that the data's owner wrote.

    Nothing is computed from the data: bounds and categories that depend on rows would reveal
    something about them.

    Parameters
    ----------
    schema
        The path of a JSON or TOML file, or a mapping of the same form: ``columns`` are names with
        ``{"bounds": [low, high]}``, ``{"categories": [...]}`` or null (in TOML ``{}``) each, or a
        list of names; ``bounds`` and ``categories`` declare columns by name or pattern; ``name``,
        ``neighbors``, ``unit``, ``rows_per_unit`` and ``size`` are as in `dataset`. It may also be
        names and types alone: the path of a Parquet file without rows, or a PyArrow schema, whose
        columns of numbers and of strings are declared.
    name
        The data set's name, where the schema has none; by default a file's name without its
        extension.
    bounds, categories
        Further declarations by column, or by a pattern such as ``"x_*"``. A name takes
        precedence over a pattern, and no pattern matches the column of the unit.
    neighbors, unit, rows_per_unit, size
        As in `dataset`, where the schema does not declare them.

    Raises
    ------
    DeclarationError
        If the schema is not of this form; the message says where, and what is allowed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> schema = {"unit": "id", "rows_per_unit": 2, "columns": {"town": {"categories": ["A", "B"]}}}
    >>> dp.dataset.from_schema(schema, name="people")["town"].histogram()
    <private histogram of 2 bins>
    >>> names = [f"x_{i}" for i in range(1000)]
    >>> wide = dp.dataset.from_schema({"columns": names}, name="wide", bounds={"x_*": (0, 1)})
    >>> wide["x_999"].sum()
    <private sum in [0, 1]>
    """
    from adaptive_dp.queries.schema import read_schema  # imported here, since few plans need it

    arguments = {
        "name": name,
        "neighbors": neighbors,
        "unit": unit,
        "rows_per_unit": rows_per_unit,
        "size": size,
    }
    arguments = {key: value for key, value in arguments.items() if value is not None}
    parsed = read_schema(schema, bounds, categories, unit)
    repeated = [key for key in arguments if key in parsed.options]
    if repeated:
        raise DeclarationError(
            f"{parsed.place} says {repeated[0]!r} already, {parsed.options[repeated[0]]!r}; "
            f"leave out {repeated[0]}={arguments[repeated[0]]!r}, or take it out of the schema"
        )
    options: dict[str, Any] = {**parsed.options, **arguments}
    if "name" not in options and isinstance(schema, str | os.PathLike):
        options["name"] = Path(schema).stem
    if "name" not in options:
        raise DeclarationError(f"{parsed.place} has no name; say name='people', for example")
    return dataset(columns=parsed.columns, **options)


class _Dataset(Protocol[P]):
    """`dataset`, and `from_schema` as an attribute of it."""

    from_schema: Callable[..., Table]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Table: ...


def _with_schema(function: Callable[P, Table]) -> _Dataset[P]:
    result = cast("_Dataset[P]", function)
    result.from_schema = from_schema
    return result


@_with_schema
def dataset(
    name: str,
    *,
    columns: Mapping[str, Any],
    neighbors: Neighbors = "add_remove",
    unit: str | None = None,
    rows_per_unit: int = 1,
    size: int | None = None,
) -> Table:
    """Declare a private table.

    Parameters
    ----------
    name
        An identifier; ``plan.run(name=frame)`` binds the data.
    columns
        For each column that the plan reads: a pair of bounds ``(low, high)``, of numbers or of
        dates (which are days since 1970-01-01 in sums), a list of categories, ``str`` for strings
        that nobody lists, ``bool`` for false and true (0 and 1), or None for nothing. Choose them
        without looking at the data.
    neighbors
        ``"add_remove"``: one unit is present or absent. ``"replace_one"``: one unit's rows
        are exchanged for others. ``"zero_out"``: one unit's contributions become zero.
    unit
        The column that identifies the protected unit, such as a person; None if each row is one.
    rows_per_unit
        The largest number of rows of one unit; a node of the plan drops the others.
    size
        The public number of units; not allowed under ``"add_remove"``.

    Examples
    --------
    >>> people = dataset("people", columns={"age": (0, 100)}, unit="id", rows_per_unit=3)
    >>> people["age"].sum()
    <private sum in [0, 100]>
    """
    table = Table(Source(name, columns, neighbors, unit, size))
    if unit is None:
        if rows_per_unit != 1:
            raise DeclarationError(
                f"rows_per_unit={rows_per_unit!r} needs unit=, the column that identifies a person"
            )
        return table
    # with a unit the bound is a node of its own, which certificates show
    return Table(BoundContributions(rows_per_unit, unit), (table,))


@frozen(eq=False, repr=False)
class Table(Private[Rows]):
    """A handle of a private table: rows to filter, partition, sample, count or learn from.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
    >>> adults = people.filter(people["age"] >= 18)
    >>> noise = dp.Laplace(scale=2)
    >>> towns = {town: part.count().release(noise) for town, part in adults.partition("town")}
    >>> plan = dp.Pipeline(adults=adults.count().release(noise), towns=towns)
    >>> plan.certify()  # a person is in one town
    <certificate epsilon=1 delta=0 by basic>
    """

    def _repr_html_(self) -> str:
        """Return what is declared of the columns: nothing of the data."""
        shown = [f"{name}: {declared or 'not declared'}" for name, declared in self._declared(40)]
        more = len(self.domain.columns) - len(shown)
        return html_text("\n".join([repr(self), *shown, *([f"and {more:,} more"] if more else [])]))

    def _declared(self, most: int) -> list[tuple[str, Any]]:
        return [(name, self.domain.find(name)) for name in list(self.domain.columns)[:most]]

    def __getitem__(self, name: str) -> Column[float]:
        """Return a column."""
        if not isinstance(name, str):
            raise DeclarationError(
                f"a table is indexed by a column's name, got {name!r}; several are .vectors([...])"
            )
        return Column(ColumnOf(name), (self,))

    if not TYPE_CHECKING:  # type checkers know that there is no such attribute

        def __getattr__(self, name: str) -> Any:
            # names with an underscore are Python's own probes (copy, pickle): no hint for them
            columns = [] if name.startswith("_") else list(self.domain.columns)
            hint = f"; columns are read by [{name!r}]" if name in columns else _HINTS.get(name, "")
            raise AttributeError(f"a table has no attribute {name!r}{hint}")

    def filter(self, condition: Condition | Column[Any]) -> Table:
        """Return the rows that meet a condition such as ``people["age"] >= 18``.

        A column that is declared bool is one: the rows where it is true.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B", "C"]})
        >>> people.filter(people["age"] >= 18).filter(people["town"].isin(["A", "B"])).count()
        <private count>
        >>> middle = people["age"].median().release(dp.QuantileExponential(scale=2))
        >>> below = people.filter(people["age"] <= middle)  # of a released number
        """
        condition = self._checked_condition("filter", condition)
        plain = condition.plain
        operation = Where(condition.expression) if plain is None else Filter(*plain)
        # released operands are further inputs of the node
        return Table(operation, (self, *condition.handles))

    def with_columns(self, **columns: Column[Any] | Condition) -> Table:
        """Return the table with computed columns; their bounds are derived.

        Parameters
        ----------
        columns
            By name, a number computed of this table's columns, or a condition, which becomes a
            column of false and true. An old name is replaced.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"weight": (30, 200), "height": (1.0, 2.2)})
        >>> people = people.with_columns(
        ...     bmi=people["weight"] / people["height"] ** 2, tall=people["height"] > 1.8
        ... )
        >>> people
        <private bmi = weight / height ** 2, tall = height > 1.8 in [6.19835, 200]>
        >>> people.group_by("tall").average("bmi")
        <released ratios>
        """
        expressions = []
        for name, each in columns.items():
            if not isinstance(each, Column | Condition):
                raise DeclarationError(
                    f"the column {name!r} must be computed of the table's columns, such as "
                    f"people['age'] / 10, got {type(each).__name__}"
                )
            if isinstance(each, Condition) and each.handles:
                raise DeclarationError(
                    f"the column {name!r} compares with a released value; those are for filters"
                )
            own = each.table if isinstance(each, Condition) else each._table
            refuse_other_data(self, own)
            expressions.append(each.expression if isinstance(each, Condition) else each._made())
        return Table(WithColumns(tuple(columns), tuple(expressions)), (self,))

    def rescale(self, names: Sequence[str], ranges: Released[Any]) -> Table:
        """Return the table with columns mapped from released ranges onto [-1, 1], and clipped.

        So columns without declared bounds get some: `Column.bounds` releases a range.

        Parameters
        ----------
        names
            Columns of numbers.
        ranges
            A released array of shape (k, 2): the lower and upper end of each column.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"income": None})
        >>> income = people["income"].bounds(dp.Laplace(scale=4))
        >>> people.rescale(["income"], income)["income"].sum()
        <private sum in [-1, 1]>
        """
        return Table(Rescaled(tuple(names)), (self, open_handle("rescale: ranges", ranges)))

    def join(self, public: Any, on: str) -> Table:
        """Return the table with the columns of a public one, looked up by a column of both.

        Rows without a match have missing values. The public table is part of the plan, and of its
        document; its own bounds and categories are those of the new columns.

        Parameters
        ----------
        public
            A mapping of column names to lists, or a frame, with one row for each key.
        on
            The column of keys.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B", "C"], "age": (0, 100)})
        >>> towns = {"town": ["A", "B"], "region": ["north", "south"], "size": [12_000, 800]}
        >>> people = people.join(towns, on="town")
        >>> people.group_by("region").count()
        <private count by group>
        >>> people["size"].sum()
        <private sum in [800, 12000]>
        """
        return Table(join_with(public, on), (self,))

    def fill(self, **values: Any) -> Table:
        """Return the table in which missing values of columns count as the given ones.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["Oslo", "Rome"]})
        >>> people.fill(age=40)
        <private age = fill(age, 40) in [0, 100]>
        >>> people.fill(town="unknown").group_by("town").count()
        <private count by group>
        """
        return self.with_columns(**{name: self[name].fill(v) for name, v in values.items()})

    def partition(
        self,
        by: str,
        keys: Sequence[Any] | None = None,
        *,
        edges: Sequence[float] | None = None,
        whole_units: bool = False,
    ) -> Parts:
        """Return disjoint parts: pairs of a key and a table.

        Parameters
        ----------
        by
            A column.
        keys
            The categories to partition by; by default those that the column declares. Rows with
            another value lie in no part.
        edges
            For a numeric column, the edges of the bins, in place of keys.
        whole_units
            Keep each unit in one part: the first, in the order of the keys, that any of its rows is
            in. Its rows in other parts are dropped. Without it a unit with several rows may lie in
            several parts, and accountants charge the worst way to split its rows. For counts and
            sums that costs as much as all rows in one part, so that nothing is saved here and rows
            are lost. It saves where several rows of a unit cost less than proportionally more than
            one: means, quantiles, learners, and whatever each part's rows are fitted to.

        Examples
        --------
        >>> people = dataset("people", columns={"region": ["A", "B"]})
        >>> [key for key, part in people.partition("region")]
        ['A', 'B']
        """
        _refuse_bin_count(edges)
        declared = self.domain.find(by)
        # the declared categories are public, so they may name the parts
        if keys is None and edges is None and isinstance(declared, Categories):
            keys = declared.values
        node: Private[Any] = Private(Partition(by, keys, edges, whole_units), (self,))
        return Parts(node)

    def group_by(
        self,
        *by: str,
        keys: Mapping[str, Sequence[Any]] | Sequence[Any] | None = None,
        edges: Mapping[str, Sequence[float]] | Sequence[float] | None = None,
        max_groups: int | None = None,
        max_rows: int | None = None,
    ) -> Groups:
        """Return the rows by group: each query is one vector over all combinations of keys.

        For the same query of every part of a `partition`: one release with one draw of noise, and
        one term for accountants, for up to 2^24 groups.

        Parameters
        ----------
        by
            Columns.
        keys
            The categories to group by: needed for each column that does not declare them, but for
            a single one of str (see `Groups.count`), and a subset of the declared ones otherwise.
            Rows with another value are in no group. For a single column it may be a list.
        edges
            For numeric columns, the edges of the bins, in place of keys.
        max_groups, max_rows
            How many groups a unit may have rows in, and how many rows in each; the first in the
            data's order are kept. The noise is for so many: less than for all of a unit's rows in
            one group. By default the table's ``rows_per_unit``.

        Examples
        --------
        >>> people = dataset("people", columns={"region": ["A", "B"], "age": (0, 100)})
        >>> groups = people.group_by("region", "age", edges={"age": [0, 18, 65, 100]})
        >>> len(groups), groups.keys[-1]
        (6, ('B', '[65, 100]'))
        >>> groups.count()
        <private count by group>
        """
        return group_by(self, by, keys, edges, max_groups, max_rows)

    def crosstab(
        self,
        first: str,
        second: str,
        mechanism: Mechanism | None = None,
        *,
        keys: Mapping[str, Sequence[Any]] | None = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        margins: bool = False,
    ) -> Released[Array]:
        """Release the number of rows by two columns: a matrix of the first's keys by the second's.

        Parameters
        ----------
        first, second
            Columns.
        mechanism
            Releases the counts, such as ``dp.Gaussian()``; None for the default.
        keys, edges
            As of `group_by`.
        margins
            Whether the last column and the last row are the sums: rows, columns and the total are
            then released too, and all are made consistent by least squares. Four releases, whose
            sums are far less noisy than sums of noisy cells.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "year": [2020, 2021, 2022]})
        >>> table = people.crosstab("town", "year", dp.DiscreteLaplace(scale=0.1), margins=True)
        >>> data = {"town": ["A", "B", "B"] * 20, "year": [2020, 2022, 2022] * 20}
        >>> dp.Pipeline(table=table).simulate(seed=1, people=data)["table"].round()
        array([[20.,  0.,  0., 20.],
               [ 0.,  0., 40., 40.],
               [20.,  0., 40., 60.]])
        """
        groups = group_by(self, (first, second), keys, edges)
        shape = [len(axis) for axis in groups.keys.axes]
        cells = groups.count().release(mechanism)
        if not margins:
            return post(reshaped, cells, shape=shape)
        sums = [groups.margin(*names).release(mechanism) for names in ((first,), (second,), ())]
        return post(with_margins, cells, *sums, shape=shape)

    def sample(self, rate: float) -> Table:
        """Return a Poisson sample: each unit enters with probability ``rate``.

        Where neighbours exchange a unit (``replace_one``), the noise of what is released from it
        must be `Gaussian`, and it is no sample of a sample; a plan refuses others.

        References
        ----------
        Those of `accountants.Sampled` and `accountants.ReplacedSample`, which every certificate
        repeats.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> everyone = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1)))
        >>> tenth = dp.Pipeline(n=people.sample(0.1).count().release(dp.Laplace(scale=1)))
        >>> everyone.certify()
        <certificate epsilon=1 delta=0 by basic>
        >>> tenth.certify()
        <certificate epsilon=0.158566 delta=0 by basic>
        """
        return Table(Sample(rate), (self,))

    def count(self) -> PrivateQuery[float]:
        """Return the number of rows.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.DiscreteLaplace(scale=2)))
        >>> plan.simulate(seed=1, people={"id": range(1_000)})["n"]
        1002.0
        """
        return PrivateQuery(Count(), (self,))

    def count_distinct(self) -> PrivateQuery[float]:
        """Return the number of units, such as persons, that have a row here.

        One unit moves it by at most 1, however many rows it may have.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> visits = dp.dataset("visits", columns={"age": (0, 100)}, unit="id", rows_per_unit=5)
        >>> old = visits.filter(visits["age"] >= 65)
        >>> plan = dp.Pipeline(n=old.count_distinct().release(dp.DiscreteLaplace(scale=1)))
        >>> plan.certify()
        <certificate epsilon=1 delta=0 by basic>
        >>> people = {"id": range(300), "age": [70, 80, 30] * 100}
        >>> plan.simulate(seed=1, visits=people)["n"]
        200.0
        """
        return PrivateQuery(CountDistinct(), (self,))

    def counts(self, conditions: Sequence[Condition | Column[Any]]) -> PrivateQuery[Array]:
        """Return the numbers of rows that meet each condition, such as ``people["age"] >= 18``.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> ages = people.counts([people["age"] >= 18, people["age"] >= 65])
        >>> ages
        <private counts of 2 conditions>
        >>> plan = dp.Pipeline(ages=ages.release(dp.Laplace(scale=4)))
        >>> plan.certify()  # one person may be in both
        <certificate epsilon=0.5 delta=0 by basic>
        """
        if not isinstance(conditions, list | tuple):
            raise DeclarationError(
                f"counts needs a list of conditions, got {type(conditions).__name__}; for one use "
                "table.filter(condition).count()"
            )
        checked = [self._checked_condition("counts", condition) for condition in conditions]
        return PrivateQuery(Counts([of_constant(c) for c in checked]), (self,))

    def _checked_condition(self, method: str, condition: Condition | Column[Any]) -> Condition:
        """Return a condition; refuse anything but one on a column of this table's data set."""
        condition = as_condition(condition)
        if not isinstance(condition, Condition):
            raise DeclarationError(
                f"{method} needs a condition such as table['age'] >= 18, got "
                f"{type(condition).__name__}"
            )
        refuse_other_data(self, condition.table, repr(text_of(condition.expression)))
        return condition

    def check(self, data: Any) -> Check:
        """Return what the keeper of the data should correct in them: private, never released.

        Missing values, decimal commas, cells that are no numbers, numbers out of bounds, values
        that match no category, letters of another encoding, units with too many rows. It is
        computed without noise, spends no budget and stands on no certificate: print it where nobody
        else reads, and change the data, not the declaration, by what it says.

        Parameters
        ----------
        data
            As for a run; they are read into memory.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["Oslo", "Rome"]})
        >>> data = {"age": [40, "41,5", 300, None], "town": ["Oslo", "oslo ", "Rom", ""]}
        >>> print(people.check(data))
        PRIVATE: for the keeper of the data alone, computed without any noise.
        people: 4 rows
          age: 1 missing (25.0%)
          age: 1 cells have a decimal comma, and so count as missing (25.0%): '41,5'
          age: 1 cells are above the bounds [0, 100], and count as the bound (25.0%): 300
          town: 1 missing (25.0%)
          town: 1 cells differ from a category in case or spaces alone (25.0%): 'oslo '
          town: 1 cells are none of the categories (25.0%): 'Rom'
          town: no row has 'Rome'
        """
        source, *chain = (unaliased(each).operation for each in lineage(self))
        if not isinstance(source, Source):
            raise DeclarationError("only a table that dp.dataset declares can be checked")
        bounds = [each.rows for each in chain if isinstance(each, BoundContributions)]
        return check_data(source, min(bounds, default=None), data)

    def describe(
        self, mechanism: Mechanism | None = None, columns: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return a plan's outputs for a first look at a table: the count, averages and histograms.

        A shorthand for `count`, `Column.average` with that count, and `Column.histogram`. Each
        column is one more release. Where the noise is left to calibration each release costs the
        same; a fixed noise is that of the count, and is scaled by each query's sensitivity for the
        others.

        Parameters
        ----------
        mechanism
            Releases each query, for example ``dp.Gaussian()``; None for each one's default.
        columns
            Which columns; None takes all that have bounds (an average) or categories (a histogram).

        Returns
        -------
        dict
            ``"count"``, ``"average"`` and ``"histogram"``, the last two by column; empty
            ones are left out, and so is the count where the number of rows is public.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
        >>> plan = dp.Pipeline(**people.describe()).calibrate(epsilon=1.0)
        >>> [".".join(path) for path, _ in plan.outputs]
        ['average.age', 'count', 'histogram.town']
        """
        domain = self.domain
        if columns is not None and not (
            isinstance(columns, list | tuple) and all(isinstance(name, str) for name in columns)
        ):
            raise DeclarationError(
                f"describe reads a list of columns, such as ['age'], got {columns!r}"
            )
        names = domain.columns if columns is None else columns
        declared = {name: domain.find(name) for name in names}
        for name, declaration in declared.items():
            if columns is not None and not isinstance(declaration, Interval | Categories):
                raise DeclarationError(f"the column {name!r} has neither bounds nor categories")
        size = domain.size
        count = self.count().release(mechanism) if size is None else None

        def mean_of(column: Column[float], bounds: Interval) -> Released[float]:
            if size is None or column.domain.missing:
                return column.average(mechanism, count=count)
            # where a row moves the count by 1, it moves the mean by the bounds' width over n
            noise = scale_noise(mechanism, (bounds.upper - bounds.lower) / size or 1)
            return column.mean().release(noise)

        averages = {
            name: mean_of(self[name], declaration)
            for name, declaration in declared.items()
            if isinstance(declaration, Interval)
        }
        histograms = {
            name: self[name].histogram().release(mechanism)
            for name, declaration in declared.items()
            if isinstance(declaration, Categories)
        }
        releases = {"count": count, "average": averages, "histogram": histograms}
        return {
            name: value for name, value in releases.items() if value is not None and value != {}
        }

    def vectors(
        self,
        names: Sequence[str],
        *,
        scale: bool = False,
        intercept: bool = False,
        zero: bool = False,
    ) -> Vectors:
        """Return bounded columns as one vector for each row that has a value in all of them.

        Parameters
        ----------
        names
            Columns with bounds.
        scale
            Map each column from its declared bounds onto [-1, 1].
        intercept
            Whether the constant 1 comes before the columns.
        zero
            With ``scale``: whether 0 stays 0 where it is one of the bounds: [0, 5] is mapped onto
            [0, 1].

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "income": (0, 200_000)})
        >>> people.vectors(["age", "income"], scale=True, intercept=True)
        <private (age, income) scaled to [-1, 1], with intercept>
        """
        # the node stores the bounds that it scales by; `VectorsOf.domain` checks them again
        bounds = tuple(self.domain.interval(name) for name in names)
        return Vectors(
            VectorsOf(names, scale, intercept, bounds, zero), (complete_rows(self, names),)
        )

    def covariance(
        self, names: Sequence[str], mechanism: Mechanism | None = None
    ) -> Released[Array]:
        """Release the covariance matrix of bounded columns, with n in the denominator.

        One release of the second moments of the columns, scaled to [-1, 1], and a 1: it holds the
        count, the sums and the sums of products. The result is symmetric and positive
        semi-definite, whatever the noise.

        Parameters
        ----------
        names
            p columns with bounds; the matrix has shape (p, p), in their order.
        mechanism
            Releases the moments, such as ``dp.Gaussian()``, which has less noise than the default
            where there are several columns, and needs a delta.

        See Also
        --------
        correlation, Column.variance, Column.std

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "visits": (0, 10)})
        >>> moments = people.covariance(["age", "visits"], dp.Gaussian())
        >>> plan = dp.Pipeline(moments=moments).calibrate(epsilon=1.0, delta=1e-6)
        >>> ages = np.linspace(20, 80, 10_001)
        >>> plan.simulate(seed=1, people={"age": ages, "visits": ages / 10})["moments"].round()
        array([[297.,  30.],
               [ 30.,   3.]])
        """
        if isinstance(names, str):
            raise DeclarationError(
                f"covariance needs a list of columns, got {names!r}; use ['{names}']"
            )
        vectors = self.vectors(names, scale=True, intercept=True)
        bounds = [self.domain.interval(name) for name in names]
        half = [b.upper / 2 - b.lower / 2 for b in bounds]
        return post(covariances, vectors.gram().release(mechanism), half=half)

    def correlation(
        self, names: Sequence[str], mechanism: Mechanism | None = None
    ) -> Released[Array]:
        """Release the correlation matrix of bounded columns, by their `covariance`.

        Each entry is between -1 and 1; 0 beside a column whose released variance is 0.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "visits": (0, 10)})
        >>> matrix = people.correlation(["age", "visits"], dp.Gaussian())
        >>> plan = dp.Pipeline(matrix=matrix).calibrate(epsilon=1.0, delta=1e-6)
        >>> ages = np.linspace(20, 80, 10_001)
        >>> plan.simulate(seed=1, people={"age": ages, "visits": 8 - ages / 10})["matrix"].round()
        array([[ 1., -1.],
               [-1.,  1.]])
        """
        return post(correlations, self.covariance(names, mechanism))

    def examples(
        self,
        features: Sequence[str],
        target: str,
        *,
        labels: str | None = None,
        norm: float | None = None,
        intercept: bool = True,
        weight: str | None = None,
        class_weights: Sequence[float] | Released[Any] | None = None,
    ) -> LabeledRows:
        """Return features and a label for each row that has all of them, to learn from.

        Parameters
        ----------
        features
            Columns with bounds (mapped onto [-1, 1]) or categories (each a feature of 0 and 1).
        target
            The column of labels, with bounds or categories.
        labels
            ``"sign"`` (the default of two categories), ``"class"`` (of more), ``"number"`` (of
            bounds, mapped onto [-1, 1]) or ``"count"`` (of bounds, as it is).
        norm
            The l2 norm to which longer rows are scaled down; None leaves rows as they are.
        intercept
            Whether the constant 1 comes before the columns.
        weight
            A column with bounds from 0 on: a row's loss is multiplied by it over its upper bound.
        class_weights
            Numbers in [0, 1], one for each category of the target, or a released handle of them.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
        >>> people.examples(["age"], "ill", norm=1.0)
        <private ill by 1 columns norm 1, with intercept>
        """
        # copied into the node: its map from rows to examples depends on them alone
        read = (*features, target, *([] if weight is None else [weight]))
        columns = declarations(self.domain, read)
        if labels is None:
            declared = columns[target]
            # 0 for a column with bounds, whose labels are numbers
            classes = len(declared.values) if isinstance(declared, Categories) else 0
            labels = {0: "number", 2: "sign"}.get(classes, "class")
        is_released = isinstance(class_weights, Handle)
        of_classes = None if is_released else class_weights
        operation = ExamplesOf(
            features, target, labels, norm, intercept, columns, weight, of_classes
        )
        released = (open_handle("class_weights", class_weights),) if is_released else ()
        return LabeledRows(operation, (complete_rows(self, read), *released))

    def solve(
        self, solver: Solver[S], *, epsilon: float | None = None, delta: float | None = None
    ) -> Released[S]:
        """Return a learner's result, a subgraph with a budget of its own.

        Parameters
        ----------
        solver
            For example ``dp.AdaSSP(features=[...], target="income")``.
        epsilon, delta
            The learner's budget; None leaves its noise to the plan's calibration.

        Raises
        ------
        DeclarationError
            If the budget is divided by closed forms, and this is a Poisson sample of units that are
            exchanged, where they do not hold: an exchange may cost twice what they say.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
        >>> days = people.solve(dp.SSP(["age"], "days"), epsilon=0.5, delta=1e-6)
        >>> count = people.count().release(dp.Laplace(scale=2))
        >>> dp.Pipeline(days=days, count=count).certify(delta=1e-6)
        <certificate epsilon=0.980502 delta=1e-06 by distribution>
        """
        budget = number(epsilon), number(delta)
        for what, given in zip(("epsilon", "delta"), budget, strict=True):
            if isinstance(given, bool) or not isinstance(given, int | float | None):
                raise DeclarationError(f"{what} must be a number or None, got {given!r}")
        closed = epsilon is not None and not getattr(solver, "calibrated", False)
        if closed and self.domain.neighbors == "replace_one" and not change_at(self).replaced:
            raise DeclarationError(
                f"{type(solver).__name__} divides epsilon by closed forms, which do not say what a "
                "Poisson sample of units that are exchanged (replace_one) costs; leave out epsilon "
                "and delta, and calibrate the plan"
            )
        return solver.build(self, *budget)


KEYS_SHOWN = 100
"""The largest number of keys of a partition that a message shows."""


class Parts:
    """The parts of a partition, by key: iterate for (key, table) pairs, or index by key."""

    def __init__(self, node: Private[Any]) -> None:
        self._node = node
        # a partition may have a million parts: a part's table is made when it is first asked for
        self._positions = {key: i for i, key in enumerate(node.domain.keys)}
        self._tables: dict[int, Table] = {}

    def __iter__(self) -> Iterator[tuple[Any, Table]]:
        return ((key, self._table(i)) for key, i in self._positions.items())

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, key: Any) -> Table:
        if key not in self._positions:
            raise DeclarationError(f"the partition has no part {key!r}; it has {self._keys()}")
        return self._table(self._positions[key])

    def __repr__(self) -> str:
        return visible(f"<private parts {self._keys()}>")

    def _table(self, i: int) -> Table:
        """Return the handle of the i-th part, the same each time."""
        if i not in self._tables:
            self._tables[i] = Table(Part(i), (self._node,))
        return self._tables[i]

    def _keys(self) -> str:
        """Return the keys for messages: the first ones if there are many."""
        keys = list(self._positions)
        if len(keys) <= KEYS_SHOWN:
            return str(keys)
        shown = ", ".join(map(repr, keys[:KEYS_SHOWN]))
        return f"[{shown}, ... ({len(keys) - KEYS_SHOWN} more)]"


@frozen(eq=False, repr=False)
class Column(Private[Array], Generic[S]):
    """A handle of a private column: values to clip, sum, average, count or compare.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"income": (0, 200_000)})
    >>> income = people["income"].clip(0, 100_000)
    >>> income.sum()
    <private sum in [0, 100000]>
    >>> plan = dp.Pipeline(income=income.average()).calibrate(epsilon=1.0)
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    """

    if not TYPE_CHECKING:  # type checkers know that there is no such attribute

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a column has no attribute {name!r}{_HINTS.get(name, '')}")

    def clip(self, lower: float | datetime.date, upper: float | datetime.date) -> Column[S]:
        """Return the values clipped to [lower, upper].

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"income": (0, 200_000)})
        >>> people["income"].clip(0, 100_000).sum()  # half of the noise
        <private sum in [0, 100000]>
        """
        return Column(Clip(self._constant(lower), self._constant(upper)), (self,))

    def sum(self) -> PrivateQuery[float]:
        """Return the sum; the column needs bounds.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=200)))
        >>> plan.certify()
        <certificate epsilon=0.5 delta=0 by basic>
        >>> round(plan.simulate(seed=1, people={"age": np.full(10_000, 42.0)})["total"] / 10_000)
        42
        """
        return PrivateQuery(Sum(bounded(self.domain)), (self,))

    def mean(self) -> PrivateQuery[float]:
        """Return the mean; the column needs bounds, and a public size to be of use.

        Where the number of rows is private, `average` is far more accurate: one row may be
        half of them, so this mean moves by half the width of its bounds or more; a warning says so.
        Where it is public this mean divides by it, so missing values must be filled; `average`
        leaves them out.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> marks = dp.dataset("marks", columns={"m": (1, 6)}, neighbors="replace_one", size=25)
        >>> mean = marks["m"].fill(1).mean().release(dp.Laplace(scale=0.4))
        >>> dp.Pipeline(mean=mean).certify()
        <certificate epsilon=0.500001 delta=0 by basic>
        """
        if self.domain.size is None:
            bounded(self.domain)
            warnings.warn(
                f"the number of rows is private, and one row may be half of them: .mean() of "
                f"{self.domain.of!r} needs noise as large as its bounds; use .average(mechanism), "
                "or declare a public size in the data set",
                stacklevel=2,
            )
        return PrivateQuery(Mean(bounded(self.domain), self.domain.size), (self,))

    def average(
        self, mechanism: Mechanism | None = None, *, count: Released[float] | None = None
    ) -> Released[float]:
        """Return the mean as a released sum over a released count, within the bounds.

        Two releases of equal cost; one, if the count is released already, or public (a declared
        ``size``). Rows whose value is missing are left out; where none can be, and the size is
        public, `mean` needs less noise.

        Parameters
        ----------
        mechanism
            Releases the count, and with noise in proportion to the largest bound the sum; for
            example ``dp.Gaussian(sigma=20)``. None for the defaults of both; several such averages
            in a plan share one count, also with the count of the table as an output of its own.
        count
            A release of the number of all rows, which several averages may share; None releases the
            number of rows that have a value, by the mechanism. With it, how many values are missing
            is released together with the sum: a row adds to one of the two, so that costs nothing
            under ``add_remove`` and ``zero_out``.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(age=people["age"].average()).calibrate(epsilon=1.0)
        >>> sorted(plan.certify().shares)
        ['noisy_count', 'sum of age']
        >>> round(plan.simulate(seed=1, people={"age": np.full(10_000, 42.0)})["age"])
        42
        """
        bounds = bounded(self.domain)
        # the nearest table before the column: its rows are those that the sum adds
        table = next(h for h in reversed(lineage(self)) if isinstance(h, Table))
        size = table.domain.size
        if size is not None and (count is not None or not self.domain.missing):
            raise DeclarationError(
                "the number of rows is public here, so there is nothing to release of it; "
                + ("leave out count=..." if self.domain.missing else "use .mean()")
            )
        # one row moves the sum by up to the largest bound where it moves the count by one
        noise, name = scale_noise(mechanism, bounds.largest or 1.0), f"sum of {self.domain.of}"
        limits = {"lower": bounds.lower, "upper": bounds.upper}
        if size is None and (count is None or not self.domain.missing or bounds.largest == 0):
            present = table.filter(self.is_present()) if self.domain.missing else table
            counted = present.count().release(mechanism) if count is None else count
            mean = post(ratio, self.sum().release(noise, name=name), counted, **limits)
            if count is not None or mechanism is not None:
                return mean
            over = lambda count: self.average(count=count)  # noqa: E731
            return Average(mean.operation, mean.inputs, rows=table.count(), over=over)
        sums, missing = by_presence(table, None, self.domain.of, self._expression(), bounds)
        released = sums.release(noise, name=name)
        if count is None:
            # in bounds of 0 alone no value is told from a missing one, and need not be
            return post(present_ratio, released, count=size, **limits, missing=missing or 1.0)
        return post(present_ratio, released, count, **limits, missing=missing)

    def histogram(
        self, edges: Sequence[float] | None = None, *, keys: Sequence[Any] | None = None
    ) -> PrivateQuery[Array]:
        """Return the counts by declared category, or between ``edges``.

        Parameters
        ----------
        edges
            Ascending numbers, n + 1 of them for n bins.
        keys
            Which values to count, in place of the declared categories.

        Examples
        --------
        >>> people = dataset("people", columns={"age": (0, 100)})
        >>> people["age"].histogram([0, 18, 65, 100])
        <private histogram of 3 bins>
        """
        chosen = self._keys(edges) if keys is None else as_tuple(keys)
        return PrivateQuery(Histogram(chosen, edges), (self,))

    def bounds(
        self, mechanism: Mechanism | None = None, *, failure: float = 0.001
    ) -> Released[Array]:
        """Release bounds of a column for which none are declared: [low, high], powers of two.

        One histogram of magnitudes, from 2^-16 to 2^50 on either side of 0: the outer ends of the
        first and of the last bin whose noisy count is larger than noise alone. Some rows may lie
        outside, and are clipped. For a session, where released bounds are numbers for the next
        step; in a plan no sensitivity may depend on released values.

        Parameters
        ----------
        mechanism
            Releases the histogram, such as ``dp.Laplace()``; None for the default. A small share of
            the budget is enough.
        failure
            About the probability that noise alone widens the bounds.

        Notes
        -----
        A bin shows from about ``b ln(67 / failure)`` rows on, where b is the noise's scale: at
        epsilon 0.2 from 55 rows on. With fewer rows in all, bounds that are known without looking
        at the data are better. Measured at epsilon 0.2 and 5,000 rows: at most 1.5% of incomes,
        ages and balances lie outside of bounds whose width is 0.8 to 1.6 times that between the
        quantiles of 0.5% and 99.5%. Quantiles by `QuantileExponential` on the same grid gave
        bounds 10^5 times as wide, since with so few rows they may lie anywhere in empty bins.

        References
        ----------
        Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo and Gipson 2020, on approximate
        bounds, where the noise's scale is known; here it is read off the released counts.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"income": None})
        >>> data = {"income": np.random.default_rng(1).uniform(0, 60_000, 10_000)}
        >>> with dp.Session(budget=dp.Budget(1.0), people=data) as session:
        ...     low, high = session.run(
        ...         people["income"].bounds(dp.Laplace(), failure=1e-12), share=0.2
        ...     )
        ...     income = people["income"].clip(low, high)
        ...     mean = session.run(income.average(dp.Laplace()), share=0.8)
        >>> float(high), 29_000 < mean < 31_000
        (65536.0, True)
        """
        failure = number(failure)
        if not 0 < failure < 1:
            raise DeclarationError(f"failure must be between 0 and 1, got {failure!r}")
        counts = self.magnitudes().release(mechanism)
        return post(occupied_range, counts, edges=list(_EDGES), failure=failure)

    def magnitudes(self) -> PrivateQuery[Array]:
        """Return the numbers of values between powers of two, of either sign: see `bounds`.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"income": None})
        >>> people["income"].magnitudes()
        <private histogram of 134 bins>
        """
        return self.clip(_EDGES[0], _EDGES[-1]).histogram(list(_EDGES))

    def cdf(self, edges: Sequence[float], mechanism: Mechanism | None = None) -> Released[Array]:
        """Release the share of values below each of ``edges``, from 0 to 1 and never falling.

        One histogram between the edges, divided by its total: values outside of the edges count
        as the nearest of them.

        Parameters
        ----------
        edges
            Ascending numbers.
        mechanism
            Releases the histogram, such as ``dp.Laplace()``; None for the default.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> shares = people["age"].cdf([0, 25, 50, 75, 100])
        >>> plan = dp.Pipeline(shares=shares).calibrate(epsilon=1.0)
        >>> ages = np.linspace(0, 100, 10_001)
        >>> plan.simulate(seed=1, people={"age": ages})["shares"].round(2).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        inside = self.clip(float(edges[0]), float(edges[-1])) if len(edges) > 1 else self
        return post(cumulative_shares, inside.histogram(edges).release(mechanism))

    def median(
        self, *, step: float | None = None, interval: float | None = None, sampling: bool = False
    ) -> PrivateQuery[float]:
        """Return the median (the lower of two), for mechanisms that read a `LocalSensitivity`.

        Parameters
        ----------
        step, interval, sampling
            As of `quantile`.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(age=people["age"].median().release(dp.QuantileExponential(scale=2)))
        >>> plan.certify()
        <certificate epsilon=0.5 delta=0 by basic>
        >>> round(plan.simulate(seed=1, people={"age": np.linspace(20, 80, 10_001)})["age"])
        50
        """
        return self.quantile(0.5, step=step, interval=interval, sampling=sampling)

    def quantile(
        self,
        q: float,
        *,
        step: float | None = None,
        interval: float | None = None,
        sampling: bool = False,
    ) -> PrivateQuery[float]:
        """Return the value of rank ``ceil(q n)``, for mechanisms that read a `LocalSensitivity`.

        Parameters
        ----------
        q
            Between 0 and 1, rounded to six decimals.
        step
            `QuantileExponential` releases a multiple of it: 1 where values are integers. None for
            a step of about 2^-18 of the bounds' width. Other mechanisms do not use it.
        interval
            The level of an interval, such as 0.95, whose ends `QuantileExponential` releases too:
            three releases in place of one. The result's `interval` then has it. It holds the
            quantile of the rows with at least that probability, whatever the rows are: more often
            where values are not far apart.
        sampling
            Whether that interval is of the population of which the rows are a random sample.

        See Also
        --------
        quantiles : several at once.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> old = people["age"].quantile(0.9).release(dp.SmoothStudent(epsilon=1.0))
        >>> plan = dp.Pipeline(age=old)
        >>> plan.certify()
        <certificate epsilon=1 delta=0 by basic>
        >>> round(plan.simulate(seed=1, people={"age": np.linspace(20, 80, 10_001)})["age"])
        74

        With an interval:

        >>> middle = people["age"].quantile(0.5, interval=0.95).release(dp.QuantileExponential())
        >>> plan = dp.Pipeline(middle=middle).calibrate(epsilon=1.0)
        >>> result = plan.simulate(seed=1, people={"age": np.linspace(20, 80, 10_001)})
        >>> [round(end, 1) for end in result["middle"].interval()]
        [49.7, 50.3]
        """
        # a value may be missing in one of two neighbours: then their number is not fixed
        exchange = keeps_row_count(self) and not self.domain.missing
        query = Quantile(bounded(self.domain), q, exchange, step)
        self._check_interval(interval, sampling)
        if interval is None:
            return PrivateQuery(query, (self,))
        return QuantileWithEnds(query, (self,), interval, sampling)

    def quantiles(
        self,
        orders: Sequence[float],
        mechanism: Mechanism | None = None,
        *,
        step: float | None = None,
        interval: float | None = None,
        sampling: bool = False,
    ) -> Released[Array]:
        """Release several quantiles, in the order asked for and never crossing one another.

        The middle one is chosen first, then those of each half by the half's rows: m quantiles
        cost as much as about ``log2(m + 1)`` single ones.

        Parameters
        ----------
        orders
            Different numbers between 0 and 1, such as ``[0.25, 0.5, 0.75]``.
        mechanism
            ``dp.QuantileExponential()``, the default, or with a scale of your own.
        step, interval, sampling
            As of `quantile`: the ends are two further releases for each of the orders, and each
            has an interval of its own.

        References
        ----------
        Kaplan, Schnapp and Stemmer 2022, Alg. 1.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"visits": (0, 50)})
        >>> quartiles = people["visits"].quantiles([0.25, 0.5, 0.75])
        >>> plan = dp.Pipeline(quartiles=quartiles).calibrate(epsilon=1.0)
        >>> visits = np.repeat([0, 1, 4, 9], [400, 200, 300, 100])
        >>> plan.simulate(seed=1, people={"visits": visits})["quartiles"].tolist()
        [0.0, 1.0, 4.0]
        """
        values, ends, constants = self._quantiles(orders, mechanism, step, interval, sampling)
        return post(with_ends, values, *ends, single=False, **constants) if ends else values

    def _quantiles(
        self,
        orders: Sequence[float],
        mechanism: Mechanism | None,
        step: float | None,
        interval: float | None,
        sampling: bool,
        name: str = "",
    ) -> tuple[Released[Array], list[Released[Any]], dict[str, Any]]:
        """Return quantiles, the ends of their intervals in order, and what `with_ends` is given."""
        bounds = bounded(self.domain)
        wanted = _checked_orders(orders)
        ascending = sorted(wanted)
        counts: Private[Any] = Private(CountsByCell(bounds, step), (self,))
        levels: list[Released[Any]] = []
        for depth in range(len(search_levels(ascending))):
            # each level reads what the levels before it released, and divides the rows by it
            level = QuantileLevel(ascending, depth)
            query = PrivateQuery[Array](level, (counts, *levels))
            levels.append(query.release(mechanism, name=name))
        grid = {"bounds": [bounds.lower, bounds.upper], "step_size": step}
        values = post(numbers_at, *levels, orders=ascending, wanted=wanted, **grid)
        self._check_interval(interval, sampling)
        if interval is None:
            return values, [], grid
        queries = [
            QuantileEnd(q, above, interval, sampling) for q in wanted for above in (False, True)
        ]
        ends = [PrivateQuery[Any](query, (counts,)).release(mechanism) for query in queries]
        return values, ends, {"level": interval, "sampling": sampling, **grid}

    def _check_interval(self, interval: float | None, sampling: bool) -> None:
        """Refuse what does not say which interval is wanted, or one that nothing proves."""
        if interval is not None:
            check_level(interval)
        elif sampling:
            raise DeclarationError(
                "sampling=True says what kind of interval is wanted: give interval=0.95 too"
            )
        if sampling and change_at(self).rows != 1:
            raise DeclarationError(
                "an interval with sampling is for rows that vary independently, and here a unit "
                "may have several; leave out sampling=True for one of the noise alone"
            )

    def min(
        self,
        *,
        share: float = 0.005,
        step: float | None = None,
        interval: float | None = None,
        sampling: bool = False,
    ) -> PrivateQuery[float]:
        """Return the value below which a small share of the rows lie.

        The least value itself depends on one person, so that no mechanism may release it.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 120)})
        >>> plan = dp.Pipeline(
        ...     youngest=people["age"].min(step=1).release(dp.QuantileExponential(scale=1)),
        ...     oldest=people["age"].max(step=1).release(dp.QuantileExponential(scale=1)),
        ... )
        >>> result = plan.simulate(seed=1, people={"age": np.linspace(20, 80, 10_001)})
        >>> result["youngest"], result["oldest"]
        (20.0, 80.0)
        """
        return self.quantile(share, step=step, interval=interval, sampling=sampling)

    def max(
        self,
        *,
        share: float = 0.005,
        step: float | None = None,
        interval: float | None = None,
        sampling: bool = False,
    ) -> PrivateQuery[float]:
        """Return the value above which a small share of the rows lie: see `min`."""
        return self.quantile(1 - share, step=step, interval=interval, sampling=sampling)

    def trimmed_mean(self, share: float) -> PrivateQuery[float]:
        """Return the mean without ``share`` of the values at either end.

        Its table must have ``replace_one`` neighbours whose rows are the units, and its column a
        value in each row.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> panel = dp.dataset("panel", columns={"age": (0, 100)}, neighbors="replace_one")
        >>> age = panel["age"].fill(50)
        >>> mean = age.trimmed_mean(0.1).release(dp.SmoothStudent(epsilon=1.0))
        >>> plan = dp.Pipeline(mean=mean)
        >>> plan.certify()
        <certificate epsilon=1 delta=0 by basic>
        >>> round(plan.simulate(seed=1, panel={"age": np.linspace(20, 80, 10_001)})["mean"])
        50
        """
        return PrivateQuery(
            TrimmedMean(bounded(self.domain), share), (self._with_fixed_rows("trimmed_mean"),)
        )

    def local_variance(self) -> PrivateQuery[float]:
        """Return the variance for mechanisms that read a `LocalSensitivity`.

        Its table must be as for `trimmed_mean`.

        See Also
        --------
        variance : by additive noise, of any table.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> panel = dp.dataset("panel", columns={"age": (0, 100)}, neighbors="replace_one")
        >>> age = panel["age"].fill(50)
        >>> ages = age.local_variance().release(dp.SmoothStudent(epsilon=1.0))
        >>> plan = dp.Pipeline(ages=ages)
        >>> round(plan.simulate(seed=1, panel={"age": np.linspace(20, 80, 10_001)})["ages"], -1)
        300.0
        """
        query = Variance(bounded(self.domain))
        return PrivateQuery(query, (self._with_fixed_rows("local_variance"),))

    def variance(self, mechanism: Mechanism | None = None) -> Released[float]:
        """Release the variance, with n in the denominator: see `Table.covariance`.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(ages=people["age"].variance(dp.Gaussian()))
        >>> plan = plan.calibrate(epsilon=1.0, delta=1e-6)
        >>> ages = np.linspace(20, 80, 10_001)
        >>> round(plan.simulate(seed=1, people={"age": ages})["ages"], -1)
        300.0
        """
        operation = unaliased(self).operation
        if isinstance(operation, ColumnOf):
            name, table = operation.name, self._table
        else:  # a computed column gets a name
            name = "value"
            table = self._table.with_columns(**{name: self})
        return post(first_entry, table.covariance([name], mechanism))

    def std(self, mechanism: Mechanism | None = None) -> Released[float]:
        """Release the standard deviation: the root of `variance`, of a mechanism as there.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(age=people["age"].std(dp.Gaussian())).calibrate(1.0, 1e-6)
        >>> round(plan.simulate(seed=1, people={"age": np.linspace(20, 80, 10_001)})["age"])
        17
        """
        return post(root, self.variance(mechanism))

    def mode(self, edges: Sequence[float] | None = None) -> PrivateQuery[Any]:
        """Return the most frequent category, or bin, for `DistanceToInstability`.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
        >>> mode = people["town"].mode().release(dp.DistanceToInstability(epsilon=1.0, delta=1e-6))
        >>> plan = dp.Pipeline(mode=mode)
        >>> plan.certify(delta=1e-6)
        <certificate epsilon=1 delta=1e-06 by basic>
        >>> plan.with_delta(1e-6).simulate(seed=1, people={"town": ["A", "B", "A"] * 100})["mode"]
        'A'
        """
        return PrivateQuery(Mode(self._keys(edges), edges, keeps_row_count(self)), (self,))

    def instance(
        self,
        function: Callable[[Array], float],
        local: Callable[[Array, int], float],
        *,
        range: tuple[float, float],
    ) -> PrivateQuery[float]:
        """Return a user's own function of the values, for mechanisms of a `LocalSensitivity`.

        Parameters
        ----------
        function
            Called with the values, clipped to the column's bounds, in ascending order.
        local
            Called with them and with k = 0, 1, 2, ...: the most that the function moves in one step
            from any data set within k steps, or a bound of it that grows with k and is at most
            what it is at k + 1 for a neighbour. A step adds or removes a row; it exchanges
            one under ``replace_one``, of a table without filters or parts whose rows are units:
            there the column must have a value in each row.
        range
            Bounds of the function; its value is clipped to them.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> def largest(values):
        ...     return values[-1] if len(values) else 0.0
        >>> def moves(values, k):  # up to 100 from the (k+1)st largest, or down to the next
        ...     ages = [0.0] * (k + 2) + list(values)
        ...     return max(100 - ages[-1 - k], ages[-1] - ages[-2 - k])
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> oldest = people["age"].instance(largest, moves, range=(0, 100))
        >>> plan = dp.Pipeline(oldest=oldest.release(dp.SmoothCauchy(epsilon=1.0)))
        >>> plan.certify()
        <certificate epsilon=1 delta=0 by basic>
        """
        if not (callable(function) and callable(local)):
            raise DeclarationError(
                "instance needs two functions: one of the values, and one of the values and a "
                "distance"
            )
        query = Instance(
            bounded(self.domain),
            range,
            Function.of(function),
            Function.of(local),
            keeps_row_count(self),
        )
        return PrivateQuery(query, (self,))

    def brute_force(
        self,
        function: Callable[[Array], Any],
        universe: Sequence[float],
        *,
        range: tuple[float, float] | None = None,
        candidates: Sequence[Any] | None = None,
        radius: int | None = None,
    ) -> PrivateQuery[Any]:
        """Return a user's own function of a column with few values; its sensitivity is computed.

        Every data set near the one at hand is tried, so that no local sensitivity need be known:
        for propose-test-release, smooth sensitivity and distance to instability on functions for
        which no theorem is at hand. The number of data sets that are near grows as the radius to
        the power of the number of values.

        Parameters
        ----------
        function
            Of the values in ascending order, each the nearest of the universe.
        universe
            The values that a row may have, in the column's bounds.
        range
            Bounds of the function, where it is a number.
        candidates
            What it chooses among, where it is a choice; one of the two.
        radius
            To what distance data sets are tried: beyond it the function counts as unstable. By
            default as far as at most 20,000 of them are near.

        Examples
        --------
        Whether at least nine in ten of the answers are 4 or 5:

        >>> import adaptive_dp as dp
        >>> def content(answers):
        ...     return "yes" if (answers >= 4).sum() >= 0.9 * len(answers) else "no"
        >>> people = dp.dataset("people", columns={"answer": (1, 5)})
        >>> verdict = people["answer"].brute_force(
        ...     content, [2, 4], candidates=["no", "yes"], radius=40
        ... )
        >>> plan = dp.Pipeline(
        ...     verdict=verdict.release(dp.DistanceToInstability(epsilon=1.0, delta=1e-6))
        ... ).with_delta(1e-6)
        >>> plan.simulate(seed=1, people={"answer": [5] * 990 + [1] * 10})["verdict"]
        'yes'
        """
        if not callable(function):
            raise DeclarationError("brute_force needs a function of the values")
        if (range is None) == (candidates is None):
            raise DeclarationError(
                "brute_force needs a range, where the function is a number, or candidates, where "
                "it is a choice: one of the two"
            )
        exchange = keeps_row_count(self)
        near = LocalSensitivity.brute_force(
            function, universe, range=range, exchange=exchange, radius=radius
        )
        common = (
            bounded(self.domain), near.universe, Function.of(function), near.radius, exchange
        )  # fmt: skip
        query: Query = (
            BruteForce(*common, range)
            if candidates is None
            else BruteForceChoice(*common, candidates)
        )
        return PrivateQuery(query, (self,))

    def _keys(self, edges: Sequence[float] | None) -> tuple[Any, ...] | None:
        """Return the declared categories, to count by where no edges are given."""
        _refuse_bin_count(edges)
        declared = self.domain.column
        return declared.values if edges is None and isinstance(declared, Categories) else None

    def _with_fixed_rows(self, method: str) -> Column[S]:
        """Return the column; refuse one whose number of rows may change between neighbours."""
        if not keeps_row_count(self):
            raise DeclarationError(
                f"{method} needs a fixed number of rows: ask it of a table with "
                "neighbors='replace_one' whose rows are the units, before filters and partitions; "
                "or use median() or quantile(q)"
            )
        return self

    def isin(self, values: Sequence[Any]) -> Condition:
        """Return the condition that the column has one of ``values``."""
        keys = tuple(self._constant(value) for value in as_tuple(values))
        return self._condition("in", self._operand(), keys)

    def is_present(self) -> Condition:
        """Return the condition that the value is not missing.

        Missing are NaN, None, an empty cell, and in a numeric column a str that spells no number.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> people.filter(~people["age"].is_present())
        <private age is missing>
        """
        column: Handle = self
        while isinstance(unaliased(column).operation, Clip):  # which leaves missing what is missing
            column = unaliased(column).inputs[0]
        assert isinstance(column, Column)
        return self._condition("present", column._operand())

    def __lt__(self, other: Any) -> Condition:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Condition:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compare(">=", other)

    def __eq__(self, other: Any) -> Condition:  # type: ignore[override]
        return self._equals(other)

    def __ne__(self, other: Any) -> Condition:  # type: ignore[override]
        return ~self._equals(other)

    # a handle is its own key, as every other handle is
    __hash__ = object.__hash__

    def _equals(self, other: Any) -> Condition:
        if isinstance(other, Handle):
            return self._compare("==", other)
        if other is None or other != other:
            raise DeclarationError(
                f"nothing equals {other!r}; for missing values use ~column.is_present()"
            )
        return self.isin([other])

    def _compare(self, test: str, other: Any) -> Condition:
        if isinstance(other, Column):
            refuse_other_data(self._table, other._table)
            texts = [holds_strings(each.domain.column) for each in (self, other)]
            same = "same" if test == "==" and any(texts) else test
            return self._condition(same, self._ordered(), other._ordered())
        if isinstance(other, Handle):
            if other.visibility == "private":
                raise LeakError(
                    f"a filter may not compare with a private value: {private_path(other)}"
                )
            assert isinstance(other, Released)
            place = Expression("released", (1,))
            return Condition(Expression(test, (self._ordered(), place)), (other,), self._table)
        return self._condition(test, self._ordered(), self._constant(other))

    def _constant(self, value: Any) -> Any:
        """Return what the column is compared with or clipped to: of a date its days.

        Raises
        ------
        DeclarationError
            For a date, if the column is read from the data and not declared with dates: cells of a
            file would be strings, none of them after any date.
        """
        if isinstance(value, datetime.date | np.datetime64):
            made = {name for each in lineage(self) for name in each.operation.computed_columns()}
            dated = {name for name, c in self._table.domain.columns.items() if isinstance(c, Dates)}
            if (made | dated).isdisjoint(self._operand().names):
                raise DeclarationError(
                    f"column {self.domain.of!r} is not declared with dates, so that {value} is not "
                    f"comparable with it; {DATES}"
                )
        return _days(value)

    def _condition(self, operator: str, *arguments: Any) -> Condition:
        return Condition(Expression(operator, arguments), (), self._table)

    def _as_condition(self) -> Condition:
        if self.domain.column != Categories((False, True)):
            raise DeclarationError(
                f"{self.domain.of!r} is not declared bool, and so is no condition such as "
                "table['age'] >= 18; compare it, with parentheses around what & and | join"
            )
        return self._equals(True)

    def __and__(self, other: Any) -> Condition:
        joined: Condition = self._as_condition() & other
        return joined

    def __or__(self, other: Any) -> Condition:
        joined: Condition = self._as_condition() | other
        return joined

    def __invert__(self) -> Condition:
        return ~self._as_condition()

    def __add__(self, other: Any) -> Column[float]:
        return self._computed("+", self, other)

    def __radd__(self, other: Any) -> Column[float]:
        return self._computed("+", other, self)

    def __sub__(self, other: Any) -> Column[float]:
        return self._computed("-", self, other)

    def __rsub__(self, other: Any) -> Column[float]:
        return self._computed("-", other, self)

    def __mul__(self, other: Any) -> Column[float]:
        return self._computed("*", self, other)

    def __rmul__(self, other: Any) -> Column[float]:
        return self._computed("*", other, self)

    def __truediv__(self, other: Any) -> Column[float]:
        return self._computed("/", self, other)

    def __rtruediv__(self, other: Any) -> Column[float]:
        return self._computed("/", other, self)

    def __pow__(self, exponent: int) -> Column[float]:
        return self._computed("**", self, exponent)

    def __neg__(self) -> Column[float]:
        return self._computed("negative", self)

    def __abs__(self) -> Column[float]:
        return self._computed("abs", self)

    def abs(self) -> Column[float]:
        """Return the values without their signs."""
        return self._computed("abs", self)

    def exp(self) -> Column[float]:
        """Return e to the power of the values."""
        return self._computed("exp", self)

    def log(self) -> Column[float]:
        """Return the natural logarithm; the bounds must be above 0.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"income": (0, 200_000)})
        >>> people["income"].clip(1_000, 200_000).log()
        <private log(clip(income, 1000, 200000)) in [6.90776, 12.2061]>
        >>> (people["income"] + 1).log().sum()
        <private sum in [0, 12.2061]>
        """
        return self._computed("log", self)

    def sqrt(self) -> Column[float]:
        """Return the square root; the bounds must not be below 0."""
        return self._computed("sqrt", self)

    def fill(self, value: Any) -> Column[Any]:
        """Return the column in which a missing value counts as ``value``.

        Of categories, it may be one of them, or a new one, which is then the last of them; of
        strings that nobody lists, any str.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["Oslo", "Rome"]})
        >>> people["age"].fill(40)
        <private fill(age, 40) in [0, 100]>
        >>> people["town"].fill("unknown").histogram()
        <private histogram of 3 bins>
        """
        operation = unaliased(self).operation
        if isinstance(operation, ColumnOf) and isinstance(self.domain.column, Categories | Strings):
            stored = Expression("column", (operation.name,))
            return Column(Computed(Expression("fill", (stored, number(value)))), (self._table,))
        return self._computed("fill", self, value)

    @property
    def year(self) -> Column[float]:
        """The year of a column of dates.

        Examples
        --------
        >>> import datetime, adaptive_dp as dp
        >>> born = (datetime.date(1900, 1, 1), datetime.date(2025, 12, 31))
        >>> people = dp.dataset("people", columns={"born": born})
        >>> people["born"].year
        <private year(born) in [1900, 2025]>
        """
        return self._computed("year", self)

    @property
    def month(self) -> Column[float]:
        """The month of a column of dates, from 1 to 12."""
        return self._computed("month", self)

    @property
    def weekday(self) -> Column[float]:
        """The day of the week of a column of dates: 0 is Monday, 6 is Sunday."""
        return self._computed("weekday", self)

    def _computed(self, operator: str, *arguments: Any) -> Column[float]:
        expressions = []
        for each in arguments:
            if isinstance(each, Column):
                refuse_other_tables(self, each)
                expressions.append(each._expression())
            elif isinstance(each, Handle):
                raise DeclarationError(
                    f"a computed column is made of columns and constants, got {each!r}; compute "
                    "with released values in dp.post(function, handle)"
                )
            else:
                expressions.append(_days(each))
        return Column(Computed(Expression(operator, tuple(expressions))), (self._table,))

    def _expression(self) -> Expression:
        """Return the column as a number in bounds."""
        operation = unaliased(self).operation
        if isinstance(operation, Computed):
            made: Expression = operation.expression
            if not is_filled(made):
                return made
            refuse_strings(text_of(made), self.domain.column)
            stored, value = made.arguments
            limits = [float(each) for each in self.domain.column.values]
            column = Expression("column", (stored.arguments[0], min(limits), max(limits)))
            return Expression("fill", (column, float(value)))
        if isinstance(operation, Clip):
            below = unaliased(self).inputs[0]
            assert isinstance(below, Column)
            if below.domain.column is None:
                return Expression("column", (below.domain.of, operation.lower, operation.upper))
            return Expression("clip", (below._expression(), operation.lower, operation.upper))
        declared = self.domain.column
        if isinstance(declared, Categories) and not holds_strings(declared):
            numbers = [float(value) for value in declared.values]
            bounds = Interval(min(numbers), max(numbers))
        else:
            refuse_strings(self.domain.of, declared)
            bounds = bounded(self.domain)
        leaf = "date" if isinstance(declared, Dates) else "column"
        return Expression(leaf, (self.domain.of, bounds.lower, bounds.upper))

    def _operand(self) -> Expression:
        """Return the column as conditions read it: as it is stored, or computed."""
        operation = unaliased(self).operation
        if isinstance(operation, ColumnOf):
            leaf = "date" if isinstance(self.domain.column, Dates) else "column"
            return Expression(leaf, (operation.name,))
        if isinstance(operation, Computed) and is_filled(operation.expression):
            return operation.expression  # type: ignore[no-any-return]
        return self._expression()

    def _made(self) -> Expression:
        """Return the column as another one is made of it: filled categories are categories."""
        operand = self._operand()
        return operand if is_filled(operand) else self._expression()

    def _ordered(self) -> Expression:
        """Return the column as comparisons read it that need an order."""
        operand = self._operand()
        return self._expression() if is_filled(operand) else operand

    @property
    def _table(self) -> Table:
        return next(each for each in reversed(lineage(self)) if isinstance(each, Table))


_EDGES = (*(-e for e in reversed(MAGNITUDES)), 0.0, *MAGNITUDES)
"""The ends of the bins of `Column.magnitudes`."""


def refuse_other_tables(a: Column[Any], b: Column[Any]) -> None:
    """Refuse columns of two tables in one computed column."""
    pairs = zip(lineage(a._table), lineage(b._table), strict=False)
    alike = all(
        # two samples are different, though they are drawn alike
        x is y or (x.operation == y.operation and not x.operation.random and x.inputs[1:] == ())
        for x, y in pairs
    )
    if not (alike and len(lineage(a._table)) == len(lineage(b._table))):
        refuse_other_data(a._table, b._table)
        raise DeclarationError(
            f"{text_of(a._expression())} and {text_of(b._expression())} are columns of different "
            "tables; take both from one, such as the filtered table"
        )


def where(condition: Condition | Column[Any], then: Any, otherwise: Any) -> Column[float]:
    """Return ``then`` in the rows that meet a condition, and ``otherwise`` in the others.

    Where the condition is unknown, for a missing value, the result is missing.

    Parameters
    ----------
    condition
        For example ``people["age"] >= 65``.
    then, otherwise
        Columns of the same table, or numbers.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "visits": (0, 20)})
    >>> dp.where(people["age"] >= 65, people["visits"], 0).sum()
    <private sum in [0, 20]>
    """
    condition = as_condition(condition)
    if not isinstance(condition, Condition) or condition.table is None:
        raise DeclarationError(
            f"where needs a condition such as people['age'] >= 65, got {condition!r}"
        )
    if condition.handles:
        raise DeclarationError("where compares with constants and columns, not released values")
    table = condition.table
    parts = []
    for each in (then, otherwise):
        if isinstance(each, Column):
            refuse_other_data(table, each._table)
            parts.append(each._expression())
        else:
            parts.append(_days(each))
    return Column(Computed(Expression("where", (condition.expression, *parts))), (table,))


def complete_rows(table: Table, names: Sequence[str]) -> Table:
    """Return the rows that have a value in each of some columns; the table itself where all have.

    A filter like any other: what a unit's change moves is what it moves in any part of the rows, so
    a unit may have fewer rows, or none, under each neighbour relation.
    """
    missing = [name for name in dict.fromkeys(names) if name not in table.domain.complete]
    if not missing:
        return table
    # a condition is neither long nor deep: few columns each, joined two by two
    for start in range(0, len(missing), _COLUMNS_OF_A_FILTER):
        parts = [table[name].is_present() for name in missing[start : start + _COLUMNS_OF_A_FILTER]]
        while len(parts) > 1:
            joined = [a & b for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = joined + parts[2 * len(joined) :]
        table = table.filter(parts[0])
    return table


_COLUMNS_OF_A_FILTER = 100


@frozen(eq=False, repr=False)
class QuantileWithEnds(PrivateQuery[float]):
    """A quantile whose release is three: itself, and the ends of its interval.

    Parameters
    ----------
    level
        Of the interval.
    sampling
        Whether the interval is of a population.
    """

    level: float | None = None
    sampling: bool = False

    def release(
        self,
        mechanism: Mechanism | None = None,
        *,
        given: Sequence[Released[Any]] = (),
        name: str = "",
    ) -> Released[float]:
        """Return the quantile, with the ends of its interval, as ``mechanism`` releases each."""
        quantile, column = self.operation, self.inputs[0]
        assert isinstance(quantile, Quantile)
        assert isinstance(column, Column)
        if given:
            raise DeclarationError("a quantile's mechanism reads no released values")
        values, ends, constants = column._quantiles(
            [quantile.q], mechanism, quantile.step_size, self.level, self.sampling, name
        )
        return post(with_ends, values, *ends, single=True, **constants)


def _days(value: Any) -> Any:
    """Return a date as days since 1970-01-01, and a number as a plain int or float."""
    return day(value) if isinstance(value, datetime.date | np.datetime64) else number(value)


def _checked_orders(orders: Any) -> list[float]:
    """Return the orders as a list; refuse what is none."""
    if isinstance(orders, int | float | str) or not isinstance(orders, Sequence | np.ndarray):
        raise DeclarationError(
            f"quantiles needs a list of orders such as [0.25, 0.5, 0.75], got {orders!r}; for one "
            "use .quantile(0.5).release(dp.QuantileExponential())"
        )
    result = [round(q, 6) if isinstance(q, int | float) else q for q in list(orders)]
    if not result or len(set(result)) != len(result):
        raise DeclarationError(f"quantiles needs different orders, got {result!r}")
    return result


def _refuse_bin_count(edges: Any) -> None:
    """Refuse a number of bins where edges are needed."""
    if isinstance(edges, int | float):
        raise DeclarationError(
            f"edges must be a list of numbers such as [0, 50, 100], got {edges!r}; for equal bins "
            "write edges=numpy.linspace(low, high, bins + 1)"
        )


@frozen(eq=False, repr=False)
class Vectors(Private[Array]):
    """A handle of private vectors, one for each row: to clip, sum, or take second moments of.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "income": (0, 200_000)})
    >>> points = people.vectors(["age", "income"], scale=True).clip(norm=1.0)
    >>> points.sum()
    <private sum in norm 1>
    >>> total = points.sum().release(dp.Norm(scale=2, p=2))
    >>> dp.Pipeline(total=total).certify()
    <certificate epsilon=0.500001 delta=0 by basic>
    """

    def clip(self, *, norm: float) -> Vectors:
        """Return the vectors scaled down to Euclidean norm ``norm`` where they are longer.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "income": (0, 200_000)})
        >>> points = people.vectors(["age", "income"], scale=True)
        >>> points.sum(), points.clip(norm=1.0).sum()
        (<private sum in norm 1.414>, <private sum in norm 1>)
        """
        return Vectors(NormClip(norm), (self,))

    def times(self, column: Column[Any], *, scale: bool = False) -> Vectors:
        """Return each vector times its row's value of a bounded column of the same table.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
        >>> people.vectors(["age"], scale=True, intercept=True).times(people["days"]).sum()
        <private sum in norm 56.57>
        """
        if not isinstance(column, Column):
            raise DeclarationError(
                f"times needs a column such as people['age'], got a {type(column).__name__}"
            )
        chain = lineage(self)
        place = max(i for i, each in enumerate(chain) if isinstance(each, Table))
        table, own = chain[place], unaliased(column._table)
        operation = unaliased(column).operation
        # filters change no values: that for the vectors' own columns is among them
        before = place
        while isinstance(chain[before].operation, Where | Filter) and chain[before] is not own:
            before -= 1
        if not isinstance(operation, ColumnOf) or chain[before] is not own:
            raise DeclarationError("times needs a column of the same table as the vectors")
        assert isinstance(table, Table)
        vectors: Handle = complete_rows(table, [operation.name])
        for each in chain[place + 1 :]:
            vectors = Vectors(each.operation, (vectors,))
        return Vectors(Times(operation.name, bounded(column.domain), scale), (vectors,))

    def sum(self) -> PrivateQuery[Array]:
        """Return the sum of the vectors.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "income": (0, 200_000)})
        >>> total = people.vectors(["age", "income"], scale=True).sum()
        >>> dp.Pipeline(total=total.release(dp.Norm(scale=2, p=2))).certify()
        <certificate epsilon=0.707107 delta=0 by basic>
        """
        return PrivateQuery(VectorSum(self.domain.radius, self.domain.width), (self,))

    def gram(self) -> PrivateQuery[Array]:
        """Return the second-moment matrix ``sum x x'``.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "income": (0, 200_000)})
        >>> moments = people.vectors(["age", "income"], scale=True).clip(norm=1.0).gram()
        >>> plan = dp.Pipeline(moments=moments.release(dp.Gaussian(sigma=4)))
        >>> plan.simulate(seed=1, people={"age": [40], "income": [50_000]})["moments"].shape
        (2, 2)
        """
        return PrivateQuery(Gram(self.domain.radius, self.domain.width), (self,))

    def smallest_eigenvalue(self) -> PrivateQuery[float]:
        """Return the smallest eigenvalue of the second-moment matrix.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "income": (0, 200_000)})
        >>> points = people.vectors(["age", "income"], scale=True).clip(norm=1.0)
        >>> least = points.smallest_eigenvalue().release(dp.Laplace(scale=2))
        >>> dp.Pipeline(least=least).certify()
        <certificate epsilon=0.500001 delta=0 by basic>
        """
        return PrivateQuery(SmallestEigenvalue(self.domain.radius, self.domain.width), (self,))

    def __len__(self) -> NoReturn:
        raise TypeError("the number of rows is private; use table.count().release(...)")


__all__ = ["Column", "Parts", "Table", "Vectors", "dataset", "where"]
