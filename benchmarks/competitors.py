"""Published private learners as this library has them: accuracy, and where their noise is enough.

    python benchmarks/competitors.py noise
    python benchmarks/competitors.py localised
    python benchmarks/competitors.py accuracy --from FOLDER --sets compas magic

`noise` prints, for noise as it is printed in the source, what it costs by the accountants here: an
epsilon above the one that was asked for is outside of the range in which the printed formula holds.
`localised` prints the excess risk of a quadratic by output perturbation, by the exponential
mechanism, and by that in a ball around the former (localisation, Bassily, Smith and Thakurta 2014).
`accuracy` fits every competitor in the same certified budget, whatever noise its source printed:
they are learners of the library with other settings.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

sys.path.insert(0, str(Path(__file__).parent))

import corpus

import accountants
import adaptive_dp as dp
from adaptive_dp.erm import HuberHinge

EPSILONS = (0.1, 1.0, 4.0, 10.0)
DELTA = 1e-5

# -----------------------------------------------------------------------------
# Noise as printed, for losses with slopes of at most 1.

Term = accountants.Term


def classical_gaussian(epsilon: float, delta: float) -> Term:
    """Return the Gaussian of ``sqrt(2 log(1.25 / delta)) / epsilon``: output perturbation's."""
    return accountants.Spend(accountants.Gaussian(epsilon / math.sqrt(2 * math.log(1.25 / delta))))


def objective_perturbation(epsilon: float, delta: float) -> Term:
    """Return the noise of Kifer, Smith and Thakurta 2012, whose ridge is 2 smoothness / epsilon."""
    sigma = math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    return accountants.Spend(
        accountants.ObjectivePerturbation(1 / sigma, math.log1p(epsilon / 2), 1)
    )


def noisy_sgd(epsilon: float, delta: float, rows: int = 1_000) -> Term:
    """Return n^2 steps on single rows, sigma^2 = 32 n^2 log(n/delta) log(1/delta) / epsilon^2.

    (Bassily, Smith and Thakurta 2014, Algorithm 1, with a Poisson sample of rate 1/n for its row.)
    """
    noise = math.sqrt(32 * math.log(rows / delta) * math.log(1 / delta)) / epsilon
    step = accountants.Sampled(accountants.Spend(accountants.Gaussian(1 / noise)), 1 / rows)
    return accountants.Repeated(step, rows**2)


def phased(epsilon: float, delta: float) -> Term:
    """Return the noise of a phase of Feldman, Koren and Talwar 2020: 4 L eta sqrt(log(1/delta)).

    Their sensitivity is 2 L eta, and phases read disjoint rows.
    """
    return accountants.Spend(accountants.Gaussian(epsilon / (2 * math.sqrt(math.log(1 / delta)))))


PRINTED: dict[str, Callable[[float, float], Term]] = {
    "classical Gaussian (output perturbation)": classical_gaussian,
    "KST12 objective perturbation": objective_perturbation,
    "BST14 noisy SGD, n = 1,000": noisy_sgd,
    "FKT20 phased, a phase": phased,
}


def spent(term: Term, delta: float) -> float:
    """Return the least epsilon that an accountant has of a term."""
    answers = accountants.certify(term, delta=delta).values()
    return min(answer.bounds.upper for answer in answers if answer.bounds is not None)


def noise(options: argparse.Namespace) -> None:
    """Print what printed noise costs."""
    print(f"certified epsilon of printed noise, delta {DELTA:g}")
    print(f"{'asked':42}" + "".join(f"{e:>9g}" for e in EPSILONS) + "   holds up to")
    for name, term in PRINTED.items():
        costs = [spent(term(epsilon, DELTA), DELTA) for epsilon in EPSILONS]
        grid = [2.0**k for k in range(-4, 8)]
        holds = [e for e in grid if spent(term(e, DELTA), DELTA) <= e]
        last = f"{holds[-1]:g}" + (" or more" if holds[-1] == grid[-1] else "") if holds else "-"
        print(f"{name:42}" + "".join(f"{c:9.3f}" for c in costs) + f"   {last}")


# -----------------------------------------------------------------------------
# Localisation of the exponential mechanism, delta = 0.

CONDITIONS = (1.0, 10.0, 100.0, 1_000.0)


def localised(options: argparse.Namespace) -> None:
    """Print excess risks of ``F(w) = w'Mw / 2``, |w| <= 1, of 1,000 rows at epsilon 1.

    M has eigenvalues evenly spaced in their logarithms from 1 / condition to 1; slopes are at most
    1, and a row comes or goes.
    """
    draw, rows = np.random.default_rng(0), 1_000
    titles = ("output", "exponential", "localised", "no data")
    print(f"{'p':>4}{'condition':>10}" + "".join(f"{title:>12}" for title in titles))
    for p in (2, 10, 40):
        for condition in CONDITIONS:
            curvature = np.geomspace(1 / condition, 1.0, p)
            distance = condition / rows  # L / (mu n)

            def risk(w: Any, curvature: Any = curvature) -> float:
                return float(np.mean(w**2 @ curvature) / 2)

            around = norm_noise(draw, p, distance, 20_000)
            # in the unit ball losses are 2 apart
            whole = in_ball(draw, curvature * rows / 2, np.zeros(p), 1.0)
            # half of epsilon for the centre, which is within r of the minimizer but for 1 in 1,000
            centres = norm_noise(draw, p, 2 * distance, 200)
            r = float(np.quantile(draw.gamma(p, 2 * distance, 100_000), 0.999))
            near = whole
            if r < 1:
                # and half for a draw from a ball of radius r, in which losses are 2 r apart
                weights = curvature * rows / 2 / (2 * r)
                near = np.concatenate([in_ball(draw, weights, c, r, 50) for c in centres])
            nothing = draw.normal(size=(20_000, p))
            nothing /= np.linalg.norm(nothing, axis=1)[:, None]
            risks = (risk(capped(around)), risk(whole), risk(near), risk(nothing))
            print(
                f"{p:4d}{condition:10g}" + "".join(f"{value:12.2g}" for value in risks), flush=True
            )


