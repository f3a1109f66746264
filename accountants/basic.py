"""The basic accountant: epsilons and deltas add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from attrs import field, frozen

from accountants.accountant import (
    SHARE_PARTS,
    AdditiveAccountant,
    Chain,
    Floor,
    PruningBound,
    has_pure_epsilon,
    pure_or_infinite,
    pure_sum_bound,
    share_costs,
)
from accountants.definitions import approximate_epsilon
from accountants.errors import integer, probability
from accountants.loss import PrivacyLoss
from accountants.numerics import bound, down, exact_sum, flooring, plus


@frozen
class BasicState:
    """Exact sums of pure epsilons and delta floors, and the losses that have no pure epsilon."""

    epsilon: Fraction = Fraction()
    delta_floor: Fraction = Fraction()
    unbounded: Chain = field(factory=Chain)
    count: int = 0
    infinite: bool = False
    floor: Floor = field(factory=Floor)


@frozen
class Basic(AdditiveAccountant[BasicState]):
    """``epsilon = sum eps_i``, ``delta = sum delta_i``.

    A loss without a pure epsilon (the Gaussian) is paid at a delta of its own: what the
    floors leave of ``delta``, in equal parts.

    References
    ----------
    Dwork and Roth 2014, Thm 3.16; adaptively chosen parameters: Rogers, Roth, Ullman and
    Vadhan 2016, Thm 3.6 (a sum is a valid filter).

    Examples
    --------
    >>> from accountants import Laplace
    >>> accountant = Basic()
    >>> state = accountant.compose(accountant.start(), Laplace(epsilon=0.125), 8)
    >>> accountant.epsilon(state, delta=0).upper
    1.0
    """

    name: str = "basic"
    theorem: str = "basic composition: Dwork & Roth 2014, Thm 3.16"
    adaptive: bool = True

    def start(self) -> BasicState:
        """Return the empty sums."""
        return BasicState()

    def compose(self, state: BasicState, loss: PrivacyLoss, times: int = 1) -> BasicState:
        """Add the loss's epsilon and delta floor, ``times`` times."""
        times = integer("times", times, least=0)
        floor = loss.delta_floor()
        bounded, eps = has_pure_epsilon(loss), pure_or_infinite(loss)
        # a loss without a pure epsilon waits for its share of delta
        return BasicState(
            plus(state.epsilon, eps, times) if math.isfinite(eps) else state.epsilon,
            # the union bound: delta floors add
            state.delta_floor + Fraction(floor) * times if floor else state.delta_floor,
            state.unbounded if bounded else state.unbounded.add(loss, times),
            state.count + (0 if bounded else times),
            state.infinite or (bounded and math.isinf(eps)),
            state.floor.add(loss, times),
        )

    def compose_all(self, state: BasicState, spends: Mapping[PrivacyLoss, int]) -> BasicState:
        """Add many losses: the state is that of `compose`, one after another."""
        costs: list[tuple[float, int]] = []
        floors: list[tuple[float, int]] = []
        unbounded, count, infinite = state.unbounded, state.count, state.infinite
        for loss, times in spends.items():
            if floor := loss.delta_floor():
                floors.append((floor, times))
            eps = loss.pure()
            if eps is None:
                has_pure_epsilon(loss)  # refuses what has no profile either
                unbounded, count = unbounded.add(loss, times), count + times
            elif math.isfinite(eps):
                costs.append((eps, times))
            else:
                infinite = True
        return BasicState(
            plus(state.epsilon, exact_sum(costs)),
            state.delta_floor + exact_sum(floors),
            unbounded,
            count,
            infinite,
            state.floor.add_all(spends),
        )

    def upper(self, state: BasicState, delta: float) -> float:
        """Return the sum at ``delta``; infinite where the delta floors alone exceed it."""
        if delta == 1:  # (0, 1)-DP holds always
            return 0.0
        if state.delta_floor > Fraction(delta) or state.infinite:
            return math.inf
        total = state.epsilon
        if state.count:
            # the unbounded losses are (eps_i, share)-DP, and count * share <= delta - sum delta_i
            share = _share(state, delta)
            if share == 0:
                return math.inf
            for loss, times in state.unbounded.items().items():
                eps = approximate_epsilon(loss, share)
                if math.isinf(eps):
                    return math.inf
                total = plus(total, eps, times)
        return bound(total)  # the exact sum, or a float above it

    def pruning_bounds(self, state: BasicState, delta: float) -> Iterator[PruningBound]:
        """Yield pruning bounds, at this state's share of ``delta`` for each loss, and at less."""
        share = _share(state, probability("delta", delta))
        # at less than its share a loss costs more, but the delta floors may be larger
        for part in SHARE_PARTS:
            if share > 0 or not state.count:
                yield pure_sum_bound(*share_costs(share * part), delta)

    def cost_function(self, state: BasicState, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return the epsilon that each loss adds."""
        return share_costs(_share(state, probability("delta", delta)))[0]

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the functional read from ``loss``."""
        if loss.pure() is not None:
            return "its pure epsilon"
        return "its privacy profile, at an equal share of delta"


def _share(state: BasicState, delta: float) -> float:
    """Return each unbounded loss's share of what the floors leave of ``delta``, rounded down."""
    return max(0.0, down(flooring((Fraction(delta) - state.delta_floor) / max(1, state.count)), 2))
