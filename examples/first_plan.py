"""Declare, certify, run: counts, a mean and histograms of a made-up survey under one budget.

Run it: ``python examples/first_plan.py``
"""

import numpy as np

import adaptive_dp as dp

COLUMNS = {"income": (0, 100_000), "age": (18, 100), "region": ["north", "south", "west"]}
people = dp.dataset("people", columns=COLUMNS, unit="id", rows_per_unit=2)

count = people.count().release(dp.Laplace())
plan = dp.Pipeline(
    count=count,
    mean=people["income"].average(dp.Laplace(), count=count),
    seniors=people.filter(people["age"] >= 65).count().release(dp.Laplace()),
    regions={
        region: part["age"].histogram([18, 40, 65, 100]).release(dp.Gaussian())
        for region, part in people.partition("region")
    },
).calibrate(epsilon=1.0, delta=1e-6)

draw = np.random.default_rng(7)
survey = {
    "id": np.arange(20_000) // 2,
    "income": draw.gamma(3, 12_000, 20_000),
    "age": draw.uniform(18, 95, 20_000),
    "region": draw.choice(COLUMNS["region"], 20_000),
}
print(plan.certify(), end="\n\n")
print(plan.run(people=survey))
