"""The losses: regression, two classes, several classes, counts, and generalized linear models.

Each class states its constants (`Loss.constants`), rounded outward, and the rounding error of its
computed value and slope (`Loss.rounding`), u being the unit of rounding `UNIT`. At the end: losses
as strings, by which documents name them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import field, frozen
from attrs.validators import instance_of

from adaptive_dp.erm.loss import (
    DEFINED,
    ELEMENTARY,
    UNIT,
    Constants,
    Floats,
    Labels,
    Loss,
    MarginLoss,
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
# Regression, labels in [-1, 1].


@frozen
class Squared(Loss):
    """Half the squared error, ``(z - y)^2 / 2`` with y in [-1, 1]: linear regression.

    Its slope grows without bound: without a bound on the parameters it has no Lipschitz constant.

    Examples
    --------
    >>> Squared().constants(1.0).lipschitz >= 2 and Squared().constants().lipschitz
    inf
    """

    labels: ClassVar[Labels] = "number"
    self_concordance: ClassVar[float | None] = 0.0  # there is no third derivative

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``(z - y)^2 / 2``."""
        off = z[0] - y
        return np.asarray(off * off / 2)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``z - y``."""
        return np.asarray(z - y)

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return ``z - y``."""
        return z - y

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return 1."""
        return np.ones((1, *z.shape))

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``; infinite ones for an infinite reach."""
        residual = reach + 1  # |z - y| <= |z| + |y|
        return Constants(above(residual), 1.0, 1.0, 0.0, above(residual * residual / 2))

    def rounding(self, reach: float) -> Rounding:
        """Return one rounding of the slope, three of the value; the square doubles the first."""
        residual = above(reach + 1)
        return Rounding(above(3 * UNIT * residual * residual), above(UNIT * residual))


@frozen
class Absolute(Loss):
    """The absolute error, ``|z - y|`` with y in [-1, 1]: regression to the median. Not smooth.

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
        """Return one rounding of the value, none of the slope."""
        return Rounding(above(UNIT * (reach + 1)), 0.0)


@frozen
class Huber(Loss):
    """Huber's loss: ``r^2 / 2`` for ``|r| <= width``, then linear; ``r = z - y``, y in [-1, 1].

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

    width: float = field(default=1.0, validator=positive)
    labels: ClassVar[Labels] = "number"

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss."""
        return self.width * ramp(np.abs(z[0] - y), self.width)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the residual, clipped to the width."""
        return np.asarray(np.clip(z - y, -self.width, self.width))

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return the residual, clipped to the width."""
        width = Decimal(self.width)
        return max(-width, min(z - y, width))

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return 1 within the width, 0 beyond."""
        return np.where(np.abs(z - y) < self.width, 1.0, 0.0)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        residual = above(reach + 1)  # |z - y| <= |z| + |y|
        steepest = min(residual, self.width)
        # a parabola throughout where no residual reaches the width
        curvature = 1.0 if residual < self.width else 0.0
        highest = above(steepest * (residual - steepest / 2))
        return Constants(steepest, 1.0, curvature, 0.0, highest)

    def rounding(self, reach: float) -> Rounding:
        """Return one rounding of the residual, clipped to the width; six of the value."""
        slope = min(above(reach + 1), self.width)
        return Rounding(above(8 * UNIT * slope * (reach + 1 + slope)), above(2 * UNIT * slope))


# -----------------------------------------------------------------------------
# Two classes, labels -1 and 1.


@frozen
class Hinge(MarginLoss):
    """The hinge loss, ``max(0, 1 - y z)`` with y in {-1, 1}: support vector machines. Not smooth.

    Examples
    --------
    >>> Hinge().value(np.array([[0.25, 3.0]]), np.ones(2))
    array([0.75, 0.  ])
    """

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
        """Return one rounding of the value, none of the slope (a product with a sign is exact)."""
        return Rounding(above(UNIT * (1 + reach)), 0.0)


