"""What an audit found, beside the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_dp.audit import Audit
from adaptive_dp.audit.plot import draw
from adaptive_dp.graph.errors import DeclarationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def audit(found: Audit, *, ax: Axes | None = None) -> Axes:
    """Draw what is claimed, what was shown, and what would have been found; return the axes.

    Parameters
    ----------
    found
        What `adaptive_dp.audit.pipeline`, `mechanism` or another audit returned.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If it is no audit.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> found = dp.audit.mechanism(dp.Laplace(scale=1.0), (0.0, 1.0), samples=1_000, seed=1)
    >>> plot.audit(found).get_xlabel()
    'epsilon (nats) at delta 0, confidence 0.95'
    """
    if not isinstance(found, Audit):
        raise DeclarationError(
            f"an audit's result is needed, such as plan.audit(), got {type(found).__name__}"
        )
    return draw(found, ax)
