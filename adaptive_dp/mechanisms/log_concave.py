"""The exponential mechanism over a ball of parameters, by a sampler with a proven run time."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss, Pure, with_total_variation
from accountants.numerics import ceiling, down, up
from adaptive_dp.data import Examples
from adaptive_dp.erm import losses
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.mechanisms.objective_perturbation import (
    Problem,
    _PerturbedObjective,
    loss_name,
    minimizer,
    row_counts,
    valid_loss,
)
from adaptive_dp.noise.bernoulli import bernoulli_exp, known_exactly
from adaptive_dp.noise.gaussian import discrete_gaussian
from adaptive_dp.noise.stream import Stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BITS = 24
"""The lattice's step is the ball's radius times 2^-BITS."""

LOSS_BITS = 40
"""A row's loss is summed in steps of 2^-LOSS_BITS of its range."""

FLATTER = 2.0**-11
"""By how much the proposals' precision is below the ridge, relatively."""

TOLERANCE = 1e-3
"""The gradient's norm at the proposals' centre, over the root of the ridge."""

MOST_AT_ONCE = 2**19
"""The largest number of losses that are computed at a time."""

WIDEST = 64
"""The largest number of parameters: a proposal is accepted with a chance that falls with it."""


def log_range(name: str, of: str, radius: float) -> tuple[float, float]:
    """Return a row's lowest loss in a ball of parameters, and how far its losses are apart there.

    Of rows of norm 1 scores are at most the radius in size: losses lie between the bounds that the
    loss states for it, and by the Lipschitz constant no more than ``2 L radius`` apart.

    Examples
    --------
    >>> low, width = log_range("", "Logistic()", 3.0)
    >>> round(low, 3), round(width, 3)
    (0.049, 3.0)
    """
    limits = losses.read(of).constants(radius)
    width = limits.highest - limits.lowest
    if not 0 < width < math.inf:
        raise DeclarationError(f"{name} needs a loss with bounds in a ball, got {of}")
    return limits.lowest, up(width, 8)


