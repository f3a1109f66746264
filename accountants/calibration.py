"""One-dimensional search: the value at which a monotone cost meets a target, and stays within.

The search sees logarithms, in which costs are close to straight lines, and ends where two values
next to each other were seen on either side of the target. The answer is a short number between the
two if one is within the target, or the one that is, rounded away from the target to as many digits
as were asked for: the last bits of costs differ between machines, and answers should not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from accountants.accountant import Accountant
from accountants.certification import Answer, measure
from accountants.definitions import gdp_epsilon
from accountants.errors import DomainError, positive, probability
from accountants.guarantee import Chosen, applicable
from accountants.numerics import Bounds, to_digits
from accountants.terms import Sequential, Term
from accountants.world import worlds

FINEST = 1e-14
"""Below this a logarithm has no digits."""

_NEAREST = 1e-300
"""The gap of a cost above the target whose logarithm is the target's."""

_NEAR = 0.05
"""Where the first value's cost is so near to the target, the tightest accountant there is kept."""


@frozen
class Point:
    """A value that was tried.

    Parameters
    ----------
    value
        The value; an integer where only those are asked for.
    position
        Its logarithm, or minus that where the cost increases: the cost decreases in ``position``.
    gap
        log(cost / target), positive exactly where the cost is not within the target.
    """

    value: float
    position: float
    gap: float


@frozen
class Search:
    """A search for the value at which a monotone cost meets a target.

    Parameters
    ----------
    cost
        A number for each value; what is not a number counts as infinite.
    target
        Positive and finite.
    least, most
        The values that may be tried, positive.
    decreasing
        Whether the cost decreases in the value.
    digits
        Relative width of the final bracket; without meaning for integers.
    integer
        Whether values are integers; then the final bracket is two neighbours.
    """

    cost: Callable[[float], float]
    target: float
    least: float
    most: float
    decreasing: bool = True
    digits: float = 1e-10
    integer: bool = False

    def evaluate(self, value: float) -> Point:
        """Return the point of a value."""
        return Point(value, self.position(value), gap(self.cost(value), self.target))

    def value(self, position: float) -> float:
        """Return the value at a position, or the nearest one that may be tried."""
        # e^709 is the last power that a float holds
        value = math.exp(min(709.0, position if self.decreasing else -position))
        if self.integer:
            value = round(value)
        return min(max(value, self.least), self.most)

    def position(self, value: float) -> float:
        """Return the position of a value."""
        # positions are signed so that the cost decreases in them either way
        return math.log(value) if self.decreasing else -math.log(value)

    def edge(self, side: int) -> float:
        """Return the value that costs least (side 1) or most."""
        return self.most if (side > 0) == self.decreasing else self.least


def gap(cost: float, target: float) -> float:
    """Return log(cost / target), positive exactly where the cost is not within the target."""
    # NaN fails the comparison too, and counts as infinite
    if not cost < math.inf:
        return math.inf
    if cost <= 0:
        return -math.inf
    # a difference of logarithms: the quotient of a tiny cost would underflow
    excess = math.log(cost) - math.log(target)
    return min(0.0, excess) if cost <= target else max(_NEAREST, excess)


def boundary(search: Search, start: float) -> Point | None:
    """Return the last point within the target; None where no value is.

    The point was evaluated. Beside it, within twice ``digits``, lies a value that was evaluated and
    is not within the target, unless the point is the costliest value that may be tried.
    """
    # walk outward until the target lies between two values that were both evaluated
    points = [search.evaluate(min(max(start, search.least), search.most))]
    # side 1 goes to cheaper values, -1 to costlier ones
    side = 1 if points[0].gap > 0 else -1
    while (points[-1].gap > 0) == (side > 0):
        # no further value: none is within the target, or even the costliest is
        if points[-1].value == search.edge(side):
            return None if side > 0 else points[-1]
        points.append(_outward(search, points, side))
    # the last two lie on either side of the target; `safe` is within it
    over, safe = points[-2:] if side > 0 else (points[-1], points[-2])
    return _rounded(search, *_narrowed(search, points, over, safe))


