"""DP-FTRL: what is released is B (C X + Z), C's sensitivity is exact, its noise is B B'."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import binom, ndtr

import accountants
import adaptive_dp as dp
from accountants.losses.tree import participation_sensitivity, tree_aggregation
from adaptive_dp.data import grid, make_examples
from adaptive_dp.erm import Logistic
from adaptive_dp.graph.mechanism import AdaptiveSums
from adaptive_dp.graph.operation import Change
from adaptive_dp.mechanisms.follow_the_leader import FACTORIZATIONS, Banded, Buffered, Tree
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.gradients import ClippedGradients


class Recorder:
    """Noise that adds nothing, but keeps what it is added to."""

    __array_ufunc__ = None

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []

    def __call__(self):
        return self

    def __radd__(self, exact):
        self.rows.append(np.array(exact))
        return exact


def tree(rounds):
    """C by its definition: a row for each node whose leaves are all rounds."""
    rows = []
    for end in range(1, rounds + 1):  # in the order in which nodes are complete
        for height in range(end.bit_length()):
            if end % 2**height == 0:
                row = np.zeros(rounds)
                row[end - 2**height : end] = 1
                rows.append(row)
    return np.array(rows)


def encoder(factorization):
    """C as a run computes it: the rows to which it adds noise, for one-hot values."""
    rounds = factorization.batches * factorization.epochs
    run, recorder = factorization.start(rounds), Recorder()
    for value in np.eye(rounds, dtype=np.int64):
        run.push(value, recorder)
    return np.array(recorder.rows) * 2.0**-factorization.bits


def decoder(factorization):
    """B as a run computes it: its outputs for one-hot noise, one row at a time."""
    rounds = factorization.batches * factorization.epochs
    size = 2 * rounds
    run, rows = factorization.start(size), iter(np.eye(size, dtype=np.int64))
    zero = np.zeros(size, dtype=np.int64)
    outputs = np.array([run.push(zero, lambda: next(rows)) for _ in range(rounds)])
    drawn = size - len(list(rows))
    return outputs[:, :drawn] * 2.0**factorization.bits


SIZES = [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16), (13, 1), (5, 3)]


@pytest.mark.parametrize("kind", [Tree, Banded])
@pytest.mark.parametrize(("batches", "epochs"), SIZES)
def test_prefix_sums_are_b_times_c(kind, batches, epochs):
    factorization = kind(batches, epochs)
    rounds = batches * epochs
    b, c = decoder(factorization), encoder(factorization)
    np.testing.assert_allclose(b @ c, np.tri(rounds), atol=1e-9)
    if kind is Tree:
        np.testing.assert_array_equal(c, tree(rounds))
    else:
        # rounded to 2^-12, the series of (1 - x)^(-1/2); as many bands as batches
        j = np.arange(batches)
        series = binom(2 * j, j) / 4.0**j
        for t in range(rounds):
            column = c[t : t + batches, t]
            np.testing.assert_allclose(column, series[: len(column)], atol=2.0**-13)
            assert not np.delete(c[:, t], np.arange(t, min(rounds, t + batches))).any()
    # a row is drawn when the last of its rounds is over, never before
    assert np.count_nonzero(b[0]) == 1


@pytest.mark.parametrize("kind", [Tree, Banded])
@pytest.mark.parametrize(("batches", "epochs"), SIZES)
def test_sensitivity_against_all_participations(kind, batches, epochs):
    """All batches, and all signs of what a unit adds in each round: the largest is attained."""
    factorization = kind(batches, epochs)
    c = encoder(factorization)
    largest = 0.0
    for first in range(batches):
        columns = c[:, first::batches]
        for signs in itertools.product([1.0, -1.0], repeat=min(epochs, 10)):
            u = np.ones(epochs)
            u[: len(signs)] = signs
            largest = max(largest, float(np.linalg.norm(columns @ u)))
    assert largest <= factorization.sensitivity() <= largest * (1 + 1e-12)
    # directions between: no matrix of rows of norm 1 does more
    draw = np.random.default_rng(batches)
    for _ in range(200):
        u = draw.normal(size=(epochs, 3))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        change = c[:, draw.integers(batches) :: batches] @ u
        assert np.linalg.norm(change) <= factorization.sensitivity()
    bound = participation_sensitivity(c, epochs, batches)
    assert factorization.sensitivity() <= bound * (1 + 1e-9)
    if kind is Banded:
        assert factorization.sensitivity() == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("kind", [Tree, Banded])
@pytest.mark.parametrize(("batches", "epochs"), [(16, 1), (4, 4), (5, 3)])
def test_what_all_prefix_sums_tell(kind, batches, epochs):
    """N(A v, B B') against N(0, B B') is a Gaussian of ``mu^2 = v'A'(BB')^-1 A v``: at most s^2."""
    factorization = kind(batches, epochs)
    b, prefix = decoder(factorization), np.tri(batches * epochs)
    losses = []
    for first in range(batches):
        change = prefix[:, first::batches].sum(axis=1)
        losses.append(change @ np.linalg.solve(b @ b.T, change))
    assert max(losses) <= factorization.sensitivity() ** 2 * (1 + 1e-9)
    if kind is Banded:
        assert max(losses) == pytest.approx(factorization.sensitivity() ** 2, rel=1e-9)


def buffered(factorization):
    """C by its definition, of the rates and weights: no buffers, no rounding."""
    rates, weights = (each / 2.0**20 for each in factorization.buffers)
    rounds = factorization.batches * factorization.epochs
    c = np.eye(rounds)
    for t, j in itertools.combinations(range(rounds), 2):
        c[j, t] = sum(w * u ** (j - t - 1) for u, w in zip(rates, weights, strict=True))
    return c


@pytest.mark.parametrize(("batches", "epochs"), [*SIZES, (1, 1), (60, 1)])
def test_buffers_are_a_toeplitz_matrix_and_its_inverse(batches, epochs):
    """Rows and estimates by C's definition, and its sensitivity over all participations."""
    factorization, rounds = Buffered(batches, epochs), batches * epochs
    c, size = buffered(factorization), 2**40
    run, recorder = factorization.start(rounds), Recorder()
    outputs = np.array([run.push(size * row, recorder) for row in np.eye(rounds, dtype=np.int64)])
    np.testing.assert_allclose(np.array(recorder.rows) / size, c, atol=1e-10)
    np.testing.assert_allclose(outputs / size, np.tri(rounds), atol=1e-9)
    run, rows = factorization.start(rounds), iter(size * np.eye(rounds, dtype=np.int64))
    noise = [run.push(np.zeros(rounds, dtype=np.int64), lambda: next(rows)) for _ in range(rounds)]
    np.testing.assert_allclose(np.array(noise) / size @ c, np.tri(rounds), atol=1e-9)
    largest = max(
        float(np.linalg.norm(c[:, first::batches] @ np.append([1.0] * (epochs - len(s)), s)))
        for first in range(batches)
        for s in itertools.product([1.0, -1.0], repeat=min(epochs, 8))
    )
    assert largest <= factorization.sensitivity() <= largest * (1 + 1e-9)
    bound = participation_sensitivity(c, epochs, batches)
    assert factorization.sensitivity() == pytest.approx(bound, rel=1e-9)
    # the inverse's coefficients: the first is 1, all others are at most 0 and do not grow
    rates, weights = factorization.buffers
    assert int(weights.sum()) ** 2 <= int((weights * rates).sum())  # c_1^2 <= c_0 c_2
    inverse = np.linalg.inv(c)[:, 0]
    assert inverse[0] == pytest.approx(1)
    assert (inverse[1:] <= 0).all()
    assert inverse.sum() >= 0


@pytest.mark.parametrize(("batches", "epochs"), [(12, 1), (3, 5)])
def test_what_rounding_buffers_moves(batches, epochs):
    """Sequences that differ in small integers: no entry is further from C's than the bound."""
    factorization, draw = Buffered(batches, epochs), np.random.default_rng(4)
    c, width, rounds = buffered(factorization), 500, batches * epochs
    values = draw.integers(-(2**38), 2**38, (rounds, width))
    near, far = (factorization.start(width) for _ in range(2))
    moves = draw.integers(-1, 2, (rounds, width))
    ends = [Recorder(), Recorder()]
    for value, move in zip(values, moves, strict=True):
        near.push(value, ends[0])
        far.push(value + move, ends[1])
    off = np.array(ends[1].rows) - np.array(ends[0].rows) - c @ moves
    assert np.abs(off).max() < factorization.rounding
    mechanism = dp.FollowTheLeader(3.0, batches, epochs, "buffered")
    step = 2.0**-10
    moved = np.linalg.norm((np.array(ends[1].rows) - np.array(ends[0].rows)) * step)
    distance = float(np.linalg.norm(moves, axis=1).max()) * step
    assert moved / 3.0 <= mechanism.cost(distance, width, step).mu()
    assert mechanism.cost(distance, width, step).mu() > mechanism.loss(distance).mu()


def test_eight_buffers_err_no_more_than_all_bands():
    """At equal loss, in the mean square, at most 10% more, and in one epoch less than 1%."""
    for (batches, epochs), most in {(300, 1): 1.01, (40, 8): 1.1, (10, 30): 1.06}.items():
        errors = []
        for factorization in (Buffered(batches, epochs), Banded(batches, epochs)):
            scale = 1.0 if isinstance(factorization, Banded) else 2.0**-30
            size, rounds = round(1 / scale), batches * epochs
            run, rows = factorization.start(rounds), iter(size * np.eye(rounds, dtype=np.int64))
            zero = np.zeros(rounds, dtype=np.int64)
            b = np.array([run.push(zero, lambda rows=rows: next(rows)) for _ in range(rounds)])
            b *= scale * 2.0**factorization.bits
            errors.append(factorization.sensitivity() * math.sqrt((b**2).sum()))
        assert errors[0] <= most * errors[1]


def test_a_thousand_rounds_of_a_tree():
    c, b = tree(1000), decoder(Tree(1000, 1))
    assert c.sum(axis=0).max() == 10 <= 11
    assert Tree(1000, 1).sensitivity() == pytest.approx(math.sqrt(10), rel=1e-12)
    orders = np.array([1.5, 2.0, 17.0])
    padded = tree_aggregation(3.0, 1000)
    np.testing.assert_allclose(padded.renyi(orders), 11 * orders / (2 * 9), rtol=1e-12)
    own = dp.FollowTheLeader(sigma=3.0, batches=1000, factorization="tree").loss(1.0)
    np.testing.assert_allclose(own.renyi(orders), 10 * orders / (2 * 9), rtol=1e-12)
    variances = (b**2).sum(axis=1)
    assert variances.max() <= 10
    # Honaker's estimates: v_h = 1 / (1 + 1 / (2 v_{h-1})), of each node of a prefix
    node = [1.0]
    for _ in range(10):
        node.append(1 / (1 + 1 / (2 * node[-1])))
    for t in range(1, 1001):
        expected = sum(node[h] for h in range(10) if t >> h & 1)
        assert variances[t - 1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("batches", "epochs"),
    [(16, 1), (100, 1), (20, 5), pytest.param(1000, 1, marks=pytest.mark.slow), (100, 4)],
)
def test_bands_err_less_than_the_tree(batches, epochs):
    """At equal loss, in the mean square and at worst; alone, the root is next to the least."""
    errors = {}
    for kind in (Tree, Banded):
        factorization = kind(batches, epochs)
        variances = (decoder(factorization) ** 2).sum(axis=1)
        s = factorization.sensitivity()
        errors[kind] = s * math.sqrt(variances.mean()), s * math.sqrt(variances.max())
    assert errors[Banded][0] <= errors[Tree][0]
    assert errors[Banded][1] <= errors[Tree][1]
    if epochs == 1:
        j = np.arange(1, batches, dtype=float)
        squares = 1 + (np.cumprod(1 - 0.5 / j) ** 2).sum()  # of the root's column, and of its row
        assert errors[Banded][1] == pytest.approx(squares, rel=1e-2)


@pytest.mark.parametrize("kind", [Tree, Banded])
def test_the_noise_is_b_z(kind):
    """Covariances of 6000 columns, six and a half standard deviations: false alarm below 1e-7."""
    factorization, width, scale = kind(8, 2), 6000, 2.0**20
    run, stream = factorization.start(width), SeededStream(7)
    zero = np.zeros(width, dtype=np.int64)
    noise = np.array(
        [run.push(zero, lambda: rounded_gaussian(stream, scale, width)) for _ in range(16)]
    )
    noise *= 2.0**factorization.bits / scale
    expected = decoder(factorization) @ decoder(factorization).T
    spread = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / width)
    assert (np.abs(noise @ noise.T / width - expected) < 6.5 * spread).all()
    assert (np.abs(noise.mean(axis=1)) < 6.5 * np.sqrt(np.diag(expected) / width)).all()


