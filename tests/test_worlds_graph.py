"""The worlds rule end to end: certificates of plans against what neighbours really change.

A test-only mechanism writes down the private value that it is given and releases a constant, so
that the plan runs on both neighbouring data sets with the same outputs behind it, as a proof of
adaptive composition has it. What changed in each call gives the exact loss of the pair: for
Laplace the sum of change / scale, for Gaussians the profile at the root of the sum of squares, for
flags (which say all as soon as anything changes) a constant each. No certificate may be below.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from accountants import Gaussian, Laplace, Repeated, Spend
from accountants.definitions import gdp_epsilon, gdp_mu, zcdp_epsilon
from accountants.secret import Secret
from adaptive_dp.data import read_rows
from adaptive_dp.graph.run import Run
from adaptive_dp.queries.domains import column
from adaptive_dp.queries.source import reading

mpmath.mp.dps = 50
LOG: list[tuple[object, np.ndarray]] = []


class Probe(dp.Mechanism):
    """Logs the value, and releases zeros: the same outputs for both neighbours."""

    def release(self, value, stream):
        LOG.append((self, np.atleast_1d(value).copy()))
        return np.zeros_like(value)


class LaplaceProbe(Probe):
    norm = 1
    scale: float = dp.noise_parameter("b")

    def loss(self, distance):
        return accountants.Laplace(distance / self.scale)

    def paid(self, change):
        return sum(map(abs, change)) / Fraction(self.scale)


class GaussianProbe(Probe):
    norm = 2
    sigma: float = dp.noise_parameter("sigma")

    def loss(self, distance):
        return Gaussian(distance / self.sigma)

    def paid(self, change):
        """Return the square of mu, which adds up."""
        return sum(c * c for c in change) / Fraction(self.sigma) ** 2


class FlagProbe(Probe):
    """Anything that changes costs the same: a loss that is concave in the distance."""

    norm = 1
    scale: float = dp.noise_parameter("b")

    def loss(self, distance):
        return accountants.Pure(epsilon=1 / self.scale if distance > 0 else 0.0)

    def paid(self, change):
        return Fraction(1 / self.scale) if any(change) else Fraction(0)


COLUMNS = {"x": (-1.0, 2.0), "p": (1.0, 2.0), "r": ["A", "B", "C"], "s": ["a", "b"], "f": (0, 1)}
ROWS = [
    {"x": x, "p": 1.0 if x < 0 else x, "r": r, "s": s, "f": f}
    for x, r, s, f in itertools.product(
        (-1.0, 2.0, 50.0), ("A", "B", "none"), ("a", "b"), (0.0, 1.0)
    )
]


READINGS = {name: reading(column(name, declared)) for name, declared in COLUMNS.items()}


def table(relation, unit):
    extra = {} if unit is None else {"unit": "id", "rows_per_unit": unit}
    return dp.dataset("t", columns=COLUMNS, neighbors=relation, **extra)


def bound_rows(records, unit):
    data = {
        name: np.array([r[name] for _, r in records], dtype=str if name in "rs" else float)
        for name in COLUMNS
    } | {"id": np.array([i for i, _ in records], dtype=np.int64)}
    return read_rows(data, READINGS, None if unit is None else "id")


def logged(plan, records, unit):
    """Return what every release was given, call by call, as rationals."""
    structure = plan.structure
    bound = Secret(bound_rows(records, unit))
    sources = [n.name for n in structure if n.handle.operation.kind == "dataset"]
    run = Run(structure, 0)
    run.bind(dict.fromkeys(sources, bound))
    LOG.clear()
    for node in structure:
        if not node.loops:
            run.compute_node(node)
    return [(m, [Fraction(float(v)) for v in value]) for m, value in LOG]


def rows_of_a_unit(unit, seed, universe=ROWS):
    chance = random.Random(seed)
    if unit is None:
        return [[row] for row in universe]
    repeated = [[row] * n for row in universe[:: 3 if len(universe) < 30 else 4] for n in {1, unit}]
    spread = [chance.choices(universe, k=chance.randint(1, unit + 1)) for _ in range(14)]
    wide = [list(some) for some in itertools.combinations(universe[1::4], min(unit, 3))]
    return repeated + spread + chance.sample(wide, min(len(wide), 8))


def pairs(plan, relation, unit, seed=0, universe=ROWS):
    """Yield the logs of neighbours: the unit's rows stand between those of another one."""
    other = [(3, ROWS[1]), (9, ROWS[-1])]
    data = [
        [other[0], *((7, row) for row in own), other[1]]
        for own in rows_of_a_unit(unit, seed, universe)
    ]
    logs = [logged(plan, records, unit) for records in data]
    if relation == "replace_one":
        yield from itertools.combinations(logs, 2)
    else:
        without = logged(plan, other, unit)
        yield from ((log, without) for log in logs)


