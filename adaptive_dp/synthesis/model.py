"""What released tables say of all others: residuals, a tree, and maximum entropy inside a table.

*Residuals.* With C the centring ``I - 11'/n`` along an axis, the residual of a table's counts m_t
is ``R_t = (C x ... x C) m_t``, which sums to 0 along each axis. The counts of a table g are exactly
``m_g = sum over t within g of R_t / prod(n_i, i in g - t)``, broadcast. A reading of m_g with
independent noise of variance s^2 in each cell is, for each t within g, an independent reading of
R_t, of variance ``s^2 prod(n_i, i in g - t)`` before centring. So readings of overlapping tables
are combined residual by residual, weighted by the inverse of their variances: that is generalised
least squares, and no matrix is ever formed.

*Completion.* Residuals that no reading has are not 0: that would be an additive model, which is a
poor one. A table is completed to the one that is nearest, in relative entropy, to a tree of pairs
that were read, and whose sums over columns are those of the read tables inside it (iterative
proportional fitting). All of this is post-processing of what was released.

*Shrinkage.* What a table says beyond the smaller ones inside it, its own residual, is compared with
the guess g that those would complete it to: of a pair of the tree its columns' product, of others
the tree. Counts of rows that are drawn from g are off it by a variance of g_c in the cell c, and
where g lacks something, by some multiple f g_c. With noise of variance v in each of the residual's
k = prod(n_i - 1) dimensions, and a table that is off by y, ``|y|^2`` is ``k v + f sum(g) k / n`` on
average, which is solved for f (with k - 2 for k, as James and Stein 1961 do, and f at least 0). Of
y_c the answer keeps the share ``f g_c / (f g_c + v k / n)``, that of the least mean squared error
among linear estimates of what has the one variance, under noise of the other (Wiener 1949; Robbins
1956 for estimating f). So a large table of little news is answered as its parts say, and cells that
have few rows by all that is known are hardly moved by noise. A reading that is far beyond noise is
believed wherever it is: at least ``1 - SURE^2 v k / n / y_c^2`` of it is kept (Breiman 1995).
Intervals are of the least-squares counts, and widened where an answer lies beyond.

*What is known beside.* Cells that are known to be impossible are 0 in every answer: read tables are
projected onto the others, and fits never leave 0. Where a prior model is given, one of other rows
that are public or released, tables are completed from it in place of the tree.

References
----------
Deming and Stephan 1940 (iterative proportional fitting); Csiszar 1975, Thm 3.2 (it converges to the
projection in relative entropy). Chow and Liu 1968 (trees). Xiao, He, Zhang and Kifer 2023 and
Mullins, Fuentes, Xiao, Kifer, Musco and Sheldon 2024 (residuals of marginals). James and Stein
1961; Robbins 1956; Breiman 1995 (shrinkage).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.synthesis.workload import Columns, subsets

Floats = NDArray[np.float64]

SWEEPS = 10
"""How often each of several read tables is fitted."""

TREE_SWEEPS = 20
"""How often a pair of the tree is fitted to its columns."""

FLOOR = 1e-9
"""What an empty cell has before it is fitted, as a share of a cell: fits can then reach it."""

SURE = 3.0
"""So many deviations of noise from its guess, and more, a cell's reading is believed in part."""

PRIOR = 0.9
"""The share of a prior model in what a table is completed from; the rest is the tree's."""

Box = tuple[Columns, tuple[Floats, ...]]
"""Cells that are known to be empty: columns, and of each 1 for its cells in the box, else 0."""


def residual(counts: Floats, kept: Sequence[int]) -> Floats:
    """Return the residual of the sums of counts over all axes but those that are kept.

    >>> residual(np.array([[1.0, 2.0], [3.0, 6.0]]), [0])
    array([-3.,  3.])
    """
    drop = tuple(i for i in range(counts.ndim) if i not in kept)
    values = counts.sum(axis=drop)
    for i in range(values.ndim):
        values = values - values.mean(axis=i, keepdims=True)
    return np.asarray(values)


