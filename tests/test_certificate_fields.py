"""Every single field of a certificate: a change that makes it promise more is found."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.graph import certificate as typed

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]}, unit="id")
ROWS = {"id": [1, 2, 3], "age": [30.0, 40.0, 50.0], "town": ["A", "B", "A"]}
STATED = (("versions",), ("session", "ledger"), ("plan",), ("format",))
"""What nothing in a certificate tells, and the plan, whose changes change all of the rest."""
UPPER = {"epsilon", "upper", "spent", "delta_floor"}
LOWER = {"lower", "remaining"}

Path = tuple[str | int, ...]


def plan() -> dp.Certificate:
    towns = {
        k: part.count().release(dp.Laplace(scale=3 + i))
        for i, (k, part) in enumerate(PEOPLE.partition("town"))
    }
    n = PEOPLE.count().release(dp.Gaussian(sigma=20))
    selected = (accountants.Basic(), accountants.Renyi())
    return dp.Pipeline(towns=towns, n=n).certify(1e-6, accountants=selected)


def session(accountant: str) -> dp.Certificate:
    with dp.Session(
        budget=dp.Budget(1.0, 1e-6), accountant=accountant, seed=3, people=ROWS
    ) as running:
        running.run(PEOPLE.count().release(dp.Gaussian(sigma=30)), name="n")
        running.run(PEOPLE["age"].sum().release(dp.Gaussian(sigma=5000)), name="ages")
        return running.certificate()


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from leaves(inside, (*path, key))
    elif isinstance(value, list):
        for i, inside in enumerate(value):
            yield from leaves(inside, (*path, i))
    else:
        yield path, value


def changes(path: Path, value: Any) -> list[Any]:
    """Other values of the field's type; none may pass."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [value + "x", *([""] if value else []), None]
    if value is None:
        return ["x", 5, 0.5]
    names = {key for key in path[-2:] if isinstance(key, str)}
    smaller, larger = value * 0.5 if value else -1.0, value * 2 + 1
    if isinstance(value, int):
        smaller, larger = value - 1, value + 1
    if names & UPPER:
        return [smaller, None]
    if names & LOWER:
        return [larger, None]
    return [smaller, larger, None, str(value)]


def passes(document: Any) -> bool:
    try:
        return dp.verify(dp.Certificate.from_document(document)).holds
    except dp.DocumentError:
        return False


@pytest.mark.parametrize("kind", ["plan", "gaussian", "individual"])
def test_a_change_of_any_field_is_detected(kind: str) -> None:
    genuine = (plan() if kind == "plan" else session(kind)).to_document()
    assert passes(genuine)
    tried = 0
    for path, value in leaves(genuine):
        if any(path[: len(stated)] == stated for stated in STATED):
            continue
        for other in changes(path, value):
            changed = copy.deepcopy(genuine)
            inside = changed
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = other
            assert not passes(changed), (path, value, other)
            tried += 1
    assert tried > 100


@pytest.mark.parametrize("kind", ["plan", "gaussian", "individual"])
def test_bounds_may_be_claimed_looser(kind: str) -> None:
    genuine = plan() if kind == "plan" else session(kind)
    if genuine.session is None:
        looser = attrs.evolve(genuine.claim, epsilon=2 * genuine.epsilon)
        assert dp.verify(attrs.evolve(genuine, claim=looser)).holds
        rows = [attrs.evolve(row, upper=float("inf"), lower=0.0) for row in genuine.accountants]
        claim = attrs.evolve(genuine.claim, epsilon=float("inf"))
        assert dp.verify(attrs.evolve(genuine, accountants=tuple(rows), claim=claim)).holds
    else:
        spent = tuple(2 * cost for cost in genuine.session.spent)
        left = tuple(cost / 2 for cost in genuine.session.remaining)
        more = attrs.evolve(genuine.session, spent=spent, remaining=left)
        assert dp.verify(attrs.evolve(genuine, session=more)).holds


@pytest.mark.parametrize("kind", ["plan", "gaussian", "individual"])
def test_each_field_is_a_row_of_the_verdict(kind: str) -> None:
    genuine = plan() if kind == "plan" else session(kind)
    verdict = dp.verify(genuine)
    assert verdict.holds
    assert all(row.holds for row in verdict.fields)
    places = {row.place for row in verdict.fields}
    assert {"claim.epsilon", "protects[0].unit", "fingerprint", "nodes[0].share"} <= places
    assert ("session.odometer.epsilon" in places) is (kind != "plan")
    # no field of any class is left out
    named = {f.name for f in attrs.fields(typed.ReleaseRow)}
    assert {p.split(".")[1].partition("[")[0] for p in places if p.startswith("nodes[0]")} >= (
        named - {"conversions", "region"}
    )


def test_certificates_are_values() -> None:
    one, other = plan(), plan()
    assert one == other
    assert len({one, other}) == 1
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.claim.epsilon = 0.0  # type: ignore[misc]
    one.to_document()["claim"]["epsilon"] = 0.0
    one.to_document()["plan"]["nodes"].clear()
    assert one == other
