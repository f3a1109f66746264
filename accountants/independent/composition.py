"""The hockey-stick of a composition, as a ball: exact sums, residues, integrals, a lattice.

Independent losses add up. What composes is a list of pairs of one direction with their times, and

``delta(e) = E_P (1 - e^{e - L})_+ = (1/2 pi i) int M(z) e^{-z e} / (z (z+1)) dz``

on ``Re z = c > 0``, M the product of the moments. In this order the first that applies is taken:

* one pair, once: its own profile; Gaussian pairs alone: one Gaussian pair;
* finitely many losses: every sum with its probability, those of one lattice by a polynomial's
  power, two halves met in the middle; many on one lattice: the integral over one period;
* finitely many losses beside a Gaussian: its profile at what they leave;
* Laplace noise of few kinds: residues, since M is a sum of exponentials times rational functions
  with a pole at -1/2 alone;
* what decays: `acb.integral` up to a T, with a bound of what is beyond from moments on cells, then
  from the pairs' own bounds;
* else chords of the profiles on a lattice, which dominate: an upper bound only. What they leave
  undecided, losses rounded down to a lattice may refute.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from attrs import frozen
from flint import acb, arb, arb_poly, ctx, fmpq

from accountants.independent.pairs import (
    HALF,
    ONE,
    ZERO,
    Bound,
    Finite,
    Gaussian,
    Laplace,
    NormalMixture,
    Pair,
    Sampled,
    ball,
    positive,
)

Spends = Sequence[tuple[Pair, int]]

ALONE, CHORDS = "the pair's own profile", "chords on a lattice"

MOST_SUMS = 2**15
"""A half of the sums of finitely many losses has no more than this."""

MOST_COPIES = 240
"""Residues are taken of no more Laplace releases than this."""

REACH, SLOW_REACH = 2.0**13, 256.0
"""No integral goes further than this; nor than that over the largest shift below 1, where each
moment is itself an integral."""


@frozen
class Value:
    """A ball that contains delta, and by which method."""

    delta: arb
    method: str


def delta_at(spends: Spends, epsilon: arb, scale: float, *, closely: bool = False) -> Value:
    """Return delta at epsilon.

    Parameters
    ----------
    spends
        Pairs of one direction.
    scale
        About how large delta is expected: integrals stop at a small share of it.
    closely
        Whether chords, which say nothing from below, are no answer: delta is in [0, 1] then.
    """
    found = _delta_at([(pair, n) for pair, n in spends if n], epsilon, scale, closely)
    if found.method in (ALONE, CHORDS):
        return found
    # what is lost of some pair, if anything, has no finite loss: it is met with this chance
    finite = [(pair, n) for pair, n in spends if isinstance(pair, Finite)]
    missed = ONE
    for pair, n in finite:
        missed *= (1 - pair.lost) ** n
    value = found.delta + (1 - missed)
    if all(pair.lost.is_zero() or pair.lost_reversed is not None for pair, _ in finite):
        return Value(value, found.method)
    return Value(found.delta.union(value), found.method)


def _delta_at(merged: Spends, epsilon: arb, scale: float, closely: bool) -> Value:
    """Return delta of what is not lost; of one pair alone and by chords with what is."""
    total = [top * n for pair, n in merged if (top := pair.largest()) is not None]
    # beyond the largest loss only what is lost is left
    if len(total) == len(merged) and sum(total, ZERO) <= epsilon:
        return Value(ZERO, "the largest loss")
    normal = sum((pair.square * n for pair, n in merged if isinstance(pair, Gaussian)), fmpq(0))
    rest = [(pair, n) for pair, n in merged if not isinstance(pair, Gaussian)]
    if normal or not rest:
        merged = [*rest, (Gaussian(normal), 1)]
    if len(merged) == 1 and merged[0][1] == 1:
        return Value(merged[0][0].profile(epsilon), ALONE)
    finite = [(pair, n) for pair, n in rest if isinstance(pair, Finite)]
    halves = _halves(finite, epsilon, scale) if len(finite) == len(rest) else None
    if halves is not None and not normal:
        return Value(_met(halves, epsilon), "all sums of finitely many losses")
    if halves is not None and len(halves.first) * len(halves.second) <= 512:
        value = ZERO
        inner = Gaussian(normal)
        for loss, mass in halves.all():
            value += mass * inner.profile(epsilon - loss)
        return Value(value, "all sums of finitely many losses, beside a Gaussian")
    periodic = _period(finite, epsilon, scale) if not normal and len(finite) == len(rest) else None
    if periodic is not None:
        return Value(periodic, "an integral over one period")
    laplace = [(pair, n) for pair, n in rest if isinstance(pair, Laplace)]
    if not normal and len(laplace) + len(finite) == len(rest):
        left = _residues(laplace, finite, epsilon, scale)
        if left is not None:
            return Value(left, "residues")
    contour = _contour(merged, epsilon, scale)
    if contour is not None and contour.rad() < scale * 1e-3:
        return Value(contour, "a contour integral")
    upper = ONE if closely else upper_on_lattice(merged, epsilon, scale)
    return Value(ZERO.union(upper), CHORDS)


# -----------------------------------------------------------------------------
# Finitely many losses.


@frozen(eq=False)
class _Halves:
    """Losses as integers of ``2^-bits``, with balls of them, and their masses."""

    first: list[tuple[int, arb, arb]]
    second: list[tuple[int, arb, arb]]
    bits: int

    def all(self) -> list[tuple[arb, arb]]:
        """Return every sum."""
        return [(a[1] + b[1], a[2] * b[2]) for a in self.first for b in self.second]


def _halves(finite: Spends, epsilon: arb, scale: float) -> _Halves | None:
    """Return the sums of two halves of the losses; None where there are too many."""
    groups = _groups(finite)
    if groups is None:
        return None
    halves: list[list[tuple[arb, arb]]] = [[(ZERO, ONE)], [(ZERO, ONE)]]
    for group in sorted(groups, key=len, reverse=True):
        less = min(halves, key=len)
        if len(less) * len(group) > MOST_SUMS:
            return None
        less[:] = [(x + y, p * m) for x, p in less for y, m in group]
    bits = 100 + max(0, math.ceil(-math.log2(scale)))
    made = [[(_fixed(x, bits), x, p) for x, p in half] for half in halves]
    return _Halves(made[0], made[1], bits)


def _fixed(x: arb, bits: int) -> int:
    return int((x.mid() * arb(2) ** bits).floor().unique_fmpz() or 0)


def _groups(finite: Spends) -> list[list[tuple[arb, arb]]] | None:
    """Return the sums of the copies of each pair; of exact lattices of one unit together."""
    groups, exact_units = [], []
    for pair, n in finite:
        assert isinstance(pair, Finite)
        if pair.lattice is None:
            group = _multinomial(pair, n)
            if group is None:
                return None
            groups.append(group)
        elif pair.unit is not None:
            exact_units.append((pair, n))
        elif (max(pair.lattice[2]) - min(pair.lattice[2])) * n > MOST_SUMS:
            return None
        else:
            groups.append(_powers([(pair, n, 1)], pair.lattice[1]))
    while exact_units:
        unit = exact_units[0][0].unit
        assert unit is not None
        same = [(pair, n, k) for pair, n in exact_units if (k := _multiple(pair, unit))]
        exact_units = [(pair, n) for pair, n in exact_units if not _multiple(pair, unit)]
        size = sum((max(p.lattice[2]) - min(p.lattice[2])) * n * k for p, n, k in same if p.lattice)
        if size > MOST_SUMS:
            return None
        groups.append(_powers(same, arb(unit)))
    return groups


def _multiple(pair: Finite, unit: fmpq) -> int:
    """Return how many units a pair's unit is, 0 where it is no whole number."""
    ratio = fmpq(0) if pair.unit is None else pair.unit / unit
    return int(ratio.p) if ratio.q == 1 else 0


