"""Pairs of neighbouring data sets on which private analyses break, from what a plan declares."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.audit.neighbors import FixedData
from adaptive_dp.data import MemoryRows, Reading, read_rows
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import BoundOperation
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.queries.domains import (
    Ball,
    Categories,
    Column,
    ColumnOf,
    Dates,
    Interval,
    Strings,
    Tensors,
    as_date,
)
from adaptive_dp.queries.expressions import Expression
from adaptive_dp.queries.source import Source

# -----------------------------------------------------------------------------
# Cells at which a plan may treat rows differently: bounds, thresholds, and undeclared values.


MAX_CONSTANTS = 12
"""At most so many constants of the plan are used for a column."""

UNKNOWN = "no such category"
_UNKNOWN_NUMBER = -987_654_321


@frozen
class Filled:
    """A cell of a column of tensors that has the same number everywhere."""

    shape: tuple[int, ...]
    value: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.full(self.shape, self.value, dtype=dtype)

    def __repr__(self) -> str:
        return f"{self.value:g} everywhere"


def cells(structure: Structure, source: Source) -> dict[str, tuple[Any, ...]]:
    """Return for each declared column the cells to try: bounds, thresholds, undeclared values."""
    constants = _plan_constants(structure, source)
    return {
        name: _distinct(
            [*_declared_cells(column), *_nearby_values(constants.get(name, ()), column)]
        )
        for name, column in source.columns.items()
    }


def _plan_constants(structure: Structure, source: Source) -> dict[str, list[Any]]:
    """Return by column the constants of the plan's operations that read it."""
    constants_of: dict[str, list[Any]] = {}
    for node in structure:
        if node.handle.visibility != "private":
            # released values are public: their constants split no rows
            continue
        lineage = structure.lineage(node)
        # the first of the lineage is the data set that the private value is made from
        if lineage[0].handle.operation != source:
            continue
        # names of columns are left out: they are not values of cells
        constants = [v for v in _constants(node, structure) if v not in source.columns]
        for name in _columns_read(node, lineage) & source.columns.keys():
            constants_of.setdefault(name, []).extend(constants)
    return constants_of


def _columns_read(node: Node, lineage: list[Node]) -> set[str]:
    """Return the columns that an operation reads."""
    parameters = node.handle.operation.parameters()
    names = {v for k, v in parameters.items() if k in ("by", "column") and isinstance(v, str)}
    names |= {c[0] for c in parameters.get("conditions", ()) if isinstance(c, tuple)}
    names |= set(getattr(node.handle.operation, "names", ()) or ())
    steps = [step.handle.operation for step in lineage]
    names |= {step.name for step in steps if isinstance(step, ColumnOf)}
    domain = node.handle.inputs[0].domain if node.handle.inputs else None
    return names | set(domain.names if isinstance(domain, Ball) else ())


def _constants(node: Node, structure: Structure) -> Iterator[Any]:
    """Yield numbers and str among an operation's parameters, and its constant operands."""
    yield from _constant_leaves(list(node.handle.operation.parameters().values()))
    # the first input is the data, the others may be constant operands
    for name in node.inputs[1:]:
        value = structure.nodes[name].handle.operation
        if value.kind == "public":
            yield from _constant_leaves(list(value.parameters().values()))


def _constant_leaves(value: Any) -> Iterator[Any]:
    # a bool is an int to isinstance; a mechanism's numbers are noise, no thresholds
    if isinstance(value, bool) or value is None or isinstance(value, Mechanism):
        return
    if isinstance(value, int | float | str):
        yield value
    elif isinstance(value, Mapping):
        yield from _constant_leaves(list(value.values()))
    elif isinstance(value, list | tuple | Expression):
        # the first of an expression is its operator
        for each in value[1:] if isinstance(value, Expression) else value:
            yield from _constant_leaves(each)
    elif isinstance(value, Interval | Categories):
        yield from _constant_leaves(list(attrs.asdict(value, recurse=False).values()))


