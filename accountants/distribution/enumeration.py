"""Compositions of few losses, outcome by outcome: every mechanism's losses, in two halves.

The mechanisms are parted in two halves A and B, each of which has few distinct sums of losses.
With ``H_B(x) = P_B(L > x) - e^x Q_B(L > x)``, from sums of B's masses by falling loss,

``delta(eps) = sum over the outcomes a of A of p_a H_B(eps - L_a)``:

as many steps as A has outcomes, for a composition that has their number times that of B's.

Left out. Outcomes that are rare under the law tilted by ``e^{cL}`` are dropped. That law's masses
add up to 1, so that those dropped have ``R = 1 - sum of those kept`` together. As
``(1 - e^{-x})_+ <= e^{cx} c^c / (1 + c)^{1+c}``, they add at most
``R e^{K(c) - c eps} c^c / (1 + c)^{1+c}`` to delta, K the log-moment: Chernoff's bound, R times.

Rounding. Each outcome's mass is within a factor ``1 +- w`` of its own, and its loss within h. A
larger loss has a larger ``(1 - e^{eps - L})_+``: so delta(eps) is at most ``1 + w`` times the sum
at ``eps - h`` and at least ``1 - w`` times that at ``eps + h``. Sums that differ by rounding alone
are made one, which counts as h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.distribution import contour
from accountants.distribution.convolution import tail_rounding, tails
from accountants.distribution.tilting import exact_lattice, finite_of
from accountants.finite import FinitePair
from accountants.losses.laplace import log_factorials
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    brackets,
    remembered,
)
from accountants.pair import Pair

_MOST = 2**17
"""No half has more outcomes."""

_GRID = 2**21
"""No step of an enumeration looks at more."""

_RARE = 1e-12
"""The tilted mass that each step may drop."""

_REACH = 690.0
"""Exponents of masses that are kept lie within this of 0."""

_WIDE = 1e-9
"""A bracket of delta that is relatively wider is asked of another tilt."""

_Finite = Sequence[tuple[FinitePair, int]]


@frozen(eq=False)
class _Outcomes:
    """Distinct sums of losses, rising, and the logs of their masses under P.

    Parameters
    ----------
    slip
        How far each loss may be off.
    wrong
        Relative error of each mass.
    all
        Whether none was dropped.
    """

    losses: Array
    logs: Array
    slip: float
    wrong: float
    all: bool


_ONE = _Outcomes(np.zeros(1), np.zeros(1), 0.0, 0.0, True)


@frozen(eq=False)
class Enumeration:
    """The outcomes of a composition in two halves, those kept at a tilt.

    Parameters
    ----------
    tilt
        c, positive.
    first, second
        The halves.
    moment
        An upper bound of K(c).
    rest
        R of the module's docstring.
    """

    tilt: float
    first: _Outcomes
    second: _Outcomes
    moment: float
    rest: float
    _scaled: tuple[Array, ...] = field(init=False, repr=False)

    @_scaled.default
    def _scale(self) -> tuple[Array, ...]:
        """Return of the first half P's masses and Q's, of the second their sums by falling loss.

        Each in units near the outcomes that matter at the tilt.
        """
        first = _in_units(self.first, self.tilt)
        # of all outcomes from an index on
        sums = [tails(np.append(0.0, each), 0.0) for each in _in_units(self.second, self.tilt)]
        return (*first, *sums)

    def brackets(self, epsilons: Array) -> tuple[Array, Array, Array]:
        """Return bounds of log delta at epsilons, and about minus its slope there."""
        rows = np.array([self._at(x) for x in epsilons.tolist()]).reshape(-1, 3)
        return rows[:, 0], rows[:, 1], rows[:, 2]

    def _at(self, epsilon: float) -> tuple[float, float, float]:
        a, b = self.first, self.second
        ends = np.abs([a.losses[0], a.losses[-1], b.losses[0], b.losses[-1]])
        # h of the module's docstring, and the rounding of eps - L_a, which is less than its double
        slip = 2 * (a.slip + b.slip) + 8 * UNIT * (abs(epsilon) + 2 * float(ends.max()))
        mass = (1 + a.wrong) * (1 + b.wrong) - 1
        count = len(b.losses)
        rounding = tail_rounding(count + 1, 0.0) + (64 + len(a.losses) // 2**12 + 8 * _REACH) * UNIT
        scale = _unit(a, self.tilt)[0] + _unit(b, self.tilt)[0]
        # upper: at eps - 2h no outcome beyond eps - h is missed; those that rounding adds have a
        # loss of at least eps - 3h, and take at most 2h of their mass each
        p, paid = self._sums(epsilon - slip)
        missing = (
            self.moment
            - self.tilt * epsilon
            + float(contour.chernoff_factor(np.array([self.tilt]))[0])
        )
        dropped = self.rest * math.exp(min(700.0, missing + 1e-9 * (1 + abs(missing)) - scale))
        high = (p - paid) * (1 + mass) + (rounding * (1 + mass) + slip) * (p + paid) + dropped
        # lower: any event bounds the hockey-stick
        event, cost = self._sums(epsilon + slip)
        low = (event - cost) * (1 - mass) - (rounding * (1 + mass) + slip) * (event + cost)
        slope = cost / (event - cost) if event > cost else math.nan
        # no outcome has a loss above epsilon; else what left the floats
        nothing = -math.inf if p == 0 and dropped == 0 else math.inf
        noise = 16 * UNIT * (1 + abs(scale))
        return (
            math.log(low * (1 - 4 * UNIT)) + scale - noise if low > 0 else -math.inf,
            math.log(high) + scale + noise if 0 < high < math.inf else nothing,
            slope,
        )

    def _sums(self, epsilon: float) -> tuple[float, float]:
        """Return ``P(L > eps)`` and ``e^eps Q(L > eps)``, in units of both halves."""
        p, q, p_sums, q_sums = self._scaled
        at = np.searchsorted(self.second.losses, epsilon - self.first.losses, side="right")
        centres = _unit(self.first, self.tilt)[1] + _unit(self.second, self.tilt)[1]
        cost, away = float((q * q_sums[at]).sum()), epsilon - centres
        paid = (math.exp(away) if away < _REACH else math.inf) * cost if cost else 0.0
        return float((p * p_sums[at]).sum()), paid


def _unit(half: _Outcomes, tilt: float) -> tuple[float, float]:
    """Return the log-mass and the loss of the outcome of the largest tilted mass."""
    at = int(np.argmax(half.logs + tilt * half.losses))
    return float(half.logs[at]), float(half.losses[at])


def _in_units(half: _Outcomes, tilt: float) -> tuple[Array, Array]:
    log, loss = _unit(half, tilt)
    return np.exp(half.logs - log), np.exp(half.logs - log - (half.losses - loss))


# --- which outcomes


def enumeration(spends: contour.Spends, tilt: float) -> Enumeration | None:
    """Return the outcomes that matter at a tilt; None where there are too many, or other pairs.

    Where all are kept, they are the same at any tilt.
    """
    finite = _finite(tuple(spends))
    if finite is None:
        return None
    moment = float(contour.composition(tuple(spends)).upper(np.array([tilt]))[0])
    if not moment < math.inf:
        return None
    halves = []
    for half in _halves(finite, tilt):
        made = _ONE
        for pair, times in half:
            one = _power(pair, times, tilt)
            product = None if one is None else _product(made, one, tilt)
            if product is None:
                return None
            made = product
        kept = _kept(made, tilt)
        halves.append(kept)
    first, second = halves
    if len(first.losses) > len(second.losses):
        first, second = second, first  # the shorter one is gone through
    return Enumeration(tilt, first, second, moment, _rest(finite, first, second, tilt))


def _rest(finite: _Finite, first: _Outcomes, second: _Outcomes, tilt: float) -> float:
    """Return a bound of the tilted mass of all outcomes that are not kept."""
    if first.all and second.all:
        return 0.0
    kept, units = 1.0, 0.0
    base = sum(times * _tilted(pair, tilt)[1] for pair, times in finite)
    for half in (first, second):
        weights = half.logs + tilt * half.losses
        peak = float(weights.max())
        # kept masses within half.wrong, tilted by losses within half.slip
        units += half.wrong + tilt * half.slip * 2 + 8 * UNIT * (1 + abs(peak))
        base -= peak
        kept *= float(np.exp(weights - peak).sum())
    # the normalising moments' own errors, as those of the masses and losses
    units += sum(times * _tilted(pair, tilt)[2] for pair, times in finite) + 1e-14
    units += 8 * UNIT * abs(base)
    return min(1.0, max(0.0, 1 - kept * math.exp(-base) * (1 - 2 * units)) + 1e-300)


@lru_cache(maxsize=256)
def _tilted(pair: FinitePair, tilt: float) -> tuple[Array, float, float]:
    """Return the tilted masses of a pair's losses, the log of their sum, and its error."""
    losses, p = np.array(pair.losses), np.array(pair.p)
    with np.errstate(divide="ignore"):
        logs = np.log(p) + tilt * losses
    peak = float(logs.max())
    weights = np.exp(logs - peak)
    total = float(weights.sum())
    size = tilt * max(abs(pair.losses[0]), abs(pair.losses[-1]))
    error = pair.error + size * (pair.loss_error + 4 * UNIT)
    error += (len(losses) + 32 + 8 * abs(peak)) * UNIT
    return weights / total, peak + math.log(total), error


