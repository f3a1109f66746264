"""Sparse vector with Laplace noise: paying for the answers above a threshold only."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import attrs
from numpy.typing import NDArray

from accountants import PrivacyLoss, Pure
from accountants import SparseVector as SparseVectorLoss
from accountants.rounding import ceiling
from adaptive_dp.graph.convert import POSITIVE, number, positive, whole
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise.continuous import laplace
from adaptive_dp.noise.stream import SecureStream, Stream
from adaptive_dp.primitives.above_threshold import AboveThreshold
from adaptive_dp.primitives.scores import EXACT, widest


def finite_threshold(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse a threshold that is no finite number."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    require(
        plain and abs(value) < 1e300,
        f"{type(instance).__name__}.threshold must be a finite number, got {value!r}",
    )


def counted(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse what is no whole number from 1 to 2^53."""
    found = whole(value)
    require(
        found is not None and 1 <= found <= 2**53,
        f"{type(instance).__name__}.{attribute.name} must be a whole number of at least 1, "
        f"got {value!r}",
    )


def _numeric(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    require(
        value is None or isinstance(value, Free) or positive(value),
        f"SparseVector.numeric must be a {POSITIVE}, the scale of the numbers' noise, or None, "
        f"got {value!r}",
    )


def _flag(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    require(
        isinstance(value, bool),
        f"SparseVector.monotone must be True or False, got {value!r}",
    )


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
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = "sparse vector: Lyu, Su & Li 2017, Alg. 7, Thms 2 to 4"
    sampler: ClassVar[str] = f"sparse vector, continuous Laplace noise, {EXACT}"

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
        apart, far = Fraction(widest(distance, span)), Fraction(distance)
        queries = ceiling(self.count * apart / Fraction(self.query_scale()))
        threshold = ceiling(far / Fraction(self.scale))
        numbers = ceiling(self.count * far / Fraction(self.numeric)) if self.numeric else 0.0
        if queries == 0:  # all values move alike: the threshold's noise covers them
            queries = math.ulp(0.0)
        return SparseVectorLoss(threshold, queries, numbers, self.count, apart <= far)

    def redrawn(self) -> bool:
        """Return False: answers given once more to answers show nothing."""
        return False
