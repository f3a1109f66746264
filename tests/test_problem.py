"""Empirical, tilted and adversarial risk against finite differences, exact sums, brute force."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from adaptive_dp import erm as pb
from adaptive_dp.erm.objective import Objective
from adaptive_dp.erm.problem import rows_a_block


def rows(n: int, p: int, seed: int, norm: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    return norm * x / np.linalg.norm(x, axis=1)[:, None] * (1 - 1e-15)


def problem(loss: pb.Loss, n: int = 40, p: int = 3, seed: int = 0, **more: Any) -> pb.Problem:
    rng = np.random.default_rng(seed + 100)
    if loss.labels == "sign":
        y = rng.choice([-1.0, 1.0], n)
    elif loss.labels == "class":
        y = rng.integers(0, loss.outputs, n).astype(float)
    else:
        y = rng.uniform(0, 1, n)
    given = {"row_norm": 1.0, "ridge": 0.3, "radius": 2.0, **more}
    return pb.Problem(rows(n, p, seed, given["row_norm"]), y, loss, **given)


LOSSES = [
    pb.Logistic(),
    pb.Squared(),
    pb.SmoothedHinge(0.5),
    pb.HuberHinge(0.5),
    pb.Huber(0.5),
    pb.Poisson(most=2.0),
    pb.Multinomial(4),
]
KINKED = [pb.Hinge(), pb.Absolute()]


def objectives() -> list[Objective]:
    smooth: list[Objective] = [problem(loss) for loss in LOSSES]
    tilted: list[Objective] = [pb.Tilted(problem(loss), 2.5) for loss in LOSSES]
    transformed: list[Objective] = [
        pb.Adversarial(problem(pb.Logistic()), 0.2, norm) for norm in (1.0, 2.0, math.inf)
    ]
    means: list[Objective] = [pb.Mean(problem(loss)) for loss in LOSSES[:2]]
    return [*smooth, *tilted, *transformed, *means]


def name_of(one: Any) -> str:
    inner = one if isinstance(one, pb.Problem) else one.problem
    return f"{type(one).__name__}-{type(inner.loss).__name__}{getattr(one, 'norm', '')}"


@pytest.mark.parametrize("one", objectives(), ids=name_of)
def test_gradient_is_that_of_finite_differences(one: Objective) -> None:
    rng, h = np.random.default_rng(1), 1e-5
    for _ in range(5):
        w = rng.normal(size=one.width) * 0.5
        grad = one.gradient(w)
        by_value = [
            (one.value(w + h * e) - one.value(w - h * e)) / (2 * h) for e in np.eye(one.width)
        ]
        assert np.allclose(grad, by_value, rtol=1e-6, atol=1e-6 * max(1, one.parts))
        every = np.arange(one.parts)
        assert np.allclose(one.part(every, w), grad, rtol=1e-12, atol=1e-12)
        halves = one.part(every[::2], w) + one.part(every[1::2], w)
        assert np.allclose(halves, grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("one", [*objectives(), *(problem(loss) for loss in KINKED)], ids=name_of)
def test_constants_hold_between_any_two_points(one: Objective) -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        a, b = (one.project(rng.normal(size=one.width) * 2) for _ in range(2))
        b = a + (b - a) * 10.0 ** rng.uniform(-2, 0)
        apart = np.linalg.norm(a - b)
        ga, gb, fa, fb = one.gradient(a), one.gradient(b), one.value(a), one.value(b)
        assert np.linalg.norm(ga - gb) <= one.smoothness * apart * (1 + 1e-9)
        assert abs(fa - fb) <= one.lipschitz * apart * (1 + 1e-9)
        assert np.linalg.norm(ga) <= one.lipschitz * (1 + 1e-12)
        assert (ga - gb) @ (a - b) >= one.strong_convexity * apart**2 - 1e-9
        assert fb >= fa + ga @ (b - a) + one.strong_convexity / 2 * apart**2 - 1e-9


@pytest.mark.parametrize(("n", "p"), [(500, 5), (40, 3), (3, 40), (7, 7), (1, 1)])
@pytest.mark.parametrize("loss", [pb.Logistic(), pb.Squared()], ids=["logistic", "squared"])
def test_convexity_and_smoothness_are_those_of_the_extreme_eigenvalues(
    loss: pb.Loss, n: int, p: int
) -> None:
    """Ridge: ``lam + lam_min`` and ``lam + lam_max`` of x'x; logistic ``lam + lam_max / 4``."""
    one = problem(loss, n=n, p=p)
    # to fifty digits: the bounds hold with every rounding
    with mpmath.workdps(50):
        x = mpmath.matrix(one.x.tolist())
        small = mpmath.eigsy(x * x.T if n < p else x.T * x, eigvals_only=True)
        least, largest = max(min(small), mpmath.mpf(0)) if n >= p else mpmath.mpf(0), max(small)
        beta = one.constants.smoothness * largest + mpmath.mpf(one.ridge)
        mu = one.constants.curvature * least + mpmath.mpf(one.ridge)
        assert beta <= one.smoothness <= beta * (1 + 1e-11)
        assert mu * (1 - 1e-11) - 1e-12 <= one.strong_convexity <= mu
    if isinstance(loss, pb.Squared):
        eigenvalues = np.linalg.eigvalsh(one.hessian(np.zeros(p)))
        assert one.strong_convexity == pytest.approx(eigenvalues[0], rel=1e-8)
        assert one.smoothness == pytest.approx(eigenvalues[-1], rel=1e-8)
    # what moves the minimizer of other objectives is not this problem's least eigenvalue
    ridge = math.nextafter(one.ridge, 0)
    assert pb.Tilted(one, 1.0).strong_convexity == ridge
    assert pb.Adversarial(problem(pb.Logistic(), n=n, p=p), 0.1).strong_convexity == ridge


