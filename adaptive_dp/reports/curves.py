"""The curves of a plan: its privacy profile and its trade-off, each with a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import accountants
from accountants import AccountingError, Guarantee
from accountants.rounding import shown
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.reports.markdown import number, part, power
from adaptive_dp.reports.parts import escape, fold, matrix, small
from adaptive_dp.reports.plot import Axis, Curve, plot

LEAST = 1e-12  # the least delta that is drawn
DELTAS = (1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
RATES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5)


def curves(plan: Pipeline, certificate: Mapping[str, Any]) -> str:
    """Draw both curves; of a session's plan none holds, since its losses were chosen as it ran."""
    if plan.adaptive:
        return ""
    try:
        drawn = [_profile(_guarantee(plan, certificate), certificate)]
        drawn.append(_tradeoff(Guarantee(plan.term)))
    except AccountingError as error:
        return small(f"No accountant draws these curves: {error}")
    return f'<div class="columns">{"".join(drawn)}</div>'


def _guarantee(plan: Pipeline, certificate: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee by the accountant of the claim and by the one that is mostly tight."""
    claimed = part(certificate, "claim").get("accountant")
    asked = [a for a in accountants.ACCOUNTANTS if a.name in (claimed, "distribution")]
    try:
        return Guarantee(plan.term, asked)
    except AccountingError:
        return Guarantee(plan.term)


def _profile(guarantee: Guarantee, certificate: Mapping[str, Any]) -> str:
    """Draw delta against epsilon. Bounds of a decreasing function, so a running minimum is one."""
    reach = _reach(guarantee, certificate)
    grid = np.linspace(0.0, reach, 161)
    lower, upper = guarantee.profile(grid)
    upper = np.minimum.accumulate(upper)
    lower = np.minimum(np.maximum.accumulate(lower[::-1])[::-1], upper)
    kept = 1 + int(np.sum(upper >= LEAST))  # the first point below the axis ends the line
    drawn = plot(
        "Privacy profile: an upper bound of delta falls as epsilon grows; the table below has its "
        "values",
        Axis("ε", 0.0, reach),
        Axis("δ (probability)", LEAST, 1.0, log=True),
        Curve(grid[:kept].tolist(), lower[:kept].tolist(), upper[:kept].tolist()),
        mark=_claimed(certificate),
    )
    rows = [(power(d), guarantee.epsilon(d)) for d in (0.0, *DELTAS)]
    cells = [
        [d, shown(e.lower, upward=False, digits=5), _up(e.upper)]
        for d, e in rows
        if math.isfinite(e.upper)
    ]
    return _figure(
        "Privacy profile",
        drawn,
        "Every event that has probability q without a unit has at most e^ε q + δ with it, at every "
        "point of the line. The band reaches down to where no proof can go.",
        matrix(["δ", "ε ≥", "ε ≤"], cells, "Privacy profile"),
    )


def _tradeoff(guarantee: Guarantee) -> str:
    """Draw the least false-negative rate: bounds of a decreasing function, made monotone so."""
    smooth = np.concatenate([[0.0], np.geomspace(1e-5, 0.01, 25), np.linspace(0.01, 1.0, 180)])
    grid = np.unique(np.concatenate([smooth, RATES]))
    lower, upper = guarantee.tradeoff(grid, digits=2e-4)
    lower = np.maximum.accumulate(lower[::-1])[::-1]
    upper = np.maximum(np.minimum.accumulate(upper), lower)
    drawn = plot(
        "Trade-off: the least false-negative rate of a membership test falls as its false-positive "
        "rate grows; the table below has its values",
        Axis("false-positive rate", 0.0, 1.0),
        Axis("false-negative rate", 0.0, 1.0),
        Curve(grid.tolist(), lower.tolist(), upper.tolist(), promise="lower"),
        guide=(0.0, 1.0, 1.0, 0.0),
    )
    at = np.searchsorted(grid, RATES)
    cells = [
        [number(rate), shown(float(lower[i]), upward=False, digits=4), _power(float(lower[i]))]
        for rate, i in zip(RATES, at, strict=True)
    ]
    return _figure(
        "Trade-off of membership tests",
        drawn,
        "Whoever tests whether one unit is in the data errs at least as often as the line says. "
        "The dashed line is tossing a coin.",
        matrix(
            ["false positives", "false negatives ≥", "true positives ≤"],
            cells,
            "Trade-off of membership tests",
        ),
    )


def _power(missed: float) -> str:
    return shown(min(1.0, math.nextafter(1 - missed, 2.0)), upward=True, digits=4)


def _figure(title: str, drawn: str, says: str, table: str) -> str:
    return (
        f"<figure><h3>{escape(title)}</h3>{drawn}<figcaption>{escape(says)}</figcaption>"
        f"{fold(f'{title}: table', table)}</figure>"
    )


def _reach(guarantee: Guarantee, certificate: Mapping[str, Any]) -> float:
    """Return an epsilon that shows the claim, and where delta has become small."""
    claimed = part(certificate, "claim").get("epsilon")
    found: Sequence[float] = [guarantee.epsilon(d).upper for d in (LEAST, 1e-6, 1e-2)]
    found = [value for value in found if 0 < value < math.inf]
    at_least = 1.08 * claimed if isinstance(claimed, float) and math.isfinite(claimed) else 0.0
    return max(1.02 * found[0] if found else 1.0, at_least)


def _claimed(certificate: Mapping[str, Any]) -> tuple[float, float, str] | None:
    claim = part(certificate, "claim")
    epsilon, delta = claim.get("epsilon"), claim.get("delta")
    if not isinstance(epsilon, float) or not isinstance(delta, float):
        return None
    return epsilon, max(delta, LEAST), f"claim: ε ≤ {_up(epsilon)}, δ = {power(delta)}"


def _up(value: float) -> str:
    return "∞" if math.isinf(value) else shown(value, upward=True, digits=5)
