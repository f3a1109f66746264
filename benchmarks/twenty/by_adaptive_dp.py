"""The twenty tasks by adaptive_dp, as its pages would have them."""

import adaptive_dp as dp

columns = {
    **{"age": (0, 70), "female": [0, 1], "income": (0, 20_000), "chronic": (0, 60)},
    **{"visits": (0, 20), "spending": (0, 2_000), "year": [1, 2, 3, 4, 5], "education": str},
    "health": ["excellent", "good", "fair", "poor"],
}
people = dp.dataset("people", columns=columns, unit="person", rows_per_unit=5)


def ask(answer, **target):
    plan = dp.Pipeline(answer=answer).calibrate(**target or {"epsilon": 1.0, "delta": 1e-6})
    return plan.run(people="people.csv")["answer"]


def task_1():
    return ask(people.count())


def task_2():
    return ask(people.count_distinct())


def task_3():
    return ask(people["visits"].average())


def task_4():
    return ask(people["spending"].sum())


def task_5():
    return ask(people.group_by("health").count())


def task_6():
    return ask(people.group_by("health").average("visits"))


def task_7():
    return ask(people.crosstab("health", "year"))


def task_8():
    return ask(people.crosstab("health", "year", margins=True))


def task_9():
    return ask(people["age"].median())


def task_10():
    return ask(people["income"].quantiles([0.25, 0.5, 0.75]))


def task_11():
    return ask(people["spending"].cdf([0, 50, 100, 200, 500, 1_000, 2_000]))


def task_12():
    return ask(people["visits"].std(dp.Gaussian()))


def task_13():
    return ask(people.correlation(["age", "income", "visits"], dp.Gaussian()))


def task_14():
    return ask(people["age"].histogram(range(0, 71, 10)))


def task_15():
    old = (people["female"] == 1) & (people["age"] >= 40) & (people["visits"] == 0)
    return ask(people.filter(old).count())


def task_16():
    return ask((people["spending"] / (people["visits"] + 1)).average())


def task_17():
    return ask(people.group_by("education").count())


def task_18():
    visits = ask(people["visits"].average())
    return [visits, *visits.interval(0.95)]


def task_19():
    return [*ask(people.solve(dp.AdaSSP(["age", "income", "chronic"], "visits"))).values()]


def task_20():
    visits = ask(people["visits"].average(), error={"answer": 0.05}, rows=20_000)
    return [visits, *visits.interval(0.95)]
