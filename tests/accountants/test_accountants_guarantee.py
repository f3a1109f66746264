"""Readings of a guarantee against closed forms, enumeration and each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Approximate,
    Basic,
    BoundedRange,
    Distribution,
    DomainError,
    Gaussian,
    GaussianDP,
    InapplicableError,
    Laplace,
    Parallel,
    Pure,
    Renyi,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    certify,
    plot,
)
from accountants.guarantee import Guarantee, knots, maximize, skipping_negligible
from accountants.loss import PrivacyLoss
from accountants.numerics import Array, Bounds


class Exact:
    """An accountant of one loss: its own profile, whose ends are next to each other."""

    name, theorem, adaptive = "exact", "the loss's profile", False

    def start(self) -> tuple[PrivacyLoss, ...]:
        return ()

    def compose(
        self, state: tuple[PrivacyLoss, ...], loss: PrivacyLoss, times: int = 1
    ) -> tuple[PrivacyLoss, ...]:
        return (*state, loss)

    def delta(self, state: tuple[PrivacyLoss, ...], epsilon: float) -> Bounds:
        (loss,) = state
        bounds = loss.profile(epsilon)
        assert bounds is not None
        return bounds

    def epsilon(self, state: tuple[PrivacyLoss, ...], delta: float) -> Bounds:
        (loss,) = state
        return loss.epsilon_at(delta) or Bounds(0.0, math.inf)

    def cost_function(
        self, state: tuple[PrivacyLoss, ...], delta: float
    ) -> Callable[[PrivacyLoss], float]:
        return lambda loss: self.epsilon((loss,), delta).upper

    def conversion(self, loss: PrivacyLoss) -> str:
        return ""


def of(loss: PrivacyLoss) -> Guarantee:
    return Guarantee(Spend(loss), Exact())


def holds(bounds: Bounds, exact: mp.mpf, width: float) -> None:
    assert bounds.lower <= exact <= bounds.upper
    assert bounds.upper - bounds.lower <= width


def normal_miss(mu: float, alpha: float) -> mp.mpf:
    """Phi(Phi^-1(1 - alpha) - mu), by a root (Dong, Roth and Su 2022, eq. 6)."""
    tail = mp.findroot(
        lambda x: mp.log(mp.ncdf(-x) / truth.real(alpha)), math.sqrt(-2 * math.log(alpha)) * 0.9
    )
    return mp.ncdf(tail - truth.real(mu))


def laplace_miss(eps: float, alpha: float) -> mp.mpf:
    """The trade-off of Lap(0) and Lap(eps) (Dong, Roth and Su 2022, A.6)."""
    e, a = truth.real(eps), truth.real(alpha)
    if a < mp.exp(-e) / 2:
        return 1 - mp.exp(e) * a
    return mp.exp(-e) / (4 * a) if a <= mp.mpf(1) / 2 else mp.exp(-e) * (1 - a)


def neyman_pearson(
    p: Sequence[Fraction], q: Sequence[Fraction], copies: int, alpha: Fraction
) -> Fraction:
    """The least false-negative rate at a false-positive rate, by all multisets of outcomes."""
    outcomes = [(Fraction(1), Fraction(1), copies, 1)]
    for i in range(len(p)):
        last = i == len(p) - 1
        outcomes = [
            (a * p[i] ** n, b * q[i] ** n, left - n, ways * math.comb(left, n))
            for a, b, left, ways in outcomes
            for n in ([left] if last else range(left + 1))
        ]
    miss = Fraction(1)
    for a, b, _, ways in sorted(outcomes, key=lambda each: each[1] / each[0]):
        part = min(Fraction(1), alpha / (ways * b))
        miss, alpha = miss - part * ways * a, alpha - part * ways * b
        if alpha == 0:
            break
    return miss


class TestTradeoff:
    @pytest.mark.parametrize(
        ("loss", "alpha", "beta"),
        [
            (Gaussian(0.5), 1e-3, "0.9952044407908578260800081"),
            (Gaussian(4.5), 1e-6, "0.6000298275490126669025604"),
            (Laplace(1.0), 0.3, "0.3065662009762019346629365"),
            (Laplace(2.0), 0.7, "0.04060058497098380756819985"),
        ],
    )
    def test_reference_values(self, loss: PrivacyLoss, alpha: float, beta: str) -> None:
        holds(of(loss).false_negative_rate(alpha), mp.mpf(beta), 1e-11)

    @pytest.mark.parametrize("mu", [1e-6, 0.01, 0.3, 1.0, 3.0, 12.0])
    @pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1e-3, 0.1, 0.25])
    def test_gaussians(self, mu: float, alpha: float) -> None:
        exact = normal_miss(mu, alpha)
        holds(of(Gaussian(mu)).false_negative_rate(alpha), exact, 1e-11)
        holds(of(Gaussian(mu)).true_positive_rate(alpha), 1 - exact, 1e-11)

    @examples(60)
    @given(st.floats(1e-4, 20), st.floats(1e-9, 1 - 1e-9))
    def test_laplace(self, eps: float, alpha: float) -> None:
        holds(of(Laplace(eps)).false_negative_rate(alpha), laplace_miss(eps, alpha), 1e-11)

    @examples(60)
    @given(st.floats(0, 8), st.floats(0, 1), st.floats(0, 1))
    @example(0.0, 0.0, 0.003410125212041383)  # 1 - alpha rounds down
    def test_leaking_randomized_response(self, eps: float, delta: float, alpha: float) -> None:
        """f_{eps, delta} of Dong, Roth and Su 2022, eq. 4: two lines."""
        e, d, a = (truth.real(x) for x in (eps, delta, alpha))
        exact = max(0, 1 - d - mp.exp(e) * a, mp.exp(-e) * (1 - d - a))
        rate = of(Approximate(eps, delta)).false_negative_rate(alpha)
        assert rate.lower <= exact * (1 + mp.mpf("1e-60"))
        assert exact <= rate.upper
        if alpha > 1e-9:
            assert rate.upper - rate.lower <= 1e-11

    def test_many_rates_at_once(self) -> None:
        rates = np.linspace(1e-3, 1 - 1e-3, 50)
        lower, upper = of(Laplace(1.5)).tradeoff(rates)
        exact = [laplace_miss(1.5, float(rate)) for rate in rates]
        assert all(low <= e <= high for low, e, high in zip(lower, exact, upper, strict=True))
        assert np.max(upper - lower) < 1e-9
        square = of(Laplace(1.5)).tradeoff(rates.reshape(5, 10))[0]
        assert square.shape == (5, 10)

    def test_ends(self) -> None:
        for loss in (Gaussian(1.0), Laplace(1.0), Approximate(1.0, 0.1)):
            at_none, at_all = (of(loss).false_negative_rate(rate) for rate in (0.0, 1.0))
            assert at_none.lower <= 1 - loss.delta_floor() <= at_none.upper
            assert (at_all.lower, at_all.upper) == (0, 0)
        assert of(Gaussian(0.0)).false_negative_rate(0.5).lower == pytest.approx(0.5, abs=1e-13)

    @pytest.mark.parametrize("alpha", [1e-6, 0.05, 0.4])
    @pytest.mark.parametrize(
        ("masses", "copies"),
        [((3, 1), 25), ((40, 35, 25), 12), ((1, 2, 30, 60, 7), 6)],
    )
    def test_neyman_and_pearson(self, masses: tuple[int, ...], copies: int, alpha: float) -> None:
        """Small convolutions, exactly: outcomes by their likelihood ratio, the last one in part.

        The pair of masses and the same in reverse is its own reverse: both directions are one.
        """
        total = sum(masses)
        p = [Fraction(each, total) for each in masses]
        loss = PrivacyLoss.from_probabilities(p, p[::-1])
        bounds = Guarantee(Repeated(Spend(loss), copies)).false_negative_rate(alpha)
        exact = neyman_pearson(p, p[::-1], copies, Fraction(alpha))
        assert Fraction(bounds.lower) <= exact <= Fraction(bounds.upper)
        assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper

    @pytest.mark.parametrize("eps", [1e-3, 1.0, 8.0])
    @pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.5, 0.99])
    def test_bounded_range_once(self, eps: float, alpha: float) -> None:
        """The best tangent to ``delta(s) = (1 - y)^2 / (1 - e^-eps)``, ``y = e^{(s - eps) / 2}``.

        Where the slope of ``1 - delta(s) - e^s alpha`` is 0, ``y = 1 / (1 + alpha (e^eps - 1))``.
        """
        e, a = truth.real(eps), truth.real(alpha)
        y = 1 / (1 + a * mp.expm1(e))
        exact = 1 + (1 - y) ** 2 / mp.expm1(-e) - y * y * mp.exp(e) * a
        bounds = Guarantee(Spend(BoundedRange(eps))).false_negative_rate(alpha)
        holds(bounds, exact, 1e-6 * float(exact))

    @pytest.mark.parametrize(
        "term",
        [
            Repeated(Spend(Laplace(0.1)), 30),
            Repeated(Sampled(Spend(Gaussian(1.0)), 0.01), 1000),
            Repeated(Spend(Pure(0.3)), 9),
        ],
    )
    def test_few_deltas_are_asked(self, term: Term) -> None:
        """Also where the place of the tangent is not known: thousands of deltas cost seconds."""
        asked = []

        class Counted(Distribution):
            def profile(self, state: Any, epsilons: Array) -> tuple[Array, Array]:
                asked.extend(epsilons.tolist())
                return super().profile(state, epsilons)

            def rough_profile(self, state: Any, epsilons: Array) -> tuple[Array, Array]:
                asked.extend(epsilons.tolist())
                return super().rough_profile(state, epsilons)

        for alpha in (1e-4, 0.4):
            asked.clear()
            rate = Guarantee(term, Counted()).false_negative_rate(alpha)
            assert rate.upper - rate.lower <= 1e-8 * rate.upper
            assert len(asked) <= 80

    def test_huge_epsilons(self) -> None:
        """Tilts overflow, and some methods with them: what they say is no number, and no bound.

        The step from one window to the next is nothing beside the last.
        """
        term = Repeated(Sampled(Spend(Gaussian(1.0)), 0.01), 1000)
        sampled = Guarantee(term, Distribution())
        lower, upper = sampled.profile(np.array([1e5, 1e17]))
        assert np.all((lower <= 1e-300) & (upper <= 1e-300))
        lower, upper = sampled.profile(np.array([1e17, 1e300, math.inf]))
        assert np.all((lower <= 1e-300) & (upper >= 0))

    def test_loose_brackets_stay_brackets(self) -> None:
        """Bounds of the profile that are far apart give bounds of the curve that are too."""
        tight, renyi = of(Gaussian(1.0)), Guarantee(Spend(Gaussian(1.0)), Renyi())
        for alpha in (1e-6, 0.01, 0.3):
            exact, loose = tight.false_negative_rate(alpha), renyi.false_negative_rate(alpha)
            assert loose.lower <= exact.lower
            assert loose.upper >= exact.upper

    def test_a_wider_profile_gives_a_wider_bracket(self) -> None:
        exact = of(Laplace(1.0)).profile

        def wide(epsilons: Array) -> tuple[Array, Array]:
            lower, upper = exact(epsilons)
            return 0.9 * lower, np.minimum(1.0, 1.1 * upper)

        for alpha in (0.01, 0.3, 0.8):
            lower, upper = maximize(wide, lambda t, k, side, a=alpha: (k - a * t)[None, :])
            assert lower[0] < laplace_miss(1.0, alpha) < upper[0]


class TestRisks:
    def test_advantage_is_total_variation(self) -> None:
        exact = mp.ncdf(mp.mpf("0.5")) - mp.ncdf(mp.mpf("-0.5"))
        holds(of(Gaussian(1.0)).advantage(), exact, 1e-12)
        holds(of(Pure(1.0)).advantage(), mp.tanh(mp.mpf("0.5")), 1e-12)

    @pytest.mark.parametrize("prior", [1e-6, 0.01, 0.3, 0.5, 0.7, 0.999])
    @pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
    def test_bayes_error_of_a_gaussian(self, prior: float, mu: float) -> None:
        """The likelihood ratio test: present where x >= mu/2 + log((1 - prior)/prior)/mu."""
        pi, m = truth.real(prior), truth.real(mu)
        cut = m / 2 + mp.log((1 - pi) / pi) / m
        exact = pi * mp.ncdf(cut - m) + (1 - pi) * mp.ncdf(-cut)
        holds(of(Gaussian(mu)).bayes_error(prior), exact, 1e-13)

    def test_bayes_error_of_certainties(self) -> None:
        assert of(Gaussian(1.0)).bayes_error(0.0) == Bounds(0.0, 0.0)
        assert of(Gaussian(1.0)).bayes_error(1.0) == Bounds(0.0, 0.0)
        nothing = of(Gaussian(0.0)).bayes_error(0.25)
        assert nothing.lower == pytest.approx(0.25, rel=1e-13)
        for prior in (5e-324, 1e-300):
            assert 0 <= of(Gaussian(1.0)).bayes_error(prior).lower <= prior

    @examples(80)
    @given(st.floats(0.01, 0.99), st.floats(1e-6, 1), st.floats(0.1, 5))
    def test_posterior_of_a_gaussian(self, prior: float, least: float, mu: float) -> None:
        """The best events of a monotone likelihood ratio are x >= c; at most one is as likely."""
        pi, m, p = (truth.real(x) for x in (prior, mu, least))

        def total(cut: mp.mpf) -> mp.mpf:
            return pi * mp.ncdf(m - cut) + (1 - pi) * mp.ncdf(-cut)

        if least > 1 - 1e-9:
            return
        start = mp.findroot(lambda c: total(c) - p, (-9, m + 9), solver="bisect", tol=1e-12)
        cut = mp.findroot(lambda c: total(c) - p, start, tol=1e-60)
        exact = pi * mp.ncdf(m - cut) / p
        posterior = of(Gaussian(mu)).posterior(prior, least)
        assert posterior.lower <= exact <= posterior.upper
        # a quotient by the event's probability: of 1e-6 it enlarges what rounding leaves
        assert posterior.upper - posterior.lower < 1e-8 + 1e-13 / least

    @pytest.mark.parametrize("prior", [0.05, 0.5, 0.9])
    @pytest.mark.parametrize("delta", [0.0, 0.02])
    def test_posterior_of_every_event(self, prior: float, delta: float) -> None:
        """No event of a leaking randomized response is believed more than the bound says."""
        pair = truth.leaky(1.0, delta)
        loss = of(Approximate(1.0, delta))
        best: dict[float, mp.mpf] = {}
        for chosen in itertools.product([0, 1], repeat=len(pair)):
            if not any(chosen):
                continue
            present = sum(p for (p, _), c in zip(pair, chosen, strict=True) if c)
            absent = sum(q for (_, q), c in zip(pair, chosen, strict=True) if c)
            total = truth.real(prior) * present + (1 - truth.real(prior)) * absent
            if total == 0:
                continue
            belief = truth.real(prior) * present / total
            posterior = loss.posterior(prior, float(total) * (1 - 1e-12))
            assert belief <= posterior.upper
            best[float(total)] = belief
            if chosen in ((1, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1)):  # corners of the region
                assert posterior.upper <= belief + mp.mpf("1e-9")
        assert best

    def test_posterior_of_pure_privacy(self) -> None:
        """Rare events multiply the odds by e^eps, and no more."""
        odds = math.e * 0.1 / 0.9
        posterior = of(Pure(1.0)).posterior(0.1, 1e-3)
        assert posterior.lower <= odds / (1 + odds) <= posterior.upper
        assert posterior.upper - posterior.lower < 1e-9
        assert of(Pure(1.0)).posterior(0.0, 0.1) == Bounds(0.0, 0.0)
        assert of(Pure(1.0)).posterior(1.0, 0.1) == Bounds(1.0, 1.0)
        with pytest.raises(DomainError, match="positive"):
            of(Pure(1.0)).posterior(0.5, 0.0)
        assert of(Gaussian(1.0)).posterior(0.5, 1e-300).upper <= 1

    @examples(40)
    @given(st.floats(1e-9, 1 - 1e-9), st.floats(0.01, 6))
    def test_precision_is_that_of_the_curve(self, rate: float, mu: float) -> None:
        """The posterior at the probability of the test of a rate is that test's precision."""
        guarantee = of(Gaussian(mu))
        power = guarantee.true_positive_rate(rate)
        p = 0.5 * (power.upper + rate)
        precision = 0.5 * power.upper / p
        assert guarantee.posterior(0.5, min(1.0, p)).upper >= precision - 1e-6


