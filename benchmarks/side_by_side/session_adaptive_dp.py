"""Bisection for the median age, until a person's budget is spent."""

import adaptive_dp as dp

people = dp.dataset("people", columns={"age": (0, 70)}, unit="person", rows_per_unit=5)
budget = dp.Budget(epsilon=1.0, delta=1e-6)
low, high, asked = 0.0, 70.0, 0
with dp.Session(budget=budget, accountant="gaussian", people="people.csv") as session:
    try:
        while True:
            middle = (low + high) / 2
            sides = people["age"].histogram(edges=[0, middle, 70])
            below, above = session.run(sides.release(dp.Gaussian(sigma=75)))
            low, high = (low, middle) if below > above else (middle, high)
            asked += 1
    except dp.BudgetError as refusal:
        print(refusal)
print(asked, (low + high) / 2, session.certificate())
