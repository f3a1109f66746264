"""The effect of clipping without noise: adaptive clipping norms beside no clipping.

    python examples/clipping.py

Gradients that are clipped to a quantile of their norms are biased: the rows that a model gets wrong
have the long ones, and are clipped most. In the RAND Health Insurance Experiment half of the years
cost more than 35 dollars: low quantiles lose a little accuracy. One in nine cost more than 300:
quantiles up to 0.7 find none of them, and the accuracy hardly shows it. These are simulations with
next to no noise: their epsilons would be very large.
"""

import numpy as np

import adaptive_dp as dp
from adaptive_dp.demo import DATA

BOUNDS = {"age": (0, 70), "visits": (0, 10), "chronic": (0, 60)}
OPTIONS = {"steps": 80, "sampling_rate": 1.0, "learning_rate": 8.0}
LEARNERS = {"not clipped": dp.NoisySGD([*BOUNDS], "costly", clip=1.0, **OPTIONS)}
for quantile in (0.1, 0.3, 0.5, 0.7, 0.9):
    followed = dp.Clipping(quantile=quantile, rate=0.5)
    learner = dp.NoisySGD([*BOUNDS], "costly", clip=0.5, adaptive=followed, **OPTIONS)
    LEARNERS[f"quantile {quantile:g}"] = learner

years = np.genfromtxt(DATA, delimiter=",", names=True, usecols=["person", *BOUNDS, "spending"])
odd = np.unique(years["person"], return_inverse=True)[1] % 2 == 1
columns = {**BOUNDS, "costly": ["no", "yes"]}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)
for dollars in (35, 300):
    yes = years["spending"] > dollars
    data = {name: years[name][odd] for name in ("person", *BOUNDS)}
    data["costly"] = np.where(yes[odd], "yes", "no")
    print(f"more than {dollars} dollars: {np.mean(yes):.1%} are yes")
    print(f"{'':14s} accuracy  of the yes  without clipping")
    for name, learner in LEARNERS.items():
        plan = dp.Pipeline(model=people.solve(learner)).with_delta(1e-5).fix(sigma=1e-6)
        result = plan.simulate(seed=0, people=data)
        model = result["model"]
        test = {k: years[k][~odd].clip(*bounds) for k, bounds in BOUNDS.items()}
        said = model["intercept"] + sum(model[name] * test[name] for name in BOUNDS) > 0
        right = np.mean(said == yes[~odd])
        if name == "not clipped":
            base = right
        print(f"{name:14s} {right:8.4f} {said[yes[~odd]].mean():11.4f} {right - base:+17.4f}")
print(f"the last one's epsilon: {result.certificate.epsilon:.3g}")