class TestGuarantee:
    def test_several_accountants_count_by_their_best(self) -> None:
        term = Repeated(Spend(Gaussian(0.1)), 100)
        both = Guarantee(term, (Renyi(), GaussianDP()))
        assert both.epsilon(1e-5).upper == Guarantee(term, GaussianDP()).epsilon(1e-5).upper
        lower, upper = both.profile(np.array([0.5, 1.0, 2.0]))
        one = Guarantee(term, GaussianDP())
        for i, eps in enumerate([0.5, 1.0, 2.0]):
            assert upper[i] <= one.delta(eps).upper
            assert lower[i] >= one.delta(eps).lower

    def test_the_usual_accountants(self) -> None:
        guarantee = Guarantee(Repeated(Spend(Gaussian(0.1)), 100))
        assert guarantee.epsilon(1e-5).upper == pytest.approx(4.377178096, abs=1e-6)

    def test_in_words(self) -> None:
        lines = of(Gaussian(1.0)).summary(1e-5).splitlines()
        assert lines[0] == "epsilon <= 4.37718 at delta = 1e-05"
        assert [line.rpartition(" ")[2] for line in lines[1:]] == [
            "0.383",
            "0.0183",
            "0.948",
            "0.308",
        ]

    def test_the_worst_world_decides(self) -> None:
        choices = Parallel([Spend(Laplace(1.0)), Spend(Laplace(2.0))])
        guarantee = Guarantee(choices, Exact())  # type: ignore[arg-type]
        assert guarantee.delta(0.5) == of(Laplace(2.0)).delta(0.5)
        assert guarantee.false_negative_rate(0.2) == of(Laplace(2.0)).false_negative_rate(0.2)

    def test_accountants_that_do_not_apply(self) -> None:
        term = Spend(Gaussian(1.0))
        assert Guarantee(term, (Basic(), Renyi())).epsilon(1e-5).upper > 0
        with pytest.raises(InapplicableError, match="basic"):
            Guarantee(Sequential([Spend(Odd())]), Basic())

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, "a"])
    def test_what_is_no_rate(self, wrong: float) -> None:
        guarantee = of(Gaussian(1.0))
        for ask in (
            guarantee.false_negative_rate,
            guarantee.true_positive_rate,
            guarantee.bayes_error,
        ):
            with pytest.raises(DomainError):
                ask(wrong)

    def test_bad_arrays(self) -> None:
        with pytest.raises(DomainError, match="epsilons"):
            of(Gaussian(1.0)).profile(np.array([-1.0]))
        with pytest.raises(DomainError, match="rates"):
            of(Gaussian(1.0)).tradeoff(np.array([2.0]))


