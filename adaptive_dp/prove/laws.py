r"""The exact probability (or density) of what a program returns, at given answers.

With the answers fixed, a group of paths is a polyhedron in the draws, over which a product of
Laplace and exponential densities is integrated, one draw at a time. All functions on the way are
piecewise sums of :math:`c\,x^k e^{rx + s}` with rational c, r, s: no quadrature, no rounding. The
result is a sum :math:`\sum c_i e^{s_i}`, which is enclosed by correctly rounded exponentials of as
many digits as it takes.

It works where the draws can be removed one by one, each connected to at most one other by the
conditions (a tree, such as a threshold or a maximum and what is compared with it), and by the
expressions returned. Elsewhere it says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import comb

from adaptive_dp.prove.alignment import Group
from adaptive_dp.prove.exact import Form, Inequality, Number, maximize, plus, scaled, value_of
from adaptive_dp.prove.program import Draw

Term = tuple[int, Fraction, Fraction]
ExpPoly = dict[Term, Fraction]
"""A sum of ``c x^k e^(r x + s)``, by (k, r, s)."""
End = Fraction | None
"""An end of an interval; None is infinite."""
Piece = tuple[End, End, ExpPoly]
Sum = dict[Fraction, Fraction]
"""A number: the sum of ``c e^s``, c by s."""

ZERO, ONE = Fraction(0), Fraction(1)


class NoLaw(Exception):
    """The draws cannot be removed one by one here."""


# -----------------------------------------------------------------------------
# Sums of c x^k e^(rx + s), on intervals.


def _add(into: ExpPoly, key: Term, value: Fraction) -> None:
    total = into.get(key, ZERO) + value
    if total:
        into[key] = total
    else:
        into.pop(key, None)


def _product(one: ExpPoly, other: ExpPoly) -> ExpPoly:
    result: ExpPoly = {}
    for (k, r, s), c in one.items():
        for (j, t, u), d in other.items():
            _add(result, (k + j, r + t, s + u), c * d)
    return result


def _composed(function: ExpPoly, slope: Fraction, shift: Fraction) -> ExpPoly:
    """Return the function at ``slope t + shift``, as a function of t."""
    result: ExpPoly = {}
    for (k, r, s), c in function.items():
        for i in range(k + 1):
            factor = comb(k, i) * slope**i * shift ** (k - i)
            if factor:
                _add(result, (i, r * slope, s + r * shift), c * factor)
    return result


def _antiderivative(function: ExpPoly) -> ExpPoly:
    result: ExpPoly = {}
    for (k, r, s), c in function.items():
        if r == 0:
            _add(result, (k + 1, r, s), c / (k + 1))
            continue
        # by parts: the sum of (-1)^j k!/(k-j)! x^(k-j) / r^(j+1)
        factor = c / r
        for j in range(k + 1):
            _add(result, (k - j, r, s), factor)
            factor *= -Fraction(k - j) / r
    return result


def _density(draw: Draw) -> list[Piece]:
    rate = 1 / draw.scale
    if draw.kind == "laplace":
        return [
            (None, ZERO, {(0, rate, ZERO): rate / 2}),
            (ZERO, None, {(0, -rate, ZERO): rate / 2}),
        ]
    if draw.kind == "exponential":
        return [(ZERO, None, {(0, -rate, ZERO): rate})]
    raise NoLaw(f"{draw.kind} noise")


def _moved(pieces: Sequence[Piece], slope: Fraction, shift: Fraction) -> list[Piece]:
    """Return the function at ``slope t + shift``, on the intervals of t."""
    result = []
    for low, high, function in pieces:
        ends = [None if end is None else (end - shift) / slope for end in (low, high)]
        if slope < 0:
            ends.reverse()
        result.append((ends[0], ends[1], _composed(function, slope, shift)))
    return sorted(result, key=lambda piece: (piece[0] is not None, piece[0] or ZERO))


def _times(one: Sequence[Piece], other: Sequence[Piece]) -> list[Piece]:
    result = []
    for low, high, function in one:
        for start, end, factor in other:
            lows = [x for x in (low, start) if x is not None]
            highs = [x for x in (high, end) if x is not None]
            left, right = max(lows, default=None), min(highs, default=None)
            if left is None or right is None or left < right:
                result.append((left, right, _product(function, factor)))
    return result


Line = tuple[Fraction, Fraction]
"""``slope t + shift``."""


def _at(line: Line, t: Fraction) -> Fraction:
    return line[0] * t + line[1]


def _integrated(pieces: Sequence[Piece], lowers: list[Line], uppers: list[Line]) -> list[Piece]:
    """Return the integral from the largest lower to the smallest upper line, as pieces in t."""
    ends = {end for low, high, _ in pieces for end in (low, high) if end is not None}
    lines = [*lowers, *uppers, *((ZERO, end) for end in ends)]
    breaks = sorted(
        {
            (b[1] - a[1]) / (a[0] - b[0])
            for i, a in enumerate(lines)
            for b in lines[:i]
            if a[0] != b[0]
        }
    )
    primitives = [(low, high, _antiderivative(function)) for low, high, function in pieces]
    result = []
    for left, right in zip([None, *breaks], [*breaks, None], strict=True):
        middle = _between(left, right)
        low = max(lowers, key=lambda line: _at(line, middle), default=None)
        high = min(uppers, key=lambda line: _at(line, middle), default=None)
        total: ExpPoly = {}
        for start, end, primitive in primitives:
            a = low
            if start is not None and (a is None or _at(a, middle) < start):
                a = (ZERO, start)
            b = high
            if end is not None and (b is None or _at(b, middle) > end):
                b = (ZERO, end)
            if a is not None and b is not None and _at(a, middle) >= _at(b, middle):
                continue
            # at an infinite end the primitive of a density that decays is 0
            for line, sign in ((b, 1), (a, -1)):
                if line is not None:
                    for key, value in _composed(primitive, *line).items():
                        _add(total, key, sign * value)
        if total:
            result.append((left, right, total))
    return result


def _between(left: End, right: End) -> Fraction:
    if left is None:
        return ZERO if right is None else right - 1
    return left + 1 if right is None else (left + right) / 2


# -----------------------------------------------------------------------------
# The law of a group.


def law(group: Group, answers: Sequence[Number], returned: Sequence[Number]) -> Sum:
    """Return the probability of a group at answers: the density where expressions are returned.

    Parameters
    ----------
    group
        Its region is integrated over.
    answers
        Where.
    returned
        The values of the expressions.

    Raises
    ------
    NoLaw
        If the draws cannot be removed one by one.
    """
    point = {f"q{i}": Fraction(value) for i, value in enumerate(answers)}
    conditions = [fixed(each.form, point) for each in group.region]
    strict = [each.strict for each in group.region]
    equalities = [
        plus(fixed(form, point), {"1": -Fraction(value)})
        for form, value in zip(group.leaf.forms, returned, strict=True)
    ]
    factors: dict[str, list[list[Piece]]] = {}
    scale = ONE
    densities: list[tuple[Form, Draw]] = [({f"v{draw.index}": ONE}, draw) for draw in group.draws]
    # each returned expression removes a draw: it is solved for it
    while equalities:
        equality = equalities.pop()
        names = [name for name in equality if name != "1"]
        if not names:
            if equality:
                return {}
            continue
        name = names[0]
        scale /= abs(equality[name])
        value = scaled({n: v for n, v in equality.items() if n != name}, -1 / equality[name])
        equalities = [solved(form, name, value) for form in equalities]
        conditions = [solved(form, name, value) for form in conditions]
        densities = [(solved(form, name, value), draw) for form, draw in densities]
    for form, draw in densities:
        names = [name for name in form if name != "1"]
        if len(names) > 1:
            raise NoLaw("a returned sum of several draws")
        if not names:
            number = _value(_density(draw), form.get("1", ZERO))
            if not number:
                return {}
            factors.setdefault("1", []).append([(None, None, number)])
        else:
            moved = _moved(_density(draw), form[names[0]], form.get("1", ZERO))
            factors.setdefault(names[0], []).append(moved)
    return _summed(conditions, strict, factors, scale)


def fixed(form: Form, point: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return a form with some variables replaced by numbers."""
    rest = {name: value for name, value in form.items() if name not in point and name != "1"}
    return plus(rest, {"1": value_of({n: v for n, v in form.items() if n not in rest}, point)})


