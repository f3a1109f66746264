"""Whether a certificate's claim holds: recomputed when its report is written.

Anybody can change the JSON of a certificate, and a report that only set it in type would lend its
looks to any number. So the claim is recomputed before anything is written, and the report says what
was found, or why nothing was.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from accountants import AccountingError
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import PlanError
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.session.certificate import verify


@frozen
class Recomputed:
    """Whether a claim holds, None where that was not recomputed; and a sentence that says so."""

    holds: bool | None
    says: str


def recomputed(
    certificate: Certificate, plan: Pipeline | None = None, *, allow: Collection[str] = ()
) -> Recomputed:
    """Recompute a claim from the plan in its certificate, or from the very plan that is given.

    Parameters
    ----------
    certificate, plan, allow
        As for `adaptive_dp.verify`.
    """
    try:
        verdict = verify(certificate, plan, allow=allow)
    except (PlanError, AccountingError) as error:
        return Recomputed(None, f"Not recomputed: {error}")
    if verdict.holds:
        return Recomputed(True, "Recomputed from its plan when this was written: the claim holds.")
    return Recomputed(
        False, f"The claim does not hold, recomputed from its plan: {'; '.join(verdict.reasons)}."
    )
