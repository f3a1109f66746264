"""Work grows linearly: counted in what is visited and made, never in seconds."""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import adaptive_dp as dp
from adaptive_dp.graph import certify, compile, loops, nodes, plan, run
from adaptive_dp.graph.handles import Release
from adaptive_dp.queries import table as tables
from adaptive_dp.session.plans import EarlierNodes
from adaptive_dp.session.recompute import recomputed


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    """Count the calls of a function from here on."""
    calls: Counter[str] = Counter()
    original: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_partition_makes_its_parts_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    people = dp.dataset("people", columns={"key": list(range(10_000))})
    made = counted(monkeypatch, tables, "Part")
    parts = people.partition("key")
    assert len(parts) == 10_000
    assert made["Part"] == 0
    # one handle of each part, however it is reached: two would be two nodes to a reader
    seventh = parts[7]
    assert seventh is parts[7] is dict(zip(range(8), (t for _, t in parts), strict=False))[7]
    assert made["Part"] == 8
    assert [key for key, _ in parts] == list(range(10_000))
    assert made["Part"] == 10_000
    assert len(repr(parts)) < 1_000
    with pytest.raises(dp.DeclarationError, match="9900 more"):
        parts[-1]


def test_declaring_keys_does_not_compare_each_with_all() -> None:
    class Key(str):
        """A str that counts how often it is compared."""

        comparisons = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Key.comparisons += 1
            return str.__eq__(self, other)

    keys = [Key(f"key {i}") for i in range(2_000)]
    people = dp.dataset("people", columns={"key": keys})
    assert len(people.partition("key", keys=[str(key) for key in keys])) == 2_000
    assert Key.comparisons < 10 * 2_000
    # what is no category is still found, whatever its type
    for strange in ("key 2000", 3, (1,)):
        with pytest.raises(dp.DeclarationError):
            people.partition("key", keys=["key 1", strange])


def test_shares_are_computed_without_a_regular_expression_for_each_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def certified(count: int) -> int:
        columns = {f"c{i}": ["a", "b"] for i in range(count)}
        people = dp.dataset("people", columns=columns)
        outputs = {
            name: {
                key: part.count().release(dp.Laplace(scale=1 + (key == "b")))
                for key, part in people.partition(name)
            }
            for name in columns
        }
        plan = dp.Pipeline(**outputs)
        with monkeypatch.context() as patch:
            calls = counted(patch, re, "sub")
            certificate = plan.certify()
        assert [row.in_worst_world for row in certificate.nodes] == [
            row.node.endswith(".a") for row in certificate.nodes
        ]
        return calls["sub"]

    few, many = certified(5), certified(20)
    assert many - few <= 15  # one for each part that the worst world names


def add(first: float, second: float) -> float:
    return first + second


def half(value: float) -> float:
    return value / 2


PEOPLE = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
OTHERS = dp.dataset("others", columns={"age": (0, 100)})
DATA = {
    "people": {"age": [float(i % 90) for i in range(60)], "town": ["A", "B"] * 30},
    "others": {"age": [float(i % 70) for i in range(40)]},
}


def chain(session: dp.Session, steps: int, posts: bool) -> dp.Released[float]:
    """Run so many steps, each on the handle of the one before; return the last."""
    last = PEOPLE.count().release(dp.Laplace(scale=100))
    session.run(last)
    for i in range(steps):
        below = PEOPLE.filter(PEOPLE["age"] <= last)
        last = below.count().release(dp.Laplace(scale=200))
        if posts:
            new = PEOPLE.count().release(dp.Laplace(scale=300 + i))
            last = dp.post(add, dp.post(half, last), new)
        session.run(last)
    return last


