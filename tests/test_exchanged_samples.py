"""Poisson samples of tables whose units are exchanged (replace_one), against laws worked out here.

A unit is in a sample by a coin of its own, with one row or another in the two data sets. What is
released is a mixture of normal laws over all samples. Of each law the masses of cells are known
exactly, and cells tell no more than what is released: a hockey-stick of theirs is below the truth,
and must be below the certificate, for all neighbours of small tables, in both directions.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from scipy.special import ndtr

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.handles import Released

Array = np.ndarray[Any, np.dtype[np.float64]]


def masses(edges: Array, mean: float, deviation: float = 1.0) -> Array:
    """The masses of the cells between edges, and outside of them."""
    ends = (np.concatenate([[-np.inf], edges, [np.inf]]) - mean) / deviation
    # above the mean by the upper tails: the masses of far cells do not cancel
    return np.where(ends[1:] < 0, np.diff(ndtr(ends)), -np.diff(ndtr(-ends)))


def lost(p: Array, q: Array, epsilon: float) -> float:
    """The hockey-stick of the masses of cells, the worse of both directions."""
    grown = math.exp(epsilon)
    return float(max(np.maximum(p - grown * q, 0).sum(), np.maximum(q - grown * p, 0).sum()))


def coins(count: int, rate: float) -> Iterator[tuple[tuple[int, ...], float]]:
    """All samples of some units, each with its probability."""
    for some in itertools.product((0, 1), repeat=count):
        yield some, rate ** sum(some) * (1 - rate) ** (count - sum(some))


# --- the pair, in closed form and in the plane


@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.1), (1.5, 0.3), (3.0, 0.02)])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.5])
def test_one_sample_costs_what_opposite_shifts_do(mu: float, rate: float, epsilon: float) -> None:
    """(1-q) N(0, 1) + q N(mu, 1) against the same with -mu: the set of large losses is a ray."""
    table = dp.dataset("t", columns={"x": (-1, 1)}, neighbors="replace_one")
    plan = dp.Pipeline(total=table.sample(rate)["x"].sum().release(dp.Gaussian(sigma=1 / mu)))

    def loss(x: float) -> float:
        up, down = (math.exp(s * mu * x - mu * mu / 2) for s in (1, -1))
        return math.log((1 - rate + rate * up) / (1 - rate + rate * down))

    low, high = 0.0, 60.0
    for _ in range(200):  # the loss grows with x
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < epsilon else (low, middle)
    kept = (1 - rate) * ndtr(-low)
    delta = kept + rate * ndtr(mu - low) - math.exp(epsilon) * (kept + rate * ndtr(-mu - low))
    bounds = accountants.measure(plan.term, accountants.Distribution(), epsilon=epsilon).bounds
    assert bounds.lower * (1 - 1e-9) <= delta * (1 + 1e-9) <= bounds.upper * (1 + 2e-9)
    # the noise of the lattice is some of it
    assert bounds.upper == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize(("mu", "rate", "times"), [(0.7, 0.2, 4), (0.3, 0.05, 60), (1.2, 0.02, 9)])
def test_rounds_cost_what_the_convolution_of_their_losses_says(
    mu: float, rate: float, times: int
) -> None:
    """The law of one round's loss in cells, raised by a Fourier transform: from both sides."""
    table = dp.dataset("t", columns={"x": (-1, 1)}, neighbors="replace_one")

    def step(state: Released[Any], rows: Any) -> Released[Any]:
        return dp.post(max, state, rows.sample(rate)["x"].sum().release(dp.Gaussian(sigma=1 / mu)))

    plan = dp.Pipeline(most=dp.repeat(step, times, table, start=0.0))
    x = np.linspace(-12 - mu, 12 + mu, 400_001)
    still, one, other = (np.exp(-((x - shift) ** 2) / 2) for shift in (0.0, mu, -mu))
    p, q = ((1 - rate) * still + rate * moved for moved in (one, other))
    p *= (x[1] - x[0]) / math.sqrt(2 * math.pi)
    q *= (x[1] - x[0]) / math.sqrt(2 * math.pi)
    step_size, half = 1e-4, 2**18
    losses = np.log(p / q)
    for epsilon in (0.1, 0.6):
        found = []
        for rounded in (np.floor, np.ceil):
            at = rounded(losses / step_size).astype(np.int64)
            assert abs(at).max() < half / 2
            law = np.bincount(at % (2 * half), p, 2 * half)
            total = np.maximum(np.fft.irfft(np.fft.rfft(law) ** times), 0)
            value = step_size * ((np.arange(2 * half) + half) % (2 * half) - half)
            found.append(float((np.maximum(1 - np.exp(epsilon - value), 0) * total).sum()))
        bounds = accountants.measure(plan.term, accountants.Distribution(), epsilon=epsilon).bounds
        # losses rounded down, then up
        assert found[0] * (1 - 1e-9) - 1e-13 <= bounds.upper
        assert bounds.lower <= found[1] * (1 + 1e-9) + 1e-13
        assert bounds.upper == pytest.approx(found[0], rel=0.05)


