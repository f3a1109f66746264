"""The entries of a ledger: how they are written, read and chained.

An *entry* is a mapping of JSON values with a ``kind``:

=============  =================================================================================
``open``       the format, the budget, the accountant and its theorem; the first entry, and the
               only such
``spend``      what is about to be released (a plan document, see `plans.plan_fields`), which of
               its nodes are paid for, and what they cost, place by place
``release``    the values that were released for an earlier spend, for later steps that ask for them
=============  =================================================================================

Each has a ``number`` (its position), ``previous`` (the hash of the entry before it) and ``hash``
(of everything else in it). Whatever is changed, left out, put in or moved breaks this chain.

In reading order: the three kinds, written and read; released values as JSON and back; the chain.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import os
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from accountants import DomainError, PrivacyLoss
from accountants.document import from_document, to_document
from accountants.terms import Spend
from adaptive_dp.graph.errors import DeclarationError, LedgerError
from adaptive_dp.graph.nodes import Node
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.session.budget import Account, Costs, PartPath
from adaptive_dp.session.plans import Declarations, plan_fields

Entry = dict[str, Any]

FORMAT = "adaptive-dp/ledger/3"
"""The format of the entries. It changes with anything in their bytes or their meaning; a ledger of
another format is refused by name."""


def unusable(reason: str) -> LedgerError:
    """Return the error of a ledger that cannot be used."""
    return LedgerError(f"the ledger cannot be used: {reason}")


# --- The three kinds of entries ----------------------------------------------------------------


def open_entry(account: Account, others: Sequence[Entry]) -> Entry | None:
    """Return the first entry of a ledger; None where the ledger has the same one already.

    Raises
    ------
    LedgerError
        If the ledger was opened with another budget or accountant.
    """
    budget = account.budget
    mine: Entry = {
        "kind": "open",
        "format": FORMAT,
        "budget": [budget.epsilon, budget.delta, budget.delta_reserve],
        "accountant": account.accountant,
        "theorem": account.unit.theorem,
    }
    # an empty ledger: its first session writes the opening entry
    if not others:
        return mine
    check_format(others[0].get("format"))
    # these fields alone: hash, time and author of the entry may differ
    theirs = {key: others[0].get(key) for key in mine}
    if theirs != mine:
        raise unusable(
            f"it was opened with budget {theirs['budget']} (epsilon, delta, delta_reserve) and the "
            f"accountant {theirs['accountant']!r}; open the session with the same"
        )
    return None


def check_format(given: Any) -> None:
    """Refuse a ledger of another format.

    Raises
    ------
    LedgerError
        If it was written by another version.
    """
    if given != FORMAT:
        raise unusable(
            f"it has the format {given!r}, and this version of the library reads {FORMAT!r} alone; "
            "read it with the version that wrote it, and open a new one with what remains of its "
            "budget"
        )


def spend_entry(
    plan: Pipeline,
    new: Sequence[Node],
    costs: Costs,
    offered: Collection[str],
    *,
    data: Declarations,
    name: str,
    part: PartPath,
    edition: str,
) -> Entry:
    """Return the entry of a step that is about to be released.

    Parameters
    ----------
    plan
        The step.
    new
        The releases and loops that it pays for.
    costs
        Of those, at places without the edition; see `in_edition`.
    offered
        The digests that the entries before it offer.
    data
        The declarations of the data sets that the step comes from.
    name
        Of the step.
    part
        In which it was made.
    edition
        Of the session's data.

    Raises
    ------
    DeclarationError
        If a loss has no form in a ledger.
    """
    return {
        "kind": "spend",
        "name": name,
        # the part that pays, with the shares of those around it, and the state of the data
        "part": part[-1][0] if part else "",
        "shares": [share for _, share in part],
        "edition": edition,
        "data": {k: list(v) for k, v in data.items()},
        # nodes that an earlier entry offers are not written again
        **plan_fields(plan, offered),
        # what is paid for, by digest: its release entry may have values of these alone
        "releases": [node.digest for node in new],
        # each loss with its place, so that totals can be recomputed without the plan
        "costs": [[[list(s) for s in place], _loss_to_json(x)] for place, x in costs],
    }


def release_entry(number: int, values: Mapping[str, Any]) -> Entry:
    """Return the entry of what was released for the spend of a number; see `values_to_json`."""
    return {"kind": "release", "of": number, "values": values}


def _loss_to_json(loss: PrivacyLoss) -> dict[str, Any]:
    """Return a loss in the form of a ledger.

    Raises
    ------
    DeclarationError
        If it has no form there, since its class is not the library's.
    """
    try:
        return to_document(Spend(loss))
    except DomainError as error:
        raise DeclarationError(
            f"{type(loss).__name__} cannot be written into a ledger, which takes losses of the "
            "library alone, so that everyone can recompute what was spent; let the mechanism's "
            "loss() return one of accountants.losses that bounds it (Pure, Approximate, RenyiCurve "
            f"or PrivacyProfile, for example), or run the plan without a session ({error})"
        ) from None


def check_entry(entry: Entry, number: int) -> None:
    """Refuse an entry that is not the next one, or of a kind that this version does not read.

    Raises
    ------
    LedgerError
        If it is: the entry could be a spend that would not be counted.
    """
    own_number, kind = entry["number"], entry["kind"]
    if own_number != number:
        raise unusable("entries are missing, or out of order")
    # the first entry opens the ledger, and no other does; an unknown kind could be a spend, so it
    # is refused, not skipped
    if kind not in (("spend", "release") if number else ("open",)):
        raise unusable(
            f"entry {number} is of the kind {kind!r}, which this version of the library does not "
            "read there; it could be a spend"
        )


def costs_in(entry: Mapping[str, Any]) -> Costs:
    """Return the costs that a spend of a ledger claims, at the places of its edition of the data.

    Raises
    ------
    DomainError, LedgerError
        If its costs cannot be read.
    """
    costs = []
    for place, spend in entry["costs"]:
        term = from_document(spend)
        if not isinstance(term, Spend):
            raise unusable("a cost is not a loss")
        # converted, so that JSON brings in no other type of a name or an index
        costs.append((tuple((str(p), int(i)) for p, i in place), term.loss))
    return in_edition(tuple(costs), str(entry["edition"]))


def part_in(entry: Mapping[str, Any]) -> PartPath:
    """Return the part that a spend of a ledger claims to be made in, with its shares.

    Raises
    ------
    LedgerError
        If no session writes such a part, or such shares.
    """
    part, shares = entry["part"], entry.get("shares", [])
    if not isinstance(part, str):
        raise unusable(f"a spend's part must be a str, got {part!r}")
    # names are nested by "/", one share for each level
    words = part.split("/") if part else []
    names = ["/".join(words[: i + 1]) for i in range(len(words))]
    readable = isinstance(shares, list) and all(
        isinstance(s, int | float) and not isinstance(s, bool) and 0 < s <= 1 for s in shares
    )
    # a part's share is never above that of the part around it, so shares do not increase inwards
    if not (readable and len(shares) == len(names) and shares == sorted(shares, reverse=True)):
        raise unusable(
            f"a spend in the part {entry['part']!r} says the shares {shares!r}, and not one in "
            "(0, 1] for each part around it, none larger than the one before"
        )
    return tuple(zip(names, map(float, shares), strict=True))


def in_edition(costs: Costs, edition: str) -> Costs:
    """Return costs at the places of an edition of the data: those of two editions add up.

    A unit that is in one part in one edition may be in any part in another.
    """
    # each edition is the one part of a partition of its own name, and costs of two partitions add
    # up; only the parts of one partition exclude each other
    return tuple((((f"edition {edition}", 0), *at) if at else at, loss) for at, loss in costs)


# --- Released values as JSON, and back ---------------------------------------------------------


def value_to_json(value: Any) -> Any:
    """Return a released value as JSON values; arrays, and numbers that JSON lacks, under a tag.

    Raises
    ------
    TypeError
        If it holds anything but numbers, str, lists, tuples, mappings by str and arrays of such.

    Examples
    --------
    >>> value_from_json(value_to_json({"a": np.array([1.0, np.nan])}))
    {'a': array([ 1., nan])}
    >>> value_from_json(value_to_json(np.float32(0.5)))
    np.float32(0.5)
    """
    # values that JSON has
    if value is None or isinstance(value, bool | str | int):
        return value
    # kinds: bool, signed and unsigned ints, floats and str; only these come back exactly
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        tag = "array" if isinstance(value, np.ndarray) else "scalar"
        return {tag: value_to_json(value.tolist()), "dtype": value.dtype.str}
    if isinstance(value, float):
        # JSON has no NaN and no infinities, so these are str under a tag
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [value_to_json(v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [value_to_json(v) for v in value]}
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        # under a tag, so that no key of the user's can be taken for one
        return {"mapping": {k: value_to_json(v) for k, v in value.items()}}
    raise TypeError(f"a {type(value).__name__} has no form in a ledger")


def value_from_json(value: Any) -> Any:
    """Return what `value_to_json` wrote."""
    if isinstance(value, list):
        return [value_from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "tuple" in value:
        return tuple(value_from_json(v) for v in value["tuple"])
    if "mapping" in value:
        return {k: value_from_json(v) for k, v in value["mapping"].items()}
    if "scalar" in value:
        # indexing by () makes a NumPy scalar of an array without dimensions
        return np.asarray(value_from_json(value["scalar"]), dtype=np.dtype(value["dtype"]))[()]
    return np.asarray(value_from_json(value["array"]), dtype=np.dtype(value["dtype"]))


# --- The chain ---------------------------------------------------------------------------------

GENESIS = "0" * 64
"""The hash before the first entry."""


def hashed_json(entry: dict[str, Any]) -> str:
    """Return the JSON of an entry that is hashed: all of it but the hash itself."""
    content = {k: v for k, v in entry.items() if k != "hash"}
    # sorted keys: one str for each entry, whatever the order of its keys
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def chained(entry: dict[str, Any], number: int, previous: str) -> Entry:
    """Return the entry with its number, the hash before it, and its own.

    Examples
    --------
    >>> first = chained({"kind": "open"}, 0, GENESIS)
    >>> list(broken_entries([first])), list(broken_entries([{**first, "kind": "spend"}]))
    ([], [0])
    """
    # number and previous hash are hashed with the content, so that an entry cannot be moved
    complete = {**entry, "number": number, "previous": previous}
    return {**complete, "hash": hashlib.sha256(hashed_json(complete).encode()).hexdigest()}


def timestamped(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with when and by whom it was written, for those who read a ledger later.

    A release has no time: how long after its spend it came would tell how long private data were
    computed on. For the same reason times are integer numbers of seconds.
    """
    # a release belongs to the spend that it names, which has the time already
    if entry.get("kind") == "release":
        return entry
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**entry, "time": now, "by": f"{_user()}@{platform.node()}:{os.getpid()}"}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return str(os.getuid())


