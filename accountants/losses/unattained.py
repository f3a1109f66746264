"""A pair that dominates, and that no mechanism need attain."""

from __future__ import annotations

from attrs import frozen

from accountants.complexes import Complex
from accountants.pair import Pair
from accountants.rounding import Array


@frozen
class Unattained(Pair):
    """The pair, as an upper bound only."""

    pair: Pair

    def attained(self) -> bool:
        """Return False."""
        return False

    def tail_error(self) -> float:
        """Return the pair's."""
        return self.pair.tail_error()

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's."""
        return self.pair.above(loss)

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's."""
        return self.pair.below(loss)

    def top(self) -> float:
        """Return the pair's."""
        return self.pair.top()

    def bottom(self) -> float:
        """Return the pair's."""
        return self.pair.bottom()

    def spacing(self) -> float | None:
        """Return the pair's."""
        return self.pair.spacing()

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return the pair's."""
        return self.pair.log_moment(z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the pair's."""
        return self.pair.decay(tilt, beyond)

    def reversed(self) -> Pair:
        """Return the pair's, as an upper bound only."""
        other = self.pair.reversed()
        return self if other == self.pair else Unattained(other)
