"""The commands ``adaptive-dp ledger``: make, show, export, verify and keep a session's ledger."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import evolve

from accountants.loss import short
from accountants.numerics import shown
from adaptive_dp.cli import commands
from adaptive_dp.cli.output import FAILS, replace_file, say, writable
from adaptive_dp.cli.plan_files import content_of, importable
from adaptive_dp.graph.certificate import LIMIT, table
from adaptive_dp.graph.errors import DocumentError, LedgerError
from adaptive_dp.graph.values import plain, visible
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.entries import EMPTY, Terms, broken_entries, costs_in
from adaptive_dp.session.ledger import (
    close_ledger,
    create_ledger,
    migrate_ledger,
    opened,
    raise_budget,
    restored,
)
from adaptive_dp.session.postgres import roles_sql
from adaptive_dp.session.recompute import (
    UNREADABLE,
    Recomputed,
    exported,
    imported,
    recomputed,
)

COLUMNS = {
    "number": "entry",
    "time": "time (UTC)",
    "name": "name",
    "part": "part",
    "what": "what",
    "cost": "cost",
    "released": "released",
    "epsilon": "epsilon so far",
    "left": "left",
    "user": "user",
    "by": "by",
}
"""What is shown of a spend: its name in JSON, and above the table."""


def show(options: Namespace) -> int:
    """Print the spends of a ledger, with the epsilon after each."""
    entries = _entries(options.ledger)
    recomputation = recomputed(entries, allow=options.allow)
    rows = list(_rows(entries, recomputation))
    if options.json:
        document = {"steps": [dict(zip(COLUMNS, row, strict=True)) for row in rows]}
        say(json.dumps(document | _summary(recomputation)))
        return 0
    # columns that are left out where every row says this
    usual = {"part": "", "released": "yes", "user": ""}
    columns = [
        i
        for i, name in enumerate(COLUMNS)
        if name not in usual or any(row[i] != usual[name] for row in rows)
    ]
    header = [list(COLUMNS.values())[i] for i in columns]
    cells = [[visible(row[i]) for i in columns] for row in rows]
    rest = "pass --all to see them"
    say(
        table(header, cells, most=None if options.all else LIMIT, rest=rest)
        if rows
        else "no spends"
    )
    say("\n" + "\n".join(visible(line) for line in _lines(recomputation)))
    return 0


def create(options: Namespace) -> int:
    """Make a ledger, and print its head."""
    budget = Budget(options.epsilon, options.delta, options.delta_reserve)
    head = create_ledger(
        options.ledger,
        budget,
        options.accountant,
        user=options.user,
        period=options.period,
        follows=options.follows,
    )
    return _kept(options, head, f"made, with all of its budget: {budget}")


def raise_(options: Namespace) -> int:
    """Raise the budget of a ledger, and print its head."""
    now = Terms.of(_entries(options.ledger)).budget
    given = {
        name: value
        for name in ("epsilon", "delta", "delta_reserve")
        if (value := getattr(options, name)) is not None
    }
    budget = evolve(now, **given)
    head = raise_budget(options.ledger, budget, reason=options.reason, user=options.user)
    return _kept(options, head, f"raised from {now} to {budget}")


def close(options: Namespace) -> int:
    """Close a ledger, and print its head."""
    head = close_ledger(options.ledger, reason=options.reason, user=options.user)
    return _kept(options, head, "closed: nothing more is spent from it")


def migrate(options: Namespace) -> int:
    """Bring a ledger to this version, and print its head."""
    head = migrate_ledger(options.ledger, user=options.user)
    return _kept(options, head, "migrated: earlier versions of the library refuse it from now on")


def backup(options: Namespace) -> int:
    """Write a ledger's entries to a file, which then has all of them or stays as it was."""
    entries = _entries(options.ledger)
    for number in broken_entries(entries):
        raise LedgerError(
            f"entry {number} of the ledger is not what was written there; `adaptive-dp ledger "
            "export` prints it as it is"
        )
    if not entries:
        raise LedgerError(f"the ledger {EMPTY}")
    writable(options.file)
    replace_file(options.file, "".join(f"{json.dumps(entry)}\n" for entry in entries))
    said = f"{len(entries)} entries in {options.file}"
    return _kept(options, entries[-1]["hash"], said, entries=len(entries))


def restore(options: Namespace) -> int:
    """Make a ledger of a backup, and print its head."""
    entries = imported(content_of(options.file))
    if entries is None:
        raise LedgerError(f"{options.file} is not a backup or an export of a ledger")
    head = restored(
        options.ledger,
        entries,
        head=options.head,
        reason=options.without_head,
        user=options.user,
    )
    proof = "" if options.head else "; what was spent after the backup is not counted"
    said = f"made of the {len(entries)} entries of {options.file}{proof}"
    return _kept(options, head, said, entries=len(entries))


