"""The code in docs/instance.md runs as it is written."""

import re
from pathlib import Path

import pytest

import adaptive_dp as dp

PAGE = Path(__file__).parent.parent / "docs" / "instance.md"


@pytest.fixture(scope="module")
def page():
    text = PAGE.read_text(encoding="utf-8")
    names = {"__name__": "instance"}
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        exec(compile(block, f"instance.md block {i}", "exec"), names)
    return names


def test_every_block_runs(page, capsys):
    frame = page["frame"]
    truth = sorted(frame["age"])[9999]
    for name, near in (("median", 0.5), ("tested", 60), ("bounded", 3)):
        handle = page[name]
        if name == "median":
            handle = handle.release(dp.SmoothStudent(epsilon=0.5))
        plan = dp.Pipeline(a=handle).with_delta(1e-6)
        assert plan.simulate(seed=1, people=frame)["a"] == pytest.approx(truth, abs=near)
    assert (
        dp.Pipeline(a=page["mode"]).with_delta(1e-6).simulate(seed=1, people=frame)["a"] == "north"
    )
    assert "own functions" in page["plan"].certify().assumptions[-2]


def test_student_and_cauchy_are_within_a_tenth_of_a_year(page):
    frame = page["frame"]
    truth = sorted(frame["age"])[9999]
    for mechanism in (dp.SmoothStudent(epsilon=0.5), dp.SmoothCauchy(epsilon=0.5)):
        plan = dp.Pipeline(a=page["median"].release(mechanism))
        result = sorted(abs(plan.simulate(seed=k, people=frame)["a"] - truth) for k in range(20))
        assert result[10] < 0.1


def test_the_table_names_every_mechanism_that_follows_the_data():
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)`", text, flags=re.MULTILINE))
    following = {
        name
        for name in dp.__all__
        if isinstance(kind := getattr(dp, name), type)
        and issubclass(kind, dp.Mechanism)
        and kind.input_type in (dp.LocalSensitivity, dp.Choice)
    }
    assert following <= named
