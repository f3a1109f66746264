"""Certificates: what they claim, and that no tampering survives `verify`."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import evolve
from plans import PLANS, columns, data, partitions
from plans import certificate as certificate_of

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.certificate import STRUCTURE, Claim, Protected
from adaptive_dp.names import OPERATIONS

Document = dict[str, Any]


def genuine(name: str) -> Document:
    return json.loads(certificate_of(name).to_json())  # type: ignore[no-any-return]


def verdict(document: Document) -> dp.Verdict:
    return dp.verify(dp.Certificate.from_json(json.dumps(document)))


@pytest.mark.parametrize("name", [name for name in PLANS if name != "free"])
def test_a_genuine_certificate_holds(name: str) -> None:
    document = genuine(name)
    result = verdict(document)
    assert result.holds
    assert result.reasons == ()
    assert result.recomputed == result.claimed == certificate_of(name).epsilon


def test_the_claim_is_the_least_upper_bound() -> None:
    certificate = columns().certify(1e-6)
    assert certificate.epsilon == min(b.upper for b in certificate.bounds.values())
    assert certificate.bounds[certificate.accountant].upper == certificate.epsilon
    assert certificate.delta == 1e-6
    assert all(b.lower <= b.upper for b in certificate.bounds.values())
    assert abs(sum(certificate.shares.values()) - 1) < 1e-9


def test_shares_count_the_worst_world_only() -> None:
    certificate = partitions().certify()
    rows = certificate.nodes
    assert certificate.worst_world
    # of the world that is named; its equals hold as much
    named = {label.removesuffix(" (2 rows)") for label in certificate.worst_world}
    assert abs(sum(r.share for r in rows if named.issuperset(r.region)) - 1) < 1e-9
    assert all(r.in_worst_world for r in rows)


def test_it_names_whom_it_protects() -> None:
    (row,) = columns().certify(1e-6).protects
    assert row == Protected("people", "add_remove", "id", rows_per_unit=2, size=None)


def test_it_names_whom_it_protects_wherever_the_bound_stands() -> None:
    document = columns().to_document()
    table = dp.load(document)
    nodes = document["nodes"]
    bound = next(n for n in nodes if n["kind"] == "bound")
    first = {"id": "kept", "kind": "filter", "inputs": bound["inputs"], "column": "y", "test": ">="}
    nodes.insert(nodes.index(bound), first | {"operand": 0})
    bound["inputs"] = ["kept"]
    (row,) = dp.load(document).certify(1e-6).protects
    assert row.rows_per_unit == 2
    assert dp.load(document).fingerprint != table.fingerprint


def test_canonical_json_is_stable_across_interpreters(tmp_path: Path) -> None:
    code = """if True:
        from plans import PLANS
        for name in ("learner", "partitions"):
            print(PLANS[name]().certify(1e-6).to_json())
    """
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": f"{here}:{Path(here).parent}"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert os.environ.get("PYTHONHASHSEED", "random") != "1"
    here_too = [certificate_of(name).to_json() for name in ("learner", "partitions")]
    assert done.stdout == "".join(f"{text}\n" for text in here_too)
    again = certificate_of("learner")
    assert again.to_json() == again.to_json() == dp.Certificate.from_json(again.to_json()).to_json()


def test_the_verdict_needs_the_document_alone(tmp_path: Path) -> None:
    """A fresh interpreter, which knows none of the plan's functions."""
    paper = tmp_path / "certificate.json"
    paper.write_text(json.dumps(genuine("columns")))
    code = f"""if True:
        import pathlib, sys, adaptive_dp as dp
        text = pathlib.Path({str(paper)!r}).read_text()
        assert dp.verify(dp.Certificate.from_json(text)).holds
        assert "plans" not in sys.modules
    """
    root = str(Path(__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": root}, cwd=tmp_path, check=True)


def test_a_simulation_is_stamped() -> None:
    plan = columns().with_delta(1e-6)
    stamped = plan.simulate(seed=1, people=data(1)).certificate
    assert stamped.randomness.release is False
    assert stamped.randomness.source == "seed 1"
    assert "NOT FOR RELEASE" in str(stamped)
    real = plan.run(people=data(1)).certificate
    assert real.randomness.release is True
    assert "NOT FOR RELEASE" not in str(real)
    assert dp.verify(real).holds


def test_a_run_certifies_the_mechanism_that_it_runs() -> None:
    """Though its parameter was changed by force: the plan keeps what was declared."""
    mechanism = dp.Laplace(scale=10.0)
    plan = dp.Pipeline(n=dp.dataset("people", columns={}).count().release(mechanism))
    assert plan.run(people=data(1)).certificate.epsilon == pytest.approx(0.1)
    object.__setattr__(mechanism, "scale", 0.5)
    changed = plan.run(people=data(1)).certificate
    assert changed.epsilon == pytest.approx(0.1)
    assert dp.verify(changed).holds


def test_a_simulations_certificate_holds_and_is_not_for_release() -> None:
    plan = columns().with_delta(1e-6)
    stamped = dp.verify(plan.simulate(seed=12, people=data(1)).certificate)
    assert (stamped.holds, stamped.release) == (True, False)
    real = dp.verify(plan.run(people=data(1)).certificate)
    assert (real.holds, real.release) == (True, True)


def test_a_verdict_tells_the_delta_and_whom_it_protects() -> None:
    result = verdict(genuine("columns"))
    assert result.delta == 1e-6
    assert result.protects == ("one id with at most 2 rows of 'people', added or removed",)


def test_a_certificate_of_some_accountants_holds() -> None:
    some = (accountants.Basic(), accountants.Renyi())
    certificate = partitions().certify(1e-6, accountants=some)
    assert len(certificate.bounds) == 2
    result = verdict(json.loads(certificate.to_json()))
    assert result.reasons == ()
    assert result.recomputed == certificate.epsilon


def node(document: Document, kind: str) -> Document:
    return next(n for n in document["plan"]["nodes"] if n["kind"] == kind)


def relation(document: Document) -> None:
    node(document, "dataset")["neighbors"] = "replace_one"


def everywhere(document: Document) -> None:
    """A smaller epsilon wherever there is one."""
    document["claim"]["epsilon"] *= 0.5
    for row in document["accountants"]:
        for end in ("lower", "upper"):
            row[end] = row[end] * 0.5 if isinstance(row[end], float) else row[end]


def dearest(document: Document) -> None:
    """The least epsilon, said to be by the accountant that finds the most."""
    rows = [row for row in document["accountants"] if row["applies"]]
    most = max(rows, key=lambda row: float(row["upper"]))
    assert float(most["upper"]) > document["claim"]["epsilon"]
    document["claim"]["accountant"] = most["name"]


TAMPERING: dict[str, Callable[[Document], Any]] = {
    "the claim": lambda d: d["claim"].update(epsilon=d["claim"]["epsilon"] * 0.999),
    "a claim of nothing": lambda d: d["claim"].update(epsilon=0),
    "the claim's delta": lambda d: d["claim"].update(delta=1e-9),
    "all of the epsilons": everywhere,
    "the claim's accountant": lambda d: d["claim"].update(accountant="magic"),
    "an accountant's upper": lambda d: d["accountants"][0].update(upper=0.1),
    "an accountant's upper, none": lambda d: d["accountants"][0].update(upper=None),
    "an accountant's lower": lambda d: d["accountants"][0].update(lower=1e6),
    "an accountant's theorem": lambda d: d["accountants"][0].update(theorem="mine"),
    "an accountant more": lambda d: d["accountants"].append(
        {**d["accountants"][0], "name": "magic", "upper": 0.1}
    ),
    "an accountant twice": lambda d: d["accountants"].append(
        {**d["accountants"][0], "upper": 99.0}
    ),
    "an accountant that applies no more": lambda d: d["accountants"][0].update(applies=False),
    "a node's share": lambda d: d["nodes"][0].update(share=0.0),
    "a node's loss": lambda d: d["nodes"][0]["loss"]["parameters"].update(epsilon=1e-9),
    "a node's distance": lambda d: d["nodes"][0].update(distance=0.1),
    "a node's mechanism": lambda d: d["nodes"][0].update(mechanism="Gaussian"),
    "a node's theorem": lambda d: d["nodes"][0].update(theorem=""),
    "a node left out": lambda d: d["nodes"].pop(),
    "the plan's scale": lambda d: node(d, "release")["mechanism"].update(scale=99.0),
    "the plan's bound": lambda d: node(d, "bound").update(rows=1),
    "the plan's relation": relation,
    "the relation that it names": lambda d: d["protects"][0].update(neighbors="zero_out"),
    "the rows that it names": lambda d: d["protects"][0].update(rows_per_unit=9),
    "whom it names": lambda d: d["protects"][0].update(unit="household"),
    "nobody protected": lambda d: d.update(protects=[]),
    "the worst world": lambda d: d["worlds"].update(worst=["region = D"]),
    "the number of worlds": lambda d: d["worlds"].update(count=99),
    "worlds that are exact": lambda d: d["worlds"].update(exact=not d["worlds"]["exact"]),
    "the fingerprint": lambda d: d.update(fingerprint="sha256:" + "0" * 64),
    "an assumption left out": lambda d: d["assumptions"].pop(0),
    "an assumption more": lambda d: d["assumptions"].append("Nothing else is assumed."),
    "assumptions in another order": lambda d: d["assumptions"].reverse(),
    "an accountant's reason": lambda d: d["accountants"][0].update(reason="it is the best"),
    "an accountant's world": lambda d: d["accountants"][0].update(world=["region = D"]),
    "an accountant left out": lambda d: d["accountants"].pop(),
    "the claim of the dearest accountant": dearest,
    "no samplers": lambda d: d["randomness"].update(samplers=[]),
    "exact samplers": lambda d: d["randomness"].update(samplers=["exact"]),
    "a simulation for release": lambda d: d["randomness"].update(source="seed 1", release=True),
    "a run not for release": lambda d: d["randomness"].update(release=False),
    "noise from elsewhere": lambda d: d["randomness"].update(source="a good generator"),
    "a seed that is none": lambda d: d["randomness"].update(source="seed x", release=False),
    "release in a number": lambda d: d["randomness"].update(release=1),
}


@pytest.mark.parametrize("name", TAMPERING)
@pytest.mark.parametrize("plan", ["partitions", "columns"])
def test_tampering_is_detected(plan: str, name: str) -> None:
    document = genuine(plan)
    TAMPERING[name](document)
    try:
        result = verdict(document)
    except dp.DocumentError:  # of another type than the field: not read
        return
    assert not result.holds
    assert result.reasons


MALFORMED: dict[str, Callable[[Document], Any]] = {
    "NaN claimed": lambda d: d["claim"].update(epsilon=float("nan")),
    "a str claimed": lambda d: d["claim"].update(epsilon="1"),
    "a truth claimed": lambda d: d["claim"].update(epsilon=True),
    "less than nothing claimed": lambda d: d["claim"].update(epsilon=-1),
    "a delta of 1": lambda d: d["claim"].update(delta=1),
    "a delta that is a truth": lambda d: d["claim"].update(delta=True),
    "NaN at an accountant": lambda d: d["accountants"][0].update(upper=float("nan")),
    "no claim": lambda d: d.pop("claim"),
    "a claim in one number": lambda d: d.update(claim=1),
    "no plan": lambda d: d.pop("plan"),
    "nodes as a mapping": lambda d: d.update(nodes={}),
    "a node without its share": lambda d: d["nodes"][0].pop("share"),
    "an accountant as a str": lambda d: d["accountants"].append("basic"),
    "an unknown section": lambda d: d.update(more=1),
    "another format": lambda d: d.update(format="adaptive-dp/certificate/1"),
    "a plan that is none": lambda d: d.update(plan={"nodes": []}),
    "a plan that is free": lambda d: node(d, "release")["mechanism"].update(scale={"free": "b"}),
    "a plan that leaks": lambda d: d["plan"]["outputs"].append({"path": ["p"], "node": "bound"}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_certificate_is_refused(name: str) -> None:
    document = genuine("columns")
    MALFORMED[name](document)
    with pytest.raises(dp.DocumentError, match=r"certificate|plan|output|claim|accountants"):
        verdict(document)


def test_what_passes_no_reader_is_refused_too() -> None:
    """A certificate made in Python may hold anything; `verify` reads it as if it were a file."""
    genuine = columns().certify(1e-6)
    odd: list[Any] = ["1", True, None, [1.0], {"float": "inf"}]
    for value in odd:
        for change in ({"epsilon": value}, {"delta": value}):
            with pytest.raises((dp.DocumentError, dp.DeclarationError)):
                dp.verify(evolve(genuine, claim=evolve(genuine.claim, **change)))
        with pytest.raises(dp.DocumentError):
            dp.verify(evolve(genuine, nodes=value))
    for number in (-1.0, float("nan")):
        with pytest.raises(dp.DeclarationError):
            Claim(epsilon=number, delta=0.0, accountant="basic")
    with pytest.raises(dp.DeclarationError):
        Claim(epsilon=1.0, delta=1.0, accountant="basic")
    forged = evolve(genuine, claim=evolve(genuine.claim, epsilon=genuine.epsilon / 2))
    result = dp.verify(forged)
    assert not result.holds
    assert [row.place for row in result.fields if not row.holds] == ["claim.epsilon"]


def test_a_document_is_read_back_as_the_very_same_value() -> None:
    for name in PLANS:
        if name != "free":
            certificate = certificate_of(name)
            again = dp.Certificate.from_document(certificate.to_document())
            assert again == certificate
            assert again.to_json() == certificate.to_json()


def test_a_plan_at_hand_is_compared_with_that_of_the_certificate() -> None:
    certificate = columns().certify(1e-6)
    assert dp.verify(certificate, columns()).holds
    assert not dp.verify(certificate, partitions()).holds


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "{}", "\x00", '{"a":' * 100_000, '{"a": 1, "a": 2}']
)
def test_strings_that_are_not_certificates(text: str) -> None:
    with pytest.raises(dp.DocumentError, match="not a certificate"):
        dp.Certificate.from_json(text)


def test_an_infinite_epsilon_is_written_and_read() -> None:
    plan = dp.Pipeline(n=dp.dataset("t", columns={}).count().release(dp.Gaussian(sigma=1)))
    certificate = dp.Certificate.from_json(plan.certify(0.0).to_json())
    assert certificate.epsilon == float("inf")
    assert "inf" in str(certificate)
    assert dp.verify(certificate).holds


def test_an_own_mechanism_needs_allow() -> None:
    from own_mechanism import Noisy

    plan = dp.Pipeline(n=dp.dataset("t", columns={}).count().release(Noisy(width=3.0)))
    certificate = dp.Certificate.from_json(plan.certify().to_json())
    with pytest.raises(dp.DocumentError, match=r"allow=\['own_mechanism'\]"):
        dp.verify(certificate)
    assert dp.verify(certificate, allow=["own_mechanism"]).holds
    assert any("Noisy" in line for line in certificate.assumptions)


def test_a_loss_that_no_accountant_can_bound() -> None:
    class Silent(accountants.PrivacyLoss):
        pass

    class Quiet(dp.Mechanism):
        b: float = dp.noise_parameter("b")

        def release(self, value: Any, stream: Any) -> Any:
            return value

        def loss(self, distance: float) -> accountants.PrivacyLoss:
            return Silent()

    plan = dp.Pipeline(n=dp.dataset("t", columns={}).count().release(Quiet(b=1.0)))
    with pytest.raises((dp.PlanError, accountants.AccountingError)):
        plan.certify()


@pytest.mark.parametrize("doctor", ["lower", "times", "in_worst_world"])
def test_true_is_no_number(doctor: str) -> None:
    people = dp.dataset("people", columns={})
    paper = dp.Pipeline(n=people.count().release(dp.Laplace(scale=1.0))).certify(0.0)
    document = json.loads(paper.to_json())
    assert dp.verify(dp.Certificate.from_json(json.dumps(document))).holds
    row = document["accountants"][0] if doctor == "lower" else document["nodes"][0]
    row[doctor] = 1 if doctor == "in_worst_world" else True
    with pytest.raises(dp.DocumentError):
        dp.Certificate.from_json(json.dumps(document))


def test_another_machines_rounding_holds() -> None:
    people = dp.dataset("people", columns={"x": (0, 1)})
    plan = dp.Pipeline(
        n=people.count().release(dp.Gaussian(sigma=3.0)),
        s=people["x"].sum().release(dp.Laplace(scale=7.0)),
    )
    document = json.loads(plan.certify(1e-6).to_json())
    for row in document["nodes"]:
        row["share"] *= 1 + 1e-13
    assert dp.verify(dp.Certificate.from_json(json.dumps(document))).holds


# --- What the analyst gave ---------------------------------------------------------------------


def bands():
    people = dp.dataset("people", columns={"age": (0, 120), "town": ["A", "B"]}, unit="id")
    adults = people.filter(people["age"] >= 18)
    return dp.Pipeline(
        n=adults.count().release(dp.Laplace(scale=10)),
        ages=people["age"].histogram(edges=[0, 18, 65, 120]).release(dp.Laplace(scale=10)),
        rounds=dp.repeat(
            lambda state, table: dp.post(max, state, table.count().release(dp.Laplace(scale=50))),
            3,
            people,
            start=dp.public(0.0),
        ),
    )


GIVEN = {
    "people.age": '{"bounds": [0.0, 120.0]}',
    "people.town": '{"categories": ["A", "B"]}',
    "bound.rows": "1",
    "filter.operand": "18",
    "histogram.edges": "[0, 18, 65, 120]",
    "rounds.times": "3",
}


def test_a_certificate_names_what_the_analyst_gave():
    plan = bands()
    found = {each.place: each.value for each in plan.certify().given}
    assert found.items() >= GIVEN.items()
    assert "0.0" in [value for place, value in found.items() if place.endswith(".value")]
    assert not any(each.because for each in plan.certify().given)
    assert not any("scale" in place or "epsilon" in place for place in found)


@pytest.mark.usefixtures("undrawn")
def test_the_owner_says_why_a_value_is_public():
    plan = bands().with_reasons({"histogram": "the bands of the census", "filter.operand": "law"})
    told = {each.place: each.because for each in plan.certify().given if each.because}
    assert told == {"histogram.edges": "the bands of the census", "filter.operand": "law"}
    # kept by what makes another plan of the same nodes, and by a run; the claim is the same
    assert plan.with_delta(1e-6).certify().reasons == plan.certify().reasons
    assert plan.fingerprint == bands().fingerprint
    assert plan.certify().claim == bands().certify().claim
    more = plan.with_reasons({"bound.rows": "one row a person, by the register"})
    assert len(more.certify().reasons) == 3
    rows = {"age": [20.0, 70.0], "town": ["A", "B"], "id": [1, 2]}
    certificate = more.simulate(seed=1, people=rows).certificate
    assert certificate.reasons == more.certify().reasons
    # in the document, and in both reports: what is not marked says so
    again = dp.Certificate.from_json(certificate.to_json())
    assert again == certificate
    assert again.given == certificate.given
    assert dp.verify(again).holds
    for text in (dp.markdown(more), dp.report(more)):
        assert "the bands of the census" in text
        assert "given by the analyst; must not be chosen by looking at the data" in text
    # the printed certificate stays the answer
    assert "census" not in str(certificate)
    late = bands().certify().with_reasons({"people.age": "no one is older"})
    assert [e.because for e in late.given if e.place == "people.age"] == ["no one is older"]


def test_free_plans_take_reasons_too():
    people = dp.dataset("people", columns={"age": (0, 120)})
    plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace()))
    told = plan.with_reasons({"people.age": "a law"}).calibrate(epsilon=1.0).certify()
    assert told.reasons == {"people.age": "a law"}


