"""Sparse vector: which values lie above a threshold, at a cost for those that do.

`AboveThreshold` is one run, in which noise is drawn and compared; `SparseVector` and
`GaussianSparseVector` are the mechanisms that begin one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss, Pure
from accountants import GaussianSparseVector as GaussianSparseVectorLoss
from accountants import SparseVector as SparseVectorLoss
from accountants.numerics import down, rounded_up, up
from adaptive_dp.data.grid import EXACT, step
from adaptive_dp.graph.compile import distance
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    PartOperation,
    PrivateQuery,
    change_at,
    lineage,
    unaliased,
)
from adaptive_dp.graph.mechanism import Free, Mechanism, noise_parameter
from adaptive_dp.graph.nodes import structure
from adaptive_dp.graph.operation import UNBOUNDED, Change, Query
from adaptive_dp.graph.values import POSITIVE, as_int, number, positive
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.mechanisms.selection import EXACT_CHOICE, span_bound
from adaptive_dp.noise.continuous import (
    Real,
    is_nonnegative_sum,
    laplace,
    nearest,
    nearest_sum,
    normal,
)
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

    def ask(
        self, value: float, *, threshold: float | None = None, around: float | None = None
    ) -> bool | None:
        """Return whether the value is above; None once the run is over.

        NaN counts as 0, infinite values as the largest floats.

        Parameters
        ----------
        value
            Private.
        threshold
            A public one of this value alone: the value less its threshold moves as the value does.
        around
            A public number, from which the value's distance is compared: no distance moves farther
            than its value, but not all move the same way where the values do.

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
        bar = self._threshold if threshold is None else threshold
        # |value - around| as an exact sum: of floats, the difference would be rounded
        constants = (finite, -bar) if around is None else (finite, -around, -bar)
        if around is not None and finite < around:
            constants = (-finite, around, -bar)
        above = is_nonnegative_sum(constants, terms)
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
        flat = [self.answer(value) for value in np.ravel(values).tolist()]
        return np.array(flat, dtype=np.float64).reshape(np.shape(values))

    def answer(
        self, value: float, *, threshold: float | None = None, around: float | None = None
    ) -> float:
        """Return the answer to one value; see `answers` and `ask`."""
        above = self.ask(value, threshold=threshold, around=around)
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
        Where the span is Delta, as of counts, the three terms e1, e2, e3 of the threshold, the
        values and the numbers are never paid at once: ``epsilon = max(e1 + max(e2, e3), e2 + e3)``
        (proof: `accountants.SparseVector.pure`).

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

    rounds_outward: ClassVar[bool] = True
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
        # exact rationals, of the scales that are drawn at
        spread, sensitivity = Fraction(span_bound(distance, span)), Fraction(distance)
        # the three terms of the proof: c s over the scale of the values' noise,
        # Delta / b for the threshold's shift, and c Delta / b_3 for the numbers
        queries = rounded_up(self.count * spread / Fraction(self.query_scale()))
        threshold = rounded_up(sensitivity / Fraction(self.scale))
        numbers = (
            rounded_up(self.count * sensitivity / Fraction(self.numeric)) if self.numeric else 0.0
        )
        if queries == 0:  # all values move alike: the threshold's noise covers them
            queries = math.ulp(0.0)
        # the last argument: moves are at most the distance apart, as of values that all move the
        # same way. With numbers its proof needs the second term to be of the distance, no less
        alike = spread == sensitivity if numbers else spread <= sensitivity
        return SparseVectorLoss(threshold, queries, numbers, self.count, alike)

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


