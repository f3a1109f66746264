"""Declare, certify, run: means and counts of a made-up survey under one budget.

Run it with ``python examples/first_plan.py``.
"""

import numpy as np

import adaptive_dp as dp

people = dp.dataset(
    "people",
    columns={"income": (0, 100_000), "age": (18, 100), "region": ["north", "south", "west"]},
    unit="id",
    rows_per_unit=2,
)


count = people.count().release(dp.Laplace())
mean = people["income"].average(dp.Laplace(), count=count)
seniors = people.filter(people["age"] >= 65).count().release(dp.Laplace())
regions = {
    region: part["age"].histogram([18, 40, 65, 100]).release(dp.Gaussian())
    for region, part in people.partition("region")
}

plan = dp.Pipeline(count=count, mean=mean, seniors=seniors, regions=regions)
plan = plan.calibrate(epsilon=1.0, delta=1e-6)


def survey(size: int = 20_000) -> dict[str, np.ndarray]:
    """Return made-up data: two rows a person."""
    generator = np.random.default_rng(7)
    return {
        "id": np.arange(size) // 2,
        "income": generator.gamma(3, 12_000, size),
        "age": generator.uniform(18, 95, size),
        "region": generator.choice(["north", "south", "west"], size),
    }


if __name__ == "__main__":
    print(plan.certify(), end="\n\n")
    print(plan.run(people=survey()))
