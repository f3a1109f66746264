"""What noisy votes of teachers lose: at worst, on the votes at hand, and near them.

K *teachers* vote for one of C *classes* in each of m *queries*, which are fixed beforehand:
*counts* have shape (m, C), and each row sums to K. Neighbouring data sets differ in one teacher,
whose vote may move to another class in every query. A *vote* is how one query is answered:

===================  ======================================================================
`GaussianVotes`      the class of the largest of counts with normal noise (GNMax)
`ConfidentVotes`     that, or ``none`` where the largest count fails a noisy check
`LaplaceVotes`       the class of the largest of counts with Laplace noise (LNMax)
===================  ======================================================================

Of counts a vote gives four numbers, all for the m queries together, and all of them private:

``curve(counts, orders)``
    bounds of ``D_a(M(D) || M(D'))`` for D at hand and every neighbour D': one direction.
``both(counts, orders)``
    bounds of both directions. The reverse one is bounded by the curve at D', of which D is a
    neighbour; so the largest value in the window of D (`vote_windows`) bounds both (own proof).
``smooth(counts, order, beta)``
    the two-sided bound f at one order, and a beta-smooth sensitivity of it.
``distance(counts, order, budget)``
    how many teachers must be exchanged, at least, to bring f above a budget.

Callers keep them private: no error tells of counts, and rows that are no histogram of K votes count
as the worst case. Curves at one order add up over queries, since their noises are independent
(van Erven and Harremoes 2014, Thm 28), and are nowhere above the worst case's.

References: Papernot et al. 2017 (LNMax); Papernot et al. 2018 (GNMax, Confident-GNMax, Thm 6).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from accountants.errors import DomainError, nonnegative, positive, whole
from accountants.loss import PrivacyLoss
from accountants.losses.given_gaussian import GaussianBound
from accountants.losses.noisy_max import LaplaceNoisyMax
from accountants.losses.vote_curves import checked_votes, laplace_votes, normal_votes, total
from accountants.losses.vote_gaps import (
    CELLS,
    Places,
    Tail,
    grid,
    laplace_tail,
    normal_tail,
    places,
    reach,
    steady,
)
from accountants.losses.vote_windows import Table, rows_near, smooth_votes, table, votes_distance
from accountants.notions.renyi import renyi_divergence
from accountants.rounding import Array, ceiling, up
from accountants.secret import Secret

Whole = NDArray[np.int64]

LARGEST_CLASSES = 1_000_000
LARGEST_TEACHERS = 20_000
LARGEST_TEACHERS_CHECKED = 1_000
"""Of `ConfidentVotes`, whose tables have a row for each largest count."""

_ROWS = 64
"""So many rows of a table are computed at once."""


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
    return counts.map(lambda known: votes.curve(known, orders))


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

    def _fine(self) -> int:
        """Return how many cells are a unit of the gap."""
        return CELLS

    def _one_way(self, cells: Array, order: float, worst: float) -> Array:
        """Return bounds of one query at each cell, which fall; ``cells`` has the logs of q."""
        raise NotImplementedError

    def _checked(self, after: Array, top: Whole, order: float, worst: float) -> Array:
        """Return the bounds of a query with what goes before its answer."""
        return after

    def _summed(self, counts: ArrayLike, orders: ArrayLike, *, both: bool) -> Array:
        at, logs = self._places(counts)
        wanted = _orders(orders)
        worsts = renyi_divergence(self.worst(), wanted)
        sums = []
        for order, worst in zip(wanted.tolist(), worsts.tolist(), strict=True):
            # for both directions also as seen from every neighbour: its largest count is at most 1
            # away
            near = (-1, 0, 1) if both else (0,)
            parts = [
                self._bounds(
                    logs, np.minimum(at.top + moved, self.teachers), at.cell, order, worst, both
                )
                for moved in near
            ]
            # rows that are not a histogram of votes cost the worst case
            each = np.append(np.maximum.reduce(parts), worst)
            sums.append(total(each, np.append(at.times, at.wrong)))
        return np.array(sums)

    def _places(self, counts: ArrayLike) -> tuple[Places, Array]:
        tail = self._tail()
        logs = grid(tail, self.classes, self.teachers, self._fine())
        return places(counts, logs, tail, self.classes, self.teachers), logs

    def _bounds(
        self, logs: Array, top: Whole, cell: Whole, order: float, worst: float, shifted: bool
    ) -> Array:
        """Return a query's one-sided bounds at places, which broadcast.

        With ``shifted`` that of the cells that a neighbour's may be in, at the same largest count.
        """
        one = self._one_way(logs, order, worst)
        # counts whose bound of q is above that of the first cell are put there too: it has the
        # worst case
        one[0] = worst
        # a neighbour's cell is at most `reach` before this one, and bounds fall
        after = one[np.maximum(cell - (reach(self._fine()) if shifted else 0), 0)]
        return np.asarray(np.minimum(self._checked(after, top, order, worst), worst))


class _NormalVotes(Votes):
    """What both kinds with normal noise share: bounds of both directions."""

    sigma: float

    def both(self, counts: ArrayLike, orders: ArrayLike) -> Array:
        """Return bounds of both directions, of all queries, at orders of shape (n,)."""
        return self._summed(counts, orders, both=True)

    def smooth(self, counts: ArrayLike, order: float, beta: float) -> tuple[float, float]:
        """Return the bound of both directions at one order, and its beta-smooth sensitivity."""
        at, known = self._table(counts, order)
        return smooth_votes(known, at, self.teachers, nonnegative("beta", beta))

    def distance(self, counts: ArrayLike, order: float, budget: float) -> int:
        """Return how many exchanges bring the bound of both directions above ``budget``, at least.

        An integer that moves by at most 1 between neighbours, and never more than the true
        one: 0 where the bound is above, K + 1 where no data set's is.
        """
        at, known = self._table(counts, order)
        return votes_distance(known, at, self.teachers, nonnegative("budget", budget))

    def _table(self, counts: ArrayLike, order: float) -> tuple[Places, Table]:
        at, logs = self._places(counts)
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
        queries = int(at.times.sum()) + at.wrong
        return at, table(bounds, worst, queries, first, reach(self._fine()))

    def _first(self) -> int:
        """Return the least largest count for which the table has a row."""
        return self.teachers

    def _tail(self) -> Tail:
        return normal_tail(self.sigma)

    def _one_way(self, cells: Array, order: float, worst: float) -> Array:
        if not steady(self.sigma, self.classes, self.teachers):
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
    return _at_most("classes", whole("classes", value, least=2), LARGEST_CLASSES)


def _teachers(value: int) -> int:
    return _at_most("teachers", whole("teachers", value), LARGEST_TEACHERS)


def _teachers_checked(value: int) -> int:
    return _at_most("teachers", whole("teachers", value), LARGEST_TEACHERS_CHECKED)


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
    Papernot et al. 2018, Prop. 7 and Thm 6; the proof is at `VotesCurve`.

    Examples
    --------
    >>> votes = GaussianVotes(sigma=40.0, classes=3, teachers=250)
    >>> votes.curve([[240, 5, 5]], [4.0]).round(7), votes.both([[240, 5, 5]], [4.0]).round(7)
    (array([1.24e-05]), array([1.45e-05]))
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
    Papernot et al. 2018 (Confident-GNMax); the bound is `checked_votes`.

    Examples
    --------
    >>> votes = ConfidentVotes(200.0, sigma_check=150.0, sigma=40.0, classes=3, teachers=250)
    >>> votes.curve([[240, 5, 5]], [4.0]).round(7), votes.worst().renyi(np.array([4.0])).round(7)
    (array([6.27e-05]), array([0.0025889]))
    """

    threshold: float = field(converter=_threshold)
    sigma_check: float = field(converter=_check)
    sigma: float = field(converter=_sigma)
    classes: int = field(converter=_classes)
    teachers: int = field(converter=_teachers_checked)

    def worst(self) -> GaussianBound:
        """Return Gaussian DP with ``mu^2 = 1 / sigma_check^2 + 2 / sigma^2``, the composition."""
        return GaussianBound(up(math.hypot(1 / self.sigma_check, math.sqrt(2) / self.sigma), 8))

    def _checked(self, after: Array, top: Whole, order: float, worst: float) -> Array:
        return checked_votes(after, top, self.teachers, self.threshold, self.sigma_check, order)

    def _fine(self) -> int:
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
