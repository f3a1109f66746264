"""The losses: regression, two classes, several classes, counts, and generalized linear models."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import field, frozen

from adaptive_dp.erm.loss import (
    DEFINED,
    ELEMENTARY,
    UNIT,
    Constants,
    Floats,
    Labels,
    Loss,
    Rounding,
    above,
    below,
    exp,
    positive,
    ramp,
    ramp_second,
    ramp_slope,
)

# -----------------------------------------------------------------------------
# Half the squared error.


@frozen
class Squared(Loss):
    """``(z - y)^2 / 2`` with y in [-1, 1]: linear regression.

    Its slope grows without bound: on R^p it has no Lipschitz constant, and no argument that needs
    one holds without a bound on the parameters.

    Examples
    --------
    >>> Squared().constants(1.0).lipschitz >= 2 and Squared().constants().lipschitz
    inf
    """

    labels: ClassVar[Labels] = "number"

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``(z - y)^2 / 2``."""
        off = z[0] - y
        return np.asarray(off * off / 2)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``z - y``."""
        return np.asarray(z - y)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return 1."""
        return np.ones((1, *z.shape))

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``; infinite ones where it is infinite."""
        far = reach + 1
        return Constants(above(far), 1.0, 1.0, 0.0, above(far * far / 2))

    def rounding(self, reach: float) -> Rounding:
        """One rounding of the slope; three of the value, and the square doubles the first."""
        far = above(reach + 1)
        return Rounding(above(3 * UNIT * far * far), above(UNIT * far))


# -----------------------------------------------------------------------------
# The absolute error.


@frozen
class Absolute(Loss):
    """``|z - y|`` with y in [-1, 1]: regression to the median. Not smooth.

    Examples
    --------
    >>> Absolute().value(np.array([[2.0]]), np.array([0.5]))
    array([1.5])
    """

    labels: ClassVar[Labels] = "number"

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``|z - y|``."""
        return np.asarray(np.abs(z[0] - y))

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the sign of ``z - y``, 0 at the kink (a difference of floats has its sign)."""
        return np.sign(z - y)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return 0."""
        return np.zeros((1, *z.shape))

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        return Constants(1.0, math.inf, 0.0, 0.0, above(reach + 1))

    def rounding(self, reach: float) -> Rounding:
        """One rounding of the value, none of the slope."""
        return Rounding(above(UNIT * (reach + 1)), 0.0)


# -----------------------------------------------------------------------------
# Huber's loss of a regression.


@frozen
class Huber(Loss):
    """``r^2 / 2`` for ``|r| <= width``, beyond it linear; ``r = z - y``, y in [-1, 1].

    Lipschitz where the squared loss is not: ``|slope| <= width`` for every score.

    Parameters
    ----------
    width
        Where the parabola ends, in units of y.

    References
    ----------
    Huber 1964.

    Examples
    --------
    >>> Huber(0.5).value(np.array([[0.4, 2.0]]), np.zeros(2))
    array([0.08 , 0.875])
    """

    width: float = 1.0
    labels: ClassVar[Labels] = "number"

    def __attrs_post_init__(self) -> None:
        """Refuse a width that is none."""
        positive("Huber", "width", self.width)

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss."""
        return self.width * ramp(np.abs(z[0] - y), self.width)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the residual, clipped to the width."""
        return np.asarray(np.clip(z - y, -self.width, self.width))

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return 1 within the width, 0 beyond."""
        return np.where(np.abs(z - y) < self.width, 1.0, 0.0)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        far = above(reach + 1)
        inner = min(far, self.width)
        curvature = 1.0 if far < self.width else 0.0
        return Constants(inner, 1.0, curvature, 0.0, above(inner * (far - inner / 2)))

    def rounding(self, reach: float) -> Rounding:
        """One rounding of the residual, at most the width where it counts; six of the value."""
        inner = min(above(reach + 1), self.width)
        return Rounding(above(8 * UNIT * inner * (reach + 1 + inner)), above(2 * UNIT * inner))


# -----------------------------------------------------------------------------
# The hinge loss of two classes.


@frozen
class Hinge(Loss):
    """``max(0, 1 - y z)`` with y in {-1, 1}: the support vector machine. Not smooth.

    Examples
    --------
    >>> Hinge().value(np.array([[0.25, 3.0]]), np.ones(2))
    array([0.75, 0.  ])
    """

    labels: ClassVar[Labels] = "sign"
    monotone: ClassVar[bool] = True

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``max(0, 1 - yz)``."""
        return np.asarray(np.maximum(0.0, 1.0 - y * z[0]))

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return -y where the margin is below 1, else 0."""
        return np.where(y * z < 1, -y, 0.0)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return 0."""
        return np.zeros((1, *z.shape))

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        return Constants(1.0, math.inf, 0.0, max(0.0, below(1 - reach)), above(1 + reach))

    def rounding(self, reach: float) -> Rounding:
        """One rounding of the value, none of the slope (a product with a sign is exact)."""
        return Rounding(above(UNIT * (1 + reach)), 0.0)


