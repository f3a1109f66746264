"""Building a certificate: every accountant's answer, and what the answers rest on."""

from __future__ import annotations

import math
import platform
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import scipy

import accountants
from accountants import Answer, InapplicableError, Worlds
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.assumptions import assumptions
from adaptive_dp.graph.certificate import FORMAT, Certificate
from adaptive_dp.graph.charge import Charge, releases
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.origins import own, third_party
from adaptive_dp.graph.roles import BoundOperation, SourceOperation
from adaptive_dp.graph.shares import rows
from adaptive_dp.graph.structure import Structure

SECURE: Mapping[str, Any] = {"source": "the operating system", "release": True}
"""The randomness of a plan that is run, not simulated."""


FIXED = (
    "its bound holds for losses that were fixed before the analysis; these were chosen as it ran, "
    "which a filter or an odometer covers"
)


def certificate(
    structure: Structure,
    plan: dict[str, Any],
    fingerprint: str,
    delta: float,
    chosen: Sequence[accountants.Accountant[Any]],
    randomness: Mapping[str, Any] = SECURE,
    *,
    charges: Sequence[Charge] | None = None,
    adaptive: bool = False,
    claim: Mapping[str, Any] | None = None,
) -> Certificate:
    """Return the certificate of a compiled plan at ``delta``.

    With ``adaptive``, losses were chosen as the analysis ran: accountants whose bounds need losses
    that were fixed before do not apply. ``claim`` stands for the tightest accountant's, where what
    is claimed rests on more than the plan. ``charges`` are its releases, where they are known.
    """
    charges = releases(structure) if charges is None else charges
    terms = compiler.terms(charges)
    worlds = accountants.worlds(accountants.Sequential([term for _, term in terms]))
    answers = {
        a.name: accountants.measure(worlds, a, delta=delta)
        if not adaptive or _adaptively(worlds, a)
        else Answer(a, None, worlds.alternatives[0], reason=FIXED)
        for a in chosen
    }
    _contradicted(answers, worlds, delta)
    if claim is not None and not any(answer.bounds for answer in answers.values()):
        best = accountants.measure(worlds, accountants.Basic(), delta=delta)  # for shares alone
    else:
        _chosen_as_it_ran(answers.values())
        best = accountants.tightest(answers)
    nodes = rows(charges, best, delta, answers)
    samplers = sorted({row["sampler"] for row in nodes if row["sampler"]})
    document = {
        "format": FORMAT,
        "claim": _claim(best, delta) if claim is None else dict(claim),
        "protects": [_protects(structure, name) for name, _ in terms],
        "fingerprint": fingerprint,
        "plan": plan,
        "nodes": nodes,
        "accountants": [_accountant_row(answer) for answer in answers.values()],
        "worlds": _worlds(worlds, best),
        "assumptions": assumptions(structure, charges, samplers) + _trusted(chosen),
        "randomness": {**randomness, "samplers": samplers},
        "versions": _versions(),
    }
    mechanisms = [charge.mechanism for charge in charges]
    losses = [loss for loss, _ in compiler.paid(charges).values()]
    rests = third_party(structure, mechanisms, losses, chosen)
    return Certificate(document | ({"third_party": rests} if rests else {}))


def _chosen_as_it_ran(answers: Collection[Answer]) -> None:
    """Say where the promise of a session's plan is, if no accountant has one.

    Raises
    ------
    InapplicableError
        If all that were asked need losses that were fixed before.
    """
    if answers and all(answer.reason == FIXED for answer in answers):
        names = ", ".join(answer.accountant.name for answer in answers)
        raise InapplicableError(
            f"these steps were chosen as a session ran, and the accountants ({names}) bound losses "
            "that were fixed before; the session's filter covers them: session.certificate() is "
            "what it promises, session.epsilon what was spent so far"
        )


def _contradicted(answers: Mapping[str, Answer], worlds: Worlds, delta: float) -> None:
    """Refuse an accountant from elsewhere whose bound is below what is proven to be lost.

    The lower ends of the library's accountants are of the tight epsilon: nothing true is below.

    Raises
    ------
    DeclarationError
        With both numbers.
    """
    others = [a for a in answers.values() if not own(type(a.accountant)) and a.bounds is not None]
    if not others:
        return
    ours = [a.bounds for a in answers.values() if own(type(a.accountant)) and a.bounds is not None]
    if not ours:
        asked = (accountants.measure(worlds, each, delta=delta) for each in accountants.ACCOUNTANTS)
        ours = [answer.bounds for answer in asked if answer.bounds is not None]
    floor = max((bounds.lower for bounds in ours), default=0.0)
    for answer in others:
        name, bounds = answer.accountant.name, answer.bounds
        assert bounds is not None
        require(
            bounds.upper >= floor,
            f"the accountant {name!r} finds epsilon <= {bounds.upper!r} at delta = {delta:g}, but "
            f"these releases are proven to lose at least {floor!r}: it under-reports, and is not "
            "certified",
        )


def _adaptively(worlds: Worlds, accountant: accountants.Accountant[Any]) -> bool:
    """Whether an accountant's bound holds for losses that were chosen as they were paid.

    A sum of pure epsilons does. How a delta is split among losses, or what failures leave of it,
    must not be chosen by what came out.
    """
    if not accountant.adaptive:
        return False
    bounds = accountants.measure(worlds, accountant, delta=0.0).bounds
    return bounds is not None and math.isfinite(bounds.upper)


def _trusted(chosen: Sequence[accountants.Accountant[Any]]) -> list[str]:
    """Return what is assumed of accountants from elsewhere."""
    names = sorted(each.name for each in chosen if not own(type(each)))
    if not names:
        return []
    many = "s" if len(names) > 1 else ""
    return [
        f"The bounds of the accountant{many} {', '.join(names)} hold (from outside of the library)."
    ]


def _claim(best: Answer, delta: float) -> dict[str, Any]:
    assert best.bounds is not None
    return {
        "epsilon": _plain(best.bounds.upper),
        "delta": delta,
        "accountant": best.accountant.name,
    }


def _worlds(worlds: Worlds, best: Answer) -> dict[str, Any]:
    return {
        "count": len(worlds.alternatives),
        "exact": worlds.exact,
        "worst": list(best.world.labels),
    }


def _accountant_row(answer: Answer) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": answer.accountant.name,
        "theorem": answer.accountant.theorem,
        "applies": answer.bounds is not None,
        "reason": answer.reason,
        "lower": None,
        "upper": None,
        "world": list(answer.world.labels),
    }
    if answer.bounds is not None:
        row |= {"lower": answer.bounds.lower, "upper": _plain(answer.bounds.upper)}
    return row


def _protects(structure: Structure, name: str) -> dict[str, Any]:
    source = structure.nodes[name].handle.operation
    assert isinstance(source, SourceOperation)
    bounds = [
        node.handle.operation.rows
        for node in structure
        if isinstance(node.handle.operation, BoundOperation)
        and structure.lineage(node)[0].name == name
    ]
    return {
        "data": source.name,
        "neighbors": source.neighbors,
        "unit": source.unit,
        "rows_per_unit": max(bounds, default=1),
        "size": source.size,
    }


def _versions() -> dict[str, str]:
    try:
        own = version("adaptive-dp")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "adaptive-dp": own,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
