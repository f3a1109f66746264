"""A dominating pair: what one mechanism lets an adversary see, in one direction.

A *pair* is two laws (P, Q) of an outcome: P with the unit, Q without it (or, under
replace-one, with one or the other value of it). Its *privacy loss* is the random variable
``L = log dP/dQ``. The pair *dominates* a mechanism when, for every t > 0 (below 1 too) and all
neighbours, the mechanism's hockey-stick ``E_Q (dP/dQ - t)_+`` is at most the pair's. Then

* the reversed pair (Q, P) dominates the other direction, since ``H_t(Q, P) = 1 - t + t H_{1/t}(P,
  Q)``;
* pairs compose by adding independent losses, adaptive queries included (Zhu, Dong and Wang
  2022, Thm 10), and are sampled by mixing (their Thm 11).

Three views of a pair, the first of which every pair has:

=====================  ==========================================================
``above``, ``below``   the tails of L under P and under Q, from which profiles and
                       discretisations follow
``log_moment(z)``      ``log E_P e^{zL}`` at complex z: Renyi divergences are its
                       values at real z, compositions its sums
``decay(tilt, t)``     how small ``|E_P e^{zL}|`` stays on ``Re z = tilt`` beyond
                       ``Im z = t``: where a contour integral may stop
=====================  ==========================================================

What anything may happen on (`PrivacyLoss.failure`) is not part of the pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from attrs import frozen

from accountants.complexes import Complex
from accountants.rounding import UNIT, Array


class Pair:
    """Base of every pair: a frozen attrs class, hashable and comparable by value.

    Examples
    --------
    >>> from accountants import Gaussian
    >>> pair = Gaussian(mu=1.0).pair()
    >>> [round(float(tail[0]), 4) for tail in pair.above(np.array([0.5]))]
    [0.5, 0.1587]
    >>> pair.reversed() == pair, pair.top()
    (True, inf)
    """

    __slots__ = ()

    def tail_error(self) -> float:
        """Return the relative error of what `above` and `below` return (beside 1e-300)."""
        return 1e-13

    def attained(self) -> bool:
        """Whether a mechanism attains the pair and its compositions: then it bounds from below."""
        return True

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return ``P(L > l)`` and ``Q(L > l)`` at each ``l`` (any real numbers).

        They are within `tail_error` of the tails at some loss within ``slip(l)`` of ``l``.
        """
        raise NotImplementedError

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return ``P(L < l)`` and ``Q(L < l)`` at each ``l``, as `above` does."""
        raise NotImplementedError

    def top(self) -> float:
        """Return the least upper bound of L, rounded up; infinite where there is none."""
        return math.inf

    def bottom(self) -> float:
        """Return the greatest lower bound of L, rounded down; -infinite where there is none."""
        return -math.inf

    def spacing(self) -> float | None:
        """Return d where the atoms of L lie on whole multiples of d; None without atoms."""
        return None

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return ``log E_P e^{zL}``, up to multiples of 2 pi i, and a bound of its error.

        Parameters
        ----------
        z
            Any shape; ``z.real`` of either sign. Infinite real part where the moment is.

        Returns
        -------
        tuple or None
            The logarithms, and bounds of the modulus of their absolute error. None where
            the pair has no formula.
        """
        return None

    @classmethod
    def log_moments(
        cls, spends: Sequence[tuple[Pair, int]], z: Complex
    ) -> tuple[Complex, Array] | None:
        """Return the sum of ``times * log_moment(z)`` over pairs of this very class.

        A family may add up many pairs at once; this adds them one by one.
        """
        total, error = np.zeros_like(z), np.zeros(np.shape(z))
        for pair, times in spends:
            known = pair.log_moment(z)
            if known is None:
                return None
            part = times * np.where(known[1] < np.inf, known[0], 0.0)
            total = total + part
            error = error + times * known[1] + 4 * UNIT * (np.abs(part) + np.abs(total))
        return total, error * (1 + 1e-9)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return bounds of ``log |M(tilt + i t') / M(tilt)|``, ``M(z) = E_P e^{zL}``.

        Each holds for every ``t' >= t``, t the entry of ``beyond`` (positive); at most 0, and
        falling. Zeros promise nothing.
        """
        return np.zeros_like(beyond)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return the sum of ``times * decay`` over pairs of this very class."""
        total = np.zeros(np.shape(beyond))
        for pair, times in spends:
            total = total + times * pair.decay(tilt, beyond)
        return total * (1 - 1e-12)

    def mirrored_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return `log_moment` at ``-1 - z``, for families that must not round that sum."""
        return self.log_moment(-1 - z)

    def mirrored_decay(self, tilt: float, beyond: Array) -> Array:
        """Return `decay` on the line through ``-1 - tilt``."""
        return self.decay(-1 - tilt, beyond)

    def reversed(self) -> Pair:
        """Return the pair (Q, P); a pair with the same loss both ways returns itself."""
        return Reversed(self)

    def composed(self, times: int, epsilon: Array) -> tuple[Array, Array] | None:
        """Return bounds of the hockey-stick of ``times`` copies, eps >= 0; None without a formula.

        It is asked where the log-moments are of no use, and may refuse what costs too much.
        """
        return None

    def profile(self, epsilon: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of ``P(L > eps) - e^eps Q(L > eps)``, at any real eps.

        Every event bounds the hockey-stick from below; it falls in eps, so the event at a loss
        surely below eps, at that loss's own factor e^l, bounds it from above.
        """
        below = epsilon - 2 * slip(epsilon)
        least = np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))  # of every pair
        with np.errstate(over="ignore", invalid="ignore"):
            # the event {L > l} of some l near eps: any event bounds the hockey-stick from below
            lower = _stick(*self.above(epsilon), epsilon, self.tail_error(), -1)
            # at a loss l surely below eps, with its own factor e^l: the hockey-stick falls in eps
            upper = _stick(*self.above(below), below - slip(epsilon), self.tail_error(), 1)
        # delta(eps) >= 1 - e^eps for every pair of laws
        lower = np.maximum(lower, least * (1 - 4 * UNIT))
        upper = np.minimum(1.0, np.maximum(upper, least * (1 + 4 * UNIT)))
        return np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0)


