"""Certify a term: the bracket that each accountant proves, over all worlds.

Certificates, a node's share, a what-if and a calibration all go through `measure`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen

from accountants.accountant import Accountant, checked_accountant, pure_or_infinite
from accountants.advanced import Advanced
from accountants.basic import Basic
from accountants.concentrated import Concentrated
from accountants.distribution import Distribution
from accountants.errors import DomainError, InapplicableError, nonnegative, probability
from accountants.gaussian import GaussianDP
from accountants.loss import PrivacyLoss
from accountants.numerics import Array, Bounds, RoundedUp, ceiling, totals, up
from accountants.renyi import Renyi, curve
from accountants.terms import Term
from accountants.world import World, Worlds, maximum_over_worlds, states, worlds

ACCOUNTANTS: tuple[Accountant[Any], ...] = (
    Basic(),
    Advanced(),
    Concentrated(),
    Renyi(),
    GaussianDP(),
    Distribution(),
)
"""The accountants that `certify` runs, in the order in which they are shown."""


@frozen
class Answer:
    """What one accountant says.

    Parameters
    ----------
    accountant
        Its name.
    bounds
        The bracket of the worst world, or None where the accountant does not apply.
    world
        The world that decides the upper bound.
    state
        The accountant's state in that world; None where it does not apply.
    reason
        Why it does not apply; empty where it does.

    Examples
    --------
    >>> from accountants import RenyiCurve, Spend
    >>> answers = certify(Spend(RenyiCurve([2.0, 8.0], [0.1, 0.5])), delta=1e-6)
    >>> print(answers["renyi"].bounds)
    [0, 2.04371]
    >>> answers["concentrated"].bounds is None, answers["concentrated"].reason
    (True, 'RenyiCurve has no zCDP rho')
    """

    accountant: Accountant[Any]
    bounds: Bounds | None
    world: World
    state: Any = None
    reason: str = ""


def measure(
    term: Term | Worlds,
    accountant: Accountant[Any],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
) -> Answer:
    """Return one accountant's bracket: of epsilon at ``delta``, or of delta at ``epsilon``.

    Parameters
    ----------
    term
        What a unit can touch; its worlds may be given instead, to compute them once.
    delta, epsilon
        Exactly one of the two.

    Examples
    --------
    >>> from accountants import Basic, Laplace, Sequential, Spend
    >>> three = Sequential([Spend(Laplace(epsilon=0.25))] * 3)
    >>> measure(three, Basic(), delta=0.0).bounds.upper
    0.75
    """
    if delta is not None and epsilon is None:
        point = probability("delta", delta)
    elif epsilon is not None and delta is None:
        point = nonnegative("epsilon", epsilon)
    else:
        raise TypeError("give delta or epsilon, not both")
    checked_accountant(accountant)
    # the worlds may be given, so that several accountants and points share them
    every = term if isinstance(term, Worlds) else worlds(term)
    try:
        if delta is not None:
            greatest = maximum_over_worlds(every, accountant, delta=point)
        else:
            greatest = maximum_over_worlds(every, accountant, epsilon=point)
    except InapplicableError as refusal:
        return Answer(accountant, None, every.alternatives[0], reason=str(refusal))
    return Answer(accountant, greatest.bounds, greatest.world, greatest.state)


class Answers(Mapping[str, Answer]):
    """What accountants say at one delta, by name: each is asked when it is first looked up.

    Parameters
    ----------
    every
        The worlds of a term.
    accountants, delta
        Whom to ask, and at which delta.
    """

    def __init__(self, every: Worlds, accountants: Sequence[Accountant[Any]], delta: float) -> None:
        self._every, self._delta = every, probability("delta", delta)
        for each in accountants:
            checked_accountant(each)
        self._accountants = {each.name: each for each in accountants}
        self._answers: dict[str, Answer] = {}
        self._sum: Answer | None = None

    def __getitem__(self, name: str) -> Answer:
        if name not in self._answers:
            accountant = self._accountants[name]
            answer = measure(self._every, accountant, delta=self._delta)
            if type(accountant) is Basic:
                self._sum = answer
            self._answers[name] = evolve(answer, bounds=self._exact(answer.bounds))
        return self._answers[name]

    @cached_property
    def _pure(self) -> float:
        """About the sum of pure epsilons of the costliest world; infinite where one has none."""
        return max(
            math.fsum(times * pure_or_infinite(loss) for loss, times in world.spends.items())
            for world in self._every
        )

    def _exact(self, found: Bounds | None) -> Bounds | None:
        """Return bounds of epsilon whose upper end is a sum of pure epsilons as that rational.

        The sum of rationals is proven to be a bound at every delta. Where an accountant of floats
        returns the same number but for its own roundings, it says the rational: three tenths are
        0.3, whoever adds them.
        """
        if found is None or not math.isfinite(found.upper) or isinstance(found.upper, RoundedUp):
            return found
        if found.upper < self._pure * (1 - _ROUNDINGS):
            return found
        if self._sum is None and type(self._accountants.get(Basic.name)) is Basic:
            self[Basic.name]
        if self._sum is None:
            self._sum = measure(self._every, Basic(), delta=self._delta)
        pure = None if self._sum.bounds is None else self._sum.bounds.upper
        if not isinstance(pure, RoundedUp) or not found.lower <= pure <= found.upper:
            return found
        # the rational is below what the accountant has proven, and a proven bound itself
        same = found.upper <= float(pure) * (1 + _ROUNDINGS)
        return evolve(found, upper=pure) if same else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._accountants)

    def __len__(self) -> int:
        return len(self._accountants)

    def __repr__(self) -> str:
        return f"Answers({dict(self)!r})"

    def contenders(self) -> Collection[Answer]:
        """Return the answers among which the tightest is, or one that is as good.

        No valid bound is below the lower end of the distribution's bracket: where that is narrow
        another accountant could win by its width at most. Nor does one win by that: a conversion by
        moments or by Gaussian DP is above the distribution's delta by what it adds at all other
        outcomes. All but exact are only closed forms: of Gaussian noise alone, of randomized
        responses, of a single release, and the sum of pure epsilons, where that is the answer. With
        those all are asked, unless so many that it takes longer than it could gain. Accountants of
        others are asked all the same.
        """
        distribution = Distribution()
        if distribution not in self._accountants.values() or self._has_closed_form():
            return self.values()
        best = self[distribution.name]
        if best.bounds is None or not best.bounds.upper <= best.bounds.lower * (1 + _NARROW):
            return self.values()
        pure = [(loss.pure(), times) for loss, times in self._largest().items()]
        total = sum(math.inf if each is None else each * times for each, times in pure)
        if len(pure) <= _MANY and total <= best.bounds.upper * _ALMOST:
            return self.values()
        library = {type(each) for each in ACCOUNTANTS}
        others = [name for name, each in self._accountants.items() if type(each) not in library]
        return [best, *(self[name] for name in others)]

    def _largest(self) -> Mapping[PrivacyLoss, int]:
        """Return the losses of the world that has most of them."""
        alternatives = self._every.alternatives
        largest = max(alternatives, key=lambda world: len(world.spends))
        return totals([*self._every.common.items(), *largest.spends.items()])

    def _has_closed_form(self) -> bool:
        """Whether another accountant may be exact, too."""
        losses = self._largest()
        responses = sum(loss.is_response_pair for loss in losses)
        if len(losses) > _MANY:
            return len(losses) <= min(2 * responses, _RESPONSES)
        alone = sum(losses.values()) <= 1
        return alone or responses > 0 or all(loss.is_gaussian_pair for loss in losses)


_MANY = 64
"""Of more different losses the sums take a while."""

_ALMOST = 1.01
"""Next to the sum of pure epsilons the largest losses alone matter, which all accountants know."""

_RESPONSES = 512
"""Of more responses the advanced accountant takes longer than the distribution."""

_ROUNDINGS = 1e-9
"""By how much the roundings of an accountant may enlarge a sum of pure epsilons, relatively."""

_NARROW = 1e-7
"""The relative width of a bracket in whose interior no other accountant's bound is looked for."""


