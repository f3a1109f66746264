"""The maximum of a bound over many worlds, without measuring each: branch and bound.

A world is measured; the sums of a `PruningBound`, taken where that one attains its bound, bound
all others; the one whose bound is largest is measured next, until no other world's bound is above
what was measured. Each bound is proven, so what is
passed over cannot be worse. Where an accountant has no pruning bounds, every world is measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import define, field, frozen

from accountants.accountant import Accountant, Floor
from accountants.bounds import Bounds
from accountants.loss import PrivacyLoss
from accountants.notions.approximate import approximate_epsilon_floor
from accountants.notions.gaussian import LARGEST_MU
from accountants.rounding import Array, ceiling, up
from accountants.screen import Cost, PruningBound
from accountants.world import Multiset, World, Worlds


@frozen
class Maximum:
    """The largest bound over all worlds, and the world that has it.

    Parameters
    ----------
    bounds
        The bracket of the worst world.
    world, state
        That world, and an accountant's state in it.
    """

    bounds: Bounds
    world: World
    state: Any


def fold(accountant: Accountant[Any], state: Any, spends: Multiset) -> Any:
    """Return the state after every spend of a multiset."""
    for loss, times in spends.items():
        state = accountant.compose(state, loss, times)
    return state


def maximum_over_worlds(
    every: Worlds,
    accountant: Accountant[Any],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
) -> Maximum:
    """Return the worst world: by epsilon at ``delta``, or by delta at ``epsilon``.

    Of equal ones it is the first.

    Raises
    ------
    InapplicableError
        If the accountant has no bound for a loss, or for a world that is measured.
    """
    search = _Search(every, accountant, delta, epsilon)
    if search.prunable():
        # so that a refusal does not depend on which worlds the search happens to measure
        for loss in search.sums.losses:
            accountant.compose(accountant.start(), loss)  # refuses what some world would
    at: int | None = 0
    while at is not None:
        search.measure(at)
        at = search.next()
    return search.result()


@define(slots=False)
class _Search:
    """Worlds measured so far, and bounds of the others."""

    every: Worlds
    accountant: Accountant[Any]
    delta: float | None
    epsilon: float | None
    common: Any = field(init=False)
    above: Array = field(init=False)
    best: tuple[float, int, Any] = (-math.inf, 0, None)
    lower: float = 0.0

    @common.default
    def _their_common(self) -> Any:
        return fold(self.accountant, self.accountant.start(), self.every.common)

    @above.default
    def _unknown(self) -> Array:
        return np.full(len(self.every.alternatives), np.inf)

    @cached_property
    def sums(self) -> Sums:
        """Return the losses of all worlds as a table."""
        return Sums(self.every)

    def measure(self, at: int) -> None:
        """Measure a world; where it is the worst so far, bound all others by what bounds it."""
        state = fold(self.accountant, self.common, self.every.alternatives[at].spends)
        if self.delta is not None:
            bounds = self.accountant.epsilon(state, self.delta)
        else:
            assert self.epsilon is not None
            bounds = self.accountant.delta(state, self.epsilon)
        self.lower = max(self.lower, bounds.lower)
        # measured: it is not asked again
        self.above[at] = -math.inf
        worse = bounds.upper > self.best[0]
        if worse or (bounds.upper == self.best[0] and at < self.best[1]):
            self.best = (bounds.upper, at, state)
        if worse and self.prunable():
            delta = bounds.upper if self.delta is None else self.delta
            # the pruning bounds hold for every world, so the least of all of them does
            for screen in self.accountant.pruning_bounds(state, delta):  # type: ignore[attr-defined]
                self.above = np.minimum(self.above, self.sums.bounds(screen))
                if (
                    self.next() is None
                ):  # the next pruning_bounds, which cost some time, are not made
                    break

    def prunable(self) -> bool:
        """Whether there is anything to pass over, and a way to."""
        return len(self.above) > 1 and hasattr(self.accountant, "pruning_bounds")

    def next(self) -> int | None:
        """Return the world of the largest bound that is not seen to be below the worst."""
        at = int(np.argmax(self.above))
        # delta is never above 1
        if self.epsilon is not None and self.best[0] >= 1:
            return None
        # every other world's proven bound is at most the worst that was measured
        passed = self.above[at] <= (self.best[0] if self.epsilon is None else self.epsilon)
        return None if passed else at

    def result(self) -> Maximum:
        """Return the worst world with its bracket."""
        upper, at, state = self.best
        lower = 0.0
        # an envelope is no world: it bounds from above only
        if self.every.exact:
            lower = self.lower
            if np.isfinite(self.above).any():  # some were passed over
                # a world that was passed over may have the larger lower bound
                lower = max(lower, _floor(self.every, self.sums, self.delta, self.epsilon))
        return Maximum(Bounds(min(lower, upper), upper), self.every.alternatives[at], state)


class Sums:
    """The losses of all worlds as a table, so that a list of costs is summed over them at once."""

    def __init__(self, every: Worlds) -> None:
        self._common = every.common
        self._size = len(every.alternatives)
        numbers: dict[PrivacyLoss, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        times: list[int] = []
        for i, world in enumerate(every.alternatives):
            for loss, count in world.spends.items():
                rows.append(i)
                columns.append(numbers.setdefault(loss, len(numbers)))
                times.append(count)
        self.losses = [*numbers]
        self._rows = np.array(rows, dtype=np.intp)
        self._columns = np.array(columns, dtype=np.intp)
        self._times = np.array([ceiling(Fraction(count)) for count in times])
        self._terms = len(every.common) + max(
            (len(world.spends) for world in every.alternatives), default=0
        )

    def of(self, cost: Cost) -> Array:
        """Return each world's sum of costs, rounded up; what is not known counts as infinite."""
        costs = np.array([cost(loss) for loss in self.losses], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = costs[self._columns] * self._times
            base = sum(cost(loss) * ceiling(Fraction(n)) for loss, n in self._common.items())
            total: Array = base + np.bincount(self._rows, values, self._size).astype(np.float64)
            # a floating-point sum of n products is off by at most 2n + 8 units: rounded up past
            # that
            rounded = np.where(total == 0, 0.0, up(total, 2 * self._terms + 8))
        return np.where(np.isnan(rounded), np.inf, rounded)

    def bounds(self, screen: PruningBound) -> Array:
        """Return each world's bound by a screen."""
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = screen.epsilon(self.of(screen.cost), self.of(screen.failure))
        # what is not a number proves nothing
        return np.where(np.isnan(bounds), np.inf, bounds)


def _floor(every: Worlds, sums: Sums, delta: float | None, epsilon: float | None) -> float:
    """Return what no accountant can go below in the worst world (see `Floor`)."""
    largest = every.alternatives[int(np.argmax(sums.of(_square)))]
    floor = Floor()
    for spends in (every.common, largest.spends):
        for loss, times in spends.items():
            floor = floor.add(loss, times)
    # each loss alone is a part of some world, so its own tight epsilon is a lower bound
    others = [loss for loss in sums.losses if not loss.gaussian_pair]
    if delta is None:
        assert epsilon is not None
        known = [loss.profile(epsilon) for loss in others]
        return max([floor.delta(epsilon), *(bounds.lower for bounds in known if bounds)])
    least = floor.epsilon(delta)
    for loss in others:
        bounds = loss.profile(least)
        if bounds is not None and bounds.lower > delta:
            least = max(least, approximate_epsilon_floor(loss, delta))
    return least


def _square(loss: PrivacyLoss) -> float:
    mu = loss.mu() if loss.gaussian_pair else None
    return 0.0 if mu is None else min(mu, LARGEST_MU) ** 2
