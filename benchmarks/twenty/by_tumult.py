"""The twenty tasks by Tumult Analytics, as its pages would have them."""

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    BinningSpec,
    KeySet,
    MaxRowsPerID,
    PureDPBudget,
    QueryBuilder,
    Session,
)

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 1).getOrCreate()
people = spark.read.csv("people.csv", header=True, inferSchema=True).fillna(0)
health = ["excellent", "good", "fair", "poor"]
keys = KeySet.from_dict({"health": health})
bounded = QueryBuilder("people").enforce(MaxRowsPerID(5))


def ask(query):
    budget = PureDPBudget(1)
    session = Session.from_dataframe(
        budget, "people", people, protected_change=AddRowsWithID("person")
    )
    return session.evaluate(query, budget).collect()


def task_1():
    return ask(bounded.count())[0][0]


def task_2():
    return ask(QueryBuilder("people").enforce(MaxRowsPerID(1)).count())[0][0]


def task_3():
    return ask(bounded.average("visits", low=0, high=20))[0][0]


def task_4():
    return ask(bounded.sum("spending", low=0, high=2_000))[0][0]


def task_5():
    bars = dict(ask(bounded.groupby(keys).count()))
    return [bars[key] for key in health]


def task_6():
    bars = dict(ask(bounded.groupby(keys).average("visits", low=0, high=20)))
    return [bars[key] for key in health]


def task_7():
    both = KeySet.from_dict({"health": health, "year": [1, 2, 3, 4, 5]})
    bars = {(h, y): n for h, y, n in ask(bounded.groupby(both).count())}
    return [[bars[h, y] for y in range(1, 6)] for h in health]


def task_9():
    return ask(bounded.median("age", low=0, high=70))[0][0]


def task_12():
    return ask(bounded.stdev("visits", low=0, high=20))[0][0]


def task_14():
    bins = BinningSpec([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0])
    bars = dict(ask(bounded.histogram("age", bins)))  # "[0.0, 10.0]", then "(10.0, 20.0]"
    return [bars[key] for key in sorted(bars, key=lambda key: float(key[1:].split(",")[0]))]


def task_15():
    old = "female = 1 AND age >= 40 AND visits = 0"
    return ask(bounded.filter(old).count())[0][0]
