"""A row's loss as a function of its scores and its label, with the constants that proofs need.

Outward rounding of those constants, the smoothing of kinks, and what labels a loss reads.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

# -----------------------------------------------------------------------------
# Bounds that stay bounds in float64, and what one computed loss may be off by.
#
# A sum of n products, in whatever order (fused multiply-adds included), is off by at most
# ``gamma(n) sum |a_i b_i|`` (Higham 2002, equation 3.5). Of ``exp``, ``log`` and ``log1p`` it is
# assumed that they are right to `ULPS` units in the last place, which NumPy promises for its own
# loops and the usual C libraries keep; that matrix products are sums of products, not Strassen's.


UNIT = 2.0**-53
"""The largest relative error of one addition, product, quotient or root."""
ULPS = 4
ELEMENTARY = 2 * ULPS * UNIT
"""The largest relative error of an elementary function (one ulp is at most two units)."""
TINY = 1e-290
"""More than all the underflows of a sum: 10^30 of them, each below 10^-323."""


class Rounding(NamedTuple):
    """The most by which a row's computed value and slope (l2 norm) are off, at given scores."""

    value: float
    slope: float


def gamma(terms: int) -> float:
    """Return a bound of ``n u / (1 - n u)``."""
    if terms * UNIT >= 0.5:
        return math.inf
    return above(terms * UNIT / (1 - terms * UNIT))


def above(x: float) -> float:
    """Return a number above x, by a part in 10^12: more than a dozen roundings are off by."""
    return math.nextafter(x + abs(x) * 1e-12, math.inf) if math.isfinite(x) else x


def below(x: float) -> float:
    """Return a number below x, by a part in 10^12."""
    return -above(-x)


def exp(x: float) -> float:
    """Return e^x, infinite where it is no float."""
    return math.exp(x) if x < 709 else math.inf


# -----------------------------------------------------------------------------
# A row's loss, as a function of its scores and its label.
#
# A linear model with k outputs has parameters W of shape (k, p) and gives a row x the scores
# ``z = W x``. A loss is a function of z and the label y alone (a generalised linear model), so that
# a row's gradient is ``slope(z, y) x'``: its norm is ``|slope| |x|``, and clipping it scales the
# slope. The empirical risk is the *sum* over rows; of a mean, Lipschitz constant, smoothness and
# curvature are n times smaller (n is public then).
#
# Every function works on each column by itself: what a row's value is hangs on that row alone, to
# the last bit, wherever the row stands. The sensitivity of sums rests on it.


Floats = NDArray[np.float64]
Labels = Literal["sign", "class", "number", "count"]
"""What a loss reads as y: -1 or 1; 0, ..., k - 1; a number in [-1, 1]; a number from 0 on."""


@frozen
class Constants:
    """What holds for a loss at every score of norm at most ``reach``, and every label.

    Parameters
    ----------
    lipschitz
        The largest l2 norm of the slope (of any subgradient).
    smoothness
        The largest eigenvalue of the second derivative by z; infinite where there is none.
    curvature
        Its least eigenvalue, at least 0: what strong convexity the loss has in z.
    lowest, highest
        Bounds of the value.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.Logistic().constants()
    Constants(lipschitz=1.0, smoothness=0.25, curvature=0.0, lowest=0.0, highest=inf)
    >>> round(dp.Squared().constants(reach=2.0).lipschitz, 6)  # beyond reach it grows
    3.0
    """

    lipschitz: float
    smoothness: float
    curvature: float = 0.0
    lowest: float = 0.0
    highest: float = math.inf


DEFINED: WeakValueDictionary[str, type[Loss]] = WeakValueDictionary()
"""Each class of losses that the program has defined, the latest, by ``module:name``."""


