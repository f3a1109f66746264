"""The exact sum of the clipped gradients of the rows of a PyTorch module, without storing them.

A private training step needs ``sum_i g_i min(1, C / |g_i|)`` over the sampled rows i, g_i the
gradient of row i's loss by the trainable parameters, C the threshold. A backward pass gives the
sum of the g_i only. Three ways lead to the clipped sum, and `ClippedSums` chooses for each layer
when it is built:

- *Book-keeping* (Bu et al. 2023). One forward pass keeps the inputs a of the dense layers and one
  backward pass, by the layers' outputs alone, gives the slopes g there. A row's gradient by a
  weight is ``g a'``, of norm ``|g| |a|``, so that no row's gradient is formed, and the clipped sum
  is one product of matrices, ``(c g)' a``. With a time axis of T steps the norm is that of
  ``sum_t g_t a_t'``, from the T x T products of the g_t and of the a_t.
- *Small layers* (convolutions, dense layers with a long time axis, norms, biases): a row's gradient
  is formed from a and g by one batched product, since it is smaller than a and g are.
- *Everything else*: the gradient of each row by itself, `torch.func.vmap` of `torch.func.grad`; or
  one row after the other, where vmap does not know a kernel.

**No share is longer than the threshold.** A row's share is an integer vector S, and the sum's step
is 2^-36: the claim is ``|S| <= 2^36``. The share has parts, one for each weight or bias:

1. *Dense*: the row's a is rounded to integers A of a power of two that fits it, ``|A| <= 2^18 (1 +
   sqrt(p) 2^-19)``, and g times the clip factor f and a power of two to integers H. Its part of S
   is ``H' A``. In units of the threshold, rounding H moves it by at most ``sqrt(T d) 2^-19 |A|
   2^-18`` (``|D' A| <= |D| |A|`` in Frobenius norms).
2. *Formed*: the row's gradient times f, rounded to multiples of 2^-20, is moved by at most
   ``sqrt(n) 2^-21``. *Of an embedding* with T tokens, which may be equal, it is rounded to
   multiples of 2^-36, and moved by at most ``T sqrt(d) 2^-37``.

Let M be the root of the sum of the squares of these movements: it is known when the module is, and
refused above 2^-4. N is the norm of all parts before the second rounding, from A (not from a) and
g, computed in float64 and taken larger by more than its own rounding. With ``f <= (1 - M - 2^-20) /
N`` Minkowski's inequality over parts and rounding gives ``|S| 2^-36 <= f N (1 + 2^-22) + M <= 1``,
2^-22 the rounding of f and of products with it in float32. So f may be any number from 0 up to
that: ``1 / C``, or the other rules of `rule_factors`. *By layer* the
parts of each of L modules have a factor f_l of their own, from their own N_l and M_l, with
``f_l <= (1 / sqrt(L) - M_l - 2^-20) / N_l``: each module's part is then at most ``1 / sqrt(L)``
long, and all of them together at most 1. Where a row's loss or N is not finite
the share is 0: its a and g are replaced before any product. (Own proof.)

*Of units with several rows* each has as many slots of a pass as a power of two, next above the
number of its rows, with zeros in those that it does not need: by a layer its gradient is that of
one row whose axis of time has all of these, so that the parts above, with their margins for that
many steps, are its own, and no row's gradient is formed. Which power it is, and so in which shapes
kernels compute, is a function of the unit alone. Rows that are not finite are zeros before that. Of
more than 16 rows, and of layers that are not known, rows' gradients are formed and added up in
float64.

**Sums are exact.** A part's entries, and whatever a matrix product adds up on the way, are
integers. With ``|H| |A| <= 64 2^36`` (f is made smaller where cancellation in time would need more)
each row adds at most 2^42 in size to any partial sum by Cauchy and Schwarz, those that were added
before at most 2^36; so fewer than 2^10 rows at once and 2^16 in all stay below 2^53, in whatever
order a kernel adds, and beyond that they are added in int64. The sum does not depend on the order
of the rows, nor on how they are divided into batches. (Own proof.)

**A share depends on its row alone**, under an assumption: *a slot's results are a function of that
slot's row and of the slot*. Float kernels choose their order of addition by the shape of their
arguments, and at the ends of a matrix by the place: so every pass has the same shape, with empty
slots filled with a made-up row and masked. Of what is assumed this is tried when the object is
built: a made-up row is exchanged for another and for NaN, and no bit of another slot's results may
change; and each slot is given several rows, of which all results must be equal (``slots_agree``).
Where they are not, of any two slots each is exchanged while the other is not. Few numbers tell
whether the ends of threads' shares are computed by other code, so that no elementwise operation
that is rounded more than once may have such an end within a slot or a vector; sums are computed by
as many threads as were there. Physical batches for which they are not equal are passed over,
multiples of 32 are tried first. The last pass may have one of a few smaller shapes, if made-up rows
have the same results there, bit for bit, and in all slots. Not of units with several rows, and not
where a physical batch is asked for. If no size makes them equal, a row's share depends on its slot:
each row (or unit) is then given a random slot by the library's stream, independent of the others',
and there are as many passes as the fullest slot needs. Given all slots, a row more moves the sum by
one share, and the others' slots have the same law with and without it: the two laws of the sum are
mixtures of neighbours over the same weights, and divergences that are jointly convex are at most
the largest. (Own proof.) Where the slots agree, rows are placed in as few passes as hold them, at
random too. Nothing of this is claimed for a module that computes in another way on private rows
than on the made-up ones (a branch on values), except by `torch.func`.

References
----------
Goodfellow 2015, "Efficient per-example gradient computations". Lee and Kifer 2021, "Scaling up
differentially private deep learning with fast per-example gradient clipping". Bu, Mao and Xu 2022,
"Scalable and efficient training of large convolutional neural networks with differential privacy"
(the choice by layer). Bu, Wang, Zha and Karypis 2023, "Differentially private optimization on large
model at small cost" (book-keeping).
"""

from __future__ import annotations

import copy
import math
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import combinations, count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.noise.stream import SecureStream, Stream


class _Library:
    """PyTorch, imported when it is first used: documents of plans are read without it."""

    def __getattr__(self, name: str) -> Any:
        global torch
        torch = import_module("torch")
        return getattr(torch, name)


torch: Any = _Library()

Tensor = Any
Module = Any
"""A `torch.Tensor` and a `torch.nn.Module`."""

BITS = 36
"""The sum is given in steps of 2^-36 of the threshold."""

HALF = 18
"""A dense layer's inputs have 18 bits, and its clipped slopes the other 18."""

COARSE = 20
"""Formed gradients are rounded to multiples of 2^-20."""

BLOCK = 256
"""Squares that are added in float32."""

SHORTEST = 2.0**-48
"""Inputs of a smaller norm are rounded as those of this norm are."""

LONGEST = 2**22
"""The most numbers of a dense layer's inputs in a row: their float32 norm is then off by less than
a quarter."""

SLACK = 2.0**-20
"""What the factor leaves for the rounding of floats."""

REACH = 64.0
"""``|H| |A|`` of a row is at most this many times 2^36."""

MOST_SLOTS = 1000
"""Of a physical batch."""

MOST_NUMBERS = 2**27
"""Of formed gradients in a physical batch that is chosen here: half a GiB in float32."""

MOST_ROWS = 2**16
"""So many rows are added in float64 before the sum goes into int64; with a batch in the making,
``2^16 2^36 + 1000 (64 + 1) 2^36 < 2^53``."""

MOST_MARGIN = 2.0**-4

MOST_TOGETHER = 16
"""Rows of a unit that are computed without forming a row's gradient; of more they are formed."""

TINY = 1e-12
"""Norms of made-up rows' gradients that are compared as if they were this."""

LARGEST = 2.0**120
"""Norms of a row's inputs times those of its slopes: float32 products of that are finite."""

THRESHOLDS = (1e-20, 1e20)

SIZES = (32, 64, 256)
"""Physical batches that are tried."""

TURNS = 4
"""So many made-up rows are tried in each slot."""

GRAINS = (2**10, 2**11, 2**15)
"""PyTorch's kernels give so many numbers to a thread before they take another."""

VECTORS = 128
"""Bytes of the two vectors that an elementwise kernel computes at once, the longest there are."""

EXACT = """
abs add addmm alias arange bmm cat ceil clamp clamp_max clamp_min clone copy convolution
convolution_backward constant_pad_nd detach div embedding empty empty_like eq expand fill floor
frexp full full_like gather ge gt hardtanh hardtanh_backward im2col index index_add index_put
index_select le lift_fresh linalg_vector_norm lt masked_fill max_pool2d_with_indices
max_pool2d_with_indices_backward maximum mean minimum mm mul nan_to_num native_group_norm
native_group_norm_backward native_layer_norm native_layer_norm_backward ne neg new_zeros
nll_loss_backward nll_loss_forward ones_like permute reciprocal relu reshape round scalar_tensor
scatter select select_backward slice slice_backward sqrt squeeze stack sub sum t
threshold_backward transpose unfold unsqueeze view where zeros zeros_like _log_softmax
_log_softmax_backward_data _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward _softmax _softmax_backward_data _to_copy
_unsafe_view
"""
"""Operations of which each number is rounded once, so that all codes of it agree, and those that
are not parted in the middle of a row."""


