"""Amplification by shuffling local reports, each of a pure epsilon."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss, _profile
from accountants.losses.grids import spread
from accountants.losses.pure import ResponsePair
from accountants.losses.unattained import Unattained
from accountants.pair import Pair
from accountants.rounding import UNIT, Array

_COUNT_TAIL = 70.0
"""Counts are followed as far as all but ``e^-70`` of them go."""

_BLOCKS = 256
_CELLS = 2000
_MOST_REPORTS = 10**8
"""More reports than this count as this many."""

_LARGEST_LOSS = 600.0
"""Reports of a larger epsilon are not amplified."""


def _epsilon(value: float) -> float:
    return nonnegative("Shuffled.epsilon", value)


def _reports(value: int) -> int:
    return whole("Shuffled.reports", value)


@frozen
class Shuffled(PrivacyLoss):
    """Reports of ``reports`` units by one epsilon-DP local randomizer, in a random order.

    Neighbours differ in the value of one unit (replace-one). With ``w = e^eps / (1 + e^eps)`` its
    two laws are ``w U + (1-w) V`` and ``(1-w) U + w V`` for some laws U and V; any other report is
    drawn from ``(U + V)/2`` with probability ``e^-eps``. So the shuffled reports are a
    post-processing of how many were drawn from U and from V: of ``C ~ Bin(n-1, e^-eps)`` clones,
    ``A ~ Bin(C, 1/2)`` from U, and of the unit's own report.

    The pair tells C too, which is not a gain: given C = c it is the same, and the fewer clones
    the easier to tell apart. So c is rounded down, far counts are taken for none at all
    (randomized response), and ratios are spread outward onto a grid.

    The reports may also come one by one, by randomizers chosen from the earlier ones, if the
    units, not the reports, are shuffled first.

    Parameters
    ----------
    epsilon
        Non-negative, in nats; of each report, under replacement.
    reports
        n, the integer of reports, the unit's own included; at least 1.

    References
    ----------
    Feldman, McMillan and Talwar 2021, Thm 3.2 and 2023, Thm 3.1.

    Examples
    --------
    >>> Shuffled(epsilon=1.0, reports=10_000).profile(0.1).upper < 1e-5
    True
    """

    theorem: ClassVar[str] = "shuffling: Feldman, McMillan & Talwar 2021, Thm 3.2; 2023, Thm 3.1"

    epsilon: float = field(converter=_epsilon)
    reports: int = field(converter=_reports)

    def pair(self) -> Pair:
        """Return the pair of the counts."""
        if self.reports == 1:
            return ResponsePair(self.epsilon)
        if self.epsilon > _LARGEST_LOSS:
            return Unattained(ResponsePair(self.epsilon))
        return _pair(self.epsilon, self.reports)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def profile(self, epsilon: float) -> Bounds:
        """Return the pair's profile, and nothing from the reports' own epsilon on."""
        if epsilon >= self.epsilon:
            return Bounds(0.0, 0.0)
        return Bounds(0.0, _profile(self.pair(), 0.0, epsilon).upper)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Fewer reports of a larger epsilon dominate (C falls in epsilon)."""
        if isinstance(other, Shuffled):
            return self.epsilon >= other.epsilon and self.reports <= other.reports
        return self == other


@lru_cache(maxsize=64)
def _pair(eps: float, reports: int) -> Pair:
    if eps < 1e-12:  # too small to amplify
        return Unattained(ResponsePair(eps))
    clones, weights, steps = _clones(eps, min(reports, _MOST_REPORTS) - 1)
    laws = [_counts(eps, int(c)) for c in clones]
    losses = np.concatenate([law[0] for law in laws])
    q = np.concatenate([law[1] * weight for law, weight in zip(laws, weights, strict=True)])
    steps += 8 * max(len(law[0]) for law in laws) + 128 * _CELLS + 256
    step_of = min(eps, float(losses.max())) / _CELLS
    cells = math.ceil(eps / step_of)
    far = 4 * math.exp(-_COUNT_TAIL) / (1 + math.exp(eps))
    return _mirrored(losses, q, far, eps / cells * (1 + 4 * UNIT), cells, steps * UNIT)


