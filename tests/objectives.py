"""Small objectives for the tests of optimizers: a linear model, a ridge, a set, a game."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import field, frozen
from scipy import optimize

from adaptive_dp.erm import Everywhere, Objective, Set, weights
from adaptive_dp.erm.objective import Floats


@frozen(eq=False)
class Model:
    """``sum of loss(x_i . w, y_i) + ridge/2 |w|^2``; every part has a share of the ridge."""

    X: Floats
    y: Floats
    ridge: float
    set: Set = field(factory=Everywhere)
    believed: float | None = None
    """A smoothness to state in the place of the true one."""

    width = property(lambda self: self.X.shape[1])
    parts = property(lambda self: self.X.shape[0])
    strong_convexity = property(lambda self: self.ridge)
    lipschitz = property(lambda self: math.inf)
    bend = 1.0
    """The largest second derivative of the loss."""

    @property
    def smoothness(self) -> float:
        top = float(np.linalg.eigvalsh(self.X.T @ self.X)[-1]) * (1 + 1e-9)
        return self.bend * top + self.ridge if self.believed is None else self.believed

    @property
    def part_smoothness(self) -> float:
        return self.bend * float((self.X**2).sum(axis=1).max()) + self.ridge / self.parts

    def loss(self, z: Floats, y: Floats) -> Floats:
        return (z - y) ** 2 / 2

    def slope(self, z: Floats, y: Floats) -> Floats:
        return z - y

    def value(self, w: Floats) -> float:
        return float(self.loss(self.X @ w, self.y).sum() + self.ridge / 2 * w @ w)

    def gradient(self, w: Floats) -> Floats:
        return self.X.T @ self.slope(self.X @ w, self.y) + self.ridge * w

    def rounding(self, w: Floats) -> float:
        most = np.abs(self.X) @ np.abs(w) + np.abs(self.y)
        magnitude = np.abs(self.X).T @ most + self.ridge * np.abs(w)
        return float(np.linalg.norm(magnitude)) * (self.parts + self.width + 16) * 2.0**-52

    def part(self, chosen: Any, w: Floats) -> Floats:
        some = self.X[chosen]
        share = self.ridge * len(chosen) / self.parts
        return some.T @ self.slope(some @ w, self.y[chosen]) + share * w

    def project(self, w: Floats) -> Floats:
        return self.set.project(w)

    def projection_error(self, w: Floats) -> float:
        return self.set.projection_error(w)


class Squares(Model):
    """Ridge regression, with its Hessian."""

    def hessian(self, w: Floats) -> Floats:
        return self.X.T @ self.X + self.ridge * np.eye(self.width)


class Odds(Model):
    """Logistic regression, without one."""

    bend = 0.25

    def loss(self, z: Floats, y: Floats) -> Floats:
        return np.logaddexp(0.0, -y * z)

    def slope(self, z: Floats, y: Floats) -> Floats:
        far = np.exp(-np.abs(z))
        return -y * np.where(y * z > 0, far, 1.0) / (1 + far)


class CurvedOdds(Odds):
    """Logistic regression with its Hessian."""

    def hessian(self, w: Floats) -> Floats:
        far = np.exp(-np.abs(self.X @ w))
        return (self.X.T * (far / (1 + far) ** 2)) @ self.X + self.ridge * np.eye(self.width)


class Hinge(Model):
    """The hinge: no smoothness."""

    smoothness = property(lambda self: math.inf)

    def loss(self, z: Floats, y: Floats) -> Floats:
        return np.maximum(0.0, 1 - y * z)

    def slope(self, z: Floats, y: Floats) -> Floats:
        return np.where(y * z < 1, -y, 0.0)


class Machine(Hinge):
    """The hinge with its duality gap: the support vector machine.

    For a in [0, 1]^n the dual value ``sum a - |X' (a y)|^2 / (2 ridge)`` is below the minimum.
    Off the kinks a is the slope; on them the a is taken whose point is nearest to w.
    """

    def gap(self, w: Floats) -> float:
        margin = self.y * (self.X @ w)
        a, kinks = (margin < 1).astype(float), np.abs(margin - 1) < 0.1
        rows = self.X * self.y[:, None]
        if kinks.any():
            rest = self.ridge * w - rows[~kinks].T @ a[~kinks]
            a[kinks] = np.clip(optimize.lsq_linear(rows[kinks].T, rest, (0, 1)).x, 0, 1)
        dual = float(a.sum() - np.sum((rows.T @ a) ** 2) / (2 * self.ridge))
        hinges = self.loss(self.X @ w, self.y).sum()
        rough = hinges + self.ridge * w @ w + 4 * a.sum()
        return self.value(w) - dual + float(rough) * (self.parts + self.width + 16) * 2.0**-50


@frozen(eq=False)
class TiltedPair:
    """Row R06: ``mu/2 w^2`` on [-R, R] as the mean of ``mu/2 w^2 +- (L - mu R) w``."""

    tilt: float = 1.0
    strong_convexity: float = 1.0
    radius: float = 1.0

    width, parts, smoothness = 1, 2, 1.0
    lipschitz = 1.0

    def value(self, w: Floats) -> float:
        return self.strong_convexity / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        return self.strong_convexity * w

    def rounding(self, w: Floats) -> float:
        return 2.0**-52 * float(np.abs(w).sum())

    def part(self, chosen: Any, w: Floats) -> Floats:
        signs = 2.0 * np.asarray(chosen) - 1
        return (len(chosen) * self.strong_convexity * w + signs.sum() * self.tilt) / 2

    def project(self, w: Floats) -> Floats:
        return np.clip(w, -self.radius, self.radius)

    def projection_error(self, w: Floats) -> float:
        return 0.0


@frozen(eq=False)
class Distance:
    """``|w - corner|`` on [-corner, corner], one number: the instance of row S0-08."""

    corner: float = 1.0

    width, parts, smoothness, strong_convexity, lipschitz = 1, 1, math.inf, 0.0, 1.0

    def value(self, w: Floats) -> float:
        return float(abs(w[0] - self.corner))

    def gradient(self, w: Floats) -> Floats:
        return np.where(w < self.corner, -1.0, 0.0)

    def rounding(self, w: Floats) -> float:
        return 0.0

    def part(self, chosen: Any, w: Floats) -> Floats:
        return len(chosen) * self.gradient(w)

    def project(self, w: Floats) -> Floats:
        return np.clip(w, -self.corner, self.corner)

    def projection_error(self, w: Floats) -> float:
        return 0.0


def random_model(
    kind: type[Model], seed: int, n: int = 30, p: int = 3, ridge: float = 5.0, **more: Any
) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) / math.sqrt(p)
    y = np.sign(X @ rng.normal(size=p) + 0.5 * rng.normal(size=n))
    return kind(X, y, ridge, **more)


@frozen(eq=False)
class Sloped:
    """``mu/2 |x|^2 + t . x`` as an objective."""

    tilt: Floats
    strong_convexity: float

    parts = 1
    width = property(lambda self: len(self.tilt))
    smoothness = property(lambda self: self.strong_convexity)
    lipschitz = property(lambda self: math.inf)

    def value(self, w: Floats) -> float:
        return float(self.strong_convexity / 2 * w @ w + self.tilt @ w)

    def gradient(self, w: Floats) -> Floats:
        return self.strong_convexity * w + self.tilt

    def rounding(self, w: Floats) -> float:
        return float(np.linalg.norm(self.strong_convexity * np.abs(w) + np.abs(self.tilt))) * 1e-14

    def part(self, chosen: Any, w: Floats) -> Floats:
        return len(chosen) * self.gradient(w)

    def project(self, w: Floats) -> Floats:
        return w

    def projection_error(self, w: Floats) -> float:
        return 0.0


@frozen(eq=False)
class Game:
    """``mu/2 |x|^2 + b . x + x' A y - c . y - nu/2 |y|^2``: bilinear, with squares."""

    A: Floats
    b: Floats
    c: Floats
    mu: float
    nu: float

    adversary = property(lambda self: self.A.shape[1])
    smoothness = property(
        lambda self: max(self.mu, self.nu) + float(np.linalg.norm(self.A, 2)) * (1 + 1e-9)
    )

    def against(self, y: Floats) -> Objective:
        return Sloped(self.b + self.A @ y, self.mu)

    def ascent(self, x: Floats, y: Floats) -> Floats:
        return self.A.T @ x - self.c - self.nu * y

    def project(self, y: Floats) -> Floats:
        return weights(y) if self.nu == 0 else y

    def rise(self, x: Floats, y: Floats) -> float:
        slope = self.ascent(x, y)
        if self.nu > 0:  # the best y is slope / nu away
            return float(slope @ slope) / (2 * self.nu) * (1 + 1e-12)
        return float(slope.max() - slope @ y) + 1e-14 * float(np.abs(slope).max())


