"""Every way to put a unit's rows into parts, counted in steps."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from adaptive_dp.graph.change import Change

Share = tuple[int, int]
"""How many of a unit's rows a part gets, in the one data set and in the other."""

Split = tuple[tuple[int, Share], ...]
"""Parts, with the share of each."""


def steps(rows: int, growth: float, most: int) -> list[int]:
    """Return whole numbers from 1 to ``rows``, each at most ``growth`` times the one before.

    Where that is not possible they follow each other. Empty where they would be more than ``most``.

    Examples
    --------
    >>> steps(20, 1, 64) == list(range(1, 21)), steps(20, 2, 64)
    (True, [1, 2, 4, 8, 16, 20])
    """
    found = [1]
    while found[-1] < rows:
        if len(found) >= most:
            return []
        found.append(min(rows, max(found[-1] + 1, math.floor(min(growth * found[-1], rows)))))
    return found


class _TooMany(Exception):
    """There are more splits than anyone wants."""


def _totals(change: Change) -> list[Share]:
    """Return how many rows a unit may have in the two data sets; fewer are dominated."""
    if not change.replaced:
        return [(change.rows, 0)]
    least = (change.both + 1) // 2
    return [(rows, change.both - rows) for rows in range(change.rows, least - 1, -1)]


def chargeable(found: Sequence[int], change: Change) -> list[Share]:
    """Return the shares that a part can be charged at, the larger number first."""
    if not change.replaced:
        return [(a, 0) for a in found]
    least = dict(zip(found, (0, *found), strict=False))  # a step stands for more rows than this
    return [
        (a, b)
        for a in found
        for b in (0, *found)
        if b <= a and least[a] + least.get(b, -1) + 2 <= change.both
    ]


def ways(
    kinds: Sequence[Sequence[int]], found: Sequence[int], change: Change, most: int
) -> list[Split] | None:
    """Return each way to put rows into parts, in steps; None if there are more than ``most``.

    Of equal parts (a kind) one order is enough, and a split that another one exceeds is left out.
    """
    step, least = (0, *found), (0, *(s + 1 for s in (0, *found[:-1])))
    work = 0
    result: list[Split] = []
    parts = sum(map(len, kinds))

    def fit(left: int) -> int:
        return bisect_right(least, left) - 1

    def place(kind: int, at: int, left: Share, limit: Share, before: tuple[Any, ...]) -> None:
        """Place what is left from a part on; ``limit`` is the share of the equal part before."""
        nonlocal work
        if left == (0, 0):
            keep(before, left)
            return
        for k in range(kind, len(kinds)):
            at, limit = (at, limit) if k == kind else (0, (len(found), len(found)))
            if at == len(kinds[k]):
                continue
            best = (fit(left[0]), fit(left[1]))
            last = k == len(kinds) - 1 and at == len(kinds[k]) - 1
            for a in [best[0]] if last else range(best[0], -1, -1):
                for b in [best[1]] if last else range(best[1], -1, -1):
                    work += 1
                    if work > 16 * most or len(result) > most:
                        raise _TooMany
                    if (0, 0) < (a, b) <= limit:
                        rest = (left[0] - least[a], left[1] - least[b])
                        chosen = (*before, (kinds[k][at], (a, b)))
                        if last:
                            keep(chosen, rest)
                        else:
                            place(k, at + 1, rest, (a, b), chosen)

    def keep(chosen: tuple[Any, ...], left: Share) -> None:
        """Keep a split unless a share can be raised with the rows that are left."""
        levels = [share for _, share in chosen]
        levels += [(0, 0)] if len(chosen) < parts else []
        for side in (0, 1):
            for share in levels:
                j = share[side]
                if j < len(found) and least[j + 1] - least[j] <= left[side]:
                    return
        result.append(tuple((i, (step[a], step[b])) for i, (a, b) in chosen))

    try:
        for total in _totals(change):
            place(0, 0, total, (len(found), len(found)), ())
    except (_TooMany, RecursionError):
        return None
    return result
