"""The ledger at a path or a URL."""

from __future__ import annotations

import os

from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.ledger import Ledger
from adaptive_dp.session.postgres import PostgresLedger
from adaptive_dp.session.sqlite import SQLiteLedger


def opened(ledger: Ledger | str | os.PathLike[str], *, create: bool = True) -> Ledger:
    """Return a ledger: itself, or the one at a path (SQLite) or a URL (``postgresql://...``).

    Parameters
    ----------
    ledger
        The ledger, its path or its URL.
    create
        Whether one that is not there is made.

    Raises
    ------
    LedgerError
        If there is none and none can be made, or what is there is no ledger.

    Examples
    --------
    >>> from adaptive_dp.session.ledger import MemoryLedger
    >>> opened(MemoryLedger()).entries()
    []
    >>> opened("privacy.db", create=False)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LedgerError: the ledger cannot be used: there is no file ...privacy.db
    """
    if not isinstance(ledger, str | os.PathLike):
        if all(callable(getattr(ledger, name, None)) for name in ("spend", "entries", "close")):
            return ledger
        raise LedgerError(f"a ledger is a path, a URL or a Ledger, got a {type(ledger).__name__}")
    place = os.fspath(ledger)
    if isinstance(place, str) and place.startswith(("postgresql://", "postgres://")):
        return PostgresLedger(place, create=create)
    if not isinstance(place, str) or not place or "://" in place or place.startswith("file:"):
        raise LedgerError(
            "a ledger is the path of a file, or a URL such as postgresql://host/database; got "
            f"{place!r}"
        )
    return SQLiteLedger(place, create=create)
