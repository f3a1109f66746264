"""How a cell of a column is read: by the column's declaration and type, and by nothing else.

If one person's value could change how another's is read, both values would change when that person
leaves, and no sensitivity would hold. So nothing here looks at all values of a column together:
types are part of the schema, and cells are read one at a time.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from itertools import repeat
from operator import is_
from typing import Any, cast
from uuid import UUID

import numpy as np
from attrs import frozen
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from adaptive_dp.data.rows import Integers, Reading, SchemaError, TensorReading

_NUMBERS = (bool, int, float, Decimal, Fraction, np.bool_, np.integer, np.floating)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_BOXED = (np.bool_, np.integer, np.floating, np.str_)


def parse_number(text: str) -> float | None:
    """Return the number that a ``str`` spells (true and false are 1 and 0), or None."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    try:
        return float(word)
    except ValueError:
        return None


_PLAIN = frozenset({str, bytes, bool, int, float, type(None)})
_OWN = _PLAIN | {Decimal, Fraction, UUID, datetime.date, datetime.datetime, datetime.time}
_TRUSTED = _OWN | {np.float64, np.float32, np.int64, np.int32, np.bool_, np.datetime64}
"""Types whose methods are those of Python and NumPy."""


def plain_cell(cell: Any) -> Any:
    """Return a cell whose methods cannot fail: of a subclass of str or a number its plain value.

    Where its methods raise it is None: missing. Otherwise one person's cell, of a class of its own,
    could end the run of a plan.
    """
    kind = type(cell)
    # of the numbers a signalling NaN has no hash, and is missing
    if kind in _OWN and not (kind is Decimal and cell.is_snan()):
        return cell
    try:
        if issubclass(kind, _TIMES):
            str(cell)
            return cell
        if issubclass(kind, _BOXED):
            cell = cell.item()
        for base, copied in _COPIES:
            if issubclass(kind, base):
                _ = hash(cell), str(cell)  # what asks for it may ask for these
                # the base class's own, since a subclass may show itself as something else
                value = copied(cell)
                if base is not str:
                    float(cell)
                return value
        if isinstance(cell, Decimal | Fraction):
            _ = hash(cell), float(cell)
    except OverflowError:  # of a number that no float reaches
        return cell
    except Exception:  # whatever a foreign method raises
        return None
    return cell


_COPIES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
)


def number(cell: Any) -> float:
    """Return a cell as a float; NaN if it is not a number, infinity if it is too large.

    A ``str`` is the number that it spells, as in a CSV file.
    """
    if type(cell) not in _TRUSTED:
        cell = plain_cell(cell)
    if isinstance(cell, str):
        parsed = parse_number(cell)
        return math.nan if parsed is None else parsed
    if not isinstance(cell, _NUMBERS) or isinstance(cell, np.timedelta64):
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def numbers(cells: Iterable[Any]) -> NDArray[np.float64]:
    """Return cells as floats, each read by itself (see `number`)."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iu":
        return cells.astype(np.float64)  # to the nearest, ties to even, as Python's `float`
    return np.array([number(cell) for cell in cells], dtype=np.float64)


EPOCH = datetime.date(1970, 1, 1).toordinal()
_ZONED = (
    datetime.datetime(1, 1, 3, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 29, tzinfo=datetime.UTC),
)
"""Times beyond these, whose zone moves them by a day at most, count as these."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:$|[T ])")


def day(cell: Any) -> float:
    """Return the date of a cell as days since 1970-01-01; NaN if it has none.

    A time counts as its date, and a ``str`` as the date that it begins with, in the form
    2024-12-31.
    """
    if type(cell) not in _TRUSTED:
        cell = plain_cell(cell)
    if isinstance(cell, np.datetime64):
        return math.nan if np.isnat(cell) else float(cell.astype("datetime64[D]").astype(np.int64))
    try:
        if isinstance(cell, str):
            text = cell.strip()
            cell = datetime.date.fromisoformat(text[:10]) if _DATE.match(text) else None
        if isinstance(cell, datetime.date):
            return float(cell.toordinal() - EPOCH)
    except (TypeError, ValueError):  # no day of any month, or pandas' NaT
        pass
    return math.nan


