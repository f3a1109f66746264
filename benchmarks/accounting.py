"""The accountants beside their peers: how long each takes, and how close it comes to the truth.

    python benchmarks/accounting.py                 every case
    python benchmarks/accounting.py a1 b --plot a.png
    python benchmarks/accounting.py --sweep 40      how wide and how slow, over all schemes
    python benchmarks/accounting.py --questions 1000 --seed 1 --limit 1    does each have an answer

Peers are whatever is installed of ``pip install 'adaptive-dp[peers]'``; one that is missing, fails
or takes longer than ``--limit`` seconds has a row that says so. Seconds are of one query in this
process: the first, and the median of some more. Each repeat changes the noise by a billionth, so
that no library answers from a cache. Tight values are known to the digits shown (ball arithmetic
and closed forms); "below" marks an upper bound that is less than the truth.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse
import contextlib
import importlib
import itertools
import math
import platform
import signal
import statistics
import subprocess
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from attrs import field, frozen

import accountants as own
from accountants.numerics import Bounds

Value = Bounds | float
Run = Callable[[float], Value]
"""From a factor of the noise, next to 1, to an answer."""


@frozen
class Case:
    """One question to all: its truth, or None, and a way to ask each."""

    name: str
    about: str
    truth: float | None
    ask: dict[str, Run] = field(factory=dict)


@frozen
class Row:
    """One answer: ``note`` where there is none."""

    case: str
    name: str
    first: float = math.nan
    warm: float = math.nan
    value: Value = math.nan
    note: str = ""

    def upper(self) -> float:
        return self.value.upper if isinstance(self.value, Bounds) else self.value


# --- ours


def ours() -> list[Any]:
    """Return our accountants: the distribution's where there is one, then Renyi."""
    accountants = [own.Renyi()]
    with contextlib.suppress(ImportError, AttributeError):
        accountants.insert(0, importlib.import_module("accountants.distribution").Distribution())
    return accountants


def asks_of(term: Callable[[float], own.Term], delta: float, *more: Any) -> dict[str, Run]:
    """Return how to ask each of ours for epsilon; the term is made anew each time."""

    def run(accountant: Any) -> Run:
        def query(factor: float) -> Value:
            bounds = own.measure(term(factor), accountant, delta=delta).bounds
            return math.nan if bounds is None else bounds

        return query

    return {f"ours: {accountant.name}": run(accountant) for accountant in [*ours(), *more]}


def dpsgd(rate: float, sigma: float, steps: int) -> Callable[[float], own.Term]:
    return lambda factor: own.Repeated(
        own.Sampled(own.Spend(own.Gaussian(1 / (sigma * factor))), rate), steps
    )


def repeated(kind: Callable[[float], Any], noise: float, count: int) -> Callable[[float], own.Term]:
    return lambda factor: own.Repeated(own.Spend(kind(1 / (noise * factor))), count)


# --- peers


