r"""Programs with Gaussian noise: their zCDP, by the least norm of one move of all draws.

**Theorem.** Let all draws be Gaussian, the same on all paths. If for a move d of the answers there
is a move s of the draws by which no condition of any path falls, and every returned expression
stays where it is, then the program at q with draws v does what it does at q + d with draws
v + s: its output is one function of v in the one case, and the same function of v + s in the other.
By data processing it is as private as Gaussian noise under a shift by s: mu-GDP, and rho-zCDP, with

.. math:: \mu^2 = 2 \rho = \sum s_j^2 / \sigma_j^2 .

The least such norm is convex in d, so the corners of the allowed moves suffice. Where the program
returns expressions alone, whatever the path, their law is normal, and the least norm is the exact
distance: no smaller rho holds.

**Theorem (Gaussian noise beside other noise).** Let there be, for a move d of the answers, one move
s of all Gaussian draws, and for each group of paths a move of its other draws, which together map
the group into itself at q + d and leave what it returns where it is, at a cost of the other draws
of at most a; and the same for the move -d, with -s. Reveal the Gaussian draws v first, u = v before
the move and u = v - s after it: a Gaussian pair with :math:`\mu^2 = \sum s_j^2 / \sigma_j^2`.
Given u, the draws that are left answer the move, group by group, at a cost of a: the conditional
laws are within :math:`e^{\pm a}` of each other. So the program is a function of the adaptive
composition of Gaussian noise with an a-DP mechanism, and its delta at most that of the two
dominating pairs' product (Zhu, Dong and Wang 2022, theorem 10). Draws on some paths alone count as
drawn on all. Where one move of Laplace draws answers all groups, it is a product of shifted laws,
each dominated by that of a larger shift.

It is a quadratic programme; a move is looked for by adding violated conditions to the equations
one by one, so that it need not be the least where conditions bind: then it is a bound all the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
from attrs import field, frozen

from accountants.numerics import shown, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove import checker
from adaptive_dp.prove.alignment import (
    Adjacency,
    Group,
    Move,
    align,
    conditions_of,
    groups_of,
    in_integers,
    written_twice,
)
from adaptive_dp.prove.cells import NOTHING, Enclosed, enclosed, exponential
from adaptive_dp.prove.exact import (
    Form,
    Inequality,
    plus,
    scaled,
    shown_form,
    shown_number,
    value_of,
)
from adaptive_dp.prove.laws import NoLaw, logarithm
from adaptive_dp.prove.program import Draw, Leaf, Program, ProgramError, Way, unroll
from adaptive_dp.prove.verdicts import (
    Neighbors,
    Proved,
    Radius,
    Result,
    Undecided,
    above_words,
    adjacency,
    claimed_number,
    count_words,
    groups_written,
    needs_integers,
    nodes_of,
    relation_of,
    relation_words,
    starts_of,
)

ZERO = Fraction(0)
MOST_LOOKED_AT, MOST_CUT = 36, 64
"""So many pairs of answers are looked at for the lower end of a largest delta, twice; and into so
many cells what is returned is cut."""


def concentrated(
    function: Callable[..., Any],
    *,
    answers: int,
    rho: float | Fraction | None = None,
    neighbors: Neighbors = "each",
    radius: Radius = 1,
) -> Result:
    r"""Prove that a program with Gaussian noise is rho-zCDP, or say what keeps it open.

    Parameters
    ----------
    function, answers, neighbors, radius
        As of `prove`; all noise is Gaussian, and the same on all paths.
    rho
        The claim; None for the least that is found.

    Returns
    -------
    Proved or Undecided
        Its ``epsilon`` and ``least`` are rho.

    Raises
    ------
    ProgramError
        If the function cannot be followed, or draws other noise.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def sums(answers, noise):
    ...     total = answers.sum() + noise.gaussian(2, "total")
    ...     return total, answers[0] + noise.gaussian(3, "first")
    >>> print(prove.concentrated(sums, answers=2, neighbors="one", rho=0.2))
    PROVED: sums is 0.2-zCDP for 2 answers, where one answer moves by at most 1.
    The worst move costs 13/72; no smaller rho holds...
    """
    program = unroll(function, answers)
    relation = attrs.evolve(adjacency(neighbors, answers, radius), rounded=program.rounded)
    claim = None if rho is None else Fraction(repr(float(rho)) if isinstance(rho, float) else rho)
    if claim is not None and claim < 0:
        raise DeclarationError(f"rho must be at least 0, got {rho!r}")
    paths = program.paths()
    draws = paths[0].draws
    if any(draw.kind != "gaussian" for path in paths for draw in path.draws):
        raise ProgramError(
            f"{program.name} draws noise that is not Gaussian: prove.prove finds its epsilon"
        )
    if len({tuple((d.index, d.scale) for d in path.draws) for path in paths}) > 1:
        raise ProgramError(
            f"{program.name} does not draw the same noise on all paths: draw it all before the "
            "first comparison"
        )
    rising = _distinct(each.form for path in paths for each in path.conditions)
    fixed = _distinct(form for path in paths for form in path.leaf.forms)
    scales = {f"v{draw.index}": draw.scale for draw in draws}
    moves: list[tuple[Move, dict[str, Fraction], Fraction]] = []
    binding = False
    for move in relation.corners([frozenset({1, -1})] * program.width):
        found = _least_norm(rising, fixed, move, scales)
        if found is None:
            return Undecided(
                program.name, answers, relation, claim, 0.0, float("inf"),
                "No single move of the draws answers "
                f"({', '.join(map(shown_number, move))}) on all paths.",
            )  # fmt: skip
        shifts, bound = found
        cost = sum((s * s / (2 * scales[name] ** 2) for name, s in shifts.items()), ZERO)
        binding = binding or bound
        moves.append((move, shifts, cost))
    least = max((cost for _, _, cost in moves), default=ZERO)
    if claim is not None and least > claim:
        return Undecided(
            program.name, answers, relation, claim, 0.0, float(least),
            "rho, and not epsilon: a move of the draws costs more than the claim.",
        )  # fmt: skip
    everywhere = not program.rounded and all(_distinct(path.leaf.forms) == fixed for path in paths)
    epsilon = least if claim is None else claim
    nodes, _ = nodes_of(program)
    document = {
        "format": checker.FORMAT,
        "name": program.name,
        "answers": answers,
        **relation_of(program, relation),
        "rho": str(epsilon),
        "program": nodes,
        "moves": [
            {
                "answers": [str(d) for d in move],
                "noise": {name[1:]: str(s) for name, s in shifts.items()},
            }
            for move, shifts, _ in moves
        ],
    }
    checker.check(document)
    return Proved(
        program.name,
        answers,
        relation,
        epsilon,
        least,
        not binding and everywhere,
        shown_number(least),
        document,
        tuple(
            f"when the answers move by ({', '.join(map(shown_number, move))}), move "
            + (", ".join(f"{n} by {shown_number(s)}" for n, s in shifts.items()) or "no noise")
            + f"; cost {shown_number(cost)}."
            for move, shifts, cost in sorted(moves, key=lambda each: -each[2])[:8]
        ),
        "rho",
    )


def _distinct(forms: Any) -> list[Form]:
    rows = {
        tuple(sorted((name, value) for name, value in form.items() if name != "1")): None
        for form in forms
    }
    return [dict(row) for row in rows if row]


def _least_norm(
    rising: Sequence[Form], fixed: Sequence[Form], move: Move, scales: Mapping[str, Fraction]
) -> tuple[dict[str, Fraction], bool] | None:
    """Return the move of the draws, and whether a condition binds; None if none is found."""

    def change(form: Form, shifts: Mapping[str, Fraction]) -> Fraction:
        moved = {f"q{i}": d for i, d in enumerate(move)} | dict(shifts)
        return sum((value * moved.get(name, ZERO) for name, value in form.items()), ZERO)

    active = list(fixed)
    while True:
        shifts = _solved(active, [-change(form, {}) for form in active], scales)
        if shifts is None:
            return None
        violated = [form for form in rising if change(form, shifts) < 0]
        if not violated:
            return {n: s for n, s in shifts.items() if s}, len(active) > len(fixed)
        # equality is more than is asked for: a bound, not always the least
        active.append(min(violated, key=lambda form: change(form, shifts)))


def _solved(
    rows: Sequence[Form], sides: Sequence[Fraction], scales: Mapping[str, Fraction]
) -> dict[str, Fraction] | None:
    """Return the least s, in sum s^2/sigma^2, with given products: s = sigma^2 A' y."""
    size = len(rows)
    matrix = [
        [
            sum((a.get(n, ZERO) * b.get(n, ZERO) * scale**2 for n, scale in scales.items()), ZERO)
            for b in rows
        ]
        + [side]
        for a, side in zip(rows, sides, strict=True)
    ]
    pivots: list[int] = []
    at = 0
    for column in range(size):
        row = next((i for i in range(at, size) if matrix[i][column]), None)
        if row is None:
            continue
        matrix[at], matrix[row] = matrix[row], matrix[at]
        lead = matrix[at][column]
        matrix[at] = [value / lead for value in matrix[at]]
        for i in range(size):
            factor = matrix[i][column]
            if i != at and factor:
                matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[at], strict=True)]
        pivots.append(column)
        at += 1
    if any(matrix[i][-1] for i in range(at, size)):
        return None
    y = [ZERO] * size
    for i, column in enumerate(pivots):
        y[column] = matrix[i][-1]
    return {
        name: scale**2
        * sum((v * row.get(name, ZERO) for v, row in zip(y, rows, strict=True)), ZERO)
        for name, scale in scales.items()
    }


