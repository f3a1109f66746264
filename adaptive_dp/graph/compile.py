"""From the graph to a term: which losses one unit can touch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from attrs import field, frozen

from accountants import (
    Composite,
    Envelope,
    Parallel,
    PrivacyLoss,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    worlds,
)
from accountants.numerics import up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    PartOperation,
    PartsDomain,
    Release,
    SampleOperation,
    SourceOperation,
    part_title,
)
from adaptive_dp.graph.loops import Loop, Select
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.operation import UNBOUNDED, Change, Operation, Query
from adaptive_dp.graph.registry import Function, is_own

# -----------------------------------------------------------------------------
# Releases, each with its private chain from the data to the query.


@frozen(eq=False)
class Charge:
    """A release with the way from the data to its query.

    Parameters
    ----------
    node
        The release.
    chain
        Nodes from the data set to the query, then loops where they begin.
    """

    node: Node
    chain: tuple[Node, ...]
    losses: dict[tuple[Change, ...], PrivacyLoss] = field(factory=dict, init=False, repr=False)
    """What `adaptive_dp.graph.compile` has computed, by the changes that arrive at the query."""

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that releases."""
        operation = self.node.handle.operation
        assert isinstance(operation, Release)
        return operation.mechanism

    @property
    def source(self) -> SourceOperation:
        """The data set at the beginning of the chain."""
        operation = self.chain[0].handle.operation
        assert isinstance(operation, SourceOperation)
        return operation


def releases(structure: Structure) -> list[Charge]:
    """Return every release, in order."""
    return [
        _charge(structure, node) for node in structure if isinstance(node.handle.operation, Release)
    ]


def regions(charge: Charge) -> list[str]:
    """Return the regions around a release, for people."""
    found = []
    for node in charge.chain[1:]:
        operation = node.handle.operation
        if isinstance(operation, PartOperation):
            found.append(part_title(node.handle))
        elif isinstance(operation, SampleOperation | Loop):
            found.append(operation.label())
    return found


def _charge(structure: Structure, node: Node) -> Charge:
    """Return the chain of a release, with the loops that it is in put where they begin."""
    chain = structure.lineage(structure.of(node.handle.inputs[0]))
    with_loops: list[Node] = []
    entered: set[str] = set()
    for step in [*chain, node]:
        new = [loop for loop in step.loops if loop not in entered]
        entered.update(new)
        begins = [structure.nodes[loop] for loop in new]
        if step is node:
            with_loops += begins
        elif isinstance(
            step.handle.operation, PartOperation
        ):  # which part is fixed: the loop is inside
            with_loops += [step, *begins]
        else:
            with_loops += [*begins, step]
    last = with_loops[-1]
    if isinstance(last.handle.operation, Loop):  # the release alone is inside: query last
        query = chain[-1]
        with_loops.remove(query)
        with_loops.append(query)
    return Charge(node, tuple(with_loops))


# -----------------------------------------------------------------------------
# Every way to put a unit's rows into parts, counted in steps.


Share = tuple[int, int]
"""How many of a unit's rows a part gets, in the one data set and in the other."""

Split = tuple[tuple[int, Share], ...]
"""Parts, with the share of each."""


def steps(rows: int, growth: float, most: int) -> list[int]:
    """Return whole numbers from 1 to ``rows``, each at most ``growth`` times the one before.

    Where that is not possible they follow each other. Empty where they would be more than ``most``.

    Examples
    --------
    >>> steps(20, 1, 64) == list(range(1, 21)), steps(20, 2, 64)
    (True, [1, 2, 4, 8, 16, 20])
    """
    found = [1]
    while found[-1] < rows:
        if len(found) >= most:
            return []
        found.append(min(rows, max(found[-1] + 1, math.floor(min(growth * found[-1], rows)))))
    return found


class _TooMany(Exception):
    """There are more splits than anyone wants."""


def _totals(change: Change) -> list[Share]:
    """Return how many rows a unit may have in the two data sets; fewer are dominated."""
    if not change.replaced:
        return [(change.rows, 0)]
    least = (change.both + 1) // 2
    return [(rows, change.both - rows) for rows in range(change.rows, least - 1, -1)]


