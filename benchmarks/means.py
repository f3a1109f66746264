"""Means and covariances without bounds: errors by rows and epsilon, and beside CoinPress.

    python benchmarks/means.py --runs 20 --results FILE
    python benchmarks/means.py --draw docs/statistics/means.png
    python benchmarks/means.py --draw-lines docs/statistics/lines.png

*One column.* The root of the mean squared difference from the mean of the rows, over their
deviation, of `dp.statistics.Mean` with no bounds declared; of noise on a sum whose bounds were
guessed 10 and 1,000 times the deviation on either side of 0 (the mean is at 3 of them); and of the
mean in bounds that are the rows' own least and largest, which no one may know (Gaussian noise at
the same epsilon and delta). Slopes are of log error by log rows and by log mu.

*CoinPress's published settings* (Biswas, Dong, Kamath and Ullman 2020, sections 5.1 and 5.2): the
mean of 50 normal columns (1 in each) known to lie within ``10 sqrt(50)`` of 0, and the covariance
of 10 known to be at most ``10 sqrt(10)``, rho = 0.5, rows exchanged, of as many rows as there.
Their algorithms are written here from the paper, with its constants and shares of rho, for 1 to 4
rounds. Of `dp.statistics` at mu = 1, which is that rho, with no bounds and covariances unknown.
Errors are means of runs without the highest and lowest tenth, in l2 and in Mahalanobis' norm.

*Lines.* Of ``y = 1 + x'b + noise`` with normal features, noise of deviation 1 and b uniform in
[-1, 1]: the root of the mean squared distance of predictions from those of least squares, of
`dp.statistics.TukeyEM` with no bounds, and of `dp.AdaSSP` with bounds at 5 and at 100 deviations.
Medians of the runs. ``--lines`` measures them alone.

*Columns that move together.* The root of the mean squared Mahalanobis distance of a mean from that
of the rows, over that of the rows' own from the truth, at epsilon 1: of normal rows whose axes have
equal lengths, and lengths from 1 down to a millionth, turned at random. 1 is as much as the sample
itself is off. Of `dp.statistics.Covariance` the same in Frobenius norm, in the frame in which the
truth is the identity. ``--ellipsoids`` measures them alone.

FILE keeps what was measured, a line of JSON each. Pictures are drawn of the tables in
docs/statistics/means.md, and of a line through the health insurance experiment.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, trim_mean

import adaptive_dp as dp
from adaptive_dp.mechanisms.additive import largest_mu

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 4.0)
ROWS = (1_000, 10_000, 100_000)

LAWS: dict[str, Callable[[Any, int], Any]] = {
    "normal": lambda rng, n: rng.normal(3.0, 1.0, n),
    "exponential": lambda rng, n: rng.exponential(1.0, n) + 2,
    "Student, 3": lambda rng, n: rng.standard_t(3, n) / math.sqrt(3) + 3,
    "log-normal": lambda rng, n: rng.lognormal(0.0, 1.0, n),
}


def main() -> None:
    """Measure what is missing, and print the tables."""
    options = arguments()
    if options.draw_lines:
        draw_lines(options.draw_lines)
        return
    if options.draw:
        draw(options.draw)
        return
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {tuple(key): value for key, value in map(json.loads, lines)}

    def measured(*key: Any, by: Callable[[], Any]) -> Any:
        if key not in done:
            done[key] = by()
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([list(key), done[key]]) + "\n")
            print(*key, done[key], flush=True)
        return done[key]

    if options.ellipsoids:
        ellipsoids(options.runs, measured)
        return
    lines_without_bounds(options.runs, measured)
    if options.lines:
        return
    one_column(options.runs, measured)
    coinpress_means(options.runs, measured)
    coinpress_covariances(options.runs, measured)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--results", type=Path, default=Path("means.jsonl"))
    parser.add_argument("--lines", action="store_true", help="measure lines alone")
    parser.add_argument("--ellipsoids", action="store_true", help="measure ellipsoids alone")
    parser.add_argument("--draw", type=Path, help="draw what was measured, and measure nothing")
    parser.add_argument("--draw-lines", type=Path, help="draw lines and ellipsoids, likewise")
    return parser.parse_args()


# One column


METHODS = ("no bounds", "own bounds", "10 deviations", "1,000 deviations")


def lines_without_bounds(runs: int, measured: Callable[..., Any]) -> None:
    """Print the table of lines."""
    kinds = ("TukeyEM", "AdaSSP, 5", "AdaSSP, 100")
    print("| rows | features |" + "".join(f" {k}, {e:g} |" for e in EPSILONS for k in kinds))
    print("|---|---|" + "---|" * (len(kinds) * len(EPSILONS)))
    for n in (10_000, 30_000, 100_000):
        for features in (2, 10):
            cells = [
                measured(
                    "line", n, features, epsilon, kind, runs,
                    by=lambda n=n, d=features, e=epsilon, kind=kind: float(
                        np.median([line_error(n, d, e, kind, seed) for seed in range(runs)])
                    ),
                )
                for epsilon in EPSILONS
                for kind in kinds
            ]  # fmt: skip
            print(f"| {n:,} | {features} |" + "".join(f" {cell:.2g} |" for cell in cells))


def line_error(rows: int, features: int, epsilon: float, kind: str, seed: int) -> float:
    """Return the error of one run; infinite where nothing is released."""
    rng = np.random.default_rng(seed)
    x, b = rng.normal(size=(rows, features)), rng.uniform(-1, 1, features)
    y = 1 + x @ b + rng.normal(size=rows)
    names = [f"x{j}" for j in range(features)]
    data = dict(zip(names, x.T, strict=True)) | {"y": y}
    if kind == "TukeyEM":
        table = dp.dataset("t", columns=dict.fromkeys(data))
        solver: Any = dp.statistics.TukeyEM(names, "y")
    else:
        wide = float(kind.split()[1])
        columns = dict.fromkeys(names, (-wide, wide))
        columns["y"] = (-wide * float(y.std()), wide * float(y.std()))
        table = dp.dataset("t", columns=columns)
        solver = dp.AdaSSP(names, "y")
    plan = dp.Pipeline(fit=table.solve(solver, epsilon=epsilon, delta=DELTA)).with_delta(DELTA)
    fit = plan.simulate(seed=seed, t=data)["fit"]
    predicted = fit["intercept"] + x @ np.array([fit[name] for name in names])
    design = np.column_stack([np.ones(rows), x])
    least = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    error = float(np.sqrt(np.mean((predicted - least) ** 2)))
    return error if math.isfinite(error) else math.inf


SHAPED = ("Mean", "correlated", "AffineInvariantMean", "Covariance")


def ellipsoids(runs: int, measured: Callable[..., Any]) -> None:
    """Print the table of columns that move together."""
    axes = ("equal", "to 1e-6")
    print("| rows | columns |" + "".join(f" {k}, axes {a} |" for a in axes for k in SHAPED))
    print("|---|---|" + "---|" * (len(SHAPED) * len(axes)))
    for n in (5_000, 10_000, 30_000, 100_000):
        for width in (2, 5, 10):
            cells = [
                measured(
                    "ellipsoid", n, width, along, kind, runs,
                    by=lambda n=n, d=width, a=along, kind=kind: float(
                        np.median([ellipsoid_error(n, d, a, kind, seed) for seed in range(runs)])
                    ),
                )
                for along in axes
                for kind in SHAPED
            ]  # fmt: skip
            digits = (",.0f" if 100 <= cell < math.inf else ".2g" for cell in cells)
            shown = (f" {cell:{form}} |" for cell, form in zip(cells, digits, strict=True))
            print(f"| {n:,} | {width} |" + "".join(shown).replace(" inf ", " - "))


def ellipsoid_error(rows: int, width: int, axes: str, kind: str, seed: int) -> float:
    """Return the error of one run; infinite where nothing is released."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    lengths = np.ones(width) if axes == "equal" else np.geomspace(1, 1e-6, width)
    x = rng.normal(size=(rows, width))
    names = [f"x{j}" for j in range(width)]
    solver: Any = dp.statistics.Mean(names, correlated=kind == "correlated")
    if kind in ("AffineInvariantMean", "Covariance"):
        solver = getattr(dp.statistics, kind)(names)
    table = dp.dataset("t", columns=dict.fromkeys(names))
    plan = dp.Pipeline(m=table.solve(solver, epsilon=1.0, delta=DELTA)).with_delta(DELTA)
    data = 3 + (x * lengths) @ turn
    mean = plan.simulate(seed=seed, t=dict(zip(names, data.T, strict=True)))["m"]
    if kind == "Covariance":
        own, back = np.cov(x.T, bias=True), turn / lengths[:, None]
        found = back @ mean["covariance"] @ back.T
        return float(np.linalg.norm(found - own) / np.linalg.norm(own - np.eye(width)))
    off = np.array([mean[name] for name in names]) - data.mean(axis=0)
    error = float(np.sqrt(np.mean(np.square((off @ turn.T) / lengths)) * rows))
    return error if math.isfinite(error) else math.inf