@pytest.mark.parametrize("posts", [False, True])
def test_a_step_visits_no_node_of_the_steps_before(
    posts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(steps: int) -> dict[str, int]:
        calls: list[Counter[str]] = []
        with dp.Session(budget=dp.Budget(1000.0), **DATA) as session:
            last = chain(session, steps, posts)
            with monkeypatch.context() as patch:
                for owner, name in [
                    (nodes, "_sha256"),
                    (nodes, "describe"),
                    (plan, "check_flow"),
                    (nodes, "inputs_and_bodies"),
                    (run.Run, "compute_node"),
                ]:
                    calls.append(counted(patch, owner, name))
                new = PEOPLE.filter(PEOPLE["age"] > last).count().release(dp.Laplace(scale=50))
                session.run(dp.post(add, last, new))
            largest = max(len(each.structure.nodes) for each in session._own.values())
        return {"largest": largest, **{name: n for each in calls for name, n in each.items()}}

    few, many = work(3), work(30)
    assert few == many
    assert few["_sha256"] > 0


@pytest.mark.parametrize("posts", [False, True])
def test_the_journal_of_a_session_is_read_once(
    posts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(steps: int) -> int:
        with dp.Session(budget=dp.Budget(1000.0), **DATA) as session:
            chain(session, steps, posts)
            with monkeypatch.context() as patch:
                calls = counted(patch, loops, "rebuilt")
                _ = session.pipeline
        return calls["rebuilt"]

    first, second, third = work(5), work(10), work(15)
    assert third - second <= second - first


class Program:
    """Steps of a session drawn at random: chains, twins, posts, samples, loops, groups, again."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.handles = draw, list[Any]()

    def old(self) -> Any:
        return self.draw.choice(self.handles)

    def table(self) -> Any:
        table = self.draw.choice([PEOPLE, PEOPLE, OTHERS, SAMPLE])
        for _ in range(self.draw.choice([0, 1, 1, 2])):
            if self.handles:
                table = table.filter(table["age"] <= self.old())
        return table

    def release(self, table: Any) -> Any:
        # few scales: many releases are twins of others
        noise = dp.Laplace(scale=self.draw.choice([100.0, 200.0]))
        return table.count().release(noise)

    def step(self) -> Any:
        kind = self.draw.choice(["release"] * 4 + ["post"] * 4 + ["repeat", "group", "old", "part"])
        if not self.handles or kind == "release":
            return self.release(self.table())
        if kind == "post":
            return dp.post(add, self.old(), self.draw.choice([self.old, self.released])())
        if kind == "repeat":
            table = self.table()

            def body(state: Any, rows: Any) -> Any:
                below = rows.filter(rows["age"] <= state)
                return dp.post(add, state, self.release(below))

            return dp.repeat(body, 2, table, start=self.old())
        if kind == "group":
            table = self.table()
            return dp.group("share", dp.post(half, self.release(table)), table)
        if kind == "part":
            return self.release(PEOPLE.partition("town")[self.draw.choice("AB")])
        return self.old()

    def released(self) -> Any:
        return self.release(self.table())


SAMPLE = PEOPLE.sample(0.5)


def ran(seed: int, again: list[bool]) -> dict[str, Any]:
    """Run a random session and return all that it says, digests in place of names."""
    program, outputs = Program(random.Random(seed)), dict[str, Any]()
    with dp.Session(budget=dp.Budget(1e6), **DATA) as session:
        session._seed = seed  # as a simulation, which has no ledger to look at
        values = []
        for redrawn in again:
            handle = program.step()
            loop = isinstance(handle.operation, Release | loops.Loop)
            values.append(session.run(handle, again=redrawn and loop))
            program.handles.append(handle)
        outputs["values"] = values
        outputs["plan"] = session.pipeline.fingerprint
        certificate = session.certificate()
        outputs["certificate"] = certificate.claim, certificate.session
        entries = session._ledger.entries()
        for i, entry in enumerate(e for e in entries if e["kind"] == "spend"):
            outputs[f"spend {i}"] = [
                entry["data"],
                sorted(entry["offers"].values()),
                sorted(entry["reads"].values()),
                entry["releases"],
                entry["costs"],
            ]
    report = recomputed(entries)
    assert report.holds, report
    # the hashes of entries name the time and the nodes
    outputs["certificate"] = (
        outputs["certificate"][0],
        attrs.evolve(outputs["certificate"][1], ledger=None),
    )
    return outputs


@pytest.mark.parametrize("seed", range(40))
def test_cached_results_of_earlier_steps_change_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(-seed - 1)
    again = [draw.random() < 0.15 for _ in range(8)]
    first = ran(seed, again)
    # every step is traversed completely, from its data sets on
    monkeypatch.setattr(EarlierNodes, "add", lambda *args: None)
    assert ran(seed, again) == first


def test_a_certificate_prices_one_of_many_equal_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    def certified(keys: int) -> tuple[dict[str, int], dp.Certificate]:
        people = dp.dataset("people", columns={"key": [f"k{i:03}" for i in range(keys)]})
        plan = dp.Pipeline(
            parts={key: each.count().release(dp.Laplace(scale=2)) for key, each in table(people)},
            whole={f"n{i}": people.count().release(dp.Laplace(scale=9)) for i in range(keys)},
        )
        with monkeypatch.context() as patch:
            calls = [
                counted(patch, compile, "Spend"),
                counted(patch, compile, "_loss"),
                counted(patch, certify, "ReleaseRow"),
                counted(patch, nodes, "ReleaseNode"),
                counted(patch, nodes, "names"),
            ]
            certificate = plan.certify()
        return {name: n for each in calls for name, n in each.items()}, certificate

    def table(people: dp.Table) -> Any:
        return people.partition("key")

    (few, small), (many, large) = certified(20), certified(200)
    assert few == many
    assert set(many) <= {"Spend", "_loss", "ReleaseNode"}  # no row and no name is made yet
    assert small.epsilon == pytest.approx(1 / 2 + 20 / 9)
    assert large.epsilon == pytest.approx(1 / 2 + 200 / 9)
    rows = large.nodes
    assert len(rows) == 400
    assert [rows[i].node for i in (0, 199, 200, -1)] == [
        "parts.k000",
        "parts.k199",
        "whole.n0",
        "whole.n199",
    ]
    assert [rows[i].region for i in (1, 200)] == [("key = k001",), ()]
    assert all(row.in_worst_world for row in rows)  # equal parts are equally bad
    # a worst world holds one part and all that no part is around
    assert sum(row.share for row in rows[199:]) == pytest.approx(1)


def test_equal_rows_of_a_certificate_are_written_once() -> None:
    def document(keys: int) -> dict[str, Any]:
        people = dp.dataset("people", columns={"key": [f"k{i:03}" for i in range(keys)]})
        parts = people.partition("key")
        plan = dp.Pipeline(
            parts={
                key: each.count().release(dp.Laplace(scale=1 if key == "k000" else 2))
                for key, each in parts
            },
            sums={f"n{i}": people.count().release(dp.Laplace(scale=9)) for i in range(keys)},
        )
        certificate = plan.certify()
        written = certificate.to_document()
        read = dp.Certificate.from_json(certificate.to_json())
        assert read == certificate
        assert list(read.nodes) == list(certificate.nodes)
        assert dp.verify(read).holds
        return written

    small, large = document(30), document(90)
    assert len(small["nodes"]) == len(large["nodes"]) == 3  # the part of the worst world apart
    for change in (
        lambda rows: rows[1]["node"]["each"].reverse(),
        lambda rows: rows[1]["node"]["each"].pop(),
        lambda rows: rows[1]["region"]["each"][5].append("age = 3"),
        lambda rows: rows[2].update(node="n0"),
        lambda rows: rows[2]["node"].update(each=[]),
        lambda rows: rows[2]["node"].update(each=[1] * 90),
        lambda rows: rows[2].update(region={"each": [["a"]]}),
        lambda rows: rows[2].update(share=0.0),
    ):
        forged = copy.deepcopy(large)
        change(forged["nodes"])
        try:
            assert not dp.verify(dp.Certificate.from_document(forged)).holds
        except dp.DocumentError:
            continue
