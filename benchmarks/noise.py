"""How fast noise is drawn: run it with ``python benchmarks/noise.py``.

Prints nanoseconds a sample in one process, the fastest of the runs of a row, which take turns, and
how many times as long others take: NumPy's generator (which is not secure) for float Gaussians;
OpenDP's vector calls and diffprivlib's calls for exact noise, where they are installed (``pip
install adaptive-dp[peers]``).
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import numpy as np

from adaptive_dp.noise import (
    SecureStream,
    discrete_gaussian,
    discrete_laplace,
    rounded_gaussian,
    rounded_laplace,
)
from adaptive_dp.noise.stream import _ciphers

COUNT = 500_000
PEER_COUNT = 2_000
WIDTHS = (10, 10, 11, 11)
SCALES = (0.5, 1.0, 7.9, 8.0, 100.0, 1e4, 1e6)


Draws = dict[str, Callable[[int], Any]]


def nanoseconds(draws: Draws, count: int, runs: int = 5) -> dict[str, float]:
    """Return the time of one sample of each, in the fastest run; they take turns."""
    best = dict.fromkeys(draws, float("inf"))
    for draw in draws.values():
        draw(max(1, count // 10))
    for _ in range(runs):
        for name, draw in draws.items():
            start = time.perf_counter()
            draw(count)
            best[name] = min(best[name], (time.perf_counter() - start) / count * 1e9)
    return best


def diffprivlib_mechanisms() -> ModuleType | None:
    """Return them alone, or None: the package's own ``__init__`` also imports its models.

    Those reach into scikit-learn and fail beside a newer one. So the package stands unexecuted
    among the modules while its submodule is imported, and is taken away again.
    """
    spec = find_spec("diffprivlib")
    if spec is None:
        return None
    sys.modules["diffprivlib"] = module_from_spec(spec)
    try:
        return import_module("diffprivlib.mechanisms")
    except ImportError as error:
        print(f"diffprivlib left out: {error}")
        return None
    finally:
        del sys.modules["diffprivlib"]


def peers(mechanisms: ModuleType | None, scale: float) -> dict[str, Draws]:
    """Return what others have for each law."""
    samplers: dict[str, Draws] = {"laplace": {}, "gaussian": {}}
    try:
        op = import_module("opendp.prelude")
        op.enable_features("contrib")
        space = op.vector_domain(op.atom_domain(T="i64")), op.l1_distance(T="i64")
        laplace = op.m.make_laplace(*space, scale=scale)
        space = op.vector_domain(op.atom_domain(T="i64")), op.l2_distance(T="f64")
        gaussian = op.m.make_gaussian(*space, scale=scale)
        samplers["laplace"]["OpenDP"] = lambda n: laplace([0] * n)
        samplers["gaussian"]["OpenDP"] = lambda n: gaussian([0] * n)
    except ImportError as error:
        if find_spec("opendp") is not None:
            print(f"  OpenDP left out: {error}", end="")
    if mechanisms is not None:
        geometric = mechanisms.Geometric(epsilon=1 / scale, sensitivity=1)
        samplers["laplace"]["diffprivlib"] = lambda n: [geometric.randomise(0) for _ in range(n)]
        if scale <= 100:  # its Gaussian makes some `scale` trials a draw: milliseconds at 1e4
            normal = mechanisms.GaussianDiscrete(epsilon=1.0, delta=0.1, sensitivity=1)
            normal._scale = scale  # which it derives from epsilon and delta; here it is given
            samplers["gaussian"]["diffprivlib"] = lambda n: [normal.randomise(0) for _ in range(n)]
    return samplers


def main() -> None:
    """Print the tables."""
    stream, plain = SecureStream(), np.random.default_rng()
    cipher = _ciphers() is not None
    print(f"secure words: {'AES-256-CTR, a key a call' if cipher else 'the operating system'}")
    times = nanoseconds(
        {"own": lambda n: stream.gaussian(1.0, (n,)), "numpy": plain.standard_normal}, COUNT, 40
    )
    own, numpy = times["own"], times["numpy"]
    print(f"float Gaussian: {own:6.1f} ns, {own / numpy:.2f} times NumPy's {numpy:.1f} ns\n")
    mechanisms = diffprivlib_mechanisms()
    print(f"{'scale':>9} {'rounded L':>10} {'rounded G':>10} {'discrete L':>11} {'discrete G':>11}")
    for scale in SCALES:
        samplers = {
            "rounded L": rounded_laplace,
            "rounded G": rounded_gaussian,
            "laplace": discrete_laplace,
            "gaussian": discrete_gaussian,
        }
        draws = {k: lambda n, f=f, s=scale: f(stream, s, n) for k, f in samplers.items()}
        times = nanoseconds(draws, COUNT)
        row = (f"{t:{w}.1f}" for t, w in zip(times.values(), WIDTHS, strict=True))
        print(f"{scale:9g}", *row, end="")
        for law, calls in peers(mechanisms, scale).items():
            for name, slow in nanoseconds(calls, PEER_COUNT).items():
                print(f"  {name} {law} x{slow / times[law]:.0f}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
