"""Private k-means beside diffprivlib's and a tree coreset: cost over the best without privacy.

    python benchmarks/clustering.py --rows 10000 100000 --peers PYTHON --results FILE
    python benchmarks/clustering.py --draw docs/statistics/clustering.png

For each mixture (k clusters, d columns, n rows), for RAND and for scikit-learn's digits, and for
each epsilon: the mean squared distance of all rows to their nearest centre, over that of
scikit-learn's KMeans, best of ten starts; for mixtures also one start at the true centres. The
median over seeds. FILE keeps what was measured, a line of JSON each, so that a run that was stopped
goes on. The picture is drawn of the table in docs/statistics/clustering.md.

* *adaptive-dp*: `dp.statistics.KMeans` as it stands, delta 1e-6.
* *tree coreset*: the method of Chang and Kamath 2021, written here from its description, with its
  defaults: rows are split by the signs of 20 random directions while nodes are large, by Laplace
  counts; the leaves' sums get Gaussian noise, and k-means (best of ten) is run on their averages.
  Noises are in the published proportion, and solved by this library's accountants at the same
  epsilon and delta. Rows are centred, and its radius is the longest row's, which is more than its
  users may know.
* *diffprivlib*: its `KMeans` (Su, Cao, Li, Bertino and Jin 2016), pure epsilon, with the columns'
  bounds, in the interpreter PYTHON (``pip install 'scikit-learn<1.6' diffprivlib==0.6.6``).
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 4.0)
METHODS = ("adaptive-dp", "tree coreset", "diffprivlib")
DEPTH = 20
"""The levels of the tree."""


def main() -> None:
    """Measure what is missing, and print the table."""
    warnings.simplefilter("ignore")
    options = arguments()
    if options.worker:
        worker(options.worker)
        return
    if options.stopping:
        stopping(options.seeds)
        return
    if options.draw:
        draw(options.draw)
        return
    done = recorded(options.results)
    cells: list[tuple[Any, ...]] = [
        ("mixture", k, d, n)
        for n in options.rows
        for d in options.columns
        for k in options.clusters
    ]
    if options.sets:
        cells += [("digits", 10, 64, 1797), ("RAND", 8, 8, 20186)]
    for cell in cells:
        measure(cell, options, done)
    table(done, cells)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clusters", nargs="*", type=int, default=[4, 16, 64])
    parser.add_argument("--columns", nargs="*", type=int, default=[2, 10, 100])
    parser.add_argument("--rows", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--sets", action="store_true", help="RAND and digits too")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable, help="an interpreter with diffprivlib")
    parser.add_argument("--results", type=Path, default=Path("clustering.jsonl"))
    parser.add_argument("--draw", type=Path, help="draw what was measured, and measure nothing")
    parser.add_argument("--stopping", action="store_true", help="sessions that stop, alone")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def recorded(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return what was measured, by cell, epsilon and method."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    facts = [json.loads(line) for line in lines]
    return {(*each["cell"], each["epsilon"], each["method"]): each for each in facts}


def rows_of(cell: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return rows in [-1, 1], and the centres that they were made of, if any."""
    kind, k, d, n = cell
    if kind == "digits":
        from sklearn.datasets import load_digits

        return load_digits().data / 8 - 1, None
    if kind == "RAND":
        return rand_rows(), None
    rng = np.random.default_rng([1, k, d, n])
    centers = rng.uniform(-0.7, 0.7, (k, d))
    rows = 0.1 * rng.standard_normal((n, d))
    rows += centers[rng.integers(0, k, n)]
    return np.clip(rows, -1, 1, out=rows), centers


RAND = {
    "age": (0, 70),
    "education": (0, 25),
    "family_size": (1, 12),
    "income": (0, 20_000),
    "chronic": (0, 60),
    "coinsurance": (0, 100),
    "visits": (0, 20),
    "spending": (0, 2_000),
}
"""Columns of the health insurance experiment, with bounds as the demonstration declares them."""


