"""Ex-post losses: what each person lost by the released theta of a logistic regression.

Redberg and Wang 2021: an ex-post loss is that of one outcome. It is a function of the private
data; those of the RAND Health Insurance Experiment are public and may be shown. Whether a person's
first year was costly (more than 50 dollars) is predicted from five facts.

Run it: ``python examples/ex_post.py``
"""

import math

import numpy as np
from scipy import optimize, special

from adaptive_dp.demo import DATA
from adaptive_dp.instance import objective_losses

RIDGE, SIGMA = 1.0, 5.0
BOUNDS = {"age": 70, "female": 1, "income": 20_000, "chronic": 60, "coinsurance": 100}

years = np.genfromtxt(DATA, delimiter=",", names=True, usecols=["person", "spending", *BOUNDS])
years = years[np.unique(years["person"], return_index=True)[1]]
x = np.column_stack([years[name] / high for name, high in BOUNDS.items()]).clip(0, 1)
x = np.insert(x, 0, 1, axis=1) / math.sqrt(1 + len(BOUNDS))  # of norm at most 1
y = np.where(years["spending"] > 50, 1.0, -1.0)
noise = np.random.default_rng(22).normal(size=x.shape[1]) * SIGMA


def gradient(w):
    """Return the gradient of the perturbed objective."""
    return -x.T @ (y * special.expit(-y * (x @ w))) + RIDGE * w + noise


theta = optimize.fsolve(gradient, np.zeros(x.shape[1]), xtol=1e-12)
found = objective_losses(x, y, theta, ridge=RIDGE, sigma=SIGMA)
# what any record of norm 1 could lose at this noise, by the ridge alone
worst = 1 / (2 * SIGMA**2) + np.linalg.norm(noise) / SIGMA**2 - math.log(1 - 0.25 / RIDGE)
print(f"released: theta = {theta.round(3)}; what each record lost by it: {found}")
shown = found.reveal()
print(f"ex-post epsilon, of the median record      {np.median(shown):7.4f}")
print(f"                 of the one that lost most {shown.max():7.4f}")
print(f"                 of any, at this outcome   {worst:7.4f}")
