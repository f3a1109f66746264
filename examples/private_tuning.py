"""Private tuning: the best of a random number of runs over candidates, paid for as about three.

    python examples/private_tuning.py

Trying every candidate and choosing by hand would
cost as many runs as there are candidates; choosing by looking at the data would cost privacy that
no certificate sees.
"""

import numpy as np

import adaptive_dp as dp

people = dp.dataset("people", columns={"income": (0, 200_000)})
noise = dp.Gaussian(sigma=dp.Free("sigma"))


def balance(below, total):
    """Return a score: how close to a half of the people is below."""
    return -abs(below - total / 2)


def tried(cut):
    """Return one run: a noisy count below a candidate, and its score."""
    below = people.filter(people["income"] <= cut).count().release(noise)
    return below, dp.post(balance, below, total)


total = people.count().release(noise)
best = dp.select(tried, [10_000, 20_000, 30_000, 40_000, 60_000, 80_000], stopping=0.05)
plan = dp.Pipeline(best=best, total=total).calibrate(epsilon=1.0, delta=1e-6)

# made-up people, whose median income is about 32,000
survey = {"income": np.random.default_rng(7).gamma(3, 12_000, 5_000)}
print(plan.certify(), end="\n\n")
print(plan.run(people=survey))