@frozen
class LargestDelta:
    """A proof of the delta that an epsilon needs, over all neighbours, and what it is at least.

    Parameters
    ----------
    name, answers, neighbors
        Of the function: for how many answers, and how they may differ.
    epsilon, delta
        What is proved: the program is (epsilon, delta)-DP.
    low, high
        Two neighbours need as much as `low`: those at ``at`` and ``neighbor``; none need more than
        `high`, which is delta as a float, rounded up.
    pure, mu
        What `delta` is of: an adaptive composition of pure loss with mu-Gaussian DP.
    document
        The proof, as JSON can hold it: `adaptive_dp.prove.check` checks it.
    words
        The proof in words, for people.
    claim
        The delta that was claimed, if one was.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def value(answers, noise):
    ...     return answers[0] + noise.gaussian(2)
    >>> found = prove.largest_delta(value, answers=1, epsilon=0.5)
    >>> found.low <= found.high, found.pure, round(found.mu, 9)
    (True, 0.0, 0.5)
    >>> prove.check(found.document)
    Fraction(1, 2)
    """

    name: str
    answers: int
    neighbors: Adjacency
    epsilon: Fraction
    delta: Fraction
    low: float
    high: float
    pure: float
    mu: float
    at: tuple[Fraction, ...] | None
    neighbor: tuple[Fraction, ...] | None
    document: Mapping[str, Any] = field(repr=False, eq=False)
    words: tuple[str, ...] = field(repr=False, eq=False)
    claim: Fraction | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the claimed delta is proved; False: two neighbours need more; None: open."""
        if self.claim is None or self.delta <= self.claim:
            return True
        return False if Fraction(self.low) > self.claim else None

    def __str__(self) -> str:
        where = f"for {count_words(self.answers)}, where {relation_words(self.neighbors)}."
        claimed, epsilon = shown_number(self.claim or ZERO), shown_number(self.epsilon)
        lines = []
        if self.holds is False:
            lines += [f"REFUTED: {self.name} is not ({epsilon}, {claimed})-DP {where}"]
        elif self.holds is None:
            lines += [f"UNDECIDED: whether {self.name} is ({epsilon}, {claimed})-DP {where}"]
        lines += [
            f"PROVED: {self.name} is ({epsilon}, {above_words(self.delta)})-DP {where}",
            f"Its loss is at most {self.pure:.9g}-DP, composed with {self.mu:.9g}-Gaussian DP.",
        ]
        if self.at is not None and self.neighbor is not None:
            pair = (f"({', '.join(map(shown_number, x))})" for x in (self.at, self.neighbor))
            least = shown(self.low, upward=False)
            lines.append(f"Answers {' and '.join(pair)} need a delta of at least {least}.")
        return "\n".join([*lines, *self.words])


def largest_delta(
    function: Callable[..., Any],
    *,
    answers: int,
    epsilon: float | Fraction,
    delta: float | Fraction | None = None,
    neighbors: Neighbors = "each",
    radius: Radius = 1,
) -> LargestDelta:
    """Prove the delta that an epsilon needs, over all neighbouring answers.

    For programs that mix Gaussian noise with other noise, and for either alone.

    Parameters
    ----------
    function, answers, neighbors, radius
        As of `prove`.
    epsilon
        The claim's epsilon.
    delta
        The claim's delta; None for the least that is found.

    Returns
    -------
    LargestDelta
        The upper end is of a composition, and has a proof that travels; the lower one of two
        vectors of answers, and of what is returned, of numbers in which of some intervals they are.

    Raises
    ------
    ProgramError
        If the function cannot be followed.
    DeclarationError
        If no moves of the noise are found that answer the neighbours' moves.

    Examples
    --------
    A test with Laplace noise, and a sum with Gaussian noise:

    >>> from adaptive_dp import prove
    >>> def both(answers, noise):
    ...     return answers[0] + noise.laplace(2) > 3, answers[1] + noise.gaussian(4)
    >>> print(prove.largest_delta(both, answers=2, epsilon=0.5))
    PROVED: both is (0.5, 0.05363...)-DP for 2 answers, where every answer moves by at most 1.
    Its loss is at most 0.5-DP, composed with 0.25-Gaussian DP...
    """
    size = claimed_number("epsilon", epsilon)
    claim = None if delta is None else claimed_number("delta", delta)
    program = unroll(function, answers)
    relation = attrs.evolve(adjacency(neighbors, answers, radius), rounded=program.rounded)
    groups = groups_of(program)
    ball = relation.kind == "one" and any(r > 1 for r in relation.radii)
    if ball and any(in_integers(group.draws) for group in groups):
        raise DeclarationError("geometric noise with neighbors='one' needs radii of at most 1")
    found = [
        (checker.largest_delta(each.losses, each.mu, size), each)
        for each in _compositions(program, groups, relation)
    ]
    if not found:
        raise DeclarationError(
            f"no moves of the noise of {program.name} answer the neighbours' moves, with one move "
            "of its Gaussian draws on all paths: prove.delta bounds delta between two vectors"
        )
    least, best = min(found, key=lambda each: each[0])
    least = _short(least)
    document = {
        "format": checker.FORMAT,
        "name": program.name,
        "answers": answers,
        **relation_of(program, relation),
        "epsilon": str(size),
        "delta": f"{Decimal(least.numerator) / least.denominator:f}",  # few digits, a power of 10
        "mu": str(best.mu),
        "losses": [[str(shift), cells] for shift, cells in best.losses],
        "alone": best.alone,
        **groups_written(program, groups),
        "moves": [each.written(best.alone) for each in best.rows],
    }
    # the search has no part in whether it is a proof
    checker.check(document)
    low, at, neighbor = _lower_end(program, groups, relation, size)
    pure = sum((shift for shift, _ in best.losses), ZERO)
    return LargestDelta(
        program.name, answers, relation, size, least, low, up(float(least)), float(pure),
        float(best.mu), at, neighbor, document, tuple(_words(program, groups, best)), claim,
    )  # fmt: skip


def _short(value: Fraction) -> Fraction:
    """Return a number of 12 digits or so that is not below another."""
    places = Fraction(1)
    while value and value * places < 10**11:
        places *= 10
    return min(Fraction(math.ceil(value * places)) / places, Fraction(1))


@frozen
class _Row:
    """A corner, how Gaussian draws answer it (by index and scale), and others, group by group.

    Of each group the moves for the corner and for its negative; of one move of all draws that alone
    is in `noise`.
    """

    move: Move
    gaussian: Mapping[tuple[int, Fraction], Fraction]
    noise: tuple[tuple[Mapping[int, Fraction], ...], ...]

    def square(self) -> Fraction:
        return sum((s * s / scale**2 for (_, scale), s in self.gaussian.items()), ZERO)

    def written(self, alone: bool) -> dict[str, Any]:
        return {
            "answers": list(map(str, self.move)),
            "gaussian": [[i, str(scale), str(s)] for (i, scale), s in self.gaussian.items()],
            "noise": [
                [{str(i): str(s) for i, s in shifts.items() if s} for shifts in each]
                for each in self.noise
            ],
        }


@frozen
class _Composition:
    """What bounds a program's loss: see `adaptive_dp.prove.checker.largest_delta`."""

    losses: tuple[tuple[Fraction, int], ...]
    mu: Fraction
    alone: bool
    rows: tuple[_Row, ...]