def test_many_columns_are_bounded_in_one_pass() -> None:
    x = np.zeros((2000, 1100))
    x[:1100] = np.eye(1100)
    one = pb.Problem(x, np.zeros(2000), pb.Squared(), row_norm=1.0, ridge=0.5)
    assert one.spectrum[0] == 0
    assert one.spectrum[1] >= 1
    assert one.strong_convexity == pytest.approx(0.5)
    single = pb.Problem(np.full((1, 1), 0.5), np.ones(1), pb.Logistic(), row_norm=0.5)
    assert single.smoothness == pytest.approx(0.25 * 0.5**2)  # c_x^2 / 4


def test_a_wrong_declaration_is_not_trusted_below_what_is_proven() -> None:
    """A caller's `proven` counts where it is more, and the least eigenvalue where that is."""
    one = problem(pb.Squared())
    for proven in (0.0, 0.5 * one.strong_convexity, 2 * one.strong_convexity):
        more = problem(pb.Squared(), proven=proven)
        least = max(one.strong_convexity, proven + 0.3)
        assert more.strong_convexity == pytest.approx(least, rel=1e-12)


def test_the_mean_and_the_sum_are_one_problem() -> None:
    """L to n L, mu to n mu, one minimizer; a row moves it by 2 L / (n mu) in either convention."""
    loss, given = pb.Squared(), {"row_norm": 1.0, "radius": 2.0}
    x, y = rows(40, 3, 0), np.random.default_rng(5).uniform(-1, 1, 40)
    mean = pb.Mean.of(x, y, loss, ridge=0.25, **given)
    total = pb.Problem(x, y, loss, ridge=10.0, **given)
    assert mean.ridge == 0.25
    assert mean.problem.ridge == total.ridge
    assert pb.Mean(total).problem is total
    for name in ("lipschitz", "strong_convexity", "smoothness"):
        one, n_times = getattr(mean, name), getattr(total, name)
        assert one * 40 == pytest.approx(n_times, rel=1e-15)
        # outward, as rationals
        less = name == "strong_convexity"
        exact = Fraction(n_times) / 40
        assert Fraction(one) <= exact if less else Fraction(one) >= exact
    w = np.array([0.3, -0.1, 0.2])
    by_hand = np.mean((x @ w - y) ** 2) / 2 + 0.125 * w @ w
    assert mean.value(w) == pytest.approx(by_hand, rel=1e-12)
    exact_error = exact_gradient(total, w) / 40 - mean.gradient(w)
    assert float(mpmath.sqrt(mpmath.fsum(v * v for v in exact_error))) <= mean.rounding(w)
    # (X'X + n lam I)^-1 X'y is the mean's ridge regression
    closed = np.linalg.solve(x.T @ x + 40 * 0.25 * np.eye(3), x.T @ y)
    for objective, tolerance in ((mean, 1e-10), (total, 4e-9)):
        np.testing.assert_allclose(pb.minimize(objective, tolerance).w, closed, atol=1e-9)
    with pytest.raises(ValueError, match="at least one row"):
        pb.Mean.of(x[:0], y[:0], loss, **given)


