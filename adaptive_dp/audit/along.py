"""Scores of canaries along a plan's released sums of clipped gradients.

At a round's released parameters canary i has the clipped gradient g_i. The round releases
``r = sum over those sampled + noise``; its score is ``<g_i, r - q (B + S / 2)>`` with q the rate of
samples, B the sum of the other rows' clipped gradients and S that of all canaries: what the round
would release on average, each canary in by a fair coin. With gradients at right angles, all rows in
each round and Gaussian noise of one size it is, but for a factor, the log-likelihood ratio of in
against out. It is a function of released values, the other rows and the canaries, never of the
coins. Scores of rounds are added.

Nothing hangs on the score being right but how much is found. Where rounds are samples, the other
rows' own coins are noise as well: fewer other rows then show more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from attrs import field, frozen

from accountants.rounding import Array
from adaptive_dp.data import Rows
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, lineage, meant
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.roles import SampleOperation, SourceOperation
from adaptive_dp.graph.run import Run, guarded
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.network_gradients import LayerGradients
from adaptive_dp.queries.row_gradients import ClippedSum, LinearGradients, released_bound
from adaptive_dp.queries.source import Source


@frozen(eq=False)
class Along:
    """Adds up the scores while a plan runs; call it at each release.

    Parameters
    ----------
    structure
        The plan's.
    others, canaries
        What private values are computed from: `Side`s of the other rows, and of all canaries.
    sums
        Names of the releases of clipped sums.
    scores
        Shape (m,).
    """

    structure: Structure
    others: Side
    canaries: Side
    sums: frozenset[str]
    scores: Array

    @classmethod
    def of(
        cls,
        structure: Structure,
        shown: Collection[str],
        source: Source,
        others: Rows,
        canaries: Rows,
    ) -> Along:
        """Return scores of a plan, all 0; ``shown`` are the nodes that a run shows.

        Raises
        ------
        DeclarationError
            If the plan releases no sum of clipped gradients of the data set.
        """
        sums = frozenset(n.name for n in structure if n.name in shown and _summed(n, source))
        require(
            len(sums) > 0,
            f"the plan releases no sum of clipped gradients of {source.name!r}, by which canaries "
            "are scored by default; give a score, a function of what the run shows",
        )
        return cls(
            structure,
            Side(structure, others),
            Side(structure, canaries),
            sums,
            np.zeros(canaries.size()),
        )

    def __call__(self, node: Node, run: Run) -> None:
        """Take in a release."""
        if node.name not in self.sums:
            return
        query = node.handle.inputs[0]
        operation = query.operation
        assert isinstance(operation, ClippedSum)
        (gradients, *beside), opened = query.inputs, run.open
        bounds = [opened(self.structure.of(each).name) for each in beside]
        bound = released_bound(bounds[0]) if bounds else operation.bound
        of = [side.value(gradients, run) for side in (self.others, self.canaries)]

        def added() -> Array:
            others, every = (operation.run([each, *bounds], SeededStream(0)) for each in of)
            rest = np.ravel(run.raw[node.name]) - _rate(gradients) * (others + every / 2)
            return products(of[1], bound, rest, relative=bool(bounds))

        found = guarded(node.name, added)
        if found.shape != self.scores.shape:
            raise DeclarationError(
                "some canaries are left out by the plan's own steps (a filter, a label that is no "
                "declared category, parts); plant rows that all go on, or give a score"
            )
        np.add(self.scores, found, out=self.scores)


@frozen(eq=False)
class Side:
    """Private values of a plan, computed from other rows than the run's; samples are everybody."""

    structure: Structure
    rows: Any
    known: dict[str, Any] = field(factory=dict)

    def value(self, handle: Handle, run: Run) -> Any:
        """Return a private value, at what the run has released so far."""
        handle, node = meant(handle), self.structure.of(handle)
        if handle.color != "private":
            return run.open(node.name)
        operation = handle.operation
        if isinstance(operation, SourceOperation):
            return self.rows
        if node.name in self.known:
            return self.known[node.name]
        inputs = [self.value(each, run) for each in handle.inputs]
        if isinstance(operation, SampleOperation):
            return inputs[0]
        require(
            not operation.random,
            f"{node.name!r} treats units at random, so that canaries have no gradients of their "
            "own; give a score, a function of what the run shows",
        )
        found = guarded(node.name, lambda: operation.run(inputs, SeededStream(0)))
        if not node.loops and all(each.color == "private" for each in handle.inputs):
            self.known[node.name] = found
        return found


def products(gradients: Any, bound: float, direction: Array, *, relative: bool) -> Array:
    """Return each row's clipped gradient times a direction, shape (n,).

    Parameters
    ----------
    gradients
        `LinearGradients` or `LayerGradients`.
    bound
        To which gradients are clipped.
    direction
        Shape (d,).
    relative
        Whether gradients are then divided by the bound.
    """
    kind: Callable[..., Array] = _linear if isinstance(gradients, LinearGradients) else _layered
    with np.errstate(all="ignore"):
        return np.nan_to_num(kind(gradients, bound, direction, 1.0 if relative else bound))


def _linear(gradients: LinearGradients, bound: float, direction: Array, most: float) -> Array:
    along = direction.reshape(gradients.parameters.shape) * gradients.examples.unit
    found = []
    for where, block in gradients.examples.in_memory().blocks():
        a, lengths = gradients.slopes(where, block)
        scale = (most / bound) * np.where(lengths > bound, bound / lengths, 1.0)
        found.append(((along @ block.T) * a).sum(axis=0) * scale)
    return np.concatenate(found) if found else np.zeros(0)


def _layered(gradients: LayerGradients, bound: float, direction: Array, most: float) -> Array:
    first, second = gradients.network.layers(direction, gradients.examples.width)
    natural, found = gradients.hidden_unit * most / bound, []
    for block, each in gradients.passes():
        g = np.minimum(np.ldexp(natural, each.exponents), most / np.maximum(each.lengths, 1e-30))
        into = ((first @ block.T) * each.back).sum(axis=0) * gradients.ratio
        found.append(g * (into + ((second @ each.hidden) * each.slopes).sum(axis=0)))
    return np.concatenate(found) if found else np.zeros(0)


def _summed(node: Node, source: Source) -> bool:
    handle = node.handle
    if not isinstance(handle.operation, Release):
        return False
    query = handle.inputs[0]
    if not isinstance(query.operation, ClippedSum):
        return False
    return source in [each.operation for each in lineage(query)]


def _rate(handle: Handle) -> float:
    """Return the chance with which a unit is in the samples that gradients are made from."""
    rates = [h.operation.rate for h in lineage(handle) if isinstance(h.operation, SampleOperation)]
    return float(np.prod(rates))
