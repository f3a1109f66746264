"""The entries of a ledger: how they are written, read and chained.

An *entry* is a mapping of JSON values with a ``kind``:

=============  =================================================================================
``open``       the format, the budget, the accountant and its theorem; the first entry, and the
               only such. A period's name, and the budgets of the periods before it, where it
               follows another ledger
``spend``      what is about to be released (a plan document, see `plans.plan_fields`), which of
               its nodes are paid for, and what they cost, place by place
``release``    the values that were released for an earlier spend, for later steps that ask for them
``budget``     a larger budget that holds from here on, and why
``close``      that nothing more is spent, and why; steps that were paid before may still release
``restore``    that all entries before come from a backup, and whether it is known to be complete
``format``     that entries from here on are of a later format (see `FORMAT`)
=============  =================================================================================

A session writes the first three kinds, the one who keeps the ledger the others. ``user`` is who an
entry was written for, where that was said; ``by`` is the process that wrote it.

Each has a ``number`` (its position), ``previous`` (the hash of the entry before it) and ``hash``
(of everything else in it). Whatever is changed, left out, put in or moved breaks this chain.

In reading order: the kinds, written and read; the terms in force; released values as JSON and back;
the chain.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import evolve, frozen

from accountants import DomainError, PrivacyLoss
from accountants.document import from_document, to_document
from accountants.terms import Spend
from adaptive_dp.graph.errors import DeclarationError, LedgerError
from adaptive_dp.graph.nodes import Node
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import visible
from adaptive_dp.session.budget import INDIVIDUAL, Account, Budget, Costs, PartPath
from adaptive_dp.session.plans import Declarations, plan_fields

Entry = dict[str, Any]

FORMAT = "adaptive-dp/ledger/4"
"""The format of the entries. It changes with anything in their bytes or their meaning; a ledger of
another format is refused by name."""
EARLIER = ("adaptive-dp/ledger/3",)
"""Formats that are read and recomputed, and spent from only after an entry of the kind ``format``.
3 has the kinds ``open``, ``spend`` and ``release`` alone, and no ``user``."""
EMPTY = (
    "is empty: it was emptied, or the process that made it was stopped. Put a backup back by "
    "`adaptive-dp ledger restore`; if nothing was ever spent from it, remove it, and make it anew "
    "by `adaptive-dp ledger create`"
)
"""What messages say of a place where a ledger should be, and is none."""
KEEPER = frozenset({"budget", "close", "restore", "format"})
"""Kinds of entries that the one who keeps a ledger writes, and no session."""


def unusable(reason: str) -> LedgerError:
    """Return the error of a ledger that cannot be used."""
    return LedgerError(f"the ledger cannot be used: {reason}")


# --- The kinds of entries ----------------------------------------------------------------------


def open_entry(account: Account, user: str | None = None, **more: Any) -> Entry:
    """Return the first entry of a ledger.

    Parameters
    ----------
    account
        With nothing spent.
    user
        Who made it.
    more
        ``period`` and ``before``, where it follows another ledger: see `ledger.create_ledger`.
    """
    return {
        "kind": "open",
        "format": FORMAT,
        "budget": _limits(account.budget),
        "accountant": account.accountant,
        "theorem": account.unit.theorem,
        **more,
        **of_user(user),
    }


def _limits(budget: Budget) -> list[float]:
    return [budget.epsilon, budget.delta, budget.delta_reserve]


def of_user(user: str | None) -> dict[str, str]:
    """Return the field of an entry that names who it was written for; none where nobody is named.

    Raises
    ------
    DeclarationError
        If it is no name.

    Examples
    --------
    >>> of_user("Ada"), of_user(None)
    ({'user': 'Ada'}, {})
    """
    if user is None:
        return {}
    if not (isinstance(user, str) and user.strip() and user.isprintable() and len(user) <= 200):
        raise DeclarationError(
            "a user is a name of at most 200 printable characters, which a ledger's entries carry; "
            f"got {user!r}"
        )
    return {"user": str(user)}


def reasoned(reason: Any) -> str:
    """Return why a keeper changes a ledger, as its entry says it.

    Raises
    ------
    DeclarationError
        If there is no reason.
    """
    if not (isinstance(reason, str) and reason.strip() and len(reason) <= 2_000):
        raise DeclarationError(
            "a ledger records why it is changed: give the reason, in at most 2,000 characters; got "
            f"{reason!r}"
        )
    return str(reason)


def budget_entry(account: Account, reason: str, user: str | None) -> Entry:
    """Return the entry of a budget that was raised; see `ledger.raise_budget`."""
    fields = {"budget": _limits(account.budget), "theorem": account.unit.theorem}
    return {"kind": "budget", **fields, "reason": reasoned(reason), **of_user(user)}


def check_raised(before: Budget, after: Budget, accountant: str) -> None:
    """Refuse a budget that is not larger than the one before in every respect.

    Notes
    -----
    What was admitted under the one before is then within the one after: a filter's limits never
    fall in epsilon, in the delta that is left for conversion, and in the delta_reserve. So all
    steps are those of one filter with the larger budget, whose theorem holds whatever the decision
    to raise it depended on. The smaller budget is promised no longer.

    Raises
    ------
    DeclarationError
        If it is not.
    """
    if accountant == INDIVIDUAL:
        raise DeclarationError(
            "under accountant='individual' records have left by the budget that they had, so it "
            "cannot be raised; make a new ledger"
        )
    # delta beside the reserve is what sums are converted at
    rests = [Fraction(each.delta) - Fraction(each.delta_reserve) for each in (before, after)]
    falls = (
        before.epsilon > after.epsilon
        or before.delta_reserve > after.delta_reserve
        or rests[0] > rests[1]
    )
    if before == after or falls:
        raise DeclarationError(
            f"a budget can only be raised: from {before} to one that is larger in some of epsilon, "
            f"delta and delta_reserve, and smaller in none; got {after}"
        )


def check_format(given: Any, *, spending: bool = False, location: str = "LEDGER") -> None:
    """Refuse a ledger of another format.

    Parameters
    ----------
    given
        The format.
    spending
        Whether entries are to be written, and not only read.
    location
        As a message names the ledger.

    Raises
    ------
    LedgerError
        If it was written by another version.
    """
    if given in EARLIER and not spending:
        return
    if given in EARLIER:
        raise unusable(
            f"it has the format {given!r} of an earlier version of the library; make a backup, and "
            f"let this version spend from it by `adaptive-dp ledger migrate {location}`: its "
            "entries stay, and earlier versions refuse it from then on"
        )
    if given != FORMAT:
        raise unusable(
            f"it has the format {given!r}, and this version of the library reads {FORMAT!r} and "
            f"{EARLIER[-1]!r}; use the version that wrote it, or a later one"
        )


@frozen
class Terms:
    """What holds for the next spend of a ledger: what its keeper's entries have left in force.

    Parameters
    ----------
    budget, accountant, theorem
        Of sessions.
    format
        Of the entries that are written.
    closed
        The entry that closed it; None while it is open.
    restored
        Those that tell that the entries before came from a backup.
    raised
        Those that raised the budget.
    """

    budget: Budget
    accountant: str
    theorem: str
    format: str
    closed: Entry | None = None
    restored: tuple[Entry, ...] = ()
    raised: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Terms:
        """Return the terms in force after all entries of a ledger.

        Raises
        ------
        LedgerError
            If they are of another format, or cannot be read.
        """
        terms: Terms | None = None
        for i, entry in enumerate(entries):
            try:
                check_entry(entry, i)
                terms = cls.begun(entry) if terms is None else terms.after(entry)
            except DeclarationError as error:
                raise unusable(f"entry {i}: {error}") from None
            except (LookupError, TypeError, ValueError, AttributeError):
                raise unusable(f"entry {i} has not the form of an entry") from None
        if terms is None:
            raise unusable(f"it {EMPTY}")
        return terms

    @classmethod
    def begun(cls, first: Entry) -> Terms:
        """Return the terms of a ledger's first entry."""
        check_format(first.get("format"))
        budget = Budget(*first["budget"])
        return cls(budget, str(first["accountant"]), str(first["theorem"]), str(first["format"]))

    def after(self, entry: Entry) -> Terms:
        """Return the terms after the next entry.

        Raises
        ------
        LedgerError, DeclarationError
            If the entry cannot come here.
        """
        kind = entry["kind"]
        if kind in ("budget", "close") and self.format != FORMAT:
            raise unusable(f"entries of the format {self.format!r} are not of the kind {kind!r}")
        # a closed ledger can still be put back, and be brought to a later format
        if self.closed is not None and kind not in ("release", "restore", "format"):
            raise unusable(f"an entry of the kind {kind!r} comes after the one that closed it")
        if kind == "budget":
            budget = Budget(*entry["budget"])
            check_raised(self.budget, budget, self.accountant)
            raised = (*self.raised, entry)
            return evolve(self, budget=budget, theorem=str(entry["theorem"]), raised=raised)
        if kind == "close":
            return evolve(self, closed=entry)
        if kind == "restore":
            return evolve(self, restored=(*self.restored, entry))
        if kind == "format":
            if entry.get("format") != FORMAT or self.format == FORMAT:
                raise unusable(f"it goes from {self.format!r} to {entry.get('format')!r}")
            return evolve(self, format=FORMAT)
        return self

    def notes(self) -> list[str]:
        """Return what its keeper did to a ledger, in lines, for those who read it."""
        lines = [f"raised   its budget was raised {told(entry)}" for entry in self.raised]
        for entry in self.restored:
            proof = "" if "head" in entry else "; WHAT WAS SPENT AFTER THE BACKUP IS NOT COUNTED"
            lines.append(
                f"restored from a backup of {entry.get('entries')} entries {told(entry)}{proof}"
            )
        if self.closed is not None:
            lines.append(f"closed   {told(self.closed)}")
        return lines

    def check(self, account: Account, location: str) -> None:
        """Refuse a session with other terms.

        Raises
        ------
        LedgerError
            If the ledger has another budget or accountant, or the format of another version.
        """
        check_format(self.format, spending=True, location=location)
        mine = (account.budget, account.accountant, account.unit.theorem)
        if mine == (self.budget, self.accountant, self.theorem):
            return
        how = f"; its budget was raised {told(self.raised[-1])}" if self.raised else ""
        raise unusable(
            f"it was opened with budget {_limits(self.budget)} (epsilon, delta, delta_reserve) and "
            f"the accountant {self.accountant!r}{how}; open the session with the same"
        )


