"""Synthetic rows: drawn from the tree of a model, and fitted to all tables that were read.

All of it is post-processing of a released model, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.synthesis.model import PRIOR, Floats, Model
from adaptive_dp.synthesis.workload import Axis, Columns, subsets

Integers = NDArray[np.signedinteger[Any]]

POOL = (4, 16, 20_000, 400_000)
"""Rows are chosen of so many times their number: at least 4, at most 16 but of 20,000 at least, and
of more than 400,000 only where 4 times are more."""

SWEEPS = 10
"""How often the pool's weights are fitted to each table that was read or is wanted."""

SWAPS = 100
"""How often rows are exchanged for others of the pool, to bring counts nearer to read tables."""

MOVES = 20
"""How often some values of each column are changed after that."""

MOVED = 0.002
"""The share of rows whose value in a column the first of these changes; later ones change fewer."""

PAIR_MOVES, PAIR_MOVED = 60, 0.001
"""The same where values are changed towards all pairs, of which each change moves many: so few at
once that they do not overshoot."""

SWAPPED = 0.008
"""The share of rows that the first exchange moves; later ones move less."""

DRAWS = 20
"""How often rows are drawn again in place of those in impossible cells."""

REPAIRS = 200
"""How often the columns of an impossible cell are drawn again, of rows that are left."""

FRESH = 256
"""Of how many drawn rows at least those that are repaired take columns."""

TRIED = 20
"""How many rows are looked at for each that is exchanged or changed."""

AT_ONCE = 2**16
"""How many cells of rows are looked at together: half a MB, which a core has nearby."""


def rounded(goals: Floats, total: int, draw: np.random.Generator) -> Integers:
    """Return whole numbers of a given sum near to goals of that sum: each is off by less than 1.

    What is left after rounding down is given to cells at random, by systematic sampling.

    >>> rounded(np.array([1.5, 0.5, 2.0]), 4, np.random.default_rng(1)).sum()
    np.int64(4)
    """
    scaled = goals.reshape(-1) * (total / max(float(goals.sum()), 1e-300))
    whole = np.floor(scaled + 1e-9)
    rest = np.maximum(scaled - whole, 0.0)
    left = total - int(whole.sum())
    order = draw.permutation(len(whole))
    ends = np.cumsum(rest[order])
    if left > 0 and ends[-1] > 0:
        marks = (np.arange(left) + draw.random()) * (ends[-1] / left)
        places = np.minimum(np.searchsorted(ends, marks, side="right"), len(order) - 1)
        np.add.at(whole, order[places], 1)
    return whole.astype(np.int64)


def tree_codes(model: Model, count: int, draw: np.random.Generator) -> Integers:
    """Return rows of the tree's model, as cells, shape (count, columns).

    Counts of each column and of each pair of the tree are those of the model, rounded.
    """
    codes = np.full((count, len(model.sizes)), -1, dtype=np.int32)
    for start in range(len(model.sizes)):
        if codes[0, start] >= 0:
            continue
        whole = rounded(model.share(start), count, draw)
        codes[:, start] = draw.permutation(np.repeat(np.arange(len(whole)), whole))
        stack = [start]
        while stack:
            at = stack.pop()
            for other in model.neighbors(at):
                if codes[0, other] < 0:
                    _follow(model, codes, at, other, draw)
                    stack.append(other)
    return codes


def _follow(model: Model, codes: Integers, at: int, other: int, draw: np.random.Generator) -> None:
    """Draw a column given one that the tree joins it to."""
    given = model.step(at, other)
    order = np.argsort(codes[:, at], kind="stable")
    sizes = np.bincount(codes[:, at], minlength=model.sizes[at])
    first = 0
    for cell, size in enumerate(sizes):
        if size:
            own = order[first : first + size]
            whole = rounded(given[cell], int(size), draw)
            codes[draw.permutation(own), other] = np.repeat(np.arange(len(whole)), whole)
            first += size


def cell_index(codes: Integers, table: Columns, sizes: tuple[int, ...]) -> Integers:
    """Return the cell of each row in a table."""
    index = np.zeros(len(codes), dtype=np.int32)  # a table has at most 2^20 cells
    for i in table:
        index = index * sizes[i] + codes[:, i]
    return index


