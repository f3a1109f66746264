"""Adaptive analyses: a graph that grows as it runs, with its spends recorded in a ledger."""

from adaptive_dp.session.budget import Budget, Forecast
from adaptive_dp.session.session import Part, Session

__all__ = [
    "Budget",
    "Forecast",
    "Part",
    "Session",
]