def roles(options: Namespace) -> int:
    """Print SQL that gives a ledger's table to an owner, and others rights to append or to read."""
    sql = roles_sql(
        options.schema, owner=options.owner, analyst=options.analysts, reader=options.readers
    )
    say(json.dumps({"sql": sql}) if options.json else sql)
    return 0


def _kept(options: Namespace, head: str, said: str, **more: Any) -> int:
    """Print what was done to a ledger, and its last hash."""
    say(json.dumps({"head": head, **more}) if options.json else f"{visible(said)}\nhead {head}")
    return 0


def export(options: Namespace) -> int:
    """Print a ledger: an entry a line, or with ``--json`` one document."""
    entries = _entries(options.ledger)
    try:
        if options.json:
            text = json.dumps(exported(entries), allow_nan=False)
        else:
            text = "\n".join(json.dumps(entry, allow_nan=False) for entry in entries)
    # tried in JSON's strict form: NaN and infinity are not written by an honest ledger
    except ValueError:
        raise LedgerError(
            f"{options.ledger} has numbers that JSON does not have: it was changed; "
            "`adaptive-dp ledger verify` says where"
        ) from None
    say(text)
    return 0


def verify(options: Namespace) -> int:
    """Print whether the entries are those that were written, and cost what they say."""
    entries = _entries(options.ledger)
    return verified(entries, options.head, options.allow, as_json=options.json)


def verified(entries: list[Any], head: str | None, allow: Collection[str], *, as_json: bool) -> int:
    """Print whether entries hold, and return the exit code."""
    recomputation = recomputed(entries, head=head, allow=allow)
    if as_json:
        say(json.dumps(_summary(recomputation)))
    elif recomputation.holds:
        say("holds: every spend costs at least what its plan costs, recomputed")
        say("\n".join(visible(line) for line in _lines(recomputation)))
    else:
        say("\n  ".join(["does not hold:", *map(visible, recomputation.reasons)]))
    return 0 if recomputation.holds else FAILS


def _entries(place: str) -> list[dict[str, Any]]:
    """Return the entries of a ledger as they are, whether they hold or not."""
    with opened(place) as ledger:
        # as they are, unchecked: the commands report what does not hold instead of refusing to open
        return ledger.unchecked()


def _summary(recomputation: Recomputed) -> dict[str, Any]:
    budget = recomputation.budget
    names = ("holds", "reasons", "entries", "spends", "head", "epsilon")
    document = {name: plain(getattr(recomputation, name)) for name in names}
    if budget is not None:
        document["budget"] = {"epsilon": budget.epsilon, "delta": budget.delta}
        document["left"] = recomputation.left
    document["words"], document["notes"] = recomputation.words, list(recomputation.notes)
    if recomputation.together is not None:
        document["period"], document["together"] = recomputation.period, recomputation.together
    document["parts"] = {
        name: {"share": part.share, "epsilon": plain(part.epsilon), "left": part.left}
        for name, part in recomputation.parts.items()
    }
    return document


def _lines(recomputation: Recomputed) -> Iterator[str]:
    if recomputation.budget is not None:
        budget, delta = recomputation.budget.epsilon, recomputation.budget.delta
        yield (
            f"{recomputation.spends} spends, epsilon {_up(recomputation.epsilon)} of {_up(budget)} "
            f"at delta = {_up(delta)}, {_percent(recomputation.left)} left, by "
            f"{recomputation.theorem}"
        )
        for name, part in recomputation.parts.items():
            yield (
                f"part {name!r}: {_up(part.share)} of the budget, epsilon {_up(part.epsilon)} at "
                f"delta = {_up(part.share * delta)}, {_percent(part.left)} of it left"
            )
        if recomputation.spends:
            yield recomputation.words
        if recomputation.together is not None:
            epsilon, delta_ = map(_up, recomputation.together)
            names = [*(name for name, *_ in recomputation.before), recomputation.period]
            yield (
                f"with the ledgers before it ({', '.join(name or 'no name' for name in names)}): "
                f"epsilon {epsilon} at delta = {delta_} to a person who is in all of them"
            )
    yield from recomputation.notes
    # a spend that was paid is counted, whether or not its values were released
    lost = recomputation.spends - len(recomputation.released)
    if lost:
        yield f"{lost} paid and not released: stopped in between, or still at work"
    yield f"{recomputation.entries} entries, the last with the hash {recomputation.head}"
    yield from (f"DOES NOT HOLD: {reason}" for reason in recomputation.reasons)


