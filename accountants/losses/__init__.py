"""Privacy losses: one file a family, each with its functionals, theorem and source."""

from accountants.later import attach as _attach

__getattr__, __dir__ = _attach(__name__, __file__)
__all__ = __dir__()