REACH = 4.0
"""How far from 0 margins of `Moved` may be for its dual variables to be exact."""


@frozen(eq=False)
class Moved:
    """Logistic losses of rows that an adversary moves by up to rho: convex-concave by duality.

    ``log(1 + e^z) = max_a a z + H(a)``, H the entropy; the worst z is ``rho d(x) - label row . x``,
    with ``d(x) = sqrt(|x|^2 + s^2)``. Each row has an a of its own, within a range that is public.
    """

    rows: Floats
    """Times their labels, shape (n, p)."""
    ridge: float
    rho: float = 0.1
    smoothing: float = 0.05

    least = 1 / (1 + math.exp(REACH))
    adversary = property(lambda self: len(self.rows))

    @property
    def smoothness(self) -> float:
        n = len(self.rows)
        of_x = self.ridge + n * self.rho / self.smoothing
        of_a = 1 / (self.least * (1 - self.least))
        return of_x + of_a + (1 + self.rho) * math.sqrt(n)

    def distance(self, x: Floats) -> float:
        return math.hypot(float(np.linalg.norm(x)), self.smoothing)

    def scores(self, x: Floats) -> Floats:
        return self.rho * self.distance(x) - self.rows @ x

    def against(self, y: Floats) -> Any:
        return MovedBy(self, y)

    def ascent(self, x: Floats, y: Floats) -> Floats:
        return self.scores(x) + np.log1p(-y) - np.log(y)

    def project(self, y: Floats) -> Floats:
        return np.clip(y, self.least, 1 - self.least)

    def rise(self, x: Floats, y: Floats) -> float:
        z = self.scores(x)
        rise = np.logaddexp(0, z) - (y * z + entropy(y))
        return float(rise.clip(0).sum()) + 1e-13 * len(z) * (1 + np.abs(z).max(initial=0))


