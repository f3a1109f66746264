"""Audit a plan whose mechanism branches on a private value, then mend it and audit again.

Run it: ``python examples/audit.py``
"""

import accountants
import adaptive_dp as dp


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


people = dp.dataset("people", columns={"age": (0, 100)})
for title, mechanism in (("broken", Careful(scale=2)), ("mended", dp.Laplace(scale=2))):
    old = people.filter(people["age"] >= 65).count().release(mechanism)
    ages = people["age"].sum().release(dp.Laplace(scale=200))
    plan = dp.Pipeline(old=old, ages=ages)
    print(f"--- {title}: certified epsilon {plan.certify().epsilon:g}")
    print(plan.audit(samples=4_000, seed=1))
    print("\nwithout running it:")
    print(dp.audit.static(plan), "\n")
