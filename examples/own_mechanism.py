"""A mechanism of your own: declared in ten lines, then certified, calibrated, run and drawn.

Run it: ``python examples/own_mechanism.py``
"""

from typing import Any

import accountants
import adaptive_dp as dp
from accountants.numerics import up
from adaptive_dp.demo import DATA
from adaptive_dp.noise import lattice, rounded_laplace


class TwoSided(dp.Mechanism):
    """Laplace noise, in whole steps: the low bits of a sum of floats would tell the value."""

    scale: float = dp.noise_parameter("b")
    norm = 1

    def release(self, value: Any, stream: Any) -> Any:
        """Return the value with noise."""
        g = lattice.step(self.scale)
        return lattice.noisy(value, rounded_laplace(stream, self.scale / g, value.size), g)

    def cost(self, distance: float, dimension: int, step: float) -> accountants.PrivacyLoss:
        """Return the loss of the distance and of what rounding adds to it."""
        moved = dimension * lattice.rounding_distance(step, lattice.step(self.scale))
        return self.loss(up(distance + moved, 4))

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        """Return the loss at l1 distance ``distance``."""
        return accountants.Laplace(distance / self.scale)


people = dp.dataset("people", columns={"visits": (0, 20)}, unit="person", rows_per_unit=5)
noise = TwoSided(scale=dp.Free("b"))
plan = dp.Pipeline(frequent=people.filter(people["visits"] >= 10).count().release(noise))
plan = plan.calibrate(epsilon=0.5)

print(plan.certify(), end="\n\n")
print(plan.run(people=DATA), end="\n\n")
print(plan.mermaid())
