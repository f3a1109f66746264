"""Samplers against their exact laws, and the sources of randomness.

Statistical tests run on fixed seeds, so they cannot fail by chance from one run to the next. The
thresholds are those of a false-alarm probability below 1e-6 over the choice of the seed: by the
Dvoretzky-Kiefer-Wolfowitz-Massart inequality P(sup |F_n - F| > t) <= 2 exp(-2 n t^2), which is
2.6e-7 at n = 2e5, t = 0.0063.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

import adaptive_dp as dp
from adaptive_dp.noise import SecureStream, SeededStream

DRAWS, LIMIT = 200_000, 0.0063
LAWS = {
    "laplace": (lambda stream, n: stream.laplace(2.0, (n,)), stats.laplace(scale=2.0).cdf),
    "gaussian": (lambda stream, n: stream.gaussian(2.0, (n,)), stats.norm(scale=2.0).cdf),
    "uniform": (lambda stream, n: stream.uniform((n,)), stats.uniform().cdf),
}


def distance(sample, cdf):
    """Return the Kolmogorov-Smirnov distance of a sample from a law."""
    n, at = len(sample), cdf(np.sort(sample))
    return max((np.arange(1, n + 1) / n - at).max(), (at - np.arange(n) / n).max())


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_samplers_follow_their_laws(law, seed):
    draw, cdf = LAWS[law]
    sample = draw(SeededStream(seed, 77), DRAWS)
    assert np.isfinite(sample).all()
    assert distance(sample, cdf) <= LIMIT


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_scale_that_is_wrong_by_three_percent_is_rejected(law, factor):
    """Negative control: the scale's effect on the law is above twice the threshold.

    sup |F(x) - F(1.03 x)| is 0.0054 for Laplace and 0.0072 for the Gaussian, below LIMIT, so the
    control uses the sharper test of the mean absolute value: its standard error is 0.0022 (0.0017)
    relative at 2e5 draws, and 5 of these are a false alarm of 5.7e-7 and a third of 3 %.
    """
    draw, _ = LAWS[law]
    sample = np.abs(draw(SeededStream(3), DRAWS))
    mean = 2.0 if law == "laplace" else 2.0 * math.sqrt(2 / math.pi)
    error = 5 * sample.std() / math.sqrt(DRAWS)
    assert abs(sample.mean() - mean) <= error
    assert abs(sample.mean() * factor - mean) > error


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_law_that_is_wrong_by_ten_percent_is_rejected(law):
    draw, cdf = LAWS[law]
    for factor in (0.9, 1.1):
        assert distance(draw(SeededStream(5), DRAWS) * factor, cdf) > LIMIT


def test_the_two_halves_of_a_gaussian_draw_are_independent():
    """Box and Muller's pairs: the correlation's standard error is 1/sqrt(n); 5 of it, 5.7e-7."""
    sample = SeededStream(4).gaussian(1.0, (DRAWS,))
    first, second = sample[: DRAWS // 2], sample[DRAWS // 2 :]
    for f, g in [(first, second), (first**2, second**2), (np.abs(first), second)]:
        assert abs(np.corrcoef(f, g)[0, 1]) <= 5 / math.sqrt(DRAWS // 2)


def test_shapes():
    for shape in ((), (1,), (3,), (2, 5), (0,)):
        for draw in (SecureStream(), SeededStream(1)):
            assert draw.laplace(1.0, shape).shape == shape
            assert draw.gaussian(1.0, shape).shape == shape


class Fixed(SecureStream):
    """Given words."""

    def __init__(self, *words):
        self.given = words

    def words(self, count):
        return np.resize(np.array(self.given, dtype=np.uint64), count)


def threshold(rate):
    """Return the least word at which a trial of this rate is False (2^64 where there is none)."""
    low, high = 0, 2**64
    while low < high:
        middle = (low + high) // 2
        if Fixed(middle).bernoulli(rate, 1)[0]:
            low = middle + 1
        else:
            high = middle
    return low


RATES = [1e-30, 5e-324, 2.0**-64, 1e-9, 0.1, 1 / 3, 0.5, 0.7, 1 - 2.0**-53, 1.0]


@pytest.mark.parametrize("rate", RATES)
def test_a_bernoulli_trial_is_never_more_likely_than_declared(rate):
    """The words at which it is True are counted exactly: at most rate 2^64, and not one too few."""
    count = threshold(rate)
    assert Fraction(count, 2**64) <= Fraction(rate)
    assert Fraction(count + 1, 2**64) > Fraction(rate)


def test_extreme_words_give_finite_noise():
    for word in (0, 1, 2**63, 2**64 - 1):
        stream = Fixed(word)
        assert 0 < stream.uniform() < 1
        assert np.isfinite(stream.laplace(1.0)).all()
        assert np.isfinite(stream.gaussian(1.0)).all()


EXTREME = [0, 1, 2, 3, 2**62 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]


def test_a_gaussian_pair_is_the_transform_of_its_two_words():
    """Against mpmath's sine, cosine and logarithm; U = ((word >> 1) + 1/2) / 2^63 is rounded.

    That moves log U by at most 2^-53, hence r by at most 2^-53 / r, and by 2^-26 where r is near 0.
    """
    generator = np.random.default_rng(6)
    some = [int(w) for w in generator.integers(0, 2**64, 200, dtype=np.uint64)]
    pairs = [*zip(some[:100], some[100:], strict=True), *itertools.product(EXTREME, EXTREME)]
    for first, second in pairs:
        result = Fixed(first, second).gaussian(3.0, (2,))
        with mpmath.workdps(40):
            r = mpmath.sqrt(-2 * mpmath.log((mpmath.mpf(first >> 1) + 0.5) / 2**63))
            turn = mpmath.pi / 2 * (second - 2**64 * (second >> 63)) / 2**63
            true = r * mpmath.cos(turn) * (-1) ** (first & 1), r * mpmath.sin(turn)
            allowed = 2.0**-50 * r + 2.0**-52 / max(r, 2.0**-26)
            assert (
                max(abs(x / 3 - y) for x, y in zip(result.tolist(), true, strict=True)) <= allowed
            )


def test_a_forked_process_draws_other_words():
    stream = SecureStream()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, stream.words(8).tobytes())
        finally:
            os._exit(0)
    here = stream.words(8).tobytes()
    os.waitpid(child, 0)
    there = os.read(read, 64)
    os.close(read)
    os.close(write)
    assert len(there) == 64
    assert here != there  # equal by chance with probability 2^-512


def test_the_secure_stream_has_nothing_to_seed_or_copy():
    with pytest.raises(TypeError):
        SecureStream(1)
    stream = SecureStream()
    assert not vars(stream)
    before = stream.words(8)
    np.random.seed(0)  # noqa: NPY002
    one = stream.words(8)
    np.random.seed(0)  # noqa: NPY002
    two = stream.words(8)
    assert len({w.tobytes() for w in (before, one, two)}) == 3
    try:
        copy = pickle.loads(pickle.dumps(stream))
    except TypeError:
        return
    assert copy.words(8).tobytes() != stream.words(8).tobytes()


def test_a_seeded_stream_is_reproducible_and_cannot_be_copied():
    one, two, other = SeededStream(1, 2), SeededStream(1, 2), SeededStream(1, 3)
    assert (one.words(100) == two.words(100)).all()
    assert not (one.words(100) == other.words(100)).any()
    with pytest.raises(TypeError):
        pickle.dumps(one)


def table():
    return dp.dataset("t", columns={"x": (0, 1)})


DATA = {"x": np.linspace(0, 1, 11)}


def test_every_release_draws_from_a_stream_of_its_own():
    base = table()
    count = base.count()
    noise = dp.Gaussian(sigma=1.0)
    one, two, three = count.release(noise), count.release(noise), base["x"].sum().release(noise)
    values = dp.Pipeline(a=one, b=two, c=three).simulate(seed=7, t=DATA)
    noises = [values["a"] - 11, values["b"] - 11, values["c"] - 5.5]
    assert len({round(n, 6) for n in noises}) == 3
    rounds = dp.repeat(
        lambda s, own: dp.post(lambda a, n: [*a, n], s, own.release(noise)), 4, count, start=[]
    )
    drawn = dp.Pipeline(a=rounds).simulate(seed=7, t=DATA)["a"]
    assert len({round(n, 6) for n in drawn}) == 4


def test_pruning_and_renaming_change_no_value():
    def outputs():
        base = table()
        a = base.count().release(dp.Laplace(scale=1.0))
        b = base["x"].sum().release(dp.Gaussian(sigma=1.0))
        c = base.filter(base["x"] <= 0.5).sample(0.5).count().release(dp.Laplace(scale=2.0))
        return a, b, dp.post(lambda v: v + 1, c)

    a, b, c = outputs()
    together = dp.Pipeline(a=a, b=b, c=c).simulate(seed=3, t=DATA)
    for name, handle in {"a": a, "b": b, "c": c}.items():
        assert dp.Pipeline(zebra=handle).simulate(seed=3, t=DATA)["zebra"] == together[name]
    a, b, c = outputs()
    again = dp.Pipeline(x=c, y={"z": b}, w=a).simulate(seed=3, t=DATA)
    assert (again["w"], again["y"]["z"], again["x"]) == (
        together["a"],
        together["b"],
        together["c"],
    )
    other = dp.Pipeline(a=a, b=b, c=c).simulate(seed=4, t=DATA)
    assert all(other[k] != together[k] for k in "abc")


def test_runs_draw_fresh_noise_whatever_numpy_is_seeded_with():
    plan = dp.Pipeline(a=table().count().release(dp.Gaussian(sigma=1.0))).with_delta(1e-6)
    values = set()
    for _ in range(3):
        np.random.seed(0)  # noqa: NPY002
        values.add(plan.run(t=DATA)["a"])
    assert len(values) == 3
