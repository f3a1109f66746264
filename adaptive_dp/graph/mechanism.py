"""The contract of a mechanism: its parameters, its release, its loss.

Subclass `Mechanism`, annotate each parameter with `noise_parameter` or `budget_parameter`,
say in which norm distances are measured, and write two methods::

    class Noisy(dp.Mechanism):
        scale: float = dp.noise_parameter("b")
        norm = 1

        def release(self, value, stream):
            return value + stream.laplace(self.scale, value.shape)

        def loss(self, distance):
            return accountants.Laplace(distance / self.scale)

It is a frozen attrs class: certify, calibrate, run, draw and the plan document know it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, dataclass_transform

import attrs
from numpy.typing import NDArray

from accountants import PrivacyLoss
from adaptive_dp.graph.convert import POSITIVE, number, positive
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.fields import evolved, fields_of
from adaptive_dp.graph.free import Free
from adaptive_dp.noise.stream import Stream


def noise_parameter(symbol: str) -> Any:
    """Declare a positive parameter that is more private the larger it is (a noise scale)."""
    return attrs.field(
        converter=number, validator=_positive, metadata={"symbol": symbol, "role": "noise"}
    )


def budget_parameter(symbol: str) -> Any:
    """Declare a positive parameter that is less private the larger it is (an epsilon)."""
    return attrs.field(
        converter=number, validator=_positive, metadata={"symbol": symbol, "role": "budget"}
    )


def _positive(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, Free):
        return
    if not positive(value):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a {POSITIVE}, got {value!r}; "
            f"pass Free({attribute.metadata['symbol']!r}) to have calibrate choose it"
        )


@dataclass_transform(frozen_default=True, field_specifiers=(noise_parameter, budget_parameter))
class Mechanism:
    """Base of every mechanism; a subclass becomes a frozen attrs class by itself.

    Attributes
    ----------
    norm
        1, 2 or ``math.inf``: the norm in which `loss` takes its distance.
    theorem
        What the loss rests on, with author, year and number.
    sampler
        Which sampler `release` draws from, as certificates report it.
    """

    norm: ClassVar[float] = 1
    theorem: ClassVar[str] = ""
    sampler: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Turn the subclass into a frozen attrs class, in place."""
        super().__init_subclass__()
        attrs.frozen(cls, slots=False)
        if cls.norm not in (1, 2, math.inf):
            raise DeclarationError(
                f"{cls.__name__}.norm must be 1, 2 or math.inf, got {cls.norm!r}"
            )

    def release(self, value: NDArray[Any], stream: Stream) -> Any:
        """Return the randomised value.

        Parameters
        ----------
        value
            A float64 array of the query's shape, a scalar's is (); a copy, free to change.
        stream
            All randomness is drawn from it.

        Returns
        -------
        numpy.ndarray
            Real numbers of the same shape; the plan keeps them as float64. Anything else fails
            the run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define release(value, stream)")

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the privacy loss between values at most ``distance`` apart in `norm`."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(distance)")

    def deviation(self) -> float | None:
        """Return the noise's standard deviation on each coordinate; None to have it simulated."""
        return None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    def free(self) -> dict[str, Free]:
        """Return the parameters that are still free, by field name."""
        return {name: v for name, v in self.parameters().items() if isinstance(v, Free)}

    def fixed(self, multiplier: float) -> Mechanism:
        """Return the mechanism with its free parameters at ``multiplier`` times their weights."""
        solved = {}
        roles = {f.name: f.metadata.get("role", "noise") for f in fields_of(type(self))}
        for name, free in self.free().items():
            noise = roles[name] == "noise"
            solved[name] = free.weight * multiplier if noise else free.weight / multiplier
        return evolved(self, **solved) if solved else self

    def __str__(self) -> str:
        inside = ", ".join(
            f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}"
            for k, v in self.parameters().items()
        )
        return f"{type(self).__name__}({inside})"
