"""LNMax: the class with the most votes after Laplace noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import LaplaceVotes, PrivacyLoss, report_noisy_max
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import VoteCounts
from adaptive_dp.pate.gnmax import changed, several
from adaptive_dp.pate.whole_steps import require_noise, step, steps


class LNMax(Mechanism):
    """Add Laplace noise of scale b to the votes of each class, and release which has the most.

    ``epsilon = 2 t / b`` for each question, where t teachers change.

    Proof. A vote that moves takes 1 from one count and gives 1 to another, so that t of them move
    no two counts apart by more than 2 t. Hold the noise of all classes but one fixed: it wins where
    its own noise is at least some x, and the neighbour moves x by at most 2 t. Noise is rounded to
    steps that divide 1, so x is a whole number of them (and a half: continuous noise is rounded to
    the nearest), as are its moves; the probability of at least x falls by a factor of at most
    ``e^{2 t / b}`` (see `accountants.losses.noisy_max`).

    Parameters
    ----------
    scale
        b, in votes.

    References
    ----------
    Papernot, Abadi, Erlingsson, Goodfellow and Talwar 2017, Sec. 3.1; Dwork and Roth 2014, Claim
    3.9.

    Examples
    --------
    >>> LNMax(scale=20.0).loss(1.0).pure()
    0.1
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = "LNMax: Papernot et al. 2017, sec. 3.1; Dwork & Roth 2014, Claim 3.9"
    sampler: ClassVar[str] = "Laplace, exact, rounded to a power-of-two step"

    scale: float = noise_parameter("b")

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, the first of equals; shape (questions,)."""
        counts, unit = value.counts, step(self.scale)
        noise = rounded_laplace(stream, self.scale / unit, counts.size).reshape(counts.shape)
        return np.asarray(np.argmax(steps(counts, unit) + noise, axis=1), dtype=np.float64)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        require_noise(self.scale, "scale")
        return report_noisy_max(self.scale, 2 * changed(distance), noise="laplace", monotone=True)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        return several(self.loss(distance), dimension)

    def votes(self, teachers: int, classes: int) -> LaplaceVotes:
        """Return the loss of one question, as a function of its counts."""
        return LaplaceVotes(self.scale, classes, teachers)