def chargeable(found: Sequence[int], change: Change) -> list[Share]:
    """Return the shares that a part can be charged at, the larger number first."""
    if not change.replaced:
        return [(a, 0) for a in found]
    least = dict(zip(found, (0, *found), strict=False))  # a step stands for more rows than this
    return [
        (a, b)
        for a in found
        for b in (0, *found)
        if b <= a and least[a] + least.get(b, -1) + 2 <= change.both
    ]


def ways(
    kinds: Sequence[Sequence[int]], found: Sequence[int], change: Change, most: int
) -> list[Split] | None:
    """Return each way to put rows into parts, in steps; None if there are more than ``most``.

    Of equal parts (a kind) one order is enough, and a split that another one exceeds is left out.
    """
    step, least = (0, *found), (0, *(s + 1 for s in (0, *found[:-1])))
    work = 0
    result: list[Split] = []
    parts = sum(map(len, kinds))

    def fit(left: int) -> int:
        return bisect_right(least, left) - 1

    def place(kind: int, at: int, left: Share, limit: Share, before: tuple[Any, ...]) -> None:
        """Place what is left from a part on; ``limit`` is the share of the equal part before."""
        nonlocal work
        if left == (0, 0):
            keep(before, left)
            return
        for k in range(kind, len(kinds)):
            at, limit = (at, limit) if k == kind else (0, (len(found), len(found)))
            if at == len(kinds[k]):
                continue
            best = (fit(left[0]), fit(left[1]))
            last = k == len(kinds) - 1 and at == len(kinds[k]) - 1
            for a in [best[0]] if last else range(best[0], -1, -1):
                for b in [best[1]] if last else range(best[1], -1, -1):
                    work += 1
                    if work > 16 * most or len(result) > most:
                        raise _TooMany
                    if (0, 0) < (a, b) <= limit:
                        rest = (left[0] - least[a], left[1] - least[b])
                        chosen = (*before, (kinds[k][at], (a, b)))
                        if last:
                            keep(chosen, rest)
                        else:
                            place(k, at + 1, rest, (a, b), chosen)

    def keep(chosen: tuple[Any, ...], left: Share) -> None:
        """Keep a split unless a share can be raised with the rows that are left."""
        levels = [share for _, share in chosen]
        levels += [(0, 0)] if len(chosen) < parts else []
        for side in (0, 1):
            for share in levels:
                j = share[side]
                if j < len(found) and least[j + 1] - least[j] <= left[side]:
                    return
        result.append(tuple((i, (step[a], step[b])) for i, (a, b) in chosen))

    try:
        for total in _totals(change):
            place(0, 0, total, (len(found), len(found)), ())
    except (_TooMany, RecursionError):
        return None
    return result


# -----------------------------------------------------------------------------
# What a unit can touch in a partition.
#
# * where units lie in one part each, and one appears or vanishes: any one part;
# * where one is exchanged: one part in which it is exchanged; or two, from one of which it
#   vanishes and in the other of which it appears; or one alone, if the other is not charged
#   or is no part at all;
# * where a unit has up to r rows, which may lie in several parts: any split of r rows among
#   parts, each part charged at the number of rows that it gets. For an exchange, r rows are
#   split in each data set, and a part that gets a of the one and b of the other is charged
#   for the exchange of a rows for b: no query need be linear, no loss superadditive. Where these
#   are too many, numbers of rows are rounded up, which is sound and looser.


TERMS, SPLITS, ALIKE = 8_192, 8_192, 512
"""More terms of parts, splits of a unit's rows among them, or among parts alike, are in steps."""

GROWTHS = (1, 33 / 32, 17 / 16, 9 / 8, 5 / 4, 3 / 2, 2, 4, 16, 256)
"""How much a step of rows may exceed the one before; 1 is exact."""

SEVERAL = "several parts"
"""The label of a choice in which it is left open where the unit's rows lie."""

