"""Empirical risk of a linear model: the sum of its rows' losses, and a regularizer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.erm.loss import (
    TINY,
    UNIT,
    Constants,
    Floats,
    Loss,
    above,
    below,
    expected_labels,
    gamma,
    labels_are_valid,
    positive,
)
from adaptive_dp.erm.objective import Derived
from adaptive_dp.erm.sets import Ball, norm

# -----------------------------------------------------------------------------
# The two passes over the rows of a linear model: scores ``W x_i``, and sums ``sum_i s_i x_i'``.
#
# Rows are taken in blocks, so that a block is still in the processor's cache in the second pass,
# and so that rounding grows with the block's length plus the number of blocks, not their product.


def rows_a_block(width: int) -> int:
    """Return the number of rows of p features in a block: about 1 MiB, from 256 to 4096.

    Smaller blocks would be slow; larger ones would round sums of a million rows by more.
    """
    return min(4096, max(256, 2**17 // max(width, 1)))


def blocks(x: Floats) -> Iterator[slice]:
    """Yield the rows of x in slices."""
    step = rows_a_block(x.shape[1])
    for start in range(0, x.shape[0], step):
        yield slice(start, start + step)


def scores(matrix: Floats, x: Floats) -> Floats:
    """Return ``W x_i`` for each row, shape (k, n), contiguous."""
    return matrix @ x.T


def sum_error(rows: int, width: int) -> float:
    """Return g such that a blocked sum of ``s_i x_i'`` is off by at most g ``sum |s_i| |x_i|``.

    A block's n' products are added in any order, and blocks one after another to a first zero: no
    summand passes through more than n' + (number of blocks) roundings (Higham 2002, equation 3.5).
    Entry by entry the error is at most gamma ``sum_i |s_i| |x_i|'``, and norms of sums are at most
    sums of norms.
    """
    step = rows_a_block(width)
    return gamma(min(rows, step) + -(-rows // step) + 1)


def weighted_row_sum(slopes: Floats, x: Floats) -> Floats:
    """Return ``sum_i s_i x_i'``, shape (k, p), block by block."""
    total = np.zeros((slopes.shape[0], x.shape[1]))
    for block in blocks(x):
        total += slopes[:, block] @ x[block]
    return total


# -----------------------------------------------------------------------------
# Regularizers, which do not depend on the data.
#
# A regularizer is the same for neighbouring data sets, so it cancels wherever their gradients are
# compared: sensitivities contain the Lipschitz constant of the loss alone. A strength of lam for a
# *sum* of n losses is lam/n for their mean.


@frozen
class Ridge:
    """The ridge ``(strength / 2) |w|_2^2``: `strength`-strongly convex and `strength`-smooth.

    Examples
    --------
    >>> Ridge(2.0).value(np.array([3.0, 4.0]))
    25.0
    """

    strength: float = field(validator=positive)

    def value(self, w: Floats) -> float:
        """Return the penalty."""
        return self.strength / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        """Return ``strength w``."""
        return self.strength * w

    def prox(self, w: Floats, step: float) -> Floats:
        """Return the v of least ``step value(v) + |v - w|^2 / 2``."""
        return w / (1 + step * self.strength)


