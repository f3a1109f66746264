"""Pairs whose privacy loss takes finitely many values, and how guarantees and laws become one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
from attrs import evolve, field, frozen

from accountants import special
from accountants.errors import DomainError, nonnegative, probability
from accountants.numerics import (
    UNIT,
    Array,
    Complex,
    ceiling,
    down,
    expm1,
    least_square_of_sine,
    log1p,
    up,
)
from accountants.pair import Pair, Symmetric, decay_by_values

_BATCH = 2**18
"""So many exponentials are computed at once."""

_VALUED = 512
"""Of more atoms than this, moments are not asked for to see how they fall."""

_HEAVIEST = 10
"""The phases of so many atoms of a pair are followed."""


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(values.tolist() if isinstance(values, np.ndarray) else map(float, values))


@frozen(slots=False, cache_hash=True)
class FinitePair(Pair):
    """Finitely many losses, with their masses under P and under Q.

    Parameters
    ----------
    losses
        Rising, finite.
    p, q
        The masses, non-negative, as many; each sums to 1 but for rounding, and ``p`` is
        ``e^loss q`` but for rounding, within a relative ``error``.
    error
        Relative error of each mass.
    tight
        Whether some mechanism has just this pair, so that lower bounds follow from it.
    multiple
        d where every loss is an integer multiple of d.
    loss_error
        Error of each loss, over the largest of all, at most a few units but for integrals' losses.

    Examples
    --------
    An answer that is told as it is with probability 3/4, and turned round with 1/4:

    >>> import math
    >>> pair = FinitePair([-math.log(3), math.log(3)], p=[0.25, 0.75], q=[0.75, 0.25])
    >>> round(pair.top(), 3)  # log(3)
    1.099
    >>> low, high = pair.profile(np.array([0.5]))
    >>> round(float(high[0]), 6)
    0.33782
    """

    losses: tuple[float, ...] = field(converter=_floats)
    p: tuple[float, ...] = field(converter=_floats)
    q: tuple[float, ...] = field(converter=_floats)
    error: float = 8 * UNIT
    tight: bool = True
    multiple: float | None = None
    loss_error: float = 0.0

    def __attrs_post_init__(self) -> None:
        losses, p, q = self._arrays
        rising = np.all(np.diff(losses) > 0) and np.all(np.isfinite(losses))
        same = len(losses) == len(p) == len(q) > 0
        if not (same and rising and np.all(p >= 0) and np.all(q >= 0)):
            raise DomainError(
                "FinitePair needs rising finite losses with a non-negative mass under P and Q "
                f"for each, got {len(self.losses)} losses, {len(self.p)} and {len(self.q)} masses"
            )

    @cached_property
    def _arrays(self) -> tuple[Array, Array, Array]:
        return np.array(self.losses), np.array(self.p), np.array(self.q)

    @cached_property
    def _tails(self) -> tuple[Array, Array, Array, Array]:
        """Return the masses of all atoms from i on (P, Q), and of all before i (P, Q)."""
        _, p, q = self._arrays
        zero = np.zeros(1)
        above = [np.concatenate([np.cumsum(m[::-1])[::-1], zero]) for m in (p, q)]
        below = [np.concatenate([zero, np.cumsum(m)]) for m in (p, q)]
        return above[0], above[1], below[0], below[1]

    def tail_error(self) -> float:
        """Return the masses' own error and that of their sums."""
        return self.error + (len(self.losses) + 2) * UNIT

    def is_tight(self) -> bool:
        """Return ``tight``."""
        return self.tight

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the sums over the atoms above."""
        at = np.searchsorted(self._arrays[0], loss, side="right")
        p, q, _, _ = self._tails
        return p[at], q[at]

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the sums over the atoms below."""
        at = np.searchsorted(self._arrays[0], loss, side="left")
        _, _, p, q = self._tails
        return p[at], q[at]

    def top(self) -> float:
        """Return the largest loss."""
        largest = self.losses[-1]
        return up(largest, self.loss_error / UNIT) if self.loss_error else largest

    def bottom(self) -> float:
        """Return the smallest loss."""
        smallest = self.losses[0]
        return down(smallest, self.loss_error / UNIT) if self.loss_error else smallest

    def spacing(self) -> float | None:
        """Return ``multiple``."""
        return self.multiple

    def reversed(self) -> FinitePair:
        """Return the pair of minus the losses, with the masses exchanged."""
        return self._turned

    @cached_property
    def _turned(self) -> FinitePair:
        losses, p, q = (each[::-1] for each in self._arrays)
        return evolve(self, losses=-losses, p=q, q=p)

    @classmethod
    def decays_between(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, starts: Array, stops: Array
    ) -> Array:
        """Return the sum by the phases of the heaviest atoms.

        Under the tilted law ``|E e^{itL}|^2 = 1 - 4 sum_{j<k} w_j w_k sin^2(t (l_j - l_k) / 2)``:
        a sum of some of the terms bounds it from above.
        """
        total = np.zeros(len(starts))
        for pair, times in spends:
            if isinstance(pair, FinitePair):
                one = pair._decay_between(tilt, starts, stops)
                if _HEAVIEST < len(pair.losses) <= _VALUED:
                    one = np.minimum(one, decay_by_values(pair, tilt, starts, stops))
                total += times * one
        return total * (1 - 1e-12)

    def _decay_between(self, tilt: float, starts: Array, stops: Array) -> Array:
        losses, p, _ = self._arrays
        with np.errstate(divide="ignore"):
            logs = np.log(p) + tilt * losses
        shares = np.exp(logs - logs.max())
        shares = shares / shares.sum()
        largest = float(np.abs(losses).max())
        # relative error of a product of two shares: of masses, exponents and sums
        wrong = 4 * (self.error + abs(tilt) * largest * (self.loss_error + 4 * UNIT))
        wrong += 4 * (len(losses) + 64) * UNIT
        apart = np.zeros(len(starts))
        # of each phase, from both losses
        slip = stops * largest * (self.loss_error + 4 * UNIT)
        for j, k in combinations(np.argsort(shares)[-_HEAVIEST:].tolist(), 2):
            half = abs(losses[j] - losses[k]) / 2
            least = least_square_of_sine(np.maximum(starts * half - slip, 0), stops * half + slip)
            apart += 4 * shares[j] * shares[k] * least
        apart = np.clip(apart * max(0.0, 1 - wrong), 0.0, 1 - 1e-12)
        return np.asarray(np.log1p(-apart) / 2 * (1 - 8 * UNIT), dtype=np.float64)

    @classmethod
    def swing(cls, spends: Sequence[tuple[Pair, int]]) -> float:
        """Return half of the largest distance of two losses."""
        return max((pair.top() - pair.bottom()) / 2 for pair, _ in spends)

    @classmethod
    def units(cls, spends: Sequence[tuple[Pair, int]], reach: float) -> int:
        """Return a quarter of the number of atoms: each is one exponential and little more."""
        atoms = sum(len(pair.losses) for pair, _ in spends if isinstance(pair, FinitePair))
        return len(spends) + atoms // 4

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log sum p e^{z loss}``: near 0 of ``1 + sum p (e^{z loss} - 1)``."""
        points = np.asarray(z, dtype=np.complex128).ravel()
        # losses rise, so the largest exponent is at an end
        ends = points.real[:, None] * np.array([self.losses[0], self.losses[-1]])
        shift = np.maximum(ends.max(axis=1), 0.0)
        value, error = np.zeros(len(points), dtype=np.complex128), np.zeros(len(points))
        step = max(1, _BATCH // len(self.losses))
        for start in range(0, len(points), step):
            small = shift[start : start + step] <= 1
            for here, way in ((small, self._near), (~small, self._far)):
                some = start + np.flatnonzero(here)
                if len(some):
                    with np.errstate(over="ignore", invalid="ignore"):
                        value[some], error[some] = way(points[some], shift[some])
        return value.reshape(np.shape(z)), error.reshape(np.shape(z))

    def _near(self, points: Complex, _: Array) -> tuple[Complex, Array]:
        losses, p, _ = self._arrays
        largest = np.abs(points) * np.abs(losses).max()
        # real where all points are: a quarter of the work
        terms: Array | Complex = np.expm1(points.real[:, None] * losses)
        if points.imag.any():
            terms = expm1(points[:, None] * losses)
        # a sum by halves of blocks of 128
        steps = 48 + min(len(losses), 64) + 4 * largest
        # an exponent's own rounding counts even where its exponential is next to 1
        shaken = 4 * UNIT * np.abs(points) * (np.abs(losses) @ p)
        shaken = shaken + 2 * self.loss_error * largest * p.sum()
        steps = steps + largest * self.loss_error / UNIT
        # error of the masses and of each term; then of the exponents, |z l| each
        wrong = (np.abs(terms) @ p) * (self.error + steps * UNIT)
        wrong = wrong + shaken * (1 + 1e-9)
        return log1p(np.asarray((terms * p).sum(axis=1), dtype=np.complex128), wrong)

    def _far(self, points: Complex, shift: Array) -> tuple[Complex, Array]:
        """Take the largest exponential out."""
        losses, p, _ = self._arrays
        if np.all(points.real == points.real[0]):  # of one line all terms have the same sizes
            terms = np.exp(points.real[0] * losses - shift[0]) * p
            size = np.full(len(points), terms.sum())
            total = size.astype(np.complex128)
            if points.imag.any():
                angles = points.imag[:, None] * losses
                total.real, total.imag = np.cos(angles) @ terms, np.sin(angles) @ terms
        else:
            sizes = np.exp(points.real[:, None] * losses - shift[:, None])
            size = sizes @ p
            total = np.asarray(size, dtype=np.complex128)
            if points.imag.any():
                # each term at its own angle
                total = (sizes * np.exp(1j * (points.imag[:, None] * losses))) @ p
        largest_exponent = np.abs(points) * np.abs(losses).max()
        steps = 16 + len(losses) + (4 + 2 * self.loss_error / UNIT) * largest_exponent + 4 * shift
        # relative to the sum, whose terms may cancel
        moved = size * (self.error + steps * UNIT) / np.maximum(np.abs(total), 1e-300)
        value = np.asarray(np.log(np.where(total == 0, 1.0, total)) + shift, dtype=np.complex128)
        error = 2 * moved + 8 * UNIT * (1 + np.abs(value))
        return value, np.where(moved < 0.5, error, np.inf)


def gaussian_mu(pair: FinitePair) -> float:
    """Return the least mu of which the pair is mu-GDP, rounded up.

    Its trade-off function is a polygon and that of mu-GDP is convex, which so lies below if it does
    at the vertices (alpha, beta): if ``mu >= Phi^-1(1 - alpha) - Phi^-1(beta)`` at each (Dong, Roth
    and Su 2022, Def. 4).
    """
    p_above, q_above, p_below, q_below = (tail[1:-1] for tail in pair._tails)
    if not len(p_above):
        return 0.0
    # -Phi^-1 falls: a smaller argument has a larger value
    error = pair.tail_error() + 8 * UNIT
    parts = _minus_quantile(q_above, q_below, error), _minus_quantile(p_below, p_above, error)
    return up(max(0.0, float((up(parts[0], 64) + up(parts[1], 64)).max())))


def _minus_quantile(share: Array, rest: Array, error: float) -> Array:
    """Return ``-Phi^-1(share)``, from the smaller of the share and the rest, rounded up."""
    small = np.maximum(share * (1 - error), 0.0)
    large = np.minimum(rest * (1 + error), 0.5)
    return np.asarray(np.where(share <= rest, -special.ndtri(small), special.ndtri(large)))


# -----------------------------------------------------------------------------
# A discrete pair that dominates whatever keeps finitely many (epsilon, delta) guarantees.
#
# With ``t = e^eps`` a hockey-stick h(t) is convex, falls from h(0) = 1, and in the other direction
# is ``1 - t + t h(1/t)``. A guarantee (eps, delta) in both directions therefore says
# ``h(t) <= delta`` and ``h(1/t) <= 1 - (1 - delta)/t``, and h lies under the lower convex hull g of
# all these points, of (0, 1), and of the level of the last of them. A convex g is itself the
# hockey-stick of a pair: with the ratio r = dP/dQ, ``h(t) = E_Q (r - t)_+`` has the slope
# ``-Q(r > t)``. So the atoms of r lie at the vertices of the hull, Q's mass there is by how much
# the slope of g grows, P's is t times that, and the level D of g at infinity is what P has where Q
# has nothing. The hull is its own mirror image, so Q has the same D
# where P has nothing: the two are told apart with probability D, and otherwise are the atoms.
#
# All this is done in exact rationals, with ``e^eps`` rounded up in its 89th digit (h falls, so a
# guarantee at eps holds at every larger one). What is left is the rounding of each mass to a float.


LARGEST = 600.0
"""A guarantee at an epsilon above this is not used: masses would leave the floats."""

_LEAST = 1e-290
"""A vertex with less mass than this is left out, for the same reason."""

_NEAREST = 1e-30
"""Positive epsilons below this are raised to it."""

_DIGITS = Context(prec=90)

Guarantees = Sequence[tuple[float, Fraction]]
"""Pairs of epsilon, rising from 0 or more, and delta, falling, below 1."""


@frozen
class Vertex:
    """An atom: the loss and its masses, the delta floor not taken out."""

    loss: float
    p: Fraction
    q: Fraction


def from_profile(
    epsilons: Iterable[float],
    deltas: Iterable[float],
    *,
    reverse: Iterable[tuple[float, float]] = (),
) -> tuple[float, FinitePair]:
    """Return the delta floor and the pair that dominate all that keeps the guarantees given.

    Parameters
    ----------
    epsilons
        Non-negative and finite, in any order.
    deltas
        As many, in [0, 1]; each guarantee holds in both directions, or of P against Q if
        ``reverse`` is given.
    reverse
        Pairs (epsilon, delta) that hold of Q against P. The larger of the two last deltas is the
        floor in both directions.

    Returns
    -------
    delta_floor : float
        The probability with which the two are told apart: the least delta that is of use.
    pair : FinitePair
        The pair otherwise; its losses are epsilons given and their negatives.

    References
    ----------
    Derived in the section above: the lower convex hull of the guarantees' points is a
    hockey-stick.

    Examples
    --------
    >>> delta_floor, pair = from_profile([0.5, 1.0], [0.1, 1e-6])
    >>> delta_floor, pair.losses
    (1e-06, (-1.0, -0.5, 0.5, 1.0))
    """
    forward = useful(epsilons, deltas)
    other = list(reverse)
    backward = useful(*zip(*other, strict=True)) if other else forward
    while forward and backward:
        if other:
            forward, backward = _level(forward, backward)
        atoms = vertices(forward, backward)
        weak = {v.loss for v in atoms if min(v.p, v.q) < _LEAST}
        if not weak:
            return _conditional(atoms, forward[-1][1])
        # fewer guarantees have a higher hull
        forward = [g for g in forward if g[0] not in weak]
        backward = [g for g in backward if -g[0] not in weak]
    return 1.0, FinitePair((0.0,), (1.0,), (1.0,), tight=False)


def _level(
    forward: Guarantees, backward: Guarantees
) -> tuple[list[tuple[float, Fraction]], list[tuple[float, Fraction]]]:
    """Return guarantees that end at one delta, the larger, and agree at epsilon 0."""
    last = max(forward[-1][1], backward[-1][1])
    # the total variation is the same both ways round
    at_zero = min((delta for eps, delta in [*forward, *backward] if eps == 0), default=None)
    levelled = []
    for side in (forward, backward):
        result = [] if at_zero is None else [(0.0, max(at_zero, last))]
        for eps, delta in side:
            if max(delta, last) < (result[-1][1] if result else 1):
                result.append((eps, max(delta, last)))
        levelled.append(result)
    return levelled[0], levelled[1]


def useful(epsilons: Iterable[float], deltas: Iterable[float]) -> list[tuple[float, Fraction]]:
    """Return the guarantees by rising epsilon, without those that an earlier one implies."""
    eps = [nonnegative("an epsilon of a profile", value) for value in epsilons]
    levels = [probability("a delta of a profile", value) for value in deltas]
    if len(eps) != len(levels) or not eps:
        raise DomainError(
            f"a profile needs a delta for each epsilon and at least one of them, got {len(eps)} "
            f"epsilons and {len(levels)} deltas"
        )
    result: list[tuple[float, Fraction]] = []
    for at, level in sorted(zip(eps, levels, strict=True)):
        # a guarantee that an earlier one implies says nothing more
        if level < (result[-1][1] if result else 1) and at <= LARGEST:
            # a larger epsilon promises less: sound
            raised = max(at, _NEAREST) if at else 0.0
            if result and result[-1][0] == raised:
                result.pop()
            result.append((raised, Fraction(level)))
    return result


def vertices(guarantees: Guarantees, reverse: Guarantees | None = None) -> list[Vertex]:
    """Return the atoms of the hull, by rising loss; their masses add up to 1 - D."""
    right = [(eps, exponential(eps), delta) for eps, delta in guarantees]
    mirror = right
    if reverse is not None and reverse is not guarantees:
        mirror = [(eps, exponential(eps), delta) for eps, delta in reverse]
    # the mirror image: a guarantee at eps says h(1/t) <= 1 - (1 - delta)/t
    left = [(-eps, 1 / t, 1 - (1 - delta) / t) for eps, t, delta in reversed(mirror) if eps]
    hull = lower_hull([(0.0, Fraction(), Fraction(1)), *left, *right])
    slopes = [(b[2] - a[2]) / (b[1] - a[1]) for a, b in pairwise(hull)]
    steps = zip(hull[1:], slopes, [*slopes[1:], Fraction()], strict=True)
    # Q's mass is by how much the slope grows, P's t times that
    return [Vertex(at, t * (after - before), after - before) for (at, t, _), before, after in steps]


def exponential(eps: float) -> Fraction:
    """Return a rational at least ``e^eps``, and within 1e-87 of it."""
    if eps == 0:
        # rounded up: a guarantee at eps holds at every larger one
        return Fraction(1)
    return Fraction(_DIGITS.exp(Decimal(eps))) * (1 + Fraction(1, 10**88))


def logarithm(ratio: Fraction) -> float:
    """Return a float at least ``log ratio``, for a ratio of at least 1; 0 exactly for 1."""
    if ratio == 1:
        return 0.0
    quotient = _DIGITS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    # rounded up past the 90 digits' own error
    return ceiling(Fraction(_DIGITS.ln(quotient)) + Fraction(1, 10**80))


def lower_hull(
    points: Sequence[tuple[float, Fraction, Fraction]],
) -> list[tuple[float, Fraction, Fraction]]:
    """Return the lower convex hull of points by rising second entry (Andrew's chain)."""
    hull: list[tuple[float, Fraction, Fraction]] = []
    for point in points:
        # a point above the chord of its neighbours is not a vertex
        while len(hull) > 1 and not _below(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _below(
    a: tuple[float, Fraction, Fraction],
    b: tuple[float, Fraction, Fraction],
    c: tuple[float, Fraction, Fraction],
) -> bool:
    """Whether b lies below the chord from a to c."""
    return (b[2] - a[2]) * (c[1] - a[1]) < (c[2] - a[2]) * (b[1] - a[1])


def _conditional(hull: Sequence[Vertex], delta_floor: Fraction) -> tuple[float, FinitePair]:
    rest = 1 - delta_floor
    atoms = FinitePair(
        [v.loss for v in hull],
        # given that the two are not told apart: divided by 1 - D
        [float(v.p / rest) for v in hull],
        [float(v.q / rest) for v in hull],
        tight=False,
    )
    return ceiling(delta_floor), atoms


# -----------------------------------------------------------------------------
# A pair of atoms with exponential tails: what a Renyi divergence of finite order leaves open.
#
# An order ``alpha = 1 + c`` bounds the hockey-stick by ``K t^{-c}``, ``t = e^eps``, however large t
# is. Beyond the last atom, at loss s, the pair has exactly the hockey-stick ``y e^{-c (l - s)}``:
# ``Q(L > l) = -d/dt``, so ``P(L > l) = (1 + c) y e^{-c (l - s)}`` and
# ``Q(L > l) = c y e^{-s} e^{-(1 + c)(l - s)}``; below the first atom, at -s, the mirror image.


@frozen(cache_hash=True)
class TailedPair(Symmetric):
    """Symmetric atoms, and beyond them tails that fall exponentially; not tight.

    Parameters
    ----------
    atoms
        The losses within [-s, s], both ends among them; with the tails' masses they add up to 1.
    mass
        P's above s, which is Q's below -s.
    rate
        c, positive: how fast P's upper tail falls.
    """

    atoms: FinitePair = field()
    mass: float
    rate: float

    def tail_error(self) -> float:
        """Return the atoms', and that of an exponential which is above 1e-300."""
        return self.atoms.tail_error() + 4096 * UNIT

    def is_tight(self) -> bool:
        """Return False: it bounds, and no mechanism need attain it."""
        return False

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the upper tail, atoms included below it, or all but the lower tail."""
        loss = np.asarray(loss, dtype=np.float64)
        p, q = self.atoms.above(loss)
        tail_p, tail_q = self._tail(np.maximum(loss, self.atoms.top()))
        lost_q, lost_p = self._tail(np.maximum(-loss, self.atoms.top()))
        low = loss < -self.atoms.top()
        return np.where(low, 1 - lost_p, p + tail_p), np.where(low, 1 - lost_q, q + tail_q)

    def _tail(self, loss: Array) -> tuple[Array, Array]:
        """Return P's and Q's masses above losses of at least s."""
        start, c = self.atoms.top(), self.rate
        beyond = loss - start
        p = self.mass * np.exp(-c * beyond)
        return p, self.mass * (c / (1 + c)) * math.exp(-start) * np.exp(-(1 + c) * beyond)


def with_tails(guarantees: Guarantees, rate: float) -> TailedPair | None:
    """Return the pair of guarantees the last of which, (s, y), goes on as ``y e^{-rate (l - s)}``.

    The slope of the hull must not be above that of the tail where it ends; guarantees before
    the last are left out until it is not. None where that does not help.
    """
    remaining = list(guarantees)
    while remaining:
        atoms = vertices(remaining)
        tail = Fraction(rate) * remaining[-1][1]
        first, last = atoms[0], atoms[-1]
        # h stays convex where the tail begins: the last atom keeps a positive mass
        if len(atoms) > 1 and last.p > tail and last.loss > 0:
            t = last.p / last.q
            ends = (
                Vertex(first.loss, first.p - tail / t, first.q - tail),
                Vertex(last.loss, last.p - tail, last.q - tail / t),
            )
            mass = float(tail + remaining[-1][1])
            return TailedPair(_atoms([ends[0], *atoms[1:-1], ends[1]]), mass, rate)
        remaining = [*remaining[:-2], remaining[-1]] if len(remaining) > 1 else []
    return None


def _atoms(hull: Sequence[Vertex]) -> FinitePair:
    return FinitePair(
        [v.loss for v in hull],
        [float(v.p) for v in hull],
        [float(v.q) for v in hull],
        tight=False,
    )


# -----------------------------------------------------------------------------
# Laws spread outward onto a grid: a mass between two points goes to both, its mean kept.
#
# A likelihood ratio r under Q that is spread so has a larger ``E_Q (r - t)_+`` for every t: the
# pair of the spread law dominates. A mass that lies near a point of the grid is spread to that
# point's two neighbours, so that every share is at least 1/32 and has few relative errors.


_NEAR = 1 / 16


def spread(blocks: Iterable[tuple[Array, Array]], grid: Array) -> Array:
    """Return the masses of the points of ``grid``.

    Parameters
    ----------
    blocks
        Ratios, within the grid and before its last point but one, with their masses under Q.
    grid
        Rising; from 0, or from a point that no ratio is near.
    """
    count = len(grid)
    step = np.diff(grid)
    # by turns near a point, where the masses go to both its neighbours, and between two points
    edges = np.column_stack([grid[:-1] + _NEAR * step, grid[1:] - _NEAR * step]).ravel()
    point = np.arange(count - 1)
    low = np.column_stack([np.maximum(point - 1, 0), point]).ravel()
    high = np.column_stack([point + 1, point + 1]).ravel()
    left, width = grid[low], grid[high] - grid[low]
    lower, upper = np.zeros(len(low)), np.zeros(len(low))
    for at, mass in blocks:
        zone = np.minimum(np.searchsorted(edges, at, side="right"), len(low) - 2)
        # the share that keeps the mean
        right = mass * ((at - left[zone]) / width[zone])
        upper += np.bincount(zone, right, minlength=len(low))
        lower += np.bincount(zone, mass - right, minlength=len(low))
    total = np.bincount(low, lower, count) + np.bincount(high, upper, count)
    return total.astype(np.float64)