@frozen
class Loss:
    """Base of the losses: frozen values without data.

    `constants` are upper bounds (`curvature` and `lowest` lower bounds) in floating point too.

    Examples
    --------
    A smooth kin of the absolute error, whose slope is bounded by 1:

    >>> from attrs import frozen
    >>> @frozen
    ... class PseudoHuber(Loss):
    ...     labels = "number"
    ...
    ...     def value(self, z, y):
    ...         return np.sqrt(1 + (z[0] - y) ** 2) - 1
    ...
    ...     def slope(self, z, y):
    ...         return (z - y) / np.sqrt(1 + (z - y) ** 2)
    ...
    ...     def constants(self, reach=math.inf):
    ...         return Constants(lipschitz=1.0, smoothness=1.0)
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> learner = dp.NoisyGradientDescent(["age"], "days", PseudoHuber(), steps=100)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    labels: ClassVar[Labels]
    convex: ClassVar[bool] = True
    monotone: ClassVar[bool] = False
    """Whether the slope has the same sign at every score, given the label (one output)."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Note the class, so that a document that names it finds it."""
        super().__init_subclass__(**options)
        DEFINED[f"{cls.__module__}:{cls.__name__}"] = cls

    @property
    def outputs(self) -> int:
        """The number of scores, k."""
        return 1

    def value(self, z: Floats, y: Floats) -> Floats:
        """Return each row's loss, shape (n,), from scores of shape (k, n) and labels (n,)."""
        raise NotImplementedError(f"{type(self).__name__} must define value(z, y)")

    def slope(self, z: Floats, y: Floats) -> Floats:
        """Return each row's derivative by its scores, shape (k, n); a subgradient at a kink."""
        raise NotImplementedError(f"{type(self).__name__} must define slope(z, y)")

    def precise(self, z: Decimal, y: Decimal) -> Decimal:
        """Return the slope of one score in decimals, to the precision of their context.

        Needed only where rounding must not count: `slope` may be off by 2^-48 of the Lipschitz
        constant.
        """
        raise NotImplementedError(f"{type(self).__name__} has no slope in decimals")

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return each row's second derivative, shape (k, k, n); 0 at a kink."""
        raise NotImplementedError(f"{type(self).__name__} has no second derivative")

    def constants(self, reach: float = math.inf) -> Constants:
        """Return what holds at every score of norm at most ``reach``."""
        raise NotImplementedError(f"{type(self).__name__} must define constants(reach)")

    def rounding(self, reach: float) -> Rounding:
        """Return what a row's computed value and slope are off by, at scores within reach.

        Infinite where nobody has bounded it: no certificate can then rest on computed gradients.
        """
        return Rounding(math.inf, math.inf)


# -----------------------------------------------------------------------------
# The hinge ``max(0, d)`` with its kink rounded off by a parabola of some width.
#
# ``0`` for d <= 0, ``d^2 / (2w)`` for 0 <= d <= w, ``d - w/2`` beyond: convex, its slope in [0, 1]
# and 1/w-Lipschitz. Huber's function is ``w`` times that of ``|r|``.


def ramp(d: Floats, width: float) -> Floats:
    """Return the function; one expression for all three pieces."""
    inside = np.clip(d, 0.0, width)
    return np.asarray(inside * ((d - inside / 2) / width) + 0.0)  # no negative 0


def ramp_slope(d: Floats, width: float) -> Floats:
    """Return its derivative, in [0, 1]."""
    return np.asarray(np.clip(d / width, 0.0, 1.0))


def ramp_second(d: Floats, width: float) -> Floats:
    """Return its second derivative, 0 at the two kinks of the slope."""
    return np.where((d > 0) & (d < width), 1 / width, 0.0)


def positive(owner: str, name: str, given: float) -> None:
    """Refuse a width that is none."""
    if not 0 < given < float("inf"):
        raise ValueError(
            f"{owner}.{name} must be a positive finite number, got {given!r}; pass such as 0.5"
        )


# -----------------------------------------------------------------------------
# Whether labels are what a loss reads.


EXPECTED = {
    "sign": "-1 or 1",
    "class": "a whole number from 0 to {last}",
    "number": "in [-1, 1]",
    "count": "from 0 to {most}",
}


def legal(loss: Loss, y: Floats) -> bool:
    """Return whether every label is one that the loss's constants cover."""
    if loss.labels == "sign":
        return bool(np.all(np.abs(y) == 1))
    if loss.labels == "class":
        return bool(np.all((y >= 0) & (y < loss.outputs) & (y == np.floor(y))))
    low, high = (-1.0, 1.0) if loss.labels == "number" else (0.0, _most(loss))
    return bool(np.all((y >= low) & (y <= high) & np.isfinite(y)))


def expected(loss: Loss) -> str:
    """Return in words what a label must be."""
    return EXPECTED[loss.labels].format(last=loss.outputs - 1, most=_most(loss))


def _most(loss: Loss) -> float:
    return float(getattr(loss, "most", math.inf))
