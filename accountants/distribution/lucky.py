r"""Sampled Gaussians where a lucky step shows: few large losses beside many small ones.

At a small rate a step's loss ``L = log R``, ``R = 1 - q + q r``, ``r = e^{mu x - mu^2/2}``, is
nearly always of the size of q, and seldom a thousand times as large. No transform resolves both. So
a step counts as *small* where ``x <= b``, as *large* where ``b < x <= y``, and as *capped* beyond.
With

``D_m(e) = int (1 - e^{e - s})_+`` over the m-fold convolution of the small losses' masses under P

and the masses ``nu`` of a large loss under P, what n steps without a capped one add to the
hockey-stick is exactly ``sum_k C(n, k) int D_{n-k}(eps - l) nu^{*k}(dl)``. Three parts, each
bounded on both sides:

* Capped steps. Let A be the event of any. For every event the hockey-stick there is at least
  ``P(A) - e^eps Q(A)``, and it exceeds that by ``E_Q[(e^eps - e^S)_+; A]``, which is at most
  ``e^eps Q(A, S < eps)``. A capped step's loss is above Y, so then the others' sum is below
  ``eps - Y``: by Chernoff's bound
  ``Q(A, S < eps) <= n Q(L > Y) (E_Q R^{-t})^{n-1} e^{t (eps - Y)}``, and it is 0 where
  ``Y - eps >= -n log(1 - q)``, as no loss is below ``log(1 - q)``.
* Large losses are put on a lattice of step h, cell by cell, by their masses p and q under P and Q.
  From above: two atoms at the cell's ends with the cell's mean of ``dP/dQ`` (a mean-preserving
  spread under Q, and the hockey-stick is convex in ``dP/dQ``). From below: one atom at that mean
  (Jensen's inequality), moved down onto the lattice, shifted by an offset that serves most cells.
  The k-fold convolutions are powers of tilted transforms.
* ``D_m`` is a contour integral as in `accountants.distribution.contour`, of the moments
  ``m(z) = E[R^{z+1}; x <= b]``, which do decay; with a period that is a multiple of h one transform
  gives it at all points of the lattice. With ``w(t) = t^t / (1+t)^{1+t}``, the largest value of
  ``(1 - e^{-u}) e^{-tu}``, far left of the bulk of the small losses' sum is
  ``0 <= D_m(e) - (P_s^m - e^e Q_s^m) = E_Q (e^e - e^s)_+``, which is at most
  ``e^e w(t) e^{te} E_Q[R^{-t}; x <= b]^m``; far right of it is
  ``0 <= D_m(e) <= w(c) e^{-ce} m(c)^m``, for all positive t and c.

Where units are *replaced*, large losses fall as far as they rise. Steps with ``x < -a`` are left
out, so far out that they are of no account: their losses are negative, so that they add at most
``n P(x < -a) delta(eps)``. All others with ``x <= b`` are small. Under Q the others' sum falls with
the law with which it rises under P: a capped step's ``E_Q[(e^eps - e^S)_+; A]`` is at most
``e^eps n Q(L > Y) delta(eps)`` where ``Y >= 2 eps`` (`accountants.distribution.rare`). Both are a
share of delta.

With ``n_c = int e^{cl} nu(dl)``, k large steps add at most
``w(c) e^{-c eps} C(n, k) n_c^k m(c)^{n-k}`` for every c > 0, Chernoff's bound again: so much is
added for each k that is left out, and a geometric series for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from attrs import evolve, frozen

from accountants import special
from accountants.distribution import contour
from accountants.distribution.convolution import power, transform_error
from accountants.losses.cut_sample import (
    CutSample,
    Law,
    _alike,
    cut_log_moment,
    losses,
    on_panels,
    panels_between,
    tails,
)
from accountants.losses.sampled_gaussian import sampled_gaussian_log_moment
from accountants.losses.sampling import ReplacedGaussianPair, SampledGaussianPair
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    remembered,
)
from accountants.pair import Pair

_COARSE, _FINE = 2**11, 2**14
"""Cells of large losses, to find about where epsilon is and to bound it."""

_LONGEST = 2**20
"""Cells times the number of large steps are at most this, up to 12 of these."""

_NODES = 2**11
"""A line of the small losses has no more nodes than this."""

_TAILS = 2e-12
"""The relative error of the normal law's tails."""

_LEFT = 1e-12
"""What is neglected is about this share of delta."""

_FORGOTTEN = 46.0
"""Of a sum of large losses a share of e^-46 under its tilted law is bounded, not computed."""

_PAST = 60.0
"""Nor of losses at which ``e^{-tilt l}`` is e^-60 of what it is at epsilon."""

_LITTLE = 1e-10
"""Numbers of large steps that together add less than this share are bounded alone."""


def _log_masses(law: Law) -> tuple[float, float]:
    """Return the logs of P's and Q's masses of small losses."""
    p, q, p_left, q_left = tails(law)
    return math.log1p(-(p + p_left)), math.log1p(-(q + q_left))


def _outcomes(mu: float, rate: float, left: float, loss: Array) -> Array:
    """Return x where the loss is ``loss``."""
    if left:
        return ReplacedGaussianPair(mu, rate).outcome(loss)
    return np.asarray((np.log1p(np.expm1(loss) / rate) + mu * mu / 2) / mu)


def _exp(logs: Array) -> Array:
    return np.asarray(np.exp(np.minimum(logs, 0.0)), dtype=np.float64)