def changes(pair):
    """Yield each call's mechanism with what changed."""
    for (mechanism, a), (other, b) in zip(*pair, strict=True):
        assert mechanism == other
        yield mechanism, [x - y for x, y in zip(a, b, strict=True)]


def truth(pair, rates=None):
    """Return the exact pure epsilon (or squared mu) of a pair.

    ``rates`` gives the sampling rate of mechanisms inside of a Poisson sample: its body's epsilon
    e becomes log(1 + q (e^e - 1)), exactly so for pure losses where the unit is removed.
    """
    total, sampled = Fraction(0), {}
    for mechanism, change in changes(pair):
        rate = (rates or {}).get(mechanism)
        paid = mechanism.paid(change)
        if rate is None:
            total += paid
        else:
            sampled[rate] = sampled.get(rate, Fraction(0)) + paid
    for rate, inside in sampled.items():
        exact = mpmath.mpf(inside.numerator) / inside.denominator
        exact = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(exact))
        total += Fraction(str(mpmath.nstr(exact, 35, strip_zeros=False)))
    return total


def gaussian_delta(square, epsilon):
    """Return the exact delta(epsilon) of a Gaussian of mu = sqrt(square) (Balle and Wang 2018)."""
    if square == 0:
        return mpmath.mpf(0)
    mu = mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator)
    eps = mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


# --- random plans --------------------------------------------------------------------------------


