"""Ten notebooks over other libraries: mistakes are marked in their lines, ``# mistake: kind``.

Each is a list of cells, as a data scientist would write them; those whose name begins with
``right`` have no mistake. `marks` reads the marks, `notebook` makes the ``.ipynb`` document.
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import re
from typing import Any

SURVEY = [
    """
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
from diffprivlib import tools
from diffprivlib.accountant import BudgetAccountant
""",
    """
df = pd.read_csv("people.csv")
df.head()  # mistake: raw
""",
    "df.columns.tolist()",
    """
# distribution of ages
df["age"].hist(bins=20)  # mistake: plot
plt.title("ages")
plt.show()
""",
    """
accountant = BudgetAccountant(epsilon=1.0, delta=0.0)
low, high = df["age"].min(), df["age"].max()
mean_age = tools.mean(df["age"], epsilon=0.25, bounds=(low, high), accountant=accountant)  # mistake: bounds
print(f"mean age: {mean_age:.2f}")
""",
    """
print("true mean for comparison:", df["age"].mean())  # mistake: mean
""",
    """
top = df[df["income"] > df["income"].quantile(0.9)]
share = tools.mean(top["age"], epsilon=0.25, bounds=(18, 90), accountant=accountant)  # mistake: filter
share
""",
    """
accountant = BudgetAccountant(epsilon=1.0, delta=0.0)  # mistake: budget
income = tools.mean(df["income"].clip(0, 200_000), epsilon=1.0, bounds=(0, 200_000),
                    accountant=accountant)
print("income", round(income), "left", accountant.remaining())
""",
]
"""A survey: everything that can go wrong in a morning."""

CLINIC = [
    """
%matplotlib inline
import logging
import pandas as pd
import diffprivlib as dpl
from matplotlib import pyplot as plt

log = logging.getLogger("clinic")
WARDS = ["N", "S"]
""",
    """
patients = pd.read_csv("people.csv")
patients = patients.dropna()
n = len(patients)
log.warning("loaded %d rows", n)  # mistake: mean
""",
    """
counts = {}
count = dpl.mechanisms.Geometric(epsilon=0.5, sensitivity=1)
for ward in WARDS:
    counts[ward] = count.randomise(int((patients["region"] == ward).sum()))
counts
""",
    """
fig, ax = plt.subplots()
ax.bar(list(counts), list(counts.values()))
fig.savefig("counts.png")
""",
    """
summary = {}
for ward, group in patients.groupby("region"):
    if len(group) >= 10:
        summary[ward] = dpl.tools.mean(group["age"], epsilon=0.5, bounds=(0, 100))  # mistake: filter
""",
    """
ages = patients["age"].tolist()
over = 0
for age in ages:
    if age > 65:
        over += 1
rate = over / n
print("over 65:", rate)  # mistake: mean
""",
    """
z = (patients["income"] - patients["income"].mean()) / patients["income"].std()
dpl.tools.var(z.clip(-3, 3), epsilon=0.5, bounds=(-3, 3))  # mistake: bounds
""",
    """
patients.describe().to_csv("summary.csv")  # mistake: mean
""",
    """
def show(frame, what):
    fig, ax = plt.subplots()
    ax.scatter(frame["age"], frame[what])  # mistake: plot
    return fig

show(patients, "income").savefig("scatter.png")
""",
]
"""A clinic: loops, functions, logging."""

SHOP = [
    """
import json
import polars as pl
import numpy as np
from diffprivlib import tools, models
""",
    """
orders = pl.read_csv("people.csv")
print(orders.schema)
print(orders.shape)  # mistake: mean
""",
    """
by_region = orders.group_by("region").agg(pl.col("income").mean())
by_region  # mistake: mean
""",
    """
spend = orders["income"].to_numpy().astype(float)
b = (0.0, float(np.percentile(spend, 99)))
clipped = np.clip(spend, *b)
total = tools.sum(clipped, epsilon=0.3, bounds=b)  # mistake: bounds
print(total)
""",
    """
histogram, edges = tools.histogram(spend, epsilon=0.3, bins=10)  # mistake: bounds
histogram
""",
    """
noisy = spend.mean() + np.random.laplace(0, 200_000 / (0.5 * len(spend)))
print("mean", noisy)  # mistake: noise
""",
    """
X = orders.select("age").to_numpy()
y = (orders["income"] > 100_000).to_numpy().astype(int)
clf = models.GaussianNB(epsilon=0.5, bounds=(18, 90))
clf.fit(X, y)
print("accuracy:", clf.score(X, y))  # mistake: mean
""",
    """
record = orders.row(0)
with open("out.json", "w") as file:
    json.dump({"first": record}, file)  # mistake: raw
""",
    """
oldest = orders.sort("age", descending=True).head(3)
for row in oldest.iter_rows(named=True):
    print(row["age"])  # mistake: raw
