"""Exact Bernoulli trials with probability ``e^{-x}``, x a rational number.

A uniform number u in [0, 1) is drawn 64 bits at a time. The bits so far say that u lies in a cell;
the outcome is known once all of the cell lies below, or above, proven bounds of ``e^{-x}``, which
become tighter with each word. So the law is exact, and one word is nearly always enough. Floats
only save the work where they leave no doubt: the C library's exponential, and what was rounded
before it, are assumed to be off by up to 2^-40, a thousand times more than they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.stream import Stream, word

FLOAT_ERROR = 2.0**-40
"""The relative error that a float computation is assumed to have, more than it has."""

UNDERFLOW = 1e-290
"""An upper bound of what is lost besides where a float underflows."""

Exponent = Callable[[int], tuple[Fraction, Fraction]]
"""Bounds of x, which lie at most some ``2^-bits`` apart, by the number of bits."""


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with ``low <= e^{-x} 2^bits <= high``, at most 3 apart.

    Decimals round ``exp`` correctly. With x below ``bits``, its own rounding moves the result by
    less than ``bits 10^{1 - digits}`` of it: a unit covers that and the result's rounding.
    """
    if exponent >= bits:  # then e^{-x} is below 2^-bits
        return 0, 1
    digits = math.ceil(bits * 0.302) + 20  # log10(2) < 0.302: 20 digits beyond 2^-bits
    context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_FLOOR, traps=[])
    x = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
    scaled = context.multiply(context.exp(x), Decimal(1 << bits))
    floor = int(scaled.to_integral_value(rounding=ROUND_FLOOR, context=context))
    # floor <= scaled < floor + 1, and scaled is off by less than 1
    return max(0, floor - 1), min(floor + 2, 1 << bits)


def bernoulli_exp(
    near: float, exponent: Exponent, stream: Stream, drawn: int | None = None
) -> bool:
    """Return the outcome of a trial that is True with probability ``e^{-x}``, x at least 0.

    Parameters
    ----------
    near
        x as a float, off by less than ``2^-42 (1 + x)``.
    exponent
        x, by bounds. What it depends on may itself be known to so many bits only; the outcome is
        then the same for all that it may be.
    stream
        Where bits come from.
    drawn
        The first word, where it was drawn before.
    """
    bits, u = 64, word(stream) if drawn is None else drawn
    at, chance, doubt = u * 2.0**-64, math.exp(-near), FLOAT_ERROR * (1 + near)
    # the cell ends at at + 2^-64: all of it is below the least that e^{-x} may be
    if at + 2.0**-60 < chance * (1 - doubt):
        return True
    # the cell begins above the most that it may be
    if at > (chance + UNDERFLOW) * (1 + doubt):
        return False
    while True:
        low, high = exponent(bits)
        # u' < (u + 1) 2^-bits <= lower bound of e^{-high} <= e^{-x}
        if u + 1 <= exp_bounds(high, bits)[0]:
            return True
        # u' >= u 2^-bits >= upper bound of e^{-low} >= e^{-x}
        if u >= exp_bounds(low, bits)[1]:
            return False
        bits, u = bits + 64, u << 64 | word(stream)


def known_exactly(exponent: Fraction) -> Exponent:
    """Return the bounds of a number that is known: itself."""
    return lambda bits: (exponent, exponent)


def first_success(
    exponents: NDArray[np.float64], exact: Callable[[int], Fraction], stream: Stream
) -> int:
    """Return the first i whose trial, True with probability ``e^{-x_i}``, succeeds.

    Parameters
    ----------
    exponents
        The x as floats, each off by less than 2^-45 of itself; at least one of them is 0.
    exact
        x by its index.
    stream
        Where bits come from.

    Raises
    ------
    ValueError
        If no trial succeeds, which cannot be if an exponent is 0.
    """
    # one word for each trial, all at once: which are looked at further depends on them alone
    words = stream.words(len(exponents))
    at = words.astype(np.float64) * 2.0**-64
    chance = np.exp(-exponents)
    unsure = FLOAT_ERROR * (1 + np.minimum(exponents, 1e3))  # beyond 1000, chance is 0 in floats
    never = at > (chance + UNDERFLOW) * (1 + unsure)
    sure = at + 2.0**-60 < chance * (1 - unsure)
    near = exponents.tolist()
    for i in np.flatnonzero(~never).tolist():
        if sure[i] or bernoulli_exp(near[i], known_exactly(exact(i)), stream, int(words[i])):
            return i
    raise ValueError("no trial is certain to succeed: one exponent must be 0")


def permutation(count: int, stream: Stream) -> NDArray[np.int64]:
    """Return a uniform permutation of ``count`` items: the order of distinct words."""
    while True:
        keys = stream.words(count)
        order = np.argsort(keys)
        ordered = keys[order]
        # Independent words are exchangeable, also given that they are distinct: all orders are
        # equally likely. Ties would favour the order of the sort, so they are drawn again.
        if not np.any(ordered[1:] == ordered[:-1]):
            return order.astype(np.int64)