class SparseVectorWithGap(_SparseVector):
    """Sparse vector with the leads of the values above, at half the price where they are far.

    The first value is tested twice: with the larger noise ``2 b_2`` against the threshold plus a
    margin, then with the noise ``b_2`` against the threshold itself. A value that passes the first
    test costs half of one that passes the second; so c answers "above" become up to 2 c. What is
    released of a value above is its noisy lead over the noisy threshold, in that test: free. Below
    is minus infinity, NaN after the end. The noise is that of `SparseVector`: scale b on the
    threshold, ``b_2 = b (2c)^(1/3)`` (or ``b c^(1/3)``) on values.

    Privacy: ``epsilon = Delta / b + c s / b_2``, as without leads, s the span.

    Proof. Take values that move by between m and M, ``M - m <= s``, and let the threshold's noise
    grow by M, for ``M / b``. A value below fails both tests with the same noise again, since its
    lead only falls. One that passed the first test has the same lead there if that noise grows by M
    less its move, s at most: a factor of ``e^{s / (2 b_2)}`` of the density, and the second noise
    is not looked at. One that passed the second has the same lead if that noise does, a factor of
    ``e^{s / b_2}``, and fails the first with the noise that it had. The run ends when what is left
    of c such factors allows no test: with half of one left, only the first test is made (after
    Ding, Wang, Zhang and Kifer 2019, Thm 4, where the run ends then).

    Parameters
    ----------
    scale, threshold, count, monotone
        As of `SparseVector`.
    adaptive
        Whether the first test is made; False is sparse vector with gap.

    Notes
    -----
    Noise: `adaptive_dp.noise.continuous`; comparisons are exact, and leads are rounded to a
    multiple of a power of two near ``2^-20 b`` (post-processing). The margin is two standard
    deviations of the larger noise.

    References
    ----------
    Ding, Wang, Zhang and Kifer 2019, "Free gap information from the differentially private sparse
    vector and noisy max mechanisms", Algs 1 and 2 (the proof above is for the span).

    See Also
    --------
    SparseVector : fresh noise on numbers, paid for.
    NoisyMaxWithGap : the same for the largest of several.

    Examples
    --------
    >>> SparseVectorWithGap(scale=2.0, threshold=100, monotone=True).loss(1.0, span=1.0).pure()
    1.0
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B", "C"]})
    >>> leads = people["town"].histogram().release(SparseVectorWithGap(scale=2.0, threshold=50))
    >>> town = {"town": ["A"] * 10 + ["B"] * 400 + ["C"] * 300}
    >>> dp.Pipeline(leads=leads).simulate(seed=1, people=town)["leads"].round()
    array([-inf, 351., 248.])
    """

    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = (
        "adaptive sparse vector with gap: Ding, Wang, Zhang & Kifer 2019, Thm 4; "
        "Lyu, Su & Li 2017, Thms 2 to 4"
    )
    sampler: ClassVar[str] = SparseVector.sampler

    scale: float = noise_parameter("b")
    threshold: float = attrs.field(converter=number, validator=check_threshold)
    count: int = attrs.field(default=1, converter=number, validator=check_count)
    monotone: bool = attrs.field(
        default=False, validator=checked(lambda v: isinstance(v, bool), "True or False")
    )
    adaptive: bool = attrs.field(
        default=True, validator=checked(lambda v: isinstance(v, bool), "True or False")
    )

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between values that move by at most ``distance``, apart by ``span``."""
        return SparseVector(self.scale, self.threshold, self.count, self.monotone).loss(
            distance, span
        )

    def query_scale(self) -> float:
        """Return b_2, the smaller scale of the noise on each value."""
        return float(self.scale * math.cbrt(self.count if self.monotone else 2 * self.count))

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return leads for values above, -inf below, NaN after the end, as shaped."""
        noise, scale, left = laplace(stream), self.query_scale(), 2 * self.count
        margin = 2 * math.sqrt(2) * 2 * scale if self.adaptive else None
        answers = []
        for each in np.ravel(value).tolist():
            if not left:
                answers.append(math.nan)
                continue
            lead = None
            if margin is not None:
                lead = self._lead(_finite(each), margin, (2 * scale, noise), stream)
                left -= lead is not None
            # with half of an answer left, the second test could not be paid for
            if lead is None and left >= 2:
                lead = self._lead(_finite(each), 0.0, (scale, noise), stream)
                left -= 2 * (lead is not None)
            answers.append(-math.inf if lead is None else lead)
        return np.array(answers, dtype=np.float64).reshape(np.shape(value))

    def _lead(
        self, value: float, margin: float, scaled: tuple[float, Real], stream: Stream
    ) -> float | None:
        """Return the noisy value less the noisy threshold, if it is at least the margin."""
        scale, threshold_noise = scaled
        terms = ((scale, laplace(stream)), (-self.scale, threshold_noise))
        if not is_nonnegative_sum((value, -self.threshold, -margin), terms):
            return None
        unit = step(self.scale, 20)
        lead = nearest_sum((value, -self.threshold), terms, unit)
        # exact as a float up to 2^53 steps; clamped beyond
        return float(min(lead, int(EXACT))) * unit


