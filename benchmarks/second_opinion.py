"""Claims of the accountants on random terms, held against the independent checker.

    python benchmarks/second_opinion.py 1000                      terms of seed 0, and a table
    python benchmarks/second_opinion.py 1000 --seed 7 --keep a    added to those kept in the file a
    python benchmarks/second_opinion.py 0 --keep a                the table of what is kept

Every loss and every term that a document can hold is drawn, mostly of sizes of which the checker
takes milliseconds. Both ends of all brackets of epsilon are asked, of all accountants that answer:
the checker confirms an upper end if delta there is at most what was asked, and a lower end if delta
is more next below it. An end that is confirmed confirms the wider ones. Seconds are of processor
time, and a term that takes more than ``--limit`` of them is counted as too slow.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import contextlib
import json
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import accountants as own
from accountants import losses
from accountants.independent import check

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.accounting import TooLong, limited

Rng = np.random.Generator

# --- what is drawn


def _log(rng: Rng, low: float, high: float) -> float:
    return float(10 ** rng.uniform(math.log10(low), math.log10(high)))


def _count(rng: Rng, most: float) -> int:
    """Return a count, small ones as likely as large ones."""
    return int(_log(rng, 1, most + 1))


def _size(rng: Rng) -> float:
    return _log(rng, 0.01, 3)


def _rate(rng: Rng) -> float:
    return 1.0 if rng.random() < 0.03 else _log(rng, 1e-6, 0.9)


def _small(rng: Rng) -> float:
    return _log(rng, 1e-12, 1e-4)


def delta_of(rng: Rng) -> float:
    """Return a delta from 1e-12 to .3, one in ten down to 1e-100."""
    return _log(rng, 1e-100, 1e-12) if rng.random() < 0.1 else _log(rng, 1e-12, 0.3)


def _noise(rng: Rng) -> own.PrivacyLoss:
    """Return what has no delta of its own: of bodies and selections."""
    return (own.Gaussian, own.Laplace, own.Pure)[int(rng.integers(3))](_size(rng))


def _plain(rng: Rng) -> own.PrivacyLoss:
    return losses.Approximate(_size(rng), _small(rng)) if rng.random() < 0.25 else _noise(rng)


def _body(rng: Rng) -> own.PrivacyLoss:
    return losses.Composite({_noise(rng): 1})


def _report(rng: Rng) -> own.PrivacyLoss:
    kinds = (losses.Pure, losses.Laplace, losses.RandomizedResponse, losses.RandomizedResponse)
    kind = kinds[int(rng.integers(4))]
    if kind is losses.RandomizedResponse:
        return losses.RandomizedResponse(_size(rng), int(rng.integers(2, 9)))
    return kind(_size(rng))


def _outcomes(rng: Rng) -> own.PrivacyLoss:
    """Return a few outcomes, some of them perhaps impossible under one law."""
    size, most = int(rng.integers(2, 6)), int(rng.choice([3, 60, 10**6]))
    while True:
        p, q = rng.integers(0, most + 1, size), rng.integers(0, most + 1, size)
        if rng.random() < 0.7:
            p, q = p + 1, q + 1
        if p.any() and q.any():
            return losses.FiniteOutcomes(
                *([Fraction(int(a), int(sum(law))) for a in law] for law in (p, q))
            )


def _mixture(rng: Rng) -> own.PrivacyLoss:
    if rng.random() < 0.4:
        leaving, joining = int(rng.integers(1, 4)), int(rng.integers(0, 3))
        return losses.GaussianMixture.of_sample(
            _size(rng), _log(rng, 1e-4, 0.6), leaving=leaving, joining=joining
        )
    sides: list[list[float]] = []
    for least in (1, 0):
        chances = [_log(rng, 1e-4, 0.3) for _ in range(int(rng.integers(least, 4)))]
        first = _size(rng)
        sides += [[first * (i + 1) for i in range(len(chances))], chances]
    return losses.GaussianMixture(*sides)


def _profile(rng: Rng) -> own.PrivacyLoss:
    loss = own.Gaussian(_size(rng))
    epsilons = sorted(rng.uniform(0, 4, int(rng.integers(1, 5))).tolist())
    points = [(e, min(1.0, loss.profile(e).upper)) for e in epsilons]
    return losses.PrivacyProfile(points, reverse=points[:1] if rng.random() < 0.3 else ())


def _trade_off(rng: Rng) -> own.PrivacyLoss:
    """Return points on the trade-off of a randomized response, moved down a little."""
    ratio = math.exp(_size(rng))
    alphas = sorted({_log(rng, 1e-10, 1 / (1 + ratio)) for _ in range(int(rng.integers(1, 4)))})
    return losses.TradeOff([(a, (1 - ratio * a) * (1 - a / 100)) for a in alphas])


def _reach(rng: Rng, size: float, most: float) -> float:
    """Return where noise is cut off, in sensitivities: up to so many scales beyond one of them."""
    return 1 + _log(rng, 1, most) / size


def _curve(rng: Rng) -> own.PrivacyLoss:
    orders = sorted({_log(rng, 1.1, 200) for _ in range(int(rng.integers(1, 6)))})
    rho = _log(rng, 1e-4, 2)
    return losses.RenyiCurve(orders, [rho * order for order in orders])


def _fixed(rng: Rng) -> tuple[int, int]:
    of = _count(rng, 1000)
    return int(rng.integers(0, of + 1)), of


LOSSES: dict[str, Callable[[Rng], own.PrivacyLoss]] = {
    "Allocated": lambda r: losses.Allocated(_body(r), _count(r, 30)),
    "Approximate": lambda r: losses.Approximate(_size(r), _small(r)),
    "BoundedRange": lambda r: losses.BoundedRange(_size(r)),
    "Composite": lambda r: losses.Composite(
        [(_plain(r), _count(r, 4)) for _ in range(int(r.integers(1, 3)))]
    ),
    "DiscreteGaussian": lambda r: losses.DiscreteGaussian(_log(r, 0.4, 20), _count(r, 4)),
    "DiscreteLaplace": lambda r: losses.DiscreteLaplace(_log(r, 0.3, 30), _count(r, 6)),
    "Envelope": lambda r: losses.Envelope([_plain(r) for _ in range(int(r.integers(1, 4)))]),
    "ExponentialNoisyMax": lambda r: losses.ExponentialNoisyMax(_size(r)),
    "FiniteOutcomes": _outcomes,
    "FixedSize": lambda r: losses.FixedSize(_body(r), *_fixed(r)),
    "Gaussian": lambda r: own.Gaussian(_log(r, 1e-3, 8)),
    "GaussianBound": lambda r: losses.GaussianBound(_size(r)),
    "GaussianMixture": _mixture,
    "GaussianSparseVector": lambda r: losses.GaussianSparseVector(
        _log(r, 2, 20), _log(r, 2, 20), _count(r, 20), int(r.integers(1, 3)), r.random() < 0.5
    ),
    "GumbelNoisyMax": lambda r: losses.GumbelNoisyMax(_size(r)),
    "Laplace": lambda r: own.Laplace(_log(r, 1e-3, 8)),
    "LaplaceNoisyMax": lambda r: losses.LaplaceNoisyMax(_size(r)),
    "ObjectivePerturbation": lambda r: losses.ObjectivePerturbation(
        _size(r), float(r.uniform(0, 1)), int(r.integers(1, 4))
    ),
    "PermuteAndFlip": lambda r: losses.PermuteAndFlip(_size(r)),
    "PoissonSelection": lambda r: losses.PoissonSelection(_noise(r), _log(r, 1, 50)),
    "PrivacyProfile": _profile,
    "PrivateSelection": lambda r: losses.PrivateSelection(
        _noise(r), float(r.uniform(-0.5, 3)), _log(r, 0.02, 0.9)
    ),
    "Pure": lambda r: own.Pure(_log(r, 1e-3, 8)),
    "RandomizedResponse": lambda r: losses.RandomizedResponse(_size(r), int(r.integers(2, 10))),
    "RenyiCurve": _curve,
    "ReplacedSample": lambda r: losses.ReplacedSample(_body(r), _rate(r)),
    "Sampled": lambda r: losses.Sampled(_body(r), _rate(r)),
    "Shuffled": lambda r: losses.Shuffled(_report(r), _count(r, 200)),
    "SmoothSanitization": lambda r: losses.SmoothSanitization(_log(r, 1, 30), _log(r, 1e-3, 0.1)),
    "SparseVector": lambda r: losses.SparseVector(
        _size(r), _size(r), float(r.choice([0.0, _size(r)])), _count(r, 3), r.random() < 0.5
    ),
    "StretchedShift": lambda r: losses.StretchedShift(_log(r, 1e-3, 2), _log(r, 1e-4, 1)),
    "Tested": lambda r: losses.Tested(
        _size(r), _small(r), _log(r, 1.5, 60), _log(r, 1e-3, 0.5), _noise(r)
    ),
    "TradeOff": _trade_off,
    "TruncatedGaussian": lambda r: losses.TruncatedGaussian(mu := _size(r), _reach(r, mu, 10)),
    "TruncatedLaplace": lambda r: losses.TruncatedLaplace(eps := _size(r), _reach(r, eps, 60)),
    "ZeroConcentrated": lambda r: losses.ZeroConcentrated(_log(r, 1e-4, 2)),
}
"""A draw of each class of loss."""


_SELDOM = {"Allocated": 0.4, "GaussianSparseVector": 0.25, "PrivateSelection": 0.5}
"""Losses that take the checker long, or that it cannot confirm, are drawn less often."""

_NAMES = sorted(LOSSES)
_WEIGHTS = np.array([_SELDOM.get(name, 1.0) for name in _NAMES])
_WEIGHTS /= _WEIGHTS.sum()


def _spend(rng: Rng) -> own.Term:
    return own.Spend(LOSSES[str(rng.choice(_NAMES, p=_WEIGHTS))](rng))


def _cheap(rng: Rng) -> own.Term:
    """Return one release of which the checker has a sum or a closed form."""
    kind = int(rng.integers(6))
    if kind == 4:
        return own.Spend(losses.RandomizedResponse(_size(rng), int(rng.integers(2, 10))))
    if kind == 5:
        return own.Spend(losses.DiscreteLaplace(_log(rng, 0.5, 10), _count(rng, 3)))
    return own.Spend(_plain(rng))


def _part(rng: Rng) -> own.Term:
    """Return what others are made of: mostly one release, at times a term."""
    kind = rng.random()
    if kind < 0.12:
        return TERMS[str(rng.choice(sorted(TERMS)))](rng)
    return _spend(rng) if kind < 0.25 else _cheap(rng)


def _sampled_part(rng: Rng) -> own.Term:
    return _part(rng) if rng.random() < 0.1 else own.Spend(_noise(rng))


def _sampled(rng: Rng) -> own.Term:
    return own.Sampled(_sampled_part(rng), _rate(rng))


def _several(rng: Rng, part: Callable[[Rng], own.Term]) -> list[own.Term]:
    return [part(rng) for _ in range(int(rng.integers(1, 4)))]


def _times(part: Callable[[Rng], own.Term], most: float) -> Callable[[Rng], own.Term]:
    return lambda rng: own.Repeated(part(rng), _count(rng, most))


def _allocated(rng: Rng) -> own.Term:
    steps = _count(rng, 30)
    return own.Allocated(_sampled_part(rng), steps, int(rng.integers(1, steps + 1)))


def _replaced_gaussian(rng: Rng) -> own.Term:
    return own.ReplacedSample(own.Spend(own.Gaussian(_log(rng, 0.05, 6))), _log(rng, 1e-6, 0.9))


def _sampled_gaussian(rng: Rng) -> own.Term:
    return own.Sampled(own.Spend(own.Gaussian(_log(rng, 0.05, 6))), _log(rng, 1e-6, 0.9))


def _little_noise(rng: Rng) -> own.Term:
    return own.Sampled(own.Spend(own.Gaussian(_log(rng, 25, 100))), _log(rng, 1e-6, 0.9))


def _softmax(rng: Rng) -> own.Term:
    """Return a softmax's objective perturbation, alone, repeated, beside another or of a group."""
    loss = losses.ObjectivePerturbation(
        _size(rng), float(rng.uniform(0, 1)), _count(rng, 3), 0.0, 1 + _count(rng, 30)
    )
    spend = own.Spend(loss)
    beside = own.Spend(own.Gaussian(_log(rng, 0.01, 0.5)))
    every = (spend, own.Repeated(spend, 3), own.Grouped(spend, 2), own.Sequential((spend, beside)))
    return every[int(rng.integers(4))]


