r"""Proofs for every length: noise moves by a rule per symbol, and an invariant holds between turns.

A function with one loop over its answers is a start, a step and a finish (`loops`). Two runs of it
are looked at side by side, on q and on neighbouring answers q + d, the second with moved noise. A
*place* of the proof is where both are between two turns: the states' constants, and an interval
``[low t, high t]`` for the difference of each of the states' numbers, t being how far apart answers
are. In one turn the draws of the first run move by a *rule*: linear in t, in the answer's own d,
and in the differences of the states' numbers; it depends on the place and the way through the turn.

**Theorem.** Suppose that, from each place and for each two ways through a turn which both runs can
take, both release the same, draw the same noise, and come to a place of the proof, or return the
same; that all ways of the first run that can meet one way of the second have one rule; that
exponential noise stays at least 0; and that the cost of the rule, the largest
:math:`\sum |s_j| / b_j` over the place's intervals, and what is left at the next place are at most
what is left at this one. Then the program is (epsilon t)-DP at distance t for every length, epsilon
being what is left at the start.

*Proof.* Let T take the noise of the first run to that of the second. The output stays the same. T
is one to one: by induction over turns, from the moved noise the second run is known, and so is its
way through the turn, which tells the rule; with the place and the runs before it that gives the
rule's values, so the noise of the turn. In each turn the move depends on noise of this turn
only by the way through it, and else on noise before it: T is a translation on pieces, turn by
turn, of Jacobian 1. The density changes by at most :math:`e^{\epsilon t}`, as costs add up to at
most epsilon t. So P[f(q) in S], the integral over the noise that leads to S, is at most
:math:`e^{\epsilon t}` times the integral over its image, which leads to S at q + d. For geometric
noise integrals are sums, and moves are integers, as t, d and the states' numbers are.

Where a position is returned that was kept (a noisy maximum), one proof is for all positions: the
guess is where it is, and places say whether its turn has been; the runs of the first that end
otherwise have no part in it. What the second run returns shows the guess, so that T stays one to
one. Where two are returned (the two largest), there are two guesses, by their order in what is
returned; no position is kept twice. Where one answer moves, places say likewise whether it has
been; an l1 ball is one move after the other, whose distances add up.

Nothing is assumed of how rules and places were found: all conditions are linear, and each is shown
by Farkas multipliers, which `check_every` adds up.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs
from attrs import define, field, frozen

from adaptive_dp.prove.exact import Form, Inequality, contradiction, implied, plus, scaled
from adaptive_dp.prove.loops import GUESSES, OTHER, Ending, Loop, Piece, kept_in, renamed
from adaptive_dp.prove.program import Draw, supports

ZERO, ONE = Fraction(0), Fraction(1)

LIMITS = tuple(Fraction(k, 2) for k in (0, 1, 2, 3, 4, 6, 8))
"""How far apart the states' numbers are looked for, in multiples of t."""
MOST_PLACES = 4
"""So many places with the same constants; then their intervals are widened."""
MOST_TRIED = 4000
"""So many pairs of ways are looked at in one search."""
MOST_AFTER = 200
"""And so many after a proof, with two kept positions, where rules of less cost are many."""

Interval = tuple[Fraction, Fraction] | None
Why = Mapping[int, Fraction]
START = "start"


@frozen
class Place:
    """Where two runs are between turns.

    Parameters
    ----------
    kept, moved
        Whether the turn of the position that is returned (of each of two), and that of the answer
        that moves, has been (``a``), is to come (``b``), or is no matter (``-``).
    one, other
        The states of the two runs.
    box
        How far the numbers of the second are above those of the first, in multiples of t.
    """

    kept: str
    moved: str
    one: str
    other: str
    box: tuple[Interval, ...]


@frozen
class Turn:
    """A start, a turn or a finish from a place, with whether it is the moved one's.

    ``know`` is which of the guessed positions it is of, 1 or 2; or 0.
    """

    which: str
    know: int
    move: bool


