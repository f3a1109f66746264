"""Report noisy max with Gaussian noise on votes: worst case, and what the votes at hand lose."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.data_dependent import DataDependent
from accountants.errors import DomainError, positive
from accountants.losses.given_gaussian import GaussianBound
from accountants.rounding import UNIT, Array, up
from accountants.secret import Secret


def noisy_argmax(votes: Secret[Sequence[float]], sigma: float) -> DataDependent:
    """Return the loss of ``argmax_i (votes_i + N(0, sigma^2))``, on these votes.

    Worst case: a neighbour moves one vote, by sqrt 2 in l2, so ``D_a = a / sigma^2``.

    Parameters
    ----------
    votes
        Shape (classes,); private. Neighbouring data sets differ in one voter, whose vote may
        move from one class to another.
    sigma
        The noise's standard deviation.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Thm 6 and Prop. 7, of the
    direction D against D' only; the proof and its conditions are at `VotesCurve`.

    Examples
    --------
    >>> loss = noisy_argmax(Secret([240, 5, 5]), sigma=40.0)
    >>> loss.worst.renyi(np.array([4.0])).round(6)
    array([0.0025])
    >>> loss.data_dependent(np.array([4.0]))
    <private>
    """
    scale = positive("sigma", sigma)
    worst = GaussianBound(up(math.sqrt(2) / scale, 2))
    return DataDependent(worst, _boxed(votes).map(lambda v: VotesCurve(_log_q(v, scale), scale)))


def _boxed(votes: Secret[Sequence[float]]) -> Secret[Sequence[float]]:
    if not isinstance(votes, Secret):
        raise DomainError("votes are private data, so they come as Secret([...])")
    return votes


def _log_q(votes: Sequence[float], sigma: float) -> float:
    """Return the log of a bound of P(the answer is not the largest count), by a union.

    ``q <= sum_i erfc((n_max - n_i) / (2 sigma)) / 2`` (Papernot et al. 2018, Prop. 7). Counts that
    are no finite numbers prove nothing: 0.
    """
    try:
        counts = np.sort(np.asarray(votes, dtype=np.float64).ravel())[::-1]
    except (TypeError, ValueError, OverflowError):  # whose message would quote the votes
        return 0.0
    if len(counts) == 0 or not np.all(np.isfinite(counts)):
        return 0.0
    if len(counts) == 1:
        return -math.inf
    with np.errstate(all="ignore"):  # a warning would tell of the votes
        logs = special.log_ndtr(-(counts[0] - counts[1:]) / (math.sqrt(2) * sigma))
    logs = np.nan_to_num(np.maximum(logs, -1e300), nan=0.0)
    largest = float(logs.max())
    total = largest + math.log(float(np.exp(logs - largest).sum()))
    # log_ndtr(-x) moves by about x^2 = 2 |log| times a relative error of x
    # each log is off by some units of its size; upward
    return min(0.0, total + (64 + len(counts)) * UNIT * (1 + abs(total)))


@frozen(repr=False)
class VotesCurve:
    """Bounds of ``D_a(M(D) || M(D'))``, from q: how likely D's answer is not its likeliest one.

    The mechanism has ``D_m <= m / sigma^2``, both ways. With ``r = (m2 - 1) / m2``:

    * the neighbour's ``q' <= (q e^{e2})^r``, ``e2 = m2 / sigma^2``, since its divergence of
      order m2 against D is at least that of the event alone; so the likeliest answer adds at
      most ``(1 - q)^a (1 - (q e^{e2})^r)^{1 - a}`` to ``E (P/Q)^{a-1}``;
    * all others add ``q^{1 - s} e^{(a - 1) e1}`` by Hoelder's inequality, with
      ``s = (a - 1) / (m1 - 1) <= 1`` and ``e1 = m1 / sigma^2``.

    A bound of q will do where the sum F(q) grows on (0, q]. With ``A = (1 - q) / (1 - q')`` and
    ``B = e^{e1} q^{-1/(m1-1)}``, F is ``(1 - q) A^{a-1} + q B^{a-1}`` and, where ``B >= A``,

    ``F' >= A^{a-1} ((a - 1) r A q'/q - a + 1 - s) = A^{a-1} (a - 1) (r A q'/q - m1/(m1 - 1))``.

    So it suffices that ``r q'/q >= m1/(m1 - 1)``, the condition of Theorem 6, which makes A at
    least 1 and growing, and that ``B >= A``: both hold below q if at q, since ``q'/q`` and B
    fall. Elsewhere nothing is proven, and the curve is infinite.

    Parameters
    ----------
    log_q
        The log of a bound of q.
    sigma
        The noise's standard deviation.
    """

    log_q: float
    sigma: float = field()

    def __repr__(self) -> str:
        return "<private>"

    def __call__(self, orders: Array) -> Array:
        """Return the least bound over a grid of m1 and m2, any of which is sound."""
        orders = np.asarray(orders, dtype=np.float64)
        if self.log_q == -math.inf:
            return np.zeros_like(orders)
        if not self.log_q < 0:
            return np.full_like(orders, np.inf)
        a = orders[..., None, None]
        start = self.sigma * math.sqrt(
            -self.log_q
        )  # Papernot et al. 2018, Prop. 8: the best, nearly
        # any m1 and m2 give a bound: the least of a grid is taken
        m2 = np.maximum(1 + 1e-6, start * _GRID)[:, None]
        m1 = np.maximum(a, (start + 1) * _GRID[None, :])
        with np.errstate(all="ignore"):
            values = self._bound(a, m1, m2)
        best: Array = np.min(np.where(np.isnan(values), np.inf, values), axis=(-2, -1))
        return best

    def _bound(self, a: Array, m1: Array, m2: Array) -> Array:
        return theorem_six(np.float64(self.log_q), self.sigma, a, m1, m2)


def theorem_six(
    log_q: Array | np.float64, sigma: float, a: Array | float, m1: Array, m2: Array
) -> Array:
    """Return the bound of `VotesCurve` at one pair of orders; infinite where it is not proven.

    Parameters
    ----------
    log_q, a, m1, m2
        The log of a bound of q, the order, and the two orders of the proof; all broadcast.
    sigma
        The noise's standard deviation.
    """
    q, square = np.exp(log_q), sigma * sigma
    r, e1, e2 = 1 - 1 / m2, m1 / square, m2 / square
    # log of (q e^{e2})^{(m2 - 1)/m2}, a bound of the neighbour's q'
    log_next = r * (log_q + e2)
    # the exponent of Hoelder's inequality
    s = np.minimum(1.0, (a - 1) / (m1 - 1))
    # r q'/q >= m1 / (m1 - 1): the condition under which a bound of q may stand for q
    grows = np.log(r) + log_next - log_q + np.log1p(-1 / m1)
    valid = (m1 >= a) & (log_q < -1e-9) & (log_next < -1e-9) & (grows > 1e-9)
    ratio = np.log1p(-q) - np.log1p(-np.exp(log_next))
    # B >= A, the other condition of the docstring
    valid &= e1 - log_q / (m1 - 1) - ratio > 1e-9
    # each log is off by some units of its size: moved outward once
    size = 1 + np.abs(log_q) + e1 * a + e2
    q_next = np.exp(log_next + 64 * UNIT * size)
    kept, lost = a * np.log1p(-q), (a - 1) * np.log1p(-q_next)
    first = kept - lost + 32 * UNIT * (np.abs(kept) + np.abs(lost))
    other = np.exp((1 - s) * log_q + (a - 1) * e1 + 64 * UNIT * size * (1 + a))
    # log of the two terms' sum, from the sum less 1
    moment = np.log1p(up(np.expm1(first), 8) + up(other, 8))
    return np.where(valid & (q_next < 1), np.maximum(0.0, up(moment / (a - 1), 16)), np.inf)


_GRID = np.geomspace(0.4, 2.5, 7)