def certify(
    term: Term, delta: float, accountants: Sequence[Accountant[Any]] = ACCOUNTANTS
) -> Answers:
    """Return every accountant's answer at ``delta``, by name.

    An accountant is asked when its answer is first looked up. `tightest` does without those that
    cannot be.

    Examples
    --------
    >>> from accountants import Gaussian, Repeated, Spend
    >>> answers = certify(Repeated(Spend(Gaussian(mu=0.1)), 100), delta=1e-5)
    >>> tightest(answers).accountant.name
    'gaussian'
    """
    # worlds are computed once for all accountants
    return Answers(worlds(term), accountants, delta)


def tightest(answers: Mapping[str, Answer]) -> Answer:
    """Return the answer with the least upper bound.

    Raises
    ------
    InapplicableError
        If no accountant applies.

    Examples
    --------
    >>> from accountants import Laplace, Repeated, Spend
    >>> answers = certify(Repeated(Spend(Laplace(epsilon=0.1)), 100), delta=1e-6)
    >>> best = tightest(answers)
    >>> print(best.accountant.name, best.bounds)
    distribution [4.69266, 4.69267]
    """
    asked = answers.contenders() if isinstance(answers, Answers) else answers.values()
    applicable = [answer for answer in asked if answer.bounds is not None]
    if not applicable:
        reasons = "; ".join(f"{name}: {a.reason}" for name, a in answers.items())
        raise InapplicableError(f"no accountant has a bound for this term: {reasons}")
    # every accountant's upper bound is proven, so the least of them is
    return min(applicable, key=lambda answer: answer.bounds.upper if answer.bounds else 0.0)


