"""Hypothesis tests of membership: what a privacy profile implies for their errors.

With the unit in the data an event S has probability P(S), without it Q(S). A profile delta,
of both directions, allows ``P(S) <= delta(eps) + e^eps Q(S)`` and the same with P and Q exchanged,
at every eps >= 0. With ``t = e^eps`` for any real eps and

``k(t) = min(1, t) (1 - delta(|log t|))``

both read ``1 - P(S) >= k(t) - t Q(S)`` (the second one with the complement of S). So the least
false-negative rate at a false-positive rate a is ``max_t k(t) - t a`` (Dong, Roth and Su 2022,
Prop. 6, whose two terms are t >= 1 and t <= 1), and whatever else can be said of an event is such
a maximum as well.

``1 - k`` is the larger of two hockey-sticks at every t > 0. So k is concave and rises, with a
slope of at most 1, from k(0) = 0: between and beside the points where it was bounded it lies below
the chords next to it, drawn on. That bounds the maximum over all t, from finitely many points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from attrs import field, frozen

from accountants.accountant import Accountant, bounds_of
from accountants.certification import ACCOUNTANTS, measure, term_mu, term_renyi, term_rho
from accountants.distribution import Distribution, roughly
from accountants.errors import DomainError, InapplicableError, nonnegative, probability
from accountants.numerics import UNIT, Array, Bounds, bracket, brackets, shown
from accountants.terms import Term
from accountants.world import Worlds, merged, states, worlds

Profile = Callable[[Array], tuple[Array, Array]]
"""Non-negative epsilons in, lower and upper bounds of delta out."""

Objective = Callable[[Array, Array, int], Array]
"""Values of t and k and a side in (n, n), values out, a row for each thing asked (m, n).