def peer(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def google(kind: str, event: Callable[[Any, float], Any], delta: float, **options: Any) -> Run:
    def query(factor: float) -> float:
        events = peer("dp_accounting.dp_event")
        if kind == "pld":
            accountant = peer("dp_accounting.pld").PLDAccountant(**options)
        else:
            accountant = peer("dp_accounting.rdp").RdpAccountant(**options)
        return float(accountant.compose(event(events, factor)).get_epsilon(delta))

    return query


def googles(event: Callable[[Any, float], Any], delta: float) -> dict[str, Run]:
    return {
        "dp-accounting rdp": google("rdp", event, delta),
        "dp-accounting pld": google("pld", event, delta),
        "dp-accounting pld 1e-3": google("pld", event, delta, value_discretization_interval=1e-3),
    }


def prv(
    make: Callable[[Any, float], tuple[list[Any], list[int]]], delta: float, error: float
) -> Run:
    def query(factor: float) -> float:
        module = peer("prv_accountant")
        prvs, counts = make(module, factor)
        accountant = module.PRVAccountant(
            prvs=prvs, max_self_compositions=counts, eps_error=error, delta_error=delta / 1000
        )
        return float(accountant.compute_epsilon(delta, counts)[2])

    return query


def autodp(make: Callable[[Any, float], Any], delta: float, count: int) -> Run:
    def query(factor: float) -> float:
        zoo, transforms = peer("autodp.mechanism_zoo"), peer("autodp.transformer_zoo")
        one = make((zoo, transforms), factor)
        return float(transforms.Composition()([one], [count]).get_approxDP(delta))

    return query


def opacus(kind: str, rate: float, sigma: float, steps: int, delta: float) -> Run:
    def query(factor: float) -> float:
        module = peer("opacus.accountants")
        accountant = module.create_accountant(kind)
        accountant.history = [(sigma * factor, rate, steps)]
        return float(accountant.get_epsilon(delta))

    return query


# --- cases


def trainings() -> Iterator[Case]:
    for name, rate, sigma, steps, delta, truth in (
        ("a1", 256 / 60_000, 1.1, 14_063, 1e-5, 2.3816897261),
        ("a2", 0.01, 0.8, 10_000, 1e-6, 11.1831641961),
        ("a3", 1e-4, 0.6, 100_000, 1e-7, 1.42923569),
    ):

        def event(e: Any, f: float, q: float = rate, s: float = sigma, t: int = steps) -> Any:
            return e.SelfComposedDpEvent(e.PoissonSampledDpEvent(q, e.GaussianDpEvent(s * f)), t)

        def subsampled(m: Any, f: float, q: float = rate, s: float = sigma, t: int = steps) -> Any:
            return [m.PoissonSubsampledGaussianMechanism(q, s * f)], [t]

        def amplified(m: Any, f: float, q: float = rate, s: float = sigma) -> Any:
            zoo, transforms = m
            sample = transforms.AmplificationBySampling(PoissonSampling=True)
            gaussian = zoo.GaussianMechanism(sigma=s * f)
            gaussian.neighboring = "add_remove"
            return sample(gaussian, q, improved_bound_flag=True)

        ask = asks_of(dpsgd(rate, sigma, steps), delta) | googles(event, delta)
        ask["prv 0.1"] = prv(subsampled, delta, 0.1)
        ask["prv 0.01"] = prv(subsampled, delta, 0.01)
        ask["autodp rdp"] = autodp(amplified, delta, steps)
        ask |= {f"opacus {k}": opacus(k, rate, sigma, steps, delta) for k in ("rdp", "prv", "gdp")}
        yield Case(name, f"DP-SGD q={rate:.4g} sigma={sigma} T={steps} delta={delta}", truth, ask)


def folds() -> Iterator[Case]:
    truths = {
        "Gaussian": {1: 0.3406693646843264, 100: 4.377178095681225, 10_000: 91.81728962466374},
        "Laplace": {
            1: 0.0999799998999993,
            10: 0.989962311151,
            100: 4.2203473250803,
            1000: 17.4236519875376,
            10_000: 89.4289054267,
        },
    }
    for kind, by_count in truths.items():
        for count, truth in by_count.items():

            def event(e: Any, f: float, k: str = kind, n: int = count) -> Any:
                return e.SelfComposedDpEvent(getattr(e, f"{k}DpEvent")(10.0 * f), n)

            def one(m: Any, f: float, k: str = kind) -> Any:
                zoo = m[0]
                return (
                    zoo.GaussianMechanism(10.0 * f)
                    if k == "Gaussian"
                    else zoo.LaplaceMechanism(10 * f)
                )

            def alone(m: Any, f: float, k: str = kind, n: int = count) -> Any:
                gaussian = k == "Gaussian"
                return [m.GaussianMechanism(10 * f) if gaussian else m.LaplaceMechanism(10 * f)], [
                    n
                ]

            term = repeated(getattr(own, kind), 10.0, count)
            more = [own.GaussianDP()] if kind == "Gaussian" else []
            ask = asks_of(term, 1e-5, *more) | googles(event, 1e-5)
            ask["prv 0.1"] = prv(alone, 1e-5, 0.1)
            ask["autodp rdp"] = autodp(one, 1e-5, count)
            yield Case(f"b-{kind[0]}{count}", f"{count} x {kind}(10), delta=1e-5", truth, ask)


def mixture(n: int) -> Iterator[tuple[str, float]]:
    for i in range(n):
        u = ((i * 7919) % n) / n
        kinds = (("Gaussian", 30 + 70 * u), ("Laplace", 20 + 80 * u), ("Pure", 0.01 + 0.05 * u))
        yield kinds[0 if i % 5 < 2 else 1 if i % 5 < 4 else 2]


def heterogeneous() -> Iterator[Case]:
    def term(factor: float) -> own.Term:
        parts = []
        for kind, x in mixture(1000):
            ratio = x / factor if kind == "Pure" else 1 / (x * factor)
            parts.append(own.Spend(getattr(own, kind)(ratio)))
        return own.Sequential(parts)

    def composed(factor: float) -> float:
        """Google's PLDs composed by hand: its accountant has no event for them all."""
        pld = peer("dp_accounting.pld.privacy_loss_distribution")
        grid = {"value_discretization_interval": 1e-3}
        total = pld.identity(**grid)
        for kind, x in mixture(1000):
            if kind == "Pure":
                part = pld.from_randomized_response(2 / (1 + math.exp(x / factor)), 2, **grid)
            elif kind == "Laplace":
                part = pld.from_laplace_mechanism(x * factor, **grid)
            else:
                part = pld.from_gaussian_mechanism(x * factor, **grid)
            total = total.compose(part)
        return float(total.get_epsilon_for_delta(1e-6))

    def autodp_all(factor: float) -> float:
        zoo, transforms = peer("autodp.mechanism_zoo"), peer("autodp.transformer_zoo")
        kinds = {
            "Gaussian": lambda x: zoo.GaussianMechanism(x * factor),
            "Laplace": lambda x: zoo.LaplaceMechanism(x * factor),
            "Pure": lambda x: zoo.RandresponseMechanism(1 / (1 + math.exp(-x / factor))),
        }
        parts = [kinds[kind](x) for kind, x in mixture(1000)]
        return float(transforms.Composition()(parts, [1] * len(parts)).get_approxDP(1e-6))

    ask = asks_of(term, 1e-6)
    ask |= {"dp-accounting pld 1e-3": composed, "autodp rdp": autodp_all}
    yield Case("c", "1000 different Gaussian, Laplace, responses; delta=1e-6", 3.7047784501847, ask)


def responses() -> Iterator[Case]:
    def event(e: Any, f: float) -> Any:
        noise = 2 / (1 + math.exp(0.1 / f))
        return e.SelfComposedDpEvent(e.RandomizedResponseDpEvent(noise, 2), 100)

    def pld(factor: float) -> float:
        relation = peer("dp_accounting").NeighboringRelation.REPLACE_ONE
        return float(google("pld", event, 1e-6, neighboring_relation=relation)(factor))

    def rdp(factor: float) -> float:
        relation = peer("dp_accounting").NeighboringRelation.REPLACE_ONE
        return float(google("rdp", event, 1e-6, neighboring_relation=relation)(factor))

    def pure(m: Any, f: float) -> Any:
        return [m.PureDPMechanism(0.1 / f)], [100]

    ask = asks_of(repeated(own.Pure, 10.0, 100), 1e-6, own.Advanced())
    ask |= {"dp-accounting rdp": rdp, "dp-accounting pld": pld, "prv 0.1": prv(pure, 1e-6, 0.1)}
    yield Case("d", "100 x any 0.1-DP mechanism, delta=1e-6", 4.77456758810799, ask)


def calibrations() -> Iterator[Case]:
    module = importlib.import_module("accountants.calibration")

    def solved(
        make: Callable[[float], Callable[[float], own.Term]], epsilon: float, accountant: Any
    ) -> Run:
        def query(factor: float) -> float:
            calibration = module.calibrate(
                lambda sigma: make(sigma)(1.0),
                epsilon=epsilon * factor,
                delta=1e-5,
                accountant=accountant,
                cost="decreasing",
            )
            return float(calibration.value)

        return query

    def google_noise(kind: str, epsilon: float, rate: float, steps: int, **options: Any) -> Run:
        def query(factor: float) -> float:
            dp, events = peer("dp_accounting"), peer("dp_accounting.dp_event")
            make = peer(f"dp_accounting.{kind}")
            new_accountant = make.PLDAccountant if kind == "pld" else make.RdpAccountant

            def event(sigma: float) -> Any:
                gaussian = events.GaussianDpEvent(sigma)
                one = gaussian if rate == 1 else events.PoissonSampledDpEvent(rate, gaussian)
                return events.SelfComposedDpEvent(one, steps)

            return float(
                dp.calibrate_dp_mechanism(
                    lambda: new_accountant(**options), event, epsilon * factor, 1e-5
                )
            )

        return query

    def opacus_noise(kind: str, epsilon: float, rate: float, steps: int) -> Run:
        def query(factor: float) -> float:
            find = peer("opacus.accountants.utils").get_noise_multiplier
            return float(
                find(
                    target_epsilon=epsilon * factor,
                    target_delta=1e-5,
                    sample_rate=rate,
                    steps=steps,
                    accountant=kind,
                )
            )

        return query

    for name, rate, steps, epsilon, truth in (
        ("e1", 256 / 60_000, 14_063, 3.0, 0.968427415596),
        ("e2", 1.0, 1, 1.0, 3.73063163482),
    ):

        def make(sigma: float, q: float = rate, t: int = steps) -> Callable[[float], own.Term]:
            return dpsgd(q, sigma, t) if q < 1 else repeated(own.Gaussian, sigma, t)

        mine = [*ours(), *([own.GaussianDP()] if rate == 1 else [])]
        ask = {f"ours: {a.name}": solved(make, epsilon, a) for a in mine}
        coarse = {"value_discretization_interval": 1e-3}
        ask["dp-accounting rdp"] = google_noise("rdp", epsilon, rate, steps)
        ask["dp-accounting pld 1e-3"] = google_noise("pld", epsilon, rate, steps, **coarse)
        ask["opacus rdp"] = opacus_noise("rdp", epsilon, rate, steps)
        yield Case(name, f"sigma for epsilon={epsilon} q={rate:.4g} T={steps}", truth, ask)


def curves() -> Iterator[Case]:
    """200 points of delta(epsilon); the 50th is shown."""
    sampled = dpsgd(256 / 60_000, 1.1, 14_063)
    laplaces = repeated(own.Laplace, 10.0, 1000)

    def ours_at(
        term: Callable[[float], own.Term], points: np.ndarray[Any, Any], accountant: Any
    ) -> Run:
        def query(factor: float) -> Value:
            state = accountant.start()
            for world in own.worlds(term(factor)):
                for loss, times in world.spends.items():
                    state = accountant.compose(state, loss, times)
            if hasattr(accountant, "profile"):
                lower, upper = accountant.profile(state, points)
                return Bounds(float(lower[50]), float(upper[50]))
            return [accountant.delta(state, float(eps)) for eps in points][50]

        return query

    def google_at(event: Callable[[Any, float], Any], points: np.ndarray[Any, Any]) -> Run:
        def query(factor: float) -> float:
            accountant = peer("dp_accounting.pld").PLDAccountant()
            accountant.compose(event(peer("dp_accounting.dp_event"), factor))
            return [float(accountant.get_delta(float(eps))) for eps in points][50]

        return query

    def train(e: Any, f: float) -> Any:
        one = e.PoissonSampledDpEvent(256 / 60_000, e.GaussianDpEvent(1.1 * f))
        return e.SelfComposedDpEvent(one, 14_063)

    for name, about, term, event, points in (
        ("g1", "200 deltas of a1", sampled, train, np.linspace(0.05, 6, 200)),
        (
            "g2",
            "200 deltas of 1000 x Laplace(10)",
            laplaces,
            lambda e, f: e.SelfComposedDpEvent(e.LaplaceDpEvent(10.0 * f), 1000),
            np.linspace(0.5, 30, 200),
        ),
    ):
        ask = {f"ours: {a.name}": ours_at(term, points, a) for a in ours()}
        ask["dp-accounting pld"] = google_at(event, points)
        yield Case(name, about, None, ask)


def renyis() -> Iterator[Case]:
    """The Renyi accountants alone: what is paid for training, and for plain noise."""
    for case in [*trainings(), *folds()]:
        if case.name in ("a1", "a2", "b-G100", "b-L1000"):
            renyi_runs = {k: v for k, v in case.ask.items() if k.endswith(("renyi", "rdp"))}
            yield Case(f"r-{case.name}", f"Renyi alone: {case.about}", case.truth, renyi_runs)


def brackets() -> Iterator[Case]:
    """Compositions whose brackets were wide: of losses on a lattice, and across decades."""

    def spend(loss: Any, times: int = 1) -> own.Term:
        return own.Repeated(own.Spend(loss), times)

    def many(kind: Callable[[float], Any], low: float, high: float, count: int) -> Any:
        def term(factor: float) -> own.Term:
            shares = (((i * 7919) % count) / count for i in range(count))
            return own.Sequential([spend(kind((low + (high - low) * u) / factor)) for u in shares])

        return term

    def decades(factor: float) -> own.Term:
        return own.Sequential([spend(own.Laplace(10.0**-i / factor), 10**i) for i in range(7)])

    def tiny(factor: float) -> own.Term:
        return own.Sequential([spend(own.Pure(1e-6), 10**6), spend(own.Pure(0.1 / factor), 10)])

    def two(factor: float) -> own.Term:
        return own.Sequential([spend(own.Laplace(2.15 / factor), 3), spend(own.Laplace(0.94), 3)])

    def sampled(loss: Callable[[float], Any], rate: float, times: int) -> Any:
        return lambda f: own.Repeated(own.Sampled(own.Spend(loss(f)), rate), times)

    def replaced(factor: float) -> own.Term:
        one = own.ReplacedSample(own.Spend(own.Gaussian(1 / factor)), 0.01)
        return own.Repeated(one, 100_000)

    def often_replaced(factor: float) -> own.Term:
        one = own.ReplacedSample(own.Spend(own.Gaussian(1 / factor)), 0.5)
        return own.Repeated(one, 10**6)

    def subsets(factor: float) -> own.Term:
        return own.Repeated(
            own.Subset(own.Spend(own.Gaussian(2 / 1.1 / factor)), 100, 60_000), 5000
        )

    def samples(low: float, high: float, steps: int) -> Any:
        rng = np.random.default_rng(0)
        every = [
            (rng.uniform(0.5, 5), 10 ** rng.uniform(low, high), int(rng.integers(1, steps + 1)))
            for _ in range(200)
        ]

        def term(factor: float) -> own.Term:
            one = ((own.Gaussian(1 / (sigma * factor)), q, n) for sigma, q, n in every)
            return own.Sequential(
                [own.Repeated(own.Sampled(own.Spend(x), q), n) for x, q, n in one]
            )

        return term

    def shuffles(answers: int) -> Any:
        def term(factor: float) -> own.Term:
            reports = (
                own.Shuffled(
                    own.RandomizedResponse((0.5 + 0.1 * i) / factor, max(2, answers + i % answers))
                    if answers
                    else own.RandomizedResponse((0.5 + 0.2 * i) / factor),
                    reports=10_000 + 1_000 * i,
                )
                for i in range(10)
            )
            return own.Sequential([own.Spend(each) for each in reports])

        return term

    def allocations(factor: float) -> own.Term:
        return own.Sequential(
            [
                own.Allocated(own.Spend(own.Gaussian((0.2 + 0.05 * i) / factor)), 8 + i)
                for i in range(20)
            ]
        )

    def groups(factor: float) -> own.Term:
        return own.Grouped(sampled(lambda f: own.Gaussian(0.5 / f), 0.01, 1000)(factor), 3)

    def little(factor: float) -> own.Term:
        noises = ((i, (0.1 + 1e-5 * i) * factor) for i in range(200))
        return own.Sequential(
            [own.Sampled(own.Spend(own.Gaussian(1 / x)), 0.01 + 1e-5 * i) for i, x in noises]
        )

    for name, about, term, delta in (
        (
            "w1",
            "1000 answers out of 3, each .1",
            lambda f: spend(own.RandomizedResponse(0.1 / f, 3), 1000),
            0.1,
        ),
        (
            "w2",
            "10^6 answers out of 3, each .001",
            lambda f: spend(own.RandomizedResponse(0.001 / f, 3), 10**6),
            0.1,
        ),
        ("w3", "10^6 Pure(1e-6) and 10 Pure(.1)", tiny, 1e-3),
        ("w4", "10^i Laplace(10^-i), i from 0 to 6", decades, 1e-5),
        ("w5", "3 Laplace(2.15) and 3 Laplace(.94)", two, 0.1219),
        ("w6", "2000 Laplace of .01 to .02", many(own.Laplace, 0.01, 0.02, 2000), 1e-5),
        ("w7", "300 Pure of .1 to .2", many(own.Pure, 0.1, 0.2, 300), 1e-5),
        (
            "w8",
            "Laplace(1) sampled at .5, T=10^5",
            sampled(lambda f: own.Laplace(1 / f), 0.5, 10**5),
            1e-5,
        ),
        (
            "w9",
            "Gaussian(1) sampled at 1e-3, T=100",
            sampled(lambda f: own.Gaussian(2 / f), 1e-3, 100),
            1e-5,
        ),
        ("w10", "replaced Gaussian(1), rate .01, T=10^5", replaced, 1e-5),
        ("w12", "replaced Gaussian(1), rate .5, T=10^6", often_replaced, 1e-5),
        (
            "w13",
            "Gaussian(1) sampled at 1e-8, T=10^8",
            sampled(lambda f: own.Gaussian(1 / f), 1e-8, 10**8),
            1e-5,
        ),
        (
            "w14",
            "Gaussian(1) sampled at 1e-4, T=10^4",
            sampled(lambda f: own.Gaussian(1 / f), 1e-4, 10**4),
            1e-10,
        ),
        (
            "w16",
            "Laplace(1) sampled at 1e-3, T=10^6",
            sampled(lambda f: own.Laplace(1 / f), 1e-3, 10**6),
            1e-5,
        ),
        ("w15", "5000 samples of 100 of 60,000", subsets, 1e-5),
        ("w17", "200 sampled Gaussians of .5 to 5, rates 1e-5 to .1", samples(-5, -1, 1), 1e-5),
        ("w18", "the same, up to 1,000 steps each", samples(-5, -1, 1000), 1e-5),
        ("w19", "200 sampled Gaussians of .5 to 5, rate 1e-5", samples(-5, -5, 1), 1e-5),
        ("w20", "ten shuffled responses out of 3 to 5", shuffles(3), 1e-6),
        ("w21", "ten shuffled responses out of 2", shuffles(0), 1e-6),
        ("w22", "20 allocations", allocations, 1e-5),
        (
            "w25",
            "Gaussian(.5) sampled at 1e-4, T=1000",
            sampled(lambda f: own.Gaussian(2 / f), 1e-4, 1000),
            1e-100,
        ),
        ("w26", "groups of 3, Gaussian(2) sampled at .01, T=1000", groups, 1e-6),
        ("w27", "200 sampled Gaussians of .1 to .102, rates .01 to .012", little, 1e-5),
        ("w23", "1000 Pure of .001 to .1", many(own.Pure, 0.001, 0.1, 1000), 1e-5),
    ):
        runs = {k: run for k, run in asks_of(term, delta).items() if k.endswith("distribution")}
        yield Case(name, f"{about}, delta={delta}", None, runs)

    def advantage(factor: float) -> Value:
        from accountants.guarantee import Guarantee

        return Guarantee(spend(own.RandomizedResponse(0.05 / factor, 3), 1000)).advantage()

    def uneven(factor: float) -> Value:
        rng = np.random.default_rng(0)
        p = rng.dirichlet(np.ones(12))
        q = p * np.exp(rng.normal(0, 0.5 / factor, 12))
        loss = own.PrivacyLoss.from_probabilities(p.tolist(), (q / q.sum()).tolist())
        state = own.Distribution().compose(own.Distribution().start(), loss, 20)
        low, high = own.Distribution().profile(state, np.linspace(0.1, 20, 200))
        return Bounds(float(low[100]), float(high[100]))

    def pair(seed: int, factor: float) -> own.PrivacyLoss:
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.ones(12))
        q = p * np.exp(rng.normal(0, 0.5 / factor, 12))
        return own.PrivacyLoss.from_probabilities(p.tolist(), (q / q.sum()).tolist())

    def tradeoff(make: Callable[[float], own.Term]) -> Run:
        def query(factor: float) -> Value:
            rates = np.linspace(0.01, 0.99, 99)
            low, high = own.Guarantee(make(factor)).tradeoff(rates)
            return Bounds(float(low[50]), float(high[50]))

        return query

    def five(factor: float) -> own.Term:
        return own.Sequential([own.Spend(pair(i, factor)) for i in range(1, 6)])

    def laplaces(factor: float) -> Value:
        shares = (((i * 7919) % 1000) / 1000 for i in range(1000))
        every = own.Sequential([spend(own.Laplace((0.001 + 0.099 * u) / factor)) for u in shares])
        bounds = own.tightest(own.certify(every, delta=1e-6)).bounds
        return math.nan if bounds is None else bounds

    def points(factor: float) -> Value:
        guarantee = own.Guarantee(spend(own.Laplace(0.1 / factor), 1000))
        low, high = guarantee.profile(np.linspace(0.5, 30, 10_000))
        return Bounds(float(low[5000]), float(high[5000]))

    ten = tradeoff(lambda f: spend(pair(0, f), 10))
    yield Case("w28", "99 trade-offs of 10 uneven losses of 12 outcomes", None, {"ours": ten})
    yield Case("w29", "99 trade-offs of 5 such, different", None, {"ours": tradeoff(five)})
    yield Case("w30", "tightest of 1000 Laplace of .001 to .1", None, {"ours": laplaces})
    yield Case("w31", "10,000 deltas of 1000 Laplace(.1)", None, {"ours": points})
    yield Case("w24", "200 deltas of 20 uneven losses of 12 outcomes", None, {"ours": uneven})
    yield Case("w11", "advantage of 1000 answers out of 3", None, {"ours: advantage": advantage})


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "a": trainings,
    "b": folds,
    "c": heterogeneous,
    "d": responses,
    "e": calibrations,
    "g": curves,
    "r": renyis,
    "w": brackets,
}