# -----------------------------------------------------------------------------
# The hinge loss with a parabola below its kink.


@frozen
class SmoothedHinge(Loss):
    """``0`` at margins m = yz of 1 on, ``(1 - m)^2 / (2 width)`` down to 1 - width, then linear.

    At most ``width / 2`` below the hinge; ``|slope| <= 1``, second derivative at most 1/width.

    Parameters
    ----------
    width
        How long the parabola is, in units of the margin.

    References
    ----------
    Shalev-Shwartz and Zhang 2013 (the smoothed hinge loss).

    Examples
    --------
    >>> import numpy as np
    >>> SmoothedHinge(0.5).value(np.array([[0.75, -1.0]]), np.ones(2))
    array([0.0625, 1.75 ])
    """

    width: float = 0.5
    labels: ClassVar[Labels] = "sign"
    monotone: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        """Refuse a width that is none."""
        positive(type(self).__name__, "width", self.width)

    @property
    def _edge(self) -> float:
        """The margin from which the loss is 0."""
        return 1.0

    @property
    def _long(self) -> float:
        """How long the parabola is."""
        return self.width

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss."""
        return ramp(self._edge - y * z[0], self._long)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the derivative by the score."""
        return -y * ramp_slope(self._edge - y * z, self._long)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return the second derivative, 0 at the parabola's ends."""
        return ramp_second(self._edge - y * z, self._long)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        far, near = above(self._edge + reach), max(0.0, below(self._edge - reach))
        steepest = min(1.0, above(far / self._long))
        inner, least = min(far, self._long), min(near, self._long)
        highest = above(inner * ((far - inner / 2) / self._long))
        lowest = max(0.0, below(least * ((near - least / 2) / self._long)))
        return Constants(steepest, above(1 / self._long), 0.0, lowest, highest)

    def rounding(self, reach: float) -> Rounding:
        """The edge's own rounding over the length, then two of the slope; six of the value."""
        edge = 2 * UNIT * self._edge
        far = self._edge + reach + self._long
        return Rounding(above(8 * UNIT * far), above(edge / self._long + 4 * UNIT))


# -----------------------------------------------------------------------------
# The hinge loss with a parabola around its kink.


@frozen
class HuberHinge(SmoothedHinge):
    """``(1 + width - m)^2 / (4 width)`` where the margin m = yz is within width of 1.

    Elsewhere it is the hinge itself, so it is at most width/4 above it. ``|slope| <= 1``, second
    derivative at most ``1 / (2 width)``. It is the smoothed hinge of twice the width, moved.

    Parameters
    ----------
    width
        Half the parabola's length, in units of the margin.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011 (the Huber loss of their support vector machine).

    Examples
    --------
    >>> import numpy as np
    >>> HuberHinge(0.5).value(np.array([[1.0, -1.0, 2.0]]), np.ones(3))
    array([0.125, 2.   , 0.   ])
    """

    @property
    def _edge(self) -> float:
        return 1.0 + self.width

    @property
    def _long(self) -> float:
        return 2 * self.width


# -----------------------------------------------------------------------------
# The logistic loss of two classes.


