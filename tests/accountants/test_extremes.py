"""Numbers next to the ends of the floats, which random questions found: none crashes or misleads.

The truth is that of `mpmath`, with digits to spare, or of a closed form.
"""

from __future__ import annotations

import itertools
import math
import time

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom, norm

import accountants as acc
from accountants import (
    ACCOUNTANTS,
    Allocated,
    Bounds,
    Composite,
    Distribution,
    Gaussian,
    GaussianDP,
    GaussianMixture,
    Grouped,
    Guarantee,
    Laplace,
    Pure,
    RandomizedResponse,
    Repeated,
    ReplacedSample,
    Sampled,
    Spend,
    Term,
    losses,
    measure,
)

ORDERS = np.array([1.1, 2.0, 64.0, 1e6])


def brackets(term: Term, **at: float) -> list[Bounds]:
    """Return what each accountant says; no one's lower end is above another's upper end."""
    answers = [measure(term, accountant, **at).bounds for accountant in ACCOUNTANTS]
    found = [bounds for bounds in answers if bounds is not None]
    for one, other in itertools.permutations(found, 2):
        assert one.lower <= other.upper
    return found


@pytest.mark.parametrize("epsilon", [5e-324, 2e-310, 1e-300, 1e-162])
def test_a_divergence_is_not_below_the_truth_where_numbers_are_subnormal(epsilon: float) -> None:
    claimed = Laplace(epsilon).renyi(ORDERS)
    with mp.workdps(700):
        e = mp.mpf(epsilon)
        for order, bound in zip(ORDERS.tolist(), claimed.tolist(), strict=True):
            a = mp.mpf(order)
            moment = a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)
            assert bound >= mp.log(moment / (2 * a - 1)) / (a - 1) > 0


@pytest.mark.parametrize("rate", [1e-300, 1e-17, 0.3])
@pytest.mark.parametrize("epsilon", [5e-324, 1e-310, 1e-290, 1e-20])
def test_replaced_samples_of_tiny_losses(epsilon: float, rate: float) -> None:
    """The pure epsilon is ``log (1 - q + q e^eps) / (1 - q + q e^-eps)``, and that is not 0."""
    for loss in (Laplace(epsilon), Pure(epsilon)):
        term = ReplacedSample(Spend(loss), rate)
        with mp.workdps(700):
            q, e = mp.mpf(rate), mp.mpf(epsilon)
            truth = mp.log((1 - q + q * mp.exp(e)) / (1 - q + q * mp.exp(-e)))
            assert all(bounds.upper >= truth > 0 for bounds in brackets(term, delta=0.0))
        brackets(term, epsilon=0.0)
        assert (Guarantee(term).renyi(ORDERS) >= 0).all()


@pytest.mark.parametrize(("mu", "rate"), [(26.3, 4.9e-6), (11.0, 0.0026)])
def test_a_replaced_sample_costs_nothing_at_a_delta_of_its_rate(mu: float, rate: float) -> None:
    """No event tells the two mixtures apart by more than the rate: epsilon was 175 there."""
    answer = measure(ReplacedSample(Spend(Gaussian(mu)), rate), Distribution(), delta=rate).bounds
    assert answer is not None
    assert answer.upper == 0


@pytest.mark.parametrize("rate", [1e-17, 0.3])
def test_samples_of_what_costs_nothing_cost_nothing(rate: float) -> None:
    for times in (1, 1000):
        term = Repeated(Sampled(Spend(Laplace(0.0)), rate), times)
        assert {*brackets(term, delta=0.0)} == {Bounds(0.0, 0.0)}
        assert max(bounds.upper for bounds in brackets(term, epsilon=0.0)) <= 5e-324
        brackets(ReplacedSample(Spend(Laplace(0.0)), rate), epsilon=0.0)


@pytest.mark.parametrize("epsilon", [0.00999350782507164, 0.3, 1.7])
@pytest.mark.parametrize("steps", [2, 5])
def test_the_extremes_of_an_allocation_are_not_above_the_truth(epsilon: float, steps: int) -> None:
    """All steps may have the largest ratio, and none a larger one: epsilon at delta 0."""
    term = Allocated(Spend(RandomizedResponse(epsilon, 2)), steps)
    for bounds in brackets(term, delta=0.0):
        assert bounds.lower <= epsilon <= bounds.upper


