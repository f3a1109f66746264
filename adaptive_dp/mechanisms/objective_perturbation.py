"""Objective perturbation: the minimizer of a sum of losses with noise in the objective.

The mechanisms come first; the search for the minimizer, and the proof of its accuracy, after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants import ObjectivePerturbation, PrivacyLoss, Pure
from accountants.losses.given import PureBound
from accountants.numerics import UNIT, down, up
from adaptive_dp.data import Examples
from adaptive_dp.data.examples import WEIGHT_BITS, to_steps, weighted_sum
from adaptive_dp.erm import Loss, losses
from adaptive_dp.erm.losses import Multinomial, Weighted, softmax
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.noise.continuous import Real, exponential, normal
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream

Floats = NDArray[np.float64]
Point = list[Fraction]
"""A vector of exact rational numbers."""

TOLERANCE = 2.0**-24
"""The gradient's norm is brought below this part of a row's largest gradient, or of the noise."""

STEP_BITS = 46
"""A step of noise is between 2^-47 and 2^-46 of its scale."""

MAX_WIDTH = 1 << 16
"""The most coefficients: with so many, all of their steps are below 2^-30 of the noise."""

_RADIAL_BITS = 192


def loss_name(value: Any) -> str:
    """Return a loss as the `str` that plans hold."""
    return losses.loss_string(value) if isinstance(value, Loss) else str(value)


def valid_loss(instance: Any, attribute: Any, value: str) -> None:
    """Refuse a loss that the theorems do not cover, or whose slope is not known precisely."""
    try:
        loss = losses.read(value)
    except (ValueError, TypeError) as error:
        raise DeclarationError(str(error)) from None
    check_loss(type(instance).__name__, loss)


def valid_loss_of_classes(instance: Any, attribute: Any, value: str) -> None:
    """Refuse as `valid_loss` does, but for the softmax."""
    if softmax_classes(value) == 1:
        valid_loss(instance, attribute, value)


def softmax_classes(of: str) -> int:
    """Return k for the cross-entropy of a softmax of k classes, with weights or not; else 1."""
    try:
        loss = losses.read(of)
    except (ValueError, TypeError):
        return 1
    loss = loss.loss if isinstance(loss, Weighted) else loss
    # a class that inherits from it may be another loss
    return loss.classes if type(loss) is Multinomial else 1


def check_loss(name: str, loss: Loss) -> None:
    """Refuse a loss that the theorems do not cover, or whose slope is not known precisely.

    Parameters
    ----------
    name
        Of what the loss is for.
    """
    if isinstance(loss, Weighted):  # its constants are those of the loss
        return check_loss(name, loss.loss)
    limits = loss.constants()
    fits = loss.outputs == 1 and loss.convex and type(loss).precise is not Loss.precise
    if not fits or not 0 < limits.lipschitz < math.inf or not limits.smoothness < math.inf:
        raise DeclarationError(
            f"{name} needs a convex loss of one score, with bounded first and second derivatives "
            "and a precise slope: Logistic(), SmoothedHinge() or HuberHinge() for classes, Huber() "
            "or Extended(Squared(), reach=1.0) for numbers, Extended(Poisson(...), reach=...) for "
            f"counts; got {losses.loss_string(loss)}"
        )


def log_determinant(of: str, ridge: float, spared: float = 0.0) -> float:
    """Return how far a row moves log det Hess, in nats, rounded up.

    Of one score that is ``log(1 + smoothness / ridge)``; of a softmax of k classes the largest of
    ``(k-1) log(1 + v / ((k-1) ridge)) - spared v``, v up to ``1 - 1/k``.

    Parameters
    ----------
    of
        The loss.
    ridge
        Positive.
    spared
        What a row's curvature v takes off its shift, of a softmax without weights: K in
        `accountants.losses.perturbation`.
    """
    loss, classes = losses.read(of), softmax_classes(of)
    if classes == 1:
        return up(math.log1p(up(loss.constants().smoothness / ridge)), 8)
    others = classes - 1
    # a weight w multiplies the curvature by w, the square of the shift by w^2
    spared = 0.0 if loss.weighted else spared
    # where the derivative is 0, or an end; it is off by some UNITs of 1 / spared, which moves the
    # maximum by some UNIT^2 times the classes
    best = others * (1 / spared - ridge) if spared > 0 else math.inf
    v = min(max(best, 0.0), 1 - 1 / classes)
    grown, taken = others * math.log1p(v / (others * ridge)), spared * v
    return max(0.0, grown - taken) + 32 * UNIT * (grown + taken) + 1e-25


class _PerturbedObjective(Mechanism):
    """The base of both mechanisms; they differ in the law of the noise."""

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Examples
    uses_span: ClassVar[bool] = True
    no_interval: ClassVar[str] = (
        "how far the noise moves the minimizer depends on the curvature of the losses, which "
        "is not released; for intervals of a linear regression use dp.SSP"
    )

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (p,), or (k p,) of k classes."""
        return (shape[0] * losses.read(self.parameters()["of"]).outputs,)

    def premises(self, release: Any) -> None:
        """Refuse examples whose labels the loss does not read, or with too many columns."""
        name, of = type(self).__name__, self.parameters()["of"]
        domain, loss = release.inputs[0].domain, losses.read(of)
        if loss.labels != domain.labels:
            raise DeclarationError(
                f"{name}: {of} reads labels of kind {loss.labels!r}, the examples have "
                f"{domain.labels!r}"
            )
        if loss.labels == "count" and not domain.most <= getattr(loss, "most", math.inf):
            raise DeclarationError(
                f"{name}: {of} is for counts up to {getattr(loss, 'most', math.inf):g}, the "
                f"examples have them up to {domain.most:g}"
            )
        if loss.weighted != domain.weighted:
            raise DeclarationError(
                f"{name}: {of} is {'' if loss.weighted else 'not '}for rows with weights, and the "
                f"examples have {'' if domain.weighted else 'no '}weights"
            )
        if loss.labels == "class" and loss.outputs != domain.classes:
            raise DeclarationError(
                f"{name}: {of} is for {loss.outputs} classes, the examples have {domain.classes}"
            )
        if domain.width * loss.outputs > MAX_WIDTH:
            raise DeclarationError(
                f"{name} computes at most {MAX_WIDTH} coefficients, got "
                f"{domain.width * loss.outputs}"
            )


