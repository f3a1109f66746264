"""Sparse vector, one query at a time: which values lie above a threshold."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from adaptive_dp.data.grid import EXACT, step
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.noise.continuous import Real, laplace, nearest, positive
from adaptive_dp.noise.stream import Stream


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
        above = positive((exact, -self._threshold), terms)
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