class TestPictures:
    """What is drawn; how it looks is for people to say."""

    pytest.importorskip("matplotlib")

    def test_curves(self, tmp_path: Path) -> None:
        many = {"one": of(Gaussian(1.0)), "other": of(Gaussian(0.5))}
        for draw, scales in (
            (plot.profile, ("linear", "log")),
            (plot.epsilons, ("log", "linear")),
            (plot.tradeoff, ("linear", "linear")),
        ):
            for drawn in (many, many["one"]):
                axes = draw(drawn, points=20)
                assert (axes.get_xscale(), axes.get_yscale()) == scales
                assert axes.get_title(loc="left")
                assert axes.get_xlabel()
                assert axes.get_ylabel()
                labels = {text.get_text() for text in axes.texts}
                assert labels >= (set(many) if drawn is many else set())
            plot.save(axes, tmp_path / "curve.png")
            assert (tmp_path / "curve.png").stat().st_size > 1000

    def test_the_line_is_the_safe_end(self) -> None:
        guarantee = of(Gaussian(1.0))
        line = plot.tradeoff(guarantee, points=10).lines[1]
        rates = np.asarray(line.get_xdata(), dtype=np.float64)
        assert np.array_equal(
            np.asarray(line.get_ydata()), guarantee.tradeoff(rates, digits=2e-4)[0]
        )

    def test_side_by_side(self) -> None:
        answers = certify(Repeated(Spend(Laplace(0.1)), 100), delta=1e-5)
        axes = plot.accountants(answers)
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels[0] == "basic"
        assert set(labels) == set(answers)
        assert plot.accountants(answers, logarithmic=True).get_xscale() == "log"
        assert len(plot.panels(3)) == 3

    def test_a_file_of_another_kind(self, tmp_path: Path) -> None:
        with pytest.raises(DomainError, match="xyz"):
            plot.save(plot.panels(1)[0], tmp_path / "curve.xyz")


