"""Data-dependent loss: private, one-sided, below the worst case, and sanitised exactly."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from accountants_truth import real
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import Approximate, DomainError, Gaussian, InapplicableError, Laplace, Pure, Renyi
from accountants.data_dependent import DataDependent, DataDependentRenyi
from accountants.losses.gaussian import Sanitization, SmoothSanitization
from accountants.losses.votes import VotesCurve, noisy_argmax, theorem_six
from accountants.secret import Secret

ORDERS = np.array([1.1, 1.5, 2.0, 4.0, 8.0, 32.0, 300.0])
ACCOUNTANT = DataDependentRenyi()

# --- the box


def test_a_private_value_shows_nothing() -> None:
    box = Secret(0.123456)
    shown = [repr(box), str(box), f"{box}", f"{box:.3f}", f"{[box]}", "{0!r}".format(box)]  # noqa: UP030, UP032
    shown += [str({"x": box}), repr((box,))]
    record = logging.LogRecord("x", 0, "", 0, "%s %r", (box, box), None)
    for text in [*shown, record.getMessage()]:
        assert "<private>" in text
        assert "123" not in text
    assert not hasattr(box, "__dict__")
    assert box.map(lambda x: 2 * x).reveal() == 0.246912


@pytest.mark.parametrize(
    "attempt",
    [
        bool,
        float,
        int,
        len,
        iter,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda b: b.__getstate__(),
        lambda b: b.__reduce__(),
        lambda b: b < 1,
        lambda b: b + 1,
        lambda b: b[0],
        lambda b: np.asarray(b, dtype=float),
        lambda b: np.array([b], dtype=object),
        math.sqrt,
    ],
)
def test_what_would_leak_raises(attempt) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError) as caught:
        attempt(Secret(0.123456))
    assert "123" not in str(caught.value)


def test_equality_and_hash_know_the_box_only() -> None:
    one, other = Secret(3), Secret(3)
    assert one == one
    assert one != other
    assert one != 3
    assert hash(one) != hash(3)
    with pytest.raises(AttributeError):
        one.value = 4
    with pytest.raises(AttributeError):
        del one.value


# --- the carrier and the accountant


def flat(value: float) -> Secret:  # type: ignore[type-arg]
    return Secret(lambda orders: np.full_like(orders, value))


def test_every_accountant_reads_the_worst_case() -> None:
    for worst in (Gaussian(0.5), Laplace(0.5), Approximate(0.5, 1e-6)):
        loss = DataDependent(worst, flat(1e-9))
        assert loss.delta_floor() == worst.delta_floor()
        assert loss.pure() == worst.pure()
        assert loss.rho() == worst.rho()
        assert loss.mu() == worst.mu()
        assert loss.pair() == worst.pair()
        assert loss.profile(0.3) == worst.profile(0.3)
        assert loss.epsilon_at(1e-3) == worst.epsilon_at(1e-3)
        assert loss.grouped(2) == worst.grouped(2)
        assert loss.dominates(worst)
        np.testing.assert_array_equal(loss.renyi(ORDERS), worst.renyi(ORDERS))
        assert "<private>" in repr(loss)
        assert loss == loss
        assert loss != DataDependent(worst, loss.curve)


def test_two_losses_of_one_worst_case_are_not_merged() -> None:
    state = ACCOUNTANT.start()
    for value in (0.01, 0.02):
        state = ACCOUNTANT.compose(state, DataDependent(Gaussian(1.0), flat(value)))
    total = ACCOUNTANT.divergence(state, ORDERS).reveal()
    np.testing.assert_allclose(total, 0.03, rtol=1e-14)
    assert np.all(total >= 0.03)


values = st.floats(0, 3) | st.just(math.nan) | st.just(math.inf) | st.just(-1.0)


@examples(40)
@given(st.lists(st.tuples(st.floats(0, 1), values, st.booleans(), st.integers(0, 50)), max_size=6))
def test_never_above_the_worst_case(spends) -> None:  # type: ignore[no-untyped-def]
    state, plain = ACCOUNTANT.start(), Renyi().start()
    truth = np.zeros(len(ORDERS))
    for size, value, private, times in spends:
        worst = Gaussian(size) if times % 2 else Pure(size)
        loss = DataDependent(worst, flat(value)) if private else worst
        state, plain = ACCOUNTANT.compose(state, loss, times), Renyi().compose(plain, worst, times)
        curve = worst.renyi(ORDERS)
        truth += times * (np.fmin(curve, value) if private and value >= 0 else curve)
    total = ACCOUNTANT.divergence(state, ORDERS).reveal()
    # a bound of 0 is rounded up to the least float, once and not once for each time
    assert np.all(total >= truth * (1 - 1e-12) - 1e-300)
    np.testing.assert_allclose(total, truth, rtol=1e-9, atol=1e-300)
    # the same state, read by Renyi, is the worst case
    assert Renyi().epsilon(state, 1e-5).upper == pytest.approx(
        Renyi().epsilon(plain, 1e-5).upper, rel=1e-9
    )
    private_epsilon = ACCOUNTANT.private_epsilon(state, 1e-5).reveal()
    assert private_epsilon >= 0


def test_it_certifies_nothing() -> None:
    loss = noisy_argmax(Secret([240, 5, 5]), sigma=40.0)
    state = ACCOUNTANT.compose(ACCOUNTANT.start(), loss, 1000)
    assert ACCOUNTANT.data_dependent
    assert ACCOUNTANT.direction == "D -> D'"
    for ask in (ACCOUNTANT.epsilon, ACCOUNTANT.delta, ACCOUNTANT.cost_function):
        with pytest.raises(InapplicableError, match="reverse"):
            ask(state, 0.5)
    epsilon = ACCOUNTANT.private_epsilon(state, 1e-5)
    assert isinstance(epsilon, Secret)
    assert epsilon.reveal() < 0.4 < 4 < Renyi().epsilon(state, 1e-5).upper
    assert "240" not in repr(state)
    assert "e-05" not in repr(state)
    with pytest.raises(TypeError):
        pickle.dumps(state)
    assert ACCOUNTANT.private_epsilon(state, 0.0).reveal() == math.inf
    assert ACCOUNTANT.private_epsilon(state, 1.0).reveal() == 0.0
    assert "worst case" in ACCOUNTANT.conversion(loss)
    assert ACCOUNTANT.conversion(Pure(1.0)) == Renyi().conversion(Pure(1.0))


def test_refusals() -> None:
    with pytest.raises(DomainError):
        DataDependent(Gaussian(1.0), lambda orders: orders)  # type: ignore[arg-type]
    with pytest.raises(DomainError):
        DataDependent(1.0, flat(1.0))  # type: ignore[arg-type]
    with pytest.raises(DomainError):
        DataDependent(DataDependent(Gaussian(1.0), flat(1.0)), flat(1.0))
    with pytest.raises(DomainError):
        noisy_argmax([1, 2], 1.0)  # type: ignore[arg-type]
    with pytest.raises(DomainError):
        noisy_argmax(Secret([1, 2]), 0.0)


# --- the noisy argmax


def outcome_law(votes: list[float], sigma: float) -> np.ndarray:  # type: ignore[type-arg]
    """log P(argmax = i) by the trapezoid rule, whose error is far below 1e-12 here."""
    from scipy.special import log_ndtr, logsumexp

    x = np.linspace(min(votes) - 12 * sigma, max(votes) + 12 * sigma, 4001)
    counts = np.array(votes, dtype=float)
    z = (x[:, None] - counts[None, :]) / sigma
    logs = log_ndtr(z).sum(axis=1, keepdims=True) - log_ndtr(z) - z * z / 2
    step = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    return logsumexp(logs, axis=0) + math.log(step)


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:  # type: ignore[type-arg]
    """From logs; ``sum p ((p/q)^(a-1) - 1)`` is computed directly, for it is tiny."""
    with np.errstate(over="ignore"):
        grown = np.exp(order * p - (order - 1) * q)
        excess = np.sum(
            np.where(
                (order - 1) * (p - q) > 1,
                grown - np.exp(p),
                np.exp(p) * np.expm1(np.minimum(1, (order - 1) * (p - q))),
            )
        )
    return float(np.log1p(excess) / (order - 1))


@pytest.mark.parametrize("sigma", [1.5, 4.0, 10.0])
@pytest.mark.parametrize(
    "votes", [[12, 0], [30, 2, 1], [25, 20, 5], [60, 0, 0], [100, 10, 5, 5], [40, 38]]
)
def test_votes_curve_bounds_the_exact_divergence(votes: list[int], sigma: float) -> None:
    loss = noisy_argmax(Secret(votes), sigma)
    orders = np.array([1.2, 2.0, 3.0, 6.0, 16.0, 40.0])
    bound = loss.data_dependent(orders).reveal()
    assert np.all(bound <= loss.worst.renyi(orders))
    p = outcome_law([float(v) for v in votes], sigma)
    assert np.exp(p).sum() == pytest.approx(1, abs=1e-12)
    for i in range(len(votes)):
        for j in range(len(votes)):
            if i == j or votes[i] == 0:
                continue
            moved = [float(v) for v in votes]
            moved[i], moved[j] = moved[i] - 1, moved[j] + 1
            q = outcome_law(moved, sigma)
            for order, value in zip(orders, bound, strict=True):
                assert divergence(p, q, order) <= value * (1 + 1e-9) + 1e-11


def test_votes_curve_is_of_one_direction_only() -> None:
    # D(M(D') || M(D)) exceeds the curve at D (two classes: exact, by the normal tail)
    sigma, gap, order = 5.0, 60.0, 8.0
    own = VotesCurve(float(mp.log(mp.erfc(gap / (2 * sigma)) / 2)), sigma)(np.array([order]))[0]
    exact = []
    for other in (gap - 2, gap + 2):
        p, q = (mp.erfc(real(g) / (2 * real(sigma))) / 2 for g in (gap, other))
        for x, y in ((p, q), (q, p)):
            moment = x**order * y ** (1 - order) + (1 - x) ** order * (1 - y) ** (1 - order)
            exact.append(mp.log(moment) / (order - 1))
    forward, reverse = max(exact[0], exact[2]), max(exact[1], exact[3])
    assert forward <= own
    assert reverse > own


def test_votes_reference_values() -> None:
    def value(votes: list[int], sigma: float, order: float) -> float:
        loss = noisy_argmax(Secret(votes), sigma)
        return float(loss.data_dependent(np.array([order])).reveal()[0])

    assert value([240, 5, 5], 40.0, 4.0) == pytest.approx(1.24374518e-5, rel=1e-6)
    assert value([180, 40, 30], 40.0, 8.0) == pytest.approx(2.8717679e-3, rel=1e-6)
    assert value([180, 40, 30], 40.0, 2.0) == pytest.approx(2 / 1600)  # the worst case is less
    assert value([250], 40.0, 4.0) == 0.0
    assert value([100, 100], 40.0, 4.0) == pytest.approx(4 / 1600)
    assert value([], 40.0, 4.0) == pytest.approx(4 / 1600)
    assert value(["x", 3], 40.0, 4.0) == pytest.approx(4 / 1600)  # type: ignore[list-item]
    assert value([math.nan, 3], 40.0, 4.0) == pytest.approx(4 / 1600)


def votes_formula(log_q: float, sigma: float, order: float, m1: float, m2: float) -> mp.mpf:
    """Theorem 6 as printed, at 350 digits."""
    with mp.workdps(350):
        q, a = mp.exp(real(log_q)), real(order)
        e1, e2 = real(m1) / real(sigma) ** 2, real(m2) / real(sigma) ** 2
        first = (1 - q) / (1 - (q * mp.exp(e2)) ** ((real(m2) - 1) / real(m2)))
        other = mp.exp(e1) / q ** (1 / (real(m1) - 1))
        return mp.log((1 - q) * first ** (a - 1) + q * other ** (a - 1)) / (a - 1)


@pytest.mark.parametrize("log_q", [-4.0, -10.0, -40.0, -690.7, -2000.0])
def test_votes_curve_against_the_printed_formula(log_q: float) -> None:
    sigma = 40.0
    start = sigma * math.sqrt(-log_q)
    for order in (1.5, 4.0, 32.0):
        printed = votes_formula(log_q, sigma, order, max(order, start + 1), start)
        value = VotesCurve(log_q, sigma)(np.array([order]))[0]
        assert value > 0 or printed < 1e-300
        assert value <= float(printed * (1 + mp.mpf(10) ** -9)) + 1e-320
        with np.errstate(all="ignore"):
            m1, m2 = np.array([max(order, start + 1)]), np.array([start])
            one = theorem_six(np.float64(log_q), sigma, order, m1, m2)[0]
        assert real(float(one)) >= printed * (1 - mp.mpf(10) ** -30)
        assert float(one) <= float(printed) * (1 + 1e-8) + 1e-320


def test_votes_curve_grows_with_q() -> None:
    # what lets a bound of q replace q
    for order in (2.0, 5.0, 20.0):
        logs = -np.geomspace(0.05, 900, 200)[::-1]
        curve = [VotesCurve(float(v), 10.0)(np.array([order]))[0] for v in logs]
        finite = [value for value in curve if value < math.inf]
        assert finite == sorted(finite)
        assert len(finite) > 50


# --- the sanitised route


def normal_divergence(order: float, shift: mp.mpf, scale: mp.mpf) -> mp.mpf:
    """D_a(N(0, 1) || N(shift, scale^2)), by completing the square."""
    a = real(order)
    mixed = a * scale**2 + 1 - a
    if mixed <= 0:
        return mp.inf
    value = (2 * a * mp.log(scale) - mp.log(mixed)) / (2 * (a - 1))
    return a * shift**2 / (2 * mixed) + value


def test_the_normal_formula_against_an_integral() -> None:
    for order, shift, scale in ((2.0, 0.3, 0.9), (1.5, 0.7, 1.3), (5.0, 0.2, 0.95)):
        a, s, v = real(order), real(shift), real(scale)
        mp.mp.dps = 30
        integral = mp.quad(
            lambda x, a=a, s=s, v=v: mp.npdf(x, 0, 1) ** a * mp.npdf(x, s, v) ** (1 - a),
            mp.linspace(-20, 20, 41),
        )
        mp.mp.dps = 50
        exact = mp.log(integral) / (a - 1)
        assert abs(normal_divergence(order, s, v) - exact) < mp.mpf(10) ** -20


@pytest.mark.parametrize("beta", [0.0, 1e-9, 1e-4, 0.01, 0.2, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 3.0, 100.0])
def test_smooth_divergence_is_the_maximum(sigma: float, beta: float) -> None:
    loss = SmoothSanitization(sigma, beta)
    orders = [1.0001, 1.5, 2.0, 3.0, 8.0, 40.0, 500.0]
    values = loss.renyi(np.array(orders))
    for order, value in zip(orders, values, strict=True):
        truth = mp.mpf(0)
        for i in range(-20, 21):
            b = real(beta) * i / 20
            for j in (1, 0.5, -1):
                shift = j * min(mp.mpf(1), mp.exp(b)) / real(sigma)
                truth = max(truth, normal_divergence(order, shift, mp.exp(b)))
        if mp.isinf(truth):
            assert math.isinf(value)
            continue
        assert real(float(value)) >= truth * (1 - mp.mpf(10) ** -30)
        assert value <= float(truth) * (1 + 1e-7) + 1e-14


def test_the_recalled_closed_form_is_too_small_near_its_limit() -> None:
    order, sigma, beta = 8.2, 0.5, 0.06  # order < 1/(2 beta) = 8.33
    recalled = order * math.exp(2 * beta) / sigma**2 + (
        beta * order - 0.5 * math.log(1 - 2 * beta * order)
    ) / (order - 1)
    ours = SmoothSanitization(sigma, beta).renyi(np.array([order]))[0]
    truth = normal_divergence(order, 2 * mp.exp(-real(beta)), mp.exp(-real(beta)))
    assert ours >= truth
    assert recalled < truth / 3


def test_smooth_loss_as_a_loss() -> None:
    loss = SmoothSanitization(sigma=50.0, beta=1e-3)
    state = Renyi().compose(Renyi().start(), loss, 3)
    epsilon = Renyi().epsilon(state, 1e-5).upper
    plain = Renyi().epsilon(Renyi().compose(Renyi().start(), Gaussian(1 / 50), 3), 1e-5).upper
    assert plain < epsilon < 1.2 * plain
    assert Renyi().epsilon(state, 0.0).upper == math.inf
    assert loss.dominates(SmoothSanitization(60.0, 1e-4))
    assert not loss.dominates(SmoothSanitization(40.0, 1e-4))
    assert not loss.dominates(Gaussian(1e-9))
    with pytest.raises(InapplicableError):
        loss.grouped(2)
    for sigma, beta in ((0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)):
        with pytest.raises(DomainError):
            SmoothSanitization(sigma, beta)
    huge = SmoothSanitization(1e-200, 0.1).renyi(np.array([2.0]))
    assert math.isinf(huge[0])


def test_the_sanitised_estimate_is_above_the_private_value() -> None:
    # 20000 draws at failure probability 0.1: more than 0.116 of them below has
    # probability under exp(-2 * 20000 * 0.016^2) = 4e-5 by Hoeffding for each seed; with the
    # union's slack (the true rate is about 0.05) under e^-170
    route = Sanitization(sigma=30.0, beta=0.05, spread=20.0)
    value, smooth = Secret(0.7), Secret(0.002)
    draw = np.random.default_rng(3)
    centre = route.log_scale(smooth).reveal()
    scale = route.scale(smooth).reveal()
    below = 0
    for z1, z2 in draw.standard_normal((20000, 2)):
        released = value.reveal() + scale * z1
        upper = route.upper(released, centre + route.beta * route.spread * z2, beta_fail=0.1)
        below += upper < 0.7
    assert below / 20000 < 0.116
    assert route.losses()[0] == SmoothSanitization(30.0, 0.05)
    assert Fraction(route.losses()[1].mu()) >= Fraction(1, 20)  # type: ignore[arg-type]
    assert repr(route.scale(smooth)) == "<private>"
    assert route.upper(1.0, 800.0, 0.1) == math.inf
    assert route.upper(math.nan, 0.0, 0.1) == math.inf
    for bad in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(DomainError):
            route.upper(1.0, 0.0, bad)
    for zero in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(DomainError):
            route.log_scale(Secret(zero))
    for beta in (0.0, -1.0):
        with pytest.raises(DomainError):
            Sanitization(1.0, beta, 1.0)
