"""What a session had spent after each of its steps, recomputed from its certificate."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from adaptive_dp.graph.certificate import Certificate, SessionRow
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.functions import permitted
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.structure import Node
from adaptive_dp.session.budget import Budget, Costs, readings
from adaptive_dp.session.plans import costs_for, is_paid, required_nodes


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
    _of_a_session(certificate)
    return steps_of(certificate, load(certificate.plan, allow=permitted(allow)))


def _of_a_session(certificate: Certificate) -> SessionRow:
    if certificate.session is None:
        raise DeclarationError("epsilon_by_step needs the certificate of a session")
    return certificate.session


def steps_of(certificate: Certificate, plan: Pipeline) -> list[tuple[str, float]]:
    """Return the same of a session's certificate and its very plan, whatever mechanisms it has.

    Raises
    ------
    DeclarationError
        If the certificate is not of a session, or of another plan.
    """
    session = _of_a_session(certificate)
    if certificate.fingerprint != plan.fingerprint:
        raise DeclarationError("the certificate is of another plan")
    budget = Budget(certificate.epsilon, certificate.delta, session.failures)
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
    outputs = {path[0]: handle for path, handle in plan.outputs}
    if sorted(names) != sorted(outputs) or len(plan.outputs) != len(outputs):
        raise DeclarationError("the steps of the session are not the plan's outputs")
    structure, paid = plan.structure, set[str]()
    for name in names:
        above = required_nodes(structure, structure.of(outputs[name]), ())
        new = {n for n in above if is_paid(structure.nodes[n])} - paid
        paid |= new
        nodes = [structure.nodes[n] for n in sorted(new)]
        yield name, nodes, costs_for(structure, nodes)
