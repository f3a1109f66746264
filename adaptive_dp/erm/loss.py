"""The base of losses: a row's loss as a function of its scores and its label.

Also the constants of a loss that proofs need (`Constants`), their outward rounding (`above`,
`below`, `gamma`), the smoothing of kinks (`ramp`), and the labels that a loss reads.
"""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from attrs import Attribute, frozen
from numpy.typing import NDArray

# -----------------------------------------------------------------------------
# Outward rounding: bounds that stay bounds in float64, and the error of a computed loss.
#
# A sum of n products, in whatever order (fused multiply-adds included), is off by at most
# ``gamma(n) sum |a_i b_i|`` (Higham 2002, equation 3.5). It is assumed that ``exp``, ``log`` and
# ``log1p`` are right to `ULPS` units in the last place, as NumPy promises for its own loops and the
# usual C libraries are; and that matrix products are sums of products, not Strassen's.


UNIT = 2.0**-53
"""The largest relative error of one addition, product, quotient or root."""
ULPS = 4
ELEMENTARY = 2 * ULPS * UNIT
"""The largest relative error of an elementary function (one ulp is at most two units)."""
TINY = 1e-290
"""An upper bound of all underflows of a sum: 10^30 of them, each below 10^-323."""


class Rounding(NamedTuple):
    """Upper bounds of the errors of a row's computed value and slope (in l2 norm)."""

    value: float
    slope: float


def gamma(terms: int) -> float:
    """Return ``gamma_n = n u / (1 - n u)``, rounded up (Higham 2002, equation 3.5)."""
    if terms * UNIT >= 0.5:
        return math.inf
    return above(terms * UNIT / (1 - terms * UNIT))


def above(x: float) -> float:
    """Return a number above x by a relative 10^-12, which is more than dozens of roundings."""
    # nextafter keeps it above x where x is 0 or subnormal
    return math.nextafter(x + abs(x) * 1e-12, math.inf) if math.isfinite(x) else x


def below(x: float) -> float:
    """Return a number below x by a relative 10^-12."""
    return -above(-x)


def exp(x: float) -> float:
    """Return e^x, infinity where it overflows: an upper bound there, where `math.exp` raises."""
    return math.exp(x) if x < 709 else math.inf


# -----------------------------------------------------------------------------
# The base class of losses, and the constants that proofs need.


Floats = NDArray[np.float64]
Labels = Literal["sign", "class", "number", "count"]
"""Kinds of labels y: -1 or 1; 0, ..., k - 1; a number in [-1, 1]; a number of at least 0."""


