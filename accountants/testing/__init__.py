"""A test kit for a loss of one's own: `check` it in a test, with a sampler if there is one.

>>> from accountants import Gaussian
>>> check(Gaussian(mu=1.0))

What passes is not proven; what fails is wrong, or looser than another of its own functionals
shows. Held against each other are: each functional and the laws of its notion; the functionals
among themselves, by the proven conversions; all of them and the dominating pair; the pair's
tails, moments and decay (`accountants.testing.pairs`); and draws of the mechanism, if it can be
run on two neighbouring data sets (`accountants.testing.samples`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache

import numpy as np
from attrs import fields, has

from accountants.definitions import gdp_profile
from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.losses.pure import Pure
from accountants.numerics import Array
from accountants.pair import Pair
from accountants.testing.pairs import SLACK, Cells, pair_problems
from accountants.testing.samples import LogRatio, Sampler, sample_problems

ORDERS: Array = np.array([1.01, 1.25, 1.5, 2.0, 2.5, 3.0, 5.0, 8.0, 16.0, 32.0, 64.0])
"""The Renyi orders at which curves are looked at."""

_MANY: Array = 1 + np.geomspace(1e-3, 1e9, 800)
"""The orders at which a curve is converted: a coarser search only promises more."""

_SHAPE: Array = (_MANY - 1) * np.log1p(-1 / _MANY) - np.log(_MANY)


def check(
    loss: PrivacyLoss,
    sampler: Sampler | None = None,
    *,
    log_ratio: LogRatio | None = None,
    draws: int = 200_000,
    seed: int = 0,
    pair: Pair | None = None,
    others: Sequence[PrivacyLoss] = (),
    orders: Array = ORDERS,
) -> None:
    """Raise `AssertionError`, with a sentence for each finding, unless a loss holds together.

    Parameters
    ----------
    loss
        The loss to check.
    sampler
        ``sampler(generator, n)`` draws n outcomes with the unit and n without it, one number
        each, or rows if ``log_ratio`` reads them. A sound loss fails by chance with a
        probability below 1e-6, whatever the number of draws.
    log_ratio
        The log-likelihood ratio of outcomes, with the unit against without. It only finds the
        events that tell the two apart best: without it half of the draws are spent on that.
    draws
        How many outcomes to draw on each side.
    seed
        Of the generator.
    pair
        A pair that the mechanism attains, to hold the functionals against beside their own; its
        tails are enough.
    others
        Losses to compare with where `PrivacyLoss.dominates` says so.
    orders
        Renyi orders above 1, rising.

    Raises
    ------
    AssertionError
        With a line for each law that is broken.
    """
    # overflow to infinity is a value here: it promises nothing and breaks no law
    with np.errstate(all="ignore"):
        problems = list(loss_problems(loss, pair, others, orders))
        if sampler is not None:
            rng = np.random.default_rng(seed)
            problems += sample_problems(promises(loss), scale(loss), sampler, log_ratio, draws, rng)
    if problems:
        raise AssertionError("\n".join([f"{loss!r} does not hold together:", *problems]))


def loss_problems(
    loss: PrivacyLoss, truth: Pair | None, others: Sequence[PrivacyLoss], orders: Array
) -> Iterator[str]:
    """Yield a sentence for each law that a loss breaks."""
    broken = list(_ranges(loss, orders))
    yield from broken
    if broken:  # what follows needs numbers
        return
    own = loss.pair()
    yield from pair_problems(own) if own is not None else ()
    if truth is not None:
        yield from ("the pair given: " + problem for problem in pair_problems(truth))
    yield from _falling(loss)
    yield from _rising(loss, orders)
    # only a tight pair gives lower bounds that every functional must stay above
    pairs = [x for x in (own, truth) if x is not None and x.is_tight()]
    yield from _between_notions(loss, pairs, orders)
    yield from _domination(loss)
    yield from _root(loss)
    yield from _sums(loss, orders)
    yield from _groups(loss, orders)
    yield from _order(loss, others, orders)


def _ranges(loss: PrivacyLoss, orders: Array) -> Iterator[str]:
    if not 0 <= loss.delta_floor() <= 1:
        yield f"delta_floor() is {loss.delta_floor()}, not a probability"
    for name in ("pure", "rho", "mu"):
        value = getattr(loss, name)()
        if value is not None and not value >= 0:
            yield f"{name}() is {value}, not a number of at least 0"
    curve = loss.renyi(orders)
    # NaN fails the comparison, so it is reported too
    if curve is not None and (np.shape(curve) != np.shape(orders) or not np.all(curve >= 0)):
        yield f"renyi() is not one non-negative number for each order: {curve!r}"
    # compositions count equal losses, so equality must be by value
    if hash(loss) != hash(loss) or loss != copy(loss):
        yield "the loss does not equal its copy"
    kind = type(loss)
    for each in fields(kind) if has(kind) else ():
        if each.init and not each.eq:
            yield f"{each.name} does not count when losses are compared: equal ones must cost alike"


Promise = Callable[[float], float]


@lru_cache(maxsize=16)
def promises(loss: PrivacyLoss) -> Mapping[str, Promise]:
    """Return the delta that each functional promises at an epsilon, the delta floor included."""
    delta_floor = loss.delta_floor()
    result: dict[str, Promise] = {}
    if loss.profile(0.0) is not None:
        result["profile"] = lambda eps: _bounds(loss, eps)[1]
    # every promise below is a sound upper bound of the same profile
    if (curve := loss.renyi(_MANY)) is not None:
        result["renyi"] = lambda eps: _with(delta_floor, _by_curve(curve, eps))
    if (rho := loss.rho()) is not None:
        result["rho"] = lambda eps: _with(delta_floor, _by_curve(_MANY * rho, eps))
    if (mu := loss.mu()) is not None:
        result["mu"] = lambda eps: _with(delta_floor, gdp_profile(mu, eps).upper)
    if (pure := loss.pure()) is not None and pure < math.inf:
        result["pure"] = lambda eps: _with(delta_floor, Pure(pure).profile(eps).upper)
    return result


def _with(delta_floor: float, rest: float) -> float:
    # F + (1 - F) delta'
    return delta_floor + (1 - delta_floor) * min(1.0, rest)


def _by_curve(curve: Array, eps: float) -> float:
    """Return the least delta of all orders (Canonne, Kamath and Steinke 2020, Prop. 12)."""
    # log delta at each order; the part without the curve is computed once
    exponents = (_MANY - 1) * (curve - eps) + _SHAPE
    return math.exp(min(0.0, float(np.min(np.where(np.isnan(exponents), np.inf, exponents)))))


def _bounds(loss: PrivacyLoss, epsilon: float) -> tuple[float, float]:
    bounds = loss.profile(epsilon)
    return (0.0, 1.0) if bounds is None else (bounds.lower, bounds.upper)


@lru_cache(maxsize=64)
def scale(loss: PrivacyLoss) -> float:
    """Return an epsilon past which little is left of the profile, or of what stands for it."""
    every = promises(loss)
    promise = every.get("profile") or next(iter(every.values()), None)
    # doubled until the profile has come down to its floor
    epsilon = 1e-12
    while epsilon < 1e6 and promise is not None:
        if promise(epsilon) <= loss.delta_floor() * (1 + SLACK) + 1e-25:
            break
        epsilon *= 2
    return epsilon


def _epsilons(loss: PrivacyLoss) -> list[float]:
    end = scale(loss)
    return [0.0, *np.geomspace(end * 1e-4, end / 8, 6), *np.linspace(end / 6, end, 10)]


def _falling(loss: PrivacyLoss) -> Iterator[str]:
    """A profile falls from at most 1 to no less than the delta floor."""
    if loss.profile(0.0) is None:
        return
    # the least upper bound so far: no later lower bound may be above it
    before = math.inf
    for eps in _epsilons(loss):
        lower, upper = _bounds(loss, eps)
        if not 0 <= lower <= upper <= 1:
            yield f"the profile at {eps:.6g} is [{lower}, {upper}], outside of [0, 1]"
        if upper < loss.delta_floor() * (1 - SLACK):
            yield f"the profile at {eps:.6g} is {upper}, below the delta floor {loss.delta_floor()}"
        if lower > before * (1 + SLACK):
            yield f"the profile rises: at {eps:.6g} it is {lower}, above {before} before"
        before = min(before, upper)


def _rising(loss: PrivacyLoss, orders: Array) -> Iterator[str]:
    """``D_a`` rises in a; ``(a - 1) D_a`` is convex, and 0 at 1.

    The least of several bounds need not be convex, and is a bound all the same.
    """
    curve = loss.renyi(orders)
    if curve is None:
        return
    curve, some = curve[np.isfinite(curve)], orders[np.isfinite(curve)]
    if np.any(curve[:-1] > curve[1:] * (1 + SLACK)):
        yield "the Renyi divergence falls in its order"
    # (a - 1) D_a is 0 at order 1, the first point of the chords
    x, y = np.append(1.0, some), np.append(0.0, (some - 1) * curve)
    # a convex function lies below its chords
    chord = y[:-2] + (y[2:] - y[:-2]) * (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    bent = y[1:-1] > chord * (1 + 1e-6) + 1e-300
    pair = loss.pair()
    if np.any(bent) and (pair is None or pair.is_tight()):
        at = float(x[1:-1][int(np.argmax(bent))])
        yield f"(a - 1) D_a is not convex: at order {at:.6g} it is above its chord"


def _between_notions(loss: PrivacyLoss, pairs: Sequence[Pair], orders: Array) -> Iterator[str]:
    """No functional promises less than the pairs have, nor than the profile says is needed."""
    for name, promise in promises(loss).items():
        yield from _first(_below(loss, name, promise, pairs))
        if loss.profile(0.0) is not None:
            yield from _first(_above(loss, name, promise))
    # functionals hold for both directions, so each is a lower bound
    sides = [side for pair in pairs for side in (pair, pair.reversed())]
    floors = _renyi_floors(loss, sides, orders)
    for name, ceiling in _ceilings(loss, orders).items():
        for source, floor in floors.items():
            yield from _first(
                f"{name} makes D_{order:.4g} {most:.6g}, below that of {source}: {least:.6g}"
                for order, most, least in zip(orders, ceiling, floor, strict=True)
                # a functional is an upper bound: below a proven lower bound it is wrong
                if least > most * (1 + 10 * SLACK) + 1e-300
            )


def _first(problems: Iterator[str]) -> Iterator[str]:
    """Yield the first: what breaks at one point mostly breaks at many."""
    for problem in problems:
        yield problem
        return


def _below(loss: PrivacyLoss, name: str, promise: Promise, pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield where a promise is below a lower bound."""
    for eps in _epsilons(loss):
        # the loss must hold its own bracket's lower end
        floors = {"the profile's lower bound": _bounds(loss, eps)[0]}
        if pairs:
            least = max(_pair_floor(pair, eps) for pair in pairs)
            floors["its pair"] = _with(loss.delta_floor(), least)
        for source, floor in floors.items():
            if floor > promise(eps) * (1 + SLACK) + 1e-300:
                yield (
                    f"{name} promises delta {promise(eps):.6g} at epsilon {eps:.6g}, below "
                    f"{source}: {floor:.6g}"
                )


