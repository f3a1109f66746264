"""Whether a certificate's claim holds: recomputed when its report is written.

Anybody can change the JSON of a certificate, and a report that only set it in type would lend its
looks to any number. So the claim is recomputed before anything is written, and the report says what
was found, or why nothing was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from attrs import evolve, frozen

from accountants import AccountingError
from adaptive_dp.graph import verify as plans
from adaptive_dp.graph.certificate import Certificate, formed
from adaptive_dp.graph.errors import PlanError
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.verify import Verdict
from adaptive_dp.session.certificate import verify

_ODD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What values that no certificate has may raise, past the checks of its form."""


@frozen
class Recomputed:
    """Whether a claim holds, None where that was not recomputed; and a sentence that says so."""

    holds: bool | None
    says: str


def recomputed(
    document: Mapping[str, Any], plan: Pipeline | None = None, *, allow: Collection[str] = ()
) -> Recomputed:
    """Recompute a claim from the plan in its document, or from the very plan that is given.

    Parameters
    ----------
    document
        Of a certificate, or of what claims to be one.
    plan
        The plan that it should be of: its own mechanisms need no permission then. A session's
        certificate is recomputed from its document alone.
    allow
        As for `adaptive_dp.verify`.
    """
    if "plan" not in document:
        return Recomputed(None, "Not recomputed: the certificate carries no plan.")
    try:
        verdict = _verdict(document, plan, allow)
    except (PlanError, AccountingError) as error:
        return Recomputed(None, f"Not recomputed: {error}")
    except _ODD as error:
        why = f"it is not a certificate ({type(error).__name__})"
        return Recomputed(None, f"Not recomputed: {why}.")
    if verdict.holds:
        return Recomputed(True, "Recomputed from its plan when this was written: the claim holds.")
    return Recomputed(
        False, f"The claim does not hold, recomputed from its plan: {'; '.join(verdict.reasons)}."
    )


def _verdict(document: Mapping[str, Any], plan: Pipeline | None, allow: Collection[str]) -> Verdict:
    if plan is None or "session" in document:
        return verify(Certificate(dict(document)), allow=allow)
    formed(dict(document))
    verdict = plans.compared(document, plan, allow=allow)
    if _as_json(plan.to_document()) != _as_json(document["plan"]):
        reason = "the plan in it is not the one that is drawn here"
        return evolve(verdict, holds=False, reasons=(*verdict.reasons, reason))
    return verdict


def _as_json(document: Any) -> Any:
    return json.loads(json.dumps(document))
