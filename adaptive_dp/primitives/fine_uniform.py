"""Uniform numbers in (0, 1) with 53 bits however small they are: for the tails of heavy noise."""

from __future__ import annotations

import math

from adaptive_dp.noise.stream import Stream

DEEPEST = 320
"""Numbers below 2^-320 are drawn with that exponent."""


def fine_uniform(stream: Stream) -> float:
    """Return a uniform number of (0, 1), rounded down to 53 significant bits.

    The exponent is how many coins came up tails before the first head: a uniform number of k
    fixed bits has no small values of its own, and noise made of it no tail beyond them.
    """
    first, second = stream.words(2).tolist()
    zeros = 64 - first.bit_length()
    while not first and zeros < DEEPEST:
        first = int(stream.words(1)[0])
        zeros += 64 - first.bit_length()
    return math.ldexp(float(2**52 + (second >> 12)), -53 - zeros)
