"""What minimizing a sum of losses with Gaussian noise in the objective costs.

Released is the minimizer theta of ``J(w) + b'w``, ``b ~ N(0, sigma^2 I)``, J a sum of rows' convex
losses of linear scores and a ridge, ``Hess J >= lam I``. A row has the gradient ``s x``, s
nondecreasing in ``x'w``, of norm at most L and of slope ``0 <= s' |x|^2 <= beta``. Put

``c = log(1 + beta / lam)``, ``m = L / sigma``, ``G(eps; m)`` the Gaussian's profile.

One row comes or goes
---------------------
Let D have the row that D' lacks, in units of sigma. As ``b = -grad J(theta)`` is a bijection, an
outcome theta is a b under D and a b' under D', and ``b' = b + s(theta) x``. They agree but along x:
with t and t' their coordinates there, ``t' = T(t) = t + r(t)``, ``|r| <= m``. All else held fixed,
``x'theta`` falls as t rises, so r falls; and with H = Hess J under D,
``T' = 1 - s' x'H^-1 x`` lies in ``[e^-c, 1]``, since ``H >= lam I + s' x x'``. So D' sees a normal
t', D sees T(t) of a normal t, and what remains has the same law in both. The log-ratios are

``log p_D / p_D' = t r + r^2/2 - log T'``, ``log p_D' / p_D = -t' r + r^2/2 + log T'``.

*D against D'.* If ``r(0) <= 0``, then ``t r + r^2/2 <= (m^2/2 - m t)_+``: for ``t >= 0`` r lies
in [-m, 0], for ``t < 0`` in [-m, m], and a convex function of r is largest at an end. If
``r(0) >= 0`` the same holds for -t. Which it is does not depend on t. So the log-ratio is at most
``c + (m^2/2 + m Z)_+``, Z normal: the hockey-stick is at most ``G(eps - c; m)`` for ``eps >= c``.

*D' against D.* ``r`` may have either sign at either end: the log-ratio is at most
``m^2/2 + m |Z|``, the hockey-stick at most ``2 G(eps; m)`` for ``eps >= m^2/2``.

So neither the determinant nor the absolute value is paid for twice: the known bound
``2 G(eps - c; m)`` pays for both in both directions.

Several rows
------------
Let k rows come or go, ``M = k L / sigma``, c now a bound of the determinants' log-ratio: k times
that of one, and that of one alone for a row exchanged for another (k = 2), as both determinants
lie within e^c above that of the rows in common. The shift of b is a sum of ``+-s_i x_i``, so the
log-ratio is at most ``c + M^2/2 + (M/k) sum |u_i'b|``, u_i unit vectors. By Hoelder its exponential
moments are largest where all u_i are one. The sum is the largest of ``|v'b|``,
``v = sum +-u_i``; for k = 2 there are two such v, orthogonal, with squares adding up to 4, and
``f(w) = P(Z > z / sqrt w)`` is convex on [0, 1] for ``z^2 >= 3``: so
``P(sum > 2 z) <= 2 f(0) + 2 f(1) = 2 P(Z > z)`` there. For more, ``P(sum > k z) <= 2 k P(Z > z)``.

The softmax of k classes
------------------------
A row's loss is the cross-entropy of the scores ``W x``, ``|x| <= 1``: of gradient ``g x'``,
``g = p - e_y``, p in the simplex, and Hessian ``A (x) x x'``, ``A = diag p - p p'``. B is a matrix
of independent N(0, sigma^2), and all of W has the ridge. Put ``m = 1 / sigma``, ``mu = sqrt 2 m``.

*The determinant.* With ``v = |x|^2 tr A = |x|^2 (1 - |p|^2)``, at most ``1 - 1/k``: as
``A (x) x x' = U U'`` and ``H >= lam I`` without the row, det H grows by at most
``det(I + |x|^2 A / lam)``. A has k - 1 eigenvalues beside 0, and log is concave: its logarithm is
at most ``D(v) = (k-1) log(1 + v / ((k-1) lam))``.

*The shift.* In units of sigma, ``t = B x / |x|`` is normal in R^k and moves by ``r = m |x| g``. As
``|g|^2 = 2 (1 - p_y) - tr A``,

``t'r + |r|^2/2 + D = sum_j p_j X_j + D(v) - K v``, ``X_j = m |x| (t_j - t_y) + m^2 |x|^2``,

with ``X_y = 0``, ``K = m^2/2 = mu^2/4``. An average is at most the largest, and X_j, convex in
``|x|``, is at most 0 or its value at ``|x| = 1``, of N(mu^2/2, mu^2). So this is at most
``c + max(0, max_j X_j)``, ``c = max_v D(v) - K v``: where p is a corner of the simplex, and the
shift is the whole mu, there is no curvature. For ``lam >= 4 / mu^2`` c is 0. A row's weight below 1
multiplies A once and ``|r|^2`` twice: then c is the largest D, without K.

*D against D'.* That is the log-ratio, under the law of B: the hockey-stick is at most
``E max_j (1 - e^{eps - c - X_j})_+ <= (k-1) G(eps - c; mu)``, eps >= c, j other than y.

*D' against D.* The log-ratio is ``-t'r + |r|^2/2 - log det``, now with t of D' normal, and the
determinant costs nothing: at most ``(k-1) G(eps; mu)``, eps >= 0. That is nearly attained: without
other rows, as lam goes to 0, the class of the least t has all of p. (y tells the slope's sign, so
no absolute value is paid for.)

*Several rows.* Of n rows the shift is ``S = sum +-m g_i x_i'``. Put ``M = n mu``. By Cauchy and
Schwarz ``|S|^2/2 <= (n m^2/2) sum |x_i|^2 |g_i|^2 <= M^2/2 - (n m^2/2) sum v_i``, and ``<S, B>`` is
at most ``mu sum_i Y_i``, Y_i the largest of 0 and k - 1 normals. So with ``K = M^2 / (4 n)`` and c
the sum over the rows that D alone has, the log-ratio is at most ``c + M^2/2 + (M/n) sum_i Y_i``.
As ``P(sum_i Y_i > n z) <= n (k-1) P(Z > z)``, the hockey-stick is at most
``n (k-1) G(eps - c; M)``, from ``c + M^2/2`` on.

An approximate minimum
----------------------
Where theta is hidden by a Gaussian release of its own, of ``mu = a <= m / 10`` whatever theta is,
both compose: with L' the loss of that release, N(a^2/2, a^2), the hockey-stick is at most
``E h(eps - L')``, h one of the bounds above where it holds, from some e0 on, and 1 elsewhere. As
``E G(eps - L'; m) = G(eps; M)``, ``M^2 = m^2 + a^2``, that is at most the bound at M and
``P(L' > eps - e0)``. For ``eps - e0 >= 40 a`` the latter is below 1e-200 of the former: it is at
most ``phi(x - a/2)``, ``x = (eps - e0) / a``, and G is at least ``phi(y) M / (4 (2 + y + M)^2)``
with ``y <= x / 10 + 6``; that settles ``a <= 10``. Above, ``M >= 100``. A bound that holds from
``c + m^2/2`` on is used from ``M^2/2 + 40 a`` above c on, where ``x - a/2 >= 40`` and
``y <= (x - a/2) / 10``; one that holds from c on is 1 but for 1e-200 until then. So nothing but m
and where the bounds begin changes.

References
----------
Own proofs, after Chaudhuri, Monteleoni and Sarwate 2011, Thm 9 (change of variables) and Kifer,
Smith and Thakurta 2012 (Gaussian noise). Redberg, Koskela and Wang 2023 give
``2 G(eps - c; m)`` for ``eps - c >= m^2/2``.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.definitions import gdp_log_profile
from accountants.errors import DomainError, integer, nonnegative, positive
from accountants.loss import PrivacyLoss
from accountants.numerics import UNIT, Array, up
from accountants.pair import Symmetric

_LARGEST = 1e3
_FARTHEST = -600.0
"""No crossing is searched where the log of delta is below this."""


def _mu(value: float) -> float:
    return positive("ObjectivePerturbation.mu", value)


def _determinant(value: float) -> float:
    return nonnegative("ObjectivePerturbation.determinant", value)


def _search(value: float) -> float:
    return nonnegative("ObjectivePerturbation.search", value)


def _rows(value: int) -> int:
    return integer("ObjectivePerturbation.rows", value)


def _classes(value: int) -> int:
    return integer("ObjectivePerturbation.classes", value)


@frozen(slots=False, cache_hash=True)
class ObjectivePerturbation(PrivacyLoss):
    """The exact minimizer of a linear model's objective with Gaussian noise; see the module.

    Parameters
    ----------
    mu
        ``rows * L / sigma``, from 1e-9 to 1e3: what the rows that differ move the gradient, in
        standard deviations of the noise.
    determinant
        A bound of the log-ratio of the Hessians' determinants, in nats: ``log(1 + beta/lam)`` for
        a row that comes or goes, or is exchanged for another.
    rows
        How many rows come or go; 2 for one that is exchanged.
    search
        The mu of the Gaussian noise that hides how near to the minimum a search came; 0 for the
        exact minimum, at most ``mu / 10``.
    classes
        1 for any convex loss of one score; k for the softmax of k classes, of which mu is
        ``rows * sqrt 2 / sigma`` and the determinant c.

    References
    ----------
    Own proofs, in the module's docstring, after Chaudhuri, Monteleoni and Sarwate 2011, Thm 9, and
    Kifer, Smith and Thakurta 2012.

    Examples
    --------
    >>> loss = ObjectivePerturbation(mu=0.2, determinant=0.1)
    >>> f"{loss.profile(1.0).upper:.3e}"
    '2.167e-07'
    """

    theorem: ClassVar[str] = (
        "objective perturbation: own proof, after Redberg, Koskela & Wang 2023; Chaudhuri, "
        "Monteleoni & Sarwate 2011, Thm 9"
    )

    mu_: float = field(alias="mu", converter=_mu)
    determinant: float = field(converter=_determinant)
    rows: int = field(default=1, converter=_rows)
    search: float = field(default=0.0, converter=_search)
    classes: int = field(default=1, converter=_classes)

    def __attrs_post_init__(self) -> None:
        if not (1e-9 <= self.mu_ <= _LARGEST and self.determinant <= _LARGEST):
            raise DomainError(
                "ObjectivePerturbation needs a mu from 1e-9 to 1e3 and a determinant of at most "
                f"1e3, got {self.mu_} and {self.determinant}; add noise or ridge"
            )
        if self.search > self.mu_ / 10:
            raise DomainError(
                f"ObjectivePerturbation.search must be at most mu / 10, got {self.search} and mu = "
                f"{self.mu_}; hide the search by more noise"
            )

    def __repr__(self) -> str:
        rows = f", rows={self.rows}" if self.rows > 1 else ""
        search = f", search={self.search!r}" if self.search else ""
        classes = f", classes={self.classes}" if self.classes > 1 else ""
        parameters = f"mu={self.mu_!r}, determinant={self.determinant!r}"
        return f"ObjectivePerturbation({parameters}{rows}{search}{classes})"

    def pair(self) -> ObjectivePair:
        """Return a pair that dominates both directions."""
        return self._pair

    @cached_property
    def _pair(self) -> ObjectivePair:
        m, c = self.mu_, self.determinant
        # where the search's loss is negligible (the module's last section)
        margin = 40 * self.search
        # a Gaussian release beside composes with the bound's Gaussian: M^2 = m^2 + a^2
        if self.search:
            m = up(math.hypot(m, self.search), 8)
        if self.rows > 1 or self.classes > 1:
            # k = 2: f is convex from z^2 = 3 on; more rows: a union bound over k rows
            factor, least = 2.0, math.sqrt(3) + 1e-9
            if self.rows > 2 or self.classes > 1:
                # over the rows and, of a softmax, over the other classes, in place of two signs
                factor = float(self.rows * (2 if self.classes == 1 else self.classes - 1))
                # z with factor * P(Z > z) < 1/2
                least = float(-special.ndtri(0.5 / factor)) + 1e-6
            return ObjectivePair(m, c, _bit(factor), up(c + m * (m / 2 + least) + margin, 16))
        # D' against D: 2 G(eps; m) holds from m^2/2 on; 0.7 m more keeps each tail below 1/2
        two_sided = m * (m / 2 + 0.7) + margin  # 2 P(Z > 0.7) < 1/2
        # where c + (m^2/2 + m Z)_+, the bound of D against D', overtakes 2 G(eps; m)
        switch = _crossing(m, c)
        if switch is None:
            return ObjectivePair(m, c, _bit(2.0), up(c + two_sided, 16))
        start = max(two_sided, c + margin)
        # no piece of ratio * G(eps; m) is left: the one-sided bound holds from the start
        if switch <= start:
            return ObjectivePair(
                m, c, _bit(1.0), up(max(switch, c + margin, m * m / 2 + margin), 16)
            )
        return ObjectivePair(m, c, _bit(1.0), up(start, 16), switch)

    def pure(self) -> None:
        """Return None: the likelihood ratio is unbounded."""

    def renyi(self, orders: Array) -> Array:
        """Return the larger of both directions' bounds.

        With ``k = alpha - 1``, for one row
        ``c + log(Phi(-m/2) + e^{k(k+1) m^2/2} Phi((k + 1/2) m)) / k`` and
        ``m^2/2 + log(2 e^{k^2 m^2/2} Phi(k m)) / k``; for several c and the latter together. Of a
        softmax the exponential of the largest of 0 and several normals X_j is at most
        ``1 + sum_j (e^{k X_j} - 1)_+``.
        """
        m, k = self.mu_, np.asarray(orders, dtype=np.float64) - 1
        with np.errstate(over="ignore", invalid="ignore"):
            square = k * m * m / 2
            logs = math.log(2) + special.log_ndtr(k * m)
            # D' against D: m^2/2 + m |Z|
            sided = m * m / 2 + square + (logs + 8 * UNIT) / k
            search = (k + 1) * self.search * self.search / 2
            if self.classes > 1:
                return _finite(up(self.determinant + self._of_classes(k) + search, 32))
            # several rows: one bound for both directions, the determinant and |Z| together
            if self.rows > 1:
                return _finite(up(self.determinant + sided + search, 32))
            grown = (k + 1) * k * m * m / 2 + special.log_ndtr((k + 0.5) * m)
            mixed = np.logaddexp(special.log_ndtr(-m / 2), grown)
            error = 32 * UNIT * (1 + np.abs(grown) + m * m)
            # D against D': c + (m^2/2 + m Z)_+
            mixed = self.determinant + (mixed + error) / k
            return _finite(up(np.maximum(mixed, sided) + search, 32))

    def _of_classes(self, k: Array) -> Array:
        """Return the divergence of a softmax's shift, without the determinant, at order k + 1.

        The bound of the sum over classes falls at first: up to about its least value, that is the
        bound, since divergences rise in the order.
        """
        trial = np.geomspace(1e-6, 1e6, 400) / self.mu_
        least = trial[min(int(np.argmin(self._over_classes(trial))) + 1, len(trial) - 1)]
        return self._over_classes(np.maximum(k, least))

    def _over_classes(self, k: Array) -> Array:
        m, others = self.mu_, self.classes - 1
        # one row: the largest of 0 and X_j = m^2/2 + m Z; several: m^2/2 and, by Hoelder, of m Z
        cut, mean = (m / 2, 0.0) if self.rows == 1 else (0.0, m * m / 2)
        # E e^{k X} over X > 0, and P(X > 0)
        grown = k * m * (cut + k * m / 2) + special.log_ndtr(k * m + cut)
        above = grown - special.log_ndtr(cut) + 32 * UNIT * (1 + np.abs(grown) + m * m)
        few = np.log1p(others * special.ndtr(cut) * np.expm1(np.minimum(above, 30.0)))
        many = np.logaddexp(0.0, math.log(others) + special.log_ndtr(cut) + above)
        logs = np.where(above < 30, few, many)
        return np.asarray(mean + (logs + 8 * UNIT * (1 + logs)) / k)

    def grouped(self, size: int) -> ObjectivePerturbation:
        """Return the loss of ``size`` times the rows: shifts and determinants add."""
        k = integer("group size", size)
        # the same value, without rounding its parameters up
        if k == 1:
            return self
        return ObjectivePerturbation(
            up(self.mu_ * k, 4),
            up(self.determinant * k, 2),
            self.rows * k,
            self.search * k,
            self.classes,
        )

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order losses of as many rows and classes by both parameters."""
        if not isinstance(other, ObjectivePerturbation) or (
            (self.rows, self.classes) != (other.rows, other.classes)
        ):
            return self == other
        # every bound of the module's docstring grows in mu, c and search
        more = self.mu_ >= other.mu_ and self.determinant >= other.determinant
        return more and self.search >= other.search


