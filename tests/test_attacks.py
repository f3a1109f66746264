"""Attacks that other libraries fell to, each tried on plans and sessions.

Those on one sampler, one error message or one ledger stand in the tests of these;
docs/security.md lists all of them.
"""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.audit.neighbors import query_value
from adaptive_dp.noise.stream import SecureStream
from adaptive_dp.session import Budget, Session
from adaptive_dp.testing import check
from adaptive_dp.testing.checks import in_a_child

SECRET = 271828.25
HUGE = 2.0**52


def plan_of(query: Any, mechanism: dp.Mechanism) -> dp.Pipeline:
    return dp.Pipeline(out=query.release(mechanism)).with_delta(1e-6)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
def test_a_sum_of_floats_near_two_to_the_52_moves_by_no_more_than_it_says(neighbors: str) -> None:
    table = dp.dataset("t", columns={"x": (HUGE, HUGE + 2**40)}, neighbors=neighbors)
    check(table["x"].sum())


def test_a_sum_of_floats_does_not_hang_on_their_order() -> None:
    table = dp.dataset("t", columns={"x": (-1e16, 1e16)})
    query = table["x"].sum()
    plan = plan_of(query, dp.Laplace(scale=1e16))
    rng, cells = np.random.default_rng(1), np.array([1e16, 1.0, -1e16, 3.0, 0.1] * 9)
    seen = {
        float(query_value(plan, query, {"t": {"x": rng.permutation(cells)}})) for _ in range(20)
    }
    assert len(seen) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.0, 1e308, None])
def test_one_bad_cell_spoils_nothing(bad: Any) -> None:
    """The releases with it are finite, and within the noise of those without it."""
    table = dp.dataset("t", columns={"x": (0, 1), "y": (0, 1)})
    noise = dp.Laplace(scale=1.0)
    plan = dp.Pipeline(
        total=table["x"].sum().release(noise),
        mean=table["x"].mean().release(noise),
        bins=table["x"].histogram([0, 0.5, 1]).release(noise),
        gram=table.vectors(["x", "y"]).gram().release(dp.Gaussian(sigma=1.0)),
    )
    rows = {"x": [0.25] * 30, "y": [0.5] * 30}
    with_it = {"x": [*rows["x"], bad], "y": [*rows["y"], bad]}
    one, two = (plan.simulate(seed=3, t=each) for each in (rows, with_it))
    for name in plan.outputs:
        gap = np.abs(np.asarray(one[name[0][0]]) - np.asarray(two[name[0][0]]))
        assert np.all(gap <= 2.0)  # the noise is the same: what is left is the row's own share


def test_values_and_scales_at_the_end_of_the_floats_return_at_once() -> None:
    began = time.perf_counter()
    for kind in (dp.Laplace, dp.DiscreteLaplace):
        for scale in (5e-324, 1e-300, 1e300, 1.7e308):
            try:
                out = kind(scale=scale).release(np.array(1.7e308), SecureStream())
                assert not np.isnan(out)
            except (dp.DeclarationError, dp.RunError):
                continue
    assert time.perf_counter() - began < 20


def test_forked_runs_of_one_plan_draw_their_own_noise() -> None:
    table = dp.dataset("t", columns={"x": (0, 1)})
    plan = plan_of(table["x"].histogram([0, 0.25, 0.5, 1]), dp.Gaussian(sigma=50.0))
    rows = {"x": [0.1, 0.3, 0.7]}

    def run() -> list[float]:
        return list(plan.run(t=rows)["out"])

    seen = [in_a_child(run), in_a_child(run), run()]
    assert len({v for each in seen for v in each}) > 6


def test_a_plan_that_was_read_back_draws_its_own_noise() -> None:
    """A plan is not copied: its document is read."""
    table = dp.dataset("t", columns={"x": (0, 1)})
    plan = plan_of(table["x"].sum(), dp.Laplace(scale=1.0))
    for copier in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copier(plan)
    plans = [plan, dp.load(plan.to_json()), dp.load(plan.to_json())]
    assert len({each.run(t={"x": [0.5] * 9})["out"] for each in plans}) == 3


