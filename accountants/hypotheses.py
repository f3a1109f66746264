"""Hypothesis tests of membership: what a privacy profile implies for their errors.

With the unit in the data an event S has probability P(S), without it Q(S). A profile delta,
of both directions, allows ``P(S) <= delta(eps) + e^eps Q(S)`` and the same with P and Q exchanged,
at every eps >= 0. With ``t = e^eps`` for any real eps and

``k(t) = min(1, t) (1 - delta(|log t|))``

both read ``1 - P(S) >= k(t) - t Q(S)`` (the second one with the complement of S). So the least
false-negative rate at a false-positive rate a is ``max_t k(t) - t a`` (Dong, Roth and Su 2022,
Prop. 6, whose two terms are t >= 1 and t <= 1), and whatever else can be said of an event is such
a maximum as well.

``1 - k`` is the larger of two hockey-sticks at every t > 0. So k is concave and rises, with a
slope of at most 1, from k(0) = 0: between and beside the points where it was bounded it lies below
the chords next to it, drawn on. That bounds the maximum over all t, from finitely many points.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.rounding import UNIT, Array

Profile = Callable[[Array], tuple[Array, Array]]
"""Non-negative epsilons in, lower and upper bounds of delta out."""

Question = Callable[[Array, Array, int], Array]
"""Values of t and k and a side in (n, n), values out, a row for each thing asked (m, n).

Rising in k, and on a straight line of (t, k) greatest at one of its ends. Rounded up where the side
is 1, down where it is -1.
"""

_GRID = np.concatenate([[0.0], np.geomspace(1e-5, 700.0, 30)])
_START = np.concatenate([-_GRID[:0:-1], _GRID])

_QUIET = 1e-18
"""Below this a delta is lost beside 1, so that no more need be known of it."""


@frozen(eq=False)
class Knots:
    """Bounds of k at points: log t, t, and the lower and upper bound of k(t), rising in t."""

    log_t: Array
    t: Array
    low: Array
    high: Array

    def joined(self, other: Knots) -> Knots:
        """Return all points of both, each once."""
        log_t = np.concatenate([self.log_t, other.log_t])
        _, order = np.unique(log_t, return_index=True)
        both = zip((self.t, self.low, self.high), (other.t, other.low, other.high), strict=True)
        return Knots(log_t[order], *(np.concatenate(pair)[order] for pair in both))

    def corners(self) -> tuple[Array, Array]:
        """Return the corners (t, k) of a polygon that lies above the curve, beside the knots.

        In a segment both the chord before it and the chord after it, drawn on, lie above k; the
        polygon has a corner where they meet. Where they do not meet inside, one of them is below
        the other throughout and needs none. Before the first knot k is at most its value there,
        and after the last one at most 1.
        """
        t, low, high = (np.concatenate([[0.0], each]) for each in (self.t, self.low, self.high))
        with np.errstate(all="ignore"):
            length = np.diff(t)
            # chords drawn on: steepest before, flattest after, by the bounds' outer ends
            before = np.minimum((high[1:] - low[:-1]) / length, 1.0)[:-1]
            after = np.append(np.maximum((low[1:] - high[:-1]) / length, 0.0)[2:], 0.0)
            # where the two lines meet, from the segment's left end
            along = (high[2:] - high[1:-1] - after * length[1:]) / (before - after)
            inside = (along > 0) & (along < length[1:])
            place, value = (t[1:-1] + along)[inside], (high[1:-1] + before * along)[inside]
        return np.concatenate([[0.0], place, t[-1:]]), np.concatenate([high[1:2], value, [1.0]])


def knots(profile: Profile, log_t: Array) -> Knots:
    """Return the bounds of k at points.

    The float t is off by a few units from ``e^log_t``; since ``t k'(t) <= k(t)``, k at t is then
    off by as many.
    """
    with np.errstate(over="ignore"):
        t = np.exp(log_t)
    sizes, where = np.unique(np.abs(log_t), return_inverse=True)
    lower, upper = (bound[where] for bound in profile(sizes))
    # min(1, t): the slope of k is at most 1
    least = np.minimum(1.0, t)
    # k(t) = min(1, t) (1 - delta), each end with the other end of delta
    low, high = least * (1 - upper), least * (1 - lower)
    return Knots(log_t, t, low * (1 - 16 * UNIT), np.minimum(high * (1 + 16 * UNIT), least))


def quiet(profile: Profile) -> Profile:
    """Return the profile, not asked where it is known to be next to nothing, for it only falls.

    Epsilons are asked in rising order, some at a time.
    """
    found = [(math.inf, 0.0)]

    def bounds(epsilons: Array) -> tuple[Array, Array]:
        order = np.argsort(epsilons)
        lower, upper = np.zeros(len(order)), np.zeros(len(order))
        for part in np.array_split(order, max(1, len(order) // 4)):
            beyond, upper[part] = found[0]
            asked = part[epsilons[part] < beyond]
            if len(asked):
                lower[asked], upper[asked] = profile(epsilons[asked])
                small = asked[upper[asked] <= _QUIET]
                if len(small):
                    found[0] = (float(epsilons[small[0]]), float(upper[small[0]]))
        return lower, upper

    return bounds


def greatest(
    profile: Profile, question: Question, digits: float | Array = 5e-12, rounds: int = 40
) -> tuple[Array, Array]:
    """Return lower and upper bounds of ``max over t > 0 of question(t, k(t))``, for each question.

    The points where the maximum is, and where the polygon's is, are surrounded by more of them,
    until the bounds are within ``digits`` of each other (one for all, or one for each question) or
    come no closer.
    """
    profile = quiet(profile)
    known = knots(profile, _START)
    widths = [math.inf]
    for _ in range(rounds):
        place, value = known.corners()
        at_knots, above = question(known.t, known.low, -1), question(known.t, known.high, 1)
        at_corners = question(place, value * (1 + 64 * UNIT), 1)
        lower = at_knots.max(axis=1)
        # the polygon lies above the curve, so its corners and the knots' upper bounds bound the
        # maximum
        upper = np.maximum(at_corners.max(axis=1), above.max(axis=1))
        wide = (upper - lower) / digits
        widths.append(float(wide.max()))
        if widths[-1] <= 1 or (len(widths) > 5 and widths[-1] > 0.9 * widths[-5]):
            break
        more = wide > 1
        corner = place[at_corners[more].argmax(axis=1)]  # where a kink is, there it is
        best = [at_knots[more].argmax(axis=1), above[more].argmax(axis=1)]
        new = _around(known.log_t, np.concatenate([*best, np.searchsorted(known.t, corner)]))
        inner = corner[(corner > known.t[0]) & (corner < known.t[-1])]
        known = known.joined(knots(profile, np.union1d(new, np.log(inner))))
    return lower, upper


def _around(log_t: Array, where: NDArray[np.int64]) -> Array:
    """Return new points in the segments beside the knots ``where``."""
    cells = np.unique(np.clip(np.concatenate([where - 1, where]), 0, len(log_t) - 2))
    middle = (log_t[cells] + log_t[cells + 1]) / 2
    return np.setdiff1d(middle, log_t)
