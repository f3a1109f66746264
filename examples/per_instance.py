"""What each person loses: most of them far less than the worst case says.

    python examples/per_instance.py

Wang 2019, Fig. 1: a ridge regression with output perturbation; then a plan of sums and counts. The
RAND Health Insurance Experiment's data are public: for private data the numbers shown here would be
as private as the data.
"""

import numpy as np

import adaptive_dp as dp
from adaptive_dp.demo import DATA
from adaptive_dp.instance import (
    RidgeBounds,
    gaussian_epsilons,
    output_epsilons,
    per_instance,
    worst_output_mu,
)

RIDGE, SIGMA, DELTA = 1.0, 4.0, 1e-6
BOUNDS = {"age": 70, "female": 1, "income": 20_000, "chronic": 60, "coinsurance": 100, "visits": 20}
years = np.genfromtxt(DATA, delimiter=",", names=True, usecols=["person", *BOUNDS])
_, first = np.unique(years["person"], return_index=True)


def records(n):
    """Return n people's first years and visits, all of norm at most 1."""
    some = years[np.random.default_rng(21).permutation(first)[:n]]
    *x, y = (np.clip(some[name] / high, 0, 1) for name, high in BOUNDS.items())
    return np.column_stack([np.ones(n), *x]) / np.sqrt(len(BOUNDS)), y


def losses(n):
    """Return each record's epsilon, the worst beside this data set, and that of all data sets."""
    x, y = records(n)
    private = output_epsilons(x, y, ridge=RIDGE, sigma=SIGMA, delta=DELTA)
    h = x.T @ x + RIDGE * np.eye(x.shape[1])
    theta = np.linalg.solve(h, x.T @ y)

    def worst(curvature, residual):
        bounds = RidgeBounds(curvature=curvature, ridge=RIDGE, norm=1.0, residual=residual)
        return float(gaussian_epsilons(worst_output_mu(bounds, sigma=SIGMA), DELTA))

    beside = worst(float(np.linalg.eigvalsh(h)[0]), 1 + float(np.linalg.norm(theta)))
    # for all data sets of n records |theta| <= |y| / (2 sqrt(ridge)), and the curvature the ridge
    return private.reveal(), beside, worst(RIDGE, 1 + np.sqrt(n / RIDGE) / 2)


print("epsilon of a ridge regression: of the records, and of any record beside them or elsewhere")
print(f"{'records':>8s} {'median':>10s} {'largest':>10s} {'any beside':>12s} {'any data set':>14s}")
for n in (100, 1_000, 5_912):
    found, beside, everywhere = losses(n)
    print(f"{n:8,} {np.median(found):10.2g} {found.max():10.2g} {beside:12.2g} {everywhere:14.3g}")

HEALTH = ["excellent", "good", "fair", "poor"]
columns = {"spending": (0, 2_000), "health": HEALTH}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
plan = dp.Pipeline(
    spending=people["spending"].sum().release(dp.Gaussian(sigma=20_000)),
    health=people["health"].histogram().release(dp.Gaussian(sigma=50)),
).with_delta(DELTA)
private = per_instance(plan, people=DATA)
print(f"\na plan: epsilon {plan.certify().epsilon:.3f} certified, and each person's {private}")
for share in (0.1, 0.5, 0.9, 1.0):
    print(f"{share:8.0%} of them lose at most {np.quantile(private.reveal(), share):.3f}")
