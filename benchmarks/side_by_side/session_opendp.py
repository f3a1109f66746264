"""Bisection for the median age until a person's budget is spent, by OpenDP's privacy filter."""

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
numbers = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)


def epsilon(rho):
    gaussian = dp.m.make_gaussian(*numbers, scale=(2 * rho) ** -0.5)
    return dp.c.make_zCDP_to_approxDP(gaussian).map(1.0).epsilon(1e-6)


context = dp.Context.compositor(
    data=pl.scan_csv("people.csv", infer_schema_length=None),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
    privacy_loss=dp.loss_of(rho=dp.binary_search(lambda rho: epsilon(rho) <= 1, (1e-6, 1.0))),
    margins=[dp.polars.Margin(max_length=1_000_000)],
)
keys = pl.LazyFrame({"below": [True, False]})
each = (5 / 75) ** 2 / 2  # sigma 75
low, high, answers = 0.0, 70.0, 0
try:
    while True:
        middle = (low + high) / 2
        people = context.query(rho=each).truncate_per_group(5)
        people = people.with_columns(below=pl.col("age").fill_null(0) < middle)
        sides = people.group_by("below").agg(dp.len(signed=True)).with_keys(keys)
        counts = dict(sides.release().collect().iter_rows())
        low, high = (low, middle) if counts[True] > counts[False] else (middle, high)
        answers += 1
except dp.OpenDPException as refusal:
    print(refusal)
print(answers, (low + high) / 2)