def _nearby_values(constants: Any, column: Column) -> Iterator[Any]:
    """Yield each constant, and the floats next to it below and above."""
    if isinstance(column, Tensors):
        return
    allows_str = not isinstance(column, Interval)
    categories = column.values if isinstance(column, Categories) else ()
    is_text = isinstance(column, Strings) or bool(categories and isinstance(categories[0], str))
    allows_numbers = not is_text
    # in the order of the plan, each constant once
    for constant in list(dict.fromkeys(constants))[:MAX_CONSTANTS]:
        if isinstance(constant, str):
            if allows_str and (not categories or constant in categories):
                yield constant
        elif isinstance(column, Dates):
            yield from map(as_date, (constant, constant - 1, constant + 1))
        # the two floats next to a threshold tell "at least" from "above"; huge ones would overflow
        elif allows_numbers and math.isfinite(constant) and abs(constant) < 1e290:
            yield float(constant)
            yield math.nextafter(constant, -math.inf)
            yield math.nextafter(constant, math.inf)


def _declared_cells(column: Column) -> list[Any]:
    """Return cells of a column, those that most often break an analysis first."""
    if isinstance(column, Dates):
        first, last = as_date(column.lower), as_date(column.upper)
        return [first, last, as_date(column.lower - 1), as_date(column.upper + 1), None]
    if isinstance(column, Interval):
        low, high = column.lower, column.upper
        # so far outside that a missing clip is seen at once
        outside = 10 * (high - low) + 1
        inside = [low + (high - low) / 2, math.nextafter(low, high), math.nextafter(high, low)]
        not_finite = [math.nan, math.inf, -math.inf, None]
        # bounds first, since `corners` takes the cells 0 and 1
        return [low, high, *inside, 0.0, low - outside, high + outside, *not_finite]
    if isinstance(column, Categories):
        undeclared = UNKNOWN if isinstance(column.values[0], str) else _UNKNOWN_NUMBER
        return [*column.values[:MAX_CONSTANTS], column.values[-1], undeclared, None]
    if isinstance(column, Strings):
        return ["a", "b", UNKNOWN, "", None]
    if isinstance(column, Tensors):
        ends = [column.lower, column.upper, 10 * (column.upper - column.lower) + 1]
        return [*(Filled(column.shape, v) for v in [*ends, math.nan, math.inf, -math.inf]), None]
    return [0.0, 1.0, -1.0, math.nan, math.inf, UNKNOWN, None]


def _distinct(values: list[Any]) -> tuple[Any, ...]:
    """Return the values without repetitions; 0, False and -0.0 are equal, NaN equals itself."""
    distinct: dict[Any, Any] = {}
    for value in values:
        # the key of NaN is its repr, since NaN does not equal itself
        distinct.setdefault(repr(value) if value != value else value, value)
    return tuple(distinct.values())


# -----------------------------------------------------------------------------
# Data under zero_out: one unit has no rows, yet it counts among the public number of units.


@frozen(eq=False, repr=False)
class FixedSizeRows(MemoryRows):
    """Rows of a declared number of units, some of which may have none."""

    declared: int

    def size(self) -> int:
        """Return the declared number of units."""
        return self.declared


@frozen
class ZeroOutData:
    """Rows of all units but one, which is zeroed out and still counts among the declared number.

    Parameters
    ----------
    data
        The columns of the others.
    size
        The declared number of units.
    """

    data: Mapping[str, Any]
    size: int

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        rows = read_rows(self.data, columns, unit)
        return FixedSizeRows(rows.columns, rows.unit_numbers, self.size)


# -----------------------------------------------------------------------------
# The gallery: pairs of neighbouring data sets on which private analyses often break.
#
# It is public: it follows from the declared columns, the neighbour relation and the constants of
# the plan (bounds, clips, thresholds, edges, keys), never from data. `search` starts from it and
# changes pairs at random to enlarge a measure.


Row = Mapping[str, Any]
UnitRows = tuple[Row, ...]
"""The rows of one unit."""

UNIT = "the unit"
"""The identifier of the unit in which neighbours differ."""


