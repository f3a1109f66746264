"""An auction of goods that cost nothing to copy, in which a lie about a bid gains little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import Cells, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.values import as_tuple
from adaptive_dp.mechanisms import Exponential
from adaptive_dp.queries.domains import (
    SumOverRows,
    Values,
    finite_float,
    numbers,
    refuse_text_categories,
)
from adaptive_dp.queries.table import Table

MOST_BIDS = 2**32
ROUNDING = 1 + 2.0**-20
"""More than what rounding adds to the move of a product of a price and up to `MOST_BIDS`."""


def _prices(values: Any) -> tuple[float, ...]:
    return tuple(finite_float("a price", value) for value in as_tuple(values))


@frozen
class HighestPrice(RowFunction):
    """How many of the prices, in ascending order, a bid reaches, less 1; -1 for none."""

    of: Any
    prices: tuple[float, ...]

    def __call__(self, columns: Columns) -> Integers:
        """Return the position of the highest price that each bid reaches."""
        bids = numbers(once(columns, self.of))
        # a missing bid reaches none
        place = np.searchsorted(np.array(self.prices), bids, side="right") - 1
        return np.where(np.isnan(bids), -1, place).astype(np.int64)


@frozen
class Revenue(SumOverRows):
    r"""What each price would earn: the price times the number of bids that reach it.

    *Sensitivity*, with P the highest price, r rows of a unit at most. A bid moves the revenue of
    the prices up to it by themselves, all in one direction: by P at most where it appears or
    vanishes, and where it is exchanged for another, by P at most at the prices between both, in one
    direction again. So ``r P`` in the maximum norm, of span ``r P`` as well, and ``r`` times the
    sum of the prices, or the root of the sum of their squares, in l1 and l2. Rows of a unit whose
    number changes are exchanged as far as they go, and appear or vanish beyond.

    *Rounding*. Counts are exact and clamped at 2^32; a product is off by at most ``2^-21 p``, which
    bounds are enlarged by.

    Parameters
    ----------
    prices
        Positive, ascending.

    References
    ----------
    McSherry and Talwar 2007, section 4 (digital goods).
    """

    kind: ClassVar[str] = "revenue"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Values

    prices: tuple[float, ...] = field(converter=_prices)

    def label(self) -> str:
        """Return the number of prices."""
        return f"revenue at {len(self.prices)} prices"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the bids; check the prices."""
        values: Values = inputs[0]
        refuse_text_categories(values.of, values.column)
        ascending = all(a < b for a, b in zip(self.prices, self.prices[1:], strict=False))
        if not (len(self.prices) >= 2 and self.prices[0] > 0 and ascending):
            raise DeclarationError(
                f"an auction needs two prices or more, positive and ascending, got "
                f"{list(self.prices)}"
            )
        return values

    def dimension(self, domain: Values) -> int:
        """Return the number of prices."""
        return len(self.prices)

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        sizes: dict[float, float] = {
            1: float(np.sum(self.prices)),
            2: float(np.linalg.norm(self.prices)),
        }
        return change.rows * sizes.get(norm, self.prices[-1]) * ROUNDING

    def span(self, domain: Values, change: Change) -> float:
        """Return ``r P``."""
        return change.rows * self.prices[-1] * ROUNDING

    def block(self, value: Any) -> Cells:
        """Return 1 for each row, at the highest price that its bid reaches."""
        return Cells(len(self.prices), HighestPrice(value.of, self.prices))

    def finish(self, total: NDArray[Any]) -> Any:
        """Return the revenue at each price: bids that reach a higher one reach it too."""
        reached = np.cumsum(np.asarray(total, dtype=np.int64)[::-1])[::-1]
        return np.asarray(np.minimum(reached, MOST_BIDS) * np.array(self.prices))

    def candidate(self, index: int) -> float:
        """Return the price."""
        return self.prices[index]


def auction(
    table: Table, bids: str, prices: Sequence[float], *, mechanism: Mechanism | None = None
) -> Released[float]:
    r"""Choose a price that earns much, of bids that stay private, and that few gain by lying about.

    Every bidder whose bid reaches the price buys at it. The price is drawn by the exponential
    mechanism on what each would earn (`Revenue`).

    *Truthfulness*. Let v be what the good is worth to a bidder of one row, the others' bids fixed.
    With a true bid the utility at price p is ``u(p) = max(v - p, 0)``, and with any other it is at
    most that, at each price. Another bid changes the law of the price by a factor of at most
    ``e^epsilon``; so the expected utility of any lie is at most ``e^epsilon E[u]``, and what it
    gains is at most ``(e^epsilon - 1) E[u] <= (e^epsilon - 1) max(v - p, 0)`` over the prices. The
    factor is attained where the price that is bid away is nearly sure. The same holds for t bidders
    together with ``t epsilon``: no other auction of this kind withstands groups.

    Parameters
    ----------
    table
        Bidders.
    bids
        A column of numbers; bounds are not needed.
    prices
        Positive and ascending, chosen without looking at the bids.
    mechanism
        By default ``dp.Exponential()``; or another that chooses, such as ``dp.PermuteAndFlip()``.

    Returns
    -------
    Released
        The price.

    Notes
    -----
    The expected revenue is at least the best price's less ``(P / epsilon) log(1 / share)`` but for
    that share, P the highest price: with many bidders nothing is lost.

    References
    ----------
    McSherry and Talwar 2007, Lemma 3 (truthfulness), Theorem 9 (revenue).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> bidders = dp.dataset("bidders", columns={"bid": None})
    >>> price = dp.statistics.auction(bidders, "bid", [1, 2, 3, 4, 5])
    >>> plan = dp.Pipeline(price=price).calibrate(epsilon=0.5)
    >>> plan.simulate(seed=1, bidders={"bid": np.linspace(0, 6, 300)})["price"]
    3.0
    """
    asked: PrivateQuery[Any] = PrivateQuery(Revenue(prices), (table[bids],))
    return asked.release(Exponential() if mechanism is None else mechanism, name="price")