@frozen
class Logistic(Loss):
    """``log(1 + e^{-y z})`` with y in {-1, 1}.

    ``|slope| <= 1``, ``0 < second <= 1/4``. With labels c in {0, 1} it is the cross-entropy
    ``-c log s - (1 - c) log(1 - s)``, ``s = 1 / (1 + e^{-z})``, at ``y = 2c - 1`` (that formula
    with y in {-1, 1}, as it is sometimes printed, has no lower bound).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Corollary 11.

    Examples
    --------
    >>> Logistic().value(np.zeros((1, 1)), np.ones(1)).round(6)
    array([0.693147])
    """

    labels: ClassVar[Labels] = "sign"
    monotone: ClassVar[bool] = True

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``log(1 + e^{-yz})``."""
        margin = y * z[0]
        return np.asarray(np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0))

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``-y / (1 + e^{yz})``."""
        margin = y * z[0]
        far = np.exp(-np.abs(margin))
        wrong = np.where(margin > 0, far, 1.0) / (1.0 + far)
        return np.asarray(-y * wrong)[None]

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return ``-y / (1 + e^{yz})``, from an exponential that cannot overflow."""
        far = (-abs(z)).exp()
        return -y * (far if y * z > 0 else 1) / (1 + far)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return ``s (1 - s)``."""
        far = np.exp(-np.abs(z))
        return np.asarray(far / (1.0 + far) ** 2)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        least = math.exp(-reach) / (1 + math.exp(-reach)) ** 2 * (1 - 1e-12)
        highest = (reach + math.log1p(math.exp(-reach))) * (1 + 1e-12)
        lowest = math.log1p(math.exp(-reach)) * (1 - 1e-12)
        steepest = 1 / (1 + math.exp(-reach)) * (1 + 1e-12)
        return Constants(min(1.0, steepest), 0.25, least, lowest, highest)

    def rounding(self, reach: float) -> Rounding:
        """An exponential, a sum and a quotient, below 1; a logarithm and a sum for the value."""
        return Rounding(above((20 + reach) * UNIT), above(16 * UNIT))


# -----------------------------------------------------------------------------
# The zero-one loss of two classes: whether the sign is wrong.


@frozen
class ZeroOne(Loss):
    """1 where the sign of z is not y in {-1, 1}, else 0; a score of 0 says 1.

    It is neither convex nor continuous, so that it has no slope: for learners that choose among
    finitely many candidates.

    Examples
    --------
    >>> ZeroOne().value(np.array([[2.0, -1.0, 0.0]]), np.array([1.0, 1.0, 1.0]))
    array([0., 1., 0.])
    """

    labels: ClassVar[Labels] = "sign"
    convex: ClassVar[bool] = False

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return 0 or 1."""
        return np.asarray((z[0] >= 0) != (y > 0), dtype=np.float64)

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those of a bounded loss without a Lipschitz constant."""
        return Constants(math.inf, math.inf, 0.0, 0.0, 1.0)


# -----------------------------------------------------------------------------
# The cross-entropy of a softmax over k classes.


@frozen
class Multinomial(Loss):
    """``log sum_j e^{z_j} - z_y`` with y in {0, ..., k - 1}.

    With p the softmax of z the slope is ``p - e_y``, of norm at most ``sqrt 2 (1 - p_y)``: the
    others' norm is at most their sum, ``1 - p_y``. The second derivative ``diag p - p p'`` has
    eigenvalues in [0, 1/2]: ``v' (diag p - pp') v`` is the variance of v_j under p, at most
    ``(max v - min v)^2 / 4 <= |v|^2 / 2``. Along (1, ..., 1) it is 0, so there is no curvature.

    On ``|z| <= r`` two scores differ by at most ``sqrt 2 r``, so that
    ``p_y >= 1 / (1 + (k - 1) e^{sqrt 2 r})``; the loss is ``-log p_y``.

    Parameters
    ----------
    classes
        k, at least 2.

    Examples
    --------
    >>> Multinomial(4).value(np.zeros((4, 1)), np.array([2])).round(6)
    array([1.386294])
    """

    classes: int = field()
    labels: ClassVar[Labels] = "class"

    @classes.validator
    def _enough(self, attribute: object, given: int) -> None:
        if isinstance(given, bool) or not isinstance(given, int) or given < 2:
            raise ValueError(
                f"Multinomial.classes must be a whole number from 2 on, got {given!r}; "
                "pass how many classes the label can have"
            )

    @property
    def outputs(self) -> int:
        """The number of classes, k."""
        return self.classes

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``log sum_j e^{z_j} - z_y``, without overflow, and near 0 to its last digits."""
        each, largest = np.arange(z.shape[1]), z.argmax(axis=0)
        top = z[largest, each]
        others = np.exp(z - top)
        others[largest, each] = 0.0
        return np.asarray(np.log1p(_ordered_sum(others)) + (top - z[y.astype(np.intp), each]))

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``p - e_y``."""
        share = softmax(z)
        share[y.astype(np.intp), np.arange(z.shape[1])] -= 1.0
        return share

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return ``diag p - p p'``."""
        share = softmax(z)
        square = -share[:, None, :] * share[None, :, :]
        each = np.arange(self.classes)
        square[each, each] += share
        return np.asarray(square)

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        apart, others = math.sqrt(2) * reach * (1 + 1e-15), self.classes - 1
        steepest = math.sqrt(2) / (1 + exp(-apart) / others)
        highest = apart + math.log(others + exp(-apart))
        lowest = math.log1p(others * exp(-apart))
        return Constants(above(steepest), 0.5, 0.0, max(0.0, below(lowest)), above(highest))

    def rounding(self, reach: float) -> Rounding:
        """Return what sums over k exponentials are off by.

        ``e_j = e^{d_j}``, d_j <= 0, is off by at most ``(|d_j| + 8) u e_j``, and ``|d| e^d`` is
        below 1/2, so that their sum, at least 1, is off by a relative ``(3k/2 + 8) u``; quotients
        add one rounding each. Summed over j the slope is off by less than ``(2k + 18) u`` and one
        rounding of ``p_y - 1``, the value by ``(3k/2 + 8 + 8 log k + 1) u`` and the two
        roundings of ``top - z_y`` and of the last sum.
        """
        k = self.classes
        return Rounding(above((8 * k + 32 + 8 * reach) * UNIT), above((4 * k + 32) * UNIT))