@lru_cache(maxsize=64)
def _finite(spends: tuple[tuple[Pair, int], ...]) -> tuple[tuple[FinitePair, int], ...] | None:
    """Return the pairs as atoms with some mass each; None where one has others."""
    found = []
    for pair, times in spends:
        atoms = finite_of(pair)
        if atoms is None or len(atoms.losses) > _MOST_ATOMS or times > _MOST_COPIES:
            return None
        if min(min(atoms.p), min(atoms.q)) < _LEAST:
            return None
        found.append((atoms, times))
    return tuple(found)


def _largest_tilt(spends: contour.Spends) -> float:
    """Return a tilt at which the largest loss of all has nearly all of the mass."""
    finite = _finite(tuple(spends)) or ()
    gaps = [pair.losses[-1] - pair.losses[-2] for pair, _ in finite if len(pair.losses) > 1]
    return 50 / min(gaps, default=1.0)


_MOST_PAIRS = 256
"""Of more different pairs there are too many outcomes."""

_MOST_ATOMS = 2**12
_MOST_COPIES = 10**5
"""Of more the logarithms of factorials lose digits that a contour has."""

_LEAST = 1e-280
"""A loss of a smaller mass may be wrong by more than a relative error."""


def _halves(finite: _Finite, tilt: float) -> tuple[list[tuple[FinitePair, int]], ...]:
    """Return two halves of about as many outcomes each; one pair's copies may be in both."""
    sizes = sorted(
        ((_log_size(pair, times, tilt), i) for i, (pair, times) in enumerate(finite)), reverse=True
    )
    halves: tuple[list[tuple[FinitePair, int]], ...] = ([], [])
    totals = [0.0, 0.0]
    largest, at = sizes[0]
    if largest > sum(size for size, _ in sizes[1:]):
        # the largest is parted, so that the rest goes with the smaller part
        pair, times = finite[at]
        rest = sum(size for size, _ in sizes[1:])
        part = times // 2
        if rest:
            shares = [round(times * share) for share in np.linspace(0.0, 0.5, 17)]
            part = min(
                shares,
                key=lambda n: max(
                    _log_size(pair, n, tilt) + rest, _log_size(pair, times - n, tilt)
                ),
            )
        halves[0].append((pair, times - part))
        halves[1].extend([finite[i] for _, i in sizes[1:]])
        if part:
            halves[1].append((pair, part))
        return halves
    for size, i in sizes:
        smaller = int(totals[1] < totals[0])
        totals[smaller] += size
        halves[smaller].append(finite[i])
    return halves