def _rounded(search: Search, over: Point, safe: Point) -> Point:
    """Return a point of few digits that is within the target.

    The shortest number between the ends, if it is; or the safe end rounded away from the target.
    """
    if search.integer:
        return safe
    # decimal digits that resolve the relative width; a float has 15
    most = min(15, 1 + math.ceil(-math.log10(search.digits)))
    low, high = sorted((over.value, safe.value))
    # lazily, the shortest first
    short = (to_digits(safe.value, count, ROUND_HALF_EVEN) for count in range(1, most))
    away = to_digits(safe.value, most, ROUND_CEILING if search.decreasing else ROUND_FLOOR)
    first = next((each for each in short if low < each < high), away)
    for value in dict.fromkeys((first, away)):  # each seen once
        if search.least <= value <= search.most:
            point = search.evaluate(value)
            # the rounded number is evaluated too: nothing is returned on trust
            if point.gap <= 0:
                return point
    return safe


def _outward(search: Search, points: Sequence[Point], side: int) -> Point:
    """Return the next point on the way to the other side of the target.

    At first as if the cost were a power -1 of the value; then on the line through the last two.
    """
    last, finite = points[-1], [point for point in points if math.isfinite(point.gap)]
    last_step = abs(last.position - points[-2].position) if len(points) > 1 else 0.0
    slope = -1.0 if len(finite) < 2 else _slope(finite[-2], finite[-1])
    # a tenth past the predicted crossing, so as to land beyond it
    step = 1.1 * abs(last.gap / slope) if slope and math.isfinite(last.gap) else math.log(2.0)
    # steps at least double once the prediction has failed often, so the walk ends
    least = 0.3 * last_step if len(finite) > 1 and len(points) < 4 else 2 * last_step
    # nor is a step of use that is far less than the digits asked for
    step = max(step, least, 1e-6, search.digits / 5)
    position = last.position + side * min(step, max(2.0, 4 * last_step))
    value = search.value(position)
    # a step that rounds to nothing moves by one integer
    if search.integer and value == last.value:
        value += 1 if (side > 0) == search.decreasing else -1
    return search.evaluate(min(max(value, search.least), search.most))


def _narrowed(search: Search, points: list[Point], over: Point, safe: Point) -> tuple[Point, Point]:
    """Return the ends once the bracket is narrow.

    Where three steps have not halved the bracket the next one does, whatever the cost is like.
    """
    widths = [math.inf] * 3
    while not _narrow(search, over, safe):
        # positive: the cost decreases in the position, so the safe end has the larger one
        width = safe.position - over.position
        # three steps that did not halve the bracket: bisect, so that it ends in any case
        slow = width > widths[-3] / 2
        position = (
            (over.position + safe.position) / 2 if slow else _guess(search, points, over, safe)
        )
        # `safe` is only ever replaced by an evaluated value within the target
        middle = _between(search, position, over, safe)
        if middle is None:
            break
        widths = [math.inf] * 3 if slow else [*widths[1:], width]
        points.append(middle)
        over, safe = (middle, safe) if middle.gap > 0 else (over, middle)
    return over, safe


def _narrow(search: Search, over: Point, safe: Point) -> bool:
    if search.integer:
        # integers: two neighbours are as narrow as it gets
        return abs(safe.value - over.value) <= 1
    return safe.position - over.position <= search.digits


def _between(search: Search, position: float, over: Point, safe: Point) -> Point | None:
    """Return the point at a position, which must lie strictly between the ends."""
    low, high = sorted((over.value, safe.value))
    value = search.value(position)
    if search.integer:
        value = min(max(value, low + 1), high - 1)
    if not low < value < high:
        value = (low + high) / 2
    return search.evaluate(value) if low < value < high else None


def _guess(search: Search, points: Sequence[Point], over: Point, safe: Point) -> float:
    """Return the position of the next point.

    The best estimate of the crossing is that of the parabola through the three points nearest to
    the target; it is missed on purpose, by about its error, on the side of the farther end, so
    that both ends come closer.
    """
    # only a guess: both ends are evaluated before they are believed
    width, middle = safe.position - over.position, (over.position + safe.position) / 2
    nearest = sorted((p for p in points if math.isfinite(p.gap)), key=lambda p: abs(p.gap))[:3]
    line = _line(nearest[0], nearest[1]) if len(nearest) > 1 else math.nan
    cut = _parabola(nearest) if len(nearest) > 2 else line
    if not over.position < cut < safe.position:
        return middle
    # in logarithms a step of one integer is about 1 / value
    least_miss = 0.6 / safe.value if search.integer else search.digits / 3
    # the parabola's error, judged by how far it moved from the chord
    error = abs(cut - line) * min(1.0, abs(nearest[-1].position - cut))
    miss = min(max(error, least_miss), width / 4)
    return cut + miss if safe.position - cut > cut - over.position else cut - miss