def _powers(same: list[tuple[Finite, int, int]], unit: arb) -> list[tuple[arb, arb]]:
    """Return the sums of pairs on one lattice: a product of polynomials' powers."""
    offset, least, product = ZERO, 0, arb_poly([1])
    for pair, n, multiple in same:
        assert pair.lattice is not None
        start, _, keys = pair.lattice
        low = min(keys)
        coefficients = [ZERO] * ((max(keys) - low) * multiple + 1)
        for key, mass in zip(keys, pair.masses, strict=True):
            coefficients[(key - low) * multiple] += mass
        product = product * arb_poly(coefficients) ** n
        offset, least = offset + start * n, least + low * multiple * n
    return [
        (offset + unit * (least + i), mass)
        for i, mass in enumerate(product.coeffs())
        if not mass.is_zero()
    ]


def _multinomial(pair: Finite, n: int) -> list[tuple[arb, arb]] | None:
    """Return the sums of n copies: one for each way to count how often each loss was met."""
    m = len(pair.losses)
    if math.comb(n + m - 1, m - 1) > MOST_SUMS:
        return None
    every: list[tuple[int, arb, arb, int]] = [(n, ZERO, ONE, 1)]
    for loss, mass in zip(pair.losses[:-1], pair.masses[:-1], strict=True):
        grown = []
        for left, x, p, ways in every:
            power = ONE
            for k in range(left + 1):
                grown.append((left - k, x + loss * k, p * power, ways * math.comb(left, k)))
                power *= mass
        every = grown
    loss, mass = pair.losses[-1], pair.masses[-1]
    return [(x + loss * left, p * mass**left * ways) for left, x, p, ways in every]


