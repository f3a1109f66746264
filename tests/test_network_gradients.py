"""Clipped gradients of a network: exact sums, shares within the bound, and the right gradients."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from attrs import frozen

import adaptive_dp as dp
from adaptive_dp.data import grid, make_examples
from adaptive_dp.data.examples import BLOCK, Examples, to_steps
from adaptive_dp.erm import Constants, Logistic, Loss, Multinomial, Network, Squared
from adaptive_dp.graph.operation import Change
from adaptive_dp.queries.gradients import LayerGradients, slope_steps


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


def made(x, y, radius) -> Examples:
    steps, unit = grid.ball(np.asarray(x, dtype=np.float64), radius)
    return make_examples(
        steps.astype(np.float32), unit, np.asarray(y, float), radius, np.arange(len(y))
    )


def gradients(rows: Examples, network: Network, theta) -> LayerGradients:
    first, second = network.layers(np.asarray(theta, dtype=np.float64), rows.width)
    steps, unit = to_steps(first)
    second_steps, back_unit = to_steps(second.reshape(1, -1))
    return LayerGradients(
        rows, network, steps, second_steps.reshape(second.shape), (unit, back_unit)
    )


CASES = [
    pytest.param(Network(Logistic(), 5), 4, 2.0, 0.3, False, id="logistic"),
    pytest.param(Network(Multinomial(10), 33, "relu"), 65, 1.0, 1.0, True, id="ten classes"),
    pytest.param(Network(Steep(), 7, "relu"), 7, 3.7, 0.1, False, id="steep"),
    pytest.param(Network(Steep(17), 16), 33, 1e-3, 1e3, True, id="steep, seventeen classes"),
    pytest.param(Network(Squared(), 1), 1, 1e3, 1e-3, False, id="one of all"),
]


@pytest.mark.parametrize(("network", "width", "radius", "bound", "relative"), CASES)
def test_a_row_adds_its_own_share_and_nothing_else(network, width, radius, bound, relative):
    """Exactly, at any position: what a row adds depends on no other row."""
    draw = np.random.default_rng(width)
    for count in (0, 1, 2, 3, 6, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5):
        x = draw.normal(size=(count + 1, width)) * radius / math.sqrt(width)
        y = draw.integers(0, 2, count + 1)
        theta = draw.normal(size=network.size(width)) * 10.0 ** draw.integers(-3, 3)
        where = int(draw.integers(0, count + 1))
        order = draw.permutation(count + 1)
        parts = [np.r_[0:where, where + 1 : count + 1], [where], order]
        sums, shorts = [], []
        for i in parts:
            computed = gradients(made(x[i], y[i], radius), network, theta)
            sums.append(computed.clipped_sum(bound, relative=relative))
            shorts.append(computed.short(bound))
        rest, own, both = sums
        assert rest[1] == own[1] == both[1]
        assert (rest[0] + own[0] == both[0]).all()
        assert shorts[0] + shorts[1] == shorts[2]


def test_every_product_is_of_small_integers():
    """What exactness rests on: norms of 2^32 and 2^20 at most, whatever the parameters are."""
    draw = np.random.default_rng(8)
    for network, width, radius, *_ in (case.values for case in CASES):
        for size in (1e-120, 1e-9, 1.0, 1e6, 1e99):
            x = draw.normal(size=(40, width)) * radius * 10.0 ** draw.integers(-9, 3)
            theta = draw.standard_cauchy(size=network.size(width)) * size
            computed = gradients(made(x, draw.integers(0, 2, 40), radius), network, theta)
            assert np.linalg.norm(computed.first, axis=1).max() <= 2**32
            assert np.linalg.norm(computed.second) <= 2**32
            for block, some in computed.passes():
                for went in (block.T, some.hidden, some.slopes):
                    assert (went == np.rint(went)).all()
                    assert np.linalg.norm(went, axis=0).max() <= 2**20
                for product in (computed.first @ block.T, computed.second @ some.hidden):
                    assert (product == np.rint(product)).all()


@pytest.mark.parametrize(("network", "width", "radius", "bound", "relative"), CASES)
def test_no_row_adds_more_than_the_bound(network, width, radius, bound, relative):
    """As exact rationals; and rows that are longer add nearly all of it."""
    draw = np.random.default_rng(width + 1)
    limit = Fraction(1.0 if relative else bound)
    largest = 0.0
    for trial in range(150):
        x = draw.normal(size=(1, width)) * 10.0 ** draw.integers(-9, 4)
        if trial % 3 == 0:
            x = np.eye(width)[:1] * draw.choice([radius, 1e-12 * radius, 0.1 * radius])
        theta = draw.normal(size=network.size(width))
        first, second = network.layers(theta, width)
        first *= 10.0 ** draw.integers(-3, 9)
        second *= 10.0 ** draw.integers(-9, 9)
        rows = gradients(made(x, draw.integers(0, 2, 1), radius), network, theta)
        total, unit = rows.clipped_sum(bound, relative=relative)
        size = sum(int(v) ** 2 for v in total) * Fraction(unit) ** 2
        assert size <= limit**2
        largest = max(largest, float(size) ** 0.5 / float(limit))
    assert largest > 0.999


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("scale", [1e-150, 1e-80, 1e80, 1e150, 1e300])
def test_extreme_numbers(activation, scale):
    """Nothing overflows or underflows past the bound."""
    network = Network(Multinomial(3), 4, activation)
    draw = np.random.default_rng(3)
    for radius in (1e-100, 1.0, 1e100):
        for bound in (1e-100, 1.0, 1e100):
            for relative in (False, True):
                theta = draw.normal(size=network.size(5)) * scale ** draw.integers(0, 2)
                x = draw.normal(size=(1, 5)) * radius * draw.choice([1e-9, 1.0, 0.0])
                rows = gradients(made(x, [1], radius), network, theta)
                computed, unit = rows.clipped_sum(bound, relative=relative)
                size = sum(int(v) ** 2 for v in computed) * Fraction(unit) ** 2
                assert size <= Fraction(1.0 if relative else bound) ** 2


@pytest.mark.parametrize(
    ("function", "kind"), [(np.tanh, np.float32), (np.exp, np.float64), (np.hypot, np.float64)]
)
def test_a_function_of_a_number_depends_on_that_number_alone(function, kind):
    """Whatever the other rows, and however many: vectorised code could treat a rest otherwise."""
    draw = np.random.default_rng(0)
    values = (draw.normal(size=(64, 1031)) * draw.choice([1e-3, 1, 5, 20], (64, 1))).astype(kind)
    call = function if function is not np.hypot else lambda v: np.hypot(v, 1 + v)
    everywhere = call(values)
    for count in (1, 2, 3, 5, 7, 8, 9, 15, 17, 33, 511, 1024):
        some = draw.permutation(1031)[:count]
        assert (call(np.ascontiguousarray(values[:, some])) == everywhere[:, some]).all()
    if function is np.tanh:
        assert np.abs(everywhere).max() <= 1


def test_integer_slopes():
    values = np.array([[1e-300, 0.0, math.nan, math.inf, 3.0], [0.0, 0.0, 2.0, 1.0, -1e-9]])
    integers, exponents = slope_steps(values)
    assert (integers == np.rint(integers)).all()
    restored = np.ldexp(integers, exponents)
    np.testing.assert_allclose(
        restored[:, [0, 1, 2, 4]], np.nan_to_num(values[:, [0, 1, 2, 4]]), 1e-5, 1e-5
    )
    assert np.linalg.norm(slope_steps(np.ones((17, 1)))[0]) <= 2**20


def loss_of_a_row(network, theta, row, label):
    """Written out in plain numbers, apart from the code under test."""
    at = iter(theta)
    first = [[next(at) for _ in row] for _ in range(network.hidden)]
    second = [[next(at) for _ in range(network.hidden + 1)] for _ in range(network.outputs)]
    bend = math.tanh if network.activation == "tanh" else lambda v: max(v, 0.0)
    hidden = [1.0] + [bend(sum(a * b for a, b in zip(w, row, strict=True))) for w in first]
    z = [sum(a * b for a, b in zip(w, hidden, strict=True)) for w in second]
    if network.labels == "sign":
        return math.log1p(math.exp(-label * z[0]))
    return math.log(math.fsum(math.exp(v) for v in z)) - z[int(label)]


def materialised(network, theta, x, y):
    """Each row's gradient by central differences, shape (n, size)."""
    step = 1e-5 * np.eye(len(theta))
    return np.array(
        [
            [
                (
                    loss_of_a_row(network, theta + e, row, c)
                    - loss_of_a_row(network, theta - e, row, c)
                )
                / 2e-5
                for e in step
            ]
            for row, c in zip(x, y, strict=True)
        ]
    )


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=["sign", "class"])
@pytest.mark.parametrize("relative", [False, True])
def test_the_sum_is_what_materialised_gradients_add_up_to(activation, loss, relative):
    draw = np.random.default_rng(5)
    network = Network(loss, 5, activation)
    x = draw.uniform(-1, 1, (40, 4)) / 2
    y = draw.choice([-1.0, 1.0], 40) if loss.labels == "sign" else draw.integers(0, 3, 40)
    theta = draw.normal(size=network.size(4))
    each = materialised(network, theta, x, y)
    lengths = np.linalg.norm(each, axis=1)
    bound = float(np.median(lengths))
    shrink = np.minimum(1, bound / lengths)
    expected = (each * shrink[:, None]).sum(axis=0) / (bound if relative else 1)
    rows = gradients(made(x, y, 1.0), network, theta)
    total, unit = rows.clipped_sum(bound, relative=relative)
    np.testing.assert_allclose(total * unit, expected, rtol=1e-3, atol=2e-3)
    assert abs(rows.short(bound) - (lengths <= bound).sum()) <= 1
    # the shares' steps are in proportion to the bound: 2^-16 of it a row
    whole, unit = rows.clipped_sum(10.0, relative=False)
    exact = network.gradient(theta, x, np.asarray(y, float))
    np.testing.assert_allclose(whole * unit, exact, rtol=0, atol=40 * 10 * 2.0**-16)
    unclipped, unit = rows.clipped_sum(1e3, relative=False)
    np.testing.assert_allclose(unclipped * unit, each.sum(axis=0), rtol=1e-3, atol=2e-2)


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


