"""Rows in parts that are never in memory together: files, or the memories of a cluster.

`PartitionedRows` implements `Rows` over any `Engine`. What reads columns happens where a part is.
What needs all rows of a unit (bounding, gathering, sampling) happens here, at the coordinator, on
the unit of each row and on which rows are selected: one bit a row, and with a unit column 8 bytes a
row in a temporary file. So parts never communicate with each other. A sample is drawn in the order
of the units and is the one that rows in memory would get: here, or by the parts, where each row is
a unit and there are many (see `adaptive_dp.data.sampling`).

Totals are integers, whose sum does not depend on the order: however rows are split, and whichever
part comes first, the total is the same to the last bit. A task reads nothing but its part, so that
one that is run again, after a worker was lost, gives the same result; each part counts once.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, count, pairwise
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import sampling
from adaptive_dp.data.cells import number_identities, str_codes
from adaptive_dp.data.engine import (
    Bools,
    Engine,
    Memory,
    NotSent,
    RowFilter,
    RowMask,
    SelectedRows,
    Task,
    narrowed_engine,
    pass_memory,
)
from adaptive_dp.data.grid import exact_add
from adaptive_dp.data.memory import MemoryRows, first_of_groups
from adaptive_dp.data.rows import BLOCK, Columns, Integers, Reading
from adaptive_dp.data.sampling import KeyedSample, PartSample, RandomSource, WordSample
from adaptive_dp.data.scan import Job, Scan

MEMORY_BYTES = 2**26
"""Arrays of up to so many bytes, 64 MiB, are kept in memory; longer ones in a temporary file."""


@frozen(eq=False, repr=False)
class PartitionedRows:
    """The rows of an engine's parts.

    Parameters
    ----------
    engine
        Holds the parts.
    codes
        The unit of each row of all parts, shape (rows,): -1 for rows without a unit, which are left
        out; None where each row is a unit of its own.
    masks
        Which rows are selected, one mask for each part; None for all.
    filters
        Applied to these rows, in order, whenever a part is read.
    sampled
        Selects some of these rows, before the filters; None for all.
    """

    engine: Engine
    codes: Integers | None = None
    masks: tuple[RowMask, ...] | None = None
    filters: tuple[RowFilter, ...] = ()
    sampled: KeyedSample | WordSample | None = None
    _cache: dict[str, Any] = field(factory=dict, init=False)

    def __repr__(self) -> str:
        return "<private rows>"

    def __reduce__(self) -> Any:
        return NotSent, ()  # a task's function may refer to the rows, but is sent without them

    @property
    def units(self) -> Integers:
        """The unit of each row, shape (n,)."""
        if "units" not in self._cache:
            pieces = (units for _, units in self._units_by_part())
            self._cache["units"] = concatenated(pieces, np.empty(0, dtype=np.int64))
        units: Integers = self._cache["units"]
        return units

    def size(self) -> int:
        """Return the number of units."""
        if self.codes is None:
            return sum(mask.count for mask in self._final_masks())
        return int(np.count_nonzero(self._present_units()))

    def where(self, keep: RowFilter) -> PartitionedRows:
        """Return the rows for which ``keep`` is True, which is evaluated when a part is read."""
        return evolve(self, filters=(*self.filters, keep))

    def bound(self, rows: int) -> PartitionedRows:
        """Return the first ``rows`` rows of each unit, in the order of the parts."""
        if self.codes is None:
            return self
        seen = np.zeros(self._code_count(), dtype=np.int64)  # rows of each unit in earlier parts
        masks = []
        for mask, units in self._units_by_part():
            order = np.argsort(units, kind="stable")
            ordered = units[order]
            first = np.searchsorted(ordered, ordered, side="left")
            chosen = np.empty(len(units), dtype=np.bool_)
            chosen[order] = np.arange(len(order)) - first + seen[ordered] < rows
            np.add.at(seen, units, 1)
            masks.append(mask.narrowed(chosen))
        return self._of(masks)

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> PartitionedRows:
        """Return, for each unit, its rows in its smallest part."""
        if self.codes is None:
            return self.where(lambda columns: np.asarray(part(columns)) >= 0)
        here = self._of(self._final_masks())
        indices = here._each(lambda rows: part(rows.columns), np.empty(0, dtype=np.int64))
        by_part = [indices[start:stop] for start, stop in pairwise(here._starts()[1])]
        # two passes: the least part of each unit first, since its rows may be anywhere
        least = np.full(self._code_count(), np.iinfo(np.int64).max)
        for own, (_, units) in zip(by_part, here._units_by_part(), strict=True):
            valid = own >= 0
            np.minimum.at(least, units[valid], own[valid])
        return self._of(
            [
                mask.narrowed((own >= 0) & (own == least[units]))
                for own, (mask, units) in zip(by_part, here._units_by_part(), strict=True)
            ]
        )

    def bound_groups(
        self, part: Callable[[Columns], NDArray[np.int64]], groups: int, rows: int
    ) -> PartitionedRows:
        """Return the first rows of each unit in each of its first parts, in the order of the parts.

        The rows of a unit may be anywhere, so the parts of all rows are looked at together.
        """
        if self.codes is None:  # each row is a unit of its own, in one part at most
            return self.where(lambda columns: np.asarray(part(columns)) >= 0)
        here = self._of(self._final_masks())
        parts = here._each(lambda rows: part(rows.columns), np.empty(0, dtype=np.int64))
        chosen = first_of_groups(np.asarray(here.units), np.asarray(parts), groups, rows)
        own = (chosen[start:stop] for start, stop in pairwise(here._starts()[1]))
        masks = (mask for mask, _ in here._units_by_part())
        return self._of([mask.narrowed(bits) for mask, bits in zip(masks, own, strict=True)])

    def among(self, units: Integers) -> PartitionedRows:
        """Return the rows of some units.

        Bits are stored even if all units are chosen, so that the time tells less about which are.
        """
        masks = []
        for mask, own in self._units_by_part():
            bits = mask.mask
            bits[bits] = np.isin(own, units)
            masks.append(RowMask(mask.length, np.packbits(bits), int(np.count_nonzero(bits))))
        return self._of(masks)

    def sample(self, rate: float, source: RandomSource) -> PartitionedRows:
        """Return the rows of a Poisson sample: one trial for each unit, in the units' order."""
        if self.codes is None:
            masks, starts = self._starts()
            if rate < 1 and starts[-1] > sampling.LOCAL_UNITS:
                interval = sampling.rate_interval(rate)
                return evolve(self._of(masks), sampled=_keyed_sample(interval, starts, source))
            chosen = sampling.poisson_sample(source, rate, starts[-1])
            own = (chosen[start:stop] for start, stop in pairwise(starts))
            return self._of([each.narrowed(bits) for each, bits in zip(masks, own, strict=True)])
        present = self._present_units()
        present[present] = sampling.poisson_sample(source, rate, int(np.count_nonzero(present)))
        return self._of([mask.narrowed(present[units]) for mask, units in self._units_by_part()])

    def split(self, cuts: Sequence[int], source: RandomSource) -> list[PartitionedRows]:
        """Return disjoint parts of the units, each unit in the one of its word's interval.

        See `adaptive_dp.data.sampling.cut_intervals`.
        """
        masks, starts = self._starts()
        intervals = sampling.cut_intervals(cuts)
        if self.codes is None and starts[-1] > sampling.LOCAL_UNITS:
            first: KeyedSample | WordSample = _keyed_sample(intervals[0], starts, source)
        else:
            first = WordSample(intervals[0], starts, self._words(source))
        here = self._of(masks)
        # all parts share the words, so each unit is in exactly one of them
        return [evolve(here, sampled=evolve(first, interval=each)) for each in intervals]

    def derived(
        self, block: Callable[[Columns], Mapping[str, NDArray[Any]]]
    ) -> PartitionedRows | None:
        """Return the same rows with other columns, which are computed once and kept.

        ``block`` maps columns of at most `BLOCK` rows to arrays of as many. None if the engine
        keeps nothing.
        """
        empty = self.engine.empty
        made = MemoryRows(dict(block(empty.columns)), empty.unit_numbers)
        tasks = self._tasks(lambda chosen: _mapped(chosen, block))
        engine = narrowed_engine(self.engine).derived(tasks, made)
        if engine is None:
            return None
        return PartitionedRows(engine, None if self.codes is None else self.units)

    @property
    def source(self) -> Any:
        """What identifies the rows before the filters."""
        return (id(self.engine), id(self.codes), id(self.masks), id(self.sampled))

    def scan(self, scan: Scan, columns: frozenset[str] | None) -> list[NDArray[Any]]:
        """Return the totals of a scan, in one pass over the parts."""
        # a scan that is taken up again is this very object, and reads the same columns
        return self._totals(scan, columns, pass_memory(self.engine, self.masks, scan))

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the exact sum over blocks: a scan of one sum."""
        # A computation that is taken up again makes its function anew, and with it the scan: the
        # pass is the same if the function's code is, and the rows are.
        code = getattr(block, "__code__", block)
        memory = pass_memory(self.engine, self.masks, self.sampled, code, *self.filters)
        (total,) = self._totals(Scan([Job(self.filters, block)]), None, memory)
        # a later pass by the same function may have other values in its closure: it begins anew
        memory.clear()
        return np.asarray(total, dtype=object)

    def _totals(
        self, scan: Scan, columns: frozenset[str] | None, memory: Memory
    ) -> list[NDArray[Any]]:
        engine = narrowed_engine(self.engine, columns)
        # the scan applies the filters, each of them once for all sums
        tasks = evolve(self, filters=())._tasks(partial(_scanned, scan=scan))
        folded = engine.fold(tasks, _add_each, memory)
        if folded is None or any(total is None for total in folded):
            # parts without blocks know no shape: that of no rows is the block's own
            empty = scan.of([(engine.empty.columns, 0)])
            pairs = zip(folded or empty, empty, strict=True)
            folded = [none if total is None else total for total, none in pairs]
        return [np.asarray(total) for total in folded]

    def fold(self, work: Callable[[SelectedRows], Any], add: Callable[[Any, Any], Any]) -> Any:
        """Return the sum of the work's results on all parts, in any order; None without parts."""
        pass_memory()  # this pass keeps nothing
        return narrowed_engine(self.engine).fold(self._tasks(work), add, {})

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return one number for each row; many are in a temporary file."""
        return self._each(lambda rows: block(rows.columns), np.empty(0, dtype=np.float64))

    def strings(self, column: Callable[[Columns], NDArray[Any]]) -> tuple[list[str], Integers]:
        """Return the distinct str of a column, and each row's position among them.

        Each part sends its own distinct str once a block, and every distinct one is in memory here.
        """
        places: dict[str, int] = {}

        def numbered() -> Iterator[Integers]:
            for part in self._map(partial(_strings, column=column)):
                for names, codes in part:
                    numbers = [places.setdefault(name, len(places)) for name in names]
                    # a row without a str has the code -1, the last of this array
                    yield np.array([*numbers, -1], dtype=np.int64)[codes]

        by_row = concatenated(numbered(), np.empty(0, dtype=np.int64))
        names = sorted(places)  # the order in which parts come tells nothing
        rank = np.full(len(names) + 1, -1, dtype=np.int64)
        rank[[places[name] for name in names]] = np.arange(len(names))
        return names, rank[by_row]

    def integer_rows(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return a vector of integers for each row; many are in a temporary file."""
        empty = self.engine.empty.integer_rows(block)
        return self._each(lambda rows: rows.integer_rows(block), empty)

    def _each(
        self, work: Callable[[MemoryRows], NDArray[Any]], empty: NDArray[Any]
    ) -> NDArray[Any]:
        parts = self._map(lambda chosen: [np.asarray(work(rows)) for rows in chosen])
        return concatenated((piece for pieces in parts for piece in pieces), empty)

    def _map(self, work: Callable[[SelectedRows], Any]) -> Iterator[Any]:
        pass_memory()  # this pass keeps nothing
        return narrowed_engine(self.engine).map(self._tasks(work))

    def _tasks(self, work: Callable[[SelectedRows], Any]) -> list[Task]:
        each = [None] * self.engine.count if self.masks is None else self.masks
        return [Task(work, self.filters, *self._selection(i, mask)) for i, mask in enumerate(each)]

    def _selection(
        self, part: int, mask: RowMask | None
    ) -> tuple[RowMask | None, PartSample | None]:
        """Return what selects the rows of a part: nothing of other parts is sent with a task."""
        if mask is None or self.sampled is None:
            return mask, None
        if isinstance(self.sampled, WordSample):
            return mask.narrowed(self.sampled.selected(part)), None
        return mask, self.sampled.of_part(part)

    def _of(self, masks: Sequence[RowMask]) -> PartitionedRows:
        return PartitionedRows(self.engine, self.codes, tuple(masks))

    def _final_masks(self) -> tuple[RowMask, ...]:
        """Return which rows are selected after all filters."""
        if "masks" not in self._cache:
            lengths = self.engine.lengths()
            plain = not self.filters and self.sampled is None
            if plain and self.masks is not None:
                chosen: Any = self.masks
            elif plain and lengths is not None:
                chosen = [RowMask(length, None, length) for length in lengths]
            else:
                chosen = self._map(_positions)
            self._cache["masks"] = tuple(chosen)
        masks: tuple[RowMask, ...] = self._cache["masks"]
        return masks

    def _starts(self) -> tuple[tuple[RowMask, ...], tuple[int, ...]]:
        """Return the masks, and how many selected rows come before each part, and in all."""
        masks = self._final_masks()
        return masks, tuple(accumulate((each.count for each in masks), initial=0))

    def _words(self, source: RandomSource) -> NDArray[np.uint64]:
        """Return the word of each selected row's unit; many are in a temporary file."""
        if self.codes is None:
            return sampling.words(source, self._starts()[1][-1])
        present = self._present_units()
        words = np.zeros(len(present), dtype=np.uint64)
        words[present] = sampling.words(source, int(np.count_nonzero(present)))
        return concatenated((words[units] for _, units in self._units_by_part()), words[:0])

    def _units_by_part(self) -> Iterator[tuple[RowMask, Integers]]:
        """Yield the mask of each part, and the units of the rows that it selects."""
        start = 0
        for mask in self._final_masks():
            if self.codes is None:
                yield mask, np.flatnonzero(mask.mask) + start
            else:
                yield mask, np.asarray(self.codes[start : start + mask.length])[mask.mask]
            start += mask.length

    def _code_count(self) -> int:
        assert self.codes is not None
        return int(self.codes.max(initial=-1)) + 1

    def _present_units(self) -> Bools:
        """Return which units have a selected row, shape (units of the data,)."""
        present = np.zeros(self._code_count(), dtype=np.bool_)
        for _, units in self._units_by_part():
            present[units] = True
        return present


