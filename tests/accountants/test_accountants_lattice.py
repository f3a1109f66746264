"""The lattice engine: brackets that hold the truth, from delta 0.9 to 1e-200, and how narrow."""

from __future__ import annotations

import itertools
import math
import time
from itertools import pairwise
from typing import Any

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import accountants as acc
from accountants import special
from accountants.definitions import gdp_epsilon
from accountants.distribution import Distribution, convolution, lattice, tilting
from accountants.distribution.discretisation import Grid, Law, law_above, law_below
from accountants.distribution.lattice import epsilon, profile
from accountants.errors import DomainError, InapplicableError
from accountants.finite import FinitePair
from accountants.losses.discrete import DiscreteLaplacePair
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair
from accountants.losses.pure import ResponsePair
from accountants.losses.sampling import sampled_pair
from accountants.numerics import Array, Bounds, remembered
from accountants.pair import Pair

# --- truths


def laplace_delta(eps0: float, times: int):
    """The profile of equal Laplace mechanisms, exactly.

    m of them fall between the atoms: there the densities multiply to one of their sum, times the
    volume of the sums of m uniforms (Irwin and Hall), a polynomial between its knots.
    """

    def delta_at(at: mp.mpf) -> mp.mpf:
        with mp.workdps(100):
            e, half = truth.real(eps0), mp.mpf(1) / 2
            total = mp.mpf(0)
            for m in range(times + 1):
                for a in range(times - m + 1):
                    b = times - m - a
                    ways = mp.binomial(times, m) * mp.binomial(times - m, a)
                    weight = ways * half**a * (mp.exp(-e) / 2) ** b
                    total += weight * smooth(e, m, (a - b) * e, at)
            return total

    return delta_at


def smooth(e: mp.mpf, m: int, base: mp.mpf, at: mp.mpf) -> mp.mpf:
    """The integral over the sum S of m inner losses of (1 - e^{at - base - S})_+."""
    if m == 0:
        return max(mp.mpf(0), 1 - mp.exp(at - base))
    low = at - base
    total = mp.mpf(0)
    for j in range(m + 1):
        knot = (2 * j - m) * e
        start = max(low, knot) - knot
        stop = m * e - knot
        if start >= stop:
            continue
        grow = part(m - 1, start, stop, mp.mpf(1) / 2) * mp.exp(knot / 2)
        fall = part(m - 1, start, stop, -mp.mpf(1) / 2) * mp.exp(low - knot / 2)
        total += (-1) ** j * mp.binomial(m, j) * (grow - fall)
    return total * mp.exp(-m * e / 2) / 4**m


def part(n: int, start: mp.mpf, stop: mp.mpf, rate: mp.mpf) -> mp.mpf:
    """The integral of u^n / n! e^{rate u}."""

    def primitive(u: mp.mpf) -> mp.mpf:
        terms = [
            (-1) ** (n - i) * u**i / (mp.factorial(i) * rate ** (n - i + 1)) for i in range(n + 1)
        ]
        return mp.exp(rate * u) * mp.fsum(terms)

    return primitive(stop) - primitive(start)


def responses(*epsilons: float):
    """The profile of randomized responses, by enumeration."""
    return truth.Profile(truth.product(truth.response(e) for e in epsilons))


def brackets(bounds, delta_at, delta: float, width: float = float("inf")) -> None:
    """Assert that the bracket holds the truth and is no wider."""
    truth.proves(bounds.upper, delta_at, delta)
    truth.refutes(bounds.lower, delta_at, delta)
    assert bounds.upper - bounds.lower <= width, bounds


