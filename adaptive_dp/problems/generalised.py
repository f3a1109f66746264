"""The loss of a generalised linear model, from its cumulant function.

The density of y is ``h(y) exp(y z - Phi(z))`` (with a known dispersion both are divided by it), so
the negative log-likelihood is ``Phi(z) - y z`` up to what hangs on y alone. Phi is convex, its
derivative the mean of y, its second derivative the variance. The loss is a function of the pair
(z, y), not of the margin yz.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.problems.loss import Constants, Floats, Labels, Loss
from adaptive_dp.problems.rounding import UNIT, Rounding, above, below
from adaptive_dp.problems.smoothing import positive

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
