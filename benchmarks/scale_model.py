"""What a step costs on W workers: messages, bytes, and the critical path: a model.

    python -m benchmarks.scale_model

A step sums a vector of d numbers over N rows in P parts on W workers. The scheduler handles each
message in turn, a worker its parts in turn, and sums are added up eight at a time.
"""

from __future__ import annotations

import math

BRANCHES = 8
MESSAGE = 0.2e-3
"""Seconds of the scheduler for a task: sent, done. Dask's manual says a thousandth or less."""
TRIP = 14e-3
"""Seconds of a round trip, as measured between two local processes."""
RATE = 1e9
"""Bytes a second between two machines."""
TASK = 2000
"""Bytes of a task: its function and arguments, without released parameters."""
KEY = 70
"""Bytes of a key as it is sent: 32, and what says how it is expanded."""
KEYED = 2**16
"""Units whose Bernoulli trials follow from one key."""


def step(
    rows: float, parts: int, workers: int, numbers: int, speed: float, keys: float = 0
) -> dict[str, float]:
    """Return what a step costs.

    Parameters
    ----------
    rows, parts, workers
        N, P and W.
    numbers
        d, of 8 bytes each: of the sum, and of the parameters that travel with each task.
    speed
        Rows a second on one worker.
    keys
        For a sample's Bernoulli trials, in total.
    """
    levels = max(1, math.ceil(math.log(parts, BRANCHES)))
    inner = sum(math.ceil(parts / BRANCHES**i) for i in range(1, levels + 1))
    tasks = parts + inner
    size = 8.0 * numbers
    sent = parts * (TASK + size) + keys * KEY
    scheduled = tasks * MESSAGE + sent / RATE  # all pass through one machine
    computed = math.ceil(parts / workers) * rows / parts / speed
    added = levels * (TRIP + (BRANCHES - 1) * size / RATE)
    return {
        "tasks": tasks,
        "messages": 4 * tasks,  # to the worker and back, and the client's notifications
        "to workers": sent,
        "between workers": (tasks - 1) * size,
        "to the coordinator": size,
        "seconds": max(scheduled, computed) + added + TRIP,
        "one worker": rows / speed,
    }


def table() -> str:
    """Return the table of the page on scale, in Markdown."""
    cases = [
        ("X'X of 20 columns, 1e8 rows", 1e8, 441, 5e6, 0.0, (100, 1000)),
        ("X'X of 20 columns, 1e11 rows", 1e11, 441, 5e6, 0.0, (100, 1000)),
        ("a histogram of 1e6 bins, 1e10 rows", 1e10, 1_000_000, 2e7, 0.0, (1000,)),
        ("a round of descent, 20 features, 1e8 rows", 1e8, 20, 1e7, 0.0, (100, 1000)),
        ("the same, 1e11 rows", 1e11, 20, 1e7, 0.0, (100, 1000)),
        ("a round on a sample of a thousandth of 1e11 rows", 1e11, 20, 6e7, 1e11 / KEYED, (1000,)),
    ]
    lines = [
        "| step | workers | messages | to workers | between workers | critical path | speed-up |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows, numbers, speed, keys, workers in cases:
        for count in workers:
            figures = step(rows, 2 * count, count, numbers, speed, keys)
            first = f" {name}" if count == workers[0] else ""
            lines.append(
                f"|{first} | {count} | {figures['messages']:.0f} "
                f"| {_bytes(figures['to workers'])} "
                f"| {_bytes(figures['between workers'])} | {_rounded(figures['seconds'])} s "
                f"| {figures['one worker'] / figures['seconds']:.0f} |"
            )
    return "\n".join(lines)


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_rounded(count / size)} {unit}"
    return f"{count:.0f} B"


def _rounded(number: float) -> str:
    """Return two significant digits, without an exponent."""
    return f"{float(f'{number:.2g}'):g}"


def main() -> None:
    print(table())


if __name__ == "__main__":
    main()
