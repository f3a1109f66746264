"""Would private boosted trees be more accurate: a flattered sketch of them, beside shapes.

    python benchmarks/private_trees.py FOLDER --sets adult magic --epsilon 1 4

Trees whose splits are random (a feature, and one of its quantiles), so that they cost nothing, and
whose leaves are sums of clipped slopes with Gaussian noise, all of mu^2 on these sums: what is
known as a private random boosted forest. The sketch is flattered: quantiles and the leaves' counts
are exact and free, and the best of all depths, numbers of trees and rates is taken by looking at
the test rows. FOLDER is what ``corpus.py --to FOLDER`` wrote. Not private, and no learner.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parent))

import corpus

import adaptive_dp as dp
from adaptive_dp.mechanisms.additive import largest_mu

DELTA = 1e-5
GRID = list(itertools.product((2, 4, 6), (30, 100, 300), (0.1, 0.3)))
"""Depths, numbers of trees, and rates."""

Array = np.ndarray[Any, Any]


def ranks(these: corpus.Rows, train: Array) -> Array:
    """Return each feature as the share of training rows below; categories by frequency."""
    columns = []
    for name in these.features:
        values = these.data[name]
        if isinstance(these.columns[name], list):
            levels, counts = np.unique(values[train], return_counts=True)
            order = {level: i for i, level in enumerate(levels[np.argsort(-counts)])}
            values = np.array([order.get(v, len(order)) for v in values], dtype=float)
        columns.append(np.searchsorted(np.sort(values[train]), values) / len(train))
    return np.column_stack(columns)


def trees(
    x: Array, y: Array, train: Array, mu: float, seed: int, options: tuple[int, int, float]
) -> Array:
    """Return the scores of all rows; y is -1 or 1, or a number in [-1, 1]."""
    depth, count, rate = options
    draw, score = np.random.default_rng(seed), np.zeros(len(y))
    classes = set(np.unique(y)) == {-1.0, 1.0}
    for _ in range(count):
        leaf = np.zeros(len(y), dtype=int)
        for _ in range(depth):
            # one random split for all nodes of a level, as oblivious trees have
            leaf = 2 * leaf + (x[:, draw.integers(x.shape[1])] > draw.uniform(0.02, 0.98))
        slope = -y / (1 + np.exp(y * score)) if classes else score - y
        size = 0.5 if classes else 3 * max(float(np.std(slope[train])), 1e-3)
        sums = np.bincount(leaf[train], np.clip(slope[train], -size, size), 2**depth)
        noise = size / (mu / count**0.5)
        sums = sums + draw.normal(0, noise, 2**depth)
        rows = np.bincount(leaf[train], minlength=2**depth)
        score = score - rate * (sums / ((0.25 if classes else 1.0) * rows + noise))[leaf]
    return score


def main() -> None:
    """Print a line for each set and epsilon: the best of all trees, and the additive model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="*", default=["adult", "magic", "bikes", "wage"])
    parser.add_argument("--epsilon", nargs="*", type=float, default=[0.5, 1.0, 4.0, 8.0])
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    for name in options.sets:
        these = corpus.load(name, corpus.SETS, options.folder)
        goal, target = these.columns["target"], these.data["target"]
        number = not isinstance(goal, list)
        middle, half = ((goal[0] + goal[1]) / 2, (goal[1] - goal[0]) / 2) if number else (0.0, 1.0)
        y = (target - middle) / half if number else np.where(target == goal[1], 1.0, -1.0)
        table = dp.dataset("rows", columns=these.columns)
        for epsilon in options.epsilon:
            found: dict[Any, list[float]] = {}
            for split in range(options.splits):
                order = np.random.default_rng(split).permutation(len(y))[:20_000]
                test, train = order[: len(order) // 4], order[len(order) // 4 :]

                def good(
                    score: Array, test: Array = test, y: Array = y, number: bool = number
                ) -> float:
                    if not number:
                        return float(roc_auc_score(y[test] > 0, score))
                    base = np.sum((y[test] - y[test].mean()) ** 2)
                    return float(1 - np.sum((y[test] - score) ** 2) / base)

                x = ranks(these, train)
                for choice in GRID:
                    mu = largest_mu(epsilon, DELTA)
                    score = trees(x, y, train, mu, split, choice)
                    found.setdefault(choice, []).append(good(score[test]))
                learner = dp.AdditiveModel(these.features, "target")
                model = table.solve(learner, epsilon=epsilon, delta=DELTA)
                plan = dp.Pipeline(model=model).with_delta(DELTA)
                rows = {column: values[train] for column, values in these.data.items()}
                fit = plan.simulate(seed=split, rows=rows)["model"]
                said = np.asarray(dp.predict(fit, {c: these.data[c][test] for c in these.features}))
                found.setdefault("additive", []).append(good((said - middle) / half))
            additive = np.mean(found.pop("additive"))
            best = max(found, key=lambda choice: np.mean(found[choice]))
            print(
                f"{name:12} epsilon {epsilon:<4g} best trees {np.mean(found[best]):.3f} "
                f"(depth, trees, rate: {best}), additive model {additive:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
