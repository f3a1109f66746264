"""Noise: streams of random words, and the samplers that draw from them.

`stream` has the words, and fast samplers in float64. The exact samplers: `laplace` and `gaussian`
draw integers by inversion (`exact`); `continuous` draws real numbers of which as many bits are
computed as are needed; `bernoulli` and `choice` draw events with probabilities such as ``e^{-x}``.
`lattice` adds integer noise to real values.
"""

from adaptive_dp.noise.gaussian import discrete_gaussian, rounded_gaussian
from adaptive_dp.noise.laplace import discrete_laplace, rounded_laplace
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
