"""A sample of the ridge posterior that is kept to a ball: pure epsilon, for any data."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss
from accountants.rounding import up
from adaptive_dp.data.linear_systems import Matrix, Moments, Vector, precise, solution, system
from adaptive_dp.graph.convert import number, positive
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.instance.posterior_sample import drawn, rounded
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream

BATCH = 512
"""Proposals at a time."""

NEAR = 1e-6
"""How far off, as a part of the ball's radius squared, a float proposal's square is taken to be."""


class TruncatedPosterior(Mechanism):
    """A draw of the posterior ``N(theta, (1/gamma) H^-1)`` kept to the ball ``|w| <= radius``.

    Its density is ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on the ball, but for a constant. A
    row with ``|x| <= 1, |y| <= 1`` moves the exponent by ``gamma (y - x'w)^2 / 2``, between 0 and
    ``gamma (1 + radius)^2 / 2``: the log ratio of two neighbours has that range, for any data.

    Without the ball no gamma would do for all data: n rows of ``|x| = sqrt(ridge / n)``, y = 1,
    make ``|theta| = sqrt(n / ridge) / 2``, and with it the loss of the next row as large as one
    likes. With at most n rows ``|theta| <= sqrt(n / ridge) / 2`` is the bound.

    A row's ``(y - x'w)^2`` ranges over less than that in a small ball: see `row_range`.

    It is drawn by rejection. How many proposals that takes depends on the data: `ball_draw` chooses
    its proposals so that 512 of them, which are always drawn, are nearly always enough, but no
    proof bounds their number. Where the time of a run can be seen, choose among the points of a
    grid instead (`FiniteLearner`).

    *Utility.* Let ``F(w) = (|y - Xw|^2 + ridge |w|^2) / 2``, f its excess over the minimum in the
    ball, which lies at w*. Then ``E f <= d / gamma``: ``s^d Z(s) = s^d int_C e^{-s f}`` is the
    integral of ``e^{-s f(w* + u/s)}`` over ``s (C - w*)``, which grows with s, and so does the
    integrand, since f is convex and 0 at w*; so ``0 <= d/ds log(s^d Z(s)) = d/s - E f`` at
    ``s = gamma``. It holds for every convex loss and body: d times the temperature, and
    ``f = |w|`` attains it as the body grows.

    Parameters
    ----------
    gamma
        The inverse temperature: the loss's range is ``gamma row_range(radius) / 2`` for a row.
    ridge
        Of the prior ``N(0, I / (gamma ridge))``, kept to the ball.
    radius
        Of the ball, in [2^-20, 2^20].

    References
    ----------
    Wang, Fienberg and Smola 2015, Thm 1 (one posterior sample), with the range in place of the
    absolute value; Dimitrakakis et al. 2017. The bound of the excess is a well-known one for Gibbs
    measures; its proof above is our own.

    Examples
    --------
    A row ranges over ``(1 + radius)^2 = 4``, of which gamma / 2 are paid:

    >>> loss = TruncatedPosterior(gamma=0.5, ridge=1.0, radius=1.0).loss(distance=1)
    >>> round(loss.pure(), 6)
    1.0
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Moments
    theorem: ClassVar[str] = "Wang, Fienberg & Smola 2015, Thm 1, as a bounded range"
    sampler: ClassVar[str] = f"truncated Gaussian by rejection, {FLOAT_SAMPLER}"

    gamma: float = budget_parameter("gamma")
    ridge: float = field(converter=number)
    radius: float = field(converter=number)

    def __attrs_post_init__(self) -> None:
        for name, value, low, high in (
            ("ridge", self.ridge, 2.0**-9, 2.0**40),
            ("radius", self.radius, 2.0**-20, 2.0**20),
        ):
            if not (positive(value) and low <= value <= high):
                raise DeclarationError(
                    f"TruncatedPosterior.{name} must be in [{low:g}, {high:g}], got {value!r}"
                )

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of the coefficients."""
        return (value[0] - 1,)

    def release(self, value: Moments, stream: Stream) -> NDArray[Any]:
        """Return the draw."""
        found = ball_draw(value, stream, self.gamma, self.ridge, self.radius)
        return rounded(found, 2.0 ** (math.floor(math.log2(self.radius)) - 40))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the bounded range of ``distance`` rows that come or go."""
        return BoundedRange(up(distance * self.gamma * row_range(self.radius) / 2, 16))


