"""The losses of noisy votes of teachers: at worst, on the votes at hand, and near them.

First report noisy max with Gaussian noise on the votes of one query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from accountants import special
from accountants.data_dependent import DataDependent
from accountants.definitions import renyi_divergence
from accountants.errors import DomainError, integer, nonnegative, positive
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianBound
from accountants.losses.selection import LaplaceNoisyMax
from accountants.numerics import UNIT, Array, ceiling, up
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
    if not isinstance(votes, Secret):
        raise DomainError("votes are private data, so they come as Secret([...])")
    return DataDependent(worst, votes.map(lambda v: VotesCurve(_log_q(v, scale), scale)))


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
    sigma: float

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
        # Papernot et al. 2018, Prop. 8: the best, nearly
        start = self.sigma * math.sqrt(-self.log_q)
        # any m1 and m2 give a bound: the least of a grid is taken
        m2 = np.maximum(1 + 1e-6, start * _GRID)[:, None]
        m1 = np.maximum(a, (start + 1) * _GRID[None, :])
        with np.errstate(all="ignore"):
            values = theorem_six(np.float64(self.log_q), self.sigma, a, m1, m2)
        best: Array = np.min(np.where(np.isnan(values), np.inf, values), axis=(-2, -1))
        return best


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
    log_p, log_p_next = a * np.log1p(-q), (a - 1) * np.log1p(-q_next)
    first = log_p - log_p_next + 32 * UNIT * (np.abs(log_p) + np.abs(log_p_next))
    other = np.exp((1 - s) * log_q + (a - 1) * e1 + 64 * UNIT * size * (1 + a))
    # log of the two terms' sum, from the sum less 1
    moment = np.log1p(up(np.expm1(first), 8) + up(other, 8))
    return np.where(valid & (q_next < 1), np.maximum(0.0, up(moment / (a - 1), 16)), np.inf)


_GRID = np.geomspace(0.4, 2.5, 7)


# -----------------------------------------------------------------------------
# The equivalent gap: all that a bound of a noisy vote needs to know of its counts, in one number.
#
# K voters, C classes, counts n that sum to K; the answer is the largest noisy count. A union bounds
# how likely it is not a largest count: ``q~(n) = sum_{i != *} tail(n_max - n_i)``, with ``tail(x)``
# the chance that the difference of two noises exceeds x. The *equivalent gap* g of n is the one gap
# of all classes with the same bound,
#
# ``q~(n) = (C - 1) tail(g)``,  ``0 <= g <= K``, since tail falls and all gaps are between 0 and K.
#
# A bound that falls in g is kept in a table: *cell* k is for the gaps from ``k/8`` on, and holds
# the bound at its lower end.
#
# **Neighbours have ``|g - g'| <= 2``** (normal tails; own proof). One vote moves: the largest count
# and each other move by at most 1 each, so ``max n - n_i`` moves by at most 2. Where the class left
# out of the sum (the leader, of either data set) is the same, the gaps of the others pair up. Where
# it was i and is j, pair the gap of j before with that of i after: both are at least 0, and their
# sum, a change of ``n_i - n_j``, is at most 2. So, paired in some order, gaps move by at most 2
# each. Let ``s = sqrt 2 sigma`` and ``x_i = Phi(-gap_i/s)``, whose mean over the C - 1 others is
# ``Phi(-g/s)``. ``f(x) = Phi(Phi^-1(x) + 2/s)`` is concave: its slope, ``e^{-2z/s - 2/s^2}`` at
# ``z = Phi^-1(x)``, falls. By Jensen's inequality
#
# ``Phi(-g'/s) <= mean f(x_i) <= f(mean x_i) = Phi((2 - g)/s)``,
#
# so ``g' >= g - 2``; and the same with the roles exchanged.
#
# Hence cells of neighbours are at most 16 apart, and 17 with rounding: k is the last cell whose
# bound of q is not below that of n, both in floats. Where logs are wrong by what moves a gap by at
# most ``e``, cells move by less than ``17 + 32 e``. An error of u of the log moves the gap by at
# most ``u s / max(0.79, g/s)``, for the log's slope is ``max(0.79, g/s)/s`` at least; logs are of
# size at most ``log C + 2 + (g/s)^2``, and wrong by ``(64 + C)(1 + |log|)`` units: so e is at most
# ``32 (64 + C)(s + K)`` units for C below e^20; `rounding_is_negligible` keeps 32 e below 1/4.


CELLS = 8
"""Cells for each vote of the gap, where the table is not too large for it."""


def cell_distance(cells_per_vote: int) -> int:
    """Return the largest distance between the cells of neighbours."""
    return 2 * cells_per_vote + 1


_BEFORE = 2.0**-20
"""Cells begin earlier by this much, so that integer gaps fall into their own despite rounding."""

ROUNDED = 2.0**-26, 2.0**-20
"""Noise may be rounded to steps of so much of its scale, or of so many votes, whichever is more.

