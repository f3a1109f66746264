"""Noise that hangs together from round to round: two ways to write prefix sums as ``A = B C``.

What is released is ``y = C X + Z``: the rows of X are the rounds' values, C is public, Z has
independent Gaussian entries; B y estimates the prefix sums A X with noise B Z. Here C is a matrix
of whole numbers over ``2^bits``, so that C X lies on a lattice wherever X does, and `y` is drawn
exactly; B y is computed from y in floats, which costs nothing.

*Batches.* Rounds go through b batches k times in one order: a unit takes part in rounds
``j, j + b, ..., j + (k-1) b`` of a j that is its own. It moves the rounds' values by vectors u_i of
norm at most 1, and C X by a matrix of squared norm ``sum_ij X_ij <u_i, u_j> <= sum_ij X_ij``,
``X = C'C``, since no entry of C is negative; equal vectors attain it. So the *sensitivity* is the
largest of ``|C 1_j|``, 1_j the indicator of the rounds of batch j.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, Protocol

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import GaussianBound, PrivacyLoss
from accountants.numerics import up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import AdaptiveSums, Free, Mechanism, noise_parameter
from adaptive_dp.graph.values import number, whole
from adaptive_dp.noise.exact import LARGEST_SCALE
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import Stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Noise = Callable[[], Integers]
"""Fresh noise for one row of C X, in its steps."""

BANDS = 1024
"""A banded C has at most so many bands: a round costs as many additions of vectors."""

ROOM = 2**60
"""Rows of C X stay below it in size, and noise below 2^62: sums fit into 64 bits."""


class Run(Protocol):
    """One run over the rounds."""

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next round's value, both in the values' steps."""
        ...


class Factorization(Protocol):
    """A way to write prefix sums over ``batches * epochs`` rounds."""

    bits: ClassVar[int]

    @property
    def reach(self) -> int:
        """The largest sum of a row of C, in its steps of 2^-bits."""
        ...

    def sensitivity(self) -> float:
        """Return the sensitivity, rounded up (see the module)."""
        ...

    def start(self, width: int) -> Run:
        """Return a run over vectors of ``width`` numbers."""
        ...


@frozen
class Tree:
    """A row of C for each node of the binary tree all of whose leaves are rounds: their sum.

    B y takes, for a node, the estimate of least variance from its own row and its children's
    estimates: ``v_h = 1 / (1 + 1 / (2 v_{h-1}))``, ``v_0 = 1`` (Honaker 2015, from below). A prefix
    sum is a sum of at most ``floor(log2 T) + 1`` nodes, its variance one of their v.

    References
    ----------
    Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011; Honaker 2015; Kairouz et al.
    2021 (DP-FTRL).
    """

    bits: ClassVar[int] = 0

    batches: int
    epochs: int

    @property
    def reach(self) -> int:
        """The number of rounds."""
        return self.batches * self.epochs

    def sensitivity(self) -> float:
        """Return the root of the largest ``sum_nodes (rounds of the batch below the node)^2``."""
        return up(math.sqrt(_tree_square(self.batches, self.epochs)), 2)

    def start(self, width: int) -> TreeRun:
        """Return a run."""
        return TreeRun(width)