class Grower:
    """A random plan, drawn release by release; the same draws with every sampling rate at 1."""

    def __init__(self, chance, mechanism, relation, unit, sampling):
        self.chance, self.make = chance, mechanism
        self.sampling = sampling and relation != "replace_one"
        self.base = table(relation, unit)
        self.outputs, self.rates, self.scales = [], {}, itertools.count(3)

    def mechanism(self, rate):
        # scales differ often, and are equal often enough for parts to be merged
        scale = self.chance.choice([1.0, 2.5]) * (1 if rate is None else 1 + rate)
        if rate is not None:
            scale += next(self.scales)  # tells what is sampled apart, and at which rate
        made = self.make(scale)
        if rate is not None:
            self.rates[made] = rate
        return made

    def query(self, at):
        asks = [
            lambda t: t.count(),
            lambda t: t.count(),
            lambda t: t["x"].sum(),
            lambda t: t["p"].sum(),
            lambda t: t["s"].histogram(),
            lambda t: t["x"].histogram([-1, 0, 2]),
            lambda t: t["x"].histogram([-1, 2]),
        ]
        return self.chance.choice(asks)(at)

    def release(self, at, rate):
        query = self.query(at)
        released = [query.release(self.mechanism(rate)) for _ in range(self.chance.randint(1, 2))]
        self.outputs.append(released[0])
        self.outputs.append(dp.post(lambda *values: 0.0, *released))

    def grow(self, at, depth, rate=None):
        kinds = ["release", "filter", "partition", "repeat", "both"]
        if self.sampling and rate is None:
            kinds.append("sample")
        kind = self.chance.choice(kinds) if depth else "release"
        if kind == "release":
            self.release(at, rate)
        elif kind == "filter":
            test = self.chance.choice(["f", "x", "r"])
            filtered = at["f"] >= 0.5 if test == "f" else at["x"] <= 0.0
            self.grow(
                at.filter(at["r"].isin(["A", "B"]) if test == "r" else filtered), depth - 1, rate
            )
        elif kind == "partition":
            by = self.chance.choice(["r", "s"])
            parts = list(at.partition(by, whole_units=self.chance.choice([True, False])))
            for _, part in parts[: self.chance.randint(1, len(parts))]:
                self.grow(part, depth - 1, rate)
        elif kind == "sample":
            q = self.chance.choice([0.25, 0.5]) / (1 + len(self.outputs))
            self.grow(at.sample(1.0 if self.sampling == "off" else q), depth - 1, q)
        elif kind == "repeat":
            self.repeat(at, rate)
        else:
            self.grow(at, depth - 1, rate)
            self.grow(at, depth - 1, rate)

    def repeat(self, at, rate):
        filtered, part = self.chance.choice([True, False]), self.chance.choice([True, False])
        first, second = self.mechanism(rate), self.mechanism(rate)

        def body(state, at):
            inner = at.filter(at["x"] <= state) if filtered else at
            outs = [inner["x"].sum().release(first)]
            if part:
                outs += [p.count().release(second) for _, p in inner.partition("r")]
            return dp.post(lambda s, *values: s + 1.0, state, *outs)

        self.outputs.append(dp.repeat(body, self.chance.randint(1, 3), at, start=-1.0))


def grown(seed, mechanism, relation, unit, sampling):
    """Return the plan, the same plan but that samples everybody, and the rates by mechanism."""
    plans = []
    for turn in (sampling, "off" if sampling else sampling):
        grower = Grower(random.Random(seed), mechanism, relation, unit, turn)
        grower.grow(grower.base, 1 + seed % 3)
        plans.append(dp.Pipeline(**{f"o{i}": h for i, h in enumerate(grower.outputs)}))
    return plans[0], plans[1], grower.rates


RELATIONS = ["add_remove", "replace_one", "zero_out"]
UNITS = [None, 1, 2, pytest.param(3, marks=pytest.mark.slow)]
SHAPES = [
    pytest.param((relation, unit), marks=[pytest.mark.slow] if unit == 3 else [])
    for relation, unit in itertools.product(RELATIONS, [None, 1, 2, 3])
]


@pytest.mark.parametrize("mechanism", [LaplaceProbe, FlagProbe])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_pair_of_neighbours_loses_more_pure_epsilon(shape, mechanism):
    for seed in range(5):
        plan, everybody, rates = grown(seed, mechanism, *shape, seed % 2 == 1)
        certificate = plan.certify(delta=0.0)
        certified = Fraction(certificate.bounds["basic"].upper)
        assert Fraction(certificate.epsilon) <= certified
        neighbors = list(pairs(everybody, *shape, seed))
        if rates:  # mpmath only where the sum without amplification is among the largest
            quick = [float(sum(m.paid(c) for m, c in changes(p))) for p in neighbors]
            neighbors = [neighbors[k] for k in np.argsort(quick)[-30:]]
        assert max(truth(pair, rates) for pair in neighbors) <= certified, seed


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_pair_of_neighbours_loses_more_gaussian_delta(shape):
    for seed in range(100, 104):
        plan, _, _ = grown(seed, GaussianProbe, *shape, False)
        square = max(truth(pair) for pair in pairs(plan, *shape, seed))
        delta = (1e-9, 1e-5, 0.1)[seed % 3]
        for name, bounds in plan.certify(delta).bounds.items():
            assert gaussian_delta(square, bounds.upper) <= delta, (seed, name)