Two noisy counts that round to the same step tie, and a tie may go to any of them: so the answer is
no largest count with at most the chance that the difference of two unrounded noises exceeds a gap
less one step. Tails are of gaps less one step; a shift of all gaps leaves the above as it is.
"""

_BLOCK = 1 << 18

Tail = Callable[[Array], Array]
"""From gaps, at least 0, to the log of the tail there."""


def normal_tail(sigma: float) -> Tail:
    """Return the log-tail of the difference of two normal noises (Papernot et al. 2018, Prop. 7).

    ``Phi(-x / (sqrt 2 sigma)) = erfc(x / (2 sigma)) / 2``.
    """

    def tail(gaps: Array) -> Array:
        with np.errstate(all="ignore"):
            logs = special.log_ndtr((_step(sigma) - gaps) / (math.sqrt(2) * sigma))
        return np.asarray(np.maximum(logs, -1e300))

    return tail


def laplace_tail(scale: float) -> Tail:
    """Return the log-tail of the difference of two Laplace noises (Papernot et al. 2017).

    ``(2 + x/b) e^{-x/b} / 4``; for x < 0, where a gap is less than a step, 1 less that of -x.
    """

    def tail(gaps: Array) -> Array:
        with np.errstate(all="ignore"):
            x = np.minimum((gaps - _step(scale)) / scale, 1e300)
            beyond = np.log(0.5 + np.abs(x) / 4) - np.abs(x)
            return np.asarray(np.where(x < 0, np.log1p(-np.exp(beyond)), beyond))

    return tail


def _step(scale: float) -> float:
    return max(ROUNDED[0] * scale, ROUNDED[1])


def rounding_is_negligible(sigma: float, classes: int, teachers: int) -> bool:
    """Whether rounding moves a gap by far less than a cell (bounded in the section above)."""
    return sigma > 1e-100 and (64 + classes) * (sigma + teachers) < 2.0**40


def grid(tail: Tail, classes: int, teachers: int, cells_per_vote: int = CELLS) -> Array:
    """Return the log of ``(C - 1) tail`` at each cell's lower end; it never rises.

    Shape ``(cells_per_vote * K + 1,)``.
    """
    ends = np.maximum(np.arange(cells_per_vote * teachers + 1) / cells_per_vote - _BEFORE, 0.0)
    logs = math.log(classes - 1) + tail(ends)
    # rounding must not let the table rise: each entry is at least all later ones
    return np.maximum.accumulate(logs[::-1])[::-1]


@frozen(repr=False)
class VoteCells:
    """The table entries of a data set's queries, each counted once with its multiplicity: private.

    Parameters
    ----------
    top, cell
        Shape (entries,): the largest count and the cell of each entry that some query has.
    times
        Shape (entries,): how many queries have it.
    invalid
        How many queries have counts that are no histogram of the voters' votes.
    """

    top: NDArray[np.int64]
    cell: NDArray[np.int64]
    times: Array
    invalid: int

    def __repr__(self) -> str:
        return "<private>"


def vote_cells(
    counts: ArrayLike, logs: Array, tail: Tail, classes: int, teachers: int
) -> VoteCells:
    """Return the table entries of queries.

    Parameters
    ----------
    counts
        Shape (queries, classes).
    logs
        What `grid` returns.

    Raises
    ------
    DomainError
        If the shape is another; with nothing of the counts.
    """
    votes = _table(counts, classes)
    by_gap = tail(np.arange(teachers + 1.0))
    block = max(1, _BLOCK // classes)
    with np.errstate(all="ignore"):  # a warning would tell of the counts
        codes = [
            _codes(votes[start : start + block], by_gap, logs, teachers)
            for start in range(0, len(votes), block)
        ]
    entries = np.concatenate(codes) if codes else np.zeros(0, dtype=np.int64)
    taken, times = np.unique(entries, return_counts=True)
    top, cell = np.divmod(taken, len(logs))
    return VoteCells(top, cell, times.astype(np.float64), len(votes) - len(entries))


def _codes(votes: NDArray[Any], by_gap: Array, logs: Array, teachers: int) -> NDArray[np.int64]:
    """Return ``top * cells + cell`` of each proper row."""
    # a class a row, whose operations run over many queries at once
    votes = np.ascontiguousarray(_as_integers(votes).T)
    top = votes.max(axis=0)
    valid = (votes.min(axis=0) >= 0) & (top <= teachers)
    # counts this small have sums that do not overflow
    valid &= np.where(valid, votes, 0).sum(axis=0) == teachers
    if not valid.all():
        votes, top = votes[:, valid], top[valid]
    tails = by_gap[top - votes]
    # the class left out of the union is a largest one
    tails[votes.argmax(axis=0), np.arange(len(top))] = -np.inf
    largest = tails.max(axis=0)
    total = largest + np.log(np.exp(tails - largest).sum(axis=0))
    # the log of the union is rounded up: a larger q, an earlier cell
    total += (64 + len(votes)) * UNIT * (1 + np.abs(total))
    # the last cell whose bound of q is not below the row's
    cell = np.searchsorted(-logs, -total, side="right") - 1
    return np.asarray(top * len(logs) + np.maximum(cell, 0), dtype=np.int64)


def _as_integers(votes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the counts as integers, -1 for one that is not an integer."""
    if votes.dtype.kind in "bi":
        return np.asarray(votes, dtype=np.int64)
    if votes.dtype.kind == "u":
        small: NDArray[np.int64] = np.minimum(votes, np.uint64(1 << 62)).astype(np.int64)
        return small
    if votes.dtype.kind != "f":
        return np.full(votes.shape, -1, dtype=np.int64)
    with np.errstate(all="ignore"):
        is_integer = (np.abs(votes) < 2.0**52) & (votes == np.rint(votes))
        integers: NDArray[np.int64] = np.where(is_integer, votes, -1.0).astype(np.int64)
    return integers


def _table(counts: ArrayLike, classes: int) -> NDArray[Any]:
    try:
        votes = np.asarray(counts)
    except Exception:  # whose message might quote the counts
        votes = np.zeros(0)
    if votes.ndim != 2 or votes.shape[1] != classes:
        raise DomainError(
            f"counts must be an array of shape (queries, classes), with {classes} classes as "
            "declared; give one row a query and one column a class"
        ) from None
    return votes


# -----------------------------------------------------------------------------
# How the loss of many votes moves near the data set at hand: smooth sensitivity, and a distance.
#
# An *entry* is the pair of a query's largest count and its cell (see above); a *table* holds
# a bound for each entry. A data set has one entry for each of m queries, and its total is
# ``f(D) = sum_j t(c_j)``. Exchanging a voter moves every query's entry into its *window*: the rows
# within 1 and the cells within 17 (where 8 are a unit). After d exchanges it is in the d-th window,
# d times as wide, which is d windows one after the other: both are boxes, cut off at the table's
# edges.
#
# One voter moves its vote in all queries at once, so what one exchange changes is a sum over
# queries.
#
# **Sensitivity.** Let ``w(c)`` be the most that t moves from c inside of its window. Then
# ``LS_d(D) = sum_j max w`` over the d-th window of ``c_j`` bounds how far f moves between
# neighbours of which one is within d exchanges of D; and ``LS_d(D) <= LS_{d+1}(D')``, since the
# d-th window of ``c_j`` lies in the (d+1)-th of ``c'_j``. So ``S(D) = max_d e^{-beta d} LS_d(D)``
# is at least LS_0, and ``S(D) <= e^beta S(D')`` (Nissim, Raskhodnikova and Smith 2007, sec. 3.1); d
# ends at K, where windows are the whole table. This holds in floats too: tables are whole steps of
# a power of two that add up without rounding, and the weights ``e_d`` in place of ``e^{-beta d}``
# are floats with ``e_d <= e^beta (1 - 6u) e_{d+1}``, u the rounding of a product, or equal ones.
#
# **Distance.** ``F_d(D) = sum_j max t`` over d-th windows bounds f within d exchanges, and
# ``F_d(D) <= F_{d+1}(D')``. So the least d with ``F_d > budget`` moves by at most 1; it is 0 where
# f itself is above, and K + 1 where no data set is. (own proof)


