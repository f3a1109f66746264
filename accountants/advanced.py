"""The advanced accountant: the optimal composition of (epsilon, delta) guarantees.

Each loss is replaced by its dominating pair: fail with probability delta_i, else
randomized response at eps_i (Kairouz, Oh and Viswanath 2015, Thm 2.1). Their composition
has a privacy loss that is a sum of independent ``+eps_i`` (probability
``p_i = e^eps_i / (1 + e^eps_i)``) and ``-eps_i``; its hockey-stick is the best bound that
epsilons and deltas alone can give (Murtagh and Vadhan 2016, Thm 1.5). Three ways to it,
the least of which is the answer:

* all eps_i equal: a binomial sum, exact (Kairouz, Oh and Viswanath 2015, Thm 3.3);
* in general it is #P-hard, so losses are moved to a lattice outward (`_lattice`);
* closed form: the loss's mean is ``sum eps_i tanh(eps_i/2)`` and each term has range
  ``2 eps_i``, so by Hoeffding ``P(loss > mean + sqrt(2 log(1/delta) sum eps_i^2)) <= delta``
  (the third form of Kairouz, Oh and Viswanath 2015, Thm 3.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import product

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants import special
from accountants.accountant import (
    SHARE_PARTS,
    AdditiveAccountant,
    Chain,
    Cost,
    Floor,
    PruningBound,
    divergence_cost,
    has_pure_epsilon,
    order_bound,
    pure_or_infinite,
    pure_sum_bound,
    remaining_delta,
    share_costs,
)
from accountants.definitions import approximate_epsilon, renyi_epsilon, renyi_total
from accountants.errors import integer, positive, probability
from accountants.loss import PrivacyLoss
from accountants.losses.pure import Pure
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    bracket,
    ceiling,
    down,
    exact_sum,
    totals,
    up,
)

_BINOMIAL = 10**10
_CELLS = 16384
_WORK = 2**26


@frozen
class AdvancedState:
    """The losses with a pure epsilon, those without, and the sum of the delta floors."""

    bounded: Chain = field(factory=Chain)
    unbounded: Chain = field(factory=Chain)
    count: int = 0
    delta_floor: Fraction = Fraction()
    floor: Floor = field(factory=Floor)


@frozen
class Advanced(AdditiveAccountant[AdvancedState]):
    """The optimal composition of pure and approximate DP, homogeneous or not.

    A loss without a pure epsilon (the Gaussian) enters as the (epsilon, delta) of its own
    profile; all of them together take half of ``delta``, in equal parts.

    References
    ----------
    Kairouz, Oh and Viswanath 2015, Thms 3.3 and 3.5; Murtagh and Vadhan 2016, Thm 1.5.

    Examples
    --------
    >>> from accountants import Pure
    >>> accountant = Advanced()
    >>> state = accountant.compose(accountant.start(), Pure(epsilon=0.1), 100)
    >>> round(accountant.epsilon(state, delta=1e-6).upper, 8)
    4.77456759
    """

    name: str = "advanced"
    theorem: str = (
        "optimal composition: Kairouz, Oh & Viswanath 2015, Thms 3.3 and 3.5; "
        "Murtagh & Vadhan 2016, Thm 1.5"
    )
    adaptive: bool = False

    def start(self) -> AdvancedState:
        """Return the empty composition."""
        return AdvancedState()

    def compose(self, state: AdvancedState, loss: PrivacyLoss, times: int = 1) -> AdvancedState:
        """Add the loss, ``times`` times."""
        times = integer("times", times, least=0)
        bounded, floor = has_pure_epsilon(loss), loss.delta_floor()
        return AdvancedState(
            state.bounded.add(loss, times) if bounded else state.bounded,
            state.unbounded if bounded else state.unbounded.add(loss, times),
            state.count + (0 if bounded else times),
            state.delta_floor + Fraction(floor) * times if floor else state.delta_floor,
            state.floor.add(loss, times),
        )

    def compose_all(self, state: AdvancedState, spends: Mapping[PrivacyLoss, int]) -> AdvancedState:
        """Add many losses: the state is that of `compose`, one after another."""
        bounded, unbounded, count = state.bounded, state.unbounded, state.count
        floors: list[tuple[float, int]] = []
        for loss, times in spends.items():
            if floor := loss.delta_floor():
                floors.append((floor, times))
            if has_pure_epsilon(loss):
                bounded = bounded.add(loss, times)
            else:
                unbounded, count = unbounded.add(loss, times), count + times
        return AdvancedState(
            bounded,
            unbounded,
            count,
            state.delta_floor + exact_sum(floors),
            state.floor.add_all(spends),
        )

    def epsilon(self, state: AdvancedState, delta: float) -> Bounds:
        """Return the least of the three bounds at what the delta floors leave of ``delta``."""
        delta = probability("delta", delta)
        pairs, rest = _pairs(state, delta)
        upper = _upper(pairs, rest, delta)
        lower = state.floor.epsilon(delta)
        # copies of one loss that is its own dominating pair: the optimum is attained, a lower bound
        if pairs is not None and len(pairs) == 1 and _is_response(state):
            ((eps, times),) = pairs.items()
            rest = _most_left(state, delta)
            if 0 < rest < 1 and times <= _BINOMIAL and eps * times < 1e300:
                lower = max(lower, _binomial(eps, times, rest, side=-1))
        return bracket(lower, upper)

    def upper(self, state: AdvancedState, delta: float) -> float:
        """Return the least of the three bounds at what the delta floors leave of ``delta``."""
        return _upper(*_pairs(state, delta), delta)

    def pruning_bounds(self, state: AdvancedState, delta: float) -> Iterator[PruningBound]:
        """Yield pruning bounds of randomized responses: their sum, and at their best Renyi order.

        What has no pure epsilon is one at this state's share of ``delta`` (and at less).
        """
        share = _share(state, probability("delta", delta))
        pairs, rest = _pairs(state, delta)
        if pairs is None or rest < 0:
            return
        responses = [(Pure(eps), times) for eps, times in pairs.items()]
        order = math.inf
        if 0 < rest < 1:
            order = renyi_epsilon(lambda orders: renyi_total(responses, orders), rest)[1]
        for part in SHARE_PARTS:
            cost, delta_floor = share_costs(share * part)
            yield pure_sum_bound(cost, delta_floor, delta)
            if order < math.inf:
                yield order_bound(_response(cost, order), delta_floor, order, delta)

    def cost_function(self, state: AdvancedState, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return the variance that each loss adds to the privacy loss (its mean's order too)."""
        epsilon, _ = share_costs(_share(state, probability("delta", delta)))

        def cost(loss: PrivacyLoss) -> float:
            eps = epsilon(loss)
            return eps * math.tanh(eps / 2)

        return cost

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the functional read from ``loss``."""
        if loss.pure() is not None:
            return "randomized response at its pure epsilon"
        return "randomized response at the epsilon of its privacy profile, at a share of delta"


def textbook(epsilon: float, times: int, slack: float) -> float:
    """Return ``sqrt(2 k log(1/slack)) eps + k eps (e^eps - 1)``, as textbooks print it.

    For comparison only; `Advanced` is never above it.

    References
    ----------
    Dwork, Rothblum and Vadhan 2010, Thm III.3 (Dwork and Roth 2014, Thm 3.20).

    Examples
    --------
    >>> round(textbook(0.1, 100, 1e-6), 4)
    6.3082
    """
    k, eps = integer("times", times), positive("epsilon", epsilon)
    slack = positive("slack", slack)
    return math.sqrt(2 * k * math.log(1 / slack)) * eps + k * eps * math.expm1(eps)


def _is_response(state: AdvancedState) -> bool:
    """Whether it is one loss that is its own dominating pair: then the optimum is the truth."""
    losses = state.bounded.items()
    return not state.count and len(losses) == 1 and all(loss.is_response_pair for loss in losses)


def _most_left(state: AdvancedState, delta: float) -> float:
    """Return an upper bound of the delta left by the delta floors of one repeated loss.

    ``state.delta_floor`` adds them up, which is more than the chance ``F = 1 - (1 - f)^k`` that any
    of them happens: right for an upper bound of epsilon, wrong for a lower one. The exact
    remainder ``(delta - F) / (1 - F)`` falls in F, so F is rounded down.
    """
    ((loss, times),) = state.bounded.items().items()
    each = loss.delta_floor()
    if each >= 1:
        return 0.0
    delta_floor = -math.expm1(times * math.log1p(-each)) * (1 - 16 * UNIT)
    return min(1.0, up((delta - delta_floor) / (1 - delta_floor), 8))


def _response(epsilon: Cost, order: float) -> Cost:
    """Return the divergence of a randomized response at the epsilon of each loss."""
    diverging = divergence_cost(order)

    def cost(loss: PrivacyLoss) -> float:
        eps = epsilon(loss)
        return diverging(Pure(eps)) if eps < math.inf else math.inf

    return cost


def _share(state: AdvancedState, delta: float) -> float:
    rest = remaining_delta(delta, state.delta_floor)
    return max(0.0, down(rest / (2 * max(1, state.count)), 4))


def _pairs(state: AdvancedState, delta: float) -> tuple[dict[float, int] | None, float]:
    """Return each randomized response with its count, and the delta left for their sum."""
    delta_floor, share = state.delta_floor, _share(state, delta)
    if state.count:
        if share == 0:
            return None, -1.0
        # the losses without a pure epsilon fail with their share each
        delta_floor += Fraction(share) * state.count
    rest = remaining_delta(delta, delta_floor)
    bounded = [(pure_or_infinite(loss), n) for loss, n in state.bounded.items().items()]
    unbounded = state.unbounded.items().items()
    pairs = totals(bounded + [(approximate_epsilon(loss, share), n) for loss, n in unbounded])
    pairs.pop(0.0, None)
    if rest < 0 or any(math.isinf(eps) for eps in pairs):
        return None, -1.0
    return pairs, rest


def _upper(pairs: Mapping[float, int] | None, rest: float, delta: float) -> float:
    """Return the bound at ``delta``, of which ``rest`` is left for the pairs' sum."""
    return 0.0 if delta == 1 else math.inf if pairs is None else _optimal(pairs, rest)


