"""Many secure words at once: AES-256 in counter mode under a key that is used once.

The optional package `cryptography` is some ten times as fast as the operating system's source.
Every call draws a fresh key of 256 bits from the operating system, and key and counter are gone
when it returns. So there is no state: nothing that a forked process, another thread or a pickle
could repeat.

A `Keyed` source is the exception, and is meant to be: 32 bytes that are sent to whoever shall
expand them, and that always give the same words.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

LEAST = 4096
"""From this many bytes on a key pays for itself."""


@cache
def _ciphers() -> Any:
    """Return the module of ciphers, or None where `cryptography` is not installed."""
    try:
        return import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError:
        return None


def secure_bytes(count: int) -> bytes:
    """Return fresh random bytes: the operating system's, or a keystream keyed by them.

    The keystream is indistinguishable from uniform bytes to whoever cannot break AES-256; a
    counter block is used once, since so is the key.
    """
    ciphers = _ciphers() if count >= LEAST else None
    if ciphers is None:
        return os.urandom(count)
    cipher = ciphers.Cipher(
        ciphers.algorithms.AES(os.urandom(32)), ciphers.modes.CTR(os.urandom(16))
    )
    return bytes(cipher.encryptor().update(bytes(count)))


def _aes(key: bytes, count: int) -> bytes:
    ciphers = import_module("cryptography.hazmat.primitives.ciphers")
    cipher = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(bytes(16)))
    return bytes(cipher.encryptor().update(bytes(count)))


def _shake(key: bytes, count: int) -> bytes:
    return hashlib.shake_256(key).digest(count)


def _philox(key: bytes, count: int) -> bytes:
    seed = [int.from_bytes(key[i : i + 8], "little") for i in range(0, len(key), 8)]
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([*seed, len(seed)])))
    return generator.integers(0, 2**64, size=count // 8, dtype=np.uint64).tobytes()


EXPANDING = {"aes": _aes, "shake": _shake, "philox": _philox}


@frozen(repr=False)
class Keyed:
    """Words that follow from a key of 256 bits, of one use: the same whenever they are asked for.

    Parameters
    ----------
    key
        Fresh and uniform. The words of "aes" and "shake" are then indistinguishable from uniform
        ones to whoever does not have it and cannot break AES-256 or SHAKE256.
    how
        "aes", AES-256 in counter mode from 0, which needs `cryptography`; "shake", SHAKE256 of the
        key, which any Python has; or "philox", for simulations: fast and the same on all machines.
        It is told, and not found out by whoever expands the key, so that all find the same words.
    """

    key: bytes
    how: str = field()

    @how.default
    def _fastest(self) -> str:
        return "shake" if _ciphers() is None else "aes"

    def __repr__(self) -> str:
        return "Keyed(...)"

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the first ``count`` words."""
        return np.frombuffer(EXPANDING[self.how](self.key, 8 * count), dtype="<u8").astype(
            np.uint64, copy=False
        )
