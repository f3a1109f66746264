r"""Proven bounds of the probability (or density) of what a program returns, by cells.

Where no exact law is found (`adaptive_dp.prove.laws`): Gaussian and geometric noise, and mixtures.
Each draw falls in a cell: an integer of geometric noise, or an interval of width h. The mass of a
cell is enclosed: exactly known up to exponentials, or of Gaussian noise by the midpoint and the
trapezoidal rule, one of which is below and one above where the density is convex or concave (h
divides the standard deviation, beyond which it changes). Draws are summed over one by one; a
condition between two cells counts for the lower bound where it holds at all their points, and for
the upper one where it holds at some. What lies beyond the cells is added to the upper bound. All
sums are of integers, times :math:`2^{-256}`, rounded outward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from attrs import define, evolve, frozen

from adaptive_dp.prove import checker
from adaptive_dp.prove.alignment import Group, conditions_of
from adaptive_dp.prove.exact import Form, Inequality, implied, plus, scaled
from adaptive_dp.prove.laws import NoLaw, bounds, fixed, law, solved
from adaptive_dp.prove.program import Draw, Leaf

ZERO, ONE = Fraction(0), Fraction(1)
BITS = 256
UNIT = 1 << BITS
REACH = {"gaussian": 16, "laplace": 80, "exponential": 80, "geometric": 100}
"""How far cells go, in scales."""
CELLS = {"gaussian": 32, "laplace": 16, "exponential": 16}
"""How many cells a scale has."""
# sqrt(2 pi) lies between
ROOT = (
    Fraction(25066282746310005024157652848, 10**28),
    Fraction(25066282746310005024157652849, 10**28),
)


@frozen
class Enclosed:
    """A probability (or density), between two numbers."""

    low: Fraction
    high: Fraction

    def __bool__(self) -> bool:
        return self.high > 0

    def __add__(self, other: Enclosed) -> Enclosed:
        return Enclosed(self.low + other.low, self.high + other.high)


NOTHING = Enclosed(ZERO, ZERO)


def exponential(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of e^x."""
    low, high = bounds({x: ONE}, 60)
    return max(low, ZERO), high


