r"""The sampled Gaussian without its largest losses: many steps in which a unit seldom takes part.

With ``R = 1 - q + q r``, ``r = e^{mu x - mu^2/2}`` under ``x ~ N(0, 1)``, the moments
``E_P e^{cL} = E R^{c+1}`` are astronomical at a large c, where q is small: of outcomes so far out
that no delta is met there. What is cut off beyond ``x = b`` has the mass ``(1-q) Phi(-b) + q
Phi(mu - b)`` under P, and ``Phi(-b)`` under Q, which counts for the reversed pair. Of n steps the
hockey-stick is at least that of what is left, and at most that and n times this mass, as
``delta(eps) = E (1 - e^{eps - L})_+`` is an expectation of what lies between 0 and 1. What is left
has moments that a contour can use:

``m(s) = E[R^s; x <= b]``, ``s = 1 + z``,

by Gauss's rule of 24 points on panels of [-a, b]. On the ellipse around a panel of half-width w,
whose semi-axes are 2.125 w and ``y = 1.875 w`` (their sum, rho, is 4), ``|R|`` lies between ``1 - q
+ q r cos(mu y)`` at the left end and ``1 - q + q r`` at the right one, ``|arg R| <= mu y q r / (1 -
q + q r cos(mu y))``, which rises in r, and the normal density's modulus is at most ``e^{y^2/2}``
times that at the real part. The rule is then off by at most ``8 M w 4^-48 / (1 - 1/4)``, M the
bound of the integrand. Left of -a ``|R^s - 1| <= 1 + (1-q)^{min(0, Re s)}``, as R is
between 1 - q and 1.

Where a unit is *replaced*, P is ``(1-q) N(0, 1) + q N(mu, 1)`` and Q is ``(1-q) N(0, 1) +
q N(-mu, 1)``, and the same is said of ``R = n / d``, n and d their densities over that of N(0, 1):
``n = 1 - q + q r(x)`` and ``d(x) = n(-x)``. Losses fall as far as they rise, so the least are cut
off as well: ``m(s) = E_Q[R^s; -a <= x <= b]``, the integral of ``phi d R^s = phi n^s d^{1-s}``. On
an ellipse d is bounded as n is, from the other side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import special
from accountants.losses.sampled_gaussians import Grid, Nodes, line_sums, real_sums, summed
from accountants.numerics import UNIT, Array, Complex, expm1, gauss_rule, log1p
from accountants.pair import Pair, decay_from_points, decay_of_parts, suprema, uniform_parts

_LEFT = 14.0
"""What lies farther left has a mass below 1e-44."""

_MOST = 2**15
"""No more nodes than this for one moment."""

_BATCH = 2**18


@frozen
class CutSample(Pair):
    """A sampled Gaussian's losses at outcomes up to ``cut``; ``0 < rate <= 1/2``, mu at most 30.

    Its masses add up to less than 1. It is for `accountants.distribution.contour` alone.
    ``mirrored`` is the reversed pair, whose loss is ``-log R``, with P and Q exchanged; of a unit
    that has another value ``left`` is positive, and outcomes go from ``-left`` to ``cut``.
    """

    mu: float
    rate: float
    cut: float
    mirrored: bool = False
    left: float = 0.0

    @property
    def law(self) -> Law:
        """Return what the functions below ask for."""
        return self.mu, self.rate, self.cut, self.left

    def top(self) -> float:
        """Return the largest loss, about."""
        if self.mirrored:
            return -math.log1p(-self.rate)
        return float(losses(self.law, np.array([self.cut]))[0][0])

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q[R^{z+1}; x <= b]``, mirrored ``log E_Q[R^{-z}; x <= b]``."""
        return cut_log_moment(self.law, -z if self.mirrored else z + 1)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum: on the real line or on one line the nodes of a pair serve all points."""
        points, total = np.ravel(z), np.zeros(np.size(z), dtype=np.complex128)
        error = np.zeros(len(points))
        for pair, times in spends:
            assert isinstance(pair, CutSample)
            value, wrong = _alike(pair, -points if pair.mirrored else points + 1)
            total = total + times * value
            error = error + times * (wrong + 2 * UNIT * np.abs(value)) + UNIT * np.abs(total)
        return total.reshape(np.shape(z)), (error * (1 + 1e-9)).reshape(np.shape(z))

    @classmethod
    def missing(cls, spends: Sequence[tuple[Pair, int]]) -> float:
        """Return about minus the log of the mass that is left."""
        pairs = [(pair, times) for pair, times in spends if isinstance(pair, CutSample)]
        cut = np.array([pair.cut for pair, _ in pairs])
        q = special.ndtr(-cut)
        rate = np.array([0.0 if pair.mirrored else pair.rate for pair, _ in pairs])
        mass = (1 - rate) * q + rate * special.ndtr(np.array([p.mu for p, _ in pairs]) - cut)
        mass = mass + np.array([tails(pair.law)[2] for pair, _ in pairs])
        return -float(np.array([times for _, times in pairs]) @ np.log1p(-mass))

    @classmethod
    def quick_decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return the bounds from uniform parts alone, few of them."""
        total = np.zeros(len(beyond))
        for pair, times in spends:
            assert isinstance(pair, CutSample)
            a = np.array([-tilt if pair.mirrored else tilt + 1], dtype=np.complex128)
            value, error = _alike(pair, a)
            if error[0] < 0.1:
                most = float(value[0].real + error[0])
                parts = _parts_below(pair.law, float(a[0].real), most, 301)
                total += times * decay_of_parts(*parts, beyond)
        return total * (1 - 1e-12)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return bounds from values and from uniform parts."""
        a = -tilt if self.mirrored else tilt + 1
        parts = _parts(self.law, a)
        points = _suprema(self.law, a, float(beyond.min()), float(beyond.max()))
        return decay_from_points(points, parts, beyond)


Law = tuple[float, float, float, float]
"""mu, the rate, the cut, and where outcomes begin of a unit that is replaced (0 of no such)."""


def cut_sample(
    mu: float, rate: float, lost: float, mirrored: bool = False, replaced: bool = False
) -> tuple[CutSample, float] | None:
    """Return what is left of a sampled Gaussian, and a bound of the mass that is lost.

    Parameters
    ----------
    lost
        About how much may be lost, under P, or mirrored under Q.
    """
    if not (0 < rate <= 0.5 and 1e-3 <= mu <= 30 and lost > 1e-290):
        return None
    points = np.linspace(0.0, 38.0 + mu, 2000)
    mass = special.ndtr(-points)
    if not mirrored:
        left = (1 - rate) * mass + rate * special.ndtr(-mu - points) if replaced else 0.0
        mass = (1 - rate) * mass + rate * special.ndtr(mu - points) + left
    below = np.flatnonzero(mass <= lost)
    if not len(below):
        return None
    at = int(below[0])
    # the tails of the normal law are within 1e-12
    missing, cut = float(mass[at]) * (1 + 1e-9) + 1e-300, float(points[at])
    return CutSample(mu, rate, cut, mirrored, cut if replaced else 0.0), missing


def tails(law: Law) -> tuple[float, float, float, float]:
    """Return P's and Q's masses right of the cut, then left of where the outcomes begin."""
    mu, rate, cut, left = law
    far, moved = special.ndtr(-cut), special.ndtr(mu - cut)
    if not left:
        return float((1 - rate) * far + rate * moved), float(far), 0.0, 0.0
    opposite = special.ndtr(-mu - cut)
    before, less, more = (special.ndtr(each - left) for each in (0.0, -mu, mu))
    return (
        float((1 - rate) * far + rate * moved),
        float((1 - rate) * far + rate * opposite),
        float((1 - rate) * before + rate * less),
        float((1 - rate) * before + rate * more),
    )


def _left(law: Law) -> float:
    return -law[3] if law[3] else -_LEFT


def _lost(law: Law) -> float:
    """Return Q's mass of all that is cut off."""
    return sum(tails(law)[1::2])


