r"""Sparse vector: which of many queries lie above a threshold, paid for by the answers above.

One noise rho is drawn on the threshold, one nu on each query; a query answers "above" where
``q + nu >= T + rho``, and the run ends after c such answers. Let A be the chance of a transcript
on one data set given rho, B that on its neighbour given ``rho + 1`` (sensitivities are 1). Every
"below" of the first is as likely in the second; an "above" at survival G(x) = P(nu >= x) is
there at least G(x + s), with s = 2, or s = 1 for monotone queries (all move the same way; the
other way needs no shift of rho). The two joint laws of rho and transcript have the run's laws as
marginals, so with a = alpha

``D_a <= D_a(rho + 1, rho) + log sup_rho S / (a - 1)``, ``S = sum over transcripts A^a B^{1-a}``.

* Laplace: ``G(x) <= e^{s/b} G(x + s)``, so ``A <= e^{eps_2} B`` with ``eps_2 = c s / b`` and
  ``S <= e^{(a-1) eps_2}``: eps_2 plus the Laplace curve of the threshold. As a is infinite,
  ``eps_1 + eps_2`` (Lyu, Su and Li 2017, Thm 2 and its monotone form).
* Gaussian, at most K queries: let ``g(x) = G(x)^a G(x+s)^{1-a}``, and
  ``f(x) = F(x)^a F(x+s)^{1-a} <= F(x)`` likewise with F = 1 - G. With ``1 + v_k`` the largest S of
  a run of k queries and one "above", ``v_k <= sup_x w + F v_{k-1}``, ``w = g + f - 1``. A v_k
  above some v grows by at most ``phi(v) = sup_x w - G v`` each time, hence
  ``v_K <= v + K phi(v)`` for every ``v >= 0``; and w is at most ``M - 1``, with
  ``M = e^{a (a-1) s^2 / (2 sigma^2)}`` the two Gaussians' moment. After each "above" the rest is
  such a run again: c of them multiply. Besides, all is a function of the K noisy queries, rho
  being drawn from no data: ``D_a <= a K / (2 sigma^2)``, whatever c is.

The Gaussian form is Zhu and Wang's (2020), who have ``K M`` for ``1 + v_K``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import DomainError, nonnegative, positive, whole
from accountants.loss import PrivacyLoss
from accountants.losses.derived_pair import ResponseBound
from accountants.losses.laplace import Laplace
from accountants.losses.pure import Pure
from accountants.notions.pure import pure_to_renyi
from accountants.rounding import Array, ceiling, up


def flag(value: bool) -> bool:
    """Return a boolean as it is, or raise `DomainError`."""
    if not isinstance(value, bool):
        raise DomainError(f"monotone must be True or False, got {value!r}")
    return value


def _epsilon(value: float) -> float:
    return positive("SparseVector's epsilons", value)


def _numbers(value: float) -> float:
    return nonnegative("SparseVector.numbers", value)


def _hits(value: int) -> int:
    return whole("SparseVector.hits", value)


@frozen
class SparseVector(PrivacyLoss):
    """Above threshold with Laplace noise, until so many answers are "above".

    The noise on the threshold is drawn once, that on each query afresh, and an answer's number
    has noise of its own: `scales`. It does not depend on how many queries there are.

    Parameters
    ----------
    threshold, queries
        epsilon_1 and epsilon_2, positive.
    numbers
        epsilon_3, paid where the noisy values of the queries "above" are released too; or 0.
    hits
        c, the number of "above" after which the run ends.
    monotone
        Whether between neighbours all queries move in one direction (as counts do under
        add/remove): half the noise on the queries then.

    References
    ----------
    Lyu, Su and Li 2017, Alg. 7 and Thms 2 to 4; sensitivities and neighbours are those of the
    queries.

    Examples
    --------
    >>> loss = SparseVector(threshold=0.25, queries=0.75, hits=3)
    >>> loss.pure(), loss.scales()
    (1.0, (4.0, 8.0, inf))
    """

    theorem: ClassVar[str] = "sparse vector: Lyu, Su & Li 2017, Alg. 7, Thms 2 to 4"

    threshold: float = field(converter=_epsilon)
    queries: float = field(converter=_epsilon)
    numbers: float = field(default=0.0, converter=_numbers)
    hits: int = field(default=1, converter=_hits)
    monotone: bool = field(default=False, converter=flag)

    def scales(self) -> tuple[float, float, float]:
        """Return the Laplace scales on threshold, query and number, in units of the sensitivity."""
        moved = self.hits if self.monotone else 2 * self.hits
        number = _scale(self.hits, self.numbers) if self.numbers else math.inf
        return _scale(1, self.threshold), _scale(moved, self.queries), number

    def pair(self) -> ResponseBound:
        """Return randomized response at `pure`, as a bound."""
        return ResponseBound(self.pure())

    def pure(self) -> float:
        """Return the sum of the three."""
        return ceiling(Fraction(self.threshold) + Fraction(self.queries) + Fraction(self.numbers))

    def renyi(self, orders: Array) -> Array:
        """Return ``epsilon_2`` and the Laplace curves of the rest, or the pure epsilon's."""
        # eps_2 is a pure cost at every order; the threshold's shift costs its own Laplace curve
        shifts = Laplace(self.threshold).renyi(orders) + self.queries
        if self.numbers:
            each = Laplace(up(self.numbers / self.hits)).renyi(orders)
            # the c numbers compose, each of epsilon_3 / c
            shifts = shifts + up(each * self.hits)
        return np.minimum(up(shifts, 4), pure_to_renyi(self.pure(), orders))

    def profile(self, epsilon: float) -> Bounds:
        """Return randomized response's, as an upper bound."""
        return Bounds(0.0, Pure(self.pure()).profile(epsilon).upper)

    def grouped(self, size: int) -> SparseVector:
        """Return the loss for queries that move ``size`` times as far."""
        k = whole("group size", size)
        if k == 1:
            return self
        moved = [up(k * part, 2) for part in (self.threshold, self.queries)]
        numbers = up(k * self.numbers, 2) if self.numbers else 0.0
        return SparseVector(moved[0], moved[1], numbers, self.hits, self.monotone)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by the three epsilons, for the same number of hits."""
        if isinstance(other, SparseVector) and self.hits == other.hits:
            mine = (self.threshold, self.queries, self.numbers)
            theirs = (other.threshold, other.queries, other.numbers)
            return all(a >= b for a, b in zip(mine, theirs, strict=True))
        return False


def _scale(moved: int, epsilon: float) -> float:
    return ceiling(moved / Fraction(epsilon))
