"""The loss of amplification by random allocation.

First the law of the sum of independent likelihood ratios, built by doubling on lattices whose steps
are powers of two, fine around the mean (`_Lattice`). A ratio is spread outward onto the lattice,
and so is a sum where the lattice's step is coarser. What is spread still dominates, since sums of
independent variables keep that order. For lower bounds what has come to a point is taken together
at its mean: that is a post-processing of a step's outcome, or of several steps'. Of the moments of
Gaussian ratios under P's removal those of integer order are known exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import integer
from accountants.finite import FinitePair, spread
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair, log_factorials
from accountants.losses.pure import ResponsePair
from accountants.losses.sampled_gaussian import log_expm1
from accountants.losses.sampling import body_pair, checked_body, of_loose_pair
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    gauss_rule,
    remembered,
    up,
)
from accountants.pair import LooseBound, Pair

_FINE, _GROWTH, _SMALL_GROWTH, _FAR_GROWTH = 1 / 80, 0.005, 0.04, 0.01
"""Grids of products are this fine at 1, in standard deviations, and grow by this share of the loss.

Of ratios below 1 a larger share will do: beside others in a mean they are next to nothing. And of
those so large that next to nothing of P is there.
"""

_NEAR = 1e-11
"""Grids are fine up to ratios above which P has less than this."""

_LARGEST_RATIO = 190.0
"""A body with a loss above this is not amplified: what underflows would be too much."""

_NORMAL_TAIL = 37.6
"""The standard deviations of a Gaussian body that are followed: all but 1e-308."""

LOST = 1e-200
"""More than all that is left out: of ``2^5`` sums some ``2^17`` masses below `_LEAST` each.

Of a sum of m ratios they may be in as many as ``2^20 / m`` parts of the last one.
"""

_LEAST = 1e-230
"""Sums of which P and Q have less mass are left out: what underflows is less than that.

For lower bounds nothing need be said of them: a hockey-stick is only lowered.
"""

_MOVED = 1e-13
"""More than the relative error of a ratio."""

_SHARE = 160 * UNIT
"""More than the relative error of an atom's share of a point.

