"""Synthetic data: a released model of a table's columns, answers with bounds, and rows of it.

`Synthesizer` is for ``table.solve(...)``, as learners are; `synthesize` declares one in a line.
Both release a `Synthetic`.
"""

from adaptive_dp.synthesis.result import Synthetic
from adaptive_dp.synthesis.synthesizer import Synthesizer, synthesize

__all__ = ["Synthesizer", "Synthetic", "synthesize"]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
