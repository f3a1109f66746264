"""Attacks on the low bits of released numbers: they find naive noise, and nothing in ours.

Mironov 2012: outputs that float noise reaches from one value and not from its neighbour. Haney,
Desfontaines, Hartman, Shrestha and Hay 2022: the same through the rounding of the sum, by Gaussian
noise too. Float sums (Casacuberta, Shoemate, Vadhan and Wagaman 2022) are the matter of
tests/test_rounding.py.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.data import grid
from adaptive_dp.erm import losses
from adaptive_dp.noise import SecureStream, SeededStream, lattice, stream

EXACT = [dp.Laplace, dp.Gaussian, dp.DiscreteLaplace, dp.DiscreteGaussian]
SCALES = [5e-324, 1e-310, 1e-300, 1e-9, 0.3, 1.0, 2.0**26, 1e9, 1e14]
VALUES = [0.0, -0.0, 1.0, 1 / 3, -1e-9, 5e-324, 1e8 + 0.3, 2.0**53 + 2, -1e17, 1e200, 1.7e308]
VALUES += [math.inf, -math.inf, math.nan]


def unit(mechanism):
    (scale,) = mechanism.parameters().values()
    return 1.0 if "Discrete" in type(mechanism).__name__ else lattice.step(scale)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("scale", SCALES)
def test_every_output_is_a_finite_multiple_of_the_step(kind, scale):
    """Checked as rationals; the step is a power of two that depends on the scale alone."""
    mechanism = kind(scale)
    step = unit(mechanism)
    assert math.frexp(step)[0] == 0.5
    for value in VALUES:
        for seed in range(3):
            released = float(mechanism.release(np.array(value), SeededStream(seed)))
            assert math.isfinite(released)
            assert (Fraction(released) / Fraction(step)).denominator == 1


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("scale", [1e-300, 0.7, 3.0, 1e9])
def test_an_output_is_a_function_of_the_noisy_integer_alone(kind, scale):
    """From neighbours that are m steps apart, noise m steps apart gives the same output."""
    step = unit(kind(scale))
    generator = np.random.default_rng(1)
    for _ in range(300):
        n, m = (int(v) for v in generator.integers(-(2**52), 2**52, 2))
        k = int(generator.integers(-(2**62), 2**62)) >> int(generator.integers(0, 62))
        one = lattice.noisy(np.array(float(n) * step), np.array([k]), step)
        other = lattice.noisy(np.array(float(n - m) * step), np.array([k + m]), step)
        assert one == other == float(Fraction(float(n + k)) * Fraction(step))


def test_noise_beyond_what_floats_hold_is_added_as_an_integer():
    for n, k in [(2**53, 2**53 + 1), (-(2**53) + 1, 2**53 + 2), (2**100, 2**61 + 1), (3, 2**62)]:
        released = lattice.noisy(np.array(float(n)), np.array([k]), 1.0)
        assert released == float(n + k)


def reached(release, value, count, seed):
    """Return the outputs that so many draws reach from one value, sorted."""
    released = release(np.full(count, value), SeededStream(seed))
    return np.unique(np.ascontiguousarray(released))


def naive_laplace(value, stream):
    return value + 1.0 * stream.laplace(1.0, value.shape)


def naive_gaussian(value, stream):
    return value + stream.gaussian(1.0, value.shape)


def holes(release, one, other, probe, count=100_000):
    """Return how much more often outputs from one value pass ``probe`` than from the other."""
    released = [release(np.full(count, v), SeededStream(9)) for v in (one, other)]
    return abs(float(np.mean(probe(released[0]))) - float(np.mean(probe(released[1]))))


def low_bits(outputs):
    """Whether an output is an even number of the finest steps that noise around 0 has."""
    inside = np.abs(outputs) < 0.25
    return inside & (np.mod(np.where(inside, outputs, 0.5) * 2.0**53, 1.0) != 0)


@pytest.mark.parametrize("naive", [naive_laplace, naive_gaussian])
def test_low_bits_tell_naive_noise_apart(naive):
    """From 1 no output near 0 has bits below 2^-53; from 0 nearly every one has: control."""
    assert holes(naive, 0.0, 1.0, low_bits) > 0.1


@pytest.mark.parametrize("kind", EXACT)
def test_low_bits_tell_nothing_of_exact_noise(kind):
    """No output has such a bit from either value, so that test and its like have no power."""
    mechanism = kind(1.0)
    assert holes(mechanism.release, 0.0, 1.0, low_bits) == 0.0


@pytest.mark.parametrize("kind", EXACT)
def test_reachable_outputs_of_neighbours_are_the_same(kind):
    """Of noise with few steps to a scale, so that every output near the values is reached.

    The scale is the least float times 4, whose step is the least float: integers times it.
    """
    if "Discrete" in kind.__name__:
        mechanism, step = kind(4.0), 1.0
    else:
        mechanism, step = kind(4 * 5e-324), 5e-324
    sets = [reached(mechanism.release, v * step, 100_000, 3) for v in (0.0, 1.0, 7.0)]
    near = [s[(s >= -8 * step) & (s <= 15 * step)] for s in sets]
    assert len(near[0]) == 24
    assert all((s == near[0]).all() for s in near)


def test_rounding_adds_to_the_distance_what_it_can_move():
    """|round(a) - round(b)| in l1 and l2 is within the distance and the declared addition."""
    generator = np.random.default_rng(5)
    for kind, norm in [(dp.Laplace, 1), (dp.Gaussian, 2)]:
        mechanism = kind(2.0**26)  # steps of 1
        for d in (1, 2, 7):
            for _ in range(500):
                a = generator.uniform(-2, 2, d)
                b = a + generator.uniform(-1.2, 1.2, d) * generator.integers(0, 2, d)
                far = float(np.linalg.norm(a - b, norm))
                loss = mechanism.cost(far, d, 0.0)
                claimed = (loss.pure() if norm == 1 else loss.mu()) * 2.0**26
                none = np.zeros(d, dtype=np.int64)
                difference = lattice.noisy(a, none, 1.0) - lattice.noisy(b, none, 1.0)
                assert np.linalg.norm(difference, norm) <= claimed * (1 + 1e-12)
    worst = dp.Laplace(2.0**26).cost(2e-9, 1, 0.0).pure() * 2.0**26
    assert worst == pytest.approx(1.0, rel=1e-6)  # 0.499999999 and 0.500000001 end one step apart


def test_multiples_of_the_step_are_charged_for_no_rounding():
    table = dp.dataset("t", columns={"x": (0.0, 100.0)})
    plan = dp.Pipeline(
        n=table.count().release(dp.Laplace(scale=3.0)),
        h=table["x"].histogram([0, 50, 100]).release(dp.Gaussian(sigma=2.0)),
        s=table["x"].sum().release(dp.Laplace(scale=100.0)),
    )
    losses = {row.node: row.loss.parameters for row in plan.certify(1e-6).nodes}
    assert losses["n"]["epsilon"] == pytest.approx(1 / 3, rel=1e-14)
    assert losses["h"]["mu"] == pytest.approx(0.5, rel=1e-14)
    assert losses["s"]["epsilon"] == pytest.approx(1.0, rel=1e-14)
    wide = table["x"].sum().release(dp.Laplace(scale=1e6))  # its step is coarser than the sum's
    (row,) = dp.Pipeline(a=wide).certify(1e-6).nodes
    assert 1e-4 * (1 + 5e-5) < row.loss.parameters["epsilon"] < 1e-4 * (1 + 2e-4)


@pytest.mark.parametrize("bounds", [(0.0, 0.7), (-3.0, 1e9), (1e-300, 2e-300), (0.0, 0.0)])
def test_declared_steps_are_true(bounds):
    """A query's value is an integer multiple of the step that it declares."""

    class Bare(dp.Mechanism):
        norm = 2

        def release(self, value, stream):
            return value

        def loss(self, distance):
            return accountants.Gaussian(distance)

    table = dp.dataset("t", columns={"x": bounds, "y": bounds})
    generator = np.random.default_rng(2)
    data = {name: generator.uniform(*bounds, 57) for name in "xy"}
    queries = [table.count(), table["x"].sum(), table["x"].histogram([0, 0.1, 1])]
    if bounds[1] > 1e-100 or bounds[1] == 0:
        queries.append(table.vectors(["x", "y"]).sum())
    for query in queries:
        step = Fraction(query.operation.step(query.domain))
        value = dp.Pipeline(a=query.release(Bare())).simulate(seed=0, t=data)["a"]
        for number in np.ravel(value):
            assert (Fraction(float(number)) / step).denominator == 1


