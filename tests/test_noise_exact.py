"""The exact samplers against their laws, draw by draw and as samples.

Draw by draw: for a word and the words drawn after it, the magnitude is the largest j with
V < P(|K| >= j), by mpmath's tails at 150 digits. As samples: chi-square tests on fixed seeds, whose
false-alarm probability over the choice of the seed is 1e-6; a scale that is wrong by one percent
must be rejected by the same test.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from adaptive_dp.noise import (
    SeededStream,
    discrete_gaussian,
    discrete_laplace,
    exact,
    gaussian,
    rounded_gaussian,
    rounded_laplace,
)
from adaptive_dp.noise.exact import LIMIT, LazyUniform, magnitude

mp = mpmath.mp.clone()
mp.dps = 150


def laplace_tail(t, j):
    return mp.exp(-(j - mp.mpf(1) / 2) / mp.mpf(t))


def discrete_laplace_tail(t, j):
    q = mp.exp(-1 / mp.mpf(t))
    return 2 * q**j / (1 + q)


def gaussian_tail(s, j):
    x = (j - mp.mpf(1) / 2) / (mp.mpf(s) * mp.sqrt(2))
    return mp.erfc(x) if x < 1e4 else mp.mpf(0)  # below e^-(10^8)


@cache
def discrete_gaussian_term(s, k):
    return mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(s) ** 2))


def discrete_gaussian_tail(s, j):
    """By the sum itself, for small s."""
    last = math.ceil(s * 27) + 3 + j
    terms = [discrete_gaussian_term(s, k) for k in range(last)]
    return 2 * mp.fsum(terms[j:]) / (2 * mp.fsum(terms) - 1)


LAWS = {
    "rounded Laplace": (rounded_laplace, laplace_tail),
    "discrete Laplace": (discrete_laplace, discrete_laplace_tail),
    "rounded Gaussian": (rounded_gaussian, gaussian_tail),
    "discrete Gaussian": (discrete_gaussian, discrete_gaussian_tail),
}
SCALES = {
    "rounded Laplace": [1e-200, 1e-10, 0.01, 0.5, 3.7, 1000.5, 2.0**26 * 1.3, 1e12],
    "discrete Laplace": [1e-200, 1e-10, 0.01, 0.5, 3.7, 1000.5, 2.0**26 * 1.3, 1e12],
    "rounded Gaussian": [1e-200, 1e-10, 0.01, 0.5, 3.7, 1000.5, 2.0**26 * 1.3, 1e12],
    "discrete Gaussian": [1e-200, 1e-10, 0.01, 0.5, 1.0, 3.7, 7.99],
}
CASES = [(law, scale) for law in LAWS for scale in SCALES[law]]


class FixedWord(SeededStream):
    """A given word first, then random ones; it remembers all of them."""

    def __init__(self, word, seed):
        super().__init__(seed)
        self.first, self.drawn = [word], []

    def words(self, count):
        given = self.first or super().words(count)
        self.first = []
        self.drawn += [int(w) for w in given]
        return np.array(given, dtype=np.uint64)


def words(tail, scale, generator):
    """Return random words, extreme ones, and those next to a threshold."""
    result = [int(w) for w in generator.integers(0, 2**64, 12, dtype=np.uint64)]
    result += [0, 1, 2, 3, 2**44 - 1, 2**44, 2**44 + 2, 2**64 - 1, 2**64 - 2]
    for _ in range(12):
        v = generator.random() ** 3
        j = 1 if scale < 0.2 else max(1, int(scale * -math.log(v) * generator.random()))
        at = int(mp.floor(tail(scale, j) * 2**63))
        result += [2 * prefix + 1 for prefix in (at - 1, at, at, at + 1) if 0 <= prefix < 2**63]
    return result


@pytest.mark.parametrize(("law", "scale"), CASES)
def test_every_draw_is_the_inverse_of_the_tail(law, scale):
    draw, tail = LAWS[law]
    generator = np.random.default_rng(abs(hash((len(law), scale))) % 2**32)
    refined = 0
    for seed, word in enumerate(words(tail, scale, generator)):
        stream = FixedWord(word, seed)
        (k,) = draw(stream, scale, 1)
        bits = 63
        v = stream.drawn[0] >> 1
        for more in stream.drawn[1:]:
            v, bits = v << 64 | more, bits + 64
        refined += bits > 63
        j = abs(int(k))
        assert (k < 0) == (j > 0 and stream.drawn[0] % 2 == 1)
        assert j == 0 or mp.mpf(v + 1) / mp.mpf(2) ** bits <= tail(scale, j)
        assert j == LIMIT or mp.mpf(v) / mp.mpf(2) ** bits >= tail(scale, j + 1)
    assert refined >= 1


def bins(tail, scale, count):
    """Return ascending edges and the masses of the cells between them, by the tail."""
    spread = scale * (3.5 if count > 1 else 1)
    ends = np.unique(np.rint(np.linspace(0.2, spread, count) + 0.5).astype(int))
    ends = [int(j) for j in ends if j >= 1 and tail(scale, int(j)) > 1e-4]
    upper = [float(tail(scale, j)) / 2 for j in ends]
    masses = -np.diff([*upper, 0.0])
    edges = [-math.inf, *[0.5 - j for j in ends[::-1]], *[j - 0.5 for j in ends], math.inf]
    return np.array(edges), np.concatenate([masses[::-1], [1 - 2 * upper[0]], masses])


def statistic(sample, edges, masses):
    """Return the chi-square statistic over its 1e-6 quantile: above 1 rejects."""
    observed = np.histogram(sample, edges)[0]
    expected = masses * len(sample)
    return float(((observed - expected) ** 2 / expected).sum()) / stats.chi2.isf(
        1e-6, len(masses) - 1
    )


def exact_masses(law, scale):
    if law == "discrete Gaussian" and scale >= 8:
        k = np.arange(int(scale * 40) + 2.0)
        p = np.exp(-(k**2) / (2 * scale**2))
        sums = np.cumsum(p[::-1])[::-1]
        return bins(lambda s, j: 2 * sums[j] / (2 * sums[0] - 1), scale, 24)
    return bins(LAWS[law][1], scale, 24)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.5, 2.0, 9.0, 1000.0])
def test_samples_follow_their_law_and_not_one_wrong_by_a_percent(law, scale):
    draw = LAWS[law][0]
    if law == "discrete Gaussian" and scale == 2.0:
        scale = 7.9
    edges, masses = exact_masses(law, scale)
    count = 1_500_000 if scale > 1 else 1_000_000
    assert statistic(draw(SeededStream(1), scale, count), edges, masses) <= 1
    assert statistic(draw(SeededStream(2), scale * 1.01, count), edges, masses) > 1
    assert statistic(draw(SeededStream(3), scale * 0.99, count), edges, masses) > 1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("bits", "scale", "count"), [(26, 5.0, 8000), (22, 0.7, 4000)])
def test_short_words_are_refined_often_and_follow_the_law(law, bits, scale, count, monkeypatch):
    """With so few bits a share of the draws is refined; rejection looks at one bit."""
    monkeypatch.setattr(exact, "PREFIX_BITS", bits if law != "discrete Gaussian" else 4)
    refined = []

    def counted(*arguments):
        refined.append(1)
        return magnitude(*arguments)

    monkeypatch.setattr(exact, "magnitude", counted)
    sample = LAWS[law][0](SeededStream(7), scale, count)
    assert len(refined) > count / 500
    assert statistic(sample, *exact_masses(law, scale)) <= 1


@pytest.mark.parametrize("bits", [1, 4, 32])
def test_short_words_reject_exactly(bits, monkeypatch):
    """At s = 1, outside of its use, every fifth draw is rejected, and most need more bits."""
    monkeypatch.setattr(gaussian, "REJECTION_BITS", bits)
    sample = gaussian._by_rejection(SeededStream(11), 1.0, 1500)
    edges, masses = bins(discrete_gaussian_tail, 1.0, 24)
    assert statistic(sample, edges, masses) <= 1
    plain = rounded_gaussian(SeededStream(11), 1.0, 200_000)
    assert statistic(plain, edges, masses) > 1


@pytest.mark.parametrize("sigma", [8.0, 11.3, 100.0, 1e6])
def test_what_thinning_drops_is_within_its_bracket(sigma):
    """Against mpmath's integral of the ratio; and the float bracket holds wherever it is used."""
    a = 1 / (2 * mp.mpf(sigma) ** 2)
    with mp.workdps(40):
        for z in (0, 0.3, 1, 2.5, 5, 7.5):
            k = round(z * sigma)
            b = k * 2 * a
            over, base = (
                mp.quad(lambda x, c=c: mp.exp(-a * x * x) * mp.cosh(c * x), [-0.5, 0, 0.5])
                for c in (b, 0)
            )
            rate = 1 - base / over
            assert (
                abs(mp.mpf(str(gaussian.rejection_probability(k, sigma, 30))) - rate)
                <= mp.mpf(10) ** -29
            )
            if b <= 1:
                assert abs(rate - b**2 / 24) <= a * b**2 / 160 + b**4 / 500


