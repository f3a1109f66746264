"""Composition of pairs on a lattice of losses: the tilted fast Fourier transform, as a bracket.

Every pair is replaced by a law on a lattice above it, and by one below it (`discretisation`);
their masses are tilted by ``e^{cl}``, transformed, raised to powers and transformed back
(`convolution`), so that what rounding adds is relative to the answer, be it 1e-200. What else is
neglected is bounded in `brackets`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from attrs import frozen

from accountants.bounds import Bounds
from accountants.errors import DomainError, InapplicableError, whole
from accountants.lattices.brackets import composed_bracket
from accountants.lattices.discretisation import law_above, law_below
from accountants.lattices.grids import choose_lattice, finest_step
from accountants.lattices.profiles import Profile
from accountants.lattices.tilting import (
    Cumulant,
    Ends,
    Spends,
    Window,
    best_tilt,
    best_window,
    cumulant,
    lower_end,
    penalty,
    upper_end,
)
from accountants.pair import Pair
from accountants.rounding import Array, ceiling

LENGTH = 2**18
"""The longest transform."""


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

    Examples
    --------
    >>> from accountants.losses.laplace import LaplacePair
    >>> bounds = epsilon([(LaplacePair(1.0), 10)], delta=1e-5)
    >>> round(bounds.lower, 7), round(bounds.upper, 7)
    (9.9899623, 9.9899623)
    """
    if not 0 < delta < 1:
        raise DomainError(f"delta must lie strictly between 0 and 1, got {delta!r}")
    plan = _plan(spends)
    if not plan.counts:
        return Bounds(0.0, 0.0)
    upper, lower, low = math.inf, 0.0, None
    for _ in range(4):
        around, ends = plan.for_delta(math.log(delta), low)
        above, below = plan.bracket(around, ends)
        upper, lower = above.root(delta), below.root(delta)
        # the root was bracketed inside the window
        if around.low <= 0 or (upper > above.start + above.step and lower > 0):
            break
        low = max(0.0, around.low - 8 * around.spread)  # the answer lies below the window
    # no loss is larger than all mechanisms' largest together: there delta is 0
    upper = min(upper, plan.top)
    if not upper < math.inf:
        count = sum(times for _, times in plan.counts)
        raise InapplicableError(
            f"a lattice of {LENGTH} losses cannot resolve delta = {delta} for {count} mechanisms"
        )
    return Bounds(min(lower, upper) if plan.attained else 0.0, upper)


def profile(spends: Spends, epsilons: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds of the composed hockey-stick at every epsilon >= 0.

    Parameters
    ----------
    spends
        Pairs, each with the number of times it is paid; one direction.
    epsilons
        In any order.
    """
    points = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    if not np.all(points >= 0):
        raise DomainError(f"every epsilon of a profile must be at least 0, got {points.min()}")
    plan = _plan(spends)
    lower, upper = np.zeros(len(points)), np.zeros(len(points))
    todo = [i for i in np.argsort(points) if plan.counts and points[i] < plan.top]
    while todo:
        least = float(points[todo[0]])
        around, ends = plan.for_epsilon(least)
        above, below = plan.bracket(around, ends)
        # one window serves epsilons within a tilted deviation of its start
        served = [i for i in todo if points[i] <= least + around.spread]
        for i in served:
            upper[i] = above.at(float(points[i]))
            lower[i] = min(below.at(float(points[i])), upper[i]) if plan.attained else 0.0
        todo = todo[len(served) :]
    shape = np.shape(epsilons)
    return lower.reshape(shape), upper.reshape(shape)


@frozen(eq=False)
class _Plan:
    """What is composed, and what is known of it before a lattice is chosen."""

    counts: list[tuple[Pair, int]]
    cumulant: Cumulant
    span: tuple[float, float]
    top: float
    attained: bool

    def for_delta(self, log_delta: float, low: float | None) -> tuple[Window, Ends]:
        """Return the window around the root of delta, or from ``low`` on, and the pairs' ends."""

        def score(c: Array, moment: Array) -> Array:
            return (moment - log_delta + penalty(c)) / c

        tilt, _ = best_tilt(self.cumulant, score, self._width())
        return self._window(tilt, _ends(self.counts, log_delta), low)

    def for_epsilon(self, epsilon_: float) -> tuple[Window, Ends]:
        """Return the window from an epsilon on, and the pairs' ends."""

        def score(c: Array, moment: Array) -> Array:
            return moment - c * epsilon_ + penalty(c)

        tilt, log_delta = best_tilt(self.cumulant, score, self._width())
        return self._window(tilt, _ends(self.counts, min(log_delta, 0.0) - 8), epsilon_)

    def _window(self, tilt: float, ends: Ends, low: float | None) -> tuple[Window, Ends]:
        tilt = min(tilt, 0.25 / finest_step(ends))  # a step must not change the tilt by much
        return best_window(self.cumulant, tilt, self.span, low), ends

    def _width(self) -> float:
        return max(self.span[1] - self.span[0], 1e-300)

    def bracket(self, around: Window, ends: Ends) -> tuple[Profile, Profile]:
        """Return the composed profile from above and from below."""
        lattice = choose_lattice(self.counts, ends, around, LENGTH)
        step = lattice.grids[0].step
        tilt = lattice.around.tilt * step
        above, below = [], []
        for (pair, times), grid, slack in zip(
            self.counts, lattice.grids, lattice.slacks, strict=True
        ):
            above.append((law_above(pair, grid, tilt, slack), times))
            below.append((law_below(pair, grid, tilt), times))
        return composed_bracket(above, below, lattice.around, step, lattice.size)


def _plan(spends: Spends) -> _Plan:
    merged: dict[Pair, int] = {}
    for pair, times in spends:
        if whole("times", times, least=0) and not pair.top() <= 0 <= pair.bottom():
            merged[pair] = merged.get(pair, 0) + times
    counts = list(merged.items())
    ends = _ends(counts, -70.0)
    low = sum(float(n) * end[0] for (_, n), end in zip(counts, ends, strict=True))
    high = sum(float(n) * end[1] for (_, n), end in zip(counts, ends, strict=True))
    top = math.inf
    if all(math.isfinite(pair.top()) for pair in merged):
        top = max(0.0, ceiling(sum((Fraction(pair.top()) * n for pair, n in counts), Fraction())))
    attained = all(pair.attained() for pair in merged)
    return _Plan(counts, cumulant(counts, ends), (low, high), top, attained)


def _ends(counts: list[tuple[Pair, int]], log_delta: float) -> Ends:
    """Return each pair's losses but for what is negligible: beside delta above, beside 1 below."""
    total = max(1, sum(times for _, times in counts))
    # what is cut above counts as delta: e^-30 of it over all mechanisms; what is cut below moves up
    # in the upper law and is dropped from the lower one
    above = max(math.exp(max(log_delta - 30, -660)) / total, 1e-290)
    below = max(1e-18 / total, 1e-290)
    return [(lower_end(pair, below), upper_end(pair, above)) for pair, _ in counts]
