"""Exact draws of continuous noise: real numbers of which as many bits are drawn as are needed.

A `Real` is ``sign (k + x)``, k whole and x uniform in [0, 1), drawn 64 bits at a time. Rejection
looks at the bits that are there, and at more where these do not decide; the bits that it did not
look at stay uniform, so that the law of the number is the continuous one, to the last bit.
Whoever compares or rounds such numbers has the exact answer (`positive`, `nearest`).

* Exponential: k is geometric, of ``P(k) ~ e^{-k}``, and x is kept with probability ``e^{-x}``.
* Laplace: the same with a fair sign.
* Normal (Karney 2016, Algorithm N): k of ``P(k) ~ e^{-k/2}`` is kept with probability
  ``e^{-k(k-1)/2}``, then x with probability ``e^{-x(2k+x)/2}``: together ``e^{-(k+x)^2/2}``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from attrs import define

from adaptive_dp.noise.coins import DOUBT, TINY, always, bernoulli_exp, word
from adaptive_dp.noise.stream import Stream

_ONE, _HALF = always(Fraction(1)), always(Fraction(1, 2))


@define(eq=False, repr=False)
class Uniform:
    """A uniform number in [0, 1)."""

    stream: Stream
    bits: int = 0
    drawn: int = 0

    def draw(self, bits: int) -> None:
        """Have at least so many bits."""
        while self.bits < bits:
            self.drawn, self.bits = self.drawn << 64 | word(self.stream), self.bits + 64

    def near(self) -> float:
        """Return it as a float, off by less than 2^-52."""
        self.draw(64)
        return (self.drawn >> self.bits - 64) * 2.0**-64

    def bounds(self, bits: int) -> tuple[Fraction, Fraction]:
        """Return its cell, after at least so many bits."""
        self.draw(bits)
        return Fraction(self.drawn, 1 << self.bits), Fraction(self.drawn + 1, 1 << self.bits)


@define(eq=False, repr=False)
class Real:
    """A real number, drawn as far as it was looked at."""

    sign: int
    whole: int
    part: Uniform

    def bounds(self, bits: int) -> tuple[Fraction, Fraction]:
        """Return bounds at most ``2^-bits`` apart."""
        low, high = (self.whole + x for x in self.part.bounds(bits))
        return (low, high) if self.sign > 0 else (-high, -low)

    def near(self) -> float:
        """Return it as a float, off by less than 2^-50 of itself, and 2^-60."""
        return self.sign * (self.whole + self.part.near())


def exponential(stream: Stream) -> Real:
    """Return an exponential number of mean 1."""
    whole = 0
    while bernoulli_exp(1.0, _ONE, stream):
        whole += 1
    while True:
        part = Uniform(stream)
        if bernoulli_exp(part.near(), part.bounds, stream):
            return Real(1, whole, part)


def laplace(stream: Stream) -> Real:
    """Return a Laplace number of scale 1."""
    found = exponential(stream)
    found.sign = _sign(stream)
    return found


def normal(stream: Stream) -> Real:
    """Return a standard normal number."""
    while True:
        k = 0
        while bernoulli_exp(0.5, _HALF, stream):
            k += 1
        rest = k * (k - 1) / 2
        if k > 1 and not bernoulli_exp(rest, always(Fraction(rest)), stream):
            continue
        part = Uniform(stream)

        def exponent(bits: int, k: int = k, part: Uniform = part) -> tuple[Fraction, Fraction]:
            low, high = part.bounds(bits)
            return low * (2 * k + low) / 2, high * (2 * k + high) / 2

        x = part.near()
        if bernoulli_exp(x * (2 * k + x) / 2, exponent, stream):
            return Real(_sign(stream), k, part)


def positive(constants: Sequence[float], terms: Sequence[tuple[float, Real]]) -> bool:
    """Return whether ``sum(constants) + sum(factor * real)`` is at least 0, exactly.

    Constants and factors are finite floats, each taken for the rational number that it is.
    """
    guesses = [*constants, *(factor * real.near() for factor, real in terms)]
    guess, size = sum(guesses), sum(map(abs, guesses))
    lost = TINY + 2.0**-60 * sum(abs(factor) for factor, _ in terms)
    if size < 1e300 and abs(guess) > DOUBT * size + lost:
        return guess > 0
    constant, bits = sum(map(Fraction, constants), Fraction(0)), 64
    while True:
        low, high = _sum(constant, terms, bits)
        if low >= 0 or high <= 0:  # the one real number 0 has no chance
            return low >= 0
        bits += 64


def nearest(constant: float, factor: float, real: Real, unit: float) -> int:
    """Return the whole number nearest to ``(constant + factor real) / unit``, exactly."""
    bits = 64
    while True:
        low, high = (
            math.floor(x / Fraction(unit) + Fraction(1, 2))
            for x in _sum(Fraction(constant), [(factor, real)], bits)
        )
        if low == high:
            return low
        bits += 64


def _sum(
    constant: Fraction, terms: Sequence[tuple[float, Real]], bits: int
) -> tuple[Fraction, Fraction]:
    low = high = constant
    for factor, real in terms:
        ends = [Fraction(factor) * x for x in real.bounds(bits)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _sign(stream: Stream) -> int:
    return 1 if word(stream) >> 63 else -1
