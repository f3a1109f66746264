"""One pass over rows for many sums.

A query that is a sum over rows says which rows, what a block of them adds, and what becomes of the
total (`RowSum`). `totals` computes many of them: those over the same data are one pass, which reads
only the columns that they need. Within a pass

* equal sums are one,
* what several sums need of a block (a column's grid, a key's codes, a filter's mask) is computed
  once for that block (`Batch.once`),
* sums that differ only in the part of a partition that they are over are one scatter-add of all
  parts (`Cells`).

All of this is exact: totals are sums of integers, so neither the order of blocks nor what they are
computed with changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from adaptive_dp.data import grid
from adaptive_dp.data.rows import BLOCK, Columns, Integers, Rows
from adaptive_dp.data.sampling import RandomSource

MORE_ROWS = 4 * BLOCK
"""Rows in a block of sums that are all exact for so many (`rows_at_once`)."""

PART_CELLS = 2**24
"""The most cells that sums over parts are joined into."""

WEIGHT_BITS = 24
"""The weights of `Cells` are at most 2^24 in size."""


class RowFunction:
    """A function of a block of columns that treats each row by itself; a base class.

    It returns an array whose first axis is the rows. Two that are equal return the same, so that a
    pass computes one of them (`Batch.once`).
    """

    def __call__(self, columns: Columns) -> NDArray[Any]:
        """Return the function's value for each row of a block."""
        raise NotImplementedError


