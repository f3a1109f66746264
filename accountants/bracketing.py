"""One-dimensional search: the value at which a monotone cost meets a target, and stays within.

The search sees logarithms, in which costs are close to straight lines, and ends where two values
next to each other were seen on either side of the target. The answer is a short number between the
two if one is within the target, or the one that is, rounded away from the target to as many digits
as were asked for: the last bits of costs differ between machines, and answers should not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN

from attrs import frozen

from accountants.rounding import to_digits

FINEST = 1e-14
"""Below this a logarithm has no digits."""

_NEAREST = 1e-300
"""The gap of a cost above the target whose logarithm is the target's."""


@frozen
class Point:
    """A value that was tried.

    Parameters
    ----------
    value
        The value; an integer where only those are asked for.
    at
        Its logarithm, or minus that where the cost rises: the cost falls in ``at``.
    gap
        log(cost / target), positive exactly where the cost is not within the target.
    """

    value: float
    at: float
    gap: float


@frozen
class Search:
    """What is searched.

    Parameters
    ----------
    cost
        A number for each value; what is not a number counts as infinite.
    target
        Positive and finite.
    least, most
        The values that may be tried, positive.
    falls
        Whether the cost falls in the value.
    digits
        Relative width of the final bracket; without meaning for integers.
    whole
        Whether values are integers; then the final bracket is two neighbours.
    """

    cost: Callable[[float], float]
    target: float
    least: float
    most: float
    falls: bool = True
    digits: float = 1e-10
    whole: bool = False

    def see(self, value: float) -> Point:
        """Return the point of a value."""
        return Point(value, self.place(value), gap(self.cost(value), self.target))

    def value(self, at: float) -> float:
        """Return the value at a place, or the nearest one that may be tried."""
        value = math.exp(min(709.0, at if self.falls else -at))
        if self.whole:
            value = round(value)
        return min(max(value, self.least), self.most)

    def place(self, value: float) -> float:
        """Return the place of a value."""
        return math.log(value) if self.falls else -math.log(value)

    def edge(self, side: int) -> float:
        """Return the value that costs least (side 1) or most."""
        return self.most if (side > 0) == self.falls else self.least


def gap(cost: float, target: float) -> float:
    """Return log(cost / target), positive exactly where the cost is not within the target."""
    if not cost < math.inf:
        return math.inf
    if cost <= 0:
        return -math.inf
    # a difference of logarithms: the quotient of a tiny cost would underflow
    excess = math.log(cost) - math.log(target)
    return min(0.0, excess) if cost <= target else max(_NEAREST, excess)


def boundary(search: Search, start: float) -> Point | None:
    """Return the last point within the target; None where no value is.

    The point was evaluated. Beside it, within twice ``digits``, lies a value that was seen not to
    be within the target, unless the point is the dearest value that may be tried.
    """
    # walk outward until the target lies between two values that were both evaluated
    seen = [search.see(min(max(start, search.least), search.most))]
    side = 1 if seen[0].gap > 0 else -1
    while (seen[-1].gap > 0) == (side > 0):
        if seen[-1].value == search.edge(side):
            return None if side > 0 else seen[-1]
        seen.append(_outward(search, seen, side))
    dear, safe = seen[-2:] if side > 0 else (seen[-1], seen[-2])
    return _rounded(search, *_narrowed(search, seen, dear, safe))


def _rounded(search: Search, dear: Point, safe: Point) -> Point:
    """Return a point of few digits that is within the target.

    The shortest number between the ends, if it is; or the safe end rounded away from the target.
    """
    if search.whole:
        return safe
    most = min(15, 1 + math.ceil(-math.log10(search.digits)))
    low, high = sorted((dear.value, safe.value))
    short = (to_digits(safe.value, count, ROUND_HALF_EVEN) for count in range(1, most))
    away = to_digits(safe.value, most, ROUND_CEILING if search.falls else ROUND_FLOOR)
    first = next((each for each in short if low < each < high), away)
    for value in dict.fromkeys((first, away)):  # each seen once
        if search.least <= value <= search.most:
            point = search.see(value)
            # the rounded number is evaluated too: nothing is returned on trust
            if point.gap <= 0:
                return point
    return safe


