"""GNMax behind a test: all questions are answered if these votes lose little, else none is."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import Composite, GaussianVotes, PrivacyLoss, Pure, Tested
from accountants import Gaussian as GaussianLoss
from accountants.rounding import up
from adaptive_dp.graph.convert import POSITIVE, number, positive
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import BallotsDomain, VoteCounts
from adaptive_dp.pate.bounds import order_known, table, votes_of
from adaptive_dp.pate.gnmax import GNMax, argmax_mu, changed, most
from adaptive_dp.primitives.integer_noise import passes
from adaptive_dp.primitives.smooth import failure_parameter, paid, usable

LEAST, MOST = 1e-9, 1e12
"""Noise for which bounds are known, in votes."""


def _order(instance: Any, attribute: Any, value: Any) -> None:
    require(
        order_known(value),
        f"TestedGNMax.order must be a number above 1, at most 1e6, got {value!r}; it is declared, "
        "not calibrated",
    )


def _budget(instance: Any, attribute: Any, value: Any) -> None:
    require(
        positive(value),
        f"TestedGNMax.budget must be a {POSITIVE}, got {value!r}; it is a Renyi divergence, "
        "declared without looking at the votes",
    )


class TestedGNMax(Mechanism):
    """Answer by `GNMax` if the votes pass a private test that they lose little, else not at all.

    Let b(D) be the bound, of both directions, of what answering all questions loses on the votes D
    (`accountants.GaussianVotes.both`) at ``order``, and d(D) the number of teachers that must vote
    otherwise, at least, to bring it above ``budget``. The votes pass if ``d + N > T``, N with
    masses proportional to ``e^{-epsilon |k|}``, T the least with ``P(N > T) <= failure``. Then all
    questions are answered, else none: NaN. Unlike what `sanitized` publishes, this is a guarantee
    for all data sets.

    Where the budget holds at D or at D', it bounds the pair in both directions, whichever of the
    two it is, and the test adds a pure epsilon. Where it is exceeded at both, both d are 0, and
    each passes with the same probability, at most ``failure``. See `accountants.Tested`.

    Parameters
    ----------
    sigma
        The noise of the answers, in votes.
    order, budget
        The Renyi divergence that the answers may lose, in nats; chosen without looking at the
        votes.
    epsilon, failure
        Of the test.

    References
    ----------
    Redberg, Zhu and Wang 2023 (generalised propose-test-release); Dwork and Lei 2009; own proof.

    Examples
    --------
    >>> mechanism = TestedGNMax(sigma=40.0, order=20.0, budget=0.1, epsilon=0.2, failure=1e-6)
    >>> mechanism.cost(1.0, 1000, 1.0).renyi(np.array([20.0])).round(4)
    array([0.2685])
    """

    __test__: ClassVar[bool] = False
    """It is no test of pytest's."""

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = (
        "generalised propose-test-release: Redberg, Zhu & Wang 2023; Papernot et al. 2018, Thm 6"
    )
    sampler: ClassVar[str] = (
        "two-sided geometric on whole numbers; Gaussian, exact, rounded to a power-of-two step"
    )

    sigma: float = noise_parameter("sigma")
    order: float = field(converter=number, validator=_order, metadata={"symbol": "order"})
    budget: float = field(converter=number, validator=_budget, metadata={"symbol": "budget"})
    epsilon: float = budget_parameter("epsilon")
    failure: float = failure_parameter()

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, or NaN for all questions."""
        counts = table(value.counts)
        far = 0  # noise of which no bound is known fails the test
        if LEAST <= self.sigma <= MOST:
            votes = GaussianVotes(self.sigma, counts.shape[1], value.teachers)
            far = votes.distance(counts, float(self.order), self.budget)
        if passes(far, usable(self.epsilon), self.failure, stream):
            return most(value.counts, self.sigma, stream)
        return np.full(len(counts), math.nan)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 1.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of the test and ``dimension`` questions.

        The budget bounds what one teacher changes; of more the worst case is charged, and the test
        at their number.
        """
        times = changed(distance)
        if times == 0:
            return Pure(0.0)
        worst = GaussianLoss(up(argmax_mu(distance, self.sigma) * math.sqrt(dimension), 4))
        test = up(paid(self.epsilon) * times, 1)
        if times > 1:
            return Composite({Pure(test): 1, worst: 1})
        return Tested(test, self.failure, float(self.order), self.budget, worst)

    def premises(self, release: Any) -> None:
        """Refuse more teachers, or classes, than bounds are known for."""
        of = release.inputs[0].domain
        if isinstance(of, BallotsDomain):
            votes_of(GNMax(1.0), of)
