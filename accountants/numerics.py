"""Numbers that never under-report: outward rounding, brackets, and roots between proven ends.

A float computation of ``n`` basic steps has relative error at most about
``n * 2**-53``; `up` and `down` move a result past that error. Sums that decide a
certificate are exact rationals (`fractions.Fraction`), rounded once, at the end.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache, update_wrapper
from threading import RLock
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.errors import DomainError, nonnegative

UNIT = 2.0**-53
"""Relative error of one correctly rounded operation (float64)."""

Array = NDArray[np.float64]


Number = TypeVar("Number", float, Array)


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def totals(counts: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Return the sum of the counts of each key, in the order in which keys first come."""
    result: dict[K, int] = {}
    for key, count in counts:
        result[key] = result.get(key, 0) + count
    return result


def by_class(counts: Iterable[tuple[T, int]]) -> dict[type[T], list[tuple[T, int]]]:
    """Return values with their counts, those of one class together."""
    result: dict[type[T], list[tuple[T, int]]] = {}
    for value, count in counts:
        result.setdefault(type(value), []).append((value, count))
    return result


def up(value: Number, steps: float = 4) -> Number:
    """Return a number at least ``value * (1 + steps * 2**-53)`` (for either sign)."""
    return value + abs(value) * ((steps + 1) * UNIT) + 5e-324


def down(value: float, steps: float = 4) -> float:
    """Return a number at most ``value * (1 - steps * 2**-53)`` (for either sign)."""
    return value - abs(value) * ((steps + 1) * UNIT) - 5e-324


COSTS = frozenset({"epsilon", "delta", "mu", "rho"})
"""Parameters of losses that are bounds themselves: a larger one promises less."""


def shown(value: float, *, upward: bool, digits: int = 6) -> str:
    """Return a bound as text, rounded outward at ``digits`` significant digits.

    A number that has no more digits is itself: its text, read again, is the very same float.

    Examples
    --------
    >>> shown(1.2345678, upward=True), shown(1.2345678, upward=False), shown(0.1, upward=True)
    ('1.23457', '1.23456', '0.1')
    """
    if not math.isfinite(value):
        return str(value)
    rounding = ROUND_CEILING if upward else ROUND_FLOOR
    return f"{to_digits(value, digits, rounding):.{digits}g}"


def to_digits(value: float, digits: int, rounding: str) -> float:
    """Return a finite number rounded to significant digits, by a way of rounding of `decimal`."""
    if isinstance(value, RoundedUp):  # the rational itself, which is a little less than the float
        context, exact = Context(prec=digits, rounding=rounding), value.exact
        return float(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
    return float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))


