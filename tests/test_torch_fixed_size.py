"""Networks whose neighbours exchange a unit: samples of a fixed size, and Poisson samples.

The law of a round, and what it costs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import special

import accountants
import adaptive_dp as dp
from accountants.losses import ReplacedSample
from adaptive_dp.data import sampling
from adaptive_dp.noise.stream import SecureStream, SeededStream

# --- the law of a round

torch: Any = pytest.importorskip("torch")

from adaptive_dp.torch.examples import NetworkRowsOf  # noqa: E402

COLUMNS = {"x": (-1, 1), "y": [0, 1]}


def line() -> Any:
    made = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(made.weight)
    return made


def product(outputs: Any, targets: Any) -> Any:
    """A loss whose gradient is ``x (1 + y)``, whatever the weight is."""
    return (outputs[:, 0] * (1 + targets)).sum()


def plain_sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1.0)


def table_of(n: int, **options: Any) -> Any:
    options = {"neighbors": "replace_one", "size": n, **options}
    return dp.dataset("t", columns=COLUMNS, **options)


def training(**options: Any) -> Any:
    options = {"steps": 1, "sampling_rate": 0.5, "sampling": "fixed_size", **options}
    options = {"features": ["x"], "target": "y", "clipping": 0.5, **options}
    return dp.torch.Training(line, product, plain_sgd, **options)


def plan_of(learner: Any, table: Any, sigma: float = 1.0, delta: float = 1e-5) -> dp.Pipeline:
    return dp.Pipeline(model=table.solve(learner)).fix(sigma=sigma).with_delta(delta)


UNIVERSE = ((1.0, 1), (-1.0, 1), (0.1, 0), (math.nan, 1), (0.5, 7))
"""Rows: of gradients that are clipped to 1 and to -1, of .2, of 0, and without a target."""


def shares(rows: Any, n: int, **options: Any) -> Any:
    """What each row adds to a round's sum, and to its number of short gradients, by the library."""
    learner, table = training(**options), table_of(n)
    reads, gradients = learner.operations(table.domain)
    found = []
    for x, y in rows:
        own = reads.run([table_of(1).operation.bind({"x": [x], "y": [y]})], None)
        units = gradients.run([own, np.zeros(1, dtype=np.float32)], SecureStream())
        total, step = units.clipped_sum(learner.threshold, relative=True)
        found.append((float(total[0]) * step, units.short(learner.threshold)))
    return found