TERMS: dict[str, Callable[[Rng], own.Term]] = {
    "Allocated": _allocated,
    "Grouped": lambda r: own.Grouped(_part(r), int(r.integers(1, 5))),
    "Parallel": lambda r: own.Parallel(_several(r, _part)),
    "Repeated": _times(_cheap, 30),
    "ReplacedSample": lambda r: own.ReplacedSample(_sampled_part(r), _rate(r)),
    "Sampled": _sampled,
    "Selected": lambda r: own.Selected(
        own.Spend(_noise(r)), float(r.uniform(-0.5, 3)), _log(r, 0.02, 0.9)
    ),
    "Sequential": lambda r: own.Sequential(_several(r, _part)),
    "Spend": _spend,
    "Subset": lambda r: own.Subset(_sampled_part(r), *_fixed(r)),
}
"""A draw of each kind of term."""

CLASSES: dict[str, tuple[float, Callable[[Rng], own.Term]]] = {
    "one loss": (25, _spend),
    "a cheap loss, repeated": (25, _times(_cheap, 30)),
    "any loss, repeated": (1, _times(_spend, 5)),
    "cheap losses together": (8, lambda r: own.Sequential(_several(r, _cheap))),
    "losses together": (2, lambda r: own.Sequential(_several(r, _part))),
    "choices": (4, lambda r: own.Parallel(_several(r, _part))),
    "a group": (12, TERMS["Grouped"]),
    "a Poisson sample": (10, _sampled),
    "a replaced sample": (4, TERMS["ReplacedSample"]),
    "a sample of fixed size": (4, TERMS["Subset"]),
    "an allocation": (2, _allocated),
    "a selection": (1, TERMS["Selected"]),
    "one replaced Gaussian": (2, _replaced_gaussian),
    "few replaced Gaussians": (0, _times(_replaced_gaussian, 64)),
    "many replaced Gaussians": (0, _times(_replaced_gaussian, 1e4)),
    "few sampled Gaussians": (0, _times(_sampled_gaussian, 64)),
    "many sampled Gaussians": (0, _times(_sampled_gaussian, 1e4)),
    "samples of little noise": (0, _times(_little_noise, 100)),
    "softmax": (0, _softmax),
}
"""What is drawn, and how often: nothing that mostly takes seconds, unless it is named."""


