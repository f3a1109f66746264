r"""How far one row moves the minimizer of a regularised risk, from curvature at one point.

*The identity.* Let F be the sum of losses without a row z and a ridge, ``F + l`` that with it,
``w`` and ``v`` their minimizers. As ``grad F(w) = 0`` and ``grad F(v) = -grad l(v)``, the mean
value theorem gives

``w - v = H^-1 grad l(v)``,  ``H = int_0^1 F''(v + t (w - v)) dt``,

and with the row in the Hessian ``w - v = H_+^-1 grad l(w)``, ``H_+`` the same mean of ``F'' + l''``
(Wang 2019, Lemma 17, where the second is printed with a minus).

*The bound.* The curvature at one point alone bounds no movement: it may be less on the way. A loss
of one score is *generalised self-concordant* if ``|f'''| <= k f''`` (Bach 2010; k = 1 for the
logistic loss). With rows in the unit ball the Hessian of the losses at ``u + d`` is then at least
``e^{-k |d|}`` times that at u. Let u be any point, ``l`` at most the least eigenvalue of the sum of
the rows' second derivatives there, g at least the norm of the gradient of F there (the ridge's
included), and L the Lipschitz constant.

**Theorem.** *Where l and g are right for both of two neighbours that differ in one row, their
minimizers are at most* ``L / (ridge + l e^{-k r})`` *apart, r the solution of*
``ridge r + l (1 - e^{-k r}) / k = g``.

Proof. Let F be of the one or the other, w its minimizer, ``s = |w - u|``. The monotonicity of the
gradient along the segment from u to w is

``-(w - u)'grad F(u) = int (w - u)'F''(u + t (w - u))(w - u) dt >= s^2 int_0^1 ridge +
l e^{-k t s} dt``,

so ``ridge s + l (1 - e^{-k s}) / k <= g``: both minimizers are within r of u, and so is the segment
between them. On it the Hessian of the losses of the smaller data set is at least ``l e^{-k r}``. By
the identity ``|w - v| <= |grad l(v)| / (ridge + l e^{-k r})``. QED

For quadratic losses k = 0, and r does not matter. The bound falls with l and grows with g.

References
----------
Wang 2019 (per-instance privacy); Bach 2010, Prop. 1 (generalised self-concordance); the theorem is
our own. Releasing the curvature at the minimizer itself, as is often proposed, has no bounded
sensitivity, and its inverse bounds nothing: see the errata, "Local sensitivity from the Hessian at
one point".
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from accountants.errors import DomainError, nonnegative, positive
from accountants.numerics import Array, down, up
from accountants.secret import Secret
from adaptive_dp.data import Examples
from adaptive_dp.erm import Loss, Problem, losses, minimize
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.handles import unaliased
from adaptive_dp.graph.mechanism import noise_parameter
from adaptive_dp.instance.following import InstanceGaussian, check_bound
from adaptive_dp.instance.ridge import checked_table, relative_rounding
from adaptive_dp.mechanisms.objective_perturbation import Problem as ExactProblem
from adaptive_dp.mechanisms.objective_perturbation import (
    loss_name,
    valid_loss,
)
from adaptive_dp.mechanisms.objective_perturbation import minimizer as exact_minimizer
from adaptive_dp.mechanisms.released_bounds import LowerBound, UpperBound
from adaptive_dp.queries.gradients import GradientNorm, LeastCurvature

# -----------------------------------------------------------------------------
# The identity and the bound, as functions.


def self_concordance(loss: Loss) -> float:
    """Return k with ``|f'''| <= k f''`` at every score; refuse a loss that has none.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> self_concordance(dp.Logistic())
    1.0
    """
    constant = loss.self_concordance
    if constant is None:
        raise DeclarationError(
            f"{losses.loss_string(loss)} is not generalised self-concordant, as far as is known: "
            "nothing bounds its curvature beside a point. Logistic() is; a loss of your own says "
            "so by self_concordance"
        )
    return constant


def minimizer_sensitivity(
    loss: Loss, *, ridge: float, curvature: float, gradient: float = 0.0
) -> float:
    """Return how far one row moves the minimizer, from bounds at any one point: the theorem above.

    Rounded up. Rows have norm at most 1.

    Parameters
    ----------
    loss
        Of one score, convex and generalised self-concordant.
    ridge
        Positive.
    curvature
        Non-negative: at most the least eigenvalue of the sum of the rows' second derivatives at the
        point, of both data sets.
    gradient
        At least the gradient's norm there, the ridge's included, of both data sets. At the
        minimizer of one of the two that is L, for the other's sake.

    Examples
    --------
    Ten thousand rows of curvature 400, whose minimizer is near: the ridge alone bounds the
    movement by 1.

    >>> import adaptive_dp as dp
    >>> round(minimizer_sensitivity(dp.Logistic(), ridge=1.0, curvature=400.0, gradient=20.0), 5)
    0.00262
    """
    k, limits = self_concordance(loss), loss.constants()
    ridge, least = positive("ridge", ridge), nonnegative("curvature", curvature)
    reach = _reach(k, ridge, least, nonnegative("gradient", gradient))
    return up(limits.lipschitz / (ridge + least * math.exp(-k * reach) * (1 - 1e-12)), 16)


def _reach(k: float, ridge: float, curvature: float, gradient: float) -> float:
    """Return r of the theorem, from above: the left side there was at least the gradient."""

    def rise(s: float) -> float:
        # rounded down by more than its rounding
        bend = -math.expm1(-k * s) / k if k else s
        return (ridge * s + curvature * bend) * (1 - 1e-12)

    low, high = 0.0, gradient / ridge * (1 + 1e-9)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rise(middle) >= gradient else (middle, high)
        if high - low <= 1e-12 * high:
            break
    return high


@frozen(eq=False, repr=False)
class StabilityIdentity:
    """Both minimizers, and what their difference is by the identity of the module.

    Parameters
    ----------
    without, full
        The minimizers without and with the row, shape (p,).
    by_full, by_without
        ``H^-1 grad l(full)`` and ``H_+^-1 grad l(without)``, each of which is
        ``without - full``, shape (p,).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> moved = stability_identity(
    ...     [[0.6, 0.0]], [1.0], row=[0.0, 0.8], label=1.0, loss=dp.Logistic(), ridge=0.5
    ... )
    >>> moved, (moved.without - moved.full).round(3).tolist() == moved.by_full.round(3).tolist()
    (<private>, True)
    """

    without: Array
    full: Array
    by_full: Array
    by_without: Array

    def __repr__(self) -> str:
        return "<private>"


def stability_identity(
    x: ArrayLike, y: ArrayLike, *, row: ArrayLike, label: float, loss: Loss, ridge: float
) -> StabilityIdentity:
    """Return how the minimizer moves when a row is added, computed and by the identity.

    Private: functions of the data. Not rounded outward; to study an influence, not to prove one.

    Parameters
    ----------
    x, y
        The other rows, of norm at most 1, shapes (n, p) and (n,).
    row, label
        The row that is added, shape (p,), and its label.
    loss
        Of one score, with second derivatives.
    ridge
        Positive.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> x, y = np.array([[0.6, 0.0], [0.0, 0.8], [0.5, -0.5]]), np.array([1.0, -1.0, 1.0])
    >>> moved = stability_identity(
    ...     x, y, row=[0.3, 0.9], label=1.0, loss=dp.Logistic(), ridge=0.5
    ... )
    >>> difference = moved.without - moved.full
    >>> np.allclose(difference, moved.by_full), np.allclose(difference, moved.by_without)
    (True, True)
    """
    ridge = positive("ridge", ridge)
    a, b = checked_table(x, y)
    more = np.asarray(row, dtype=np.float64)
    if more.shape != (a.shape[1],) or not np.isfinite(more).all():
        raise DataError(f"row must be {a.shape[1]} finite numbers, one for each column of x")
    a2, b2 = np.vstack([a, more]), np.append(b, float(label))

    def fitted(rows: Array, labels: Array) -> Array:
        problem = Problem(rows, labels, loss, row_norm=1.0, ridge=ridge, radius=None)
        return minimize(problem, 1e-12 * max(1, len(rows)) * loss.constants().lipschitz).w

    without, full = fitted(a, b), fitted(a2, b2)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    points = full + np.outer((nodes + 1) / 2, without - full)

    def mean(rows: Array, labels: Array) -> Array:
        total = ridge * np.eye(a.shape[1])
        for point, weight in zip(points, weights / 2, strict=True):
            bend = loss.second((rows @ point)[None], labels)[0, 0]
            total += weight * (rows * bend[:, None]).T @ rows
        return total

    def gradient(at: Array) -> Array:
        return np.asarray(loss.slope(np.array([[more @ at]]), b2[-1:])[0, 0] * more)

    return StabilityIdentity(
        without,
        full,
        np.asarray(np.linalg.solve(mean(a, b), gradient(full)), dtype=np.float64),
        np.asarray(np.linalg.solve(mean(a2, b2), gradient(without)), dtype=np.float64),
    )


def minimizer_mus(
    x: ArrayLike, y: ArrayLike, theta: ArrayLike, *, loss: Loss, ridge: float, sigma: float
) -> Secret[Array]:
    """Return a bound of every record's mu by output perturbation of a generalised linear model.

    The mechanism releases ``theta + N(0, sigma^2 I)``, theta the minimizer of the sum of losses and
    the ridge. Without record i, of gradient ``g_i`` at theta, what is left has there the gradient
    ``-g_i`` and a curvature ``l_i``; so the minimizer moves by at most the r of the theorem with
    these two, and mu is at most r over sigma. For quadratic losses compare `output_mus`.

    Parameters
    ----------
    x, y
        Records as rows, of norm at most 1, shapes (n, p) and (n,).
    theta
        The minimizer with all records, shape (p,).
    loss
        Of one score, convex and generalised self-concordant.
    ridge, sigma
        Positive.

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [1.0, -1.0, 1.0]
    >>> mus = minimizer_mus(
    ...     x, y, [0.4276, -0.1038], loss=dp.Logistic(), ridge=1.0, sigma=1.0
    ... )
    >>> mus, bool((mus.reveal() < 1).all())
    (<private>, True)
    """
    ridge, sigma, k = positive("ridge", ridge), positive("sigma", sigma), self_concordance(loss)
    a, b = checked_table(x, y)
    at = np.asarray(theta, dtype=np.float64)
    if at.shape != (a.shape[1],) or not np.isfinite(at).all():
        raise DataError(f"theta must be {a.shape[1]} finite numbers, one for each column of x")
    with np.errstate(all="ignore"):
        z = (a @ at)[None]
        slope, bend = loss.slope(z, b)[0], loss.second(z, b)[0, 0]
        length = np.linalg.norm(a, axis=1)
        if len(a) and float(length.max()) > 1 + 1e-12:
            raise DomainError("minimizer_mus needs rows of norm at most 1; divide x by the largest")
        hessian = (a * bend[:, None]).T @ a
        left = [
            float(np.linalg.eigvalsh(hessian - f * np.outer(v, v))[0])
            for f, v in zip(bend, a, strict=True)
        ]
    # the rounding of the eigenvalues, in units of the trace, and that of the slopes
    error = relative_rounding(a, 1.0) * float(np.trace(hessian)) + 1e-300
    # theta is the minimizer only nearly: its residual is added to each record's gradient
    residual = float(np.linalg.norm((a * slope[:, None]).sum(axis=0) + ridge * at))
    residual += error * (1 + float(np.abs(slope).sum()))
    gradients = up(np.abs(slope) * length, 64) + residual
    moved = [
        _reach(k, ridge, max(0.0, down(least - error, 8)), float(g))
        + residual / ridge  # from theta to the minimizer itself
        for least, g in zip(left, gradients, strict=True)
    ]
    return Secret(up(np.array(moved) / sigma, 16))


# -----------------------------------------------------------------------------
# The minimizer with noise for what released bounds say of it.


TOLERANCE = 2.0**-20
"""The gradient's norm at the computed point is at most this part of L."""


class PerturbedMinimizer(InstanceGaussian):
    r"""Release a risk's minimizer with noise for a released bound of its local sensitivity, or NaN.

    The minimizer is that of ``sum_i f(x_i'w, y_i) + (ridge / 2) |w|^2``, rows divided by their
    declared radius R into the unit ball; released are the coefficients of the rows as they are. Let
    u be a released point, such as the coefficients of a `PerturbedObjective`. Given are u, a
    `LowerBound` of the least curvature there (`LabeledRows.least_curvature`) and an `UpperBound` of
    the gradient's norm there (`LabeledRows.gradient_norm`). Noise is ``N(0, sigma^2 I)`` at the
    sigma for which `minimizer_sensitivity` at these bounds costs mu.

    Privacy: at most the loss of a Gaussian of ``mu`` for each row that comes or goes, where the
    bounds are right, by the theorem of `adaptive_dp.instance.minimizers`; see `InstanceGaussian`.
    Both bounds have a bounded sensitivity because u is fixed: at the minimizer itself they would
    not.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter of the promise, between neighbours of one row.
    ridge
        Positive.
    of
        The loss f of one score, generalised self-concordant, such as ``Logistic()``.

    Notes
    -----
    Noise: that of `Gaussian`, exact. The minimizer is computed to a gradient of 2^-20 L, which is
    proven, and rounded to floats; both are in the distance. How long the search takes does depend
    on the data.

    References
    ----------
    Redberg, Zhu and Wang 2023 (from per-instance to differential privacy); the bound is our own.

    See Also
    --------
    PerturbedObjective : no bound is needed, and usually less noise: it follows the curvature of
        each direction by itself.
    PerturbedCoefficients : squared losses.

    Examples
    --------
    >>> PerturbedMinimizer(mu=0.25, ridge=1.0, of="Logistic()").loss(distance=1)
    GaussianBound(mu=0.25)
    """

    input_type: ClassVar[type] = Examples
    released_inputs: ClassVar[int] = 3
    theorem: ClassVar[str] = "local sensitivity of a minimizer: adaptive_dp.instance.minimizers"

    ridge: float = noise_parameter("lambda")
    of: str = field(converter=loss_name, validator=valid_loss)

    def sensitivity(self, width: int, *given: Any) -> float:
        """Return the bound for rows in the unit ball, computing and rounding included."""
        point, curvature, gradient = given
        loss = losses.read(self.of)
        limits = loss.constants()
        least = max(0.0, float(curvature)) * limits.smoothness if curvature == curvature else 0.0
        # the computed point is the minimizer of F less a linear term of norm 2^-20 L
        # NaN makes the comparison false
        if not (float(gradient) < 1e9 and least < 1e15):
            return math.inf
        slope = (max(0.0, float(gradient)) + TOLERANCE) * limits.lipschitz
        moved = minimizer_sensitivity(
            loss, ridge=float(self.ridge), curvature=max(0.0, down(least, 8)), gradient=up(slope, 8)
        )
        # both minimizers are within slope / ridge of the point
        size = float(np.linalg.norm(np.asarray(point, dtype=np.float64))) + slope / self.ridge
        # both computed points are within 2^-20 of this of their minimizers, and then rounded
        return up(moved * (1 + 2 * TOLERANCE), 8) + math.sqrt(width) * size * 2.0**-50

    def level(self, value: Any, *given: Any) -> float | None:
        """Return sigma for rows as they are; None where nothing is bounded."""
        # in the unit ball the point is R times as long
        inside = (np.asarray(given[0], dtype=np.float64) * value.radius, *given[1:])
        sigma = super().level(value, *inside)
        return None if sigma is None else sigma / value.radius

    def center(self, value: Examples, *given: Any) -> NDArray[Any]:
        """Return the minimizer's coefficients for rows as they are."""
        loss = losses.read(self.of)
        problem = ExactProblem(value, loss, float(self.ridge), [Fraction(0)] * value.width)
        w = exact_minimizer(problem, TOLERANCE * loss.constants().lipschitz)
        return np.array([float(v) for v in w]) / value.radius

    def premises(self, release: Any) -> None:
        """Refuse bounds of other rows, of another loss or ridge, or at another point."""
        query, point, curvature, gradient = release.inputs
        domain, loss = query.domain, losses.read(self.of)
        self_concordance(loss)
        if loss.labels != domain.labels or loss.weighted != domain.weighted:
            raise DeclarationError(
                f"PerturbedMinimizer: {self.of} reads labels of kind {loss.labels!r}"
                f"{' with weights' if loss.weighted else ''}, the examples have {domain.labels!r}"
                f"{' with weights' if domain.weighted else ''}"
            )
        check_bound("PerturbedMinimizer", query, curvature, LowerBound, LeastCurvature)
        check_bound("PerturbedMinimizer", query, gradient, UpperBound, GradientNorm)
        least, norm = (unaliased(each.inputs[0]) for each in (curvature, gradient))
        asked: list[Any] = [least.operation, norm.operation]
        same = all(each.loss == self.of for each in asked)
        # the very same point: an equal one could be another release
        at = all(unaliased(each.inputs[1]) is unaliased(point) for each in (least, norm))
        if not (same and at and asked[1].ridge == self.ridge):
            raise DeclarationError(
                f"PerturbedMinimizer({self.of}, ridge={self.ridge!r}) is given a point, a "
                "LowerBound of least_curvature and an UpperBound of gradient_norm for this loss "
                "and ridge, both at that very point"
            )
