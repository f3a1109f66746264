"""Pairs of neighbouring data sets on which private analyses break, from what a plan declares.

A gallery is public: it comes from the declared columns, the neighbour relation and the constants
of the plan alone (bounds, clips, thresholds, edges, keys), never from data. `search` starts from
it and climbs to a pair on which some measure is larger.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from adaptive_dp.audit.marks import cells
from adaptive_dp.audit.zeroed import Zeroed
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.roles import BoundOperation
from adaptive_dp.graph.structure import Structure
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.source import Source

Row = Mapping[str, Any]
Own = tuple[Row, ...]
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
    beside
        Other data sets of the plan, the same on both sides, by name.
    """

    source: Source
    others: Own
    before: Own
    after: Own
    title: str = ""
    beside: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def words(self) -> str:
        """The pair, for the reader of an audit."""
        who = f"{self.source.name!r}: " + (f"{self.title}; " if self.title else "")
        return f"{who}{_told(self.before)} against {_told(self.after)}, beside {_told(self.others)}"

    @property
    def first(self) -> dict[str, Any]:
        """The data sets by name, each a mapping of columns to lists."""
        return self._data(self.before)

    @property
    def second(self) -> dict[str, Any]:
        """The same with the unit's rows exchanged, removed or zeroed."""
        return self._data(self.after)

    def _data(self, own: Own) -> dict[str, Any]:
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
            return {**self.beside, source.name: Zeroed(found, source.size)}
        return {**self.beside, source.name: found}


def _told(rows: Own) -> str:
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
        beside = {s.name: _crowd_data(s, structure) for s in all_of if s is not source}
        several = (evolve(pair, beside=beside) for pair in _pairs(structure, source))
        found += list(itertools.islice(several, limit))
    return found


def _sources(structure: Structure) -> list[Source]:
    found = [n.handle.operation for n in structure if isinstance(n.handle.operation, Source)]
    require(
        bool(found),
        "the plan reads no table that dataset(...) declares, so there are no neighbours",
    )
    return found


def _crowd_data(source: Source, structure: Structure) -> Any:
    rows = _filled(_Kit.of(structure, source).ordinary, source.size or 3)
    return DataPair(source, rows, (), ()).first[source.name]


@frozen
class _Kit:
    """What pairs of one data set are made of."""

    source: Source
    cells: Mapping[str, tuple[Any, ...]]
    most: int

    @classmethod
    def of(cls, structure: Structure, source: Source) -> _Kit:
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
    def ordinary(self) -> Own:
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
    kit = _Kit.of(structure, source)
    seen: set[str] = set()
    for pair in _candidates(kit):
        others = pair.others
        if source.size is not None:
            others = _filled(others or kit.ordinary[:1], source.size - 1)
        pair = evolve(pair, others=others)
        key = repr((pair.others, pair.before, pair.after))
        if key not in seen and repr(pair.before) != repr(pair.after):
            seen.add(key)
            yield pair


def _filled(rows: Own, count: int) -> Own:
    return tuple(itertools.islice(itertools.cycle(rows), count))


def _candidates(kit: _Kit) -> Iterator[DataPair]:
    """Yield pairs, the most telling first; some twice."""
    source, unit = kit.source, kit.source.unit is not None
    corners, bad = kit.corners, kit.bad
    crowds: list[Own] = [(), kit.ordinary, (corners[0][1],) * 3, (corners[1][1],) * 3]

    def shaped(rows: Sequence[Row]) -> Own:
        return tuple(rows) if unit else tuple(rows[:1])

    def pairs(title: str, own: Own, crowd: Own) -> Iterator[DataPair]:
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
        spread = _filled(kit.ordinary, kit.most)
        yield from pairs("rows spread over categories", spread, kit.ordinary)
        over = _filled(kit.ordinary, kit.most + 2)
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
    kits = {s.name: _Kit.of(structure, s) for s in _sources(structure)}
    for k in range(rounds):
        pair = best[k % len(best)][0]
        other = scored(_changed(pair, kits[pair.source.name], chance))
        if all(repr(other[0]) != repr(known) for known, _ in best):
            best = sorted([*best, other], key=lambda p: -p[1])[:keep]
    return best[0]


def _changed(pair: DataPair, kit: _Kit, chance: random.Random) -> DataPair:
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
            rows[i] = {**rows[i], name: _cell(rows[i][name], kit.cells[name], chance)}
        elif move == "add" and not fixed:
            rows.append(kit.row(lambda _, values: chance.choice(values)))
        elif move == "drop" and not fixed and len(rows) > (side != "others"):
            rows.pop(chance.randrange(len(rows)))
        elif move == "double" and not fixed and len(rows) < 64:
            rows += rows if side == "others" else rows[:1]
        changed: dict[str, Any] = {side: tuple(rows)}
        pair = evolve(pair, **changed)
    return pair


def _cell(now: Any, values: tuple[Any, ...], chance: random.Random) -> Any:
    """Return another cell: one of the list, or a number on the way to one of them."""
    other = chance.choice(values)
    numbers = isinstance(now, float) and isinstance(other, float)
    if numbers and abs(now) < 1e290 and abs(other) < 1e290 and chance.random() < 0.6:
        return now + (other - now) * chance.random() * 2.0 ** -chance.randrange(12)
    return other
