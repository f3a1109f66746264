"""Delta against epsilon."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from accountants import Accountant, plot
from adaptive_dp.plot.guarantees import Many, guarantees

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def privacy_profile(
    what: Many,
    *,
    accountants: Sequence[Accountant[Any]] | None = None,
    least: float = 1e-12,
    points: int = 80,
    allow: Collection[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw delta against epsilon (in nats), and return the axes.

    The line is what holds; a band below it reaches to what no proof can go below.

    Parameters
    ----------
    what
        A plan, its certificate, a loss or a term; or a mapping of names to several.
    accountants
        A curve for each of them that has a bound; by default the tight one alone.
    least
        The delta at the lower edge.
    points
        Of each curve.
    allow
        Modules from which a certificate's own mechanisms may be imported.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DeclarationError
        If there is no curve of it, as of a session, or a parameter is still free.
    InapplicableError
        If no accountant has a bound.
    AccountingError
        If matplotlib is not installed.

    Examples
    --------
    >>> import accountants
    >>> from adaptive_dp import plot
    >>> axes = plot.privacy_profile({"mu = 1": accountants.Gaussian(1.0)}, points=5)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('epsilon (nats)', 'delta (probability)')
    """
    return plot.profile(guarantees(what, accountants, allow), least=least, points=points, ax=ax)
