"""Each release's row in the certificate: what it is, what it costs, and its share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from accountants import Answer, PrivacyLoss
from accountants.loss import parameters
from accountants.registry import LOSSES
from accountants.rounding import COSTS, shown
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.certificate import LossRow, ReleaseRow, Scalar
from adaptive_dp.graph.charge import Charge, regions
from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.origins import label
from adaptive_dp.graph.registry import MECHANISMS
from adaptive_dp.graph.roles import PartOperation
from adaptive_dp.graph.touch import SEVERAL


def rows(
    charges: Sequence[Charge],
    paid: Mapping[str, tuple[PrivacyLoss, int]],
    best: Answer,
    delta: float,
    answers: Mapping[str, Answer],
) -> tuple[ReleaseRow, ...]:
    """Return a row for each release; shares are those of ``best``, in its worst world.

    Parameters
    ----------
    charges
        The releases.
    paid
        Each release's loss and how often it is paid, as `adaptive_dp.graph.compile.paid` finds.
    best
        The answer of the tightest accountant.
    delta
        The delta of the claim.
    answers
        Those of all accountants that were asked, by name.
    """
    costs = _costs(paid, best, delta)
    labels = set(best.world.labels)
    worst = {c.node.name: _touched(_parts(c), labels) for c in charges}
    total = math.fsum(cost for name, cost in costs.items() if worst[name])
    conversions = _conversions({loss for loss, _ in paid.values()}, answers)
    return tuple(
        _row(
            charge,
            *paid[charge.node.name],
            conversions[paid[charge.node.name][0]],
            share=costs[charge.node.name] / total if total > 0 else 0.0,
            in_worst_world=worst[charge.node.name],
        )
        for charge in charges
    )


def _row(
    charge: Charge,
    loss: PrivacyLoss,
    times: int,
    conversions: Mapping[str, str],
    *,
    share: float,
    in_worst_world: bool,
) -> ReleaseRow:
    """Return the row of one release: what it is, by which mechanism, and what it costs."""
    mechanism = charge.mechanism
    return ReleaseRow(
        node=charge.node.name,
        query=charge.chain[-1].handle.operation.label(),
        of=_way(charge),
        mechanism=label(type(mechanism), MECHANISMS),
        parameters=encode(mechanism.parameters()),
        norm=float(mechanism.norm),
        distance=float(compiler.distance(charge, mechanism.norm)),
        loss=LossRow(
            label(type(loss), LOSSES),
            {name: _plain(value) for name, value in parameters(loss).items()},
        ),
        theorem=mechanism.theorem,
        source=loss.theorem,
        sampler=mechanism.sampler,
        conversions=conversions,
        times=times,
        region=tuple(regions(charge)),
        share=share,
        in_worst_world=in_worst_world,
    )


def _plain(value: Any) -> Scalar:
    """Return a loss's parameter for people: of losses with their counts, each loss."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, tuple) and all(isinstance(v, tuple) and len(v) == 2 for v in value):
        return ", ".join(_said(loss) + (f" x {n}" if n > 1 else "") for loss, n in value)
    return str(value)


def _said(loss: PrivacyLoss) -> str:
    inside = ", ".join(
        f"{k} {_number(k, v)}" if isinstance(v, float) else f"{k} {v}"
        for k, v in parameters(loss).items()
    )
    return f"{type(loss).__name__} {inside}"


def _number(name: str, value: float) -> str:
    return shown(value, upward=True) if name in COSTS else f"{value:.6g}"


def _costs(
    paid: Mapping[str, tuple[PrivacyLoss, int]], best: Answer, delta: float
) -> dict[str, float]:
    """Return each release's cost in the accountant's unit; 0 where it has no finite one."""
    price = best.accountant.price(best.state, delta)
    prices = {loss: price(loss) for loss, _ in paid.values()}
    finite = {loss: value if math.isfinite(value) else 0.0 for loss, value in prices.items()}
    return {name: finite[loss] * times for name, (loss, times) in paid.items()}


def _parts(charge: Charge) -> list[str]:
    return [region for region in regions(charge) if " = " in region]


def _touched(parts: Sequence[str], labels: set[str]) -> bool:
    """Whether the worst world lies in all parts around a node, or leaves open where it lies."""
    rowless = {re.sub(r" \(\d+ rows\)$", "", label) for label in labels}
    return SEVERAL in labels or all(part in labels or part in rowless for part in parts)


def _way(charge: Charge) -> str:
    steps = [n for n in charge.chain[:-1] if not isinstance(n.handle.operation, Loop)]
    return " > ".join(
        n.handle.operation.label()
        for n in steps
        if not isinstance(n.handle.operation, PartOperation)
    )


def _conversions(
    losses: set[PrivacyLoss], answers: Mapping[str, Answer]
) -> dict[PrivacyLoss, dict[str, str]]:
    by_type: dict[type, dict[str, str]] = {}
    result = {}
    for loss in losses:
        if type(loss) not in by_type:
            by_type[type(loss)] = {
                name: answer.accountant.conversion(loss)
                for name, answer in answers.items()
                if answer.bounds is not None
            }
        result[loss] = by_type[type(loss)]
    return result
