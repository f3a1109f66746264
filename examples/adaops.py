"""Ridge regression whose noise follows the data: AdaOPS beside learners at their worst case.

    python examples/adaops.py

Hours of sunshine and rain predict a harvest, on made-up fields. Every learner has the same budget;
what AdaOPS knows of the data it first releases, and pays for.
"""

from __future__ import annotations

import numpy as np

import adaptive_dp as dp

FEATURES = ["sunshine", "rain", "slope"]
BOUNDS = {"sunshine": (800, 2400), "rain": (200, 1200), "slope": (0, 30), "harvest": (0, 12)}
EPSILON, DELTA = 1.0, 1e-6


def fields(count: int) -> dict[str, np.ndarray]:
    """Made-up fields, with harvests in tonnes."""
    rng = np.random.default_rng(0)
    made = {name: rng.uniform(*BOUNDS[name], size=count) for name in FEATURES}
    harvest = 1 + 0.0025 * made["sunshine"] + 0.003 * made["rain"] - 0.05 * made["slope"]
    return {**made, "harvest": harvest + rng.normal(scale=0.8, size=count)}


def least_squares(data: dict[str, np.ndarray]) -> list[float]:
    """The fit that is not private."""
    rows = np.column_stack([np.ones(len(data["harvest"])), *(data[name] for name in FEATURES)])
    return list(np.linalg.lstsq(rows, data["harvest"], rcond=None)[0])


def main() -> None:
    """Print the fits, and the plan of the last."""
    table = dp.dataset("fields", columns=BOUNDS)
    learners = {
        "AdaOPS": dp.AdaOPS(FEATURES, "harvest"),
        "AdaSSP": dp.AdaSSP(FEATURES, "harvest"),
        "OPS": dp.OPS(FEATURES, "harvest"),
        "adaptive perturbation": dp.AdaptiveOutputPerturbation(FEATURES, "harvest"),
        "output perturbation": dp.OutputPerturbation(FEATURES, "harvest", ridge=300.0),
    }
    for count in (2_000, 20_000, 200_000):
        data = fields(count)
        print(f"{count} fields{'':12s}", *(f"{name:>10s}" for name in ["intercept", *FEATURES]))
        fits = {"not private": least_squares(data)}
        for name, learner in learners.items():
            fit = table.solve(learner, epsilon=EPSILON, delta=DELTA)
            plan = dp.Pipeline(fit=fit).with_delta(DELTA)
            fits[name] = list(plan.simulate(seed=1, fields=data)["fit"].values())
        for name, fit in fits.items():
            print(f"  {name:22s}", *(f"{value:10.5f}" for value in fit))
    plan = dp.Pipeline(fit=table.solve(learners["AdaOPS"], epsilon=EPSILON, delta=DELTA))
    print(plan.with_delta(DELTA).certify())

    # propose a temperature, test privately whether the data allow it, and draw or say nothing
    for gamma in (0.1, 1_000.0):
        proposed = dp.AdaOPS(FEATURES, "harvest", ridge=50.0, gamma=gamma)
        fit = table.solve(proposed, epsilon=EPSILON, delta=DELTA)
        result = dp.Pipeline(fit=fit).with_delta(DELTA).simulate(seed=1, fields=data)
        print(f"gamma = {gamma:g}:", result["fit"])


if __name__ == "__main__":
    main()
