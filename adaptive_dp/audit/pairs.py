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

from adaptive_dp.audit.neighbors import FixedData
from adaptive_dp.data import MemoryRows, Reading, read_rows
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import BoundOperation
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.queries.domains import Ball, Categories, Column, ColumnOf, Interval
from adaptive_dp.queries.source import Source

# -----------------------------------------------------------------------------
# Where a plan treats a row's values differently: the cells on which neighbours are told apart.


MAX_CONSTANTS = 12
"""So many marks of a column are used."""

UNKNOWN = "no such category"
_UNKNOWN_NUMBER = -987_654_321


def cells(structure: Structure, source: Source) -> dict[str, tuple[Any, ...]]:
    """Return for each declared column the cells worth trying: bounds, thresholds, bad values."""
    marks = _plan_constants(structure, source)
    return {
        name: _distinct([*_declared_cells(column), *_nearby_values(marks.get(name, ()), column)])
        for name, column in source.columns.items()
    }


def _plan_constants(structure: Structure, source: Source) -> dict[str, list[Any]]:
    """Return by column the constants of the plan's operations that look at it."""
    found: dict[str, list[Any]] = {}
    for node in structure:
        if node.handle.visibility != "private":
            continue
        line = structure.lineage(node)
        if line[0].handle.operation is not source and line[0].handle.operation != source:
            continue
        for name in _columns_read(node, line):
            if name in source.columns:
                constants = _constants(node, structure)
                found.setdefault(name, []).extend(v for v in constants if v not in source.columns)
    return found


def _columns_read(node: Node, line: list[Node]) -> set[str]:
    """Return the columns that an operation looks at."""
    parameters = node.handle.operation.parameters()
    names = {v for k, v in parameters.items() if k in ("by", "column") and isinstance(v, str)}
    names |= {c[0] for c in parameters.get("conditions", ()) if isinstance(c, tuple)}
    steps = [step.handle.operation for step in line]
    names |= {step.name for step in steps if isinstance(step, ColumnOf)}
    domain = node.handle.inputs[0].domain if node.handle.inputs else None
    return names | set(domain.names if isinstance(domain, Ball) else ())


def _constants(node: Node, structure: Structure) -> Iterator[Any]:
    """Yield the numbers and texts among an operation's parameters, and its constant operands."""
    yield from _constant_leaves(list(node.handle.operation.parameters().values()))
    for name in node.inputs[1:]:
        value = structure.nodes[name].handle.operation
        if value.kind == "public":
            yield from _constant_leaves(list(value.parameters().values()))