@frozen
class DataPair:
    """Two neighbouring data sets: the rows of one unit before and after, among those of others.

    ``plan.run(**pair.first)`` and ``plan.run(**pair.second)`` run a plan on them.

    Parameters
    ----------
    source
        The declaration of the data set that differs.
    others
        The rows of the other units, each a unit of its own.
    before, after
        The unit's rows in the first data set and in the second; none where it is absent, or
        zeroed out.
    title
        What is special about the pair.
    fixed_data
        Other data sets of the plan by name, equal in both.
    """

    source: Source
    others: UnitRows
    before: UnitRows
    after: UnitRows
    title: str = ""
    fixed_data: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def words(self) -> str:
        """A description of the pair for the reader of an audit."""
        prefix = f"{self.source.name!r}: " + (f"{self.title}; " if self.title else "")
        before, after = _format_rows(self.before), _format_rows(self.after)
        return f"{prefix}{before} against {after}, beside {_format_rows(self.others)}"

    @property
    def first(self) -> dict[str, Any]:
        """The data sets by name, each a mapping of columns to lists."""
        return self._data(self.before)

    @property
    def second(self) -> dict[str, Any]:
        """The same with the unit's rows exchanged, removed or zeroed out."""
        return self._data(self.after)

    def _data(self, unit_rows: UnitRows) -> dict[str, Any]:
        source = self.source
        middle = len(self.others) // 2  # neither the first nor the last in the data
        rows = [*self.others[:middle], *unit_rows, *self.others[middle:]]
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in source.columns}
        if source.unit is not None:
            # -1 marks the unit in which neighbours differ; each of the others is a unit of one row
            units = [*range(middle), *([-1] * len(unit_rows)), *range(middle, len(self.others))]
            columns[source.unit] = [UNIT if i < 0 else f"unit {i}" for i in units]
        elif not columns:  # a table without columns has rows to count
            columns["row"] = list(range(len(rows)))
        # an absent unit still counts where the number of units is public: zero_out
        if source.size is not None and not unit_rows:
            return {**self.fixed_data, source.name: ZeroOutData(columns, source.size)}
        return {**self.fixed_data, source.name: columns}


def _format_rows(rows: UnitRows) -> str:
    if not rows:
        return "no rows"
    counts: dict[str, int] = {}
    for row in rows:
        line = "(" + ", ".join(f"{k}={v!r}" for k, v in row.items()) + ")"
        counts[line] = counts.get(line, 0) + 1
    shown = [line if n == 1 else f"{n} times {line}" for line, n in counts.items()]
    rest = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(shown[:3]) + rest


def gallery(plan: Pipeline, *, limit: int = 200) -> list[DataPair]:
    """Return adversarial neighbouring pairs for each private data set of a plan.

    The first pairs are those that break most analyses: extreme corners, alone, among others, and
    at a tie; then rows of missing, infinite and undeclared cells; units with more rows than are
    allowed, and rows spread over the parts of partitions; then each threshold and the floats next
    to it.

    Parameters
    ----------
    plan
        Its declarations and constants are used. Public data sets are not in the pairs.
    limit
        The most pairs for each data set.

    Returns
    -------
    list of DataPair
        The pairs, data set by data set.

    Raises
    ------
    DeclarationError
        If the plan reads no declared table.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> pairs = gallery(dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=100))))
    >>> pairs[0].first, pairs[0].second
    ({'people': {'age': [0.0]}}, {'people': {'age': []}})
    """
    structure, pairs = plan.structure, []
    sources = _sources(structure)
    for source in sources:
        fixed_data = {s.name: _crowd_data(s, structure) for s in sources if s is not source}
        # lazily: pairs beyond the limit are never built
        candidates = (evolve(pair, fixed_data=fixed_data) for pair in _pairs(structure, source))
        pairs += list(itertools.islice(candidates, limit))
    return pairs


def _sources(structure: Structure) -> list[Source]:
    sources = [n.handle.operation for n in structure if isinstance(n.handle.operation, Source)]
    if not sources:
        raise DeclarationError(
            "the plan reads no table declared by dp.dataset(...), so it has no neighbouring data "
            "sets; pass pairs of your own"
        )
    return sources


def _crowd_data(source: Source, structure: Structure) -> Any:
    # ordinary rows, as many as are declared, for data sets that are equal in both
    rows = _cycled(_PairMaker.of(structure, source).ordinary, source.size or 3)
    return DataPair(source, rows, (), ()).first[source.name]


