"""The data set: its columns, its neighbour relation, and whom it protects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen

from adaptive_dp.data import Reading, Rows, SchemaError, TensorReading, open_rows
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.handles import BoundOperation, SourceOperation, check_data_name
from adaptive_dp.graph.operation import NEIGHBORS, UNBOUNDED, Change, Neighbors
from adaptive_dp.graph.values import number
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Dates,
    Interval,
    Strings,
    Table,
    Tensors,
    column,
    of_document,
)


def _declared(columns: Any) -> dict[str, Column]:
    if not isinstance(columns, Mapping):
        raise DeclarationError(
            "columns must be a mapping of names to bounds or categories, got "
            f"{type(columns).__name__}"
        )
    result = {}
    for name, value in columns.items():
        if not (isinstance(name, str) and name != ""):
            raise DeclarationError(f"a column's name must be a nonempty str, got {name!r}")
        if isinstance(value, Mapping):  # the form of plan documents
            if set(value) not in ({"bounds"}, {"dates"}, {"categories"}, {"type"}, {"tensor"}):
                raise DeclarationError(
                    f"column {name!r} must be declared by a pair of bounds, a list of categories, "
                    f"a type or None, got a mapping of {sorted(map(str, value))}"
                )
            value = of_document(value)
        result[name] = column(name, value)
    return result


def reading(declared: Column) -> Reading:
    """Return how a column's cells are to be read, from its declaration alone."""
    if isinstance(declared, Dates):
        return "date"
    if isinstance(declared, Interval):
        return "number"
    if isinstance(declared, Strings):
        return "text"
    if isinstance(declared, Tensors):
        return TensorReading(declared.shape)
    # empty where nothing is declared, and then neither branch below is taken
    is_str = [isinstance(v, str) for v in declared.values] if declared is not None else []
    if is_str and all(is_str):
        return "text"
    # categories that are all numbers are codes; mixed ones are compared as they are
    return "code" if is_str and not any(is_str) else "value"


@frozen
class Source(SourceOperation):
    """A private table, declared without data; the data are bound when the plan runs.

    Neighbouring data sets differ in one unit: its rows are present or absent
    (``add_remove``), exchanged for others (``replace_one``; the number of units is
    public), or count as zero in every sum (``zero_out``; their number is public).

    Parameters
    ----------
    name
        An identifier: the keyword of `run` that binds data.
    columns
        The declaration of each column: bounds, categories or None.
    neighbors
        The neighbour relation.
    unit
        The column that identifies the protected unit; None where each row is a unit.
    size
        The public number of units, not under ``add_remove``.
    """

    kind: ClassVar[str] = "dataset"
    column_fields: ClassVar[tuple[str, ...]] = ()

    name: str
    columns: Mapping[str, Column] = field(converter=_declared)
    neighbors: Neighbors = "add_remove"
    unit: str | None = None
    size: int | None = field(default=None, converter=number)

    def __attrs_post_init__(self) -> None:
        check_data_name("a dataset", self.name)
        if self.neighbors not in NEIGHBORS:
            raise DeclarationError(
                f"neighbors must be one of {', '.join(NEIGHBORS)}, got {self.neighbors!r}"
            )
        if self.unit is not None and not (isinstance(self.unit, str) and self.unit != ""):
            raise DeclarationError(
                f"unit must be the name of the column that identifies a person, got {self.unit!r}"
            )
        # bounds invite clipping, which would merge different people into one
        if self.unit is not None and isinstance(self.columns.get(self.unit), Interval):
            raise DeclarationError(
                f"the unit {self.unit!r} identifies people, so it has no bounds; declare it as "
                "None, or not at all"
            )
        if self.size is not None and not (
            isinstance(self.size, int) and not isinstance(self.size, bool) and self.size >= 1
        ):
            raise DeclarationError(f"size must be an int of at least 1, got {self.size!r}")
        # a public size would tell the two neighbours, of n and n + 1 units, apart
        if self.size is not None and self.neighbors == "add_remove":
            raise DeclarationError(
                "size cannot be declared under add_remove neighbours, for which the number of "
                "units is private; use replace_one or zero_out, or release a count"
            )

    def label(self) -> str:
        """Return the name."""
        return self.name

    def detail(self) -> str:
        """Return whom it protects."""
        unit = f"one {self.unit}" if self.unit else "one row"
        return f"{self.neighbors.replace('_', '/')}, protects {unit}"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the declared columns."""
        return Table(self.name, self.columns, self.neighbors, self.unit, self.size)

    def initial(self) -> Change:
        """Return the change that the neighbour relation makes here.

        Without a unit column each row is a unit. With one, nothing bounds a unit's rows until
        `BoundContributions` does.
        """
        # zero_out is counted as a unit that vanishes: its rows contribute nothing
        replaced = self.neighbors == "replace_one"
        if self.unit is None:
            # an exchange is one row for one row; a row that appears changes their number
            return Change(replaced, 1, fixed=replaced)
        # every sensitivity is infinite until contributions are bounded
        return Change(replaced, UNBOUNDED, fixed=False)

    def bind(self, data: Any, columns: frozenset[str] | None = None) -> Rows:
        """Return the rows of ``data``, checked against the declaration.

        Parameters
        ----------
        data
            A mapping of column names to arrays, a frame, or a file's path.
        columns
            The columns that the rows have; None for all. The others are checked for their types
            and lengths, and none of their cells is read.

        Raises
        ------
        DataError
            If the data's schema does not fit; the message depends on the schema only.
        """
        # how cells are read follows from the declaration, never from the cells
        readings = {name: reading(declared) for name, declared in self.columns.items()}
        message = ""
        try:
            bound = open_rows(data, readings, self.unit, columns)
        except SchemaError as error:
            message = str(error)
        except Exception:  # its message may quote the data, and its type depend on them
            message = (
                "the data cannot be read as columns of numbers or str; pass a mapping of column "
                "names to arrays, a frame, or a file's path"
            )
        if message:  # outside of the handler, so that no traceback holds the data
            raise DataError(f"dataset {self.name!r}: {message}")
        # the message may show both sizes: `size` is allowed only where their number is public
        if self.size is not None and bound.size() != self.size:
            raise DataError(
                f"dataset {self.name!r}: size={self.size} is declared, but the data has "
                f"{bound.size()} units (their number is public under this neighbour relation)"
            )
        return bound

    def made_up(self, rows: int, draw: np.random.Generator) -> dict[str, Any]:
        """Return columns of values that are uniform over bounds or categories.

        A column of neither, of numbers or str, and that of the units, numbers the rows.
        """
        columns: dict[str, Any] = {}
        for name, declared in self.columns.items():
            if isinstance(declared, Interval):
                columns[name] = draw.uniform(declared.lower, declared.upper, rows)
            elif isinstance(declared, Categories):
                places = draw.integers(len(declared.values), size=rows)
                columns[name] = [declared.values[place] for place in places]
            elif isinstance(declared, Strings):
                columns[name] = [str(place) for place in range(rows)]
            elif isinstance(declared, Tensors):
                shape = (rows, *declared.shape)
                columns[name] = draw.uniform(declared.lower, declared.upper, shape)
            else:
                columns[name] = np.arange(rows)
        return columns | ({self.unit: np.arange(rows)} if self.unit else {"row": np.arange(rows)})

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds data."""
        raise DataError(f"no data is bound to dataset {self.name!r}; pass run({self.name}=...)")


