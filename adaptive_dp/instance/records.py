"""The loss of each record by one release: sums, ridge posteriors, perturbed minimizers.

First the worst loss over all records that bounds of a data set allow; then, for each mechanism,
the loss of every record of the data at hand, which is private.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike

from accountants import special
from accountants.errors import DomainError, checked, nonnegative, positive, probability
from accountants.numerics import Array, down, up
from accountants.secret import Secret
from adaptive_dp.graph.errors import DataError
from adaptive_dp.instance.plan import gaussian_epsilons
from adaptive_dp.instance.ridge import (
    LARGEST,
    addition_profile,
    checked_table,
    leave_one_out,
    posterior_epsilon,
    posterior_profile,
    relative_rounding,
    removal_profile,
)

# -----------------------------------------------------------------------------
# The ridge posterior's worst loss over all records that may come or go, and its calibration.
#
# The mechanism samples ``N(theta, (1/gamma) H^-1)``, ``H = X'X + ridge I``, ``theta = H^-1 X'y``,
# with a public gamma and ridge. Let Z be a data set of which two bounds are known:
#
# ``curvature <= lam_min(H)``, and ``residual >= |y - x'theta|`` for every record with
# ``|x| <= norm`` and ``|y| <= B_y``: with ``|theta| <= T``, ``residual = B_y + norm T``.
#
# *A record is added.* Its leverage is ``m = x'H^-1 x <= norm^2 / curvature =: M`` and its gap
# ``g = sqrt(gamma m) |e|`` with ``|e| <= residual``. *A record is removed.* What is left has
# ``H - x x'``, which is at least ``max(curvature - norm^2, ridge) I``. So the leverage at what is
# left, m with ``m / (1 + m) = x'H^-1 x``, is at most ``N = norm^2 / max(curvature - norm^2,
# ridge)``, and the prediction error there is ``(1 + m) |e|``, ``|e| <= residual`` the error at Z.
#
# By the order of pairs (see `adaptive_dp.instance.ridge`), whose invariant is
# ``u = E / sqrt(1 + m)``, ``E = g / sqrt(m)``:
#
# * Removals have ``u = sqrt(gamma) |e| sqrt(1 + m)``, which grows with m and ``|e|``; so the corner
#   ``(N, sqrt(gamma) (1 + N) residual)`` is the worst of them. It is above every addition too,
#   since ``N >= M`` and ``sqrt(1 + N) residual >= |e| / sqrt(1 + m)``. One pair bounds all losses.
# * Additions alone have ``E <= sqrt(gamma) residual =: F``. At equal E the loss grows with m where
#   ``r (1 + m) >= E m tanh(E r / m)``, r the end of the interval of R: the sign of the derivative
#   of both profiles. Since ``tanh(t) <= min(1, t)``, that is so (a) for ``E^2 <= 1 + m``; (b) for
#   the profile of what is removed, where ``r^2 >= E^2 / (1 + m)``, up to ``m = (1 + sqrt 5) / 2``;
#   (c) for that of what is added, where ``r^2 >= E^2 / (1 + m) - 2 epsilon``, as long as
#   ``2 epsilon <= F^2 (1 + M - M^2) / (1 + M)^2``. Then the corner (M, F) is the worst. Elsewhere,
#   by the invariant, ``(M, F sqrt(1 + M))`` bounds all, and ``(M, F sqrt((1 + M) / (1 + k)))``
#   all of a leverage of k or more.
#
# Additions suffice where both bounds are known of the smaller of two data sets, since the loss of a
# pair holds in both directions. Where they are known of the data set at hand, which may be the
# larger, removals must be covered: without them, one record alone against none exceeds its delta
# twentyfold (Redberg, Zhu and Wang 2023 take additions only).
#
# References
# ----------
# Wang 2019, Remark 11, whose constants are too small; Dimitrakakis et al. 2017 (posterior
# sampling). The two corners are derived here.


_GOLDEN = 1.618  # below (1 + sqrt 5) / 2


@frozen
class RidgeBounds:
    """Public bounds of a ridge regression's data set, and of the records that may come or go.

    Parameters
    ----------
    curvature
        A positive lower bound of the smallest eigenvalue of ``X'X + ridge I``.
    ridge
        Non-negative, at most ``curvature``: the curvature without any records.
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

    curvature: float = field(validator=checked(positive))
    ridge: float = field(validator=checked(nonnegative))
    norm: float = field(validator=checked(positive))
    residual: float = field(validator=checked(nonnegative))
    removals: bool = True

    def __attrs_post_init__(self) -> None:
        if self.ridge > self.curvature:
            raise DomainError(
                f"RidgeBounds.ridge = {self.ridge!r} exceeds curvature = {self.curvature!r}, "
                "but X'X + ridge I has no eigenvalue below the ridge; pass curvature=ridge or more"
            )

    def leverage(self) -> float:
        """Return the largest leverage, at the smaller data set; infinite if nothing bounds it."""
        curvature = self.least_curvature()
        return up(self.norm * self.norm / curvature, 4) if curvature > 0 else math.inf

    def least_curvature(self) -> float:
        """Return the least curvature of the smaller data set, which may be 0."""
        if not self.removals:
            return self.curvature
        return max(down(self.curvature - up(self.norm * self.norm, 2), 2), self.ridge)

    def gap(self, gamma: float, leverage: float) -> float:
        """Return the largest gap at this leverage, at the smaller data set."""
        # without a record that is removed its prediction error is (1 + m) times as large
        growth = 1 + leverage if self.removals else 1.0
        return up(math.sqrt(gamma) * math.sqrt(leverage) * self.residual * growth, 16)


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
    if not (m <= LARGEST and gap <= LARGEST):
        return np.ones(np.shape(epsilons))
    if bounds.removals:
        return posterior_profile(epsilons, m, gap)
    f = up(math.sqrt(gamma) * bounds.residual, 4)  # F: the largest E of an addition
    corner, anywhere = gap, up(gap * math.sqrt(1 + m), 4)
    # (a) F^2 <= 1: the corner (M, F) is the worst for both profiles
    # (b) the profile of what is removed: the corner up to m = 1.618, and the invariant beyond
    beyond = corner if f <= 1 else up(gap * math.sqrt((1 + m) / (1 + min(m, _GOLDEN))), 8)
    # (c) the profile of what is added: the corner for a small epsilon, else the invariant
    is_small = 2 * up(epsilons) <= down(f * f * (1 + m - m * m) / (1 + m) ** 2, 16)
    removal = removal_profile(epsilons, m, beyond)
    addition = addition_profile(epsilons, m, np.where(is_small | (f <= 1), corner, anywhere))
    return np.maximum(removal, addition)