@frozen
class _PairMaker:
    """Rows of which the pairs of one data set are made, from its cells."""

    source: Source
    cells: Mapping[str, tuple[Any, ...]]
    most: int

    @classmethod
    def of(cls, structure: Structure, source: Source) -> _PairMaker:
        # the largest number of rows that the plan's bounds let one unit have
        row_bound = 1
        for node in structure:
            operation = node.handle.operation
            if not isinstance(operation, BoundOperation):
                continue
            if structure.lineage(node)[0].handle.operation == source:
                row_bound = max(row_bound, operation.rows)
        return cls(source, cells(structure, source), min(row_bound, 50))

    def row(self, pick: Callable[[int, tuple[Any, ...]], Any]) -> Row:
        return {name: pick(i, values) for i, (name, values) in enumerate(self.cells.items())}

    @property
    def corners(self) -> list[tuple[str, Row]]:
        """Rows of lowest and highest values, in so many patterns that any two columns part once.

        Where the columns of two releases never part, both move together, and what they share (the
        same noise, say) is not seen.
        """
        names = list(self.cells)

        def row(title: str, is_high: Callable[[int], bool]) -> tuple[str, Row]:
            # cell 0 is the lower bound or first category, cell 1 the upper bound or second
            return title, self.row(lambda i, values: values[is_high(i) % len(values)])

        rows = [
            row("the lowest values", lambda i: False),
            row("the highest values", lambda i: True),
        ]
        # the binary digits of a column's number, from 1: any two numbers differ in some digit
        for digit in range(len(names).bit_length() if len(names) > 1 else 0):
            high = [name for i, name in enumerate(names, 1) if i >> digit & 1]
            low = [name for name in names if name not in high]
            for columns in (high, low):
                title = f"the highest {_listed(columns)}, the lowest of the others"
                rows.append(row(title, lambda i, c=columns: names[i] in c))  # type: ignore[misc]
        return rows

    @property
    def bad(self) -> list[tuple[str, Row]]:
        # counted from the end of the tail of undeclared cells; the missing one is last
        positions = {"missing": -1, "minus infinity": -2, "infinity": -3, "not a number": -4}
        tails = {name: self._tail(name) for name in self.cells}
        return [
            # a column with fewer such cells repeats its first
            (title, {name: tail[max(k, -len(tail))] for name, tail in tails.items()})
            for title, k in positions.items()
        ]

    def _tail(self, name: str) -> tuple[Any, ...]:
        """Return the undeclared cells of a column, the missing one last."""
        column = self.source.columns[name]
        if isinstance(column, Categories):
            return tuple(v for v in self.cells[name] if v not in column.values)
        bad = [
            v
            for v in self.cells[name]
            if not isinstance(v, int | float) or abs(v) == float("inf") or v != v
        ]
        # sorted: NaN first, then infinity and minus infinity, so that positions from the end fit
        return (*sorted((v for v in bad if isinstance(v, float)), key=lambda v: (v == v, -v)), None)

    @property
    def ordinary(self) -> UnitRows:
        """One row for each category or threshold in turn, so that counts tie."""
        width = max((len(values) for values in self.cells.values()), default=1)
        return tuple(self.row(lambda i, v, k=k: v[k % len(v)]) for k in range(min(width, 12)))  # type: ignore[misc]

    def singles(self) -> Iterator[tuple[str, Row]]:
        """Yield rows that differ from a corner in one cell."""
        for _, base in self.corners[:2]:
            for name, values in self.cells.items():
                for value in values:
                    if value is not base[name]:
                        yield f"{name} = {value!r}", {**base, name: value}


def _pairs(structure: Structure, source: Source) -> Iterator[DataPair]:
    maker = _PairMaker.of(structure, source)
    seen: set[str] = set()
    for pair in _candidates(maker):
        others = pair.others
        if source.size is not None:
            # the number of units is public: the others fill it up
            others = _cycled(others or maker.ordinary[:1], source.size - 1)
        pair = evolve(pair, others=others)
        key = repr((pair.others, pair.before, pair.after))
        # equal rows before and after are no neighbours, and corners of few columns repeat
        if key not in seen and repr(pair.before) != repr(pair.after):
            seen.add(key)
            yield pair


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def _cycled(rows: UnitRows, count: int) -> UnitRows:
    return tuple(itertools.islice(itertools.cycle(rows), count))