def one_column(runs: int, measured: Any) -> None:
    """Print errors by law, rows and epsilon, and slopes."""
    print("\n| law | rows | " + " | ".join(f"{m}, {e:g}" for e in EPSILONS for m in METHODS) + " |")
    print("|---" * (2 + len(EPSILONS) * len(METHODS)) + "|")
    for law in LAWS:
        table = {}
        for n in ROWS:
            for epsilon in EPSILONS:
                table[n, epsilon] = measured(
                    "one", law, n, epsilon, by=lambda w=law, n=n, e=epsilon: errors(w, n, e, runs)
                )
            shown = [f"{v:.2g}" for epsilon in EPSILONS for v in table[n, epsilon]]
            print(f"| {law} | {n:,} | " + " | ".join(shown) + " |")
        slope = math.log(table[ROWS[-1], 1.0][0] / table[ROWS[0], 1.0][0]) / math.log(
            ROWS[-1] / ROWS[0]
        )
        mus = [largest_mu(e, DELTA) for e in (EPSILONS[0], EPSILONS[-1])]
        by_mu = math.log(table[ROWS[1], 4.0][0] / table[ROWS[1], 0.5][0]) / math.log(
            mus[1] / mus[0]
        )
        print(f"{law}: slope {slope:.2f} in rows, {by_mu:.2f} in mu")


