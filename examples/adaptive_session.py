"""An adaptive analysis of the RAND Health Insurance Experiment, with a budget that stops it.

Each query depends on the answers so far, and so does the scale of its noise.

    python examples/adaptive_session.py
"""

import adaptive_dp as dp
from adaptive_dp.demo import DATA

HEALTH = ["excellent", "good", "fair", "poor"]
COLUMNS = {"health": HEALTH, "visits": (0, 20), "spending": (0, 2_000)}
people = dp.dataset("people", columns=COLUMNS, unit="person", rows_per_unit=5)
budget = dp.Budget(epsilon=1.0, delta=1e-6)

with dp.Session(budget=budget, accountant="gaussian", people=DATA) as session:
    # at most half of the budget for an overview
    overview = session.part("overview", 0.5)
    n = overview.run(people.count().release(dp.Gaussian(sigma=200)), name="person-years")
    print(f"about {n:,.0f} person-years")

    # noise of one percent of what there is, whatever that is
    sigma = max(50.0, 0.01 * n)
    groups = dict(people.partition("health"))
    counts = {k: group.count().release(dp.Gaussian(sigma=sigma)) for k, group in groups.items()}
    found = {k: overview.run(count, name=f"health {k}") for k, count in counts.items()}
    print("of them", ", ".join(f"{count:,.0f} in {k} health" for k, count in found.items()))

    # go on in the largest group, whose count is known
    top = max(found, key=found.get)
    visits = groups[top]["visits"].average(dp.Gaussian(sigma=100), count=counts[top])
    print("the average of their visits:", session.what_if(visits))
    print(f"{session.run(visits, name='visits'):.2f} visits a year in {top} health\n")

    # narrow the noise down until the budget says no
    noise = 400_000
    try:
        while True:
            spending = people["spending"].sum().release(dp.Gaussian(sigma=noise))
            answer = session.run(spending, name=f"spending +- {noise:,}")
            print(f"spending {answer:>9,.0f} +- {noise:>7,}")
            noise //= 2
    except dp.BudgetError as refusal:
        print("refused:", refusal)

    print(f"\nepsilon so far {session.epsilon:.3f} of {budget.epsilon}")
    paper = session.certificate()
    print(paper)
    print("verified:", dp.verify(paper).holds)
