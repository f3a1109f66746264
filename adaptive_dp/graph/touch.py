"""What a unit can touch in a partition.

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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from attrs import evolve

from accountants import Parallel, Repeated, Sampled, Sequential, Spend, Term
from adaptive_dp.graph.change import UNBOUNDED, Change
from adaptive_dp.graph.errors import DeclarationError

SPLITS = 20_000
"""More splits of a unit's rows than this are bounded by every touched part at all rows."""

Inside = Callable[[int, Change], Term]
"""The term of what is charged in a part, by its index, for a change of the rows in it."""

Share = tuple[int, int]
"""How many of a unit's rows a part gets, in the one data set and in the other."""


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


def several_parts(inside: Inside, change: Change, label: Mapping[int, str]) -> Term:
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
    names = [tuple(f"{label[i]} ({c.both} rows)" for i, c in key) for key in choices]
    return Parallel(list(choices.values()), names)


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