def _optimal(pairs: Mapping[float, int], delta: float) -> float:
    """Return an upper bound of the tight epsilon of randomized responses at ``delta``."""
    if len(pairs) < _MANY:
        total = ceiling(sum((Fraction(eps) * times for eps, times in pairs.items()), Fraction()))
    else:  # the sum itself is rounded once (Shewchuk)
        total = up(math.fsum(up(eps * times) for eps, times in pairs.items()))
    if delta >= 1 or not pairs:
        return 0.0
    if delta == 0:
        return total
    # a product that underflows is off by less than the least float, once for each time
    lost = 5e-324 * float(sum(pairs.values()))
    square = up(sum(eps * eps * times for eps, times in pairs.items()), 2 * len(pairs) + 2)
    mean = up(sum(eps * math.tanh(eps / 2) * times for eps, times in pairs.items()), 64)
    square, mean = up(square + lost), up(up(mean, 2 * len(pairs)) + lost)
    # Hoeffding's bound, and the plain sum of epsilons
    best = min(total, up(mean + math.sqrt(2 * square * -math.log(delta)), 16))
    if total > 1e300 or delta < LEAST_DELTA:
        return best
    if len(pairs) == 1:
        ((eps, times),) = pairs.items()
        if times <= _BINOMIAL:
            return min(best, _binomial(eps, times, delta, side=1))
    return min(best, _lattice(pairs, total, mean, square, delta))


