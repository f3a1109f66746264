"""Audit a plan whose mechanism branches on a private value, then fix it and audit again.

The audit adds made-up people to those of the RAND Health Insurance Experiment and removes them.
Hardly any year there cost as much as the plan's filter requires, so that one person changes the
noise.

Run it: ``python examples/audit.py``
"""

import numpy as np

import accountants
import adaptive_dp as dp
from adaptive_dp.demo import DATA


class Careful(dp.Mechanism):
    """Laplace noise that is ten times smaller where the count is small: it looks before it adds."""

    scale: float = dp.noise_parameter("b")

    def release(self, value, stream):
        """Branch on the private value."""
        scale = self.scale if value >= 5 else self.scale / 10
        return (value + stream.laplace(scale, value.shape)).round(3)

    def loss(self, distance):
        """Declare what would be true of the branch with more noise alone."""
        return accountants.Laplace(distance / self.scale)


columns = {"spending": (0, 40_000), "visits": (0, 20)}
years = np.genfromtxt(DATA, delimiter=",", names=True, usecols=["person", *columns])
data = {name: years[name] for name in years.dtype.names}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
for title, mechanism in (("broken", Careful(scale=10)), ("mended", dp.Laplace(scale=10))):
    dear = people.filter(people["spending"] >= 30_000).count().release(mechanism)
    visits = people["visits"].sum().release(dp.Laplace(scale=200))
    plan = dp.Pipeline(dear=dear, visits=visits)
    print(f"--- {title}: certified epsilon {plan.certify().epsilon:g}")
    print(plan.audit(people=data, samples=2_000, seed=1))
    print("\nwithout running it:")
    print(dp.audit.static(plan), "\n")
