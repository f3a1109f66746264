"""Which units chance picks: each by a word of its own, wherever its rows are.

Units are numbered as they stand, the u-th has the u-th of many independent uniform 64-bit words,
and is picked where that lies in an interval: below ``rate 2^64`` for a Poisson sample, between two
cuts for one of several parts. Up to `HERE` units the words are drawn here, from the stream itself.
Of more units each `BLOCK` has a stream of its own: a child, which is 32 fresh bytes. Whoever has
rows of those units expands the child, and always to the same words.

**The law is that of one stream** (own proof). Unit u has word ``u mod BLOCK`` of child
``u // BLOCK``: no two units share one, whatever the parts. Words of a child are independent and
uniform, and children are independent of each other, of the data, and of all that was drawn before
or will be. So all words are independent and uniform, as those of one stream are, and what is
picked is a function of them. (Of a secure stream: up to what tells the keystream from uniform
words, as with all that it gives many of.) A part that is computed once more, since a worker was
lost or late, picks the same units: which of its results is taken makes no difference. With coins
of the worker's own it would, where the time that a part takes follows from how many are picked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

HERE = 2**20
"""Units whose words are drawn at once, by the stream itself: 8 MiB of them."""

BLOCK = 2**16
"""Units of a child: those of a part that come before its own are expanded for nothing."""


class Child(Protocol):
    """A few bytes that stand for many words; it can be sent to another process."""

    def words(self, count: int) -> Words:
        """Return the first ``count`` of its words, whenever it is asked."""
        ...


class Coins(Protocol):
    """A source of independent randomness, of which the keeper of rows needs nothing else."""

    def coins(self, rate: float, count: int) -> Bools:
        """Return ``count`` coins, each True with probability at most ``rate``."""
        ...

    def words(self, count: int) -> Words:
        """Return ``count`` uniform 64-bit words."""
        ...

    def children(self, count: int) -> Sequence[Child]:
        """Return ``count`` fresh independent sources."""
        ...


@frozen
class Interval:
    """The words from ``low`` up to but not including ``high``, which may be 2^64."""

    low: int
    high: int

    def has(self, words: Words) -> Bools:
        """Return which words lie in it."""
        if self.low >= self.high:
            return np.zeros(len(words), dtype=np.bool_)
        return (words >= np.uint64(self.low)) & (words <= np.uint64(self.high - 1))


def below(rate: float) -> Interval:
    """Return the interval of probability at most ``rate``, to 2^-64."""
    return Interval(0, math.floor(min(rate, 1.0) * 2.0**64))


def between(cuts: Sequence[int]) -> list[Interval]:
    """Return the intervals between cuts, of which there is one more than those."""
    return [Interval(low, high) for low, high in pairwise([0, *cuts, 2**64])]


@frozen(eq=False, repr=False)
class Lot:
    """What picks units ``start`` to ``stop``: their children, of ``size`` units each."""

    interval: Interval
    start: int
    stop: int
    size: int
    children: tuple[Child, ...]

    def picked(self) -> Bools:
        """Return which of the units are picked, shape (stop - start,)."""
        return self.interval.has(self.words())

    def words(self) -> Words:
        """Return the units' words."""
        first = self.start // self.size
        found = [np.empty(0, dtype=np.uint64)]
        for i, child in enumerate(self.children, first):
            end = min(self.stop - i * self.size, self.size)
            found.append(child.words(end)[max(0, self.start - i * self.size) :])
        return np.concatenate(found)


@frozen(eq=False, repr=False)
class Lots:
    """What picks all units, each of which has one row.

    Parameters
    ----------
    interval
        Of whom.
    starts
        How many units come before each part, and how many there are: shape (parts + 1,).
    size
        Of a child.
    children
        One for every ``size`` units.
    """

    interval: Interval
    starts: tuple[int, ...]
    size: int
    children: tuple[Child, ...]

    def of(self, part: int) -> Lot:
        """Return what a part needs to know, and no more."""
        start, stop = self.starts[part], self.starts[part + 1]
        first, last = start // self.size, -(-stop // self.size)
        children = self.children[first:last] if start < stop else ()
        return Lot(self.interval, start, stop, self.size, children)


@frozen(eq=False, repr=False)
class Rowwise:
    """What picks rows by the words of their units, shape (rows,), which are here.

    Several may share the words; bits are made of them when a part is asked for.
    """

    interval: Interval
    starts: tuple[int, ...]
    words: Words

    def bits(self, part: int) -> Bools:
        """Return which rows of a part are picked."""
        return self.interval.has(np.asarray(self.words[self.starts[part] : self.starts[part + 1]]))


def born(source: Coins, count: int) -> tuple[Child, ...]:
    """Return fresh children for ``count`` units."""
    return tuple(source.children(-(-count // BLOCK)))


def words(source: Coins, count: int) -> Words:
    """Return the words of ``count`` units."""
    if count <= HERE:
        return source.words(count)
    return Lot(below(1.0), 0, count, BLOCK, born(source, count)).words()


def coins(source: Coins, rate: float, count: int) -> Bools:
    """Return whether each of ``count`` units is in a Poisson sample."""
    if rate >= 1 or count <= HERE:
        return source.coins(rate, count)
    found, interval = np.empty(count, dtype=np.bool_), below(rate)
    for i, child in enumerate(born(source, count)):  # a block of words at a time
        own = found[i * BLOCK : (i + 1) * BLOCK]
        own[:] = interval.has(child.words(len(own)))
    return found