def test_certificates_speak_of_float_noise_only_where_there_is_some():
    table = dp.dataset("t", columns={"x": (0, 1)})

    def assumed(mechanism):
        plan = dp.Pipeline(a=table.count().release(mechanism))
        return any("float64" in text for text in plan.certify(1e-6).assumptions)

    assert not any(assumed(kind(2.0)) for kind in EXACT)
    assert assumed(dp.Norm(scale=2.0))


@pytest.mark.parametrize("count", [1, 100_000])
def test_secure_noise_is_never_drawn_twice(count):
    """By forked processes, threads, or one stream asked again; with and without the cipher."""
    stream = SecureStream()
    mechanism = dp.Laplace(1e15)

    def draw():
        return mechanism.release(np.zeros(count), stream)[:8].tobytes()

    draws = [draw(), draw()]
    threads = [threading.Thread(target=lambda: draws.append(draw())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    draws += [_of_child(draw), _of_child(draw)]
    assert len(set(draws)) == len(draws) == 8


def _of_child(draw):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, draw())
        finally:
            os._exit(0)
    os.close(write)
    drawn = os.read(read, 64)
    os.waitpid(child, 0)
    os.close(read)
    return drawn


def test_streams_keep_nothing_and_seeded_ones_refuse_copies():
    stream = SecureStream()
    stream.words(10_000)
    assert not vars(stream)
    assert not any(isinstance(v, bytes | bytearray | np.ndarray) for v in vars(stream).values())
    with pytest.raises(TypeError):
        pickle.dumps(SeededStream(1))


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 100_001])
@pytest.mark.parametrize("installed", [True, False])
def test_secure_bytes_with_and_without_the_cipher(count, installed, monkeypatch):
    """Bits are fair: of n the ones are within 5 standard deviations of n/2 (false alarm 6e-7)."""
    stream._ciphers.cache_clear()
    if not installed:
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    try:
        one, two = stream.secure_bytes(count), stream.secure_bytes(count)
    finally:
        stream._ciphers.cache_clear()
    assert len(one) == len(two) == count
    assert count < 16 or one != two
    ones = np.unpackbits(np.frombuffer(one, dtype=np.uint8)).sum()
    assert abs(int(ones) - 4 * count) <= 5 * math.sqrt(2 * count)