def _above(loss: PrivacyLoss, name: str, promise: Promise) -> Iterator[str]:
    """Yield where the profile, known closely, is above a promise."""
    for eps in _epsilons(loss):
        lower, upper = _bounds(loss, eps)
        # where the bracket is narrow the profile itself is known, and no functional may promise
        # less
        if upper <= lower * 1.001 and upper > promise(eps) * (1 + 1e-6) + 1e-300:
            yield (
                f"the profile at {eps:.6g} is {upper:.6g}, above what {name} converts to: "
                f"{promise(eps):.6g}"
            )


def _pair_floor(pair: Pair, eps: float) -> float:
    point = np.array([eps])
    return max(float(side.profile(point)[0][0]) for side in (pair, pair.reversed()))


def _renyi_floors(
    loss: PrivacyLoss, sides: Sequence[Pair], orders: Array
) -> dict[str, list[float]]:
    """Return lower bounds of the divergence at each order, by where they come from."""
    cells = [Cells(side) for side in sides]
    every = orders.tolist()
    result = {"its profile": [_profile_floor(loss, order) for order in every]}
    if sides:
        result["its pair's tails"] = [max(c.renyi_floor(a) for c in cells) for a in every]
        result["its pair's moment"] = [max(_moment_floor(s, a) for s in sides) for a in every]
    return result