def _met(halves: _Halves, epsilon: arb) -> arb:
    """Return delta: for each sum of one half, the masses of the other above what it leaves.

    A sum on the wrong side of epsilon, by the rounding of the integers, is within ``2^{2 - bits}``
    of it, and counts by less than twice that share of its mass.
    """
    second = sorted(halves.second, key=lambda each: each[0])
    keys = [key for key, _, _ in second]
    above: list[tuple[arb, arb]] = [(ZERO, ZERO)]
    for _, loss, mass in reversed(second):
        p, q = above[-1]
        above.append((p + mass, q + mass * (-loss).exp()))
    at, grown, total = _fixed(epsilon, halves.bits), epsilon.exp(), arb(0)
    for key, loss, mass in halves.first:
        count = len(keys) - bisect_right(keys, at - key)
        if count:
            p, q = above[count]
            total += mass * (p - grown * (-loss).exp() * q)
    return positive(total + ball(arb(2) ** (3 - halves.bits)))


def _period(finite: Spends, epsilon: arb, scale: float) -> arb | None:
    """Return the integral over one period of losses on one lattice.

    The probability of ``b + k u`` is the integral of ``M(z) e^{-z (b + k u)}`` over one period, and
    over the losses above epsilon, from l on, the exponentials are a geometric series.
    """
    pairs = [pair for pair, _ in finite if isinstance(pair, Finite)]
    if not pairs or any(pair.lattice is None for pair in pairs):
        return None
    units = {str(pair.unit) if pair.unit is not None else id(pair) for pair in pairs}
    if len(units) > 1:
        return None
    lattices = [pair.lattice for pair in pairs if pair.lattice is not None]
    unit = lattices[0][1]
    offset = sum((lat[0] * n for lat, (_, n) in zip(lattices, finite, strict=True)), ZERO)
    steps = ((epsilon - offset) / unit).floor()
    # on the boundary a loss counts by nothing: either side of it is right
    first = offset + unit * (arb(steps.mid().floor().unique_fmpz() or 0) + 1)
    c = _tilt(finite, epsilon)
    if c is None:
        return None

    def integrand(t: acb, _: bool) -> acb:
        z = c + 1j * t
        kernel = 1 / (1 - (-z * unit).exp())
        kernel -= (epsilon - first).exp() / (1 - (-(z + 1) * unit).exp())
        if _thin(t):
            return _product(finite, z) * (-z * first).exp() * kernel
        return _box(finite, z, first, kernel)

    end = arb.pi() / unit
    raw = acb.integral(integrand, 0, end, rel_tol=2.0**-60, abs_tol=scale * 1e-16, eval_limit=40000)
    return positive(raw.real * unit / arb.pi())