@frozen
class Sampled(Pair):
    """A Poisson-subsampled Gaussian, removal: ``(1-q) N(0,1) + q N(mu,1)`` against N(0,1)."""

    mu: float
    rate: float

    def _x(self, loss: Array) -> Array:
        with np.errstate(all="ignore"):
            ratio = (np.expm1(np.minimum(loss, 600)) + self.rate) / self.rate
            x = np.log(np.where(ratio > 0, ratio, 1.0))
            x = np.where(loss > 600, loss - np.log(self.rate), x) / self.mu + self.mu / 2
        return np.where((ratio > 0) | (loss > 600), x, -np.inf)

    def above(self, loss: Array) -> tuple[Array, Array]:
        x = self._x(loss)
        q = special.ndtr(-x)
        return (1 - self.rate) * q + self.rate * special.ndtr(self.mu - x), q

    def below(self, loss: Array) -> tuple[Array, Array]:
        x = self._x(loss)
        q = special.ndtr(x)
        return (1 - self.rate) * q + self.rate * special.ndtr(x - self.mu), q

    def tail_error(self) -> float:
        return 1e-10

    def bottom(self) -> float:
        return float(np.log1p(-self.rate)) * (1 + 1e-15)


def sampled_delta(mu: float, rate: float, at: mp.mpf) -> mp.mpf:
    """The profile of one step, both ways: removal at ``at``."""
    m, q = truth.real(mu), truth.real(rate)
    ratio = (mp.exp(at) - 1 + q) / q
    x = mp.log(ratio) / m + m / 2

    def tail(y: mp.mpf) -> mp.mpf:
        return mp.erfc(y / mp.sqrt(2)) / 2

    return (1 - q) * tail(x) + q * tail(x - m) - mp.exp(at) * tail(x)


# --- discrete losses


@pytest.mark.parametrize(
    ("epsilons", "delta", "exact"),
    [
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), 1e-3, 2.074615561426659845),
        ((1, 0.5, 0.25, 0.125, 2), 1e-2, 3.787757247668341371507871),
    ],
)
def test_unequal_responses_on_one_lattice_compose_exactly(
    epsilons: tuple[float, ...], delta: float, exact: float
) -> None:
    bounds = epsilon([(ResponsePair(float(e)), 1) for e in epsilons], delta)
    assert bounds.lower <= exact <= bounds.upper
    assert bounds.upper - bounds.lower < 1e-10


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-12, 1e-20, 1e-27])
def test_equal_responses_compose_exactly(delta: float) -> None:
    bounds = epsilon([(ResponsePair(0.1), 100)], delta)
    brackets(bounds, truth.binomial_delta(0.1, 100), delta, 1e-8)


@pytest.mark.parametrize(
    ("eps0", "times", "delta"), [(2.0, 40, 1e-100), (5.0, 200, 1e-200), (1.0, 300, 1e-250)]
)
def test_tiny_deltas_keep_their_digits(eps0: float, times: int, delta: float) -> None:
    bounds = epsilon([(ResponsePair(eps0), times)], delta)
    brackets(bounds, truth.binomial_delta(eps0, times), delta, 1e-6)


@pytest.mark.parametrize("eps0", [1e-6, 1e-3, 0.1, 3.0, 30.0])
@pytest.mark.parametrize("times", [1, 2, 7])
@pytest.mark.parametrize("delta", [0.9, 1e-1, 1e-6, 1e-14, 1e-30])
def test_responses_of_all_sizes(eps0: float, times: int, delta: float) -> None:
    bounds = epsilon([(ResponsePair(eps0), times)], delta)
    brackets(bounds, truth.binomial_delta(eps0, times), delta)
    assert bounds.upper <= times * eps0 * (1 + 1e-15)


@examples(20)
@given(
    st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6, unique=True),
    st.floats(-12, -0.1),
)
def test_responses_off_any_lattice(epsilons: list[float], exponent: float) -> None:
    delta = 10**exponent
    bounds = epsilon([(ResponsePair(e), 1) for e in epsilons], delta)
    brackets(bounds, responses(*epsilons), delta, 1e-2)


@examples(15)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 3), st.floats(-10, -0.2))
def test_discrete_pairs_at_random(seed: int, size: int, times: int, exponent: float) -> None:
    rational, _ = truth.random_pair(seed, size)
    rows: dict[mp.mpf, list[mp.mpf]] = {}
    for p, q in rational:
        row = rows.setdefault(mp.log(p / q), [mp.mpf(0), mp.mpf(0)])
        row[0], row[1] = row[0] + p, row[1] + q
    losses = sorted(rows)
    pair = FinitePair(losses, [rows[x][0] for x in losses], [rows[x][1] for x in losses])
    delta = 10**exponent
    side = truth.Profile([(p, q) for p, q in truth.product([rational] * times)])
    side.sides = side.sides[:1]  # one direction
    brackets(epsilon([(pair, times)], delta), side, delta)