def _outward(search: Search, seen: Sequence[Point], side: int) -> Point:
    """Return the next point on the way to the other side of the target.

    At first as if the cost were a power -1 of the value; then on the line through the last two.
    """
    last, known = seen[-1], [point for point in seen if math.isfinite(point.gap)]
    moved = abs(last.at - seen[-2].at) if len(seen) > 1 else 0.0
    slope = -1.0 if len(known) < 2 else _slope(known[-2], known[-1])
    step = 1.1 * abs(last.gap / slope) if slope and math.isfinite(last.gap) else math.log(2.0)
    least = 0.3 * moved if len(known) > 1 and len(seen) < 4 else 2 * moved
    place = last.at + side * min(max(step, least, 1e-6), max(2.0, 4 * moved))
    value = search.value(place)
    if search.whole and value == last.value:
        value += 1 if (side > 0) == search.falls else -1
    return search.see(min(max(value, search.least), search.most))


def _narrowed(search: Search, seen: list[Point], dear: Point, safe: Point) -> tuple[Point, Point]:
    """Return the ends once the bracket is narrow.

    Where three steps have not halved the bracket the next one does, whatever the cost is like.
    """
    widths = [math.inf] * 3
    while not _narrow(search, dear, safe):
        width = safe.at - dear.at
        slow = width > widths[-3] / 2
        at = (dear.at + safe.at) / 2 if slow else _guess(search, seen, dear, safe)
        # `safe` is only ever replaced by an evaluated value within the target
        middle = _between(search, at, dear, safe)
        if middle is None:
            break
        widths = [math.inf] * 3 if slow else [*widths[1:], width]
        seen.append(middle)
        dear, safe = (middle, safe) if middle.gap > 0 else (dear, middle)
    return dear, safe


def _narrow(search: Search, dear: Point, safe: Point) -> bool:
    if search.whole:
        return abs(safe.value - dear.value) <= 1
    return safe.at - dear.at <= search.digits


def _between(search: Search, at: float, dear: Point, safe: Point) -> Point | None:
    """Return the point at a place, which must lie strictly between the ends."""
    low, high = sorted((dear.value, safe.value))
    value = search.value(at)
    if search.whole:
        value = min(max(value, low + 1), high - 1)
    if not low < value < high:
        value = (low + high) / 2
    return search.see(value) if low < value < high else None


def _guess(search: Search, seen: Sequence[Point], dear: Point, safe: Point) -> float:
    """Return where the next point should be.

    The best estimate of the crossing is that of the parabola through the three points nearest to
    the target; it is missed on purpose, by about its error, on the side of the farther end, so
    that both ends come closer.
    """
    width, middle = safe.at - dear.at, (dear.at + safe.at) / 2
    known = sorted((p for p in seen if math.isfinite(p.gap)), key=lambda p: abs(p.gap))[:3]
    line = _line(known[0], known[1]) if len(known) > 1 else math.nan
    cut = _parabola(known) if len(known) > 2 else line
    if not dear.at < cut < safe.at:
        return middle
    grain = 0.6 / safe.value if search.whole else search.digits / 3
    error = abs(cut - line) * min(1.0, abs(known[-1].at - cut))
    miss = min(max(error, grain), width / 4)
    return cut + miss if safe.at - cut > cut - dear.at else cut - miss


def _slope(one: Point, other: Point) -> float:
    return (other.gap - one.gap) / (other.at - one.at) if other.at != one.at else 0.0


def _line(one: Point, other: Point) -> float:
    slope = _slope(one, other)
    return one.at - one.gap / slope if slope < 0 else math.nan


def _parabola(points: Sequence[Point]) -> float:
    """Return where the place, as a quadratic function of the gap, has gap 0."""
    a, b, c = points
    if len({a.gap, b.gap, c.gap}) < 3 or len({a.at, b.at, c.at}) < 3:
        return _line(a, b)
    first, second = (b.at - a.at) / (b.gap - a.gap), (c.at - b.at) / (c.gap - b.gap)
    if not (first < 0 and second < 0):
        return _line(a, b)
    bend = (second - first) / (c.gap - a.gap)
    return a.at - a.gap * first + a.gap * b.gap * bend
