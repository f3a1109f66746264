"""From the laws of each pair to the composed profile, from above and from below.

With M(c) the composed moment ``E_P e^{cL}``, errors are kept relative to ``M(c) e^{-c eps}``,
Chernoff's bound of delta(eps); E~ is the mean under the tilted law:

* tails known within E: ``2 E`` a pair, whatever the step
(`accountants.distribution.discretisation`);
* transforms: an error e of each mass adds ``e sum_j e^{-cx_j} (1 - e^{-x_j})``, with
  ``x_j = l_j - eps > 0``; the sum is at most ``1 / (step c (c+1))`` and one largest term;
* what lies above the window's end b is missing from the upper law: at most
  ``e^{-c (b - eps)} E~ e^{r (L - b)}`` for every r >= 0;
* what is folded into the window from elsewhere only adds to the upper law; from the lower one
  its Chernoff bounds are subtracted. From above: ``E~ e^{r (L - eps - width)}``. From below,
  where L < start lands at ``x = L + width - eps > 0`` with a weight of at most
  ``e^{-cx} <= e^{-hx}`` for every h in [0, c]: ``E~ e^{-h (L + width - eps)} e^{g (start - L)}``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import evolve, field, frozen

from accountants.distribution.contour import chernoff_factor
from accountants.distribution.convolution import (
    Errors,
    Profile,
    Sum,
    compose,
    log_moment,
    tail_rounding,
    tails,
)
from accountants.distribution.discretisation import (
    CELLS,
    Grid,
    Law,
    law_above,
    law_below,
    law_of_atoms,
    laws_of_spread_atoms,
    laws_of_spread_cells,
)
from accountants.distribution.tilting import (
    Cumulant,
    Ends,
    ExactLattice,
    Spends,
    Window,
    best_tilt,
    best_window,
    capped_cumulant,
    choose_lattice,
    coarse_cumulants,
    cumulant,
    exact_lattice,
    finest_step,
    finite_of,
    lower_end,
    tilted_floor,
    upper_end,
)
from accountants.errors import DomainError, InapplicableError, integer
from accountants.finite import FinitePair
from accountants.numerics import UNIT, Array, Bounds, bracket, ceiling, remembered, totals
from accountants.pair import Pair

_Laws = Sequence[tuple[Law, int]]


@frozen(eq=False)
class _Composed:
    """The composition of the laws of one side; indices are less the sum's centre."""

    laws: _Laws
    sum: Sum
    origin: Fraction
    """Where index 0 of the lattice lies."""
    step: Fraction
    first: int
    """The first index of the window."""
    base: int
    """The first index from which the profile is computed."""
    folded: bool
    """Whether the law is longer than the window."""

    @property
    def tilt(self) -> float:
        return self.laws[0][0].tilt

    @property
    def scale(self) -> float:
        return self.sum.log_mass - self.tilt * self.base


def composed_bracket(
    above: _Laws, below: _Laws, around: Window, step: float, size: int
) -> tuple[Profile, Profile]:
    """Return the composed profile from above and from below, by transforms of length ``size``."""
    upper, lower = _composed(above, around, step, size), _composed(below, around, step, size)
    outer, inner = _rest(upper, lower)
    return _profile(upper, around, size, outer, 1), _profile(lower, around, size, inner, -1)


def _composed(
    laws: _Laws, around: Window, step: float, size: int, total: Sum | None = None
) -> _Composed:
    total, exact = total or compose(laws, size), Fraction(step)
    # exact: a rounded origin times many mechanisms would move the answer
    offsets = (times * (Fraction(law.offset[0]) + Fraction(law.offset[1])) for law, times in laws)
    origin = sum(offsets, Fraction()) + total.centre * exact
    folded = sum(times * (len(law.weights) - 1) for law, times in laws) >= size
    first = sum(times * (law.first - law.centre) for law, times in laws)
    if folded:
        first = math.floor((Fraction(around.start) - origin) / exact)
    low = math.floor((Fraction(around.low) - origin) / exact)
    # the profile is computed from here on: left of it errors outgrow the answer
    base = min(max(first, low), first + size - 2)
    return _Composed(laws, total, origin, exact, first, base, folded)


