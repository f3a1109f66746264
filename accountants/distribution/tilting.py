"""Where a lattice of composed losses should lie: its tilt, its window, the ends of each pair.

All of this is guessed from log-moments; nothing rests on it but how tight the bracket is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from accountants.distribution.discretisation import CELLS, Atoms, Grid
from accountants.errors import InapplicableError
from accountants.finite import FinitePair
from accountants.numerics import UNIT, Array, by_class
from accountants.pair import Pair

Spends = Sequence[tuple[Pair, int]]
Cumulant = Callable[[Array], Array]
Flags = NDArray[np.bool_]
Ends = Sequence[tuple[float, float]]

_NARROW = 10.0
"""Losses within so many nats need not be cut."""

_NEGLIGIBLE = 27.0
"""What lies outside of the window is below e^-27 of the answer."""


@frozen
class Window:
    """A tilt c and the stretch of losses to resolve.

    Parameters
    ----------
    tilt
        c >= 0: losses are weighted by e^{cL}.
    low
        Where the answer is looked for, from here on.
    start
        Below ``low``: where the window begins.
    width
        Losses are folded onto a circle of this length.
    end, right, left
        Exponents, per nat, for Chernoff's bounds of what lies above the window's end, a width
        above the answer, and below the window.
    spread
        The tilted deviation.
    """

    tilt: float
    low: float
    start: float
    width: float
    end: float
    right: float
    left: float
    spread: float


def upper_end(pair: Pair, mass: float) -> float:
    """Return a loss above which the pair has at most ``mass`` under P."""
    # so narrow a pair needs no cut
    if pair.top() - pair.bottom() < _NARROW:
        return pair.top()
    return min(pair.top(), _quantile(lambda x: np.less_equal(pair.above(x)[0], mass), pair))


def lower_end(pair: Pair, mass: float) -> float:
    """Return a loss below which the pair has at most ``mass`` under P."""
    if pair.top() - pair.bottom() < _NARROW:
        return pair.bottom()
    return max(pair.bottom(), -_quantile(lambda x: pair.below(-x)[0] <= mass, pair))


def _quantile(holds: Callable[[Array], Flags], pair: Pair) -> float:
    """Return the least point, nearly, at which what stays true becomes true."""
    powers = 2.0 ** np.arange(-60, 16)
    points = np.concatenate([-powers[::-1], [0.0], powers])
    for _ in range(4):
        true = holds(points)
        if not true[-1]:
            raise InapplicableError(f"{pair!r} has losses beyond 3e4 nats: too many for a lattice")
        at = max(1, int(np.argmax(true)))
        points = np.linspace(points[at - 1], points[at], 33)
    return float(points[-1])


def cumulant(spends: Spends, ends: Ends) -> Cumulant:
    """Return ``c -> log E_P e^{cL}`` of the composition, roughly."""
    return capped_cumulant(spends, ends, math.inf)


def capped_cumulant(spends: Spends, ends: Ends, cap: float) -> Cumulant:
    """Return the same where losses above ``cap`` are put on it as often as under Q."""
    has_moments = [
        high < cap and pair.log_moment(np.array([0.5 + 0j])) is not None
        for (pair, _), (_, high) in zip(spends, ends, strict=True)
    ]
    families = by_class(
        spend for spend, is_known in zip(spends, has_moments, strict=True) if is_known
    )
    sketched = [
        (*_sketch(pair, low, high), times)
        for (pair, times), (low, high), is_known in zip(spends, ends, has_moments, strict=True)
        if not is_known
    ]

    def sum_(c: Array) -> Array:
        total = np.zeros(len(c))
        with np.errstate(all="ignore"):
            for kind, members in families.items():
                moments = kind.log_moments(members, c.astype(np.complex128))
                assert moments is not None
                total = total + np.where(np.isfinite(moments[1]), moments[0].real, np.inf)
            for losses, logs, times in sketched:
                exponents = np.outer(c, losses) + logs
                peak = exponents.max(axis=1)
                total += times * (peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1)))
        return np.where(np.isnan(total), np.inf, total)

    return sum_


def _sketch(pair: Pair, low: float, high: float) -> tuple[Array, Array]:
    middle, full = median_loss(pair), max(high - low, 1e-12)
    away = np.geomspace(1e-9, 1, 200) * full
    edges = np.concatenate([np.linspace(low, high, 513), middle - away, middle + away])
    edges = np.unique(np.clip(edges, low, high))
    edges = np.concatenate([[edges[0] - 1e-9 * full], edges])
    p, q = (-np.diff(tail) for tail in pair.above(edges))
    p = np.where(edges[1:] < middle, np.diff(pair.below(edges)[0]), p)
    occupied = p > 0
    with np.errstate(all="ignore"):
        # log(p / q) is the loss of a cell's mean ratio, which lies within the cell
        means = np.where(q > 0, np.log(p) - np.log(q), edges[1:])
        losses = np.clip(means, edges[:-1], edges[1:])
    losses, p = losses[occupied], p[occupied]
    over, beyond = (float(tail[-1]) for tail in pair.above(edges))
    if beyond > 0 and edges[-1] < 600:
        losses = np.append(losses, edges[-1])
        p = np.append(p, max(1e-300, min(over, math.exp(edges[-1]) * beyond)))
    return losses, np.log(p)


def coarse_cumulants(scale: float) -> tuple[Array, Array]:
    """Return tilts of all sizes, the same ones for any score, and NaN for each K not asked yet."""
    grid = np.geomspace(1e-4, 1e10, 220) / scale
    return grid, np.full(len(grid), np.nan)


def best_tilt(
    sum_: Cumulant, score: Callable[[Array, Array], Array], coarse: tuple[Array, Array]
) -> tuple[float, float]:
    """Return the c > 0 of least ``score(c, K(c))``, and that score, from `coarse_cumulants` on."""
    grid, cumulants = coarse
    # ever finer around the best point; any c gives a valid bound, so no optimum is needed
    near, at = np.arange(0, len(grid), 16), 0
    for stride in (4, 1, 0):
        missing = near[np.isnan(cumulants[near])]
        if len(missing):
            with np.errstate(all="ignore"):
                cumulants[missing] = sum_(grid[missing])
        at = int(near[_least(score, grid[near], cumulants[near])[0]])
        if stride:
            near = np.arange(max(0, at - 4 * stride), min(len(grid), at + 4 * stride + 1), stride)
    best = least = 0.0
    for _ in range(2):
        grid = np.geomspace(grid[max(0, at - 1)], grid[min(len(grid) - 1, at + 1)], 33)
        with np.errstate(all="ignore"):
            at, least = _least(score, grid, sum_(grid))
        best = float(grid[at])
    return best, least


def _least(
    score: Callable[[Array, Array], Array], grid: Array, cumulants: Array
) -> tuple[int, float]:
    """Return where the score is least, and that score."""
    with np.errstate(all="ignore"):
        values = score(grid, cumulants)
    values = np.where(np.isnan(values), np.inf, values)
    at = int(np.argmin(values))
    return at, float(values[at])


def best_window(
    sum_: Cumulant, tilt: float, span: tuple[float, float], low: float | None
) -> Window:
    """Return the narrowest window that loses nothing.

    Parameters
    ----------
    tilt
        c >= 0.
    span
        The least and the largest loss of the composition.
    low
        The least loss that is asked for; None for some deviations below the tilted mean.
    """
    mean, spread = _moments(sum_, tilt, span)
    if low is None:
        widest = max(spread, _moments(sum_, 0.0, span)[1])
        low = mean - min(6 / tilt, 6 * widest)
    # epsilon is not negative, and beyond the losses' span delta is known
    low = min(max(low, 0.0, span[0]), span[1])
    high = max(low, mean)
    base = float(sum_(np.array([tilt]))[0])
    if not math.isfinite(low + mean + spread + base) or not spread > 0:
        raise InapplicableError("there is no window of losses: their moments are not finite")
    rates = np.geomspace(0.02 / max(spread, 1 / tilt), 60 / spread, 100)
    # Chernoff under the tilted law: P~(L > x) <= e^{up - r x}, P~(L < x) <= e^{down + r x}
    up, down = sum_(tilt + rates) - base, sum_(tilt - rates) - base
    # the width at which what folds into the window from above is negligible, by rate
    ahead = (up - rates * low + _NEGLIGIBLE) / rates
    beyond = float(np.min((up - rates * low + _NEGLIGIBLE) / (tilt + rates)))
    margins = spread * np.array([0.0, 0.5, 1, 2, 3, 4, 6, 8, 10, 14, 20, 40])
    # and from below; the best rate and the best margin are searched over grids
    behind = [_behind(down, rates, tilt, low - margin, high).min() for margin in margins]
    # the narrowest window that satisfies all three conditions
    widths = np.maximum(np.maximum(ahead.min(), behind), beyond + margins)
    at = int(np.argmin(widths))
    start, width = float(low - margins[at]), float(widths[at])
    if width >= span[1] - span[0]:
        start, width = span[0], span[1] - span[0]
    # Chernoff's exponents at this width: the best rate for each of the three tails
    held = np.minimum(rates, tilt)
    end, right, left = (
        float(rates[int(np.argmin(exponents))])
        for exponents in (
            up - rates * (start + width),
            up - rates * (low + width),
            down + (rates - held) * start - held * (width - high),
        )
    )
    return Window(tilt, low, start, width, end, right, left, spread)


def _behind(down: Array, rates: Array, tilt: float, start: float, high: float) -> Array:
    """Return the widths at which what lies below the window does not matter, by exponent."""
    # negligible once excess <= held * width: what lies below is folded up by the width
    held = np.minimum(rates, tilt)
    excess = down + (rates - held) * start + held * high + _NEGLIGIBLE
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.where(excess <= 0, 0.0, excess / held)
    return np.where(np.isnan(width), np.inf, width)


def _moments(sum_: Cumulant, tilt: float, span: tuple[float, float]) -> tuple[float, float]:
    """Return the tilted mean and deviation, by differences."""
    full = span[1] - span[0]
    mean, spread = (span[0] + span[1]) / 2, full
    step = max(0.03 * tilt, 1e-2 / full)
    for _ in range(3):
        left, here, right = sum_(np.array([tilt - step, tilt, tilt + step]))
        # central differences of the cumulant: K' and K''
        mean = (right - left) / (2 * step)
        spread = math.sqrt(max(right - 2 * here + left, 0.0)) / step
        if not (spread > 0 and math.isfinite(spread)):
            spread = min(full / 16, 1 / tilt if tilt else math.inf)
            return float(np.clip(mean, *span)), spread
        step = 0.05 / spread
    return float(np.clip(mean, *span)), min(spread, full)


def median_loss(pair: Pair) -> float:
    """Return the median loss, nearly: a lattice through it carries a narrow peak there."""
    return _quantile(lambda x: np.less_equal(pair.above(x)[0], 0.5), pair)


def tilted_floor(pair: Pair, tilt: float, low: float, high: float, share: float) -> float:
    """Return a loss below which the pair has at most a ``share`` of its tilted mass."""
    # the tilt weighs all losses nearly alike: nothing is negligible
    if tilt * (high - low) < 40:
        return low
    points = np.linspace(low, high, 129)
    for _ in range(4):
        with np.errstate(divide="ignore"):
            moment = np.max(np.log(pair.above(points)[0]) + tilt * points)
            under = np.log(pair.below(points)[0]) + tilt * points
        # the tilted mass below a point is at most the mass there times e^{tilt point}
        empty = np.flatnonzero(under <= moment + math.log(share))
        if len(empty) == 0:
            break
        low = float(points[empty[-1]])
        points = np.append(np.linspace(low, points[min(empty[-1] + 8, len(points) - 1)], 128), high)
    return low


# -----------------------------------------------------------------------------
# Which lattice serves a composition: its step, each pair's part of it, the transform's length.
# These choices move the answer's width alone: `lattice` bounds the error of whatever is chosen.


_SHORT = 2**13
"""A transform of this length costs nothing beside the rest."""


@frozen(eq=False)
class Lattice:
    """A window, the length of the transforms, and the grid of each pair.

    Parameters
    ----------
    slacks
        How far each pair's upper law is moved up, so that atoms on the lattice but for rounding
        are not spread above it.
    """

    around: Window
    size: int
    grids: list[Grid]
    slacks: list[float]


def finest_step(ends: Ends) -> float:
    """Return the least useful step: in finer cells rounding moves the means too far."""
    widest = max(high - low for low, high in ends)
    # the mean of a cell is off by about 16 units of the widest loss over its width h; equal to h^2
    # at the cube root
    return min(float(np.cbrt(16 * UNIT * widest)), widest / 1024)


def choose_lattice(
    counts: Spends, ends: Ends, around: Window, longest: int, cells: int = CELLS
) -> Lattice:
    """Return the finest lattice that a transform of at most ``longest`` points allows.

    Parameters
    ----------
    ends
        The stretch of each pair's losses that matters untilted.
    cells
        No law of one pair has many more cells.
    """
    total = sum(times for _, times in counts)
    # less than a rounding of the answer, over all mechanisms together
    share = math.exp(-45) / total
    reached = [
        (tilted_floor(pair, around.tilt, low, high, share), high)
        for (pair, _), (low, high) in zip(counts, ends, strict=True)
    ]
    size = _length(len(counts), longest)
    spare = min(size // 2, 6 * total + 8)  # each law is some points longer than its pair
    widest = max(high - low for low, high in reached)
    # the window must fit into the transform, each law into its cells, and means into floats
    step = max(around.width / (size - spare), widest / cells, finest_step(ends))
    shared = _common([pair.spacing() for pair, _ in counts])
    # pairs whose atoms lie on multiples of a common spacing stay on the lattice exactly
    if shared is not None and shared > step:
        on_it = all(
            _on_lattice(pair, shared, *e) for (pair, _), e in zip(counts, ends, strict=True)
        )
        step = shared / max(1, math.ceil(8 * shared * around.tilt if on_it else shared / step))
    # one step of the lattice must not change the tilted mass by more than a factor e
    around = evolve(around, tilt=min(around.tilt, 1 / step))
    support = sum(
        n * ((high - low) / step + 6) for (low, high), (_, n) in zip(reached, counts, strict=True)
    )
    points = support if support < _SHORT else min(around.width / step + spare, support)
    grids, slacks = [], []
    for (pair, _), (low, high) in zip(counts, reached, strict=True):
        anchored = pair.spacing() is not None
        grids.append(_grid(0.0 if anchored else median_loss(pair), step, low, high))
        # an atom that is off its lattice point by rounding must lie below it, not spread to the
        # next
        slacks.append(4e-15 * (1 + max(abs(low), abs(high))) if anchored else 0.0)
    return Lattice(around, min(size, 1 << math.ceil(math.log2(max(16, points)))), grids, slacks)


@frozen(eq=False)
class ExactLattice:
    """A lattice that holds all losses of all pairs: its step, and each pair's part."""

    step: float
    atoms: tuple[Atoms, ...]
    support: int

    def size(self, around: Window, longest: int) -> int | None:
        """Return the length of the transforms for a window; None where it is too long."""
        points = 16 + min(self.support, max(_SHORT, around.width / self.step))
        return 1 << math.ceil(math.log2(points)) if points <= longest else None


