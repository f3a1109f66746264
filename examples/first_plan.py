"""Declare, certify, run: counts, a mean and histograms of real people under one budget.

Bounds come from what is commonly known, not from the data: the RAND Health Insurance Experiment.

Run it: ``python examples/first_plan.py``
"""

import adaptive_dp as dp
from adaptive_dp.demo import DATA

HEALTH = ["excellent", "good", "fair", "poor"]
COLUMNS = {"income": (0, 20_000), "age": (0, 70), "health": HEALTH}
people = dp.dataset("people", columns=COLUMNS, unit="person", rows_per_unit=5)

plan = dp.Pipeline(
    person_years=people.count(),
    mean_income=people["income"].average(),
    children=people.filter(people["age"] < 18).count(),
    ages={
        health: part["age"].histogram([0, 18, 40, 70]).release(dp.Gaussian())
        for health, part in people.partition("health")
    },
).calibrate(epsilon=1.0, delta=1e-6)

print(plan.certify(), end="\n\n")
print(plan.run(people=DATA))
