"""Negative binomial stopping: the random number of runs of a private selection.

``P(K = k)`` is proportional to ``(1 - gamma)^k (eta)_k / k!`` for k >= 1; for eta = 0 to
``(1 - gamma)^k / k``: geometric for eta = 1, logarithmic for eta = 0.
"""

from __future__ import annotations

import math

from accountants.errors import DomainError, positive
from accountants.rounding import up


def stopping_shape(value: float) -> float:
    """Return eta as a float, or raise `DomainError` unless it is above -1 and at most 1e6."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | str) or not -1 < number <= 1e6:
        raise DomainError(
            "a selection's shape must be a number above -1 and at most 1e6 (1 is geometric, 0 "
            f"logarithmic), got {value!r}"
        )
    return number


def stopping_rate(value: float) -> float:
    """Return gamma as a float, or raise `DomainError` unless it is in [1e-100, 1)."""
    number = positive("a selection's stopping", value)
    if not 1e-100 <= number < 1:
        raise DomainError(
            f"a selection's stopping must be at least 1e-100 and below 1, got {value!r}; a "
            "single run costs its own loss"
        )
    return number


def expected_runs(eta: float, gamma: float) -> float:
    """Return ``E K = eta (1 - gamma) / (gamma (1 - gamma^eta))``, its limit at 0, rounded up."""
    log_gamma = math.log(gamma)
    x = eta * log_gamma
    ratio = x / math.expm1(x) if x else 1.0
    mean = (1 - gamma) / (gamma * -log_gamma) * ratio
    return max(1.0, up(mean, 64 + 4 * max(x, 0.0)))