class Same(AdaptiveSums):
    """The same sum in each round of the first batch, whatever the parameters; 0 in others."""

    def __init__(self, value: int) -> None:
        self.value = value

    @property
    def shape(self):
        return (1500,)

    @property
    def step(self):
        return 2.0**-20

    def split(self, parts, stream):
        return [self] + [Same(0)] * (parts - 1)

    def at(self, parameters):
        return np.full(1500, self.value, dtype=np.int64)


@pytest.mark.parametrize(("batches", "epochs", "kind"), [(1, 1, "tree"), (1, 9, "banded")])
def test_the_loss_is_attained_by_the_last_parameters(batches, epochs, kind):
    """One batch: the last parameters are a Gaussian release of the sum, of exactly this mu.

    Its error rates at a threshold, of 1500 draws, to six standard deviations.
    """
    mechanism = dp.FollowTheLeader(sigma=6.0, batches=batches, epochs=epochs, factorization=kind)
    mu = mechanism.loss(2.0).mu()
    assert mu == pytest.approx(2 * math.sqrt(epochs) / 6, rel=1e-12)
    near, far = (mechanism.release(Same(n * 2**20), SeededStream(3 + n), 1.0)[1] for n in (0, 2))
    cut = -epochs  # parameters go against the sum
    for values, rate in ((near, ndtr(-mu / 2)), (far, ndtr(mu / 2))):
        assert abs((values < cut).mean() - rate) < 6 * math.sqrt(0.25 / 1500)