def query_of(rows, network, ask):
    theta = np.random.default_rng(2).normal(size=network.size(rows.domain.width))
    row_gradients = rows.gradients(network, at=dp.public(theta.tolist()))
    return {
        "sum": lambda: row_gradients.sum(clip=0.4),
        "relative": lambda: row_gradients.sum(clip=dp.public(0.4)),
        "short": lambda: row_gradients.short(dp.public(1.0)),
    }[ask]()


@pytest.mark.parametrize("ask", ["sum", "relative", "short"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_declared_sensitivity(ask, activation):
    table = dp.dataset("t", columns=COLUMNS)
    rows = table.examples(["u", "v", "c"], "s", norm=1.3)
    query = query_of(rows, Network(Logistic(), 3, activation), ask)
    plan = dp.Pipeline(a=query.release(Bare()))
    others = [ROWS[i] for i in (0, 4, 7, 9)] * 3

    def value(records):
        data = {name: [r[name] for r in records] for name in COLUMNS}
        return np.atleast_1d(plan.simulate(seed=1, t=data)["a"])

    base = value(others)
    steps = [value([*others[:5], row, *others[5:]]) - base for row in ROWS]
    domain, sensitivity = query.inputs[0].domain, query.operation.sensitivity
    pairs = [v - w for v in steps for w in steps]
    for norm in (1, 2, math.inf):
        for change, moves in ((False, steps), (True, pairs)):
            declared = sensitivity(domain, Change(change, 1, False), norm)
            assert max(np.linalg.norm(v, ord=norm) for v in moves) <= declared
    once = sensitivity(domain, Change(False, 1, False), 2)
    assert max(np.linalg.norm(v) for v in steps) > 0.99 * once


def test_amplification_is_counted():
    rows = dp.dataset("t", columns=COLUMNS).examples(["u"], "s")

    def plan(source):
        query = query_of(source, Network(Logistic(), 3), "sum")
        return dp.Pipeline(a=query.release(dp.Gaussian(sigma=0.8))).with_delta(1e-5)

    assert plan(rows.sample(0.01)).certify().epsilon < 0.2 * plan(rows).certify().epsilon


def test_refusals():
    table = dp.dataset("t", columns=COLUMNS)
    rows = table.examples(["u"], "s")
    network = Network(Logistic(), 2)
    with pytest.raises(dp.DeclarationError, match="'class'"):
        rows.gradients(Network(Multinomial(3), 2), at=dp.public([0.0] * 13))
    with pytest.raises(dp.LeakError, match="t -> count"):
        rows.gradients(network, at=table.count())
    with pytest.raises(dp.DeclarationError, match="or a Network"):
        rows.gradients(2, at=dp.public([0.0]))
    wrong = rows.gradients(network, at=dp.public([0.0])).sum(clip=1.0)
    plan = dp.Pipeline(a=wrong.release(Bare()))
    with pytest.raises(dp.RunError):
        plan.simulate(seed=0, t={name: [r[name] for r in ROWS] for name in COLUMNS})


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e308, 5e-324])
def test_released_parameters_may_have_any_value(odd):
    """Noise may make of them what it will: they fail no run, and cost no more."""
    table = dp.dataset("t", columns=COLUMNS)
    data = {"u": [1.0, 2.0], "v": [0.0, 1.0], "s": ["N", "P"], "c": ["a", "b"]}
    theta = dp.public([odd, 1.0, 2.0, odd, 1.0, -1.0, odd])
    rows = table.examples(["u"], "s").gradients(Network(Logistic(), 2, "relu"), at=theta)
    plan = dp.Pipeline(
        a=rows.sum(clip=dp.public(odd)).release(Bare()),
        b=rows.short(dp.public(odd)).release(Bare()),
    )
    released = plan.simulate(seed=0, t=data)
    assert np.isfinite(released["a"]).all()
    assert np.linalg.norm(released["a"]) <= 2 + 1e-6
