"""Optimizers of PyTorch that know how much noise a released gradient has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.values import positive
from adaptive_dp.torch.networks import library

LEAST_SIGNAL = 0.05
"""A second moment without the noise's is at least this share of the noise's variance."""


@lru_cache(maxsize=1)
def _class() -> Any:
    """Return the optimizer's class; PyTorch is imported when it is first asked for."""
    torch = library()

    class AdamBC(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
        """Adam whose second moments are freed of the noise's variance."""

        noise_deviation = 0.0

        def step(self, closure: None = None) -> None:
            """Step along the gradients."""
            for group in self.param_groups:
                (first, second), rate = group["betas"], group["lr"]
                for p in group["params"]:
                    if p.grad is not None:
                        self._move(p, first, second, rate, group["eps"])

        def _move(self, p: Any, first: float, second: float, rate: float, eps: float) -> None:
            state = self.state[p]
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] += 1
            times, mean, square = float(state["step"]), state["exp_avg"], state["exp_avg_sq"]
            mean.lerp_(p.grad, 1 - first)
            square.mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
            # E (g + noise)^2 = E g^2 + deviation^2: the noise's is public, and subtracted
            noise = self.noise_deviation**2
            signal = (square / (1 - second**times) - noise).clamp_(min=LEAST_SIGNAL * noise)
            with torch.no_grad():
                p.addcdiv_(mean / (1 - first**times), signal.sqrt_().add_(eps), value=-rate)

    return AdamBC


def adam_bc(
    parameters: Iterable[Any],
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> Any:
    """Return Adam with second moments freed of the noise's variance (DP-AdamBC).

    Adam divides by the root of a mean of squared gradients. Of a released gradient that mean is
    mostly the noise's variance, the same in all coordinates, so that Adam becomes descent with
    momentum. The variance is public: this optimizer subtracts it, so that coordinates with small
    gradients again take steps as long as others. What remains is at least a twentieth of it.

    Parameters
    ----------
    parameters, lr, betas, eps
        As of ``torch.optim.Adam``.

    Returns
    -------
    torch.optim.Optimizer
        A training of independent noise sets its ``noise_deviation``: that of each coordinate of the
        mean gradient that it steps along. At 0 it is ``torch.optim.Adam``.

    References
    ----------
    Tang, Shpilevskiy and Lecuyer 2024, "DP-AdamBC: your DP-Adam is actually DP-SGD (unless you
    apply bias correction)".

    Examples
    --------
    >>> import torch
    >>> made = adam_bc([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    >>> made.noise_deviation
    0.0
    """
    if not positive(lr):
        raise DeclarationError(f"adam_bc's lr must be a positive number, got {lr!r}")
    return _class()(parameters, {"lr": lr, "betas": betas, "eps": eps})