def errors(law: str, n: int, epsilon: float, runs: int) -> list[float]:
    """Return the error of each method, over the deviation."""
    table = dp.dataset("t", columns={"x": None})
    mean = table.solve(dp.statistics.Mean(["x"]), epsilon=epsilon, delta=DELTA)
    plan, sigma = dp.Pipeline(m=mean).with_delta(DELTA), 1 / largest_mu(epsilon, DELTA)
    squares = []
    for seed in range(runs):
        rng = np.random.default_rng([seed, n])
        x = LAWS[law](rng, n)
        true, deviation = x.mean(), x.std()
        found = [plan.simulate(seed=seed, t={"x": x})["m"]["x"]]
        for low, high in [
            (x.min(), x.max()),
            *((-b * deviation, b * deviation) for b in (10, 1e3)),
        ]:
            # an average as is usual: half of mu^2 for the sum about the middle, half for the count
            half = (high - low) / 2
            middle = low + half
            noise = rng.normal(0, math.sqrt(2) * sigma, 2)
            total = np.clip(x - middle, -half, half).sum() + noise[0] * half
            found.append(middle + total / max(n + noise[1], 1.0))
        squares.append([((f - true) / deviation) ** 2 for f in found])
    return [float(v) for v in np.sqrt(np.mean(squares, axis=0))]


# CoinPress


def shares(rounds: int) -> list[float]:
    """Return the published shares of rho: three quarters for the last round."""
    return [1.0] if rounds == 1 else [0.25 / (rounds - 1)] * (rounds - 1) + [0.75]


def tail(width: int, failure: float) -> float:
    """Return the norm that a standard normal vector exceeds with the given chance at most."""
    log = math.log(1 / failure)
    return math.sqrt(width + 2 * math.sqrt(width * log) + 2 * log)


def coinpress_mean(x: Any, radius: float, rho: float, rounds: int, rng: Any) -> Any:
    """Return the mean of normal rows with covariance 1 known to lie in a ball about 0."""
    n, d = x.shape
    center = np.zeros(d)
    for share in shares(rounds):
        gamma = tail(d, 0.01)
        clip = min(math.sqrt(radius**2 + 6 * radius + gamma**2), radius + gamma)
        z = x - center
        z *= np.minimum(1, clip / np.linalg.norm(z, axis=1))[:, None]
        sigma = 2 * clip / n / math.sqrt(2 * rho * share)
        center = center + z.mean(axis=0) + rng.normal(0, sigma, d)
        radius = math.sqrt(1 / n + sigma**2) * gamma
    return center


def coinpress_covariance(x: Any, most: float, rho: float, rounds: int, rng: Any) -> Any:
    """Return the covariance of normal rows of mean 0, known to be at most ``most``."""
    n, d = x.shape
    matrix = np.eye(d) / math.sqrt(most)
    for i, share in enumerate(shares(rounds)):
        gamma = tail(d, 0.1)
        eta = 0.5 * (2 * math.sqrt(d / n) + d / n)
        w = x @ matrix.T
        w *= np.minimum(1, gamma / np.linalg.norm(w, axis=1))[:, None]
        noise = rng.normal(0, gamma**2 / (n * math.sqrt(rho * share)), (d, d))
        z = w.T @ w / n + np.triu(noise) + np.triu(noise, 1).T
        values, basis = np.linalg.eigh(z)
        z = (basis * np.maximum(values, 0)) @ basis.T
        if i < rounds - 1:
            values, basis = np.linalg.eigh(z + eta * np.eye(d))
            matrix = (basis / np.sqrt(values)) @ basis.T @ matrix
    back = np.linalg.inv(matrix)
    return back @ z @ back.T