@frozen
class SmoothedHinge(MarginLoss):
    """The hinge loss with its kink replaced by a parabola below it.

    With the margin m = yz: 0 for m >= 1, ``(1 - m)^2 / (2 width)`` for m from 1 - width to 1, and
    linear below. At most ``width / 2`` below the hinge; ``|slope| <= 1``, second derivative at
    most 1/width.

    Parameters
    ----------
    width
        The length of the parabola, in units of the margin.

    References
    ----------
    Shalev-Shwartz and Zhang 2013 (the smoothed hinge loss).

    Examples
    --------
    >>> import numpy as np
    >>> SmoothedHinge(0.5).value(np.array([[0.75, -1.0]]), np.ones(2))
    array([0.0625, 1.75 ])
    """

    width: float = field(default=0.5, validator=positive)
    monotone: ClassVar[bool] = True

    @property
    def _edge(self) -> float:
        """The least margin at which the loss is 0."""
        return 1.0

    @property
    def _length(self) -> float:
        """The length of the parabola, in units of the margin."""
        return self.width

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss."""
        return ramp(self._edge - y * z[0], self._length)

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the derivative by the score."""
        return -y * ramp_slope(self._edge - y * z, self._length)

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return the derivative by the score, of the parabola whose ends are the floats' own."""
        d = (Decimal(self._edge) - y * z) / Decimal(self._length)
        return -y * max(Decimal(0), min(d, Decimal(1)))

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return the second derivative, 0 at the parabola's ends."""
        return ramp_second(self._edge - y * z, self._length)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        # the range of d = edge - yz, the argument of `ramp`, rounded outward
        largest, smallest = above(self._edge + reach), max(0.0, below(self._edge - reach))
        steepest = min(1.0, above(largest / self._length))
        # `ramp` at both ends
        upper, lower = min(largest, self._length), min(smallest, self._length)
        highest = above(upper * ((largest - upper / 2) / self._length))
        lowest = max(0.0, below(lower * ((smallest - lower / 2) / self._length)))
        return Constants(steepest, above(1 / self._length), 0.0, lowest, highest)

    def rounding(self, reach: float) -> Rounding:
        """Return the edge's rounding over the length and two of the slope; six of the value."""
        edge = 2 * UNIT * self._edge
        largest = self._edge + reach + self._length
        return Rounding(above(8 * UNIT * largest), above(edge / self._length + 4 * UNIT))


@frozen
class HuberHinge(SmoothedHinge):
    """The hinge loss with its kink replaced by a parabola around it.

    ``(1 + width - m)^2 / (4 width)`` where the margin m = yz is within width of 1, elsewhere the
    hinge itself, so it is at most width/4 above it. ``|slope| <= 1``, second derivative at most
    ``1 / (2 width)``. It is the smoothed hinge of twice the width, shifted by the width.

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
    def _length(self) -> float:
        return 2 * self.width


@frozen
class Logistic(MarginLoss):
    """The logistic loss of two classes, ``log(1 + e^{-y z})`` with y in {-1, 1}.

    ``|slope| <= 1``, ``0 < second <= 1/4``. With labels c in {0, 1} it is the cross-entropy
    ``-c log s - (1 - c) log(1 - s)``, ``s = 1 / (1 + e^{-z})``, at ``y = 2c - 1`` (that formula
    with y in {-1, 1}, as it is sometimes printed, has no lower bound).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Corollary 11; Bach 2010 (third derivatives are at most
    second ones).

    Examples
    --------
    >>> Logistic().value(np.zeros((1, 1)), np.ones(1)).round(6)
    array([0.693147])
    """

    monotone: ClassVar[bool] = True
    self_concordance: ClassVar[float | None] = 1.0  # the third derivative is s (1 - s) (1 - 2 s)

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``log(1 + e^{-yz})``."""
        margin = y * z[0]
        return np.asarray(np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0))

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``-y / (1 + e^{yz})``."""
        margin = y * z[0]
        e = np.exp(-np.abs(margin))  # at most 1: cannot overflow
        probability = np.where(margin > 0, e, 1.0) / (1.0 + e)
        return np.asarray(-y * probability)[None]

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return ``-y / (1 + e^{yz})``, from an exponential that cannot overflow."""
        e = (-abs(z)).exp()
        return -y * (e if y * z > 0 else 1) / (1 + e)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return ``s (1 - s)``."""
        e = np.exp(-np.abs(z))
        return np.asarray(e / (1.0 + e) ** 2)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``: each is monotone in ``|z|`` or z, and so at an end.

        The factors 1 +- 1e-12 round outward.
        """
        least = math.exp(-reach) / (1 + math.exp(-reach)) ** 2 * (1 - 1e-12)
        highest = (reach + math.log1p(math.exp(-reach))) * (1 + 1e-12)
        lowest = math.log1p(math.exp(-reach)) * (1 - 1e-12)
        steepest = 1 / (1 + math.exp(-reach)) * (1 + 1e-12)
        return Constants(min(1.0, steepest), 0.25, least, lowest, highest)

    def rounding(self, reach: float) -> Rounding:
        """Return the error of an exponential, a sum and a quotient, below 1; and of the value's."""
        return Rounding(above((20 + reach) * UNIT), above(16 * UNIT))