def _ceilings(loss: PrivacyLoss, orders: Array) -> dict[str, Array]:
    """Return what each functional makes of the Renyi divergence."""
    result = {}
    if (curve := loss.renyi(orders)) is not None:
        result["renyi"] = curve
    if (rho := loss.rho()) is not None:
        result["rho"] = orders * rho
    if (mu := loss.mu()) is not None:
        # the Renyi curve of N(0, 1) against N(mu, 1)
        result["mu"] = orders * mu * mu / 2
    if (pure := loss.pure()) is not None and pure < math.inf:
        result["pure"] = Pure(pure).renyi(orders)
    return result


def _moment_floor(pair: Pair, order: float) -> float:
    log_moment = pair.log_moment(np.array([order - 1], dtype=np.complex128))
    if log_moment is None or not log_moment[1][0] < math.inf:
        return 0.0
    # the moment less its promised error: a lower bound of D_a
    return float(log_moment[0][0].real - log_moment[1][0]) / (order - 1)


def _profile_floor(loss: PrivacyLoss, order: float) -> float:
    """Return what the profile's lower bound makes of the divergence: half, where one-sided.

    ``E_Q r^a - 1`` is the integral of ``a (a-1) t^(a-2)`` times the hockey-stick at t, that of
    the reversed pair where t is below 1; the profile is the larger of the two, and the larger
    of the two directions' moments at least their mean.
    """
    delta_floor = loss.delta_floor()
    if loss.profile(0.0) is None or delta_floor >= 1:
        return 0.0
    a, points = order, np.array(_epsilons(loss))
    # larger exponents overflow; leaving them out only lowers the integral
    points = points[a * points < 600]
    # the floor's part of the profile is not the pair's
    deltas = np.array([max(0.0, _bounds(loss, eps)[0] - delta_floor) for eps in points])
    # antiderivative of both directions' weights, in epsilon = log t
    weight = a * np.exp((a - 1) * points) - (a - 1) * np.exp(-a * points)
    # the profile falls: on each step its right end is the least, times the integral of the weight
    total = float(np.diff(weight) @ deltas[1:]) / (2 * (1 - delta_floor))
    return math.log1p(total) / (a - 1)


