"""The checker of proofs for every length: what `adaptive_dp.prove.every` says, in exact fractions.

The document has the function as a start, and for each state a step and a finish, each a decision
tree (see `adaptive_dp.prove.loops`); and for each direction in which answers move, and each kind of
output, the places of a proof. From each place, for each two ways through a turn, it has multipliers
that show that both runs cannot take them; or by how much noise moves, which place they come to, and
multipliers that show that the differences of the states' numbers are within its intervals.

What is checked is what the theorem of `adaptive_dp.prove.every` supposes. Like
`adaptive_dp.prove.checker` it shares nothing with the search.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import frozen

from adaptive_dp.prove.checker import (
    Condition,
    Drawn,
    Form,
    added,
    contradict,
    exact,
    impossible,
    negated,
    places,
    read_form,
    replaced,
    require,
    support,
    supported,
    walk,
)

ONE = Fraction(1)
NOW, GUESS, OTHER = "position:now", "position:guess", "position:other"
GUESSES = (GUESS, "position:second")
KEPT = re.compile("position:(?:guess|second|other)")
DIRECTIONS = {
    "each": {(-ONE, ONE)},
    "together": {(Fraction(0), ONE), (-ONE, Fraction(0))},
    "one": {(Fraction(0), ONE), (-ONE, Fraction(0))},
}
Interval = tuple[Fraction, Fraction] | None


@frozen
class Way:
    """One way through a start, a step or a finish; ``after`` is None where it returns."""

    draws: tuple[Drawn, ...]
    conditions: tuple[Condition, ...]
    after: str | None
    numbers: tuple[Form, ...]
    released: tuple[Any, tuple[Form, ...]]


def kept(text: str) -> int:
    """Return how many positions that were kept a state or an output has."""
    return sum(text.count(mark) for mark in (*GUESSES, OTHER))


def single(text: str, marks: Sequence[str]) -> bool:
    """Whether no position of these is there twice."""
    return all(text.count(mark) < 2 for mark in marks)


def named(text: str, names: Sequence[str]) -> str:
    """Return a text with the guessed positions under other names: the first's, and the second's."""
    by = dict(zip(GUESSES, names, strict=False))
    return KEPT.sub(lambda found: by.get(found[0], found[0]), text)


def read_ways(nodes: Sequence[Mapping[str, Any]], state: str, which: str) -> list[Way]:
    """Return the ways through a start, a step or a finish, of a state's numbers."""
    answer = which == "step"
    ways = []
    known = {"1", *(f"q{j + 1}" for j in range(places(state)))} | ({"q0"} if answer else set())
    for draws, conditions, returned, forms in dict(walk(nodes, (), impossible)).values():
        names = known | {f"v{i}" for i in range(len(draws))}
        for form in (*(form for form, _ in conditions), *forms):
            require(form.keys() <= names, "an answer, a number or a draw that there is not")
        value = ast.literal_eval(returned)
        require(isinstance(value, tuple) and value[0] in ("next", "return"), "an unknown end")
        for mark in (*GUESSES, OTHER):
            require(mark not in returned or mark in state, "a position that was not kept")
        require(answer or NOW not in returned, "a position of no turn")
        require(value[0] == "return" or which != "finish", "a finish returns")
        require(kept(str(value)) <= 2, "two positions are kept, and returned, at most")
        marks = GUESSES if value[0] == "return" else (NOW, *GUESSES)
        require(single(str(value[1]), marks), "a position is kept twice")
        if value[0] == "return":
            ways.append(Way(draws, conditions, None, (), (value, forms)))
            continue
        require(len(value) == 3, "a state after a turn, and what is released")
        after = written(value[1])
        size = places(after)
        require(kept(str(value[2])) == 0, "a kept position is released at the end alone")
        require(after.count("position:") <= 2, "two positions are kept at most")
        released = (("next", value[2]), forms[size:])
        ways.append(Way(draws, conditions, after, forms[:size], released))
    return ways


def written(value: Any) -> str:
    """Return a state as text: the same for equal states."""
    if value is ...:
        return "..."
    if isinstance(value, tuple):
        return "(" + "".join(f"{written(each)}, " for each in value) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)