def nearest_counts(values: Floats, total: float) -> Floats:
    """Return the nearest table of non-negative numbers with a given sum.

    >>> nearest_counts(np.array([5.0, -1.0, 2.0]), 6.0).tolist()
    [4.5, 0.0, 1.5]
    """
    ordered = np.sort(values, axis=None)[::-1]
    over = (np.cumsum(ordered) - total) / np.arange(1, len(ordered) + 1)
    # the largest is always above its own threshold, as the total is positive
    threshold = over[np.flatnonzero(ordered > over)[-1]]
    return np.asarray(np.maximum(values - threshold, 0.0))


def boxes_of(documents: Iterable[Mapping[str, Any]]) -> tuple[Box, ...]:
    """Return impossible boxes from their documents (see `workload.impossible_boxes`)."""
    return tuple(
        (
            tuple(int(i) for i in each["columns"]),
            tuple(np.asarray(own, dtype=np.float64) for own in each["cells"]),
        )
        for each in documents
    )


def model_of(sizes: Sequence[int], document: Mapping[str, Any] | None) -> Model | None:
    """Return a model from its document (see `Model.document`), or None for None."""
    if document is None:
        return None
    means = {tuple(map(int, t)): np.asarray(v, np.float64) for t, v in document["means"]}
    precisions = {tuple(map(int, t)): float(v) for t, v in document["precisions"]}
    return Model(sizes, means, precisions, document["edges"])


