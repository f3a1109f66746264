"""What may change at a point of the graph when one unit of the data does."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

Neighbors = Literal["add_remove", "replace_one", "zero_out"]
NEIGHBORS: tuple[Neighbors, ...] = ("add_remove", "replace_one", "zero_out")


UNBOUNDED = -1
"""Rows of a unit where nothing bounds them; no query may be released there."""


@frozen
class Change:
    """The difference between neighbouring data sets, as it arrives at a node.

    Parameters
    ----------
    replaced
        True: one unit's rows are exchanged for other rows. False: one unit's rows are
        present in one data set, and absent (or zeroed) in the other.
    rows
        The most rows that a unit has here.
    fixed
        True where a unit has exactly ``rows`` rows, in both data sets; False where it may
        have fewer, or none.
    both
        The most rows that a unit has here in the two data sets together; by default twice
        ``rows`` where it is exchanged. Less in a part of a partition, where it has a rows in one
        data set and b in the other: ``rows = max(a, b)``, ``both = a + b``.
    """

    replaced: bool
    rows: int
    fixed: bool
    both: int = field()

    @both.default
    def _both(self) -> int:
        return 2 * self.rows if self.replaced else self.rows

    @property
    def one_sided(self) -> Change:
        """The change where the unit appears or vanishes, with as many rows."""
        return Change(False, self.rows, False)
