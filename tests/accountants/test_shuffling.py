"""Shuffled local reports, against the laws of all histograms, enumerated."""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from fractions import Fraction

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest

from accountants import (
    Approximate,
    Basic,
    Distribution,
    Gaussian,
    Laplace,
    PrivacyLoss,
    Pure,
    RandomizedResponse,
    Renyi,
    Repeated,
    Sequential,
    Shuffled,
    Spend,
    measure,
)
from accountants.document import from_json, to_json
from accountants.errors import DomainError
from accountants.losses.shuffling import _TAILS, _beyond, _far, _of_values, _shared
from accountants.pair import Pair

LOSSES = np.array([-2.0, -0.7, -0.1, -1e-3, 0.0, 1e-6, 0.05, 0.3, 1.0, 2.5])


def covered(pair: Pair, hockey: object, points: np.ndarray, *, tight: float) -> None:
    """The pair's profile is at least ``hockey(loss)``, and at most a little more."""
    for loss, upper in zip(points.tolist(), pair.profile(points)[1].tolist(), strict=True):
        true = hockey(truth.real(loss))  # type: ignore[operator]
        assert truth.real(upper) >= true * (1 - mp.mpf(10) ** -20), (loss, upper, true)
        assert upper <= true * (1 + tight) + 1e-11, (loss, upper, true)


def enumerated(pair: truth.Pair):  # type: ignore[no-untyped-def]
    return lambda loss: mp.fsum(max(p - mp.exp(loss) * q, mp.mpf(0)) for p, q in pair)


# --- the laws of histograms, in exact fractions: nothing is known but the randomizer

Row = list[Fraction]
Histograms = dict[tuple[int, ...], Fraction]


def responses(ratio: Fraction, answers: int) -> list[Row]:
    """The law of the answer for each value, kept with odds ``ratio`` against any other."""
    total = ratio + answers - 1
    values = range(answers)
    return [[(ratio if x == y else Fraction(1)) / total for y in values] for x in values]


def histograms(rows: list[Row]) -> Histograms:
    law: Histograms = {(0,) * len(rows[0]): Fraction(1)}
    for row in rows:
        after: Histograms = defaultdict(Fraction)
        for counts, mass in law.items():
            for y, p in enumerate(row):
                after[(*counts[:y], counts[y] + 1, *counts[y + 1 :])] += mass * p
        law = after
    return law


def hockey_stick(p: Histograms, q: Histograms, ratio: Fraction) -> Fraction:
    return sum((max(p[h] - ratio * q[h], Fraction()) for h in p), Fraction())


def worst(randomizer: list[Row], reports: int, ratios: list[Fraction]) -> list[Fraction]:
    """The largest hockey-sticks over all values of the unit and of the others."""
    every, values = [Fraction()] * len(ratios), range(len(randomizer))
    for others in itertools.combinations_with_replacement(values, reports - 1):
        laws = [histograms([randomizer[x], *(randomizer[o] for o in others)]) for x in values]
        for p, q in itertools.permutations(laws, 2):
            every = [max(e, hockey_stick(p, q, t)) for e, t in zip(every, ratios, strict=True)]
    return every


def between(ratio: Fraction) -> list[Fraction]:
    """Ratios from below 1 / ratio to next to it."""
    shares = [Fraction(0), Fraction(1, 5), Fraction(1, 2), Fraction(9, 10)]
    above = [1 + (ratio - 1) * share for share in shares]
    return [1 / ratio / 2, *(1 / t for t in above[:0:-1]), *above]


@pytest.mark.parametrize("ratio", [Fraction(2), Fraction(7)])
@pytest.mark.parametrize(("answers", "most"), [(2, 4), (3, 4), (4, 3)])
def test_no_histogram_tells_more(ratio: Fraction, answers: int, most: int) -> None:
    ratios = between(ratio)
    losses = np.log([float(t) for t in ratios])
    for reports in range(1, most + 1):
        loss = Shuffled(RandomizedResponse(math.log(ratio), answers), reports)
        generic = Shuffled(Pure(math.log(ratio)), reports)
        true = worst(responses(ratio, answers), reports, ratios)
        for each in (loss, generic):
            upper = each.pair().profile(losses)[1]
            assert np.all(upper >= np.array([float(x) for x in true]) * (1 - 1e-12))
        attained = loss.attained_pair()
        assert attained is not None
        for pair in (attained, attained.reversed()):
            lower = pair.profile(losses)[0]
            assert np.all(lower <= np.array([float(x) for x in true]) * (1 + 1e-12))