def told(entry: Entry) -> str:
    """Return when, by whom and why a keeper wrote an entry, as messages say it."""
    who = entry.get("user") or entry.get("by")
    time = str(entry.get("time", ""))[:10]
    return visible(f"on {time} by {who}: {entry.get('reason', '')}").rstrip(": ")


def check_head(entries: Sequence[Any], head: Any) -> None:
    """Refuse a ledger that does not have the entry with which it ended once.

    Parameters
    ----------
    entries
        All of the ledger.
    head
        The hash that its last entry had; None where none was kept.

    Raises
    ------
    DeclarationError
        If it is not a hash.
    LedgerError
        If no entry has it: the ledger is an older copy, or another one.
    """
    if head is None:
        return
    if not (isinstance(head, str) and re.fullmatch(r"[0-9a-f]{64}", head)):
        raise DeclarationError(
            "head is the hash of an entry that was once a ledger's last: 64 hexadecimal digits, as "
            f"`session.head` or `adaptive-dp ledger verify` print it; got {head!r}"
        )
    if all(entry.get("hash") != head for entry in entries):
        raise unusable(
            f"no entry has the hash {head}, with which it ended once: it is an older copy, or "
            "another ledger, and what was spent since would be available again. Restore the newest "
            "backup (`adaptive-dp ledger restore`)"
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
    user: str | None = None,
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
    user
        Of the session.

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
        **of_user(user),
    }


def release_entry(number: int, values: Mapping[str, Any], user: str | None = None) -> Entry:
    """Return the entry of what was released for the spend of a number; see `values_to_json`."""
    return {"kind": "release", "of": number, "values": values, **of_user(user)}


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
    if kind not in (("spend", "release", *KEEPER) if number else ("open",)):
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
