"""The minimizer of a linear model's objective with noise, to a proven gradient.

``F(w) = sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, rows x_i in the unit ball: whole steps n_i
times s. It is found in ``v = s w``, of which a float is two sets of whole numbers, so that scores
``n_i'v`` are off by one rounding, and the sum of the slopes' parts is exact. What is left of the
gradient's error is each slope's own, which `Loss` bounds; F is ridge-strongly convex, so
``|w - w*| <= |grad F(w)| / ridge``.

The search: Newton's steps, each to where F is least on its way, for a large ridge first, which
falls to its own. Where floats cannot prove
the gradient to be small (very many rows), decimals do, from where the floats ended; a step that
finds nothing better is ``-M^-1 grad F``, ``M = ridge I + smoothness X'X``, with which F always
falls. So the tolerance is reached for any data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants import ObjectivePerturbation, PrivacyLoss, Pure
from accountants.losses.given import PureBound
from accountants.numerics import UNIT, down, up
from adaptive_dp.data import Examples
from adaptive_dp.data.examples import WEIGHT_BITS, to_steps, weighted_sum
from adaptive_dp.erm import Constants, Loss
from adaptive_dp.erm import losses as names
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.noise.continuous import Real, exponential, normal
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream

Floats = NDArray[np.float64]
Point = list[Fraction]

SLOPE = 2.0**-48
"""How far off a slope may be, as a part of the Lipschitz constant (`Loss.slope`)."""

_STEPS = 200
_SPLITS = 3


@frozen(eq=False)
class Problem:
    """An objective with noise.

    Parameters
    ----------
    examples
        The rows; they are divided by their radius.
    loss
        Of one score, with `precise`.
    ridge
        Positive.
    noise
        b, exactly: p rational numbers.
    """

    examples: Examples
    loss: Loss
    ridge: float
    noise: Point

    @property
    def scale(self) -> float:
        """A number s for which a row of n steps is ``s n``, of norm at most 1."""
        return down(self.examples.unit / self.examples.radius, 8)

    def gradient(self, near: Floats) -> Gradient:
        """Return the gradient at a point next to ``w = near / scale``."""
        high, coarse = to_steps(near[None])
        low, fine = to_steps(near[None] - high * coarse)
        limits = self.loss.constants()
        top = math.ldexp(1.0, math.frexp(limits.lipschitz)[1])
        size = 0.0

        def parts(where: slice, block: Floats) -> Floats:
            nonlocal size
            z = (high @ block.T) * coarse + (low @ block.T) * fine
            size += float(np.abs(z).sum())
            left = self.loss.slope(z, self.examples.labels[where])[0] * (2.0**WEIGHT_BITS / top)
            split = np.empty((_SPLITS, len(left)))
            for k in range(_SPLITS):
                split[k] = np.rint(left)
                left = (left - split[k]) * 2.0**WEIGHT_BITS
            return split

        sums = weighted_sum(self.examples, parts, _SPLITS)
        at = [Fraction(h) * Fraction(coarse) + Fraction(m) * Fraction(fine)
              for h, m in zip(high[0].tolist(), low[0].tolist(), strict=True)]  # fmt: skip
        step = Fraction(self.scale) * Fraction(top)
        total = [
            sum((Fraction(int(sums[k][j])) / 2 ** (WEIGHT_BITS * (k + 1)) for k in range(_SPLITS)),
                Fraction()) * step
            for j in range(len(at))
        ]  # fmt: skip
        exact = self._rest(total, at)
        own = len(self.examples) * limits.lipschitz * SLOPE
        error = up(own + limits.smoothness * 2 * UNIT * size, 1 << 20)
        return Gradient(at, np.array([float(x) for x in exact]), error)

    def precise(self, v: Point) -> Gradient:
        """Return the gradient at ``w = v / scale``, computed in decimals."""
        with localcontext(Context(prec=80)):
            at = [Decimal(x.numerator) / Decimal(x.denominator) for x in v]
            total = [Decimal(0)] * len(at)
            for steps, label in zip(self.examples.steps, self.examples.labels, strict=True):
                row = [Decimal(int(n)) for n in steps]
                score = sum((n * a for n, a in zip(row, at, strict=True)), Decimal(0))
                slope = self.loss.precise(score, Decimal(float(label)))
                total = [t + slope * n for t, n in zip(total, row, strict=True)]
        exact = self._rest([Fraction(t) * Fraction(self.scale) for t in total], v)
        size = float(max((abs(x) for x in at), default=Decimal(0)))
        error = len(self.examples) * (1 + size * 2.0**24) * 1e-60
        return Gradient(v, np.array([float(x) for x in exact]), error)

    def _rest(self, total: Point, v: Point) -> Point:
        ridge = Fraction(self.ridge) / Fraction(self.scale)
        return [t + ridge * x + b for t, x, b in zip(total, v, self.noise, strict=True)]

    def hessian(self, v: Floats) -> Floats:
        """Return the second derivative by w, as floats give it."""
        at, labels = v[None] / self.scale, self.examples.labels
        return self._curved(lambda where, x: self.loss.second(at @ x.T, labels[where])[0, 0])

    def metric(self) -> Floats:
        """Return M, as floats give it."""
        beta = self.loss.constants().smoothness
        return self._curved(lambda w, x: np.full(len(x), beta))

    def _curved(self, weights: Callable[[slice, Floats], Floats]) -> Floats:
        total = np.eye(self.examples.width) * self.ridge
        for where, block in self.examples.blocks():
            x = block * self.scale
            total += (x * weights(where, x)[:, None]).T @ x
        return total


@frozen(eq=False)
class Gradient:
    """The gradient by w at ``w = at / scale``, off by at most ``error`` in l2 norm."""

    at: Point
    slope: Floats
    error: float

    @property
    def near(self) -> Floats:
        """The point as floats."""
        return np.array([float(x) for x in self.at])

    def most(self) -> float:
        """Return an upper bound of the norm."""
        return up(float(np.linalg.norm(self.slope)) + self.error, 1 << 20)


def minimum(problem: Problem, tolerance: float) -> Point:
    """Return a point w at which the gradient is proven to be at most ``tolerance``, exactly."""
    here = problem.gradient(np.zeros(problem.examples.width))
    ridge = max(problem.ridge, len(problem.examples) * problem.loss.constants().smoothness)
    while ridge > problem.ridge:  # from there on each minimum is near to the next
        easier = evolve(problem, ridge=ridge)
        size = float(np.linalg.norm(here.near)) / problem.scale
        here = _newton(easier, easier.gradient(here.near), ridge * (1 + size) / 32)
        ridge /= 4
    here = _newton(problem, problem.gradient(here.near), tolerance)
    if here.most() <= tolerance:
        return [x / Fraction(problem.scale) for x in here.at]
    return _precisely(problem, here.at, tolerance)


def _newton(problem: Problem, here: Gradient, tolerance: float) -> Gradient:
    """Return where Newton's steps end: at the tolerance, or where floats get no further."""

    def moved(at: Point, step: Floats) -> Gradient:
        return problem.gradient(here.near - problem.scale * step)

    for _ in range(_STEPS):
        if here.most() <= tolerance:
            break
        move = _Inverse(problem.hessian(here.near), problem.ridge).of(here.slope)
        found = _along(here, move, moved)
        if found is None:
            break
        here = found
    return here