def losses(law: Law, x: Array) -> tuple[Array, Array]:
    """Return ``log R``, and log d; each within 16 units, beside the rounding of log r."""
    mu, rate, _, left = law
    if not left:
        return _losses(mu, rate, x), np.zeros_like(x)
    below = _losses(mu, rate, -x)
    return _losses(mu, rate, x) - below, below


def panels_between(x: Array, mu: float) -> NDArray[np.int64]:
    """Return in how many panels each cell between rising outcomes is cut for `on_panels`.

    Gauss's rule of 12 points is within ``64/15 M 8^-22 / (1 - 1/64)`` on the ellipse whose
    semi-axes add up to 8 (Trefethen 2019, Thm 19.3); there the integrands are at most e^{room}
    times their least on the panel: axes of 4.0625 w and 3.9375 w, |phi| by its real part and
    e^{y^2/2}, and |R| by R at the right end, whose log has a slope of at most mu; of replaced units
    n by itself there, d by itself at the left end.
    """
    widest = min(1.0, 17.0 / (5.1 * (float(np.abs(x).max()) + mu) + 8))
    return np.ceil(np.diff(x) / widest).astype(np.int64)


def on_panels(
    law: Law, x: Array, panels: NDArray[np.int64], top: float
) -> tuple[Array, Array, Array, float]:
    """Return losses and logs of Q's density over that of the weights at the nodes of all panels.

    Then the weights, by the density of dx over sqrt(2 pi); and a relative bound of the rounding of
    x^2, of log r (of n and of d) and of the loss, which is at most ``top``, with the rule's error.
    """
    mu, rate, _, left = law
    far = float(np.abs(x).max())
    inside = np.arange(panels.sum()) - np.repeat(np.cumsum(panels) - panels, panels)
    half = np.repeat(np.diff(x) / (2 * panels), panels)
    centre = np.repeat(x[:-1], panels) + half * (2 * inside + 1)
    nodes, weights = gauss_rule(12)
    at = centre[:, None] + half[:, None] * nodes
    loss, below = (each.reshape(at.shape) for each in losses(law, at.ravel()))
    logs = (2 if left else 1) * (mu * far + mu * mu + abs(math.log(rate))) + top
    wrong = UNIT * (400 + 16 * far * far + 32 * logs)
    return loss, below - at * at / 2, half[:, None] * weights / math.sqrt(2 * math.pi), wrong


