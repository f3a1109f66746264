"""The empirical risk of each of finitely many linear models, as scores to choose by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, grid
from adaptive_dp.data.examples import to_steps
from adaptive_dp.data.rows import Integers
from adaptive_dp.erm.loss import Loss
from adaptive_dp.erm.losses import read
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.values import as_tuple
from adaptive_dp.queries.domains import (
    Ball,
    Floats,
    Interval,
    Selected,
    SumOverRows,
    clipped,
    finite_float,
    interval,
)
from adaptive_dp.queries.sums import enforced_ball
from adaptive_dp.queries.vectors import scale_to_unit

Candidates = tuple[tuple[float, ...], ...]

MOST = 2**20
"""The largest number of candidates."""

CELLS = 2**20
"""The number of losses computed at a time."""


def _candidates(value: Iterable[Iterable[Any]]) -> Candidates:
    return tuple(
        tuple(finite_float("a candidate's parameter", v) for v in as_tuple(row))
        for row in as_tuple(value)
    )


@frozen
class CandidateLosses(SumOverRows):
    """The negated sum of regrets of each of m candidate models, as scores: higher is better.

    A row's regret of w is its loss at w less its least loss among all candidates. Sums of regrets
    order the candidates as sums of losses do, and what a loss has in common for all candidates
    costs nothing: a mechanism that chooses is charged by how far scores move *apart*. Regrets are
    clipped to ``[0, width]`` and rounded to a grid inside it, so that the bounds below hold
    whatever the loss, the data and the rounding.

    *Sensitivity*, in the maximum norm; m and sqrt(m) times as much in l1 and l2. A unit with at
    most r rows that *appears or vanishes* moves each score by between 0 and ``r width``, all to the
    same side, so no two farther apart than that: the span is ``r width``. Where a rows are
    *exchanged* for b, a score moves by between ``-b width`` and ``a width``: by ``max(a, b) width``
    at most, and two of them ``(a + b) width`` apart. A total that is clamped to 2^53 steps moves as
    far or less, to the same side.

    Parameters
    ----------
    candidates
        Shape (m, p): parameters of ``z = w'x``, for rows of the norm's ball of radius `radius`.
    loss
        A loss of one score as a str, such as ``"Logistic()"``; it need not be convex.
    target, bounds
        The label's column and its declared bounds. A loss of signs reads 1 above their middle and
        -1 elsewhere, one of numbers reads them mapped onto [-1, 1].
    radius
        To which longer rows are scaled down.
    width
        At most so much does one row prefer a candidate to another.
    """

    kind: ClassVar[str] = "candidate_losses"
    column_fields: ClassVar[tuple[str, ...]] = ("target",)
    input_type: ClassVar[type] = Ball

    candidates: Candidates = field(converter=_candidates)
    loss: str
    target: str
    bounds: Interval = field(converter=interval)
    radius: float
    width: float

    def label(self) -> str:
        """Return the loss and the number of candidates."""
        return f"{self.loss} of {len(self.candidates)} candidates"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that is enforced; refuse candidates or a loss that do not fit."""
        ball: Ball = inputs[0]
        if not (1 <= len(self.candidates) <= MOST):
            raise DeclarationError(
                f"candidate_losses needs 1 to {MOST} candidates, got {len(self.candidates)}"
            )
        # every candidate has one parameter for each coordinate of the vectors
        other_widths = {len(row) for row in self.candidates} - {ball.width}
        if other_widths:
            raise DeclarationError(
                f"each candidate needs {ball.width} parameters ({', '.join(ball.names)}), got one "
                f"with {min(other_widths, default=0)}"
            )
        if not all(abs(v) <= 1e100 for row in self.candidates for v in row):
            raise DeclarationError(
                "a candidate's parameters must be at most 1e100 in size; scale the features"
            )
        ball.table.check_bounds(self.target, self.bounds)
        if not (1e-100 < finite_float("a width", self.width) < 1e100):
            raise DeclarationError(
                f"the width of a row's losses must be in (1e-100, 1e100), got {self.width!r}"
            )
        loss_of(self.loss)
        return enforced_ball(ball, self.radius, ball.width)

    def dimension(self, domain: Ball) -> int:
        """Return the number of candidates."""
        return len(self.candidates)

    def step(self, domain: Ball) -> float:
        """Return the grid's step inside the width."""
        return grid.step(self.width, grid.BITS)

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        count = len(self.candidates)
        # each of m scores moves by at most max(a, b) width
        factors: dict[float, float] = {1: float(count), 2: math.sqrt(count)}
        return factors.get(norm, 1.0) * change.rows * self.width

    def span(self, domain: Ball, change: Change) -> float:
        """Return ``r width`` where a unit appears, ``(a + b) width`` for a rows against b."""
        # one score rises by a width while another falls by b width
        return change.both * self.width

    def candidate(self, index: int) -> list[float]:
        """Return the candidate's parameters."""
        return list(self.candidates[index])

    def block(self, value: Selected) -> Callable[[Columns], Integers]:
        """Return the sum of a block's regrets, in steps."""
        weights, scale = to_steps(np.array(self.candidates))
        loss, unit = loss_of(self.loss), grid.step(self.width, grid.BITS)
        # rounded down: the largest regret in steps must not exceed the width
        top, count = math.floor(self.width / unit), max(1, CELLS // len(weights))

        def sums(columns: Columns) -> Integers:
            steps, size = grid.ball(value.of(columns), self.radius)
            y = self._labels(loss, clipped(columns[self.target], self.bounds))
            total = np.zeros(len(weights), dtype=np.int64)
            for start in range(0, len(y), count):
                rows = slice(start, start + count)
                # integers below 2^52, so a row's scores depend on that row alone; a power of two
                z = (steps[rows].astype(np.float64) @ weights.T) * (size * scale)
                losses = loss_values(loss, z, y[rows])
                # relative to the row's own best candidate
                regrets = losses - losses.min(axis=1, keepdims=True)
                # clipped to [0, width] in integer steps: the bound that the sensitivity rests on
                total += np.rint(np.clip(regrets / unit, 0, top)).astype(np.int64).sum(axis=0)
            return total

        return sums

    def finish(self, total: NDArray[Any]) -> Floats:
        """Return the scores, shape (m,)."""
        unit = grid.step(self.width, grid.BITS)
        return np.array([-grid.total(v, unit) for v in total])

    def _labels(self, loss: Loss, values: Floats) -> Floats:
        if loss.labels == "number":
            return scale_to_unit(values, self.bounds)
        middle = self.bounds.lower + (self.bounds.upper - self.bounds.lower) / 2
        return np.where(values > middle, 1.0, -1.0)


def loss_of(written: str) -> Loss:
    """Return the loss that a str names; it must have one score, and signs or numbers as labels."""
    if not isinstance(written, str):
        raise DeclarationError(f"a loss is a str such as 'Logistic()', got {written!r}")
    try:
        loss = read(written)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{written!r} does not name a loss: {error}") from None
    if loss.weighted or not (loss.outputs == 1 and loss.labels in ("sign", "number")):
        raise DeclarationError(
            "candidate_losses needs a loss of one score, with signs or numbers as labels and no "
            f"weights, got {written!r}"
        )
    return loss


def loss_values(loss: Loss, z: Floats, y: Floats) -> Floats:
    """Return the losses of scores z of shape (n, m) and labels y of shape (n,): shape (n, m)."""
    losses = loss.value(z.reshape(1, -1), np.repeat(y, z.shape[1]))
    # finite, so that differences of losses are no NaN
    return np.nan_to_num(losses.reshape(z.shape), nan=0.0, posinf=1e150, neginf=-1e150)
