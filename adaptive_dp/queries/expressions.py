"""Expressions: conditions on rows, and columns that are computed of others with derived bounds.

An `Expression` is a small immutable tree. A plan's document has it as nested lists, the operator
first: ``["/", ["column", "weight", 30, 200], ["**", ["column", "height", 1, 2.2], 2]]``. It is
computed row by row, so the stability of every operation here is 1.

**Bounds.** ``["column", name, low, high]`` is a column clipped to ``[low, high]``. From there the
bounds of every step follow by interval arithmetic, exact rationals rounded outward, and every step
is clipped to its bounds when it is computed. So what a sum or a sensitivity rests on never depends
on floating point; and what could leave the reals is refused when it is declared: a divisor whose
bounds contain 0, a logarithm of what may be 0.

**Missing values.** A number is missing where its cell is (NaN, None, an empty cell, a str that
spells no number); what is computed of a missing number is missing. A comparison with a missing
value is *unknown*, as in SQL: neither it nor its negation is met. ``&`` and ``|`` follow Kleene: a
condition that is met whatever the missing value may be is met. `Column.is_present` is never
unknown, and ``dp.where`` of an unknown condition is missing.

**Each row by itself.** A row's value must not depend, to the last bit, on where in a block it is.
The operations used here are correctly rounded (``+ - * /`` and the root) or computed one value at a
time (the exponential and the logarithm).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants.numerics import ceiling, down, flooring, up
from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.cells import DictionaryColumn, identity
from adaptive_dp.data.scan import ComputedRows, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, Released, lineage
from adaptive_dp.graph.operation import Change, Operation
from adaptive_dp.graph.values import as_tuple, cut, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    ColumnValues,
    Floats,
    Interval,
    Selected,
    Strings,
    Table,
    Values,
    as_date,
    finite_float,
    numbers,
    refuse_unknown_keys,
)
from adaptive_dp.queries.transforms import KeyIndex

Trits = NDArray[np.int8]
"""Truth of a condition in each row: 0 false, 1 unknown, 2 true."""

MOST_NODES = 500
"""The largest number of nodes of an expression."""

DEEPEST = 40
"""The largest depth of an expression: documents are nested up to 64 deep."""

LARGEST = 1e290
"""Bounds are below this in size, as those of columns are."""

MOST_EXPONENT = 64

# -----------------------------------------------------------------------------
# The tree.

ARITHMETIC = ("+", "-", "*", "/", "**")
ORDER: Mapping[str, Callable[..., Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
}
FUNCTIONS = ("abs", "exp", "log", "sqrt", "negative", "year", "month", "weekday")
CONDITIONS = (*ORDER, "same", "in", "present", "and", "or", "not")

Range = tuple[float, float]


@frozen(repr=False)
class Expression(RowFunction, Sequence[Any]):
    """A function of a row's columns: an operator, and what it is applied to.

    As a sequence it is what documents hold: the operator, then its arguments.

    Parameters
    ----------
    operator
        ``column`` (a name, and bounds to which it is clipped; without them it is as it is stored,
        for conditions), ``date`` (the same of dates), ``released`` (the place of a released value
        among a filter's), arithmetic, functions, ``clip``, ``where``, ``fill``, comparisons,
        ``in``, ``present``, ``and``, ``or``, ``not``. ``fill`` of a column as it is stored, of
        categories or str, is one of these too: it has no bounds.
    arguments
        Expressions, numbers, names.
    """

    operator: str
    arguments: tuple[Any, ...] = field(converter=as_tuple)
    bounds: Range | None = field(init=False, eq=False)
    """The bounds of a number; None for conditions, and for what has none."""
    size: int = field(init=False, eq=False)
    depth: int = field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        inner = self.inner
        size, depth = 1 + sum(e.size for e in inner), 1 + max((e.depth for e in inner), default=0)
        if size > MOST_NODES or depth > DEEPEST:
            raise DeclarationError(
                f"an expression has at most {MOST_NODES} steps, nested at most {DEEPEST} deep; "
                "name a part of it by table.with_columns(name=...)"
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", depth)
        if self.operator not in OPERATORS:
            raise DeclarationError(f"an expression has no operator {self.operator!r}")
        object.__setattr__(self, "bounds", _checked(self))

    def __len__(self) -> int:
        return 1 + len(self.arguments)

    def __getitem__(self, index: Any) -> Any:
        return (self.operator, *self.arguments)[index]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.operator, *self.arguments))

    def __repr__(self) -> str:
        return f"<expression {text_of(self)}>"

    @property
    def inner(self) -> tuple[Expression, ...]:
        """The arguments that are expressions."""
        return tuple(each for each in self.arguments if isinstance(each, Expression))

    @property
    def is_condition(self) -> bool:
        """Whether it is true, false or unknown, and not a number."""
        return self.operator in CONDITIONS

    @property
    def nodes(self) -> Iterator[Expression]:
        """The expression and all that it consists of."""
        yield self
        for each in self.inner:
            yield from each.nodes

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it reads, in the order of their names."""
        return tuple(sorted({e.arguments[0] for e in self.nodes if e.operator in LEAVES}))

    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex(_raw(self.arguments[0]), self.arguments[1])

    def __call__(self, columns: Columns) -> NDArray[Any]:
        """Return each row's number, NaN where it is missing, or `Trits` of a condition."""
        with np.errstate(all="ignore"):
            return _computed(self, columns)


def expression(value: Any) -> Expression:
    """Return an expression from itself, or from the nested lists of a document.

    Raises
    ------
    DeclarationError
        If it is not one.
    """
    return _parsed(value, 0)


def _parsed(value: Any, depth: int) -> Expression:
    if isinstance(value, Expression):
        return value
    is_list = isinstance(value, list | tuple) and len(value) > 1 and isinstance(value[0], str)
    if not is_list or depth > DEEPEST:
        raise DeclarationError(
            "an expression is a list of an operator and what it is applied to, such as "
            f"['+', ['column', 'age', 0, 100], 1], got {str(value)[:80]!r}"
        )
    operator, *rest = value
    if operator == "in" and len(rest) == 2 and isinstance(rest[1], list | tuple):
        return Expression("in", (_parsed(rest[0], depth + 1), tuple(rest[1])))
    arguments = [_parsed(v, depth + 1) if isinstance(v, list | tuple) else v for v in rest]
    return Expression(operator, tuple(arguments))


# -----------------------------------------------------------------------------
# Bounds: interval arithmetic over exact rationals, rounded outward.


def _range(value: Any) -> Range:
    """Return the bounds of a number: an expression's, or the constant itself."""
    if isinstance(value, Expression):
        if value.bounds is None:
            raise DeclarationError(
                f"{text_of(value)} is not a number in bounds, so nothing can be computed of it"
                + ("; use dp.where(condition, 1, 0)" if value.is_condition else "")
            )
        return value.bounds
    constant = _constant(value)
    return constant, constant


def _constant(value: Any) -> float:
    number = finite_float("a number in an expression", value)
    if not abs(number) < LARGEST:
        raise DeclarationError(f"a number in an expression must be below 1e290, got {value!r}")
    return number


def _outward(low: Fraction, high: Fraction, what: str) -> Range:
    """Return the narrowest floats around an interval."""
    bounds = flooring(low), ceiling(high)
    if not max(map(abs, bounds)) < LARGEST:
        raise DeclarationError(f"{what} may be larger than 1e290; clip a part of it")
    return bounds


def _corners(operation: Callable[[Fraction, Fraction], Fraction], a: Range, b: Range) -> list[Any]:
    return [operation(Fraction(x), Fraction(y)) for x in a for y in b]


def _arithmetic(operator: str, a: Any, b: Any) -> Range:
    what = f"{_in_order(a, operator)} {operator} {_in_order(b, operator, 1)}"
    if operator == "**":
        return _power(a, b, what)
    x, y = _range(a), _range(b)
    if operator == "/" and y[0] <= 0 <= y[1]:
        raise DeclarationError(
            f"in {what} the divisor may be 0: its bounds are [{y[0]:g}, {y[1]:g}]; clip it, such "
            "as .clip(1, 100), or declare bounds above 0"
        )
    operations: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
        "+": lambda p, q: p + q,
        "-": lambda p, q: p - q,
        "*": lambda p, q: p * q,
        "/": lambda p, q: p / q,
    }
    # each is monotone in either argument (with the other fixed), so extremes are at corners
    corners = _corners(operations[operator], x, y)
    return _outward(min(corners), max(corners), what)