class BetweenThresholds(_SparseVector):
    """Say of values in order whether they lie below, above or between two thresholds; end there.

    Released is -1 for below, 1 for above, and 0 for the first value between the two, after which
    all are NaN: only that one is paid for. One noise of scale b moves both thresholds, towards each
    other or apart; each value has noise of scale ``b_2 = 2^(1/3) b`` of its own.

    Privacy: (epsilon, failure)-DP, with ``w = upper - lower - 2 b log(1 / (2 failure))``, for
    values that move by at most Delta and ``w > 2 Delta``, else nothing is promised:

    ``epsilon = Delta/b + 2 Delta/b_2 + log (1 - e^{-w/b_2}) / (1 - e^{-(w - 2 Delta)/b_2})``.

    Proof. The noisy thresholds are at least w apart, but for the failure. Let their noise move by
    Delta, so that they come nearer to each other by 2 Delta: ``Delta / b``. What was below, or
    above, stays so with the same noise of the value. For a value between them that noise lay in an
    interval of at least w, and lies in one that both ends have left by x and y, ``x + y = 2
    Delta``. Of the mass p at an end of what is left, K of k = w - 2 Delta, the parts that are lost
    hold, in units of b_2: where K is on one side of 0, at most
    ``p (e^x - 1) + p e^{-k} (1 - e^{-y})``, at most ``p (e^{2 Delta} - 1)``, of K's
    ``p (1 - e^{-k})``; where K holds 0, at most ``1 - e^{-x} + 1 - e^{-y} <= e^{2 Delta} - 1`` of
    at least ``1 - e^{-k}``. So the mass was larger by a factor of at most
    ``1 + (e^{2 Delta} - 1) / (1 - e^{-k})``, whose logarithm is that of epsilon; it falls in w.

    Parameters
    ----------
    scale
        b, in the units of the values. More noise is not always more private: w falls.
    lower, upper
        The thresholds, in the same units.
    failure
        The delta.

    Notes
    -----
    Noise: `adaptive_dp.noise.continuous`; comparisons are exact.

    References
    ----------
    Bun, Steinke and Ullman 2017, "Make up your mind: the price of online queries in differential
    privacy", Sec. 5 (BetweenThresholds); the constants are proven above.

    See Also
    --------
    SparseVector : one threshold, and a pure epsilon.

    Examples
    --------
    >>> mechanism = BetweenThresholds(scale=8.0, lower=100, upper=400, failure=1e-6)
    >>> loss = mechanism.loss(distance=1.0)
    >>> round(loss.epsilon, 4), loss.delta
    (0.3235, 1e-06)
    """

    uses_span: ClassVar[bool] = False
    theorem: ClassVar[str] = "between thresholds: after Bun, Steinke & Ullman 2017, Sec. 5"
    sampler: ClassVar[str] = SparseVector.sampler

    scale: float = noise_parameter("b")
    lower: float = attrs.field(converter=number, validator=check_threshold)
    upper: float = attrs.field(converter=number, validator=check_threshold)
    failure: float = attrs.field(
        converter=number,
        validator=checked(lambda v: is_number(v) and 0 < v < 0.5, "a number in (0, 0.5)"),
    )

    def __attrs_post_init__(self) -> None:
        """Refuse thresholds in the wrong order."""
        if not self.lower < self.upper:
            raise DeclarationError(
                f"lower must be below upper, got {self.lower!r} and {self.upper!r}"
            )

    def query_scale(self) -> float:
        """Return b_2, the scale of the noise on each value."""
        return float(self.scale * math.cbrt(2))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss between values that move by at most ``distance``."""
        if distance == 0:
            return Pure(0.0)
        scale, query_scale = self.scale, self.query_scale()
        # rounded down: epsilon falls in w
        width = down((self.upper - self.lower) + 2 * scale * math.log(2 * self.failure), 16)
        left = down(width - 2 * distance, 4)
        if not left > 0:
            return Approximate(0.0, 1.0)
        move, kept = up(2 * distance / query_scale, 4), -math.expm1(-left / query_scale)
        if move > 20:  # 1 + (e^x - 1) / d <= e^x / d
            growth = move - math.log(kept) if kept > 0 else math.inf
        else:
            growth = math.log1p(up(math.expm1(move) / kept, 8))
        epsilon = up(distance / scale + growth, 8)
        return (
            Approximate(epsilon, self.failure) if math.isfinite(epsilon) else Approximate(0.0, 1.0)
        )

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return -1 below, 1 above, 0 between, then NaN, as shaped."""
        noise, answers, over = laplace(stream), list[float](), False
        for each in np.ravel(value).tolist():
            if over:
                answers.append(math.nan)
                continue
            finite, own = _finite(each), (self.query_scale(), laplace(stream))
            # value + noise >= lower + noise of the thresholds, and <= upper - that noise
            if not is_nonnegative_sum((finite, -self.lower), (own, (-self.scale, noise))):
                answers.append(-1.0)
            elif is_nonnegative_sum((finite, -self.upper), (own, (self.scale, noise))):
                answers.append(1.0)
            else:
                answers.append(0.0)
                over = True
        return np.array(answers, dtype=np.float64).reshape(np.shape(value))


