"""The errors of membership tests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from accountants import Accountant, plot
from adaptive_dp.plot.guarantees import Many, guarantees

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tradeoff(
    what: Many,
    *,
    accountants: Sequence[Accountant[Any]] | None = None,
    points: int = 80,
    allow: Collection[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw the least false-negative rate of a membership test against its false-positive rate.

    The line is what holds for every test; the nearer to "tossing a coin", the more private.

    Parameters
    ----------
    what, accountants, allow, ax
        As for `privacy_profile`.
    points
        Of each curve.

    Raises
    ------
    DeclarationError, InapplicableError, AccountingError
        As `privacy_profile`.

    Examples
    --------
    >>> import accountants
    >>> from adaptive_dp import plot
    >>> axes = plot.tradeoff({"mu = 1": accountants.Gaussian(1.0)}, points=5)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('false-positive rate', 'false-negative rate')
    """
    return plot.tradeoff(guarantees(what, accountants, allow), points=points, ax=ax)
