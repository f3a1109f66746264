"""Three statistics under one budget, a person protected."""

import adaptive_dp as dp

columns = {"visits": (0, 20), "health": ["excellent", "good", "fair", "poor"]}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
plan = dp.Pipeline(**people.describe()).calibrate(epsilon=1.0)
result = plan.run(people="people.csv")
print(result)