_LEAST_WEIGHT = 1e-200


@frozen(eq=False)
class Table:
    """A table of bounds in integer multiples of a step, so that sums over queries are exact.

    Parameters
    ----------
    steps
        Shape (rows, cells): bounds, rounded up, in steps.
    unit
        A step, a power of two, in nats.
    first
        The largest count that the first row stands for.
    cell_distance
        The largest distance between the cells of neighbours.
    worst
        What one query loses on any data set, in steps.
    """

    steps: Array
    unit: float
    first: int
    cell_distance: int
    worst: float


def table(values: Array, worst: float, queries: int, first: int, cell_distance: int) -> Table:
    """Return a table of bounds that are at most ``worst``, for so many queries."""
    # sums over all queries stay below 2^52 steps, which float64 adds exactly
    bits = 51 - max(1, queries).bit_length()  # queries * 2^(bits + 1) is at most 2^52
    unit = math.ldexp(1.0, max(-1000, math.frexp(worst)[1] - bits))
    most = float(np.ceil(worst / unit))
    # rounded up to a multiple of the step: bounds stay bounds
    return Table(np.ceil(np.atleast_2d(values) / unit), unit, first, cell_distance, most)


def _windows(steps: Array, cell_distance: int) -> Iterator[Array]:
    """Yield the largest step in each entry's 0th window, its first, its second and so on."""
    while True:
        yield steps
        steps = _largest(steps, cell_distance)


def rows_near(values: Array) -> Array:
    """Return the largest of each row's values and those of the rows beside it."""
    values = np.atleast_2d(values)
    rows = values.copy()
    np.maximum(rows[1:], values[:-1], out=rows[1:])
    np.maximum(rows[:-1], values[1:], out=rows[:-1])
    return rows


def _largest(steps: Array, cell_distance: int) -> Array:
    """Return the largest step in each entry's window."""
    from scipy import ndimage  # here: it takes long to import

    largest: Array = ndimage.maximum_filter1d(
        rows_near(steps), 2 * cell_distance + 1, axis=1, mode="nearest"
    )
    return largest


def _sums(table: Table, vote_cells: VoteCells, teachers: int, steps: Array) -> Iterator[float]:
    """Yield the sum over all queries of the largest step in their 0th windows, their first, ...

    The last is that of the K-th, which are the whole table. Queries without an entry count as the
    worst one.
    """
    row = np.zeros_like(vote_cells.top) if len(steps) == 1 else vote_cells.top - table.first
    for _, window in zip(range(teachers + 1), _windows(steps, table.cell_distance), strict=False):
        yield (
            float(vote_cells.times @ window[row, vote_cells.cell])
            + vote_cells.invalid * table.worst
        )


def _most(table: Table, vote_cells: VoteCells, steps: Array) -> float:
    """Return a bound of every such sum."""
    return float(steps.max()) * float(vote_cells.times.sum()) + vote_cells.invalid * table.worst


def smooth_votes(
    bounds: Table, vote_cells: VoteCells, teachers: int, beta: float
) -> tuple[float, float]:
    """Return f and its beta-smooth sensitivity; queries without an entry count as the worst."""
    steps = bounds.steps
    # the most that t rises or falls inside of the window: w of the section above
    moves = np.maximum(
        _largest(steps, bounds.cell_distance) - steps,
        _largest(-steps, bounds.cell_distance) + steps,
    )
    value = next(_sums(bounds, vote_cells, teachers, steps))
    most = _most(bounds, vote_cells, moves)
    best, weight, shrink = 0.0, 1.0, math.exp(-beta)
    for local in _sums(bounds, vote_cells, teachers, moves):
        # max over d of e_d LS_d
        best = max(best, weight * local)
        # rounded up, so that e_d <= e^beta e_{d+1} holds in floats
        weight = min(weight, max(_LEAST_WEIGHT, up(weight * shrink, 8)))
        # no later product can be larger
        if best >= weight * most:
            break
    return value * bounds.unit, best * bounds.unit


def votes_distance(bounds: Table, vote_cells: VoteCells, teachers: int, budget: float) -> int:
    """Return the least d with ``F_d > budget``; queries without an entry count as the worst."""
    if _most(bounds, vote_cells, bounds.steps) * bounds.unit <= budget:
        return teachers + 1
    sums = enumerate(_sums(bounds, vote_cells, teachers, bounds.steps))
    # the first d at which F_d exceeds the budget
    return next((d for d, most in sums if most * bounds.unit > budget), teachers + 1)


# -----------------------------------------------------------------------------
# Bounds of what one noisy vote loses, at one order, from its equivalent gap; one direction.
#
# All of them bound ``D_a(M(D) || M(D'))`` for the data set D and every neighbour D'. Arrays
# broadcast.