def _domination(loss: PrivacyLoss) -> Iterator[str]:
    """The pair, tight or not, is no smaller than the profile."""
    pair = loss.pair()
    if pair is None:
        return
    for eps in _epsilons(loss):
        point, (lower, _) = np.array([eps]), _bounds(loss, eps)
        most = max(float(side.profile(point)[1][0]) for side in (pair, pair.reversed()))
        if lower > _with(loss.delta_floor(), most) * (1 + SLACK):
            yield f"its pair has delta {most:.6g} at {eps:.6g}, below the profile's {lower:.6g}"


def _root(loss: PrivacyLoss) -> Iterator[str]:
    for delta in (1e-3, 1e-6, 1e-12):
        bounds = loss.epsilon_at(delta)
        if bounds is None or not bounds.upper < math.inf:
            continue
        # certain contradictions only: the profile's lower end above delta
        if _bounds(loss, bounds.upper)[0] > delta * (1 + SLACK):
            yield f"epsilon_at({delta}) ends at {bounds.upper}, where the profile is larger"
        if bounds.lower > 0 and _bounds(loss, bounds.lower)[1] < delta * (1 - SLACK):
            yield f"epsilon_at({delta}) begins at {bounds.lower}, where the profile is smaller"


def _sums(loss: PrivacyLoss, orders: Array) -> Iterator[str]:
    # 2 + 3 of one loss must cost five times its curve
    at_once = type(loss).renyi_sum([(loss, 2), (loss, 3)], orders)
    curve = loss.renyi(orders)
    if at_once is not None and curve is not None:
        # infinite orders are left out: infinity less infinity is no difference
        one_by_one = np.where(np.isfinite(curve), 5 * curve, 0.0)
        at_once = np.where(np.isfinite(curve), at_once, 0.0)
        if np.any(np.abs(at_once - one_by_one) > SLACK * one_by_one + 1e-300):
            yield "renyi_sum of five is not five times renyi"


def _groups(loss: PrivacyLoss, orders: Array) -> Iterator[str]:
    """A group's loss is no smaller than one unit's, and rises with the group."""
    # each group is held against the next smaller one
    before = loss
    for size in (1, 2, 3):
        try:
            group = loss.grouped(size)
        except InapplicableError:
            return
        for problem in _first(_smaller(group, before, orders)):
            yield f"grouped({size}): {problem}"
        before = group


def _order(loss: PrivacyLoss, others: Sequence[PrivacyLoss], orders: Array) -> Iterator[str]:
    # domination is reflexive
    if not loss.dominates(loss):
        yield "it does not dominate itself"
    for one, other in [(loss, x) for x in others] + [(x, loss) for x in others]:
        if one.dominates(other):
            for problem in _first(_smaller(one, other, orders)):
                yield f"{one!r} is said to dominate {other!r}, but: {problem}"


def _smaller(large: PrivacyLoss, small: PrivacyLoss, orders: Array) -> Iterator[str]:
    """Yield where ``large`` promises less than ``small`` is known to need, or promises."""
    # an order of losses is one of every functional
    if large.delta_floor() < small.delta_floor() * (1 - SLACK):
        yield f"its delta floor is {large.delta_floor()}, below {small.delta_floor()}"
    for name in ("pure", "rho", "mu"):
        more, less = getattr(large, name)(), getattr(small, name)()
        if more is not None and less is not None and more < less * (1 - SLACK):
            yield f"its {name} is {more}, below {less}"
    mine, theirs = large.renyi(orders), small.renyi(orders)
    if mine is not None and theirs is not None and np.any(mine < theirs * (1 - 10 * SLACK)):
        yield "its Renyi divergences are smaller"
    for eps in _epsilons(small) if large.profile(0.0) is not None else ():
        if _bounds(large, eps)[1] < _bounds(small, eps)[0] * (1 - SLACK):
            yield f"its profile at {eps:.6g} is smaller"