@frozen
class Pair:
    """What is shown of two ways through a turn.

    Parameters
    ----------
    why
        Why both runs cannot take these; None if they can.
    shifts
        By how much each draw moves.
    support
        For each exponential draw, why it stays at least 0.
    after
        The place after it; None where both return.
    bounds
        For each number of the states after it, why its difference is in the place's interval.
    """

    why: Why | None
    shifts: tuple[Form, ...] = ()
    support: tuple[Why, ...] = ()
    after: Place | None = None
    bounds: tuple[Why, ...] = ()
    cost: Fraction = ZERO


@define
class Graph:
    """A proof that grows: rules, places, and what is shown from each."""

    rules: dict[Any, tuple[Form, ...]] = field(factory=dict)
    turns: dict[tuple[Place, Turn], list[Pair | None]] = field(factory=dict)
    widths: dict[tuple[Place, Turn], int] = field(factory=dict)
    pending: list[tuple[Place, Turn]] = field(factory=list)
    known: list[Place] = field(factory=list)

    def copy(self) -> Graph:
        """Return a copy that grows by itself."""
        return Graph(
            dict(self.rules),
            dict(self.turns),
            dict(self.widths),
            list(self.pending),
            list(self.known),
        )


@frozen
class Case:
    """One direction of moves, and outputs of one kind, with its proof."""

    low: Fraction
    high: Fraction
    one_moves: bool
    guess: int
    graph: Graph
    left: Mapping[Place, Fraction] = field()

    def epsilon(self) -> Fraction:
        """Return what is left at the start."""
        return self.left[self.start()]

    def start(self) -> Place:
        """Return the place before the function begins."""
        return begin(self.guess, self.one_moves)


def begin(guess: int, one_moves: bool) -> Place:
    """Return the place before the function begins, with so many positions guessed."""
    return Place("b" * guess or "-", "b" if one_moves else "-", START, START, ())


def turns_at(place: Place) -> list[Turn]:
    """Return what may happen at a place."""
    if place.one == START:
        return [Turn("start", 0, False)]
    turns = [
        Turn("step", know, move)
        for know in (0, *(i + 1 for i, kept in enumerate(place.kept) if kept == "b"))
        for move in {"b": (False, True), "a": (False,), "-": (True,)}[place.moved]
    ]
    # where no answer has moved to the end, neighbours are equal
    return turns if place.moved == "b" else [*turns, Turn("finish", 0, False)]


def counted(ending: Ending, place: Place, turn: Turn, guess: int) -> bool:
    """Whether an end of the first run has a part in a proof.

    What is returned of what was kept are the positions guessed, in their order.
    """
    kept = kept_in(ending.symbol)
    if ending.after is None:
        at = [ending.symbol.find(repr(mark)) for mark in GUESSES[:guess]]
        return kept == guess and -1 not in at and at == sorted(at)
    after = renamed(ending.after, named(turn.know))
    # past its turn, a position that is not kept cannot be returned
    return kept == 0 and all(
        repr(mark) in after
        for i, mark in enumerate(GUESSES[:guess])
        if place.kept[i] == "a" or turn.know == i + 1
    )


def named(know: int) -> str:
    """Return the mark of a turn's position: of one of those guessed, or of another."""
    return GUESSES[know - 1] if know else OTHER


def told_apart(pairs: Sequence[Pair | None], width: int) -> bool:
    """Whether a way of the second run shows the rule of the first: noise can be moved back."""
    return all(
        len({_frozen(pair.shifts) for pair in pairs[i::width] if pair is not None and not pair.why})
        <= 1
        for i in range(width)
    )


def _frozen(shifts: Sequence[Form]) -> tuple[Any, ...]:
    return tuple(tuple(sorted(shift.items())) for shift in shifts)


