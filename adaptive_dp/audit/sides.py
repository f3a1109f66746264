"""What an audit runs: a mechanism on each of two neighbouring data sets.

A *sampler* runs it so many times on one data set and returns the outcomes; a *side* is a sampler;
the two sides of a `Neighbors` are the laws that a claim says can hardly be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from accountants.errors import DomainError
from accountants.rounding import Array
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

Outcomes = Array | Sequence[Any]
"""Many outcomes: an array whose first axis counts them, or a sequence of any values.

A value may be a number, a text, None, a bool, an array, or tuples, lists and mappings of these, of
any length. NaN and infinity are values like others.
"""

Sampler = Callable[[int, Stream], Outcomes]
"""``sampler(count, stream)``: as many independent outcomes, all randomness from the stream."""

LogRatio = Callable[[Outcomes], Array]
"""The log-likelihood ratio of outcomes, first side against second, shape (count,).

It decides how much is found, never whether what is found is true: a wrong one costs power alone.
"""


@frozen
class Neighbors:
    """A pair of neighbouring data sets, as two samplers.

    Parameters
    ----------
    words
        What the two data sets are, for the reader of the audit. Synthetic or public data only: the
        words, and how often each outcome was seen, are part of the result.
    first, second
        The samplers. The claim must hold in both directions.
    log_ratio
        Where the likelihood is known.

    Examples
    --------
    >>> from adaptive_dp.noise.stream import SeededStream
    >>> def noisy(total):
    ...     return lambda count, stream: total + stream.laplace(2.0, (count,))
    >>> pair = Neighbors("a sum of 0, or of 1", noisy(0.0), noisy(1.0))
    >>> pair.first(1_000, SeededStream(1)).shape
    (1000,)
    """

    words: str
    first: Sampler
    second: Sampler
    log_ratio: LogRatio | None = None


def checked(seed: int | None) -> int | None:
    """Return a seed as an int, or None.

    Raises
    ------
    DomainError
        If it is no whole number of at least 0.
    """
    if seed is None:
        return None
    number = None if isinstance(seed, bool) or not hasattr(seed, "__index__") else seed.__index__()
    if number is None or number < 0:
        raise DomainError(f"seed must be a whole number of at least 0, or None, got {seed!r}")
    return number


def stream(seed: int | None, *place: int) -> Stream:
    """Return the operating system's randomness, or for a seed a stream of its own per place."""
    return SecureStream() if seed is None else SeededStream(seed, *place)