def partitioned_rows(engine: Engine, unit: str | None, coded: bool = False) -> PartitionedRows:
    """Return the rows of an engine, with the unit of each of them.

    Identities are made of the column of units, in a pass that reads no other. It is read as the
    plan declares it: ``coded`` where it has categories that are not ``str``.

    Equal identifiers get equal integers in all parts, and unequal ones never do. The identifiers
    themselves are compared, not digests of them: two digests could be equal, and then one person's
    rows would push another's out of a bound. While the integers are assigned, every distinct
    identifier is in memory, at some 100 bytes each.
    """
    if unit is None:
        return PartitionedRows(engine)
    # as declared, so that the identities are those of the column that is read with the others
    reading: Reading = "code" if coded else "value"
    numbers_of = defaultdict[Any, int](count().__next__)
    lengths: list[int] = []

    def numbered() -> Iterator[Integers]:
        tasks = [Task(_Identities(unit))] * engine.count
        for identifiers in engine.only({unit: reading}).map(tasks):
            lengths.append(sum(len(own) for own, _ in identifiers))
            for own, keys in identifiers:
                listed = keys.tolist() if isinstance(keys, np.ndarray) else keys
                numbers = map(numbers_of.__getitem__, listed)
                # own is -1, the last of this array, where a row has no identifier
                yield np.array([*numbers, -1], dtype=np.int64)[own]

    codes = concatenated(numbered(), np.empty(0, dtype=np.int64))
    ends = np.cumsum(lengths)
    masks = [
        RowMask.of(np.asarray(codes[end - length : end]) >= 0)
        for end, length in zip(ends, lengths, strict=True)
    ]
    return PartitionedRows(engine, codes, tuple(masks))


