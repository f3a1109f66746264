"""Noise: streams of randomness and the samplers that draw from them."""

from adaptive_dp.noise.discrete_gaussian import discrete_gaussian
from adaptive_dp.noise.discrete_laplace import discrete_laplace
from adaptive_dp.noise.rounded_gaussian import rounded_gaussian
from adaptive_dp.noise.rounded_laplace import rounded_laplace
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

__all__ = [
    "SecureStream",
    "SeededStream",
    "Stream",
    "discrete_gaussian",
    "discrete_laplace",
    "rounded_gaussian",
    "rounded_laplace",
]
