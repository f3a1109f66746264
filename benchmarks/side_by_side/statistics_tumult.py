"""Three statistics under one budget, a person protected, by Tumult Analytics."""

from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, KeySet, MaxRowsPerID, PureDPBudget, QueryBuilder, Session

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 1).getOrCreate()
people = spark.read.csv("people.csv", header=True, inferSchema=True).fillna({"visits": 0})
session = Session.from_dataframe(
    PureDPBudget(1), "people", people, protected_change=AddRowsWithID("person")
)
each = PureDPBudget(1 / 3)
bounded = QueryBuilder("people").enforce(MaxRowsPerID(5))
rows = session.evaluate(bounded.count(), each).collect()
visits = session.evaluate(bounded.average("visits", low=0, high=20), each).collect()
keys = KeySet.from_dict({"health": ["excellent", "good", "fair", "poor"]})
health = session.evaluate(bounded.groupby(keys).count(), each).collect()
print(rows, visits, health)