Inside = Callable[[int, Change], Term]
"""The term of what is charged in a part, by its index, for a change of the rows in it."""


def one_part(inside: Inside, change: Change, label: Mapping[int, str]) -> Term:
    """Return the choices where a unit's rows lie in one part."""
    moved = {i: inside(i, change.one_sided) for i in label}
    if not change.replaced:
        return Parallel(list(moved.values()), [label[i] for i in moved])
    # a unit that stays in its part has as many rows there as ever: `fixed` still holds
    choices: list[tuple[tuple[str, ...], Term]]
    choices = [((label[i],), inside(i, change)) for i in label]
    # one that moves to or from where nothing is released touches one part alone
    choices += [((label[i],), moved[i]) for i in label]
    choices += _pairs(moved, label)
    return Parallel([t for _, t in choices], [name for name, _ in choices])


def _pairs(
    moved: dict[int, Term], label: Mapping[int, str]
) -> Iterator[tuple[tuple[str, ...], Term]]:
    """Yield each two parts between which a unit can move; of equal parts two are enough."""
    kinds: dict[Any, list[int]] = {}
    for i, t in moved.items():
        kinds.setdefault(_shape(t), []).append(i)
    few = [i for found in kinds.values() for i in found[:2]]
    for i, j in combinations(sorted(few), 2):
        yield (label[i], label[j]), Sequential([moved[i], moved[j]])


def several_parts(inside: Inside, change: Change, label: Mapping[int, str], nested: int) -> Term:
    """Return the choices where a unit's rows may lie in several parts.

    Exact where the splits are few. Where they are many, rows are counted in *steps* ``s_1 < s_2 <
    ... < s_k`` (`steps`), and a part that gets ``a`` rows is charged at the least step ``s(a)``
    that is not below. That charges enough: losses grow with rows, so the split ``(a_1, a_2, ...)``
    costs at most what ``(s(a_1), s(a_2), ...)`` does, and this is among the choices, which are all
    tuples of steps whose *least rows*, one more than the step before, sum to at most a unit's rows.

    Parameters
    ----------
    inside, label
        What is charged in each part, and how it is called.
    change
        What arrives at the partition.
    nested
        How many partitions stand inside of each other here: together they share the limits.
    """
    if change.rows == UNBOUNDED:  # a bound inside of each part bounds no sum over the parts
        raise DeclarationError(
            f"nothing bounds the rows of a unit before the partition ({', '.join(label.values())})"
            "; bound them first, with dataset(unit=..., rows_per_unit=...), or partition with "
            "whole_units=True"
        )
    terms, splits, same = (
        max(least, round(most ** (1 / nested)))
        for most, least in ((TERMS, 128), (SPLITS, 128), (ALIKE, 64))
    )
    for alike, growths in ((False, GROWTHS[:6]), (True, GROWTHS[:8])):
        for growth in growths:
            found = steps(change.rows, growth, terms)
            limits = terms, same if alike else splits
            term = found and _among(inside, change, label, found, limits, alike)
            if term:
                return term
    return _at_every_step(inside, change, label, terms)


def _among(
    inside: Inside,
    change: Change,
    label: Mapping[int, str],
    found: Sequence[int],
    limits: tuple[int, int],
    alike: bool,
) -> Term | None:
    """Return the splits in steps; None if there are more terms, or splits, than ``limits``.

    With ``alike`` each share is charged at the dearest of all parts, so that the parts are told
    apart no more: fewer splits, and looser.
    """
    shares = chargeable(found, change)
    if len(shares) * len(label) > limits[0]:
        return None
    terms = {(i, share): inside(i, _share(share, change)) for i in label for share in shares}
    kinds: dict[Any, list[int]] = {}
    if alike:
        terms = {(0, share): _dearest([terms[i, share] for i in label]) for share in shares}
        few = [[0] * min(len(label), change.both)]
    else:
        for i in label:
            kinds.setdefault(tuple(_shape(terms[i, share]) for share in shares), []).append(i)
        few = [same[: change.both] for same in kinds.values()]
    splits = ways(few, found, change, limits[1])
    if splits is None:
        return None
    choices = {
        tuple((i, _share(share, change)) for i, share in split): Sequential(
            [terms[i, _wider(share)] for i, share in split]
        )
        for split in splits
    }
    names = [(SEVERAL,) if alike else _named(key, label) for key in choices]
    return Parallel(list(choices.values()), names)


