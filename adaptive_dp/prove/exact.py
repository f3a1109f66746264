"""Linear forms and inequalities in exact fractions, and the simplex method on integers.

Everything that a search for a proof decides, it decides here, without rounding: whether conditions
contradict each other, and the least cost of a move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from attrs import frozen

Number = int | Fraction
Form = Mapping[str, Fraction]
"""A linear form: coefficients by variable (``q0`` an answer, ``v0`` a draw), and ``1`` for the
constant. No coefficient is 0."""


def plus(one: Mapping[str, Number], other: Mapping[str, Number]) -> dict[str, Fraction]:
    """Return the sum of two forms."""
    total = {name: Fraction(value) for name, value in one.items()}
    for name, value in other.items():
        total[name] = total.get(name, Fraction(0)) + value
    return {name: value for name, value in total.items() if value}


def scaled(form: Form, factor: Number) -> dict[str, Fraction]:
    """Return a form times a number."""
    return {name: value * factor for name, value in form.items()} if factor else {}


def value_of(form: Form, point: Mapping[str, Number]) -> Fraction:
    """Return a form at a point; a variable that the point does not have is 0."""
    return sum(
        (value * (1 if name == "1" else point.get(name, 0)) for name, value in form.items()),
        Fraction(0),
    )


def shown_form(form: Form) -> str:
    """Return a form for people, such as ``q0 + v1 - 3``.

    Examples
    --------
    >>> shown_form({"q0": Fraction(1), "v1": Fraction(-2), "1": Fraction(3)})
    'q0 - 2 v1 + 3'
    """
    text = ""
    for name, value in sorted(form.items(), key=lambda item: (item[0] == "1", item[0])):
        size = abs(value)
        unit = "" if name == "1" else name
        number = "" if size == 1 and unit else shown_number(size)
        term = f"{number} {unit}".strip()
        if not text:
            text = f"-{term}" if value < 0 else term
        else:
            text += f" {'-' if value < 0 else '+'} {term}"
    return text or "0"


def shown_number(value: Number) -> str:
    """Return a fraction for people: as a decimal number where that is short, else as it is.

    Examples
    --------
    >>> shown_number(Fraction(9, 10)), shown_number(Fraction(4, 3)), shown_number(2)
    ('0.9', '4/3', '2')
    """
    exact = Fraction(value)
    if exact.denominator == 1 and abs(exact) < 10**15:
        return str(exact)
    if 1000 % exact.denominator == 0 and abs(exact) < 10**6:
        return f"{float(exact):.9g}"
    if len(str(exact)) <= 8:
        return str(exact)
    return f"{Decimal(exact.numerator) / Decimal(exact.denominator):.6g}"


def _normal(form: Mapping[str, Number]) -> Form:
    """Return a positive multiple of a form: the same for all multiples."""
    names = sorted(name for name, value in form.items() if name != "1" and value)
    size = abs(Fraction(form[names[0]])) if names else Fraction(1)
    return {name: Fraction(value) / size for name, value in form.items() if value}


@frozen(eq=False)
class Inequality:
    """``form > 0`` if strict, else ``form >= 0``."""

    form: Form
    strict: bool

    def negated(self) -> Inequality:
        """Return what holds if and only if this does not."""
        return Inequality(scaled(self.form, -1), not self.strict)

    def key(self) -> tuple[Any, bool]:
        """Return a value that equal inequalities share."""
        return tuple(sorted(_normal(self.form).items())), self.strict

    def normal(self) -> Inequality:
        """Return the positive multiple of it that equal inequalities share."""
        return Inequality(_normal(self.form), self.strict)

    @staticmethod
    def of(key: tuple[Any, bool]) -> Inequality:
        """Return the inequality of a key."""
        return Inequality(dict(key[0]), key[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inequality) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __str__(self) -> str:
        return f"{shown_form(self.form)} {'>' if self.strict else '>='} 0"


# -----------------------------------------------------------------------------
# The simplex method.


@frozen
class Optimum:
    """What a linear programme has found.

    Parameters
    ----------
    value
        The largest value; None if there is none, and ``x`` is then a direction without end.
    x
        Where it is attained.
    duals
        A multiplier for each row, which proves that no value is larger.
    """

    value: Fraction | None
    x: tuple[Fraction, ...]
    duals: tuple[Fraction, ...] = ()


def maximize(
    objective: Sequence[Number], rows: Sequence[Sequence[Number]], bounds: Sequence[Number]
) -> Optimum:
    """Return the largest ``objective . x`` with ``rows x <= bounds`` and ``x >= 0``, exactly.

    The bounds must not be negative, so that x = 0 is where the search begins. Rows are kept as
    integers, which are divided by their common divisor; the entering variable is Bland's after some
    steps, so that it ends.

    Examples
    --------
    >>> maximize([1, 1], [[1, 2], [3, 1]], [4, 6]).value
    Fraction(14, 5)
    """
    count, size = len(objective), len(rows)
    if not count:
        return Optimum(Fraction(0), (), (Fraction(0),) * size)
    table = []
    for i, row in enumerate(rows):
        entries = [*row, *(1 if j == i else 0 for j in range(size)), bounds[i]]
        table.append(_integers(entries))
    # the last entry is the factor of the objective itself, whose row is scaled as well
    top = _integers([*(-c for c in objective), *([0] * size), 0, 1])
    basis = [count + i for i in range(size)]
    steps = 0
    while True:
        steps += 1
        if steps <= 60:  # the steepest, as long as it does not run in a circle
            entering = min(range(count + size), key=lambda j: top[j])
            if top[entering] >= 0:
                break
        else:
            entering = next((j for j in range(count + size) if top[j] < 0), -1)
            if entering < 0:
                break
        leaving = -1
        for i in range(size):
            step = table[i][entering]
            if step <= 0:
                continue
            if leaving < 0:
                leaving = i
                continue
            difference = table[i][-1] * table[leaving][entering] - table[leaving][-1] * step
            if difference < 0 or (difference == 0 and basis[i] < basis[leaving]):
                leaving = i
        if leaving < 0:
            ray = [Fraction(0)] * (count + size)
            ray[entering] = Fraction(1)
            for i in range(size):
                ray[basis[i]] = Fraction(-table[i][entering], table[i][basis[i]])
            return Optimum(None, tuple(ray[:count]))
        pivot = table[leaving]
        factor = pivot[entering]
        for i in range(size):
            other = table[i][entering]
            if i != leaving and other:
                table[i] = _reduced(
                    [a * factor - b * other for a, b in zip(table[i], pivot, strict=True)]
                )
        other = top[entering]
        top = _reduced([a * factor - b * other for a, b in zip(top, [*pivot, 0], strict=True)])
        basis[leaving] = entering
    x = [Fraction(0)] * (count + size)
    for i in range(size):
        x[basis[i]] = Fraction(table[i][-1], table[i][basis[i]])
    # a slack is scaled with its row, so its multiplier is that of the row as given
    duals = tuple(Fraction(top[count + i], top[-1]) for i in range(size))
    return Optimum(Fraction(top[-2], top[-1]), tuple(x[:count]), duals)


def _integers(row: Sequence[Number]) -> list[int]:
    factor = lcm(*(Fraction(v).denominator for v in row), 1)
    return _reduced([int(v * factor) for v in row])


def _reduced(row: list[int]) -> list[int]:
    divisor = gcd(*row)
    return [v // divisor for v in row] if divisor > 1 else row


# -----------------------------------------------------------------------------
# Contradictions.


def contradiction(conditions: Sequence[Inequality]) -> dict[int, Fraction] | None:
    """Return why conditions cannot hold together: multipliers by index; None if they can.

    The sum of the conditions times the multipliers, which are not negative, is a constant: below
    0, or 0 where a strict one has part in it. There is such a sum if and only if they cannot hold.

    References
    ----------
    Motzkin 1936 (the transposition theorem), after Farkas 1902.

    Examples
    --------
    >>> x, y = {"x": Fraction(1)}, {"x": Fraction(-1), "1": Fraction(2)}
    >>> contradiction([Inequality(x, False), Inequality(y, False)])
    >>> contradiction([Inequality(x, False), Inequality(scaled(x, -1), True)])
    {0: Fraction(1, 1), 1: Fraction(1, 1)}
    """
    for i, each in enumerate(conditions):
        if set(each.form) <= {"1"}:
            constant = each.form.get("1", Fraction(0))
            if constant < 0 or (constant == 0 and each.strict):
                return {i: Fraction(1)}
    active = list(range(len(conditions)))
    # a variable of one sign can be made so large that its conditions hold: they have no part
    while True:
        signs: dict[str, set[bool]] = {}
        for i in active:
            for name, value in conditions[i].form.items():
                if name != "1":
                    signs.setdefault(name, set()).add(value > 0)
        single = {name for name, found in signs.items() if len(found) == 1}
        kept = [i for i in active if not single & conditions[i].form.keys()]
        if len(kept) == len(active):
            break
        active = kept
    if not active:
        return None
    opposite = _opposite(conditions, active)
    if opposite is not None:
        return opposite
    rows: dict[tuple[Fraction, ...], None] = {}
    for name in signs:
        row = tuple(conditions[i].form.get(name, Fraction(0)) for i in active)
        lead = next((v for v in row if v), None)
        if lead is not None:  # one row for equal ones
            rows.setdefault(tuple(v / lead for v in row))
    constants = [conditions[i].form.get("1", Fraction(0)) for i in active]
    both = [*rows, *(tuple(-v for v in row) for row in rows), tuple(constants)]
    objective = [
        -constant + (1 if conditions[i].strict else 0)
        for i, constant in zip(active, constants, strict=True)
    ]
    found = maximize(objective, both, [0] * len(both))
    if found.value is not None:
        return None
    return {i: value for i, value in zip(active, found.x, strict=True) if value}


def _opposite(
    conditions: Sequence[Inequality], active: Sequence[int]
) -> dict[int, Fraction] | None:
    """Return two conditions that contradict each other, one of them a multiple of the other."""
    seen: dict[tuple[Any, ...], list[int]] = {}
    for i in active:
        form = conditions[i].form
        key = tuple(sorted((n, v) for n, v in form.items() if n != "1"))
        negative = tuple((n, -v) for n, v in key)
        for j in seen.get(negative, ()):
            constant = form.get("1", Fraction(0)) + conditions[j].form.get("1", Fraction(0))
            strict = conditions[i].strict or conditions[j].strict
            if constant < 0 or (constant == 0 and strict):
                return {j: Fraction(1), i: Fraction(1)}
        seen.setdefault(key, []).append(i)
    return None


def implied(conditions: Sequence[Inequality], claim: Inequality) -> dict[int, Fraction] | None:
    """Return why conditions imply another: the contradiction with its negation, which is last."""
    return contradiction([*conditions, claim.negated()])