@frozen
class ZeroOne(Loss):
    """The zero-one loss of two classes: 1 where the sign of z is not y in {-1, 1}, else 0.

    A score of 0 predicts 1. It is neither convex nor continuous and has no slope: it is for
    learners that choose among finitely many candidates.

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
# Several classes, labels 0 to k - 1.


@frozen
class Multinomial(Loss):
    """The cross-entropy of a softmax, ``log sum_j e^{z_j} - z_y`` with y in {0, ..., k - 1}.

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
    def _at_least_two(self, attribute: object, classes: int) -> None:
        if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
            raise ValueError(
                f"Multinomial.classes must be an int of at least 2, got {classes!r}; "
                "pass the number of classes that the label can have"
            )

    @property
    def outputs(self) -> int:
        """The number of classes, k."""
        return self.classes

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``log sum_j e^{z_j} - z_y``, without overflow and accurate near 0."""
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

    def precise(self, z: Sequence[Decimal], y: Decimal) -> list[Decimal]:  # type: ignore[override]
        """Return the slope by each score in decimals, to the precision of their context."""
        top = max(z)
        e = [(score - top).exp() for score in z]
        total = sum(e, Decimal(0))
        return [v / total - (j == y) for j, v in enumerate(e)]

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return ``diag p - p p'``."""
        share = softmax(z)
        square = -share[:, None, :] * share[None, :, :]
        each = np.arange(self.classes)
        square[each, each] += share
        return np.asarray(square)

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those on ``|z| <= reach``."""
        # two scores differ by at most sqrt 2 r
        difference, others = math.sqrt(2) * reach * (1 + 1e-15), self.classes - 1
        # sqrt 2 (1 - p_y) at the least p_y; -log p_y at the least and the largest p_y
        steepest = math.sqrt(2) / (1 + exp(-difference) / others)
        highest = difference + math.log(others + exp(-difference))
        lowest = math.log1p(others * exp(-difference))
        return Constants(above(steepest), 0.5, 0.0, max(0.0, below(lowest)), above(highest))

    def rounding(self, reach: float) -> Rounding:
        """Return the errors of sums over k exponentials.

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
    """Return the sum over the first axis, in order: that of `numpy.sum` depends on the shape."""
    total = e[0].copy()
    for row in e[1:]:
        total += row
    return np.asarray(total)


# -----------------------------------------------------------------------------
# Counts, labels of at least 0.


@frozen
class Poisson(Loss):
    """The Poisson loss, ``e^z - y z`` with y in [0, most]: counts with a logarithmic link.

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

    most: float = field(validator=positive)
    labels: ClassVar[Labels] = "count"

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return ``e^z - yz``."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(z[0]) - y * z[0])

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return ``e^z - y``."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(z) - y)

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return ``e^z - y``."""
        return z.exp() - y

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
        best = min(max(math.log(most), -reach), reach)  # e^z = most, clipped to the reach
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
        """Return the error of an exponential and a difference; for the value also of a product."""
        high = exp(reach)
        slope = ELEMENTARY * high + 2 * UNIT * (high + self.most)
        return Rounding(above(slope + 3 * UNIT * self.most * (reach + 1)), above(slope))


# -----------------------------------------------------------------------------
# Generalised linear models, from their cumulant functions.


TRUSTED = 1e-12
"""The relative error that is assumed of the functions that a user passes."""