@pytest.mark.parametrize("given", [lambda x: 1.0, np.ones(3)], ids=["function", "array"])
def test_a_regularizer_that_data_enter_is_refused(given: Any) -> None:
    for declare in (
        lambda: problem(pb.Logistic(), ridge=given),
        lambda: pb.Mean.of(rows(3, 2, 0), np.ones(3), pb.Logistic(), row_norm=1.0, ridge=given),
        lambda: pb.Ridge(given),
        lambda: pb.L1(given),
    ):
        with pytest.raises(ValueError, match="must be a number, which no data enter"):
            declare()


def exact_gradient(one: pb.Problem, w: np.ndarray) -> np.ndarray:
    """The gradient to fifty digits, of the logistic or the squared loss."""
    total = [mpmath.mpf(0)] * len(w)
    for row, label in zip(one.x, one.y, strict=True):
        z = mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(b) for a, b in zip(row, w, strict=True))
        y = mpmath.mpf(label)
        slope = z - y if isinstance(one.loss, pb.Squared) else -y / (1 + mpmath.exp(y * z))
        total = [t + slope * mpmath.mpf(a) for t, a in zip(total, row, strict=True)]
    return np.array(
        [t + mpmath.mpf(one.ridge) * mpmath.mpf(b) for t, b in zip(total, w, strict=True)]
    )


@pytest.mark.parametrize("loss", [pb.Logistic(), pb.Squared()])
@pytest.mark.parametrize("norm", [1.0, 1e3])
def test_rounding_bounds_the_error_of_a_gradient(loss: pb.Loss, norm: float) -> None:
    one = problem(loss, n=700, p=4, row_norm=norm)
    rng = np.random.default_rng(3)
    with mpmath.workdps(50):
        for _ in range(3):
            w = one.project(rng.normal(size=4) * 10)
            off = exact_gradient(one, w) - one.gradient(w)
            error = float(mpmath.sqrt(mpmath.fsum(v * v for v in off)))
            assert error <= one.rounding(w)
            assert one.rounding(w) <= 1e6 * max(error, 1e-15 * one.lipschitz)


def test_several_blocks_against_longer_floats() -> None:
    one = problem(pb.Logistic(), n=600, p=1100)
    assert rows_a_block(1100) < 600
    w = one.project(np.random.default_rng(9).normal(size=1100))
    x, y, long = one.x.astype(np.longdouble), one.y.astype(np.longdouble), w.astype(np.longdouble)
    z = (x * long).sum(axis=1)
    exact = ((-y / (1 + np.exp(y * z)))[:, None] * x).sum(axis=0) + one.ridge * long
    assert np.linalg.norm((exact - one.gradient(w)).astype(float)) <= one.rounding(w) < 1e-9
    assert one.value(w) == pytest.approx(
        float(np.log1p(np.exp(-y * z)).sum() + one.ridge / 2 * (long @ long)), rel=1e-13
    )
    tilted = pb.Tilted(one, 2.0)
    weights = (1 + np.exp(-y * z)) ** 2
    weights /= weights.sum()
    exact = ((-y * weights / (1 + np.exp(y * z)))[:, None] * x).sum(axis=0) + one.ridge * long
    assert np.linalg.norm((exact - tilted.gradient(w)).astype(float)) <= tilted.rounding(w) < 1e-9


