"""What a session had spent after each of its steps, recomputed from its certificate."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from adaptive_dp.graph.certificate import Certificate, formed
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.functions import permitted
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.session.budget import Budget, StepCosts, readings
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
        If it is not of the form of a certificate, or its plan cannot be read.

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
    document = certificate.document
    _of_a_session(document)
    return steps_of(document, load(document["plan"], allow=permitted(allow)))


def _of_a_session(document: Mapping[str, Any]) -> None:
    if "session" not in document:
        raise DeclarationError("epsilon_by_step needs the certificate of a session")
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
    steps_match = sorted(map(str, session["steps"])) == sorted(path[0] for path, _ in plan.outputs)
    if document["fingerprint"] != plan.fingerprint or not steps_match:
        raise DeclarationError(
            "the certificate is of another plan, or its steps are not the plan's outputs"
        )
    outputs = {path[0]: handle for path, handle in plan.outputs}
    budget = Budget(claim["epsilon"], claim["delta"], session["failures"])

    def steps() -> Iterator[StepCosts]:
        structure, paid = plan.structure, set[str]()
        for name in session["steps"]:
            above = required_nodes(structure, structure.of(outputs[name]), ())
            new = {n for n in above if is_paid(structure.nodes[n])} - paid
            paid.update(new)
            yield name, costs_for(structure, [structure.nodes[n] for n in sorted(new)]), ()

    return [(r.step, r.epsilon) for r in readings(budget, claim["accountant"], steps())]
