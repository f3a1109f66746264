"""Streams of random 64-bit words, and fast samplers over them in float64.

`SecureStream` takes every word from the operating system, or from a cipher with a new key for each
call. It has no buffer and no state: nothing to seed, to pickle, or to copy into a forked process.
`SeededStream` is for research and tests only. A `Keyed` source is 32 bytes that expand to the same
words wherever they are sent.

The Laplace and Gaussian samplers here work in float64 and are accurate to its rounding. They are
not exact in their lowest bits, which certificates say; the exact ones are in the other modules.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Shape = tuple[int, ...]

FLOAT_SAMPLER = "float64 from 64-bit words (not exact in the lowest bits)"

CIPHER_BYTES = 4096
"""From so many bytes on a cipher's key pays for itself."""

PAIRS = 2**13
"""Pairs of normal numbers that are computed at once: with their words and results half a MiB, which
fits a core's second cache."""


# --- streams


class Stream:
    """A source of independent uniform words; subclasses define where they come from."""

    def words(self, count: int) -> Words:
        """Return ``count`` uniform 64-bit words."""
        raise NotImplementedError

    def uniform(self, shape: Shape = ()) -> Floats:
        """Return uniform numbers in (0, 1): the midpoints of 2^64 cells, rounded."""
        count = math.prod(shape)
        halves = (self.words(count).astype(np.float64) + 0.5) * 2.0**-64
        # the largest midpoints round to 1, whose logarithm a sampler could not use as that of U < 1
        return np.minimum(halves, 1 - 2.0**-53).reshape(shape)

    def bernoulli(self, rate: float, count: int) -> NDArray[np.bool_]:
        """Return independent trials, each True with probability at most ``rate`` (to 2^-64)."""
        if rate >= 1:
            return np.ones(count, dtype=np.bool_)
        # P(word < k) = k / 2^64 exactly, and k is rounded down: a sampling rate is an upper bound
        return self.words(count) < np.uint64(math.floor(rate * 2.0**64))

    def children(self, count: int) -> list[Keyed]:
        """Return independent sources, each a key of four of this stream's next words.

        They can be sent to another process; none of them can be computed from another.
        """
        # four words of 8 bytes are a key; a fixed byte order gives all machines the same keys
        keys = self.words(4 * count).astype("<u8").tobytes()
        return [self._child(keys[i : i + 32]) for i in range(0, len(keys), 32)]

    def _child(self, key: bytes) -> Keyed:
        return Keyed(key)

    def laplace(self, scale: float, shape: Shape = ()) -> Floats:
        """Return Laplace noise of density ``exp(-|x|/scale) / (2 scale)``."""
        # U is never 1, so the magnitude is above 0
        magnitude = -np.log(self.uniform(shape))
        sign = np.where(self.bernoulli(0.5, math.prod(shape)), 1.0, -1.0).reshape(shape)
        return scale * magnitude * sign

    def gaussian(self, sigma: float, shape: Shape = ()) -> Floats:
        """Return Gaussian noise of standard deviation ``sigma`` (see `standard_normals`)."""
        drawn = standard_normals(self.words, math.prod(shape))
        drawn *= sigma  # in place: to page in a second array would cost a third more
        return drawn.reshape(shape)


