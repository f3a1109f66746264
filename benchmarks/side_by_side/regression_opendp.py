"""A ridge regression of visits by noisy moments, a person protected, by OpenDP's Polars engine."""

from itertools import combinations_with_replacement

import numpy as np
import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
numbers = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
tops = {"age": 70, "income": 20_000, "chronic": 60, "visits": 20}


def epsilon(rho):
    gaussian = dp.m.make_gaussian(*numbers, scale=(2 * rho) ** -0.5)
    return dp.c.make_zCDP_to_approxDP(gaussian).map(1.0).epsilon(1e-6)


context = dp.Context.compositor(
    data=pl.scan_csv("people.csv", infer_schema_length=None),
    privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
    privacy_loss=dp.loss_of(rho=dp.binary_search(lambda rho: epsilon(rho) <= 1, (1e-6, 1.0))),
    split_evenly_over=1,
    margins=[dp.polars.Margin(max_length=1_000_000)],
)
scaled = {name: pl.col(name).fill_null(0).clip(0, top) / top for name, top in tops.items()}
pairs = list(combinations_with_replacement(tops, 2))[:-1]
query = (
    context.query()
    .truncate_per_group(5)
    .select(
        dp.len(signed=True),
        *(scaled[a].dp.sum((0, 1)).alias(a) for a in tops),
        *((scaled[a] * scaled[b]).dp.sum((0, 1)).alias(f"{a} {b}") for a, b in pairs),
    )
)
sigma = query.summarize()["scale"].max()
moments = np.zeros((5, 5))
moments[np.triu_indices(5)] = [*query.release().collect().row(0), 0]
moments += np.triu(moments, 1).T
ridge = 2 * sigma * np.eye(4)
weights = np.linalg.solve(moments[:4, :4] + ridge, moments[:4, 4])
model = 20 * weights / [1, *list(tops.values())[:3]]
print(model)