def loss_cost(answer: Answer, delta: float, loss: PrivacyLoss) -> float:
    """Return the cost of ``loss`` in the accounting unit of the answer's accountant.

    Examples
    --------
    >>> from accountants import Concentrated, Gaussian, Sequential, Spend
    >>> large, small = Gaussian(mu=0.4), Gaussian(mu=0.2)
    >>> answer = measure(Sequential([Spend(large), Spend(small)]), Concentrated(), delta=1e-6)
    >>> [round(loss_cost(answer, 1e-6, loss), 6) for loss in (large, small)]  # zCDP's rho
    [0.08, 0.02]
    """
    return float(answer.accountant.cost_function(answer.state, delta)(loss))


# -----------------------------------------------------------------------------
# A term's guarantee in another notion of privacy: its zCDP rho, Gaussian-DP mu or Renyi curve.
#
# Two neighbours differ in what one world holds, so the largest over the worlds is a bound for all
# of them; inside a world losses compose by the accountant's theorem. A loss that may fail, with a
# probability on which nothing is promised, keeps none of these notions: it is refused.


def term_rho(every: Worlds) -> float:
    """Return the least rho known for which the term is rho-zCDP (Bun and Steinke 2016)."""
    # a unit lies in one world: the largest sum over the worlds bounds them all
    return ceiling(max(state.total for state in term_states(Concentrated(), every)))


def term_mu(every: Worlds) -> float:
    """Return the least mu known for which the term is mu-GDP (Dong, Roth and Su 2022, Cor. 2)."""
    square = max(state.total for state in term_states(GaussianDP(), every))
    return up(math.sqrt(ceiling(square)), 2) if square else 0.0


def term_renyi(every: Worlds, orders: Array) -> Array:
    """Return bounds of the Renyi divergences at real orders above 1 (Mironov 2017, Prop. 1)."""
    points = np.asarray(orders, dtype=np.float64)
    if not np.all((points > 1) & np.isfinite(points)):
        raise DomainError("orders must be finite numbers above 1")
    curves = [curve(state)(points.ravel()) for state in term_states(Renyi(), every)]
    return np.asarray(np.max(curves, axis=0)).reshape(points.shape)


def term_states(accountant: Accountant[Any], every: Worlds) -> list[Any]:
    """Return an accountant's sums in each world.

    Raises
    ------
    InapplicableError
        If a loss lacks what the accountant adds up, or may fail.
    """
    folded = states(accountant, every)
    # with a delta floor none of these notions holds, at any parameter
    delta_floor = max((state.delta_floor for state in folded), default=Fraction())
    if delta_floor > 0:
        raise InapplicableError(
            f"with probability up to {ceiling(delta_floor):.3g} nothing is promised, or nothing "
            f"finite is known, so the {accountant.name} notion does not hold; ask for epsilon at a "
            "delta"
        )
    return folded
