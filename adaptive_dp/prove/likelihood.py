"""How likely an output is: exactly or between proven bounds, at answers, and at two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove.alignment import (
    Group,
    alike,
    densities_of,
    groups_of,
    is_number,
    literal_of,
)
from adaptive_dp.prove.cells import NOTHING, Enclosed, enclosed, exponential
from adaptive_dp.prove.finite import exact_law
from adaptive_dp.prove.laws import NoLaw, Sum, law, logarithm, ratio
from adaptive_dp.prove.laws import bounds as sum_bounds
from adaptive_dp.prove.laws import exceeds as sum_exceeds
from adaptive_dp.prove.program import Program, unroll

Law = Sum | Enclosed
"""An exact law, or bounds of one."""


def law_of(members: Sequence[tuple[Group, Sequence[Fraction]]], answers: Sequence[Fraction]) -> Law:
    """Return the probability (or density) of groups with what they return: exact, or enclosed."""
    total: Sum = {}
    try:
        for group, returned in members:
            for exponent, factor in law(group, answers, returned).items():
                total[exponent] = total.get(exponent, Fraction(0)) + factor
    except NoLaw:
        return sum((enclosed(group, answers, values) for group, values in members), NOTHING)
    return {s: c for s, c in total.items() if c}


def _enclosed(law_: Law) -> Enclosed:
    return law_ if isinstance(law_, Enclosed) else Enclosed(*sum_bounds(law_, 60))


def exceeds(one: Law, other: Law, epsilon: Fraction) -> bool:
    """Whether ``one > e^epsilon other``, proven."""
    if isinstance(one, dict) and isinstance(other, dict):
        return sum_exceeds(one, other, epsilon) is True
    return _enclosed(one).low > exponential(epsilon)[1] * _enclosed(other).high


def ratio_of(one: Law, other: Law) -> float:
    """Return the logarithm of a ratio; of enclosed laws, what it is at least."""
    if isinstance(one, dict) and isinstance(other, dict):
        return ratio(one, other)
    low, high = _enclosed(one).low, _enclosed(other).high
    if not low:
        return math.nan if high else math.inf
    if not high:
        return math.inf
    least = logarithm(low / high)
    found = float(least)
    return found if Fraction(found) <= Fraction(least) else math.nextafter(found, -math.inf)


def log_ratio(
    function: Callable[..., Any], answers: Sequence[float], neighbor: Sequence[float], output: Any
) -> float:
    """Return the logarithm of the ratio of an output's probabilities at two answers, exactly.

    Of densities, where the function returns numbers that depend on noise; where a density jumps,
    its value at the very output is that of no event: look at outputs beside it. The result is
    rounded from exact sums of exponentials; nothing is sampled. With Gaussian or geometric noise it
    is what the ratio is at least, by proven bounds (`probability` has both of them).

    Parameters
    ----------
    function
        ``f(answers, noise)``.
    answers, neighbor
        Two vectors of answers.
    output
        What it returns.

    Raises
    ------
    DeclarationError
        If the output is not one of the function, or its law is not found exactly.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def above(answers, noise):
    ...     return answers[0] + noise.laplace(2) > 0
    >>> round(prove.log_ratio(above, [9], [8], False), 6)
    -0.5
    """
    laws = [exact_law(function, [Fraction(x) for x in each]) for each in (answers, neighbor)]
    if laws[0] is not None and laws[1] is not None:
        first, second = (each.get(repr(output), Fraction(0)) for each in laws if each is not None)
        if not first:
            return -math.inf if second else math.nan
        if not second:
            return math.inf
        return float(logarithm(first / second))
    program, members = _members(function, len(answers), output)
    try:
        one, other = (law_of(members, _extended(program, where)) for where in (answers, neighbor))
    except NoLaw as error:
        raise DeclarationError(f"the law of {program.name} is not found: {error}") from None
    if not one:
        return -math.inf if other else math.nan
    return ratio_of(one, other) if other else math.inf


def probability(
    function: Callable[..., Any], answers: Sequence[float], output: Any
) -> tuple[Fraction, Fraction]:
    """Return proven bounds of the probability of an output; of its density, if it has numbers.

    Parameters
    ----------
    function
        ``f(answers, noise)``.
    answers
        Where.
    output
        What it returns.

    Raises
    ------
    DeclarationError
        If the output is not one of the function, or its law is not found.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> low, high = prove.probability(lambda q, noise: q[0] + noise.gaussian(1) > 0, [2], True)
    >>> round(float(low), 12), float(high - low) < 1e-50
    (0.977249868052, True)
    """
    exact_ = exact_law(function, [Fraction(x) for x in answers])
    if exact_ is not None:
        chance = exact_.get(repr(output), Fraction(0))
        return chance, chance
    program, members = _members(function, len(answers), output)
    try:
        found = _enclosed(law_of(members, _extended(program, answers)))
    except NoLaw as error:
        raise DeclarationError(f"the law is not found: {error}") from None
    return found.low, found.high


def delta(
    function: Callable[..., Any],
    answers: Sequence[float],
    neighbor: Sequence[float],
    epsilon: float,
) -> tuple[Fraction, Fraction]:
    r"""Return proven bounds of the delta that an epsilon needs between two vectors of answers.

    The larger of :math:`\sum_o \max(0, P(o) - e^\epsilon Q(o))` and the same with P and Q
    exchanged. For programs that return constants, such as which test was passed, with any noise:
    Gaussian and Laplace together. It is of these two vectors: of others delta may be larger
    (`largest_delta` bounds that of all neighbours).

    Parameters
    ----------
    function
        ``f(answers, noise)``.
    answers, neighbor
        Two vectors of answers.
    epsilon
        The claim.

    Raises
    ------
    DeclarationError
        If it returns numbers that depend on noise, or its law is not found.

    Examples
    --------
    Of Gaussian noise, a test at half of the sum shows what the noise loses at epsilon = 0:

    >>> from adaptive_dp import prove
    >>> def test(answers, noise):
    ...     return answers[0] + noise.gaussian(1) > 0.5
    >>> low, high = prove.delta(test, [0], [1], 0)  # 2 Phi(1/2) - 1
    >>> round(float(low), 12), float(high - low) < 1e-50
    (0.382924922548, True)
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise DeclarationError(f"epsilon must be a finite number of at least 0, got {epsilon!r}")
    return delta_of(unroll(function, len(answers)), answers, neighbor, epsilon)


