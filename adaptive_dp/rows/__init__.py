"""Rows: the one seam between the library and data."""

from adaptive_dp.rows.examples import Examples, examples
from adaptive_dp.rows.lots import Coins
from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.named_files import Files
from adaptive_dp.rows.opening import opened
from adaptive_dp.rows.parted_examples import AnyExamples, PartedExamples, learned
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Columns, Readable, Reading, Rows

__all__ = [
    "AnyExamples",
    "Coins",
    "Columns",
    "Examples",
    "Files",
    "MemoryRows",
    "PartedExamples",
    "Readable",
    "Reading",
    "Rows",
    "SchemaError",
    "examples",
    "learned",
    "opened",
    "rows",
]
