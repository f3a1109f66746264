"""A picture of an audit: what is claimed, what was shown, what would have been found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from accountants.errors import AccountingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from adaptive_dp.audit.result import Audit

_CLAIMED, _SHOWN, _FOUND = "#0072B2", "#D55E00", "#777777"


def draw(audit: Audit, ax: Axes | None = None) -> Axes:
    """Draw an audit on one axis of epsilon, into ``ax`` or a new figure; return the axes."""
    if ax is None:
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise AccountingError(
                'plots need matplotlib: pip install "adaptive-dp[plot]"'
            ) from None
        ax = Figure(figsize=(6.4, 2.6), dpi=150, layout="constrained").add_subplot()
    rows = [("shown: at least", audit.epsilon_lower, _SHOWN), ("claimed", audit.epsilon, _CLAIMED)]
    if audit.power < math.inf:
        rows.append(("would be found", audit.power, _FOUND))
    for row, (_, value, color) in enumerate(rows):
        ax.plot([0, value], [row, row], color=color, linewidth=6, solid_capstyle="butt")
        ax.annotate(
            f"{value:.4g}",
            (value, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=color,
        )
    ax.axvline(audit.epsilon, color=_CLAIMED, linewidth=1, linestyle=":")
    ax.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlim(0, 1.15 * max(value for _, value, _ in rows) or 1.0)
    ax.set_xlabel(f"epsilon (nats) at delta {audit.delta:g}, confidence {audit.confidence:g}")
    ax.set_title(audit.verdict, loc="left", fontweight="bold")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