def ceiling(value: Fraction) -> float:
    """Return the least float that is at least the rational ``value``."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def quotient(value: float, by: float) -> float:
    """Return ``value / by``, which knows the rational that it is where no float is.

    Examples
    --------
    >>> quotient(1.0, 10.0), quotient(3.0, 10.0), quotient(1.0, 2.0)
    (0.1, 0.30000000000000004, 0.5)
    >>> Fraction(quotient(3.0, 10.0))
    Fraction(3, 10)
    """
    if not (math.isfinite(value) and math.isfinite(by)):
        return value / by
    return rounded_up(Fraction(value) / Fraction(by))


def flooring(value: Fraction) -> float:
    """Return the greatest float that is at most the rational ``value``."""
    return -ceiling(-value) + 0.0  # not minus zero


# -----------------------------------------------------------------------------
# Rational costs: epsilon = 1/10 is no float, and ten of them are 1.


class RoundedUp(float):
    """A float that knows the rational number from which it was rounded up.

    Every computation in floats sees the float, which is an upper bound; every exact sum sees the
    rational, since ``Fraction(value)`` is that. Two are equal, and ordered, as their rationals:
    none equals a float, as no float is the rational. Its text is the rational's decimal where that
    is short, and its ``repr`` always the float's.

    Parameters
    ----------
    exact
        The rational; `rounded_up` returns a float where it is one.

    Examples
    --------
    >>> tenth = RoundedUp(Fraction(1, 10))
    >>> tenth, Fraction(tenth), tenth < 0.1, 10 * Fraction(tenth) == 1
    (0.1, Fraction(1, 10), True, True)
    >>> str(RoundedUp(Fraction(3, 10))), RoundedUp(Fraction(3, 10))
    ('0.3', 0.30000000000000004)
    """

    __slots__ = ("exact",)

    exact: Fraction

    def __new__(cls, exact: Fraction) -> RoundedUp:
        """Round the rational up, and keep it."""
        self = super().__new__(cls, ceiling(exact))
        object.__setattr__(self, "exact", exact)
        return self

    def as_integer_ratio(self) -> tuple[int, int]:
        """Return numerator and denominator of the rational: `Fraction` asks for these."""
        return self.exact.numerator, self.exact.denominator

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a number does not change, and has no {name!r} to set")

    def __str__(self) -> str:
        text = repr(self.exact.numerator / self.exact.denominator)  # of the nearest float
        return text if Fraction(text) == self.exact else float.__repr__(self)

    def __reduce__(self) -> tuple[type[RoundedUp], tuple[Fraction]]:
        return RoundedUp, (self.exact,)

    def __hash__(self) -> int:
        return float.__hash__(self)  # equal rationals are rounded to equal floats

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RoundedUp | Fraction):
            return self.exact == (other.exact if isinstance(other, RoundedUp) else other)
        # no float and no integer is the rational; what else there is compares with the float
        return False if isinstance(other, float | int) else float.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    # rounding up keeps the order, so that floats decide it where they differ
    def __lt__(self, other: Any) -> bool:
        return self.exact < Fraction(other) if self._is_close(other) else float.__lt__(self, other)

    def __le__(self, other: Any) -> bool:
        return self.exact <= Fraction(other) if self._is_close(other) else float.__le__(self, other)

    def __gt__(self, other: Any) -> bool:
        return self.exact > Fraction(other) if self._is_close(other) else float.__gt__(self, other)

    def __ge__(self, other: Any) -> bool:
        return self.exact >= Fraction(other) if self._is_close(other) else float.__ge__(self, other)

    def _is_close(self, other: Any) -> bool:
        """Whether only the rational tells this number from another: floats are equal, or none."""
        if isinstance(other, float):
            return float.__eq__(self, float(other))
        return isinstance(other, Fraction | int)


MOST_BITS, KEPT_BITS = 8192, 2304
"""A sum whose denominator has more bits than the first is rounded up, to the second.

