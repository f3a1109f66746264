"""Functions in as many decimal digits as are asked for: what settles a draw that floats cannot.

The standard library's decimals round ``exp`` and ``sqrt`` correctly; the rest is here, each with
an absolute error of at most 10^-digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, localcontext
from functools import lru_cache

LOG_TEN = math.log(10)


@contextmanager
def precision(digits: int) -> Iterator[None]:
    """Compute with ten digits more than ``digits``, and exponents that nothing here exceeds."""
    with localcontext(
        Context(prec=digits + 10, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
    ):
        yield


@lru_cache(maxsize=64)
def pi(digits: int) -> Decimal:
    """Return pi by Machin's formula, ``16 arctan(1/5) - 4 arctan(1/239)``."""
    with precision(digits):
        return 16 * _arctan(5, digits) - 4 * _arctan(239, digits)


def _arctan(x: int, digits: int) -> Decimal:
    """Return arctan(1/x) by its alternating series, whose first term left out bounds the rest."""
    power, total, n = Decimal(1) / x, Decimal(0), 1
    while power > Decimal(10) ** (-digits - 5):
        total += power / n if n % 4 == 1 else -power / n
        power, n = power / (x * x), n + 2
    return total


def erfc(x: Decimal, digits: int) -> Decimal:
    """Return ``2/sqrt(pi) int_x^inf e^{-t^2} dt`` for x >= 0, off by at most 10^-digits.

    Past ``x^2 = digits log 10`` it is below ``e^{-x^2}``, and 0 will do. Elsewhere it is 1 less
    ``2/sqrt(pi) x e^{-x^2} (1 + 2x^2/3 + (2x^2)^2/(3*5) + ...)``, whose terms are positive: their
    n rounding errors stay relative to a sum of at most 1. Once a term is at most half of the one
    before it, it bounds all that follow.
    """
    with precision(digits):
        square = x * x
        if square > Decimal(digits * LOG_TEN + 1):
            return Decimal(0)
        term = total = x
        least, n = Decimal(10) ** (-digits - 5), 1
        while term > least or 4 * square > 2 * n + 1:
            term = term * 2 * square / (2 * n + 1)
            total, n = total + term, n + 1
        return 1 - 2 * total * (-square).exp() / pi(digits).sqrt()