def test_a_published_law_of_two_counts_is_too_small() -> None:
    """Of n reports by three answers: counts of two answers alone, where C of them are blank.

    With r = 1 / (e^eps + 2), C is Bin(n-1, 2r), half of them each; the unit adds one to the one
    with probability e^eps r, to the other with r, to none else.
    """
    ratio, at = Fraction(2), Fraction(19, 10)
    r = 1 / (ratio + 2)
    law: dict[tuple[int, int], list[Fraction]] = defaultdict(lambda: [Fraction(), Fraction()])
    for c, mass in ((0, 1 - 2 * r), (1, 2 * r)):
        for a in range(c + 1):
            for up, down, p, q in ((1, 0, ratio * r, r), (0, 1, r, ratio * r)):
                law[a + up, c - a + down][0] += mass / 2**c * p
                law[a + up, c - a + down][1] += mass / 2**c * q
            none = mass / 2**c * (1 - ratio * r - r)
            law[a, c - a] = [each + none for each in law[a, c - a]]
    printed = sum(max(p - at * q, Fraction()) for p, q in law.values())
    true = worst(responses(ratio, 3), 2, [at])[0]
    assert printed == Fraction(1, 160)
    assert true == Fraction(1, 80)
    loss = Shuffled(RandomizedResponse(math.log(2), 3), 2)
    assert loss.pair().profile(np.log([1.9]))[1][0] == pytest.approx(1 / 80, rel=1e-3)


def blanket(ratio: Fraction, answers: int, reports: int, at: Fraction) -> Fraction:
    """The privacy blanket's hockey-stick, over all counts."""
    share, total = answers / (ratio + answers - 1), Fraction()
    for c in range(reports):
        mass = math.comb(reports - 1, c) * share**c * (1 - share) ** (reports - 1 - c)
        m = c + 1
        for a, b in itertools.product(range(m + 1), repeat=2):
            if a + b > m or (answers == 2 and a + b < m):
                continue
            rest = Fraction(answers - 2, answers) ** (m - a - b)
            ways = math.comb(m, a) * math.comb(m - a, b) * Fraction(1, answers) ** (a + b) * rest
            p, q = (share * ((ratio - 1) * x + m) / m for x in (a, b))
            total += mass * ways * max(p - at * q, Fraction())
    return total


@pytest.mark.parametrize(("answers", "reports"), [(3, 9), (7, 9), (16, 8)])
def test_the_blanket_is_as_tight_as_its_theorem(answers: int, reports: int) -> None:
    for ratio in (Fraction(3, 2), Fraction(8)):
        ratios = between(ratio)[4:]
        loss = Shuffled(RandomizedResponse(math.log(ratio), answers), reports)
        upper = loss.pair().profile(np.log([float(t) for t in ratios]))[1]
        for at, bound in zip(ratios, upper.tolist(), strict=True):
            true = float(blanket(ratio, answers, reports, at))
            assert true * (1 - 1e-12) <= bound <= true * 1.01 + 1e-11


