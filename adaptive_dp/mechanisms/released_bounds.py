r"""Released bounds that later mechanisms may rely on: `LowerBound` and `UpperBound`.

Let D, D' be neighbours, and f move by at most ``reach`` between them. What is released,

``f(D) + N(0, sigma^2) - (reach + q sigma)``, with ``P(N(0, 1) > q) = failure``,

is below both f(D) and f(D') with probability at least ``1 - failure``, under D and under D', and
below f at all data sets at once at which f is within ``reach`` of both. (It is rounded to a
lattice, a rising function of the same: what follows holds of that.) A mechanism that follows it may
rely on that: its loss need hold only where the bound is right.

**Theorem.** *A plan whose mechanisms' losses hold where the bounds are right is dominated by the
composition of their losses and of the bounds' Gaussian losses, that fails independently with
probability ``failure`` for each bound.*

Proof. Take the release X of a bound, P and Q its laws under D and D', normal with one variance;
B the event that the bound is wrong at any of these data sets, a tail of X. Let T be the profile of
whatever follows, where X is right: a falling function with values in [0, 1]. At threshold e the
plan's hockey-stick divergence is at most ``E_P[1_B + 1_{not B} T(e - L)]``, L the log ratio of P to
Q at X, for on B it is at most 1. The claim is that it is at most
``failure + (1 - failure) E_P[T(e - L)]``, or, with ``V = 1 - T(e - L)``, that

``E_P[1_B V] <= failure E_P[V]``.

For T the divergence of (R, S), ``V = int min(r, e^{e-L} s)``: V falls in L, and ``e^L V`` rises.
Let B be ``X > c`` (for ``X < c`` mirror). If P has the larger mean, L rises in X and V falls, so
by Chebyshev's inequality for monotone functions ``E_P[1_B V] <= P(B) E_P[V]``. If Q has it, L
falls, and so does ``e^L V``: ``E_P[1_B V] = E_Q[1_B e^L V] <= Q(B) E_Q[e^L V] = Q(B) E_P[V]``. Both
P(B) and Q(B) are at most ``failure``. What follows may itself begin with the release of a bound:
apply this from the last to the first. $\square$

So a failure costs delta once, without the factor ``e^epsilon`` of the usual argument, and no
accountant need know that it happens inside of another release.

References
----------
Wang 2018 and Redberg, Zhu and Wang 2023 (private bounds on the data's own loss, then a calibrated
mechanism). That a bound must hold for both data sets, and the theorem, are proven here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss, special
from accountants import Gaussian as GaussianLoss
from accountants.losses.composite import Composite
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.values import number, positive
from adaptive_dp.mechanisms.additive import Gaussian, checked
from adaptive_dp.noise import lattice
from adaptive_dp.noise.stream import Stream

THEOREM = (
    "Gaussian: Balle & Wang 2018, Thm 8; one-sided bound: proven in "
    "adaptive_dp.mechanisms.released_bounds"
)


# the failure must stay below 1/2, so that the quantile is positive and the event B a tail
check_failure = checked(
    lambda v: positive(v) and 1e-18 <= v < 0.5,
    "a probability in [1e-18, 0.5)",
    "; it is part of the plan's delta",
)
"""Refuses a failure that is not a probability, or too small for a normal quantile."""


class _Bound(Mechanism):
    """All that both bounds share; they differ in the side of the value that they release."""

    norm: ClassVar[float] = 2
    theorem: ClassVar[str] = THEOREM
    sampler: ClassVar[str] = Gaussian.sampler
    no_interval: ClassVar[str] = (
        "it is a bound of the value, on whose other side the value lies but for its failure"
    )

    sigma: float = noise_parameter("sigma")
    failure: float = attrs.field(converter=number, validator=check_failure)
    reach: float = attrs.field(
        converter=number,
        validator=checked(positive, "a positive number", "; give it the query's sensitivity"),
    )

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the Gaussian's loss with the failure; distances above ``reach`` are refused."""
        # without a lattice: of the value as it is; certificates use `cost`
        return self._with_failure(distance, GaussianLoss(distance / self.sigma))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` plus what rounding the value adds to it."""
        return self._with_failure(distance, Gaussian(self.sigma).cost(distance, dimension, step))

    def deviation(self) -> float:
        """Return the standard deviation, sigma."""
        return self.sigma

    def margin(self) -> float:
        """Return by how much the release is moved to the safe side; see `margin`."""
        return margin(self.sigma, self.failure, self.reach)

    def _with_failure(self, distance: float, noise: PrivacyLoss) -> PrivacyLoss:
        """Return the noise's loss composed with the failure, by the theorem of the module."""
        # beyond `reach` the bound need not hold for the neighbour, which the theorem rests on;
        # the margin is wider by 1e-9, more than the tolerance here
        if distance > self.reach * (1 + 1e-10):
            raise DeclarationError(
                f"{type(self).__name__}(reach={self.reach:g}) cannot bound values "
                f"{distance:g} apart; give it a reach of at least the query's sensitivity"
            )
        # the theorem of the module: the failure is composed as an independent mechanism's delta
        return Composite(((noise, 1), (Approximate(0.0, self.failure), 1)))


class LowerBound(_Bound):
    """Release a number that is below the query's value, at both of any two neighbouring data sets.

    Released is ``f + N(0, sigma^2) - margin(sigma, failure, reach)``.

    Privacy: the Gaussian mechanism's loss at ``mu = Delta / sigma``, and a delta of ``failure``,
    paid once: then the losses of later mechanisms need hold only where the bound is right (the
    theorem of this module).

    Parameters
    ----------
    sigma
        The noise's standard deviation, in the query's units.
    failure
        The probability that the number is not below the value, in [1e-18, 0.5).
    reach
        At least the query's sensitivity, in its units.

    Notes
    -----
    Noise: that of `Gaussian`, exact on a lattice; the margin covers its rounding.

    References
    ----------
    Gaussian: Balle and Wang 2018, Thm 8. Wang 2018 and Redberg, Zhu and Wang 2023 (private bounds).

    See Also
    --------
    UpperBound : the other side.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> least = people.count().release(dp.LowerBound(sigma=4.0, failure=1e-6, reach=1.0))
    >>> plan = dp.Pipeline(least=least)
    >>> plan.certify(delta=2e-6)
    <certificate epsilon=1.06071 delta=2e-06 by gaussian>
    >>> plan.simulate(seed=1, people={"id": range(1_000)})["least"] < 1_000
    True
    """

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise, less the margin, in the value's shape."""
        # subtracting a public constant is post-processing; the bound is on the data's safe side
        return Gaussian(self.sigma).release(value, stream) - self.margin()


class UpperBound(_Bound):
    """Release a number that is above the query's value, at both of any two neighbouring data sets.

    Released is ``f + N(0, sigma^2) + margin(sigma, failure, reach)``.

    Privacy: that of `LowerBound`.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in the query's units.
    failure
        The probability that the number is not above the value, in [1e-18, 0.5).
    reach
        At least the query's sensitivity, in its units.

    Notes
    -----
    Noise: that of `Gaussian`, exact on a lattice; the margin covers its rounding.

    References
    ----------
    Those of `LowerBound`.

    See Also
    --------
    LowerBound : the other side.

    Examples
    --------
    >>> bound = UpperBound(sigma=4.0, failure=1e-6, reach=1.0)
    >>> bound.loss(distance=1.0)
    Composite(spends=((Gaussian(mu=0.25), 1), (Approximate(epsilon=0.0, delta=1e-06), 1)))
    >>> bound.loss(distance=2.0)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DeclarationError: UpperBound(reach=1) cannot bound values 2 apart;
    give it a reach of at least the query's sensitivity
    """

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise, plus the margin, in the value's shape."""
        # as in `LowerBound`, mirrored
        return Gaussian(self.sigma).release(value, stream) + self.margin()


def margin(sigma: float, failure: float, reach: float) -> float:
    """Return ``reach + q sigma``, rounded up; q the normal quantile that ``failure`` exceeds.

    With it ``P(X > f(D)) <= failure`` for the release X of a `LowerBound`, at D and at any D' whose
    value is within ``reach``. A step of the noise's lattice is added, since value and noise are
    each rounded by half of one; then the sum is increased by 1e-9 of itself, for its own rounding.

    Examples
    --------
    >>> round(margin(2.0, 1e-6, 1.0), 4)
    10.5068
    """
    # -ndtri(failure) is q > 0; every term is positive, and 1e-9 covers the sum's rounding
    return (reach + lattice.step(sigma) + sigma * -float(special.ndtri(failure))) * (1 + 1e-9)
