"""Private tuning: the best of a random number of runs over candidates, paid for as about three.

    python examples/private_tuning.py

From which spending on is a year of the RAND Health Insurance Experiment a costly one, so that half
of them are? Trying every candidate and choosing by hand would cost as many runs as there are
candidates; choosing by looking at the data would cost privacy that is in no certificate.
"""

import adaptive_dp as dp
from adaptive_dp.demo import DATA

columns = {"spending": (0, 2_000)}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
noise = dp.Gaussian()


def balance(costly, total):
    """Return a score: how close to a half of the years are costly."""
    return -abs(costly - total / 2)


def tried(cut):
    """Return one run: a noisy count from a candidate on, and its score."""
    costly = people.filter(people["spending"] >= cut).count().release(noise)
    return costly, dp.post(balance, costly, total)


total = people.count().release(noise)
best = dp.select(tried, [1, 5, 10, 20, 35, 50, 100, 200, 500], stopping=0.05)
plan = dp.Pipeline(best=best, total=total).calibrate(epsilon=1.0, delta=1e-6)

print(plan.certify(), end="\n\n")
print(plan.run(people=DATA))