def test_divergences_of_mixtures_with_enormous_shifts() -> None:
    for shifts, chances in (
        ((0.018, 1e204), (5e-4, 5e-301)),
        ((1e-170, 1e300), (0.5, 0.1)),
        ((1e-5, 2.0, 1e155), (0.5, 0.1, 0.0)),
    ):
        loss = GaussianMixture(shifts, chances)
        assert not np.isnan(loss.renyi(ORDERS)).any()
        brackets(Spend(loss), delta=1e-6)
    # mu^2 underflows, and alpha mu^2 / 2 does not
    assert GaussianMixture((1e-170,), (0.5,)).renyi(np.array([1e300]))[0] >= 0.5e-40


def test_a_delta_below_all_tails_is_soon_refused() -> None:
    """Tails end at 1e-300: no epsilon is large enough, which few evaluations show."""
    began = time.process_time()
    for body in (Gaussian(3e-8), Gaussian(0.7)):
        loss = losses.ReplacedSample(Composite({body: 1}), 0.3)
        for accountant in ACCOUNTANTS[:2]:
            bounds = measure(Spend(loss), accountant, delta=5e-324).bounds
            assert bounds is not None
            assert bounds.upper == np.inf
    assert time.process_time() - began < 2


@pytest.mark.parametrize("size", [10**4, 10**9, 10**300])
def test_enormous_groups_of_samples_are_bounded_as_if_all_were_in_them(size: int) -> None:
    """Hockey-sticks are jointly convex: the largest shift, always, bounds those of the mixture."""
    began = time.process_time()
    for term in (Sampled(Spend(Gaussian(1e-9)), 0.01), Spend(GaussianMixture((1e-9,), (0.19,)))):
        at_once = measure(Spend(Gaussian(size * 1e-9)), GaussianDP(), delta=1e-6).bounds
        few = measure(Grouped(term, 50), GaussianDP(), delta=1e-6).bounds
        many = measure(Grouped(term, size), GaussianDP(), delta=1e-6).bounds
        assert many is not None
        assert at_once is not None
        assert few is not None
        assert many.upper >= max(few.upper, at_once.lower * (1 - 1e-12))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("epsilon", "rate"), [(0.01, 1e-6), (0.0864, 1e-6), (0.01, 0.01), (2.0, 0.3)]
)
def test_divergences_of_samples_keep_their_digits_near_order_1(epsilon: float, rate: float) -> None:
    """Of a moment that is 1 + 1e-23 the logarithm, divided by 1e-6, was of rounding alone."""
    orders = np.array([1 + 1e-6, 1 + 1e-3, 1.5, 2.0, 64.0])
    claimed = losses.Sampled(Composite({Pure(epsilon): 1}), rate).renyi(orders)
    with mp.workdps(60):
        low = 1 / (1 + mp.exp(mp.mpf(epsilon)))
        q = mp.mpf(rate)
        for order, bound in zip(orders.tolist(), claimed.tolist(), strict=True):
            a = mp.mpf(order)
            laws = [(low, mp.exp(mp.mpf(epsilon))), (1 - low, mp.exp(-mp.mpf(epsilon)))]
            moments = [sum(p * (1 - q + q * r) ** b for p, r in laws) for b in (a, 1 - a)]
            truth = mp.log(max(moments)) / (a - 1)
            assert truth <= bound <= truth * (1 + 1e-5)
    assert (np.diff(claimed) > 0).all()


