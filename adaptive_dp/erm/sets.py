"""Closed convex sets with their projections, and the rounding errors of these.

The projection P(w) on a closed convex set C is the nearest point of C; ``P(P(w)) = P(w)``, and it
is nonexpansive: ``|P(v) - P(w)| <= |v - w|``. `project` computes it; `projection_error` bounds the
l2 distance from the computed point to P(w), which certificates of solutions need
(`adaptive_dp.erm.objective`).

A point that `project` returned is not changed when projected again, to the last bit. A point that
is not finite has no projection: the result is then not finite either, and nothing is proven of it.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from attrs import field, frozen

from adaptive_dp.erm.loss import positive
from adaptive_dp.erm.objective import Floats

EPS = 2.0**-52


class Set(Protocol):
    """The protocol of closed convex sets of R^p with a computable projection.

    Examples
    --------
    >>> bool(Ball(1.0).projection_error(np.array([3.0, 4.0])) < 1e-12)
    True
    """

    def project(self, w: Floats) -> Floats:
        """Return the point of the set that is nearest to w."""
        ...

    def projection_error(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed ``project(w)``."""
        ...


def _numbers(values: object) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.ndim > 1 or not array.size or np.isnan(array).any():
        raise ValueError(f"a set needs a list of numbers, got shape {array.shape}")
    array.flags.writeable = False
    return array


def norm(w: Floats) -> float:
    """Return the l2 norm, to within ``len(w) / 2 + 3`` units of rounding, without overflow."""
    # scaled by the largest coordinate, so that no square overflows
    top = float(np.max(np.abs(w), initial=0.0))
    return top * float(np.linalg.norm(w / top)) if 0 < top < math.inf else top


@frozen
class Everywhere:
    """All of R^p.

    Examples
    --------
    >>> Everywhere().project(np.array([3.0, 4.0]))
    array([3., 4.])
    """

    def project(self, w: Floats) -> Floats:
        """Return w."""
        return w

    def projection_error(self, w: Floats) -> float:
        """Return 0."""
        return 0.0