Rising in k, and on a straight line of (t, k) greatest at one of its ends. Rounded up where the side
is 1, down where it is -1.
"""

_GRID = np.concatenate([[0.0], np.geomspace(1e-5, 700.0, 30)])
_START = np.concatenate([-_GRID[:0:-1], _GRID])

_LARGE, _FEW = 1e-2, 1e-6
"""Up to where a profile falls below these many epsilons are asked at once, and some."""

_NEGLIGIBLE = 1e-18
"""Below this a delta is lost beside 1, so that no more need be known of it."""


@frozen(eq=False)
class Knots:
    """Bounds of k at points: log t, t, and the lower and upper bound of k(t), rising in t."""

    log_t: Array
    t: Array
    low: Array
    high: Array

    def joined(self, other: Knots) -> Knots:
        """Return all points of both, each once, with the better ends of its bounds."""
        log_t, where = np.unique(np.append(self.log_t, other.log_t), return_inverse=True)
        t, low, high = np.empty(len(log_t)), np.zeros(len(log_t)), np.full(len(log_t), np.inf)
        t[where] = np.append(self.t, other.t)
        np.maximum.at(low, where, np.append(self.low, other.low))
        np.minimum.at(high, where, np.append(self.high, other.high))
        return Knots(log_t, t, *brackets(low, high))

    def corners(self) -> tuple[Array, Array]:
        """Return the corners (t, k) of a polygon that lies above the curve, beside the knots.

        In a segment both the chord before it and the chord after it, drawn on, lie above k; the
        polygon has a corner where they meet. Where they do not meet inside, one of them is below
        the other throughout and needs none. Before the first knot k is at most its value there,
        and after the last one at most 1.
        """
        t, low, high = (np.concatenate([[0.0], each]) for each in (self.t, self.low, self.high))
        with np.errstate(all="ignore"):
            length = np.diff(t)
            # chords drawn on: steepest before, flattest after, by the bounds' outer ends
            before = np.minimum((high[1:] - low[:-1]) / length, 1.0)[:-1]
            after = np.append(np.maximum((low[1:] - high[:-1]) / length, 0.0)[2:], 0.0)
            # where the two lines meet, from the segment's left end
            along = (high[2:] - high[1:-1] - after * length[1:]) / (before - after)
            inside = (along > 0) & (along < length[1:])
            place, value = (t[1:-1] + along)[inside], (high[1:-1] + before * along)[inside]
        return np.concatenate([[0.0], place, t[-1:]]), np.concatenate([high[1:2], value, [1.0]])


def knots(profile: Profile, log_t: Array) -> Knots:
    """Return the bounds of k at points.

    The float t is off by a few units from ``e^log_t``; since ``t k'(t) <= k(t)``, k at t is then
    off by as many.
    """
    with np.errstate(over="ignore"):
        t = np.exp(log_t)
    sizes, where = np.unique(np.abs(log_t), return_inverse=True)
    lower, upper = (bound[where] for bound in profile(sizes))
    # min(1, t): the slope of k is at most 1
    least = np.minimum(1.0, t)
    # k(t) = min(1, t) (1 - delta), each end with the other end of delta
    low, high = least * (1 - upper), least * (1 - lower)
    return Knots(log_t, t, low * (1 - 16 * UNIT), np.minimum(high * (1 + 16 * UNIT), least))


def skipping_negligible(profile: Profile) -> Profile:
    """Return the profile, not evaluated where it is known to be negligible, since it decreases.

    Epsilons are asked in rising order, some at a time.
    """
    # from this epsilon on the profile is at most this delta: it falls
    negligible = [(math.inf, 0.0)]

    def bounds(epsilons: Array) -> tuple[Array, Array]:
        order = np.argsort(epsilons)
        lower, upper = np.zeros(len(order)), np.zeros(len(order))
        start, count = 0, 4
        while start < len(order):
            # far beyond the first of them the profile may be negligible, and dear to ask for
            first = float(epsilons[order[start]])
            far = max(1.0, 4 * first)
            beside = int(np.searchsorted(epsilons[order], 1.1 * first, "right"))
            part = order[start : max(start + count, beside)]
            part = part[~(epsilons[part] > far)]  # one at least, of NaN as well
            start += len(part)
            beyond, upper[part] = negligible[0]
            asked = part[epsilons[part] < beyond]
            if len(asked):
                lower[asked], upper[asked] = profile(epsilons[asked])
                small = asked[upper[asked] <= _NEGLIGIBLE]
                if len(small):
                    negligible[0] = (float(epsilons[small[0]]), float(upper[small[0]]))
                # near the end one alone may be enough, and each is dear
                most = upper[asked[-1]]
                count = 64 if most > _LARGE else 4 if most > _FEW else 1
        return lower, upper

    return bounds


_ROUNDS = 6
"""So often a rough profile is asked: to know where the sharp one is of use."""


def maximize(
    profile: Profile,
    objective: Objective,
    digits: float | Array = 5e-12,
    rounds: int = 40,
    rough: Profile | None = None,
    relative: float = 1e-8,
) -> tuple[Array, Array]:
    """Return lower and upper bounds of ``max over t > 0 of question(t, k(t))``, for each question.

    The place of the maximum is guessed by parabolas, and surrounded by ever closer points: their
    bounds alone decide. The search ends where the bounds are within ``digits`` of each other (one
    for all, or one for each question) and this share of themselves, or come no closer.

    Parameters
    ----------
    rough
        Wider bounds that cost less: they say where the maximum is not.
    """

    def allowed(values: Array) -> Array:
        """Return how far apart bounds may be: a share of small values."""
        return np.minimum(digits, np.maximum(relative * np.abs(values), 1e-300))

    known = None
    if rough is not None:
        known, lower, upper = _narrowed(rough, objective, allowed, _ROUNDS, None)
        if np.all(upper - lower <= allowed(upper)):
            return lower, upper
    return _narrowed(profile, objective, allowed, rounds, known)[1:]


def _narrowed(
    profile: Profile,
    objective: Objective,
    enough: Callable[[Array], Array],
    rounds: int,
    known: Knots | None,
) -> tuple[Knots, Array, Array]:
    """Return the points asked, with what was known before, and the bounds of the maximum."""
    profile = skipping_negligible(profile)
    asked = _START[:0]
    if known is None:
        asked = _START[::_COARSE]
        known = knots(profile, asked)
    widths = [math.inf]
    for _ in range(rounds):
        place, value = known.corners()
        at_knots, above = objective(known.t, known.low, -1), objective(known.t, known.high, 1)
        at_corners = objective(place, value * (1 + 64 * UNIT), 1)
        best = np.stack([at_knots.argmax(axis=1), above.argmax(axis=1)])
        lower = at_knots.max(axis=1)
        # the polygon lies above the curve, so its corners and the knots' upper bounds bound the
        # maximum
        upper = np.maximum(at_corners.max(axis=1), above.max(axis=1))
        # what the profile leaves open at a point asked is left open by more of them
        every, seen = np.arange(len(lower)), np.isin(known.log_t[best], asked).all(axis=0)
        open_ = above[every, best[0]] - lower
        allowed = enough(upper)
        # ... and where it leaves a good part open, both ends are sought by themselves
        wide = open_ > _WIDE * allowed
        more = upper - lower > np.maximum(allowed, np.where(seen & ~wide, 5 * open_, 0.0))
        if not more.any() or (len(widths) > 5 and widths[-1] > 0.5 * widths[-5]):
            break
        new = [
            _near(known.log_t, low, high, float(allowed[i]))
            for i in every[more]
            for low, high in (
                [(at_knots[i], at_knots[i]), (above[i], above[i])]
                if wide[i]
                else [(at_knots[i], above[i])]
            )
        ]
        if not np.isin(np.concatenate(new), _START).any():  # it is known where the maximum is
            widths.append(float(((upper - lower) / allowed).max()))
        corner = place[at_corners[more].argmax(axis=1)]  # where a kink is, there it is
        inner = np.log(corner[(corner > known.t[0]) & (corner < known.t[-1])])
        if wide.any():  # chords between close points of a wide profile say nothing
            cell = np.clip(np.searchsorted(known.log_t, inner), 1, len(known.t) - 1)
            inner = (known.log_t[cell - 1] + known.log_t[cell]) / 2
        again = known.log_t[best[:, more]].ravel()
        if len(asked):  # what is roughly known may leave the most open
            rough_above = (above[more] > (lower + allowed)[more, None]).any(axis=0)
            again = np.append(again, known.log_t[rough_above])
        points = np.setdiff1d(np.concatenate([*new, inner, again]), asked)
        if not len(points):
            break
        known, asked = known.joined(knots(profile, points)), np.append(asked, points)
    return known, lower, upper


_WIDE = 1e3
"""A profile is wide that leaves open this many times what may be left open."""

_COARSE = 4
"""Of the first points so few are asked before it is known where the maximum is."""


def _near(log_t: Array, low: Array, high: Array, allowed: float) -> Array:
    """Return where to ask next: beside the maximum's likely place, or in the middle.

    Parameters
    ----------
    low, high
        Bounds of the objective at the knots.
    allowed
        How far apart the maximum's bounds may be in the end.
    """
    best = int(low.argmax())
    # the next knots that are surely lower: of one maximum, it lies between them
    lower = np.flatnonzero(high < low[best])
    at = int(np.searchsorted(lower, best))
    left = int(lower[at - 1]) if at > 0 else max(best - 1, 0)
    right = int(lower[at]) if at < len(lower) else min(best + 1, len(log_t) - 1)
    places, ends = log_t[[left, best, right]].tolist(), [left, best, right]
    between = [
        _START[slice(*np.searchsorted(_START, [one + 1e-9, other - 1e-9]).tolist())]
        for one, other in itertools.pairwise(places)
    ]
    if any(len(some) for some in between):
        # the grid is fine enough for a parabola where it was asked on both sides
        return np.concatenate([some[len(some) // 2 : len(some) // 2 + 1] for some in between])
    before, after = places[1] - places[0], places[2] - places[1]
    if before > 0 and after > 0:
        values = ((low[ends] + high[ends]) / 2).tolist()
        rise, fall = (values[1] - values[0]) / before, (values[1] - values[2]) / after
        bend = (rise + fall) / (before + after)
        if bend > 0:
            # the top of the parabola through the three, and where it is lower by what is left open
            guess = places[1] + (rise * after - fall * before) / (rise + fall) / 2
            room = max(allowed, float((high[ends] - low[ends]).max()))
            reach = min(math.sqrt(2 * room / bend), (before + after) / 8)
            some = guess + max(reach, (before + after) / 128) * np.array([-1.0, 0.0, 1.0])
            if max(before, after) > 4 * min(before, after):  # a parabola misled
                some = np.append(some, places[1] + (after - before) / 2)
            return np.asarray(some[(some > places[0]) & (some < places[2])], dtype=np.float64)
    return np.array([places[1] - before / 2, places[1] + after / 2])


# -----------------------------------------------------------------------------
# A guarantee: the privacy profile of a term, as the numbers that people ask for.
#
# Neighbours: whatever the losses of the term declare; the unit is one of their units. An attacker
# knows all data but whether the unit is in it (or, under replace-one, which of two values it has),
# sees every output, and has unlimited computing power.
#
# Each answer is a bracket of the value that the tight profile of the term implies. Its upper end
# (for a trade-off its lower end) holds for every mechanism with these losses; the other end says
# how far the bound could at best be improved.


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
        usable = _with_bounds(every, (Distribution(),))[0]
        return usable or applicable(every, [a for a in ACCOUNTANTS if a != Distribution()])
    usable, reasons = _with_bounds(every, chosen if isinstance(chosen, Sequence) else (chosen,))
    if not usable:
        raise InapplicableError(f"no accountant has a bound for this term: {'; '.join(reasons)}")
    return usable


def _with_bounds(
    every: Worlds, asked: Sequence[Accountant[Any]]
) -> tuple[tuple[Accountant[Any], ...], list[str]]:
    """Return those that have a bound, and why the others have none."""
    # whether there is one does not depend on how narrow it is
    pairs = zip(asked, roughly(asked), strict=True)
    answers = [(each, measure(every, quick, delta=1e-6)) for each, quick in pairs]
    usable = tuple(each for each, answer in answers if answer.bounds is not None)
    return usable, [f"{each.name}: {a.reason}" for each, a in answers if a.bounds is None]


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
        return tuple((each, tuple(states(each, self._worlds))) for each in folded)

    def epsilon(self, delta: float) -> Bounds:
        """Return epsilon at a delta, in nats."""
        point = probability("delta", delta)
        if self._worlds is not self._every:  # of many, few need be measured for one number
            asked = applicable(self._every, self.accountant)
            answers = [measure(self._every, each, delta=point) for each in asked]
            brackets = [answer.bounds for answer in answers if answer.bounds is not None]
            if not brackets:
                reasons = "; ".join(f"{each.accountant.name}: {each.reason}" for each in answers)
                raise InapplicableError(f"no accountant has a bound at delta = {point}: {reasons}")
            return reduce(Bounds.intersection, brackets)
        return self._tightest(
            [[bounds_of(a, s, delta=point) for s in each] for a, each in self._folded]
        )

    def delta(self, epsilon: float) -> Bounds:
        """Return delta at an epsilon: ``P(S) <= e^epsilon Q(S) + delta`` for every event S."""
        point = nonnegative("epsilon", epsilon)
        # every accountant's upper bound holds, and every world must be covered
        return self._tightest(
            [[bounds_of(a, s, epsilon=point) for s in each] for a, each in self._folded]
        )

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
        return self._profile(epsilons)

    def _rough(self, epsilons: Array) -> tuple[Array, Array]:
        """Return wider bounds that cost less, where an accountant has such."""
        return self._profile(epsilons, rough=True)

    def _profile(self, epsilons: Array, *, rough: bool = False) -> tuple[Array, Array]:
        points = np.asarray(epsilons, dtype=np.float64)
        if not np.all(points >= 0):
            raise DomainError("epsilons must be non-negative numbers")
        lower, upper = np.zeros(points.shape), np.ones(points.shape)
        for accountant, in_worlds in self._folded:
            curves = [_profile(accountant, state, points, rough) for state in in_worlds]
            upper = np.minimum(upper, np.max([high for _, high in curves], axis=0))
            if self._worlds.exact:
                lower = np.maximum(lower, np.max([low for low, _ in curves], axis=0))
        return brackets(lower, upper)

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
        lower, upper = maximize(
            self.profile,
            _false_negatives(alpha.reshape(-1, 1)),
            wanted,
            rough=self._rough,
            relative=2000 * digits,
        )
        # that of a guess that ignores the outputs; rounded to nearest, so moved outward both ways
        largest_probability = 1 - alpha.ravel()
        lower = np.clip(lower, 0.0, largest_probability * (1 - 2 * UNIT))
        upper = np.clip(upper, 0.0, np.minimum(1.0, largest_probability * (1 + 2 * UNIT)))
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
        lower, upper = maximize(self.profile, _belief(prior, least), rough=self._rough)
        # the bound for every event at least that likely; never below the prior
        worst = min(1.0, max(prior, -float(lower[0])))
        return bracket(max(prior, -float(upper[0])), worst)

    def bayes_error(self, prior: float) -> Bounds:
        """Return the least probability that a guess of the unit's membership is wrong.

        The unit is in the data with probability ``prior``; the best guess is wrong with
        probability ``min_S prior (1 - P(S)) + (1 - prior) Q(S) = prior k((1 - prior) / prior)``.
        Without the outputs it is ``min(prior, 1 - prior)``. The lower end is the promise.
        """
        prior = probability("prior", prior)
        largest_probability = min(prior, 1 - prior)
        if largest_probability == 0:
            return Bounds(0.0, 0.0)
        log_t = math.log1p(-prior) - math.log(prior)
        # k at the odds of the prior: both ends of the bracket at once
        at = knots(self.profile, np.array([log_t]))
        slack = (16 + 4 * abs(log_t)) * UNIT  # t k'(t) <= k(t), as for an error of t
        lower, upper = float(at.low[0]) * (1 - slack), float(at.high[0]) * (1 + slack)
        return Bounds(
            max(0.0, prior * lower * (1 - 2 * UNIT)), min(largest_probability, prior * upper)
        )

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
        return bracket(lower if self._worlds.exact else 0.0, upper)


def _false_negatives(alpha: Array) -> Objective:
    def rate(t: Array, k: Array, side: int) -> Array:
        with np.errstate(over="ignore"):
            return k * (1 + side * 4 * UNIT) - (1 - side * 4 * UNIT) * alpha * t

    return rate


def _belief(prior: float, least: float) -> Objective:
    """Return minus the bound of the posterior: its greatest value is minus the tight one."""

    def belief(t: Array, k: Array, side: int) -> Array:
        with np.errstate(over="ignore"):
            gain = t + (1 - prior) / least * np.maximum(1 - k, 0.0)
            bound = prior * gain / (1 - prior + prior * t)
        return -bound[None, :] * (1 - side * 32 * UNIT)

    return belief


def _profile(
    accountant: Accountant[Any], state: Any, epsilons: Array, rough: bool
) -> tuple[Array, Array]:
    """Return the accountant's own profile, or one delta after another."""
    own = getattr(accountant, "profile", None)
    if rough and isinstance(accountant, Distribution):
        own = accountant.rough_profile
    if own is not None:
        lower, upper = own(state, epsilons.ravel())
        return lower.reshape(epsilons.shape), upper.reshape(epsilons.shape)
    brackets = [bounds_of(accountant, state, epsilon=float(each)) for each in epsilons.ravel()]
    bounds = np.array([(each.lower, each.upper) for each in brackets]).reshape(*epsilons.shape, 2)
    return bounds[..., 0], bounds[..., 1]