def _rest(upper: _Composed, lower: _Composed) -> tuple[float, float]:
    """Return what the laws' tails and strays cost, relative to each one's moment.

    The upper law's moment is the larger one, and that of all mixtures of true and replaced pairs
    is at most ``swell`` times it.
    """
    h, tilt = float(upper.step), upper.tilt
    c = tilt / h
    error = math.fsum(times * law.tail_error for law, times in upper.laws)
    # between two edges t = e^l changes by up to e^{2h}, and t^-c by up to e^{2 tilt}
    grow = math.exp(min(700.0, 2 * h + 2 * tilt))
    # the tilted mass that rounding misplaced, counted threefold
    strays = [math.fsum(3 * times * law.stray for law, times in one.laws) for one in (upper, lower)]
    swell = [
        math.exp(min(700.0, 4 * (2 * c + 1) * grow * error + (c + 1) * stray))
        for stray in (strays[0], sum(strays))
    ]
    # 2 E M(c) t^-c a pair, errors add over the composition (module docstring)
    outer = 2 * grow * error + strays[0]
    # the lower law's error is relative to the upper law's moment: their ratio, as logs
    apart = upper.sum.log_mass - lower.sum.log_mass + c * float(upper.origin - lower.origin)
    apart += upper.sum.log_error + lower.sum.log_error + 1e-6
    inner = outer * math.exp(min(700.0, apart)) + strays[1]
    return outer * swell[0], inner * swell[1]


def _profile(one: _Composed, around: Window, size: int, rest: float, side: int) -> Profile:
    masses = np.roll(one.sum.masses, -(one.first % size))[one.base - one.first :]
    start, h = float(one.origin + one.base * one.step), float(one.step)
    # of the tails, and of e^{eps - start}
    rounding = tail_rounding(len(masses), one.tilt + h) + 8 * UNIT * min(h * len(masses), 745.0)
    return Profile(
        side=side,
        start=start,
        step=h,
        p_tail=tails(masses, one.tilt),
        q_tail=tails(masses, one.tilt + h),
        scale=one.scale,
        blur=one.sum.log_error + 8 * UNIT * (abs(one.sum.log_mass) + abs(one.tilt * one.base) + 2),
        slack=4 * UNIT * (abs(start) + h * len(masses)),
        rounding=rounding,
        errors=_errors(one, around, size, rest, side),
    )


def _errors(one: _Composed, around: Window, size: int, rest: float, side: int) -> Errors:
    # both fall as e^{-c (eps - base)}
    relative = rest + one.sum.error * _kernel(one.tilt, float(one.step), size)
    terms = [(math.log(relative), one.tilt)]
    # mass above a pair's own grid: an infinite loss, whatever eps is
    some = math.fsum(times * math.log1p(-min(law.lost, 0.5)) for law, times in one.laws)
    lost = min(-math.expm1(some), math.fsum(times * law.lost for law, times in one.laws))
    always = math.exp(math.log(lost) - one.scale) if lost else 0.0
    # what folds in adds to an upper law; it only lacks what lies beyond the window's end
    if one.folded and side > 0:
        always += _ahead(one, around, size)
    elif one.folded:
        terms += _folds(one, around, size)
    return Errors(tuple(terms), always * (1 + 1e-9))


def _kernel(tilt: float, step: float, size: int) -> float:
    """Return a bound of ``sum_j e^{-c x_j} (1 - e^{-x_j})`` over points a step apart."""
    c = tilt / step
    largest = 1 / (1 + c)
    # the maximum of e^{-cx} (1 - e^{-x}) is below 1 / (1 + c); a sum over a lattice is the integral
    # 1 / (c (c + 1)) over the step, and one largest term
    return min(size * largest, 1 / (step * c * (c + 1)) + largest) if c > 0 else float(size)


def _ahead(one: _Composed, around: Window, size: int) -> float:
    """Return a bound of what lies beyond the window."""
    rate, end = around.end * float(one.step), one.first + size
    exponent = log_moment(one.laws, rate) - rate * end - one.tilt * (end - one.base)
    return math.exp(exponent) if exponent < 700 else math.inf


def _folds(one: _Composed, around: Window, size: int) -> list[tuple[float, float]]:
    """Return bounds of what is folded into the window, from above and from below."""
    right, left = around.right * float(one.step), around.left * float(one.step)
    up, held = log_moment(one.laws, right), min(left, one.tilt)
    down = log_moment(one.laws, -left) + left * one.first - held * size
    # at a point v after the base, that is base - first + v after the window's start
    return [
        (up - right * (one.base + size), one.tilt + right),
        (down + held * (one.base - one.first), one.tilt - held),
    ]


