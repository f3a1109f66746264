"""A picture of what the records of one data set lose, beside the worst case.

Needs matplotlib: ``pip install "adaptive-dp[plot]"``. A picture of private numbers is as private
as they are: it takes what ``.reveal()`` returned, so that somebody has said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.secret import Secret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FILL, _LINE = "#0072B2", "#D55E00"  # Okabe and Ito's


def histogram(
    epsilons: ArrayLike,
    *,
    worst: float | None = None,
    title: str = "Loss of each record",
    ax: Axes | None = None,
) -> Axes:
    """Draw how many records have which epsilon, on a logarithmic axis, and return the axes.

    Parameters
    ----------
    epsilons
        Revealed; those that are 0 or infinite are not drawn.
    worst
        The epsilon of the worst case, drawn as a line.
    title
        Over the picture.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DataError
        If the epsilons are still private.
    """
    if isinstance(epsilons, Secret):
        raise DataError("these losses are private; pass losses.reveal() to show them")
    from matplotlib import pyplot

    values = np.asarray(epsilons, dtype=np.float64).ravel()
    values = values[(values > 0) & np.isfinite(values)]
    axes = pyplot.subplots(figsize=(6, 4))[1] if ax is None else ax
    if len(values):
        low, high = float(values.min()), float(values.max())
        edges = np.geomspace(low, max(high, low * 1.01), min(40, 5 + len(values) // 5))
        axes.hist(values, bins=list(edges), color=_FILL, edgecolor="white", label="records")
    if worst is not None:
        axes.axvline(worst, color=_LINE, linestyle="--", label=f"worst case {worst:.3g}")
    axes.set(xscale="log", xlabel="epsilon (nats)", ylabel="records", title=title)
    axes.legend(frameon=False)
    return axes
