"""What the records of one data set lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from adaptive_dp.instance.plot import histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def per_instance(losses: ArrayLike, *, worst: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw how many records lose how much, beside the worst case, and return the axes.

    Per-instance losses are functions of the private data, and so is a picture of them: whoever
    shows it publishes them without any guarantee. So they are taken revealed alone.

    Parameters
    ----------
    losses
        Epsilons (in nats), one for each record: what ``.reveal()`` returned.
    worst
        The epsilon of the worst case, such as the certificate's, drawn as a line.
    ax
        To draw into; a new figure by default.

    Raises
    ------
    DataError
        If the losses are still private, or not numbers of at least 0.
    AccountingError
        If matplotlib is not installed.
    """
    return histogram(losses, worst=worst, ax=ax)