def _losses(mu: float, rate: float, x: Array) -> Array:
    """Return ``log R`` within 16 units of itself, beside the rounding of log r."""
    body = mu * x - mu * mu / 2
    with np.errstate(over="ignore"):
        near = np.log1p(rate * np.expm1(np.minimum(body, 50.0)))
    far = math.log(rate) + body + np.log1p((1 - rate) / rate * np.exp(-np.maximum(body, 50.0)))
    return np.asarray(np.where(body < 50, near, far), dtype=np.float64)


def _alike(pair: CutSample, s: Complex) -> tuple[Complex, Array]:
    """Return the log-moments of points that are all real or all on one line."""
    value, error = np.zeros(len(s), dtype=np.complex128), np.full(len(s), np.inf)
    law = pair.law
    if not np.isfinite(s).all():
        return value, error
    on_line = bool(s.imag.any())
    if on_line and not (s.real == s.real[0]).all():
        return cut_log_moment(law, s)
    lost = np.array([_lost(law)])
    sides = (
        [np.arange(len(s))]
        if on_line
        else [np.flatnonzero(s.real >= 0), np.flatnonzero(s.real < 0)]
    )
    for some in sides:
        if not len(some):
            continue
        a = s.real[some]
        size = 2.0 ** math.ceil(math.log2(max(1.0, float(np.abs(s[some]).max()))))
        edges = _edges(law, size, _octave(float(a.min())))
        if not len(edges):
            continue
        x, loss, log_masses, slip, off, half, centre = _nodes(law, edges)
        each = (96 + summed(len(x)) + 8 * (x * x + np.abs(log_masses))) * UNIT + off
        nodes = Nodes(loss[None], slip[None], log_masses[None], each[None])
        # what lies left, R being between 1 - q and 1 there; of the rounding of what is lost
        most = 1 + np.exp(np.minimum(np.maximum(-a, 0.0) * -math.log1p(-pair.rate), 700.0))
        outside = 0.0 if pair.left else 1.1 * float(special.ndtr(-_LEFT))
        rest = most * outside + 1e-9 * lost + 1e-300
        if on_line:
            far = np.array([complex(a[0], float(np.abs(s.imag).max()))])
            missing = rest[:1] + _remainder(law, far, centre, half)
            turns = s.imag
            sums = line_sums(nodes, float(a[0]), turns, Grid.of(turns), missing, lost)
        else:
            missing = rest + _remainder(law, a.astype(np.complex128), centre, half)
            real = real_sums(nodes, a, np.zeros(1), missing[None], lost)
            sums = real[0].astype(np.complex128), real[1]
        good = np.abs(s[some]) * slip.max() < 1  # |e^x - 1| <= 2 |x| there
        value[some] = np.where(good, sums[0][0], 0.0)
        error[some] = np.where(good, sums[1][0], np.inf)
    return value, error


