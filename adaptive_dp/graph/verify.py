"""Recomputing a certificate from its document alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import frozen

from accountants import AccountingError
from adaptive_dp.graph.certificate import Certificate, formed
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DocumentError, PlanError

TOLERANCE = 1e-9
"""Room for the rounding of other versions of NumPy and SciPy."""


@frozen
class Verdict:
    """What a recomputation found.

    Parameters
    ----------
    holds
        Whether the claimed epsilon is at least what was found (to a relative 1e-9, room for
        other versions' rounding) and the document describes the plan that it names.
    claimed, found
        Epsilon as claimed, and as recomputed, at the claimed delta.
    reasons
        Why it does not hold; empty where it does.
    """

    holds: bool
    claimed: float
    found: float
    reasons: tuple[str, ...]


def verify(certificate: Certificate, *, allow: Collection[str] = ()) -> Verdict:
    """Return whether a certificate's claim follows from the plan that it carries.

    Parameters
    ----------
    certificate
        As read from its JSON.
    allow
        Modules from which the plan's own mechanisms may be imported.

    Raises
    ------
    DocumentError
        If it is not of the form of a certificate, or its plan cannot be read or certified.
    """
    document = certificate.document
    formed(document)
    plan = load(document["plan"], allow=allow)
    try:
        again = plan.certify(certificate.delta)
    except (PlanError, AccountingError) as error:
        raise DocumentError(f"certificate.plan cannot be certified: {error}") from None
    reasons = []
    if not again.epsilon <= certificate.epsilon * (1 + TOLERANCE):
        reasons.append(
            f"the claim is epsilon = {certificate.epsilon:.9g}, the plan's is {again.epsilon:.9g}"
        )
    if plan.fingerprint != document["fingerprint"]:
        reasons.append("the fingerprint is not that of the plan")
    reasons += _accountants(document, again.document)
    for part in ("protects", "nodes", "worlds"):
        if again.document[part] != document[part]:
            reasons.append(f"the entry {part!r} is not what the plan says")
    if not set(again.document["assumptions"]) <= set(map(str, document["assumptions"])):
        reasons.append("an assumption that the claim rests on is missing")
    return Verdict(not reasons, certificate.epsilon, again.epsilon, tuple(reasons))


def _accountants(claimed: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the accountants' rows claim and the recomputation does not find."""
    known = {row["name"]: row for row in again["accountants"]}
    names = [row["name"] for row in claimed["accountants"]]
    for row in claimed["accountants"]:
        other = known.get(row["name"]) if isinstance(row["name"], str) else None
        if other is None or names.count(row["name"]) > 1:
            yield f"the accountant {row['name']!r} is unknown, or listed twice"
        elif any(row[k] != other[k] for k in ("applies", "theorem")):
            yield f"the {row['name']} accountant's theorem, or whether it applies, is another"
        elif other["applies"] and not _covers(row["upper"], other["upper"]):
            yield f"the {row['name']} accountant finds {other['upper']}, not {row['upper']!r}"
        elif other["applies"] and not _covers(other["lower"], row["lower"]):
            found, claim = other["lower"], row["lower"]
            yield f"the {row['name']} accountant's lower end is {found}, not {claim!r}"
    if claimed["claim"]["accountant"] not in names:
        yield "the accountant of the claim is not among those listed"


def _covers(above: Any, below: Any) -> bool:
    """Whether one bound is at least another, with room for rounding; False for no number."""
    try:
        return float(above) * (1 + TOLERANCE) >= float(below)
    except (TypeError, ValueError):
        return False