class LogConcaveSample(Mechanism):
    """Draw parameters w of a ball with a density that falls with the rows' losses, exactly.

    Of the lattice points of the ball ``|w| <= radius``, w is drawn with probability in
    proportion to

    ``exp(-epsilon sum_i q_i(w) - ridge/2 |w|^2)``,   ``q_i(w) = (f(x_i'w, y_i) - low) / width``

    rounded to a grid in [0, 1], rows divided by their declared radius into the unit ball. The
    lattice has a step of ``radius 2^-24`` in each coordinate: that is the mechanism, not an
    error of it. It is Bayes' posterior of a normal prior, tempered so that a row's loss costs
    epsilon.

    *Privacy.* A row that comes or goes changes the exponent of each point by a number in [0,
    epsilon], and the normaliser by a factor in ``[e^-epsilon, 1]``: the loss has a bounded
    range of epsilon. Of a rows that are exchanged for b, ``(a + b) epsilon`` (McSherry and
    Talwar 2007; Durfee and Rogers 2019). The prior is public and costs nothing.

    *The sampler is exact, with a proven run time.* Let G be minus the exponent, ``m = ridge``
    and M a bound of G's second derivatives, from the rows. At any lattice point w0 of the ball,
    with c the gradient of G there, strong convexity says

    ``G(w0 + u) >= G(w0) + c'u + m/2 |u|^2 >= G(w0) - K + m'/2 |u|^2``

    for w0 + u in the ball and m' below m, where K is the lesser of ``|c|^2 / (2 (m - m'))``
    (the least of ``c'u + (m - m')/2 |u|^2``) and ``c'w0 + radius |c|`` (minus the least of c'u
    in the ball), which is 0 at the minimizer of G over the ball. So a discrete Gaussian of
    precision m' around w0 which is accepted with probability ``exp(-(G(w0 + u) - G(w0) - m'/2
    |u|^2 + K))``, at most 1, and never outside of the ball, has the law above (rejection). The
    float errors of losses and their rounding to the grid are proven to be below what K is made
    larger by; acceptance is decided in rational arithmetic.

    A proposal is accepted with a chance of at least

    ``P = e^{G(w0) - G(v) - K} S(M, rho)^p / S(m', infinity)^p``

    for any lattice point v with ``|v| + rho <= radius``, S(a, r) the sum of ``e^{-a h^2 k^2 /
    2}`` over the integers with ``h |k| <= r / sqrt(p)``: within rho of v, G is at most ``G(v) +
    c'u + M/2 |u|^2``, and points u and -u together have the weight ``2 cosh(c'u) e^{-M |u|^2 /
    2}`` at least. P is about ``(m / M)^{p/2}``.

    *The total variation.* With ``failure`` t above 0 there are at most ``log(1/t) / P``
    proposals; if none of them was accepted, 0 is released. So its law is within ``(1 -
    P)^{log(1/t)/P} <= t`` of the one above, for every data set, and the loss is (epsilon, (1 +
    e^epsilon) t) (`accountants.with_total_variation`). With t = 0 it goes on until one is
    accepted. (The independence Metropolis chain with these proposals has the same bound, ``(1 -
    P)^n`` after n steps: Mengersen and Tweedie 1996, Thm 2.1.) How many proposals there are
    depends on the data, and so does how long it takes.

    Parameters
    ----------
    epsilon
        What a row's losses weigh, in nats.
    ridge
        m, the prior's precision, in units in which rows have norm at most 1.
    radius
        Of the ball of w, in the same units.
    of
        The loss of one score, such as ``Logistic()``.
    failure
        t; 0 for no bound of the number of proposals.

    References
    ----------
    McSherry and Talwar 2007, Thm 6; Bassily, Smith and Thakurta 2014, Algorithm 2 (the exponential
    mechanism for convex losses, there by random walks); the sampler and its bound are our own.

    Examples
    --------
    >>> LogConcaveSample(epsilon=0.5, ridge=4.0, radius=3.0, of="Logistic()").loss(1, span=1)
    BoundedRange(epsilon=0.5)
    >>> near = LogConcaveSample(epsilon=0.5, ridge=4.0, radius=3.0, of="Logistic()", failure=1e-9)
    >>> loss = near.loss(1, span=1)
    >>> round(loss.epsilon, 9), round(loss.delta * 1e9, 6)  # 1 + e^0.5
    (0.5, 2.648721)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Examples
    uses_span: ClassVar[bool] = True
    no_interval: ClassVar[str] = "it is one draw; several draws show how far they lie apart"
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; own proof of the sampler"
    sampler: ClassVar[str] = "discrete Gaussian with exact rejection"

    epsilon: float = budget_parameter("epsilon")
    ridge: float = noise_parameter("m")
    radius: float = field(
        validator=checked(lambda v: 1e-6 <= v <= 1e6, "a number in [1e-6, 1e6]"), converter=float
    )
    of: str = field(converter=loss_name, validator=valid_loss)
    failure: float = field(
        default=0.0,
        validator=checked(lambda v: v == 0 or 1e-300 <= v <= 0.5, "0, or in [1e-300, 0.5]"),
        converter=float,
    )

    def premises(self, release: Any) -> None:
        """Refuse examples whose labels the loss does not read, or with many columns."""
        _PerturbedObjective.premises(self, release)  # type: ignore[arg-type]
        domain = release.inputs[0].domain
        if domain.weighted:
            raise DeclarationError("LogConcaveSample draws from rows without weights")
        if domain.width > WIDEST:
            raise DeclarationError(
                f"LogConcaveSample draws at most {WIDEST} coefficients, got {domain.width}: "
                "proposals would not be accepted in any time"
            )
        log_range("LogConcaveSample", self.of, self.radius)

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss for so many rows that come or go."""
        changed, _ = row_counts(distance, distance if span is None else span)
        if changed == 0:
            return Pure(0.0)
        meant = BoundedRange(ceiling(changed * Fraction(self.epsilon)))
        return with_total_variation(meant, self.failure) if self.failure else meant

    def release(self, value: Examples, stream: Stream, *given: Any) -> Floats:
        """Return the coefficients, shape (p,)."""
        target = Target.of(value, self)
        most = math.inf if not self.failure else target.proposals(self.failure)
        point = np.zeros(value.width, dtype=np.int64)
        made, size = 0.0, 16
        while made < most:
            size = int(min(size, most - made, max(1, MOST_AT_ONCE // max(1, len(value)))))
            accepted = target.accepted(stream, size)
            if accepted is not None:
                point = accepted
                break
            made += size
            size = min(2 * size, 4096)
        return np.asarray(point * (target.step / value.radius), dtype=np.float64)


def minimizer_in_ball(problem: Problem, sampler: LogConcaveSample, weight: float) -> Floats:
    """Return a point near the minimizer of G over the ball: how near bears on the time alone.

    Where the minimizer over all points lies outside, it is that of a larger ridge, whose minimizer
    lies on the sphere (Karush, Kuhn and Tucker).
    """
    radius, low = sampler.radius, problem.ridge

    def solved(ridge: float) -> Floats:
        wanted = TOLERANCE * math.sqrt(sampler.ridge) / weight
        return np.array([float(x) for x in minimizer(evolve(problem, ridge=ridge), wanted)])

    found = solved(low)
    if float(np.linalg.norm(found)) <= radius:
        return found
    high = 2 * low
    while float(np.linalg.norm(inside := solved(high))) > radius:
        low, high = high, 2 * high
    for _ in range(40):
        # the gap of the docstring is about this
        size = float(np.linalg.norm(inside))
        if weight * (high - problem.ridge) * size * (radius - size) < 0.05:
            break
        middle = math.sqrt(low * high)
        found = solved(middle)
        if float(np.linalg.norm(found)) > radius:
            low = middle
        else:
            high, inside = middle, found
    return inside


@frozen(eq=False)
class Target:
    """The law that is drawn from, in units of the lattice, with its proposals.

    Parameters
    ----------
    examples
        The rows.
    sampler
        The mechanism's parameters.
    centre
        w0, an array of p integers.
    sigma
        Of the discrete Gaussian: the proposals' precision is ``1 / (step sigma)^2``.
    deficit
        K, without the errors of losses.
    steepest
        M.
    slack
        How far the exponent may be off from that of the loss itself.
    """

    examples: Examples
    sampler: LogConcaveSample
    centre: Integers
    sigma: float
    deficit: float
    steepest: float
    slack: float

    @classmethod
    def of(cls, examples: Examples, sampler: LogConcaveSample) -> Target:
        """Return the law for some rows, its centre near the minimizer of G."""
        loss, step = losses.read(sampler.of), sampler.radius * 2.0**-BITS
        limits = loss.constants(sampler.radius)
        _, width = log_range("LogConcaveSample", sampler.of, sampler.radius)
        weight, p = sampler.epsilon / width, examples.width
        # F = sum f + (ridge / weight) / 2 |w|^2 is G over the weight of a loss
        problem = Problem(examples, loss, sampler.ridge / weight, [Fraction(0)] * p)
        # towards 0, so that it stays in the ball
        centre = np.trunc(minimizer_in_ball(problem, sampler, weight) / step).astype(np.int64)
        there = problem.gradient(np.asarray(centre * (step * problem.scale), dtype=np.float64))
        scale = Fraction(problem.scale)
        # the gradient is that of a point next to the centre
        off = [
            float(abs(x / scale - int(k) * Fraction(step)))
            for x, k in zip(there.point, centre, strict=True)
        ]
        steepest = up(weight * float(np.linalg.eigvalsh(problem.hessian_bound())[-1]), 2**30)
        # what the gradient's norm may be off by: at another point, and of rows in other last bits
        error = weight * (there.error + 2.0**-40 * float(np.linalg.norm(there.value)))
        error += steepest * math.sqrt(p) * max(off)
        steep = limits.lipschitz + limits.smoothness * sampler.radius
        error += weight * len(examples) * steep * 2.0**-45
        c, at = weight * there.value, centre * step
        norm = float(np.linalg.norm(c)) + error
        # m - m', rounded down: (1 + FLATTER)^-2 <= 1 - 2 FLATTER + 3 FLATTER^2
        spare = sampler.ridge * (2 * FLATTER - 3 * FLATTER**2) * (1 - 1e-9)
        gap = float(c @ at) + sampler.radius * (norm + 2 * error) + 1e-12 * sampler.radius * norm
        deficit = up(min(norm**2 / (2 * spare), max(gap, 0.0)), 2**20)
        rounding = loss.rounding(sampler.radius).value
        moved = limits.lipschitz * sampler.radius * 2.0**-49  # three roundings of a score
        slack = len(examples) * sampler.epsilon * (2.0**-LOSS_BITS + 2 * (rounding + moved) / width)
        sigma = (1 + FLATTER) / (step * math.sqrt(sampler.ridge))
        return cls(examples, sampler, centre, sigma, deficit, steepest, up(slack, 2**20))

    @property
    def step(self) -> float:
        """The lattice's step."""
        return self.sampler.radius * 2.0**-BITS

    @property
    def raised(self) -> Fraction:
        """K, by which the proposals' law is above that which is drawn from."""
        return Fraction(up(self.deficit + 2 * self.slack, 2**20)) + Fraction(1e-9)

    def losses_at(self, points: Integers) -> Integers:
        """Return the sums of the rows' losses at points of shape (m, p), in steps of the range."""
        loss, low_width = losses.read(self.sampler.of), log_range("", self.sampler.of, self.radius)
        low, width = low_width
        total = np.zeros(len(points), dtype=np.int64)
        scale = self.step * (self.examples.unit / self.examples.radius)
        weights = points.astype(np.float64)
        for where, block in self.examples.blocks():
            z = weights @ block.T  # integers below 2^53: a row's score depends on that row alone
            z *= scale
            labels = self.examples.labels[where]
            labels = np.concatenate([labels] * len(points)) if len(points) > 1 else labels
            with np.errstate(all="ignore"):  # a warning would depend on the data
                values = (loss.value(z.reshape(1, -1), labels) - low) / width
            inside = np.clip(np.nan_to_num(values, nan=1.0), 0.0, 1.0).reshape(len(points), -1)
            total += np.rint(inside * 2.0**LOSS_BITS).astype(np.int64).sum(axis=1)
        return total

    @property
    def radius(self) -> float:
        """The ball's radius."""
        return self.sampler.radius

    def exponent(self, loss: int, square: int) -> Fraction:
        """Return G, exactly, from a sum of losses and a squared norm in steps."""
        penalty = Fraction(self.sampler.ridge) * Fraction(self.step) ** 2 * square / 2
        return Fraction(self.sampler.epsilon) * Fraction(loss, 1 << LOSS_BITS) + penalty

    def accepted(self, stream: Stream, count: int) -> Integers | None:
        """Return the first of so many proposals that is accepted, or None."""
        p = self.examples.width
        drawn = discrete_gaussian(stream, self.sigma, count * p).reshape(count, p)
        words = stream.words(count).tolist()
        points = self.centre + drawn
        squares = _squares(points)
        inside = [i for i in range(count) if squares[i] <= 1 << (2 * BITS)]
        if not inside:
            return None
        sums = self.losses_at(np.vstack([self.centre[None], points[inside]])).tolist()
        start = self.exponent(sums[0], _squares(self.centre[None])[0])
        away = _squares(drawn)
        proposed = Fraction(self.sigma) ** -2 / 2
        for i, loss in zip(inside, sums[1:], strict=True):
            exponent = self.exponent(loss, squares[i]) - start + self.raised - proposed * away[i]
            # at least 0 by the docstring of the mechanism
            if bernoulli_exp(
                float(exponent), known_exactly(max(exponent, Fraction(0))), stream, words[i]
            ):
                return np.asarray(points[i])
        return None

    def chance(self) -> float:
        """Return P, a lower bound of the chance that a proposal is accepted."""
        first = 3 * math.sqrt(self.examples.width / self.steepest)
        return max(self._chance(min(self.radius / 2, first * 2.0**-k)) for k in range(8))

    def _chance(self, rho: float) -> float:
        p, step = self.examples.width, self.step
        size = float(np.linalg.norm(self.centre)) * step
        # a point deep enough in the ball: the centre itself where it is one, else nearer to 0
        toward = self.centre * min(1.0, (1 - 1e-9) * (self.radius - rho) / max(size, 1e-300))
        both = np.vstack([self.centre, np.trunc(toward).astype(np.int64)])
        here, there = (
            self.exponent(loss, square)
            for loss, square in zip(self.losses_at(both).tolist(), _squares(both), strict=True)
        )
        fallen = float(there - here + self.raised) + 2 * self.slack
        # sums over integers against integrals of e^{-a k^2}, which falls from 0 on to both sides
        least = math.sqrt(2 * math.pi / self.steepest) / step
        least *= math.erf(rho * math.sqrt(self.steepest / (2 * p)))
        most = 1 + math.sqrt(2 * math.pi) * self.sigma
        log_chance = p * math.log(max(least - 1, 1e-300) / most) - fallen
        return down(math.exp(min(log_chance, 0.0)), 2**24)

    def proposals(self, failure: float) -> float:
        """Return how many proposals there are at most."""
        return math.ceil(-math.log(failure) / max(self.chance(), 1e-300) * (1 + 1e-9))


def _squares(points: Integers) -> list[int]:
    """Return the squared norms of points as Python integers."""
    return [sum(k * k for k in row) for row in points.tolist()]