# --- Laplace


@pytest.mark.parametrize("eps0", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("times", [1, 2, 5, 10])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-15])
def test_laplace_against_its_exact_profile(eps0: float, times: int, delta: float) -> None:
    bounds = epsilon([(LaplacePair(eps0), times)], delta)
    brackets(bounds, laplace_delta(eps0, times), delta, 2e-6 * max(1, eps0))


@pytest.mark.parametrize(
    ("eps0", "times", "delta", "lower", "upper"),
    [
        (0.1, 10, 1e-5, 0.98996231115, 0.98996231116),
        (0.1, 100, 1e-5, 4.22034732508024, 4.2203473250803825),
        (1.0, 10, 1e-5, 9.989962311150627, 9.989962311150629),
        (1.0, 2, 1e-6, 1.9999959999999999, 1.9999960000000001),
    ],
)
def test_laplace_is_narrow(
    eps0: float, times: int, delta: float, lower: float, upper: float
) -> None:
    bounds = epsilon([(LaplacePair(eps0), times)], delta)
    assert bounds.lower <= upper
    assert bounds.upper >= lower
    assert bounds.upper - bounds.lower < 1e-8


@examples(15)
@given(st.floats(-4, 1.2), st.integers(1, 6), st.floats(-30, -0.05))
def test_laplace_at_random(size: float, times: int, exponent: float) -> None:
    eps0, delta = 10**size, 10**exponent
    brackets(epsilon([(LaplacePair(eps0), times)], delta), laplace_delta(eps0, times), delta)


# --- Gaussians


@pytest.mark.parametrize(
    ("mu", "times", "delta", "width"),
    [
        (1.0, 1, 1e-5, 1e-6),
        (0.1, 1, 0.03, 1e-8),
        (1.0, 1, 0.3, 1e-6),
        (3.0, 1, 0.9, 1e-5),
        (0.1, 100, 1e-5, 1e-5),
        (1.0, 1, 1e-30, 1e-5),
        (1.0, 4, 1e-200, 1e-2),
        (0.01, 10**4, 1e-5, 1e-3),
        (5.0, 100, 1e-6, 1e-2),
        (31.0, 1, 1e-5, 1e-3),
        (1e-3, 10**6, 1e-5, 0.1),
        (1e-4, 10**8, 1e-5, 1.0),
    ],
)
def test_gaussians_against_the_closed_form(
    mu: float, times: int, delta: float, width: float
) -> None:
    bounds = epsilon([(GaussianPair(mu), times)], delta)
    exact = gdp_epsilon(mu * times**0.5, delta)
    assert bounds.lower <= exact.upper * (1 + 1e-12)
    assert bounds.upper >= exact.lower * (1 - 1e-12)
    assert bounds.upper - bounds.lower <= width, bounds


@examples(15)
@given(st.floats(-2, 1), st.integers(1, 50), st.floats(-40, -0.05))
def test_gaussians_at_random(size: float, times: int, exponent: float) -> None:
    mu, delta = 10**size, 10**exponent
    bounds = epsilon([(GaussianPair(mu), times)], delta)
    exact = gdp_epsilon(mu * times**0.5, delta)
    assert bounds.lower <= exact.upper * (1 + 1e-12)
    assert bounds.upper >= exact.lower * (1 - 1e-12)


def test_different_gaussians() -> None:
    mus = np.linspace(0.1, 0.5, 20)
    bounds = epsilon([(GaussianPair(float(mu)), 1) for mu in mus], 1e-6)
    exact = gdp_epsilon(float(np.sqrt((mus**2).sum())), 1e-6)
    assert bounds.lower <= exact.upper <= bounds.upper * (1 + 1e-12)
    assert bounds.upper - bounds.lower < 1e-3