def exact_lattice(counts: Spends) -> ExactLattice | None:
    """Return the lattice on which all losses lie but for rounding; None where there is none."""
    finite: list[FinitePair] = []
    for pair, _ in counts:
        atoms = finite_of(pair)
        if atoms is None or len(atoms.losses) > _MOST_ATOMS:
            return None
        finite.append(atoms)
    gaps = [gap for atoms in finite for gap in _gaps(atoms)]
    step = _common(gaps) if gaps else 1.0
    if step is None:
        return None
    # compared as floats: an index beyond the integers would wrap around to another place
    if any(max(map(abs, atoms.losses)) > CELLS * step for atoms in finite):
        return None
    placed = tuple(_placed(atoms, step) for atoms in finite)
    # a lattice that the losses miss by more than their own rounding would only widen the bracket
    if any(one.slack > 1e-14 * max(map(abs, one.pair.losses)) for one in placed):
        return None
    if any(one.index[-1] - one.index[0] > CELLS for one in placed):
        return None
    support = sum(
        times * int(one.index[-1] - one.index[0])
        for one, (_, times) in zip(placed, counts, strict=True)
    )
    return ExactLattice(step, placed, support)


_MOST_ATOMS = 2**12


def finite_of(pair: Pair) -> FinitePair | None:
    """Return a pair of finitely many losses as its atoms; None for any other."""
    if isinstance(pair, FinitePair):
        return pair
    atoms = getattr(pair, "atoms", None)
    found = atoms() if callable(atoms) else None
    return found if isinstance(found, FinitePair) else None