class Search:
    """A search for rules in one direction and for outputs of one kind.

    Parameters
    ----------
    loop
        The function.
    low, high
        How answers move, in multiples of t.
    one_moves
        Whether one answer does.
    guess
        How many kept positions are returned.
    by_path
        Whether rules are for each way through a turn, and not for each symbol.
    """

    def __init__(
        self,
        loop: Loop,
        low: Fraction,
        high: Fraction,
        one_moves: bool,
        guess: int,
        by_path: bool = False,
    ) -> None:
        self.by_path = by_path
        self.loop, self.low, self.high = loop, low, high
        self.one_moves, self.guess = one_moves, guess
        self.tried, self.most = 0, MOST_TRIED
        # with geometric noise answers, moves and states are integers
        self.whole = in_integers(loop)
        # places from which, with any rule, a way of the first run leads to no proof
        self.hopeless: set[Place] = set()
        # what is shown of two ways does not depend on the rules of others
        self.seen: dict[Any, Pair | None] = {}
        self.best: tuple[Fraction, Graph, dict[Place, Fraction]] | None = None
        self.enough: Fraction | None = None

    def run(self, enough: Fraction | None) -> Case | None:
        """Return the proof of the least epsilon that is found; any of at most ``enough``."""
        self.enough = enough
        graph = Graph()
        place = begin(self.guess, self.one_moves)
        graph.known.append(place)
        graph.pending.append((place, turns_at(place)[0]))
        self._grow(graph)
        if self.best is None:
            return None
        _, graph, left = self.best
        self._bounded(graph)
        return Case(self.low, self.high, self.one_moves, self.guess, graph, left)

    def _done(self) -> bool:
        return self.tried > self.most or (
            self.best is not None and self.enough is not None and self.best[0] <= self.enough
        )

    def _piece(self, state: str, turn: Turn) -> Piece:
        if state == START:
            return self.loop.start
        return (self.loop.steps if turn.which == "step" else self.loop.finishes)[state]

    def _grow(self, graph: Graph) -> None:
        """Follow a graph to its end, and try the rules of what has none yet."""
        while graph.pending and not self._done():
            if not self.hopeless.isdisjoint(graph.known):
                return
            # the newest first: what an earlier rule leads to is seen before others are chosen
            place, turn = graph.pending[-1]
            pairs: list[Pair | None] = []
            for one in self._piece(place.one, turn).endings:
                if not counted(one, place, turn, self.guess):
                    pairs += [None] * len(self._piece(place.other, turn).endings)
                    continue
                key = self._key(place, turn, one)
                if one.way.draws and key not in graph.rules:
                    fits = False
                    for rule in self._candidates(place, turn, one):
                        if self._done():
                            return
                        branch = graph.copy()
                        branch.rules[key] = rule
                        # what this rule leads to at once, before others are copied
                        if self._pairs(branch, place, turn, one) is not None:
                            fits = True
                            self._grow(branch)
                    if not fits:
                        self.hopeless.add(place)
                    return
                found = self._pairs(graph, place, turn, one)
                if found is None:
                    if not one.way.draws:
                        self.hopeless.add(place)
                    return
                pairs += found
            width = len(self._piece(place.other, turn).endings)
            if self.by_path and not told_apart(pairs, width):
                return
            graph.pending.remove((place, turn))
            graph.turns[place, turn], graph.widths[place, turn] = pairs, width
            left = self._left(graph)
            if left is None:
                return
            if self.best is not None and left[begin(self.guess, self.one_moves)] >= self.best[0]:
                return
        if graph.pending or self._done():
            return
        left = self._left(graph)
        if left is not None:
            epsilon = left[begin(self.guess, self.one_moves)]
            if self.best is None or epsilon < self.best[0]:
                self.best = (epsilon, graph, left)
                if self.guess > 1:
                    self.most = min(self.most, self.tried + MOST_AFTER)

    def _key(self, place: Place, turn: Turn, ending: Ending) -> Any:
        draws = tuple((draw.kind, draw.scale) for draw in ending.way.draws)
        return place, turn, ending.symbol, draws, ending.way.number if self.by_path else None

    def _pairs(self, graph: Graph, place: Place, turn: Turn, one: Ending) -> list[Pair] | None:
        rule = graph.rules[self._key(place, turn, one)] if one.way.draws else ()
        result = []
        for other in self._piece(place.other, turn).endings:
            self.tried += 1
            pair = self._pair(graph, place, turn, one, other, rule)
            if pair is None:
                return None
            result.append(pair)
        return result

    def _pair(
        self,
        graph: Graph,
        place: Place,
        turn: Turn,
        one: Ending,
        other: Ending,
        rule: tuple[Form, ...],
    ) -> Pair | None:
        key = place, turn, id(one), id(other), _frozen(rule)
        if key not in self.seen:
            self.seen[key] = self._shown(place, turn, one, other, rule)
        pair = self.seen[key]
        if pair is None or pair.after is None:
            return pair
        where = self._known(graph, pair.after)
        # a turn that costs something and leads back costs that for each answer
        if where in self.hopeless or (where == place and pair.cost > 0):
            return None
        return attrs.evolve(pair, after=where)

    def _shown(
        self, place: Place, turn: Turn, one: Ending, other: Ending, rule: tuple[Form, ...]
    ) -> Pair | None:
        """Return what is shown of two ways, with the narrowest intervals after them."""
        moves = turn.move and turn.which == "step"
        second = replacements(place, moves, rule)
        known = system(place, one, other, second, self.low, self.high, moves)
        why = contradiction(known)
        kinds = zip(one.way.draws, other.way.draws, strict=False)
        apart = [b.index for a, b in kinds if b.kind == "exponential" != a.kind]
        if why is not None and apart:
            # the second run's ways suppose that this noise is not below 0: before it is drawn
            later = {f"v{draw.index}" for draw in other.way.draws if draw.index >= min(apart)}
            start = len(known) - len(other.way.conditions)
            first = [
                i
                for i in range(len(known))
                if i < start or not later & other.way.conditions[i - start].form.keys()
            ]
            found = contradiction([known[i] for i in first])
            if found is None:
                return None
            why = {first[i]: factor for i, factor in found.items()}
        if why is not None:
            return Pair(why, rule)
        cost = rule_cost(rule, one.way.draws, place, moves, self.low, self.high)
        if (
            cost is None
            or one.symbol != other.symbol
            or (one.after is None) != (other.after is None)
            or [(d.kind, d.scale) for d in one.way.draws]
            != [(d.kind, d.scale) for d in other.way.draws]
        ):
            return None
        for form, its in zip(one.released, other.released, strict=True):
            if plus(replaced(its, second), scaled(form, -1)):
                return None
        support = []
        for draw, shift in zip(one.way.draws, rule, strict=True):
            if draw.kind == "exponential":
                stays = Inequality(plus({f"v{draw.index}": ONE}, shift), False)
                shown = implied(known, stays)
                if shown is None:
                    return None
                support.append(shown)
            if self.whole and any(v.denominator != 1 for v in shift.values()):
                return None
            if draw.kind == "gaussian" and shift:
                return None
        if one.after is None:
            return Pair(None, rule, tuple(support), cost=cost)
        name = named(turn.know)
        states = [renamed(str(each.after), name) for each in (one, other)]
        box: list[Interval] = []
        if shape(states[0]) == shape(states[1]):
            for form, its in zip(one.numbers, other.numbers, strict=True):
                box.append(_interval(known, plus(replaced(its, second), scaled(form, -1))))
        where = Place(
            "".join("a" if turn.know == i + 1 else k for i, k in enumerate(place.kept)),
            "a" if turn.move and place.moved == "b" else place.moved,
            states[0],
            states[1],
            tuple(box),
        )
        return Pair(None, rule, tuple(support), where, cost=cost)

    def _bounded(self, graph: Graph) -> None:
        """Add why differences are in the intervals of the places that they come to."""
        for (place, turn), pairs in graph.turns.items():
            width = graph.widths[place, turn]
            ways = [self._piece(state, turn).endings for state in (place.one, place.other)]
            moves = turn.move and turn.which == "step"
            for i, pair in enumerate(pairs):
                if pair is None or pair.after is None:
                    continue
                one, other = ways[0][i // width], ways[1][i % width]
                second = replacements(place, moves, pair.shifts)
                known = system(place, one, other, second, self.low, self.high, moves)
                bounds: list[Why] = []
                for interval, form, its in zip(
                    pair.after.box, one.numbers, other.numbers, strict=False
                ):
                    difference = plus(replaced(its, second), scaled(form, -1))
                    for claim in within(difference, interval) if interval is not None else ():
                        shown = implied(known, Inequality(claim, False))
                        assert shown is not None
                        bounds.append(shown)
                pairs[i] = attrs.evolve(pair, bounds=tuple(bounds))

    def _known(self, graph: Graph, place: Place) -> Place:
        """Return a place of the graph that holds this one; it is made where there is none."""
        same = [
            each
            for each in graph.known
            if attrs.evolve(each, box=()) == attrs.evolve(place, box=())
            and len(each.box) == len(place.box)
        ]
        if place in same:
            return place
        # where differences are known exactly moves are cheaper: that is a place of its own
        exact = all(interval is not None and interval[0] == interval[1] for interval in place.box)
        for each in same if not exact or len(same) >= MOST_PLACES else []:
            if all(_holds(a, b) for a, b in zip(each.box, place.box, strict=True)):
                return each
        if len(same) >= MOST_PLACES:
            place = attrs.evolve(
                place,
                box=tuple(
                    None if any(i is None for i in column) else _hull(column)
                    for column in zip(*(each.box for each in [*same, place]), strict=True)
                ),
            )
        graph.known.append(place)
        graph.pending += [(place, turn) for turn in turns_at(place)]
        return place

    def _left(self, graph: Graph) -> dict[Place, Fraction] | None:
        """Return the largest cost from each place on; None if a circle costs something."""
        left = dict.fromkeys(graph.known, ZERO)
        edges = [
            (place, pair.after, pair.cost)
            for (place, _), pairs in graph.turns.items()
            for pair in pairs
            if pair is not None and pair.why is None
        ]
        for _ in range(len(left) + 1):
            changed = False
            for place, after, cost in edges:
                total = cost + (left[after] if after is not None else ZERO)
                if total > left[place]:
                    left[place], changed = total, True
            if not changed:
                return left
        return None

    def _candidates(self, place: Place, turn: Turn, one: Ending) -> list[tuple[Form, ...]]:
        """Return rules for the draws of a way, the cheapest first."""
        moves = turn.move and turn.which == "step"
        draws = one.way.draws
        options: list[tuple[Form, ...]] = [()]
        for draw in draws:
            options = [
                (*before, shift)
                for before in options
                for shift in self._shifts(place, moves, one, draw, before)
            ]
        found: list[tuple[bool, Fraction, int, tuple[Form, ...]]] = []
        for i, rule in enumerate(options):
            cost = rule_cost(rule, draws, place, moves, self.low, self.high)
            if cost is not None:
                # of two positions each is held, whatever is below it: by as far as that may rise
                late = self.guess > 1 and turn.know > 0 and not self._ahead(place, moves, one, rule)
                found.append((late, cost, i, rule))
        return [rule for *_, rule in sorted(found, key=lambda each: each[:3])]

    def _ahead(self, place: Place, moves: bool, one: Ending, rule: tuple[Form, ...]) -> bool:
        """Whether a rule moves a number of this turn's as far as answers rise."""
        second = replacements(place, moves, rule)
        return any(
            plus(replaced(form, second), scaled(form, -1)) == scaled({"t": ONE}, self.high)
            for form in one.numbers
            if any(name[0] == "v" for name in form)
        )

    def _shifts(
        self, place: Place, moves: bool, one: Ending, draw: Draw, before: tuple[Form, ...]
    ) -> list[Form]:
        """Return moves for one draw: none, by t, and what keeps a form of it where it is."""
        name = f"v{draw.index}"
        if draw.kind == "gaussian":
            return [{}]
        forms: list[tuple[Form, tuple[int, ...]]] = []
        forms += [(form, (0,)) for form in one.released]
        forms += [(each.form, (0,)) for each in one.way.conditions]
        forms += [(form, (0, 1, -1)) for form in one.numbers]
        rest = replacements(place, moves, before)
        found: list[Form] = [{}]
        kept: list[Form] = []
        for form, aims in forms:
            if name not in form or any(n[0] == "v" and int(n[1:]) > draw.index for n in form):
                continue
            change = plus(replaced(form, rest), scaled(form, -1))
            if any(n[0] in "vqr" or n == "1" for n in change):
                continue
            kept += [scaled(plus(change, {"t": Fraction(-aim)}), -1 / form[name]) for aim in aims]
            own = {n: v for n, v in change.items() if n == "d"}
            kept += [
                scaled(plus(own, {"t": Fraction(-aim)}), -1 / form[name]) for aim in (0, 1, -1)
            ]
        found += kept
        found += [{"t": ONE}, {"t": -ONE}]
        unique: list[Form] = []
        for form in found:
            if form not in unique:
                unique.append(form)
        return unique


def shape(state: str) -> tuple[Any, ...]:
    """Return where a state has unknown numbers."""
    if state == START:
        return ()
    written = ast.literal_eval(state)
    return tuple(_shape(each) for each in written)


def _shape(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_shape, value))
    return value is ...


