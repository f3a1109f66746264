"""What each person loses: most of them far less than the worst case says.

Wang 2019, Fig. 1: a ridge regression with output perturbation. The picture of the losses is as
private as the data; made-up data may be shown.
"""

import sys

import numpy as np

import accountants
import adaptive_dp as dp
from adaptive_dp.instance import (
    RidgeBounds,
    gaussian_epsilons,
    output_epsilons,
    per_instance,
    worst_output_mu,
)

RIDGE, SIGMA, DELTA = 1.0, 4.0, 1e-6


def made_up(n: int, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(21)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    theta = rng.normal(size=d)
    y = np.clip(x @ theta / np.linalg.norm(theta) + 0.1 * rng.normal(size=n), -1, 1)
    return x, y


def losses(n: int) -> tuple[np.ndarray, float, float]:
    """Return each record's epsilon, the worst beside this data set, and that of all data sets."""
    x, y = made_up(n)
    private = output_epsilons(x, y, ridge=RIDGE, sigma=SIGMA, delta=DELTA)
    h = x.T @ x + RIDGE * np.eye(x.shape[1])
    theta = np.linalg.solve(h, x.T @ y)
    bounds = RidgeBounds(
        curvature=float(np.linalg.eigvalsh(h)[0]),
        ridge=RIDGE,
        norm=1.0,
        residual=1 + float(np.linalg.norm(theta)),
    )
    beside = worst_output_mu(bounds, sigma=SIGMA)
    # for all data sets of n records |theta| <= |y| / (2 sqrt(ridge)), and the curvature the ridge
    anywhere = RidgeBounds(
        curvature=RIDGE, ridge=RIDGE, norm=1.0, residual=1 + np.sqrt(n / RIDGE) / 2
    )
    everywhere = worst_output_mu(anywhere, sigma=SIGMA)
    return (
        private.reveal(),
        float(gaussian_epsilons(beside, DELTA)),
        accountants.Gaussian(mu=everywhere).epsilon_at(DELTA).upper,
    )


people = dp.dataset("people", columns={"age": (0, 100), "town": ["a", "b"]})
plan = dp.Pipeline(
    ages=people["age"].sum().release(dp.Gaussian(sigma=200)),
    towns=people["town"].histogram().release(dp.Gaussian(sigma=5)),
).with_delta(DELTA)

if __name__ == "__main__":
    for n in (100, 1000, 10_000):
        found, beside, everywhere = losses(n)
        print(
            f"n = {n:6}: epsilon of the records: median {np.median(found):.2g}, "
            f"largest {found.max():.2g}, any record beside this data set {beside:.2g}, "
            f"any data set {everywhere:.2g}"
        )
    frame = {"age": [5.0, 40.0, 95.0], "town": ["a", "b", "nowhere"]}
    private = per_instance(plan, people=frame)
    print(f"a plan: certified {plan.certify().epsilon:.3f}, each person {private}")
    print("revealed, since they are made up:", private.reveal().round(3))
    if len(sys.argv) > 1:
        from adaptive_dp import plot

        found, beside, _ = losses(1000)
        axes = plot.per_instance(found, worst=beside, title="Ridge regression, n = 1000")
        axes.figure.savefig(sys.argv[1], dpi=150)
