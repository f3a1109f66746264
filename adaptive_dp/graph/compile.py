"""From the graph to a term: which losses one unit can touch.

Each release hangs on a private chain from the data to its query. The chain's parts of
partitions, samples and repeats are its *regions*, outermost first. Releases are grouped by
region: a partition becomes a choice of part, a sample an amplified body, a repeat a
repeated one. The change that the neighbour relation makes travels down the chain, and the
query turns it into a distance, the mechanism the distance into a loss.

What a unit can touch in a partition (`_partition`):

* where units lie in one part each, and one appears or vanishes: any one part;
* where one is exchanged: one part in which it is exchanged; or two, from one of which it
  vanishes and in the other of which it appears; or one alone, if the other is not charged
  or is no part at all;
* where a unit has up to r rows, which may lie in several parts: any split of r rows among
  parts, each part charged at the number of rows that it gets. For an exchange, r rows are
  split in each data set, and a part that gets a of the one and b of the other is charged
  for the exchange of a rows for b: no query need be linear, no loss superadditive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

from attrs import evolve, frozen

from accountants import Parallel, PrivacyLoss, Repeated, Sampled, Sequential, Spend, Term
from accountants.rounding import up
from adaptive_dp.graph.change import UNBOUNDED, Change
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.repeat import Repeat
from adaptive_dp.graph.roles import (
    PartOperation,
    PartsDomain,
    SampleOperation,
    SourceOperation,
    part_title,
)
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure

SPLITS = 20_000
"""More splits of a unit's rows than this are bounded by every touched part at all rows."""


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


def term(structure: Structure) -> Term:
    """Return what one unit can touch of the whole plan.

    A unit may be in every data set, so data sets compose sequentially.
    """
    return Sequential([t for _, t in terms(structure)])


def terms(structure: Structure) -> list[tuple[str, Term]]:
    """Return the term of each data set."""
    charges = [_charge(structure, node) for node in structure if _is_release(node)]
    by_source: dict[str, list[Charge]] = {}
    for charge in charges:
        by_source.setdefault(charge.chain[0].name, []).append(charge)
    result = []
    for name, found in by_source.items():
        result.append((name, _compile(found, found[0].source.initial(), 1)))
    return result


def releases(structure: Structure) -> list[Charge]:
    """Return every release, in order."""
    return [_charge(structure, node) for node in structure if _is_release(node)]


def distance(charge: Charge, norm: float) -> float:
    """Return how far one unit moves a release's query where it lies wholly on its path."""
    changes = [charge.source.initial()]
    if changes[0].replaced and any(n.handle.operation.region == "part" for n in charge.chain):
        changes.append(changes[0].one_sided)  # the unit may move into the part, or out of it
    stop = len(charge.chain) - 1
    return max(_sensitivity(charge, _walk(charge, c, 1, stop), norm) for c in changes)


def paid(charges: Iterable[Charge]) -> dict[str, tuple[PrivacyLoss, int]]:
    """Return each release's loss where a unit lies wholly on its path, and how often it is paid."""
    found = {}
    for charge in charges:
        loss = _loss(charge, up(distance(charge, charge.mechanism.norm), 8))
        loops = [n.handle.operation for n in charge.chain if isinstance(n.handle.operation, Repeat)]
        found[charge.node.name] = (loss, math.prod(loop.times for loop in loops))
    return found


def regions(charge: Charge) -> list[str]:
    """Return the regions around a release, for people."""
    found = []
    for node in charge.chain[1:]:
        operation = node.handle.operation
        if isinstance(operation, PartOperation):
            found.append(part_title(node.handle))
        elif isinstance(operation, SampleOperation | Repeat):
            found.append(operation.label())
    return found


def _is_release(node: Node) -> bool:
    return isinstance(node.handle.operation, Release)


def _charge(structure: Structure, node: Node) -> Charge:
    """Return the chain of a release, with the loops that it is in put where they begin."""
    chain = [structure.of(node.handle.inputs[0])]
    while chain[-1].handle.inputs:
        chain.append(structure.of(chain[-1].handle.inputs[0]))
    chain.reverse()
    with_loops: list[Node] = []
    entered: set[str] = set()
    for step in [*chain, node]:
        new = [loop for loop in step.loops if loop not in entered]
        entered.update(new)
        begins = [structure.nodes[loop] for loop in new]
        if step is node:
            with_loops += begins
        elif step.handle.operation.region == "part":  # which part is fixed: the loop is inside
            with_loops += [step, *begins]
        else:
            with_loops += [*begins, step]
    last = with_loops[-1]
    if isinstance(last.handle.operation, Repeat):  # the release alone is inside: query last
        query = chain[-1]
        with_loops.remove(query)
        with_loops.append(query)
    return Charge(node, tuple(with_loops))


def _compile(charges: Sequence[Charge], change: Change, position: int) -> Term:
    """Return the term of charges that share their chain up to ``position``."""
    parts: list[Term] = []
    inner: dict[str, tuple[int, list[tuple[Charge, Change]]]] = {}
    for charge in charges:
        here, at = change, position
        while at < len(charge.chain) - 1 and not _region(charge.chain[at]):
            here = _step(charge, here, at)
            at += 1
        node = charge.chain[at]
        if _region(node):
            # equal regions reached over different filters see different changes
            key = f"{_region_key(charge, at)}|{here}|{at}"
            inner.setdefault(key, (at, []))[1].append((charge, here))
        else:
            parts.append(_spend(charge, here))
    for at, found in inner.values():
        members, here = [charge for charge, _ in found], found[0][1]
        operation = members[0].chain[at].handle.operation
        if isinstance(operation, Repeat):
            parts.append(Repeated(_compile(members, here, at + 1), operation.times))
        elif isinstance(operation, SampleOperation):
            after = operation.change(here)
            parts.append(Sampled(_compile(members, after, at + 1), operation.rate))
        else:
            parts.append(_partition(members, here, at))
    return parts[0] if len(parts) == 1 else Sequential(parts)