def entropy(a: Floats) -> Floats:
    return -(a * np.log(a) + (1 - a) * np.log1p(-a))


class Whole:
    """Of an objective over all of space: no projection, and no part of its sum alone."""

    def part(self, chosen: Any, w: Floats) -> Floats:
        raise NotImplementedError

    def project(self, w: Floats) -> Floats:
        return w

    def projection_error(self, w: Floats) -> float:
        return 0.0


@frozen(eq=False)
class MovedBy(Whole):
    """The learner's objective at given dual variables."""

    game: Moved
    a: Floats

    width = property(lambda self: self.game.rows.shape[1])
    parts = property(lambda self: len(self.a))
    strong_convexity = property(lambda self: self.game.ridge)
    lipschitz = property(lambda self: math.inf)

    @property
    def smoothness(self) -> float:
        return self.game.ridge + len(self.a) * self.game.rho / self.game.smoothing

    def value(self, w: Floats) -> float:
        losses = self.a @ self.game.scores(w) + entropy(self.a).sum()
        return float(losses + self.game.ridge / 2 * w @ w)

    def gradient(self, w: Floats) -> Floats:
        g = self.game
        return self.a.sum() * g.rho * w / g.distance(w) - self.a @ g.rows + g.ridge * w

    def rounding(self, w: Floats) -> float:
        size = 2 * len(self.a) + self.game.ridge * float(np.linalg.norm(w))
        return size * (len(self.a) + 16) * 2.0**-52


def moved_rows(x: Floats, labels: Floats, ridge: float) -> Moved:
    """A game for `adaptive_dp.erm.Game`: of slope 1.1 for rows of norm 1."""
    return Moved(x * labels[:, None], ridge)


def best_of_moved(game: Moved) -> tuple[Floats, Floats]:
    """An optimizer of it: over x alone, at the best answers."""

    def answers(w: Floats) -> Floats:
        return 1 / (1 + np.exp(-game.scores(w)))

    def worst(w: Floats) -> float:
        return float(np.logaddexp(0, game.scores(w)).sum() + game.ridge / 2 * w @ w)

    def slope(w: Floats) -> Floats:
        return np.asarray(game.against(answers(w)).gradient(w))

    start = np.zeros(game.rows.shape[1])
    w = optimize.minimize(worst, start, jac=slope, method="BFGS", tol=1e-9).x
    return w, answers(w)
