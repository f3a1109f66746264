r"""The moments of many sampled Gaussians at once, on the real line or on one parallel to the axis.

As in `accountants.losses.sampled_gaussian`, ``M(s) = E R^s`` under ``x ~ N(0, 1)``, with
``R = 1 - q + q r``, ``r = e^{mu x - mu^2/2}`` and ``l = log R``, by the trapezoid rule with step h
at nodes ``h j`` from -X to Y.

*Aliases.* For a strip of half-width ``y < pi / mu`` the rule is within
``2 I / (e^{2 pi y / h} - 1)``, where I bounds the integral of the integrand's modulus on
``Im x = +-y`` (Trefethen and Weideman 2014, Thm 5.1). There the density's modulus is ``e^{y^2/2}``
times itself, and with ``theta = mu y``

* ``R(Re x) cos(theta/2) <= |R| <= R(Re x)``, and ``|R| >= 1 - q + q r cos(theta)``,
* ``|arg R| = atan2(q r sin(theta), 1 - q + q r cos(theta))``, which rises with r up to theta.

So at real a >= 0 ``I <= e^{y^2/2} (M(a) + 1)``. At a < 0 and at ``a + it`` I is a sum over cells of
x, in each of which all factors are bounded by an end. Where units seldom take part, ``q r`` is
small wherever the density is not, and R hardly turns: such pairs ask for few nodes, however large t
is.

*Products.* At points ``t = t_1 + t_2`` of a grid ``e^{itl} - 1 = E_1 E_2 + E_1 + E_2`` with
``E_k = e^{i t_k l} - 1``: so that M(a + it), less M(a), at n nodes of a contour is a product of two
matrices with some ``sqrt n`` rows each, all of whose entries keep their digits next to 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import special
from accountants.losses.sampled_gaussian import (
    parts_below,
    sampled_gaussian_log_moment,
)
from accountants.numerics import UNIT, Array, Complex, log1p
from accountants.pair import decay_of_parts

_LARGEST = 12.0
"""Of a larger mu other formulas are better."""

_DIGITS = 38.0
"""All aliases together are about e^-38 of the moments."""

_MOST = 2**13
"""No pair takes more nodes."""

_BATCH = 2**18

_FEW = 8
"""Of fewer pairs nodes cost less than another rule, so that powers farther apart share one."""

_LARGE = 300.0
"""Beyond this exponent the largest term is taken out."""

_NEAR, _FAR = np.linspace(0.0, 1.0, 65), np.linspace(0.0, 1.0, 17)
"""Ends of cells, as shares of what they cover."""


def log_moments_of_each(mu: Array, rate: Array, times: Array, s: Complex) -> tuple[Complex, Array]:
    """Return ``log E R^s`` of each pair at each point, shape (n, m), and bounds of their errors.

    The bounds are infinite where another formula must be asked: of points off one line, of large
    mu, of astronomical moments.
    """
    value = np.zeros((len(mu), len(s)), dtype=np.complex128)
    error = np.full(value.shape, np.inf)
    some = np.flatnonzero((mu <= _LARGEST) & (rate > 0) & (rate < 1))
    if not len(some) or not np.isfinite(s).all():
        return value, error
    m, q, digits = mu[some], rate[some], _DIGITS + math.log(max(1.0, float(times.sum())))
    if not s.imag.any():
        for group in _powers_alike(s.real, 6 if len(m) < _FEW else 3):
            at = np.ix_(some, group)
            value[at], error[at] = _real(m, q, s.real[group], digits)
    elif (s.real == s.real[0]).all():
        value[some], error[some] = _on_line(m, q, float(s.real[0]), s.imag, digits)
    return value, error


def _powers_alike(a: Array, octaves: int) -> list[NDArray[np.intp]]:
    """Return which powers have one sign and about one size, so that they share their nodes."""
    sizes = np.floor(np.log2(np.maximum(np.abs(a), 1.0)) / octaves)
    sort = np.where(a < 0, -1.0, 1.0) * (1 + sizes)
    if (sort == sort[0]).all():
        return [np.arange(len(a))]
    return [np.flatnonzero(sort == each) for each in np.unique(sort)]


def sampled_gaussian_log_moments(
    mu: Array, rate: Array, times: Array, s: Complex
) -> tuple[Complex, Array]:
    """Return the sum of ``times * log E R^s`` over all pairs, and a bound of its error."""
    points = np.ravel(s)
    value, error = log_moments_of_each(mu, rate, times, points)
    for i in np.flatnonzero(~np.isfinite(error).all(axis=1)).tolist():
        some = np.flatnonzero(~np.isfinite(error[i]))
        one = sampled_gaussian_log_moment(float(mu[i]), float(rate[i]), points[some])
        value[i, some], error[i, some] = np.where(np.isfinite(one[1]), one[0], 0.0), one[1]
    total = times @ value
    wrong = times @ (error + (len(times) + 8) * UNIT * np.abs(value))
    return total.reshape(np.shape(s)), (wrong * (1 + 1e-9)).reshape(np.shape(s))


def sampled_gaussian_falls(mu: Array, rate: Array, times: Array, a: float, beyond: Array) -> Array:
    """Return bounds of the sum of ``times * log |E R^{a + it'} / E R^a|`` for all ``t' >= t``.

    Those of uniform parts (`accountants.losses.sampled_gaussian`), which no moment is needed for.
    """
    total = np.zeros(len(beyond))
    value, error = log_moments_of_each(mu, rate, times, np.array([a], dtype=np.complex128))
    for i in np.flatnonzero(error[:, 0] < 0.1).tolist():
        most = float(value[i, 0].real + error[i, 0])
        parts = parts_below(float(mu[i]), float(rate[i]), a, most)
        total += float(times[i]) * decay_of_parts(*parts, beyond)
    return total * (1 - 1e-12)


@frozen
class _Rule:
    """The rule for each pair: step, numbers of nodes left and right of 0, and its errors.

    Parameters
    ----------
    step, left, right
        h, and how many nodes there are on either side.
    aliased
        The rule's error: in units of ``E R^a + 1`` on the real line, else by itself.
    outside
        What lies beyond the nodes, of the integral and of the rule: pairs by points.
    """

    step: Array
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    aliased: Array
    outside: Array

    def chunks(self, each: int) -> Iterator[NDArray[np.intp]]:
        """Return pairs that ask for about as many nodes, at most so many numbers of ``each``."""
        count = self.left + self.right + 1
        order = np.argsort(count)
        order = order[count[order] <= _MOST]
        first = 0
        while first < len(order):
            least = count[order[first]]
            last = int(np.searchsorted(count[order], 1.3 * least + 8, side="right"))
            last = min(last, first + max(1, _BATCH // int(least * each)))
            yield order[first:last]
            first = last


def summed(count: int) -> float:
    """Return the relative rounding, in units, of sums of so many terms in blocks of `_BLOCK`."""
    return _BLOCK + 16 + count / _BLOCK


_BLOCK = 64


@frozen
class Nodes:
    """Nodes of some pairs, (p, N): the loss there, its error, and the log of the rule's mass.

    ``each`` is the relative rounding of a mass, with that of the sum.
    """

    loss: Array
    slip: Array
    log_mass: Array
    each: Array

    @staticmethod
    def of(mu: Array, rate: Array, rule: _Rule, some: NDArray[np.intp]) -> Nodes:
        """Return those of the trapezoid rule, for some of the pairs."""
        left, right = int(rule.left[some].max()), int(rule.right[some].max())
        if not 0 <= left + right <= 2**24:
            raise OverflowError("a tilt beyond the range that sums are made for")
        x = rule.step[some, None] * np.arange(-left, right + 1, dtype=np.float64)
        m, q = mu[some, None], rate[some, None]
        log_r = m * x - m * m / 2
        loss = log_mixture(log_r, q)
        share = np.exp(np.minimum(np.log(q) + log_r - loss, 0))
        # the exponent's rounding reaches the loss by the share of r in R
        slip = share * 8 * UNIT * (np.abs(m * x) + m * m) + 8 * UNIT * np.abs(loss)
        log_mass = np.log(rule.step[some, None] / math.sqrt(2 * math.pi)) - x * x / 2
        each = (64 + summed(x.shape[1]) + 4 * x * x) * UNIT
        return Nodes(loss, slip, log_mass, each)


def log_mixture(log_r: Array, rate: Array) -> Array:
    """Return ``log(1 - q + q r)`` to a few units of itself."""
    small = np.minimum(log_r, 50)
    near = np.log1p(rate * np.expm1(small))
    if (rate > 0.5).any():  # 1 + q (r - 1) cancels where r is small; a sum of positives does not
        sure = np.log((1 - rate) + rate * np.exp(small))
        near = np.where((rate > 0.5) & (log_r < -0.5), sure, near)
    if not (log_r > 50).any():
        return near
    far = np.log(rate) + log_r + np.log1p((1 - rate) / rate * np.exp(-np.maximum(log_r, 50)))
    return np.where(log_r < 50, near, far)


# --- on the real line


def _real(mu: Array, rate: Array, a: Array, digits: float) -> tuple[Complex, Array]:
    """Return log-moments at real powers of one sign."""
    rule = _real_rule(mu, rate, a, digits)
    value, error = np.zeros((len(mu), len(a))), np.full((len(mu), len(a)), np.inf)
    for some in rule.chunks(len(a)):
        nodes = Nodes.of(mu, rate, rule, some)
        value[some], error[some] = real_sums(nodes, a, rule.aliased[some], rule.outside[some])
    return value.astype(np.complex128), error


def _real_rule(mu: Array, rate: Array, a: Array, digits: float) -> _Rule:
    least, most = float(a.min()), float(a.max())
    if least < 0:  # |R|^a <= 1 + |R|^least for all of them, and their moments are at least 1
        step, aliased = _line_step(mu, rate, least, 0.0, digits)
        aliased = 2 * aliased
    else:
        y = np.minimum(0.95 * math.pi / mu, math.sqrt(2 * digits))
        step = 2 * math.pi * y / (digits + y * y / 2)
        turned = 2 * math.pi * y / step
        aliased = 2.001 * np.exp(y * y / 2 - turned + 1e-9 * (1 + turned)) / -np.expm1(-turned)
    left, right, outside = _outside(mu, rate, a, least, most, step, digits)
    return _Rule(step, left, right, aliased, outside)


def _outside(
    mu: Array, rate: Array, a: Array, least: float, most: float, step: Array, digits: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return how many nodes there are on either side, and bounds of what lies beyond.

    Right of Y, at a > 0: up to a far Y' in cells, in each of which ``R^a + 1`` and the density are
    bounded by an end; beyond by ``R <= r (q + (1-q) / r_Y')``, r^a moving the mean by a mu. There
    the bounds fall, so that the rule's sum is at most their integral.
    """
    tail = math.sqrt(2 * digits + 2)
    log_rest, log_rate, phi = np.log1p(-rate), np.log(rate), special.log_ndtr
    # left, where R < 1: at a < 0 by R >= 1 - q, or by R >= q r with r^a moving the mean
    shifted = tail - min(0.0, least) * mu
    flat = np.sqrt(tail * tail + 2 * min(0.0, least) * log_rest)
    left = np.ceil(np.minimum(shifted, flat) / step)
    x = left * step
    by_flat = least * log_rest + phi(-x)
    by_shift = least * log_rate + least * (least - 1) * mu * mu / 2 + phi(-least * mu - x)
    by_shift = np.where(x >= -least * mu, by_shift, np.inf)
    below = np.minimum(by_flat, by_shift) if least < 0 else phi(-x)
    below = np.logaddexp(below, phi(-x))
    # right, where R > 1; at a < 0 R^a is below 1 there
    start = np.maximum(tail, mu / 2)
    if not most > 0:
        right = np.ceil(start / step)
        above = phi(-(step * right))
        outside = _doubled(np.logaddexp(below, above)[:, None] * np.ones(len(a)))
        return left.astype(np.intp), right.astype(np.intp), outside
    edges = step * np.ceil((start + most * mu * _FAR[:, None]) / step)
    end = edges[-1]
    loss = log_mixture(mu * edges - mu * mu / 2, rate)
    spans = 2 * np.diff(edges, axis=0) + step
    with np.errstate(divide="ignore"):
        cells = (
            np.log(2 * spans) + most * loss[1:] - edges[:-1] ** 2 / 2 - 0.5 * math.log(2 * math.pi)
        )
    cells = np.logaddexp.accumulate(cells[::-1], axis=0)[::-1]
    inverse = np.exp(np.minimum(600.0, mu * mu / 2 - mu * end))

    def beyond(power: Array) -> Array:
        """Return the log of the bound right of Y', for powers of at least 1."""
        moved = power * (power - 1) * mu * mu / 2 + phi(power * mu - end)
        return np.asarray(power * np.log(rate + (1 - rate) * inverse) + moved)

    log_end = phi(-end)
    far = beyond(np.array([[max(1.0, most)]]))[0]
    total = np.logaddexp(np.logaddexp(cells, far), np.log(2.0) + log_end)
    near = total[: len(edges) - 1] <= -digits
    at = np.where(near.any(axis=0), np.argmax(near, axis=0), len(edges) - 1)
    columns = np.arange(len(mu))
    right = np.round(edges[at, columns] / step).astype(np.intp)
    cut = np.where(at < len(edges) - 1, total[np.minimum(at, len(edges) - 2), columns], -np.inf)
    # where the nodes go all the way each power has its own bound; below 1 R^a <= 1 + R
    own = np.logaddexp(beyond(np.maximum(a, 1.0)[:, None]), log_end).T
    above = np.where((at < len(edges) - 1)[:, None], cut[:, None], own)
    return left.astype(np.intp), right, _doubled(np.logaddexp(below[:, None], above))


def _doubled(logs: Array) -> Array:
    """Return twice the exponentials, for the integral and for the rule, and room for rounding."""
    return np.asarray(4 * np.exp(np.minimum(700.0, logs + 1e-9 * (1 + np.abs(logs)))))


def real_sums(
    nodes: Nodes, a: Array, aliased: Array, outside: Array, lost: Array | float = 0.0
) -> tuple[Array, Array]:
    """Return log-moments of some pairs at powers of one sign, and bounds of their errors.

    Parameters
    ----------
    aliased, outside
        The rule's error in units of the moment and 1, and what it leaves out.
    lost
        What the masses of the law lack to 1.
    """
    loss, each = nodes.loss, nodes.each
    grown = a[:, None] * loss[:, None]
    logs = grown + nodes.log_mass[:, None]
    top = logs.max(axis=2)
    far = top > _LARGE
    shift = np.where(far, top, 0.0)
    power = np.exp(logs - shift[..., None])
    mass = np.exp(nodes.log_mass)[:, None]
    small = np.abs(grown) < 1
    terms = np.where(small, mass * np.expm1(np.where(small, grown, 0.0)), power - mass)
    size = power.sum(axis=2)
    # the loss's error moves R^a by |a| times it; then the rounding of each term and of the sum
    moved = np.einsum("pmj,pj->pm", power, nodes.slip)
    least = np.einsum("pmj,pj->pm", np.maximum(power, mass), each * np.abs(loss))
    plain = np.einsum("pmj,pj->pm", power + mass, each)
    wrong = 2 * np.abs(a) * moved + np.minimum(np.abs(a) * least, plain)
    aliased = aliased[:, None]
    inflation = 1 / np.maximum(1e-300, 1 - aliased)
    rest = outside * np.exp(-shift)
    wrong = wrong + aliased * (size * (1 + 1e-9) + rest + np.exp(-shift)) * inflation + rest
    near, near_error = log1p((terms.sum(axis=2) - lost).astype(np.complex128), wrong)
    if not far.any():
        return near.real, near_error
    # of an astronomical moment the 1 is nothing, and exponents are rounded by units of their size
    exponents = 8 * UNIT * (np.abs(a) * np.abs(loss).max(axis=1)[:, None] + np.abs(top) + 64)
    relative = wrong / size + exponents
    value = np.log(size) + shift
    bound = np.where(relative < 0.5, 2 * relative + 16 * UNIT * (1 + np.abs(value)), np.inf)
    return np.where(far, value, near.real), np.where(far, bound, near_error)


# --- on a line


def _on_line(mu: Array, rate: Array, a: float, t: Array, digits: float) -> tuple[Complex, Array]:
    """Return log-moments at ``a + it``."""
    rule = _line_rule(mu, rate, a, float(np.abs(t).max()), digits)
    grid = Grid.of(t)
    value = np.zeros((len(mu), len(t)), dtype=np.complex128)
    error = np.full(value.shape, np.inf)
    for some in rule.chunks(len(grid.high) + len(grid.low)):
        nodes = Nodes.of(mu, rate, rule, some)
        missing = (rule.aliased + rule.outside[:, 0])[some]
        value[some], error[some] = line_sums(nodes, a, t, grid, missing)
    return value, error


@frozen
class Grid:
    """Points as sums of one of ``high`` and one of ``low``: ``high[row] + low[column]``."""

    high: Array
    low: Array
    row: NDArray[np.intp]
    column: NDArray[np.intp]

    @staticmethod
    def of(t: Array) -> Grid:
        """Return the grid of multiples of one step, but for rounding; else all are high."""
        size = np.abs(t)
        step = float(size[size > 0].min(initial=math.inf))
        multiple = np.rint(t / step)
        even = np.all(np.abs(t - multiple * step) <= 8 * UNIT * size) and (multiple >= 0).all()
        if not even or len(t) < 8 or multiple.max() > 2**40:
            return Grid(t, np.zeros(1), np.arange(len(t)), np.zeros(len(t), dtype=np.intp))
        width = math.ceil(math.sqrt(len(t)))
        blocks, row = np.unique(np.floor(multiple / width), return_inverse=True)
        column = (multiple - np.floor(multiple / width) * width).astype(np.intp)
        return Grid(
            blocks * (width * step), step * np.arange(width, dtype=np.float64), row.ravel(), column
        )


def _line_rule(mu: Array, rate: Array, a: float, t: float, digits: float) -> _Rule:
    """Return the rule for points up to ``a + it``."""
    step, aliased = _line_step(mu, rate, a, t, digits)
    left, right, outside = _outside(mu, rate, np.array([a]), a, a, step, digits)
    return _Rule(step, left, right, aliased, outside)


def _line_step(mu: Array, rate: Array, a: float, t: float, digits: float) -> tuple[Array, Array]:
    """Return the widest step of some strips, for points up to ``a + it``, and the rule's error."""
    q, m = rate[:, None, None], mu[:, None, None]
    shares = np.array([0.95, 0.75, 0.5, 0.3, 0.15, 0.06])[:, None]
    y = np.minimum(shares * math.pi / m, shares * math.sqrt(2 * digits))
    theta = m * y
    reach, turned = max(0.0, a) * m, t * theta
    first = -math.sqrt(2 * digits + 60) - np.sqrt(2 * np.minimum(0.0, a) * np.log1p(-q))
    # where the density is something, and as far as the turn of R makes something of it
    middle = reach + math.sqrt(2 * digits)
    last = middle + 3 + np.sqrt(2 * turned)
    near = first + (middle - first) * _NEAR + 0 * turned
    edges = np.concatenate([near, middle + (last - middle) * _FAR[1:]], axis=2)
    log_r = m * edges - m * m / 2
    odds = np.exp(np.minimum(log_r, 300.0) + np.log(q) - np.log1p(-q))
    loss = log_mixture(log_r, q)
    angle = np.arctan2(odds * np.sin(theta), 1 + odds * np.cos(theta)) if t else 0.0 * odds
    if a >= 0:
        body = a * loss[..., 1:]
    else:
        least = loss[..., :-1] + np.log(np.cos(theta / 2))
        other = np.log1p(-q) + np.log1p(odds[..., :-1] * np.maximum(np.cos(theta), 0.0))
        body = a * np.where(np.cos(theta) >= 0, np.maximum(least, other), least)
    nearest = np.maximum(0.0, np.maximum(edges[..., :-1], -edges[..., 1:]))
    log_widths = np.log(np.diff(edges, axis=2) / math.sqrt(2 * math.pi))
    logs = log_widths - nearest**2 / 2 + np.logaddexp(body + t * angle[..., 1:], 0.0)
    # beyond: left R is below 1, at a < 0 at least 1 - q; right as on the real line
    phi = special.log_ndtr
    end = edges[..., -1:]
    below = phi(edges[..., :1]) + t * angle[..., :1]
    below = below + min(0.0, a) * (np.log1p(-q) + np.log(np.cos(theta / 2)))
    if a > 1:
        share = np.log(q + (1 - q) * np.exp(np.minimum(600.0, m * m / 2 - m * end)))
        above = a * share + a * (a - 1) * m * m / 2 + phi(a * m - end)
    elif a >= 0:  # R^a <= 1 + R, and q r or 1
        above = np.logaddexp(np.log(2.0) + phi(-end), np.log(q) + phi(m - end))
    else:
        above = phi(-end) + a * np.log(np.cos(theta / 2))
    parts = np.concatenate([logs, below, above + turned, phi(-end), phi(edges[..., :1])], axis=2)
    most = parts.max(axis=2, keepdims=True)
    total = (most + np.log(np.exp(parts - most).sum(axis=2, keepdims=True)) + y * y / 2)[..., 0]
    total = total + 1e-9 * (1 + np.abs(total))
    y = y[..., 0]
    steps = 2 * math.pi * y / (digits + np.maximum(total, 0.0))
    best = np.argmax(np.where(np.isfinite(steps), steps, 0.0), axis=1)
    rows = np.arange(len(mu))
    step, y, total = steps[rows, best], y[rows, best], total[rows, best]
    rounds = 2 * math.pi * y / step
    aliased = 2.001 * np.exp(np.minimum(700.0, total - rounds + 1e-9 * rounds)) / -np.expm1(-rounds)
    return step, aliased


def line_sums(
    nodes: Nodes, a: float, t: Array, grid: Grid, missing: Array, lost: Array | float = 0.0
) -> tuple[Complex, Array]:
    """Return log-moments of some pairs on a line, from products of matrices.

    Parameters
    ----------
    missing
        What the rule is off by.
    lost
        What the masses of the law lack to 1.
    """
    loss = np.ascontiguousarray(nodes.loss)
    grown, mass = a * loss, np.exp(nodes.log_mass)
    good = (grown + nodes.log_mass).max(axis=1) < _LARGE
    power = np.exp(np.minimum(grown + nodes.log_mass, _LARGE + 50))
    small = np.abs(grown) < 1
    base = np.where(small, mass * np.expm1(np.where(small, grown, 0.0)), power - mass)
    high, low = _turned(grid.high, loss), _turned(grid.low, loss)
    weighted = high * power[:, None]
    moment = ((base.sum(axis=1) - lost)[:, None] + weighted.sum(axis=2))[:, grid.row]
    if len(grid.low) > 1:
        turned = low.transpose(0, 2, 1)
        products = np.zeros((len(loss), len(grid.high), len(grid.low)), dtype=np.complex128)
        for start in range(0, loss.shape[1], _BLOCK):  # each of few terms: rounding stays small
            some = slice(start, start + _BLOCK)
            products += weighted[:, :, some] @ turned[:, some]
        moment = moment + products[:, grid.row, grid.column]
        moment = moment + (low * power[:, None]).sum(axis=2)[:, grid.column]
    # M(a) - 1: as on the real line
    each = nodes.each + 8 * UNIT * np.abs(grown)
    sizes = np.abs(loss)
    least = (np.maximum(power, mass) * each * sizes).sum(axis=1) * abs(a)
    slips = (power * nodes.slip).sum(axis=1)
    wrong = 2 * abs(a) * slips + np.minimum(least, ((power + mass) * each).sum(axis=1))
    # the rounding of both factors, of their product and of the sums: with |E_k| <= min(2, t_k |l|)
    # the three terms' sizes are together at most 8, and at most 4 t |l|
    ends = 8 * (power * each).sum(axis=1), 4 * (power * each * sizes).sum(axis=1)
    turn = np.abs(t)
    rounded = np.minimum(ends[0][:, None], ends[1][:, None] * turn)
    # of the angles, which move by t times the loss's error and by units of themselves
    angles = turn * (2 * (slips + (power * 16 * UNIT * sizes).sum(axis=1)))[:, None]
    slipped = (
        turn * (2 * abs(a)) * (power * nodes.slip * np.minimum(2.0, sizes)).sum(axis=1)[:, None]
    )
    error = (wrong + missing)[:, None] + rounded + angles + slipped
    value, bound = log1p(moment, error * (1 + 1e-9))
    known = good[:, None] & np.isfinite(bound)
    return np.where(known, value, 0.0), np.where(known, bound, np.inf)


def _turned(t: Array, loss: Array) -> Complex:
    """Return ``e^{itl} - 1``, pairs by points by nodes."""
    angle = t[:, None] * loss[:, None]
    half = np.sin(angle / 2)
    result = np.empty(angle.shape, dtype=np.complex128)
    result.real = -2 * half * half
    result.imag = np.sin(angle)
    return result