No sum of floats, nor of their squares, has a denominator above ``2^2148``.
"""


def rounded_up(value: Fraction) -> float:
    """Return the least float that is at least ``value``, which knows ``value`` where it is less.

    Of a rational whose denominator has more bits than two floats make, the float alone.
    """
    above = ceiling(value)
    if value.denominator.bit_length() > KEPT_BITS or math.isinf(above):
        return above
    return above if above.as_integer_ratio()[1] == value.denominator else RoundedUp(value)


def bound(value: Fraction) -> float:
    """Return the least float that is at least ``value``, which knows it where it reads shorter.

    Three tenths are written 0.3, though the float of that text is less, and the bound is the next.

    Examples
    --------
    >>> str(bound(Fraction(3, 10))), bound(Fraction(1, 10)), bound(Fraction(3, 10)) > 0.3
    ('0.3', 0.1, True)
    """
    above = ceiling(value)
    nearest = value.numerator / value.denominator if math.isfinite(above) else above
    # where they are equal, the text is that of the float
    return RoundedUp(value) if nearest < above and Fraction(repr(nearest)) == value else above


def multiple(value: float, times: int) -> float:
    """Return ``times * value``, exactly or rounded up."""
    return rounded_up(Fraction(value) * times) if math.isfinite(value) else value


def plus(total: Fraction, cost: float | Fraction, times: int = 1) -> Fraction:
    """Return ``total + times * cost``, exactly; rounded up by at most ``2^-2304`` if it is long.

    A sum of floats is never so long, and neither is one of tenths. Costs with thousands of
    different denominators would make a sum that takes longer with each of them.
    """
    # a rational is at hand, and most costs are paid once: a product of rationals takes as long
    exact = cost.exact if isinstance(cost, RoundedUp) else Fraction(cost)
    total = total + (exact if times == 1 else exact * times)
    if total.denominator.bit_length() > MOST_BITS:
        # ceil(total 2^2304) / 2^2304
        return Fraction(-((-total.numerator << KEPT_BITS) // total.denominator), 1 << KEPT_BITS)
    return total


def exact_sum(costs: Iterable[tuple[float | Fraction, int]]) -> Fraction:
    """Return the sum of ``times * cost``, as `plus` adds them one after another, in less time.

    Numerators over the same power of two are integers that add up: a rational is made of their sum
    alone.

    Examples
    --------
    >>> exact_sum([(0.5, 3), (0.25, 1), (Fraction(1, 3), 2)])
    Fraction(29, 12)
    """
    dyadic: dict[int, int] = {}
    rest = Fraction()
    for value, times in costs:
        numerator, denominator = value.as_integer_ratio()
        if denominator & (denominator - 1):
            rest = plus(rest, Fraction(value), times)
        else:
            dyadic[denominator] = dyadic.get(denominator, 0) + numerator * times
    most = max(dyadic, default=1)
    # powers of two: each divides the largest
    total = sum(numerator * (most // each) for each, numerator in dyadic.items())
    return plus(rest, Fraction(total, most))


def cost(what: str, value: float | Fraction | Decimal) -> float:
    """Return a loss's epsilon as it was given: a rational or a decimal exactly, a float as it is.

    Raises
    ------
    DomainError
        If it is negative, or no number.

    Examples
    --------
    >>> Fraction(cost("epsilon", Decimal("0.1"))), Fraction(cost("epsilon", 0.5))
    (Fraction(1, 10), Fraction(1, 2))
    """
    if isinstance(value, RoundedUp):
        return value
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 400:
        value = Fraction(value)
    if isinstance(value, Fraction) and value >= 0:
        return rounded_up(value)
    return nonnegative(what, value)  # type: ignore[arg-type]


def declared(budget: float) -> Fraction:
    """Return what a budget allows: the decimal by which one writes its float, or the float if more.

    A person who writes 0.3 means 3/10, and the float is a little less; of 0.1 it is a little more.
    A claim that a sum stays within the budget is about the same number.

    Examples
    --------
    >>> declared(0.3), declared(1.0)
    (Fraction(3, 10), Fraction(1, 1))
    """
    exact = Fraction(budget)
    return exact if isinstance(budget, RoundedUp) else max(exact, Fraction(repr(float(budget))))


def kept(budget: float) -> float:
    """Return what a budget allows as a number that is at least that: the claim that it is kept.

    Examples
    --------
    >>> kept(0.3) > 0.3, Fraction(kept(0.3)), str(kept(0.3)), kept(0.5)
    (True, Fraction(3, 10), '0.3', 0.5)
    """
    return bound(declared(budget)) if math.isfinite(budget) else budget


def as_budget(claim: float) -> float:
    """Return a float that, as a budget, allows no less than a claim: the inverse of `kept`.

    Examples
    --------
    >>> as_budget(kept(0.3)), as_budget(0.5)
    (0.3, 0.5)
    """
    return float(str(claim)) if isinstance(claim, RoundedUp) else claim


# -----------------------------------------------------------------------------
# The answer of every accountant: a bracket around the tight value.


@frozen
class Bounds:
    """A proven bracket ``lower <= truth <= upper``.

    The truth is the tight epsilon (or delta) of the composition of the declared
    losses; a mechanism that does not attain its declared loss may lie below.

    Parameters
    ----------
    lower, upper
        In nats for an epsilon, a probability for a delta. ``upper`` may be infinite.

    Examples
    --------
    >>> from accountants import Laplace, Renyi, Repeated, Spend, measure
    >>> bounds = measure(Repeated(Spend(Laplace(epsilon=0.1)), 100), Renyi(), delta=1e-6).bounds
    >>> bounds.lower < bounds.upper
    True
    >>> print(bounds)  # the lower end rounded down, the upper end up
    [0.0999979, 4.98418]
    >>> Bounds(2.0, 1.0)
    Traceback (most recent call last):
        ...
    accountants.errors.DomainError: bounds must satisfy lower <= upper, got 2.0 and 1.0
    """

    lower: float
    upper: float = field()

    @upper.validator
    def _ordered(self, _: object, upper: float) -> None:
        if math.isnan(self.lower) or math.isnan(upper) or self.lower > upper:
            raise DomainError(f"bounds must satisfy lower <= upper, got {self.lower} and {upper}")

    def __str__(self) -> str:
        return f"[{shown(self.lower, upward=False)}, {shown(self.upper, upward=True)}]"

    def intersection(self, other: Bounds) -> Bounds:
        """Return the better ends of two brackets: as both are proven, so are these."""
        return bracket(max(self.lower, other.lower), min(self.upper, other.upper))


def bracket(lower: float, upper: float) -> Bounds:
    """Return the bounds; a lower end above the upper by rounding alone is lowered."""
    # both ends are proven, so they cross by rounding alone
    if lower > upper:
        crossed(lower, upper)
    return Bounds(min(lower, upper), upper)


def brackets(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds; a lower one above the upper by rounding alone is lowered."""
    for one, other in zip(lower[lower > upper], upper[lower > upper], strict=True):
        crossed(float(one), float(other))
    return np.minimum(lower, upper), upper


