"""Parallel composition for every accountant.

A unit lies in one choice of each `Parallel`. A *world* is one way to choose them all: the
multiset of losses that the unit can touch. Neighbouring data sets differ in one unit, so
in each run one world is true, and there only ordinary composition happens: whatever an
accountant proves for that multiset holds. The certificate is the maximum over worlds. This
is exact for every accountant, unlike the maximum of curves inside each `Parallel`, which is
looser.

Worlds are dropped that another one covers (`accountants.losses.composite.covers`), and few of the
others are measured (`maximum_over_worlds`). One `Parallel` has as many worlds as it has choices.
Several multiply: where there would be more than `CAP` worlds (fewer where they hold many losses),
the choices of a `Parallel` are replaced by their envelope, sound and looser, and the answer says
so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen

from accountants import losses
from accountants.accountant import Accountant, Cost, Floor, PruningBound, bounds_of
from accountants.definitions import LARGEST_MU, approximate_epsilon_floor
from accountants.errors import DomainError, InapplicableError
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite, Envelope, covers, split
from accountants.losses.sampling import Sampled as SampledLoss
from accountants.numerics import Array, Bounds, bracket, ceiling, totals, up
from accountants.terms import (
    Allocated,
    Grouped,
    Parallel,
    Repeated,
    ReplacedSample,
    Sampled,
    Selected,
    Sequential,
    Spend,
    Subset,
    Term,
    _OnePart,
)

CAP = 8192
"""A product of more worlds than this falls back to envelopes."""

_WORK = 2**17
_PATIENCE = 8192

_TOTAL, _LEAST = 2**17, 16
"""The choices of a `Parallel` share this many worlds, but each may have so few."""

Multiset = Mapping[PrivacyLoss, int]


@frozen
class World:
    """What a unit touches beside the common part, and the choices that say where it lies.

    Examples
    --------
    >>> from accountants import Laplace
    >>> towns = Parallel([Spend(Laplace(epsilon=0.5)), Spend(Laplace(epsilon=0.25))], ["A", "B"])
    >>> [world] = worlds(Sequential([Spend(Laplace(epsilon=0.1)), towns]))
    >>> world.labels, list(world.spends)
    (('A',), [Laplace(epsilon=0.1), Laplace(epsilon=0.5)])
    """

    spends: Multiset
    labels: tuple[str, ...] = ()


@frozen
class Worlds:
    """All worlds of a term.

    Parameters
    ----------
    common
        The losses that every world pays.
    alternatives
        At least one world, each beside the common part.
    exact
        False where an envelope stands for several worlds.
    apart
        Whether two units can meet different mechanisms, if of the same loss.

    Examples
    --------
    >>> from accountants import Gaussian, Laplace
    >>> towns = Parallel([Spend(Laplace(epsilon=0.5)), Spend(Gaussian(mu=0.5))], ["A", "B"])
    >>> possible = worlds(Sequential([Spend(Laplace(epsilon=0.1)), towns]))
    >>> possible.common, possible.exact
    ({Laplace(epsilon=0.1): 1}, True)
    >>> [world.labels for world in possible]
    [('A',), ('B',)]
    """

    common: Multiset = field(factory=dict)
    alternatives: tuple[World, ...] = (World({}),)
    exact: bool = True
    apart: bool = False

    def __iter__(self) -> Iterator[World]:
        """Yield each world, its common part included."""
        for world in self.alternatives:
            yield World(_add(self.common, world.spends), world.labels)


def worlds(term: Term) -> Worlds:
    """Return the worlds of a term, pruned (see the module's docstring).

    Examples
    --------
    >>> from accountants import Laplace
    >>> sizes = Parallel([Spend(Laplace(epsilon=0.5)), Spend(Laplace(epsilon=0.25))], ["A", "B"])
    >>> len(worlds(sizes).alternatives)  # a unit in A loses more, so B needs no look
    1
    """
    return _worlds(term, CAP)


def _worlds(term: Term, cap: int) -> Worlds:
    """Return the worlds of a term that has room for ``cap`` worlds of a product."""
    match term:
        case Spend(loss=loss):
            return Worlds(totals(_parts(loss)))
        case Sequential(parts=parts):
            return _sequential(parts, cap)
        case Parallel(choices=choices, labels=labels):
            # nested choices share one budget of worlds, so that a deep term stays bounded
            room = min(cap, max(_LEAST, _TOTAL // max(1, len(choices))))
            return _parallel([_worlds(choice, room) for choice in choices], labels)
        case Repeated(part=part, times=times):
            return _repeated(_worlds(part, cap), times)
        case Sampled(part=part, rate=rate):
            return _each(_worlds(part, cap), lambda body: SampledLoss(body, rate))
        case ReplacedSample(part=part, rate=rate):
            inner = _worlds(part, cap)
            # own proof: of Gaussian bodies the one of the largest mu, whose shifts are opposite,
            # dominates where a unit of one choice is replaced by one of another, with shifts at an
            # angle that are no longer; and it is one of these worlds
            if not all(
                isinstance(loss, losses.Gaussian) for world in inner for loss in world.spends
            ):
                _touches_alike(term, part)
            return _each(inner, lambda body: losses.ReplacedSample(body, rate))
        case Subset(part=part, size=size, of=of):
            _touches_alike(term, part)
            inner = _by_pure_epsilon(_worlds(part, cap))
            return _each(inner, lambda body: losses.FixedSize(body, size, of))
        case Allocated(part=part, steps=steps, times=times):
            return _allocated(_by_pure_epsilon(_worlds(part, cap)), steps, times)
        case Selected(part=part, shape=shape, stopping=stopping):
            inner = _one(_worlds(part, cap))
            if inner.apart:  # within a run: what it releases joins there, or is refused in a group
                within = chain(inner.common, inner.alternatives[0].spends)
                inner = evolve(inner, apart=not all(map(_joins_apart, within)))
            return _each(inner, lambda body: losses.PrivateSelection(body, shape, stopping))
        case Grouped(part=part, size=size):
            return _group(_worlds(part, cap), size)
    raise DomainError(f"worlds needs a term, got {term!r}; wrap a loss in Spend")


def _parts(loss: PrivacyLoss) -> Iterable[tuple[PrivacyLoss, int]]:
    """Yield the losses that a loss is the composition of, so that each is taken by its own pair."""
    if not isinstance(loss, Composite):
        yield loss, 1
        return
    for part, times in loss.spends:
        yield from ((inner, times * count) for inner, count in _parts(part))


def _sequential(parts: tuple[Term, ...], cap: int) -> Worlds:
    common = totals(pair for part in parts if isinstance(part, Spend) for pair in _parts(part.loss))
    inners = [_worlds(part, cap) for part in parts if not isinstance(part, Spend)]
    product: tuple[World, ...] = (World({}),)
    exact = all(inner.exact for inner in inners)
    apart = any(inner.apart for inner in inners)
    wide = sum(len(inner.alternatives) > 1 for inner in inners)
    # of many partitions most are enveloped anyway, and a few more make little difference
    # past this many an envelope replaces a part's alternatives: sound (it is above each of them),
    # looser
    most = max(2, min(cap, _WORK // max(1, wide * wide)))
    for inner in inners:
        # what every alternative holds is paid in every world (added in place: parts are many)
        for loss, times in inner.common.items():
            common[loss] = common.get(loss, 0) + times
        if len(inner.alternatives) == 1:
            (only,) = inner.alternatives
            if only.spends or only.labels:
                product = tuple(_join(world, only) for world in product)
        elif wide > 1 and len(product) * len(inner.alternatives) > most:
            exact = False
            common = _add(common, {_envelope(inner.alternatives): 1})
        elif len(product) == 1:  # they are pruned, and what all have in common changes nothing
            product = tuple(_join(product[0], world) for world in inner.alternatives)
        else:
            # one choice for each part, independently: a world is a tuple of them
            product = _prune(_join(a, b) for a in product for b in inner.alternatives)
    return Worlds(common, product, exact, apart)


def _parallel(choices: list[Worlds], labels: tuple[tuple[str, ...], ...]) -> Worlds:
    every: list[World] = []
    for i, choice in enumerate(choices):
        label = labels[i] if labels else ()
        every += [World(world.spends, label + world.labels) for world in choice]
    # a unit lies in one choice, so worlds are the union of the choices' worlds
    pruned = _prune(every)
    exact = all(choice.exact for choice in choices)
    apart = len(choices) > 1 or any(choice.apart for choice in choices)
    if len(pruned) == 1:
        return Worlds(pruned[0].spends, (World({}, pruned[0].labels),), exact, apart)
    return Worlds({}, pruned, exact, apart)


def _repeated(inner: Worlds, times: int) -> Worlds:
    if times == 0:
        return Worlds()
    if times == 1:
        return inner
    common = {loss: count * times for loss, count in inner.common.items()}
    if len(inner.alternatives) == 1:
        (only,) = inner.alternatives
        spends = {loss: count * times for loss, count in only.spends.items()}
        return Worlds(common, (World(spends, only.labels),), inner.exact, inner.apart)
    # the unit may lie elsewhere in each round, so every mixture of worlds is possible
    every = _add(common, {_envelope(inner.alternatives): times})
    return Worlds(every, (World({}),), False, inner.apart)


def _each(inner: Worlds, change: Callable[[Composite], PrivacyLoss], times: int = 1) -> Worlds:
    """Return the worlds, each as one loss of its body, paid so often: none where nothing is."""

    def changed(spends: Multiset) -> Multiset:
        return {change(Composite(spends)): times} if spends else {}

    pruned = _prune(World(changed(world.spends), world.labels) for world in inner)
    return Worlds({}, pruned, inner.exact, inner.apart)


def _by_pure_epsilon(inner: Worlds) -> Worlds:
    """Return the worlds with groups of pure losses as their pure epsilon: schemes know that one."""
    from accountants.losses.discrete import PureGroup  # here: most terms do without

    def known(spends: Multiset) -> Multiset:
        return totals(
            (losses.Pure(loss.pure()) if isinstance(loss, PureGroup) else loss, times)
            for loss, times in spends.items()
        )

    every = tuple(World(known(world.spends), world.labels) for world in inner.alternatives)
    common = known(inner.common)
    same = common == inner.common and every == inner.alternatives
    return inner if same else Worlds(common, every, False, inner.apart)


def _touches_alike(term: Term, part: Term) -> None:
    """Refuse a `Parallel` inside of a scheme that exchanges units.

    A unit and the one in its place may lie in two choices, and touch both.
    """
    match part:
        case Parallel(choices=choices) if len(choices) > 1:
            raise InapplicableError(
                f"{type(term).__name__} has no bound for a Parallel inside: a unit that replaces "
                "another may lie in another choice; put the Parallel outside of it where a "
                "replaced unit keeps its choice, else charge the choices in sequence"
            )
        case Parallel(choices=parts) | Sequential(parts=parts):
            for one in parts:
                _touches_alike(term, one)
        case _OnePart(part=inner):
            _touches_alike(term, inner)


def _allocated(inner: Worlds, steps: int, times: int) -> Worlds:
    """Return the worlds of an allocation: so many of one step out of ``steps // times`` each.

    A unit may lie in another world in each step, so several are replaced by their envelope.
    """
    inner = _one(inner)
    allocated = _each(inner, lambda body: losses.Allocated(body, steps // times), times)
    # several of the steps are bounded by blocks, which need not be attained
    attained = inner.exact and times in (1, steps)
    return Worlds(allocated.common, allocated.alternatives, attained, inner.apart)


def _one(inner: Worlds) -> Worlds:
    """Return one world above all: for a unit that may lie in another one in each run."""
    return merged(inner, 1)


def _group(inner: Worlds, size: int) -> Worlds:
    """Return the worlds of a group.

    One unit lies in one world, but a group's units may lie in several. Where there is more
    than one, the group is charged for all of them at once, each at its full size: sound,
    since it cannot touch more, and looser. Looser too where a loss's group is not attained: of
    pure epsilon, say, whose randomized response has no third point between two at 2 epsilon.

    Of choices that cost no more than another nothing is left (`_prune`), though two units may lie
    in the one and in the other. Say that a of the units meet A, which has the loss L, and the other
    b meet B, of which L is a bound. If the theorem of ``L.joined`` holds for every mechanism that
    has the loss L for each one unit, then ``L.joined(a + b)`` bounds A and B together. Proof: the
    mechanism that runs A on the units of one part and B on those of another part has the loss L
    for each one unit, which is in one part; and the a + b units are a group of it. So it is for
    bounds that follow from a curve, a profile, a mu, a rho, a range or an epsilon alone; for
    Gaussian noise on samples, where two parts are two blocks of the released vector; and for noise
    of a log-concave density or mass that a distance shifts, on reals or integers: with F its
    distribution function, the trade-off at distance a is ``f_a(x) = F(F^-1(1 - x) - a)``, on
    integers at the corners of a polygon, so ``f_{a+b} = f_b o (1 - f_a)``, which no mechanism with
    these losses goes below (Dong, Roth and Su 2022, Thm 6). Whose theorem is of a mechanism's own
    form has ``joins_apart`` False: the units meet up to ``size`` mechanisms, so its group is paid
    so many times.
    """
    if size == 1:
        return inner
    if len(inner.alternatives) == 1:
        (only,) = inner.alternatives
        spends = _add(inner.common, only.spends)
        tight = inner.exact and all(
            loss.grouped_is_tight or loss.joined(size).attains_group for loss in spends
        )
        grouped = _grouped(spends, size, inner.apart)
        return Worlds(grouped, (World({}, only.labels),), tight, inner.apart)
    every = dict(inner.common)
    # a sequence of all losses is no smaller than any choice of them: sound, and looser.
    # the members may lie in all alternatives: their losses in sequence cover every case
    for world in inner.alternatives:
        every = _add(every, world.spends)
    return Worlds(_grouped(every, size, inner.apart), (World({}),), False, inner.apart)


def _grouped(spends: Multiset, size: int, apart: bool) -> dict[PrivacyLoss, int]:
    """Return the losses of a group, whose units may meet mechanisms of their own."""
    found = []
    for loss, times in spends.items():
        often = 1
        if apart and not _joins_apart(loss):
            base = getattr(loss, "base", None)
            if base is not None and not _joins_apart(base):
                raise InapplicableError(
                    f"{type(loss).__name__} of {type(base).__name__} has no bound for a group "
                    "whose units may lie in several choices of a Parallel; declare the loss of the "
                    "group instead"
                )
            often = size
        found.append((loss.joined(size), times * often))
    return totals(found)


def _joins_apart(loss: PrivacyLoss) -> bool:
    """Whether the loss of a group holds where its units meet mechanisms of their own."""
    from accountants.data_dependent import DataDependent  # here: most terms do without

    match loss:
        case Composite(spends=spends):
            return all(_joins_apart(part) for part, _ in spends)
        case Envelope(losses=parts):
            # one unit may meet any of them: each functional of a group's is no less than the sum
            return all(_joins_apart(part) for part in parts)
        case DataDependent(worst=worst):
            return _joins_apart(worst)
    return loss.joins_apart


def merged(every: Worlds, most: int) -> Worlds:
    """Return the worlds, or past ``most`` of them one that their envelope stands for."""
    if len(every.alternatives) <= most:
        return every
    alone = _add(every.common, {_envelope(every.alternatives): 1})
    return Worlds(alone, (World({}),), False, every.apart)


def _envelope(alternatives: Iterable[World]) -> Envelope:
    return Envelope(tuple(Composite(world.spends) for world in alternatives))


def _add(a: Multiset, b: Multiset) -> dict[PrivacyLoss, int]:
    return totals(chain(a.items(), b.items()))


def _join(a: World, b: World) -> World:
    return World(_add(a.spends, b.spends), a.labels + b.labels)


def _prune(every: Iterable[World]) -> tuple[World, ...]:
    """Drop worlds that another one covers, and equal ones but the first.

    The worlds are taken from the largest `_size` down, so that each is compared only
    with those retained before it, and in full only where every part of its size is the smaller:
    whatever covers it is no smaller. To keep a covered world is sound, so it does not matter
    what rounding makes of the sizes, nor that past `CAP` worlds and `_PATIENCE` comparisons
    in vain no more are made.
    """
    compare = _Comparison()
    distinct: dict[frozenset[tuple[int, int]], World] = {}
    for world in every:
        distinct.setdefault(compare.numbered(world), world)
    candidates = list(distinct.values())
    if len(candidates) == 1:
        return tuple(candidates)
    sizes = compare.sizes([*distinct])
    above = np.empty((CAP + 1, sizes.shape[1]))
    undominated: list[int] = []
    # from large to small: a world can only be covered by one that comes before it
    for i in np.argsort(-sizes.sum(axis=1), kind="stable").tolist():
        if len(undominated) <= CAP and not compare.spent():
            # a covering world is at least as large in each of the five sums, but for rounding
            larger = np.flatnonzero((above[: len(undominated)] >= sizes[i]).all(axis=1)).tolist()
            if any(compare(candidates[undominated[j]], candidates[i]) for j in larger):
                continue
            above[len(undominated)] = sizes[i] * (1 + 1e-12)
        undominated.append(i)
    return tuple(candidates[i] for i in sorted(undominated))


class _Comparison:
    """Whether a world covers another, and remembers all that it learns about their losses."""

    def __init__(self) -> None:
        self._numbers: dict[PrivacyLoss, int] = {}
        self._losses: list[PrivacyLoss] = []
        self._pairs: dict[tuple[int, int], bool] = {}
        self._splits: dict[int, tuple[dict[int, int], Fraction]] = {}
        self._in_vain = 0

    def __call__(self, large: World, small: World) -> bool:
        if self.spent():
            return False
        (many, square), (few, other_square) = self._split(large), self._split(small)
        covered = square >= other_square and covers(many, few, self._dominates)
        self._in_vain += not covered
        return covered

    def spent(self) -> bool:
        """Whether so many comparisons were in vain that no more are made."""
        return self._in_vain > _PATIENCE

    def numbered(self, world: World) -> frozenset[tuple[int, int]]:
        """Return the world's losses, as their numbers: they hash in no time."""
        return frozenset((self._number(loss), times) for loss, times in world.spends.items())

    def sizes(self, every: Sequence[frozenset[tuple[int, int]]]) -> Array:
        """Return sums that are no smaller in a world that covers another: finite, to compare them.

        Shape (worlds, 5); see `_sizes`.
        """
        parts = np.array([_sizes(loss) for loss in self._losses]).reshape(-1, 5)
        rows = [row for row, world in enumerate(every) for _ in world]
        entries = [entry for world in every for entry in world]
        times = np.array([float(min(times, 10**300)) for _, times in entries])
        numbers = np.array([number for number, _ in entries], dtype=np.intp)
        sizes = np.empty((len(every), 5))
        for i in range(5):
            # capped: sums that overflow could not be compared
            weights = np.minimum(parts[numbers, i] * times, 1e300)
            sizes[:, i] = np.bincount(rows, weights=weights, minlength=len(every))
        return sizes

    def _split(self, world: World) -> tuple[dict[int, int], Fraction]:
        """Return `split` of the world's losses, as their numbers."""
        result = self._splits.get(id(world))
        if result is None:
            rest, square = split(world.spends.items())
            result = {self._number(loss): times for loss, times in rest.items()}, square
            self._splits[id(world)] = result
        return result

    def _number(self, loss: PrivacyLoss) -> int:
        number = self._numbers.setdefault(loss, len(self._losses))
        if number == len(self._losses):
            self._losses.append(loss)
        return number

    def _dominates(self, large: int, small: int) -> bool:
        pair = (large, small)
        if pair not in self._pairs:
            self._pairs[pair] = self._losses[large].dominates(self._losses[small])
        return self._pairs[pair]


@lru_cache(maxsize=4096)
def _sizes(loss: PrivacyLoss) -> tuple[float, ...]:
    """Return a loss's part of each sum; a functional that it lacks counts as a large one."""
    mu = loss.mu() if loss.is_gaussian_pair else None
    if mu is not None and mu <= LARGEST_MU:
        # exact Gaussian pairs compose to one, so they are compared by the sum of mu squared alone
        return (mu * mu, 0.0, 0.0, 0.0, 0.0)
    return (0.0, 1.0, loss.delta_floor(), _large(loss.pure()), _large(loss.rho()))


def _large(value: float | None) -> float:
    return 1e6 if value is None else min(value, 1e6)


# -----------------------------------------------------------------------------
# The maximum of a bound over many worlds, without measuring each: branch and bound.
#
# A world is measured; the sums of a `PruningBound`, taken where that one attains its bound, bound
# all others; the one whose bound is largest is measured next, until no other world's bound is above
# what was measured. Each bound is proven, so what is passed over cannot be worse.
# Where an accountant has no pruning bounds, every world is measured.


@frozen
class Maximum:
    """The largest bound over all worlds, and the world that has it.

    Parameters
    ----------
    bounds
        The bracket of the worst world.
    world, state
        That world, and an accountant's state in it.
    """

    bounds: Bounds
    world: World
    state: Any


def fold(accountant: Accountant[Any], state: Any, spends: Multiset) -> Any:
    """Return the state after every spend of a multiset."""
    if len(spends) > 1 and _composes_many(type(accountant)):
        return accountant.compose_all(state, spends)  # type: ignore[attr-defined]
    for loss, times in spends.items():
        state = accountant.compose(state, loss, times)
    return state


def _composes_many(kind: type) -> bool:
    """Whether a class composes many losses at once, by the very rule by which it composes one."""
    # a subclass that has a `compose` of its own composes one after another
    first = next((each for each in kind.__mro__ if "compose" in each.__dict__), None)
    return first is not None and "compose_all" in first.__dict__


def states(accountant: Accountant[Any], every: Worlds) -> list[Any]:
    """Return an accountant's state in each world; what all worlds share is composed once."""
    common = fold(accountant, accountant.start(), every.common)
    return [fold(accountant, common, world.spends) for world in every.alternatives]


def maximum_over_worlds(
    every: Worlds,
    accountant: Accountant[Any],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
) -> Maximum:
    """Return the worst world: by epsilon at ``delta``, or by delta at ``epsilon``.

    Of equal ones it is the first.

    Raises
    ------
    InapplicableError
        If the accountant has no bound for a loss, or for a world that is measured.
    """
    search = _Search(every, accountant, delta, epsilon)
    if search.prunable():
        # so that a refusal does not depend on which worlds the search happens to measure
        for loss in search.sums.losses:
            accountant.compose(accountant.start(), loss)  # refuses what some world would
    at: int | None = 0
    while at is not None:
        search.measure(at)
        at = search.next()
    return search.result()


@define(slots=False)
class _Search:
    """Worlds measured so far, and bounds of the others."""

    every: Worlds
    accountant: Accountant[Any]
    delta: float | None
    epsilon: float | None
    common: Any = field(init=False)
    above: Array = field(init=False)
    best: tuple[float, int, Any] = (-math.inf, 0, None)
    lower: float = 0.0

    @common.default
    def _their_common(self) -> Any:
        return fold(self.accountant, self.accountant.start(), self.every.common)

    @above.default
    def _unknown(self) -> Array:
        return np.full(len(self.every.alternatives), np.inf)

    @cached_property
    def sums(self) -> Sums:
        """Return the losses of all worlds as a table."""
        return Sums(self.every)

    def measure(self, at: int) -> None:
        """Measure a world; where it is the worst so far, bound all others by what bounds it."""
        state = fold(self.accountant, self.common, self.every.alternatives[at].spends)
        bounds = bounds_of(self.accountant, state, delta=self.delta, epsilon=self.epsilon)
        # the maximum over worlds is no smaller than any world's lower bound
        self.lower = max(self.lower, bounds.lower)
        # measured: it is not asked again
        self.above[at] = -math.inf
        worse = bounds.upper > self.best[0]
        if worse or (bounds.upper == self.best[0] and at < self.best[1]):
            self.best = (bounds.upper, at, state)
        if worse and self.prunable():
            delta = bounds.upper if self.delta is None else self.delta
            # the pruning bounds hold for every world, so the least of all of them does
            for bound in self.accountant.pruning_bounds(state, delta):  # type: ignore[attr-defined]
                self.above = np.minimum(self.above, self.sums.bounds(bound))
                # the next pruning bounds cost time, and are not needed once the search has ended
                if self.next() is None:
                    break

    def prunable(self) -> bool:
        """Whether there are worlds to pass over, and bounds to do it by."""
        return len(self.above) > 1 and hasattr(self.accountant, "pruning_bounds")

    def next(self) -> int | None:
        """Return the world of the largest bound that is not seen to be below the worst."""
        at = int(np.argmax(self.above))
        # delta is never above 1
        if self.epsilon is not None and self.best[0] >= 1:
            return None
        # every other world's proven bound is at most the worst that was measured
        passed = self.above[at] <= (self.best[0] if self.epsilon is None else self.epsilon)
        return None if passed else at

    def result(self) -> Maximum:
        """Return the worst world with its bracket."""
        upper, at, state = self.best
        lower = 0.0
        # an envelope is no world: it bounds from above only
        if self.every.exact:
            lower = self.lower
            if np.isfinite(self.above).any():  # some were passed over
                # a world that was passed over may have the larger lower bound
                lower = max(lower, _floor(self.every, self.sums, self.delta, self.epsilon))
        return Maximum(bracket(lower, upper), self.every.alternatives[at], state)


class Sums:
    """The losses of all worlds as a table, so that a list of costs is summed over them at once."""

    def __init__(self, every: Worlds) -> None:
        self._common = every.common
        self._size = len(every.alternatives)
        numbers: dict[PrivacyLoss, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        times: list[int] = []
        for i, world in enumerate(every.alternatives):
            for loss, count in world.spends.items():
                rows.append(i)
                columns.append(numbers.setdefault(loss, len(numbers)))
                times.append(count)
        self.losses = [*numbers]
        self._rows = np.array(rows, dtype=np.intp)
        self._columns = np.array(columns, dtype=np.intp)
        self._times = np.array([ceiling(Fraction(count)) for count in times])
        self._terms = len(every.common) + max(
            (len(world.spends) for world in every.alternatives), default=0
        )

    def of(self, cost: Cost) -> Array:
        """Return each world's sum of costs, rounded up; what is not known counts as infinite."""
        costs = np.array([cost(loss) for loss in self.losses], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = costs[self._columns] * self._times
            base = sum(cost(loss) * ceiling(Fraction(n)) for loss, n in self._common.items())
            total: Array = base + np.bincount(self._rows, values, self._size).astype(np.float64)
            # a floating-point sum of n products is off by at most 2n + 8 units: rounded up past
            # that
            rounded = np.where(total == 0, 0.0, up(total, 2 * self._terms + 8))
        return np.where(np.isnan(rounded), np.inf, rounded)

    def bounds(self, bound: PruningBound) -> Array:
        """Return each world's epsilon by a pruning bound."""
        with np.errstate(over="ignore", invalid="ignore"):
            # both sums are rounded up, and the bound rises in them
            epsilons = bound.epsilon(self.of(bound.cost), self.of(bound.delta_floor))
        # what is not a number proves nothing
        return np.where(np.isnan(epsilons), np.inf, epsilons)


def _floor(every: Worlds, sums: Sums, delta: float | None, epsilon: float | None) -> float:
    """Return what no accountant can go below in the worst world (see `Floor`)."""
    # any world gives a lower bound of the worst one; that of the largest sum of mu^2 a good one
    largest = every.alternatives[int(np.argmax(sums.of(_square)))]
    floor = Floor()
    for spends in (every.common, largest.spends):
        for loss, times in spends.items():
            floor = floor.add(loss, times)
    # each loss alone is a part of some world, so its own tight epsilon is a lower bound
    others = [loss for loss in sums.losses if not loss.is_gaussian_pair]
    if delta is None:
        assert epsilon is not None
        profiles = [loss.profile(epsilon) for loss in others]
        return max([floor.delta(epsilon), *(bounds.lower for bounds in profiles if bounds)])
    least = floor.epsilon(delta)
    for loss in others:
        bounds = loss.profile(least)
        if bounds is not None and bounds.lower > delta:
            least = max(least, approximate_epsilon_floor(loss, delta))
    return least


def _square(loss: PrivacyLoss) -> float:
    mu = loss.mu() if loss.is_gaussian_pair else None
    return 0.0 if mu is None else min(mu, LARGEST_MU) ** 2
