"""Bisection for the median age, until a person's budget is spent."""

from contextlib import suppress

import adaptive_dp as dp

ages = dp.dataset("people", columns={"age": (0, 70)}, unit="person", rows_per_unit=5)["age"]
low, high, answers = 0.0, 70.0, 0
with suppress(dp.BudgetError), dp.Session(budget=dp.Budget(1.0, 1e-6), people="people.csv") as ask:
    while True:
        middle = (low + high) / 2
        below, above = ask.run(ages.histogram([0, middle, 70]).release(dp.Gaussian(sigma=75)))
        low, high = (low, middle) if below > above else (middle, high)
        answers += 1
print(answers, (low + high) / 2, ask.certificate())