def _stick(p: Array, q: Array, epsilon: Array, error: float, side: int) -> Array:
    """Return a bound (above for side 1, below for -1) of ``p - e^eps q``, never negative."""
    ratio = np.exp(epsilon)
    paid = np.where(ratio < np.inf, ratio * q, 0.0 if side > 0 else np.inf)
    # tails within a relative error, e^eps within units of |eps|, and 1e-300 absolute
    wrong = error * (p + paid) + 8 * UNIT * (1 + np.abs(epsilon)) * paid
    wrong = wrong + 2e-300 * (1 + np.minimum(ratio, 1e300))
    bound = np.maximum(p - paid + side * wrong, 0.0)
    # never above P's tail itself
    return np.minimum(bound, p * (1 + error) + 1e-300) if side > 0 else bound


def slip(loss: Array) -> Array:
    """Return how far off a loss may be that tails are asked at: a few units of its size."""
    return 8 * UNIT * (1 + np.abs(loss))


@frozen
class Reversed(Pair):
    """The pair (Q, P): its loss is ``-L``, with the laws exchanged.

    ``E_Q e^{-zL} = E_P e^{-(1+z)L}``.
    """

    pair: Pair

    def tail_error(self) -> float:
        """Return the pair's."""
        return self.pair.tail_error()

    def attained(self) -> bool:
        """As the pair."""
        return self.pair.attained()

    def top(self) -> float:
        """Return minus the pair's bottom."""
        return -self.pair.bottom()

    def bottom(self) -> float:
        """Return minus the pair's top."""
        return -self.pair.top()

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's tails below ``-l``, exchanged."""
        p, q = self.pair.below(-loss)
        return q, p

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's tails above ``-l``, exchanged."""
        p, q = self.pair.above(-loss)
        return q, p

    def spacing(self) -> float | None:
        """Return the pair's."""
        return self.pair.spacing()

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return the pair's at ``-1 - z``."""
        return self.pair.mirrored_moment(z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the pair's on the line through ``-1 - tilt``."""
        return self.pair.mirrored_decay(tilt, beyond)

    def reversed(self) -> Pair:
        """Return the pair itself."""
        return self.pair


class Symmetric(Pair):
    """Base of a pair whose loss has the same laws both ways: Q sees -L as P sees L."""

    __slots__ = ()

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails above ``-l``, exchanged."""
        p, q = self.above(-loss)
        return q, p

    def bottom(self) -> float:
        """Return minus the top."""
        return -self.top()

    def reversed(self) -> Self:
        """Return the pair itself."""
        return self


def right_half(z: Complex) -> tuple[Complex, Array]:
    """Return z, or its mirror image ``-1 - z`` where it lies left of -1/2, and what that costs.

    A symmetric pair has the same moment at both; the image is rounded by a unit, so its
    log-moment moves by that times the largest loss.
    """
    mirrored = z.real < -0.5
    return np.where(mirrored, -1 - z, z), np.where(mirrored, 4 * UNIT * (1 + np.abs(z)), 0.0)


def summed(
    spends: Sequence[tuple[Pair, int]],
    z: Complex,
    parameter: Callable[[Any], float],
    log_moment: Callable[[Array, Complex], tuple[Complex, Array]],
) -> tuple[Complex, Array]:
    """Return the sum of ``times * log_moment`` over a family of one parameter, in batches.

    Parameters
    ----------
    parameter
        Reads it from a pair.
    log_moment
        From n parameters and m points to (n, m) log-moments and bounds of their errors.
    """
    points = np.ravel(z)
    total, error = np.zeros(len(points), dtype=np.complex128), np.zeros(len(points))
    for start in range(0, len(spends), _SUM_BATCH):
        some = spends[start : start + _SUM_BATCH]
        values = np.array([parameter(pair) for pair, _ in some], dtype=np.float64)
        times = np.array([count for _, count in some], dtype=np.float64)
        value, wrong = log_moment(values, points)
        # an unknown log-moment counts as 0 with an infinite error
        value = np.where(wrong < np.inf, value, 0.0)  # nothing is known of it
        total = total + times @ value
        error = error + times @ (wrong + (len(some) + 4) * UNIT * np.abs(value))
    error = error * (1 + 1e-9) + (len(spends) // _SUM_BATCH + 1) * UNIT * np.abs(total)
    return total.reshape(np.shape(z)), error.reshape(np.shape(z))


_SUM_BATCH = 256
"""So many pairs at once: their matrices stay in a processor's cache."""