def normal_votes(log_q: Array, sigma: float, order: float, worst: float) -> Array:
    r"""Return a bound for normal noise at each bound of q, the chance of an unlikely answer.

    The two laws are mu-GDP, ``mu = sqrt 2 / sigma`` (own proof, in place of the Renyi bounds of
    Theorem 6 of Papernot et al. 2018):

    * the neighbour's q' is at most ``G(q) = Phi(Phi^-1(q) + mu)``, so the likeliest answer adds at
      most ``(1 - q)^a (1 - G(q))^{1-a}`` to ``E_P (P/Q)^{a-1}``;
    * the other answers are a test of mass q under P. The laws are those of one function of a
      normal variable (Dong, Roth and Su 2022, Thm 2), so by convexity their part is at most
      ``E_P (dP/dQ)^{a-1}`` of two normal laws over some test of mass q, and that is largest where
      dP/dQ is: ``e^{a (a-1) mu^2 / 2} Phi((a - 1) mu - z)``, ``z = Phi^-1(1 - q)``.

    A bound of q will do where the sum F(q) grows on (0, q]. With ``A = (1-q) / (1 - G(q))``, at
    least 1, and ``g = G'(q) = e^{mu z - mu^2/2}``,

    ``F' = A^{a-1} ((a - 1) g A - a) + (g e^{mu^2})^{a-1}``.

    For ``z >= mu/2`` both g and A are at least 1, so the bracket is at least -1, and ``F' >= 0`` if
    ``A <= g e^{mu^2}``. As q falls A does, and g grows: what holds at q holds below. Elsewhere
    nothing is proven but the worst case.

    Parameters
    ----------
    log_q
        Bounds of the log of q that fall. What is proven for one holds for all after it, which
        makes the result fall.
    sigma
        The noise's standard deviation, in votes.
    order
        Above 1.
    worst
        What every data set loses, at most.
    """
    mu = up(math.sqrt(2) / sigma, 4)
    with np.errstate(all="ignore"):
        z = _quantile(log_q)
        here, wrong = _log_side(z)
        there, wrong_there = _log_side(z - mu)
        # rounding of z - mu moves the log by its slope times that
        slope = np.where(z > mu, np.exp(-(np.maximum(z - mu, 0.0) ** 2) / 2), 1 + np.abs(z - mu))
        wrong_there = wrong_there + 4 * UNIT * slope * (np.abs(z) + mu)
        # A <= g e^{mu^2}, and g >= 1
        grows = mu * z + mu * mu / 2 - (here - there) - (wrong + wrong_there)
        valid = (z >= mu / 2) & (grows > 1e-9)
        size = order * (np.abs(here) + wrong) + (order - 1) * (np.abs(there) + wrong_there)
        exponent = order * here - (order - 1) * there
        exponent = exponent + order * (wrong + wrong_there) + 16 * UNIT * size
        first = np.expm1(exponent)
        shift = (order - 1) * mu - z
        tail = special.log_ndtr(shift)
        # log Phi moves by at most 1 + |x| times a change of x below 0
        slack = 64 * UNIT * (1 + np.abs(tail) + (np.abs(shift) + 1) * (order * mu + np.abs(z)))
        square = order * (order - 1) * mu * mu / 2
        other = np.exp(square + tail + slack + 16 * UNIT * square)
        moment = first + np.abs(first) * 8 * UNIT + up(other, 8)
        value = np.maximum(0.0, up(np.log1p(up(moment, 8)) / (order - 1), 16))
        value = np.where(valid & (value >= 0), value, worst)
    # what holds at a larger q holds at a smaller one
    return np.minimum.accumulate(np.minimum(value, worst))


def _quantile(log_q: Array) -> Array:
    """Return z with ``Phi(-z) >= q``, nearly equal; minus infinity where q is 1/2 or more."""
    log_q = np.asarray(log_q, dtype=np.float64)
    wanted = np.minimum(log_q, -0.7)
    # Newton's method on log Phi(-z), which is concave: its steps from the right overshoot nowhere
    z = np.sqrt(np.maximum(-2 * wanted, 0.0))
    for _ in range(60):
        value = special.log_ndtr(-z)
        hazard = np.exp(-z * z / 2 - value) / math.sqrt(2 * math.pi)
        z = z + np.clip((value - wanted) / hazard, -1.0, 1.0)
    for k in range(5):
        # log Phi(-z), rounded down: an error of the log is some units of its size
        proven = special.log_ndtr(-z) * (1 + 64 * UNIT) >= log_q
        if k < 4:
            z = np.where(proven, z, z - 2.0 ** (8 * k + 8) * UNIT * (1 + np.abs(z)))
    return np.where(proven, z, -np.inf)


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
        log_p, log_p_next = (
            order * np.log1p(-np.exp(log_q)),
            (order - 1) * np.log1p(-other),
        )
        first = log_p - log_p_next + 32 * UNIT * (np.abs(log_p) + np.abs(log_p_next))
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
            other = np.minimum(top + moved, teachers)
            # the two outcomes: the check passes and the answer follows, or it fails
            value = _two_outcomes(
                (top - threshold) / sigma, (other - threshold) / sigma, order, after
            )
            worst = np.maximum(worst, value)
    return worst


def _two_outcomes(
    z: NDArray[np.floating[Any]],
    other: NDArray[np.floating[Any]],
    order: float,
    after: Array | float = 0.0,
) -> Array:
    """Return the divergence of two outcomes, of chance Phi(z) and Phi(-z) against Phi(other).

    Rounded up; ``after`` is what follows the first outcome and loses so much more.
    """
    moment: Array = np.zeros(np.broadcast_shapes(np.shape(z), np.shape(other), np.shape(after)))
    for sign, loss in ((1.0, after), (-1.0, 0.0)):
        here, wrong = _log_side(sign * z)
        there, wrong_there = _log_side(sign * other)
        exponent = (order - 1) * (here - there + (wrong + wrong_there) + loss)
        exponent = up(exponent, 16)
        share = np.exp(here)
        grown = np.exp(here + exponent + wrong) - share
        # share (e^exponent - 1): the two parts sum to the moment less 1, since the shares sum to 1
        part = np.where(exponent > 1, grown, share * np.expm1(exponent))
        moment = moment + part + np.abs(part) * 4 * (wrong + 16 * UNIT)
        moment = moment + 4 * UNIT * np.abs(part) * (2 + np.abs(exponent))
    # the two parts have opposite signs, so each was moved outward by itself
    value = up(np.log1p(up(moment, 8)) / (order - 1), 16)
    return np.asarray(np.where(np.isnan(value), np.inf, value))


def two_classes(
    sigma: float,
    teachers: int,
    order: float,
    worst: float,
    *,
    both: bool = False,
    check: tuple[float, float] | None = None,
) -> Array:
    """Return what a vote between two classes loses at each gap, shape (K + 1,).

    The exact divergence ``D_a(M(D) || M(D'))``, the largest over the neighbours, and with ``both``
    that of both directions: of a gap g the
    leader wins with probability ``Phi(g / (sqrt 2 sigma))``, and of a neighbour, whose gap is
    ``g - 2``, g or ``g + 2``, likewise. Noise may be rounded to steps, and a tie may go to either:
    that moves a gap by at most a step, and the divergence grows as the two chances move apart, so
    both are moved apart by one. Gaps have the parity of K: the entry of another is that of the
    next. (Theorem 6 of Papernot et al. 2018 is 1.5 to 32 times as much for 250 teachers.)

    Parameters
    ----------
    sigma
        The noise's standard deviation, in votes.
    teachers
        K.
    order
        Above 1.
    worst
        What every data set loses, at most.
    both
        Whether the reverse divergences count too.
    check
        A threshold and the noise of a check of the largest count, which goes before (as
        `checked_votes`): the gap says what the largest count is.
    """
    gaps, spread, step = np.arange(teachers + 1.0), math.sqrt(2) * sigma, _step(sigma)
    # no gap is above K: the neighbour of a unanimous vote is below it, or the same
    beside = np.minimum(gaps + 2, teachers)
    with np.errstate(all="ignore"):
        below = (gaps + step) / spread, (gaps - 2 - step) / spread, gaps, np.abs(gaps - 2)
        above = (gaps - step) / spread, (beside + step) / spread, gaps, beside
        pairs = [below, above]
        if both:
            pairs += [(there, here, b, a) for here, there, a, b in pairs]
        values = []
        for here, there, gap, other in pairs:
            value = _two_outcomes(here, there, order)
            if check is not None:
                # the largest count of two is half of the voters and of the gap
                threshold, noise = check
                largest, next_largest = (teachers + gap) / 2, (teachers + other) / 2
                value = _two_outcomes(
                    (largest - threshold) / noise, (next_largest - threshold) / noise, order, value
                )
            values.append(value)
    exact: Array = np.minimum(np.maximum.reduce(values), worst)
    odd = np.arange(1 - teachers % 2, teachers, 2)
    exact[odd] = exact[odd + 1]
    return exact


