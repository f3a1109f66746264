"""Building a certificate: every accountant's answer, and what the answers rest on."""

from __future__ import annotations

import math
import platform
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import scipy
from attrs import evolve

import accountants
from accountants import Answer, InapplicableError, Worlds
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.assumptions import assumptions
from adaptive_dp.graph.certificate import (
    AccountantRow,
    Certificate,
    Claim,
    Protected,
    Randomness,
    WorldsRow,
)
from adaptive_dp.graph.charge import Charge, releases
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.origins import third_party
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.roles import BoundOperation, SourceOperation
from adaptive_dp.graph.shares import rows
from adaptive_dp.graph.structure import Structure

SYSTEM = "the operating system"
"""The source of the noise of a plan that is run, not simulated."""


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
    *,
    seed: int | None = None,
    charges: Sequence[Charge] | None = None,
    adaptive: bool = False,
    claim: Claim | None = None,
) -> Certificate:
    """Return the certificate of a compiled plan at ``delta``.

    Parameters
    ----------
    structure, plan, fingerprint
        The nodes of the plan, its document and its digest.
    delta
        In [0, 1).
    chosen
        The accountants to ask.
    seed
        Of a simulation; None for noise from the operating system.
    adaptive
        Whether losses were chosen as the analysis ran: accountants whose bounds need losses that
        were fixed before do not apply then.
    claim
        Replaces that of the tightest accountant, where what is claimed rests on more than the
        plan: on the filter of a session.
    charges
        The releases of the plan, where they are known.

    Raises
    ------
    InapplicableError
        If no accountant that was asked has a bound, and no ``claim`` is given.
    DeclarationError
        If an accountant from elsewhere is refuted by the lower bounds of the library's.
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
    paid = compiler.paid(charges)
    nodes = rows(charges, paid, best, delta, answers)
    samplers = sorted({row.sampler for row in nodes if row.sampler})
    return Certificate(
        claim=_claim(best, delta) if claim is None else claim,
        protects=tuple(_protects(structure, name) for name, _ in terms),
        fingerprint=fingerprint,
        plan=plan,
        nodes=nodes,
        accountants=tuple(_accountant_row(answer) for answer in answers.values()),
        worlds=WorldsRow(len(worlds.alternatives), worlds.exact, best.world.labels),
        assumptions=(*assumptions(structure, charges, samplers), *_trusted(chosen)),
        randomness=randomness(seed, samplers),
        versions=_versions(),
        third_party=third_party(
            structure,
            [charge.mechanism for charge in charges],
            [loss for loss, _ in paid.values()],
            chosen,
        ),
    )


def randomness(seed: int | None, samplers: Sequence[str]) -> Randomness:
    """Return where the noise of a run comes from; with a seed it must not be released."""
    source = SYSTEM if seed is None else f"seed {seed}"
    return Randomness(source, seed is None, tuple(samplers))


def stamped(certificate: Certificate, seed: int | None) -> Certificate:
    """Return the certificate of a run of the same plan, with where its noise comes from."""
    return evolve(certificate, randomness=randomness(seed, certificate.randomness.samplers))


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
    answered = [a for a in answers.values() if a.bounds is not None]
    others = [a for a in answered if not is_own(type(a.accountant))]
    if not others:
        return
    ours = [a.bounds for a in answered if a.bounds is not None and is_own(type(a.accountant))]
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
    names = sorted(each.name for each in chosen if not is_own(type(each)))
    if not names:
        return []
    many = "s" if len(names) > 1 else ""
    return [
        f"The bounds of the accountant{many} {', '.join(names)} hold (from outside of the library)."
    ]


def _claim(best: Answer, delta: float) -> Claim:
    assert best.bounds is not None
    return Claim(float(best.bounds.upper), float(delta), best.accountant.name)


def _accountant_row(answer: Answer) -> AccountantRow:
    bounds = answer.bounds
    return AccountantRow(
        name=answer.accountant.name,
        theorem=answer.accountant.theorem,
        applies=bounds is not None,
        reason=answer.reason,
        lower=None if bounds is None else float(bounds.lower),
        upper=None if bounds is None else float(bounds.upper),
        world=answer.world.labels,
    )


def _protects(structure: Structure, name: str) -> Protected:
    source = structure.nodes[name].handle.operation
    assert isinstance(source, SourceOperation)
    bounds = [
        node.handle.operation.rows
        for node in structure
        if isinstance(node.handle.operation, BoundOperation)
        and structure.lineage(node)[0].name == name
    ]
    return Protected(
        data=source.name,
        neighbors=source.neighbors,
        unit=source.unit,
        rows_per_unit=max(bounds, default=1),
        size=source.size,
    )


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