def crossed(lower: float, upper: float) -> None:
    """Take note of ends that cross: nothing is done here, and the upper one holds.

    In the tests a crossing by more than rounding is an error (``tests/conftest.py``): one of the
    two methods that the ends are of is wrong.
    """


# -----------------------------------------------------------------------------
# Complex exponentials and logarithms near 1, with the error that a float makes of them.
#
# A log-moment of a small privacy loss, paid a million times, is a million times a number next
# to 0: it must be known to a relative error, not to one unit of 1.


Complex = NDArray[np.complex128]


def expm1(z: Complex) -> Complex:
    """Return ``e^z - 1``, within ``32 UNIT`` of its own modulus.

    ``e^{x+iy} - 1 = expm1(x) cos y - 2 sin^2(y/2) + i e^x sin y``; neither part of the real
    part is larger than four times the modulus, so what cancels there is harmless.
    """
    x, y = z.real, z.imag
    half = np.sin(y / 2)
    result = np.empty(np.shape(z), dtype=np.complex128)
    result.real = np.expm1(x) * np.cos(y) - 2 * half * half
    result.imag = np.exp(x) * np.sin(y)
    return result


def log1p(m: Complex, error: Array) -> tuple[Complex, Array]:
    """Return ``log(1 + m)`` and a bound of its error, where ``m`` is within ``error``.

    ``log|1 + m| = log1p(2a + a^2 + b^2) / 2`` for ``m = a + ib``. Where the error is not small
    beside ``|1 + m|`` nothing is known, and the bound is infinite.
    """
    a, b = m.real, m.imag
    size = np.hypot(1 + a, b)
    result = np.empty(np.shape(m), dtype=np.complex128)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = a * a + b * b
        result.real = np.log1p(2 * a + square) / 2
        result.imag = np.arctan2(b, 1 + a)
        # relative to |1 + m|: the given error, and the rounding of 2a + a^2 + b^2
        moved = error / size + 8 * UNIT * (np.abs(a) + square) / (size * size)
        # |log(1 + x)| <= 2 |x| for |x| <= 1/2
        bound = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(result), np.inf)
    return result, np.where(np.isfinite(bound), bound, np.inf)


def least_square_of_sine(low: Array, high: Array) -> Array:
    """Return a lower bound of ``sin^2 y`` for all y between two positive ends.

    Between two zeros it is least at an end.
    """
    apart = np.floor(high / np.pi) > np.floor(low / np.pi)
    # an end is rounded by a few units of its size, and sin^2 moves by at most as much
    least = np.minimum(np.sin(low) ** 2, np.sin(high) ** 2) - 16 * UNIT * (1 + high)
    return np.where(apart | (high - low > 3), 0.0, np.maximum(least, 0.0))


@cache
def gauss_rule(points: int) -> tuple[Array, Array]:
    """Return the nodes and weights of Gauss's rule on [-1, 1], the same arrays each time."""
    return np.polynomial.legendre.leggauss(points)


# -----------------------------------------------------------------------------
# Where a falling function crosses zero, as a bracket that its own signs prove.