def _slope(one: Point, other: Point) -> float:
    return (
        (other.gap - one.gap) / (other.position - one.position)
        if other.position != one.position
        else 0.0
    )


def _line(one: Point, other: Point) -> float:
    slope = _slope(one, other)
    # a slope that does not fall is rounding: no crossing is read off it
    return one.position - one.gap / slope if slope < 0 else math.nan


def _parabola(points: Sequence[Point]) -> float:
    """Return the position at gap 0, where it is a quadratic function of the gap."""
    a, b, c = points
    if len({a.gap, b.gap, c.gap}) < 3 or len({a.position, b.position, c.position}) < 3:
        return _line(a, b)
    first, second = (
        (b.position - a.position) / (b.gap - a.gap),
        (c.position - b.position) / (c.gap - b.gap),
    )
    # the cost decreases in the position, so both chords must; rounding may say otherwise
    if not (first < 0 and second < 0):
        return _line(a, b)
    # Newton's divided differences of the position as a function of the gap, evaluated at gap 0
    bend = (second - first) / (c.gap - a.gap)
    return a.position - a.gap * first + a.gap * b.gap * bend


# -----------------------------------------------------------------------------
# Solving one free number of a term, on the certified upper bound.
#
# The answer is a value that was itself evaluated and is within the target, near one that is not.
# Nothing is extrapolated, so the target is not exceeded by a single unit in the last place.


@frozen
class Calibration:
    """A solved number, and what is certified of the term with it.

    Parameters
    ----------
    value
        The number; an int where integers were asked for.
    term
        The term at the value.
    epsilon
        Bracket of the term's epsilon at ``delta``; its upper end is within the target.
    delta
        The delta asked for.
    accountant
        The name of the accountant that certifies it.
    evaluations
        How many values were tried.

    Examples
    --------
    >>> from accountants import GaussianDP, Gaussian, Repeated, Spend
    >>> ten = lambda sigma: Repeated(Spend(Gaussian(mu=1 / sigma)), 10)
    >>> solved = calibrate(ten, epsilon=1.0, delta=1e-6, accountant=GaussianDP())
    >>> round(solved.value, 3), solved.accountant, solved.epsilon.upper <= 1.0
    (13.36, 'gaussian', True)
    """

    value: float
    term: Term = field(repr=False)
    epsilon: Bounds
    delta: float
    accountant: str
    evaluations: int


def calibrate(
    term: Callable[[Any], Term],
    *,
    epsilon: float,
    delta: float,
    accountant: Chosen = None,
    cost: Literal["decreasing", "increasing"] | None = None,
    integer: bool = False,
    start: float = 1.0,
    between: tuple[float, float] | None = None,
    digits: float = 1e-10,
) -> Calibration:
    """Return the value of a term's free number that spends a budget and does not exceed it.

    Parameters
    ----------
    term
        The term for a value of the number: a noise multiplier, a sampling rate, a number of
        steps, a clipping share, or any other number in which the cost is monotone.
    epsilon, delta
        The target; epsilon positive, delta in [0, 1].
    accountant
        One, or several of which the tightest counts; by default the tight one that is fast.
    cost
        Whether the cost is decreasing in the number, as in a noise multiplier, or increasing, as
        in a number of steps. By default some values are tried.
    integer
        Whether the number is an integer. Then ``term`` is given an int.
    start
        Where the search begins; any sensible value.
    between
        The least and the greatest value that may be tried, positive: ``(1e-9, 1)`` for a rate.
        By default 1e-12 to 1e12, and 1 to 10**12 for integers.
    digits
        Relative width of the final bracket; the answer is its private end, rounded to that many
        digits, away from the target.

    Returns
    -------
    Calibration
        The value with the certified bracket. Where even the costliest value allowed is within the
        target, that value.

    Raises
    ------
    DomainError
        If no value reaches the target, or an argument is unusable.

    Examples
    --------
    >>> from accountants import Gaussian, GaussianDP, Repeated, Spend
    >>> solved = calibrate(
    ...     lambda sigma: Repeated(Spend(Gaussian(mu=1 / sigma)), 100),
    ...     epsilon=1.0, delta=1e-5, accountant=GaussianDP(),
    ... )
    >>> round(solved.value, 6), solved.epsilon.upper <= 1.0
    (37.306316, True)
    """
    target, delta = positive("epsilon", epsilon), probability("delta", delta)
    least, most = _limits(between, integer=integer)
    # the start is moved into the values that may be tried
    begin = _first(start, least, most, integer=integer)
    if cost not in (None, "decreasing", "increasing"):
        raise DomainError(f"cost must be 'decreasing', 'increasing' or None, got {cost!r}")
    trial = _Trial(term, delta)
    # which accountants apply is asked once, at the first value
    trial.accountants = applicable(trial.term_at(begin), accountant)
    # no finer than logarithms resolve
    digits = max(positive("digits", digits), FINEST)
    search = Search(trial.cost, target, least, most, cost != "increasing", digits, integer)
    if cost is None:
        search = evolve(search, decreasing=_falling(search, begin))
    # several accountants: keep the one that is tightest near the solution
    every = trial.accountants
    if len(every) > 1:
        begin = trial.choose_accountant(search, begin)
    solution = boundary(search, begin)
    if solution is None and len(trial.accountants) < len(every):
        # the one that is tightest at a start above the target need not reach it: another may
        trial.accountants, trial.answers = every, {}
        solution = boundary(search, begin)
    if solution is None:
        raise DomainError(_unreachable(search, trial))
    return trial.calibration(solution.value)