def _log_side(z: NDArray[np.floating[Any]]) -> tuple[Array, Array]:
    """Return ``log Phi(z)``, to a relative error also where it is next to 0, and its error."""
    log = np.where(z > 0, np.log1p(-special.ndtr(-np.abs(z))), special.log_ndtr(z))
    # of its argument's rounding log Phi(z) takes 2 |log| units, but z^2 where it is next to 0
    return log, UNIT * (64 + 8 * np.maximum(z, 0.0) ** 2) * np.abs(log)


def total(parts: Array, times: Array) -> float:
    """Return ``sum times * parts``, rounded up."""
    return up(float(parts @ times), 2 * len(parts) + 8) if times.any() else 0.0


# -----------------------------------------------------------------------------
# The exact law of a vote between three classes or more, by integrals with a proven error.
#
# With ``m = n / sigma`` class k wins with probability ``P_k = int phi(y - m_k) prod_{l != k}
# Phi(y - m_l) dy``. **The trapezoid rule of step h is within a relative
# ``2 e^{C c^2/2} / (e^{2 pi c/h} - 1)`` of it, for any c > 0.** For ``|phi(x + ic)| = e^{c^2/2}
# phi(x)``, and ``|Phi(x + ic)| <= int_{-inf}^x |phi(t + ic)| dt = e^{c^2/2} Phi(x)``: so the
# integrand is analytic, and on a line at height c of either side its size integrates to at most
# ``e^{C c^2/2} P_k`` (Trefethen and Weideman 2014, Thm 5.1; own proof of the factor). At ``c = 2 pi
# / (h C)`` and ``h = sqrt(2 pi^2 / (45 C))`` that is below ``3 e^{-45}``. (own proof)
#
# The integrand is log-concave in y: beyond an end of the grid at which its terms fall by a ratio,
# they fall by no less, so that what is cut off is at most a geometric series.
#
# All classes share the grid, and a neighbour, in which a vote goes from i to j, the factors of the
# classes beside them. Noise may be rounded to steps: k wins only if its count and a step are above
# all others, and surely if its count less a step is; so each P_k has two ends. As both laws have
# mass 1, ``E_P (P/Q)^{a-1} = 1 + sum_k Q_k g(P_k / Q_k)``, ``g(x) = x^a - 1 - a (x - 1)``. Each
# term is at least 0, and an error of an end counts in proportion to ``P_k / Q_k - 1``, where in the
# sum of ``P^a Q^{1-a}`` it would count whole.


LARGEST_CLASSES_EXACT = 64
"""Of more classes a vote's exact law is not computed: each takes as many factors on each point."""

_DISTINCT = 1_000
"""Distinct histograms whose exact law is computed; those beyond have the bound by their gap."""

_MOST_POINTS = 1 << 24
"""Numbers that the law of one histogram and its neighbours may take."""

_FARTHEST = 60.0
"""Counts farther apart, in units of the noise, have the bound by their gap, which is tiny there."""


def several_classes(
    counts: Integers,
    sigma: float,
    orders: Array,
    worsts: Array,
    check: tuple[float, float] | None = None,
) -> Array | None:
    """Return what a vote on such counts loses: the largest exact divergence from a neighbour's.

    Parameters
    ----------
    counts
        Shape (classes,), three or more, at least 0.
    sigma
        The noise's standard deviation, in votes.
    orders, worsts
        Above 1, and what every data set loses there; shape (n,).
    check
        A threshold and the noise of a check of the largest count, which goes before.

    Returns
    -------
    numpy.ndarray or None
        Bounds of ``D_a(M(D) || M(D'))``, rounded up; None where the grid does not prove one.
    """
    n = np.sort(counts)[::-1]
    classes, top = len(n), int(n[0])
    # a common shift of all counts leaves the law as it is
    means = (n - top) / sigma
    if -means[-1] > _FARTHEST:
        return None
    step = math.sqrt(2 * math.pi**2 / (45 * classes))
    y = np.arange(math.floor((means[-1] - 12) / step), math.ceil(13 / step) + 1) * step
    # of each class with one vote less, with all, and with one more
    moved = means[:, None] + np.array([-1.0, 0.0, 1.0]) / sigma
    # log phi but for its constant, of the winner
    wins = -((y - moved[:, :, None]) ** 2) / 2
    constant = math.log(step) - math.log(2 * math.pi) / 2
    # classes of equal counts are alike: the first of them gives and gets a vote, also to its like
    first = np.flatnonzero(np.append(True, n[1:] != n[:-1]))
    pairs = [(i, j) for i in first if n[i] > 0 for j in first if i != j]
    pairs += [(i, i + 1) for i in first if n[i] > 0 and n[i] == np.append(n, -1)[i + 1]]
    if not 0 < len(pairs) * classes * len(y) <= _MOST_POINTS:
        return None
    less, more = np.array(pairs).T
    every = np.arange(len(pairs))
    ends = []
    for tie in (-_step(sigma), _step(sigma)):
        with np.errstate(all="ignore"):
            loses = special.log_ndtr(y + (tie / sigma) - moved[:, :, None])
        # of the counts at hand, and of each neighbour: shape (neighbours, classes, points)
        others = np.repeat(loses[None, :, 1], len(pairs) + 1, axis=0)
        others[every + 1, less], others[every + 1, more] = loses[less, 0], loses[more, 2]
        winner = np.repeat(wins[None, :, 1], len(pairs) + 1, axis=0)
        winner[every + 1, less], winner[every + 1, more] = wins[less, 0], wins[more, 2]
        ends.append(_winners(winner + others.sum(axis=1, keepdims=True) - others, constant))
    low, high = ends
    if np.isnan(low).any() or np.isnan(high).any():
        return None
    # rounding: 64 units of each log's size, and of its argument
    wrong = UNIT * (classes + 2) * (64 * (np.abs(low) + 60) + 2e4)
    low, high = low - wrong, np.minimum(high + wrong, 0.0)
    after = _divergences((low[0], high[0]), (low[1:], high[1:]), orders)
    if check is not None:
        threshold, noise = check
        # the largest count of each neighbour: one less only where the only leader lost a vote
        leads = np.where((less == 0) & (n[1] < top), top - 1, top)
        leads = np.maximum(leads, n[more] + 1)
        here, there = (top - threshold) / noise, (leads - threshold) / noise
        after = np.array(
            [
                _two_outcomes(np.full(len(pairs), here), there, order, parts)
                for order, parts in zip(orders.tolist(), after, strict=True)
            ]
        )
    return np.asarray(np.minimum(after.max(axis=1), worsts))


