"""What the library asks of data, and all that it asks.

Most queries are sums over rows of whole numbers: each query maps a block of rows to an array of
int64, and the blocks' arrays are added as integers. Integer addition is exact and knows no
order, so the sum is the same to the last bit however the rows are split, and one row moves
it by at most what the row's own share can be: the sensitivity proofs need both.

Queries that are no sums (quantiles, say) look at each row's value: `Rows.values`.

How a cell is read depends on that cell alone (`adaptive_dp.rows.cells`): were a column's type
inferred from its values, one person could change what everybody's are.

The transforms that need to see all rows of a unit (bounding contributions, keeping units
whole, sampling units) are operations of their own, since only the rows' keeper can do them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.rows.lots import Coins

Reading = Literal["number", "text", "code", "value"]
"""What a column holds: numbers within bounds, categories that are texts, categories of which
none is a text, or values of which nothing is declared."""

Columns = Mapping[str, NDArray[Any]]
"""One block of rows: arrays of equal length by column name."""

Integers = NDArray[np.int64]
BLOCK = 4000
"""The most rows in a block; products of 20-bit integers then sum exactly in float64.

Below 2^12, and no power of two, at which columns contend for cache lines.
"""


class Readable(Protocol):
    """Data that makes its own rows; anything else is read into memory."""

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> Rows:
        """Return the rows of the named columns, as `adaptive_dp.rows.memory.rows` would.

        Raises
        ------
        SchemaError
            If the columns do not fit; nothing of the data is told.
        """
        ...


class Rows(Protocol):
    """A table of rows, each belonging to a unit.

    Every operation returns new rows; none changes the old. Functions given to it are
    deterministic and look at each row (or unit) by itself.
    """

    @property
    def units(self) -> Integers:
        """Whose each row is, shape (n,); equal numbers are one unit."""
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
        """Return, of each unit, the rows in the least non-negative part that any of them is in."""
        ...

    def among(self, units: Integers) -> Rows:
        """Return the rows of the units that are named, in their order."""
        ...

    def sample(self, rate: float, source: Coins) -> Rows:
        """Return the rows of a Poisson sample of the units."""
        ...

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the sum over blocks (of at most `BLOCK` rows) of ``block``, as exact integers.

        With no rows at all, ``block`` is called once on empty columns, for the shape.
        """
        ...

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return what ``block`` makes of each row, one after the other, in the order of `units`.

        ``block`` maps a block of n rows (of any size) to n numbers. With no rows at all it is
        called once on empty columns.
        """
        ...

    def gathered(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return the whole numbers that ``block`` makes of each row, in the order of `units`.

        They are below 2^24, so that float32 holds them.

        ``block`` maps a block of m rows (at most `BLOCK`) to shape (m, d). With no rows at all it
        is called once on empty columns.
        """
        ...