class PerturbedObjective(_PerturbedObjective):
    """Release the minimizer of a regularised sum of losses with a random linear term added.

    The objective is ``sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, b of N(0, sigma^2 I). Rows are
    divided by their declared radius R, into the unit ball; what is released are the coefficients of
    the rows as they are, ``(w + z) / R`` with new small noise z. No bound on w may be set: the
    theorem needs the minimizer over all w. Every coefficient is penalised, an intercept too. Of a
    softmax of k classes, w and b are k rows of coefficients, one row after the other.

    Privacy: `accountants.ObjectivePerturbation`, with ``mu = L / sigma`` and the log-determinant
    of each row (`log_determinant`). The search for the minimizer is covered by z:
    given the exact minimizer theta of the data, the computed point w is a function of theta
    and the data (b is, as ``b = -grad J(theta)``) with ``|w - theta| <= g / ridge``. So z hides it
    like any value of sensitivity ``2 g / ridge``, and its loss composes with that of theta
    (approximate minima perturbation: Iyengar et al. 2019). Floats in the search and the rounding of
    b and of w are all inside of g, or of z's steps. How long the search takes does depend on the
    data.

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
        The loss f of one score, such as ``Logistic()``, or ``Multinomial(k)``; its Lipschitz
        constant is L.

    Notes
    -----
    Noise: b and z from `adaptive_dp.noise.gaussian.rounded_gaussian`, exact; b is never drawn
    again. The minimizer is computed by `minimizer`, with a proven gradient.

    References
    ----------
    `accountants.losses.perturbation` has the proof; after Kifer, Smith and Thakurta
    2012, and Redberg, Koskela and Wang 2023; Iyengar et al. 2019 (approximate minima).

    See Also
    --------
    PurePerturbedObjective : a pure epsilon.

    Examples
    --------
    >>> PerturbedObjective(sigma=5.0, ridge=2.5, blur=1e3, of="Logistic()").loss(1, span=1)
    ObjectivePerturbation(mu=0.2..., determinant=0.0953..., search=0.002...)
    """

    theorem: ClassVar[str] = ObjectivePerturbation.theorem
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step"

    sigma: float = noise_parameter("sigma")
    ridge: float = noise_parameter("lambda")
    blur: float = noise_parameter("blur")
    of: str = field(converter=loss_name, validator=valid_loss_of_classes)

    def release(self, value: Examples, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the coefficients, shape (p,); (k p,) of k classes."""
        loss, unit = losses.read(self.of), _noise_step(self.sigma)
        width = value.width * loss.outputs
        steps = rounded_gaussian(stream, self.sigma / unit, width)
        noise = [Fraction(int(k)) * Fraction(unit) for k in steps]
        tolerance = _tolerance(self.of, self.sigma)  # g
        problem = Problem(value, loss, self.ridge, noise)
        # b is rounded by half a step in each coordinate, which is taken off g, so that the gradient
        # with the continuous b is at most g too
        w = minimizer(problem, down(tolerance - math.sqrt(width) * unit, 8))
        # the noise z, for |w - theta| <= g / ridge
        blur = self.blur * (tolerance / self.ridge)
        step = _noise_step(blur)
        z = rounded_gaussian(stream, blur / step, width)
        return _plus_noise(w, z, step) / value.radius

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss for so many rows that come or go, ``span`` of them in one data set."""
        limits = losses.read(self.of).constants()
        changed, in_one = row_counts(distance, distance if span is None else span)
        if changed == 0:
            return Pure(0.0)
        # a row's gradient moves b by at most L, and log det Hess in one direction only
        mu = up(changed * limits.lipschitz / self.sigma, 8)
        # K = M^2 / (4 n) with M = n sqrt 2 / sigma; of one score it is not used. A smaller K spares
        # less: at a sigma whose square is no float, mu is refused below
        spared = down(min(changed / 2 / self.sigma / self.sigma, 1e300), 8)
        determinant = up(in_one * log_determinant(self.of, self.ridge, spared), 2)
        # 2^-29 covers the rounding of w and z to steps
        search = up(2 / self.blur + 2.0**-29, 8)
        classes = softmax_classes(self.of)
        return ObjectivePerturbation(mu, determinant, changed, search, classes)


class PurePerturbedObjective(_PerturbedObjective):
    """Release the minimizer of a perturbed objective, as `PerturbedObjective`: a pure epsilon.

    Here b has a density proportional to ``exp(-shift |b| / L)``.

    Privacy: pure ``epsilon = shift + log(1 + smoothness/ridge) + 2 / blur`` for a row. Its
    gradient moves b by at most L, so the log density by at most ``shift``, and the determinant by
    at most a factor ``1 + smoothness / ridge``: in one direction only, and once for a row that is
    exchanged for another, since both determinants lie within that factor above that of the rows in
    common. The printed proof pays for the logarithm twice. The noise z covers the search as in
    `PerturbedObjective`. Of a softmax a row of curvature v has a gradient of at most
    ``sqrt(2 - v) <= L (1 - v / 4)``: without weights, ``shift v / 4`` is spared of the
    determinant's logarithm, as in `log_determinant`.

    Parameters
    ----------
    shift
        What a row's gradient costs, in nats.
    ridge
        Positive.
    blur
        z is Laplace noise of scale ``blur`` times ``g sqrt(p) / ridge``: it costs ``2 / blur``.
    of
        The loss f of one score, such as ``Logistic()``, or ``Multinomial(k)``; its Lipschitz
        constant is L.

    Notes
    -----
    Noise: b from `radial_noise`, exact to 2^-128; z from
    `adaptive_dp.noise.laplace.rounded_laplace`, exact.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Thm 9, with one logarithm in place of two (own proof).

    See Also
    --------
    PerturbedObjective : less noise, at a delta.

    Examples
    --------
    >>> sampler = PurePerturbedObjective(shift=0.75, ridge=1.0, blur=1e4, of="Logistic()")
    >>> round(sampler.loss(1, span=1).pure(), 6)
    0.973344
    """

    theorem: ClassVar[str] = "Chaudhuri, Monteleoni & Sarwate 2011, Thm 9; own proof of one log"
    sampler: ClassVar[str] = "Gamma radius and normal direction, exact to 2^-128"

    shift: float = budget_parameter("epsilon'")
    ridge: float = noise_parameter("lambda")
    blur: float = noise_parameter("blur")
    of: str = field(converter=loss_name, validator=valid_loss_of_classes)

    def release(self, value: Examples, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the coefficients, shape (p,); (k p,) of k classes."""
        loss = losses.read(self.of)
        width = value.width * loss.outputs
        scale = up(loss.constants().lipschitz / self.shift)
        noise, error = radial_noise(stream, scale, width)
        tolerance = _tolerance(self.of, scale)  # g
        problem = Problem(value, loss, self.ridge, noise)
        w = minimizer(problem, down(tolerance - error, 8))
        # the noise z, for an l1 distance of at most sqrt(p) times the l2 distance g / ridge
        blur = self.blur * (up(math.sqrt(width)) * (tolerance / self.ridge))
        step = _noise_step(blur)
        z = rounded_laplace(stream, blur / step, width)
        return _plus_noise(w, z, step) / value.radius

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss for so many rows that come or go, ``span`` of them in one data set."""
        changed, in_one = row_counts(distance, distance if span is None else span)
        if changed == 0:
            return Pure(0.0)
        determinant = in_one * log_determinant(self.of, self.ridge, down(self.shift / 4))
        # 2^-29 covers the rounding of w and z to steps
        return PureBound(up(changed * self.shift + determinant + 2 / self.blur + 2.0**-29, 16))


def row_counts(distance: float, span: float) -> tuple[int, int]:
    """Return how many rows differ, and the most of them in one of the two data sets, as integers.

    Distance and span arrive rounded up a little.
    """
    changed = math.ceil(distance * (1 - 1e-9) - 1e-9)
    return changed, min(changed, math.ceil(span * (1 - 1e-9) - 1e-9))


def _tolerance(of: str, noise: float) -> float:
    """Return g, the bound of the gradient's norm at the result, for noise b of that scale."""
    return TOLERANCE * max(losses.read(of).constants().lipschitz, noise)


def _noise_step(scale: float) -> float:
    """Return the largest power of two at most ``scale / 2^STEP_BITS``."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - STEP_BITS)


def _plus_noise(w: Point, noise: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """Return w rounded to steps, plus the noise: a function of their sum in integers alone."""
    unit = Fraction(step)
    total = (round(x / unit) + int(k) for x, k in zip(w, noise, strict=True))
    return np.array([float(n * unit) for n in total])


def radial_noise(stream: Stream, scale: float, width: int) -> tuple[Point, float]:
    """Return noise of density ``exp(-|b| / scale)`` in R^width, and a bound of its l2 error.

    Its radius is a sum of ``width`` exponentials, its direction that of a normal vector; 192 bits
    are drawn of each number.
    """

    def lower(number: Real) -> Fraction:
        return number.bounds(_RADIAL_BITS)[0]

    radius = sum((lower(exponential(stream)) for _ in range(width)), Fraction())
    normals = [lower(normal(stream)) for _ in range(width)]
    square = sum((z * z for z in normals), Fraction())
    length = Fraction(math.isqrt(int(square * 4**_RADIAL_BITS)), 2**_RADIAL_BITS)
    noise = [Fraction(scale) * radius * z / length for z in normals]
    # each bit that was not drawn moves the radius, or the direction, by a part of 2^-192
    error = (
        scale
        * width
        * (1 + 2 * float(radius) * (1 + 1 / float(length)))
        * 2.0 ** (8 - _RADIAL_BITS)
    )
    return [Fraction(round(b * 2**300), 2**300) for b in noise], up(error, 64)


# -----------------------------------------------------------------------------
# The minimizer of a linear model's objective with noise, to a proven gradient.
#
# ``F(w) = sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, rows x_i in the unit ball: integers n_i
# times s. The variable is ``v = s w``, of which a float is two vectors of integers, so that scores
# ``n_i'v`` are off by one rounding, and the sum of the slopes' parts is exact. The remaining error
# of the gradient is that of each slope, which `Loss` bounds. F is ridge-strongly convex, so
# ``|w - w*| <= |grad F(w)| / ridge``: a bound on the gradient is a bound on the distance, whichever
# algorithm returned the point.
#
# The solver is Newton's method with line search, by continuation: first for a large ridge, which
# decreases to the problem's own. Where floats cannot prove the gradient to be small (very many
# rows), decimals do, starting from the last float iterate; where no Newton step is accepted, the
# step is ``-M^-1 grad F``, ``M = ridge I + smoothness X'X``, which always decreases F. So the
# tolerance is reached for any data.


SLOPE_ERROR = 2.0**-48
"""How far off a slope may be, as a part of the Lipschitz constant, where `Loss.rounding` says no
more."""

_NEWTON_STEPS = 200
_CONJUGATE, _CONJUGATE_STEPS = 1e-3, 100
"""How far conjugate gradients reduce the error of a Newton step, and their largest number."""

_WHOLE, _ILL = 2048, 2.0**-26
"""Up to so many coefficients a softmax's Newton step is that of its whole Hessian, where the ridge
is a smaller part of the rows' largest curvature than this."""

_PARTS = 3
"""A slope is split into so many integers of WEIGHT_BITS bits each, whose sums are exact."""


@frozen(eq=False)
class Problem:
    """The objective F of a linear model, with its noise.

    Of a softmax of k classes the variable is a matrix of k rows: a point, the noise and gradients
    are its rows, one after the other.

    Parameters
    ----------
    examples
        The rows, shape (n, p); they are divided by their radius.
    loss
        f, a loss of one score, with `precise`, or `Multinomial`.
    ridge
        Positive.
    noise
        b, exactly: p rational numbers, or k p.
    """

    examples: Examples
    loss: Loss
    ridge: float
    noise: Point

    @property
    def scale(self) -> float:
        """A number s for which a row of n steps is ``s n``, of norm at most 1."""
        return down(self.examples.unit / self.examples.radius, 8)

    def gradient(self, v: Floats) -> Gradient:
        """Return the gradient at a point next to ``w = v / scale``, with a bound of its error."""
        # v as two matrices of integers, times their steps: products with rows of integers are exact
        v, outputs = v.reshape(self.loss.outputs, -1), self.loss.outputs
        high, coarse = to_steps(v)
        low, fine = to_steps(v - high * coarse)
        limits = self.loss.constants()
        top = math.ldexp(1.0, math.frexp(limits.lipschitz)[1])
        score_total = 0.0

        def slope_parts(where: slice, block: Floats) -> Floats:
            nonlocal score_total
            scores = (high @ block.T) * coarse + (low @ block.T) * fine
            score_total += float(np.abs(scores).sum())
            slopes = self.loss.slope(scores, self.examples.labels[where])
            remainder = slopes * (2.0**WEIGHT_BITS / top)
            parts = np.empty((_PARTS, *remainder.shape))
            for k in range(_PARTS):
                parts[k] = np.rint(remainder)
                remainder = (remainder - parts[k]) * 2.0**WEIGHT_BITS
            return parts.reshape(_PARTS * outputs, -1)

        sums = weighted_sum(self.examples, slope_parts, _PARTS * outputs).reshape(_PARTS, -1)
        point = [Fraction(h) * Fraction(coarse) + Fraction(m) * Fraction(fine)
                 for h, m in zip(high.flat, low.flat, strict=True)]  # fmt: skip
        step = Fraction(self.scale) * Fraction(top)
        total = [
            sum((Fraction(int(sums[k][j])) / 2 ** (WEIGHT_BITS * (k + 1)) for k in range(_PARTS)),
                Fraction()) * step
            for j in range(len(point))
        ]  # fmt: skip
        exact = self._plus_linear_terms(total, point)
        # each slope's own error, and what two roundings of its scores move it by: the slope is
        # `smoothness`-Lipschitz in the scores, whose l2 norm is at most the sum of their sizes,
        # and rows have norm at most 1
        stated = self.loss.rounding(math.inf).slope
        # a weight adds one rounding of the slope
        allowed = limits.lipschitz * (SLOPE_ERROR + (2 * UNIT if self.loss.weighted else 0.0))
        slope_error = max(allowed, stated if stated < math.inf else 0.0)
        error = up(
            len(self.examples) * slope_error + limits.smoothness * 2 * UNIT * score_total, 1 << 20
        )
        return Gradient(point, np.array([float(x) for x in exact]), error)

    def precise_gradient(self, v: Point) -> Gradient:
        """Return the gradient at ``w = v / scale``, computed in decimals of 80 digits."""
        with localcontext(Context(prec=80)):
            point = [Decimal(x.numerator) / Decimal(x.denominator) for x in v]
            total, width = [Decimal(0)] * len(point), self.examples.width
            outputs = [point[at : at + width] for at in range(0, len(point), width)]
            for steps, label in zip(self.examples.steps, self.examples.labels, strict=True):
                row = [Decimal(int(n)) for n in steps]
                scores: list[Any] = [
                    sum((n * a for n, a in zip(row, own, strict=True)), Decimal(0))
                    for own in outputs
                ]
                # the label, and the row's weight where it has one
                given = [Decimal(float(v)) for v in np.atleast_1d(label)]
                slopes: Any = (
                    self.loss.precise(scores, *given)  # type: ignore[arg-type]
                    if len(scores) > 1
                    else [self.loss.precise(scores[0], *given)]
                )
                moved = [slope * n for slope in slopes for n in row]
                total = [t + a for t, a in zip(total, moved, strict=True)]
        exact = self._plus_linear_terms([Fraction(t) * Fraction(self.scale) for t in total], v)
        largest = float(max((abs(x) for x in point), default=Decimal(0)))
        # 80 digits leave more than 60 of them after all sums; a row has fewer than 2^24 steps
        error = len(self.examples) * (1 + largest * 2.0**24) * 1e-60
        return Gradient(v, np.array([float(x) for x in exact]), error)

    def _plus_linear_terms(self, total: Point, v: Point) -> Point:
        """Return a sum of the rows' gradients plus ``ridge w + b``, exactly."""
        ridge = Fraction(self.ridge) / Fraction(self.scale)
        return [t + ridge * x + b for t, x, b in zip(total, v, self.noise, strict=True)]

    def hessian(self, v: Floats) -> Floats:
        """Return the second derivative by w at ``w = v / scale``, shape (p, p), in floats.

        Of one score.
        """
        at, labels = v[None] / self.scale, self.examples.labels
        return self._weighted_gram(lambda rows, x: self.loss.second(at @ x.T, labels[rows])[0, 0])

    def hessian_bound(self) -> Floats:
        """Return ``M = ridge I + smoothness X'X``, shape (p, p), in floats: above every Hessian.

        Of k classes the Hessian is at most k blocks of it.
        """
        smoothness = self.loss.constants().smoothness
        return self._weighted_gram(lambda rows, x: np.full(len(x), smoothness))

    def _weighted_gram(self, weights: Callable[[slice, Floats], Floats]) -> Floats:
        """Return ``ridge I + sum_i weight_i x_i x_i'``."""
        total = np.eye(self.examples.width) * self.ridge
        for where, block in self.examples.blocks():
            x = block * self.scale
            total += (x * weights(where, x)[:, None]).T @ x
        return total


@frozen(eq=False)
class Gradient:
    """The gradient by w at ``w = point / scale``, off by at most ``error`` in l2 norm."""

    point: Point
    value: Floats
    error: float

    @property
    def float_point(self) -> Floats:
        """The point as floats, shape (p,)."""
        return np.array([float(x) for x in self.point])

    def norm_bound(self) -> float:
        """Return an upper bound of the gradient's l2 norm."""
        return up(float(np.linalg.norm(self.value)) + self.error, 1 << 20)


def minimizer(problem: Problem, tolerance: float) -> Point:
    """Return a point w at which the gradient is proven to be at most ``tolerance``, exactly."""
    here = problem.gradient(np.zeros(problem.examples.width * problem.loss.outputs))
    ridge = max(problem.ridge, len(problem.examples) * problem.loss.constants().smoothness)
    while ridge > problem.ridge:  # with a ridge a quarter as large, the minimum is still near
        easier = evolve(problem, ridge=ridge)
        size = float(np.linalg.norm(here.float_point)) / problem.scale
        here = _newton(easier, easier.gradient(here.float_point), ridge * (1 + size) / 32)
        ridge /= 4
    here = _newton(problem, problem.gradient(here.float_point), tolerance)
    if here.norm_bound() <= tolerance:
        return [x / Fraction(problem.scale) for x in here.point]
    return _minimizer_in_decimals(problem, here.point, tolerance)


def _newton(problem: Problem, here: Gradient, tolerance: float) -> Gradient:
    """Return where Newton's steps end: at the tolerance, or where floats get no further."""

    def after(point: Point, step: Floats) -> Gradient:
        return problem.gradient(here.float_point - problem.scale * step)

    for _ in range(_NEWTON_STEPS):
        if here.norm_bound() <= tolerance:
            break
        better = _line_search(here, _newton_step(problem, here), after)
        if better is None:
            break
        here = better
    return here


def _newton_step(problem: Problem, here: Gradient) -> Floats:
    """Return the inverse Hessian times the gradient, nearly.

    Of several classes by conjugate gradients, preconditioned with the classes' own blocks. Nothing
    rests on how near that is: the gradient there is what is proven.
    """
    if problem.loss.outputs == 1:
        return _Inverse(problem.hessian(here.float_point), problem.ridge).times(here.value)
    curvature = _SoftmaxHessian(problem, here.float_point)
    curved = len(problem.examples) * problem.loss.constants().smoothness
    if problem.ridge < _ILL * curved and len(here.value) <= _WHOLE:
        # what the scores of all likely classes have in common moves nothing, which no block knows:
        # conjugate gradients would end far from the step, and the search would hardly end at all
        return _Inverse(curvature.whole(), problem.ridge).times(here.value)
    step, left = np.zeros_like(here.value), here.value.copy()
    ahead = direction = curvature.near_inverse(left)
    size = float(left @ ahead)
    goal = _CONJUGATE**2 * size
    for _ in range(_CONJUGATE_STEPS):
        if not size > goal:
            break
        image = curvature.times(direction)
        length = size / float(direction @ image)
        step, left = step + length * direction, left - length * image
        ahead, before = curvature.near_inverse(left), size
        size = float(left @ ahead)
        direction = ahead + (size / before) * direction
    return step


class _SoftmaxHessian:
    """The second derivative of a softmax's objective at a point: products with it, in floats."""

    def __init__(self, problem: Problem, v: Floats) -> None:
        self._problem, self._shape = problem, (problem.loss.outputs, -1)
        labels, at = problem.examples.labels, v.reshape(self._shape)
        # by class and row: p, and the weights, which are 1 where there are none
        shares = [softmax(at @ block.T) for _, block in problem.examples.blocks()]
        self._shares = np.concatenate(shares, axis=1) if shares else np.zeros((len(at), 0))
        self._weights = labels[:, 1] if problem.loss.weighted else np.ones(len(labels))

    def _block(self, one: int, other: int) -> Floats:
        """Return the second derivative by the coefficients of one class and of another."""
        same = float(one == other)
        total = np.eye(self._problem.examples.width) * (self._problem.ridge * same)
        weights = self._weights * self._shares[one] * (same - self._shares[other])
        for where, block in self._problem.examples.blocks():
            x = block * self._problem.scale
            total += (x * weights[where, None]).T @ x
        return total

    def whole(self) -> Floats:
        """Return the Hessian, shape (k p, k p)."""
        k, p = len(self._shares), self._problem.examples.width
        total = np.empty((k, p, k, p))
        for one in range(k):
            for other in range(one + 1):
                block = self._block(one, other)
                # each is symmetric
                total[one, :, other], total[other, :, one] = block, block
        return total.reshape(k * p, k * p)

    @cached_property
    def _inverses(self) -> list[_Inverse]:
        """The inverses of the classes' own blocks."""
        return [_Inverse(self._block(k, k), self._problem.ridge) for k in range(len(self._shares))]

    def times(self, vector: Floats) -> Floats:
        """Return the Hessian times a vector."""
        u = vector.reshape(self._shape)
        total = self._problem.ridge * u
        for where, block in self._problem.examples.blocks():
            x, p = block * self._problem.scale, self._shares[:, where]
            moved = p * (u @ x.T)
            moved = self._weights[where] * (moved - p * moved.sum(axis=0))
            total = total + moved @ x
        return np.asarray(total.ravel())

    def near_inverse(self, vector: Floats) -> Floats:
        """Return the inverse of each class's own block times that class's part of a vector."""
        parts = zip(self._inverses, vector.reshape(self._shape), strict=True)
        return np.concatenate([inverse.times(part) for inverse, part in parts])


def _minimizer_in_decimals(problem: Problem, point: Point, tolerance: float) -> Point:
    """Return the point by decimals: the steps of M alone would do, Newton's are quicker."""

    def after(point: Point, step: Floats) -> Gradient:
        scale = Fraction(problem.scale)
        there = [x - scale * Fraction(float(m)) for x, m in zip(point, step, strict=True)]
        return problem.precise_gradient([Fraction(round(x * 2**200), 2**200) for x in there])

    fallback = _Inverse(problem.hessian_bound(), problem.ridge)
    here = problem.precise_gradient(point)
    while here.norm_bound() > tolerance:
        better = _line_search(here, _newton_step(problem, here), after)
        if better is None:
            by_class = here.value.reshape(problem.loss.outputs, -1)
            step = np.concatenate([fallback.times(part) for part in by_class])
            better = after(here.point, step)
        here = better
    return [x / Fraction(problem.scale) for x in here.point]


def _line_search(
    here: Gradient, step: Floats, after: Callable[[Point, Floats], Gradient]
) -> Gradient | None:
    """Return a point towards ``w - step`` where F is least, nearly, or its gradient halved.

    F is convex, so its derivative along the segment increases, and bisection by its sign converges
    to the minimum. None if 40 halvings reach no such point.
    """
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(40):
        there = after(here.point, t * step)
        descent = float(there.value @ step)  # minus the derivative along the segment
        is_flat = 0 <= descent <= float(here.value @ step) / 2
        if is_flat or there.norm_bound() <= here.norm_bound() / 2:
            return there
        if descent < 0:  # past the minimum
            high = t
        elif t == 1:  # F still decreases at the end of the step
            return there
        else:
            low = t
        t = (low + high) / 2
    return None


class _Inverse:
    """The inverse of a symmetric matrix whose eigenvalues are at least ``least``."""

    def __init__(self, matrix: Floats, least: float) -> None:
        values, self._basis = np.linalg.eigh(matrix)
        self._values = np.maximum(values, least)

    def times(self, vector: Floats) -> Floats:
        """Return the inverse times a vector."""
        return np.asarray(self._basis @ ((self._basis.T @ vector) / self._values))