@pytest.mark.parametrize(("mu", "rate"), [(0.8, 0.3), (2.0, 0.05)])
def test_no_two_shifts_in_the_plane_lose_more(mu: float, rate: float) -> None:
    """All angles, and shorter ones: opposite and longest is worst at each epsilon."""
    at = np.linspace(-7 - mu, 7 + mu, 501)
    still = np.outer(masses(at, 0.0), masses(at, 0.0))
    own = (1 - rate) * still + rate * np.outer(masses(at, mu), masses(at, 0.0))
    sample = accountants.ReplacedSample(accountants.Spend(accountants.Gaussian(mu)), rate)
    for epsilon in (0.02, 0.3, 1.0):
        bound = accountants.measure(sample, accountants.Distribution(), epsilon=epsilon).bounds
        values = {}
        for turn, length in itertools.product(range(7), (0.0, 0.5, 1.0)):
            angle = turn * math.pi / 6
            moved = np.outer(
                masses(at, length * mu * math.cos(angle)), masses(at, length * mu * math.sin(angle))
            )
            values[turn, length] = lost(own, (1 - rate) * still + rate * moved, epsilon)
        assert max(values.values()) == values[6, 1.0]
        assert (1 - 1e-3) * bound.upper <= values[6, 1.0] <= bound.upper


# --- plans, by all neighbours of small tables


Rows = Sequence[tuple[float, str]]
"""The rows of some units: a number, and the town."""


def table_of(*, low: float = -1.0, **options: Any) -> dp.Table:
    columns = {"x": (low, 1.0), "town": ["A", "B"]}
    return dp.dataset("t", columns=columns, neighbors="replace_one", **options)


def total(rows: Rows, some: Sequence[int], town: str = "AB") -> float:
    return float(sum(x for (x, where), s in zip(rows, some, strict=True) if s and where in town))


NOISE, RATE, OTHER = 0.8, 0.4, 0.15

Case = tuple[
    Callable[[], dict[str, Any]], Callable[[Rows], Iterator[tuple[tuple[float, float], float]]]
]
"""Two releases, and the means of both, over all draws, with their probabilities."""


def noise() -> dp.Gaussian:
    return dp.Gaussian(sigma=NOISE)


def one_table() -> dict[str, Any]:
    sample = table_of().sample(RATE)
    return {"a": sample["x"].sum().release(noise()), "b": sample.count().release(noise())}


def one_law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
    for some, chance in coins(len(rows), RATE):
        yield (total(rows, some), sum(some)), chance


def positive() -> dict[str, Any]:
    sample = table_of(low=0.0).sample(RATE)
    return {"a": sample["x"].sum().release(noise()), "b": sample["x"].sum().release(noise())}


def positive_law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
    for some, chance in coins(len(rows), RATE):
        value = total([(max(x, 0.0), where) for x, where in rows], some)
        yield (value, value), chance