# --- sampled Gaussians


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize(("mu", "rate"), [(5.0, 0.01), (1.0, 0.1), (0.5, 0.5)])
def test_one_sampled_gaussian(mu: float, rate: float, delta: float) -> None:
    bounds = epsilon([(Sampled(mu, rate), 1)], delta)
    brackets(bounds, lambda at: sampled_delta(mu, rate, at), delta, 1e-3)


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize(("mu", "rate"), [(5.0, 0.01), (1.0, 0.1), (0.5, 0.5)])
def test_one_sampled_gaussian_the_other_way(mu: float, rate: float, delta: float) -> None:
    def delta_at(at: mp.mpf) -> mp.mpf:
        if at >= -mp.log1p(-truth.real(rate)):
            return mp.mpf(0)
        return 1 - mp.exp(at) + mp.exp(at) * sampled_delta(mu, rate, -at)

    brackets(epsilon([(Sampled(mu, rate).reversed(), 1)], delta), delta_at, delta, 1e-4)


def test_rare_events_are_bracketed_closely() -> None:
    bounds = epsilon([(Sampled(5.0, 0.01), 100)], 1e-5)
    assert bounds.lower <= 75.09699733  # an upper bound that others found
    assert bounds.upper - bounds.lower < 1e-3
    back = epsilon([(Sampled(5.0, 0.01).reversed(), 100)], 1e-5)
    assert back.upper < 1.0051
    assert back.upper - back.lower < 1e-3


# --- mixtures, profiles, laws


def test_brackets_of_different_lattices_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    spends = [(LaplacePair(0.3), 5), (GaussianPair(0.4), 3), (ResponsePair(0.2), 4)]
    spends.append((Sampled(2.0, 0.1), 3))
    epsilons = [epsilon(spends, 1e-6)]
    for length in (2**14, 2**11):
        monkeypatch.setattr(lattice, "LENGTH", length)
        epsilons.append(epsilon(spends, 1e-6))
    assert max(b.lower for b in epsilons) <= min(b.upper for b in epsilons)
    assert epsilons[0].upper - epsilons[0].lower < 1e-4


def test_profile_brackets_the_truth() -> None:
    points = np.concatenate([np.linspace(0, 0.95, 12), [0.999, 0.9999, 1.0, 1.5]])
    lower, upper = profile([(LaplacePair(0.1), 10)], points)
    exact = laplace_delta(0.1, 10)
    for at, low, high in zip(points, lower, upper, strict=True):
        value = exact(truth.real(float(at)))
        assert truth.real(low) <= value <= truth.real(high), at
        assert high - low <= 1e-5 * high + 1e-12
    assert upper[-1] == 0


def test_profile_of_gaussians_over_many_orders() -> None:
    points = np.linspace(0, 20, 9)
    lower, upper = profile([(GaussianPair(0.5), 8)], points[::-1])
    for at, low, high in zip(points[::-1], lower, upper, strict=True):
        value = truth.gaussian_delta(mp.sqrt(2), float(at))
        assert truth.real(low) <= value <= truth.real(high), at
        assert high - low <= 1e-4 * high, at


def test_epsilon_falls_in_delta() -> None:
    spends = [(LaplacePair(0.5), 3), (GaussianPair(0.7), 1)]
    epsilons = [epsilon(spends, delta) for delta in (0.5, 1e-2, 1e-6, 1e-12)]
    for one, other in pairwise(epsilons):
        assert one.lower <= other.upper


def test_many_pairs_in_seconds() -> None:
    draw = np.random.default_rng(5)
    kinds = (LaplacePair, ResponsePair, GaussianPair)
    spends = [(kinds[i % 3](e), 1) for i, e in enumerate(draw.uniform(0.01, 0.05, 300))]
    start = time.process_time()
    bounds = epsilon(spends, 1e-6)
    assert time.process_time() - start < 10
    assert 0 < bounds.lower <= bounds.upper < 4


def test_pairs_that_nothing_attains_have_no_lower_bound() -> None:
    pair = FinitePair([-0.5, 0.5], [0.4, 0.6], [0.6, 0.4], error=1.0, tight=False)
    assert epsilon([(pair, 3)], 1e-3).lower == 0


