"""The demo's plan: six questions to the RAND Health Insurance Experiment under one budget.

The unit is the person, of whom the data has up to five years: protecting a row would protect
a fifth of a person. Bounds are chosen from what is commonly known, not from the data.
"""

import adaptive_dp as dp

people = dp.dataset(
    "people",
    columns={
        "age": (0, 70),
        "female": (0, 1),
        "education": (0, 25),
        "family_size": (1, 12),
        "income": (0, 20_000),
        "chronic": (0, 60),
        "coinsurance": (0, 100),
        "health": ["excellent", "good", "fair", "poor"],
        "visits": (0, 20),
        "spending": (0, 2_000),
    },
    unit="person",
    rows_per_unit=5,
)


# smaller weights are less noise: of people in poor health there are few
plan = dp.Pipeline(
    person_years=people.count(),
    mean_income=people["income"].average(),
    spending_quartiles=people["spending"].quantiles([0.25, 0.5, 0.75], interval=0.95),
    visits_by_health=people.group_by("health").average(
        "visits", dp.Laplace(scale=dp.Free(weight=0.8))
    ),
    health_by_age=people.crosstab(
        "health", "age", dp.Gaussian(sigma=dp.Free(weight=2.5)), edges={"age": [0, 45, 70]}
    ),
    visits=people.solve(dp.AdaSSP(features=["age", "female"], target="visits", weight=0.6)),
).calibrate(epsilon=2.0, delta=1e-6)
