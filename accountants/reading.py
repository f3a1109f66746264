"""A guarantee: the privacy profile of a term, as the numbers that people ask for.

Neighbours: whatever the losses of the term declare; the unit is one of their units. An attacker
knows all data but whether the unit is in it (or, under replace-one, which of two values it has),
sees every output, and has unlimited computing power.

Each answer is a bracket of the value that the tight profile of the term implies. Its upper end
(for a trade-off its lower end) holds for every mechanism with these losses; the other end says
how far the bound could at best be improved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from accountants.accountant import Accountant
from accountants.bounds import Bounds
from accountants.certification import ACCOUNTANTS, measure
from accountants.currencies import term_mu, term_renyi, term_rho
from accountants.distribution import Distribution
from accountants.errors import DomainError, InapplicableError, nonnegative, probability
from accountants.hypotheses import Question, greatest, knots
from accountants.rounding import UNIT, Array, shown
from accountants.terms import Term
from accountants.world import Worlds, merged, worlds
from accountants.worst import fold

Chosen = Accountant[Any] | Sequence[Accountant[Any]] | None
"""One accountant, several of which the tightest counts, or None for the usual choice."""

MOST = 512
"""A curve is read in every world; past so many, in one that their envelope stands for: looser."""


def applicable(term: Term | Worlds, chosen: Chosen = None) -> tuple[Accountant[Any], ...]:
    """Return the accountants that have a bound for a term: of those chosen, or the usual ones.

    Usual is the distribution accountant alone, which is tight and fast; where it has no bound, all
    of the others.

    Raises
    ------
    InapplicableError
        If none has.
    """
    every = term if isinstance(term, Worlds) else worlds(term)
    if chosen is None:
        known = _known(every, (Distribution(),))[0]
        return known or applicable(every, [a for a in ACCOUNTANTS if a != Distribution()])
    known, reasons = _known(every, chosen if isinstance(chosen, Sequence) else (chosen,))
    if not known:
        raise InapplicableError(f"no accountant has a bound for this term: {'; '.join(reasons)}")
    return known


def _known(
    every: Worlds, asked: Sequence[Accountant[Any]]
) -> tuple[tuple[Accountant[Any], ...], list[str]]:
    """Return those that have a bound, and why the others have none."""
    answers = [measure(every, each, delta=1e-6) for each in asked]
    known = tuple(answer.accountant for answer in answers if answer.bounds is not None)
    return known, [f"{a.accountant.name}: {a.reason}" for a in answers if a.bounds is None]


@frozen
class Guarantee:
    """What a term promises, in every notion of privacy.

    Parameters
    ----------
    term
        What one unit can touch.
    accountant
        One, or several whose tightest bound counts; by default the tight one that is fast.

    Raises
    ------
    InapplicableError
        If no accountant has a bound for the term.

    References
    ----------
    Dong, Roth and Su 2022, Prop. 6 (trade-off); Kulynych et al. 2024 (risks of attacks).

    Examples
    --------
    >>> from accountants import Gaussian, GaussianDP, Repeated, Spend
    >>> released = Guarantee(Repeated(Spend(Gaussian(mu=0.1)), 100), GaussianDP())
    >>> print(released.epsilon(delta=1e-5), released.true_positive_rate(0.001))
    [4.37717, 4.37718] [0.0182984, 0.0182985]
    """

    term: Term = field()
    accountant: Chosen = None
    _every: Worlds = field(init=False, repr=False, eq=False)
    _worlds: Worlds = field(init=False, repr=False, eq=False)
    _folded: tuple[tuple[Accountant[Any], tuple[Any, ...]], ...] = field(
        init=False, repr=False, eq=False
    )

    @_every.default
    def _their_worlds(self) -> Worlds:
        return worlds(self.term)

    @_worlds.default
    def _few(self) -> Worlds:
        return merged(self._every, MOST)

    @_folded.default
    def _fold_each(self) -> tuple[tuple[Accountant[Any], tuple[Any, ...]], ...]:
        folded = applicable(self._worlds, self.accountant)
        return tuple((each, _states(each, self._worlds)) for each in folded)

    def epsilon(self, delta: float) -> Bounds:
        """Return epsilon at a delta, in nats."""
        point = probability("delta", delta)
        if self._worlds is not self._every:  # of many, few need be measured for one number
            asked = applicable(self._every, self.accountant)
            answers = [measure(self._every, each, delta=point) for each in asked]
            known = [answer.bounds for answer in answers if answer.bounds is not None]
            if not known:
                reasons = "; ".join(f"{each.accountant.name}: {each.reason}" for each in answers)
                raise InapplicableError(f"no accountant has a bound at delta = {point}: {reasons}")
            upper = min(bounds.upper for bounds in known)
            return Bounds(min(upper, max(bounds.lower for bounds in known)), upper)
        return self._tightest([[a.epsilon(s, point) for s in states] for a, states in self._folded])

    def delta(self, epsilon: float) -> Bounds:
        """Return delta at an epsilon: ``P(S) <= e^epsilon Q(S) + delta`` for every event S."""
        point = nonnegative("epsilon", epsilon)
        # every accountant's upper bound holds, and every world must be covered
        return self._tightest([[a.delta(s, point) for s in states] for a, states in self._folded])

    def rho(self) -> float:
        """Return a rho for which the term is rho-zCDP, whichever the accountant.

        Raises
        ------
        InapplicableError
            If a loss has no such parameter, or may fail; also from `mu` and `renyi`.

        Examples
        --------
        >>> from accountants import Gaussian, Repeated, Spend
        >>> released = Guarantee(Repeated(Spend(Gaussian(mu=0.5)), 4))
        >>> round(released.rho(), 9), round(released.mu(), 9), released.renyi([2.0]).round(9)
        (0.5, 1.0, array([1.]))
        """
        return term_rho(self._worlds)

    def mu(self) -> float:
        """Return a mu for which the term is mu-GDP, whichever the accountant."""
        return term_mu(self._worlds)

    def renyi(self, orders: Array) -> Array:
        """Return bounds of the Renyi divergences at real orders above 1, of any shape."""
        return term_renyi(self._worlds, orders)

    def profile(self, epsilons: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of delta at many epsilons, of any shape."""
        points = np.asarray(epsilons, dtype=np.float64)
        if not np.all(points >= 0):
            raise DomainError("epsilons must be non-negative numbers")
        lower, upper = np.zeros(points.shape), np.ones(points.shape)
        for accountant, states in self._folded:
            curves = [_profile(accountant, state, points) for state in states]
            upper = np.minimum(upper, np.max([high for _, high in curves], axis=0))
            if self._worlds.exact:
                lower = np.maximum(lower, np.max([low for low, _ in curves], axis=0))
        return np.minimum(lower, upper), upper

    def tradeoff(self, rates: Array, digits: float = 5e-12) -> tuple[Array, Array]:
        """Return lower and upper bounds of the trade-off function at false-positive rates.

        At each of them the least false-negative rate that a test for the unit can have. What is
        bracketed is the largest function that the profile implies, convex and its own inverse:
        where the two directions of add/remove differ, the test of either may be harder. The
        search ends where the bounds are within ``digits`` of each other; they hold at any.
        """
        alpha = np.asarray(rates, dtype=np.float64)
        if not np.all((alpha >= 0) & (alpha <= 1)):
            raise DomainError("false-positive rates must be between 0 and 1")
        wanted = np.minimum(digits, 2000 * digits * alpha.ravel() + 2e-15)  # of a small power
        lower, upper = greatest(self.profile, _missed(alpha.reshape(-1, 1)), wanted)
        most = (
            1 - alpha.ravel()
        )  # of tossing a coin; rounded to nearest, so moved outward both ways
        lower = np.clip(lower, 0.0, most * (1 - 2 * UNIT))
        upper = np.clip(upper, 0.0, np.minimum(1.0, most * (1 + 2 * UNIT)))
        return lower.reshape(alpha.shape), upper.reshape(alpha.shape)

    def false_negative_rate(self, false_positive_rate: float) -> Bounds:
        """Return the trade-off function at one false-positive rate."""
        rate = probability("false_positive_rate", false_positive_rate)
        lower, upper = self.tradeoff(np.array([rate]))
        return Bounds(float(lower[0]), float(upper[0]))

    def true_positive_rate(self, false_positive_rate: float) -> Bounds:
        """Return the greatest power of a test for the unit, at a false-positive rate."""
        missed = self.false_negative_rate(false_positive_rate)
        return Bounds(_minus(missed.upper, -1), _minus(missed.lower, 1))

    def advantage(self) -> Bounds:
        """Return the greatest true-positive less false-positive rate of a membership test.

        It is the total variation, ``delta(0)``.
        """
        return self.delta(0.0)

    def posterior(self, prior: float, probability_of_event: float) -> Bounds:
        """Return the greatest belief that an attacker can come to, by no freak of chance.

        An attacker who believes with probability ``prior`` that the unit is in the data sees an
        event S. Over all events that had at least the probability given, on that prior, this is
        the greatest ``P(unit is in the data | S)``: the largest precision of an attack that
        claims membership at least that often. Rarer events may say more: with delta > 0 there
        may be some that tell everything.

        ``prior P(S) / p`` with ``p = prior P(S) + (1 - prior) Q(S)`` falls in p for the best S,
        and ``P <= 1 - k + t Q`` makes it at most ``prior (t + c (1 - k)) / (1 - prior + prior
        t)`` with ``c = (1 - prior) / p``, for every t > 0.
        """
        prior = probability("prior", prior)
        least = probability("probability_of_event", probability_of_event)
        if least == 0:
            raise DomainError("probability_of_event must be positive: an event may be that rare")
        if prior in (0.0, 1.0):
            return Bounds(prior, prior)
        lower, upper = greatest(self.profile, _belief(prior, least))
        # the bound for every event at least that likely; never below the prior
        worst = min(1.0, max(prior, -float(lower[0])))
        return Bounds(min(worst, max(prior, -float(upper[0]))), worst)

    def bayes_error(self, prior: float) -> Bounds:
        """Return the least probability that a guess of the unit's membership is wrong.

        The unit is in the data with probability ``prior``; the best guess is wrong with
        probability ``min_S prior (1 - P(S)) + (1 - prior) Q(S) = prior k((1 - prior) / prior)``.
        Without the outputs it is ``min(prior, 1 - prior)``. The lower end is the promise.
        """
        prior = probability("prior", prior)
        most = min(prior, 1 - prior)
        if most == 0:
            return Bounds(0.0, 0.0)
        log_t = math.log1p(-prior) - math.log(prior)
        # k at the odds of the prior: both ends of the bracket at once
        at = knots(self.profile, np.array([log_t]))
        slack = (16 + 4 * abs(log_t)) * UNIT  # t k'(t) <= k(t), as for an error of t
        lower, upper = float(at.low[0]) * (1 - slack), float(at.high[0]) * (1 + slack)
        return Bounds(max(0.0, prior * lower * (1 - 2 * UNIT)), min(most, prior * upper))

    def summary(self, delta: float) -> str:
        """Return the guarantee in words, each number on its safe side."""
        rate = 0.001
        power = shown(self.true_positive_rate(rate).upper, upward=True, digits=3)
        belief = shown(self.posterior(0.5, 0.01).upper, upward=True, digits=3)
        return "\n".join(
            (
                f"epsilon <= {shown(self.epsilon(delta).upper, upward=True)} at delta = "
                f"{shown(delta, upward=True)}",
                "membership-inference advantage (true less false positives) <= "
                + shown(self.advantage().upper, upward=True, digits=3),
                f"true-positive rate at a false-positive rate of {rate:g} <= {power}",
                f"from a belief of 0.5, an event of probability >= 0.01 leads to <= {belief}",
                "least error of a guess at even odds >= "
                + shown(self.bayes_error(0.5).lower, upward=False, digits=3),
            )
        )

    def _tightest(self, answers: list[list[Bounds]]) -> Bounds:
        """Return the worst world's bracket, of the accountant for which it is best."""
        upper = min(max(world.upper for world in worlds) for worlds in answers)
        lower = max(max(world.lower for world in worlds) for worlds in answers)
        return Bounds(min(lower, upper) if self._worlds.exact else 0.0, upper)