LEAST_DELTA = 1e-300
"""Masses of less are near the least float, where rounding is no longer relative: what is lost of a
million of them is below 1e-16 of this delta, and would be all of a smaller one."""


def _binomial(eps: float, times: int, delta: float, side: int) -> float:
    """Return the exact epsilon of ``times`` equal responses, rounded up (side 1) or down (-1)."""
    if delta < LEAST_DELTA:
        return math.inf if side > 0 else 0.0
    losses, mass, error, lost = _responses(eps, times, delta)
    keep = losses >= 0  # only positive losses matter
    if side < 0:
        return _solve(losses[keep], mass[keep], delta, -error, 0.0)
    return _solve(losses[keep], mass[keep], delta, error, lost)


def _responses(eps: float, times: int, delta: float) -> tuple[Array, Array, float, float]:
    """Return the atoms of ``times`` equal responses: losses, falling, and masses under P.

    Also the masses' relative error and a bound of the mass that was left out. With j of the k
    responses at ``-eps`` the loss is ``(k - 2j) eps``; under P, j has mean ``k / (1 + e^eps)``, and
    by Hoeffding it strays from it by ``sqrt(k log(2e20/delta) / 2)`` with probability at most
    ``1e-20 delta``: those atoms are left out.
    """
    center = times * math.exp(-eps) / (1 + math.exp(-eps))
    spread = _spread(times, delta)
    first, last = max(0, math.floor(center - spread)), min(times, math.ceil(center + spread))
    j = np.arange(first, last + 1, dtype=np.float64)
    log_mass = (
        special.gammaln(times + 1.0) - special.gammaln(j + 1) - special.gammaln(times - j + 1)
    )
    size = float(special.gammaln(times + 1.0))
    if times <= 64:  # exact coefficients
        log_mass = np.array([math.log(math.comb(times, int(i))) for i in j])
        size = float(times)
    log_mass = log_mass - j * eps - times * math.log1p(math.exp(-eps))
    # of the log-factorials and exponents, each of its own size; and of the cumulative sums
    error = 16 * UNIT * (2 + size + times * (1 + eps)) + 4 * len(j) * UNIT
    lost = 0.0 if len(j) == times + 1 else 1e-20 * delta
    losses: Array = (times - 2 * j) * eps
    return losses, np.exp(log_mass), error, lost