CELLS = 240
"""So many cells, or a few more, has the sum of the losses of Laplace draws."""


def _compositions(
    program: Program, groups: Sequence[Group], relation: Adjacency
) -> Iterator[_Composition]:
    """Yield compositions that bound the program's loss: Gaussian noise with pure losses."""
    whole = any(in_integers(group.draws) for group in groups)
    both = [frozenset({1, -1})] * program.width
    corners = set(relation.corners(both, integers=whole))
    # of a move and its negative one: the same draws answer both
    moves = [m for m in corners if tuple(-x for x in m) not in corners or m > tuple(-x for x in m)]
    for mixed in (False, True):
        answered = [_answered(program, groups, move, mixed) for move in sorted(moves)]
        if any(each is None for each in answered):
            continue
        rows = tuple(each[1] for each in answered if each is not None)
        pure = max((each[0] for each in answered if each is not None), default=ZERO)
        mu = _root_above(max((row.square() for row in rows), default=ZERO))
        yield _Composition(((pure, 1),), mu, False, rows)
    single = _one_move(program, groups, sorted(moves))
    if single is not None:
        shifts = [
            max((abs(row.noise[0][0].get(d.index, ZERO)) / d.scale for row in single), default=ZERO)
            for d in groups[0].draws
            if d.kind == "laplace"
        ]
        mu = _root_above(max((row.square() for row in single), default=ZERO))
        # one width of cells: a longest common one, or shifts are rounded up to many of it
        total = sum(shifts, ZERO)
        width = Fraction(
            math.gcd(*(x.numerator for x in shifts)), math.lcm(*(x.denominator for x in shifts), 1)
        )
        if width:
            width = total / CELLS if total > 2 * CELLS * width else width
            width /= max(1, math.ceil(CELLS * width / total))
        losses = []
        for shift in shifts:
            cells = math.ceil(shift / width) if shift else 1
            losses.append((cells * width if shift else ZERO, cells))
        yield _Composition(tuple(losses), mu, True, single)