def solved(form: Form, name: str, value: Form) -> dict[str, Fraction]:
    """Return a form with one variable replaced by a form."""
    if name not in form:
        return dict(form)
    rest = {n: v for n, v in form.items() if n != name}
    return plus(rest, scaled(value, form[name]))


def _value(pieces: Sequence[Piece], x: Fraction) -> ExpPoly:
    """Return a function's value at a number, as a constant function."""
    for low, high, function in pieces:
        if (low is None or low <= x) and (high is None or x < high):
            return _composed(function, ZERO, x)
    return {}


def _summed(
    conditions: list[dict[str, Fraction]],
    strict: Sequence[bool],
    factors: dict[str, list[list[Piece]]],
    scale: Fraction,
) -> Sum:
    """Remove the draws one by one: each as a function of the one that it is compared with."""
    for form, above in zip(conditions, strict, strict=True):
        if set(form) <= {"1"}:
            constant = form.get("1", ZERO)
            if constant < 0 or (constant == 0 and above):
                return {}
    open_ = [form for form in conditions if set(form) - {"1"}]
    names = {name for name in factors if name != "1"}
    while names:
        neighbors = {
            name: {n for form in open_ if name in form for n in form} - {name, "1"}
            for name in names
        }
        name = min(sorted(names), key=lambda n: len(neighbors[n]))
        others = sorted(neighbors[name])
        lowers: dict[str | None, list[Line]] = {}
        uppers: dict[str | None, list[Line]] = {}
        for form in open_:
            if name in form:
                its = sorted(set(form) - {name, "1"})
                if len(its) > 1:
                    raise NoLaw("a condition on several draws")
                a = form[name]
                line = (-form.get(its[0], ZERO) / a if its else ZERO, -form.get("1", ZERO) / a)
                (lowers if a > 0 else uppers).setdefault(its[0] if its else None, []).append(line)
        function: list[Piece] = [(None, None, {(0, ZERO, ZERO): ONE})]
        for each in factors.pop(name):
            function = _times(function, each)
        open_ = [form for form in open_ if name not in form]
        names.remove(name)
        if len(others) > 1:
            return _between_many(function, lowers, uppers, open_, factors, scale)
        other = others[0] if others else None
        message = _integrated(
            function,
            [line for lines in lowers.values() for line in lines],
            [line for lines in uppers.values() for line in lines],
        )
        if other is None:
            # lines are constant: one value, whatever t
            total: ExpPoly = {}
            for key, value in _value(message, ZERO).items():
                _add(total, key, value)
            if not total:
                return {}
            factors.setdefault("1", []).append([(None, None, total)])
        else:
            factors.setdefault(other, []).append(message)
    number: ExpPoly = {(0, ZERO, ZERO): scale}
    for each in factors.get("1", []):
        number = _product(number, each[0][2])
    result: Sum = {}
    for (_, _, s), c in number.items():
        result[s] = result.get(s, ZERO) + c
    return {s: c for s, c in result.items() if c}


