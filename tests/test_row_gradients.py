"""Sums of clipped gradients: exact, independent for each row, and within the declared bound."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from attrs import evolve, frozen
from scipy.special import softmax

import adaptive_dp as dp
from adaptive_dp.data import grid, make_examples, read_rows
from adaptive_dp.data.examples import BLOCK, Examples, to_steps
from adaptive_dp.erm import Constants, Logistic, Loss, Network, Squared
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.domains import Interval
from adaptive_dp.queries.examples import standard
from adaptive_dp.queries.gradients import ClippedSum, LinearGradients, ShortGradients
from adaptive_dp.queries.moments import ExampleMoments


@frozen
class Steep(Loss):
    """k classes with slopes as steep as one likes: nothing but clipping bounds them."""

    labels: ClassVar[str] = "class"
    classes: int = 3

    @property
    def outputs(self) -> int:
        return self.classes

    def slope(self, z, y):
        return 1e3 * z**3 + np.sin(1e6 * z) + y

    def constants(self, reach: float = math.inf) -> Constants:
        return Constants(math.inf, math.inf)


def made(x, y, radius, units=None):
    steps, unit = grid.ball(np.asarray(x, dtype=np.float64), radius)
    owners = np.arange(len(y)) if units is None else units
    return make_examples(steps.astype(np.float32), unit, np.asarray(y, float), radius, owners)


def gradients(rows: Examples, loss: Loss, theta) -> LinearGradients:
    steps, unit = to_steps(np.asarray(theta, dtype=np.float64))
    return LinearGradients(rows, loss, steps, unit)


CASES = [
    pytest.param(Logistic(), 1, 4, 2.0, 0.3, False, id="logistic"),
    pytest.param(Logistic(), 1, 784, 1.0, 1.0, True, id="logistic, wide"),
    pytest.param(Steep(), 3, 7, 3.7, 0.1, False, id="three classes"),
    pytest.param(Steep(10), 10, 33, 1e-3, 1e3, True, id="ten classes"),
]


@pytest.mark.parametrize(("loss", "outputs", "width", "radius", "bound", "relative"), CASES)
def test_a_row_adds_its_own_share_and_nothing_else(loss, outputs, width, radius, bound, relative):
    """Exactly, at any position: what a row adds depends on no other row."""
    draw = np.random.default_rng(width)
    for count in (0, 1, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5):
        x = draw.normal(size=(count + 1, width)) * radius / math.sqrt(width)
        y = draw.integers(0, 2, count + 1) * 2 - 1
        theta = draw.normal(size=(outputs, width)) * 10.0 ** draw.integers(-8, 3)
        where = int(draw.integers(0, count + 1))
        order = draw.permutation(count + 1)
        parts = [np.r_[0:where, where + 1 : count + 1], [where], order]
        rest, own, both = (
            gradients(made(x[i], y[i], radius), loss, theta).clipped_sum(bound, relative=relative)
            for i in parts
        )
        assert rest[1] == own[1] == both[1]
        assert (rest[0] + own[0] == both[0]).all()


@pytest.mark.parametrize(("loss", "outputs", "width", "radius", "bound", "relative"), CASES)
def test_no_row_adds_more_than_the_bound(loss, outputs, width, radius, bound, relative):
    """As exact rationals; and rows that are longer add nearly all of it."""
    draw = np.random.default_rng(width + 1)
    limit = Fraction(1.0 if relative else bound)
    largest = 0.0
    for trial in range(150):
        x = draw.normal(size=(1, width)) * 10.0 ** draw.integers(-9, 4)
        if trial % 3 == 0:
            x = np.eye(width)[:1] * draw.choice([radius, 1e-12 * radius, 0.1 * radius])
        theta = draw.normal(size=(outputs, width)) * 10.0 ** draw.integers(-3, 9)
        y = draw.choice([-1.0, 1.0], 1)
        rows = gradients(made(x, y, radius), loss, theta)
        total, unit = rows.clipped_sum(bound, relative=relative)
        size = sum(Fraction(int(v)) ** 2 for v in total.reshape(-1)) * Fraction(unit) ** 2
        assert size <= limit**2
        largest = max(largest, float(size) ** 0.5 / float(limit))
    if isinstance(loss, Steep):
        assert largest > 0.9999


def test_slopes_whose_squares_underflow_are_clipped_too():
    class Tiny(Steep):
        def slope(self, z, y):
            return np.full(z.shape, 1e-165)

    rows = gradients(made([[1e100]], [1], 1e100), Tiny(), np.zeros((3, 1)))
    total, unit = rows.clipped_sum(1e-100, relative=False)
    assert (
        sum(int(v) ** 2 for v in total.reshape(-1)) * Fraction(unit) ** 2 <= Fraction(1e-100) ** 2
    )
    assert rows.short(1e-66) == 0


@pytest.mark.parametrize("relative", [False, True])
def test_the_sum_is_what_materialised_gradients_add_up_to(relative):
    draw = np.random.default_rng(5)
    x = draw.uniform(-1, 1, (3000, 6)) / math.sqrt(6)
    y = draw.choice([-1.0, 1.0], 3000)
    theta = draw.normal(size=(1, 6)) * 3
    slope = -y / (1 + np.exp(y * (x @ theta[0])))
    each = slope[:, None] * x
    shrink = np.minimum(1, 0.1 / np.linalg.norm(each, axis=1))
    expected = (each * shrink[:, None]).sum(axis=0) / (0.1 if relative else 1)
    total, unit = gradients(made(x, y, 1.0), Logistic(), theta).clipped_sum(0.1, relative=relative)
    np.testing.assert_allclose(total[0] * unit, expected, rtol=1e-4, atol=1e-3)
    lengths = np.linalg.norm(each, axis=1)
    count = gradients(made(x, y, 1.0), Logistic(), theta).short(0.1)
    assert abs(count - (lengths <= 0.1).sum()) <= 3


UPPER = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
COLUMNS = {"u": (-2.0, 2.0), "v": (-2.0, 2.0), "s": ["N", "P"], "c": ["a", "b", "c"]}
ROWS = [
    {"u": u, "v": v, "s": s, "c": c}
    for u, v in [(2, 2), (-2, 2), (0, 0), (math.nan, 2), (math.inf, -math.inf), (1e300, -3)]
    for s, c in [("N", "a"), ("P", "c"), ("neither", "none")]
]


class Bare(dp.Mechanism):
    """Releases the value itself, so that a test can look at it."""

    def release(self, value, stream):
        return np.array(value)

    def loss(self, distance):
        import accountants

        return accountants.Pure(epsilon=distance)


@pytest.mark.parametrize("ask", ["sum", "relative", "short", "squares", "released squares"])
def test_the_declared_sensitivity(ask):
    table = dp.dataset("t", columns=COLUMNS)
    rows = table.examples(["u", "v", "c"], "s", norm=1.3)
    theta = dp.public([0.3, -4.0, 2.0, 0.1, 0.2, 0.3])
    row_gradients = rows.gradients(Logistic(), at=theta)
    query = {
        "sum": lambda: row_gradients.sum(clip=0.6),
        "relative": lambda: row_gradients.sum(clip=dp.public(0.6)),
        "short": lambda: row_gradients.short(dp.public(0.7)),
        "squares": lambda: row_gradients.squares(clip=0.7),
        "released squares": lambda: row_gradients.squares(clip=dp.public(0.7)),
    }[ask]()
    plan = dp.Pipeline(a=query.release(Bare()))
    others = [ROWS[i] for i in (0, 4, 7, 9)] * 3

    def value(records):
        data = {name: [r[name] for r in records] for name in COLUMNS}
        return np.atleast_1d(plan.simulate(seed=1, t=data)["a"])

    base, steps = value(others), []
    for row in ROWS:
        change = value([*others[:5], row, *others[5:]]) - base
        steps.append(change)
        if row["s"] == "neither":  # a row without a label adds nothing
            assert not change.any()
    for norm in (1, 2, math.inf):
        declared = query.operation.sensitivity(
            query.inputs[0].domain, Change(False, 1, False), norm
        )
        sizes = [np.linalg.norm(v, ord=norm) for v in steps]
        assert max(sizes) <= declared
        exchanged = query.operation.sensitivity(
            query.inputs[0].domain, Change(True, 1, False), norm
        )
        both = [np.linalg.norm(v - w, ord=norm) for v in steps for w in steps]
        assert max(both) <= exchanged
    assert max(np.linalg.norm(v) for v in steps) > 0.99 * query.operation.sensitivity(
        query.inputs[0].domain, Change(False, 1, False), 2
    )


def test_features_and_labels():
    table = dp.dataset("t", columns={**COLUMNS, "y": (0.0, 10.0)})
    by_class = table.examples(["u"], "c", intercept=False)
    assert (by_class.domain.labels, by_class.domain.classes) == ("class", 3)
    numbers = table.examples(["u", "c", "v"], "y")
    assert numbers.domain.names == ("intercept", "u", "c=a", "c=b", "c=c", "v")
    assert numbers.domain.radius == pytest.approx(2.0)
    data = {"u": [2, 5], "v": [-1, math.nan], "c": ["b", "other"], "y": [10, -3]}
    kinds = {"u": "number", "v": "number", "c": "text", "y": "number"}
    matrix = numbers.operation.run([read_rows(data, kinds, None)], SeededStream(0))
    expected = [[1, 1, 0, 1, 0, -0.5], [1, 1, 0, 0, 0, 0]]
    assert standard(Interval(0, 8)) == (0, 8)
    assert standard(Interval(-2, 0)) == (0, 2)
    assert standard(Interval(1, 3)) == (2, 1)
    np.testing.assert_allclose(matrix.steps * matrix.unit, expected, atol=1e-5)
    assert list(matrix.labels) == [1, -1]
    counts = table.examples(["u"], "y", labels="count").operation
    raw = counts.run([read_rows(data, kinds, None)], SeededStream(0)).labels
    assert list(raw) == [10, 0]


def test_samples_are_of_units():
    draw = np.random.default_rng(0)
    owners = np.repeat(np.arange(500), 3)
    rows = made(draw.normal(size=(1500, 2)), np.ones(1500), 1.0, owners)
    sizes = []
    for seed in range(200):
        part = rows.sample(0.1, SeededStream(seed))
        assert len(part) == 3 * part.count
        sizes.append(part.count)
    # a mean of 200 x 500 Bernoulli trials: six standard deviations, false alarm below 1e-8
    assert abs(np.mean(sizes) - 50) < 6 * math.sqrt(500 * 0.09 / 200)


def test_amplification_is_counted():
    table = dp.dataset("t", columns=COLUMNS)
    rows = table.examples(["u"], "s")
    theta = dp.public([0.0, 0.0])

    def plan(source):
        query = source.gradients(Logistic(), at=theta).sum(clip=1.0)
        return dp.Pipeline(a=query.release(dp.Gaussian(sigma=2.0))).with_delta(1e-5)

    assert plan(rows.sample(0.01)).certify().epsilon < 0.2 * plan(rows).certify().epsilon
    exchanged = dp.dataset("t", columns=COLUMNS, neighbors="replace_one").examples(["u"], "s")
    added, replaced = (plan(each.sample(0.01)).certify().epsilon for each in (rows, exchanged))
    assert added < replaced < 0.4 * plan(exchanged).certify().epsilon


def test_refusals():
    table = dp.dataset("t", columns={**COLUMNS, "free": None, "y": (-1, 1)})
    rows = table.examples(["u"], "s")
    theta = dp.public([0.0, 0.0])
    with pytest.raises(dp.DeclarationError, match="'free'"):
        table.examples(["free"], "s")
    with pytest.raises(dp.DeclarationError, match="'s'"):
        table.examples(["u", "s"], "s")
    with pytest.raises(dp.DeclarationError, match="'y'"):
        table.examples(["u"], "y", labels="count")
    with pytest.raises(dp.DeclarationError, match="'sign'"):
        table.examples(["u"], "y").gradients(Logistic(), at=theta)
    with pytest.raises(dp.LeakError, match="t -> count"):
        rows.gradients(Logistic(), at=table.count())
    with pytest.raises(dp.DeclarationError, match="'logistic'"):
        rows.gradients("logistic", at=theta)
    with pytest.raises(dp.DeclarationError, match="positive"):
        rows.gradients(Logistic(), at=theta).sum(clip=0.0)


def test_released_parameters_may_have_any_value():
    """Noise may make of them what it will: they fail no run, and cost no more."""
    table = dp.dataset("t", columns=COLUMNS)
    data = {"u": [1.0, 2.0], "v": [0.0, 1.0], "s": ["N", "P"], "c": ["a", "b"]}
    for odd in (math.nan, math.inf, -math.inf, 1e308, 5e-324):
        rows = table.examples(["u"], "s").gradients(Logistic(), at=dp.public([odd, 1.0]))
        plan = dp.Pipeline(
            a=rows.sum(clip=dp.public(odd)).release(Bare()),
            b=rows.short(dp.public(odd)).release(Bare()),
            e=rows.short_less_long(dp.public(odd)).release(Bare()),
            c=rows.squares(clip=1.0).release(Bare()),
            d=rows.squares(clip=dp.public(odd)).release(Bare()),
        )
        released = plan.simulate(seed=0, t=data)
        assert np.isfinite(released["a"]).all()
        assert np.linalg.norm(released["a"]) <= 2 + 1e-6
        assert released["e"] == 2 * released["b"] - 2  # each row is either short or not
        assert 0 <= released["c"] <= 2
        assert 0 <= released["d"] <= 2


def test_softmax_reference():
    """A multi-class slope, against SciPy's softmax."""

    class Softmax(Steep):
        def slope(self, z, y):
            return softmax(z, axis=0) - (np.arange(3)[:, None] == y)

    draw = np.random.default_rng(2)
    x, y = draw.normal(size=(50, 4)) / 2, draw.integers(0, 3, 50)
    theta = draw.normal(size=(3, 4))
    rows = gradients(made(x, y, 10.0), Softmax(), theta)
    expected = (softmax(x @ theta.T, axis=1) - np.eye(3)[y]).T @ x
    total, unit = rows.clipped_sum(100.0, relative=False)
    np.testing.assert_allclose(total * unit, expected, atol=2e-2)


