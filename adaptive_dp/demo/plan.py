"""The demo's plan: five questions to the RAND Health Insurance Experiment under one budget.

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


def ratio(total: float, count: float) -> float:
    """Return the mean from a released sum and a released count."""
    return total / max(count, 1.0)


def noise(bound: float) -> dp.Laplace:
    """Return Laplace noise in proportion to what one row can contribute."""
    return dp.Laplace(scale=dp.Free("b", weight=bound))


person_years = people.count().release(noise(1))
income = people["income"].sum().release(noise(20_000), name="total_income")
spending = people["spending"].sum().release(noise(2_000), name="total_spending")
by_health = {
    health: part.count().release(noise(1))
    for health, part in people.partition("health", whole_units=True)
}
visits = people.solve(
    dp.AdaSSP(
        features=["age", "female", "education", "family_size", "income", "chronic", "coinsurance"],
        target="visits",
        weight=0.5,
    )
)

plan = dp.Pipeline(
    person_years=person_years,
    by_health=by_health,
    mean_income=dp.post(ratio, income, person_years),
    mean_spending=dp.post(ratio, spending, person_years),
    visits=visits,
).calibrate(epsilon=2.0, delta=1e-6)
