"""The composed hockey-stick as a contour integral, in a proven bracket.

Composing pairs adds their losses, so the moments ``M(z) = E_P e^{zL}`` multiply. On any line
``Re z = c > 0``

``delta(eps) = E_P (1 - e^{eps - L})_+ = (1/2 pi) int e^{K(z) - z eps} / (z (z + 1)) dt``,

``K = log M``, ``z = c + it`` (Alghamdi, Gomez, Asoodeh, Calmon, Kosut and Sankar 2023). The
trapezoid rule with step h is, by Poisson summation with period ``p = 2 pi / h``, exactly

``S(eps) = sum_n delta(eps + n p) e^{c n p}``.

Every term is non-negative, so S is an upper bound. The others are at most
``e^{-cp} / (1 - e^{-cp})`` together for n < 0, where delta <= 1, and for n > 0, by Chernoff's
bound at any ``b > c``, ``e^{K(b) - b eps - (b - c) p} / (1 - e^{-(b - c) p}) / (1 + b)``. That
gives the lower bound. The sum is cut at ``t = T``; the rest is at most
``e^{K(c) - c eps} sup_{t >= T} |M(c+it)/M(c)| / (pi T)``, in octaves. Rounding is bounded term
by term and added to both sides. Whatever c, h and T are, the bracket holds; they are chosen to
make it narrow.

Pieces. The moments of atoms swing for ever, and are large again where they agree. The line is cut
into stretches, on each of which ``|M(c + it) / M(c)|`` is bounded by the phases of its atoms
(`Pair.decays_between`): those on which the terms add up to next to nothing are left out, their
bound is added to both sides. Different losses seldom agree, and tiny ones only far out, so that a
composition across decades asks for few nodes.

Smoothing. Where M does not decay (losses with large atoms), a Gaussian pair of a small mu = s is
composed with the others: its factor ``e^{s^2 z (z+1) / 2}`` decays. Composition with any pair only
adds to delta, so the upper bound holds as it is. What it adds is the expectation of
``g(x) = E (1 - e^{-x - Y})_+ - (1 - e^{-x})_+`` at ``x = L - eps``, Y normal with mean s^2/2 and
variance s^2: the time value of an option (Black and Scholes 1973), whose derivative in s is
``phi(x/s + s/2) <= e^{-x/2} phi(x/s)``, which grows in s; at s = 0 it is 0. So
``g(x) <= s e^{-x/2} phi(x/s)``, and by the Fourier transform of phi

``E g(L - eps) <= s^2 e^{s^2/8} (1/2 pi) int e^{K_s(z) - z eps} dt``, ``K_s = K + s^2 z (z+1)/2``,

the same integrand without ``1 / (z (z+1))``, on any line. The trapezoid rule is above this integral
too, since all of Poisson's terms are non-negative. So the lower bound loses ``O(s^2)``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants.losses.gaussian import GaussianPair
from accountants.numerics import UNIT, Array, Bounds, Complex, by_class, enclosure, up
from accountants.pair import Pair, added

Spends = Sequence[tuple[Pair, int]]
"""Pairs of one direction, with how often each is paid."""

_SMALL = 1e-13
"""The relative error that aliases and the tail are let have."""

_KEPT = 2**16
"""Of so many nodes lines are kept."""

_NODES = 2**12
"""A line that needs more nodes than this is refused."""


@frozen(slots=False, eq=False)
class Composition:
    """A multiset of pairs whose log-moments are known.

    Parameters
    ----------
    families
        The pairs with their counts, those of one class together.
    lines
        The last lines that were computed.
    refused
        The least epsilon of a question that no line without gaps was of use for, if any.
    """

    families: tuple[tuple[type[Pair], Spends], ...] = field()
    lines: deque[Line] = field(factory=deque)
    refused: deque[float] = field(factory=lambda: deque(maxlen=1))

    def keep(self, made: Line) -> None:
        """Add a line to those kept, in place of the oldest where they are too long."""
        self.lines.append(made)
        while sum(len(line.nodes) for line in self.lines) > _KEPT and len(self.lines) > 1:
            self.lines.popleft()

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return K(z) and a bound of its error."""
        total, error = np.zeros(len(z), dtype=np.complex128), np.zeros(len(z))
        for family, spends in self.families:
            moments = family.log_moments(spends, z)
            if moments is None:
                return None
            total = total + moments[0]
            # errors of sums add; the addition itself rounds by a unit of the new total
            error = error + moments[1] + 2 * UNIT * np.abs(total)
        return total, error

    def upper(self, c: Array) -> Array:
        """Return upper bounds of K at real points, infinite where nothing is known."""
        log_moment = self.log_moment(c.astype(np.complex128))
        if log_moment is None:
            return np.full(len(c), np.inf)
        # Re K(z) <= value + its error bound: an upper bound of K on the real line
        bound: Array = log_moment[0].real + log_moment[1] + 4 * UNIT * np.abs(log_moment[0])
        return np.where(np.isfinite(bound), bound, np.inf)

    def log_modulus(self, z: Complex) -> Array:
        """Return upper bounds of Re K(z), infinite where nothing is known."""
        total = np.zeros(len(z))
        for family, spends in self.families:
            bound = family.log_moduli(spends, z)
            total = total + bound + 4 * UNIT * np.abs(bound)
        total = np.where(np.isnan(total), np.inf, np.maximum(total, -1e9))
        return up(total, 4 * len(self.families))

    def units(self, reach: float) -> int:
        """Return about how many exponentials a node of modulus ``reach`` takes."""
        return sum(family.units(spends, reach) for family, spends in self.families)

    def decay(self, c: float, beyond: Array) -> Array:
        """Return bounds of ``log |M(c + it') / M(c)|`` for all ``t' >= t``."""
        total = np.zeros(len(beyond))
        for family, spends in self.families:
            total = total + family.decays(spends, c, beyond)
        # |M(c + it)| <= M(c) for a law: the ratio's log is never positive; shrunk towards 0,
        # outward
        return np.minimum(0.0, total * (1 - 1e-12))

    def quick_decay(self, c: float, beyond: Array) -> Array | None:
        """Return weaker bounds, of the families that have some at less cost; None of others."""
        total = added(kind.quick_decays(some, c, beyond) for kind, some in self.families)
        # what is left out is at most 0
        return None if total is None else np.minimum(0.0, total * (1 - 1e-12))

    def decay_between(self, c: float, starts: Array, stops: Array) -> Array:
        """Return bounds of ``log |M(c + it) / M(c)|`` for all t from each start to its stop."""
        total = np.zeros(len(starts))
        for family, spends in self.families:
            total = total + family.decays_between(spends, c, starts, stops)
        return np.minimum(0.0, total * (1 - 1e-12))

    def grid_decay(self, c: float, step: float, count: int) -> Array | None:
        """Return bounds of ``log |M(c + i n step) / M(c)|`` of families that have them at once."""
        total = added(kind.grid_decays(some, c, step, count) for kind, some in self.families)
        # what is left out is at most 0
        return None if total is None else np.minimum(0.0, total * (1 - 1e-12))

    def missing(self) -> float:
        """Return minus the log of the mass: 0, but of laws that have left something out."""
        return sum(family.missing(spends) for family, spends in self.families)

    def swing(self) -> float:
        """Return the largest loss of pairs whose moments turn without decaying; 0 for none."""
        return max(family.swing(spends) for family, spends in self.families)