def replaced(form: Form, by: Mapping[str, Form]) -> dict[str, Fraction]:
    """Return a form with variables replaced by forms."""
    total: dict[str, Fraction] = {}
    for name, value in form.items():
        total = plus(total, scaled(by.get(name, {name: ONE}), value))
    return total


def replacements(place: Place, moves: bool, rule: Sequence[Form]) -> dict[str, Form]:
    """Return what the variables of the first run are in the second."""
    by: dict[str, Form] = {"q0": {"q0": ONE, "d": ONE}} if moves else {}
    count = 0 if place.other == START else _count(shape(place.other))
    for j in range(count):
        interval = place.box[j] if j < len(place.box) else None
        if interval is None:
            by[f"q{j + 1}"] = {f"r{j + 1}": ONE}
        elif interval[0] == interval[1]:
            by[f"q{j + 1}"] = plus({f"q{j + 1}": ONE}, {"t": interval[0]})
        else:
            by[f"q{j + 1}"] = {f"q{j + 1}": ONE, f"e{j + 1}": ONE}
    for i, shift in enumerate(rule):
        by[f"v{i}"] = plus({f"v{i}": ONE}, shift)
    return by


def _count(value: Any) -> int:
    return sum(map(_count, value)) if isinstance(value, tuple) else int(value)