def worst_epsilon(delta: float, gamma: float, bounds: RidgeBounds) -> float:
    """Return an epsilon that holds at ``delta`` for all pairs, in both directions.

    It is the least one, but for additions of a large leverage or a large epsilon, where it may be
    larger. Infinite where nothing bounds the leverage, or delta is 0.

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
        return float(posterior_epsilon(delta, m, gap)) if gap < math.inf else math.inf
    # the corner (M, F sqrt(1 + M)) bounds all additions, so `high` holds now, and throughout
    low, high = 0.0, float(posterior_epsilon(delta, m, up(gap * math.sqrt(1 + m), 4)))
    for _ in range(70 if math.isfinite(high) else 0):
        middle = (low + high) / 2
        holds = worst_profile(middle, gamma, bounds) <= delta
        low, high = (low, middle) if holds else (middle, high)
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

    # the profile grows in gamma; `low` holds throughout, so that what is returned was checked
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


# -----------------------------------------------------------------------------
# A Gaussian release of a clipped sum: the loss of each record.
#
# The mechanism releases ``sum_i x_i min(1, C / |x_i|) + N(0, sigma^2 I)``. With or without record i
# its mean moves by ``min(|x_i|, C)``, so the loss of the pair is exactly that of a Gaussian with
#
# ``mu_i = min(|x_i|_2, C) / sigma``  (Dong, Roth and Su 2022, Thm 1; Feldman and Zrnic 2021,
# sec. 4).


def clipped_sum_mus(x: ArrayLike, *, bound: float, sigma: float) -> Secret[Array]:
    """Return the mu of every record of the data.

    Parameters
    ----------
    x
        Records as rows, of shape (n, d), before they are clipped. One that holds anything but
        finite numbers counts as one at the bound.
    bound, sigma
        Positive: the bound of ``|x_i|_2`` and the noise's standard deviation on each coordinate.

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> mus = clipped_sum_mus([[3.0, 4.0], [0.0, 0.1]], bound=1.0, sigma=2.0)
    >>> mus, mus.reveal().round(3).tolist()
    (<private>, [0.5, 0.05])
    """
    bound, sigma = positive("bound", bound), positive("sigma", sigma)
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise DataError(f"x must be an array of rows, shape (n, d), got {rows.ndim} dimensions")
    with np.errstate(all="ignore"):
        # divided by the largest entry first, since squares would overflow
        largest = np.abs(rows).max(axis=1, initial=0.0)
        scaled = rows / np.where(largest > 0, largest, 1.0)[:, None]
        length = up(largest * np.sqrt((scaled * scaled).sum(axis=1)), rows.shape[1] + 4)
    # a row that holds NaN counts as one at the bound
    length = np.where(largest > 0, length, np.where(largest == 0, 0.0, np.inf))
    length = np.where(np.isnan(length), np.inf, length)
    return Secret(up(np.minimum(length, bound) / sigma, 2))


# -----------------------------------------------------------------------------
# Posterior sampling of a ridge regression: the loss of each record by one sample.
#
# The mechanism releases a sample of ``N(theta, (1/gamma) (X'X + ridge I)^-1)``; its density is
# proportional to ``exp(-(gamma/2) (|y - X t|^2 + ridge |t|^2))``. Gamma and ridge are public.
#
# References
# ----------
# Wang 2019, sec. 4, whose constants are too small; the exact loss is derived in
# `adaptive_dp.instance.ridge`.


def posterior_pairs(
    x: ArrayLike, y: ArrayLike, *, ridge: float, gamma: float
) -> tuple[Array, Array]:
    """Return each record's leverage and gap, those of the data set without it (private)."""
    gamma = positive("gamma", gamma)
    without = leave_one_out(x, y, ridge)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = up(np.sqrt(gamma) * np.sqrt(without.leverage) * without.error, 8)
    return without.leverage, np.where(np.isnan(gap), np.inf, gap)