def two_samples() -> dict[str, Any]:
    table = table_of()
    return {
        "a": table.sample(RATE)["x"].sum().release(noise()),
        "b": table.sample(OTHER)["x"].sum().release(noise()),
    }


def two_laws(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
    for some, chance in coins(len(rows), RATE):
        for others, its in coins(len(rows), OTHER):
            yield (total(rows, some), total(rows, others)), chance * its


def sample_and_all() -> dict[str, Any]:
    table = table_of()
    return {
        "a": table.sample(RATE)["x"].sum().release(noise()),
        "b": table["x"].sum().release(noise()),
    }


def sample_and_all_law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
    for some, chance in coins(len(rows), RATE):
        yield (total(rows, some), total(rows, [1] * len(rows))), chance


def parts_of_a_sample(doubled: int) -> Case:
    """The sums of both parts; that of the second twice as far apart, or as far."""

    def releases() -> dict[str, Any]:
        parts = dict(table_of().sample(RATE).partition("town"))
        noises = {"A": noise(), "B": dp.Gaussian(sigma=NOISE / doubled)}
        return {town: parts[town]["x"].sum().release(noises[town]) for town in "AB"}

    def law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
        for some, chance in coins(len(rows), RATE):
            yield (total(rows, some, "A"), doubled * total(rows, some, "B")), chance

    return releases, law


def samples_of_parts(first: float, second: float) -> Case:
    def releases() -> dict[str, Any]:
        parts = dict(table_of().partition("town"))
        return {
            town: parts[town].sample(rate)["x"].sum().release(noise())
            for town, rate in (("A", first), ("B", second))
        }

    def law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
        in_a = [r for r in rows if r[1] == "A"]
        in_b = [r for r in rows if r[1] == "B"]
        for some, chance in coins(len(in_a), first):
            for others, its in coins(len(in_b), second):
                yield (total(in_a, some), total(in_b, others)), chance * its

    return releases, law


def a_filter_of_a_sample() -> dict[str, Any]:
    table = table_of()
    before = table.filter(table["x"] > -0.5).sample(RATE)
    return {"a": before["x"].sum().release(noise()), "b": before.count().release(noise())}


def filter_law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
    kept = [row for row in rows if row[0] > -0.5]
    for some, chance in coins(len(kept), RATE):
        yield (total(kept, some), sum(some)), chance


def a_sample_in_a_part_and_all() -> dict[str, Any]:
    table = table_of()
    part = dict(table.partition("town"))["A"]
    return {
        "a": part.sample(RATE)["x"].sum().release(noise()),
        "b": table["x"].sum().release(noise()),
    }


def part_and_all_law(rows: Rows) -> Iterator[tuple[tuple[float, float], float]]:
    inside = [row for row in rows if row[1] == "A"]
    for some, chance in coins(len(inside), RATE):
        yield (total(inside, some), total(rows, [1] * len(rows))), chance


CASES: dict[str, tuple[Case, float]] = {
    # a case, and the share of delta that the worst neighbours reach at least
    "two releases of one sample": ((one_table, one_law), 0.5),
    "numbers of one sign": ((positive, positive_law), 0.05),
    "two samples of one table": ((two_samples, two_laws), 0.99),
    "a sample and the whole table": ((sample_and_all, sample_and_all_law), 0.99),
    "parts of a sample": (parts_of_a_sample(1), 0.99),
    "different parts of a sample": (parts_of_a_sample(2), 0.99),
    "equal samples of parts": (samples_of_parts(RATE, RATE), 0.99),
    "different samples of parts": (samples_of_parts(RATE, OTHER), 0.6),
    "a sample of a filter": ((a_filter_of_a_sample, filter_law), 0.1),
    "a sample of a part, and all": ((a_sample_in_a_part_and_all, part_and_all_law), 0.5),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("delta", [0.2, 0.01])
def test_no_neighbours_of_small_tables_lose_more(name: str, delta: float) -> None:
    (releases, law), least = CASES[name]
    epsilon = dp.Pipeline(**releases()).certify(delta=delta).epsilon
    units = [(x, town) for x in (-1.0, 0.0, 1.0) for town in "AB"]
    at = np.linspace(-9.0, 9.0, 361)
    mass = {mean: masses(at, mean, NOISE) for mean in range(-4, 5)}

    def densities(rows: Rows) -> Array:
        chances: dict[tuple[float, float], float] = {}
        for means, chance in law(rows):
            chances[means] = chances.get(means, 0.0) + chance
        products = (
            chance * np.outer(mass[round(one)], mass[round(other)])
            for (one, other), chance in chances.items()
        )
        return np.asarray(sum(products))

    worst = 0.0
    for other in units[::2]:
        laws = [densities([other, own]) for own in units]
        for p, q in itertools.combinations(laws, 2):
            worst = max(worst, lost(p, q, epsilon))
    assert least * delta <= worst <= delta


# --- what a release asks is chosen by the ones before, in the sample and outside of it


def threshold(released: float) -> float:
    return 0.5 if released < 0.25 else 2.0


def asked(rows: Sequence[float], some: Sequence[int], high: bool) -> float:
    """The sum of the numbers up to the threshold: all, or those below one half."""
    return sum(x for x, s in zip(rows, some, strict=True) if s and (high or x <= 0.5))


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("delta", [0.3, 0.02])
def test_no_choice_by_earlier_releases_loses_more(between: bool, delta: float) -> None:
    """A sample, the whole table asked by what it said, and the same sample asked by both."""
    table = table_of()
    sample = table.sample(RATE)
    first = sample["x"].sum().release(noise())
    chosen = dp.post(threshold, first)
    outside = table.filter(table["x"] <= chosen)["x"].sum().release(noise())
    if between:
        chosen = dp.post(threshold, outside)
    last = sample.filter(sample["x"] <= chosen)["x"].sum().release(noise())
    plan = dp.Pipeline(first=first, last=last, **({"outside": outside} if between else {}))
    epsilon = plan.certify(delta=delta).epsilon
    edges = np.linspace(-3.25, 3.75, 57)
    assert 0.25 in edges
    is_low = np.concatenate([edges <= 0.25, [False]])  # by the upper end of a cell
    sides = [is_low, ~is_low]

    def law(rows: Sequence[float]) -> Array:
        every = [1] * len(rows)
        size = len(edges) + 1
        out = np.zeros((size, size if between else 1, size))
        for some, chance in coins(len(rows), RATE):
            one = masses(edges, asked(rows, some, True), NOISE)
            for of_one in (False, True):
                starts = np.where(sides[of_one], one, 0.0)
                if not between:
                    end = masses(edges, asked(rows, some, of_one), NOISE)
                    out += chance * np.einsum("i,k->ik", starts, end)[:, None]
                    continue
                middle = masses(edges, asked(rows, every, of_one), NOISE)
                for of_two in (False, True):
                    end = masses(edges, asked(rows, some, of_two), NOISE)
                    part = np.where(sides[of_two], middle, 0.0)
                    out += chance * np.einsum("i,j,k->ijk", starts, part, end)
        return out

    worst = 0.0
    for other in (-1.0, 1.0):
        laws = [law([other, own]) for own in (-1.0, 0.0, 1.0)]
        for p, q in itertools.combinations(laws, 2):
            assert (p.sum(), q.sum()) == pytest.approx((1, 1))
            worst = max(worst, lost(p, q, epsilon))
    assert 0.5 * delta <= worst <= delta


# --- units of several rows, in parts of a sample and in samples of parts


Unit = tuple[tuple[float, str], ...]


def several(before: bool) -> tuple[dict[str, Any], Callable[[Unit], dict[Any, float]]]:
    """The sums of two parts: of one sample, or of a sample of each."""
    table = table_of(unit="who", rows_per_unit=2)
    parts = dict((table.sample(RATE) if before else table).partition("town"))
    rows = {town: parts[town] if before else parts[town].sample(RATE) for town in "AB"}
    releases = {town: rows[town]["x"].sum().release(noise()) for town in "AB"}

    def means(unit: Unit) -> dict[Any, float]:
        chances: dict[Any, float] = {}
        for some, chance in coins(1 if before else 2, RATE):
            seen = {"A": some[0], "B": some[-1]}
            mean = tuple(sum(x for x, town in unit if town == t and seen[t]) for t in "AB")
            chances[mean] = chances.get(mean, 0.0) + chance
        return chances

    return releases, means


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("delta", [0.2, 0.02])
def test_no_units_of_two_rows_lose_more(before: bool, delta: float) -> None:
    releases, means = several(before)
    epsilon = dp.Pipeline(**releases).certify(delta=delta).epsilon
    at = np.linspace(-8.0, 8.0, 257)
    mass = {mean: masses(at, mean, NOISE) for mean in range(-2, 3)}
    rows = [(x, town) for x in (-1.0, 1.0) for town in "AB"]
    units: list[Unit] = [(row,) for row in rows]
    units += itertools.combinations_with_replacement(rows, 2)
    laws = []
    for unit in units:
        law = (p * np.outer(mass[round(a)], mass[round(b)]) for (a, b), p in means(unit).items())
        laws.append(np.asarray(sum(law)))
    worst = max(lost(p, q, epsilon) for p, q in itertools.combinations(laws, 2))
    # a unit that leaves one part for the other is charged as if it were exchanged in both
    assert (0.4 if before else 0.05) * delta <= worst <= delta


# --- random plans


Step = tuple[str, Any]
"""A sample's number, a part's column and key, or a filter."""


@attrs.frozen
class Grown:
    """A release of a random plan: the steps to it, whether it counts or sums, and its noise."""

    handle: Any
    steps: tuple[Step, ...]
    counts: bool
    sigma: float


def grown(chance: random.Random, rows: int) -> tuple[list[Grown], dict[int, float]]:
    """Draw two releases, of parts, filters and samples of a table, and the samples' rates."""
    columns = {"x": (-1, 1), "town": ["A", "B"], "kind": ["u", "v"]}
    options: dict[str, Any] = {"unit": "who", "rows_per_unit": rows} if rows > 1 else {}
    table = dp.dataset("t", columns=columns, neighbors="replace_one", **options)
    found: list[Grown] = []
    rates: dict[int, float] = {}

    def grow(at: Any, steps: tuple[Step, ...], sampled: bool) -> None:
        kind = chance.random() if len(steps) < 3 else 1.0
        if len(found) == 2:
            return
        if kind < 0.45 and not sampled:
            rates[len(rates)] = rate = chance.choice([0.15, 0.4, 0.4, 0.7])
            sample, number = at.sample(rate), len(rates) - 1
            for _ in range(chance.choice([1, 2])):
                grow(sample, (*steps, ("sample", number)), True)
        elif kind < 0.75:
            by = chance.choice(["town", "kind"])
            for key, part in at.partition(by):
                grow(part, (*steps, (by, key)), sampled)
        elif kind < 0.83:
            grow(at.filter(at["x"] > -0.5), (*steps, ("filter", None)), sampled)
        else:
            sigma, counts = chance.choice([0.7, 0.7, 1.2]), chance.random() < 0.3
            query = at.count() if counts else at["x"].sum()
            found.append(Grown(query.release(dp.Gaussian(sigma=sigma)), steps, counts, sigma))

    while len(found) < 2:
        grow(table, (), False)
    return found, rates


def value_of(release: Grown, unit: Sequence[tuple[float, str, str]], drawn: Sequence[int]) -> float:
    rows = list(unit)
    for kind, what in release.steps:
        if kind == "sample":
            rows = rows if drawn[what] else []
        elif kind == "filter":
            rows = [row for row in rows if row[0] > -0.5]
        else:
            rows = [row for row in rows if row[1 if kind == "town" else 2] == what]
    return float(len(rows) if release.counts else sum(x for x, _, _ in rows))


@pytest.mark.parametrize(
    "seed", [*range(9), *(pytest.param(s, marks=pytest.mark.slow) for s in range(9, 60))]
)
def test_no_random_plan_loses_more(seed: int) -> None:
    """Every two units, in parts and filters and samples: the laws in the plane, by cells."""
    chance = random.Random(seed)
    rows = chance.choice([1, 2])
    releases, rates = grown(chance, rows)
    plan = dp.Pipeline(a=releases[0].handle, b=releases[1].handle)
    own = list(itertools.product((-1.0, 1.0), "AB", "uv"))
    units = [unit for n in range(1, rows + 1) for unit in itertools.combinations(own, n)]
    at = np.linspace(-8.0, 8.0, 129)
    laws: dict[Any, Array] = {}
    for unit in units:
        means: dict[Any, float] = {}
        for drawn in itertools.product((0, 1), repeat=len(rates)):
            mean = tuple(value_of(each, unit, drawn) for each in releases)
            of_all = (rates[i] if drawn[i] else 1 - rates[i] for i in rates)
            means[mean] = means.get(mean, 0.0) + math.prod(of_all)
        law = (
            p * np.outer(masses(at, a, releases[0].sigma), masses(at, b, releases[1].sigma))
            for (a, b), p in means.items()
        )
        laws[frozenset(means.items())] = np.asarray(sum(law))
    for delta in (0.15, 0.01):
        epsilon = plan.certify(delta=delta).epsilon
        pairs = itertools.combinations(laws.values(), 2)
        assert max((lost(p, q, epsilon) for p, q in pairs), default=0.0) <= delta * (1 + 1e-9)


# --- where samples stand in a plan


def test_rounds_on_one_sample_are_releases_of_one() -> None:
    """A sample outside of a loop is drawn once, and amplifies all rounds together."""
    sample = table_of().sample(RATE)

    def step(state: Released[Any], rows: Any) -> Released[Any]:
        return dp.post(max, state, rows["x"].sum().release(dp.Gaussian(sigma=3.0)))

    rounds = dp.repeat(step, 9, sample, start=0.0)
    plan = dp.Pipeline(most=rounds, n=sample.count().release(dp.Gaussian(sigma=1.0)))
    one = accountants.Spend(accountants.Gaussian(mu=math.sqrt(2)))
    term = accountants.ReplacedSample(one, RATE)
    alone = accountants.measure(term, accountants.Distribution(), delta=1e-5).bounds.upper
    assert plan.certify(delta=1e-5).epsilon == pytest.approx(alone, rel=1e-6)
    assert dp.load(plan.to_json()).certify(delta=1e-5).epsilon == plan.certify(delta=1e-5).epsilon
    assert dp.verify(plan.certify(delta=1e-5)).holds


def best(rows: Any, rate: float) -> dp.Pipeline:
    """The best of some runs, each on a sample of its own where the rate is below 1."""

    def run(candidate: Released[Any], rows: Any) -> Any:
        rows = rows.sample(rate) if rate < 1 else rows
        released = rows["x"].sum().release(dp.Gaussian(sigma=3.0))
        return released, dp.post(max, candidate, released)

    return dp.Pipeline(best=dp.select(run, [1, 2], rows, stopping=0.5))


def test_samples_are_drawn_in_the_runs_of_a_selection_and_not_outside() -> None:
    table = table_of()
    with pytest.raises(dp.DeclarationError, match="selection in a Poisson sample"):
        best(table.sample(RATE), 1.0).certify(delta=1e-5)
    inside, every = (best(table, rate).certify(delta=1e-5).epsilon for rate in (RATE, 1.0))
    added = dp.dataset("t", columns={"x": (-1, 1)})
    assert best(added, RATE).certify(delta=1e-5).epsilon < inside < every


def test_what_nothing_is_proven_of_is_refused() -> None:
    table = table_of()
    sample = table.sample(RATE)
    for noisy in (dp.Laplace(scale=1.0), dp.DiscreteGaussian(sigma=2.0), dp.DiscreteLaplace()):
        with pytest.raises(dp.DeclarationError, match=r"replace_one.*must be dp\.Gaussian"):
            dp.Pipeline(n=sample.count().release(noisy))
    with pytest.raises(dp.DeclarationError, match="product of both rates"):
        dp.Pipeline(n=sample.filter(table["x"] > 0).sample(0.1).count().release(noise()))
    learner = dp.NoisySGD(["x"], "town", steps=2, sampling_rate=0.1)
    with pytest.raises(dp.DeclarationError, match="one sample in the place of two"):
        sample.solve(learner, epsilon=1.0, delta=1e-6)
    # in a document as well
    added = dp.dataset("t", columns={"x": (-1, 1)}).sample(RATE)
    text = dp.Pipeline(n=added.count().release(dp.Laplace(scale=1.0))).to_json()
    with pytest.raises(dp.DocumentError, match=r"must be dp\.Gaussian"):
        dp.load(text.replace("add_remove", "replace_one"))


def test_budgets_by_closed_forms_are_refused_on_a_sample() -> None:
    """Their noise is for a unit that is there or not; an exchange costs up to twice as much."""
    columns = {"x": (-1, 1), "y": (-1, 1)}
    learner = dp.SSP(["x"], "y")
    for neighbors, refused in (("add_remove", False), ("replace_one", True)):
        sample = dp.dataset("t", columns=columns, neighbors=neighbors).sample(0.99)
        if refused:
            with pytest.raises(dp.DeclarationError, match="calibrate the plan"):
                sample.solve(learner, epsilon=1.0, delta=1e-6)
        else:
            model = sample.solve(learner, epsilon=1.0, delta=1e-6)
            assert dp.Pipeline(model=model).certify(delta=1e-6).epsilon <= 1
        plan = dp.Pipeline(model=sample.solve(learner)).calibrate(epsilon=1.0, delta=1e-6)
        assert 0.995 <= plan.certify().epsilon <= 1


def test_a_sound_query_of_a_sample_has_no_findings() -> None:
    """Its sensitivity is of a unit that is there or not, and a search exchanges both."""
    query = table_of().sample(0.5)["x"].sum()
    dp.testing.check(dp.Gaussian(sigma=2.0), query, only=["sensitivity", "loss", "audit"])


# --- sessions


def test_a_session_pays_for_samples_as_plans_do() -> None:
    rows = {"x": np.linspace(-1, 1, 30), "town": ["A", "B"] * 15}
    table = table_of(size=30)
    with dp.Session(t=rows, budget=dp.Budget(3.0, 1e-5), accountant="renyi", seed=1) as session:
        session.run(table.sample(0.2)["x"].sum().release(dp.Gaussian(sigma=3.0)))
        once = session.epsilon
        spend = accountants.Spend(accountants.Gaussian(mu=1 / 3.0))
        sampled, exchanged = accountants.Sampled(spend, 0.2), accountants.ReplacedSample(spend, 0.2)
        costs = [
            accountants.measure(term, accountants.Renyi(), delta=1e-5).bounds.upper
            for term in (sampled, exchanged)
        ]
        assert costs[0] < costs[1] <= once * (1 + 1e-9)
        with pytest.raises(dp.DeclarationError, match=r"must be dp\.Gaussian"):
            session.run(table.sample(0.2).count().release(dp.Laplace(scale=9.0)))
        assert session.epsilon == once
        learner = dp.NoisySGD(["x"], "town", steps=5, sampling_rate=0.2)
        session.run(table.solve(learner, epsilon=0.5, delta=1e-6))
        assert once < session.epsilon <= 3.0