def within(form: Form, interval: tuple[Fraction, Fraction]) -> list[Form]:
    """Return the two forms that are not negative where a form is in an interval, times t."""
    low, high = interval
    return [plus(form, {"t": -low}), plus(scaled(form, -1), {"t": high})]


def system(
    place: Place,
    one: Ending,
    other: Ending,
    second: Mapping[str, Form],
    low: Fraction,
    high: Fraction,
    moves: bool,
) -> list[Inequality]:
    """Return all that holds where both runs take their ways."""
    known = [Inequality({"t": ONE}, False)]
    for j, interval in enumerate(place.box):
        if interval is not None and interval[0] != interval[1]:
            known += [Inequality(f, False) for f in within({f"e{j + 1}": ONE}, interval)]
    if moves:
        known += [Inequality(f, False) for f in within({"d": ONE}, (low, high))]
    known += [*supports(one.way.draws), *one.way.conditions]
    # what holds of the second run's noise by its kind is to be shown
    known += [Inequality(replaced(each.form, second), each.strict) for each in other.way.conditions]
    return known


def rule_cost(
    rule: Sequence[Form],
    draws: Sequence[Draw],
    place: Place,
    moves: bool,
    low: Fraction,
    high: Fraction,
) -> Fraction | None:
    """Return the largest cost of a rule at t = 1; None where there is none."""
    worst = worst_corner(rule, draws, place, moves, low, high)
    return None if worst is None else worst[0]


