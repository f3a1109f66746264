"""Three statistics under one budget, a person protected."""

import adaptive_dp as dp

people = dp.dataset(
    "people",
    columns={"visits": (0, 20), "health": ["excellent", "good", "fair", "poor"]},
    unit="person",
    rows_per_unit=5,
)
rows = people.count().release(dp.Laplace())
visits = people["visits"].average(dp.Laplace(), count=rows)
health = people["health"].histogram().release(dp.Laplace())
plan = dp.Pipeline(rows=rows, visits=visits, health=health).calibrate(epsilon=1.0)
result = plan.run(people="people.csv")
print(result)
