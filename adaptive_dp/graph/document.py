"""Plan documents: JSON out, the same plan back in, with the same fingerprint.

User code is named, never carried: a function or a mechanism from outside of the library is
written as ``module:name``. A module is imported only where the reader allows it: a mechanism's
when the document is read, a function's when the plan runs. The form is described by
`adaptive_dp.schemas`.

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