def test_normal_quantiles_are_far_within_their_error():
    """Absolute errors of -ndtri(v/2) from v = 2^-20 to 1, an eighth of what samplers allow."""
    grid = np.concatenate([np.geomspace(2.0**-20, 1, 1500), 1 - np.geomspace(2.0**-52, 0.5, 500)])
    with mp.workdps(40):
        for v in grid:
            z = -float(special.ndtri(v * 0.5))
            x = mp.mpf(z)
            slope = mp.sqrt(2 / mp.pi) * mp.exp(-x * x / 2)
            off = (mp.erfc(x / mp.sqrt(2)) - mp.mpf(float(v))) / slope  # Newton's step
            assert abs(off) <= exact.QUANTILE_ERROR / 8


def test_logarithms_are_far_within_their_error():
    grid = np.concatenate([np.geomspace(2.0**-20, 1, 1500), 1 - np.geomspace(2.0**-52, 0.5, 500)])
    with mp.workdps(40):
        off = [
            abs(mp.log(mp.mpf(float(v))) - mp.mpf(float(e)))
            for v, e in zip(grid, np.log(grid), strict=True)
        ]
    assert max(off) <= exact.QUANTILE_ERROR / 8


@pytest.mark.parametrize("wanted", [5, 20, 60, 200])
def test_error_functions_to_many_digits(wanted):
    with mp.workdps(wanted + 30):
        for x in ("0", "1e-30", "0.01", "0.7", "1", "2.5", "5", "9.9", "26", "1e5", "1e300"):
            with exact.decimal_precision(wanted):
                result = exact.erfc(Decimal(x), wanted)
            true = mp.erfc(mp.mpf(x)) if float(x) < 1e4 else 0
            assert abs(mp.mpf(str(result)) - true) <= mp.mpf(10) ** -wanted
        assert abs(mp.mpf(str(exact.pi(wanted))) - mp.pi) <= mp.mpf(10) ** -wanted