@frozen
class Constants:
    """Constants of a loss, valid at every score of norm at most ``reach`` and every label.

    Parameters
    ----------
    lipschitz
        The largest l2 norm of the slope (of any subgradient).
    smoothness
        An upper bound of the eigenvalues of the second derivative by z; infinite where the loss
        has kinks.
    curvature
        A lower bound of those eigenvalues, at least 0: the loss's strong convexity in z.
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
"""The classes of losses that the program has defined, by ``module:name`` (the latest of each)."""


@frozen
class Loss:
    """The base class of losses of one row: frozen values that hold no data.

    A linear model with k outputs has parameters W of shape (k, p) and gives a row x the scores
    ``z = W x``. A loss is a function of z and the label y alone (a generalised linear model), so
    that a row's gradient is ``slope(z, y) x'``: its norm is ``|slope| |x|``, and clipping it scales
    the slope. The empirical risk is the *sum* over rows; for the mean, the Lipschitz constant,
    smoothness and curvature are n times smaller (n is public then).

    A subclass defines `value`, `slope` and `constants`; the other methods where a learner needs
    them.

    Notes
    -----
    Every method must treat each column by itself: a row's value must not depend on other rows, to
    the last bit. The sensitivity of sums rests on it.

    `constants` are upper bounds (`curvature` and `lowest` lower bounds) in floating point too.

    Examples
    --------
    The pseudo-Huber loss, a smooth version of the absolute error with slopes below 1:

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
    >>> model = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(model["age"], 1)
    0.3
    """

    labels: ClassVar[Labels]
    convex: ClassVar[bool] = True
    monotone: ClassVar[bool] = False
    """Whether the slope has the same sign at every score, given the label (one output)."""
    self_concordance: ClassVar[float | None] = None
    """k with third derivatives of size at most k times the second, at every score (Bach 2010)."""
    weighted: ClassVar[bool] = False
    """Whether labels have shape (n, 2): a label and its row's weight in [0, 1] (`Weighted`)."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Register the class, so that a document that names it can be read."""
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

        Needed only where a proof allows no rounding: `slope` may be off by 2^-48 of the Lipschitz
        constant, or by what `rounding` says at every score.
        """
        raise NotImplementedError(f"{type(self).__name__} has no slope in decimals")

    def second(self, z: Floats, y: Floats) -> Floats:
        """Return each row's second derivative, shape (k, k, n); 0 at a kink."""
        raise NotImplementedError(f"{type(self).__name__} has no second derivative")

    def constants(self, reach: float = math.inf) -> Constants:
        """Return the constants at every score of norm at most ``reach``."""
        raise NotImplementedError(f"{type(self).__name__} must define constants(reach)")

    @property
    def slope_bound(self) -> float:
        """The largest ``|l'|`` at any score and label; infinite where there is none."""
        return self.constants().lipschitz

    @property
    def second_bound(self) -> float:
        """The largest eigenvalue of l'' at any score and label; infinite where there is none.

        Raises
        ------
        ValueError
            If the loss has kinks, where no second derivative exists.
        """
        if self.constants(1.0).smoothness == math.inf:
            raise ValueError(
                f"{type(self).__name__} has kinks, so it has no second derivative; use a smooth "
                "loss such as SmoothedHinge() or Huber()"
            )
        return self.constants().smoothness

    def rounding(self, reach: float) -> Rounding:
        """Return bounds of the errors of a row's computed value and slope, at scores within reach.

        Infinite unless a subclass bounds them: then no certificate can rest on computed gradients.
        """
        return Rounding(math.inf, math.inf)


# -----------------------------------------------------------------------------
# Losses of the margin.


@frozen
class MarginLoss(Loss):
    """The base of losses of two classes that depend on the margin ``m = y z`` alone, y in {-1, 1}.

    Every loss here is one of a generalized linear model, a function of the score z and the label y.
    Those of the margin are fewer: the negative log-likelihood of a Gaussian, ``z^2 / 2 - y z``,
    differs at (1, 1) and (2, 1/2), where the margin is 1. The slope ``y l'(m)`` is of size at most
    `slope_bound`, the second derivative ``l''(m)`` at most `second_bound`.

    A subclass is a `Loss` with labels ``"sign"``; whether it depends on the margin alone is tried
    when it is declared (`margin_witness`).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> isinstance(dp.Logistic(), MarginLoss), isinstance(dp.Squared(), MarginLoss)
    (True, False)
    >>> dp.Logistic().slope_bound, dp.Logistic().second_bound
    (1.0, 0.25)
    """

    labels: ClassVar[Labels] = "sign"

    def __attrs_post_init__(self) -> None:
        """Refuse a loss of other labels, or one that is no function of the margin."""
        name = type(self).__name__
        if self.labels != "sign" or self.outputs != 1:
            raise ValueError(
                f"{name} is declared as a loss of the margin, which one score and labels -1 and 1 "
                f"have, got labels {self.labels!r} and {self.outputs} scores; derive it from Loss"
            )
        witness = margin_witness(self)
        if witness is not None:
            raise ValueError(
                f"{name} is declared as a loss of the margin, but differs at the scores and labels "
                f"{witness[0]} and {witness[1]}, whose products are equal; derive it from Loss"
            )


Labeled = tuple[float, float]
"""A score and a label."""