# -----------------------------------------------------------------------------
# Sparse vector online: a run that is paid for first, and questions that are asked later.


@attrs.frozen
class Questions(Query):
    """Numbers of the rows that are asked later, of which a bound alone is known: no value yet.

    *Sensitivity*, as declared: `SparseVectorAnswer` refuses a number that may move farther.

    Parameters
    ----------
    bound
        The most that one unit moves any of the numbers.
    monotone
        Whether all of them rise (`Query.rises`).
    """

    kind: ClassVar[str] = "questions"
    column_fields: ClassVar[tuple[str, ...]] = ()
    is_computed: ClassVar[bool] = False  # no rows are read for it
    rounds_outward: ClassVar[bool] = True

    bound: float = attrs.field(default=1.0, converter=number)
    monotone: bool = False

    def __attrs_post_init__(self) -> None:
        if not positive(self.bound):
            raise DeclarationError(
                f"the sensitivity of questions must be a {POSITIVE}, got {self.bound!r}; give "
                "sensitivity= for those that come after the first"
            )

    def label(self) -> str:
        """Return the bound."""
        return f"questions, each moves by {self.bound:.6g}"

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        """Return the bound (any norm: one number is asked at a time)."""
        return float(self.bound)

    def span(self, domain: Any, change: Change) -> float:
        """Return the bound where all rise and no unit is exchanged, else twice that."""
        return self.bound * (1.0 if self.monotone and not change.replaced else 2.0)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return 0: nothing is asked yet."""
        return 0.0


class SparseVectorRun(SparseVector):
    """Begin a run of sparse vector: its noise is drawn, its cost is paid, and nothing is asked yet.

    Releases that read this one, by `SparseVectorAnswer`, are the run's questions: each may be
    chosen after the answers before it, and after all else that was released. They cost nothing:
    this release pays for all of them, until c answers were "above". Released is 1, whatever the
    data. `Session.above_threshold` makes these releases.

    Privacy: that of `SparseVector`, epsilon, although other releases come between the questions.

    Proof. Fix two neighbours, and let P and Q be the laws of the run's answers, for any strategy of
    asking: at every transcript ``P <= e^epsilon Q`` and ``Q <= e^epsilon P``, so that
    ``A = (e^epsilon P - Q) / (e^epsilon - 1)`` and ``B = (e^epsilon Q - P) / (e^epsilon - 1)`` are
    at least 0. Summed over the answers to a further question, P and Q give what they give without
    that question, so A and B do too: each is the law of one who answers question after question.
    P draws A with probability ``e^epsilon / (1 + e^epsilon)``, else B; Q the other way round. So
    the run is one bit by randomized response of that epsilon, drawn when the run begins, and after
    that a function of this bit, which needs no data and no other secret: it is post-processing,
    whatever is released in between (Vadhan and Wang 2021, Lyu 2022). And each bound of its Renyi
    divergences that the loss states is a supermartingale's, in which a factor of 1 or less belongs
    to each answer "below" given the threshold's noise: factors of other releases may come between.

    Parameters
    ----------
    scale, threshold, count, monotone, numeric
        As of `SparseVector`.
    run
        Tells apart the runs of a session.

    References
    ----------
    Lyu, Su and Li 2017, Alg. 7 and Thms 2 to 4; Vadhan and Wang 2021 (concurrent composition of
    interactive mechanisms); Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang 2023 (with filters
    and odometers). The proof above is self-contained.

    See Also
    --------
    SparseVector : all values at once.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> begun = PrivateQuery(Questions(1.0, monotone=True), (people,)).release(
    ...     SparseVectorRun(scale=2.0, threshold=40.0, monotone=True)
    ... )
    >>> old = people.filter(people["age"] > 60).count().release(
    ...     SparseVectorAnswer(sensitivity=1.0, monotone=True), given=[begun]
    ... )
    >>> plan = dp.Pipeline(old=old)
    >>> round(plan.certify().epsilon, 6)
    1.0
    >>> plan.simulate(seed=1, people={"age": [70.0] * 90})["old"]
    1.0
    """

    theorem: ClassVar[str] = (
        "sparse vector: Lyu, Su & Li 2017, Thms 2 to 4; online: Vadhan & Wang 2021"
    )
    begins: ClassVar[bool] = True
    selectable: ClassVar[bool] = False

    run: str = attrs.field(default="", kw_only=True)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return 1: that the run has begun."""
        return np.array(1.0)

    def premises(self, release: Any) -> None:
        """Refuse a query that has a value of its own."""
        if not isinstance(release.inputs[0].operation, Questions):
            raise DeclarationError(
                "SparseVectorRun begins a run whose questions come later; for a query at hand use "
                "SparseVector, or session.above_threshold(...)"
            )