# --- plans whose certificate some pair attains --------------------------------------------------


def each(parts, ask):
    return {f"o{i}": ask(part, i) for i, (_, part) in enumerate(parts)}


def simple_plans():
    lap = lambda s: LaplaceProbe(scale=s)  # noqa: E731
    count = lambda t, s=1.0: t.count().release(lap(s))  # noqa: E731
    total = lambda t, s=1.0: t["x"].sum().release(lap(s))  # noqa: E731
    return {
        "count": lambda t: {"a": count(t)},
        "count and sum": lambda t: {"a": count(t), "b": total(t)},
        "filtered count": lambda t: {"a": count(t.filter(t["f"] >= 0.5))},
        "one part": lambda t: {"a": count(t.partition("r")["A"])},
        "one part's sum": lambda t: {"a": total(t.partition("r")["B"], 0.7)},
        "one whole part": lambda t: {"a": count(t.partition("r", whole_units=True)["A"])},
        "parts": lambda t: each(t.partition("r"), lambda p, i: count(p)),
        "parts of other scales": lambda t: each(t.partition("r"), lambda p, i: count(p, 1.0 + i)),
        "sums of parts": lambda t: each(t.partition("r"), lambda p, i: total(p, 2.0 + i / 2)),
        "whole parts": lambda t: each(
            t.partition("r", whole_units=True), lambda p, i: count(p, 1.0 + i)
        ),
        "all and parts": lambda t: (
            {"z": count(t, 3.0)} | each(t.partition("r"), lambda p, i: count(p))
        ),
        "nested parts": lambda t: {
            f"{a}{b}": count(q) for a, p in t.partition("r") for b, q in p.partition("s")
        },
        "crossed parts": lambda t: {
            **{a: count(p) for a, p in t.partition("r")},
            **{b: count(p, 0.5) for b, p in t.partition("s")},
        },
        "repeat": lambda t: {
            "a": dp.repeat(lambda s, t: dp.post(lambda a, b: a, s, count(t)), 4, t, start=0)
        },
        "part then repeat": lambda t: {
            k: dp.repeat(lambda s, p: dp.post(lambda a, b: a, s, count(p)), 3, p, start=0)
            for k, p in t.partition("r")
        },
    }


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", simple_plans())
def test_some_pair_attains_the_certificate(name, relation, unit):
    base = table(relation, unit)
    plan = dp.Pipeline(**simple_plans()[name](base))
    universe = [row for row in ROWS if row["x"] < 50]
    universe = [row for row in universe if row["s"] == "a" or row["r"] != "none"]
    most = max(truth(p) for p in pairs(plan, relation, unit, universe=universe))
    certified = plan.certify(0.0).bounds["basic"].upper
    assert most <= Fraction(certified)
    if relation == "replace_one" and unit is not None and name in AT_LEAST_A_ROW:
        return  # a unit that is exchanged keeps a row at least, and the certificate does not use it
    if relation == "replace_one" and unit == 3 and name == "crossed parts":
        return  # which mixtures of rows attain it is not searched
    assert float(most) >= certified * (1 - 1e-9) - 1e-300


AT_LEAST_A_ROW = ("count", "count and sum", "all and parts", "repeat")


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_means_in_parts_where_units_have_rows_in_several(relation):
    """A mean is not linear in rows: two exchanged parts cost twice the width."""
    base = dp.dataset(
        "t", columns={"x": (0, 10), "r": ["A", "B"]}, neighbors=relation, unit="id", rows_per_unit=2
    )
    means = {k: p["x"].mean().release(LaplaceProbe(scale=1.0)) for k, p in base.partition("r")}
    plan = dp.Pipeline(**means)

    def log(values):
        data = {"x": np.array(values, float), "r": np.array(["A", "B"][: len(values)], dtype=str)}
        structure = plan.structure
        bound = Secret(
            read_rows(data | {"id": np.zeros(len(values), int)}, {"x": "number", "r": "text"}, "id")
        )
        run = Run(structure, 0)
        run.bind({"t": bound})
        LOG.clear()
        for node in structure:
            run.compute_node(node)
        return [(m, [Fraction(float(v)) for v in value]) for m, value in LOG]

    ends = [[], [0.0], [10.0], *([a, b] for a in (0.0, 10.0) for b in (0.0, 10.0))]
    logs = [log(values) for values in ends]
    several = itertools.combinations(logs[1:], 2)
    if relation == "add_remove":
        several = ((a, logs[0]) for a in logs)
    most = max(truth(pair) for pair in several)
    assert most == (20 if relation == "replace_one" else 10)
    assert plan.certify(0.0).bounds["basic"].upper >= most