def _minus(value: float, side: int) -> float:
    """Return ``1 - value``, rounded outward to the side, as a probability."""
    return min(1.0, max(0.0, math.nextafter(1 - value, math.inf * side)))


# -----------------------------------------------------------------------------
# What finitely many (epsilon, delta) claims imply together: delta at any epsilon, and test errors.
#
# If ``P(S) <= e^eps Q(S) + delta`` for all events S and both ways, for each of some points, the
# trade-off of P and Q (the least rate of misses at each rate of false alarms) is at least
#
# ``f(x) = max over points of max(0, 1 - delta - e^eps x, e^-eps (1 - delta - x))``
#
# (Dong, Roth and Su 2022, proposition 2.5, for a point; the maximum since all hold). As each event
# S has ``P(S) <= 1 - f(Q(S))``, delta at any epsilon is at most
# ``max over x of 1 - f(x) - e^epsilon x``. This is concave and piecewise linear, so it is largest
# where two of the lines of f meet, or at an end.


Points = tuple[tuple[float, float], ...]

_UP = 1 + 1e-12


def largest_probability(points: Points, wrong: float) -> float:
    """Return at most how likely an event is on one side that has probability ``wrong`` there.

    Parameters
    ----------
    points
        Of the claim: pairs (epsilon, delta).
    wrong
        The event's probability on the other side.

    Examples
    --------
    >>> round(largest_probability(((1.0, 0.0),), 0.1), 6)
    0.271828
    """
    intercepts, slopes = _lines(points)
    # 1 - f(wrong), rounded up
    return min(1.0, (1 - max(0.0, float((intercepts - slopes * wrong).max()))) * _UP)


