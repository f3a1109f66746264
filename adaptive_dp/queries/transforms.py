"""Transforms of tables: partitions, filters and Poisson samples, each with its stability.

The stability of a transform is its method `change`: how a change of the input arrives at the
output. None of these enlarges a change; what can be lost is that a unit has a fixed number of rows
(`Change.fixed`), since a unit may leave a part, a filter or a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import count, pairwise, repeat
from operator import is_
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.cells import DictionaryColumn
from adaptive_dp.data.scan import InPart, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PartitionOperation, PartOperation, SampleOperation
from adaptive_dp.graph.operation import Change, Operation
from adaptive_dp.graph.values import optional_tuple
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Categories,
    ColumnValues,
    Parts,
    Strings,
    Table,
    edges_of,
    finite_float,
    numbers,
    refuse_text_categories,
    refuse_unknown_keys,
)

# -----------------------------------------------------------------------------
# Partitions: rows in disjoint parts, for parallel composition.


@frozen
class Partition(PartitionOperation):
    """Rows split into disjoint parts by a column: a row is in the part of its category or bin.

    Rows whose value is in no category or bin are in no part. A unit with several rows may lie in
    several parts, whose costs add up: for counts and sums to that of all its rows in one part, for
    means and learners to more. With ``whole_units`` a unit's rows are kept in the first part (in
    the order of the keys) that any of them is in, and dropped from the others, so that every unit
    lies in one part.

    Parameters
    ----------
    by
        The column to partition by.
    keys, edges
        Categories, or ascending edges of bins: one of the two.
    whole_units
        Keep each unit in one part; drop its rows in the others.
    """

    kind: ClassVar[str] = "partition"
    column_fields: ClassVar[tuple[str, ...]] = ("by",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    by: str
    keys: tuple[Any, ...] | None = field(default=None, converter=optional_tuple)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)
    whole_units: bool = False

    def label(self) -> str:
        """Return the column."""
        return f"partition by {self.by}"

    def detail(self) -> str:
        """Return whether each unit is in one part."""
        return "each unit in one part" if self.whole_units else ""

    def domain(self, inputs: Sequence[Any]) -> Parts:
        """Return the parts, named by category or bin."""
        table: Table = inputs[0]
        declared = table.find(self.by)
        # exactly one of the two defines the parts
        if (self.keys is None) == (self.edges is None):
            raise DeclarationError(
                f"column {self.by!r} declares no categories; pass keys=[...]"
                + ("" if isinstance(declared, Strings) else " or edges=[...]")
                if self.keys is None
                else "partition takes keys (of categories) or edges (of a numeric column), not both"
            )
        if self.edges is not None:
            keys: tuple[Any, ...] = bins(self.by, self.edges)
            refuse_text_categories(self.by, declared)
        else:
            keys = Categories(self.keys or ()).values
            refuse_unknown_keys(self.by, declared, keys)
        # how many units lie in a part is private even where the total is public
        return Parts(table.uncounted(), keys, self.whole_units)

    def change(self, change: Change) -> Change:
        """Return the change as it is; the accountant enumerates the part that it is in."""
        return change

    @property
    def index(self) -> RowFunction:
        """The function that gives each row's part, -1 for none."""
        if self.edges is not None:
            return BinIndex(ColumnValues(self.by), self.edges)
        return KeyIndex(ColumnValues(self.by), self.keys or ())

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.edges) - 1 if self.edges is not None else len(self.keys or ())

    def run(self, inputs: Sequence[Any], stream: Stream) -> tuple[RowFunction, int, Rows]:
        """Return each row's part as a function, the number of parts, and the rows.

        With ``whole_units`` they are each unit's rows in its first part only.
        """
        # one function for all parts, by which `Part.run` selects its rows when they are read
        index = self.index
        return index, self.count, inputs[0].gather(index) if self.whole_units else inputs[0]