Points of a lattice are exact, and an atom's own rounding moves a mean of ratios by no more than
`_MOVED`. So the upper share, a difference over a step, is off by 4 units, and the lower one, which
is the rest of the mass and at least 1/32 of it, by 31 times that and one more.
"""

_MOST_POINTS = 2**20
"""More steps than this count as this many."""

_MOST_NESTED = 16
"""A body of more parts than this has no pair."""

_LARGEST_ORDER = 256
"""The largest integer order whose moments are summed."""


@frozen
class _Law:
    """Ratios x, rising, with their masses under Q, each within a relative ``error``.

    Spread outward; the same masses at ``lower`` are a law from below, where it is known.
    """

    x: Array
    mass: Array
    error: float
    lower: Array | None = None


@remembered(64)
def allocated(inner: Pair, steps: int) -> Pair:
    """Return the pair of the mean of ``steps`` ratios of ``inner``, or ``inner`` itself."""
    # a mean of fewer ratios dominates: fewer steps are safe
    law = _law(inner, min(steps, _MOST_POINTS))
    return inner if law is None else _atoms(law, inner.top())


@remembered(64)
def _nested(body: Composite, steps: int) -> Pair | None:
    """Return the pair of the mean of ratios of Gaussian releases and allocations of such, or None.

    A step's ratio is the product of theirs.
    """
    if not any(isinstance(loss, Allocated) for loss, _ in body.spends):
        return None
    gaussian = Composite(tuple(one for one in body.spends if not isinstance(one[0], Allocated)))
    parts: list[tuple[Composite, int]] = [(gaussian, 1)] if gaussian.spends else []
    for loss, times in body.spends:
        if isinstance(loss, Allocated):
            parts += [(loss.body, min(loss.steps, _MOST_POINTS))] * min(times, _MOST_NESTED + 1)
    if len(parts) > _MOST_NESTED:
        return None
    laws = []
    for part, fewer in parts:
        inner = body_pair(part)
        law = _law(inner, fewer) if isinstance(inner, GaussianPair) else None
        if law is None:
            return None
        # some hundred atoms: the pairs of two such laws are made one by one
        width = min(math.sqrt(max(_second(law) - 1, 1e-300)), 1.0)
        grid = _grid(float(law.x[0]), float(law.x[-1]), width, _near(law))
        laws.append(_spread([(law.x, law.mass)], grid, law.error))
    if sum(math.log(float(law.x.max())) for law in laws) > _LARGEST_RATIO:
        return None
    # a product of ratios, each spread, is spread too
    product = reduce(_product, laws)
    if steps == 1:
        return _atoms(product, math.inf)
    return _atoms(_mean(_sum_of_atoms(product), min(steps, _MOST_POINTS)), math.inf)


def _product(a: _Law, b: _Law) -> _Law:
    """Return the law of the product of two ratios, spread."""
    low, high = a.x[0] * b.x[0], a.x[-1] * b.x[-1]
    # E (xy - 1)^2 of means 1
    variance = _second(a) * _second(b) - 1
    near = _near(a) + _near(b)
    grid = _grid(low, high, min(math.sqrt(max(variance, 0.0)), 1.0), near)
    error = a.error + b.error + (_BLOCK + 2 * len(a.x) + len(b.x) + 16) * UNIT
    return _spread(_pairs(a, b), grid, error)


def _second(law: _Law) -> float:
    return float(law.mass @ law.x**2)


@remembered(64)
def _allocated_below(inner: Pair, steps: int) -> Pair | None:
    """Return a pair that the mean of ``steps`` ratios dominates, or None."""
    law = _law(inner, steps) if steps <= _MOST_POINTS else None
    if law is None or law.lower is None:
        return None
    # means of faint outcomes may lie in another order than their points, or nowhere: those are
    # left out, which only lowers a hockey-stick. Equal ones are one
    known = law.lower > 0
    x, mass = law.lower[known], law.mass[known]
    losses, same = np.unique(np.log(x), return_inverse=True)
    p, q = (np.bincount(same, each) for each in (mass * x, mass))
    # masses and means are within the law's error, so a loss is within twice that, as if the
    # mass under P were; the extremes, which decide at delta 0, are moved inward by as much and
    # more, and what lies beside them is left out
    first, last = losses[0] + 4 * law.error, losses[-1] - 4 * law.error
    if not first < last:
        return None
    kept = (losses > first) & (losses < last)
    kept[0] = kept[-1] = True
    losses, p, q = losses[kept], p[kept], q[kept]
    losses[0], losses[-1] = first, last
    return FinitePair(losses, p, q, 7 * law.error + 4 * _MOVED)


@remembered(64)
def _law(inner: Pair, steps: int) -> _Law | None:
    """Return the law of the mean, from above and from below."""
    if isinstance(inner, ResponsePair):
        eps = inner.epsilon
        return _counted(eps, steps) if 1e-9 < eps <= _LARGEST_RATIO else None
    one = _ratio(inner)
    return None if one is None else _mean(one, steps)


_COUNTED_TAIL = 540.0
"""Counts are followed as far as all but ``e^-540`` of them go, which is less than `_LEAST`."""


def _counted(eps: float, steps: int) -> _Law:
    """Return the law of the mean of ratios of two values: of a binomial count, exactly.

    Under P one step has the other chance, so that the count is one of Q's of a step less, or that
    and 1: beyond the same counts and 2 it has no more than Q.
    """
    mean = steps / (1 + math.exp(eps))
    # Bernstein: e^{-d^2 / (2 variance + 2 d / 3)}, and the variance is at most the mean
    away = _COUNTED_TAIL / 3 + math.sqrt(_COUNTED_TAIL**2 / 9 + 2 * _COUNTED_TAIL * mean)
    least = max(0, math.floor(mean - away * (1 + 1e-9)) - 2)
    most = min(steps, math.ceil(mean + away * (1 + 1e-9)) + 2)
    high = np.arange(least, most + 1, dtype=np.float64)
    ratio = (steps - high[:-1]) / high[1:] * math.exp(-eps)
    mode = min(most, math.floor(mean)) - least
    with np.errstate(under="ignore"):
        falling = np.cumprod(1 / ratio[:mode][::-1])[::-1]
        mass = np.concatenate([falling, [1.0], np.cumprod(ratio[mode:])])
    x = (high * math.exp(eps) + (steps - high) * math.exp(-eps)) / steps
    # what is left out underflows
    used = np.maximum(mass, mass * x) > _LEAST
    mass = mass / mass.sum()
    return _Law(x[used], mass[used], (16 * len(high) + 64) * UNIT, x[used])


# -----------------------------------------------------------------------------
# Sums of independent ratios on a lattice whose steps are powers of two.
#
# Its blocks are intervals, each with a step; a point of a coarse block that lies in a fine one is a
# point there, so that sums are on the lattice wherever it is not coarser than their terms. All
# products are of masses, none negative: sums keep a relative error, however small they are.
#
# Upper law. A sum between two points is spread to both, with the same mean: a mean-preserving
# spread, so that ``E (S - s)_+`` grows for every s, and stays larger when independent sums are
# added: x -> E (x + R - s)_+ is convex. At the points that a spread falls on it does not grow. From
# a step h to 2h the points between go to their two neighbours by halves, which no float rounds.
#
# Lower law. The same masses serve. Beside each is its product with how far the mean of what was
# spread to this point lies from it (`moment`). What is taken together at its mean has a smaller
# ``E (S - s)_+`` (Jensen), for every s, wherever it came from; and stays smaller in sums. A sum of
# the points i and j, whose means are off by d and e, is at i + j, off by d + e; all sums at one
# point are taken together, of the masses a_i b_j, at the mean of d + e. For smooth laws d differs
# little between neighbours, so that next to nothing is lost there.


@frozen
class _Lattice:
    """Rising edges of blocks, and the logs to the base 2 of the steps between them."""

    edges: tuple[float, ...]
    levels: tuple[int, ...]
    starts: tuple[int, ...]
    """At which place each block starts, in an array of all points; the last edge is one more."""

    def points(self) -> Array:
        """Return all points, rising."""
        blocks = [
            edge + 2.0**level * np.arange(stop - start)
            for edge, level, start, stop in zip(
                self.edges[:-1], self.levels, self.starts[:-1], self.starts[1:], strict=True
            )
        ]
        return np.append(np.concatenate(blocks), self.edges[-1])


@frozen
class _Shape:
    """The least and largest ratio, the deviation of one, and where P's masses become less."""

    low: float
    high: float
    deviation: float
    near: float
    far: float


