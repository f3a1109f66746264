"""Plots as SVG: steps that lie on the safe side between the points that were computed.

A decreasing curve is known at some points only. Its upper bound holds to the right of each point,
its lower bound to the left: drawn so, as steps, the picture under-reports nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import frozen

from adaptive_dp.reports.markdown import RAISED
from adaptive_dp.reports.parts import escape

WIDE, HIGH = 440.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 14.0, 44.0


@frozen
class Axis:
    """One axis: its title, its range, whether it is logarithmic, and how ticks are written."""

    title: str
    low: float
    high: float
    log: bool = False
    write: Callable[[float], str] = "{:g}".format

    def at(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high one, never beyond."""
        if not self.log:
            place = (value - self.low) / (self.high - self.low)
        elif value <= 0:
            return 0.0
        else:
            place = math.log(value / self.low) / math.log(self.high / self.low)
        return min(1.0, max(0.0, place))

    def ticks(self) -> list[float]:
        """Return four to eight round values in the range."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**k for k in range(first, last + 1, max(1, (last - first) // 5))]
        rough = (self.high - self.low) / 5
        ten = 10.0 ** math.floor(math.log10(rough))
        step = ten * min((1.0, 2.0, 2.5, 5.0, 10.0), key=lambda m: abs(m * ten - rough))
        first = math.ceil(self.low / step - 1e-9)
        return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def tick(self, value: float) -> str:
        """Write a tick."""
        if self.log:
            return "10" + str(round(math.log10(value))).translate(RAISED)
        return self.write(value)


@frozen
class Curve:
    """A decreasing curve in a bracket; ``promise`` is the end that holds ("upper" or "lower")."""

    xs: Sequence[float]
    lower: Sequence[float]
    upper: Sequence[float]
    promise: str = "upper"


def plot(
    says: str,
    x: Axis,
    y: Axis,
    curve: Curve,
    *,
    mark: tuple[float, float, str] | None = None,
    guide: tuple[float, float, float, float] | None = None,
) -> str:
    """Draw a curve as an SVG of its own; ``says`` is what it says to those who do not see it."""
    upper = _steps(x, y, curve.xs, curve.upper, ahead=False)
    lower = _steps(x, y, curve.xs, curve.lower, ahead=True)
    band = [*upper, *reversed(lower)]
    line = upper if curve.promise == "upper" else lower
    parts = [*_grid(x, y)]
    if guide:
        (a, b), (c, d) = _point(x, y, *guide[:2]), _point(x, y, *guide[2:])
        parts.append(f'<path class="guide" d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}"/>')
    parts.append(f'<path class="band" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in band)}Z"/>')
    parts.append(f'<path class="curve" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in line)}"/>')
    if mark:
        parts.append(_mark(x, y, *mark))
    return (
        f'<svg class="plot" viewBox="0 0 {WIDE:g} {HIGH:g}" role="img" '
        f'aria-label="{escape(says)}">{"".join(parts)}</svg>'
    )


def _steps(
    x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float], *, ahead: bool
) -> list[tuple[float, float]]:
    """Return the corners: each value holds until the next point, or with ``ahead`` from the last.

    Corners between two equal values are left out. The others are moved to tenths of a unit, as they
    are written, away from the truth: up and to the right, or with ``ahead`` down and to the left.
    """
    right, down = (math.floor, math.ceil) if ahead else (math.ceil, math.floor)
    exact = [_point(x, y, a, b) for a, b in zip(xs, ys, strict=True)]
    places = [(right(10 * a) / 10, down(10 * b) / 10) for a, b in exact]
    found = places[:1]
    for a, b in pairwise(places):
        found += [(a[0], b[1]) if ahead else (b[0], a[1]), b]
    return [
        p
        for i, p in enumerate(found)
        if i in (0, len(found) - 1) or not found[i - 1][1] == p[1] == found[i + 1][1]
    ]


def _point(x: Axis, y: Axis, a: float, b: float) -> tuple[float, float]:
    across, down = WIDE - LEFT - RIGHT, HIGH - TOP - BOTTOM
    return LEFT + across * x.at(a), HIGH - BOTTOM - down * y.at(b)


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for value in x.ticks():
        a = _point(x, y, value, y.low)[0]
        parts.append(f'<path class="grid" d="M{a:.1f} {TOP:g}V{HIGH - BOTTOM:g}"/>')
        parts.append(
            f'<text x="{a:.1f}" y="{HIGH - BOTTOM + 16:g}" text-anchor="middle">'
            f"{escape(x.tick(value))}</text>"
        )
    for value in y.ticks():
        b = _point(x, y, x.low, value)[1]
        parts.append(f'<path class="grid" d="M{LEFT:g} {b:.1f}H{WIDE - RIGHT:g}"/>')
        parts.append(
            f'<text x="{LEFT - 7:g}" y="{b + 4:.1f}" text-anchor="end">'
            f"{escape(y.tick(value))}</text>"
        )
    middle = (LEFT + WIDE - RIGHT) / 2
    parts.append(
        f'<text class="title" x="{middle:g}" y="{HIGH - 8:g}" text-anchor="middle">'
        f"{escape(x.title)}</text>"
    )
    parts.append(
        f'<text class="title" transform="translate(13 {(TOP + HIGH - BOTTOM) / 2:g}) rotate(-90)" '
        f'text-anchor="middle">{escape(y.title)}</text>'
    )
    return parts


def _mark(x: Axis, y: Axis, a: float, b: float, text: str) -> str:
    across, down = _point(x, y, a, b)
    left = across > WIDE * 0.5  # beside a falling curve there is room below it, or above it
    anchor, shift, drop = ("end", -9, 17) if left else ("start", 9, -8)
    low = max(TOP + 12, min(HIGH - BOTTOM - 6, down + drop))
    return (
        f'<circle class="dot" cx="{across:.1f}" cy="{down:.1f}" r="4.5"/>'
        f'<text class="said" x="{across + shift:.1f}" y="{low:.1f}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
