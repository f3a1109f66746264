"""Streams of random 64-bit words, and samplers over them.

`SecureStream` takes every word from the operating system, or from a cipher that it keys anew
for each call. It keeps no buffer and no state: nothing to seed, to pickle, or to copy into a
forked process. `SeededStream` is for research and tests only.

The Laplace and Gaussian samplers here work in float64 and are accurate to its rounding; they
are not exact in their lowest bits, which certificates say. The exact ones draw whole numbers
and stand beside this file.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.box_muller import standard_normals
from adaptive_dp.noise.keystream import Keyed, secure_bytes

Floats = NDArray[np.float64]
Shape = tuple[int, ...]

FLOAT_SAMPLER = "float64 from 64-bit words (not exact in the lowest bits)"


class Stream:
    """A source of independent uniform words; subclasses say where they come from."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` uniform 64-bit words."""
        raise NotImplementedError

    def uniform(self, shape: Shape = ()) -> Floats:
        """Return uniform numbers in (0, 1): the midpoints of 2^64 cells, rounded."""
        count = math.prod(shape)
        halves = (self.words(count).astype(np.float64) + 0.5) * 2.0**-64
        return np.minimum(halves, 1 - 2.0**-53).reshape(shape)

    def coins(self, rate: float, count: int) -> NDArray[np.bool_]:
        """Return independent coins that are True with probability at most ``rate`` (to 2^-64)."""
        if rate >= 1:
            return np.ones(count, dtype=np.bool_)
        return self.words(count) < np.uint64(math.floor(rate * 2.0**64))

    def children(self, count: int) -> list[Keyed]:
        """Return fresh independent sources, each a key of four of this stream's next words.

        They can be sent to another process; none of them follows from another.
        """
        keys = self.words(4 * count).astype("<u8").tobytes()
        return [self._child(keys[i : i + 32]) for i in range(0, len(keys), 32)]

    def _child(self, key: bytes) -> Keyed:
        return Keyed(key)

    def laplace(self, scale: float, shape: Shape = ()) -> Floats:
        """Return Laplace noise of density ``exp(-|x|/scale) / (2 scale)``."""
        magnitude = -np.log(self.uniform(shape))
        sign = np.where(self.coins(0.5, math.prod(shape)), 1.0, -1.0).reshape(shape)
        return scale * magnitude * sign

    def gaussian(self, sigma: float, shape: Shape = ()) -> Floats:
        """Return Gaussian noise of standard deviation ``sigma`` (see `box_muller`)."""
        found = standard_normals(self.words, math.prod(shape))
        found *= sigma  # in place: to page in a second array would cost a third more
        return found.reshape(shape)


class SecureStream(Stream):
    """Words from the operating system's cryptographic source, many of them by `keystream`."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return fresh words; nothing is kept."""
        return np.frombuffer(secure_bytes(8 * count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "SecureStream()"


class SeededStream(Stream):
    """Reproducible words, for simulation only: whoever knows the seed can remove the noise.

    Parameters
    ----------
    seed
        Any whole numbers; equal ones give equal streams.
    """

    def __init__(self, *seed: int) -> None:
        self._seed = seed

    @cached_property
    def _generator(self) -> np.random.Generator:  # most steps of a plan draw nothing
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(list(self._seed))))

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next words of the stream."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)

    def _child(self, key: bytes) -> Keyed:
        return Keyed(key, "philox")  # with or without `cryptography` a seed gives the same

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled: a copy would repeat its noise")

    def __repr__(self) -> str:
        return "SeededStream(...)"
