"""A mechanism in at most twelve lines outside of the package does all that the library's do."""

from __future__ import annotations

import ast
import json
import traceback
from pathlib import Path
from typing import Any, ClassVar

import attrs
import own_mechanism
import pytest
from own_mechanism import Noisy
from plans import add, data, people

import accountants
import adaptive_dp as dp
from accountants import PrivacyLoss, Pure


def plan(scale: Any = 3.0) -> dp.Pipeline:
    table = people()
    total = table["x"].sum().release(Noisy(width=scale), name="total")
    bins = table["region"].histogram().release(Noisy(width=scale))
    return dp.Pipeline(mean=dp.post(add, total, dp.parameter(total, "width")), bins=bins)


def test_it_takes_at_most_twelve_lines() -> None:
    text = Path(own_mechanism.__file__).read_text("utf-8")
    lines = [line for line in ast.unparse(ast.parse(text)).splitlines()[1:] if line.strip()]
    assert len(lines) <= 12, lines


def test_certify() -> None:
    certificate = plan().certify()
    assert certificate.epsilon == pytest.approx(20 / 3 + 2 / 3)
    rows = {row.node: row for row in certificate.nodes}
    assert rows["total"].mechanism == "Noisy"
    assert rows["total"].theorem == f"stated: {Noisy.theorem}"
    assert rows["total"].parameters == {"width": 3.0}


def test_calibrate() -> None:
    solved = plan(dp.Free("w", weight=2)).calibrate(epsilon=1.0)
    assert 0.999 < solved.certify().epsilon <= 1.0
    assert solved.free == {}


def test_run_and_simulate() -> None:
    seen = [plan().simulate(seed=1, people=data(1)) for _ in range(2)]
    assert seen[0]["mean"] == seen[1]["mean"] != plan().simulate(seed=2, people=data(1))["mean"]
    assert plan().run(people=data(1))["bins"].shape == (3,)
    low, high = seen[0]["mean"].interval()
    assert low < seen[0]["mean"] < high


def test_draw() -> None:
    assert "Noisy" in plan().svg()
    assert "Noisy" in plan().mermaid()
    assert "Noisy(width=3)" in str(plan())


def test_document() -> None:
    text = plan().to_json()
    assert '"mechanism": "own_mechanism:Noisy"' in text
    with pytest.raises(dp.DocumentError, match=r"allow=\['own_mechanism'\]"):
        dp.load(text)
    again = dp.load(text, allow=["own_mechanism"])
    assert again.fingerprint == plan().fingerprint
    assert again.certify().to_json() == plan().certify().to_json()
    free = dp.load(plan(dp.Free("w")).to_json(), allow=["own_mechanism"])
    assert free.free == {"w": [1.0, 1.0]}


def test_verify() -> None:
    certificate = dp.Certificate.from_json(plan().certify().to_json())
    assert dp.verify(certificate, allow=["own_mechanism"]).holds
    document = json.loads(certificate.to_json())
    document["nodes"][0]["loss"]["parameters"]["epsilon"] /= 2
    assert not dp.verify(dp.Certificate.from_document(document), allow=["own_mechanism"]).holds


def test_its_parameters_are_checked() -> None:
    for wrong in (0, -1, float("nan"), float("inf"), "x", True, None, 10**400):
        with pytest.raises(dp.DeclarationError, match=r"Noisy\.width"):
            Noisy(width=wrong)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Noisy(width=1.0).width = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Noisy()  # type: ignore[call-arg]


def test_its_norm_is_checked() -> None:
    with pytest.raises(dp.DeclarationError, match=r"math\.inf.*1\.5"):

        class Wrong(dp.Mechanism):
            norm: ClassVar[float] = 1.5


class Broken(dp.Mechanism):
    b: float = dp.noise_parameter("b")
    what: str = "number"

    def release(self, value: Any, stream: Any) -> Any:
        return value

    def loss(self, distance: float) -> Any:
        return {"number": 1.0, "nan": None}.get(self.what)


@pytest.mark.parametrize("kind", ["number", "nan"])
def test_an_invalid_loss_is_reported_with_its_node(kind: str) -> None:
    table = people()
    broken = dp.Pipeline(n=table.count().release(Broken(b=1.0, what=kind)))
    with pytest.raises(dp.DeclarationError, match=r"^n: "):
        broken.certify()


class Failing(PrivacyLoss):
    def pair(self) -> Any:
        return {}["pair"]


class Erring(dp.Mechanism):
    where: str = "loss"

    def release(self, value: Any, stream: Any) -> Any:
        return {}["release"] if self.where == "release" else value

    def loss(self, distance: float) -> PrivacyLoss:
        if self.where == "loss":
            return {}["loss"]  # type: ignore[no-any-return]
        return Failing() if self.where == "pair" else Pure(0.5)


@pytest.mark.parametrize("where", ["loss", "pair"])
def test_an_error_of_ones_own_comes_with_its_own_traceback(where: str) -> None:
    plan = dp.Pipeline(n=people().count().release(Erring(where=where)))

    def spend() -> None:
        with dp.Session(budget=dp.Budget(1.0), people=data(1)) as session:
            session.run(people().count().release(Erring(where=where)))

    for ask in (plan.certify, lambda: plan.run(people=data(1)), spend):
        with pytest.raises(KeyError, match=where) as caught:
            ask()
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert (last.filename, last.name) == (__file__, where)
        assert caught.value.__cause__ is None
        if where == "loss":
            assert any("Erring" in note for note in caught.value.__notes__)


def test_an_error_on_data_is_shown_by_simulations_alone() -> None:
    plan = dp.Pipeline(n=people().count().release(Erring(where="release")))
    with pytest.raises(dp.RunError, match=r"withheld.*simulate\(seed=1") as withheld:
        plan.run(people=data(1))
    assert withheld.value.__context__ is None
    with pytest.raises(KeyError, match="release") as shown:
        plan.simulate(seed=1, people=data(1))
    assert traceback.extract_tb(shown.value.__traceback__)[-1].filename == __file__
    assert any("'n'" in note for note in shown.value.__notes__)


def test_a_loss_is_never_computed_at_a_negative_distance() -> None:
    distances: list[float] = []

    class Asking(dp.Mechanism):
        b: float = dp.noise_parameter("b")

        def release(self, value: Any, stream: Any) -> Any:
            return value

        def loss(self, distance: float) -> accountants.PrivacyLoss:
            distances.append(distance)
            return accountants.Pure(epsilon=1)

    for relation in ("add_remove", "replace_one", "zero_out"):
        table = people(relation)
        parts = {k: p["x"].sum().release(Asking(b=1.0)) for k, p in table.partition("region")}
        dp.Pipeline(c=table.count().release(Asking(b=1.0)), p=parts).certify()
    assert min(distances) >= 0