class SparseVectorAnswer(Mechanism):
    """Answer a question of a run of sparse vector that `SparseVectorRun` has begun, at no cost.

    Released is 1 for above, 0 for below, NaN once the run is over; or a number for above and minus
    infinity for below, where the run pays for numbers.

    Privacy: what the run's beginning has paid covers it (see there).

    Parameters
    ----------
    sensitivity, monotone
        As of the run's `Questions`: the number must not move farther, and must rise where
        ``monotone`` says so.
    threshold
        Of this question alone, public; None for the run's.
    around
        A public number: the distance from it is compared. Not where ``monotone``, since distances
        do not all move the same way.

    References
    ----------
    As of `SparseVectorRun`.
    """

    norm: ClassVar[float] = math.inf
    released_inputs: ClassVar[int] = 1
    continues: ClassVar[bool] = True
    selectable: ClassVar[bool] = False
    rounds_outward: ClassVar[bool] = True
    no_interval: ClassVar[str] = _SparseVector.no_interval
    theorem: ClassVar[str] = "paid for where its run of sparse vector begins"
    sampler: ClassVar[str] = SparseVector.sampler

    sensitivity: float = attrs.field(default=1.0, converter=number)
    monotone: bool = False
    threshold: float | None = attrs.field(
        default=None,
        converter=number,
        validator=lambda s, a, v: None if v is None else check_threshold(s, a, v),
    )
    around: float | None = attrs.field(
        default=None,
        converter=number,
        validator=lambda s, a, v: None if v is None else check_threshold(s, a, v),
    )

    def release(self, value: NDArray[Any], stream: Stream, run: AboveThreshold) -> NDArray[Any]:
        """Return the run's answer."""
        return np.array(run.answer(float(value), threshold=self.threshold, around=self.around))

    def redrawn(self) -> bool:
        """Return False: the noise cannot be estimated by releasing an answer once more."""
        return False

    def loss(self, distance: float) -> PrivacyLoss:
        """Return no loss, for a number that moves no farther than the run has paid for."""
        if not distance <= self.sensitivity:
            raise DeclarationError(
                f"one unit may move this number by {distance!r}, and the run of sparse vector is "
                f"for numbers that move by at most {self.sensitivity!r}; begin it with "
                f"sensitivity={distance!r}, or bound the number further"
            )
        return Pure(0.0)

    def premises(self, release: Any) -> None:
        """Refuse a run that has not paid for this question."""
        query, begun = release.inputs
        begun = unaliased(begun)
        mechanism = getattr(begun.operation, "mechanism", None)
        if not isinstance(mechanism, SparseVectorRun):
            raise DeclarationError(
                "SparseVectorAnswer continues a run of sparse vector, and its given value is none; "
                "ask by session.above_threshold(...)"
            )
        asked = begun.inputs[0]
        paid: Any = asked.operation
        if (paid.bound, paid.monotone) != (self.sensitivity, self.monotone):
            raise DeclarationError(
                f"the run is for numbers that move by at most {paid.bound!r}, "
                f"monotone={paid.monotone}; the question says {self.sensitivity!r}, "
                f"{self.monotone}"
            )
        path = lineage(query)
        source: Any = path[0].operation
        source_of_run: Any = lineage(asked)[0].operation
        # equal declarations of one name are one data set
        if source != source_of_run:
            raise DeclarationError(
                f"the run is about {source_of_run.name!r}, and the question about "
                f"{source.name!r}: one run pays for questions about one data set"
            )
        if any(step.operation.random for step in path):
            raise DeclarationError(
                "a question of sparse vector reads the data, not a sample or random parts of them"
            )
        if query.operation.dimension(query.inputs[0].domain) != 1:
            raise DeclarationError("a question of sparse vector is one number, not several")
        if self.monotone and not query.operation.rises(query.inputs[0].domain):
            raise DeclarationError(
                f"a {query.operation.kind} may fall where a unit appears, and the run is for "
                "numbers that rise, such as counts: begin it with monotone=False"
            )
        if self.monotone and self.around is not None:
            raise DeclarationError(
                "distances from a number do not all move the same way: begin the run with "
                "monotone=False"
            )


