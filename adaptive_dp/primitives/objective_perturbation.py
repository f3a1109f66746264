"""Objective perturbation: the minimizer of a sum of losses with noise in the objective.

The noise b is drawn exactly, from a secure stream, and never again. The minimizer is approximate,
so what is released is not it but ``w + z``, with fresh noise z: given the exact minimizer theta of
the data, w is a function of theta and the data (b is, as ``b = -grad J(theta)``) with
``|w - theta| <= g / ridge``, so that z hides it like any value of sensitivity ``2 g / ridge``, and
its loss composes with that of theta (approximate minima perturbation: Iyengar et al. 2019). Floats
in the search, the rounding of b and of w are all inside of g, or of z's steps. How long the search
takes does depend on the data.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import ObjectivePerturbation, PrivacyLoss, Pure
from accountants.losses.derived_pair import PureBound
from accountants.rounding import down, up
from adaptive_dp.data import Examples
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.noise.continuous import Real, exponential, normal
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.perturbed_minimum import Point, Problem, minimum
from adaptive_dp.problems import Constants, Loss, names

TOLERANCE = 2.0**-24
"""The gradient's norm is brought below this part of a row's largest gradient, or of the noise."""

FINE = 46
"""A step of noise is between 2^-47 and 2^-46 of its scale."""

WIDEST = 1 << 16
"""So many coefficients at most: then all of their steps together are below 2^-30 of the noise."""

_BITS = 192


def _written(value: Any) -> str:
    return names.text(value) if isinstance(value, Loss) else str(value)


def _smooth(instance: Any, attribute: Any, value: str) -> None:
    try:
        loss = names.read(value)
    except (ValueError, TypeError) as error:
        raise DeclarationError(str(error)) from None
    limits = loss.constants()
    fits = loss.outputs == 1 and loss.convex and type(loss).precise is not Loss.precise
    if not fits or not 0 < limits.lipschitz < math.inf or not limits.smoothness < math.inf:
        raise DeclarationError(
            f"{type(instance).__name__} needs a convex loss of one score, with bounded first and "
            f"second derivatives and a precise slope, such as Logistic(); got {value}"
        )


def determinant(limits: Constants, ridge: float) -> float:
    """Return ``log(1 + smoothness / ridge)``, rounded up."""
    return up(math.log1p(up(limits.smoothness / ridge)), 8)


class PerturbedObjective(Mechanism):
    """The minimizer of ``sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, b of N(0, sigma^2 I).

    Rows are divided by their declared radius R, into the unit ball; what is released are the
    coefficients of the rows as they are, ``(w + z) / R``. No bound on w may be set: the theorem
    needs the minimizer over all of them. Everything is penalised, an intercept too.

    Parameters
    ----------
    sigma
        The standard deviation on each coordinate of b, in units in which a row's gradient is at
        most the Lipschitz constant of f.
    ridge
        Positive.
    blur
        z is normal of standard deviation ``blur`` times ``g / ridge``, g the tolerance of the
        minimizer's gradient: it costs a Gaussian of ``mu = 2 / blur``, which must be at most a
        tenth of ``L / sigma``.
    of
        The loss f of one score, such as ``Logistic()``.

    References
    ----------
    `accountants.losses.objective_perturbation` has the proof; after Kifer, Smith and Thakurta
    2012, and Redberg, Koskela and Wang 2023.

    Examples
    --------
    >>> PerturbedObjective(sigma=5.0, ridge=2.5, blur=1e3, of="Logistic()").loss(1, span=1)
    ObjectivePerturbation(mu=0.2..., determinant=0.0953..., search=0.002...)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Examples
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = ObjectivePerturbation.theorem
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step"

    sigma: float = noise_parameter("sigma")
    ridge: float = noise_parameter("lambda")
    blur: float = noise_parameter("blur")
    of: str = field(converter=_written, validator=_smooth)

    def release(self, value: Examples, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the coefficients, shape (p,)."""
        width, unit = value.width, _step(self.sigma)
        drawn = rounded_gaussian(stream, self.sigma / unit, width)
        noise = [Fraction(int(k)) * Fraction(unit) for k in drawn]
        allowed = _tolerance(self.of, self.sigma)
        # b is rounded by half a step in each coordinate
        problem = Problem(value, names.read(self.of), self.ridge, noise)
        w = minimum(problem, down(allowed - math.sqrt(width) * unit, 8))
        blur = self.blur * (allowed / self.ridge)
        step = _step(blur)
        return _blurred(w, rounded_gaussian(stream, blur / step, width), step) / value.radius

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss for so many rows that come or go, ``span`` of them in one data set."""
        limits = names.read(self.of).constants()
        both, alone = rows_of(distance, distance if span is None else span)
        if both == 0:
            return Pure(0.0)
        mu = up(both * limits.lipschitz / self.sigma, 8)
        rows = up(alone * determinant(limits, self.ridge), 2)
        return ObjectivePerturbation(mu, rows, both, up(2 / self.blur + 2.0**-29, 8))

    def premises(self, release: Any) -> None:
        """Refuse other labels than the loss reads."""
        _reads(type(self).__name__, self.of, release)


class PurePerturbedObjective(Mechanism):
    """As `PerturbedObjective`, with b of density ``exp(-shift |b| / L)``: pure epsilon.

    A row's gradient moves b by at most L, so its log density by at most ``shift``, and the
    determinant by at most a factor ``1 + smoothness / ridge``: in one direction only, and
    once for a row that is exchanged for another, since both determinants lie within that factor
    above that of the rows in common. So a row costs ``shift + log(1 + smoothness/ridge)``. The
    printed proof pays for the logarithm twice.

    Parameters
    ----------
    shift
        What a row's gradient costs, in nats.
    ridge
        Positive.
    blur
        z is Laplace noise of scale ``blur`` times ``g sqrt(p) / ridge``: it costs ``2 / blur``.
    of
        The loss f of one score, such as ``Logistic()``.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Thm 9, with one logarithm in place of two (own proof).

    Examples
    --------
    >>> sampler = PurePerturbedObjective(shift=0.75, ridge=1.0, blur=1e4, of="Logistic()")
    >>> round(sampler.loss(1, span=1).pure(), 6)
    0.973344
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Examples
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = "Chaudhuri, Monteleoni & Sarwate 2011, Thm 9; own proof of one log"
    sampler: ClassVar[str] = "Gamma radius and normal direction, exact to 2^-128"

    shift: float = budget_parameter("epsilon'")
    ridge: float = noise_parameter("lambda")
    blur: float = noise_parameter("blur")
    of: str = field(converter=_written, validator=_smooth)

    def release(self, value: Examples, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the coefficients, shape (p,)."""
        loss, width = names.read(self.of), value.width
        scale = up(loss.constants().lipschitz / self.shift)
        noise, error = radial(stream, scale, width)
        allowed = _tolerance(self.of, scale)
        problem = Problem(value, loss, self.ridge, noise)
        w = minimum(problem, down(allowed - error, 8))
        blur = self.blur * (up(math.sqrt(width)) * (allowed / self.ridge))
        step = _step(blur)
        return _blurred(w, rounded_laplace(stream, blur / step, width), step) / value.radius

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss for so many rows that come or go, ``span`` of them in one data set."""
        both, alone = rows_of(distance, distance if span is None else span)
        if both == 0:
            return Pure(0.0)
        rows = alone * determinant(names.read(self.of).constants(), self.ridge)
        return PureBound(up(both * self.shift + rows + 2 / self.blur + 2.0**-29, 16))

    def premises(self, release: Any) -> None:
        """Refuse other labels than the loss reads."""
        _reads(type(self).__name__, self.of, release)


def rows_of(distance: float, span: float) -> tuple[int, int]:
    """Return whole numbers of rows from a distance and a span, which are rounded up a little."""
    both = math.ceil(distance * (1 - 1e-9) - 1e-9)
    return both, min(both, math.ceil(span * (1 - 1e-9) - 1e-9))


def _reads(name: str, of: str, release: Any) -> None:
    domain, loss = release.inputs[0].domain, names.read(of)
    if loss.labels != domain.labels:
        raise DeclarationError(
            f"{name}: {of} reads labels of kind {loss.labels!r}, the examples have "
            f"{domain.labels!r}"
        )
    if domain.width > WIDEST:
        raise DeclarationError(f"{name} finds at most {WIDEST} coefficients, got {domain.width}")


def _tolerance(of: str, noise: float) -> float:
    """Return g, for noise of that scale."""
    return TOLERANCE * max(names.read(of).constants().lipschitz, noise)


def _step(scale: float) -> float:
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - FINE)


def _blurred(w: Point, noise: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """Return w rounded to whole steps, plus the noise: a function of their sum alone."""
    unit = Fraction(step)
    total = (round(x / unit) + int(k) for x, k in zip(w, noise, strict=True))
    return np.array([float(n * unit) for n in total])


def radial(stream: Stream, scale: float, width: int) -> tuple[Point, float]:
    """Return noise of density ``exp(-|b| / scale)`` in so many dimensions, and how far off it is.

    Its radius is a sum of ``width`` exponentials, its direction that of a normal vector. Of each
    number 192 bits are drawn.
    """

    def near(number: Real) -> Fraction:
        return number.bounds(_BITS)[0]

    radius = sum((near(exponential(stream)) for _ in range(width)), Fraction())
    normals = [near(normal(stream)) for _ in range(width)]
    square = sum((z * z for z in normals), Fraction())
    length = Fraction(math.isqrt(int(square * 4**_BITS)), 2**_BITS)
    noise = [Fraction(scale) * radius * z / length for z in normals]
    # each bit that was not drawn moves the radius, or the direction, by a part of 2^-192
    off = scale * width * (1 + 2 * float(radius) * (1 + 1 / float(length))) * 2.0 ** (8 - _BITS)
    return [Fraction(round(b * 2**300), 2**300) for b in noise], up(off, 64)
