"""What a session spends, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accountants.plot import COLOURS, DASHES, INK, framed
from accountants.rounding import shown
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.visible import cut, visible
from adaptive_dp.session import Session

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 12
"""So many steps are named on the axis; more are numbered."""


def budget(session: Session, *, ax: Axes | None = None) -> Axes:
    """Draw what a session has spent after each step, as shares of its budget; return the axes.

    The filter's line decides which step is refused: at 1 nothing is left. The odometer's is the
    epsilon of what was released so far, which holds whenever the analyst stops; it may be above
    the filter's share, since to be read off at any time costs something, and is never above 1.

    Parameters
    ----------
    session
        With or without a ledger; not closed.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If it is no session, or has run nothing yet.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp import plot
    >>> people = dp.dataset("people", columns={})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    ...     axes = plot.budget(session)
    >>> axes.get_ylabel()
    'share of the budget'
    """
    if not isinstance(session, Session):
        raise DeclarationError(f"a budget is that of a Session, got {type(session).__name__}")
    readings = session.history()
    if not readings:
        raise DeclarationError("the session has run nothing yet; run a step first")
    whole = session.budget.epsilon
    steps = range(len(readings) + 1)
    allowed = shown(whole, upward=True)
    title = f"Budget: epsilon {allowed}, delta {shown(session.budget.delta, upward=True)}"
    axes = framed(ax, title, "", "share of the budget")
    spent = [0.0, *(reading.share for reading in readings)]
    read = [0.0, *(reading.epsilon / whole for reading in readings)]
    texts = (
        f"{session.accountant} filter, {spent[-1]:.1%}",
        f"odometer, epsilon {shown(readings[-1].epsilon, upward=True, digits=3)} of {allowed}",
    )
    for i, (line, text) in enumerate(zip((spent, read), texts, strict=True)):
        axes.plot(
            steps,
            line,
            color=COLOURS[i],
            linestyle=DASHES[i],
            marker="os"[i],
            markersize=4,
            drawstyle="steps-post",
            label=text,
        )
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_ylim(0, 1.35 * max(1.0, *spent, *read))
    if len(readings) <= NAMED:
        names = [cut(visible(r.step), 20).replace("$", r"\$") for r in readings]
        axes.set_xticks(steps, ["start", *names], rotation=30, ha="right")
    else:
        axes.set_xlabel("steps", color=INK)
    axes.legend(frameon=False, loc="upper left")
    return axes