def _log_size(pair: FinitePair, times: int, tilt: float) -> float:
    """Return about the log of the number of outcomes of copies that matter."""
    if times == 0:
        return 0.0
    lattice = _lattice(pair)
    count = len(pair.losses)
    weights = np.sort(_tilted(pair, tilt)[0])[:-1]
    spread = 16 * np.sqrt(times * weights * (1 - weights)) + 6
    if lattice is not None:
        span = int(lattice[1][-1])
        steps = lattice[1] - lattice[1] @ _tilted(pair, tilt)[0]
        deviation = math.sqrt(max(0.0, float(_tilted(pair, tilt)[0] @ (steps * steps))) * times)
        return math.log(min(times * span + 1.0, 16 * deviation + 2 * span + 8))
    exact = _log_count(pair, times)
    # the boxes of all counts but the commonest one's; a ball is smaller than its box
    ball = math.log(math.pi) * (count - 1) / 2 - math.lgamma((count + 1) / 2)
    ball -= (count - 1) * math.log(2)
    guess = float(np.log(np.minimum(spread, times + 1.0)).sum())
    return min(exact, max(guess + ball, 0.0))


def enumerable(spends: contour.Spends, tilt: float) -> bool:
    """Whether both halves have few outcomes."""
    if len(spends) > _MOST_PAIRS:
        return False
    finite = _finite(tuple(spends))
    if finite is None or not finite:
        return False
    return all(
        sum(_log_size(pair, times, tilt) for pair, times in half) < math.log(_MOST) + 0.7
        for half in _halves(finite, tilt)
    )