def question(seed: int, index: int, only: str = "") -> tuple[str, own.Term, float]:
    """Return the class, the term and the delta of one question, of classes whose name holds a text.

    Of those that are named each is as likely.
    """
    rng = np.random.default_rng([seed, index])
    names = [name for name in CLASSES if only in name]
    weights = np.array([1.0 if only else CLASSES[name][0] for name in names])
    while True:
        name = str(rng.choice(names, p=weights / weights.sum()))
        # a group of a loss without group privacy is no term
        with contextlib.suppress(own.AccountingError):
            return name, CLASSES[name][1](rng), delta_of(rng)


# --- what is asked


def brackets(term: own.Term, delta: float) -> dict[str, tuple[float, float]]:
    """Return the brackets of epsilon of all accountants that answer with a finite one."""
    found = {}
    for name, answer in own.certify(term, delta).items():
        bounds = answer.bounds
        if bounds is not None and math.isfinite(bounds.upper):
            found[name] = (bounds.lower, bounds.upper)
    return found


def _verdict(document: str, epsilon: float, delta: float, *, upper: bool) -> dict[str, Any]:
    opinion = check(document, epsilon=epsilon, delta=delta)
    verdict = opinion.verdict
    if not upper:
        verdict = {"confirmed": "refuted", "refuted": "confirmed"}.get(verdict, verdict)
    return {
        "verdict": verdict,
        "epsilon": epsilon,
        "delta": [opinion.lower, opinion.upper],
        "method": opinion.method,
        "reason": opinion.reason,
    }