def _winners(logs: Array, constant: float) -> Array:
    """Return the log of the sum over the last axis; NaN where too much may be cut off."""
    largest = logs.max(axis=-1)
    total = largest + np.log(np.exp(logs - largest[..., None]).sum(axis=-1)) + constant
    # at both ends terms are below e^-50 of the largest, and fall by half or more
    ends = np.maximum(logs[..., 0], logs[..., -1]) - largest < -50
    ends &= logs[..., 0] - logs[..., 1] < -0.7
    ends &= logs[..., -1] - logs[..., -2] < -0.7
    return np.where(ends, total, np.nan)


def _divergences(p: tuple[Array, Array], q: tuple[Array, Array], orders: Array) -> Array:
    """Return the largest divergences of laws whose logs lie between ends: (orders, neighbours).

    ``Q g(P/Q)`` rises in P where ``P > Q`` and falls in Q, and the other way round below: so it is
    largest at the high P and the low Q, or at the low P and the high Q.
    """
    terms = np.zeros((len(orders), *q[0].shape))
    a = orders[:, None, None]
    for log_p, log_q in ((p[1], q[0]), (p[0], q[1])):
        u = (log_p - log_q)[None]
        grown = a * u
        with np.errstate(over="ignore", invalid="ignore"):
            power = np.expm1(grown)
            term = power - a * np.expm1(u)
            # what the rounding of the parts may take from it
            term = term + 16 * UNIT * (1 + np.abs(grown)) * (
                np.abs(power) + a * np.abs(np.expm1(u))
            )
            # beyond the floats: the power by its logarithm
            large = np.exp(grown + log_q) * (1 + 64 * UNIT * (1 + np.abs(grown) + np.abs(log_q)))
            large = large + (a - 1) * np.exp(log_q)
            term = np.where(grown < 30, np.exp(log_q) * term, large)
        terms = np.maximum(terms, np.where(np.isnan(term), np.inf, term))
    moment = up(terms.sum(axis=-1) * (1 + 1e-12), 8)
    return np.asarray(up(np.log1p(moment) / (orders[:, None] - 1), 16))


# -----------------------------------------------------------------------------
# What noisy votes of teachers lose: at worst, on the votes at hand, and near them.
#
# K *teachers* vote for one of C *classes* in each of m *queries*, which are fixed beforehand:
# *counts* have shape (m, C), and each row sums to K. Neighbouring data sets differ in one teacher,
# whose vote may move to another class in every query. A *vote* is how one query is answered:
#
# ===================  ======================================================================
# `GaussianVotes`      the class of the largest of counts with normal noise (GNMax)
# `ConfidentVotes`     that, or ``none`` where the largest count fails a noisy check
# `LaplaceVotes`       the class of the largest of counts with Laplace noise (LNMax)
# ===================  ======================================================================
#
# Of counts a vote gives four numbers, all for the m queries together, and all of them private:
#
# ``curve(counts, orders)``
#     bounds of ``D_a(M(D) || M(D'))`` for D at hand and every neighbour D': one direction.
# ``both(counts, orders)``
#     bounds of both directions. The reverse one is bounded by the curve at D', of which D is a
#     neighbour; so the largest value in the window of D bounds both (own proof).
# ``smooth(counts, order, beta)``
#     the two-sided bound f at one order, and a beta-smooth sensitivity of it.
# ``distance(counts, order, budget)``
#     how many teachers must be exchanged, at least, to bring f above a budget.
#
# Callers keep them private: no error tells of counts, and rows that are no histogram of K votes
# count as the worst case. Curves at one order add up over queries, since their noises are
# independent (van Erven and Harremoes 2014, Thm 28), and are nowhere above the worst case's.
#
# References: Papernot et al. 2017 (LNMax); Papernot et al. 2018 (GNMax, Confident-GNMax, Thm 6).


Integers = NDArray[np.int64]

LARGEST_CLASSES = 1_000_000
LARGEST_TEACHERS = 20_000
LARGEST_TEACHERS_CHECKED = 1_000
"""The limit of `ConfidentVotes`, whose tables have a row for each largest count."""

_ROWS = 64
"""Rows of a table that are computed at once."""


def votes_curve(counts: Secret[ArrayLike], votes: Votes, orders: Array) -> Secret[Array]:
    """Return what counts lose together: ``votes.curve`` of private counts, itself private.

    Parameters
    ----------
    counts
        Shape (queries, classes).
    votes
        How each query is answered.
    orders
        Above 1, shape (n,).

    Examples
    --------
    >>> votes = GaussianVotes(sigma=40.0, classes=3, teachers=250)
    >>> votes_curve(Secret([[240, 5, 5]] * 1000), votes, np.array([4.0, 8.0]))
    <private>
    """
    if not isinstance(counts, Secret):
        raise DomainError("counts are private data, so they come as Secret(array)")
    return counts.map(lambda votes_at_hand: votes.curve(votes_at_hand, orders))


