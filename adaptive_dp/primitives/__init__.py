"""Mechanisms: one file each, with its release, its loss and its source."""

from adaptive_dp.primitives.discrete_gaussian import DiscreteGaussian
from adaptive_dp.primitives.discrete_laplace import DiscreteLaplace
from adaptive_dp.primitives.gaussian import Gaussian
from adaptive_dp.primitives.laplace import Laplace
from adaptive_dp.primitives.norm import Norm

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "Gaussian", "Laplace", "Norm"]
