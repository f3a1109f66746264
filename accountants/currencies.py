"""A term's guarantee in another notion of privacy: its zCDP rho, Gaussian-DP mu or Renyi curve.

Two neighbours differ in what one world holds, so the largest over the worlds is a bound for all of
them; inside a world losses compose by the accountant's theorem. A loss that may fail, with a
probability on which nothing is promised, keeps none of these notions: it is refused.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from accountants.accountant import Accountant
from accountants.concentrated import Concentrated
from accountants.errors import DomainError, InapplicableError
from accountants.gaussian import GaussianDP
from accountants.renyi import Renyi, curve
from accountants.rounding import Array, ceiling, up
from accountants.world import Worlds
from accountants.worst import fold


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
    common = fold(accountant, accountant.start(), every.common)
    folded = [fold(accountant, common, world.spends) for world in every.alternatives]
    # with a failure none of these notions holds, at any parameter
    failure = max((state.failure for state in folded), default=Fraction())
    if failure > 0:
        raise InapplicableError(
            f"with probability up to {ceiling(failure):.3g} nothing is promised, or nothing finite "
            f"is known, so the {accountant.name} notion does not hold; ask for epsilon at a delta"
        )
    return folded
