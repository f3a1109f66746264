"""Each row's gradient by the parameters of a two-layer network; none is ever stored.

By a layer's weights it is an outer product of what comes back and what went in, so that its norm
is known without it (Goodfellow 2015), and the sum of clipped gradients is one more product of
matrices (Lee and Kifer 2021). What went in are whole steps, x of the row and u of its hidden units,
each with an l2 norm of at most 2^20; W1, W2 and the loss's slopes s are whole steps too.

**A row's share hangs on that row alone.** ``W1 x``, ``W2 u`` and ``W2' s`` are sums of whole
numbers, with norms of at most 2^32 and 2^20: by Cauchy and Schwarz every partial sum's size is at
most 2^52, however a product of matrices goes about it, so it is exact. All else is done to
each number by itself, or down a row's own column in a fixed order.

**No share is longer than the bound.** In steps of the sum, B of them the bound, a row's gradient
is ``g (r d x', s u')``, g a number of the row, r one of the parameters. With ``P = |(r |d| |x|,
|s| |u|)|`` and ``g <= limit / P`` its norm is at most the limit. Rounding ``g r d`` and ``g s`` to
whole numbers moves it by at most ``m = |(sqrt(h) |x|, sqrt(k) |u|)| / 2``, and the limit is
``B (1 - 2^-40) - m``, or 0. P is taken larger by more than its own rounding. (Own proof.)

**Sums are exact.** A share's numbers are at most B, below 2^36, as are those of any of its parts;
a block of 1024 adds up to less than 2^46, in whatever order, and blocks add up as integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, grid
from adaptive_dp.data.examples import Examples, exact_sum, to_steps
from adaptive_dp.graph.operation import Operation, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.problems import Network
from adaptive_dp.problems import names as losses
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.examples import ExamplesDomain
from adaptive_dp.queries.row_gradients import GradientsDomain, columnwise, loss_of

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
        s, exponents = slopes(network.loss.slope(scores, self.examples.labels[where]))
        d = self.second[:, 1:].T @ s
        d *= network.bent(np.multiply(u[1:], unit, out=z))
        went_on = np.sqrt(columnwise(np.square(u)))
        back = np.sqrt(columnwise(np.multiply(d, d, out=z)))
        lengths = np.hypot(self.ratio * back * x, np.sqrt(columnwise(np.square(s))) * went_on)
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


def slopes(values: Floats) -> tuple[Floats, Any]:
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

    Reads the examples and, beside them, the parameters, flat: see `adaptive_dp.problems.Network`.
    """

    kind: ClassVar[str] = "network_gradients"
    reads: ClassVar[type] = ExamplesDomain
    beside: ClassVar[int] = 1

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
        require(len(inputs) == 2, "gradients need examples and released parameters")
        loss_of(self.loss, inputs[0], own=False)
        return GradientsDomain(self.network.size(inputs[0].width), inputs[0])

    @property
    def network(self) -> Network:
        """The network."""
        try:
            return Network(losses.read(self.loss), self.hidden, self.activation)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            require(False, str(error))
            raise

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
