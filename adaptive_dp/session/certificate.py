"""The certificate of a session, its epsilon step by step, and `verify` for all certificates."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from attrs import evolve

from accountants import ACCOUNTANTS, AccountingError
from accountants.errors import InapplicableError
from accountants.numerics import as_budget, kept
from adaptive_dp.graph.certificate import Certificate, Claim, LedgerRow, OdometerRow, SessionRow
from adaptive_dp.graph.certify import certificate
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DeclarationError, DocumentError, PlanError
from adaptive_dp.graph.nodes import Node
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.registry import permitted
from adaptive_dp.graph.values import LIMITS, Limits
from adaptive_dp.graph.verify import Verdict, compared, recertified, verdict
from adaptive_dp.session.budget import (
    INDIVIDUAL,
    SESSION_ACCOUNTANTS,
    Account,
    Budget,
    Costs,
    Totals,
    accounting_unit,
    readings,
)
from adaptive_dp.session.individual import individual_releases
from adaptive_dp.session.plans import costs_for, is_paid, required_nodes

# -----------------------------------------------------------------------------
# The epsilon of a session after each of its steps, recomputed from its certificate.


def epsilon_by_step(
    certificate: Certificate, *, allow: Collection[str] = ()
) -> list[tuple[str, float]]:
    """Return each step's name with the odometer's epsilon after it, at the certificate's delta.

    It holds wherever the analyst stops, by the odometer's theorem, and never falls. Where records
    have budgets of their own, what was spent is private, and every epsilon is the budget's.

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
        If its plan cannot be read.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}) as session:
    ...     for name, scale in [("first", 4), ("second", 2)]:
    ...         n = session.run(people.count().release(dp.Laplace(scale=scale)), name=name)
    ...     certificate = session.certificate()
    >>> [(name, round(epsilon, 6)) for name, epsilon in epsilon_by_step(certificate)]
    [('first', 0.25), ('second', 0.75)]
    """
    _session_row(certificate)
    return steps_of(certificate, load(certificate.plan, allow=permitted(allow)))


def _session_row(certificate: Certificate) -> SessionRow:
    if certificate.session is None:
        raise DeclarationError("epsilon_by_step needs the certificate of a session")
    return certificate.session


def steps_of(certificate: Certificate, plan: Pipeline) -> list[tuple[str, float]]:
    """Return `epsilon_by_step` for a plan at hand, so that no mechanism has to be imported.

    Parameters
    ----------
    certificate
        Of a session.
    plan
        The plan that it certifies.

    Raises
    ------
    DeclarationError
        If the certificate is not of a session, or of another plan.
    """
    session = _session_row(certificate)
    # the steps' costs are computed from the plan, so it must be the certified one
    if certificate.fingerprint != plan.fingerprint:
        raise DeclarationError("the certificate is of another plan")
    budget = Budget(as_budget(certificate.epsilon), certificate.delta, session.delta_reserve)
    # of the part (): a certificate is of the session, not of its parts
    steps = ((name, costs, ()) for name, _, costs in paid_by_step(plan, session.steps))
    return [(r.step, r.epsilon) for r in readings(budget, certificate.accountant, steps)]


def paid_by_step(plan: Pipeline, names: Sequence[str]) -> Iterator[tuple[str, list[Node], Costs]]:
    """Yield for each step of a session its name, the nodes that it pays for, and their costs.

    A node that an earlier step has paid for costs nothing again.

    Parameters
    ----------
    plan
        The plan whose outputs are the steps.
    names
        Of the outputs, in the order in which they were run.

    Raises
    ------
    DeclarationError
        If the names are not those of the plan's outputs.
    """
    # each step is one output, or the outputs below its name
    structure, paid = plan.structure, set[str]()
    ends: dict[str, list[Node]] = {}
    for path, handle in plan.outputs:
        ends.setdefault(path[0], []).append(structure.of(handle))
    if sorted(names) != sorted(ends):
        raise DeclarationError("the steps of the session are not the plan's outputs")
    for name in names:
        # all that the step needs, as if nothing had been released before
        above = required_nodes(structure, ends[name], ())
        # without what earlier steps have paid for: a release is paid once
        new = {n for n in above if is_paid(structure.nodes[n])} - paid
        paid |= new
        nodes = [structure.nodes[n] for n in sorted(new)]
        yield name, nodes, costs_for(structure, nodes)


# -----------------------------------------------------------------------------
# The certificate of a session, and `verify` for all certificates.
#
# A session's certificate is that of the plan whose outputs are its steps, except that its claim is
# the filter's: the budget, whatever was run. In addition it says what was spent of it. Both are
# recomputed from the plan in the certificate, by asking the filter for one step after the other.


PARTICIPATION = (
    "Each record takes part in a step while its own budget lasts, and leaves unseen: no record's "
    "budget refused a step, and what records have spent steered no step and is told nobody.",
    "All steps of the ledger read the very same rows.",
)
"""Assumptions of the individual filter's theorem, as certificates list them."""


