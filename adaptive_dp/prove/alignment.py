r"""The search for a proof: how noise moves when answers move, at the least cost.

Group the paths of a program by what they return (the constants, the expressions) and by their
draws, with kinds and scales. Where the union of a group's paths is convex it is a polyhedron
:math:`H = \{(q, v) : A_q q + A_v v + c \ge 0\}`; where it is not, it is split into pieces that are.

**Theorem (above).** Let d be a move of the answers, and s a move of the draws with
:math:`A_q d + A_v s \ge 0`, and which leaves the expressions as they are. Then
:math:`(q, v) \in H` implies :math:`(q + d, v + s) \in H`, a translation, which changes the density
of the noise by at most :math:`e^{\sum |s_j| / b_j}`. So the group's part of the probability (or
density) of the output at q is at most :math:`e^{\sum |s_j|/b_j}` times the same at q + d. If this
holds for every group with cost at most epsilon, for every d that neighbours allow, the program is
epsilon-DP. The pairs (d, s) of a cost at most epsilon are a convex set, so the corners of the
allowed moves suffice; and where an answer only ever enters with one sign, so does its worst side.

Numbers of the answers that are rounded to integers are answers of their own, which move by whole
steps (`Adjacency`): then the pairs (d, s) have the moves of both, and their corners suffice.

**Theorem (below).** Nothing is rounded, answers range over all of R^n, and noise is Laplace
or exponential. Let C(x) be
the least cost at a move x, by linear programming, over the groups of one output that have an
interior. The probability (or density) of the output at answers M x is, up to factors that are
polynomial in M, :math:`e^{-M C(x)}`: the least of :math:`\sum |v_j|/b_j` over the slice of a group
at M x is M times its cost up to a constant, since the optimal value of a linear programme is
piecewise linear in its right side; above, the integral over the slice is at most a polynomial times
the exponential of that, and below, it is at least that of a ball around the optimum. (Groups
without an interior have probability 0 at almost all answers, where the walk may begin.) From M x to
M (x + d) there are M moves d, which lose at most :math:`M \epsilon`. So :math:`\epsilon \ge
C(x + d) - C(x)` for all x and d: at x = 0, where each output is one group, the bound above is
tight. If no s exists, in no group of the output, the output becomes impossible, or so rare that
only Gaussian noise can bring it about, and no epsilon is finite. With geometric noise and integer
answers the same holds of groups with room for a unit cube, in which rounded optima lie.

Both are proved here (the first is the randomness alignment of Zhang and Kifer 2017, for one
translation a group); the tests compare them with exact probabilities.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import attrs
from attrs import field, frozen

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove.exact import (
    Form,
    Inequality,
    contradiction,
    implied,
    maximize,
    plus,
    scaled,
)
from adaptive_dp.prove.program import Draw, Leaf, Node, Program, Rounded, Test, Way, supports

Move = tuple[Fraction, ...]
Why = Mapping[int, Fraction]

ADJACENCIES = ("each", "one", "together", "domain", "boxes")

MOST_CORNERS = 2**14
"""More corners of one group than this are not looked at."""

INTEGERS = "answers of geometric noise are integers, and so are their moves: radius=1"

Box = tuple[tuple[Fraction, Fraction], ...]
"""For each answer, between which numbers it moves."""


@frozen
class Adjacency:
    """How far the answers of neighbours are apart.

    Parameters
    ----------
    kind
        ``each``: every answer moves by at most its radius; ``one``: one of them does (or several
        by fractions of their radius that add up to at most 1: an l1 ball); ``together``: every
        answer moves by at most its radius, and all up or all down; ``boxes``: the move is in one of
        some boxes, or its negative is: neighbours have no order.
    radii
        How far each answer moves at most.
    boxes
        Of ``boxes``.
    rounded
        What is rounded of the answers, whose moves follow. Then ``one`` is one answer: an l1 ball
        of small moves would move many rounded numbers.
    """

    kind: str = field()
    radii: tuple[Fraction, ...] = field()
    boxes: tuple[Box, ...] = ()
    rounded: tuple[Rounded, ...] = ()

    @kind.validator
    def _known(self, _: object, kind: str) -> None:
        if kind not in ADJACENCIES:
            raise DeclarationError(
                f"adjacency must be one of {', '.join(ADJACENCIES)}, got {kind!r}"
            )

    @radii.validator
    def _positive(self, _: object, radii: tuple[Fraction, ...]) -> None:
        if any(r < 0 for r in radii):
            raise DeclarationError("no radius of an adjacency is negative")

    @property
    def count(self) -> int:
        """How many numbers move: the answers, and what is rounded of them."""
        return len(self.radii) + len(self.rounded)

    def moves(self) -> tuple[Box, ...]:
        """Return boxes that have all moves, with the corners of all moves among theirs."""
        zero = Fraction(0)
        found: tuple[Box, ...]
        if self.kind == "one":
            found = tuple(
                tuple(ends if j == i else (zero, zero) for j in range(len(self.radii)))
                for i, r in enumerate(self.radii)
                for ends in ((zero, r), (-r, zero))
            )
        elif self.kind == "together":
            found = tuple((zero, r) for r in self.radii), tuple((-r, zero) for r in self.radii)
        elif self.kind == "each":
            found = (tuple((-r, r) for r in self.radii),)
        else:
            down = (tuple((-high, -low) for low, high in box) for box in self.boxes)
            found = tuple(dict.fromkeys([*self.boxes, *down]))
        return tuple(self._with_rounded(box) for box in found)

    def _with_rounded(self, box: Box) -> Box:
        r"""Return a box with the moves of what is rounded.

        Where x moves by d, between low and high: floor(x + d) is at most floor(x) + ceil(d), and so
        is ceil. Halves to even are within 1/2 of x, so that they move by at most d + 1; not at all
        where d = 0, not against d, and by d where d is an even integer. All of it from below too.
        """
        ends = list(box)
        for each in self.rounded:
            low = high = Fraction(0)
            for name, value in each.form.items():
                if name != "1":
                    its = [value * end for end in ends[int(name[1:])]]
                    low, high = low + min(its), high + max(its)
            ends.append((-_most(each.kind, -low), _most(each.kind, high)))
        return tuple(ends)

    def corners(self, signs: Sequence[frozenset[int]], *, integers: bool = False) -> Iterator[Move]:
        """Yield the moves that suffice, where answer i enters with the signs ``signs[i]``.

        Of +1 alone (a larger answer makes its conditions hold) the least move is the worst. Where
        moves must be integers, those between the corners are moves of their own. No move at all
        needs no answer.
        """
        seen: set[Move] = set()
        for box in self.moves():
            options: list[list[Fraction]] = []
            for (low, high), found in zip(box, signs, strict=True):
                sides = ([low] if 1 in found else []) + ([high] if -1 in found else [])
                if integers and any(side.denominator != 1 for side in sides):
                    raise DeclarationError(INTEGERS)
                if integers and len(sides) == 2:
                    sides = [Fraction(x) for x in range(int(low), int(high) + 1)]
                options.append(list(dict.fromkeys(sides)) or [Fraction(0)])
            size = 1
            for each in options:
                size *= len(each)
            if size > MOST_CORNERS:
                raise DeclarationError(
                    f"{size} corners of the neighbours' moves: prove it for fewer answers"
                )
            for move in itertools.product(*options):
                if any(move) and move not in seen:
                    seen.add(move)
                    yield move


def _most(kind: str, high: Fraction) -> Fraction:
    """Return how far a rounded number moves up at most, where the number does by up to high."""
    if kind != "even":
        return Fraction(math.ceil(high))
    if high <= 0 or (high.denominator == 1 and high % 2 == 0):
        return max(high, Fraction(0)) if high.denominator == 1 else Fraction(0)
    return Fraction(math.floor(high) + 1)


@frozen
class Aligned:
    """A corner, the move of the draws that answers it, and its cost; None where there is none.

    ``rate`` is the cost for real numbers, where integers find no move.
    """

    move: Move
    shifts: Mapping[int, Fraction] | None
    cost: Fraction | None
    rate: Fraction | None


@frozen(eq=False)
class Group:
    """Paths with the same output and draws whose union is a polyhedron, with how draws move.

    Parameters
    ----------
    paths
        Their numbers.
    draws
        With kinds and scales, the same on all paths.
    leaf
        What they return.
    region
        The inequalities of the polyhedron.
    inside
        For each path, why it implies each inequality; empty for one path, whose conditions these
        are.
    cover
        Why each branch that the region excludes cannot occur in it, in the order of a walk down
        the tree: what remains are the paths of the group.
    moves
        For each corner, the move of the draws.
    """

    paths: tuple[int, ...]
    draws: tuple[Draw, ...]
    leaf: Leaf
    region: tuple[Inequality, ...]
    inside: tuple[tuple[Why, ...], ...] = ()
    cover: tuple[Why, ...] = ()
    moves: tuple[Aligned, ...] = ()

    def cost(self) -> Fraction | None:
        """Return the largest cost of the corners; None where one has no answer."""
        costs = [each.cost for each in self.moves]
        found = [cost for cost in costs if cost is not None]
        return max(found, default=Fraction(0)) if len(found) == len(costs) else None


@frozen
class Bounds:
    """What a search has found of the loss.

    Parameters
    ----------
    groups
        With their moves.
    upper
        The program is upper-DP; None where this search finds no finite bound.
    lower
        No smaller epsilon holds; None where no finite one holds.
    worst
        The output and the answers that show the lower bound.
    """

    groups: tuple[Group, ...]
    joined: tuple[Joined, ...]
    upper: Fraction | None
    lower: Fraction | None
    worst: Worst | None


@frozen(eq=False)
class Joined:
    """Groups of one output between which noise moves, where one draw takes up what is returned.

    Parameters
    ----------
    groups
        Their places among the groups.
    solved
        For each expression, the draw that takes up its difference: all others stay.
    positive
        Whether an expression is known to be positive: what is possible of it does not depend on
        the answers.
    bounds
        For each group, why its expressions are not negative where they are said to be positive.
    pairs
        For each pair of groups and signs: why no move costs more than epsilon.
    cover
        Why every positive value is possible whatever the answers and the other draws are.
    epsilon
        The cost.
    steps
        Whether it is shown of neighbours alone, and not of t times their moves: where what is
        returned jumps with the answers, moves of t cost as whole ones.
    """

    groups: tuple[int, ...]
    solved: tuple[int, ...]
    positive: tuple[bool, ...]
    bounds: tuple[tuple[Why, ...], ...]
    pairs: tuple[Why, ...]
    cover: Cover
    epsilon: Fraction
    steps: bool = False


Cover = Mapping[str, "Why | int | tuple[Cover, ...]"]
"""Why a region is covered: ``{"why": ...}`` where it is empty, else by which group, and for each
condition of it why the region without that condition is covered by the others."""


# -----------------------------------------------------------------------------
# Groups.


MOST_UNITED = 1100
"""More paths than this are not tried as one polyhedron."""


def groups_of(program: Program) -> tuple[Group, ...]:
    """Return the paths of a program in convex groups."""
    paths = program.paths()
    classes: dict[object, list[Way]] = {}
    for path in paths:
        # kinds and SCALES belong to it: a translation compares equal densities alone
        key = (
            path.leaf.skeleton,
            tuple(tuple(sorted(form.items())) for form in path.leaf.forms),
            tuple((draw.index, draw.kind, draw.scale) for draw in path.draws),
        )
        classes.setdefault(key, []).append(path)
    numbers = _leaf_numbers(program)
    return tuple(
        group for members in classes.values() for group in _pieces(program, members, numbers)
    )


def _leaf_numbers(program: Program) -> dict[int, int]:
    return {id(path.leaf): path.number for path in program.paths()}


def _single(path: Way) -> Group:
    return Group((path.number,), path.draws, path.leaf, path.conditions)


def _pieces(program: Program, paths: Sequence[Way], numbers: dict[int, int]) -> Iterator[Group]:
    """Yield convex unions of paths: all together if that is one, else what greedy joining finds."""
    if len(paths) == 1:
        yield _single(paths[0])
        return
    whole = _joined(program, paths, numbers) if len(paths) <= MOST_UNITED else None
    if whole is not None:
        yield whole
        return
    pieces: list[tuple[list[Way], Group]] = []
    for path in paths:
        for i, (members, _) in enumerate(pieces if len(paths) <= 40 else []):
            joined = _joined(program, [*members, path], numbers)
            if joined is not None:
                pieces[i] = ([*members, path], joined)
                break
        else:
            pieces.append(([path], _single(path)))
    yield from (group for _, group in pieces)


def _joined(program: Program, paths: Sequence[Way], numbers: dict[int, int]) -> Group | None:
    """Return the union of paths as one polyhedron; None if it is not convex.

    Of all conditions of the paths those are kept that all paths imply: the envelope. The union is
    convex if and only if it is the envelope, which is so if in the envelope no other path can be
    followed.

    References
    ----------
    Bemporad, Fukuda and Torrisi 2001, theorem 3.
    """
    given = [[*supports(path.draws), *path.conditions] for path in paths]
    known = [set(conditions) for conditions in given]
    kept: list[Inequality] = []
    whys: list[list[Why]] = [[] for _ in paths]
    for candidate in dict.fromkeys(itertools.chain.from_iterable(given)):
        found: list[Why] = []
        for conditions, names in zip(given, known, strict=True):
            why: Why | None
            if candidate in names:  # it and its negation
                why = {conditions.index(candidate): Fraction(1), len(conditions): Fraction(1)}
            else:
                why = implied(conditions, candidate)
            if why is None:
                break
            found.append(why)
        else:
            kept.append(candidate)
            for each, why in zip(whys, found, strict=True):
                each.append(why)
    kept, whys = _without_redundant(kept, whys)
    cover = _cover(program, kept, paths[0].draws, {path.number for path in paths}, numbers)
    if cover is None:
        return None
    return Group(
        tuple(path.number for path in paths),
        paths[0].draws,
        paths[0].leaf,
        tuple(kept),
        tuple(map(tuple, whys)),
        tuple(cover),
    )


def _without_redundant(
    kept: list[Inequality], whys: list[list[Why]]
) -> tuple[list[Inequality], list[list[Why]]]:
    """Drop inequalities that the others imply: fewer to be proved."""
    stays = list(range(len(kept)))
    for i in reversed(range(len(kept))):
        rest = [j for j in stays if j != i]
        if rest and implied([kept[j] for j in rest], kept[i]) is not None:
            stays = rest
    return [kept[i] for i in stays], [[each[i] for i in stays] for each in whys]


def _cover(
    program: Program,
    region: Sequence[Inequality],
    draws: Sequence[Draw],
    members: set[int],
    numbers: dict[int, int],
) -> list[Why] | None:
    """Walk the tree within a region: why other branches cannot occur; None if another path can."""
    found: list[Why] = []
    # what is assumed comes in the order in which the checker has it: region, noise, branches
    stack: list[tuple[Node, tuple[Inequality, ...], tuple[Inequality, ...]]] = [
        (program.root, (), ())
    ]
    while stack:
        node, held, taken = stack.pop()
        if isinstance(node, Leaf):
            if numbers[id(node)] not in members:
                return None
        elif isinstance(node, Draw):
            stack.append((node.then, (*held, *supports([node])), taken))
        else:
            assert isinstance(node, Test)
            follow = []
            branches = ((node.yes, node.condition), (node.no, node.condition.negated()))
            for branch, condition in branches:
                if branch is None:
                    continue
                why = contradiction([*region, *held, *taken, condition])
                found.append(why or {})
                if why is None:
                    follow.append((branch, held, (*taken, condition)))
            stack.extend(reversed(follow))
    return found


# -----------------------------------------------------------------------------
# Moves.


def signs_of(group: Group, answers: int) -> list[frozenset[int]]:
    """Return with which signs each answer enters; both where an expression has it."""
    found: list[set[int]] = [set() for _ in range(answers)]
    for form, fixed in _rows(group):
        for i in range(answers):
            value = form.get(f"q{i}")
            if value:
                found[i] |= {1, -1} if fixed else {1 if value > 0 else -1}
    return [frozenset(each) for each in found]


def conditions_of(group: Group) -> list[Inequality]:
    """Return all that holds in a group: its region, and what holds of its noise by its kind."""
    return [*group.region, *supports(group.draws)]


def _rows(group: Group) -> list[tuple[Form, bool]]:
    """Return the forms that must not fall, and those that must not move (True)."""
    rows = {
        tuple(sorted((n, v) for n, v in each.form.items() if n != "1")): False
        for each in conditions_of(group)
    }
    for form in group.leaf.forms:
        rows[tuple(sorted((n, v) for n, v in form.items() if n != "1"))] = True
    return [(dict(key), fixed) for key, fixed in rows.items() if key]


def in_integers(draws: Sequence[Draw]) -> bool:
    """Whether noise is integers, so that answers and their moves must be."""
    return any(draw.kind == "geometric" for draw in draws)


def align(group: Group, move: Move) -> Aligned:
    """Return the least cost at which the draws answer a move of the answers.

    It solves the dual programme, which begins at 0: multipliers y of the rows, whose sum has at
    each draw a coefficient of at most 1/b in size. The draws' move are the multipliers of that.
    """
    rows = _rows(group)
    used = [
        draw
        for draw in group.draws
        # Gaussian noise does not move: no finite epsilon covers it
        if draw.kind != "gaussian" and any(f"v{draw.index}" in form for form, _ in rows)
    ]
    columns: list[tuple[Form, int]] = []
    for form, fixed in rows:
        columns.append((form, 1))
        if fixed:
            columns.append((form, -1))
    objective = [
        -sign * sum((form.get(f"q{i}", Fraction(0)) * d for i, d in enumerate(move)), Fraction(0))
        for form, sign in columns
    ]
    table: list[list[Fraction]] = []
    for draw in used:
        row = [sign * form.get(f"v{draw.index}", Fraction(0)) for form, sign in columns]
        table += [row, [-value for value in row]]
    rates = [1 / draw.scale for draw in used for _ in range(2)]
    found = maximize(objective, table, rates)
    if found.value is None:
        return Aligned(move, None, None, None)
    # of several least moves the one of few draws, those with little noise: where it is one of them
    largest = max(rates, default=Fraction(1))
    preferred = maximize(objective, table, [r * (1 - r / largest / 2**20) for r in rates])
    for optimum in (preferred, found):
        shifts = {
            draw.index: optimum.duals[2 * i] - optimum.duals[2 * i + 1]
            for i, draw in enumerate(used)
        }
        cost = sum((abs(shifts[draw.index]) / draw.scale for draw in used), Fraction(0))
        if cost == found.value:
            break
    whole = {draw.index for draw in used if draw.kind == "geometric"}
    if any(shifts[i].denominator != 1 for i in whole):
        return Aligned(move, None, None, found.value)  # integers do not move by fractions
    return Aligned(move, {i: s for i, s in shifts.items() if s}, found.value, found.value)


def search(program: Program, adjacency: Adjacency, claim: Fraction | None = None) -> Bounds:
    """Return the bounds of a program's loss, with the groups that show them."""
    adjacency = attrs.evolve(adjacency, rounded=program.rounded)
    groups = tuple(
        attrs.evolve(
            group,
            moves=tuple(
                align(group, move)
                for move in adjacency.corners(
                    signs_of(group, program.width), integers=in_integers(group.draws)
                )
            ),
        )
        for group in groups_of(program)
    )
    lower, worst = _lower(program, groups, adjacency)
    joined: list[Joined] = []
    upper: Fraction | None = Fraction(0)
    for places in _by_output(groups).values():
        costs = [groups[i].cost() for i in places]
        found = [cost for cost in costs if cost is not None]
        cost = max(found, default=Fraction(0)) if len(found) == len(costs) else None
        if len(places) > 1 and lower is not None and (cost is None or cost > lower):
            for target in _targets(lower, cost, claim, groups[places[0]]):
                together = join(groups, places, adjacency, target)
                if together is not None:
                    joined.append(together)
                    cost = target
                    break
        upper = None if upper is None or cost is None else max(upper, cost)
    # both bounds are theorems: if they contradict each other the library is wrong
    assert upper is None or (lower is not None and lower <= upper)
    return Bounds(groups, tuple(joined), upper, lower, worst)