def test_squared_norms_are_a_sum_of_each_row_by_itself():
    """Exactly, at any position: what one row adds is what it has alone, in [0, 1]."""
    draw = np.random.default_rng(8)
    x, y = draw.normal(size=(2 * BLOCK + 3, 5)), draw.choice([-1.0, 1.0], 2 * BLOCK + 3)
    theta = draw.normal(size=(1, 5)) * 3
    ask = lambda where: gradients(made(x[where], y[where], 1.5), Squared(), theta).squares(0.9)  # noqa: E731
    everything = ask(np.arange(len(y)))
    assert ask(draw.permutation(len(y))) == everything
    for k in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 2):
        own = ask(np.array([k]))
        assert 0 <= own <= 2**20
        assert ask(np.delete(np.arange(len(y)), k)) + own == everything
    rows = x * np.minimum(1, 1.5 / np.linalg.norm(x, axis=1))[:, None]
    norms = np.linalg.norm((rows @ theta[0] - y)[:, None] * rows, axis=1)
    expected = np.minimum(1, (norms / 0.9) ** 2).sum()
    assert everything * 2.0**-20 == pytest.approx(expected, rel=1e-3)
    assert ask(np.array([], dtype=int)) == 0


def test_second_moments_are_those_of_the_rows():
    """Exactly, as rationals, in whatever blocks; of more rows than a bound they are clamped."""
    draw = np.random.default_rng(9)
    rows = made(draw.normal(size=(BLOCK + 7, 3)), np.ones(BLOCK + 7), 1.5)
    packed = ExampleMoments().run([rows], SeededStream(0))
    exact = rows.steps.astype(int).T.astype(object) @ rows.steps.astype(int).astype(object)
    expected = [Fraction(int(exact[i, j])) * Fraction(rows.unit) ** 2 for i, j in UPPER]
    given = [Fraction(float(v)) for v in packed / [1 if i == j else math.sqrt(2) for i, j in UPPER]]
    assert all(
        abs(a - b) <= abs(b) * Fraction(2.0**-50) for a, b in zip(given, expected, strict=True)
    )
    weights = draw.uniform(0, 1, len(rows))
    weighed = evolve(rows, labels=np.stack([rows.labels, weights], axis=1))
    packed = ExampleMoments().run([weighed], SeededStream(0))
    x = rows.steps.astype(float) * rows.unit
    expected = [(weights * x[:, i] * x[:, j]).sum() for i, j in UPPER]
    scales = [1.0 if i == j else math.sqrt(2) for i, j in UPPER]
    np.testing.assert_allclose(packed / scales, expected, atol=1e-5 * len(rows))
    ones = evolve(rows, labels=np.ones((len(rows), 2)))
    assert ExampleMoments().run([ones], SeededStream(0))[0] == pytest.approx(sum(x[:, 0] ** 2))
    table = dp.dataset("t", columns=COLUMNS).examples(["u", "c"], "s")
    released = dp.Pipeline(m=table.second_moments().release(dp.Gaussian(sigma=1e-9)))
    data = {"u": [2.0, -1.0, 0.0], "v": [0.0] * 3, "s": ["N", "P", "no"], "c": ["b", "c", "c"]}
    matrix = np.array([[1, 1, 0, 1, 0], [1, -0.5, 0, 0, 1]])
    given = released.simulate(seed=1, t=data)["m"]
    np.testing.assert_allclose(given, matrix.T @ matrix, atol=1e-4)


