"""From the graph to a term: which losses one unit can touch.

Each release hangs on a private chain from the data to its query. The chain's parts of
partitions, samples and repeats are its *regions*, outermost first. Releases are grouped by
region: a partition becomes a choice of part, a sample an amplified body, a repeat a
repeated one. The change that the neighbour relation makes travels down the chain, and the
query turns it into a distance, the mechanism the distance into a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from accountants import (
    Composite,
    Envelope,
    PrivacyLoss,
    Sampled,
    Sequential,
    Spend,
    Term,
    worlds,
)
from accountants.rounding import up
from adaptive_dp.graph.change import UNBOUNDED, Change
from adaptive_dp.graph.charge import Charge
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Operation, Query
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.roles import PartOperation, PartsDomain, SampleOperation, part_title
from adaptive_dp.graph.select import Select
from adaptive_dp.graph.structure import Node
from adaptive_dp.graph.touch import one_part, several_parts

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
        if mechanism.spans:
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
    says = next(each for each in kind.__mro__ if "exact" in vars(each))
    return part.exact and all(getattr(kind, name) is getattr(says, name) for name in methods)


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
