"""The largest noise that whole numbers take."""

from __future__ import annotations

from typing import Any

from adaptive_dp.graph.free import Free
from adaptive_dp.graph.operation import require
from adaptive_dp.noise.exact import LARGEST_SCALE


def within(name: str, scale: Any) -> None:
    """Refuse a scale of discrete noise above 2^50, which its samplers do not take."""
    require(
        isinstance(scale, Free) or scale <= LARGEST_SCALE,
        f"{name} must be at most 2^50, got {scale!r}; count in larger units",
    )