class Votes:
    """Base of the three: what follows from a table of one query's bounds."""

    classes: int
    teachers: int

    def worst(self) -> PrivacyLoss:
        """Return what one query costs on every data set."""
        raise NotImplementedError

    def curve(self, counts: ArrayLike, orders: ArrayLike) -> Array:
        """Return bounds of ``D_a(M(D) || M(D'))`` of all queries, at orders of shape (n,)."""
        return self._summed(counts, orders, both=False)

    def _tail(self) -> Tail:
        raise NotImplementedError

    def _cells_per_vote(self) -> int:
        """Return how many cells of the gap there are for each vote."""
        return CELLS

    def _one_way(self, cells: Array, order: float, worst: float) -> Array:
        """Return bounds of one query at each cell, which fall; ``cells`` has the logs of q."""
        raise NotImplementedError

    def _exact(self, order: float, worst: float, *, both: bool) -> Array | None:
        """Return what one query loses at each integer gap, check included; None if unknown."""
        return None

    def _checked(self, after: Array, top: Integers, order: float, worst: float) -> Array:
        """Return the bounds of a query with what goes before its answer."""
        return after

    def _summed(self, counts: ArrayLike, orders: ArrayLike, *, both: bool) -> Array:
        cells, logs = self._vote_cells(counts)
        wanted = _orders(orders)
        worsts = renyi_divergence(self.worst(), wanted)
        sums = []
        for order, worst in zip(wanted.tolist(), worsts.tolist(), strict=True):
            # for both directions also as seen from every neighbour: its largest count is at most 1
            # away
            near = (-1, 0, 1) if both else (0,)
            parts = [
                self._bounds(
                    logs,
                    np.minimum(cells.top + moved, self.teachers),
                    cells.cell,
                    order,
                    worst,
                    both,
                )
                for moved in near
            ]
            # rows that are not a histogram of votes cost the worst case
            each = np.append(np.maximum.reduce(parts), worst)
            sums.append(total(each, np.append(cells.times, cells.invalid)))
        return np.array(sums)

    def _vote_cells(self, counts: ArrayLike) -> tuple[VoteCells, Array]:
        tail = self._tail()
        logs = grid(tail, self.classes, self.teachers, self._cells_per_vote())
        return vote_cells(counts, logs, tail, self.classes, self.teachers), logs

    def _bounds(
        self, logs: Array, top: Integers, cell: Integers, order: float, worst: float, shifted: bool
    ) -> Array:
        """Return a query's one-sided bounds at entries, which broadcast.

        With ``shifted`` that of the cells that a neighbour's may be in, at the same largest count.
        """
        exact = self._exact(order, worst, both=shifted)
        if exact is not None:
            # a gap is an integer here, in the cell that begins with it; both directions between a
            # gap and its neighbours are in its own entry
            gap = cell // self._cells_per_vote()
            return np.asarray(
                np.broadcast_to(exact[gap], np.broadcast_shapes(gap.shape, top.shape))
            )
        one = self._one_way(logs, order, worst)
        # counts whose bound of q is above that of the first cell are put there too: it has the
        # worst case
        one[0] = worst
        # a neighbour's cell is at most `cell_distance` before this one, and bounds fall
        after = one[np.maximum(cell - (cell_distance(self._cells_per_vote()) if shifted else 0), 0)]
        return np.asarray(np.minimum(self._checked(after, top, order, worst), worst))


class _NormalVotes(Votes):
    """What both kinds with normal noise share: bounds of both directions."""

    sigma: float

    def curve(self, counts: ArrayLike, orders: ArrayLike) -> Array:
        """Return bounds of ``D_a(M(D) || M(D'))`` of all queries, at orders of shape (n,).

        Exact but for the rounding of noise: of two classes, and of the thousand commonest
        histograms of up to 64.
        """
        if not 3 <= self.classes <= LARGEST_CLASSES_EXACT or not rounding_is_negligible(
            self.sigma, self.classes, self.teachers
        ):
            return super().curve(counts, orders)
        wanted = _orders(orders)
        worsts = renyi_divergence(self.worst(), wanted)
        votes = _as_integers(_table(counts, self.classes))
        valid = (votes.min(axis=1, initial=0) >= 0) & (
            votes.max(axis=1, initial=0) <= self.teachers
        )
        valid &= np.where(valid[:, None], votes, 0).sum(axis=1) == self.teachers
        rows, at, times = np.unique(
            np.sort(np.where(valid[:, None], votes, 0), axis=1),
            axis=0,
            return_inverse=True,
            return_counts=True,
        )
        exact, done = np.zeros(len(wanted)), np.zeros(len(rows), dtype=bool)
        for k in np.argsort(-times, kind="stable")[:_DISTINCT]:
            # an invalid row has become one of zeros, which has no neighbour
            with np.errstate(all="ignore"):  # a warning would tell of the counts
                law = several_classes(rows[k], self.sigma, wanted, worsts, self._check())
            if law is not None:
                done[k] = True
                exact = up(exact + up(law * float(times[k]), 1), 1)
        if done.all():
            return exact
        rest = super().curve(_table(counts, self.classes)[~done[at.reshape(-1)]], wanted)
        return np.asarray(up(exact + rest, 1))

    def both(self, counts: ArrayLike, orders: ArrayLike) -> Array:
        """Return bounds of both directions, of all queries, at orders of shape (n,)."""
        return self._summed(counts, orders, both=True)

    def smooth(self, counts: ArrayLike, order: float, beta: float) -> tuple[float, float]:
        """Return the bound of both directions at one order, and its beta-smooth sensitivity."""
        cells, bounds = self._table(counts, order)
        return smooth_votes(bounds, cells, self.teachers, nonnegative("beta", beta))

    def distance(self, counts: ArrayLike, order: float, budget: float) -> int:
        """Return how many exchanges bring the bound of both directions above ``budget``, at least.

        An integer that moves by at most 1 between neighbours, and never more than the true
        one: 0 where the bound is above, K + 1 where no data set's is.
        """
        cells, bounds = self._table(counts, order)
        return votes_distance(bounds, cells, self.teachers, nonnegative("budget", budget))

    def _table(self, counts: ArrayLike, order: float) -> tuple[VoteCells, Table]:
        at, logs = self._vote_cells(counts)
        wanted = _orders([order])
        worst = float(renyi_divergence(self.worst(), wanted)[0])
        first = self._first()
        tops = np.arange(first, self.teachers + 1, dtype=np.int64)[:, None]
        cells = np.arange(len(logs), dtype=np.int64)[None, :]
        blocks = [
            self._bounds(logs, tops[start : start + _ROWS], cells, float(wanted[0]), worst, True)
            for start in range(0, len(tops), _ROWS)
        ]
        bounds = rows_near(np.concatenate(blocks))
        queries = int(at.times.sum()) + at.invalid
        return at, table(bounds, worst, queries, first, cell_distance(self._cells_per_vote()))

    def _first(self) -> int:
        """Return the least largest count for which the table has a row."""
        return self.teachers

    def _tail(self) -> Tail:
        return normal_tail(self.sigma)

    def _exact(self, order: float, worst: float, *, both: bool) -> Array | None:
        if self.classes != 2 or not rounding_is_negligible(self.sigma, 2, self.teachers):
            return None
        check = self._check()
        return two_classes(self.sigma, self.teachers, order, worst, both=both, check=check)

    def _check(self) -> tuple[float, float] | None:
        """Return the threshold and the noise of a check that goes before; None for none."""
        return None

    def _one_way(self, cells: Array, order: float, worst: float) -> Array:
        if not rounding_is_negligible(self.sigma, self.classes, self.teachers):
            return np.full(cells.shape, worst)
        return normal_votes(cells, self.sigma, order, worst)


