"""What a session writes in a ledger, and reads there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from accountants import DomainError, PrivacyLoss
from accountants.document import from_document, to_document
from accountants.terms import Spend
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.structure import Node
from adaptive_dp.session.account import Account, Inside, names_of
from adaptive_dp.session.declared import declarations
from adaptive_dp.session.ledger import Entry, require_ledger
from adaptive_dp.session.plans import written
from adaptive_dp.session.spends import Costs

FORMAT = "adaptive-dp/ledger/3"


def opening(account: Account, others: Sequence[Entry]) -> Entry | None:
    """Return the first entry of a ledger; None where it is there already, and the same.

    Raises
    ------
    LedgerError
        If the ledger was opened otherwise.
    """
    budget = account.budget
    mine: Entry = {
        "kind": "open",
        "format": FORMAT,
        "budget": [budget.epsilon, budget.delta, budget.failures],
        "accountant": account.accountant,
        "theorem": account.currency.theorem,
    }
    if not others:
        return mine
    readable_form(others[0].get("format"))
    theirs = {key: others[0].get(key) for key in mine}
    require_ledger(
        theirs == mine,
        f"it was opened with budget {theirs['budget']} (epsilon, delta, failures) and the "
        f"accountant {theirs['accountant']!r}; open the session with the same",
    )
    return None


def readable_form(form: Any) -> None:
    """Refuse a ledger of another form.

    Raises
    ------
    LedgerError
        If it was written by another version.
    """
    require_ledger(
        form == FORMAT,
        f"it has the form {form!r}, and this version of the library reads {FORMAT!r} alone; read "
        "it with the version that wrote it, and open a new one with what is left of its budget",
    )


def spending(
    plan: Pipeline,
    new: Sequence[Node],
    costs: Costs,
    offered: Collection[str],
    *,
    name: str,
    part: Inside,
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
        What they cost, without the edition.
    offered
        The digests that the entries before it offer.
    name, part, edition
        As the session was given them.

    Raises
    ------
    DeclarationError
        If a loss has no form in a ledger.
    """
    return {
        "kind": "spend",
        "name": name,
        "part": part[-1][0] if part else "",
        "shares": [share for _, share in part],
        "edition": edition,
        "data": {k: list(v) for k, v in declarations(plan.structure).items()},
        **written(plan, offered),
        "releases": [node.digest for node in new],
        "costs": [[[list(s) for s in place], _written(x)] for place, x in costs],
    }


def _written(loss: PrivacyLoss) -> dict[str, Any]:
    """Return a loss as a ledger holds it.

    Raises
    ------
    DeclarationError
        If it has no form there, being of somebody's own class.
    """
    try:
        return to_document(Spend(loss))
    except DomainError as error:
        raise DeclarationError(
            f"{type(loss).__name__} cannot be written into a ledger, which holds losses of the "
            "library alone, so that everybody can recompute what was spent; let the mechanism's "
            "loss() return one of accountants.losses that bounds it (Pure, Approximate, RenyiCurve "
            f"or PrivacyProfile, for example), or run the plan without a session ({error})"
        ) from None


def readable(entry: Entry, number: int) -> None:
    """Refuse an entry that is not the next, or of which it is not known what it says.

    Raises
    ------
    LedgerError
        If a spend could hide in it.
    """
    found, kind = entry["number"], entry["kind"]
    require_ledger(found == number, "entries are missing, or out of order")
    require_ledger(
        kind in (("spend", "release") if number else ("open",)),
        f"entry {number} is of the kind {kind!r}, which this version of the library does not know; "
        "a spend could hide in it",
    )


def costs_of(entry: Mapping[str, Any]) -> Costs:
    """Return what an entry of a ledger says was spent, in the places of its edition of the data.

    Raises
    ------
    DomainError
        If it says nothing that can be read.
    """
    found = []
    for place, spend in entry["costs"]:
        term = from_document(spend)
        require_ledger(isinstance(term, Spend), "a cost is no loss")
        assert isinstance(term, Spend)
        found.append((tuple((str(p), int(i)) for p, i in place), term.loss))
    return placed(tuple(found), str(entry["edition"]))


def part_of(entry: Mapping[str, Any]) -> Inside:
    """Return the part that a spend of a ledger was made in, with the shares that it says.

    Raises
    ------
    LedgerError
        If it says none that a session gives.
    """
    part, shares = entry["part"], entry.get("shares", [])
    require_ledger(isinstance(part, str), f"a spend's part must be a text, got {part!r}")
    names = names_of(part)
    known = isinstance(shares, list) and all(
        isinstance(s, int | float) and not isinstance(s, bool) and 0 < s <= 1 for s in shares
    )
    require_ledger(
        known and len(shares) == len(names) and shares == sorted(shares, reverse=True),
        f"a spend in the part {entry['part']!r} says the shares {shares!r}, and not one in (0, 1] "
        "for each part around it, none larger than the one before",
    )
    return tuple(zip(names, map(float, shares), strict=True))


def placed(costs: Costs, edition: str) -> Costs:
    """Return costs in the places of an edition of the data: those of two editions add up.

    Who is in one part of the one may be in any part of the other.
    """
    return tuple((((f"edition {edition}", 0), *at) if at else at, loss) for at, loss in costs)