def _precisely(problem: Problem, at: Point, tolerance: float) -> Point:
    """Return the point by decimals: the steps of M alone would do, Newton's are quicker."""

    def moved(at: Point, step: Floats) -> Gradient:
        scale = Fraction(problem.scale)
        there = [x - scale * Fraction(float(m)) for x, m in zip(at, step, strict=True)]
        return problem.precise([Fraction(round(x * 2**200), 2**200) for x in there])

    factor, here = _Inverse(problem.metric(), problem.ridge), problem.precise(at)
    while here.most() > tolerance:
        newton = _Inverse(problem.hessian(here.near), problem.ridge)
        found = _along(here, newton.of(here.slope), moved)
        here = found or moved(here.at, factor.of(here.slope))
    return [x / Fraction(problem.scale) for x in here.at]


def _along(
    here: Gradient, move: Floats, moved: Callable[[Point, Floats], Gradient]
) -> Gradient | None:
    """Return a point on the way to ``w - move`` where F is least, or with half the gradient."""
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(40):
        there = moved(here.at, t * move)
        falls = float(there.slope @ move)
        if there.most() <= here.most() / 2 or 0 <= falls <= float(here.slope @ move) / 2:
            return there
        if falls < 0:
            high = t
        elif t == 1:
            return there
        else:
            low = t
        t = (low + high) / 2
    return None


class _Inverse:
    """The inverse of a matrix of which no eigenvalue is below ``least``."""

    def __init__(self, matrix: Floats, least: float) -> None:
        values, self._basis = np.linalg.eigh(matrix)
        self._values = np.maximum(values, least)

    def of(self, vector: Floats) -> Floats:
        """Return the inverse times a vector."""
        return np.asarray(self._basis @ ((self._basis.T @ vector) / self._values))


# -----------------------------------------------------------------------------
# Objective perturbation: the minimizer of a sum of losses with noise in the objective.
#
# The noise b is drawn exactly, from a secure stream, and never again. The minimizer is approximate,
# so what is released is not it but ``w + z``, with fresh noise z: given the exact minimizer theta
# of
# the data, w is a function of theta and the data (b is, as ``b = -grad J(theta)``) with
# ``|w - theta| <= g / ridge``, so that z hides it like any value of sensitivity ``2 g / ridge``,
# and
# its loss composes with that of theta (approximate minima perturbation: Iyengar et al. 2019).
# Floats
# in the search, the rounding of b and of w are all inside of g, or of z's steps. How long the
# search
# takes does depend on the data.


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
    `accountants.losses.perturbation` has the proof; after Kifer, Smith and Thakurta
    2012, and Redberg, Koskela and Wang 2023.

    Examples
    --------
    >>> PerturbedObjective(sigma=5.0, ridge=2.5, blur=1e3, of="Logistic()").loss(1, span=1)
    ObjectivePerturbation(mu=0.2..., determinant=0.0953..., search=0.002...)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Examples
    uses_span: ClassVar[bool] = True
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
    input_type: ClassVar[type] = Examples
    uses_span: ClassVar[bool] = True
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
