"""Mechanisms: one file each, with its release, its loss and its source."""

from adaptive_dp.primitives.cauchy import SmoothCauchy
from adaptive_dp.primitives.distance_to_instability import DistanceToInstability
from adaptive_dp.primitives.gaussian import Gaussian
from adaptive_dp.primitives.laplace import Laplace
from adaptive_dp.primitives.laplace_lognormal import SmoothLaplaceLogNormal
from adaptive_dp.primitives.propose_test_release import ProposeTestRelease
from adaptive_dp.primitives.released_sensitivity import ReleasedSensitivity
from adaptive_dp.primitives.smooth_laplace import SmoothLaplace
from adaptive_dp.primitives.student import SmoothStudent

__all__ = [
    "DistanceToInstability",
    "Gaussian",
    "Laplace",
    "ProposeTestRelease",
    "ReleasedSensitivity",
    "SmoothCauchy",
    "SmoothLaplace",
    "SmoothLaplaceLogNormal",
    "SmoothStudent",
]
