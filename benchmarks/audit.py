"""What audits find, at how many runs, and how often they are wrong.

``python benchmarks/audit.py power`` prints lower bounds of epsilon at 1e4, 1e5 and 1e6 runs a side,
medians of five seeds, three and one (of slow ones three and one, and none at 1e6), beside single
runs of a histogram auditor (split halves, Clopper-Pearson, a direction each);
``broken`` audits every broken mechanism with default settings; ``calibration`` runs 2,100 seeded
audits of correct plans and mechanisms at the exact truth, at the default confidence
(``calibration 10000`` takes seeds from 10,000 on); ``plans`` runs 2,000 of random correct plans of
one to three releases, at 400 runs a side (``plans 600000 2000``: the first seed, and how many).
``additive`` audits the private additive regressor of interpret-core, where that is installed, by
3,000 fits of each of two data sets.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path[0] = str(Path(__file__).parent.parent / "tests")
import broken_mechanisms  # noqa: E402

import accountants  # noqa: E402
import adaptive_dp as dp  # noqa: E402
from adaptive_dp import audit  # noqa: E402
from adaptive_dp.audit import Audit  # noqa: E402

CLASSICAL = math.sqrt(2 * math.log(1.25 / 1e-2)) / 10
TEN = (np.zeros(10), np.ones(10))
ZERO = (0.0, 1.0)
TIGHT = 2.317789040304088
"""Epsilon of mu = 1 at delta 1e-2, rounded up."""
NOISE = broken_mechanisms.coarse


def naive(scale: float) -> audit.Neighbors:
    return broken_mechanisms.black(lambda v, s: NOISE(v + s.laplace(scale, v.shape)), *ZERO)


def normal(sigma: float) -> audit.Neighbors:
    return broken_mechanisms.black(lambda v, s: NOISE(v + s.gaussian(sigma, v.shape)), *ZERO)


ROWS: dict[str, tuple[Callable[[int, int], Audit], str]] = {
    "Laplace, law known": (
        lambda n, seed: audit.mechanism(
            dp.Laplace(scale=1.0), ZERO, 1.0, samples=n, seed=seed, confidence=0.95
        ),
        ".678 .905 .964",
    ),
    "Laplace, law unknown": (
        lambda n, seed: audit.distinguish(naive(1.0), 1.0, samples=n, seed=seed, confidence=0.95),
        ".678 .905 .964",
    ),
    "geometric": (
        lambda n, seed: audit.mechanism(
            dp.DiscreteLaplace(scale=1.0), ZERO, 1.0, samples=n, seed=seed, confidence=0.95
        ),
        ".930 .994 .993",
    ),
    "Laplace half scale (2)": (
        lambda n, seed: audit.distinguish(naive(0.5), 1.0, samples=n, seed=seed, confidence=0.95),
        "1.47 1.80 1.99",
    ),
    "Laplace 5% small (1.05)": (
        lambda n, seed: audit.distinguish(
            naive(1 / 1.05), 1.0, samples=n, seed=seed, confidence=0.95
        ),
        ".701 .946 1.005",
    ),
    "l1 as linf, 10 dims (10)": (
        lambda n, seed: audit.mechanism(
            dp.Laplace(scale=1.0), TEN, 1.0, samples=n, seed=seed, confidence=0.95
        ),
        "3.25 4.87 5.51",
    ),
    "Gaussian (2.32, 1e-2)": (
        lambda n, seed: audit.distinguish(
            normal(1.0), (TIGHT, 1e-2), samples=n, seed=seed, confidence=0.95
        ),
        "(claim 1: .43 .82 .97)",
    ),
    "Gaussian sigma/sqrt 2": (
        lambda n, seed: audit.distinguish(
            normal(0.5**0.5), (TIGHT, 1e-2), samples=n, seed=seed, confidence=0.95
        ),
        "(claim 1: .998 1.52 1.53)",
    ),
    "classical Gaussian (11.92)": (
        lambda n, seed: audit.mechanism(
            dp.Gaussian(sigma=CLASSICAL), ZERO, (10.0, 1e-2), samples=n, seed=seed, confidence=0.95
        ),
        "4.3 6.3 8.65",
    ),
    "PTR": (
        lambda n, seed: audit.distinguish(
            broken_mechanisms.untested(noise=True),
            (1.0, 1e-3),
            samples=n,
            seed=seed,
            confidence=0.95,
        ),
        ".30 .44 .47",
    ),
    "PTR without noise": (
        lambda n, seed: audit.distinguish(
            broken_mechanisms.untested(noise=False),
            (1.0, 1e-3),
            samples=n,
            seed=seed,
            confidence=0.95,
        ),
        "7.04 9.34 11.6",
    ),
    **{
        f"sparse vector {k}": (
            lambda n, seed, k=k: audit.distinguish(
                broken_mechanisms.sparse_vector(k, count=4 if k > 3 else 1),
                1.0,
                samples=n,
                seed=seed,
            ),
            theirs,
        )
        for k, theirs in enumerate(
            (
                ".26 .40 .46",
                ".37 .39 .46",
                ".69 1.21 1.60",
                "1.90 2.91 4.43",
                "5.45 7.81 10.1",
                "1.29 2.72 2.98",
            ),
            1,
        )
    },
}


SLOW = "sparse vector"


def power() -> None:
    """Print a row for each mechanism: at each size the median bound, refuted runs, and seconds."""
    print(
        "mechanism (truth): bound, refuted of repeats, seconds each; then the histogram auditor's"
    )
    for name, (made, theirs) in ROWS.items():
        slow = name.startswith(SLOW)
        cells = []
        for runs, repeats in ((10_000, 3 if slow else 5), (100_000, 1 if slow else 3), (10**6, 1)):
            if slow and runs > 100_000:
                continue
            audits = [made(runs, seed) for seed in range(1, repeats + 1)]
            bound = np.median([each.epsilon_lower for each in audits])
            broken = sum(each.verdict == "violation" for each in audits)
            seconds = np.median([each.seconds for each in audits])
            cells.append(f"{bound:.3f} {broken}/{repeats} {seconds:.1f}s")
        print(f"{name:28}{''.join(f'{cell:20}' for cell in cells)}{theirs}", flush=True)
    print("mu of a Gaussian of mu = 1, 2, 4, at 1e5 runs:")
    for mu in (1.0, 2.0, 4.0):
        one = audit.mechanism(dp.Gaussian(sigma=1 / mu), ZERO, samples=100_000, seed=1)
        print(f"  {one.mu_lower:.4f} ({one.mu_lower / mu - 1:+.2%})")


def hunted() -> None:
    runs: dict[str, Callable[[], Audit]] = {
        "half scale": lambda: audit.mechanism(broken_mechanisms.HalfNoise(scale=1.0), ZERO),
        "5% too small": lambda: audit.mechanism(dp.Laplace(scale=1 / 1.05), ZERO, 1.0),
        "l1 taken for linf": lambda: audit.mechanism(dp.Laplace(scale=1.0), TEN, 1.0),
        "sigma / sqrt 2": lambda: audit.mechanism(
            dp.Gaussian(sigma=0.5**0.5), ZERO, accountants.Gaussian(mu=1.0)
        ),
        "classical Gaussian": lambda: audit.mechanism(
            dp.Gaussian(sigma=CLASSICAL), ZERO, (10.0, 1e-2)
        ),
        "value of the noisy max": lambda: audit.mechanism(
            broken_mechanisms.NoisyLeak(scale=2.0), (np.zeros(20), np.ones(20))
        ),
        "PTR without noise": lambda: audit.distinguish(
            broken_mechanisms.untested(noise=False), (1.0, 1e-3)
        ),
        **{
            f"sparse vector {k}": lambda k=k: audit.distinguish(
                broken_mechanisms.sparse_vector(k), 1.0
            )
            for k in range(1, 7)
        },
    }
    for name, made in runs.items():
        counterexample = made()
        print(f"{name:24}{counterexample!r} {counterexample.seconds:.1f} s", flush=True)


SCORES = (np.arange(5.0), np.array([1.0, 0.0, 2.0, 4.0, 4.0]))

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "sex": ["f", "m"]})
PLANS = {
    "a count and a sum": dp.Pipeline(
        n=PEOPLE.count().release(dp.Laplace(scale=1)),
        total=PEOPLE["age"].sum().release(dp.Laplace(scale=100)),
    ),
    "histograms": dp.Pipeline(
        sexes=PEOPLE["sex"].histogram().release(dp.DiscreteLaplace(scale=1)),
        ages=PEOPLE["age"].histogram([0, 50, 100]).release(dp.Laplace(scale=2)),
    ),
}

NULL: dict[str, tuple[int, Callable[[int], Audit]]] = {
    **{
        f"plan, {name}": (200, lambda i, plan=plan: plan.audit(samples=300, seed=i))
        for name, plan in PLANS.items()
    },
    "response": (
        300,
        lambda i: audit.distinguish(broken_mechanisms.response(1.0), 1.0, samples=1_000, seed=i),
    ),
    "Laplace": (
        300,
        lambda i: audit.mechanism(dp.Laplace(scale=1.0), ZERO, 1.0, samples=1_000, seed=i),
    ),
    "Laplace, law unknown": (
        300,
        lambda i: audit.distinguish(naive(1.0), 1.0, samples=1_000, seed=i),
    ),
    "geometric": (
        200,
        lambda i: audit.mechanism(dp.DiscreteLaplace(scale=1.0), ZERO, 1.0, samples=500, seed=i),
    ),
    "Gaussian, curve": (
        200,
        lambda i: audit.mechanism(dp.Gaussian(sigma=1.0), ZERO, samples=1_000, seed=i),
    ),
    "Gaussian, a point": (
        200,
        lambda i: audit.distinguish(normal(1.0), (TIGHT, 1e-2), samples=1_000, seed=i),
    ),
    "exponential": (
        100,
        lambda i: audit.mechanism(dp.Exponential(scale=1.0), SCORES, samples=300, seed=i),
    ),
    "noisy max": (
        50,
        lambda i: audit.mechanism(dp.NoisyMax(scale=2.0), SCORES, samples=150, seed=i),
    ),
    "sparse vector": (
        50,
        lambda i: audit.mechanism(
            dp.SparseVector(scale=2.0, threshold=2.0), SCORES, samples=150, seed=i
        ),
    ),
}


def calibration(first: str = "0") -> None:
    alarms = runs = 0
    for name, (many, made) in NULL.items():
        start = time.perf_counter()
        false = sum(made(int(first) + i).verdict == "violation" for i in range(many))
        alarms, runs = alarms + false, runs + many
        each = (time.perf_counter() - start) / many
        print(f"{name:24}{false:4} of {many}   {1000 * each:.0f} ms each", flush=True)
    chance = float(stats.binom.sf(alarms - 1, runs, 1e-3))
    print(f"{'all':24}{alarms:4} of {runs}; so many or more at 1e-3: probability {chance:.3g}")


TABLE = {"age": (0, 100), "income": (0, 1000), "sex": ["f", "m"], "town": ["A", "B", "C"]}


def correct(seed: int) -> dp.Pipeline:
    """Return a random correct plan: one to three releases, under each relation in turn."""
    draw = np.random.default_rng(seed)
    relation = ("add_remove", "replace_one", "zero_out")[seed % 3]
    t = dp.dataset("people", columns=TABLE, neighbors=relation)
    outputs = {}
    for j in range(1 + int(draw.integers(3))):
        s = float(draw.uniform(0.5, 3))
        made = (
            lambda s=s: t.count().release(dp.Laplace(scale=s)),
            lambda s=s: t["age"].sum().release(dp.Laplace(scale=100 * s)),
            lambda s=s: t["town"].histogram().release(dp.DiscreteLaplace(scale=s)),
            lambda s=s: t["sex"].histogram().release(dp.Gaussian(sigma=s)),
            lambda s=s: t.filter(t["age"] >= 50).count().release(dp.Gaussian(sigma=s)),
            lambda s=s: t["income"].sum().release(dp.Gaussian(sigma=1000 * s)),
        )[int(draw.integers(6))]
        outputs[f"o{j}"] = made()
    return dp.Pipeline(**outputs).with_delta(1e-5)


def plans(first: str = "600000", many: str = "2000") -> None:
    alarms, start = 0, time.process_time()
    for seed in range(int(first), int(first) + int(many)):
        alarms += correct(seed).audit(samples=400, seed=seed).verdict == "violation"
    each = (time.process_time() - start) / int(many)
    chance = float(stats.binom.sf(alarms - 1, int(many), 1e-3))
    print(f"{alarms} of {many} plans are accused, {1000 * each:.0f} ms of processor time each;")
    print(f"so many or more at 1e-3: probability {chance:.3g}")


def additive(samples: str = "3000") -> None:
    """Print lower bounds of epsilon of interpret-core's regressor, by the bounds of its target."""
    from interpret.privacy import DPExplainableBoostingRegressor  # type: ignore[import-not-found]

    warnings.simplefilter("ignore")

    def fits(low: float, *more: float) -> audit.Sampler:
        y = np.array([low + 0.5] * 100 + list(more))
        x = np.full((len(y), 1), 0.5)

        def sampler(count: int, stream: Any) -> np.ndarray:
            found = []
            for seed in stream.words(count) % 2**31:
                model = DPExplainableBoostingRegressor(
                    epsilon=1.0,
                    delta=1e-5,
                    max_rounds=1,
                    random_state=int(seed),
                    privacy_bounds={0: (0.0, 1.0)},
                    privacy_target_min=low,
                    privacy_target_max=low + 1,
                ).fit(x, y)
                found.append(float(model.intercept_) * float(np.sum(model.bin_weights_[0])))
            return np.array(found)

        return sampler

    for low in (0.0, 100.0, 1000.0):
        words = "100 rows at the middle of the target's bounds, without and with one at their end"
        pair = audit.Neighbors(words, fits(low), fits(low, low + 1))
        found = audit.distinguish(pair, (1.0, 1e-5), samples=int(samples), confidence=0.95, seed=1)
        print(low, found, sep="\n", flush=True)


if __name__ == "__main__":
    ways = {
        "power": power,
        "broken": hunted,
        "calibration": calibration,
        "plans": plans,
        "additive": additive,
    }
    ways[sys.argv[1]](*sys.argv[2:])
