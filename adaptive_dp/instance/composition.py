"""Composition of one record's losses: the loss of a pair adds up, mechanism by mechanism.

For one pair of data sets (Z, Z without z), adaptively chosen mechanisms compose as they do in the
worst case (Wang 2019, Lemma 2.4; Feldman and Zrnic 2021, Thm 3.1), whose proofs fix the pair:

* epsilons of pure losses add, and so do epsilons and deltas;
* Renyi divergences add at every order;
* Gaussian losses add by the squares of mu, exactly.

Later mechanisms must have the same bound on this pair whatever the earlier ones gave.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from accountants.errors import DomainError, probability
from accountants.notions.renyi import renyi_to_epsilon
from accountants.rounding import Array, up
from adaptive_dp.instance import quadratic

ORDERS: Array = 1 + np.geomspace(1e-2, 1e4, 80)
"""At which curves of many records are kept; each order proves its own epsilon."""


def gaussian_epsilons(mus: ArrayLike, delta: float) -> Array:
    """Return the exact epsilon at ``delta`` of every mu (Balle and Wang 2018, Thm 8), rounded up.

    A Gaussian is the pair of leverage 0 of `adaptive_dp.instance.quadratic`.

    Examples
    --------
    >>> gaussian_epsilons([0.1, 0.5], delta=1e-6).round(1).tolist()
    [0.4, 2.3]
    """
    return quadratic.epsilon(delta, 0.0, _checked(mus))


def composed_mus(mus: Sequence[ArrayLike]) -> Array:
    """Return ``sqrt(sum mu^2)`` for every record (Dong, Roth and Su 2022, Cor. 2), rounded up.

    Examples
    --------
    Two mechanisms, two records:

    >>> composed_mus([[0.3, 0.0], [0.4, 0.1]]).round(6).tolist()
    [0.5, 0.1]
    """
    total: Array = np.zeros(())
    for mu in mus:
        total = np.hypot(total, _checked(mu))
    return np.where(total > 0, up(total, 4 * len(mus)), total)


def renyi_epsilons(divergences: ArrayLike, orders: Array, delta: float) -> Array:
    """Return the least epsilon at ``delta`` that any order proves, for every record.

    Parameters
    ----------
    divergences
        Sums of Renyi divergences, a row for each record and a column for each order; each at
        least that of either direction.
    orders
        Above 1.
    delta
        In [0, 1]; nothing finite is proven at 0.

    Examples
    --------
    >>> orders = np.array([2.0, 8.0, 32.0])
    >>> epsilons = renyi_epsilons(0.02 * orders[None, :], orders, delta=1e-6)
    >>> (np.ceil(1_000 * epsilons) / 1_000).tolist()
    [0.943]
    """
    delta = probability("delta", delta)
    curves = _checked(divergences)
    if delta in (0.0, 1.0):
        return np.full(curves.shape[:-1], np.inf if delta == 0 else 0.0)
    with np.errstate(over="ignore"):
        least: Array = renyi_to_epsilon(curves, orders, delta).min(axis=-1)
    return np.maximum(least, 0.0)


def laplace_renyi(orders: Array, pure: ArrayLike) -> Array:
    """Return the Renyi divergences of Laplace losses of pure epsilons t, a column for each order.

    ``log(a/(2a-1) e^((a-1)t) + (a-1)/(2a-1) e^(-a t)) / (a-1)`` (Mironov 2017, Prop. 6), and never
    above ``min(t, a t^2 / 2)``, which holds for every pure loss.
    """
    a, t = np.asarray(orders, dtype=np.float64), _checked(pure)[..., None]
    with np.errstate(all="ignore"):
        grow, fall = np.log(a / (2 * a - 1)) + (a - 1) * t, np.log((a - 1) / (2 * a - 1)) - a * t
        own = np.logaddexp(grow, fall)
        own = (own + 1e-15 * (1 + np.abs(grow) + np.abs(fall))) / (a - 1)
        return np.minimum(
            np.where(np.isnan(own), np.inf, up(own)), up(np.minimum(t, a * t * t / 2))
        )


def _checked(values: ArrayLike) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if not np.all(found >= 0):
        raise DomainError("losses of records must be non-negative numbers, and not NaN")
    return found