class _Identities:
    """The work that returns the identities of a part's rows, block by block."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def __call__(self, chosen: SelectedRows) -> list[tuple[Integers, Any]]:
        return [number_identities(rows.columns[self.unit]) for rows in chosen]


def _keyed_sample(
    interval: sampling.Interval, starts: tuple[int, ...], source: RandomSource
) -> KeyedSample:
    children = sampling.new_children(source, starts[-1])
    return KeyedSample(interval, starts, sampling.CHILD_UNITS, children)


def _mapped(
    chosen: SelectedRows, block: Callable[[Columns], Mapping[str, NDArray[Any]]]
) -> Iterator[MemoryRows]:
    for rows in chosen:
        for start in range(0, max(1, rows.length), BLOCK):
            own = {name: column[start : start + BLOCK] for name, column in rows.columns.items()}
            yield MemoryRows(dict(block(own)), rows.unit_numbers[start : start + BLOCK])


def _strings(
    chosen: SelectedRows, column: Callable[[Columns], NDArray[Any]]
) -> list[tuple[list[str], Integers]]:
    return [str_codes(column(rows.columns)) for rows in chosen]


def _positions(chosen: SelectedRows) -> RowMask:
    units = [rows.units for rows in chosen]
    mask = np.zeros(chosen.length, dtype=np.bool_)
    for positions in units:
        mask[positions] = True
    return RowMask.of(mask)


def _scanned(chosen: SelectedRows, scan: Scan) -> list[NDArray[Any] | None]:
    return scan.of((rows.columns, rows.length) for rows in chosen)


def _add_each(a: list[NDArray[Any]] | None, b: list[NDArray[Any]] | None) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return [exact_add(x, y) for x, y in zip(a, b, strict=True)]


def concatenated(pieces: Iterable[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    """Return pieces one after the other, as one array that must not be written to.

    A long one lies in an overflow file: a temporary file without a name, which no other process can
    open and which is gone when the array is, however the process ends. (It is on the disk of
    ``TMPDIR``, not encrypted: that disk must be as trusted as the memory.)

    Parameters
    ----------
    pieces
        Arrays that differ in their first dimension alone.
    empty
        An array of no rows, of the same type and other dimensions.
    """
    held, size = [empty], 0
    left = iter(pieces)
    for piece in left:
        held.append(np.asarray(piece, dtype=empty.dtype))
        size += held[-1].nbytes
        if size > MEMORY_BYTES:
            break
    if size <= MEMORY_BYTES:
        return np.concatenate(held)
    length = 0
    with tempfile.TemporaryFile() as file:  # closed here; the memory map keeps it alive
        for piece in chain(held, left):
            array = np.ascontiguousarray(piece, dtype=empty.dtype)
            length += len(array)
            file.write(array.data.cast("B") if array.size else b"")
        file.flush()
        return np.memmap(file, dtype=empty.dtype, mode="r", shape=(length, *empty.shape[1:]))
