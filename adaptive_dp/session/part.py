"""A share of a session's budget, for one topic or one person of a team."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from accountants.filters.sums import Amount
from adaptive_dp.graph.handles import Released
from adaptive_dp.session.forecast import Forecast

if TYPE_CHECKING:
    from adaptive_dp.session.account import Inside
    from adaptive_dp.session.session import Session

T = TypeVar("T")


class Part:
    """A sub-session: spends of the session's budget, and at most a share of it.

    `Session.part` makes one. All that is released through it together keeps the share of epsilon,
    delta and failures, by a filter of its own; the session's filter stands above it. What was
    released anywhere in the session is known here as well, at no cost.

    The first spend in a part settles its share, for all sessions of the ledger: whoever opened it
    with another is refused from then on.

    Attributes
    ----------
    name
        As it stands in the ledger: the names of the parts around it and its own, with slashes.
    share
        Of the session's budget.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"age": [30.0, 40.0]}) as session:
    ...     ages = session.part("ages", share=0.5)
    ...     count = ages.run(people.count().release(dp.Laplace(scale=4)))
    ...     left = ages.remaining.costs[0], session.remaining.costs[0]
    >>> ages
    <part 'ages': 0.5 of the session's budget>
    >>> [round(cost, 6) for cost in left]
    [0.25, 0.75]
    """

    def __init__(self, session: Session, inside: Inside) -> None:
        self._session, self._inside = session, inside
        self.name, self.share = inside[-1]

    def run(self, handle: Released[T], *, name: str = "", again: bool = False) -> T:
        """Return the value of a handle; see `Session.run`."""
        return self._session._run(handle, name, again, self._inside)  # type: ignore[no-any-return]

    def what_if(self, handle: Released[T], *, again: bool = False) -> Forecast:
        """Return what a step would cost and leave of this part; see `Session.what_if`."""
        return self._session._forecast(handle, again, self._inside)

    def part(self, name: str, share: float) -> Part:
        """Return a part of this part, with at most that share of its budget."""
        return self._session._part(name, share, self._inside)

    @property
    def remaining(self) -> Amount:
        """What is left of the share, rounded down; the session may have less left."""
        return self._session._left(self._inside)

    @property
    def spent(self) -> Amount:
        """What was spent through this part, rounded up."""
        return self._session._gone(self._inside)

    @property
    def epsilon(self) -> float:
        """What was spent through this part, as an epsilon at its share of delta: an odometer."""
        return self._session._reading(self._inside)

    def __repr__(self) -> str:
        return f"<part {self.name!r}: {self.share:g} of the session's budget>"