def test_parts_of_whole_units_inside_of_parts_of_an_exchanged_unit():
    """Rows before may be in one inner part, rows after in another: both are touched."""
    base = table("replace_one", 2)
    outputs = {
        f"{a}{b}": q.count().release(FlagProbe(scale=1.0))
        for a, p in base.partition("r")
        for b, q in p.partition("s", whole_units=True)
    }
    plan = dp.Pipeline(**outputs)
    one = [{"x": 0.0, "p": 1.0, "r": r, "s": "a", "f": 1.0} for r in "AB"]
    two = [row | {"s": "b"} for row in one]
    pair = [logged(plan, [(7, row) for row in own], 2) for own in (one, two)]
    assert truth(pair) == 4
    assert plan.certify(0.0).bounds["basic"].upper == pytest.approx(4, rel=1e-12)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_what_every_accountant_charges_in_parts(relation):
    """10 releases of all and 50 in each of 4 parts are 60 for a unit, not 210 (110 if it moves)."""
    base = dp.dataset("t", columns={"x": (0, 1), "q": list("abcd")}, neighbors=relation)
    noise = dp.Gaussian(sigma=20.0)
    ask = lambda t: t["x"].sum().release(noise)  # noqa: E731
    outputs = {f"all{i}": ask(base) for i in range(10)}
    outputs |= {k: {f"n{i}": ask(p) for i in range(50)} for k, p in base.partition("q")}
    times = 110 if relation == "replace_one" else 60
    for delta in (1e-9, 1e-5):
        bounds = dp.Pipeline(**outputs).certify(delta).bounds
        expected = accountants.certify(Repeated(Spend(Gaussian(mu=0.05)), times), delta)
        assert len(bounds) == len(accountants.ACCOUNTANTS)
        for name, certified in bounds.items():
            assert certified.upper == pytest.approx(expected[name].bounds.upper, rel=1e-9)
        square = Fraction(times, 400)
        assert gaussian_delta(square, bounds["gaussian"].upper) <= delta
        assert gaussian_delta(square, bounds["gaussian"].upper * (1 - 1e-9)) > delta


