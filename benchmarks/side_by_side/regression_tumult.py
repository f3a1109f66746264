"""A ridge regression of visits by noisy moments, a person protected, by Tumult Analytics."""

from itertools import combinations_with_replacement

import numpy as np
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    ColumnDescriptor,
    ColumnType,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)

RHO = 0.0243  # at most (1, 1e-6), by hand: Canonne, Kamath and Steinke 2020, proposition 12
TOPS = {"one": 1, "age": 70, "income": 20_000, "chronic": 60, "visits": 20}
PAIRS = list(combinations_with_replacement(range(5), 2))[:-1]


def products(row):
    values = [1.0, *(min(max(row[name] / TOPS[name], 0.0), 1.0) for name in list(TOPS)[1:])]
    return [{"pair": i, "product": values[a] * values[b]} for i, (a, b) in enumerate(PAIRS)]


spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 1).getOrCreate()
people = spark.read.csv("people.csv", header=True, inferSchema=True).fillna(0)
session = Session.from_dataframe(
    RhoZCDPBudget(RHO), "people", people, protected_change=AddRowsWithID("person")
)
columns = {
    "pair": ColumnDescriptor(ColumnType.INTEGER),
    "product": ColumnDescriptor(ColumnType.DECIMAL),
}
query = (
    QueryBuilder("people")
    .flat_map(products, columns, augment=True)
    .enforce(MaxGroupsPerID("pair", 14))
    .enforce(MaxRowsPerGroupPerID("pair", 5))
    .groupby(KeySet.from_dict({"pair": list(range(14))}))
    .sum("product", low=0, high=1)
)
sigma = 5 * (14 / (2 * RHO)) ** 0.5
sums = dict(session.evaluate(query, RhoZCDPBudget(RHO)).collect())
moments = np.zeros((5, 5))
for i, (a, b) in enumerate(PAIRS):
    moments[a, b] = moments[b, a] = sums[i]
ridge = 2 * sigma * np.eye(4)
weights = np.linalg.solve(moments[:4, :4] + ridge, moments[:4, 4])
model = 20 * weights / list(TOPS.values())[:4]
print(model)
