"""What the page says of other noise and between points: never below the truth."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import mpmath
import numpy as np
import pytest
from matplotlib.cbook import STEP_LOOKUP_MAP
from scipy.stats import norm

import accountants
import adaptive_dp as dp
from accountants import plot as curves
from adaptive_dp.reports import what_if
from adaptive_dp.reports.page import _templates, report
from adaptive_dp.session.certificate import epsilon_by_step


def table() -> dp.Table:
    return dp.dataset("people", columns={"x": (0, 1)})


def laplaces() -> dp.Pipeline:
    people = table()
    return dp.Pipeline(
        a=people.count().release(dp.Laplace(scale=2)), b=people.count().release(dp.Laplace(scale=4))
    )


def gaussian_delta(mu: float, epsilon: float) -> Any:
    """Balle and Wang 2018, Theorem 8."""
    cdf = mpmath.ncdf
    shift = mpmath.mpf(epsilon) / mu
    return cdf(mu / 2 - shift) - mpmath.exp(epsilon) * cdf(-mu / 2 - shift)


def test_what_if_has_the_closed_form_of_pure_noise() -> None:
    plan = laplaces()
    what_ifs = what_if.grid(plan, plan.certify())
    assert what_ifs is not None
    at = what_ifs.deltas.index(0.0)
    assert set(what_ifs.epsilons) == {what_if.ALL, "a", "b"}
    for i, factor in enumerate(what_if.FACTORS):
        for name, truth in (
            (what_if.ALL, (1 / 2 + 1 / 4) / factor),
            ("a", 1 / 2 / factor + 1 / 4),
            ("b", 1 / 2 + 1 / 4 / factor),
        ):
            value = what_ifs.epsilons[name][i][at]
            # noise on a lattice pays for what rounding moves, so a little above
            assert truth <= value <= truth * (1 + 1e-6)


def test_what_if_is_never_below_the_gaussian_profile_and_never_rises() -> None:
    plan = dp.Pipeline(n=table().count().release(dp.Gaussian(sigma=3))).with_delta(1e-6)
    what_ifs = what_if.grid(plan, plan.certify())
    assert what_ifs is not None
    rows = np.array(what_ifs.epsilons[what_if.ALL])
    with np.errstate(invalid="ignore"):
        assert np.all((np.diff(rows, axis=0) <= 0) | np.isinf(rows[1:]))
        assert np.all((np.diff(rows, axis=1) <= 0) | np.isinf(rows[:, :-1]))
    with mpmath.workdps(40):
        for i, factor in enumerate(what_if.FACTORS):
            for delta, epsilon in zip(what_ifs.deltas, rows[i], strict=True):
                if delta == 0:
                    assert math.isinf(epsilon)
                else:
                    true = gaussian_delta(1 / (3 * factor), float(epsilon))
                    assert 0.999 * delta <= true <= delta


def test_what_if_of_a_plan_is_its_certificate_at_todays_noise() -> None:
    people = table()
    plan = dp.Pipeline(
        a=people.count().release(dp.Gaussian(sigma=4)),
        b=people.count().release(dp.Laplace(scale=3)),
    ).with_delta(1e-5)
    paper = plan.certify()
    what_ifs = what_if.grid(plan, paper)
    assert what_ifs is not None
    today = what_ifs.epsilons[what_if.ALL][what_if.FACTORS.index(1.0)][what_ifs.deltas.index(1e-5)]
    assert today <= paper.epsilon
    assert today == pytest.approx(paper.epsilon, rel=1e-9)


class Spent(dp.Mechanism):
    epsilon: float = dp.budget_parameter("epsilon")
    norm = 1

    def release(self, value: Any, stream: Any) -> Any:
        return value  # never run

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=self.epsilon * distance)


def test_budgets_shrink_where_noise_grows() -> None:
    plan = dp.Pipeline(a=table().count().release(Spent(epsilon=1)))
    what_ifs = what_if.grid(plan, plan.certify())
    assert what_ifs is not None
    for factor, row in zip(what_if.FACTORS, what_ifs.epsilons[what_if.ALL], strict=True):
        assert row[what_ifs.deltas.index(0.0)] == pytest.approx(1 / factor, rel=1e-9)


def test_free_plans_and_sessions_have_no_what_if() -> None:
    free = dp.Pipeline(a=table().count().release(dp.Laplace(scale=dp.Free("b"))))
    assert what_if.grid(free, laplaces().certify()) is None


def corners(axes: Any, i: int) -> tuple[Any, Any]:
    """Return the corners of a line as it is drawn, steps included."""
    line = axes.lines[i]
    return STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data())


def level(axes: Any, i: int, x: float) -> float:
    """Return the height of a line of steps between two of its points."""
    xs, ys = corners(axes, i)
    levels = [
        (float(ys[k]), float(ys[k + 1]))
        for k in range(len(xs) - 1)
        if xs[k] <= x <= xs[k + 1] and xs[k] < xs[k + 1]
    ]
    assert levels[0][0] == levels[0][1]  # level
    return levels[0][0]


def test_profiles_are_drawn_as_steps_on_the_safe_side() -> None:
    """Between the few points that are computed too, delta is never drawn too low."""
    guarantee = accountants.Guarantee(accountants.Spend(accountants.Gaussian(mu=1.0)))
    axes = curves.profile(guarantee, least=1e-6, points=9)
    with mpmath.workdps(40):
        for x in np.linspace(0.01, 0.99 * axes.get_xlim()[1], 60):
            assert level(axes, 0, float(x)) >= gaussian_delta(1.0, float(x))


def test_tradeoffs_are_drawn_as_steps_on_the_safe_side() -> None:
    guarantee = accountants.Guarantee(accountants.Spend(accountants.Gaussian(mu=1.0)))
    axes = curves.tradeoff(guarantee, points=9)
    for x in np.linspace(0.001, 0.999, 60):
        truth = float(norm.cdf(norm.isf(x) - 1.0))  # Dong, Roth and Su 2022, equation 6
        assert level(axes, 1, float(x)) <= truth  # the first line is the coin's


def test_the_table_of_the_profile_holds_the_truth() -> None:
    plan = dp.Pipeline(n=table().count().release(dp.Gaussian(sigma=2))).with_delta(1e-6)
    page = report(plan.certify(), plan)
    rows = re.findall(
        r'<tr><th scope="row">10⁻(\S+)</th><td>([\d.]+)</td><td>([\d.]+)</td></tr>', page
    )
    seen = [row for row in rows if row[0] in ("⁶", "⁹", "¹²")]
    assert len(seen) == 3
    with mpmath.workdps(40):
        for delta, (_, low, high) in zip((1e-12, 1e-9, 1e-6), seen, strict=True):
            assert gaussian_delta(0.5, float(high)) <= delta
            assert gaussian_delta(0.5, float(low)) >= delta


def test_hostile_data_stays_data() -> None:
    value = "</script><script>alert(1)</script><!-- & \u2028"
    stops = {"factors": [value], "deltas": ["0"]}
    given = {"stops": stops, "names": [value], "at": 0, "today": 0, "answer": value}
    write = _templates().get_template("sections.html.j2").module.what_if
    text = str(write({**given, "head": [value, value], "rows": [[value, value]]}))
    assert text.count("<script") == text.count("</script") == 1
    assert "<!--" not in text
    embedded = text.partition('id="what-if-data">')[2].partition("</script>")[0]
    assert json.loads(embedded) == stops


def test_the_history_of_a_session_ends_at_its_odometer() -> None:
    people, rows = table(), {"x": [0.5] * 50}
    with dp.Session(
        budget=dp.Budget(1.0, 1e-6), accountant="gaussian", seed=1, people=rows
    ) as session:
        for sigma in (20, 30, 40):
            session.run(people.count().release(dp.Gaussian(sigma=sigma)), name=f"at {sigma}.0")
        paper = session.certificate()
        steps = epsilon_by_step(paper)
        assert [name for name, _ in steps] == ["at 20.0", "at 30.0", "at 40.0"]
        assert steps[-1][1] == session.epsilon
        total = 0.0
        with mpmath.workdps(40):
            for (_, epsilon), sigma in zip(steps, (20, 30, 40), strict=True):
                total += 1 / sigma**2
                assert gaussian_delta(math.sqrt(total), epsilon) <= 1e-6
        assert steps[0][1] < steps[1][1] < steps[2][1] < 1
        page = report(paper, session.pipeline)
    assert "the budget" in page
    assert "at 40.0" in page
    assert "What if" not in page
