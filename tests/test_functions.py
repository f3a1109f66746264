"""Functions in plans: which documents may call, and how unnamed ones are distinguished."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plans import add, data, people

import adaptive_dp as dp
from adaptive_dp.graph.handles import reads_only
from adaptive_dp.graph.registry import Function
from adaptive_dp.learning.descent import adaptive_clipping_step, gradient_step, initial_state

STEPS = [gradient_step, adaptive_clipping_step]


def plan(function: Callable[..., Any] = add, **constants: Any) -> dp.Pipeline:
    count = people().count().release(dp.Laplace(scale=1.0))
    return dp.Pipeline(n=count, out=dp.post(function, count, **constants))


def document(function: str) -> dict[str, Any]:
    contents = plan().to_document()
    (post,) = (n for n in contents["nodes"] if n["kind"] == "post")
    post["function"] = {"function": function}
    return contents


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is drawn or called here fails the test."""
    monkeypatch.setattr(dp.Laplace, "release", lambda *_: pytest.fail("released"))
    monkeypatch.setattr(os, "system", lambda *_: pytest.fail("called"))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "plans:add",
        "builtins:eval",
        "subprocess:run",
        "adaptive_dp.learning.ssp:ridge",
    ],
)
@pytest.mark.parametrize("verb", ["run", "simulate"])
def test_a_document_calls_nothing_that_its_reader_did_not_allow(name: str, verb: str) -> None:
    loaded = dp.load(document(name))
    module = name.partition(":")[0]
    message = rf"{name}.*allow=\['{module}'\].*--allow {module} "
    with pytest.raises(dp.DeclarationError, match=message):
        getattr(loaded, verb)(people=data(1), **({} if verb == "run" else {"seed": 1}))


@pytest.mark.usefixtures("quiet")
def test_what_is_not_called_is_not_needed() -> None:
    loaded = dp.load(document("not_there_at_all:f"))
    paper = loaded.certify()
    assert paper.epsilon == pytest.approx(2)
    assert dp.verify(dp.Certificate.from_json(paper.to_json())).holds
    assert "post" in str(loaded)
    assert loaded.svg()
    assert loaded.mermaid()
    assert "not_there_at_all" not in sys.modules


def test_what_is_allowed_is_called() -> None:
    loaded = dp.load(plan().to_document(), allow=["plans"])
    seen = loaded.simulate(seed=1, people=data(1))
    assert seen["out"] == seen["n"]


def test_the_librarys_own_learners_need_no_permission() -> None:
    learner = people().solve(dp.AdaSSP(features=["x"], target="y"), epsilon=1.0, delta=1e-6)
    built = dp.Pipeline(theta=learner)
    loaded = dp.load(built.to_json())
    frame = data(1)
    assert str(loaded.simulate(seed=1, people=frame)) == str(built.simulate(seed=1, people=frame))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "name",
    [
        "plans:np.sum",
        "plans:dp.load",
        "plans:dp.graph.functions.importlib.import_module",
        "plans:add.__globals__.clear",
        "plans:add.__class__",
        "plans:PLANS.clear",
        "adaptive_dp.learning.ssp:np.linalg.norm",
        "adaptive_dp.learning.ssp:post",
        "adaptive_dp.learning:AdaSSP.build.__globals__.clear",
        "adaptive_dp.demo.plan:dp.load",
    ],
)
def test_no_way_leads_through_a_module_into_another(name: str) -> None:
    module = name.partition(":")[0]
    with pytest.raises(dp.RunError):
        dp.load(document(name), allow=[module]).run(people=data(1))
    if module != "plans":  # one of the library's modules needs leave like any other
        with pytest.raises(dp.DeclarationError) as caught:
            dp.load(document(name), allow=["plans"]).run(people=data(1))
        assert repr([module]) in str(caught.value)


@pytest.mark.parametrize("name", ["math:floor", "builtins:float", "builtins:str.upper"])
def test_builtins_of_an_allowed_module_are_its_own(name: str) -> None:
    loaded = dp.load(document(name), allow=[name.partition(":")[0]])
    if name.endswith("upper"):  # found, and then called with a number
        with pytest.raises(dp.RunError, match="TypeError"):
            loaded.simulate(seed=1, people=data(1))
        return
    assert isinstance(loaded.simulate(seed=1, people=data(1))["out"], int | float)


@pytest.mark.parametrize("allow", ["plans", "os.path", "", 3, [1]])
def test_allow_is_a_list_of_names(allow: Any) -> None:
    with pytest.raises(dp.DeclarationError, match=r"\ballow\b"):
        dp.load(plan().to_document(), allow=allow)
    with pytest.raises(dp.DeclarationError, match=r"\ballow\b"):
        dp.verify(plan().certify(), allow=allow)


def closing(k: Any) -> Callable[..., Any]:
    return lambda value: k


def scaled(value: float, by: float) -> float:
    return value * by


def recursive() -> Callable[..., Any]:
    def again(value: float) -> float:
        return again(value - 1) if value > 0 else value

    return again