@pytest.mark.parametrize(
    ("reasons", "says"),
    [
        ({"histogram.edge": "x"}, "histogram.edges"),
        ({"ages.mechanism": "x"}, "no value was given"),
        ({"histogram.edges": " "}, "must be a sentence"),
        ({"histogram.edges": 3}, "must be a sentence"),
    ],
)
def test_reasons_of_no_value_are_refused(reasons, says):
    with pytest.raises(dp.DeclarationError, match=says):
        bands().with_reasons(reasons)


# fmt: off
GIVEN_FIELDS = [
    "above", "activation", "adversary", "batch", "bound", "candidates", "clamp", "class_weights",
    "classes", "clip", "clusters", "condition", "conditions", "constants", "count", "counts",
    "depth", "edges", "expression", "expressions", "gap", "groups", "hidden", "intercept", "keys",
    "lower", "loss", "members", "monotone", "most", "norm", "operand", "optimizer", "order",
    "orders", "parts", "points", "prices", "q", "questions", "radius", "range", "rate",
    "released_cells", "ridge", "rows", "scaled", "settings", "seed", "shape", "share", "shares",
    "shift", "size", "slope", "stopping", "strong_concavity", "strong_convexity", "teachers",
    "tilt", "times", "tolerance", "topics", "universe", "unlabeled", "upper", "value", "values",
    "weight", "weights", "whole_units", "words", "workload", "zero", "labels", "level", "local",
    "models", "sampling", "", "expected", "physical_batch", "quantile", "shapes", "rule",
    "by_layer", "schedule", "short",
]
# fmt: on


def test_each_parameter_of_an_operation_is_sorted():
    """A new one is listed unless it is in `STRUCTURE`: whoever adds one says which it is."""
    for place in OPERATIONS.values():
        module, name = place.split(":")
        for field in attrs.fields(getattr(importlib.import_module(module), name)):
            known = field.alias or field.name
            assert (known in STRUCTURE) or known in GIVEN_FIELDS, (name, known)
