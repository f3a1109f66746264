"""Whether a certificate's claim holds: recomputed when its report is written.

A certificate is a file that anyone can change. A report that only typeset it would lend its looks
to any number; so it says what a recomputation found, or why there was none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen

from accountants import AccountingError
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import PlanError
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.session.certificate import verify


@frozen
class Checked:
    """Whether a claim holds, None where that was not recomputed; and a sentence that says so."""

    holds: bool | None
    says: str


def checked(
    document: Mapping[str, Any], plan: Pipeline | None = None, *, allow: Collection[str] = ()
) -> Checked:
    """Recompute a claim from the plan in its document, or from the very plan that is given.

    Parameters
    ----------
    document
        Of a certificate, or of what claims to be one.
    plan, allow
        As for `adaptive_dp.verify`.
    """
    if "plan" not in document:
        return Checked(None, "Not recomputed: the certificate carries no plan.")
    try:
        verdict = verify(Certificate.from_document(document), plan, allow=allow)
    except (PlanError, AccountingError) as error:
        return Checked(None, f"Not recomputed: {error}")
    if verdict.holds:
        return Checked(True, "Recomputed from its plan when this was written: the claim holds.")
    return Checked(
        False, f"The claim does not hold, recomputed from its plan: {'; '.join(verdict.reasons)}."
    )
