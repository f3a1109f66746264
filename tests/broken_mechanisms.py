"""Broken mechanisms, each broken in a way that was published or shipped; and correct ones.

For audits to refute; never to be used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import sparse_vector_variants

import accountants
import adaptive_dp as dp
from adaptive_dp.audit import Neighbors, Sampler


def coarse(numbers: Any) -> Any:
    """Round to a grid, so that the lowest bits of float noise do not tell."""
    return np.round(numbers * 2.0**20) / 2.0**20


class NoisyLeak(dp.Mechanism):
    """Noisy max that also releases the noisy value of the winner, at the price of the index."""

    norm: ClassVar[float] = math.inf
    scale: float = dp.noise_parameter("b")

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        return (2,)

    def release(self, value: Any, stream: Any) -> Any:
        noisy = coarse(value + stream.laplace(self.scale, value.shape))
        best = int(np.argmax(noisy))
        return np.array([best, noisy[best]])

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(2 * distance / self.scale)


class HalfNoise(dp.Mechanism):
    """Laplace with half of the noise that it declares."""

    scale: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        return coarse(value + stream.laplace(self.scale / 2, value.shape))

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


def sparse_vector(number: int, count: int = 1, epsilon: float = 1.0) -> list[Neighbors]:
    """One of the six variants, on the pairs that tell them apart."""
    variant = getattr(sparse_vector_variants, f"algorithm_{number}")

    def sampler(values: list[float]) -> Sampler:
        def sample(runs: int, stream: Any) -> list[tuple[Any, ...]]:
            noise = iter(coarse(stream.laplace(1.0, (runs * (2 * len(values) + 1),))).tolist())

            def laplace(scale: float) -> float:
                return float(coarse(scale * next(noise)))

            return [tuple(variant(values, 0.0, epsilon, count, laplace)) for _ in range(runs)]

        return sample

    pairs = [([0.0] * 5 + [1.0] * 5, [1.0] * 5 + [0.0] * 5)]
    return [Neighbors(f"{a} against {b}", sampler(a), sampler(b)) for a, b in pairs]


def untested(*, noise: bool) -> Neighbors:
    """Propose-test-release at its cutoff: a distance test with noise, or without."""
    cut = 2 * math.log(1 / 2e-3)

    def sampler(distance: float) -> Sampler:
        def sample(runs: int, stream: Any) -> Any:
            shift = stream.laplace(2.0, (runs,)) if noise else 0.0
            passes = distance + shift > cut
            return np.where(passes, stream.laplace(2.0, (runs,)), np.nan)

        return sample

    return Neighbors("at the cutoff", sampler(math.ceil(cut)), sampler(math.floor(cut)))


def response(epsilon: float) -> Neighbors:
    """Randomized response: tight for its epsilon."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return Neighbors(
        "a bit", lambda runs, s: s.bernoulli(truth, runs), lambda runs, s: ~s.bernoulli(truth, runs)
    )


def black(release: Callable[[Any, Any], Any], first: float, second: float) -> Neighbors:
    """A mechanism whose law the auditor is not given."""

    def sampler(value: float) -> Sampler:
        return lambda runs, stream: release(np.full(runs, value), stream)

    return Neighbors("two numbers", sampler(first), sampler(second))
