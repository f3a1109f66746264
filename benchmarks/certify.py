"""How long certifying takes as plans grow: run it with ``make bench``.

Prints wall-clock seconds in one process, the fastest of five runs: declaring a plan, and its
certificate under all accountants, for n equal and n different releases, and for six 10-way
partitions. The largest plans are run once.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import time
from collections.abc import Callable

import adaptive_dp as dp


def main() -> None:
    """Print the table."""
    print(f"{'plan':34} {'declare':>9} {'certify':>9} {'term only':>9}")
    for count in (100, 1_000, 10_000):
        report(f"{count} equal Gaussian releases", lambda n=count: releases(n, different=False))
        report(f"{count} different releases", lambda n=count: releases(n, different=True))
    report("10000 different Laplace releases", laplace, runs=1)
    report("100000 equal Gaussian releases", lambda: releases(100_000, different=False), runs=1)
    report("1000 partitions of 100 parts", many_partitions, runs=1)
    report("10 outside, 50 in each of 4 parts", partitioned)
    report("six 10-way partitions", six_partitions)


def report(name: str, build: Callable[[], dp.Pipeline], runs: int = 5) -> None:
    """Print one row: the fastest of some runs, which the machine disturbed the least."""
    declare, certify, term = [], [], []
    for _ in range(runs):
        start = time.perf_counter()
        plan = build()
        declared = time.perf_counter()
        _ = plan.term
        compiled = time.perf_counter()
        plan.certify(1e-6)
        done = time.perf_counter()
        declare.append(declared - start)
        term.append(compiled - declared)
        certify.append(done - declared)
    row = [min(values) for values in (declare, certify, term)]
    print(f"{name:34} " + " ".join(f"{seconds:9.4f}" for seconds in row), flush=True)


def releases(count: int, *, different: bool) -> dp.Pipeline:
    """Return a plan of ``count`` releases, Laplace and Gaussian in turn where they differ."""
    people = dp.dataset("people", columns={"age": (0, 100)})
    query = people["age"].sum()
    if not different:
        return dp.Pipeline(
            r={str(i): query.release(dp.Gaussian(sigma=1000.0 * count)) for i in range(count)}
        )
    return dp.Pipeline(
        r={
            str(i): query.release(
                dp.Gaussian(sigma=1000.0 * count + i)
                if i % 2
                else dp.Laplace(scale=1000.0 * count + i)
            )
            for i in range(count)
        }
    )


def laplace() -> dp.Pipeline:
    """Return 10,000 different Laplace releases of one sum."""
    people = dp.dataset("people", columns={"age": (0, 100)})
    query = people["age"].sum()
    return dp.Pipeline(r={str(i): query.release(dp.Laplace(scale=1e7 + i)) for i in range(10_000)})


def many_partitions() -> dp.Pipeline:
    """Return a count in each of the 100 parts of each of 1,000 partitions."""
    keys = [f"key {k}" for k in range(100)]
    people = dp.dataset("people", columns={f"c{i}": keys for i in range(1_000)})
    noise = dp.Laplace(scale=1000.0)
    return dp.Pipeline(
        **{
            f"c{i}": {key: part.count().release(noise) for key, part in people.partition(f"c{i}")}
            for i in range(1_000)
        }
    )


def partitioned() -> dp.Pipeline:
    """Return 10 releases outside of a partition and 50 in each of its 4 parts."""
    people = dp.dataset("people", columns={"age": (0, 100), "key": ["a", "b", "c", "d"]})
    outside = {str(i): people["age"].sum().release(dp.Gaussian(sigma=1000.0)) for i in range(10)}
    inside = {
        key: {str(i): part["age"].sum().release(dp.Gaussian(sigma=1000.0)) for i in range(50)}
        for key, part in people.partition("key")
    }
    return dp.Pipeline(outside=outside, inside=inside)


def six_partitions() -> dp.Pipeline:
    """Return one release in each part of six 10-way partitions, all with different noise."""
    columns = {f"k{i}": list(range(10)) for i in range(6)}
    people = dp.dataset("people", columns=columns)
    return dp.Pipeline(
        **{
            name: {
                str(key): part.count().release(dp.Laplace(scale=10.0 + key + i))
                for key, part in people.partition(name)
            }
            for i, name in enumerate(columns)
        }
    )


if __name__ == "__main__":
    main()