def softmax(z: Floats) -> Floats:
    """Return ``e^{z_j} / sum_i e^{z_i}``, shape (k, n), each column by itself."""
    e: Floats = z - z.max(axis=0)
    np.exp(e, out=e)
    e /= _ordered_sum(e)
    return e


def _ordered_sum(e: Floats) -> Floats:
    """Add the rows in order: NumPy's own sum pairs them up by the array's shape."""
    total = e[0].copy()
    for row in e[1:]:
        total += row
    return np.asarray(total)


# -----------------------------------------------------------------------------
# The loss of counts.


@frozen
class Poisson(Loss):
    """``e^z - y z`` with y in [0, most]: Poisson regression with a logarithmic link.

    It is the negative log-likelihood without ``log y!``. Nothing bounds its slope on R^p: the
    constants are finite for a finite reach alone.

    Parameters
    ----------
    most
        The largest label: a label above it is refused where data meets the loss.

    Examples
    --------
    >>> Poisson(most=3).slope(np.zeros((1, 2)), np.array([0.0, 3.0]))
    array([[ 1., -2.]])
    """

    most: float = field()
    labels: ClassVar[Labels] = "count"

    def __attrs_post_init__(self) -> None:
        """Refuse a bound that is none."""
        positive("Poisson", "most", self.most)

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``e^z - yz``."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(z[0]) - y * z[0])

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``e^z - y``."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(z) - y)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return ``e^z``."""
        with np.errstate(over="ignore"):
            return np.exp(z)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``.

        The loss is linear in y and convex in z: its largest value is at a corner, its least at
        ``y = 0, z = -reach`` or at ``y = most`` and the z nearest to ``log most``.
        """
        high, low, most = exp(reach), exp(-reach), self.most
        best = min(max(math.log(most), -reach), reach)
        lowest = min(below(low), below(math.exp(best)) - above(most * best))
        highest = max(high, low + most * reach)
        return Constants(
            above(max(high, most - low)),
            above(high),
            max(0.0, below(low)),
            below(lowest),
            above(highest),
        )

    def rounding(self, reach: float) -> Rounding:
        """An exponential and a difference; a product more for the value."""
        high = exp(reach)
        slope = ELEMENTARY * high + 2 * UNIT * (high + self.most)
        return Rounding(above(slope + 3 * UNIT * self.most * (reach + 1)), above(slope))


# -----------------------------------------------------------------------------
# The loss of a generalised linear model, from its cumulant function.
#
# The density of y is ``h(y) exp(y z - Phi(z))`` (with a known dispersion both are divided by it),
# so
# the negative log-likelihood is ``Phi(z) - y z`` up to what hangs on y alone. Phi is convex, its
# derivative the mean of y, its second derivative the variance. The loss is a function of the pair
# (z, y), not of the margin yz.


TRUSTED = 1e-12
"""The relative error up to which given functions are believed."""


@frozen
class GeneralizedLinear(Loss):
    """``Phi(z) - y z`` with y in [-1, 1].

    Parameters
    ----------
    cumulant, mean, variance
        Phi and its first two derivatives, on arrays, right to a relative 10^-12, each element by
        itself. They are compared with one another on [-4, 4] when the loss is declared.
    spread
        From a reach r the least and the largest value of Phi'' on ``|z| <= r``, for every r in
        [0, inf]; nothing can derive it from finitely many values, so it is taken at its word.

    Examples
    --------
    >>> gaussian = GeneralizedLinear(
    ...     lambda z: z * z / 2, lambda z: z, lambda z: np.ones_like(z), lambda r: (1.0, 1.0))
    >>> gaussian.slope(np.array([[0.5]]), np.array([1.0]))
    array([[-0.5]])
    """

    cumulant: Callable[[Floats], Floats] = field()
    mean: Callable[[Floats], Floats] = field()
    variance: Callable[[Floats], Floats] = field()
    spread: Callable[[float], tuple[float, float]] = field()
    labels: ClassVar[Labels] = "number"

    def __attrs_post_init__(self) -> None:
        """Refuse functions that do not belong together."""
        z, step = np.linspace(-4.0, 4.0, 65), 1e-5
        low, high = self.spread(4.0)
        scale = 1 + np.max(np.abs(self.cumulant(z)))
        for name, f, derivative in (
            ("mean", self.cumulant, self.mean(z)),
            ("variance", self.mean, self.variance(z)),
        ):
            slope = (f(z + step) - f(z - step)) / (2 * step)
            if not np.all(np.abs(slope - derivative) <= 1e-6 * scale):
                raise ValueError(
                    f"{type(self).__name__}.{name} is not the derivative of the function before "
                    "it on [-4, 4]; pass Phi, Phi' and Phi''"
                )
        wide = self.variance(z)
        slack = 1e-9 * (1 + high)
        if not (0 <= low <= wide.min() + slack and wide.max() <= high + slack):
            raise ValueError(
                f"{type(self).__name__}.spread(4.0) gave {(low, high)!r}, which does not enclose "
                "the variance on [-4, 4]; pass its least (from 0 on) and its largest value"
            )

    def _labels(self) -> tuple[float, float]:
        """The least and the largest label."""
        return -1.0, 1.0

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``Phi(z) - yz``."""
        return np.asarray(self.cumulant(z[0]) - y * z[0])

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``Phi'(z) - y``."""
        return np.asarray(self.mean(z) - y)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return ``Phi''(z)``."""
        return np.asarray(self.variance(z))[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``.

        The mean increases, so its ends are at the reach's. The loss is convex in z and linear in
        y: its largest value is at a corner, its least at one of the two ends of y.
        """
        ends = self._labels()
        with np.errstate(over="ignore"):
            low, high = self.spread(reach)
        down, up = self._means(reach)
        corners = [math.inf]
        if math.isfinite(reach):
            with np.errstate(over="ignore"):
                phi = self.cumulant(np.array([-reach, reach]))
            corners = [
                _plus(float(p), -y * z)
                for p, z in zip(phi, (-reach, reach), strict=True)
                for y in ends
            ]
        return Constants(
            above(max(up - ends[0], ends[1] - down, 0.0)),
            above(high),
            max(0.0, below(low)),
            min(self._least(reach, y) for y in ends),
            max(corners),
        )

    def rounding(self, reach: float) -> Rounding:
        """The given functions' error and a difference; a product more for the value."""
        down, up = self._means(reach)
        far, ends = max(abs(down), abs(up)), max(map(abs, self._labels()))
        c = self.constants(reach)
        slope = TRUSTED * far + 2 * UNIT * (far + ends)
        if not math.isfinite(reach + c.highest + c.lowest):
            return Rounding(math.inf, above(slope))
        phi = max(abs(c.highest), abs(c.lowest)) + ends * reach
        return Rounding(above((TRUSTED + 4 * UNIT) * phi), above(slope))

    def _means(self, reach: float) -> tuple[float, float]:
        with np.errstate(over="ignore"):
            down, up = (float(m) for m in self.mean(np.array([-reach, reach])))
        return down - abs(down) * 2 * TRUSTED, up + abs(up) * 2 * TRUSTED

    def _least(self, reach: float, y: float) -> float:
        """Return a lower bound of the least loss at a label, by halving where the slope turns.

        On an interval [a, b] a convex f is at least ``f(a) + min(0, f'(a)) (b - a)``; left of it
        and right of it f is larger where f' has the right signs.
        """

        def slope(z: float) -> float:
            return float(self.mean(np.array([z]))[0]) - y

        a, b = -min(reach, 64.0), min(reach, 64.0)
        if reach > 64 and (slope(a) > 0 or slope(b) < 0):
            return -math.inf  # the loss may go on falling, and how far is not known
        for _ in range(60):
            middle = (a + b) / 2
            a, b = (middle, b) if slope(middle) < 0 else (a, middle)
        start = float(self.cumulant(np.array([a]))[0])
        fall = min(0.0, slope(a) - 2 * TRUSTED * (abs(y) + abs(slope(a) + y)))
        missed = 512 * TRUSTED * abs(y)  # a slope within its error of 0, over the whole interval
        return -_plus(-start, y * a) - above(abs(fall) * (b - a) + missed)


