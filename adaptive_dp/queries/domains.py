"""What is known of a private value without looking at it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.graph.change import Neighbors
from adaptive_dp.graph.convert import anything, perhaps
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import require


def number(what: str, value: Any) -> float:
    """Return ``value`` as a finite float.

    Raises
    ------
    DeclarationError
        If it is anything else.
    """
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise DeclarationError(f"{what} must be a finite number, got {value!r}")
    try:
        result = float(value)
    except (OverflowError, TypeError, ValueError):
        raise DeclarationError(f"{what} must be a finite number, got {value!r}") from None
    if not math.isfinite(result):
        raise DeclarationError(f"{what} must be a finite number, got {value!r}")
    return result


def edges_of(values: Any) -> tuple[float, ...] | None:
    """Return edges as plain numbers; what is none is left for the operation to refuse."""
    found = perhaps(values)
    if found is None:
        return None
    return tuple(float(v) if isinstance(v, np.generic | Fraction) else v for v in found)


def _lower(value: float) -> float:
    return number("a lower bound", value)


def _upper(value: float) -> float:
    return number("an upper bound", value)


@frozen
class Interval:
    """A number in [lower, upper]."""

    document_key: ClassVar[str] = "bounds"

    lower: float = field(converter=_lower)
    upper: float = field(converter=_upper)

    def __attrs_post_init__(self) -> None:
        require(
            self.lower <= self.upper,
            f"bounds must satisfy lower <= upper, got ({self.lower:g}, {self.upper:g}); swap them",
        )
        require(
            max(abs(self.lower), abs(self.upper)) < 1e290,
            f"bounds must be below 1e290 in size, got ({self.lower:g}, {self.upper:g})",
        )

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.lower), abs(self.upper))

    def __str__(self) -> str:
        return f"[{self.lower:g}, {self.upper:g}]"


def interval(value: Any) -> Interval:
    """Return an interval from itself, or from a pair of numbers."""
    if isinstance(value, Interval):
        return value
    if isinstance(value, list | tuple) and len(value) == 2:
        return Interval(*value)
    raise DeclarationError(f"bounds must be a pair of numbers, got {value!r}")


def intervals(value: Iterable[Any]) -> tuple[Interval, ...]:
    """Return each as an interval."""
    return tuple(interval(v) for v in value)


@frozen
class Categories:
    """One of a list of values; any other value belongs to none of them."""

    document_key: ClassVar[str] = "categories"

    values: tuple[Any, ...] = field(converter=anything)

    def __attrs_post_init__(self) -> None:
        require(len(self.values) > 0, "a list of categories must not be empty")
        for value in self.values:
            require(
                isinstance(value, str | int | bool)
                or (isinstance(value, float) and value == value),
                f"a category must be a text or a number, got {value!r}",
            )
        require(
            len(set(self.values)) == len(self.values),
            f"categories must differ, got {list(self.values)!r}",
        )

    def __str__(self) -> str:
        return f"{len(self.values)} categories"


Column = Interval | Categories | None


def column(name: str, declared: Any) -> Column:
    """Return the domain of a column from a pair of bounds, a list of categories, or None."""
    if declared is None or isinstance(declared, Interval | Categories):
        return declared
    if isinstance(declared, tuple) and len(declared) == 2:
        try:
            return Interval(*declared)
        except DeclarationError as error:
            texts = any(isinstance(v, str) for v in declared)
            cure = "; a pair is bounds, write categories as a list" if texts else ""
            raise DeclarationError(f"column {name!r}: {error}{cure}") from None
    if isinstance(declared, list | tuple) and not isinstance(declared, str):
        try:
            return Categories(tuple(declared))
        except DeclarationError as error:
            raise DeclarationError(f"column {name!r}: {error}") from None
    raise DeclarationError(
        f"column {name!r} must be declared by a pair of bounds such as (0, 100), a list of "
        f"categories such as ['a', 'b'], or None for no bounds, got {declared!r}"
    )


def columns(declared: Mapping[str, Any]) -> Mapping[str, Column]:
    """Return the domain of each column, by its name."""
    return {name: column(name, value) for name, value in declared.items()}


def known(name: str, declared: Column, keys: Iterable[Any]) -> None:
    """Refuse keys that the column's declared categories do not have."""
    if isinstance(declared, Categories):
        strange = [key for key in keys if key not in declared.values]
        require(
            not strange,
            f"column {name!r} has no category {', '.join(map(repr, strange[:3]))}; it declares "
            f"{list(declared.values)[:8]}",
        )
    if isinstance(declared, Interval):
        texts = [key for key in keys if isinstance(key, str)]
        require(not texts, f"column {name!r} holds numbers, so no row has the value {texts[:1]}")


def numeric(name: str, declared: Column) -> None:
    """Refuse a column of categories, of which some are texts, where numbers are needed."""
    require(
        not (isinstance(declared, Categories) and any(isinstance(v, str) for v in declared.values)),
        f"column {name!r} holds categories, not numbers; use its keys, or declare bounds",
    )


@frozen
class Table:
    """Rows with declared columns, and whom they protect."""

    name: str
    columns: Mapping[str, Column]
    neighbors: Neighbors
    unit: str | None = None
    size: int | None = None
    """The public number of units, where declared and still known."""

    def interval(self, name: str) -> Interval:
        """Return the bounds of a column.

        Raises
        ------
        DeclarationError
            If there is no such column, or it has no bounds.
        """
        found = self.find(name)
        if isinstance(found, Categories):
            raise DeclarationError(
                f"column {name!r} of {self.name!r} is declared as {found}, where numbers in bounds "
                f"are needed; if it holds numbers, declare columns={{{name!r}: (low, high)}}"
            )
        if found is None:
            raise DeclarationError(
                f"column {name!r} of {self.name!r} has no bounds, so its sensitivity is infinite; "
                f"declare columns={{{name!r}: (low, high)}}"
            )
        return found

    def find(self, name: str) -> Column:
        """Return the declaration of a column, or raise for one that is not declared."""
        if name not in self.columns:
            raise DeclarationError(
                f"{self.name!r} declares no column {name!r}; it declares {list(self.columns)}"
            )
        return self.columns[name]


@frozen
class Values:
    """A number for each row, in an interval or a list of categories (None: no bounds)."""

    of: str
    column: Column
    neighbors: Neighbors
    size: int | None


@frozen
class Ball:
    """A vector for each row, of Euclidean norm at most ``radius``."""

    names: tuple[str, ...]
    radius: float
    table: Table

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return len(self.names)


@frozen
class Parts:
    """The parts of a partition: the table that each of them is, and their keys."""

    table: Table
    keys: tuple[Any, ...]
    whole_units: bool
