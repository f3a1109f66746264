"""What a two-layer network computes, and how its parameters lie."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_dp import erm as pb


def loss_of_a_row(net: pb.Network, w: np.ndarray, row: np.ndarray, label: int) -> float:
    """Written out in plain numbers, apart from the code under test."""
    at = iter(w)
    first = [[next(at) for _ in row] for _ in range(net.hidden)]
    second = [[next(at) for _ in range(net.hidden + 1)] for _ in range(net.outputs)]
    bend = math.tanh if net.activation == "tanh" else lambda v: max(v, 0.0)
    hidden = [1.0] + [bend(sum(a * b for a, b in zip(v, row, strict=True))) for v in first]
    z = [sum(a * b for a, b in zip(v, hidden, strict=True)) for v in second]
    return math.log(math.fsum(math.exp(v) for v in z)) - z[label]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_value_is_that_of_rows_written_out(activation: str) -> None:
    rng = np.random.default_rng(1)
    net = pb.Network(pb.Multinomial(3), 5, activation)  # type: ignore[arg-type]
    x, y = rng.normal(size=(30, 6)), rng.integers(0, 3, 30).astype(float)
    w = rng.normal(size=net.size(6))
    each = [loss_of_a_row(net, w, row, int(label)) for row, label in zip(x, y, strict=True)]
    assert net.value(w, x, y) == pytest.approx(sum(each), rel=1e-12)
    values = net.activate(x)
    slopes = (net.activate(x + 1e-6) - net.activate(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(net.activation_slope(values), slopes, atol=1e-8)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("loss", [pb.Multinomial(3), pb.Logistic(), pb.Squared()], ids=str)
def test_the_gradient_is_that_of_finite_differences(loss: pb.Loss, activation: str) -> None:
    """To 1e-6 of rows written out in plain numbers, where the loss is the softmax's; of `value`."""
    rng = np.random.default_rng(3)
    net = pb.Network(loss, 4, activation)  # type: ignore[arg-type]
    x = rng.normal(size=(20, 5))
    y = rng.integers(0, 3, 20) - 0.0 if loss.labels == "class" else rng.choice([-1.0, 1.0], 20)
    w = rng.normal(size=net.size(5))
    h = 1e-5

    def risk(v: np.ndarray) -> float:
        if loss.labels != "class":
            return net.value(v, x, y)
        return math.fsum(loss_of_a_row(net, v, r, int(c)) for r, c in zip(x, y, strict=True))

    by_value = [(risk(w + h * e) - risk(w - h * e)) / (2 * h) for e in np.eye(len(w))]
    gradient = net.gradient(w, x, y)
    np.testing.assert_allclose(gradient, by_value, rtol=1e-6, atol=1e-6)
    # a sum over rows
    halves = net.gradient(w, x[:7], y[:7]) + net.gradient(w, x[7:], y[7:])
    np.testing.assert_allclose(gradient, halves, rtol=1e-12, atol=1e-12)


def test_sizes_and_refusals() -> None:
    net = pb.Network(pb.Multinomial(10), hidden=128)
    assert net.size(785) == 128 * 785 + 10 * 129
    assert (net.labels, net.outputs, net.convex) == ("class", 10, False)
    for bad in (0, 1.5, True, 2**16 + 1):
        with pytest.raises(ValueError, match=r"Network\.hidden"):
            pb.Network(pb.Logistic(), bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="activation"):
        pb.Network(pb.Logistic(), 2, "sigmoid")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loss"):
        pb.Network("logistic", 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        net.value(np.zeros(3), np.zeros((1, 785)), np.zeros(1))