def _between_many(
    function: list[Piece],
    lowers: dict[str | None, list[Line]],
    uppers: dict[str | None, list[Line]],
    conditions: list[dict[str, Fraction]],
    factors: dict[str, list[list[Piece]]],
    scale: Fraction,
) -> Sum:
    """Remove a draw that is compared with several others: a sum over which of them are nearest.

    Where one lower end is the largest and one upper end the least, and the former below the
    latter, the integral between them is that up to the upper end, and that from the lower end, less
    all of it: sums over fewer draws.
    """
    total: Sum = {}

    def add(part: Sum) -> None:
        for exponent, value in part.items():
            total[exponent] = total.get(exponent, ZERO) + value

    whole = _value(_integrated(function, [], []), ZERO)
    for below, low, is_largest in _nearest(lowers, 1):
        for above, high, is_least in _nearest(uppers, -1):
            conditions_here = [*conditions, *is_largest, *is_least]
            messages: list[tuple[str, list[Piece], int]]
            if below is None or above is None or below == above:
                name = (above if below is None else below) or "1"
                message = _integrated(function, low, high)
                if name == "1":
                    message = [(None, None, _value(message, ZERO))]
                messages = [(name, message, 1)]
            else:
                conditions_here.append(plus(_of(above, high[0]), scaled(_of(below, low[0]), -1)))
                messages = [
                    (above, _integrated(function, [], high), 1),
                    (below, _integrated(function, low, []), 1),
                    ("1", [(None, None, whole)], -1),
                ]
            for name, message, sign in messages:
                more = {key: list(value) for key, value in factors.items()}
                more.setdefault(name, []).append(message)
                add(_summed(conditions_here, [False] * len(conditions_here), more, scale * sign))
    return {s: c for s, c in total.items() if c}


