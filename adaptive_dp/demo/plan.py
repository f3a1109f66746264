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


groups = people.group_by("health")
plan = dp.Pipeline(
    person_years=people.count().release(dp.Laplace()),
    mean_income=people["income"].average(dp.Laplace()),
    spending_quartiles=people["spending"].quantiles([0.25, 0.5, 0.75], dp.QuantileExponential()),
    visits_by_health=groups.average("visits", dp.Laplace()),
    health_by_age=people.crosstab("health", "age", dp.Laplace(), edges={"age": [0, 18, 45, 70]}),
    visits=people.solve(
        dp.AdaSSP(features=["age", "female", "chronic"], target="visits", weight=0.5)
    ),
).calibrate(epsilon=2.0, delta=1e-6)