def online_run(query: Any, *, bound: float | None, monotone: bool, **parameters: Any) -> Any:
    """Return the release that begins a run for a first question; see `Session.above_threshold`.

    It reads the data set of the question, or the first step after it at which something bounds the
    rows of a unit: before any part, so that it is paid by all units. Without a ``bound`` it is for
    numbers that move no farther than this question.
    """
    _check_query(query)
    if bound is None:
        nodes = structure([((query.operation.label(),), query)])
        # rounded up as a query's product is: see `adaptive_dp.graph.compile`
        bound = distance(nodes.lineage(nodes.of(query)), math.inf)
        bound = bound if query.operation.rounds_outward else up(bound, 8)
    for each in lineage(query.inputs[0]):
        if isinstance(each.operation, PartOperation):
            break
        if change_at(each).rows != UNBOUNDED:
            questions: PrivateQuery[Any] = PrivateQuery(Questions(bound, monotone), (each,))
            return questions.release(SparseVectorRun(monotone=monotone, **parameters))
    raise DeclarationError(
        "nothing bounds the rows of a unit before the first part of a partition; declare the data "
        "set with dataset(unit=..., rows_per_unit=...)"
    )


def _check_query(query: Any) -> None:
    """Refuse what is no query."""
    if not isinstance(query, PrivateQuery):
        raise DeclarationError(
            "ask a query, such as people.count(), that is not released yet; got "
            f"{type(query).__name__}"
        )


def online_answer(begun: Any, query: Any, threshold: float | None, around: float | None) -> Any:
    """Return the release that asks a query in a run."""
    _check_query(query)
    asked = begun.inputs[0].operation
    mechanism = SparseVectorAnswer(
        sensitivity=asked.bound, monotone=asked.monotone, threshold=threshold, around=around
    )
    return query.release(mechanism, given=[begun])


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
