"""Solving one free number of a term, on the certified upper bound.

The answer is a value that was itself evaluated and found to be within the target, near one that was
not. Nothing is extrapolated, so the target is not exceeded by a single unit in the last
place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from accountants.accountant import Accountant
from accountants.bounds import Bounds
from accountants.bracketing import FINEST, Search, boundary
from accountants.certification import Answer, measure
from accountants.errors import DomainError, positive, probability
from accountants.reading import Chosen, applicable
from accountants.terms import Term
from accountants.world import worlds


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
    >>> found = calibrate(ten, epsilon=1.0, delta=1e-6, accountant=GaussianDP())
    >>> round(found.value, 3), found.accountant, found.epsilon.upper <= 1.0
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
    cost: Literal["falls", "rises"] | None = None,
    whole: bool = False,
    start: float = 1.0,
    between: tuple[float, float] | None = None,
    digits: float = 1e-10,
) -> Calibration:
    """Return the value of a term's free number that spends a budget and does not exceed it.

    Parameters
    ----------
    term
        The term for a value of the number: a noise multiplier, a sampling rate, a number of
        steps, a clipping share, or anything in which the cost is monotone.
    epsilon, delta
        The target; epsilon positive, delta in [0, 1].
    accountant
        One, or several of which the tightest counts; by default the tight one that is fast.
    cost
        Whether the cost falls in the number, as in a noise's, or rises, as in steps. Found by
        trying if it is not stated.
    whole
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
        The value with the certified bracket. Where even the dearest value allowed is within the
        target, that value.

    Raises
    ------
    DomainError
        If no value reaches the target, or an argument is unusable.

    Examples
    --------
    >>> from accountants import Gaussian, GaussianDP, Repeated, Spend
    >>> found = calibrate(
    ...     lambda sigma: Repeated(Spend(Gaussian(mu=1 / sigma)), 100),
    ...     epsilon=1.0, delta=1e-5, accountant=GaussianDP(),
    ... )
    >>> round(found.value, 6), found.epsilon.upper <= 1.0
    (37.306316, True)
    """
    target, delta = positive("epsilon", epsilon), probability("delta", delta)
    least, most = _limits(between, whole=whole)
    begin = _first(start, least, most, whole=whole)
    if cost not in (None, "falls", "rises"):
        raise DomainError(f"cost must be 'falls', 'rises' or None, got {cost!r}")
    trial = _Trial(term, delta)
    # which accountants apply is asked once, at the first value
    trial.accountants = applicable(trial.made(begin), accountant)
    digits = max(positive("digits", digits), FINEST)
    search = Search(trial.cost, target, least, most, cost != "rises", digits, whole)
    if cost is None:
        search = evolve(search, falls=_falling(search, begin))
    if len(trial.accountants) > 1:
        begin = trial.settle(search, begin)
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

    def made(self, value: float) -> Term:
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
        bounds = self.answer(value).bounds
        return bounds.upper if bounds is not None else math.inf

    def answer(self, value: float) -> Answer:
        """Return the tightest answer at a value; where none applies, the last refusal."""
        if value not in self.answers:
            self.tried += 1
            every = worlds(self.made(value))
            answers = [measure(every, each, delta=self.delta) for each in self.accountants]
            self.answers[value] = min(
                answers, key=lambda a: a.bounds.upper if a.bounds else math.inf
            )
        return self.answers[value]

    def settle(self, search: Search, begin: float) -> float:
        """Keep the accountant that is tightest near the target, and return where that is."""
        # roughly first, with all accountants; then finely with the tightest alone
        near = boundary(evolve(search, digits=max(1e-2, search.digits)), begin)
        if near is not None:
            self.accountants = (self.answer(near.value).accountant,)
            self.answers = {near.value: self.answer(near.value)}
        return begin if near is None else near.value

    def calibration(self, value: float) -> Calibration:
        """Return what is certified at a value that was tried."""
        answer = self.answer(value)
        assert answer.bounds is not None
        name = answer.accountant.name
        return Calibration(value, self.made(value), answer.bounds, self.delta, name, self.tried)


def _limits(between: tuple[float, float] | None, *, whole: bool) -> tuple[float, float]:
    least, most = between or ((1, 10**12) if whole else (1e-12, 1e12))
    least, most = positive("between's least", least), positive("between's greatest", most)
    if whole:
        least, most = math.ceil(least), math.floor(most)
    if not least <= most:
        raise DomainError(
            f"between must be (least, greatest) with least <= greatest, got {between}"
        )
    return least, most


def _first(start: float, least: float, most: float, *, whole: bool) -> float:
    start = min(max(positive("start", start), least), most)
    return round(start) if whole else start


def _falling(search: Search, start: float) -> bool:
    """Return whether the cost falls in the value, from values around the start."""
    here = search.cost(start)
    # outward on both sides, until the cost is seen to differ
    for factor in (2, 1 / 2, 8, 1 / 8, 64, 1 / 64):
        value = search.value(search.place(start) + math.log(factor))  # `falls` is still True
        there = search.cost(value)
        if there != here and value != start:
            return (there < here) == (value > start)
    raise DomainError(
        f"the cost is {here:g} at {start:g} and all around it, so its direction is not seen; say "
        "cost='falls' or cost='rises', or give another start"
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
        The certified upper bound at a noise multiplier; falling in it.
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
            "whose noise is fixed, or failures, already cost more; free more of them"
        )
    return solution.value
