"""Rows in parts that are never in memory together: files, or the memories of a cluster.

An `Engine` has the parts and carries tasks to them; `PartedRows` is `Rows` over any engine. What
reads columns happens where a part is. What needs all rows of a unit (bounding, gathering,
sampling) happens here, at the coordinator, on whose each row is and which rows are kept: a bit a
row, and with a unit column 8 bytes a row in a temporary file. So parts never speak to each other.
Coins are tossed in the order of the units, and are those that rows in memory would get: here, or,
where each row is a unit and there are many, by the parts (see `adaptive_dp.rows.lots`).

Totals are whole numbers, whose sum knows no order: however rows are split, whichever part comes
first, they are the same to the last bit. A part counts once: a task reads nothing but its part,
so that one that is run again, after a worker was lost, gives what the first would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.rows import attempts, lots
from adaptive_dp.rows.lots import Coins, Lot, Lots, Rowwise
from adaptive_dp.rows.memory import MemoryRows
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import BLOCK, Columns, Integers
from adaptive_dp.rows.spill import collected

Bools = NDArray[np.bool_]
Keep = Callable[[Columns], Bools]

EXACT = 2**62
"""Sums of int64 are kept as such up to here; larger ones are Python integers."""


@frozen(eq=False, repr=False)
class Kept:
    """Which rows of a part are kept.

    Parameters
    ----------
    length
        How many rows the part has.
    bits
        Packed, eight rows a byte; None where all are kept.
    count
        How many are kept.
    """

    length: int
    bits: NDArray[np.uint8] | None
    count: int

    @staticmethod
    def of(mask: Bools) -> Kept:
        """Return what a mask of shape (length,) keeps."""
        count = int(np.count_nonzero(mask))
        return Kept(len(mask), None if count == len(mask) else np.packbits(mask), count)

    @property
    def mask(self) -> Bools:
        """Shape (length,)."""
        if self.bits is None:
            return np.ones(self.length, dtype=np.bool_)
        return np.unpackbits(self.bits, count=self.length).view(np.bool_)

    def only(self, chosen: Bools) -> Kept:
        """Return what is left where only some of the kept, shape (count,), are chosen."""
        mask = self.mask
        mask[mask] = chosen
        return Kept.of(mask)


@frozen(eq=False, repr=False)
class Task:
    """Something to do with the kept rows of one part: a function of that part alone.

    A lot picks some of the kept, before the filters.
    """

    work: Callable[[Chosen], Any]
    filters: tuple[Keep, ...] = ()
    kept: Kept | None = None
    lot: Lot | None = None

    def __call__(self, blocks: Iterator[MemoryRows]) -> Any:
        """Return what the work makes of the part, given its rows in blocks of any size."""
        return self.work(Chosen(blocks, self.filters, self.kept, self.lot))


class Engine(Protocol):
    """What has the parts: in what order, is the order of the rows."""

    @property
    def count(self) -> int:
        """How many parts there are."""
        ...

    @property
    def empty(self) -> MemoryRows:
        """Rows of none of them: columns of their types, without cells."""
        ...

    def lengths(self) -> Sequence[int] | None:
        """Return how many rows each part has, if that is known without reading them."""
        ...

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield what the part's task makes of each part, in order."""
        ...

    def fold(
        self, tasks: Sequence[Task], add: Callable[[Any, Any], Any], memory: attempts.Memory
    ) -> Any:
        """Return the results of all added up, in any order; None without parts.

        What is done is put into ``memory``: if that is given again, it is not done again.
        """
        ...

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> Engine | None:
        """Return an engine whose parts are the rows that the tasks yield of these, and kept.

        Each is computed once and stays where it is; None of an engine that keeps nothing.
        """
        ...


