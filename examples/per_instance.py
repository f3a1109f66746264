"""What each person loses: most of them far less than the worst case says.

Wang 2019, Fig. 1: a ridge regression with output perturbation. The picture of the losses is as
private as the data; made-up data may be shown.
"""

import numpy as np

import adaptive_dp as dp
from adaptive_dp.instance import (
    RidgeBounds,
    gaussian_epsilons,
    output_epsilons,
    per_instance,
    worst_output_mu,
)

RIDGE, SIGMA, DELTA = 1.0, 4.0, 1e-6


def made_up(n, d=10):
    """Return records and labels, all of norm at most 1."""
    rng = np.random.default_rng(21)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    theta = rng.normal(size=d)
    y = np.clip(x @ theta / np.linalg.norm(theta) + 0.1 * rng.normal(size=n), -1, 1)
    return x, y


def losses(n):
    """Return each record's epsilon, the worst beside this data set, and that of all data sets."""
    x, y = made_up(n)
    private = output_epsilons(x, y, ridge=RIDGE, sigma=SIGMA, delta=DELTA)
    h = x.T @ x + RIDGE * np.eye(x.shape[1])
    theta = np.linalg.solve(h, x.T @ y)

    def worst(curvature, residual):
        bounds = RidgeBounds(curvature=curvature, ridge=RIDGE, norm=1.0, residual=residual)
        return float(gaussian_epsilons(worst_output_mu(bounds, sigma=SIGMA), DELTA))

    beside = worst(float(np.linalg.eigvalsh(h)[0]), 1 + float(np.linalg.norm(theta)))
    # for all data sets of n records |theta| <= |y| / (2 sqrt(ridge)), and the curvature the ridge
    return private.reveal(), beside, worst(RIDGE, 1 + np.sqrt(n / RIDGE) / 2)


people = dp.dataset("people", columns={"age": (0, 100), "town": ["a", "b"]})
plan = dp.Pipeline(
    ages=people["age"].sum().release(dp.Gaussian(sigma=200)),
    towns=people["town"].histogram().release(dp.Gaussian(sigma=5)),
).with_delta(DELTA)

print("epsilon of a ridge regression: of the records, and of any record beside them or elsewhere")
print(f"{'records':>8s} {'median':>10s} {'largest':>10s} {'any beside':>12s} {'any data set':>14s}")
for n in (100, 1_000, 10_000):
    found, beside, everywhere = losses(n)
    print(f"{n:8,} {np.median(found):10.2g} {found.max():10.2g} {beside:12.2g} {everywhere:14.3g}")

frame = {"age": [5.0, 40.0, 95.0], "town": ["a", "b", "nowhere"]}
private = per_instance(plan, people=frame)
print(f"\na plan: epsilon {plan.certify().epsilon:.3f} certified, and each person's {private}")
print("revealed, since they are made up:", private.reveal().round(3))