def _power(a: Any, exponent: Any, what: str) -> Range:
    if isinstance(exponent, bool) or not isinstance(exponent, int):
        raise DeclarationError(
            f"an exponent must be an int, got {exponent!r}; use .sqrt() or .exp()"
        )
    if not abs(exponent) <= MOST_EXPONENT:
        raise DeclarationError(f"an exponent is at most {MOST_EXPONENT} in size, got {exponent}")
    low, high = map(Fraction, _range(a))
    if exponent < 0 and low <= 0 <= high:
        raise DeclarationError(
            f"in {what} the base may be 0: its bounds are [{float(low):g}, {float(high):g}]; clip "
            "it, such as .clip(1, 100)"
        )
    ends = [low**exponent, high**exponent]
    if exponent > 0 and exponent % 2 == 0 and low < 0 < high:
        ends.append(Fraction())  # an even power is least at 0
    return _outward(min(ends), max(ends), what)


def _function_range(name: str, value: Any) -> Range:
    low, high = _range(value)
    what = f"{name}({text_of(value)})"
    if name == "negative":
        return -high, -low
    if name == "abs":
        return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    if name in ("year", "month", "weekday"):
        if not _is_date(value):
            raise DeclarationError(f"{text_of(value)} is not a date, so it has no .{name}")
        if name == "month":
            return 1.0, 12.0
        years = _parts(np.array([low, high]), "year")
        return (0.0, 6.0) if name == "weekday" else (float(years[0]), float(years[1]))
    if (name == "log" and not low > 0) or (name == "sqrt" and not low >= 0):
        raise DeclarationError(
            f"{what} needs {'positive' if name == 'log' else 'nonnegative'} values, but the bounds "
            f"are [{low:g}, {high:g}]; clip the column first, such as .clip(1, {max(high, 2):g})"
        )
    if name == "exp" and not high <= 660:
        raise DeclarationError(f"{what} may be larger than 1e290; clip the column first")
    function = {"exp": math.exp, "log": math.log, "sqrt": math.sqrt}[name]
    # a platform's functions are off by less than `up` and `down` add, and exact where they are 0 or
    # 1; not where they are rounded to these: of exp(-1000) the bounds are not 0 and 0
    ends = [function(low), function(high)]
    exact = [(name, x) in _EXACT for x in (low, high)]
    least = ends[0] if exact[0] else down(ends[0])
    return least if name == "log" else max(least, 0.0), ends[1] if exact[1] else up(ends[1])


