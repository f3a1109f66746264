"""The zCDP accountant: rhos add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from attrs import field, frozen

from accountants.accountant import Floor, bracket, delta_by_search
from accountants.bounds import Bounds
from accountants.errors import nonnegative, probability, whole
from accountants.loss import PrivacyLoss
from accountants.notions.concentrated import zcdp_rho
from accountants.notions.renyi import zcdp_epsilon
from accountants.rounding import ceiling, flooring, up
from accountants.screen import Screen, at_order, failing


@frozen
class ConcentratedState:
    """The exact sums of rho and of the failures."""

    rho: Fraction = Fraction()
    failure: Fraction = Fraction()
    floor: Floor = field(factory=Floor)


@frozen
class Concentrated:
    """``rho = sum rho_i``, read as the Renyi curve ``rho alpha`` and converted at its best order.

    References
    ----------
    Bun and Steinke 2016, Lemma 1.7 (composition); Canonne, Kamath and Steinke 2020, Prop. 12
    (conversion, at every real order).

    Examples
    --------
    >>> from accountants import Gaussian
    >>> accountant = Concentrated()
    >>> state = accountant.compose(accountant.start(), Gaussian(mu=1.0))
    >>> round(accountant.epsilon(state, delta=1e-5).upper, 4)
    4.7284
    """

    name: str = "concentrated"
    theorem: str = "zCDP: Bun & Steinke 2016, Lemma 1.7; Canonne, Kamath & Steinke 2020, Prop. 12"
    adaptive: bool = False

    def start(self) -> ConcentratedState:
        """Return the empty sums."""
        return ConcentratedState()

    def compose(
        self, state: ConcentratedState, loss: PrivacyLoss, times: int = 1
    ) -> ConcentratedState:
        """Add the loss's rho and failure, ``times`` times."""
        times = whole("times", times, least=0)
        rho, failure = zcdp_rho(loss), loss.failure()
        if not math.isfinite(rho):  # as good as certain to fail
            rho, failure = 0.0, 1.0
        return ConcentratedState(
            state.rho + Fraction(rho) * times,
            state.failure + Fraction(failure) * times,
            state.floor.add(loss, times),
        )

    def epsilon(self, state: ConcentratedState, delta: float) -> Bounds:
        """Return the epsilon of ``sum rho`` zCDP at what the failures leave of ``delta``."""
        delta = probability("delta", delta)
        return bracket(state.floor.epsilon(delta), _upper(state, delta))

    def delta(self, state: ConcentratedState, epsilon: float) -> Bounds:
        """Return the least delta at which the bound is at most ``epsilon``."""
        epsilon = nonnegative("epsilon", epsilon)
        failure = min(1.0, ceiling(state.failure))
        return delta_by_search(lambda d: _upper(state, d), epsilon, state.floor, failure)

    def screens(self, state: ConcentratedState, delta: float) -> Sequence[Screen]:
        """Return the screen of the order that certifies, whose divergence is ``rho alpha``."""
        rest = remaining(probability("delta", delta), state.failure)
        if not 0 < rest < 1:
            return []
        order = zcdp_epsilon(ceiling(state.rho), rest)[1]
        if not order < math.inf:
            return []
        return [at_order(lambda loss: up(zcdp_rho(loss) * order), failing, order, delta)]

    def price(self, state: ConcentratedState, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return each loss's rho."""
        probability("delta", delta)
        return zcdp_rho

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the functional read from ``loss``."""
        if loss.rho() is not None:
            return "its own rho"
        if loss.mu() is not None:
            return "rho = mu^2/2 from its Gaussian-DP mu"
        return "rho = eps tanh(eps/2) from its pure epsilon (randomized response is the worst)"


def remaining(delta: float, failure: Fraction) -> float:
    """Return the delta left for the rest when all failures together take ``failure``.

    With probability at most F some loss fails; otherwise the rest holds at delta':
    ``F + (1 - F) delta' <= delta``.
    """
    if failure >= 1 or failure > Fraction(delta):
        return -1.0
    return flooring((Fraction(delta) - failure) / (1 - failure))


def _upper(state: ConcentratedState, delta: float) -> float:
    if delta >= 1:  # holds always, even of what surely fails
        return 0.0
    rest = remaining(delta, state.failure)
    if rest >= 1 or (state.rho == 0 and rest >= 0):
        return 0.0
    if rest <= 0:
        return math.inf
    rho = ceiling(state.rho)
    return zcdp_epsilon(rho, rest)[0]