def worst_corner(
    rule: Sequence[Form],
    draws: Sequence[Draw],
    place: Place,
    moves: bool,
    low: Fraction,
    high: Fraction,
) -> tuple[Fraction, tuple[Fraction, ...]] | None:
    """Return the largest cost of a rule at t = 1, and the sizes of its moves there.

    It is at a corner of the place's intervals, as the cost is convex. None: it has no bound.
    """
    ends: dict[str, tuple[Fraction, Fraction]] = {}
    for name in sorted({name for shift in rule for name in shift} - {"t"}):
        if name == "d" and moves:
            ends["d"] = (low, high)
        elif name[0] == "e" and (interval := place.box[int(name[1:]) - 1]) is not None:
            ends[name] = interval
        else:
            return None
    worst: tuple[Fraction, tuple[Fraction, ...]] | None = None
    for corner in itertools.product(*ends.values()):
        at = dict(zip(ends, corner, strict=True)) | {"t": ONE}
        sizes = tuple(
            abs(sum((value * at[name] for name, value in shift.items()), ZERO)) for shift in rule
        )
        cost = sum((s / draw.scale for s, draw in zip(sizes, draws, strict=True)), ZERO)
        if worst is None or cost > worst[0]:
            worst = (cost, sizes)
    return worst


def _interval(known: Sequence[Inequality], form: Form) -> Interval:
    """Return between which multiples of t a form is; None if they are far or none are found."""
    if set(form) <= {"t"}:
        exact = form.get("t", ZERO)
        return (exact, exact)
    sizes = sorted({s * k for s in LIMITS for k in (1, -1)})
    ends = []
    for side in (-1, 1):
        low, high = -1, len(sizes) - 1  # t is not negative: what holds of one holds of larger ones
        if not _below(known, form, side, sizes[high]):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if _below(known, form, side, sizes[middle]):
                high = middle
            else:
                low = middle
        ends.append(side * sizes[high])
    return (ends[0], ends[1])


