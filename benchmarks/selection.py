"""How good choices are: the best few, a quantile, and values above a threshold, at one epsilon.

``python benchmarks/selection.py [--runs 200]`` prints, for made-up data and one seed, errors of
the library's mechanisms beside those of OpenDP (``opendp``) and diffprivlib where these are
installed. All releases have the same pure epsilon, under rows that are added or removed (quantiles
of diffprivlib: exchanged, which is what it offers).
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import adaptive_dp as dp
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.order_statistics import QuantileSensitivity, TrimmedMeanSensitivity

EPSILON = 1.0
Errors = dict[str, Callable[[int], Any]]


def opendp() -> Any:
    """Return OpenDP's modules, or None where it is not installed."""
    try:
        import opendp.prelude as prelude
    except ImportError:
        return None
    prelude.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    return prelude


def show(title: str, errors: Errors, runs: int, measure: Callable[[Any], float]) -> None:
    """Print the mean and the median of what a release is off by, and its time."""
    print(f"\n{title}\n{'':34} mean     median   ms")
    for name, release in errors.items():
        begun = time.process_time()
        found = np.array([measure(release(seed)) for seed in range(runs)])
        spent = (time.process_time() - begun) / runs * 1e3
        print(f"{name:32} {found.mean():8.3f} {np.median(found):8.3f} {spent:7.2f}")


def best_few(runs: int) -> None:
    """Print how far the k chosen fall behind the k best, at their worst place.

    A unit may add 1 to any number of the counts, which all move the same way then.
    """
    draw = np.random.default_rng(1)
    shapes = {
        "Zipf counts": np.sort(1e5 / np.arange(1, 2_001) ** 1.2 + draw.exponential(3, 2_000)),
        "about equal counts": np.sort(1_000 + draw.normal(0, 10, 2_000)),
    }
    for shape, values in shapes.items():
        counts = values[::-1].round().copy()
        for k in (5, 20, 50):
            joint = dp.JointTopK(k=k, scale=2 / EPSILON)
            peeling = dp.TopK(k=k, scale=k / EPSILON)
            releases: Errors = {
                "JointTopK": lambda s, m=joint, c=counts: m.release(c.copy(), SeededStream(s)),
                "TopK": lambda s, m=peeling, c=counts: m.release(c.copy(), SeededStream(s)),
            }
            prelude = opendp()
            if prelude is not None and hasattr(prelude.m, "make_noisy_top_k"):
                peer = prelude.m.make_noisy_top_k(
                    prelude.vector_domain(prelude.atom_domain(T=float, nan=False)),
                    prelude.linf_distance(T=float, monotonic=True),
                    prelude.max_divergence(),
                    k=k,
                    scale=k / EPSILON,
                )
                assert peer.map(1.0) <= EPSILON * (1 + 1e-9)
                releases["OpenDP make_noisy_top_k"] = lambda s, p=peer, c=counts: p(c.tolist())

            def behind(chosen: Any, c: Any = counts, k: int = k) -> float:
                return float(max(0.0, (c[:k] - c[np.asarray(chosen, dtype=int)]).max()))

            show(f"{shape}, k = {k}: the worst place falls behind by", releases, runs, behind)


def quantiles(runs: int) -> None:
    """Print the error of a median and of a high quantile of skewed data, in its own units."""
    draw = np.random.default_rng(2)
    for n in (300, 3_000):
        values = np.sort(draw.gamma(2, 10, n).clip(0, 200))
        for q in (0.5, 0.95):
            data = QuantileSensitivity(values, 0.0, 200.0, q, exchange=False)
            true = float(np.quantile(values, q, method="inverted_cdf"))
            largest = max(q, 1 - q)
            mechanisms: dict[str, dp.Mechanism] = {
                "InverseSensitivity": dp.InverseSensitivity(scale=2 / EPSILON),
                "QuantileExponential": dp.QuantileExponential(scale=2 * largest / EPSILON),
                "SmoothStudent": dp.SmoothStudent(epsilon=EPSILON),
                "SmoothCauchy": dp.SmoothCauchy(epsilon=EPSILON),
            }
            releases: Errors = {
                name: lambda s, m=m, d=data: float(m.release(d, SeededStream(s)))
                for name, m in mechanisms.items()
            }
            try:
                from diffprivlib.tools import quantile
            except ImportError:
                pass
            else:
                releases["diffprivlib quantile"] = lambda s, v=values, q=q: float(
                    quantile(v, q, epsilon=EPSILON, bounds=(0, 200), random_state=s)
                )
            prelude = opendp()
            if prelude is not None:
                peer = prelude.m.make_private_quantile(
                    prelude.vector_domain(prelude.atom_domain(T=float, nan=False)),
                    prelude.symmetric_distance(),
                    prelude.max_divergence(),
                    candidates=np.arange(0, 200.01, 0.1).tolist(),
                    alpha=q,
                    scale=2 * largest / EPSILON,
                )
                # it charges the span of its scores at this scale: epsilon by its own map
                peer_epsilon = peer.map(1)
                releases[f"OpenDP, epsilon {peer_epsilon:.2g}"] = lambda s, p=peer, v=values: p(
                    v.tolist()
                )
            title = f"quantile {q} of {n} values: off by"
            show(title, releases, runs, lambda found, t=true: abs(found - t))
        middle(n, values, runs)