# --- the sweep: random questions over all schemes, and every answer that is wide or slow


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10 ** rng.uniform(math.log10(low), math.log10(high)))


def _steps(rng: np.random.Generator, most: float = 1e8) -> int:
    return round(_log(rng, 1, most))


def _gaussian(rng: np.random.Generator) -> own.Term:
    return own.Spend(own.Gaussian(1 / _log(rng, 0.2, 50)))


def _noises(rng: np.random.Generator) -> own.Term:
    kind = int(rng.integers(5))
    eps, times = _log(rng, 1e-4, 5), _steps(rng)
    loss: own.PrivacyLoss = (
        own.Laplace(eps),
        own.Pure(eps),
        own.RandomizedResponse(eps, 3),
        own.DiscreteLaplace(d / eps if (d := _steps(rng, 1e6)) else 1.0, max(1, d)),
        own.DiscreteGaussian(_log(rng, 0.3, 1e4)),
    )[kind]
    return own.Repeated(own.Spend(loss), times)


def _finite_pair(rng: np.random.Generator) -> own.Term:
    atoms = round(_log(rng, 2, 1e4))
    p = rng.dirichlet(np.ones(atoms))
    q = p * np.exp(rng.normal(0, _log(rng, 1e-3, 1), atoms))
    loss = own.PrivacyLoss.from_probabilities(p.tolist(), (q / q.sum()).tolist())
    return own.Repeated(own.Spend(loss), _steps(rng, 1e6))


