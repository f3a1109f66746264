"""Composition of pairs on a lattice of losses: the tilted fast Fourier transform, as a bracket.

Every pair is replaced by a law on a lattice above it, and by one below it
(`accountants.discretisation`); their masses are tilted by ``e^{cl}``, transformed, raised to
powers and transformed back (`accountants.convolution`), so that what rounding adds is relative
to the answer, be it 1e-200. The bounds of what is neglected are in `accountants.profiles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen

from accountants import discretisation, tilting
from accountants.bounds import Bounds
from accountants.discretisation import CELLS, Grid, Law
from accountants.errors import DomainError, InapplicableError, whole
from accountants.pair import Pair
from accountants.profiles import Profile, profiles
from accountants.rounding import UNIT, Array, ceiling
from accountants.tilting import Spends, Window

LENGTH = 2**18
"""The longest transform, but for a single one of twice that."""


def epsilon(spends: Spends, delta: float) -> Bounds:
    """Return a bracket of the least epsilon >= 0 at which the composed hockey-stick is ``delta``.

    Parameters
    ----------
    spends
        Pairs, each with the number of times it is paid; one direction.
    delta
        In (0, 1).

    Raises
    ------
    InapplicableError
        Where rounding or the lattice leaves no finite bound.
    """
    if not 0 < delta < 1:
        raise DomainError(f"delta must lie strictly between 0 and 1, got {delta!r}")
    plan = _plan(spends, delta)
    if not plan.spends:
        return Bounds(0.0, 0.0)
    low: float | None = None
    for _ in range(4):
        around = plan.for_delta(math.log(delta), low)
        above, below = plan.profiles(around)
        upper, lower = above.upper_root(delta), below.lower_root(delta)
        if upper > above.start or around.low <= 0:
            break
        low = max(0.0, around.low - 8 * around.spread)  # the answer lies below the window
    upper = min(upper, plan.top)
    if not upper < math.inf:
        raise InapplicableError(
            f"a lattice of {LENGTH} losses cannot resolve delta = {delta} for "
            f"{sum(times for _, times in plan.spends)} mechanisms"
        )
    return Bounds(min(lower, upper) if plan.attained else 0.0, upper)


def profile(spends: Spends, epsilons: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds of the composed hockey-stick at every epsilon >= 0.

    Parameters
    ----------
    spends
        Pairs, each with the number of times it is paid; one direction.
    epsilons
        Any order.
    """
    points = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    if not np.all(points >= 0):
        raise DomainError("every epsilon of a profile must be at least 0")
    plan = _plan(spends, 1e-30)
    lower, upper = np.zeros(len(points)), np.zeros(len(points))
    todo = np.flatnonzero(points < plan.top) if plan.spends else np.array([], dtype=int)
    todo = todo[np.argsort(points[todo])]
    while len(todo):
        around = plan.for_epsilon(float(points[todo[0]]))
        above, below = plan.profiles(around)
        reached = points[todo] <= points[todo[0]] + around.spread
        some, todo = todo[reached], todo[~reached]
        upper[some] = above.upper_bounds(points[some])
        if plan.attained:
            lower[some] = np.minimum(below.lower_bounds(points[some]), upper[some])
    shape = np.shape(epsilons)
    return lower.reshape(shape), upper.reshape(shape)


@frozen(eq=False)
class _Plan:
    """What is composed, and what is known of it before the lattice is chosen."""

    spends: list[tuple[Pair, int]]
    ends: list[tuple[float, float]]
    sum_: tilting.Cumulant
    span: tuple[float, float]
    top: float
    attained: bool

    def for_delta(self, log_delta: float, low: float | None) -> Window:
        """Return the window around the root of delta."""

        def score(c: Array, moment: Array) -> Array:
            return (moment - log_delta + tilting.penalty(c)) / c

        return tilting.window(self.sum_, self._tilt(score), self.span, low)

    def for_epsilon(self, epsilon_: float) -> Window:
        """Return the window from an epsilon on."""

        def score(c: Array, moment: Array) -> Array:
            return moment - c * epsilon_ + tilting.penalty(c)

        return tilting.window(self.sum_, self._tilt(score), self.span, epsilon_)

    def _tilt(self, score: Callable[[Array, Array], Array]) -> float:
        best = tilting.best_tilt(self.sum_, score, max(self.span[1] - self.span[0], 1e-300))
        return min(best, 0.25 / self.finest())

    def finest(self) -> float:
        """Return the least useful step: in finer cells rounding moves the means too far."""
        widest = max(high - low for low, high in self.ends)
        return min((16 * UNIT * widest) ** (1 / 3), widest / 1024)

    def profiles(self, around: Window) -> tuple[Profile, Profile]:
        """Return the composed law from above and from below."""
        around, size, grids, slacks = _lattice(self, around)
        tilt = around.tilt * grids[0].step
        above: list[tuple[Law, int]] = []
        below: list[tuple[Law, int]] = []
        for (pair, times), grid, slack in zip(self.spends, grids, slacks, strict=True):
            above.append((discretisation.above(pair, grid, tilt, slack), times))
            below.append((discretisation.below(pair, grid, tilt), times))
        return profiles(above, below, around, grids[0].step, size)


