"""Learners: each a subgraph of queries and primitives."""

from adaptive_dp.solvers.adassp import AdaSSP

__all__ = ["AdaSSP"]
