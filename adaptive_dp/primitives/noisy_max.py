"""Report noisy max: the index of the largest score after noise."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import PrivacyLoss, report_noisy_max
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise.choice import choose
from adaptive_dp.noise.continuous import laplace, positive
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.permute_and_flip import permuted
from adaptive_dp.primitives.scores import EXACT, Floats, finite, gaps, widest

_NOISES = ("laplace", "gumbel", "exponential")


def _known(instance: Any, attribute: attrs.Attribute[str], value: str) -> None:
    require(
        value in _NOISES,
        f"NoisyMax.noise must be one of {', '.join(_NOISES)}, got {value!r}",
    )


class NoisyMax(Mechanism):
    """Add noise of scale b to each score, and release which is the largest; nothing else.

    ``epsilon = s / b``, s the span of the scores' moves: at most 2 Delta, and Delta where all move
    the same way. Gumbel noise gives the law of `Exponential`, exponential noise that of
    `PermuteAndFlip`, and they are drawn so.

    Parameters
    ----------
    scale
        b, in the units of the scores.
    noise
        ``"laplace"``, ``"gumbel"`` or ``"exponential"``; the last is the most useful for one
        choice, Gumbel's composes the best.

    References
    ----------
    Dwork and Roth 2014, Claim 3.9; Durfee and Rogers 2019, Lemma 4.2; Ding, Kifer, Saghaian,
    Steinke, Wang, Xiao and Zhang 2021. The proof for the span is at `accountants.losses.noisy_max`.

    Examples
    --------
    >>> NoisyMax(scale=2.0).loss(distance=1.0)
    LaplaceNoisyMax(epsilon=1.0)
    >>> NoisyMax(scale=2.0, noise="gumbel").loss(distance=1.0, span=1.0)
    GumbelNoisyMax(epsilon=0.5)
    """

    norm: ClassVar[float] = math.inf
    chooses: ClassVar[bool] = True
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = (
        "report noisy max: Dwork & Roth 2014, Claim 3.9; Durfee & Rogers 2019, Lemma 4.2; "
        "Ding et al. 2021"
    )
    sampler: ClassVar[str] = f"report noisy max, {EXACT}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)
    noise: str = attrs.field(default="laplace", validator=_known)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the chosen index."""
        scores = finite(value)
        if self.noise == "exponential":
            return np.array(permuted(scores, self.scale, stream))
        if self.noise == "laplace":
            return np.array(_largest(scores, self.scale, stream))
        one = np.ones(len(scores), dtype=np.int64)
        return np.array(choose(*gaps(scores, self.scale), one, stream))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between scores that move by at most ``distance``, apart by ``span``."""
        apart = widest(distance, span)
        return report_noisy_max(self.scale, apart, noise=self.noise, monotone=True)


def _largest(scores: Floats, scale: float, stream: Stream) -> int:
    """Return the index of the largest of ``score + scale * Laplace``, compared exactly."""
    noisy = [(score, laplace(stream)) for score in scores.tolist()]
    best = 0
    for i, (score, noise) in enumerate(noisy):
        value, lead = noisy[best]
        if i and not positive((value, -score), ((scale, lead), (-scale, noise))):
            best = i
    return best
