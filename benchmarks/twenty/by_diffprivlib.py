"""The twenty tasks by diffprivlib, of rows at a fifth of epsilon: five rows lose five times it."""

import numpy as np
import pandas as pd
from diffprivlib import tools
from diffprivlib.models import LinearRegression

people = pd.read_csv("people.csv").groupby("person").head(5).fillna(0)
for name, top in {"age": 70, "income": 20_000, "visits": 20, "spending": 2_000}.items():
    people[name] = people[name].clip(0, top)
codes = people["health"].map({"excellent": 0, "good": 1, "fair": 2, "poor": 3})
each = 1 / 5


def task_1():
    return tools.count_nonzero(np.ones(len(people)), epsilon=each)


def task_2():
    return tools.count_nonzero(np.ones(people["person"].nunique()), epsilon=1.0)


def task_3():
    rows = tools.count_nonzero(np.ones(len(people)), epsilon=each / 2)
    return tools.sum(people["visits"], bounds=(0, 20), epsilon=each / 2) / max(rows, 1)


def task_4():
    return tools.sum(people["spending"], bounds=(0, 2_000), epsilon=each)


def task_5():
    return tools.histogram(codes, bins=4, range=(0, 4), epsilon=each)[0]


def task_6():
    rows, _ = tools.histogram(codes, bins=4, range=(0, 4), epsilon=each / 2)
    sums = [
        tools.sum(people["visits"][codes == i], bounds=(0, 20), epsilon=each / 2) for i in range(4)
    ]
    return np.array(sums) / np.maximum(rows, 1)


def task_7():
    ranges = [(0, 4), (0.5, 5.5)]
    return tools.histogram2d(codes, people["year"], bins=[4, 5], range=ranges, epsilon=each)[0]


def task_9():
    return tools.median(people["age"], bounds=(0, 70), epsilon=each)


def task_10():
    orders = [0.25, 0.5, 0.75]
    return tools.quantile(people["income"], orders, bounds=(0, 20_000), epsilon=each)


def task_11():
    edges = [0, 50, 100, 200, 500, 1_000, 2_000]
    bars, _ = tools.histogram(people["spending"], bins=edges, range=(0, 2_000), epsilon=each)
    return np.concatenate([[0], np.cumsum(bars) / np.sum(bars)])


def task_12():
    return tools.std(people["visits"], bounds=(0, 20), epsilon=each)


def task_14():
    return tools.histogram(people["age"], bins=7, range=(0, 70), epsilon=each)[0]


def task_15():
    old = (people["female"] == 1) & (people["age"] >= 40) & (people["visits"] == 0)
    return tools.count_nonzero(old, epsilon=each)


def task_16():
    ratios = people["spending"] / (people["visits"] + 1)
    rows = tools.count_nonzero(np.ones(len(people)), epsilon=each / 2)
    return tools.sum(ratios, bounds=(0, 2_000), epsilon=each / 2) / max(rows, 1)


def task_19():
    bounds = {"bounds_X": ([0, 0, 0], [70, 20_000, 60]), "bounds_y": (0, 20)}
    fit = LinearRegression(epsilon=each, **bounds)
    fit.fit(people[["age", "income", "chronic"]].to_numpy(), people["visits"].to_numpy())
    return [fit.intercept_, *fit.coef_]
