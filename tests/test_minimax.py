"""Saddle points: games with closed-form solutions, and the certificate that rejects false ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from attrs import field, frozen
from objectives import Game, Model, Odds, random_model
from scipy import optimize

import adaptive_dp as dp
from adaptive_dp.data import grid, make_examples
from adaptive_dp.erm import (
    Everywhere,
    NotReached,
    Objective,
    Set,
    Simplex,
    certify_saddle,
    minimax,
    saddle_sensitivity,
    weights,
)
from adaptive_dp.erm.objective import Floats
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SeededStream

STREAM = SeededStream(1)


def game(seed: int, mu: float, nu: float, p: int = 4, q: int = 3) -> Game:
    rng = np.random.default_rng(seed)
    return Game(rng.normal(size=(p, q)), rng.normal(size=p), rng.normal(size=q), mu, nu)


@pytest.mark.parametrize(("mu", "nu"), [(1.0, 1.0), (0.1, 1.0), (1.0, 0.1), (0.05, 0.05)])
def test_bilinear_with_squares(mu: float, nu: float) -> None:
    """Row S3-27, against the linear equations of the saddle."""
    g = game(1, mu, nu)
    p, q = g.A.shape
    system = np.block([[mu * np.eye(p), g.A], [g.A.T, -nu * np.eye(q)]])
    exact = np.linalg.solve(system, np.concatenate([-g.b, g.c]))
    solution, y = minimax(g, 1e-6)
    assert solution.residual <= 1e-6
    assert np.linalg.norm(solution.w - exact[:p]) <= 1e-6 / mu
    assert np.linalg.norm(y - exact[p:]) <= 1e-4


def test_gradients_grow_as_the_root_of_both_conditions() -> None:
    """Row S3-27: a count per ``sqrt(k_x k_y)`` that does not grow."""
    counts = []
    for mu, nu in ((1.0, 1.0), (1.0, 1 / 16), (1 / 16, 1.0), (1 / 16, 1 / 16)):
        g = game(1, mu, nu)
        solution, _ = minimax(g, 1e-6 * mu)
        counts.append(solution.gradients / math.sqrt(g.smoothness / mu * g.smoothness / nu))
    assert max(counts) <= 1.2 * counts[0]


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_against_weights(seed: int) -> None:
    """``max`` of affine functions plus a square: against SciPy's solution of the dual problem."""
    g = game(seed, 0.5, 0.0, q=4)

    def dual(y: Floats) -> float:
        tilt = g.b + g.A @ y
        return float(tilt @ tilt / (2 * g.mu) + g.c @ y)

    reference = optimize.minimize(
        dual,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda y: y.sum() - 1},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    exact = -(g.b + g.A @ reference.x) / g.mu
    solution, y = minimax(g, 1e-4)
    assert solution.residual <= 1e-4
    assert np.linalg.norm(solution.w - exact) <= 1e-4 / g.mu + 1e-5
    assert y.sum() == 1
    assert (y >= 0).all()


@frozen(eq=False)
class Mixed:
    """Groups' logistic losses, weighted."""

    groups: tuple[Model, ...]
    shares: Floats

    strong_convexity = property(lambda self: self.groups[0].strong_convexity)
    smoothness = property(lambda self: max(g.smoothness for g in self.groups))
    lipschitz = property(lambda self: math.inf)
    width = property(lambda self: self.groups[0].width)
    parts = property(lambda self: sum(g.parts for g in self.groups))

    def value(self, w: Floats) -> float:
        return sum(s * g.value(w) for s, g in zip(self.shares, self.groups, strict=True))

    def gradient(self, w: Floats) -> Floats:
        return np.sum(
            [s * g.gradient(w) for s, g in zip(self.shares, self.groups, strict=True)], axis=0
        )

    def rounding(self, w: Floats) -> float:
        return 2 * sum(g.rounding(w) for g in self.groups)

    def part(self, chosen: Any, w: Floats) -> Floats:
        raise NotImplementedError

    def project(self, w: Floats) -> Floats:
        return w

    def projection_error(self, w: Floats) -> float:
        return 0.0


