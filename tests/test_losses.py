"""Losses against finite differences, dense grids and scikit-learn-like closed forms."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp import erm as pb
from adaptive_dp.erm import losses
from adaptive_dp.erm.loss import above, below, gamma, labels_are_valid


def expit(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


GAUSSIAN = pb.GeneralizedLinear(
    lambda z: z * z / 2, lambda z: z, lambda z: np.ones_like(z), lambda r: (1.0, 1.0)
)
BERNOULLI = pb.GeneralizedLinearCount(
    lambda z: np.logaddexp(0, z),
    expit,
    lambda z: expit(z) * expit(-z),
    lambda r: (float(expit(-r) * expit(r)) * (1 - 1e-12), 0.25),
    most=1,
)
EXPONENTIAL = pb.GeneralizedLinearCount(
    np.exp, np.exp, np.exp, lambda r: (math.exp(-r), float(np.exp(r))), most=3.0
)
LOSSES = [
    pb.Logistic(),
    pb.Squared(),
    pb.Hinge(),
    pb.SmoothedHinge(0.3),
    pb.HuberHinge(0.4),
    pb.Huber(0.7),
    pb.Absolute(),
    pb.Poisson(most=3.0),
    pb.Multinomial(2),
    pb.Multinomial(5),
    GAUSSIAN,
    BERNOULLI,
    EXPONENTIAL,
]
IDS = [f"{type(loss).__name__}{i}" for i, loss in enumerate(LOSSES)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=IDS)


def labels(loss: pb.Loss, n: int, rng: np.random.Generator) -> np.ndarray:
    """Labels of the kind, the ends among them."""
    if loss.labels == "sign":
        return rng.choice([-1.0, 1.0], n)
    if loss.labels == "class":
        return rng.integers(0, loss.outputs, n).astype(float)
    low, high = (-1.0, 1.0) if loss.labels == "number" else (0.0, loss.most)  # type: ignore[attr-defined]
    return rng.choice([low, high, *rng.uniform(low, high, 5)], n)


def scores(loss: pb.Loss, n: int, largest_score: float, rng: np.random.Generator) -> np.ndarray:
    """Scores of every norm up to the reach, many on its edge."""
    if loss.outputs == 1:
        return np.linspace(-largest_score, largest_score, n)[None]
    z = rng.normal(size=(loss.outputs, n))
    z[:, ::4] = 0
    z[0, ::4], z[1, ::4] = 1, -1  # the two furthest apart
    far = np.where(rng.random(n) < 0.5, 1.0, rng.random(n)) * largest_score * (1 - 1e-15)
    return z / np.linalg.norm(z, axis=0) * far


@each_loss
def test_derivatives_are_those_of_finite_differences(loss: pb.Loss) -> None:
    rng = np.random.default_rng(1)
    n, h = 400, 1e-5
    z, y = rng.normal(scale=1.5, size=(loss.outputs, n)), labels(loss, n, rng)
    slope, second = loss.slope(z, y), loss.second(z, y)
    assert slope.shape == z.shape
    assert second.shape == (loss.outputs, *z.shape)
    smooth = np.ones(n, bool)
    if loss.outputs == 1:  # within h of a kink, of the loss or of its slope, nothing is asked
        kinked = np.abs(loss.slope(z + h, y) - loss.slope(z - h, y))[0] > 100 * h
        bent = np.abs(loss.second(z + h, y) - loss.second(z - h, y))[0, 0] > 1e-3
        smooth = ~(kinked | bent)
        assert smooth.mean() > 0.95
    for j in range(loss.outputs):
        step = np.zeros_like(z)
        step[j] = h
        by_value = (loss.value(z + step, y) - loss.value(z - step, y)) / (2 * h)
        by_slope = (loss.slope(z + step, y) - loss.slope(z - step, y)) / (2 * h)
        assert np.allclose(by_value[smooth], slope[j, smooth], rtol=1e-6, atol=1e-6)
        assert np.allclose(by_slope[:, smooth], second[:, j, smooth], rtol=1e-6, atol=1e-6)


@each_loss
@pytest.mark.parametrize("largest_score", [0.0, 1e-9, 0.4, 1.0, 3.0, 30.0, 1000.0, math.inf])
def test_constants_bound_every_score_within_reach(loss: pb.Loss, largest_score: float) -> None:
    rng = np.random.default_rng(2)
    n = 4001
    z = scores(loss, n, min(largest_score, 600.0), rng)
    c = loss.constants(largest_score)
    with np.errstate(over="ignore", under="ignore"):
        for y in (labels(loss, n, rng) for _ in range(4)):
            value, slope, second = loss.value(z, y), loss.slope(z, y), loss.second(z, y)
            assert np.all(np.linalg.norm(slope, axis=0) <= c.lipschitz)
            assert np.all(value <= c.highest)
            slack = 1e-12 * (1 + abs(c.lowest)) if "Generalised" in type(loss).__name__ else 0
            assert np.all(value >= c.lowest - slack)
            if not np.all(np.isfinite(second)):
                assert c.smoothness == math.inf
                continue
            eigen = np.linalg.eigvalsh(np.moveaxis(second, 2, 0))
            assert eigen.max() <= c.smoothness * (1 + 1e-14)
            assert eigen.min() >= c.curvature - 1e-14


@each_loss
@pytest.mark.parametrize("largest_score", [0.5, 2.0])
def test_constants_are_nearly_attained(loss: pb.Loss, largest_score: float) -> None:
    """Bounds that are far too large would pass the test above."""
    rng = np.random.default_rng(3)
    n = 40001 if loss.outputs == 1 else 4001
    z, c = scores(loss, n, largest_score, rng), loss.constants(largest_score)
    ends = [labels(loss, n, rng) for _ in range(8)]
    steepest = max(np.linalg.norm(loss.slope(z, y), axis=0).max() for y in ends)
    assert steepest >= c.lipschitz * (0.99 if loss.outputs < 3 else 0.75)
    values = np.array([loss.value(z, y) for y in ends])
    room = 0.01 if loss.outputs < 3 else 0.5
    assert values.max() >= c.highest * (1 - room)
    assert values.min() <= c.lowest + room * (1 + abs(c.lowest))


@each_loss
def test_a_column_is_read_by_itself_to_the_last_bit(loss: pb.Loss) -> None:
    """However many other rows there are, and at any position."""
    rng = np.random.default_rng(4)
    n = 67
    z, y = rng.normal(scale=3, size=(loss.outputs, n)), labels(loss, n, rng)
    for name in ("value", "slope", "second"):
        f = getattr(loss, name)
        together = f(z, y)
        for i in range(n):
            alone = f(np.ascontiguousarray(z[:, i : i + 1]), y[i : i + 1])
            assert np.array_equal(alone[..., 0], together[..., i])
        order = rng.permutation(n)[:41]
        assert np.array_equal(f(np.ascontiguousarray(z[:, order]), y[order]), together[..., order])


@given(
    st.sampled_from(LOSSES),
    st.floats(-50, 50),
    st.floats(-50, 50),
    st.floats(0, 1),
    st.integers(0, 2**31),
)
@examples(300)
def test_convex_and_lipschitz_between_any_two_scores(
    loss: pb.Loss, a: float, b: float, s: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = labels(loss, 1, rng)
    way = rng.normal(size=(loss.outputs, 1)) if loss.outputs > 1 else np.ones((1, 1))
    way /= np.linalg.norm(way)
    fa, fb, fc = (float(loss.value(t * way, y)[0]) for t in (a, b, s * a + (1 - s) * b))
    size = 1e-12 * (1 + abs(fa) + abs(fb))
    assert fc <= s * fa + (1 - s) * fb + size
    c = loss.constants(max(abs(a), abs(b)))
    assert abs(fa - fb) <= c.lipschitz * abs(a - b) * (1 + 1e-12) + size
    assert c.lowest - size <= min(fa, fb)
    assert max(fa, fb) <= c.highest


@given(st.sampled_from(LOSSES), st.floats(0, 40), st.floats(0, 40))
@examples(200)
def test_constants_grow_with_the_reach(loss: pb.Loss, a: float, b: float) -> None:
    near, far = loss.constants(min(a, b)), loss.constants(max(a, b))
    wide = 1 + 1e-11
    assert near.lipschitz <= far.lipschitz * wide
    assert near.smoothness <= far.smoothness * wide
    assert near.curvature * wide >= far.curvature
    assert near.lowest >= far.lowest - 1e-10 * (1 + abs(far.lowest))
    assert near.highest <= far.highest * wide


REFERENCES = {
    pb.Logistic(): lambda z, y: (mpmath.log(1 + mpmath.exp(-y * z)), -y / (1 + mpmath.exp(y * z))),
    pb.Squared(): lambda z, y: ((z - y) ** 2 / 2, z - y),
    pb.Hinge(): lambda z, y: (max(mpmath.mpf(0), 1 - y * z), -y if y * z < 1 else 0),
    pb.Absolute(): lambda z, y: (abs(z - y), mpmath.sign(z - y)),
    pb.Poisson(most=3.0): lambda z, y: (mpmath.exp(z) - y * z, mpmath.exp(z) - y),
    pb.Huber(0.7): lambda z, y: (
        ((z - y) ** 2 / 2, z - y)
        if abs(z - y) <= mpmath.mpf(0.7)
        else (
            mpmath.mpf(0.7) * abs(z - y) - mpmath.mpf(0.7) ** 2 / 2,
            mpmath.mpf(0.7) * mpmath.sign(z - y),
        )
    ),
    pb.HuberHinge(0.4): lambda z, y: _huber_hinge(y * z, y),
    pb.SmoothedHinge(0.3): lambda z, y: _smoothed(y * z, y),
}


def _huber_hinge(m: mpmath.mpf, y: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    h = mpmath.mpf(0.4)
    if m > 1 + h:
        return mpmath.mpf(0), mpmath.mpf(0)
    if m < 1 - h:
        return 1 - m, mpmath.mpf(-y)
    return (1 + h - m) ** 2 / (4 * h), -y * (1 + h - m) / (2 * h)


def _smoothed(m: mpmath.mpf, y: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    h = mpmath.mpf(0.3)
    if m >= 1:
        return mpmath.mpf(0), mpmath.mpf(0)
    if m <= 1 - h:
        return 1 - m - h / 2, mpmath.mpf(-y)
    return (1 - m) ** 2 / (2 * h), -y * (1 - m) / h


@pytest.mark.parametrize("loss", REFERENCES, ids=lambda loss: type(loss).__name__)
def test_rounding_bounds_the_error_against_fifty_digits(loss: pb.Loss) -> None:
    rng = np.random.default_rng(5)
    for largest_score in (0.01, 1.0, 20.0):
        allowed, worst = loss.rounding(largest_score), 0.0
        z, y = rng.uniform(-largest_score, largest_score, 150), labels(loss, 150, rng)
        value, slope = loss.value(z[None], y), loss.slope(z[None], y)[0]
        with mpmath.workdps(50):
            for i in range(150):
                v, s = REFERENCES[loss](mpmath.mpf(z[i]), float(y[i]))
                assert abs(mpmath.mpf(value[i]) - v) <= allowed.value
                assert abs(mpmath.mpf(slope[i]) - s) <= allowed.slope
                worst = max(worst, float(abs(mpmath.mpf(value[i]) - v)))
        assert allowed.value <= 1e3 * max(worst, 2e-16), "the bound says nothing"


def test_multinomial_rounding_against_fifty_digits() -> None:
    loss, rng = pb.Multinomial(7), np.random.default_rng(6)
    for largest_score in (1.0, 50.0):
        z, y = scores(loss, 60, largest_score, rng), labels(loss, 60, rng)
        allowed, value, slope = loss.rounding(largest_score), loss.value(z, y), loss.slope(z, y)
        with mpmath.workdps(50):
            for i in range(60):
                e = [mpmath.exp(mpmath.mpf(v)) for v in z[:, i]]
                own = int(y[i])
                v = mpmath.log(mpmath.fsum(e)) - mpmath.mpf(z[own, i])
                off = [
                    mpmath.mpf(slope[j, i]) - (e[j] / mpmath.fsum(e) - (j == own)) for j in range(7)
                ]
                assert abs(mpmath.mpf(value[i]) - v) <= allowed.value
                assert mpmath.norm(off) <= allowed.slope


def test_generalised_linear_losses_are_the_named_ones() -> None:
    z, y = np.linspace(-4, 4, 81)[None], np.random.default_rng(7).uniform(-1, 1, 81)
    squared = pb.Squared()
    assert np.allclose(GAUSSIAN.value(z, y) + y * y / 2, squared.value(z, y), atol=1e-12)
    assert np.array_equal(GAUSSIAN.slope(z, y), squared.slope(z, y))
    sign = np.where(y > 0, 1.0, -1.0)
    logistic, zero_one = pb.Logistic(), (sign + 1) / 2
    assert np.allclose(BERNOULLI.value(z, zero_one), logistic.value(z, sign), atol=1e-12)
    assert np.allclose(BERNOULLI.slope(z, zero_one), logistic.slope(z, sign), atol=1e-12)
    assert np.allclose(BERNOULLI.second(z, zero_one), logistic.second(z, sign), atol=1e-12)
    poisson, count = pb.Poisson(most=3.0), np.abs(y) * 3
    for name in ("value", "slope", "second"):
        ours, named = getattr(EXPONENTIAL, name)(z, count), getattr(poisson, name)(z, count)
        assert np.allclose(ours, named, rtol=1e-14)
    for largest_score in (0.1, 1.0, 5.0):
        for ours, named in ((BERNOULLI, logistic), (EXPONENTIAL, poisson), (GAUSSIAN, squared)):
            a, b = ours.constants(largest_score), named.constants(largest_score)
            for name in ("lipschitz", "smoothness", "curvature"):
                assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-9)
            if named is not squared:
                assert a.lowest == pytest.approx(b.lowest, abs=1e-8)
                assert a.highest == pytest.approx(b.highest, rel=1e-9)


def test_multinomial_of_two_classes_is_logistic() -> None:
    z, y = np.linspace(-30, 30, 61), np.tile([0.0, 1.0], 31)[:61]
    two = np.array([-z / 2, z / 2])
    loss = pb.Logistic().value(z[None], 2 * y - 1)
    assert np.allclose(pb.Multinomial(2).value(two, y), loss, rtol=1e-12)
    assert pb.Multinomial(2).constants().lipschitz == pytest.approx(math.sqrt(2), rel=1e-11)
    assert pb.Multinomial(9).constants().smoothness == 0.5


def test_multinomial_does_not_overflow() -> None:
    z = np.array([[1e4, -1e4], [0.0, 0.0], [-1e4, 1e4]])
    loss = pb.Multinomial(3)
    assert np.array_equal(loss.value(z, np.array([0.0, 0.0])), [0.0, 2e4])
    assert np.all(np.isfinite(loss.slope(z, np.array([2.0, 1.0]))))


def test_squared_loss_is_not_lipschitz_without_bounds() -> None:
    c = pb.Squared().constants()
    assert c.lipschitz == c.highest == math.inf
    assert pb.Squared().constants(2.0).lipschitz == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pb.Huber(0.0), "Huber.width"),
        (lambda: pb.HuberHinge(math.inf), "HuberHinge.width"),
        (lambda: pb.SmoothedHinge(math.nan), "SmoothedHinge.width"),
        (lambda: pb.Poisson(most=-1), "Poisson.most"),
        (lambda: pb.Multinomial(1), "Multinomial.classes"),
        (
            lambda: pb.GeneralizedLinear(np.exp, np.cos, np.exp, lambda r: (0.0, math.inf)),
            r"GeneralizedLinear\.mean",
        ),
        (
            lambda: pb.GeneralizedLinear(np.exp, np.exp, np.exp, lambda r: (0.0, 1.0)),
            r"GeneralizedLinear\.spread\(4\.0\)",
        ),
    ],
)
def test_bad_parameters_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_labels_are_checked() -> None:
    assert labels_are_valid(pb.Logistic(), np.array([1.0, -1.0]))
    assert not labels_are_valid(pb.Logistic(), np.array([0.0, 1.0]))
    assert labels_are_valid(pb.Multinomial(3), np.array([0.0, 2.0]))
    assert not labels_are_valid(pb.Multinomial(3), np.array([3.0]))
    assert not labels_are_valid(pb.Multinomial(3), np.array([0.5]))
    assert not labels_are_valid(pb.Squared(), np.array([math.nan]))
    assert not labels_are_valid(pb.Poisson(most=3), np.array([4.0]))


def test_outward_rounding() -> None:
    for x in (0.0, 5e-324, 1e-300, 1.0, -1.0, 1e300):
        assert below(x) < x < above(x)
    assert above(math.inf) == math.inf
    assert gamma(2**53) == math.inf


def test_e01_cross_entropy_wants_labels_0_and_1() -> None:
    """E01: printed with labels -1 and 1 it has no lower bound, so it is no loss of these."""

    def printed(z: np.ndarray, y: float) -> np.ndarray:
        return -y * np.log(expit(z)) - (1 - y) * np.log1p(-expit(z))

    z = np.array([-30.0, -20.0, 0.0])
    assert printed(z, -1.0)[0] < -29
    assert np.all(np.diff(printed(z, -1.0)) > 1)  # and no minimum: it falls for ever
    assert np.all(pb.Logistic().value(z[None], -np.ones(3)) >= 0)
    for c in (0.0, 1.0):
        right = pb.Logistic().value(z[None], np.full(3, 2 * c - 1))
        assert np.allclose(printed(z, c), right, atol=1e-12)


def test_e04_a_generalised_linear_loss_is_not_margin_based() -> None:
    """E04: at (z, y) = (1, 1) and (2, 1/2) the margin is 1; the losses are -.5 and 1."""
    values = GAUSSIAN.value(np.array([[1.0, 2.0]]), np.array([1.0, 0.5]))
    assert values[0] == -0.5
    assert values[1] == 1.0
    bernoulli = BERNOULLI.value(np.array([[1.0, 2.0]]), np.array([1.0, 0.5]))
    assert abs(bernoulli[0] - bernoulli[1]) > 0.5
    z = np.array([[0.5, 2.0, -0.5]])
    for loss in (pb.Logistic(), pb.Hinge(), pb.SmoothedHinge(), pb.HuberHinge()):
        ours = loss.value(z, np.ones(3))  # these are: a change of both signs changes nothing
        assert np.array_equal(ours, loss.value(-z, -np.ones(3)))


@each_loss
def test_losses_of_the_margin_are_the_types_that_say_so(loss: pb.Loss) -> None:
    """``l(y z)``: equal where the products are; of the others a witness shows two that differ."""
    if loss.outputs > 1:
        with pytest.raises(ValueError, match="one score"):
            pb.margin_witness(loss)
        return
    witness = pb.margin_witness(loss)
    assert (witness is None) == isinstance(loss, pb.MarginLoss)
    if witness is None:
        z = np.linspace(-6, 6, 999)[None]
        for f, sign in ((loss.value, 1), (loss.slope, -1), (loss.second, 1)):
            one, other = f(z, np.ones(999)), f(-z, -np.ones(999))
            np.testing.assert_allclose(one, sign * other, atol=1e-12)
    else:
        (z, y), (v, u) = witness
        assert z * y == pytest.approx(v * u, rel=1e-12)
        one, other = (loss.value(np.array([[a]]), np.array([b]))[0] for a, b in witness)
        assert abs(one - other) > 1e-6


def test_bounds_of_the_derivatives_and_what_has_none() -> None:
    with pytest.raises(ValueError, match="one score"):
        pb.margin_witness(pb.Weighted(pb.Logistic()))
    assert (pb.Logistic().slope_bound, pb.Logistic().second_bound) == (1.0, 0.25)
    assert pb.Hinge().slope_bound == 1.0
    for kinked in (pb.Hinge(), pb.Absolute()):
        with pytest.raises(ValueError, match=r"kinks.*SmoothedHinge"):
            _ = kinked.second_bound
    assert pb.SmoothedHinge(0.5).second_bound == pytest.approx(2)
    assert pb.Poisson(most=3.0).second_bound == math.inf  # it has one, which nothing bounds
    # z^2 / 2 - y z is -1/2 at (1, 1) and 1 at (2, 1/2)
    assert pb.margin_witness(GAUSSIAN) == ((1.0, 1.0), (2.0, 0.5))


def test_a_loss_that_is_not_of_the_margin_is_refused_as_one() -> None:
    @frozen
    class GaussianMargin(pb.MarginLoss):
        labels = "number"  # type: ignore[misc]

        def value(self, z, y):  # type: ignore[no-untyped-def]
            return z[0] ** 2 / 2 - y * z[0]

    @frozen
    class Lopsided(pb.MarginLoss):
        def slope(self, z, y):  # type: ignore[no-untyped-def]
            return -y * np.where(y > 0, 1.0, 2.0)

    with pytest.raises(ValueError, match=r"labels 'number'.*from Loss"):
        GaussianMargin()
    with pytest.raises(ValueError, match=r"\(1\.0, 1\.0\) and \(-1\.0, -1\.0\)"):
        Lopsided()


@pytest.mark.parametrize("loss", [pb.Squared(), pb.Poisson(most=3)], ids=str)
def test_an_extended_loss_goes_on_in_straight_lines(loss) -> None:
    """Within its reach it is the loss; beyond it a tangent, so convex with bounded slopes."""
    reach = 0.8
    long = losses.Extended(loss, reach)
    z = np.linspace(-5, 5, 4001)[None]
    for label in (0.0, 1.0):
        y = np.full(z.shape[1], label)
        value, slope = long.value(z, y), long.slope(z, y)[0]
        inside = np.abs(z[0]) <= reach
        assert np.allclose(value[inside], loss.value(z, y)[inside], rtol=1e-14)
        assert np.allclose(np.gradient(value, z[0])[1:-1], slope[1:-1], atol=5e-3)
        assert (np.diff(slope) >= 0).all()
        limits = long.constants(5.0)
        assert np.abs(slope).max() <= limits.lipschitz == loss.constants(reach).lipschitz
        assert np.abs(np.diff(slope) / np.diff(z[0])).max() <= limits.smoothness * (1 + 1e-9)
        assert limits.lowest <= value.min() <= value.max() <= limits.highest
    assert losses.read(losses.loss_string(losses.Weighted(long))).loss == long
    with pytest.raises(ValueError, match="smaller"):
        losses.Extended(pb.Poisson(most=3), 100.0)
    with pytest.raises(TypeError):
        losses.Extended(pb.Logistic(), 1.0)
    with pytest.raises(ValueError, match="not a loss"):
        losses.read("Extended(loss=print(), reach=1.0)")
