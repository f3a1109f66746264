"""What is checked of a pair: tails that belong together, and moments that belong to the tails.

The range of the loss is cut into cells. The tails give each one's mass under P and under Q, and
since ``dP = e^L dQ`` the two bound what the cell adds to ``E_P e^{zL} = E_Q r^{z+1}``, from
below at its mean ratio (Jensen), from above on the chord of ``r^{z+1}`` between its ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accountants.numerics import UNIT, Array
from accountants.pair import Pair, slip

Mask = NDArray[np.bool_]

SLACK = 1e-9
"""Relative slack of comparisons, for what is rounded outward on both sides."""

_GONE = 1e-280
"""A tail below this is cut off."""

_LARGEST = 500.0
"""Exponents beyond this are not taken."""


def pair_problems(pair: Pair) -> Iterator[str]:
    """Yield a sentence for each law that a pair breaks, in either direction."""
    if pair.reversed().reversed() != pair:
        yield "the pair reversed twice is not the pair"
    yield from _mirrored(pair)
    for side, direction in (("", pair), ("reversed: ", pair.reversed())):
        cells = Cells(direction)
        # without any spread there is no scale at which moments could be compared
        lossless = not cells.spread() > 1e-250
        for check in (_tails, _ends) if lossless else _CHECKS:
            yield from (side + problem for problem in check(direction, cells))


class Cells:
    """The range of a pair's loss, cut; each cell ``(low, high]`` with its masses."""

    def __init__(self, pair: Pair) -> None:
        edges = _edges(pair)
        self.above = pair.above(edges)
        self.below = pair.below(edges)
        # relative error of a tail: the pair's own, and that of rounding the edges
        self.error = pair.tail_error() + 32 * UNIT * (1 + float(np.abs(edges).max()))
        self.edges = edges
        # n edges make n + 1 cells; the first and the last are unbounded
        self.low, self.high = np.append(-np.inf, edges), np.append(edges, np.inf)
        self.p, self.p_wrong = self._masses(self.above[0])
        self.q, self.q_wrong = self._masses(self.above[1])
        # the loss at the cell's mean ratio
        with np.errstate(divide="ignore", invalid="ignore"):
            # log of the cell's mass under P over that under Q: by Jensen a point of the cell
            mean = np.where(self.p > 0, np.log(self.p) - np.log(self.q), -np.inf)
        self.mean = np.clip(np.where(np.isnan(mean), self.low, mean), self.low, self.high)

    def _masses(self, above: Array) -> tuple[Array, Array]:
        # the error of a difference is that of both tails, and is kept beside the mass
        left, right = np.append(1.0, above), np.append(above, 0.0)
        return np.maximum(left - right, 0.0), self.error * (left + right) + 1e-299

    def spread(self) -> float:
        """Return about the standard deviation of the loss under P."""
        inner = slice(1, -1)
        weight, loss = self.p[inner], self.mean[inner]
        centre = float(weight @ loss)
        return max(math.sqrt(float(weight @ (loss - centre) ** 2)), 1e-300)

    def largest(self) -> float:
        """Return the largest modulus of an end."""
        return float(np.abs(self.edges).max())

    def renyi_floor(self, order: float) -> float:
        """Return a lower bound of ``D_order(P || Q)``; 0 where a float cannot hold it.

        ``E_Q r^a - 1 = E_Q f`` with ``f = r^a - 1 - a (r - 1)``, which is not negative.
        """
        if not order * self.largest() < _LARGEST:
            return 0.0
        loss = np.where(np.isfinite(self.mean), self.mean, 0.0)
        # f >= 0, so every cell adds at least its mean's f (Jensen: f is convex in r)
        gain = np.expm1(order * loss) - order * np.expm1(loss)
        wrong = 8 * UNIT * (np.abs(np.expm1(order * loss)) + order * np.abs(np.expm1(loss)))
        # masses and f are moved down by their errors: a lower bound
        least = np.maximum(self.q - self.q_wrong, 0.0) * np.maximum(gain - wrong, 0.0)
        # a mass that is wrong moves the mean ratio too: the slope in P is f'(r) = a (r^(a-1) - 1)
        moved = self.p_wrong * order * np.abs(np.expm1((order - 1) * loss))
        total = float(np.sum(np.maximum(least - moved, 0.0)))
        return max(0.0, math.log1p(total) / (order - 1) * (1 - SLACK))

    def moment(self, z: complex) -> tuple[complex, float]:
        """Return ``E_P e^{zL}`` and how far off it may be; the real part of z not negative.

        The chord of ``e^{zL}`` against ``{1, e^{-L}}`` on a cell of width h is off by at most
        ``|z (z+1)| h^2 e^h / 8`` times the largest modulus there.
        """
        low, high = self.edges[:-1], self.edges[1:]
        # grow is e^h - 1 for a cell of width h
        p, grow = self.p[1:-1], np.expm1(high - low)
        # E_P e^-L in the cell fixes how its mass under P is shared by its ends
        share = np.expm1(high - self.mean[1:-1]) / np.where(grow > 0, grow, 1.0)
        at_low = np.clip(share, 0.0, 1.0)
        values = p * (at_low * np.exp(z * low) + (1 - at_low) * np.exp(z * high))
        # the largest modulus of e^{zL} on the cell, as Re z >= 0
        top = np.exp(z.real * high)
        # the chord's error on a cell, as in the docstring
        bend = abs(z * (z + 1)) * (high - low) ** 2 * (1 + grow) / 8
        turn = abs(z) * np.minimum(high - low, 64 * UNIT * (1 + np.abs(high)))
        wrong = float(np.sum(p * top * np.minimum(bend + turn, 2.0)))
        wrong += float(np.sum(np.minimum(4 * self.p_wrong[1:-1] + self.q_wrong[1:-1], 1.0) * top))
        # below the first edge e^{zL} is at most its value there
        outside = float(self.p[0]) * math.exp(z.real * float(self.edges[0]))
        return complex(values.sum()), wrong + outside