@frozen
class GeneralizedLinearCount(GeneralizedLinear):
    """``Phi(z) - y z`` with y in [0, most]: counts, and classes 0 and 1 (``most = 1``).

    Examples
    --------
    >>> bernoulli = GeneralizedLinearCount(
    ...     lambda z: np.logaddexp(0, z),
    ...     lambda z: 1 / (1 + np.exp(-z)),
    ...     lambda z: 1 / (2 + np.exp(z) + np.exp(-z)),
    ...     lambda r: (np.exp(-r) / (1 + np.exp(-r)) ** 2, 0.25),
    ...     most=1,
    ... )
    >>> bernoulli.value(np.zeros((1, 1)), np.ones(1)).round(6)
    array([0.693147])
    """

    most: float = field(kw_only=True)
    labels: ClassVar[Labels] = "count"

    def __attrs_post_init__(self) -> None:
        """Refuse a bound that is none, and functions that do not belong together."""
        positive(type(self).__name__, "most", self.most)
        GeneralizedLinear.__attrs_post_init__(self)

    def _labels(self) -> tuple[float, float]:
        return 0.0, self.most


def _plus(phi: float, product: float) -> float:
    """Return an upper bound of the sum, where the first is known to a relative `TRUSTED`."""
    return above(phi + 2 * TRUSTED * abs(phi) + product) + 4 * TRUSTED * (abs(phi) + abs(product))