def cut_log_moment(law: Law, s: Complex) -> tuple[Complex, Array]:
    """Return ``log E_Q[R^s; x <= b]`` and bounds of its error."""
    points = np.ravel(s)
    value, error = np.zeros(len(points), dtype=np.complex128), np.full(len(points), np.inf)
    good = np.isfinite(points)
    octave = np.ceil(np.log2(np.maximum(np.abs(points), 1.0)))
    for group in np.unique(octave[good]).tolist():
        some = np.flatnonzero(good & (octave == group))
        edges = _edges(law, float(2.0**group), _octave(float(points.real[some].min())))
        if not len(edges):
            continue
        for part in np.array_split(some, -(-len(some) * len(edges) * 24 // _BATCH)):
            value[part], error[part] = _panels(law, points[part], edges)
    return value.reshape(np.shape(s)), error.reshape(np.shape(s))


def _octave(least: float) -> float:
    """Return a power of 2 that is at most a positive number, else 0."""
    return 2.0 ** math.floor(math.log2(least)) if least >= 1 else 0.0


@lru_cache(maxsize=4096)
def _edges(law: Law, size: float, least: float) -> Array:
    """Return edges between which the density varies little, and ``R^s`` by some e-folds.

    By the more, the smaller it is: ``|s|`` is up to ``size``, and ``Re s`` at least ``least``.
    None where they would be too many.
    """
    x = np.linspace(_left(law), law[2], 801)
    # how many panels there are up to each x: one for each unit of x, of log r, and of |s| L / 10
    loss, below = losses(law, x)
    small = x * x / 2 - below + least * np.maximum(0.0, -loss) - size * np.maximum(0.0, loss)
    small = np.maximum(0.0, np.minimum(small[1:], small[:-1]))
    folds = np.diff(loss) / 10 / (1 + small / 20)
    each = np.diff(x) * max(1.0, law[0] / 1.2) + size * folds
    count = np.concatenate([[0.0], np.cumsum(each)])
    if not (count[-1] + 2) * 24 <= _MOST:
        return np.empty(0)
    return np.interp(np.linspace(0, count[-1], 1 + math.ceil(float(count[-1]))), count, x)


@cache
def _rule() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(24)


def _nodes(law: Law, edges: Array) -> tuple[Array, ...]:
    """Return nodes, losses there, logs of masses; errors of losses, of d; half-widths, centres."""
    (mu, rate, _, left), (nodes, weights) = law, _rule()
    half, centre = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    x = (centre[:, None] + half[:, None] * nodes).ravel()
    loss, below = losses(law, x)
    log_masses = np.log((half[:, None] * weights).ravel()) - x * x / 2 - math.log(2 * math.pi) / 2
    # d L / d x is mu times the share of q r in R: the loss's own rounding, that of log r by its
    # share, and of the place of the node
    far = 8 * UNIT * (mu * np.abs(x) + mu * mu + abs(math.log(rate)))
    log_r = math.log(rate) + mu * x - mu * mu / 2
    slip = 16 * UNIT * np.abs(loss + below) + far * np.minimum(1.0, np.exp(log_r - loss - below))
    if not left:
        return x, loss, log_masses, slip, np.zeros_like(x), half, centre
    # log d has errors of the same kind, and those of both are the loss's
    off = 16 * UNIT * np.abs(below)
    off = off + far * np.minimum(1.0, np.exp(log_r - 2 * mu * x - below))
    return x, loss, log_masses + below, slip + off, off, half, centre


def _panels(law: Law, s: Complex, edges: Array) -> tuple[Complex, Array]:
    """Return the log-moments by panels between edges."""
    x, loss, log_masses, slip, off, half, centre = _nodes(law, edges)
    masses = np.exp(log_masses)
    exponents = s[:, None] * loss
    large = exponents.real > 40  # there R^s - 1 is R^s, and overflows alone
    with np.errstate(over="ignore", invalid="ignore"):
        grown = np.exp(exponents.real + log_masses)
        terms = expm1(np.where(large, 0.0, exponents)) * masses
        if large.any():
            terms = np.where(large, grown * np.exp(1j * exponents.imag), terms)
        moment = terms.sum(axis=1)
        moved = 2 * np.abs(s) * (grown * slip).sum(axis=1)
        # each term's, each mass's, and those of a sum by halves of blocks
        each = 256 + 8 * (x * x + np.abs(log_masses)) + off / UNIT
        rounded = (np.abs(terms) * each).sum(axis=1) * UNIT
        rounded = rounded + 1e-17 * np.where(large, grown, 0.0).sum(axis=1)
        rule = _remainder(law, s, centre, half)
        # R lies between 1 - q and 1 there
        most = 1 + np.exp(np.minimum(np.maximum(-s.real, 0.0) * -math.log1p(-law[1]), 700.0))
        outside = 0.0 if law[3] else 1.1 * most * float(special.ndtr(-_LEFT))
        # E[R^s; x <= b] = 1 - Phi(-b) + E[R^s - 1; x <= b]
        missing = _lost(law)
        wrong = (moved + rounded + rule + outside + 1e-9 * missing) * (1 + 1e-9) + 1e-300
        value, error = log1p(moment - missing, wrong)
    good = np.isfinite(value) & np.isfinite(error)
    good &= np.abs(s) * slip.max() < 1  # |e^x - 1| <= 2 |x| there
    return np.where(good, value, 0.0), np.where(good, error, np.inf)


def _remainder(law: Law, s: Complex, centre: Array, half: Array) -> Array:
    """Return the bound of the rule's error, all panels together."""
    (mu, rate, _, left), y, reach = law, 1.875 * half, 2.125 * half
    low, high, angle = _on_ellipses(mu, rate, centre - reach, centre + reach, y)
    # both signs of log |R|
    a, imaginary = s.real[:, None], np.abs(s.imag)[:, None]
    grown, mass = np.maximum(a * low, a * high) + imaginary * angle, np.zeros(len(half))
    if left:  # |n^s d^{1-s}|, and |d|
        low, mass, angle = _on_ellipses(mu, rate, -centre - reach, -centre + reach, y)
        grown = grown + np.maximum((1 - a) * low, (1 - a) * mass) + imaginary * angle
    # the nearest point to 0 of the panel's box
    near = np.maximum(0.0, np.abs(centre) - reach)
    density = y * y / 2 - near * near / 2 - math.log(2 * math.pi) / 2
    # of R^s - 1; e^{1e-6} covers all rounding
    rule = np.log(8 * half / (1 - 1 / 4)) - 48 * math.log(4) + 1e-6
    logs = np.logaddexp(grown, mass) + density + rule + 1e-9 * (1 + np.abs(grown))
    return np.asarray(np.exp(np.minimum(logs, 700.0)).sum(axis=1), dtype=np.float64)


def _on_ellipses(
    mu: float, rate: float, left: Array, right: Array, y: Array
) -> tuple[Array, Array, Array]:
    """Return bounds of ``log |1 - q + q r|`` on boxes, from below and above, and of its angle."""
    turn = np.cos(np.minimum(mu * y, 1.5))
    log_least, log_most = mu * left - mu * mu / 2, mu * right - mu * mu / 2
    log_rest, log_rate = math.log1p(-rate), math.log(rate)
    low = np.logaddexp(log_rest, log_rate + log_least + np.log(turn))
    high = np.logaddexp(log_rest, log_rate + log_most)
    share = log_rate + log_most - np.logaddexp(log_rest, log_rate + log_most + np.log(turn))
    angle = mu * y * np.minimum(1.0, np.exp(np.minimum(share, 50.0)))
    return low, high, np.where(mu * y < 1.5, angle, np.inf)


@lru_cache(maxsize=256)
def _suprema(law: Law, a: float, first: float, last: float) -> tuple[Array, Array]:
    """Return points t, ``first`` the first, and bounds of ``log |phi|`` from each of them on."""

    def square(t: Array) -> Array:
        points = np.asarray(a + 1j * np.concatenate([[0.0], t]), dtype=np.complex128)
        value, error = cut_log_moment(law, points)
        logs = value.real[1:] + error[1:] - value.real[0] + error[0]
        most = np.exp(np.minimum(0.0, np.where(np.isfinite(logs), 2 * logs, 0.0)))
        return np.asarray(most * (1 + 8 * UNIT), dtype=np.float64)

    def uniform(t: Array) -> Array:
        return decay_of_parts(*_parts(law, a), t)

    return suprema(square, uniform, _variance(law, a), first, last)


def _variance(law: Law, a: float) -> float:
    """Return an upper bound of the loss's variance under the law proportional to R^a.

    For any m and h, ``E (L - m)^2 <= 2 (E cosh(h (L - m)) - 1) / h^2``, of moments at a +- h.
    """
    best = math.inf
    for h in (abs(a) / 2, abs(a) / 8, abs(a) / 64):
        points = np.array([a, a - h, a + h], dtype=np.complex128)
        value, error = cut_log_moment(law, points)
        middle, left, right = value.real.tolist()
        slack = float(error.sum()) + 8 * UNIT * (abs(left) + abs(middle) + abs(right))
        spread = (left + right) / 2 - middle
        if slack < 0.1 and spread < 300:
            best = min(best, 2 * math.expm1(max(0.0, spread) + 2 * slack) / (h * h))
    return best * (1 + 1e-9) if best < math.inf else 1e300


@lru_cache(maxsize=256)
def _parts(law: Law, a: float) -> tuple[Array, Array]:
    """Return the weights and widths of uniform parts under the density of the loss.

    On a cell of x the density of x is at least ``min(phi) min(R^a) / E R^a``, both minima at an
    end, and the loss moves by at most ``mu q r / R`` at its right end. Of a unit that is replaced
    the density is ``phi d``, d least at an end as well, and the loss moves also by
    ``mu q r(-x) / d``, at most that at the left end.
    """
    value, error = cut_log_moment(law, np.array([a], dtype=np.complex128))
    if not error[0] < 0.1:
        return np.zeros(1), np.zeros(1)
    return _parts_below(law, a, float(value[0].real) + float(error[0]), 2001)


def _parts_below(law: Law, a: float, log_moment: float, points: int) -> tuple[Array, Array]:
    """Return the uniform parts from an upper bound of the log-moment, on so many points."""
    (mu, rate, _, left), x = law, np.linspace(_left(law), law[2], points)
    loss, below = losses(law, x)
    log_r = math.log(rate) + mu * x - mu * mu / 2
    log_share = np.minimum(log_r - loss - below, 0.0)[1:]
    if left:
        log_share = np.logaddexp(log_share, np.minimum(log_r - 2 * mu * x - below, 0.0)[:-1])
    log_density = -x * x / 2 - math.log(2 * math.pi) / 2
    low = np.minimum(log_density[:-1], log_density[1:]) + np.minimum(a * loss[:-1], a * loss[1:])
    low = low + np.minimum(below[:-1], below[1:])
    low = low - log_moment - math.log(mu) - log_share
    return uniform_parts(low - 1e-9, loss)
