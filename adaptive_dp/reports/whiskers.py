"""Several released numbers as dots with error bars on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from adaptive_dp.graph.visible import cut
from adaptive_dp.reports.parts import escape
from adaptive_dp.reports.plot import Axis

FEWEST, MOST = 3, 24
WIDE, ROW, LEFT = 440.0, 22.0, 120.0


def whiskers(value: Any, noise: Any) -> str:
    """Draw a list or mapping of numbers with their noise; nothing where some have none."""
    items = _items(value, noise)
    if not FEWEST <= len(items) <= MOST:
        return ""
    low = min(0.0, *(v - s for _, v, s in items))
    high = max(0.0, *(v + s for _, v, s in items))
    if not 0 < high - low < math.inf:
        return ""
    axis = Axis("", low, high)
    height = ROW * len(items) + 20
    zero = _x(axis, 0.0)
    parts = [f'<path class="grid" d="M{zero:.1f} 0V{height - 16:g}"/>']
    for tick in axis.ticks():
        parts.append(
            f'<text x="{_x(axis, tick):.1f}" y="{height - 3:g}" text-anchor="middle">'
            f"{escape(axis.tick(tick))}</text>"
        )
    for i, (name, middle, spread) in enumerate(items):
        y = ROW * i + ROW / 2
        a, b, c = _x(axis, middle - spread), _x(axis, middle), _x(axis, middle + spread)
        parts.append(
            f'<text x="{LEFT - 10:g}" y="{y + 4:g}" text-anchor="end">'
            f"{escape(cut(name, 18, end=True))}</text>"
            f'<path class="whisker" d="M{a:.1f} {y:g}H{c:.1f}M{a:.1f} {y - 4:g}v8'
            f'M{c:.1f} {y - 4:g}v8"/><circle class="dot" cx="{b:.1f}" cy="{y:g}" r="4"/>'
        )
    says = f"{len(items)} released numbers with one standard deviation of noise each"
    return (
        f'<svg class="plot whiskers" viewBox="0 0 {WIDE:g} {height:g}" role="img" '
        f'aria-label="{escape(says)}">{"".join(parts)}</svg>'
    )


def _x(axis: Axis, value: float) -> float:
    return LEFT + (WIDE - LEFT - 24) * axis.at(value)


def _items(value: Any, noise: Any) -> list[tuple[str, float, float]]:
    """Return names, numbers and noise, all finite; empty if any is something else."""
    if isinstance(value, Mapping):
        pairs = [
            (str(k), v, noise.get(k) if isinstance(noise, Mapping) else noise)
            for k, v in value.items()
        ]
    elif isinstance(value, list):
        spreads = noise if isinstance(noise, list) else [noise] * len(value)
        if len(spreads) != len(value):
            return []
        pairs = [(str(i), v, s) for i, (v, s) in enumerate(zip(value, spreads, strict=True))]
    else:
        return []
    found = [(k, float(v), float(s)) for k, v, s in pairs if _numeric(v) and _numeric(s)]
    return found if len(found) == len(pairs) else []


def _numeric(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < 1e300
