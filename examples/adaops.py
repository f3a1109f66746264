"""Ridge regression whose noise follows the data: AdaOPS beside AdaSSP and three other learners.

    python examples/adaops.py

Who sees a physician how often, in the RAND Health Insurance Experiment: one year of each person's.
Every learner has the same budget; AdaOPS first releases, and pays for, the facts about the data
that it uses. With 5,912 people that costs too much at epsilon 1, where AdaSSP is more accurate.
"""

import numpy as np

import adaptive_dp as dp
from adaptive_dp.demo import DATA

FEATURES = ["age", "female", "chronic", "coinsurance"]
BOUNDS = {"age": (0, 70), "female": (0, 1), "chronic": (0, 60), "coinsurance": (0, 100)}
EPSILONS, DELTA = (1.0, 4.0, 16.0), 1e-6
LEARNERS = {
    "AdaOPS": dp.AdaOPS(FEATURES, "visits"),
    "AdaSSP": dp.AdaSSP(FEATURES, "visits"),
    "OPS": dp.OPS(FEATURES, "visits"),
    "adaptive perturbation": dp.AdaptiveOutputPerturbation(FEATURES, "visits"),
    "output perturbation": dp.OutputPerturbation(FEATURES, "visits", ridge=300.0),
}
columns = {**BOUNDS, "visits": (0, 20)}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=1)
years = np.genfromtxt(DATA, delimiter=",", names=True, usecols=["person", *columns])
data = {name: years[name] for name in years.dtype.names}
rows = np.column_stack([np.ones(len(years)), *(data[name] for name in FEATURES)])
visits = data["visits"].clip(0, 20)


def explained(coefficients):
    """Return the share of the variance that a fit explains, as a cell of the table."""
    return f"{1 - np.mean((visits - rows @ coefficients) ** 2) / np.var(visits):8.3f}"


def fitted(learner, epsilon, seed=1):
    """Return a learner's coefficients, and the plan that released them."""
    fit = people.solve(learner, epsilon=epsilon, delta=DELTA)
    plan = dp.Pipeline(fit=fit).with_delta(DELTA)
    return np.array([*plan.simulate(seed=seed, people=data)["fit"].values()]), plan


print("share of the variance that is explained, of five fits the median one")
print(f"{'epsilon':22s}", *(f"{epsilon:8g}" for epsilon in EPSILONS))
print(f"{'not private':22s}", *[explained(np.linalg.lstsq(rows, visits, rcond=None)[0])] * 3)
for name, learner in LEARNERS.items():
    cells = []
    for epsilon in EPSILONS:
        fits = [explained(fitted(learner, epsilon, seed)[0]) for seed in range(5)]
        cells.append(sorted(fits, key=float)[2])
    print(f"{name:22s}", *cells)

print("\nAdaOPS at a proposed temperature: a private test says whether the data allow it, or NaN")
for gamma in (1.0, 1_000.0):
    proposed = dp.AdaOPS(FEATURES, "visits", ridge=50.0, gamma=gamma)
    print(f"{f'gamma = {gamma:g}':22s}", *(explained(fitted(proposed, e)[0]) for e in EPSILONS))

print("\nwhat AdaOPS releases and pays for:")
print(fitted(LEARNERS["AdaOPS"], 1.0)[1].certify())
