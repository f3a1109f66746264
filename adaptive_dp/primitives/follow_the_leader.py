"""DP-FTRL: follow the regularised leader, on prefix sums whose noise hangs together."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import GaussianBound, PrivacyLoss
from accountants.rounding import up
from adaptive_dp.graph.adaptive_sums import AdaptiveSums
from adaptive_dp.graph.convert import number, whole
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise.exact import LARGEST_SCALE
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.factorizations import ROOM, Banded, Factorization, Tree

FACTORIZATIONS: dict[str, type[Tree] | type[Banded]] = {"tree": Tree, "banded": Banded}

ROUNDS = 2**16
"""The most rounds there may be."""


def _counted(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    found = whole(value)
    require(
        found is not None and 1 <= found <= ROUNDS,
        f"FollowTheLeader.{attribute.name} must be a whole number between 1 and {ROUNDS}, got "
        f"{value!r}",
    )


def _known(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    require(
        isinstance(value, str) and value in FACTORIZATIONS,
        f"FollowTheLeader.factorization must be one of {list(FACTORIZATIONS)}, got {value!r}",
    )


class FollowTheLeader(Mechanism):
    """Train on batches in order: ``theta_t = -step (g_1 + ... + g_t + noise_t)``.

    g_t is the sum of clipped gradients of batch t at theta_{t-1}; the step is a released value, or
    a constant (``given=[dp.public(0.1)]``): the loss holds whatever it is. The noise of the T
    prefix sums is not independent: it is B Z, of which `adaptive_dp.primitives.factorizations`
    speaks, far smaller than a sum of T independent ones. Nobody is sampled, so nothing is
    amplified, and nothing rests on it.

    *Batches.* Each unit goes into one of ``batches`` by its own uniform draw and stays there in
    each epoch. Let D and D' differ in the unit u. The batches of the others, and u's own, have the
    same law under both. Given all of these, D and D' differ in the rounds of one batch alone. What
    is proven for each such case holds for their mixture: with the batches released as well it
    would be the same, and not releasing them is post-processing.

    *Loss.* Let Delta be the most that u moves its batch's sum at equal parameters, s the
    factorization's sensitivity. Row r of ``y = C X + Z`` is drawn once the rounds are over that it
    adds up, and parameters are functions of earlier rows. Given these, D and D' have the same
    parameters, and the mean of row r moves by a vector m_r, a function of earlier rows with
    ``sum_r |m_r|^2 <= (Delta s)^2`` whatever they are. Let one more row, which tells nothing else,
    be moved by what is missing, so that the sum is exactly ``(Delta s)^2``. The log-likelihood
    ratio is then ``(Delta s)^2 / (2 sigma^2) + W``, ``W = sum_r <m_r, Z_r> / sigma^2``. As each m_r
    is known before Z_r is drawn, ``E exp(i l W + l^2 sum_r |m_r|^2 / (2 sigma^2)) = 1`` for all l
    (one row after the other), and the sum being constant, W is exactly normal with variance
    ``(Delta s / sigma)^2``; under D' likewise. That is the Gaussian mechanism's loss with ``mu =
    Delta s / sigma``, and the rows without the added one are post-processing (own proof; for
    lower triangular factorizations Denisov et al. 2022, Thm 2.1).

    *Floating point.* Sums are whole steps, C is whole numbers of 2^-bits, the noise continuous
    noise rounded to the steps of C X: so what is known of y is y rounded, exactly (see
    `adaptive_dp.noise.lattice`), and all that is computed in floats is computed from it.

    Released, of shape (2, d): the mean of theta_1, ..., theta_T, and theta_T.

    Parameters
    ----------
    sigma
        The standard deviation of each entry of Z, in the units of a gradient.
    batches, epochs
        b and k, with ``T = b k``.
    factorization
        ``"tree"`` or ``"banded"``.

    References
    ----------
    Kairouz, McMahan, Song, Thakkar, Thakurta and Xu 2021 (DP-FTRL, tree); Denisov, McMahan, Rush,
    Smith and Thakurta 2022 (factorizations, adaptive streams).

    Examples
    --------
    >>> mechanism = FollowTheLeader(sigma=2.0, batches=512, factorization="tree")
    >>> round(mechanism.loss(distance=1.0).rho(), 9)  # ten nodes
    1.25
    """

    norm: ClassVar[float] = 2
    reads: ClassVar[type] = AdaptiveSums
    given: ClassVar[int] = 1
    theorem: ClassVar[str] = "Denisov et al. 2022, Thm 2.1; Kairouz et al. 2021"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step, correlated exactly"

    sigma: float = noise_parameter("sigma")
    batches: int = attrs.field(converter=number, validator=_counted)
    epochs: int = attrs.field(default=1, converter=number, validator=_counted)
    factorization: str = attrs.field(default="banded", validator=_known)

    def __attrs_post_init__(self) -> None:
        require(
            self.batches * self.epochs <= ROUNDS,
            f"FollowTheLeader runs at most {ROUNDS} rounds, got {self.batches} batches in "
            f"{self.epochs} epochs",
        )

    @property
    def encoder(self) -> Factorization:
        """How prefix sums are written."""
        return FACTORIZATIONS[self.factorization](self.batches, self.epochs)

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of two vectors of parameters."""
        return (2, *value)

    def release(self, value: AdaptiveSums, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the mean and the last of the parameters."""
        encoder, step = self.encoder, float(given[0])
        (width,) = value.shape
        scale = self.sigma / (value.step * 2.0**-encoder.bits)
        most = ROOM // encoder.reach
        noise = partial(rounded_gaussian, stream, scale, width)
        parts = value.split(self.batches, stream)
        run = encoder.start(width)
        theta, mean = np.zeros(width), np.zeros(width)
        for t in range(self.batches * self.epochs):
            # clamping moves no two sums apart
            sums = np.clip(parts[t % self.batches].at(theta), -most, most)
            theta = -(step * value.step) * run.push(sums, noise)
            mean += (theta - mean) / (t + 1)
        return np.stack([mean, theta])

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss where a unit moves its batch's sum by at most ``distance`` in l2."""
        return GaussianBound(up(distance * self.encoder.sensitivity() / self.sigma, 4))

    def premises(self, release: Any) -> None:
        """Refuse noise that is too large to be drawn in the sums' steps."""
        query = release.inputs[0]
        step = query.operation.step(query.inputs[0].domain) * 2.0**-self.encoder.bits
        require(
            isinstance(self.sigma, Free) or (step > 0 and self.sigma <= LARGEST_SCALE * step),
            f"FollowTheLeader's sigma must be at most {LARGEST_SCALE * step:.3g} for gradients "
            f"clipped so short, got {self.sigma!r}: nothing would be learned; raise the clip or "
            "epsilon",
        )