def rand_rows() -> Any:
    """Return the rows of the health insurance experiment that have all columns, scaled."""
    import pandas as pd

    from adaptive_dp import demo

    frame = pd.read_csv(Path(demo.__file__).parent / "randhie.csv.gz")[list(RAND)].dropna()
    low, high = np.array(list(RAND.values()), dtype=float).T
    return (np.clip(frame.to_numpy(dtype=float), low, high) - low) / (high - low) * 2 - 1


def cost(rows: Any, centers: Any) -> float:
    """Return the mean squared distance to the nearest centre."""
    total = 0.0
    lengths = np.square(centers).sum(axis=1)
    for start in range(0, len(rows), 65_536):
        block = rows[start : start + 65_536]
        least = (lengths - 2 * block @ centers.T).min(axis=1)
        total += float((least + np.square(block).sum(axis=1)).sum())
    return total / len(rows)


def best_cost(rows: Any, k: int, centers: Any) -> float:
    """Return the least mean squared distance of the starts of scikit-learn's KMeans."""
    from sklearn.cluster import KMeans

    starts = 10 if len(rows) <= 20_000 else 2 if centers is not None else 10
    fits = [KMeans(k, n_init=starts, random_state=0).fit(rows)]
    if centers is not None:
        fits.append(KMeans(k, init=centers, n_init=1).fit(rows))
    return float(min(fit.inertia_ for fit in fits)) / len(rows)


def measure(cell: tuple[Any, ...], options: argparse.Namespace, done: dict[Any, Any]) -> None:
    """Record what a cell lacks."""
    wanted = [
        (epsilon, method)
        for epsilon in EPSILONS
        for method in METHODS
        if (*cell, epsilon, method) not in done
    ]
    if not wanted:
        return
    rows, centers = rows_of(cell)
    best = best_cost(rows, cell[1], centers)
    for epsilon, method in wanted:
        start = time.process_time()
        seeds = range(options.seeds)
        if method == "diffprivlib":
            found = in_peer(rows, cell[1], epsilon, options)
        else:
            solve = ours if method == "adaptive-dp" else tree_coreset
            found = [solve(rows, cell[1], epsilon, seed) for seed in seeds]
        if not found:
            continue
        ratios = [cost(rows, each) / best for each in found]
        fact = {
            "cell": list(cell),
            "epsilon": epsilon,
            "method": method,
            "ratios": ratios,
            "seconds": (time.process_time() - start) / len(found),
        }
        done[(*cell, epsilon, method)] = fact
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")
        print(*cell, epsilon, method, f"{np.median(ratios):.4f}", flush=True)


def ours(rows: Any, k: int, epsilon: float, seed: int) -> Any:
    """Return the centres of `dp.statistics.KMeans`."""
    return clusters_of(rows, k, epsilon, seed)["centers"]


def clusters_of(rows: Any, k: int, epsilon: float, seed: int) -> Any:
    """Return what `dp.statistics.KMeans` releases."""
    import adaptive_dp as dp

    names = [f"x{i}" for i in range(rows.shape[1])]
    table = dp.dataset("t", columns=dict.fromkeys(names, (-1, 1)))
    learner = dp.statistics.KMeans(names, clusters=k)
    plan = dp.Pipeline(found=table.solve(learner, epsilon=epsilon, delta=DELTA)).with_delta(DELTA)
    return plan.simulate(seed=seed, t=dict(zip(names, rows.T, strict=True)))["found"]


