"""Privacy filters: budgets for analyses that choose their privacy parameters as they run.

One filter for each accounting unit with a proven theorem; `filter_for` says which.
"""

from accountants.filters.approximate import ApproximateFilter
from accountants.filters.best import BestFilter
from accountants.filters.choose import filter_for
from accountants.filters.concentrated import ConcentratedFilter
from accountants.filters.gaussian import GaussianFilter
from accountants.filters.pure import PureFilter
from accountants.filters.renyi import RenyiFilter, SomeOrderFilter
from accountants.filters.sums import Amount, EpsilonDelta, Filter, Spent

__all__ = [
    "Amount",
    "ApproximateFilter",
    "BestFilter",
    "ConcentratedFilter",
    "EpsilonDelta",
    "Filter",
    "GaussianFilter",
    "PureFilter",
    "RenyiFilter",
    "SomeOrderFilter",
    "Spent",
    "filter_for",
]