def calling(outermost: bool) -> Callable[..., Any]:
    def outer(value: float) -> float:
        return value if value < 0 else inner(value - 1)

    def inner(value: float) -> float:
        return 2 * value if value < 0 else after(value - 1)

    after = outer if outermost else inner
    return outer


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a number": (closing(1), closing(2)),
    "the type of a number": (closing(1), closing(True)),
    "a str": (closing("a"), closing("b")),
    "a list": (closing([1, [2]]), closing([1, [3]])),
    "a mapping": (closing({"a": 1}), closing({"a": 2})),
    "a mapping's order": (closing({"a": 1, "b": 2}), closing({"b": 2, "a": 1})),
    "which function is called again": (calling(True), calling(False)),
    "an array": (closing(np.arange(3)), closing(np.arange(3) + 1)),
    "a default": (lambda value, k=1: k, lambda value, k=2: k),
    "a keyword's default": (lambda value, *, k=1: k, lambda value, *, k=2: k),
    "nested code": (lambda v: [i + 1 for i in (v,)], lambda v: [i + 2 for i in (v,)]),
    "names": (lambda v: np.sin(v), lambda v: np.cos(v)),
    "nested functions": (closing(closing(1)), closing(closing(2))),
    "partial's arguments": (functools.partial(scaled, by=2), functools.partial(scaled, by=3)),
    "partial's function": (functools.partial(scaled, by=2), functools.partial(add, by=2)),
    "bound objects": (closing(1).__get__(1), closing(1).__get__(2)),
}


def digests(function: Callable[..., Any]) -> tuple[str, str]:
    built = plan(function)
    (name,) = (n["function"]["function"] for n in built.to_document()["nodes"] if "function" in n)
    return name, built.fingerprint


@pytest.mark.parametrize("name", DIFFERENT)
def test_functions_that_differ_have_different_fingerprints(name: str) -> None:
    one, two = map(digests, DIFFERENT[name])
    assert one[0].startswith("lambda:")
    assert one[0] != two[0]
    assert one[1] != two[1]


@pytest.mark.parametrize(
    "make", [lambda: closing({"a": {1, 2}}), recursive, lambda: functools.partial(scaled, by=2)]
)
def test_equal_functions_have_equal_fingerprints(make: Callable[[], Any]) -> None:
    assert digests(make()) == digests(make())


def test_a_function_that_closes_over_itself_has_a_fingerprint() -> None:
    held: list[Any] = []
    held.append(held)
    assert digests(closing(held))[0].startswith("lambda:")


def test_fingerprints_are_those_of_other_interpreters() -> None:
    code = """if True:
        import functools
        import adaptive_dp as dp
        def make(k):
            return lambda v, a=(1, "x"): [c for c in {"p", "q", k} if c in {"s", "t", "u"}] + [a]
        count = dp.dataset("t", columns={}).count().release(dp.Laplace(scale=1.0))
        posts = [dp.post(f, count) for f in (make("r"), functools.partial(make("r"), a={"b": 1}))]
        print(dp.Pipeline(a=posts[0], b=posts[1]).fingerprint)
    """
    root = str(Path(__file__).parent.parent)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": root, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_function_of_a_module_is_identified_by_its_name() -> None:
    assert digests(add)[0] == "plans:add"
    assert isinstance(add, types.FunctionType)


def test_a_value_with_many_ways_through_it_is_walked_once() -> None:
    def made(same: bool) -> Any:
        inner: list[Any] = [1.0, "a"]
        for _ in range(40 if same else 8):
            inner = [inner, inner] if same else [inner, list(inner)]
        return inner

    def digest(value: Any) -> str:
        return Function.of(lambda _: value).name

    assert digest(made(True)) == digest(made(True))  # 2^40 ways
    assert digest({"a": made(True)}) != digest({"b": made(True)})
    shared, apart = made(False), made(False)
    assert digest(shared) == digest(apart)
    one: list[Any] = [1]
    assert digest([one, one]) == digest([[1], [1]])  # what is equal is told alike, shared or not
    assert digest([one, one]) != digest([one, [1, 1]])
    loop: list[Any] = [one]
    loop.append([loop, one])
    other: list[Any] = [[1]]
    other.append([other, [1]])
    assert digest(loop) == digest(other)
    assert digest([loop, one]) != digest([loop, loop])


def halve(value: Any) -> Any:
    value["a"] /= 2
    return float(value["a"][0])


def made(number: float) -> dict[str, Any]:
    return {"a": np.full(3, 8.0)}


def test_only_our_own_functions_can_say_that_they_change_nothing() -> None:
    """Two readers of one value, and what the first does to it, marked or not, the second misses."""
    count = people().count().release(dp.Laplace(scale=1.0))
    value = dp.post(made, count)
    marked = reads_only(halve)
    try:
        plan = dp.Pipeline(a=dp.post(marked, value), b=dp.post(marked, value))
        result = plan.simulate(seed=0, people=data(0))
        assert (result["a"], result["b"]) == (4.0, 4.0)
    finally:
        del halve.__dict__["reads_only"]


def test_what_says_that_it_changes_nothing_changes_nothing() -> None:
    """The marked functions of the library run on arrays that refuse to be changed."""
    marked = [f for f in map(Function.resolve, map(Function.of, STEPS)) if f.reads_only]
    assert marked == STEPS
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((3, 3))
    values, basis = np.linalg.eigh(matrix @ matrix.T)
    for adam in (False, True):
        state = {**initial_state(6, clip=0.5), "v": rng.standard_normal(6)}
        scaling = {"values": values, "basis": basis, "damping": 0.1}
        total = rng.standard_normal(6)
        for each in (*state.values(), *scaling.values(), total):
            if isinstance(each, np.ndarray):
                each.flags.writeable = False
        own = {"learning_rate": 0.1, "momentum": 0.9, "half": 0, "adam": adam, "rate": 1.0}
        after = gradient_step(state, total, 10.0, 0.5, scaling, scale=None, **own)
        # a basis that a document holds has lost its single precision: the steps are the same
        single = {**scaling, "basis": basis.astype(np.float32)}
        again = gradient_step(state, total, 10.0, 0.5, single, scale=None, **own)
        assert np.array_equal(after["v"], again["v"])
        adaptive = {"quantile": 0.9, "following": 0.2}
        adaptive_clipping_step(state, total, 3.0, 10.0, 0.5, scaling, **adaptive, **own)
