"""Sparse vector: which values lie above a threshold, paying for those alone."""

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
from adaptive_dp.graph.values import POSITIVE, number, positive, whole
from adaptive_dp.mechanisms.selection import EXACT_CHOICE, span_bound
from adaptive_dp.noise.continuous import Real, is_nonnegative_sum, laplace, nearest, normal
from adaptive_dp.noise.stream import SecureStream, Stream

# -----------------------------------------------------------------------------
# Sparse vector, one query at a time: which values lie above a threshold.


@define(repr=False, eq=False)
class AboveThreshold:
    """One run of sparse vector: noise on the threshold once, on each query afresh.

    The next query may depend on all answers so far. The run answers whether
    ``value + noise >= threshold + noise``, with continuous noise, compared exactly. It ends after
    so many answers "above", or so many queries.

    Its cost is that of the mechanism that began it, for values that one unit moves by at most the
    loss's distance; whoever asks sees to that.

    Parameters
    ----------
    stream
        Where the queries' noise comes from.
    draw
        One draw of noise of scale 1.
    threshold, bar
        The threshold, its noise and the scale of that.
    scale
        Of each query's noise.
    left
        How many answers "above" are left.
    queries
        How many queries are left.
    numeric
        The Laplace scale of the numbers; None where no numbers are given.
    """

    _stream: Stream
    _draw: Callable[[Stream], Real]
    _threshold: float
    _bar: tuple[float, Real]
    _scale: float
    left: int
    queries: float = math.inf
    _numeric: float | None = None
    _last: float | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<sparse vector, {self.left} left>"

    def __reduce__(self) -> str:
        raise TypeError("a run of sparse vector cannot be pickled: a copy would repeat its noise")

    def ask(self, value: float) -> bool | None:
        """Return whether the value is above; None once the run is over.

        NaN counts as 0, infinite values as the largest floats.

        Raises
        ------
        DeclarationError
            If the value is no number; nothing is spent.
        """
        exact = _finite(value)
        self._last = None
        if not self.left or self.queries < 1:
            return None
        self.queries -= 1
        scale, noise = self._bar
        terms = ((self._scale, self._draw(self._stream)), (-scale, noise))
        above = is_nonnegative_sum((exact, -self._threshold), terms)
        if above:
            self.left -= 1
            self._last = exact
        return above

    def number(self) -> float:
        """Return the last value, which was just found above, with fresh Laplace noise; once.

        It is the exact sum, rounded to the next multiple of a power of two near 2^-20 of the noise
        (and clamped to 2^53 of these), which all values reach alike.

        Raises
        ------
        DeclarationError
            If no number is paid for, or the last answer was not "above".
        """
        if self._numeric is None or self._last is None:
            raise DeclarationError(
                "a number follows an answer 'above', once, and only where SparseVector(numeric=...)"
                " pays for it"
            )
        value, self._last = self._last, None
        unit = step(self._numeric, 20)
        steps = nearest(value, self._numeric, laplace(self._stream), unit)
        return min(max(steps, -EXACT), EXACT) * unit

    def answers(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the answers to values in order, in their shape.

        1 where above, or the number, if that is paid for; 0 where below, or minus infinity beside
        numbers; NaN after the end.
        """
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
    most = sys.float_info.max
    number: float | None
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        return most if value > 0 else -most
    except (TypeError, ValueError):
        number = None
    if number is None:  # outside of the handler: no cause that shows the value
        raise DeclarationError(
            f"sparse vector asks about numbers, got a {type(value).__name__}; pass a float"
        )
    return 0.0 if math.isnan(number) else min(max(number, -most), most)


# -----------------------------------------------------------------------------
# Sparse vector with Laplace noise: paying for the answers above a threshold only.


def finite_threshold(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse a threshold that is no finite number."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not (plain and abs(value) < 1e300):
        raise DeclarationError(
            f"{type(instance).__name__}.threshold must be a finite number, got {value!r}"
        )


def counted(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse what is no whole number from 1 to 2^53."""
    found = whole(value)
    if not (found is not None and 1 <= found <= 2**53):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a whole number of at least 1, "
            f"got {value!r}"
        )


def _numeric(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, Free) and not positive(value):
        raise DeclarationError(
            f"SparseVector.numeric must be a {POSITIVE}, the scale of the numbers' noise, or None, "
            f"got {value!r}"
        )


def _flag(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, bool):
        raise DeclarationError(f"SparseVector.monotone must be True or False, got {value!r}")