class Batch(Mapping[str, NDArray[Any]]):
    """A block of rows that remembers what was computed of it.

    Parameters
    ----------
    columns
        Arrays of ``size`` rows.
    size
        How many rows there are, also where no column is read.
    names
        Numbers equal functions alike; shared by all batches of a pass.
    """

    __slots__ = ("_chosen", "_columns", "_known", "_names", "size")

    def __init__(
        self,
        columns: Columns,
        size: int,
        names: FunctionNames,
        chosen: NDArray[np.intp] | slice | None = None,
    ) -> None:
        self._columns, self.size, self._names, self._chosen = columns, size, names, chosen
        self._known: dict[Any, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        # a column is sliced or filtered when it is first read: most are not
        if self._chosen is None:
            return self._columns[name]
        if name not in self._known:
            self._known[name] = self._columns[name][self._chosen]
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def once(self, function: Callable[[Columns], NDArray[Any]]) -> NDArray[Any]:
        """Return what the function returns for this block; computed once for equal functions."""
        number = self._names.number(function)
        if number not in self._known:
            self._known[number] = function(self)
        return self._known[number]

    def where(self, keep: NDArray[np.bool_]) -> Batch:
        """Return the rows for which ``keep`` is true."""
        keep = np.asarray(keep, dtype=np.bool_)
        if keep.shape != (self.size,):
            raise ValueError("a filter must say of each row whether it is kept")
        chosen: NDArray[np.intp] = np.flatnonzero(keep)
        if len(chosen) == self.size:
            return self
        # rows of the block that was read, not of this one: a column is found in one step however
        # many filters there are
        if isinstance(self._chosen, slice):
            chosen += self._chosen.start
        elif self._chosen is not None:
            chosen = self._chosen[chosen]
        return Batch(self._columns, len(chosen), self._names, chosen)


class FunctionNames:
    """Numbers functions of columns, equal ones alike.

    Functions are compared once: two lists of a million keys are not compared for each block.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # the workers of a pass are threads
        self._by_identity: dict[int, int] = {}
        self._by_value: dict[Any, int] = {}
        self._alive: list[Any] = []  # so that no identity is used twice

    def number(self, function: Any) -> int:
        """Return the function's number."""
        number = self._by_identity.get(id(function))
        return self._new_number(function) if number is None else number

    def _new_number(self, function: Any) -> int:
        with self._lock:
            count = len(self._alive)
            try:
                number = self._by_value.setdefault(function, count)
            except Exception:  # it cannot be hashed or compared, and is equal to itself alone
                number = count
            self._alive.append(function)
            self._by_identity[id(function)] = number
        return number

    def __reduce__(self) -> Any:
        return FunctionNames, ()  # in another process objects have other identities


def once(columns: Columns, function: Callable[[Columns], NDArray[Any]]) -> NDArray[Any]:
    """Return ``function(columns)``, computed once for each block of a pass."""
    return columns.once(function) if isinstance(columns, Batch) else function(columns)


# --- what is summed


@frozen(eq=False, repr=False)
class RowSum:
    """A sum over rows that a query asks for.

    Parameters
    ----------
    rows
        Which rows.
    block
        `Cells`, or a function of a block of at most `BLOCK` rows that returns what they add: an
        array of int64. It reads the same columns of no rows as of any. If it is exact for more
        rows, it has an attribute ``rows_at_once``, up to `MORE_ROWS`.
    finish
        What becomes of the total: an array of ``int``; of int64 where it fits, from `Cells` and
        from functions of which an attribute ``wants_int64`` is true.
    """

    rows: Rows
    block: Callable[[Columns], Integers]
    finish: Callable[[NDArray[Any]], Any]


@frozen
class Cells(RowFunction):
    """Integers added by cell: a row adds its weights to the cell that its index names.

    Counts, sums, histograms, and each of them by group, are such sums.

    Parameters
    ----------
    count
        How many cells there are.
    index
        The cell of each row, -1 for none: shape (m,). None where all rows are in the only cell.
    weights
        What each row adds: integers of at most 2^24 in absolute value, as int64 or float64, of
        shape (m,) or (m, width). None for 1.
    width
        How many numbers a row adds.
    counted
        Whether the last of these numbers is a 1, which is not among the weights.
    """

    rows_at_once: ClassVar[int] = MORE_ROWS  # exact for blocks of any size

    count: int = 1
    index: Callable[[Columns], NDArray[Any]] | None = None
    weights: Callable[[Columns], NDArray[Any]] | None = None
    width: int = 1
    counted: bool = False

    def __call__(self, columns: Columns) -> Integers:
        """Return what a block adds, shape (count * width,)."""
        total = self.zeros()
        self.add(total, columns if isinstance(columns, Batch) else _batch(columns))
        return self.cells(total)

    def zeros(self) -> Integers:
        """Return a running total of no rows, shape (width, count + 1)."""
        # the last cell is for rows of no cell, whose index is -1
        return np.zeros((self.width, self.count + 1), dtype=np.int64)

    def cells(self, total: NDArray[Any]) -> NDArray[Any]:
        """Return the cells of a running total, shape (count * width,)."""
        return total[:, :-1].T.reshape(-1)

    def add(self, total: Integers, batch: Batch) -> int:
        """Add a block to a running total, and return what bounds the size of any number added."""
        columns: list[NDArray[Any] | None] = []
        if self.weights is not None:
            weights = batch.once(self.weights)
            columns += list(weights.reshape(batch.size, self.width - self.counted).T)
        if self.weights is None or self.counted:
            columns.append(None)  # 1 for each row
        # |w| <= 2^24 and m <= 2^28: what a block adds is below 2^53, and exact in float64
        bound = batch.size << WEIGHT_BITS
        index = None if self.index is None else batch.once(self.index)
        for own, column in zip(total, columns, strict=True):
            if index is None:
                own[0] += batch.size if column is None else _exact(column.sum())
            elif column is None or self.count > batch.size:
                np.add.at(own, index, 1 if column is None else _exact(column))
            else:
                # shifted by one, so that the rows of no cell are counted in a cell of their own
                sums = np.bincount(index + 1, weights=column, minlength=self.count + 1)
                own[:-1] += _exact(sums[1:])
        return bound


@frozen
class InPart(RowFunction):
    """Whether a row is in one part of a partition.

    Parameters
    ----------
    part_of
        The part of each row, -1 for none.
    part
        Which one.
    parts
        How many there are.
    """

    part_of: Callable[[Columns], NDArray[Any]]
    part: int
    parts: int

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows are in the part."""
        return np.asarray(once(columns, self.part_of) == self.part)


@frozen(eq=False)
class _JoinedIndex(RowFunction):
    """The cell of a row among the cells of several parts: the part's place, then its own cell."""

    part_of: Callable[[Columns], NDArray[Any]]
    places: Integers  # by part, shifted by one: -1 for parts that no sum is over
    index: Callable[[Columns], NDArray[Any]] | None
    count: int

    def __call__(self, columns: Columns) -> Integers:
        place: Integers = self.places[once(columns, self.part_of) + 1]
        if self.index is None:
            return place
        own = once(columns, self.index)
        return np.where((place < 0) | (own < 0), -1, place * self.count + own)


# --- computed columns

Functions = tuple[tuple[str, Callable[[Columns], NDArray[Any]]], ...]
"""Columns that are computed of others, by name."""


class _View(Batch):
    """A block with computed columns, each computed when it is first read."""

    __slots__ = ("_base", "_functions")

    def __init__(self, base: Batch, functions: Functions) -> None:
        super().__init__(base, base.size, base._names)
        self._base, self._functions = base, dict(functions)

    def __getitem__(self, name: str) -> NDArray[Any]:
        # of the columns below, so that a new column may take an old one's name
        function = self._functions.get(name)
        return self._base[name] if function is None else self._base.once(function)

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._base), **self._functions})

    def __len__(self) -> int:
        return sum(1 for _ in self)


