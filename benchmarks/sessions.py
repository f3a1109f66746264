"""How long sessions and their ledgers take: run it with ``python benchmarks/sessions.py``.

Prints, for every tenth of the releases of one session, milliseconds a release (on the clock, and of
this process alone: the rest is the disk's), and memory; then how long it takes to open the ledger
again, for its plan and its certificate. Times that do not grow from line to line mean linear time
in all.

``python benchmarks/sessions.py processes`` lets processes spend from one budget at once, more often
than it allows, checks that together they did not exceed it, and recomputes the ledger.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from multiprocessing import get_context

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.entries import broken_entries
from adaptive_dp.session.ledger import create_ledger, open_ledger

REGIONS = [f"region {i}" for i in range(50)]
PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": REGIONS})
ROWS = {
    "age": [float(i % 100) for i in range(2000)],
    "region": [REGIONS[i % len(REGIONS)] for i in range(2000)],
}
STEP = 2.0**-10


def session(ledger: str | None, accountant: str, budget: float) -> dp.Session:
    return dp.Session(
        budget=dp.Budget(budget, 1e-6), accountant=accountant, ledger=ledger, people=ROWS
    )


def create(place: str, accountant: str, budget: float) -> None:
    """Make a ledger; one at a URL that was given may be there."""
    with suppress(LedgerError):
        create_ledger(place, dp.Budget(budget, 1e-6), accountant)


def step_of(kind: str) -> Callable[[int], dp.Released[float]]:
    """Return what the i-th step asks."""
    if kind == "same":
        query = PEOPLE.count().release(dp.Gaussian(sigma=1000.0))
        return lambda i: query
    if kind == "new":
        return lambda i: PEOPLE["age"].clip(0, 50 + i / 1000).sum().release(dp.Gaussian(sigma=1e5))
    if kind in ("chain", "posts"):
        return chained(posts=kind == "posts")
    parts = [part for _, part in PEOPLE.partition("region")]
    return lambda i: parts[i % len(parts)].count().release(dp.Gaussian(sigma=1000.0))


def later(first: float, second: float) -> float:
    return first + second


def chained(*, posts: bool) -> Callable[[int], dp.Released[float]]:
    """Return steps that are each built on the handle of the one before."""
    last = PEOPLE.count().release(dp.Laplace(scale=1000.0))

    def step(i: int) -> dp.Released[float]:
        nonlocal last
        if posts:
            last = dp.post(later, last, PEOPLE.count().release(dp.Laplace(scale=2000.0 + i)))
        else:
            below = PEOPLE.filter(PEOPLE["age"] <= last)
            last = below.count().release(dp.Laplace(scale=1000.0))
        return last

    return step


def one(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        place = None if given.ledger == "memory" else given.ledger or f"{folder}/ledger.db"
        step, tenth = step_of(given.kind), given.releases // 10
        if place is not None:
            create(place, given.accountant, 1e4)
        with session(place, given.accountant, 1e4) as running:
            for k in range(10):
                clock, own = time.perf_counter(), time.process_time()
                for i in range(k * tenth, (k + 1) * tenth):
                    running.run(step(i), again=given.kind not in ("chain", "posts"))
                clock, own = time.perf_counter() - clock, time.process_time() - own
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{(k + 1) * tenth} releases: {clock / tenth * 1e3:.2f} ms each, "
                    f"{own / tenth * 1e3:.2f} ms without the disk, {memory:.0f} MiB",
                    flush=True,
                )
            asks: list[tuple[str, Callable[[], object]]] = [
                ("the odometer", lambda: running.epsilon),
                ("the plan", lambda: running.pipeline),
            ]
            if given.certificate:
                asks.append(("the certificate", running.certificate))
            for name, ask in asks:
                start = time.perf_counter()
                ask()
                print(f"{name}: {time.perf_counter() - start:.2f} s", flush=True)
        if place is not None:
            start = time.perf_counter()
            session(place, given.accountant, 1e4).close()
            print(f"opened again: {time.perf_counter() - start:.2f} s")


def spend(place: str, attempts: int, budget: float) -> int:
    """Return how many of so many attempts were granted."""
    granted = 0
    query = PEOPLE.count().release(dp.Laplace(scale=1 / STEP))
    with session(place, "basic", budget) as running:
        for _ in range(attempts):
            try:
                running.run(query, again=True)
                granted += 1
            except BudgetError:
                pass
    return granted


def several(given: argparse.Namespace) -> None:
    count, attempts = given.processes, given.releases // given.processes
    budget = given.granted * STEP * (1 + 1e-9)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        place = given.ledger or f"{folder}/ledger.db"
        create(place, "basic", budget)
        start = time.perf_counter()
        with get_context("spawn").Pool(count) as pool:
            granted = pool.starmap(spend, [(place, attempts, budget)] * count, chunksize=1)
        seconds = time.perf_counter() - start
        ledger = open_ledger(place)
        entries = ledger.entries()
        ledger.close()
        spends = sum(entry["kind"] == "spend" for entry in entries)
        print(
            f"{count} processes, {count * attempts} attempts in {seconds:.0f} s: granted {granted}"
        )
        with session(place, "basic", budget) as after:
            price = Fraction(after.spent.costs[0]) / spends
        print(f"{sum(granted)} in all, {spends} in the ledger, {float(price):.9g} each")
        assert sum(granted) == spends == min(given.granted, count * attempts)
        assert not list(broken_entries(entries))
        assert spends * price <= budget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", nargs="?", choices=["session", "processes"], default="session")
    parser.add_argument("--releases", type=int, default=10_000, help="or attempts, of all together")
    parser.add_argument(
        "--kind", choices=["same", "new", "parts", "chain", "posts"], default="same"
    )
    parser.add_argument("--accountant", default="renyi")
    parser.add_argument("--ledger", help="memory or a URL; a file in --folder where it is left out")
    parser.add_argument("--folder", help="where files are made")
    parser.add_argument("--certificate", action="store_true")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--granted", type=int, default=1000, help="what the budget allows")
    given = parser.parse_args()
    (several if given.mode == "processes" else one)(given)


if __name__ == "__main__":
    main()
