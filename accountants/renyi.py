"""The Renyi accountant: curves add up, order by order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from attrs import field, frozen

from accountants.accountant import (
    AdditiveAccountant,
    Chain,
    Floor,
    PruningBound,
    delta_floor_of,
    divergence_cost,
    order_bound,
    pure_or_infinite,
    pure_sum_bound,
    remaining_delta,
)
from accountants.definitions import (
    LARGEST_MU,
    Curve,
    renyi_divergence,
    renyi_epsilon,
    renyi_log_delta,
    renyi_total,
    zcdp_epsilon,
)
from accountants.errors import integer, nonnegative, probability
from accountants.loss import PrivacyLoss
from accountants.numerics import Array, Bounds, bracket, ceiling, exact_sum, plus, up


@frozen
class RenyiState:
    """Gaussian pairs as one exact sum, the other losses as they are, the pure sum beside."""

    square: Fraction = Fraction()
    rest: Chain = field(factory=Chain)
    pure: Fraction | None = Fraction()
    delta_floor: Fraction = Fraction()
    floor: Floor = field(factory=Floor)


@frozen
class Renyi(AdditiveAccountant[RenyiState]):
    """``D_alpha = sum D_alpha,i`` at every real order, converted at the best of them.

    Where every loss has a pure epsilon their sum is an answer too (the limit of infinite
    order), and the only one at delta 0.

    References
    ----------
    Mironov 2017, Prop. 1 (composition); Canonne, Kamath and Steinke 2020, Prop. 12
    (conversion).

    Examples
    --------
    >>> from accountants import Laplace
    >>> accountant = Renyi()
    >>> state = accountant.compose(accountant.start(), Laplace(epsilon=0.1), 100)
    >>> round(accountant.epsilon(state, delta=1e-5).upper, 4)
    4.5327
    """

    name: str = "renyi"
    theorem: str = "RDP: Mironov 2017, Prop. 1; Canonne, Kamath & Steinke 2020, Prop. 12"
    adaptive: bool = False

    def start(self) -> RenyiState:
        """Return the zero curve."""
        return RenyiState()

    def compose(self, state: RenyiState, loss: PrivacyLoss, times: int = 1) -> RenyiState:
        """Add the loss's curve and delta floor, ``times`` times."""
        times = integer("times", times, least=0)
        eps, mu = loss.pure(), loss.mu() if loss.is_gaussian_pair else None
        floor = loss.delta_floor()
        if eps is None and mu is None:
            renyi_divergence(loss, np.array([2.0]))  # refuses here a loss that has no curve
        # such a loss stays in the list of curves, where it is infinite
        if mu is not None and not mu <= LARGEST_MU:  # its curve is infinite
            mu = None
        # one loss without a finite pure epsilon leaves the sum without one
        pure = None
        if state.pure is not None and eps is not None and math.isfinite(eps):
            pure = plus(state.pure, eps, times)
        return RenyiState(
            # exact Gaussian pairs add up in mu^2: their curve is alpha mu^2 / 2
            state.square + Fraction(mu) ** 2 * times if mu is not None else state.square,
            state.rest if mu is not None else state.rest.add(loss, times),
            pure,
            state.delta_floor + Fraction(floor) * times if floor else state.delta_floor,
            state.floor.add(loss, times),
        )

    def compose_all(self, state: RenyiState, spends: Mapping[PrivacyLoss, int]) -> RenyiState:
        """Add many losses: the state is that of `compose`, one after another."""
        squares: list[tuple[Fraction, int]] = []
        pures: list[tuple[float, int]] = []
        floors: list[tuple[float, int]] = []
        rest, finite = state.rest, state.pure is not None
        for loss, times in spends.items():
            eps, mu = loss.pure(), loss.mu() if loss.is_gaussian_pair else None
            if eps is None and mu is None:
                renyi_divergence(loss, np.array([2.0]))  # refuses here a loss that has no curve
            if floor := loss.delta_floor():
                floors.append((floor, times))
            if mu is not None and mu <= LARGEST_MU:
                squares.append((Fraction(mu) ** 2, times))
            else:
                rest = rest.add(loss, times)
            finite = finite and eps is not None and math.isfinite(eps)
            if finite and eps is not None:
                pures.append((eps, times))
        return RenyiState(
            state.square + exact_sum(squares),
            rest,
            plus(state.pure, exact_sum(pures)) if finite and state.pure is not None else None,
            state.delta_floor + exact_sum(floors),
            state.floor.add_all(spends),
        )

    def upper(self, state: RenyiState, delta: float) -> float:
        """Return the best order's epsilon at what the delta floors leave of ``delta``."""
        if delta >= 1:  # holds always, even of what surely fails
            return 0.0
        # delta' with F + (1 - F) delta' = delta
        rest = remaining_delta(delta, state.delta_floor)
        if rest >= 1:
            return 0.0
        if rest < 0:
            return math.inf
        # the sum of pure epsilons: the limit of infinite order
        best = math.inf if state.pure is None else ceiling(state.pure)
        # Gaussian pairs alone: the line `slope alpha`, whose best order is a root
        if state.rest.last is None:
            return min(best, zcdp_epsilon(_slope(state), rest)[0])
        return min(best, renyi_epsilon(curve(state), rest)[0])

    def delta(self, state: RenyiState, epsilon: float) -> Bounds:
        """Return the least delta at which the bound is at most ``epsilon``."""
        epsilon = nonnegative("epsilon", epsilon)
        return bracket(min(1.0, state.floor.delta(epsilon)), _delta(state, epsilon))

    def pruning_bounds(self, state: RenyiState, delta: float) -> Sequence[PruningBound]:
        """Return the pruning bounds of the order that certifies, and of the pure sum."""
        rest = remaining_delta(probability("delta", delta), state.delta_floor)
        # the pure sum needs no order, so its pruning bound is always there
        bounds = [pure_sum_bound(pure_or_infinite, delta_floor_of, delta)]
        if 0 < rest < 1:
            order = renyi_epsilon(curve(state), rest)[1]
            bounds.append(order_bound(divergence_cost(order), delta_floor_of, order, delta))
        return bounds

    def cost_function(self, state: RenyiState, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return each loss's divergence at the order that certifies."""
        rest = remaining_delta(probability("delta", delta), state.delta_floor)
        order = renyi_epsilon(curve(state), rest)[1] if 0 < rest < 1 else math.inf
        # the limit of infinite order: the pure sum certifies
        if math.isinf(order):
            return pure_or_infinite
        return lambda loss: float(renyi_divergence(loss, np.array([order]))[0])

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the functional read from ``loss``."""
        # any order would do: a loss knows its curve at all orders or at none
        if loss.renyi(np.array([2.0])) is not None:
            return "its own Renyi curve"
        if loss.mu() is not None or loss.rho() is not None:
            return "the curve rho alpha of its zCDP or Gaussian-DP parameter"
        return "randomized response's curve, from its pure epsilon"


def curve(state: RenyiState) -> Curve:
    """Return the curve of what was composed: an upper bound at each real order above 1."""
    # read once: the function below is evaluated at many orders
    slope = _slope(state)
    rest = list(state.rest.items().items())

    def divergences(orders: Array) -> Array:
        # Mironov 2017, Prop. 1: divergences of each order add up
        return up(orders * slope + renyi_total(rest, orders))

    return divergences


def _slope(state: RenyiState) -> float:
    # alpha mu^2 / 2, rounded up: the curve may only be too high
    return up(ceiling(state.square) / 2)


def _delta(state: RenyiState, epsilon: float) -> float:
    """Return ``F + (1 - F) delta'``: the floors, else what the curve proves at ``epsilon``."""
    # the sum of the floors may pass 1, the probability may not
    delta_floor = min(Fraction(1), state.delta_floor)
    # the losses never exceed epsilon outside of the floors, so delta' = 0
    if state.pure is not None and state.pure <= Fraction(epsilon):
        return ceiling(delta_floor)
    log_rest = renyi_log_delta(curve(state), epsilon)
    # e^x of a rounded x is off by |x| units
    rest = up(math.exp(log_rest), 4 + 2 * abs(log_rest)) + 1e-323
    # exact in rationals, rounded up once at the end
    return min(1.0, ceiling(delta_floor + (1 - delta_floor) * Fraction(rest)))