def _bit(factor: float) -> float:
    """Return the factor, with room for what is below 1e-200 of it."""
    return factor * (1 + 1e-15)


def _finite(curve: Array) -> Array:
    return np.where(np.isnan(curve), np.inf, curve)


def _crossing(m: float, c: float) -> float | None:
    """Return a loss from which on ``G(eps - c; m) >= 2 G(eps; m)``, or None where it is too far.

    The log of G is concave in eps, so the ratio rises.
    """

    def enough(epsilon: float) -> bool:
        # G(eps - c) rounded down and G(eps) rounded up: the crossing may only be too late
        far = gdp_log_profile(m, epsilon - c, -1)
        return far > _FARTHEST and far >= math.log(2) + gdp_log_profile(m, epsilon, 1) + 1e-15

    low = c
    # for c = 0 the ratio is 1 everywhere and never reaches 2
    if c == 0 or enough(low):
        return c or None
    high = c + m * m / 2 + m
    # the ratio rises: double until it suffices, then bisect
    while not enough(high):
        if gdp_log_profile(m, high - c, -1) <= _FARTHEST:
            return None
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    # the end that is known to be enough
    return high


@frozen
class ObjectivePair(Symmetric):
    """A symmetric pair; not tight.

    From the loss ``switch`` on its hockey-stick is ``factor * G(eps - c; m)``, c the determinant;
    between ``start`` and there ``ratio * G(eps; m)``, ratio such that both meet; between ``-start``
    and ``start``, in ``e^eps``, the chord. All are bounds of a convex function, and they meet, so
    what they make is one if the slopes rise: at switch, since ratio is at least ``factor``; at
    start, where the two tails must add up to at most 1.
    """

    mu: float
    determinant: float
    factor: float
    start: float
    switch: float | None = None

    def is_tight(self) -> bool:
        """Return False."""
        return False

    def tail_error(self) -> float:
        """Return ndtr's error, as for a Gaussian pair, and that of the ratio."""
        return 4e-13 + 2e-14 * (40 + self.mu) + (self._ratio()[1] if self.switch else 0.0)

    def _ratio(self) -> tuple[float, float]:
        """Return the ratio, and a bound of its relative error."""
        assert self.switch is not None
        m, near, far = self.mu, self.switch, self.switch - self.determinant
        # an interval of the log-ratio: its upper end is used, its width is the error
        low = gdp_log_profile(m, far, -1) - gdp_log_profile(m, near, 1)
        high = gdp_log_profile(m, far, 1) - gdp_log_profile(m, near, -1)
        return self.factor * math.exp(high), 2 * (high - low) + 1e-12

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails of the piece that the loss is in."""
        loss = np.asarray(loss, dtype=np.float64)
        # the pair is symmetric: the lower tails are the mirror image
        upper = self._beyond(np.maximum(loss, self.start))
        lower = self._beyond(np.maximum(-loss, self.start))
        p, q = self._middle
        # symmetry: P(L > l) = 1 - Q(L > -l), up to the atom at the ends
        high, low = loss >= self.start, loss < -self.start
        return (
            np.where(high, upper[0], np.where(low, 1 - lower[1], p)),
            np.where(high, upper[1], np.where(low, 1 - lower[0], q)),
        )

    @property
    def _middle(self) -> tuple[float, float]:
        """Return the chord's tails, ``(h + t)/(1 + t)`` and ``(1 - h)/(1 + t)``, t = e^start."""
        p, q = self._beyond(np.array([self.start]))
        # the hockey-stick at `start`, where the chord in t = e^eps ends
        level = float(p[0] - math.exp(self.start) * q[0]) if self.start < 700 else 0.0
        t = float(special.expit(self.start))
        return t + level * (1 - t), (1 - level) * float(special.expit(-self.start))

    def _beyond(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails above losses of at least ``start``."""
        shift, factor = np.full(loss.shape, self.determinant), np.full(loss.shape, self.factor)
        if self.switch is not None:
            near = loss < self.switch
            shift = np.where(near, 0.0, shift)
            factor = np.where(near, self._ratio()[0], factor)
        # under P the Gaussian's loss is N(mu^2/2, mu^2): x is that loss, standardized
        x = (loss - shift) / self.mu - self.mu / 2
        return (
            factor * special.ndtr(-x),
            factor * np.exp(-shift) * special.ndtr(-x - self.mu),
        )
