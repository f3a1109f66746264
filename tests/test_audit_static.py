"""The static audit of a plan: what it must find, and what it must not."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import accountants
import adaptive_dp as dp
from adaptive_dp import audit

PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
SECRETS = np.arange(1000.0)
"""Stands for a private table."""


class Own(dp.Mechanism):
    """A mechanism that is in no registry."""

    scale: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        return value + stream.laplace(self.scale, value.shape)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scale)


class Called:
    """An object that is called: its class looks at data."""

    def __call__(self, noisy: float) -> float:
        return float(noisy + SECRETS[0])


class Slotted:
    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = SECRETS.copy()

    def __call__(self, noisy: float) -> float:
        return float(noisy + self.rows[0])


class Holder:
    def __init__(self) -> None:
        self.rows = SECRETS.copy()


HOLDER = Holder()


def held(noisy: float) -> float:
    return float(noisy + HOLDER.rows[0])


def leaky(noisy: float) -> float:
    return float(noisy + SECRETS[0])


def through(noisy: float) -> float:
    return leaky(noisy)


def honest(noisy: float) -> float:
    return max(0.0, noisy)


def count(scale: float = 1.0) -> Any:
    return PEOPLE.count().release(dp.Laplace(scale=scale))


def findings_of(plan: dp.Pipeline) -> list[tuple[str, str]]:
    return [(each.severity, each.text) for each in audit.static(plan)]


def has_finding(plan: dp.Pipeline, severity: str, text: str) -> bool:
    return any(level == severity and text in sentence for level, sentence in findings_of(plan))


def test_a_plain_plan_has_no_findings() -> None:
    assert findings_of(dp.Pipeline(n=dp.post(honest, count()))) == []
    assert "proves nothing" in str(audit.static(dp.Pipeline(n=count())))


@pytest.mark.parametrize(
    "way",
    ["global", "called", "closure", "partial", "default", "object", "slots", "held"],
)
def test_a_function_that_reaches_data_is_detected(way: str) -> None:
    table = SECRETS.copy()

    def default(noisy: float, rows: Any = table) -> float:
        return float(noisy + rows[0])

    function: Any = {
        "global": leaky,
        "called": through,
        "closure": lambda noisy: noisy + table[0],
        "partial": functools.partial(np.add, table),
        "default": default,
        "object": Called(),
        "slots": Slotted(),
        "held": held,
    }[way]
    assert has_finding(dp.Pipeline(n=dp.post(function, count())), "error", "looks like data")


def test_what_holds_itself_is_looked_at_once() -> None:
    ring: list[Any] = [1.0]
    ring.append(ring)
    table: dict[str, Any] = {"ring": ring}
    table["self"] = table
    assert (
        findings_of(dp.Pipeline(n=dp.post(lambda noisy: noisy + ring[0], count())))[0][0] == "note"
    )
    assert (
        findings_of(dp.Pipeline(n=dp.post(lambda noisy: table and noisy, count())))[0][0] == "note"
    )
    ring.append([SECRETS])
    plan = dp.Pipeline(n=dp.post(lambda noisy: table and noisy, count()))
    assert has_finding(plan, "error", "looks like data (table)")

    def itself(noisy: float, times: int = 2) -> float:
        return itself(noisy, times - 1) if times else noisy

    assert not has_finding(dp.Pipeline(n=dp.post(itself, count())), "error", "")
    loop = functools.partial(honest)
    loop.__setstate__((loop, (), {}, {}))  # type: ignore[arg-type]
    assert not has_finding(dp.Pipeline(n=dp.post(loop, count())), "error", "")


def test_shared_parts_are_looked_at_once() -> None:
    """Thirty levels of sixty equal parts: one visit each, not 60^30."""
    nest: Any = [1.0]
    for _ in range(30):
        nest = [nest] * 60
    nested = [nest, [SECRETS]]
    plan = dp.Pipeline(n=dp.post(lambda noisy: nest and noisy, count()))
    assert not has_finding(plan, "error", "")
    plan = dp.Pipeline(n=dp.post(lambda noisy: nested and noisy, count()))
    assert has_finding(plan, "error", "nested")


def test_an_attribute_is_no_global_of_its_name() -> None:
    namesake: Any = lambda noisy: noisy.SECRETS  # noqa: E731
    assert not any(
        level == "error" for level, _ in findings_of(dp.Pipeline(n=dp.post(namesake, count())))
    )


def test_no_probability_above_one_is_reported() -> None:
    sized = dp.dataset("sized", columns={"age": (0, 9)}, neighbors="replace_one", size=10_000)
    plan = dp.Pipeline(n=sized["age"].sum().release(dp.Gaussian(sigma=50)))
    assert has_finding(plan.with_delta(0.01), "warning", "with probability 1 would")


def test_foreign_mechanisms_and_lambdas_are_detected() -> None:
    assert has_finding(dp.Pipeline(n=PEOPLE.count().release(Own(scale=1))), "warning", "Own")
    plan = dp.Pipeline(n=dp.post(lambda noisy: noisy + 1, count()))
    assert has_finding(plan, "note", "no module holds")


def test_twins_are_detected() -> None:
    assert has_finding(dp.Pipeline(a=count(), b=count(2)), "warning", "once more")
    other = PEOPLE["age"].sum().release(dp.Laplace(scale=100))
    assert findings_of(dp.Pipeline(a=count(), b=other)) == []


def test_claims_that_say_little_are_detected() -> None:
    assert has_finding(dp.Pipeline(n=count(0.05)), "warning", "epsilon is 20")
    gaussian = dp.Pipeline(n=PEOPLE.count().release(dp.Gaussian(sigma=5)))
    assert has_finding(gaussian, "error", "promises nothing")
    assert has_finding(gaussian.with_delta(0.01), "warning", "delta = 0.01 is large")
    assert not has_finding(gaussian.with_delta(1e-6), "warning", "delta")
    sized = dp.dataset("sized", columns={"age": (0, 9)}, neighbors="replace_one", size=10_000)
    plan = dp.Pipeline(n=sized["age"].sum().release(dp.Gaussian(sigma=50)))
    assert has_finding(plan.with_delta(1e-4), "warning", "10000 units")
    assert not has_finding(plan.with_delta(1e-7), "warning", "units")


def test_a_dominant_release_is_detected() -> None:
    ages = PEOPLE["age"].sum().release(dp.Laplace(scale=100), name="ages")
    few = PEOPLE.filter(PEOPLE["age"] >= 50).count().release(dp.Laplace(scale=1000))
    plan = dp.Pipeline(a=count(0.2), b=ages, c=few)
    assert has_finding(plan, "note", "of the budget")


def test_free_noise_and_questions_that_follow_releases_are_reported() -> None:
    free = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=dp.Free("b"))))
    assert has_finding(free, "note", "still free")
    below = PEOPLE.filter(PEOPLE["age"] <= dp.post(honest, count())).count()
    assert has_finding(
        dp.Pipeline(n=below.release(dp.Laplace(scale=1))), "note", "depends on released"
    )


def test_the_result_is_text_json_and_html() -> None:
    result = audit.static(dp.Pipeline(a=count(0.05), b=count(2)))
    assert [each["severity"] for each in json.loads(result.to_json())["findings"]]
    assert len(result) == len(str(result).splitlines()) / 2
    assert "<table>" in result._repr_html_()
    assert "warnings" in repr(result)
    with pytest.raises(TypeError):
        bool(result)


REGIONS = ["n", "e", "s", "w"]
SOME_SCALES = [2.0, 4.0, 8.0]


@st.composite
def partitioned_plans(draw: st.DrawFn) -> tuple[dp.Pipeline, Callable[[str, float], dp.Pipeline]]:
    """A plan with few different scales, so that worlds tie, and the same with one scale changed."""
    relation = draw(st.sampled_from(["add_remove", "replace_one"]))
    people = (
        dp.dataset(
            "people", columns={"region": REGIONS, "sex": ["f", "m"]}, neighbors=relation, size=20
        )
        if relation == "replace_one"
        else dp.dataset("people", columns={"region": REGIONS, "sex": ["f", "m"]})
    )
    scales = st.sampled_from(SOME_SCALES)
    drawn: dict[str, float] = {}
    for place in draw(
        st.lists(st.sampled_from([*REGIONS, "all", "n.f", "n.m"]), min_size=2, max_size=7)
    ):
        drawn[f"{place}#{len(drawn)}"] = draw(scales)
    gaussian = draw(st.booleans())

    def plan(changed: str = "", factor: float = 1.0) -> dp.Pipeline:
        parts = dict(people.partition("region"))
        inner = dict(parts["n"].partition("sex"))
        outputs = {}
        for i, (place, scale) in enumerate(drawn.items()):
            where = place.partition("#")[0]
            table = people if where == "all" else inner[where[-1]] if "." in where else parts[where]
            scale *= factor if f"q{i}" == changed else 1.0
            noise = dp.Gaussian(sigma=scale) if gaussian else dp.Laplace(scale=scale)
            outputs[f"q{i}"] = table.count().release(noise)
        plan = dp.Pipeline(**outputs)
        return plan.with_delta(1e-6) if gaussian else plan

    return plan(), plan


@examples(30)
@given(partitioned_plans())
def test_advice_on_noise_holds_where_it_is_followed(drawn: Any) -> None:
    """Less noise "at no cost" costs nothing; more noise where it "takes" the budget saves some."""
    plan, changed = drawn
    claimed = plan.certify().epsilon
    for finding in audit.static(plan):
        if "worst world" in finding.text:
            assert changed(finding.node, 1 - 1e-7).certify().epsilon <= claimed * (1 + 1e-9)
        if "% of the budget" in finding.text:
            assert changed(finding.node, 1.1).certify().epsilon < claimed * (1 - 1e-3)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_equal_parts_are_all_worst(relation: Any) -> None:
    """Followed, an advice to add less noise to one of them would raise the total."""
    size = 20 if relation == "replace_one" else None
    people = dp.dataset("people", columns={"region": REGIONS}, neighbors=relation, size=size)
    parts = dict(people.partition("region"))
    # two of scale 8 cost what one of scale 4 does; the fourth costs less
    plan = dp.Pipeline(
        n=parts["n"].count().release(dp.Laplace(scale=4)),
        e=parts["e"].count().release(dp.Laplace(scale=4)),
        s=parts["s"].count().release(dp.Laplace(scale=8)),
        again=parts["s"].filter(parts["s"]["region"] == "s").count().release(dp.Laplace(scale=8)),
        w=parts["w"].count().release(dp.Laplace(scale=8)),
    )
    rows = {row.node: row.in_worst_world for row in plan.certify().nodes}
    assert rows == {"n": True, "e": True, "s": True, "again": True, "w": False}
    assert [each.node for each in audit.static(plan) if "worst world" in each.text] == ["w"]