class Odd(PrivacyLoss):
    """A loss that knows nothing of itself."""


def test_knots_are_outward() -> None:
    profile = of(Gaussian(1.0)).profile
    rounded = knots(profile, np.array([-3.0, -0.5, 0.0, 0.5, 3.0]))
    for log_t, low, high in zip(rounded.log_t, rounded.low, rounded.high, strict=True):
        t = mp.exp(mp.mpf(float(log_t)))
        eps = abs(mp.mpf(float(log_t)))
        delta = mp.ncdf(mp.mpf("0.5") - eps) - mp.exp(eps) * mp.ncdf(-mp.mpf("0.5") - eps)
        assert low <= min(1, t) * (1 - delta) <= high


def test_epsilons_far_beyond_the_curve_are_not_asked() -> None:
    asked: list[float] = []

    def profile(epsilons: Array) -> tuple[Array, Array]:
        asked.extend(epsilons.tolist())
        return np.exp(-epsilons * epsilons), np.exp(-epsilons * epsilons)

    # delta is below 1e-18 from 6.5 on: one step of the grid goes there, not all of it
    points = np.geomspace(1e-5, 700.0, 30)
    lower, upper = skipping_negligible(profile)(points)
    assert max(asked) < 20
    assert (lower <= np.exp(-points * points)).all()
    assert (upper >= np.exp(-points * points)).all()
    assert (upper - lower <= 1e-18).all()


@pytest.mark.parametrize("last", [math.inf, math.nan])
def test_an_epsilon_of_any_kind_ends(last: float) -> None:
    """Each turn takes one epsilon at least: one that is no number once was asked for ever."""

    def profile(epsilons: Array) -> tuple[Array, Array]:
        return np.exp(-epsilons) / 2, np.exp(-epsilons)

    lower, upper = skipping_negligible(profile)(np.array([0.0, 0.0, 0.5, last]))
    assert lower[-1] == 0.0
    assert (upper[:3] == np.exp([0.0, 0.0, -0.5])).all()
