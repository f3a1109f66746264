"""Plans by bounds: sorted, honest about constants, and consistent with what cannot be beaten."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from attrs import evolve
from scipy import integrate, stats

from accountants.errors import DomainError
from adaptive_dp import risk
from adaptive_dp.risk import Setting

CONSTANTS = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0)


def variants() -> list[Setting]:
    """Settings that differ in which constants are given."""
    settings = []
    for n, width, strong, stationary, linear, neighbors in itertools.product(
        (30, 10_000), (1, 40), (0.0, 0.2), (False, True), (False, True), ("replace_one", "zero_out")
    ):
        settings.append(
            Setting(
                n=n,
                width=width,
                lipschitz=1.0,
                radius=1.5,
                strong_convexity=strong,
                smoothness=0.5 if stationary else math.inf,
                stationary=stationary,
                linear=linear and strong == 0,
                neighbors=neighbors,  # type: ignore[arg-type]
            )
        )
    return settings


def test_lower_bounds_lie_below_every_upper_bound() -> None:
    for constants, (epsilon, delta) in itertools.product(
        variants(), ((0.01, 0.0), (1.0, 0.0), (1.0, 1e-6), (8.0, 1e-3))
    ):
        lower = risk.lower_bound(constants, epsilon, delta)
        bounds = risk.plan(constants, epsilon, delta)
        assert all(0 <= lower.total <= bound.total for bound in bounds)
        assert [b.total for b in bounds] == sorted(b.total for b in bounds)
        assert any(b.method == "a constant" for b in bounds)


def test_two_points_against_the_exponential_mechanism() -> None:
    """Its exact expected excess on the instances is above the bound, and within a factor 5."""
    for epsilon in (0.3, 1.0):
        constants = Setting(n=50, width=1, lipschitz=1.0, radius=1.0)
        c = risk.exponential_mechanism(constants, epsilon).choices["c"]
        w = np.linspace(-1, 1, 20_001)
        worst = 0.0
        for m in range(1, 51):
            density = np.exp(-c * m * (1 - w))
            density /= integrate.trapezoid(density, w)
            worst = max(worst, integrate.trapezoid(density * m * (1 - w), w))
        lower = risk.lower_bound(constants, epsilon).total
        assert lower <= worst <= 10 * lower


def test_two_points_against_randomised_response() -> None:
    """The best private method for the two points attains the overlap: it picks one of them."""
    for m, epsilon in ((1, 0.5), (3, 0.2)):
        right = math.exp(m * epsilon) / (1 + math.exp(m * epsilon))
        excess = m * 2 * (1 - right)  # of linear losses, L = R = 1, picking w = v or -v
        assert excess == pytest.approx(m * 2 / (1 + math.exp(m * epsilon)))
        constants = Setting(n=m, width=1, lipschitz=1.0, radius=1.0)
        assert risk.lower_bound(constants, epsilon).total >= excess * (1 - 1e-9)


def test_there_are_as_many_directions_as_the_packing_says() -> None:
    rng = np.random.default_rng(0)
    for width, phi in ((2, math.pi / 4), (3, math.pi / 4), (4, math.pi / 3)):
        packing: list[np.ndarray] = []
        for v in rng.normal(size=(4000, width)):
            v /= np.linalg.norm(v)
            if all(v @ u <= math.cos(phi) for u in packing):
                packing.append(v)
        assert len(packing) >= math.sin(phi) ** -width


def test_lower_bounds_have_the_right_powers() -> None:
    def mean(n: int, width: int, epsilon: float, strong: float) -> float:
        constants = Setting(n=n, width=width, lipschitz=1, radius=1, strong_convexity=strong)
        return risk.lower_bound(constants, epsilon).mean

    for strong, power in ((0.0, 1), (0.5, 2)):
        base = mean(10**6, 1000, 1.0, strong)
        assert mean(10**7, 1000, 1.0, strong) / base == pytest.approx(10.0**-power, rel=0.02)
        assert mean(10**6, 4000, 1.0, strong) / base == pytest.approx(4.0**power, rel=0.02)
        assert mean(10**6, 1000, 4.0, strong) / base == pytest.approx(4.0**-power, rel=0.03)


def test_a_constant_where_nothing_is_better() -> None:
    assert risk.plan(CONSTANTS, 1e-4)[0].method == "a constant"
    assert risk.plan(CONSTANTS, 1e-4)[0].mean == pytest.approx(1.0)
    assert risk.plan(CONSTANTS, 1.0)[0].method != "a constant"
    tight = evolve(CONSTANTS, strong_convexity=2.0)
    assert risk.constant(tight).mean == pytest.approx(0.25)  # L^2 / (2 mu) < L R


def test_more_knowledge_never_hurts() -> None:
    """What one says beside the setting only adds bounds."""
    for epsilon, delta, population in itertools.product((0.5,), (0.0, 1e-6), (False, True)):
        last = math.inf
        for changes in (
            {},
            {"smoothness": 0.25},
            {"smoothness": 0.25, "stationary": True},
            {"smoothness": 0.25, "stationary": True, "linear": True},
        ):
            constants = evolve(CONSTANTS, **changes)
            best = risk.plan(constants, epsilon, delta, population=population)[0]
            assert best.total <= last * (1 + 1e-9)
            assert best.population == population
            last = best.total


def test_smallest_n_and_epsilon() -> None:
    for delta, population in itertools.product((0.0, 1e-6), (False, True)):
        n = risk.smallest_n(CONSTANTS, 0.3, 1.0, delta, population=population)
        assert risk.plan(evolve(CONSTANTS, n=n), 1.0, delta, population=population)[0].mean <= 0.3
        assert (
            risk.plan(evolve(CONSTANTS, n=n - 1), 1.0, delta, population=population)[0].mean > 0.3
        )
        large = evolve(CONSTANTS, n=10_000)
        epsilon = risk.smallest_epsilon(large, 0.2, delta, population=population)
        assert risk.plan(large, epsilon, delta, population=population)[0].mean <= 0.2
        less = risk.plan(large, epsilon / 1.002, delta, population=population)[0]
        assert less.mean > 0.2
    with pytest.raises(DomainError):
        risk.smallest_epsilon(Setting(n=2, width=10, lipschitz=1, radius=1), 1e-9)


def test_privacy_for_free() -> None:
    """The thresholds of the docstring, from both sides."""
    strong = evolve(CONSTANTS, strong_convexity=1.0, width=4)
    assert risk.privacy_cost(strong, 4.0).free
    assert not risk.privacy_cost(strong, 3.99).free
    smooth = evolve(strong, smoothness=5.0, stationary=True)
    edge = math.sqrt(5 * 4 * 5.0 / 1000)  # p (p + 1) / eps^2 = n / kappa
    assert risk.privacy_cost(smooth, edge * 1.001).free
    assert not risk.privacy_cost(smooth, edge * 0.999).free
    convex = evolve(CONSTANTS, width=4)
    assert risk.privacy_cost(convex, 2.0).free
    assert not risk.privacy_cost(convex, 1.99).free
    edges = []
    for n in (10**4, 10**8):
        constants = evolve(CONSTANTS, n=n, width=30, smoothness=1.0, stationary=True)
        grid = np.geomspace(1e-2, 100, 4000)
        edges.append(min(e for e in grid if risk.privacy_cost(constants, e).free))
    assert math.log(edges[0] / edges[1]) / math.log(10**4) == pytest.approx(0.25, abs=0.01)


def test_noise_is_exactly_what_the_budget_needs() -> None:
    bound = risk.noisy_descent(CONSTANTS, 1.0, 1e-6, steps=50)
    mu = CONSTANTS.move * math.sqrt(50) / bound.choices["sigma"]  # Balle and Wang 2018, Thm 8
    delta = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    assert 0.9999e-6 < delta <= 1e-6 * (1 + 1e-8)


def test_tables_hold_all_three_kinds() -> None:
    constants = evolve(CONSTANTS, strong_convexity=0.5, smoothness=1.0, stationary=True)
    for delta, population in itertools.product((0.0, 1e-6), (False, True)):
        rows = risk.table(constants, 1.0, delta, population=population)
        assert {row.kind for row in rows} >= {"upper"}
        assert all(row.mean <= 1.0 + 1e-9 for row in rows if row.kind == "upper")
        assert risk.markdown_table(rows).count("\n") == len(rows) + 1
        marks = {row.kind: row.confidence for row in rows if row.kind != "upper"}
        assert marks.items() <= {"lower": "H", "rate": "L"}.items()
        for row in rows:
            if row.kind == "lower":
                above = [o.mean for o in rows if o.kind == "upper" and o.losses == row.losses]
                assert row.ratio == pytest.approx(min(above) / row.mean)
                assert row.ratio >= 1
    with pytest.raises(DomainError):
        risk.table(CONSTANTS, 1.0)
    everything = risk.tables(constants, 1.0, 1e-6)
    assert list(everything) == [
        f"{name} risk, delta = {each}"
        for name in ("any", "empirical", "population")
        for each in ("0", "1e-06")
    ]
    assert everything["empirical risk, delta = 0"] == risk.table(constants, 1.0)
    classes = {"strongly convex", "smooth strongly convex", "convex", "smooth convex"}
    assert all({row.losses for row in rows} == classes for rows in everything.values())
    smooth = everything["empirical risk, delta = 0"][1]
    p, n = constants.width, constants.n
    # 2 kappa (L^2 / mu) p (p + 1) / (eps n)^2, with kappa = 2
    assert smooth.mean == pytest.approx(2 * 2 / 0.5 * p * (p + 1) / n**2, rel=1e-9)
    assert smooth.confidence == "H"
    with pytest.raises(DomainError, match="delta must be positive"):
        risk.tables(constants, 1.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "Setting.n"),
        ({"width": 2.5}, "Setting.width"),
        ({"lipschitz": math.inf}, "Setting.lipschitz"),
        ({"radius": -1.0}, "Setting.radius"),
        ({"strong_convexity": math.nan}, "Setting.strong_convexity"),
        ({"smoothness": 0.0}, "Setting.smoothness"),
        ({"strong_convexity": 2.0, "smoothness": 1.0}, r"Setting\.smoothness"),
        ({"neighbors": "add_remove"}, r"Setting\.neighbors"),
        ({"rank": 3}, "linear=True"),
        ({"rank": 30, "linear": True}, r"Setting\.rank"),
    ],
)
def test_refusals(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        evolve(CONSTANTS, **changes)


def test_methods_refuse_what_they_have_no_proof_for() -> None:
    smooth = evolve(CONSTANTS, smoothness=1.0, stationary=True, linear=True)
    with pytest.raises(DomainError, match="penalty"):
        risk.objective_perturbation(smooth, 0.1, penalty=1.0)
    with pytest.raises(DomainError, match="Gaussian"):
        risk.noisy_descent(CONSTANTS, 1.0, 0.0, steps=5)
    for method in (risk.output_perturbation, risk.smooth_output_perturbation):
        with pytest.raises(DomainError):
            method(CONSTANTS, 1.0)
    with pytest.raises(DomainError):
        risk.population(smooth, risk.objective_perturbation(smooth, 1.0))
    with pytest.raises(DomainError, match="linear"):
        risk.linear_descent(CONSTANTS, 1.0, 1e-6, steps=5)
    with pytest.raises(DomainError):
        risk.output_perturbation(
            evolve(CONSTANTS, strong_convexity=1.0), 1.0, failure=0.1, population=True
        )
    for epsilon, delta in ((0.0, 0.0), (math.inf, 0.0), (1.0, 1.0), (1.0, -1e-9), (501.0, 0.0)):
        with pytest.raises(DomainError):
            risk.plan(CONSTANTS, epsilon, delta)