def _plan(spends: Spends, delta: float) -> _Plan:
    counts: dict[Pair, int] = {}
    for pair, times in spends:
        if whole("times", times, least=0) and not pair.top() <= 0 <= pair.bottom():
            counts[pair] = counts.get(pair, 0) + times
    total = max(1, sum(counts.values()))
    mass = max(1e-13 * delta / total, 1e-290)
    under = max(1e-18 / total, 1e-290)
    ends = [(tilting.depth(pair, under), tilting.reach(pair, mass)) for pair in counts]
    merged = list(counts.items())
    span = (
        sum(float(n) * low for (low, _), n in zip(ends, counts.values(), strict=True)),
        sum(float(n) * high for (_, high), n in zip(ends, counts.values(), strict=True)),
    )
    tops = [pair.top() for pair in counts]
    top = math.inf
    if all(math.isfinite(one) for one in tops):
        exact = sum(
            (Fraction(one) * n for one, n in zip(tops, counts.values(), strict=True)), Fraction()
        )
        top = max(0.0, ceiling(exact))
    attained = all(pair.attained() for pair in counts)
    return _Plan(merged, ends, tilting.cumulant(merged, ends), span, top, attained)


def _lattice(plan: _Plan, around: Window) -> tuple[Window, int, list[Grid], list[float]]:
    """Return the window, the transform's length, and each pair's grid and slack."""
    spacings = [pair.spacing() for pair, _ in plan.spends]
    total = sum(times for _, times in plan.spends)
    share = math.exp(-45) / total
    ends = [
        (tilting.floor(pair, around.tilt, low, high, share), high)
        for (pair, _), (low, high) in zip(plan.spends, plan.ends, strict=True)
    ]
    size = _size(len(plan.spends))
    room = size - min(size // 2, 6 * total + 8)
    longest = max(high - low for low, high in ends)
    step = max(around.width / room, longest / CELLS, plan.finest())
    shared = _common(spacings)
    if shared is not None and shared > step:
        step = shared / math.ceil(shared / step)
        if _on_lattice(plan, shared):
            step = shared / max(1, math.ceil(8 * shared * around.tilt))
            around, size = _short(plan, around, step, size)
    if around.tilt * step > 1:
        around = evolve(around, tilt=1 / step)
    support = sum(
        n * ((high - low) / step + 6) for (low, high), (_, n) in zip(ends, plan.spends, strict=True)
    )
    points = min(around.width / step + min(size // 2, 6 * total + 8), support)
    if support < 2**13:
        points = support
    size = min(size, 1 << math.ceil(math.log2(points)))
    anchors = [
        0.0 if spacing is not None else tilting.centre(pair)
        for (pair, _), spacing in zip(plan.spends, spacings, strict=True)
    ]
    grids, slacks = [], []
    for anchor, spacing, (low, high) in zip(anchors, spacings, ends, strict=True):
        first, last = math.floor((low - anchor) / step) - 1, math.ceil((high - anchor) / step) + 1
        grids.append(Grid(anchor, step, first, last))
        reach = max(abs(low), abs(high))
        slacks.append(4e-15 * (1 + reach) if spacing is not None else 0.0)
    return around, size, grids, slacks


def _size(pairs: int) -> int:
    """Return the transform's length: shorter where there are many pairs to transform."""
    return max(2**13, LENGTH >> max(0, math.ceil(math.log2(pairs / 4))))


def _short(plan: _Plan, around: Window, step: float, size: int) -> tuple[Window, int]:
    """Return the whole range, and a length for it, where losses lie on the lattice."""
    total = sum(times for _, times in plan.spends)
    cells = (plan.span[1] - plan.span[0]) / step + 8 * total + 16
    if cells <= size:
        width = plan.span[1] - plan.span[0]
        return evolve(around, start=plan.span[0], width=width), 1 << math.ceil(math.log2(cells))
    return around, min(size, 1 << math.ceil(math.log2(2 * around.width / step + 16)))


def _common(spacings: Sequence[float | None]) -> float | None:
    """Return what all spacings are multiples of, but for rounding; None where there is none."""
    known = sorted({spacing for spacing in spacings if spacing is not None})
    if not known:
        return None
    shared = Fraction(1)
    for one in known[1:]:
        ratio = Fraction(one / known[0]).limit_denominator(1000)
        if abs(one / known[0] - float(ratio)) > 1e-15 * float(ratio):
            return None
        shared = Fraction(
            math.gcd(shared.numerator * ratio.denominator, ratio.numerator * shared.denominator),
            shared.denominator * ratio.denominator,
        )
    return known[0] * float(shared)


def _on_lattice(plan: _Plan, spacing: float) -> bool:
    """Whether the pairs have no mass between the multiples of their spacing."""
    for (pair, _), (low, high) in zip(plan.spends, plan.ends, strict=True):
        if pair.spacing() is None or high - low > 4096 * spacing:
            return False
        points = np.arange(round(low / spacing), round(high / spacing)) * spacing
        near = 1e-9 * spacing
        inside = np.concatenate(
            [pair.above(points + near)[0] - pair.above(points + spacing - near)[0]]
        )
        if np.any(inside > 1e-15):
            return False
    return True
