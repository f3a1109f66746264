"""The chain of a ledger: each entry carries the hash of the one before it."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

GENESIS = "0" * 64
"""What stands before the first entry."""


def canonical(entry: dict[str, Any]) -> str:
    """Return an entry as text, the same whatever order its keys came in."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False)


def linked(entry: dict[str, Any], number: int, previous: str) -> dict[str, Any]:
    """Return the entry with its number, the hash before it, and its own.

    Examples
    --------
    >>> first = linked({"kind": "open"}, 0, GENESIS)
    >>> list(broken([first])), list(broken([{**first, "kind": "spend"}]))
    ([], [0])
    """
    whole = {**entry, "number": number, "previous": previous}
    return {**whole, "hash": hashlib.sha256(canonical(whole).encode()).hexdigest()}


def stamped(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with when and by whom it was written, for those who read a ledger later.

    A release has no stamp: how long after its spend it came would tell how long private data were
    computed on. For the same reason times are whole seconds.
    """
    if entry.get("kind") == "release":
        return entry
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**entry, "time": now, "by": f"{_user()}@{platform.node()}:{os.getpid()}"}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return str(os.getuid())


def fits(entry: Any, number: int, previous: Any) -> bool:
    """Whether an entry's hash is that of its content, and it is the one at this place."""
    if not isinstance(entry, dict):
        return False
    own = {k: v for k, v in entry.items() if k != "hash"}
    try:
        found = hashlib.sha256(canonical(own).encode()).hexdigest()
    except (ValueError, TypeError, RecursionError):
        return False
    claimed = (entry.get("hash"), entry.get("number"), entry.get("previous"))
    return claimed == (found, number, previous) and type(entry["number"]) is int


def broken(entries: Iterable[Any]) -> Iterable[int]:
    """Yield the positions of entries that are not what was written there.

    An entry's hash must be that of its content, its number its position, and what it says came
    before must have: whatever is changed, left out, put in or moved shows. Two things cannot show:
    entries cut off at the end, and an end that is forged whole, with every hash in it. Both change
    the last hash: keep it elsewhere, and compare.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.session.ledger import MemoryLedger
    >>> people, ledger = dp.dataset("people", columns={}), MemoryLedger()
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=ledger, people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> entries = ledger.entries()
    >>> list(broken(entries))
    []
    >>> list(broken([entries[0], entries[2]]))  # the spend is left out
    [1]
    """
    previous = GENESIS
    for i, entry in enumerate(entries):
        if not fits(entry, i, previous):
            yield i
        previous = str(entry.get("hash")) if isinstance(entry, dict) else ""