def _root_above(square: Fraction) -> Fraction:
    """Return a number whose square is at least another: its root, where that is a fraction."""
    if not square:
        return ZERO
    product = square.numerator * square.denominator
    if math.isqrt(product) ** 2 == product:
        return Fraction(math.isqrt(product), square.denominator)
    places = 10**15
    scale = math.ceil(1 / square) * places**2
    return Fraction(math.isqrt(math.floor(square * scale)) + 1, math.isqrt(scale))


def _words(program: Program, groups: Sequence[Group], proof: _Composition) -> Iterator[str]:
    """Yield the proof in words: of the worst corners, which draw moves by how much."""

    def moved(shifts: Mapping[int, Fraction], draws: Sequence[Draw]) -> tuple[list[str], Fraction]:
        its = [draw for draw in draws if shifts.get(draw.index)]
        words = [
            f"v{draw.index} ({draw.kind} {shown_number(draw.scale)}) by "
            f"{shown_number(shifts[draw.index])}"
            for draw in its
        ]
        return words, sum((abs(shifts[draw.index]) / draw.scale for draw in its), ZERO)

    def cost(row: _Row) -> tuple[Fraction, Fraction]:
        each = zip(groups, row.noise, strict=False)
        return max((moved(n[0], g.draws)[1] for g, n in each), default=ZERO), row.square()

    if any(needs_integers(group, program.answers) for group in groups):
        yield "Its answers are integers, as geometric noise is."
    for row in sorted(proof.rows, key=cost, reverse=True)[:2]:
        words = [
            f"v{i} (gaussian {shown_number(scale)}) by {shown_number(s)}"
            for (i, scale), s in row.gaussian.items()
            if s
        ]
        if proof.alone:
            words += moved(row.noise[0][0], groups[0].draws)[0]
        yield (
            f"When the answers move by ({', '.join(map(shown_number, row.move))}), move on all "
            f"paths {', '.join(words) or 'no Gaussian noise'}."
        )
        for group, noise in zip(groups, () if proof.alone else row.noise, strict=False):
            forms = ", ".join(map(shown_form, group.leaf.forms))
            for shifts, back in zip(noise, ("", "when they move back, "), strict=True):
                others, its = moved(shifts, group.draws)
                if others:
                    yield (
                        f"returns {group.leaf.skeleton}{f' ({forms})' if forms else ''}: {back}"
                        f"move {', '.join(others)}; cost {shown_number(its)}."
                    )


