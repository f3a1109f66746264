"""Mechanisms: one file each, with its release, its loss and its source."""

from adaptive_dp.mechanisms.additive import Gaussian, Laplace, Norm
from adaptive_dp.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace
from adaptive_dp.mechanisms.propose_test_release import (
    DistanceToInstability,
    ProposeTestRelease,
    ReleasedSensitivity,
)
from adaptive_dp.mechanisms.released_bounds import LowerBound, UpperBound
from adaptive_dp.mechanisms.selection import (
    Exponential,
    NoisyMax,
    PermuteAndFlip,
    QuantileExponential,
)
from adaptive_dp.mechanisms.smooth_sensitivity import (
    SmoothCauchy,
    SmoothLaplace,
    SmoothLaplaceLogNormal,
    SmoothStudent,
)
from adaptive_dp.mechanisms.sparse_vector import GaussianSparseVector, SparseVector

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistanceToInstability",
    "Exponential",
    "Gaussian",
    "GaussianSparseVector",
    "Laplace",
    "LowerBound",
    "NoisyMax",
    "Norm",
    "PermuteAndFlip",
    "ProposeTestRelease",
    "QuantileExponential",
    "ReleasedSensitivity",
    "SmoothCauchy",
    "SmoothLaplace",
    "SmoothLaplaceLogNormal",
    "SmoothStudent",
    "SparseVector",
    "UpperBound",
]