def implied(points: Points, epsilon: float) -> float:
    """Return delta at ``epsilon`` as it follows from the points of a claim.

    Examples
    --------
    >>> round(implied(((1.0, 1e-5),), 1.0), 9), round(implied(((1.0, 0.0),), 0.0), 6)
    (1e-05, 0.462117)
    """
    intercepts, slopes = _lines(points)
    meet = slopes[:, None] != slopes[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        places = (intercepts[:, None] - intercepts[None, :]) / (slopes[:, None] - slopes[None, :])
    x = np.clip(np.concatenate([[0.0, 1.0], places[meet]]), 0.0, 1.0)
    grows = math.exp(min(epsilon, 700.0))
    # 1 - f(x), the most that an event of probability x has on the other side
    hits = 1 - (intercepts[:, None] - slopes[:, None] * x).max(axis=0)
    return min(1.0, max(0.0, float((hits - grows * x).max())) * _UP)


def _lines(points: Points) -> tuple[Array, Array]:
    """Return the lines of f as ``intercept - slope x``."""
    lines = [(0.0, 0.0)]
    for epsilon, delta in points:
        grows = math.exp(min(epsilon, 700.0))
        lines += [(1 - delta, grows), ((1 - delta) / grows, 1 / grows)]
    intercepts, slopes = np.array(lines).T
    return intercepts, slopes
