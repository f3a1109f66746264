"""The equivalent gap: all that a bound of a noisy vote needs to know of its counts, in one number.

K voters, C classes, counts n that sum to K; the answer is the largest noisy count. A union bounds
how likely it is not a largest count: ``q~(n) = sum_{i != *} tail(n_max - n_i)``, with ``tail(x)``
the chance that the difference of two noises exceeds x. The *equivalent gap* g of n is the one gap
of all classes with the same bound,

``q~(n) = (C - 1) tail(g)``,  ``0 <= g <= K``, since tail falls and all gaps are between 0 and K.

A bound that falls in g is kept in a table: *cell* k is for the gaps from ``k/8`` on, and holds the
bound at its lower end.

**Neighbours have ``|g - g'| <= 2``** (normal tails; own proof). One vote moves: the largest count
and each other move by at most 1 each, so ``max n - n_i`` moves by at most 2. Where the class left
out of the sum (the leader, of either data set) is the same, the gaps of the others pair up. Where
it was i and is j, pair the gap of j before with that of i after: both are at least 0, and their
sum, a change of ``n_i - n_j``, is at most 2. So, paired in some order, gaps move by at most 2
each. Let ``s = sqrt 2 sigma`` and ``x_i = Phi(-gap_i/s)``, whose mean over the C - 1 others is
``Phi(-g/s)``. ``f(x) = Phi(Phi^-1(x) + 2/s)`` is concave: its slope, ``e^{-2z/s - 2/s^2}`` at
``z = Phi^-1(x)``, falls. By Jensen's inequality

``Phi(-g'/s) <= mean f(x_i) <= f(mean x_i) = Phi((2 - g)/s)``,

so ``g' >= g - 2``; and the same with the roles exchanged.

Hence cells of neighbours are at most 16 apart, and 17 with rounding: k is the last cell whose
bound of q is not below that of n, both in floats. Where logs are wrong by what moves a gap by at
most ``e``, cells move by less than ``17 + 32 e``. An error of u of the log moves the gap by at most
``u s / max(0.79, g/s)``, for the log's slope is ``max(0.79, g/s)/s`` at least; logs are of size at
most ``log C + 2 + (g/s)^2``, and wrong by ``(64 + C)(1 + |log|)`` units: so e is at most
``32 (64 + C)(s + K)`` units for C below e^20, and `steady` keeps 32 e below 1/4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from accountants import special
from accountants.errors import DomainError
from accountants.rounding import UNIT, Array

CELLS = 8
"""Cells to a unit of the gap, where the table is not too large for it."""


def reach(fine: int) -> int:
    """Return how far cells of neighbours are apart, at most, with ``fine`` cells to a unit."""
    return 2 * fine + 1


_BEFORE = 2.0**-20
"""Cells begin so much earlier, that whole gaps fall into their own in spite of rounding."""

ROUNDED = 2.0**-26, 2.0**-20
"""Noise may be rounded to steps of so much of its scale, or of so many votes, whichever is more.

