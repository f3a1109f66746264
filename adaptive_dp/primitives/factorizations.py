"""Noise that hangs together from round to round: two ways to write prefix sums as ``A = B C``.

What is released is ``y = C X + Z``: the rows of X are the rounds' values, C is public, Z has
independent Gaussian entries; B y estimates the prefix sums A X with noise B Z. Here C is a matrix
of whole numbers over ``2^bits``, so that C X lies on a lattice wherever X does, and `y` is drawn
exactly; B y is computed from y in floats, which costs nothing.

*Batches.* Rounds go through b batches k times in one order: a unit takes part in rounds
``j, j + b, ..., j + (k-1) b`` of a j that is its own. It moves the rounds' values by vectors u_i of
norm at most 1, and C X by a matrix of squared norm ``sum_ij X_ij <u_i, u_j> <= sum_ij X_ij``,
``X = C'C``, since no entry of C is negative; equal vectors attain it. So the *sensitivity* is the
largest of ``|C 1_j|``, 1_j the indicator of the rounds of batch j.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.rounding import up

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Noise = Callable[[], Integers]
"""Fresh noise for one row of C X, in its steps."""

BANDS = 1024
"""A banded C has at most so many bands: a round costs as many additions of vectors."""

ROOM = 2**60
"""Rows of C X stay below it in size, and noise below 2^62: sums fit into 64 bits."""


class Run(Protocol):
    """One run over the rounds."""

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next round's value, both in the values' steps."""
        ...


class Factorization(Protocol):
    """A way to write prefix sums over ``batches * epochs`` rounds."""

    bits: ClassVar[int]

    @property
    def reach(self) -> int:
        """The largest sum of a row of C, in its steps of 2^-bits."""
        ...

    def sensitivity(self) -> float:
        """Return the sensitivity, rounded up (see the module)."""
        ...

    def start(self, width: int) -> Run:
        """Return a run over vectors of ``width`` numbers."""
        ...


@frozen
class Tree:
    """A row of C for each node of the binary tree all of whose leaves are rounds: their sum.

    B y takes, for a node, the estimate of least variance from its own row and its children's
    estimates: ``v_h = 1 / (1 + 1 / (2 v_{h-1}))``, ``v_0 = 1`` (Honaker 2015, from below). A prefix
    sum is a sum of at most ``floor(log2 T) + 1`` nodes, its variance one of their v.

    References
    ----------
    Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011; Honaker 2015; Kairouz et al.
    2021 (DP-FTRL).
    """

    bits: ClassVar[int] = 0

    batches: int
    epochs: int

    @property
    def reach(self) -> int:
        """The number of rounds."""
        return self.batches * self.epochs

    def sensitivity(self) -> float:
        """Return the root of the largest ``sum_nodes (rounds of the batch below the node)^2``."""
        return up(math.sqrt(_tree_square(self.batches, self.epochs)), 2)

    def start(self, width: int) -> TreeRun:
        """Return a run."""
        return TreeRun(width)


