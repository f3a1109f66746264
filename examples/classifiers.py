"""Private classifiers beside the one that is not, at several epsilons.

    python examples/classifiers.py
    python examples/classifiers.py --plot classifiers.png

Logistic regression on 20,000 made-up people. Each learner gets the same budget and nothing is
tuned. With ``--plot`` (and matplotlib) the table is drawn too.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.optimize import minimize

import adaptive_dp as dp

BOUNDS = {"age": (18, 90), "income": (0, 150_000), "visits": (0, 20), "pulse": (40, 160)}
FEATURES = list(BOUNDS)
EPSILONS = (0.1, 1.0, 4.0)
DELTA = 1e-5
LEARNERS = {
    "objective perturbation": dp.ObjectivePerturbation(FEATURES, "ill"),
    "noisy gradient descent": dp.NoisyGradientDescent(FEATURES, "ill"),
    "NoisySGD": dp.NoisySGD(FEATURES, "ill", steps=200, sampling_rate=0.05, learning_rate=2.0),
    "DP-FTRL": dp.DPFTRL(FEATURES, "ill", epochs=4),
}


def people(count: int, seed: int) -> dict[str, Any]:
    """Return made-up people, some of whom are ill."""
    draw = np.random.default_rng(seed)
    age, income = draw.uniform(18, 90, count), draw.gamma(3, 15_000, count).clip(0, 150_000)
    visits, pulse = draw.poisson(3, count).clip(0, 20), draw.normal(80, 15, count).clip(40, 160)
    score = 0.08 * (age - 60) - (income - 40_000) / 40_000 + 0.4 * (visits - 3) + (pulse - 80) / 20
    ill = score + draw.logistic(size=count) > 0
    values = dict(zip(FEATURES, (age, income, visits, pulse), strict=True))
    return {**values, "ill": np.where(ill, "yes", "no")}


def scaled(data: dict[str, Any]) -> Any:
    """Return the features on [0, 1], a 1 in front."""
    columns = [(data[k] - low) / (high - low) for k, (low, high) in BOUNDS.items()]
    return np.column_stack([np.ones(len(data["ill"])), *columns])


def not_private(train: dict[str, Any], test: dict[str, Any]) -> float:
    """Return the accuracy of the maximum likelihood fit."""
    x, y = scaled(train), np.where(train["ill"] == "yes", 1.0, -1.0)

    def loss(w: Any) -> tuple[float, Any]:
        margin = y * (x @ w)
        return np.logaddexp(0, -margin).sum(), -x.T @ (y / (1 + np.exp(margin)))

    w = minimize(loss, np.zeros(x.shape[1]), jac=True).x
    return float(np.mean((scaled(test) @ w > 0) == (test["ill"] == "yes")))


def accuracy(model: dict[str, float], test: dict[str, Any]) -> float:
    """Return the share of people whose class the model's sign tells."""
    scores = model["intercept"] + sum(model[name] * test[name] for name in FEATURES)
    return float(np.mean((scores > 0) == (test["ill"] == "yes")))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", metavar="FILE", help="draw the table into this file")
    options = parser.parse_args()
    train, test = people(20_000, 0), people(20_000, 1)
    table = dp.dataset("people", columns={**BOUNDS, "ill": ["no", "yes"]})
    print(f"{'epsilon':24s}", *(f"{epsilon:8g}" for epsilon in EPSILONS))
    found = {"not private": [not_private(train, test)] * len(EPSILONS)}
    for name, learner in LEARNERS.items():
        found[name] = []
        for epsilon in EPSILONS:
            model = table.solve(learner, epsilon=epsilon, delta=DELTA)
            plan = dp.Pipeline(model=model).with_delta(DELTA)
            result = plan.simulate(seed=1, people=train)
            found[name].append(accuracy(result["model"], test))
    for name, row in found.items():
        print(f"{name:24s}", *(f"{value:8.4f}" for value in row))
    if options.plot:
        plot(found, options.plot)


def plot(found: dict[str, list[float]], file: str) -> None:
    """Draw accuracies by epsilon."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, row in found.items():
        axes.plot(EPSILONS, row, "--" if name == "not private" else "o-", label=name)
    axes.set(xscale="log", xlabel="epsilon", ylabel="accuracy on people not learned from")
    axes.legend()
    figure.savefig(file, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()