_BELOW = 1 - 2e-9
"""A claim that the checker confirms holds at an epsilon that is larger by a billionth: a lower end
is held against one that is smaller by two."""


_TRIED = 3
"""So many claims are tried, the narrowest first; one that is confirmed confirms the wider ones."""


def _ends(document: str, delta: float, claims: dict[str, float], *, upper: bool) -> dict[str, Any]:
    """Return what the checker says of all claims of one end, the narrowest first."""
    order = sorted(claims, key=lambda name: claims[name] if upper else -claims[name])
    first: dict[str, Any] = {"verdict": "none"}
    for i, name in enumerate(order[:_TRIED]):
        found = _verdict(document, claims[name] * (1 if upper else _BELOW), delta, upper=upper)
        if i == 0:
            first = {"accountant": name, **found}
        if found["verdict"] == "refuted":
            return {"accountant": name, **found}
        if found["verdict"] == "confirmed":
            return {**first, "wider": order[i:]}
    return {**first, "wider": []}


def asked(term: own.Term, delta: float, limit: float) -> dict[str, Any]:
    """Return the claims on a term and what the checker says of them."""
    document, start = own.to_json(term), time.process_time()
    row: dict[str, Any] = {"term": document, "delta": delta}
    row["kinds"] = sorted(_kinds(json.loads(document)))
    try:
        with (
            limited(limit, of_processor=True),
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            claims = brackets(term, delta)
            row["claims"], row["claimed"] = claims, time.process_time() - start
            highs = {name: high for name, (_, high) in claims.items()}
            lows = {name: low for name, (low, _) in claims.items() if low > 0}
            row["upper"] = _ends(document, delta, highs, upper=True)
            row["lower"] = _ends(document, delta, lows, upper=False)
    except own.InapplicableError as refusal:
        row["refused"] = str(refusal)
    except TooLong:
        row["slow"] = True
    row["seconds"] = time.process_time() - start
    return row


def _kinds(value: Any) -> set[str]:
    """Return the kinds of losses and terms in a document, the terms with a colon."""
    if isinstance(value, list):
        return {kind for each in value for kind in _kinds(each)}
    if not isinstance(value, dict):
        return set()
    inner = {kind for each in value.values() for kind in _kinds(each)}
    if "kind" not in value:
        return inner
    is_term = bool({"part", "parts", "choices", "loss"} & set(value)) and value["kind"] in TERMS
    return inner | {value["kind"] + (":" if is_term else "")}


# --- what is shown


def shown(rows: list[dict[str, Any]]) -> None:
    """Print how often what was confirmed, and all that was refuted."""
    found = [(row, *(_of(row, end) for end in ("upper", "lower"))) for row in rows]
    both = [high == "confirmed" and low in ("confirmed", "none") for _, high, low in found]
    seconds = [row["seconds"] for row in rows]
    print(
        f"{len(rows)} questions, {len({(row['term'], row['delta']) for row in rows})} different; "
        f"{sum(both)} terms with every end that was claimed confirmed; processor seconds in the "
        f"median {np.median(seconds):.3f}, in all {sum(seconds):.0f}"
    )
    verdicts = ("confirmed", "refuted", "undecided", "not covered", "too slow", "none", "refused")
    print(f"{'end':24}" + "".join(f"{verdict:>13}" for verdict in verdicts))
    for k, end in enumerate(("upper", "lower")):
        counts = Counter(each[1 + k] for each in found)
        print(f"{end:24}" + "".join(f"{counts[verdict]:>13}" for verdict in verdicts))
    names = sorted({name for row in rows for name in row.get("claims", {})})
    for name in names:
        claims = [row for row in rows if name in row.get("claims", {})]
        confirmed = [
            sum(name in row.get(end, {}).get("wider", []) for row in claims)
            for end in ("upper", "lower")
        ]
        print(
            f"  {name:22}{len(claims)} claims; confirmed {confirmed[0]} upper, {confirmed[1]} lower"
        )
    _by_kind(found)
    for row, high, low in found:
        if "refuted" in (high, low):
            print("refuted:", json.dumps(row))


def _of(row: dict[str, Any], end: str) -> str:
    """Return the verdict on one end, of the narrowest claim unless a claim was refuted."""
    if end in row:
        return str(row[end]["verdict"])
    return "refused" if "refused" in row else "too slow"


def _by_kind(found: list[tuple[dict[str, Any], str, str]]) -> None:
    """Print for each loss and term how often its ends were confirmed, and how often not."""
    heads = f"{'upper':>10}{'not':>6}{'lower':>10}{'not':>6}{'too slow':>10}"
    print(f"{'loss or term:':24}{heads}")
    for kind in sorted({kind for row, _, _ in found for kind in row["kinds"]}):
        mine = [(high, low) for row, high, low in found if kind in row["kinds"]]
        cells = []
        for k in range(2):
            of = Counter(each[k] for each in mine)
            cells += [of["confirmed"], of["undecided"] + of["not covered"]]
        slow = sum("too slow" in each for each in mine)
        print(
            f"{kind:24}{cells[0]:>10}{cells[1]:>6}{cells[2]:>10}{cells[3]:>6}{slow:>10}", flush=True
        )


def main() -> None:
    """Ask the questions, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("questions", type=int, help="how many of the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="classes whose name holds this text")
    parser.add_argument("--limit", type=float, default=4.0, help="processor seconds for each")
    parser.add_argument("--keep", type=Path, help="a file to which what is found is added")
    given = parser.parse_args()
    rows = []
    if given.keep and given.keep.exists():
        rows = [json.loads(line) for line in given.keep.read_text().splitlines()]
    for index in range(given.questions):
        name, term, delta = question(given.seed, index, given.only)
        row = {"seed": given.seed, "index": index, "class": name, **asked(term, delta, given.limit)}
        rows.append(row)
        if given.keep:
            with given.keep.open("a") as kept:
                kept.write(json.dumps(row) + "\n")
    shown(rows)


if __name__ == "__main__":
    main()
