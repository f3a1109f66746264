"""Sparse vector: which values lie above a threshold, at a cost for those that do.

`AboveThreshold` is one run, in which noise is drawn and compared; `SparseVector` and
`GaussianSparseVector` are the mechanisms that begin one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from accountants import GaussianSparseVector as GaussianSparseVectorLoss
from accountants import PrivacyLoss, Pure
from accountants import SparseVector as SparseVectorLoss
from accountants.numerics import ceiling, down
from adaptive_dp.data.grid import EXACT, step
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Free, Mechanism, noise_parameter
from adaptive_dp.graph.values import POSITIVE, as_int, number, positive
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.mechanisms.selection import EXACT_CHOICE, span_bound
from adaptive_dp.noise.continuous import Real, is_nonnegative_sum, laplace, nearest, normal
from adaptive_dp.noise.stream import SecureStream, Stream


@define(repr=False, eq=False)
class AboveThreshold:
    """One run of sparse vector: values come one at a time, each answered above or below.

    It answers whether ``value + noise >= threshold + noise``: the threshold's noise is drawn once,
    each value's independently. The next value may depend on all answers so far. The run ends after
    ``remaining`` answers "above", or ``queries`` values.

    Its cost is that of the mechanism that began it, for values that one unit moves by at most the
    loss's distance. The run cannot check that: the caller must see to it.

    Parameters
    ----------
    stream
        Where the noise of the values comes from.
    draw
        Draws noise of scale 1.
    threshold
        Public, in the units of the values.
    threshold_noise
        The scale of the threshold's noise, and its draw of scale 1.
    scale
        The scale of each value's noise.
    remaining
        How many answers "above" remain.
    queries
        How many values remain.
    numeric
        The Laplace scale of released numbers; None where only answers are released.

    Notes
    -----
    Noise is continuous, with as many bits as a comparison needs: `adaptive_dp.noise.continuous`.
    """

    _stream: Stream
    _draw: Callable[[Stream], Real]
    _threshold: float
    _threshold_noise: tuple[float, Real]
    _scale: float
    remaining: int
    queries: float = math.inf
    _numeric: float | None = None
    _last: float | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<sparse vector, {self.remaining} left>"

    def __reduce__(self) -> str:
        # the threshold's noise is drawn once for a run: two copies would answer with the same noise
        raise TypeError("a run of sparse vector cannot be pickled: a copy would repeat its noise")

    def ask(self, value: float) -> bool | None:
        """Return whether the value is above; None once the run is over.

        NaN counts as 0, infinite values as the largest floats.

        Raises
        ------
        DeclarationError
            If the value is not a number; nothing is spent.
        """
        # values are made finite first, so that the exact comparison below is defined for all
        finite = _finite(value)
        # a number may be asked only right after its own answer "above"
        self._last = None
        # after the c-th "above" or the K-th value nothing is compared: the end is public
        if not self.remaining or self.queries < 1:
            return None
        # counted before anything is drawn, so that a failure on the way answers nothing for free
        self.queries -= 1
        scale, noise = self._threshold_noise
        # value + noise - (threshold + its noise) >= 0, decided exactly
        terms = ((self._scale, self._draw(self._stream)), (-scale, noise))
        above = is_nonnegative_sum((finite, -self._threshold), terms)
        if above:
            # answers "above" are what the epsilon pays for
            self.remaining -= 1
            # for `number`, which adds independent noise to it
            self._last = finite
        return above

    def number(self) -> float:
        """Return the last value, answered "above", with independent Laplace noise; once for each.

        It is the exact sum, rounded to the nearest multiple of a power of two near 2^-20 of the
        noise's scale (and clamped to 2^53 of these), which all values reach alike.

        Raises
        ------
        DeclarationError
            If the mechanism pays for no numbers, or the last answer was not "above".
        """
        if self._numeric is None or self._last is None:
            raise DeclarationError(
                "a number follows an answer 'above', once, and only where SparseVector(numeric=...)"
                " pays for it"
            )
        # cleared: the epsilon pays for one number per answer, and a second would be free
        value, self._last = self._last, None
        unit = step(self._numeric, 20)
        steps = nearest(value, self._numeric, laplace(self._stream), unit)
        # clamped in steps, so that the product with a power of two is an exact float
        return min(max(steps, -EXACT), EXACT) * unit

    def answers(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the answers to values in order, in their shape.

        1 where above, or the number, if that is paid for; 0 where below, or minus infinity beside
        numbers; NaN after the end.
        """
        # in the order of the values: after the end all are NaN
        flat = [self._answer(value) for value in np.ravel(values).tolist()]
        return np.array(flat, dtype=np.float64).reshape(np.shape(values))

    def _answer(self, value: float) -> float:
        above = self.ask(value)
        if above is None:
            return math.nan
        if self._numeric is None:
            return float(above)
        return self.number() if above else -math.inf


