"""Private linear regressions beside each other, on CSV files of your own.

    python benchmarks/regression.py FOLDER
    python benchmarks/regression.py FOLDER --sets wine pol --epsilon 0.1 1 10 --seeds 5 --plot r.png
    python benchmarks/regression.py FOLDER --cells
    python benchmarks/regression.py FOLDER --published --learners AdaOPS AdaSSP

Each ``name.csv`` or ``name.csv.gz`` of the folder has numbers only, no header, the target in the
last column. A fifth of the rows is held out; printed is the mean squared error on it over the
target's variance there (1: no better than the mean), the mean over seeds. "not private" is least
squares on the clipped data.

Bounds have to be declared without looking. Here they are each column's 1% and 99% quantiles, as
a person who knows the field would roughly choose them: a choice for comparing learners, which all
get the same bounds, and not private. Output perturbation's public ridge is
``3 sqrt(n)``. Delta is 1e-6; AdaSSP is calibrated as a whole, like the others. Noisy gradient
descent has the settings of `adaptive_dp.sklearn.PrivateRidge`.

With ``--cells``, BoostedSSP is set against the better of SSP and noisy gradient descent, set by set
and epsilon by epsilon: which of them is better is decided on the held-out rows, which is not
possible in practice. A cell is a tie where the difference of means, seed by seed, is within 2.6 of
its standard errors.

With ``--published``, the sets are scaled as by Wang (2018): features to mean 0 and deviation 1,
each row to norm 1, targets to mean 0 and largest size 1; printed is the mean squared error over ten
folds. "best sample" is what no draw of ``N(theta, (X'X + ridge I)^-1 / gamma)`` can be below on
average: nothing is released for it, gamma is the largest at which these data and the same with one
row more, of norm 1 along the least eigenvalue, are told apart by no more than epsilon and delta,
and the ridge is the best for the held-out rows. A private learner cannot know these.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import math
from pathlib import Path

import numpy as np

import adaptive_dp as dp
from adaptive_dp.instance.ridge import posterior_profile
from adaptive_dp.sklearn.estimators import DESCENT

DELTA = 1e-6
LEARNERS = (
    "BoostedSSP",
    "SSP",
    "AdaSSP",
    "AdaOPS",
    "OPS",
    "adaptive perturbation",
    "output perturbation",
    "gradient descent",
)
CELLS = ("SSP", "gradient descent", "BoostedSSP")


def main() -> None:
    """Print a table for each set."""
    options = arguments()
    files = sorted([*options.folder.glob("*.csv"), *options.folder.glob("*.csv.gz")])
    files = [f for f in files if not options.sets or f.name.partition(".")[0] in options.sets]
    if not files:
        sys.exit(f"no .csv or .csv.gz of that name in {options.folder}")
    if options.cells:
        return cells(files, options)
    if options.published:
        return published(files, options)
    results = {f.name.partition(".")[0]: measured(f, options) for f in files}
    if options.plot:
        plot(results, options)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the CSV files")
    parser.add_argument("--sets", nargs="*", default=[], help="names of files; all by default")
    parser.add_argument("--epsilon", nargs="*", type=float, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learners", nargs="*", default=LEARNERS, choices=LEARNERS)
    parser.add_argument("--plot", help="write a picture")
    parser.add_argument("--cells", action="store_true", help="BoostedSSP against the better of two")
    parser.add_argument("--published", action="store_true", help="scaled as by Wang (2018)")
    options = parser.parse_args()
    if options.epsilon is None:
        options.epsilon = (
            [0.1, 1.0, 10.0] if options.cells or options.published else [0.1, 0.3, 1.0, 3.0, 10.0]
        )
    return options


def measured(file: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return errors by learner, for each epsilon; print them."""
    seen, held_out = parts(file)
    bounds = bounds_of(seen)
    best = error(clipped_fit(seen, bounds), held_out)
    names = ["not private", *options.learners]
    rows = len(seen) + len(held_out)
    print(f"\n{file.name.partition('.')[0]}: {rows} rows, {seen.shape[1] - 1} features")
    print("epsilon  ", *(f"{name:>20s}" for name in names))
    table: dict[str, list[float]] = {name: [] for name in names}
    for epsilon in options.epsilon:
        line = [best]
        for name in options.learners:
            line.append(
                float(np.mean(errors(name, bounds, seen, held_out, epsilon, options.seeds)))
            )
        for name, value in zip(names, line, strict=True):
            table[name].append(value)
        print(f"{epsilon:<9g}", *(f"{value:20.4g}" for value in line), flush=True)
    return table