@pytest.mark.parametrize(("relation", "least"), [("add_remove", 1), ("replace_one", 2)])
def test_six_partitions_of_ten_parts(relation, least):
    """A million worlds: past the cap an envelope stands for them, exact for pure epsilon."""
    columns = {f"c{i}": list(range(10)) for i in range(6)}
    base = dp.dataset("t", columns=columns, neighbors=relation)
    outputs, dearest = {}, Fraction(0)
    for i in range(6):
        scales = [1.0 + i + k / 8 for k in range(10)]
        for k, part in base.partition(f"c{i}"):
            outputs[f"p{i}x{k}"] = part.count().release(dp.Laplace(scale=scales[k]))
        dearest += sum(1 / Fraction(s) for s in sorted(scales)[:least])
    certificate = dp.Pipeline(**outputs).certify(1e-6)
    basic = certificate.bounds["basic"].upper
    assert dearest <= Fraction(basic) <= dearest * (1 + Fraction(1, 10**9))
    assert certificate.epsilon <= basic


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_many_unlike_parts(relation):
    """No part covers another: five rows have 4368 splits among 12, a moving unit 1128 pairs."""
    rows_, parts = (5, 12) if relation == "add_remove" else (None, 48)
    extra = {"unit": "id", "rows_per_unit": rows_} if rows_ else {}
    base = dp.dataset("t", columns={"q": list(range(parts))}, neighbors=relation, **extra)
    outputs, noises = {}, []
    for i, (_, part) in enumerate(base.partition("q")):
        scale, sigma = 10.0 + i, 40.0 - i / 2
        outputs[f"l{i}"] = part.count().release(dp.Laplace(scale=scale))
        outputs[f"g{i}"] = part.count().release(dp.Gaussian(sigma=sigma))
        noises.append((scale, sigma))
    plan = dp.Pipeline(**outputs)
    certificate = plan.certify(1e-6)
    assert certificate.worlds.exact
    rho = mu = 0.0
    for where in itertools.combinations_with_replacement(range(parts), rows_ or 2):
        if rows_ is None and where[0] == where[1]:
            continue  # an exchange inside of a part moves no count
        charged = [(Laplace(k / b), k / sigma) for k, (b, sigma) in counted(where, noises)]
        rho = max(rho, sum(loss.rho() + shift**2 / 2 for loss, shift in charged))
        mu = max(mu, sum(gdp_mu(loss) ** 2 + shift**2 for loss, shift in charged))
    expected = {
        "concentrated": zcdp_epsilon(rho, 1e-6)[0],
        "gaussian": gdp_epsilon(mu**0.5, 1e-6).upper,
    }
    for name, value in expected.items():
        assert value * (1 - 1e-12) <= certificate.bounds[name].upper <= value * (1 + 1e-7)
    bounds = certificate.bounds["distribution"]
    assert bounds.upper - bounds.lower < 1e-5


def counted(where, noises):
    return [(where.count(i), noises[i]) for i in set(where)]


def test_a_fresh_sample_each_round_and_one_sample_for_all():
    q, eps, times = 0.125, 0.5, 3
    base = dp.dataset("t", columns={"x": (0, 1)})

    def rounds(at, inside):
        def body(state, at):
            rows_ = at.sample(q) if inside else at
            return dp.post(lambda s, n: s, state, rows_.count().release(dp.Laplace(scale=1 / eps)))

        plan = dp.Pipeline(a=dp.repeat(body, times, at, start=0))
        return plan.certify(0.0).bounds["basic"].upper

    amplified = lambda e: mpmath.log1p(q * mpmath.expm1(mpmath.mpf(e)))  # noqa: E731
    resampled, shared = times * amplified(eps), amplified(times * eps)
    for epsilon, exact in [
        (rounds(base, True), resampled),
        (rounds(base.sample(q), False), shared),
    ]:
        assert exact <= epsilon <= exact * (1 + mpmath.mpf(10) ** -12)


@pytest.mark.parametrize("swap", [False, True])
def test_equal_loops_and_equal_steps_are_distinguished(swap):
    """Two loops of equal start and length read their own states; a step outside is its own."""
    base = dp.dataset("t", columns={"x": (0, 10)})
    noise = LaplaceProbe(scale=1.0)

    def climb(step):
        def body(state):
            below = base.filter(base["x"] <= state).count().release(noise)
            return dp.post(lambda s, n, by: s + by, state, below, by=step)

        return dp.repeat(body, 3, start=0.0)

    one, two = climb(1.0), climb(3.0)
    outside = base.filter(base["x"] <= 4.0).count().release(noise)
    still = dp.repeat(
        lambda s, own: dp.post(
            lambda a, n: a, s, own.filter(own["x"] <= 4.0).count().release(noise)
        ),
        2,
        base,
        start=5.0,
    )
    names = "dcba" if swap else "abcd"
    plan = dp.Pipeline(**dict(zip(names, (one, two, outside, still), strict=True)))
    assert plan.certify(0.0).bounds["basic"].upper == pytest.approx(3 + 3 + 1 + 2, rel=1e-12)
    structure = plan.structure
    run = Run(structure, 0)
    run.bind({"t": Secret(read_rows({"x": np.arange(11.0)}, {"x": "number"}, None))})
    LOG.clear()
    for node in structure:
        if not node.loops:
            run.compute_node(node)
    assert sorted(float(v[0]) for _, v in LOG) == sorted([1, 2, 3, 1, 4, 7, 5, 5, 5])