def placed(count: int, slots: int, stream: Stream, *, agree: bool) -> NDArray[np.int64]:
    """Return which row is in each slot of each pass, -1 for none: shape (passes, slots).

    Rows (or units) are placed at random: in as few passes as hold them where slots agree, else each
    by itself, in as many passes as the fullest slot needs (the proof is above).
    """
    if agree:
        rows = np.full(max(1, -(-count // slots)) * slots, -1)
        rows[np.argsort(stream.words(len(rows)))[:count]] = np.arange(count)
    else:  # independent: no row's slot depends on how many others there are
        own = (stream.words(count) % np.uint64(slots)).astype(np.int64)
        order = np.argsort(own, kind="stable")
        full = np.bincount(own, minlength=slots)
        # of each row its place among those of its slot: the pass
        turn = np.arange(count) - np.repeat(np.cumsum(full) - full, full)
        rows = np.full(max(1, int(full.max())) * slots, -1)
        rows[turn * slots + own[order]] = order
    return rows.reshape(-1, slots)


def unit_batches(
    units: NDArray[Any], slots: int, stream: Stream, *, agree: bool
) -> Iterator[list[NDArray[np.int64]]]:
    """Yield batches: which row is in each slot of a pass, -1 for none.

    Units are placed at random: in as few batches as hold them where slots agree, else each by
    itself. A batch has a pass for its units' first rows, one for their second, and so on.
    """
    _, unit = np.unique(units, return_inverse=True)
    order = np.argsort(unit.reshape(-1), kind="stable")
    starts = np.searchsorted(unit.reshape(-1)[order], np.arange(unit.max(initial=-1) + 2))
    counts = np.diff(starts)
    for own in placed(len(counts), slots, stream, agree=agree):
        lengths = np.where(own >= 0, counts[own] if len(counts) else 0, 0)
        firsts = starts[np.maximum(own, 0)]
        yield [
            np.where(k < lengths, order[np.minimum(firsts + k, len(order) - 1)], -1)
            if len(order)
            else np.full(slots, -1)
            for k in range(max(1, int(lengths.max())))
        ]


def checked_threshold(threshold: float) -> float:
    """Return a threshold, or refuse one at which floats would under- or overflow."""
    threshold = float(threshold)
    if not THRESHOLDS[0] <= threshold <= THRESHOLDS[1]:
        raise DeclarationError(
            f"a threshold from {THRESHOLDS[0]:g} to {THRESHOLDS[1]:g} is needed, got {threshold!r}"
        )
    return threshold


RULES = ("flat", "automatic", "per_sample")
"""How a vector is shortened: see `rule_factors`."""


def rule_factors(norms: Any, rule: str, threshold: float, length: float = 1.0) -> Any:
    """Return what vectors of these norms are multiplied by, before none may be too long.

    ``1 / C`` (flat), ``l / (N + C)`` (automatic: Bu et al. 2023) or ``l / (N + C / (N + C))``
    (per-sample adaptive: Xia et al. 2023), with N the norm, C the threshold and l the length that
    a share may have. The least of that and of about ``l / N`` is what is taken: so the proof of a
    share's length needs nothing of these rules but that they are not negative.

    Examples
    --------
    >>> [float(rule_factors(np.float64(2.0), rule, 1.0)) for rule in RULES]
    [1.0, 0.3333333333333333, 0.42857142857142855]
    """
    if rule == "automatic":
        return length / (norms + threshold)
    if rule == "per_sample":
        return length / (norms + threshold / (norms + threshold))
    return 0 * norms + 1 / threshold


# -----------------------------------------------------------------------------
# What one pass knows of one parameter's part of every row's share. Each has its rows' squared norms
# (float64, shape (slots,)), can forget rows, and adds its part of the sum for given factors: where
# it is ``first``, to zeros, which need not be read.


def _norms(values: Tensor) -> Tensor:
    """Return the rows' l2 norms, in float64: squares of float32 neither under- nor overflow."""
    return torch.linalg.vector_norm(values.flatten(1), dim=1, dtype=torch.float64)


def _apart(values: list[Tensor], others: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors of which none shares memory with another, with itself, or with others.

    Two parameters with equal gradients, such as the two biases of an LSTM, may have them in one
    tensor, and parts are overwritten where they are added.
    """
    seen = {each.untyped_storage().data_ptr() for each in others}
    apart = []
    for value in values:
        memory = value.untyped_storage().data_ptr()
        # of one row, a value without an axis of rows, such as a buffer, is contiguous too
        alone = memory not in seen and value.is_contiguous() and len(value) > 1
        apart.append(value if alone else value.clone(memory_format=torch.contiguous_format))
        seen.add(memory)
    return apart


def _wide(values: Tensor) -> Tensor:
    """Return at least float32."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _copied(values: Tensor) -> Tensor:
    """Return a float64 copy, which may be written to: slopes of two layers may be one tensor."""
    return values.to(torch.float64, copy=True)


class _Dense:
    """Rows ``g a'`` of a dense layer: inputs of shape (n, p), slopes (n, d), or with a time axis.

    Parameters
    ----------
    place
        Of the weight, d p numbers.
    inputs, slopes
        Shapes (n, p) and (n, d), or (n, T, p) and (n, T, d).
    bias
        The place of the bias, whose rows are the slopes; without a time axis only.
    """

    caps: Tensor = None

    def __init__(
        self, place: slice, inputs: Tensor, slopes: Tensor, bias: slice | None = None
    ) -> None:
        self.place, self.bias, inputs = place, bias, _wide(inputs)
        rough = torch.linalg.vector_norm(inputs.flatten(1), dim=1).double().clamp_min_(SHORTEST)
        # a power of two in (norm, 2 norm]: of m 2^e, m 2^e / m; NaN of infinity. Squares that
        # underflow in float32 add up to less than SHORTEST^2, and roundings to less than half
        self.scale = power = rough / torch.frexp(rough)[0]
        shape = (-1,) + (1,) * (inputs.ndim - 1)
        # inputs in steps of 2^-18 of that power: integers, which float32 has too. The power is from
        # 2^-48 to 2^128, and numbers that underflow would be rounded to 0
        scale = (2.0**HALF / power).to(inputs.dtype)
        self.inputs = (inputs * scale.view(shape)).round_().double()
        self.slopes = _copied(slopes)
        sizes = _norms(self.slopes)
        product = (_norms(self.inputs) * sizes).mul_(power * 2.0**-HALF).square_()
        if inputs.ndim == 2:
            # |g a'| = |g| |a|
            self.squares = product if bias is None else product.add_(sizes * sizes)
            if slopes.dtype != torch.float64:
                return  # |H| |A| <= 2^36 where A is not 0, and H is finite
        else:
            inner = torch.bmm(self.inputs, self.inputs.mT)
            inner.mul_(torch.bmm(self.slopes, self.slopes.mT))
            # |sum_t g_t a_t'|^2 = sum_st (a_s'a_t) (g_s'g_t); its float error, over whatever order,
            # is at most that many roundings of sum_st |a_s| |a_t| |g_s| |g_t| <= |A|^2 |g|^2
            steps, width = inputs.shape[1], inputs.shape[2] + slopes.shape[2]
            error = (steps**2 + width + 16) * 2.0**-51
            exact = inner.sum((1, 2)).mul_((power * 2.0**-HALF).square_())
            self.squares = exact.clamp_(min=0.0).add_(product.mul_(error))
        # the largest factors for which |H| |A| <= 64 2^36; half, for what rounding adds
        self.caps = REACH / 2 / (sizes * power)

    def forget(self, bad: Tensor) -> None:
        """Replace rows by 0."""
        self.inputs[bad] = 0.0
        self.slopes[bad] = 0.0
        self.scale[bad] = 1.0

    def add(self, factors: Tensor, total: Tensor, *, first: bool = False) -> None:
        """Add ``sum_i H_i' A_i``, exact: integers below 2^53 in any order."""
        if self.bias is not None:
            whole = (self.slopes * (factors * 2.0**BITS)[:, None]).round_()
            total[self.bias] += whole.sum(0)
        shape = (-1,) + (1,) * (self.slopes.ndim - 1)
        scale = (factors * self.scale).mul_(2.0 ** (BITS - HALF))
        steps = self.slopes.mul_(scale.view(shape)).round_()
        if steps.ndim > 2:
            steps, self.inputs = steps.flatten(0, 1), self.inputs.flatten(0, 1)
        into = total[self.place].view(steps.shape[1], -1)
        into.addmm_(steps.T, self.inputs, beta=0 if first else 1)

    def rows(self) -> Tensor:
        """Return what must depend on each row alone."""
        return torch.cat([self.inputs.flatten(1), self.slopes.flatten(1)], dim=1)


class _Formed:
    """Rows' gradients by one parameter, formed: shape (n, size). They are overwritten by `add`."""

    def __init__(self, place: slice, values: Tensor) -> None:
        self.place, self.values = place, _wide(values).flatten(1)
        block = math.gcd(self.values.shape[1], BLOCK)
        if block < 32 or self.values.dtype == torch.float64:
            self.squares = _norms(self.values) ** 2
        else:
            norms = torch.linalg.vector_norm(self.values.unflatten(1, (-1, block)), dim=2)
            # a float32 sum of 256 squares is off by at most 257 2^-24 of it; a square that
            # underflows, or the step of one that is subnormal, is below 2^-125
            self.squares = (_norms(norms) ** 2) * (1 + 2.0**-14) + self.values.shape[1] * 2.0**-125

    caps = None

    def forget(self, bad: Tensor) -> None:
        """Replace rows by 0."""
        self.values[bad] = 0.0

    def add(self, factors: Tensor, total: Tensor, *, first: bool = False) -> None:
        """Add the rows times factors, each rounded to steps of 2^-20: floats that are integers."""
        scale = (factors * 2.0**COARSE).to(self.values.dtype)
        steps = self.values.mul_(scale[:, None]).round_()
        into, whole = total[self.place], len(steps) // 16 * 16
        # 16 integers of at most 2^20 add up to at most 2^24, exact in float32
        sums = steps[:whole].unflatten(0, (-1, 16)).sum(1).sum(0, dtype=torch.float64)
        if whole < len(steps):
            sums += steps[whole:].sum(0)
        into.add_(sums, alpha=2.0 ** (BITS - COARSE))

    def rows(self) -> Tensor:
        """Return what must depend on each row alone."""
        return self.values


class _Lookup:
    """Rows' gradients of an embedding: slopes g_t of shape (n, T, d), added at the tokens' rows."""

    def __init__(self, place: slice, tokens: Tensor, slopes: Tensor, padding: int | None) -> None:
        self.place, self.tokens = place, tokens.long()
        if padding is not None:
            slopes = slopes.masked_fill((tokens == padding)[:, :, None], 0.0)
        self.slopes = _copied(slopes)
        lengths = _norms(self.slopes)
        steps, width = slopes.shape[1:]
        if steps == 1:
            self.squares = lengths**2
        else:
            same = tokens[:, :, None] == tokens[:, None, :]
            inner = torch.bmm(self.slopes, self.slopes.mT).masked_fill_(~same, 0.0)
            # sum of g_s'g_t over equal tokens; its float error is at most that many roundings of
            # sum_st |g_s| |g_t| <= T |g|^2
            error = steps * (steps**2 + width + 16) * 2.0**-51
            self.squares = inner.sum((1, 2)).clamp_(min=0.0).add_(lengths**2 * error)
        # a row's entries add up to at most sqrt(T) |H|
        self.caps = max(REACH / 2 / math.sqrt(steps), 1.0) / lengths

    def forget(self, bad: Tensor) -> None:
        """Replace rows by 0."""
        self.slopes[bad] = 0.0

    def add(self, factors: Tensor, total: Tensor, *, first: bool = False) -> None:
        """Add the rows times factors, each rounded to steps."""
        steps = self.slopes.mul_((factors * 2.0**BITS)[:, None, None]).round_()
        width = steps.shape[-1]
        into = total[self.place].view(-1, width)
        into.index_add_(0, self.tokens.flatten(), steps.reshape(-1, width))

    def rows(self) -> Tensor:
        """Return what must depend on each row alone."""
        return self.slopes.flatten(1)


# -----------------------------------------------------------------------------
# Layers: which parts their rows' gradients have, from what they read and the slopes of what they
# write. An entry returns None where the layer is not of the kind that it knows.


class _Layer:
    """A layer of the copy, with the places of its trainable parameters in the flat vector."""

    def __init__(self, prefix: str, module: Module, places: dict[str, slice]) -> None:
        self.prefix, self.name = prefix, prefix or type(module).__name__
        self.module, self.places = module, places
        self.calls, self.slots, self.active = 0, 1, False
        self.read: Tensor = None
        self.wrote: Tensor = None
        self.shared = False
        """Whether what it reads has no axis of rows (positions): it is repeated for each row."""
        self.margins: dict[str, float] = {}
        self.rows = 1
        """How many slots a unit has, one after the other."""

    def __call__(self, module: Module, read: tuple[Any, ...], wrote: Tensor) -> Tensor:
        """Keep what the layer read and wrote (a forward hook)."""
        if not self.active:
            return wrote
        self.calls += 1
        if len(read) != 1:
            raise _UnknownLayer(self.name)
        if self.shared:  # what is read may have an axis of length 1 for the rows, or none
            cut = int(read[0].shape[:1] == wrote.shape[:1] == (1,))
            wrote = wrote.expand(self.slots, *wrote.shape[cut:])
            read = (read[0].expand(self.slots, *read[0].shape[cut:]),)
        if not wrote.requires_grad:
            # the parameters are frozen here: the layer's output is where slopes begin
            wrote = wrote.detach().requires_grad_() if self.shared else wrote.requires_grad_()
        self.read, self.wrote = read[0].detach(), wrote
        return wrote

    def parts(self, slopes: Tensor) -> Iterator[_Dense | _Formed | _Lookup]:
        """Yield the parts of the rows' gradients, given the slopes at what the layer wrote."""
        read, self.read, self.wrote = self.read, None, None
        yield from _PARTS[_kind(self.module)](self, read, slopes)


class _UnknownLayer(Exception):
    """The layer is used in a way that book-keeping does not know."""


def _rounding(size: int) -> float:
    """Return by how much rounding ``size`` numbers to multiples of 2^-20 moves their vector."""
    return math.sqrt(size) * 2.0 ** -(COARSE + 1)


Parts = Iterator[_Dense | _Formed | _Lookup]


def _of_units(layer: _Layer, values: Tensor) -> Tensor:
    """Return what a unit's rows have on the axis of time: (n, T, width) as (n / r, r T, width)."""
    return values.unflatten(0, (-1, layer.rows)).flatten(1, 2) if layer.rows > 1 else values


def _products(layer: _Layer, read: Tensor, slopes: Tensor, groups: int = 1) -> Parts:
    """Yield the parts of a weight whose rows' gradients are ``sum_t g_t a_t'``, (n, T, width)."""
    place = layer.places["weight"]
    steps, p, d = read.shape[1], read.shape[2] // groups, slopes.shape[2] // groups
    # formed gradients cost d p numbers a row; slopes and inputs T (p + d), which are there already,
    # and T^2 inner products
    short = steps**2 < p * d and 4 * steps * (p + d) < p * d and steps * p <= LONGEST
    if groups == 1 and short:
        layer.margins["weight"] = math.sqrt(steps * d) * 2.0**-HALF
        yield _Dense(place, read, slopes)
        return
    layer.margins["weight"] = _rounding(p * d * groups)
    read, slopes = _wide(read), _wide(slopes)
    if groups > 1:
        read = read.unflatten(2, (groups, p)).transpose(1, 2).flatten(0, 1)
        slopes = slopes.unflatten(2, (groups, d)).transpose(1, 2).flatten(0, 1)
    yield _Formed(place, torch.bmm(slopes.mT, read).view(len(slopes) // groups, -1))


def _bias(layer: _Layer, slopes: Tensor) -> Parts:
    """Yield a bias's part: slopes added over time, shape (n, T, d) or (n, d)."""
    if "bias" in layer.places:
        layer.margins["bias"] = _rounding(slopes.shape[-1])
        slopes = _wide(slopes)
        values = slopes.clone() if slopes.ndim == 2 else slopes.sum(1)
        yield _Formed(layer.places["bias"], values)


def _linear(layer: _Layer, read: Tensor, slopes: Tensor) -> Parts:
    if read.ndim < 2 or read.dtype != slopes.dtype:
        raise _UnknownLayer(layer.name)
    if layer.rows > 1:
        read, slopes = (each.unflatten(0, (-1, layer.rows)) for each in (read, slopes))
    if read.ndim > 2:
        read, slopes = read.flatten(1, -2), slopes.flatten(1, -2)
    if read.ndim == 2 and "weight" in layer.places:
        if read.shape[1] > LONGEST:
            raise _UnknownLayer(layer.name)
        layer.margins["weight"] = math.sqrt(slopes.shape[1]) * 2.0**-HALF
        layer.margins["bias"] = math.sqrt(slopes.shape[1]) * 2.0 ** -(BITS + 1)
        yield _Dense(layer.places["weight"], read, slopes, layer.places.get("bias"))
        return
    if "weight" in layer.places:
        yield from _products(layer, read, slopes)
    yield from _bias(layer, slopes)


def _embedding(layer: _Layer, read: Tensor, slopes: Tensor) -> Parts:
    module: Any = layer.module
    if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
        raise _UnknownLayer(layer.name)
    units = len(read) // layer.rows
    tokens, slopes = read.reshape(units, -1), slopes.reshape(units, -1, slopes.shape[-1])
    steps, width = slopes.shape[1:]
    count = module.num_embeddings
    if count <= 4 * steps:  # as positions: formed gradients are as small as slopes
        if module.padding_idx is not None:
            slopes = slopes.masked_fill((tokens == module.padding_idx)[:, :, None], 0.0)
        rows = torch.arange(len(tokens), device=tokens.device)[:, None] * count
        values = _wide(slopes).new_zeros((len(tokens) * count, width))
        values.index_add_(0, (tokens + rows).flatten(), _wide(slopes).flatten(0, 1))
        layer.margins["weight"] = _rounding(count * width)
        yield _Formed(layer.places["weight"], values.view(len(tokens), -1))
        return
    layer.margins["weight"] = steps * math.sqrt(width) * 2.0 ** -(BITS + 1)
    if steps > REACH**2:
        raise _UnknownLayer(layer.name)
    yield _Lookup(layer.places["weight"], tokens, slopes, module.padding_idx)


def _convolution(layer: _Layer, read: Tensor, slopes: Tensor) -> Parts:
    """Convolutions are dense layers of patches: the time axis is the places of the output."""
    module: Any = layer.module
    flat = isinstance(module, torch.nn.Conv1d)
    if module.padding_mode != "zeros" or read.ndim != (3 if flat else 4):
        raise _UnknownLayer(layer.name)
    if "weight" in layer.places:
        padded = torch.nn.functional.pad(read, module._reversed_padding_repeated_twice)
        size, stride, dilation = module.kernel_size, module.stride, module.dilation
        if flat:
            padded = padded[:, :, None, :]
            size, stride, dilation = (1, *size), (1, *stride), (1, *dilation)
        patches = torch.nn.functional.unfold(padded, size, dilation, 0, stride).mT
        places = _of_units(layer, slopes.flatten(2).mT)
        yield from _products(layer, _of_units(layer, patches), places, module.groups)
    yield from _bias(layer, _of_units(layer, slopes.flatten(2).mT))


def _normalisation(layer: _Layer, read: Tensor, slopes: Tensor) -> Parts:
    """Layer and group norms: ``w x + b`` of normalised x, each coordinate by itself."""
    module: Any = layer.module
    read, slopes = _wide(read), _wide(slopes)
    if isinstance(module, torch.nn.LayerNorm):
        shape = tuple(module.normalized_shape)
        plain = torch.nn.functional.layer_norm(read, shape, eps=module.eps)
        inner = tuple(range(1, read.ndim - len(shape)))
    else:
        plain = torch.nn.functional.group_norm(read, module.num_groups, eps=module.eps)
        inner = tuple(range(2, read.ndim))
    for name, values in (("weight", plain.mul_(slopes)), ("bias", slopes)):
        if name in layer.places:
            values = values.sum(inner) if inner else values.clone()
            values = values.flatten(1)
            if layer.rows > 1:
                values = values.unflatten(0, (-1, layer.rows)).sum(1)
            layer.margins[name] = _rounding(values.shape[1])
            yield _Formed(layer.places[name], values)


def _kind(module: Module) -> str:
    """Return a module's class; subclasses may compute otherwise, and are not known."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


_PARTS: dict[str, Callable[[_Layer, Tensor, Tensor], Parts]] = {
    "torch.nn.modules.linear.Linear": _linear,
    "torch.nn.modules.sparse.Embedding": _embedding,
    "torch.nn.modules.conv.Conv1d": _convolution,
    "torch.nn.modules.conv.Conv2d": _convolution,
    "torch.nn.modules.normalization.LayerNorm": _normalisation,
    "torch.nn.modules.normalization.GroupNorm": _normalisation,
}


# -----------------------------------------------------------------------------
# Losses of rows.


def _row_losses(loss: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return each row's loss, that of a batch of this row alone, shape (n,).

    The common losses are computed at once; any other one for each row by itself under `vmap`, so
    that it cannot mix rows.
    """
    if outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point():
        if loss is torch.nn.functional.cross_entropy:
            return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
        if (
            type(loss) is torch.nn.CrossEntropyLoss
            and loss.weight is None
            and loss.reduction != "none"
        ):
            return torch.nn.functional.cross_entropy(
                outputs,
                targets,
                reduction="none",
                ignore_index=loss.ignore_index,
                label_smoothing=loss.label_smoothing,
            )
    return torch.func.vmap(lambda o, t: _scalar(loss(o[None], t[None])))(outputs, targets)


def _scalar(value: Tensor) -> Tensor:
    if value.numel() != 1:
        raise DeclarationError(
            f"the loss of one row must be one number, got shape {tuple(value.shape)}; let it "
            "return the mean or the sum over a row's parts"
        )
    return value.reshape(())


# -----------------------------------------------------------------------------


@contextmanager
def _as_built(threads: int | None = None) -> Iterator[None]:
    """Compute as a network was tried, whatever modes of PyTorch are on around, and threads."""
    before = torch.get_num_threads()
    try:
        if threads not in (None, before):
            torch.set_num_threads(threads)
        with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        if threads not in (None, before):
            torch.set_num_threads(before)


class ClippedSums:
    """Exact sums of the clipped gradients of a module's rows; see the head of this file.

    Built once for a module, a loss and the shapes of rows; the module is copied and never changed.
    One thread at a time may call it.

    Parameters
    ----------
    module
        Computes outputs from a batch of inputs, row by row.
    loss
        Of outputs and targets, such as ``torch.nn.CrossEntropyLoss()``: what it returns for a batch
        of one row is that row's loss.
    inputs, targets
        A few made-up rows (two or more): public, of the shapes and types of the private ones.
    physical_batch
        The number of slots of a pass, at most 1000. Without it two or three sizes are tried.
    expected
        The expected number of rows (or units) of a call, by which a physical batch is chosen.
    by_unit
        Whether rows are of units, which may have several, whose gradients are added up before they
        are clipped.

    Attributes
    ----------
    size
        The number of trainable parameters.
    step
        2^-36: the sum is given in steps of this share of the threshold.
    engines
        What was chosen: from names of parameters to "dense", "formed", "lookup", "vmap" or "alone".
    slots_agree
        Whether a made-up row had the same results, bit for bit, in all slots.

    Raises
    ------
    DeclarationError
        If a layer mixes rows, draws random numbers, or changes its buffers or parameters: by name.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> x, y = np.float32([[3, 4], [0, 0.5], [1, 1]]), np.float32([[0], [1], [2]])
    >>> sums = ClippedSums(net, torch.nn.MSELoss(), x, y)
    >>> total, short = sums(np.zeros(3), x, y, threshold=1.0)
    >>> total.shape, bool(np.abs(total * sums.step).max() <= 3)
    ((3,), True)
    """

    step: float = 2.0**-BITS

    @_as_built()
    def __init__(
        self,
        module: Module,
        loss: Any,
        inputs: Any,
        targets: Any,
        *,
        physical_batch: int | None = None,
        expected: int | None = None,
        by_unit: bool = False,
    ) -> None:
        self._by_unit, self._threads, self._clean = by_unit, torch.get_num_threads(), True
        names = [n for n, p in module.named_parameters() if p.requires_grad]
        if not names:
            raise DeclarationError("the module has no parameter with requires_grad: nothing to fit")
        if isinstance(loss, torch.nn.Module) and any(p.requires_grad for p in loss.parameters()):
            raise DeclarationError("the loss has parameters to fit; make them a part of the module")
        self._loss = loss
        self._module = copy.deepcopy(module)
        for inner in self._module.modules():
            if getattr(inner, "inplace", False):  # what a layer wrote must stay as it was
                inner.inplace = False
        self._parameters = {n: p for n, p in self._module.named_parameters() if n in set(names)}
        self._places: dict[str, slice] = {}
        start = 0
        for name, parameter in self._parameters.items():
            self._places[name] = slice(start, start + parameter.numel())
            start += parameter.numel()
        self.size = start
        self._like = next(iter(self._parameters.values()))
        # kept: to page in a new one takes as long as a pass of a small network
        self._total = torch.zeros(start, dtype=torch.float64, device=self._like.device)
        # one buffer for all, where they have one precision: set by one copy
        self._flat: Tensor = None
        if len({(p.dtype, p.device) for p in self._parameters.values()}) == 1:
            self._flat = torch.cat([p.detach().flatten() for p in self._parameters.values()])
            for name, parameter in self._parameters.items():
                parameter.data = self._flat[self._places[name]].view(parameter.shape)
        for parameter in self._module.parameters():
            parameter.requires_grad_(False)
        self._made_up(inputs, targets)
        with torch.random.fork_rng(devices=[]):
            kept = {n: p.detach().clone() for n, p in self._parameters.items()}
            self._nudge()
            _refuse_impure(self._module, self._inputs)
            _refuse_mixed(self._module, self._inputs, self._other(self._inputs))
            self._choose()
            self._group()
            if self._margin > MOST_MARGIN:
                raise DeclarationError(
                    f"the module has {self.size} trainable parameters, too many for steps of 2^-36"
                )
            self._choose_slots(physical_batch, expected)
            if self._by_unit:
                self._choose_together()
            for name, parameter in self._parameters.items():
                parameter.copy_(kept[name])
            self._total.zero_()

    # --- when it is built

    def _made_up(self, inputs: Any, targets: Any) -> None:
        inputs, targets = self._tensor(inputs), self._tensor(targets)
        if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets) or len(inputs) < 2:
            raise DeclarationError(
                "two or more made-up rows are needed, as many inputs as targets; got shapes "
                f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
            )
        self._inputs, self._targets = inputs[:8].clone(), targets[:8].clone()

    def _tensor(self, values: Any) -> Tensor:
        """Return values on the module's device, floats in its precision, integers as int64."""
        if isinstance(values, np.ndarray) and not values.flags.writeable:
            values = values.copy()  # torch warns of a view of what must not change
        tensor = torch.as_tensor(values)
        floating = self._like.dtype if self._like.is_floating_point() else torch.float32
        dtype = floating if tensor.is_floating_point() else torch.int64
        if tensor.dtype in (torch.bool, torch.uint8):
            dtype = tensor.dtype
        return tensor.to(self._like.device, dtype)

    def _nudge(self) -> None:
        """Move the copy's parameters off zeros, where gradients that are wrong may be zero too."""
        generator = torch.Generator().manual_seed(2**31 - 1)
        for parameter in self._parameters.values():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.05
            parameter.add_(noise.to(parameter))

    def _other(self, rows: Tensor) -> Tensor:
        """Return other made-up rows: floats are moved, integers exchanged for others that occur."""
        generator = torch.Generator().manual_seed(2**31 - 1)
        if rows.is_floating_point():
            noise = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
            return rows + noise.to(rows)
        flat = rows.flatten()
        return flat[torch.randint(len(flat), rows.shape, generator=generator)]

    def _choose(self) -> None:
        """Take book-keeping if it agrees with `vmap` on the made-up rows, else `vmap`."""
        self._layers: list[_Layer] | None = None
        self._vmap_fails = False
        kinds: set[Any] = {self._like.dtype}

        def noted(tensor: Tensor) -> Tensor:
            kinds.add(tensor.dtype)
            return tensor

        try:
            with torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
                truth = self._one_by_one(self._inputs, self._targets)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise DeclarationError(
                f"the gradient of one made-up row cannot be computed: {error}"
            ) from None
        # what a module computes in half precision is as exact as that in a batch
        halves = kinds & {torch.bfloat16, torch.float16}
        self._tolerance = 2.0**-4 if halves else 2.0**-10
        self._margin = _rounding(self.size)
        self.engines, self._numbers = dict.fromkeys(self._parameters, "vmap"), self.size
        layers = self._known_layers()
        if layers is not None:
            self._layers = layers
            hooks = [layer.module.register_forward_hook(layer) for layer in layers]
            margin = self._try(truth)
            if margin is not None:
                self._margin = margin
                # of units with many rows, all are formed
                self._numbers = (
                    self.size
                    if self._by_unit
                    else sum(
                        place.stop - place.start
                        for name, place in self._places.items()
                        if self.engines[name] == "formed"
                    )
                )
                return
            self._layers = None
            for hook in hooks:
                hook.remove()
        self.engines = dict.fromkeys(self._parameters, "vmap")
        try:
            values, _ = self._by_row(self._inputs, self._targets)
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            # kernels that vmap does not know, such as those of GRU
            self._vmap_fails = True
            self.engines = dict.fromkeys(self._parameters, "alone")
            values, _ = self._by_row(self._inputs, self._targets)
        flat = torch.cat([v.flatten(1).double() for v in values], dim=1)
        for right, row in zip(truth, flat, strict=True):
            norm, away = (float(torch.linalg.vector_norm(v)) for v in (right, row - right))
            if away > self._tolerance * norm:
                raise DeclarationError(
                    "torch.func.vmap gives other gradients of the made-up rows than one row by "
                    "itself has: the module or the loss depends on the number of rows"
                )
        if not self._adds_up(truth):
            raise DeclarationError(
                "the gradients of this module's made-up rows do not add up to their sum"
            )

    def _group(self) -> None:
        """Note whose each parameter is, and by how much rounding moves a module's part."""
        # a module whose parameters are all empty has no part
        owners = {
            name: name.rpartition(".")[0] for name, p in self._parameters.items() if p.numel()
        }
        modules = list(dict.fromkeys(owners.values()))
        self._module_of = {
            self._places[name].start: modules.index(owner) for name, owner in owners.items()
        }
        self._modules = [[n for n in owners if owners[n] == module] for module in modules]
        self._prefixes = modules
        self._margins = self._by_module(formed=self._layers is None)

    def _by_module(self, *, formed: bool) -> list[float]:
        """Return by how much rounding moves each module's part, of the last pass."""
        if formed or self._layers is None:
            ends = [[self._places[name] for name in own] for own in self._modules]
            return [_rounding(sum(p.stop - p.start for p in own)) for own in ends]
        margins = {
            layer.prefix: math.sqrt(sum(m * m for m in layer.margins.values()))
            for layer in self._layers
        }
        return [margins[prefix] for prefix in self._prefixes]

    def _known_layers(self) -> list[_Layer] | None:
        """Return the layers that own trainable parameters, or None if one is not known."""
        owners: dict[int, int] = {}
        for inner in self._module.modules():
            for p in inner._parameters.values():
                if p is not None:
                    owners[id(p)] = owners.get(id(p), 0) + 1
        layers = []
        for name, inner in self._module.named_modules():
            own = {k: p for k, p in inner._parameters.items() if p is not None}
            prefix = name + "." if name else ""
            places = {k: self._places[prefix + k] for k in own if prefix + k in self._places}
            if not places:
                continue
            if _kind(inner) not in _PARTS or any(owners[id(own[k])] > 1 for k in places):
                return None
            layers.append(_Layer(name, inner, places))
        covered = sum(s.stop - s.start for layer in layers for s in layer.places.values())
        return layers if covered == self.size else None

    def _try(self, truth: list[Tensor]) -> float | None:
        """Return the margin if the layers' shares are the made-up rows' gradients, else None."""
        assert self._layers is not None
        try:
            widths = []
            for rows in (self._inputs, torch.cat([self._inputs, self._inputs[:1]])):
                self._forward(rows)
                widths.append([_rows_read(layer) for layer in self._layers])
            for layer, one, two in zip(self._layers, *widths, strict=True):
                if layer.calls != 1:
                    return None
                layer.shared = one == two
            _, parts = self._pass(self._inputs, self._targets)
            kinds = {_Dense: "dense", _Formed: "formed", _Lookup: "lookup"}
            starts = {part.place.start: kinds[type(part)] for part in parts}
            starts |= {part.bias.start: "dense" for part in parts if getattr(part, "bias", None)}
            self.engines = {n: starts.get(s.start, "") for n, s in self._places.items()}
            if not self._adds_up(truth):
                return None
        except (_UnknownLayer, RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            self.engines = dict.fromkeys(self._parameters, "vmap")
            return None
        margins = [m for layer in self._layers for m in layer.margins.values()]
        # |A| <= 2^18 (1 + sqrt(p) 2^-19) <= 2^19: twice each dense layer's half a step
        return math.sqrt(sum(m * m for m in margins))

    def _adds_up(self, truth: list[Tensor]) -> bool:
        """Return whether each made-up row's share and norm are those of its gradient."""
        n = len(self._inputs)
        for i, right in enumerate(truth):
            _, parts = self._pass(self._inputs, self._targets)
            total = self._total.zero_()
            norm = float(torch.linalg.vector_norm(right))
            if not math.isfinite(norm) or norm > 1e30:
                continue
            length = float(torch.sqrt(sum(part.squares for part in parts))[i])
            factors = torch.zeros(n, dtype=torch.float64, device=self._like.device)
            factors[i] = 1.0 / max(norm, TINY)
            for part in parts:
                part.add(factors, total)
            away = float(torch.linalg.vector_norm(total * self.step * max(norm, TINY) - right))
            # of a gradient of next to nothing, rounding is the most
            if max(away, abs(length - norm)) > self._tolerance * max(norm, TINY):
                return False
        return True

    # --- one pass

    def _row_loss(self) -> tuple[Callable[..., tuple[Tensor, Tensor]], dict[str, Tensor]]:
        """Return the loss of one row, a function of the trainable parameters, and these."""
        state = {n: p.detach() for n, p in self._module.named_parameters()}
        free = {n: state.pop(n) for n in self._parameters}
        state.update(self._module.named_buffers())

        def loss(free: dict[str, Tensor], row: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            outputs = torch.func.functional_call(self._module, {**free, **state}, (row[None],))
            value = _scalar(self._loss(outputs, target[None]))
            return value, value.detach()

        return loss, free

    def _one_by_one(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Return the gradients of rows, flat in float64, by plain automatic differentiation."""
        found, _ = self._alone(inputs, targets)
        return [torch.cat([v[i].flatten().double() for v in found]) for i in range(len(inputs))]

    def _alone(self, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return gradients and losses as `_by_row`, of one row after the other."""
        loss, free = self._row_loss()
        free = {n: v.requires_grad_() for n, v in free.items()}
        rows, losses = [], []
        for x, y in zip(inputs, targets, strict=True):
            with torch.enable_grad():
                value, detached = loss(free, x, y)
                rows.append(
                    torch.autograd.grad(
                        value, list(free.values()), allow_unused=True, materialize_grads=True
                    )
                )
            losses.append(detached)
        return [torch.stack(each) for each in zip(*rows, strict=True)], torch.stack(losses)

    def _by_row(self, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the gradient of each row by itself, by parameter, and the rows' losses."""
        if self._vmap_fails:
            values, losses = self._alone(inputs, targets)
            return [v[:, None] if v.ndim == 1 else v for v in values], losses
        loss, free = self._row_loss()
        gradient = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0))
        with warnings.catch_warnings():  # of kernels that vmap replaces by a loop
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            values, losses = gradient(free, inputs, targets)
        # a parameter that is one number has no axis beside the rows'
        return [v[:, None] if v.ndim == 1 else v for v in values.values()], losses

    def _forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs; the layers keep what they read and wrote."""
        assert self._layers is not None
        for layer in self._layers:
            layer.calls, layer.slots, layer.active = 0, len(inputs), True
        try:
            return self._module(inputs)
        finally:
            for layer in self._layers:
                layer.active = False

    def _pass(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[Any]]:
        """Return the rows' losses, and the parts of their gradients."""
        if self._layers is None:
            values, losses = self._by_row(inputs, targets)
            values = _apart(values, [inputs, targets, *self._parameters.values()])
            places = self._places.values()
            return losses, [_Formed(p, v) for p, v in zip(places, values, strict=True)]
        losses, slopes = self._slopes(inputs, targets)
        parts: list[Any] = []
        for layer, slope in zip(self._layers, slopes, strict=True):
            parts.extend(layer.parts(slope))
        return losses, parts

    def _slopes(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the rows' losses, and their slopes by what each layer wrote."""
        assert self._layers is not None
        with torch.enable_grad():
            losses = _row_losses(self._loss, self._forward(inputs), targets)
            wrote = [layer.wrote for layer in self._layers]
            ones = torch.ones_like(losses)
            slopes = torch.autograd.grad(losses, wrote, ones, materialize_grads=True)
        return losses.detach(), slopes

    def _joined(
        self, index: NDArray[np.int64], rows: int, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, list[Any], Tensor]:
        """Return losses (zeros), parts and mask of units that have ``rows`` slots each.

        A unit's gradient by a layer is that of one row whose axis of time has all rows': no row's
        is formed. A row that is not finite, or whose products might not be, is zero before that.
        """
        assert self._layers is not None
        x, y, good = self._placed(index, inputs, targets)
        losses, slopes = self._slopes(x, y)
        good = good & torch.isfinite(losses)
        for layer, slope in zip(self._layers, slopes, strict=True):
            sizes = _norms(slope)
            if layer.read.is_floating_point():
                sizes = sizes * _norms(layer.read)
            good = good & (sizes < LARGEST)
        whole, parts = len(index) // rows * rows, list[Any]()
        bad = ~good[:whole]
        for layer, slope in zip(self._layers, slopes, strict=True):
            read, slope = layer.read[:whole].clone(), slope[:whole].clone()
            if read.is_floating_point():
                read[bad] = 0.0
            slope[bad] = 0.0
            layer.read, layer.rows = read, rows
            try:
                parts.extend(layer.parts(slope))
            finally:
                layer.rows = 1
        held = good[:whole].view(-1, rows).any(dim=1)
        return torch.zeros(len(held), dtype=torch.float64, device=self._like.device), parts, held

    # --- slots

    def _choose_slots(self, physical: int | None, expected: int | None) -> None:
        """Take the size that was asked for, or the quickest of those whose slots agree."""
        if physical is not None:
            if isinstance(physical, bool) or not 1 <= physical <= MOST_SLOTS:
                raise DeclarationError(
                    f"a physical batch has 1 to {MOST_SLOTS} rows, got {physical!r}"
                )
            self.physical_batch = int(physical)
            self._sizes = [self.physical_batch]
            self.slots_agree = self._agree(self.physical_batch)
            if not self.slots_agree:
                self._refuse_pairs(self.physical_batch)
            return
        expected = 256 if expected is None else max(1, int(expected))
        # the number of rows is random, about a Poisson number: three of its quantiles
        counts = [max(1.0, expected + k * math.sqrt(expected)) for k in (-1.2, 0.0, 1.2)]
        costs: dict[int, float] = {}
        # one of them has a slot for all rows of most samples, one for those of half of them
        usual, whole = (32 * math.ceil((expected + k * math.sqrt(expected)) / 32) for k in (0, 2))
        most = min(whole, MOST_SLOTS // 32 * 32)
        sizes = {*(s for s in (*SIZES, usual) if s < most), most}
        room = max(1, MOST_NUMBERS // max(1, self._numbers))
        seconds: dict[int, float] = {}
        for size in sorted(s for s in sizes if s <= room) or [room]:
            seconds[size] = self._seconds(size)
            passes = [self._passes(math.ceil(n), list(seconds)) for n in counts]
            costs[size] = sum(seconds[s] for own in passes for s in own) / len(counts)
            before = [cost for other, cost in costs.items() if other != size]
            if seconds[size] > 0.05 and before and costs[size] > 0.95 * min(before):
                break  # of a large network: a larger batch would need more memory
        # the quickest, or a smaller one that is nearly as quick
        quick = 1.05 * min(costs.values())
        order = sorted(costs, key=lambda size: (costs[size] > quick, size))
        for size in order:
            self.physical_batch, self.slots_agree = size, self._agree(size)
            if self.slots_agree:
                smaller = [s for s in seconds if s < size and self._alike(s, size)]
                self._sizes = [*smaller, size]
                return
        self.physical_batch = order[0]
        self._sizes = [order[0]]
        self._refuse_pairs(order[0])

    @staticmethod
    def _passes(count: int, sizes: list[int]) -> list[int]:
        """Return the sizes of the passes of so many rows: the last is as small as may be."""
        full, rest = divmod(count, sizes[-1])
        last = [min(s for s in sizes if s >= rest)] if rest or not full else []
        return [sizes[-1]] * full + last

    def _alike(self, small: int, large: int) -> bool:
        """Return whether made-up rows have the same results in passes of both sizes, and slots."""
        one, two = (self._results(*self._filled(slots)) for slots in (small, large))
        n = min(2 * len(self._inputs), small)
        equal = all(torch.equal(a[:n], b[:n]) for a, b in zip(one, two, strict=True))
        return equal and self._agree(small)

    def _choose_together(self) -> None:
        """Find of how many rows a unit's gradient can be computed without forming rows'."""
        self._together: dict[int, bool] = {}
        self._together_margins: dict[int, tuple[float, list[float]]] = {}
        layers, self._layers = self._layers, None
        try:  # where units have more rows, those are formed, in slots of their own
            self._formed_agree = self._agree(self.physical_batch)
        finally:
            self._layers = layers
        if layers is None:
            return
        rows = 1
        while rows <= min(MOST_TOGETHER, self.physical_batch):
            with suppress(_UnknownLayer, RuntimeError, ValueError):
                self._try_together(rows)
            rows *= 2

    def _try_together(self, rows: int) -> None:
        """Take units of so many slots if their sums are those of the rows' own gradients."""
        assert self._layers is not None
        truth, n = self._one_by_one(self._inputs, self._targets), len(self._inputs)
        own, units = min(rows, n), self.physical_batch // rows
        index = np.full(self.physical_batch, -1)
        index[:own] = np.arange(own)
        _, parts, _ = self._joined(index, rows, self._inputs, self._targets)
        whole = math.sqrt(sum(m * m for layer in self._layers for m in layer.margins.values()))
        margins = whole, self._by_module(formed=False)
        right, total = sum(truth[:own]), self._total.zero_()
        norm = float(torch.linalg.vector_norm(right))
        longest = sum(float(torch.linalg.vector_norm(each)) for each in truth[:own])
        found = float(torch.sqrt(sum(part.squares for part in parts))[0])
        factors = torch.zeros(units, dtype=torch.float64, device=self._like.device)
        factors[0] = 1.0 / max(norm, TINY)
        for part in parts:
            part.add(factors, total)
        away = float(torch.linalg.vector_norm(total * self.step * max(norm, TINY) - right))
        # gradients may cancel: what rounding moves is in proportion to the sum of their norms
        right_sum = max(away, abs(found - norm)) <= self._tolerance * max(longest, TINY) < math.inf
        if whole <= MOST_MARGIN and right_sum:
            self._together_margins[rows] = margins
            agree = self._units_agree(rows)
            self._together[rows] = agree and self.slots_agree

    def _units_agree(self, rows: int) -> bool:
        """Return whether one unit has the same results in all places; refuse units that mix."""
        slots, n = self.physical_batch // rows * rows, 2 * len(self._inputs)
        index = np.full(self.physical_batch, -1)
        inputs, targets = self._several()
        targets = torch.cat([targets, targets[:1]])

        def results(index: NDArray[np.int64], last: Tensor) -> list[Tensor]:
            _, parts, _ = self._joined(index, rows, torch.cat([inputs, last]), targets)
            found = [part.rows() for part in parts] + [part.squares[:, None] for part in parts]
            return [torch.nan_to_num(values.reshape(slots // rows, -1)) for values in found]

        # unit u has the rows u, u + 1, ... of those, and so has each n-th unit
        units, of = np.divmod(np.arange(slots), rows)
        m = min(n, slots // rows)
        index[:slots] = (units % m + of) % n
        middle = slots // rows // 2
        keep = torch.arange(slots // rows) != middle
        before = results(index, self._inputs[:1])
        index[middle * rows : (middle + 1) * rows] = n
        for other in self._exchanges(self._inputs[:1]):
            after = results(index, other)
            if not all(torch.equal(a[keep], b[keep]) for a, b in zip(before, after, strict=True)):
                raise DeclarationError(
                    f"in {type(self._module).__name__} a unit's gradient depends on the units "
                    f"beside it, in a batch of {self.physical_batch}"
                )
        for turn in range(min(TURNS, m)):
            index[:slots] = ((units + turn) % m + of) % n
            held = torch.arange(turn, turn + slots // rows) % m
            found = results(index, self._inputs[:1])
            if not all(torch.equal(a, b[held]) for a, b in zip(found, before, strict=True)):
                return False
        return True

    def _held(self, slots: int, turn: int = 0) -> Tensor:
        """Return which of the rows of `_several` each slot is given.

        Slots of equal rows have others in another turn: by an odd step, which differs.
        """
        place, rows = torch.arange(slots), min(2 * len(self._inputs), slots)
        return (place + turn * (1 + 2 * (place // rows))) % rows

    def _several(self) -> tuple[Tensor, Tensor]:
        """Return the made-up rows, and others: of zeros or ones, any order of adding is exact."""
        inputs = torch.cat([self._inputs, self._other(self._inputs)])
        return inputs, torch.cat([self._targets, self._targets])

    def _filled(self, slots: int, turn: int = 0) -> tuple[Tensor, Tensor]:
        inputs, targets = self._several()
        held = self._held(slots, turn)
        return inputs[held], targets[held]

    def _seconds(self, slots: int) -> float:
        """Return the processor time of a pass over made-up rows, the least of some."""
        inputs, targets = self._filled(slots)
        taken: list[float] = []
        while len(taken) < 3 or (sum(taken) < 0.03 and len(taken) < 30):
            total = self._total.zero_()
            start = time.process_time()
            losses, parts = self._pass(inputs, targets)
            self._add(losses, parts, torch.ones_like(losses, dtype=torch.bool), total, 1.0)
            taken.append(time.process_time() - start)
        return min(taken)

    def _agree(self, slots: int) -> bool:
        """Return whether rows have the same results in all slots; refuse rows that mix.

        Of what is assumed (the head of this file): one made-up row is exchanged for another, and
        for NaN, and the others' results must not change by a bit. Where two threads part a tensor,
        and at its end, a few numbers of a slot may be computed by other code than elsewhere, which
        agrees for most numbers: so each slot is given several rows.
        """
        inputs, targets = self._filled(slots)
        before, parted = self._traced(slots, inputs, targets)
        keep = torch.arange(slots) != slots // 2
        for other in self._exchanges(inputs[slots // 2 :][:1]):
            changed = inputs.clone()
            changed[slots // 2] = other[0]
            after = self._results(changed, targets)
            if not all(torch.equal(a[keep], b[keep]) for a, b in zip(before, after, strict=True)):
                raise DeclarationError(
                    f"in {type(self._module).__name__} a row's gradient depends on the rows beside "
                    f"it, in a batch of {slots}"
                )
        if parted:
            return False
        for turn in range(min(TURNS, slots)):
            found = self._results(*self._filled(slots, turn)) if turn else before
            held = self._held(slots, turn)
            if not all(torch.equal(a, b[held]) for a, b in zip(found, before, strict=True)):
                return False
        return True

    def _refuse_pairs(self, slots: int) -> None:
        """Refuse a slot that depends on any other one, where slots do not agree.

        This may be why, and the one exchange of `_agree` tells of its own slot alone. Each slot is
        exchanged in half of the turns: as no two slots have the same ones, and all have as many, of
        any two each is exchanged once while the other is not (Sperner 1928).
        """
        turns = next(n for n in count(1) if math.comb(n, n // 2) >= slots)
        sets = [*islice(combinations(range(turns), turns // 2), slots)]
        inputs, targets = self._filled(slots)
        before, other, others = self._results(inputs, targets), inputs.roll(1, 0), targets.roll(1)
        for turn in range(turns):
            moved = torch.tensor([turn in own for own in sets])
            index = torch.where(moved, torch.arange(slots) + slots, torch.arange(slots))
            after = self._results(
                torch.cat([inputs, other])[index], torch.cat([targets, others])[index]
            )
            if not all(
                torch.equal(a[~moved], b[~moved]) for a, b in zip(before, after, strict=True)
            ):
                raise DeclarationError(
                    f"in {type(self._module).__name__} a row's gradient depends on the rows beside "
                    f"it, in a batch of {slots}"
                )

    def _traced(self, slots: int, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], bool]:
        """Return results, and whether slots may be computed by different code.

        Elementwise kernels of a processor compute two vectors at once, and what is left at the end
        of a thread's share one by one, by other code: the same to a bit for most numbers, so that
        made-up rows may not tell. So the shares of all threads must be whole slots and vectors.
        """
        found: list[tuple[int, int]] = []
        exact = frozenset(EXACT.split())

        class Trace(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                wrote = func(*args, **(kwargs or {}))
                name = func.overloadpacket.__name__.removesuffix("_")
                once = name in exact and (kwargs or {}).get("alpha", 1) == 1
                if not (once or (name == "pow" and args[1] == 2)):
                    for each in wrote if isinstance(wrote, list | tuple) else (wrote,):
                        if isinstance(each, torch.Tensor) and each.is_floating_point():
                            found.append((each.numel(), each.element_size()))
                return wrote

        if self._like.device.type != "cpu" or slots == 1:
            return self._results(inputs, targets), False
        with Trace():
            results = self._results(inputs, targets)
        for numbers, width in set(found):
            if numbers % slots or not numbers:
                continue
            for grain in GRAINS:
                threads = min(torch.get_num_threads(), -(-numbers // grain))
                own = -(-numbers // threads)
                if own % (numbers // slots) or own * width % VECTORS:
                    return results, True
        return results, False

    def _exchanges(self, row: Tensor) -> list[Tensor]:
        other = [self._other(row)] if row.is_floating_point() else [self._other(self._inputs)[:1]]
        return [*other, torch.full_like(row, math.nan)] if row.is_floating_point() else other

    def _results(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        losses, parts = self._pass(inputs, targets)
        results = [losses[:, None], *(part.rows() for part in parts)]
        results.extend(part.squares[:, None] for part in parts)
        return [torch.nan_to_num(values) for values in results]

    # --- sums

    def _add(
        self,
        losses: Tensor,
        parts: list[Any],
        mask: Tensor,
        total: Tensor,
        threshold: float,
        rule: str = "flat",
        by_layer: bool = False,
        moved: tuple[float, list[float]] | None = None,
        *,
        first: bool = False,
    ) -> int:
        """Add the clipped shares of the slots that are full; return how many are short.

        ``moved`` is what rounding moves, in all and by module, where it is not that of rows.
        ``first`` says that the total is zeros.
        """
        whole, own_margins = moved or (self._margin, self._margins)
        groups, margins = [parts], [whole]
        if by_layer:
            groups, margins = [[] for _ in own_margins], own_margins
            for part in parts:
                if part.place.start < part.place.stop:
                    groups[self._module_of[part.place.start]].append(part)
        length = 1 / math.sqrt(len(groups))
        # a group's norms, and what float64 may have made too small of them
        larger = 1 + 2.0**-40 + self.size * 2.0**-52
        norms = [torch.sqrt(sum(part.squares for part in own)) * larger for own in groups]
        # NaN and infinity of either make the sum NaN or infinite, for which this is False
        finite = sum(norms) + (losses - losses) < math.inf
        short = good = finite & mask
        found = []
        for own, margin, norm in zip(groups, margins, norms, strict=True):
            # Minkowski's inequality of the head of this file
            room = length - margin - SLACK
            # where rounding alone may fill a part, nothing of it is added: no factor is negative
            factors = room / norm if room > 0 else torch.zeros_like(norm)
            if rule == "flat":
                factors = factors.clamp_(max=1 / threshold)
            else:
                factors = torch.minimum(factors, rule_factors(norm, rule, threshold, length))
            for part in own:
                if part.caps is not None:
                    factors = torch.minimum(factors, part.caps)
            found.append(torch.where(good, factors, 0.0))
            short = short & (norm <= threshold * length)
        if not finite.all():  # before any product: 0 times NaN is NaN
            for part in parts:
                part.forget(~finite)
        for own, factors in zip(groups, found, strict=True):
            for part in own:
                part.add(factors, total, first=first)
        return int(short.sum())

    def __call__(
        self,
        theta: Any,
        inputs: Any,
        targets: Any,
        units: Any = None,
        *,
        threshold: float,
        rule: str = "flat",
        by_layer: bool = False,
        stream: Stream | None = None,
    ) -> tuple[NDArray[np.int64], int]:
        """Return the sum of clipped gradients in steps, and how many units are not clipped.

        Parameters
        ----------
        theta
            Values of the parameters, shape (size,), in the order of ``module.named_parameters()``.
        inputs, targets
            The sampled rows, arrays or tensors; there may be none.
        units
            The number of the unit of each row, which `by_unit` asks for: a unit's rows are clipped
            together.
        threshold
            C, from 1e-20 to 1e20.
        rule
            How gradients are shortened: see `rule_factors`.
        by_layer
            Whether the gradient of each module's parameters is shortened by itself.
        stream
            Gives the rows their slots; the operating system's randomness if None.

        Returns
        -------
        tuple
            ``sum_i g_i min(1 / C, 1 / |g_i|) / step``, int64 of shape (size,), each share rounded
            so that it is at most 1 in norm; and the number of units of norm at most C. A row whose
            loss or gradient is not finite adds 0 to both.

        Raises
        ------
        DeclarationError
            If shapes or the threshold are not as declared.
        """
        threshold = checked_threshold(threshold)
        inputs, targets = self._tensor(inputs), self._tensor(targets)
        for name, rows, like in (
            ("inputs", inputs, self._inputs),
            ("targets", targets, self._targets),
        ):
            if rows.shape[1:] != like.shape[1:] or rows.ndim != like.ndim:
                raise DeclarationError(
                    f"{name} must have the shape (rows, {str(tuple(like.shape[1:]))[1:]} of the "
                    "made-up rows"
                )
        if (units is not None) != self._by_unit:
            raise DeclarationError("units are given if, and only if, sums are made with by_unit")
        if len(inputs) != len(targets) or (units is not None and len(units) != len(inputs)):
            raise DeclarationError("inputs, targets and units must have the same number of rows")
        if not self._clean:  # the clearing below was itself interrupted
            self._total.zero_()
        self._clean = False
        try:
            how = threshold, rule, by_layer
            with _as_built(self._threads):
                return self._sum(theta, inputs, targets, units, how, stream or SecureStream())
        finally:  # nothing of private rows stays here, also after an error
            for layer in self._layers or ():
                layer.read = layer.wrote = None
            self._total.zero_()
            self._clean = True

    def _sum(
        self,
        theta: Any,
        inputs: Tensor,
        targets: Tensor,
        units: Any,
        how: tuple[float, str, bool],
        stream: Stream,
    ) -> tuple[NDArray[np.int64], int]:
        threshold, rule, by_layer = how
        with torch.no_grad():
            self._set(theta)
            whole: Any = None
            total = self._total  # zeros
            short = added = 0
            for losses, parts, mask, moved in self._filled_batches(inputs, targets, units, stream):
                own = threshold, rule, by_layer
                short += self._add(losses, parts, mask, total, *own, moved, first=not added)
                added += len(mask)
                if added + self.physical_batch > MOST_ROWS:  # beyond, float64 might round
                    whole = total.long() if whole is None else whole.add_(total.long())
                    added = 0
                    total.zero_()
        result = total.long() if whole is None else whole.add_(total.long())
        return result.cpu().numpy(), short

    def products(
        self,
        theta: Any,
        inputs: Any,
        targets: Any,
        direction: Any,
        *,
        threshold: float,
        rule: str = "flat",
        by_layer: bool = False,
    ) -> NDArray[np.float64]:
        """Return the products of each row's clipped gradient and a direction, shape (rows,).

        For audits: gradients are computed one by one, in units of the threshold as the sum's; a
        product that is not finite is 0.
        """
        self._set(theta)
        along = torch.as_tensor(
            np.asarray(direction), dtype=torch.float64, device=self._total.device
        )
        whole = range(len(self._margins) if by_layer else 1)
        places = self._places.values()
        groups = [
            [p for p in places if not by_layer or self._module_of.get(p.start) == k] for k in whole
        ]
        length, found = 1 / math.sqrt(len(groups)), []
        for x, y in zip(self._tensor(inputs), self._tensor(targets), strict=True):
            (gradient,) = self._one_by_one(x[None], y[None])
            product = 0.0
            for group in groups:
                norm = torch.linalg.vector_norm(torch.cat([gradient[p] for p in group]))
                factor = torch.minimum(rule_factors(norm, rule, threshold, length), length / norm)
                product += sum(float(gradient[p] @ along[p] * factor) for p in group)
            found.append(product)
        return np.asarray(np.nan_to_num(np.array(found), posinf=0.0, neginf=0.0))

    def _set(self, theta: Any) -> None:
        values = torch.as_tensor(np.asarray(theta))
        if values.shape != (self.size,):
            raise DeclarationError(
                f"theta must have the shape ({self.size},), got {tuple(values.shape)}"
            )
        if self._flat is not None:
            self._flat.copy_(values)
            return
        for name, parameter in self._parameters.items():
            parameter.copy_(values[self._places[name]].view(parameter.shape))

    def _filled_batches(
        self, inputs: Tensor, targets: Tensor, units: Any, stream: Stream
    ) -> Iterator[tuple[Tensor, list[Any], Tensor, tuple[float, list[float]] | None]]:
        """Yield the losses, parts and mask of each batch, and what rounding moves (see `_add`)."""
        size = self.physical_batch
        if units is None:
            if self.slots_agree:
                sizes = self._passes(len(inputs), self._sizes)
                (slots,) = placed(len(inputs), sum(sizes), stream, agree=True)
                filled = np.split(slots, np.cumsum(sizes)[:-1])
            else:
                filled = list(placed(len(inputs), size, stream, agree=False))
            for each in filled:
                x, y, mask = self._placed(each, inputs, targets)
                yield *self._pass(x, y), mask, None
            return
        _, unit = np.unique(np.asarray(units), return_inverse=True)
        unit = unit.reshape(-1)
        counts = np.bincount(unit, minlength=1) if len(unit) else np.zeros(0, np.int64)
        order = np.argsort(unit, kind="stable")
        starts = np.cumsum(counts) - counts
        # by the number of a unit's own rows: in which kernels depends on that unit alone
        powers = 1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
        formed = np.ones(len(counts), dtype=bool)
        for rows, agree in self._together.items():
            these = np.flatnonzero(powers == rows)
            formed[these] = False
            for own in placed(len(these), size // rows, stream, agree=agree) if len(these) else ():
                index = np.full(size, -1)
                for k in range(rows):
                    of = these[np.maximum(own, 0)]
                    has = (own >= 0) & (k < counts[of])
                    at = order[np.minimum(starts[of] + k, len(order) - 1)]
                    index[k : len(own) * rows : rows] = np.where(has, at, -1)
                found = self._joined(index, rows, inputs, targets)
                yield *found, self._together_margins[rows]
        rest = np.flatnonzero(formed[unit]) if len(unit) else unit
        if len(rest) or not len(self._together):
            agree = self._formed_agree
            for passes in unit_batches(unit[rest], size, stream, agree=agree):
                passes = [
                    np.where(p >= 0, rest[np.maximum(p, 0)], -1) if len(rest) else p for p in passes
                ]
                moved = _rounding(self.size), self._by_module(formed=True)
                yield *self._gather(passes, inputs, targets), moved

    def _gather(
        self, rounds: Sequence[NDArray[np.int64]], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, list[Any], Tensor]:
        """Return the losses, parts and mask of a batch of units, of the sums of their rows."""
        sums: list[Tensor] = []
        for rows in rounds:
            x, y, mask = self._placed(rows, inputs, targets)
            values, losses = self._by_row(x, y)
            gradients = [_copied(v.flatten(1)) for v in values]
            # a row that is not finite counts as 0, not its unit
            squares = sum(_norms(g) ** 2 for g in gradients)
            bad = ~(torch.isfinite(squares) & torch.isfinite(losses) & mask)
            for k, gradient in enumerate(gradients):
                gradient[bad] = 0.0
                if rows is rounds[0]:
                    sums.append(gradient)
                else:
                    sums[k] += gradient
        mask = torch.from_numpy(rounds[0] >= 0).to(self._like.device)
        places = self._places.values()
        parts = [_Formed(p, g) for p, g in zip(places, sums, strict=True)]
        return torch.zeros_like(squares), parts, mask

    def _placed(
        self, rows: NDArray[np.int64], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows in their slots, with a made-up row in the others, and which are full."""
        index = torch.from_numpy(np.maximum(rows, 0)).to(self._like.device)
        mask = torch.from_numpy(rows >= 0).to(self._like.device)
        placed = []
        for values, like in ((inputs, self._inputs), (targets, self._targets)):
            into = (values if len(values) else like).index_select(0, index)
            if rows.min() < 0:
                into[~mask] = like[0]
            placed.append(into)
        return placed[0], placed[1], mask


# -----------------------------------------------------------------------------
# What is refused, found on made-up rows.


def _named(module: Module) -> list[tuple[str, Module]]:
    return [
        (f"{name} ({type(inner).__name__})" if name else type(inner).__name__, inner)
        for name, inner in module.named_modules()
    ]


def _random_states() -> tuple[bytes, Any, Any]:
    numpy_state = np.random.get_state()  # noqa: NPY002 (what a module might draw from)
    return bytes(torch.get_rng_state().tolist()), str(numpy_state), random.getstate()


def _refuse_impure(module: Module, inputs: Tensor) -> None:
    """Refuse a module that draws random numbers, or changes buffers or parameters."""
    before: list[Any] = []
    found: list[str] = []

    def enter(inner: Module, read: Any) -> None:
        before.append(_random_states())

    def leave(name: str) -> Callable[..., None]:
        def hook(inner: Module, read: Any, wrote: Any) -> None:
            if before.pop() != _random_states():
                found.append(name)

        return hook

    def values() -> dict[str, Tensor]:
        state = [*module.named_buffers(), *module.named_parameters()]
        return {n: v.detach().clone() for n, v in state}

    hooks = [inner.register_forward_pre_hook(enter) for _, inner in _named(module)]
    hooks += [inner.register_forward_hook(leave(name)) for name, inner in _named(module)]
    state = values()
    try:
        with torch.no_grad():
            module(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise DeclarationError(f"the module fails on the made-up rows: {error}") from None
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        raise DeclarationError(
            f"{found[0]} draws random numbers, so that a row's gradient is no function of the row; "
            "put it into eval mode, or leave it out: the noise of private training regularises"
        )
    after = values()
    moved = [n for n, v in state.items() if not torch.equal(v.nan_to_num(), after[n].nan_to_num())]
    if moved:
        raise DeclarationError(
            f"{moved[0]} is changed in the forward pass: private rows would be in it; a BatchNorm "
            "can be a GroupNorm, or be put into eval mode"
        )


def _refuse_mixed(module: Module, inputs: Tensor, others: Tensor) -> None:
    """Refuse a module whose outputs of a row change with another row; name where it begins."""
    n = len(inputs)
    changed = inputs.clone()
    changed[n - 1] = others[n - 1]
    first, outputs = _trace(module, inputs)
    second, moved = _trace(module, changed)
    if _rows_equal(outputs, moved, n):
        return
    for (name, one), (_, two) in zip(first, second, strict=False):
        if not _rows_equal(one, two, n):
            raise DeclarationError(
                f"{name} mixes rows: what it makes of a row depends on the rows beside it, and no "
                "row's gradient can be clipped; a BatchNorm can be a GroupNorm, or be put into "
                "eval mode"
            )
    raise DeclarationError(f"{type(module).__name__} mixes rows in its forward function")


def _trace(module: Module, inputs: Tensor) -> tuple[list[tuple[str, Any]], Any]:
    """Return what each module read and wrote, in order, with words for where; and the outputs."""
    seen: list[tuple[str, Any]] = []

    def enter(name: str, above: str) -> Callable[..., None]:
        def hook(inner: Module, read: Any) -> None:
            seen.append((f"{above}, before {name},", list(read)))

        return hook

    def leave(name: str) -> Callable[..., None]:
        def hook(inner: Module, read: Any, wrote: Any) -> None:
            seen.append((name, wrote))

        return hook

    hooks = []
    for path, inner in module.named_modules():
        if path:
            above = module.get_submodule(path.rpartition(".")[0])
            kind = f"{path} ({type(inner).__name__})"
            place = f"the forward function of {type(above).__name__}"
            hooks.append(inner.register_forward_pre_hook(enter(kind, place)))
            hooks.append(inner.register_forward_hook(leave(kind)))
    try:
        with torch.no_grad():
            outputs = module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen, outputs


def _rows_equal(one: Any, two: Any, n: int) -> bool:
    """Return whether all rows but the last are equal, bit for bit, in all tensors."""
    if isinstance(one, torch.Tensor):
        one, two = one.nan_to_num(), two.nan_to_num()
        if one.ndim and len(one) == n:
            one, two = one[: n - 1], two[: n - 1]
        return one.shape == two.shape and bool(torch.equal(one, two))
    if isinstance(one, dict):
        one, two = list(one.values()), list(two.values())
    if isinstance(one, list | tuple):
        return all(_rows_equal(a, b, n) for a, b in zip(one, two, strict=False))
    return True


def _rows_read(layer: _Layer) -> int:
    """Return the length of the first axis of what a layer read, 0 if it has none."""
    return int(layer.read.shape[0]) if layer.read.ndim else 0
