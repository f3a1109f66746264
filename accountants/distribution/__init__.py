"""The distribution accountant: the law of the composed privacy loss, in a proven bracket.

Every loss enters by its dominating pair; the privacy losses of a composition add, in each of
the two directions (Zhu, Dong and Wang 2022, Thm 10), and the worse direction certifies. The
composed hockey-stick comes from a lattice where it holds all losses, else from a contour integral
(`accountants.distribution.contour`), smoothed where the moments do not decay. Where that is wide
there are closed forms of copies of one pair (`Pair.composed`), and lattices on which losses are
spread (`accountants.distribution.discretisation`). All are brackets, so where two are computed the
better ends hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.accountant import (
    Accountant,
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
from accountants.definitions import LARGEST_MU, gdp_epsilon, gdp_profile, renyi_divergence
from accountants.distribution import contour
from accountants.errors import (
    InapplicableError,
    integer,
    nonnegative,
    passed_through_an_author,
    probability,
)
from accountants.finite import FinitePair
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianPair
from accountants.losses.sampling import ReplacedGaussianPair, SampledGaussianPair, SampledPair
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    bracket,
    brackets,
    ceiling,
    down,
    enclosure,
    exact_sum,
    flooring,
    totals,
    up,
)
from accountants.pair import Pair, Reversed

_Spends = tuple[tuple[Pair, int], ...]

_Curve = Callable[[_Spends, Array, Array], tuple[Array, Array]]
"""From the pairs of one direction and epsilons to bounds of delta.

Below deltas that are given too, an upper bound need not be narrow.
"""

_TINY = 1e-100
"""No more is computed of losses that add up to less than this."""

_LOOSE = 1e-4
"""A contour's bracket of delta that is relatively wider is compared with a lattice's."""

_FINE = 1e-6
"""A bracket of delta that is relatively wider asks for a contour's pieces."""

_ROUGHLY = 0.01
"""A rough bracket of delta that is relatively wider asks for other methods."""

_ENOUGH = 1e-4
"""A rough bracket of epsilon is relatively no narrower than this asks for."""

_FAR = 1e-7
"""A contour's bracket that is wider than about this share is compared with a lattice's."""

_TRANSFORMS = 64
"""More different pairs than this are not put on a lattice that holds their losses."""

_ENUMERATED = 512
"""Of more different pairs the outcomes are not counted: a contour's pieces are narrow."""

_LATTICE_PAIRS = 128
"""More different pairs than this are spread on a lattice only where the contour is no good."""

_COARSE = 1e-4
"""A contour's bracket of them that is relatively wider is compared with a lattice's."""


@frozen
class DistributionState:
    """The losses as they are."""

    losses: Chain = field(factory=Chain)

    def floor(self) -> Floor:
        """Return what no accountant can go below."""
        floor = Floor()
        for loss, times in self.losses.items().items():
            floor = floor.add(loss, times)
        return floor


