"""Private tuning: a learner's settings chosen by the data, in one budget.

    python examples/private_tuning.py

Choosing by looking at the data would cost privacy that is in no certificate. Here each run learns
with one setting and releases how often it is wrong, and the best of a random number of runs is all
that comes out.
"""

import adaptive_dp as dp
from adaptive_dp.demo import DATA

columns = {"age": (0, 70), "income": (0, 20_000), "chronic": (0, 60), "visits": (0, 20)}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
learner = dp.NoisyGradientDescent(["age", "income", "chronic"], "visits", loss=dp.Squared())

grid = {"clip": [0.1, 0.3, 1.0], "steps": [30, 120]}
best = dp.tune(people, learner, grid, epsilon=1.0, delta=1e-6)
plan = dp.Pipeline(best=best).with_delta(1e-6)

print(plan.certify(), end="\n\n")
print(plan.run(people=DATA))