def _decades(rng: np.random.Generator) -> own.Term:
    kinds = (own.Laplace, own.Pure, own.Gaussian)
    sizes = rng.uniform(-12, 0.3, 6)
    return own.Sequential(
        [
            own.Repeated(
                own.Spend(kinds[int(rng.integers(3))](float(10**x))),
                round(10 ** min(8, -x + 0.3)) or 1,
            )
            for x in sizes
        ]
    )


def _unlike(rng: np.random.Generator) -> own.Term:
    noise, rate = _log(rng, 0.2, 20), _log(rng, 1e-5, 0.1)
    count = round(_log(rng, 5, 200))
    return own.Sequential(
        [
            own.Sampled(
                own.Spend(own.Gaussian(1 / (noise * rng.uniform(1, 2)))), rate * rng.uniform(1, 2)
            )
            for _ in range(count)
        ]
    )


def _grouped(rng: np.random.Generator) -> own.Term:
    kind, size = int(rng.integers(3)), round(_log(rng, 2, 100))
    if kind == 0:
        return own.Grouped(own.Repeated(own.Spend(own.Pure(_log(rng, 1e-4, 2))), _steps(rng)), size)
    if kind == 1:
        return own.Grouped(own.Spend(own.BoundedRange(_log(rng, 1e-3, 5))), size)
    one = own.Sampled(_gaussian(rng), _log(rng, 1e-4, 0.5))
    return own.Grouped(own.Repeated(one, _steps(rng, 1e5)), min(size, 5))


