"""What the records of one data set lose, beside the worst case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from accountants.plot import COLOURS, framed
from accountants.secret import Secret
from adaptive_dp.graph.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def per_instance(
    losses: ArrayLike,
    *,
    worst: float | None = None,
    title: str = "Loss of each record",
    ax: Axes | None = None,
) -> Axes:
    """Draw how many records lose how much, on a logarithmic axis, and return the axes.

    Per-instance losses are functions of the private data, and so is a picture of them: whoever
    shows it publishes them without any guarantee. So they are taken revealed alone.

    Parameters
    ----------
    losses
        Epsilons (in nats), one for each record: what ``.reveal()`` returned. How many are 0 or
        infinite is written beside the bars.
    worst
        The epsilon of the worst case, drawn as a line.
    title
        Over the picture.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DataError
        If the losses are still private, or not numbers of at least 0.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> from adaptive_dp import plot
    >>> axes = plot.per_instance([0.1, 0.1, 0.5], worst=1.0)
    >>> print(axes.get_xlabel())
    epsilon (nats)
    private: a function of these data
    """
    if isinstance(losses, Secret):
        raise DataError("these losses are private; pass losses.reveal() to show them")
    values = np.asarray(losses)
    if values.dtype.kind not in "biuf" or not np.all(values >= 0):
        raise DataError("losses must be numbers of at least 0, in nats")
    every = values.astype(np.float64).ravel()
    seen = every[(every > 0) & np.isfinite(every)]
    axes = framed(ax, title, "epsilon (nats)", "records")
    if len(seen):
        low, high = float(seen.min()), float(seen.max())
        edges = np.geomspace(low, max(high, low * 1.01), min(40, 5 + len(seen) // 5))
        edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # whatever rounding does
        axes.hist(seen, bins=list(edges), color=COLOURS[0], edgecolor="white")
    if worst is not None:
        axes.axvline(worst, color=COLOURS[1], linestyle="--", linewidth=1.8)
        axes.annotate(
            f"worst case {worst:.3g}",
            (worst, 0.98),
            (-6, 0),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="right",
            va="top",
            color=COLOURS[1],
            fontweight="bold",
        )
    axes.set_xscale("log")
    zero, infinite = int(np.sum(every == 0)), int(np.sum(np.isinf(every)))
    beside = [f"{zero} at 0"] if zero else []
    beside += [f"{infinite} without a bound"] if infinite else []
    note = "; ".join(["private: a function of these data", *beside])
    axes.set_xlabel(f"epsilon (nats)\n{note}")
    return axes