@frozen
class _ViewOf(RowFunction):
    """A block's `_View`, which a pass makes once for each block."""

    functions: Functions

    def __call__(self, columns: Columns) -> Any:
        base = columns if isinstance(columns, Batch) else _batch(columns)
        return _View(base, self.functions)


@frozen
class _Seeing(RowFunction):
    """A function of a block with computed columns, as a function of the block without them."""

    function: Callable[[Columns], NDArray[Any]]
    view: _ViewOf

    @property
    def rows_at_once(self) -> int:
        return rows_at_once(self.function)

    @property
    def wants_int64(self) -> bool:
        return wants_int64(self.function)

    def __call__(self, columns: Columns) -> NDArray[Any]:
        seen: Any = once(columns, self.view)
        return once(seen, self.function)


@frozen(eq=False, repr=False)
class ComputedRows:
    """Rows with computed columns: whatever is asked of them is asked of the rows they are made of.

    Nothing is computed until a column is read, and then block by block: so the values are the same
    wherever the rows are.

    Parameters
    ----------
    base
        The rows.
    functions
        Computed columns by name; each treats a row by itself, and reads columns of the base alone.
        One of an old name takes its place.
    """

    base: Rows
    functions: Functions

    def __repr__(self) -> str:
        return "<private rows>"

    def seen(self, function: Any) -> Any:
        """Return a function of these rows' columns as one of the columns that are stored."""
        view = _ViewOf(self.functions)
        if isinstance(function, Cells):
            index, weights = function.index, function.weights
            outer: Any = evolve(
                function,
                index=None if index is None else _Seeing(index, view),
                weights=None if weights is None else _Seeing(weights, view),
            )
        elif isinstance(function, InPart):
            outer = evolve(function, part_of=_Seeing(function.part_of, view))
        else:
            outer = _Seeing(function, view)
        return self.base.seen(outer) if isinstance(self.base, ComputedRows) else outer

    @property
    def stored(self) -> Rows:
        """The rows without any computed columns."""
        return self.base.stored if isinstance(self.base, ComputedRows) else self.base

    def _again(self, rows: Rows) -> ComputedRows:
        """Return other stored rows with the same computed columns."""
        below = self.base._again(rows) if isinstance(self.base, ComputedRows) else rows
        return ComputedRows(below, self.functions)

    @property
    def units(self) -> Integers:
        """The unit of each row, shape (n,)."""
        return self.base.units

    def size(self) -> int:
        """Return the number of units."""
        return self.base.size()

    def where(self, keep: Callable[[Columns], NDArray[np.bool_]]) -> ComputedRows:
        """Return the rows for which ``keep`` is True."""
        return self._again(self.stored.where(self.seen(keep)))

    def bound(self, rows: int) -> ComputedRows:
        """Return the first ``rows`` rows of each unit."""
        return self._again(self.stored.bound(rows))

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> ComputedRows:
        """Return, for each unit, its rows in its smallest part."""
        return self._again(self.stored.gather(self.seen(part)))

    def bound_groups(
        self, part: Callable[[Columns], NDArray[np.int64]], groups: int, rows: int
    ) -> ComputedRows:
        """Return the first rows of each unit in each of its first parts."""
        return self._again(self.stored.bound_groups(self.seen(part), groups, rows))

    def among(self, units: Integers) -> ComputedRows:
        """Return the rows of some units."""
        return self._again(self.stored.among(units))

    def sample(self, rate: float, source: RandomSource) -> ComputedRows:
        """Return the rows of a Poisson sample of the units."""
        return self._again(self.stored.sample(rate, source))

    @property
    def source(self) -> Any:
        """That of the stored rows: sums over both are one pass."""
        return self.base.source

    @property
    def filters(self) -> Filters:
        """Those of the stored rows."""
        return self.base.filters

    def scan(self, scan: Scan, columns: frozenset[str] | None) -> list[NDArray[Any]]:
        """Return the totals of a scan of the stored rows."""
        return self.base.scan(scan, columns)

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the exact sum over blocks."""
        return self.stored.total(self.seen(block))

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return one number for each row."""
        return self.stored.values(self.seen(block))

    def strings(self, column: Callable[[Columns], NDArray[Any]]) -> tuple[list[str], Integers]:
        """Return the distinct str of a column, and each row's position among them."""
        return self.stored.strings(self.seen(column))

    def integer_rows(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return a vector of integers for each row."""
        return self.stored.integer_rows(self.seen(block))


# --- a pass

Filters = tuple[Callable[[Columns], NDArray[np.bool_]], ...]


@frozen(eq=False)
class Job:
    """One sum of a pass: the rows that meet all filters, and what a block of them adds."""

    filters: Filters
    block: Callable[[Columns], Integers]


class Scan:
    """The sums of one pass over the same data.

    Parameters
    ----------
    jobs
        Filters and blocks, in the order of the results.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._names = FunctionNames()
        # `places` says for each result which sum it is of, and which cells of it
        self.jobs, self._places = _joined(jobs, self._names)
        self.size = min((rows_at_once(job.block) for job in self.jobs), default=BLOCK)

    def of(self, blocks: Iterable[tuple[Columns, int]]) -> list[NDArray[Any] | None]:
        """Return the total of each sum over blocks of columns, each with its number of rows.

        None where there is no block, of whatever length, and so no shape is known.
        """
        sums = [_Sum(job.block) for job in self.jobs]
        for columns, length in blocks:
            for start in range(0, max(1, length), self.size):
                stop = min(start + self.size, length)
                chosen = None if stop - start == length else slice(start, stop)
                self._add(sums, Batch(columns, stop - start, self._names, chosen))
        return [each.total() for each in sums]

    def results(self, totals: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the total of each sum that was asked for, from those of the pass.

        Each is an array of its own: what becomes of one of them changes no other.
        """
        return [totals[i].copy() if c is None else totals[i][c] for i, c in self._places]

    def _add(self, sums: list[_Sum], batch: Batch) -> None:
        # by the filters that were applied: a filter that many sums begin with is applied once
        filtered: dict[tuple[int, ...], Batch] = {(): batch}
        for each, job in zip(sums, self.jobs, strict=True):
            key: tuple[int, ...] = ()
            for keep in job.filters:
                rows, key = filtered[key], (*key, self._names.number(keep))
                if key not in filtered:
                    filtered[key] = rows.where(rows.once(keep))
            each.add(filtered[key])


def rows_at_once(block: Callable[[Columns], Any]) -> int:
    """Return how many rows a block may have for a sum: see `RowSum`."""
    return getattr(block, "rows_at_once", BLOCK)


def wants_int64(block: Callable[[Columns], Any]) -> bool:
    """Return whether a sum's total is asked for as int64 where it fits: see `RowSum`."""
    return bool(getattr(block, "wants_int64", False))


class _Sum:
    """A running total: int64 while that surely holds it, then Python integers."""

    def __init__(self, block: Callable[[Columns], Integers]) -> None:
        self._block = block
        self._some: Any = 0
        self._most = 0  # no number in `_some` is larger, by the triangle inequality
        self._exact: Any = 0
        if isinstance(block, Cells):
            self._some = block.zeros()

    def add(self, batch: Batch) -> None:
        if isinstance(self._block, Cells):
            if self._most >= 2**62:  # a block adds less than 2^62
                self._spill()
            self._most += self._block.add(self._some, batch)
            return
        part = np.asarray(self._block(batch))
        if part.dtype.kind in "bui" and part.dtype != np.int64:
            # narrower integers would wrap unseen; uint64 and int64 together would become floats
            part = part.astype(object if part.dtype == np.uint64 else np.int64)
        most = grid.largest(part)
        if self._most and self._most + most >= 2**63:
            # int64 could overflow: continue in Python integers, which cannot
            self._spill()
        self._most += most
        running = self._some
        if (
            isinstance(running, np.ndarray)
            and running.shape == part.shape
            and part.dtype == running.dtype
        ):
            running += part  # in place: there may be 10^8 bytes of them
        else:
            self._some = self._some + part  # an array of its own: what a block returns is kept

    def _spill(self) -> None:
        self._exact = self._exact + self._some.astype(object)
        self._some, self._most = np.zeros_like(self._some), 0

    def total(self) -> NDArray[Any] | None:
        """Return the total; None where nothing was added and no shape is known."""
        if not isinstance(self._some, np.ndarray):
            return None
        if isinstance(self._block, Cells):
            whole = self._exact + self._some if isinstance(self._exact, np.ndarray) else self._some
            return self._block.cells(whole)
        if wants_int64(self._block) and not isinstance(self._exact, np.ndarray):
            return self._some
        return np.asarray(self._exact + self._some.astype(object), dtype=object)


def _batch(columns: Columns) -> Batch:
    return Batch(columns, len(next(iter(columns.values()), ())), FunctionNames())


def _exact(values: Any) -> Any:
    """Return integers, given as floats or not, as int64."""
    return np.asarray(values).astype(np.int64)


def _joined(
    jobs: Sequence[Job], names: FunctionNames
) -> tuple[list[Job], list[tuple[int, Integers | None]]]:
    """Return jobs of which no two are equal, or differ in one part of a partition alone.

    The second value says for each job which of the new ones it is in, and which of its cells.
    """
    keys = [_key(job, names) for job in jobs]
    alike: dict[Any, dict[int, int]] = {}  # by everything but the part: the part's place
    for shape, part in keys:
        places = alike.setdefault(shape, {})
        if part is not None:
            places.setdefault(part.part, len(places))
    new: list[Job] = []
    numbers: dict[Any, int] = {}
    result: list[tuple[int, Integers | None]] = []
    for job, (shape, part) in zip(jobs, keys, strict=True):
        places, block = alike[shape], job.block
        size = block.count * block.width if isinstance(block, Cells) else PART_CELLS
        if part is None or len(places) == 1 or len(places) * size > PART_CELLS:
            key = (shape, None if part is None else part.part)
            if key not in numbers:
                numbers[key] = len(new)
                new.append(job)
            result.append((numbers[key], None))
            continue
        if shape not in numbers:
            numbers[shape] = len(new)
            new.append(_over_parts(job, part, places))
        at = places[part.part] * size
        result.append((numbers[shape], np.arange(at, at + size)))
    return new, result


def _key(job: Job, names: FunctionNames) -> tuple[Any, InPart | None]:
    """Return what sums that may be joined have in common, and the part that this one is over."""
    part = next((each for each in reversed(job.filters) if isinstance(each, InPart)), None)
    filters = tuple(
        ("part", names.number(each.part_of), each.parts) if each is part else names.number(each)
        for each in job.filters
    )
    return (filters, names.number(job.block)), part


def _over_parts(job: Job, part: InPart, places: Mapping[int, int]) -> Job:
    """Return the sums over several parts as one, whose cells are those of each part in turn."""
    assert isinstance(job.block, Cells)  # as of all jobs that are joined
    table = np.full(part.parts + 1, -1, dtype=np.int64)
    for number, place in places.items():
        table[number + 1] = place
    index = _JoinedIndex(part.part_of, table, job.block.index, job.block.count)
    block = evolve(job.block, count=len(places) * job.block.count, index=index)
    # each row's part is its cell, so the part is no filter any more
    return Job(tuple(each for each in job.filters if each is not part), block)


@frozen(eq=False, repr=False)
class Pass:
    """Sums over the same data, which are computed in one reading.

    Parameters
    ----------
    rows
        Those of one of the sums.
    columns
        The columns that are read; None for all.
    scan
        What is computed.
    members
        Which of the requests these are.
    """

    rows: Rows
    columns: frozenset[str] | None
    scan: Scan
    members: tuple[int, ...]

    def totals(self) -> list[NDArray[Any]]:
        """Return the totals of the members, in their order."""
        return self.scan.results(self.rows.scan(self.scan, self.columns))


def passes(
    requests: Sequence[RowSum], columns: Sequence[frozenset[str] | None] | None = None
) -> list[Pass]:
    """Return the passes that compute sums: one for each source of rows.

    Parameters
    ----------
    requests
        What is summed.
    columns
        The columns that each of them reads; None for all.
    """
    by_source: dict[Any, list[int]] = {}
    for i, request in enumerate(requests):
        by_source.setdefault(request.rows.source, []).append(i)
    result = []
    for members in by_source.values():
        scan = Scan([_job(requests[i]) for i in members])
        each = [None if columns is None else columns[i] for i in members]
        known = [own for own in each if own is not None]
        read = frozenset[str]().union(*known) if len(known) == len(each) else None
        result.append(Pass(requests[members[0]].rows, read, scan, tuple(members)))
    return result


def _job(request: RowSum) -> Job:
    rows, block = request.rows, request.block
    return Job(rows.filters, rows.seen(block) if isinstance(rows, ComputedRows) else block)


def total_of(request: RowSum) -> Any:
    """Return the finished total of one sum."""
    (one,) = passes([request])
    return request.finish(one.totals()[0])