def _subset(rng: np.random.Generator) -> own.Term:
    of = _steps(rng, 1e8) + 1
    size = max(1, round(of * _log(rng, 1e-8, 1)))
    return own.Repeated(own.Subset(_gaussian(rng), size, of), _steps(rng))


def _shuffled(rng: np.random.Generator) -> own.Term:
    local = own.RandomizedResponse(_log(rng, 0.05, 6), int(rng.choice([2, 2, 3, 8])))
    return own.Repeated(
        own.Spend(own.Shuffled(local, reports=_steps(rng) + 1)), int(rng.choice([1, 1, 3]))
    )


def _sampled_pure(rng: np.random.Generator) -> own.Term:
    kind = (own.Laplace, own.Pure)[int(rng.integers(2))]
    one = own.Sampled(own.Spend(kind(_log(rng, 0.01, 5))), _log(rng, 1e-8, 1))
    return own.Repeated(one, _steps(rng))


SWEPT: dict[str, Callable[[np.random.Generator], own.Term]] = {
    "noises, many times": _noises,
    "Poisson, Gaussian": lambda rng: own.Repeated(
        own.Sampled(_gaussian(rng), _log(rng, 1e-8, 1)), _steps(rng)
    ),
    "Poisson, Laplace or pure": _sampled_pure,
    "Poisson, replaced": lambda rng: own.Repeated(
        own.ReplacedSample(_gaussian(rng), _log(rng, 1e-8, 1)), _steps(rng)
    ),
    "fixed size": _subset,
    "allocation": lambda rng: own.Repeated(
        own.Allocated(_gaussian(rng), _steps(rng, 1e4) + 1), _steps(rng, 100)
    ),
    "many unlike samples": _unlike,
    "shuffled answers": _shuffled,
    "pairs of 2 to 10^4 atoms": _finite_pair,
    "twelve decades": _decades,
    "groups": _grouped,
}