# -----------------------------------------------------------------------------
# Composition of pairs on a lattice of losses: the tilted fast Fourier transform, as a bracket.
#
# Every pair is replaced by a law on a lattice above it, and by one below it (`discretisation`);
# their masses are tilted by ``e^{cl}``, transformed, raised to powers and transformed back
# (`convolution`), so that what rounding adds is relative to the answer, be it 1e-200. What else is
# neglected is bounded in `composed_bracket`.


LENGTH = 2**18
"""The longest transform."""

_SHORT = 2**16
"""The longest one for loose bounds."""

_FINER = 4
"""Where that is wide, one pair's lattice is so many times finer."""

_WIDE = 0.01
"""So wide, relatively."""


def epsilon(spends: Spends, delta: float, *, spread: bool = True) -> Bounds:
    """Return a bracket of the least epsilon >= 0 at which the composed hockey-stick is ``delta``.

    Parameters
    ----------
    spends
        Pairs, each with the number of times it is paid; one direction.
    delta
        In (0, 1).
    spread
        Whether losses may be spread over a lattice that does not hold them.

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
    plan = _plan(tuple(spends))
    if not plan.counts:
        return Bounds(0.0, 0.0)
    if not spread and plan.exact is None:
        raise InapplicableError("no lattice holds all losses")
    upper, lower, low, finer = math.inf, 0.0, None, 1
    for _ in range(4):
        around, ends = plan.for_delta(math.log(delta), low)
        if not (spread or plan.is_exact(around)):
            raise InapplicableError("no lattice of a useful length holds all losses")
        above, below = plan.bracket(around, ends, LENGTH * finer, finer)
        most, least = above.root(delta), below.root(delta)
        upper, lower = min(upper, most), max(lower, least)
        inside = least > 0 and above.start + above.step < most
        # the root was bracketed inside the window
        if (inside and most < math.inf) or (around.low <= 0 and not inside):
            several = len(plan.counts) > 1 or plan.exact is not None
            if finer > 1 or several or not _WIDE * upper < upper - lower < math.inf:
                break
            finer = _FINER
            continue
        # the answer lies far above the window's start, or below the window
        low = least if inside else max(0.0, around.low - 8 * around.spread)
    # no loss is larger than all mechanisms' largest together: there delta is 0
    upper = min(upper, plan.top)
    if not upper < math.inf:
        count = sum(times for _, times in plan.counts)
        raise InapplicableError(
            f"a lattice of {LENGTH} losses cannot resolve delta = {delta} for {count} mechanisms"
        )
    # of a loose pair the lower end is its own, and shows that no other method is needed
    return bracket(min(lower, upper), upper)


def profile(
    spends: Spends, epsilons: Array, *, spread: bool = True, loose: float = 0.0
) -> tuple[Array, Array]:
    """Return lower and upper bounds of the composed hockey-stick at every epsilon >= 0.

    Parameters
    ----------
    spends
        Pairs, each with the number of times it is paid; one direction.
    epsilons
        In any order.
    spread
        As of `epsilon`.
    loose
        The relative width of bounds that are good enough where another epsilon's window has them.
    """
    points = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    if not np.all(points >= 0):
        raise DomainError(f"every epsilon of a profile must be at least 0, got {points.min()}")
    plan = _plan(tuple(spends))
    lower, upper = np.zeros(len(points)), np.zeros(len(points))
    todo = [i for i in np.argsort(points) if plan.counts and points[i] < plan.top]
    # a window's bounds hold at every epsilon, whichever it was made for
    todo = [i for i in todo if not _known(plan, points, loose, i, lower, upper)]
    while todo:
        least = float(points[todo[0]])
        around, ends = plan.for_epsilon(least)
        if not (spread or plan.is_exact(around)):
            raise InapplicableError("no lattice of a useful length holds all losses")
        above, below = plan.bracket(around, ends, _SHORT if loose else LENGTH)
        if spread:
            plan.windows.append(_Kept(least, around.spread, above, below, bool(loose)))
        # one window serves epsilons within a tilted deviation of its start
        for count, i in enumerate(todo):
            high, low = above.at(float(points[i])), below.at(float(points[i]))
            if not (points[i] <= least + around.spread or high <= low * (1 + loose)):
                todo = todo[count:]
                break
            upper[i], lower[i] = high, min(low, high) if plan.is_tight else 0.0
        else:
            todo = []
    shape = np.shape(epsilons)
    return lower.reshape(shape), upper.reshape(shape)


_WINDOWS = 6
"""So many windows are kept for the next epsilons of a curve."""


@frozen(eq=False)
class _Kept:
    """The profiles of a window, the epsilon that it was made for, and how far it is as good."""

    least: float
    spread: float
    above: Profile
    below: Profile
    is_short: bool

    def serves(self, epsilon: float, high: float, low: float, loose: float) -> bool:
        """Whether its bounds are those that a window of its own would have, or good enough."""
        if self.is_short and not loose:
            return False
        return self.least <= epsilon <= self.least + self.spread or high <= low * (1 + loose)


def _known(plan: _Plan, points: Array, loose: float, at: int, lower: Array, upper: Array) -> bool:
    """Whether a window that is there serves a point: its bounds are written down."""
    point = float(points[at])
    for kept in tuple(plan.windows):
        high, low = kept.above.at(point), kept.below.at(point)
        if kept.serves(point, high, low, loose):
            upper[at], lower[at] = high, min(low, high) if plan.is_tight else 0.0
            return True
    return False


@frozen(eq=False, slots=False)
class _Plan:
    """What is composed, and what is known of it before a lattice is chosen.

    Parameters
    ----------
    windows
        The last ones that were made for many epsilons.
    cap
        Losses above this are put here and at infinity (`laws_of_spread_cells`).
    """

    counts: list[tuple[Pair, int]]
    cumulant: Cumulant
    span: tuple[float, float]
    top: float
    is_tight: bool
    exact: ExactLattice | None
    windows: deque[_Kept] = field(factory=lambda: deque(maxlen=_WINDOWS))
    cap: float = math.inf

    @property
    def fall(self) -> float:
        """Return how far below 0 the sum of all losses may be."""
        return -sum(min(0.0, pair.bottom()) * times for pair, times in self.counts)

    def up_to(self, reach: float, log_delta: float) -> tuple[_Plan, float]:
        """Return the plan for epsilons up to ``reach``; and about the chance of infinite losses."""
        cap = reach + self.fall
        others = [(pair, n) for pair, n in self.counts if finite_of(pair) is None]
        if not cap < 600 or len(self.counts) > _MOST_CAPPED:
            return self, 0.0
        ends = [(low, min(high, cap)) for low, high in _ends(self.counts, log_delta)]
        if not any(pair.top() > cap for pair, _ in others):
            return self, 0.0
        point, lost = np.array([cap]), 0.0
        for pair, times in others:
            p, q = (float(each[0]) for each in pair.above(point))
            lost += times * max(0.0, p - math.exp(cap) * q)
        span, capped = _span(self.counts, ends), capped_cumulant(self.counts, ends, cap)
        empty: deque[_Kept] = deque(maxlen=_WINDOWS)  # those of the plan are of other laws
        return evolve(self, cumulant=capped, span=span, cap=cap, windows=empty), lost

    def _ends(self, log_delta: float) -> Ends:
        found = _ends(self.counts, log_delta)
        return [
            (low, high if finite_of(pair) else min(high, self.cap))
            for (pair, _), (low, high) in zip(self.counts, found, strict=True)
        ]

    def for_delta(self, log_delta: float, low: float | None) -> tuple[Window, Ends]:
        """Return the window around the root of delta, or from ``low`` on, and the pairs' ends."""

        def score(c: Array, moment: Array) -> Array:
            return (moment - log_delta + chernoff_factor(c)) / c

        tilt, _ = best_tilt(self.cumulant, score, self._coarse)
        return self._window(tilt, self._ends(log_delta), low)

    def for_epsilon(self, epsilon_: float) -> tuple[Window, Ends]:
        """Return the window from an epsilon on, and the pairs' ends."""

        def score(c: Array, moment: Array) -> Array:
            return moment - c * epsilon_ + chernoff_factor(c)

        tilt, log_delta = best_tilt(self.cumulant, score, self._coarse)
        return self._window(tilt, self._ends(min(log_delta, 0.0) - 8), epsilon_)

    def _window(self, tilt: float, ends: Ends, low: float | None) -> tuple[Window, Ends]:
        # from one loss to the next the tilted mass must stay within the floats, and where losses
        # are spread over the lattice, a step must not change it by much
        tilt = min(tilt, 8 / self.exact.step if self.exact else 0.25 / finest_step(ends))
        return best_window(self.cumulant, tilt, self.span, low), ends

    @cached_property
    def _coarse(self) -> tuple[Array, Array]:
        return coarse_cumulants(self._width())

    def _width(self) -> float:
        return max(self.span[1] - self.span[0], 1e-300)

    @property
    def deviation(self) -> float:
        """Return the deviation of the sum, about."""
        tilts = np.array([0.0, 1e-2, 2e-2]) / self._width()
        left, middle, right = self.cumulant(tilts).tolist()
        return math.sqrt(max(left - 2 * middle + right, 0.0)) / float(tilts[1])

    def is_exact(self, around: Window) -> bool:
        """Whether a lattice of a useful length holds all losses: then nothing is spread."""
        return self.exact is not None and self.exact.size(around, LENGTH) is not None

    def bracket(
        self, around: Window, ends: Ends, length: int = LENGTH, finer: int = 1
    ) -> tuple[Profile, Profile]:
        """Return the composed profile from above and from below, by transforms so long at most.

        Laws of one pair may have ``finer`` times as many cells.
        """
        size = None if self.exact is None else self.exact.size(around, LENGTH)
        if self.exact is not None and size is not None:
            tilt = around.tilt * self.exact.step
            sides = [
                [
                    (law_of_atoms(one, tilt, side), times)
                    for one, (_, times) in zip(self.exact.atoms, self.counts, strict=True)
                ]
                for side in (1, -1)
            ]
            return composed_bracket(sides[0], sides[1], around, self.exact.step, size)
        lattice = choose_lattice(self.counts, ends, around, length, finer * CELLS)
        step = lattice.grids[0].step
        tilt = lattice.around.tilt * step
        above, below = [], []
        for (pair, times), grid, slack in zip(
            self.counts, lattice.grids, lattice.slacks, strict=True
        ):
            above.append((law_above(pair, grid, tilt, slack), times))
            below.append((law_below(pair, grid, tilt), times))
        return composed_bracket(above, below, lattice.around, step, lattice.size)