def stopping(seeds: int) -> None:
    """Print what sessions at epsilon 1 leave that stop where a round moves little.

    The first round has half of the budget, each other 5%; centres are at rest where a round moves
    them by less than 3% of the rows' spread. Beside it the same with a last round that has all that
    is left, and the plan. Costs are over that of scikit-learn; the mean over seeds.
    """
    import adaptive_dp as dp

    print(
        "| rows | k | d | rounds | left | stopped | and a last round | plan |\n" + "|---" * 8 + "|"
    )
    for n, k, width in [(n, k, d) for n in (10_000, 100_000) for k in (4, 16, 64) for d in (2, 10)]:
        rows, centers = rows_of(("mixture", k, width, n))
        names = [f"x{i}" for i in range(width)]
        table = dp.dataset("t", columns=dict.fromkeys(names, (-1.0, 1.0)))
        data, best = dict(zip(names, rows.T, strict=True)), best_cost(rows, k, centers)
        found = []
        for seed in range(seeds):
            rounds = dp.statistics.KMeans(names, clusters=k, rounds=10).in_rounds(table)
            with dp.Session(budget=dp.Budget(1.0, DELTA), seed=seed, t=data) as session:
                model, ran = session.run(rounds[0], share=0.5), 1
                while ran < 9 and not model["moved"] < 0.03 * model["spread"]:
                    model, ran = session.run(rounds[ran], share=0.05), ran + 1
                left = 0.5 - 0.05 * (ran - 1)
                last = session.run(rounds[ran], share=left * (1 - 1e-9))
            costs = [cost(rows, m["centers"]) / best for m in (model, last)]
            found.append(
                [ran, left, *costs, cost(rows, clusters_of(rows, k, 1.0, seed)["centers"]) / best]
            )
        ran, left, *costs = np.mean(found, axis=0)
        shown = f"{n:,} | {k} | {width} | {ran:.1f} | {left:.0%}"
        print(f"| {shown} |" + "".join(f" {c:.3f} |" for c in costs), flush=True)


@cache
def tree_noise(epsilon: float) -> float:
    """Return alpha: sums get noise of deviation alpha times the radius, counts of scale 20 alpha.

    A row is in one node of each of 21 levels, and in one leaf.
    """
    import adaptive_dp as dp

    table = dp.dataset("t", columns={})
    counts = dp.repeat(
        lambda state, rows: rows.count().release(dp.Laplace(scale=dp.Free("alpha", weight=20.0))),
        DEPTH + 1,
        table,
        start=0.0,
    )
    total = table.count().release(dp.Gaussian(sigma=dp.Free("alpha")))
    plan = dp.Pipeline(counts=counts, total=total).calibrate(epsilon=epsilon, delta=DELTA)
    noises = [n["mechanism"] for n in plan.to_document()["nodes"] if "mechanism" in n]
    return float(next(each["sigma"] for each in noises if "sigma" in each))


