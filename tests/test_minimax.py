"""Saddle points: games with closed-form solutions, and the certificate that rejects false ones."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from attrs import field, frozen
from objectives import (
    Game,
    Model,
    Moved,
    Odds,
    Sloped,
    Whole,
    best_of_moved,
    moved_rows,
    random_model,
)
from scipy import optimize

import adaptive_dp as dp
from adaptive_dp import erm
from adaptive_dp.data import grid, make_examples
from adaptive_dp.erm import (
    Everywhere,
    NotReached,
    Objective,
    Set,
    Simplex,
    certify_saddle,
    dual_ascent,
    minimax,
    saddle_sensitivity,
    solve_saddle,
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


@pytest.mark.parametrize(("mu", "nu"), [(1.0, 1.0), (0.05, 0.05), (0.5, 0.0)])
def test_dual_ascent_comes_to_the_same(mu: float, nu: float) -> None:
    g = game(2, mu, nu, q=4)
    ours, other = solve_saddle(g, 1e-4), minimax(g, 1e-4)[0]
    assert max(ours.residual, other.residual) <= 1e-4
    assert np.linalg.norm(ours.w - other.w) <= 2e-4 / mu
    fast, y = dual_ascent(g, 1e-4, rounds=1)
    assert certify_saddle(g, fast.w, y).residual == pytest.approx(fast.residual)


@frozen(eq=False)
class Mixed(Whole):
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


def of_rows(x: Floats, y: Floats, ridge: float) -> Game:
    """``ridge |w|^2 / 2 + w_1 v - v^2 / 2``, and ``<x, w> + label v`` for each row."""
    tie = np.array([[1.0], [0.0]])
    return Game(tie, x.sum(axis=0), -y.sum(keepdims=True), ridge, 1.0)


def declared(g: Any = of_rows, **more: Any) -> erm.Game:
    return erm.Game(g, **{"slope": 1.0, "shift": 1.0, "strong_concavity": 1.0, **more})


def row_handle() -> Any:
    table = dp.dataset("t", columns={"u": (-1.0, 1.0), "v": (-1.0, 1.0), "s": ["N", "P"]})
    return table.examples(["u", "v"], "s", norm=1.0, intercept=False)


def saddle_query(**more: Any) -> Any:
    return row_handle().saddle_point(declared(), **{"ridge": 1.0, **more})


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
    slack = 2e-3 * saddle_sensitivity(1.0, 1.0, 1.0, 1.0)
    assert bound == pytest.approx(saddle_sensitivity(1.0, 1.0, 1.0, 1.0) + slack, rel=1e-6)
    farthest = 0.0
    for first in [[], *([row] for row in universe)]:
        before = solved(first)
        x = np.array([row[:2] for row in first]).reshape(-1, 2)
        y = np.array([1.0 if row[2] == "P" else -1.0 for row in first])
        assert np.linalg.norm(before - learners_part(of_rows(x, y, 1.0))) <= slack / 2 + 1e-5
        for row in universe:
            farthest = max(farthest, float(np.linalg.norm(solved([*first, row]) - before)))
    assert 0.7 * bound < farthest <= bound


def test_a_saddle_point_is_certified_with_its_gap_named() -> None:
    plan = dp.Pipeline(w=saddle_query().release(dp.Gaussian(sigma=5.0)))
    certificate = plan.certify(delta=1e-6)
    (sentence,) = [s for s in certificate.assumptions if "of_rows" in s]
    # ridge / 2 (t G)^2, G the sensitivity
    gap = (1e-3 * saddle_sensitivity(1.0, 1.0, 1.0, 1.0)) ** 2 / 2
    assert f"within the gap {gap:.3g}" in sentence
    wider = dp.Pipeline(w=saddle_query(tolerance=0.1).release(dp.Gaussian(sigma=5.0)))
    assert wider.certify(delta=1e-6).epsilon > certificate.epsilon
    assert 0 < certificate.epsilon < 2


def test_with_a_released_ridge_the_value_is_in_units_of_what_a_row_moves() -> None:
    """Neighbours of a small universe at any ridge: the sensitivity does not depend on it."""
    operation = row_handle().saddle_point(declared(), ridge=dp.public(1.0)).operation
    assert operation.sensitivity(None, Change(False, 1, False), 2) == pytest.approx(1.002, 1e-5)
    draw = np.random.default_rng(3)
    for ridge in (2.0**-10, 0.3, 40.0):
        g = saddle_sensitivity(1.0, 1.0, ridge, 1.0)
        for n in (0, 1, 4):
            x, y = draw.normal(size=(n + 1, 2)), draw.choice([-1.0, 1.0], n + 1)
            x /= np.linalg.norm(x, axis=1)[:, None]
            values = [operation.run([make_rows(x[:k], y[:k]), ridge], STREAM) for k in (n, n + 1)]
            exact = learners_part(of_rows(x, y, ridge)) / g
            assert np.linalg.norm(values[1] - exact) <= 1.1e-3
            assert np.linalg.norm(values[1] - values[0]) <= 1.002


# Games that are not as declared: on rows made up, when they are declared.


def fails(x: Floats, y: Floats, ridge: float) -> Game:
    raise KeyError("key")


def flat(x: Floats, y: Floats, ridge: float) -> Game:
    return Game(np.eye(2), np.zeros(2), np.zeros(2), ridge / 2, 1.0)


def wide(x: Floats, y: Floats, ridge: float) -> Game:
    p = 2 + (len(x) > 2)
    return Game(np.eye(p), np.zeros(p), np.zeros(p), ridge, 1.0)


def means(x: Floats, y: Floats, ridge: float) -> Game:
    """Rows as long as the declared slope twice over."""
    return Game(np.ones((2, 1)), 2 * x.sum(axis=0), -y.sum(keepdims=True), ridge, 1.0)


def pulls(x: Floats, y: Floats, ridge: float) -> Game:
    return Game(np.ones((2, 1)), x.sum(axis=0), -2 * y.sum(keepdims=True), ridge, 1.0)


def flatter(x: Floats, y: Floats, ridge: float) -> Game:
    return Game(np.ones((2, 1)), x.sum(axis=0), -y.sum(keepdims=True), ridge, 0.5)


@frozen(eq=False)
class Bent(Game):
    """An objective that is concave along the first coordinate, whatever it says."""

    def against(self, y: Floats) -> Any:
        return BentAgainst(self.b + self.A @ y, self.mu)


class BentAgainst(Sloped):
    def value(self, w: Floats) -> float:
        return super().value(w) - self.strong_convexity * float(w[0] ** 2)

    def gradient(self, w: Floats) -> Floats:
        return super().gradient(w) - 2 * self.strong_convexity * w * np.array([1.0, 0.0])


def bent(x: Floats, y: Floats, ridge: float) -> Game:
    return Bent(np.ones((2, 1)), x.sum(axis=0), -y.sum(keepdims=True), ridge, 1.0)


class Proud(Game):
    def rise(self, x: Floats, y: Floats) -> float:
        return 0.0


def proud(x: Floats, y: Floats, ridge: float) -> Game:
    return Proud(np.ones((2, 1)), x.sum(axis=0), -y.sum(keepdims=True), ridge, 1.0)


class Rough(Game):
    smoothness = property(lambda self: 1e-3)


def rough(x: Floats, y: Floats, ridge: float) -> Game:
    return Rough(np.full((2, 1), 5.0), x.sum(axis=0), -y.sum(keepdims=True), ridge, 1.0)


@frozen(eq=False)
class Both:
    """A number that rows share, y, and one for each row, v: every player in closed form.

    ``mu / 2 |w|^2 + y w_1 - nu / 2 y^2``, and for each row ``<a, w> + label y + v <c, w>`` with
    ``a = x / 2``, c the same turned by a quarter, and v in [-1, 1].
    """

    x: Floats
    labels: Floats
    mu: float
    nu: float = 1.0

    tie = np.array([1.0, 0.0])
    adversary = property(lambda self: 1 + len(self.x))
    smoothness = property(lambda self: self.mu + self.nu + 2.0 + len(self.x))
    turned = property(lambda self: self.x @ np.array([[0.0, 0.5], [-0.5, 0.0]]))

    def against(self, y: Floats) -> Objective:
        return Sloped(self.x.sum(axis=0) / 2 + y[0] * self.tie + y[1:] @ self.turned, self.mu)

    def ascent(self, w: Floats, y: Floats) -> Floats:
        return np.array([w[0] + self.labels.sum() - self.nu * y[0], *(self.turned @ w)])

    def project(self, y: Floats) -> Floats:
        return np.array([y[0], *np.clip(y[1:], -1.0, 1.0)])

    def rise(self, w: Floats, y: Floats) -> float:
        of_y, z = self.ascent(w, y)[0], self.turned @ w
        rise = of_y**2 / (2 * self.nu) + np.abs(z).sum() - z @ y[1:]
        return float(rise) * (1 + 1e-12) + 1e-14 * (1 + np.abs(z).sum())

    def best(self) -> Floats:
        """The learner's w of the worst case, by the signs of all ``<c, w>``: +, - or on its line.

        Given signs it is a quadratic function on a subspace; the least of all is the minimum.
        """
        h = self.mu * np.eye(2) + np.outer(self.tie, self.tie) / self.nu
        slope = self.x.sum(axis=0) / 2 + self.labels.sum() / self.nu * self.tie
        found = [np.zeros(2)]
        for signs in itertools.product((-1.0, 1.0), repeat=len(self.x)):
            tilted = slope + np.array(signs) @ self.turned
            found.append(-np.linalg.solve(h, tilted))
            for c in self.turned:  # on the line <c, w> = 0
                d = np.array([-c[1], c[0]])
                found.append(-d * (tilted @ d) / (d @ h @ d))
        return min(found, key=lambda w: w @ h @ w / 2 + slope @ w + np.abs(self.turned @ w).sum())


def both(x: Floats, y: Floats, ridge: float) -> Both:
    return Both(x, y, ridge)


@pytest.mark.parametrize("mu", [0.25, 3.0])
def test_adversaries_shared_and_own_by_brute_force(mu: float) -> None:
    """All tables of up to three rows, and all of their neighbours, a row or two exchanged."""
    universe = [(r * math.cos(t), r * math.sin(t)) for r, t in ((1, 0.3), (1, 2.0), (1, 4.5))]
    kinds = [(row, label) for row in (*universe, (0.1, 0.0)) for label in (-1.0, 1.0)]
    tables = [t for n in range(4) for t in itertools.combinations_with_replacement(kinds, n)]

    def game(t: Any) -> Both:
        return Both(np.array([k[0] for k in t]).reshape(-1, 2), np.array([k[1] for k in t]), mu)

    ends = {t: game(t).best() for t in tables}
    operation = row_handle().saddle_point(declared(both), ridge=mu).operation
    farthest = {"added": 0.0, "exchanged": 0.0, "pair": 0.0}
    for t, w in ends.items():
        for k in kinds if len(t) < 3 else ():
            end = ends[tuple(sorted((*t, k), key=kinds.index))]
            farthest["added"] = max(farthest["added"], float(np.linalg.norm(end - w)))
        for i, k in itertools.product(range(len(t)), kinds):
            end = ends[tuple(sorted((*t[:i], k, *t[i + 1 :]), key=kinds.index))]
            farthest["exchanged"] = max(farthest["exchanged"], float(np.linalg.norm(end - w)))
        if len(t) == 2:
            for k in itertools.combinations_with_replacement(kinds, 2):
                farthest["pair"] = max(farthest["pair"], float(np.linalg.norm(ends[k] - w)))
    slack = 2e-3 * saddle_sensitivity(1.0, 1.0, mu, 1.0)
    for what, change in (
        ("added", Change(False, 1, False)),
        ("exchanged", Change(True, 1, False)),
        ("pair", Change(True, 2, False)),
    ):
        assert 0.3 < farthest[what] / (operation.sensitivity(None, change, 2) - slack) <= 1
    # and what is solved is within the tolerance of it
    for t in tables[::17]:
        g = game(t)
        w = operation.run([make_rows(g.x, g.labels)], STREAM)
        assert np.linalg.norm(w - ends[t]) <= slack / 2 + 1e-5


class Together(Moved):
    """Rows' own parameters that add up to 1: they are not their own."""

    def project(self, y: Floats) -> Floats:
        return super().project(weights(y)) if len(y) else y


