"""From the graph to a term: which losses one protected unit can be exposed to.

A release takes four forms, one after the other, and each has one way to the next:

*handle*
    What the user declares: an immutable expression (`adaptive_dp.graph.handles`).
*node*
    The handle in a plan: with a name, a digest, the loops around it, and the steps from the data
    set to its query (`adaptive_dp.graph.nodes.ReleaseNode`).
*term*
    What the node costs: a `accountants.Spend` of its mechanism's loss, inside the terms of the
    partitions, samples and loops around it (this module).
*certificate row*
    What a reader sees: mechanism, sensitivity, loss, share of the total
    (`adaptive_dp.graph.certify.rows`).

This module is the third step. Every release lies at the end of a private path from a data set to
its query. The steps of the path that change how often, or for whom, a release costs (parts of a
partition, samples, loops) are its *regions*, outermost first. Releases are grouped by region:

* a partition becomes `accountants.Parallel`, a choice of part. An accountant takes the worst
  choice; one choice for every partition of a plan is a *world*, that is, a branch of parallel
  composition (see `docs/explanation/worlds.md`);
* a sample becomes `accountants.Sampled`, `accountants.ReplacedSample` or `accountants.Subset`, a
  body amplified by subsampling;
* a loop becomes `accountants.Repeated` or `accountants.Selected`.

The change that the neighbour relation makes to the data (`Change`: how many rows of one unit)
travels down the path. The query turns it into a sensitivity, the mechanism the sensitivity into a
loss.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from attrs import evolve, frozen

from accountants import (
    AccountingError,
    Composite,
    Envelope,
    Parallel,
    PrivacyLoss,
    Repeated,
    ReplacedSample,
    Sampled,
    Sequential,
    Spend,
    Term,
    worlds,
)
from accountants.loss import parameters
from accountants.numerics import COSTS, down, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Handle,
    PartOperation,
    PartsDomain,
    SampleOperation,
    SourceOperation,
    change_at,
    part_title,
)
from adaptive_dp.graph.loops import Case, Loop, Select
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import Node, ReleaseNode, Structure, collection_paused
from adaptive_dp.graph.operation import UNBOUNDED, Change, Operation, Query
from adaptive_dp.graph.registry import Function, is_own

# -----------------------------------------------------------------------------
# The term of a plan.


def regions(release: ReleaseNode) -> list[str]:
    """Return the titles of the parts, samples and loops around a release, outermost first."""
    # the data set itself is not a region
    titles = []
    for step in release.steps[1:]:
        operation = step.handle.operation
        if isinstance(operation, PartOperation):
            titles.append(part_title(step.handle))
        elif isinstance(operation, SampleOperation | Loop):
            titles.append(operation.label())
    return titles


_Arrival = tuple[ReleaseNode, Change, int]
"""A release, the change that reaches one of its steps, and the index of that step."""

Counted = Mapping[ReleaseNode, tuple[str, int]]
"""Releases, each with the name of its spend, and how many there are that cost what it costs."""


def term(releases: Sequence[ReleaseNode]) -> Term:
    """Return the term of all releases of a plan: what one unit can be exposed to.

    A unit may be in every data set, so data sets compose sequentially.
    """
    return Sequential([part for _, part in terms({each: (each.name, 1) for each in releases})])


@collection_paused()
def terms(releases: Counted) -> list[tuple[Node, Term]]:
    """Return the term of each data set, with its node.

    Raises
    ------
    DeclarationError
        If a parameter is free, a mechanism's `loss` fails, or nothing is proven of a selection.
    """
    _check_selections(releases)
    by_source: dict[Node, list[ReleaseNode]] = {}
    for release in releases:
        by_source.setdefault(release.steps[0], []).append(release)
    return [(source, _compile_all(members, releases)) for source, members in by_source.items()]


def _compile_all(releases: Iterable[ReleaseNode], counts: Counted) -> Term:
    """Return the term of releases from one data set, from their first step on."""
    return _compile([(release, _initial(release), 1) for release in releases], counts)


def _compile(arrivals: Sequence[_Arrival], counts: Counted) -> Term:
    """Return the term of releases inside the same regions, each from one of its steps on."""
    parts: list[Term] = []
    inner: dict[Any, list[_Arrival]] = {}
    # walk to the next region, following how the change of a unit arrives there
    for release, change, index in arrivals:
        steps = release.steps
        last = len(steps) - 1
        while index < last and not _is_region(steps[index]):
            change = steps[index].handle.operation.change(change)
            index += 1
        node = steps[index]
        operation = node.handle.operation
        if index == last and not _is_region(node):  # the query: no region is left
            name, times = counts[release]
            spend = Spend(_loss(release, (change,)), name)
            parts.append(spend if times == 1 else Repeated(spend, times))
            continue
        key: Any
        if isinstance(operation, Loop):
            # a loop's rounds are one mechanism, whatever they read: only a complete round is
            # repeated or selected
            key = node
            if isinstance(operation, Case):
                # of the cases of one candidate only one runs
                key = Case, node.handle.inputs[0]
        else:
            # parts of one partition exclude each other: they are compared under the partition
            is_part = isinstance(operation, PartOperation)
            # equal regions reached over different filters see different changes
            key = (steps[index - 1] if is_part else node, change, index)
        inner.setdefault(key, []).append((release, change, index))
    for members in inner.values():
        release, change, index = members[0]
        operation = release.steps[index].handle.operation
        if isinstance(operation, Case):
            parts.append(_cases_term(members, counts))
        elif isinstance(operation, Loop):
            # a round's term is that of all releases in the body, composed
            parts.append(operation.term(_compile([(p, c, i + 1) for p, c, i in members], counts)))
        elif isinstance(operation, SampleOperation):
            # compiled as if every unit were sampled; the accountant amplifies the body
            sampled, exchanged = operation.change(change), release.source.initial().replaced
            if exchanged and not sampled.replaced:
                _check_shifts([each for each, _, _ in members], index)
            body = _compile([(p, sampled, index + 1) for p, _, _ in members], counts)
            parts.append(operation.term(body, exchanged=exchanged))
        else:
            parts.append(_partition_term([p for p, _, _ in members], change, index, counts))
    return parts[0] if len(parts) == 1 else Sequential(parts)


def _cases_term(arrivals: Sequence[_Arrival], counts: Counted) -> Term:
    """Return the term of the cases of one candidate, of which a run has one: their envelope.

    A case without a release costs nothing. Two of one number would both run.
    """
    by_number: dict[int, list[_Arrival]] = {}
    for release, change, index in arrivals:
        operation = release.steps[index].handle.operation
        assert isinstance(operation, Case)
        by_number.setdefault(operation.number, []).append((release, change, index + 1))
    choices = [_compile(members, counts) for members in by_number.values()]
    labels = [f"case {number}" for number in by_number]
    return choices[0] if len(choices) == 1 else Parallel(choices, labels)


def _check_shifts(releases: Iterable[ReleaseNode], index: int) -> None:
    """Refuse all but additive Gaussian noise in a Poisson sample of units that are exchanged.

    *Own proof.* The sample's laws are ``(1 - q) B + q A`` and ``(1 - q) B + q A'``, B of a body
    without the unit, and A and A' with the one and the other in its place
    (`accountants.losses.ReplacedSample`, of which releases at once are one). Of releases that
    follow each other, chosen by what was released before, let r = A / B and r' = A' / B. What
    counts is ``E_B V(r, r')`` after the last, of ``V = (r - c - t r')_+``, whatever c is: convex,
    with ``d^2 V / dr dr' <= 0``. Shifts a and a' of a release multiply r and r' by log-normal
    numbers of mean 1. The expectation grows with |a| and |a'| (V is convex), and falls with
    ``a a'`` (Plackett: its derivative is that of ``r r' d^2 V / dr dr'``). So shifts in opposite
    directions, as long as they may be, are worst, whatever r and r' are; and the expectation is
    again such a function of r and r' before the release. By induction all releases at worst are
    one, of the root of the squares' sum.

    *Others in between.* Of releases outside of the sample, in others too, that follow and precede
    those in it, V is ``(x r + y - x' r' - y')_+``, with what they multiply both laws by in x, y,
    x' and y', none of which is negative: of the same kind, so that the same shifts are worst at
    each release of this sample, whatever was released before. Then each sample's are independent
    of all others, and pairs compose.

    Parameters
    ----------
    releases
        All releases in the sample. In parts of it, too: the one unit may be in part i, and the one
        in its place in part j, with shifts as long as there, at some angle. Two as long as in the
        part where they are longest lose no less, in opposite directions: one of the worlds.
    index
        Of the sample among the steps of each.
    """
    for release in releases:
        check_noise_of_exchanged(release.name, release.mechanism)
        for node in release.steps[index + 1 :]:
            if isinstance(node.handle.operation, SampleOperation | Select):
                inner = "selection" if isinstance(node.handle.operation, Select) else "sample"
                raise DeclarationError(
                    f"{release.name}: nothing is proven of a {inner} in a Poisson sample of units "
                    "that are exchanged (replace_one); draw the sample inside of a selection's "
                    "body, and one sample in the place of two"
                )


def check_noise_of_exchanged(name: str, mechanism: Mechanism) -> None:
    """Refuse a mechanism in a Poisson sample of units that are exchanged: see `_check_shifts`.

    Parameters
    ----------
    name
        The release's, for the message.
    mechanism
        What is to release from the sample.
    """
    if not (mechanism.shifts and is_own(type(mechanism))):
        raise DeclarationError(
            f"{name}: in a Poisson sample of units that are exchanged (replace_one) the noise must "
            f"be dp.Gaussian, got {type(mechanism).__name__}, for which nothing is proven there; "
            "take dp.Gaussian, release it from the whole table, or declare "
            "neighbors='add_remove' or 'zero_out'"
        )


def _is_region(node: Node) -> bool:
    return isinstance(node.handle.operation, PartOperation | SampleOperation | Loop)


def _partition_term(
    releases: Sequence[ReleaseNode], change: Change, index: int, counts: Counted
) -> Term:
    """Return the choices of parts that one unit's rows can lie in."""
    partition = releases[0].steps[index - 1].handle
    domain: PartsDomain = partition.domain
    members: dict[int, list[ReleaseNode]] = {}
    labels: dict[int, str] = {}
    for release in releases:
        part = release.steps[index]
        operation = part.handle.operation
        assert isinstance(operation, PartOperation)
        members.setdefault(operation.index, []).append(release)
        labels[operation.index] = part_title(part.handle)

    def part_term(part: int, change: Change) -> Term:
        return _compile([(release, change, index + 1) for release in members[part]], counts)

    if _lies_in_one_part(domain, change):
        return one_part(part_term, change, labels)
    return several_parts(part_term, change, labels, max(map(_splitting_partitions, releases)))


def _splitting_partitions(release: ReleaseNode) -> int:
    """Return how many partitions around a release let one unit be in several parts."""
    parts = [n.handle for n in release.steps if isinstance(n.handle.operation, PartOperation)]
    return sum(not part.inputs[0].domain.whole_units for part in parts)


def _lies_in_one_part(domain: PartsDomain, change: Change) -> bool:
    """Return whether all rows of a unit lie in one part: its only row does."""
    return domain.whole_units or change.rows == 1


@collection_paused()
def representatives(structure: Structure) -> Counted:
    """Return releases whose term is that of all releases, each with how many cost what it costs.

    Of releases that are alike in one part (`Merged.alike`) it is the first. Of parts in which
    alike releases are made equally often it is the first too, where all rows of a unit lie in one
    part: what the unit touches costs the same in each of them. Where a unit is exchanged it is the
    first two, since it may move from one to the other. Where its rows may lie in several parts,
    and in loops, it is all.

    A certificate's claim is compiled from these: a partition costs as many losses as it has
    different parts. The worlds of the term of all releases are the same, but for equal ones.
    """
    inside = Contents.of(structure)
    kept: set[int | None] = {None}
    waiting: list[int | None] = [None]
    while waiting:
        for partition, parts in inside.partitions.get(waiting.pop(), {}).items():
            handle = structure.merged.handles[partition]
            change = change_at(handle)
            most = len(parts)
            if _lies_in_one_part(handle.domain, change):
                most = 2 if change.replaced else 1
            stood = Counter[int]()
            for part in parts:
                stood[inside.signature[part]] += 1
                if stood[inside.signature[part]] <= most:
                    kept.add(part)
                    waiting.append(part)
    return {
        structure.node(rank): ("", inside.releases[part][number])  # type: ignore[misc]
        for (part, number), rank in inside.firsts.items()
        if part in kept
    }


@frozen(eq=False)
class Contents:
    """What lies in each part of a plan's partitions, by the ranks of nodes.

    Parameters
    ----------
    releases
        How often releases that are alike are made in a part, inside of no inner one, by their
        number (`Merged.alike`). None stands for what lies in no part.
    firsts
        The first release of each part and number.
    partitions
        The partitions in a part, each with its parts, in the order of the releases, as labels are.
    signature
        A number for each part, equal for those in which alike releases are made equally often.
    """

    releases: Mapping[int | None, Mapping[int, int]]
    firsts: Mapping[tuple[int | None, int], int]
    partitions: Mapping[int | None, Mapping[int, list[int]]]
    signature: Mapping[int, int]

    @classmethod
    def of(cls, structure: Structure) -> Contents:
        """Return the contents of all parts."""
        reads, alike, parts = structure.merged.reads, structure.alike, structure.parts
        content: dict[int | None, dict[int, int]] = {}
        firsts: dict[tuple[int | None, int], int] = {}
        partitions: dict[int | None, dict[int, list[int]]] = {}
        for rank in structure.release_ranks:
            part, number = parts[rank], alike[rank]
            firsts.setdefault((part, number), rank)
            known = part in content
            counts = content.setdefault(part, {})
            counts[number] = counts.get(number, 0) + 1
            while part is not None and not known:
                partition = reads[part][0]
                outer = parts[partition]
                known = outer in content
                content.setdefault(outer, {})
                partitions.setdefault(outer, {}).setdefault(partition, []).append(part)
                part = outer
        numbers: dict[Hashable, int] = {}
        signature: dict[int, int] = {}
        # inner parts have the higher ranks: what is in them is known before the part around them
        for part in sorted([each for each in content if each is not None], reverse=True):
            inner: frozenset[Any] = frozenset()
            if part in partitions:  # most parts have none
                inner = frozenset(
                    Counter(
                        (alike[partition], frozenset(Counter(signature[p] for p in same).items()))
                        for partition, same in partitions[part].items()
                    ).items()
                )
            whole = frozenset(content[part].items()), inner
            signature[part] = numbers.setdefault(whole, len(numbers))
        return cls(content, firsts, partitions, signature)


def _check_selections(releases: Iterable[ReleaseNode]) -> None:
    """Refuse a selection whose runs release from different data sets, parts or samples outside.

    A selection's bound (Liu and Talwar 2019; Papernot and Steinke 2022) is that of a complete run:
    runs cut into parts, each of them selected, do not compose to it, since the best of the runs
    depends on all of them.
    """
    first_regions: dict[str, list[str]] = {}  # outside of each selection, at its first release
    for release in releases:
        if not release.loops:  # a selection is a loop
            continue
        outside: list[str] = [release.steps[0].name]
        candidates: set[Handle] = set()
        for node in release.steps[1:]:
            operation = node.handle.operation
            if isinstance(operation, Select):
                candidates.add(operation.state)
            if isinstance(operation, Case) and node.handle.inputs[0] not in candidates:
                raise DeclarationError(
                    f"{node.name}: which case runs must be the candidate of the selection around "
                    "it, which is drawn without the data"
                )
            if isinstance(operation, Select):
                if not release.mechanism.selectable:
                    raise DeclarationError(
                        f"{release.name}: {type(release.mechanism).__name__} cannot be released in "
                        "the runs of a selection: the best run would be chosen, and the guarantee "
                        "of this release holds for each run by itself; release it outside"
                    )
                if first_regions.setdefault(node.name, outside[:]) != outside:
                    raise DeclarationError(
                        f"{node.name}: the body of a selection releases from several data sets, or "
                        "from several parts or samples that are made outside of it, for which "
                        "nothing is proven; release from one, or partition and sample inside of "
                        "the body"
                    )
            if isinstance(operation, PartOperation | SampleOperation):
                outside.append(node.name)


# -----------------------------------------------------------------------------
# One release: the sensitivity of its query, and the loss of its mechanism.


def distance(steps: Sequence[Node], norm: float) -> float:
    """Return the sensitivity of a query to one unit all of whose rows take the steps to it.

    Parameters
    ----------
    steps
        The nodes from the data set to the query: the `steps` of its release.
    norm
        The p of the l_p norm in which it is measured, in the query's units.
    """
    source = steps[0].handle.operation
    assert isinstance(source, SourceOperation)
    changes = _changes_at_query(steps, source.initial())
    # the larger of staying (replaced) and moving in or out (one-sided)
    return max(_sensitivity(steps, change, norm) for change in changes)


def release_distance(release: ReleaseNode) -> float:
    """Return `distance` for a release, in the norm of its mechanism; once for equal queries."""
    return _largest(release, _changes_at(release))


def _largest(release: ReleaseNode, changes: Sequence[Change]) -> float:
    """Return the largest sensitivity over some changes, in the norm of the mechanism."""
    computed, norm = release.structure.computed, release.mechanism.norm
    key = ("sensitivity", *release.equal[1:], norm, *changes)
    if key not in computed:
        computed[key] = max(_sensitivity(release.steps, change, norm) for change in changes)
    largest: float = computed[key]
    return largest


@collection_paused()
def release_losses(releases: Iterable[ReleaseNode]) -> dict[str, tuple[PrivacyLoss, int]]:
    """Return what `release_loss` returns of each release, by its name."""
    return {release.name: release_loss(release) for release in releases}


def release_loss(release: ReleaseNode) -> tuple[PrivacyLoss, int]:
    """Return a release's loss, for a unit all of whose rows it may read, and its repetitions.

    The loss is that of one round; it is paid as often as there are rounds of the loops around it
    (for a selection, the expected number).
    """
    times = 1
    if release.loops:
        operations = [step.handle.operation for step in release.steps]
        # nested loops multiply
        times = math.prod(each.rounds() for each in operations if isinstance(each, Loop))
    return _loss(release, _changes_at(release)), times


def without_pure_epsilon(releases: Iterable[ReleaseNode]) -> list[str]:
    """Return the releases that have no finite epsilon at delta 0, such as those of Gaussian noise.

    Each as its name and its kind of noise, for a message.
    """
    losses = release_losses(releases := list(releases))
    return [
        f"{each.name!r} ({type(each.mechanism).__name__})"
        for each in releases
        # where the likelihood ratio is unbounded, no accountant has an epsilon at delta 0
        if (pure := losses[each.name][0].pure()) is None or math.isinf(pure)
    ]


def _initial(release: ReleaseNode) -> Change:
    """Return the change that the neighbour relation makes to the data set of a release."""
    computed, first = release.structure.computed, release.steps[0]
    key = "initial", id(first)
    if key not in computed:
        source = first.handle.operation
        assert isinstance(source, SourceOperation)
        computed[key] = source.initial()
    change: Change = computed[key]
    return change


def _changes_at(release: ReleaseNode) -> tuple[Change, ...]:
    """Return the changes that may reach the query of a release."""
    return tuple(_changes_at_query(release.steps, _initial(release)))


def _changes_at_query(steps: Sequence[Node], initial: Change) -> list[Change]:
    """Return the changes that may reach a query where all of a unit's rows take these steps.

    ``initial`` is the change that the neighbour relation makes to the data set.
    """
    operations = [step.handle.operation for step in steps[1:-1]]
    changes = [initial]
    if initial.replaced and any(isinstance(each, PartOperation) for each in operations):
        # under replace_one a unit may move into the part, or out of it: there it is one-sided
        changes.append(initial.one_sided)
    for operation in operations:
        if not isinstance(operation, Loop):
            changes = [operation.change(change) for change in changes]
    return changes


def _sensitivity(steps: Sequence[Node], change: Change, norm: float) -> float:
    query = steps[-1].handle
    operation = query.operation
    assert isinstance(operation, Query)
    # no finite sensitivity exists
    if change.rows == UNBOUNDED:
        raise DeclarationError(
            f"{steps[-1].name}: nothing bounds the rows of a unit of {steps[0].name!r}; "
            "declare the data set with dataset(unit=..., rows_per_unit=...)"
        )
    return interpolate_norm(lambda p: operation.sensitivity(query.domain, change, p), norm)


def interpolate_norm(bound: Callable[[float], float], norm: float) -> float:
    """Return a bound in the l_p norm from bounds in the l1, l2 and maximum norm.

    ``|v|_p <= |v|_1^{2/p-1} |v|_2^{2-2/p}`` for 1 < p < 2, and ``|v|_2^{2/p} |v|_inf^{1-2/p}``
    for p > 2 (the logarithm of a norm is convex in 1/p: Hoelder).

    Parameters
    ----------
    bound
        Returns the bound in the norm 0, 1, 2 or infinity.
    norm
        p: 0, or at least 1.
    """
    if norm in (0, 1, 2, math.inf):
        return bound(norm)
    low, high = (bound(1), bound(2)) if norm < 2 else (bound(2), bound(math.inf))
    # Littlewood's inequality: |v|_p <= |v|_low^s |v|_high^(1-s) where 1/p = s/low + (1-s)/high
    share = 2 / norm - 1 if norm < 2 else 2 / norm
    # Outward: the rounding of the exponents moves a power of any float by less than 1500 units in
    # the last place. And |v|_p falls in p, so the bound in the smaller norm always holds.
    return min(low, up(float(low**share * high ** (1 - share)), 2000))


def _loss(release: ReleaseNode, changes: Sequence[Change]) -> PrivacyLoss:
    """Return the mechanism's loss for any of the changes, once for all equal releases."""
    computed, key = release.structure.computed, ("loss", release.equal, *changes)
    if key not in computed:
        computed[key] = _compute_loss(release, changes)
    loss: PrivacyLoss = computed[key]
    return loss


def _compute_loss(release: ReleaseNode, changes: Sequence[Change]) -> PrivacyLoss:
    """Return the mechanism's loss, rounded outward."""
    mechanism = release.mechanism
    _refuse_free(release)
    # the largest over all changes: the loss must hold for each
    sensitivity = _largest(release, changes)
    query = release.query
    assert isinstance(query.operation, Query)
    exact = _rounds_outward(query.operation, "sensitivity")
    if not exact:
        # the roundings of a query's product must not take the loss below the truth
        sensitivity = up(sensitivity, 8)
    if _rounds_outward(mechanism, "loss", "cost"):
        return _asked(release, changes, sensitivity)
    if is_own(type(mechanism)) or not exact:
        # nor those of a mechanism's own division: it is asked a little farther away
        return _asked(release, changes, up(sensitivity, 8) if exact else sensitivity)
    return _outward(lambda distance: _asked(release, changes, distance), sensitivity)


def _outward(ask: Callable[[float], PrivacyLoss], distance: float) -> PrivacyLoss:
    """Return an author's loss at an exact distance, as far outward as the author's floats may err.

    At a distance that is some units in the last place larger, a loss that is continuous has moved
    past its own rounding: it is taken from there. What jumps, since the distance counts steps, is
    of the distance itself, each of its floats moved by so many units towards those farther on.
    What does not depend on the distance does not move at all.
    """
    loss = ask(distance)
    for farther in (up(distance, 8), distance + 1):
        try:
            above = ask(farther)
        except Exception:  # of a distance that is no integer, say, for which it has no loss
            continue
        return above if farther < distance + 1 and _near(loss, above) else _towards(loss, above)
    return loss


def _near(one: object, other: object) -> bool:
    """Whether two losses, or two of their parameters, differ in the last digits of floats alone."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_near, one, other))
    if isinstance(one, PrivacyLoss) and type(one) is type(other):
        mine, theirs = _fields(one), _fields(other)
        # of a loss that shows no fields nothing is known: then it counts as continuous
        return mine.keys() == theirs.keys() and all(map(_near, mine.values(), theirs.values()))
    return type(one) is type(other) and one == other


def _towards(one: Any, farther: Any) -> Any:
    """Return a loss, each of its floats moved by 8 units towards that of the loss farther on."""
    if isinstance(one, float) and isinstance(farther, float):
        return one if one == farther else up(one, 8) if farther > one else down(one, 8)
    if isinstance(one, tuple) and isinstance(farther, tuple) and len(one) == len(farther):
        return tuple(map(_towards, one, farther))
    if not isinstance(one, PrivacyLoss):
        return one
    same = _fields(farther) if type(farther) is type(one) else {}
    moved: dict[str, Any] = {}
    for name, value in parameters(one).items():
        # of a loss of another class nothing is known but that a cost is a bound from above
        value_there = _towards(value, same.get(name, math.inf if name in COSTS else value))
        if value_there != value:
            moved[name] = value_there
    return evolve(one, **moved) if moved else one  # type: ignore[misc]


def _fields(loss: PrivacyLoss) -> dict[str, object]:
    """Return the parameters of a loss, or the attributes of one that declares none."""
    return parameters(loss) or dict(getattr(loss, "__dict__", {}))


def _asked(release: ReleaseNode, changes: Sequence[Change], sensitivity: float) -> PrivacyLoss:
    """Return what the mechanism says at a distance; what an author's own code raises is as it is.

    What the library's own raises becomes an error that names the release.
    """
    mechanism, query = release.mechanism, release.query
    assert isinstance(query.operation, Query)
    try:
        if mechanism.uses_side:
            # the unit's rows in one of the data sets alone: all of them, and those that count alike
            sides = [
                query.operation.sensitivity(query.domain, change.one_sided, norm)
                for norm in (1, math.inf)
                for change in changes
            ]
            half = len(changes)
            side = up(max(sides[:half]), 8), up(max(sides[half:]), 8)
            loss = mechanism.loss(sensitivity, side=side)  # type: ignore[call-arg]
        elif mechanism.uses_span:
            span = max(query.operation.span(query.domain, change) for change in changes)
            if not _rounds_outward(query.operation, "sensitivity", "span"):
                span = up(span, 8)
            loss = mechanism.loss(sensitivity, span=span)  # type: ignore[call-arg]
        elif type(mechanism).cost is Mechanism.cost:
            loss = mechanism.loss(sensitivity)
        else:
            moved = query.operation.dimension(query.domain)
            if mechanism.rounds_coordinates and is_own(type(mechanism)):
                # rounding moves apart coordinates that differ, and no others
                moved = max(
                    query.operation.coordinates_moved(query.domain, change) for change in changes
                )
            loss = mechanism.cost(sensitivity, moved, query.operation.step(query.domain))
    except Exception as error:  # this depends on declarations alone: the cause may be shown
        if is_own(type(mechanism)) or isinstance(error, AccountingError | DeclarationError):
            raise DeclarationError(
                f"{release.name}: {mechanism}.loss({sensitivity:g}) failed: {error}"
            ) from error
        error.add_note(f"in the loss of {mechanism} at distance {sensitivity:g}, of {release.name}")
        raise
    if not isinstance(loss, PrivacyLoss):
        raise DeclarationError(
            f"{release.name}: {type(mechanism).__name__}.loss must return a PrivacyLoss such "
            f"as accountants.Pure(epsilon=1), got {type(loss).__name__}"
        )
    return loss


def _refuse_free(release: ReleaseNode) -> None:
    """Refuse a mechanism with a parameter that no calibration has chosen."""
    mechanism = release.mechanism
    for name, parameter in mechanism.free().items():
        raise DeclarationError(
            f"{release.name}: {type(mechanism).__name__}.{name} is still free "
            f"({parameter}); call plan.calibrate(epsilon=..., delta=...) or "
            f"plan.fix({parameter.name}=...)"
        )


def _rounds_outward(declared: Query | Mechanism, *methods: str) -> bool:
    """Return whether ``rounds_outward`` was declared for these very methods.

    A subclass that overrides one of them, and does not repeat the declaration, does not inherit it.
    """
    cls = type(declared)
    declaring = next(base for base in cls.__mro__ if "rounds_outward" in vars(base))
    return declared.rounds_outward and all(
        getattr(cls, name) is getattr(declaring, name) for name in methods
    )


# -----------------------------------------------------------------------------
# Branches: the parts of partitions that a release lies in, for the filters of a session.


Branch = tuple[tuple[str, int], ...]
"""A branch of parallel composition: the parts around a release, outermost first.

Each part is the digest of its partition, and its index. All units are in ``()``.
"""


def branch_losses(releases: Sequence[ReleaseNode]) -> list[tuple[Branch, PrivacyLoss]]:
    """Return in which branch each release lies, with the loss of the units in it.

    A unit is in one part of each partition, the same one in each step of a session, so that what is
    spent in other parts does not affect it (see `docs/explanation/worlds.md`). Where a branch alone
    does not say which units a release concerns (units that are exchanged, or have several rows in
    several parts; partitions at random, by third-party code, or of rows that depend on released
    values), the loss counts for all units.
    """
    _check_selections(releases)
    losses: list[tuple[Branch, PrivacyLoss]] = []
    unbranched: dict[str, list[ReleaseNode]] = {}
    for release in releases:
        branch = _branch(release)
        if branch is None:
            unbranched.setdefault(release.steps[0].name, []).append(release)
        else:
            losses.append((branch, _loss(release, _changes_at(release))))
    for members in unbranched.values():
        # for all units: the upper envelope of the losses of every world
        term = _compile_all(members, dict.fromkeys(members, ("", 1)))
        composed = [Composite(world.spends) for world in worlds(term)]
        losses.append(((), composed[0] if len(composed) == 1 else Envelope(composed)))
    return losses


def _branch(release: ReleaseNode) -> Branch | None:
    """Return the branch of a release; None where it does not say which units are concerned."""
    change = release.source.initial()
    if change.replaced or any(len(node.handle.inputs) > 1 for node in release.steps[:-1]):
        return None
    parts: list[tuple[str, int]] = []
    for index, node in enumerate(release.steps[1:-1], 1):
        operation = node.handle.operation
        # the digest of what is random, or calls code that it does not pin down, names no fixed part
        if operation.random or isinstance(operation, Loop) or _calls_user_code(operation):
            return None
        if isinstance(operation, PartOperation):
            partition = release.steps[index - 1]
            if not (partition.handle.domain.whole_units or change.rows == 1):
                return None
            parts.append((partition.digest, operation.index))
        change = operation.change(change)
    return tuple(parts)


def _calls_user_code(operation: Operation) -> bool:
    """Return whether an operation is, or calls, code from outside of the library."""
    calls = any(isinstance(v, Function) for v in operation.parameters().values())
    return calls or not is_own(type(operation))


# -----------------------------------------------------------------------------
# Partitions: the choices of parts that one unit's rows can lie in.


TERMS, SPLITS, SPLITS_OF_EQUALS = 8_192, 8_192, 512
"""Above so many terms of parts, splits of a unit's rows, or splits among equal parts, numbers of
rows are rounded up to levels."""

GROWTHS = (1, 33 / 32, 17 / 16, 9 / 8, 5 / 4, 3 / 2, 2, 4, 16, 256)
"""By what factor a level of rows may exceed the one before; 1 is exact."""

SEVERAL = "several parts"
"""The label of a choice that leaves open in which parts the unit's rows lie."""

PartTerm = Callable[[int, Change], Term]
"""The term of the releases in a part, by its index, for a change of the rows in it."""


def one_part(part_term: PartTerm, change: Change, labels: Mapping[int, str]) -> Term:
    """Return the choices where all rows of a unit lie in one part.

    Where a unit appears or vanishes: any one part. Where it is exchanged: one part in which it is
    exchanged; or two, from one of which it vanishes and in the other of which it appears; or one by
    itself, if nothing is released of the other, or the other is not a part.

    Parameters
    ----------
    part_term, labels
        The term of the releases in each part, and its title.
    change
        The change that reaches the partition.
    """
    one_sided = change.one_sided
    moved = {i: part_term(i, one_sided) for i in labels}
    if not change.replaced:
        return Parallel(list(moved.values()), [labels[i] for i in moved])
    # Under replace_one the neighbouring data sets differ by one exchange of a unit. Its rows lie in
    # part i before and in part j after: the cases i = j, one of the two outside of all parts, and
    # i != j are the choices below, so that their maximum bounds the loss.
    # i = j: the unit stays in its part, which keeps its number of rows
    choices: list[tuple[tuple[str, ...], Term]]
    choices = [((labels[i],), part_term(i, change)) for i in labels]
    # one of them outside: that part alone sees the unit appear or vanish
    choices += [((labels[i],), moved[i]) for i in labels]
    # i != j: it vanishes from the one and appears in the other, and both losses are paid
    choices += _moves_between_parts(moved, labels)
    return Parallel([t for _, t in choices], [label for label, _ in choices])


def _moves_between_parts(
    moved: dict[int, Term], labels: Mapping[int, str]
) -> Iterator[tuple[tuple[str, ...], Term]]:
    """Yield each two parts between which a unit can move; of equal parts two are enough."""
    equal_parts: dict[Any, list[int]] = {}
    for i, part in moved.items():
        equal_parts.setdefault(_loss_key(part), []).append(i)
    # of parts with equal losses any pair costs as much as any other: two of each kind give all
    # pairs of losses that there are, (a, a) and (a, b)
    representatives = [i for equals in equal_parts.values() for i in equals[:2]]
    for i, j in combinations(sorted(representatives), 2):
        yield (labels[i], labels[j]), _move(moved[i], moved[j])


def _move(one: Term, other: Term) -> Term:
    """Return what is paid for a unit that vanishes from one part, and appears in another.

    *Own proof.* Of samples with Gaussian noise, the ones' laws are ``(1-q) N(0, 1) + q N(mu, 1)``
    against N(0, 1), and the others' are exchanged. Each is charged as one of an exchange, whose
    pair is symmetric: then the order does not matter. Two that are equal, one on each side, are
    together ``(1-q) N(0, I) + q N(a, I)`` against ``(1-q) N(0, I) + q N(b, I)``, with a and b at a
    right angle: one of an exchange costs more, where they are opposite
    (`accountants.losses.ReplacedSample`). So equal ones are paid as often as in that part which has
    more. What is chosen by releases before is covered: pairs compose (Zhu, Dong and Wang 2022,
    Thm 10).
    """
    samples: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    terms_of: dict[Any, Term] = {}
    rest: list[Term] = []
    for side, term in zip(samples, (one, other), strict=True):
        for part, times in _flat(term):
            if isinstance(part, ReplacedSample) and all(
                isinstance(each, Spend) for each, _ in _flat(part.part)
            ):
                key = _loss_key(part)
                terms_of.setdefault(key, part)
                side[key] = side.get(key, 0) + times
            else:
                rest.append(part if times == 1 else Repeated(part, times))
    if not terms_of:
        return Sequential([one, other])
    for key, part in terms_of.items():
        most = max(side.get(key, 0) for side in samples)
        rest.append(part if most == 1 else Repeated(part, most))
    return Sequential(rest)


def _flat(term: Term, times: int = 1) -> Iterator[tuple[Term, int]]:
    """Yield what a term is the composition of, each with how often it is paid."""
    if isinstance(term, Sequential):
        for part in term.parts:
            yield from _flat(part, times)
    elif isinstance(term, Repeated):
        yield from _flat(term.part, times * term.times)
    else:
        yield term, times


def several_parts(
    part_term: PartTerm, change: Change, labels: Mapping[int, str], nested: int
) -> Term:
    """Return the choices where a unit's r rows may lie in several parts.

    Any split of r rows among the parts, each part charged at the number of rows that it gets. For
    an exchange, r rows are split in each data set, and a part that gets ``a`` rows of the one and
    ``b`` of the other is charged for the exchange of ``a`` rows for ``b``: no query need be linear,
    and no loss superadditive.

    Exact where the splits are few. Where they are many, rows are counted in *levels* ``s_1 < s_2 <
    ... < s_k`` (`row_levels`), and a part that gets ``a`` rows is charged at the least level
    ``s(a)`` that is not below. That charges enough: losses grow with rows, so the split ``(a_1,
    a_2, ...)`` costs at most what ``(s(a_1), s(a_2), ...)`` does, and this is among the choices,
    which are all tuples of levels whose *least rows*, one more than the level before, sum to at
    most a unit's rows.

    Parameters
    ----------
    part_term, labels
        The term of the releases in each part, and its title.
    change
        The change that reaches the partition.
    nested
        How many partitions are nested here: together they share the limits.

    Raises
    ------
    DeclarationError
        If nothing bounds a unit's rows before the partition.
    """
    if change.rows == UNBOUNDED:  # a bound inside of each part does not bound the sum over parts
        raise DeclarationError(
            "nothing bounds the rows of a unit before the partition "
            f"({', '.join(labels.values())}); bound them first, with dataset(unit=..., "
            "rows_per_unit=...), or partition with whole_units=True"
        )
    max_terms, max_splits, max_equal_splits = (
        # the limits are shared by nested partitions: the k-th root, as their numbers multiply
        max(least, round(most ** (1 / nested)))
        for most, least in ((TERMS, 128), (SPLITS, 128), (SPLITS_OF_EQUALS, 64))
    )
    # from exact to coarse: first with parts told apart, then with all parts at the dearest one
    for merge_parts, growths in ((False, GROWTHS[:6]), (True, GROWTHS[:8])):
        for growth in growths:
            levels = row_levels(change.rows, growth, max_terms)
            limits = max_terms, max_equal_splits if merge_parts else max_splits
            choices = levels and _split_choices(
                part_term, change, labels, levels, limits, merge_parts
            )
            if choices:
                return choices
    return _dominating_choice(part_term, change, labels, max_terms)


def _split_choices(
    part_term: PartTerm,
    change: Change,
    labels: Mapping[int, str],
    levels: Sequence[int],
    limits: tuple[int, int],
    merge_parts: bool,
) -> Term | None:
    """Return the splits at levels; None if there are more terms, or splits, than ``limits``.

    With ``merge_parts`` each share is charged at the dearest of all parts, so that parts are not
    told apart any more: fewer splits, and looser.
    """
    shares = level_shares(levels, change)
    # checked before anything is compiled: a partition may have thousands of parts
    if len(shares) * len(labels) > limits[0]:
        return None
    # one term for each part and share; the splits only refer to them
    part_terms = {
        (i, share): part_term(i, _share_change(share, change)) for i in labels for share in shares
    }
    if merge_parts:
        part_terms = {
            # the loss of any part is at most the maximum over all of them: one round whose choice
            # is left open
            (0, share): Repeated(Parallel([part_terms[i, share] for i in labels]), 1)
            for share in shares
        }
        # all parts are alike now, and a unit is in at most min(parts, rows) of them
        equal_parts = [[0] * min(len(labels), change.both)]
    else:
        by_key: dict[Any, list[int]] = {}
        for i in labels:
            key = tuple(_loss_key(part_terms[i, share]) for share in shares)
            by_key.setdefault(key, []).append(i)
        # a unit's rows lie in at most ``both`` parts: of equal parts so many are enough, as a split
        # over others of them costs the same
        equal_parts = [equals[: change.both] for equals in by_key.values()]
    splits = contribution_splits(equal_parts, levels, change, limits[1])
    if splits is None:
        return None
    choices = {
        tuple((i, _share_change(share, change)) for i, share in split): Sequential(
            # the terms are those of shares with the larger number first: a replacement is symmetric
            [part_terms[i, (max(share), min(share))] for i, share in split]
        )
        for split in splits
    }
    titles = [
        (SEVERAL,) if merge_parts else tuple(f"{labels[i]} ({c.both} rows)" for i, c in split)
        for split in choices
    ]
    return Parallel(list(choices.values()), titles)


def _dominating_choice(
    part_term: PartTerm, change: Change, labels: Mapping[int, str], max_terms: int
) -> Term:
    """Return one choice that is above all splits: at each level as many parts as can reach it.

    A share of at least a rows of one of the two data sets, and b <= a of the other, takes b rows
    of each and a + b together: it fits at most ``min(r // b, both // (a + b))`` times. Which parts
    they are is left open. Where all parts at all rows cost less, they are charged so.
    """
    # of growths that at least double, the finest within the limit; None is one level, all rows
    for growth in (*(g for g in GROWTHS if g >= 2), None):
        levels = [change.rows] if growth is None else row_levels(change.rows, growth, max_terms)
        shares = level_shares(levels, change)
        if growth is None or 0 < len(shares) * len(labels) <= max_terms:
            break
    # the least number of rows that is charged at a level is one more than the level before
    least = dict(zip((0, *levels), (0, 1, *(level + 1 for level in levels)), strict=False))
    repetitions = {
        (a, b): min(
            change.rows // least[b] if b else len(labels),
            change.both // (least[a] + least[b]),
            len(labels),
        )
        for a, b in shares
    }
    charged_rows = sum(sum(share) * times for share, times in repetitions.items())
    # losses grow with rows, so every split costs at most all rows in every part: taken where the
    # levels charge as much
    if charged_rows >= len(labels) * change.both:
        all_rows = Change(change.replaced, change.rows, False, change.both)
        return Parallel([Sequential([part_term(i, all_rows) for i in labels])], [SEVERAL])
    # a split has at most ``times`` parts of each share: together they cost at least as much as it
    parts: list[Term] = []
    for share, times in repetitions.items():
        choices = [part_term(i, _share_change(share, change)) for i in labels]
        parts.append(
            Sequential(choices) if times == len(labels) else Repeated(Parallel(choices), times)
        )
    return Parallel([Sequential(parts)], [SEVERAL])


def _loss_key(term: Term) -> Any:
    """Return a key that is equal for terms with equal losses, whatever their nodes' names."""
    match term:
        case Spend(loss=loss):
            return loss
        case Sequential(parts=parts):
            # counted, not listed: the order of releases does not change what they compose to
            counts: dict[Any, int] = {}
            for part in parts:
                key, times = _loss_key(part), 1
                if isinstance(part, Repeated) and isinstance(part.part, Spend):
                    key, times = part.part.loss, part.times
                counts[key] = counts.get(key, 0) + times
            return ("all", frozenset(counts.items()))
        case Parallel(choices=choices):
            return ("one", frozenset(_loss_key(c) for c in choices))
        case Repeated(part=Spend(loss=loss), times=times):
            # so often the same: as if they were listed
            return ("all", frozenset([(loss, times)]))
        case Repeated(part=part, times=times):
            return ("times", _loss_key(part), times)
        case Sampled(part=part, rate=rate) | ReplacedSample(part=part, rate=rate):
            return (type(term).__name__, _loss_key(part), rate)
    # an unknown term equals itself alone
    return id(term)


# -----------------------------------------------------------------------------
# Contribution splits: every way to put a unit's rows into parts, counted in levels.


Share = tuple[int, int]
"""How many of a unit's rows a part gets, in the one data set and in the other."""

Split = tuple[tuple[int, Share], ...]
"""Parts, with the share of each."""


def row_levels(rows: int, growth: float, most: int) -> list[int]:
    """Return integers from 1 to ``rows``, each at most ``growth`` times the one before.

    Where that is not possible they follow each other. Empty where they would be more than ``most``.

    Examples
    --------
    >>> row_levels(20, 1, 64) == list(range(1, 21)), row_levels(20, 2, 64)
    (True, [1, 2, 4, 8, 16, 20])
    """
    levels = [1]
    while levels[-1] < rows:
        # too many levels at this growth: the caller tries a coarser one
        if len(levels) >= most:
            return []
        # at least one more than before, so that small numbers of rows stay exact
        levels.append(min(rows, max(levels[-1] + 1, math.floor(min(growth * levels[-1], rows)))))
    return levels


def level_shares(levels: Sequence[int], change: Change) -> list[Share]:
    """Return the shares at which a part can be charged, the larger number first."""
    if not change.replaced:
        return [(a, 0) for a in levels]
    below = dict(zip(levels, (0, *levels), strict=False))  # a level stands for more rows than this
    return [
        (a, b)
        for a in levels
        for b in (0, *levels)
        if b <= a and below[a] + below.get(b, -1) + 2 <= change.both
    ]


def _share_change(share: Share, change: Change) -> Change:
    """Return the change inside of a part that gets a share of the unit's rows."""
    return Change(min(share) > 0, max(share), False, min(sum(share), change.both))


class _TooMany(Exception):
    """There are more splits than the limit."""


def contribution_splits(
    equal_parts: Sequence[Sequence[int]], levels: Sequence[int], change: Change, most: int
) -> list[Split] | None:
    """Return each way to put a unit's rows into parts, at levels; None if more than ``most``.

    Of equal parts one order is enough, and a split that another one exceeds is left out.

    Parameters
    ----------
    equal_parts
        The parts' indices, those with equal losses together.
    levels
        The numbers of rows at which a part can be charged, increasing.
    change
        The change whose rows are split.
    most
        The limit of splits; the search stops at 16 times as many steps.
    """
    # level k stands for least[k] to level[k] rows
    level, least = (0, *levels), (0, *(s + 1 for s in (0, *levels[:-1])))
    work = 0
    splits: list[Split] = []
    parts = sum(map(len, equal_parts))

    def place(group: int, at: int, remaining: Share, limit: Share, chosen: tuple[Any, ...]) -> None:
        """Put the remaining rows into the parts from position ``at`` of a group of equals on.

        ``limit`` is the share of the equal part before: shares of equals do not increase.
        """
        nonlocal work
        if remaining == (0, 0):
            keep(chosen, remaining)
            return
        for k in range(group, len(equal_parts)):
            at, limit = (at, limit) if k == group else (0, (len(levels), len(levels)))
            if at == len(equal_parts[k]):
                continue
            highest = tuple(bisect_right(least, rows) - 1 for rows in remaining)
            last = k == len(equal_parts) - 1 and at == len(equal_parts[k]) - 1
            # the last part takes what remains; any other each share, the largest first
            for a in [highest[0]] if last else range(highest[0], -1, -1):
                for b in [highest[1]] if last else range(highest[1], -1, -1):
                    work += 1
                    if work > 16 * most or len(splits) > most:
                        raise _TooMany
                    if (0, 0) < (a, b) <= limit:
                        rest = (remaining[0] - least[a], remaining[1] - least[b])
                        extended = (*chosen, (equal_parts[k][at], (a, b)))
                        if last:
                            keep(extended, rest)
                        else:
                            place(k, at + 1, rest, (a, b), extended)

    def keep(chosen: tuple[Any, ...], remaining: Share) -> None:
        """Keep a split, unless the remaining rows would raise one of its shares: dominated."""
        shares = [share for _, share in chosen]
        shares += [(0, 0)] if len(chosen) < parts else []
        for side in (0, 1):
            for share in shares:
                k = share[side]
                if k < len(levels) and least[k + 1] - least[k] <= remaining[side]:
                    return
        splits.append(tuple((i, (level[a], level[b])) for i, (a, b) in chosen))

    try:
        for total in _row_totals(change):
            place(0, 0, total, (len(levels), len(levels)), ())
    except (_TooMany, RecursionError):
        return None
    return splits


def _row_totals(change: Change) -> list[Share]:
    """Return how many rows a unit may have in the two data sets; fewer are dominated."""
    if not change.replaced:
        return [(change.rows, 0)]
    least = (change.both + 1) // 2
    return [(rows, change.both - rows) for rows in range(change.rows, least - 1, -1)]
