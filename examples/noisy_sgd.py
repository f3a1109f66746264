"""NoisySGD on real data: an adaptive clipping norm beside fixed ones, and a person beside a row.

    python examples/noisy_sgd.py

Which years were costly (more than 50 dollars) in the RAND Health Insurance Experiment, whose people
took part for up to five years. The same learner and budget protect the person, or one year of a
person's: the second is a weaker promise.
"""

import csv
import gzip

import numpy as np

import adaptive_dp as dp
from adaptive_dp.demo import DATA

BOUNDS = {
    "age": (0, 70),
    "female": (0, 1),
    "education": (0, 25),
    "family_size": (1, 12),
    "income": (0, 20_000),
    "chronic": (0, 60),
    "coinsurance": (0, 100),
}
HEALTH = ["excellent", "good", "fair", "poor"]
COLUMNS = {**BOUNDS, "health": HEALTH, "costly": ["no", "yes"]}
NORMS = {
    "norm 0.02": {"clip": 0.02},
    "norm 0.5": {"clip": 0.5},
    "norm follows the 90th percentile": {"clip": 0.02, "adaptive": dp.Clipping(quantile=0.9)},
}
EPSILON, DELTA = 1.0, 1e-6


def years():
    """Return the person-years of every other person, to learn from, and of the rest."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    order = {person: i for i, person in enumerate(dict.fromkeys(row["person"] for row in rows))}
    for half in (0, 1):
        some = [row for row in rows if order[row["person"]] % 2 == half]
        found = {name: np.array([float(row[name] or 0) for row in some]) for name in BOUNDS}
        found |= {name: np.array([row[name] for row in some]) for name in ("person", "health")}
        found["costly"] = np.where([float(row["spending"]) > 50 for row in some], "yes", "no")
        yield found


def accuracy(model, data):
    """Return the share of rows whose class the model's sign tells."""
    scores = model["intercept"] + sum(model[name] * data[name] for name in BOUNDS)
    scores = scores + np.array([model[f"health={value}"] for value in data["health"]])
    return np.mean((scores > 0) == (data["costly"] == "yes"))


train, test = years()
units = {
    "a row": dp.dataset("years", columns=COLUMNS),
    "a person": dp.dataset("years", columns=COLUMNS, unit="person", rows_per_unit=5),
}
always = np.mean(test["costly"] == "no")
print(f"accuracy at epsilon = {EPSILON:g}, delta = {DELTA:g}; always no: {always:.3f}\n")
for unit, table in units.items():
    for name, norm in NORMS.items():
        features = [*BOUNDS, "health"]
        learner = dp.NoisySGD(
            features, "costly", steps=120, sampling_rate=0.1, learning_rate=4.0, **norm
        )
        model = table.solve(learner, epsilon=EPSILON, delta=DELTA)
        result = dp.Pipeline(model=model).with_delta(DELTA).simulate(seed=1, years=train)
        print(f"protecting {unit:8s}  {name:32s}  {accuracy(result['model'], test):.3f}")
print(f"\n{result.certificate}")
