"""An adaptive analysis of the RAND Health Insurance Experiment, with a budget that stops it.

Each question follows the answers so far, in what it asks and in how much noise it can do with.

    python examples/adaptive_session.py
"""

import csv
import gzip

import adaptive_dp as dp
from adaptive_dp.demo import DATA

with gzip.open(DATA, "rt", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
frame = {
    name: [row[name] if name in ("person", "health") else float(row[name]) for row in rows]
    for name in ("person", "health", "visits", "spending")
}
people = dp.dataset(
    "people",
    columns={
        "health": ["excellent", "good", "fair", "poor"],
        "visits": (0, 20),
        "spending": (0, 2_000),
    },
    unit="person",
    rows_per_unit=5,
)
budget = dp.Budget(epsilon=1.0, delta=1e-6)

with dp.Session(budget=budget, accountant="gaussian", people=frame) as session:
    overview = session.part("overview", 0.5)

    n = overview.run(people.count().release(dp.Gaussian(sigma=200)), name="person-years")
    print(f"about {n:,.0f} person-years")

    # noise of one percent of what there is, whatever that is
    sigma = max(50.0, 0.01 * n)
    by_health = {
        key: overview.run(part.count().release(dp.Gaussian(sigma=sigma)), name=f"health {key}")
        for key, part in people.partition("health", whole_units=True)
    }
    print({key: round(count) for key, count in by_health.items()})

    # go on in the largest group
    largest = max(by_health, key=by_health.get)
    group = dict(people.partition("health", whole_units=True))[largest]
    visits = group["visits"].sum().release(dp.Gaussian(sigma=2_000))
    print("what the visits would cost:", session.what_if(visits))
    mean = session.run(visits, name="visits") / by_health[largest]
    print(f"{mean:.2f} visits a year in {largest} health")

    # narrow the noise down until the budget says no
    noise = 4_000.0
    try:
        while True:
            spending = session.run(
                people["spending"].sum().release(dp.Gaussian(sigma=100 * noise)),
                name=f"spending at {noise:g}",
            )
            print(f"spending {spending:,.0f}, with a noise of {100 * noise:,.0f}")
            noise /= 2
    except dp.BudgetError as refusal:
        print("refused:", refusal)

    print(f"epsilon so far {session.epsilon:.3f} of {budget.epsilon}")
    paper = session.certificate()
    print(paper)
    print("verified:", dp.verify(paper).holds)
