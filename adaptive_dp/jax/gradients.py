"""The exact sum of the clipped gradients of rows by a pure function of JAX.

A private training step needs ``sum_i g_i min(1 / C, 1 / |g_i|)`` over the sampled units i, g_i the
gradient of unit i's loss, C the threshold. `jax.vmap` computes a physical batch: a fixed number of
slots, each with a row or with a made-up one that is masked, so that one program is compiled,
whatever the sample's size. What it gives is then shortened, rounded and added in float64 and int64,
which JAX is asked for just there, by another program: one program for both might compute a gradient
twice, for its norm and for its share, and not to the same bit. Of each leaf of the parameters' tree
a slot has one of two:

- *Book-keeping* (Bu et al. 2023). Of a matrix that the function multiplies by one vector a of the
  row, and uses nowhere else, the gradient is ``a g'``, g that of the product. It has the norm
  ``|a| |g|``, and is not formed: a and g are kept, and the sum of the shares is one product of
  matrices. Such leaves are found in the function's jaxpr (`_Book`).
- *Formed*: the gradient itself, of all other leaves; and of all leaves where a unit may have
  several rows, whose gradients are added up before they are clipped.

**No share is longer than the threshold.** A unit's share is an integer vector S, and the sum's step
is 2^-36: the claim is ``|S| <= 2^36``. It has a part for each leaf, with a common factor f:

1. *Formed*: ``S = round(f g 2^36)``. Rounding moves it by at most ``sqrt(n) / 2`` steps, n the
   number of the leaf's parameters: a share ``sqrt(n) 2^-37`` of the threshold.
2. *Book-keeping*: a is rounded to integers ``A = round(a 2^18 / P)``, P the power of two above
   ``sqrt(p) max |a_j|``, p numbers, so that ``|A| <= 2^18 (1 + sqrt(p) 2^-19)``; and g to ``H =
   round(f g P 2^18)``. The part is ``A H'``. Before the second rounding it is f times ``A g' P
   2^-18``, and rounding d numbers of H moves it by at most ``sqrt(d) / 2 |A|`` steps: a share
   ``sqrt(d) 2^-19 (1 + sqrt(p) 2^-19)``. P and ``|A|^2`` are exact, in whatever order a compiled
   program finds them: of a maximum and of a sum of integers below 2^53.

M is the root of the sum of the squares of these shares. N is the norm of all parts before the
second rounding, in float64 (squares of float32 are exact), taken larger by more than the additions'
own rounding. With ``f <= (1 - M - 2^-40) / N`` Minkowski's inequality over parts and rounding gives
``|S| 2^-36 <= f N (1 + 2^-50) + M <= 1``, 2^-50 the rounding of f and of products with it. So f may
be any number from 0 up to that: ``1 / C``, or the other rules of `rule_factors`. *By layer* each of
L leaves of the tree has a factor of its own, ``f_l <= (1 / sqrt(L) - M_l - 2^-40) / N_l``: its part
is at most ``1 / sqrt(L)`` long, and all together at most 1. Book-keeping is for float32, whose
products do not under- or overflow in float64; of numbers in float64 whose squares underflow, f g
2^36 with ``f <= 1 / C <= 1e20`` rounds to 0. A row whose loss or gradient is not finite is replaced
by zeros before any product. (Own proof.)

**Sums are exact.** Parts are integers. A batch's are added in float64, where they stay so: of up to
2^15 slots, formed ones are at most 2^36 each; of products ``|A| |H| <= 2^37`` where A is not 0, as
``f N <= 1``, and by Cauchy and Schwarz no partial sum, in whatever order, is above 2^52. Batches
are added in int64, for fewer than 2^26 units. The sum does not depend on the order of the units,
nor on how they are divided into batches.

**A share depends on its unit alone**, under the assumption of `adaptive_dp.torch.gradients`: *a
slot's results are a function of that slot's row and of the slot*. A function of one row sees no
other row; what remains is that a compiled kernel for many adds in the same order whatever they
hold. When the object is built, a made-up row is exchanged for another and for NaN, and no bit of
another slot's results may change; and many rows are tried in two slots (``slots_agree``). Where
their results differ, each unit's slot is drawn independently by the library's stream, and as many
passes are made as the fullest slot needs: a unit more adds one share, and the others' slots have
the same law, so that the two laws of the sum are mixtures of neighbours.

References
----------
Bu, Wang, Zha and Karypis 2023, "Differentially private optimization on large model at small cost"
(book-keeping).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from attrs import define
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.noise.stream import SecureStream, Stream
from adaptive_dp.torch.gradients import checked_threshold, placed, rule_factors, unit_batches

BITS = 36
"""The sum is given in steps of 2^-36 of the threshold."""

SLACK = 2.0**-40
"""What the factor leaves for the rounding of floats."""

HALF = 18
"""Vectors that a matrix is multiplied by have 18 bits, and clipped slopes the other 18."""

SHORTEST = 2.0**-48
"""Vectors of a smaller norm are rounded as those of this norm are."""

WIDEST = 2**14
"""The most numbers of a product that is kept: rounding moves its part by a share of 2^-12."""

MOST_SLOTS = 2**15
"""Of a physical batch."""

SLOTS = (8, 256)
"""Of a physical batch that is chosen here, the fewest and the most: measured."""

PASS = 16
"""What a pass takes beside its slots, in slots: measured."""

MOST_NUMBERS = 2**19, 2**26
"""Of what is computed in a physical batch that is chosen here: with more than the fewest slots
(then they stay in the processor's cache), and with more than one (half a GiB in float64)."""

TURNS = 32
"""So often each slot is given a row of its own, and another slot's."""

UNROLLED = 32
"""Slots whose formed parts are added in one loop of the compiled program."""

LANES = 64
"""Strips in which squares are added: wide enough for the processor's vectors."""

TOLERANCE = 2.0**-10
"""How far `jax.vmap` may be from a row by itself, as a share of the gradient's norm."""


def library() -> Any:
    """Return JAX.

    Raises
    ------
    RunError
        If it is not installed.
    """
    try:
        return import_module("jax")
    except ImportError:
        raise RunError(
            "functions of JAX need it: install adaptive-dp[jax]; a plan of one can be certified "
            "and verified without it"
        ) from None


@contextmanager
def compiled() -> Iterator[None]:
    """Have JAX compile what it runs, and raise for no value: an error would show a row's NaN."""
    jax = library()
    with ExitStack() as stack:
        for name in ("disable_jit", "debug_nans", "debug_infs"):
            # to enter one takes longer than to ask, and a step is entered often
            if getattr(jax.config, f"jax_{name}", True):
                stack.enter_context(getattr(jax, name)(False))
        yield


def wide() -> Any:
    """Return a context in which JAX has float64 and int64."""
    jax = library()
    experimental = import_module("jax.experimental")
    # its place in JAX before 0.9
    return getattr(experimental, "enable_x64", None) or jax.enable_x64


def _squares(part: Any) -> Any:
    """Return the rows' sums of squares, added in an order that a processor's vectors like."""
    rows, size = part.shape
    whole = size // LANES * LANES
    strips = part[:, :whole].reshape(rows, -1, LANES)
    return (strips * strips).sum(1).sum(1) + (part[:, whole:] * part[:, whole:]).sum(1)


def _join() -> Callable[..., Any]:
    """Return what adds rows to their units, compiled."""
    jnp = library().numpy

    def join(sums: Any, held: Any, losses: Any, parts: Any, mask: Any) -> Any:
        parts = [part.astype(jnp.float64) for part in parts]
        # NaN and infinity of either make the sum NaN or infinite
        squares = sum(_squares(part) for part in parts)
        good = jnp.isfinite(squares + losses.astype(jnp.float64)) & mask
        kept = [jnp.where(good[:, None], part, 0.0) for part in parts]
        return [own + part for own, part in zip(sums, kept, strict=True)], held | good

    return library().jit(join)  # type: ignore[no-any-return]


class _Formed:
    """A leaf's gradients of a batch, shape (slots, n), in the program that adds them.

    ``turned`` is the shape of a row's gradient where it is that of the transposed leaf.
    """

    def __init__(self, values: Any, turned: tuple[int, int] | None = None) -> None:
        self._values, self._turned = values, turned
        self.size = values.shape[1]
        self.margin = np.sqrt(self.size) * 2.0 ** -(BITS + 1)
        self.squares = _squares(values.astype(library().numpy.float64))

    def total(self, good: Any, factors: Any) -> Any:
        """Return the sum of slots' shares, whole numbers in float64: exact."""
        jnp = library().numpy

        def rounded(at: Any) -> Any:
            kept = jnp.where(good[at, None], self._values[at].astype(jnp.float64), 0.0)
            return jnp.round(kept * (factors[at, None] * 2.0**BITS))

        if len(good) > UNROLLED:
            total = rounded(slice(None)).sum(0)
        else:  # one loop of the compiled program, over the parameters
            total = sum(rounded(slice(i, i + 1))[0] for i in range(len(good)))
        return total if self._turned is None else total.reshape(self._turned).T.reshape(-1)


class _Kept:
    """What a batch multiplied a matrix by, and the slopes of the products, in the same program."""

    def __init__(self, inputs: Any, slopes: Any, *, input_first: bool) -> None:
        jax = library()
        jnp, self._input_first = jax.numpy, input_first
        inputs, self._slopes = inputs.astype(jnp.float64), slopes.astype(jnp.float64)
        longest = jnp.abs(inputs).max(1) * (np.sqrt(inputs.shape[1]) * (1 + 2.0**-40))
        bits = jax.lax.bitcast_convert_type(jnp.maximum(longest, SHORTEST), jnp.int64)
        # a number without its digits is the power of two below
        below = jax.lax.bitcast_convert_type(bits & np.int64(0x7FF << 52), jnp.float64)
        self._power = 2 * below
        finite = jnp.isfinite(longest)
        inputs = jnp.where(finite[:, None], inputs, 0.0)
        self._inputs = jnp.round(inputs * (2.0**HALF / self._power)[:, None])
        self.size = inputs.shape[1] + slopes.shape[1]
        self.margin = np.sqrt(slopes.shape[1]) * 2.0 ** -(HALF + 1)
        self.margin *= 1 + np.sqrt(inputs.shape[1]) * 2.0 ** -(HALF + 1)
        sizes = (self._power * 2.0**-HALF) ** 2 * _squares(self._inputs)
        self.squares = jnp.where(finite, sizes * _squares(self._slopes), jnp.nan)

    def total(self, good: Any, factors: Any) -> Any:
        """Return the sum of slots' shares, whole numbers in float64: exact."""
        jax = library()
        scale = factors * self._power * 2.0 ** (BITS - HALF)
        # before the product: 0 times NaN is NaN
        scale = jax.numpy.where(good, scale, 0.0)[:, None]
        slopes = jax.numpy.where(good[:, None], self._slopes, 0.0)
        pair = [self._inputs, jax.numpy.round(slopes * scale)]
        product = jax.lax.dot_general(
            *(pair if self._input_first else pair[::-1]),
            (((0,), (0,)), ((), ())),
            precision=jax.lax.Precision.HIGHEST,
        )
        return product.reshape(-1)


def _add(groups: tuple[tuple[int, ...], ...], rule: str, books: Any) -> Callable[..., Any]:
    """Return what adds units' shares, compiled: each group of leaves has its own factor.

    The last of the totals is how many units are not clipped. ``books`` has, of each leaf, whether
    the vector comes first in its matrix; of a formed one None, or the shape if it is transposed.
    """
    jax = library()
    jnp, length = jax.numpy, 1 / np.sqrt(len(groups))

    def add(totals: Any, found: Any, held: Any, losses: Any, threshold: Any) -> Any:
        parts = [
            _Kept(*own, input_first=how) if isinstance(how, bool) else _Formed(own, how)
            for own, how in zip(found, books, strict=True)
        ]
        # the norms, and what float64 may have made too small of them
        larger = 1 + 2.0**-40 + sum(part.size for part in parts) * 2.0**-52
        norms = [jnp.sqrt(sum(parts[i].squares for i in group)) * larger for group in groups]
        # NaN and infinity of either make the sum NaN or infinite
        good = held & jnp.isfinite(sum(norms) + losses.astype(jnp.float64))
        short = good
        after = list(totals)
        for group, norm in zip(groups, norms, strict=True):
            margin = np.sqrt(sum(parts[i].margin ** 2 for i in group))
            # Minkowski's inequality of the head of this file
            longest = max(0.0, length - margin - SLACK) / norm
            factors = jnp.minimum(longest, rule_factors(norm, rule, threshold, length))
            factors = jnp.where(good, factors, 0.0)
            for i in group:
                after[i] = totals[i] + parts[i].total(good, factors).astype(jnp.int64)
            short = short & (norm <= threshold * length)
        after[-1] = totals[-1] + short.sum()
        return after

    return jax.jit(add, donate_argnums=0)  # type: ignore[no-any-return]


# -----------------------------------------------------------------------------
# Book-keeping: which matrices a function multiplies by one vector of a row.


@define
class _Matrix:
    """A leaf that is followed through a jaxpr, transposed or not."""

    leaf: int
    value: Any
    flipped: bool = False


class _Book:
    """A loss of one row as it was traced, of which some products with matrices are kept.

    A leaf is followed if its only use is a product by `lax.dot_general` with vectors of float32,
    directly, transposed, or inside of a jitted function. It is kept if there is one vector: an
    array whose other axes have the length 1. Of several the gradient is formed from the vectors and
    the slopes of the product, in the orientation whose rows are longer: it takes half of the time.

    Parameters
    ----------
    jaxpr
        Of the loss, with the leaves first among what it reads.
    shapes
        Of the leaves.
    """

    def __init__(self, jaxpr: Any, shapes: list[tuple[int, ...]]) -> None:
        self._jaxpr, self._shapes = jaxpr, shapes
        jax = library()
        follow = [i for i, s in enumerate(shapes) if len(s) == 2 and s[0] * s[1] > s[0] + s[1]]
        self.first: dict[int, bool] = {}
        """Of each leaf that is followed, whether the vectors' axis comes first in it."""
        self._steps: dict[int, tuple[int, Any]] = {}
        self._used: dict[int, int] = {}
        jax.eval_shape(lambda *read: self._run(read, dict.fromkeys(follow))[0], *jaxpr.in_avals)
        once = {i for i, uses in self._used.items() if uses == 1}
        self.first = {i: first for i, first in self.first.items() if i in once}

    def widths(self, leaf: int) -> tuple[int, int]:
        """Return how many numbers a followed leaf's vectors have, and how many their slopes."""
        rows, columns = self._shapes[leaf]
        return (rows, columns) if self.first[leaf] else (columns, rows)

    def taps(self, precision: Any) -> dict[int, Any]:
        """Return zeros that are added to products, for their slopes: shapes (vectors, width)."""
        zeros = library().numpy.zeros
        return {i: zeros((self._steps[i][0], self.widths(i)[1]), precision) for i in self.first}

    def how(self, leaf: int) -> bool | tuple[int, int] | None:
        """Return what `_add` is told of a leaf."""
        if leaf not in self.first:
            return None
        if self._steps[leaf][0] == 1:
            return self.first[leaf]
        width, slopes = self.widths(leaf)
        if (width <= slopes) == self.first[leaf]:
            return None
        return min(width, slopes), max(width, slopes)

    def gradient(self, leaf: int, vectors: Any, slopes: Any) -> Any:
        """Return the pair of a kept leaf, or the gradient of one that is formed."""
        if self._steps[leaf][0] == 1:
            return vectors.reshape(-1), slopes.reshape(-1)
        pair = (vectors, slopes) if vectors.shape[1] <= slopes.shape[1] else (slopes, vectors)
        axes = (((0,), (0,)), ((), ()))
        formed = library().lax.dot_general(*pair, axes, precision=self._steps[leaf][1])
        return formed.reshape(-1)

    def __call__(self, leaves: list[Any], taps: dict[int, Any], *rows: Any) -> tuple[Any, Any]:
        """Return the loss, with taps added to products, and the vectors of these."""
        return self._run((*leaves, *rows), taps)

    def _run(self, read: Any, taps: dict[int, Any]) -> tuple[Any, dict[int, Any]]:
        vectors: dict[int, Any] = {}
        values = [_Matrix(i, v) if i in taps else v for i, v in enumerate(read)]
        (loss,) = self._follow(self._jaxpr, values, taps, vectors)
        return loss, vectors

    def _follow(self, closed: Any, read: Any, taps: dict[int, Any], vectors: Any) -> list[Any]:
        """Evaluate a jaxpr, as JAX does, with an eye on matrices."""
        known: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        known |= zip(closed.jaxpr.invars, read, strict=True)

        def value(variable: Any) -> Any:
            return variable.val if hasattr(variable, "val") else known[variable]

        for equation in closed.jaxpr.eqns:
            values, name = [value(v) for v in equation.invars], equation.primitive.name
            matrices = [v for v in values if isinstance(v, _Matrix)]
            if matrices and name in ("pjit", "jit"):
                wrote = self._follow(equation.params["jaxpr"], values, taps, vectors)
            elif matrices and name == "transpose" and equation.params["permutation"] == (1, 0):
                (own,) = matrices
                wrote = [_Matrix(own.leaf, own.value.T, not own.flipped)]
            elif len(matrices) == 1 and (read_by := self._product(equation, values)) is not None:
                (own,), (first, read_first, vectors[own.leaf]) = matrices, read_by
                self.first[own.leaf] = first
                self._steps[own.leaf] = len(read_by[-1]), equation.params["precision"]
                self._used[own.leaf] = self._used.get(own.leaf, 0) + 1
                product, tap = self._bound(equation, values)[0], taps[own.leaf]
                if tap is not None:
                    product += (tap if read_first else tap.T).reshape(product.shape)
                wrote = [product]
            else:
                for own in matrices:
                    self._used[own.leaf] = 2  # not kept
                wrote = self._bound(equation, values)
            known |= zip(equation.outvars, wrote, strict=True)
        return [value(v) for v in closed.jaxpr.outvars]

    @staticmethod
    def _bound(equation: Any, values: list[Any]) -> list[Any]:
        plain = [v.value if isinstance(v, _Matrix) else v for v in values]
        found = equation.primitive.get_bind_params(equation.params)
        # before JAX 0.9 the functions of a primitive, and the rest
        functions, settings = found if isinstance(found, tuple) else ((), found)
        with equation.ctx.manager:
            wrote = equation.primitive.bind(*functions, *plain, **settings)
        return list(wrote) if equation.primitive.multiple_results else [wrote]

    @staticmethod
    def _product(equation: Any, values: list[Any]) -> tuple[bool, bool, Any] | None:
        """Return whether the vectors' axis comes first in the leaf, and they in the product.

        And the vectors, shape (vectors, width); None of other equations.
        """
        if equation.primitive.name != "dot_general":
            return None
        contracted, batched = equation.params["dimension_numbers"]
        place = int(isinstance(values[1], _Matrix))
        own, other = values[place], values[1 - place]
        kinds = {str(v.aval.dtype) for v in (*equation.invars, *equation.outvars)}
        if any(map(len, batched)) or len(contracted[place]) != 1 or kinds != {"float32"}:
            return None
        (axis,) = contracted[1 - place]
        length = other.shape[axis]
        if not other.size or (other.size == length and own.value.size // length > WIDEST):
            return None
        read = library().numpy.moveaxis(other, axis, -1).reshape(-1, length)
        return (contracted[place][0] == 0) != own.flipped, place == 1, read


class ClippedSums:
    """Exact sums of the clipped gradients of a pure function; see the head of this file.

    Built once for a function and the shapes of rows.

    Parameters
    ----------
    loss
        The loss of one row, ``loss(parameters, x, y)``: a pure function to a number.
    tree
        Values of the parameters, any tree of arrays of one precision.
    inputs, targets
        A few made-up rows (two or more): public, of the shapes and types of the private ones.
    physical_batch
        The number of slots; None for 8 to 256, by `expected` and the function's size.
    expected
        The expected number of rows (or units) of a call.
    by_unit
        Whether rows are of units, which may have several: then each row's gradient is formed.

    Attributes
    ----------
    size
        The number of parameters.
    step
        2^-36: the sum is given in steps of this share of the threshold.
    engines
        Of each leaf that is not empty "kept" or "formed".
    slots_agree
        Whether rows that were tried had the same results, bit for bit, in all slots.

    Raises
    ------
    DeclarationError
        If the function has no gradient of a row, or does more than compute it.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.float32([[3, 4], [0, 0.5], [1, 1]]), np.float32([[0], [1], [2]])
    >>> sums = ClippedSums(lambda w, x, y: (x @ w - y) ** 2, np.zeros(2, np.float32), x, y)
    >>> total, short = sums(np.zeros(2), x, y, threshold=1.0)
    >>> [round(float(v), 3) for v in total * sums.step], short
    ([-0.707, -1.707], 1)
    """

    step: float = 2.0**-BITS

    def __init__(
        self,
        loss: Callable[..., Any],
        tree: Any,
        inputs: Any,
        targets: Any,
        *,
        physical_batch: int | None = None,
        expected: int | None = None,
        by_unit: bool = False,
    ) -> None:
        jax = library()
        flat, self._unravel = import_module("jax.flatten_util").ravel_pytree(tree)
        self.size, self._by_unit = int(flat.size), by_unit
        self._precision = flat.dtype

        def one(theta: Any, x: Any, y: Any) -> Any:
            value = jax.numpy.asarray(loss(theta, x, y))
            if value.size != 1 or not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
                raise DeclarationError(
                    f"the loss of one row must be a number, got an array of {value.dtype} with the "
                    f"shape {value.shape}"
                )
            return value.reshape(())

        self._one = one
        self._inputs, self._targets = np.asarray(inputs), np.asarray(targets)
        leaves = jax.tree_util.tree_leaves(tree)
        sizes = [int(np.size(leaf)) for leaf in leaves]
        self._sizes = tuple(size for size in sizes if size)
        self._formed = jax.jit(jax.vmap(self._gradient, in_axes=(None, 0, 0)))
        self._join = _join()
        self._adds: dict[tuple[str, bool], Any] = {}
        with compiled():
            try:
                book = None if by_unit else self._traced(tree, flat)
                places = [i for i, size in enumerate(sizes) if size]
                self._books = [None if book is None else book.how(i) for i in places]
                kept = [isinstance(how, bool) for how in self._books]
                self.engines = ["kept" if each else "formed" for each in kept]
                numbers = sum(
                    sum(np.shape(leaves[i])) if each else sizes[i]
                    for i, each in zip(places, kept, strict=True)
                )
                self._rows = self._formed
                if book is not None and book.first:
                    self._rows = jax.jit(jax.vmap(self._by_book(book), in_axes=(None, 0, 0)))
                self._choose(physical_batch, expected, numbers, np.asarray(flat))
            except DeclarationError:
                raise
            except Exception as error:  # of made-up rows: it may be shown
                raise DeclarationError(
                    f"it fails on made-up rows, of which it is given one at a time: {error}"
                ) from None

    def _gradient(self, theta: Any, x: Any, y: Any) -> Any:
        """Return the loss, and the gradient's leaves that are not empty, each a vector.

        By leaves: to write them into one array would take longer than to compute them.
        """
        jax = library()
        value, found = jax.value_and_grad(self._one)(self._unravel(theta), x, y)
        leaves = jax.tree_util.tree_leaves(found)
        return value, [leaf.reshape(-1) for leaf in leaves if leaf.size]

    def _traced(self, tree: Any, flat: Any) -> _Book | None:
        """Return the loss of a made-up row as it was traced; None where it cannot be followed.

        To evaluate a jaxpr takes parts of JAX that other versions may have changed; and where the
        function itself fails, forming the gradients says why.
        """
        jax = library()
        leaves, kind = jax.tree_util.tree_flatten(tree)

        def loss(leaves: Any, x: Any, y: Any) -> Any:
            return self._one(jax.tree_util.tree_unflatten(kind, leaves), x, y)

        try:
            jaxpr = jax.make_jaxpr(loss)(leaves, self._inputs[0], self._targets[0])
            book = _Book(jaxpr, [np.shape(leaf) for leaf in leaves])
            rows = jax.vmap(self._by_book(book), in_axes=(None, 0, 0))
            jax.eval_shape(rows, flat, self._inputs, self._targets)
        except Exception:  # of made-up rows; all gradients are formed then
            return None
        return book

    def _by_book(self, book: _Book) -> Callable[..., Any]:
        """Return what computes the loss of a row, and of each leaf its gradient or a pair."""
        jax = library()

        def pairs(theta: Any, x: Any, y: Any) -> Any:
            leaves = jax.tree_util.tree_leaves(self._unravel(theta))
            taps = book.taps(self._precision)
            others = {i: leaf for i, leaf in enumerate(leaves) if i not in taps and leaf.size}

            def loss(taps: Any, others: Any) -> Any:
                mixed = [others.get(i, leaf) for i, leaf in enumerate(leaves)]
                return book(mixed, taps, x, y)

            (value, vectors), (slopes, formed) = jax.value_and_grad(
                loss, argnums=(0, 1), has_aux=True
            )(taps, others)
            return value, [
                book.gradient(i, vectors[i], slopes[i]) if i in taps else formed[i].reshape(-1)
                for i, leaf in enumerate(leaves)
                if leaf.size
            ]

        return pairs

    def _choose(
        self, physical_batch: int | None, expected: int | None, numbers: int, theta: Any
    ) -> None:
        """Take a physical batch in which slots agree, if there is one."""
        if physical_batch is not None:
            if not 1 <= physical_batch <= MOST_SLOTS:
                raise DeclarationError(
                    f"physical_batch must be from 1 to {MOST_SLOTS}, got {physical_batch}"
                )
            tried = [int(physical_batch)]
        else:
            few, room = (max(1, most // max(1, numbers)) for most in MOST_NUMBERS)
            most = min(SLOTS[1], room, max(SLOTS[0], few))
            rows = max(1, expected or UNROLLED)
            sizes = [2**k for k in range(most.bit_length()) if 2**k >= min(SLOTS[0], most // 2 + 1)]
            tried = sorted(sizes, key=lambda n: -(-rows // n) * (n + PASS))[:3]
        for n in [*tried, tried[0]]:
            self.physical_batch = n
            self._check(theta)
            if self.slots_agree or n == tried[-1] == tried[0]:
                return

    def _adder(self, rule: str, by_layer: bool) -> Any:
        """Return what adds units' shares by a rule, compiled once."""
        if (rule, by_layer) not in self._adds:
            leaves = tuple(range(len(self._sizes)))
            self._adds[rule, by_layer] = _add(
                tuple((i,) for i in leaves) if by_layer else (leaves,), rule, self._books
            )
        return self._adds[rule, by_layer]

    def _check(self, theta: NDArray[Any]) -> None:
        """Refuse what is no function of one row, on made-up rows."""
        jax = library()
        # off zeros, where gradients that are wrong may be zero too
        theta = theta + np.random.default_rng(0).normal(0, 0.05, theta.shape).astype(theta.dtype)
        index = np.arange(self.physical_batch) % len(self._inputs)
        x, y = self._inputs[index], self._targets[index]
        program = jax.make_jaxpr(self._rows)(theta, x, y)
        if program.effects or "callback" in str(program):
            raise DeclarationError(
                "the loss prints, or calls Python, when it is run: private rows would be shown"
            )
        losses, rows = self._results(theta, x, y)
        few = min(2, self.physical_batch)
        whole = self._whole(theta, x, y, few)
        for i in range(few):
            first, again = (
                [
                    np.asarray(value, np.float64),
                    np.concatenate([np.asarray(leaf, np.float64) for leaf in leaves]),
                ]
                for value, leaves in (self._gradient(theta, x[i], y[i]) for _ in range(2))
            )
            if not all(
                np.array_equal(a, b, equal_nan=True) for a, b in zip(first, again, strict=True)
            ):
                raise DeclarationError("the loss of a row is another number each time")
            away = np.linalg.norm(whole[i].astype(np.float64) - first[1])
            if away > TOLERANCE * np.linalg.norm(first[1]):
                raise DeclarationError(
                    "jax.vmap gives another gradient of a made-up row than the row by itself has"
                )
        self._refuse_fast_math(self._rows(theta, x, y)[1])
        self.slots_agree = self._agree(theta)
        slot = self.physical_batch // 2
        keep = np.arange(self.physical_batch) != slot
        others = [self._inputs[(index[slot] + 1) % len(self._inputs)]]
        if x.dtype.kind == "f":
            others.append(np.full_like(others[0], np.nan))
        for other in others:
            changed = x.copy()
            changed[slot] = other
            for before, after in zip((losses, rows), self._results(theta, changed, y), strict=True):
                if not np.array_equal(before[keep], after[keep], equal_nan=True):
                    raise DeclarationError(
                        "a row's gradient depends on the rows beside it, in a batch of "
                        f"{self.physical_batch}"
                    )

    def _agree(self, theta: Any) -> bool:
        """Return whether rows have the same results in all slots, of many rows.

        Of a loop over slots XLA computes the last ones by other code, which may multiply and add in
        one rounding where the rest does not. Of networks where that was seen (most physical batches
        that are not powers of two), one to twenty rows of a hundred differed in such a slot. So
        TURNS times each slot has a row of its own, which then moves on by some slots. The first are
        the made-up rows; the others' numbers are from several of these, so that whole numbers stay
        within, and are moved by noise of several sizes.
        """
        slots, draw = self.physical_batch, np.random.default_rng(0)
        x, y = self._inputs, self._targets
        n = min(len(x), slots)
        for turn in range(TURNS if slots > 1 else 0):
            rows = np.take_along_axis(x, draw.integers(len(x), size=(slots, *x.shape[1:])), axis=0)
            targets = y[draw.integers(len(y), size=slots)]
            if x.dtype.kind == "f":
                sizes = 10.0 ** draw.uniform(-2, 1, (slots,) + (1,) * (x.ndim - 1))
                rows = (rows + sizes * draw.normal(size=rows.shape)).astype(x.dtype)
            if not turn:
                rows[:n], targets[:n] = x[:n], y[:n]
            by = 1 + turn * (1 + slots // 3) % (slots - 1)
            before = self._results(theta, rows, targets)
            after = self._results(theta, *(np.roll(each, by, axis=0) for each in (rows, targets)))
            if not all(
                np.array_equal(np.roll(a, by, axis=0), b, equal_nan=True)
                for a, b in zip(before, after, strict=True)
            ):
                return False
        return True

    def _results(self, theta: Any, x: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the losses of the slots, and whatever else the program gives of each."""
        losses, parts = self._rows(theta, x, y)
        leaves = library().tree_util.tree_leaves(parts)
        return np.asarray(losses), np.concatenate([np.asarray(part) for part in leaves], axis=1)

    def _whole(self, theta: Any, x: Any, y: Any, slots: int) -> NDArray[Any]:
        """Return the gradients of the first slots, shape (slots, size): of few, they are formed."""
        _, parts = self._rows(theta, x, y)
        whole = []
        for part, how in zip(parts, self._books, strict=True):
            if not isinstance(how, bool):
                formed = np.asarray(part)[:slots]
                if how is not None:
                    formed = formed.reshape(-1, *how).swapaxes(1, 2).reshape(formed.shape)
                whole.append(formed)
                continue
            pair = [np.asarray(each)[:slots] for each in (part if how else part[::-1])]
            whole.append(np.einsum("ni,nj->nij", *pair).reshape(slots, -1))
        return np.concatenate(whole, axis=1)

    def _along(
        self, along: NDArray[np.float64], theta: Any, x: Any, y: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return squared norms, and products with a direction, of shape (leaves, slots)."""
        _, parts = self._rows(theta, x, y)
        starts = np.cumsum(self._sizes)[:-1]
        squares, products = [], []
        for part, how, own in zip(parts, self._books, np.split(along, starts), strict=True):
            pair = part if isinstance(how, bool) else (part,)
            each = [np.asarray(v, np.float64) for v in (pair[::-1] if how is False else pair)]
            if isinstance(how, tuple):
                own = own.reshape(how[::-1]).T.reshape(-1)
            squares.append(np.prod([(v**2).sum(axis=1) for v in each], axis=0))
            # of a product a g' with a direction D: a' D g
            moved = each[0] @ own.reshape(each[0].shape[1], -1)
            products.append((moved * each[-1]).sum(axis=1) if len(each) > 1 else moved[:, 0])
        return np.array(squares), np.array(products)

    def _refuse_fast_math(self, like: Any) -> None:
        """Refuse a compiler that was told to neglect NaN, or that has no float64."""
        slots, full = self.physical_batch, np.ones(self.physical_batch, bool)
        filled = library().tree_util.tree_map
        with wide()(True):
            add = self._adder("flat", False)
            for value, loss in ((np.nan, 0.0), (0.0, np.inf)):
                parts = filled(lambda v, value=value: np.full(v.shape, value, v.dtype), like)
                losses = np.full(slots, loss, self._precision)
                found = list(add(self._zeros(), parts, full, losses, 1.0))
                integers = all(total.dtype == np.int64 for total in found)
                if self._by_unit:
                    sums, held = self._join(self._none(), ~full, losses, parts, full)
                    found += [held, *add(self._zeros(), sums, held, np.zeros(slots), 1.0)]
                if any(np.any(np.asarray(v)) for v in found) or not integers:
                    raise DeclarationError(
                        "JAX counts rows that are not finite here: leave out fast-math of XLA_FLAGS"
                    )

    def _zeros(self) -> list[Any]:
        """Return the totals of no units, by leaves, and their number."""
        return [np.zeros(size, np.int64) for size in (*self._sizes, 1)]

    def _none(self) -> list[Any]:
        """Return the sums of each slot's no rows, by leaves."""
        return [np.zeros((self.physical_batch, size)) for size in self._sizes]

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
            Values of the parameters, shape (size,), in the order of the tree's leaves.
        inputs, targets
            The sampled rows; there may be none.
        units
            The number of the unit of each row, which `by_unit` asks for: a unit's rows are added
            up, then clipped.
        threshold
            C, from 1e-20 to 1e20.
        rule
            How gradients are shortened: see `rule_factors`.
        by_layer
            Whether the gradient of each leaf of the parameters is shortened by itself.
        stream
            Gives the units their slots; the operating system's randomness if None.

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
        theta = np.asarray(theta, dtype=self._precision)
        inputs, targets = np.asarray(inputs), np.asarray(targets)
        for name, rows, like in (
            ("inputs", inputs, self._inputs),
            ("targets", targets, self._targets),
        ):
            if rows.shape[1:] != like.shape[1:] or rows.ndim != like.ndim:
                raise DeclarationError(f"{name} must have the shape of the made-up rows")
        if theta.shape != (self.size,):
            raise DeclarationError(f"theta must have the shape ({self.size},), got {theta.shape}")
        if (units is not None) != self._by_unit:
            raise DeclarationError("units are given if, and only if, sums are made with by_unit")
        if len(inputs) != len(targets) or (units is not None and len(units) != len(inputs)):
            raise DeclarationError("inputs, targets and units must have the same number of rows")
        add, wider, stream = self._adder(rule, by_layer), wide(), stream or SecureStream()
        slots, agree = self.physical_batch, self.slots_agree
        with compiled():
            totals: Any = self._zeros()
            if units is None:
                batches = placed(len(inputs), slots, stream, agree=agree)
                if len(batches) > 1:
                    theta = library().device_put(theta)
                for rows in batches:
                    losses, parts = self._rows(theta, *self._placed(rows, inputs, targets))
                    with wider(True):
                        totals = add(totals, parts, rows >= 0, losses, threshold)
            else:
                theta = library().device_put(theta)
                for passes in unit_batches(np.asarray(units), slots, stream, agree=agree):
                    sums, held = self._none(), np.zeros(slots, bool)
                    for rows in passes:
                        found = self._rows(theta, *self._placed(rows, inputs, targets))
                        with wider(True):
                            sums, held = self._join(sums, held, *found, rows >= 0)
                    with wider(True):
                        totals = add(totals, sums, held, np.zeros(slots), threshold)
            whole = np.concatenate([np.asarray(total) for total in totals])
        return whole[:-1], int(whole[-1])

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

        For audits: in units of the threshold as the sum's; a product that is not finite is 0.
        """
        theta = library().numpy.asarray(np.asarray(theta, dtype=self._precision))
        inputs, targets = np.asarray(inputs), np.asarray(targets)
        along, found = np.asarray(direction, dtype=np.float64), []
        length = 1 / np.sqrt(len(self._sizes)) if by_layer else 1.0
        with compiled(), np.errstate(all="ignore"):
            for start in range(0, len(inputs), self.physical_batch):
                rows = np.arange(start, start + self.physical_batch)
                rows[rows >= len(inputs)] = -1
                own = self._placed(rows, inputs, targets)
                squares, products = self._along(along, theta, *own)
                if not by_layer:
                    squares, products = squares.sum(axis=0), products.sum(axis=0)
                norms = np.sqrt(squares)
                factors = np.minimum(rule_factors(norms, rule, threshold, length), length / norms)
                found.append(np.atleast_2d(products * factors).sum(axis=0)[rows >= 0])
        whole = np.concatenate([*found, np.zeros(0)])
        return np.asarray(np.nan_to_num(whole, posinf=0.0, neginf=0.0))

    def _placed(self, rows: NDArray[np.int64], inputs: Any, targets: Any) -> list[NDArray[Any]]:
        """Return the rows in their slots, with a made-up row in the others."""
        full, filled = rows >= 0, []
        for values, like in ((inputs, self._inputs), (targets, self._targets)):
            into = (values if len(values) else like).take(np.maximum(rows, 0), axis=0)
            if not full.all():
                into[~full] = like[0]
            filled.append(into.astype(like.dtype, copy=False))
        return filled
