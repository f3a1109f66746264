"""Three statistics under one budget, a person protected, by OpenDP's Polars engine."""

import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
context = dp.Context.compositor(
    data=pl.scan_csv("people.csv", infer_schema_length=None),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
    privacy_loss=dp.loss_of(epsilon=1.0),
    split_by_weights=[2, 1],
    margins=[dp.polars.Margin(max_length=1_000_000)],
)
people = context.query().truncate_per_group(5)
visits = pl.col("visits").fill_null(0).dp.sum(bounds=(0, 20))
totals = people.select(dp.len(signed=True), visits).release().collect()

people = context.query().truncate_per_group(5)
keys = pl.LazyFrame({"health": ["excellent", "good", "fair", "poor"]})
bars = people.group_by("health").agg(dp.len(signed=True)).with_keys(keys)
health = bars.release().collect()
print(totals, totals["visits"] / totals["len"], health)