_EXACT = {("exp", 0.0), ("log", 1.0), ("sqrt", 0.0), ("sqrt", 1.0)}


def _is_date(value: Any) -> bool:
    """Return whether an expression's numbers are the days of dates."""
    if not isinstance(value, Expression):
        return False
    of_date = value.operator in ("clip", "fill") and _is_date(value.arguments[0])
    return value.operator == "date" or of_date


def _checked(e: Expression) -> Range | None:
    """Return the bounds of an expression; refuse arguments that its operator does not take."""
    operator, given = e.operator, e.arguments
    if operator in LEAVES:
        return _leaf(operator, given)
    _expect(e, OPERATORS[operator])
    if operator == "released":
        if not (isinstance(given[0], int) and not isinstance(given[0], bool) and given[0] >= 1):
            raise DeclarationError(f"a released value has a place from 1 on, got {given[0]!r}")
        return None
    if operator in ARITHMETIC:
        return _arithmetic(operator, *given)
    if operator in FUNCTIONS:
        return _function_range(operator, given[0])
    if operator == "clip":
        low, high = _range(given[0])
        bounds = Interval(_constant(given[1]), _constant(given[2]))
        return (
            min(max(low, bounds.lower), bounds.upper),
            min(max(high, bounds.lower), bounds.upper),
        )
    if operator == "where":
        if not _is_condition(given[0]):
            raise DeclarationError(
                f"dp.where needs a condition such as people['age'] >= 18, got {given[0]!r}"
            )
        return _hull(_range(given[1]), _range(given[2]))
    if is_filled(e):
        if not isinstance(given[1], str):
            _constant(int(given[1]) if isinstance(given[1], bool) else given[1])
        elif not given[1]:
            raise DeclarationError("an empty str is a missing value itself; fill with another")
        return None
    if operator == "fill":
        return _hull(_range(given[0]), (_constant(given[1]),) * 2)
    _check_condition(e)
    return None