def norm_noise(draw: Any, p: int, scale: float, count: int) -> Any:
    """Return noise with a density in proportion to ``exp(-|z| / scale)``, shape (count, p)."""
    z = draw.normal(size=(count, p))
    return z * (draw.gamma(p, scale, count) / np.linalg.norm(z, axis=1))[:, None]


def capped(w: Any) -> Any:
    """Return points shortened to the unit ball."""
    return w / np.maximum(np.linalg.norm(w, axis=1), 1.0)[:, None]


def in_ball(draw: Any, precision: Any, centre: Any, radius: float, count: int = 4_000) -> Any:
    """Return draws of density ``exp(-sum precision w^2 / 2)`` in a ball, by a chain.

    Coordinate by coordinate (Gibbs), each a normal number within what the ball leaves: 200 sweeps.
    """
    w = np.repeat(np.asarray(centre, dtype=np.float64)[None], count, axis=0)
    w += 1e-3 * radius * draw.normal(size=w.shape) / math.sqrt(len(precision))
    for _ in range(200):
        for j, own in enumerate(precision):
            others = ((w - centre) ** 2).sum(axis=1) - (w[:, j] - centre[j]) ** 2
            half = np.sqrt(np.maximum(radius**2 - others, 0.0))
            low, high = ndtr(np.stack([centre[j] - half, centre[j] + half]) * math.sqrt(own))
            w[:, j] = np.clip(
                ndtri(low + (high - low) * draw.random(count)) / math.sqrt(own),
                centre[j] - half,
                centre[j] + half,
            )
    return w


# -----------------------------------------------------------------------------
# Accuracy, all in the same certified budget.


def competitors(features: list[str], rows: int) -> dict[str, Any]:
    """Return learners of two classes, by their source."""
    pair = (features, "target")
    svrg = {"steps": 100, "sampling_rate": 0.1, "reference": 20}
    every = {"steps": 200, "momentum": 0.0, "learning_rate": 4.0}
    return {
        "trivial": None,
        "Auto": dp.Auto(*pair, rows=rows),
        "CMS11 objective, delta = 0": (dp.ObjectivePerturbation(*pair), 0.0),
        "KST12 objective": dp.ObjectivePerturbation(*pair),
        "CMS11, ZZMW17 output": dp.OutputPerturbation(*pair),
        "BST14 exponential, delta = 0": (dp.ExponentialSampling(*pair, rows=rows), 0.0),
        "BST14, BFTGT19 noisy SGD": dp.NoisySGD(*pair, sampling_rate=0.05, **every),
        "BST14 noisy descent": dp.NoisyGradientDescent(*pair, **every),
        "FKT20 phased": dp.PhasedERM(*pair),
        "AMU20 phased, smoothed hinge": dp.PhasedERM(*pair, loss=HuberHinge(0.5)),
        "WYX17 noisy SVRG": dp.NoisySGD(*pair, **every | svrg),
    }


def fitted(entry: Any, table: dp.Table, epsilon: float) -> dp.Pipeline:
    """Return a plan that spends epsilon on a competitor's model."""
    learner, delta = entry if isinstance(entry, tuple) else (entry, DELTA)
    model = table.solve(learner, epsilon=epsilon, delta=delta)
    return dp.Pipeline(model=model).with_delta(delta)


def accuracy(options: argparse.Namespace) -> None:
    """Print the mean accuracy on held-out quarters, by set, learner and epsilon."""
    for name in options.sets:
        these = corpus.load(name, exported=options.source)
        if these.classes != 2:
            raise SystemExit(f"{name} has {these.classes} classes: competitors learn two")
        columns, target = these.columns, these.columns["target"]
        print(f"{name}: {len(these.data['target'])} rows, {len(these.features)} features")
        print(f"{'':32}" + "".join(f"{e:>8g}" for e in options.epsilon))
        parts = []
        for split in range(options.splits):
            order = np.random.default_rng(split).permutation(len(these.data["target"]))
            cut = len(order) // 4
            parts.append(
                [{k: v[r] for k, v in these.data.items()} for r in (order[cut:], order[:cut])]
            )
        for label, entry in competitors(these.features, len(parts[0][0]["target"])).items():
            row = []
            for epsilon in options.epsilon:
                right = []
                for split, (train, test) in enumerate(parts):
                    if entry is None:
                        values, counts = np.unique(train["target"], return_counts=True)
                        said = np.full(len(test["target"]), values[counts.argmax()])
                    else:
                        plan = fitted(entry, dp.dataset("rows", columns=columns), epsilon)
                        model = plan.simulate(seed=split, rows=train)["model"]
                        said = dp.predict(model, test, classes=target)
                    right.append(np.mean(said == test["target"]))
                row.append(np.mean(right))
            print(f"{label:32}" + "".join(f"{r:8.3f}" for r in row), flush=True)


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("noise")
    verbs.add_parser("localised")
    fit = verbs.add_parser("accuracy")
    fit.add_argument("--from", dest="source", type=Path, help="a folder of exported sets")
    fit.add_argument("--sets", nargs="+", default=["compas"])
    fit.add_argument("--epsilon", nargs="*", type=float, default=[0.1, 1.0, 4.0])
    fit.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    {"noise": noise, "localised": localised, "accuracy": accuracy}[options.verb](options)


if __name__ == "__main__":
    main()