def cells(files: list[Path], options: argparse.Namespace) -> None:
    """Print each cell: means, their standard errors, and whether BoostedSSP wins, ties or loses."""
    counts = dict.fromkeys(("win", "tie", "loss"), 0)
    print(f"{'set':12s} epsilon", *(f"{name:>20s}" for name in CELLS), "   difference  verdict")
    for file in files:
        seen, held_out = parts(file)
        bounds = bounds_of(seen)
        for epsilon in options.epsilon:
            results = [errors(n, bounds, seen, held_out, epsilon, options.seeds) for n in CELLS]
            *others, ours = results
            apart = ours - min(others, key=np.mean)
            verdict = verdict_of(apart)
            counts[verdict] += 1
            shown = (f"{e.mean():11.4f} ({spread(e):6.4f})" for e in results)
            name = file.name.partition(".")[0]
            off = f"{apart.mean():+.4f}"
            print(f"{name:12s} {epsilon:<7g}", *shown, f"{off:>13s}  {verdict}", flush=True)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counts.items()))


FOLDS = 10


def published(files: list[Path], options: argparse.Namespace) -> None:
    """Print the mean squared errors of sets that are scaled as by Wang (2018)."""
    names = ["not private", "0", "best sample", *options.learners]
    print(f"{'set':12s} epsilon", *(f"{name:>20s}" for name in names))
    for file in files:
        rows = scaled(np.loadtxt(file, delimiter=",", ndmin=2))
        order = np.random.default_rng(0).permutation(len(rows))
        parts = np.array_split(order, FOLDS)
        folds = [(rows[np.setdiff1d(order, part)], rows[part]) for part in parts]
        bounds = {f"c{i}": (-1.0, 1.0) for i in range(rows.shape[1])}
        fits = [np.linalg.lstsq(seen[:, :-1], seen[:, -1], rcond=None)[0] for seen, _ in folds]
        line = [np.mean([squared([0.0, *f], out) for f, (_, out) in zip(fits, folds, strict=True)])]
        line.append(np.mean(rows[:, -1] ** 2))
        for epsilon in options.epsilon:
            samples = np.mean([sample_errors(*fold, epsilon) for fold in folds], axis=0).min()
            shown = [*line, samples]
            for name in options.learners:
                plan = planned(name, bounds, len(folds[0][0]), epsilon, norm=math.sqrt(2))
                cell = [
                    squared(fitted(plan, seen, FOLDS * seed + k), out)
                    for k, (seen, out) in enumerate(folds)
                    for seed in range(options.seeds)
                ]
                shown.append(np.mean(cell))
            name = file.name.partition(".")[0]
            print(f"{name:12s} {epsilon:<7g}", *(f"{v:20.4f}" for v in shown), flush=True)


def scaled(rows: np.ndarray) -> np.ndarray:
    """Return rows of norm 1 beside targets of mean 0 in [-1, 1]."""
    features, target = rows[:, :-1], rows[:, -1] - rows[:, -1].mean()
    spread = features.std(axis=0)
    features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    features = features / np.linalg.norm(features, axis=1, keepdims=True)
    return np.column_stack([features, target / np.abs(target).max()])


