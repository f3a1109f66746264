"""Tables of bounds by class of losses and by delta, with numbers.

Lowy and Razaviyayn 2021 (arXiv 2102.04704) sort their bounds by class of losses and by delta. The
formulas here are those of `adaptive_dp.risk`, with explicit constants, beside rates of the
literature that have none; every row says which of the two it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

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
    confidence
        That the formula is right with its constants, and the source's: "H" it is derived here and
        checked; "M" it is derived here, the source's own constant may differ; "L" the shape alone
        is known, with an unknown constant.
    ratio
        Of a lower bound: how many times larger the least upper bound of the class is.

    Examples
    --------
    >>> print(markdown_table([Row("convex", "a constant", "upper", 0.5, "own proof", "H")]))
    | losses | method | mean excess | by | confidence |
    |---|---|---|---|---|
    | convex | a constant | <= 0.5 | own proof | H |
    """

    losses: str
    method: str
    kind: str
    mean: float
    source: str
    confidence: Literal["H", "M", "L"]
    ratio: float | None = None


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
        for losses, assumed in (
            ("strongly convex", nonsmooth),
            ("smooth strongly convex", setting),
            ("convex", convex),
            ("smooth convex", smooth_convex),
        ):
            least = min(row.mean for row in rows if row.kind == "upper" and row.losses == losses)
            rows.append(_lower(losses, lower_bound(assumed, epsilon, delta), least))
    rows += _rates("strongly convex", known_rates(nonsmooth, epsilon, delta), population)
    rows += _rates("convex", known_rates(convex, epsilon, delta), population)
    return tuple(rows)


def tables(setting: Setting, epsilon: float, delta: float) -> dict[str, tuple[Row, ...]]:
    """Return six tables by title: of any risk, of a sum's data and of its population, twice each.

    Any risk is that of one record (n = 1). Each is for pure epsilon and for the delta, as Lowy and
    Razaviyayn 2021 (appendix A) arrange theirs.

    Parameters
    ----------
    setting, epsilon
        As for `table`.
    delta
        Positive, for the second of each two.

    Examples
    --------
    >>> setting = Setting(
    ...     n=1000, width=10, lipschitz=2.0, radius=1.0, strong_convexity=1.0, smoothness=1.0,
    ...     stationary=True,
    ... )
    >>> list(tables(setting, 1.0, 1e-6))[:3]
    ['any risk, delta = 0', 'any risk, delta = 1e-06', 'empirical risk, delta = 0']
    """
    if not delta > 0:
        raise DomainError(f"delta must be positive for the second of two tables, got {delta!r}")
    single = evolve(setting, n=1, linear=False, rank=None)
    cases = (("any risk", single, False), ("empirical risk", setting, False))
    return {
        f"{name}, delta = {each:g}": table(assumed, epsilon, each, population=population)
        for name, assumed, population in (*cases, ("population risk", setting, True))
        for each in (0.0, delta)
    }


def _row(losses: str, bound: Upper, setting: Setting) -> Row:
    # never above the bound of a constant, which reads no data
    least = min(bound, constant(setting), key=lambda candidate: candidate.total)
    # with the Gaussian the source has a larger constant; its regularised bounds are rates, and the
    # population's sums of two
    is_exact = "Gaussian" not in least.method and "regularised" not in least.method
    confidence: Literal["H", "M"] = "H" if is_exact and not least.population else "M"
    return Row(losses, least.method, "upper", least.mean, least.theorem, confidence)


def _lower(losses: str, bound: Lower, least: float) -> Row:
    ratio = least / bound.mean if bound.mean > 0 else None
    return Row(losses, "every method", "lower", bound.mean, bound.theorem, "H", ratio)


def _rates(losses: str, rates: Iterable[Rate], population: bool) -> list[Row]:
    return [
        Row(losses, rate.formula, "rate", rate.shape, rate.source, "L")
        for rate in rates
        # a rate is of the population's or of the empirical excess, as its formula says
        if rate.formula.startswith("population") == population
    ]


def markdown_table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table, rates with a tilde; upper bounds are rounded up.

    Examples
    --------
    >>> print(markdown_table([Row("convex", "every method", "lower", 0.125, "own proof", "H", 8)]))
    | losses | method | mean excess | by | confidence |
    |---|---|---|---|---|
    | convex | every method | >= 0.125 (8 times below) | own proof | H |
    """
    lines = ["| losses | method | mean excess | by | confidence |", "|---|---|---|---|---|"]
    signs = {"upper": "<=", "lower": ">=", "rate": "~"}
    for row in rows:
        upward = row.kind == "upper"
        # an upper bound is rounded up and a lower one down; a rate has an unknown constant
        mean = f"{row.mean:.4g}" if row.kind == "rate" else shown(row.mean, upward=upward, digits=4)
        shown_mean = f"{signs[row.kind]} {mean}"
        if row.ratio is not None:
            shown_mean += f" ({row.ratio:.3g} times below)"
        # | separates a table's cells
        cells = (row.losses, row.method, shown_mean, row.source, row.confidence)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
