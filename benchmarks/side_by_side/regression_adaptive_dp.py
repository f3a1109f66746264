"""A ridge regression of visits, a person protected."""

import adaptive_dp as dp

columns = {"age": (0, 70), "income": (0, 20_000), "chronic": (0, 60), "visits": (0, 20)}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
model = people.solve(dp.AdaSSP(features=["age", "income", "chronic"], target="visits"))
plan = dp.Pipeline(model=model).calibrate(epsilon=1.0, delta=1e-6)
result = plan.run(people="people.csv")
print(result, plan.certify())