def _law_name(draw: Draw) -> str:
    return f"v{draw.index}@{draw.scale}"


def _rows_of(group: Group) -> list[Form]:
    """Return the forms that must not fall or must stay, by names of draws that paths share."""
    names = {f"v{d.index}": _law_name(d) for d in group.draws if d.kind == "gaussian"}
    return [
        {names.get(n, n): v for n, v in form.items() if n != "1"}
        for form in (*(each.form for each in conditions_of(group)), *group.leaf.forms)
    ]


def _answered(
    program: Program, groups: Sequence[Group], move: Move, mixed: bool
) -> tuple[Fraction, _Row] | None:
    """Return the cost of the other draws, and how all draws move; None if no move is found.

    What Gaussian draws alone enter they must answer; if ``mixed``, also all else that they enter.
    """
    scales = {
        _law_name(draw): draw.scale
        for group in groups
        for draw in group.draws
        if draw.kind == "gaussian"
    }
    rows = []
    for group in groups:
        for form in _rows_of(group):
            noisy = [name for name in form if name[0] == "v"]
            normal = [name for name in noisy if name in scales]
            if normal and (mixed or len(normal) == len(noisy)):
                rows.append(form)
    rows = _distinct(rows)
    sides = [-sum((form.get(f"q{i}", ZERO) * d for i, d in enumerate(move)), ZERO) for form in rows]
    shifts = _solved(rows, sides, scales)
    if shifts is None:
        return None
    cost = ZERO
    noise: list[list[Mapping[int, Fraction]]] = [[] for _ in groups]
    for sign in (1, -1):
        for group, its_noise in zip(groups, noise, strict=True):
            drawn = [draw for draw in group.draws if draw.kind == "gaussian"]
            moved = [sign * x for x in (*move, *(shifts[_law_name(draw)] for draw in drawn))]
            # a Gaussian draw that moves as was said is an answer
            names: dict[str, Form] = {
                f"v{draw.index}": {f"q{program.width + i}": Fraction(1)}
                for i, draw in enumerate(drawn)
            }
            its = attrs.evolve(
                group,
                draws=tuple(draw for draw in group.draws if draw.kind != "gaussian"),
                region=tuple(
                    Inequality(_renamed(each.form, names), each.strict) for each in group.region
                ),
                leaf=Leaf(
                    group.leaf.skeleton, tuple(_renamed(each, names) for each in group.leaf.forms)
                ),
                moves=(),
            )
            aligned = align(its, tuple(moved))
            if aligned.cost is None or aligned.shifts is None:
                return None
            cost = max(cost, aligned.cost)
            its_noise.append(aligned.shifts)
    gaussian = {
        (draw.index, draw.scale): shifts[_law_name(draw)]
        for group in groups
        for draw in group.draws
        if draw.kind == "gaussian"
    }
    return cost, _Row(move, gaussian, tuple(map(tuple, noise)))