def posterior_epsilons(
    x: ArrayLike, y: ArrayLike, *, ridge: float, gamma: float, delta: float
) -> Secret[Array]:
    """Return the exact epsilon at ``delta`` of every record of the data, in both directions.

    Parameters
    ----------
    x, y
        Records as rows of shapes (n, d) and (n,), as the mechanism reads them: clipped.
    ridge, gamma
        Positive.
    delta
        In (0, 1).

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> x, y = np.eye(2).repeat(50, axis=0), np.linspace(-1, 1, 100)
    >>> posterior_epsilons(x, y, ridge=1.0, gamma=0.1, delta=1e-6)
    <private>
    """
    return Secret(posterior_epsilon(delta, *posterior_pairs(x, y, ridge=ridge, gamma=gamma)))


# -----------------------------------------------------------------------------
# Ridge regression by output perturbation: the loss of each record by one release.
#
# The mechanism releases ``theta + N(0, sigma^2 I)``, ``theta = (X'X + ridge I)^-1 X'y``. With or
# without record i it is one Gaussian or another with the same covariance, so the loss of the pair
# is exactly that of `accountants.Gaussian` with
#
#     mu_i = |theta - theta_-i| / sigma
#          = |y_i - x_i' theta| |H^-1 x_i| / ((1 - x_i' H^-1 x_i) sigma).
#
# References
# ----------
# Wang 2019, sec. 3 and Fig. 1; its caption's ``(X'X + I)^-1 X y`` is ``(X'X + I)^-1 X'y``.


def output_mus(x: ArrayLike, y: ArrayLike, *, ridge: float, sigma: float) -> Secret[Array]:
    """Return the mu of every record of the data.

    Parameters
    ----------
    x, y
        Records as rows of shapes (n, d) and (n,), as the mechanism reads them: clipped.
    ridge, sigma
        Positive; sigma is the noise's standard deviation on each coordinate.

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.5, -0.5, 1.0]
    >>> mus = output_mus(x, y, ridge=1.0, sigma=1.0)
    >>> mus, mus.reveal().round(3).tolist()
    (<private>, [0.032, 0.351, 0.35])
    """
    return Secret(up(leave_one_out(x, y, ridge).influence / positive("sigma", sigma), 2))


def output_epsilons(
    x: ArrayLike, y: ArrayLike, *, ridge: float, sigma: float, delta: float
) -> Secret[Array]:
    """Return the exact epsilon at ``delta`` of every record of the data, in both directions.

    Examples
    --------
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.5, -0.5, 1.0]
    >>> output_epsilons(x, y, ridge=1.0, sigma=1.0, delta=1e-6).reveal().round(2).tolist()
    [0.12, 1.53, 1.53]
    """
    return Secret(gaussian_epsilons(output_mus(x, y, ridge=ridge, sigma=sigma).reveal(), delta))


def worst_output_mu(bounds: RidgeBounds, *, sigma: float) -> float:
    """Return the largest mu of any record that may come or go, given bounds of the data set.

    For an addition ``v = H^-1 x`` moves theta by ``v e / (1 + v'Hv)``, with ``v'Hv >= h |v|^2`` and
    ``|v| <= B / h``: at most ``residual B / (h + B^2)`` where ``B^2 <= h``, and ``residual / (2
    sqrt h)`` beyond. For a removal h is what is left of the curvature, and the error there is
    ``residual (1 + m)`` with ``1 + m = 1 + v'Hv``, so theta moves by ``residual |v|`` at most.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(worst_output_mu(bounds, sigma=1.0), 6)
    0.019802
    """
    sigma = positive("sigma", sigma)
    leverage, h = bounds.leverage(), bounds.least_curvature()
    if bounds.removals:
        return up(bounds.residual * (bounds.norm / h) / sigma, 8) if h > 0 else math.inf
    reach = bounds.norm / h / (1 + leverage) if leverage <= 1 else 0.5 / math.sqrt(h)
    return up(bounds.residual * reach / sigma, 16)