# what is spent is rounded up and what is left down: no line promises too much
def _up(value: float) -> str:
    return shown(value, upward=True)


def _percent(share: float) -> str:
    return f"{shown(100 * share, upward=False, digits=3)}%"


def _rows(entries: list[dict[str, Any]], recomputation: Recomputed) -> Iterator[tuple[str, ...]]:
    """Yield a row of `COLUMNS` for each spend; what cannot be read of a forged entry is '?'."""
    offered: dict[str, str] = {}
    for i, entry in enumerate(entries):
        if entry.get("kind") != "spend":
            continue
        # also of entries before: a later plan may refer to nodes by their digest
        offered |= _offered(entry)
        # None, shown as "?", where the recomputation did not get to this entry
        epsilon, left = recomputation.running.get(i, (None, None))
        yield (
            str(i),
            str(entry.get("time", "")),
            str(entry.get("name", "")),
            str(entry.get("part", "")),
            _what(entry, offered),
            _cost(entry),
            "yes" if i in recomputation.released else "no",
            "?" if epsilon is None else _up(epsilon),
            "?" if left is None else _percent(left),
            str(entry.get("user", "")),
            str(entry.get("by", "")),
        )


def _what(entry: Mapping[str, Any], offered: Mapping[str, str]) -> str:
    """Return what a step releases, in a few words.

    Parameters
    ----------
    entry
        The spend.
    offered
        What the nodes of this and of earlier entries release, by digest.
    """
    try:
        # a loop offers '' and is left out of the words
        names = [offered[digest] for digest in entry["releases"] if offered.get(digest) != ""]
    except (KeyError, TypeError):  # a forged entry, or a plan with twins, which is written whole
        names = list(_release_names(entry))
    return _first_two(names) or "?"


def _first_two(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _offered(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return what an entry's own nodes release, by digest; '' for a loop."""
    try:
        names = dict(_releases(entry))
        return {str(digest): names.get(name, "") for name, digest in entry["offers"].items()}
    except UNREADABLE:
        return {}


def _release_names(entry: Mapping[str, Any]) -> Iterator[str]:
    try:
        yield from (name for _, name in _releases(entry))
    except UNREADABLE:
        return


def _releases(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a plan's releases outside of loops: the id, and the query and its mechanism."""
    nodes = {node["id"]: node for node in entry["plan"]["nodes"]}
    for name, node in nodes.items():
        if node["kind"] == "release":
            mechanism = dict(node["mechanism"])
            kind = mechanism.pop("mechanism")
            parameters = ", ".join(f"{k}={v}" for k, v in mechanism.items())
            # what the mechanism releases is its first input
            query = nodes[node["inputs"][0]]["kind"]
            yield name, f"{query} by {kind}({parameters})"


def _cost(entry: Mapping[str, Any]) -> str:
    try:
        costs = costs_in(entry)
    except UNREADABLE:  # a forged entry is shown as far as it can be
        return "?"
    return _first_two([f"{short(loss)}{' in a part' if place else ''}" for place, loss in costs])


def verify_document(options: Namespace) -> int:
    """Print whether a document holds: a certificate, or the export of a ledger."""
    limits = commands.limits_of(options)
    if not (options.stranger or options.limit_seconds is not None):
        return _verify_document(options, content_of(options.certificate))
    if options.independent:
        # its modules are this library's own, and a stranger's time is not spent on them
        commands.independent_checker()

    # what parsing and recomputing take together, of whatever the file turns out to be
    def read() -> int:
        limits.check_file(options.certificate)
        text = content_of(options.certificate)
        limits.check_text(text, str(options.certificate))
        return _verify_document(options, text)

    return limits.watched(str(options.certificate), read)


def _verify_document(options: Namespace, text: str) -> int:
    """Print whether the certificate, the ledger or the proof in a text holds."""
    path = options.certificate
    if (proof := commands.proof_in(text)) is not None:
        return commands.verify_proof(proof)
    entries = imported(text)
    # no entries: the file is no export of a ledger, so it is read as a certificate below
    if entries is not None:
        if options.independent:
            raise DocumentError(f"--independent belongs to a certificate, and {path} is a ledger's")
        importable(path, options.allow)
        return verified(entries, options.head, options.allow, as_json=options.json)
    if options.head is not None:
        raise DocumentError(f"--head belongs to a ledger's export, and {path} is not one")
    return commands.verify(options, text)
