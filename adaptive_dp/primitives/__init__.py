"""Mechanisms: one file each, with its release, its loss and its source."""

from adaptive_dp.primitives.gaussian import Gaussian
from adaptive_dp.primitives.gaussian_bound import LowerBound, UpperBound
from adaptive_dp.primitives.laplace import Laplace

__all__ = ["Gaussian", "Laplace", "LowerBound", "UpperBound"]