# --- copies of one pair


@lru_cache(maxsize=256)
def _lattice(pair: FinitePair) -> tuple[float, NDArray[np.int64], float] | None:
    """Return the step, the places from 0 of the losses on a lattice, and how far they miss it."""
    if len(pair.losses) < 3:
        return None  # as many outcomes without
    lattice = exact_lattice([(pair, 1)])
    if lattice is None:
        return None
    (atoms,) = lattice.atoms
    places = atoms.index - atoms.index[0]
    return (lattice.step, places, atoms.slack) if places[-1] < _LONGEST else None


_LONGEST = 2**10
"""A lattice on which a pair's losses lie farther apart is of no use."""


def _power(pair: FinitePair, times: int, tilt: float) -> _Outcomes | None:
    """Return the outcomes of copies; None where there are too many."""
    lattice = _lattice(pair)
    if lattice is not None:
        return _power_on_lattice(pair, times, tilt, lattice)
    losses, logs = np.array(pair.losses), np.log(np.array(pair.p))
    weights = _tilted(pair, tilt)[0]
    order = np.argsort(weights)  # the commonest last: what is left over
    losses, logs, weights = losses[order], logs[order], weights[order]
    factorials = log_factorials(times)
    remaining = np.array([times], dtype=np.int64)
    loss, log = np.zeros(1), np.array([factorials[times]])
    tilted = np.zeros(1)  # of the counts so far, but for the factorials
    cumulative = np.cumsum(weights)
    complete = True
    with np.errstate(divide="ignore"):
        log_weights = np.maximum(np.log(weights), -1e9)
    for i in range(len(losses) - 1):
        # given the counts so far this one is binomial; the commonest losses remain
        share = float(weights[i] / max(1e-300, 1 - (cumulative[i - 1] if i else 0.0)))
        low, high = _range(remaining, min(1.0, share))
        counts = np.arange(low, high + 1)
        if len(counts) * len(remaining) > _GRID:
            return None
        complete = complete and low == 0 and high >= int(remaining.max())
        left = remaining[:, None] - counts
        possible = left >= 0
        rest = math.log(max(1e-300, 1 - float(cumulative[i])))
        here = tilted[:, None] + counts * log_weights[i] - factorials[counts]
        chance = (
            factorials[times]
            + here
            + np.where(possible, left * rest - factorials[np.maximum(left, 0)], 0.0)
        )
        # rare ones are dropped only where there are many
        few = possible.sum() <= _FEW
        likely = possible if few else possible & (chance > math.log(_RARE / max(1, possible.sum())))
        complete = complete and bool(np.all(likely == possible))
        rows, columns = np.nonzero(likely)
        if not 0 < len(rows) <= _MOST * 2:
            return None
        taken = counts[columns]
        tilted = here[rows, columns]
        loss = loss[rows] + taken * losses[i]
        log = log[rows] + taken * logs[i] - factorials[taken]
        remaining = left[rows, columns]
    loss = loss + remaining * losses[-1]
    log = log + remaining * logs[-1] - factorials[remaining]
    largest, deepest = float(np.abs(losses).max()), float(np.abs(logs).max())
    atoms = len(losses)
    return _Outcomes(
        *_sorted(loss, log),
        slip=times * largest * (pair.loss_error + (atoms + 4) * UNIT),
        # of the masses, and of logs that are rounded: a few units of each one's size
        wrong=_relative(
            times * pair.error
            + UNIT * (8 + 2 * atoms) * (3 * float(factorials[times]) + times * (deepest + 2))
        ),
        all=complete,
    )