def test_a_released_clip_of_squares_is_the_clip():
    table = dp.dataset("t", columns=COLUMNS).examples(["u", "v"], "s")
    rows = table.gradients(Logistic(), at=dp.public([0.1, 0.2, -0.3]))
    data = {"u": [1.0, 2.0, -1.0], "v": [0.0, 1.0, 0.5], "s": ["N", "P", "N"], "c": ["a"] * 3}
    ask = {"one": rows.squares(clip=0.4), "two": rows.squares(clip=dp.public(0.4))}
    found = dp.Pipeline(**{k: q.release(Bare()) for k, q in ask.items()}).simulate(seed=0, t=data)
    assert found["one"] == found["two"] > 0
    query = ask["two"]
    with pytest.raises(dp.DeclarationError, match="one of them"):
        type(query.operation)(0.4).domain([None, None])


def test_squared_norms_are_of_linear_models():
    rows = dp.dataset("t", columns=COLUMNS).examples(["u"], "s")
    network = Network(Logistic(), hidden=2)
    at = dp.public([0.1] * network.size(2))
    with pytest.raises(dp.DeclarationError):
        rows.gradients(network, at=at).squares(clip=1.0)
    with pytest.raises(dp.DeclarationError, match="positive"):
        rows.gradients(Logistic(), at=dp.public([0.0, 0.0])).squares(clip=0.0)


