"""Exact draws of continuous noise: real numbers of which as many bits are drawn as are needed.

A `Real` is ``sign (k + x)``, k an integer and x uniform in [0, 1), drawn 64 bits at a time.
Rejection reads the bits that are drawn, and draws more where these do not decide. The bits that are
not drawn stay uniform, so that the law of the number is the continuous one, to the last bit.
Comparing and rounding such numbers is exact (`is_nonnegative_sum`, `nearest`).

* Exponential: k is geometric, of ``P(k) ~ e^{-k}``, and x is accepted with probability ``e^{-x}``:
  together the density ``e^{-(k+x)}``.
* Laplace: the same with a random sign.
* Normal (Karney 2016, Algorithm N): k of ``P(k) ~ e^{-k/2}`` is accepted with probability
  ``e^{-k(k-1)/2}``, then x with probability ``e^{-x(2k+x)/2}``. The exponents add up to
  ``k/2 + k(k-1)/2 + kx + x^2/2 = (k+x)^2/2``: together the density ``e^{-(k+x)^2/2}``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from attrs import define

from adaptive_dp.noise.bernoulli import FLOAT_ERROR, UNDERFLOW, bernoulli_exp, known_exactly
from adaptive_dp.noise.exact import LazyUniform
from adaptive_dp.noise.stream import Stream, word

_ONE, _HALF = known_exactly(Fraction(1)), known_exactly(Fraction(1, 2))


@define(eq=False, repr=False)
class Real:
    """A real number ``sign (integer + fraction)``, of which some bits of the fraction are drawn."""

    sign: int
    integer: int
    fraction: LazyUniform

    def bounds(self, bits: int) -> tuple[Fraction, Fraction]:
        """Return bounds at most ``2^-bits`` apart."""
        low, high = (self.integer + x for x in self.fraction.bounds(bits))
        return (low, high) if self.sign > 0 else (-high, -low)

    def near(self) -> float:
        """Return it as a float, off by less than 2^-50 of itself, and 2^-60."""
        return self.sign * (self.integer + self.fraction.near())


def exponential(stream: Stream) -> Real:
    """Return an exponential number of mean 1."""
    k = 0
    # k is geometric: one more with probability 1/e, whatever was drawn before
    while bernoulli_exp(1.0, _ONE, stream):
        k += 1
    while True:  # the geometric k does not depend on x: only x is drawn again
        fraction = LazyUniform(stream)
        # accepted with probability e^{-x}
        if bernoulli_exp(fraction.near(), fraction.bounds, stream):
            return Real(1, k, fraction)


def laplace(stream: Stream) -> Real:
    """Return a Laplace number of scale 1."""
    magnitude = exponential(stream)
    magnitude.sign = _sign(stream)
    return magnitude


def normal(stream: Stream) -> Real:
    """Return a standard normal number."""
    while True:
        # P(k) ~ e^{-k/2}: the first step of Karney's Algorithm N
        k = 0
        while bernoulli_exp(0.5, _HALF, stream):
            k += 1
        # accepted with probability e^{-k(k-1)/2}, which is 1 for k = 0 and k = 1
        rest = k * (k - 1) / 2
        if k > 1 and not bernoulli_exp(rest, known_exactly(Fraction(rest)), stream):
            continue
        fraction = LazyUniform(stream)

        def exponent(
            bits: int, k: int = k, fraction: LazyUniform = fraction
        ) -> tuple[Fraction, Fraction]:
            low, high = fraction.bounds(bits)  # x (2k + x) / 2 is increasing in x >= 0
            return low * (2 * k + low) / 2, high * (2 * k + high) / 2

        # accepted with probability e^{-x(2k+x)/2}; `exponent` decides where this float is too near
        x = fraction.near()
        if bernoulli_exp(x * (2 * k + x) / 2, exponent, stream):
            return Real(_sign(stream), k, fraction)
        # a rejection depends on k too: both are drawn again


def is_nonnegative_sum(constants: Sequence[float], terms: Sequence[tuple[float, Real]]) -> bool:
    """Return whether ``sum(constants) + sum(factor * real)`` is at least 0, exactly.

    Constants and factors are finite floats, each taken for the rational number that it is.
    """
    guesses = [*constants, *(factor * real.near() for factor, real in terms)]
    guess, size = sum(guesses), sum(map(abs, guesses))
    # the error bound of the floats: relative to the sum of sizes, since terms may cancel
    lost = UNDERFLOW + 2.0**-60 * sum(abs(factor) for factor, _ in terms)
    if size < 1e300 and abs(guess) > FLOAT_ERROR * size + lost:
        return guess > 0
    # the floats do not decide: exact rational bounds, with 64 more bits at each try
    constant, bits = sum(map(Fraction, constants), Fraction(0)), 64
    while True:
        low, high = _sum_bounds(constant, terms, bits)
        if low >= 0 or high <= 0:  # a sum of exactly 0 has probability 0
            return low >= 0
        bits += 64


def nearest(constant: float, factor: float, real: Real, unit: float) -> int:
    """Return the integer nearest to ``(constant + factor real) / unit``, exactly."""
    return nearest_sum((constant,), ((factor, real),), unit)


def nearest_sum(
    constants: Sequence[float | Fraction],
    terms: Sequence[tuple[float | Fraction, Real]],
    unit: float,
) -> int:
    """Return the integer nearest to ``(sum(constants) + sum(factor real)) / unit``, exactly."""
    constant, bits = sum((Fraction(x) for x in constants), Fraction(0)), 64
    while True:
        # rounding is monotone: if both ends round to the same integer, so does the number
        low, high = (
            math.floor(x / Fraction(unit) + Fraction(1, 2))
            for x in _sum_bounds(constant, terms, bits)
        )
        if low == high:
            return low
        bits += 64


def _sum_bounds(
    constant: Fraction, terms: Sequence[tuple[float | Fraction, Real]], bits: int
) -> tuple[Fraction, Fraction]:
    low = high = constant
    for factor, real in terms:
        # a negative factor exchanges the ends
        ends = [Fraction(factor) * x for x in real.bounds(bits)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _sign(stream: Stream) -> int:
    return 1 if word(stream) >> 63 else -1
