"""`Pipeline.diff`: what differs between two plans, one line each."""

from __future__ import annotations

from typing import Any

import pytest
from plans import PLANS, add

import adaptive_dp as dp


def plan(scale: Any = 2.0, high: float = 10, extra: bool = False, names: str = "ab") -> dp.Pipeline:
    table = dp.dataset("t", columns={"x": (0, high)})
    total = table["x"].sum().release(dp.Laplace(scale=scale))
    count = table.count().release(dp.Laplace(scale=1.0))
    outputs = {names[0]: total, names[1]: count}
    if extra:
        outputs["c"] = dp.post(add, total, count)
    return dp.Pipeline(**outputs)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_does_not_differ_from_itself(name: str) -> None:
    assert PLANS[name]().diff(PLANS[name]()) == ""
    assert PLANS[name]().diff(dp.load(PLANS[name]().to_json())) == ""


def test_a_changed_scale_is_one_line() -> None:
    assert plan().diff(plan(3.0)) == "~ a: release Laplace(scale=2) -> release Laplace(scale=3)"


def test_a_new_node_and_its_output() -> None:
    assert plan().diff(plan(extra=True)).splitlines() == ["+ c: post add", "+ output c"]
    assert plan(extra=True).diff(plan()).splitlines() == ["- c: post add", "- output c"]


def test_changed_bounds_show_where_they_stand() -> None:
    lines = plan().diff(plan(high=20)).splitlines()
    assert any(line.startswith("~ sum") and "[0, 20]" in line for line in lines)
    assert all("Laplace" not in line for line in lines)
    assert lines


def test_calibration_shows() -> None:
    free = plan(dp.Free("b"))
    (line,) = free.diff(free.calibrate(epsilon=2.0)).splitlines()
    assert line.startswith("~ a: release Laplace(scale=b) -> release Laplace(scale=1")


def test_an_output_under_another_name() -> None:
    lines = plan().diff(plan(names="xb")).splitlines()
    assert lines == ["- output a", "+ output x"]


def test_an_empty_diff_means_equal_certificates() -> None:
    assert plan().diff(plan()) == ""
    assert plan().fingerprint == plan().fingerprint
    assert plan().fingerprint != plan(3.0).fingerprint