def _finite(value: float) -> float:
    """Return a value as a finite float, NaN as 0, or refuse it without showing it."""
    largest = sys.float_info.max
    number: float | None
    try:
        number = float(value)
    except OverflowError:  # an int beyond all floats
        return largest if value > 0 else -largest
    except (TypeError, ValueError):
        number = None
    if number is None:  # raised outside of the handler: its cause would show the value
        raise DeclarationError(
            f"a value for sparse vector must be a number, got a {type(value).__name__}; pass a "
            "float"
        )
    return 0.0 if math.isnan(number) else min(max(number, -largest), largest)


# -----------------------------------------------------------------------------
# The mechanisms, with Laplace and with Gaussian noise.


check_threshold = checked(lambda v: is_number(v) and abs(v) < 1e300, "a finite number")
"""Refuses a threshold that is not a finite number."""

# at most 2^53, so that the number is exact as a float
check_count = checked(lambda v: 1 <= (as_int(v) or 0) <= 2**53, "an integer of at least 1")
"""Refuses what is not an integer from 1 to 2^53."""


class _SparseVector(Mechanism):
    """The base of both mechanisms: they differ in the noise of the run that they begin."""

    norm: ClassVar[float] = math.inf
    uses_span: ClassVar[bool] = True
    no_interval: ClassVar[str] = (
        "it says which values a noisy comparison found above a threshold; release the values "
        "themselves to have intervals"
    )

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return 1 (or the number) above, 0 (or -inf) below, NaN after the end, as shaped."""
        return self.begin(stream).answers(value)

    def redrawn(self) -> bool:
        """Return False: the noise cannot be estimated by releasing answers once more."""
        return False

    def begin(self, stream: Stream | None = None) -> AboveThreshold:
        """Return a run that answers values one at a time, each chosen after the answers before."""
        raise NotImplementedError


class SparseVector(_SparseVector):
    """Answer of values in order which lie above a threshold, until c of them do.

    Released is 1 for above, 0 for below, NaN after the c-th above. Laplace noise of scale b is on
    the threshold, of scale ``b (2c)^(1/3)`` on each value (``b c^(1/3)`` for monotone ones): of all
    ratios the one of least variance for the epsilon (Lyu, Su and Li 2017, Sec. 4.2).

    Privacy: ``epsilon = Delta / b + c s / (b (2c)^(1/3))``, however many values there are. Delta is
    the most that a value moves; s is the span, the most by which the moves of two values differ:
    ``s = Delta`` where all move the same way, else ``2 Delta``.

    Proof, for values that move by between m and M, ``M - m <= s``: hold the noise of the values
    fixed, and shift the threshold's by M, for ``M / b``. What was below stays below; what was above
    stays above if its own noise grows by M less its move, s at most: for each of c values s over
    the scale of their noise (after Lyu, Su and Li 2017, Thms 2 and 4; the span is derived here).

    Parameters
    ----------
    scale
        b, in the units of the values.
    threshold
        Public, in the same units.
    count
        c, how many values may be above.
    monotone
        Whether to choose the ratio for values that all move the same way. The cost is computed
        from the query, not from this.
    numeric
        The scale b_3 of independent Laplace noise with which the values above are released in place
        of 1, for ``c Delta / b_3`` more; below is then minus infinity. None releases no numbers.

    Notes
    -----
    Noise: `adaptive_dp.noise.continuous.laplace`, drawn in `AboveThreshold.ask`; comparisons are
    exact, and numbers are rounded to multiples of a power of two.

    References
    ----------
    Dwork, Naor, Reingold, Rothblum and Vadhan 2009; Lyu, Su and Li 2017, Alg. 7, Thms 2 to 4.

    See Also
    --------
    GaussianSparseVector : composes better over many runs.
    NoisyMax : only the largest value.

    Examples
    --------
    >>> SparseVector(scale=2.0, threshold=100, monotone=True).loss(distance=1.0, span=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = "sparse vector: Lyu, Su & Li 2017, Alg. 7, Thms 2 to 4"
    sampler: ClassVar[str] = f"sparse vector, continuous Laplace noise, {EXACT_CHOICE}"

    scale: float = noise_parameter("b")
    threshold: float = attrs.field(converter=number, validator=check_threshold)
    count: int = attrs.field(default=1, converter=number, validator=check_count)
    monotone: bool = attrs.field(
        default=False, validator=checked(lambda v: isinstance(v, bool), "True or False")
    )
    numeric: float | None = attrs.field(
        default=None,
        converter=number,
        # a Free scale is checked once calibration has replaced it
        validator=checked(
            lambda v: v is None or isinstance(v, Free) or positive(v),
            f"a {POSITIVE}, the scale of the numbers' noise, or None",
        ),
        metadata={"symbol": "b3", "role": "noise"},
    )

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between values that move by at most ``distance``, apart by ``span``."""
        # nothing moves: no answer depends on the unit
        if distance == 0:
            return Pure(0.0)
        # exact rationals: only `ceiling` rounds, and upward
        spread, sensitivity = Fraction(span_bound(distance, span)), Fraction(distance)
        # the three terms of the proof, each rounded up: c s over the scale of the values' noise,
        # Delta / b for the threshold's shift, and c Delta / b_3 for the numbers
        queries = ceiling(self.count * spread / Fraction(self.query_scale()))
        threshold = ceiling(sensitivity / Fraction(self.scale))
        numbers = (
            ceiling(self.count * sensitivity / Fraction(self.numeric)) if self.numeric else 0.0
        )
        if queries == 0:  # all values move alike: the threshold's noise covers them
            queries = math.ulp(0.0)
        # the last argument: values all move the same way where the span is at most the distance
        return SparseVectorLoss(threshold, queries, numbers, self.count, spread <= sensitivity)

    def begin(self, stream: Stream | None = None) -> AboveThreshold:
        """Return a run that answers values one at a time, each chosen after the answers before.

        Parameters
        ----------
        stream
            By default the operating system's randomness.

        Examples
        --------
        >>> run = SparseVector(scale=0.01, threshold=100).begin()
        >>> run.ask(50), run.ask(150), run.ask(50), run.remaining
        (False, True, None, 0)
        """
        # a stream is passed by simulations and tests, which must be reproducible
        source = SecureStream() if stream is None else stream
        threshold_noise = (self.scale, laplace(source))  # drawn once for the whole run
        return AboveThreshold(
            source,
            laplace,
            self.threshold,
            threshold_noise,
            self.query_scale(),
            self.count,
            numeric=self.numeric,
        )

    def query_scale(self) -> float:
        """Return the scale of the noise on each value."""
        # a rounding here does no harm: `loss` divides by the very float that draws the noise
        return float(self.scale * math.cbrt(self.count if self.monotone else 2 * self.count))


class GaussianSparseVector(_SparseVector):
    """Answer of at most K values in order which lie above a threshold, with Gaussian noise.

    As `SparseVector`, with Gaussian noise on the threshold and, independently, on each value.

    Privacy: a Renyi curve that grows with the logarithm of K, and composes better over many runs;
    there is no pure epsilon. The proof is at `accountants.losses.sparse_vector`, for values that
    move by at most Delta, and no farther apart than Delta (``monotone``) or 2 Delta.

    Parameters
    ----------
    threshold_sigma, query_sigma
        Standard deviations, in the units of the values.
    threshold
        Public, in the same units.
    queries
        K; values after the K-th are not answered.
    count
        c, how many values may be above.

    Notes
    -----
    Noise: `adaptive_dp.noise.continuous.normal` (Karney 2016), drawn in `AboveThreshold.ask`;
    comparisons are exact.

    References
    ----------
    Zhu and Wang 2020; see `accountants.GaussianSparseVector` for what is proven.

    See Also
    --------
    SparseVector : a pure epsilon, for any number of values.

    Examples
    --------
    >>> mechanism = GaussianSparseVector(10.0, 20.0, threshold=100, queries=1000)
    >>> mechanism.loss(distance=1.0, span=1.0).monotone
    True
    """

    theorem: ClassVar[str] = "Gaussian sparse vector: after Zhu & Wang 2020"
    sampler: ClassVar[str] = (
        f"sparse vector, continuous Gaussian noise (Karney 2016), {EXACT_CHOICE}"
    )

    threshold_sigma: float = noise_parameter("sigma1")
    query_sigma: float = noise_parameter("sigma2")
    threshold: float = attrs.field(converter=number, validator=check_threshold)
    queries: int = attrs.field(converter=number, validator=check_count)
    count: int = attrs.field(default=1, converter=number, validator=check_count)

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between values that move by at most ``distance``, apart by ``span``."""
        if distance == 0:
            return Pure(0.0)
        # in units of the distance; rounded down, to less noise than there is
        return GaussianSparseVectorLoss(
            down(min(self.threshold_sigma / distance, 1e300)),
            down(min(self.query_sigma / distance, 1e300)),
            self.queries,
            self.count,
            monotone=span_bound(distance, span) <= distance,
        )

    def begin(self, stream: Stream | None = None) -> AboveThreshold:
        """Return a run that answers values one at a time; see `SparseVector.begin`."""
        source = SecureStream() if stream is None else stream
        threshold_noise = (self.threshold_sigma, normal(source))  # drawn once for the whole run
        return AboveThreshold(
            source,
            normal,
            self.threshold,
            threshold_noise,
            self.query_sigma,
            self.count,
            self.queries,
        )