@frozen
class Ball:
    """The l2 ball ``|w|_2 <= radius``.

    Examples
    --------
    >>> Ball(1.0).project(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    radius: float = field(validator=positive)

    def project(self, w: Floats) -> Floats:
        """Return w, scaled down to the radius where it is longer."""
        if not self.radius < norm(w) < math.inf:
            return w
        direction = w / np.max(np.abs(w))  # its squares neither overflow nor underflow together
        point = direction * (self.radius / float(np.linalg.norm(direction)))
        for _ in range(8):  # a product that was rounded up may lie outside of the ball
            if (length := norm(point)) <= self.radius:
                break
            point = point * np.nextafter(self.radius / length, 0.0)
        return np.asarray(point)

    def projection_error(self, w: Floats) -> float:
        """Return the error of two norms and up to 20 products; 0 for points well inside.

        A norm is off by a relative ``(p/2 + 3) u`` (u the unit of rounding), so that no point of a
        norm below ``(1 - (p/2 + 8) u) radius`` is changed; each coordinate has at most 20 roundings
        besides.
        """
        # EPS is 2 u: (p + 24) EPS covers two norms, of p/2 + 3 units each, and the products
        share = (len(w) + 24) * EPS
        return 0.0 if math.hypot(*w) <= self.radius * (1 - share) else self.radius * share


@frozen(eq=False)
class Box:
    """The box ``low <= w <= high``, coordinate by coordinate; its projection is exact.

    Parameters
    ----------
    low, high
        Numbers, or one for each coordinate.

    Examples
    --------
    >>> Box(low=0.0, high=[1.0, 5.0]).project(np.array([3.0, 4.0]))
    array([1., 4.])
    """

    low: Floats = field(converter=_numbers)
    high: Floats = field(converter=_numbers)

    def __attrs_post_init__(self) -> None:
        fit = self.low.ndim == 0 or self.high.ndim == 0 or self.low.shape == self.high.shape
        if not fit or not (self.low <= self.high).all():
            raise ValueError("Box needs as many `low` as `high`, none of them above its `high`")

    def project(self, w: Floats) -> Floats:
        """Return w, clipped."""
        return np.clip(w, self.low, self.high)

    def projection_error(self, w: Floats) -> float:
        """Return 0."""
        return 0.0


@frozen
class Simplex:
    """The simplex: ``w >= 0`` with sum ``total``.

    The projection is ``max(w - c, 0)`` for the c at which its sum is ``total`` (Held, Wolfe and
    Crowder 1974; Duchi and others 2008).

    Examples
    --------
    >>> Simplex().project(np.array([1.0, 0.5, -1.0]))
    array([0.75, 0.25, 0.  ])
    """

    total: float = field(default=1.0, validator=positive)

    def __contains__(self, w: Floats) -> bool:
        # points within the rounding of a sum are kept, so that projecting twice changes nothing
        off = abs(math.fsum(w) - self.total)
        return bool(np.all(w >= 0)) and off <= 2 * len(w) * float(np.spacing(self.total))

    def project(self, w: Floats) -> Floats:
        """Return ``max(w - c, 0)``.

        c is computed for w less its largest coordinate: a shift of all coordinates changes no
        projection on the simplex.
        """
        if not np.isfinite(w).all():
            return np.full(len(w), math.nan)
        if w in self:
            return w
        w = w - np.max(w)
        descending = -np.sort(-w)
        # as the largest is 0, c >= -total: smaller coordinates become 0 in the projection
        descending = descending[descending >= -self.total]
        # Held, Wolfe and Crowder 1974: c from the largest coordinates, by the best number of them
        c = float(np.max((np.cumsum(descending) - self.total) / np.arange(1, len(descending) + 1)))
        for _ in range(64):  # Newton steps on a convex piecewise linear function, summed exactly
            positive = w[w > c]
            last, c = c, (math.fsum(positive) - self.total) / len(positive)
            if abs(c - last) <= 2 * np.spacing(self.total):
                break
        return np.asarray(np.maximum(w - c, 0.0))

    def projection_error(self, w: Floats) -> float:
        """Return a bound of the error of c, and so of the projection, from the projection's sum.

        The sum of ``max(w - c, 0)`` decreases in c at a rate of at least 1 while it is positive, so
        the error of c, and of each coordinate, is at most that of the sum. ``w - max w`` is rounded
        coordinate by coordinate, and a projection is nonexpansive.
        """
        point = self.project(w)
        sum_error = abs(math.fsum(point) - self.total) + EPS * self.total
        norms = np.linalg.norm(w - np.max(w)) + np.linalg.norm(point)
        # the rate of 1 holds only while some coordinate is positive
        is_valid = math.fsum(point) > 0
        bound = 2 * math.sqrt(len(w)) * sum_error + 2 * EPS * float(norms)
        return bound if is_valid else math.inf


@frozen(eq=False)
class Ellipsoid:
    """The ellipsoid ``sum of (w_i / axes_i)^2 <= 1``.

    The projection of a point outside is ``a_i^2 w_i / (a_i^2 + c)``, with the c > 0 at which it
    lies on the surface; c is computed by bisection.

    Examples
    --------
    >>> Ellipsoid(axes=[1.0, 2.0]).project(np.array([3.0, 0.0])).round(9)
    array([1., 0.])
    """

    axes: Floats = field(converter=_numbers)

    def __attrs_post_init__(self) -> None:
        if self.axes.ndim != 1 or not ((self.axes > 0) & (self.axes < math.inf)).all():
            raise ValueError("Ellipsoid.axes must be positive finite numbers")

    def _height(self, w: Floats) -> float:
        return float(np.sum((w / self.axes) ** 2))

    def project(self, w: Floats) -> Floats:
        """Return w, or the nearest point of the surface where it is outside."""
        if not np.isfinite(w).all():
            return np.full(len(w), math.nan)
        if self._height(w) <= 1:
            return w
        squares = self.axes**2
        # at this c the height is at most sum (a_i w_i / c)^2 <= 1: inside
        low, high = 0.0, float(np.max(self.axes) * np.linalg.norm(w))
        for _ in range(1100):
            middle = (low + high) / 2
            # neighbouring floats: no further bisection is possible
            if not low < middle < high:
                break
            outside = self._height(squares * w / (squares + middle)) > 1
            low, high = (middle, high) if outside else (low, middle)
        # `high` is the end at which the point was not outside
        return np.asarray(squares * w / (squares + high))

    def projection_error(self, w: Floats) -> float:
        r"""Return a bound of the error of the projection, from its height ``sum (x_i / a_i)^2``.

        Let x(c) be the point and h(c) its height, ``h' = -2 sum x_i^2 / (a_i^2 (a_i^2 + c))``. Then
        ``|dx/dc| <= |x| / (min a^2 + c)`` and ``|h'| >= 2 h / (max a^2 + c)``, so with
        ``|x| <= max a sqrt(h)``: ``|dx/dh| <= (max a)^3 / (2 (min a)^2 sqrt(h))``.
        """
        point, largest, least = self.project(w), float(self.axes.max()), float(self.axes.min())
        height = self._height(point)
        rounding = 2 * EPS * float(np.linalg.norm(point))
        # inside by more than the rounding of the height: w itself is the projection
        if self._height(w) <= 1 - (len(w) + 8) * EPS:
            return 0.0
        height_error = abs(height - 1) + (2 * len(w) + 16) * EPS
        if not height_error < 0.5:
            return math.inf
        # |dx/dh| of the docstring, at the least height 1/2 that is possible here
        return rounding + height_error * largest**3 / (2 * least**2 * math.sqrt(0.5)) * (
            1 + 16 * EPS
        )