@pytest.mark.parametrize("eps", [0.3, 2.0])
def test_two_answers_are_bounded_for_all_values_of_the_others(eps: float) -> None:
    reports, at = 90, np.linspace(0, eps, 30)[:-1]
    r = 1 / (1 + math.exp(eps))
    true = np.zeros(len(at))
    for ones in range(reports):
        law = np.ones(1)
        for i in range(reports - 1):
            law = np.convolve(law, [r, 1 - r] if i < ones else [1 - r, r])
        p, q = (np.convolve(law, row) for row in ([r, 1 - r], [1 - r, r]))
        for one, two in ((p, q), (q, p)):
            sticks = np.maximum(one - np.exp(at)[:, None] * two, 0).sum(axis=1)
            true = np.maximum(true, sticks)
    lower, upper = Shuffled(RandomizedResponse(eps), reports).pair().profile(at)
    assert np.all(upper >= true * (1 - 1e-11))
    assert np.all(lower <= true * (1 + 1e-11))
    large = true > 1e-12
    assert np.all(upper[large] <= lower[large] * (1 + 1e-9))
    # of few others nothing is left out
    few = Shuffled(RandomizedResponse(eps), 20)
    assert few.profile(0.9 * eps).upper <= few.profile(0.9 * eps).lower * 1.05


