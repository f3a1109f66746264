"""Confidence bounds of a probability from independent draws: Clopper and Pearson's.

The number of hits among ``tries`` draws is binomial, so that the bounds are quantiles of beta
distributions: they hold for every number of draws, not in the limit. Each is moved outward by more
than the quantiles' rounding error, so that it never claims more than it may.

References
----------
Clopper and Pearson 1934.
"""

from __future__ import annotations

import math

from accountants import special

_SLACK = 1e-9
"""Relative rounding error granted to the quantiles, outward; theirs is about 1e-12."""


def lower(hits: int, tries: int, share: float) -> float:
    """Return a lower bound of a probability, wrong with probability at most ``share``.

    Parameters
    ----------
    hits, tries
        How many of the independent draws were in the event, and how many there were.
    share
        The probability with which the bound may be wrong, between 0 and 1.

    Examples
    --------
    >>> round(lower(57, 1000, 0.025), 6), round(upper(57, 1000, 0.025), 6)
    (0.043454, 0.073223)
    """
    if hits <= 0:
        return 0.0
    quantile = float(special.betaincinv(hits, tries - hits + 1, share))
    return max(0.0, quantile * (1 - _SLACK))


def upper(hits: int, tries: int, share: float) -> float:
    """Return an upper bound of a probability, wrong with probability at most ``share``."""
    if hits >= tries:
        return 1.0
    quantile = float(special.betainccinv(hits + 1, tries - hits, share))
    return min(1.0, quantile * (1 + _SLACK))


def odds(hits: int, tries: int, share: float) -> float:
    """Return a lower bound of p / (1 - p), without the cancellation in 1 - p."""
    if hits <= 0:
        return 0.0
    rest = float(special.betainccinv(tries - hits + 1, hits, share))  # an upper bound of 1 - p
    rest = min(1.0, rest * (1 + _SLACK))
    return (1 - rest) / rest if rest > 0 else math.inf