def pattern(value: Any) -> Any:
    """Return where a state has unknown numbers."""
    return [pattern(v) for v in value] if isinstance(value, list | tuple) else value is ...


def check_every(document: Mapping[str, Any]) -> Fraction:
    """Check a proof for every length, and return the epsilon that it proves."""
    epsilon = exact(document["epsilon"])
    (radius,) = map(exact, document["radii"])
    require(radius >= 0, "no radius is negative")
    loop = document["loop"]
    pieces: dict[tuple[str, str], list[Way]] = {
        ("start", ""): read_ways(loop["start"], "()", "start")
    }
    for state, trees in loop["states"].items():
        pieces["step", state] = read_ways(trees["step"], state, "step")
        pieces["finish", state] = read_ways(trees["finish"], state, "finish")
        # a turn does not depend on what its positions are called: as if both were guessed
        slots = KEPT.findall(state)
        require(len(slots) <= 2, "two positions are kept at most")
        parts = KEPT.split(state)
        guessed = itertools.zip_longest(parts, GUESSES[: len(slots)], fillvalue="")
        same = loop["states"].get("".join(map("".join, guessed)))
        require(same is not None, "a state is missing")
        its = named(json.dumps(same, sort_keys=True), slots)
        require(its == json.dumps(trees, sort_keys=True), "a turn depends on a position")
    kinds = {kind for ways in pieces.values() for way in ways for kind, _ in way.draws}
    whole = "geometric" in kinds
    if whole:  # states are integers then, and so are the differences of two runs
        require(radius == 1, "integers move by 1")
        for way in itertools.chain.from_iterable(pieces.values()):
            for form in way.numbers:
                units = all(value.denominator == 1 for value in form.values())
                require(units, "the numbers of a state are integers")
    returned = {str(way.released[0]) for ways in pieces.values() for way in ways if not way.after}
    require(document["neighbors"] in DIRECTIONS, "an unknown relation of neighbours")
    guesses = {0, *map(kept, returned)}
    needed = set(itertools.product(DIRECTIONS[document["neighbors"]], guesses))
    for case in document["cases"]:
        direction = (exact(case["low"]), exact(case["high"]))
        guess = int(case["guess"])
        require(guess in (0, 1, 2), "two positions are guessed at most")
        needed.discard((direction, guess))
        found = [_Place.of(each) for each in case["places"]]
        moved = "b" if document["neighbors"] == "one" else "-"
        first = _Place("b" * guess or "-", moved, "", "", (), found[0].left)
        require(found[0] == first, "a proof begins before the start")
        require(radius * found[0].left <= epsilon, "a move costs more than epsilon")
        for place, each in zip(found, case["places"], strict=True):
            _check_place(place, each["turns"], pieces, found, direction, guess)
            for rule in (way["noise"] for turn in each["turns"] for way in turn["ways"] if way):
                for shift in map(read_form, rule if whole else ()):
                    units = all(value.denominator == 1 for value in shift.values())
                    require(units, "integers move by integers")
    require(not needed, "a direction of moves, or a kind of output, is missing")
    return epsilon


@frozen
class _Place:
    """Where two runs are; see `adaptive_dp.prove.every.Place`."""

    kept: str
    moved: str
    one: str
    other: str
    box: tuple[Interval, ...]
    left: Fraction

    @staticmethod
    def of(each: Mapping[str, Any]) -> _Place:
        box = tuple(
            None if ends is None else (exact(ends[0]), exact(ends[1])) for ends in each["box"]
        )
        left = exact(each["left"])
        require(left >= 0, "what is left is not negative")
        return _Place(each["kept"], each["moved"], each["one"], each["other"], box, left)


