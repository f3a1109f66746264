"""Recomputing a certificate from its document alone."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.document import load


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
        If the plan in it cannot be read.
    """
    plan = load(certificate.document["plan"], allow=allow)
    again = plan.certify(certificate.delta)
    reasons = []
    if again.epsilon > certificate.epsilon * (1 + 1e-9):
        reasons.append(
            f"the claim is epsilon = {certificate.epsilon:.9g}, the plan's is {again.epsilon:.9g}"
        )
    if plan.fingerprint != certificate.document.get("fingerprint"):
        reasons.append("the fingerprint is not that of the plan")
    known = {row["name"]: row for row in again.document["accountants"]}
    for row in certificate.document["accountants"]:
        other = known.get(row.get("name"))
        claimed, found = row.get("upper"), other["upper"] if other else None
        if isinstance(claimed, int | float) and isinstance(found, str | float):
            value = float(found)
            if value > claimed * (1 + 1e-9):
                reasons.append(f"the {row['name']} accountant finds {value:.9g}, not {claimed:.9g}")
    for part in ("protects", "nodes", "worlds"):
        if again.document[part] != certificate.document.get(part):
            reasons.append(f"the entry {part!r} is not what the plan says")
    return Verdict(not reasons, certificate.epsilon, again.epsilon, tuple(reasons))