_FEW = 2**13
"""So few outcomes are all kept."""


def _relative(x: float) -> float:
    """Return a bound of ``e^x - 1``."""
    return math.expm1(min(x, 1.0)) * (1 + 1e-9) if x <= 1 else math.inf


def _range(remaining: NDArray[np.int64], share: float) -> tuple[int, int]:
    """Return the least and the largest count that may matter."""
    least, most = int(remaining.min()), int(remaining.max())
    if most <= 64:
        return 0, most
    deviation = 9 * math.sqrt(most * share * (1 - share)) + 12
    return max(0, math.floor(least * share - deviation)), min(
        most, math.ceil(most * share + deviation)
    )


def _power_on_lattice(
    pair: FinitePair, times: int, tilt: float, lattice: tuple[float, NDArray[np.int64], float]
) -> _Outcomes | None:
    """Return the outcomes of copies whose losses lie on a lattice: plain convolutions."""
    step, places, missed = lattice
    if times * int(places[-1]) > _SUPPORT:
        return None
    weights, log_total, _ = _tilted(pair, tilt)
    base = np.bincount(places, weights, int(places[-1]) + 1).astype(np.float64)
    made, power, remaining = np.ones(1), base, times
    # sums of non-negative products: no digits are lost but one unit for each term
    units, units_of_power = 0.0, float(len(places))
    while remaining:
        if remaining & 1:
            units += units_of_power + min(len(made), len(power)) + 4
            made = np.convolve(made, power)
        remaining >>= 1
        if remaining:
            units_of_power = 2 * units_of_power + len(power) + 4
            power = np.convolve(power, power)
    at = np.flatnonzero(made > 1e-250)
    losses = np.asarray(times * pair.losses[0] + at * step, dtype=np.float64)
    largest = max(abs(pair.losses[0]), abs(pair.losses[-1]))
    peak = times * abs(log_total) + tilt * times * largest
    return _Outcomes(
        losses,
        np.log(made[at]) + times * log_total - tilt * losses,
        slip=times * (missed + largest * pair.loss_error) + 8 * UNIT * times * largest,
        # the tilt comes out again
        wrong=_relative(
            times * (pair.error + _tilted(pair, tilt)[2] + tilt * missed)
            + 2 * UNIT * (units + 8 * (1 + peak))
        ),
        all=len(at) == len(made),
    )


_SUPPORT = 2**13


def _product(one: _Outcomes, other: _Outcomes, tilt: float) -> _Outcomes | None:
    """Return the outcomes of two independent parts; None where there are too many."""
    if one is _ONE:
        return other
    if len(one.losses) * len(other.losses) > _GRID:
        return None
    losses = (one.losses[:, None] + other.losses).ravel()
    logs = (one.logs[:, None] + other.logs).ravel()
    largest = float(max(abs(losses[0]), abs(losses[-1])))
    deepest = float(np.abs(logs).max())
    made = _Outcomes(
        *_sorted(losses, logs),
        slip=one.slip + other.slip + 2 * UNIT * largest,
        wrong=_relative(math.log1p(one.wrong) + math.log1p(other.wrong) + 2 * UNIT * deepest),
        all=one.all and other.all,
    )
    return _kept(_merged(made), tilt)


def _sorted(losses: Array, logs: Array) -> tuple[Array, Array]:
    order = np.argsort(losses)
    return losses[order], logs[order]


def _merged(half: _Outcomes) -> _Outcomes:
    """Return the outcomes, those of one loss but for rounding as one."""
    gaps = np.diff(half.losses)
    largest = float(max(abs(half.losses[0]), abs(half.losses[-1])))
    starts = np.flatnonzero(np.append(True, gaps > 4 * half.slip + 64 * UNIT * largest))
    if len(starts) > 0.9 * len(half.losses):
        return half
    ends = np.append(starts[1:], len(half.losses)) - 1
    width = float((half.losses[ends] - half.losses[starts]).max())
    if width > 1e-11 * largest:  # a chain of many: they are not one
        return half
    peaks = np.maximum.reduceat(half.logs, starts)
    sizes = np.repeat(peaks, ends - starts + 1)
    sums = np.add.reduceat(np.exp(half.logs - sizes), starts)
    return _Outcomes(
        half.losses[starts],
        peaks + np.log(sums),
        slip=half.slip + width,
        wrong=_relative(
            math.log1p(half.wrong)
            + (int((ends - starts).max()) + 16 + 4 * float(np.abs(peaks).max())) * UNIT
        ),
        all=half.all,
    )


