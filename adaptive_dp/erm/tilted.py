"""Tilted empirical risk: between the mean of the rows' losses and the largest of them."""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.erm.loss import ELEMENTARY, TINY, UNIT, Floats, above, exp, gamma
from adaptive_dp.erm.objective import Derived
from adaptive_dp.erm.problem import (
    Problem,
    blocks,
    curvature,
    length,
    scores,
    sum_error,
    weighted_row_sum,
)


@frozen(eq=False)
class Tilted(Derived[Problem]):
    """The tilted empirical risk, with a ridge: a soft maximum of the rows' losses.

    ``F(w) = (1/t) log((1/n) sum_i e^{t f_i(w)}) + (ridge / 2) |w|^2`` with t > 0.

    It is of the scale of a mean, not of a sum, and it is not a sum of rows' functions: it is one
    part, and stochastic steps are full gradients. Its ridge, the problem's, is that of F itself. As
    t falls to 0, F tends to the mean loss; as it grows, to the largest loss.

    Parameters
    ----------
    problem
        Its rows, loss, ridge and ball are F's; its `proven` must be 0.
    tilt
        t, positive and finite. A negative t, which reduces the weight of outliers, is refused: F is
        not convex then, and no bound here holds.

    Notes
    -----
    *Gradient*: ``sum p_i g_i + ridge w`` with weights ``p_i`` in proportion to ``e^{t f_i}``.

    *Smoothness*: its derivative is ``sum p_i H_i + t Cov_p(g) + ridge``, and a covariance of
    vectors of norm at most L is at most ``L^2``: ``beta + t L^2 + ridge``. The first two terms are
    positive semidefinite, so the ridge's strong convexity mu is kept.

    *Sensitivity of the minimizer.* Let data sets differ in row 1, let a <= f <= A on the set, and
    let w, w' minimize F, F'. By strong convexity ``mu |w - w'| <= |grad F(w') - grad F'(w')|``
    (add both first-order conditions, over the convex set). The ridge cancels. With G the weighted
    mean of the other rows' gradients at w' and p, p' the weight of row 1 in either,

        grad F - grad F' = p g + (1 - p) G - p' g' - (1 - p') G = p g - p' g' - (p - p') G,

    of norm at most ``(p + p' + |p - p'|) L = 2 L max(p, p')``. Each weight is at most
    ``1 / (1 + (n - 1) e^{-t (A - a)})``, since each other row's e^{t f} is at least
    ``e^{-t (A - a)}`` times that of row 1. So the minimizer moves by at most

        (2 L / mu) / (1 + (n - 1) e^{-t (A - a)}),

    which is 2L/(mu n) as t falls to 0, and never above ``(2L/mu) min(1, e^{t (A - a)} / n)``.
    For *replace-one* n is both sizes; so it is where *zero-out* puts a row's features to 0, which
    is a row too. Where zero-out takes the row's term out of the sum, and under *add/remove*,
    p' = 0 with n the size *with* the row (1/n adds a constant to F): the same bound. Under
    add/remove n is private, and `sensitivity` may be used with a public lower bound of
    the larger size alone. L is that of one row's loss. Own proof; Li, Beirami, Sanjabi and Smith
    2021 define the tilted risk.

    Examples
    --------
    >>> from adaptive_dp.erm.losses import Logistic
    >>> one = Problem(np.eye(2), np.ones(2), Logistic(), row_norm=1.0, ridge=1.0, radius=1.0)
    >>> Tilted(one, 2.0).gradient(np.zeros(2))
    array([-0.25, -0.25])
    """

    tilt: float = field()

    def __attrs_post_init__(self) -> None:
        """Refuse a tilt without a theorem, and a problem with no rows or `proven` convexity."""
        if not 0 < self.tilt < math.inf:
            raise ValueError(
                f"Tilted.tilt must be a positive finite number, got {self.tilt!r}: for a negative "
                "tilt the risk is not convex, and for 0 it is the mean (use Problem)"
            )
        if self.problem.proven:
            raise ValueError("Problem.proven is a sum's strong convexity: leave it 0 for Tilted")
        if not self.problem.parts:
            raise ValueError("Tilted needs at least one row: a mean of no losses is not defined")

    @property
    def parts(self) -> int:
        """1: F is not a sum of functions of single rows."""
        return 1

    @property
    def strong_convexity(self) -> float:
        """The ridge, rounded down: the sum's curvature is not a weighted mean's."""
        return max(0.0, math.nextafter(self.problem.ridge, -math.inf))

    @property
    def smoothness(self) -> float:
        """``beta R^2 + t L^2 + ridge``."""
        p = self.problem
        # a mean of second derivatives, each at most beta R^2
        beta = above(p.constants.smoothness * p.longest**2)
        return above(beta + above(self.tilt * p.row_lipschitz**2) + p.ridge)

    @property
    def lipschitz(self) -> float:
        """``L + ridge radius``."""
        p = self.problem
        return above(p.row_lipschitz + (p.ridge * p.span if p.ridge else 0.0))

    def rounding(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `gradient` at w."""
        return self.rounding_within(length(w))

    def rounding_within(self, reach: float) -> float:
        """Return an upper bound of the l2 error of `gradient` at any ``|w| <= reach``.

        It is at most ``2 L`` and the sum's rounding, as for any two weighted means.

        Notes
        -----
        A loss is off by ``df = L_z dz + `` its own computation, an exponent ``t (f_i - max f)`` by
        ``2 t df`` and three roundings of at most ``t |f|``, so that a weight is off by a factor of
        ``e^{+-2E}`` with E that and the exponential's error, the sum's and the quotient's: together
        by less than ``expm1(2E)``, in l1 norm.
        """
        p, t = self.problem, self.tilt
        n, longest = p.parts, p.longest
        if not reach < math.inf:
            return math.inf
        dz = above(gamma(p.x.shape[1] + 1) * reach * longest)  # of a score, as in `Problem`
        c = p.loss.constants(above(reach * longest + dz))
        own = p.loss.rounding(above(reach * longest + dz))
        largest = above(2 * c.lipschitz * longest)  # two means of gradients are at most 2 L apart
        size = max(abs(c.lowest), abs(c.highest))
        df = c.lipschitz * dz + own.value
        # E: exponent, exponential, sum and quotient of a weight
        e = 2 * t * df + 8 * UNIT * t * (size + df) + 2 * ELEMENTARY + 2 * gamma(n + 4)
        weights = math.expm1(2 * e) if e < 1 else math.inf  # in l1 norm, of weights that sum to 1
        slope = min(c.smoothness * dz if dz else 0.0, 2 * c.lipschitz) + own.slope
        summation = (sum_error(n, p.x.shape[1]) + 4 * UNIT) * (1 + min(weights, 2.0))
        total = longest * (
            c.lipschitz * (min(weights, 2.0) + summation) + slope * (1 + weights + summation)
        )
        ridge = 4 * UNIT * (largest + p.ridge * reach)
        return above(min(total, largest) + summation * largest + ridge) + TINY

    @property
    def sensitivity(self) -> float:
        """An upper bound of how far one row moves the minimizer, in l2 norm; see the notes."""
        p, c = self.problem, self.problem.constants
        if self.strong_convexity == 0:
            return math.inf
        return tilted_sensitivity(
            p.row_lipschitz, c.highest - c.lowest, self.tilt, self.strong_convexity, p.parts
        )

    def losses(self, w: Floats) -> Floats:
        """Return each row's loss, shape (n,)."""
        p = self.problem
        return p.loss.value(self._scores(w), p.y)

    def value(self, w: Floats) -> float:
        """Return F(w)."""
        f = self.losses(w)
        # shifted by the largest loss: no exponential overflows, and at least one is 1
        top = float(f.max())
        spread = math.log(float(np.exp(self.tilt * (f - top)).mean())) / self.tilt
        return top + spread + self.problem.ridge / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient of F at w, shape (k p,)."""
        p, z = self.problem, self._scores(w)
        f = p.loss.value(z, p.y)
        weights = np.exp(self.tilt * (f - f.max()))
        weights /= weights.sum()
        return np.asarray(
            weighted_row_sum(p.loss.slope(z, p.y) * weights, p.x).ravel() + p.ridge * w
        )

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the gradient, once for each time that the one part is chosen."""
        # there is one part, F itself
        return len(chosen) * self.gradient(w)

    def hessian(self, w: Floats) -> Floats:
        """Return ``sum p_i H_i + t Cov_p(g) + ridge``, shape (k p, k p)."""
        p, z = self.problem, self._scores(w)
        f = p.loss.value(z, p.y)
        weights = np.exp(self.tilt * (f - f.max()))
        weights /= weights.sum()
        slopes = p.loss.slope(z, p.y)
        mean = weighted_row_sum(slopes * weights, p.x).ravel()
        # t E_p[g g'], of which t E_p[g] E_p[g]' is subtracted below: together t Cov_p(g)
        spread = slopes[:, None] * slopes[None] * (self.tilt * weights)
        second = curvature(p.loss.second(z, p.y) * weights + spread, p.x)
        return second - self.tilt * np.outer(mean, mean) + p.ridge * np.eye(self.width)

    def _scores(self, w: Floats) -> Floats:
        p = self.problem
        z = np.empty((p.loss.outputs, p.parts))
        matrix = w.reshape(p.loss.outputs, -1)
        for some in blocks(p.x):
            z[:, some] = scores(matrix, p.x[some])
        return z


def tilted_sensitivity(
    lipschitz: float, spread: float, tilt: float, strong_convexity: float, rows: int
) -> float:
    """Return an upper bound of how far one of ``rows`` rows moves a tilted risk's minimizer.

    ``(2 L / mu) / (1 + (n - 1) e^{-t (A - a)})`` in l2 norm, rounded up: see the notes of `Tilted`.

    Parameters
    ----------
    lipschitz, spread
        Of one row's loss: L, and its largest value less its smallest.
    tilt, strong_convexity, rows
        t, mu and n of the notes of `Tilted`.
    """
    # the least weight of another row relative to this one's, rounded down
    least_weight = exp(-above(tilt * above(spread)))
    return above(2 * lipschitz / strong_convexity / (1 + (rows - 1) * least_weight * (1 - 1e-12)))