def _below(known: Sequence[Inequality], form: Form, side: int, size: Fraction) -> bool:
    claim = plus(scaled(form, -side), {"t": size})
    return implied(known, Inequality(claim, False)) is not None


def _holds(wide: Interval, narrow: Interval) -> bool:
    if wide is None or narrow is None:
        return wide is None
    return wide[0] <= narrow[0] and narrow[1] <= wide[1]


def _hull(column: Sequence[Any]) -> tuple[Fraction, Fraction]:
    return min(each[0] for each in column), max(each[1] for each in column)


def endings_of(loop: Loop) -> list[Ending]:
    """Return all ways through the parts of a loop."""
    pieces = [loop.start, *loop.steps.values(), *loop.finishes.values()]
    return [ending for piece in pieces for ending in piece.endings]


def in_integers(loop: Loop) -> bool:
    """Whether noise is integers, so that answers and their moves must be."""
    return any(d.kind == "geometric" for ending in endings_of(loop) for d in ending.way.draws)


def cases_of(loop: Loop, neighbors: str, enough: Fraction | None) -> list[Case] | None:
    """Return a proof of each direction and kind of output; None if one is not found."""
    ends = endings_of(loop)
    if in_integers(loop) and any(
        value.denominator != 1
        for ending in ends
        for form in ending.numbers
        for value in form.values()
    ):
        return None  # the numbers of a state must be integers as well
    # how many kept positions are returned
    guesses = {0, *(kept_in(ending.symbol) for ending in ends if ending.after is None)}
    sides = [(-ONE, ONE)] if neighbors == "each" else [(ZERO, ONE), (-ONE, ZERO)]
    found = []
    for low, high in sides:
        for guess in sorted(guesses):
            for by_path in (False, True):
                case = Search(loop, low, high, neighbors == "one", guess, by_path).run(enough)
                if case is not None:
                    found.append(case)
                    break
            else:
                return None
    return found