@frozen
class Distribution:
    """The privacy loss distribution of the composition.

    The privacy parameters of all losses are fixed before the analysis runs: no filter is valid
    for it (Tran, Koskela, Raisa and Honkela 2026).

    References
    ----------
    Zhu, Dong and Wang 2022, Thms 10 and 11 (dominating pairs); Alghamdi et al. 2023 (contour);
    Doroshenko et al. 2022 (lattice).

    Examples
    --------
    >>> from accountants import Laplace
    >>> accountant = Distribution()
    >>> state = accountant.compose(accountant.start(), Laplace(epsilon=0.1), 1000)
    >>> bounds = accountant.epsilon(state, delta=1e-5)
    >>> round(bounds.upper, 8), bounds.upper - bounds.lower < 1e-9
    (17.42365199, True)
    """

    name: str = "distribution"
    theorem: str = "privacy loss distribution: Zhu, Dong & Wang 2022, Thms 10 and 11"
    adaptive: bool = False

    def start(self) -> DistributionState:
        """Return the empty composition."""
        return DistributionState()

    def compose(
        self, state: DistributionState, loss: PrivacyLoss, times: int = 1
    ) -> DistributionState:
        """Add the loss, ``times`` times."""
        times = integer("times", times, least=0)
        _check_pairs(loss)
        return DistributionState(state.losses.add(loss, times))

    def epsilon(self, state: DistributionState, delta: float) -> Bounds:
        """Return a bracket of the tight epsilon at ``delta``."""
        return self._epsilon(state, delta, 0.0)

    def rough_epsilon(self, state: DistributionState, delta: float) -> Bounds:
        """Return a bracket as `epsilon` does, which may be a ten-thousandth wide."""
        return self._epsilon(state, delta, _ENOUGH)

    def _epsilon(self, state: DistributionState, delta: float, enough: float) -> Bounds:
        delta = probability("delta", delta)
        directions = _directions_of(state)
        if delta >= 1:
            return Bounds(0.0, 0.0)
        lower, upper = 0.0, math.inf
        # the upper end: the most that the floors may take of delta leaves the least
        rest = remaining_delta(delta, directions.delta_floor[1])
        # the lower end: the least that they surely take leaves the most
        most = _most_remaining(delta, directions.delta_floor[0])
        if rest >= 0:
            bounds = _epsilon(directions, rest, enough)
            known = most == rest and not directions.above
            lower, upper = bounds.lower if known else 0.0, bounds.upper
        # a lower bound must be read at the larger remaining delta; of loose pairs it is 0
        tight = any(all(pair.is_tight() for pair, _ in some) for some in directions.directions)
        tight = tight and not directions.above
        if most != rest and 0 <= most < 1 and tight:
            lower = _epsilon(directions, most, enough).lower
        if (bodies := _bodies_of(state)) is not None:
            rest = remaining_delta(delta, bodies.delta_floor[1])
            upper = min(upper, _epsilon(bodies, rest, enough).upper) if rest >= 0 else upper
        if not _narrow(lower, upper, enough):
            lower = max(lower, state.floor().epsilon(delta))
            for attained in _attained(state):
                lower = max(lower, _epsilon(attained, delta, enough).lower)
        return bracket(lower, upper)

    def delta(self, state: DistributionState, epsilon: float) -> Bounds:
        """Return a bracket of the tight delta at ``epsilon``."""
        lower, upper = self.profile(state, np.array([nonnegative("epsilon", epsilon)]))
        least = max(float(lower[0]), state.floor().delta(epsilon))
        return bracket(min(1.0, least), float(upper[0]))

    def profile(self, state: DistributionState, epsilons: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of delta at many epsilons (shape (m,), none negative)."""
        return self._bounds(state, epsilons, _profile)

    def rough_profile(self, state: DistributionState, epsilons: Array) -> tuple[Array, Array]:
        """Return bounds of delta as `profile` does, which may be a percent wide."""
        return self._bounds(state, epsilons, _rough)

    def _bounds(
        self, state: DistributionState, epsilons: Array, profile: _Curve
    ) -> tuple[Array, Array]:
        points = np.asarray(epsilons, dtype=np.float64)
        lower, upper = self._bounds_of(_directions_of(state), points, profile)
        # nothing else is asked where they are narrow
        wide = ~(upper <= lower * (1 + _LOOSE))
        if wide.any() and (bodies := _bodies_of(state)) is not None:
            upper[wide] = np.minimum(upper[wide], self._bounds_of(bodies, points[wide], profile)[1])
        if wide.any():
            floor = state.floor()
            lower[wide] = np.maximum(lower[wide], [floor.delta(x) for x in points[wide].tolist()])
            for attained in _attained(state):
                least = self._bounds_of(attained, points[wide], profile)[0]
                lower[wide] = np.maximum(lower[wide], least)
        return brackets(lower, upper)

    def _bounds_of(
        self, directions: _Directions, points: Array, profile: _Curve
    ) -> tuple[Array, Array]:
        low, high = np.zeros(len(points)), np.zeros(len(points))
        some = np.ones(len(points), dtype=np.bool_)
        for i, spends in enumerate(directions.directions):
            # what another direction has said; where that says little, no more than it attains
            known = np.where(high <= low * (1 + _LOOSE), high, low)
            if i:  # not asked where its Chernoff bound is below that
                some = _possible(spends, points, known)
            if not some.any():
                continue
            some_low, some_high = profile(spends, points[some], known[some])
            tight = all(pair.is_tight() for pair, _ in spends) and not directions.above
            # only a pair that some mechanism attains bounds the truth from below
            low[some] = np.maximum(low[some], some_low if tight else 0.0)
            high[some] = np.maximum(high[some], some_high)
        least, most = flooring(directions.delta_floor[0]), ceiling(directions.delta_floor[1])
        # F + (1 - F) delta' rises in F and in delta': each end with its own, then rounded outward
        lower = np.maximum(0.0, (least + (1 - least) * low) * (1 - 8 * UNIT) - 1e-323)
        return lower, np.minimum(1.0, up(most + (1 - most) * high, 8))

    def pruning_bounds(self, state: DistributionState, delta: float) -> Sequence[PruningBound]:
        """Return Chernoff's bound at the tilt of the integral, and the sum of largest losses."""
        rest = remaining_delta(probability("delta", delta), _directions_of(state).delta_floor[1])
        bounds = [pure_sum_bound(pure_or_infinite, delta_floor_of, delta)]
        if 0 < rest < 1:
            order = _order(state, rest)
            bounds.append(order_bound(divergence_cost(order), delta_floor_of, order, delta))
        return bounds

    def cost_function(
        self, state: DistributionState, delta: float
    ) -> Callable[[PrivacyLoss], float]:
        """Return each loss's Renyi divergence at the tilt of the integral (they add up)."""
        rest = remaining_delta(probability("delta", delta), _directions_of(state).delta_floor[1])
        order = _order(state, rest) if 0 < rest < 1 else 2.0

        def cost(loss: PrivacyLoss) -> float:
            return float(renyi_divergence(loss, np.array([order]))[0])

        return cost

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the functional read from ``loss``."""
        pair = loss.pair()
        if pair is None:
            return "the pairs of the losses of its body"
        tight = pair.is_tight()
        return "its dominating pair" if tight else "a pair that dominates it"


@frozen
class Roughly(Distribution):
    """The same, of which the last digits take most of the time: brackets of four digits."""

    def epsilon(self, state: DistributionState, delta: float) -> Bounds:
        """Return the rough bracket."""
        return self.rough_epsilon(state, delta)


def roughly(accountants: Sequence[Accountant[Any]]) -> list[Accountant[Any]]:
    """Return accountants, with `Roughly` in place of the distribution."""
    return [Roughly() if type(each) is Distribution else each for each in accountants]


def _order(state: DistributionState, rest: float) -> float:
    """Return one more than the tilt of the integral at ``0 < rest < 1``."""
    directions = _directions_of(state).directions
    if not directions[0]:
        return 2.0
    composed = contour.composition(directions[0])
    return 1 + min(1e9, max(1e-6, contour.saddle(composed, math.log(rest))[0]))


# --- one state, as its pairs


@frozen
class _Directions:
    """The pairs of each direction, and a bracket of the chance that any loss fails.

    Bodies stand for what runs on some units alone where they are ``above`` it.
    """

    directions: tuple[_Spends, ...]
    delta_floor: tuple[Fraction, Fraction]
    above: bool = False


def _pair_of(loss: PrivacyLoss) -> Pair:
    pair = loss.pair()
    if pair is None:
        raise InapplicableError(f"{type(loss).__name__} has no dominating pair")
    return pair


def _check_pairs(loss: PrivacyLoss) -> None:
    """Refuse a loss that has no pair, and of which no body's losses have."""
    body = loss.within() if loss.pair() is None else None
    if body is None:
        _pair_of(loss)
    for part, _ in () if body is None else body.spends:
        _check_pairs(part)


def _directions_of(state: DistributionState) -> _Directions:
    return _paid(state.losses.items(), every=False)


def _bodies_of(state: DistributionState) -> _Directions | None:
    """Return the same with the bodies of all that runs on some units alone; None without more."""
    losses = state.losses.items()
    if not any(loss.within() is not None and loss.pair() is not None for loss in losses):
        return None
    try:
        return _paid(losses, every=True)
    except InapplicableError:  # a body without a pair
        return None


def _paid(losses: dict[PrivacyLoss, int], *, every: bool) -> _Directions:
    """Return the pairs, of bodies where a loss has none, or of every loss that knows its body.

    Which units a body runs on is drawn beforehand, by the same law for both data sets. Given that,
    the unit is in the body or not, whatever else runs between; and hockey-sticks are jointly convex
    in both laws: so the composition costs at most what it does where the unit is in every body.
    """
    pairs, fails, above = list[tuple[Pair, int]](), dict[PrivacyLoss, int](), False
    stack = [(loss, times, every) for loss, times in losses.items()]
    while stack:
        loss, times, opened = stack.pop()
        body = loss.within()
        if body is not None and (opened or loss.pair() is None):
            above = True
            stack.extend((part, count * times, False) for part, count in body.spends)
        else:
            pairs.append((_pair_of(loss), times))
            fails[loss] = fails.get(loss, 0) + times
    least, most = _failure(fails)
    return _Directions(_both(pairs), (Fraction() if above else least, most), above)


def _attained(state: DistributionState) -> Iterable[_Directions]:
    """Yield pairs that a mechanism attains, where some pair is not: without failures, if any.

    A loss that knows none is left out, which lowers the truth: post-processing. Where losses know
    another pair, worse when paid many times, that is one more mechanism.
    """
    losses = state.losses.items()
    if all((pair := loss.pair()) is not None and pair.is_tight() for loss in losses):
        return
    known = [(pair, k) for loss, k in losses.items() if (pair := loss.attained_pair()) is not None]
    for last, times in losses.items():
        # those that come last may depend on all others: so may one kind of them alone
        if (together := last.attained_together(times)) is not None:
            rest = [(loss, k) for loss, k in losses.items() if loss is not last]
            some = [(pair, k) for loss, k in rest if (pair := loss.attained_pair()) is not None]
            yield _Directions(_both([*some, together]), (Fraction(), Fraction()))
            break
    yield _Directions(_both(known), (Fraction(), Fraction()))
    many = [loss for loss, k in losses.items() if k >= _MANY_COPIES]
    others = {loss: pair for loss in many if (pair := loss.attained_by_many()) is not None}
    if others:
        every = ((others.get(loss) or loss.attained_pair(), k) for loss, k in losses.items())
        known = [(pair, k) for pair, k in every if pair is not None]
        yield _Directions(_both(known), (Fraction(), Fraction()))


_MANY_COPIES = 1000
"""Of fewer copies a pair that many attain takes longer than it could gain."""


def _both(pairs: Iterable[tuple[Pair, int]]) -> tuple[_Spends, ...]:
    """Return the pairs of each direction, alone where both are the same."""
    # a pair whose privacy loss is always 0 costs nothing
    every = totals((p, times) for p, times in pairs if not p.top() <= 0 <= p.bottom())
    forward = totals(group for pair, times in every.items() for group in pair.together(times))
    directions = [tuple(forward.items())]
    if any(pair.reversed() is not pair for pair in forward):
        backward = totals((pair.reversed(), times) for pair, times in forward.items())
        if backward != forward:
            directions.append(tuple(backward.items()))
    return tuple(directions)


def _failure(losses: dict[PrivacyLoss, int]) -> tuple[Fraction, Fraction]:
    """Return bounds of ``1 - prod (1 - f_i)^k_i``; the lower is 0 where one is not tight."""
    total, logs, sure = Fraction(), 0.0, True
    for loss, times in losses.items():
        each = loss.delta_floor()
        if each == 0:
            continue
        if each >= 1:
            return Fraction(), Fraction(1)
        total += Fraction(each) * times
        logs += times * math.log1p(-each)
        pair = loss.pair()
        sure = sure and pair is not None and pair.is_tight()
    if total == 0:
        return Fraction(), Fraction()
    # losses fail independently of each other: 1 - prod (1 - f_i)^k_i, computed without cancellation
    product, slack = -math.expm1(logs), (8 + 2 * len(losses)) * UNIT
    # and never more than their sum (union bound)
    most = min(total, Fraction(product * (1 + slack)), Fraction(1))
    least = Fraction(max(0.0, product * (1 - slack))) if sure else Fraction()
    return min(least, most), most


def _most_remaining(delta: float, delta_floor: Fraction) -> float:
    if delta_floor >= 1 or delta_floor > Fraction(delta):
        return -1.0
    return ceiling((Fraction(delta) - delta_floor) / (1 - delta_floor))


# --- epsilon


def _epsilon(directions: _Directions, delta: float, enough: float) -> Bounds:
    """Return a bracket of epsilon where no loss fails: the costlier direction's."""
    if delta >= 1:
        return Bounds(0.0, 0.0)
    bounds = _one_way(directions.directions[0], delta, enough)
    # both directions must hold, so the costlier one decides each end
    for spends in directions.directions[1:]:
        # one whose losses add up to less, or whose Chernoff bound is, is below without more ado
        if (
            _largest(spends, False).upper <= bounds.lower
            or _chernoff(spends, delta) <= bounds.lower
        ):
            continue
        other = _one_way(spends, delta, enough)
        bounds = Bounds(max(bounds.lower, other.lower), max(bounds.upper, other.upper))
    return bounds


def _chernoff(spends: _Spends, delta: float) -> float:
    """Return Chernoff's bound of epsilon in one direction, infinite where there is none."""
    # of few pairs it costs about as much as what it may save
    if len(spends) <= _FEW_SAMPLES or not 0 < delta < 1:
        return math.inf
    with np.errstate(all="ignore"):
        bound = _attempt(partial(contour.at_most, spends, delta))
    return math.inf if bound is None else bound


@lru_cache(maxsize=256)  # a plan is certified more than once: when made, when run, when verified
def _one_way(spends: _Spends, delta: float, enough: float = 0.0) -> Bounds:
    """Return a bracket of epsilon in one direction; ``0 <= delta < 1``.

    No other method is asked to narrow one whose relative width is ``enough``.
    """
    tight = all(pair.is_tight() for pair, _ in spends)
    if not spends:
        return Bounds(0.0, 0.0)
    # delta 0 asks for the largest loss there is
    if delta == 0:
        return _largest(spends, tight)
    # Gaussian pairs compose to one, with mu the root of the sum of squares: closed form
    if all(isinstance(pair, GaussianPair) for pair, _ in spends):
        return _gaussian(spends, delta, tight)
    if len(spends) == 1 and spends[0][1] == 1:
        return _single(spends[0][0], delta, tight)
    if any(getattr(pair, "mu", 0.0) > LARGEST_MU for pair, _ in spends):
        return Bounds(0.0, math.inf)
    # no epsilon above the largest total loss is ever needed
    most = _largest(spends, tight).upper
    if most < _TINY:
        return Bounds(0.0, most)
    with np.errstate(all="ignore"):  # what overflows is not a bound, and is not taken for one
        bounds = _exact(spends, delta)
        for compute in (
            _largest_outcome,
            _scattered_soon,
            _apart,
            _by_number,
            _surely_rare,
            _on_contour,
            _rare,
            _by_participation,
            _cut,
            _lucky,
            _enumerated,
            _closed,
            _scattered,
            _spread_soon,
            _on_pieces,
            _sum_of_parts,
            _few,
            _spread,
            _finely,
        ):
            # narrow enough: nothing else is asked
            if bounds is not None and _narrow(bounds.lower, bounds.upper, enough):
                break
            if compute is _on_pieces and _many_atoms(spends):  # spread by now
                break
            other = _attempt(partial(compute, spends, delta, bounds, most))
            if bounds is not None and other is not None:
                other = bounds.intersection(other)
            bounds = other or bounds
    assert bounds is not None
    # every method's bracket holds, so does their intersection
    return bracket(bounds.lower if tight else 0.0, min(bounds.upper, most))


def _exact(spends: contour.Spends, delta: float) -> Bounds | None:
    """Return the bracket on a lattice that holds all losses; None where there is none."""
    if not _finite(spends):
        return None
    from accountants.distribution import lattice  # here: most questions do without

    try:
        return lattice.epsilon(spends, delta, spread=False)
    except (InapplicableError, ArithmeticError) as error:
        if passed_through_an_author(error):
            raise
        return None


def _finite(spends: contour.Spends) -> bool:
    """Whether all losses are of pairs with atoms alone, and few enough for a lattice."""
    return len(spends) <= _TRANSFORMS and _atomic(spends)


def _atomic(spends: contour.Spends) -> bool:
    return all(isinstance(pair, FinitePair) or hasattr(pair, "atoms") for pair, _ in spends)


def _largest_outcome(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket that follows from the largest loss of all; None where it is too rare.

    With the probability p of that loss alone, ``delta(eps) >= p (1 - e^{eps - most})``: so epsilon
    is at least ``most + log(1 - delta / p)``.
    """
    if not _atomic(spends):
        return None
    from accountants.distribution.tilting import finite_of  # here: most questions do without

    log, slack = 0.0, 0.0
    for pair, times in spends:
        atoms = finite_of(pair)
        if atoms is None or not atoms.p[-1] > 0:
            return None
        each = math.log(atoms.p[-1])
        log += times * each
        if log < math.log(delta) - 1:  # p is too small, and the others do not make it larger
            return None
        slack += times * (2 * atoms.error + 8 * UNIT * (1 + abs(each)))
    share = math.exp(min(0.0, math.log(delta) - log + slack + 8 * UNIT * (1 + abs(log))))
    if not share < 0.5:
        return None
    # `most` is rounded up by no more than 64 units of each largest loss (`_largest`)
    lower = _largest(spends, True).lower + math.log1p(-share * (1 + 1e-9))
    return Bounds(min(most, max(0.0, lower * (1 - 4 * UNIT))), most)


def _on_contour(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the contour's bracket where the moments decay for good, else Chernoff's."""
    return contour.epsilon(spends, delta, scattered=False)


def _enumerated(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of all outcomes; None where they are too many."""
    if not _atomic(spends) or len(spends) > _ENUMERATED or _many_atoms(spends):
        return None
    if len(spends) > 4 and _count_of_atoms(spends) > 2 * _MANY_ATOMS:
        return None
    from accountants.distribution import enumeration  # here: most questions do without

    return enumeration.epsilon(spends, delta)


def _cut(spends: contour.Spends, delta: float, bounds: Bounds | None, most: float) -> Bounds | None:
    """Return the contour's bracket without the largest losses; None where none are left out.

    Delta is an expectation of what lies between 0 and 1: it is at least that of what is left, and
    at most that and the probability of what is not.
    """
    if not _promising(_cut, spends, delta):
        return None
    cut, lost = _without_largest(spends, _LOST * delta)
    if lost == 0 or not lost < delta:
        return None
    bounds = contour.epsilon(cut, flooring(Fraction(delta) - Fraction(lost)), scattered=False)
    if bounds is None or bounds.lower == 0:
        return bounds
    # delta of what is left moves by the share of `lost`: the lower end moves by as little
    points = bounds.lower * (1 - np.geomspace(1e-12, 1e-4, 17))
    low, _ = contour.profile(cut, points, scattered=False, whole=False) or _unknown(points)
    reached = points[low >= delta]
    return Bounds(float(reached.max()) if len(reached) else 0.0, bounds.upper)


def _surely_rare(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of many samples whose large losses are rare; None of others.

    Of a replaced unit's samples it is asked in any case: at small rates what is left has moments at
    less cost.
    """
    replaced = _seldom_replaced(spends)
    many = len(spends) > _FEW_SAMPLES and contour.is_heavy(spends, delta)
    return _rare(spends, delta, bounds, most) if many or replaced else None


def _seldom_replaced(spends: contour.Spends) -> bool:
    """Whether all are samples of a replaced unit at small rates: an even lattice gains little."""
    return all(isinstance(p, ReplacedGaussianPair) and p.rate <= 0.01 for p, _ in spends)


_FEW_SAMPLES = 16
"""A contour of fewer pairs costs little, even where it is of no use."""


def _rare(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket where large losses are rare; None where there are none."""
    from accountants.distribution import rare  # here: most questions do without

    return rare.epsilon(spends, delta) if _promising(_rare, spends, delta) else None


def _apart(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return 0 for samples that no test tells apart with a larger probability than delta."""
    if not _sampled(spends):
        return None
    from accountants.distribution import rare  # here: most questions do without

    return rare.apart(spends, delta)


def _sampled(spends: contour.Spends) -> bool:
    kinds = SampledGaussianPair, ReplacedGaussianPair
    return all(type(_forward(pair)) in kinds for pair, _ in spends)


def _forward(pair: Pair) -> Pair:
    return pair.pair if isinstance(pair, Reversed) else pair


def _by_number(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of samples of little noise, by how many losses are large."""
    from accountants.distribution import rare  # here: most questions do without

    return rare.by_number(spends, delta, bounds)


def _by_participation(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket that follows of whether a unit is in any sample, where none is known."""
    if bounds is None or bounds.lower > 0:
        return None
    from accountants.distribution import rare  # here: most questions do without

    return rare.by_participation(spends, delta)


def _promising(
    compute: Callable[[contour.Spends, float, Bounds | None, float], Bounds | None],
    spends: contour.Spends,
    delta: float,
) -> bool:
    """Whether a method that takes long for many different samples is of use for them.

    It is tried on as many copies of the one in the middle, which takes little.
    """
    if len(spends) <= _FEW_SAMPLES:
        return True
    some = [pair for pair, _ in spends if isinstance(pair, SampledGaussianPair)]
    if len(some) < len(spends):
        return True
    middle = sorted(some, key=lambda pair: pair.body.mu)[len(some) // 2]
    copies = ((middle, sum(times for _, times in spends)),)
    bounds = compute(copies, delta, None, math.inf)
    return bounds is not None and bounds.lower > 0


def _rarely(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds where large losses are rare."""
    from accountants.distribution import rare  # here: most questions do without

    return rare.profile(spends, epsilons)


def _numbered(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds of samples of little noise, by how many losses are large."""
    from accountants.distribution import rare  # here: most questions do without

    return rare.by_number_profile(spends, epsilons)


def _surely_rarely(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds of many samples whose large losses are rare; None of others."""
    if len(spends) <= _FEW_SAMPLES or not contour.is_heavy(spends, 1e-6):
        return None
    return _rarely(spends, epsilons)


def _lucky(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of steps of which few have a large loss; None of others."""
    if bounds is None or len(spends) > 1:
        return None
    from accountants.distribution import lucky  # here: most questions do without

    return lucky.epsilon(spends, delta, bounds)


def _without_largest(spends: contour.Spends, lost: float) -> tuple[_Spends, float]:
    """Return the pairs without their largest losses, and a bound of the probability of any."""
    each = lost / sum(times for _, times in spends)
    parts = [(*pair.without_largest(each), times) for pair, times in spends]
    total = sum((Fraction(missing) * times for _, missing, times in parts), Fraction())
    return tuple((pair, times) for pair, _, times in parts), ceiling(total)


_LOST = 1e-10
"""The share of delta that the losses which are left out may have."""


def _spread_soon(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket on a lattice of pairs that are bounds alone, of very many atoms.

    Pieces of a contour would take the longer the more atoms there are, for digits beyond those that
    the bounds have.
    """
    return _spread(spends, delta, bounds, most) if _many_atoms(spends) else None


def _scattered(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of atoms that lie anywhere, spread over a fine lattice."""
    return _spread_finely(spends, delta, bounds, most) if _atomic(spends) else None


def _finely(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the same of other losses, where a lattice by itself leaves too much."""
    if bounds is None or bounds.upper - bounds.lower <= _FINE * bounds.upper:
        return None
    if _seldom_replaced(spends) and bounds.upper - bounds.lower <= _COARSE * bounds.upper:
        return None
    cheap = all(isinstance(_forward(pair), SampledPair) for pair, _ in spends)
    few = cheap or sum(times for _, times in spends) <= _FEW_SPREADS
    return _spread_finely(spends, delta, bounds, most) if few and not _atomic(spends) else None


_FEW_SPREADS = 100
"""Of more copies of pairs whose tails take long a fine lattice gains too little."""


def _spread_finely(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of losses that lie anywhere, spread over a fine lattice."""
    from accountants.distribution import enumeration, lattice  # here: most questions do without

    if len(spends) > _TRANSFORMS:
        spends = enumeration.grouped(spends)
    if not _spreadable(spends):
        return None
    try:
        return lattice.scattered(spends, delta, bounds or Bounds(0.0, most))
    except InapplicableError:
        return None


def _scattered_soon(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the same of many atoms, which take other methods long."""
    if not _many_to_spread(spends):
        return None
    return _scattered(spends, delta, bounds, most)


def _many_to_spread(spends: contour.Spends) -> bool:
    few = _atomic(spends) and _spreadable(spends)
    return few and _count_of_atoms(spends) > _FEW_ATOMS


_FEW_ATOMS = 64
"""Of more atoms a fine lattice is asked before a contour is."""


def _spreadable(spends: contour.Spends) -> bool:
    """Whether these are a few pairs, paid not too many times."""
    return len(spends) <= _TRANSFORMS and sum(times for _, times in spends) <= _SPREADS


_SPREADS = 20_000
"""Of more copies the moments decay."""


def _many_atoms(spends: contour.Spends) -> bool:
    """Whether these are a few pairs of very many atoms, which no mechanism need attain."""
    if not 1 < len(spends) <= _LATTICE_PAIRS or not _atomic(spends):
        return False
    if any(pair.is_tight() for pair, _ in spends):
        return False
    return _count_of_atoms(spends) > _MANY_ATOMS


def _loose(spends: contour.Spends) -> bool:
    """Whether these are bounds alone, of many atoms: no digits beyond some are worth their time."""
    many = _count_of_atoms(spends) > _MANY_ATOMS // 2
    return many and not any(pair.is_tight() for pair, _ in spends)


def _count_of_atoms(spends: contour.Spends) -> int:
    return sum(len(pair.losses) for pair, _ in spends if isinstance(pair, FinitePair))


_MANY_ATOMS = 2000


def _on_pieces(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the bracket of a contour's pieces, smoothed where that helps."""
    return contour.epsilon(spends, delta)


def _sum_of_parts(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the sum of the mechanisms' epsilons, each at its share of delta; None if not needed.

    For a, b >= 0 is ``(1 - ab)_+ <= (1 - a)_+ + (1 - b)_+``. With ``a = e^{eps - L}`` for one loss
    and b likewise for another, the composed hockey-stick at the sum of the epsilons is at most the
    sum of the deltas: basic composition, in each direction.
    """
    far = bounds is None or bounds.upper > _FAR_OFF * bounds.lower
    if not far or len(spends) > _LATTICE_PAIRS:
        return None
    share = flooring(Fraction(delta) / sum(times for _, times in spends))
    if share == 0:
        return None
    parts = [(_single(pair, share, False).upper, times) for pair, times in spends]
    if not all(upper < math.inf for upper, _ in parts):
        return None
    # exact rationals, rounded once
    return Bounds(0.0, ceiling(sum((Fraction(upper) * n for upper, n in parts), Fraction())))


def _few(spends: contour.Spends, delta: float, bounds: Bounds | None, most: float) -> Bounds | None:
    """Return the bracket of a few samples of a replaced unit; None of others."""
    from accountants.distribution import participation  # here: most questions do without

    if bounds is None:
        return None
    ends = participation.few(spends, delta, bounds.lower, bounds.upper)
    return None if ends is None else Bounds(*ends)


_FAR_OFF = 1.01
"""Of a bracket that is relatively wider it is asked whether the sum of the parts is less."""


def _spread(spends: contour.Spends, delta: float, bounds: Bounds | None, most: float) -> Bounds:
    """Return the better ends of a bracket and of that on a lattice on which losses are spread."""
    # a lattice spreads each pair by itself: of so many it is coarse, and slow
    from accountants.distribution import enumeration  # here: most questions do without

    few = len(enumeration.grouped(spends)) <= _LATTICE_PAIRS
    narrow = bounds is not None and bounds.upper - bounds.lower <= _COARSE * bounds.upper
    if bounds is not None and narrow and (not few or _seldom_replaced(spends)):
        return bounds
    return _narrower(bounds, lambda: _on_lattice(spends, delta, most))


def _wide(lower: float, upper: float) -> bool:
    # at small epsilons relatively, down to where nobody asks for digits
    return not upper - lower <= _FAR * (lower + min(1.0, 10 * lower + 1e-5))


def _narrow(lower: float, upper: float, enough: float) -> bool:
    return not _wide(lower, upper) or upper - lower <= enough * lower  # not an infinite one


def _closed(
    spends: contour.Spends, delta: float, bounds: Bounds | None, most: float
) -> Bounds | None:
    """Return the root of a closed form of the composition; None where there is none."""
    lower, upper = (bounds.lower, bounds.upper) if bounds is not None else (0.0, math.inf)
    upper = min(upper, most)
    if len(spends) > 1 or not lower < upper < math.inf:
        return None
    lower, upper = enclosure(
        lambda epsilons: _copies(spends, epsilons) or _unknown(epsilons), delta, lower, upper
    )
    return None if _wide(lower, upper) else Bounds(lower, upper)


def _unknown(epsilons: Array) -> tuple[Array, Array]:
    return np.zeros(len(epsilons)), np.ones(len(epsilons))


def _on_lattice(spends: contour.Spends, delta: float, most: float) -> Bounds:
    """Return the lattice's bracket; where it has none, the largest loss, if there is one."""
    from accountants.distribution import enumeration, lattice  # here: most questions do without

    try:
        return lattice.epsilon(enumeration.grouped(spends), delta)
    except (InapplicableError, ArithmeticError) as refusal:
        if passed_through_an_author(refusal):
            raise
        if not most < math.inf:
            why = (
                refusal if isinstance(refusal, InapplicableError) else "beyond the range of floats"
            )
            raise InapplicableError(f"no bracket of this composition: {why}") from None
        return Bounds(0.0, most)


Answer = TypeVar("Answer")


def _attempt(compute: Callable[[], Answer | None]) -> Answer | None:
    """Return what is computed, or None where that leaves the range of floats."""
    try:
        return compute()
    except ArithmeticError as error:
        if passed_through_an_author(error):
            raise
        return None


def _single(pair: Pair, delta: float, tight: bool) -> Bounds:
    """Return the root of the pair's own profile."""
    sample = _forward(pair)
    if isinstance(sample, SampledPair | ReplacedGaussianPair) and delta >= sample.rate:
        # delta(0) is the rate times a total variation distance
        return Bounds(0.0, 0.0)
    top = max(0.0, pair.top())
    right = top if top < math.inf else 1.0
    # the profile falls in eps: double until it is below delta
    while top == math.inf and pair.profile(np.array([right]))[1][0] > delta:
        right *= 2
        if right > 1e300:
            return Bounds(0.0, math.inf)
    lower, upper = enclosure(pair.profile, delta, 0.0, right)
    if _wide(lower, upper):  # bounds far apart cross delta far apart, each at a root of its own
        lower = enclosure(lambda x: (pair.profile(x)[0],) * 2, delta, 0.0, right)[0]
        upper = enclosure(lambda x: (pair.profile(x)[1],) * 2, delta, 0.0, right)[1]
    if isinstance(sample, SampledPair) and _wide(lower, upper):
        near = sample.epsilon_next_to(delta)
        if near is not None:  # the addition of a unit costs no more than its removal
            lower = max(lower, near.lower) if sample is pair else lower
            upper = min(upper, near.upper)
    return bracket(lower if tight else 0.0, upper)


def _narrower(first: Bounds | None, other: Callable[[], Bounds]) -> Bounds:
    """Return the better ends of two brackets; the other one alone where there is no first."""
    if first is None:
        return other()
    try:
        second = other()
    except InapplicableError:  # the first holds as well
        return first
    return first.intersection(second)


def _bounded(spends: contour.Spends) -> bool:
    return all(pair.top() < math.inf for pair, _ in spends)


def _largest(spends: contour.Spends, tight: bool) -> Bounds:
    """Return the largest loss: nothing less holds at delta 0."""
    if not _bounded(spends):
        return Bounds(0.0, math.inf)
    tops = [(max(0.0, pair.top()), times) for pair, times in spends]
    total = exact_sum(tops)
    if not tight:
        return Bounds(0.0, ceiling(total))
    # `top` is the essential supremum of L, rounded up by a few units: at delta 0 nothing less holds
    least = exact_sum((max(0.0, down(top, 64)), times) for top, times in tops)
    return Bounds(flooring(least), ceiling(total))


def _gaussian(spends: contour.Spends, delta: float, tight: bool) -> Bounds:
    least, most = _mu(spends)
    lower = gdp_epsilon(least, delta).lower if tight else 0.0
    return Bounds(lower, gdp_epsilon(most, delta).upper)


def _mu(spends: contour.Spends) -> tuple[float, float]:
    """Return bounds of the mu of Gaussian pairs: the root of the sum of squares."""
    square = sum((Fraction(getattr(pair, "mu", 0.0)) ** 2 * n for pair, n in spends), Fraction())
    if square > Fraction(LARGEST_MU) ** 2:
        return LARGEST_MU, math.inf
    # rounded down and up; squares are exact rationals
    return math.sqrt(flooring(square)) * (1 - 8 * UNIT), up(math.sqrt(ceiling(square)), 2)


# --- delta


def _possible(spends: _Spends, epsilons: Array, deltas: Array) -> NDArray[np.bool_]:
    """Return at which epsilons a direction's delta may be above what is known of the other's."""
    # nothing is above the largest loss
    some = epsilons < _largest(spends, False).upper
    known = some & (deltas > 0)
    if not known.any() or _finite(spends):
        return some
    with np.errstate(all="ignore"):
        most = _attempt(partial(contour.at_most_deltas, spends, epsilons[known], deltas[known]))
    if most is not None:
        some[known] = ~(most <= deltas[known])
    return some


def _profile(spends: contour.Spends, epsilons: Array, known: Array) -> tuple[Array, Array]:
    return _by_methods(spends, epsilons, known, _METHODS)


def _rough(spends: contour.Spends, epsilons: Array, known: Array) -> tuple[Array, Array]:
    return _by_methods(spends, epsilons, known, _ROUGH_METHODS)


def _by_methods(
    spends: contour.Spends, epsilons: Array, known: Array, methods: Sequence[_Method]
) -> tuple[Array, Array]:
    if not spends:
        return np.zeros(len(epsilons)), np.zeros(len(epsilons))
    if all(isinstance(pair, GaussianPair) for pair, _ in spends):
        least, most = _mu(spends)
        every = [
            (gdp_profile(least, e).lower, gdp_profile(most, e).upper) for e in epsilons.tolist()
        ]
        return np.array([low for low, _ in every]), np.array([high for _, high in every])
    if len(spends) == 1 and spends[0][1] == 1:
        return spends[0][0].profile(epsilons)
    with np.errstate(all="ignore"):  # what overflows is not a bound, and is not taken for one
        return _computed(spends, epsilons, known, methods)


def _computed(
    spends: contour.Spends, epsilons: Array, known: Array, methods: Sequence[_Method]
) -> tuple[Array, Array]:
    if _bounded(spends) and _largest(spends, False).upper < _TINY:
        return _trivial(spends, epsilons)
    lower, upper, some = np.zeros(len(epsilons)), np.ones(len(epsilons)), False
    if _bounded(spends):  # no loss is larger
        upper[epsilons >= _largest(spends, False).upper] = 0.0
    loose = _LOOSE if _loose(spends) else 0.0
    for compute, least in methods:
        enough = max(least, loose)
        # narrow enough: nothing else is asked
        wide = ~(upper <= np.maximum(lower * (1 + enough), known))
        if not wide.any():
            return lower, upper
        bounds = _attempt(partial(compute, tuple(spends), epsilons[wide]))
        if bounds is not None:
            some = True
            # what is not a number is no bound
            lower[wide] = np.fmax(lower[wide], bounds[0])
            upper[wide] = np.fmin(upper[wide], bounds[1])
    return (lower, upper) if some else _trivial(spends, epsilons)


def _nobody(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds of reversed samples of little noise: whether anybody takes part."""
    if not all(isinstance(pair, Reversed) for pair, _ in spends):
        return None
    from accountants.distribution import participation  # here: most questions do without

    return participation.reversed_profile(spends, epsilons)


def _evenly_spaced(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds on a lattice that holds all losses; None where there is none."""
    return _folded(spends, epsilons, spread=False) if _finite(spends) else None


def _decaying(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the contour's bounds where the moments decay for good, else Chernoff's."""
    return contour.profile(spends, epsilons, scattered=False)


def _outcomes(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds of all outcomes; None where they are too many."""
    if not _atomic(spends) or len(spends) > _ENUMERATED:
        return None
    if _loose(spends):  # a lattice has as many digits as they are worth
        return None
    from accountants.distribution import enumeration  # here: most questions do without

    return enumeration.profile(spends, epsilons)


def _few_outcomes(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the same of few atoms: of many it takes long to see that they are too many."""
    return None if _many_to_spread(spends) else _outcomes(spends, epsilons)


def _copies(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return a closed form of copies of one pair."""
    return spends[0][0].composed(spends[0][1], epsilons) if len(spends) == 1 else None


def _over_lattice(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds of losses that lie anywhere, spread over a fine lattice, but of many."""
    return None if _many_to_spread(spends) else _spread_profile(spends, epsilons)


def _many_over_lattice(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the same of many atoms, which take other methods long."""
    return _spread_profile(spends, epsilons) if _many_to_spread(spends) else None


def _many_over_short_lattice(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the same, as narrow as soon has."""
    return _spread_profile(spends, epsilons, _ROUGHLY) if _many_to_spread(spends) else None


def _spread_profile(
    spends: contour.Spends, epsilons: Array, loose: float = 0.0
) -> tuple[Array, Array] | None:
    if not _spreadable(spends):
        return None
    from accountants.distribution import lattice  # here: most questions do without

    try:
        return lattice.scattered_profile(spends, epsilons, loose)
    except InapplicableError:
        return None


def _with_luck(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the bounds of steps of which few have a large loss; None of others."""
    if len(spends) > 1:
        return None
    from accountants.distribution import lucky  # here: most questions do without

    return lucky.profile(spends, epsilons)


def _folded(
    spends: contour.Spends, epsilons: Array, *, spread: bool = True, loose: float = 0.0
) -> tuple[Array, Array] | None:
    """Return the lattice's bounds."""
    from accountants.distribution import enumeration, lattice  # here: most questions do without

    try:
        if spread:
            spends = enumeration.grouped(spends)
        return lattice.profile(spends, epsilons, spread=spread, loose=loose)
    except (InapplicableError, ArithmeticError) as error:
        if passed_through_an_author(error):
            raise
        return None


def _loosely_folded(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array] | None:
    """Return the lattice's bounds, few windows for all epsilons."""
    if len(spends) > _TRANSFORMS:
        return None
    return _folded(spends, epsilons, loose=_ROUGHLY)


_Method = tuple[Callable[[_Spends, Array], tuple[Array, Array] | None], float]
"""How to bound delta, where the bounds so far are relatively wider than a number."""

_METHODS: tuple[_Method, ...] = (
    (_nobody, _FINE),
    (_numbered, _FINE),
    (_evenly_spaced, _FINE),
    (_many_over_lattice, _FINE),
    (_surely_rarely, _FINE),
    (_decaying, _FINE),
    (_rarely, _FINE),
    (_outcomes, _FINE),
    (_copies, _FINE),
    (contour.profile, _FINE),
    (_over_lattice, _FINE),
    (_with_luck, _FINE),
    (_folded, _LOOSE),  # of a lattice less is expected
)

_ROUGH_METHODS: tuple[_Method, ...] = (
    (_nobody, _ROUGHLY),
    (_numbered, _ROUGHLY),
    (_evenly_spaced, _ROUGHLY),
    (_many_over_short_lattice, _ROUGHLY),
    (_surely_rarely, _ROUGHLY),
    (_decaying, _ROUGHLY),
    (_rarely, _ROUGHLY),
    (_few_outcomes, _ROUGHLY),
    (_copies, _ROUGHLY),
    (_loosely_folded, _ROUGHLY),
)


def _trivial(spends: contour.Spends, epsilons: Array) -> tuple[Array, Array]:
    """Return what is known without any computation: nothing beyond the largest loss."""
    if not _bounded(spends):
        return np.zeros(len(epsilons)), np.ones(len(epsilons))
    return np.zeros(len(epsilons)), np.where(epsilons >= _largest(spends, False).upper, 0.0, 1.0)