def crossing(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return (left, right) with ``function(left) > 0 >= function(right)``, close together.

    Parameters
    ----------
    function
        Falling, with ``function(low) > 0 >= function(high)``; rounding may blur its sign near
        the root, so both ends are checked by evaluation, and moved outward until they hold.
    low, high
        Finite, ``low < high``.
    """

    def clamped(x: float) -> float:
        return max(-1e6, min(1e6, function(x)))

    root = _brent(clamped, low, high)
    # the root is a guess; `around` evaluates both ends
    return around(function, root, low, high)


def _brent(function: Callable[[float], float], low: float, high: float) -> float:
    """Return about where a function changes its sign (Brent 1973, ch. 4).

    The steps are those of SciPy's ``brentq``, whose import takes longer than most questions.
    """
    before, now, other = low, high, 0.0
    f_before, f_now, f_other = function(low), function(high), 0.0
    if f_before == 0:
        return low
    step = last = 0.0
    for _ in range(200):
        if f_now == 0:
            return now
        if f_before != 0 and (f_before < 0) != (f_now < 0):
            other, f_other = before, f_before
            last = step = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        width, half = (1e-300 + 1e-15 * abs(now)) / 2, (other - now) / 2
        if f_now == 0 or abs(half) < width:
            return now
        trial = math.inf
        if abs(last) > width and abs(f_now) < abs(f_before):
            # a slope that underflows to 0 gives no step: half of the way is gone instead
            with contextlib.suppress(ZeroDivisionError):
                if before == other:  # secant
                    trial = -f_now * (now - before) / (f_now - f_before)
                else:  # inverse quadratic
                    one = (f_before - f_now) / (before - now)
                    two = (f_other - f_now) / (other - now)
                    quadratic = -f_now * (f_other * two - f_before * one)
                    trial = quadratic / (two * one * (f_other - f_before))
        if 2 * abs(trial) < min(abs(last), 3 * abs(half) - width):
            last, step = step, trial
        else:
            last = step = half
        before, f_before = now, f_now
        now += step if abs(step) > width else math.copysign(width, half)
        f_now = function(now)
    return now


def around(
    function: Callable[[float], float], root: float, low: float, high: float
) -> tuple[float, float]:
    """Return (left, right) as `crossing` does, from a good guess of the root."""
    root = min(high, max(low, root))
    width = 2e-15 * abs(root) + 5e-324
    left, right = max(low, root - width), min(high, root + width)
    # moved outward until the sign is seen
    while left > low and not function(left) > 0:
        width *= 4
        left = max(low, root - width)
    width = 2e-15 * abs(root) + 5e-324
    while right < high and function(right) > 0:
        width *= 4
        right = min(high, root + width)
    return left, right


def enclosure(
    profile: Callable[[Array], tuple[Array, Array]], delta: float, left: float, right: float
) -> tuple[float, float]:
    """Return where a falling profile in [0, 1], known by bounds, crosses ``delta``.

    Parameters
    ----------
    profile
        From points to lower and upper bounds.
    delta
        In (0, 1).
    left, right
        Finite, ``left < right``.

    Returns
    -------
    tuple
        Two points between those: ``left``, or one whose lower bound is above ``delta``, and
        ``right``, or one whose upper bound is not; close together where the bounds are.
        Each round asks some points around the crossing of the last bounds' chord, and some that
        shorten the bracket in any case.
    """
    points = np.array([left, right])
    ends: list[tuple[float, float]] = []
    for _ in range(64):
        low, high = profile(points)
        # the profile falls: the last point whose lower bound is above, the first whose upper is not
        before, left = right - left, float(points[low > delta].max(initial=left))
        right = float(points[(high <= delta) & (points >= left)].min(initial=right))
        width = right - left
        if not width > 1e-11 * right or (len(points) > 2 and width > 0.3 * before):
            break
        points_with_bounds = sorted([*ends, *zip(points.tolist(), high.tolist(), strict=True)])
        after = next((i for i, (_, value) in enumerate(points_with_bounds) if value <= delta), 0)
        ends = points_with_bounds[max(0, after - 1) : after + 1]
        around = _chord_root(ends, delta, left, right) + width * _OFFSETS
        points = np.sort(np.clip(np.append(around, left + width * _INSIDE), left, right))
    return left, right


_INSIDE = np.array([0.25, 0.5, 0.75])
_OFFSETS = np.ldexp([-1.0, -1, -1, 0, 1, 1, 1], [-5, -12, -24, 0, -24, -12, -5])


def _chord_root(ends: list[tuple[float, float]], delta: float, left: float, right: float) -> float:
    """Return about where a profile crosses ``delta``, from a point before and one after that.

    On their chord, that of the logarithms where the profile does not fall to almost nothing.
    """
    if len(ends) < 2 or not ends[0][1] > delta >= ends[1][1]:
        return (left + right) / 2
    (x, a), (y, b) = ends
    if b > 1e-3 * delta:
        a, b, delta = math.log(a), math.log(b), math.log(delta)
    # bounds that differ in their last bits alone have equal logarithms, and no chord
    return (
        min(right, max(left, x + (y - x) * (a - delta) / (a - b))) if a > b else (left + right) / 2
    )


# -----------------------------------------------------------------------------
# What was computed is kept for who asks again, up to so many bytes.


P = ParamSpec("P")
R = TypeVar("R")


def remembered(entries: int, size: int = 2**25) -> Callable[[Callable[P, R]], Remembered[P, R]]:
    """Return a decorator that keeps the last results, as `functools.lru_cache` does, within bytes.

    Parameters
    ----------
    entries
        How many at most.
    size
        How many bytes arrays and tuples of numbers may hold, those of arguments included. The last
        result is kept however large it is.

    Examples
    --------
    >>> @remembered(8, size=2000)
    ... def zeros(count):
    ...     return np.zeros(count)
    >>> zeros(100) is zeros(100), zeros(100) is zeros(200)
    (True, False)
    >>> zeros(1000).nbytes, len(zeros)
    (8000, 1)
    """

    def keep(function: Callable[P, R]) -> Remembered[P, R]:
        return Remembered(function, entries, size)

    return keep


class Remembered(Generic[P, R]):
    """A function whose last results are kept; made by `remembered`."""

    def __init__(self, function: Callable[P, R], entries: int, size: int) -> None:
        self._function, self._entries, self._size = function, entries, size
        self._results: OrderedDict[_Arguments, R] = OrderedDict()
        self._lock = RLock()
        self._made = 0
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result that is kept, or a new one."""
        key = _Arguments((args, *sorted(kwargs.items())))
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = self._function(*args, **kwargs)
        with self._lock:
            self._results[key] = result
            self._made += 1
            self._trim()
        return result

    def __len__(self) -> int:
        return len(self._results)

    def cache_clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._results.clear()

    def _trim(self) -> None:
        """Drop the oldest results until what is left is within the bounds."""
        while len(self._results) > self._entries:
            self._results.popitem(last=False)
        # results may grow after they were returned, so all are measured, now and then
        if self._made % max(1, len(self._results) // 8):
            return
        total = 0
        for i, (key, result) in enumerate(reversed(self._results.items())):
            total += bytes_held((key.value, result))
            if total > self._size:
                for _ in range(len(self._results) - max(1, i)):
                    self._results.popitem(last=False)
                return


class _Arguments:
    """Arguments whose hash is computed once: a composition has a thousand losses."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: tuple[Any, ...]) -> None:
        self.value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arguments) and self.value == other.value


def bytes_held(value: object) -> int:
    """Return about how many bytes the arrays and the long tuples of numbers in a value hold.

    Examples
    --------
    >>> bytes_held((np.zeros(10), {"more": [np.zeros(5)]})), bytes_held(tuple([0.5] * 100))
    (120, 3200)
    """
    total, seen, waiting = 0, set[int](), [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, float | int | str | type | None):
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            total += each.nbytes if each.base is None else 0
            waiting += [] if each.base is None else [each.base]
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, tuple | list | deque | frozenset | set):
            some = next(iter(each), None)
            if len(each) > _LONG and isinstance(some, float | int):
                total += 32 * len(each)  # a pointer, and a float of its own
            else:
                waiting += each
        else:
            names = [field.name for field in getattr(type(each), "__attrs_attrs__", ())]
            waiting += [getattr(each, name, None) for name in names]
            waiting += getattr(each, "__dict__", {}).values()
    return total


_LONG = 16