def epsilon_of_mu(mu: float) -> float:
    """Return the epsilon of a mu at `DELTA`."""

    def excess(epsilon: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - DELTA)

    return float(brentq(excess, 1e-3, 100))


def coinpress_means(runs: int, measured: Any) -> None:
    """Print the errors of the mean of 50 columns."""
    print("\n| rows | no noise | " + " | ".join(f"CoinPress, {t}" for t in range(1, 5)), end="")
    print(" | adaptive-dp |\n" + "|---" * 7 + "|")
    for n in (1_000, 2_000, 5_000, 10_000):
        found = measured("mean", n, by=lambda n=n: mean_errors(n, 50, runs))
        print(f"| {n:,} | " + " | ".join(f"{v:.3f}" for v in found) + " |")


def mean_errors(n: int, d: int, runs: int) -> list[float]:
    """Return l2 errors: without noise, of CoinPress by rounds, and of `dp.statistics.Mean`."""
    names = [f"x{i}" for i in range(d)]
    table = dp.dataset("t", columns=dict.fromkeys(names), neighbors="replace_one")
    learner = dp.statistics.Mean(names)
    plan = dp.Pipeline(m=table.solve(learner, epsilon=epsilon_of_mu(1.0), delta=DELTA))
    plan = plan.with_delta(DELTA)
    found = []
    for seed in range(runs):
        rng = np.random.default_rng([seed, n, d])
        x = rng.normal(size=(n, d)) + 1
        each = [x.mean(axis=0)]
        each += [coinpress_mean(x, 10 * math.sqrt(d), 0.5, t, rng) for t in range(1, 5)]
        ours = plan.simulate(seed=seed, t=dict(zip(names, x.T, strict=True)))["m"]
        each.append(np.array([ours[name] for name in names]))
        found.append([float(np.linalg.norm(mean - 1)) for mean in each])
    return [float(v) for v in trim_mean(found, 0.1, axis=0)]


def coinpress_covariances(runs: int, measured: Any) -> None:
    """Print the errors of the covariance of 10 columns, spherical and not."""
    print(
        "\n| axes | rows | no noise | " + " | ".join(f"CoinPress, {t}" for t in range(1, 5)), end=""
    )
    print(" | adaptive-dp |\n" + "|---" * 8 + "|")
    for axes in ("equal", "1 to 5"):
        for n in (3_000, 5_000, 8_000, 30_000):
            key = ("covariance", axes, n)
            found = measured(*key, by=lambda n=n, a=axes: covariance_errors(n, 10, a, runs))
            print(f"| {axes} | {n:,} | " + " | ".join(f"{v:.3f}" for v in found) + " |")


def covariance_errors(n: int, d: int, axes: str, runs: int) -> list[float]:
    """Return errors in Mahalanobis' norm, as `mean_errors` does."""
    names = [f"x{i}" for i in range(d)]
    table = dp.dataset("t", columns=dict.fromkeys(names), neighbors="replace_one")
    learner = dp.statistics.Covariance(names)
    plan = dp.Pipeline(c=table.solve(learner, epsilon=epsilon_of_mu(1.0), delta=DELTA))
    plan = plan.with_delta(DELTA)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    root = np.eye(d) if axes == "equal" else turn * np.geomspace(1, 5, d)
    back, found = np.linalg.inv(root), []
    for seed in range(runs):
        rng = np.random.default_rng([seed, n, d])
        x = rng.normal(size=(n, d)) @ root.T
        each = [np.cov(x.T)]
        most = 10 * math.sqrt(d)
        each += [coinpress_covariance(x, most, 0.5, t, rng) for t in range(1, 5)]
        each.append(
            plan.simulate(seed=seed, t=dict(zip(names, x.T, strict=True)))["c"]["covariance"]
        )
        found.append([float(np.linalg.norm(back @ c @ back.T - np.eye(d))) for c in each])
    return [float(v) for v in trim_mean(found, 0.1, axis=0)]


