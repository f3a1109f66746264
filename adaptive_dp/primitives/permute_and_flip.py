"""Permute-and-flip: choosing a candidate, never worse than the exponential mechanism."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import PermuteAndFlip as PermuteAndFlipLoss
from accountants import PrivacyLoss
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.bernoulli import first_success, permutation
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.scores import EXACT, cost, finite, gaps


class PermuteAndFlip(Mechanism):
    """Take candidates in random order, each with probability ``e^{(q_i - max q) / b}``.

    The expected score is never below that of `Exponential` at the same pure ``epsilon = s / b``
    (s the span of the scores' moves, at most 2 Delta). It has no bounded range, though: over many
    choices, or at a delta, the exponential mechanism composes better.

    Parameters
    ----------
    scale
        b, in the units of the scores.

    References
    ----------
    McKenna and Sheldon 2020, Thm 1 (privacy) and Thm 2 (utility). For the span instead of
    2 Delta see the proof in `accountants.losses.noisy_max`: it holds the others' noise fixed, and
    no candidate's lead moves by more than the span.

    Examples
    --------
    >>> PermuteAndFlip(scale=4.0).loss(distance=1.0)
    PermuteAndFlip(epsilon=0.5)
    """

    norm: ClassVar[float] = math.inf
    chooses: ClassVar[bool] = True
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = "McKenna & Sheldon 2020, Thm 1"
    sampler: ClassVar[str] = f"permute-and-flip, {EXACT}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the chosen index."""
        return np.array(permuted(value, self.scale, stream))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between scores that move by at most ``distance``, apart by ``span``."""
        return PermuteAndFlipLoss(cost(distance, span, self.scale))


def permuted(value: NDArray[Any], scale: float, stream: Stream) -> int:
    """Return the index that permute-and-flip chooses."""
    exponents, exact = gaps(finite(value), scale)
    order = permutation(len(exponents), stream)
    return int(order[first_success(exponents[order], lambda i: exact(int(order[i])), stream)])