def _edges(pair: Pair) -> Array:
    low, high = _end_of_loss(pair, -1.0), _end_of_loss(pair, 1.0)
    # the scale of the loss, never 0, so that the grid below exists
    size = max(abs(low), abs(high), 1e-300)
    # dense near 0, where most of the mass of many small losses lies
    near = np.geomspace(1e-9 * size, size, 400)
    quantiles = _quantiles(pair, low, high)
    # a step past rounding, so that atoms at the ends get cells of their own
    tiny = 16 * UNIT * (1 + size) if size > 1e-12 else 1e-6 * size
    ends = [low - tiny, low + tiny, high - tiny, high]
    every = np.concatenate([np.linspace(low, high, 1500), near, -near, quantiles, ends])
    return np.unique(np.clip(every, low - tiny, high))


def _end_of_loss(pair: Pair, side: float) -> float:
    """Return how far the loss goes: its end, or where its tail is gone."""
    end = pair.top() if side > 0 else pair.bottom()
    if math.isfinite(end):
        return end

    def mass(loss: float) -> float:
        point = np.array([loss])
        return float(pair.above(point)[0][0] if side > 0 else pair.below(point)[1][0])

    # doubling until the tail is gone, then bisection to where it goes
    far = 1e-12
    while mass(side * far) > _GONE and far < 1e12:
        far *= 2
    near = far / 2
    for _ in range(30):
        middle = (near + far) / 2
        near, far = (middle, far) if mass(side * middle) > _GONE else (near, middle)
    return side * far


def _quantiles(pair: Pair, least: float, most: float) -> Array:
    """Return losses at which P's tail crosses 200 levels between 0 and 1."""
    share = np.linspace(0.001, 0.999, 200)
    low, high = np.full_like(share, least), np.full_like(share, most)
    # bisection of all levels at once: the tail falls in the loss
    for _ in range(50):
        middle = (low + high) / 2
        above = pair.above(middle)[0] > share
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def _tails(pair: Pair, cells: Cells) -> Iterator[str]:
    """Tails lie in [0, 1], fall or rise, are complementary, and have ``dP = e^L dQ``."""
    edges, slack = cells.edges, cells.error
    for law, above, below in zip("PQ", cells.above, cells.below, strict=True):
        for name, tail in ((f"{law}(L > l)", above), (f"{law}(L < l)", below)):
            if not np.all((tail >= 0) & (tail <= 1 + slack)):
                yield f"{name} leaves [0, 1]"
        yield from _first(
            # each of two tails may be off by the slack
            above[1:] > above[:-1] * (1 + 2 * slack) + 1e-299,
            edges,
            f"{law}(L > l) rises",
        )
        yield from _first(
            below[:-1] > below[1:] * (1 + 2 * slack) + 1e-299, edges, f"{law}(L < l) falls"
        )
        yield from _first(above + below > 1 + 2 * slack, edges, f"{law}(L > l) + {law}(L < l) > 1")
        # the two events overlap on (a, b) and cover everything
        short = above[:-1] + below[1:] < 1 - 2 * slack
        yield from _first(short, edges, f"{law}(L > a) + {law}(L < b) < 1 with a < b, about")
    inner = slice(1, -1)
    p, q, low, high = (x[inner] for x in (cells.p, cells.q, cells.low, cells.high))
    p_wrong, q_wrong = cells.p_wrong[inner], cells.q_wrong[inner]
    with np.errstate(over="ignore"):
        # dP = e^L dQ on each cell (low, high]: P <= e^high Q and P >= e^low Q, past the errors
        much = p - p_wrong > np.exp(high) * (q + q_wrong) * (1 + SLACK)
        little = (p + p_wrong) * np.exp(-low) * (1 + SLACK) < q - q_wrong
    yield from _first(much, edges, "P's mass exceeds e^L times Q's")
    yield from _first(little, edges, "P's mass falls short of e^L times Q's")


