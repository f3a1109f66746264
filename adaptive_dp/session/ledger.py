"""Ledgers: append-only records of what was spent, written before anything is released.

A ledger is shared by all sessions that spend from one budget, in however many processes.
`Ledger.spend` is one transaction: it sees every entry before its own, and no other writer can come
between. When it returns, the entry is on the disk. Only then may a value be drawn: a crash can
waste budget, never lose a record of it.

What an entry says is in `adaptive_dp.session.entries`; how it gets to a disk in
`adaptive_dp.session.database`, with the two databases `sqlite` and `postgres`.

A ledger is made once, by `create_ledger`, and everything else opens what is there. So a name that
is mistyped, or a file that was deleted or emptied, is an error, and not a new ledger with all of
its budget. `raise_budget`, `close_ledger`, `migrate_ledger` and `restored` are for the one who
keeps it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, Protocol

from adaptive_dp.graph.errors import DeclarationError, LedgerError
from adaptive_dp.session.budget import Account, Budget
from adaptive_dp.session.database import DatabaseLedger
from adaptive_dp.session.entries import (
    FORMAT,
    GENESIS,
    Entry,
    Terms,
    broken_entries,
    budget_entry,
    chained,
    check_format,
    check_head,
    check_raised,
    costs_in,
    of_user,
    open_entry,
    part_in,
    reasoned,
    timestamped,
    told,
    unusable,
)
from adaptive_dp.session.postgres import PostgresLedger
from adaptive_dp.session.sqlite import SQLiteLedger


class Ledger(Protocol):
    """What a session needs of a ledger: to append in a transaction, to read, and to close.

    Examples
    --------
    `MemoryLedger`, `SQLiteLedger` and `PostgresLedger` are ledgers, and a class of yours may be:

    >>> import adaptive_dp as dp
    >>> class PrintingLedger(MemoryLedger):
    ...     def spend(self, seen, decide):
    ...         entries = super().spend(seen, decide)
    ...         print(*(entry["kind"] for entry in entries))
    ...         return entries
    >>> people, rows = dp.dataset("people", columns={}), {"id": [1, 2, 3]}
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=PrintingLedger(), people=rows) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    open
    spend
    release
    """

    def spend(self, seen: int, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Append one entry, in a transaction that no other writer can enter.

        Parameters
        ----------
        seen
            How many entries the caller has read.
        decide
            Gets the entries after those, and returns the one to append; None, or an exception,
            appends nothing.

        Returns
        -------
        list of dict
            The entries after those that were seen, the new one last. They are on the disk.

        Raises
        ------
        LedgerError
            If the ledger cannot be read or written, or was changed in the meantime.
        """
        ...

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries from a number on."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class MemoryLedger:
    """A ledger in memory, which lives as long as its process: for a session without one.

    A forked process has a copy of it, and both would spend the same budget: the child is refused.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people, budget = dp.dataset("people", columns={}), dp.Budget(1.0)
    >>> ledger, rows = MemoryLedger(), {"id": [1, 2, 3]}
    >>> with dp.Session(budget=budget, ledger=ledger, people=rows) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> [entry["kind"] for entry in ledger.entries()]
    ['open', 'spend', 'release']
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def spend(self, seen: int, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Append one entry; see `Ledger.spend`."""
        # before `decide`: a forked child must not decide on its copy of the entries
        self._check_process()
        with self._lock:
            entry = decide(self._entries[seen:])
            # once more: `decide` runs a caller's code, which may have forked, and the child must
            # not append
            self._check_process()
            if entry is not None:
                # number and previous hash are set under the lock, so that no two entries have the
                # same
                last = self._entries[-1]["hash"] if self._entries else GENESIS
                self._entries.append(chained(timestamped(entry), len(self._entries), last))
            # with the new entry: the caller has then read all up to its own
            return self._entries[seen:]

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries from a number on."""
        self._check_process()
        # a copy (a slice), so that a later append does not change the caller's list
        with self._lock:
            return self._entries[after:]

    def close(self) -> None:
        """Do nothing."""

    def _check_process(self) -> None:
        # a child has a copy of the memory, whose spends the parent would never see
        if self._pid != os.getpid():
            raise LedgerError(
                "a session without a ledger cannot be used in a forked process, which would spend "
                "its budget a second time; pass ledger=PATH, which processes share"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled; processes share one by its path or URL")


def open_ledger(ledger: Ledger | str | os.PathLike[str], *, create: bool = False) -> Ledger:
    """Return a ledger: itself, or the one at a path (SQLite) or a URL (``postgresql://...``).

    Parameters
    ----------
    ledger
        The ledger, its path or its URL.
    create
        True makes one without entries, and refuses one that is there: `create_ledger` does, and
        writes its first entry, without which no session takes it.

    Raises
    ------
    LedgerError
        If it does not exist or cannot be made, or it is not a ledger.

    Examples
    --------
    >>> open_ledger(MemoryLedger()).entries()
    []
    >>> open_ledger("privacy.db")
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LedgerError: the ledger cannot be used: there is no file ...privacy.db.
    Is its name right? If it was deleted, put a backup back by `adaptive-dp ledger restore`. A new
    ledger, with all of its budget, is made by `adaptive-dp ledger create`, or by create=True
    """
    if not isinstance(ledger, str | os.PathLike):
        # by its methods, not by its class: a ledger need not inherit from anything
        if all(callable(getattr(ledger, name, None)) for name in ("spend", "entries", "close")):
            return ledger
        raise LedgerError(f"a ledger is a path, a URL or a Ledger, got a {type(ledger).__name__}")
    return _stored(ledger, create)


def _stored(ledger: str | os.PathLike[str], create: bool = False) -> DatabaseLedger:
    place = os.fspath(ledger)
    if isinstance(place, str) and place.startswith(("postgresql://", "postgres://")):
        return PostgresLedger(place, create=create)
    # a mistyped URL must not become a file of that name
    if not isinstance(place, str) or not place or "://" in place or place.startswith("file:"):
        raise LedgerError(
            "a ledger is the path of a file, or a URL such as postgresql://host/database; got "
            f"{place!r}"
        )
    return SQLiteLedger(place, create=create)


@contextmanager
def opened(place: str | os.PathLike[str], create: bool = False) -> Iterator[DatabaseLedger]:
    """Open the ledger at a path or a URL for a moment: it is closed at the end of the block."""
    ledger = _stored(place, create)
    try:
        yield ledger
    finally:
        ledger.close()


# --- For the one who keeps a ledger ------------------------------------------------------------


def create_ledger(
    place: str | os.PathLike[str],
    budget: Budget,
    accountant: str = "best",
    *,
    user: str | None = None,
    period: str | None = None,
    follows: str | os.PathLike[str] | None = None,
) -> str:
    """Make a ledger, with all of its budget, and return its head.

    Parameters
    ----------
    place
        A path or a URL at which there is none.
    budget, accountant
        Of its sessions.
    user
        Who makes it.
    period
        What the budget is for, such as ``"2026"``; needed where the ledger follows another.
    follows
        The ledger of the period before, which is closed. The new one names the budgets of all
        periods before its own, so that what they promise together can be read from it: to a person
        in the data of all of them, the sum of their epsilons at the sum of their deltas.

    Raises
    ------
    LedgerError
        If there is a ledger already, it cannot be made, or the one before was closed for another
        period.
    DeclarationError
        If a parameter is out of its domain.

    Examples
    --------
    >>> import tempfile
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     head = create_ledger(f"{folder}/a.db", dp.Budget(1.0), user="Ada")
    ...     with dp.Session(budget=dp.Budget(1.0), ledger=f"{folder}/a.db", head=head) as session:
    ...         print(session.head == head)
    ...     head = create_ledger(
    ...         f"{folder}/b.db", dp.Budget(0.5), period="2027", follows=f"{folder}/a.db"
    ...     )
    True
    """
    account = Account(budget, accountant)
    named: dict[str, Any] = {} if period is None else {"period": _period(period)}
    entry = open_entry(account, user, **named)
    if follows is None:
        with opened(place, create=True) as ledger:
            return str(ledger.spend(0, lambda _: entry)[-1]["hash"])
    if period is None:
        raise DeclarationError("a ledger that follows another has a period: name it, such as 2026")
    # The one before is closed first: two that can both be spent from would be two budgets for one
    # period. Where this process is stopped in between, the same command goes on from there.
    with opened(follows) as before:
        entries = before.entries()
        closed = Terms.of(entries).closed
        if closed is None:
            _check_free(place)
            written = before.spend(
                0, partial(_closing, f"the period {period} follows", user, period)
            )
            entries, closed = written, written[-1]
        if closed.get("next") != period:
            raise unusable(
                f"{before.location} was closed {told(closed)}"
                + (f", for the period {closed['next']!r}" if "next" in closed else "")
                + "; what follows it must be of that period"
            )
    first, terms = entries[0], Terms.of(entries)
    limits = [terms.budget.epsilon, terms.budget.delta]
    entry["before"] = [
        *first.get("before", []),
        [str(first.get("period", "")), *limits, str(entries[-1]["hash"])],
    ]
    with opened(place, create=True) as ledger:
        return str(ledger.spend(0, lambda _: entry)[-1]["hash"])


def _period(name: Any) -> str:
    if not (isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= 100):
        raise DeclarationError(
            f"a period is a name of at most 100 printable characters, got {name!r}"
        )
    return str(name)


def _check_free(place: str | os.PathLike[str]) -> None:
    """Refuse a place where a ledger is, before another one is closed in its favour."""
    try:
        ledger = _stored(place)
    except LedgerError:
        if os.path.exists(place):
            raise
        return
    ledger.close()
    raise unusable(f"there is a ledger at {ledger.location} already; choose another place")


def _closing(reason: str, user: str | None, period: str | None, entries: Sequence[Entry]) -> Entry:
    terms = Terms.of(entries)
    check_format(terms.format, spending=True)
    if terms.closed is not None:
        raise unusable(f"it was closed {told(terms.closed)}")
    more = {} if period is None else {"next": period}
    return {"kind": "close", "reason": reasoned(reason), **more, **of_user(user)}


def close_ledger(place: str | os.PathLike[str], *, reason: str, user: str | None = None) -> str:
    """Let nothing more be spent from a ledger, and return its head; its values stay readable.

    Parameters
    ----------
    place
        A path or a URL.
    reason, user
        Why, and who closes it: both are recorded.

    Raises
    ------
    LedgerError
        If it cannot be used, or is closed already.

    Examples
    --------
    >>> import tempfile
    >>> import adaptive_dp as dp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = f"{folder}/a.db"
    ...     head = create_ledger(place, dp.Budget(1.0))
    ...     head = close_ledger(place, reason="the survey is over", user="Ada")
    ...     with dp.Session(budget=dp.Budget(1.0), ledger=place) as session:
    ...         print("the survey is over" in str(session), session.head == head)
    True True
    """
    with opened(place) as ledger:
        written = ledger.spend(0, partial(_closing, reason, user, None))
        return str(written[-1]["hash"])


def raise_budget(
    place: str | os.PathLike[str], budget: Budget, *, reason: str, user: str | None = None
) -> str:
    """Raise the budget of a ledger, and return its head.

    What was spent stays spent. Sessions that are open stop, and are opened again with the new
    budget. The budget before is promised no longer: what was published of it has to be corrected.

    Parameters
    ----------
    place
        A path or a URL.
    budget
        Larger in some of epsilon, delta and delta_reserve, and smaller in none.
    reason, user
        Why, and who raises it: both are recorded.

    Raises
    ------
    LedgerError
        If it cannot be used, or is closed.
    DeclarationError
        If the budget is not larger, or records have budgets of their own.

    See Also
    --------
    adaptive_dp.session.entries.check_raised : Why all steps are within the new budget.

    Examples
    --------
    >>> import tempfile
    >>> import adaptive_dp as dp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = f"{folder}/a.db"
    ...     head = create_ledger(place, dp.Budget(1.0))
    ...     head = raise_budget(place, dp.Budget(1.5), reason="the second wave", user="Ada")
    ...     with dp.Session(budget=dp.Budget(1.5), ledger=place, head=head) as session:
    ...         print(session.remaining)
    left 100%
    """

    def decide(entries: Sequence[Entry]) -> Entry:
        terms = Terms.of(entries)
        check_format(terms.format, spending=True)
        if terms.closed is not None:
            raise unusable(f"it was closed {told(terms.closed)}")
        check_raised(terms.budget, budget, terms.accountant)
        account = Account(budget, terms.accountant)
        for entry in entries:
            if entry["kind"] == "spend":
                account.add(costs_in(entry), part_in(entry))
        # by `check_raised` it cannot be otherwise, but for the last bit of a conversion
        if not account.session_totals.within_budget:
            raise DeclarationError(f"what was spent does not fit into {budget}; raise it further")
        return budget_entry(account, reason, user)

    with opened(place) as ledger:
        return str(ledger.spend(0, decide)[-1]["hash"])


def migrate_ledger(place: str | os.PathLike[str], *, user: str | None = None) -> str:
    """Bring a ledger of an earlier version of the library to this one, and return its head.

    Its entries stay as they are. An entry says that those after it are of this version's format,
    and earlier versions of the library refuse the ledger from then on.

    Parameters
    ----------
    place
        A path or a URL.
    user
        Who does it.

    Raises
    ------
    LedgerError
        If it cannot be used, or is of this version.

    Examples
    --------
    >>> import tempfile
    >>> import adaptive_dp as dp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = f"{folder}/a.db"
    ...     head = create_ledger(place, dp.Budget(1.0))
    ...     migrate_ledger(place)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LedgerError: the ledger cannot be used: it has the format
    'adaptive-dp/ledger/4', and needs no migration
    """

    def decide(entries: Sequence[Entry]) -> Entry:
        terms = Terms.of(entries)
        if terms.format == FORMAT:
            raise unusable(f"it has the format {FORMAT!r}, and needs no migration")
        return {"kind": "format", "format": FORMAT, **of_user(user)}

    with opened(place) as ledger:
        return str(ledger.migrate(decide)[-1]["hash"])


def restored(
    place: str | os.PathLike[str],
    entries: Sequence[Any],
    *,
    head: str | None = None,
    reason: str | None = None,
    user: str | None = None,
) -> str:
    """Make a ledger of the entries of a backup, and return its head.

    A backup has nothing of what was spent after it was made, and that would be available again. So
    it needs the last hash that is known of the ledger, which shows that nothing is missing up to
    there, or a reason to go without. Either is recorded in an entry, and whoever reads the ledger
    is told.

    Parameters
    ----------
    place
        A path or a URL at which there is no ledger.
    entries
        All of the backup, such as `adaptive_dp.session.recompute.imported` returns them.
    head
        The hash of the last entry that is known of the ledger, from elsewhere.
    reason
        Why it is restored without.
    user
        Who restores it.

    Raises
    ------
    LedgerError
        If the backup is damaged, lacks the entry of the hash, or there is a ledger at the place.
    DeclarationError
        If neither a head nor a reason is given, or both.

    Examples
    --------
    >>> import tempfile
    >>> import adaptive_dp as dp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = f"{folder}/a.db"
    ...     head = create_ledger(place, dp.Budget(1.0))
    ...     ledger = open_ledger(place)
    ...     backup = ledger.entries()
    ...     ledger.close()
    ...     new = restored(f"{folder}/b.db", backup, head=head)
    ...     with dp.Session(budget=dp.Budget(1.0), ledger=f"{folder}/b.db", head=head) as session:
    ...         print(session.head == new)
    True
    """
    if (head is None) == (reason is None):
        raise DeclarationError(
            "a backup may be older than the ledger was, and what was spent since would be "
            "available again: pass the last hash that is known of it as head, or a reason to "
            "restore it without"
        )
    if not entries:
        raise unusable("the backup has no entries")
    for number in broken_entries(entries):
        raise unusable(f"entry {number} of the backup is not what was written there")
    Terms.of(entries)
    check_head(entries, head)
    proof = {"head": head} if reason is None else {"reason": reasoned(reason)}

    def decide(_: Sequence[Entry]) -> Entry:
        return {"kind": "restore", "entries": len(entries), **proof, **of_user(user)}

    with opened(place, create=True) as ledger:
        return str(ledger.restore(entries, decide)[-1]["hash"])
