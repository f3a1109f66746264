"""Private selection: the best of a random number of runs of one mechanism.

K runs, K independent of everything with generating function ``f(x) = E x^K``; the best output is
released, ties broken at random. Let q be a run's output law, and ``u(y)`` the chance that a run
is no better than y; then the selected output has the density ``q(y) f'(u(y))``, and

``E (selected density)^a (other's)^{1-a} <= e^{(a-1) D_a(q, q')} sup f'(u)^a f'(v)^{1-a}``,

where u, v are the two probabilities of one event.

Truncated negative binomial, ``f'(x) = E K (gamma / (1 - (1 - gamma) x))^{1 + eta}``: with
``s = 1 - (1 - gamma) u`` and t likewise of v, themselves the probabilities of a post-processed
event and at least gamma, ``f'(u)^a f'(v)^{1-a} = E K ((t/s)^{a-1} gamma/s)^{1+eta}``. Any order b
gives ``t <= e^{(1 - 1/b) D_b} s^{1 - 1/b}``, so
``t/s <= e^{(1 - 1/b) D_b} gamma^{-1/b}``, and

``D'_a <= D_a + (1 + eta) ((1 - 1/b) D_b + log(1/gamma)/b) + log(E K)/(a - 1)``

(Papernot and Steinke 2022, Thm 2). A pure run has ``t/s <= e^eps``, hence ``(2 + eta) eps``.

Poisson, ``f'(x) = mu e^{mu (x - 1)}``:
``f'(u)^a f'(v)^{1-a} = mu e^{mu (a-1) ((1-v) - a/(a-1) (1-u))}``, at most
``mu e^{mu (a-1) delta}`` with the run's delta at ``eps = log(a/(a-1))`` (their Thm 6). No run
at all has probability ``e^-mu`` on both sides, which their theorem leaves out and which decides
where mu is small; it is added here. A pure run gives ``eps + mu delta(0)``.

Where a run fails with probability d, all of them hold with probability f(1 - d), on both sides,
and given that K has the same family's law with fewer runs: the bounds hold with the parameters
given, after a failure of ``1 - f(1 - d) <= d E K``.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import DomainError, positive
from accountants.loss import PrivacyLoss
from accountants.losses.curved import Curved, lowered
from accountants.losses.derived_pair import log_deltas
from accountants.notions.pure import pure_to_renyi
from accountants.notions.renyi import renyi_divergence
from accountants.rounding import UNIT, Array, up
from accountants.runs import expected_runs, stopping_rate, stopping_shape

_ORDERS = 1 + np.geomspace(1e-3, 1e6, 241)
"""Where the other order b, and higher orders that bound a lower one, are looked for."""


def _base(value: PrivacyLoss) -> PrivacyLoss:
    if not isinstance(value, PrivacyLoss):
        raise DomainError(f"private selection needs the loss of one run, got {value!r}")
    renyi_divergence(value, np.array([2.0]))  # refuses here a loss that has no curve
    return value


def _mean(value: float) -> float:
    return positive("PoissonSelection.mean", value)


class _Selection(Curved):
    """What both families share: a failure, a curve, and all that follows from them."""

    base: PrivacyLoss

    def runs(self) -> float:
        """Return the expected number of runs, rounded up."""
        raise NotImplementedError

    def failure(self) -> float:
        """Return the run's failure times the expected number of runs."""
        failure = self.base.failure()
        return min(1.0, up(failure * self.runs(), 4)) if failure else 0.0

    def renyi(self, orders: Array) -> Array:
        """Return the theorem's bound at the order or the best of a grid of higher orders."""
        wanted = np.asarray(orders, dtype=np.float64)
        curve = lowered(self._bound, wanted, _ORDERS)
        eps = self.pure()
        return curve if eps is None else np.minimum(curve, pure_to_renyi(eps, wanted))

    def _bound(self, orders: Array) -> Array:
        raise NotImplementedError


