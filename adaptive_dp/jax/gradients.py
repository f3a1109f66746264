"""The exact sum of the clipped gradients of rows by a pure function of JAX.

A private training step needs ``sum_i g_i min(1 / C, 1 / |g_i|)`` over the sampled units i, g_i the
gradient of unit i's loss, C the threshold. `jax.vmap` of `jax.grad` gives the gradients of a
physical batch: a fixed number of slots, each with a row or with a made-up one that is masked, so
that one program is compiled, whatever the sample's size. They are then shortened, rounded and added
in float64 and int64, which JAX is asked for just there, by another program: one program for both
might compute a gradient twice, for its norm and for its share, and not to the same bit.

**No share is longer than the threshold.** A unit's share is an integer vector S, and the sum's step
is 2^-36: the claim is ``|S| <= 2^36``. ``S = round(f g 2^36)`` with a factor f; rounding moves it
by at most ``sqrt(n) / 2`` steps, n the number of parameters: a share M = ``sqrt(n) 2^-37`` of the
threshold. N is the norm of g in float64 (whose squares of float32 are exact), taken larger by more
than the additions' own rounding. With ``f <= (1 - M - 2^-40) / N`` the triangle inequality gives
``|S| 2^-36 <= f N (1 + 2^-50) + M <= 1``, 2^-50 the rounding of f and of products with it. So f may
be any number from 0 up to that: ``1 / C``, or the other rules of `rule_factors`. *By layer* each of
L leaves of the tree has a factor of its own, ``f_l <= (1 / sqrt(L) - M_l - 2^-40) / N_l``: its part
is at most ``1 / sqrt(L)`` long, and all together at most 1. Of
numbers in float64 whose squares underflow, f g 2^36 with ``f <= 1 / C <= 1e20`` rounds to 0. A row
whose loss or gradient is not finite is replaced by zeros before any product. (Own proof.)

**Sums are exact**: int64, for fewer than 2^27 units; of at most 32 slots first in float64, where
whole numbers of at most 2^36 add up to at most 2^41, exactly. They do not depend on the order of
the units, nor on how they are divided into batches.

**A share depends on its unit alone**, under the assumption of `adaptive_dp.torch.gradients`: *a
slot's results are a function of that slot's row and of the slot*. A function of one row sees no
other row; what remains is that a compiled kernel for many adds in the same order whatever they
hold. When the object is built, a made-up row is exchanged for another and for NaN, and no bit of
another slot's gradient may change; and all slots are given one row (``slots_agree``). Where their
results differ, each unit's slot is drawn independently by the library's stream, and as many passes
are made as the fullest slot needs: a unit more adds one share, and the others' slots have the same
law, so that the two laws of the sum are mixtures of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.noise.stream import SecureStream, Stream
from adaptive_dp.torch.gradients import checked_threshold, rule_factors, unit_batches

BITS = 36
"""The sum is given in steps of 2^-36 of the threshold."""

SLACK = 2.0**-40
"""What the factor leaves for the rounding of floats."""

SLOTS = (8, 32)
"""Of a physical batch that is chosen here, the fewest and the most: measured."""

MOST_NUMBERS = 2**19, 2**26
"""Of gradients in a physical batch that is chosen here: with more than the fewest slots (then they
stay in the processor's cache), and with more than one (half a GiB in float64)."""

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
        stack.enter_context(jax.disable_jit(False))
        stack.enter_context(jax.debug_nans(False))
        stack.enter_context(jax.debug_infs(False))
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


def _rounded(part: Any, good: Any, factors: Any) -> Any:
    """Return the sum of slots' shares, whole numbers in float64, of up to 32 slots: exact."""
    jnp = library().numpy
    total = jnp.zeros(part.shape[1], jnp.float64)
    for i in range(len(part)):  # one loop of the compiled program, over the parameters
        finite = jnp.where(good[i], part[i].astype(jnp.float64), 0.0)
        total = total + jnp.round(finite * factors[i])
    return total


def _add(groups: tuple[tuple[int, ...], ...], rule: str) -> Callable[..., Any]:
    """Return what adds units' shares, compiled: each group of leaves has its own factor."""
    jax = library()
    jnp, length = jax.numpy, 1 / np.sqrt(len(groups))

    def add(totals: Any, parts: Any, held: Any, losses: Any, threshold: Any) -> Any:
        size = sum(part.shape[1] for part in parts)
        # the norms, and what float64 may have made too small of them
        larger = 1 + 2.0**-40 + size * 2.0**-52
        squares = [_squares(part.astype(jnp.float64)) for part in parts]
        norms = [jnp.sqrt(sum(squares[i] for i in group)) * larger for group in groups]
        # NaN and infinity of either make the sum NaN or infinite
        good = held & jnp.isfinite(sum(norms) + losses.astype(jnp.float64))
        short = good
        steps: list[Any] = [None] * len(parts)
        for group, norm in zip(groups, norms, strict=True):
            margin = np.sqrt(sum(parts[i].shape[1] for i in group)) * 2.0 ** -(BITS + 1)
            # the triangle inequality of the head of this file
            longest = (length - margin - SLACK) / norm
            factors = jnp.minimum(longest, rule_factors(norm, rule, threshold, length)) * 2.0**BITS
            factors = jnp.where(good, factors, 0.0)
            for i in group:
                steps[i] = sum(
                    _rounded(
                        parts[i][at : at + 32], good[at : at + 32], factors[at : at + 32]
                    ).astype(jnp.int64)
                    for at in range(0, len(good), 32)
                )
            short = short & (norm <= threshold * length)
        return [total + step for total, step in zip(totals, steps, strict=True)], short.sum()

    return jax.jit(add, donate_argnums=0)  # type: ignore[no-any-return]


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
        The number of slots; None for 8 to 32, or fewer where there are very many parameters.

    Attributes
    ----------
    size
        The number of parameters.
    step
        2^-36: the sum is given in steps of this share of the threshold.

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
    ) -> None:
        jax = library()
        flat, unravel = import_module("jax.flatten_util").ravel_pytree(tree)
        self.size = int(flat.size)
        self._precision = flat.dtype

        def one(theta: Any, x: Any, y: Any) -> Any:
            value = jax.numpy.asarray(loss(theta, x, y))
            if value.size != 1 or not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
                raise DeclarationError(
                    f"the loss of one row must be a number, got an array of {value.dtype} with the "
                    f"shape {value.shape}"
                )
            return value.reshape(())

        few, room = (max(1, most // max(1, self.size)) for most in MOST_NUMBERS)
        self.physical_batch = int(physical_batch or min(SLOTS[1], room, max(SLOTS[0], few)))

        def gradient(theta: Any, x: Any, y: Any) -> Any:
            """Return the loss, and the gradient's leaves that are not empty, each a vector."""
            value, found = jax.value_and_grad(one)(unravel(theta), x, y)
            leaves = jax.tree_util.tree_leaves(found)
            return value, [leaf.reshape(-1) for leaf in leaves if leaf.size]

        self._gradient = gradient
        # by leaves: to write them into one array would take longer than to compute them
        self._rows = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0)))
        self._inputs, self._targets = np.asarray(inputs), np.asarray(targets)
        sizes = [int(np.size(leaf)) for leaf in jax.tree_util.tree_leaves(tree)]
        self._sizes = tuple(size for size in sizes if size)
        self._join = _join()
        self._adds: dict[tuple[str, bool], Any] = {}
        with compiled():
            try:
                self._check(np.asarray(flat))
            except DeclarationError:
                raise
            except Exception as error:  # of made-up rows: it may be shown
                raise DeclarationError(f"it fails on made-up rows: {error}") from None

    def _adder(self, rule: str, by_layer: bool) -> Any:
        """Return what adds units' shares by a rule, compiled once."""
        if (rule, by_layer) not in self._adds:
            leaves = tuple(range(len(self._sizes)))
            self._adds[rule, by_layer] = _add(
                tuple((i,) for i in leaves) if by_layer else (leaves,), rule
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
        losses, rows = self._whole(theta, x, y)
        for i in range(min(2, self.physical_batch)):
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
            away = np.linalg.norm(rows[i].astype(np.float64) - first[1])
            if away > TOLERANCE * np.linalg.norm(first[1]):
                raise DeclarationError(
                    "jax.vmap gives another gradient of a made-up row than the row by itself has"
                )
        self._refuse_fast_math()
        one = [np.broadcast_to(v[:1], v.shape).copy() for v in (x, y)]
        alike = self._whole(theta, *one)
        self.slots_agree = all(
            np.array_equal(v, np.broadcast_to(v[:1], v.shape), equal_nan=True) for v in alike
        )
        slot = self.physical_batch // 2
        keep = np.arange(self.physical_batch) != slot
        others = [self._inputs[(index[slot] + 1) % len(self._inputs)]]
        if x.dtype.kind == "f":
            others.append(np.full_like(others[0], np.nan))
        for other in others:
            changed = x.copy()
            changed[slot] = other
            for before, after in zip((losses, rows), self._whole(theta, changed, y), strict=True):
                if not np.array_equal(before[keep], after[keep], equal_nan=True):
                    raise DeclarationError(
                        "a row's gradient depends on the rows beside it, in a batch of "
                        f"{self.physical_batch}"
                    )

    def _whole(self, theta: Any, x: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the losses of the slots, and their gradients, shape (slots, size)."""
        losses, parts = self._rows(theta, x, y)
        return np.asarray(losses), np.concatenate([np.asarray(part) for part in parts], axis=1)

    def _refuse_fast_math(self) -> None:
        """Refuse a compiler that was told to neglect NaN, or that has no float64."""
        slots, kind = self.physical_batch, self._precision
        with wide()(True):
            full, add = np.ones(slots, bool), self._adder("flat", False)
            for value, loss in ((np.nan, 0.0), (0.0, np.inf)):
                rows = [np.full((slots, size), value, kind) for size in self._sizes]
                losses = np.full(slots, loss, kind)
                totals, count = add(self._zeros(), rows, full, losses, 1.0)
                sums, held = self._join(self._zeros(slots), ~full, losses, rows, full)
                again, _ = add(self._zeros(), sums, held, np.zeros(slots), 1.0)
                found = [count, *totals, held, *again]
                if any(np.any(np.asarray(v)) for v in found) or again[0].dtype != np.int64:
                    raise DeclarationError(
                        "JAX counts rows that are not finite here: leave out fast-math of XLA_FLAGS"
                    )

    def _zeros(self, slots: int | None = None) -> list[Any]:
        """Return the total of no units, or the sums of each slot's no rows, by leaves."""
        if slots is None:
            return [np.zeros(size, np.int64) for size in self._sizes]
        return [np.zeros((slots, size)) for size in self._sizes]

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
            The number of the unit of each row: a unit's rows are added up, then clipped.
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
        if len(inputs) != len(targets) or (units is not None and len(units) != len(inputs)):
            raise DeclarationError("inputs, targets and units must have the same number of rows")
        units = np.arange(len(inputs)) if units is None else np.asarray(units)
        slots, context = self.physical_batch, wide()
        add = self._adder(rule, by_layer)
        with compiled():
            parameters, short = library().numpy.asarray(theta), []
            totals: list[Any] = self._zeros()
            agree = self.slots_agree
            for rounds in unit_batches(units, slots, stream or SecureStream(), agree=agree):
                found = self._rows(parameters, *self._placed(rounds[0], inputs, targets))
                held = rounds[0] >= 0
                if len(rounds) == 1:  # units of one row are their rows
                    losses, sums = found
                else:
                    with context(True):
                        sums, held = self._join(
                            self._zeros(slots), np.zeros(slots, bool), *found, held
                        )
                    losses = np.zeros(slots)
                    for rows in rounds[1:]:
                        found = self._rows(parameters, *self._placed(rows, inputs, targets))
                        with context(True):
                            sums, held = self._join(sums, held, *found, rows >= 0)
                with context(True):
                    totals, count = add(totals, sums, held, losses, threshold)
                short.append(count)
            whole = np.concatenate([np.asarray(total) for total in totals])
            return whole, sum(int(count) for count in short)

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
        ends = np.cumsum(self._sizes).tolist() if by_layer else [self.size]
        length = 1 / np.sqrt(len(ends))
        with compiled():
            for start in range(0, len(inputs), self.physical_batch):
                rows = np.arange(start, start + self.physical_batch)
                rows[rows >= len(inputs)] = -1
                _, gradients = self._whole(theta, *self._placed(rows, inputs, targets))
                own = gradients.astype(np.float64)[rows >= 0]
                products = np.zeros(len(own))
                with np.errstate(all="ignore"):
                    for low, high in zip([0, *ends], ends, strict=False):
                        part = own[:, low:high]
                        norms = np.linalg.norm(part, axis=1)
                        factors = rule_factors(norms, rule, threshold, length)
                        products += part @ along[low:high] * np.minimum(factors, length / norms)
                    found.append(products)
        whole = np.concatenate([*found, np.zeros(0)])
        return np.asarray(np.nan_to_num(whole, posinf=0.0, neginf=0.0))

    def _placed(self, rows: NDArray[np.int64], inputs: Any, targets: Any) -> list[NDArray[Any]]:
        """Return the rows in their slots, with a made-up row in the others."""
        full, placed = rows >= 0, []
        for values, like in ((inputs, self._inputs), (targets, self._targets)):
            into = np.broadcast_to(like[0], (len(rows), *like.shape[1:])).astype(like.dtype)
            into[full] = values[rows[full]]
            placed.append(into)
        return placed
