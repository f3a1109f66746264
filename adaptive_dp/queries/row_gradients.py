"""Each row's gradient at released parameters, and what is released of them: none is ever stored.

The gradient of a linear model's loss is ``a x'``, a the slope at the scores ``W x``. Its norm is
``|a| |x|``, so that clipping it scales a, and the sum of clipped gradients is one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, grid
from adaptive_dp.data.examples import WEIGHT_BITS, Examples, to_steps, weighted_sum
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Operation, Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.problems import Loss, names
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import number
from adaptive_dp.queries.examples import ExamplesDomain

FINE = 28
"""A sum of clipped gradients is given in steps of at least 2^-29 of the bound."""

SQUARES = 20
"""A row's squared norm is given in steps of 2^-20 of the bound's."""

SHORTEST = 2.0**-6
"""Rows shorter than this part of the radius get no larger slopes than one of this norm."""

MOST = 1e140
"""Slopes are clipped to this, so that their squares are floats."""


@frozen
class GradientsDomain:
    """Gradients of ``size`` numbers for each row of examples."""

    size: int
    examples: ExamplesDomain


@frozen(eq=False, repr=False)
class LinearGradients:
    """The rows' gradients at parameters W of shape (k, p), in whole steps of ``unit``.

    Sums over examples that are elsewhere are made by this, of the examples that are there.
    """

    examples: AnyExamples
    loss: Loss
    parameters: Floats
    unit: float

    def slopes(self, where: slice, block: Floats) -> tuple[Floats, Floats]:
        """Return a block's slopes, shape (k, m), and upper bounds of its gradients' norms."""
        assert isinstance(self.examples, Examples)
        z = self.parameters @ block.T
        z *= self.unit * self.examples.unit
        a = np.asarray(self.loss.slope(z, self.examples.labels[where]), dtype=np.float64)
        require(a.shape == z.shape, "a loss's slopes must have the shape of its scores")
        if not -MOST <= a.min(initial=0.0) <= a.max(initial=0.0) <= MOST:  # NaN is within nothing
            a = np.clip(np.nan_to_num(a, posinf=MOST, neginf=-MOST), -MOST, MOST)
        lengths = np.abs(a[0]) if len(a) == 1 else euclidean(a)
        return a, lengths * self.examples.norms[where]

    def clipped_sum(self, bound: float, *, relative: bool) -> tuple[Any, float]:
        """Return the exact sum of gradients clipped to ``bound``, in whole steps, and the step.

        Of `relative` sums the step is one of ``bound``. It is a power of two in either case.
        """
        radius = self.examples.radius
        step = grid.step((1.0 if relative else bound) / (radius * SHORTEST), WEIGHT_BITS - 1)
        unit = step * bound if relative else step
        found = self.examples.total(lambda own: evolve(self, examples=own)._clipped(bound, unit))
        return found, step * self.examples.unit

    def _clipped(self, bound: float, unit: float) -> NDArray[Any]:
        outputs, examples = len(self.parameters), self.examples
        assert isinstance(examples, Examples)

        def weights(where: slice, block: Floats) -> Floats:
            a, lengths = self.slopes(where, block)
            # rounding k slopes moves a gradient by at most sqrt(k) / 2 steps times its row's norm
            moved = examples.norms[where] * (unit * math.sqrt(outputs) / 2)
            limit = np.maximum(bound * (1 - 2.0**-40) - moved, 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                a = a * np.where(lengths > limit, limit / lengths, 1.0)
            a /= unit
            np.rint(a, out=a)
            return np.clip(a, -(2.0**WEIGHT_BITS), 2.0**WEIGHT_BITS, out=a)

        return weighted_sum(examples, weights, outputs)

    def squares(self, bound: float) -> int:
        """Return the sum of `squared` norms."""
        return self._sum(lambda lengths: squared(lengths, bound))

    def short(self, bound: float) -> int:
        """Return how many gradients have a norm of at most ``bound``."""
        return self._sum(lambda lengths: int((lengths <= bound).sum()))

    def _sum(self, block: Callable[[Floats], int]) -> int:
        def work(own: Examples) -> int:
            here = evolve(self, examples=own)
            return sum(block(here.slopes(w, rows)[1]) for w, rows in own.blocks())

        return self.examples.total(work)


def euclidean(values: Floats) -> Floats:
    """Return upper bounds of the columns' l2 norms, each by its own numbers: (m,) from (k, m)."""
    lengths = np.sqrt(columnwise(values * values))
    short = np.flatnonzero(lengths < 1e-140)  # whose squares may have underflowed
    if len(short):
        some = values[:, short]
        top = np.abs(some).max(axis=0)
        parts = some / np.where(top > 0, top, 1.0)
        lengths[short] = top * np.sqrt(columnwise(parts * parts))
    # a computed sum of k squares is off by a relative (k + 1) 2^-53
    lengths *= 1 + max(2.0**-45, len(values) * 2.0**-52)
    return lengths