@remembered(16, size=2**27)  # both directions of some questions, asked again and again
def _plan(spends: tuple[tuple[Pair, int], ...]) -> _Plan:
    merged = totals(
        (pair, times)
        for pair, times in spends
        if integer("times", times, least=0) and not pair.top() <= 0 <= pair.bottom()
    )
    counts = list(merged.items())
    ends = _ends(counts, -70.0)
    top = math.inf
    if all(math.isfinite(pair.top()) for pair in merged):
        top = max(0.0, ceiling(sum((Fraction(pair.top()) * n for pair, n in counts), Fraction())))
    is_tight = all(pair.is_tight() for pair in merged)
    return _Plan(
        counts, cumulant(counts, ends), _span(counts, ends), top, is_tight, exact_lattice(counts)
    )


def _span(counts: list[tuple[Pair, int]], ends: Ends) -> tuple[float, float]:
    """Return the least and the largest sum of losses between the pairs' ends."""
    low = sum(float(n) * end[0] for (_, n), end in zip(counts, ends, strict=True))
    high = sum(float(n) * end[1] for (_, n), end in zip(counts, ends, strict=True))
    return low, high


def _ends(counts: list[tuple[Pair, int]], log_delta: float) -> Ends:
    """Return each pair's losses but for what is negligible: beside delta above, beside 1 below."""
    total = max(1, sum(times for _, times in counts))
    # what is cut above counts as delta: e^-30 of it over all mechanisms; what is cut below moves up
    # in the upper law and is dropped from the lower one
    above = max(math.exp(max(log_delta - 30, -660)) / total, 1e-290)
    below = max(1e-18 / total, 1e-290)
    return [(lower_end(pair, below), upper_end(pair, above)) for pair, _ in counts]


