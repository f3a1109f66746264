"""Keeping the rows that meet a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, Released
from adaptive_dp.graph.operation import Operation, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import numbers
from adaptive_dp.queries.domains import Categories, Table, known, number
from adaptive_dp.queries.partition import category_index

_TESTS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@frozen
class Condition:
    """A comparison of a table's column with a number, a released number, or a list of values."""

    column: str
    test: str
    operand: Any = None
    handle: Released[Any] | None = None
    table: Handle | None = None

    def __bool__(self) -> bool:
        raise TypeError(
            f"the condition {self.column} {self.test} ... is private and has no truth value; pass "
            "it to table.filter(...), one condition at a time"
        )

    def __and__(self, other: Any) -> NoReturn:
        raise DeclarationError(
            "conditions are not joined; chain filters: table.filter(...).filter(...)"
        )

    def __or__(self, other: Any) -> NoReturn:
        raise DeclarationError(
            "conditions are not joined; for several values use table[column].isin([...])"
        )

    def __invert__(self) -> NoReturn:
        raise DeclarationError("a condition is not negated; compare the other way")


def _operand(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@frozen
class Filter(Operation):
    """Keep the rows whose column meets a comparison; NaN meets none.

    A row stays or goes by its own values, so one unit still changes one unit's rows, but a
    unit may now have none.
    """

    kind: ClassVar[str] = "filter"
    reads: ClassVar[type] = Table
    alone: ClassVar[bool] = True
    beside: ClassVar[int] = 1

    column: str
    test: str = field()
    operand: Any = field(default=None, converter=_operand)

    @test.validator
    def _known(self, _: object, test: str) -> None:
        require(
            test in _TESTS or test == "in",
            f"a filter's test must be one of {', '.join(_TESTS)} or 'in', got {test!r}",
        )

    def label(self) -> str:
        """Return the condition."""
        shown = "..." if self.operand is None else self.operand
        if isinstance(shown, tuple):
            shown = "{" + ", ".join(map(str, shown)) + "}"
        return f"{self.column} {self.test} {shown}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, of which the size is no longer known."""
        declared = inputs[0].find(self.column)
        values = declared.values if isinstance(declared, Categories) else ()
        texts = any(isinstance(v, str) for v in values)
        require(
            self.test == "in" or not texts,
            f"column {self.column!r} holds categories, which {self.test} cannot compare; use "
            f"table[{self.column!r}].isin([...])",
        )
        if self.test == "in":
            known(self.column, declared, self.operand if isinstance(self.operand, tuple) else ())
            require(
                isinstance(self.operand, tuple) and len(inputs) == 1,
                f"the test 'in' needs a list of values, got {self.operand!r}",
            )
        elif len(inputs) == 1:
            number(f"the operand of {self.column} {self.test}", self.operand)
        elif self.operand is not None:
            raise DeclarationError(
                "a filter compares with a constant or with a released value, not both"
            )
        return evolve(inputs[0], size=None)

    def change(self, change: Change) -> Change:
        """Return the change with units that may vanish."""
        return evolve(change, fixed=False)

    def keep(self, columns: Columns, operand: Any) -> NDArray[np.bool_]:
        """Return which rows meet the condition."""
        values = columns[self.column]
        if self.test == "in":
            return category_index(values, operand) >= 0
        with np.errstate(invalid="ignore"):
            result: NDArray[np.bool_] = _TESTS[self.test](numbers(values), float(operand))
        return result

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows that meet the condition."""
        operand = inputs[1] if len(inputs) > 1 else self.operand
        return inputs[0].where(lambda columns: self.keep(columns, operand))  # type: ignore[no-any-return]