def _orders(orders: ArrayLike) -> Array:
    wanted = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if wanted.ndim != 1 or not np.all((wanted > 1) & (wanted <= 1e9)):
        raise DomainError(f"orders must be numbers above 1 and at most 1e9, got {orders!r}")
    return wanted


def _sigma(value: float) -> float:
    return _scale("sigma", value)


def _check(value: float) -> float:
    return _scale("sigma_check", value)


def _width(value: float) -> float:
    return _scale("scale", value)


def _scale(what: str, value: float) -> float:
    number = positive(what, value)
    if not 1e-9 <= number <= 1e12:
        raise DomainError(f"{what} must be between 1e-9 and 1e12 votes, got {value!r}")
    return number


def _threshold(value: float) -> float:
    sign = -1 if isinstance(value, int | float) and value < 0 else 1
    number = sign * nonnegative("threshold", sign * value)
    if abs(number) > 1e12:
        raise DomainError(f"threshold must be at most 1e12 votes either way, got {value!r}")
    return number


def _classes(value: int) -> int:
    return _at_most("classes", integer("classes", value, least=2), LARGEST_CLASSES)


def _teachers(value: int) -> int:
    return _at_most("teachers", integer("teachers", value), LARGEST_TEACHERS)


def _teachers_checked(value: int) -> int:
    return _at_most("teachers", integer("teachers", value), LARGEST_TEACHERS_CHECKED)


def _at_most(what: str, value: int, largest: int) -> int:
    if value > largest:
        raise DomainError(f"{what} must be at most {largest}, got {value}")
    return value


@frozen
class GaussianVotes(_NormalVotes):
    """``argmax_i (n_i + N(0, sigma^2))``: a vote moves sqrt 2 in l2, so ``a / sigma^2`` at worst.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in votes.
    classes, teachers
        Their numbers, C and K.

    References
    ----------
    Papernot et al. 2018, Prop. 7; the bound is `normal_votes`, of two classes `two_classes`.

    Examples
    --------
    >>> votes = GaussianVotes(sigma=40.0, classes=3, teachers=250)
    >>> votes.curve([[240, 5, 5]], [4.0]).round(7), votes.both([[240, 5, 5]], [4.0]).round(7)
    (array([1.1e-06]), array([1.33e-05]))
    """

    sigma: float = field(converter=_sigma)
    classes: int = field(converter=_classes)
    teachers: int = field(converter=_teachers)

    def worst(self) -> GaussianBound:
        """Return Gaussian DP with ``mu = sqrt 2 / sigma``."""
        return GaussianBound(up(math.sqrt(2) / self.sigma, 4))


@frozen
class ConfidentVotes(_NormalVotes):
    """``none`` unless ``max n + N(0, sigma_check^2) >= threshold``; else as `GaussianVotes`.

    At worst ``a / (2 sigma_check^2) + a / sigma^2``.

    Parameters
    ----------
    threshold
        T, in votes.
    sigma_check, sigma
        The standard deviations of the check's noise and of the answer's, in votes.
    classes, teachers
        Their numbers, C and K.

    References
    ----------
    Papernot et al. 2018 (Confident-GNMax); the bound is `checked_votes`, of two classes
    `two_classes`.

    Examples
    --------
    >>> votes = ConfidentVotes(200.0, sigma_check=150.0, sigma=40.0, classes=3, teachers=250)
    >>> votes.curve([[240, 5, 5]], [4.0]).round(7), votes.worst().renyi(np.array([4.0])).round(7)
    (array([5.59e-05]), array([0.0025889]))
    """

    threshold: float = field(converter=_threshold)
    sigma_check: float = field(converter=_check)
    sigma: float = field(converter=_sigma)
    classes: int = field(converter=_classes)
    teachers: int = field(converter=_teachers_checked)

    def worst(self) -> GaussianBound:
        """Return Gaussian DP with ``mu^2 = 1 / sigma_check^2 + 2 / sigma^2``, the composition."""
        return GaussianBound(up(math.hypot(1 / self.sigma_check, math.sqrt(2) / self.sigma), 8))

    def _check(self) -> tuple[float, float] | None:
        return self.threshold, self.sigma_check

    def _checked(self, after: Array, top: Integers, order: float, worst: float) -> Array:
        return checked_votes(after, top, self.teachers, self.threshold, self.sigma_check, order)

    def _cells_per_vote(self) -> int:
        return next(n for n in (CELLS, 4, 2, 1) if n * self.teachers <= 4_000 or n == 1)

    def _first(self) -> int:
        return -(-self.teachers // self.classes)


@frozen
class LaplaceVotes(Votes):
    """``argmax_i (n_i + Lap(scale))``: at worst pure, with ``epsilon = 2 / scale``.

    Parameters
    ----------
    scale
        Of the noise with density ``e^{-|x|/scale} / (2 scale)``, in votes.
    classes, teachers
        Their numbers, C and K.

    References
    ----------
    Papernot et al. 2017, Thm 3; the proof is at `laplace_votes`.

    Examples
    --------
    >>> votes = LaplaceVotes(scale=20.0, classes=3, teachers=250)
    >>> votes.curve([[240, 5, 5]], [4.0]).round(7)
    array([1.2e-05])
    """

    scale: float = field(converter=_width)
    classes: int = field(converter=_classes)
    teachers: int = field(converter=_teachers)

    def worst(self) -> LaplaceNoisyMax:
        """Return the pure loss."""
        return LaplaceNoisyMax(ceiling(2 / Fraction(self.scale)))

    def _tail(self) -> Tail:
        return laplace_tail(self.scale)

    def _one_way(self, cells: Array, order: float, worst: float) -> Array:
        return laplace_votes(cells, self.worst().epsilon, order, worst)