# -----------------------------------------------------------------------------
# Losses that lie anywhere, spread over a fine lattice: the upper law serves from below as well.
#
# Let U be the hockey-stick of a composition in which every loss l is spread over the points a and
# ``b = a + h`` beside it, so that its mass under P and that under Q are kept
# (`laws_of_spread_atoms`, `laws_of_spread_cells`). Let S be the sum of the k losses, S' that of the
# spread ones, and ``D = S' - S``. Given all losses the moves D_i are independent, each in an
# interval of length h, with ``E e^{-D_i} = 1`` and so with a mean in [0, h^2/6]: D has a mean of at
# most ``m = k h^2 / 6`` and, with ``s^2 = k h^2 / 4``, ``E e^{t (D - E D)} <= e^{t^2 s^2 / 2}``
# (Hoeffding 1963, Thm 2). The same holds of -D under the law that is tilted by ``e^{-D}``.
#
# Where S = eps - y, y >= 0, spreading adds ``E (1 - e^{y - D})_+ <= E (D - y)_+``. Where S is ``eps
# + y`` it adds ``E (e^{-y - D} - 1)_+`` (as ``E e^{-D} = 1``), which is ``e^{-y} E' (1 - e^{y +
# D})_+ <= E' (-D - y)_+``, E' being the tilted mean. With ``y = m + v s`` both are at most ``s
# (sqrt(1 + v^2) - v) / 2`` (Scarf 1958: mean and variance), and ``s min_t e^{t^2/2 - tv} / (e t)``,
# as ``u <= e^{tu - 1} / t``. Times ``e^{v^2 / 2.5}`` the former is at most s/2 for 0 <= v <= 1.8
# and the latter beyond. With ``w = m / s <= 1/20`` and ``T = 1.25 (1 + w) s^2`` it follows that
# what is added is at most ``C e^{-y^2 / 2T}``, ``C = (s / 2) (1 + w + w^2) e^{w / 2.5}``, for all y
# >= 0: for ``v < 0``, which is at least -w, Scarf's bound is ``s (1 + w + w^2) / 2`` at most, and
# ``(v + w)^2 <= (1 + w) (v^2 + w)``.
#
# The law of S is not known, that of S' is. By Jensen's inequality for the exponential function,
# with ``E (eps - S - D)^2 <= (1 + w) y^2 + (1 + w + w^2) s^2`` given S, and ``T' = (1 + w) T``, it
# is ``E e^{-(eps - S')^2 / 2T'} >= e^{-y^2 / 2T} e^{-(1 + w + w^2) / (2.5 (1 + w)^2)}``. So
#
# ``U(eps) - C e^{0.4} E e^{-(S' - eps)^2 / 2T'} <= delta(eps) <= U(eps)``.
#
# The expectation is of the order of s: both ends are ``O(k h^2)`` apart, wherever losses lie.
#
# First of all, losses beyond the last point y of a pair's own lattice are put on y and at infinity.
# As the others' sum, of which nothing else is spread yet, is never below ``eps - y``, that adds
# nothing: the hockey-stick is linear in dP/dQ from there on. So there is a chance of infinite
# losses, which is known (`Spread.certain`).