class SecureStream(Stream):
    """Words from the operating system's cryptographic source; see `secure_bytes`."""

    def words(self, count: int) -> Words:
        """Return new words; nothing is stored."""
        return np.frombuffer(secure_bytes(8 * count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "SecureStream()"


class SeededStream(Stream):
    """Reproducible words, for simulation only: whoever knows the seed can remove the noise.

    Parameters
    ----------
    seed
        Any non-negative integers; equal ones give equal streams.
    """

    def __init__(self, *seed: int) -> None:
        self._seed = seed

    @cached_property
    def _generator(self) -> np.random.Generator:  # most steps of a plan draw nothing
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(list(self._seed))))

    def words(self, count: int) -> Words:
        """Return the next words of the stream."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)

    def _child(self, key: bytes) -> Keyed:
        return Keyed(key, "philox")  # with or without `cryptography` a seed gives the same words

    def __reduce__(self) -> Any:
        raise TypeError("a stream cannot be pickled: a copy would repeat its noise")

    def __repr__(self) -> str:
        return "SeededStream(...)"


def word(stream: Stream) -> int:
    """Return the next 64 uniform bits of a stream."""
    return int(stream.words(1)[0])


# --- keystreams


@cache
def _ciphers() -> Any:
    """Return the module of ciphers, or None where `cryptography` is not installed."""
    try:
        return import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError:
        return None


def secure_bytes(count: int) -> bytes:
    """Return new random bytes: the operating system's, or a keystream keyed by them.

    Many bytes come from AES-256 in counter mode, if the optional package `cryptography` is
    installed: some ten times as fast as the operating system's source. The keystream cannot be
    told from uniform bytes by anyone who cannot break AES-256. Every call draws a new key of
    256 bits from the operating system, and key and counter are gone when it returns: no counter
    block is used twice, and there is no state that a forked process, another thread or a pickle
    could repeat.
    """
    ciphers = _ciphers() if count >= CIPHER_BYTES else None
    if ciphers is None:
        return os.urandom(count)
    cipher = ciphers.Cipher(
        ciphers.algorithms.AES(os.urandom(32)), ciphers.modes.CTR(os.urandom(16))
    )
    return bytes(cipher.encryptor().update(bytes(count)))


def _aes(key: bytes, count: int) -> bytes:
    ciphers = import_module("cryptography.hazmat.primitives.ciphers")
    # the key is used once, so the counter may begin at 0
    cipher = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(bytes(16)))
    return bytes(cipher.encryptor().update(bytes(count)))


def _shake(key: bytes, count: int) -> bytes:
    return hashlib.shake_256(key).digest(count)


def _philox(key: bytes, count: int) -> bytes:
    seed = [int.from_bytes(key[i : i + 8], "little") for i in range(0, len(key), 8)]
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([*seed, len(seed)])))
    return generator.integers(0, 2**64, size=count // 8, dtype=np.uint64).tobytes()


_EXPANSIONS = {"aes": _aes, "shake": _shake, "philox": _philox}


@frozen(repr=False)
class Keyed:
    """Words that are computed from a key of 256 bits, the same at every call.

    Parameters
    ----------
    key
        Fresh and uniform, and used for one purpose only. The words of "aes" and "shake" cannot be
        told from uniform ones by anyone who does not have the key and cannot break AES-256 or
        SHAKE256.
    how
        "aes", AES-256 in counter mode from 0, which needs `cryptography`; "shake", SHAKE256 of the
        key, which any Python has; or "philox", for simulations: fast, and the same on all machines.
        It is stored, not chosen by whoever expands the key, so that all find the same words.
    """

    key: bytes
    how: str = field()

    @how.default
    def _fastest(self) -> str:
        return "shake" if _ciphers() is None else "aes"

    def __repr__(self) -> str:
        return "Keyed(...)"

    def words(self, count: int) -> Words:
        """Return the first ``count`` words."""
        return np.frombuffer(_EXPANSIONS[self.how](self.key, 8 * count), dtype="<u8").astype(
            np.uint64, copy=False
        )


# --- fast normal numbers


_ONE, _SIGN = np.uint64(1), np.uint64(63)


def standard_normals(words: Callable[[int], Words], count: int) -> Floats:
    """Return ``count`` standard normal floats by the transform of Box and Muller, two at a time.

    With r^2 = -2 log U and a uniform angle the pair ``r (cos, sin)`` is normal. The angle is one
    of the right half plane, ``2x`` with |x| <= pi/4, and a random sign of r's cosine gives the
    left half; with t = tan x the cosine is ``(1 - t^2)/(1 + t^2)`` and the sine ``2t/(1 + t^2)``.

    References
    ----------
    Box and Muller 1958.
    """
    # two normals from each pair of words; an odd count drops the last
    pairs = (count + 1) // 2
    normals = np.empty(2 * pairs)
    for start in range(0, pairs, PAIRS):
        size = min(PAIRS, pairs - start)
        _fill_normals(words(2 * size), normals[2 * start : 2 * (start + size)])
    return normals[:count]


def _fill_normals(drawn: Words, into: Floats) -> None:
    """Fill ``into`` with one normal a word: cosines, then sines; in place, to stay in the cache."""
    size = len(drawn) // 2
    first, second = drawn[:size], drawn[size:]
    cosines, sines = into[:size], into[size:]
    # the upper 63 bits of the word are U; its last bit is the sign below
    radius = (first >> _ONE).view(np.int64).astype(np.float64)
    radius += 0.5  # the middle of a cell: U is never 0
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    tangent = second.view(np.int64) * (np.pi / 4 * 2.0**-63)  # x in [-pi/4, pi/4)
    np.tan(tangent, out=tangent)
    square = tangent * tangent
    # (1 - t^2)/(1 + t^2) is the cosine, at least 0 where |x| <= pi/4
    np.subtract(1.0, square, out=cosines)
    square += 1.0
    radius /= square
    cosines *= radius
    # the bit pattern's top bit is the sign of a float: exclusive or with it flips the sign
    bits = cosines.view(np.uint64)
    bits ^= first << _SIGN  # the word's last bit, which the radius did not use
    # the sine 2t/(1 + t^2), times r
    tangent *= 2.0
    np.multiply(radius, tangent, out=sines)