def rows_of(x, y, owners):
    steps, unit = grid.ball(np.asarray(x, float), 1.0)
    return make_examples(steps.astype(np.float32), unit, np.asarray(y, float), 1.0, owners)


def test_no_unit_moves_a_sum_by_more_than_is_declared():
    table = dp.dataset("t", columns={"u": (-1, 1), "s": ["N", "P"]})
    query = table.examples(["u"], "s", norm=1.0).stream(Logistic(), clip=0.3)
    domain, draw = query.inputs[0].domain, np.random.default_rng(0)
    largest = 0.0
    for _ in range(100):
        x = draw.normal(size=(7, 2))
        y = draw.choice([-1.0, 1.0], 7)
        theta = draw.normal(size=2) * 10.0 ** draw.integers(-2, 4)
        owners = np.r_[np.arange(5), 5, 5]  # the last unit has two rows
        full, rest = (
            ClippedGradients(rows_of(x[:n], y[:n], owners[:n]), Logistic(), 0.3) for n in (7, 5)
        )
        change = np.linalg.norm((full.at(theta) - rest.at(theta)) * full.step)
        assert change <= query.operation.sensitivity(domain, Change(False, 2, False), 2)
        largest = max(largest, change)
    assert largest > 0.59
    assert query.operation.sensitivity(domain, Change(True, 2, False), 2) == pytest.approx(1.2)