def _renamed(form: Form, names: Mapping[str, Form]) -> Form:
    total: Form = {}
    for name, value in form.items():
        total = plus(total, scaled(names.get(name, {name: Fraction(1)}), value))
    return total


def _one_move(
    program: Program, groups: Sequence[Group], moves: Sequence[Move]
) -> tuple[_Row, ...] | None:
    """Return how all draws move, where one move answers each corner on all paths; else None."""
    laws = {tuple((d.index, d.kind, d.scale) for d in group.draws) for group in groups}
    draws = groups[0].draws
    if len(laws) > 1 or any(draw.kind not in ("laplace", "gaussian") for draw in draws):
        return None
    every = attrs.evolve(
        groups[0],
        region=tuple(each for group in groups for each in group.region),
        leaf=Leaf("", tuple(form for group in groups for form in group.leaf.forms)),
    )
    found = []
    for move in moves:
        normal = {draw.index: draw.scale for draw in draws if draw.kind == "gaussian"}
        rows = _distinct(
            form
            for form in (*(each.form for each in every.region), *every.leaf.forms)
            if any(f"v{index}" in form for index in normal)
        )
        sides = [
            -sum((form.get(f"q{i}", ZERO) * d for i, d in enumerate(move)), ZERO) for form in rows
        ]
        shifts = _solved(rows, sides, {f"v{index}": scale for index, scale in normal.items()})
        if shifts is None:
            return None
        names: dict[str, Form] = {
            f"v{index}": {f"q{program.width + i}": Fraction(1)} for i, index in enumerate(normal)
        }
        its = attrs.evolve(
            every,
            draws=tuple(draw for draw in draws if draw.kind == "laplace"),
            region=tuple(
                Inequality(_renamed(each.form, names), each.strict) for each in every.region
            ),
            leaf=Leaf("", tuple(_renamed(form, names) for form in every.leaf.forms)),
            moves=(),
        )
        aligned = align(its, (*move, *(shifts[f"v{index}"] for index in normal)))
        if aligned.shifts is None:
            return None
        gaussian = {(index, scale): shifts[f"v{index}"] for index, scale in normal.items()}
        found.append(_Row(move, gaussian, ((aligned.shifts,),)))
    return tuple(found)