def days(cells: Iterable[Any]) -> NDArray[np.float64]:
    """Return the dates of cells, each read by itself (see `day`)."""
    return np.array([day(cell) for cell in cells], dtype=np.float64)


def days_of_array(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return the dates of an array, of whatever dtype (see `day`)."""
    if array.dtype.kind != "M":
        return days(array.tolist())
    missing = np.isnat(array)
    whole = array.astype("datetime64[D]").astype(np.int64).astype(np.float64)
    return np.where(missing, np.nan, whole)


def objects(cells: Iterable[Any]) -> NDArray[np.object_]:
    """Return cells as they are, in a one-dimensional array of objects."""
    listed = list(cells)
    if all(map(is_, map(type, listed), repeat(str))):
        return np.array(listed, dtype=object)
    array = np.empty(len(listed), dtype=object)
    for i, cell in enumerate(listed):
        array[i] = plain_cell(cell)
    return array


def codes(cells: Iterable[Any]) -> NDArray[np.object_]:
    """Return cells in which a ``str`` is the number that it spells, or None if it spells none."""
    plain = map(plain_cell, cells)
    return objects(parse_number(cell) if isinstance(cell, str) else cell for cell in plain)


class Dictionary:
    """The values of a `DictionaryColumn`, and what was computed of them.

    Parameters
    ----------
    values
        Each may occur several times. An array of ``str`` or of integers is left as it is, so that
        no Python object is made of a value that is only compared.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        is_typed = isinstance(values, np.ndarray) and values.dtype.kind in "Uiu"
        self.values: NDArray[Any] = cast(NDArray[Any], values) if is_typed else objects(values)
        self._results: dict[int, tuple[Any, NDArray[Any]]] = {}

    def once(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Return the function of the values, and last that of None; computed once a function."""
        result = self._results.get(id(function))
        if result is None:
            if len(self._results) >= 8:  # a few functions are remembered
                self._results = {}
            # the function is stored too: were it freed, another one could have its identity
            each = np.append(function(self.values), function(_NONE))
            result = self._results[id(function)] = function, each
        return result[1]

    def __reduce__(self) -> Any:
        return Dictionary, (self.values,)


_NONE = np.array([None], dtype=object)


@frozen(eq=False, repr=False)
class DictionaryColumn(NDArrayOperatorsMixin):
    """A column of Python objects given by codes, as Arrow, pandas and Polars have categories.

    What depends on a cell's value alone is computed once for each value (`of_values`). To anything
    that reads arrays it is an array of objects.

    Parameters
    ----------
    codes
        The place of each row's value; -1 where there is none, which is None.
    dictionary
        The values.

    Examples
    --------
    >>> import numpy as np
    >>> towns = DictionaryColumn(np.array([1, 0, -1, 1]), Dictionary(["Oslo", "Rome"]))
    >>> towns.tolist(), towns[towns == "Rome"].tolist()
    (['Rome', 'Oslo', None, 'Rome'], ['Rome', 'Rome'])
    """

    codes: NDArray[Any]
    dictionary: Dictionary

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of objects."""
        return np.dtype(object)

    @property
    def ndim(self) -> int:
        """One."""
        return 1

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (len(self.codes),)

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, rows: Any) -> Any:
        codes = self.codes[rows]
        if isinstance(codes, np.ndarray):
            return DictionaryColumn(codes, self.dictionary)
        value = None if codes < 0 else self.dictionary.values[codes]
        return value.item() if isinstance(value, np.generic) else value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.of_values(np.asarray)
        return np.asarray(array, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        arrays = [np.asarray(v) if isinstance(v, DictionaryColumn) else v for v in inputs]
        return getattr(ufunc, method)(*arrays, **settings)

    def astype(self, dtype: Any) -> NDArray[Any]:
        """Return the column as an array."""
        return np.asarray(self, dtype=dtype)

    def copy(self) -> DictionaryColumn:
        """Return a copy of the codes, with the same values."""
        return DictionaryColumn(self.codes.copy(), self.dictionary)

    def tolist(self) -> list[Any]:
        """Return the rows' values."""
        return np.asarray(self).tolist()  # type: ignore[no-any-return]

    def of_values(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Return a function of each row's value; it is called with an array of all values."""
        # code -1 is the last place: what the function is of None
        result: NDArray[Any] = self.dictionary.once(function)[self.codes]
        return result


def unit_codes(column: NDArray[Any]) -> Integers:
    """Return an integer for each row that is equal for equal identifiers; -1 without identifier.

    None, NaN, the empty ``str``, and what cannot identify a unit (a list, for example) are not
    identifiers. Units are numbered in the order of their first rows, whatever the column's type.
    """
    if column.dtype.kind == "O":
        return number_identities(column)[0]
    if column.dtype.kind in "iu":
        return _numbered(column)[0]
    missing = np.zeros(len(column), dtype=np.bool_)
    if column.dtype.kind in "fc":
        missing = np.isnan(column)
    elif column.dtype.kind in "mM":
        missing = np.isnat(column)
    elif column.dtype.kind in "USV":
        missing = np.char.str_len(column) == 0 if column.dtype.kind in "US" else ~missing
    _, first, codes = np.unique(column[~missing], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    result = np.full(len(column), -1, dtype=np.int64)
    result[~missing] = rank[codes.reshape(-1)]
    return result


def _numbered(column: NDArray[Any]) -> tuple[Integers, NDArray[Any]]:
    """Return the place of each integer among the distinct ones, and these, by their first rows."""
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        values, codes = np.unique(column, return_inverse=True)
        codes, order = _in_order_of_rows(codes.reshape(-1), len(values))
        return codes, values[order]
    # by a hash table: values in no order are not sorted
    coded = arrow.array(column.astype(column.dtype.newbyteorder("="))).dictionary_encode()
    return np.asarray(coded.indices).astype(np.int64), np.asarray(coded.dictionary)


def number_identities(
    column: NDArray[Any],
) -> tuple[Integers, Sequence[Hashable] | NDArray[np.integer[Any]]]:
    """Return an integer for each cell (-1 without identity), and the identities in that order.

    The identities of integers are an array of them.
    """
    if isinstance(column, DictionaryColumn):
        values, there = column.dictionary.values, column.codes >= 0
        if values.dtype.kind in "iu":
            codes = np.full(len(column), -1, dtype=np.int64)
            codes[there], integers = _numbered(values[column.codes[there]])
            return codes, integers
        by_value, identities = number_identities(values)
        codes, order = _in_order_of_rows(np.append(by_value, -1)[column.codes], len(identities))
        return codes, [identities[i] for i in order]
    if column.dtype.kind in "iu":
        return _numbered(column)
    numbers: dict[Hashable, int] = {}
    keys = [identity(cell) for cell in column]
    each = [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(each, dtype=np.int64), list(numbers)


def _in_order_of_rows(codes: Integers, count: int) -> tuple[Integers, list[int]]:
    """Return codes below ``count`` (or -1) renumbered by their first rows, and the old numbers."""
    first = np.full(count, len(codes))
    rows = np.flatnonzero(codes >= 0)[::-1]
    first[codes[rows]] = rows  # of several rows the last one assigned counts: the first
    order = np.argsort(first)[: np.count_nonzero(first < len(codes))]
    rank = np.full(count + 1, -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], order.tolist()  # code -1 is the last of `rank`


def str_codes(column: NDArray[Any]) -> tuple[list[str], Integers]:
    """Return the str of a column, ascending, and each row's position among them; -1 for none.

    The empty str, None, NaN and whatever else is not a str have no position. Cells of other types
    are told by their type alone: no foreign ``__eq__`` or ``__hash__`` runs on private data.
    """
    if isinstance(column, DictionaryColumn):
        names, by_value = str_codes(column.dictionary.values)
        codes = np.append(by_value, -1)[column.codes]  # code -1 is the last place
        # values that no row has are not of the column
        used = np.unique(codes[codes >= 0])
        rank = np.full(len(names) + 1, -1, dtype=np.int64)
        rank[used] = np.arange(len(used))
        return [names[i] for i in used], rank[codes]
    if column.dtype.kind == "U":
        values, inverse = np.unique(column, return_inverse=True)
        empty = int(len(values) > 0 and values[0] == "")  # the least of all str
        return values[empty:].tolist(), inverse.reshape(-1).astype(np.int64) - empty
    cells = column.tolist() if column.dtype.kind in "OT" else [None] * len(column)
    places: dict[str, int] = {}
    # str(cell) of a subclass would run its own method; this copies the characters
    words = [str.__str__(cell) if issubclass(type(cell), str) else "" for cell in cells]
    codes = np.array([places.setdefault(w, len(places)) if w else -1 for w in words], np.int64)
    names = sorted(places)
    rank = np.full(len(names) + 1, -1, dtype=np.int64)
    rank[[places[name] for name in names]] = np.arange(len(names))
    return names, rank[codes]


def identity(cell: Any) -> Hashable | None:
    """Return a key that is equal for equal identifiers and for them alone; None without one.

    Numbers are equal by value, whatever their type: 1, 1.0, True and Decimal(1) are one. A str is
    its characters: "1", "1.0" and "01" are three, and none of them is the number 1. In a CSV file
    all are str. Times are equal by type and text. (Python's own equality is not transitive here:
    whether two cells are equal would depend on a third.)
    """
    if type(cell) not in _TRUSTED:
        cell = plain_cell(cell)
    if isinstance(cell, str | bytes):
        return (str(cell) if isinstance(cell, str) else bytes(cell)) or None
    if isinstance(cell, UUID):
        return cell
    if isinstance(cell, _TIMES):
        text = str(cell)
        return None if text == "NaT" else (type(cell).__qualname__, text)
    if isinstance(cell, _NUMBERS):
        return _value(cell)
    return None


def _value(cell: Any) -> Hashable | None:
    """Return a number as an ``int`` or an exact fraction; infinities as a tuple."""
    if isinstance(cell, bool | int | np.bool_ | np.integer):
        return int(cell)
    try:
        return Fraction(*cell.as_integer_ratio())
    except OverflowError:
        return ("infinity", bool(cell > 0))
    except ValueError:  # NaN, signalling too
        return None


_KINDS: dict[Reading, str] = {
    "number": "biuf",
    "date": "MUTO",
    "text": "UTO",
    "code": "biufO",
    "value": "biufUTOSmM",
}
"""The NumPy kinds of arrays that a column may be."""

DATES = "declare its first and last date, such as (date(2020, 1, 1), date(2029, 12, 31))"
"""What to do about a column of dates that is declared as something else."""

_WORDS = {
    "b": "booleans",
    "i": "integers",
    "u": "unsigned integers",
    "f": "floats",
    "c": "complex numbers",
    "S": "bytes",
    "U": "strings",
    "T": "strings",
    "O": "objects",
    "M": "dates",
    "m": "times",
    "V": "records",
}
_NEEDS: dict[Reading, str] = {
    "number": "it is declared with bounds, so it must be numeric",
    "date": "it is declared with dates, so it must hold dates",
    "text": "it is declared with categories that are str, so it must hold str",
    "code": "it is declared with categories that are not str, so it must not hold str",
    "value": "it must hold numbers or str",
}


def array_kind(array: NDArray[Any]) -> str:
    """Return the kind of an array, in words; its width would tell how long the longest str is."""
    return _WORDS.get(array.dtype.kind, "something else")


_COMPARED = (str, bytes, bool, int, float, type(None))


def same_cells(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two readings of a column have the same cells; NaN is the same as NaN.

    Objects of other types are the same if they are one object: no foreign ``__eq__`` runs on
    private data.
    """
    if a.dtype != b.dtype or a.shape != b.shape or type(a) is not type(b):
        return False
    if isinstance(a, DictionaryColumn):
        assert isinstance(b, DictionaryColumn)
        return same_cells(a.codes, b.codes) and same_cells(a.dictionary.values, b.dictionary.values)
    if a.dtype.kind != "O":
        return np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM")
    return all(
        x is y or (type(x) is type(y) and type(x) in _COMPARED and (x == y or (x != x and y != y)))
        for x, y in zip(a, b, strict=True)
    )


def read_column(column: Any, name: str, reading: Reading) -> NDArray[Any]:
    """Return a column as an array.

    A list has no type: each of its cells is read by itself, as in a CSV file. Where numbers are
    declared, a ``str`` is the number that it spells, and anything else is missing. An array or a
    frame's column has a type, which is part of the schema: one that does not fit is refused,
    whatever its cells spell.

    Parameters
    ----------
    column
        A list, an array, or a series of pandas, polars or PyArrow.
    name
        For messages.
    reading
        What is declared of it.

    Raises
    ------
    SchemaError
        If the column's type does not fit.
    """
    if isinstance(reading, TensorReading):
        return read_tensors(column, name, reading)
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | memoryview):
        return _untyped(column, reading)
    if isinstance(column, DictionaryColumn):
        return cast(NDArray[Any], column)  # cells that were read one by one
    if isinstance(column, np.ma.MaskedArray):
        return _masked(column, name, reading)
    if isinstance(column, np.ndarray):
        return _array(column, name, reading)
    series = _series(column)
    if series is not None:
        cells = _cells(series, name, reading)
        # it stands for an array of objects wherever one is read
        is_coded = isinstance(cells, DictionaryColumn)
        return cast(NDArray[Any], cells) if is_coded else _array(cells, name, reading)
    if not hasattr(column, "__array__"):
        raise SchemaError(
            f"column {name!r} must be an array, a list or a series, got {type(column).__name__}"
        )
    return _array(np.asarray(column), name, reading)


def check_column(column: Any, name: str, reading: Reading) -> int:
    """Return the length of a column and check its type, without reading a cell.

    Parameters
    ----------
    column, name, reading
        As of `read_column`, which refuses the same columns.

    Raises
    ------
    SchemaError
        If the column's type does not fit.
    """
    if isinstance(reading, TensorReading):
        return len(read_tensors(column, name, reading))
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | memoryview):
        return len(column)  # no type: any cell can be read
    if isinstance(column, np.ndarray):
        _check_array(column, name, reading)
        return len(column)
    series = _series(column)
    if series is None:
        return len(read_column(column, name, reading))
    _array(_cells(series.head(0), name, reading), name, reading)
    return len(series)


def read_tensors(column: Any, name: str, reading: TensorReading) -> NDArray[Any]:
    """Return a column of tensors as an array of shape (n, ...); nothing is copied, or read yet.

    Raises
    ------
    SchemaError
        If it is no array of numbers whose rows have the declared shape.
    """
    if type(column).__module__.partition(".")[0] == "torch" and hasattr(column, "detach"):
        column = column.detach().cpu()
    if isinstance(column, np.ma.MaskedArray):
        masked: Any = column.astype(np.float64)
        column = masked.filled(np.nan)
    if isinstance(column, list | tuple):
        cells = [_tensor_cell(cell, reading.shape) for cell in column]
        return np.stack(cells) if cells else np.zeros((0, *reading.shape))
    if not hasattr(column, "__array__"):
        raise SchemaError(
            f"column {name!r} holds tensors: pass an array, a memory map or a tensor of torch, got "
            f"{type(column).__name__}"
        )
    array = np.asarray(column)
    if array.dtype.kind not in _KINDS["number"]:
        raise SchemaError(
            f"column {name!r}: it is declared as tensors, so it must be numeric, got "
            f"{array_kind(array)}"
        )
    # the shape of a row is a part of the schema; the number of rows is not shown
    if array.ndim < 1 or array.shape[1:] != reading.shape:
        raise SchemaError(
            f"column {name!r}: each row must have the shape {reading.shape}, as declared, got "
            f"{array.shape[1:]}"
        )
    return array


def _tensor_cell(cell: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return one cell of a list, which has no type: what is no array of numbers is missing."""
    missing = np.full(shape, np.nan)
    try:
        array = np.asarray(cell)
    except Exception:  # whatever a cell's own methods raise
        return missing
    if array.dtype.kind not in _KINDS["number"] or array.shape != shape:
        return missing
    return array.astype(np.float64)


def _untyped(column: Sequence[Any], reading: Reading) -> NDArray[Any]:
    if reading == "number":
        return numbers(column)
    if reading == "date":
        return days(column)
    return codes(column) if reading == "code" else objects(column)


def _array(array: NDArray[Any], name: str, reading: Reading) -> NDArray[Any]:
    _check_array(array, name, reading)
    if reading == "number":
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float64)  # no copy: nothing ever writes to it
    if reading == "date":
        return days_of_array(array)
    return objects(array) if array.dtype.kind in "OT" else array


def _check_array(array: NDArray[Any], name: str, reading: Reading) -> None:
    if array.ndim != 1:
        raise SchemaError(f"column {name!r} must be one-dimensional, got {array.ndim} dimensions")
    if array.dtype.kind not in _KINDS[reading]:
        cure = "; convert it with .astype(float)" if reading == "number" else ""
        cure = f"; {DATES}" if array.dtype.kind == "M" else cure
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {array_kind(array)}{cure}")


def _masked(column: Any, name: str, reading: Reading) -> NDArray[Any]:
    """Return a masked array as a plain one, in which masked cells are missing."""
    _array(np.empty(0, dtype=column.dtype), name, reading)  # its type is checked, gaps or not
    if column.ndim != 1:
        raise SchemaError(f"column {name!r} must be one-dimensional, got {column.ndim} dimensions")
    listed = column.tolist()
    return _untyped(listed, reading) if reading in ("number", "date") else objects(listed)


def _series(column: Any) -> Any:
    """Return a series as narwhals sees it; None for anything else."""
    try:
        import narwhals as nw
    except ImportError:
        return None
    package = type(column).__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(column, "buffers"):  # an array, or one chunk
        column = import_module("pyarrow").chunked_array([column])
    if package == "pandas" and hasattr(column, "dtype"):  # an index, or an array of its own types
        column = import_module("pandas").Series(column)
    try:
        return nw.from_native(column, series_only=True)
    except TypeError:
        return None


def _cells(series: Any, name: str, reading: Reading) -> Any:
    """Return a series as an array in which each cell has its own value, with gaps or without.

    Converted in one call, a column of integers with gaps would become floats, and large integers
    would become equal to others. What is done depends on the series' type alone, never on whether
    there are gaps, or on the values.
    """
    import narwhals as nw

    native = getattr(series.to_native(), "dtype", None)
    numeric = series.dtype.is_numeric()
    plain = numeric or series.dtype == nw.Boolean
    if isinstance(native, np.dtype):  # pandas over NumPy: no gaps but NaN
        return np.asarray(series.to_native())
    readable = (nw.String, nw.Categorical, nw.Enum, nw.Binary, nw.Object, nw.Unknown)
    called = type(series.dtype).__name__  # its repr would show categories: private values
    if reading == "date" and called in ("Date", "Datetime"):
        # of a zone's times the dates are those of the zone
        if getattr(series.dtype, "time_zone", None) is not None:
            # polars' zones end at the year 262143, which nanoseconds do not reach
            if series.implementation.is_polars() and series.dtype.time_unit != "ns":
                series = series.clip(*_ZONED)
            series = series.dt.replace_time_zone(None)
        # not as Python's dates, whose years end at 9999: no value may stop a run
        array = np.asarray(series.to_numpy())
        return array if array.dtype.kind == "M" else objects(series.to_list())
    if not (plain or any(series.dtype == dtype for dtype in readable)):
        cure = DATES if called in ("Date", "Datetime") else "convert it to one of them"
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {called}; {cure}")
    is_str, is_bytes = series.dtype == nw.String, series.dtype == nw.Binary
    wrong = {"text": plain or is_bytes, "code": is_str or is_bytes, "number": not plain}
    wrong["date"] = plain or is_bytes
    if wrong.get(str(reading), False) and series.dtype != nw.Unknown:  # polars' type of no values
        cure = "; convert it to floats" if reading == "number" else ""
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {called}{cure}")
    if reading == "number":
        floats = series.dtype in (nw.Float64, nw.Float32)
        array = np.asarray(series.to_numpy()) if floats else numbers(series.to_list())
        return array if array.dtype.kind == "f" else numbers(series.to_list())
    coded = None
    if reading != "date" and any(
        series.dtype == dtype for dtype in (nw.String, nw.Categorical, nw.Enum)
    ):
        coded = _coded(series.to_native(), is_str)
    elif series.dtype.is_integer() and series.dtype not in (nw.Int128, nw.UInt128):
        coded = _coded(series.to_native(), True)
    return objects(series.to_list()) if coded is None else coded


def _coded(column: Any, is_plain: bool) -> DictionaryColumn | None:
    """Return a series of categories, or of ``str`` or integers (plain ones), as codes.

    None for other libraries' series.
    """
    package = type(column).__module__.partition(".")[0]
    if package == "polars" and not is_plain:
        codes = column.to_physical().cast(import_module("polars").Int64).fill_null(-1).to_numpy()
        # a code's value is read from any row that has the code
        row = np.full(int(codes.max(initial=-1)) + 1, -1)
        coded = np.flatnonzero(codes >= 0)
        row[codes[coded]] = coded
        place = np.cumsum(np.append(row >= 0, False)) - 1
        place[-1] = -1  # that of code -1
        return DictionaryColumn(place[codes], Dictionary(column.gather(row[row >= 0]).to_list()))
    if package == "pandas" and type(column.dtype).__name__ == "CategoricalDtype":
        values = Dictionary(column.cat.categories.tolist())
        return DictionaryColumn(column.cat.codes.to_numpy(), values)
    if package not in ("pandas", "polars", "pyarrow"):
        return None
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        return None
    if package == "pandas":
        column = arrow.chunked_array([arrow.array(column)])
    if package == "polars":
        oldest = import_module("polars").CompatLevel.oldest()
        column = arrow.chunked_array([column.to_arrow(compat_level=oldest)])
    return _of_arrow(column, arrow)


def _of_arrow(column: Any, arrow: Any) -> DictionaryColumn | None:
    """Return a chunked array of ``str``, integers or a dictionary type as codes; None for others.

    Integers have a code each: what is computed of an array of them is not worth a search for equal
    ones.
    """
    if arrow.types.is_integer(column.type):
        places = np.arange(len(column))
        places[np.asarray(column.is_null())] = -1
        return DictionaryColumn(places, Dictionary(np.asarray(column.fill_null(0))))
    if not arrow.types.is_dictionary(column.type):
        if not (arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)):
            return None
        column = column.dictionary_encode()
    if column.num_chunks == 1 and len(column.chunk(0).dictionary) <= len(column):
        codes = np.asarray(column.chunk(0).indices.cast(arrow.int32()).fill_null(-1))
        return DictionaryColumn(codes, Dictionary(_values(column.chunk(0).dictionary)))
    values: list[Any] = []
    all_codes, last, start = [np.empty(0, dtype=np.int32)], None, 0
    for chunk in column.chunks:
        codes = np.asarray(chunk.indices.cast(arrow.int32()).fill_null(-1))
        own = chunk.dictionary
        if last is None or not own.equals(last):
            start = len(values)
            last = own
            if len(own) > len(chunk):  # most of the values are not in this chunk
                used = np.unique(codes[codes >= 0])
                codes = np.where(codes < 0, -1, np.searchsorted(used, codes)).astype(np.int32)
                own, last = own.take(arrow.array(used)), None
            values += own.to_pylist()
        all_codes.append(np.where(codes < 0, codes, codes + np.int32(start)))
    return DictionaryColumn(np.concatenate(all_codes), Dictionary(values))


def of_strings(column: Any, parse: Callable[[str], Any] | None = None) -> DictionaryColumn:
    """Return a chunked array of ``str`` without gaps as codes; each value is parsed once.

    Parameters
    ----------
    column
        PyArrow's.
    parse
        What a cell of such a ``str`` is; None for the ``str`` itself.
    """
    coded = column.combine_chunks().dictionary_encode()
    values: Any = _values(coded.dictionary)
    if parse is not None:
        values = [parse(value) for value in coded.dictionary.to_pylist()]
    return DictionaryColumn(np.asarray(coded.indices), Dictionary(values))


STR_CHARACTERS = 2**23
"""The most characters of values that are kept in an array of ``str``, of 4 bytes each."""


def _values(strings: Any) -> Any:
    """Return the values of a dictionary of PyArrow: an array of short ASCII ``str``, or a list.

    Making such an array takes a tenth of the time of making Python objects, and so does looking its
    values up. An array cannot hold a ``str`` that ends in NUL, so that NUL is left to lists.
    """
    sizes = {"string": np.int32, "large_string": np.int64}
    size = sizes.get(str(strings.type))
    if size is None or not len(strings) or strings.null_count:
        return strings.to_pylist()
    _, offset_bytes, data = strings.buffers()
    ends = np.frombuffer(offset_bytes, dtype=size)[strings.offset :][: len(strings) + 1]
    lengths = np.diff(ends)
    width = int(lengths.max())
    if not 0 < width * len(strings) <= STR_CHARACTERS or width > 64:
        return strings.to_pylist()
    characters = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    # bytes from 128 on are of characters of several bytes; 0 - 1 is 255
    if int((characters - np.uint8(1)).max()) >= 127:
        return strings.to_pylist()
    if int(lengths.min()) == width:
        table = characters.reshape(-1, width).astype(np.uint32)
    else:
        table = np.zeros((len(strings), width), dtype=np.uint32)
        table[np.arange(width) < lengths[:, None]] = characters  # row by row, as they lie
    return table.view(f"U{width}").reshape(-1)


def columns_of(data: Any, wanted: Sequence[str]) -> Mapping[str, Any]:
    """Return the columns of a mapping, a structured array or a frame, by name.

    Raises
    ------
    SchemaError
        If ``data`` is none of them.
    """
    if isinstance(data, Mapping):
        return data
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise SchemaError(
                "a plain array has no column names; pass a mapping such as {'age': array[:, 0]}"
            )
        return {name: data[name] for name in data.dtype.names}
    try:
        import narwhals as nw
    except ImportError:
        raise SchemaError(
            f"to read a {type(data).__name__} install adaptive-dp[frames], or pass a mapping of "
            "column names to arrays"
        ) from None
    if hasattr(data, "__arrow_c_array__"):  # a record batch of PyArrow, or of any other library
        data = import_module("pyarrow").table(data)
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        lazy = hasattr(data, "collect")
        items = hasattr(data, "__getitem__") or hasattr(data, "dataset")
        raise SchemaError(
            "data must be a mapping of column names to arrays, a structured array, the path of a "
            "CSV or Parquet file, a pandas, polars or PyArrow table, a data set of PyArrow, or a "
            f"frame or arrays of Dask, got {type(data).__name__}"
            + ("; collect it first" if lazy else "")
            + ("; a data set of PyTorch by dp.torch.MapStyle(dataset, names)" if items else "")
        ) from None
    return _FrameColumns(frame, wanted)


class _FrameColumns(Mapping[str, Any]):
    """The columns of a frame of narwhals, each made when it is read."""

    def __init__(self, frame: Any, wanted: Sequence[str]) -> None:
        there = set(frame.columns)
        self._frame = frame
        self._names = {name: None for name in wanted if name in there}

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._frame[name].to_native()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def column_types(data: Any) -> Mapping[str, Hashable]:
    """Return the types of a frame's columns, which are all of one length; nothing of other data.

    Columns of equal types are read alike, or refused alike, so that one of them need be checked.
    """
    package = type(data).__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(data, "schema"):
        return dict(zip(data.schema.names, data.schema.types, strict=True))
    if package in ("pandas", "polars") and hasattr(data, "dtypes") and hasattr(data, "columns"):
        return dict(zip(data.columns, data.dtypes, strict=True))
    return {}


def row_count(data: Any) -> int:
    """Return the number of rows of data without reading a column."""
    if isinstance(data, Mapping):
        return max((len(v) for v in data.values()), default=0)
    return len(data)