def cell_steps(
    tables: Sequence[Columns], sizes: tuple[int, ...]
) -> tuple[Integers, list[tuple[Integers, Integers]]]:
    """Return where each table begins, all tables end to end, and by what columns are multiplied.

    The k-th pair is of the k-th column of each table: its place, and the step of its cells. Of
    tables of fewer columns the step is 0.

    >>> first, steps = cell_steps([(0, 1), (1,)], (2, 3))
    >>> row = np.array([1, 2])
    >>> first + sum(row[places] * factors for places, factors in steps)  # cell 5 of 6, and 2 after
    array([5, 8])
    """
    most = max(map(len, tables), default=0)
    places, factors = np.zeros((2, most, len(tables)), dtype=np.intp)
    for j, table in enumerate(tables):
        step = 1
        for k in reversed(range(len(table))):
            places[k, j], factors[k, j] = table[k], step
            step *= sizes[table[k]]
    lengths = [math.prod(sizes[i] for i in table) for table in tables]
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp)
    return first, list(zip(places, factors, strict=True))


def possible_codes(model: Model, count: int, draw: np.random.Generator) -> Integers:
    """Return rows as of `tree_codes`, most of them of a prior if any, none impossible."""
    if model.prior is None and not model.impossible:
        return tree_codes(model, count, draw)
    known = None
    if model.prior is not None:
        known = sampled_codes(model.prior, min(count, POOL[2]), draw)
    found, left = list[Integers](), count
    for _ in range(DRAWS):
        drawn = tree_codes(model, left, draw)
        if known is not None:
            # a mixture, as tables are completed from
            other = known[draw.integers(len(known), size=left)]
            drawn = np.where(draw.random(left)[:, None] < PRIOR, other, drawn)
        found.append(drawn[model.possible(drawn)])
        left -= len(found[-1])
        if left == 0:
            return np.concatenate(found)
    return np.concatenate([*found, _repaired(model, drawn[~model.possible(drawn)], draw)])


def _repaired(model: Model, rows: Integers, draw: np.random.Generator) -> Integers:
    """Return rows of which the columns of each impossible cell were drawn again until none is left.

    With many conditions hardly any row meets none of them, while each is met by few: drawing again
    what one is of alone is quick (Moser and Tardos 2010). Weights bring the counts back.
    """
    for _ in range(REPAIRS):
        for columns, cells in model.impossible:
            inside = np.ones(len(rows), dtype=bool)
            for i, own in zip(columns, cells, strict=True):
                inside &= own[rows[:, i]] > 0
            again = np.flatnonzero(inside)
            if len(again):
                # counts of few rows are rounded to what is most frequent: some of many are drawn
                fresh = draw.permutation(tree_codes(model, max(len(again), FRESH), draw))
                rows[again[:, None], list(columns)] = fresh[: len(again), list(columns)]
        if model.possible(rows).all():
            return rows
    raise DeclarationError(
        "rows could not be drawn: what is declared to be impossible is most of what was released; "
        "contradictions() names the declarations that released counts contradict"
    )


def sampled_codes(
    model: Model,
    count: int,
    draw: np.random.Generator,
    wanted: Sequence[Columns] = (),
    pairs: Sequence[Columns] = (),
) -> Integers:
    """Return synthetic rows as cells, whose counts are near to all tables that were read.

    And to the answers of those that are wanted beside. Single values are changed towards those of
    the pairs as well, which may be too many for weights and exchanges of whole rows: a value has
    those of its column alone.

    A pool of rows of the tree is weighted so that its weighted counts are those tables (iterative
    proportional fitting over rows), rows are chosen by weight, some of them are exchanged for
    others of the pool where that brings counts nearer, and then some of their values are changed.
    """
    read = [table for table in model.means if len(table) > 1]
    tables = sorted(t for t in read if not any(set(t) < set(other) for other in read))
    inside = {part for table in tables for part in subsets(table)}
    beside = [table for table in wanted if table not in inside]
    near = [pair for pair in pairs if pair not in inside] if tables else []
    known = set(model.edges)
    if model.prior is None and not beside and not near and known.issuperset(tables):
        return possible_codes(model, count, draw)
    least, most, few, many = POOL
    size = max(least * count, min(most * count, many), few)
    # a column's cells lie together: a table reads few columns of all rows
    pool = np.asfortranarray(possible_codes(model, size, draw))
    # what was read comes last in each sweep: weights agree with it
    fitted = [*beside, *tables]
    goals = [model.answer(table).reshape(-1) / model.total for table in fitted]
    places = [cell_index(pool, table, model.sizes) for table in fitted]
    weights = fitted_weights(places, goals, size)
    # neighbours in this order are alike, so that a systematic sample spreads over all cells
    order = np.lexsort(pool.T[::-1])
    ends = np.cumsum(weights[order])
    marks = (np.arange(count) + draw.random()) * (ends[-1] / count)
    chosen = order[np.minimum(np.searchsorted(ends, marks, side="right"), size - 1)]
    lacking = [
        goal * count - np.bincount(place[chosen], minlength=len(goal))
        for place, goal in zip(places, goals, strict=True)
    ]
    del places  # the largest of all
    steps = cell_steps(fitted, model.sizes)
    chosen, left = exchanged(chosen, order, ends, pool, steps, np.concatenate(lacking), draw)
    rows, missing = pool[draw.permutation(chosen)], [left]
    for pair in near:
        goal = model.answer(pair).reshape(-1) * (count / model.total)
        own = cell_index(rows, pair, model.sizes)
        missing.append(goal - np.bincount(own, minlength=len(goal)))
    steps = cell_steps([*fitted, *near], model.sizes)
    return moved(model, rows, steps, np.concatenate(missing), draw, alike=bool(near))


