"""Which lattice serves a composition: its step, each pair's part of it, the transform's length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen

from accountants.lattices.cells import Grid
from accountants.lattices.discretisation import CELLS
from accountants.lattices.tilting import Window, median_loss, tilted_floor
from accountants.pair import Pair
from accountants.rounding import UNIT, Array

_Counts = Sequence[tuple[Pair, int]]
_Ends = Sequence[tuple[float, float]]

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


def finest_step(ends: _Ends) -> float:
    """Return the least useful step: in finer cells rounding moves the means too far."""
    widest = max(high - low for low, high in ends)
    # the mean of a cell is off by about 16 units of the widest loss over its width h; equal to h^2
    # at the cube root
    return min(float(np.cbrt(16 * UNIT * widest)), widest / 1024)


def choose_lattice(counts: _Counts, ends: _Ends, around: Window, longest: int) -> Lattice:
    """Return the finest lattice that a transform of at most ``longest`` points allows.

    Parameters
    ----------
    ends
        The stretch of each pair's losses that matters untilted.
    """
    total = sum(times for _, times in counts)
    # less than a rounding of the answer, over all mechanisms together
    share = math.exp(-45) / total
    kept = [
        (tilted_floor(pair, around.tilt, low, high, share), high)
        for (pair, _), (low, high) in zip(counts, ends, strict=True)
    ]
    size = _length(len(counts), longest)
    spare = min(size // 2, 6 * total + 8)  # each law is some points longer than its pair
    widest = max(high - low for low, high in kept)
    # the window must fit into the transform, each law into CELLS, and means into floats
    step = max(around.width / (size - spare), widest / CELLS, finest_step(ends))
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
        n * ((high - low) / step + 6) for (low, high), (_, n) in zip(kept, counts, strict=True)
    )
    points = support if support < _SHORT else min(around.width / step + spare, support)
    grids, slacks = [], []
    for (pair, _), (low, high) in zip(counts, kept, strict=True):
        anchored = pair.spacing() is not None
        grids.append(_grid(0.0 if anchored else median_loss(pair), step, low, high))
        # an atom that is off its lattice point by rounding must lie below it, not spread to the
        # next
        slacks.append(4e-15 * (1 + max(abs(low), abs(high))) if anchored else 0.0)
    return Lattice(around, min(size, 1 << math.ceil(math.log2(max(16, points)))), grids, slacks)


def _grid(anchor: float, step: float, low: float, high: float) -> Grid:
    first, last = math.floor((low - anchor) / step) - 1, math.ceil((high - anchor) / step) + 1
    return Grid(anchor, step, first, last)


def _length(pairs: int, longest: int) -> int:
    """Return the transform's length: shorter where there are many pairs to transform."""
    return max(_SHORT, longest >> max(0, math.ceil(math.log2(pairs / 4) / 2)))


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
        a, b = shared.as_integer_ratio()
        c, d = ratio.as_integer_ratio()
        shared = Fraction(math.gcd(a * d, c * b), b * d)
    return known[0] * float(shared)


def _on_lattice(pair: Pair, spacing: float, low: float, high: float) -> bool:
    """Whether the pair has no mass between the multiples of the spacing."""
    if pair.spacing() is None or high - low > 4096 * spacing:
        return False
    points: Array = np.arange(float(round(low / spacing)), round(high / spacing)) * spacing
    near = 1e-9 * spacing
    inside = pair.above(points + near)[0] - pair.above(points + spacing - near)[0]
    return bool(np.all(inside <= 1e-15))