def mixture(at: Any, means: Any, sigma: float) -> Any:
    """The density of a mixture of normals with equal shares."""
    z = (at[:, None] - np.asarray(means)[None, :]) / sigma
    return np.exp(-z * z / 2).mean(axis=1) / (sigma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize(("n", "size", "sigma"), [(4, 2, 1.0), (5, 1, 0.7), (4, 3, 2.0)])
def test_no_pair_of_data_sets_loses_more_than_is_certified(n: int, size: int, sigma: float) -> None:
    """All neighbours of a small universe, the law of a round by brute force over all samples.

    The integral of ``(p - e^eps q)_+`` on a grid; the worst pair attains what is certified.
    """
    delta = 0.02
    certified = plan_of(training(sampling_rate=size / n), table_of(n), sigma, delta).certify()
    values = [g for g, _ in shares(UNIVERSE, n)]
    assert values == pytest.approx([1, -1, 0.2, 0, 0], abs=1e-5)
    at = np.linspace(-n - 9 * sigma, n + 9 * sigma, 40_001)
    width, sets = at[1] - at[0], list(itertools.combinations(range(n), size))

    def law(rows: tuple[int, ...]) -> Any:
        return mixture(at, [sum(values[rows[i]] for i in some) for some in sets], sigma)

    worst = 0.0
    for others in itertools.combinations_with_replacement(range(4), n - 1):
        laws = [law((*others, own)) for own in range(4)]
        for p, q in itertools.permutations(laws, 2):
            lost = np.maximum(p - math.exp(certified.epsilon) * q, 0).sum() * width
            worst = max(worst, float(lost))
    assert worst <= delta * (1 + 1e-6)
    assert worst >= delta * (1 - 1e-3)


def test_a_threshold_that_adapts_is_charged_for_both_of_its_releases() -> None:
    """The joint law of sum and count in one sample, on a grid in the plane; both directions."""
    n, size, sigma, delta = 3, 2, 1.0, 0.05
    clipping = dp.Clipping(share=0.3)
    options = {"clipping": clipping, "first_threshold": 0.5, "sampling_rate": size / n}
    certified = plan_of(training(**options), table_of(n), sigma, delta).certify()
    noises = [sigma / math.sqrt(1 - clipping.share), sigma / math.sqrt(clipping.share)]
    values = shares(UNIVERSE, n, **options)
    assert [short for _, short in values] == [0, 0, 1, 1, 0]
    grids = [np.linspace(-3 - 8 * noises[0], 3 + 8 * noises[0], 401)]
    grids += [np.linspace(-8 * noises[1], 2 + 8 * noises[1], 401)]
    cell = (grids[0][1] - grids[0][0]) * (grids[1][1] - grids[1][0])
    sets = list(itertools.combinations(range(n), size))

    def law(rows: tuple[int, ...]) -> Any:
        total = 0.0
        for some in sets:
            mean = np.sum([values[rows[i]] for i in some], axis=0)
            ends = [mixture(grids[k], [mean[k]], noises[k]) for k in range(2)]
            total = total + np.outer(*ends) / len(sets)
        return total

    worst = 0.0
    # an unclipped gradient of almost the threshold: the count moves by 1, and the sum by almost 2
    values.append((-1.0, 1))
    universe = (0, 2, 3, 4, 5)
    for others in itertools.combinations_with_replacement(universe, n - 1):
        laws = [law((*others, own)) for own in universe]
        for p, q in itertools.permutations(laws, 2):
            worst = max(worst, np.maximum(p - math.exp(certified.epsilon) * q, 0).sum() * cell)
    assert delta * (1 - 0.005) <= worst <= delta * (1 + 1e-6)


def test_the_certificate_is_the_accountants_answer_for_samples_without_replacement() -> None:
    for rate, size, steps in ((0.01, 10, 50), (1.0, 1000, 2)):
        plan = plan_of(training(steps=steps, sampling_rate=rate), table_of(1000), 1.5)
        spend = accountants.Spend(accountants.Gaussian(mu=2 / 1.5))
        part = accountants.Subset(spend, size, 1000) if size < 1000 else spend
        answers = accountants.certify(accountants.Repeated(part, steps), delta=1e-5)
        alone = accountants.tightest(answers).bounds.upper
        certificate = plan.certify()
        assert alone * (1 - 1e-9) <= certificate.epsilon <= alone * (1 + 1e-5)
        assert dp.verify(certificate).holds


def decoded(model: Any, start: float, size: int, count: int) -> tuple[int, ...]:
    """Which rows a step has read, whose gradients are powers of two."""
    total = (start - float(model["parameters"][0])) * size
    bits = round(total * 2**count)
    assert abs(total * 2**count - bits) < 1e-2
    return tuple(i for i in range(count) if bits >> i & 1)


def test_a_round_reads_exactly_so_many_units_and_divides_by_them() -> None:
    """Without noise to speak of the step tells which rows were read: each set equally often."""
    n, size, runs = 5, 2, 600
    plan = plan_of(training(sampling_rate=size / n, clipping=1.0), table_of(n), 1e-6)
    rows = {"x": [2.0 ** (i - n) for i in range(n)], "y": [0] * n}
    seen = Counter(
        decoded(plan.simulate(seed=seed, t=rows)["model"], 0.0, size, n) for seed in range(runs)
    )
    assert set(seen) == set(itertools.combinations(range(n), size))
    # chi square of 9 degrees of freedom: above 60 with a probability below 1e-8
    assert sum((k - runs / 10) ** 2 / (runs / 10) for k in seen.values()) < 60
    again = [plan.simulate(seed=4, t=rows)["model"]["parameters"] for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_units_that_add_nothing_keep_their_place() -> None:
    """Of six units, with several rows each, two have no declared target: sets of all six."""
    table = table_of(6, unit="who", rows_per_unit=2)
    assert table.domain.units == 6
    who = np.repeat([3, 1, 8, 2, 9, 7], 2)
    y = np.where(np.isin(who, [1, 9]), 7, 0)
    bound = table.operation.run(
        [table.inputs[0].operation.bind({"x": np.zeros(12), "y": y, "who": who})], None
    )
    reads = NetworkRowsOf(("x",), "y", COLUMNS, by_unit=True)
    rows = reads.run([bound], None)
    assert (rows.count, rows.total) == (4, 6)
    sizes = [rows.sample_of(3, SeededStream(seed)).count for seed in range(2_000)]
    found = np.bincount(sizes, minlength=4)
    # hypergeometric: 3 of 6, of which 4 count
    expected = [special.comb(4, k) * special.comb(2, 3 - k) / 20 * 2_000 for k in range(1, 4)]
    assert found[0] == 0
    assert sum((found[k] - e) ** 2 / e for k, e in enumerate(expected, 1)) < 40
    for seed in range(20):
        some = rows.sample_of(3, SeededStream(seed))
        assert len(some.index) == 2 * some.count
        assert sorted({*some.units.tolist()}) == list(range(some.count))
        # both rows of each unit, in the places where the data have them
        assert {*who[some.index].tolist()} <= {3, 8, 2, 7}
        assert all(np.sum(who[some.index] == each) == 2 for each in who[some.index])
    plan = plan_of(training(steps=3, clipping=dp.Clipping()), table)
    data = {"x": np.linspace(-1, 1, 12), "y": y, "who": who}
    assert np.isfinite(plan.simulate(seed=1, t=data)["model"]["parameters"]).all()
    certificate = plan.certify()
    assert (
        certificate.epsilon
        == plan_of(training(steps=3, clipping=dp.Clipping()), table_of(6)).certify().epsilon
    )


def test_rows_without_a_target_keep_their_place_too() -> None:
    rows = {"x": [0.5] * 6, "y": [0, 1, 7, 7, 7, 0]}
    read = NetworkRowsOf(("x",), "y", COLUMNS).run([table_of(6).operation.bind(rows)], None)
    counts = [read.sample_of(2, SeededStream(seed)).count for seed in range(600)]
    expected = [600 * e for e in (3 / 15, 9 / 15, 3 / 15)]
    found = np.bincount(counts, minlength=3)
    assert sum((f - e) ** 2 / e for f, e in zip(found, expected, strict=True)) < 40


def test_what_is_refused_and_what_to_do() -> None:
    for options, match in (
        ({"neighbors": "add_remove", "size": None}, r"add_remove.*leave out sampling"),
        ({"neighbors": "zero_out"}, r"zero_out.*leave out sampling"),
        ({"size": None}, r"declare size=.*for Poisson samples"),
    ):
        with pytest.raises(dp.NeighborError, match=match):
            table_of(9, **options).solve(training())
    table = table_of(9)
    with pytest.raises(dp.NeighborError, match="filter no rows"):
        table.filter(table["x"] > 0).solve(training())
    for wrong, match in (
        ({"sampling": "shuffled"}, "sampling"),
        ({"batch_size": 3}, "leave out batch_size"),
        ({"noise": "banded", "sampling_rate": 1.0}, "in turn"),
    ):
        with pytest.raises((dp.DeclarationError, ValueError), match=match):
            training(**wrong)
    with pytest.raises(dp.DataError, match="size=9"):
        plan_of(training(), table).simulate(seed=1, t={"x": [0.0], "y": [0]})


def test_sizes_may_change_from_step_to_step() -> None:
    """Equal rates are one loop; each phase is charged and divided by its own size."""
    rates = (0.2, 0.2, 0.4)
    plan = plan_of(training(steps=3, sampling_rate=rates), table_of(10), 2.0)
    part = accountants.Spend(accountants.Gaussian(mu=1.0))
    term = accountants.Sequential(
        [
            accountants.Repeated(accountants.Subset(part, 2, 10), 2),
            accountants.Subset(part, 4, 10),
        ]
    )
    alone = accountants.tightest(accountants.certify(term, delta=1e-5)).bounds.upper
    assert alone * (1 - 1e-9) <= plan.certify().epsilon <= alone * (1 + 1e-4)
    same = plan_of(training(steps=3, sampling_rate=(0.2,) * 3), table_of(10), 2.0)
    assert (
        same.certify().epsilon
        == plan_of(training(steps=3, sampling_rate=0.2), table_of(10), 2.0).certify().epsilon
    )
    exact = plan_of(training(steps=3, sampling_rate=rates, clipping=1.0), table_of(10), 1e-7)
    model = exact.simulate(seed=1, t={"x": [0.25] * 10, "y": [0] * 10})["model"]
    assert float(model["parameters"][0]) == pytest.approx(-0.75, abs=1e-5)


def test_the_step_is_told_the_noise_of_the_mean() -> None:
    """The sum over exactly so many units: its noise over their number."""

    class Told(torch.optim.SGD):
        told: ClassVar[list[float]] = []
        noise_deviation = 0.0

        def step(self, closure: Any = None) -> Any:
            self.told.append(self.noise_deviation)
            return super().step()

    learner = dp.torch.Training(
        *(line, product, lambda p: Told(p, lr=1.0)),
        **{"steps": 2, "sampling_rate": 0.4, "sampling": "fixed_size", "clipping": 1.0},
        features=["x"],
        target="y",
    )
    Told.told.clear()
    plan_of(learner, table_of(10), 3.0).simulate(seed=1, t={"x": [0.25] * 10, "y": [0] * 10})
    assert Told.told[-2:] == pytest.approx([3 / 4, 3 / 4])


# --- Poisson samples of units that are exchanged


@pytest.mark.parametrize(("n", "rate", "sigma"), [(3, 0.5, 1.0), (3, 0.1, 0.6)])
def test_no_pair_loses_more_than_is_certified_in_poisson_samples(
    n: int, rate: float, sigma: float
) -> None:
    """As above: all neighbours, all samples, the integral on a grid, both directions."""
    delta = 0.02
    learner = training(sampling="poisson", sampling_rate=rate, batch_size=1)
    certified = plan_of(learner, table_of(n, size=None), sigma, delta).certify()
    values = [1.0, -1.0, 0.2, 0.0]
    at = np.linspace(-n - 9 * sigma, n + 9 * sigma, 40_001)
    sets = [s for k in range(n + 1) for s in itertools.combinations(range(n), k)]
    chances = [rate ** len(s) * (1 - rate) ** (n - len(s)) for s in sets]

    def law(rows: tuple[int, ...]) -> Any:
        chance_of: dict[float, float] = {}
        for some, chance in zip(sets, chances, strict=True):
            mean = sum(values[rows[i]] for i in some)
            chance_of[mean] = chance_of.get(mean, 0.0) + chance
        return sum(p * mixture(at, [mean], sigma) for mean, p in chance_of.items())

    worst = 0.0
    for others in itertools.combinations_with_replacement(range(4), n - 1):
        laws = [law((*others, own)) for own in range(4)]
        for p, q in itertools.permutations(laws, 2):
            lost = np.maximum(p - math.exp(certified.epsilon) * q, 0).sum() * (at[1] - at[0])
            worst = max(worst, float(lost))
    assert delta * (1 - 1e-3) <= worst <= delta * (1 + 1e-6)


@pytest.mark.parametrize(("mu", "rate", "t"), [(0.8, 0.3, 1.3), (1.5, 0.05, 1.02), (1.0, 1.0, 2.0)])
def test_no_choice_by_the_first_release_of_a_sample_loses_more(
    mu: float, rate: float, t: float
) -> None:
    """Two releases of one sample, the second's shifts chosen by the first's outcome.

    The best of all choices in the plane, by brute force, is what the proof says: opposite and
    constant. The second integral is a polygon of angles, the first a grid.
    """
    y = np.linspace(-9, 9, 601)
    law = np.exp(-y * y / 2) / math.sqrt(2 * math.pi) * (y[1] - y[0])
    grid = (law[:, None] * law[None, :]).ravel()
    first, second = (each.ravel() for each in np.meshgrid(y, y, indexing="ij"))
    c = (1 - rate) * (t - 1) / rate
    r, s = np.exp(mu * y - mu * mu / 2), np.exp(-mu * y - mu * mu / 2)

    def lost(r: Any, s: Any, angle: float, one: float, other: float) -> Any:
        """The second release of all r and s, at an angle between shifts of these lengths."""
        a = one * first
        b = other * (math.cos(angle) * first + math.sin(angle) * second)
        own, its = np.exp(a - one**2 / 2), np.exp(b - other**2 / 2)
        return [
            float((np.maximum(x * own - c - t * z * its, 0) * grid).sum())
            for x, z in zip(r, s, strict=True)
        ]

    some = np.arange(60, 601, 60)
    kinds = [
        (k * math.pi / 3, one, other) for k in range(4) for one in (0, mu) for other in (0, mu)
    ]
    values = np.array([lost(r[some], s[some], *kind) for kind in kinds])
    opposite = kinds.index((math.pi, mu, mu))
    assert (values <= values[opposite] * (1 + 1e-5) + 1e-7).all()
    # all of it is the pair of one release of the root of both squares
    pair = ReplacedSample(accountants.Composite({accountants.Gaussian(mu): 2}), rate)
    z = np.linspace(-14, 14, 40_001)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    both = math.sqrt(2) * mu
    r, s = np.exp(both * z - both**2 / 2), np.exp(-both * z - both**2 / 2)
    whole = rate * (np.maximum(r - c - t * s, 0) * density).sum() * (z[1] - z[0])
    bound = pair.profile(math.log(t))
    assert bound is not None
    assert whole == pytest.approx(bound.upper, rel=1e-5)


def test_poisson_samples_of_exchanged_units_cost_what_the_accountant_says() -> None:
    learner = training(sampling="poisson", sampling_rate=0.01, steps=50, batch_size=10)
    certificate = plan_of(learner, table_of(1000), 1.5).certify()
    part = accountants.ReplacedSample(accountants.Spend(accountants.Gaussian(mu=1 / 1.5)), 0.01)
    answers = accountants.certify(accountants.Repeated(part, 50), delta=1e-5)
    alone = accountants.tightest(answers).bounds.upper
    assert alone * (1 - 1e-9) <= certificate.epsilon <= alone * (1 + 1e-5)
    assert dp.verify(certificate).holds
    fixed = plan_of(training(sampling_rate=0.01, steps=50), table_of(1000), 1.5).certify()
    added = plan_of(learner, table_of(1000, neighbors="add_remove", size=None), 1.5).certify()
    assert added.epsilon < certificate.epsilon < fixed.epsilon


def two_parts(first: tuple[float, float], second: tuple[float, float], steps: int = 1) -> Any:
    """A network of each of two parts, with noise and rate of its own."""
    columns = {**COLUMNS, "town": ["A", "B"]}
    parts = dict(dp.dataset("t", columns=columns, neighbors="replace_one").partition("town"))
    options: dict[str, Any] = {"sampling": "poisson", "steps": steps, "batch_size": 3}
    models = {
        town: parts[town].solve(training(**options, sampling_rate=rate, free=town))
        for town, (_, rate) in zip("AB", (first, second), strict=True)
    }
    return dp.Pipeline(**models).fix(A=1 / first[0], B=1 / second[0])


def test_a_unit_may_move_from_one_part_to_another() -> None:
    """Exchanged in one part, or out of one into the other: then losses go both ways at once."""
    equal = two_parts((1 / 1.5, 0.2), (1 / 1.5, 0.2), steps=2).certify(delta=1e-5).epsilon
    spend = accountants.Spend(accountants.Gaussian(mu=1 / 1.5))

    def alone(*terms: accountants.Term) -> float:
        whole = accountants.Sequential(terms)
        return accountants.measure(whole, accountants.Distribution(), delta=1e-5).bounds.upper

    exchanged = alone(accountants.Repeated(accountants.ReplacedSample(spend, 0.2), 2))
    assert exchanged * (1 - 1e-6) <= equal <= exchanged * (1 + 1e-4)
    other = accountants.ReplacedSample(spend, 0.1)
    different = two_parts((1 / 1.5, 0.2), (1 / 1.5, 0.1)).certify(delta=1e-5).epsilon
    both = alone(accountants.ReplacedSample(spend, 0.2), other)
    assert both * (1 - 1e-6) <= different <= both * (1 + 1e-4)
    columns = {**COLUMNS, "town": ["A", "B"]}
    sized = dp.dataset("t", columns=columns, neighbors="replace_one", size=9)
    ((_, part), _) = sized.partition("town")
    with pytest.raises(dp.NeighborError, match="public number"):
        part.solve(training())


@pytest.mark.parametrize(
    ("first", "second"),
    [((4.0, 0.9), (4.0, 0.9)), ((2.0, 0.9), (3.0, 0.5)), ((1.0, 0.3), (2.0, 0.05))],
)
@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_a_move_costs_no_more_than_is_certified(
    first: tuple[float, float], second: tuple[float, float], delta: float
) -> None:
    """The laws in the plane, by integration: a round of the one part, and one of the other."""
    epsilon = two_parts(first, second).certify(delta=delta).epsilon
    at = np.linspace(-9, 14, 1_501)
    still = np.exp(-at * at / 2) / math.sqrt(2 * math.pi)
    sampled = [
        (1 - q) * still + q * np.exp(-((at - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        for mu, q in (first, second)
    ]
    p, q = np.outer(sampled[0], still), np.outer(still, sampled[1])
    cell = (at[1] - at[0]) ** 2

    def lost(p: Any, q: Any, epsilon: float) -> float:
        return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * cell)

    assert 0 < max(lost(p, q, epsilon), lost(q, p, epsilon)) <= delta * (1 + 1e-6)


def test_a_public_number_of_units_of_several_rows_is_not_released() -> None:
    table = table_of(40, unit="who", rows_per_unit=3)
    learner = training(sampling="poisson", sampling_rate=0.1, steps=2)
    assert "number_of_units" not in plan_of(learner, table).to_json()
    kept = table.filter(table["x"] > 0)
    assert "number_of_units" in plan_of(learner, kept).to_json()


def test_other_noise_in_such_a_sample_is_refused() -> None:
    from adaptive_dp.queries.labeled import Gradients
    from adaptive_dp.torch.examples import NetworkTable

    learner = training(sampling="poisson", clipping=dp.Clipping(), batch_size=2)
    for neighbors, allowed in (("replace_one", False), ("add_remove", True)):
        table = table_of(4, neighbors=neighbors, size=None)
        reads, gradients = learner.operations(table.domain)
        sample = NetworkTable(reads, (table,)).sample(0.5)
        at: Any = dp.public(np.zeros(1, dtype=np.float32))
        of_units: Any = Gradients(gradients, (sample, at))
        count = of_units.short(dp.public(0.5))
        for noise in (dp.Laplace(scale=2.0), dp.DiscreteGaussian(sigma=2.0)):
            if allowed:
                dp.Pipeline(count=count.release(noise)).with_delta(1e-5).certify()
                continue
            with pytest.raises(dp.DeclarationError, match=r"must be dp\.Gaussian, got"):
                dp.Pipeline(count=count.release(noise))
        plan = dp.Pipeline(count=count.release(dp.Gaussian(sigma=2.0))).with_delta(1e-5)
        assert plan.certify().epsilon > 0


# --- sessions, and audits


@pytest.mark.parametrize("sampling", ["fixed_size", "poisson"])
def test_a_loop_draws_and_charges_such_samples(sampling: str) -> None:
    data = {"x": np.linspace(-1, 1, 20), "y": [0, 1] * 10}
    terms: Any = {"budget": dp.Budget(3.0, 1e-5), "accountant": "renyi", "t": data}
    sizes = {} if sampling == "fixed_size" else {"batch_size": 2}
    clipping = dp.Clipping()
    learner = training(steps=200, sampling_rate=0.1, clipping=clipping, sampling=sampling, **sizes)
    with dp.Session(**terms, seed=1) as session:
        loop = dp.torch.Loop(session, table_of(20), learner, sigma=4.0)
        first = next(iter(loop))
        assert first.share is not None
        cost = session.spent.costs
        done = [each.number for each in loop]
        assert 3 < done[-1] < 200
        assert session.epsilon <= 3
        certificate = session.certificate()
        checkpoint = loop.state_dict()
        again = dp.torch.Loop(session, table_of(20), learner, sigma=4.0)
        with pytest.raises(dp.BudgetError):
            again.load_state_dict({**checkpoint, "threshold": 0.3}) or again.step()
    assert dp.verify(certificate, allow=[__name__]).holds
    # a round is charged at most what the same without samples is
    whole = training(steps=200, sampling_rate=1, clipping=dp.Clipping())
    with dp.Session(**terms, seed=1) as session:
        dp.torch.Loop(session, table_of(20), whole, sigma=4.0).step()
        assert session.spent.costs[5] > cost[5]


@pytest.mark.parametrize("sampling", ["fixed_size", "poisson"])
def test_a_ledger_keeps_what_such_rounds_cost(sampling: str, tmp_path: Any) -> None:
    """Opened again: recorded rounds are free, others are charged as in one session."""
    data, path = {"x": np.linspace(-1, 1, 20), "y": [0, 1] * 10}, tmp_path / "run.db"
    terms: Any = {"budget": dp.Budget(3.0, 1e-5), "accountant": "renyi", "t": data}
    sizes = {} if sampling == "fixed_size" else {"batch_size": 2}
    learner = training(
        steps=9, sampling_rate=0.1, clipping=dp.Clipping(), sampling=sampling, **sizes
    )

    def taken(session: Any, rounds: int) -> Any:
        loop = dp.torch.Loop(session, table_of(20), learner, sigma=4.0)
        for _ in range(rounds):
            loop.step()
        return loop.model["parameters"]

    with dp.Session(**terms, ledger=path, create=True) as session:
        two, spent = taken(session, 2), session.spent
    with dp.Session(**terms, ledger=path) as session:
        assert session.spent == spent
        np.testing.assert_array_equal(taken(session, 2), two)
        assert session.spent == spent
        taken(session, 3)
        after, certificate = session.spent, session.certificate()
    assert dp.verify(certificate, allow=[__name__]).holds
    with dp.Session(**terms, seed=1) as session:
        taken(session, 3)
        assert session.spent.costs == pytest.approx(after.costs)


@pytest.mark.parametrize("broken", [False, True])
def test_an_audit_finds_a_loader_that_does_not_draw_its_samples(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary that is in every sample, where it should be in a quarter of them."""
    plan = plan_of(training(clipping=0.1, sampling_rate=0.25), table_of(4), 0.5, 0.2)
    pair = next(iter(dp.audit.gallery(plan)))
    first, second = (each["t"]["x"] for each in (pair.first, pair.second))
    (canary,) = [i for i in range(4) if first[i] != second[i]]
    if broken:
        always = np.arange(4) == canary
        monkeypatch.setattr(sampling, "fixed_size_sample", lambda *_: always)
    found = dp.audit.pipeline(plan, pair, samples=400, seed=1, delta=0.2)
    assert found.verdict == ("violation" if broken else "consistent")
