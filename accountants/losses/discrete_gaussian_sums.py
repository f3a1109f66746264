"""Sums over the integers of ``e^{-x^2/(2 sigma^2)}``: theta functions, and one-sided tails."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accountants import special
from accountants.complexes import Complex, log1p
from accountants.rounding import UNIT, Array

_TERMS = np.arange(1.0, 6.0)
"""Terms of a theta function: with g >= pi the next, k = 6, is below e^{-30 pi} of the first."""


def log_theta_ratio(g: float, tau: Complex) -> tuple[Complex, Array]:
    """Return ``log(Theta(tau)/Theta(0))``, with ``Theta(tau) = sum_k e^{-g k^2 + k tau}``.

    Parameters
    ----------
    g
        At least 3.14, within 4 UNIT of what is meant.
    tau
        Each part within ``4 UNIT |tau|`` of what is meant.

    Returns
    -------
    tuple
        The logarithms, up to multiples of 2 pi i, and bounds of their errors.

    Notes
    -----
    ``Theta(tau) = e^{m (tau - m g)} Theta(tau - 2 m g)``: with m the integer nearest to
    ``Re tau/(2g)`` the first term is the largest, and the others are below ``e^{-g (k^2 - |k|)}``
    of it. For m = 0, ``Theta(tau) - Theta(0) = 4 sum_{k>0} e^{-g k^2} sinh^2(k tau/2)``, in which
    nothing cancels near 0.
    """
    m = np.rint(tau.real / (2 * g))
    rest = tau - 2 * g * m
    slip = 8 * UNIT * (np.abs(tau) + 2 * g * np.abs(m))
    far = _far(g, rest, slip)
    near = _near(g, tau)
    moved = m * (tau - m * g)
    value = np.where(near[1] < far[1], near[0], moved + far[0])
    size = np.abs(m) * (np.abs(tau) + np.abs(m) * g)
    return value, np.minimum(near[1], far[1] + 16 * UNIT * size)


def _far(g: float, rest: Complex, slip: Array) -> tuple[Complex, Array]:
    total, wrong = np.zeros_like(rest), np.zeros(np.shape(rest))
    at_zero = 0.0
    for k in _TERMS:
        up, down = np.exp(-g * k * k + k * rest), np.exp(-g * k * k - k * rest)
        size = np.abs(up) + np.abs(down)
        steps = 16 + 8 * g * k * k + 4 * k * np.abs(rest)
        # each exponential: its own rounding, and tau off by `slip`
        total, wrong = total + (up + down), wrong + size * (UNIT * steps + 2 * k * slip)
        at_zero += 2 * math.exp(-g * k * k)
    value, error = log1p(total, wrong + 1e-40)
    return value - math.log1p(at_zero), error + 8 * UNIT * ((2 + g) * at_zero + np.abs(value))


def _near(g: float, tau: Complex) -> tuple[Complex, Array]:
    inside = np.abs(tau) <= 1
    rest = np.where(inside, tau, 0.0)
    total, wrong, at_zero = np.zeros_like(rest), np.zeros(np.shape(rest)), 0.0
    for k in _TERMS:
        weight, sinh = math.exp(-g * k * k), np.sinh(k * rest / 2)
        total = total + 4 * weight * (sinh * sinh)
        # tau off by 4 UNIT of itself moves sinh by as much of |x| cosh x
        size = k * np.abs(rest) * math.cosh(k / 2)
        wrong = wrong + UNIT * (80 + 8 * g * k * k) * weight * size * size
        at_zero += 2 * weight
    wrong = wrong + 1e-40 * np.abs(rest) ** 2
    relative = (total / (1 + at_zero)).astype(np.complex128)
    value, error = log1p(relative, wrong + 8 * UNIT * np.abs(total))
    return value, np.where(inside, error, np.inf)


def upper_tail(sigma: float, least: Array) -> Array:
    """Return ``P(X >= n)`` at integers n, within 1e-12 of itself and 1e-300."""
    folded = np.maximum(least, 1 - least)  # X and -X have the same law; here n >= 1
    tails = _from_table(sigma, folded) if sigma <= _TABLED else _from_integral(sigma, folded)
    return np.where(least >= 1, tails, 1 - tails)


_TABLED = 2000.0


def _from_table(sigma: float, least: Array) -> Array:
    table = _table(sigma)
    return table[np.minimum(least, len(table) - 1).astype(np.intp)]


@lru_cache(maxsize=64)
def _table(sigma: float) -> Array:
    """Return ``P(X >= n)`` for n = 0, 1, ... until it is 0 or below 1e-300.

    Masses are off by ``8 UNIT`` of their exponent, at most 720. Each sum from the end adds a
    unit of itself, in all ``sum_{m>=n} P(X >= m)``, at most ``sigma + 2`` times ``P(X >= n)``
    (the hazard of a log-concave law grows).
    """
    count = math.ceil(38 * sigma) + 2
    points = np.arange(count, dtype=np.float64) / sigma
    masses = np.exp(-points * points / 2)
    total = 1 + 2 * float(np.sum(masses[:0:-1]))
    return np.append(np.cumsum(masses[::-1])[::-1] / total, 0.0)


def _from_integral(sigma: float, least: Array) -> Array:
    """Return the tail by Euler and Maclaurin's midpoint formula, up to the third derivative.

    ``sum_{y>=n} h(y) = int h + h'/24 - 7 h'''/5760 + R`` from x = n - 1/2 on, for ``h(y) =
    e^{-y^2/(2 sigma^2)}``, with ``|R| <= 7e-5 int |h^(6)|``; ``|He_6(t)| <= (t^2+5)^3``, so that
    R is below ``7e-5 (1600/sigma^2)^3``, 1e-14, of the tail up to t = 38. The total is ``sigma
    sqrt(2 pi)`` but for ``e^{-2 pi^2 sigma^2}``.
    """
    t = np.minimum((least - 0.5) / sigma, 1e3)
    density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    square = sigma * sigma
    # the Euler-Maclaurin terms h'/24 and 7 h'''/5760, at t = (n - 1/2) / sigma
    corrected = density * (7 * t * (t * t - 3) / (5760 * square) - t / 24) / square
    tail: Array = special.ndtr(-t) + corrected
    return np.maximum(tail, 0.0)
