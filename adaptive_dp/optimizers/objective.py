"""What an optimizer is given, and what it returns.

An objective is a convex function F of p numbers over a closed convex set, a sum of n parts. A
solution comes with a proof of how near it is, computed from F on the whole data after the search
ended (`certificate.py`): where F is mu-strongly convex, ``|w - w*| <= residual / mu``. An expected
or an asymptotic rate is no such proof, and the number of steps is not one either.

How near it came, how many steps it took and whether it came near at all depend on the data: they
are private. What is public is the tolerance, fixed in advance.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Objective(Protocol):
    """A convex function, a sum of parts, over a closed convex set.

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> problem.width, problem.parts, round(problem.strong, 6)
    (2, 2, 0.5)
    """

    @property
    def width(self) -> int:
        """The number of parameters, p."""
        ...

    @property
    def parts(self) -> int:
        """The number of summands, n."""
        ...

    @property
    def strong(self) -> float:
        """A mu for which F is mu-strongly convex; 0 where none is known."""
        ...

    @property
    def smooth(self) -> float:
        """A Lipschitz constant of F's gradient; infinite where it has none."""
        ...

    @property
    def lipschitz(self) -> float:
        """A Lipschitz constant of F on the set; infinite where it has none."""
        ...

    def value(self, w: Floats) -> float:
        """Return F(w)."""
        ...

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient of F at w, shape (p,)."""
        ...

    def rounding(self, w: Floats) -> float:
        """Return the most, in l2 norm, by which `gradient` at w is off."""
        ...

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen parts' subgradients at w, shape (p,)."""
        ...

    def project(self, w: Floats) -> Floats:
        """Return the point of the set that is nearest to w."""
        ...

    def astray(self, w: Floats) -> float:
        """Return the most, in l2 norm, by which `project` at w is off; 0 where it is exact."""
        ...


@runtime_checkable
class Curved(Protocol):
    """What an objective may offer besides: second derivatives.

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> isinstance(problem, Curved), problem.hessian(np.zeros(2)).tolist()
    (True, [[0.75, 0.0], [0.0, 0.75]])
    """

    def hessian(self, w: Floats) -> Floats:
        """Return the second derivative of F at w, shape (p, p)."""
        ...


@runtime_checkable
class Gapped(Protocol):
    """What an objective may offer besides: a duality gap, the proof where F has kinks.

    Examples
    --------
    >>> class Sides:
    ...     def gap(self, w):  # of the sum of |w_i|, which is least at 0
    ...         return float(np.abs(w).sum()) * (1 + 1e-12)
    >>> isinstance(Sides(), Gapped)
    True
    """

    def gap(self, w: Floats) -> float:
        """Return an upper bound of ``F(w) - min F`` for w in the set, rounding included."""
        ...


class NotReached(Exception):
    """No solution within the tolerance was found. That it happened is private, so say no more."""


@frozen(eq=False)
class Solution:
    """Where an optimizer ended.

    Parameters
    ----------
    w
        Shape (p,), in the set but for the projection's rounding.
    residual
        An upper bound of mu times the distance from w to the minimizer, rounding included;
        infinite where nothing is proven.
    gradients
        How many gradients of single parts were computed, those of the proof included.

    Examples
    --------
    >>> from adaptive_dp.optimizers import minimize
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> found = minimize(problem, tolerance=1e-6)
    >>> found.w.shape, found.residual / problem.strong <= 2e-6  # its distance to the minimizer
    ((2,), True)
    """

    w: Floats
    residual: float
    gradients: int
