"""The certificate holds at every point: any search, any set, in floating point."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from attrs import evolve
from objectives import Machine, Odds, Squares, TiltedPair, random_model

from adaptive_dp.erm import Ball, Box, Ellipsoid, Everywhere, Set, Simplex, certify
from adaptive_dp.erm.objective import Floats

SETS = {
    "ball": Ball(0.7),
    "box": Box([-0.1, -0.2, 0.0], [0.3, 0.1, math.inf]),
    "simplex": Simplex(0.8),
    "ellipsoid": Ellipsoid([0.2, 1.0, 0.6]),
}


def exact_solution(model: Squares) -> list[Fraction]:
    """The minimizer of a ridge regression, in rationals."""
    p = model.width
    X = [[Fraction(float(v)) for v in row] for row in model.X]
    y = [Fraction(float(v)) for v in model.y]
    rows = [
        [sum(r[i] * r[j] for r in X) + (Fraction(model.ridge) if i == j else 0) for j in range(p)]
        + [sum(r[i] * t for r, t in zip(X, y, strict=True))]
        for i in range(p)
    ]
    for i in range(p):
        for k in range(p):
            if k != i:
                by = rows[k][i] / rows[i][i]
                rows[k] = [a - by * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [rows[i][p] / rows[i][i] for i in range(p)]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("ridge", [1e-9, 1.0])
def test_at_the_minimizer_rounding_is_inside(scale: float, ridge: float) -> None:
    """In exact arithmetic: at, next to and far from the minimizer."""
    rng = np.random.default_rng(11)
    for _ in range(6):
        X = rng.normal(size=(8, 3)) * [1.0, scale, 1.0]
        model = Squares(X, 1e3 * rng.normal(size=8), ridge)
        exact = exact_solution(model)
        best = np.array([float(v) for v in exact])
        for w in (best, np.nextafter(best, np.inf), best * (1 + 1e-9), best + 1.0):
            solution = certify(model, w)
            off = sum((Fraction(float(a)) - b) ** 2 for a, b in zip(solution.w, exact, strict=True))
            assert Fraction(model.ridge) ** 2 * off <= Fraction(solution.residual) ** 2
            assert solution.residual < math.inf


def isotropic(center: Floats, where: Set) -> Squares:
    """``2 |w - center|^2 + 2 |w|^2``: its minimizer is the projection of half the center."""
    return Squares(2 * np.eye(len(center)), 2 * center, 4.0, where)


def nearest(where: Set, point: Floats) -> Floats:
    """The projection with 40 digits, by bisection on its multiplier."""
    with mpmath.workdps(40):
        w = [mpmath.mpf(float(v)) for v in point]

        def root(at, level, high):  # type: ignore[no-untyped-def]
            low, high = mpmath.mpf(-high), mpmath.mpf(high)
            for _ in range(160):
                middle = (low + high) / 2
                low, high = (middle, high) if level(at(middle)) > 0 else (low, middle)
            return at(high)

        if isinstance(where, Ball):
            norm = mpmath.norm(w)
            end = [v * where.radius / norm for v in w] if norm > where.radius else w
        elif isinstance(where, Box):
            ends = zip(w, where.low, where.high, strict=True)
            end = [min(max(v, mpmath.mpf(a)), mpmath.mpf(b)) for v, a, b in ends]
        elif isinstance(where, Simplex):
            end = root(
                lambda c: [max(v - c, mpmath.mpf(0)) for v in w],
                lambda x: sum(x) - where.total,
                1e4,
            )
        else:
            assert isinstance(where, Ellipsoid)
            squares = [mpmath.mpf(float(a)) ** 2 for a in where.axes]

            def height(x):  # type: ignore[no-untyped-def]
                return sum(v**2 / a for v, a in zip(x, squares, strict=True)) - 1

            def at(c):  # type: ignore[no-untyped-def]
                c = abs(c)  # h falls in c > 0 alone; bisection starts at 0
                return [a * v / (a + c) for v, a in zip(w, squares, strict=True)]

            end = w if height(w) <= 0 else root(at, lambda x: height(x), 1e6)
        return end  # type: ignore[return-value]


@pytest.mark.parametrize("name", SETS)
def test_projections(name: str) -> None:
    """Row S0-07: the nearest point within `projection_error`, idempotent, not expanding."""
    where, rng = SETS[name], np.random.default_rng(12)
    for size in (1e-3, 0.5, 3.0, 1e3):
        for _ in range(10):
            v, w = rng.normal(size=(2, 3)) * size
            end, far = where.project(w), where.projection_error(w)
            exact = nearest(where, w)
            off = mpmath.norm([mpmath.mpf(float(a)) - b for a, b in zip(end, exact, strict=True)])
            assert off <= far
            assert far <= 1e-12 * max(1.0, size)
            again = where.project(end)
            assert np.linalg.norm(again - end) <= far + where.projection_error(end)
            apart = np.linalg.norm(where.project(v) - end)
            assert apart <= np.linalg.norm(v - w) + far + where.projection_error(v)


@pytest.mark.parametrize("name", SETS)
def test_every_point_of_every_set(name: str) -> None:
    """The bound holds where searches end and where none would: inside, outside, at the boundary."""
    where, rng = SETS[name], np.random.default_rng(13)
    seen = 0.0
    for _ in range(8):
        center = rng.normal(size=3)
        model = isotropic(center, where)
        exact = nearest(where, 0.5 * center)
        tops = np.array([float(v) for v in exact])
        for size in (0.0, 1e-15, 1e-9, 1e-2, 1.0):
            solution = certify(model, tops + size * rng.normal(size=3))
            far = mpmath.norm(
                [mpmath.mpf(float(a)) - b for a, b in zip(solution.w, exact, strict=True)]
            )
            assert model.strong_convexity * far <= solution.residual
            seen = max(seen, solution.residual)
            if size <= 1e-9:
                assert solution.residual <= 1e-11 + 20 * size
    assert seen < math.inf


def test_no_weaker_than_the_gradient_mapping() -> None:
    """With curvature in all directions, at random points of a ball and its boundary."""
    rng = np.random.default_rng(14)
    model = random_model(Squares, 14, set=Ball(0.2))
    for _ in range(100):
        w = model.project(rng.normal(size=3))
        ahead = model.project(w - model.gradient(w) / model.smoothness)
        mapping = model.smoothness * np.linalg.norm(w - ahead)
        assert certify(model, w).residual <= mapping * (1 + 1e-9) + 1e-12


def test_a_false_smoothness_costs_tightness_alone() -> None:
    model = random_model(Squares, 15)
    exact = exact_solution(model)
    for believed in (1e-3, 1.0, 1e9):
        false = evolve(model, believed=believed)
        for w in np.random.default_rng(16).normal(size=(20, 3)):
            solution = certify(false, w)
            off = math.hypot(*(a - float(b) for a, b in zip(solution.w, exact, strict=True)))
            assert model.strong_convexity * off <= solution.residual * (1 + 1e-12)


def test_errors_of_the_stated_size_are_inside() -> None:
    """A gradient, then a projection, that is off by what is stated, in the worst direction."""
    off = np.array([3e-3, -4e-3])

    class Skewed(Squares):
        def gradient(self, w: Floats) -> Floats:
            return super().gradient(w) + off

        def rounding(self, w: Floats) -> float:
            return 5e-3

    skewed = Skewed(np.zeros((1, 2)), np.zeros(1), 2.0)
    blind = -off / 2  # where the computed gradient is 0
    assert certify(skewed, blind).residual >= 2.0 * np.linalg.norm(blind)
    assert certify(skewed, blind).residual <= 5e-3 * 1.001

    class Shifted(Squares):
        def project(self, w: Floats) -> Floats:
            return w + off

        def projection_error(self, w: Floats) -> float:
            return 5e-3

    shifted = Shifted(np.array([[3.0, 0.0], [0.0, 1.0]]), np.zeros(2), 0.1)
    for w in np.random.default_rng(21).normal(size=(20, 2)) * 0.1:
        end = np.asarray(w)
        for _ in range(300):  # to where the computed gradient mapping is 0
            end = shifted.project(end - shifted.gradient(end) / shifted.smoothness)
        solution = certify(shifted, end - off)
        assert shifted.strong_convexity * np.linalg.norm(solution.w) <= solution.residual
        assert solution.residual <= 3 * shifted.smoothness * 5e-3
    assert np.linalg.norm(solution.w) > 5 * 5e-3


def test_a_false_solution_is_detected() -> None:
    """A point that is far from the minimizer has a residual of at least mu times how far."""
    model = random_model(Odds, 17)
    near = certify(model, np.zeros(3))
    for size in (0.1, 10.0, 1e5):
        lie = certify(model, near.w + size)
        assert lie.residual >= model.strong_convexity * size / 10
    for bad in (math.nan, math.inf):
        assert certify(model, np.array([bad, 0.0, 0.0])).residual == math.inf
    with pytest.raises(ValueError, match=r"\b3\b"):
        certify(model, np.zeros(4))


@pytest.mark.parametrize("gap", [math.nan, -1e-30, math.inf])
def test_a_gap_that_is_none_proves_nothing(gap: float) -> None:
    class Liar(Machine):
        def gap(self, w: Floats) -> float:
            return gap

    class Plain(Machine):
        gap = None  # type: ignore[assignment]

    model, plain = random_model(Liar, 18), random_model(Machine, 18)
    w = 0.05 * np.ones(3)
    by_slope = certify(model, w).residual
    assert by_slope > 1
    assert by_slope >= certify(plain, w).residual


def test_both_proofs_are_attained() -> None:
    """Row S3-14: on ``mu/2 w^2`` the slack is the distance itself."""

    class WithMinimum(TiltedPair):
        def gap(self, w: Floats) -> float:
            return self.value(w)

    class Kinked(WithMinimum):
        smoothness = math.inf  # type: ignore[assignment]

        def gradient(self, w: Floats) -> Floats:
            return np.full(1, 9.0)

    for f in (TiltedPair(), WithMinimum(), Kinked()):
        assert certify(f, np.array([0.25])).residual == pytest.approx(0.25, rel=1e-12)
        assert certify(f, np.array([0.25])).residual >= 0.25


def test_without_strong_convexity_a_gap_proves_nothing() -> None:
    class Flat(Machine):
        strong_convexity = property(lambda self: 0.0)

        def gap(self, w: Floats) -> float:
            return 1e-9

    assert certify(random_model(Flat, 19), 0.05 * np.ones(3)).residual > 1


def test_gap_bounds_the_distance() -> None:
    """Against the machine with one parameter, whose minimum a fine grid finds."""
    model = random_model(Machine, 20, n=15, p=1, ridge=3.0)
    grid = np.linspace(-3, 3, 60_001)
    z = model.X[:, 0][:, None] * grid
    values = np.maximum(0, 1 - model.y[:, None] * z).sum(axis=0) + 1.5 * grid**2
    best = float(grid[values.argmin()])
    for w in (best, best + 1e-3, 0.0, 2.0):
        solution = certify(model, np.array([w]))
        assert (
            model.strong_convexity * (abs(float(solution.w[0]) - best) - 1e-4) <= solution.residual
        )
    assert certify(model, np.array([best])).residual < 0.1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Ball(0.0), r"Ball\.radius.*0\.0"),
        (lambda: Ball(math.nan), "Ball.radius"),
        (lambda: Simplex(-1.0), "Simplex.total"),
        (lambda: Box([0.0, 2.0], [1.0, 1.0]), "Box"),
        (lambda: Box([0.0], [1.0, 1.0]), "Box"),
        (lambda: Box([math.nan], [1.0]), "list of numbers"),
        (lambda: Ellipsoid([1.0, 0.0]), "Ellipsoid.axes"),
    ],
)
def test_sets_refuse_what_is_none(make, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=said):
        make()


def test_everywhere_moves_nothing() -> None:
    w = np.array([1e300, -0.0])
    assert Everywhere().project(w) is w
    assert Everywhere().projection_error(w) == 0
    assert np.isfinite(Ball(1.0).project(w)).all()
