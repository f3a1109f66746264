"""What each person lost by the theta that was released: logistic regression, perturbed objective.

Redberg and Wang 2021: an ex-post loss is that of one outcome. It is a function of the private
data; made-up data may be shown.

Run it: ``python examples/ex_post.py``
"""

import math

import numpy as np
from scipy import optimize, special

from adaptive_dp.instance import objective_losses

N, D, RIDGE, SIGMA = 1000, 2, 1.0, 5.0


def made_up():
    """Return records, labels, and the noise that perturbs the objective."""
    rng = np.random.default_rng(22)
    x = rng.normal(size=(N, D))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    y = np.sign(x @ np.array([3.0, -2.0]) + 0.3 * rng.normal(size=N))
    return x, y, rng.normal(size=D) * SIGMA


def minimizer(x, y, noise):
    """Return where the perturbed objective's gradient is 0."""
    gradient = lambda w: -x.T @ (y * special.expit(-y * (x @ w))) + RIDGE * w + noise  # noqa: E731
    return optimize.fsolve(gradient, np.zeros(D), xtol=1e-12)


def worst(noise):
    """Return what any record of norm 1 could lose at this noise, by the ridge alone."""
    shift = 1 / (2 * SIGMA**2) + np.linalg.norm(noise) / SIGMA**2
    return -math.log(1 - 0.25 / RIDGE) + shift


x, y, noise = made_up()
theta = minimizer(x, y, noise)
found = objective_losses(x, y, theta, ridge=RIDGE, sigma=SIGMA)
print(f"released: theta = {theta.round(3)}; what each record lost by it: {found}")
shown = found.reveal()  # they are made up
print(f"ex-post epsilon, of the median record      {np.median(shown):7.4f}")
print(f"                 of the one that lost most {shown.max():7.4f}")
print(f"                 of any, at this outcome   {worst(noise):7.4f}")
