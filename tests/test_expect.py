"""Before a run: expected widths, and noise for an error or for the risk of an attack."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import accountants
import adaptive_dp as dp


def table() -> dp.Table:
    return dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})


def test_of_a_release_the_width_is_known_without_data() -> None:
    plan = dp.Pipeline(
        n=table().count().release(dp.Laplace(scale=4.0)),
        h=table()["town"].histogram().release(dp.Gaussian(sigma=3.0)),
    )
    expected = plan.expect(rows=100, level=0.9)
    assert expected["n"] == pytest.approx(4 * math.log(10), rel=1e-6)
    assert expected["h"] == pytest.approx(3 * stats.norm.ppf(0.95) * np.ones(2), rel=1e-6)
    assert expected.level == 0.9
    assert set(expected) == {"n", "h"}


def test_of_an_average_the_width_is_that_of_its_errors() -> None:
    """Of 400 simulated errors the 95% quantile of sizes, to within 25%: 6 of its deviations."""
    plan = dp.Pipeline(age=table()["age"].average(dp.Laplace(scale=20.0)))
    ages = np.random.default_rng(1).uniform(0, 100, 5_000)
    public = {"age": ages, "town": ["A"] * 5_000}
    errors = [plan.simulate(seed=k, people=public)["age"] - ages.mean() for k in range(400)]
    width = plan.expect(people=public)["age"]
    assert width == pytest.approx(np.quantile(np.abs(errors), 0.95), rel=0.25)
    assert plan.expect(rows=5_000)["age"] == pytest.approx(width, rel=0.25)


def test_the_table_shows_size_width_and_reason() -> None:
    people = table()
    plan = dp.Pipeline(
        n=people.count().release(dp.DiscreteLaplace(scale=2.0)),
        age={"median": people["age"].median().release(dp.QuantileExponential(scale=2.0))},
        both=dp.post(lambda n: {"a": n, "b": "word"}, people.count().release(dp.Laplace(scale=1))),
    )
    lines = str(plan.expect(rows=1_000)).splitlines()
    assert any(line.startswith("n ") and " 6  " in line for line in lines)
    assert any(
        line.startswith("age.median") and "none: its rank is known" in line for line in lines
    )
    assert lines[-1].startswith("half widths of 95% intervals, on 1,000 made-up rows")
    assert "<table>" in plan.expect(rows=1_000)._repr_html_()


def test_expecting_needs_rows_and_noise() -> None:
    free = dp.Pipeline(n=table().count().release(dp.Laplace()))
    with pytest.raises(dp.DeclarationError, match="still free"):
        free.expect(rows=100)
    with pytest.raises(dp.DeclarationError, match="how many rows has 'people'"):
        free.calibrate(epsilon=1.0).expect()
    with pytest.raises(dp.DeclarationError, match="how many rows"):
        free.calibrate(epsilon=1.0).expect(rows=0)


def test_units_and_public_sizes_are_made_up_too() -> None:
    visits = dp.dataset("visits", columns={"cost": (0, 9)}, unit="id", rows_per_unit=3)
    plan = dp.Pipeline(n=visits.count().release(dp.Laplace(scale=3.0)))
    assert plan.expect(rows=50).answers["n"] == pytest.approx(50, abs=60)
    panel = dp.dataset("panel", columns={"m": (0, 10)}, neighbors="replace_one", size=40)
    mean = dp.Pipeline(m=panel["m"].fill(0).mean().release(dp.Laplace(scale=0.1)))
    assert mean.expect()["m"] == pytest.approx(0.1 * math.log(20), rel=1e-6)


# --- calibration ---


def test_a_count_with_an_error_has_the_noise_of_its_law() -> None:
    """Laplace noise is within b log 20 with 95%: the least budget is log 20 over the error."""
    plan = dp.Pipeline(n=table().count().release(dp.Laplace()))
    solved = plan.calibrate(error={"n": 6.0}, rows=100)
    assert math.log(20) / 6 <= solved.certify().epsilon < math.log(20) / 6 * 1.002


def test_several_errors_hold_together_at_the_least_budget() -> None:
    people = table()
    plan = dp.Pipeline(
        age=people["age"].average(dp.Gaussian()), n={"all": people.count().release(dp.Gaussian())}
    )
    solved = plan.calibrate(error={"age": 0.5, "n.all": 100.0}, rows=20_000, delta=1e-6)
    expected = solved.expect(rows=20_000)
    assert solved.delta == 1e-6
    assert expected["age"] <= 0.5
    assert expected["n"]["all"] <= 100
    more = plan.fix(noise=solved.structure.releases[0].mechanism.parameters()["sigma"] * 1.02
                    / plan.free["noise"][0])  # fmt: skip
    again = more.expect(rows=20_000)
    assert again["age"] > 0.495 or again["n"]["all"] > 99.9


def test_an_advantage_is_that_of_laplace_noise() -> None:
    """Laplace laws at distance epsilon have total variation 1 - e^(-epsilon/2)."""
    plan = dp.Pipeline(n=table().count().release(dp.Laplace()))
    epsilon = plan.calibrate(advantage=0.1).certify().epsilon
    assert -2 * math.log(0.9) * (1 - 2e-6) <= epsilon <= -2 * math.log(0.9)


def test_a_true_positive_rate_is_that_of_normal_noise() -> None:
    """N(mu, 1) against N(0, 1) has the power Phi(Phi^-1(alpha) + mu) (Neyman and Pearson)."""
    plan = dp.Pipeline(n=table().count().release(dp.Gaussian()))
    solved = plan.calibrate(true_positive_rate=0.05, at=0.01, delta=1e-6)
    mu = stats.norm.ppf(0.05) - stats.norm.ppf(0.01)
    sigma = solved.structure.releases[0].mechanism.parameters()["sigma"]
    assert mu * (1 - 1e-5) <= 1 / sigma <= mu
    promise = accountants.Guarantee(solved.term)
    assert promise.true_positive_rate(0.01).upper <= 0.05


def test_limits_that_cannot_be_are_refused() -> None:
    people = table()
    plan = dp.Pipeline(
        n=people.count().release(dp.Laplace()),
        fixed=people.count().release(dp.Laplace(scale=1.0)),
        median=people["age"].median().release(dp.QuantileExponential()),
    )
    for wrong, said in (
        ({}, "needs one limit"),
        ({"epsilon": 1.0, "advantage": 0.1}, "needs one limit"),
        ({"true_positive_rate": 0.05}, "at a false positive rate"),
        ({"epsilon": 1.0, "at": 0.01}, "at a false positive rate"),
        ({"advantage": 1.5}, "an advantage below 1"),
        ({"true_positive_rate": 0.01, "at": 0.05}, "above its false positive rate"),
        ({"error": {"other": 1.0}, "rows": 9}, "no output is named 'other'"),
        ({"error": {"n": -1.0}, "rows": 9}, "positive"),
        ({"error": {"fixed": 1.0}, "rows": 9}, "no noise of what error names is free"),
        ({"error": {"n": 1.0}}, "how many rows"),
    ):
        with pytest.raises(dp.DeclarationError, match=said):
            plan.calibrate(**wrong)  # type: ignore[arg-type]
    with pytest.raises(dp.CalibrationError, match=r"no interval to narrow.*rank"):
        plan.calibrate(error={"median": 1.0}, rows=9)
    with pytest.raises(dp.CalibrationError, match="cannot hold the risk"):
        plan.calibrate(advantage=0.1)
    both = dp.post(lambda a, b: a + b, plan.outputs[0][1], plan.outputs[2][1])
    with pytest.raises(dp.CalibrationError, match="whose noise is fixed err more"):
        dp.Pipeline(sum=both).calibrate(error={"sum": 1.0}, rows=9)
