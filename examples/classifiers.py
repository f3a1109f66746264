"""Private classifiers beside the one that is not, at several epsilons.

    python examples/classifiers.py

Logistic regression on 20,000 made-up people. Each learner gets the same budget, nothing is tuned.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import adaptive_dp as dp

BOUNDS = {"age": (18, 90), "income": (0, 150_000), "visits": (0, 20), "pulse": (40, 160)}
EPSILONS, DELTA = (0.1, 1.0, 4.0), 1e-5
LEARNERS = {
    "objective perturbation": dp.ObjectivePerturbation(list(BOUNDS), "ill"),
    "noisy gradient descent": dp.NoisyGradientDescent(list(BOUNDS), "ill"),
    "NoisySGD": dp.NoisySGD(list(BOUNDS), "ill", steps=200, sampling_rate=0.05, learning_rate=2.0),
    "DP-FTRL": dp.DPFTRL(list(BOUNDS), "ill", epochs=4),
}


def people(count, seed):
    """Return made-up people, some of whom are ill."""
    draw = np.random.default_rng(seed)
    age, income = draw.uniform(18, 90, count), draw.gamma(3, 15_000, count).clip(0, 150_000)
    visits, pulse = draw.poisson(3, count).clip(0, 20), draw.normal(80, 15, count).clip(40, 160)
    score = 0.08 * (age - 60) - (income - 40_000) / 40_000 + 0.4 * (visits - 3) + (pulse - 80) / 20
    ill = np.where(score + draw.logistic(size=count) > 0, "yes", "no")
    return {"age": age, "income": income, "visits": visits, "pulse": pulse, "ill": ill}


def scaled(data):
    """Return the features on [0, 1], a 1 in front."""
    columns = [(data[k] - low) / (high - low) for k, (low, high) in BOUNDS.items()]
    return np.column_stack([np.ones(len(data["ill"])), *columns])


def not_private(train):
    """Return the maximum likelihood coefficients of the scaled features."""
    x, y = scaled(train), np.where(train["ill"] == "yes", 1.0, -1.0)
    loss = lambda w: np.logaddexp(0, -y * (x @ w)).sum()  # noqa: E731
    slope = lambda w: -x.T @ (y * expit(-y * (x @ w)))  # noqa: E731
    return minimize(loss, np.zeros(x.shape[1]), jac=slope).x


def right(scores, data):
    """Return the share of people whose class a model's sign tells, as a cell of the table."""
    return f"{np.mean((scores > 0) == (data['ill'] == 'yes')):8.4f}"


train, test = people(20_000, seed=0), people(20_000, seed=1)
table = dp.dataset("people", columns={**BOUNDS, "ill": ["no", "yes"]})
print(f"{'epsilon':24s}", *(f"{epsilon:8g}" for epsilon in EPSILONS))
print(f"{'not private':24s}", *[right(scaled(test) @ not_private(train), test)] * len(EPSILONS))
for name, learner in LEARNERS.items():
    cells = []
    for epsilon in EPSILONS:
        fit = table.solve(learner, epsilon=epsilon, delta=DELTA)
        model = dp.Pipeline(fit=fit).with_delta(DELTA).simulate(seed=1, people=train)["fit"]
        scores = model["intercept"] + sum(model[name] * test[name] for name in BOUNDS)
        cells.append(right(scores, test))
    print(f"{name:24s}", *cells)
