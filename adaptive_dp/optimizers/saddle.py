"""What a minimax optimizer is given: a game of a learner x against an adversary y."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.optimizers.objective import Floats, Objective
from adaptive_dp.optimizers.sets import Simplex


class Saddle(Protocol):
    """``f(x, y)``, strongly convex in x and *concave* in y, over a product of closed convex sets.

    Concave adversaries are weights of groups, ``f(x, y) = sum of y_k F_k(x)``, or penalised ones.
    The shift v of a row within a ball is none for a linear model: its loss is convex in v. There
    the worst shift has a closed form, and the worst loss is an objective of its own.
    """

    @property
    def adversary(self) -> int:
        """The number of the adversary's parameters."""
        ...

    @property
    def smooth(self) -> float:
        """A Lipschitz constant of f's gradient in x and y together."""
        ...

    def against(self, y: Floats) -> Objective:
        """Return ``f(., y)`` as an objective; `strong` and `lipschitz` hold for every y."""
        ...

    def ascent(self, x: Floats, y: Floats) -> Floats:
        """Return the gradient of f by y at (x, y)."""
        ...

    def project(self, y: Floats) -> Floats:
        """Return the nearest point of the adversary's set; exactly in it, if not the nearest."""
        ...

    def rise(self, x: Floats, y: Floats) -> float:
        """Return an upper bound of ``max f(x, .) - f(x, y)``, rounding included."""
        ...


def weights(y: Floats) -> Floats:
    """Return the point of the unit simplex that is nearest to y, but with a sum of exactly 1.

    The projection is cut to multiples of ``2^-50``, and its largest takes the rest: all these
    numbers, and every sum of them, are floats. The proof of a solution needs weights that the
    adversary may really choose.

    Examples
    --------
    >>> weights(np.array([1.0, 0.5, -1.0]))
    array([0.75, 0.25, 0.  ])
    """
    whole = np.floor(Simplex().project(y) * 2.0**50).astype(np.int64)
    whole[np.argmax(whole)] += 2**50 - int(whole.sum())
    return np.asarray(whole * 2.0**-50)


@frozen(eq=False)
class Near:
    """``F(w) + weight |w - center|^2``: what a proximal point method minimizes in each round.

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> near = Near(problem, center=np.zeros(2), weight=1.0)
    >>> round(near.strong, 6)
    2.5
    """

    inner: Objective
    center: Floats
    weight: float

    @property
    def width(self) -> int:
        """The number of parameters."""
        return self.inner.width

    @property
    def parts(self) -> int:
        """The number of summands; the new term is spread evenly over them."""
        return self.inner.parts

    @property
    def strong(self) -> float:
        """The strong convexity of both terms."""
        return self.inner.strong + 2 * self.weight

    @property
    def smooth(self) -> float:
        """The smoothness of both terms."""
        return self.inner.smooth + 2 * self.weight

    @property
    def lipschitz(self) -> float:
        """None: the set may be unbounded."""
        return np.inf

    def value(self, w: Floats) -> float:
        """Return the sum of both terms."""
        return self.inner.value(w) + self.weight * float(np.sum((w - self.center) ** 2))

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient of both terms."""
        return self.inner.gradient(w) + 2 * self.weight * (w - self.center)

    def rounding(self, w: Floats) -> float:
        """Return the inner rounding with that of three more operations."""
        far = float(np.linalg.norm(w) + np.linalg.norm(self.center))
        slope = float(np.linalg.norm(self.inner.gradient(w)))
        return self.inner.rounding(w) + 2.0**-50 * (2 * self.weight * far + slope)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the chosen parts' gradients with their share of the new term."""
        share = 2 * self.weight * len(chosen) / self.parts
        return self.inner.part(chosen, w) + share * (w - self.center)

    def project(self, w: Floats) -> Floats:
        """Return the inner projection."""
        return self.inner.project(w)

    def astray(self, w: Floats) -> float:
        """Return the inner projection's rounding."""
        return self.inner.astray(w)
