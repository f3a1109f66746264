"""Adaptive analyses: a graph that grows as it runs, with its spends recorded in a ledger."""

from adaptive_dp.session.budget import Budget, Forecast
from adaptive_dp.session.generalization import Generalization
from adaptive_dp.session.session import Part, Session
from adaptive_dp.session.sparse_vector import Holdout, OnlineSparseVector

__all__ = [
    "Budget",
    "Forecast",
    "Generalization",
    "Holdout",
    "OnlineSparseVector",
    "Part",
    "Session",
]