class Model:
    """Released readings of tables, and what they say of any other table.

    Parameters
    ----------
    sizes
        The number of cells of each column.
    means, precisions
        The combined readings of residuals, by table, and the inverse of their variances.
    edges
        The pairs of the tree.
    impossible
        Boxes of cells that no row is in, as is known without the data.
    prior
        A model of other rows, from which tables are completed.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        means: dict[Columns, Floats] | None = None,
        precisions: dict[Columns, float] | None = None,
        edges: Iterable[Columns] = (),
        impossible: Iterable[Box] = (),
        prior: Model | None = None,
    ) -> None:
        self.sizes = tuple(sizes)
        self.means: dict[Columns, Floats] = means or {}
        self.precisions: dict[Columns, float] = precisions or {}
        self.edges: list[Columns] = [(int(a), int(b)) for a, b in edges]
        self.impossible: tuple[Box, ...] = tuple(impossible)
        self.prior = prior
        self._allowed: dict[Columns, NDArray[np.bool_] | None] = {}
        self._targets: dict[Columns, Floats] = {}
        self._ahead: dict[int, dict[int, Floats]] = {}
        self._above: dict[int, dict[int, int]] = {}
        self._joints: dict[Columns, Floats] = {}

    @property
    def total(self) -> float:
        """The number of rows: at least 1."""
        return max(float(self.means[()]), 1.0)

    def shape(self, table: Columns) -> tuple[int, ...]:
        """Return a table's numbers of cells along its axes."""
        return tuple(self.sizes[i] for i in table)

    def ratio(self, table: Columns, part: Columns) -> int:
        """Return how many cells of a table are added up in one of a part of it."""
        return math.prod(self.sizes[i] for i in table if i not in part)

    def read(self, table: Columns, counts: Floats, sigma: float) -> None:
        """Add a reading of a table with independent noise of deviation sigma in each cell."""
        counts = np.asarray(counts, dtype=np.float64).reshape(self.shape(table))
        for part in subsets(table):
            own = residual(counts, [table.index(i) for i in part])
            self._combine(part, own, 1 / (sigma**2 * self.ratio(table, part)))
        self._targets.clear()
        self._forget_tree()

    def _combine(self, part: Columns, reading: Floats, precision: float) -> None:
        """Add a reading of a residual to those that there are, by the inverse of variances."""
        before = self.precisions.get(part, 0.0)
        if before:
            reading = (before * self.means[part] + precision * reading) / (before + precision)
        self.means[part], self.precisions[part] = reading, before + precision

    def add(self, other: Model) -> None:
        """Add all readings of another model of the same rows, whose noise is independent."""
        for part, mean in other.means.items():
            self._combine(part, mean, other.precisions[part])
        self._targets.clear()
        self._forget_tree()

    def document(self) -> dict[str, Any]:
        """Return the readings and the tree as JSON values."""
        return {
            "means": [[list(table), np.asarray(v).tolist()] for table, v in self.means.items()],
            "precisions": [[list(table), float(v)] for table, v in self.precisions.items()],
            "edges": [list(pair) for pair in self.edges],
        }

    def is_read(self, table: Columns) -> bool:
        """Return whether a table, or one that it is a part of, was read."""
        return table in self.means

    def estimate(self, table: Columns) -> Floats:
        """Return the least-squares counts of a table that was read; other residuals are 0."""
        found = np.zeros(self.shape(table))
        for part in subsets(table):
            if part in self.means:
                shape = [self.sizes[i] if i in part else 1 for i in table]
                found = found + self.means[part].reshape(shape) / self.ratio(table, part)
        return found

    def deviation(self, table: Columns) -> float:
        """Return the standard deviation of each cell of `estimate` for a table that was read.

        Centring along an axis of n cells leaves ``1 - 1/n`` of the variance of each.
        """
        variance = 0.0
        for part in subsets(table):
            kept = math.prod(1 - 1 / self.sizes[i] for i in part)
            variance += kept / self.precisions[part] / self.ratio(table, part) ** 2
        return math.sqrt(variance)

    def variance(self, table: Columns, weights: Floats) -> float:
        """Return the variance of a weighted sum of the cells of `estimate`.

        The noise of R_t is C z, with independent z of variance ``1 / precision``, and C is a
        projection: a sum ``w . R_t`` has the variance ``|C w|^2 / precision``.
        """
        found = 0.0
        for part in subsets(table):
            own = residual(weights, [table.index(i) for i in part])
            square = float((own**2).sum())
            found += square / self.precisions[part] / self.ratio(table, part) ** 2
        return found

    def allowed(self, table: Columns) -> NDArray[np.bool_] | None:
        """Return which cells of a table may have rows, or None where all may."""
        if table not in self._allowed:
            found = None
            for columns, cells in self.impossible:
                if set(columns) <= set(table):
                    inside = np.ones(self.shape(table), dtype=bool)
                    for i, own in zip(columns, cells, strict=True):
                        along = [self.sizes[i] if i == other else 1 for other in table]
                        inside &= (own > 0).reshape(along)
                    found = ~inside if found is None else found & ~inside
            self._allowed[table] = found
        return self._allowed[table]

    def possible(self, codes: NDArray[np.signedinteger[Any]]) -> NDArray[np.bool_]:
        """Return which rows, given as cells of shape (rows, columns), are in no impossible cell."""
        found = np.ones(len(codes), dtype=bool)
        for columns, cells in self.impossible:
            inside = np.ones(len(codes), dtype=bool)
            for i, own in zip(columns, cells, strict=True):
                inside &= own[codes[:, i]] > 0
            found &= ~inside
        return found

    def shrunk(self, table: Columns) -> Floats:
        """Return a read table's counts, nearer to what others say where it has little to add.

        The formula is in the module's docstring.
        """
        if len(table) < 2:
            return self.estimate(table)
        guess = self._guess(table)
        away = self.means[table] - residual(guess, range(len(table)))
        dimensions = math.prod(self.sizes[i] - 1 for i in table)
        if not dimensions:
            return guess
        share, variance = dimensions / away.size, 1 / self.precisions[table]
        square = away**2
        news = max(0.0, float(square.sum()) - max(dimensions - 2, 0) * variance)
        expected = guess * (news / share / max(float(guess.sum()), 1e-300))
        noise = variance * share
        kept = np.maximum(expected / (expected + noise), 1 - SURE**2 * noise / (square + 1e-300))
        return np.asarray(guess + kept * away)

    def _guess(self, table: Columns) -> Floats:
        """Return what a table that was read would be completed to without its own reading."""
        if len(table) > 2 or not (table in self.edges or not self.edges):
            return self._completed(table, self._largest(table, whole=False))
        product = np.outer(self.share(table[0]), self.share(table[1])) * self.total
        return self._with_prior(table, product)

    def target(self, table: Columns) -> Floats:
        """Return the counts of a table that was read: non-negative, of the common total."""
        if table not in self._targets:
            estimate, allowed = self.shrunk(table), self.allowed(table)
            if allowed is None:
                self._targets[table] = nearest_counts(estimate, self.total)
            else:
                found = np.zeros(estimate.shape)
                # a table has a cell that is allowed, as the declaration has checked
                found[allowed] = nearest_counts(estimate[allowed], self.total)
                self._targets[table] = found
        return self._targets[table]

    # --- the tree

    def build_tree(self) -> None:
        """Choose the tree: of all pairs that were read, those of the most mutual information."""
        gains = []
        self.edges = []  # pairs are compared with the products of their columns
        self._targets.clear()
        self._forget_tree()
        for pair in (table for table in self.means if len(table) == 2):
            joint = self.target(pair) / self.total
            alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            held = joint > 0
            gains.append((-float((joint[held] * np.log(joint[held] / alone[held])).sum()), pair))
        tree = list(range(len(self.sizes)))

        def root(i: int) -> int:
            while tree[i] != i:
                i = tree[i]
            return i

        for _, (a, b) in sorted(gains):
            if root(a) != root(b):
                tree[root(a)] = root(b)
                self.edges.append((a, b))
        self._targets.clear()
        self._forget_tree()

    def _forget_tree(self) -> None:
        self._ahead.clear()
        self._above.clear()
        self._joints.clear()

    def share(self, column: int) -> Floats:
        """Return the shares of a column's cells."""
        return self.target((column,)) / self.total

    def neighbors(self, column: int) -> list[int]:
        """Return the columns that the tree joins a column to."""
        return [b if a == column else a for a, b in self.edges if column in (a, b)]

    def step(self, a: int, b: int) -> Floats:
        """Return the conditional shares of b's cells by a's, of a pair of the tree."""
        pair = (min(a, b), max(a, b))
        if pair not in self._joints:
            joint = self._masked(pair, self.target(pair) / self.total + FLOOR)
            rows, columns = self.share(pair[0]), self.share(pair[1])
            for _ in range(TREE_SWEEPS):
                joint = joint * (rows / np.maximum(joint.sum(axis=1), 1e-300))[:, None]
                joint = joint * (columns / np.maximum(joint.sum(axis=0), 1e-300))
            self._joints[pair] = joint
        joint = self._joints[pair] if a < b else self._joints[pair].T
        sums = joint.sum(axis=1, keepdims=True)
        # a cell that no row is in is followed by what is so overall
        return np.where(sums > 0, joint / np.maximum(sums, 1e-300), self.share(b))

    def _walk(self, start: int) -> None:
        """Find the conditional shares of every column that the tree joins to ``start``."""
        ahead, above, stack = {start: np.eye(self.sizes[start])}, {start: -1}, [start]
        while stack:
            at = stack.pop()
            for other in self.neighbors(at):
                if other not in above:
                    above[other] = at
                    # from one column to the next along the path (the Markov property of the tree)
                    ahead[other] = ahead[at] @ self.step(at, other)
                    stack.append(other)
        self._ahead[start], self._above[start] = ahead, above

    def ahead(self, start: int) -> dict[int, Floats]:
        """Return, by column, its conditional shares given a column that the tree joins it to."""
        if start not in self._ahead:
            self._walk(start)
        return self._ahead[start]

    def path(self, a: int, b: int) -> list[int]:
        """Return the columns from b to a along the tree, both included."""
        self.ahead(a)
        found = [b]
        while found[-1] != a:
            found.append(self._above[a][found[-1]])
        return found

    def _masked(self, table: Columns, values: Floats) -> Floats:
        allowed = self.allowed(table)
        return values if allowed is None else np.where(allowed, values, 0.0)

    def base(self, table: Columns) -> Floats:
        """Return the counts that a table is completed from: the tree's, mostly a prior's if any."""
        return self._with_prior(table, self._of_tree(table))

    def _with_prior(self, table: Columns, found: Floats) -> Floats:
        if self.prior is None:
            return found
        known = self.prior.answer(table) * (self.total / self.prior.total)
        return np.asarray(PRIOR * known + (1 - PRIOR) * found)

    def _of_tree(self, table: Columns) -> Floats:
        """Return the counts of a table in the tree's model; parts of it are independent.

        For up to three columns of one part this is exact: they meet in one column, given which they
        are independent. For more, each column is taken given the nearest one before it.
        """
        left, parts, order = list(table), [], list[int]()
        while left:
            own = [i for i in left if i in self.ahead(left[0])]
            left = [i for i in left if i not in own]
            order += own
            parts.append(self._joint(own))
        found = np.array(self.total)
        for part in parts:
            found = np.multiply.outer(found, part)
        return np.transpose(found, [order.index(i) for i in table])

    def _joint(self, own: Sequence[int]) -> Floats:
        if len(own) == 1:
            return self.share(own[0])
        if len(own) == 2:
            return self.share(own[0])[:, None] * self.ahead(own[0])[own[1]]
        if len(own) == 3:
            a, b, c = own
            (middle,) = set(self.path(a, b)) & set(self.path(a, c)) & set(self.path(b, c))
            first, second, third = (self.ahead(middle)[i] for i in own)
            both = (self.share(middle)[:, None] * first)[:, :, None] * second[:, None, :]
            shape = (first.shape[1], second.shape[1], third.shape[1])
            return np.asarray((both.reshape(len(both), -1).T @ third).reshape(shape))
        found = self._joint(own[:3])
        for k, column in enumerate(own[3:], start=3):
            near = min(range(k), key=lambda i: len(self.path(own[i], column)))
            given = self.ahead(own[near])[column]
            spread = [1] * k + [given.shape[1]]
            spread[near] = given.shape[0]
            found = found[..., None] * given.reshape(spread)
        return found

    # --- answers

    def _largest(self, table: Columns, *, whole: bool) -> list[Columns]:
        """Return the read tables inside a table, but those inside another of them.

        With ``whole=False`` without the table itself.
        """
        if whole and table in self.means:
            return [table]
        read = [part for part in subsets(table) if part in self.means and part != table]
        return [part for part in read if not any(set(part) < set(other) for other in read)]

    def answer(self, table: Columns) -> Floats:
        """Return the counts of a table: as read, or completed by the largest entropy."""
        if table in self.means:
            return self.target(table)
        return self._completed(table, self._largest(table, whole=True))

    def _completed(self, table: Columns, top: Sequence[Columns]) -> Floats:
        """Return the table nearest to the tree, or the prior, whose parts are those of ``top``."""
        found = self.base(table)
        allowed = self.allowed(table)
        alone = all(len(part) == 1 for part in top)
        if alone and self.prior is None and allowed is None:
            return found
        found = self._masked(table, found + FLOOR * self.total / found.size)
        for _ in range(1 if len(top) == 1 else SWEEPS):
            for part in top:
                drop = tuple(i for i, column in enumerate(table) if column not in part)
                sums = found.sum(axis=drop, keepdims=True)
                found = found * (self.target(part).reshape(sums.shape) / np.maximum(sums, 1e-300))
        if allowed is not None:
            # fits to tables that allow more than this one does may not meet: the total is kept
            found = found * (self.total / max(float(found.sum()), 1e-300))
        return np.asarray(found)