def row_range(radius: float) -> float:
    """Return the range of ``(y - x'w)^2`` over the ball ``|w| <= radius``, the worst row's.

    With ``a = |x| radius`` the residual ranges over ``[y - a, y + a]``. Its square ranges over
    ``(|y| + a)^2`` where that contains 0, ``a >= |y|``, and else over ``4 a |y|``. With
    ``|x|, |y| <= 1`` the most is ``(1 + radius)^2``, or ``4 radius`` for a radius below 1.

    Two rows that are exchanged move the exponent by at most twice as much, and for a radius of at
    most 1 by that: ``(1 - x'w)^2 - (1 + x'w)^2 = -4 x'w``.

    Examples
    --------
    >>> row_range(2.0), row_range(0.25)
    (9.0, 1.0)
    """
    return (1 + radius) ** 2 if radius >= 1 else 4 * radius


def ball_draw(
    moments: Moments, stream: Stream, gamma: float, ridge: float, radius: float
) -> NDArray[Any]:
    """Return one draw of ``exp(-gamma (w - theta)' H (w - theta) / 2)`` on ``|w| <= radius``.

    For any ``k >= 0`` and ``theta_k = (H + k I)^-1 X'y`` the exponent is, but for a constant, that
    of ``N(theta_k, (H + k I)^-1 / gamma)`` plus ``gamma k |w|^2 / 2``. So proposals of that law
    inside the ball are kept with probability ``exp(-gamma k (radius^2 - |w|^2) / 2)``. The law of
    the result hangs on no k; `tilt` takes one at which proposals lie about the ball's surface where
    they would lie outside of it.
    """
    pull = tilt(moments, gamma, ridge, radius)
    lower, centre = tilted(moments, gamma, ridge, pull)
    factor = np.array([[float(v) for v in row] + [0.0] * (len(lower) - len(row)) for row in lower])
    middle = np.array([float(v) for v in centre])
    backward = np.linalg.inv(factor) / math.sqrt(gamma)
    while True:
        normal = stream.gaussian(1.0, (BATCH, len(middle)))
        coin = np.log(stream.uniform((BATCH,)))
        proposals = middle + normal @ backward
        inside = radius**2 - (proposals**2).sum(axis=1) + NEAR * radius**2
        # floats only sort out what is far from being kept: collinear rows make them inexact
        for i in np.flatnonzero((inside >= 0) & (coin <= pull * (NEAR * radius**2 - inside / 2))):
            found = drawn(lower, centre, normal[i], gamma)
            room = radius**2 - float(found @ found)
            if room >= 0 and coin[i] <= -pull / 2 * room:
                return found


@precise
def tilted(moments: Moments, gamma: float, ridge: float, pull: float) -> tuple[Matrix, Vector]:
    """Return the factor of ``H + k I`` and theta_k, at ``k = pull / gamma``."""
    return solution(moments, Decimal(ridge) + Decimal(pull) / Decimal(gamma))


def tilt(moments: Moments, gamma: float, ridge: float, radius: float) -> float:
    """Return ``gamma k`` at which ``E |w|^2`` of a proposal is radius^2; 0 where it is less at 0.

    ``E |w|^2 = |theta_k|^2 + trace (H + k I)^-1 / gamma`` falls as k grows. Floats will do.
    """
    matrix, cross = system(moments, ridge)
    values, basis = np.linalg.eigh(np.array([[float(v) for v in row] for row in matrix]))
    curved = np.maximum(values, ridge)
    along = basis.T @ np.array([float(v) for v in cross])

    def square(pull: float) -> float:
        with np.errstate(over="ignore"):
            theta = along / (curved + pull / gamma)
            return float(theta @ theta + (1 / (gamma * curved + pull)).sum())

    if square(0.0) <= radius**2:
        return 0.0
    low, high = 0.0, 1.0
    while square(high) > radius**2:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if square(middle) > radius**2 else (low, middle)
    return high