def corners_of(program: Program, relation: Adjacency) -> int:
    """Return how many moves would have to be answered, of all paths: about what a search takes."""
    boxes = len(relation.moves())
    total = 0
    for path in program.paths():
        both = sum(len(each) == 2 for each in signs_of(_single(path), program.width))
        total += boxes * 2**both
    return total


def _by_output(groups: Sequence[Group]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        places.setdefault(group.leaf.skeleton, []).append(i)
    return places


def _targets(
    lower: Fraction, cost: Fraction | None, claim: Fraction | None, group: Group
) -> list[Fraction]:
    """Return the epsilons that a join is tried with: the least, multiples of 1/b, the claim."""
    rates = {1 / draw.scale for draw in group.draws if draw.kind == "laplace"}
    targets = {lower} | {rate * k / 2 for rate in rates for k in range(1, 9)}
    if claim is not None:
        targets = {target for target in targets if target <= claim} | {claim}
    return sorted(t for t in targets if t >= lower and t > 0 and (cost is None or t < cost))


@frozen
class Worst:
    """What the lower bound rests on: an output's groups, and the answers ``x`` and ``x + move``.

    Along M x + j move, j from 0 to M, the loss adds up to M times the bound.
    """

    groups: tuple[Group, ...]
    x: Move
    move: Move


MOST_COMPARED = 4000
"""So many pairs of a group and a move are looked at for one output's lower bound."""
FAR = 4
"""How far away from 0 answers are, in moves, where groups of one output are told apart."""


def _lower(
    program: Program, groups: Sequence[Group], adjacency: Adjacency
) -> tuple[Fraction | None, Worst | None]:
    """Return the largest lower bound that is found: of C(x + d) - C(x), over outputs, x and d."""
    best: Fraction | None = Fraction(0)
    worst: Worst | None = None
    if program.rounded:  # rounded numbers do not range over all of R^n
        return best, worst
    n = program.answers
    zero = (Fraction(0),) * n
    twice = written_twice(groups)
    for places in _by_output(groups).values():
        # a group that has no interior has probability 0: it says nothing
        members = [groups[i] for i in places]
        solid = tuple(group for group in members if _solid(group))
        # of integers: where numbers are returned it is not known whether any are possible
        unknown = any(in_integers(group.draws) and group.leaf.forms for group in members)
        # what another path may return too has more probability than its own groups have
        if not solid or unknown or members[0].leaf.skeleton in twice:
            continue
        moves = list(dict.fromkeys(each.move for group in solid for each in group.moves))
        if len(solid) * len(moves) > MOST_COMPARED:
            continue  # a smaller lower bound is one too
        starts = [zero]
        if len(solid) > 1:  # far away one of them may be nearly all of the output
            for side in (FAR, -FAR):
                starts.append(tuple(r * side for r in adjacency.radii))
        for x in starts if len(solid) * len(moves) <= 200 else starts[:1]:
            here = _least(solid, x) if any(x) else Fraction(0)
            if here is None:
                continue
            for move in moves:
                there = _least(solid, tuple(a + b for a, b in zip(x, move, strict=True)))
                if there is None:
                    return None, Worst(solid, x, move)
                if best is not None and there - here > best:
                    best, worst = there - here, Worst(solid, x, move)
    return best, worst


def written_twice(groups: Sequence[Group]) -> set[str]:
    """Return the skeletons of outputs that another path may return, with a probability, too.

    A number of whole noise may be a constant of another path. One that has a density is none.
    """
    kinds = dict.fromkeys((group.leaf.skeleton, densities_of(group)) for group in groups)
    return {
        skeleton
        for (one, densities), (other, others) in itertools.combinations(kinds, 2)
        if one != other and densities == others and alike(literal_of(one), literal_of(other))
        for skeleton in (one, other)
    }


@lru_cache(maxsize=1024)
def literal_of(skeleton: str) -> Any:
    """Return a skeleton as it is returned, with ``...`` for numbers."""
    return ast.literal_eval(skeleton)


def densities_of(group: Group) -> int:
    """Return how many of the returned numbers have a density: noise that is no whole number."""
    kinds = {f"v{draw.index}": draw.kind for draw in group.draws}
    return sum(
        any(kinds.get(name, "geometric") != "geometric" for name in form)
        for form in group.leaf.forms
    )


def is_number(value: Any) -> bool:
    """Whether a value is a number, not a truth value."""
    return isinstance(value, int | float | Fraction) and not isinstance(value, bool)


def alike(one: Any, other: Any) -> bool:
    """Whether two outputs or skeletons may be the same: ``...`` may be any number."""
    if one is ... or other is ...:
        return all(each is ... or is_number(each) for each in (one, other))
    if isinstance(one, list | tuple):
        return (
            type(one) is type(other)
            and len(one) == len(other)
            and all(alike(a, b) for a, b in zip(one, other, strict=True))
        )
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _least(groups: Sequence[Group], move: Move) -> Fraction | None:
    """Return C, the least cost of an output's groups at a move; None where all are infinite."""
    costs = [
        next((each for each in group.moves if each.move == move), None) or align(group, move)
        for group in groups
    ]
    return min((each.rate for each in costs if each.rate is not None), default=None)


def _solid(group: Group) -> bool:
    """Whether a group has an interior; of integers: whether it has room for a unit cube."""
    integers = in_integers(group.draws)
    room = []
    for each in conditions_of(group):
        size = sum((abs(v) for n, v in each.form.items() if n != "1"), Fraction(0))
        room.append(Inequality(plus(each.form, {"1": -size if integers else Fraction(0)}), True))
    return contradiction(room) is None


# -----------------------------------------------------------------------------
# One draw takes up the difference of what is returned.

MOST_JOINED = 32
"""More groups of one output than this are not joined: pairs are looked at."""


System = tuple[Mapping[str, Form], list[Inequality]]
"""The answers after a move, and what holds of the move."""


def systems(relation: Adjacency, steps: bool) -> list[System]:
    """Return the neighbours' moves ``d0, d1, ...`` at ``t`` times what they allow.

    As inequalities: of all moves together, or of each box by itself.
    """
    one = Fraction(1)
    n = range(len(relation.radii))
    radii = relation.radii
    time = Inequality({"t": one}, False)
    if relation.kind == "boxes" or relation.rounded or steps:
        found: list[System] = []
        for box in relation.moves():
            near = [time]
            for i, (low, high) in enumerate(box):
                near.append(Inequality(plus({f"d{i}": one}, {"t": -low}), False))
                near.append(Inequality(plus({f"d{i}": -one}, {"t": high}), False))
            found.append((_moved(range(len(box))), near))
        return found
    if relation.kind == "one":  # d = p - m, with sum (p + m) / r <= t
        room: dict[str, Fraction] = {"t": one}
        signs = []
        for i in n:
            for side in "pm":
                signs.append(Inequality({f"{side}{i}": one}, False))
                if radii[i]:
                    room[f"{side}{i}"] = -1 / radii[i]
                else:
                    signs.append(Inequality({f"{side}{i}": -one}, False))
        after = {f"q{i}": {f"q{i}": one, f"p{i}": one, f"m{i}": -one} for i in n}
        return [(after, [time, *signs, Inequality(room, False)])]
    near = [
        Inequality({f"d{i}": Fraction(sign), "t": radii[i]}, False) for i in n for sign in (1, -1)
    ]
    if relation.kind == "together":
        # the means of moves that are all up or all down: of the radii, within 1 of each other
        near += [
            Inequality({f"d{i}": 1 / radii[i], f"d{j}": -1 / radii[j], "t": one}, False)
            for i in n
            for j in n
            if i != j and radii[i] and radii[j]
        ]
    return [(_moved(n), [time, *near])]


def _moved(places: range) -> dict[str, Form]:
    return {f"q{i}": {f"q{i}": Fraction(1), f"d{i}": Fraction(1)} for i in places}


def _replaced(form: Form, by: Mapping[str, Form]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for name, value in form.items():
        total = plus(total, scaled(by.get(name, {name: Fraction(1)}), value))
    return total


def join(
    groups: Sequence[Group], places: Sequence[int], relation: Adjacency, epsilon: Fraction
) -> Joined | None:
    r"""Return why one output's groups together cost at most epsilon; None if this does not show it.

    Let draw k enter expression y with a coefficient that is not 0, the same in all groups. With the
    answers and the other draws fixed, and y, the draw is known: v_k(q, y). Where

    1. any two groups, at answers q and q + d, d in t times the neighbours' moves, have
       :math:`|v_k(q, y) - v_k(q + d, y)| / b_k \le t \epsilon` (at t = 0: the draw is unique, so
       that y is one to one), and
    2. the possible y do not depend on the answers,

    the density of y, the integral over the other draws of that of v_k(q, y), changes by a factor of
    at most :math:`e^\epsilon` between neighbours. For several expressions the sizes over scales add
    up. Conditions in which a draw takes part may be taken as closed: their boundaries have
    probability 0. Where this fails, since y jumps with the answers, (1) is asked at t = 1 alone,
    and that the draw is unique at t = 0, both with the conditions as they are.
    """
    members = [groups[i] for i in places]
    first = members[0]
    count = len(first.leaf.forms)
    laws = {tuple((d.index, d.kind, d.scale) for d in g.draws) for g in members}
    if in_integers(first.draws):  # boundaries have a probability there
        return None
    if len(laws) > 1 or not 1 <= count <= 3 or len(members) > MOST_JOINED:
        return None
    solved = _solving(members)
    if solved is None:
        return None
    scales = {d.index: d.scale for d in first.draws}
    for steps in (False, True):
        pairs = _pairs(members, systems(relation, steps), solved, scales, epsilon, steps)
        if pairs is not None:
            break
    else:
        return None
    for positive in itertools.product((False, True), repeat=count):
        bounds = _bounded(members, positive)
        if bounds is None:
            continue
        start = [Inequality({f"y{j}": Fraction(1)}, True) for j in range(count) if positive[j]]
        start = [*start, *supports(first.draws)]
        regions = [solved_region(group, solved) for group in members]
        cover = _covered(start, regions, list(range(len(regions))))
        if cover is not None:
            whys = tuple(pairs)
            return Joined(tuple(places), solved, positive, bounds, whys, cover, epsilon, steps)
    return None


def _pairs(
    members: Sequence[Group],
    moves: Sequence[System],
    solved: Sequence[int],
    scales: Mapping[int, Fraction],
    epsilon: Fraction,
    steps: bool,
) -> list[Why] | None:
    """Return why no two groups are further apart than epsilon; None if some are."""
    found: list[Why] = []
    for system, (one, other) in itertools.product(moves, itertools.product(members, members)):
        for claim, time in claims(solved, scales, epsilon, steps):
            why = contradiction(pair_system(one, other, system, solved, claim, time))
            if why is None:
                return None
            found.append(why)
    return found


def claims(
    solved: Sequence[int], scales: Mapping[int, Fraction], epsilon: Fraction, steps: bool
) -> Iterator[tuple[Form, int | None]]:
    """Yield what cannot be positive of two groups, and at which t: None for any t."""
    one = Fraction(1)
    for signs in itertools.product((1, -1), repeat=len(solved)):
        cost: Form = {"t": -epsilon}
        for k, sign in zip(solved, signs, strict=True):
            cost = plus(cost, {f"w{k}": sign / scales[k], f"v{k}": -sign / scales[k]})
        yield cost, 1 if steps else None
    if steps:  # at t = 0 the draw is unique
        for k, sign in itertools.product(solved, (1, -1)):
            yield {f"w{k}": sign * one, f"v{k}": -sign * one}, 0


def _solving(members: Sequence[Group]) -> tuple[int, ...] | None:
    """Return a draw for each expression, which no other has, with one coefficient in all groups."""
    found: list[int] = []
    for j in range(len(members[0].leaf.forms)):
        for draw in members[0].draws:
            name = f"v{draw.index}"
            values = {group.leaf.forms[j].get(name) for group in members}
            elsewhere = any(
                name in form
                for group in members
                for i, form in enumerate(group.leaf.forms)
                if i != j
            )
            if draw.kind == "laplace" and len(values) == 1 and None not in values and not elsewhere:
                found.append(draw.index)
                break
        else:
            return None
    return tuple(found)


def pair_system(
    one: Group,
    other: Group,
    moves: System,
    solved: Sequence[int],
    claim: Form,
    time: int | None,
) -> list[Inequality]:
    """Return what cannot hold if a move costs at most epsilon: two groups, one y, a larger move."""
    answers, allowed = moves
    after = dict(answers) | {f"v{k}": {f"w{k}": Fraction(1)} for k in solved}
    system = conditions_of(one)
    system += [Inequality(_replaced(each.form, after), each.strict) for each in other.region]
    for form, its in zip(one.leaf.forms, other.leaf.forms, strict=True):
        difference = plus(form, scaled(_replaced(its, after), -1))
        system += [Inequality(difference, False), Inequality(scaled(difference, -1), False)]
    if time is None:  # closed: a supremum over the closure is an upper bound
        system = [Inequality(each.form, False) for each in system]
    else:
        at = {"t": Fraction(1), "1": Fraction(-time)}
        system += [Inequality(at, False), Inequality(scaled(at, -1), False)]
    return [*system, *allowed, Inequality(claim, True)]


def solved_region(group: Group, solved: Sequence[int]) -> list[Inequality]:
    """Return a group's conditions in the answers, the other draws and what is returned."""
    by: dict[str, Form] = {}
    for j, (k, form) in enumerate(zip(solved, group.leaf.forms, strict=True)):
        rest = {name: value for name, value in form.items() if name != f"v{k}"}
        by[f"v{k}"] = scaled(plus({f"y{j}": Fraction(1)}, scaled(rest, -1)), 1 / form[f"v{k}"])
    region = []
    for each in group.region:
        noisy = any(name[0] == "v" for name in each.form)
        # a boundary that noise is on has probability 0; of answers alone it has not
        region.append(Inequality(_replaced(each.form, by), each.strict and not noisy))
    return region


def _bounded(
    members: Sequence[Group], positive: Sequence[bool]
) -> tuple[tuple[Why, ...], ...] | None:
    result = []
    for group in members:
        whys = []
        for form, above in zip(group.leaf.forms, positive, strict=True):
            if above:
                why = implied(conditions_of(group), Inequality(form, False))
                if why is None:
                    return None
                whys.append(why)
        result.append(tuple(whys))
    return tuple(result)


def _covered(
    assumed: list[Inequality], regions: Sequence[Sequence[Inequality]], left: list[int]
) -> Cover | None:
    why = contradiction(assumed)
    if why is not None:
        return {"why": why}
    for i in left:
        if contradiction([*assumed, *regions[i]]) is None:
            break
    else:
        return None
    rest = [j for j in left if j != i]
    inner: list[Cover] = []
    conditions = list(assumed)
    for each in regions[i]:
        below = _covered([*conditions, each.negated()], regions, rest)
        if below is None:
            return None
        inner.append(below)
        conditions.append(each)
    return {"by": i, "without": tuple(inner)}