def _clones(eps: float, others: int) -> tuple[Array, Array, int]:
    """Return counts C, each the least of a block, with the blocks' masses.

    By Chernoff's bound C is below ``m - sqrt(2 m 70)``, m its mean, with probability ``e^-70``.
    What is above the range is spread over it: downward. With it the steps of the recursion.
    """
    mean = others * math.exp(-eps)
    # Chernoff's lower tail of a binomial, e^{-reach^2 / (2 m)} = e^-70
    reach = math.sqrt(2 * mean * _COUNT_TAIL)
    least = max(0, math.floor((mean - reach) * (1 - 1e-12)))
    most = min(others, math.ceil(mean + 15 + math.sqrt(200 + 80 * mean)))
    c = np.arange(least, most + 1, dtype=np.float64)
    odds = (1 - 8 * UNIT) / math.expm1(eps)  # rounded down: fewer clones
    ratio = (others - c[:-1]) / (c[1:]) * odds
    mode = int(np.clip(math.floor(mean) - least, 0, len(c) - 1))
    rising = np.cumprod(ratio[mode:])
    falling = np.cumprod(1 / ratio[:mode][::-1])[::-1]
    weights = np.concatenate([falling, [1.0], rising])
    t = np.linspace(-1, 1, _BLOCKS if others <= 10**6 else _BLOCKS // 4)  # dense in the middle
    edges = mode + np.where(t < 0, mode, len(c) - 1 - mode) * (0.3 * t + 0.7 * t**3)
    starts = np.unique(np.append(0, np.clip(np.floor(edges), 0, len(c) - 1))).astype(np.int64)
    # a block counts as its least c: fewer clones amplify less
    return c[starts], np.add.reduceat(weights, starts) / weights.sum(), 8 * len(c)


def _counts(eps: float, clones: int) -> tuple[Array, Array]:
    """Return the losses, and masses under Q, of the counts a of U, ``a >= (c+1)/2``.

    With ``x = a / (c+1)`` and g the law of Bin(c+1, 1/2), ``Q(a) = 2 g(a) ((1-w) x + w (1-x))``
    and P likewise with w exchanged. By Hoeffding's bound a count is farther than
    ``sqrt(35 c) + 1`` from the middle with probability ``2 e^-70``, as likely under P.
    """
    total = clones + 1
    first = (total + 1) // 2
    # Hoeffding: counts farther out have probability 2 e^-70, and are told apart (`far`)
    last = min(total, math.ceil(total / 2 + math.sqrt(_COUNT_TAIL / 2 * clones) + 2))
    a = np.arange(first, last + 1, dtype=np.float64)
    g = np.cumprod(np.concatenate([[1.0], (total - a[:-1]) / a[1:]]))
    twice = 2.0 if total % 2 else 1.0
    g = g / (2 * g.sum() - (0.0 if twice == 2 else g[0]))
    less = math.exp(-eps) / (1 + math.exp(-eps))
    x = a / total
    away = (2 * a - total) / total
    under_q = less * x + (1 - less) * (1 - x)
    # log of ((w x + (1-w)(1-x)) / ((1-w) x + w (1-x))), from the ratio less 1
    return np.log1p(math.tanh(eps / 2) * away / under_q), 2 * g * under_q


def _mirrored(losses: Array, q: Array, far: float, step: float, cells: int, error: float) -> Atoms:
    """Return the symmetric pair on a grid, from the losses from 0 on and their masses under Q.

    What is off the tails, ``far`` at the reports' own loss, is randomized response: told apart.
    """
    ties = float(q[losses == 0].sum())
    count = max(cells + 1, int(losses.max() / step) + 4)
    grid = np.expm1(step * np.arange(count))
    # spread on the grid of e^l - 1: a mean-preserving spread under Q
    mass = spread(np.expm1(losses[losses > 0]), q[losses > 0], grid)
    # what was cut is put at the reports' own epsilon, the largest loss there is
    mass[cells] += far
    kept = np.flatnonzero(mass[1:]) + 1
    points, middle = kept * step, 2 * mass[0] + ties
    less, more = mass[kept], mass[kept] * np.exp(points)
    every = np.concatenate([-points[::-1], [0.0], points])
    p = np.concatenate([less[::-1], [middle], more])
    return Atoms(every, p, p[::-1], error, exact=False, multiple=step)