def _first(broken: Mask, edges: Array, problem: str) -> Iterator[str]:
    if np.any(broken):
        yield f"{problem} at a loss of {float(edges[int(np.argmax(broken))]):.6g}"


def _ends(pair: Pair, cells: Cells) -> Iterator[str]:
    """Nothing lies beyond the ends, but for the slip that tails are allowed."""
    top, bottom = pair.top(), pair.bottom()
    if not bottom <= top:
        yield f"its bottom {bottom} is above its top {top}"
    if math.isfinite(top) and np.any(pair.above(_past(top, 1.0))):
        yield f"the loss exceeds its top, {top}"
    if math.isfinite(bottom) and np.any(pair.below(_past(bottom, -1.0))):
        yield f"the loss goes below its bottom, {bottom}"


def _past(end: float, side: float) -> Array:
    point = np.array([end])
    return point + side * 2 * slip(point)


def _atoms(pair: Pair, cells: Cells) -> Iterator[str]:
    """Atoms, located by halving the heaviest cells, lie on integer multiples of the spacing."""
    spacing = pair.spacing()
    if spacing is None:
        return
    # 1 + : the index among all cells, the first of which was left out
    for cell in 1 + np.argsort(-cells.p[1:-1])[:24]:
        low, high = float(cells.low[cell]), float(cells.high[cell])
        # keep the heavier half: an atom stays, a density thins out
        for _ in range(60):
            middle = (low + high) / 2
            p = pair.above(np.array([low, middle, high]))[0]
            low, high = (low, middle) if p[0] - p[1] > p[1] - p[2] else (middle, high)
        # how closely a float can say where the atom is
        near = 64 * UNIT * cells.largest()
        # no atom left, or one at 0, which is a multiple of every spacing
        if p[0] - p[2] < 1e-9 + 4 * cells.error or abs(high) < near:
            continue
        if abs(high - spacing * round(high / max(spacing, 5e-324))) > near:
            yield f"the loss has an atom at {high:.12g}, not a multiple of {spacing:.12g}"
            return


def _points(cells: Cells) -> Iterator[complex]:
    """Yield where moments are compared: what floats hold, at the scale of the loss."""
    scale = cells.spread()
    tilts = {0.25, 1.0, 4.0, 16.0, min(1e6, 1 / scale), min(1e6, 3 / scale)}
    for tilt in sorted(tilts):
        if (tilt + 1) * cells.largest() < _LARGEST:
            # real points: moments, as the Renyi divergences read them
            yield complex(tilt)
    for turn in (0.3, 1.0, 3.0):
        # imaginary points: the characteristic function, at angles of order 1
        yield complex(0.0, turn / scale)
        if 3 * cells.largest() < _LARGEST:
            yield complex(1.0, turn / scale)


def _moments(pair: Pair, cells: Cells) -> Iterator[str]:
    at_ends = pair.log_moment(np.array([0.0, -1.0], dtype=np.complex128))
    if at_ends is None:
        return
    for end, value, error in zip((0, -1), *at_ends, strict=True):
        # E_P e^0 = 1, and E_P e^{-L} is Q's mass where P has some: 1 for pairs without one-sided
        # atoms
        if not abs(_turned(complex(value))) <= error + 1e-12:
            yield f"log E_P e^(zL) = {value} at z = {end}, not 0"
    for z in _points(cells):
        # the loss is real, so conjugate points have conjugate moments
        pair_z = np.array([z, z.conjugate()])
        (value, mirrored), errors = pair.log_moment(pair_z) or at_ends
        if not abs(_turned(mirrored - value.conjugate())) <= 2 * float(errors.max()) + 1e-12:
            yield f"log-moments at z = {z} and its conjugate are not conjugate"
        yield from _against_tails(pair, cells, z, complex(value), float(errors[0]))


def _turned(value: complex) -> complex:
    """Return the logarithm less integer multiples of 2 pi i."""
    return complex(value.real, math.remainder(value.imag, 2 * math.pi))