# --- The premise of exact sums -----------------------------------------------------------------


@pytest.fixture
def _tried_again():
    grid.check_arithmetic.cache_clear()
    yield
    grid.check_arithmetic.cache_clear()


def by_place(every, amount=1):
    """Return exp whose last bit differs at some places of an array, as of a vector unit's rest."""

    def exp(x, *args, **kwargs):
        result = np.array(TRUE_EXP(x, *args, **kwargs))
        flat = result.reshape(-1)
        end = len(flat) - len(flat) % every
        flat[end:] = np.nextafter(flat[end:], np.inf)
        return result

    return exp


TRUE_EXP = np.exp


@pytest.mark.usefixtures("_tried_again")
@pytest.mark.parametrize("every", [2, 4, 8, 16])
def test_a_function_that_depends_on_the_place_is_refused(monkeypatch, every):
    people = dp.dataset("people", columns={"x": (0, 1)})
    plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    grid.check_arithmetic()  # this machine's
    grid.check_arithmetic.cache_clear()
    monkeypatch.setattr(np, "exp", by_place(every))
    with pytest.raises(grid.UnstableArithmeticError, match="exp of NumPy"):
        grid.check_arithmetic()
    with pytest.raises(dp.RunError, match=r"exp of NumPy .* Nothing was released"):
        plan.simulate(seed=1, people={"x": [0.5]})
    with dp.Session(budget=dp.Budget(1.0), seed=1, people={"x": [0.5]}) as session:
        with pytest.raises(dp.RunError, match="another build of NumPy"):
            session.run(people.count().release(dp.Laplace(scale=2)))
        assert session.remaining.costs[0] == 1.0


@pytest.mark.usefixtures("_tried_again")
def test_products_of_less_than_float64_are_refused(monkeypatch):
    monkeypatch.setattr(
        grid,
        "_check_products",
        functools.partial(_products_by, grid._check_products, monkeypatch),
    )
    with pytest.raises(grid.UnstableArithmeticError, match="not exact"):
        grid.check_arithmetic()


def _products_by(check, monkeypatch):
    # matmul with an accumulator of 32 bits, as some accelerators have
    def short(a, b, out):
        out[...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)

    monkeypatch.setattr(np, "matmul", short)
    check()


@pytest.mark.parametrize(
    "loss", ["Logistic()", "Hinge()", "Huber()", "SmoothedHinge()", "Squared()"]
)
def test_slopes_of_the_losses_do_not_depend_on_the_place(loss):
    kind = losses.read(loss)
    generator = np.random.default_rng(5)
    z = generator.normal(size=(kind.outputs, 333)) * 5
    y = np.where(generator.random(333) > 0.5, 1.0, -1.0)
    y = {"class": np.arange(333.0) % kind.outputs, "count": np.abs(y)}.get(kind.labels, y)
    whole = kind.slope(z, y)
    for start, count in [(0, 1), (7, 1), (1, 2), (5, 63), (13, 100)]:
        part = slice(start, start + count)
        assert np.array_equal(kind.slope(np.ascontiguousarray(z[:, part]), y[part]), whole[:, part])
