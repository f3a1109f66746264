"""Choosing a candidate by its score: exponential mechanism, permute-and-flip, noisy max."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss, report_noisy_max
from accountants import PermuteAndFlip as PermuteAndFlipLoss
from accountants.numerics import ceiling
from adaptive_dp.data.grid import step
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import IN_PROPORTION, Mechanism, Ranked, noise_parameter
from adaptive_dp.noise.bernoulli import first_success, permutation
from adaptive_dp.noise.choice import choose
from adaptive_dp.noise.continuous import is_nonnegative_sum, laplace
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# What the mechanisms that choose have in common: scores as exact numbers, and their cost.


Floats = NDArray[np.float64]

EXACT_CHOICE = "exact: rational arithmetic where 64 bits of randomness do not decide"


def finite(values: Any) -> Floats:
    """Return scores in one row, finite: NaN counts as 0, infinite ones as the largest floats."""
    most = sys.float_info.max
    return np.nan_to_num(np.ravel(values), nan=0.0, posinf=most, neginf=-most)


def gaps(scores: Floats, scale: float) -> tuple[Floats, Callable[[int], Fraction]]:
    """Return ``(max q - q_i) / scale`` as floats, and exactly by index.

    Each float is rounded twice, off by less than 2^-51 of itself; past the largest it is infinite.
    """
    top = float(scores.max())
    with np.errstate(over="ignore", under="ignore"):
        near = (top - scores) / float(scale)

    def exact(index: int) -> Fraction:
        return (Fraction(top) - Fraction(float(scores[index]))) / Fraction(scale)

    return near, exact


def widest(distance: float, span: float | None) -> float:
    """Return the span: never more than twice the distance, and that where it is not known."""
    return 2 * distance if span is None else min(span, 2 * distance)


def cost(distance: float, span: float | None, scale: float) -> float:
    """Return ``span / scale``, rounded up."""
    return ceiling(Fraction(widest(distance, span)) / Fraction(scale))


# -----------------------------------------------------------------------------
# The exponential mechanism: choosing one of finitely many candidates by its score.


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
    is_selection: ClassVar[bool] = True
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; Dong, Durfee & Rogers 2020"
    sampler: ClassVar[str] = f"exponential mechanism by inversion, {EXACT_CHOICE}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the chosen index."""
        exponents, exact = gaps(finite(value), self.scale)
        one = np.ones(len(exponents), dtype=np.int64)
        return np.array(choose(exponents, exact, one, stream))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between scores that move by at most ``distance``, apart by ``span``."""
        return BoundedRange(cost(distance, span, self.scale))


# -----------------------------------------------------------------------------
# Permute-and-flip: choosing a candidate, never worse than the exponential mechanism.


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
    2 Delta see the proof in `accountants.losses.selection`: it holds the others' noise fixed, and
    no candidate's lead moves by more than the span.

    Examples
    --------
    >>> PermuteAndFlip(scale=4.0).loss(distance=1.0)
    PermuteAndFlip(epsilon=0.5)
    """

    norm: ClassVar[float] = math.inf
    is_selection: ClassVar[bool] = True
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "McKenna & Sheldon 2020, Thm 1"
    sampler: ClassVar[str] = f"permute-and-flip, {EXACT_CHOICE}"

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


# -----------------------------------------------------------------------------
# Report noisy max: the index of the largest score after noise.


_NOISES = ("laplace", "gumbel", "exponential")


def _known(instance: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in _NOISES:
        raise DeclarationError(f"NoisyMax.noise must be one of {', '.join(_NOISES)}, got {value!r}")


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
    Steinke, Wang, Xiao and Zhang 2021. The proof for the span is at `accountants.losses.selection`.

    Examples
    --------
    >>> NoisyMax(scale=2.0).loss(distance=1.0)
    LaplaceNoisyMax(epsilon=1.0)
    >>> NoisyMax(scale=2.0, noise="gumbel").loss(distance=1.0, span=1.0)
    GumbelNoisyMax(epsilon=0.5)
    """

    norm: ClassVar[float] = math.inf
    is_selection: ClassVar[bool] = True
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = (
        "report noisy max: Dwork & Roth 2014, Claim 3.9; Durfee & Rogers 2019, Lemma 4.2; "
        "Ding et al. 2021"
    )
    sampler: ClassVar[str] = f"report noisy max, {EXACT_CHOICE}"

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
        if i and not is_nonnegative_sum((value, -score), ((scale, lead), (-scale, noise))):
            best = i
    return best


# -----------------------------------------------------------------------------
# The exponential mechanism on an interval, for scores that are constant between data points.


POINTS = 30
"""The interval is cut into at least 2^30 steps, where floats are as fine as that."""


class QuantileExponential(Mechanism):
    """Choose a point t of a grid on [lower, upper], in proportion to ``e^{q(t) / b}``.

    The grid's step is a power of two that the declared bounds alone determine: about 2^-30 of the
    width. The chance of an interval between data points is the number of grid points in it, a whole
    number, times ``e^{q/b}``; inside of it all points are equal. So the law is exact, and every
    point has a positive chance, whatever the data: the same numbers are reached by neighbours.
    The loss is that of `Exponential`: ``epsilon = 2 Delta / b``.

    Parameters
    ----------
    scale
        b, in the units of the score: ranks, for a quantile.

    References
    ----------
    McSherry and Talwar 2007, Thm 6; Smith 2011, Alg. 2 (of quantiles, by intervals).

    Examples
    --------
    >>> QuantileExponential(scale=2.0).loss(distance=0.5)
    BoundedRange(epsilon=0.5)
    """

    norm: ClassVar[float] = math.inf
    input_type: ClassVar[type] = Ranked
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; Smith 2011, Alg. 2"
    sampler: ClassVar[str] = f"exponential mechanism on a power-of-two grid, {EXACT_CHOICE}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: Ranked, stream: Stream) -> NDArray[Any]:
        """Return the chosen point."""
        edges, scores = value.steps()
        unit, first, last = points(float(edges[0]), float(edges[-1]))
        if first > last:  # no point of the grid is inside: as the bounds alone decide
            return np.array(float(edges[0]))
        ends = np.floor(edges / unit).astype(np.int64)
        ends[0] = first - 1
        counts = np.diff(ends)
        some = np.flatnonzero(counts)
        exponents, exact = gaps(finite(scores)[some], self.scale)
        found = some[choose(exponents, exact, counts[some], stream)]
        return np.array((int(ends[found]) + 1 + _below(int(counts[found]), stream)) * unit)

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between scores that move by at most ``distance``."""
        return BoundedRange(cost(distance, span, self.scale))


def points(lower: float, upper: float) -> tuple[float, int, int]:
    """Return the grid's step, and the first and last of its multiples in [lower, upper].

    No multiple is more than 2^53 steps from 0, so that each is a float.
    """
    unit = max(step(upper - lower, POINTS), step(max(abs(lower), abs(upper)), 52))
    first, last = math.ceil(Fraction(lower) / Fraction(unit)), math.floor(upper / unit)
    return unit, first, last


def _below(count: int, stream: Stream) -> int:
    """Return a uniform whole number below ``count``, at most 2^64: of words in whole multiples."""
    whole = (2**64 // count) * count
    while (found := int(stream.words(1)[0])) >= whole:
        pass
    return found % count