class SparseVector(Mechanism):
    """Tell of values in order which lie above a threshold, until c of them do.

    Laplace noise of scale b on the threshold, of scale ``b (2c)^(1/3)`` on each value (``b
    c^(1/3)`` for monotone ones), drawn afresh. Let Delta be the most that a value moves, s the
    span: no two move farther apart; ``s = Delta`` where all move the same way, else ``2 Delta``.
    Then, however many values there are, ``epsilon = Delta / b + c s / (b (2c)^(1/3))``.

    Proof, for values that move by between m and M, ``M - m <= s``: hold the noise of the values
    fixed, and shift the threshold's by M, for ``M / b``. What was below stays below; what was above
    stays above if its own noise grows by M less its move, s at most: for each of c values s over
    the scale of their noise (after Lyu, Su and Li 2017, Thms 2 and 4; the span is derived here).

    Released: 1 above, 0 below, NaN after the c-th above. The ratio of the noises is the one of
    least variance for the epsilon (Lyu, Su and Li 2017, Sec. 4.2).

    Parameters
    ----------
    scale
        b, in the units of the values.
    threshold
        Public, in the same units.
    count
        c.
    monotone
        Whether to choose the ratio for values that all move the same way. The cost is computed
        from the query, whatever is said here.
    numeric
        The scale b_3 of fresh Laplace noise with which the values above are released in place of
        1, for ``c Delta / b_3`` more; below is then minus infinity. None releases no numbers.

    References
    ----------
    Dwork, Naor, Reingold, Rothblum and Vadhan 2009; Lyu, Su and Li 2017, Alg. 7, Thms 2 to 4.

    Examples
    --------
    >>> SparseVector(scale=2.0, threshold=100, monotone=True).loss(distance=1.0, span=1.0).pure()
    1.0
    """

    norm: ClassVar[float] = math.inf
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "sparse vector: Lyu, Su & Li 2017, Alg. 7, Thms 2 to 4"
    sampler: ClassVar[str] = f"sparse vector, continuous Laplace noise, {EXACT_CHOICE}"

    scale: float = noise_parameter("b")
    threshold: float = attrs.field(converter=number, validator=finite_threshold)
    count: int = attrs.field(default=1, converter=number, validator=counted)
    monotone: bool = attrs.field(default=False, validator=_flag)
    numeric: float | None = attrs.field(
        default=None,
        converter=number,
        validator=_numeric,
        metadata={"symbol": "b3", "role": "noise"},
    )

    def query_scale(self) -> float:
        """Return the scale of the noise on each value."""
        return float(self.scale * math.cbrt(self.count if self.monotone else 2 * self.count))

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the answers, in the value's shape."""
        return self.begin(stream).answers(value)

    def begin(self, stream: Stream | None = None) -> AboveThreshold:
        """Return a run to which values are given one at a time, each chosen as one likes.

        Parameters
        ----------
        stream
            By default the operating system's randomness.

        Examples
        --------
        >>> run = SparseVector(scale=0.01, threshold=100).begin()
        >>> run.ask(50), run.ask(150), run.ask(50), run.left
        (False, True, None, 0)
        """
        source = SecureStream() if stream is None else stream
        bar = (self.scale, laplace(source))
        scale = self.query_scale()
        return AboveThreshold(
            source, laplace, self.threshold, bar, scale, self.count, numeric=self.numeric
        )

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between values that move by at most ``distance``, apart by ``span``."""
        if distance == 0:
            return Pure(0.0)
        apart, far = Fraction(span_bound(distance, span)), Fraction(distance)
        queries = ceiling(self.count * apart / Fraction(self.query_scale()))
        threshold = ceiling(far / Fraction(self.scale))
        numbers = ceiling(self.count * far / Fraction(self.numeric)) if self.numeric else 0.0
        if queries == 0:  # all values move alike: the threshold's noise covers them
            queries = math.ulp(0.0)
        return SparseVectorLoss(threshold, queries, numbers, self.count, apart <= far)

    def redrawn(self) -> bool:
        """Return False: answers given once more to answers show nothing."""
        return False


# -----------------------------------------------------------------------------
# Sparse vector with Gaussian noise, on a bounded number of values.


class GaussianSparseVector(Mechanism):
    """Tell of at most K values in order which lie above a threshold, until c of them do.

    As `SparseVector`, with Gaussian noise on the threshold and, afresh, on each value. It has no
    pure epsilon; its Renyi curve grows with the logarithm of K, and composes better over many runs.
    The proof is at `accountants.losses.sparse_vector`, for values whose moves are at most Delta,
    and no farther apart than Delta (``monotone``) or 2 Delta.

    Parameters
    ----------
    threshold_sigma, query_sigma
        Standard deviations, in the units of the values.
    threshold
        Public, in the same units.
    queries
        K; what comes after K values is not answered.
    count
        c.

    References
    ----------
    Zhu and Wang 2020; see `accountants.GaussianSparseVector` for what is proven.

    Examples
    --------
    >>> mechanism = GaussianSparseVector(10.0, 20.0, threshold=100, queries=1000)
    >>> mechanism.loss(distance=1.0, span=1.0).monotone
    True
    """

    norm: ClassVar[float] = math.inf
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "Gaussian sparse vector: after Zhu & Wang 2020"
    sampler: ClassVar[str] = (
        f"sparse vector, continuous Gaussian noise (Karney 2016), {EXACT_CHOICE}"
    )

    threshold_sigma: float = noise_parameter("sigma1")
    query_sigma: float = noise_parameter("sigma2")
    threshold: float = attrs.field(converter=number, validator=finite_threshold)
    queries: int = attrs.field(converter=number, validator=counted)
    count: int = attrs.field(default=1, converter=number, validator=counted)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return 1 above, 0 below, NaN after the end, in the value's shape."""
        return self.begin(stream).answers(value)

    def begin(self, stream: Stream | None = None) -> AboveThreshold:
        """Return a run to which values are given one at a time, each chosen as one likes."""
        source = SecureStream() if stream is None else stream
        bar = (self.threshold_sigma, normal(source))
        return AboveThreshold(
            source, normal, self.threshold, bar, self.query_sigma, self.count, self.queries
        )

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between values that move by at most ``distance``, apart by ``span``."""
        if distance == 0:
            return Pure(0.0)
        # less noise than there is, at worst
        return GaussianSparseVectorLoss(
            down(min(self.threshold_sigma / distance, 1e300)),
            down(min(self.query_sigma / distance, 1e300)),
            self.queries,
            self.count,
            monotone=span_bound(distance, span) <= distance,
        )

    def redrawn(self) -> bool:
        """Return False: answers given once more to answers show nothing."""
        return False