@frozen(slots=False, eq=False)
class _Small:
    """The small losses of one step, and ``D_m`` of many.

    Parameters
    ----------
    law
        Losses at ``x <= cut``.
    step
        h, of the lattice on which ``D_m`` is wanted.
    least
        The least m that will be asked.
    tilt, span, nodes
        c, the period over h, and how many nodes there are.
    values, errors
        Log-moments of one step at the nodes ``c + i n 2 pi / (h span)``, and their errors.
    tail
        Log of the bound of what lies beyond them, in units of ``e^{K(c) - c e}``.
    wider
        The same by smaller tilts, which keep digits farther left.
    """

    law: Law
    step: float
    tilt: float
    span: int
    values: Complex
    errors: Array
    tail: float
    wider: tuple[_Small, ...] = ()

    @cached_property
    def log_masses(self) -> tuple[float, float]:
        return _log_masses(self.law)

    @cached_property
    def _moments(self) -> dict[int, tuple[Array, Array]]:
        """Return powers, with upper bounds of the log-moments of s under P, and of -s under Q."""
        powers = self.tilt * np.geomspace(1e-3, 1e3, 96)
        found = {}
        for side, orders in ((1, powers + 1), (-1, -powers)):
            moments = _upper(self.law, orders)
            some = np.isfinite(moments)
            found[side] = np.append(powers[some], 1e-9), np.append(moments[some], np.inf)
        return found

    def chernoff(self, m: int, points: Array, side: int) -> Array:
        """Return the bounds of ``D_m(e)`` (side 1), or of ``E_Q (1 - e^{s - e})_+`` (side -1)."""
        powers, moments = self._moments[side]
        logs = m * moments + contour.chernoff_factor(powers)
        paid = np.outer(powers, side * points)
        noise = 16 * UNIT * (np.abs(logs)[:, None] + np.abs(paid) + 1)
        return _exp((logs[:, None] - paid + noise).min(axis=0)) * (1 + 1e-9)

    def on_lattice(
        self, m: int, start: float, count: int, known: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        """Return bounds of ``D_m`` at ``start - j h`` for j < count, by the contour integral.

        Parameters
        ----------
        known
            Powers, with log-moments under P.
        """
        c, n = self.tilt, self.span
        period = n * self.step
        turn = np.arange(len(self.values)) * (2 * math.pi / period)
        z = c + 1j * turn
        weight = np.where(turn > 0, 1.0, 0.5) / np.abs(z * (z + 1))
        logs = m * (self.values - self.values[0])
        wrong = m * (self.errors + self.errors[0]) + 32 * UNIT * (4 + m * np.abs(self.values))
        # the angle t e rounds, e being known within a few units as well
        reach = abs(start) + self.step * count
        wrong = wrong + 16 * UNIT * turn * reach
        sizes = weight * np.exp(np.minimum(logs.real, 0.0))
        terms = sizes * np.exp(1j * (logs.imag - np.angle(z) - np.angle(z + 1) - turn * start))
        # at points h apart a frequency counts modulo N
        count_of = -(-len(terms) // n) * n
        folded = np.append(terms, np.zeros(count_of - len(terms))).reshape(-1, n).sum(axis=0)
        total = np.fft.ifft(folded).real * n
        share = 2 / period
        # |e^x - 1| <= x + x^2 of each term; the transform's own rounding
        if not wrong.max() < 1:
            return np.zeros(count), np.ones(count)
        rounded = 2 * transform_error(n) + UNIT * (8 + count_of / n)
        off = float(sizes @ (wrong + wrong * wrong)) + rounded * float(sizes.sum())
        off = share * off * (1 + 1e-9) + math.exp(self.tail)
        j = np.arange(count)
        points = np.asarray(start - self.step * j, dtype=np.float64)
        scale = m * float(self.values[0].real) - c * points
        slack = m * float(self.errors[0]) + 16 * UNIT * (np.abs(scale) + 1 + c * reach)
        value = share * total[j % n]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            high = np.exp(np.minimum(np.log(np.maximum(value + off, 0)) + scale + slack, 1.0))
            lower = np.exp(np.minimum(np.log(np.maximum(value - off, 0)) + scale - slack, 1.0))
        low = lower - self._aliases(m, points, period, known)
        return np.maximum(0.0, low) * (1 - 1e-13), np.minimum(high * (1 + 1e-13), 1.0)

    def _aliases(self, m: int, points: Array, period: float, known: tuple[Array, Array]) -> Array:
        """Return a bound of all other terms of Poisson's sum."""
        c = self.tilt
        # n < 0: D <= P_s^m, so e^{-cp} / (1 - e^{-cp}) of that
        shrink = c * period
        left = math.exp(m * self.log_masses[0] - shrink) / -math.expm1(-shrink)
        # n > 0: D(e + np) <= e^{K(b) - b (e + np)} / (1 + b)
        powers, moments = known
        fall = (powers - c) * period
        some = (powers > 1.01 * c) & (fall > 1)
        if not some.any():
            return np.full(len(points), np.inf)
        powers, logs = powers[some], (m * moments - fall - np.log1p(powers))[some]
        # points fall, and the bound with them: that at the last of some holds at all of these
        ends = points[np.minimum(np.arange(127, len(points) + 127, 128), len(points) - 1)]
        best = (logs[:, None] - np.outer(powers, ends)).min(axis=0)
        right = np.exp(np.minimum(best + 1e-9 * (1 + np.abs(best)), 600.0)) * 1.6
        return left * (1 + 1e-9) + np.repeat(right, 128)[: len(points)]

    def _turns(self, points: Array) -> list[tuple[int, int]]:
        """Return from which falling point to which each line is asked: it loses digits left."""
        tilts = [line.tilt for line in (self, *self.wider)]
        ends = [int(np.searchsorted(-points * tilt, _KEPT)) for tilt in tilts[:-1]]
        begins = [int(np.searchsorted(-points * tilt, _KEPT - 4)) for tilt in tilts[:-1]]
        return list(zip([0, *begins], [*ends, len(points)], strict=True))

    def bounds(self, m: int, start: float, count: int, steep: float) -> tuple[Array, Array]:
        """Return bounds of ``D_m`` at ``start - j h`` for j < count.

        Parameters
        ----------
        steep
            What is weighted with D rises by about ``e^{steep e}``.
        """
        points = np.asarray(start - self.step * np.arange(count), dtype=np.float64)
        log_p, log_q = (m * each for each in self.log_masses)
        # P_s^m - e^e Q_s^m, whose logs are known within _TAILS of themselves
        slack = _TAILS * -(log_p + log_q) + 16 * UNIT
        moved = slack + 8 * UNIT * (abs(start) + self.step * count)
        mass, shifted = math.exp(log_p), points + (log_q - log_p)
        with np.errstate(over="ignore"):
            low = np.maximum(0.0, mass * (1 - slack) * -np.expm1(shifted + moved))
            high = mass * (1 + slack) * -np.expm1(shifted - moved)
        high, added, best = np.maximum(high, 0.0), np.minimum(points, 700.0), np.ones(count)
        first, last = 0, count - 1
        while True:
            # Chernoff's bounds at some points: as D falls, each holds at what lies right of it, and
            # as E_Q (1 - e^{s - e})_+ rises, each holds at what lies left of it
            marks = np.unique(np.linspace(first, last, 257).astype(int))
            right, left = (self.chernoff(m, points[marks], side) for side in (1, -1))
            some = slice(first, last + 1)
            number = np.arange(len(marks))
            after = np.repeat(number, np.diff(marks, prepend=first - 1))
            before = np.repeat(number, np.diff(marks, append=last + 1))
            bound = high[some] + np.exp(added[some]) * left[before]
            best[some] = np.minimum(best[some], np.minimum(bound * (1 + 1e-13), right[after]))
            # between far right and far left the contour integral
            weight = np.exp(np.clip(steep * points[marks], -700, 700))
            counts = np.flatnonzero(right * weight > _LEFT)
            plain = np.flatnonzero(left <= _LEFT / 10)
            if not len(counts):
                return np.minimum(low * (1 - 1e-13), best), best
            spacing = marks[1] - marks[0] if len(marks) > 1 else 1
            first = int(marks[max(0, counts[0] - 1)])
            last = int(marks[plain[0]]) if len(plain) else last
            # until they lie close together, or no longer help to tell what is far
            if spacing <= max(1, self.span // 128) or last - first > 0.8 * (some.stop - some.start):
                break
        for line, (begins, ends) in zip((self, *self.wider), self._turns(points), strict=True):
            stop = min(last + 1, ends)
            for begin in range(max(first, begins), stop, line.span // 2):
                some = slice(begin, min(stop, begin + line.span // 2))
                count = some.stop - begin
                bulk = line.on_lattice(m, float(points[begin]), count, self._moments[1])
                low[some] = np.maximum(low[some], bulk[0])
                best[some] = np.minimum(best[some], bulk[1])
        return np.minimum(low * (1 - 1e-13), best), best


def _upper(law: Law, s: Array) -> Array:
    """Return upper bounds of ``log E[R^s; x <= cut]``, infinite where nothing is known."""
    value, error = cut_log_moment(law, s.astype(np.complex128))
    bound = value.real + error
    return np.where(
        np.isfinite(error) & np.isfinite(bound), bound + 4 * UNIT * np.abs(bound), np.inf
    )


def _tilts(top: float) -> Array:
    return np.asarray(np.geomspace(0.02, 2e3, 120) / top, dtype=np.float64)


@remembered(64)
def _upper_at(law: Law, top: float) -> Array:
    """Return upper bounds of the log-moments at `_tilts`."""
    return _upper(law, _tilts(top) + 1)


@frozen(slots=False, eq=False)
class _Large:
    """The large losses of one step on a lattice, from above and from below.

    Parameters
    ----------
    base
        For each side the loss at index 0.
    step
        h.
    masses
        For each side, by index.
    top
        Y, above which a step is capped; rounded down.
    capped
        The masses of such a step under P and under Q.
    """

    base: dict[int, float]
    step: float
    masses: dict[int, Array]
    top: float
    capped: tuple[float, float]

    def log_moment(self, c: Array) -> Array:
        """Return upper bounds of the log of ``int e^{cl} nu(dl)``."""
        # rows of masses at e^{c h b}, b < 64, then the rows' logs: no exponential for each of both
        rows = -(-len(self.masses[1]) // 64)
        masses = np.append(self.masses[1], np.zeros(rows * 64 - len(self.masses[1])))
        within = np.exp(np.outer(self.step * np.arange(64), c))
        with np.errstate(divide="ignore"):
            logs = np.log(masses.reshape(rows, 64) @ within)
        losses = self.base[1] + 64 * self.step * np.arange(rows)
        exponents = logs + np.outer(losses, c)
        most = exponents.max(axis=0)
        result = most + np.log(np.exp(exponents - most).sum(axis=0))
        # of c times a loss a few units, of a row's sum 70
        wrong = 1e-11 * (1 + np.abs(result) + c * (losses[-1] + 64 * self.step))
        return np.asarray(result + wrong, dtype=np.float64)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        tilts = _tilts(self.top)
        return tilts, self.log_moment(tilts)

    def tilt(self, k: int, epsilon: float) -> float:
        """Return the tilt at which k losses add up to about epsilon."""
        tilts, moments = self._moments
        return float(tilts[int(np.argmin(k * moments - tilts * epsilon))])

    def sum_of(self, side: int, k: int, tilt: float) -> tuple[Array, Array, float, float]:
        """Return the masses of the sum of k losses, at index j over ``e^{scale - tilt h j}``.

        Each is within what is returned second; the third is the scale. Those that are left out
        have larger indices, and add up to at most the last.
        """
        key = side, k, tilt
        if key not in self._sums:
            self._sums[key] = self._sum_of(side, k, tilt)
        return self._sums[key]

    @cached_property
    def _sums(self) -> dict[tuple[int, int, float], tuple[Array, Array, float, float]]:
        """Return what is known of sums: nearby epsilons ask for the same."""
        return {}

    def _sum_of(self, side: int, k: int, tilt: float) -> tuple[Array, Array, float, float]:
        masses, t = self.masses[side], tilt * self.step
        with np.errstate(divide="ignore"):
            logs = np.log(masses) + t * np.arange(len(masses))
        most = float(logs.max())
        tilted = np.exp(logs - most)
        total, length = float(tilted.sum()), k * (len(masses) - 1) + 1
        scale = k * (most + math.log(total))
        # of weights that add up to 1, -w log w among them; and of their transforms
        one = 4 * UNIT * (40 + abs(most) + t * len(masses))
        weights = tilted / total
        if k == 1:  # relative errors, of logs down to that of the least float
            wrong = 4 * UNIT * (800 + abs(most) + t * len(masses))
            return weights, weights * wrong + 1e-300, scale, 0.0
        # what lies beyond adds up to `lost` at most, and so much more is where a shorter transform
        # has it come round again
        reach = _reach(logs - most - math.log(total), k)
        length, lost = min((length, 0.0), (reach, math.exp(-_FORGOTTEN)))
        size = _smooth(length)
        spectrum = power(np.fft.rfft(weights, size), k)
        found = np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
        one += transform_error(size) + 8 * UNIT
        error = (k * one + transform_error(size) + lost) * (1 + 1e-9)
        return found, np.full(length, error), scale, lost


def _reach(logs: Array, k: int) -> int:
    """Return an index from which on k-fold convolutions of weights are ``e^-_FORGOTTEN`` at most.

    By Chernoff's bound their sum from N on is at most ``G(s)^k e^{-s N}``, with
    ``G(s) = sum_j w_j e^{s j}``, for any s > 0.

    Parameters
    ----------
    logs
        Of weights w that add up to 1, within 1 / (2 k).
    """
    j, weights = np.arange(len(logs)), np.exp(logs)
    mean = float(weights @ j)
    variance = max(float(weights @ (j * j)) - mean * mean, 1.0)
    least = k * (len(logs) - 1) + 1
    # about the best s of a normal law, and some beside it
    for s in (math.sqrt(2 * _FORGOTTEN / (k * variance)) * np.array([0.7, 1.0, 1.5, 2.5])).tolist():
        exponents = logs + s * j
        largest = float(exponents.max())
        moment = largest + math.log(float(np.exp(exponents - largest).sum()))
        least = min(least, math.ceil((k * moment + _FORGOTTEN + 1) / s))
    return max(least, len(logs))


def _large(law: Law, top: float, tilt: float, cells: int) -> _Large | None:
    """Return the losses between those of ``x = cut`` and ``top``; None where cells are too wide."""
    mu, rate, cut, left = law
    least = float(losses(law, np.array([cut]))[0][0])
    step = (top - least) / cells
    edges = least + step * np.arange(cells + 1)
    x = _outcomes(mu, rate, left, np.asarray(edges, dtype=np.float64))
    x[0] = cut
    panels = panels_between(x, mu)
    if not (np.abs(x).max() < 36 and (panels > 0).all() and panels.sum() < 4 * cells):
        return None
    firsts = np.cumsum(panels) - panels
    loss, logs, weights, wrong = on_panels(law, x, panels, top)
    middle = edges[:-1] + step / 2
    density = np.exp(logs) * weights
    scaled = density * np.exp(loss - np.repeat(middle, panels)[:, None])
    q, scaled = (np.add.reduceat(each.sum(axis=1), firsts) for each in (density, scaled))
    offsets = np.log(scaled / q)
    p = scaled * np.exp(middle)
    # an edge's loss is off by less; so are means
    slip = 4 * wrong
    share = np.expm1(-(offsets + step / 2 + 2 * slip)) / math.expm1(-step)
    share = np.clip(share, 0.0, 1.0)
    above = np.zeros(cells + 1)
    above[:-1] += p * (1 - share)
    above[1:] += p * share
    shift = _shift(offsets, p * np.exp(np.minimum(tilt * (edges[:-1] - top), 0.0)), step)
    lower = offsets < shift
    below = np.zeros(cells + 1)
    below[:-1] += np.where(lower, p, 0.0)
    below[1:] += np.where(lower, 0.0, p)
    return _Large(
        {1: least + 2 * slip, -1: float(middle[0]) - step + shift - slip},
        step,
        {1: above * (1 + slip), -1: below * (1 - slip)},
        top - slip,
        tails((mu, rate, float(x[-1]), left))[:2],
    )


def _shift(offsets: Array, weights: Array, step: float) -> float:
    """Return the common offset at which least is lost: a cell below it moves a step down."""
    order = np.argsort(offsets)
    values, mass = offsets[order], weights[order]
    moved = np.append(0.0, np.cumsum(mass)[:-1])
    # all lose what they are above the offset, those below it a step more
    costs = step * moved - values * float(mass.sum())
    return float(values[int(np.argmin(costs))])


@frozen(slots=False, eq=False)
class _Split:
    """n steps, split for epsilons up to some."""

    times: int
    large: _Large
    rest: CutSample
    """One step's small losses."""
    longest: int
    """So many large steps are added up, no more."""
    epsilon: float
    small: _Small | None = None

    def delta(self, epsilon: float, side: int = 0) -> tuple[float, float]:
        """Return bounds of the hockey-stick: both, or only the upper (side 1) or lower (-1)."""
        assert self.small is not None
        n = self.times
        least, most = self._capped(epsilon)
        low, high = 0.0, float(self.small.chernoff(n, np.array([epsilon]), 1)[0])
        if high > _LEFT * least:
            none = contour.profile(((self.rest, n),), np.array([epsilon]), scattered=False)
            if none is not None:
                low, high = float(none[0][0]), min(high, float(none[1][0]))
        logs, log_rest = self._log_bounds(epsilon)
        least, most = least + low, most + high + math.exp(min(0.0, log_rest))
        # those first that add most, until others add next to nothing
        order = np.argsort(-logs)
        rest = np.append(np.cumsum(np.exp(np.minimum(logs[order][::-1], 0.0)))[::-1], 0.0)
        for done, k in enumerate((order + 1).tolist()):
            if rest[done] <= _LITTLE * (most if side > 0 else least):
                most += float(rest[done]) * (1 + 1e-9)
                break
            low = self._with(k, epsilon, -1) if side <= 0 else 0.0
            high = self._with(k, epsilon, 1) if side >= 0 else 0.0
            least, most = least + low, most + high
        most /= 1 - min(1.0 - UNIT, self._again(epsilon))
        low, high = max(0.0, least * (1 - 1e-13)), min(1.0, most * (1 + 1e-13))
        return low if side <= 0 else 0.0, high if side >= 0 else 1.0

    def _with(self, k: int, epsilon: float, side: int) -> float:
        """Return an upper (side 1) or a lower (-1) bound of what k large steps add."""
        assert self.small is not None
        tilt, log_choices, h = self.large.tilt(k, epsilon), self._log_choices[k], self.large.step
        masses, error, scale, lost = self.large.sum_of(side, k, tilt)
        moved = k * self.large.base[side]
        start = epsilon - moved - side * 8 * UNIT * (epsilon + abs(moved))
        # far above epsilon e^{-tilt l} leaves nothing of masses that are 1 in all, as a rule
        count = math.ceil((max(start, 0.0) + _PAST / tilt) / h)
        for last in (count, len(masses)) if count < len(masses) else (len(masses),):
            left_out = lost if last == len(masses) else 1 + 1e-9
            some = self.small.bounds(self.times - k, start, last, tilt)
            exponents = log_choices + scale - tilt * h * np.arange(last)
            # masses are within `error` of the truth
            with np.errstate(divide="ignore"):
                logs = np.log(np.maximum((masses + side * error)[:last], 0.0)) + exponents
            part = float(np.exp(np.minimum(logs, 700.0)) @ some[0 if side < 0 else 1])
            # those left out count at most as often as the last one, where D is at most 1
            beyond = left_out and math.exp(min(math.log(left_out) + float(exponents[-1]), 700.0))
            if beyond <= _LITTLE * part / 10:
                break
        part += beyond if side > 0 else 0.0
        size = abs(log_choices) + abs(scale) + tilt * h * len(masses)
        return float(part * (1 + side * UNIT * (8000 + 16 * k + 8 * size + len(masses))))

    def _capped(self, epsilon: float) -> tuple[float, float]:
        """Return bounds of what steps above the top add."""
        p, q = self.large.capped
        paid = math.exp(epsilon) * -math.expm1(self.times * math.log1p(-q))
        value = -math.expm1(self.times * math.log1p(-p))
        wrong = (2 * _TAILS + 16 * UNIT * (1 + epsilon)) * (value + paid) + 1e-300
        if self.rest.left:
            return value - paid - wrong, value - paid + wrong
        log_missed = _falls(self.rest.mu, self.rest.rate, self.times, self.large.top - epsilon)
        missed = 2 * math.exp(epsilon) * self.times * q * math.exp(min(0.0, log_missed))
        return value - paid - wrong, value - paid + wrong + missed

    def _again(self, epsilon: float) -> float:
        """Return a bound of the share of delta that is missed, where units are replaced."""
        if not self.rest.left:
            return 0.0
        if self.large.top < 2 * epsilon:
            return 1.0
        share = math.exp(epsilon) * self.large.capped[1] + tails(self.rest.law)[2]
        return self.times * share * (1 + 1e-9)

    def guess(self, epsilon: float) -> float:
        """Return about the log of the hockey-stick, or less: the capped steps and one large one."""
        losses = self.large.base[-1] + self.large.step * np.arange(len(self.large.masses[-1]))
        log_rest = (self.times - 1) * _log_masses(self.rest.law)[0]
        one = (
            self.times
            * math.exp(log_rest)
            * (
                self.large.masses[-1]
                @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))
            )
        )
        return math.log(max(self._capped(epsilon)[0], 0.0) + float(one) + 1e-320)

    def _log_bounds(self, epsilon: float) -> tuple[Array, float]:
        """Return logs of bounds of what each number of large steps adds, and of all larger ones."""
        n, few = self.times, self.longest
        large, small = self._moments
        number = np.arange(1, min(n, few + 40) + 1)
        paid = self._tilts * epsilon
        every = self._log_choices[number, None] + number[:, None] * large
        every = every + (n - number[:, None]) * small
        every = every + 1e-9 * (1 + np.abs(every) + paid) + contour.chernoff_factor(self._tilts)
        every = every - paid
        logs = np.nanmin(every, axis=1)
        others = logs[few:].tolist()
        if n > few + 40:
            # each further term is at most this much of the one before
            last = few + 40
            fall = large - small + math.log((n - last) / (last + 1))
            with np.errstate(over="ignore", invalid="ignore"):
                rest = every[-1] - np.log(np.expm1(np.maximum(-fall, 1e-9)))
            rest = np.where((fall < -0.1) & np.isfinite(rest), rest, np.inf)
            others.append(float(rest.min()))
        most = max(others, default=-math.inf)
        if most > -1e9:
            most += math.log(sum(math.exp(each - most) for each in others))
        return logs[:few], most

    @cached_property
    def _log_choices(self) -> Array:
        """Return the logs of C(n, k), within 4 k units."""
        k = np.arange(min(self.times, self.longest + 40))
        return np.append(0.0, np.cumsum(np.log((self.times - k) / (k + 1))))

    @property
    def _tilts(self) -> Array:
        return self.large._moments[0]

    @property
    def _moments(self) -> tuple[Array, Array]:
        return self.large._moments[1], _upper_at(self.rest.law, self.large.top)


def _falls(mu: float, rate: float, times: int, by: float) -> float:
    """Return the log of a bound of ``Q(S < -by)``, S the sum of the losses."""
    if by >= times * -math.log1p(-rate) * (1 + 1e-12):
        return -math.inf
    if not by > 0:
        return 0.0
    t, moments = _backward(mu, rate, times)
    logs = moments - t * by
    return float(min(0.0, np.where(np.isfinite(logs), logs + 1e-9, 0.0).min()))


@remembered(16)
def _backward(mu: float, rate: float, times: int) -> tuple[Array, Array]:
    """Return some t, with upper bounds of ``n log E_Q R^{-t}``."""
    t = np.geomspace(0.1, 1e5, 80) / (times * -math.log1p(-rate))
    value, error = sampled_gaussian_log_moment(mu, rate, (-t).astype(np.complex128))
    logs = times * (value.real + error) * (1 + 1e-12)
    return t, np.where(np.isfinite(error) & np.isfinite(logs), logs, np.inf)


def _split(
    found: _Steps, epsilon: float, share: float, cells: int, longest: int = 0
) -> _Split | None:
    """Return a split for epsilons up to one; None where there is none of use.

    Parameters
    ----------
    share
        About how many of the steps are large.
    cells
        Of large losses; twice as many where their masses fall steeply.
    longest
        Fewer large steps than this need not be tried as the most that are added up.
    """
    mu, rate, left, times = found
    top = epsilon + _room(found, epsilon)
    x = np.linspace(-8.0, 40.0, 4801)
    every, below = losses((mu, rate, 40.0, left), x)
    beyond = (1 - rate) * special.ndtr(-x) + rate * special.ndtr(mu - x)
    at = int(np.searchsorted(-times * beyond, -share))
    if not (0 < every[at] < 0.8 * top and top < 600):
        return None
    cut = float(x[at])
    # guesses: the variance of the small losses' sum, and Chernoff's best tilt
    weights = np.exp(below[:at] - x[:at] * x[:at] / 2) / math.sqrt(2 * math.pi) * 0.01
    mean = float(weights @ every[:at])
    deviation = math.sqrt(times * max(1e-300, float(weights @ every[:at] ** 2) - mean * mean))
    # of a sum that is seldom more than one of them their size counts, not the deviation
    near = min(1 / deviation, 4 / float(every[at]))
    inside = x <= float(_outcomes(mu, rate, left, np.array([min(top, 600.0)]))[0])
    grid = np.geomspace(0.01, 1e4, 80) / epsilon
    density = np.exp(below[inside] - x[inside] ** 2 / 2) / math.sqrt(2 * math.pi) * 0.01
    with np.errstate(over="ignore", invalid="ignore"):
        moments = times * (np.expm1(np.outer(grid + 1, every[inside])) @ density)
        scores = moments - grid * epsilon + contour.chernoff_factor(grid)
    tilt = float(grid[int(np.nanargmin(np.where(np.isnan(scores), np.inf, scores)))])
    larges: dict[int, _Large | None] = {}
    for longest in (each for each in (4, 6, 8, 12, 16, 24) if each >= longest):
        twice = tilt * top > 30 and longest <= 8
        most = min(cells * (2 if twice else 1), _LONGEST // min(longest, 12) - 2)
        if most not in larges:
            larges[most] = _large((mu, rate, cut, left), top, tilt, most)
        large, some = larges[most], min(longest, times - 1)
        if large is None or some == times:
            return None
        rest = CutSample(mu, rate, cut, left=left)
        split = _Split(times, large, rest, some, epsilon)
        # what more add is to be little beside the largest of the terms, which is about its bound
        logs, log_rest = split._log_bounds(epsilon)
        if log_rest < max(split.guess(epsilon), float(logs.max()) - 5) + math.log(_LEFT * 10):
            small = _line(rest, large.step, times - some, max(tilt, near), deviation)
            if left and small is not None:  # losses fall far as well
                tilts = [small.tilt / 5**k for k in (1, 2, 3)]
                tilts = [each for each in tilts if each * (top - epsilon) > _DIGITS]
                lines = (
                    _line(rest, large.step, times - some, each, deviation, 8 * _NODES)
                    for each in tilts
                )
                small = evolve(small, wider=tuple(each for each in lines if each is not None))
            return None if small is None else evolve(split, small=small)
    return None


def _room(found: _Steps, epsilon: float) -> float:
    """Return how far above epsilon a step is to be capped: the others' sum is hardly ever less."""
    mu, rate, left, times = found
    if left:  # and next to nothing happens again
        far = _far(math.log(_AGAIN / times) - epsilon)
        loss = float(losses((mu, rate, far, left), np.array([far]))[0][0])
        return max(epsilon * (1 + 1e-6), loss - epsilon)
    most = times * -math.log1p(-rate) * (1 + 1e-9) + 1e-12
    for room in (np.geomspace(1e-3, 1.0, 13) * most).tolist():
        if _falls(mu, rate, times, room) < math.log(_LEFT):
            return float(room)
    return most


@frozen(slots=False, eq=False, kw_only=True)
class _Partial(contour.Composition):
    """Small losses, whose masses are less than 1."""

    lost: float

    def missing(self) -> float:
        """Return what K(c) lacks of that of laws."""
        return self.lost


def _line(
    rest: CutSample, step: float, least: int, tilt: float, deviation: float, most: int = _NODES
) -> _Small | None:
    """Return the small losses with their nodes; None where their moments do not decay."""
    period = max(36 / tilt, 24 * deviation)
    points = np.array([tilt], dtype=np.complex128)
    value, error = rest.log_moment(points)
    if not error[0] * least < 0.1:
        return None
    log_p, log_q = _log_masses(rest.law)
    # K(c) of the law of small losses alone, whose losses are taken from the logs of both masses
    lost = least * (tilt * (log_q - log_p) - log_p)
    composed = _Partial(families=((CutSample, ((rest, least),)),), lost=lost)
    place = contour.Place(tilt, least * float(value.real[0] + error[0]), period, ())
    cut = contour._cut(composed, place, -32.0)
    if cut is None:
        return None
    span = _smooth(max(64, math.ceil(period / step)))
    turn = 2 * math.pi / (span * step)
    count = math.ceil(cut[0] / turn) + 1
    if count > most:
        return None
    nodes = np.asarray(tilt + 1j * turn * np.arange(count + 1), dtype=np.complex128)
    values, errors = _alike(rest, nodes + 1)
    return _Small(rest.law, step, tilt, span, values, errors, cut[1] + 1e-9)


def _smooth(least: int) -> int:
    """Return a length from ``least`` on whose transform is fast."""
    return min(some * (1 << max(1, math.ceil(math.log2(least / some)))) for some in (1, 3, 5))


_SHARES = (0.1, 0.03, 0.3, 0.01, 1.0)
"""How many large steps there may be, on average: what is tried."""

_GOOD = 0.05
"""A split of few cells that leaves this relative width of delta is good enough."""

_WANTED = 4e-7
"""The relative width of epsilon for which there are to be cells enough."""


def _best(
    steps: _Steps,
    epsilon: float,
    shares: Sequence[float],
    cells: int,
    longest: int = 0,
) -> tuple[float, _Split, tuple[float, float]] | None:
    """Return the share whose bounds at ``epsilon`` are narrowest, its split, and those bounds."""
    best: tuple[float, float, _Split, tuple[float, float]] | None = None
    for number, share in enumerate(shares):
        if number >= 3 and best is not None:
            break
        found = _split(steps, epsilon, share, cells, longest)
        if found is None:
            continue
        low, high = found.delta(epsilon)
        width = math.log(high / low) if low > 0 else math.inf
        if best is None or width < best[0]:
            best = width, share, found, (low, high)
        if width < _GOOD:
            break
    return None if best is None or not best[0] < 1 else best[1:]


_Steps = tuple[float, float, float, int]
"""mu, the rate, a where units are replaced (else 0), and the number of steps."""

_DIGITS = 8.0
"""So many nats of digits are lost on a line for losses far left."""

_KEPT = 16.0
"""Farther left a wider line is asked."""

_AGAIN = 1e-10
"""What is missed where units are replaced may be this share of delta."""


def _far(log_mass: float) -> float:
    """Return an x with about this log of a mass beyond."""
    x = np.linspace(0.0, 35.0, 351)
    return float(x[np.searchsorted(-special.log_ndtr(-x), -log_mass).clip(0, 350)])


def _only(spends: Sequence[tuple[Pair, int]]) -> _Steps | None:
    """Return the steps that are copies of one sampled Gaussian; None of others."""
    if len(spends) != 1:
        return None
    pair, times = spends[0]
    if type(pair) is ReplacedGaussianPair:
        mu, rate, left = pair.mu, pair.rate, _far(math.log(_AGAIN / times))
    elif type(pair) is SampledGaussianPair:
        mu, rate, left = pair.body.mu, pair.rate, 0.0
    else:
        return None
    if not (0.3 <= mu <= 4 and 1e-12 <= rate <= 0.1) or times < 2:
        return None
    return mu, rate, left, times


def epsilon(spends: Sequence[tuple[Pair, int]], delta: float, known: Bounds) -> Bounds | None:
    """Return a bracket of epsilon inside of one that is known; None where none is of use."""
    found = _only(spends)
    lower, upper = known.lower, known.upper
    if found is None or not (lower < 200 and upper > 0 and 1e-290 < delta < 1):
        return None
    farthest = min(upper, 299.0)
    # from a guess on, ever larger epsilons, until one is seen to be enough
    at = max(lower, _one_step(found, delta))
    rough: tuple[float, _Split, tuple[float, float]] | None = None
    for _ in range(12):
        at = min(farthest, 1.5 * at if at > 0 else farthest)
        rough = _best(found, at, _SHARES, _COARSE)
        if rough is None or at == farthest or rough[2][1] <= delta:
            break
    shares, cells, slope, longest = _SHARES[:1], _FINE, 1.0, 0
    if rough is not None:
        lower, upper, slope, width = _root(*rough[1:], delta, lower, upper, slope, rough=True)
        # the width falls as the square of the step does
        more = math.sqrt(width / (_WANTED * slope)) if 0 < width < 10 else 1.0
        shares, cells = rough[:1], _COARSE * min(max(8, math.ceil(more)), 32)
        longest = rough[1].longest
    farthest = min(upper, farthest)
    best = _best(found, farthest, shares, cells, longest) if lower <= farthest else None
    if best is not None:
        lower, upper, *_ = _root(*best[1:], delta, lower, upper, slope, rough=False)
    return Bounds(lower, upper) if lower <= upper else None


def _one_step(found: _Steps, delta: float) -> float:
    """Return the epsilon at which about one step's loss alone reaches delta; 0 for none."""
    mu, rate, left, times = found
    every = np.geomspace(1e-12, 300.0, 1200)
    x = _outcomes(mu, rate, left, every)
    q = special.ndtr(-x)
    p = (1 - rate) * q + rate * special.ndtr(mu - x)
    q = (1 - rate) * q + rate * special.ndtr(-mu - x) if left else q
    with np.errstate(invalid="ignore"):
        reached = np.flatnonzero(times * (p - np.exp(every) * q) > delta)
    return float(every[reached[-1]]) if len(reached) else 0.0


def _root(
    split: _Split,
    first: tuple[float, float],
    delta: float,
    lower: float,
    upper: float,
    slope: float,
    rough: bool,
) -> tuple[float, float, float, float]:
    """Return ends between which delta is crossed, each seen to be on its side.

    Then by how much log delta falls with log epsilon, about, and the width of log delta.
    """
    log_delta = math.log(delta)
    slack = 4 * UNIT * (1 - log_delta)
    at = split.epsilon
    some, last = first, None
    logs = (0.0, 0.0)
    for _ in range(10):
        logs = math.log(max(some[0], 1e-320)), math.log(max(some[1], 1e-320))
        upper = min(upper, at) if logs[1] <= log_delta - slack else upper
        lower = max(lower, at) if logs[0] > log_delta + slack else lower
        middle = (max(logs[0], logs[1] - 1) + logs[1]) / 2
        if last is not None and last[0] != at and last[1] != middle:
            slope = max(abs((middle - last[1]) / math.log(at / last[0])), 1e-3)
        last = at, middle
        step = (middle - log_delta) / slope
        if abs(step) * slope < (0.02 if rough else max(1e-6, 2 * (logs[1] - logs[0]))):
            break
        # not beyond what is known: half of the way instead
        moved = min(at * math.exp(max(-3.0, min(3.0, step))), split.epsilon)
        at = (at + lower) / 2 if moved <= lower else (at + upper) / 2 if moved > upper else moved
        some = split.delta(at)
    # delta's bounds move by their width: so do the ends
    spare = 0.02 / slope if rough else 0.1 * (logs[1] - logs[0]) / slope + 1e-9
    for side in (-1, 1):
        end = at * math.exp((logs[0 if side < 0 else 1] - log_delta) / slope + side * spare)
        if lower < end < min(upper, split.epsilon):
            low, high = split.delta(end, side)
            if side > 0 and math.log(max(high, 1e-320)) <= log_delta - slack:
                upper = end
            elif side < 0 and low > 0 and math.log(low) > log_delta + slack:
                lower = end
    return lower, upper, slope, logs[1] - logs[0]


_POINTS = 8
"""Of more epsilons too much time would be taken."""


def profile(spends: Sequence[tuple[Pair, int]], epsilons: Array) -> tuple[Array, Array] | None:
    """Return bounds of delta at a few epsilons; None of others."""
    found = _only(spends)
    if found is None or len(epsilons) > _POINTS:
        return None
    low, high = np.zeros(len(epsilons)), np.ones(len(epsilons))
    for i, each in enumerate(epsilons.tolist()):
        best = _best(found, each, _SHARES, _FINE) if 0 < each < 300 else None
        if best is not None:
            low[i], high[i] = best[2]
    return low, high
