"""Ridge regression whose noise follows the data: AdaOPS beside AdaSSP and three other learners.

    python examples/adaops.py

Hours of sunshine and rain predict a harvest, on made-up fields. Every learner has the same budget;
what AdaOPS knows of the data it first releases, and pays for.
"""

import numpy as np

import adaptive_dp as dp

FEATURES = ["sunshine", "rain", "slope"]
BOUNDS = {"sunshine": (800, 2400), "rain": (200, 1200), "slope": (0, 30), "harvest": (0, 12)}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
LEARNERS = {
    "AdaOPS": dp.AdaOPS(FEATURES, "harvest"),
    "AdaSSP": dp.AdaSSP(FEATURES, "harvest"),
    "OPS": dp.OPS(FEATURES, "harvest"),
    "adaptive perturbation": dp.AdaptiveOutputPerturbation(FEATURES, "harvest"),
    "output perturbation": dp.OutputPerturbation(FEATURES, "harvest", ridge=300.0),
}
table = dp.dataset("fields", columns=BOUNDS)


def fields(count):
    """Return made-up fields, with harvests in tonnes."""
    draw = np.random.default_rng(0)
    sunshine, rain, slope = (draw.uniform(*BOUNDS[name], count) for name in FEATURES)
    harvest = 1 + 0.0025 * sunshine + 0.003 * rain - 0.05 * slope + draw.normal(0, 0.8, count)
    return {"sunshine": sunshine, "rain": rain, "slope": slope, "harvest": harvest}


def fitted(learner, data):
    """Return a learner's coefficients, and the plan that released them."""
    plan = dp.Pipeline(fit=table.solve(learner, **BUDGET)).with_delta(BUDGET["delta"])
    return plan.simulate(seed=1, fields=data)["fit"].values(), plan


def show(name, fit):
    """Print a line of a table."""
    print(f"  {name:22s}", *(f"{value:10.5f}" for value in fit))


for count in (2_000, 20_000, 200_000):
    data = fields(count)
    print(f"{f'{count:,} fields':24s}", *(f"{name:>10s}" for name in ["intercept", *FEATURES]))
    rows = np.column_stack([np.ones(count), *(data[name] for name in FEATURES)])
    show("not private", np.linalg.lstsq(rows, data["harvest"], rcond=None)[0])
    for name, learner in LEARNERS.items():
        show(name, fitted(learner, data)[0])

print("AdaOPS at a proposed temperature: it tests privately whether the data allow it, or says NaN")
for gamma in (0.1, 1_000.0):
    proposed = dp.AdaOPS(FEATURES, "harvest", ridge=50.0, gamma=gamma)
    show(f"gamma = {gamma:g}", fitted(proposed, data)[0])

print("\nwhat AdaOPS releases and pays for:")
print(fitted(LEARNERS["AdaOPS"], data)[1].certify())
