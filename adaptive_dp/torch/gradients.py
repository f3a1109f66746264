"""Exact integer sums of the rows' clipped gradients of a PyTorch module."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError

STEP = 2.0**-32
"""Each unit's share is rounded towards zero to multiples of this, in units of the threshold."""

PHYSICAL_BATCH = 64
"""Rows of one forward and backward pass."""


class ClippedSums:
    """The exact sum, over units, of gradients clipped to a threshold.

    Parameters
    ----------
    module
        The network, whose parameters with ``requires_grad`` count.
    loss
        From outputs and targets of a batch to a number.
    inputs, targets
        A few made-up rows.
    physical_batch
        How many rows are computed at once; every batch is filled up to it.

    Raises
    ------
    DeclarationError
        If rows mix: the loss of a row depends on the rows beside it.
    """

    def __init__(
        self,
        module: Any,
        loss: Any,
        inputs: Any,
        targets: Any,
        *,
        physical_batch: int | None = None,
    ) -> None:
        torch: Any = import_module("torch")
        self._torch, self._module, self._loss = torch, module, loss
        named = {k: p for k, p in module.named_parameters() if p.requires_grad}
        self._names = list(named)
        self._shapes = [tuple(p.shape) for p in named.values()]
        self._sizes = [p.numel() for p in named.values()]
        self._dtype = next(iter(named.values())).dtype
        self._frozen = {k: v.detach() for k, v in module.named_parameters() if k not in named}
        self._frozen |= dict(module.named_buffers())
        self._batch = physical_batch or PHYSICAL_BATCH
        self.size = sum(self._sizes)
        self.step = STEP
        self._probe(torch.as_tensor(inputs))

        def row_loss(parameters: Any, x: Any, y: Any) -> Any:
            out = torch.func.functional_call(
                module, {**parameters, **self._frozen}, (x.unsqueeze(0),)
            )
            return loss(out, y.unsqueeze(0)).sum()

        self._of_rows = torch.func.vmap(
            torch.func.grad_and_value(row_loss), in_dims=(None, 0, 0), randomness="error"
        )

    def _probe(self, inputs: Any) -> None:
        torch = self._torch
        with torch.no_grad():
            whole = self._module(inputs)
            if not (isinstance(whole, torch.Tensor) and whole.shape[:1] == inputs.shape[:1]):
                raise DeclarationError("a network must return a tensor with one entry for each row")
            changed = inputs.clone()
            changed[0] = inputs[-1]
            other = self._module(changed)[1:]
            alone = torch.cat([self._module(row.unsqueeze(0)) for row in inputs])
        scale = float(whole.abs().max()) + 1e-6
        for seen in (other - whole[1:], alone - whole):
            if not float(seen.abs().max()) <= 1e-3 * scale:
                raise DeclarationError(
                    f"{type(self._module).__name__} mixes rows: what it returns for one depends on "
                    "the others, so that clipping a row's gradient does not bound what it adds"
                )

    def __call__(
        self, theta: Any, inputs: Any, targets: Any, units: Any = None, *, threshold: float
    ) -> tuple[NDArray[np.int64], int]:
        """Return the sum in steps, shape (size,), and how many units are within the threshold."""
        torch = self._torch
        x, y = torch.as_tensor(inputs), torch.as_tensor(targets)
        flat = torch.as_tensor(np.asarray(theta)).to(self._dtype)
        parts = torch.split(flat, self._sizes)
        parameters = {
            k: p.reshape(s) for k, p, s in zip(self._names, parts, self._shapes, strict=True)
        }
        total, short = np.zeros(self.size, dtype=np.int64), 0
        names = None if units is None else np.asarray(units)
        held: dict[int, NDArray[np.float64]] = {}
        for start in range(0, len(x), self._batch):
            rows = slice(start, min(start + self._batch, len(x)))
            count = rows.stop - rows.start
            # always the same shapes: the last batch is filled up with its first row
            fill = torch.arange(self._batch).remainder(count)
            grads, values = self._of_rows(parameters, x[rows][fill], y[rows][fill])
            g = torch.cat([grads[k].reshape(self._batch, -1) for k in self._names], dim=1)
            g = g[:count].double().numpy()
            ok = np.isfinite(values[:count].double().numpy()) & np.isfinite(g).all(axis=1)
            g[~ok] = 0.0
            if names is None:
                steps, within = self._clipped(g, threshold)
                total += steps.sum(axis=0)
                short += int(within.sum())
                continue
            for name, row in zip(names[rows].tolist(), g, strict=True):
                held[name] = held[name] + row if name in held else row
        for row in held.values():
            if not np.isfinite(row).all():
                row = np.zeros(self.size)
            steps, within = self._clipped(row[None], threshold)
            total += steps[0]
            short += int(within[0])
        return total, short

    def _clipped(
        self, g: NDArray[np.float64], threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        # of huge entries the largest is divided out, so that no square overflows
        with np.errstate(all="ignore"):
            top = np.maximum(np.abs(g).max(axis=1, initial=0.0), 1e-300)[:, None]
            norms = (top * np.sqrt(((g / top) ** 2).sum(axis=1, keepdims=True))) / threshold
            norms = np.nan_to_num(norms, nan=np.inf, posinf=np.inf)
            # rounded towards zero, so that no share is longer than the threshold
            shares = g / top * (top / threshold / np.maximum(norms, 1.0) * (1 - 2.0**-30))
            shares = np.nan_to_num(shares, nan=0.0, posinf=0.0, neginf=0.0)
        return np.trunc(shares / self.step).astype(np.int64), norms[:, 0] <= 1.0