@pytest.mark.parametrize("draw", [law[0] for law in LAWS.values()])
def test_scales_that_are_no_scale_are_refused(draw):
    for scale in (0.0, -1.0, math.nan, math.inf, 2.0**51):
        with pytest.raises(ValueError, match=r"2\^50"):
            draw(SeededStream(1), scale, 3)
    assert draw(SeededStream(1), 2.0**50, 3).dtype == np.int64
    for count in (0, 1, 8191, 8192, 8193):
        assert draw(SeededStream(1), 3.0, count).shape == (count,)


@pytest.mark.parametrize("start", [-5, 0, 1, 7, 8, 1000, 2**62, 2**63])
def test_where_the_search_starts_does_not_matter(start):
    """The magnitude is found from anywhere."""
    number = LazyUniform(SeededStream(0), 63, 3 << 50)
    expected = math.floor(-100 * math.log(3 / 2**13))

    def tail(j, wanted):
        with exact.decimal_precision(wanted):
            return (Decimal(-j) / 100).exp()

    assert magnitude(tail, number, start) == expected


def test_a_comparison_draws_no_more_than_it_needs():
    number = LazyUniform(SeededStream(0), 3, 5)
    assert number.below(lambda _: Decimal("0.76"))
    assert not number.below(lambda _: Decimal("0.624"))
    assert number.bits == 3
    number.below(lambda _: Decimal("0.7"))
    assert number.bits == 67
