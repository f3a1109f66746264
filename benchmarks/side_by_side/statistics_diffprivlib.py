"""Three statistics under one budget by diffprivlib: a person is five rows, truncated by hand."""

import pandas as pd
from diffprivlib import BudgetAccountant, tools

people = pd.read_csv("people.csv").groupby("person").head(5).fillna(0)
codes = people["health"].map({"excellent": 0, "good": 1, "fair": 2, "poor": 3}).dropna()
budget = BudgetAccountant(epsilon=1 / 5)  # of a row: five rows lose five times as much
each = {"epsilon": 1 / 15, "accountant": budget}
(rows,), _ = tools.histogram(people["visits"] * 0, bins=1, range=(0, 1), **each)
visits = tools.sum(people["visits"], bounds=(0, 20), **each) / max(rows, 1)
health, _ = tools.histogram(codes, bins=4, range=(0, 4), **each)
print(rows, visits, health)
