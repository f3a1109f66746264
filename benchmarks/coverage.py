"""How often intervals hold the truth: run it with ``python benchmarks/coverage.py``.

Prints tables of the coverage of nominal 95% intervals over many simulations of a plan, each with
its standard error, beside half of the median width. Data are made up, and the same in all
simulations of a line but those of sampling. Of regressions the truth is least squares without a
ridge on the very rows, and a line counts all coefficients; "given" is the share of simulations in
which there is an interval at all: where there is none, its error says why.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import adaptive_dp as dp

Data = Mapping[str, Any]


class Coverage(NamedTuple):
    """Of intervals: the share that holds the truth, its standard error, half widths, how many."""

    share: float
    error: float
    half: float
    given: float


def coverage(
    plan: dp.Pipeline,
    data: Data | Callable[[int], Data],
    truth: Any,
    simulations: int,
    *,
    sampling: bool = False,
) -> Coverage:
    """Return the coverage of a plan's only output, over simulations with seeds from 0 on."""
    hits, halves, given = [], [], 0
    for seed in range(simulations):
        frame = data(seed) if callable(data) else data
        true_value = truth(frame) if callable(truth) else truth
        value = plan.simulate(seed=seed, people=frame)["v"]
        names = list(true_value) if isinstance(true_value, Mapping) else [None]
        try:
            ends = [
                (value if name is None else value[name]).interval(sampling=sampling)
                for name in names
            ]
        except dp.NoIntervalError:
            continue
        given += 1
        low, high = (np.array([np.asarray(end[i]) for end in ends]) for i in (0, 1))
        true = np.array(
            [np.asarray(true_value if name is None else true_value[name]) for name in names]
        )
        # rounding in the last place of a clamped value is no miss
        hits.append(np.mean((low <= true + 1e-9) & (true <= high + 1e-9)))
        halves.append(np.mean(high - low) / 2)
    if not given:
        return Coverage(np.nan, np.nan, np.nan, 0.0)
    error = np.std(hits) / np.sqrt(given)
    return Coverage(
        float(np.mean(hits)), float(error), float(np.median(halves)), given / simulations
    )


def regression(rows: int, width: int) -> tuple[dp.Table, Data, Data]:
    """Return a table with a target y, made-up rows, and the coefficients of least squares."""
    draw = np.random.default_rng(rows + width)
    x = draw.uniform(0, 10, size=(rows, width))
    x[:, -1] = (x[:, 0] + x[:, -1]) / 2  # correlated with the first
    target = 50 + x @ draw.normal(size=width) + draw.normal(scale=5, size=rows)
    names = [f"x{i}" for i in range(width)]
    data: dict[str, Any] = dict(zip(names, x.T, strict=True)) | {"y": np.clip(target, 0, 100)}
    columns: dict[str, Any] = dict.fromkeys(names, (0, 10)) | {"y": (0, 100)}
    design = np.column_stack([np.ones(rows), x])
    solution = np.linalg.lstsq(design, data["y"], rcond=None)[0]
    people = dp.dataset("people", columns=columns)
    return people, data, dict(zip(["intercept", *names], solution.tolist(), strict=True))


def simple(simulations: int) -> None:
    """Print the coverage of counts, averages, ratios, shares and quantiles."""
    print("| output | rows | epsilon | coverage | half width |\n|---|---|---|---|---|")
    for rows in (100, 1_000, 10_000):
        draw = np.random.default_rng(rows)
        age = draw.uniform(20, 60, rows)
        towns = draw.choice(["A", "B", "C"], p=[0.8, 0.19, 0.01], size=rows)
        data = {"age": age, "town": towns}
        people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B", "C"]})
        counts = np.array([(towns == town).sum() for town in "ABC"], dtype=float)
        means = np.array([age[towns == town].mean() for town in "ABC"])
        old = people.filter(people["age"] >= 50).count()
        count, hist = people.count(), people["town"].histogram()
        laplace, gaussian = dp.Laplace(), dp.Gaussian()
        plans: dict[str, tuple[Any, Any]] = {
            "count, Laplace": (count.release(laplace), float(rows)),
            "count, discrete Laplace": (count.release(dp.DiscreteLaplace()), float(rows)),
            "histogram, Gaussian": (hist.release(gaussian), counts),
            "average": (people["age"].average(laplace), age.mean()),
            "averages by town": (people.group_by("town").average("age", laplace), means),
            "share of a count in another": (
                dp.post(share, old.release(laplace), count.release(laplace)),
                float((age >= 50).mean()),
            ),
            "shares of a histogram": (dp.post(shares, hist.release(gaussian)), counts / rows),
            "difference of two averages": (
                dp.post(
                    difference,
                    people.filter(people["town"].isin(["A"]))["age"].average(laplace),
                    people.filter(people["town"].isin(["B"]))["age"].average(laplace),
                ),
                float(means[0] - means[1]),
            ),
            "ratio, rounded": (
                dp.post(rounded, people["age"].sum().release(laplace), count.release(laplace)),
                round(float(age.mean())),
            ),
        }
        for name, (handle, truth) in plans.items():
            for epsilon in (0.2, 1.0):
                plan = dp.Pipeline(v=handle).calibrate(epsilon=epsilon, delta=1e-6)
                got = coverage(plan, data, truth, simulations)
                print(
                    f"| {name} | {rows:,} | {epsilon:g} | {got.share:.1%} ± {got.error:.1%} "
                    f"| {got.half:.3g} |",
                    flush=True,
                )


def share(part: float, whole: float) -> float:
    """Return a part of a count, inside [0, 1]."""
    return min(1.0, max(0.0, part / max(whole, 1.0)))


