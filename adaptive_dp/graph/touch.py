"""What a unit can touch in a partition.

* where units lie in one part each, and one appears or vanishes: any one part;
* where one is exchanged: one part in which it is exchanged; or two, from one of which it
  vanishes and in the other of which it appears; or one alone, if the other is not charged
  or is no part at all;
* where a unit has up to r rows, which may lie in several parts: any split of r rows among
  parts, each part charged at the number of rows that it gets. For an exchange, r rows are
  split in each data set, and a part that gets a of the one and b of the other is charged
  for the exchange of a rows for b: no query need be linear, no loss superadditive. Where these
  are too many, numbers of rows are rounded up, which is sound and looser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from accountants import Parallel, Repeated, Sampled, Sequential, Spend, Term
from adaptive_dp.graph.change import UNBOUNDED, Change
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.splits import Share, chargeable, steps, ways

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