def _delta(rng: np.random.Generator) -> float:
    """Return a delta: one in three below 1e-12."""
    return _log(rng, 1e-300, 1e-12) if rng.random() < 1 / 3 else _log(rng, 1e-12, 0.9)


def _bounds(term: own.Term, **at: float) -> Bounds:
    found = own.measure(term, own.Distribution(), **at).bounds  # type: ignore[arg-type]
    assert found is not None
    return found


def _further(term: own.Term, epsilon: float) -> dict[str, Callable[[], Bounds]]:
    """Return the questions beside epsilon, and how to ask them."""

    def tradeoff() -> Bounds:
        low, high = own.Guarantee(term).tradeoff(np.array([0.05]))
        return Bounds(float(low[0]), float(high[0]))

    # next to where delta is what was asked, at a number that one writes
    at = float(f"{epsilon:.2g}")
    return {
        "delta": lambda: _bounds(term, epsilon=at),
        "advantage": lambda: own.Guarantee(term).advantage(),
        "trade-off": tradeoff,
    }


def swept(count: int, limit: float, names: list[str]) -> None:
    """Print for each class how wide and slow its answers are, and all that are wide or slow.

    Of each class ``count`` terms whose epsilon is in [.001, 100] are asked; seconds are of
    processor time. Caches are cold for epsilon, warm for what follows.
    """
    heads = f"{'asked':>6}{'median':>10}{'widest':>10}{'median s':>10}{'most s':>9}"
    print(f"\n{'class, question':42}{heads}{'> 1e-6':>8}{'> 1 s':>7}")
    exceptions: list[str] = []
    for name, make in SWEPT.items():
        if names and not any(part in name for part in names):
            continue
        rng = np.random.default_rng(22)
        answers: dict[str, list[tuple[float, float]]] = {}
        done = tried = 0
        while done < count and tried < 40 * count:
            tried += 1
            term, delta = make(rng), _delta(rng)
            for question, width, seconds, note in _answers(term, delta, limit):
                answers.setdefault(question, []).append((width, seconds))
                done += question == "epsilon"
                if not width <= 1e-6 or seconds > 1 or note:
                    exceptions.append(
                        f"{name}, {question}: {width:.1e} wide, {seconds:.2f} s{note}; "
                        f"delta {delta:.2g}; {term!r}"[:400]
                    )
        for question, found in answers.items():
            widths, seconds_of = (np.array(each) for each in zip(*found, strict=True))
            print(
                f"{name + ', ' + question:42}{len(found):>6}{np.median(widths):>10.1e}"
                f"{widths.max():>10.1e}{np.median(seconds_of):>10.3f}{seconds_of.max():>9.2f}"
                f"{int((~(widths <= 1e-6)).sum()):>8}{int((seconds_of > 1).sum()):>7}",
                flush=True,
            )
    print(f"\n{len(exceptions)} answers are wider than 1e-6 or take more than a second:")
    print(*exceptions, sep="\n")


def _answers(term: own.Term, delta: float, limit: float) -> Iterator[tuple[str, float, float, str]]:
    """Yield each question's relative width and seconds; nothing where epsilon is out of range."""
    try:
        bounds, seconds = _timed(lambda: _bounds(term, delta=delta), limit)
    except own.InapplicableError as refusal:
        yield "epsilon", math.inf, 0.0, f", {refusal}"[:80]
        return
    if bounds is None:
        yield "epsilon", math.inf, seconds, ", stopped"
        return
    if not 1e-3 <= bounds.upper <= 100:
        return
    yield "epsilon", _width(bounds), seconds, _flaw(term, delta, "epsilon", bounds)
    for question, ask in _further(term, bounds.upper).items():
        bounds, seconds = _timed(ask, limit)
        if bounds is None:
            yield question, math.inf, seconds, ", stopped"
        elif question != "delta" or 2e-300 <= bounds.upper <= 0.9:
            yield question, _width(bounds), seconds, _flaw(term, delta, question, bounds)


def _timed(ask: Callable[[], Bounds], limit: float) -> tuple[Bounds | None, float]:
    """Return the answer, None where it takes longer than the limit, and the seconds."""
    start = time.process_time()
    try:
        with limited(limit, of_processor=True):
            return ask(), time.process_time() - start
    except TooLong:
        return None, time.process_time() - start


def _width(bounds: Bounds) -> float:
    return (bounds.upper - bounds.lower) / bounds.upper if bounds.upper else 0.0


def _flaw(term: own.Term, delta: float, question: str, bounds: Bounds) -> str:
    """Return what is wrong with a bracket, if anything: above the sum of the parts, say."""
    if question != "epsilon":
        return "" if bounds.upper <= 1 else ", above 1"
    with contextlib.suppress(own.InapplicableError):
        basic = own.measure(term, own.Basic(), delta=delta).bounds
        if basic is not None and bounds.upper > basic.upper * (1 + 1e-9):
            return f", above the sum of the parts, {basic.upper:.6g}"
    return ""


# --- random questions: whether each is answered


