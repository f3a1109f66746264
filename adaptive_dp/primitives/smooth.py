"""What the mechanisms share whose noise follows the smooth sensitivity.

They release ``f(x) + S(x)/a Z`` with S a beta-smooth sensitivity (`Stability.smooth`). For
neighbours ``S(x') = e^b S(x)`` with ``|b| <= beta``, and ``|f(x) - f(x')|`` is at most both
S(x) and S(x'). So, in units of ``S(x)/a``, the pair of outputs is

    Z  against  e^b Z + s,   |b| <= beta,  |s| <= a min(1, e^b),

and a mechanism is a law of Z with the (a, beta) that this pair's loss allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import PrivacyLoss, Pure
from adaptive_dp.graph.convert import POSITIVE, number, positive
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.stability import SLACK, Stability
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.bounded_grid import on_grid, step

LEAST, MOST = 1e-9, 50.0
"""Budgets outside of these are used as if they were the nearest of them."""


def usable(epsilon: float) -> float:
    """Return the epsilon that noise is made for: at most what is paid, `paid`."""
    return min(max(epsilon, LEAST), MOST)


def paid(epsilon: float) -> float:
    """Return the epsilon that is charged: at least what noise is made for."""
    return max(epsilon, LEAST)


def noisy(
    value: Stability, beta: float, shift: float, draw: Callable[[Stream], float], stream: Stream
) -> NDArray[np.float64]:
    """Return ``f + S/a Z`` on the grid of the bounds, with ``a = shift`` and Z from ``draw``.

    S is at least the grid's step, which keeps it smooth. It is too large by at most a relative
    `SLACK`; the callers make room for that in beta (`room`).
    """
    lower, upper = value.lower, value.upper
    spread = value.smooth(beta, least=step(lower, upper))
    return on_grid(value.value + spread * (draw(stream) / shift), lower, upper, stream)


def room(beta: float) -> float:
    """Return the smoothness that a computed S has: beta, and twice its own error."""
    return (beta + 2 * SLACK) * (1 + SLACK)


def steps_loss(loss: PrivacyLoss, distance: float) -> PrivacyLoss:
    """Return the loss where ``distance`` rows change, by the group privacy of ``loss`` for one.

    The distance arrives rounded up by a few units in the last place.
    """
    size = math.ceil(distance * (1 - 1e-12))
    return loss.grouped(size) if size > 0 else Pure(0.0)


def failure_parameter() -> Any:
    """Declare a failure probability, strictly between 0 and 1; calibration leaves it alone."""
    return attrs.field(
        converter=number, validator=_failure, metadata={"symbol": "delta", "role": "budget"}
    )


def _failure(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 1e-60 <= value < 1):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a probability from 1e-60 on, "
            f"below 1, got {value!r}; it is declared, not calibrated: 1e-7, say"
        )


def declared_parameter(symbol: str) -> Any:
    """Declare a positive parameter that costs nothing, so that calibration leaves it alone."""
    return attrs.field(converter=number, validator=_declared, metadata={"symbol": symbol})


def _declared(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not positive(value):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a {POSITIVE}, got {value!r}; it "
            "is declared, not calibrated, in units of the value and without looking at the data"
        )


def flag(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be True or False, got {value!r}"
        )