def _kept(half: _Outcomes, tilt: float) -> _Outcomes:
    """Return the outcomes without those that are rare at the tilt, or far from the floats."""
    weights = half.logs + tilt * half.losses
    weights = weights - weights.max()
    log, loss = _unit(half, tilt)
    far = np.abs(half.logs - log) > _REACH / 2
    far |= np.abs(half.logs - log - (half.losses - loss)) > _REACH / 2
    rare = far
    if len(half.losses) > _FEW:
        total = float(np.exp(weights).sum())
        rare = far | (weights < math.log(_RARE / len(weights) * total))
    if not rare.any():
        return half
    kept = ~rare
    return _Outcomes(half.losses[kept], half.logs[kept], half.slip, half.wrong, False)


# --- readings


_MOST_ASKED = 2**25
"""So many outcomes at most are gone through for one curve."""


def epsilon(spends: contour.Spends, delta: float) -> Bounds | None:
    """Return a bracket of epsilon at ``0 < delta < 1``; None where there are too many outcomes."""
    log_delta = math.log(delta)
    composed = contour.composition(tuple(spends))
    tilt, highest = contour.saddle(composed, log_delta)
    tilt, highest = min(tilt, _largest_tilt(spends)), max(0.0, highest)
    if not (tilt > 0 and highest < math.inf) or not enumerable(spends, tilt):
        return None
    outcomes = _cached(tuple(spends), tilt)
    if outcomes is None:
        return None
    slack = 4 * UNIT * (1 + abs(log_delta))

    def brackets(x: float) -> tuple[float, float, float]:
        low, high, slope = outcomes.brackets(np.array([x]))
        return float(low[0]), float(high[0]), float(slope[0])

    left, right, root = 0.0, max(highest, 0.0), max(highest - 1 / tilt, 0.0)
    low, high, slope = brackets(0.0)
    if high <= log_delta - slack:
        return Bounds(0.0, 0.0)
    for _ in range(100):
        low, high, slope = brackets(root)
        value = high if low == -math.inf else (low + high) / 2
        left, right = (root, right) if value > log_delta else (left, root)
        step = (value - log_delta) / slope if slope > 0 else math.nan
        after = root + step
        if not left < after < right:
            after = (left + right) / 2
        moved, root = abs(after - root), after
        if moved <= 1e-15 * (1 + root) or right - left <= 1e-15 * (1 + right):
            break
        if moved * max(slope, tilt) < 1e-9 and high - low < math.inf:
            break
    # near the largest loss of all no lower bound is known, and a guess of the width serves
    known = high - low < math.inf and slope > 0
    width = max(high - low, 4 * slack, 1e-15) / max(slope, tilt / 99) if known else 0.0
    width += 16 * UNIT * (1 + root)
    return _ends(outcomes, root, width, log_delta, slack, highest)


def _ends(
    outcomes: Enumeration, root: float, width: float, log_delta: float, slack: float, highest: float
) -> Bounds:
    """Return the bracket of the root whose ends are seen to lie on their sides."""
    lower, upper = max(0.0, root - width), root + width
    step = width
    while lower > 0 and not outcomes.brackets(np.array([lower]))[0][0] > log_delta + slack:
        step *= 2
        lower = max(0.0, lower - step)
    step = width
    while upper < highest and not outcomes.brackets(np.array([upper]))[1][0] <= log_delta - slack:
        step *= 2
        upper = upper + step
    # Chernoff's own bound of epsilon holds as well
    return Bounds(min(lower, highest), min(upper, highest))


_cached = remembered(8, size=2**26)(enumeration)


@remembered(8, size=2**26)
def _whole(spends: tuple[tuple[Pair, int], ...]) -> Enumeration | None:
    """Return all outcomes, where so few are that none is left out: they serve any epsilon."""
    finite = _finite(spends)
    if not finite or len(spends) > _MOST_PAIRS:
        return None
    for half in _halves(finite, 1.0):
        if sum(_log_count(pair, times) for pair, times in half) > math.log(_FEW):
            return None
    made = enumeration(spends, 1.0)
    return made if made is not None and made.first.all and made.second.all else None