def test_rounding_of_a_tilted_gradient() -> None:
    one = pb.Tilted(problem(pb.Logistic(), n=60), 3.0)
    p, rng = one.problem, np.random.default_rng(4)
    with mpmath.workdps(50):
        for _ in range(3):
            w = one.project(rng.normal(size=3) * 5)
            z = [
                mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(b) for a, b in zip(r, w, strict=True))
                for r in p.x
            ]
            f = [mpmath.log(1 + mpmath.exp(-y * s)) for y, s in zip(p.y, z, strict=True)]
            e = [mpmath.exp(3 * v) for v in f]
            total = [mpmath.mpf(p.ridge) * mpmath.mpf(v) for v in w]
            for row, y, s, weight in zip(p.x, p.y, z, e, strict=True):
                slope = -y / (1 + mpmath.exp(y * s)) * weight / mpmath.fsum(e)
                total = [t + slope * mpmath.mpf(a) for t, a in zip(total, row, strict=True)]
            error = mpmath.norm(
                [t - mpmath.mpf(g) for t, g in zip(total, one.gradient(w), strict=True)]
            )
            assert error <= one.rounding(w) < 1e-11


def test_rounding_grows_with_the_parameters() -> None:
    loose = problem(pb.Squared(), radius=None)
    sizes = [loose.rounding(np.full(3, size)) for size in (0.0, 1.0, 1e3, 1e9)]
    assert 0 < sizes[0] <= sizes[1] < 1e-10 < sizes[3]
    assert sizes == sorted(sizes)
    assert loose.rounding(np.full(3, math.inf)) == loose.rounding(np.full(3, math.nan)) == math.inf


def test_risk_is_the_sum() -> None:
    one = problem(pb.Squared(), ridge=0.0)
    w = np.array([0.5, -1.0, 0.25])
    exact = sum(
        (sum(Fraction(a) * Fraction(b) for a, b in zip(r, w, strict=True)) - Fraction(y)) ** 2 / 2
        for r, y in zip(one.x, one.y, strict=True)
    )
    assert one.value(w) == pytest.approx(float(exact), rel=1e-13)
    twice = pb.Problem(
        np.vstack([one.x, one.x]), np.concatenate([one.y, one.y]), one.loss, row_norm=1.0
    )
    assert twice.value(w) == pytest.approx(2 * one.value(w), rel=1e-13)


def test_multinomial_parameters_are_flattened_by_rows() -> None:
    one = problem(pb.Multinomial(4), ridge=0.0)
    w = np.random.default_rng(5).normal(size=12)
    z = one.x @ w.reshape(4, 3).T
    log_p = z - np.log(np.exp(z).sum(axis=1))[:, None]
    assert one.value(w) == pytest.approx(-log_p[np.arange(40), one.y.astype(int)].sum(), rel=1e-13)