def _asked(
    term: own.Term, epsilon: float, delta: float, pick: np.random.Generator
) -> dict[str, Callable[[], Any]]:
    """Return one question of each kind about a term; those of accountants are of one of them."""
    accountant = own.ACCOUNTANTS[int(pick.integers(len(own.ACCOUNTANTS)))]
    kind = str(pick.choice(["best", "basic", "advanced", "concentrated", "renyi", "gaussian"]))
    meter = (own.RenyiOdometer, own.ConcentratedOdometer, own.GaussianOdometer, own.BestOdometer)[
        int(pick.integers(4))
    ]

    def tradeoff() -> Bounds:
        low, high = own.Guarantee(term).tradeoff(np.array([delta]))
        return Bounds(float(low[0]), float(high[0]))

    def point() -> Bounds:
        low, high = own.Guarantee(term).profile(np.array([epsilon]))
        return Bounds(float(low[0]), float(high[0]))

    def certified() -> Bounds | None:
        answers = own.certify(term, delta)
        every = [each.bounds for each in answers.values() if each.bounds is not None]
        for low, high in itertools.product(every, repeat=2):
            if low.lower > high.upper * (1 + 1e-9) + 1e-12:
                raise _Contradiction(f"{low} and {high}")
        return own.tightest(answers).bounds if every else None

    def calibrated() -> Bounds:
        return own.calibrate(
            lambda noise: own.Sequential([term, own.Spend(own.Laplace(1 / noise))]),
            epsilon=epsilon,
            delta=delta,
            accountant=accountant,
            digits=0.1,
        ).epsilon

    def spent(budget: Any) -> Any:
        state = budget.start()
        for world in own.worlds(term):
            for loss, times in world.spends.items():
                if not hasattr(budget, "admits") or budget.admits(state, loss, times):
                    state = budget.spend(state, loss, times)
        return state

    def filtered() -> float:
        budget = own.filter_for(kind, epsilon, delta, delta / 2)
        spent(budget)
        return float(budget.guarantee(delta).epsilon)

    def metered() -> float:
        odometer = meter(delta=delta)
        return float(odometer.epsilon(spent(odometer)))

    return {
        "epsilon": lambda: own.measure(term, accountant, delta=delta).bounds,
        "delta": lambda: own.measure(term, accountant, epsilon=epsilon).bounds,
        "all accountants": certified,
        "point of the curve": point,
        "trade-off": tradeoff,
        "advantage": lambda: own.Guarantee(term).advantage(),
        "error of a guess": lambda: own.Guarantee(term).bayes_error(delta),
        "rho": lambda: own.Guarantee(term).rho(),
        "calibration": calibrated,
        "filter": filtered,
        "odometer": metered,
    }


class _Contradiction(Exception):
    """A lower bound is above an upper one."""


def _ending(ask: Callable[[], Any], limit: float, most: float) -> tuple[str, str]:
    """Return how a question ends, and what it ended with."""
    try:
        with limited(limit, of_processor=True):
            found = ask()
    except TooLong:
        return "stopped", ""
    except own.AccountingError as error:
        # brackets check themselves; whoever asked cannot know what the answer will be
        wrong = "bounds must satisfy" in str(error)
        return ("contradiction" if wrong else "refused"), f"{type(error).__name__}: {error}"
    except _Contradiction as error:
        return "contradiction", str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
        return "crash", f"{type(error).__name__}: {error}; {place}"
    if found is None:
        return "refused", "no bound"
    low, high = (found.lower, found.upper) if isinstance(found, Bounds) else (found, found)
    if math.isnan(low) or math.isnan(high):
        return "not a number", str(found)
    return ("answer" if 0 <= low <= high <= most else "contradiction"), str(found)


def _drawn(seed: int) -> Iterator[tuple[own.Term, float, float]]:
    """Yield terms, epsilons and deltas as the tests draw them, without end."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
    strategies = importlib.import_module("term_strategies")
    hypothesis = importlib.import_module("hypothesis")
    st = hypothesis.strategies
    drawn = st.tuples(
        st.one_of(strategies.terms, strategies.absurd_terms()),
        st.one_of(st.floats(1e-3, 50.0), strategies.absurd),
        st.one_of(
            st.floats(-12.0, -0.01).map(lambda power: 10.0**power),
            strategies.absurd_probabilities,
        ),
    )
    options = hypothesis.settings(
        max_examples=500,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    examples: list[tuple[own.Term, float, float]] = []
    draw = options(hypothesis.given(drawn)(lambda example: examples.append(example)))
    for batch in itertools.count():
        hypothesis.seed(1_000_003 * seed + batch)(draw)()
        yield from examples
        examples.clear()


def questioned(count: int, seed: int, limit: float) -> None:
    """Ask random questions about random terms, and print how they ended.

    Terms and numbers are those of the tests, of which half of the terms and half of the numbers
    are absurd: every class of loss and kind of term, parameters from 1e-300 to 1e300, up to 10^8
    steps. Each term is asked every kind of question, in random order, until one takes longer than
    the limit.
    """
    pick = np.random.default_rng(seed)
    ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seconds: defaultdict[str, float] = defaultdict(float)
    seen: dict[str, tuple[int, str]] = {}
    asked = terms = 0
    for term, epsilon, delta in _drawn(seed):
        if asked >= count:
            break
        terms += 1
        every = list(_asked(term, epsilon, delta, pick).items())
        for question, ask in (every[i] for i in pick.permutation(len(every)).tolist()):
            most = 1.0 if question in _PROBABILITIES else math.inf
            begun = time.process_time()
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                end, what = _ending(ask, limit, most)
            seconds[question] += time.process_time() - begun
            ended[question][end] += 1
            asked += 1
            if end not in ("answer", "refused"):
                key = f"{question}, {end}" + (f": {what}" if what else "")
                times, first = seen.get(key, (0, f"{term!r}; {epsilon!r}, {delta!r}"))
                seen[key] = (times + 1, first)
            if end == "stopped":
                break
    ends = ("answer", "refused", "stopped", "crash", "not a number", "contradiction")
    print(f"\n{'question':20}" + "".join(f"{end:>15}" for end in ends) + f"{'seconds':>10}")
    ended["all"] = sum(ended.values(), Counter())
    seconds["all"] = sum(seconds.values())
    for question, counts in ended.items():
        row = "".join(f"{counts[end]:>15}" for end in ends)
        print(f"{question:20}{row}{seconds[question]:>10.1f}")
    print(f"\n{asked} questions about {terms} terms")
    for key, (times, first) in sorted(seen.items()):
        print(f"{times} x {key[:300]}\n    {first[:600]}")


_PROBABILITIES = ("delta", "point of the curve", "trade-off", "advantage", "error of a guess")


# --- running


class TooLong(Exception):
    """A question ran past the limit."""


@contextlib.contextmanager
def limited(seconds: float, *, of_processor: bool = False) -> Iterator[None]:
    """Raise `TooLong` after so many seconds, where the system has an alarm."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise TooLong

    clock = signal.ITIMER_PROF if of_processor else signal.ITIMER_REAL
    alarm = signal.SIGPROF if of_processor else signal.SIGALRM
    before = signal.signal(alarm, stop)
    signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        signal.setitimer(clock, 0)
        signal.signal(alarm, before)