class Chosen:
    """The kept rows of a part, block by block; `units` of a block are positions in the part."""

    def __init__(
        self,
        blocks: Iterator[MemoryRows],
        filters: tuple[Keep, ...],
        kept: Kept | None,
        lot: Lot | None = None,
    ) -> None:
        self._blocks, self._filters, self._kept, self._lot = blocks, filters, kept, lot
        self.length = 0

    def __iter__(self) -> Iterator[MemoryRows]:
        mask = None
        if self._kept is not None and not (self._kept.bits is None and self._lot is None):
            mask = self._kept.mask
            if self._lot is not None:
                mask[mask] = self._lot.picked()
        for block in self._blocks:
            start, self.length = self.length, self.length + len(block.units)
            rows = MemoryRows(block.columns, np.arange(start, self.length, dtype=np.int64))
            if mask is not None:
                if self.length > len(mask):
                    break
                rows = rows.take(mask[start : self.length])
            for keep in self._filters:
                rows = rows.where(keep)
            yield rows
        if self._kept is not None and self.length != self._kept.length:
            raise SchemaError("the data changed while they were read")


@frozen(eq=False, repr=False)
class PartedRows:
    """Rows of an engine's parts.

    Parameters
    ----------
    engine
        Which has them.
    codes
        Whose each row of all parts is, shape (rows,): -1 for nobody's, which is left out; None
        where each row is a unit of its own.
    kept
        Which rows are kept, a value for each part; None for all.
    filters
        What is applied to those, in order, whenever a part is read.
    lots
        What picks some of the kept, before the filters; None for nothing.
    """

    engine: Engine
    codes: Integers | None = None
    kept: tuple[Kept, ...] | None = None
    filters: tuple[Keep, ...] = ()
    lots: Lots | Rowwise | None = None
    _known: dict[str, Any] = field(factory=dict, init=False)

    def __repr__(self) -> str:
        return "<private rows>"

    def __reduce__(self) -> Any:
        return Elsewhere, ()  # a task may hold on to them, but is sent to a part without them

    @property
    def units(self) -> Integers:
        """Whose each row is, shape (n,)."""
        if "units" not in self._known:
            found = (whose for _, whose in self._whose())
            self._known["units"] = collected(found, np.empty(0, dtype=np.int64))
        units: Integers = self._known["units"]
        return units

    def size(self) -> int:
        """Return the number of units."""
        if self.codes is None:
            return sum(kept.count for kept in self._resolved())
        return int(np.count_nonzero(self._present()))

    def where(self, keep: Keep) -> PartedRows:
        """Return the rows for which ``keep`` is True, as each part will tell when it is read."""
        return evolve(self, filters=(*self.filters, keep))

    def bound(self, rows: int) -> PartedRows:
        """Return the first ``rows`` rows of each unit, in the order of the parts."""
        if self.codes is None:
            return self
        seen = np.zeros(self._people(), dtype=np.int64)
        found = []
        for kept, whose in self._whose():
            order = np.argsort(whose, kind="stable")
            ordered = whose[order]
            first = np.searchsorted(ordered, ordered, side="left")
            mask = np.empty(len(whose), dtype=np.bool_)
            mask[order] = np.arange(len(order)) - first + seen[ordered] < rows
            np.add.at(seen, whose, 1)
            found.append(kept.only(mask))
        return self._of(found)

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> PartedRows:
        """Return, of each unit, the rows in its least part."""
        if self.codes is None:
            return self.where(lambda columns: np.asarray(part(columns)) >= 0)
        here = self._of(self._resolved())
        parts = here._each(part, np.empty(0, dtype=np.int64))
        least = np.full(self._people(), np.iinfo(np.int64).max)
        at = 0
        for kept, whose in here._whose():
            own = parts[at : at + kept.count]
            valid = own >= 0
            np.minimum.at(least, whose[valid], own[valid])
            at += kept.count
        found, at = [], 0
        for kept, whose in here._whose():
            own = parts[at : at + kept.count]
            found.append(kept.only((own >= 0) & (own == least[whose])))
            at += kept.count
        return self._of(found)

    def among(self, units: Integers) -> PartedRows:
        """Return the rows of some units; bits are kept even if all are, so that time tells less."""
        found = []
        for kept, whose in self._whose():
            mask = kept.mask
            mask[mask] = np.isin(whose, units)
            found.append(Kept(kept.length, np.packbits(mask), int(np.count_nonzero(mask))))
        return self._of(found)

    def sample(self, rate: float, source: Coins) -> PartedRows:
        """Return the rows of the units whose coin came up: one a unit, in the units' order."""
        if self.codes is None:
            kept, starts = self._starts()
            if rate < 1 and starts[-1] > lots.HERE:
                return evolve(self._of(kept), lots=_lots(lots.below(rate), starts, source))
            coins = lots.coins(source, rate, starts[-1])
            own = (coins[start:stop] for start, stop in pairwise(starts))
            return self._of([each.only(mask) for each, mask in zip(kept, own, strict=True)])
        present = self._present()
        present[present] = lots.coins(source, rate, int(np.count_nonzero(present)))
        return self._of([kept.only(present[whose]) for kept, whose in self._whose()])

    def parted(self, cuts: Sequence[int], source: Coins) -> list[PartedRows]:
        """Return disjoint parts of the units, each in one by its own word: see `lots.between`."""
        kept, starts = self._starts()
        intervals = lots.between(cuts)
        if self.codes is None and starts[-1] > lots.HERE:
            first: Lots | Rowwise = _lots(intervals[0], starts, source)
        else:
            first = Rowwise(intervals[0], starts, self._words(source))
        here = self._of(kept)
        return [evolve(here, lots=evolve(first, interval=each)) for each in intervals]

    def derived(self, block: Callable[[Columns], Mapping[str, NDArray[Any]]]) -> PartedRows | None:
        """Return the same rows with other columns, which are computed once and kept.

        ``block`` maps columns of at most `BLOCK` rows to arrays of as many. None where the engine
        keeps nothing.
        """
        empty = self.engine.empty
        made = MemoryRows(dict(block(empty.columns)), empty.units)
        engine = self.engine.derived(self._tasks(lambda chosen: _mapped(chosen, block)), made)
        if engine is None:
            return None
        return PartedRows(engine, None if self.codes is None else self.units)

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the exact sum over blocks."""
        code = getattr(block, "__code__", block)
        memory = attempts.memory(self.engine, self.kept, self.lots, code, *self.filters)
        found = self.engine.fold(self._tasks(lambda chosen: _total(chosen, block)), plus, memory)
        memory.clear()  # another pass, by the same function with other values, is none of it
        return self.engine.empty.total(block) if found is None else np.asarray(found, dtype=object)

    def folded(self, work: Callable[[Chosen], Any], add: Callable[[Any, Any], Any]) -> Any:
        """Return what work makes of the parts, added up in any order; None without parts."""
        attempts.memory()  # a pass that keeps nothing
        return self.engine.fold(self._tasks(work), add, {})

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return each row's number; many lie in a temporary file."""
        return self._each(block, np.empty(0, dtype=np.float64))

    def gathered(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return each row's whole numbers; many lie in a temporary file."""
        empty = self.engine.empty.gathered(block)
        parts = self._map(lambda chosen: [rows.gathered(block) for rows in chosen])
        return collected((piece for found in parts for piece in found), empty)

    def _each(self, block: Callable[[Columns], NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
        parts = self._map(lambda chosen: [np.asarray(block(rows.columns)) for rows in chosen])
        return collected((piece for found in parts for piece in found), empty)

    def _map(self, work: Callable[[Chosen], Any]) -> Iterator[Any]:
        attempts.memory()  # a pass that keeps nothing
        return self.engine.map(self._tasks(work))

    def _tasks(self, work: Callable[[Chosen], Any]) -> list[Task]:
        each = [None] * self.engine.count if self.kept is None else self.kept
        return [Task(work, self.filters, *self._picked(i, kept)) for i, kept in enumerate(each)]

    def _picked(self, part: int, kept: Kept | None) -> tuple[Kept | None, Lot | None]:
        if kept is None or self.lots is None:
            return kept, None
        if isinstance(self.lots, Rowwise):
            return kept.only(self.lots.bits(part)), None
        return kept, self.lots.of(part)

    def _of(self, kept: Sequence[Kept]) -> PartedRows:
        return PartedRows(self.engine, self.codes, tuple(kept))

    def _resolved(self) -> tuple[Kept, ...]:
        """Return which rows are kept after all filters."""
        if "kept" not in self._known:
            lengths = self.engine.lengths()
            plain = not self.filters and self.lots is None
            if plain and self.kept is not None:
                found: Any = self.kept
            elif plain and lengths is not None:
                found = [Kept(length, None, length) for length in lengths]
            else:
                found = self._map(_positions)
            self._known["kept"] = tuple(found)
        kept: tuple[Kept, ...] = self._known["kept"]
        return kept

    def _starts(self) -> tuple[tuple[Kept, ...], tuple[int, ...]]:
        """Return which rows are kept, and how many of them come before each part, and in all."""
        kept = self._resolved()
        return kept, tuple(accumulate((each.count for each in kept), initial=0))

    def _words(self, source: Coins) -> NDArray[np.uint64]:
        """Return each kept row's word, which is its unit's; many lie in a temporary file."""
        if self.codes is None:
            return lots.words(source, self._starts()[1][-1])
        present = self._present()
        words = np.zeros(len(present), dtype=np.uint64)
        words[present] = lots.words(source, int(np.count_nonzero(present)))
        return collected((words[whose] for _, whose in self._whose()), words[:0])

    def _whose(self) -> Iterator[tuple[Kept, Integers]]:
        """Yield what is kept of each part, and whose those rows are."""
        start = 0
        for kept in self._resolved():
            if self.codes is None:
                yield kept, np.flatnonzero(kept.mask) + start
            else:
                yield kept, np.asarray(self.codes[start : start + kept.length])[kept.mask]
            start += kept.length

    def _people(self) -> int:
        assert self.codes is not None
        return int(self.codes.max(initial=-1)) + 1

    def _present(self) -> Bools:
        """Return which units have a row, shape (units of the data,)."""
        found = np.zeros(self._people(), dtype=np.bool_)
        for _, whose in self._whose():
            found[whose] = True
        return found


class Elsewhere:
    """What rows are for a task that has travelled: nothing that can be read."""


def _lots(interval: lots.Interval, starts: tuple[int, ...], source: Coins) -> Lots:
    return Lots(interval, starts, lots.BLOCK, lots.born(source, starts[-1]))


def _mapped(
    chosen: Chosen, block: Callable[[Columns], Mapping[str, NDArray[Any]]]
) -> Iterator[MemoryRows]:
    for rows in chosen:
        for start in range(0, max(1, len(rows.units)), BLOCK):
            own = {name: column[start : start + BLOCK] for name, column in rows.columns.items()}
            yield MemoryRows(dict(block(own)), rows.units[start : start + BLOCK])


def _positions(chosen: Chosen) -> Kept:
    found = [rows.units for rows in chosen]
    mask = np.zeros(chosen.length, dtype=np.bool_)
    for positions in found:
        mask[positions] = True
    return Kept.of(mask)


def _total(chosen: Chosen, block: Callable[[Columns], Integers]) -> Any:
    return reduce(plus, (rows.total(block) for rows in chosen if len(rows.units)), None)


def plus(a: Any, b: Any) -> Any:
    """Return the exact sum of two whole numbers or arrays of them; None is that of no rows."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, np.ndarray):
        if a.dtype != object and b.dtype != object and _largest(a) + _largest(b) < EXACT:
            return a + b
        return a.astype(object) + b
    return int(a) + int(b)  # an int64 would overflow


def _largest(a: NDArray[Any]) -> int:
    return max(int(a.max(initial=0)), -int(a.min(initial=0)))
