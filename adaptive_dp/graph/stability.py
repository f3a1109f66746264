"""What mechanisms read that follow the data: a number with its local sensitivities, or a choice.

Nouns. A *step* is one changed row: one added or removed, or one exchanged, as the query says.
The *distance* of two data sets is the least number of steps between them. The *local sensitivity
at distance k* of a number f at a data set x is the most that f moves in one step from any data
set within k steps of x: A_0 <= A_1 <= ..., and ``A_k(x) <= A_{k+1}(x')`` for neighbours x, x'.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from attrs import frozen

SLACK = 2.0**-43
"""Relative error, upward, of what `Stability.smooth` returns."""


class Stability(ABC):
    """A private number in declared bounds, and how far it moves near the data.

    Attributes
    ----------
    lower, upper
        Bounds that do not depend on the data.

    Examples
    --------
    The largest of values in [0, 100]: from within k steps, one more moves it by no more than the
    way from the (k+2)nd largest to 100:

    >>> import adaptive_dp as dp
    >>> class Largest(dp.Stability):
    ...     lower, upper = 0.0, 100.0
    ...
    ...     def __init__(self, values):
    ...         self.values = [self.lower, *sorted(values)]
    ...
    ...     @property
    ...     def value(self):
    ...         return self.values[-1]
    ...
    ...     @property
    ...     def last(self):
    ...         return len(self.values) - 2
    ...
    ...     def local(self, distance):
    ...         return self.upper - self.values[-2 - min(distance, self.last)]
    >>> largest = Largest([10.0, 80.0, 95.0, 99.0])
    >>> [largest.local(k) for k in range(4)], largest.within(10.0)
    ([5.0, 20.0, 90.0, 100.0], 1)
    >>> round(largest.smooth(beta=1.0), 3)
    12.18
    """

    lower: float
    upper: float

    @property
    @abstractmethod
    def value(self) -> float:
        """f(x), inside the bounds."""

    @property
    @abstractmethod
    def last(self) -> int:
        """A distance from which on the local sensitivity does not grow."""

    @abstractmethod
    def local(self, distance: int) -> float:
        """Return A_k at ``k = distance``, or a bound of it.

        A bound serves as well if it keeps the two laws above: at least A_k, and
        ``local_k(x) <= local_{k+1}(x')``. At most ``upper - lower``, to a relative 2^-50.
        """

    def smooth(self, beta: float, least: float = 0.0) -> float:
        """Return the beta-smooth sensitivity ``S(x) = max_k e^{-beta k} A_k``, at least ``least``.

        The least function with ``S >= A_0`` and ``S(x) <= e^beta S(x')`` for neighbours (Nissim,
        Raskhodnikova and Smith 2007, Def. 2.2). Too large by at most a relative `SLACK`, while it
        is above 1e-200 of the width (``beta k`` is then rounded by less than 2^-44).
        """
        found = _largest(self.local, self.last, lambda k, a: math.exp(-beta * k) * a, least)
        return found * (1 + SLACK / 2)

    def linear(self, slope: float, least: float = 0.0) -> float:
        """Return ``max_k A_k - slope k``, at least ``least``: it moves by at most ``slope`` a step.

        Where A_0 itself moves by no more, it is A_0. Never below A_0, and exact to 2^-42 of the
        width.
        """
        found = _largest(self.local, self.last, lambda k, a: a - slope * k, least)
        return found * (1 + SLACK / 2)

    def within(self, bound: float) -> int:
        """Return the number of steps to where the local sensitivity exceeds ``bound``.

        The least k with ``A_k > bound``; `FOREVER` where there is none. It moves by at most 1.
        """
        if self.local(self.last) <= bound:
            return FOREVER
        low, high = -1, self.last
        step = 1
        while low + step < high and self.local(low + step) <= bound:
            low, step = low + step, 2 * step
        high = min(high, low + step)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.local(middle) > bound else (middle, high)
        return high


FOREVER = 2**53
"""A distance beyond any data set."""


@frozen
class Choice:
    """A private choice among candidates, and how many steps it withstands.

    Parameters
    ----------
    index
        f(x), a candidate's position.
    distance
        The least number of steps after which one more may change f: 0 where a neighbour has
        another f. A lower bound of it serves as well if it moves by at most 1 a step between
        data sets of the same f, and is 0 where a neighbour's f is another.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.noise.stream import SeededStream
    >>> leads = dp.Choice(index=0, distance=40)  # forty steps until another may lead
    >>> leads
    <private choice>
    >>> told = dp.DistanceToInstability(epsilon=1.0, delta=1e-6)
    >>> told.release(leads, SeededStream(1)), told.release(dp.Choice(0, 1), SeededStream(1))
    (array(0.), array(nan))
    """

    index: int
    distance: int

    def __repr__(self) -> str:
        return "<private choice>"


def _largest(
    local: Callable[[int], float],
    last: int,
    weight: Callable[[int, float], float],
    least: float,
) -> float:
    """Return the maximum of ``weight(k, A_k)`` over k = 0, ..., last, and of ``least``.

    The weight falls in k and grows in A_k, which grows in k: no k between two known ones weighs
    more than the first of them would at the other's A. Where that is not above the best so far,
    nothing between is looked at (branch and bound); what could be the largest is halved first.
    """
    here = local(0)
    best = max(least, weight(0, here))
    queue: list[tuple[float, int, int, float]] = []
    top = local(last) if last > 0 else here
    low, step = 0, 1
    while low < last and weight(low + 1, top) > best:  # not beyond where all is too light
        high = min(last, low + step)
        there = local(high)
        best = max(best, weight(high, there))
        queue.append((-weight(low + 1, there), low, high, there))
        low, step = high, 2 * step
    heapq.heapify(queue)
    while queue and -queue[0][0] > best:
        _, low, high, there = heapq.heappop(queue)
        if high - low < 2:
            continue
        middle = (low + high) // 2
        between = local(middle)
        best = max(best, weight(middle, between))
        heapq.heappush(queue, (-weight(low + 1, between), low, middle, between))
        heapq.heappush(queue, (-weight(middle + 1, there), middle, high, there))
    return best