@frozen
class L1:
    """The l1 penalty ``strength |w|_1``: convex, not smooth.

    Examples
    --------
    >>> L1(1.0).prox(np.array([3.0, -0.5]), step=2.0)
    array([ 1., -0.])
    """

    strength: float = field(validator=positive)

    def value(self, w: Floats) -> float:
        """Return the penalty."""
        return self.strength * float(np.abs(w).sum())

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient, 0 where w is."""
        return self.strength * np.sign(w)

    def prox(self, w: Floats, step: float) -> Floats:
        """Return the v of least ``step value(v) + |v - w|^2 / 2``: soft thresholding."""
        return np.asarray(np.sign(w) * np.maximum(np.abs(w) - step * self.strength, 0.0))


# -----------------------------------------------------------------------------
# The empirical risk.


@frozen(eq=False)
class Problem:
    """The empirical risk of a linear model, with a ridge, on a ball or on all of R^p.

    ``F(w) = sum_i f(W x_i, y_i) + (ridge / 2) |w|^2``.

    The risk is the *sum* over rows: for the mean, everything is n times smaller, the ridge too.
    w is W of shape (k, p), flattened row by row; k is 1 but for the multinomial loss.

    Parameters
    ----------
    x
        Features, shape (n, p).
    y
        Labels, shape (n,), as the loss reads them; (n, 2) with the rows' weights (`Weighted`).
    loss
        Of one row.
    row_norm
        R, a declared upper bound of every ``|x_i|_2``, which is checked.
    ridge
        lam, in units of the sum; 0 for none.
    radius
        Of the l2 ball of w; None for no bound.
    proven
        A strong convexity of the sum of losses that the caller has proven, where it is more than
        the least eigenvalue of x'x says; the ridge adds to it.

    Raises
    ------
    ValueError
        If shapes, norms or labels are not as declared. The message holds no data.

    Examples
    --------
    >>> from adaptive_dp.erm.losses import Logistic
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> problem.gradient(np.zeros(2))
    array([-0.5,  0.5])
    """

    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    loss: Loss = field()
    row_norm: float = field(kw_only=True)
    ridge: float = field(default=0.0, kw_only=True)
    radius: float | None = field(default=None, kw_only=True)
    proven: float = field(default=0.0, kw_only=True)
    _largest: float = field(init=False, repr=False)
    _spectrum: list[tuple[float, float]] = field(init=False, repr=False, factory=list)

    def __attrs_post_init__(self) -> None:
        """Check the declarations; bound the largest eigenvalue of x'x."""
        shape = (len(self.x), 2) if self.loss.weighted else (len(self.x),)
        if self.x.ndim != 2 or self.y.shape != shape:
            raise ValueError(
                "Problem wants x of shape (n, p) and y of shape (n,), (n, 2) with weights"
            )
        if self.x.dtype != np.float64 or self.y.dtype != np.float64:
            raise ValueError("Problem wants x and y as float64; pass .astype(float)")
        for name, value, is_positive in (
            ("row_norm", self.row_norm, True),
            ("ridge", self.ridge, False),
            ("radius", self.radius if self.radius is not None else 1.0, True),
            ("proven", self.proven, False),
        ):
            # a sensitivity rests on a regularizer that is the same for neighbouring data
            if not isinstance(value, Real):
                raise ValueError(
                    f"Problem.{name} must be a number, which no data enter, got a "
                    f"{type(value).__name__}; compute it from public values"
                )
            if not (0 < value < math.inf or (value == 0 and not is_positive)):
                raise ValueError(
                    f"Problem.{name} must be a finite {'positive ' if is_positive else ''}number"
                    f"{'' if is_positive else ' of at least 0'}, got {value!r}"
                )
        if not labels_are_valid(self.loss, self.y):
            raise ValueError(
                f"a label is not {expected_labels(self.loss)}, which {type(self.loss).__name__} "
                "needs; clip or recode the labels"
            )
        object.__setattr__(self, "_largest", _largest_eigenvalue(self.x, self.row_norm))

    @property
    def width(self) -> int:
        """The number of parameters, k p."""
        return int(self.loss.outputs * self.x.shape[1])

    @property
    def parts(self) -> int:
        """The number of rows; each has an n-th of the ridge."""
        return len(self.x)

    @property
    def longest(self) -> float:
        """An upper bound of the rows' norms, the rounding of the check included."""
        return above(self.row_norm * (1 + 2 * gamma(self.x.shape[1] + 4)))

    @property
    def span(self) -> float:
        """An upper bound of the norms of points that `project` returns; infinite without a ball."""
        if self.radius is None:
            return math.inf
        return above(self.radius * (1 + 2 * gamma(self.width + 4)))

    @property
    def reach(self) -> float:
        """An upper bound of the l2 norm of a row's scores: ``|W x| <= |w| |x|``."""
        return above(self.span * self.longest)

    @property
    def constants(self) -> Constants:
        """The constants of a row's loss at every score within `reach`."""
        return self.loss.constants(self.reach)

    @property
    def row_lipschitz(self) -> float:
        """A Lipschitz constant of one row's loss, without the ridge: what sensitivities need."""
        return above(self.constants.lipschitz * self.longest)

    @property
    def spectrum(self) -> tuple[float, float]:
        """Bounds of the least and of the largest eigenvalue of x'x (private), rounded outward."""
        if not self._spectrum:  # once, and only where it is asked for
            self._spectrum.append(_eigenvalues(self.x, self._largest))
        return self._spectrum[0]

    @property
    def strong_convexity(self) -> float:
        """``ridge + c lambda``, c the loss's curvature, lambda the least eigenvalue of x'x.

        Rounded down; ``ridge + proven`` where that is more. It depends on the data: it is private,
        and how far a row moves the minimizer is bounded by the ridge alone.
        """
        curvature = self.constants.curvature
        losses = below(curvature * self.spectrum[0]) if curvature > 0 else 0.0
        return max(0.0, math.nextafter(self.ridge + max(self.proven, losses), -math.inf))

    @property
    def smoothness(self) -> float:
        """``beta lambda + ridge``, lambda the largest eigenvalue of x'x (private). Rounded up."""
        smoothness, largest = self.constants.smoothness, self.spectrum[1]
        return above(smoothness * largest + self.ridge if largest else self.ridge)

    @property
    def lipschitz(self) -> float:
        """``n L R + ridge radius``; infinite with a ridge and no ball."""
        penalty = 0.0 if self.ridge == 0 else self.ridge * self.span  # 0, not 0 * inf
        return above(self.parts * self.row_lipschitz + penalty) if self.parts else above(penalty)

    def rounding(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `gradient` at w."""
        return self.rounding_within(length(w))

    def rounding_within(self, reach: float) -> float:
        """Return an upper bound of the l2 error of `gradient` at any ``|w| <= reach``.

        Notes
        -----
        A computed score is off by ``dz <= gamma_p |w| |x|`` (Higham 2002, equation 3.5). The slope,
        of Lipschitz constant beta, is off by ``e = min(beta dz, 2 L)`` and by its own computation;
        where the loss has a kink its subgradient may be that of the other side, 2 L away. The sum
        over rows adds ``g n (L + e) R`` (`sum_error`), the ridge two roundings of what it adds.
        """
        if not reach < math.inf:
            return math.inf
        n, longest = self.parts, self.longest
        dz = above(gamma(self.x.shape[1] + 1) * reach * longest)
        c = self.loss.constants(above(reach * longest) + dz)
        by_score = above(c.smoothness * dz) if dz else 0.0
        # e, and the error of the slope's own computation
        slope = (
            min(by_score, 2 * c.lipschitz) + self.loss.rounding(above(reach * longest) + dz).slope
        )
        # n (L + e) R bounds the sum of |s_i| |x_i|
        total = n * longest * (c.lipschitz + slope)
        summation = sum_error(n, self.x.shape[1]) * total
        ridge = 2 * UNIT * (total * 1.001 + 2 * self.ridge * reach)
        return above(n * longest * slope + summation + ridge) + TINY if n else above(ridge) + TINY

    def value(self, w: Floats) -> float:
        """Return F(w)."""
        matrix = w.reshape(self.loss.outputs, -1)
        total = 0.0
        for block in blocks(self.x):
            z = scores(matrix, self.x[block])
            total += float(self.loss.value(z, self.y[block]).sum())
        return total + self.ridge / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient of F at w, shape (k p,)."""
        matrix = w.reshape(self.loss.outputs, -1)
        total = np.zeros_like(matrix)
        for block in blocks(self.x):
            rows = self.x[block]
            total += self.loss.slope(scores(matrix, rows), self.y[block]) @ rows
        return np.asarray(total.ravel() + self.ridge * w)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen rows' subgradients at w, each with its n-th of the ridge."""
        matrix, rows = w.reshape(self.loss.outputs, -1), self.x[chosen]
        slopes = self.loss.slope(scores(matrix, rows), self.y[chosen])
        share = self.ridge * len(chosen) / max(self.parts, 1)
        return np.asarray((slopes @ rows).ravel() + share * w)

    def project(self, w: Floats) -> Floats:
        """Return the point of the ball that is nearest to w, or w where there is none."""
        return w if self.radius is None else Ball(self.radius).project(w)

    def projection_error(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `project` at w."""
        return 0.0 if self.radius is None else Ball(self.radius).projection_error(w)

    def hessian(self, w: Floats) -> Floats:
        """Return the second derivative of F at w, shape (k p, k p); not defined at kinks."""
        matrix = w.reshape(self.loss.outputs, -1)
        total = self.ridge * np.eye(self.width)
        for block in blocks(self.x):
            second = self.loss.second(scores(matrix, self.x[block]), self.y[block])
            total += curvature(second, self.x[block])
        return total


@frozen(eq=False)
class Mean(Derived[Problem]):
    """The mean of a problem's losses, ``F(w) / n``: the other convention of empirical risk.

    It is the problem of the sum with everything divided by the public n, its ridge too: the sum is
    n L-Lipschitz, n mu-strongly convex and n beta-smooth where the mean is L, mu and beta, the
    minimizer is the same, and a row moves it by ``2 L / (n mu)``, the mean's ``2 L / mu``
    over n. `problem` is the sum again, as it was.

    Examples
    --------
    >>> from adaptive_dp.erm.losses import Squared
    >>> mean = Mean.of(np.eye(2), np.ones(2), Squared(), row_norm=1.0, ridge=0.5)
    >>> mean.problem.ridge, round(mean.strong_convexity, 6), round(mean.smoothness, 6)
    (1.0, 1.0, 1.0)
    """

    @classmethod
    def of(cls, x: Floats, y: Floats, loss: Loss, *, ridge: float = 0.0, **more: Any) -> Mean:
        """Return the mean of losses and ``(ridge / 2) |w|^2``; ``more`` are those of `Problem`."""
        plain = Problem(x, y, loss, ridge=ridge, **more)
        return cls(evolve(plain, ridge=plain.ridge * plain.parts))

    def __attrs_post_init__(self) -> None:
        if not self.problem.parts:
            raise ValueError("Mean needs at least one row: a mean of no losses is not defined")

    @property
    def ridge(self) -> float:
        """The ridge in units of the mean."""
        return self.problem.ridge / self.parts

    @property
    def strong_convexity(self) -> float:
        """The sum's, over n; rounded down."""
        return max(0.0, math.nextafter(self.problem.strong_convexity / self.parts, -math.inf))

    @property
    def smoothness(self) -> float:
        """The sum's, over n; rounded up."""
        return math.nextafter(self.problem.smoothness / self.parts, math.inf)

    @property
    def lipschitz(self) -> float:
        """The sum's, over n; rounded up."""
        return math.nextafter(self.problem.lipschitz / self.parts, math.inf)

    def rounding(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `gradient` at w."""
        size = length(self.problem.gradient(w))
        # the sum's own error, and one rounding of each quotient
        return above((self.problem.rounding(w) + 2 * UNIT * size) / self.parts) + TINY

    def value(self, w: Floats) -> float:
        """Return the mean of the rows' losses at w, and the ridge."""
        return self.problem.value(w) / self.parts

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient at w."""
        return self.problem.gradient(w) / self.parts

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen rows' subgradients at w, over n."""
        return self.problem.part(chosen, w) / self.parts

    def hessian(self, w: Floats) -> Floats:
        """Return the second derivative at w; not defined at kinks."""
        return self.problem.hessian(w) / self.parts


def length(w: Floats) -> float:
    """Return an upper bound of ``|w|_2``; infinite where w is not finite."""
    return above(norm(w) * (1 + gamma(len(w) + 8))) if np.isfinite(w).all() else math.inf


def curvature(second: Floats, x: Floats) -> Floats:
    """Return ``sum_i B_i (x) x_i x_i'``, shape (k p, k p), from B of shape (k, k, n)."""
    k, p = len(second), x.shape[1]
    total = np.empty((k, p, k, p))
    for a in range(k):
        for b in range(a + 1):
            total[a, :, b] = (x.T * second[a, b]) @ x
            total[b, :, a] = total[a, :, b]
    return total.reshape(k * p, k * p)


EIGENVALUES_WORK = 2**29
"""The most products that the eigenvalues of x'x may take; beyond, they are bounded in one pass."""


def _eigenvalues(x: Floats, largest: float) -> tuple[float, float]:
    """Return bounds of the least and of the largest eigenvalue of x'x, of ``[0, largest]``.

    The computed matrix is off by at most ``g |x_1| |x_1|' + ...`` entry by entry (`sum_error`), so
    by ``g trace`` in Frobenius norm, and its computed eigenvalues by ``2^-49 p trace`` more
    (LAPACK's backward error); by Weyl's inequality eigenvalues move by no more than that. Of fewer
    rows than columns it is xx', which has the same largest eigenvalue; the least is 0.
    """
    n, p = x.shape
    small = min(n, p)
    if not (n * p * small <= EIGENVALUES_WORK and 1e-280 < largest < 1e280):
        return 0.0, largest
    matrix = weighted_row_sum(x.T, x) if n >= p else x @ x.T
    trace = float(matrix.trace())
    # outward: twice the two errors, for the trace's own error and these sums'
    error = 2 * trace * (gamma(p + 8) + sum_error(n, p) + small * 2.0**-49)
    values = np.linalg.eigvalsh(matrix)
    least = max(0.0, below(float(values[0]) - error)) if n >= p else 0.0
    return least, min(largest, above(float(values[-1]) + error))


def _largest_eigenvalue(x: Floats, row_norm: float) -> float:
    """Return an upper bound of the largest eigenvalue of x'x, in one pass; check the norms.

    It is at most the trace, ``n R^2``, and the largest row sum of ``|x|'|x|`` (the matrix norm that
    the maximum norm induces): the least of the three, rounded up.

    Raises
    ------
    ValueError
        If a row is longer than ``row_norm``, or not finite.
    """
    trace, sums = 0.0, np.zeros(x.shape[1])
    allowed = row_norm * row_norm * (1 + 2 * gamma(x.shape[1] + 4))
    for block in blocks(x):
        rows = x[block]
        squares = np.einsum("ij,ij->i", rows, rows)
        if not np.all(squares <= allowed):
            raise ValueError(
                f"a row of x is longer than Problem.row_norm = {row_norm!r}, or not finite; "
                "clip the rows, or declare a larger norm"
            )
        absolute = np.abs(rows)
        trace += float(squares.sum())
        sums += absolute.sum(axis=1) @ absolute  # row sums of |x|'|x|, without that matrix
    bound = min(trace, float(sums.max(initial=0.0)), len(x) * row_norm * row_norm)
    # outward: every sum above has at most x.size terms
    return bound * (1 + 4 * gamma(x.size + 8)) if x.size < 2**45 else math.inf