@frozen
class GeneralizedLinear(Loss):
    """The loss of a generalised linear model, ``Phi(z) - y z`` with y in [-1, 1].

    The density of y is ``h(y) exp(y z - Phi(z))`` (with a known dispersion both are divided by it),
    so the negative log-likelihood is ``Phi(z) - y z`` up to a term in y alone. Phi, the cumulant
    function, is convex; its derivative is the mean of y, its second derivative the variance.

    Parameters
    ----------
    cumulant, mean, variance
        Phi and its first two derivatives, on arrays, right to a relative 10^-12, each element by
        itself. They are compared with one another on [-4, 4] when the loss is declared.
    spread
        From a reach r the least and the largest value of Phi'' on ``|z| <= r``, for every r in
        [0, inf]. It cannot be derived from finitely many values, so it is an assumption.

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
        """Refuse functions that are not derivatives of each other, by differences on [-4, 4]."""
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
        variance = self.variance(z)
        slack = 1e-9 * (1 + high)
        if not (0 <= low <= variance.min() + slack and variance.max() <= high + slack):
            raise ValueError(
                f"{type(self).__name__}.spread(4.0) gave {(low, high)!r}, which does not enclose "
                "the variance on [-4, 4]; pass its least (at least 0) and its largest value"
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
        """Return the functions' error and a difference's; for the value also a product's."""
        down, up = self._means(reach)
        mean, ends = max(abs(down), abs(up)), max(map(abs, self._labels()))
        c = self.constants(reach)
        slope = TRUSTED * mean + 2 * UNIT * (mean + ends)
        if not math.isfinite(reach + c.highest + c.lowest):
            return Rounding(math.inf, above(slope))
        phi = max(abs(c.highest), abs(c.lowest)) + ends * reach
        return Rounding(above((TRUSTED + 4 * UNIT) * phi), above(slope))

    def _means(self, reach: float) -> tuple[float, float]:
        with np.errstate(over="ignore"):
            down, up = (float(m) for m in self.mean(np.array([-reach, reach])))
        return down - abs(down) * 2 * TRUSTED, up + abs(up) * 2 * TRUSTED

    def _least(self, reach: float, y: float) -> float:
        """Return a lower bound of the least loss at a label, by bisection on the slope's sign.

        On an interval [a, b] a convex f is at least ``f(a) + min(0, f'(a)) (b - a)``; outside of it
        f is larger where ``f'(a) <= 0 <= f'(b)``.
        """

        def slope(z: float) -> float:
            return float(self.mean(np.array([z]))[0]) - y

        a, b = -min(reach, 64.0), min(reach, 64.0)
        if reach > 64 and (slope(a) > 0 or slope(b) < 0):
            return -math.inf  # the loss may decrease further, by an unknown amount
        for _ in range(60):
            middle = (a + b) / 2
            a, b = (middle, b) if slope(middle) < 0 else (a, middle)
        start = float(self.cumulant(np.array([a]))[0])
        fall = min(0.0, slope(a) - 2 * TRUSTED * (abs(y) + abs(slope(a) + y)))
        # bisection may have taken the wrong half where the slope is within its error of 0
        missed = 512 * TRUSTED * abs(y)
        return -_plus(-start, y * a) - above(abs(fall) * (b - a) + missed)


