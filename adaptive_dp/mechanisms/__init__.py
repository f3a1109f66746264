"""Mechanisms: each adds noise to a query's private value, or chooses by it, at a proven loss.

Every mechanism's class is read in the same order: what it releases, its privacy with the theorem,
its parameters with their units, how its noise is drawn; then class attributes, parameters,
``release`` (where noise is drawn, from the samplers in `adaptive_dp.noise`), ``loss`` (at a
distance), ``cost`` (with what rounding adds), and helpers.

`additive`, `discrete`
    Noise for the global sensitivity, added to numbers or to counts.
`selection`
    Choosing a candidate by its score.
`sparse_vector`
    Which values lie above a threshold.
`smooth_sensitivity`, `propose_test_release`
    Noise that follows the local sensitivity.
`inverse_sensitivity`
    A number by how many rows must change to make it the answer.
`partition_selection`
    Which keys show where none are declared, with what counts.
`released_bounds`
    Bounds on which later mechanisms may rely.
`follow_the_leader`, `objective_perturbation`
    Training: DP-FTRL, and the minimizer of a noisy objective.
`log_concave`
    Parameters drawn with a density that falls with the loss.
`advice`
    Which mechanism for which query.

Mechanisms whose loss rests on per-instance bounds are in `adaptive_dp.instance`.
"""

from adaptive_dp.mechanisms.additive import Gaussian, Laplace, Norm
from adaptive_dp.mechanisms.discrete import DiscreteGaussian, DiscreteLaplace
from adaptive_dp.mechanisms.inverse_sensitivity import InverseSensitivity
from adaptive_dp.mechanisms.partition_selection import (
    PartitionSelection,
    ThresholdGaussian,
    ThresholdLaplace,
    TopKeys,
    WeightedGaussian,
)
from adaptive_dp.mechanisms.propose_test_release import (
    DistanceToInstability,
    ProposeTestRelease,
    ReleasedSensitivity,
)
from adaptive_dp.mechanisms.released_bounds import LowerBound, UpperBound
from adaptive_dp.mechanisms.selection import (
    Exponential,
    JointTopK,
    NoisyMax,
    NoisyMaxWithGap,
    PermuteAndFlip,
    QuantileExponential,
    TopK,
)
from adaptive_dp.mechanisms.smooth_sensitivity import (
    SmoothCauchy,
    SmoothLaplace,
    SmoothLaplaceLogNormal,
    SmoothStudent,
)
from adaptive_dp.mechanisms.sparse_vector import (
    BetweenThresholds,
    GaussianSparseVector,
    SparseVector,
    SparseVectorWithGap,
)

__all__ = [
    "BetweenThresholds",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistanceToInstability",
    "Exponential",
    "Gaussian",
    "GaussianSparseVector",
    "InverseSensitivity",
    "JointTopK",
    "Laplace",
    "LowerBound",
    "NoisyMax",
    "NoisyMaxWithGap",
    "Norm",
    "PartitionSelection",
    "PermuteAndFlip",
    "ProposeTestRelease",
    "QuantileExponential",
    "ReleasedSensitivity",
    "SmoothCauchy",
    "SmoothLaplace",
    "SmoothLaplaceLogNormal",
    "SmoothStudent",
    "SparseVector",
    "SparseVectorWithGap",
    "ThresholdGaussian",
    "ThresholdLaplace",
    "TopK",
    "TopKeys",
    "UpperBound",
    "WeightedGaussian",
]