@frozen(slots=False, cache_hash=True)
class PrivateSelection(_Selection):
    """The best of K runs, K truncated negative binomial: geometric, logarithmic and between.

    ``P(K = k)`` is proportional to ``(1 - gamma)^k (eta)_k / k!`` for k >= 1; for eta = 0 to
    ``(1 - gamma)^k / k``. The neighbour relation is the base's.

    Parameters
    ----------
    base
        The loss of one run, everything included that the run releases and is compared by.
    shape
        eta, above -1: 1 for a geometric K, 0 for a logarithmic one.
    stopping
        gamma, in (0, 1): for a geometric K the chance to stop after each run.

    References
    ----------
    Liu and Talwar 2019, Thm 3.2 (geometric, 3 epsilon); Papernot and Steinke 2022, Thm 2.

    Examples
    --------
    >>> from accountants.losses.pure import Pure
    >>> selection = PrivateSelection(Pure(epsilon=0.5), shape=1.0, stopping=0.1)
    >>> round(selection.pure(), 9), round(selection.runs(), 9)
    (1.5, 10.0)
    """

    theorem: ClassVar[str] = (
        "private selection: Liu & Talwar 2019, Thm 3.2; Papernot & Steinke 2022, Thm 2"
    )

    base: PrivacyLoss = field(converter=_base)
    shape: float = field(converter=stopping_shape)
    stopping: float = field(converter=stopping_rate)

    def runs(self) -> float:
        """Return ``eta (1 - gamma) / (gamma (1 - gamma^eta))``, its limit at eta = 0."""
        return expected_runs(self.shape, self.stopping)

    def pure(self) -> float | None:
        """Return ``(2 + eta)`` times the run's."""
        eps = self.base.pure()
        return None if eps is None else up((2 + self.shape) * eps, 4)

    def _bound(self, orders: Array) -> Array:
        curve = renyi_divergence(self.base, orders)
        # Papernot and Steinke 2022, Thm 2
        return up(curve + self._fixed + math.log(self.runs()) / (orders - 1), 8)

    @cached_property
    def _fixed(self) -> float:
        """Return ``(1 + eta)`` times the least over b; the limit b = infinity where it is pure."""
        curve = renyi_divergence(self.base, _ORDERS)
        costs = up((1 - 1 / _ORDERS) * curve, 4) + up(-math.log(self.stopping) / _ORDERS, 4)
        eps = self.base.pure()
        # any order b bounds t/s; a pure run bounds it by e^eps, the limit of b
        least = min(float(costs.min()), math.inf if eps is None else eps)
        return up((1 + self.shape) * least, 8)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by the base, for the same law of K."""
        if isinstance(other, PrivateSelection):
            same = (self.shape, self.stopping) == (other.shape, other.stopping)
            return same and self.base.dominates(other.base)
        return False

    def grouped(self, size: int) -> PrivateSelection:
        """Return the selection among runs of the grouped loss."""
        return PrivateSelection(self.base.grouped(size), self.shape, self.stopping)


@frozen(slots=False, cache_hash=True)
class PoissonSelection(_Selection):
    """The best of K runs, K Poisson; nothing is released where K = 0.

    The neighbour relation is the base's.

    Parameters
    ----------
    base
        The loss of one run, everything included that the run releases and is compared by.
    mean
        mu, positive: the expected number of runs.

    References
    ----------
    Papernot and Steinke 2022, Thm 6, with the outcome of no run added.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> selection = PoissonSelection(Gaussian(mu=0.1), mean=10.0)
    >>> round(float(selection.renyi(np.array([8.0]))[0]), 2)
    0.38
    """

    theorem: ClassVar[str] = "private selection, Poisson: Papernot & Steinke 2022, Thm 6"

    base: PrivacyLoss = field(converter=_base)
    mean: float = field(converter=_mean)

    def runs(self) -> float:
        """Return the mean."""
        return self.mean

    def pure(self) -> float | None:
        """Return ``eps + mu delta(0)`` of a pure run."""
        eps = self.base.pure()
        if eps is None:
            return None
        return up(eps + up(self.mean * float(self._deltas(np.array([math.inf]))[0])), 4)

    def _bound(self, orders: Array) -> Array:
        c = orders - 1
        deltas = self._deltas(orders)
        with np.errstate(over="ignore", invalid="ignore"):
            # (a - 1) (D_a + mu delta), Thm 6
            exponent = up(c * up(renyi_divergence(self.base, orders) + self.mean * deltas), 8)
            # log(mu e^x + e^-mu), at least 0
            logs = np.logaddexp(math.log(self.mean) + exponent, -self.mean)
            slack = 16 * UNIT * (2 + exponent + abs(math.log(self.mean)) + self.mean)
            bound = up(np.maximum(logs + slack, 0.0) / c, 8)
        return np.where(np.isnan(bound), np.inf, bound)

    def _deltas(self, orders: Array) -> Array:
        """Return the run's delta at ``log(a/(a-1))``, its failure not included if that is known."""
        epsilons = np.where(np.isinf(orders), 0.0, -np.log1p(-1 / orders) * (1 - 8 * UNIT))
        logs, _ = log_deltas(lambda some: renyi_divergence(self.base, some), epsilons)
        deltas = np.exp(logs) * (1 + 4 * UNIT * (1 + np.abs(logs))) + 1e-320
        pair = self.base.pair()
        if pair is not None:
            both = [side.profile(epsilons)[1] for side in (pair, pair.reversed())]
            # of both directions, since either may be the run's
            deltas = np.minimum(deltas, np.maximum(*both))
        eps = self.base.pure()
        if eps is not None:
            deltas = np.where(epsilons >= eps, 0.0, deltas)
        return np.minimum(deltas, 1.0)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by the base, for the same mean."""
        if isinstance(other, PoissonSelection):
            return self.mean == other.mean and self.base.dominates(other.base)
        return False

    def grouped(self, size: int) -> PoissonSelection:
        """Return the selection among runs of the grouped loss."""
        return PoissonSelection(self.base.grouped(size), self.mean)
