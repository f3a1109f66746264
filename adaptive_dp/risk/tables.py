"""Tables of bounds by class of losses and by delta, with numbers.

Lowy and Razaviyayn 2021 (arXiv 2102.04704) sort their bounds by class of losses and by delta. The
formulas here are those of `adaptive_dp.risk`, with explicit constants, beside rates of the
literature that have none; every row says which of the two it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from attrs import evolve, frozen

from accountants.errors import DomainError
from accountants.numerics import shown
from adaptive_dp.risk.lower import known_rates, lower_bound
from adaptive_dp.risk.output_perturbation import (
    output_perturbation,
    regularized_output_perturbation,
    smooth_output_perturbation,
    smooth_regularized_output_perturbation,
)
from adaptive_dp.risk.perturbation import exponential_mechanism
from adaptive_dp.risk.planning import constant
from adaptive_dp.risk.setting import Lower, Rate, Setting, Upper


@frozen
class Row:
    """One line of a table.

    Parameters
    ----------
    losses
        The class: "strongly convex", "smooth strongly convex", "convex" or "smooth convex".
    method
        What attains it.
    kind
        "upper" and "lower" are bounds, "rate" is a shape.
    mean
        The excess, mean form; with kind "rate" up to an unknown constant.
    source
        The theorem.

    Examples
    --------
    >>> print(markdown_table([Row("convex", "a constant", "upper", 0.5, "own proof")]))
    | losses | method | mean excess | by |
    |---|---|---|---|
    | convex | a constant | <= 0.5 | own proof |
    """

    losses: str
    method: str
    kind: str
    mean: float
    source: str


def table(
    setting: Setting, epsilon: float, delta: float = 0.0, *, population: bool = False
) -> tuple[Row, ...]:
    """Return the rows for all four classes, upper bounds never above that of a constant.

    With ``n = 1`` the data set is one record: then the table is that of any risk whose values at
    neighbours differ by a function that is 2L-Lipschitz, a sum or not.

    Parameters
    ----------
    setting
        With ``strong_convexity > 0``, a finite ``smoothness`` and ``stationary=True``; each class
        uses what it may.
    epsilon, delta, population
        As for `plan`.

    Examples
    --------
    >>> setting = Setting(
    ...     n=1000, width=10, lipschitz=2.0, radius=1.0, strong_convexity=1.0, smoothness=1.0,
    ...     stationary=True,
    ... )
    >>> [f"{row.losses}: {row.mean:.4f}" for row in table(setting, 1.0) if row.kind == "upper"][:2]
    ['strongly convex: 0.0800', 'smooth strongly convex: 0.0009']
    """
    # all four classes are filled from one setting, which must have what the strongest needs
    if not setting.strong_convexity > 0 or setting.smoothness == math.inf or not setting.stationary:
        raise DomainError(
            "a table needs Setting.strong_convexity > 0, a finite smoothness and stationary=True"
        )
    # each class may use only its own assumptions: the others are taken out of the setting
    setting = evolve(setting, drift=math.inf)
    nonsmooth = evolve(setting, smoothness=math.inf, stationary=False)
    convex = evolve(nonsmooth, strong_convexity=0.0)
    smooth_convex = evolve(setting, strong_convexity=0.0)
    methods = (
        ("strongly convex", output_perturbation, nonsmooth),
        ("smooth strongly convex", smooth_output_perturbation, setting),
        ("convex", regularized_output_perturbation, convex),
        ("smooth convex", smooth_regularized_output_perturbation, smooth_convex),
    )
    rows = [
        _row(losses, method(assumed, epsilon, delta, population=population), assumed)
        for losses, method, assumed in methods
    ]
    # the lower bounds, and that of the exponential mechanism, are of the empirical excess
    if not population:
        # a pure mechanism, listed at a pure budget
        if delta == 0:
            rows.append(_row("convex", exponential_mechanism(convex, epsilon), convex))
        rows += [
            _lower("strongly convex", lower_bound(nonsmooth, epsilon, delta)),
            _lower("convex", lower_bound(convex, epsilon, delta)),
        ]
    rows += _rates("strongly convex", known_rates(nonsmooth, epsilon, delta), population)
    rows += _rates("convex", known_rates(convex, epsilon, delta), population)
    return tuple(rows)


def _row(losses: str, bound: Upper, setting: Setting) -> Row:
    # never above the bound of a constant, which reads no data
    least = min(bound, constant(setting), key=lambda candidate: candidate.total)
    return Row(losses, least.method, "upper", least.mean, least.theorem)


def _lower(losses: str, bound: Lower) -> Row:
    return Row(losses, "every method", "lower", bound.mean, bound.theorem)


def _rates(losses: str, rates: Iterable[Rate], population: bool) -> list[Row]:
    return [
        Row(losses, rate.formula, "rate", rate.shape, rate.source)
        for rate in rates
        # a rate is of the population's or of the empirical excess, as its formula says
        if rate.formula.startswith("population") == population
    ]


def markdown_table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table, rates with a tilde; upper bounds are rounded up.

    Examples
    --------
    >>> print(markdown_table([Row("convex", "a constant", "upper", 0.125, "own proof")]))
    | losses | method | mean excess | by |
    |---|---|---|---|
    | convex | a constant | <= 0.125 | own proof |
    """
    lines = ["| losses | method | mean excess | by |", "|---|---|---|---|"]
    signs = {"upper": "<=", "lower": ">=", "rate": "~"}
    for row in rows:
        upward = row.kind == "upper"
        # an upper bound is rounded up and a lower one down; a rate has an unknown constant
        mean = f"{row.mean:.4g}" if row.kind == "rate" else shown(row.mean, upward=upward, digits=4)
        # | separates a table's cells
        cells = (row.losses, row.method, f"{signs[row.kind]} {mean}", row.source)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