@define
class _Trial:
    """The values tried so far, each measured once."""

    term: Callable[[Any], Term]
    delta: float
    accountants: tuple[Accountant[Any], ...] = ()
    answers: dict[float, Answer] = field(factory=dict)
    tried: int = 0

    def term_at(self, value: float) -> Term:
        """Return the term at a value."""
        try:
            return self.term(value)
        except DomainError as error:
            raise DomainError(
                f"the term refuses {value!r}: {error}. Pass between=(least, most) with the values "
                "that it takes"
            ) from None

    def cost(self, value: float) -> float:
        """Return the tightest certified epsilon at a value."""
        # only the certified upper end counts against the target
        bounds = self.answer(value).bounds
        return bounds.upper if bounds is not None else math.inf

    def answer(self, value: float) -> Answer:
        """Return the tightest answer at a value; where none applies, the last refusal."""
        # certification is expensive, so no value is measured twice
        if value not in self.answers:
            self.tried += 1
            every = worlds(self.term_at(value))
            answers = [measure(every, each, delta=self.delta) for each in self.accountants]
            self.answers[value] = min(
                answers, key=lambda a: a.bounds.upper if a.bounds else math.inf
            )
        return self.answers[value]

    def choose_accountant(self, search: Search, begin: float) -> float:
        """Keep the accountant that is tightest near the target, and return a value near it."""
        # which is tightest does not change over so little
        if abs(gap(self.cost(begin), search.target)) <= _NEAR:
            return self._keep(begin)
        # roughly first, with all accountants; then finely with the tightest alone
        near = boundary(evolve(search, digits=max(1e-2, search.digits)), begin)
        if near is not None:
            return self._keep(near.value)
        return begin

    def _keep(self, value: float) -> float:
        """Keep the accountant that is tightest at a value, and return the value."""
        # answers of other values may come from other accountants: only this one is kept
        self.accountants = (self.answer(value).accountant,)
        self.answers = {value: self.answer(value)}
        return value

    def calibration(self, value: float) -> Calibration:
        """Return what is certified at a value that was tried."""
        answer = self.answer(value)
        assert answer.bounds is not None
        name = answer.accountant.name
        return Calibration(value, self.term_at(value), answer.bounds, self.delta, name, self.tried)


def _limits(between: tuple[float, float] | None, *, integer: bool) -> tuple[float, float]:
    least, most = between or ((1, 10**12) if integer else (1e-12, 1e12))
    least, most = positive("between's least", least), positive("between's greatest", most)
    if integer:
        least, most = math.ceil(least), math.floor(most)
    if not least <= most:
        raise DomainError(
            f"between must be (least, greatest) with least <= greatest, got {between}"
        )
    return least, most


def _first(start: float, least: float, most: float, *, integer: bool) -> float:
    start = min(max(positive("start", start), least), most)
    return round(start) if integer else start


