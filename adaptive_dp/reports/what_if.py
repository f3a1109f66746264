"""What other noise would cost: a grid that real accountants fill; the page computes nothing.

Each point is a plan with all noise, or that of one release, times a factor (budget parameters are
divided by it), certified at some deltas. Sliders stop at points of the grid alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time
from typing import Any

import attrs
from attrs import frozen

import accountants
from accountants import AccountingError, Guarantee, Parallel, Renyi, Sequential, Spend, Term
from accountants.distribution import roughly
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import PlanError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.plan import Pipeline, map_mechanisms
from adaptive_dp.graph.values import evolved, fields_of

FACTORS = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0, 4.0)
DELTAS = (0.0, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
MOST = 4  # releases with a slider of their own
SLOW = 0.4  # seconds of the processor for one plan, beyond which single releases are left out
ALL = "all releases"


@frozen
class Grid:
    """Upper bounds of epsilon: by what is changed, factor and delta."""

    deltas: tuple[float, ...]
    epsilons: dict[str, tuple[tuple[float, ...], ...]]


def grid(plan: Pipeline, certificate: Certificate) -> Grid | None:
    """Return the grid; None where no noise can be scaled, or no accountant has a bound."""
    # adaptive noise and free noise have no number to scale
    if plan.adaptive or plan.free:
        return None
    # the claim's own delta is in the grid too, so that the claim is one of its cells
    deltas = tuple(sorted({*DELTAS, certificate.delta}))
    chosen = _chosen(certificate.accountant)
    started = process_time()
    quick = roughly(chosen)
    base = _bounds(plan.term, deltas, quick, (certificate.delta, chosen))
    # the base took long: rows for single releases would take as long each
    slow = process_time() - started > SLOW
    # the plan once with each noise; None where a mechanism refuses the factor
    scaled = {
        f: s.term
        for f in FACTORS
        if f != 1.0 and (s := _plan_with_noise_times(plan, f)) is not None
    }
    if base is None or not scaled:
        return None

    def row(make: Callable[[Term], Term]) -> tuple[tuple[float, ...], ...]:
        columns = []
        for factor in FACTORS:
            bounds = base if factor == 1.0 else None
            if factor in scaled:
                bounds = _bounds(make(scaled[factor]), deltas, quick)
            # infinity where nothing is proven
            columns.append(bounds or tuple(math.inf for _ in deltas))
        return tuple(columns)

    epsilons = {ALL: row(lambda term: term)}
    names = [] if slow else _costliest(certificate)
    if len(names) > 1:
        for name in names[:MOST]:
            columns = row(partial(_with_spends_of, plan.term, name))
            # a row in which noise changes nothing is left out
            if len(set(columns)) > 1:
                epsilons[name] = columns
    return Grid(deltas, epsilons)


def _chosen(name: str) -> tuple[accountants.Accountant[Any], ...]:
    """Return the accountant that was tightest for the claim; where others may be, a fast one."""
    named = tuple(a for a in accountants.ACCOUNTANTS if a.name == name)
    tight = (accountants.Distribution, accountants.GaussianDP, Renyi)
    return named if named and isinstance(named[0], tight) else (*named, Renyi())


def _bounds(
    term: Term,
    deltas: Sequence[float],
    chosen: Sequence[accountants.Accountant[Any]],
    claim: tuple[float, Sequence[accountants.Accountant[Any]]] | None = None,
) -> tuple[float, ...] | None:
    """Return epsilon at each delta; what holds at a smaller one holds at a larger one as well.

    At the delta of a claim the accountants are those beside it.
    """
    try:
        guarantee = Guarantee(term, tuple(chosen))
        claimed = None if claim is None else Guarantee(term, tuple(claim[1]))
        bounds, least = [], math.inf
        for delta in deltas:
            # (epsilon, delta) holds at every larger delta too: a running minimum
            exact = claimed if claim is not None and delta == claim[0] else None
            least = min(least, (exact or guarantee).epsilon(delta).upper)
            bounds.append(least)
    except AccountingError:
        return None
    return tuple(bounds)


def _plan_with_noise_times(plan: Pipeline, factor: float) -> Pipeline | None:
    """Return the plan with all noise times a factor; None where a mechanism refuses it."""
    try:
        outputs = map_mechanisms(
            plan.outputs, lambda mechanism: _with_noise_times(mechanism, factor)
        )
        scaled = Pipeline.of(outputs, plan.delta)
        # terms of another form cannot be mixed spend by spend
        same = _names(scaled.term) == _names(plan.term)
    except (PlanError, AccountingError):
        return None
    return scaled if same and scaled.term != plan.term else None


def _with_noise_times(mechanism: Mechanism, factor: float) -> Mechanism:
    changes = {}
    for each in fields_of(type(mechanism)):
        role, value = each.metadata.get("role"), getattr(mechanism, each.name)
        # noise times a factor; a budget is divided by it, as less budget is more noise
        if role in ("noise", "budget") and isinstance(value, int | float):
            changes[each.name] = value * factor if role == "noise" else value / factor
    return evolved(mechanism, **changes) if changes else mechanism


def _with_spends_of(term: Term, name: str, changed: Term) -> Term:
    """Return a term with the spends of one name from another term of the same form."""
    if isinstance(term, Spend):
        assert isinstance(changed, Spend)
        return changed if term.name == name else term
    if isinstance(term, Sequential):
        assert isinstance(changed, Sequential)
        pairs = zip(term.parts, changed.parts, strict=True)
        return Sequential([_with_spends_of(a, name, b) for a, b in pairs])
    if isinstance(term, Parallel):
        assert isinstance(changed, Parallel)
        pairs = zip(term.choices, changed.choices, strict=True)
        return Parallel([_with_spends_of(a, name, b) for a, b in pairs], term.labels)
    # the remaining terms have one part: repetition, sampling and others
    part = _with_spends_of(term.part, name, changed.part)  # type: ignore[attr-defined]
    return attrs.evolve(term, part=part)  # type: ignore[misc]


def _names(term: Term) -> list[str]:
    """Return the names of a term's spends, in order: equal lists are of terms of one form."""
    if isinstance(term, Spend):
        return [term.name]
    inner = getattr(term, "parts", None) or getattr(term, "choices", None)
    if inner is None:
        inner = [term.part] if hasattr(term, "part") else []
    # "end" closes the bracket: without it terms of different nesting could give equal lists
    return [type(term).__name__, *(name for each in inner for name in _names(each)), "end"]


def _costliest(certificate: Certificate) -> list[str]:
    """Return the names of the releases that cost something, the largest share first."""
    paid = [(row.node, row.share) for row in certificate.nodes if row.share]
    return [name for name, _ in sorted(paid, key=lambda pair: -pair[1])]
