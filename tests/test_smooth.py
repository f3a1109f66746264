"""Noise in proportion to the smooth sensitivity: its exact loss, its law, what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from test_smooth_sensitivity import Data, data_sets, neighbours, of

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.mechanism import SLACK, LocalSensitivity
from adaptive_dp.mechanisms import smooth_sensitivity as smooth
from adaptive_dp.mechanisms.smooth_sensitivity import (
    LOG_SIGMA,
    fine_uniform,
    laplace_delta,
    laplace_draw,
    laplace_smoothness,
    lognormal_draw,
    lognormal_split,
    student_draw,
    student_shift,
    student_smoothness,
)
from adaptive_dp.noise.stream import SeededStream, Stream
from adaptive_dp.queries.order_statistics import QuantileSensitivity

EPSILONS = [0.01, 0.3, 1.0, 3.0, 8.0]
WIDE = np.concatenate([np.linspace(-40, 40, 20001), *np.outer([-1, 1], np.geomspace(40, 1e9, 400))])


def student_log_density(z: np.ndarray, d: float) -> np.ndarray:
    return -(d + 1) / 2 * np.log1p(z * z / d)


def log_ratio(z: np.ndarray, b: float, s: float, d: float) -> np.ndarray:
    """Of Z to e^b Z + s."""
    return student_log_density(z, d) - student_log_density((z - s) * math.exp(-b), d) + b


@pytest.mark.parametrize("d", [1.0, 2.0, 3.0, 4.5, 30.0])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_students_loss_is_epsilon_and_not_more_over_all_shifts_and_stretches(
    epsilon: float, d: float
) -> None:
    for beta in (student_smoothness(epsilon, d), 0.02 * epsilon / d, 0.9 * epsilon / d):
        a = student_shift(epsilon, beta, d)
        worst = 0.0
        for b, share in itertools.product(np.linspace(-beta, beta, 21), (0.3, 1.0)):
            s = share * a * min(1.0, math.exp(b))
            # the extremes of the ratio lie near s: a grid there, and the far tails
            z = np.concatenate([WIDE, s + np.linspace(-3, 3, 2001) * max(1.0, s)])
            worst = max(worst, float(np.abs(log_ratio(z, b, s, d)).max()))
        assert worst <= epsilon
        assert worst >= epsilon * (1 - 1e-4)


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("d", [1.0, 3.0])
def test_the_release_is_private_on_all_small_data_sets(d: float, exchange: bool) -> None:
    """Before rounding: the exact densities of the median with noise, over all neighbours."""
    epsilon = 1.0
    beta = student_smoothness(epsilon, d)
    a = student_shift(epsilon, beta, d)
    y = np.concatenate([np.linspace(-40, 40, 801), np.geomspace(40, 1e8, 60)])

    def log_density(x: Data) -> np.ndarray:
        data = of(x, 0.5, exchange)
        scale = data.smooth(beta, least=1e-6) / a
        return student_log_density((y - data.value) / scale, d) - math.log(scale)

    worst = 0.0
    for x in data_sets(range(4)):
        for other in neighbours(x, exchange):
            worst = max(worst, float(np.abs(log_density(x) - log_density(other)).max()))
    assert 0.9 * epsilon <= worst <= epsilon


def test_students_loss_against_mpmath() -> None:
    """At fifty digits, where floats might hide an excess; both ends of the range of b."""
    mp.mp.dps = 50
    for d, epsilon in itertools.product((1, 3, 7), (0.2, 1.0, 5.0)):
        beta = student_smoothness(epsilon, d)
        a = mp.mpf(student_shift(epsilon, beta, d))

        def density(z: Any, d: int = d) -> Any:
            return (1 + z * z / d) ** (-mp.mpf(d + 1) / 2)

        for b in (-beta, -beta / 3, mp.mpf(0), beta / 2, beta):
            s = a * min(mp.mpf(1), mp.e**b)
            for z in [mp.mpf(k) / 4 for k in range(-40, 41)] + [mp.mpf(10) ** k for k in range(9)]:
                other = density((z - s) * mp.e**-b) * mp.e**-b
                assert abs(mp.log(density(z) / other)) <= epsilon


def test_the_sum_of_the_parts_is_looser() -> None:
    """Bun and Steinke's weighted sum, and Nissim, Raskhodnikova and Smith's a = beta = eps/6."""
    for d, epsilon in itertools.product((1, 3, 5), (0.1, 1.0)):
        beta = student_smoothness(epsilon, d)
        summed = (epsilon - d * beta) * 2 * math.sqrt(d) / (d + 1)
        assert student_shift(epsilon, beta, d) > 1.7 * summed
    assert student_shift(1.0, 1 / 6, 1) > 5.9 / 6


@pytest.mark.parametrize("d", [1.0, 3.0, 10.0])
def test_the_split_is_the_best_to_first_order(d: float) -> None:
    epsilon = 1e-3
    best = student_smoothness(epsilon, d)
    product = best * student_shift(epsilon, best, d)
    for other in np.linspace(0.05, 0.95, 37) * epsilon / d:
        assert other * student_shift(epsilon, float(other), d) <= product * (1 + 1e-6)


def hockey_stick(b: float, s: float, epsilon: float) -> float:
    """Of Lap(s, e^b) over Lap(0, 1), by numbers alone."""

    def over(z: float) -> float:
        p = math.exp(-abs(z - s) * math.exp(-b) - b) / 2
        return max(0.0, p - math.exp(epsilon - abs(z)) / 2)

    def ratio(z: float) -> float:
        return -abs(z - s) * math.exp(-b) - b + abs(z) - epsilon

    grid = np.linspace(-400, 400, 4001)
    kinks = [
        optimize.brentq(ratio, u, v)
        for u, v in itertools.pairwise(grid)
        if (ratio(u) > 0) != (ratio(v) > 0)
    ]
    ends = sorted({-2000.0, 0.0, s, 2000.0, *kinks, *(k + d for k in kinks for d in (-9, 9))})
    return sum(integrate.quad(over, u, v, limit=200)[0] for u, v in itertools.pairwise(ends))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_smooth_laplace_is_the_worst_delta_over_all_shifts_and_stretches(epsilon: float) -> None:
    delta = 1e-3
    beta = laplace_smoothness(epsilon, delta)
    a = epsilon / 2
    worst = 0.0
    for b in np.linspace(-beta, beta, 9):
        for share in (0.0, 0.5, 1.0):
            worst = max(worst, hockey_stick(b, share * a * min(1.0, math.exp(b)), epsilon))
    assert worst == pytest.approx(laplace_delta(epsilon, beta, a), rel=1e-5)
    assert worst == pytest.approx(delta, rel=1e-4)
    assert worst <= delta * (1 + 1e-9)  # the quadrature's own error
    assert beta > epsilon / (2 * math.log(2 / delta))  # the published choice


def test_smooth_laplace_spends_all_of_delta_but_no_more() -> None:
    for epsilon, delta in itertools.product(EPSILONS, (1e-2, 1e-6, 1e-30)):
        beta = laplace_smoothness(epsilon, delta)
        assert 0 < beta < epsilon / 2
        assert laplace_delta(epsilon, beta, epsilon / 2) <= delta
        more = beta * (1 + 1e-6)
        assert more > epsilon / 2 * (1 - 1e-6) or laplace_delta(epsilon, more, epsilon / 2) > delta
    assert laplace_delta(1.0, 0.1, 1.05) == 1.0  # beyond what the formula is for


def lognormal_density(z: np.ndarray) -> np.ndarray:
    y, weights = np.polynomial.hermite_e.hermegauss(120)
    v = np.exp(-LOG_SIGMA * y)
    return (weights * v * np.exp(-np.abs(z)[:, None] * v)).sum(axis=1) / 2 / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_laplace_lognormal_keeps_its_renyi_divergences(epsilon: float) -> None:
    beta, a = lognormal_split(epsilon)
    assert beta / LOG_SIGMA + math.exp(1.5 * LOG_SIGMA**2) * a == pytest.approx(epsilon, rel=1e-6)
    z = np.concatenate([-np.geomspace(1e4, 1e-6, 9000), np.geomspace(1e-6, 1e4, 9000)])
    log_p = np.log(lognormal_density(z))
    largest = 0.0
    for b, sign in itertools.product((-beta, 0.0, beta), (-1, 1)):
        s = sign * a * min(1.0, math.exp(b))
        log_q = np.log(lognormal_density((z - s) * math.exp(-b))) - b
        for order in (1.5, 2.0, 8.0):
            for p, q in ((log_p, log_q), (log_q, log_p)):
                moment = integrate.trapezoid(np.exp(order * p - (order - 1) * q), z)
                largest = max(largest, math.log(moment) / (order - 1) / order)
    assert largest <= epsilon**2 / 2
    assert largest >= epsilon**2 / 2 * 0.1  # a bound: not attained


def test_laplace_lognormal_log_density_is_lipschitz() -> None:
    z = np.linspace(1e-9, 30, 4000)
    slope = np.abs(np.diff(np.log(lognormal_density(z))) / np.diff(z))
    assert slope.max() <= math.exp(1.5 * LOG_SIGMA**2)
    assert slope[0] == pytest.approx(math.exp(1.5 * LOG_SIGMA**2), rel=1e-2)


DRAWS: dict[str, tuple[Callable[[Stream], float], Callable[[Any], Any]]] = {
    "Cauchy": (lambda s: student_draw(1, s), stats.cauchy.cdf),
    "Student 3": (lambda s: student_draw(3.0, s), stats.t(3).cdf),
    "Student 30": (lambda s: student_draw(30.0, s), stats.t(30).cdf),
    "Laplace": (laplace_draw, stats.laplace.cdf),
    "fine uniform": (fine_uniform, stats.uniform.cdf),
}
SIZE = 4000
LIMIT = math.sqrt(math.log(2 / 1e-7) / 2 / SIZE)
"""Dvoretzky, Kiefer, Wolfowitz and Massart: a true law is rejected with probability 1e-7."""


def apart(draw: Callable[[Stream], float], cdf: Callable[[Any], Any]) -> float:
    stream = SeededStream(11)
    draws = np.sort([draw(stream) for _ in range(SIZE)])
    steps = np.arange(SIZE + 1) / SIZE
    at = cdf(draws)
    return float(max((steps[1:] - at).max(), (at - steps[:-1]).max()))


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_their_law(name: str) -> None:
    draw, cdf = DRAWS[name]
    assert apart(draw, cdf) < LIMIT
    assert apart(lambda s: 1.5 * draw(s), cdf) > LIMIT  # and of no other scale


def test_laplace_lognormal_has_its_law() -> None:
    def cdf(z: Any) -> Any:
        y, weights = np.polynomial.hermite_e.hermegauss(60)
        tails = stats.laplace.cdf(np.asarray(z)[:, None] * np.exp(-LOG_SIGMA * y))
        return (tails * weights).sum(axis=1) / math.sqrt(2 * math.pi)

    assert apart(lognormal_draw, cdf) < LIMIT
    assert apart(lambda s: 1.5 * lognormal_draw(s), cdf) > LIMIT


class Words(Stream):
    """The words that it is given, then ones."""

    def __init__(self, *first: int) -> None:
        self.first = list(first)

    def words(self, count: int) -> Any:
        drawn = [self.first.pop(0) if self.first else 2**64 - 1 for _ in range(count)]
        return np.array(drawn, dtype=np.uint64)


def test_fine_uniforms_have_53_bits_at_every_size() -> None:
    assert fine_uniform(Words(2**63, 0)) == 0.5
    assert fine_uniform(Words()) == 1 - 2.0**-53
    assert fine_uniform(Words(1, 0)) == 2.0**-64
    assert fine_uniform(Words(0, 2**12, 0, 2**62)) == 2.0**-130 * (1 + 2.0**-52)
    assert 0 < fine_uniform(Words(*[0] * 9)) <= 2.0**-320
    for d in (1.0, 3.0, 1000.0):
        assert math.isfinite(student_draw(d, Words(*[0] * 99)))


BOUNDS = [(0.0, 1.0), (-3.0, 7e5), (1e9, 1e9 + 1), (-9e289, 9e289), (0.0, 5e-324), (2.0, 2.0)]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_whatever_is_released_lies_on_a_grid_of_the_bounds(bounds: tuple[float, float]) -> None:
    low, high = bounds
    unit = smooth.grid_step(low, high)
    assert math.frexp(unit)[0] == 0.5
    stream = SeededStream(5)
    odd = [
        low,
        high,
        (low / 2 + high / 2),
        math.inf,
        -math.inf,
        math.nan,
        0.0,
        -0.0,
        1e300,
        -5e-324,
    ]
    for number in odd:
        released = float(smooth.round_to_grid(number, low, high, stream))
        assert released % unit == 0 or high - low < unit
        assert low <= released <= high or high - low < 2 * unit
        assert math.copysign(1.0, released) == 1.0 or released < 0


def test_every_point_of_the_grid_can_be_released() -> None:
    unit = smooth.grid_step(0.0, 1.0)
    for word, expected in ((0, 0.0), (2**64 - 1, 1.0), (2**63, 0.5)):
        released = float(smooth.round_to_grid(0.3, 0.0, 1.0, Words(word, 0)))
        assert released == pytest.approx(expected, abs=2 * unit)
    rare = smooth.round_to_grid(
        0.3, 0.0, 1.0, Words(2**63, int(smooth.UNIFORM_PROBABILITY * 2**64))
    )
    assert float(rare) == pytest.approx(0.3, abs=unit)


MECHANISMS: dict[str, dp.Mechanism] = {
    "cauchy": dp.SmoothCauchy(epsilon=1.0),
    "student": dp.SmoothStudent(epsilon=1.0),
    "laplace": dp.SmoothLaplace(epsilon=1.0, delta=1e-6),
    "lognormal": dp.SmoothLaplaceLogNormal(epsilon=1.0),
    "released": dp.ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.1),
    "additive": dp.ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.01, logarithmic=False),
}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("exchange", [True, False])
def test_odd_data_can_be_released(name: str, exchange: bool) -> None:
    stream = SeededStream(7)
    for low, high in BOUNDS:
        for values in ([], [low], [high] * 3, [low, high], list(np.linspace(low, high, 9))):
            data = QuantileSensitivity(np.array(values, dtype=np.float64), low, high, 0.5, exchange)
            released = float(MECHANISMS[name].release(data, stream))
            assert low <= released <= high or high - low < 1e-300


@pytest.mark.parametrize("budget", [1e-300, 1e-9, 1e-3, 700.0, 1e299])
def test_odd_budgets_can_be_used(budget: float) -> None:
    stream = SeededStream(3)
    data = QuantileSensitivity(np.linspace(0, 1, 9), 0.0, 1.0, 0.5, True)
    for mechanism in (
        dp.SmoothCauchy(epsilon=budget),
        dp.SmoothStudent(epsilon=budget, degrees=1000.0),
        dp.SmoothLaplace(epsilon=budget, delta=1e-60),
        dp.SmoothLaplaceLogNormal(epsilon=budget),
        dp.ProposeTestRelease(epsilon=budget, delta=1e-60, bound=0.5),
        dp.ReleasedSensitivity(epsilon=budget, delta=1e-60, slope=0.5),
    ):
        released = float(mechanism.release(data, stream))
        assert math.isnan(released) or 0 <= released <= 1
        loss = mechanism.loss(1.0)
        assert budget <= (loss.pure() or math.inf)
    assert smooth.noise_epsilon(budget) <= smooth.charged_epsilon(budget)


def test_noise_follows_the_data() -> None:
    """With a thousand times the rows, noise is hundreds of times less."""
    wide = []
    for n in (20, 20000):
        data = QuantileSensitivity(np.linspace(0, 1, n), 0.0, 1.0, 0.5, False)
        stream = SeededStream(1)
        releases = [float(dp.SmoothStudent(epsilon=1.0).release(data, stream)) for _ in range(200)]
        wide.append(np.median(np.abs(np.array(releases) - 0.5)))
    assert wide[1] < wide[0] / 200


def table(neighbors: Any = "add_remove", unit: str | None = None, rows: int = 1) -> dp.Table:
    more: dict[str, Any] = {} if unit is None else {"unit": unit, "rows_per_unit": rows}
    columns = {"x": (0, 10), "r": ["A", "B"], "n": None}
    return dp.dataset("t", columns=columns, neighbors=neighbors, **more)


def epsilon_of(query: dp.Handle, mechanism: dp.Mechanism | None = None) -> float:
    assert isinstance(query, dp.Private)
    released = query.release(mechanism or dp.SmoothCauchy(epsilon=0.5))  # type: ignore[attr-defined]
    return dp.Pipeline(a=released).certify(accountants=[accountants.Basic()]).epsilon


def test_steps_are_charged_as_the_neighbours_say() -> None:
    """Rows exchanged where their number is fixed, else each row that comes or goes."""
    assert epsilon_of(table()["x"].median()) == pytest.approx(0.5)
    assert epsilon_of(table("add_remove", "id", 3)["x"].median()) == pytest.approx(1.5)
    replaced = table("replace_one")
    # a value that may be missing in one of the two data sets comes or goes
    assert not replaced["x"].median().operation.exchange
    assert epsilon_of(replaced["x"].median()) == pytest.approx(1.0)
    assert replaced["x"].fill(5).median().operation.exchange
    assert epsilon_of(replaced["x"].fill(5).median()) == pytest.approx(0.5)
    assert not table("replace_one", "id", 2)["x"].median().operation.exchange
    assert epsilon_of(table("replace_one", "id", 2)["x"].median()) == pytest.approx(2.0)
    filtered = replaced.filter(replaced["x"] > 3)["x"].median()
    assert not filtered.operation.exchange
    assert epsilon_of(filtered) == pytest.approx(1.0)
    part = replaced.partition("r")["A"]["x"].median()
    assert not part.operation.exchange
    assert epsilon_of(part) == pytest.approx(1.0)
    parts = {
        k: p["x"].median().release(dp.SmoothCauchy(epsilon=0.5)) for k, p in replaced.partition("r")
    }
    assert dp.Pipeline(parts=parts).certify().epsilon == pytest.approx(1.0)


def test_a_part_counts_exchanged_rows_nowhere() -> None:
    """A unit may leave a part: exchanged rows would miss that its number of rows changes."""
    from adaptive_dp.graph.handles import PrivateQuery
    from adaptive_dp.queries.order_statistics import Quantile

    part = table("replace_one").partition("r")["A"]["x"]
    query = PrivateQuery(Quantile((0, 10), 0.5, True), (part.fill(5),))
    with pytest.raises(dp.DeclarationError, match="replace_one"):
        dp.Pipeline(a=query.release(dp.SmoothCauchy(epsilon=1.0))).certify()


def test_groups_are_charged_at_once() -> None:
    loss = dp.SmoothLaplace(epsilon=0.5, delta=1e-8).loss(3.0000000000000013)
    assert loss == accountants.Approximate(0.5, 1e-8).grouped(3)
    assert dp.SmoothLaplaceLogNormal(epsilon=1.0).loss(2.0).rho() == pytest.approx(2.0)
    assert dp.SmoothStudent(epsilon=1.0).loss(0.0) == accountants.Pure(0.0)
    # a ledger has a form for it
    paid = accountants.Spend(dp.SmoothCauchy(epsilon=0.5).loss(3.0))
    assert accountants.from_json(accountants.to_json(paid)) == paid
    assert paid.loss == accountants.Pure(1.5)


def test_free_budgets_are_calibrated() -> None:
    x = table()["x"]
    plan = dp.Pipeline(
        median=x.median().release(dp.SmoothStudent(epsilon=dp.Free("e"))),
        high=x.quantile(0.9).release(dp.SmoothLaplace(epsilon=dp.Free("e", 2.0), delta=1e-7)),
    ).calibrate(epsilon=1.0, delta=1e-6)
    assert 0.99 <= plan.certify().epsilon <= 1.0
    n = 200_001  # noise of scale .004 at most: Student's third moment passes .5 in less than 1e-6
    frame = {"x": np.linspace(0, 10, n), "r": np.array(["A"] * n), "n": np.zeros(n)}
    result = plan.simulate(seed=2, t=frame)
    assert result["median"] == pytest.approx(5, abs=0.5)
    assert result["high"] == pytest.approx(9, abs=0.5)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "numbers": (lambda: table().count().release(dp.SmoothCauchy(epsilon=1)), "SmoothCauchy"),
    "a median with numbers' noise": (
        lambda: table()["x"].median().release(dp.Laplace(scale=1)),
        "Laplace",
    ),
    "'n'": (lambda: table()["n"].median(), "'n'"),
    "zero-out": (lambda: table("zero_out")["x"].median(), "zero_out"),
    "zero-out's mode": (lambda: table("zero_out")["r"].mode(), "zero_out"),
    "a quantile of 1": (lambda: table()["x"].quantile(1), "between 0 and 1"),
    "a quantile of 1e-9": (lambda: table()["x"].quantile(1e-9), "quantile"),
    "a quantile in words": (lambda: table()["x"].quantile("half"), "between 0 and 1"),  # type: ignore[arg-type]
    "trimmed without a number of rows": (
        lambda: table()["x"].trimmed_mean(0.1),
        "neighbors='replace_one'",
    ),
    "trimmed whole": (lambda: table("replace_one")["x"].trimmed_mean(0.5), "below 1/2"),
    "a variance in a part": (
        lambda: table("replace_one").partition("r")["A"]["x"].local_variance(),
        "neighbors='replace_one'",
    ),
    "no function": (lambda: table()["x"].instance(1, 2, range=(0, 1)), "instance"),  # type: ignore[arg-type]
    "a free delta": (
        lambda: dp.SmoothLaplace(epsilon=1, delta=dp.Free("d")),
        r"SmoothLaplace\.delta",
    ),
    "a delta of 0": (lambda: dp.SmoothLaplace(epsilon=1, delta=0), "1e-60"),
    "half a degree": (lambda: dp.SmoothStudent(epsilon=1, degrees=0.5), "from 1 to 1000"),
    "a bound of 0": (
        lambda: dp.ProposeTestRelease(epsilon=1, delta=1e-6, bound=0),
        r"ProposeTestRelease\.bound",
    ),
    "a flag of 1": (
        lambda: dp.ReleasedSensitivity(epsilon=1, delta=1e-6, slope=1, logarithmic=1),
        r"ReleasedSensitivity\.logarithmic",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_how_to_go_on(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(dp.DeclarationError, match=words):
        make()


def test_the_slack_is_room_for_the_smoothness_that_is_computed() -> None:
    """log S is off by at most SLACK at either data set."""
    for beta in (1e-10, 0.1, 3.0):
        assert smooth.computed_smoothness(beta) >= beta + 2 * SLACK


def test_private_values_show_nothing() -> None:
    data: LocalSensitivity = QuantileSensitivity(np.array([0.25, 0.75]), 0.0, 1.0, 0.5, True)
    assert "25" not in repr(data)
    assert "3" not in repr(dp.Choice(3, 3))