def _spread(times: int, delta: float) -> float:
    """Return how far from its mean the count of `_responses` is followed (a unit is rounding)."""
    return 1 + math.sqrt(times / 2 * (math.log(2e20) - math.log(delta)))


def _solve(losses: Array, mass: Array, delta: float, error: float, lost: float) -> float:
    """Return the epsilon at which a discrete privacy loss has hockey-stick ``delta``.

    Parameters
    ----------
    losses
        Shape (m,), decreasing; the atoms above 0 suffice.
    mass
        Shape (m,); the probability of each under P.
    error
        Relative error of the masses, positive for an upper bound, negative for a lower one.
    lost
        Mass outside of the atoms, which counts as delta floor.
    """
    # between two atoms delta(eps) = A - e^eps B, A the mass above and B its mass under Q
    # delta(eps) = A - e^eps B: A moved up and B down for an upper bound, the reverse for a lower
    above = np.cumsum(mass) * (1 + error) + lost
    if delta <= lost:
        return math.inf
    # eps is at most the loss r at which A passes delta; B is kept in units of e^-r
    reference = float(losses[min(int(np.searchsorted(above, delta)), len(losses) - 1)])
    other = np.cumsum(mass * np.exp(np.clip(reference - losses, -745, 600))) * (1 - error)
    growth = np.exp(np.clip(losses - reference, -745, 300))
    at_atom = above - other * growth  # delta at eps = the atom itself
    # the first atom at which delta is reached: the root lies in the segment before it
    index = int(np.argmax(at_atom >= delta)) - 1 if (at_atom >= delta).any() else len(losses) - 1
    if index < 0:
        return float(losses[0]) * (1 + 4 * UNIT)
    # with the masses rounded outward delta(eps) jumps at the next atom, by more than delta where
    # delta is tiny, so an upper bound stops there; a lower one holds wherever A - e^eps B >= delta
    stop = (
        float(losses[index + 1]) * (1 + 4 * UNIT) if error > 0 and index + 1 < len(losses) else 0.0
    )
    numerator = float(above[index]) - delta
    if numerator <= 0:
        return max(0.0, stop)
    if reference - float(losses[index]) > 600:
        return 0.0 if error < 0 else max(stop, reference * (1 + 4 * UNIT))
    eps = reference + math.log(numerator / float(other[index]))
    eps += math.copysign(16 * UNIT * (1 + abs(eps) + abs(reference)), error)
    return max(0.0, stop, eps)


