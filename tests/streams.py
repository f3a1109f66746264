"""Streams for tests: quick seeded ones, and ones that return given words."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise import Stream


class Quick(Stream):
    """Reproducible words, quick one at a time too."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._random.randbytes(8 * count), dtype=np.uint64)


class GivenWords(Stream):
    """The words that it is given, in order; it fails where more are asked for."""

    def __init__(self, words: Iterable[int]) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        given, self.left = self.left[:count], self.left[count:]
        assert len(given) == count, "the stream is at its end"
        return np.array(given, dtype=np.uint64)
