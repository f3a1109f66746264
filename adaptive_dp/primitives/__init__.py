"""Mechanisms: one file each, with its release, its loss and its source."""

from adaptive_dp.primitives.discrete_gaussian import DiscreteGaussian
from adaptive_dp.primitives.discrete_laplace import DiscreteLaplace
from adaptive_dp.primitives.exponential import Exponential
from adaptive_dp.primitives.gaussian import Gaussian
from adaptive_dp.primitives.laplace import Laplace
from adaptive_dp.primitives.noisy_max import NoisyMax
from adaptive_dp.primitives.norm import Norm
from adaptive_dp.primitives.permute_and_flip import PermuteAndFlip
from adaptive_dp.primitives.quantile import QuantileExponential
from adaptive_dp.primitives.sparse_vector import SparseVector
from adaptive_dp.primitives.sparse_vector_gaussian import GaussianSparseVector

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "Gaussian",
    "GaussianSparseVector",
    "Laplace",
    "NoisyMax",
    "Norm",
    "PermuteAndFlip",
    "QuantileExponential",
    "SparseVector",
]
