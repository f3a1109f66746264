"""Convexity is refuted where it fails, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from adaptive_dp import erm as pb

Function = Callable[[np.ndarray], float]


def check(f: Function, witness: pb.Witness, strength: float = 0.0) -> None:
    """The witness, taken by its definition."""
    a, b, s = witness.a, witness.b, witness.share
    chord = s * f(a) + (1 - s) * f(b) - strength / 2 * s * (1 - s) * ((a - b) ** 2).sum()
    assert f(s * a + (1 - s) * b) > chord
    assert witness.excess > 0


@pytest.mark.parametrize(
    ("name", "f", "low", "convex"),
    [
        ("square", lambda w: w[0] ** 2, -2.0, True),
        ("cube", lambda w: w[0] ** 3, -2.0, False),
        ("root", lambda w: math.sqrt(w[0]), 0.0, False),
        ("logarithm", lambda w: math.log(w[0]), 1e-3, False),
    ],
)
def test_e44_only_the_square_is_convex(name: str, f: Function, low: float, convex: bool) -> None:
    """E44: of the four examples of an exercise one is convex."""
    counterexample = pb.refute_convexity(f, np.array([low]), np.array([2.0]))
    assert (counterexample is None) == convex, name
    if counterexample:
        check(f, counterexample)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_network_is_not_convex(activation: str) -> None:
    rng = np.random.default_rng(3)
    net = pb.Network(pb.Multinomial(2), 4, activation)  # type: ignore[arg-type]
    x, y = rng.normal(size=(20, 3)), rng.integers(0, 2, 20).astype(float)

    def f(w: np.ndarray) -> float:
        return net.value(w, x, y)

    counterexample = pb.refute_convexity(f, np.full(net.size(3), -2.0), np.full(net.size(3), 2.0))
    assert counterexample is not None
    check(f, counterexample)


LOSSES = [
    pb.Logistic(),
    pb.Squared(),
    pb.Hinge(),
    pb.SmoothedHinge(),
    pb.HuberHinge(),
    pb.Huber(),
    pb.Absolute(),
    pb.Poisson(most=1.0),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_convex_losses_are_not_refuted(loss: pb.Loss) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.uniform(-1, 1, (20, 3)) / 2, np.ones(20)
    plain = pb.Problem(x, y, loss, row_norm=1.0, ridge=0.5)
    box = np.full(3, -3.0), np.full(3, 3.0)
    assert loss.convex
    assert pb.refute_convexity(plain.value, *box, strength=0.5) is None
    assert pb.refute_convexity(pb.Tilted(plain, 2.0).value, *box, strength=0.5) is None
    if loss.labels == "sign":
        assert pb.refute_convexity(pb.Adversarial(plain, 0.5).value, *box, strength=0.5) is None


def test_a_negative_tilt_is_not_convex() -> None:
    """What `Tilted` refuses: squared losses, tilted by -4."""

    def f(w: np.ndarray) -> float:
        return -0.25 * math.log(np.exp(-4 * (w[0] - np.array([-1.0, 1.0])) ** 2).mean())

    counterexample = pb.refute_convexity(f, np.array([-2.0]), np.array([2.0]))
    assert counterexample is not None
    check(f, counterexample)


def test_e03_strong_convexity_has_half_the_strength() -> None:
    """E03: with lam for lam/2 the parabola ``lam w^2 / 2`` itself would fail."""
    lam = 3.0

    def parabola(w: np.ndarray) -> float:
        return lam / 2 * float(w @ w)

    box = np.full(2, -1.0), np.full(2, 1.0)
    assert pb.refute_convexity(parabola, *box, strength=lam) is None
    printed = pb.refute_convexity(parabola, *box, strength=2 * lam)
    assert printed is not None
    check(parabola, printed, 2 * lam)
    beyond = pb.refute_convexity(parabola, *box, strength=lam * 1.001)
    assert beyond is not None


def test_functions_that_are_not_finite_are_passed_over() -> None:
    box = np.array([-1.0]), np.array([1.0])
    assert pb.refute_convexity(lambda w: math.nan, *box) is None
    assert pb.refute_convexity(lambda w: math.inf if w[0] < 0 else w[0] ** 2, *box) is None
    with pytest.raises(ValueError, match="low < high"):
        pb.refute_convexity(lambda w: 0.0, box[1], box[0])
    with pytest.raises(ValueError, match="bounded"):
        pb.refute_convexity(lambda w: 0.0, box[0], np.array([math.inf]))
