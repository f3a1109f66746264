"""Sparse vector with Gaussian noise, on a bounded number of values."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
from numpy.typing import NDArray

from accountants import GaussianSparseVector as GaussianSparseVectorLoss
from accountants import PrivacyLoss, Pure
from accountants.rounding import down
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.continuous import normal
from adaptive_dp.noise.stream import SecureStream, Stream
from adaptive_dp.primitives.above_threshold import AboveThreshold
from adaptive_dp.primitives.scores import EXACT, widest
from adaptive_dp.primitives.sparse_vector import counted, finite_threshold


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
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = "Gaussian sparse vector: after Zhu & Wang 2020"
    sampler: ClassVar[str] = f"sparse vector, continuous Gaussian noise (Karney 2016), {EXACT}"

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
            monotone=widest(distance, span) <= distance,
        )

    def redrawn(self) -> bool:
        """Return False: answers given once more to answers show nothing."""
        return False
