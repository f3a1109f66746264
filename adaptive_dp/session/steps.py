"""What a session has spent after each of its steps, recomputed from its certificate alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from adaptive_dp.graph.certificate import Certificate, formed
from adaptive_dp.graph.document import load
from adaptive_dp.graph.functions import permitted
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.currency import currency_for
from adaptive_dp.session.needs import costs_for, needed, pays
from adaptive_dp.session.spends import Spends


def epsilon_by_step(
    certificate: Certificate, *, allow: Collection[str] = ()
) -> list[tuple[str, float]]:
    """Return each step's name with the odometer's epsilon after it, at the certificate's delta.

    It holds wherever the analyst stops, by the odometer's theorem, and never falls. Where records
    have budgets of their own, what was spent is private, and each step reads the whole budget.

    Parameters
    ----------
    certificate
        Of a session.
    allow
        Modules from which the plan's own mechanisms may be imported.

    Raises
    ------
    DeclarationError
        If the certificate is not a session's.
    DocumentError
        If it is not of the form of a certificate, or its plan cannot be read.
    """
    document = certificate.document
    _of_a_session(document)
    return steps_of(document, load(document["plan"], allow=permitted(allow)))


def _of_a_session(document: Mapping[str, Any]) -> None:
    require("session" in document, "epsilon_by_step needs the certificate of a session")
    formed(dict(document))


def steps_of(document: Mapping[str, Any], plan: Pipeline) -> list[tuple[str, float]]:
    """Return the same of a session's document and its very plan, whatever mechanisms it has.

    Raises
    ------
    DeclarationError
        If the document is not of a session, or of another plan.
    DocumentError
        If it is not of the form of a certificate.
    """
    _of_a_session(document)
    claim, session = document["claim"], document["session"]
    require(
        document["fingerprint"] == plan.fingerprint
        and sorted(map(str, session["steps"])) == sorted(path[0] for path, _ in plan.outputs),
        "the certificate is of another plan, or its steps are not the plan's outputs",
    )
    outputs = {path[0]: handle for path, handle in plan.outputs}
    budget = Budget(claim["epsilon"], claim["delta"], session["failures"])
    currency = currency_for(claim["accountant"], budget)
    spends, structure = Spends(currency.odometer), plan.structure
    found: list[tuple[str, float]] = []
    paid: set[str] = set()
    for name in session["steps"]:
        above = needed(structure, structure.of(outputs[name]), ())
        new = {n for n in above if pays(structure.nodes[n])} - paid
        paid |= new
        spends.add(costs_for(structure, [structure.nodes[n] for n in sorted(new)]))
        found.append((name, currency.epsilon(spends)))
    return found
