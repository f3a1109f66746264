"""The exponential mechanism: choosing one of finitely many candidates by its score."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.choice import choose
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.scores import EXACT, cost, finite, gaps


class Exponential(Mechanism):
    """Choose coordinate i with probability proportional to ``e^{q_i / b}``.

    The log-ratio of neighbours' probabilities is what q_i moves by over b, plus what the
    normaliser moves by, which is the same for all i. So it has a range of ``epsilon = s / b``,
    where s is the span: no two scores move farther apart. That is at most 2 Delta, and Delta where
    all scores move the same way, as counts do under add/remove.

    Parameters
    ----------
    scale
        b, in the units of the scores. For scores that move by at most Delta, ``b = 2 Delta /
        epsilon`` is the mechanism that is commonly written ``e^{epsilon q / (2 Delta)}``.

    References
    ----------
    McSherry and Talwar 2007, Thm 6; Durfee and Rogers 2019 (bounded range); Dong, Durfee and
    Rogers 2020 (its composition).

    Examples
    --------
    >>> Exponential(scale=4.0).loss(distance=1.0)
    BoundedRange(epsilon=0.5)
    >>> Exponential(scale=4.0).loss(distance=1.0, span=1.0)
    BoundedRange(epsilon=0.25)
    """

    norm: ClassVar[float] = math.inf
    chooses: ClassVar[bool] = True
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; Dong, Durfee & Rogers 2020"
    sampler: ClassVar[str] = f"exponential mechanism by inversion, {EXACT}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the chosen index."""
        exponents, exact = gaps(finite(value), self.scale)
        one = np.ones(len(exponents), dtype=np.int64)
        return np.array(choose(exponents, exact, one, stream))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between scores that move by at most ``distance``, apart by ``span``."""
        return BoundedRange(cost(distance, span, self.scale))