def margin_witness(loss: Loss) -> tuple[Labeled, Labeled] | None:
    """Return two scores with labels of one product ``y z`` and different losses, or None.

    A witness is a proof that the loss (of one score) is no function of the margin; None proves
    nothing. Of a loss without values the slopes ``y l'(y z)`` are compared.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> margin_witness(dp.Squared())  # (z - y)^2 / 2 is 0 at the first, 9/8 at the second
    ((1.0, 1.0), (2.0, 0.5))
    >>> margin_witness(dp.Logistic()) is None
    True
    """
    if loss.outputs != 1 or loss.labels == "class" or loss.weighted:
        raise ValueError(f"a margin is of one score and its label, got {type(loss).__name__}")
    most = _largest_label(loss)
    ends = {"sign": (1.0, -1.0), "number": (1.0, 0.5, -0.5, -1.0)}
    labels = np.array(ends.get(loss.labels, (most, most / 2, most / 4)))
    margins = np.array([1.0, -1.0, 0.5, -0.5, 3.0, -3.0])
    y, m = (grid.ravel() for grid in np.meshgrid(labels, margins))
    z = m / y
    try:
        values = loss.value(z[None], y)
    except NotImplementedError:
        values = y * loss.slope(z[None], y)[0]
    table = values.reshape(len(margins), len(labels))
    # far above the rounding of either
    differ = np.abs(table - table[:, :1]) > 1e-9 * (1 + np.abs(table[:, :1]))
    if not differ.any():
        return None
    row, column = (int(i) for i in np.argwhere(differ)[0])
    margin, first, other = margins[row], labels[0], labels[column]
    return (float(margin / first), float(first)), (float(margin / other), float(other))


# -----------------------------------------------------------------------------
# Smoothing: the hinge ``max(0, d)`` with its kink replaced by a parabola of width w.
#
# ``0`` for d <= 0, ``d^2 / (2w)`` for 0 <= d <= w, ``d - w/2`` beyond: convex, its slope in [0, 1]
# and 1/w-Lipschitz, at most w/2 below the hinge. Huber's function of r is w times that of ``|r|``.


def ramp(d: Floats, width: float) -> Floats:
    """Return the smoothed hinge of d; one expression for all three pieces."""
    inside = np.clip(d, 0.0, width)
    return np.asarray(inside * ((d - inside / 2) / width) + 0.0)  # no negative 0


def ramp_slope(d: Floats, width: float) -> Floats:
    """Return its derivative, in [0, 1]."""
    return np.asarray(np.clip(d / width, 0.0, 1.0))


def ramp_second(d: Floats, width: float) -> Floats:
    """Return its second derivative, 0 at the two kinks of the slope."""
    return np.where((d > 0) & (d < width), 1 / width, 0.0)


def positive(owner: object, attribute: Attribute[float], value: float) -> None:
    """Refuse a parameter that is not a positive finite number: a validator of attrs."""
    # an array or a function would be data, or something computed of them
    if not isinstance(value, Real):
        raise ValueError(
            f"{type(owner).__name__}.{attribute.name} must be a number, which no data enter, got a "
            f"{type(value).__name__}; pass such as 0.5"
        )
    if not 0 < value < math.inf:
        raise ValueError(
            f"{type(owner).__name__}.{attribute.name} must be a positive finite number, got "
            f"{value!r}; pass such as 0.5"
        )


# -----------------------------------------------------------------------------
# Checks of labels.


EXPECTED = {
    "sign": "-1 or 1",
    "class": "an integer from 0 to {last}",
    "number": "in [-1, 1]",
    "count": "from 0 to {most}",
}


def labels_are_valid(loss: Loss, y: Floats) -> bool:
    """Return whether every label is one that the loss's constants cover."""
    if loss.weighted:
        y, weights = y[:, 0], y[:, 1]
        if not np.all((weights >= 0) & (weights <= 1)):
            return False
    if loss.labels == "sign":
        return bool(np.all(np.abs(y) == 1))
    if loss.labels == "class":
        return bool(np.all((y >= 0) & (y < loss.outputs) & (y == np.floor(y))))
    low, high = (-1.0, 1.0) if loss.labels == "number" else (0.0, _largest_label(loss))
    return bool(np.all((y >= low) & (y <= high) & np.isfinite(y)))


def expected_labels(loss: Loss) -> str:
    """Return a description of the labels that a loss reads, for messages."""
    text = EXPECTED[loss.labels].format(last=loss.outputs - 1, most=_largest_label(loss))
    return f"{text}, with a weight in [0, 1]" if loss.weighted else text


def _largest_label(loss: Loss) -> float:
    return float(getattr(loss, "most", math.inf))
