"""The twenty tasks by OpenDP's Polars context, as its pages would have them."""

import numpy as np
import opendp.prelude as dp
import polars as pl

dp.enable_features("contrib")
keys = pl.LazyFrame({"health": ["excellent", "good", "fair", "poor"]})
years = pl.LazyFrame({"year": [1, 2, 3, 4, 5]})


def ask(rows=5, **loss):
    context = dp.Context.compositor(
        data=pl.scan_csv("people.csv", infer_schema_length=None),
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
        privacy_loss=dp.loss_of(epsilon=1.0, **loss),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=1_000_000)],
    )
    return context.query().truncate_per_group(rows)


def total(name, top):
    return pl.col(name).fill_null(0).dp.sum(bounds=(0, top))


def task_1():
    return ask().select(dp.len()).release().collect().item()


def task_2():
    return ask(rows=1).select(dp.len()).release().collect().item()


def task_3():
    rows, visits = ask().select(dp.len(), total("visits", 20)).release().collect().row(0)
    return visits / max(rows, 1)


def task_4():
    return ask().select(total("spending", 2_000.0)).release().collect().item()


def task_5():
    bars = ask().group_by("health").agg(dp.len(signed=True)).with_keys(keys).release().collect()
    return [dict(bars.iter_rows())[key] for key in ("excellent", "good", "fair", "poor")]


def task_6():
    query = ask().group_by("health").agg(dp.len(signed=True), total("visits", 20))
    bars = {
        key: visits / max(n, 1)
        for key, n, visits in query.with_keys(keys).release().collect().iter_rows()
    }
    return [bars[key] for key in ("excellent", "good", "fair", "poor")]


def task_7():
    query = ask().group_by("health", "year").agg(dp.len(signed=True))
    bars = (
        query.with_keys(keys.join(years, how="cross"))
        .release()
        .collect()
        .rows_by_key(["health", "year"])
    )
    return [[bars[h, y][0][0] for y in range(1, 6)] for h in ("excellent", "good", "fair", "poor")]


def task_9():
    age = pl.col("age").fill_null(0.0).dp.median(candidates=[i / 10 for i in range(701)])
    return ask().select(age).release().collect().item()


def task_10():
    income, grid = pl.col("income").fill_null(0.0), [20.0 * i for i in range(1_001)]
    orders = [income.dp.quantile(q, candidates=grid).alias(str(q)) for q in (0.25, 0.5, 0.75)]
    return ask().select(orders).release().collect().row(0)


def task_11():
    edges = [50.0, 100.0, 200.0, 500.0, 1_000.0]
    names = [str(i) for i in range(6)]
    bins = pl.col("spending").fill_null(0.0).cut(edges, labels=names, left_closed=True)
    query = ask().with_columns(bin=bins.cast(pl.String)).group_by("bin").agg(dp.len(signed=True))
    bars = dict(query.with_keys(pl.LazyFrame({"bin": names})).release().collect().iter_rows())
    sums = np.cumsum([bars[name] for name in names])
    return [0, *(sums / sums[-1])]


def task_12():
    visits = pl.col("visits").fill_null(0).clip(0, 20)
    squares = (visits * visits).alias("squares").dp.sum((0, 400))
    query = ask().select(dp.len(), total("visits", 20), squares)
    rows, plain, squared = query.release().collect().row(0)
    return max(squared / rows - (plain / rows) ** 2, 0) ** 0.5


def task_14():
    names = [str(i) for i in range(7)]
    edges = [10.0 * i for i in range(1, 7)]
    bins = pl.col("age").fill_null(0.0).cut(edges, labels=names, left_closed=True)
    query = ask().with_columns(bin=bins.cast(pl.String)).group_by("bin").agg(dp.len(signed=True))
    bars = dict(query.with_keys(pl.LazyFrame({"bin": names})).release().collect().iter_rows())
    return [bars[name] for name in names]


def task_15():
    old = (pl.col("female") == 1) & (pl.col("age") >= 40) & (pl.col("visits") == 0)
    return ask().filter(old).select(dp.len()).release().collect().item()


def task_16():
    ratio = (pl.col("spending").fill_null(0) / (pl.col("visits").fill_null(0) + 1)).alias("ratio")
    rows, each = ask().select(dp.len(), ratio.dp.sum((0.0, 2_000.0))).release().collect().row(0)
    return each / max(rows, 1)


def task_17():
    bars = ask(delta=1e-6).group_by("education").agg(dp.len()).release().collect()
    return {f"{float(key):g}": n for key, n in bars.drop_nulls().iter_rows()}