def _dearest(terms: Sequence[Term]) -> Term:
    """Return what stands above all terms: a round whose choice is left open."""
    return Repeated(Parallel(terms), 1)


def _named(key: Iterable[tuple[int, Change]], label: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(f"{label[i]} ({c.both} rows)" for i, c in key)


def _wider(share: Share) -> Share:
    return max(share), min(share)


def _share(share: Share, change: Change) -> Change:
    return Change(min(share) > 0, max(share), False, min(sum(share), change.both))


def _at_every_step(inside: Inside, change: Change, label: Mapping[int, str], most: int) -> Term:
    """Return one choice that is above all splits: at each step as many parts as can reach it.

    A share of at least a rows of one of the two data sets, and b <= a of the other, takes b rows
    of each and a + b together: it fits at most ``min(r // b, both // (a + b))`` times. Which parts
    they are is left open. Where all parts at all rows cost less, they are charged so.
    """
    for growth in (*(g for g in GROWTHS if g >= 2), None):
        found = [change.rows] if growth is None else steps(change.rows, growth, most)
        shares = chargeable(found, change)
        if growth is None or 0 < len(shares) * len(label) <= most:
            break
    least = dict(zip((0, *found), (0, 1, *(s + 1 for s in found)), strict=False))
    fits = {
        (a, b): min(
            change.rows // least[b] if b else len(label),
            change.both // (least[a] + least[b]),
            len(label),
        )
        for a, b in shares
    }
    if sum(sum(share) * times for share, times in fits.items()) >= len(label) * change.both:
        every = Change(change.replaced, change.rows, False, change.both)
        return Parallel([Sequential([inside(i, every) for i in label])], [SEVERAL])
    paid: list[Term] = []
    for share, times in fits.items():
        parts = [inside(i, _share(share, change)) for i in label]
        paid.append(Sequential(parts) if times == len(label) else Repeated(Parallel(parts), times))
    return Parallel([Sequential(paid)], [SEVERAL])


def _shape(term: Term) -> Any:
    """Return a key that is equal for terms with equal losses, whatever their nodes' names."""
    match term:
        case Spend(loss=loss):
            return loss
        case Sequential(parts=parts):
            return ("all", _counted(parts))
        case Parallel(choices=choices):
            return ("one", frozenset(_shape(c) for c in choices))
        case Repeated(part=part, times=times):
            return ("times", _shape(part), times)
        case Sampled(part=part, rate=rate):
            return ("sampled", _shape(part), rate)
    return id(term)


def _counted(parts: Iterable[Term]) -> frozenset[tuple[Any, int]]:
    counts: dict[Any, int] = {}
    for part in parts:
        shape = _shape(part)
        counts[shape] = counts.get(shape, 0) + 1
    return frozenset(counts.items())


# -----------------------------------------------------------------------------
# From the graph to a term: which losses one unit can touch.
#
# Each release hangs on a private chain from the data to its query. The chain's parts of
# partitions, samples and repeats are its *regions*, outermost first. Releases are grouped by
# region: a partition becomes a choice of part, a sample an amplified body, a repeat a
# repeated one. The change that the neighbour relation makes travels down the chain, and the
# query turns it into a distance, the mechanism the distance into a loss.


Where = tuple[tuple[str, int], ...]
"""Parts around a place, outermost first: each the digest of its partition, and its index."""

Place = tuple[Charge, Change, int]
"""A charge, the change that arrives at a position of its chain, and that position."""


def term(charges: Sequence[Charge]) -> Term:
    """Return what one unit can touch of all releases of a plan.

    A unit may be in every data set, so data sets compose sequentially.
    """
    return Sequential([t for _, t in terms(charges)])


def terms(charges: Sequence[Charge]) -> list[tuple[str, Term]]:
    """Return the term of each data set, from all releases of a plan."""
    by_source: dict[str, list[Charge]] = {}
    _undivided(charges)
    for charge in charges:
        by_source.setdefault(charge.chain[0].name, []).append(charge)
    result = []
    for name, found in by_source.items():
        result.append((name, _compile([(c, c.source.initial(), 1) for c in found])))
    return result


def places(charges: Sequence[Charge]) -> list[tuple[Where, PrivacyLoss]]:
    """Return where the units lie that charges touch, and what they lose there.

    A place is the parts around it, outermost first; all units are in ``()``. A unit is in one part
    of each partition of a place, the same one whenever it is asked for, so that what is spent in
    other parts does not touch it (see `docs/explanation/worlds.md`). Charges for which that
    cannot be said by a place alone (units that are exchanged, that have several rows in several
    parts, partitions by chance, by foreign steps, or of rows that hang on released values) are
    charged to all units.
    """
    _undivided(charges)
    found: list[tuple[Where, PrivacyLoss]] = []
    rest: dict[str, list[Charge]] = {}
    for charge in charges:
        place = _place(charge)
        if place is None:
            rest.setdefault(charge.chain[0].name, []).append(charge)
        else:
            found.append((place, _loss(charge, _arriving(charge))))
    for several in rest.values():
        every = list(worlds(_compile([(c, c.source.initial(), 1) for c in several])))
        losses = [Composite(world.spends) for world in every]
        found.append(((), losses[0] if len(losses) == 1 else Envelope(losses)))
    return found


def _place(charge: Charge) -> Where | None:
    """Return the parts around a charge, or None where they do not say all; see `places`."""
    change = charge.source.initial()
    if change.replaced or any(len(node.handle.inputs) > 1 for node in charge.chain[:-1]):
        return None
    place: list[tuple[str, int]] = []
    for at, node in enumerate(charge.chain[1:-1], 1):
        operation = node.handle.operation
        # of what is random, or by code that a digest does not pin down, a digest names no one part
        if operation.random or isinstance(operation, Loop) or _foreign(operation):
            return None
        if isinstance(operation, PartOperation):
            partition = charge.chain[at - 1]
            if not (partition.handle.domain.whole_units or change.rows == 1):
                return None
            place.append((partition.digest, operation.index))
        change = _step(charge, change, at)
    return None if isinstance(charge.chain[-1].handle.operation, Loop) else tuple(place)


def _foreign(operation: Operation) -> bool:
    """Whether what an operation does is code from outside of the library."""
    called = any(isinstance(v, Function) for v in operation.parameters().values())
    return called or not is_own(type(operation))


def distance(charge: Charge, norm: float) -> float:
    """Return how far one unit moves a release's query where it lies wholly on its path."""
    return max(_sensitivity(charge, change, norm) for change in _arriving(charge))


def _arriving(charge: Charge) -> list[Change]:
    """Return the changes that may arrive at a query where a unit lies wholly on its path."""
    changes = [charge.source.initial()]
    if changes[0].replaced and any(
        isinstance(n.handle.operation, PartOperation) for n in charge.chain
    ):
        changes.append(changes[0].one_sided)  # the unit may move into the part, or out of it
    return [_walk(charge, change, 1, len(charge.chain) - 1) for change in changes]


def paid(charges: Iterable[Charge]) -> dict[str, tuple[PrivacyLoss, int]]:
    """Return each release's loss where a unit lies wholly on its path, and how often it is paid."""
    found = {}
    for charge in charges:
        loss = _loss(charge, _arriving(charge))
        loops = [n.handle.operation for n in charge.chain if isinstance(n.handle.operation, Loop)]
        found[charge.node.name] = (loss, math.prod(loop.rounds() for loop in loops))
    return found


def _compile(found: Sequence[Place]) -> Term:
    """Return the term of charges that share their regions so far, each from a position on."""
    parts: list[Term] = []
    inner: dict[str, list[Place]] = {}
    for charge, change, position in found:
        here, at = change, position
        while at < len(charge.chain) - 1 and not _region(charge.chain[at]):
            here = _step(charge, here, at)
            at += 1
        node = charge.chain[at]
        if not _region(node):
            parts.append(_spend(charge, here))
            continue
        key = _region_key(charge, at)
        if not isinstance(node.handle.operation, Loop):
            # equal regions reached over different filters see different changes; a loop's rounds
            # are one mechanism, whatever they read: only a whole round is repeated or selected
            key += f"|{here}|{at}"
        inner.setdefault(key, []).append((charge, here, at))
    for members in inner.values():
        charge, here, at = members[0]
        operation = charge.chain[at].handle.operation
        if isinstance(operation, Loop):
            parts.append(operation.term(_compile([(c, h, i + 1) for c, h, i in members])))
        elif isinstance(operation, SampleOperation):
            after = operation.change(here)
            body = _compile([(c, after, at + 1) for c, _, _ in members])
            parts.append(Sampled(body, operation.rate))
        else:
            parts.append(_partition([c for c, _, _ in members], here, at))
    return parts[0] if len(parts) == 1 else Sequential(parts)


def _undivided(charges: Iterable[Charge]) -> None:
    """Refuse a selection whose runs release from different data sets, parts or samples outside.

    A selection's bound is that of a whole run: runs cut into parts, each of them selected, do not
    compose to it, since the best of the runs depends on all of them.
    """
    seen: dict[str, list[str]] = {}
    for charge in charges:
        around: list[str] = [charge.chain[0].name]
        for node in charge.chain[1:]:
            operation = node.handle.operation
            if isinstance(operation, Select) and not charge.mechanism.selectable:
                raise DeclarationError(
                    f"{charge.node.name}: {type(charge.mechanism).__name__} cannot be released in "
                    "the runs of a selection: the luckiest run would be chosen, and what is stated "
                    "of its release holds for each run alone; release it outside"
                )
            if isinstance(operation, Select) and seen.setdefault(node.name, around[:]) != around:
                raise DeclarationError(
                    f"{node.name}: the body of a selection releases from several data sets, or "
                    "from several parts or samples that are made outside of it, for which nothing "
                    "is proven; release from one, or partition and sample inside of the body"
                )
            if isinstance(operation, PartOperation | SampleOperation):
                around.append(node.name)


def _region(node: Node) -> bool:
    return isinstance(node.handle.operation, PartOperation | SampleOperation | Loop)


def _region_key(charge: Charge, at: int) -> str:
    node = charge.chain[at]
    return charge.chain[at - 1 if isinstance(node.handle.operation, PartOperation) else at].name


def _step(charge: Charge, change: Change, at: int) -> Change:
    return charge.chain[at].handle.operation.change(change)


def _walk(charge: Charge, change: Change, start: int, stop: int) -> Change:
    for at in range(start, stop):
        if not isinstance(charge.chain[at].handle.operation, Loop):
            change = _step(charge, change, at)
    return change


def _sensitivity(charge: Charge, change: Change, norm: float) -> float:
    query = charge.chain[-1].handle
    assert isinstance(query.operation, Query)
    if change.rows == UNBOUNDED:
        raise DeclarationError(
            f"{charge.node.name}: nothing bounds the rows of a unit of {charge.chain[0].name!r}; "
            "declare the data set with dataset(unit=..., rows_per_unit=...)"
        )
    operation = query.operation
    return interpolated(lambda p: operation.sensitivity(query.domain, change, p), norm)


def interpolated(known: Callable[[float], float], norm: float) -> float:
    """Return a bound in the l_p norm from bounds in the l1, l2 and maximum norm.

    ``|v|_p <= |v|_1^{2/p-1} |v|_2^{2-2/p}`` for 1 < p < 2, and ``|v|_2^{2/p} |v|_inf^{1-2/p}``
    for p > 2 (the logarithm of a norm is convex in 1/p: Hoelder). The rounding of exponents
    moves a power of any float by less than 1500 units.
    """
    if norm in (0, 1, 2, math.inf):
        return known(norm)
    low, high = (known(1), known(2)) if norm < 2 else (known(2), known(math.inf))
    share = 2 / norm - 1 if norm < 2 else 2 / norm
    return min(low, up(float(low**share * high ** (1 - share)), 2000))


def _spend(charge: Charge, change: Change) -> Term:
    mechanism = charge.mechanism
    free = mechanism.free()
    if free:
        (name, parameter), *_ = free.items()
        raise DeclarationError(
            f"{charge.node.name}: {type(mechanism).__name__}.{name} is still free "
            f"({parameter}); call plan.calibrate(epsilon=..., delta=...) or "
            f"plan.fix({parameter.name}=...)"
        )
    return Spend(_loss(charge, [change]), charge.node.name)


def _loss(charge: Charge, changes: Sequence[Change]) -> PrivacyLoss:
    """Return the mechanism's loss, which is computed once for each charge."""
    key = tuple(changes)
    if key not in charge.losses:
        charge.losses[key] = _computed(charge, changes)
    return charge.losses[key]


def _computed(charge: Charge, changes: Sequence[Change]) -> PrivacyLoss:
    """Return the mechanism's loss; whatever it raises becomes a typed error with the place."""
    mechanism = charge.mechanism
    far = max(_sensitivity(charge, change, mechanism.norm) for change in changes)
    query = charge.chain[-1].handle
    assert isinstance(query.operation, Query)
    if not (_exact(query.operation, "sensitivity") and _exact(mechanism, "loss", "cost")):
        # moved up, so that a mechanism's own division cannot round the loss below the truth
        far = up(far, 8)
    try:
        if mechanism.uses_span:
            spans = [query.operation.span(query.domain, change) for change in changes]
            loss = mechanism.loss(far, span=up(max(spans), 8))  # type: ignore[call-arg]
        elif type(mechanism).cost is Mechanism.cost:
            loss = mechanism.loss(far)
        else:
            dimension = query.operation.dimension(query.domain)
            loss = mechanism.cost(far, dimension, query.operation.step(query.domain))
    except Exception as error:  # no data is near: the cause may be shown
        raise DeclarationError(
            f"{charge.node.name}: {mechanism}.loss({far:g}) failed: {error}"
        ) from error
    if not isinstance(loss, PrivacyLoss):
        raise DeclarationError(
            f"{charge.node.name}: {type(mechanism).__name__}.loss must return a PrivacyLoss such "
            f"as accountants.Pure(epsilon=1), got {type(loss).__name__}"
        )
    return loss


def _exact(part: Query | Mechanism, *methods: str) -> bool:
    """Return whether the class that has the methods says that they round up by themselves."""
    kind = type(part)
    says = next(each for each in kind.__mro__ if "rounds_outward" in vars(each))
    return part.rounds_outward and all(
        getattr(kind, name) is getattr(says, name) for name in methods
    )


def _spreading(charge: Charge) -> int:
    """Return how many partitions are around a release that let a unit be in several parts."""
    parts = [n.handle for n in charge.chain if isinstance(n.handle.operation, PartOperation)]
    return sum(not part.inputs[0].domain.whole_units for part in parts)


def _partition(charges: Sequence[Charge], change: Change, at: int) -> Term:
    """Return the choices of parts that one unit can touch (see `touch`)."""
    partition = charges[0].chain[at - 1].handle
    domain: PartsDomain = partition.domain
    parts: dict[int, list[Charge]] = {}
    label: dict[int, str] = {}
    for charge in charges:
        operation = charge.chain[at].handle.operation
        assert isinstance(operation, PartOperation)
        parts.setdefault(operation.index, []).append(charge)
        label[operation.index] = part_title(charge.chain[at].handle)

    def inside(index: int, change: Change) -> Term:
        return _compile([(c, change, at + 1) for c in parts[index]])

    if domain.whole_units or change.rows == 1:
        return one_part(inside, change, label)
    return several_parts(inside, change, label, max(map(_spreading, charges)))