def draw(file: Path) -> None:
    """Draw errors by rows: of one column, of 50 means and of a covariance."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
    one = [row for row in published("| law | rows |") if row[0] == "log-normal"]
    for i, method in enumerate(METHODS):
        line = [row[2 + len(METHODS) + i] for row in one]  # at epsilon 1, the second of three
        axes[0].loglog([row[1] for row in one], line, marker="o", label=method)
    axes[0].set_title("one log-normal column, epsilon 1")
    axes[0].set_ylabel("error over the deviation")
    labels = [
        "no noise",
        *(f"CoinPress, {t} rounds" for t in range(1, 5)),
        "adaptive-dp, no bounds",
    ]
    tables = {
        "50 means, rho 0.5": published("| rows | no noise |"),
        "covariance of 10, axes 1 to 5, rho 0.5": [
            row[1:] for row in published("| axes | rows |") if row[0] == "1 to 5"
        ],
    }
    for axis, (title, rows) in zip(axes[1:], tables.items(), strict=True):
        for i, label in enumerate(labels, 1):
            style = "k:" if i == 1 else "o-" if i == 6 else "--"
            axis.loglog([row[0] for row in rows], [row[i] for row in rows], style, label=label)
        axis.set_title(title)
    for axis in axes:
        axis.set_xlabel("rows")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110, metadata={"Software": None})


def published(begin: str) -> list[list[Any]]:
    """Return the cells of the page's table that begins so: numbers, infinite for none, and str."""
    page = Path(__file__).parents[1] / "docs/statistics/means.md"
    rows = []
    for line in page.read_text(encoding="utf-8").split(begin)[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        row: list[Any] = []
        for cell in (cell.strip(" *").replace(",", "") for cell in line.strip("|").split("|")):
            try:
                row.append(math.inf if cell == "-" else float(cell))
            except ValueError:
                row.append(cell)
        rows.append(row)
    return rows


def draw_lines(file: Path) -> None:
    """Draw a released line among rows, and errors by rows of lines and of ellipsoids."""
    import matplotlib as mpl

    mpl.use("Agg")
    import pandas as pd
    from matplotlib import pyplot as plt

    from adaptive_dp import demo

    people = pd.read_csv(Path(demo.__file__).parent / "randhie.csv.gz")
    table = dp.dataset("people", columns={"education": None, "income": None}, unit="person")
    line = table.solve(dp.statistics.TukeyEM(["education"], "income"), epsilon=1.0, delta=DELTA)
    data = people[["person", "education", "income"]]
    fit = dp.Pipeline(line=line).with_delta(DELTA).simulate(seed=1, people=data)["line"]
    data = data.dropna()
    figure, (picture, *axes) = plt.subplots(1, 4, figsize=(15, 3.8))
    x, rng = np.array([0.0, 25.0]), np.random.default_rng(0)
    shown = data.iloc[::5]
    picture.plot(
        shown["education"] + rng.uniform(-0.4, 0.4, len(shown)), shown["income"], ".", ms=1, c="0.7"
    )
    least = np.polyfit(data["education"], data["income"], 1)
    picture.plot(x, np.polyval(least, x), "k:", label="least squares, not private")
    picture.plot(x, fit["intercept"] + fit["education"] * x, "C3", label="TukeyEM, epsilon 1")
    picture.set_title("income by years of education")
    picture.set_ylim(0, 25_000)
    lines = published("| rows | features | TukeyEM, 0.5 |")
    for features in (2, 10):
        own = [(row[0], row[5:8]) for row in lines if row[1] == features]
        for i, name in enumerate(("TukeyEM", "AdaSSP, 5", "AdaSSP, 100")):
            style = ("o" if i == 0 else "s" if i == 1 else "^") + ("-" if features == 2 else "--")
            axes[0].loglog(
                [n for n, _ in own], [v[i] for _, v in own], style, c=f"C{i}",
                label=f"{name}, {features} features",
            )  # fmt: skip
    axes[0].set_title("lines: error at epsilon 1")
    shaped = published("| rows | columns | Mean, axes equal |")
    for axis, first, title in ((axes[1], 2, "equal axes"), (axes[2], 6, "axes 1 to 1e-6")):
        for width in (2, 10):
            own = [(row[0], row[first : first + 4]) for row in shaped if row[1] == width]
            for i, name in enumerate(SHAPED):
                points = [(n, v[i]) for n, v in own if v[i] < math.inf]
                axis.loglog(
                    *zip(*points, strict=True), "o-" if width == 2 else "s--", c=f"C{i}",
                    label=f"{name}, {width} columns",
                )  # fmt: skip
        axis.axhline(1, c="k", ls=":")
        axis.set_title(f"means and covariances, {title}")
        axis.set_ylabel("error over the sample's")
    for axis in axes:
        axis.set_xlabel("rows")
        axis.grid(alpha=0.3)
    for axis in (picture, *axes):
        axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(file, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
