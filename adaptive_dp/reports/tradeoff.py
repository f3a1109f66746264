"""A drawing of an audit's trade-off: how often guesses are right, by how often they are wrong.

Both axes are logarithmic, so that both tails are seen: a guess of either side is a point, and both
sides share one claim, which is the same both ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accountants.points import most
from adaptive_dp.reports.parts import escape

__all__ = ["tradeoff"]

_WIDE, _HIGH = 560.0, 380.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 62.0, 16.0, 16.0, 46.0
_LEAST = 1e-7
_STEPS = 80

Point = tuple[float, float]


def tradeoff(audit: Mapping[str, Any]) -> str:
    """Draw what an audit showed beside what is claimed, as SVG.

    Parameters
    ----------
    audit : mapping
        The document of an audit: of its ``tradeoff`` and ``claimed``.

    Returns
    -------
    str
        One element that loads nothing; empty where the audit shows no trade-off.

    Examples
    --------
    >>> corner = {"guess": "first", "threshold": 0.0, "wrong": 0.1, "right": 0.3, "claimed": 0.27}
    >>> drawn = tradeoff({"claimed": [[1.0, 0.0]], "tradeoff": [corner]})
    >>> drawn.startswith("<svg"), "goes beyond the claim at 1 of 1" in drawn
    (True, True)
    """
    corners = [each for each in audit.get("tradeoff") or () if each["right"] > 0]
    claimed: Sequence[Sequence[float]] = audit.get("claimed") or ()
    if not corners or not claimed:
        return ""
    points = tuple((float(epsilon), float(delta)) for epsilon, delta in claimed)
    lowest = min(min(each["wrong"], each["right"]) for each in corners)
    least = max(_LEAST, 10.0 ** math.floor(math.log10(max(lowest, _LEAST))))
    least = min(least, 0.1)

    def place(point: Point) -> str:
        x, y = (1 - math.log10(min(1.0, max(each, least))) / math.log10(least) for each in point)
        across, up = _WIDE - _LEFT - _RIGHT, _HIGH - _TOP - _BOTTOM
        return f"{_LEFT + across * x:.1f},{_TOP + up * (1 - y):.1f}"

    grid = [least ** (1 - k / _STEPS) for k in range(_STEPS + 1)]
    line = " ".join(place((x, most(points, x))) for x in grid)
    beyond = sum(each["right"] > each["claimed"] for each in corners)
    said = f"It goes beyond the claim at {beyond} of {len(corners)} thresholds."
    title = "How well the two sides were told apart"
    text = (
        "Across: how often a guess is made where it is wrong, at most. Up: how often it is made "
        "where it is right, at least. All points hold together with the confidence of the audit. "
        f"The line is the most that the claim allows; a point above it refutes the claim. {said}"
    )
    shapes = [
        *_frame(least, place),
        f'<polygon points="{line} {place((1, 1))} {place((least, 1))}" fill="#d55e00" '
        'fill-opacity=".12"/>',
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2.5"/>',
        *_corners(corners, place),
        *_legend(),
    ]
    return (
        f'<svg viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" role="img" class="plot" '
        'aria-labelledby="tradeoff-title tradeoff-text" font-size="12" fill="currentColor">'
        f'<title id="tradeoff-title">{escape(title)}</title>'
        f'<desc id="tradeoff-text">{escape(text)}</desc>{"".join(shapes)}</svg>'
    )


def _frame(least: float, place: Any) -> Iterator[str]:
    """Draw both axes with a tick for each power of ten."""
    for k in range(round(-math.log10(least)) + 1):
        value = 10.0**-k
        name = "1" if k == 0 else f"{value:g}"
        x = place((value, least)).partition(",")[0]
        y = place((least, value)).partition(",")[2]
        yield (
            f'<path d="M{x} {_TOP}V{_HIGH - _BOTTOM}M{_LEFT} {y}H{_WIDE - _RIGHT}" '
            'stroke="currentColor" stroke-opacity=".15"/>'
            f'<text x="{x}" y="{_HIGH - _BOTTOM + 16}" text-anchor="middle">{name}</text>'
            f'<text x="{_LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{name}</text>'
        )
    middle = (_TOP + _HIGH - _BOTTOM) / 2
    yield (
        f'<text x="{(_LEFT + _WIDE - _RIGHT) / 2}" y="{_HIGH - 8}" text-anchor="middle">'
        "wrong guesses, at most</text>"
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        "right guesses, at least</text>"
    )


def _corners(corners: Sequence[Mapping[str, Any]], place: Any) -> Iterator[str]:
    """Draw dots for guesses of the first side, squares for the second; filled beyond the claim."""
    for each in corners:
        x, y = place((each["wrong"], each["right"])).split(",")
        fill = "#d55e00" if each["right"] > each["claimed"] else "none"
        yield _mark(float(x), float(y), each["guess"] == "first", fill)


def _mark(x: float, y: float, round_: bool, fill: str) -> str:
    drawn = f'fill="{fill}" stroke="#d55e00" stroke-width="1.5"'
    if round_:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {drawn}/>'
    return f'<rect x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4" {drawn}/>'


def _legend() -> Iterator[str]:
    x, y = _WIDE - _RIGHT - 190, _HIGH - _BOTTOM - 74
    yield f'<path d="M{x - 8} {y}h16" stroke="#0072b2" stroke-width="2.5"/>'
    yield _mark(x, y + 20, True, "none") + _mark(x, y + 40, False, "none")
    yield _mark(x - 5, y + 60, True, "#d55e00") + _mark(x + 5, y + 60, False, "#d55e00")
    names = ("claimed, at most", "shown, by guesses of the first", "of the second", "beyond it")
    for k, name in enumerate(names):
        yield f'<text x="{x + 16}" y="{y + 20 * k + 4}">{name}</text>'