def sample_errors(seen: np.ndarray, held_out: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the expected errors of posterior samples as hot as epsilon allows, for each ridge."""
    x, y = held_out[:, :-1], held_out[:, -1]
    values, basis = np.linalg.eigh(seen[:, :-1].T @ seen[:, :-1])
    cross = basis.T @ (seen[:, :-1].T @ seen[:, -1])
    ridges = np.concatenate([[1e-3], np.geomspace(0.1, 1e6, 71)])[:, None]
    curvature = np.maximum(values, 0.0) + ridges
    thetas = cross / curvature
    # the row v that is longest along the least eigenvalue, with the target that is farthest off
    leverage, residual = 1 / curvature[:, 0], 1 + np.abs(thetas[:, 0])
    low, high = np.full(len(ridges), -30.0), np.full(len(ridges), 30.0)
    for _ in range(50):  # the largest gamma, as a logarithm
        middle = (low + high) / 2
        gap = np.exp(middle / 2) * np.sqrt(leverage) * residual
        private = posterior_profile(epsilon, leverage, np.minimum(gap, 1e6)) <= DELTA
        low, high = np.where(private, middle, low), np.where(private, high, middle)
    seen_by = ((x @ basis) ** 2).mean(axis=0)  # of a test row along each eigenvector
    bias = np.array([np.mean((y - (x @ basis) @ theta) ** 2) for theta in thetas])
    return np.asarray(bias + (seen_by / curvature).sum(axis=1) / np.exp(high))


def squared(fit: list[float], rows: np.ndarray) -> float:
    """Return the mean squared error."""
    return error(fit, rows) * float(np.var(rows[:, -1]))


def verdict_of(apart: np.ndarray) -> str:
    """Return what differences of errors, one a seed, amount to."""
    if abs(apart.mean()) <= 2.6 * spread(apart):
        return "tie"
    return "win" if apart.mean() < 0 else "loss"


def spread(values: np.ndarray) -> float:
    """Return the standard error of a mean."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def parts(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to learn from, and a fifth that is held out."""
    rows = np.loadtxt(file, delimiter=",", ndmin=2)
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order[len(rows) // 5 :]], rows[order[: len(rows) // 5]]


def errors(
    name: str,
    bounds: dict[str, tuple[float, float]],
    seen: np.ndarray,
    held_out: np.ndarray,
    epsilon: float,
    seeds: int,
) -> np.ndarray:
    """Return a learner's errors on the held-out rows, one a seed."""
    plan = planned(name, bounds, len(seen), epsilon)
    return np.array([error(fitted(plan, seen, seed), held_out) for seed in range(seeds)])


def bounds_of(rows: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return the stand-ins for declared bounds; a constant column gets an interval around it."""
    low, high = np.quantile(rows, [0.01, 0.99], axis=0)
    high = np.where(high > low, high, low + np.maximum(1e-3, np.abs(low) * 1e-3))
    return {f"c{i}": (float(a), float(b)) for i, (a, b) in enumerate(zip(low, high, strict=True))}


def planned(
    name: str,
    bounds: dict[str, tuple[float, float]],
    count: int,
    epsilon: float,
    norm: float | None = None,
) -> dp.Pipeline:
    """Return a learner's plan; ``norm`` is of rows with their intercept, by default the largest."""
    *features, target = bounds
    table = dp.dataset("rows", columns=bounds)
    if name in ("AdaSSP", "SSP", "BoostedSSP"):
        solver = {
            "AdaSSP": dp.AdaSSP(features, target, norm=norm),
            "SSP": dp.SSP(features, target, norm=norm),
            "BoostedSSP": dp.BoostedSSP(features, target),  # its norm is the largest
        }[name]
        return dp.Pipeline(fit=table.solve(solver)).calibrate(epsilon=epsilon, delta=DELTA)
    learner = {
        "AdaOPS": dp.AdaOPS(features, target, norm=norm),
        "OPS": dp.OPS(features, target, norm=norm),
        "adaptive perturbation": dp.AdaptiveOutputPerturbation(features, target, norm=norm),
        "output perturbation": dp.OutputPerturbation(features, target, ridge=3 * math.sqrt(count)),
        "gradient descent": dp.NoisyGradientDescent(features, target, **DESCENT),
    }[name]
    fit = table.solve(learner, epsilon=epsilon, delta=DELTA)
    return dp.Pipeline(fit=fit).with_delta(DELTA)


def fitted(plan: dp.Pipeline, rows: np.ndarray, seed: int) -> list[float]:
    """Return coefficients, the intercept first."""
    frame = {f"c{i}": rows[:, i] for i in range(rows.shape[1])}
    return list(plan.simulate(seed=seed, rows=frame)["fit"].values())


def clipped_fit(rows: np.ndarray, bounds: dict[str, tuple[float, float]]) -> list[float]:
    """Return the least squares of what every learner sees."""
    low, high = np.array(list(bounds.values())).T
    inside = np.clip(rows, low, high)
    design = np.column_stack([np.ones(len(rows)), inside[:, :-1]])
    return list(np.linalg.lstsq(design, inside[:, -1], rcond=None)[0])


def error(fit: list[float], rows: np.ndarray) -> float:
    """Return the mean squared error over the target's variance."""
    target = rows[:, -1]
    predicted = fit[0] + rows[:, :-1] @ np.array(fit[1:])
    return float(np.mean((target - predicted) ** 2) / np.var(target))


def plot(results: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> None:
    """Write one panel a set, at most five in a row, under one legend."""
    import matplotlib.pyplot as plt

    wide = min(5, len(results))
    high = -(-len(results) // wide)
    figure, axes = plt.subplots(
        high,
        wide,
        figsize=(max(3.0 * wide, 6.0), 2.6 * high + 0.9),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(results) :]:
        axis.set_visible(False)
    for place, (axis, (name, table)) in enumerate(zip(axes.flat, results.items(), strict=False)):
        for learner, errors in table.items():
            style = "k--" if learner == "not private" else "o-"
            axis.plot(options.epsilon, errors, style, label=learner, markersize=3, linewidth=1.2)
        axis.set(xscale="log", yscale="log")
        axis.set_title(name, fontsize=10)
        axis.tick_params(which="both", labelsize=8)
        if place + wide >= len(results):  # the bottom row
            axis.set_xlabel("epsilon", fontsize=9)
    figure.supylabel("squared error over variance", fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(len(labels), 2 * wide), fontsize=9
    )
    figure.savefig(options.plot, dpi=150)


if __name__ == "__main__":
    main()