def shares(counts: Any) -> Any:
    """Return the share of each count, none below 0."""
    positive = np.maximum(counts, 0.0)
    return positive / max(float(positive.sum()), 1.0)


def difference(one: float, other: float) -> float:
    """Return a difference."""
    return one - other


def rounded(total: float, count: float) -> float:
    """Return a mean, rounded."""
    return float(round(total / max(count, 1.0)))


def sampled(simulations: int) -> None:
    """Print the coverage of a population's numbers, by samples of it."""
    print("\n| output, sampling | rows | epsilon | coverage | half width |\n|---|---|---|---|---|")
    people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B", "C"]})
    probabilities = [0.8, 0.19, 0.01]
    for rows in (100, 1_000, 10_000):

        def sample(seed: int, rows: int = rows) -> Data:
            draw = np.random.default_rng([seed, rows])
            size = draw.poisson(rows)
            towns = draw.choice(["A", "B", "C"], p=probabilities, size=size)
            return {"age": draw.uniform(20, 60, size), "town": towns}

        hist = people["town"].histogram().release(dp.Gaussian())
        plans: dict[str, tuple[Any, Any]] = {
            "count": (people.count().release(dp.Laplace()), float(rows)),
            "histogram": (hist, rows * np.array(probabilities)),
            "shares of a histogram": (dp.post(shares, hist), np.array(probabilities)),
            "average (by a bound of the variance)": (people["age"].average(dp.Laplace()), 40.0),
        }
        for name, (handle, truth) in plans.items():
            plan = dp.Pipeline(v=handle).calibrate(epsilon=1.0, delta=1e-6)
            got = coverage(plan, sample, truth, simulations, sampling=True)
            print(
                f"| {name} | {rows:,} | 1 | {got.share:.1%} ± {got.error:.1%} | {got.half:.3g} |",
                flush=True,
            )


def quantiles(simulations: int) -> None:
    """Print the coverage of quantiles, of the rows and of the population they are drawn from."""
    head = (
        "| quantile | values | rows | epsilon | coverage | half width "
        "| coverage, with sampling | half width |"
    )
    print(f"\n{head}\n|---|---|---|---|---|---|---|---|")
    people = dp.dataset("people", columns={"x": (0, 10_000)})
    kinds: dict[str, tuple[Callable[..., Any], Callable[[float], float], float | None]] = {
        "normal": (
            lambda draw, n: draw.normal(5000, 1000, n),
            lambda q: stats.norm.ppf(q, 5000, 1000),
            None,
        ),
        "heavy tail": (lambda draw, n: 10 * draw.pareto(1.0, n), lambda q: 10 * q / (1 - q), None),
        "ties": (
            lambda draw, n: draw.poisson(3, n),
            lambda q: stats.poisson.ppf(q, 3),
            1.0,
        ),
        # no row is between: nothing near the quantile says where it is
        "two values": (
            lambda draw, n: np.where(draw.random(n) < 0.5, 10, 9000),
            lambda q: 10 if q <= 0.5 else 9000,
            None,
        ),
    }
    for q, (kind, (drawn, population, step)), rows, epsilon in itertools.product(
        (0.5, 0.9), kinds.items(), (1_000, 10_000, 100_000), (0.2, 1.0, 5.0)
    ):

        def sample(seed: int, rows: int = rows, drawn: Callable[..., Any] = drawn) -> Data:
            return {"x": drawn(np.random.default_rng([seed, rows]), rows)}

        def of_rows(data: Data, rank: int = math.ceil(round(q * rows, 6))) -> float:
            return float(np.sort(np.clip(data["x"], 0, 10_000))[rank - 1])

        cells = []
        for sampling in (False, True):
            query = people["x"].quantile(q, step=step, interval=0.95, sampling=sampling)
            plan = dp.Pipeline(v=query.release(dp.QuantileExponential()))
            truth = population(q) if sampling else of_rows
            got = coverage(
                plan.calibrate(epsilon=epsilon), sample, truth, simulations, sampling=sampling
            )
            cells.append(f"{got.share:.1%} ± {got.error:.1%} | {got.half:.3g}")
        print(f"| {q:g} | {kind} | {rows:,} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def regressions(simulations: int) -> None:
    """Print the coverage of least squares' coefficients."""
    head = "| learner | features | rows | epsilon | coverage | mean half width | given |"
    print(f"\n{head}\n|---|---|---|---|---|---|---|")
    for learner in (dp.SSP, dp.AdaSSP):
        for width in (1, 3, 7):
            for rows in (1_000, 10_000, 100_000):
                people, data, truth = regression(rows, width)
                for epsilon in (0.2, 1.0, 5.0):
                    names = [f"x{i}" for i in range(width)]
                    model = people.solve(learner(names, "y"), epsilon=epsilon, delta=1e-6)
                    plan = dp.Pipeline(v=model).with_delta(1e-6)
                    got = coverage(plan, data, truth, simulations)
                    slope = coverage_text(got)
                    print(
                        f"| {learner.__name__} | {width} | {rows:,} | {epsilon:g} | {slope} |",
                        flush=True,
                    )


def coverage_text(got: Coverage) -> str:
    """Return the cells of a line of `regressions`."""
    if not got.given:
        return "- | - | 0%"
    return f"{got.share:.1%} ± {got.error:.1%} | {got.half:.3g} | {got.given:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=400)
    simulations = parser.parse_args().simulations
    simple(simulations)
    sampled(simulations)
    quantiles(simulations)
    regressions(simulations)


if __name__ == "__main__":
    main()