def _is_large(body: object) -> bool:
    return isinstance(body, GaussianPair) and body.mu > 20


@lru_cache(maxsize=32)  # with their lines, some megabytes each at most
def composition(spends: tuple[tuple[Pair, int], ...]) -> Composition:
    """Return the pairs by families; whoever asks again finds the lines that are there.

    Of sampled Gaussians of little noise, what matters at ``eps >= 0``.
    """
    if spends and all(_is_large(getattr(pair, "body", None)) for pair, _ in spends):
        from accountants.distribution.participation import participation  # others do without

        found = participation(spends)
        if found is not None:
            return found
    return Composition(tuple((kind, tuple(some)) for kind, some in by_class(spends).items()))


@frozen(slots=False, eq=False)
class Line:
    """The integrand's nodes on one line.

    Parameters
    ----------
    tilt
        c, positive.
    step
        h.
    nodes
        ``z_n = c + i n h``, n from 0.
    values, errors
        ``K(z_n)`` and bounds of their errors.
    decays
        Bounds of ``log |M(z_n) / M(c)|``.
    tail
        Log of the bound of what lies beyond the nodes and between them where there are none, in
        units of ``e^{K(c) - c eps}``.
    chernoff
        Points b > c with upper bounds of K(b).
    smoothing
        s of the module's docstring; 0 for none.
    smooth_tail
        The bound of ``tail``, not its log, for the integrand without ``1 / (z (z+1))``.
    span
        The epsilons for which it was made.
    """

    tilt: float
    step: float
    nodes: Complex
    values: Complex
    errors: Array
    decays: Array
    tail: float
    chernoff: tuple[tuple[float, float], ...]
    smoothing: float = 0.0
    smooth_tail: float = 0.0
    span: tuple[float, float] = (0.0, math.inf)

    def near(self, epsilon: Array) -> NDArray[np.bool_]:
        """Return which epsilons it was made for, or nearly."""
        room = _NEAR / self.tilt
        return np.asarray((epsilon >= self.span[0] - room) & (epsilon <= self.span[1] + room))

    def wide(self, epsilon: Array, low: Array, high: Array) -> NDArray[np.bool_]:
        """Return where a line of its own is worth its cost, from brackets of log delta.

        A line for few epsilons is about as narrow as any other at epsilons near them.
        """
        as_narrow = self.near(epsilon) & (len(epsilon) > _ALONE)
        allowed = np.where(as_narrow, max(_WIDE, 2 * self._narrowest), _WIDE)
        return np.asarray(~(high - low <= allowed), dtype=np.bool_)

    @cached_property
    def _narrowest(self) -> float:
        if not (self.span[1] - self.span[0]) * self.tilt <= _NEAR:
            return 0.0
        low, high = self.brackets(np.array([(self.span[0] + self.span[1]) / 2]))
        width = float(high[0] - low[0])
        return width if width < 1 else 0.0

    @cached_property
    def _terms(self) -> _Terms:
        """Return what does not depend on epsilon.

        A node whose moment is lost in its rounding counts as unknown up to its decay.
        """
        z = self.nodes
        # a phase known worse than this is not used: the node then counts by its modulus alone
        usable = self.errors < 0.1
        # the two halves t > 0 and t < 0 are conjugate: twice the real part, with t = 0 counted once
        weight = np.where(np.arange(len(z)) > 0, 1.0, 0.5) / np.abs(z * (z + 1))
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.exp(np.where(usable, self.values.real - self.values[0].real, 0.0))
        # relative error of e^{K(z_n) - K(c)} / (z (z + 1)): both log-moments' errors, and rounding
        errors = 32 * UNIT * (4 + np.abs(self.values)) + self.errors + self.errors[0]
        unknowns = np.where(usable, 0.0, weight * np.exp(self.decays))
        return _Terms(
            np.where(usable, weight * grown, 0.0),
            np.where(usable, self.values.imag, 0.0) - np.angle(z) - np.angle(z + 1),
            np.where(usable, errors, 0.0),
            unknowns,
            float(unknowns.sum() * (1 + 1e-9)),
        )

    def brackets(self, epsilon: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of ``log delta(eps)``.

        A term's error x makes it wrong by at most ``e^x - 1 <= x + x^2`` of its modulus.

        Parameters
        ----------
        epsilon
            Shape (m,), any real numbers.
        """
        terms, share, turn = self._terms, self.step / math.pi, self.nodes.imag
        sizes, errors, units = terms.sizes, terms.errors, 8 * UNIT * np.abs(epsilon)
        # S(eps) of the module's docstring, in units of e^{K(c) - c eps}
        total = share * _cosines(sizes, terms.angles, turn, epsilon)
        # |e^x - 1| <= x + x^2 of each term's modulus for x <= 1; then the rounding of the sum
        # itself
        moved = sizes @ (errors + errors * errors) + (len(sizes) + 16) * UNIT * sizes.sum()
        # the angle t eps rounds by |eps| units times t, which adds to a term's error: first and
        # second order in it
        moved = moved + units * (sizes @ (turn + 2 * errors * turn))
        moved = moved + units * units * (sizes @ (turn * turn))
        # unknown nodes count by their moduli, what lies beyond T by its bound (`_cut`)
        wrong = share * (moved * (1 + 1e-9) + terms.unknown) + math.exp(self.tail)
        # the bound of e^x - 1 above needs x <= 1
        wrong = np.where(errors.max() + units * turn[-1] <= 1, wrong, np.inf)
        scale = float(self.values[0].real) - self.tilt * epsilon
        slack = float(self.errors[0]) + 8 * UNIT * (np.abs(scale) + 1 + self.tilt * np.abs(epsilon))
        # S = delta + aliases and every alias is non-negative: S is above, S less the aliases below
        lower = total - wrong - self._aliases(epsilon, scale - slack)
        if self.smoothing:
            lower = lower - self._smoothed(epsilon)
        with np.errstate(divide="ignore", invalid="ignore"):
            # scale and slack put back the units e^{K(c) - c eps}, K(c) within its own error
            high = np.log(total + wrong) + scale + slack
            low = np.where(lower > 0, np.log(lower), -np.inf) + scale - slack
        finite = np.isfinite(high) & (total + wrong > 0)
        return np.where(finite, low, -np.inf), np.where(finite, high, np.inf)

    def _smoothed(self, epsilon: Array) -> Array:
        """Return bounds of what smoothing adds, in units of ``e^{K(c) - c eps}``."""
        terms, share, turn = self._terms, self.step / math.pi, self.nodes.imag
        z = self.nodes
        ratio = np.abs(z * (z + 1))
        sizes, angles = terms.sizes * ratio, terms.angles + np.angle(z) + np.angle(z + 1)
        total = _cosines(sizes, angles, turn, epsilon)
        # as in `brackets`: each term's own error, the rounding of its angle, and of the sum
        moved = sizes @ (2 * terms.errors) + (len(sizes) + 64) * UNIT * sizes.sum()
        moved = moved + 16 * UNIT * np.abs(epsilon) * (sizes @ turn)
        unknown = float(np.where(terms.sizes > 0, 0.0, ratio * terms.unknowns).sum())
        added = share * (np.maximum(total, 0.0) + moved + unknown) + self.smooth_tail
        square = self.smoothing * self.smoothing
        return np.asarray(square * math.exp(square / 8) * added * (1 + 1e-9), dtype=np.float64)

    def towards(self, epsilon: float, log_delta: float) -> tuple[float, float]:
        """Return Halley's step from ``epsilon`` to where log delta is ``log_delta``, and a slope.

        Guesses both, from the sum alone.
        """
        terms, turn = self._terms, self.nodes.imag
        angles = terms.angles - turn * epsilon
        real, imaginary = terms.sizes * np.cos(angles), terms.sizes * np.sin(angles)
        total = float(real.sum())
        if not total > 0:
            return math.nan, -self.tilt
        turned, squared = float(turn @ imaginary) / total, float((turn * turn) @ real) / total
        slope = turned - self.tilt
        bend = self.tilt * (self.tilt - 2 * turned) - squared - slope * slope
        value = math.log(self.step / math.pi * total) + float(self.values[0].real)
        miss = value - self.tilt * epsilon - log_delta
        return -2 * miss * slope / (2 * slope * slope - miss * bend), slope

    def _aliases(self, epsilon: Array, scale: Array) -> Array:
        """Return the bound of all other terms of Poisson's sum, in units of ``e^scale``."""
        period = 2 * math.pi / self.step
        shrink = self.tilt * period
        # n < 0: delta <= 1, so sum_{n>=1} e^{-cpn} = e^{-cp} / (1 - e^{-cp})
        left = np.exp(np.minimum(600, -shrink - scale)) / -math.expm1(-shrink)
        b, moments = (np.array(part)[:, None] for part in zip(*self.chernoff, strict=True))
        fall = (b - self.tilt) * period
        # n > 0: Chernoff, delta(eps + np) <= e^{K(b) - b (eps + np)} / (1 + b), a geometric series
        # in n
        log_right = moments - b * epsilon - fall - scale - np.log1p(b)
        # any b > c bounds it, so the least of them does
        right = np.exp(np.minimum(600, log_right)) / -np.expm1(-fall)
        total: Array = (left + right.min(axis=0)) * (1 + 1e-9)
        return total


def _cosines(sizes: Array, angles: Array, turn: Array, epsilon: Array) -> Array:
    """Return ``sum_n sizes_n cos(angles_n - turn_n eps)`` at each epsilon, some at a time."""
    total, count = np.empty(len(epsilon)), max(1, 2**19 // len(sizes))
    for start in range(0, len(epsilon), count):
        some = slice(start, start + count)
        total[some] = sizes @ np.cos(angles[:, None] - turn[:, None] * epsilon[some])
    return total


@frozen(eq=False)
class _Terms:
    """The terms of a line's sum at epsilon 0, in units of ``e^{K(c)}``.

    Parameters
    ----------
    sizes, angles, errors
        Modulus, argument and bound of the relative error of each; size 0 where it is unknown.
    unknowns, unknown
        Bounds of the moduli of those, and of their sum.
    """

    sizes: Array
    angles: Array
    errors: Array
    unknowns: Array
    unknown: float


def line(
    near: Neighbourhood, epsilon: tuple[float, float], log_delta: float, scattered: bool
) -> Line | None:
    """Return a line, fit for epsilons in a range; None where none is.

    Parameters
    ----------
    near
        Where to look for it.
    epsilon
        The least and the largest epsilon that will be asked.
    log_delta
        About the log of the least delta that will be met.
    scattered
        Whether it may have gaps, and smooth, where the moments do not decay for good.
    """
    wanted = log_delta + math.log(_SMALL)
    place = near.best(epsilon, wanted)
    if place is None:
        return None
    left = wanted - (place.moment - place.tilt * epsilon[1])
    step = 2 * math.pi / place.period
    support = _contiguous(near.composed, place, left)
    if support is not None and len(support.index) > _SHORT:
        falls = near.composed.grid_decay(place.tilt, step, len(support.index))
        support = support if falls is None else evolve(support, decays=falls)
    if support is None and scattered:
        support = _scattered(near.composed, place, left)
    if support is None:
        return None
    s = support.smoothing
    nodes = np.asarray(place.tilt + 1j * step * support.index, dtype=np.complex128)
    decays, seen = support.decays, np.ones(len(nodes), dtype=np.bool_)
    if len(nodes) > _SHORT:
        first = near.composed.log_moment(nodes[:1])
        if first is None or not np.isfinite(first[1][0]):
            return None
        least = float(first[0].real[0] - first[1][0])
        decays, seen = _seen(near.composed, nodes, decays, least, s, left)
    log_moments = near.composed.log_moment(nodes[seen])
    if log_moments is None or not np.isfinite(log_moments[1][0]):
        return None
    # only nodes of unknown moment are bounded by their decay
    if not np.all(log_moments[1] < 0.1):
        falls = near.composed.decay(place.tilt, nodes.imag[1:])
        decays[1:] = np.minimum(decays[1:], falls)
    values, errors = _with_gaussian(s, nodes[seen], *log_moments)
    skipped, smooth_skipped = _left_out(nodes[~seen], decays[~seen], step)
    rest = support.rest + skipped
    made = Line(
        place.tilt,
        step,
        nodes[seen],
        values,
        errors,
        decays[seen],
        math.log(rest) + 1e-12 if rest > 0 else -math.inf,
        tuple((b, moment + _gaussian(s, b) * (1 + 1e-12)) for b, moment in place.chernoff),
        s,
        support.smooth_rest + smooth_skipped,
        epsilon,
    )
    near.composed.keep(made)
    return made


def _gaussian(s: float, c: float) -> float:
    """Return the log-moment of a Gaussian pair of mu = s."""
    return s * s / 2 * c * (c + 1)


def _with_gaussian(s: float, z: Complex, values: Complex, errors: Array) -> tuple[Complex, Array]:
    """Return the log-moments of a composition with a Gaussian pair of mu = s."""
    if s == 0:
        return values, errors
    added, error = GaussianPair.log_moments(((GaussianPair(s), 1),), z)
    values = values + added
    return values, errors + error + 2 * UNIT * np.abs(values)


@frozen(eq=False)
class _Support:
    """Where the integrand is something.

    Parameters
    ----------
    index
        The numbers of the nodes, from 0, rising.
    decays
        Bounds of ``log |M(z_n) / M(c)|`` at each, smoothing included.
    smoothing
        s of the module's docstring; 0 for none.
    rest, smooth_rest
        Bounds of the sum over all other nodes, in units of ``e^{K(c) - c eps}``, with
        ``1 / (z (z+1))`` and without.
    """

    index: Array
    decays: Array
    smoothing: float
    rest: float
    smooth_rest: float


def _contiguous(composed: Composition, place: Place, left: float) -> _Support | None:
    """Return all nodes up to where the moments have decayed for good; None where they do not."""
    step = 2 * math.pi / place.period
    cut = _cut(composed, place, left, _NODES * step)
    if cut is None:
        return None
    last, tail = cut
    count = max(8, math.ceil(last / step))
    if count > _NODES:
        return None
    index = np.arange(count + 1, dtype=np.float64)
    return _Support(index, np.zeros(count + 1), 0.0, math.exp(tail), math.inf)


def _scattered(composed: Composition, place: Place, left: float) -> _Support | None:
    """Return the nodes of all stretches of a line on which the moments may be large.

    The ends of stretches that are far out lie closer together than the largest loss turns. Where
    too many are left, a Gaussian pair is composed with the others: of the least mu that its use
    asks for.
    """
    c, step = place.tilt, 2 * math.pi / place.period
    most = min(_MOST_NODES, _WORK // max(1, composed.units(1e3)))
    if most < _FEWEST:
        return None
    ends, log_moduli = _stretches(composed, c, place.moment)
    starts = ends[:-1] * (1 - 1e-12)
    numbers = np.ceil(ends / step)
    counts = np.diff(numbers)
    # of each stretch: its nodes' 1 / |z (z + 1)| is at most that of its start
    log_sizes = np.log(step / math.pi / starts**2) + np.log(np.maximum(counts, 1e-300))
    beyond = float(composed.decay(c, ends[-1:])[0])
    enough = math.exp(left) * (_FINE / 16 / _SMALL)
    # stretches that all together leave a hundredth of that are never kept
    least = left + math.log(_FINE / 1600 / _SMALL / len(counts))
    some = np.flatnonzero(log_sizes + log_moduli > least)
    best: tuple[float, float, NDArray[np.bool_]] | None = None
    for s in (0.0, *_SMOOTHINGS):
        # |e^{s^2 z (z+1) / 2}| falls as e^{-s^2 t^2 / 2}
        logs = log_sizes[some] + log_moduli[some] - s * s / 2 * starts[some] ** 2
        logs = np.minimum(logs, 700.0)
        order = np.argsort(np.log(np.maximum(counts[some], 1e-300)) - logs)
        rest = np.cumsum(np.exp(logs[order])[::-1])[::-1]
        fits = np.cumsum(counts[some[order]]) <= most - numbers[0]
        # as many as are allowed, but none after those that leave next to nothing
        kept = int(np.argmin(np.append(fits & (rest > enough), False)))
        left_out = float(rest[kept]) if kept < len(rest) else 0.0
        left_out += 2 * math.exp(beyond - s * s / 2 * ends[-1] ** 2) / (math.pi * ends[-1])
        # relative to delta: about what is left out, and what smoothing adds
        cost = left_out * _SMALL / math.exp(left) + s * s * c * (1 + c)
        # of those that cost next to nothing the last has the fewest nodes
        if best is None or cost < max(best[0], _FINE):
            chosen = np.zeros(len(counts), dtype=np.bool_)
            chosen[some[order[:kept]]] = True
            best = cost, s, chosen
        elif cost > 16 * best[0]:
            break
    assert best is not None
    _, s, chosen = best
    if not best[0] < _POOR or numbers[0] + counts[chosen].sum() > most:
        return None
    logs = log_moduli - s * s / 2 * starts**2
    places = [np.arange(numbers[0])]
    places += [np.arange(numbers[i], numbers[i + 1]) for i in np.flatnonzero(chosen).tolist()]
    decays = np.concatenate(
        [np.zeros(int(numbers[0])), np.repeat(logs[chosen], counts[chosen].astype(int))]
    )
    sizes = np.exp(logs[~chosen]) * counts[~chosen] * (step / math.pi) * (1 + 1e-9)
    end = float(ends[-1]) * (1 - 1e-12)
    fall = math.exp(beyond - s * s / 2 * end * end)
    return _Support(
        np.concatenate(places),
        np.minimum(decays, 0.0),
        s,
        # beyond the last end: sum h / (n h)^2 is at most the integral and one term
        float((sizes / starts[~chosen] ** 2).sum()) + fall * (1 / end + step / end**2) / math.pi,
        float(sizes.sum()) + _beyond(s, end, step) if s else math.inf,
    )


@lru_cache(maxsize=2)  # the next round often stands on the same line
def _stretches(composed: Composition, tilt: float, moment: float) -> tuple[Array, Array]:
    """Return rising ends, and bounds of ``log |M(z) / M(c)|`` between them.

    The ends lie closer together as far as the largest loss's phase can be followed.
    """
    variance = 2 * (moment + composed.missing()) / (tilt * (1 + tilt))
    first = 0.5 / math.sqrt(max(variance, 1e-300))
    swing = composed.swing()
    width = 0.5 / swing if swing else math.inf
    turn = max(first, 50 * width) if swing else 1e6 * first
    near = np.geomspace(first, turn, max(2, math.ceil(50 * math.log(turn / first))))
    pairs = sum(min(256, len(spends)) for _, spends in composed.families)
    followed = min(_FOLLOWED, _WORK * 8 // pairs) if swing else 1
    middle = turn + width * np.arange(1, followed) if swing else near[:0]
    last = float(np.append(near, middle)[-1])
    end = max(1e3 * last, 1e16 * tilt, 1e16)
    far = np.geomspace(last, end, math.ceil(20 * math.log(end / last)))[1:]
    ends = np.concatenate([near, middle, far])
    bounds = composed.decay_between(tilt, ends[:-1] * (1 - 1e-12), ends[1:] * (1 + 1e-12))
    return ends, bounds


_FOLLOWED = 2**14
"""So many stretches at most follow the phase of the largest loss."""

_SMOOTHINGS = np.geomspace(1e-10, 0.3, 60)
_MOST_NODES = 2**15
_WORK = 2**19
"""At most so many log-moments are computed for a scattered line."""

_FEWEST = 2**8
"""Fewer nodes than this are not worth a scattered line."""

_FINE = 2e-8
"""A relative error of delta that is good enough."""

_POOR = 0.5
"""A line that leaves this share of delta unknown is not made."""


def _seen(
    composed: Composition, nodes: Complex, decays: Array, least: float, s: float, left: float
) -> tuple[Array, NDArray[np.bool_]]:
    """Return bounds of ``log |M(z_n) / M(c)|``, and at which nodes the integrand is something.

    Atoms that nearly agree make the moment large around the multiples of one frequency alone.

    Parameters
    ----------
    decays
        Bounds that are known already.
    least
        A lower bound of K(c), without smoothing.
    s
        The smoothing.
    left
        Log of what the tail may leave, in units of ``e^{K(c) - c eps}``.
    """
    deep = left - _DEEP + 2 * np.log(np.abs(nodes))
    some = decays > deep  # of the others enough is known
    bounds = composed.log_modulus(nodes[some]) - least + 1e-12 * (1 + abs(least))
    bounds = bounds - s * s / 2 * nodes[some].imag ** 2 * (1 - 1e-12)
    # no better than |M(z)| <= M(c) where nothing is known
    decays[some] = np.minimum(decays[some], np.minimum(0.0, bounds))
    seen = decays > deep
    seen[0] = True
    return decays, seen


def _left_out(nodes: Complex, decays: Array, step: float) -> tuple[float, float]:
    """Return bounds of the sums over nodes, with ``1 / (z (z+1))`` and without."""
    share, moduli = step / math.pi * (1 + 1e-9), np.exp(decays)
    return share * float((moduli / np.abs(nodes * (nodes + 1))).sum()), share * float(moduli.sum())


def _beyond(smoothing: float, end: float, step: float) -> float:
    """Return a bound of the sum beyond T: ``int_T^inf e^{-s^2 t^2 / 2} dt``, as the factor falls.

    That is at most ``e^{-s^2 T^2 / 2} / (s^2 T)``; and one term more.
    """
    square = smoothing * smoothing
    fall = math.exp(-min(700.0, square * end * end / 2 * (1 - 1e-12)))
    return fall * (1 / (square * end) + step) / math.pi * (1 + 1e-9) + 1e-300


_SHORT = 64
"""A line of so few nodes asks for the moments at all of them."""

_DEEP = 15.0
"""Nodes whose moduli lie so many nats below what the tail may leave are left out."""


def _cut(
    composed: Composition, place: Place, wanted: float, most: float = math.inf
) -> tuple[float, float] | None:
    """Return T, and the log of a bound of the integrand's rest beyond it, at most ``wanted``.

    ``sum_j sup decay(T_j) (1/T_j - 1/T_{j+1}) / pi`` over rising T_j from T; None where it is
    nowhere small enough. A T above ``most`` is of no use: it may be None there as well.
    """
    # K(c) is about c (1 + c) variance / 2, of a pair whose moments are 1 at 0 and at -1: a guess of
    # scale
    moment = place.moment + composed.missing()
    variance = 2 * moment / (place.tilt * (1 + place.tilt))
    first = math.sqrt(2 * max(1.0, -wanted) / max(variance, 1e-300))
    quick = np.append(_SOON, _LATE[_LATE < _FEW_TIMES])
    for multiples, decay in (
        (quick, composed.quick_decay),
        (_SOON, composed.decay),  # the nearer costs less
        (_LATE, composed.decay),
    ):
        ends = np.asarray(first * multiples, dtype=np.float64)
        falls = decay(place.tilt, ends)
        if falls is None:
            most = math.inf  # what decays at once takes no longer than the question whether it does
            continue
        # the integral of 1 / t^2 over octave j, which bounds 1 / |z (z + 1)|; decay at its left end
        # bounds |M|
        share = np.append(1 / ends[:-1] - 1 / ends[1:], 1 / ends[-1])
        rest = np.cumsum((np.exp(falls) * share)[::-1])[::-1] / math.pi
        # summed from the right: the tail from each T_j on, rounded up
        tails = np.log(rest * (1 + 1e-9) + 1e-320)
        enough = np.flatnonzero(tails <= wanted)
        if len(enough):
            return float(ends[enough[0]]), float(tails[enough[0]])
        if most < math.inf:
            if _lasts(composed, place.tilt, most, wanted):
                return None
            most = math.inf  # asked once
    return None


def _lasts(composed: Composition, tilt: float, most: float, wanted: float) -> bool:
    """Whether the moment at ``c + iT`` is so large that no end up to T leaves little enough.

    It is below every bound of the decay from such an end on, and an octave of these has at least
    .17 of 1 / T.
    """
    found = composed.log_moment(np.array([tilt, tilt + 1j * most], dtype=np.complex128))
    if found is None or not np.isfinite(found[1]).all():
        return False
    fall = float(found[0][1].real - found[0][0].real - found[1].sum())
    return fall > wanted + math.log(most * math.pi / 0.17)


_FEW_TIMES = 400.0
"""Weaker bounds of the decay may ask for so many times as many nodes as a normal law would."""

_SOON, _LATE = np.geomspace(0.7, 6.0, 12), np.geomspace(6.0, 1e6, 50)


# --- where to put the line


@frozen(eq=False)
class Place:
    """Where a line stands.

    Parameters
    ----------
    tilt, moment
        c and an upper bound of K(c).
    period
        One whose aliases are small beside delta.
    chernoff
        Points b > c with upper bounds of K(b).
    """

    tilt: float
    moment: float
    period: float
    chernoff: tuple[tuple[float, float], ...]


@frozen(eq=False)
class Neighbourhood:
    """A composition's moments at tilts around the one of Chernoff's best bound.

    Parameters
    ----------
    composed
        The composition.
    tilts, moments
        Rising points c and upper bounds of K(c), infinite where unknown.
    """

    composed: Composition
    tilts: Array
    moments: Array

    def best(self, epsilon: tuple[float, float], wanted: float) -> Place | None:
        """Return the place of the shortest period, where Chernoff's bound is close to its best.

        Farther left the terms n < 0 of Poisson's sum ask for a longer period, farther right
        the terms n > 0 do: of heavy tails much sooner than Chernoff's best tilt.
        """
        c, finite = self.tilts, np.isfinite(self.moments)
        if not finite.any():
            return None
        # both ends of the range of epsilons must lose few digits to cancellation
        near = finite & (self._gap(epsilon[0]) <= _SLACK) & (self._gap(epsilon[1]) <= _SLACK)
        excess = self.moments - c * epsilon[0] - wanted
        with np.errstate(divide="ignore", invalid="ignore"):
            # the period at which the Chernoff term of n = 1 falls to the wanted size, by the best b
            # > c
            right = np.where(c > c[:, None] * 1.01, excess / (c - c[:, None]), np.inf)
        # e^{-cp} <= e^{wanted} asks p >= -wanted / c
        period = np.maximum(-wanted / c, np.where(np.isnan(right), np.inf, right).min(axis=1))
        period = np.where(near, period, np.inf)
        at = int(np.argmin(period))
        if not period[at] < math.inf:
            return None
        above = np.flatnonzero(finite & (c > c[at] * 1.01))[:24]
        pairs = tuple((float(c[i]), float(self.moments[i])) for i in above)
        if not pairs:
            return None
        return Place(float(c[at]), float(self.moments[at]), max(float(period[at]), 1e-300), pairs)

    def _gap(self, epsilon: float) -> Array:
        """Return how far log delta's bound at each tilt lies above the best of them."""
        bound = self.moments - self.tilts * epsilon + chernoff_factor(self.tilts)
        gap: Array = bound - bound[np.isfinite(bound)].min(initial=math.inf)
        return np.where(np.isnan(gap), np.inf, gap)

    def epsilons(self, log_delta: float) -> Array:
        """Return Chernoff's bound of epsilon at each tilt."""
        return _chernoff_epsilon(self.tilts, self.moments, log_delta)

    def chernoff(self, epsilons: Array) -> Array:
        """Return Chernoff's bound of delta at each epsilon."""
        c, shape = self.tilts, chernoff_factor(self.tilts)
        # delta(eps) <= e^{K(c) - c eps} c^c / (1 + c)^{1 + c}: the maximum over y of (1 - e^{-y})
        # e^{-cy}
        paid = c * epsilons[:, None]
        noise = 16 * UNIT * (np.abs(self.moments) + np.abs(shape) + np.abs(paid))
        bound = (self.moments - paid + shape + noise).min(axis=1)
        return np.minimum(1.0, exponentials(np.where(np.isnan(bound), 0.0, bound), 1))

    def log_delta(self, epsilon: float) -> float:
        """Return about the log of delta: the best Chernoff bound, and some room."""
        bound = self.moments - self.tilts * epsilon + chernoff_factor(self.tilts)
        return float(min(0.0, bound.min())) - 4


_SLACK = 5.0
"""Beyond this what cancels in the sum would cost more digits than a shorter period saves."""


def neighbourhood(composed: Composition, first: float, last: float) -> Neighbourhood:
    """Return the moments around a range of tilts, or around one over the standard deviation."""
    tilts = _around(first, last)
    moments = composed.upper(tilts)
    at = int(np.searchsorted(tilts, first))
    variance = float(2 * (moments[at] + composed.missing()) / (tilts[at] * (1 + tilts[at])))
    least = 1 / math.sqrt(variance) if 0 < variance < math.inf else 0.0
    if first < least:
        tilts = _around(least, max(least, last))
        moments = composed.upper(tilts)
    return Neighbourhood(composed, tilts, moments)


def _around(first: float, last: float) -> Array:
    low, high = min(first, last) / 8, max(first, last) * 6
    return np.geomspace(low, high, math.ceil(4.5 * math.log2(high / low)), dtype=np.float64)


def lowest(objective: Callable[[Array], Array], start: float) -> float:
    """Return about the minimum of a function of the tilt that falls, then rises.

    Ever finer grids of the logarithm, then a parabola.
    """
    centre, step = math.log(start), math.log(4.0)
    for _ in range(40):
        x = centre + step * _STEPS
        values = objective(np.exp(x))
        at = int(np.argmin(values))
        if 0 < at < len(x) - 1:
            if step < 0.3:
                break
            step /= 4
        centre = float(x[at])
    left, middle, right = values[at - 1 : at + 2].tolist() if 0 < at < len(x) - 1 else (0.0,) * 3
    bend = left - 2 * middle + right
    shift = step * (left - right) / (2 * bend) if 0 < bend < math.inf else 0.0
    return math.exp(float(x[at]) + max(-step, min(step, shift)))


_STEPS = np.arange(-4.0, 5.0)


def saddle(composed: Composition, log_delta: float) -> tuple[float, float]:
    """Return the tilt of Chernoff's best bound of epsilon at a delta, and that bound.

    ``delta(eps) <= e^{K(c) - c eps} c^c / (1 + c)^{1 + c}`` at every c > 0.
    """

    def bound(c: Array) -> Array:
        return _chernoff_epsilon(c, composed.upper(c), log_delta)

    c = lowest(bound, _guess(composed, log_delta))
    return c, float(bound(np.array([c]))[0])


def _lower_saddle(composed: Composition, log_delta: float, most: float) -> float | None:
    """Return about `saddle`'s tilt, of those below one; None where it is not among some."""
    tilts = most * 2.0 ** -np.arange(16.0)
    every = _chernoff_epsilon(tilts, composed.upper(tilts), log_delta)
    at = int(np.argmin(every))
    return float(tilts[at]) if 0 < at < len(tilts) - 1 and every[at] < math.inf else None


def _guess(composed: Composition, log_delta: float) -> float:
    """Return the best tilt of a normal loss with K(1) for its variance."""
    if composed.missing() > 0:  # the second difference, of which the moment at 0 is a part
        before, at_0, size = composed.upper(np.array([-1.0, 0.0, 1.0])).tolist()
        second = size - 2 * at_0 + before
        size = second if 0 < second < math.inf else size + composed.missing()
    else:
        size = float(composed.upper(np.ones(1))[0])
    size = max(size, 1e-300)
    return min(max(math.sqrt(-2 * log_delta / min(size, 1e300)), 1e-6), 1e12)


def _chernoff_epsilon(c: Array, moments: Array, log_delta: float) -> Array:
    """Return Chernoff's bound of epsilon at each tilt, rounded up."""
    # the same bound, solved for eps
    shape = chernoff_factor(c)
    noise = 16 * UNIT * (np.abs(moments) + np.abs(shape) + abs(log_delta))
    bound: Array = up((moments + shape - log_delta + noise) / c)
    return np.where(np.isnan(bound), np.inf, bound)


def chernoff_factor(c: Array) -> Array:
    """Return the log of the largest value of ``e^{-cx} (1 - e^{-x})``, ``c^c / (1+c)^{1+c}``."""
    return -c * np.log1p(1 / c) - np.log1p(c)


def epsilon(spends: Spends, delta: float, *, scattered: bool = True) -> Bounds | None:
    """Return a bracket of epsilon at ``0 < delta < 1``, at worst Chernoff's; None without that."""
    return _bracket(composition(tuple(spends)), math.log(delta), scattered)


def at_most(spends: Spends, delta: float) -> float:
    """Return Chernoff's bound of epsilon at ``0 < delta < 1``, at few tilts around a guess."""
    composed, log_delta = composition(tuple(spends)), math.log(delta)
    tilts = _guess(composed, log_delta) * np.array([0.35, 0.5, 0.7, 1.0, 1.4])
    return float(_chernoff_epsilon(tilts, composed.upper(tilts), log_delta).min())


def is_heavy(spends: Spends, delta: float) -> bool:
    """Whether rare large losses make the moments astronomical where those of the bulk are not."""
    composed = composition(tuple(spends))
    tilt = _guess(composed, math.log(delta)) / 8
    # of a normal loss K(c) is c (c + 1) K(1) / 2
    moments = composed.upper(np.array([1.0, tilt]))
    return bool(tilt > 8 and moments[1] > _HEAVY * tilt * (tilt + 1) * moments[0] / 2)


_HEAVY = 30.0


@lru_cache(maxsize=8)  # asked again for a contour in pieces
def _place_of(composed: Composition, log_delta: float) -> tuple[Neighbourhood, float, float]:
    """Return the moments around Chernoff's best tilt at a delta, that tilt, and its epsilon."""
    near = neighbourhood(composed, *[_guess(composed, log_delta)] * 2)
    every = near.epsilons(log_delta)
    at = int(np.argmin(every))
    if not 4 <= at < len(every) - 8:  # the guess is far off: search
        c = _lower_saddle(composed, log_delta, float(near.tilts[4])) if at < 4 else None
        if c is None:
            c, _ = saddle(composed, log_delta)
        near = neighbourhood(composed, c, c)
        every = near.epsilons(log_delta)
        at = int(np.argmin(every))
    return near, float(near.tilts[at]), float(every[at])


def _bracket(composed: Composition, log_delta: float, scattered: bool) -> Bounds | None:
    """Return a bracket of epsilon, at worst Chernoff's; None without that."""
    near, c, highest = _place_of(composed, log_delta)
    if not highest < math.inf:
        return None
    # delta falls in eps, so at every eps >= 0 it is at most delta
    if highest <= 0:  # Chernoff's bound at epsilon 0 is delta or less
        return Bounds(0.0, 0.0)
    start, best = highest, Bounds(0.0, highest)
    for _ in range(_ROUNDS):  # of heavy tails Chernoff's epsilon is far off, and its place too
        contour = line(near, (max(0.0, start - 2 / c), start), log_delta, scattered)
        bounds = None if contour is None else _solve(contour, log_delta, start)
        if bounds is None:
            break
        best = best.intersection(bounds)
        narrow = best.upper - best.lower <= _NARROW * (1 + best.lower)
        # a line is at its best for epsilons near its start
        if narrow or best.upper > min(0.99 * start, start - 1 / c):
            break
        start = best.upper
    return best


_ROUNDS = 4
_NARROW = 1e-9


def _solve(contour: Line, log_delta: float, start: float) -> Bounds | None:
    """Return where the bracket of log delta(eps) crosses ``log_delta``: both ends evaluated."""
    root = start
    for _ in range(12):
        step, slope = contour.towards(root, log_delta)
        moved = max(0.0, root + step)
        close = abs(moved - root) * contour.tilt <= 1e-5  # its cube is what is left
        if not moved < math.inf:
            break
        root = moved
        if close:
            break
    low, high = (float(end[0]) for end in contour.brackets(np.array([root])))
    hit = high - 1 < low - 1e-6 <= log_delta <= high + 1e-6
    if not hit and not (root == 0 and high <= log_delta):
        # of atoms, or of nearly equal ones, delta falls in steps, at which slopes mislead
        root = _section(contour, log_delta, start)
        slope = contour.towards(root, log_delta)[1]
        low, high = (float(end[0]) for end in contour.brackets(np.array([root])))
    if not high < math.inf:
        return None
    # log(delta) itself is rounded
    slack = 4 * UNIT * (1 + abs(log_delta))
    # of a sum of many frequencies the slope is a guess as well
    width = max(high - low if low > -math.inf else 1.0, 4 * slack) / max(-slope, contour.tilt / 99)
    return _ends(contour, root, width + 4 * UNIT * root, log_delta, slack)


def _section(contour: Line, log_delta: float, start: float) -> float:
    """Return about the least epsilon up to ``start`` whose upper bound is at most ``log_delta``."""

    def ratio(epsilons: Array) -> tuple[Array, Array]:
        high = np.exp(np.clip(contour.brackets(epsilons)[1] - log_delta, -50.0, 50.0))
        return high, high

    return enclosure(ratio, 1.0, 0.0, start)[1]


def _ends(
    contour: Line, root: float, width: float, log_delta: float, slack: float
) -> Bounds | None:
    """Return the bracket of the root whose ends are seen to lie on their sides."""
    lower, upper, step = max(0.0, root - width), root + width, width
    while True:
        low, high = contour.brackets(np.array([lower, upper]))
        # the bounds' own signs prove the ends: at `lower` delta exceeds the target, at `upper` it
        # does not
        below, above = lower <= 0 or low[0] > log_delta + slack, high[1] <= log_delta - slack
        if below and above:
            return Bounds(lower, upper)
        if not above:
            upper = root + 2 * step
        if not below:
            lower = max(0.0, root - 2 * step)
        step *= 2
        if not above and step > 1e3 * (1 + root):
            return None


def profile(
    spends: Spends, epsilons: Array, *, scattered: bool = True, whole: bool = True
) -> tuple[Array, Array] | None:
    """Return bounds of delta at many epsilons, at worst Chernoff's; None without that.

    One line serves a run of epsilons: Poisson's sum holds on any. The laws must be ``whole`` for
    what is known of deltas next to 1: masses that add up to 1.
    """
    composed = composition(tuple(spends))
    low = _all_but_little(composed, epsilons) if whole else np.zeros(len(epsilons))
    high = np.ones(len(epsilons))
    wide = low < 1 - _WIDE
    for cached in reversed(tuple(composed.lines)):
        # a line holds at every epsilon, whatever it was made for
        some = np.flatnonzero(wide & cached.near(epsilons))
        if not len(some):
            continue
        log_low, log_high = cached.brackets(epsilons[some])
        low[some] = np.maximum(low[some], exponentials(log_low, -1))
        high[some] = np.minimum(high[some], exponentials(log_high, 1))
        wide[some] = cached.wide(epsilons[some], log_low, log_high)
    order = np.argsort(epsilons)
    order = order[wide[order]]
    if not len(order):
        return low, high
    (low_part, first_power), (high_part, last_power) = (
        math.frexp(min(float(epsilons[order[i]]), 1e300)) for i in (0, -1)
    )
    # the moments of one neighbourhood serve others near it, and bound Chernoff's at any epsilon
    around = math.floor(32 * low_part) / 32, math.ceil(32 * high_part) / 32
    found = _places_at(
        composed, math.ldexp(around[0], first_power), math.ldexp(around[1], last_power)
    )
    if found is None:
        return None
    near, first, last = found
    # Chernoff's bound needs no line and holds everywhere
    high = np.minimum(high, near.chernoff(epsilons))
    least = epsilons[order[0]]
    # nor is a line of use at other epsilons about as large
    useless = not scattered and any(0.5 * x <= least <= 2 * x for x in composed.refused)
    runs = [] if useless else [order]
    while runs:
        some = runs.pop()
        logs = _run(near, epsilons[some], scattered)
        tilt, reach = max(first, last), float(epsilons[some[-1]] - epsilons[some[0]])
        if logs is not None:
            low[some] = np.maximum(low[some], exponentials(logs[0], -1))
            high[some] = np.minimum(high[some], exponentials(logs[1], 1))
            tilt = composed.lines[-1].tilt
            some = some[composed.lines[-1].wide(epsilons[some], *logs)]
        elif not scattered and len(some) > 1:
            # the least epsilon asks for the least decay: where it has no line, no other has
            alone = _run(near, epsilons[some[:1]], scattered)
            some = some[:0] if alone is None else some
        # of epsilons that lie close together a half has no other line
        if reach * tilt > _CLOSE and len(some):
            runs += [half for half in np.array_split(some, 2)[::-1] if len(half)]
    if not scattered and not np.any(low[order] > 0.5 * high[order]):
        composed.refused.append(float(least))
    return low, high


@lru_cache(maxsize=32)  # asked again for a contour in pieces, and at the next points
def _places_at(
    composed: Composition, low: float, high: float
) -> tuple[Neighbourhood, float, float] | None:
    """Return the moments around Chernoff's best tilts between two epsilons, and those tilts."""
    first = saddle_at(composed, low, 1.0)
    if first is None:
        return None
    last = saddle_at(composed, high, first) or first
    return neighbourhood(composed, first, last), first, last


def at_most_deltas(spends: Spends, epsilons: Array, deltas: Array) -> Array:
    """Return Chernoff's bounds of delta at many epsilons, by tilts that are good at some deltas."""
    composed = composition(tuple(spends))
    logs = np.log(np.maximum(deltas, 1e-300))
    ends = _guess(composed, float(logs.max()) - 1), _guess(composed, float(logs.min()) - 1)
    return neighbourhood(composed, *ends).chernoff(epsilons)


def _all_but_little(composed: Composition, epsilons: Array) -> Array:
    """Return lower bounds of delta that are close to 1 where delta is.

    ``w - delta(eps) = E_P min(1, e^{eps - L}) <= e^{theta eps + K(-theta)}``, 0 <= theta <= 1; w is
    the mass, ``e^{K(0)}``, which is less than 1 of laws that have left something out.
    """
    moments = composed.upper(-_POWERS)
    logs = _POWERS * epsilons[:, None] + moments
    logs = logs + 16 * UNIT * (np.abs(_POWERS * epsilons[:, None]) + np.abs(moments) + 1)
    rest = np.exp(np.minimum(logs.min(axis=1), 0.0)) * (1 + 8 * UNIT)
    mass = composed.log_moment(np.zeros(1, dtype=np.complex128))
    known = mass is not None and np.isfinite(mass[1][0])
    least = math.exp(min(0.0, float(mass[0].real[0] - mass[1][0]))) if mass and known else 0.0
    return np.asarray(np.maximum(0.0, least - rest - 8 * UNIT), dtype=np.float64)


_POWERS = np.concatenate([np.geomspace(1e-3, 0.1, 12), np.linspace(0.125, 1.0, 15)])


def _run(near: Neighbourhood, epsilons: Array, scattered: bool) -> tuple[Array, Array] | None:
    """Return bounds of log delta at rising epsilons, by one line; None where none serves all."""
    ends = float(epsilons[0]), float(epsilons[-1])
    least = near.log_delta(ends[1])
    low, high = np.full(len(epsilons), -np.inf), np.zeros(len(epsilons))
    for _ in range(_ROUNDS):  # of heavy tails Chernoff's delta is far too large
        contour = line(near, ends, least, scattered)
        if contour is None:
            return None if np.all(low == -np.inf) else (low, high)
        some_low, some_high = contour.brackets(epsilons)
        low, high = np.maximum(low, some_low), np.minimum(high, some_high)
        if high.min() > least - 1 or not contour.wide(epsilons, low, high).any():
            break
        least = float(high.min())
    return low, high


_WIDE = 1e-7
"""A bracket of log delta that is wider than this asks for a line of its own."""

_NEAR = 3.0
"""So many nats of delta from the epsilons for which a line was made it is of use."""

_CLOSE = 0.5
"""Epsilons whose deltas are within so many nats have one line."""

_ALONE = 2
"""So few epsilons ask for a line of their own in any case."""


def exponentials(logs: Array, side: int) -> Array:
    """Return the exponentials of logs of probabilities, moved to a side by their rounding."""
    some = np.clip(logs, -800.0, 0.0)
    # e^x is off by a few units, and by |x| units more as x itself is rounded; 1e-323 for denormals
    return np.exp(some) * (1 + side * 4 * UNIT * (1 - some)) + side * 1e-323


def saddle_at(composed: Composition, epsilon: float, start: float) -> float | None:
    """Return the tilt of Chernoff's best bound of log delta at an epsilon."""

    def bound(c: Array) -> Array:
        return composed.upper(c) - c * epsilon + chernoff_factor(c)

    c = lowest(bound, start)
    return c if np.isfinite(bound(np.array([c]))[0]) else None