def test_batches_are_of_units_each_by_its_own_draw():
    draw, owners = np.random.default_rng(1), np.repeat(np.arange(3000), 2)
    rows = rows_of(draw.normal(size=(6000, 2)), np.ones(6000), owners)
    batches = ClippedGradients(rows, Logistic(), 1.0).split(5, SeededStream(2))
    sizes = [b.examples.count for b in batches]
    assert sum(sizes) == 3000
    assert all(len(b.examples) == 2 * b.examples.count for b in batches)
    # chi square of four degrees of freedom: above 40 with probability below 5e-8
    assert sum((n - 600) ** 2 / 600 for n in sizes) < 40
    total = ClippedGradients(rows, Logistic(), 1.0).at(np.ones(2))
    parts = sum(b.at(np.ones(2)) for b in batches)
    assert (np.abs(total - parts) <= 5).all()  # each rounded by half a step


COLUMNS = {"u": (-2.0, 2.0), "v": (-2.0, 2.0), "s": ["N", "P"]}


def made(size, seed=0):
    draw = np.random.default_rng(seed)
    u, v, noise = draw.normal(size=(3, size))
    return {"u": u, "v": v, "s": np.where(u - v + 0.3 * noise > 0, "P", "N")}


def accuracy(model, data):
    score = model["intercept"] + model["u"] * data["u"] + model["v"] * data["v"]
    return np.mean((score > 0) == (data["s"] == "P"))


