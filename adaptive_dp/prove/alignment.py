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

**Theorem (below).** Answers range over all of R^n. Let C(d) be the least cost of a group at d, by
linear programming. The probability of the output at q + M d is at most a polynomial in M times
:math:`e^{-M \min C(d)}`, over the groups of that output (the least of :math:`\sum |v_j|/b_j` over
the slice of H at q + M d is M C(d) up to a constant, since the optimal value of a linear programme is
piecewise linear in its right side). With epsilon, M steps d lose at most :math:`M \epsilon`. So
:math:`\epsilon \ge \min C(d)`: where each output is one group, the bound above is tight. If no s
exists, in no group of the output, the output becomes impossible, and no epsilon is finite.

Both are proved here (the first is the randomness alignment of Zhang and Kifer 2017, for one
translation a group); the tests compare them with exact probabilities.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import attrs
from attrs import field, frozen

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove.exact import (
    Form,
    Inequality,
    contradiction,
    implied,
    maximize,
)
from adaptive_dp.prove.program import Draw, Leaf, Node, Path_, Program, Test, supports

Move = tuple[Fraction, ...]
Why = Mapping[int, Fraction]

ADJACENCIES = ("each", "one", "together")

MOST_CORNERS = 2**14
"""More corners of one group than this are not looked at."""


@frozen
class Adjacency:
    """How far the answers of neighbours are apart.

    Parameters
    ----------
    kind
        ``each``: every answer moves by at most its radius; ``one``: one of them does (or several
        by fractions of their radius that add up to at most 1: an l1 ball); ``together``: every
        answer moves by at most its radius, and all up or all down.
    radii
        How far each answer moves; 1 by default.
    """

    kind: str = field()
    radii: tuple[Fraction, ...] = field()

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

    def corners(self, signs: Sequence[frozenset[int]]) -> Iterator[Move]:
        """Yield the moves that suffice, where answer i enters with the signs ``signs[i]``.

        Of +1 alone (a larger answer makes its conditions hold) the least move is the worst.
        """
        zero = Fraction(0)
        if self.kind == "one":
            for i, r in enumerate(self.radii):
                for side in (1, -1):
                    if -side in signs[i]:
                        yield tuple(side * r if j == i else zero for j in range(len(self.radii)))
            return
        for low, high in {"each": [(-1, 1)], "together": [(0, 1), (-1, 0)]}[self.kind]:
            options: list[list[Fraction]] = []
            for r, found in zip(self.radii, signs, strict=True):
                sides = ([low] if 1 in found else []) + ([high] if -1 in found else [])
                options.append([r * side for side in sides] or [zero])
            size = 1
            for each in options:
                size *= len(each)
            if size > MOST_CORNERS:
                raise DeclarationError(
                    f"{size} corners of the neighbours' moves: prove it for fewer answers"
                )
            yield from itertools.product(*options)


@frozen
class Aligned:
    """A corner, the move of the draws that answers it, and its cost; None where there is none."""

    move: Move
    shifts: Mapping[int, Fraction] | None
    cost: Fraction | None


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
        The output and corner of the lower bound: a group and a move.
    """

    groups: tuple[Group, ...]
    upper: Fraction | None
    lower: Fraction | None
    worst: tuple[Group, Aligned] | None


# -----------------------------------------------------------------------------
# Groups.


def groups_of(program: Program) -> tuple[Group, ...]:
    """Return the paths of a program in convex groups."""
    paths = program.paths()
    classes: dict[object, list[Path_]] = {}
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


def _single(path: Path_) -> Group:
    region = tuple(dict.fromkeys((*supports(path.draws), *path.conditions)))
    return Group((path.number,), path.draws, path.leaf, region)


def _pieces(program: Program, paths: Sequence[Path_], numbers: dict[int, int]) -> Iterator[Group]:
    """Yield convex unions of paths: all together if that is one, else what greedy joining finds."""
    if len(paths) == 1:
        yield _single(paths[0])
        return
    whole = _joined(program, paths, numbers)
    if whole is not None:
        yield whole
        return
    pieces: list[tuple[list[Path_], Group]] = []
    for path in paths:
        for i, (members, _) in enumerate(pieces if len(paths) <= 40 else []):
            joined = _joined(program, [*members, path], numbers)
            if joined is not None:
                pieces[i] = ([*members, path], joined)
                break
        else:
            pieces.append(([path], _single(path)))
    yield from (group for _, group in pieces)


def _joined(program: Program, paths: Sequence[Path_], numbers: dict[int, int]) -> Group | None:
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


def _rows(group: Group) -> list[tuple[Form, bool]]:
    """Return the forms that must not fall, and those that must not move (True)."""
    rows = {tuple(sorted((n, v) for n, v in each.form.items() if n != "1")): False
            for each in group.region}
    for form in group.leaf.forms:
        rows[tuple(sorted((n, v) for n, v in form.items() if n != "1"))] = True
    return [(dict(key), fixed) for key, fixed in rows.items() if key]


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
    bounds: list[Fraction] = []
    for draw in used:
        row = [sign * form.get(f"v{draw.index}", Fraction(0)) for form, sign in columns]
        table += [row, [-value for value in row]]
        bounds += [1 / draw.scale] * 2
    found = maximize(objective, table, bounds)
    if found.value is None:
        return Aligned(move, None, None)
    shifts = {
        draw.index: found.duals[2 * i] - found.duals[2 * i + 1] for i, draw in enumerate(used)
    }
    return Aligned(move, {i: s for i, s in shifts.items() if s}, found.value)


def search(program: Program, adjacency: Adjacency) -> Bounds:
    """Return the bounds of a program's loss, with the groups that show them."""
    groups = tuple(
        attrs.evolve(
            group,
            moves=tuple(
                align(group, move) for move in adjacency.corners(signs_of(group, program.answers))
            ),
        )
        for group in groups_of(program)
    )
    costs = [group.cost() for group in groups]
    known = [cost for cost in costs if cost is not None]
    upper = max(known, default=Fraction(0)) if len(known) == len(costs) else None
    lower, worst = _lower(program, groups)
    return Bounds(groups, upper, lower, worst)


def _lower(
    program: Program, groups: Sequence[Group]
) -> tuple[Fraction | None, tuple[Group, Aligned] | None]:
    """Return the largest lower bound, over outputs and moves; the least over an output's groups."""
    best: Fraction | None = Fraction(0)
    worst: tuple[Group, Aligned] | None = None
    by_output: dict[str, list[Group]] = {}
    for group in groups:
        by_output.setdefault(group.leaf.skeleton, []).append(group)
    for members in by_output.values():
        # a group that has no interior has probability 0: it says nothing
        solid = [group for group in members if _solid(group)]
        if not solid:
            continue
        moves = {each.move: None for group in solid for each in group.moves}
        for move in moves:
            answers = [
                next((each for each in group.moves if each.move == move), None) or align(group, move)
                for group in solid
            ]
            finite = [a.cost for a in answers if a.cost is not None]
            if not finite:
                return None, (solid[0], answers[0])
            cost = min(finite)
            if best is not None and cost > best:
                at = next(i for i, a in enumerate(answers) if a.cost == cost)
                best, worst = cost, (solid[at], answers[at])
    return best, worst


def _solid(group: Group) -> bool:
    return contradiction([Inequality(each.form, True) for each in group.region]) is None