def _candidates(maker: _PairMaker) -> Iterator[DataPair]:
    """Yield pairs, those that most often break an analysis first; some twice."""
    source, unit = maker.source, maker.source.unit is not None
    corners, bad = maker.corners, maker.bad
    crowds: list[UnitRows] = [(), maker.ordinary, (corners[0][1],) * 3, (corners[1][1],) * 3]

    def limited(rows: Sequence[Row]) -> UnitRows:
        # without a column of units each row is a unit of its own
        return tuple(rows) if unit else tuple(rows[:1])

    def pairs(title: str, unit_rows: UnitRows, crowd: UnitRows) -> Iterator[DataPair]:
        # add_remove and zero_out: the unit is present, or it is not
        if source.neighbors != "replace_one":
            yield DataPair(source, crowd, unit_rows, (), title)
            return
        # replace_one: rows of low values and of high values take its place
        for other in (corners[0][1], corners[1][1]):
            yield DataPair(source, crowd, unit_rows, limited([other] * maker.most), title)

    # extreme rows alone, among ordinary ones, and among copies of the extremes
    for crowd in crowds:
        for title, row in corners:
            yield from pairs(title, limited([row] * maker.most), crowd)
    for title, row in bad:
        for crowd in crowds[:2]:
            yield from pairs(title, limited([row] * maker.most), crowd)
    for title, row in corners[:2]:  # the same row many times: a tie, or a count at its threshold
        for count in (1, 2, 5, 10):
            yield from pairs(
                f"{title}, as {count} others", limited([row] * maker.most), (row,) * count
            )
    if unit:
        spread = _cycled(maker.ordinary, maker.most)
        yield from pairs("rows spread over categories", spread, maker.ordinary)
        # two rows above the bound: the plan must drop them, or loses more than it certifies
        over = _cycled(maker.ordinary, maker.most + 2)
        yield from pairs("more rows than are allowed", over, maker.ordinary)
        yield from pairs("one row", limited(spread[:1]), maker.ordinary)
    for crowd in (maker.ordinary, ()):
        for title, row in maker.singles():
            yield from pairs(title, limited([row] * maker.most), crowd)


def search(
    plan: Pipeline,
    measure: Callable[[DataPair], float],
    *,
    rounds: int = 200,
    keep: int = 4,
    limit: int = 60,
    seed: int = 0,
) -> tuple[DataPair, float]:
    """Return a pair on which a measure is large, by random changes of the gallery's best.

    Parameters
    ----------
    plan
        As for `gallery`.
    measure
        A function of a pair, larger where the two data sets are easier to tell apart: the change of
        a value, or the lower bound of a small audit. NaN counts as minus infinity. A noisy measure
        is largest where its noise is: confirm the result by an audit, whose runs are new.
    rounds
        The number of changes that are tried after the gallery.
    keep
        How many of the best pairs are changed in turn.
    limit
        How many pairs of each data set's gallery are measured first.
    seed
        Of the random changes.

    Returns
    -------
    tuple
        The best pair, and its measure.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=100)))
    >>> def moved(pair):  # equal seeds have equal noise
    ...     one, other = (plan.simulate(seed=1, **data) for data in (pair.first, pair.second))
    ...     return abs(one["total"] - other["total"])
    >>> pair, most = search(plan, moved, rounds=5, limit=20)
    >>> round(most)
    100
    """
    if rounds < 0 or keep < 1 or limit < 1:
        raise DeclarationError("search needs rounds >= 0, keep >= 1 and limit >= 1")
    random_source, structure = random.Random(seed), plan.structure

    def scored(pair: DataPair) -> tuple[DataPair, float]:
        value = float(measure(pair))
        # NaN would make comparisons, and so the order, arbitrary
        return pair, (value if value == value else -float("inf"))

    best = [scored(pair) for pair in gallery(plan, limit=limit)]
    best = sorted(best, key=lambda p: -p[1])[:keep]
    makers = {s.name: _PairMaker.of(structure, s) for s in _sources(structure)}
    for k in range(rounds):
        # the best pairs are changed in turn
        pair = best[k % len(best)][0]
        other = scored(_mutate(pair, makers[pair.source.name], random_source))
        # a pair that is listed already would fill the list with copies
        if all(repr(other[0]) != repr(listed) for listed, _ in best):
            best = sorted([*best, other], key=lambda p: -p[1])[:keep]
    return best[0]