Two noisy counts that round to the same step tie, and a tie may go to any of them: so the answer is
no largest count with at most the chance that the difference of two unrounded noises exceeds a gap
less one step. Tails are of gaps less one step; a shift of all gaps leaves the above as it is.
"""

_BLOCK = 1 << 18

Tail = Callable[[Array], Array]
"""Gaps, at least 0, to the log of the tail there."""


def normal_tail(sigma: float) -> Tail:
    """Return the log-tail of the difference of two normal noises (Papernot et al. 2018, Prop. 7).

    ``Phi(-x / (sqrt 2 sigma)) = erfc(x / (2 sigma)) / 2``.
    """

    def tail(gaps: Array) -> Array:
        with np.errstate(all="ignore"):
            logs = special.log_ndtr((_step(sigma) - gaps) / (math.sqrt(2) * sigma))
        return np.asarray(np.maximum(logs, -1e300))

    return tail


def laplace_tail(scale: float) -> Tail:
    """Return that of Laplace noises, ``(2 + x/b) e^{-x/b} / 4`` (Papernot et al. 2017).

    For x < 0, where a gap is less than a step, 1 less that of -x.
    """

    def tail(gaps: Array) -> Array:
        with np.errstate(all="ignore"):
            x = np.minimum((gaps - _step(scale)) / scale, 1e300)
            beyond = np.log(0.5 + np.abs(x) / 4) - np.abs(x)
            return np.asarray(np.where(x < 0, np.log1p(-np.exp(beyond)), beyond))

    return tail


def _step(scale: float) -> float:
    return max(ROUNDED[0] * scale, ROUNDED[1])


def steady(sigma: float, classes: int, teachers: int) -> bool:
    """Whether rounding moves a gap by far less than a cell (at the head of this module)."""
    return sigma > 1e-100 and (64 + classes) * (sigma + teachers) < 2.0**40


def grid(tail: Tail, classes: int, teachers: int, fine: int = CELLS) -> Array:
    """Return the log of ``(C - 1) tail`` at each cell's lower end; it never rises.

    Shape ``(fine K + 1,)``.
    """
    ends = np.maximum(np.arange(fine * teachers + 1) / fine - _BEFORE, 0.0)
    logs = math.log(classes - 1) + tail(ends)
    # rounding must not let the table rise: each entry is at least all later ones
    return np.maximum.accumulate(logs[::-1])[::-1]


@frozen(repr=False)
class Places:
    """Where the queries of a data set lie: private.

    Parameters
    ----------
    top, cell
        Shape (places,): the largest count and the cell of each place that is taken.
    times
        Shape (places,): how many queries lie there.
    wrong
        How many queries have counts that are no histogram of the voters' votes.
    """

    top: NDArray[np.int64] = field()
    cell: NDArray[np.int64] = field()
    times: Array = field()
    wrong: int = field()

    def __repr__(self) -> str:
        return "<private>"


def places(counts: ArrayLike, logs: Array, tail: Tail, classes: int, teachers: int) -> Places:
    """Return where queries lie.

    Parameters
    ----------
    counts
        Shape (queries, classes).
    logs
        What `grid` returns.

    Raises
    ------
    DomainError
        If the shape is another; with nothing of the counts.
    """
    votes = _table(counts, classes)
    by_gap = tail(np.arange(teachers + 1.0))
    block = max(1, _BLOCK // classes)
    with np.errstate(all="ignore"):  # a warning would tell of the counts
        codes = [
            _codes(votes[start : start + block], by_gap, logs, teachers)
            for start in range(0, len(votes), block)
        ]
    known = np.concatenate(codes) if codes else np.zeros(0, dtype=np.int64)
    taken, times = np.unique(known, return_counts=True)
    top, cell = np.divmod(taken, len(logs))
    return Places(top, cell, times.astype(np.float64), len(votes) - len(known))


def _codes(votes: NDArray[Any], by_gap: Array, logs: Array, teachers: int) -> NDArray[np.int64]:
    """Return ``top * cells + cell`` of each proper row."""
    # a class a row, whose operations run over many queries at once
    votes = np.ascontiguousarray(_whole(votes).T)
    top = votes.max(axis=0)
    proper = (votes.min(axis=0) >= 0) & (top <= teachers)
    # counts this small have sums that do not overflow
    proper &= np.where(proper, votes, 0).sum(axis=0) == teachers
    if not proper.all():
        votes, top = votes[:, proper], top[proper]
    tails = by_gap[top - votes]
    # the class left out of the union is a largest one
    tails[votes.argmax(axis=0), np.arange(len(top))] = -np.inf
    largest = tails.max(axis=0)
    total = largest + np.log(np.exp(tails - largest).sum(axis=0))
    # the log of the union is rounded up: a larger q, an earlier cell
    total += (64 + len(votes)) * UNIT * (1 + np.abs(total))
    # the last cell whose bound of q is not below the row's
    cell = np.searchsorted(-logs, -total, side="right") - 1
    return np.asarray(top * len(logs) + np.maximum(cell, 0), dtype=np.int64)


def _whole(votes: NDArray[Any]) -> NDArray[np.int64]:
    """Return integers; -1 for what is none."""
    if votes.dtype.kind in "bi":
        return np.asarray(votes, dtype=np.int64)
    if votes.dtype.kind == "u":
        small: NDArray[np.int64] = np.minimum(votes, np.uint64(1 << 62)).astype(np.int64)
        return small
    if votes.dtype.kind != "f":
        return np.full(votes.shape, -1, dtype=np.int64)
    with np.errstate(all="ignore"):
        whole = (np.abs(votes) < 2.0**52) & (votes == np.rint(votes))
        kept: NDArray[np.int64] = np.where(whole, votes, -1.0).astype(np.int64)
    return kept


def _table(counts: ArrayLike, classes: int) -> NDArray[Any]:
    try:
        votes = np.asarray(counts)
    except Exception:  # whose message might quote the counts
        votes = np.zeros(0)
    if votes.ndim != 2 or votes.shape[1] != classes:
        raise DomainError(
            f"counts must be an array of shape (queries, classes), with {classes} classes as "
            "declared; give one row a query and one column a class"
        ) from None
    return votes
