"""Plans in a ledger's spends: shared parts are written once, and plans are read back equal."""

from __future__ import annotations

import json

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.session import Budget, Session
from adaptive_dp.session.entries import GENESIS, chained
from adaptive_dp.session.ledger import MemoryLedger
from adaptive_dp.session.plans import LedgerPlans, costs_for, plan_fields
from adaptive_dp.session.recompute import exported, imported, recomputed

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B"]})
ROWS = {"age": [float(i % 100) for i in range(200)], "region": ["AB"[i % 2] for i in range(200)]}


def total(*values):
    return sum(values)


def open_session(ledger, **more):
    return Session(budget=Budget(50.0, 1e-6), ledger=ledger, people=ROWS, **more)


def ages(i: int):
    return PEOPLE["age"].clip(0, 50 + i).sum().release(dp.Gaussian(sigma=1e4))


def spends(ledger):
    return [entry for entry in ledger.entries() if entry["kind"] == "spend"]


def random_plan(rng: np.random.Generator, before: list):
    """A step over earlier ones: posts, releases with and without twins, loops, samples."""
    kind = rng.integers(7)
    old = [before[rng.integers(len(before))] for _ in range(rng.integers(1, 3))] if before else []
    table = dict(PEOPLE.partition("region"))["AB"[rng.integers(2)]] if rng.integers(2) else PEOPLE
    query = table["age"].clip(0, 40.0 + int(rng.integers(4))).sum()
    noise = dp.Gaussian(sigma=1e4)
    if kind == 0:  # twins
        return dp.post(total, query.release(noise), query.release(noise), *old)
    if kind == 1:
        return dp.repeat(
            lambda state, own: dp.post(total, state, own.release(noise), *old), 2, query, start=0.0
        )
    if kind == 2:
        return dp.post(total, table.sample(rate=0.5).count().release(noise), *old)
    if kind == 3 and old:
        return dp.post(total, *old, query.release(noise))
    if kind == 4:
        return dp.post(total, PEOPLE.count().release(noise), *old)
    return query.release(noise)


def summary(plan: Pipeline) -> tuple:
    structure = plan.structure
    paid = [n for n in structure if not n.loops and n.handle.operation.kind != "state"]
    costs = costs_for(structure, [n for n in paid if n.handle.operation.random])
    return sorted(n.digest for n in structure), sorted(map(repr, costs)), plan.fingerprint


@pytest.mark.parametrize("seed", range(6))
def test_shared_parts_are_read_as_if_written_in_full(seed):
    rng = np.random.default_rng([11, seed])
    before, offered, plans, lengths = [], set(), LedgerPlans(), []
    for number in range(14):
        plan = Pipeline(value=random_plan(rng, before))
        entry = json.loads(json.dumps({"number": number, **plan_fields(plan, offered)}))
        read = plans.read(entry)
        mine, theirs = summary(plan), summary(read)
        assert set(mine[0]) == set(theirs[0])
        assert mine[1:] == theirs[1:]
        assert not set(entry["offers"].values()) & offered  # nothing is offered twice
        offered |= set(entry["offers"].values())
        before.append(plan.outputs[0][1])
        lengths.append((len(entry["plan"]["nodes"]), len(plan.to_document()["nodes"])))
    assert seed or any(short < full for short, full in lengths)


def test_a_chain_takes_a_ledger_as_long_as_itself():
    ledger = MemoryLedger()
    session = open_session(ledger)
    handle = ages(0)
    session.run(handle)
    for i in range(1, 25):
        handle = dp.post(total, handle, ages(i))
        session.run(handle)
    sizes = [len(json.dumps(entry)) for entry in spends(ledger)]
    assert max(sizes[3:]) < 1.1 * min(sizes[3:])
    verdict = recomputed(ledger.entries(), allow=[__name__])
    assert verdict.holds, verdict.reasons
    assert verdict.epsilon == session.epsilon
    again = open_session(ledger)
    assert again.pipeline.fingerprint == session.pipeline.fingerprint
    assert len(again.pipeline.adaptive) == 25
    # a step of the second session reads on, and the first goes on from there
    more = dp.post(total, handle, ages(30))
    again.run(more)
    session.run(dp.post(total, more, ages(31)))
    assert recomputed(ledger.entries(), allow=[__name__]).holds
    assert session.pipeline.fingerprint == open_session(ledger).pipeline.fingerprint
    assert dp.verify(session.certificate(), allow=[__name__]).holds