def _mutate(pair: DataPair, maker: _PairMaker, random_source: random.Random) -> DataPair:
    """Return a neighbouring pair with something changed."""
    pair = evolve(pair, title="made by search")
    for _ in range(random_source.choice((1, 1, 2, 3))):
        # under add_remove and zero_out the second data set has no rows of the unit to change
        parts = ["others", "before"] + ["after"] * (pair.source.neighbors == "replace_one")
        part = random_source.choice(parts)
        rows = list(getattr(pair, part))
        change = random_source.choice(("cell", "cell", "cell", "add", "drop", "double"))
        # what must not change: a public number of units, and one row for a unit without a column
        is_fixed = pair.source.size is not None if part == "others" else pair.source.unit is None
        if change == "cell" and rows and maker.cells:
            i, name = random_source.randrange(len(rows)), random_source.choice(list(maker.cells))
            rows[i] = {
                **rows[i],
                name: _mutate_cell(rows[i][name], maker.cells[name], random_source),
            }
        elif change == "add" and not is_fixed:
            rows.append(maker.row(lambda _, values: random_source.choice(values)))
        # a unit that is present has at least one row
        elif change == "drop" and not is_fixed and len(rows) > (part != "others"):
            rows.pop(random_source.randrange(len(rows)))
        elif change == "double" and not is_fixed and len(rows) < 64:
            # the others are doubled all at once; of the unit one row is repeated
            rows += rows if part == "others" else rows[:1]
        fields: dict[str, Any] = {part: tuple(rows)}
        pair = evolve(pair, **fields)
    return pair


def _mutate_cell(cell: Any, values: tuple[Any, ...], random_source: random.Random) -> Any:
    """Return another cell: a listed one, or a number between the current one and it."""
    other = random_source.choice(values)
    are_floats = isinstance(cell, float) and isinstance(other, float)
    if are_floats and abs(cell) < 1e290 and abs(other) < 1e290 and random_source.random() < 0.6:
        # steps of 2^-k of the way to the other value, so that thresholds are reached at any scale
        return cell + (other - cell) * random_source.random() * 2.0 ** -random_source.randrange(12)
    return other


# -----------------------------------------------------------------------------
# Mixed data: the unit of a gallery's pair among the rows of the user's data.


@frozen(eq=False, repr=False)
class MixedData:
    """The user's data with one more unit, in place of another where the number is public.

    Parameters
    ----------
    data
        The user's data.
    own
        The rows of the added unit.
    size
        The public number of units: the first unit of the data is left out then. None if private.
    """

    data: FixedData
    own: UnitRows
    size: int | None

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        rows = self.data.in_memory(columns, unit)
        if self.size is not None and len(rows.units):
            # the public number stays: the added unit takes the place of the first
            rows = rows.take(rows.units != rows.units[0])
        if self.own and columns:
            own_columns = {name: [row[name] for row in self.own] for name in columns}
            added = read_rows(own_columns, columns, None).columns
        else:
            added = {name: column[:0] for name, column in rows.columns.items()}
            if self.own:  # a table without columns has rows to count
                added = {name: np.zeros(len(self.own), dtype=np.int64) for name in rows.columns}
        # a number that no unit of the data has
        new_unit = int(rows.units.max(initial=-1)) + 1
        units = np.concatenate([rows.units, np.full(len(self.own), new_unit, dtype=np.int64)])
        joined = {name: np.concatenate([c, added[name]]) for name, c in rows.columns.items()}
        if self.size is not None and not self.own:
            return FixedSizeRows(joined, units, self.size)
        return MemoryRows(joined, units)


def mixed_data(pair: DataPair, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both data sets of a pair, its unit among the user's data, not the pair's others."""
    source = pair.source
    first, second = (
        {**data, source.name: MixedData(data[source.name], unit_rows, source.size)}
        for unit_rows in (pair.before, pair.after)
    )
    return first, second