def fitted_weights(places: list[Integers], goals: list[Floats], size: int) -> Floats:
    """Return weights of rows whose sums by cell are near to goals, with a sum of 1.

    Parameters
    ----------
    places
        Of each table the cell of each row.
    goals
        Of each table the share of each cell.
    size
        The number of rows.
    """
    weights = np.full(size, 1 / size)
    for _ in range(SWEEPS):
        for place, goal in zip(places, goals, strict=True):
            # as NumPy's own indices, once for both; kept so they would take twice the memory
            index = place.astype(np.intp)
            sums = np.bincount(index, weights, minlength=len(goal))
            # a cell that no row is in stays empty
            weights *= np.take(goal / np.maximum(sums, 1e-12), index)
        if not weights.sum() > 0:
            return np.full(size, 1 / size)
        weights /= weights.sum()
    return weights


Steps = tuple[Integers, list[tuple[Integers, Integers]]]
"""Where tables begin, and the steps of their columns: see `cell_steps`."""


def cells_in(rows: Integers, steps: Steps) -> Integers:
    """Return the cell of each row in each table, shape (tables, rows)."""
    # integers, since threads of products of matrices may wait for long
    first, columns = steps
    own = rows.T.astype(np.intp)
    found = np.repeat(first[:, None], len(rows), axis=1)
    for places, factors in columns:
        part = own[places]
        part *= factors[:, None]
        found += part
    return found