def columnwise(values: Floats) -> Floats:
    """Return the sum of each column, added in order: of shape (m,) from (k, m)."""
    total: Floats = values[0].copy()
    for row in values[1:]:
        total += row
    return total


def written(value: Any) -> str:
    """Return a loss, or its text, as its text."""
    if isinstance(value, Loss):
        return names.text(value)
    require(isinstance(value, str), f"a loss such as dp.Logistic() is needed, got {value!r}")
    return str(value)


def loss_of(name: str, domain: ExamplesDomain, *, own: bool = True) -> Loss:
    """Return the loss of a text; refuse one that reads other labels.

    One of somebody's own will do only where a proof needs nothing of it but its rows' independence.

    Raises
    ------
    DeclarationError
        If the text names no loss, or its labels or classes are others than the examples'.
    """
    try:
        loss = names.read_any(name) if own else names.read(name)
    except (ValueError, TypeError) as error:
        raise DeclarationError(str(error)) from None
    require(
        loss.labels == domain.labels,
        f"{name} reads labels of kind {loss.labels!r}, the examples have {domain.labels!r}",
    )
    require(
        domain.labels != "class" or loss.outputs == domain.classes,
        f"{name} has {loss.outputs} classes, the examples have {domain.classes}",
    )
    if ":" in name:
        _probed(name, loss)
    return loss


def _probed(name: str, loss: Loss) -> None:
    """Refuse a loss of somebody's own that plainly mixes rows, or gives another shape."""
    z = np.sin(np.arange(loss.outputs * 7.0)).reshape(loss.outputs, 7) * 3
    y = np.array([0.0, 1.0] * 4)[:7] if loss.labels == "class" else np.where(z[0] > 0, 1.0, -1.0)
    y = np.abs(y) if loss.labels == "count" else y
    try:
        with np.errstate(all="ignore"):
            whole_block = np.asarray(loss.slope(z, y), dtype=np.float64)
            alone = [np.asarray(loss.slope(z[:, i : i + 1], y[i : i + 1])) for i in range(7)]
        same = whole_block.shape == z.shape and np.allclose(
            whole_block, np.concatenate(alone, axis=1), rtol=1e-9, atol=1e-12, equal_nan=True
        )
    except Exception as error:
        raise DeclarationError(f"{name}: slope(z, y) fails on made-up scores: {error}") from None
    require(
        same,
        f"{name}: slope(z, y) must return the shape of z, (outputs, rows), and compute each column "
        "by itself",
    )


def trusted(name: str) -> str:
    """Return what is assumed of a loss: nothing of those that are shipped."""
    if ":" not in name:
        return ""
    return (
        f"The slopes of {name} (a loss from outside of the library) are computed for each row by "
        "itself, the same wherever the row stands."
    )