@frozen(slots=False, eq=False)
class Spread:
    """A composition of losses that are spread over a lattice, in a window."""

    above: Profile
    below: Profile
    composed: _Composed
    count: int
    moved: float
    """By how much the lower law's losses are less than the upper one's."""
    certain: float
    """The probability of an infinite loss, less what losses beyond the lattice may add wrongly."""
    blurred: float
    """By how much the tilted sum of masses in `gain` may be off."""
    reach: float
    """The lower bounds hold up to this epsilon."""

    def gain(self, epsilon: float) -> float:
        """Return a bound of what spreading has added to delta."""
        h, profile, one = self.above.step, self.above, self.composed
        deviation = h * math.sqrt(self.count) / 2
        w = math.sqrt(self.count) * h / 3
        width = math.sqrt(1.25) * (1 + w) * deviation
        tilt = one.tilt
        slip = self.moved + 4 * profile.slack + 1e-12 * (1 + abs(epsilon))
        reach = 9 * width + slip
        first = math.floor((epsilon - reach - profile.start) / h) - 1
        last = math.ceil((epsilon + reach - profile.start) / h) + 1
        # so far beyond the window places are no integers that an array has
        if not (0 <= first < 2**53 and h <= 0.1 and w <= 0.05 and tilt * width <= h):
            return 1.0
        v = np.arange(first, min(last, first + len(one.sum.masses) - 1) + 1)
        masses = one.sum.masses[(one.base + v) % len(one.sum.masses)] + one.sum.error
        away = np.maximum(0.0, np.abs(profile.start + h * v - epsilon) - slip) / width
        total = float((masses * np.exp(-tilt * (v - first))) @ np.exp(-away * away / 2))
        # what is farther weighs less than e^-40.5, or left of here e^{9 tilt} times as much; and by
        # how much tails, and so the weighted sum, may be off
        total += math.exp(9 * tilt * width / h - 40) + self.blurred
        constant = deviation / 2 * (1 + w + w * w) * math.exp(0.4 + w / 2.5)
        log = math.log(total * constant) - tilt * first + profile.scale + profile.blur
        return math.exp(min(0.0, log + 1e-9))

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Return bounds of delta."""
        if epsilon > self.reach:
            return 0.0, self.above.at(epsilon)
        low = max(0.0, self.below.at(epsilon) - self.gain(epsilon) * (1 + 1e-12)) + self.certain
        return max(0.0, float(low) * (1 - 1e-14)), self.above.at(epsilon)

    def lower(self, delta: float) -> float:
        """Return an epsilon at which delta is seen to be larger; 0 where none is found."""
        rest = delta - self.certain
        root = self.below.root(rest) if rest > 0 else 0.0
        if not root > 0:
            return 0.0
        step = 4 * self.above.step
        fall = math.log(max(self.below.at(root - step), 1e-300) / rest) / step
        away = self.gain(root) / (rest * max(fall, 1e-6)) * 1.001 + 1e-14 * (1 + root)
        for _ in range(12):
            if root - away <= 0:
                return 0.0
            if self.bounds(root - away)[0] > delta:
                return root - away
            away *= 1.5
        return 0.0


def _spread_in(plan: _Plan, ends: Ends, around: Window, size: int) -> Spread:
    """Return the composition on a lattice of a transform's length."""
    found = [(finite_of(pair) or pair, times) for pair, times in plan.counts]
    count = sum(times for _, times in found)
    # losses that hardly ever matter are not followed
    share = math.exp(-45) / count
    floors = [
        tilted_floor(pair, around.tilt, low, high, share)
        for (pair, _), (low, high) in zip(plan.counts, ends, strict=True)
    ]
    tops = [
        pair.losses[-1] if isinstance(pair, FinitePair) else high
        for (pair, _), (_, high) in zip(found, ends, strict=True)
    ]
    widest = max(top - floor for top, floor in zip(tops, floors, strict=True))
    # as many points before what is asked for as `Spread.gain` looks at
    before = 16 + 6 * (math.isqrt(count) + 1)
    spare = min(size // 2, 6 * count + 8 + before)
    step = max(around.width / (size - spare), widest / (size - 8), 1e-300)
    around = evolve(
        around,
        tilt=min(around.tilt, 1 / step),
        low=around.low - before * step,
        start=around.start - before * step,
        width=around.width + before * step,
    )
    tilt = around.tilt * step
    above: list[tuple[Law, int]] = []
    below: list[tuple[Law, int]] = []
    finite = wrong = 0.0
    for (pair, times), floor, top in zip(found, floors, tops, strict=True):
        if isinstance(pair, FinitePair):
            upper_law, lower_law = laws_of_spread_atoms(
                pair, Grid(max(floor, pair.losses[0]), step, 0, 0), tilt
            )
        else:
            grid = Grid(floor, step, 0, math.ceil((top - floor) / step) + 1)
            upper_law, lower_law, (least, beyond) = laws_of_spread_cells(pair, grid, tilt)
            if top >= plan.cap:  # no sum of the others is farther below 0 than `plan.fall`
                finite += times * math.log1p(-least)
            else:
                wrong += times * beyond
        above.append((upper_law, times))
        below.append((lower_law, times))
    # the same masses, in other places
    upper = _composed(above, around, step, size)
    lower = _composed(below, around, step, size, upper.sum)
    outer, inner = _rest(upper, lower)
    profiles = _profile(upper, around, size, outer, 1), _profile(lower, around, size, inner, -1)
    moved = math.fsum(
        times * (one.offset[1] - other.offset[1])
        for (one, times), (other, _) in zip(above, below, strict=True)
    )
    certain = -math.expm1(finite) * (1 - 1e-13) - wrong * (1 + 1e-9)
    # a share takes as many more digits as a cell has points; strays are where they should not be
    blurred = math.fsum(
        times * (64 * one.tail_error * (1 + 1 / step) + 8 * (one.stray + other.stray))
        for (one, times), (other, _) in zip(above, below, strict=True)
    )
    # without a cap nothing is put elsewhere, however far below 0 the sums may be
    reach = plan.cap - plan.fall if plan.cap < math.inf else math.inf
    return Spread(*profiles, upper, count, moved * (1 + 1e-9), certain, blurred, reach)


_SIZES = (2**17, 2**20)
_ROUGH = 2**14
"""A transform of this length tells about up to where the others need to go."""

_TIMES = 8
_NARROW = 1e-8
"""A bracket of epsilon that is relatively narrower needs no longer transform."""

_NARROW_OF_LOOSE = 1e-7
"""One of pairs that are bounds alone, of which only the upper end is used."""


_NARROWER, _NARROWER_OF_LOOSE = 3e-7, 1e-5
"""A bracket of delta that is relatively narrower needs none either."""


def scattered(spends: Spends, delta: float, known: Bounds) -> Bounds | None:
    """Return a bracket of epsilon of losses that lie anywhere; None where none is of use.

    Parameters
    ----------
    known
        Ends that hold.
    """
    plan = _plan(tuple(spends))
    if not plan.counts or not 0 < delta < 1:
        return None
    lower, upper = known.lower, known.upper
    capped, lost = plan.up_to(upper, math.log(delta))
    # the lower a cap, the narrower a window
    count = sum(times for _, times in plan.counts)
    short = min(max(_ROUGH, 1 << math.ceil(math.log2(16 * count))), _SIZES[0])
    for _ in range(_TIMES if capped is not plan else 0):
        before = upper
        lower, upper = _narrowed(capped, delta, delta - lost, short, lower, upper)
        capped, lost = plan.up_to(upper, math.log(delta))
        if before - upper <= 0.01 * (upper - lower):
            break
    enough = _NARROW if plan.is_tight else _NARROW_OF_LOOSE
    for size in _SIZES:
        if not lower < upper or upper - lower <= enough * (1 + upper):
            break
        lower, upper = _narrowed(capped, delta, delta - lost, size, lower, upper)
        capped, lost = plan.up_to(upper, math.log(delta))
    if not upper < math.inf:
        return None
    # of a loose pair the lower end is its own, and shows that no other method is needed
    return bracket(lower, min(upper, plan.top))


def _narrowed(
    plan: _Plan, delta: float, rest: float, size: int, lower: float, upper: float
) -> tuple[float, float]:
    """Return the ends, narrower by one transform, or by two where the first begins too late."""
    low = None
    for _ in range(2):
        around, ends = plan.for_delta(math.log(max(rest, 1e-9 * delta)), low)
        made = _spread_in(plan, ends, around, size)
        root = made.above.root(delta)
        upper = min(upper, root)
        lower = max(lower, min(made.lower(delta), made.reach))
        if around.low <= max(lower, 0.0) or root > around.low + made.above.step:
            break
        low = min(lower, around.low)
    return lower, upper


def scattered_profile(
    spends: Spends, epsilons: Array, loose: float = 0.0
) -> tuple[Array, Array] | None:
    """Return bounds of delta of losses that lie anywhere; relatively ``loose`` is narrow enough."""
    known = tuple(spends)
    plan = _plan(known)
    low, high = np.zeros(len(epsilons)), np.ones(len(epsilons))
    high[epsilons >= plan.top] = 0.0
    todo = np.argsort(epsilons)
    todo = todo[epsilons[todo] < plan.top] if plan.counts else todo[:0]
    enough = max(loose, _NARROWER if plan.is_tight else _NARROWER_OF_LOOSE)
    # windows from one of few points on, which other questions ask for as well
    apart = 2.0 ** math.floor(math.log2(max(plan.deviation, 1e-12))) / 2
    while len(todo):
        least = float(epsilons[todo[0]])
        start = apart * math.floor(least / apart)
        # the least is served in any case, also where it is so large that a step is lost beside it
        end = max(start + 2 * apart, math.nextafter(least, math.inf))
        for size in (2**18, _SIZES[-1]):
            made = _spread_from(known, start, size)
            ends = np.array([made.bounds(x) for x in epsilons[todo].tolist()])
            low[todo] = np.maximum(low[todo], ends[:, 0])
            high[todo] = np.minimum(high[todo], ends[:, 1])
            wide = ~(high[todo] - low[todo] <= enough * high[todo])
            # a window of its own would leave as much open
            served = (epsilons[todo] < end) & (size == _SIZES[-1])
            todo = todo[wide & ~served]
            if not len(todo) or epsilons[todo[0]] >= end:
                break
    return (low if plan.is_tight else np.zeros(len(low))), high


@remembered(8, size=2**26)  # two long ones at most
def _spread_from(spends: tuple[tuple[Pair, int], ...], start: float, size: int) -> Spread:
    plan = _plan(spends)
    around, ends = plan.for_epsilon(start)
    return _spread_in(plan, ends, around, size)


_MOST_CAPPED = 16
"""Of more pairs the capped moments take too long."""
