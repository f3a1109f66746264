"""Tables of topics and of the auction: ``python benchmarks/tables.py topics_by_documents``."""

from __future__ import annotations

import itertools
import math

import numpy as np

import adaptive_dp as dp
from benchmarks.tests import markdown


def topics_by_documents(times: int = 21, seed: int = 1) -> str:
    """Return how far recovered topics are from the true ones, by documents and epsilon."""
    laws = np.full((3, 12), 0.02)
    for i in range(3):
        laws[i, 4 * i : 4 * i + 4] = [0.3, 0.24, 0.18, 0.12]
    names = [f"w{i}" for i in range(12)]
    papers = dp.dataset("papers", columns=dict.fromkeys(names, (0, 12)))
    found = dp.statistics.topics(papers, names, 3)
    rows = []
    for epsilon in (1e6, 4.0, 1.0, 0.5):
        plan = dp.Pipeline(found=found).calibrate(epsilon=epsilon, delta=1e-6)
        row = ["without noise" if epsilon > 1e3 else f"epsilon {epsilon:g}"]
        for n in (2_000, 8_000, 32_000):
            rng = np.random.default_rng([seed, n])
            errors = []
            for run in range(times):
                kinds = rng.choice(3, n, p=[0.5, 0.3, 0.2])
                counts = np.empty((n, 12), dtype=np.int64)
                for i in range(3):
                    counts[kinds == i] = rng.multinomial(12, laws[i], int((kinds == i).sum()))
                data = dict(zip(names, counts.T, strict=True))
                result = plan.simulate(seed=run, papers=data)["found"]
                errors.append(farthest(np.asarray(result["topics"]), laws))
            row.append(f"{np.median(errors):.3f}")
        rows.append(row)
    return markdown(["", "2,000 documents", "8,000", "32,000"], rows)


def farthest(found: np.ndarray, true: np.ndarray) -> float:
    """Return the largest distance in l1 of a topic from its true one, in the best order."""
    distances = np.abs(found[:, None] - true[None]).sum(axis=2)
    orders = itertools.permutations(range(len(true)))
    return min(max(distances[i, j] for i, j in enumerate(order)) for order in orders)


def gain_from_lying() -> str:
    """Return the largest gain of a lie over its bound, by the number of other bidders."""
    prices, scale, value = np.array([1.0, 2.0, 3.5]), 4.0, 3.5

    def law(bids: list[float]) -> np.ndarray:
        revenue = np.array([p * sum(b >= p for b in bids) for p in prices]) / scale
        weights = np.exp(revenue - revenue.max())
        return np.asarray(weights / weights.sum())

    row = []
    for others in (0, 1, 2, 5, 10, 20):
        honest = float(law([value] * (others + 1)) @ (value - prices))
        gains = []
        for bid in (0.0, 1.0, 2.0):
            buys = (bid >= prices) * (value - prices)
            gains.append(float(law([value] * others + [bid]) @ buys) - honest)
        row.append(f"{max(gains) / (math.expm1(prices[-1] / scale) * honest):.3f}")
    head = ["others", *map(str, (0, 1, 2, 5, 10, 20))]
    return markdown(head, [["gain over its bound", *row]])