@lru_cache(maxsize=64)
def _tree_square(batches: int, epochs: int) -> int:
    rounds = np.arange(batches)[:, None] + batches * np.arange(epochs)
    squares = np.zeros(batches, dtype=np.int64)
    for height in range((batches * epochs).bit_length()):
        nodes = rounds >> height
        whole = ((nodes + 1) << height) <= batches * epochs
        # a batch's rounds are in order, so that equal nodes stand side by side
        begins = np.ones_like(whole)
        begins[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
        where = np.flatnonzero(begins)
        counts = np.diff(np.append(where, nodes.size))
        kept = whole.reshape(-1)[where]
        np.add.at(squares, where[kept] // epochs, counts[kept] ** 2)
    return int(squares.max())


class TreeRun:
    """The complete nodes that no greater one covers: exact sums, and estimates of them."""

    def __init__(self, width: int) -> None:
        self._nodes: list[tuple[Integers, Floats] | None] = []
        self._width = width

    def __repr__(self) -> str:
        return "<private sums of a tree>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value."""
        exact = value
        found = (exact + noise()).astype(np.float64)
        variance = 1.0
        for height, node in enumerate(self._nodes):
            if node is None:
                break
            self._nodes[height] = None
            exact = node[0] + exact
            below = node[1] + found
            variance = 2 * variance / (2 * variance + 1)
            found = variance * (exact + noise()).astype(np.float64) + (1 - variance) * below
        else:
            height = len(self._nodes)
            self._nodes.append(None)
        self._nodes[height] = (exact, found)
        total = np.zeros(self._width)
        for node in self._nodes:
            if node is not None:
                total += node[1]
        return total


@frozen
class Banded:
    """The first bands of the square root of the matrix of prefix sums: C and B are nearly alike.

    The square root is Toeplitz, ``c_j = binom(2j, j) / 4^j``; kept are as many bands as there are
    batches, so that a unit's columns of C are orthogonal, and its sensitivity ``sqrt(k)`` times
    that of one epoch. With one epoch it is the whole square root, whose largest error is next to
    the least of all factorizations (up to `BANDS` rounds).

    Column j of C 1 is column 0 moved down by j rows, of which fewer are left: batch 0 has the
    largest ``|C 1_j|``. Rounded to 2^-12, coefficients still do not grow, so that all roots of
    ``sum c_j x^j`` have modulus at least 1 (Enestrom and Kakeya): the recursion that inverts C is
    stable.

    References
    ----------
    Fichtenberger, Henzinger and Upadhyay 2023 (the square root); Choquette-Choo et al. 2023
    (banded); Kalinin and Lampert 2024 (banded square root).
    """

    bits: ClassVar[int] = 12

    batches: int
    epochs: int

    @property
    def reach(self) -> int:
        """The sum of the coefficients."""
        return int(self.coefficients().sum())

    def coefficients(self) -> Integers:
        """Return c_0, c_1, ... in steps of 2^-bits."""
        bands = min(self.batches, BANDS)
        ratios = 1 - 0.5 / np.arange(1, bands)
        exact = np.concatenate([[1.0], np.cumprod(ratios)])
        return np.rint(exact * 2.0**self.bits).astype(np.int64)

    def sensitivity(self) -> float:
        """Return the norm of the columns of batch 0, added up."""
        return up(math.sqrt(_banded_square(self)) / 2.0**self.bits, 2)

    def start(self, width: int) -> BandedRun:
        """Return a run."""
        return BandedRun(self.coefficients(), width, self.bits)


@lru_cache(maxsize=64)
def _banded_square(factorization: Banded) -> int:
    # no two bands of a unit meet: there are no more of them than rounds between
    c = [int(v) for v in factorization.coefficients()]
    return factorization.epochs * sum(v * v for v in c)


class BandedRun:
    """The last values, exact, and the estimates of them that released rows give."""

    def __init__(self, coefficients: Integers, width: int, bits: int) -> None:
        self._reversed = coefficients[::-1].copy()
        self._scale = 2.0**bits
        bands = len(coefficients)
        self._exact = np.zeros((2 * bands, width), dtype=np.int64)
        self._known = np.zeros((2 * bands, width))
        self._at = bands
        self._bands = bands
        self._total = np.zeros(width)

    def __repr__(self) -> str:
        return "<private sums of a band>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value."""
        if self._at == 2 * self._bands:
            for rows in (self._exact, self._known):
                rows[: self._bands] = rows[self._bands :]
            self._at = self._bands
        first = self._at - self._bands + 1
        self._exact[self._at] = value
        row = self._reversed @ self._exact[first : self._at + 1]
        released = (row + noise()).astype(np.float64) / self._scale
        before = (self._reversed[:-1] / self._scale) @ self._known[first : self._at]
        # c_0 is 1
        self._known[self._at] = released - before
        self._total += self._known[self._at]
        self._at += 1
        return self._total.copy()


# -----------------------------------------------------------------------------
# DP-FTRL: follow the regularised leader, on prefix sums whose noise hangs together.


FACTORIZATIONS: dict[str, type[Tree] | type[Banded]] = {"tree": Tree, "banded": Banded}

ROUNDS = 2**16
"""The most rounds there may be."""


def _counted(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    found = whole(value)
    if not (found is not None and 1 <= found <= ROUNDS):
        raise DeclarationError(
            f"FollowTheLeader.{attribute.name} must be a whole number between 1 and {ROUNDS}, got "
            f"{value!r}"
        )


def _known(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not (isinstance(value, str) and value in FACTORIZATIONS):
        raise DeclarationError(
            f"FollowTheLeader.factorization must be one of {list(FACTORIZATIONS)}, got {value!r}"
        )


class FollowTheLeader(Mechanism):
    """Train on batches in order: ``theta_t = -step (g_1 + ... + g_t + noise_t)``.

    g_t is the sum of clipped gradients of batch t at theta_{t-1}; the step is a released value, or
    a constant (``given=[dp.public(0.1)]``): the loss holds whatever it is. The noise of the T
    prefix sums is not independent: it is B Z, of which `adaptive_dp.mechanisms.follow_the_leader`
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
    input_type: ClassVar[type] = AdaptiveSums
    released_inputs: ClassVar[int] = 1
    theorem: ClassVar[str] = "Denisov et al. 2022, Thm 2.1; Kairouz et al. 2021"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step, correlated exactly"

    sigma: float = noise_parameter("sigma")
    batches: int = attrs.field(converter=number, validator=_counted)
    epochs: int = attrs.field(default=1, converter=number, validator=_counted)
    factorization: str = attrs.field(default="banded", validator=_known)

    def __attrs_post_init__(self) -> None:
        if not (self.batches * self.epochs <= ROUNDS):
            raise DeclarationError(
                f"FollowTheLeader runs at most {ROUNDS} rounds, got {self.batches} batches in "
                f"{self.epochs} epochs"
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
        if not isinstance(self.sigma, Free) and not (
            step > 0 and self.sigma <= LARGEST_SCALE * step
        ):
            raise DeclarationError(
                f"FollowTheLeader's sigma must be at most {LARGEST_SCALE * step:.3g} for gradients "
                f"clipped so short, got {self.sigma!r}: nothing would be learned; raise the clip "
                "or epsilon"
            )