def test_no_rows_leave_the_ridge() -> None:
    none = pb.Problem(np.zeros((0, 2)), np.zeros(0), pb.Hinge(), row_norm=1.0, ridge=2.0)
    assert np.array_equal(none.gradient(np.ones(2)), [2.0, 2.0])
    assert none.parts == 0
    assert none.value(np.ones(2)) == 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_norm": 0.5}, r"Problem\.row_norm"),
        ({"row_norm": math.nan}, "row_norm"),
        ({"ridge": -1.0}, "ridge"),
        ({"radius": 0.0}, "radius"),
        ({"proven": math.inf}, "proven"),
        ({"x": np.full((2, 2), math.nan)}, r"Problem\.row_norm"),
        ({"y": np.array([7.125, 1.0])}, "-1 or 1"),
        ({"y": np.ones(3)}, "shape"),
        ({"x": np.eye(2, dtype=np.float32)}, "float64"),
    ],
)
def test_what_is_not_as_declared_is_refused(change: dict[str, Any], message: str) -> None:
    given = {"x": np.eye(2), "y": np.ones(2), "loss": pb.Logistic(), "row_norm": 1.0, **change}
    with pytest.raises(ValueError, match=message) as caught:
        pb.Problem(**given)
    assert "7.125" not in str(caught.value)


def test_data_is_not_printed() -> None:
    one = problem(pb.Logistic())
    for text in (repr(one), repr(pb.Tilted(one, 1.0)), repr(pb.Adversarial(one, 0.1))):
        assert "array" not in text
        assert "largest" not in text


# tilted


def test_tilt_to_zero_is_the_mean_and_to_infinity_the_largest() -> None:
    plain = problem(pb.Logistic(), ridge=0.0)
    w = np.array([0.5, -0.3, 1.0])
    losses = plain.loss.value((plain.x @ w)[None], plain.y)
    assert pb.Tilted(plain, 1e-6).value(w) == pytest.approx(losses.mean(), abs=1e-5)
    assert pb.Tilted(plain, 500.0).value(w) == pytest.approx(losses.max(), abs=1e-2)
    mean = plain.gradient(w) / plain.parts
    assert np.allclose(pb.Tilted(plain, 1e-7).gradient(w), mean, atol=1e-6)


def test_tilted_risk_at_an_exponent_of_a_thousand() -> None:
    one = pb.Tilted(problem(pb.Logistic(), ridge=1.0, radius=10.0), 100.0)
    c = one.problem.constants
    assert one.tilt * (c.highest - c.lowest) >= 1e3
    for scale in (0.0, 1.0, 10.0):
        w = one.project(np.full(3, scale))
        assert math.isfinite(one.value(w))
        assert np.linalg.norm(one.gradient(w)) <= one.lipschitz
    assert one.sensitivity == pytest.approx(2 * one.problem.row_lipschitz, rel=1e-9)
    assert one.rounding(w) <= 2 * one.lipschitz + 1e-9


def minimizer(one: Objective) -> float:
    """Return the minimizer on [-1, 1] of one parameter: where its derivative turns."""
    low, high = -1.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if one.gradient(np.array([middle]))[0] < 0 else (low, middle)
    return low


@pytest.mark.parametrize("tilt", [0.1, 1.0, 8.0])
def test_no_row_moves_the_tilted_minimizer_further(tilt: float) -> None:
    """Brute force over small data sets and replacements: replace-one and removal."""
    rng, worst = np.random.default_rng(6), 0.0
    for n in (2, 5):
        for _ in range(12):
            signs = rng.choice([-1.0, 1.0], (n, 2))
            x, y = signs[:, :1] * (1 - 1e-15), signs[:, 1].copy()
            given = {"row_norm": 1.0, "ridge": 1.0, "radius": 1.0}
            one = pb.Tilted(pb.Problem(x, y, pb.Logistic(), **given), tilt)
            other_y = y.copy()
            other_y[0] = -y[0]
            other = pb.Tilted(pb.Problem(x, other_y, pb.Logistic(), **given), tilt)
            less = pb.Tilted(pb.Problem(x[1:], y[1:], pb.Logistic(), **given), tilt)
            here = minimizer(one)
            for there in (other, less):
                change = abs(here - minimizer(there))
                assert change <= one.sensitivity
                worst = max(worst, change / one.sensitivity)
    assert worst > 0.15, "the bound says nothing"


