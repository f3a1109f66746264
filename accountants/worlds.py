"""Parallel composition for every accountant.

A unit lies in one choice of each `Parallel`. A *world* is one way to choose them all: the
multiset of losses that the unit can touch. Neighbouring data sets differ in one unit, so
in each run one world is true, and there only ordinary composition happens: whatever an
accountant proves for that multiset holds. The certificate is the maximum over worlds. This
is exact for every accountant, unlike the maximum of curves inside each `Parallel`, which is
looser.

Worlds are dropped that another one covers (`accountants.losses.composite.covers`). Past
`CAP` worlds, the choices of a `Parallel` are replaced by their envelope, sound and looser,
and the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import field, frozen

from accountants.errors import DomainError
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite, covers
from accountants.losses.envelope import Envelope
from accountants.losses.sampled import Sampled as SampledLoss
from accountants.terms import Grouped, Parallel, Repeated, Sampled, Sequential, Spend, Term

CAP = 512
"""More worlds than this fall back to envelopes."""

Multiset = Mapping[PrivacyLoss, int]


@frozen
class World:
    """What a unit touches beside the common part, and the choices that say where it lies."""

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
    """

    common: Multiset = field(factory=dict)
    alternatives: tuple[World, ...] = (World({}),)
    exact: bool = True

    def __iter__(self) -> Iterator[World]:
        """Yield each world whole, its common part included."""
        for world in self.alternatives:
            yield World(_add(self.common, world.spends), world.labels)


def worlds(term: Term) -> Worlds:
    """Return the worlds of a term, pruned (see the module's docstring)."""
    match term:
        case Spend(loss=loss):
            return Worlds({loss: 1})
        case Sequential(parts=parts):
            return _sequential(parts)
        case Parallel(choices=choices, labels=labels):
            return _parallel([worlds(choice) for choice in choices], labels)
        case Repeated(part=part, times=times):
            return _repeated(worlds(part), times)
        case Sampled(part=part, rate=rate):
            return _each(worlds(part), lambda spends: {SampledLoss(Composite(spends), rate): 1})
        case Grouped(part=part, size=size):
            return _group(worlds(part), size)
    raise DomainError(f"worlds needs a term, got {term!r}; wrap a loss in Spend")


def _sequential(parts: Iterable[Term]) -> Worlds:
    common: dict[PrivacyLoss, int] = {}
    product: tuple[World, ...] = (World({}),)
    exact = True
    for part in parts:
        if isinstance(part, Spend):
            common[part.loss] = common.get(part.loss, 0) + 1
            continue
        inner = worlds(part)
        exact &= inner.exact
        for loss, times in inner.common.items():
            common[loss] = common.get(loss, 0) + times
        if len(inner.alternatives) == 1:
            (only,) = inner.alternatives
            product = tuple(_join(world, only) for world in product)
        elif len(product) * len(inner.alternatives) > CAP:
            exact = False
            merged = World({_envelope(inner.alternatives): 1})
            product = tuple(_join(world, merged) for world in product)
        else:
            product = _prune(_join(a, b) for a in product for b in inner.alternatives)
    return Worlds(common, product, exact)


def _parallel(choices: list[Worlds], labels: tuple[tuple[str, ...], ...]) -> Worlds:
    every: list[World] = []
    for i, choice in enumerate(choices):
        label = labels[i] if labels else ()
        every += [World(world.spends, label + world.labels) for world in choice]
    kept = _prune(every)
    exact = all(choice.exact for choice in choices)
    if len(kept) > CAP:
        return Worlds({}, (World({_envelope(kept): 1}),), False)
    if len(kept) == 1:
        return Worlds(kept[0].spends, (World({}, kept[0].labels),), exact)
    return Worlds({}, kept, exact)


def _repeated(inner: Worlds, times: int) -> Worlds:
    if times == 0:
        return Worlds()
    common = {loss: count * times for loss, count in inner.common.items()}
    if len(inner.alternatives) == 1:
        (only,) = inner.alternatives
        spends = {loss: count * times for loss, count in only.spends.items()}
        return Worlds(common, (World(spends, only.labels),), inner.exact)
    # the unit may lie elsewhere in each round, so every mixture of worlds is possible
    return Worlds(_add(common, {_envelope(inner.alternatives): times}), (World({}),), False)


def _each(inner: Worlds, change: Callable[[Multiset], Multiset]) -> Worlds:
    kept = _prune(World(change(world.spends), world.labels) for world in inner)
    return Worlds({}, kept, inner.exact)


def _group(inner: Worlds, size: int) -> Worlds:
    """Return the worlds of a group.

    One unit lies in one world, but a group's units may lie in several. Where there is more
    than one, the group is charged for all of them at once, each at its full size: sound,
    since it cannot touch more, and looser.
    """
    if size == 1 or len(inner.alternatives) == 1:
        return _each(inner, lambda spends: _grouped(spends, size))
    every = dict(inner.common)
    for world in inner.alternatives:
        every = _add(every, world.spends)
    return Worlds(_grouped(every, size), (World({}),), False)


def _grouped(spends: Multiset, size: int) -> dict[PrivacyLoss, int]:
    result: dict[PrivacyLoss, int] = {}
    for loss, times in spends.items():
        grouped = loss.grouped(size)
        result[grouped] = result.get(grouped, 0) + times
    return result


def _envelope(alternatives: Iterable[World]) -> Envelope:
    return Envelope(tuple(Composite(world.spends) for world in alternatives))


def _add(a: Multiset, b: Multiset) -> dict[PrivacyLoss, int]:
    result = dict(a)
    for loss, times in b.items():
        result[loss] = result.get(loss, 0) + times
    return result


def _join(a: World, b: World) -> World:
    return World(_add(a.spends, b.spends), a.labels + b.labels)


def _prune(every: Iterable[World]) -> tuple[World, ...]:
    """Drop every world that another one covers, equal ones but the first."""
    kept: list[World] = []
    for world in every:
        if len(kept) > CAP:  # too many to compare: the caller takes their envelope
            kept.append(world)
        elif any(covers(other.spends, world.spends) for other in kept):
            continue
        else:
            kept = [other for other in kept if not covers(world.spends, other.spends)]
            kept.append(world)
    return tuple(kept)