def together(x: Floats, y: Floats, ridge: float) -> Moved:
    return Together(x * y[:, None], ridge, rho=0.0)


# Games whose rows read each other: a row that comes or goes changes the others' terms.


def signed(terms: Floats, y: Floats, ridge: float) -> Game:
    return Game(np.zeros((2, 1)), (terms * y[:, None]).sum(axis=0), np.zeros(1), ridge, 1.0)


def centred(x: Floats, y: Floats, ridge: float) -> Game:
    return signed(x - x.mean(axis=0) if len(x) else x, y, ridge)


def after_first(x: Floats, y: Floats, ridge: float) -> Game:
    return signed(x - x[:1], y, ridge)


def balanced(x: Floats, y: Floats, ridge: float) -> Game:
    of_class = np.where(y > 0, (y > 0).sum(), (y < 0).sum())
    return signed(x * (len(y) / 2 / np.maximum(of_class, 1))[:, None], y, ridge)


def in_turn(x: Floats, y: Floats, ridge: float) -> Game:
    return signed(2 * x / (1 + np.arange(len(x)))[:, None], y, ridge)


def second_first(x: Floats, y: Floats, ridge: float) -> Game:
    """The first row's term is the second one's, which nothing tells where the last is left out."""
    terms = np.array(x)
    terms[:1] = 2 * x[min(1, len(x) - 1) :][:1]
    return signed(terms, y, ridge)