""",
]
"""A shop: polars, a classifier, files."""

OWN = [
    """
import pandas as pd
import adaptive_dp as dp
""",
    """
frame = pd.read_csv("people.csv")
people = dp.dataset("people", columns={"age": (18, 90), "income": (0, frame["income"].max())})  # mistake: bounds
""",
    """
plan = dp.Pipeline(
    n=people.count().release(dp.Laplace(scale=2)),
    age=people["age"].sum().release(dp.Laplace(scale=180)),
)
result = plan.run(people=frame)
print(result["n"])
""",
    """
first = dp.Session(people=frame, budget=dp.Budget(1.0))
n = first.run(people.count().release(dp.Laplace(scale=2)))
""",
    """
second = dp.Session(people=frame, budget=dp.Budget(1.0))  # mistake: budget
m = second.run(people["age"].sum().release(dp.Laplace(scale=180)))
print(m / max(n, 1))
""",
    """
print("error:", abs(m / n - frame["age"].mean()))  # mistake: mean
""",
]
"""This library itself, with mistakes around it."""

RIGHT_SURVEY = [
    """
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
from diffprivlib import tools
from diffprivlib.accountant import BudgetAccountant

BOUNDS = {"age": (18, 90), "income": (0, 200_000)}
accountant = BudgetAccountant(epsilon=2.0, delta=0.0)
""",
    """
df = pd.read_csv("people.csv")
print("columns:", list(df.columns), df.dtypes.to_dict())
""",
    """
released = {}
for column, bounds in BOUNDS.items():
    clipped = df[column].clip(*bounds)
    released[column] = tools.mean(clipped, epsilon=0.5, bounds=bounds, accountant=accountant)
    print(column, round(released[column], 1))
""",
    """
counts, edges = tools.histogram(df["age"], epsilon=0.5, bins=8, range=(18, 90),
                                accountant=accountant)
plt.bar(edges[:-1], counts, width=np.diff(edges), align="edge")
plt.title(f"ages, {counts.sum():.0f} people")
plt.savefig("ages.png")
""",
    """
pd.DataFrame({"low": edges[:-1], "count": counts}).to_csv("ages.csv", index=False)
accountant.total()
""",
    """
if counts.sum() > 100:
    old = tools.mean(df[df["age"] > 65]["income"].clip(0, 200_000), epsilon=0.5,
                     bounds=(0, 200_000), accountant=accountant)
    print("income over 65:", old)
""",
]
"""The survey as it should be."""

RIGHT_CLINIC = [
    """
import math
import pandas as pd
from diffprivlib.mechanisms import Laplace, Binary, Exponential
""",
    """
def noisy_count(series, epsilon):
    mechanism = Laplace(epsilon=epsilon, sensitivity=1)
    return max(0.0, mechanism.randomise(int(series.sum())))

patients = pd.read_csv("people.csv", usecols=["age", "region", "answer"])
REGIONS = ["N", "S"]
""",
    """
by_region = {r: noisy_count(patients["region"] == r, 0.5) for r in REGIONS}
total = sum(by_region.values())
rows = [(r, c, 100 * c / total) for r, c in by_region.items()]
for r, c, p in rows:
    print(f"{r}: {c:8.1f} {p:5.1f}%")
""",
    """
# randomized response: each answer by itself
respond = Binary(epsilon=1.0, value0="0", value1="1")
answers = [int(respond.randomise(str(a))) for a in patients["answer"]]
share = sum(answers) / len(answers)
e = math.exp(1.0)
print("yes:", (share * (e + 1) - 1) / (e - 1))
""",
    """
largest = max(by_region, key=by_region.get)
print("largest region:", largest, "of", len(by_region))
""",
]
"""Counts by known keys, randomized response, helper functions."""

RIGHT_SHOP = [
    """
import polars as pl
import numpy as np
from diffprivlib import models, tools
orders = pl.read_csv("people.csv")
""",
    """
X = orders.select(["age", "income"]).to_numpy().astype(float)
y = orders["answer"].to_numpy()
X = np.clip(X, [18, 0], [90, 200_000])
""",
    """
scores = []
for epsilon in (0.5, 1.0):
    model = models.GaussianNB(epsilon=epsilon, bounds=([18, 0], [90, 200_000]))
    model.fit(X, y)
    scores.append((epsilon, model.class_prior_.tolist()))
scores
""",
    """
grid = np.array([[20.0, 10_000.0], [50.0, 100_000.0], [80.0, 50_000.0]])
print(model.predict(grid))
""",
    """
medians = {
    name: tools.median(orders[name].to_numpy(), epsilon=0.25, bounds=bounds)
    for name, bounds in [("age", (18, 90)), ("income", (0, 200_000))]
}
print(medians)
""",
]
"""A classifier and medians in polars, used on public points alone."""

RIGHT_OWN = [
    """