def _falling(search: Search, start: float) -> bool:
    """Return whether the cost is decreasing in the value, from values around the start."""
    here = search.cost(start)
    # outward on both sides, until the cost is seen to differ
    for factor in (2, 1 / 2, 8, 1 / 8, 64, 1 / 64):
        value = search.value(search.position(start) + math.log(factor))  # as if decreasing
        there = search.cost(value)
        if there != here and value != start:
            return (there < here) == (value > start)
    raise DomainError(
        f"the cost is {here:g} at {start:g} and around it, so its direction is unknown; pass "
        "cost='decreasing' or cost='increasing', or give another start"
    )


def _unreachable(search: Search, trial: _Trial) -> str:
    value = search.edge(1)
    answer = trial.answer(value)
    why = answer.reason if answer.bounds is None else f"epsilon is {answer.bounds.upper:.6g} there"
    return (
        f"no value between {search.least:g} and {search.most:g} reaches epsilon <= "
        f"{search.target:g} at delta = {trial.delta:g}: even at {value:g}, {why}; raise the "
        "target, widen `between`, or lower what the rest of the term costs"
    )


def least_noise(
    epsilon_at: Callable[[float], float],
    target: float,
    *,
    start: float = 1.0,
    digits: float = 1e-10,
) -> float:
    """Return the least noise multiplier, to a relative ``digits``, that stays within a target.

    Parameters
    ----------
    epsilon_at
        The certified upper bound at a noise multiplier; decreasing in it.
    target
        The epsilon not to exceed, positive.
    start
        Where the search begins.
    digits
        Relative width of the final bracket, whose larger (more private) end is returned, rounded
        up to that many digits.

    Raises
    ------
    DomainError
        If no multiplier between 1e-12 and 1e12 reaches the target.

    Examples
    --------
    >>> noise = least_noise(lambda b: 3 / b, target=1.5)
    >>> 2 <= noise < 2.0000001
    True
    """
    target, digits = positive("target", target), max(positive("digits", digits), FINEST)
    search = Search(epsilon_at, target, 1e-12, 1e12, digits=digits)
    solution = boundary(search, positive("start", start))
    if solution is None:
        raise DomainError(
            f"no noise up to 1e12 times the weights reaches epsilon <= {target}: releases "
            "whose noise is fixed, or delta floors, already cost more; free more of them"
        )
    return solution.value


# -----------------------------------------------------------------------------
# One budget over several releases.
#
# Two contracts. With *weights*, every release's noise is a common factor times its weight, and the
# factor is what is solved: `scaled` makes the term of a factor, for `calibrate`. With *shares*,
# each part gets a share of the budget: `share`. What is certified in the end is the composed term,
# so neither depends on how the parts' costs were counted.


Parts = Mapping[str, Callable[[float], Term]]
"""By name, each part's term for its own noise multiplier (or scale)."""


def scaled(parts: Parts, weights: Mapping[str, float]) -> Callable[[float], Term]:
    """Return the composition of all parts at ``factor * weight``, as a function of the factor.

    Examples
    --------
    >>> from accountants import Laplace, Spend
    >>> from accountants.calibration import calibrate
    >>> parts = {name: lambda b: Spend(Laplace(epsilon=1 / b)) for name in ("count", "sum")}
    >>> term = scaled(parts, {"count": 1.0, "sum": 2.0})
    >>> round(calibrate(term, epsilon=3.0, delta=0.0).value, 6)
    0.5
    """
    checked = _numbers("weight", parts, weights)

    def term(factor: float) -> Term:
        return Sequential([part(factor * checked[name]) for name, part in parts.items()])

    return term


@frozen
class Division:
    """Numbers solved together, and what is certified of their composition.

    Parameters
    ----------
    values
        Each part's number, by name.
    term
        The composition of the parts at their numbers.
    epsilon
        Bracket of its epsilon at ``delta``; the upper end is within the target.
    delta
        The delta asked for.
    accountant
        The name of the accountant that certifies the composition.

    Examples
    --------
    >>> from accountants import Laplace, Spend
    >>> parts = {name: lambda b: Spend(Laplace(epsilon=1 / b)) for name in ("count", "sum")}
    >>> solved = share(parts, {"count": 1, "sum": 3}, epsilon=1.0, delta=0.0)
    >>> {name: round(value, 4) for name, value in solved.values.items()}
    {'count': 4.0, 'sum': 1.3333}
    >>> solved.epsilon.upper <= 1.0
    True
    """

    values: dict[str, float]
    term: Term = field(repr=False)
    epsilon: Bounds
    delta: float
    accountant: str