def tree_coreset(rows: Any, k: int, epsilon: float, seed: int) -> Any:
    """Return centres of k-means on the noisy averages of a tree's leaves."""
    from sklearn.cluster import KMeans

    rng, alpha = np.random.default_rng(seed), tree_noise(epsilon)
    middle = rows.mean(axis=0)
    points = rows - middle
    radius = float(np.sqrt(np.square(points).sum(axis=1)).max())
    n, d = points.shape
    bits = points @ rng.standard_normal((d, DEPTH)) >= 0

    def noisy(count: int) -> float:
        return count + rng.laplace(0, 20 * alpha)

    whole = noisy(n)
    least = max(1, min(int(10 * math.sqrt(d) * alpha), int(whole // (2 * k))))
    level, leaves = [(np.arange(n), max(whole, 1.0))], []
    for depth in range(DEPTH):
        below = []
        for own, count in level:
            children = []
            if count >= 3 * least:
                for side in (False, True):
                    inside = own[bits[own, depth] == side]
                    children.append((inside, noisy(len(inside))))
            large = [child for child in children if child[1] >= least]
            below += large
            if not large:
                leaves.append((own, count))
        level = below
    leaves += level
    weights = np.array([count for _, count in leaves])
    sums = np.array([points[own].sum(axis=0) for own, _ in leaves])
    sums += alpha * radius * rng.standard_normal(sums.shape)
    means = sums / weights[:, None]
    means *= np.minimum(1, radius / np.maximum(np.linalg.norm(means, axis=1), 1e-9))[:, None]
    fit = KMeans(min(k, len(means)), n_init=10, random_state=seed)
    return fit.fit(means, sample_weight=weights).cluster_centers_ + middle


def in_peer(rows: Any, k: int, epsilon: float, options: argparse.Namespace) -> list[Any]:
    """Return diffprivlib's centres, by seed; none where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, rows=rows, k=k, epsilon=epsilon, seeds=options.seeds)
        command = [options.peers, __file__, "--worker", str(file)]
        if subprocess.run(command, check=False).returncode:
            print("diffprivlib is missing", file=sys.stderr)
            return []
        with np.load(file.with_suffix(".out.npz")) as found:
            return [found[name] for name in found.files]


def worker(file: Path) -> None:
    """Write diffprivlib's centres beside a file of rows."""
    from diffprivlib.models import KMeans

    with np.load(file) as data:
        rows, k = data["rows"], int(data["k"])
        epsilon, seeds = float(data["epsilon"]), int(data["seeds"])
    found = {
        str(seed): KMeans(k, epsilon=epsilon, bounds=(-1, 1), random_state=seed)
        .fit(rows)
        .cluster_centers_
        for seed in range(seeds)
    }
    np.savez(file.with_suffix(".out.npz"), **found)


def table(done: dict[Any, Any], cells: list[tuple[Any, ...]]) -> None:
    """Print the medians as a table in Markdown."""
    print(
        "\n| rows | k | d | " + " | ".join(f"{m}, {e:g}" for e in EPSILONS for m in METHODS) + " |"
    )
    print("|---" * (3 + len(EPSILONS) * len(METHODS)) + "|")
    for cell in cells:
        kind, k, d, n = cell
        shown = []
        for epsilon in EPSILONS:
            each = [done.get((*cell, epsilon, method)) for method in METHODS]
            medians = [float(np.median(one["ratios"])) if one else math.nan for one in each]
            best = min(v for v in [*medians, math.inf] if not math.isnan(v))
            shown += [f"**{v:.3f}**" if v == best else f"{v:.2f}" for v in medians]
        name = f"{n:,}" if kind == "mixture" else kind
        print(f"| {name} | {k} | {d} | " + " | ".join(shown) + " |")


def published() -> list[tuple[float, dict[tuple[str, float], float]]]:
    """Return the rows of a cluster, and the ratios, of each mixture in the page's table."""
    page = Path(__file__).parents[1] / "docs/statistics/clustering.md"
    lines = page.read_text(encoding="utf-8").split("| rows | k | d |")[1].splitlines()[2:]
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows, k, _, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        if rows.replace(",", "").isdigit():
            keys = [(method, epsilon) for epsilon in EPSILONS for method in METHODS]
            ratios = dict(zip(keys, map(float, cells), strict=True))
            table.append((int(rows.replace(",", "")) / int(k), ratios))
    return table


LEAST = 5e-4
"""The table has three digits: a ratio of 1.000 is drawn here."""


def draw(file: Path) -> None:
    """Draw the excess cost of each method by the rows of each cluster, for each epsilon."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (picture, *axes) = plt.subplots(1, 1 + len(EPSILONS), figsize=(13, 3.6))
    rows, _ = rows_of(("mixture", 16, 2, 10_000))
    found = clusters_of(rows, 16, 1.0, 1)
    picture.plot(*rows[::4].T, ".", markersize=1, color="0.7")
    picture.scatter(*found["centers"].T, s=np.maximum(found["counts"], 1) / 8, alpha=0.5)
    picture.plot(*found["centers"].T, "k+")
    picture.set_title("16 clusters, 10,000 rows, epsilon 1")
    marks = {"adaptive-dp": "o", "tree coreset": "s", "diffprivlib": "^"}
    for axis, epsilon in zip(axes, EPSILONS, strict=True):
        for method in METHODS:
            points = [(n, max(ratios[method, epsilon] - 1, LEAST)) for n, ratios in published()]
            axis.loglog(*zip(*points, strict=True), marks[method], label=method, alpha=0.7)
        axis.set_title(f"epsilon {epsilon:g}")
        axis.set_xlabel("rows of a cluster")
        axis.grid(alpha=0.3)
        axis.set_ylim(LEAST / 2, 60)
    axes[0].set_ylabel("cost over the best, less 1")
    axes[0].legend(loc="lower left")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