@frozen
class Part(PartOperation):
    """One part of a partition."""

    kind: ClassVar[str] = "part"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Parts
    is_rowwise: ClassVar[bool] = True

    index: int

    def label(self) -> str:
        """Return the part's number; `Pipeline` shows its key."""
        return f"part {self.index + 1}"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table of the part."""
        parts: Parts = inputs[0]
        if not (0 <= self.index < len(parts.keys)):
            raise DeclarationError(
                f"a partition of {len(parts.keys)} parts has no part {self.index}"
            )
        return parts.table

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a unit may have any number of rows in the part."""
        return evolve(change, fixed=False) if change.fixed else change

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows of the part."""
        part_of, count, rows = inputs[0]
        # parts of one partition are told apart by `InPart` alone: sums over them are one pass
        return rows.where(InPart(part_of, self.index, count))  # type: ignore[no-any-return]


@frozen
class KeyIndex(RowFunction):
    """The position of each row's value among keys, -1 for any other value."""

    of: Callable[[Columns], NDArray[Any]]
    keys: tuple[Any, ...]

    @cached_property
    def lookup(self) -> KeyLookup:
        """The keys, prepared once for all blocks; it is not sent with this to other processes."""
        return KeyLookup(self.keys)

    def __call__(self, columns: Columns) -> NDArray[np.int64]:
        """Return the positions."""
        return self.lookup(once(columns, self.of))


@frozen
class BinIndex(RowFunction):
    """The bin of each row's value between edges, -1 for none."""

    of: Callable[[Columns], NDArray[Any]]
    edges: tuple[float, ...]

    @cached_property
    def lookup(self) -> BinLookup:
        """The edges, prepared once for all blocks."""
        return BinLookup(self.edges)

    def __call__(self, columns: Columns) -> NDArray[np.int64]:
        """Return the bins."""
        return self.lookup(once(columns, self.of))


def category_index(values: NDArray[Any], keys: Sequence[Any]) -> NDArray[np.int64]:
    """Return the position of each value among a few ``keys``, -1 for any other value.

    For many keys prepare a `KeyLookup`.
    """
    return _lookup(tuple(keys))(values)


@lru_cache(maxsize=64)
def _lookup(keys: tuple[Any, ...]) -> KeyLookup:
    return KeyLookup(keys)  # of equal keys, though of other types, the same