def test_a_release_once_more_is_named_by_its_digest():
    ledger = MemoryLedger()
    session = open_session(ledger)
    handle = ages(0)
    session.run(handle)
    session.run(handle, again=True)
    first, second = spends(ledger)
    assert second["plan"]["nodes"] == []
    assert list(second["reads"].values()) == first["releases"] == second["releases"]
    verdict = recomputed(ledger.entries())
    assert verdict.holds
    assert verdict.spent == session.spent
    # two of them, in sessions that did not know: drawn twice, and so in the plan twice
    for each in (session, open_session(ledger)):
        assert sum(n.handle.operation.kind == "release" for n in each.pipeline.structure) == 2


def forged(ledger, change):
    """The entries with one changed, and every hash made to fit."""
    entries, previous = [], GENESIS
    for number, entry in enumerate(json.loads(json.dumps(ledger.entries()))):
        change(entry)
        own = {k: v for k, v in entry.items() if k not in ("hash", "number", "previous")}
        entries.append(chained(own, number, previous))
        previous = entries[-1]["hash"]
    return entries


def test_references_that_do_not_match_are_detected():
    ledger = MemoryLedger()
    session = open_session(ledger)
    first, other = ages(0), ages(1)
    session.run(first, name="first")
    session.run(other, name="other")
    session.run(dp.post(total, first, ages(2)), name="last")
    assert recomputed(ledger.entries(), allow=[__name__]).holds
    one, two, _ = (entry["offers"] for entry in spends(ledger))

    def unknown(entry):
        if entry.get("name") == "last":
            entry["reads"] = dict.fromkeys(entry["reads"], "0" * 64)

    def swapped(entry):  # another release, made before too: then the digests above it differ
        if entry.get("name") == "last":
            entry["reads"] = {name: next(iter(two.values())) for name in entry["reads"]}

    def lying(entry):
        if entry.get("name") == "other":
            entry["offers"] = {name: next(iter(one.values())) for name in entry["offers"]}

    def missing(entry):
        if entry.get("name") == "first":
            entry["offers"] = {}

    for change, value in (
        (unknown, "0" * 64),
        (swapped, "no node"),
        (lying, "no node"),
        (missing, next(iter(one.values()))),
    ):
        verdict = recomputed(forged(ledger, change), allow=[__name__])
        assert not verdict.holds
        assert any(value in reason for reason in verdict.reasons), (change, verdict.reasons)


def test_ledgers_of_another_form_are_refused_clearly():
    ledger = MemoryLedger()
    open_session(ledger).run(ages(0))

    def older(entry):
        if entry["kind"] == "open":
            entry["format"] = "adaptive-dp/ledger/1"

    entries = forged(ledger, older)
    old = MemoryLedger()
    old._entries = entries
    with pytest.raises(LedgerError, match="'adaptive-dp/ledger/1'"):
        open_session(old)
    assert "'adaptive-dp/ledger/1'" in recomputed(entries).reasons[0]
    document = {**exported(entries), "format": "adaptive-dp/ledger/1"}
    lines = "\n".join(json.dumps(entry) for entry in entries)
    for text in (json.dumps(document), lines):
        with pytest.raises(LedgerError, match="'adaptive-dp/ledger/1'"):
            imported(text)


def test_a_loop_that_reads_a_query_written_twice_keeps_its_digest_in_a_document():
    def query():
        return PEOPLE["age"].clip(0, 40).sum()

    def looped(*old):
        noise = dp.Gaussian(sigma=1e4)
        return dp.repeat(
            lambda s, own: dp.post(total, s, own.release(noise), *old), 2, query(), start=0.0
        )

    plan = Pipeline(value=looped(looped()))  # the second query is made after the first loop
    assert dp.load(plan.to_document()).fingerprint == plan.fingerprint