def test_free_pairs_cost_nothing() -> None:
    assert epsilon([], 0.1).upper == 0
    assert epsilon([(ResponsePair(0.0), 10), (LaplacePair(1.0), 0)], 0.1).upper == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, float("nan")])
def test_delta_must_be_inside(delta: float) -> None:
    with pytest.raises(DomainError):
        epsilon([(ResponsePair(0.1), 1)], delta)


def test_epsilons_must_not_be_negative() -> None:
    with pytest.raises(DomainError):
        profile([(ResponsePair(0.1), 1)], np.array([-1.0]))


def test_what_no_lattice_resolves_is_refused_or_loose() -> None:
    with pytest.raises(InapplicableError):
        epsilon([(GaussianPair(1e6), 1)], 1e-5)
    bounds = epsilon([(ResponsePair(1e-6), 10**14)], 1e-6)
    assert bounds.upper <= 10**8 * (1 + 1e-9)


# --- the parts


@pytest.mark.parametrize("n", [2**5, 2**12])
def test_transforms_are_as_accurate_as_assumed(n: int) -> None:
    draw = np.random.default_rng(n)
    for masses in (draw.random(n), draw.random(n) ** 40, np.eye(1, n, n // 3)[0]):
        spectrum = np.fft.rfft(masses)
        for at in (1, 3, n // 4 - 1, n // 2 - 1):
            turns = [mp.expjpi(-2 * mp.mpf(at * j % n) / n) for j in range(n)]
            exact = mp.fsum(mp.mpf(x) * w for x, w in zip(masses, turns, strict=True))
            allowed = convolution.transform_error(n) * masses.sum()
            assert abs(mp.mpc(complex(spectrum[at])) - exact) <= allowed / 8


def test_composed_masses_are_as_accurate_as_bounded() -> None:
    pair, times = ResponsePair(0.5), 60
    law = law_above(pair, Grid(0.0, 0.5, -2, 2), 0.0, 1e-14)
    total = convolution.compose([(law, times)], 512)
    more = 1 / (1 + mp.exp(-mp.mpf(0.5)))
    for wins in range(times + 1):
        exact = mp.binomial(times, wins) * more**wins * (1 - more) ** (times - wins)
        index = (2 * wins - times - total.centre) % 512
        mass = mp.mpf(float(total.masses[index])) * mp.exp(total.log_mass)
        assert abs(mass - exact) <= total.error * 1.001 + 1e-12 * exact


@pytest.mark.parametrize("pair", [LaplacePair(0.7), GaussianPair(1.3), Sampled(2.0, 0.1)])
@pytest.mark.parametrize("tilt", [0.0, 3.0])
def test_one_law_lies_above_and_one_below(pair: Pair, tilt: float) -> None:
    step = 0.7 / 16
    grid = Grid(0.0, step, -400, 400)
    upper = law_above(pair, grid, tilt * step, 1e-14)
    lower = law_below(pair, grid, tilt * step)
    for at in np.linspace(-1, 3, 41):
        low, high = pair.profile(np.array([at]))
        assert hockey_stick(lower, step, at) <= high[0] + 1e-12
        assert hockey_stick(upper, step, at) >= low[0] - 1e-12


def hockey_stick(law: Law, step: float, at: float) -> float:
    index = law.first + np.arange(len(law.weights))
    losses = sum(law.offset) + index * step
    masses = law.weights * np.exp(law.log_mass - law.tilt * (index - law.centre))
    return float(masses @ np.maximum(0.0, -np.expm1(np.minimum(at - losses, 0.0)))) + law.lost


# --- atoms that lie anywhere


def uneven_loss(atoms: int, seed: int) -> acc.PrivacyLoss:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(atoms))
    q = p * np.exp(-rng.uniform(-1.0, 1.0, atoms))
    return acc.PrivacyLoss.from_probabilities(p.tolist(), (q / q.sum()).tolist())


def uneven(atoms: int, seed: int) -> FinitePair:
    pair = uneven_loss(atoms, seed).pair()
    assert isinstance(pair, FinitePair)
    return pair


def outcomes(spends: list[tuple[FinitePair, int]]) -> tuple[Any, Any]:
    """Return all sums of losses with their masses: of copies, by how often each atom comes."""
    losses, masses = np.zeros(1), np.ones(1)
    for pair, times in spends:
        counts = [
            np.bincount(each, minlength=len(pair.p))
            for each in itertools.combinations_with_replacement(range(len(pair.p)), times)
        ]
        table = np.array(counts)
        orders = [math.factorial(times) / math.prod(map(math.factorial, c.tolist())) for c in table]
        mass = np.array(orders) * np.prod(np.array(pair.p) ** table, axis=1)
        losses = (losses[:, None] + table @ np.array(pair.losses)).ravel()
        masses = (masses[:, None] * mass).ravel()
    return losses, masses


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [([(40, 3)], (2**9, 2**12)), ([(3, 40)], (2**11, 2**14)), ([(25, 2), (7, 3)], (2**9, 2**12))],
)
def test_spread_atoms_hold_all_outcomes_on_any_lattice(
    shape: list[tuple[int, int]], sizes: tuple[int, int]
) -> None:
    """However coarse the lattice is, so that its bounds are as wide as they claim to be."""
    spends = [(uneven(atoms, i), times) for i, (atoms, times) in enumerate(shape)]
    losses, masses = outcomes(spends)
    with np.errstate(all="ignore"):
        plan = lattice._plan(tuple(spends))
        widths = []
        for size in sizes:
            for share in (0.05, 0.2, 0.5, 0.8):
                epsilon = share * plan.top
                truth = math.fsum(
                    masses[losses > epsilon] * -np.expm1(epsilon - losses[losses > epsilon])
                )
                around, ends = plan.for_epsilon(epsilon)
                made = lattice._spread_in(plan, ends, around, size)
                low, high = made.bounds(epsilon)
                assert low <= truth * (1 + 1e-12)
                assert truth * (1 - 1e-12) <= high
                widths.append((high - low) / truth)
        # the square of the step
        half = len(widths) // 2
        assert max(widths[:half]) > 1e-5
        assert np.median(widths[half:]) < np.median(widths[:half]) / 20
        epsilons = np.array([0.2, 0.5]) * plan.top
        found = lattice.scattered_profile(spends, epsilons)
        assert found is not None
        for epsilon, low, high in zip(epsilons.tolist(), *found, strict=True):
            some = losses > epsilon
            truth = math.fsum(masses[some] * -np.expm1(epsilon - losses[some]))
            assert low <= truth * (1 + 1e-12)
            assert truth * (1 - 1e-12) <= high <= low * (1 + 4e-7)
            bounds = lattice.scattered(spends, truth, Bounds(0.0, plan.top))
            assert bounds is not None
            assert bounds.lower <= epsilon * (1 + 1e-12)
            assert epsilon * (1 - 1e-12) <= bounds.upper
            assert bounds.upper - bounds.lower <= 5e-8 * (1 + epsilon)


def test_thousands_of_uneven_losses_leave_no_width() -> None:
    for times, delta in ((2, 1e-10), (5, 1e-6)):
        term = acc.Repeated(acc.Spend(uneven_loss(1500, 1)), times)
        bounds = acc.measure(term, Distribution(), delta=delta).bounds
        assert 0 < bounds.upper - bounds.lower <= 1e-7 * bounds.upper


def twice(laws: Any, epsilon: float) -> float:
    """Return the hockey-stick of two steps: an integral of one step's, atoms and panels apart.

    ``laws(x)`` are the density under Q of an outcome and its loss; panels are ``laws.panels``, and
    ``laws.atoms`` are masses under Q and losses. One step's hockey-stick is a sum of the same kind.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)

    def one(points: Any) -> Any:
        total = np.zeros_like(points)
        for mass, loss in laws.atoms:
            total += mass * np.maximum(0.0, math.exp(loss) - np.exp(points))
        edges = np.array(laws.panels)
        # the outcome from which on the loss is larger cuts a panel in two
        cut = np.clip(laws.outcome(points), edges[0], edges[-1])
        for first, last in pairwise(edges):
            begin = np.clip(cut, first, last)
            half = (last - begin) / 2
            x = begin[..., None] + half[..., None] * (1 + nodes)
            density, loss = laws.density(x), laws.loss(x)
            total += half * ((np.exp(loss) - np.exp(points)[..., None]) * density * weights).sum(-1)
        return total

    total = 0.0
    for mass, loss in laws.atoms:
        total += mass * math.exp(loss) * float(one(np.array([epsilon - loss]))[0])
    # where the other step's least loss is just enough the integrand turns quickly
    least = math.log1p(-laws.rate)
    bend = [float(laws.outcome(np.array([epsilon - loss]))[0]) for _, loss in laws.atoms]
    away = np.geomspace(1e-5, 1.0, 40)
    turn = float(laws.outcome(np.array([epsilon - least]))[0])
    bend += [*(turn - away), turn, *(turn + away)]
    edges = np.unique(np.clip([*laws.panels, *bend], laws.panels[0], laws.panels[-1]))
    for first, last in pairwise(edges):
        x = first + (last - first) / 2 * (1 + nodes)
        inner = one(epsilon - laws.loss(x))
        total += (
            (last - first) / 2 * float((weights * laws.density(x) * np.exp(laws.loss(x))) @ inner)
        )
    return total


class SampledGaussianLaw:
    atoms: tuple[tuple[float, float], ...] = ()

    def __init__(self, mu: float, rate: float) -> None:
        self.mu, self.rate = mu, rate
        self.panels = np.linspace(-9.0, 9.0 + mu, 80)

    def density(self, x: Any) -> Any:
        return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def loss(self, x: Any) -> Any:
        return np.log1p(self.rate * np.expm1(self.mu * x - self.mu**2 / 2))

    def outcome(self, loss: Any) -> Any:
        with np.errstate(all="ignore"):
            x = (np.log1p(np.expm1(loss) / self.rate) + self.mu**2 / 2) / self.mu
        return np.where(np.isnan(x), -1e9, x)


class SampledLaplaceLaw:
    """Outcomes are the body's losses: two atoms, and between them a density."""

    def __init__(self, size: float, rate: float) -> None:
        self.size, self.rate = size, rate
        self.panels = np.linspace(-size, size, 60)
        ends = (self.loss(np.array(end)) for end in (-size, size))
        self.atoms = tuple(
            (mass, float(end)) for mass, end in zip((0.5, math.exp(-size) / 2), ends, strict=True)
        )

    def density(self, x: Any) -> Any:
        return np.exp(-(x + self.size) / 2) / 4

    def loss(self, x: Any) -> Any:
        return np.log1p(self.rate * np.expm1(x))

    def outcome(self, loss: Any) -> Any:
        with np.errstate(all="ignore"):
            x = np.log1p(np.expm1(loss) / self.rate)
        return np.where(np.isnan(x), -1e9, x)


@pytest.mark.parametrize(
    ("pair", "laws"),
    [
        (sampled_pair(GaussianPair(2.5), 0.01), SampledGaussianLaw(2.5, 0.01)),
        (sampled_pair(LaplacePair(4.0), 0.1), SampledLaplaceLaw(4.0, 0.1)),
    ],
)
def test_any_losses_spread_over_any_lattice_hold_an_integral(pair: Any, laws: Any) -> None:
    """Also where large losses are put on one point and at infinity."""
    spends = ((pair, 2),)
    with np.errstate(all="ignore"):
        plan = lattice._plan(spends)
        for epsilon in (0.02, 1.7):
            truth, widths = twice(laws, epsilon), []
            # about as often with a cap as without one
            for size in (2**8, 2**13):
                for reach in (epsilon, 1.3 * epsilon, math.inf):
                    capped, lost = plan.up_to(reach, math.log(truth))
                    rest = math.log(max(truth - lost, 1e-6 * truth))
                    around, ends = capped.for_delta(rest, max(0.0, 0.5 * epsilon))
                    made = lattice._spread_in(capped, ends, around, size)
                    low, high = made.bounds(epsilon)
                    assert low <= truth * (1 + 1e-9)
                    assert truth * (1 - 1e-9) <= high
                    widths.append((high - low) / truth)
            assert min(widths[:3]) > 1e-7
            assert min(widths[3:]) < min(widths[:3]) / 50
            bounds = lattice.scattered(spends, truth, Bounds(0.0, 1 + 2 * epsilon))
            assert bounds is not None
            assert bounds.lower <= epsilon + 1e-8
            assert epsilon - 1e-8 <= bounds.upper <= bounds.lower + 1e-7


@pytest.mark.parametrize(
    ("step", "times", "delta"),
    [
        (acc.Sampled(acc.Spend(acc.Laplace(epsilon=5.0)), rate=0.1), 300, 1e-5),
        (acc.Sampled(acc.Spend(acc.Gaussian(mu=4.0)), rate=0.01), 10, 1e-6),
    ],
)
def test_steps_with_atoms_or_little_noise_leave_no_width(
    step: acc.Sampled, times: int, delta: float
) -> None:
    bounds = acc.measure(acc.Repeated(step, times), Distribution(), delta=delta).bounds
    assert 0 < bounds.upper - bounds.lower <= 2e-7 * bounds.upper


def test_what_has_no_atoms_is_passed_on() -> None:
    """Also where none of the pairs is of atoms: each method passes on what is not its own."""
    loss = acc.losses.GaussianSparseVector(2.00001, 2.0, queries=18, hits=1)
    twice = acc.Repeated(acc.Spend(loss), 2)
    bounds = acc.measure(twice, Distribution(), delta=1e-6).bounds
    assert 0 < bounds.upper < math.inf
    assert acc.measure(twice, Distribution(), epsilon=bounds.upper).bounds.lower <= 1e-6


def test_a_window_that_is_kept_serves_the_next_epsilons_as_its_own_does() -> None:
    spends = [(LaplacePair(0.9), 2), (DiscreteLaplacePair(1.7, 1), 3)]
    points = np.linspace(0.05, 4.0, 30)
    whole = lattice.profile(spends, points)
    lattice._plan.cache_clear()
    # one by one, and from the last to the first: most are met by a window made for another
    parts = [lattice.profile(spends, points[i : i + 1]) for i in range(29, -1, -1)]
    low, high = (np.concatenate(part)[::-1] for part in zip(*parts, strict=True))
    assert np.all(np.maximum(low, whole[0]) <= np.minimum(high, whole[1]))
    assert np.all(high - low <= 2 * (whole[1] - whole[0]) + 1e-9 * high)


def test_results_are_kept_up_to_so_many_bytes() -> None:
    made = []

    @remembered(16, size=10_000)
    def zeros(count: int) -> Array:
        made.append(count)
        return np.zeros(count)

    assert zeros(100) is zeros(100)
    for count in range(101, 201):
        zeros(count)
        assert len(zeros) <= 16
    assert sum(result.nbytes for result in zeros._results.values()) <= 10_000
    zeros(10_000)  # the last one is kept, however large
    assert zeros(10_000) is zeros(10_000)
    assert made == [*range(100, 201), 10_000]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_best_tilt_of_a_normal_loss(scale: float) -> None:
    """``(m^2 c (c + 1) / 2 + a) / c`` is least at ``c = sqrt(2 a) / m``."""
    coarse = tilting.coarse_cumulants(scale)
    asked: list[int] = []

    def cumulant(c: Array) -> Array:
        asked.append(len(c))
        return (scale * c) * (scale * (c + 1)) / 2

    for a in (1e-3, 20.0, 200.0):
        best, least = tilting.best_tilt(cumulant, lambda c, k, a=a: (k + a) / c, coarse)  # type: ignore[misc]
        truth = math.sqrt(2 * a) / scale
        assert best == pytest.approx(truth, rel=0.01)
        assert least == pytest.approx(scale**2 * (truth + 0.5), rel=1e-3)
    assert sum(asked) < 3 * 66 + 90