def density(draw: Draw, x: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of a draw's density; of geometric noise, of its mass at an integer."""
    b = draw.scale
    if draw.kind == "gaussian":
        low, high = exponential(-x * x / (2 * b * b))
        return low / (b * ROOT[1]), high / (b * ROOT[0])
    if draw.kind == "exponential" and x < 0:
        return ZERO, ZERO
    low, high = exponential(-abs(x) / b)
    if draw.kind == "geometric":
        if x.denominator != 1:
            return ZERO, ZERO
        r = exponential(-1 / b)  # (1 - r) / (1 + r) falls with r
        return low * (1 - r[1]) / (1 + r[1]), high * (1 - r[0]) / (1 + r[0])
    half = 1 if draw.kind == "exponential" else 2
    return low / (half * b), high / (half * b)


@define
class _Table:
    """A function of a draw's cells: from which cell on, their width and step, and bounds."""

    first: int
    step: Fraction
    width: Fraction
    low: list[int]
    high: list[int]

    def ends(self, i: int) -> tuple[Fraction, Fraction]:
        """Return between which numbers a cell is."""
        at = (self.first + i) * self.step
        return at, at + self.width


def _down(x: Fraction) -> int:
    return math.floor(x * UNIT)


def _up(x: Fraction) -> int:
    return math.ceil(x * UNIT)


@lru_cache(maxsize=64)
def _masses(kind: str, b: Fraction) -> tuple[int, Fraction, Fraction, list[int], list[int], int]:
    """Return the cells of a law with bounds of their masses, and of the mass beyond them."""
    draw = Draw(0, kind, b, "", None)  # type: ignore[arg-type]
    if kind == "geometric":
        reach = math.ceil(REACH[kind] * b)
        each = [density(draw, Fraction(k)) for k in range(reach + 1)]
        low = [_down(m[0]) for m in each]
        high = [_up(m[1]) for m in each]
        beyond = _up(2 * exponential(-(reach + 1) / b)[1])
        return -reach, ONE, ZERO, low[:0:-1] + low, high[:0:-1] + high, beyond
    count = REACH[kind] * CELLS[kind]
    h = b / CELLS[kind]
    if kind == "gaussian":
        low, high = [], []
        for k in range(count):
            ends = [density(draw, x) for x in (k * h, (k + 1) * h)]
            middle = density(draw, k * h + h / 2)
            mean = ((ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2)
            # concave up to the standard deviation, convex from there on
            below, above = (mean, middle) if k < CELLS[kind] else (middle, mean)
            low.append(_down(h * below[0]))
            high.append(_up(h * above[1]))
        beyond = _up(2 * exponential(Fraction(-(REACH[kind] ** 2), 2))[1])
        return -count, h, h, low[::-1] + low, high[::-1] + high, beyond
    rest = [exponential(-Fraction(k, CELLS[kind])) for k in range(count + 1)]
    half = 1 if kind == "exponential" else 2
    low = [_down(max((rest[k][0] - rest[k + 1][1]) / half, ZERO)) for k in range(count)]
    high = [_up((rest[k][1] - rest[k + 1][0]) / half) for k in range(count)]
    if kind == "exponential":
        return 0, h, h, low, high, _up(rest[-1][1])
    return -count, h, h, low[::-1] + low, high[::-1] + high, _up(rest[-1][1])


def enclosed(group: Group, answers: Sequence[Fraction], returned: Sequence[Fraction]) -> Enclosed:
    """Return bounds of the probability of a group at answers, or of its density.

    It is a density where expressions are returned.

    Raises
    ------
    NoLaw
        If a condition or an expression is of more draws than can be summed over one by one.

    Notes
    -----
    Where nothing is returned but constants, draws that no condition compares are independent:
    each such part has its exact law, or that of a normal number, or else is summed over cells.
    """
    if group.leaf.forms:
        return _by_cells(group, answers, returned)
    point = {f"q{i}": Fraction(value) for i, value in enumerate(answers)}
    low = high = ONE
    for part in _apart(group):
        fixed_ = ((fixed(each.form, point), each.strict) for each in part.region)
        region = tuple((tuple(sorted(form.items())), strict) for form, strict in fixed_)
        its = _of_part(tuple((d.index, d.kind, d.scale) for d in part.draws), region)
        low, high = low * its.low, high * its.high
        if not high:
            return NOTHING
    return Enclosed(low, high)


Region = tuple[tuple[tuple[tuple[str, Fraction], ...], bool], ...]


@lru_cache(maxsize=4096)
def _of_part(draws: tuple[tuple[int, str, Fraction], ...], region: Region) -> Enclosed:
    """Return bounds of the probability of conditions on draws: index, kind and scale."""
    conditions = tuple(Inequality(dict(form), strict) for form, strict in region)
    drawn = tuple(Draw(i, kind, b, "", Leaf("", ())) for i, kind, b in draws)
    part = Group((), drawn, Leaf("", ()), conditions)
    try:
        low, high = bounds(law(part, (), ()), 60)
        return Enclosed(max(low, ZERO), max(high, ZERO))
    except NoLaw:
        if any(draw.kind != "gaussian" for draw in part.draws):
            return _by_cells(part, (), ())
    # conditions of one sum of normal numbers: between which multiples of its deviation it is
    scales = {f"v{draw.index}": draw.scale for draw in part.draws}
    first = {name: v for name, v in part.region[0].form.items() if name in scales}
    lead = min(first)
    variance = sum((v * v * scales[name] ** 2 for name, v in first.items()), ZERO)
    ends: list[list[Fraction]] = [[], []]
    for each in part.region:
        form = each.form
        factor = form.get(lead, ZERO) / first[lead]
        if form.keys() - {"1"} != first.keys() or any(form[n] != factor * first[n] for n in first):
            return _by_cells(part, (), ())
        ends[factor < 0].append(-form.get("1", ZERO) / factor)
    below = [max(ends[0])] if ends[0] else []
    above = [min(ends[1])] if ends[1] else []
    if below and above and below[0] >= above[0]:
        return NOTHING
    start = _normal(below[0], variance) if below else (0, 0)
    end = _normal(above[0], variance) if above else (checker.UNIT, checker.UNIT)
    return Enclosed(
        Fraction(max(end[0] - start[1], 0), checker.UNIT),
        Fraction(end[1] - start[0], checker.UNIT),
    )


def _normal(x: Fraction, variance: Fraction) -> tuple[int, int]:
    """Return bounds of the probability that a normal number is at most x, over checker.UNIT."""
    whole = variance.numerator * variance.denominator
    root = math.isqrt(whole << 2 * BITS)  # of 2^(2 BITS) times the product
    roots: tuple[Fraction, ...] = (Fraction(root, variance.denominator << BITS),)
    if root * root != whole << 2 * BITS:
        roots = (*roots, Fraction(root + 1, variance.denominator << BITS))
    found = [checker.normal(x / each) for each in roots]
    return min(low for low, _ in found), max(high for _, high in found)


def _apart(group: Group) -> tuple[Group, ...]:
    """Return a group's draws apart where no condition compares them; first what has no draw."""
    parts: list[tuple[set[str], list[Inequality]]] = []
    rest = []
    for each in group.region:
        names = {name for name in each.form if name[0] == "v"}
        if not names:
            rest.append(each)
            continue
        touched = [part for part in parts if part[0] & names]
        parts = [part for part in parts if not part[0] & names]
        parts.append(
            (
                names.union(*(part[0] for part in touched)),
                [*(it for part in touched for it in part[1]), each],
            )
        )
    found = [evolve(group, draws=(), region=tuple(rest))] if rest else []
    for names, region in parts:
        draws = tuple(draw for draw in group.draws if f"v{draw.index}" in names)
        found.append(evolve(group, draws=draws, region=tuple(region)))
    return tuple(found)


def _by_cells(group: Group, answers: Sequence[Fraction], returned: Sequence[Fraction]) -> Enclosed:
    """Return bounds of the probability (density) of a group, by the cells of all its draws."""
    point = {f"q{i}": Fraction(value) for i, value in enumerate(answers)}
    conditions = [(fixed(each.form, point), each.strict) for each in _needed(group)]
    equalities = [
        plus(fixed(form, point), {"1": -Fraction(value)})
        for form, value in zip(group.leaf.forms, returned, strict=True)
    ]
    whole = frozenset(f"v{draw.index}" for draw in group.draws if draw.kind == "geometric")
    forms: Mapping[int, Form] = {draw.index: {f"v{draw.index}": ONE} for draw in group.draws}
    factor = ONE
    while equalities:
        equality = equalities.pop()
        # noise that is real first: what has any of it has a density; integers have masses
        names = sorted(equality.keys() - {"1"}, key=lambda n: (n in whole, n))
        if not names:
            if equality:
                return NOTHING
            continue
        name = names[0]
        if name not in whole:
            factor /= abs(equality[name])
        rest = {n: v for n, v in equality.items() if n != name}
        value = scaled(rest, -1 / equality[name])
        equalities = [solved(form, name, value) for form in equalities]
        conditions = [(solved(form, name, value), strict) for form, strict in conditions]
        forms = {i: solved(form, name, value) for i, form in forms.items()}
    for form, strict in conditions:
        constant = form.get("1", ZERO)
        if not set(form) - {"1"} and (constant < 0 or (constant == 0 and strict)):
            return NOTHING
    conditions = [each for each in conditions if set(each[0]) - {"1"}]
    tables: dict[str, _Table] = {}
    beyond = 0
    most = number = (factor, factor)
    for draw in group.draws:
        if set(forms[draw.index]) == {f"v{draw.index}"}:
            first, step, width, low, high, tail = _masses(draw.kind, draw.scale)
            tables[f"v{draw.index}"] = _Table(first, step, width, list(low), list(high))
            beyond += tail
    for draw in group.draws:
        drawn = forms[draw.index]
        names = [name for name in drawn if name != "1"]
        if names == [f"v{draw.index}"]:
            continue
        if len(names) > 1:
            raise NoLaw("a returned sum of several draws")
        top = density(draw, ZERO)
        most = (most[0], most[1] * top[1])
        if not names:
            here = density(draw, drawn.get("1", ZERO))
            number = (number[0] * here[0], number[1] * here[1])
        else:
            _weigh(tables[names[0]], draw, drawn[names[0]], drawn.get("1", ZERO))
    total = _summed(tables, conditions, whole)
    return Enclosed(
        Fraction(total[0], UNIT) * number[0],
        Fraction(total[1], UNIT) * number[1] + Fraction(beyond, UNIT) * most[1],
    )


@lru_cache(maxsize=256)
def _needed(group: Group) -> tuple[Inequality, ...]:
    """Return a group's conditions without those that the others imply: fewer draws are compared."""
    kept = conditions_of(group)
    for each in list(kept):
        rest = [other for other in kept if other is not each]
        if len(rest) > 1 and implied(rest, each) is not None:
            kept = rest
    return tuple(kept)


def _weigh(table: _Table, draw: Draw, slope: Fraction, shift: Fraction) -> None:
    """Multiply a table by a draw's density at ``slope v + shift``."""
    for i in range(len(table.low)):
        ends = sorted(slope * x + shift for x in table.ends(i))
        near = ZERO if ends[0] <= 0 <= ends[1] else min(ends, key=abs)
        far = max(ends, key=abs)
        if draw.kind == "exponential" and ends[0] < 0 <= ends[1]:
            low, high = ZERO, density(draw, ZERO)[1]
        else:
            low, high = density(draw, far)[0], density(draw, near)[1]
        table.low[i] = table.low[i] * _down(low) >> BITS
        table.high[i] = -(-table.high[i] * _up(high) >> BITS)


def _summed(
    tables: dict[str, _Table],
    conditions: list[tuple[dict[str, Fraction], bool]],
    whole: frozenset[str],
) -> tuple[int, int]:
    """Sum over the draws one by one, each as a function of the one it is compared with."""
    low = high = UNIT
    while tables:
        linked: Mapping[str, set[str]] = {
            name: {n for form, _ in conditions if name in form for n in form} - {name, "1"}
            for name in tables
        }
        name = min(sorted(tables), key=lambda n: len(linked[n]))
        if len(linked[name]) > 1:
            raise NoLaw("a draw that is compared with several others, which are compared")
        table = tables.pop(name)
        mine = [each for each in conditions if name in each[0]]
        conditions = [each for each in conditions if name not in each[0]]
        sums = _sums(table.low), _sums(table.high)
        other = next(iter(linked[name]), None)
        if other is None:
            total = _between(table, sums, mine, name, None, (ZERO, ZERO), whole)
            low, high = low * total[0] >> BITS, -(-high * total[1] >> BITS)
            continue
        target = tables[other]
        for i in range(len(target.low)):
            total = _between(table, sums, mine, name, other, target.ends(i), whole)
            target.low[i] = target.low[i] * total[0] >> BITS
            target.high[i] = -(-target.high[i] * total[1] >> BITS)
    return low, high


def _sums(values: Sequence[int]) -> list[int]:
    sums = [0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums


def _between(
    table: _Table,
    sums: tuple[list[int], list[int]],
    conditions: Sequence[tuple[Mapping[str, Fraction], bool]],
    name: str,
    other: str | None,
    ends: tuple[Fraction, Fraction],
    whole: frozenset[str],
) -> tuple[int, int]:
    """Return the sums over the cells at which conditions hold for sure, and at which they may."""
    size = len(table.low)
    sure, may = [0, size], [0, size]
    for form, strict in conditions:
        a = form[name]
        b = form.get(other, ZERO) if other is not None else ZERO
        c = form.get("1", ZERO)
        values = sorted(b * x for x in ends)
        for spans, rest, inner in ((sure, values[0], a < 0), (may, values[1], a > 0)):
            # integers have ties; where a draw is real a boundary has probability 0
            above = strict if form.keys() <= whole | {"1"} else spans is may
            # a (k step + width, or not) + rest + c >= 0, of the cell's own numbers k
            bound = (-(rest + c) / a - (table.width if inner else ZERO)) / table.step
            if a > 0:
                k = math.floor(bound) + 1 if above else math.ceil(bound)
                spans[0] = max(spans[0], k - table.first)
            else:
                k = math.ceil(bound) - 1 if above else math.floor(bound)
                spans[1] = min(spans[1], k - table.first + 1)
    return tuple(  # type: ignore[return-value]
        each[max(span[1], 0)] - each[min(span[0], size)] if span[1] > span[0] else 0
        for each, span in ((sums[0], sure), (sums[1], may))
    )