def _lower_end(
    program: Program, groups: Sequence[Group], relation: Adjacency, epsilon: Fraction
) -> tuple[float, tuple[Fraction, ...] | None, tuple[Fraction, ...] | None]:
    """Return the largest delta that two vectors of answers are seen to need.

    They are looked for at points of the groups and half a move before them, and then one answer
    after the other is moved.
    """
    if written_twice(groups):
        return 0.0, None, None  # what is cut below would tell apart what may be one output
    plain = attrs.evolve(relation, rounded=())
    whole = any(in_integers(group.draws) for group in groups)
    both = [frozenset({1, -1})] * program.answers
    moves = sorted(plain.corners(both, integers=whole), key=lambda m: -sum(map(abs, m)))
    found = [start[: program.answers] for g in groups for start, _ in starts_of(program, g)]
    if whole:  # on all paths, also where no geometric noise is drawn
        found = [tuple(Fraction(round(x)) for x in start) for start in found]
    starts = list(dict.fromkeys(found))
    best: tuple[Fraction, Any, Any] = (ZERO, None, None)
    growth = exponential(epsilon)
    paths = program.paths()
    # where nothing is compared nothing depends on where the answers are
    anywhere = not program.rounded and not any(path.conditions for path in paths)
    shifts = (ZERO,) if whole or anywhere else (ZERO, Fraction(1, 2))
    starts = starts[:1] if anywhere else starts
    tries = itertools.product(moves, starts, shifts)
    for move, start, shift in itertools.islice(tries, MOST_LOOKED_AT):
        at = tuple(x - shift * d for x, d in zip(start, move, strict=True))
        best = max(best, _between(program, paths, at, move, epsilon, growth), key=lambda b: b[0])
    steps = () if whole or anywhere else (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8))
    places = list(itertools.product(steps, range(program.answers), (1, -1)))
    for step, i, sign in places[:MOST_LOOKED_AT]:
        if best[1] is not None:
            move = tuple(y - x for x, y in zip(best[1], best[2], strict=True))
            at = tuple(x + sign * step * abs(move[i]) * (i == j) for j, x in enumerate(best[1]))
            best = max(
                best, _between(program, paths, at, move, epsilon, growth), key=lambda b: b[0]
            )
    return max(math.nextafter(float(best[0]), 0.0), 0.0), best[1], best[2]


