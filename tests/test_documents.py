"""Plan documents: round trips, the schemas, and whatever else someone may write into one."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import attrs
import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import (
    PLANS,
    built,
    certificate,
    data,
    function_of_jax,
    neighbour,
    network,
    noisy,
    people,
)
from profiles import examples

import accountants
import adaptive_dp as dp
from adaptive_dp.graph import registry
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.operation import Operation
from adaptive_dp.interop.claims import Traced, claimed
from adaptive_dp.schemas import certificate_schema, plan_schema

Document = dict[str, Any]


def form(schema: Document) -> Any:
    """Return a validator that tries no choice of a `oneOf` whose constants are not the document's.

    They are not valid. The plain one tries all hundred kinds of a node, for each node.
    """
    plain = jsonschema.Draft202012Validator
    plan = schema["$defs"].get("plan", schema)
    if plan is not schema:
        del plan["$schema"]  # which would bring the plain one back
    choose = plain.VALIDATORS["oneOf"]

    def constants(choice: Document) -> Document:
        if "$ref" in choice:
            choice = plan["$defs"][choice["$ref"].removeprefix("#/$defs/")]
        fields = choice.get("properties", {}).items()
        return {name: each["const"] for name, each in fields if "const" in each}

    constant: dict[int, list[Document]] = {}  # by the list of choices

    def among(validator: Any, choices: list[Document], instance: Any, within: Document) -> Any:
        if id(choices) not in constant:
            constant[id(choices)] = [constants(choice) for choice in choices]
        if isinstance(instance, dict):
            choices = [
                choice
                for choice, own in zip(choices, constant[id(choices)], strict=True)
                if all(instance.get(name, value) == value for name, value in own.items())
            ]
        yield from choose(validator, choices, instance, within)

    return jsonschema.validators.extend(plain, {"oneOf": among})(schema)


PLAN_FORM = form(plan_schema())
CERTIFICATE_FORM = form(certificate_schema())


def written(name: str) -> Document:
    return json.loads(built(name).to_json())  # type: ignore[no-any-return]


NEVER_WRITTEN = ("state", "round input")
"""A state belongs to its loop, and what a body reads of a table represents the table."""


def kinds() -> dict[str, type[Operation]]:
    return {kind: registry.operation(kind) for kind in registry.OPERATIONS}


REFUSED = [
    "unknown field of the plan",
    "no format",
    "another format",
    "no nodes",
    "nodes as a mapping",
    "no outputs",
    "an output without a node",
    "delta of 1",
    "delta as a str",
    "no id",
    "no kind",
    "an unknown kind",
    "the kind state",
    "an unknown field",
    "a missing field",
    "a bound of no unit",
    "an unknown relation",
    "a column of other words",
    "bounds of strings",
    "keys as a str",
    "edges of truths",
    "an unknown mechanism",
    "a scale that is a str",
    "no scale",
    "another parameter",
    "a free parameter's other field",
    "a function without a module",
    "constants as a list",
    "a constant in other words",
]
"""Mutations whose fault is one of form, so that the schema tells it as well as the reader."""


class TestSchemas:
    def test_they_are_schemas(self) -> None:
        jsonschema.Draft202012Validator.check_schema(plan_schema())
        jsonschema.Draft202012Validator.check_schema(certificate_schema())

    def test_the_plain_validator_says_the_same(self) -> None:
        plain = jsonschema.Draft202012Validator
        document, paper = written("columns"), json.loads(certificate("columns").to_json())
        plain(plan_schema()).validate(document)
        plain(certificate_schema()).validate(paper)
        for each, said in ((document, PLAN_FORM), (paper["plan"], CERTIFICATE_FORM)):
            each["nodes"][-1]["kind"] = "dataset"
            whole = document if each is document else paper
            for validator in (said, plain(said.schema)):
                assert [e.validator for e in validator.iter_errors(whole)] == ["oneOf"]

    @pytest.mark.parametrize("name", PLANS)
    def test_documents_have_the_form(self, name: str) -> None:
        PLAN_FORM.validate(written(name))

    @pytest.mark.parametrize("name", [n for n in PLANS if n != "free"])
    def test_certificates_have_the_form(self, name: str) -> None:
        CERTIFICATE_FORM.validate(json.loads(certificate(name).to_json()))

    def test_the_demo_has_the_form(self) -> None:
        from adaptive_dp.demo.plan import plan

        CERTIFICATE_FORM.validate(json.loads(plan.certify().to_json()))

    def test_every_kind_is_described_with_its_own_fields(self) -> None:
        described = plan_schema()["$defs"]
        for kind, cls in kinds().items():
            if kind in NEVER_WRITTEN:
                continue
            node = described[f"{kind}_node"]
            own = attrs.fields(cls)
            names = {f.name for f in own}
            required = {f.name for f in own if f.default is attrs.NOTHING}
            if kind in ("repeat", "select", "case"):
                names, required = names | {"body"}, required | {"body"}
            assert set(node["properties"]) - {"id", "kind", "inputs"} == names
            assert set(node["required"]) - {"id", "kind", "inputs"} == required
            assert node["additionalProperties"] is False

    @pytest.mark.parametrize("name", REFUSED)
    def test_what_is_not_of_the_form_is_not_valid(self, name: str) -> None:
        mutate, _ = MUTATIONS[name]
        document = base()
        mutate(document)
        with pytest.raises(jsonschema.ValidationError):
            PLAN_FORM.validate(document)

    def test_every_kind_stands_in_one_of_the_documents(self) -> None:
        # a plan of claims, which no plan that runs has
        claim = claimed(accountants.Pure(0.5))
        counted = PrivateQuery(Traced("a call"), (dp.dataset("people", columns={}),))
        traced = dp.Pipeline(claim=counted.release(claim)).to_document()
        PLAN_FORM.validate(traced)
        assert dp.load(traced).to_document() == traced
        plans = (
            *(network(), network(one_round=True), network(in_turn=True)),
            network(fixed_size=True),
            *(function_of_jax(), function_of_jax(in_turn=True)),
        )
        networks = [each.to_document() for each in plans]
        for each in networks:
            PLAN_FORM.validate(each)
            assert dp.load(each).to_document() == each
        text = json.dumps([*(written(name) for name in PLANS), traced, networks])
        assert [k for k in kinds() if k not in NEVER_WRITTEN and f'"kind": "{k}"' not in text] == []


class TestRoundTrip:
    @pytest.mark.parametrize("name", PLANS)
    def test_the_fingerprint_stays(self, name: str) -> None:
        again = dp.load(written(name))
        assert again.fingerprint == built(name).fingerprint
        assert again.to_document() == built(name).to_document()
        assert dp.load(json.dumps(written(name))).fingerprint == again.fingerprint

    @pytest.mark.parametrize("name", [n for n in PLANS if n != "free"])
    def test_the_certificate_stays(self, name: str) -> None:
        again = dp.load(written(name)).certify(1e-6)
        assert again.to_json() == certificate(name).to_json()

    def test_a_simulation_stays(self) -> None:
        for name in ("columns", "partitions", "loops"):
            seen = [
                p.simulate(seed=3, people=data(1))
                for p in (built(name), dp.load(written(name), allow=["plans"]))
            ]
            assert str(seen[0]) == str(seen[1])

    def test_an_output_may_be_called_like_a_group(self) -> None:
        table = dp.dataset("t", columns={})
        count = table.count().release(dp.Laplace(scale=1))
        plan = dp.Pipeline(**{"group a": count, "b": dp.group("a", dp.post(float, count), table)})
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint

    def test_the_delta_of_a_calibration_stays(self) -> None:
        plan = built("free").calibrate(epsilon=1, delta=1e-5)
        assert dp.load(plan.to_json()).delta == 1e-5
        assert dp.load(plan.to_json()).certify().epsilon == plan.certify().epsilon


TOML = """
format = "adaptive-dp/plan/2"
delta = 1e-6
nodes = [
  { id = "people", kind = "dataset", name = "people", unit = "id", columns = { x = { bounds = [-5, 10] }, z = {} } },
  { id = "bound", kind = "bound", inputs = ["people"], rows = 2, unit = "id" },
  { id = "count", kind = "count", inputs = ["bound"] },
  { id = "n", kind = "release", inputs = ["count"], mechanism = { mechanism = "Laplace", scale = 2 } },
  { id = "x", kind = "column", inputs = ["bound"], name = "x" },
  { id = "sum", kind = "sum", inputs = ["x"], bounds = [-5, 10] },
  { id = "s", kind = "release", inputs = ["sum"], mechanism = { mechanism = "Gaussian", sigma = 20 } },
]
outputs = [{ path = ["n"], node = "n" }, { path = ["s"], node = "s" }]
"""  # noqa: E501


class TestToml:
    def test_fourteen_lines_are_a_plan(self) -> None:
        plan = dp.load(TOML)
        assert len(TOML.splitlines()) <= 15
        assert plan.certify().epsilon > 1
        assert set(plan.simulate(seed=1, people=data(1))) == {"n", "s"}
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint

    def test_it_is_the_plan_that_python_declares(self) -> None:
        table = dp.dataset("people", columns={"x": (-5, 10), "z": None}, unit="id", rows_per_unit=2)
        n = table.count().release(dp.Laplace(scale=2))
        s = table["x"].sum().release(dp.Gaussian(sigma=20))
        assert dp.Pipeline(n=n, s=s).fingerprint == dp.load(TOML).fingerprint

    @pytest.mark.parametrize("text", ["", "x =", "[", '{"format": ', "\x00", "nodes = 3", '"text"'])
    def test_what_is_neither(self, text: str) -> None:
        with pytest.raises(dp.DocumentError, match="plan"):
            dp.load(text)

    def test_a_date_is_no_value(self) -> None:
        with pytest.raises(dp.DocumentError, match=r"delta.*date"):
            dp.load(TOML.replace("1e-6", "2020-01-01"))


class NotAMechanism:
    pass


def at(document: Document, node: str) -> Document:
    return next(n for n in document["nodes"] if n["id"] == node)


def base() -> Document:
    """people -> bound -> count, x, sum, vectors, gram, partition, part, sample; five releases."""
    nodes: list[Document] = [
        {
            "id": "people",
            "kind": "dataset",
            "name": "people",
            "columns": {"x": {"bounds": [0, 10]}, "r": {"categories": ["A", "B"]}, "z": None},
            "unit": "id",
        },
        {"id": "bound", "kind": "bound", "inputs": ["people"], "rows": 2, "unit": "id"},
        {"id": "count", "kind": "count", "inputs": ["bound"]},
        {"id": "x", "kind": "column", "inputs": ["bound"], "name": "x"},
        {"id": "sum", "kind": "sum", "inputs": ["x"], "bounds": {"bounds": [0, 10]}},
        {"id": "clip", "kind": "clip", "inputs": ["x"], "lower": 0, "upper": 1},
        {"id": "mean", "kind": "mean", "inputs": ["clip"], "bounds": [0, 1], "size": None},
        {
            "id": "vectors",
            "kind": "vectors",
            "inputs": ["bound"],
            "names": ["x"],
            "bounds": [{"bounds": [0, 10]}],
        },
        {"id": "gram", "kind": "gram", "inputs": ["vectors"], "radius": 10, "width": 1},
        {"id": "parts", "kind": "partition", "inputs": ["bound"], "by": "r", "keys": ["A", "B"]},
        {"id": "part", "kind": "part", "inputs": ["parts"], "index": 1},
        {"id": "inside", "kind": "count", "inputs": ["part"]},
        {"id": "sample", "kind": "sample", "inputs": ["bound"], "rate": 0.1},
        {"id": "some", "kind": "count", "inputs": ["sample"]},
    ]
    for query in ("count", "sum", "mean", "gram", "inside", "some"):
        mechanism = {"mechanism": "Laplace", "scale": 2.0}
        release = {"kind": "release", "inputs": [query], "mechanism": mechanism, "name": ""}
        nodes.append({"id": f"noisy_{query}", **release})
    nodes += [
        {
            "id": "filter",
            "kind": "filter",
            "inputs": ["bound", "noisy_count"],
            "column": "x",
            "test": ">=",
        },
        {"id": "grown", "kind": "count", "inputs": ["filter"]},
        {
            "id": "noisy_grown",
            "kind": "release",
            "inputs": ["grown"],
            "mechanism": {"mechanism": "Gaussian", "sigma": 3},
        },
        {"id": "one", "kind": "public", "value": 1},
        {
            "id": "loop",
            "kind": "repeat",
            "inputs": ["one"],
            "times": 2,
            "state": "state",
            "body": [
                {
                    "id": "again",
                    "kind": "release",
                    "inputs": ["count"],
                    "mechanism": {"mechanism": "Laplace", "scale": 9},
                },
                {
                    "id": "step",
                    "kind": "post",
                    "inputs": ["state", "again"],
                    "function": {"function": "builtins:max"},
                },
            ],
            "result": "step",
        },
        {
            "id": "post",
            "kind": "post",
            "inputs": ["noisy_count", "noisy_sum"],
            "function": {"function": "plans:add"},
            "constants": {},
        },
        {"id": "scale", "kind": "parameter", "inputs": ["noisy_sum"], "name": "scale"},
        {"id": "group", "kind": "group", "inputs": ["post", "people"], "name": "ratio"},
    ]
    wanted = (
        "post",
        "noisy_mean",
        "noisy_gram",
        "noisy_inside",
        "noisy_some",
        "noisy_grown",
        "loop",
    )
    outputs = [{"path": [name], "node": name} for name in (*wanted, "scale", "group")]
    return {"format": "adaptive-dp/plan/2", "delta": 0, "nodes": nodes, "outputs": outputs}


Mutation = Callable[[Document], Any]


def setting(node: str, **changes: Any) -> Mutation:
    return lambda document: at(document, node).update(changes)


def without(node: str, field: str) -> Mutation:
    return lambda document: at(document, node).pop(field)


def adding(**entry: Any) -> Mutation:
    return lambda document: document["nodes"].append(entry)


def output(node: str) -> Mutation:
    return lambda document: document["outputs"].append({"path": ["new"], "node": node})


def released(node: str) -> Mutation:
    """Release a query and ask for it."""
    entry = {
        "id": "new",
        "kind": "release",
        "inputs": [node],
        "mechanism": {"mechanism": "Laplace", "scale": 1},
    }
    return both(adding(**entry), output("new"))


def both(*mutations: Mutation) -> Mutation:
    def change(document: Document) -> None:
        for mutation in mutations:
            mutation(document)

    return change


def laplace(**parameters: Any) -> Mutation:
    return setting("noisy_sum", mechanism={"mechanism": "Laplace", **parameters})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def swap(first: str, second: str) -> Mutation:
    def change(document: Document) -> None:
        nodes = document["nodes"]
        i, j = nodes.index(at(document, first)), nodes.index(at(document, second))
        nodes[i], nodes[j] = nodes[j], nodes[i]

    return change


NAN, INF = float("nan"), float("inf")
LOOP_BODY = "loop"
MUTATIONS: dict[str, tuple[Mutation, str]] = {
    # the frame
    "unknown field of the plan": (lambda d: d.update(more=1), "'more'"),
    "no format": (lambda d: d.pop("format"), "'format'"),
    "another format": (lambda d: d.update(format="adaptive-dp/plan/1"), "'format'"),
    "no nodes": (lambda d: d.pop("nodes"), "'nodes'"),
    "nodes as a mapping": (lambda d: d.update(nodes={}), r"\bnodes\b"),
    "no outputs": (lambda d: d.update(outputs=[]), "Pipeline"),
    "an output that is a str": (lambda d: d.update(outputs=["post"]), r"outputs\[0\]"),
    "an output without a node": (lambda d: d["outputs"][0].pop("node"), r"outputs\[0\].*'node'"),
    "an output of no node": (output("nobody"), r"outputs\[9\]\.node.*'nobody'"),
    "an output of an empty path": (lambda d: d["outputs"][0].update(path=[]), r"outputs\[0\].path"),
    "an output of an empty name": (
        lambda d: d["outputs"][0].update(path=[""]),
        "name|'x'|categories",
    ),
    "an output of a number": (lambda d: d["outputs"][0].update(path=[1]), r"outputs\[0\].path"),
    "two outputs of one path": (
        lambda d: d["outputs"].append({"path": ["loop"], "node": "post"}),
        "'loop'",
    ),
    "an output inside of another": (
        lambda d: d["outputs"].append({"path": ["loop", "x"], "node": "post"}),
        r"'loop.x'",
    ),
    "delta of 1": (lambda d: d.update(delta=1), r"\b1\b"),
    "delta below 0": (lambda d: d.update(delta=-0.1), r"plan: delta"),
    "delta as a str": (lambda d: d.update(delta="0.1"), r"plan\.delta"),
    "delta as a truth": (lambda d: d.update(delta=True), r"plan\.delta"),
    "delta NaN": (lambda d: d.update(delta=NAN), r"\bdelta\b"),
    "a key that is a number": (lambda d: d.update({1: 2}), r"\b1\b"),
    "a deep key that is a number": (
        setting("post", constants={"a": {2: 3}}),
        r"nodes\[25\]\.constants\.a",
    ),
    "deep nesting": (
        setting("one", value=nested(500)),
        r"nodes\[23\]\.value.*\b64\b",
    ),
    "a set": (setting("one", value={1, 2}), r"nodes\[23\]\.value"),
    # nodes in general
    "a node that is a str": (
        lambda d: d["nodes"].append("count"),
        r"nodes\[28\]",
    ),
    "no id": (without("sum", "id"), r"nodes\[4\]\.id.*\bNone\b"),
    "an id that is a number": (setting("sum", id=4), r"nodes\[4\]\.id"),
    "an id twice": (setting("sum", id="count"), r"nodes\[4\]\.id.*'count'"),
    "an id of a body twice": (
        adding(id="again", kind="public", value=1),
        r"nodes\[28\]\.id.*'again'",
    ),
    "no kind": (without("sum", "kind"), r"nodes\[4\]"),
    "an unknown kind": (setting("sum", kind="median"), r"nodes\[4\] \(median\)\.kind"),
    "a kind that is a list": (setting("sum", kind=["sum"]), r"nodes\[4\]"),
    "the kind state": (adding(id="s", kind="state"), r"nodes\[28\] \(state\)\.kind"),
    "an unknown field": (setting("sum", lower=0), r"nodes\[4\] \(sum\).*'lower'"),
    "a missing field": (without("sum", "bounds"), r"nodes\[4\] \(sum\).*'bounds'"),
    "inputs as a str": (setting("sum", inputs="x"), r"nodes\[4\] \(sum\)\.inputs"),
    "no inputs": (without("sum", "inputs"), r"nodes\[4\] \(sum\)"),
    "an input that is not there": (setting("sum", inputs=["w"]), r"\(sum\)\.inputs.*'w'"),
    "an input that stands later": (swap("x", "sum"), r"nodes\[3\] \(sum\)\.inputs.*'x'"),
    "an input that is itself": (
        setting("post", inputs=["post"]),
        r"\(post\)\.inputs.*'post'",
    ),
    "a cycle": (
        both(
            setting("post", inputs=["noisy_count", "late"]),
            adding(id="late", kind="post", inputs=["post"], function={"function": "m:f"}),
        ),
        r"nodes\[25\] \(post\)\.inputs.*'late'",
    ),
    "an input that is a number": (setting("sum", inputs=[3]), r"\(sum\)\.inputs.*\b3\b"),
    "an input of another kind": (setting("sum", inputs=["bound"]), r"nodes\[4\] \(sum\)"),
    "a query of a query": (setting("sum", inputs=["count"]), r"nodes\[4\] \(sum\)"),
    "a sum of a sum": (
        both(adding(id="more", kind="sum", inputs=["sum"], bounds=[0, 1]), released("more")),
        r"nodes\[28\] \(sum\): .*query",
    ),
    "an input too many": (
        both(adding(id="q", kind="sum", inputs=["x", "noisy_sum"], bounds=[0, 1]), released("q")),
        r"nodes\[28\] \(sum\)",
    ),
    # what is private stays so
    "a private output": (output("sum"), "'new'.*people -> .* -> sum"),
    "private rows as an output": (output("bound"), "'new'.*people -> "),
    "a post that reads private": (
        setting("post", inputs=["noisy_count", "sum"]),
        r"nodes\[25\] \(post\).*people -> ",
    ),
    "a filter by a private value": (
        setting("filter", inputs=["bound", "count"]),
        r"nodes\[20\] \(filter\)",
    ),
    "a filter by two values": (
        setting("filter", inputs=["bound", "noisy_count", "noisy_sum"]),
        r"nodes\[20\] \(filter\).*\b2\b",
    ),
    "a filter of a released value": (setting("filter", inputs=["noisy_count"]), r"\(filter\)"),
    "a release of a table": (
        setting("noisy_sum", inputs=["bound"]),
        r"\(release\)",
    ),
    "a release of a column": (
        setting("noisy_sum", inputs=["x"]),
        r"\(release\)",
    ),
    "a release of a release": (
        setting("noisy_sum", inputs=["noisy_count"]),
        r"\(release\): a release",
    ),
    "a release of two queries": (
        setting("noisy_sum", inputs=["sum", "count"]),
        r"nodes\[15\] \(release\)",
    ),
    "a release of nothing": (setting("noisy_sum", inputs=[]), r"\(release\)"),
    "a group of a private value": (setting("group", inputs=["sum"]), r"nodes\[27\] \(group\)"),
    "a public value with an input": (
        setting("one", inputs=["noisy_sum"]),
        r"nodes\[23\] \(public\)",
    ),
    "a dataset with an input": (
        adding(id="two", kind="dataset", name="two", columns={}, inputs=["people"]),
        r"nodes\[28\] \(dataset\)",
    ),
    "a parameter of a private value": (setting("scale", inputs=["sum"]), r"\(parameter\)"),
    "a parameter that is not there": (setting("scale", name="sigma"), "Laplace.*'sigma'"),
    # bounds on people
    "no bound": (setting("count", inputs=["people"]), r"nodes\[14\]"),
    "no bound before a partition": (
        both(
            setting("parts", inputs=["people"]),
            adding(id="late", kind="bound", inputs=["part"], rows=1, unit="id"),
            adding(id="query", kind="count", inputs=["late"]),
            released("query"),
        ),
        "'people'",
    ),
    "no bound before a sample": (setting("sample", inputs=["people"]), "'people'"),
    "a bound of another unit": (setting("bound", unit="x"), r"\(bound\).*'x'"),
    "a bound of no unit": (setting("bound", unit=None), r"\(bound\)\.unit"),
    "a bound of 0 rows": (setting("bound", rows=0), r"\(bound\).*rows_per_unit"),
    "a bound of -1 rows": (setting("bound", rows=-1), r"\(bound\).*rows_per_unit"),
    "a bound of half rows": (setting("bound", rows=0.5), r"\(bound\)\.rows"),
    "a bound of 10^400 rows": (setting("bound", rows=10**400), r"nodes\[1\]\.rows"),
    "a unit that is a number": (setting("people", unit=3), r"\(dataset\)\.unit"),
    "a size that is private": (
        setting("people", size=4),
        "add_remove",
    ),
    "an unknown relation": (setting("people", neighbors="swap"), "neighbors"),
    "two relations": (
        both(
            adding(id="o", kind="dataset", name="o", columns={}, neighbors="replace_one"),
            adding(id="q", kind="count", inputs=["o"]),
            released("q"),
        ),
        "'o'",
    ),
    "two data sets of one name": (
        both(
            adding(id="o", kind="dataset", name="people", columns={}),
            adding(id="q", kind="count", inputs=["o"]),
            released("q"),
        ),
        "'people'",
    ),
    "a name that is no identifier": (setting("people", name="my data"), "name"),
    "a name that run uses": (setting("people", name="seed"), "'seed'"),
    "columns as a list": (
        setting("people", columns=["x"]),
        r"\(dataset\)\.columns",
    ),
    "a column as a pair": (
        setting("people", columns={"x": [0, 1]}),
        r"columns\.x.*'bounds'",
    ),
    "a column of one bound": (
        setting("people", columns={"x": {"bounds": [0]}}),
        r"columns\.x",
    ),
    "a column of other words": (setting("people", columns={"x": {"low": 0}}), r"columns\.x"),
    "a column of no category": (
        setting("people", columns={"x": {"categories": []}}),
        r"nodes\[0\] \(dataset\)",
    ),
    "a column of one category twice": (
        setting("people", columns={"x": {"categories": [1, True]}}),
        r"nodes\[0\] \(dataset\)\.columns\.x: .*True",
    ),
    # numbers
    "reversed bounds of a column": (
        setting("people", columns={"x": {"bounds": [10, 0]}}),
        r"nodes\[0\] \(dataset\)\.columns\.x: .*\(10, 0\)",
    ),
    "reversed bounds of a sum": (setting("sum", bounds=[10, 0]), r"\(sum\)"),
    "NaN bounds": (
        setting("sum", bounds=[NAN, 0]),
        r"nodes\[4\]\.bounds\[0\]",
    ),
    "infinite bounds": (
        setting("sum", bounds=[0, INF]),
        r"nodes\[4\]\.bounds\[1\]",
    ),
    "NaN in words": (
        setting("sum", bounds=[{"float": "nan"}, 0]),
        r"\(sum\)",
    ),
    "bounds as a str": (setting("sum", bounds="0 1"), r"\(sum\)\.bounds"),
    "bounds of strings": (
        setting("sum", bounds=["0", "1"]),
        r"nodes\[4\] \(sum\)",
    ),
    "a sum of a column without bounds": (setting("x", name="z"), "'z'"),
    "a column that is not declared": (
        setting("x", name="w"),
        r"\(column\).*'w'",
    ),
    "a column named by a list": (setting("x", name=["x"]), r"\(column\)\.name"),
    "reversed clip": (setting("clip", lower=2), r"\(clip\)"),
    "a mean over a private size": (setting("mean", size=3), r"\b3\b"),
    "a mean over a size of 0": (setting("mean", size=0), r"\b0\b"),
    "a mean over a size of -3": (setting("mean", size=-3), "-3"),
    "a radius below 0": (setting("gram", radius=-1), r"\(gram\).*\b0\b"),
    "a radius too large": (
        setting("gram", radius=1e200),
        r"\(gram\).*\b0\b",
    ),
    "a radius that is a truth": (setting("gram", radius=True), r"\(gram\)\.radius"),
    "another width": (setting("gram", width=2), r"\b2\b.*\b1\b"),
    "half a width": (setting("gram", width=1.0), r"\(gram\)\.width.*\bint\b.*\bfloat\b"),
    "vectors of other bounds": (
        setting("vectors", bounds=[[0, 1]]),
        "'people'",
    ),
    "vectors of no bounds": (without("vectors", "bounds"), "'people'"),
    "vectors of strings": (
        setting("vectors", names="x"),
        r"\(vectors\)\.names",
    ),
    "a scale in words": (
        setting("vectors", scale="no"),
        r"\(vectors\)\.scale",
    ),
    "a part that is not there": (setting("part", index=2), r"\b2\b"),
    "a part before the first": (setting("part", index=-1), r"\b2\b.*\b1\b"),
    "half a part": (setting("part", index=0.0), r"\(part\)\.index"),
    "keys as a str": (setting("parts", keys="AB"), r"\(partition\)\.keys.*\blist\b.*\bstr\b"),
    "a key twice": (setting("parts", keys=["A", "A"]), r"\(partition\).*'A'"),
    "keys and edges": (setting("parts", edges=[0, 1]), r"nodes\[9\] \(partition\)"),
    "edges that fall": (setting("parts", keys=None, edges=[1, 0]), "'r'"),
    "one edge": (setting("parts", keys=None, edges=[1]), "'r'"),
    "edges of truths": (
        setting("parts", keys=None, edges=[False, True]),
        r"\(partition\)\.edges\[0\].*\bbool\b",
    ),
    "whole units in words": (setting("parts", whole_units="yes"), "whole_units"),
    "a rate of 0": (setting("sample", rate=0), r"\(sample\)"),
    "a rate above 1": (setting("sample", rate=1.5), r"\(sample\): sample's rate"),
    "a sample of exchanged people": (
        setting("people", neighbors="replace_one"),
        r"nodes\[19\] \(release\): Laplace.*replace_one.*must be dp\.Gaussian",
    ),
    "an unknown test": (
        setting("filter", test="=="),
        r"\(filter\)",
    ),
    "a filter by two operands": (
        setting("filter", operand=3),
        r"nodes\[20\] \(filter\)",
    ),
    "a filter by none": (setting("filter", inputs=["bound"]), r"nodes\[20\] \(filter\)"),
    "a filter of categories": (setting("filter", column="r"), r"nodes\[20\] \(filter\)"),
    # mechanisms
    "no mechanism": (without("noisy_sum", "mechanism"), r"\(release\).*'mechanism'"),
    "a mechanism that is a str": (
        setting("noisy_sum", mechanism="Laplace"),
        r"nodes\[15\] \(release\)\.mechanism",
    ),
    "a mechanism without a name": (setting("noisy_sum", mechanism={"scale": 1}), r"'mechanism'"),
    "an unknown mechanism": (
        setting("noisy_sum", mechanism={"mechanism": "Lapalce", "scale": 1}),
        "'Lapalce'",
    ),
    "a mechanism that is not allowed": (
        setting("noisy_sum", mechanism={"mechanism": "unheard_of:Noise"}),
        r"\(release\)\.mechanism\.mechanism.*'unheard_of:Noise'",
    ),
    "a class that is no mechanism": (
        setting("noisy_sum", mechanism={"mechanism": f"{__name__}:NotAMechanism"}),
        r"\(release\)\.mechanism\.mechanism.*'test_documents'.*'NotAMechanism'",
    ),
    "a module that is not there": (
        setting("noisy_sum", mechanism={"mechanism": "not_there:Noise"}),
        "'not_there:Noise'.*ModuleNotFoundError",
    ),
    "a scale of 0": (laplace(scale=0), r"\(release\)\.mechanism.*Laplace\.scale"),
    "a scale below 0": (
        laplace(scale=-1),
        r"Laplace\.scale.*\b1e300\b",
    ),
    "a scale of NaN": (laplace(scale=NAN), r"nodes\[15\]\.mechanism\.scale"),
    "an infinite scale": (
        laplace(scale={"float": "inf"}),
        r"Laplace\.scale",
    ),
    "a scale of 10^400": (laplace(scale=10**400), r"mechanism\.scale"),
    "a scale that is a str": (
        laplace(scale="2"),
        r"\(release\)\.mechanism\.scale.*\bstr\b",
    ),
    "a scale that is a truth": (laplace(scale=True), r"\(release\)\.mechanism\.scale.*\bbool\b"),
    "no scale": (laplace(), r"\(release\)\.mechanism.*'scale'"),
    "another parameter": (laplace(scale=1, sigma=1), "'sigma'"),
    "a free parameter without a name": (laplace(scale={"free": ""}), r"\bFree\b"),
    "a free weight of 0": (laplace(scale={"free": "b", "weight": 0}), r"\bweight\b"),
    "a free parameter's other field": (laplace(scale={"free": "b", "w": 0}), "'w'"),
    # functions and constants
    "a function without a module": (
        setting("post", function={"function": "max"}),
        r"\(post\)\.function\.function.*'max'.*'module:name'",
    ),
    "a function in code": (
        setting("post", function={"function": "os:system('x')"}),
        r"module:name",
    ),
    "a function that is a str": (
        setting("post", function="plans:add"),
        "function",
    ),
    "constants as a list": (setting("post", constants=[1]), "constants"),
    "a constant in other words": (
        setting("one", value={"float": "1"}),
        r"value\.float.*'nan'",
    ),
    "a post of nothing": (setting("post", inputs=[]), r"\(post\)"),
    # repeats
    "repeat 0 times": (setting("loop", times=0), r"nodes\[24\] \(repeat\): repeat's times"),
    "repeat half times": (setting("loop", times=1.5), r"\(repeat\)"),
    "repeat 10^12 times": (setting("loop", times=10**12), r"repeat's times .* between 1 and 10\^9"),
    "repeat without a start": (setting("loop", inputs=[]), r"\(repeat\)\.inputs"),
    "repeat with a private start": (
        setting("loop", inputs=["count"]),
        r"nodes\[24\] \(repeat\)",
    ),
    "repeat with a private result": (
        lambda d: (
            at(d, "loop")["body"].append({"id": "c2", "kind": "count", "inputs": ["bound"]}),
            at(d, "loop").update(result="c2"),
        ),
        r"\(repeat\).*people -> ",
    ),
    "repeat without a result": (setting("loop", result="nobody"), r"\(repeat\)\.result"),
    "a state of an old name": (
        setting("loop", state="count"),
        r"\(repeat\)\.state.*'count'",
    ),
    "a state that is a number": (setting("loop", state=1), r"\(repeat\)\.state"),
    "a body's node from outside": (output("again"), "'again'"),
    "a state from outside": (output("state"), "'state'"),
    "a body's node, wrong": (
        lambda d: at(d, "loop")["body"][0].update(kind="sum"),
        r"nodes\[24\] \(repeat\).body\[0\] \(sum\)",
    ),
}


class TestMutations:
    def test_the_original_is_a_plan(self) -> None:
        PLAN_FORM.validate(base())
        assert dp.load(base()).certify().epsilon > 0
        assert len(MUTATIONS) > 60

    @pytest.mark.parametrize("name", MUTATIONS)
    def test_it_is_refused_with_place_and_cure(self, name: str) -> None:
        mutate, message = MUTATIONS[name]
        document = base()
        mutate(document)
        with pytest.raises(dp.DocumentError, match=message) as caught:
            dp.load(document, allow=[__name__, "not_there"])
        assert caught.value.__cause__ is None

    def test_a_key_twice(self) -> None:
        text = json.dumps(base()).replace('"rows": 2', '"rows": 200, "rows": 2')
        with pytest.raises(dp.DocumentError, match="'rows'"):
            dp.load(text)

    @pytest.mark.parametrize("text", ['{"a":' * 100_000, '{"a": ' + "9" * 5000 + "}"])
    def test_documents_that_overwhelm_a_parser(self, text: str) -> None:
        with pytest.raises(dp.DocumentError):
            dp.load(text)

    @pytest.mark.parametrize("value", [None, 3, [], b"{}", "{}", {}, {"format": 1}])
    def test_what_is_no_document(self, value: Any) -> None:
        with pytest.raises(dp.DocumentError, match="plan"):
            dp.load(value)

    def test_samples_nested_without_end(self) -> None:
        document = base()
        for i in range(200):
            before = f"s{i - 1}" if i else "bound"
            adding(id=f"s{i}", kind="sample", inputs=[before], rate=0.5)(document)
        both(adding(id="q", kind="count", inputs=["s199"]), released("q"))(document)
        with pytest.raises(dp.DocumentError, match="nested 200 deep"):
            dp.load(document)

    def test_a_long_chain_is_a_plan(self) -> None:
        document = base()
        for i in range(3000):
            before = f"p{i - 1}" if i else "post"
            adding(id=f"p{i}", kind="group", inputs=[before], name="g")(document)
        output("p2999")(document)
        assert dp.load(document).certify().epsilon == dp.load(base()).certify().epsilon


class TestFunctions:
    def test_loading_imports_no_function(self) -> None:
        document = base()
        at(document, "post")["function"] = {"function": "antigravity:system"}
        plan = dp.load(document)
        assert plan.certify().epsilon > 0
        assert "antigravity" not in sys.modules

    def test_loading_runs_no_function(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.system", lambda *_: pytest.fail("os.system ran"))
        document = base()
        at(document, "post")["function"] = {"function": "os:system"}
        dp.load(document).certify()

    def test_a_mechanism_must_be_allowed_by_its_very_module(self) -> None:
        document = base()
        setting("noisy_sum", mechanism={"mechanism": "os.path:Noise"})(document)
        for allow in ([], ["os"], ["path"], ["os.path.x"]):
            with pytest.raises(
                dp.DocumentError, match=r"nodes\[15\] \(release\)\.mechanism\.mechanism"
            ):
                dp.load(document, allow=allow)
        with pytest.raises(dp.DocumentError, match=r"'os\.path'.*'Noise'"):
            dp.load(document, allow=["os.path"])

    def test_a_mechanism_of_another_module_is_not_reached_through_an_allowed_one(self) -> None:
        document = base()
        for name in ("own_mechanism:dp.Laplace", "plans:dp.Laplace", "plans:np.ndarray"):
            setting("noisy_sum", mechanism={"mechanism": name, "scale": 1.0})(document)
            module, _, last = name.partition(":")
            with pytest.raises(dp.DocumentError, match=f"'{module}'.*'{last}'"):
                dp.load(document, allow=["own_mechanism", "plans"])

    @pytest.mark.parametrize("name", ["not_there:f", "math:not_there", "lambda:0123456789abcdef"])
    def test_what_cannot_be_resolved_fails_before_anything_is_released(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dp.Laplace, "release", lambda *_: pytest.fail("released"))
        document = base() | {"delta": 1e-6}
        at(document, "post")["function"] = {"function": name}
        plan = dp.load(document, allow=["not_there", "math", "builtins"])
        with pytest.raises(dp.RunError, match=name.partition(":")[0]):
            plan.run(people={"id": [1], "x": [1.0], "r": ["A"], "z": [1.0]})


ODD = [None, True, False, -1, 0, 1, 2, 3, 2.5, 1e308, -1e9, NAN, "x", "A", "count", "bound", [], {}]
ODD += [
    [0, 1],
    [1, 0],
    {"bounds": [0, 1]},
    {"free": "b"},
    {"float": "inf"},
    "replace_one",
    "people",
]
NAMES = ["inputs", "kind", "id", "rows", "bounds", "unit", "name", "keys", "edges", "size", "index"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path] if path else []
    if isinstance(value, dict | list):
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    else:
        items = []
    for key, inner in items:
        paths += places(inner, (*path, key))
    return paths


@st.composite
def mutated(draw: st.DrawFn, source: Callable[[], Document]) -> Document:
    document = copy.deepcopy(source())
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(document)))
        target = document
        for key in way:
            target = target[key]
        match draw(st.sampled_from(["set", "set", "delete", "copy", "add"])):
            case "set":
                target[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
            case "delete":
                del target[last]
            case "copy":
                *other, end = draw(st.sampled_from(places(document)))
                taken = document
                for key in other:
                    taken = taken[key]
                target[last] = copy.deepcopy(taken[end])
            case "add" if isinstance(target, dict):
                target[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return document


def pays_enough(plan: dp.Pipeline, first: int, second: int) -> None:
    """What a neighbour moves, in units of Laplace noise, is at most what Basic certifies.

    Equal seeds draw equal noise, so the difference of two simulations is that of the queries.
    Plans in which a released value decides what is asked are left out.
    """
    kinds = {n.handle.operation.kind for n in plan.structure}
    tables = [n.handle.operation for n in plan.structure if n.handle.operation.kind == "dataset"]
    mechanisms = [
        n.handle.operation.mechanism for n in plan.structure if n.handle.operation.kind == "release"
    ]
    choosing = any(
        n.handle.operation.kind == "filter" and len(n.inputs) > 1 for n in plan.structure
    )
    if kinds & {"sample", "repeat"} or choosing or len(tables) != 1 or plan.free:
        return
    if any(not isinstance(m, dp.Laplace) or m.scale < 1e-3 for m in mechanisms):
        return
    (source,) = tables
    here = data(first, units=first % 4 + 1, fixed=source.unit is None)
    there = neighbour(here, source.neighbors, second)
    flat = dp.Pipeline(**{f"r{i}": n.handle for i, n in enumerate(releases(plan))})
    uses = {k: [*here, *source.columns].count(k) for k in source.columns}
    if (
        any(count < 2 for count in uses.values())
        or (source.unit or "id") not in here
        or source.size
    ):
        return
    try:
        seen = [flat.simulate(seed=5, **{source.name: t}) for t in (here, there)]
    except (dp.DataError, dp.RunError):
        return
    total = 0.0
    for i, node in enumerate(releases(plan)):
        a, b = (float_list(r[f"r{i}"]) for r in seen)
        change = sum(abs(x - y) for x, y in zip(a, b, strict=True))
        change /= node.handle.operation.mechanism.scale
        assert change <= certified(plan, lambda name, own=node.name: name == own)
        total += change
    assert total <= certified(plan, lambda name: True)


def certified(plan: dp.Pipeline, only: Callable[[str], bool]) -> float:
    bounds = plan.measure(accountants.Basic(), 0.0, only=only).bounds
    assert bounds is not None
    return bounds.upper * (1 + 1e-6) + 1e-6


def releases(plan: dp.Pipeline) -> list[Any]:
    return [n for n in plan.structure if n.handle.operation.kind == "release"]


def float_list(value: Any) -> list[float]:
    return [float(v) for v in np.ravel(value)]


def _enforced(neighbors: str, unit: str | None) -> Document:
    """Laplace releases of every query that data can move, with no choice made by a release."""
    table = people(neighbors, unit, 2)
    spread, whole_units = table.partition("region"), table.partition("region", whole_units=True)
    plan = dp.Pipeline(
        count=table.count().release(noisy()),
        total=table["x"].sum().release(noisy(9)),
        mean=table["x"].clip(1, 3).mean().release(noisy(1)),
        bins=table["z"].histogram([0, 1, 9]).release(noisy(3)),
        here={k: p["x"].sum().release(noisy(5)) for k, p in spread},
        there=whole_units["B"].count().release(noisy(1)),
        grown=table.filter(table["z"] > 0)["y"].sum().release(noisy(2)),
        alone=table.partition("region")["C"].count().release(noisy(2)),
        one=table["z"].histogram([-10, 10]).release(noisy(2)),
        squares=table.vectors(["x", "y"]).gram().release(noisy(90)),
        points=table.vectors(["x", "y"], scale=True).clip(norm=0.5).sum().release(noisy(1)),
        least=table.vectors(["y"], intercept=True).smallest_eigenvalue().release(noisy(4)),
    )
    return json.loads(plan.to_json())


ENFORCED = [
    _enforced(n, unit) for n in ("add_remove", "replace_one", "zero_out") for unit in ("id", None)
]


class TestAnyMutation:
    @examples(25)
    @given(st.one_of(mutated(base), *(mutated(lambda n=n: written(n)) for n in PLANS)))
    def test_refused_or_of_the_form(self, document: Document) -> None:
        try:
            plan = dp.load(document)
        except dp.DocumentError:
            return
        PLAN_FORM.validate(document)
        try:
            plan.certify(1e-6, accountants=(accountants.Basic(),))
        except (dp.PlanError, accountants.AccountingError):
            return
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint

    @examples(6)
    @given(
        st.one_of(*(mutated(lambda d=d: d) for d in ENFORCED)),
        st.integers(0, 99),
        st.integers(0, 99),
    )
    def test_what_runs_moves_no_more_than_is_certified(
        self, document: Document, first: int, second: int
    ) -> None:
        try:
            plan = dp.load(document)
            plan.certify(0.0, accountants=(accountants.Basic(),))
        except (dp.PlanError, accountants.AccountingError):
            return
        pays_enough(plan, first, second)

    @pytest.mark.parametrize("bounds", [[-50, 1000], [-1, 2], [3, 3]])
    def test_the_bounds_of_the_query_are_those_that_it_enforces(self, bounds: list[float]) -> None:
        document = copy.deepcopy(ENFORCED[0])
        entry = next(n for n in document["nodes"] if n["kind"] == "sum")
        entry["bounds"] = bounds
        plan = dp.load(document)
        rows = plan.certify().nodes
        release = next(n for n in document["nodes"] if n.get("inputs") == [entry["id"]])["id"]
        (row,) = (r for r in rows if r.node == release)
        assert row.distance == 2 * max(map(abs, bounds))
        for seed in range(2):
            pays_enough(plan, seed, seed)

    @pytest.mark.parametrize("kind", range(len(ENFORCED)))
    @pytest.mark.parametrize("seed", range(3))
    def test_the_original_pays_for_hostile_neighbours(self, kind: int, seed: int) -> None:
        pays_enough(dp.load(ENFORCED[kind]), seed, seed + 100)


def test_a_document_is_read_from_the_path_of_a_file(tmp_path):
    people = dp.dataset("people", columns={"x": (0, 1)})
    plan = dp.Pipeline(n=people.count().release(dp.Laplace()))
    where = tmp_path / "plan.json"
    where.write_text(plan.to_json(), encoding="utf-8")
    assert dp.load(where).fingerprint == plan.fingerprint
    with pytest.raises(dp.DocumentError, match=r"cannot be read"):
        dp.load(tmp_path / "other.json")
    with pytest.raises(dp.DocumentError, match=r"load\(pathlib\.Path\('plan\.json'\)\)"):
        dp.load("plan.json")
