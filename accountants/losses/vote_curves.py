"""Bounds of what one noisy vote loses, at one order, from its equivalent gap; one direction.

All of them bound ``D_a(M(D) || M(D'))`` for D at hand and every neighbour D'. Arrays broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountants import special
from accountants.losses.vote_bounds import theorem_six
from accountants.rounding import UNIT, Array, up

_SPREAD = (1.0, 1.25, 1.6, 2.5)


def normal_votes(log_q: Array, sigma: float, order: float, worst: float) -> Array:
    """Return Theorem 6 of Papernot et al. 2018 at its best, at each bound of q; see `VotesCurve`.

    Its two sums are least apart: that of other answers where ``-log q/(m1 - 1) + m1/sigma^2`` is,
    at ``m1 = 1 + sigma sqrt(-log q)``, or at the order where that is larger; that of the likeliest
    where ``(1 - 1/m2)(log q + m2/sigma^2)`` is, at ``m2 = sigma sqrt(-log q)``. The conditions tie
    them; where they fail there, larger m2 are tried.

    Parameters
    ----------
    log_q
        Bounds of the log of q that fall. What is proven for one holds for all after it, which
        makes the result fall.
    worst
        What every data set loses, at most.
    """
    start = sigma * np.sqrt(np.maximum(-log_q, 0.0))
    best = np.full(np.shape(log_q), worst)
    with np.errstate(all="ignore"):
        m1 = np.maximum(order, 1 + start)
        for factor in _SPREAD:
            some = theorem_six(log_q, sigma, order, m1, np.maximum(1 + 1e-6, factor * start))
            # each choice of m1 and m2 is proven, so the least is
            best = np.fmin(best, some)
    # what holds at a larger q holds at a smaller one
    return np.minimum.accumulate(best)


def laplace_votes(log_q: Array, epsilon: float, order: float, worst: float) -> Array:
    """Return the bound for Laplace noise, of pure ``epsilon = 2/b`` (Papernot et al. 2017, Thm 3).

    All ratios of probabilities are within ``e^epsilon``, so the answer is another than the
    likeliest with probability at most ``e^epsilon q`` on the neighbour, and
    ``E_P (P/Q)^{a-1} <= (1 - q) A^{a-1} + q B^{a-1}``, ``A = (1 - q)/(1 - e^epsilon q)`` and
    ``B = e^epsilon``. A grows with q, so the slope in q is at least ``B^{a-1} - A^{a-1}``: a bound
    of q will do where ``A <= B``, which is where ``q (1 + e^epsilon) <= 1``. There the sum is at
    most ``B^{a-1}``, and beyond nothing is proven but the worst case.
    """
    with np.errstate(all="ignore"):
        log_q = np.minimum(log_q, 0.0)
        # q (1 + e^epsilon) <= 1: there a bound of q may stand for q
        valid = log_q + np.logaddexp(0.0, epsilon) <= -1e-9
        size = 1 + np.abs(log_q) + epsilon
        # the neighbour's q' <= e^epsilon q, rounded up
        other = np.exp(log_q + epsilon + 16 * UNIT * size)
        kept, lost = order * np.log1p(-np.exp(log_q)), (order - 1) * np.log1p(-other)
        first = kept - lost + 32 * UNIT * (np.abs(kept) + np.abs(lost))
        rest = np.exp(log_q + (order - 1) * epsilon + 16 * UNIT * size * (1 + order))
        parts = np.expm1(first)
        moment = up(parts + rest + 32 * UNIT * (np.abs(parts) + rest), 8)
        value = np.maximum(0.0, up(np.log1p(moment) / (order - 1), 16))
        value = np.where(valid & (other < 1) & (value >= 0), value, worst)
    # the worst case holds everywhere, and what is proven at a larger q holds at a smaller one
    return np.minimum.accumulate(np.minimum(value, worst))


def checked_votes(
    after: Array,
    top: NDArray[np.int64],
    teachers: int,
    threshold: float,
    sigma: float,
    order: float,
) -> Array:
    """Return the bound for a vote that is held only if the largest count passes a noisy check.

    ``none`` is released unless ``max n + N(0, sigma^2) >= T``; p is the chance to pass, p' a
    neighbour's, whose largest count is at most 1 away; P and P' are the laws of the answer. Over
    the outcomes none and the answers,

    ``E_P (P/P')^{a-1} = (1-p)^a (1-p')^{1-a} + p^a p'^{1-a} sum_i P_i^a P'_i^{1-a}``,

    whose last sum is at most ``e^{(a-1) after}``: the bound is at the largest over the three p'
    (own proof; the check is Confident-GNMax of Papernot et al. 2018).

    Parameters
    ----------
    after
        Bounds of what the answer loses.
    top
        Largest counts, integers.
    teachers
        No count is larger.
    """
    worst: Array = np.zeros(np.broadcast_shapes(np.shape(after), np.shape(top)))
    with np.errstate(all="ignore"):
        # the neighbour's largest count is at most 1 away: the largest of the three is a bound
        for moved in (-1, 0, 1):
            moment: Array = np.zeros(worst.shape)
            other = np.minimum(top + moved, teachers)
            # the two outcomes: the check passes and the answer follows, or it fails
            for sign, loss in ((1.0, after), (-1.0, 0.0)):
                here, wrong = _log_side(sign * (top - threshold) / sigma)
                there, wrong_there = _log_side(sign * (other - threshold) / sigma)
                exponent = (order - 1) * (here - there + (wrong + wrong_there) + loss)
                exponent = up(exponent, 16)
                share = np.exp(here)
                grown = np.exp(here + exponent + wrong) - share
                # share (e^exponent - 1): the two parts sum to the moment less 1, since the shares
                # sum to 1
                part = np.where(exponent > 1, grown, share * np.expm1(exponent))
                moment = moment + part + np.abs(part) * 4 * (wrong + 16 * UNIT)
                moment = moment + 4 * UNIT * np.abs(part) * (2 + np.abs(exponent))
            # the two parts have opposite signs, so each was moved outward by itself
            value = up(np.log1p(up(moment, 8)) / (order - 1), 16)
            worst = np.maximum(worst, np.where(np.isnan(value), np.inf, value))
    return worst


def _log_side(z: NDArray[np.floating[Any]]) -> tuple[Array, Array]:
    """Return ``log Phi(z)``, to a relative error also where it is next to 0, and its error."""
    log = np.where(z > 0, np.log1p(-special.ndtr(-np.abs(z))), special.log_ndtr(z))
    # of its argument's rounding log Phi(z) takes 2 |log| units, but z^2 where it is next to 0
    return log, UNIT * (64 + 8 * np.maximum(z, 0.0) ** 2) * np.abs(log)


def total(parts: Array, times: Array) -> float:
    """Return ``sum times * parts``, rounded up."""
    return up(float(parts @ times), 2 * len(parts) + 8) if times.any() else 0.0
