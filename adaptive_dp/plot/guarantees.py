"""What a curve can be drawn of, as guarantees by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from accountants import Accountant, InapplicableError, PrivacyLoss, Spend, Term
from accountants.reading import Guarantee
from adaptive_dp.graph.arguments import asked
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.pipeline import Pipeline

One = Pipeline | Certificate | PrivacyLoss | Term
Many = One | Mapping[str, One]
"""A plan, a plan's certificate, a loss or a term; or several by the names to show."""

_SESSION = (
    "a session has no curve: its parameters were chosen as it ran, and its filter proves one "
    "(epsilon, delta) alone; draw plot.budget(session)"
)


def guarantees(
    what: Many,
    accountants: Sequence[Accountant[Any]] | None = None,
    allow: Collection[str] = (),
) -> dict[str, Guarantee]:
    """Return a guarantee for each thing, and for each accountant that applies to it.

    Parameters
    ----------
    what
        One thing, or several by name.
    accountants
        A curve for each; None for one curve by the usual choice of `accountants.Guarantee`.
    allow
        Modules from which a certificate's own mechanisms may be imported.

    Raises
    ------
    DeclarationError
        If something is none of these, a session, or has free parameters.
    InapplicableError
        If none of the accountants has a bound.
    """
    many = what if isinstance(what, Mapping) else {"": what}
    found: dict[str, Guarantee] = {}
    reasons: list[str] = []
    for name, each in many.items():
        term = _term(each, allow)
        if accountants is None:
            found[str(name)] = Guarantee(term)
            continue
        for accountant in asked(accountants):
            try:
                title = ", ".join(filter(None, (str(name), accountant.name)))
                found[title] = Guarantee(term, accountant)
            except InapplicableError as error:
                reasons.append(str(error))
    if not found:
        raise InapplicableError("; ".join(reasons) or "there is nothing to draw")
    return found


def _term(thing: One, allow: Collection[str]) -> Term:
    match thing:
        case Certificate():
            if thing.session is not None:
                raise DeclarationError(_SESSION)
            return load(thing.plan, allow=allow).term
        case Pipeline():
            if thing.adaptive:
                raise DeclarationError(_SESSION)
            return thing.term
        case PrivacyLoss():
            return Spend(thing)
        case Term():
            return thing
    raise DeclarationError(
        "a curve is drawn of a plan, a certificate, a loss or a term, or of a mapping of names to "
        f"them; got {type(thing).__name__}"
    )
