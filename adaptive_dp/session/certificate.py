"""The certificate of a session: the filter's guarantee, and the steps that were taken under it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import evolve

from accountants import ACCOUNTANTS, AccountingError
from accountants.errors import InapplicableError
from accountants.filters.sums import Amount
from adaptive_dp.graph import verify as plans
from adaptive_dp.graph.certificate import Certificate, formed
from adaptive_dp.graph.certify import SECURE, certificate
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.functions import permitted
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.verify import Verdict, covers
from adaptive_dp.session.budget import (
    INDIVIDUAL,
    SESSION_ACCOUNTANTS,
    Budget,
    Totals,
    accounting_unit,
)
from adaptive_dp.session.individual import individual_charges
from adaptive_dp.session.plans import costs_for, is_paid, required_nodes

PARTICIPATION = (
    "Each record takes part in a step while its own budget lasts, and leaves unseen: no record's "
    "budget refused a step, and what records have spent steered no step and is told nobody.",
    "All steps of the ledger read the very same rows.",
)
"""What the individual filter takes for granted."""


def certificate_of(
    plan: Pipeline,
    budget: Budget,
    accountant: str,
    *,
    spent: Amount,
    remaining: Amount,
    epsilon: float,
    head: str,
    entries: int,
    seed: int | None,
) -> Certificate:
    """Return the certificate of all steps of a session, a plan whose outputs are the steps."""
    randomness = SECURE if seed is None else {"source": f"seed {seed}", "release": False}
    claim = {"epsilon": budget.epsilon, "delta": budget.delta, "accountant": accountant}
    paper = certificate(
        plan.structure,
        plan.to_document(),
        plan.fingerprint,
        budget.delta,
        ACCOUNTANTS,
        randomness,
        adaptive=True,
        claim=claim,
    )
    unit = accounting_unit(accountant, budget)
    document = {
        **paper.document,
        "assumptions": [*paper.document["assumptions"], *assumed(accountant)],
        "session": {
            "failures": budget.failures,
            "theorem": unit.theorem,
            "steps": list(plan.adaptive),
            "currencies": list(unit.filter.units()),
            "spent": [_plain(cost) for cost in spent.costs],
            "remaining": [_plain(cost) for cost in remaining.costs],
            "failed": spent.failure,
            "odometer": {"epsilon": _plain(epsilon), "theorem": unit.reading_theorem},
            "ledger": {"head": head, "entries": entries},
        },
    }
    return Certificate(document)


def verify(certificate: Certificate, *, allow: Collection[str] = ()) -> Verdict:
    """Return whether a certificate's claim follows from the plan that it carries.

    Of a session's certificate: whether the filter promises what is claimed, admits the steps one
    after the other, and the odometer reads no more than it says. That the steps are all that were
    taken, the ledger says, whose last hash the certificate names.

    Parameters
    ----------
    certificate
        As read from its JSON.
    allow
        Modules from which the plan's own mechanisms may be imported.

    Raises
    ------
    DeclarationError
        If it is no `Certificate`, or ``allow`` no list of module names.
    DocumentError
        If it is not of the form of a certificate, or its plan cannot be read or certified.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"age": [30.0, 40.0]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=5)))
    ...     text = session.certificate().to_json()
    >>> print(verify(dp.Certificate.from_json(text)))
    holds: epsilon <= 1, recomputed 1, at delta = 0
    protects one row of 'people', added or removed
    """
    if not isinstance(certificate, Certificate) or "session" not in certificate.document:
        return plans.verify(certificate, allow=allow)
    modules = permitted(allow)
    document = certificate.document
    formed(document)
    ours = assumed(document["claim"]["accountant"])
    said = document["assumptions"]
    plain = {**document, "assumptions": [line for line in said if line not in ours]}
    plan = load(document["plan"], allow=modules)
    verdict = plans.compared(plain, plan, allow=modules, adaptive=True)
    try:
        reasons = list(_replayed(document, load(document["plan"], allow=modules)))
    except (PlanError, AccountingError) as error:
        raise DocumentError(f"certificate.session cannot be recomputed: {error}") from None
    if not all(line in said for line in ours):
        reasons.append("it does not say what the filter of each record takes for granted")
    reasons = [*verdict.reasons, *reasons]
    claim = document["claim"]
    return evolve(
        verdict,
        holds=not reasons,
        claimed=claim["epsilon"],
        found=claim["epsilon"] if not reasons else math.inf,
        reasons=tuple(reasons),
    )


def _replayed(document: Mapping[str, Any], plan: Pipeline) -> Iterator[str]:
    """Yield what a session's certificate says and its steps do not bear out."""
    claim, session = document["claim"], document["session"]
    outputs = {path[0]: handle for path, handle in plan.outputs}
    require(
        sorted(map(str, session["steps"])) == sorted(outputs) and len(plan.outputs) == len(outputs),
        "its steps are not the plan's outputs",
    )
    if claim["accountant"] not in SESSION_ACCOUNTANTS:
        yield f"the accountant of the claim, {claim['accountant']!r}, has no filter"
        return
    budget = Budget(claim["epsilon"], claim["delta"], session["failures"])
    unit = accounting_unit(claim["accountant"], budget)
    sums = Totals.of(unit)
    keeps, spends = unit.filter, sums.filter_sums
    if not covers(budget.epsilon, unit.promised()):
        yield "the filter promises less than is claimed"
    theorems = session["theorem"], session["odometer"]["theorem"]
    if theorems != (unit.theorem, unit.reading_theorem):
        yield "the theorems are not those of the filter and the odometer"
    if session["currencies"] != list(keeps.units()):
        yield "the currencies are not the filter's"
    structure = plan.structure
    paid: set[str] = set()
    for name in session["steps"]:
        above = required_nodes(structure, structure.of(outputs[name]), ())
        new = {n for n in above if is_paid(structure.nodes[n])} - paid
        paid |= new
        nodes = [structure.nodes[n] for n in sorted(new)]
        costs = costs_for(structure, nodes)
        try:
            if unit.individual is None:
                spends.check(costs)
            else:
                individual_charges(structure, nodes, {}, unit.individual)
        except InapplicableError as error:
            yield f"{name!r} is no step of this accountant: {error}"
            return
        except AccountingError:
            yield f"{name!r} does not fit into the budget after the steps before it"
            return
        sums.add(costs)
    found, left = sums.spent(), sums.remaining()
    pairs = zip(session["spent"], found.costs, strict=False)
    if len(session["spent"]) != len(found.costs) or not all(covers(a, b) for a, b in pairs):
        yield f"the steps cost {list(found.costs)}, more than is said"
    if not covers(session["failed"], found.failure):
        yield f"the steps may fail with {found.failure}, more than is said"
    pairs = zip(session["remaining"], left.costs, strict=False)
    if len(session["remaining"]) != len(left.costs) or not all(covers(b, a) for a, b in pairs):
        yield f"what remains is {list(left.costs)}, less than is said"
    if not covers(session["odometer"]["epsilon"], sums.epsilon()):
        yield f"the odometer reads {sums.epsilon()}, more than is said"


def assumed(accountant: Any) -> tuple[str, ...]:
    """Return what a claim rests on, beside what every certificate says, by its accountant."""
    return PARTICIPATION if accountant == INDIVIDUAL else ()


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
