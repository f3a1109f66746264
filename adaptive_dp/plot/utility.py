"""What an epsilon buys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from accountants.plot import COLOURS, DASHES, INK, framed
from accountants.rounding import Array
from adaptive_dp.graph.errors import DeclarationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Mapping[float, ArrayLike]
"""Measurements, one or several, by the epsilon at which they were made."""

MARKS = "osD^vPX"


def utility(
    measured: Curve | Mapping[str, Curve],
    *,
    label: str = "error",
    baseline: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw measurements against epsilon: their means, and standard errors of these as bars.

    Bars say how far the mean of so few runs may be off, not how much a single run varies; one
    measurement alone has none.

    Parameters
    ----------
    measured
        Measurements by epsilon (in nats), yours or those of `simulated`; or such mappings by name.
    label
        What was measured, with its unit.
    baseline
        What is reached without privacy, drawn as a line.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If an epsilon is not positive and finite, or a measurement no finite number.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> from adaptive_dp import plot
    >>> axes = plot.utility({0.1: [9.0, 11.0], 1.0: [1.0, 1.2], 10.0: 0.1}, label="error (years)")
    >>> [round(float(y), 3) for y in axes.lines[0].get_ydata()]
    [10.0, 1.1, 0.1]
    """
    named = bool(measured) and all(isinstance(key, str) for key in measured)
    curves: Mapping[Any, Any] = measured if named else {"": measured}
    axes = framed(ax, "Utility", "epsilon (nats)", f"{label}: mean, and its standard error")
    for i, (name, curve) in enumerate(curves.items()):
        x, mean, error = _points(curve)
        axes.errorbar(
            x,
            mean,
            yerror(error),
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKS[i % len(MARKS)],
            capsize=3,
            linewidth=1.6,
            label=name or "_",
        )
    if baseline is not None:
        axes.axhline(baseline, color=INK, linewidth=1, label="without privacy")
    if named or baseline is not None:
        axes.legend(frameon=False)
    axes.set_xscale("log")
    return axes


def yerror(error: Array) -> Array:
    """Return bars to draw: none where there was one measurement."""
    return np.where(np.isnan(error), 0.0, error)


def _points(curve: Any) -> tuple[Array, Array, Array]:
    """Return epsilons in order, with the mean at each and its standard error."""
    if not isinstance(curve, Mapping) or not curve:
        raise DeclarationError(
            "measurements must be a mapping of epsilons to numbers, such as {0.1: [9, 11], 1: "
            f"[2, 3]}}, got {type(curve).__name__}"
        )
    found = []
    for epsilon, values in curve.items():
        number = isinstance(epsilon, int | float | np.number) and not isinstance(epsilon, bool)
        if not number or not 0 < float(epsilon) < math.inf:
            raise DeclarationError(f"epsilon must be a positive finite number, got {epsilon!r}")
        known = np.asarray(values)
        if known.dtype.kind not in "biuf" or not known.size or not np.isfinite(known).all():
            raise DeclarationError(
                f"the measurements at epsilon = {epsilon:g} must be finite numbers, at least one"
            )
        runs = known.astype(np.float64).ravel()
        several = len(runs) > 1
        error = float(runs.std(ddof=1)) / math.sqrt(len(runs)) if several else math.nan
        found.append((float(epsilon), float(runs.mean()), error))
    points = np.array(sorted(found))
    return points[:, 0], points[:, 1], points[:, 2]
