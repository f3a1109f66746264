"""Ridge coefficients in a ball, with a sensitivity that holds for any data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from adaptive_dp.data.linear_systems import constrained
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import number
from adaptive_dp.queries.moments import LEAST, MOST, MomentsDomain


@frozen
class ConstrainedCoefficients(Query):
    """The ridge coefficients in the ball ``|w| <= radius``.

    They minimize ``F(w) = |y - Xw|^2 / 2 + ridge |w|^2 / 2``, which is ridge-strongly convex, over
    a ball in which a row's share of it has a gradient of at most ``G = 1 + radius``. So a row that
    comes or goes moves them by at most ``G / ridge`` in l2 norm. Each is rounded to 2^-40.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Lemma 7 (strong convexity).
    """

    kind: ClassVar[str] = "constrained_coefficients"
    reads: ClassVar[type] = MomentsDomain

    ridge: float
    radius: float

    def label(self) -> str:
        """Return the query."""
        return f"ridge coefficients in norm {self.radius:.4g}"

    def domain(self, inputs: Sequence[Any]) -> MomentsDomain:
        """Return the input's; refuse a ridge or radius that is out of bounds."""
        sizes = {"ridge": (self.ridge, LEAST, MOST), "radius": (self.radius, 2.0**-20, 2.0**20)}
        for name, (value, low, high) in sizes.items():
            require(
                low <= number(f"a {name}", value) <= high,
                f"a {name} must be in [{low:g}, {high:g}], got {value!r}",
            )
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: MomentsDomain) -> int:
        """Return the number of coefficients."""
        return domain.width

    def sensitivity(self, domain: MomentsDomain, change: Change, norm: float) -> float:
        """Return ``G / ridge`` for each row, times sqrt(d) in l1, and the rounding."""
        each = change.both * (1 + self.radius) / self.ridge * (1 + 1e-12)
        rounding = 2.0**-39 * domain.width
        return each * (math.sqrt(domain.width) if norm == 1 else 1.0) + rounding

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the coefficients, shape (d,)."""
        _, found, _ = constrained(inputs[0], self.ridge, self.radius)
        return np.array([round(v * 2**40) * 2.0**-40 for v in found])
