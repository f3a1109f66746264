"""A row's loss, as a function of its scores and its label.

A linear model with k outputs has parameters W of shape (k, p) and gives a row x the scores
``z = W x``. A loss is a function of z and the label y alone (a generalised linear model), so that
a row's gradient is ``slope(z, y) x'``: its norm is ``|slope| |x|``, and clipping it scales the
slope. The empirical risk is the *sum* over rows; of a mean, Lipschitz constant, smoothness and
curvature are n times smaller (n is public then).

Every function works on each column by itself: what a row's value is hangs on that row alone, to
the last bit, wherever the row stands. The sensitivity of sums rests on it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.problems.rounding import Rounding

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