_REPEAT = itertools.count(1)
"""No two repeats of any case compute the same."""


def timed(case: str, name: str, run: Run, limit: float, repeats: int) -> Row:
    """Return one row: imports are paid before, by a first query that is not counted twice."""
    seconds: list[float] = []
    value: Value = math.nan
    try:
        with limited(limit), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for i in range(repeats):
                start = time.perf_counter()
                result = run(1 + next(_REPEAT) * 1e-9 if i else 1.0)
                seconds.append(time.perf_counter() - start)
                value = result if i == 0 else value
    except TooLong:
        if not seconds:
            return Row(case, name, note=f"more than {limit:g} s")
    except ModuleNotFoundError as missing:
        return Row(case, name, note=f"not installed: {missing.name}")
    except Exception as problem:
        return Row(case, name, note=f"{type(problem).__name__}: {problem}"[:60])
    return Row(case, name, seconds[0], statistics.median(seconds[1:] or seconds), value)


def shown(case: Case, rows: list[Row]) -> None:
    """Print a case's table: gaps to the truth, and times beside our first row's."""
    mine = next((row.warm for row in rows if not row.note), math.nan)
    print(f"\n{case.name}: {case.about}" + (f"; truth {case.truth}" if case.truth else ""))
    print(
        f"  {'':24}{'first s':>10}{'warm s':>10}{'lower':>16}{'upper':>16}{'gap':>11}{'gap %':>10}"
        f"{'times ours':>12}"
    )
    for row in rows:
        if row.note:
            print(f"  {row.name:24}{row.note}")
            continue
        lower = f"{row.value.lower:.11g}" if isinstance(row.value, Bounds) else ""
        gap = percent = below = ""
        if case.truth is not None:
            off = row.upper() - case.truth
            gap, percent = f"{off:+.2e}", f"{100 * off / case.truth:+.3g}"
            below = " below" if off < -2e-11 * max(1, case.truth) else ""
        print(
            f"  {row.name:24}{row.first:>10.4g}{row.warm:>10.4g}{lower:>16}{row.upper():>16.11g}"
            f"{gap:>11}{percent:>10}{row.warm / mine:>12.3g}{below}"
        )


def imports() -> None:
    """Print how long each package takes to import: the median of five fresh processes."""
    print("\nimport seconds, in a fresh process")
    code = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"
    for name in (
        "accountants",
        "accountants.distribution",
        "dp_accounting",
        "dp_accounting.pld",
        "prv_accountant",
        "autodp.mechanism_zoo",
        "opacus.accountants",
    ):
        runs = [
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code.format(name)],
                capture_output=True,
                text=True,
                check=False,
            )
            for _ in range(5)
        ]
        taken = [float(run.stdout.split()[-1]) for run in runs if run.returncode == 0]
        print(f"  {name:26}" + (f"{statistics.median(taken):8.3f}" if taken else "not there"))


def plotted(rows: list[tuple[Case, Row]], path: str) -> None:
    """Draw time against the relative gap, a panel for each case with a truth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(c.name for c, _ in rows if c.truth))
    columns = min(4, max(1, len(names)))
    lines = max(1, math.ceil(len(names) / columns))
    figure, panels = pyplot.subplots(
        lines, columns, figsize=(4.2 * columns, 3.4 * lines), squeeze=False
    )
    for panel, name in zip(panels.flat, names, strict=False):
        for case, row in rows:
            if case.name != name or row.note or case.truth is None:
                continue
            gap = max(abs(row.upper() / case.truth - 1), 1e-13)
            marker = "*" if row.name.startswith("ours") else "o"
            if row.upper() < case.truth - 2e-11 * max(1, case.truth):
                marker = "x"  # below the truth
            panel.loglog(row.warm, gap, marker, markersize=9)
            panel.margins(0.3)
            panel.annotate(row.name, (row.warm, gap), fontsize=6, rotation=12)
        panel.set_title(name)
        panel.set_xlabel("seconds")
        panel.set_ylabel("relative gap")
        panel.grid(visible=True, alpha=0.3)
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    print(f"\nplot: {path}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", help="such as a1, b, c, e2, g, r, import; all by default"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each row")
    parser.add_argument("--repeats", type=int, default=6, help="queries for each row")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--plot", metavar="FILE", help="draw time against gap")
    parser.add_argument(
        "--sweep",
        type=int,
        metavar="N",
        help="ask N random terms of each class (or of those named)",
    )
    parser.add_argument("--questions", type=int, metavar="N", help="ask N random questions")
    parser.add_argument("--seed", type=int, default=0, help="of the questions")
    given = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, load "
        f"{load:.1f}, BLAS threads {os.environ['OMP_NUM_THREADS']}; medians of {given.repeats - 1}"
    )
    if given.sweep:
        swept(given.sweep, given.limit, given.cases)
        return
    if given.questions:
        questioned(given.questions, given.seed, given.limit)
        return
    every: list[tuple[Case, Row]] = []
    for group, cases in CASES.items():
        wanted = [x for x in given.cases if x.startswith(group)]
        for case in cases() if wanted or not given.cases else ():
            if wanted and not any(case.name.startswith(x) for x in wanted):
                continue
            rows = [
                timed(case.name, name, run, given.limit, given.repeats)
                for name, run in case.ask.items()
                if given.only in name
            ]
            shown(case, rows)
            every += [(case, row) for row in rows]
    if not given.cases or "import" in given.cases:
        imports()
    if given.plot:
        plotted(every, given.plot)


if __name__ == "__main__":
    main()
