"""The contract of an accountant, the bases of those that add, and pruning bounds.

*Pruning bounds* are cheap upper bounds of epsilon for many compositions at once, from sums alone.

Where one composition attains its best bound (at some order, with some split of delta), each loss
has a cost there, costs add up, and a bound follows from their sum for every other composition
too. It is seldom the best bound of that other one, but where it is not above the bound of the
first, the other need not be measured (`accountants.world`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import numpy as np
from attrs import field, frozen

from accountants.definitions import (
    LARGEST_MU,
    approximate_epsilon,
    approximate_epsilon_floor,
    gdp_epsilon_floor,
    gdp_profile,
    renyi_divergence,
    renyi_to_epsilon,
)
from accountants.errors import DomainError, InapplicableError, integer, nonnegative, probability
from accountants.loss import PrivacyLoss
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    bracket,
    ceiling,
    crossing,
    exact_sum,
    flooring,
    totals,
    up,
)

Cost = Callable[[PrivacyLoss], float]


@frozen
class PruningBound:
    """Bounds of epsilon, at one delta, from sums over losses.

    Parameters
    ----------
    cost
        What a loss adds to the sum; an upper bound, infinite where nothing is known.
    delta_floor
        What it adds to the delta below which nothing is promised.
    epsilon
        Upper bounds of epsilon from sums of costs and of delta floors (shapes (worlds,), both
        rounded up), infinite where nothing follows.
    """

    cost: Cost
    delta_floor: Cost
    epsilon: Callable[[Array, Array], Array]


def order_bound(cost: Cost, delta_floor: Cost, order: float, delta: float) -> PruningBound:
    """Return the pruning bound of a Renyi order: divergences add up, and convert at what is left.

    With delta floors that sum to F that is ``(delta - F) / (1 - F)`` (`remaining_delta`).
    """
    orders = np.array([order])

    def epsilon(sums: Array, floors: Array) -> Array:
        # delta' = (delta - F) / (1 - F), rounded down
        left = delta - floors - 8 * UNIT * delta
        rest = left / np.maximum(1 - floors, UNIT) * (1 - 8 * UNIT)
        valid = (rest > 0) & (floors < 1)
        # the conversion at delta' is that at delta plus log(delta / delta') / (alpha - 1), rounded
        # up
        correction = np.maximum(0.0, -np.log(np.where(valid, rest, delta) / delta)) / (order - 1)
        bound = renyi_to_epsilon(sums, orders, delta) + up(correction + 8 * UNIT / (order - 1), 16)
        # where the floors take all of delta nothing follows
        return np.where(valid, np.maximum(0.0, up(bound)), np.inf)

    return PruningBound(cost, delta_floor, epsilon)


def pure_sum_bound(cost: Cost, delta_floor: Cost, delta: float) -> PruningBound:
    """Return the bound of pure epsilons: their sum, while the floors are within ``delta``."""
    return PruningBound(
        cost, delta_floor, lambda sums, floors: np.where(floors <= delta, sums, np.inf)
    )


def delta_floor_of(loss: PrivacyLoss) -> float:
    """Return the probability on which nothing is promised."""
    return loss.delta_floor()


def pure_or_infinite(loss: PrivacyLoss) -> float:
    """Return the pure epsilon, infinite where there is none."""
    eps = loss.pure()
    return math.inf if eps is None else eps


def has_pure_epsilon(loss: PrivacyLoss) -> bool:
    """Whether a loss has a pure epsilon, be it infinite; else it must have a privacy profile.

    Raises
    ------
    InapplicableError
        If it has neither.
    """
    if loss.pure() is None and total_variation(loss) is None:
        raise InapplicableError(
            f"{type(loss).__name__} has neither a pure epsilon nor a privacy profile"
        )
    return loss.pure() is not None


def divergence_cost(order: float) -> Cost:
    """Return the cost of losses at a Renyi order, infinite where none is known."""
    orders = np.array([order])

    def cost(loss: PrivacyLoss) -> float:
        try:
            return float(renyi_divergence(loss, orders)[0])
        except InapplicableError:
            return math.inf

    return cost


SHARE_PARTS = (1 - 1e-12, 3 / 4, 1 / 2, 1 / 4, 1 / 16)
"""Parts of a loss's share of delta: at less of it a loss costs more, and the floors may be larger.
"""


def share_costs(share: float) -> tuple[Cost, Cost]:
    """Return the costs and delta floors of losses as approximate DP.

    A loss has its pure epsilon, or without one that of its profile at a share of delta, by which
    it then fails; without a share nothing.
    """

    def cost(loss: PrivacyLoss) -> float:
        eps = pure_or_infinite(loss)
        return approximate_epsilon(loss, share) if loss.pure() is None and share > 0 else eps

    def delta_floor(loss: PrivacyLoss) -> float:
        return loss.delta_floor() + (share if loss.pure() is None else 0.0)

    return cost, delta_floor


# -----------------------------------------------------------------------------
# The contract of an accountant: a fold over losses, whose state is a value.
#
# An accountant never asks which mechanism a loss comes from; it reads functionals through
# `accountants.definitions`. What it cannot bound it refuses with `InapplicableError`.


S = TypeVar("S")


class Accountant(Protocol[S]):
    """Composes losses and answers with a bracket.

    One of your own need not inherit. What lacks a member is refused, with the member's signature,
    when it is first asked (`measure`, `certify`, `Guarantee`, `calibrate`).

    It may also have ``pruning_bounds(state, delta)``, which yields bounds from sums of costs
    (`accountants.accountant.PruningBound`): then few of many worlds are measured. And
    ``compose_all(state, spends)``, for losses with their counts, in the class that has ``compose``:
    the state of all of them, in less time than one after another.

    Examples
    --------
    >>> from accountants import Laplace, Renyi
    >>> accountant = Renyi()
    >>> state = accountant.compose(accountant.start(), Laplace(epsilon=0.1), times=100)
    >>> print(accountant.epsilon(state, delta=1e-6))
    [0.0999979, 4.98418]
    >>> accountant.name, accountant.adaptive
    ('renyi', False)
    """

    @property
    def name(self) -> str:
        """How certificates call it."""
        ...

    @property
    def theorem(self) -> str:
        """What its upper bound rests on."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether privacy parameters may be chosen as the analysis runs."""
        ...

    def start(self) -> S:
        """Return the state in which nothing is spent."""
        ...

    def compose(self, state: S, loss: PrivacyLoss, times: int = 1) -> S:
        """Return the state after paying ``loss`` ``times`` times; constant work."""
        ...

    def epsilon(self, state: S, delta: float) -> Bounds:
        """Return a bracket of the tight epsilon at ``delta``."""
        ...

    def delta(self, state: S, epsilon: float) -> Bounds:
        """Return a bracket of the tight delta at ``epsilon``."""
        ...

    def cost_function(self, state: S, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return the function from losses to their cost in the accounting unit, at its optimum."""
        ...

    def conversion(self, loss: PrivacyLoss) -> str:
        """Return which functional the accountant reads from ``loss``, and by what theorem."""
        ...


_MEMBERS: Mapping[str, int] = {
    "start": 0,
    "compose": 3,
    "epsilon": 2,
    "delta": 2,
    "cost_function": 2,
    "conversion": 1,
}
"""The methods of an accountant, with the number of arguments that each is called with."""


def checked_accountant(accountant: Any) -> None:
    """Refuse what lacks a member of an accountant, before anything is composed.

    Raises
    ------
    DomainError
        With each member that is missing, or takes other arguments, and its signature.
    """
    rule = "accountants must be instances such as accountants.Renyi()"
    if isinstance(accountant, type):
        name = accountant.__name__
        raise DomainError(f"{rule}, got the class {name}; write {name}()")
    if not hasattr(accountant, "compose") and not hasattr(accountant, "epsilon"):
        raise DomainError(f"{rule}, got {accountant!r}")
    # what an instance may set is looked at each time, what its class has once
    wrong = [*_wrong_attributes(accountant)]
    if type(accountant) not in _COMPLETE:
        wrong += _wrong_members(accountant)
    if wrong:
        raise DomainError(
            f"{rule}; {type(accountant).__name__} is not complete: {'; '.join(wrong)} (see "
            "accountants.Accountant)"
        )
    _COMPLETE.add(type(accountant))


_COMPLETE: WeakSet[type] = WeakSet()
"""Classes whose methods have been looked at: each is asked for with every number."""


def bounds_of(
    accountant: Accountant[S], state: S, *, delta: float | None = None, epsilon: float | None = None
) -> Bounds:
    """Return epsilon at ``delta``, or delta at ``epsilon``, and refuse what is no `Bounds`.

    Raises
    ------
    DomainError
        If an accountant of one's own returns anything else, such as a float.
    """
    if delta is not None:
        asked, bounds = "epsilon", accountant.epsilon(state, delta)
    else:
        assert epsilon is not None
        asked, bounds = "delta", accountant.delta(state, epsilon)
    if not isinstance(bounds, Bounds):
        raise DomainError(
            f"{type(accountant).__name__}.{asked} must return accountants.Bounds(lower, upper), "
            f"got {bounds!r}"
        )
    return bounds


def _wrong_attributes(accountant: Any) -> Iterator[str]:
    """Yield what is wrong with each attribute."""
    for name, kind in (("name", str), ("theorem", str), ("adaptive", bool)):
        # of the protocol itself it is a property without a value
        if not hasattr(accountant, name) or _inherited(type(accountant), Accountant, name):
            yield f"it has no {name}, which must be a {kind.__name__}"
        elif not isinstance(value := getattr(accountant, name), kind):
            yield f"its {name} must be a {kind.__name__}, got {value!r}"


def _wrong_members(accountant: Any) -> Iterator[str]:
    """Yield what is wrong with each method."""
    kind = type(accountant)
    for name, count in _MEMBERS.items():
        wanted = f"{name}{inspect.signature(getattr(Accountant, name))}"
        method = getattr(accountant, name, None)
        if method is None or _inherited(kind, Accountant, name):
            yield f"it has no method {wanted}"
        elif not callable(method) or not _takes(method, count):
            yield f"its {name} must be a method {wanted}"
    # what the bases leave to a subclass
    for base, names in ((AdditiveAccountant, ("upper",)), (SumAccountant, ("cost", "converted"))):
        for name in names:
            if _inherited(kind, base, name):
                yield f"it has no method {name}{inspect.signature(getattr(base, name))}"


def _inherited(kind: type, base: type, name: str) -> bool:
    """Return whether a class has no more than the base's stub of a member."""
    return base in kind.__mro__ and inspect.getattr_static(kind, name) is base.__dict__[name]


def _takes(method: Callable[..., object], count: int) -> bool:
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of a method that is not written in Python nothing is known
        return True
    return True


@frozen
class Chain:
    """A multiset of losses to which one is added in constant time: an immutable linked list."""

    last: tuple[PrivacyLoss, int] | None = None
    before: Chain | None = None

    def add(self, loss: PrivacyLoss, times: int) -> Chain:
        """Return the chain with ``loss`` added ``times`` times."""
        return Chain((loss, times), self) if times else self

    def items(self) -> dict[PrivacyLoss, int]:
        """Return each distinct loss with its count."""
        return totals(self._links())

    def __repr__(self) -> str:
        # a generated one would recurse over all links
        return f"Chain({self.items()!r})"

    def _links(self) -> Iterator[tuple[PrivacyLoss, int]]:
        # a loop and no recursion: chains are as long as analyses
        link: Chain | None = self
        while link is not None and link.last is not None:
            yield link.last
            link = link.before


@lru_cache(maxsize=2048)  # every accountant asks for it, in every world
def total_variation(loss: PrivacyLoss) -> Bounds | None:
    """Return the loss's delta at epsilon 0, as a bracket; None where it knows no profile."""
    return loss.profile(0.0)


@frozen
class Floor:
    """A lower bound of the tight epsilon of a composition, in constant space.

    The tight epsilon of a composition is at least that of any part of it (post-processing: who
    sees all outcomes may forget some). Two parts are kept: all exact Gaussian pairs, which compose
    in closed form, and among the losses that know their profile the one of the largest total
    variation (then pure epsilon).

    Parameters
    ----------
    square
        The sum of mu squared of the exact Gaussian pairs.
    costliest
        The single loss whose own profile bounds from below.
    rank
        Its total variation and pure epsilon.
    """

    square: Fraction = Fraction()
    costliest: PrivacyLoss | None = None
    rank: tuple[float, float] = (0.0, 0.0)

    def add(self, loss: PrivacyLoss, times: int) -> Floor:
        """Return the floor after ``times`` payments of ``loss``."""
        if times == 0:
            return self
        # only a pair that some mechanism attains exactly bounds from below
        mu = loss.mu() if loss.is_gaussian_pair else None
        if mu is not None:  # G_m for m <= mu is a post-processing of G_mu: a smaller mu is sound
            square = Fraction(min(mu, LARGEST_MU)) ** 2
            return Floor(self.square + square * times, self.costliest, self.rank)
        variation = total_variation(loss)
        if variation is not None and (rank := (variation.lower, loss.pure() or 0.0)) > self.rank:
            return Floor(self.square, loss, rank)
        return self

    def add_all(self, spends: Mapping[PrivacyLoss, int]) -> Floor:
        """Return the floor after payments of many losses."""
        squares: list[tuple[Fraction, int]] = []
        costliest, rank = self.costliest, self.rank
        for loss, times in spends.items():
            if times == 0:
                continue
            mu = loss.mu() if loss.is_gaussian_pair else None
            if mu is not None:
                squares.append((Fraction(min(mu, LARGEST_MU)) ** 2, times))
                continue
            variation = total_variation(loss)
            if variation is not None and variation.lower >= rank[0]:
                other = variation.lower, loss.pure() or 0.0
                costliest, rank = (loss, other) if other > rank else (costliest, rank)
        return Floor(self.square + exact_sum(squares), costliest, rank)

    def epsilon(self, delta: float) -> float:
        """Return a lower bound of the tight epsilon at ``delta``."""
        lower = gdp_epsilon_floor(self._mu(), delta)
        if self.costliest is not None:
            lower = max(lower, approximate_epsilon_floor(self.costliest, delta))
        return lower

    def delta(self, epsilon: float) -> float:
        """Return a lower bound of the tight delta at ``epsilon``."""
        lower = gdp_profile(self._mu(), epsilon).lower
        if self.costliest is not None and (bounds := self.costliest.profile(epsilon)) is not None:
            lower = max(lower, bounds.lower)
        return lower

    def _mu(self) -> float:
        # rounded down: the root's half unit is less than 2^-50 of it
        return math.sqrt(flooring(self.square)) * (1 - 2**-50)


class Composed(Protocol):
    """The part of an accountant's state from which `AdditiveAccountant` reads brackets."""

    @property
    def delta_floor(self) -> Fraction:
        """The exact sum of the losses' probabilities on which nothing is promised."""
        ...

    @property
    def floor(self) -> Floor:
        """The lower bound of the same losses."""
        ...


C = TypeVar("C", bound=Composed)


class AdditiveAccountant(Generic[C]):
    """Base of the accountants whose upper bound is a function of sums over the losses.

    A subclass says what its sums are (`start`, `compose`) and what they prove (`upper`); the
    brackets of epsilon and of delta follow here, the same for all of them.
    """

    __slots__ = ()

    def upper(self, state: C, delta: float) -> float:
        """Return a proven upper bound of epsilon at ``delta``, non-increasing in it."""
        raise NotImplementedError

    def epsilon(self, state: C, delta: float) -> Bounds:
        """Return a bracket of the tight epsilon at ``delta``."""
        delta = probability("delta", delta)
        return bracket(state.floor.epsilon(delta), self.upper(state, delta))

    def delta(self, state: C, epsilon: float) -> Bounds:
        """Return a bracket of the tight delta at ``epsilon``: the least delta with that bound."""
        epsilon = nonnegative("epsilon", epsilon)
        delta_floor = min(1.0, ceiling(state.delta_floor))
        return delta_by_search(lambda d: self.upper(state, d), epsilon, state.floor, delta_floor)


@frozen
class SumState:
    """The exact sums of one additive parameter and of the delta floors."""

    total: Fraction = Fraction()
    delta_floor: Fraction = Fraction()
    floor: Floor = field(factory=Floor)


class SumAccountant(AdditiveAccountant[SumState]):
    """Base of the accountants that add one parameter: a subclass reads and converts it."""

    __slots__ = ()

    def cost(self, loss: PrivacyLoss) -> Fraction | None:
        """Return the loss's parameter beside its delta floor; None where it is not finite."""
        raise NotImplementedError

    def converted(self, total: Fraction, delta: float) -> float:
        """Return the epsilon that a positive ``total`` proves at a ``delta`` in (0, 1)."""
        raise NotImplementedError

    def start(self) -> SumState:
        """Return the empty sums."""
        return SumState()

    def compose(self, state: SumState, loss: PrivacyLoss, times: int = 1) -> SumState:
        """Add the loss's parameter and delta floor, ``times`` times."""
        times = integer("times", times, least=0)
        cost, delta_floor = self.cost(loss), loss.delta_floor()
        if cost is None:  # no finite parameter promises anything: it fails with probability 1
            cost, delta_floor = Fraction(), 1.0
        return SumState(
            # most are paid once and surely: a product or a sum of rationals takes microseconds
            state.total + (cost if times == 1 else cost * times),
            state.delta_floor + Fraction(delta_floor) * times if delta_floor else state.delta_floor,
            state.floor.add(loss, times),
        )

    def compose_all(self, state: SumState, spends: Mapping[PrivacyLoss, int]) -> SumState:
        """Add many losses: the state is that of `compose`, one after another."""
        costs = [(self.cost(loss), loss.delta_floor(), n) for loss, n in spends.items()]
        floors = [(1.0 if cost is None else floor, n) for cost, floor, n in costs]
        return SumState(
            state.total + exact_sum((cost, n) for cost, _, n in costs if cost is not None),
            state.delta_floor + exact_sum(each for each in floors if each[0]),
            state.floor.add_all(spends),
        )

    def upper(self, state: SumState, delta: float) -> float:
        """Return the epsilon that the sum proves at what the floors leave of ``delta``."""
        if delta >= 1:  # (0, 1)-DP holds always
            return 0.0
        rest = remaining_delta(delta, state.delta_floor)
        if rest >= 1 or (state.total == 0 and rest >= 0):
            return 0.0
        return self.converted(state.total, rest) if rest > 0 else math.inf


def remaining_delta(delta: float, delta_floor: Fraction) -> float:
    """Return the delta that remains for all else when the losses' floors sum to ``delta_floor``.

    With probability at most F some loss fails; otherwise the rest holds at delta':
    ``F + (1 - F) delta' <= delta``. Rounded down; -1 where F is above delta.
    """
    if delta_floor >= 1 or delta_floor > Fraction(delta):
        return -1.0
    return flooring((Fraction(delta) - delta_floor) / (1 - delta_floor))


def delta_by_search(
    epsilon_at: Callable[[float], float], target: float, floor: Floor, delta_floor: float
) -> Bounds:
    """Return a bracket of delta at epsilon ``target`` by a root in log delta.

    ``epsilon_at(delta)`` is any proven upper bound of epsilon; the answer's upper end is a
    delta at which it is at most ``target``, or 1, which always holds.
    """
    lower = min(1.0, floor.delta(target))
    if epsilon_at(delta_floor) <= target:
        return bracket(lower, delta_floor)
    if epsilon_at(0.999999) > target:
        return Bounds(lower, 1.0)

    def excess(log_delta: float) -> float:
        value = epsilon_at(min(1.0, math.exp(log_delta)))
        if value <= target:  # at target 0 on a plateau, where no root can be seen
            return min(-1e-300, value - target)
        return 1e6 if math.isinf(value) else value - target

    least = math.log(max(delta_floor, 5e-324))
    if excess(least) <= 0:  # at e^least, which may be a unit above the delta floor
        return bracket(lower, max(delta_floor, min(1.0, math.exp(least))))
    # `right` has been evaluated: there the upper bound of epsilon is at most the target
    _, right = crossing(excess, least, math.log(0.999999))
    return bracket(lower, min(1.0, math.exp(right) * (1 + 2**-50)))