@frozen(eq=False)
class _Sum:
    """The law of a sum of ``copies`` ratios under Q: masses and moments of the lattice's points."""

    copies: int
    lattice: _Lattice
    mass: Array
    moment: Array | None
    error: float
    shape: _Shape


_POINTS = 9
"""There are 2^9 points to a standard deviation around the mean, or to the mean if that is less."""


def _lattice(copies: int, shape: _Shape) -> _Lattice:
    """Return the lattice of sums of so many ratios.

    Around the mean it is the finest. Then the step doubles as the distance from the mean does;
    farther out it is coarser, where P has less than 1e-11, and than 1e-40; and towards 0 the step
    is halved as the sum is.
    """
    size = math.floor(math.log2(min(shape.deviation * math.sqrt(copies), float(copies))))
    fine, half = size - _POINTS, 2.0 ** (size + 2)
    # one large ratio, and many ordinary ones
    near, far = copies + shape.near, copies + shape.far
    # coarser by so much that a sum, of points that are made coarser, is off by 1/32 of itself
    low, high = copies * shape.low / 2, 2 * copies * shape.high
    edges, levels, k = [], [fine], 0
    while True:
        start = half * 2.0**k
        wide = start > far and high > 64 * far
        level = fine + 1 + k + (start > near) + (start > far) + 2 * wide
        edges.append(math.ceil((copies + start) / 2.0**level) * 2.0**level)
        if edges[-2:-1] and edges[-2] > high:
            break
        levels.append(level)
        # so far out three octaves have one step
        k += 3 if wide else 1
    # downward: the edges are multiples of the coarser step, until half of the mean
    least, k, below = 2.0 ** (fine + 6), 0, fine + 1
    if copies - half > 2 * least:
        bottom = math.floor((copies - half) / 2.0**below) * 2.0**below
        edges.insert(0, bottom)
        while bottom > low and copies - 2 * half * 2.0**k > copies / 2:
            below = fine + 2 + k
            bottom = math.floor((copies - 2 * half * 2.0**k) / 2.0**below) * 2.0**below
            edges.insert(0, bottom)
            levels.insert(0, below - 1)
            k += 1
        if bottom > low:
            power = math.ceil(math.log2(bottom)) - 1
            edges.insert(0, 2.0**power)
            levels.insert(0, min(below, power - 6))
    else:
        edges.insert(0, least)
    # at least 64 points to a power of two
    while edges[0] > low:
        power = round(math.log2(edges[0]))
        down = 3 if edges[0] > 64 * low and edges[0] < 2.0 ** (fine - 6) else 1
        edges.insert(0, 2.0 ** (power - down))
        levels.insert(0, power - down - 6)
    counts = [
        round((b - a) / 2.0**level)
        for a, b, level in zip(edges[:-1], edges[1:], levels, strict=True)
    ]
    starts = np.cumsum([0, *counts]).tolist()
    return _Lattice(tuple(edges), tuple(levels), tuple(starts))


_Run = tuple[int, Array, Array | None]
"""Masses and moments of successive multiples of a step, from a first one on."""