@frozen
class GeneralizedLinearCount(GeneralizedLinear):
    """The same with y in [0, most]: counts, and classes 0 and 1 (``most = 1``).

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

    most: float = field(kw_only=True, validator=positive)
    labels: ClassVar[Labels] = "count"

    def _labels(self) -> tuple[float, float]:
        return 0.0, self.most


def _plus(phi: float, product: float) -> float:
    """Return an upper bound of the sum, where the first is known to a relative `TRUSTED`."""
    return above(phi + 2 * TRUSTED * abs(phi) + product) + 4 * TRUSTED * (abs(phi) + abs(product))


# -----------------------------------------------------------------------------
# Losses whose slope grows without bound, made linear beyond a reach.


STEEPEST = 1e9
"""The largest slope of an extended loss."""


@frozen
class Extended(Loss):
    """A loss of one score that goes on in a straight line beyond a reach: ``|z| > reach``.

    ``f(c) + f'(c) (z - c)``, c the score clipped to ``[-reach, reach]``; its slope is that at c. It
    is convex where the loss is, with one derivative, and the largest slope and second derivative
    are those within the reach: so a theorem that needs them bounded at every score holds for it,
    and for all parameters, whereas the loss itself has such bounds in a ball of parameters alone.
    Where no score leaves the reach, the minimizer is that of the loss.

    Parameters
    ----------
    loss
        `Squared` or `Poisson`.
    reach
        Scores to where the loss is as it was.

    Examples
    --------
    >>> loss = Extended(Squared(), reach=2.0)
    >>> loss.slope(np.array([[1.0, 9.0]]), np.array([0.5, 0.5]))
    array([[0.5, 1.5]])
    >>> round(loss.constants().lipschitz, 6)
    3.0
    """

    loss: Loss = field(validator=instance_of((Squared, Poisson)))
    reach: float = field(validator=positive)

    @reach.validator
    def _is_not_steep(self, _: object, reach: float) -> None:
        if not self.loss.constants(reach).lipschitz <= STEEPEST:
            raise ValueError(
                f"Extended.reach is {reach!r}, where the slope of {self.loss!r} may be above "
                f"{STEEPEST:g}; pass a smaller one"
            )

    @property
    def labels(self) -> Labels:  # type: ignore[override]
        """The kind of labels that the loss reads."""
        return self.loss.labels

    @property
    def most(self) -> float:
        """The largest label, of counts."""
        return float(getattr(self.loss, "most", math.inf))

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss, or its tangent."""
        c = np.clip(z, -self.reach, self.reach)
        return np.asarray(self.loss.value(c, y) + (self.loss.slope(c, y) * (z - c))[0])

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the slope at the nearest score within the reach."""
        return self.loss.slope(np.clip(z, -self.reach, self.reach), y)

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return the slope at the nearest score within the reach."""
        reach = Decimal(self.reach)
        return self.loss.precise(max(-reach, min(z, reach)), y)

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return the second derivative, 0 beyond the reach."""
        second = self.loss.second(np.clip(z, -self.reach, self.reach), y)
        return np.where(np.abs(z) < self.reach, second, 0.0)

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those within the reach, and of straight lines beyond it."""
        c = self.loss.constants(min(reach, self.reach))
        if reach <= self.reach:
            return c
        fall = above(c.lipschitz * (reach - self.reach))
        return Constants(
            c.lipschitz, c.smoothness, 0.0, below(c.lowest - fall), above(c.highest + fall)
        )

    def rounding(self, reach: float) -> Rounding:
        """Return the loss's own; of the value also that of the tangent."""
        own, steepest = self.loss.rounding(min(reach, self.reach)), self.constants().lipschitz
        beyond = max(0.0, reach - self.reach)
        tangent = beyond * (own.slope + 8 * UNIT * steepest)
        total = UNIT * abs(self.constants(reach).highest)
        return Rounding(above(own.value + tangent + total), own.slope)


# -----------------------------------------------------------------------------
# Rows that count for less than others.


@frozen
class Weighted(Loss):
    """A loss times its row's weight in [0, 1]; labels have shape (n, 2), the weights second.

    Weights are divided by the largest that there may be, so that the heaviest row counts as a row
    without weights does: no row's slope or second derivative is larger than the loss's own, and
    sensitivities are what they are without weights. In units in which a row without a weight counts
    once, the heaviest counting c, the Lipschitz constant is c times as large.

    Parameters
    ----------
    loss
        Of a row of weight 1.

    Examples
    --------
    >>> loss = Weighted(Logistic())
    >>> loss.slope(np.zeros((1, 2)), np.array([[1.0, 1.0], [1.0, 0.25]]))
    array([[-0.5  , -0.125]])
    """

    loss: Loss = field(validator=instance_of(Loss))
    weighted: ClassVar[bool] = True

    @property
    def labels(self) -> Labels:  # type: ignore[override]
        """The kind of labels that the loss reads."""
        return self.loss.labels

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is convex; a weight changes nothing of that."""
        return self.loss.convex

    @property
    def self_concordance(self) -> float | None:  # type: ignore[override]
        """That of the loss: a weight multiplies both derivatives."""
        return self.loss.self_concordance

    @property
    def outputs(self) -> int:
        """The number of scores, k."""
        return self.loss.outputs

    @property
    def most(self) -> float:
        """The largest label, of counts."""
        return float(getattr(self.loss, "most", math.inf))

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return the loss times the weight."""
        return np.asarray(self.loss.value(z, y[:, 0]) * y[:, 1])

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return the slope times the weight."""
        return np.asarray(self.loss.slope(z, y[:, 0]) * y[:, 1])

    def precise(self, z: Any, y: Decimal, weight: Decimal = Decimal(1)) -> Any:
        """Return the slope times the weight; of several scores a list."""
        slope: Any = self.loss.precise(z, y)
        return [weight * s for s in slope] if self.outputs > 1 else weight * slope

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return the second derivative times the weight."""
        return np.asarray(self.loss.second(z, y[:, 0]) * y[:, 1])

    def constants(self, reach: float = math.inf) -> Constants:
        """Return those of the loss and of the constant 0: a weight lies between 0 and 1."""
        c = self.loss.constants(reach)
        lowest, highest = min(0.0, c.lowest), max(0.0, c.highest)
        return Constants(c.lipschitz, c.smoothness, 0.0, lowest, highest)

    def rounding(self, reach: float) -> Rounding:
        """Return the loss's own, with one rounding of the product."""
        own, c = self.loss.rounding(reach), self.constants(reach)
        value = own.value + UNIT * (max(-c.lowest, c.highest) + own.value)
        return Rounding(above(value), above(own.slope + UNIT * (c.lipschitz + own.slope)))