def test_tilted_sensitivity_is_the_sharp_form() -> None:
    """C / (C + n - 1) with C = e^{t (A - a)} = e and n = 100: .026724, below e / n = .027183."""
    plain = problem(pb.Logistic(), n=100, ridge=2.0, radius=1.0)
    c = plain.constants
    one = pb.Tilted(plain, 1 / (c.highest - c.lowest))
    assert one.sensitivity / (2 * plain.row_lipschitz / 2.0) == pytest.approx(0.026724, abs=1e-6)
    assert pb.Tilted(plain, 1e-9).sensitivity == pytest.approx(
        2 * plain.row_lipschitz / (2.0 * 100), rel=1e-6
    )


@pytest.mark.parametrize("tilt", [-1.0, 0.0, math.inf, math.nan])
def test_tilts_without_a_theorem_are_refused(tilt: float) -> None:
    with pytest.raises(ValueError, match=r"Tilted\.tilt"):
        pb.Tilted(problem(pb.Logistic()), tilt)


# adversarial


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("loss", [pb.Logistic(), pb.Hinge(), pb.SmoothedHinge(), pb.HuberHinge()])
def test_worst_loss_is_the_largest_over_moves(loss: pb.Loss, norm: float) -> None:
    plain = problem(loss, n=4)
    one, rng = pb.Adversarial(plain, 0.4, norm), np.random.default_rng(7)
    moves = rng.normal(size=(20000, 3))
    moves = np.vstack([moves, np.sign(moves[:100]), np.eye(3), -np.eye(3)])
    moves *= 0.4 / np.linalg.norm(moves, norm, axis=1)[:, None]
    for _ in range(3):
        w = rng.normal(size=3)
        total = plain.ridge / 2 * w @ w
        for row, label in zip(plain.x, plain.y, strict=True):
            z = (row + moves) @ w
            total += loss.value(z[None], np.full(len(z), label)).max()
        assert total <= one.value(w) + 1e-12
        assert total >= one.value(w) - 2e-3


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_adversarial_subgradients_and_constants(norm: float) -> None:
    one, rng = pb.Adversarial(problem(pb.Hinge()), 0.3, norm), np.random.default_rng(8)
    stretch = math.sqrt(3) if norm == math.inf else 1.0
    assert one.row_lipschitz == pytest.approx(1 + 0.3 * stretch, rel=1e-9)
    assert one.strong_convexity == pytest.approx(0.3)
    assert one.smoothness == math.inf
    for _ in range(200):
        a, b = (one.project(rng.normal(size=3) * rng.choice([0.0, 1.0])) for _ in range(2))
        g = one.gradient(a)
        assert (
            one.value(b)
            >= one.value(a) + g @ (b - a) + one.strong_convexity / 2 * (a - b) @ (a - b) - 1e-9
        )
        assert np.linalg.norm(g) <= one.lipschitz


def test_the_norm_of_tiny_parameters_does_not_underflow() -> None:
    one, w = pb.Adversarial(problem(pb.Hinge(), ridge=0.0), 1.0), np.full(3, 1e-200)
    slope = one.gradient(w) - pb.Adversarial(one.problem, 0.0).gradient(w)
    assert np.allclose(slope, 40 / math.sqrt(3))


def test_no_budget_is_the_plain_problem() -> None:
    plain, w = problem(pb.Logistic()), np.array([0.2, 0.4, -1.0])
    one = pb.Adversarial(plain, 0.0)
    assert one.value(w) == plain.value(w)
    assert np.array_equal(one.gradient(w), plain.gradient(w))


def test_losses_without_a_worst_margin_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Adversarial.*Squared"):
        pb.Adversarial(problem(pb.Squared()), 0.1)
    with pytest.raises(ValueError, match=r"Adversarial\.norm"):
        pb.Adversarial(problem(pb.Hinge()), 0.1, 3.0)
    with pytest.raises(ValueError, match=r"Adversarial\.budget"):
        pb.Adversarial(problem(pb.Hinge()), -0.1)
