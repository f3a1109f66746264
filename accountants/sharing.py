"""One budget over several releases.

Two contracts. With *weights*, every release's noise is a common factor times its weight, and the
factor is what is solved: `scaled` makes the term of a factor, for `calibrate`. With *shares*, each
part gets a share of the budget: `share`. What is certified in the end is the composed term, so
neither depends on how the parts' costs were counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.calibration import Calibration, calibrate, least_noise
from accountants.errors import DomainError, positive, probability
from accountants.notions.gaussian import gdp_epsilon
from accountants.reading import Chosen
from accountants.terms import Sequential, Term

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
    known = _numbers("weight", parts, weights)

    def term(factor: float) -> Term:
        return Sequential([part(factor * known[name]) for name, part in parts.items()])

    return term


@frozen
class Division:
    """Numbers solved together, and what is certified of the whole.

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
    >>> found = share(parts, {"count": 1, "sum": 3}, epsilon=1.0, delta=0.0)
    >>> {name: round(value, 4) for name, value in found.values.items()}
    {'count': 4.0, 'sum': 1.3333}
    >>> found.epsilon.upper <= 1.0
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
    the composition, measured as a whole, is within the target.

    Parameters
    ----------
    parts
        By name, the part's term for its noise multiplier or scale, in which its cost falls.
    shares
        By name, positive; they are divided by their sum, so ``3`` and ``7`` are ``0.3`` and
        ``0.7``.
    epsilon, delta
        The target of the whole.
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
    >>> found = share(parts, {"histogram": 0.2, "model": 0.8}, epsilon=1.0, delta=1e-5,
    ...               accountant=GaussianDP())
    >>> {name: round(value, 4) for name, value in found.values.items()}
    {'histogram': 8.3419, 'model': 41.7097}
    """
    given = _numbers("share", parts, shares)
    target, delta = positive("epsilon", epsilon), probability("delta", delta)
    # shares of mu squared, or of epsilon at delta 0: only the division; the whole is certified
    # below
    parts_of_one = {name: value / sum(given.values()) for name, value in given.items()}
    solved: dict[float, dict[str, Calibration]] = {}

    def term(budget: float) -> Term:
        if budget not in solved:
            solved[budget] = {
                name: calibrate(
                    part,
                    epsilon=_part_epsilon(name, budget * parts_of_one[name], delta),
                    delta=delta,
                    accountant=accountant,
                    cost="falls",
                    digits=digits / 100,
                )
                for name, part in parts.items()
            }
        return Sequential([found.term for found in solved[budget].values()])

    whole = calibrate(
        term,
        epsilon=target,
        delta=delta,
        accountant=accountant,
        cost="rises",
        start=_first_budget(target, delta),
        digits=digits,
    )
    values = {name: found.value for name, found in solved[whole.value].items()}
    return Division(values, whole.term, whole.epsilon, delta, whole.accountant)


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