@pytest.mark.parametrize(
    "g", [centred, after_first, balanced, in_turn, second_first], ids=lambda v: v.__name__
)
def test_a_game_whose_rows_read_each_other_is_refused(g: Any) -> None:
    """Each row's term has a slope of at most 2, and one row may move the learner by more."""
    x = np.array([[1.0, 0.0], *[[-1.0, 0.0]] * 9])
    y = np.array([-1.0, *[1.0] * 9])
    farthest, n = 0.0, len(x)
    for order in (np.arange(n), np.arange(n)[::-1]):
        for flip in (1.0, -1.0):
            rows, labels = x[order], y[order] * np.where(np.arange(n) % 2, 1.0, flip)
            ends = [learners_part(g(rows[k:], labels[k:], 1.0)) for k in (0, 1)]
            farthest = max(farthest, float(np.linalg.norm(ends[1] - ends[0])))
    assert farthest > 1.3 * saddle_sensitivity(2.0, 0.0, 1.0, 1.0)
    with pytest.raises(dp.DeclarationError, match=r"reads other rows|its slope is 2"):
        row_handle().saddle_point(declared(g, slope=2.0, shift=0.0), ridge=1.0)


@frozen(eq=False)
class Held(Game):
    """The learner is held in a box, whose size may depend on the rows, or on the adversary."""

    size: Any = field(default=None)

    def against(self, y: Floats) -> Any:
        return HeldAgainst(self.b + self.A @ y, self.mu, self.size(y))