def _between(
    program: Program,
    paths: Sequence[Way],
    at: tuple[Fraction, ...],
    move: Move,
    epsilon: Fraction,
    growth: tuple[Fraction, Fraction],
) -> tuple[Fraction, tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Return what delta two vectors of answers need at least, in the worse of both directions."""
    neighbor = tuple(x + d for x, d in zip(at, move, strict=True))
    found = ZERO
    for one, other in ((at, neighbor), (neighbor, at)):
        try:
            found = max(found, _one_way(program, paths, one, other, epsilon, growth))
        except NoLaw:  # of what is returned
            break
    return found, at, neighbor


def _one_way(
    program: Program,
    paths: Sequence[Way],
    one: Sequence[Fraction],
    other: Sequence[Fraction],
    epsilon: Fraction,
    growth: tuple[Fraction, Fraction],
) -> Fraction:
    r"""Return a lower bound of the sum of what P is above :math:`e^\epsilon Q`.

    Of a function of what is returned: the constants, and of each number between which bounds it
    is. The bounds are the same for each output, whatever the path is, which nobody sees.
    """
    here, there = (program.extended(where) for where in (one, other))
    points = [{f"q{i}": x for i, x in enumerate(where)} for where in (here, there)]
    outputs: dict[str, list[Way]] = {}
    for path in paths:
        outputs.setdefault(path.leaf.skeleton, []).append(path)
    total = ZERO
    for skeleton, its in outputs.items():
        its_forms = its[0].leaf.forms
        size = ZERO  # what numbers must lose beside the constants
        if its_forms:
            whole = [
                sum((_law(path, skeleton, (), where) for path in its), NOTHING)
                for where in (here, there)
            ]
            if not whole[0].low > 0 or not whole[1].low > 0:
                ratio = ZERO
            else:
                ratio = Fraction(float(logarithm(whole[0].low / whole[1].low)))
            size = epsilon - ratio
        cuts = _cuts(its[0], points, size, len(its))
        for cell in itertools.product(*(range(len(bounds) + 1) for _, bounds in cuts)):
            laws = []
            for where in (here, there):
                law = NOTHING
                for path in its:
                    conditions = []
                    for (weights, bounds), k in zip(cuts, cell, strict=True):
                        form: Form = {}
                        for j, weight in weights.items():
                            form = plus(form, scaled(path.leaf.forms[j], weight))
                        if k > 0:
                            conditions.append(Inequality(plus(form, {"1": -bounds[k - 1]}), True))
                        if k < len(bounds):
                            below = plus(scaled(form, -1), {"1": bounds[k]})
                            conditions.append(Inequality(below, False))
                    law += _law(path, skeleton, conditions, where)
                laws.append(law)
            total += max(laws[0].low - growth[1] * laws[1].high, ZERO)
    return total


def _law(
    path: Way, skeleton: str, conditions: Sequence[Inequality], where: Sequence[Fraction]
) -> Enclosed:
    """Return the probability of a path, with conditions on what it returns."""
    region = (*path.conditions, *conditions)
    return enclosed(Group((), path.draws, Leaf(skeleton, ()), region), where, ())


def _cuts(
    path: Way, points: Sequence[Mapping[str, Fraction]], size: Fraction, paths: int
) -> list[tuple[dict[int, Fraction], list[Fraction]]]:
    """Return sums of the returned numbers, by weights, and bounds by which each of them is cut.

    One sum of all numbers with Gaussian noise alone, where the ratio of their densities is e^size;
    of others each by itself, between its values at both points.
    """
    draws = {f"v{draw.index}": draw for draw in path.draws}
    normal: dict[int, Fraction] = {}
    threshold = size
    others: dict[int, list[Fraction]] = {}
    for j, form in enumerate(path.leaf.forms):
        first, second = (value_of(form, point) for point in points)
        its = [draws[name] for name in form if name in draws]
        if first == second:
            continue
        if its and all(draw.kind == "gaussian" for draw in its):
            # the logarithm of the ratio is (first - second) (y - middle) / variance, summed over j
            variance = sum((form[f"v{d.index}"] ** 2 * d.scale**2 for d in its), ZERO)
            normal[j] = (first - second) / variance
            threshold += normal[j] * (first + second) / 2
        else:  # densities of Laplace noise have one ratio beyond both values
            others[j] = sorted((first, second)) if its else [(first + second) / 2]
    cells, times = 2, paths * (2 if normal else 1)
    while others and cells < 12 and (cells + 2) ** len(others) * times <= MOST_CUT:
        cells += 1
    found = [({j: Fraction(1)}, ends) for j, ends in others.items()]
    for _, ends in found:
        if len(ends) == 2:
            low, high = ends
            ends[:] = [low + (high - low) * Fraction(k, cells - 1) for k in range(cells)]
    return [(normal, [threshold]), *found] if normal else found