def delta_of_values(eps: float, ones: int, zeros: int, at: float) -> mp.mpf:
    """Delta where so many others have each value, by a Fourier sum over 30 deviations of the count.

    The best test takes all counts from some s on: the largest gain is found by halving.
    """
    keep = 1 / (1 + mp.exp(-mp.mpf(eps)))
    r, t, others = 1 - keep, mp.exp(mp.mpf(at)), ones + zeros
    mean, deviation = ones * keep + zeros * r, mp.sqrt(others * r * keep)
    first, size = max(0, int(mean - 15 * deviation)), min(int(30 * deviation) + 64, others + 5)
    nodes = []
    for k in range(size // 2 + 1):
        angle = 2 * mp.pi * k / size
        if others * r * keep * angle**2 > 500:  # its moment is below e^-100
            break
        turn = mp.expj(angle)
        moment = mp.exp(ones * mp.log(keep * turn + r) + zeros * mp.log(r * turn + keep))
        nodes.append((1 if k == 0 or 2 * k == size else 2, angle, moment))
    end = first + size

    def gain(s: int) -> mp.mpf:
        point = tail = mp.mpf(0)
        for weight, angle, moment in nodes:
            point += weight * mp.re(moment * mp.expj(-angle * (s - 1)))
            some = mp.mpf(end - s)
            if angle:
                some = (mp.expj(-angle * s) - mp.expj(-angle * end)) / (1 - mp.expj(-angle))
            tail += weight * mp.re(moment * some)
        return ((keep - t * r) * point - (t - 1) * tail) / size

    low, high = int(mean), min(end - 1, others + 1)
    while high - low > 2:
        middle = (low + high) // 2
        low, high = (middle, high) if gain(middle) < gain(middle + 1) else (low, middle + 1)
    return max(gain(s) for s in range(low, high + 1))


def of_powers(ratio: int, ones: int, zeros: int) -> list[int]:
    """Integer weights of the number of ones, kept with odds ``ratio``: exact coefficients."""
    bits = (ones + zeros + 1) * ratio.bit_length() + 8
    x = 1 << bits
    value, mask = (1 + ratio * x) ** ones * (ratio + x) ** zeros, (1 << bits) - 1
    return [(value >> (bits * k)) & mask for k in range(ones + zeros + 1)]


def gained(ratio: int, law: list[int], t: Fraction) -> float:
    """The hockey-stick of the unit's two values, added to the others' law, in exact integers."""
    more, less, total = [*law, 0], [0, *law], sum(law) * (ratio + 1)
    num, den = t.numerator, t.denominator
    gains = (den * (a + ratio * b) - num * (ratio * a + b) for a, b in zip(more, less, strict=True))
    return float(Fraction(sum(max(gain, 0) for gain in gains), den * total))


@pytest.mark.parametrize("either", [0, 5, 64, 65, 250])
def test_blocks_of_values_are_above_exact_sums_of_all(either: int) -> None:
    ratio, at = 7, np.log([1.0, 1.01, 1.1, 1.5, 2.5, 6.0])
    thresholds = [Fraction(float(t)) for t in np.exp(at)]
    for ones, zeros in ((60, 10), (3, 200)):
        bounds = _of_values(math.log(ratio), ones, zeros, either, at)
        true = np.zeros(len(at))
        for more in range(0, either + 1, max(1, either // 8)):
            law = of_powers(ratio, ones + more, zeros + either - more)
            true = np.maximum(true, [gained(ratio, law, t) for t in thresholds])
        assert np.all(bounds >= true * (1 - 1e-12))
        if either == 0:
            assert np.all(bounds <= true * (1 + 1e-10) + 1e-28)


@pytest.mark.parametrize("units", [65, 120])
@pytest.mark.parametrize("ratio", [2, 20])
def test_what_laws_of_all_values_share(ratio: int, units: int) -> None:
    shared = _shared(math.log(ratio), units)
    if shared is None:
        assert ratio == 20
        return
    kappa, _, told = shared
    assert told >= 1 - kappa.sum()
    m = units - units % 2
    lowest = np.full(len(kappa), np.inf)
    for ones in range(0, m + 1, 3):
        law = of_powers(ratio, ones, m - ones)
        total = sum(law)
        exact = np.array([float(Fraction(w, total)) for w in law])
        # its mean, of which half of the units is the middle of kappa
        mean = Fraction(ratio * ones + m - ones, ratio + 1)
        first = m // 2 - (len(kappa) - 1) // 2 + round(mean - Fraction(m, 2))
        padded = np.pad(exact, m)
        lowest = np.minimum(lowest, padded[m + first : m + first + len(kappa)])
    assert np.all(kappa <= lowest)


@pytest.mark.parametrize("ratio", [Fraction(2), Fraction(7)])
def test_two_answers_are_exact_for_all_values_of_few_others(ratio: Fraction) -> None:
    ratios = between(ratio)[4:]
    for reports in (2, 9):
        loss = Shuffled(RandomizedResponse(math.log(ratio)), reports)
        # one direction at some number of ones is the other one at as many zeros
        laws = [of_powers(int(ratio), ones, reports - 1 - ones) for ones in range(reports)]
        for t in ratios:
            true = max(gained(int(ratio), law, t) for law in laws)
            bounds = loss.profile(math.log(float(t)))
            assert true * (1 - 1e-9) <= bounds.lower <= true * (1 + 1e-12)
            assert true * (1 - 1e-12) <= bounds.upper <= true * (1 + 1e-9)


@pytest.mark.parametrize("ratio", [2, 7])
def test_all_further_values_are_bounded_together(ratio: int) -> None:
    """Exact integers for 700 others, where no Fourier sum is."""
    others, first = 700, 3
    t = [Fraction(1), Fraction(101, 100), Fraction(11, 10)]
    at = np.log([float(each) for each in t])
    bounds = _beyond(math.log(ratio), others, first, at)
    assert np.all(np.isfinite(bounds[1:]))
    true = np.zeros(len(t))
    for zeros in (3, 4, 5, 20, 350, 700):
        law = of_powers(ratio, others - zeros, zeros)
        true = np.maximum(true, [gained(ratio, law, each) for each in t])
    assert np.all(bounds >= true * (1 - 1e-12))
    assert np.all(bounds[1:] <= true[1:] * (1 + 2e-3))


@pytest.mark.parametrize(("reports", "delta"), [(10**3, 1e-6), (10**8, 1e-9)])
def test_two_answers_are_narrow(reports: int, delta: float) -> None:
    loss = Shuffled(RandomizedResponse(2.0), reports)
    bounds = measure(Spend(loss), Distribution(), delta=delta).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper


@pytest.mark.parametrize(
    ("eps", "at"), [pytest.param(0.5, 8e-5, marks=pytest.mark.slow), (2.0, 5.2e-4)]
)
def test_a_hundred_million_reports_of_two_answers(eps: float, at: float) -> None:
    others, loss = 10**8 - 1, Shuffled(RandomizedResponse(eps), 10**8)
    bounds = loss.profile(at)
    with mp.workdps(40):
        true = [delta_of_values(eps, ones, others - ones, at) for ones in (0, others // 3, others)]
    assert bounds.lower <= max(true) * (1 + mp.mpf(10) ** -12)
    assert float(max(true)) <= bounds.upper <= bounds.lower * (1 + 1e-5)


@pytest.mark.parametrize("answers", [2, 4])
@pytest.mark.parametrize("eps", [1e-12, 1e-11])
def test_next_to_no_loss_has_a_lower_end(eps: float, answers: int) -> None:
    """Means of cells may lie in another order than the cells, by rounding."""
    pair = Shuffled(RandomizedResponse(eps, answers), 10**6).attained_pair()
    assert pair is not None
    assert 0 < pair.top() <= eps


@pytest.mark.parametrize("answers", [2, 3, 1000])
@pytest.mark.parametrize("reports", [10**3, 10**8])
def test_many_responses_have_both_ends(answers: int, reports: int) -> None:
    start = time.process_time()
    local = RandomizedResponse(2.0, answers)
    bounds = measure(Spend(Shuffled(local, reports)), Distribution(), delta=1e-7).bounds
    generic = measure(Spend(Shuffled(Pure(2.0), reports)), Distribution(), delta=1e-7).bounds
    assert bounds is not None
    assert generic is not None
    assert bounds.lower * 1.15 > bounds.upper > bounds.lower > 0
    assert bounds.upper < generic.upper / 1.05
    assert time.process_time() - start < 8


def test_extremes_of_responses() -> None:
    for eps, answers, reports in itertools.product(
        (1e-14, 1e-9, 600.0, 700.0), (2, 3, 10**6), (1, 2, 10**9)
    ):
        loss = Shuffled(RandomizedResponse(eps, answers), reports)
        for at in (0.0, eps / 2, eps):
            profile = loss.profile(at)
            assert 0 <= profile.lower <= profile.upper <= 1


@pytest.mark.parametrize("eps", [33.0, 38.0, 60.0, 599.0])
def test_reports_that_hardly_hide_anything(eps: float) -> None:
    # one of two reports is turned round with chance r of e^-eps at most, and no test is better than
    # whether the other's is known: divided by zero, as e^eps has more digits than a float
    at = eps - 1
    for local in (RandomizedResponse(eps, 2), RandomizedResponse(eps, 3), Pure(eps)):
        upper = Shuffled(local, 50).profile(at).upper
        assert upper >= 1 - math.exp(at - eps) - 1e-9
        assert upper <= 1 - math.exp(at - eps) + 1e-6


def test_farthest_losses_keep_their_digits() -> None:
    for eps, after in itertools.product((25.0, 30.0, 34.0, 36.5), _TAILS[1:]):
        # two counts of which nothing is hidden: the ratio is e^eps
        far = dict(zip(_TAILS, _far(eps, 1, 3), strict=False))
        before = _TAILS[_TAILS.index(after) - 1]
        assert far[before][0] >= eps * (1 - 1e-15)


def test_reports_compose_and_are_written() -> None:
    shuffled = Spend(Shuffled(RandomizedResponse(1.0, 16), 10_000))
    term = Sequential([Repeated(shuffled, 30), Spend(Shuffled(Laplace(0.5), 1000))])
    assert from_json(to_json(term)) == term
    bounds = measure(term, Distribution(), delta=1e-6).bounds
    one = measure(shuffled, Distribution(), delta=1e-6).bounds
    assert bounds is not None
    assert one is not None
    assert one.upper < bounds.upper < 30 * one.upper


def test_fewer_reports_of_a_larger_loss_dominate() -> None:
    many = [
        Shuffled(RandomizedResponse(eps, k), n)
        for eps, k, n in itertools.product((0.5, 1.0), (2, 3), (10, 100))
    ]
    many += [Shuffled(Pure(eps), n) for eps, n in itertools.product((0.5, 1.0), (10, 100))]
    at = np.linspace(0, 1, 20)
    dominated = 0
    for a, b in itertools.permutations(many, 2):
        if a.dominates(b):
            dominated += 1
            low, high = b.attained_pair(), a.pair().profile(at)[1]
            assert low is None or np.all(low.profile(at)[0] <= high)
    assert dominated > 10
    assert not Shuffled(RandomizedResponse(1.0, 3), 10).dominates(Shuffled(Pure(0.5), 10))


@pytest.mark.parametrize("local", [Gaussian(1.0), Approximate(1.0, 1e-6), 1.0, None])
def test_only_pure_reports_are_shuffled(local: PrivacyLoss) -> None:
    with pytest.raises(DomainError, match=r"Shuffled\.local"):
        Shuffled(local, 3)


@pytest.mark.parametrize("reports", [0, 2.5])
def test_reports_are_counted(reports: int) -> None:
    with pytest.raises(DomainError):
        Shuffled(Pure(1.0), reports)


# --- reports of which the epsilon alone is known


def reports_by_count(eps: float, ones: int, zeros: int) -> list[mp.mpf]:
    """The law of the number of ones among shuffled randomized responses."""
    keep = mp.exp(truth.real(eps)) / (1 + mp.exp(truth.real(eps)))
    total = [mp.mpf(0)] * (ones + zeros + 1)
    for i in range(ones + 1):
        first = mp.binomial(ones, i) * keep**i * (1 - keep) ** (ones - i)
        for j in range(zeros + 1):
            total[i + j] += first * mp.binomial(zeros, j) * (1 - keep) ** j * keep ** (zeros - j)
    return total


@pytest.mark.parametrize(("eps", "reports"), [(1.0, 1), (0.5, 2), (1.0, 5), (2.5, 8), (1.0, 20)])
def test_shuffled_randomized_responses(eps: float, reports: int) -> None:
    loss = Shuffled(Pure(eps), reports)
    upper = loss.pair().profile(LOSSES)[1]
    for ones in range(reports):
        more = reports_by_count(eps, ones + 1, reports - ones - 1)
        less = reports_by_count(eps, ones, reports - ones)
        for p, q in ((more, less), (less, more)):
            hockey = enumerated(list(zip(p, q, strict=True)))
            for at, bound in zip(LOSSES.tolist(), upper.tolist(), strict=True):
                assert bound >= hockey(truth.real(at)) * (1 - mp.mpf(10) ** -20)


def clones(eps: float, reports: int) -> truth.Pair:
    """The counts' pair, all of it."""
    e = mp.exp(truth.real(eps))
    w = e / (1 + e)
    pair = []
    for c in range(reports):
        mass = mp.binomial(reports - 1, c) * e**-c * (1 - 1 / e) ** (reports - 1 - c)
        for a in range(c + 2):
            from_u = mp.binomial(c, a - 1) if a else mp.mpf(0)
            from_v = mp.binomial(c, a)
            scale = mass / mp.mpf(2) ** c
            pair.append(
                (scale * (w * from_u + (1 - w) * from_v), scale * ((1 - w) * from_u + w * from_v))
            )
    return pair


@pytest.mark.parametrize(("eps", "reports"), [(1.0, 6), (2.0, 30), (4.0, 50), (0.3, 40)])
def test_shuffled_pairs_are_as_tight_as_their_theorem(eps: float, reports: int) -> None:
    loss = Shuffled(Pure(eps), reports)
    within = LOSSES[np.abs(LOSSES) < 0.9 * eps]
    covered(loss.pair(), enumerated(clones(eps, reports)), within, tight=1e-3)
    assert loss.pure() == eps
    assert loss.profile(eps).upper == 0.0


def test_shuffling_a_million_is_quick() -> None:
    start = time.process_time()
    for eps, reports in [(1.0, 10**6), (4.0, 10**6), (12.0, 10**6), (600.0, 10**30), (1e-14, 3)]:
        bounds = measure(Spend(Shuffled(Pure(eps), reports)), Renyi(), delta=1e-6).bounds
        assert bounds is not None
        assert bounds.upper <= eps * (1 + 1e-9)
    assert Shuffled(Pure(1.0), 10**6).profile(0.02).upper < 1e-5
    pure = measure(Spend(Shuffled(Pure(1.0), 10**6)), Basic(), delta=0.0).bounds
    assert pure is not None
    assert pure.upper == 1.0
    assert time.process_time() - start < 8
