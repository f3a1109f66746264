"""What may change at a point of the graph when one unit of the data does."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

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
    """

    replaced: bool
    rows: int
    fixed: bool

    @property
    def one_sided(self) -> Change:
        """The change where the unit appears or vanishes, with as many rows."""
        return Change(False, self.rows, False)