def equal_parts(
    neighbors: str, rows: int, draw: random.Random
) -> tuple[dp.Pipeline, list[tuple[dict[str, str], float]]]:
    """A plan of counts in nested partitions, many of them equal, with each release's condition.

    Its mechanisms are the library's: of equal parts one then stands for all.
    """
    columns = {"a": ["x", "y", "z"], "b": ["p", "q"]}
    people = dp.dataset(
        "people", columns=columns, unit="id", rows_per_unit=rows, neighbors=neighbors
    )
    if rows == 1:
        people = dp.dataset("people", columns=columns, neighbors=neighbors)
    outputs: dict[str, object] = {}
    conditions: list[tuple[dict[str, str], float]] = []

    def ask(table: dp.Table, condition: dict[str, str]) -> None:
        for scale in draw.choices([2.0, 4.0], k=draw.choice([0, 1, 1, 2])):
            outputs[f"n{len(outputs)}"] = table.count().release(dp.Laplace(scale=scale))
            conditions.append((condition, scale))

    ask(people, {})
    for first, second in draw.sample([("a", "b"), ("b", "a")], k=draw.choice([1, 2])):
        # all parts alike, or each drawn by itself
        seed = draw.random() if draw.random() < 0.5 else None
        for key, part in people.partition(first):
            draw = random.Random(seed) if seed is not None else draw
            ask(part, {first: key})
            for inner, nested in part.partition(second):
                ask(nested, {first: key, second: inner})
    if not outputs:
        return equal_parts(neighbors, rows, draw)
    return dp.Pipeline(**outputs), conditions


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("neighbors", "rows"), [("add_remove", 1), ("replace_one", 1), ("add_remove", 2)]
)
def test_equal_parts_cost_what_a_unit_can_touch(neighbors: str, rows: int, seed: int) -> None:
    plan, conditions = equal_parts(neighbors, rows, random.Random(seed))
    every = [{"a": a, "b": b} for a in "xyz" for b in "pq"]

    def counts(units: tuple[dict[str, str], ...]) -> list[int]:
        return [
            sum(all(row[k] == v for k, v in condition.items()) for row in units)
            for condition, _ in conditions
        ]

    firsts = {next(iter(condition)) for condition, _ in conditions if condition}
    most = Fraction()
    units = [u for r in range(rows + 1) for u in itertools.combinations_with_replacement(every, r)]
    pairs = (
        itertools.product(units, units)
        if neighbors == "replace_one"
        else ((unit, ()) for unit in units)
    )
    for before, after in pairs:
        if neighbors == "replace_one" and not (len(before) == len(after) == rows):
            continue
        moved = zip(counts(before), counts(after), conditions, strict=True)
        most = max(most, sum(abs(x - y) / Fraction(scale) for x, y, (_, scale) in moved))
    certified = plan.certify(accountants=[accountants.Basic()]).epsilon
    assert certified >= most
    # one partition by each column, and a unit has one row: the bound is what some unit loses
    if rows == 1 and neighbors == "add_remove" and len(firsts) == 1:
        assert certified == pytest.approx(float(most), rel=1e-12)
    # what stands for equal releases has the worlds of all of them
    everyone = accountants.worlds(plan.term)
    assert accountants.measure(everyone, accountants.Basic(), delta=0.0).bounds.upper == certified
