"""Keyed sampling: which units are drawn, each by a random word of its own, wherever its rows are.

Units are numbered in their order. Unit u has the u-th of many independent uniform 64-bit words and
is selected if that word lies in an interval: below ``rate 2^64`` for a Poisson sample, between two
cuts for one of several disjoint parts. Up to `LOCAL_UNITS` units the words are drawn here, from the
stream itself. For more units every block of `CHILD_UNITS` units has a stream of its own: a child,
which is a new key of 32 bytes. Whoever holds the rows of those units expands the child, always to
the same words.

**The law is that of a single stream** (own proof). Unit u has word ``u mod CHILD_UNITS`` of child
``u // CHILD_UNITS``, so no two units share a word, whatever the parts. The words of a child are
independent and uniform, and children are independent of each other, of the data, and of everything
drawn before or after. So all words are independent and uniform, as those of one stream are, and
the selection is a function of them. (For a secure stream this holds up to the distinguishability of
the keystream from uniform words, as for all of its long outputs.)

A part that is computed a second time, because a worker was lost or late, selects the same units, so
it does not matter which of its results is used. If each worker drew its own randomness it would:
how long a part takes depends on how many units are selected, so that taking the faster result
would bias the sample.
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

LOCAL_UNITS = 2**20
"""Up to so many units, the words are drawn at once by the stream itself: 8 MiB of them."""

CHILD_UNITS = 2**16
"""Units of one child. A part that begins inside a child expands the words before its own too."""


class Child(Protocol):
    """A short key that stands for many words; it can be sent to another process."""

    def words(self, count: int) -> Words:
        """Return the first ``count`` of its words, the same at every call."""
        ...


class RandomSource(Protocol):
    """A source of independent randomness: all that an implementation of rows needs of a stream."""

    def bernoulli(self, rate: float, count: int) -> Bools:
        """Return ``count`` independent trials, each True with probability at most ``rate``."""
        ...

    def words(self, count: int) -> Words:
        """Return ``count`` uniform 64-bit words."""
        ...

    def children(self, count: int) -> Sequence[Child]:
        """Return ``count`` new independent sources."""
        ...


@frozen
class Interval:
    """The words from ``low`` up to but not including ``high``, which may be 2^64."""

    low: int
    high: int

    def has(self, words: Words) -> Bools:
        """Return which words lie in the interval."""
        if self.low >= self.high:
            return np.zeros(len(words), dtype=np.bool_)
        # the end of the range of all words is 2^64, which is no uint64: compare with high - 1
        return (words >= np.uint64(self.low)) & (words <= np.uint64(self.high - 1))


def rate_interval(rate: float) -> Interval:
    """Return an interval of probability at most ``rate``, and more than ``rate - 2^-64``."""
    # rounded down: the certified rate is an upper bound of the one that is used
    return Interval(0, math.floor(min(rate, 1.0) * 2.0**64))


def cut_intervals(cuts: Sequence[int]) -> list[Interval]:
    """Return the intervals between cuts: one more than there are cuts."""
    return [Interval(low, high) for low, high in pairwise([0, *cuts, 2**64])]


@frozen(eq=False, repr=False)
class PartSample:
    """What selects units ``start`` to ``stop``: their children, of ``size`` units each."""

    interval: Interval
    start: int
    stop: int
    size: int
    children: tuple[Child, ...]

    def selected(self) -> Bools:
        """Return which of the units are selected, shape (stop - start,)."""
        return self.interval.has(self.words())

    def words(self) -> Words:
        """Return the units' words."""
        # the number of the child that has unit `start`
        first = self.start // self.size
        # an empty piece, so that an empty part concatenates too
        pieces = [np.empty(0, dtype=np.uint64)]
        for i, child in enumerate(self.children, first):
            # child i has units i size to (i+1) size: those from `start` up to `stop`
            end = min(self.stop - i * self.size, self.size)
            pieces.append(child.words(end)[max(0, self.start - i * self.size) :])
        return np.concatenate(pieces)


@frozen(eq=False, repr=False)
class KeyedSample:
    """What selects among all units, each of which has one row.

    Parameters
    ----------
    interval
        The words that select a unit.
    starts
        How many units come before each part, and how many there are: shape (parts + 1,).
    size
        Units of one child.
    children
        One for every ``size`` units.
    """

    interval: Interval
    starts: tuple[int, ...]
    size: int
    children: tuple[Child, ...]

    def of_part(self, part: int) -> PartSample:
        """Return what one part needs to know, and nothing of the others."""
        start, stop = self.starts[part], self.starts[part + 1]
        # the children that overlap start to stop: down for the first, up for the one after the last
        first, last = start // self.size, -(-stop // self.size)
        children = self.children[first:last] if start < stop else ()
        return PartSample(self.interval, start, stop, self.size, children)


@frozen(eq=False, repr=False)
class WordSample:
    """What selects rows by the words of their units, shape (rows,), which are all here.

    Several samples may share the words; the mask of a part is computed when it is asked for.
    """

    interval: Interval
    starts: tuple[int, ...]
    words: Words

    def selected(self, part: int) -> Bools:
        """Return which rows of a part are selected."""
        return self.interval.has(np.asarray(self.words[self.starts[part] : self.starts[part + 1]]))


def new_children(source: RandomSource, count: int) -> tuple[Child, ...]:
    """Return new children for ``count`` units."""
    # rounded up: the last child may have fewer units
    return tuple(source.children(-(-count // CHILD_UNITS)))


def words(source: RandomSource, count: int) -> Words:
    """Return the words of ``count`` units."""
    if count <= LOCAL_UNITS:
        return source.words(count)
    # the interval plays no part here: only the words are asked for
    every = new_children(source, count)
    return PartSample(rate_interval(1.0), 0, count, CHILD_UNITS, every).words()


def fixed_size_sample(source: RandomSource, size: int, count: int) -> Bools:
    """Return whether each of ``count`` units is in a sample of ``size``, drawn without replacement.

    Every set of so many units is equally likely, exactly: it has the units of the smallest words.
    Independent words are exchangeable, also given that the largest word of the set is below those
    of all others; where it is not, words are drawn again.
    """
    if size >= count:
        return np.ones(count, dtype=np.bool_)
    if size <= 0:
        return np.zeros(count, dtype=np.bool_)
    while True:
        own = words(source, count)
        sampled: Bools = own <= np.partition(own, size - 1)[size - 1]
        if np.count_nonzero(sampled) == size:
            return sampled


def poisson_sample(source: RandomSource, rate: float, count: int) -> Bools:
    """Return whether each of ``count`` units is in a Poisson sample."""
    if rate >= 1 or count <= LOCAL_UNITS:
        return source.bernoulli(rate, count)
    sampled, interval = np.empty(count, dtype=np.bool_), rate_interval(rate)
    for i, child in enumerate(new_children(source, count)):  # the words of one child at a time
        own = sampled[i * CHILD_UNITS : (i + 1) * CHILD_UNITS]
        own[:] = interval.has(child.words(len(own)))
    return sampled