@lru_cache(maxsize=64)
def _tree_square(batches: int, epochs: int) -> int:
    rounds = np.arange(batches)[:, None] + batches * np.arange(epochs)
    squares = np.zeros(batches, dtype=np.int64)
    for height in range((batches * epochs).bit_length()):
        nodes = rounds >> height
        whole = ((nodes + 1) << height) <= batches * epochs
        # a batch's rounds are in order, so that equal nodes stand side by side
        begins = np.ones_like(whole)
        begins[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
        where = np.flatnonzero(begins)
        counts = np.diff(np.append(where, nodes.size))
        kept = whole.reshape(-1)[where]
        np.add.at(squares, where[kept] // epochs, counts[kept] ** 2)
    return int(squares.max())


class TreeRun:
    """The complete nodes that no greater one covers: exact sums, and estimates of them."""

    def __init__(self, width: int) -> None:
        self._nodes: list[tuple[Integers, Floats] | None] = []
        self._width = width

    def __repr__(self) -> str:
        return "<private sums of a tree>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value."""
        exact = value
        found = (exact + noise()).astype(np.float64)
        variance = 1.0
        for height, node in enumerate(self._nodes):
            if node is None:
                break
            self._nodes[height] = None
            exact = node[0] + exact
            below = node[1] + found
            variance = 2 * variance / (2 * variance + 1)
            found = variance * (exact + noise()).astype(np.float64) + (1 - variance) * below
        else:
            height = len(self._nodes)
            self._nodes.append(None)
        self._nodes[height] = (exact, found)
        total = np.zeros(self._width)
        for node in self._nodes:
            if node is not None:
                total += node[1]
        return total


@frozen
class Banded:
    """The first bands of the square root of the matrix of prefix sums: C and B are nearly alike.

    The square root is Toeplitz, ``c_j = binom(2j, j) / 4^j``; kept are as many bands as there are
    batches, so that a unit's columns of C are orthogonal, and its sensitivity ``sqrt(k)`` times
    that of one epoch. With one epoch it is the whole square root, whose largest error is next to
    the least of all factorizations (up to `BANDS` rounds).

    Column j of C 1 is column 0 moved down by j rows, of which fewer are left: batch 0 has the
    largest ``|C 1_j|``. Rounded to 2^-12, coefficients still do not grow, so that all roots of
    ``sum c_j x^j`` have modulus at least 1 (Enestrom and Kakeya): the recursion that inverts C is
    stable.

    References
    ----------
    Fichtenberger, Henzinger and Upadhyay 2023 (the square root); Choquette-Choo et al. 2023
    (banded); Kalinin and Lampert 2024 (banded square root).
    """

    bits: ClassVar[int] = 12

    batches: int
    epochs: int

    @property
    def reach(self) -> int:
        """The sum of the coefficients."""
        return int(self.coefficients().sum())

    def coefficients(self) -> Integers:
        """Return c_0, c_1, ... in steps of 2^-bits."""
        bands = min(self.batches, BANDS)
        ratios = 1 - 0.5 / np.arange(1, bands)
        exact = np.concatenate([[1.0], np.cumprod(ratios)])
        return np.rint(exact * 2.0**self.bits).astype(np.int64)

    def sensitivity(self) -> float:
        """Return the norm of the columns of batch 0, added up."""
        return up(math.sqrt(_banded_square(self)) / 2.0**self.bits, 2)

    def start(self, width: int) -> BandedRun:
        """Return a run."""
        return BandedRun(self.coefficients(), width, self.bits)


@lru_cache(maxsize=64)
def _banded_square(factorization: Banded) -> int:
    # no two bands of a unit meet: there are no more of them than rounds between
    c = [int(v) for v in factorization.coefficients()]
    return factorization.epochs * sum(v * v for v in c)


class BandedRun:
    """The last values, exact, and the estimates of them that released rows give."""

    def __init__(self, coefficients: Integers, width: int, bits: int) -> None:
        self._reversed = coefficients[::-1].copy()
        self._scale = 2.0**bits
        bands = len(coefficients)
        self._exact = np.zeros((2 * bands, width), dtype=np.int64)
        self._known = np.zeros((2 * bands, width))
        self._at = bands
        self._bands = bands
        self._total = np.zeros(width)

    def __repr__(self) -> str:
        return "<private sums of a band>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value."""
        if self._at == 2 * self._bands:
            for rows in (self._exact, self._known):
                rows[: self._bands] = rows[self._bands :]
            self._at = self._bands
        first = self._at - self._bands + 1
        self._exact[self._at] = value
        row = self._reversed @ self._exact[first : self._at + 1]
        released = (row + noise()).astype(np.float64) / self._scale
        before = (self._reversed[:-1] / self._scale) @ self._known[first : self._at]
        # c_0 is 1
        self._known[self._at] = released - before
        self._total += self._known[self._at]
        self._at += 1
        return self._total.copy()
