"""Plan documents: JSON out, the same plan back in, with the same fingerprint.

Code is named, never carried: the library's functions, operations and mechanisms by their public
names (see `adaptive_dp.graph.registry`), a third party's as ``module:name``. A module is imported
only where the reader allows it: for an operation or a mechanism when the document is read, for a
function when the plan runs. The form is described by `adaptive_dp.schemas`.

A document may be written by hand, in TOML; what has a default may be left out, and ``{}``
stands for a column without bounds::

    format = "adaptive-dp/plan/2"
    nodes = [
      { id = "people", kind = "dataset", name = "people",
        columns = { age = { bounds = [0, 100] } } },
      { id = "age", kind = "column", inputs = ["people"], name = "age" },
      { id = "sum", kind = "sum", inputs = ["age"], bounds = [0, 100] },
      { id = "total", kind = "release", inputs = ["sum"],
        mechanism = { mechanism = "Laplace", scale = 50 } },
    ]
    outputs = [{ path = ["total"], node = "total" }]
"""

from adaptive_dp.graph.read import load
from adaptive_dp.graph.write import FORMAT, to_document

__all__ = ["FORMAT", "load", "to_document"]