def _log_count(pair: FinitePair, times: int) -> float:
    """Return the log of the number of multisets of losses."""
    count = len(pair.losses)
    return math.lgamma(times + count) - math.lgamma(times + 1) - math.lgamma(count)


_TILTS = 4
"""Tilts of a curve are rounded to so many for each doubling: the next points often have the same.
"""


def profile(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return bounds of delta at many epsilons >= 0; None where there are too many outcomes."""
    low, high = np.zeros(len(epsilons)), np.ones(len(epsilons))
    whole = _whole(tuple(spends))
    if whole is not None and len(epsilons) * (len(whole.first.losses) + 64) <= _MOST_ASKED:
        log_low, log_high, _ = whole.brackets(epsilons)
        low = np.maximum(low, contour.exponentials(log_low, -1))
        high = np.minimum(high, contour.exponentials(log_high, 1))
        return brackets(low, high)
    composed = contour.composition(tuple(spends))
    todo = np.argsort(epsilons)
    asked, start = 0, 1.0
    while len(todo):
        tilt = contour.saddle_at(composed, float(epsilons[todo[0]]), start)
        if tilt is None or not 0 < tilt < math.inf:
            return None
        tilt = 2.0 ** (round(_TILTS * math.log2(min(tilt, _largest_tilt(spends)))) / _TILTS)
        if not enumerable(spends, tilt):
            return None
        outcomes = _cached(tuple(spends), tilt)
        if outcomes is None:
            return None
        asked += len(todo) * (len(outcomes.first.losses) + 64)
        if asked > _MOST_ASKED:
            return None
        log_low, log_high, _ = outcomes.brackets(epsilons[todo])
        low[todo] = np.maximum(low[todo], contour.exponentials(log_low, -1))
        high[todo] = np.minimum(high[todo], contour.exponentials(log_high, 1))
        wide = ~(log_high - log_low <= _WIDE) & (log_high > -math.inf)
        wide[0] = False  # what its own tilt does not narrow, none does
        todo, start = todo[wide], tilt
    return brackets(low, high)


# --- many different losses of two values


def grouped(spends: contour.Spends) -> contour.Spends:
    """Return the same composition, its pairs of two losses that are paid once by some at a time.

    What a lattice adds to a pair by spreading it over its points, it then adds once to all of a
    group. Sums of losses that are floats are rounded once.
    """
    return _grouped(tuple(spends))


@remembered(8, size=2**26)
def _grouped(spends: tuple[tuple[Pair, int], ...]) -> tuple[tuple[Pair, int], ...]:
    made: list[tuple[Pair, int]] = []
    singles: list[FinitePair] = []
    for pair, times in spends:
        atoms = finite_of(pair) if times == 1 else None
        if atoms is None or len(atoms.losses) != 2 or atoms.loss_error or not atoms.tight:
            made.append((pair, times))
        else:
            singles.append(atoms)
    if len(singles) < 2 * _GROUP:
        return spends
    singles.sort(key=FinitePair.top)
    made += [(_sum(singles[i : i + _GROUP]), 1) for i in range(0, len(singles), _GROUP)]
    return tuple(made)


_GROUP = 11
"""So many are one pair of 2^11 losses."""


def _sum(pairs: Sequence[FinitePair]) -> FinitePair:
    """Return the pair of all sums of their losses."""
    high, low = np.zeros(1), np.zeros(1)
    masses = [np.ones(1), np.ones(1)]
    for pair in pairs:
        one, other = high[:, None], np.array(pair.losses)
        total = one + other
        # what the addition has rounded away, exactly (Knuth)
        kept = total - one
        lost = (one - (total - kept)) + (other - kept)
        high, low = total.ravel(), (low[:, None] + lost).ravel()
        masses = [
            (each[:, None] * np.array(part)).ravel()
            for each, part in zip(masses, (pair.p, pair.q), strict=True)
        ]
    losses, places = np.unique(high + low, return_inverse=True)
    p, q = (np.bincount(places, each, len(losses)) for each in masses)
    error = sum(pair.error for pair in pairs) * (1 + 1e-9) + (4 * len(pairs) + 16) * UNIT
    return FinitePair(losses, p, q, error=error, loss_error=4 * UNIT)