# -----------------------------------------------------------------------------
# Loss functions as strings, such as ``Huber(width=0.5)``: how documents and tables name them.
#
# A third party's loss is named with its module, ``my_module:Mine(width=0.5)``. A string never
# brings
# code: such a loss is found only where the running program has already defined it.


LOSSES: Mapping[str, type[Loss]] = {
    "Absolute": Absolute,
    "GeneralizedLinear": GeneralizedLinear,
    "GeneralizedLinearCount": GeneralizedLinearCount,
    "Hinge": Hinge,
    "Huber": Huber,
    "HuberHinge": HuberHinge,
    "Logistic": Logistic,
    "Multinomial": Multinomial,
    "Poisson": Poisson,
    "SmoothedHinge": SmoothedHinge,
    "Squared": Squared,
    "ZeroOne": ZeroOne,
}
"""The library's loss functions by name; a class is the library's if it is one of these objects."""


def text(loss: Loss) -> str:
    """Return a loss as a text that `read` reads back."""
    kind = type(loss)
    given = ", ".join(f"{f.name}={getattr(loss, f.name)!r}" for f in attrs.fields(kind))
    module = "" if LOSSES.get(kind.__name__) is kind else f"{kind.__module__}:"
    return f"{module}{kind.__name__}({given})"


def read(written: str) -> Loss:
    """Return the loss of a text; one that the library ships.

    Raises
    ------
    ValueError
        If the text names none.

    Examples
    --------
    >>> read("Logistic()")
    Logistic()
    """
    hint = f"{written!r} is no loss; losses are {', '.join(LOSSES)}, such as 'Logistic()'"
    return _made(written, LOSSES, hint)


def read_any(written: str) -> Loss:
    """Return the loss of a text, which may be one that the program has defined.

    For those alone who need nothing of it to be true: they clip what it says.

    Raises
    ------
    ValueError
        If the text names none.
    """
    module, colon, call = written.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        return read(written)
    places = ((place.partition(":"), kind) for place, kind in DEFINED.items())
    known = {name: kind for (where, _, name), kind in places if where == module}
    hint = (
        f"{written!r} is no loss that the program has defined: import {module} first; its class is "
        "at the top level of a module, frozen by attrs, and its parameters are numbers and texts"
    )
    return _made(call, known, hint)


def _made(call: str, known: Mapping[str, type[Loss]], hint: str) -> Loss:
    try:
        found = ast.parse(call, mode="eval").body
        assert isinstance(found, ast.Call)
        assert isinstance(found.func, ast.Name)
        assert not found.args
        given: dict[str, Any] = {str(k.arg): ast.literal_eval(k.value) for k in found.keywords}
        kind = known[found.func.id]
    except (SyntaxError, AssertionError, KeyError, ValueError, RecursionError, MemoryError):
        raise ValueError(hint) from None
    return kind(**given)