def _check_place(
    place: _Place,
    turns: Sequence[Mapping[str, Any]],
    pieces: Mapping[tuple[str, str], list[Way]],
    found: Sequence[_Place],
    direction: tuple[Fraction, Fraction],
    guess: int,
) -> None:
    """Check all that may happen at a place."""
    phases = [*map("".join, itertools.product("ab", repeat=guess))] if guess else ["-"]
    require(place.kept in phases, "a place that there is not")
    needed: list[tuple[str, int, bool]] = [("start", 0, False)]
    if place.one:
        needed = [("finish", 0, False)] if place.moved != "b" else []
        for know in (0, *(i + 1 for i, each in enumerate(place.kept) if each == "b")):
            for move in {"b": (False, True), "a": (False,), "-": (True,)}[place.moved]:
                needed.append(("step", know, move))
    table = {(turn["which"], turn["know"], turn["move"]): turn["ways"] for turn in turns}
    for which, know, move in needed:
        require((which, know, move) in table, "a turn is missing")
        ways = pieces[which, place.one], pieces[which, place.other]
        rules: dict[int, set[str]] = {}
        for one, shown in zip(ways[0], table[which, know, move], strict=True):
            if not _counted(one, place, know, guess):
                continue
            # one rule, whatever way the second run takes
            rule = [read_form(each) for each in shown["noise"]]
            for i, (other, pair) in enumerate(zip(ways[1], shown["pairs"], strict=True)):
                system, second = _system(place, one, other, rule, direction, which, move)
                if "why" in pair:
                    _check_support(one, other, pair["why"], len(system) - len(other.conditions))
                    require(contradict(system, pair["why"]), "two runs may take these ways")
                    continue
                rules.setdefault(i, set()).add(json.dumps(shown["noise"], sort_keys=True))
                turn = (which, know, move)
                _check_pair(place, one, other, rule, pair, found, direction, turn, system, second)
        require(
            all(len(each) == 1 for each in rules.values()), "a way does not tell how noise moved"
        )


def _check_support(one: Way, other: Way, why: Mapping[str, str], start: int) -> None:
    """Check that two ways exclude each other before the second's noise is of another support.

    Ways may be absent as exponential noise is not below 0, where the first run's noise is. What is
    used of the second's conditions, from ``start`` on, holds whatever that noise is, and after it.
    """
    kinds = enumerate(other.draws)
    first = next((k for k, draw in kinds if not supported(draw, one.draws, k)), None)
    if first is None:
        return
    later = {f"v{k}" for k in range(first, len(other.draws))}
    for index, factor in why.items():
        if exact(factor) and int(index) >= start:
            form = other.conditions[int(index) - start][0]
            require(not later & form.keys(), "a run reaches exponential noise")


def _counted(one: Way, place: _Place, know: int, guess: int) -> bool:
    """Whether the first run may end in an output of the kind that is proved of."""
    if one.after is None:
        text = str(one.released[0])
        # what is returned of what was kept are the positions guessed, in their order
        at = [text.find(mark) for mark in GUESSES[:guess]]
        return kept(text) == guess and -1 not in at and at == sorted(at)
    after = one.after.replace(NOW, _mark(know))
    # past its turn, a position that is not kept cannot be returned
    return all(
        mark in after
        for i, mark in enumerate(GUESSES[:guess])
        if place.kept[i] == "a" or know == i + 1
    )


def _mark(know: int) -> str:
    return GUESSES[know - 1] if know else OTHER


def _system(
    place: _Place,
    one: Way,
    other: Way,
    rule: Sequence[Form],
    direction: tuple[Fraction, Fraction],
    which: str,
    move: bool,
) -> tuple[list[Condition], dict[str, Form]]:
    """Return what holds where both runs take their ways, and the second's variables."""
    require(len(rule) == len(one.draws), "a move for each draw")
    moves = move and which == "step"
    second: dict[str, Form] = {"q0": {"q0": ONE, "d": ONE}} if moves else {}
    allowed = {"t"} | ({"d"} if moves else set())
    system: list[Condition] = [({"t": ONE}, False)]
    for j in range(places(place.other) if place.other else 0):
        ends = place.box[j] if j < len(place.box) else None
        if ends is None:
            second[f"q{j + 1}"] = {f"r{j + 1}": ONE}
        elif ends[0] == ends[1]:
            second[f"q{j + 1}"] = added((1, {f"q{j + 1}": ONE}), (ends[0], {"t": ONE}))
        else:
            second[f"q{j + 1}"] = {f"q{j + 1}": ONE, f"e{j + 1}": ONE}
            system += _between({f"e{j + 1}": ONE}, ends)
            allowed.add(f"e{j + 1}")
    if moves:
        system += _between({"d": ONE}, direction)
    for i, shift in enumerate(rule):
        require(shift.keys() <= allowed, "a rule of what is not known before its turn")
        second[f"v{i}"] = added((1, {f"v{i}": ONE}), (1, shift))
    for i, draw in enumerate(one.draws):
        system += support(i, draw)
    system += one.conditions
    # what holds of the second run's noise by its kind is to be shown
    system += [(replaced(form, second), strict) for form, strict in other.conditions]
    return system, second