def delta_of(
    program: Program, answers: Sequence[Any], neighbor: Sequence[Any], epsilon: float | Fraction
) -> tuple[Fraction, Fraction]:
    """Return bounds of the delta of a program that returns constants, between two vectors."""
    members: dict[str, list[tuple[Group, Sequence[Fraction]]]] = {}
    for group in groups_of(program):
        if group.leaf.forms:
            raise DeclarationError(
                f"{program.name} returns numbers that depend on noise: delta is bounded for "
                "programs that return constants; prove.largest_delta bounds that of all neighbours"
            )
        members.setdefault(group.leaf.skeleton, []).append((group, ()))
    one_way, other_way = NOTHING, NOTHING
    # e^epsilon, of the number as it is written
    growth = exponential(
        Fraction(repr(float(epsilon))) if isinstance(epsilon, float) else Fraction(epsilon)
    )
    for each in members.values():
        try:
            one, other = (
                _enclosed(law_of(each, _extended(program, where))) for where in (answers, neighbor)
            )
        except NoLaw as error:
            raise DeclarationError(f"the law of {program.name} is not found: {error}") from None
        one_way += _above(one, other, growth)
        other_way += _above(other, one, growth)
    low = max(one_way.low, other_way.low)
    return low, min(max(one_way.high, other_way.high), Fraction(1))


def _above(one: Enclosed, other: Enclosed, growth: tuple[Fraction, Fraction]) -> Enclosed:
    """Return bounds of what one is above ``e^epsilon`` times the other; 0 if it is not."""
    return Enclosed(
        max(one.low - growth[1] * other.high, Fraction(0)),
        max(one.high - growth[0] * other.low, Fraction(0)),
    )


def _extended(program: Program, answers: Sequence[float]) -> Sequence[Fraction]:
    return program.extended([Fraction(x) for x in answers])


def _members(
    function: Callable[..., Any], answers: int, output: Any
) -> tuple[Program, list[tuple[Group, Sequence[Fraction]]]]:
    """Return a program's groups that return an output, with the numbers in it."""
    program = unroll(function, answers)
    members = returning(groups_of(program), output)
    if not members:
        raise DeclarationError(f"{program.name} returns no {plain(output)!r}")
    return program, members


def returning(groups: Sequence[Group], output: Any) -> list[tuple[Group, Sequence[Fraction]]]:
    """Return the groups that make an output possible, each with the numbers in it.

    A number of whole noise may be a constant of another path: who sees the output does not see the
    path, so both count. An output that has a probability on some paths has that of these: densities
    are nothing beside it.
    """
    found = []
    for group in groups:
        numbers = _matched(literal_of(group.leaf.skeleton), output)
        if numbers is not None:
            found.append((group, numbers))
    fewest = min((densities_of(group) for group, _ in found), default=0)
    return [(group, numbers) for group, numbers in found if densities_of(group) == fewest]


def _matched(skeleton: Any, output: Any) -> list[Fraction] | None:
    """Return the numbers at the places of a skeleton; None if an output is not of its form."""
    if skeleton is ...:
        return [Fraction(output)] if is_number(output) else None
    if isinstance(skeleton, list | tuple):
        if type(output) is not type(skeleton) or len(output) != len(skeleton):
            return None
        parts = [_matched(s, o) for s, o in zip(skeleton, output, strict=True)]
        return None if any(p is None for p in parts) else [x for p in parts for x in p or ()]
    return [] if alike(skeleton, output) else None


def plain(value: Any) -> Any:
    """Return an output with numbers as people write them."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value
