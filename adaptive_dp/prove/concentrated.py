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

It is a quadratic programme; a move is looked for by adding violated conditions to the equations
one by one, so that it need not be the least where conditions bind: then it is a bound all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove import checker
from adaptive_dp.prove.alignment import Move
from adaptive_dp.prove.exact import Form, shown_number
from adaptive_dp.prove.program import ProgramError, unroll
from adaptive_dp.prove.verdicts import (
    Neighbors,
    Proved,
    Radius,
    Result,
    Undecided,
    adjacency,
    nodes_of,
    relation_of,
)

ZERO = Fraction(0)


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