@frozen(eq=False)
class HeldAgainst(Sloped):
    size: float

    def project(self, w: Floats) -> Floats:
        return np.clip(w, -self.size, self.size)


def held_by_rows(x: Floats, y: Floats, ridge: float) -> Game:
    size = 1 + np.abs(x).max(initial=0.0)
    return Held(np.zeros((2, 1)), x.sum(axis=0), np.zeros(1), ridge, 1.0, lambda y: size)


def held_by_y(x: Floats, y: Floats, ridge: float) -> Game:
    return Held(np.zeros((2, 1)), x.sum(axis=0), np.zeros(1), ridge, 1.0, lambda y: 1 + y[0] ** 2)


def only_of_1(x: Floats, y: Floats, ridge: float) -> Game:
    return of_rows(x, y, min(ridge, 1.0))


def nearly(x: Floats, y: Floats, ridge: float) -> Both:
    return Both(x, y, ridge, nu=0.5)


@pytest.mark.parametrize(
    ("g", "words"),
    [
        (together, "depends on the number of rows"),
        (fails, "KeyError"),
        (flat, "strong convexity"),
        (wide, "its adversary has 2 parameters without rows, 3 with 4"),
        (means, "gradient by x has norm 2, and its slope is 1"),
        (pulls, "gradient by y has norm 2, and its shift is 1"),
        (flatter, "in y it is not as concave"),
        (held_by_rows, "the learner's set"),
        (held_by_y, "the learner's set"),
        (nearly, "in y it is not as concave"),
        (bent, "in x it is not as convex"),
        (proud, "rise"),
        (rough, "smoothness"),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_a_game_that_is_not_as_declared_is_refused(g: Any, words: str) -> None:
    with pytest.raises(dp.DeclarationError, match=words):
        row_handle().saddle_point(declared(g), ridge=1.0)


def test_a_game_that_ignores_a_released_ridge_is_refused() -> None:
    row_handle().saddle_point(declared(only_of_1), ridge=1.0)
    with pytest.raises(dp.DeclarationError, match="strong convexity is 1"):
        row_handle().saddle_point(declared(only_of_1), ridge=dp.public(1.0))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"strong_concavity": 0.0}, "strong_concavity"),
        ({"strong_concavity": None}, "strong_concavity must be given"),
        ({"slope": math.nan}, "slope"),
        ({"slope": 0.0}, "slope"),
        ({"shift": -1.0}, "shift"),
    ],
    ids=str,
)
def test_a_game_of_impossible_constants_is_refused(more: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        declared(**more)


@pytest.mark.parametrize(
    ("more", "words"),
    [({"ridge": 0.0}, "ridge"), ({"tolerance": 0.0}, "tolerance"), ({"tolerance": 2.0}, "toler")],
    ids=str,
)
def test_what_the_theorem_does_not_cover_is_refused(more: Any, words: str) -> None:
    with pytest.raises(dp.DeclarationError, match=words):
        dp.Pipeline(w=saddle_query(**more).release(dp.Gaussian(sigma=1.0)))
    with pytest.raises(dp.DeclarationError, match="Game"):
        row_handle().saddle_point(of_rows, ridge=1.0)


def treacherous(kind: Any) -> Any:
    """A game that is as declared on the rows made up, and another on the rows of `make_rows`."""

    def game(x: Floats, y: Floats, ridge: float) -> Game:
        private = bool(len(x)) and abs(x[0, 0]) < 0.2
        return kind(x, y, ridge) if private else of_rows(x, y, ridge)

    return game


def loud(x: Floats, y: Floats, ridge: float) -> Game:
    raise ValueError(f"{x[0, 0]}")


def three(x: Floats, y: Floats, ridge: float) -> Game:
    return Game(np.eye(3), np.zeros(3), np.zeros(3), ridge, 1.0)


@pytest.mark.parametrize("kind", [loud, flat, three], ids=lambda v: v.__name__)
def test_a_game_that_fails_on_the_data_fails_without_a_number(kind: Any) -> None:
    query = row_handle().saddle_point(declared(treacherous(kind)), ridge=1.0)
    with pytest.raises(dp.RunError, match="game") as caught:
        query.operation.run([make_rows()], STREAM)
    assert "0.123" not in str(caught.value)
    assert caught.value.__context__ is None  # the game's exception holds a row


def test_a_gap_that_is_not_reached_fails_without_a_number(monkeypatch: Any) -> None:
    def never(*arguments: Any) -> Any:
        raise NotReached("0.1234567")

    monkeypatch.setattr("adaptive_dp.queries.minimizer.solve_saddle", never)
    with pytest.raises(NotReached, match="of_rows within the gap") as caught:
        saddle_query().operation.run([make_rows()], STREAM)
    assert "0.123" not in str(caught.value)
    assert caught.value.__context__ is None


def make_rows(x: Any = ((0.1234567, 0.5),), y: Any = (1.0,)) -> Any:
    steps, unit = grid.ball(np.array(x, dtype=float).reshape(-1, 2), 1.0)
    labels = np.array(y, dtype=float)
    return make_examples(steps.astype(np.float32), unit, labels, 1.0, np.arange(len(labels)))


def test_a_saved_plan_is_the_same() -> None:
    plan = dp.Pipeline(w=saddle_query().release(dp.Gaussian(sigma=5.0)))
    again = dp.load(plan.to_json(), allow=[__name__])
    data = {"u": [0.5] * 9, "v": [0.5] * 9, "s": ["P"] * 9}
    assert again.certify(delta=1e-6).epsilon == plan.certify(delta=1e-6).epsilon
    ours, theirs = (p.simulate(seed=1, t=data)["w"] for p in (plan, again))
    assert np.array_equal(ours, theirs)


# A learner of games: each row's own adversary, whose worst loss has a closed form.

RICH = {"a": (-1.0, 1.0), "b": (0.0, 2.0), "rich": ["no", "yes"]}


def moved_game() -> erm.Game:
    return erm.Game(moved_rows, slope=1.1)


def frame(n: int, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    a, b = draw.uniform(-1, 1, n), draw.uniform(0, 2, n)
    rich = np.where(a + b + 0.3 * draw.normal(size=n) > 1, "yes", "no")
    return {"a": a, "b": b, "rich": rich.astype(object)}


def test_a_row_with_an_adversary_of_its_own_moves_the_learner_by_no_more_than_a_loss() -> None:
    """Against the minimizers of worst losses, of which the bound is nearly attained."""
    draw, ridge, farthest = np.random.default_rng(4), 8.0, 0.0
    for n in (0, 1, 5):
        for _ in range(20):
            x = draw.normal(size=(n + 1, 2))
            x /= np.linalg.norm(x, axis=1)[:, None]
            y = draw.choice([-1.0, 1.0], n + 1)
            if n:  # rows that the learner has wrong are the ones that pull
                x[-1], y[-1] = x[:-1].T @ y[:-1], -1.0
                x[-1] /= max(float(np.linalg.norm(x[-1])), 1e-9)
            ends = [best_of_moved(moved_rows(x[:k], y[:k], ridge))[0] for k in (n, n + 1)]
            farthest = max(farthest, float(np.linalg.norm(ends[1] - ends[0])))
    bound = moved_game().moves(ridge)
    assert bound == pytest.approx(1.1 / ridge)
    assert 0.4 * bound < farthest <= bound


@pytest.mark.parametrize("optimizer", [None, best_of_moved], ids=["ours", "own"])
def test_a_game_is_learned_as_its_closed_form_is(optimizer: Any) -> None:
    """At next to no noise, against the adversary in closed form: the same model and noise."""
    table, rows = dp.dataset("t", columns=RICH), frame(12)
    pair, ridge = (["a", "b"], "rich"), 2.0
    game = dp.OutputPerturbation(*pair, game=moved_game(), ridge=ridge, optimizer=optimizer)
    closed = dp.OutputPerturbation(*pair, adversary=0.1, ridge=ridge)
    plans = [
        dp.Pipeline(model=table.solve(learner, epsilon=1e5, delta=1e-6)).with_delta(1e-6)
        for learner in (game, closed)
    ]
    played, exact = (plan.simulate(seed=1, t=rows)["model"] for plan in plans)
    # both are within a thousandth of what a row moves; the kink is rounded off differently
    assert played == pytest.approx(exact, abs=5e-3)
    free = [
        dp.Pipeline(model=table.solve(each, epsilon=1.0, delta=1e-6)) for each in (game, closed)
    ]
    sigmas = [re.search(r"sigma=([\d.]+)", str(plan)) for plan in free]
    assert sigmas[0][1] == sigmas[1][1]  # type: ignore[index]


@pytest.mark.parametrize("noise", ["gaussian", "norm"])
def test_a_game_is_learned_by_default(noise: Any) -> None:
    table, rows = dp.dataset("t", columns=RICH), frame(3_000)
    learner = dp.OutputPerturbation(
        ["a", "b"], "rich", game=moved_game(), optimizer=best_of_moved, noise=noise
    )
    delta = 0.0 if noise == "norm" else 1e-6
    plan = dp.Pipeline(model=table.solve(learner, epsilon=2.0, delta=delta)).with_delta(delta)
    certificate = plan.certify()
    assert 0.995 <= certificate.epsilon / 2 <= 1
    assert any("the gap ridge / 2" in sentence for sentence in certificate.assumptions)
    said = dp.predict(plan.simulate(seed=1, t=rows)["model"], rows, classes=["no", "yes"])
    assert np.mean(said == rows["rich"]) > 0.85


def test_a_lying_optimizer_is_not_believed() -> None:
    def lying(game: Any) -> Any:
        game.rows[:] = 0.0  # a copy of its own
        return np.full(3, 7.0), np.full(len(game.rows), 0.5)

    table, rows = dp.dataset("t", columns=RICH), frame(6)
    pair, models = (["a", "b"], "rich"), []
    for optimizer in (None, lying):
        learner = dp.OutputPerturbation(*pair, game=moved_game(), ridge=4.0, optimizer=optimizer)
        plan = dp.Pipeline(model=table.solve(learner, epsilon=1e5, delta=1e-6)).with_delta(1e-6)
        models.append(plan.simulate(seed=1, t=rows)["model"])
    # another plan, so its noise is drawn anew, of sigma 2e-3
    assert models[0] == pytest.approx(models[1], abs=2e-2)


@frozen(eq=False)
class Corners:
    """``|w|^2 / 2 + max(w_1, w_2)`` and rows' linear terms, by sums that broadcast."""

    b: Floats
    mu: float

    adversary = 2
    smoothness = property(lambda self: self.mu + 2.0)

    def against(self, y: Floats) -> Objective:
        return Sloped(self.b + (np.eye(2) * y).sum(axis=0), self.mu)

    def ascent(self, w: Floats, y: Floats) -> Floats:
        return w

    def project(self, y: Floats) -> Floats:
        return weights(y)

    def rise(self, w: Floats, y: Floats) -> float:
        return float(w.max() - (w * y).sum()) + 1e-14 * float(np.abs(w).sum())


def corners(x: Floats, y: Floats, ridge: float) -> Corners:
    return Corners(-2 * x.sum(axis=0), ridge)


def of_another_shape(game: Corners) -> Any:
    """At ``b = (-1, -3)`` weights of 1 for both corners would be best at (0, 2)."""
    return -(game.b + 1) / game.mu, np.ones(1)


def test_an_adversary_of_another_shape_proves_nothing() -> None:
    own = declared(corners, slope=2.0, shift=0.0)
    query = row_handle().saddle_point(own, ridge=1.0, optimizer=of_another_shape)
    rows = make_rows([(0.0, 0.5), (0.5, 0.5), (0.0, 0.5)], [1.0] * 3)
    found = query.operation.run([rows], STREAM)
    # of (w_1^2 + w_2^2) / 2 + max(w_1, w_2) - w_1 - 3 w_2: the second corner is the larger one
    assert found == pytest.approx([1.0, 2.0], abs=5e-3)


def test_learners_of_games_refuse_what_is_not_theirs() -> None:
    pair, game = (["a", "b"], "rich"), moved_game()
    for more in ({"radius": 1.0}, {"adversary": 0.1}, {"loss": dp.Logistic()}):
        with pytest.raises(dp.DeclarationError, match=next(iter(more))):
            dp.OutputPerturbation(*pair, game=game, **more)
    with pytest.raises(dp.DeclarationError, match="class_weight"):
        dp.OutputPerturbation(*pair, game=game, class_weight="balanced")
    with pytest.raises(TypeError, match="Game"):
        dp.OutputPerturbation(*pair, game=moved_rows)  # type: ignore[arg-type]
    with pytest.raises(dp.DeclarationError, match="norm must be a positive"):
        dp.dataset("t", columns=RICH).solve(dp.OutputPerturbation(*pair, game=game, norm=0.0))
    narrow = erm.Game(of_first_two, slope=1.0, shift=1.0, strong_concavity=1.0)
    table = dp.dataset("t", columns=RICH)
    with pytest.raises(dp.DeclarationError, match=r"returns 3 coefficients.*learner has 2"):
        table.solve(dp.OutputPerturbation(*pair, game=narrow), epsilon=1.0, delta=1e-6)


def of_first_two(x: Floats, y: Floats, ridge: float) -> Game:
    return of_rows(x[:, :2], y, ridge)
