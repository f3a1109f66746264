"""The exact sum of the clipped gradients of rows by a pure function of JAX.

A private training step needs ``sum_i g_i min(1 / C, 1 / |g_i|)`` over the sampled units i, g_i the
gradient of unit i's loss, C the threshold. `jax.vmap` of `jax.grad` gives the gradients of a
physical batch: a fixed number of slots, each with a row or with a made-up one that is masked, so
that one program is compiled, whatever the sample's size. They are then shortened, rounded and added
in float64 and int64, which JAX is asked for just there.

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

**Sums are exact**: int64, for fewer than 2^27 units. They do not depend on the order of the units,
nor on how they are divided into batches.

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

SLOTS = 32
"""Of a physical batch: a dense layer's gradients of a whole batch at once are far slower."""

MOST_NUMBERS = 2**26
"""Of gradients in a physical batch that is chosen here: half a GiB in float64."""

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


def _join() -> Callable[..., Any]:
    """Return what adds rows to their units, compiled."""
    jnp = library().numpy

    def join(sums: Any, held: Any, losses: Any, rows: Any, mask: Any) -> Any:
        rows = rows.astype(jnp.float64)
        # NaN and infinity of either make the sum NaN or infinite
        good = jnp.isfinite((rows * rows).sum(1) + losses.astype(jnp.float64)) & mask
        return sums + jnp.where(good[:, None], rows, 0.0), held | good

    return library().jit(join)  # type: ignore[no-any-return]


def _add(ends: tuple[int, ...], rule: str) -> Callable[..., Any]:
    """Return what adds units' shares, compiled: each part, up to an end, has its own factor."""
    jnp = library().numpy
    starts, length = (0, *ends[:-1]), 1 / np.sqrt(len(ends))

    def add(total: Any, sums: Any, held: Any, threshold: Any) -> Any:
        # the norms, and what float64 may have made too small of them
        larger = 1 + 2.0**-40 + ends[-1] * 2.0**-52
        parts = [sums[:, start:end] for start, end in zip(starts, ends, strict=True)]
        norms = [jnp.sqrt((part * part).sum(1)) * larger for part in parts]
        good = held & jnp.isfinite(sum(norms))
        short, steps = good, []
        for part, norm in zip(parts, norms, strict=True):
            margin = np.sqrt(part.shape[1]) * 2.0 ** -(BITS + 1)
            # the triangle inequality of the head of this file
            longest = (length - margin - SLACK) / norm
            factors = jnp.minimum(longest, rule_factors(norm, rule, threshold, length)) * 2.0**BITS
            finite = jnp.where(good[:, None], part, 0.0)
            steps.append(jnp.round(finite * jnp.where(good, factors, 0.0)[:, None]))
            short = short & (norm <= threshold * length)
        whole = jnp.concatenate(steps, axis=1).astype(jnp.int64)
        return total + whole.sum(0), short.sum()

    return library().jit(add)  # type: ignore[no-any-return]


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
        The number of slots; None for 32, or fewer where there are very many parameters.

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
            value = jax.numpy.asarray(loss(unravel(theta), x, y))
            if value.size != 1 or not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
                raise DeclarationError(
                    f"the loss of one row must be a number, got an array of {value.dtype} with the "
                    f"shape {value.shape}"
                )
            return value.reshape(())

        room = max(1, MOST_NUMBERS // max(1, self.size))
        self.physical_batch = int(physical_batch or min(SLOTS, room))
        self._gradient = jax.value_and_grad(one)
        self._rows = jax.jit(jax.vmap(self._gradient, in_axes=(None, 0, 0)))
        self._inputs, self._targets = np.asarray(inputs), np.asarray(targets)
        sizes = [int(np.size(leaf)) for leaf in jax.tree_util.tree_leaves(tree)]
        self._ends = tuple(int(end) for end in np.cumsum(sizes))
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
            ends = tuple(end for end in self._ends if end) if by_layer else (self.size,)
            self._adds[rule, by_layer] = _add(tuple(dict.fromkeys(ends)), rule)
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
        losses, rows = map(np.asarray, self._rows(theta, x, y))
        for i in range(min(2, self.physical_batch)):
            first, again = (
                [np.asarray(v, np.float64) for v in self._gradient(theta, x[i], y[i])]
                for _ in range(2)
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
        alike = [np.asarray(v) for v in self._rows(theta, *one)]
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
            for before, after in zip((losses, rows), self._rows(theta, changed, y), strict=True):
                if not np.array_equal(before[keep], np.asarray(after)[keep], equal_nan=True):
                    raise DeclarationError(
                        "a row's gradient depends on the rows beside it, in a batch of "
                        f"{self.physical_batch}"
                    )

    def _refuse_fast_math(self) -> None:
        """Refuse a compiler that was told to neglect NaN, or that has no float64."""
        jnp, slots = library().numpy, self.physical_batch
        with wide()(True):
            zeros, full = jnp.zeros((slots, self.size), jnp.float64), np.ones(slots, bool)
            nans = np.full((slots, self.size), np.nan, self._precision)
            infinite = np.full(slots, np.inf, self._precision)
            for rows, losses in ((nans, np.zeros(slots)), (np.zeros_like(nans), infinite)):
                sums, held = self._join(zeros, ~full, losses.astype(nans.dtype), rows, full)
                add = self._adder("flat", False)
                total, _ = add(jnp.zeros(self.size, jnp.int64), sums, held, 1.0)
                if np.asarray(held).any() or np.asarray(total).any() or total.dtype != np.int64:
                    raise DeclarationError(
                        "JAX counts rows that are not finite here: leave out fast-math of XLA_FLAGS"
                    )

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
        slots, jnp, context = self.physical_batch, library().numpy, wide()
        add = self._adder(rule, by_layer)
        with compiled():
            parameters, short = jnp.asarray(theta), []
            with context(True):
                zeros = jnp.zeros((slots, self.size), jnp.float64), jnp.zeros(slots, bool)
                total = jnp.zeros(self.size, jnp.int64)
            agree = self.slots_agree
            for rounds in unit_batches(units, slots, stream or SecureStream(), agree=agree):
                sums = zeros
                for rows in rounds:
                    found = self._rows(parameters, *self._placed(rows, inputs, targets))
                    with context(True):
                        sums = self._join(*sums, *found, rows >= 0)
                with context(True):
                    total, count = add(total, *sums, threshold)
                short.append(count)
            return np.array(total), sum(int(count) for count in short)

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
        ends = [*dict.fromkeys(end for end in self._ends if end)] if by_layer else [self.size]
        length = 1 / np.sqrt(len(ends))
        with compiled():
            for start in range(0, len(inputs), self.physical_batch):
                rows = np.arange(start, start + self.physical_batch)
                rows[rows >= len(inputs)] = -1
                _, gradients = self._rows(theta, *self._placed(rows, inputs, targets))
                own = np.asarray(gradients, dtype=np.float64)[rows >= 0]
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
