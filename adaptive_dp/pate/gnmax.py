"""GNMax: the class with the most votes after Gaussian noise."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import Composite, GaussianBound, GaussianVotes, PrivacyLoss, Pure
from accountants.rounding import up
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise import lattice
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import VoteCounts

LARGEST = 2.0**49
"""Noise beyond this drowns all votes there can be, and has no exact sampler."""


class GNMax(Mechanism):
    """Add N(0, sigma^2) to the votes of each class, and release which has the most.

    One teacher moves one vote, by sqrt 2 in l2: ``mu = sqrt(2) / sigma`` for each question. It is a
    bound: of the noisy counts no more is released than which is largest.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in votes.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Sec. 4.1 (GNMax); Dong, Roth
    and Su 2022, Thm 2 (the Gaussian's exact loss).

    Examples
    --------
    >>> GNMax(sigma=40.0).cost(1.0, 100, 1.0).mu().__round__(6)
    0.353553
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = "GNMax: Papernot et al. 2018, sec. 4.1; Dong, Roth & Su 2022, Thm 2"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step"

    sigma: float = noise_parameter("sigma")

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, the first of equals; shape (questions,)."""
        return most(value.counts, self.sigma, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return GaussianBound(argmax_mu(distance, self.sigma))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        return GaussianBound(up(argmax_mu(distance, self.sigma) * math.sqrt(dimension), 4))

    def votes(self, teachers: int, classes: int) -> GaussianVotes:
        """Return the loss of one question, as a function of its counts."""
        return GaussianVotes(self.sigma, classes, teachers)


def most(counts: NDArray[Any], sigma: float, stream: Stream) -> NDArray[np.float64]:
    """Return the position of the largest of ``counts + N(0, sigma^2)``, along the last axis."""
    return np.asarray(np.argmax(noisy(counts, sigma, stream), axis=-1), dtype=np.float64)


def noisy(counts: NDArray[Any], sigma: float, stream: Stream) -> NDArray[np.float64]:
    """Return whole numbers with N(0, sigma^2), rounded to a power of two that divides 1.

    A function of the exact sums, so that no rounding moves neighbours apart.
    """
    unit = min(lattice.step(sigma), 1.0)
    noise = rounded_gaussian(stream, sigma / unit, counts.size)
    return lattice.noisy(counts.astype(np.float64), noise.reshape(-1), unit)


def argmax_mu(teachers: float, sigma: float) -> float:
    """Return mu of counts among which so many votes move: ``teachers sqrt(2) / sigma``."""
    require(
        sigma <= LARGEST,
        f"noise of sigma = {sigma:g} drowns any number of votes; use at most {LARGEST:g}",
    )
    return up(changed(teachers) * math.sqrt(2) / sigma, 4)


def changed(distance: float) -> int:
    """Return the number of teachers that change; it arrives rounded up by a few last places."""
    return math.ceil(distance * (1 - 1e-12))


def several(loss: PrivacyLoss, questions: int) -> PrivacyLoss:
    """Return what so many questions cost, each as much as ``loss``."""
    if loss.pure() == 0:
        return Pure(0.0)
    return loss if questions == 1 else Composite({loss: questions})
