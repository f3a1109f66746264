"""Transforms and queries: private in, private out, each with its sensitivity."""

from adaptive_dp.queries.groups import Groups
from adaptive_dp.queries.table import Column, Parts, Table, Vectors, dataset, where

__all__ = ["Column", "Groups", "Parts", "Table", "Vectors", "dataset", "where"]
