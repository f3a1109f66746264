"""Each row's clipped gradient at released parameters, and sums of such gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, grid
from adaptive_dp.data.examples import WEIGHT_BITS, Examples, exact_sum, to_steps, weighted_sum
from adaptive_dp.erm import Loss, Network
from adaptive_dp.erm import losses as losses
from adaptive_dp.erm import losses as names
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import AdaptiveSums
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Floats, finite_float
from adaptive_dp.queries.examples import ExamplesDomain, cuts

# -----------------------------------------------------------------------------
# Each row's gradient at released parameters, and what is released of them: none is ever stored.
#
# The gradient of a linear model's loss is ``a x'``, a the slope at the scores ``W x``. Its norm is
# ``|a| |x|``, so that clipping it scales a, and the sum of clipped gradients is one matrix product.


GRADIENT_STEP_BITS = 28
"""A sum of clipped gradients is given in steps of at least 2^-29 of the bound."""

SQUARES = 20
"""A row's squared norm is given in steps of 2^-20 of the bound's."""

SHORTEST = 2.0**-6
"""Rows shorter than this part of the radius get no larger slopes than one of this norm."""

MAX_SLOPE = 1e140
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
        if a.shape != z.shape:
            raise DeclarationError("a loss's slopes must have the shape of its scores")
        if (
            not -MAX_SLOPE <= a.min(initial=0.0) <= a.max(initial=0.0) <= MAX_SLOPE
        ):  # NaN is within nothing
            a = np.clip(
                np.nan_to_num(a, posinf=MAX_SLOPE, neginf=-MAX_SLOPE), -MAX_SLOPE, MAX_SLOPE
            )
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
        """Return the sum of `squared_norm_steps` over the rows."""
        return self._sum(lambda lengths: squared_norm_steps(lengths, bound))

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
    lengths = np.sqrt(column_sums(values * values))
    short = np.flatnonzero(lengths < 1e-140)  # whose squares may have underflowed
    if len(short):
        some = values[:, short]
        top = np.abs(some).max(axis=0)
        parts = some / np.where(top > 0, top, 1.0)
        lengths[short] = top * np.sqrt(column_sums(parts * parts))
    # a computed sum of k squares is off by a relative (k + 1) 2^-53
    lengths *= 1 + max(2.0**-45, len(values) * 2.0**-52)
    return lengths


def column_sums(values: Floats) -> Floats:
    """Return the sum of each column, added in order: of shape (m,) from (k, m)."""
    total: Floats = values[0].copy()
    for row in values[1:]:
        total += row
    return total


def loss_text(value: Any) -> str:
    """Return a loss, or its text, as its text."""
    if isinstance(value, Loss):
        return names.text(value)
    if not isinstance(value, str):
        raise DeclarationError(f"a loss such as dp.Logistic() is needed, got {value!r}")
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
    if loss.labels != domain.labels:
        raise DeclarationError(
            f"{name} reads labels of kind {loss.labels!r}, the examples have {domain.labels!r}"
        )
    if domain.labels == "class" and loss.outputs != domain.classes:
        raise DeclarationError(
            f"{name} has {loss.outputs} classes, the examples have {domain.classes}"
        )
    if ":" in name:
        _refuse_mixed_rows(name, loss)
    return loss


def _refuse_mixed_rows(name: str, loss: Loss) -> None:
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
    if not same:
        raise DeclarationError(
            f"{name}: slope(z, y) must return the shape of z, (outputs, rows), and compute each "
            "column by itself"
        )


def loss_assumption(name: str) -> str:
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
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str = field(converter=loss_text)

    def label(self) -> str:
        """Return whose gradients they are."""
        return f"gradients of {self.loss.removesuffix('()')}"

    def assumes(self) -> str:
        """Return what a loss of somebody's own must keep."""
        return loss_assumption(self.loss)

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the number of parameters; there must be parameters beside the examples."""
        if len(inputs) != 2:
            raise DeclarationError("gradients need examples and released parameters")
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
    return None if value is None else finite_float("a gradient's clip", value)


@frozen
class ClippedSum(Query):
    """The sum of the rows' gradients, each scaled down to norm ``clip`` where it is longer.

    Without ``clip``, the bound is a released number beside the gradients, at each run another;
    what is given is the sum in units of it, to which no row adds more than a vector of norm 1.
    """

    kind: ClassVar[str] = "clipped_sum"
    input_type: ClassVar[type] = GradientsDomain
    max_released_inputs: ClassVar[int] = 1

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
        if (len(inputs) == 2) != (self.clip is None):
            raise DeclarationError(
                "gradients are clipped to a number, or to a released handle: one of them"
            )
        if not (1e-100 <= self.bound <= 1e100):
            raise DeclarationError(f"a gradient's clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: GradientsDomain) -> int:
        """Return the number of parameters."""
        return domain.size

    def step(self, domain: GradientsDomain) -> float:
        """Return the step in which the sum is given."""
        return grid.step(self.bound, GRADIENT_STEP_BITS)

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return the bound for each row, times sqrt(d) in l1, and what rounding the sum adds."""
        each = change.both * self.bound
        roots = math.sqrt(domain.size)
        if math.isinf(norm):
            return (each + self.step(domain)) * (1 + 1e-12)
        scale = roots if norm == 1 else 1.0
        if norm not in (1, 2):
            raise DeclarationError(
                f"clipped sums have sensitivities in l1, l2 and l_inf, not {norm}"
            )
        return (each * scale + self.step(domain) * roots * scale) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sum, shape (d,)."""
        relative = self.clip is None
        bound = released_bound(inputs[1]) if relative else self.bound
        exact, unit = inputs[0].clipped_sum(bound, relative=relative)
        step = grid.step(self.bound, GRADIENT_STEP_BITS)
        halvings = round(math.log2(step / unit))
        assert halvings > 0, "a row's steps are finer than the sum's"
        steps = (exact + (1 << (halvings - 1))) >> halvings
        # clamped where floats hold every step: it moves no two sums apart
        inside = np.minimum(np.maximum(steps, -grid.EXACT), grid.EXACT)
        return np.asarray(inside.astype(np.float64).reshape(-1) * step)


def _size(value: Any) -> float:
    return finite_float("squares' clip", value)


@frozen
class SquaredNorms(Query):
    """``sum min(1, |g|^2 / clip^2)`` over the rows' gradients g of a linear model.

    A row's share is a number in [0, 1] that hangs on no other row, so that a unit with up to r rows
    adds between 0 and r, and moves the sum by at most r where it is exchanged (own proof). Shares
    are whole multiples of 2^-20 and their sum, clamped to 2^32, is exact.
    """

    kind: ClassVar[str] = "squared_norms"
    input_type: ClassVar[type] = GradientsDomain

    clip: float = field(converter=_size)

    def label(self) -> str:
        """Return the bound."""
        return f"squared norms over {self.clip:g}^2"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients'."""
        if not (1e-100 <= self.clip <= 1e100):
            raise DeclarationError(f"squares' clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def step(self, domain: GradientsDomain) -> float:
        """Return the step in which the sum is given."""
        return 2.0**-SQUARES

    def sensitivity(self, domain: GradientsDomain, change: Change, norm: float) -> float:
        """Return a unit's rows (one number: any norm)."""
        return float(change.rows)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the sum; refuse gradients of networks, whose norms are not exact."""
        if not isinstance(inputs[0], LinearGradients):
            raise DeclarationError("squared norms are of linear models'")
        return float(min(inputs[0].squares(self.clip), 2**52)) * 2.0**-SQUARES


def squared_norm_steps(lengths: Floats, bound: float) -> int:
    """Return the sum of ``min(1, (length / bound)^2)``, each in whole steps of 2^-20."""
    with np.errstate(over="ignore"):
        share = np.minimum(lengths / bound, 1.0)
    return int(np.rint(share * share * 2.0**SQUARES).astype(np.int64).sum())


@frozen
class ShortGradients(Query):
    """How many rows' gradients have a norm of at most a released number, which stands beside."""

    kind: ClassVar[str] = "short_gradients"
    input_type: ClassVar[type] = GradientsDomain
    max_released_inputs: ClassVar[int] = 1

    def label(self) -> str:
        """Return the query."""
        return "count of short gradients"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the gradients'; there must be a bound beside them."""
        if len(inputs) != 2:
            raise DeclarationError("a count of short gradients needs a released bound")
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


# -----------------------------------------------------------------------------
# Each row's gradient by the parameters of a two-layer network; none is ever stored.
#
# By a layer's weights it is an outer product of what comes back and what went in, so that its norm
# is known without it (Goodfellow 2015), and the sum of clipped gradients is one more product of
# matrices (Lee and Kifer 2021). What went in are whole steps, x of the row and u of its hidden
# units,
# each with an l2 norm of at most 2^20; W1, W2 and the loss's slopes s are whole steps too.
#
# **A row's share hangs on that row alone.** ``W1 x``, ``W2 u`` and ``W2' s`` are sums of whole
# numbers, with norms of at most 2^32 and 2^20: by Cauchy and Schwarz every partial sum's size is at
# most 2^52, however a product of matrices goes about it, so it is exact. All else is done to
# each number by itself, or down a row's own column in a fixed order.
#
# **No share is longer than the bound.** In steps of the sum, B of them the bound, a row's gradient
# is ``g (r d x', s u')``, g a number of the row, r one of the parameters. With ``P = |(r |d| |x|,
# |s| |u|)|`` and ``g <= limit / P`` its norm is at most the limit. Rounding ``g r d`` and ``g s``
# to
# whole numbers moves it by at most ``m = |(sqrt(h) |x|, sqrt(k) |u|)| / 2``, and the limit is
# ``B (1 - 2^-40) - m``, or 0. P is taken larger by more than its own rounding. (Own proof.)
#
# **Sums are exact.** A share's numbers are at most B, below 2^36, as are those of any of its parts;
# a block of 1024 adds up to less than 2^46, in whatever order, and blocks add up as integers.


SHARE = 35
"""A share is at most 2^(SHARE + 1) steps."""

LONG = 20
"""What goes into a layer is at most 2^LONG steps, as are slopes."""


class Pass(NamedTuple):
    """Of a block of n rows u, d and s in steps, and the rows' P, exponents of s's step, and m.

    Shapes (h + 1, n), (h, n), (k, n), and (n,) thrice.
    """

    hidden: Floats
    back: Floats
    slopes: Floats
    lengths: Floats
    exponents: Any
    moved: Floats


@frozen(eq=False, repr=False)
class LayerGradients:
    """The rows' gradients at W1 and W2, in whole steps of ``units``, in one flat vector.

    Sums over examples that are elsewhere are made by this, of the examples that are there.
    """

    examples: AnyExamples
    network: Network
    first: Floats
    second: Floats
    units: tuple[float, float]
    hidden_unit: float = field(init=False)

    @hidden_unit.default
    def _hidden_unit(self) -> float:
        # |tanh| <= 1, and |relu(W1 x)| <= |W1 x| <= |W1|_F R; cut off, never rounded up
        largest = math.sqrt(self.network.hidden + 1)
        if self.network.activation == "relu":
            frobenius = math.sqrt(float((self.first**2).sum())) * self.units[0]
            largest = math.hypot(1.0, frobenius * self.examples.radius)
        return grid.step(largest * (1 + 1e-9), LONG - 1)

    @property
    def ratio(self) -> float:
        """The step of ``d x'`` by that of ``s u'``, r."""
        return self.units[1] * self.examples.unit / self.hidden_unit

    def passes(self) -> Iterator[tuple[Floats, Pass]]:
        """Yield each block's steps, and what comes back through the network."""
        assert isinstance(self.examples, Examples)
        for where, block in self.examples.blocks():
            with np.errstate(all="ignore"):
                yield block, self._pass(where, block)

    def _pass(self, where: slice, block: Floats) -> Pass:
        assert isinstance(self.examples, Examples)
        network, unit = self.network, self.hidden_unit
        x = self.examples.norms[where] / self.examples.unit
        u = np.empty((network.hidden + 1, len(block)))
        u[0] = 1.0
        z = self.first @ block.T
        z *= self.units[0] * self.examples.unit
        # 24 bits are more than hidden units keep, at a fifth of the time
        u[1:] = network.bend(z.astype(np.float32) if network.activation == "tanh" else z)
        u /= unit
        np.trunc(u, out=u)
        scores = (self.second @ u) * (self.units[1] * unit)
        s, exponents = slope_steps(network.loss.slope(scores, self.examples.labels[where]))
        d = self.second[:, 1:].T @ s
        d *= network.bent(np.multiply(u[1:], unit, out=z))
        went_on = np.sqrt(column_sums(np.square(u)))
        back = np.sqrt(column_sums(np.multiply(d, d, out=z)))
        lengths = np.hypot(self.ratio * back * x, np.sqrt(column_sums(np.square(s))) * went_on)
        # adding h squares is off by h 2^-53, the rest by less than 2^-48
        lengths *= 1 + 2.0**-45 + network.hidden * 2.0**-52
        moved = np.sqrt(network.hidden * x * x + network.outputs * went_on * went_on)
        return Pass(u, d, s, lengths, exponents, moved * ((1 + 2.0**-45) / 2))

    def clipped_sum(self, bound: float, *, relative: bool) -> tuple[Any, float]:
        """Return the exact sum of gradients clipped to ``bound``, in whole steps, and the step.

        Of `relative` sums the step is one of ``bound``. It is a power of two in either case.
        """
        step = grid.step(1.0 if relative else bound, SHARE)
        most = (1.0 if relative else bound) / step
        natural = self.hidden_unit / (step * bound if relative else step)
        found = self.examples.total(lambda own: evolve(self, examples=own)._clipped(most, natural))
        return found, step

    def _clipped(self, most: float, natural: float) -> NDArray[Any]:
        def sums() -> Iterator[Floats]:
            flat = np.empty(self.first.size + self.second.size)
            first, second = self.network.layers(flat, self.examples.width)
            for block, found in self.passes():
                limit = np.maximum(most * (1 - 2.0**-40) - found.moved, 0.0)
                with np.errstate(all="ignore"):
                    # a P below 1e-30 may have underflowed: with this g the share is then 0
                    capped = limit / np.maximum(found.lengths, 1e-30)
                    g = np.minimum(np.ldexp(natural, found.exponents), capped)
                np.rint(np.multiply(found.back, g * self.ratio, out=found.back), out=found.back)
                np.rint(np.multiply(found.slopes, g, out=found.slopes), out=found.slopes)
                np.matmul(found.back, block, out=first)
                np.matmul(found.slopes, found.hidden.T, out=second)
                yield flat

        return exact_sum(sums(), self.first.size + self.second.size)

    def short(self, bound: float) -> int:
        """Return how many gradients have a norm of at most ``bound``."""
        return self.examples.total(lambda own: evolve(self, examples=own)._short(bound))

    def _short(self, bound: float) -> int:
        total = 0
        for _, found in self.passes():
            with np.errstate(all="ignore"):
                sizes = np.ldexp(found.lengths * self.hidden_unit, found.exponents)
            total += int((sizes <= bound).sum())
        return total


def slope_steps(values: Floats) -> tuple[Floats, Any]:
    """Return slopes of shape (k, m) as whole steps, and each column's exponent of its step.

    Column by column the norm is at most 2^LONG steps; NaN counts as 0.
    """
    bits = LONG - math.ceil(math.log2(len(values)) / 2)
    clean = np.clip(np.nan_to_num(values, posinf=1e140, neginf=-1e140), -1e140, 1e140)
    exponents = np.frexp(np.abs(clean).max(axis=0))[1] - bits
    return np.rint(np.ldexp(clean, -exponents)), exponents


@frozen
class NetworkGradients(Operation):
    """The gradient of each row's loss by a two-layer network's parameters, which are released.

    Reads the examples and, beside them, the parameters, flat: see `adaptive_dp.erm.Network`.
    """

    kind: ClassVar[str] = "network_gradients"
    input_type: ClassVar[type] = ExamplesDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str
    hidden: int
    activation: str

    @classmethod
    def of(cls, network: Network) -> NetworkGradients:
        """Return the operation of a network."""
        return cls(losses.text(network.loss), network.hidden, network.activation)

    def label(self) -> str:
        """Return whose gradients they are."""
        return f"gradients of {self.hidden} hidden units, {self.loss.removesuffix('()')}"

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain:
        """Return the number of parameters; there must be parameters beside the examples."""
        if len(inputs) != 2:
            raise DeclarationError("gradients need examples and released parameters")
        loss_of(self.loss, inputs[0], own=False)
        return GradientsDomain(self.network.size(inputs[0].width), inputs[0])

    @property
    def network(self) -> Network:
        """The network."""
        try:
            return Network(losses.read(self.loss), self.hidden, self.activation)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise DeclarationError(str(error)) from None

    def run(self, inputs: Sequence[Any], stream: Stream) -> LayerGradients:
        """Return the gradients; nothing is computed yet."""
        examples, parameters = inputs
        flat = np.asarray(parameters, dtype=np.float64).reshape(-1)
        first, second = self.network.layers(flat, examples.width)
        steps, unit = to_steps(first)
        # as one row: so its rows and its columns are as short as that
        back, back_unit = to_steps(second.reshape(1, -1))
        return LayerGradients(
            examples, self.network, steps, back.reshape(second.shape), (unit, back_unit)
        )


# -----------------------------------------------------------------------------
# Sums of clipped gradients at parameters that are chosen later, for learners with their own noise.
#
# A learner whose noise hangs together from round to round is one mechanism: it asks for the sum
# of each batch at parameters that follow from what it has released of the batches before.


STREAM_STEP_BITS = 20
"""Sums are given in steps of at least 2^-21 of the bound, and at most 2^-20."""

MAX_STREAM_STEPS = 2**52
"""Sums are clamped to so many steps; it moves no two of them apart."""


@frozen(eq=False, repr=False)
class ClippedGradients(AdaptiveSums):
    """The rows' gradients, each scaled down to norm ``clip`` where it is longer."""

    examples: AnyExamples
    loss: Loss
    clip: float

    def __repr__(self) -> str:
        return "<private gradients>"

    @property
    def shape(self) -> tuple[int]:
        """The number of parameters."""
        return (self.loss.outputs * self.examples.width,)

    @property
    def step(self) -> float:
        """In what steps sums are counted."""
        return grid.step(self.clip, STREAM_STEP_BITS)

    def split(self, parts: int, stream: Stream) -> list[ClippedGradients]:
        """Return batches of whole units, each in one of them by its own uniform draw."""
        batches = self.examples.split(cuts([1 / parts] * parts), stream)
        return [ClippedGradients(batch, self.loss, self.clip) for batch in batches]

    def at(self, parameters: Floats) -> NDArray[np.int64]:
        """Return the sum at parameters, shape (d,), rounded to whole steps."""
        steps, unit = to_steps(parameters.reshape(self.loss.outputs, self.examples.width))
        gradients = LinearGradients(self.examples, self.loss, steps, unit)
        exact, finer = gradients.clipped_sum(self.clip, relative=False)
        halvings = round(math.log2(self.step / finer))
        assert halvings > 0, "a row's steps are finer than the sum's"
        rounded = (exact.reshape(-1) + (1 << (halvings - 1))) >> halvings
        return np.asarray(
            np.minimum(np.maximum(rounded, -MAX_STREAM_STEPS), MAX_STREAM_STEPS), dtype=np.int64
        )


def _clip(value: Any) -> float:
    return finite_float("a gradient's clip", value)


@frozen
class GradientStream(Query):
    """Sums of gradients clipped to ``clip``, at parameters that a mechanism chooses as it goes.

    What a unit moves is the sum of the one batch that it is in, whatever the parameters.
    """

    kind: ClassVar[str] = "gradient_stream"
    input_type: ClassVar[type] = ExamplesDomain
    output_type: ClassVar[type] = AdaptiveSums

    loss: str = field(converter=loss_text)
    clip: float = field(default=1.0, converter=_clip)

    def label(self) -> str:
        """Return whose gradients they are."""
        return f"gradients of {self.loss.removesuffix('()')} clipped to {self.clip:g}"

    def assumes(self) -> str:
        """Return what a loss of somebody's own must keep."""
        return loss_assumption(self.loss)

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples; refuse a loss that reads other labels."""
        loss_of(self.loss, inputs[0])
        if not (1e-100 <= self.clip <= 1e100):
            raise DeclarationError(f"a gradient's clip must be positive, got {self.clip!r}")
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of parameters."""
        return loss_of(self.loss, domain).outputs * domain.width

    def step(self, domain: ExamplesDomain) -> float:
        """Return the step in which sums are given."""
        return grid.step(self.clip, STREAM_STEP_BITS)

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return what a unit moves its batch's sum in l2: the bound for each of its rows.

        And what rounding the sum to steps adds: up to one in each coordinate.
        """
        if norm != 2:
            raise DeclarationError(
                "a gradient_stream is a sum in each round, which moves in l2: release it with "
                f"FollowTheLeader, whose norm is 2, got norm {norm!r}"
            )
        rounding = self.step(domain) * math.sqrt(self.dimension(domain))
        return (change.both * self.clip + rounding) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> ClippedGradients:
        """Return the sums; nothing is computed yet."""
        return ClippedGradients(inputs[0], names.read_any(self.loss), self.clip)