def _lattice(
    pairs: Mapping[float, int], total: float, mean: float, square: float, delta: float
) -> float:
    """Return an upper bound of epsilon from a composition on a lattice of losses.

    Each atom of a response's likelihood ratio X = P/Q is split between the two lattice
    points around it so that its mass under Q and under P stay: a mean-preserving spread of
    X under Q. The hockey-stick ``E_Q (X - e^eps)_+`` is convex in X, so it grows, and a product
    of spreads is a spread of the product: the composition dominates. Losses below the
    lattice move up to its lower end, which grows the hockey-stick too; mass above its upper
    end counts as delta floor. All masses are sums of products of positive numbers, computed
    directly, so their relative error is at most the number of operations times 2^-53.
    """
    # Hoeffding: outside of mean +- radius lies at most 1e-6 delta
    radius = math.sqrt(2 * square * (math.log(1e6) - math.log(delta)))
    high, low = min(total, mean + radius), -min(total, radius)
    cells = max(1024, min(_CELLS, _WORK // (4 * len(pairs))))
    alone = [eps for eps, times in sorted(pairs.items()) if times == 1]
    alone = alone[: len(alone) // _TOGETHER * _TOGETHER] if len(alone) >= _MANY else []
    if len(alone) > len(pairs) / 2:
        # six at a time there are fewer spreads: steps may be longer by the root of that
        spreads = len(alone) / _TOGETHER + len(pairs) - len(alone)
        cells = max(1024, int(cells * math.sqrt(spreads / len(pairs))))
    step = (high - low) / (cells - 8)
    work = sum(min(2 * cells, 2 * times, 4 * _spread(times, delta)) for times in pairs.values())
    # no help where it would take seconds, nor where a step is a nat or more
    if not 0 < step < 1 or work * cells > 64 * _WORK or max(pairs.values()) > _BINOMIAL:
        return math.inf
    first = math.floor(low / step) - 1
    some = set(alone)
    ordered = [(eps, times) for eps, times in sorted(pairs.items()) if eps not in some]
    density, start, lost, error = np.ones(1), 0, 0.0, 4 * cells * UNIT + 1e-12
    windows = iter(_windows(alone, ordered, step, (first, first + cells), delta))
    if alone:
        groups, lows = _groups(np.array(alone), step, cells)
        for lowest, weights in zip(lows.tolist(), groups, strict=True):
            density, start, spilled = _convolve(density, start + lowest, weights, next(windows))
            lost += spilled
        # each by its products of six masses, of a few operations each, and its sums
        error += len(groups) * (64 + 4 * (2**_TOGETHER + groups.shape[1])) * UNIT
    for eps, times in ordered:
        losses, mass, rounding, left_out = _responses(eps, times, delta)
        index, weights = _split(losses, mass, step, cells)
        density, start, spilled = _convolve(density, start + index, weights, next(windows))
        # mass above the lattice counts as delta floor
        lost += spilled + left_out
        error += rounding + 4 * (len(losses) + len(weights) + 4) * UNIT
    error = math.expm1(error)
    atoms: Array = (start + np.arange(len(density), dtype=np.float64)) * step
    keep = atoms > 0
    order = slice(None, None, -1)
    # the lattice law dominates, so its epsilon is an upper bound
    answer = _solve(atoms[keep][order], density[keep][order], delta, error, up(lost * (1 + error)))
    # a response's loss is placed on the lattice to a few units of its size; they sum to total
    return up(answer + 4 * UNIT * ((abs(first) + cells) * step + 4 * total), 8)


_MANY = 64
"""So many responses that are paid once are composed six by six."""

_TOGETHER = 6
"""How many at a time: of more the outcomes of all together are too many."""


def _windows(
    alone: list[float],
    ordered: list[tuple[float, int]],
    step: float,
    lattice: tuple[int, int],
    delta: float,
) -> list[tuple[int, int]]:
    """Return the lattice points, first and past the last, that are followed after each part.

    After each the loss strays from its mean by ``sqrt(2 S log(1/d))``, S the sum of squared
    epsilons until then, with probability at most d (Hoeffding): d is 1e-6 delta over all parts.
    A split moves by a step at most, which adds to S. Whatever is left out is counted there.
    """
    each = [(np.array(alone)[i::_TOGETHER], 1) for i in range(_TOGETHER)] if alone else []
    squares = sum((eps * eps for eps, _ in each), np.zeros(len(alone) // _TOGETHER))
    means = sum((eps * np.tanh(eps / 2) for eps, _ in each), np.zeros(len(squares)))
    eps, times = np.array(ordered, dtype=np.float64).reshape(-1, 2).T
    squares = np.cumsum(np.concatenate([squares, eps * eps * times]) + step * step)
    means = np.cumsum(np.concatenate([means, eps * np.tanh(eps / 2) * times]) + step * step / 4)
    radius = np.sqrt(2 * squares * (math.log(1e6 * len(squares)) - math.log(delta)))
    least, most = lattice
    # within the lattice, and never empty
    first = np.clip(np.floor((means - radius) / step) - 1, least, most - 1)
    last = np.clip(np.ceil((means + radius) / step) + 2, first + 1, most)
    return [*zip(first.astype(np.int64).tolist(), last.astype(np.int64).tolist(), strict=True)]


def _groups(eps: Array, step: float, cells: int) -> tuple[Array, NDArray[np.int64]]:
    """Return each six responses' P-masses on the lattice, after the split, and where they start.

    The outcomes of six together are split at once: that is one spread, not six.
    """
    signs = np.array([*product((1.0, -1.0), repeat=_TOGETHER)])
    more = 1 / (1 + np.exp(-eps))
    masses = np.stack([np.exp(-eps) * more, more], axis=-1).reshape(-1, _TOGETHER, 2)
    chosen = (signs > 0).astype(np.intp)
    mass = np.prod([masses[:, i, chosen[:, i]] for i in range(_TOGETHER)], axis=0)
    # outcomes fall with the sum of their signed losses
    index, lower, upper = _shares(eps.reshape(-1, _TOGETHER) @ signs.T, mass, step, cells)
    lowest = index.min(axis=1)
    width = int((index.max(axis=1) - lowest).max()) + 2
    place = index - lowest[:, None] + width * np.arange(len(index))[:, None]
    size = width * len(index)
    weights: Array = np.bincount(place.ravel(), lower.ravel(), size).astype(np.float64)
    weights += np.bincount(place.ravel() + 1, upper.ravel(), size)
    return weights.reshape(-1, width), lowest


def _split(losses: Array, mass: Array, step: float, cells: int) -> tuple[int, Array]:
    """Return the lowest lattice index and the P-masses from it on, after the split."""
    index, lower, upper = _shares(losses, mass, step, cells)
    lowest = int(index.min())
    weights: Array = np.bincount(index + 1 - lowest, upper).astype(np.float64)
    weights[: len(weights) - 1] += np.bincount(index - lowest, lower)
    return lowest, weights


def _shares(
    losses: Array, mass: Array, step: float, cells: int
) -> tuple[NDArray[np.int64], Array, Array]:
    """Return each loss's lattice index, the P-mass that it leaves there, and what goes one up."""
    index = np.floor(losses / step)
    # split on X = e^loss: weight u of the Q-mass goes up, so of the P-mass u e^{up - loss}
    down_by, up_by = index * step - losses, (index + 1) * step - losses
    # the share u of the Q-mass that goes up keeps the mean of X = e^loss
    weight = np.clip(-np.expm1(down_by) / (np.expm1(up_by) - np.expm1(down_by)), 0.0, 1.0)
    # of the P-mass: u e^{up - loss}
    upper = np.minimum(mass, mass * weight * np.exp(up_by))
    # nothing on the lattice moves further than its length, so the ends of the split may be cut
    return np.clip(index, -cells - 1, cells + 1).astype(np.int64), mass - upper, upper


_DENSE = 64
"""Of no more cells than this each is added, whether there is any mass in it or not."""


def _convolve(
    density: Array, start: int, weights: Array, window: tuple[int, int]
) -> tuple[Array, int, float]:
    """Return the density of the sums, its first lattice point, and the mass past the window.

    The sums begin at ``start``. What falls below the window moves up to its first point.
    """
    if min(len(density), len(weights)) <= _DENSE:
        every = np.convolve(density, weights)
    else:
        few, many = sorted((density, weights), key=np.count_nonzero)
        every = np.zeros(len(few) + len(many) - 1)
        for shift in np.flatnonzero(few).tolist():
            every[shift : shift + len(many)] += few[shift] * many
    least, most = window
    # the first point that is kept, even if all sums are past the window or below it
    first = min(max(start, least), most - 1)
    result = every[max(0, first - start) : most - start] if start < most else every[:0]
    result = result.copy() if len(result) else np.zeros(1)
    # below the window: a larger loss, outward
    if start < first:
        result[0] += float(every[: first - start].sum())
    return result, first, float(every[max(0, most - start) :].sum())