def share(
    parts: Parts,
    shares: Mapping[str, float],
    *,
    epsilon: float,
    delta: float,
    accountant: Chosen = None,
    digits: float = 1e-8,
) -> Division:
    """Return the noise of several parts that spend one budget in given shares.

    What a part costs is counted in an accounting unit, in which costs add up. At a positive delta
    it is the square of a Gaussian's mu: a part costs ``mu^2`` if its certified epsilon, at that
    delta, is that of one Gaussian release of this mu. For Gaussian releases the unit is exact, for
    compositions of many small losses nearly. At delta 0 it is epsilon itself.

    Each part is calibrated to its share of a total, and the total is the largest one at which
    the composition itself, not the sum of its parts, is within the target.

    Parameters
    ----------
    parts
        By name, the part's term for its noise multiplier or scale, in which its cost decreases.
    shares
        By name, positive; they are divided by their sum, so ``3`` and ``7`` are ``0.3`` and
        ``0.7``.
    epsilon, delta
        The target of the composition.
    accountant
        As for `calibrate`.
    digits
        Relative precision of the total.

    Raises
    ------
    DomainError
        If the names differ, or a share reaches its part's target with no noise.

    Examples
    --------
    >>> from accountants import Gaussian, GaussianDP, Repeated, Spend
    >>> parts = {
    ...     "histogram": lambda z: Spend(Gaussian(mu=1 / z)),
    ...     "model": lambda z: Repeated(Spend(Gaussian(mu=1 / z)), 100),
    ... }
    >>> solved = share(parts, {"histogram": 0.2, "model": 0.8}, epsilon=1.0, delta=1e-5,
    ...               accountant=GaussianDP())
    >>> {name: round(value, 4) for name, value in solved.values.items()}
    {'histogram': 8.3419, 'model': 41.7097}
    """
    checked = _numbers("share", parts, shares)
    target, delta = positive("epsilon", epsilon), probability("delta", delta)
    # shares of mu squared, or of epsilon at delta 0: they only divide; the composition is certified
    # below
    parts_of_one = {name: value / sum(checked.values()) for name, value in checked.items()}
    solved: dict[float, dict[str, Calibration]] = {}

    def term(budget: float) -> Term:
        if budget not in solved:
            solved[budget] = {
                name: calibrate(
                    part,
                    epsilon=_part_epsilon(name, budget * parts_of_one[name], delta),
                    delta=delta,
                    accountant=accountant,
                    cost="decreasing",
                    digits=digits / 100,
                )
                for name, part in parts.items()
            }
        return Sequential([answer.term for answer in solved[budget].values()])

    result = calibrate(
        term,
        epsilon=target,
        delta=delta,
        accountant=accountant,
        cost="increasing",
        start=_first_budget(target, delta),
        digits=digits,
    )
    values = {name: answer.value for name, answer in solved[result.value].items()}
    return Division(values, result.term, result.epsilon, delta, result.accountant)


def _first_budget(epsilon: float, delta: float) -> float:
    """Return the target in the accounting unit of the shares; only a start for the search."""
    if delta in (0.0, 1.0):
        return epsilon
    noise = least_noise(lambda z: gdp_epsilon(1 / z, delta).upper, epsilon, digits=1e-3)
    return 1 / noise**2


def _part_epsilon(name: str, budget: float, delta: float) -> float:
    """Return the epsilon that a part may cost."""
    value = gdp_epsilon(math.sqrt(budget), delta).upper if delta > 0 else budget
    if not value > 0:
        raise DomainError(
            f"the share of {name!r} is so small that delta = {delta:g} alone pays for it, without "
            "any noise; give it a larger share, or ask for a smaller delta"
        )
    return value


def _numbers(what: str, parts: Parts, given: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers by the parts' names, in their order."""
    if not parts or set(parts) != set(given):
        raise DomainError(
            f"each part needs a {what}: the parts are {', '.join(parts) or 'none'}, the {what}s "
            f"are of {', '.join(given) or 'none'}"
        )
    return {name: positive(f"the {what} of {name!r}", given[name]) for name in parts}
