"""Data: the one seam between the library and rows.

`rows` is the contract; `memory` and `partitioned` implement it, the latter over an `engine` (this
machine's, in `local`, or a Dask cluster's, in `dask_engine`). `sources` decides which of them reads
what a plan is bound to.
"""

from adaptive_dp.data.examples import (
    AnyExamples,
    Examples,
    PartitionedExamples,
    examples_of_rows,
    make_examples,
)
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.data.rows import (
    Columns,
    Readable,
    Reading,
    Rows,
    SchemaError,
    TensorReading,
)
from adaptive_dp.data.sampling import RandomSource
from adaptive_dp.data.sources import Files, open_rows, read_rows

__all__ = [
    "AnyExamples",
    "Columns",
    "Examples",
    "Files",
    "MemoryRows",
    "PartitionedExamples",
    "RandomSource",
    "Readable",
    "Reading",
    "Rows",
    "SchemaError",
    "TensorReading",
    "examples_of_rows",
    "make_examples",
    "open_rows",
    "read_rows",
]
