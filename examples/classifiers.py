"""Private classifiers beside the one that is not, at several epsilons.

    python examples/classifiers.py

Which years were costly (more than 50 dollars) in the RAND Health Insurance Experiment, by logistic
regression on every other person's years. Each learner gets the same budget, nothing is tuned: at
epsilon 2 they lose next to nothing.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import adaptive_dp as dp
from adaptive_dp.demo import DATA

BOUNDS = {"age": (0, 70), "female": (0, 1), "chronic": (0, 60), "coinsurance": (0, 100)}
EPSILONS, DELTA = (0.5, 2.0, 8.0), 1e-6
LEARNERS = {
    "objective perturbation": dp.ObjectivePerturbation(list(BOUNDS), "costly"),
    "noisy gradient descent": dp.NoisyGradientDescent(list(BOUNDS), "costly"),
    "NoisySGD": dp.NoisySGD(list(BOUNDS), "costly", sampling_rate=0.1, learning_rate=2.0),
    "DP-FTRL": dp.DPFTRL(list(BOUNDS), "costly", epochs=4),
}


def scaled(data):
    """Return the features on [0, 1], a 1 in front."""
    columns = [(data[k] - low) / (high - low) for k, (low, high) in BOUNDS.items()]
    return np.column_stack([np.ones(len(data["costly"])), *columns])


def not_private(train):
    """Return the maximum likelihood coefficients of the scaled features."""
    x, y = scaled(train), np.where(train["costly"] == "yes", 1.0, -1.0)
    loss = lambda w: np.logaddexp(0, -y * (x @ w)).sum()  # noqa: E731
    slope = lambda w: -x.T @ (y * expit(-y * (x @ w)))  # noqa: E731
    return minimize(loss, np.zeros(x.shape[1]), jac=slope).x


def right(scores, data):
    """Return the share of years whose class a model's sign tells, as a cell of the table."""
    return f"{np.mean((scores > 0) == (data['costly'] == 'yes')):8.4f}"


years = np.genfromtxt(DATA, delimiter=",", names=True, usecols=["person", *BOUNDS, "spending"])
data = {name: years[name] for name in ["person", *BOUNDS]}
data["costly"] = np.where(years["spending"] > 50, "yes", "no")
odd = np.unique(years["person"], return_inverse=True)[1] % 2 == 1
train, test = ({name: column[half] for name, column in data.items()} for half in (odd, ~odd))
columns = {**BOUNDS, "costly": ["no", "yes"]}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
print(f"{'epsilon':24s}", *(f"{epsilon:8g}" for epsilon in EPSILONS))
print(f"{'always no':24s}", *[right(np.zeros(len(test["costly"])), test)] * len(EPSILONS))
print(f"{'not private':24s}", *[right(scaled(test) @ not_private(train), test)] * len(EPSILONS))
for name, learner in LEARNERS.items():
    cells = []
    for epsilon in EPSILONS:
        fit = people.solve(learner, epsilon=epsilon, delta=DELTA)
        model = dp.Pipeline(fit=fit).with_delta(DELTA).simulate(seed=1, people=train)["fit"]
        scores = model["intercept"] + sum(model[name] * test[name] for name in BOUNDS)
        cells.append(right(scores, test))
    print(f"{name:24s}", *cells)
