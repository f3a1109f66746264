"""The loss of k-ary randomized response."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.complexes import Complex, expm1, log1p
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.losses.pure import Pure, ResponsePair
from accountants.pair import Pair, Symmetric
from accountants.rounding import UNIT, Array, down, up


def _epsilon(value: float) -> float:
    return nonnegative("RandomizedResponse.epsilon", value)


def _categories(value: int) -> int:
    return whole("RandomizedResponse.categories", value, least=2)


@frozen
class RandomizedResponse(PrivacyLoss):
    """An answer out of k, kept with probability ``e^eps/(e^eps + k - 1)``, else any other one.

    Every other answer has probability ``1/(e^eps + k - 1)``. Neighbours differ in the answer
    (replace-one); the loss is eps, -eps, or 0 at the k - 2 answers that neither of them gave.

    ``rho``: with ``t = (z + 1/2)^2`` the moments are ``cosh(eps sqrt t) + beta`` but for a factor,
    ``beta = (k-2)/2 e^{-eps/2}``. Where beta <= 1 all of their zeros are negative, their logarithm
    is concave in t, and rho is the limit of D_alpha at alpha = 1. Elsewhere it is the supremum of
    ``D_alpha/alpha``, bounded on a grid.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.
    categories
        k, at least 2.

    References
    ----------
    Warner 1965 (k = 2); Kairouz, Oh and Viswanath 2014, section 3.1 (k-ary).

    Examples
    --------
    >>> RandomizedResponse(epsilon=1.0, categories=4).pure()
    1.0
    """

    theorem: ClassVar[str] = "randomized response: Kairouz, Oh & Viswanath 2014 (k-ary)"

    epsilon: float = field(converter=_epsilon)
    categories: int = field(default=2, converter=_categories)

    def pair(self) -> Pair:
        """Return the answer's law given one value against another."""
        if self.categories == 2:
            return ResponsePair(self.epsilon)
        return AnswerPair(self.epsilon, self.categories)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def profile(self, epsilon: float) -> Bounds:
        """Return ``a (1 - e^{s-eps})_+ + c (1 - e^s)_+`` at s = ``epsilon`` from -eps on.

        Below, ``1 - e^s``.
        """
        kept, other, _ = _masses(self.epsilon, self.categories)
        if epsilon >= self.epsilon:
            exact = -math.expm1(min(epsilon, 0.0))
        elif epsilon > -self.epsilon:
            exact = kept * -math.expm1(epsilon - self.epsilon)
            # a (1 - e^{s - eps})_+ + c (1 - e^s)_+: the outcomes of positive loss less s
            exact -= other * math.expm1(min(epsilon, 0.0))
        else:
            exact = -math.expm1(epsilon)
        return Bounds(max(0.0, down(exact, 32)), min(1.0, up(exact, 32)) if exact else 0.0)

    def renyi(self, orders: Array) -> Array | None:
        """Return that of the three losses; of two, the closed form."""
        if self.categories == 2:
            return Pure(self.epsilon).renyi(orders)
        return PrivacyLoss.renyi(self, orders)

    def rho(self) -> float:
        """Return ``eps (e^eps - 1)/(e^eps + k - 1)`` where beta <= 1; at most eps."""
        return min(self._rho(), self.epsilon)

    def _rho(self) -> float:
        less = math.exp(-self.epsilon)
        others = float(self.categories - 2)
        limit = up(self.epsilon * -math.expm1(-self.epsilon) / (1 + less + others * less), 16)
        beta = others / 2 * math.exp(-self.epsilon / 2)
        if self.epsilon == 0 or beta <= 1 - 1e-12:
            return limit
        return min(self._chords(beta), Pure(self.epsilon).rho())

    def _chords(self, beta: float) -> float:
        """Bound the chords of log F, ``F(t) = cosh(eps sqrt t) + beta``, from t = 1/4.

        F grows, so between two orders the chord is at most the later rise over the earlier run;
        before the first order, the tangent ``eps^2/2 sinh x/(x (cosh x + beta))``, x = eps sqrt t,
        is at most sinh x / x at its right over the rest at its left; past the last, D_alpha is at
        most eps. The supremum is near the order ``2 log(k)/eps``.
        """
        eps = self.epsilon
        last = min(1e150, 1e3 * (1 + math.log(self.categories) / eps))
        orders = 1 + np.geomspace(1e-3, last, 6000)
        curve = self.renyi(orders)
        assert curve is not None
        run = orders * (orders - 1)
        # the later value over the earlier run: an upper bound of the chord between
        chords = up((orders - 1) * curve)[1:] / run[:-1]
        x = eps * (orders[0] - 0.5)
        if x > 300:  # the first tangents would overflow; every divergence is at most eps
            return math.inf
        first = eps / 2 * math.sinh(x) / ((orders[0] - 0.5) * (math.cosh(eps / 2) + beta))
        return up(max(float(chords.max()), float(first), eps / float(orders[-1])), 64)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by epsilon, of answers out of as many."""
        if not isinstance(other, RandomizedResponse):
            return False
        return self.categories == other.categories and self.epsilon >= other.epsilon


def _masses(epsilon: float, categories: int) -> tuple[float, float, float]:
    """Return a, c and b, within 16 UNIT of themselves."""
    less, others = math.exp(-epsilon), float(categories - 2)
    total = 1 + less + others * less
    return 1 / total, others * less / total, less / total


@frozen
class AnswerPair(Symmetric):
    """L is eps, 0 or -eps, under P with masses a, c and b, under Q with b, c and a.

    ``b = 1/(e^eps + k - 1)``, ``a = e^eps b``, ``c = (k-2) b``, so that

    ``E_P e^{zL} = 1 - b (e^{(z+1) eps} - 1)(e^{-z eps} - 1)``.
    """

    epsilon: float
    categories: int

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the sums of the masses above."""
        kept, other, swapped = _masses(self.epsilon, self.categories)
        where = [loss < -self.epsilon, loss < 0, loss < self.epsilon]
        return (
            np.select(where, [1.0, kept + other, kept], 0.0),
            np.select(where, [1.0, swapped + other, swapped], 0.0),
        )

    def tail_error(self) -> float:
        """Return that of an exponential of eps and a few sums."""
        return 32 * UNIT

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def spacing(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula; where it is large, with its exponential out."""
        mirrored = z.real < -0.5  # the same moment
        slip = np.where(mirrored, 4 * UNIT * (1 + np.abs(z)), 0.0) * self.epsilon
        z = np.where(mirrored, -1 - z, z)
        near, far = self._near(z), self._far(z)
        small = near[1] < far[1]
        return np.where(small, near[0], far[0]), np.where(small, near[1], far[1]) + slip

    def _near(self, z: Complex) -> tuple[Complex, Array]:
        _, _, swapped = _masses(self.epsilon, self.categories)
        one, two = (z + 1) * self.epsilon, -z * self.epsilon
        with np.errstate(over="ignore", invalid="ignore"):
            rise, fall = expm1(one), expm1(two)
            # an argument off by 4 UNIT of itself moves the exponential by as much of it
            # each exponential less 1, with its argument's rounding; then of the product
            wrong_rise = UNIT * (36 * np.abs(rise) + 4 * np.abs(one) * np.exp(one.real))
            wrong_fall = UNIT * (36 * np.abs(fall) + 4 * np.abs(two) * np.exp(two.real))
            wrong = wrong_rise * (np.abs(fall) + wrong_fall) + np.abs(rise) * wrong_fall
            wrong = swapped * (wrong + 40 * UNIT * np.abs(rise) * np.abs(fall))
            return log1p(-swapped * rise * fall, wrong)

    def _far(self, z: Complex) -> tuple[Complex, Array]:
        kept, other, swapped = _masses(self.epsilon, self.categories)
        x = z * self.epsilon
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            rest = kept + other * np.exp(-x) + swapped * np.exp(-2 * x)
            size = kept + other * np.exp(-x.real) + swapped * np.exp(-2 * x.real)
            moved = UNIT * (48 + 8 * np.abs(x)) * size / np.abs(rest)
            value = x + np.log(rest)
            error = 2 * moved + 8 * UNIT * (1 + np.abs(value) + np.abs(x))
        return value, np.where(moved < 0.5, error, np.inf)

    def atoms(self) -> Atoms:
        """Return the same pair as its losses (one where epsilon is 0)."""
        if self.epsilon == 0:
            return Atoms((0.0,), (1.0,), (1.0,))
        kept, other, swapped = _masses(self.epsilon, self.categories)
        losses = (-self.epsilon, 0.0, self.epsilon)
        masses = (swapped, other, kept)
        return Atoms(losses, masses, masses[::-1], 32 * UNIT, multiple=self.epsilon)