def middle(n: int, values: Any, runs: int) -> None:
    """Print the error of a trimmed mean, under exchanged rows."""
    trimmed = TrimmedMeanSensitivity(values, 0.0, 200.0, 0.1)
    mechanisms: dict[str, dp.Mechanism] = {
        "InverseSensitivity": dp.InverseSensitivity(scale=2 / EPSILON),
        "SmoothStudent": dp.SmoothStudent(epsilon=EPSILON),
        "SmoothCauchy": dp.SmoothCauchy(epsilon=EPSILON),
    }
    show(
        f"mean of {n} values, a tenth trimmed at either end: off by",
        {
            k: lambda s, m=m: float(m.release(trimmed, SeededStream(s)))
            for k, m in mechanisms.items()
        },
        runs,
        lambda found: abs(found - trimmed.value),
    )


def above(runs: int) -> None:
    """Print how many of 30 far and 30 near values among 2,000 are found, and how precisely."""
    draw = np.random.default_rng(3)
    values = draw.normal(0, 20, 2_000)
    places = draw.permutation(2_000)
    values[places[:30]] += 4_000
    values[places[30:60]] += 900
    threshold = 500.0
    print("\n60 of 2,000 counts above a threshold, 30 of them far: found, and error of the leads")
    for count in (10, 20, 40):
        base = dp.SparseVector(scale=1.0, threshold=threshold, count=count, monotone=True)
        scale = base.loss(1.0, 1.0).pure() / EPSILON
        plain = dp.SparseVector(scale=scale, threshold=threshold, count=count, monotone=True)
        # a third of the budget for independent noise on numbers
        number = dp.SparseVector(
            scale=1.5 * scale,
            threshold=threshold,
            count=count,
            monotone=True,
            numeric=3 * count / EPSILON,
        )
        gap = dp.SparseVectorWithGap(scale, threshold, count, monotone=True)
        for name, mechanism in (("SparseVector", plain), ("with numbers", number), ("gap", gap)):
            found, errors = [], []
            for seed in range(max(10, runs // 10)):
                answers = mechanism.release(values.copy(), SeededStream(seed))
                hit = np.isfinite(answers) & (answers != 0)
                found.append(int((values[hit] > threshold).sum()))
                if name != "SparseVector":
                    offset = threshold if name == "gap" else 0.0
                    errors += np.abs(answers[hit] + offset - values[hit]).tolist()
            off = f"{np.median(errors):8.1f}" if errors else "       -"
            print(f"  c = {count:2}  {name:14} {np.mean(found):6.1f} found  {off}")


def online(runs: int) -> None:
    """Print what a session pays where few of the allowed answers above are given."""
    table = dp.dataset("t", columns={"x": (0, 1)})
    rows = {"x": np.linspace(0, 1, 2_000)}
    print("\n200 questions of a session, 3 above, 20 allowed: epsilon spent")
    for together in (False, True):
        with dp.Session(budget=dp.Budget(1.0), accountant="basic", seed=1, t=rows) as session:
            svt = session.above_threshold(
                1_500, tops=20, share=1.0, monotone=True, together=together
            )
            for i in range(200):
                x = 0.1 if i in (50, 100, 150) else 0.9 + i / 4_000
                svt.ask(table.filter(table["x"] >= x).count())
            how = "one spend for all" if together else "one spend a top"
            print(f"  {how:18} {session.spent.costs[0]:.3f}")


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    assert math.isclose(dp.JointTopK(k=1, scale=2.0).loss(1.0, 1.0).epsilon, 1.0, rel_tol=1e-6)
    best_few(runs)
    quantiles(runs)
    above(runs)
    online(runs)


if __name__ == "__main__":
    main()