@frozen
class RowGradients(Operation):
    """The gradient of each row's loss at released parameters of shape (k, p).

    Reads the examples and, beside them, the parameters (flat or in their shape).
    """

    kind: ClassVar[str] = "row_gradients"
    reads: ClassVar[type] = ExamplesDomain
    beside: ClassVar[int] = 1

    loss: str = field(converter=written)

    def label(self) -> str:
        """Return whose gradients they are."""
        return f"gradients of {self.loss.removesuffix('()')}"

    def assumes(self) -> str:
        """Return what a loss of somebody's own must keep."""
        return trusted(self.loss)

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the number of parameters; there must be parameters beside the examples."""
        require(len(inputs) == 2, "gradients need examples and released parameters")
        loss = loss_of(self.loss, inputs[0])
        return GradientsDomain(loss.outputs * inputs[0].width, inputs[0])

    def run(self, inputs: Sequence[Any], stream: Stream) -> LinearGradients:
        """Return the gradients; nothing is computed yet."""
        examples, parameters = inputs
        loss = names.read_any(self.loss)
        shape = (loss.outputs, examples.width)
        steps, unit = to_steps(np.asarray(parameters, dtype=np.float64).reshape(shape))
        return LinearGradients(examples, loss, steps, unit)


def _bound(value: Any) -> float | None:
    return None if value is None else number("a gradient's clip", value)


@frozen
class ClippedSum(Query):
    """The sum of the rows' gradients, each scaled down to norm ``clip`` where it is longer.

    Without ``clip``, the bound is a released number beside the gradients, at each run another;
    what is given is the sum in units of it, to which no row adds more than a vector of norm 1.
    """

    kind: ClassVar[str] = "clipped_sum"
    reads: ClassVar[type] = GradientsDomain
    beside: ClassVar[int] = 1

    clip: float | None = field(default=None, converter=_bound)

    def label(self) -> str:
        """Return the bound."""
        return "sum clipped to " + ("a released norm" if self.clip is None else f"{self.clip:g}")

    @property
    def bound(self) -> float:
        """The largest norm of a row's share."""
        return 1.0 if self.clip is None else self.clip

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients'; refuse two bounds, or none."""
        require(
            (len(inputs) == 2) == (self.clip is None),
            "gradients are clipped to a number, or to a released handle: one of them",
        )
        require(
            1e-100 <= self.bound <= 1e100, f"a gradient's clip must be positive, got {self.clip!r}"
        )
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: GradientsDomain) -> int:
        """Return the number of parameters."""
        return domain.size

    def step(self, domain: GradientsDomain) -> float:
        """Return the step in which the sum is given."""
        return grid.step(self.bound, FINE)

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return the bound for each row, times sqrt(d) in l1, and what rounding the sum adds."""
        each = change.both * self.bound
        roots = math.sqrt(domain.size)
        if math.isinf(norm):
            return (each + self.step(domain)) * (1 + 1e-12)
        scale = roots if norm == 1 else 1.0
        require(norm in (1, 2), f"clipped sums have sensitivities in l1, l2 and l_inf, not {norm}")
        return (each * scale + self.step(domain) * roots * scale) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sum, shape (d,)."""
        relative = self.clip is None
        bound = released_bound(inputs[1]) if relative else self.bound
        exact, unit = inputs[0].clipped_sum(bound, relative=relative)
        step = grid.step(self.bound, FINE)
        halvings = round(math.log2(step / unit))
        assert halvings > 0, "a row's steps are finer than the sum's"
        steps = (exact + (1 << (halvings - 1))) >> halvings
        # clamped where floats hold every step: it moves no two sums apart
        inside = np.minimum(np.maximum(steps, -grid.EXACT), grid.EXACT)
        return np.asarray(inside.astype(np.float64).reshape(-1) * step)


def _size(value: Any) -> float:
    return number("squares' clip", value)


@frozen
class SquaredNorms(Query):
    """``sum min(1, |g|^2 / clip^2)`` over the rows' gradients g of a linear model.

    A row's share is a number in [0, 1] that hangs on no other row, so that a unit with up to r rows
    adds between 0 and r, and moves the sum by at most r where it is exchanged (own proof). Shares
    are whole multiples of 2^-20 and their sum, clamped to 2^32, is exact.
    """

    kind: ClassVar[str] = "squared_norms"
    reads: ClassVar[type] = GradientsDomain

    clip: float = field(converter=_size)

    def label(self) -> str:
        """Return the bound."""
        return f"squared norms over {self.clip:g}^2"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients'."""
        require(1e-100 <= self.clip <= 1e100, f"squares' clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def step(self, domain: GradientsDomain) -> float:
        """Return the step in which the sum is given."""
        return 2.0**-SQUARES

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return a unit's rows (one number: any norm)."""
        return float(change.rows)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the sum; refuse gradients of networks, whose norms are not exact."""
        require(isinstance(inputs[0], LinearGradients), "squared norms are of linear models'")
        return float(min(inputs[0].squares(self.clip), 2**52)) * 2.0**-SQUARES


def squared(lengths: Floats, bound: float) -> int:
    """Return the sum of ``min(1, (length / bound)^2)``, each in whole steps of 2^-20."""
    with np.errstate(over="ignore"):
        share = np.minimum(lengths / bound, 1.0)
    return int(np.rint(share * share * 2.0**SQUARES).astype(np.int64).sum())


@frozen
class ShortGradients(Query):
    """How many rows' gradients have a norm of at most a released number, which stands beside."""

    kind: ClassVar[str] = "short_gradients"
    reads: ClassVar[type] = GradientsDomain
    beside: ClassVar[int] = 1

    def label(self) -> str:
        """Return the query."""
        return "count of short gradients"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients'; there must be a bound beside them."""
        require(len(inputs) == 2, "a count of short gradients needs a released bound")
        return inputs[0]  # type: ignore[no-any-return]

    def step(self, domain: GradientsDomain) -> float:
        """Return 1: it is a count."""
        return 1.0

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return a unit's rows: exchanged for as many, they move the count by no more."""
        return float(change.rows)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the count."""
        return float(inputs[0].short(released_bound(inputs[1])))


def released_bound(value: Any) -> float:
    """Return a released bound as a positive number, whatever noise has made of it."""
    found = float(np.asarray(value, dtype=np.float64).reshape(-1)[0])
    return min(max(found, 1e-100), 1e100) if found == found else 1e-100
