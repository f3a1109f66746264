"""Synthetic rows: drawn from the tree of a model, and fitted to all tables that were read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.synthesis.model import Floats, Model
from adaptive_dp.synthesis.workload import Axis, Columns

Integers = NDArray[np.int64]

FITS = 40
"""How often rows are fitted to all tables that were read."""


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
    codes = np.full((count, len(model.sizes)), -1, dtype=np.int64)
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
    index = np.zeros(len(codes), dtype=np.int64)
    for i in table:
        index = index * sizes[i] + codes[:, i]
    return index


def sampled_codes(model: Model, count: int, draw: np.random.Generator) -> Integers:
    """Return synthetic rows as cells: of the tree, and then fitted to the tables that were read."""
    codes = tree_codes(model, count, draw)
    top = [t for t in model.means if len(t) > 1]
    top = [t for t in top if not any(set(t) < set(other) for other in top)]
    top = [t for t in top if t not in {(min(e), max(e)) for e in model.edges}] or []
    if not top:
        return codes
    return fitted_codes(model, codes, sorted(top), draw)


def fitted_codes(
    model: Model, codes: Integers, tables: list[Columns], draw: np.random.Generator
) -> Integers:
    """Return rows of which some are exchanged, so that their counts are nearer to read tables."""
    return codes


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