def is_chained(entry: Any, number: int, previous: Any) -> bool:
    """Return whether an entry's hash is that of its content, and it is the one at this place."""
    if not isinstance(entry, dict):
        return False
    try:
        own_hash = hashlib.sha256(hashed_json(entry).encode()).hexdigest()
    except (ValueError, TypeError, RecursionError):
        # content that is not JSON, or nested too deep, has no canonical form
        return False
    # all three: the content, the place in the ledger, and the entry before
    claimed = (entry.get("hash"), entry.get("number"), entry.get("previous"))
    # True == 1 in Python, and would stand for an entry's number
    return claimed == (own_hash, number, previous) and type(entry["number"]) is int


def broken_entries(entries: Iterable[Any]) -> Iterable[int]:
    """Yield the positions of entries that are not what was written there.

    An entry's hash must be that of its content, its number its position, and its ``previous`` the
    hash of the entry before it: whatever is changed, left out, put in or moved is detected. Two
    things are not: entries cut off at the end, and entries at the end that are replaced together
    with all their hashes. Both change the last hash: store it elsewhere, and compare.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.session.ledger import MemoryLedger
    >>> people, ledger = dp.dataset("people", columns={}), MemoryLedger()
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=ledger, people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> entries = ledger.entries()
    >>> list(broken_entries(entries))
    []
    >>> list(broken_entries([entries[0], entries[2]]))  # the spend is left out
    [1]
    """
    # compared with the hashes as they are written: one changed entry is reported, not all after it
    previous = GENESIS
    for i, entry in enumerate(entries):
        if not is_chained(entry, i, previous):
            yield i
        previous = str(entry.get("hash")) if isinstance(entry, dict) else ""