@frozen(eq=False)
class Worst:
    """The worst group's loss."""

    groups: tuple[Model, ...]
    set: Set = field(factory=Everywhere)

    adversary = property(lambda self: len(self.groups))

    @property
    def smoothness(self) -> float:
        slopes = [np.linalg.norm(g.X, axis=1).sum() + 3 * g.ridge for g in self.groups]
        return max(g.smoothness for g in self.groups) + math.hypot(*slopes)

    def against(self, y: Floats) -> Objective:
        return Mixed(self.groups, y)

    def ascent(self, x: Floats, y: Floats) -> Floats:
        return np.array([g.value(x) for g in self.groups])

    def project(self, y: Floats) -> Floats:
        return weights(y)

    def rise(self, x: Floats, y: Floats) -> float:
        values = self.ascent(x, y)
        return float(values.max() - values @ y) + 1e-13 * float(values.sum())


def test_the_worst_group() -> None:
    """Reweighted groups, against SciPy's constrained minimizer of ``t >= F_k(x)``."""
    g = Worst(tuple(random_model(Odds, seed, n=12, ridge=3.0) for seed in (5, 6, 7)))
    reference = optimize.minimize(
        lambda v: v[-1],
        np.array([0.0, 0.0, 0.0, 20.0]),
        constraints=[
            {"type": "ineq", "fun": lambda v, k=k: v[-1] - g.groups[k].value(v[:-1])}
            for k in range(3)
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    solution, _ = minimax(g, 1e-2, rounds=300)
    assert solution.residual <= 1e-2
    assert np.linalg.norm(solution.w - reference.x[:-1]) <= 1e-2 / 3.0 + 1e-5
    assert solution.gradients > 0


def test_no_false_saddle_passes() -> None:
    """At any x and y the residual is above mu times the distance."""
    rng, g = np.random.default_rng(8), game(1, 0.3, 0.7)
    p, q = g.A.shape
    system = np.block([[g.mu * np.eye(p), g.A], [g.A.T, -g.nu * np.eye(q)]])
    exact = np.linalg.solve(system, np.concatenate([-g.b, g.c]))
    for size in (1e-12, 1e-6, 1.0, 1e4):
        for _ in range(10):
            x, y = exact[:p] + size * rng.normal(size=p), exact[p:] + size * rng.normal(size=q)
            solution = certify_saddle(g, x, y)
            far = float(np.linalg.norm(solution.w - exact[:p]))
            assert g.mu * far <= solution.residual + 1e-14
    assert certify_saddle(g, np.full(p, np.nan), y).residual == math.inf


def test_weights_are_exact() -> None:
    rng = np.random.default_rng(9)
    for size in (1e-3, 1.0, 1e3):
        for q in (1, 2, 7, 300):
            w = rng.normal(size=q) * size
            y = weights(w)
            assert y.sum() == 1
            assert math.fsum(y) == 1
            assert (y >= 0).all()
            assert np.abs(y - Simplex().project(w)).max() <= (q + 2) * 2.0**-50 + 1e-12 * size


def test_not_reached_says_nothing_of_the_data() -> None:
    messages = set()
    for seed in (1, 2):
        with pytest.raises(NotReached) as caught:
            minimax(game(seed, 1.0, 1.0), 1e-300, rounds=3)
        messages.add(str(caught.value))
    assert len(messages) == 1
    with pytest.raises(ValueError, match="add a ridge"):
        minimax(game(1, 0.0, 1.0), 1e-3)


# How far one row moves a saddle point, and its release.


def learners_part(g: Game) -> Floats:
    """The saddle point of a game with ``nu > 0``, by the linear equations of both players."""
    p, q = g.A.shape
    system = np.block([[g.mu * np.eye(p), g.A], [g.A.T, -g.nu * np.eye(q)]])
    return np.linalg.solve(system, np.concatenate([-g.b, g.c]))[:p]


@pytest.mark.parametrize(
    ("mu", "nu", "slope", "shift"),
    [(1.0, 1.0, 1.0, 1.0), (0.1, 2.0, 1.0, 0.3), (2.0, 0.1, 0.5, 3.0), (1.0, 0.5, 1.0, 0.0)],
)
def test_a_term_moves_the_saddle_as_far_as_it_may(
    mu: float, nu: float, slope: float, shift: float
) -> None:
    """Row S3-26: never farther than the bound, which the best of bilinear games attains."""
    bound = saddle_sensitivity(slope, shift, mu, nu)
    rng = np.random.default_rng(5)
    for _ in range(300):
        g = game(int(rng.integers(1 << 30)), mu, nu)
        by_x, by_y = rng.normal(size=4), rng.normal(size=3)
        by_x *= slope / np.linalg.norm(by_x)
        by_y *= shift / np.linalg.norm(by_y)
        moved = Game(g.A, g.b + by_x, g.c - by_y, mu, nu)
        assert np.linalg.norm(learners_part(moved) - learners_part(g)) <= bound
    farthest = 0.0
    for a in np.linspace(0, 20, 4001):
        ends = [
            learners_part(Game(np.array([[a]]), np.array([b]), np.array([-c]), mu, nu))
            for b, c in ((0.0, 0.0), (slope, shift), (slope, -shift))
        ]
        farthest = max(farthest, *(float(abs(end - ends[0])[0]) for end in ends[1:]))
    assert 0.9999 * bound <= farthest <= bound


def test_no_bound_without_strong_concavity() -> None:
    """The same small term moves the learner ever farther as the adversary's curvature falls."""
    moved = []
    for nu in (1.0, 1e-2, 1e-4):
        a = np.array([[math.sqrt(nu)]])
        with_term = Game(a, np.zeros(1), np.array([-1.0]), 1.0, nu)
        moved.append(float(np.linalg.norm(learners_part(with_term))))
    assert moved == pytest.approx([0.5, 5.0, 50.0])


def of_rows(x: Floats, y: Floats) -> Game:
    """``|w|^2 / 2 + w_1 v - v^2 / 2``, and ``<x, w> + label v`` for each row."""
    tie = np.array([[1.0], [0.0]])
    return Game(tie, x.sum(axis=0), -y.sum(keepdims=True), 1.0, 1.0)


def fails(x: Floats, y: Floats) -> Game:
    raise ValueError(f"{x[0, 0]}")


def flat(x: Floats, y: Floats) -> Game:
    return Game(np.eye(2), np.zeros(2), np.zeros(2), 0.5, 1.0)


def wide(x: Floats, y: Floats) -> Game:
    return Game(np.eye(3), np.zeros(3), np.zeros(3), 1.0, 1.0)


def saddle_query(g: Any = of_rows, **more: Any) -> Any:
    table = dp.dataset("t", columns={"u": (-1.0, 1.0), "v": (-1.0, 1.0), "s": ["N", "P"]})
    rows = table.examples(["u", "v"], "s", norm=1.0, intercept=False)
    constants = dict.fromkeys(("slope", "shift", "strong_convexity", "strong_concavity"), 1.0)
    return rows.saddle_point(g, **{"width": 2, "gap": 1e-6, **constants, **more})


def test_neighbours_of_a_small_universe() -> None:
    """Row S3-26: every data set of up to two rows, and a row more; each solved by its optimizer."""
    universe = [(u, v, s) for u, v in ((0.6, 0.8), (-1.0, 0.0), (0.0, 0.1)) for s in "NP"]
    query = saddle_query()
    free = dp.Pipeline(w=query.release(dp.Gaussian(sigma=1e-7)))  # next to none

    def solved(rows: Any) -> Floats:
        u, v, s = ([row[i] for row in rows] for i in range(3))
        data = {"u": np.array(u, float), "v": np.array(v, float), "s": np.array(s, dtype=object)}
        return np.asarray(free.simulate(seed=1, t=data)["w"])

    operation = query.operation
    bound = operation.sensitivity(None, Change(False, 1, False), 2)
    slack = 2 * math.sqrt(2 * 1e-6)
    assert bound == pytest.approx(saddle_sensitivity(1.0, 1.0, 1.0, 1.0) + slack, rel=1e-6)
    farthest = 0.0
    for first in [[], *([row] for row in universe)]:
        before = solved(first)
        x = np.array([row[:2] for row in first]).reshape(-1, 2)
        y = np.array([1.0 if row[2] == "P" else -1.0 for row in first])
        assert np.linalg.norm(before - learners_part(of_rows(x, y))) <= slack / 2 + 1e-5
        for row in universe:
            farthest = max(farthest, float(np.linalg.norm(solved([*first, row]) - before)))
    assert 0.7 * bound < farthest <= bound


def test_a_saddle_point_is_certified_with_its_gap_named() -> None:
    plan = dp.Pipeline(w=saddle_query().release(dp.Gaussian(sigma=5.0)))
    certificate = plan.certify(delta=1e-6)
    (sentence,) = [s for s in certificate.assumptions if "of_rows" in s]
    assert "within the gap 1e-06" in sentence
    wider = dp.Pipeline(w=saddle_query(gap=0.1).release(dp.Gaussian(sigma=5.0)))
    assert wider.certify(delta=1e-6).epsilon > certificate.epsilon
    assert 0 < certificate.epsilon < 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"strong_concavity": 0.0}, "strongly concave"),
        ({"strong_convexity": 0.0}, "strongly convex"),
        ({"strong_convexity": math.nan}, "constant"),
        ({"slope": 0.0}, "slope"),
        ({"shift": -1.0}, "shift"),
        ({"gap": 0.0}, "gap"),
        ({"gap": 1e-20}, "millionth"),
        ({"width": 0}, "width"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_theorem_does_not_cover_is_refused(more: Any, words: str) -> None:
    with pytest.raises(dp.DeclarationError, match=words):
        dp.Pipeline(w=saddle_query(**more).release(dp.Gaussian(sigma=1.0)))


@pytest.mark.parametrize("g", [fails, flat, wide])
def test_a_game_that_is_not_as_declared_fails_without_a_number(g: Any) -> None:
    rows = [make_rows()]
    with pytest.raises(dp.RunError, match=g.__name__) as caught:
        saddle_query(g).operation.run(rows, STREAM)
    assert "0.123" not in str(caught.value)
    assert caught.value.__context__ is None  # the game's exception holds a row


def test_a_gap_that_is_not_reached_fails_without_a_number(monkeypatch: Any) -> None:
    def never(*arguments: Any) -> Any:
        raise NotReached("0.1234567")

    monkeypatch.setattr("adaptive_dp.queries.minimizer.minimax", never)
    with pytest.raises(NotReached, match="of_rows within the gap") as caught:
        saddle_query().operation.run([make_rows()], STREAM)
    assert "0.123" not in str(caught.value)
    assert caught.value.__context__ is None


def make_rows() -> Any:
    steps, unit = grid.ball(np.array([[0.1234567, 0.5]]), 1.0)
    return make_examples(steps.astype(np.float32), unit, np.ones(1), 1.0, np.arange(1))


def test_a_saved_plan_is_the_same() -> None:
    plan = dp.Pipeline(w=saddle_query().release(dp.Gaussian(sigma=5.0)))
    again = dp.load(plan.to_json(), allow=[__name__])
    data = {"u": [0.5] * 9, "v": [0.5] * 9, "s": ["P"] * 9}
    assert again.certify(delta=1e-6).epsilon == plan.certify(delta=1e-6).epsilon
    ours, theirs = (p.simulate(seed=1, t=data)["w"] for p in (plan, again))
    assert np.array_equal(ours, theirs)
