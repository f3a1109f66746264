"""The ridge posterior's worst loss over all records that may come or go, and its calibration.

The mechanism samples ``N(theta, (1/gamma) H^-1)``, ``H = X'X + ridge I``, ``theta = H^-1 X'y``,
with a public gamma and ridge. Let Z be a data set of which two bounds are known:

``curvature <= lam_min(H)``, and ``residual >= |y - x'theta|`` for every record with
``|x| <= norm`` and ``|y| <= B_y``: with ``|theta| <= T``, ``residual = B_y + norm T``.

*A record is added.* Its leverage is ``m = x'H^-1 x <= norm^2 / curvature =: M`` and its gap
``g = sqrt(gamma m) |e|`` with ``|e| <= residual``. *A record is removed.* What is left has
``H - x x'``, which is at least ``max(curvature - norm^2, ridge) I``. So the leverage at what is
left, m with ``m / (1 + m) = x'H^-1 x``, is at most ``N = norm^2 / max(curvature - norm^2, ridge)``,
and the prediction error there is ``(1 + m) |e|``, ``|e| <= residual`` the error at Z.

By the order of pairs (see `adaptive_dp.instance.quadratic`), whose invariant is
``u = E / sqrt(1 + m)``, ``E = g / sqrt(m)``:

* Removals have ``u = sqrt(gamma) |e| sqrt(1 + m)``, which grows with m and ``|e|``; so the corner
  ``(N, sqrt(gamma) (1 + N) residual)`` is the worst of them. It is above every addition too,
  since ``N >= M`` and ``sqrt(1 + N) residual >= |e| / sqrt(1 + m)``. One pair bounds all losses.
* Additions alone have ``E <= sqrt(gamma) residual =: F``. At equal E the loss grows with m where
  ``r (1 + m) >= E m tanh(E r / m)``, r the end of the interval of R: the sign of the derivative of
  both profiles. Since ``tanh(t) <= min(1, t)``, that is so (a) for ``E^2 <= 1 + m``; (b) for the
  profile of what is removed, where ``r^2 >= E^2 / (1 + m)``, up to ``m = (1 + sqrt 5) / 2``; (c)
  for that of what is added, where ``r^2 >= E^2 / (1 + m) - 2 epsilon``, as long as
  ``2 epsilon <= F^2 (1 + M - M^2) / (1 + M)^2``. Then the corner (M, F) is the worst. Elsewhere,
  by the invariant, ``(M, F sqrt(1 + M))`` bounds all, and ``(M, F sqrt((1 + M) / (1 + k)))`` all of
  a leverage of k or more.

Additions suffice where both bounds are known of the smaller of two data sets, since the loss of a
pair holds in both directions. Where they are known of the data set at hand, which may be the
larger, removals must be covered: without them, one record alone against none exceeds its delta
twentyfold (Redberg, Zhu and Wang 2023 take additions only).

References
----------
Wang 2019, Remark 11, whose constants are too small; Dimitrakakis et al. 2017 (posterior
sampling). The two corners are derived here.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen

from accountants.errors import DomainError, nonnegative, positive, probability
from accountants.rounding import Array, down, up
from adaptive_dp.instance import quadratic

_GOLDEN = 1.618  # below (1 + sqrt 5) / 2


def _curvature(value: float) -> float:
    return positive("RidgeBounds.curvature", value)


def _ridge(value: float) -> float:
    return nonnegative("RidgeBounds.ridge", value)


def _norm(value: float) -> float:
    return positive("RidgeBounds.norm", value)


def _residual(value: float) -> float:
    return nonnegative("RidgeBounds.residual", value)


@frozen
class RidgeBounds:
    """What is known of a data set, and which records may come or go.

    Parameters
    ----------
    curvature
        A positive lower bound of the smallest eigenvalue of ``X'X + ridge I``.
    ridge
        Non-negative, at most ``curvature``: what is left of it when records go.
    norm
        Every record's ``|x|`` is at most this.
    residual
        Every record's ``|y - x'theta|`` is at most this: ``B_y + norm T`` where ``|y| <= B_y`` and
        ``|theta| <= T``.
    removals
        Whether the data set at hand may be the larger one. False only where the bounds hold of
        the smaller of any two neighbours.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(worst_epsilon(1e-6, gamma=1.0, bounds=bounds), 3)
    0.922
    """

    curvature: float = field(converter=_curvature)
    ridge: float = field(converter=_ridge)
    norm: float = field(converter=_norm)
    residual: float = field(converter=_residual)
    removals: bool = True

    def __attrs_post_init__(self) -> None:
        if self.ridge > self.curvature:
            raise DomainError(
                f"RidgeBounds.ridge = {self.ridge!r} exceeds curvature = {self.curvature!r}, "
                "but X'X + ridge I has no eigenvalue below the ridge; pass curvature=ridge or more"
            )

    def leverage(self) -> float:
        """Return the largest leverage, at the smaller data set; infinite if nothing bounds it."""
        least = self.least()
        return up(self.norm * self.norm / least, 4) if least > 0 else math.inf

    def least(self) -> float:
        """Return the least curvature of the smaller data set, which may be 0."""
        if not self.removals:
            return self.curvature
        return max(down(self.curvature - up(self.norm * self.norm, 2), 2), self.ridge)

    def gap(self, gamma: float, leverage: float) -> float:
        """Return the largest gap there."""
        grown = 1 + leverage if self.removals else 1.0
        return up(math.sqrt(gamma) * math.sqrt(leverage) * self.residual * grown, 16)


def worst_profile(epsilon: float, gamma: float, bounds: RidgeBounds) -> float:
    """Return the worst delta(epsilon) of all pairs, in both directions, from above.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.
    gamma
        Positive: the posterior's precision is ``gamma (X'X + ridge I)``.
    bounds
        Which pairs.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> worst_profile(2.0, gamma=1.0, bounds=bounds) < 1e-6
    True
    """
    epsilon, gamma = nonnegative("epsilon", epsilon), positive("gamma", gamma)
    return float(worst_curve(np.asarray(epsilon), gamma, bounds))


def worst_curve(epsilons: Array, gamma: float, bounds: RidgeBounds) -> Array:
    """Return `worst_profile` at many epsilons at once, none of them negative."""
    m = bounds.leverage()
    gap = bounds.gap(gamma, m)
    if not (m <= quadratic.LARGEST and gap <= quadratic.LARGEST):
        return np.ones(np.shape(epsilons))
    if bounds.removals:
        return quadratic.profile(epsilons, m, gap)
    far = up(gap * math.sqrt(1 + m), 4)
    end = up(math.sqrt(gamma) * bounds.residual, 4)
    low = 2 * up(epsilons) <= down(end * end * (1 + m - m * m) / (1 + m) ** 2, 16)
    mid = gap if end <= 1 else up(gap * math.sqrt((1 + m) / (1 + min(m, _GOLDEN))), 8)
    removed = quadratic.removed(epsilons, m, mid)
    added = quadratic.added(epsilons, m, np.where(low | (end <= 1), gap, far))
    return np.maximum(removed, added)


def worst_epsilon(delta: float, gamma: float, bounds: RidgeBounds) -> float:
    """Return an epsilon that holds at ``delta`` for all pairs, in both directions.

    The least, but for additions of a large leverage or a large epsilon, where it is above it.
    Infinite where nothing bounds the leverage, or delta is 0.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> warm, cold = (worst_epsilon(1e-6, gamma, bounds) for gamma in (0.1, 1.0))
    >>> warm < cold
    True
    """
    delta, gamma = probability("delta", delta), positive("gamma", gamma)
    m = bounds.leverage()
    gap = bounds.gap(gamma, m)
    if bounds.removals or math.isinf(m):
        return float(quadratic.epsilon(delta, m, gap)) if gap < math.inf else math.inf
    low, high = 0.0, float(quadratic.epsilon(delta, m, up(gap * math.sqrt(1 + m), 4)))
    for _ in range(70 if math.isfinite(high) else 0):
        middle = (low + high) / 2
        if worst_profile(middle, gamma, bounds) <= delta:
            high = middle
        else:
            low = middle
    return high


def largest_gamma(epsilon: float, delta: float, bounds: RidgeBounds) -> float:
    """Return the largest gamma at which every pair is (epsilon, delta)-close, from below.

    What is returned has been checked. It is 0 where no gamma will do: the leverage alone then
    costs more, as it always does at ``delta = 0``; more curvature (a larger ridge) helps.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(largest_gamma(0.5, 1e-6 / 3, bounds), 4)
    0.2346
    """
    epsilon, delta = nonnegative("epsilon", epsilon), probability("delta", delta)

    def holds(gamma: float) -> bool:
        return worst_profile(epsilon, gamma, bounds) <= delta

    least, step = 1e-290, 2.0**16
    if not holds(least):
        return 0.0
    low = 1.0
    while not holds(low):
        low = max(low / step, least)
    high = low * step
    while high < 1e290 and holds(high):
        low, high = high, high * step
    while high > low * (1 + 1e-12):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
