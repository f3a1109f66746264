"""Many secure words at once: AES-256 in counter mode under a key that is used once.

The optional package `cryptography` is some ten times as fast as the operating system's source.
Every call draws a fresh key of 256 bits from the operating system, and key and counter are gone
when it returns. So there is no state: nothing that a forked process, another thread or a pickle
could repeat.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

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