def _against_tails(
    pair: Pair, cells: Cells, z: complex, value: complex, error: float
) -> Iterator[str]:
    # a logarithm known no better, or too large a moment, decides nothing
    if not error < 0.1 or value.real > _LARGEST:
        return
    exact, wrong = cells.moment(z)
    wrong += _beyond(pair, cells, z.real)
    # the promised error of the logarithm, as one of the moment
    moved = abs(np.exp(value)) * math.expm1(error + SLACK)
    if not abs(np.exp(value) - exact) <= wrong + moved:
        off = abs(np.exp(value) - exact)
        yield (
            f"E_P e^(zL) at z = {z:.6g} is {np.exp(value):.9g}, but its tails make {exact:.9g}: "
            f"apart by {off:.2g}, of which {wrong + moved:.2g} may be rounding"
        )


def _beyond(pair: Pair, cells: Cells, tilt: float) -> float:
    """Return what lies above the last edge, by Chernoff's bound at a larger tilt."""
    if not cells.above[0][-1] > 0:
        return 0.0
    best = math.inf
    # Chernoff: E e^{tL} 1[L > l] <= e^{-s l} E e^{(t+s) L} for every s > 0
    for more in (1.0, 4.0, 16.0):
        log_moment = pair.log_moment(np.array([complex(tilt + more)]))
        if log_moment is not None:
            best = min(
                best,
                float(log_moment[0][0].real + log_moment[1][0]) - more * float(cells.edges[-1]),
            )
    return math.exp(min(best, 700.0))


def _sums(pair: Pair, cells: Cells) -> Iterator[str]:
    z = np.array([complex(0.5), complex(0.25, 1 / cells.spread())])
    # five as 3 + 2 at once, against five times one
    one = pair.log_moment(z)
    many = type(pair).log_moments(((pair, 3), (pair, 2)), z)
    if one is None or many is None:
        return
    for alone, error, total, wrong in zip(*one, *many, strict=True):
        if not abs(_turned(5 * alone - total)) <= 5 * error + wrong + 1e-12 * (1 + abs(total)):
            yield f"log_moments adds up five to {total}, log_moment makes {5 * alone}"


def _decay(pair: Pair, cells: Cells) -> Iterator[str]:
    """The promised fall holds on a grid, and falls."""
    # distances along the vertical line, in units of one over the loss's spread
    beyond = np.geomspace(0.01, 1e4, 60) / cells.spread()
    for tilt in (-0.5, 0.5, 2.0):
        log_moments = pair.log_moment(tilt + 1j * np.append(0.0, beyond))
        if log_moments is None or not abs(tilt) * cells.largest() < _LARGEST:
            return
        promised = pair.decay(tilt, beyond)
        if not (np.all(promised <= 0) and np.all(np.diff(promised) <= SLACK)):
            yield f"the decay on Re z = {tilt} is positive, or rises"
        wrong = log_moments[1][1:] + log_moments[1][0]
        fall = log_moments[0].real[1:] - log_moments[0].real[0] - wrong
        # a moment known no better contradicts nothing
        fall = np.where(wrong < 0.1, fall, -np.inf)
        # a promise beyond t is one at each later point
        yield from _first(
            fall > np.maximum(promised, -1e300) + SLACK * (1 + np.abs(promised)),
            beyond,
            f"the moment on Re z = {tilt} is larger than its decay promises; Im z in place of",
        )


def _mirrored(pair: Pair) -> Iterator[str]:
    other, cells = pair.reversed(), Cells(pair)
    # the reversed loss is -L under Q: its upper tails are the lower ones here
    slack = 4 * (cells.error + other.tail_error())
    for name, ours, theirs in (
        ("above", other.above(-cells.edges), cells.below),
        ("below", other.below(-cells.edges), cells.above),
    ):
        for mine, yours in ((ours[0], theirs[1]), (ours[1], theirs[0])):
            if np.any(np.abs(mine - yours) > slack * (mine + yours) + 1e-290):
                yield f"the reversed pair's {name} is not the pair's other tail, mirrored"
                break
    z = np.array([0.5 + 0j, 0.25 + 1j, -0.5 + 2j])
    # E_Q e^{-zL} = E_P e^{(-1-z)L}
    one, two = pair.log_moment(-1 - z), other.log_moment(z)
    if one is not None and two is not None:
        for a, e, b, f in zip(*one, *two, strict=True):
            if not abs(_turned(a - b)) <= 2 * (e + f) + 1e-12:
                yield "the reversed pair's log-moments are not the pair's at -1 - z"
                return


_CHECKS = (_tails, _ends, _atoms, _moments, _sums, _decay)