# -----------------------------------------------------------------------------
# Residues of Laplace noise, beside finitely many losses.


def _residues(laplace: Spends, finite: Spends, epsilon: arb, scale: float) -> arb | None:
    """Return the sum of the residues left of the contour, of the exponentials above epsilon.

    In ``w = z + 1/2``, n copies at e have the moments ``sum_j C(n, j) e^{(n - 2j) e w}
    (w + 1/2)^{n-j} (w - 1/2)^j e^{-n e / 2} / (2w)^n``. A term with the exponent ``x = a - e > 0``
    is the sum of its residues at w = 1/2, -1/2 and 0; the contours of the others close on the
    right, where there is no pole.
    """
    copies = sum(n for _, n in laplace)
    if copies > MOST_COPIES:
        return None
    with ctx.workprec(ctx.prec + 8 * copies + max(0, math.ceil(-math.log2(scale)))):
        halves = _halves(finite, epsilon, scale)
        if halves is None:
            return None
        # of an exponent x of z = w - 1/2, e^{-x/2} is left
        terms = [(x, arb_poly([p * (-x / 2).exp()])) for x, p in halves.all()]
        plus, minus = arb_poly([HALF, 1]), arb_poly([-HALF, 1])
        for pair, n in laplace:
            assert isinstance(pair, Laplace)
            if len(terms) * (n + 1) > 4096:
                return None
            e = arb(pair.epsilon)
            factors = [
                (
                    e * (n - 2 * j),
                    (math.comb(n, j) * (-e * n / 2).exp()) * plus ** (n - j) * minus**j,
                )
                for j in range(n + 1)
            ]
            terms = [(x + y, a * b) for x, a in terms for y, b in factors]
        value = ZERO
        for a, numerator in terms:
            if not a < epsilon:
                value += _residue(a - epsilon, numerator, copies, epsilon)
        return positive(value)


