"""What the library asks of data: the contract that every kind of data fulfils.

Most queries are sums over rows of integers: each query maps a block of rows to an array of int64,
and the arrays of all blocks are added as integers. Integer addition is exact and does not depend on
the order, so the sum is the same to the last bit however the rows are split, and one row moves it
by at most what the row's own share can be. The sensitivity proofs need both properties.

Queries that are not sums (quantiles, for example) look at the value of each row: `Rows.values`.

How a cell is read depends on that cell alone (`adaptive_dp.data.cells`): if a column's type were
inferred from its values, one person could change how everyone's values are read.

The transforms that need all rows of a unit at once (bounding contributions, keeping a unit's rows
in one part, sampling units) are operations of their own, since only the implementation sees all
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data.sampling import RandomSource

if TYPE_CHECKING:
    from adaptive_dp.data.scan import Scan


@frozen
class TensorReading:
    """What a column of tensors holds: in each row an array of numbers, all of one shape."""

    shape: tuple[int, ...]


Reading = Literal["number", "date", "text", "code", "value"] | TensorReading
"""What a column holds: numbers within bounds, dates (as days since 1970-01-01), categories that are
all ``str``, categories none of which is a ``str``, values that nothing is declared about, or
tensors."""

Columns = Mapping[str, NDArray[Any]]
"""One block of rows: arrays of equal length by column name."""

Integers = NDArray[np.int64]
BLOCK = 4000
"""The most rows in a block.

The product of two 20-bit integers is below 2^40, and 4000 of them add up to less than 2^52, which
float64 holds exactly. It is below 2^12 and not a power of two, at which columns would contend for
the same cache lines.
"""


class SchemaError(ValueError):
    """The data's columns or types do not fit; the message depends on the schema only."""


@frozen
class Schema:
    """What is read of data: its declared columns, and which of them are needed.

    Parameters
    ----------
    columns
        The declared columns, and what each holds; others of the data are left alone.
    unit
        The column that identifies a unit; None where each row is a unit of its own.
    needed
        The columns that are read; None for all. The others must be there with their types as well,
        but none of their cells is read.
    """

    columns: Mapping[str, Reading]
    unit: str | None = None
    needed: Container[str] | None = None

    @property
    def read(self) -> dict[str, Reading]:
        """The needed columns, in the order of their declaration."""
        return {k: v for k, v in self.columns.items() if self.needed is None or k in self.needed}

    @property
    def declared_with_unit(self) -> dict[str, Reading]:
        """The declared columns, and after them that of the units."""
        return self._with_unit(dict(self.columns))

    @property
    def read_with_unit(self) -> dict[str, Reading]:
        """The needed columns, and after them that of the units."""
        return self._with_unit(self.read)

    @property
    def has_coded_units(self) -> bool:
        """Whether the unit's column is declared with categories that are not ``str``."""
        return self.unit is not None and self.columns.get(self.unit) == "code"

    def _with_unit(self, columns: dict[str, Reading]) -> dict[str, Reading]:
        # identifiers are read beside the columns, even if the plan reads them nowhere else
        if self.unit is None or self.unit in columns:
            return columns
        return {**columns, self.unit: "value"}


class Readable(Protocol):
    """Data that makes its own rows; anything else is read into memory."""

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> Rows:
        """Return the rows of the named columns, as `adaptive_dp.data.sources.read_rows` would.

        Raises
        ------
        SchemaError
            If the columns do not fit. The message contains nothing of the data.
        """
        ...


class Rows(Protocol):
    """A table of rows, each of which belongs to a unit.

    Every operation returns new rows and leaves the old ones as they are. Functions passed to it are
    deterministic and treat each row (or unit) by itself.
    """

    @property
    def units(self) -> Integers:
        """The unit of each row, shape (n,); equal numbers are one unit."""
        ...

    def size(self) -> int:
        """Return the number of units."""
        ...

    def where(self, keep: Callable[[Columns], NDArray[np.bool_]]) -> Rows:
        """Return the rows for which ``keep`` is True."""
        ...

    def bound(self, rows: int) -> Rows:
        """Return the first ``rows`` rows of each unit."""
        ...

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> Rows:
        """Return, for each unit, its rows in the smallest non-negative part that it has rows in."""
        ...

    def bound_groups(
        self, part: Callable[[Columns], NDArray[np.int64]], groups: int, rows: int
    ) -> Rows:
        """Return the first ``rows`` rows of each unit in each of its first ``groups`` parts.

        Rows in no part (-1) are left out.
        """
        ...

    def among(self, units: Integers) -> Rows:
        """Return the rows of the given units, in their order."""
        ...

    def sample(self, rate: float, source: RandomSource) -> Rows:
        """Return the rows of a Poisson sample of the units."""
        ...

    @property
    def source(self) -> Any:
        """What identifies the rows before `filters`: equal sources can be read in one pass."""
        ...

    @property
    def filters(self) -> tuple[Callable[[Columns], NDArray[np.bool_]], ...]:
        """The conditions that rows of the source must meet to be these rows, in order."""
        ...

    def scan(self, scan: Scan, columns: frozenset[str] | None) -> list[NDArray[Any]]:
        """Return the totals of a scan of the source; only some columns are read (None: all)."""
        ...

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the sum over blocks (of at most `BLOCK` rows) of ``block``, as exact integers.

        Without any rows ``block`` is called once on empty columns, for the shape.
        """
        ...

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return one number for each row, in the order of `units`.

        ``block`` maps a block of n rows (of any size) to n numbers. Without any rows it is called
        once on empty columns.
        """
        ...

    def strings(self, column: Callable[[Columns], NDArray[Any]]) -> tuple[list[str], Integers]:
        """Return the distinct str of a column, ascending, and each row's position among them.

        In the order of `units`; -1 for a row whose cell is missing, empty or not a str. Which they
        are, and how many, depends on the rows: they are private.
        """
        ...

    def integer_rows(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return a vector of integers for each row, in the order of `units`: shape (n, d).

        The integers are below 2^24 in absolute value, so that float32 holds them exactly.

        ``block`` maps a block of m rows (at most `BLOCK`) to shape (m, d). Without any rows it is
        called once on empty columns.
        """
        ...
