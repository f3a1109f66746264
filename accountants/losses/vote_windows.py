"""How the loss of many votes moves near the data set at hand: smooth sensitivity, and a distance.

A *place* is the pair of a query's largest count and its cell (`vote_gaps`); a *table* holds
a bound for each place. A data set has one place for each of m queries, and its total is
``f(D) = sum_j t(c_j)``. Exchanging a voter moves every query's place into its *window*: the rows
within 1 and the cells within 17 (where 8 are a unit). After d exchanges it is in the d-th window,
d times as wide, which is d windows one after the other: both are boxes, cut off at the table's
edges.

One voter moves its vote in all queries at once, so what one exchange changes is a sum over queries.

**Sensitivity.** Let ``w(c)`` be the most that t moves from c inside of its window. Then
``LS_d(D) = sum_j max w`` over the d-th window of ``c_j`` bounds how far f moves between neighbours
of which one is within d exchanges of D; and ``LS_d(D) <= LS_{d+1}(D')``, since the d-th window of
``c_j`` lies in the (d+1)-th of ``c'_j``. So ``S(D) = max_d e^{-beta d} LS_d(D)`` is at least LS_0,
and ``S(D) <= e^beta S(D')`` (Nissim, Raskhodnikova and Smith 2007, sec. 3.1); d ends at K, where
windows are the whole table. This holds in floats too: tables are whole steps of a power of two
that add up without rounding, and the weights ``e_d`` in place of ``e^{-beta d}`` are floats with
``e_d <= e^beta (1 - 6u) e_{d+1}``, u the rounding of a product, or equal ones.

**Distance.** ``F_d(D) = sum_j max t`` over d-th windows bounds f within d exchanges, and
``F_d(D) <= F_{d+1}(D')``. So the least d with ``F_d > budget`` moves by at most 1; it is 0 where f
itself is above, and K + 1 where no data set is. (own proof)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.losses.vote_gaps import Places
from accountants.rounding import Array, up

_LEAST_WEIGHT = 1e-200


@frozen(eq=False)
class Table:
    """A table in whole steps, so that sums over all queries are exact.

    Parameters
    ----------
    steps
        Shape (rows, cells): bounds, rounded up, in steps.
    unit
        A step, a power of two, in nats.
    first
        The largest count that the first row stands for.
    reach
        How far cells of neighbours are apart, at most.
    worst
        What one query loses on any data set, in steps.
    """

    steps: Array
    unit: float
    first: int
    reach: int
    worst: float


def table(values: Array, worst: float, queries: int, first: int, reach: int) -> Table:
    """Return a table of bounds that are at most ``worst``, for so many queries."""
    # sums over all queries stay below 2^52 steps, which float64 adds exactly
    bits = 51 - max(1, queries).bit_length()  # queries * 2^(bits + 1) is at most 2^52
    unit = math.ldexp(1.0, max(-1000, math.frexp(worst)[1] - bits))
    most = float(np.ceil(worst / unit))
    # rounded up to whole steps: bounds stay bounds
    return Table(np.ceil(np.atleast_2d(values) / unit), unit, first, reach, most)


def _windows(steps: Array, reach: int) -> Iterator[Array]:
    """Yield the largest step in each place's 0th window, its first, its second and so on."""
    while True:
        yield steps
        steps = _largest(steps, reach)


def rows_near(values: Array) -> Array:
    """Return the largest of each row's values and those of the rows beside it."""
    values = np.atleast_2d(values)
    rows = values.copy()
    np.maximum(rows[1:], values[:-1], out=rows[1:])
    np.maximum(rows[:-1], values[1:], out=rows[:-1])
    return rows


def _largest(steps: Array, reach: int) -> Array:
    """Return the largest step in each place's window."""
    from scipy import ndimage  # here: it takes long to import

    largest: Array = ndimage.maximum_filter1d(
        rows_near(steps), 2 * reach + 1, axis=1, mode="nearest"
    )
    return largest


def _at(known: Table, places: Places) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    one = len(known.steps) == 1
    return np.zeros_like(places.top) if one else places.top - known.first, places.cell


def smooth_votes(known: Table, places: Places, teachers: int, beta: float) -> tuple[float, float]:
    """Return f and its beta-smooth sensitivity; queries without a place count as the worst one."""
    steps, at, times = known.steps, _at(known, places), places.times
    # the most that t rises or falls inside of the window: w of the docstring
    moves = np.maximum(_largest(steps, known.reach) - steps, _largest(-steps, known.reach) + steps)
    unknown = places.wrong * known.worst
    value = float(times @ steps[at]) + unknown
    most = float(moves.max()) * float(times.sum()) + unknown
    best, weight, shrink = 0.0, 1.0, math.exp(-beta)
    for distance, window in enumerate(_windows(moves, known.reach)):
        local = float(times @ window[at]) + unknown
        # max over d of e_d LS_d
        best = max(best, weight * local)
        # rounded up, so that e_d <= e^beta e_{d+1} holds in floats
        weight = min(weight, max(_LEAST_WEIGHT, up(weight * shrink, 8)))
        # the d-th window is the whole table, or no later product can be larger
        if distance == teachers or best >= weight * most:  # no later window can exceed it
            break
    return value * known.unit, best * known.unit


def votes_distance(known: Table, places: Places, teachers: int, budget: float) -> int:
    """Return the least d with ``F_d > budget``; queries without a place count as the worst one."""
    at, times = _at(known, places), places.times
    unknown = places.wrong * known.worst
    most = float(known.steps.max()) * float(times.sum()) + unknown
    if most * known.unit <= budget:
        return teachers + 1
    for away, window in enumerate(_windows(known.steps, known.reach)):
        # the first d at which F_d exceeds the budget
        if (float(times @ window[at]) + unknown) * known.unit > budget:
            return away
        if away == teachers:
            break
    return teachers + 1