def exchanged(
    chosen: Integers,
    order: Integers,
    ends: Floats,
    pool: Integers,
    steps: Steps,
    lacking: Floats,
    draw: np.random.Generator,
) -> tuple[Integers, Floats]:
    """Return chosen rows, some exchanged for others of the pool, and what cells lack then.

    Parameters
    ----------
    chosen
        Rows of the pool.
    order, ends
        All rows of the pool in an order, and their weights added up.
    pool
        Rows as cells.
    steps
        Of all tables, as of `cell_steps`.
    lacking
        How many rows the cells of all tables lack, end to end.
    """
    chosen, count, lacking = chosen.copy(), len(chosen), lacking.copy()
    together = max(1, AT_ONCE // len(steps[0]))

    def cells(rows: Integers) -> Integers:
        return cells_in(pool[rows], steps)

    def wanted(rows: Integers) -> Floats:
        parts = [rows[i : i + together] for i in range(0, len(rows), together)]
        return np.concatenate([signs[cells(part)].sum(axis=0) for part in parts])

    for k in range(SWAPS):
        size = max(1, int(SWAPPED * count * (1 - k / SWAPS)))
        tried = min(TRIED * size, count)
        out = draw.choice(count, tried, replace=False)
        marks = draw.random(tried) * ends[-1]
        into = order[np.minimum(np.searchsorted(ends, marks, side="right"), len(order) - 1)]
        signs = np.clip(lacking, -1.0, 1.0)
        leaving, coming = wanted(chosen[out]), wanted(into)
        # those of cells that have too many rows, for those of cells that have too few
        worst = np.argsort(leaving, kind="stable")[:size]
        best = np.argsort(-coming, kind="stable")[:size]
        gain = coming[best] > leaving[worst]
        gone, come = out[worst[gain]], into[best[gain]]
        for i in range(0, len(gone), together):
            np.add.at(lacking, cells(chosen[gone[i : i + together]]).reshape(-1), 1.0)
            np.subtract.at(lacking, cells(come[i : i + together]).reshape(-1), 1.0)
        chosen[gone] = come
    return chosen, lacking


def moved(
    model: Model,
    rows: Integers,
    steps: Steps,
    lacking: Floats,
    draw: np.random.Generator,
    *,
    alike: bool = False,
) -> Integers:
    """Return rows of which some values are changed, where that brings counts nearer.

    An exchange of rows changes the counts of all tables, and when counts are near, as many for
    worse as for better; a value changes those of the tables of its column alone.

    Parameters
    ----------
    model
        Of which rows are possible.
    rows
        Rows as cells.
    steps, lacking
        Of all tables, as of `exchanged`.
    alike
        Whether values are those of rows that are alike, in more and smaller steps: where there are
        tables beside these that are to stay as they are.
    """
    rows, lacking = np.asfortranarray(rows), lacking.copy()
    first, columns = steps
    own: list[tuple[Steps, Integers]] = []
    for j in range(rows.shape[1]):
        factor_of_j = [np.where(places == j, factors, 0) for places, factors in columns]
        step = np.sum(factor_of_j, axis=0)
        held = np.flatnonzero(step)
        parts = [(places[held], factors[held]) for places, factors in columns]
        own.append(((first[held], parts), step[held]))
    moves, share = (PAIR_MOVES, PAIR_MOVED) if alike else (MOVES, MOVED)
    for k in range(moves):
        size = max(1, int(share * len(rows) * (1 - k / moves)))
        for j in draw.permutation(rows.shape[1]):
            tables, step = own[j]
            if not len(step):
                continue
            out = draw.choice(len(rows), min(TRIED * size, len(rows)), replace=False)
            if alike:
                values = alike_donors(model, rows, j, out, draw)
            else:
                values = rows[draw.integers(len(rows), size=len(out)), j]
            away = values - rows[out, j]
            gains = []
            together = max(1, AT_ONCE // len(step))
            for i in range(0, len(out), together):
                part = slice(i, i + together)
                old = cells_in(rows[out[part]], tables)
                less, more = lacking[old], lacking[old + step[:, None] * away[part]]
                # by how much |lacking| falls where one row leaves, and where one comes
                gain = np.clip(-2 * less - 1, -1, 1) + np.clip(2 * more - 1, -1, 1)
                gains.append(gain.sum(axis=0))
            gain = np.where(away == 0, 0.0, np.concatenate(gains))
            best = np.argsort(-gain, kind="stable")[:size]
            best = best[gain[best] > 0]
            if model.impossible:
                changed = rows[out[best]]
                changed[:, j] = values[best]
                best = best[model.possible(changed)]
            old = cells_in(rows[out[best]], tables)
            np.add.at(lacking, old.reshape(-1), 1.0)
            np.subtract.at(lacking, (old + step[:, None] * away[best]).reshape(-1), 1.0)
            rows[out[best], j] = values[best]
    return rows


def alike_donors(
    model: Model, rows: Integers, column: int, out: Integers, draw: np.random.Generator
) -> Integers:
    """Return values of a column for some rows, of rows that are like them in a column next to it.

    So tables that nobody compares keep what the tree says of them, where values of any rows would
    undo it.
    """
    around = model.neighbors(column)
    if not around:
        return np.asarray(rows[draw.integers(len(rows), size=len(out)), column])
    other = rows[:, around[draw.integers(len(around))]]
    order, sizes = np.argsort(other, kind="stable"), np.bincount(other)
    first, own = np.cumsum(sizes) - sizes, other[out]
    places = first[own] + (draw.random(len(out)) * sizes[own]).astype(np.intp)
    return np.asarray(rows[order[places], column])


def values_of_codes(axis: Axis, codes: Integers, draw: np.random.Generator, *, whole: bool) -> Any:
    """Return a column's values: categories as declared, or numbers drawn from their bins."""
    if axis.values is not None:
        labels = [*axis.values, None] if axis.missing else list(axis.values)
        return [labels[i] for i in codes.tolist()]
    edges = np.array(axis.edges)
    inside = np.minimum(codes, len(edges) - 2)
    low, high = edges[inside], edges[inside + 1]
    values = low + (high - low) * draw.random(len(codes))
    if whole:
        # whole numbers of a bin [a, b) are ceil(a) to ceil(b) - 1, where there are any
        first, last = np.ceil(low), np.maximum(np.ceil(high) - 1, np.ceil(low))
        drawn = np.floor(first + (last - first + 1) * draw.random(len(codes)))
        values = np.clip(drawn, first, last)
    return np.where(codes >= len(edges) - 1, np.nan, values)