def _missed(alpha: Array) -> Question:
    def rate(t: Array, k: Array, side: int) -> Array:
        with np.errstate(over="ignore"):
            return k * (1 + side * 4 * UNIT) - (1 - side * 4 * UNIT) * alpha * t

    return rate


def _belief(prior: float, least: float) -> Question:
    """Return minus the bound of the posterior: its greatest value is minus the tight one."""

    def belief(t: Array, k: Array, side: int) -> Array:
        with np.errstate(over="ignore"):
            gain = t + (1 - prior) / least * np.maximum(1 - k, 0.0)
            bound = prior * gain / (1 - prior + prior * t)
        return -bound[None, :] * (1 - side * 32 * UNIT)

    return belief


def _states(accountant: Accountant[Any], every: Worlds) -> tuple[Any, ...]:
    common = fold(accountant, accountant.start(), every.common)
    return tuple(fold(accountant, common, world.spends) for world in every.alternatives)


def _profile(accountant: Accountant[Any], state: Any, epsilons: Array) -> tuple[Array, Array]:
    """Return the accountant's own profile, or one delta after another."""
    own = getattr(accountant, "profile", None)
    if own is not None:
        lower, upper = own(state, epsilons.ravel())
        return lower.reshape(epsilons.shape), upper.reshape(epsilons.shape)
    brackets = [accountant.delta(state, float(each)) for each in epsilons.ravel()]
    bounds = np.array([(each.lower, each.upper) for each in brackets]).reshape(*epsilons.shape, 2)
    return bounds[..., 0], bounds[..., 1]


def _minus(value: float, side: int) -> float:
    """Return ``1 - value``, rounded outward to the side, as a probability."""
    return min(1.0, max(0.0, math.nextafter(1 - value, math.inf * side)))