def _gaps(pair: FinitePair) -> list[float]:
    """Return distances of which the lattice's step must be a common divisor."""
    if pair.multiple is not None:
        return [pair.multiple]
    return [float(gap) for gap in np.unique(np.diff(pair.losses))]


def _placed(pair: FinitePair, step: float) -> Atoms:
    """Return where a pair's losses lie on a lattice, and by how much they miss it at most."""
    losses = np.array(pair.losses)
    anchor = 0.0 if pair.multiple is not None else float(losses[0])
    index = np.rint((losses - anchor) / step)
    # the losses' own error, and the rounding of the difference computed here
    rounding = 4 * UNIT * (np.abs(anchor) + np.abs(index * step) + np.abs(losses))
    missed = np.abs(losses - (anchor + index * step)) + rounding
    missed = missed + pair.loss_error * np.abs(losses).max()
    return Atoms(pair, anchor, step, index.astype(np.int64), float(missed.max()))


def _grid(anchor: float, step: float, low: float, high: float) -> Grid:
    first, last = math.floor((low - anchor) / step) - 1, math.ceil((high - anchor) / step) + 1
    return Grid(anchor, step, first, last)


def _length(pairs: int, longest: int) -> int:
    """Return the transform's length: shorter where there are many pairs to transform."""
    return max(_SHORT, longest >> max(0, math.ceil(math.log2(pairs / 4) / 2)))


def _common(spacings: Sequence[float | None]) -> float | None:
    """Return what all spacings are multiples of, but for rounding; None where there is none."""
    distinct = sorted({spacing for spacing in spacings if spacing is not None})
    if not distinct:
        return None
    shared = Fraction(1)
    for spacing in distinct[1:]:
        # a ratio of small integers, within the rounding of one division
        ratio = Fraction(spacing / distinct[0]).limit_denominator(1000)
        if abs(spacing / distinct[0] - float(ratio)) > 1e-15 * float(ratio):
            return None
        # the greatest common divisor of two fractions
        a, b = shared.as_integer_ratio()
        c, d = ratio.as_integer_ratio()
        shared = Fraction(math.gcd(a * d, c * b), b * d)
    return distinct[0] * float(shared)


def _on_lattice(pair: Pair, spacing: float, low: float, high: float) -> bool:
    """Whether the pair has no mass between the multiples of the spacing."""
    if pair.spacing() is None or high - low > 4096 * spacing:
        return False
    points: Array = np.arange(float(round(low / spacing)), round(high / spacing)) * spacing
    near = 1e-9 * spacing
    inside = pair.above(points + near)[0] - pair.above(points + spacing - near)[0]
    return bool(np.all(inside <= 1e-15))