def _residue(x: arb, numerator: arb_poly, copies: int, epsilon: arb) -> arb:
    """Return the residues of ``e^{xw} e^{e/2} N(w) / ((2w)^n (w^2 - 1/4))``, none if x = 0."""
    at_half = (x / 2).exp() * numerator(HALF)
    at_minus = -((-x / 2).exp()) * numerator(-HALF) / arb(-1) ** copies
    total = at_half + at_minus
    if copies:
        # [w^{n-1}] of e^{xw} N(w) / (w^2 - 1/4), the last factor -4 sum (2w)^{2i}
        power, coefficients = ONE, []
        for k in range(copies):
            coefficients.append(power)
            power = power * x / (k + 1)
        pole = arb_poly([arb(-4) * 4 ** (k // 2) if k % 2 == 0 else ZERO for k in range(copies)])
        series = (arb_poly(coefficients) * numerator).truncate(copies) * pole
        total += series[copies - 1] / arb(2) ** copies
    return total * (epsilon / 2).exp()


# -----------------------------------------------------------------------------
# Contour integrals.


def _product(spends: Spends, z: acb) -> acb:
    total = acb(1)
    for pair, n in spends:
        moment = pair.moment(z)
        assert moment is not None
        total *= moment**n
    return total


def _thin(t: acb) -> bool:
    return bool(t.real.rad() < 1e-12 and t.imag.rad() < 1e-12)


def _box(spends: Spends, z: acb, at: arb, kernel: acb) -> acb:
    """Return a ball around 0 that holds ``M(z) e^{-z at} kernel`` on a box of z."""
    size = abs(kernel) * (-z.real * at).exp()
    if size.is_finite():
        for pair, n in spends:
            size *= pair.modulus(z) ** n
    return acb(ball(size), ball(size)) if size.is_finite() else acb("nan")


def _log_real(spends: Spends, c: float) -> float:
    with ctx.workprec(64):
        total = 0.0
        for pair, n in spends:
            moment = pair.moment(acb(c))
            if moment is None:
                return math.nan
            total += n * float(moment.real.log())
        return total


def _tilt(spends: Spends, epsilon: arb) -> arb | None:
    """Return about where ``M(c) e^{-c e} / (c (c+1))`` is least: any c is right."""
    at = float(epsilon)

    def height(log_c: float) -> float:
        c = math.exp(log_c)
        value = _log_real(spends, c) - c * at - math.log(c) - math.log1p(c)
        return value if math.isfinite(value) else math.inf

    low, high = math.log(1e-3), math.log(1e3)
    while height(high) == math.inf and high > low:
        high -= 1
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = height(a), height(b)
    for _ in range(24):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = height(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = height(b)
    best = math.exp(a if at_a <= at_b else b)
    if not math.isfinite(min(at_a, at_b)):
        return None
    # few bits, so that it is exact
    scale = 2.0 ** (math.floor(math.log2(best)) - 10)
    return arb(round(best / scale) * scale)


def _contour(spends: Spends, epsilon: arb, scale: float) -> arb | None:
    """Return the integral up to T, with a bound of the rest as a radius."""
    copies = sum(n for _, n in spends)
    with ctx.workprec(76 + copies.bit_length() + max(0, math.ceil(-math.log2(scale)) - 60) // 8):
        if any(pair.moment(acb(1)) is None for pair, _ in spends):
            return None
        c = _tilt(spends, epsilon)
        return None if c is None else _integral(spends, epsilon, scale, c)


def _integral(spends: Spends, epsilon: arb, scale: float, c: arb) -> arb | None:
    front = (-c * epsilon).exp()
    reals = [_real(pair, c) for pair, _ in spends]

    def beyond(t: arb) -> arb:
        total = front
        for (pair, n), real in zip(spends, reals, strict=True):
            bound = pair.tail(c, t)
            total *= (real if bound is None else bound.abs_upper().min(real)) ** n
        # 1 / |z (z+1)| <= 1 / t^2
        return total / (arb.pi() * t)

    goal, end = arb(scale) * 1e-14, 0.25
    while not beyond(arb(end)) < goal:
        end *= 1.25
        if end > REACH:
            return None
    near, between = _faint(spends, front, c, goal, end)
    searched = any(isinstance(pair, NormalMixture | Sampled) for pair, _ in spends)
    # few samples with the unit leave next to an atom: the moments decay too slowly to follow, and
    # beside a large epsilon the integrand turns often
    if near * max(1.0, float(epsilon) / 30) > _slow_reach(spends):
        return None

    def integrand(t: acb, _: bool) -> acb:
        z = c + 1j * t
        kernel = 1 / (z * (z + 1))
        if _thin(t):
            return _product(spends, z) * (-z * epsilon).exp() * kernel
        return _box(spends, z, epsilon, kernel)

    value = acb.integral(
        integrand,
        0,
        near,
        rel_tol=2.0**-44,
        abs_tol=scale * 1e-12,
        eval_limit=4000 if searched else 30000,
    )
    return positive(value.real / arb.pi() + ball(beyond(arb(end)) + between))


def _slow_reach(spends: Spends) -> float:
    """Return how far moments that are integrals are followed: they take as long as t mu is."""
    shifts = [
        float(pair.mu) if isinstance(pair, NormalMixture) else 1.0
        for pair, _ in spends
        if isinstance(pair, NormalMixture | Sampled)
    ]
    return SLOW_REACH / min(1.0, max(shifts)) if shifts else math.inf


def _real(pair: Pair, c: arb) -> arb:
    moment = pair.moment(acb(c))
    assert moment is not None
    return moment.real.abs_upper()


def _faint(spends: Spends, front: arb, c: arb, goal: arb, end: float) -> tuple[arb, arb]:
    """Return a T from which on to the end little is left, and a bound of that.

    The moment at ``c + it`` moves by at most ``D |t - s|``, ``D = E |L| e^{cL}``; with Schwarz's
    inequality and ``x^2 <= 2 cosh x - 2``, ``D^2 <= M(c) (M(c+h) + M(c-h) - 2 M(c)) / h^2``. So on
    cells in which the product cannot grow to what matters, a bound follows from their beginning.
    """
    reals, drifts = [], []
    for pair, _ in spends:
        real, every = _real(pair, c), []
        for h in (c / 4, c / 64, c / 1024):
            sides = _real(pair, c - h) + _real(pair, c + h)
            exact_real = pair.moment(acb(c))
            assert exact_real is not None
            curvature = (sides - 2 * exact_real.real.lower()).abs_upper()
            every.append((real * curvature).sqrt().abs_upper() / h)
        reals.append(real)
        drifts.append(min(every, key=float))

    def moduli(t: arb) -> list[arb]:
        sizes = []
        for (pair, _), real in zip(spends, reals, strict=True):
            moment = pair.moment(acb(c, t))
            sizes.append(real if moment is None else abs(moment).abs_upper().min(real))
        return sizes

    def height(sizes: Sequence[arb], t: arb) -> arb:
        total = front / t**2
        for size, (_, n) in zip(sizes, spends, strict=True):
            total *= size**n
        return total

    def piece(sizes: Sequence[arb], at: float, width: float) -> arb:
        upper = [(s + d * width).min(r) for s, d, r in zip(sizes, drifts, reals, strict=True)]
        return height(upper, arb(at)) * width

    last = min(end, 2 * _slow_reach(spends))
    near = 0.25
    while near < last and not height(moduli(arb(near)), arb(near)) * near < goal * 1e-6:
        near *= 1.3
    if 2 * near >= last:
        return arb(end), ZERO
    at, left, width = near, ZERO, near / 64
    for _ in range(2000):
        if at >= end:
            return arb(near), left / arb.pi()
        sizes = moduli(arb(at))
        width *= 4
        while width > 1e-9 and not piece(sizes, at, width) < goal * 1e-3:
            width /= 2
        left += piece(sizes, at, width)
        at += width
    return arb(end), ZERO


# -----------------------------------------------------------------------------
# A lattice of losses on which every pair is dominated by the chords of its profile.

CELLS, FEWER, MOST_POINTS = 4096, 1280, 2**16
"""Cells of a lattice, and where the profile of a pair is itself a search; no sum of losses has more
points than that, so that of many copies cells are fewer."""


def upper_on_lattice(spends: Spends, epsilon: arb, scale: float, cells: int = 0) -> arb:
    """Return an upper bound of delta.

    The hockey-stick is convex in ``t = e^e``, so its chords between lattice points are above it;
    they are the hockey-stick of a pair on the lattice, which therefore dominates. Past the upper
    end its value there is lost; below the lower end ``1 - t`` is above it up to the value at the
    lower end.
    """
    searched = any(isinstance(pair, Bound) for pair, _ in spends)
    cells = cells or _cells(spends, FEWER if searched else CELLS)
    step = _step(spends, epsilon, scale, cells)
    with ctx.workprec(ctx.prec + 160):
        product, least, lost = arb_poly([1]), 0, ZERO
        for pair, n in spends:
            masses, gone = _chords(pair, step, cells)
            lost += gone * n
            product = product * arb_poly(masses) ** n
            least -= (cells // 2) * n
        return lost + _above(product, step, least, epsilon)


def lower_on_lattice(spends: Spends, epsilon: arb, scale: float, cells: int = 0) -> arb | None:
    """Return a lower bound of delta; None of pairs whose profile is a bound itself.

    ``E_P (1 - e^{e - L})_+`` rises in each of the losses that L is the sum of, so it is no smaller
    than that of losses that are stochastically smaller under P. Those here are on a lattice, each
    point or more as likely as that loss or more is proven to be: ``P(L > l) = H(t) + t Q(L > l)``,
    ``t = e^l``, where ``Q(L > l)``, the slope of H turned positive, is at least that of the chord
    to the next point, H being convex. What is lost is infinite, what is left counts by nothing.
    """
    for pair, _ in spends:
        if isinstance(pair, Bound):
            return None
        if isinstance(pair, Finite) and pair.lost_reversed is None and not pair.lost.is_zero():
            return None
    cells = cells or _cells(spends, FEWER)
    both = [*spends, *((pair.reverse(), n) for pair, n in spends)]
    # the least loss is no less than minus the largest of the other direction: it is above two more
    step, half = _step(both, epsilon, scale, cells), cells // 2 + 2
    with ctx.workprec(ctx.prec + 160):
        product, least, kept = arb_poly([1]), 0, ONE
        for pair, n in spends:
            lost = pair.lost if isinstance(pair, Finite) else ZERO
            kept *= (1 - lost) ** n
            values = [pair.profile(step * k) - lost for k in range(-half, half + 1)]
            masses, more = [ZERO] * len(values), ZERO
            for i in reversed(range(len(values))):
                likely = values[i]
                if i + 1 < len(values):
                    # t / (t' - t) = 1 / (e^step - 1)
                    likely += positive(values[i] - values[i + 1]) / step.expm1()
                more, less = more.max(likely.lower()), more
                masses[i] = positive(more - less)
            product = product * arb_poly(masses) ** n
            least -= half * n
        return 1 - kept + _above(product, step, least, epsilon)


def _cells(spends: Spends, most: int) -> int:
    return min(most, max(16, MOST_POINTS // sum(n for _, n in spends) // 2 * 2))


def _step(spends: Spends, epsilon: arb, scale: float, cells: int) -> arb:
    """Return a lattice's unit; it ends where the largest loss is, or few losses are beyond."""
    tops = [pair.largest() for pair, _ in spends]
    known = [top for top in tops if top is not None]
    # at the largest loss the profile is 0
    most = max((float(top) for top in known), default=0.0)
    if len(known) < len(tops) or most > 100:
        return arb(2 * _farthest(spends, scale, float(epsilon)) / cells)
    return max(known, key=float) * 2 / cells


def _above(product: arb_poly, step: arb, least: int, epsilon: arb) -> arb:
    """Return delta of losses ``step (least + i)``, whose masses are a polynomial's coefficients."""
    total, grown = ZERO, epsilon.exp()
    for i, mass in enumerate(product.coeffs()):
        loss = step * (least + i)
        if not loss < epsilon:
            total += mass * positive(1 - grown * (-loss).exp())
    return total


def _farthest(spends: Spends, scale: float, epsilon: float) -> float:
    """Return a loss beyond which the profiles are a small share of what is asked."""
    reach = max(1e-6, 2 * epsilon / max(1, sum(n for _, n in spends)))
    count = sum(n for _, n in spends)
    for _ in range(60):
        if all(bool(pair.profile(arb(reach)) * count < scale * 1e-6) for pair, _ in spends):
            return reach
        reach *= 1.25
    return reach


def _chords(pair: Pair, step: arb, cells: int) -> tuple[list[arb], arb]:
    """Return P-masses of the chords on ``k step``, |k| up to half the cells, and what is lost."""
    half = cells // 2
    points = [(step * k).exp() for k in range(-half, half + 1)]
    values = [pair.profile(step * k).upper() for k in range(-half, half + 1)]
    points, values = [ZERO, *points], [ONE, *values]
    hull: list[int] = []
    for i in range(len(points)):
        # the lower hull of the values is still above every convex function that is below them
        while len(hull) > 1 and not _convex(points, values, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    slopes = [(values[b] - values[a]) / (points[b] - points[a]) for a, b in pairwise(hull)]
    masses = [ZERO] * (cells + 1)
    for index, before, after in zip(hull[1:], slopes, [*slopes[1:], ZERO], strict=True):
        masses[index - 1] = positive(after - before) * points[index]
    return masses, values[-1]


def _convex(points: list[arb], values: list[arb], a: int, b: int, c: int) -> bool:
    left = (values[b] - values[a]) * (points[c] - points[b])
    right = (values[c] - values[b]) * (points[b] - points[a])
    return bool(left < right)