import pandas as pd
import adaptive_dp as dp
people = dp.dataset("people", columns={"age": (18, 90), "region": ["N", "S"]})
""",
    """
plan = dp.Pipeline(
    n=people.count().release(dp.Laplace(scale=2)),
    by_region={k: p.count().release(dp.Laplace(scale=4)) for k, p in people.partition("region")},
)
print(plan.certify())
""",
    """
frame = pd.read_csv("people.csv")
result = plan.run(people=frame)
print(result)
""",
    """
with dp.Session(people=frame, budget=dp.Budget(1.0)) as session:
    n = session.run(people.count().release(dp.Laplace(scale=4)))
    if n > 100:
        total = session.run(people["age"].sum().release(dp.Laplace(scale=360)))
        print("mean age", total / n)
    print(session.epsilon)
""",
]
"""Plans and a session of this library."""

RIGHT_MEMORY = [
    """
import numpy as np
import pandas as pd
from diffprivlib import tools
rng = np.random.default_rng(3)
""",
    """
# simulated people stand in for real ones
age = rng.integers(18, 90, size=400)
income = np.clip(age * 1000 + rng.normal(0, 5000, size=400), 0, 200_000)
df = pd.DataFrame({"age": age, "income": income})
public = pd.DataFrame({"low": [0, 30, 60], "high": [30, 60, 90], "name": ["a", "b", "c"]})
print(public.describe())
""",
    """
table = []
for _, row in public.iterrows():
    part = df[(df["age"] >= row["low"]) & (df["age"] < row["high"])]
    table.append((row["name"], tools.sum(part["income"], epsilon=0.2, bounds=(0, 200_000))))
pd.DataFrame(table, columns=["name", "income"])
""",
    """
weights = np.array([0.2, 0.3, 0.5])
print("weighted", float(weights @ np.array([value for _, value in table])))
""",
]
"""Data made in memory become private when a mechanism reads them; a public table stays public."""

LOOPS = [
    """
import sys
import pandas as pd
from diffprivlib import tools
from diffprivlib.mechanisms import Laplace
data = pd.read_csv("people.csv")
""",
    """
class Report:
    def __init__(self, frame):
        self.frame = frame
        self.lines = []

    def add(self, name, value):
        self.lines.append(f"{name}: {value}")

    def write(self, stream):
        for line in self.lines:
            stream.write(line)

report = Report(data)
report.add("mean age", tools.mean(report.frame["age"], epsilon=0.5, bounds=(18, 90)))
report.write(sys.stdout)
""",
    """
for region in data["region"].unique():
    part = data[data["region"] == region]
    print(tools.mean(part["age"], epsilon=0.5, bounds=(18, 90)))  # mistake: filter
""",
    """
epsilon = 0.1
noisy = Laplace(epsilon=epsilon, sensitivity=1).randomise(len(data))
more = 0.5 if noisy > 300 else 0.1
print(tools.mean(data["income"], epsilon=more, bounds=(0, 200_000)))  # mistake: filter
""",
    """
worst = max(data["income"].tolist())
scale = worst / 2
mechanism = Laplace(epsilon=0.5, sensitivity=worst)  # mistake: bounds
print(mechanism.randomise(float(data["income"].sum())))
""",
    """
old = [a for a in data["age"] if a > 80]
print(len(old))  # mistake: mean
text = "largest: " + str(max(old))
print(text)  # mistake: mean
""",
    """
try:
    if data["income"].mean() > 50_000:
        print("rich")  # mistake: filter
finally:
    print("done")
""",
]
"""Loops, classes, branches, texts."""

NOTEBOOKS: dict[str, list[str]] = {
    "clinic": CLINIC,
    "loops": LOOPS,
    "own": OWN,
    "right_clinic": RIGHT_CLINIC,
    "right_memory": RIGHT_MEMORY,
    "right_own": RIGHT_OWN,
    "right_shop": RIGHT_SHOP,
    "right_survey": RIGHT_SURVEY,
    "shop": SHOP,
    "survey": SURVEY,
}


def cells(name: str) -> list[str]:
    return [each.strip("\n") for each in NOTEBOOKS[name]]


def marked(sources: list[str]) -> set[tuple[int, int, str]]:
    """The cell, the line and the kind of every mistake that is marked in these cells."""
    return {
        (number, line, kind)
        for number, cell in enumerate(sources, 1)
        for line, text in enumerate(cell.splitlines(), 1)
        for kind in re.findall(r"# mistake: (\w+)", text)
    }


def marks(name: str) -> set[tuple[int, int, str]]:
    """The planted mistakes of a notebook."""
    return marked(cells(name))


def notebook(sources: list[str]) -> str:
    """A notebook of format 4 with these cells, a text before each."""
    made: list[dict[str, Any]] = []
    for source in sources:
        made.append({"cell_type": "markdown", "metadata": {}, "source": ["A text."]})
        code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        made.append({**code, "source": source.splitlines(keepends=True)})
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
