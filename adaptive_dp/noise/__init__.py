"""Noise: streams of randomness and the samplers that draw from them."""

from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

__all__ = ["SecureStream", "SeededStream", "Stream"]