def certificate_of(
    plan: Pipeline, account: Account, *, head: str, entries: int, seed: int | None
) -> Certificate:
    """Return the certificate of all steps of a session, a plan whose outputs are the steps.

    Parameters
    ----------
    plan
        The plan of all steps.
    account
        Of the session: its budget, its accountant, and what was spent.
    head, entries
        The hash of the ledger's last entry, and how many entries there are.
    seed
        Of a simulation; None for noise from the operating system.
    """
    budget = account.budget
    # adaptive: accountants of losses that are fixed in advance give no bound here
    of_plan = certificate(
        plan.structure,
        plan.to_document,
        plan.fingerprint,
        budget.delta,
        ACCOUNTANTS,
        seed=seed,
        adaptive=True,
        claim=Claim(kept(budget.epsilon), float(budget.delta), account.accountant),
    )
    ledger = LedgerRow(head, entries)
    return _with_session(of_plan, _row(plan.adaptive, account.session_totals, ledger))


def _row(steps: Sequence[str], totals: Totals, ledger: LedgerRow) -> SessionRow:
    """Return a certificate's section on a session, from what its steps have spent."""
    unit, spent = totals.unit, totals.spent()
    return SessionRow(
        delta_reserve=float(unit.budget.delta_reserve),
        theorem=unit.theorem,
        steps=tuple(steps),
        accounting_units=tuple(unit.filter.accounting_units.names),
        spent=tuple(map(float, spent.costs)),
        remaining=tuple(map(float, totals.remaining().costs)),
        delta_floor=float(spent.delta_floor),
        odometer=OdometerRow(totals.epsilon(), unit.reading_theorem),
        ledger=ledger,
    )


def _with_session(of_plan: Certificate, session: SessionRow) -> Certificate:
    """Return the certificate of a session's plan with what the session adds to it."""
    more = PARTICIPATION if of_plan.accountant == INDIVIDUAL else ()
    return evolve(of_plan, assumptions=(*of_plan.assumptions, *more), session=session)