class KeyLookup:
    """Finds values among keys, which are equal as in Python: 1 is 1.0 and True, and -0.0 is 0.

    Objects of types that a key cannot have (lists, say) count as other values and are never
    compared, so that no foreign ``__eq__`` or ``__hash__`` runs on private data.

    Parameters
    ----------
    keys
        Of equal ones the last counts.

    Examples
    --------
    >>> import numpy as np
    >>> towns = KeyLookup(["Oslo", "Rome"])
    >>> towns(np.array(["Rome", "Paris", "Oslo"])).tolist()
    [1, -1, 0]
    >>> KeyLookup([1, 2.5])(np.array([2.5, -0.0, 1.0, np.nan])).tolist()
    [1, -1, 0, -1]
    """

    def __init__(self, keys: Iterable[Any]) -> None:
        self._positions: dict[Any, int] = dict(zip(keys, count(), strict=False))
        # None stands for a missing value, which is in no category
        self._positions.pop(None, None)
        self._simple = set(map(type, self._positions)) <= {str, int, float, bool}
        self._finders: dict[str, Callable[[NDArray[Any]], NDArray[np.int64]] | None] = {}
        self._sought = 0  # values in arrays of str

    def __call__(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the position of each value, -1 for values that are not keys."""
        if isinstance(values, DictionaryColumn):
            return values.of_values(self)  # once for each value, not for each row
        dtype = values.dtype
        find = None
        if self._simple and dtype.kind in "biuf" and dtype.itemsize <= 8:
            kind = {"f": "float64", "u": "uint64"}.get(dtype.kind, "int64")
            # of one type; other widths and byte orders hold the same numbers
            values = np.asarray(values, dtype=kind)
            find = self._finder(kind, lambda: self._of_numbers(np.dtype(kind)))
        elif self._simple and dtype.kind == "U" and dtype.isnative and 0 < dtype.itemsize <= 256:
            self._sought += len(values)
            # many keys are prepared when many values were sought; each of a few is sought by itself
            if "U" in self._finders or 4 * self._sought >= len(self._positions):
                find = self._finder("U", lambda: _find_strings(self._positions))
        return self._of_cells(values.tolist()) if find is None else find(values)

    def _finder(self, kind: str, make: Callable[[], Any]) -> Any:
        if kind not in self._finders:
            self._finders[kind] = make()
        return self._finders[kind]

    def _of_numbers(self, dtype: np.dtype[Any]) -> Any:
        """Return the function that finds numbers of one type."""
        keys, places = _numbers_of_type(self._positions, dtype)
        if not len(keys):
            return lambda values: np.full(len(values), -1, dtype=np.int64)
        low, high = keys.min(), keys.max()
        # a table from the least to the largest, where it has at most a few cells for each key
        inside = low > -(2**52) and high < 2**52 and bool((keys == np.trunc(keys)).all())
        if inside and int(high) - int(low) <= 4 * len(keys) + 1000:
            return _dense(keys.astype(np.int64), places, dtype)
        table, places = HashTable(_bits(keys)), np.append(places, -1)
        return lambda values: places[table.find(_bits(values))]  # index -1 is the last: -1

    def _of_cells(self, cells: list[Any]) -> NDArray[np.int64]:
        """Return the positions of Python objects."""
        get, first = self._positions.get, type(cells[0]) if cells else str
        # `is` and not `isinstance`: a subclass could bring its own __eq__ or __hash__; nor `in`,
        # for which a class of classes could bring its own
        simple = first is str or first is int or first is float or first is bool
        if simple and all(map(is_, map(type, cells), repeat(first))):
            return np.fromiter(map(get, cells, repeat(-1)), dtype=np.int64, count=len(cells))
        positions = [
            get(cell, -1)
            if (kind := type(cell)) is str or kind is float or kind is int or kind is bool
            else -1
            for cell in cells
        ]
        return np.fromiter(positions, dtype=np.int64, count=len(positions))


def _numbers_of_type(
    positions: Mapping[Any, int], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the keys that equal a number of a type, as such, and their positions."""
    simple = float if dtype.kind == "f" else int
    places = np.fromiter(positions.values(), dtype=np.int64, count=len(positions))
    if all(type(key) is simple for key in positions):
        try:
            keys = np.fromiter(positions, dtype=dtype, count=len(positions))
            is_number = ~np.isnan(keys)
            return keys[is_number], places[is_number]
        except OverflowError:
            pass
    as_type = _as_float if dtype.kind == "f" else _as_integer(np.iinfo(dtype))
    exact = [(as_type(key), i) for key, i in positions.items() if type(key) is not str]
    same = [(key, i) for key, i in exact if key is not None]
    return np.array([k for k, _ in same], dtype=dtype), np.array([i for _, i in same], dtype=int)


def _as_float(key: Any) -> float | None:
    """Return the float that equals a key; None where there is none."""
    try:
        value = float(key)
    except OverflowError:
        return None
    return value if value == key else None  # exact for int; NaN equals nothing


def _as_integer(limits: Any) -> Callable[[Any], int | None]:
    """Return the function that returns the integer within limits that equals a key, or None."""

    def convert(key: Any) -> int | None:
        if type(key) is float and not key.is_integer():  # false of NaN and infinities too
            return None
        return value if limits.min <= (value := int(key)) <= limits.max else None

    return convert


def _bits(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the bits of numbers of 64 bits, equal for equal numbers but NaN."""
    if numbers.dtype.kind != "f":
        return numbers.view(np.uint64)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.asarray(numbers + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0


def _dense(keys: NDArray[np.int64], places: NDArray[np.int64], dtype: np.dtype[Any]) -> Any:
    """Return the function that finds numbers among integers close to each other, by a table."""
    low, high = int(keys.min()) - 1, int(keys.max()) + 1
    table = np.full(high - low + 1, -1, dtype=np.int64)
    table[keys - low] = places

    def find_integers(values: NDArray[Any]) -> NDArray[np.int64]:
        # what is outside takes the table's first or last place, which are -1; the difference may
        # overflow, modulo 2^64, and is then far outside too
        return np.asarray(table.take(values.view(np.int64) - low, mode="clip"))

    def find_floats(values: NDArray[Any]) -> NDArray[np.int64]:
        with np.errstate(invalid="ignore"):
            # fmax takes the other number for NaN
            near = np.fmin(np.fmax(values, low), high).astype(np.int64)
            index: NDArray[np.int64] = table[near - low]
            index[near != values] = -1
        return index

    return find_floats if dtype.kind == "f" else find_integers


class HashTable:
    """Finds words of 64 bits among different ones, all rows at once.

    Parameters
    ----------
    words
        At least one; no two are equal.

    Examples
    --------
    >>> import numpy as np
    >>> table = HashTable(np.array([7, 1 << 40], dtype=np.uint64))
    >>> table.find(np.array([1 << 40, 8, 7], dtype=np.uint64)).tolist()
    [1, -1, 0]
    """

    def __init__(self, words: NDArray[np.uint64]) -> None:
        bits = max(2, (2 * len(words) - 1).bit_length())  # a fourth to a half of the slots are used
        self._words, self._shift = words, np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        # a word's index, in the first slot from its own on that was free; -1 in free slots
        self._slots = np.full(1 << bits, -1, dtype=np.int32)
        left, at = np.arange(len(words), dtype=np.int32), self._slot(words)
        while len(left):
            free = self._slots[at] < 0
            self._slots[at[free]] = left[free]  # of several for one slot, one gets it
            lost = self._slots[at] != left
            left, at = left[lost], (at[lost] + 1) & self._mask

    def find(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the index of each word among those of the table, -1 for others."""
        at = self._slot(words)
        slots = self._slots[at].astype(np.int64)
        # the next slots are looked at where the word in this one is another
        left = np.flatnonzero((slots >= 0) & (self._words[slots] != words))
        at, sought = at[left], words[left]
        while len(left):
            at = (at + 1) & self._mask
            here = self._slots[at].astype(np.int64)
            slots[left] = here
            other = (here >= 0) & (self._words[here] != sought)
            left, at, sought = left[other], at[other], sought[other]
        return slots

    def _slot(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        # the high bits of a product with an odd number depend on all lower bits of the word
        mixed = (words ^ (words >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        return (mixed >> self._shift).view(np.int64)


def _find_strings(positions: Mapping[Any, int]) -> Any:
    """Return the function that finds the cells of an array of ``str`` among keys.

    None where two keys have the same hash.
    """
    # such an array holds no str of more than 64 characters, and none that ends in NUL
    usable = [k for k in positions if type(k) is str and len(k) <= 64 and k[-1:] != "\0"]
    if not usable:
        return lambda values: np.full(len(values), -1, dtype=np.int64)
    every = len(usable) == len(positions)
    of_usable = positions.values() if every else map(positions.__getitem__, usable)
    places = np.fromiter(of_usable, dtype=np.int64, count=len(usable))
    # an even number of characters, two of which are a word
    width = max(2, 2 * ((max(map(len, usable)) + 1) // 2))
    array = np.fromiter(usable, dtype=f"U{width}", count=len(usable))
    keys = [word.copy() for word in _words(array)]
    hashes = _hash(keys)
    if _has_equal(hashes):
        return None
    table = HashTable(hashes)

    def find(values: NDArray[Any]) -> NDArray[np.int64]:
        own = values.dtype.itemsize // 4
        words = _words(values if own == width else values.astype(f"U{width}"))
        index = table.find(_hash(words))
        same = index >= 0
        for word, key_words in zip(words, keys, strict=True):
            # different str may have the same hash
            same &= key_words.take(index, mode="clip") == word
        if own > width:
            # of a longer str the first characters were looked up: it is no key
            characters = np.ascontiguousarray(values).view(np.uint32).reshape(-1, own)
            same &= ~characters[:, width:].any(axis=1)
        return np.where(same, places.take(index, mode="clip"), -1)

    return find


def _has_equal(words: NDArray[np.uint64]) -> bool:
    ordered = np.sort(words)
    return bool((ordered[1:] == ordered[:-1]).any())


def _words(strings: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the characters of an array of ``str``, one or two of them as a number."""
    width = strings.dtype.itemsize // 4
    word = np.dtype(np.uint32 if width % 2 else np.uint64)
    count = strings.dtype.itemsize // word.itemsize
    matrix = np.ascontiguousarray(strings).view(word).reshape(len(strings), count)
    return list(matrix.T)


def _hash(words: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """Return a number for each row of words, equal for equal rows."""
    total = words[0].astype(np.uint64)
    for word in words[1:]:
        total *= np.uint64(0xD6E8FEB86659FD93)
        total += word
    return total


def bins(name: str, edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the bins between increasing edges, the last one closed.

    Raises
    ------
    DeclarationError
        If there are fewer than two edges, or they do not increase.
    """
    check_edges(name, edges)
    last = len(edges) - 2
    return tuple(
        f"[{a:g}, {b:g}{']' if i == last else ')'}" for i, (a, b) in enumerate(pairwise(edges))
    )


def check_edges(name: str, edges: Sequence[float]) -> None:
    """Refuse fewer than two edges, or edges that do not increase."""
    if not (
        len(edges) >= 2
        and all(isinstance(e, int | float) and not isinstance(e, bool) for e in edges)
        # this refuses NaN too, which compares as false
        and all(-1e300 < e < 1e300 for e in edges)
    ):
        raise DeclarationError(
            f"edges of {name!r} must be at least two finite numbers, got {list(edges)!r}"
        )
    if not all(a < b for a, b in pairwise(edges)):
        raise DeclarationError(f"edges of {name!r} must increase, got {list(edges)!r}")


class BinLookup:
    """Finds the bins of values between increasing edges; the last bin is closed.

    A value outside of all bins, and NaN, is in bin -1.

    *Equal bins* are found by arithmetic. Let ``t(v)`` be the computed ``(v - e_0) / width``. Both
    operations are monotone, rounding included, so a value of bin i, ``e_i <= v <= e_(i+1)``, has
    ``t(e_i) <= t(v) <= t(e_(i+1))``. Where ``t(e_k)`` is within 1/4 of k for every edge, as is
    checked, ``t(v) - 1/2`` is between ``i - 3/4`` and ``i + 3/4``: its integral part is i or
    i - 1, and a comparison with the edge above says which.

    Parameters
    ----------
    edges
        At least two finite numbers, below 1e300 in size.

    Examples
    --------
    >>> import numpy as np
    >>> BinLookup([0, 18, 65, 100])(np.array([17.9, 18, 100, 101, np.nan])).tolist()
    [0, 1, 2, -1, -1]
    """

    FEW = 24
    """Edges up to which a value is compared with each."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = np.asarray(edges, dtype=np.float64)
        # no value is above the edge over the last bin
        self._above = np.append(self._edges[1:-1], np.inf)
        count = len(self._above)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self._scale = count / (self._edges[-1] - self._edges[0])
            places = (self._edges - self._edges[0]) * self._scale
            self._even = bool((np.abs(places - np.arange(count + 1)) < 0.25).all())  # false of NaN

    def __call__(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bin of each value."""
        floats, least, largest = numbers(values), self._edges[0], self._edges[-1]
        with np.errstate(invalid="ignore", over="ignore"):
            if len(self._edges) <= self.FEW:
                below = np.zeros(len(floats), dtype=np.int8)  # how many edges, of NaN none
                for edge in self._edges[:-1]:
                    below += floats >= edge
                index = below.astype(np.int64)
                index -= 1
                index[floats > largest] = -1
                return index
            # NaN compares as false
            outside = ~((floats >= least) & (floats <= largest))
            if self._even:
                # fmin and fmax, which take the other number for NaN: so all are inside
                places = np.fmax(floats, least)
                np.fmin(places, largest, out=places)
                places -= least
                places *= self._scale
                places -= 0.5
                index = places.astype(np.int64)  # toward 0, which is right below it too
                np.take(self._above, index, mode="clip", out=places)
                index += floats >= places
            else:
                # side="right": a value on an edge belongs to the bin that starts there
                index = np.searchsorted(self._edges, floats, side="right") - 1
                # the last bin is closed, so its upper edge is inside of it
                index = np.minimum(index, len(self._above) - 1)
        np.putmask(index, outside, -1)
        return index


def bin_index(values: NDArray[Any], edges: Sequence[float]) -> NDArray[np.int64]:
    """Return the bin of each value, -1 for values outside of all bins and for NaN."""
    return BinLookup(edges)(values)


# -----------------------------------------------------------------------------
# Filters: the rows that meet a condition.


_TESTS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@frozen
class Meets(RowFunction):
    """Whether each row's column meets a comparison; NaN meets none. See `Filter`."""

    column: str
    test: str
    operand: Any

    @cached_property
    def index(self) -> KeyIndex:
        """The function that finds each row's value among those of the test ``"in"``."""
        return KeyIndex(ColumnValues(self.column), self.operand)

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows meet it."""
        if self.test == "in":
            return once(columns, self.index) >= 0
        with np.errstate(invalid="ignore"):
            values, operand = numbers(columns[self.column]), float(self.operand)
            return np.asarray(_TESTS[self.test](values, operand))


def _operand(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@frozen
class Filter(Operation):
    """The rows whose column meets a comparison; NaN meets none.

    Whether a row is kept depends on its own values alone, so the stability is 1: one unit still
    changes only its own rows, but may now have fewer of them, or none.

    Parameters
    ----------
    column
        A column's name.
    test
        ``"<"``, ``"<="``, ``">"``, ``">="`` or ``"in"``.
    operand
        A number, or a tuple of values for ``"in"``; None where a released number is the second
        input.
    """

    kind: ClassVar[str] = "filter"
    column_fields: ClassVar[tuple[str, ...]] = ("column",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True
    max_released_inputs: ClassVar[int] = 1

    column: str
    test: str = field()
    operand: Any = field(default=None, converter=_operand)

    @test.validator
    def _check_test(self, _: object, test: str) -> None:
        if test not in _TESTS and test != "in":
            raise DeclarationError(
                f"a filter's test must be one of {', '.join(_TESTS)} or 'in', got {test!r}"
            )

    def label(self) -> str:
        """Return the condition."""
        shown = "..." if self.operand is None else self.operand
        if isinstance(shown, tuple):
            shown = "{" + ", ".join(map(str, shown)) + "}"
        return f"{self.column} {self.test} {shown}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, its number of units no longer public."""
        declared = inputs[0].find(self.column)
        values = declared.values if isinstance(declared, Categories) else ()
        has_strings = isinstance(declared, Strings) or any(isinstance(v, str) for v in values)
        # str have no order here; for equality there is the test 'in'
        if self.test != "in" and has_strings:
            raise DeclarationError(
                f"column {self.column!r} holds {declared}, which {self.test} cannot compare; use "
                f"table[{self.column!r}].isin([...])"
            )
        if self.test == "in":
            refuse_unknown_keys(
                self.column, declared, self.operand if isinstance(self.operand, tuple) else ()
            )
            if not (isinstance(self.operand, tuple) and len(inputs) == 1):
                raise DeclarationError(
                    f"the test 'in' needs a list of values, got {self.operand!r}"
                )
        # one input: the operand is a constant; two: it is the second input, a released value
        elif len(inputs) == 1:
            finite_float(f"the operand of {self.column} {self.test}", self.operand)
        elif self.operand is not None:
            raise DeclarationError(
                "a filter compares with a constant or with a released value, not both"
            )
        # a missing value meets none
        table: Table = inputs[0]
        return evolve(table.uncounted(), complete=table.complete | {self.column})

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a unit may lose rows to the filter."""
        return evolve(change, fixed=False)

    def condition(self, operand: Any = None) -> Meets:
        """Return the condition on rows, with a released operand where there is one."""
        return Meets(self.column, self.test, self.operand if operand is None else operand)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows that meet the condition."""
        # a released operand is public, so the condition still reads nothing but the row
        return inputs[0].where(self.condition(*inputs[1:]))  # type: ignore[no-any-return]


# -----------------------------------------------------------------------------
# Poisson sampling: each unit enters independently with probability q.


@frozen
class Sample(SampleOperation):
    """A Poisson sample of the units, which amplifies the privacy of what is released from it.

    Where a unit appears, vanishes or is zeroed out the term is `accountants.Sampled`. Where
    neighbours exchange a unit, what is released from the sample has Gaussian noise, and the body is
    charged for a unit that is in the sample or is not: the term is `accountants.ReplacedSample`.

    Parameters
    ----------
    rate
        q in (0, 1], each unit's probability to be in the sample.
    """

    kind: ClassVar[str] = "sample"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Table

    rate: float = field()

    @rate.validator
    def _check_rate(self, _: object, rate: float) -> None:
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not (is_number and 0 < rate <= 1):
            raise DeclarationError(
                f"sample's rate must be a probability above 0 and at most 1, got {rate!r}"
            )

    def label(self) -> str:
        """Return the rate."""
        return f"sample {self.rate:g}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, its number of units no longer public."""
        return inputs[0].uncounted()

    def change(self, change: Change) -> Change:
        """Return the change of a unit that is in the sample, or is not."""
        return change.one_sided

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return a new sample, independent of all others."""
        return inputs[0].sample(self.rate, stream)  # type: ignore[no-any-return]
