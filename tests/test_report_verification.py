"""A report states how its claim was checked: recomputed, of the right run, and on whose code."""

from __future__ import annotations

import math
import re
from html import unescape
from typing import Any

import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.certificate import LossRow
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.reports.markdown import markdown
from adaptive_dp.reports.page import report
from adaptive_dp.reports.wording import loss, named, power

DELTA = 1.2345449e-6


class Mine(dp.Mechanism):
    """Laplace noise of their own."""

    width: float = dp.noise_parameter("w")
    theorem = "their own proof"

    def release(self, value: Any, stream: Any) -> Any:
        return value + stream.laplace(self.width, value.shape)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(distance / self.width)


def people() -> dp.Table:
    return dp.dataset("people", columns={"x": (0, 1)})


def plan() -> dp.Pipeline:
    return dp.Pipeline(n=people().count().release(dp.Gaussian(sigma=3))).with_delta(DELTA)


def words(page: str) -> str:
    body = re.sub(r"<(script|style)[^>]*>.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def both(document: Any) -> tuple[str, str]:
    return words(report(document)), markdown(document).replace("\\", "")


@pytest.mark.usefixtures("undrawn")
def test_a_changed_certificate_is_said_not_to_hold() -> None:
    paper = plan().certify()
    for text in both(paper):
        assert "the claim holds" in text
    for change in (
        lambda d: d["claim"].update(epsilon=d["claim"]["epsilon"] / 2),
        lambda d: d["accountants"][-1].update(upper=0.001),
        lambda d: d["nodes"][0]["parameters"].update(sigma=30.0),
        lambda d: d["plan"]["nodes"][-1]["mechanism"].update(sigma=30.0),
    ):
        document = paper.to_document()
        change(document)
        for text in (*both(document), words(report(document, plan()))):
            assert "does not hold" in text
            assert "the claim holds" not in text
        assert '<p class="banner" role="alert">The claim does not hold' in report(document)


def test_what_cannot_be_recomputed_says_so() -> None:
    paper = plan().certify()
    own = dp.Pipeline(n=people().count().release(Mine(width=2.0))).certify()
    document = {**paper.to_document(), "plan": {"nodes": []}}
    for text in (*both(document), *both(own)):
        assert "Not recomputed" in text or "does not hold" in text
        assert "the claim holds" not in text
    given = dp.Pipeline(n=people().count().release(Mine(width=2.0)))
    assert "the claim holds" in words(report(own, given))  # its own code is here already
    assert "the claim holds" in words(report(own, allow=[__name__]))
    assert "the claim holds" in markdown(own, allow=[__name__])


def test_what_is_not_a_certificate_is_not_set() -> None:
    odd = plan().certify().to_document()
    odd["nodes"][0]["distance"] = {"deep": [None]}
    missing = {k: v for k, v in plan().certify().to_document().items() if k != "plan"}
    for document in (odd, missing, {}):
        for write in (report, markdown):
            with pytest.raises(dp.DocumentError):
                write(document)


def test_values_are_those_of_the_certificate_shown_with_them() -> None:
    rows = {"x": [0.5] * 10}
    drawn = plan().simulate(seed=1, people=rows)
    page = report(plan().certify(), plan(), drawn)
    assert '<p class="banner" role="alert">Not for release: seeded simulation</p>' in page
    assert "Fit for release: yes" not in page
    other = dp.Pipeline(z=people().count().release(dp.Laplace(scale=3)))
    with pytest.raises(DeclarationError):
        report(plan().certify(), plan(), other.simulate(seed=1, people=rows))


def test_code_from_elsewhere_is_named() -> None:
    own = dp.Pipeline(n=people().count().release(Mine(width=2.0))).certify()
    for text in both(own):
        assert f"the mechanism {__name__}:Mine, of no installed distribution" in text
        assert "Code from elsewhere" in text
    for text in both(plan().certify()):
        assert "Code from elsewhere" not in text


def test_a_delta_is_never_shown_too_low() -> None:
    paper = plan().certify()
    page = words(report(paper, plan()))
    assert "1.2345e-06" not in page
    assert "δ = 1.2346e-06" in page
    assert "delta = 1.23455e-06" in str(paper)
    assert "delta=1.23455e-06" in repr(paper)
    for delta in (DELTA, 1e-5, 0.1, 3e-7, 0.0123449):
        digits = power(delta)
        raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
        value = 10.0 ** int(digits[2:].translate(raised)) if digits[-1] in "⁰¹²³⁴⁵⁶⁷⁸⁹" else digits
        assert float(value) >= delta * (1 - 2**-52)


def test_costs_inside_of_losses_are_never_shown_too_low() -> None:
    assert "0.12346" in loss(LossRow("Gaussian", {"mu": 0.1234501, "rate": 0.5}))
    assert named({"epsilon": 0.1234501}) == "epsilon: 0.12346"
    # a certificate's own words of losses within losses
    two = people().sample(rate=0.5)
    made = dp.Pipeline(n=two.count().release(dp.Gaussian(sigma=1 / 0.12345641)))
    text = str(made.with_delta(1e-6).certify())
    assert "0.123457" in text
    assert "0.123456 " not in text


def test_integers_in_names_are_in_order() -> None:
    counted = {f"step {i}": people().count().release(dp.Laplace(scale=2)) for i in range(1, 13)}
    rows = dp.Pipeline(**counted).certify().nodes
    assert [row.node for row in rows] == [f"step {i}" for i in range(1, 13)]
    odd = {name: people().count().release(dp.Laplace(scale=2)) for name in ("a", "a01", "a1", "1")}
    huge = {"b" + "9" * 5000: people().count().release(dp.Laplace(scale=2))}
    assert len(dp.Pipeline(**odd, **huge).outputs) == 5


def session(mechanism: Any) -> dp.Session:
    running = dp.Session(
        budget=dp.Budget(1.0000049, DELTA), accountant="renyi", seed=1, people={"x": [0.5] * 50}
    )
    for i in range(11):
        running.run(people().count().release(mechanism(40.0 + i)))
    return running


def test_a_session_is_reported_in_its_order_without_what_does_not_apply() -> None:
    with session(lambda sigma: dp.Gaussian(sigma=sigma)) as running:
        paper = running.certificate()
        page = words(report(paper, running.pipeline))
    for text in (page, markdown(paper), str(paper)):
        assert "does not apply" not in text
        assert text.index("step 9 ") < text.index("step 10 ")
    assert "the budget" in page
    assert "1.0001" in page  # the budget itself, never rounded down
    assert "the claim holds" in page


def test_a_session_with_mechanisms_of_ones_own_shows_its_steps() -> None:
    with session(lambda width: Mine(width=width)) as running:
        paper, made = running.certificate(), running.pipeline
        read = running.epsilon
    page = words(report(paper, made))
    assert "cannot be recomputed" not in page
    assert "11 step 11" in page
    for given in (report(paper, made), report(paper, allow=[__name__])):
        table = re.findall(r"step 11</th>|step 11</td><td>([0-9.]+)", given)
        assert math.isclose(float(next(filter(None, table))), read, rel_tol=1e-4)
    bare = words(report(paper))
    assert "report(certificate, session.pipeline)" in bare
    assert "11 step 11" in bare


def test_an_audit_above_the_claim_is_said_to_contradict_it() -> None:
    paper = plan().certify()
    audit = {"epsilon_lower": 2 * paper.epsilon, "delta": DELTA, "verdict": "consistent"}
    for text in (words(report(paper, audit=audit)), markdown(paper, audit)):
        assert "CONTRADICTION" in text
    for change in ({"delta": DELTA / 2}, {"epsilon_lower": paper.epsilon}):
        assert "CONTRADICTION" not in markdown(paper, audit | change)


def test_what_each_record_has_spent_is_not_said_to_be_spent() -> None:
    budget = dp.Budget(2.0, 1e-6)
    with dp.Session(
        budget=budget, accountant="individual", seed=1, people={"x": [0.1] * 50}
    ) as running:
        running.run(people()["x"].sum().release(dp.Gaussian(sigma=20)))
        text = markdown(running.certificate())
    assert "What each record has spent is private" in text
    assert "Spent so far" not in text