def _region(node: Node) -> bool:
    return node.handle.operation.region != "" or isinstance(node.handle.operation, Repeat)


def _region_key(charge: Charge, at: int) -> str:
    node = charge.chain[at]
    return charge.chain[at - 1].name if node.handle.operation.region == "part" else node.name


def _step(charge: Charge, change: Change, at: int) -> Change:
    return charge.chain[at].handle.operation.change(change)


def _walk(charge: Charge, change: Change, start: int, stop: int) -> Change:
    for at in range(start, stop):
        if not isinstance(charge.chain[at].handle.operation, Repeat):
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
    return query.operation.sensitivity(query.domain, change, norm)


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
    # moved up, so that a mechanism's own division cannot round the loss below the truth
    far = up(_sensitivity(charge, change, mechanism.norm), 8)
    return Spend(_loss(charge, far), charge.node.name)


def _loss(charge: Charge, far: float) -> PrivacyLoss:
    """Return the mechanism's loss; whatever it raises becomes a typed error with the place."""
    mechanism = charge.mechanism
    try:
        loss = mechanism.loss(far)
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


def _partition(charges: Sequence[Charge], change: Change, at: int) -> Term:
    """Return the choices of parts that one unit can touch (see the module's docstring)."""
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
        return _compile(parts[index], change, at + 1)

    if domain.whole_units or change.rows == 1:
        moved = {i: inside(i, change.one_sided) for i in parts}
        if not change.replaced:
            return Parallel(list(moved.values()), [label[i] for i in moved])
        # a unit that stays in its part has as many rows there as ever: `fixed` still holds
        choices = [(label[i], inside(i, change)) for i in parts]
        # one that moves to or from where nothing is released touches one part alone
        choices += [(label[i], moved[i]) for i in parts]
        choices += _pairs(moved, label)
        return Parallel([t for _, t in choices], [name for name, _ in choices])
    return _spread(inside, change, label)


def _pairs(moved: dict[int, Term], label: dict[int, str]) -> Iterator[tuple[str, Term]]:
    """Yield each two parts between which a unit can move; of equal parts two are enough."""
    kinds: dict[Any, list[int]] = {}
    for i, t in moved.items():
        kinds.setdefault(_shape(t), []).append(i)
    few = [i for found in kinds.values() for i in found[:2]]
    if len(few) == 1:  # the unit moves between this part and one that is not charged, or none
        yield label[few[0]], moved[few[0]]
    for i, j in combinations(sorted(few), 2):
        yield f"{label[i]}, {label[j]}", Sequential([moved[i], moved[j]])


def _spread(inside: Callable[[int, Change], Term], change: Change, label: dict[int, str]) -> Term:
    """Return the choices where a unit's rows may lie in several parts."""
    if change.rows == UNBOUNDED:  # a bound inside of each part bounds no sum over the parts
        raise DeclarationError(
            f"nothing bounds the rows of a unit before the partition ({', '.join(label.values())})"
            "; bound them first, with dataset(unit=..., rows_per_unit=...), or partition with "
            "whole_units=True"
        )
    least = (change.both + 1) // 2
    totals = [(rows, change.both - rows) for rows in range(change.rows, least - 1, -1)]
    if not change.replaced:
        totals = [(change.rows, 0)]
    seen = [(a, b) for a in range(1, change.rows + 1) for b in range(min(a, change.both - a) + 1)]
    if not change.replaced:
        seen = [(a, 0) for a, b in seen if b == 0]
    kinds: dict[Any, list[int]] = {}
    for i in label:
        kinds.setdefault(tuple(_shape(inside(i, _share(s))) for s in seen), []).append(i)
    few = [found[: change.both] for found in kinds.values()]
    terms: dict[tuple[int, Change], Term] = {}
    choices: dict[tuple[tuple[int, Change], ...], Term] = {}
    for count, split in enumerate(s for total in totals for s in _splits(few, total)):
        if count >= SPLITS:
            all_rows = evolve(change, fixed=False)
            every = Sequential([inside(i, all_rows) for found in few for i in found])
            return Parallel([every], ["several parts"])
        key = tuple((i, _share(share)) for i, share in split)
        for pair in key:
            if pair not in terms:
                terms[pair] = inside(*pair)
        choices.setdefault(key, Sequential([terms[pair] for pair in key]))
    names = [", ".join(f"{label[i]} ({c.both} rows)" for i, c in key) for key in choices]
    return Parallel(list(choices.values()), names)


Share = tuple[int, int]
"""How many of a unit's rows a part gets, in the one data set and in the other."""


def _share(share: Share) -> Change:
    return Change(min(share) > 0, max(share), False, sum(share))


def _splits(
    kinds: Sequence[Sequence[int]], total: Share
) -> Iterator[tuple[tuple[int, Share], ...]]:
    """Yield each way to put ``total`` rows into parts; of equal parts (a kind), in one order."""

    def place(kind: int, at: int, left: Share, most: Share) -> Iterator[Any]:
        if left == (0, 0):
            yield ()
            return
        if kind == len(kinds):
            return
        if at < len(kinds[kind]):
            for share in product(range(left[0], -1, -1), range(left[1], -1, -1)):
                if (0, 0) < share <= most:
                    rest = (left[0] - share[0], left[1] - share[1])
                    for others in place(kind, at + 1, rest, share):
                        yield ((kinds[kind][at], share), *others)
        yield from place(kind + 1, 0, left, left)

    return place(0, 0, total, total)


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