def test_a_session_shows_no_data() -> None:
    table = dp.dataset("people", columns={"x": (0, 1e6)})
    rows = {"x": [SECRET] * 3}
    with Session(budget=Budget(1.0, 1e-6), people=rows) as session:
        session.run(table.count().release(dp.Gaussian(sigma=50.0)))
        shown = [repr(session), str(session), repr(vars(session)), repr(session.pipeline)]
        for text in shown:
            assert str(SECRET) not in text
        with pytest.raises(Exception) as refused:  # noqa: PT011
            pickle.dumps(session)
        assert str(SECRET) not in str(refused.value)


def test_a_unit_that_comes_or_goes_is_charged_at_its_largest_value() -> None:
    """Not at the width of the bounds, which is right only where every value is exchanged."""
    for neighbors, filled, most in (
        ("add_remove", True, 11.0),
        ("add_remove", False, 11.0),
        ("replace_one", True, 1.0),
        # a value may be missing in one of the two data sets alone, and then adds nothing
        ("replace_one", False, 11.0),
    ):
        table = dp.dataset("t", columns={"x": (10, 11)}, neighbors=neighbors)
        table = table.fill(x=10) if filled else table
        certificate = dp.Pipeline(a=table["x"].sum().release(dp.Laplace(scale=22.0))).certify()
        assert certificate.epsilon == pytest.approx(most / 22.0, rel=1e-3)


def tenth(session: Session, k: int) -> bool:
    """Ask for a tenth of the budget, for a release that no other asks for."""
    table = dp.dataset("people", columns={"x": (0, 100)})
    try:
        session.run(table.filter(table["x"] > k / 7).count().release(dp.Laplace(scale=10.01)))
    except accountants.BudgetError:
        return False
    return True


def test_ten_tenths_are_a_budget_and_eleven_are_not() -> None:
    session = Session(budget=Budget(1.0), accountant="basic", people={"x": [1.0] * 9})
    assert sum(tenth(session, k) for k in range(14)) == 10
    assert session.epsilon <= 1.0


def test_the_refusal_of_propose_test_release_is_private_too() -> None:
    """Both sides of the test's threshold, at a declared claim, by the kit's audit."""
    table = dp.dataset("t", columns={"x": (0, 10)}, neighbors="replace_one")
    test = dp.ProposeTestRelease(epsilon=1.0, delta=1e-3, bound=2.0)
    check(test, table["x"].median(), samples=1500, only=("audit",))


def test_choosing_the_best_of_many_is_paid_for() -> None:
    """A candidate's own loss is not the loss of having tried all of them."""
    table = dp.dataset("people", columns={"x": (0, 100)})

    def tried(limit: dp.Released[Any]) -> tuple[dp.Released[Any], dp.Released[Any]]:
        below = table.filter(table["x"] <= limit).count().release(dp.Laplace(scale=10.0))
        return below, below

    best = dp.Pipeline(a=dp.select(tried, [10.0, 50.0, 90.0], stopping=0.2)).certify()
    assert best.epsilon >= 0.2 * (1 - 1e-9)


def test_nothing_of_the_data_is_logged_or_printed() -> None:
    """A run with warnings, logs and a progress bar all on, in a process of its own."""
    code = f"""
import logging, warnings, numpy as np, adaptive_dp as dp
logging.basicConfig(level=0); warnings.simplefilter("always")
t = dp.dataset("t", columns={{"x": (0, 1e6)}})
body = lambda s, t: t["x"].sum().release(dp.Laplace(scale=1e9))
plan = dp.Pipeline(a=dp.repeat(body, 3, t, start=0.0))
plan.run(progress=True, t={{"x": [{SECRET}, float("nan"), float("inf")]}})
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert process.returncode == 0, process.stderr
    assert str(SECRET)[:6] not in process.stdout + process.stderr
    assert "nan" not in (process.stdout + process.stderr).lower()
