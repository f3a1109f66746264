"""Bisection for the median age until a person's budget is spent, by Tumult Analytics."""

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    BinningSpec,
    MaxRowsPerID,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)

RHO = 0.0243  # at most (1, 1e-6), by hand: Canonne, Kamath and Steinke 2020, proposition 12
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 1).getOrCreate()
people = spark.read.csv("people.csv", header=True, inferSchema=True).fillna({"age": 0})
session = Session.from_dataframe(
    RhoZCDPBudget(RHO), "people", people, protected_change=AddRowsWithID("person")
)
each = RhoZCDPBudget((5 / 75) ** 2 / 2)  # sigma 75
low, high, answers = 0.0, 70.0, 0
try:
    while True:
        middle = (low + high) / 2
        sides = BinningSpec([0.0, middle, 70.0], names=["below", "above"])
        query = QueryBuilder("people").enforce(MaxRowsPerID(5)).histogram("age", sides)
        counts = dict(session.evaluate(query, each).collect())
        low, high = (low, middle) if counts["below"] > counts["above"] else (middle, high)
        answers += 1
except RuntimeError as refusal:
    print(refusal)
print(answers, (low + high) / 2, session.remaining_privacy_budget)
