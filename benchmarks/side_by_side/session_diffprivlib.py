"""Bisection for the median age by diffprivlib: a person is five rows, truncated by hand."""

import pandas as pd
from diffprivlib import BudgetAccountant, tools
from diffprivlib.utils import BudgetError

ages = pd.read_csv("people.csv").groupby("person").head(5)["age"].fillna(0).clip(0, 70)
budget = BudgetAccountant(epsilon=1 / 5)  # of a row: five rows lose five times as much
each = {"epsilon": 0.02, "range": (0, 70), "accountant": budget}
low, high, answers = 0.0, 70.0, 0
try:
    while True:
        middle = (low + high) / 2
        (below, above), _ = tools.histogram(ages, bins=[0, middle, 70], **each)
        low, high = (low, middle) if below > above else (middle, high)
        answers += 1
except BudgetError as refusal:
    print(refusal)
print(answers, (low + high) / 2, budget.total())
