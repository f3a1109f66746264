"""NoisySGD on real data: a followed clipping norm beside fixed ones, and a person beside a row.

    python examples/noisy_sgd.py

Which years were costly (more than 50 dollars) in the RAND Health Insurance Experiment, whose people
took part for up to five years. The same learner and budget protect the person, or one year of a
person's: the second is the easier promise, and not what anybody is told.
"""

from __future__ import annotations

import csv
import gzip
from typing import Any

import numpy as np

import adaptive_dp as dp
from adaptive_dp.demo import DATA

NUMBERS = {
    "age": (0, 70),
    "female": (0, 1),
    "education": (0, 25),
    "family_size": (1, 12),
    "income": (0, 20_000),
    "chronic": (0, 60),
    "coinsurance": (0, 100),
}
HEALTH = ["excellent", "good", "fair", "poor"]
COLUMNS: dict[str, Any] = {**NUMBERS, "health": HEALTH, "costly": ["no", "yes"]}
FEATURES = [*NUMBERS, "health"]
EPSILON, DELTA = 1.0, 1e-6


def years() -> dict[str, Any]:
    """Return the person-years; whether one was costly is a function of its own row."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, Any] = {k: np.array([float(r[k] or 0) for r in rows]) for k in NUMBERS}
    found["person"] = [r["person"] for r in rows]
    found["health"] = [r["health"] for r in rows]
    found["costly"] = ["yes" if float(r["spending"]) > 50 else "no" for r in rows]
    return found


def accuracy(model: dict[str, float], data: dict[str, Any]) -> float:
    """Return the share of rows whose class the model's sign tells."""
    scores = model["intercept"] + sum(model[name] * data[name] for name in NUMBERS)
    scores = scores + np.array([model[f"health={value}"] for value in data["health"]])
    return float(np.mean((scores > 0) == (data["costly"] == "yes")))


def main() -> None:
    """Print accuracies, and the certificate of the one that protects people."""
    data = years()
    order = {person: i for i, person in enumerate(dict.fromkeys(data["person"]))}
    odd = np.array([order[person] % 2 for person in data["person"]])
    train, test = (
        {name: np.asarray(value)[odd == half] for name, value in data.items()} for half in (0, 1)
    )
    person = dp.dataset("years", columns=COLUMNS, unit="person", rows_per_unit=5)
    row = dp.dataset("years", columns=COLUMNS)
    options: dict[str, Any] = {"steps": 120, "sampling_rate": 0.1, "learning_rate": 4.0}
    norms: dict[str, dict[str, Any]] = {
        "norm 0.02": {"clip": 0.02},
        "norm 0.5": {"clip": 0.5},
        "norm follows the 90th percentile": {"clip": 0.02, "adaptive": dp.Clipping(quantile=0.9)},
    }
    share = float(np.mean(test["costly"] == "yes"))
    print(f"epsilon = {EPSILON:g}, delta = {DELTA:g}; always no: {1 - share:.3f}")
    for unit, table in (("a row", row), ("a person", person)):
        for name, norm in norms.items():
            learner = dp.NoisySGD(FEATURES, "costly", **norm, **options)
            model = table.solve(learner, epsilon=EPSILON, delta=DELTA)
            plan = dp.Pipeline(model=model).with_delta(DELTA)
            result = plan.simulate(seed=1, years=train)
            print(f"protecting {unit:8s}, {name:32s}: {accuracy(result['model'], test):.3f}")
    print(result.certificate)


if __name__ == "__main__":
    main()
