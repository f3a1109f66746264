"""The mean of a bounded column, as a released sum over a released count."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from adaptive_dp.graph.fields import evolved, fields_of
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.handles import PrivateQuery, Released, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.queries.domains import Interval


def average(
    total: PrivateQuery[float],
    count: Released[float],
    bounds: Interval,
    mechanism: Mechanism,
    *,
    name: str = "",
) -> Released[float]:
    """Return a released sum over a released count, in the bounds.

    One row moves the sum by up to the largest bound where it moves the count by one, so the
    sum's noise is the mechanism's times that bound. ``name`` is how tables call the sum.
    """
    noisy = total.release(louder(mechanism, bounds.largest or 1.0), name=name)
    return post(ratio, noisy, count, lower=bounds.lower, upper=bounds.upper)


def louder(mechanism: Mechanism, factor: float) -> Mechanism:
    """Return the mechanism with all of its noise times a factor."""

    def times(value: Any) -> Any:
        if isinstance(value, Free):
            return value if value.weight is None else evolve(value, weight=value.weight * factor)
        return value * factor

    noise = [f.name for f in fields_of(type(mechanism)) if f.metadata.get("role") == "noise"]
    return evolved(mechanism, **{name: times(getattr(mechanism, name)) for name in noise})


def ratio(total: float, count: float, *, lower: float, upper: float) -> float:
    """Return the mean of values in [lower, upper] from a sum and a count."""
    return min(upper, max(lower, total / max(count, 1.0)))