def _of(name: str | None, line: Line) -> dict[str, Fraction]:
    return plus({name: line[0]} if name is not None else {}, {"1": line[1]})


def _nearest(
    ends: dict[str | None, list[Line]], side: int
) -> list[tuple[str | None, list[Line], list[dict[str, Fraction]]]]:
    """Return each end, and when it is the nearest: the largest lower or the least upper one."""
    every = [(name, line) for name, lines in ends.items() for line in dict.fromkeys(lines)]
    if not every:
        return [(None, [], [])]
    return [
        (
            name,
            [line],
            [
                scaled(plus(_of(name, line), scaled(_of(other, its), -1)), side)
                for j, (other, its) in enumerate(every)
                if j != i
            ],
        )
        for i, (name, line) in enumerate(every)
    ]


# -----------------------------------------------------------------------------
# Bounds of sums of exponentials.


def bounds(number: Sum, digits: int) -> tuple[Fraction, Fraction]:
    """Return proven bounds of a sum of ``c e^s``; exponentials are correctly rounded decimals."""
    context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_EVEN, traps=[])
    low = high = ZERO
    for exponent, factor in number.items():
        x = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
        value = Fraction(context.exp(x))
        # rounding x moves the exponential by |s| 10^(1-digits) of it, its own by 10^(1-digits)
        error = value * (2 + 2 * abs(exponent)) * Fraction(1, 10 ** (digits - 1))
        ends = (factor * (value - error), factor * (value + error))
        low, high = low + min(ends), high + max(ends)
    return low, high


def exceeds(one: Sum, other: Sum, epsilon: Fraction) -> bool | None:
    """Whether ``one > e^epsilon other``, proven; None if many digits do not decide."""
    if not other:
        return bool(one)
    difference: Sum = dict(one)
    for exponent, factor in other.items():
        at = exponent + epsilon
        difference[at] = difference.get(at, ZERO) - factor
    difference = {s: c for s, c in difference.items() if c}
    if not difference:
        return False
    for digits in (40, 80, 160, 320, 640):
        low, high = bounds(difference, digits)
        if low > 0:
            return True
        if high <= 0:
            return False
    return None


def ratio(one: Sum, other: Sum) -> float:
    """Return the logarithm of a ratio: the float next to it; NaN where many digits do not do."""
    for digits in (60, 120, 240, 480):
        a, b = bounds(one, digits), bounds(other, digits)
        if min(a[0], b[0]) > 0 and all(x[1] - x[0] < x[0] / 10**30 for x in (a, b)):
            return float(logarithm(a[0] / b[0]))
    return math.nan


def logarithm(value: Fraction) -> Decimal:
    """Return a logarithm to 30 digits after its point or so."""
    context = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_EVEN, traps=[])
    return context.ln(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


# -----------------------------------------------------------------------------
# Points of a group.


def interior(
    conditions: Sequence[Inequality], known: Mapping[str, Fraction], margin: int = 1
) -> dict[str, Fraction] | None:
    """Return a point at which all conditions hold with room, or None.

    The least w with ``form + w >= 1`` everywhere: below 1 there is room. It is found from the dual
    programme, which begins at 0. With a margin of 0 it is a point of the closure.
    """
    forms = [fixed(each.form, known) for each in conditions]
    for form in forms:
        if not set(form) - {"1"} and form.get("1", ZERO) < (Fraction(1, 10**9) if margin else 0):
            return None
    forms = [form for form in forms if set(form) - {"1"}]
    names = sorted({name for form in forms for name in form} - {"1"})
    objective = [margin - form.get("1", ZERO) for form in forms]
    rows: list[list[Fraction]] = []
    for name in names:
        row = [form.get(name, ZERO) for form in forms]
        rows += [row, [-value for value in row]]
    rows.append([ONE] * len(forms))
    found = maximize(objective, rows, [ZERO] * (2 * len(names)) + [ONE])
    if found.value is None or found.value >= (ONE if margin else Fraction(1, 10**9)):
        return None
    return {
        name: found.duals[2 * i] - found.duals[2 * i + 1] for i, name in enumerate(names)
    } | dict(known)