def verify(
    certificate: Certificate,
    plan: Pipeline | None = None,
    *,
    allow: Collection[str] = (),
    limits: Limits = LIMITS,
) -> Verdict:
    """Return whether a certificate's claim follows from the plan that it carries.

    The certificate is read again as if from its JSON, its plan is rebuilt and certified, and each
    field is compared with what was recomputed. Of a session's certificate: whether the filter
    promises what is claimed, admits the steps one after the other, and the odometer reads no more
    than it says.

    Parameters
    ----------
    certificate
        As read from its JSON.
    plan
        The plan that it should be of, where that is at hand: its own mechanisms need no permission
        then. By default the plan that the certificate carries.
    allow
        Modules from which the plan's own mechanisms may be imported.
    limits
        What the recomputation may take: a small document can ask for hours of it.

    Raises
    ------
    DeclarationError
        If it is not a `Certificate`, or ``allow`` not a list of module names.
    DocumentError
        If it is not of the form of a certificate, or its plan cannot be read or certified.
    LimitError
        If it passes a limit: nothing is known then.

    Notes
    -----
    That the steps in a session's certificate are all that were taken, only the ledger shows, whose
    last hash the certificate names: `adaptive-dp ledger` recomputes a ledger.

    See Also
    --------
    adaptive_dp.reports : A page that says whether the claim holds.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    >>> print(verify(dp.Certificate.from_json(plan.certify().to_json())))
    holds: epsilon <= 0.5, recomputed 0.5, at delta = 0
    protects one row of 'people', added or removed
    >>> with dp.Session(budget=dp.Budget(1.0), people={"age": [30.0, 40.0]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=5)))
    ...     document = session.certificate().to_json()
    >>> print(verify(dp.Certificate.from_json(document)))
    holds: epsilon <= 1, recomputed 1, at delta = 0
    protects one row of 'people', added or removed
    """
    if not isinstance(certificate, Certificate):
        raise DeclarationError(
            f"verify needs a Certificate, got {type(certificate).__name__}; read its JSON with "
            "Certificate.from_json(text)"
        )
    modules = permitted(allow)
    return limits.watched("certificate", lambda: _verified(certificate, plan, modules, limits))


def _verified(
    certificate: Certificate, plan: Pipeline | None, modules: Collection[str], limits: Limits
) -> Verdict:
    # a certificate made in Python may have fields of any type: read again, so that all are checked
    read = Certificate.from_document(certificate.to_document())
    certified = load(read.plan, allow=modules, limits=limits) if plan is None else plan
    claim = None if read.session is None else read.claim
    again, reasons = recertified(read, certified, allow=modules, claim=claim)
    if plan is None:  # compared as it is written, with what has a default left out
        again = evolve(again, plan=read.plan)
    if read.session is not None:
        try:
            again, refused = _replayed(read, read.session, certified, again)
        except (PlanError, AccountingError) as error:
            raise DocumentError(f"certificate.session cannot be recomputed: {error}") from None
        reasons += refused
    # upper and lower bounds are compared one-sidedly, by the rule of each field
    answer = verdict(read, again, compared(read, again), reasons)
    if read.session is None:
        return answer
    # all steps fit into the claimed budget; otherwise no epsilon was shown to hold
    return evolve(answer, recomputed=read.epsilon if answer.holds else math.inf)


def _replayed(
    claimed: Certificate, session: SessionRow, plan: Pipeline, again: Certificate
) -> tuple[Certificate, list[str]]:
    """Return a session's certificate as recomputed from its steps, or why one does not fit.

    Parameters
    ----------
    claimed, session
        The certificate as read, and its section on the session.
    plan
        Its plan.
    again
        The certificate of this plan.
    """
    accountant = claimed.accountant
    # without a filter theorem no session can make this claim
    if accountant not in SESSION_ACCOUNTANTS:
        return again, [f"the accountant of the claim, {accountant!r}, has no filter"]
    # the claim is the budget, into which the steps must fit one after the other
    budget = Budget(as_budget(claimed.epsilon), claimed.delta, session.delta_reserve)
    unit = accounting_unit(accountant, budget)
    totals = Totals.of(unit)
    for name, nodes, costs in paid_by_step(plan, session.steps):
        try:
            # tested before the step is added, as in the session
            if unit.individual is None:
                totals.filter_sums.check(costs)
            else:
                individual_releases(plan.structure, nodes, {}, unit.individual)
        except InapplicableError as error:
            return again, [f"{name!r} is not a step of this accountant: {error}"]
        except AccountingError:
            return again, [f"{name!r} does not fit into the budget after the steps before it"]
        totals.add(costs)
    row = _row(session.steps, totals, session.ledger)
    # what the filter proves at the budget's delta, which must cover the claim
    promised = evolve(again.claim, epsilon=unit.promised())
    return evolve(_with_session(again, row), claim=promised), []