@frozen
class BoundContributions(BoundOperation):
    """At most ``rows`` rows of each unit, the bound r on which all sensitivities rest.

    Which rows of a unit are kept depends on that unit's rows alone, so one unit still changes only
    its own rows: at most ``rows`` of them.

    Parameters
    ----------
    rows
        r, from 1 to 10^9.
    unit
        The column that identifies a unit.
    """

    kind: ClassVar[str] = "bound"
    input_type: ClassVar[type] = Table
    column_fields: ClassVar[tuple[str, ...]] = ()
    is_rowwise: ClassVar[bool] = True

    rows: int = field(converter=number)
    unit: str

    def __attrs_post_init__(self) -> None:
        if not (
            isinstance(self.rows, int)
            and not isinstance(self.rows, bool)
            and 1 <= self.rows <= 10**9
        ):
            raise DeclarationError(
                f"rows_per_unit must be an int between 1 and 10^9, got {self.rows!r}"
            )
        if not isinstance(self.unit, str):
            raise DeclarationError(
                f"contributions are bounded per unit, the name of a column, got {self.unit!r}"
            )

    def label(self) -> str:
        """Return the bound."""
        return f"at most {self.rows} row{'' if self.rows == 1 else 's'}"

    def detail(self) -> str:
        """Return the unit's column."""
        return f"per {self.unit}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table; for r > 1 its number of rows is not public even if that of units is."""
        table: Table = inputs[0]
        if table.unit != self.unit:
            raise DeclarationError(
                f"contributions to {table.name!r} are bounded per {self.unit!r}, but its unit is "
                f"{table.unit!r}"
            )
        # with r = 1 rows are units; with r > 1 a unit may have from 1 to r rows
        return table if self.rows == 1 else evolve(table, size=None, units=table.size)

    def change(self, change: Change) -> Change:
        """Return a change of at most ``rows`` rows; a unit may have fewer."""
        # replaces UNBOUNDED of `Source.initial`
        return Change(change.replaced, self.rows, False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows without those past the bound."""
        return inputs[0].bound(self.rows)  # type: ignore[no-any-return]
