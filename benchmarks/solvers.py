"""How fast learners learn: run it with ``python benchmarks/solvers.py --peers PYTHON``.

Prints ratios of times, of made-up data, with one thread: what is compared takes turns, and the
fastest turn of each counts. What is compared with:

* a blocked NumPy pass that adds up the same clipped gradients (of the same rows, or of samples that
  it draws itself), without noise, in float64 and in float32; which is neither exact nor private;
* Opacus on PyTorch, where the interpreter PYTHON has it (by default this one), in a process that
  sleeps while others take their turn: its Poisson samples in float32, by its loader or, faster,
  gathered by index; gradients by hooks or ghost norms, its noise and step;
* a blocked NumPy ``X.T @ X``.

Memory is what a run takes beyond the data that it is given, over that data's size.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import contextlib
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import adaptive_dp as dp
from accountants.secret import Secret
from adaptive_dp.graph.nodes import Node
from adaptive_dp.graph.run import execute

Array = NDArray[Any]
Data = dict[str, Array]

CLIP = 0.5
BLOCK = 1024
BATCHES = 58
"""Rounds in an epoch: each samples a 58th of the rows."""

DELTA = 1e-6


def main() -> None:
    """Print a section for each kind of learner."""
    options = arguments()
    sections = {"softmax": softmax, "logistic": logistic, "moments": moments, "network": network}
    for name in options.sections or sections:
        sections[name](options.scale, options.turns, options.peers)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("softmax", "logistic", "moments", "network")
    parser.add_argument("sections", nargs="*", choices=[*names, []], help="all by default")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--peers", default=sys.executable, help="an interpreter that has Opacus")
    return parser.parse_args()


# Made-up data


def classes(rows: int, width: int, outputs: int) -> Data:
    """Return features in [0, 1], four in five of them 0 as in pictures, and a class."""
    draw = np.random.default_rng(0)
    data = {f"x{i}": draw.random(rows) * (draw.random(rows) < 0.2) for i in range(width)}
    return {**data, "y": draw.integers(0, outputs, rows)}


def as_matrix(data: Data, dtype: type) -> Array:
    """Return the features side by side, after an intercept, rows longer than 1 shortened to it."""
    names = [name for name in data if name != "y"]
    x: Array = np.ones((len(data["y"]), len(names) + 1), dtype=dtype)
    for i, name in enumerate(names, 1):
        x[:, i] = data[name]
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x))
    x /= np.maximum(lengths, 1.0)[:, None]
    return x


# What is compared with


def clipped_sum(x: Array, y: Array, w: Array) -> Array:
    """Return the sum of clipped gradients at w, shape (k, p), block by block."""
    total = np.zeros_like(w)
    for start in range(0, len(x), BLOCK):
        rows, labels = x[start : start + BLOCK], y[start : start + BLOCK]
        z = w @ rows.T
        if len(w) > 1:
            slopes = np.exp(z - z.max(axis=0))
            slopes /= slopes.sum(axis=0)
            slopes[labels, np.arange(len(rows))] -= 1
        else:
            signs = (2 * labels - 1).astype(w.dtype)
            slopes = -signs / (1 + np.exp(signs * z))
        lengths = np.sqrt((slopes * slopes).sum(axis=0) * np.einsum("ij,ij->i", rows, rows))
        slopes *= np.minimum(1, CLIP / np.maximum(lengths, 1e-30))
        total += slopes @ rows
    return total


def epoch(x: Array, y: Array, outputs: int, rate: float) -> Callable[[], None]:
    """Return an epoch of descent along sums of plain samples (of all rows at rate 1)."""
    draw = np.random.default_rng(1)
    w = draw.normal(size=(outputs, x.shape[1])).astype(x.dtype)

    def run() -> None:
        for _ in range(round(1 / rate)):
            rows = slice(None) if rate == 1 else np.flatnonzero(draw.random(len(x)) < rate)
            w[:] -= clipped_sum(x[rows], y[rows], w) / (rate * len(x))

    return run


@contextlib.contextmanager
def opacus(
    python: str, x: Array, y: Array, outputs: int, hidden: tuple[int, ...] = (), mode: str = "hooks"
) -> Iterator[dict[str, Callable[[], None]]]:
    """Yield epochs of Opacus' DP-SGD in another interpreter; none where that has no Opacus."""
    options = ["--outputs", outputs, "--mode", mode, "--batches", BATCHES, "--clip", CLIP]
    options += ["--hidden", *hidden] if hidden else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, x=x, y=y)
        words = [python, Path(__file__).parent / "peers.py", "time", file, *options]
        pipe = subprocess.PIPE
        peer = subprocess.Popen(
            [str(word) for word in words], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        with peer:
            ready = ask(peer)
            if not ready:
                print(f"  Opacus is left out: {ended(peer)}", flush=True)
            ways = {"with its loader": "loader", "rows by index": "index"} if ready else {}
            yield {f"Opacus, {mode}, {n}": partial(turn, peer, way) for n, way in ways.items()}


def turn(peer: subprocess.Popen[str], way: str) -> None:
    """Have a peer's process take an epoch."""
    if not ask(peer, way):
        raise RuntimeError(ended(peer))


def ask(peer: subprocess.Popen[str], line: str = "") -> str:
    """Return the answer to a line, or what comes unasked."""
    assert peer.stdin is not None
    assert peer.stdout is not None
    if line:
        print(line, file=peer.stdin, flush=True)
    return peer.stdout.readline()


def ended(peer: subprocess.Popen[str]) -> str:
    """Return why a process ended."""
    assert peer.stderr is not None
    return (peer.stderr.read().strip() or "it ended without a word").splitlines()[-1]


# Measuring


def seconds(calls: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the fastest time of each; they take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def learned(
    plan: dp.Pipeline, data: Data, batches: int, others: dict[str, Callable[[], Any]], turns: int
) -> dict[str, float]:
    """Return the fastest epoch of a plan that learns for ``turns + 1`` of them, and of others.

    The others run between its epochs; the first epoch does not count. "before" is the
    time until the first: certifying, reading and binding the data.
    """
    best = dict.fromkeys(["own", *others], float("inf"))
    began = time.perf_counter()

    def watch(node: Node, rounds: int) -> Iterator[int]:
        best["before"] = time.perf_counter() - began
        for start in range(0, rounds, batches):
            since = time.perf_counter()
            yield from range(start, start + batches)
            if start:
                best["own"] = min(best["own"], time.perf_counter() - since)
                times = seconds(others, 1)
                best.update({name: min(best[name], t) for name, t in times.items()})

    execute(plan, {"rows": Secret(data)}, None, watch)
    return best


def tell(title: str, times: dict[str, float]) -> None:
    """Print our time, and how many times as long others take."""
    own = times.pop("own")
    before = f"  ({times.pop('before'):.2f} s before the first)" if "before" in times else ""
    print(f"{title}: {own * 1e3:.0f} ms{before}")
    for name, other in times.items():
        print(f"  {name:36s} {other * 1e3:8.0f} ms   own / other {own / other:6.3f}", flush=True)


def memory(title: str, plan: dp.Pipeline, data: Data) -> None:
    """Print the most that a run holds beyond its data, over their size."""
    size = sum(column.nbytes for column in data.values())
    tracemalloc.start()
    plan.run(rows=data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{title}: memory beyond the data {most / size:.2f} of its {size / 2**20:.0f} MiB")


# Sections


def planned(data: Data, learner: Any, outputs: int) -> dp.Pipeline:
    """Return a learner's plan for columns in [0, 1]."""
    goal = list(range(outputs)) if outputs else (0.0, 1.0)
    columns = {name: goal if name == "y" else (0.0, 1.0) for name in data}
    fit = dp.dataset("rows", columns=columns).solve(learner, epsilon=2.0, delta=DELTA)
    return dp.Pipeline(fit=fit).with_delta(DELTA)


def softmax(scale: float, turns: int, peers: str) -> None:
    """60,000 x 784, ten classes."""
    linear(round(60_000 * scale), 784, 10, dp.Multinomial(10), turns, peers)


def logistic(scale: float, turns: int, peers: str) -> None:
    """500,000 x 100, two classes."""
    linear(round(500_000 * scale), 100, 2, dp.Logistic(), turns, peers)


def linear(rows: int, width: int, outputs: int, loss: Any, turns: int, peers: str) -> None:
    """Print rounds of all rows, and epochs of Poisson samples, beside the others."""
    data = classes(rows, width, outputs)
    names, k = [n for n in data if n != "y"], outputs if outputs > 2 else 1
    print(f"\n{loss}: {rows} x {width}")
    single, double = as_matrix(data, np.float32), as_matrix(data, np.float64)
    for rate in (1.0, 1 / BATCHES):
        batches = round(1 / rate)
        title = "a round of all rows"
        learner: Any = dp.NoisyGradientDescent(names, "y", loss, turns + 1)
        if rate < 1:
            title = "an epoch of Poisson samples"
            learner = dp.NoisySGD(names, "y", loss, (turns + 1) * batches, rate)
        others: dict[str, Callable[[], Any]] = {
            "NumPy, float64": epoch(double, data["y"], k, rate),
            "NumPy, float32": epoch(single, data["y"], k, rate),
        }
        with contextlib.ExitStack() as stack:
            if rate < 1:
                others |= stack.enter_context(opacus(peers, single, data["y"], outputs))
            tell(title, learned(planned(data, learner, outputs), data, batches, others, turns))
    del single, double, others
    short = dp.NoisySGD(names, "y", loss, 2, 1 / BATCHES)
    memory("two rounds", planned(data, short, outputs), data)


def moments(scale: float, turns: int, peers: str) -> None:
    """1,000,000 x 50 numbers: least squares by sufficient statistics."""
    rows, width = round(1_000_000 * scale), 50
    draw = np.random.default_rng(0)
    data = {f"x{i}": draw.random(rows) for i in range(width)} | {"y": draw.random(rows)}
    names = [n for n in data if n != "y"]
    x = as_matrix(data, np.float64)
    print(f"\nLeast squares: {rows} x {width}")

    def product() -> None:
        total = np.zeros((x.shape[1], x.shape[1]))
        for start in range(0, len(x), 4096):
            block = x[start : start + 4096]
            total += block.T @ block

    for learner in (dp.AdaSSP(names, "y"), dp.SSP(names, "y")):
        plan = planned(data, learner, 0)
        own = partial(plan.run, rows=data)
        tell(type(learner).__name__, seconds({"own": own, "blocked X.T @ X": product}, turns))
        memory(type(learner).__name__, plan, data)


def network(scale: float, turns: int, peers: str) -> None:
    """60,000 x 784, 128 hidden units, ten classes: Opacus by ghost norms, far faster than hooks."""
    data = classes(round(60_000 * scale), 784, 10)
    names, x = [n for n in data if n != "y"], as_matrix(data, np.float32)
    print(f"\nA network 784-128-10: {len(x)} rows")
    loss = dp.Network(dp.Multinomial(10), 128, "relu")
    learner = dp.NoisySGD(names, "y", loss, (turns + 1) * BATCHES, 1 / BATCHES)
    with opacus(peers, x, data["y"], 10, (128,), "ghost") as others:
        times = learned(planned(data, learner, 10), data, BATCHES, others, turns)
    tell("an epoch of Poisson samples", times)


if __name__ == "__main__":
    main()