@pytest.mark.parametrize("delta", [5e-324, 1e-323, 1e-315, 1e-308, 1e-300])
def test_advanced_composition_holds_where_masses_underflow(delta: float) -> None:
    """Against the exact sum over 131,073 randomized responses, to fifty digits."""
    rate, times = 0.9488757529957954, 131_073
    term = acc.Repeated(acc.Spend(acc.Pure(epsilon=rate)), times)
    bound = acc.measure(term, acc.Advanced(), delta=delta).bounds.upper
    with mp.workdps(50):
        loss = mp.mpf(rate)
        chance = mp.e**loss / (1 + mp.e**loss)
        first = int(mp.floor((bound / loss + times) / 2)) + 1
        total = mp.mpf(0)
        for k in range(first, min(times, first + 400) + 1):
            ways = mp.loggamma(times + 1) - mp.loggamma(k + 1) - mp.loggamma(times - k + 1)
            mass = mp.e ** (ways + k * mp.log(chance) + (times - k) * mp.log(1 - chance))
            total += mass * (1 - mp.e ** (bound - (2 * k - times) * loss))
        assert total <= delta


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_largest_losses_do_not_hide_the_answer(delta: float) -> None:
    """Of noise .05 it is told who took part: a mixture of Gaussians, over their number.

    The lattice's first window once began so far below that its bounds overflowed, and the upper end
    was Chernoff's, 10% too high.
    """
    mu, rate, steps = 20.0, 0.1, 200
    term = Repeated(Sampled(Spend(Gaussian(mu)), rate), steps)
    bounds = measure(term, acc.Distribution(), delta=delta).bounds
    assert bounds is not None
    for epsilon, side in ((bounds.lower, 1), (bounds.upper, -1)):
        total = 0.0
        for number in range(1, steps + 1):
            mean = number * (mu * mu / 2 + math.log(rate)) + (steps - number) * math.log1p(-rate)
            deviation, away = mu * math.sqrt(number), mean - epsilon
            chance = binom.pmf(number, steps, rate)
            # E (1 - e^{-Z})_+ of a normal Z: P(Z > 0) less its exponential's part
            log_paid = deviation**2 / 2 - away + norm.logsf(deviation - away / deviation)
            total += chance * (norm.cdf(away / deviation) - math.exp(log_paid))
        assert side * (total / delta - 1) >= -1e-9
    assert bounds.upper <= bounds.lower * (1 + 1e-5)


def test_a_curve_far_beyond_all_losses_is_answered() -> None:
    """Places so far outside of a window are no integers of an array: that was an IndexError."""
    shifts, opposite = [1.14 * k for k in (1, 2, 3)], [1.04, 2.08]
    mixture = GaussianMixture(shifts, [0.106, 0.156, 0.234], opposite, [0.238, 0.244])
    term = Repeated(Grouped(Spend(mixture), 2), 4394)
    low, high = Guarantee(term).profile(np.array([1.0, 1e155]))
    assert np.all(low >= 0)
    assert np.all(low <= high)
    assert high[0] == 1
    assert low[1] == 0


@pytest.mark.parametrize("rate", [0.5, 0.01, 1e-6])
@pytest.mark.parametrize("less", [2.0**-52, 1e-12, 1e-6])
def test_one_sampled_step_at_a_delta_next_to_the_rate(rate: float, less: float) -> None:
    """Roots of the closed forms to sixty digits: what delta lacks of the rate decides epsilon.

    The bracket was [0, 58.7] where 57.9 is true, as no float of delta tells it from the rate.
    """
    delta = rate * (1 - less)
    with mp.workdps(60):
        q = mp.mpf(rate)
        lack = 1 - mp.mpf(delta) / q

        def missing(loss: mp.mpf, mu: float) -> mp.mpf:
            away = mp.mpf(mu) / 2
            return mp.ncdf(loss / mu - away) + mp.exp(loss) * mp.ncdf(-loss / mu - away)

        for loss in (Gaussian(8.0), Gaussian(20.0), Laplace(60.0)):
            if isinstance(loss, Laplace):
                inside = loss.epsilon + 2 * mp.log(lack)
            else:
                low, high = mp.mpf(0), mp.mpf(500)
                for _ in range(120):
                    middle = (low + high) / 2
                    below = missing(middle, loss.mu()) < lack
                    low, high = (middle, high) if below else (low, middle)
                inside = low
            true = mp.log1p(q * mp.expm1(max(inside, mp.mpf(0))))
            step = Sampled(Spend(loss), rate)
            bounds = measure(step, Distribution(), delta=delta).bounds
            assert bounds.lower <= true <= bounds.upper
            assert bounds.upper - bounds.lower <= 1e-7 * (1e-3 + true)
            assert measure(step, Distribution(), delta=rate).bounds.upper == 0
