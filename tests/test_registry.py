"""The registry of the library's own code: complete, true, and not to be taken in by names."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from plans import data, people

import accountants
import adaptive_dp as dp
from accountants import document as accounting
from accountants.losses.discrete import PureGroup
from adaptive_dp.erm import MarginLoss
from adaptive_dp.erm import losses as problems
from adaptive_dp.graph import registry
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.operation import Operation

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def modules() -> list[types.ModuleType]:
    """Every module of both packages."""
    imported = []
    for package in (accountants, dp):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.endswith("__main__"):
                imported.append(importlib.import_module(each.name))
    return imported


def classes(modules: list[types.ModuleType], base: type) -> set[type]:
    """The classes that modules of the packages define at their top level."""
    return {
        cls
        for module in modules
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, base) and cls.__module__ == module.__name__
    }


def table(places: dict[str, str]) -> dict[str, Any]:
    return {name: accounting.locate(place) for name, place in places.items()}


def test_the_tables_name_every_class_that_the_packages_define(modules: Any) -> None:
    kinds = {c for c in classes(modules, Operation) if "kind" in c.__dict__}
    assert table(dict(registry.OPERATIONS)) == {c.kind: c for c in kinds}
    for base, places in (
        (dp.Mechanism, registry.MECHANISMS),
        (accountants.PrivacyLoss, accounting.LOSSES),
        (accountants.Term, accounting.TERMS),
    ):
        public = {c for c in classes(modules, base) - {base} if not c.__name__.startswith("_")}
        public -= {accountants.EstimatedLoss}  # an estimate, which no document may rest on
        public -= {PureGroup}  # of a group of units, which documents hold with its Pure
        # contracts, which plans hold subclasses of
        public -= {dp.instance.InstanceMechanism, dp.instance.InstanceGaussian}
        assert table(dict(places)) == {c.__name__: c for c in public}
    losses = classes(modules, dp.Loss) - {dp.Loss, MarginLoss}
    assert dict(problems.LOSSES) == {c.__name__: c for c in losses}
    by_name = table(dict(accounting.ACCOUNTANTS))
    assert {each.name: type(each) for each in accountants.ACCOUNTANTS}.items() <= by_name.items()


def posted() -> Iterator[tuple[str, str]]:
    """The functions that calls of ``post`` name in the library's code, with their modules."""
    for path in sorted((ROOT / "adaptive_dp").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
            if named and ast.unparse(node.func) in ("post", "dp.post"):
                yield module, ast.unparse(node.args[0])


def test_every_function_that_the_librarys_plans_call_has_a_public_name() -> None:
    called = {
        eval(name, vars(importlib.import_module(module)))  # names of our own modules
        for module, name in posted()
    }
    assert len(called) > 40
    functions = table(dict(registry.FUNCTIONS))
    assert len(set(functions.values())) == len(functions)
    assert called <= set(functions.values())
    offered = {dp.predict, dp.network_scores}  # which users' plans may call
    assert set(functions.values()) == called | offered
    for name, function in functions.items():
        assert registry.function_name(function) == name


def test_no_document_says_where_the_librarys_code_lives() -> None:
    learner = people().solve(dp.AdaSSP(features=["x"], target="y"), epsilon=1.0, delta=1e-6)
    plan = dp.Pipeline(theta=learner)
    text = plan.to_json()
    assert "adassp.ridge/4" in text
    assert "adaptive_dp." not in text
    assert "adaptive_dp." not in plan.certify().to_json()


@pytest.fixture
def extra(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A third party's module whose name looks as if it were the library's."""
    name = "adaptive_dp.extra"
    module: Any = types.ModuleType(name)

    class Laplace(dp.Laplace):
        pass

    @frozen
    class Count(dp.Query):
        kind = "count"

        def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
            return 0.5

        def run(self, inputs: Any, stream: Any) -> float:
            return 1.0

    @frozen
    class Loss(accountants.Pure):
        pass

    class Released(dp.Laplace):
        def loss(self, distance: float) -> Any:
            return Loss(distance / self.scale)

    @frozen
    class Basic(accountants.Basic):
        name: str = "better"

    def double(value: float) -> float:
        return 2 * value

    for each in (Laplace, Count, Loss, Released, Basic, double):
        each.__module__, each.__qualname__ = name, each.__name__
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def rows(certificate: dp.Certificate) -> set[tuple[Any, Any]]:
    return {(row.kind, row.code) for row in certificate.third_party}


def test_a_module_under_the_librarys_name_is_a_third_partys(extra: Any) -> None:
    for each in (extra.Laplace, extra.Count, extra.Loss, extra.Basic, extra.double):
        assert not registry.is_own(each)
    count = PrivateQuery(extra.Count(), (people(),))
    plan = dp.Pipeline(n=count.release(extra.Released(scale=2.0)))
    assert rows(plan.certify(accountants=[extra.Basic(), accountants.Basic()])) == {
        ("accountant", "adaptive_dp.extra:Basic"),
        ("loss", "adaptive_dp.extra:Loss"),
        ("mechanism", "adaptive_dp.extra:Released"),
        ("query", "adaptive_dp.extra:Count"),
    }


def test_it_does_not_stand_in_for_the_librarys(extra: Any) -> None:
    own = dp.Pipeline(n=people().count().release(dp.Laplace(scale=2.0)))
    query = dp.Pipeline(n=PrivateQuery(extra.Count(), (people(),)).release(dp.Laplace(scale=2.0)))
    noise = dp.Pipeline(n=people().count().release(extra.Laplace(scale=2.0)))
    assert len({own.fingerprint, query.fingerprint, noise.fingerprint}) == 3
    assert type(dp.load(own.to_json()).outputs[0][1].operation.mechanism) is dp.Laplace
    assert noise.certify().nodes[0].mechanism == "adaptive_dp.extra:Laplace"
    assert rows(own.certify()) == set()
    with pytest.raises(dp.DeclarationError):
        own.certify(accountants=[extra.Basic(name="basic")])


@pytest.mark.parametrize("which", ["query", "mechanism"])
def test_its_classes_are_refused_in_documents_unless_allowed(extra: Any, which: str) -> None:
    query = PrivateQuery(extra.Count(), (people(),)) if which == "query" else people().count()
    mechanism = extra.Laplace if which == "mechanism" else dp.Laplace
    plan = dp.Pipeline(n=query.release(mechanism(scale=2.0)))
    with pytest.raises(dp.DocumentError):
        dp.load(plan.to_json())
    again = dp.load(plan.to_json(), allow=["adaptive_dp.extra"])
    assert again.fingerprint == plan.fingerprint
    assert rows(again.certify()) == rows(plan.certify())
    assert len(rows(plan.certify())) == 1


def test_its_functions_are_called_only_if_allowed(extra: Any) -> None:
    count = people().count().release(dp.Laplace(scale=2.0))
    plan = dp.Pipeline(n=dp.post(extra.double, count))
    assert "adaptive_dp.extra:double" in plan.to_json()
    with pytest.raises(dp.DeclarationError):
        dp.load(plan.to_json()).simulate(seed=1, people=data(1))
    dp.load(plan.to_json(), allow=["adaptive_dp.extra"]).simulate(seed=1, people=data(1))


def test_a_forged_name_and_module_prove_nothing() -> None:
    class Forged(dp.Laplace):
        pass

    def forged(*_: Any) -> None:
        return None

    own = registry.function_name
    ridge: Any = accounting.locate(registry.FUNCTIONS["adassp.ridge/4"])
    Forged.__module__, Forged.__qualname__ = dp.Laplace.__module__, "Laplace"
    forged.__module__, forged.__qualname__ = ridge.__module__, ridge.__qualname__
    assert registry.is_own(dp.Laplace)
    assert not registry.is_own(Forged)
    assert own(ridge) == "adassp.ridge/4"
    assert own(forged) is None


def test_what_says_that_it_is_equal_proves_nothing() -> None:
    """Of a mechanism's class, which its metaclass compares, and of a function."""

    class Equal(type(dp.Laplace)):  # type: ignore[misc]
        def __eq__(cls, other: object) -> bool:
            return other is dp.Laplace or other is cls

        def __hash__(cls) -> int:
            return hash(dp.Laplace)

    class Louder(dp.Laplace, metaclass=Equal):
        pass

    class Step:
        def __eq__(self, other: object) -> bool:
            return other is ridge

        def __hash__(self) -> int:
            return hash(ridge)

    ridge: Any = accounting.locate(registry.FUNCTIONS["adassp.ridge/4"])
    assert registry.is_own(dp.Laplace)
    assert registry.is_own(ridge)
    assert not registry.is_own(Louder)
    assert not registry.is_own(Step())
    certificate = dp.Pipeline(n=people().count().release(Louder(scale=2.0))).certify()
    assert [row.kind for row in certificate.third_party] == ["mechanism"]


@pytest.mark.parametrize("name", ["adassp.ridge/2", "adassp.ridge", "nothing/1", "ridge"])
def test_a_function_that_the_library_does_not_have_is_refused(name: str) -> None:
    count = people().count().release(dp.Laplace(scale=2.0))
    document = dp.Pipeline(n=dp.post(max, count, b=1.0)).to_document()
    (post,) = (node for node in document["nodes"] if node["kind"] == "post")
    post["function"] = {"function": name}
    with pytest.raises(dp.DocumentError):
        dp.load(document)


@pytest.mark.parametrize("kind", ["plan", "certificate"])
def test_an_older_format_is_refused_by_name(kind: str) -> None:
    plan = dp.Pipeline(n=people().count().release(dp.Laplace(scale=2.0)))
    text = plan.to_json() if kind == "plan" else plan.certify().to_json()
    older = text.replace(f"adaptive-dp/{kind}/2", f"adaptive-dp/{kind}/1", 1)
    assert older != text
    with pytest.raises(dp.DocumentError) as caught:
        dp.load(older) if kind == "plan" else dp.Certificate.from_json(older)
    assert f"adaptive-dp/{kind}/1" in str(caught.value)
    assert f"adaptive-dp/{kind}/2" in str(caught.value)
