"""What answering the questions loses on the votes at hand, as a private number to be released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.losses.votes import Votes
from accountants.notions.renyi import renyi_divergence
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import Ballots, BallotsDomain, VoteCounts
from adaptive_dp.pate.bounds import order_known, table, votes_of
from adaptive_dp.primitives.bounded_grid import step


@frozen(eq=False, repr=False)
class Spending:
    """A private number f in [0, worst], and how it moves between neighbours.

    Parameters
    ----------
    votes, counts, order
        f is the bound ``votes.both(counts, order)``.
    worst
        What the answers lose on every data set; it does not depend on the votes.

    Examples
    --------
    >>> from accountants import GaussianVotes
    >>> votes = GaussianVotes(sigma=40.0, classes=3, teachers=250)
    >>> clear = Spending(votes, np.array([[240, 5, 5]]), order=20.0, worst=1.0)
    >>> close = Spending(votes, np.array([[100, 90, 60]]), order=20.0, worst=1.0)
    >>> close
    <private spending>
    >>> clear.smooth(beta=0.01)[0] < close.smooth(beta=0.01)[0] <= 1.0
    True
    """

    votes: Votes
    counts: NDArray[np.int64]
    order: float
    worst: float

    def __repr__(self) -> str:
        return "<private spending>"

    def smooth(self, beta: float) -> tuple[float, float]:
        """Return f, and a beta-smooth sensitivity S of it that is never 0.

        For all neighbours, ``|f - f'| <= S`` and ``S <= e^beta S'``: both are kept by a cut at the
        worst case, and by a constant that is added (`least`). Off by a relative 2^-50 at most.
        """
        bound, scale = self.votes.smooth(self.counts, self.order, beta)  # type: ignore[attr-defined]
        bound, scale = (float(np.nan_to_num(v, nan=self.worst)) for v in (bound, scale))
        return min(bound, self.worst), min(scale, self.worst) + self.least

    @property
    def least(self) -> float:
        """The least S: a step of the grid of f's bounds."""
        return step(0.0, self.worst)


@frozen
class Spent(Query):
    """The Renyi divergence of answering all questions: a bound of it on the votes at hand.

    With M the answers of ``mechanism`` to all questions, f(D) is at least ``D_a(M(D) || M(D'))``
    and ``D_a(M(D') || M(D))`` at ``a = order``, for every D' in which one teacher votes otherwise.
    It is private as it stands: `adaptive_dp.pate.Sanitized` releases it.

    Parameters
    ----------
    mechanism
        The aggregator, with its numbers.
    order
        a, above 1; chosen without looking at the votes.
    """

    kind: ClassVar[str] = "spent_votes"
    reads: ClassVar[type] = BallotsDomain
    gives: ClassVar[type] = Spending

    mechanism: Mechanism
    order: float = field(converter=number)

    def __attrs_post_init__(self) -> None:
        require(
            isinstance(self.mechanism, Mechanism),
            "spent needs an aggregator such as dp.pate.GNMax(sigma=40), got "
            f"{type(self.mechanism).__name__}",
        )
        require(
            order_known(self.order),
            f"spent needs an order above 1, at most 1e6, got {self.order!r}; near 1 + sqrt(2 "
            "log(1/delta) / divergence) is good",
        )

    def label(self) -> str:
        """Return what is bounded."""
        return "divergence of the answers"

    def detail(self) -> str:
        """Return of which aggregator, at which order."""
        return f"{self.mechanism} at order {self.order:g}"

    def domain(self, inputs: Sequence[Any]) -> BallotsDomain:
        """Return the size of the ballots."""
        of: BallotsDomain = inputs[0]
        self._votes(of)
        require(
            0 < self.worst(of) < math.inf,
            f"{self.mechanism} has no finite divergence at order {self.order:g} at worst, so that "
            "nothing bounds it; take a lower order",
        )
        return of

    def _votes(self, of: BallotsDomain) -> Votes:
        found = votes_of(self.mechanism, of)
        require(
            callable(getattr(found, "smooth", None)),
            f"nothing is proven of how {type(self.mechanism).__name__}'s divergence moves between "
            "data sets, in both directions; use an aggregator such as dp.pate.GNMax",
        )
        return found

    def worst(self, of: BallotsDomain) -> float:
        """Return the divergence on every data set, of all questions: a public number."""
        loss = self.mechanism.cost(1.0, of.questions, 1.0)
        return float(renyi_divergence(loss, np.array([float(self.order)]))[0])

    def sensitivity(self, domain: BallotsDomain, change: Change, norm: float) -> float:
        """Return 1, the teacher that changes; refuse more of them, and any norm but 0."""
        require(
            norm == 0,
            "what votes lose says how many teachers change, not how far it moves: release it with "
            f"dp.pate.Sanitized, whose norm is 0, got norm {norm!r}",
        )
        require(
            change.rows <= 1,
            f"one unit may change {change.rows} teachers here, and what the answers lose on the "
            "votes at hand is proven where it changes one; split units among teachers at random "
            "(count=...)",
        )
        return 1.0

    def run(self, inputs: Sequence[Any], stream: Stream) -> Spending:
        """Return the private number."""
        votes: VoteCounts = inputs[0]
        questions, classes = votes.counts.shape
        of = BallotsDomain(votes.teachers, questions, classes)
        return Spending(self._votes(of), table(votes.counts), float(self.order), self.worst(of))


def spent(ballots: Ballots, mechanism: Mechanism, *, order: float) -> PrivateQuery[Any]:
    """Return what the aggregator's answers to all questions lose on these votes, as a query.

    A bound of the Renyi divergence at ``order``, private itself: `adaptive_dp.pate.sanitized`
    publishes it.

    Parameters
    ----------
    ballots
        The votes.
    mechanism
        The aggregator, with its numbers.
    order
        Above 1.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=100, classes=10)
    >>> spent(votes, dp.pate.GNMax(sigma=40.0), order=20.0)
    <private divergence of the answers GNMax(sigma=40) at order 20>
    """
    return PrivateQuery(Spent(mechanism, order), (ballots,))