def _constant_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, bool) or value is None or isinstance(value, Mechanism):
        return
    if isinstance(value, int | float | str):
        yield value
    elif isinstance(value, Mapping):
        yield from _constant_leaves(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _constant_leaves(each)
    elif isinstance(value, Interval | Categories):
        yield from _constant_leaves(list(attrs.asdict(value, recurse=False).values()))


def _nearby_values(marks: Any, column: Column) -> Iterator[Any]:
    """Yield each mark, and the numbers next to it on both sides."""
    texts = column is None or isinstance(column, Categories)
    known = column.values if isinstance(column, Categories) else ()
    numbers = not known or not isinstance(known[0], str)
    for mark in list(dict.fromkeys(marks))[:MAX_CONSTANTS]:
        if isinstance(mark, str):
            if texts and (column is None or mark in known):
                yield mark
        elif numbers and math.isfinite(mark) and abs(mark) < 1e290:
            yield from (
                float(mark),
                math.nextafter(mark, -math.inf),
                math.nextafter(mark, math.inf),
            )


def _declared_cells(column: Column) -> list[Any]:
    """Return cells of a column, the most telling first."""
    if isinstance(column, Interval):
        low, high = column.lower, column.upper
        wide = 10 * (high - low) + 1
        near = [low + (high - low) / 2, math.nextafter(low, high), math.nextafter(high, low)]
        return [low, high, *near, 0.0, low - wide, high + wide, math.nan, math.inf, -math.inf, None]
    if isinstance(column, Categories):
        strange = UNKNOWN if isinstance(column.values[0], str) else _UNKNOWN_NUMBER
        return [*column.values[:MAX_CONSTANTS], column.values[-1], strange, None]
    return [0.0, 1.0, -1.0, math.nan, math.inf, UNKNOWN, None]


def _distinct(values: list[Any]) -> tuple[Any, ...]:
    """Return the values without repetitions; 0, False and -0.0 are one, NaN is itself."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(repr(value) if value != value else value, value)
    return tuple(found.values())


# -----------------------------------------------------------------------------
# Data in which one unit counts as zero, though the number of units is declared.


@frozen(eq=False, repr=False)
class FixedSizeRows(MemoryRows):
    """Rows among a declared number of units, of which one may have none."""

    declared: int

    def size(self) -> int:
        """Return the declared number of units."""
        return self.declared


@frozen
class ZeroOutData:
    """Rows of all units but the zeroed one, which still counts among the declared number.

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
        found = read_rows(self.data, columns, unit)
        return FixedSizeRows(found.columns, found.units, self.size)


# -----------------------------------------------------------------------------
# Pairs of neighbouring data sets on which private analyses break, from what a plan declares.
#
# A gallery is public: it comes from the declared columns, the neighbour relation and the constants
# of the plan alone (bounds, clips, thresholds, edges, keys), never from data. `search` starts from
# it and climbs to a pair on which some measure is larger.


Row = Mapping[str, Any]
UnitRows = tuple[Row, ...]
"""The rows of one unit."""

UNIT = "the unit"
"""The identifier of the unit in which neighbours differ."""


@frozen
class DataPair:
    """Two neighbouring data sets: the others' rows, and the one unit's before and after.

    ``plan.run(**pair.first)`` and ``plan.run(**pair.second)`` run a plan on them.

    Parameters
    ----------
    source
        The declaration of the data set that differs.
    others
        The rows of the other units, each a unit of its own.
    before, after
        The unit's rows in the first data set and in the second; none where it is absent, or
        zeroed.
    title
        What is special about the pair.
    fixed_data
        Other data sets of the plan, the same on both sides, by name.
    """

    source: Source
    others: UnitRows
    before: UnitRows
    after: UnitRows
    title: str = ""
    fixed_data: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def words(self) -> str:
        """The pair, for the reader of an audit."""
        who = f"{self.source.name!r}: " + (f"{self.title}; " if self.title else "")
        before, after = _format_rows(self.before), _format_rows(self.after)
        return f"{who}{before} against {after}, beside {_format_rows(self.others)}"

    @property
    def first(self) -> dict[str, Any]:
        """The data sets by name, each a mapping of columns to lists."""
        return self._data(self.before)

    @property
    def second(self) -> dict[str, Any]:
        """The same with the unit's rows exchanged, removed or zeroed."""
        return self._data(self.after)

    def _data(self, own: UnitRows) -> dict[str, Any]:
        source = self.source
        half = len(self.others) // 2  # neither the first nor the last in the data
        rows = [*self.others[:half], *own, *self.others[half:]]
        found: dict[str, Any] = {name: [row[name] for row in rows] for name in source.columns}
        if source.unit is not None:
            places = [*range(half), *([-1] * len(own)), *range(half, len(self.others))]
            found[source.unit] = [UNIT if i < 0 else f"unit {i}" for i in places]
        elif not found:  # a table without columns has rows to count
            found["row"] = list(range(len(rows)))
        if source.size is not None and not own:
            return {**self.fixed_data, source.name: ZeroOutData(found, source.size)}
        return {**self.fixed_data, source.name: found}


def _format_rows(rows: UnitRows) -> str:
    if not rows:
        return "no rows"
    counted: dict[str, int] = {}
    for row in rows:
        text = "(" + ", ".join(f"{k}={v!r}" for k, v in row.items()) + ")"
        counted[text] = counted.get(text, 0) + 1
    shown = [text if n == 1 else f"{n} times {text}" for text, n in counted.items()]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(shown[:3]) + more


def gallery(plan: Pipeline, *, limit: int = 200) -> list[DataPair]:
    """Return adversarial neighbouring pairs for each private data set of a plan.

    The first pairs are those that break the most: extreme corners, alone, in a crowd, and at a
    tie; then rows of missing, infinite and undeclared cells; units with more rows than are
    allowed, and rows spread over the parts of partitions; then each threshold and the numbers
    next to it.

    Parameters
    ----------
    plan
        Of which the declarations and constants are used. Public data sets are not in the pairs.
    limit
        At most so many pairs for each data set.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> pairs = gallery(dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=100))))
    >>> pairs[0].first, pairs[0].second
    ({'people': {'age': [0.0]}}, {'people': {'age': []}})
    """
    structure, found = plan.structure, []
    all_of = _sources(structure)
    for source in all_of:
        fixed_data = {s.name: _crowd_data(s, structure) for s in all_of if s is not source}
        several = (evolve(pair, fixed_data=fixed_data) for pair in _pairs(structure, source))
        found += list(itertools.islice(several, limit))
    return found


def _sources(structure: Structure) -> list[Source]:
    found = [n.handle.operation for n in structure if isinstance(n.handle.operation, Source)]
    if not found:
        raise DeclarationError(
            "the plan reads no table that dataset(...) declares, so there are no neighbours"
        )
    return found


def _crowd_data(source: Source, structure: Structure) -> Any:
    rows = _cycled(_PairMaker.of(structure, source).ordinary, source.size or 3)
    return DataPair(source, rows, (), ()).first[source.name]


@frozen
class _PairMaker:
    """What pairs of one data set are made of."""

    source: Source
    cells: Mapping[str, tuple[Any, ...]]
    most: int

    @classmethod
    def of(cls, structure: Structure, source: Source) -> _PairMaker:
        most = 1
        for node in structure:
            operation = node.handle.operation
            if not isinstance(operation, BoundOperation):
                continue
            if structure.lineage(node)[0].handle.operation == source:
                most = max(most, operation.rows)
        return cls(source, cells(structure, source), min(most, 50))

    def row(self, pick: Callable[[int, tuple[Any, ...]], Any]) -> Row:
        return {name: pick(i, values) for i, (name, values) in enumerate(self.cells.items())}

    @property
    def corners(self) -> list[tuple[str, Row]]:
        named = {
            "the lowest values": lambda i, v: v[0],
            "the highest values": lambda i, v: v[1 % len(v)],
            "low and high in turn": lambda i, v: v[i % 2 % len(v)],
            "high and low in turn": lambda i, v: v[(i + 1) % 2 % len(v)],
        }
        return [(title, self.row(pick)) for title, pick in named.items()]

    @property
    def bad(self) -> list[tuple[str, Row]]:
        back = {"missing": -1, "minus infinity": -2, "infinity": -3, "not a number": -4}
        ends = {name: self._tail(name) for name in self.cells}
        return [
            (title, {name: tail[max(k, -len(tail))] for name, tail in ends.items()})
            for title, k in back.items()
        ]

    def _tail(self, name: str) -> tuple[Any, ...]:
        """Return the bad cells of a column, missing last."""
        if isinstance(self.source.columns[name], Categories):
            return tuple(v for v in self.cells[name] if v not in self._keys(name))
        bad = [
            v
            for v in self.cells[name]
            if not isinstance(v, int | float) or abs(v) == float("inf") or v != v
        ]
        return (*sorted((v for v in bad if isinstance(v, float)), key=lambda v: (v == v, -v)), None)

    def _keys(self, name: str) -> tuple[Any, ...]:
        column = self.source.columns[name]
        return column.values if isinstance(column, Categories) else ()

    @property
    def ordinary(self) -> UnitRows:
        """One row for each category or threshold in turn: a crowd that ties."""
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
    kit = _PairMaker.of(structure, source)
    seen: set[str] = set()
    for pair in _candidates(kit):
        others = pair.others
        if source.size is not None:
            others = _cycled(others or kit.ordinary[:1], source.size - 1)
        pair = evolve(pair, others=others)
        key = repr((pair.others, pair.before, pair.after))
        if key not in seen and repr(pair.before) != repr(pair.after):
            seen.add(key)
            yield pair


def _cycled(rows: UnitRows, count: int) -> UnitRows:
    return tuple(itertools.islice(itertools.cycle(rows), count))


def _candidates(kit: _PairMaker) -> Iterator[DataPair]:
    """Yield pairs, the most telling first; some twice."""
    source, unit = kit.source, kit.source.unit is not None
    corners, bad = kit.corners, kit.bad
    crowds: list[UnitRows] = [(), kit.ordinary, (corners[0][1],) * 3, (corners[1][1],) * 3]

    def shaped(rows: Sequence[Row]) -> UnitRows:
        return tuple(rows) if unit else tuple(rows[:1])

    def pairs(title: str, own: UnitRows, crowd: UnitRows) -> Iterator[DataPair]:
        if source.neighbors != "replace_one":
            yield DataPair(source, crowd, own, (), title)
            return
        for other in (corners[0][1], corners[1][1]):
            yield DataPair(source, crowd, own, shaped([other] * kit.most), title)

    for crowd in crowds:
        for title, row in corners:
            yield from pairs(title, shaped([row] * kit.most), crowd)
    for title, row in bad:
        for crowd in crowds[:2]:
            yield from pairs(title, shaped([row] * kit.most), crowd)
    for title, row in corners[:2]:  # the same row many times: a tie, or a count at its threshold
        for count in (1, 2, 5, 10):
            yield from pairs(
                f"{title}, as {count} others", shaped([row] * kit.most), (row,) * count
            )
    if unit:
        spread = _cycled(kit.ordinary, kit.most)
        yield from pairs("rows spread over categories", spread, kit.ordinary)
        over = _cycled(kit.ordinary, kit.most + 2)
        yield from pairs("more rows than are allowed", over, kit.ordinary)
        yield from pairs("one row", shaped(spread[:1]), kit.ordinary)
    for crowd in (kit.ordinary, ()):
        for title, row in kit.singles():
            yield from pairs(title, shaped([row] * kit.most), crowd)


def search(
    plan: Pipeline,
    measure: Callable[[DataPair], float],
    *,
    rounds: int = 200,
    keep: int = 4,
    limit: int = 60,
    seed: int = 0,
) -> tuple[DataPair, float]:
    """Climb from the gallery to a pair on which a measure is as large as is found.

    Parameters
    ----------
    plan
        As for `gallery`.
    measure
        The larger, the better the two data sets are told apart: the move of a value, or the lower
        bound that a small audit gives. NaN counts as nothing. What a noisy measure found must be
        confirmed by fresh runs.
    rounds
        Changes that are tried, beside the gallery.
    keep
        So many of the best pairs are changed in turn.
    limit
        So many pairs of each gallery are measured first.
    seed
        Of the search.

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
    chance, structure = random.Random(seed), plan.structure

    def scored(pair: DataPair) -> tuple[DataPair, float]:
        found = float(measure(pair))
        return pair, (found if found == found else -float("inf"))

    best = [scored(pair) for pair in gallery(plan, limit=limit)]
    best = sorted(best, key=lambda p: -p[1])[:keep]
    kits = {s.name: _PairMaker.of(structure, s) for s in _sources(structure)}
    for k in range(rounds):
        pair = best[k % len(best)][0]
        other = scored(_mutate(pair, kits[pair.source.name], chance))
        if all(repr(other[0]) != repr(known) for known, _ in best):
            best = sorted([*best, other], key=lambda p: -p[1])[:keep]
    return best[0]


def _mutate(pair: DataPair, kit: _PairMaker, chance: random.Random) -> DataPair:
    """Return a neighbouring pair with something changed."""
    pair = evolve(pair, title="found by search")
    for _ in range(chance.choice((1, 1, 2, 3))):
        sides = ["others", "before"] + ["after"] * (pair.source.neighbors == "replace_one")
        side = chance.choice(sides)
        rows = list(getattr(pair, side))
        move = chance.choice(("cell", "cell", "cell", "add", "drop", "double"))
        fixed = pair.source.size is not None if side == "others" else pair.source.unit is None
        if move == "cell" and rows and kit.cells:
            i, name = chance.randrange(len(rows)), chance.choice(list(kit.cells))
            rows[i] = {**rows[i], name: _mutate_cell(rows[i][name], kit.cells[name], chance)}
        elif move == "add" and not fixed:
            rows.append(kit.row(lambda _, values: chance.choice(values)))
        elif move == "drop" and not fixed and len(rows) > (side != "others"):
            rows.pop(chance.randrange(len(rows)))
        elif move == "double" and not fixed and len(rows) < 64:
            rows += rows if side == "others" else rows[:1]
        changed: dict[str, Any] = {side: tuple(rows)}
        pair = evolve(pair, **changed)
    return pair


def _mutate_cell(now: Any, values: tuple[Any, ...], chance: random.Random) -> Any:
    """Return another cell: one of the list, or a number on the way to one of them."""
    other = chance.choice(values)
    numbers = isinstance(now, float) and isinstance(other, float)
    if numbers and abs(now) < 1e290 and abs(other) < 1e290 and chance.random() < 0.6:
        return now + (other - now) * chance.random() * 2.0 ** -chance.randrange(12)
    return other


# -----------------------------------------------------------------------------
# A unit of a gallery put among the rows of given data.


@frozen(eq=False, repr=False)
class MixedData:
    """Given data with the rows of one more unit; where the number of units is public, of one else.

    Parameters
    ----------
    data
        What the data set reads.
    own
        The unit's rows.
    size
        The public number of units: the first unit of the data makes room then.
    """

    data: FixedData
    own: UnitRows
    size: int | None

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        found = self.data.in_memory(columns, unit)
        if self.size is not None and len(found.units):
            found = found.take(found.units != found.units[0])
        if self.own and columns:
            more = {name: [row[name] for row in self.own] for name in columns}
            added = read_rows(more, columns, None).columns
        else:
            added = {name: column[:0] for name, column in found.columns.items()}
            if self.own:  # a table without columns has rows to count
                added = {name: np.zeros(len(self.own), dtype=np.int64) for name in found.columns}
        fresh = int(found.units.max(initial=-1)) + 1
        units = np.concatenate([found.units, np.full(len(self.own), fresh, dtype=np.int64)])
        joined = {name: np.concatenate([c, added[name]]) for name, c in found.columns.items()}
        if self.size is not None and not self.own:
            return FixedSizeRows(joined, units, self.size)
        return MemoryRows(joined, units)


def mixed_data(pair: DataPair, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both data sets of a pair, its unit among given data instead of the pair's others."""
    source = pair.source
    one, two = (
        {**data, source.name: MixedData(data[source.name], own, source.size)}
        for own in (pair.before, pair.after)
    )
    return one, two