def test_kinds():
    assert {ClippedSum.kind, ShortGradients.kind} == {"clipped_sum", "short_gradients"}


@frozen
class Spiky(Steep):
    """One slope of 1, and others whose squares are lost beside it."""

    def slope(self, z, y):
        return np.where(np.arange(self.classes)[:, None] == 0, 1.0, 2.0**-27) + 0 * z


def test_norms_are_bounds_however_many_classes() -> None:
    k = 1 << 14
    rows = made([[1.0]], [0], 1.0)
    computed = gradients(rows, Spiky(k), np.zeros((k, 1)))
    where, block = next(rows.blocks())
    _, lengths = computed.slopes(where, block)
    exact = (1 + Fraction(k - 1, 2**54)) * (
        Fraction(int(rows.steps[0, 0])) * Fraction(rows.unit)
    ) ** 2
    assert Fraction(float(lengths[0])) ** 2 >= exact


def test_wide_tables_are_bound_row_by_row():
    """The steps of a row do not depend on its block or on the other rows of it."""
    draw = np.random.default_rng(3)
    count, width = 2100, 60
    x = draw.normal(size=(count, width))
    x[draw.random(x.shape) < 0.01] = math.nan
    x[draw.random(x.shape) < 0.01] = 1e300
    columns = {f"c{i}": ((-2.0, 2.0), (0.0, 3.0), (1.0, 1.0))[i % 3] for i in range(width)}
    table = dp.dataset("t", columns={**columns, "y": ["a", "b"]})
    node = table.examples(list(columns), "y", norm=1.0).operation
    kinds = dict.fromkeys(columns, "number") | {"y": "text"}

    def steps(chosen):
        data = {name: x[chosen, i] for i, name in enumerate(columns)}
        bound = read_rows({**data, "y": ["b"] * len(chosen)}, kinds, None)
        return node.run([bound], SeededStream(0))

    matrix = steps(np.arange(count))
    order = draw.permutation(count)[:300]
    assert (steps(order).steps == matrix.steps[order]).all()
    middle, half = np.tile([[0, 0, 1], [2, 3, 1]], width // 3)
    low, high = np.array(list(columns.values())).T
    mapped = (np.clip(np.nan_to_num(x, nan=0.0), low, high) - middle) / half
    mapped = np.column_stack([np.ones(count), mapped])
    mapped /= np.maximum(np.linalg.norm(mapped, axis=1), 1)[:, None]
    np.testing.assert_allclose(matrix.steps * matrix.unit, mapped, atol=2e-5)
    row_norms = np.linalg.norm(matrix.steps.astype(float), axis=1) * matrix.unit
    assert row_norms.max() <= 1 + 1e-15
    assert (matrix.norms >= row_norms).all()
