"""How fast votes' data-dependent losses are: run it with ``python benchmarks/votes.py``.

Prints times in one process, with one thread, on made-up votes of 250 teachers, beside one query at
a time: Theorem 6 of Papernot et al. 2018 at the orders of its Proposition 8, in plain Python, timed
on a few hundred queries. Both must agree.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from accountants import ConfidentVotes, GaussianVotes, LaplaceVotes

T = TypeVar("T")

TEACHERS, CLASSES, SIGMA = 250, 10, 40.0
ORDERS = 1 + np.geomspace(0.05, 500, 50)


def one_query(counts: Sequence[int], order: float) -> float:
    """Return Theorem 6 on one query's counts, or the worst case where it is not proven."""
    worst = order / SIGMA**2
    ordered = sorted(counts, reverse=True)
    q = sum(math.erfc((ordered[0] - n) / (2 * SIGMA)) for n in ordered[1:]) / 2
    if not 0 < q < 1:
        return 0.0 if q <= 0 else worst
    m2 = SIGMA * math.sqrt(-math.log(q))
    m1 = max(order, m2 + 1)
    if m2 <= 1:
        return worst
    e1, e2 = m1 / SIGMA**2, m2 / SIGMA**2
    limit = (m2 - 1) * e2 - m2 * (math.log(m1 / (m1 - 1)) + math.log(m2 / (m2 - 1)))
    if math.log(q) > limit or math.log(q) + e2 >= 0:
        return worst
    first = (1 - q) / (1 - (q * math.exp(e2)) ** ((m2 - 1) / m2))
    second = math.exp(e1) / q ** (1 / (m1 - 1))
    try:
        moment = (1 - q) * first ** (order - 1) + q * second ** (order - 1)
    except OverflowError:
        return worst
    return min(worst, max(0.0, math.log(moment) / (order - 1)))


def timed(call: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000)
    queries = parser.parse_args().queries
    share = [0.7] + [0.3 / (CLASSES - 1)] * (CLASSES - 1)
    counts = np.random.default_rng(0).multinomial(TEACHERS, share, size=queries)
    kinds = (
        GaussianVotes(SIGMA, CLASSES, TEACHERS),
        ConfidentVotes(200.0, 150.0, SIGMA, CLASSES, TEACHERS),
        LaplaceVotes(20.0, CLASSES, TEACHERS),
    )
    few = min(300, queries)
    rows = counts[:few].tolist()
    loop, reference = timed(
        lambda: np.array([sum(one_query(row, a) for row in rows) for a in ORDERS.tolist()])
    )
    print(f"one by one, {few} queries: {loop:.2f} s, so {loop * queries / few:.0f} s for {queries}")
    ratio = kinds[0].curve(counts[:few], ORDERS) / reference
    print(f"ours over the formula: between {ratio.min():.4f} and {ratio.max():.4f}")
    for votes in kinds:
        seconds, _ = timed(lambda votes=votes: votes.curve(counts, ORDERS))  # type: ignore[misc]
        name = type(votes).__name__
        print(f"{name}: curve {seconds:.2f} s, {loop * queries / few / seconds:.0f} times as fast")
        if isinstance(votes, LaplaceVotes):
            continue
        for some in (1_000, 10_000):
            seconds, (f, s) = timed(lambda v=votes, n=some: v.smooth(counts[:n], 20.0, 1e-3))  # type: ignore[misc]
            print(f"  smooth, {some} queries: {seconds:.2f} s (f {f:.3g}, S {s:.3g})")
            seconds, d = timed(lambda v=votes, n=some, b=2 * f: v.distance(counts[:n], 20.0, b))  # type: ignore[misc]
            print(f"  distance, {some} queries: {seconds:.2f} s ({d} teachers)")
    tracemalloc.start()
    kinds[0].curve(counts, ORDERS)
    print(f"memory beside the counts: {tracemalloc.get_traced_memory()[1] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