@pytest.mark.parametrize("kind", sorted(FACTORIZATIONS))
@pytest.mark.parametrize(("neighbors", "epochs"), [("add_remove", 1), ("replace_one", 4)])
def test_the_learner(kind, neighbors, epochs):
    table = dp.dataset("t", columns=COLUMNS, neighbors=neighbors)
    solver = dp.DPFTRL(["u", "v"], "s", steps=40, epochs=epochs, factorization=kind)
    plan = dp.Pipeline(theta=table.solve(solver, epsilon=1.0, delta=1e-5)).with_delta(1e-5)
    assert 1 - 1e-6 < plan.certify().epsilon <= 1
    free = dp.Pipeline(theta=table.solve(solver)).calibrate(epsilon=1.0, delta=1e-5)
    assert 1 - 1e-6 < free.certify().epsilon <= 1
    data = made(5000)
    assert accuracy(plan.simulate(seed=5, t=data)["theta"], data) > 0.9
    assert list(plan.run(t=data)["theta"]) == ["intercept", "u", "v"]


def test_an_exchange_is_twice_a_presence():
    """And a unit with r rows r times a row."""

    def mu(neighbors, rows):
        more = {"unit": "id", "rows_per_unit": rows} if rows > 1 else {}
        table = dp.dataset("t", columns=COLUMNS, neighbors=neighbors, **more)
        query = table.examples(["u", "v"], "s").stream(Logistic())
        mechanism = dp.FollowTheLeader(sigma=4.0, batches=50)
        plan = dp.Pipeline(a=query.release(mechanism, given=[dp.public(0.1)])).with_delta(1e-5)
        answer = plan.measure(accountants.GaussianDP())
        return answer.bounds.upper

    def epsilon(times):
        s = Banded(50, 1).sensitivity()
        return accountants.Gaussian(times * s / 4).epsilon_at(1e-5).upper

    for neighbors, rows, times in [
        ("add_remove", 1, 1), ("zero_out", 1, 1), ("replace_one", 1, 2), ("add_remove", 3, 3),
    ]:  # fmt: skip
        assert epsilon(times) <= mu(neighbors, rows) <= epsilon(times) * (1 + 1e-4)


def test_refusals():
    table = dp.dataset("t", columns=COLUMNS)
    rows = table.examples(["u"], "s")
    query = rows.stream(Logistic(), clip=1e-3)
    trained = query.release(dp.FollowTheLeader(sigma=1e4, batches=9), given=[dp.public(0.1)])
    with pytest.raises(dp.DeclarationError, match="FollowTheLeader"):
        dp.Pipeline(a=trained)
    with pytest.raises(dp.DeclarationError, match="reads"):
        dp.Pipeline(a=query.release(dp.Gaussian(sigma=1.0)))
    with pytest.raises(dp.DeclarationError, match=r"FollowTheLeader\.batches"):
        dp.FollowTheLeader(sigma=1.0, batches=0)
    with pytest.raises(dp.DeclarationError, match="65536"):
        dp.FollowTheLeader(sigma=1.0, batches=60000, epochs=2)
    with pytest.raises(dp.DeclarationError, match=r"FollowTheLeader\.factorization"):
        dp.FollowTheLeader(sigma=1.0, batches=9, factorization="dense")
    with pytest.raises(dp.DeclarationError, match="positive"):
        rows.stream(Logistic(), clip=0.0)
    with pytest.raises(dp.DeclarationError, match="reads 1"):
        query.release(dp.FollowTheLeader(sigma=1.0, batches=9))
    with pytest.raises(dp.DeclarationError, match="learning_rate"):
        dp.DPFTRL(["u"], "s", learning_rate=-1.0)
    with pytest.raises(dp.DeclarationError, match="neither"):
        table.solve(dp.DPFTRL(["u"], "s"), epsilon=1.0)