def _between(form: Form, ends: tuple[Fraction, Fraction]) -> list[Condition]:
    low, high = ends
    return [
        (added((1, form), (-low, {"t": ONE})), False),
        (added((-1, form), (high, {"t": ONE})), False),
    ]


def _check_pair(
    place: _Place,
    one: Way,
    other: Way,
    rule: Sequence[Form],
    shown: Mapping[str, Any],
    found: Sequence[_Place],
    direction: tuple[Fraction, Fraction],
    turn: tuple[str, int, bool],
    system: list[Condition],
    second: Mapping[str, Form],
) -> None:
    """Check that two ways which both runs may take release the same, at what it costs."""
    _, know, move = turn
    require(one.draws == other.draws, "both runs draw the same noise")
    require(written(one.released[0]) == written(other.released[0]), "both runs release the same")
    for form, its in zip(one.released[1], other.released[1], strict=True):
        require(not added((1, replaced(its, second)), (-1, form)), "both release the same numbers")
    whys = iter(shown["support"])
    ends = {f"e{j + 1}": each for j, each in enumerate(place.box)} | {"d": direction}
    for i, ((kind, _), shift) in enumerate(zip(one.draws, rule, strict=True)):
        require(kind != "gaussian" or not shift, "Gaussian noise has no finite epsilon")
        if kind == "exponential":
            claim = negated((second[f"v{i}"], False))
            require(contradict([*system, claim], next(whys, {})), "noise moves below 0")
    # the largest cost at t = 1: at a corner, as it is convex
    names = sorted({name for shift in rule for name in shift} - {"t"})
    cost = Fraction(0)
    for corner in itertools.product(*(ends[name] or () for name in names)):
        at = dict(zip(names, corner, strict=True)) | {"t": ONE}
        sizes = [abs(sum((v * at[n] for n, v in shift.items()), Fraction(0))) for shift in rule]
        cost = max(
            cost, sum((s / d[1] for s, d in zip(sizes, one.draws, strict=True)), Fraction(0))
        )
    require((one.after is None) == (other.after is None), "both runs go on, or return")
    if one.after is None or other.after is None:
        require(cost <= place.left, "a turn costs more than is left")
        return
    after = found[shown["after"]]
    name = _mark(know)
    states = (one.after.replace(NOW, name), other.after.replace(NOW, name))
    phase = "".join("a" if know == i + 1 else each for i, each in enumerate(place.kept))
    reached = (phase, "a" if move and place.moved == "b" else place.moved)
    require(
        (after.kept, after.moved, after.one, after.other) == (*reached, *states),
        "a turn leads to another place",
    )
    require(cost + after.left <= place.left, "a turn costs more than is left")
    same = pattern(ast.literal_eval(states[0])) == pattern(ast.literal_eval(states[1]))
    require(same or not after.box, "differences of numbers that are not both there")
    bounds = iter(shown["bounds"])
    for interval, form, its in zip(after.box, one.numbers, other.numbers, strict=False):
        if interval is not None:
            for claim in _between(added((1, replaced(its, second)), (-1, form)), interval):
                require(
                    contradict([*system, negated(claim)], next(bounds, {})),
                    "a difference leaves its interval",
                )
    require(len(after.box) in (0, len(one.numbers)), "an interval for each number")
