"""How fast noise is drawn: run it with ``python benchmarks/noise.py``.

Prints nanoseconds a sample in one process, the fastest of five runs, and how many times as long
others take: NumPy's generator (which is no secure one) for float Gaussians; OpenDP's vector calls
and diffprivlib's calls for exact noise, where they are installed (``pip install
adaptive-dp[peers]``).
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from adaptive_dp.noise import (
    SecureStream,
    discrete_gaussian,
    discrete_laplace,
    keystream,
    rounded_gaussian,
    rounded_laplace,
)

COUNT = 500_000
PEER_COUNT = 2_000
SCALES = (0.5, 1.0, 7.9, 8.0, 100.0, 1e4, 1e6)


def nanoseconds(draw: Callable[[int], Any], count: int) -> float:
    """Return the time of one sample, in the fastest of five runs."""
    draw(max(1, count // 10))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        draw(count)
        best = min(best, time.perf_counter() - start)
    return best / count * 1e9


def peers(scale: float) -> dict[str, dict[str, Callable[[int], Any]]]:
    """Return what others have for each law."""
    found: dict[str, dict[str, Callable[[int], Any]]] = {"laplace": {}, "gaussian": {}}
    try:
        op = import_module("opendp.prelude")
        op.enable_features("contrib")
        space = op.vector_domain(op.atom_domain(T="i64")), op.l1_distance(T="i64")
        laplace = op.m.make_laplace(*space, scale=scale)
        space = op.vector_domain(op.atom_domain(T="i64")), op.l2_distance(T="f64")
        gaussian = op.m.make_gaussian(*space, scale=scale)
        found["laplace"]["OpenDP"] = lambda n: laplace([0] * n)
        found["gaussian"]["OpenDP"] = lambda n: gaussian([0] * n)
    except ImportError:
        pass
    try:
        mechanisms = import_module("diffprivlib.mechanisms")
        geometric = mechanisms.Geometric(epsilon=min(1 / scale, 30.0), sensitivity=1)
        found["laplace"]["diffprivlib"] = lambda n: [geometric.randomise(0) for _ in range(n)]
    except (ImportError, AttributeError):
        pass
    return found


def main() -> None:
    """Print the tables."""
    stream, plain = SecureStream(), np.random.default_rng()
    cipher = keystream._ciphers() is not None
    print(f"secure words: {'AES-256-CTR, a key a call' if cipher else 'the operating system'}")
    numpy = nanoseconds(plain.standard_normal, COUNT)
    own = nanoseconds(lambda n: stream.gaussian(1.0, (n,)), COUNT)
    print(f"float Gaussian: {own:6.1f} ns, {own / numpy:.2f} times NumPy's {numpy:.1f} ns\n")
    print(f"{'scale':>9} {'rounded L':>10} {'rounded G':>10} {'discrete L':>11} {'discrete G':>11}")
    for scale in SCALES:
        laplace = nanoseconds(lambda n, s=scale: discrete_laplace(stream, s, n), COUNT)
        gaussian = nanoseconds(lambda n, s=scale: discrete_gaussian(stream, s, n), COUNT)
        row = [
            nanoseconds(lambda n, s=scale: rounded_laplace(stream, s, n), COUNT),
            nanoseconds(lambda n, s=scale: rounded_gaussian(stream, s, n), COUNT),
        ]
        print(f"{scale:9g} {row[0]:10.1f} {row[1]:10.1f} {laplace:11.1f} {gaussian:11.1f}", end="")
        for law, calls in peers(scale).items():
            mine = laplace if law == "laplace" else gaussian
            for name, call in calls.items():
                print(f"  {name} {law} x{nanoseconds(call, PEER_COUNT) / mine:.0f}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