def _coarser(run: _Run, level: int, times: int) -> _Run:
    """Return a run of multiples of ``2^level`` on ``2^(level + times)``: halves to neighbours."""
    first, mass, moment = run
    for step in (2.0 ** (level + i) for i in range(times)):
        odd = first % 2
        less = np.zeros((len(mass) + odd) // 2 + 1)
        between, same = mass[1 - odd :: 2] / 2, mass[odd::2]
        less[odd : odd + len(same)] = same
        less[: len(between)] += between
        less[1 : 1 + len(between)] += between
        if moment is not None:
            more = np.zeros(len(less))
            halves, same = moment[1 - odd :: 2] / 2, moment[odd::2]
            more[odd : odd + len(same)] = same
            more[: len(halves)] += halves + step * between
            more[1 : 1 + len(halves)] += halves - step * between
            moment = more
        first, mass = first // 2, less
    return first, mass, moment


def _runs(law: _Sum) -> dict[int, list[_Run]]:
    """Return the blocks that have any mass, by the logs of their steps."""
    runs: dict[int, list[_Run]] = {}
    lattice = law.lattice
    for i, level in enumerate(lattice.levels):
        mass = law.mass[lattice.starts[i] : lattice.starts[i + 1]]
        used = np.flatnonzero(mass)
        if len(used):
            some = slice(int(used[0]), int(used[-1]) + 1)
            first = round(lattice.edges[i] / 2.0**level) + int(used[0])
            moment = None
            if law.moment is not None:
                moment = law.moment[lattice.starts[i] : lattice.starts[i + 1]][some]
            runs.setdefault(level, []).append((first, mass[some], moment))
    return runs


def _joined(runs: list[_Run]) -> _Run:
    """Return the sum of runs of one step."""
    if len(runs) == 1:
        return runs[0]
    first = min(run[0] for run in runs)
    last = max(run[0] + len(run[1]) for run in runs)
    mass = np.zeros(last - first)
    moment = None if runs[0][2] is None else np.zeros(last - first)
    for at, masses, moments in runs:
        some = slice(at - first, at - first + len(masses))
        mass[some] += masses
        if moment is not None and moments is not None:
            moment[some] += moments
    return first, mass, moment


def _added(a: _Run, b: _Run) -> _Run:
    """Return the law of the sum of one of each: all ways to make a point are taken together."""
    moment = None
    if a[2] is not None and b[2] is not None:
        one = _convolved(a[1], b[2])
        moment = one + (one if a is b else _convolved(a[2], b[1]))
    return a[0] + b[0], _convolved(a[1], b[1]), moment


_TERMS = 256
"""So many products are summed at once, so that rounding is that of few."""


def _convolved(a: Array, b: Array) -> Array:
    """Return the convolution, each product in ``_TERMS`` sums and those of all blocks at most."""
    if len(a) > len(b):
        a, b = b, a
    total = np.zeros(len(a) + len(b) - 1)
    for at in range(0, len(a), _TERMS):
        block = a[at : at + _TERMS]
        total[at : at + len(block) + len(b) - 1] += np.convolve(block, b)
    return total


def _twice(run: _Run) -> _Run:
    return run[0], 2 * run[1], None if run[2] is None else 2 * run[2]


def _sum(a: _Sum, b: _Sum) -> _Sum:
    """Return the law of the sum of two independent sums, on its own lattice.

    For each step: what has this step in the one law, with all that has it or a finer one in the
    other, made as coarse.
    """
    lattice = _lattice(a.copies + b.copies, a.shape)
    mass = np.zeros(lattice.starts[-1] + 1)
    moment = None if a.moment is None else np.zeros(len(mass))
    one, other = _runs(a), _runs(b)
    finer: list[_Run | None] = [None, None]
    blocks, last = 0, None
    steps = sorted({*one, *other})
    for level in steps:
        if last is not None:
            finer = [run and _coarser(run, last, level - last) for run in finer]
        own, others = one.get(level, []), other.get(level, [])
        every = [] if a is b else [run for run in (finer[1], *others) if run]
        pairs: list[tuple[_Run, _Run]] = []
        if a is b and own:
            # (f + o)^2 - f^2 = o^2 + 2 f o
            joined = _joined(own)
            pairs = [(joined, joined)] if len(own) == 1 else [(run, joined) for run in own]
            pairs += [(run, _twice(finer[0])) for run in own if finer[0]]
        elif a is not b:
            pairs = [(run, _joined(every)) for run in own if every]
            pairs += [(run, finer[0]) for run in others if finer[0]]
        for run, whole in pairs:
            blocks = max(blocks, min(len(run[1]), len(whole[1])) // _TERMS + 1)
            _place(_added(run, whole), level, lattice, mass, moment)
        before = [run for run in (finer[0], *own) if run]
        finer = [_joined(before) if before else None, _joined(every) if every else None]
        last = level
    points = lattice.points()
    kept = np.maximum(mass, mass * points) > _LEAST
    if moment is not None:
        moment = np.where(kept, moment, 0.0)
    # errors of factors add. Sums of products, of blocks and of what has each step; and each time
    # that a step is doubled two more are added
    doubled = max(*steps, *lattice.levels) - min(steps)
    rounding = (_TERMS + blocks + 6 * len(steps) + 3 * doubled + 64) * UNIT
    error = a.error + b.error + rounding
    return _Sum(a.copies + b.copies, lattice, np.where(kept, mass, 0.0), moment, error, a.shape)


def _place(run: _Run, level: int, lattice: _Lattice, mass: Array, moment: Array | None) -> None:
    """Add a run of multiples of ``2^level`` to the masses of the lattice's points."""
    step, edges = 2.0**level, lattice.edges
    first, end = run[0], run[0] + len(run[1])
    i = bisect_right(edges, first * step) - 1
    # the lattice reaches farther than any sum
    assert i >= 0
    assert (end - 1) * step < edges[-1]
    while i < len(lattice.levels) and edges[i] < end * step:
        own, start = lattice.levels[i], lattice.starts[i]
        low = max(first, math.ceil(edges[i] / step))
        high = min(end, math.ceil(edges[i + 1] / step))
        if low < high:
            part: _Run = (
                low,
                run[1][low - first : high - first],
                None if run[2] is None else run[2][low - first : high - first],
            )
            if own > level:  # what lies between two points is spread, or taken together
                part = _coarser(part, level, own - level)
            here = 2 ** max(level - own, 0)
            at = start + round((part[0] * 2.0 ** max(level, own) - edges[i]) / 2.0**own)
            some = slice(at, at + here * (len(part[1]) - 1) + 1, here)
            mass[some] += part[1]
            if moment is not None and part[2] is not None:
                moment[some] += part[2]
        i += 1


def _mean(one: _Sum, steps: int) -> _Law:
    """Return the law of the mean of ``steps`` ratios of one law."""
    power, total = one, None
    # binary powers
    while True:
        if steps & power.copies:
            total = power if total is None else _sum(total, power)
        if total is not None and total.copies == steps:
            break
        power = _sum(power, power)
    used = total.mass > 0
    x, mass, lower = total.lattice.points()[used], total.mass[used], None
    if total.moment is not None:
        away = total.moment[used] / mass
        # a mean so far from its point is not looked at
        lower = np.where(np.abs(away) <= x / 4, x + away, 0.0) / steps
    return _Law(x / steps, mass, total.error, lower)


_BLOCK = 2**14
"""So many pairs are made at once: they stay in the processor's cache."""


def _pairs(a: _Law, b: _Law) -> Iterator[tuple[Array, Array]]:
    """Yield the products of one ratio of each law, with masses, in blocks.

    What underflowed is lost here; LOST covers it.
    """
    rows = max(1, _BLOCK // len(b.x))
    for first in range(0, len(a.x), rows):
        one = slice(first, first + rows)
        at, mass = a.x[one, None] * b.x, a.mass[one, None] * b.mass
        some = mass > 0
        yield at[some], mass[some]


def _spread(pairs: Iterable[tuple[Array, Array]], grid: Array, error: float) -> _Law:
    """Return the law of ratios with masses, spread onto a grid."""
    # a mean-preserving spread under Q: every E (X - t)_+ grows, and stays so in means and products
    # with others
    masses = spread(pairs, grid)
    used = masses > 0
    finest = float(np.diff(np.log(grid)).min())
    # a share is at least 1/32, and is off by 8 units of a ratio to a step of the grid
    return _Law(grid[used], masses[used], error + 256 / finest * UNIT)


def _near(law: _Law) -> float:
    """Return the loss above which P has next to nothing."""
    above = np.cumsum((law.x * law.mass)[::-1])[::-1]
    return math.log(law.x[max(int(np.searchsorted(-above, -_NEAR)) - 1, 0)])


def _grid(low: float, high: float, width: float, near: float, coarser: float = 1.0) -> Array:
    """Return ratios, dense at 1, from one step below ``low`` to two above ``high``."""
    return np.exp(_log_grid(math.log(low), math.log(high), width, near, coarser))


def _log_grid(low: float, high: float, width: float, near: float, coarser: float = 1.0) -> Array:
    """Return logs of ratios, dense at 0, from one step below ``low`` to two above ``high``.

    They are finer up to ``near``.
    """
    fine, end = width * _FINE * coarser, min(high, max(near, width))
    small, large = _SMALL_GROWTH * coarser, _GROWTH * coarser
    first = math.floor(math.asinh(low * small / fine) / small) - 1
    last = math.ceil(math.asinh(end * large / fine) / large) + 3
    k = np.arange(first, last + 1)
    growth = np.where(k < 0, small, large)
    logs: Array = fine / growth * np.sinh(growth * k)
    if high > end:
        # from the last two on, by a larger share of the loss
        steps = math.ceil(math.log(max(high / logs[-1], 1.0)) / _FAR_GROWTH) + 3
        logs = np.append(logs, logs[-1] * np.exp(_FAR_GROWTH * np.arange(1, steps + 1)))
    return logs


def _ratio(inner: Pair) -> _Sum | None:
    """Return the law of ``e^L`` under Q, on the lattice; None where it is not known."""
    if isinstance(inner, (ResponsePair, LaplacePair)):
        eps = inner.epsilon
        if not 1e-9 < eps <= _LARGEST_RATIO:
            return None
        response = isinstance(inner, ResponsePair)
        low, high = math.exp(-eps), math.exp(eps)
        # of the two values alone, or of both Laplace atoms and what lies between them
        rare = math.exp(-eps) / (1 + math.exp(-eps)) if response else math.exp(-eps) / 2
        often = 1 / (1 + math.exp(-eps)) if response else 0.5
        second = rare * high**2 + often * low**2
        if not response:
            second += math.sinh(1.5 * eps) / 3 * math.exp(-eps / 2)
        shape = _Shape(low, high, math.sqrt(max(second - 1, eps * eps / 4)), high, high)

        def between(loss: Array) -> Array:
            density: Array = np.exp(-(loss + eps) / 2) / 4
            return density

        ends = np.array([low, high]), np.array([often, rare])
        if response:
            return _first(shape, ends, None, 16 * UNIT)
        return _first(shape, ends, between, 1e-12)
    if isinstance(inner, GaussianPair) and inner.mu > 1e-9:
        mu = inner.mu
        # not amplified: too much would underflow
        if mu * mu / 2 + _NORMAL_TAIL * mu > _LARGEST_RATIO:
            return None
        low, high, near, far = (
            math.exp(mu * mu / 2 * (1 if z > 0 else -1) + z * mu)
            for z in (-_NORMAL_TAIL, _NORMAL_TAIL, 6.7, 13.5)
        )
        deviation = math.sqrt(math.expm1(mu * mu))

        def density(loss: Array) -> Array:
            return _normal(loss / mu + mu / 2) / mu

        shape = _Shape(low, high, deviation, near, far)
        return _first(shape, (np.zeros(0), np.zeros(0)), density, 1e-12)
    return None


def _sum_of_atoms(law: _Law) -> _Sum:
    """Return the law of one ratio, spread onto the lattice."""
    deviation = math.sqrt(max(_second(law) - 1, 1e-30))
    near = math.exp(_near(law))
    shape = _Shape(float(law.x[0]), float(law.x[-1]), deviation, near, near * near)
    lattice = _lattice(1, shape)
    points = lattice.points()
    error = law.error + _SHARE
    return _Sum(1, lattice, spread([(law.x, law.mass)], points), None, error, shape)


def _first(
    shape: _Shape,
    atoms: tuple[Array, Array],
    density: Callable[[Array], Array] | None,
    error: float,
) -> _Sum:
    """Return the law of one ratio, of atoms and a density of its log, on the lattice."""
    lattice = _lattice(1, shape)
    points = lattice.points()
    mass, moment = np.zeros(len(points)), np.zeros(len(points))
    places = [(x, weight, x) for x, weight in zip(*(part.tolist() for part in atoms), strict=True)]
    if density is not None:
        # between the extremes: the points there, and the extremes, whose shares are atoms
        inside = points[(points > shape.low) & (points < shape.high)]
        some = slice(at := int(np.searchsorted(points, inside[0])), at + len(inside))
        logs = np.log(np.concatenate([[shape.low], inside, [shape.high]]))
        shares, away = _hats(logs, density)
        mass[some] += shares[1:-1]
        moment[some] += away[1:-1] * inside
        for x, weight, off in zip(
            (shape.low, shape.high), shares[[0, -1]], away[[0, -1]], strict=True
        ):
            # what comes to an extreme has its mean inside
            mean = x * (1 + off / weight) if weight > 0 else x
            places.append((x, float(weight), mean))
    for x, weight, mean in places:
        if max(weight, weight * x) > _LEAST:
            shares = spread([(np.array([x]), np.array([weight]))], points)
            mass += shares
            moment += shares * (mean - points)
            error = max(error, 64 * UNIT + _SHARE)
    kept = np.maximum(mass, mass * points) > _LEAST
    return _Sum(1, lattice, np.where(kept, mass, 0.0), np.where(kept, moment, 0.0), error, shape)


def _normal(x: Array) -> Array:
    density: Array = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density


def _hats(logs: Array, density: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return masses of ratios ``e^logs``, each cell's mass spread to its two ends, and moments.

    A moment is the mass times how far the mean of what comes to this end lies from it, as a share
    of it. By Gauss's rule of 24 points, whose error is nothing beside the cell's mass: the
    integrand varies by less than e^20 on the ellipse whose axes sum to 4 half-widths (`symmetric`).
    Of 12 points where the density varies by a factor of two at most in a narrow cell: there the
    integrand, whose log is quadratic or linear, varies by less than e, and the error is 1e-13.
    """
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        change = np.log(density(logs[1:])) - np.log(density(logs[:-1]))
    even = (np.abs(change) <= math.log(2)) & (np.diff(logs) < 1 / 16)
    left, right = np.zeros(len(even)), np.zeros(len(even))
    away_left, away_right = np.zeros(len(even)), np.zeros(len(even))
    for some, count in ((even, 12), (~even, 24)):
        nodes, weights = gauss_rule(count)
        width = np.diff(logs)[some, None]
        offset = width / 2 * (1 + nodes)
        mass = density(logs[:-1][some, None] + offset) * (width / 2 * weights)
        # the split that keeps mass under Q and under P: by e^l, so by expm1
        from_left, from_right = np.expm1(offset), np.expm1(offset - width)
        rightward = mass * (from_left / np.expm1(width))
        leftward = mass * (from_right / np.expm1(-width))
        left[some], right[some] = leftward.sum(axis=1), rightward.sum(axis=1)
        away_left[some] = (leftward * from_left).sum(axis=1)
        away_right[some] = (rightward * from_right).sum(axis=1)
    total: Array = np.append(left, 0.0) + np.append(0.0, right)
    away: Array = np.append(away_left, 0.0) + np.append(0.0, away_right)
    return total, away


def _atoms(law: _Law, top: float) -> FinitePair:
    """Return the pair: P's masses are x times Q's.

    Losses are moved outward by more than the rounding of their ratios. Where the body's are
    bounded, its extremes take up what underflowed.
    """
    losses = np.log(law.x)
    # away from 0 by more than their rounding: the pair dominates
    losses = losses + np.copysign(_MOVED, losses)
    q, p = law.mass, law.mass * law.x
    # bounded losses: two atoms at the extremes dominate what underflowed, in both directions
    if top < math.inf:
        bound = max(top, float(np.abs(losses).max())) + _MOVED
        losses = np.concatenate([[-bound], losses, [bound]])
        q, p = np.pad(q, 1, constant_values=LOST), np.pad(p, 1, constant_values=LOST)
        # masses whose ratio is e^{+-bound} exactly where the atoms lie
        q[-1], p[0] = LOST * math.exp(-bound), LOST * math.exp(-bound)
    return FinitePair(losses, p, q, law.error + 2 * _MOVED, tight=False)


def chords(mu: float, steps: int, orders: Array) -> Array:
    """Return ``log E X^a / (a-1)`` at real orders, by chords of log E X^a between integer ones."""
    # the recurrence's coefficients are positive only for n <= t
    most = min(steps, _LARGEST_ORDER)
    logs = np.append(_log_moments(mu, steps), np.inf)
    below = np.clip(np.floor(orders), 1, most).astype(np.int64)
    share = orders - below
    with np.errstate(invalid="ignore"):
        # log E X^a is convex in a, and 0 at a = 1
        chord = np.where(share == 0, 0.0, share * logs[below]) + (1 - share) * logs[below - 1]
    curve: Array = np.where(orders <= most, up(chord, 8) / (orders - 1), np.inf)
    return curve


@remembered(256)
def _log_moments(mu: float, steps: int) -> Array:
    """Return bounds of ``log E X^n`` for n = 1, 2, ... up to the steps, or 256.

    With m_k the moments of one ratio, the power t of a series has the coefficients

    ``E X^n = sum_k C(n-1, k-1) (t + 1 - n/k) t^-k m_k E X^{n-k}``, k from 1 to n,

    all positive for ``n <= t``. Their weights without m_k sum to 1 (all m_k = 1), so
    ``g_n = E X^n - 1`` is the sum of ``(m_k - 1)(1 + g_{n-k}) + g_{n-k}`` so weighted.
    """
    most = min(steps, _LARGEST_ORDER)
    k = np.arange(1, most + 1, dtype=np.float64)
    exponent = k * (k - 1) / 2 * mu * mu
    # log(m_k - 1), m_k = e^{k (k-1) mu^2 / 2}
    log_m = log_expm1(exponent)
    factorials = log_factorials(most)
    # g_0 = g_1 = 0: E X^0 = E X = 1
    log_g = np.full(most + 1, -np.inf)
    for n in range(2, most + 1):
        j = np.arange(1, n + 1)
        choose = factorials[n - 1] - factorials[j - 1] - factorials[n - j]
        weight = choose + np.log(steps + 1 - n / j) - j * math.log(steps)
        # g_{n-k}, known since k >= 1
        rest = log_g[n - j]
        # (m_k - 1)(1 + g_{n-k}) + g_{n-k}, all positive, as logs
        terms = weight + np.logaddexp(log_m[j - 1] + np.logaddexp(0.0, rest), rest)
        sizes = np.abs(choose) + factorials[n - 1] + j * math.log(steps) + exponent[j - 1]
        terms = terms + 16 * UNIT * (4 + sizes + np.where(rest > -np.inf, np.abs(rest), 0.0))
        total = float(np.logaddexp.reduce(terms))
        log_g[n] = total + 4 * UNIT * (n + abs(total))
    logs: Array = up(np.logaddexp(0.0, log_g[1:]), 8) + 1e-300
    return logs


# -----------------------------------------------------------------------------
# Amplification by random allocation: each unit takes part in one of several steps.
#
# Let r_1, ..., r_t be the steps' likelihood ratios of the unit present against absent, under the
# laws without it. The unit lies in each step with probability 1/t, so the ratio of all steps
# together is their mean X. Each ``E (r_i - s)_+`` is at most that of the body's pair, given all
# that came before; since X is a mean, a convex function of X is convex in each ratio, and backwards
# from the last step each can be exchanged for an independent ratio of the pair. So the pair of X, a
# mean of t independent ratios, dominates (both directions: its reversed pair is of the same X).
# A body that is a sequence, of Gaussian parts and of other allocations, has the product of their
# ratios, which is convex in each.
#
# Of k steps out of t each set of k equally likely: cut t at random into k blocks of ``t // k``
# steps (and a rest), then take one step of each block: that is such a set. Given the blocks, the
# ratio is a product of k means, convex in each ratio; so it is dominated by k allocations to one of
# ``t // k`` steps (Feldman and Shenfeld 2025).


def _steps(value: int) -> int:
    return integer("Allocated.steps", value)


@frozen(cache_hash=True)
class Allocated(PrivacyLoss):
    """A body that runs ``steps`` times, on each unit in one of them (balls and bins).

    Each unit's step is uniform, and independent of the other units. Neighbours differ by one
    unit that is present or absent (add/remove, zero-out). The steps may depend on the outcomes
    of earlier ones.

    Parameters
    ----------
    body
        The loss of one step on a unit that takes part in it.
    steps
        An integer of at least 1.

    References
    ----------
    Feldman and Shenfeld 2025 and 2026 (random allocation); Chua et al. 2024 (balls and bins); the
    section above has the proof.

    Examples
    --------
    >>> from accountants import Composite, Gaussian
    >>> one = Allocated(Composite({Gaussian(mu=1.0): 1}), steps=100)
    >>> one.profile(1.0).upper < Gaussian(mu=1.0).profile(1.0).upper / 100
    True
    """

    theorem: ClassVar[str] = "random allocation: Feldman & Shenfeld 2025; Chua et al. 2024"

    body: Composite = field(converter=checked_body)
    steps: int = field(converter=_steps)

    def delta_floor(self) -> float:
        """Return the body's, and what underflows of the law of an unbounded loss."""
        delta_floor = self.body.delta_floor()
        inner = body_pair(self.body)
        cut = isinstance(self.pair(), FinitePair) and (inner is None or inner.top() == math.inf)
        return min(1.0, up(delta_floor + LOST)) if cut else delta_floor

    def pair(self) -> Pair | None:
        """Return the pair of the mean, or the body's, which dominates it."""
        inner = body_pair(self.body)
        if (nested := _nested(self.body, self.steps)) is not None:
            return nested
        if inner is None or (self.steps == 1 and self.body.single() is not None):
            return inner
        pair = inner if self.steps == 1 else allocated(inner, self.steps)
        return LooseBound(pair) if pair == inner else pair

    def within(self) -> Composite | None:
        """Return the body, where its pair may be a loose one."""
        return of_loose_pair(self.body)

    def attained_pair(self) -> Pair | None:
        """Return a pair below that of the mean of the body's own ratios, if it attains its pair.

        A mechanism whose steps are independent, and to which the other units add nothing, has
        that mean.
        """
        inner = self.body.pair()
        if self.steps == 1 or inner is None or not inner.is_tight():
            return super().attained_pair()
        return _allocated_below(inner, self.steps)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the pair's profile, as an upper bound only."""
        if self.steps == 1:
            return self.body.profile(epsilon)
        bounds = super().profile(epsilon)
        return None if bounds is None else Bounds(0.0, bounds.upper)

    def pure(self) -> float | None:
        """Return the body's pure epsilon: all steps may have the largest ratio."""
        return self.body.pure()

    def renyi(self, orders: Array) -> Array | None:
        """Return the pair's curve, or the body's where that is less.

        Of the removal from a Gaussian body the exact moments are known (`chords`).
        """
        unsampled, inner, pair = self.body.renyi(orders), body_pair(self.body), self.pair()
        if unsampled is None or pair is None or not isinstance(pair, FinitePair):
            return unsampled
        removal, addition = (_curve(one, orders) for one in (pair, pair.reversed()))
        if isinstance(inner, GaussianPair):
            removal = np.minimum(removal, chords(inner.mu, self.steps, orders))
        # the costlier direction, and never above the body's own curve
        return np.minimum(np.maximum(removal, addition), unsampled)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and steps: fewer dominate."""
        if not isinstance(other, Allocated):
            return False
        # a mean of more independent ratios is smaller in the convex order
        return self.steps <= other.steps and self.body.dominates(other.body)


def _curve(pair: Pair, orders: Array) -> Array:
    log_moment = pair.log_moment((orders - 1).astype(np.complex128))
    # no moments: no curve, so infinite and never the minimum
    if log_moment is None:
        return np.full_like(orders, np.inf)
    value = up((log_moment[0].real + log_moment[1]) / (orders - 1))
    return np.where(np.isnan(value), np.inf, np.maximum(value, 0.0))