# -----------------------------------------------------------------------------
# Logistic regression by objective perturbation: the loss of each record by the released theta.
#
# The mechanism releases the minimizer of ``J(t) + b't``, ``b ~ N(0, sigma^2 I)``, where
# ``J(t) = sum_i log(1 + e^(-y_i x_i't)) + (ridge / 2) |t|^2``. Since ``b = -grad J(theta)``, theta
# has the density ``N(grad J(theta); 0, sigma^2 I) det(Hess J(theta))``. Without record i, of
# gradient g and curvature ``f = s (1 - s)`` in direction x, ``s = 1 / (1 + e^(y x'theta))``, the
# log of the densities' ratio is
#
# ``loss_i = -log(1 - f m) + |g|^2 / (2 sigma^2) - g'grad J / sigma^2``,
# ``m = x'(Hess J)^-1 x``, J and its derivatives at theta and with the record, ridge included.
#
# An equality, not a bound, as for every generalised linear model: the Hessian moves by one rank.
#
# References
# ----------
# Redberg and Wang 2021, Thm 3.2 (ex-post per-instance privacy of objective perturbation, as an
# inequality); the change of variables is in Chaudhuri, Monteleoni and Sarwate 2011, Thm 9.


def objective_losses(
    x: ArrayLike, y: ArrayLike, theta: ArrayLike, *, ridge: float, sigma: float
) -> Secret[Array]:
    """Return ``|log p_Z(theta) / p_{Z - i}(theta)|`` for every record i of the data Z.

    An ex-post loss: of the theta that was released, not of the mechanism before it ran. Rounding
    goes outward (see `adaptive_dp.instance.ridge.relative_rounding`).

    Parameters
    ----------
    x, y
        Records as rows of shape (n, d), and labels -1 or 1, as the mechanism reads them. A label
        counts by its sign, a row without finite numbers as zeros.
    theta
        Of shape (d,), what was released: the exact minimizer.
    ridge, sigma
        Positive; sigma is the standard deviation on each coordinate of b.

    Returns
    -------
    Secret
        Of n numbers in nats; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [1, -1, 1]
    >>> losses = objective_losses(x, y, theta=[0.5, 0.1], ridge=1.0, sigma=2.0)
    >>> losses, (np.ceil(1_000 * losses.reveal()) / 1_000).tolist()
    (<private>, [0.204, 0.193, 0.215])
    """
    ridge, sigma = positive("ridge", ridge), positive("sigma", sigma)
    a, label = checked_table(x, y)
    at = np.asarray(theta, dtype=np.float64)
    if at.shape != (a.shape[1],) or not np.isfinite(at).all():
        raise DataError(f"theta must be {a.shape[1]} finite numbers, one for each column of x")
    with np.errstate(all="ignore"):
        return Secret(_losses(a, np.sign(label), at, ridge, sigma))


def _losses(a: Array, label: Array, theta: Array, ridge: float, sigma: float) -> Array:
    """Return each record's loss, rounded up, from rows, labels and the released theta."""
    margin = label * (a @ theta)
    wrong = special.expit(-margin)
    curvature = np.where(label == 0, 0.0, wrong * special.expit(margin))
    gradients = -(label * wrong)[:, None] * a
    total = gradients.sum(axis=0) + ridge * theta  # grad J
    hessian = (a * curvature[:, None]).T @ a + ridge * np.eye(len(theta))
    if not np.isfinite(hessian).all():
        return np.full(len(a), np.inf)
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, ridge / 2)
    rounding = relative_rounding(a, float(values[-1] / values[0]))
    square = np.einsum("ij,ij->i", a, a)
    share = curvature * (((a @ vectors) ** 2) / values).sum(axis=1)  # f m
    # Hess J >= f x x' + ridge I, so f m is at most f |x|^2 / (f |x|^2 + ridge)
    share = np.minimum(share, up(curvature * square / (curvature * square + ridge), 8))
    # the margins' own rounding
    rounding *= 1 + float(np.sqrt(square.max(initial=0.0)) * np.linalg.norm(theta))
    norms, size = np.linalg.norm(gradients, axis=1), np.linalg.norm(gradients, axis=1).sum()
    size += ridge * np.linalg.norm(theta)
    loss = -np.log1p(-share) + norms**2 / (2 * sigma**2) - gradients @ total / sigma**2
    # each term's derivative times the relative error of what it is computed from
    slack = rounding * (share / (1 - share) + norms * (norms + size) / sigma**2)
    bound = up(np.abs(loss) + slack, 8)
    result: Array = np.where(np.isfinite(bound) & (rounding < 0.5), bound, np.inf)
    return result