def _hull(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _leaf(operator: str, given: tuple[Any, ...]) -> Range | None:
    if not (len(given) in (1, 3) and isinstance(given[0], str) and given[0]):
        raise DeclarationError(
            f"a {operator} in an expression is a name, or a name and two bounds, got {given!r}"
        )
    if len(given) == 1:
        return None
    bounds = Interval(_constant(given[1]), _constant(given[2]))
    if operator == "date" and not (bounds.lower >= -719_162 and bounds.upper <= 2_932_896):
        raise DeclarationError(
            f"dates are days since 1970-01-01, of the years 1 to 9999, got bounds {bounds}"
        )
    return bounds.lower, bounds.upper


def _expect(e: Expression, count: int) -> None:
    fits = len(e.arguments) >= 2 if count < 0 else len(e.arguments) == count
    if not fits:
        wanted = "two or more" if count < 0 else str(count)
        raise DeclarationError(
            f"{e.operator!r} in an expression takes {wanted} arguments, got {len(e.arguments)}"
        )


def _check_condition(e: Expression) -> None:
    operator, given = e.operator, e.arguments
    if operator in ("and", "or", "not"):
        if not all(_is_condition(each) for each in given):
            raise DeclarationError(
                f"{operator!r} joins conditions such as people['age'] >= 18, got "
                f"{', '.join(text_of(v) for v in given if not _is_condition(v))}"
            )
    elif operator in ORDER:
        for each in given:
            if _is_condition(each):
                raise DeclarationError(
                    f"{text_of(each)} is a condition, which {operator} cannot compare; put "
                    "parentheses around the conditions that & and | join"
                )
            if isinstance(each, str):
                raise DeclarationError(
                    f"{operator} compares numbers, got {each!r}; for str write "
                    "table['region'] == 'A' or table['region'].isin(['A'])"
                )
            if not isinstance(each, Expression):
                _constant(each)
    elif operator == "same":
        if not all(_is_stored(each) for each in given):
            raise DeclarationError(f"'same' compares two columns of str, got {e.arguments!r}")
    elif operator == "in":
        if not (isinstance(given[0], Expression) and isinstance(given[1], tuple)):
            raise DeclarationError(f"the test 'in' needs a list of values, got {given[1]!r}")
        if _is_condition(given[0]) or given[0].operator == "released":
            raise DeclarationError(f"'in' looks for values of a column, got {text_of(given[0])}")
        for each in given[1]:
            if not isinstance(each, str | int) and not (isinstance(each, float) and each == each):
                raise DeclarationError(f"'in' looks for str and numbers, got {each!r}")
    elif not isinstance(given[0], Expression) or _is_condition(given[0]):
        raise DeclarationError(f"only a column is present or missing, got {text_of(given[0])}")


def _is_condition(value: Any) -> bool:
    return isinstance(value, Expression) and value.is_condition


def _is_stored(value: Any) -> bool:
    """Return whether an expression is a column as it is stored."""
    return isinstance(value, Expression) and value.operator in LEAVES and len(value) == 2


def is_filled(value: Any) -> bool:
    """Return whether an expression is a column of categories or str with a value for missing ones.

    Its column has no bounds, and it has none.
    """
    is_fill = isinstance(value, Expression) and value.operator == "fill"
    return is_fill and _is_stored(value.arguments[0])


LEAVES = ("column", "date")
OPERATORS: Mapping[str, int] = {
    **dict.fromkeys(LEAVES, -1),
    "released": 1,
    **dict.fromkeys(ARITHMETIC, 2),
    **dict.fromkeys(FUNCTIONS, 1),
    "clip": 3,
    "where": 3,
    "fill": 2,
    **dict.fromkeys(ORDER, 2),
    "same": 2,
    "in": 2,
    "present": 1,
    "and": -1,
    "or": -1,
    "not": 1,
}
"""How many arguments each operator has; -1 for two or more."""

# -----------------------------------------------------------------------------
# Values, row by row.


def _raw(value: Any) -> Callable[[Columns], NDArray[Any]]:
    """Return the function of a column as it is stored, or of a computed number."""
    return ColumnValues(value.arguments[0]) if _is_stored(value) else value


def _numbers(value: Any, columns: Columns) -> Any:
    """Return numbers of a block, NaN where they are missing; a constant is itself."""
    if not isinstance(value, Expression):
        return float(value)
    return numbers(once(columns, _raw(value)))


def _computed(e: Expression, columns: Columns) -> NDArray[Any]:
    operator, given = e.operator, e.arguments
    if is_filled(e):
        return _filled(columns[given[0].arguments[0]], given[1])
    if e.bounds is None:
        return _truth(e, columns)
    if operator in LEAVES:
        value = numbers(columns[given[0]])
    elif operator in ARITHMETIC:
        value = _of_two(operator, _numbers(given[0], columns), given[1], columns)
    elif operator in FUNCTIONS:
        value = _of_one(operator, _numbers(given[0], columns))
    elif operator == "clip":
        value = _numbers(given[0], columns)
    elif operator == "fill":
        old = _numbers(given[0], columns)
        value = np.where(np.isnan(old), float(given[1]), old)
    else:
        met = once(columns, given[0])
        value = np.where(met == 2, _numbers(given[1], columns), _numbers(given[2], columns))
        value = np.where(met == 1, np.nan, value)
    # every step is clipped to its bounds: NaN, a missing value, stays NaN
    return np.clip(value, *e.bounds)


def _filled(values: NDArray[Any], value: Any) -> NDArray[Any]:
    """Return a column as it is stored, with a value in the cells that have none.

    Filled with a number it holds numbers alone, which sums rely on: other cells are missing.
    """
    there = present(values) if isinstance(value, str) else ~np.isnan(numbers(values))
    cells = np.empty(len(values), dtype=object)
    cells[:] = values.tolist()
    cells[~there] = value
    return cells


def _of_two(operator: str, a: Any, right: Any, columns: Columns) -> Any:
    if operator == "**":
        power = _integer_power(a, abs(right))
        return power if right >= 0 else 1.0 / power
    b = _numbers(right, columns)
    operations = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
    return operations[operator](a, b)


def _integer_power(base: Any, exponent: int) -> Any:
    """Return a power by repeated multiplication, whose roundings are the same for equal values."""
    # 1 where it is present: NaN ** 0 is missing too
    result = np.where(np.isnan(base), np.nan, 1.0)
    while exponent:
        if exponent & 1:
            result = result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return result


def _of_one(name: str, value: Any) -> Any:
    value = np.asarray(value, dtype=np.float64)
    if name in ("year", "month", "weekday"):
        return _parts(value, name)
    if name in ("exp", "log"):
        # one value at a time: vector units may round differently by a value's place in a block
        return _one_by_one(math.exp if name == "exp" else math.log, value)
    functions: Mapping[str, Callable[[Any], Any]] = {
        "abs": np.abs,
        "negative": np.negative,
        "sqrt": np.sqrt,
    }
    return functions[name](value)


def _one_by_one(function: Callable[[float], float], values: Floats) -> Floats:
    return np.fromiter(map(function, values.ravel().tolist()), np.float64, values.size).reshape(
        values.shape
    )


def _parts(days: Floats, name: str) -> Floats:
    """Return a part of dates, given as days since 1970-01-01."""
    there = ~np.isnan(days)
    whole = np.floor(np.where(there, days, 0.0)).astype(np.int64)
    if name == "weekday":
        part = (whole + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    else:
        dates = whole.astype("datetime64[D]")
        months = dates.astype("datetime64[M]").astype(np.int64)
        part = months // 12 + 1970 if name == "year" else months % 12 + 1
    return np.where(there, part.astype(np.float64), np.nan)


def _truth(e: Expression, columns: Columns) -> NDArray[Any]:
    operator, given = e.operator, e.arguments
    if operator in ("and", "or"):
        # Kleene's logic over 0 < 1 < 2: the least and the largest
        join = np.minimum if operator == "and" else np.maximum
        return reduce(join, (once(columns, each) for each in given))
    if operator == "not":
        return np.asarray(2 - once(columns, given[0]), dtype=np.int8)
    if operator in ORDER:
        a, b = (_numbers(each, columns) for each in given)
        return _trits(ORDER[operator](a, b), ~(np.isnan(a) | np.isnan(b)))
    if operator == "present":
        return _trits(present(once(columns, _raw(given[0]))), np.True_)
    if operator == "in":
        there = present(once(columns, _raw(given[0])))
        return _trits(once(columns, e._index) >= 0, there)
    if operator == "same":
        a, b = (columns[each.arguments[0]].tolist() for each in given)
        is_str = [
            type(x) is str and type(y) is str and x != "" != y for x, y in zip(a, b, strict=True)
        ]
        # nothing but str is compared, so that no foreign `__eq__` runs on private data
        equal = [ok and x == y for ok, x, y in zip(is_str, a, b, strict=True)]
        return _trits(np.array(equal, dtype=np.bool_), np.array(is_str, dtype=np.bool_))
    raise DeclarationError(f"{text_of(e)} has no value of its own")


def _trits(met: Any, there: Any) -> Trits:
    return np.where(there, np.where(met, 2, 0), 1).astype(np.int8)


def present(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which cells are not missing: not NaN, None, NaT, or an empty ``str``.

    Examples
    --------
    >>> import numpy as np
    >>> present(np.array([1.0, np.nan])).tolist()
    [True, False]
    >>> present(np.array(["A", "", None], dtype=object)).tolist()
    [True, False, False]
    """
    if isinstance(values, DictionaryColumn):
        return values.of_values(present)
    if values.dtype.kind == "f":
        return np.asarray(~np.isnan(values))
    if values.dtype.kind in "mM":
        return np.asarray(~np.isnat(values))
    if values.dtype.kind in "biu":
        return np.ones(len(values), dtype=np.bool_)
    cells = (cell is not None and identity(cell) is not None for cell in values.tolist())
    return np.fromiter(cells, np.bool_, len(values))


@frozen
class Holds(RowFunction):
    """Whether each row meets a condition: not where it is unknown."""

    condition: Expression

    @cached_property
    def _needed(self) -> tuple[str, ...]:
        """The columns whose presence is all of the condition; () where it is another."""
        parts = list(self.condition.inner if self.condition.operator == "and" else [self.condition])
        if not all(e.operator == "present" and _is_stored(e.arguments[0]) for e in parts):
            return ()
        return tuple(e.arguments[0].arguments[0] for e in parts)

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows meet it."""
        # complete numbers are the usual case: a maximum is NaN where any value is
        if self._needed and all(_has_no_nan(columns[name]) for name in self._needed):
            return np.ones(len(columns[self._needed[0]]), dtype=np.bool_)
        return np.asarray(once(columns, self.condition) == 2)


def _has_no_nan(values: NDArray[Any]) -> bool:
    floats = isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.size > 0
    return floats and not math.isnan(float(values.max()))


@frozen
class Truth(RowFunction):
    """A condition as a column: 1, 0, or NaN where it is unknown."""

    condition: Expression

    def __call__(self, columns: Columns) -> Floats:
        """Return the numbers."""
        trits = once(columns, self.condition)
        return np.where(trits == 1, np.nan, trits / 2)


def with_values(e: Expression, values: Sequence[Any]) -> Expression:
    """Return a condition with released values in their places."""
    if not values:
        return e
    arguments = tuple(_with_value(each, values) for each in e.arguments)
    return e if arguments == e.arguments else _unchecked(e, arguments)


def _with_value(argument: Any, values: Sequence[Any]) -> Any:
    if not isinstance(argument, Expression):
        return argument
    if argument.operator == "released":
        return float(values[argument.arguments[0] - 1])
    return with_values(argument, values)


def _unchecked(e: Expression, arguments: tuple[Any, ...]) -> Expression:
    # a released value may be infinite or NaN, which no declaration may have
    made: Expression = object.__new__(Expression)
    for name, value in (
        ("operator", e.operator),
        ("arguments", arguments),
        ("bounds", e.bounds),
        ("size", e.size),
        ("depth", e.depth),
    ):
        object.__setattr__(made, name, value)
    return made


# -----------------------------------------------------------------------------
# What people read.

_LEVELS = {"or": 1, "and": 2, "not": 3, **dict.fromkeys((*ORDER, "same", "in", "present"), 4)}
_LEVELS |= {"+": 5, "-": 5, "*": 6, "/": 6, "negative": 7, "**": 8}


def _in_order(value: Any, operator: str, more: int = 0) -> str:
    """Return an argument of an operator, in parentheses where they are needed."""
    own = _LEVELS.get(value.operator, 9) if isinstance(value, Expression) else 9
    text = text_of(value)
    return f"({text})" if own < _LEVELS.get(operator, 9) + more else text


def _beside(constant: Any, value: Any) -> str:
    """Return a constant as it is written beside what it is compared with: days as a date."""
    return str(as_date(constant)) if _is_date(value) else text_of(constant)


def text_of(value: Any) -> str:
    """Return an expression as people write it.

    Examples
    --------
    >>> weight, height = (("column", "weight", 30, 200), ("column", "height", 1, 2.2))
    >>> text_of(expression(("/", weight, ("**", height, 2))))
    'weight / height ** 2'
    >>> text_of(expression(("not", ("or", ("<", ("column", "age"), 18), ("present", weight)))))
    'not (age < 18 or weight is present)'
    """
    if not isinstance(value, Expression):
        return f"{value:g}" if isinstance(value, float) else str(value)
    operator, given = value.operator, value.arguments
    if operator in LEAVES:
        return str(given[0])
    if operator == "released":
        return "..."
    if operator in ("and", "or"):
        return f" {operator} ".join(_in_order(each, operator, 1) for each in given)
    if operator == "not":
        negated = text_of(given[0])
        if given[0].operator == "present":
            return negated.removesuffix(" is present") + " is missing"
        if given[0].operator == "in":
            return negated.replace(" in {", " not in {", 1)
        return f"not {_in_order(given[0], operator)}"
    if operator == "present":
        return f"{_in_order(given[0], operator)} is present"
    if operator == "in":
        shown = ", ".join(_beside(v, given[0]) for v in given[1][:6])
        shown += ", ..." if len(given[1]) > 6 else ""
        return f"{_in_order(given[0], operator)} in {{{shown}}}"
    if operator == "same":
        return f"{_in_order(given[0], operator)} == {_in_order(given[1], operator)}"
    if operator == "negative":
        return f"-{_in_order(given[0], operator)}"
    if operator in ORDER and not isinstance(given[1], Expression):
        return f"{_in_order(given[0], operator)} {operator} {_beside(given[1], given[0])}"
    if operator in ORDER or operator in ARITHMETIC:
        return f"{_in_order(given[0], operator)} {operator} {_in_order(given[1], operator, 1)}"
    return f"{operator}({', '.join(text_of(each) for each in given)})"


# -----------------------------------------------------------------------------
# What a table must declare for an expression.


def check_columns(e: Expression, table: Table) -> None:
    """Refuse an expression that the columns of a table do not allow.

    Raises
    ------
    DeclarationError
        If a column is not declared, or holds str where numbers are needed, or the other way.
    """
    for each in e.nodes:
        for argument in each.inner:
            if argument.operator not in LEAVES:
                continue
            name = argument.arguments[0]
            declared = table.find(name)
            if is_filled(each):
                filled_column(each, table)
            elif each.operator == "in" and _is_stored(argument):
                refuse_unknown_keys(name, declared, each.arguments[1])
            elif each.operator == "same":
                if not (declared is None or holds_strings(declared)):
                    raise DeclarationError(f"column {name!r} holds numbers, not str")
            elif each.operator != "present":
                refuse_strings(name, declared)
        for argument in each.inner:
            if is_filled(argument) and each.operator == "in":
                of, keys = text_of(argument), each.arguments[1]
                refuse_unknown_keys(of, filled_column(argument, table), keys)
            elif is_filled(argument) and each.operator in ORDER:
                refuse_strings(text_of(argument), filled_column(argument, table))
                raise DeclarationError(
                    f"{text_of(argument)} has no bounds, by which it is compared"
                )
    if e.operator in LEAVES:
        refuse_strings(e.arguments[0], table.find(e.arguments[0]))


def filled_column(e: Expression, table: Table) -> Categories | Strings:
    """Return what a column of categories or str holds whose missing values are filled.

    A value that is none of the categories becomes the last of them.
    """
    name, value = e.arguments[0].arguments[0], e.arguments[1]
    declared = table.find(name)
    if isinstance(declared, Strings) and isinstance(value, str):
        return declared
    if not isinstance(declared, Categories) or (holds_strings(declared) > isinstance(value, str)):
        raise DeclarationError(
            f"column {name!r}, declared as {declared}, cannot be filled with {value!r}; fill "
            "strings with a str, and declare bounds of numbers"
        )
    return declared if value in declared.values else Categories((*declared.values, value))


def holds_strings(declared: Column) -> bool:
    """Return whether a column holds str."""
    values = declared.values if isinstance(declared, Categories) else ()
    return isinstance(declared, Strings) or any(isinstance(v, str) for v in values)


def refuse_strings(name: str, declared: Column) -> None:
    """Refuse a column of str in arithmetic, and in comparisons that need an order."""
    if holds_strings(declared):
        raise DeclarationError(
            f"column {name!r} holds {declared}, not numbers: compare it by table[{name!r}] == 'A' "
            f"or table[{name!r}].isin([...])"
        )


def may_be_missing(e: Any, complete: frozenset[str]) -> bool:
    """Return whether an expression may be missing in some row; not where all is filled.

    Parameters
    ----------
    e
        An expression, or a constant.
    complete
        The columns that are present in every row.
    """
    if not isinstance(e, Expression) or e.operator in ("fill", "present"):
        return False
    if e.operator in LEAVES:
        return e.arguments[0] not in complete
    return any(may_be_missing(each, complete) for each in e.inner)


# -----------------------------------------------------------------------------
# Operations: a column, columns of a table, and rows that meet a condition.


@frozen
class Computed(Operation):
    """A number that is computed of a row's columns, in derived bounds.

    Parameters
    ----------
    expression
        What is computed.
    """

    kind: ClassVar[str] = "computed"
    column_fields: ClassVar[tuple[str, ...]] = ("names",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    expression: Any = field(converter=expression)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it reads."""
        names: tuple[str, ...] = self.expression.names
        return names

    def label(self) -> str:
        """Return the expression."""
        return cut(text_of(self.expression), 100)

    def detail(self) -> str:
        """Return the derived bounds, of numbers."""
        bounds = self.expression.bounds
        return "" if bounds is None else f"in {Interval(*bounds)}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return numbers in the derived bounds."""
        table: Table = inputs[0]
        declared, missing = _declaration(self.expression, table)
        return Values(self.label(), declared, table.neighbors, table.size, missing)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the numbers; nothing is computed yet."""
        return Selected(inputs[0], self.expression)


def _declaration(e: Expression, table: Table) -> tuple[Column, bool]:
    """Return what a computed column holds, and whether it may be missing."""
    if any(each.operator == "released" for each in e.nodes):
        raise DeclarationError(
            f"{text_of(e)} has a released value in it; those may be compared with in filters"
        )
    if not e.names:
        raise DeclarationError(f"{text_of(e)} is computed of no column")
    check_columns(e, table)
    if is_filled(e):
        return filled_column(e, table), False
    missing = may_be_missing(e, table.complete)
    if e.is_condition:
        return Categories((False, True)), missing
    return Interval(*_range(e)), missing


def _expression_list(values: Any) -> tuple[Expression, ...]:
    return tuple(expression(each) for each in as_tuple(values))


@frozen
class WithColumns(Operation):
    """A table with computed columns, each computed when it is first read.

    A row's new values depend on that row alone, so the stability is 1; a unit has as many rows as
    before.

    Parameters
    ----------
    names
        The new columns' names; an old one is replaced.
    expressions
        What each is, of the table's columns before: a number, or a condition (false and true).
    """

    kind: ClassVar[str] = "with_columns"
    column_fields: ClassVar[tuple[str, ...]] = ()  # of what is computed, what is read is read
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    names: tuple[str, ...] = field(converter=strings)
    expressions: tuple[Any, ...] = field(converter=_expression_list)

    def label(self) -> str:
        """Return the columns."""
        pairs = zip(self.names, self.expressions, strict=True)
        return cut(", ".join(f"{k} = {text_of(e)}" for k, e in pairs), 100)

    def detail(self) -> str:
        """Return the bounds of the new columns."""
        ranges = [e.bounds for e in self.expressions if e.bounds is not None]
        return cut(", ".join(f"in {Interval(*each)}" for each in ranges), 60)

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table with the new columns."""
        table: Table = inputs[0]
        if not (0 < len(self.names) == len(self.expressions)):
            raise DeclarationError("with_columns needs a column at least, such as twice=a + a")
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise DeclarationError(f"new columns need different names, got {list(self.names)!r}")
        if table.unit in self.names:
            raise DeclarationError(f"{table.unit!r} identifies units and cannot be replaced")
        made = {
            name: _declaration(e, table)
            for name, e in zip(self.names, self.expressions, strict=True)
        }
        present = {name for name, (_, missing) in made.items() if not missing}
        return evolve(
            table,
            columns={**table.columns, **{name: declared for name, (declared, _) in made.items()}},
            complete=frozenset((table.complete - set(self.names)) | present),
        )

    def computed_columns(self) -> Mapping[str, frozenset[str]]:
        """Return the new columns, each with those that it is computed of."""
        pairs = zip(self.names, self.expressions, strict=True)
        return {name: frozenset(e.names) for name, e in pairs}

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows with the new columns; nothing is computed yet."""
        pairs = zip(self.names, self.expressions, strict=True)
        made = tuple((k, Truth(e) if e.is_condition else e) for k, e in pairs)
        return ComputedRows(inputs[0], made)


@frozen
class OntoUnit(RowFunction):
    """A column mapped from a range onto [-1, 1], and clipped to that; a missing value stays so."""

    name: str
    lower: float
    upper: float

    def __call__(self, columns: Columns) -> Floats:
        """Return the numbers."""
        half = self.upper / 2 - self.lower / 2
        middle = self.lower + half
        values = numbers(columns[self.name])
        if not half > 0:  # a range of one point, or one that is none
            return np.where(np.isnan(values), np.nan, 0.0)
        with np.errstate(over="ignore"):
            return np.asarray(np.clip((values - middle) / half, -1.0, 1.0))


@frozen
class Rescaled(Operation):
    """A table whose columns are mapped from released ranges onto [-1, 1], and clipped to them.

    A row's new values depend on that row and on released numbers alone, so the stability is 1. The
    second input is an array of shape (k, 2): each column's lower and upper end.

    Parameters
    ----------
    names
        The columns, numbers with or without bounds.
    """

    kind: ClassVar[str] = "rescaled"
    column_fields: ClassVar[tuple[str, ...]] = ()  # of what is computed, what is read is read
    input_type: ClassVar[type] = Table
    max_released_inputs: ClassVar[int] = 1

    names: tuple[str, ...] = field(converter=strings)

    def label(self) -> str:
        """Return the columns."""
        return cut(f"{', '.join(self.names)} from released ranges onto [-1, 1]", 100)

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table with the columns' new bounds."""
        table: Table = inputs[0]
        if len(inputs) != 2:
            raise DeclarationError("rescaled needs a table and the columns' released ranges")
        if not self.names or len(set(self.names)) != len(self.names):
            raise DeclarationError(f"rescaled needs different columns, got {list(self.names)!r}")
        for name in self.names:
            declared = table.find(name)
            if not (declared is None or isinstance(declared, Interval)) or name == table.unit:
                raise DeclarationError(f"rescaled needs columns of numbers; {name!r} is {declared}")
        return evolve(
            table, columns={**table.columns, **{name: Interval(-1.0, 1.0) for name in self.names}}
        )

    def computed_columns(self) -> Mapping[str, frozenset[str]]:
        """Return each column, which is computed of itself."""
        return {name: frozenset([name]) for name in self.names}

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows with the new columns; nothing is computed yet."""
        ranges = np.asarray(inputs[1], dtype=np.float64).reshape(-1, 2)
        pairs = zip(self.names, np.nan_to_num(ranges).tolist(), strict=True)
        return ComputedRows(inputs[0], tuple((name, OntoUnit(name, *each)) for name, each in pairs))


@frozen
class Where(Operation):
    """The rows that meet a condition; one that is unknown, for a missing value, is not met.

    Whether a row is kept depends on its own values and on released ones, so the stability is 1: one
    unit still changes only its own rows, but may now have fewer of them, or none.

    Parameters
    ----------
    condition
        The condition; ``["released", i]`` in it is the i-th released input.
    """

    kind: ClassVar[str] = "where"
    column_fields: ClassVar[tuple[str, ...]] = ("names",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True
    max_released_inputs: ClassVar[int] = 16

    condition: Any = field(converter=expression)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it reads."""
        names: tuple[str, ...] = self.condition.names
        return names

    def label(self) -> str:
        """Return the condition."""
        return cut(text_of(self.condition), 100)

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, its number of units no longer public."""
        check_filter(self.condition, inputs[0])
        places = {e.arguments[0] for e in self.condition.nodes if e.operator == "released"}
        if places != set(range(1, len(inputs))):
            raise DeclarationError(
                f"the condition {self.label()} compares with {len(places)} released values, and "
                f"reads {len(inputs) - 1}"
            )
        complete = inputs[0].complete | surely_present(self.condition)
        return evolve(inputs[0].uncounted(), complete=complete)

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a unit may lose rows to the filter."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows that meet the condition."""
        condition = with_values(self.condition, inputs[1:])
        return inputs[0].where(Holds(condition))  # type: ignore[no-any-return]


def surely_present(condition: Expression) -> frozenset[str]:
    """Return columns that have a value in every row that meets a condition."""
    if condition.operator == "and":
        return frozenset[str]().union(*map(surely_present, condition.inner))
    if condition.operator in (*ORDER, "same", "in", "present"):
        # a comparison with a missing value is not met
        return frozenset(e.arguments[0] for e in condition.inner if e.operator in LEAVES)
    return frozenset()


def check_filter(condition: Expression, table: Table) -> None:
    """Refuse what is no condition, or one that the table's columns do not allow."""
    if not condition.is_condition:
        raise DeclarationError(
            f"a filter needs a condition such as table['age'] >= 18, got {text_of(condition)}"
        )
    if not condition.names:
        raise DeclarationError(f"the condition {text_of(condition)} reads no column")
    check_columns(condition, table)


# -----------------------------------------------------------------------------
# Conditions as users write them.


@frozen(eq=False, repr=False)
class Condition:
    """A condition on the rows of a table, for `Table.filter`, `Table.counts` and `where`.

    Made by ``table["age"] >= 18``, ``table["town"] == "A"``, ``table["town"].isin([...])`` or
    ``table["age"].is_present()``, and joined by ``&`` (and), ``|`` (or) and ``~`` (not), each
    comparison in parentheses. It is private, so it has no truth value.

    Where a value is missing, a comparison with it is unknown, as in SQL: neither it nor its
    negation is met.

    Parameters
    ----------
    expression
        The condition.
    handles
        The released values in it, in the order of their places.
    table
        The table of its columns.
    """

    expression: Expression
    handles: tuple[Released[Any], ...] = ()
    table: Handle | None = None

    def __repr__(self) -> str:
        return f"<private condition {text_of(self.expression)}>"

    def __bool__(self) -> bool:
        raise TypeError(
            f"the condition {text_of(self.expression)} is private and has no truth value; pass it "
            "to table.filter(...), and join conditions by & (and), | (or) and ~ (not), each in "
            "parentheses: (a >= 1) & ~(b == 2)"
        )

    def __and__(self, other: Any) -> Condition:
        return self._joined("and", other)

    def __or__(self, other: Any) -> Condition:
        return self._joined("or", other)

    def __invert__(self) -> Condition:
        return evolve(self, expression=Expression("not", (self.expression,)))

    def _joined(self, operator: str, other: Any) -> Condition:
        other = as_condition(other)
        if not isinstance(other, Condition):
            raise DeclarationError(
                f"{'&' if operator == 'and' else '|'} joins conditions, got "
                f"{type(other).__name__}; put parentheses around each: (a >= 1) & (b == 2)"
            )
        refuse_other_data(self.table, other.table)
        shifted = _shifted(other.expression, len(self.handles))
        # a chain of conditions is one step, however long it is
        parts = [
            part
            for e in (self.expression, shifted)
            for part in (e.arguments if e.operator == operator else (e,))
        ]
        return Condition(
            Expression(operator, tuple(parts)), (*self.handles, *other.handles), self.table
        )

    @property
    def plain(self) -> tuple[str, str, Any] | None:
        """The column, test and operand of a comparison of one column; None for any other.

        The operand is None where it is a released value.
        """
        e = self.expression
        if e.operator not in ("<", "<=", ">", ">=", "in") or not _is_stored(e.arguments[0]):
            return None
        if _is_date(e.arguments[0]):  # whose days are shown as dates
            return None
        operand = e.arguments[1]
        if isinstance(operand, Expression):
            if operand.operator != "released":
                return None
            operand = None
        return e.arguments[0].arguments[0], e.operator, operand


def as_condition(value: Any) -> Any:
    """Return a column of bool as the condition that it is true; anything else as it is."""
    made = getattr(type(value), "_as_condition", None)
    return value if made is None else made(value)


def _shifted(e: Expression, by: int) -> Expression:
    """Return a condition whose released values have later places."""
    if by == 0:
        return e
    if e.operator == "released":
        return Expression("released", (e.arguments[0] + by,))
    arguments = tuple(_shifted(v, by) if isinstance(v, Expression) else v for v in e.arguments)
    return Expression(e.operator, arguments)


def refuse_other_data(a: Handle | None, b: Handle | None, what: object = "an expression") -> None:
    """Refuse columns of two data sets in one expression."""
    if a is None or b is None:
        return
    # the source decides: an expression may be written with any table derived from it
    first, second = lineage(a)[0].operation, lineage(b)[0].operation
    if first != second:
        raise DeclarationError(
            f"the columns of {what} must belong to one data set, got {first.label()!r} and "
            f"{second.label()!r}"
        )