# -----------------------------------------------------------------------------
# Losses as strings, such as ``Huber(width=0.5)``: how documents and tables name them.
#
# A third party's loss is named with its module, ``my_module:Mine(width=0.5)``. Reading a string
# never imports code: such a loss is found only where the running program has already defined it.


LOSSES: Mapping[str, type[Loss]] = {
    "Absolute": Absolute,
    "Extended": Extended,
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
    "Weighted": Weighted,
    "ZeroOne": ZeroOne,
}
"""The library's loss functions by name; a class is the library's if it is one of these objects."""


_WEIGHTED = "Weighted(loss="
"""How the str of a weighted loss begins; that of the loss follows."""


def loss_string(loss: Loss) -> str:
    """Return a loss as a str from which `read` (or `read_any`) restores it."""
    if isinstance(loss, Weighted):
        return f"{_WEIGHTED}{loss_string(loss.loss)})"
    kind = type(loss)
    parameters = ", ".join(f"{f.name}={getattr(loss, f.name)!r}" for f in attrs.fields(kind))
    module = "" if LOSSES.get(kind.__name__) is kind else f"{kind.__module__}:"
    return f"{module}{kind.__name__}({parameters})"


def read(written: str) -> Loss:
    """Return the library's loss that a str names.

    Raises
    ------
    ValueError
        If it does not name one.

    Examples
    --------
    >>> read("Logistic()")
    Logistic()
    """
    if written.startswith(_WEIGHTED) and written.endswith(")"):
        return Weighted(read(written[len(_WEIGHTED) : -1]))
    hint = f"{written!r} is not a loss; losses are {', '.join(LOSSES)}, such as 'Logistic()'"
    return _parse(written, LOSSES, hint)


def read_any(written: str) -> Loss:
    """Return the loss that a str names, which may be one that the program has defined.

    Only for callers whose proof needs nothing of the loss: they clip its slopes.

    Raises
    ------
    ValueError
        If it does not name one.
    """
    if written.startswith(_WEIGHTED) and written.endswith(")"):
        return Weighted(read_any(written[len(_WEIGHTED) : -1]))
    module, colon, call = written.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        return read(written)
    places = ((place.partition(":"), kind) for place, kind in DEFINED.items())
    classes = {name: kind for (where, _, name), kind in places if where == module}
    hint = (
        f"{written!r} is not a loss that the program has defined: import {module} first; its class "
        "must be at the top level of a module, frozen by attrs, its parameters numbers or str"
    )
    return _parse(call, classes, hint)


def _parse(call: str, classes: Mapping[str, type[Loss]], hint: str) -> Loss:
    try:
        expression = ast.parse(call, mode="eval").body
        assert isinstance(expression, ast.Call)
        assert isinstance(expression.func, ast.Name)
        assert not expression.args
        # literals only: nothing in the str is executed
        parameters: dict[str, Any] = {
            str(k.arg): (
                _parse(ast.unparse(k.value), classes, hint)  # a loss of a loss
                if isinstance(k.value, ast.Call)
                else ast.literal_eval(k.value)
            )
            for k in expression.keywords
        }
        kind = classes[expression.func.id]
    except (SyntaxError, AssertionError, KeyError, ValueError, RecursionError, MemoryError):
        raise ValueError(hint) from None
    return kind(**parameters)
