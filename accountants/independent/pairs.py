"""Pairs of laws in ball arithmetic: what a release looks like with a unit, and without it.

Every pair has an order: P with the unit, Q without, and ``reverse`` exchanges them. L is the log of
the ratio of their densities. A pair knows its hockey-stick ``profile(e) = E_P (1 - e^{e-L})_+``
and, where that is a closed form or a quickly converging sum, its moments ``M(z) = E_P e^{zL}`` with
``M_reverse(z) = M(-1 - z)``, and a bound of ``|M(c + is)|`` over ``s >= t``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from threading import Lock

from attrs import evolve, field, frozen
from flint import acb, arb, ctx, fmpq

ZERO, ONE, HALF = arb(0), arb(1), arb(1) / 2


def exact(value: float | Fraction) -> arb:
    """Return the ball of a float, which is that number alone, or of a rational."""
    if isinstance(value, Fraction):
        return arb(fmpq(value.numerator, value.denominator))
    return arb(value)


def rational(value: float | Fraction) -> fmpq:
    """Return a float as the rational that it is."""
    number = Fraction(value)
    return fmpq(number.numerator, number.denominator)


def ball(bound: arb) -> arb:
    """Return ``[-bound, bound]``."""
    return arb(0, bound.abs_upper())


def positive(value: arb) -> arb:
    """Return ``max(0, value)``."""
    return value.max(ZERO)


def normal_above(x: arb) -> arb:
    """Return ``P(Z > x)`` of a standard normal Z."""
    return (x / arb(2).sqrt()).erfc() / 2


class Pair:
    """Base of the pairs; a pair whose directions are alike is its own reverse."""

    __slots__ = ()

    def reverse(self) -> Pair:
        """Return Q against P."""
        return self

    def profile(self, epsilon: arb) -> arb:
        """Return the hockey-stick at any real epsilon."""
        raise NotImplementedError

    def moment(self, z: acb) -> acb | None:
        """Return ``E_P e^{zL}``, or None where it is not had in a closed form or quickly."""
        return None

    def modulus(self, z: acb) -> arb:
        """Return a bound of the moment's modulus on a box, by default that at its real parts."""
        ends = [self.moment(acb(end)) for end in (z.real.lower(), z.real.upper())]
        # |M(c + it)| <= M(c), and M is convex on the reals
        values = [end.real for end in ends if end is not None]
        return values[0].max(values[1]).abs_upper()

    def tail(self, c: arb, t: arb) -> arb | None:
        """Return a bound of ``|M(c + is)|`` over all ``s >= t``; None for none better than M(c)."""
        return None

    def largest(self) -> arb | None:
        """Return the largest loss, None where it is unbounded."""
        return None


# -----------------------------------------------------------------------------
# Finitely many losses.


@frozen(eq=False)
class Finite(Pair):
    """Losses with their masses under P; `lattice` if they are ``offset + k unit``, k integer.

    Parameters
    ----------
    losses, masses
        Of the same length; losses in no order.
    lost
        Mass under P of which nothing is known, or which Q does not have.
    lattice
        The offset, the unit and each loss's k.
    unit
        The lattice's unit, where it is a rational.
    mirrored
        Whether the pair is its own reverse.
    lost_reversed
        Mass that Q alone has, given where ``lost`` is what P alone has.
    """

    losses: tuple[arb, ...]
    masses: tuple[arb, ...]
    lost: arb = field(factory=lambda: arb(0))
    lattice: tuple[arb, arb, tuple[int, ...]] | None = None
    unit: fmpq | None = None
    mirrored: bool = False
    lost_reversed: arb | None = None

    def reverse(self) -> Finite:
        """Return the losses' negatives, with their masses under Q."""
        if self.mirrored:
            return self
        other = [m * (-x).exp() for x, m in zip(self.losses, self.masses, strict=True)]
        lattice = self.lattice and (
            -self.lattice[0],
            self.lattice[1],
            tuple(-k for k in self.lattice[2]),
        )
        lost = self.lost if self.lost_reversed is None else self.lost_reversed
        return evolve(
            self,
            losses=tuple(-x for x in self.losses),
            masses=tuple(other),
            lattice=lattice,
            lost=lost,
            lost_reversed=None if self.lost_reversed is None else self.lost,
        )

    def profile(self, epsilon: arb) -> arb:
        """Return the sum over losses."""
        total = self.lost
        for loss, mass in zip(self.losses, self.masses, strict=True):
            total += mass * positive(-(epsilon - loss).expm1())
        return total

    def moment(self, z: acb) -> acb:
        """Return the sum over losses; a part that is lost has none."""
        total = acb(0)
        for loss, mass in zip(self.losses, self.masses, strict=True):
            total += mass * (z * loss).exp()
        return total

    def largest(self) -> arb | None:
        """Return the largest of them."""
        best = self.losses[0]
        for loss in self.losses[1:]:
            best = best.max(loss)
        return best


def on_lattice(unit: fmpq | arb, masses: Mapping[int, arb], lost: arb | None = None) -> Finite:
    """Return the pair of losses ``k unit``, which must be its own reverse."""
    step = arb(unit) if isinstance(unit, fmpq) else unit
    keys = tuple(masses)
    return Finite(
        tuple(step * k for k in keys),
        tuple(masses.values()),
        ZERO if lost is None else lost,
        (ZERO, step, keys),
        unit if isinstance(unit, fmpq) else None,
        True,
    )


def response(epsilon: float | Fraction, categories: int = 2) -> Finite:
    """Return randomized response: the answer is kept with odds ``e^eps`` against any other."""
    unit = rational(epsilon)
    if unit == 0:
        return on_lattice(fmpq(1), {0: ONE})
    grown = arb(unit).exp()
    total = grown + categories - 1
    middle = {0: (categories - 2) / total} if categories > 2 else {}
    return on_lattice(unit, {1: grown / total, **middle, -1: 1 / total})


def response_at(eps: arb) -> Finite:
    """Return randomized response at a number that may be no rational."""
    grown = eps.exp()
    return on_lattice(eps, {1: grown / (1 + grown), -1: 1 / (1 + grown)})


def discrete_laplace(s: fmpq, shift: int) -> Finite:
    """Return noise of masses ``e^{-s |x|}`` on the integers, moved by ``shift``.

    The loss at x is ``s (|x| - |x - shift|)``: only the ends hold more than one x.
    """
    r = (-arb(s)).exp()
    head = (1 - r) / (1 + r)
    masses = {-shift: r**shift / (1 + r), shift: 1 / (1 + r)}
    for x in range(1, shift):
        masses[2 * x - shift] = head * r ** (shift - x)
    return on_lattice(s, masses)


def discrete_gaussian(sigma: float, shift: int) -> Finite:
    """Return noise of masses ``e^{-x^2/(2 sigma^2)}`` on the integers, moved by ``shift``.

    With y the noise under P the loss is ``shift (2y + shift) / (2 sigma^2)``. Beyond the last y the
    masses fall at least geometrically: what is left out is at most the next one over 1 - ratio.
    """
    square = rational(sigma) * rational(sigma)
    reach = math.ceil(sigma * math.sqrt(2 * math.log(2) * (ctx.prec + 20))) + 2
    weights = [(-arb(fmpq(y * y) / (2 * square))).exp() for y in range(reach + 2)]
    rest = 2 * weights[reach + 1] / (1 - weights[reach + 1] / weights[reach])
    total = weights[0] + 2 * sum(weights[1 : reach + 1], ZERO)
    total = total.union(total + rest)
    unit = fmpq(shift) / (2 * square)
    masses = {2 * y + shift: weights[abs(y)] / total for y in range(-reach, reach + 1)}
    # mass beyond: between nothing and all of it is told apart
    return on_lattice(unit, masses, ZERO.union(rest / total))


# -----------------------------------------------------------------------------
# Gaussian and Laplace noise, and the worst law of a bounded range.


def gaussian_profile(mu: arb, epsilon: arb) -> arb:
    """Return ``Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu)`` (Balle and Wang 2018, Thm 8)."""
    if mu.is_zero():
        return positive(-epsilon.expm1())
    x = epsilon / mu
    return positive(normal_above(x - mu / 2) - epsilon.exp() * normal_above(x + mu / 2))


@frozen(eq=False)
class Gaussian(Pair):
    """N(mu, 1) against N(0, 1), by the square of mu."""

    square: fmpq

    def profile(self, epsilon: arb) -> arb:
        """Return the closed form."""
        return gaussian_profile(arb(self.square).sqrt(), epsilon)

    def moment(self, z: acb) -> acb:
        """Return ``e^{z (z+1) mu^2 / 2}``."""
        return (z * (z + 1) * (arb(self.square) / 2)).exp()

    def modulus(self, z: acb) -> arb:
        """Return that of the closed form."""
        u, v, half = z.real, z.imag, arb(self.square) / 2
        return (((u + HALF) ** 2 - v**2 - arb(1) / 4) * half).exp().abs_upper()

    def tail(self, c: arb, t: arb) -> arb:
        """Return it at t: it falls in t."""
        return ((c * (c + 1) - t * t) * (arb(self.square) / 2)).exp()


@frozen(eq=False)
class Laplace(Pair):
    """Laplace noise of scale 1, moved by epsilon.

    The loss is e with P-mass 1/2, -e with P-mass ``e^-e / 2``, and between them it has the
    P-density ``e^{(l-e)/2} / 4``. So
    ``M(z) = (e^{ze} (z+1) + e^{-(z+1)e} z) / (2z + 1)``.
    """

    epsilon: fmpq

    def profile(self, epsilon: arb) -> arb:
        """Return ``1 - e^{(s-e)/2}`` for |s| <= e: the best test is a threshold."""
        e = arb(self.epsilon)
        if epsilon < -e:
            return -epsilon.expm1()
        inside = positive(-((epsilon - e) / 2).expm1())
        return inside if epsilon > -e else inside.union(-epsilon.expm1())

    def moment(self, z: acb) -> acb:
        """Return the closed form, near ``z = -1/2`` as the integral that it is."""
        e, w = arb(self.epsilon), z + HALF
        near = w * e
        if near.real.contains(0) and near.imag.contains(0):
            # atoms, and e^{-e/2} / 2 times sinh(we) / w
            size = (near.real.abs_upper() + near.imag.abs_upper()).exp() * e
            between = acb(ball(size), ball(size)) * ((-e / 2).exp() / 2)
            return ((z * e).exp() + (-(z + 1) * e).exp()) / 2 + between
        return ((z * e).exp() * (z + 1) + (-(z + 1) * e).exp() * z) / (2 * w)

    def tail(self, c: arb, t: arb) -> arb:
        """Return the triangle inequality's bound, which falls in t."""
        e = arb(self.epsilon)
        down = 2 * ((c + HALF) ** 2 + t**2).sqrt()
        first = (c * e).exp() * ((c + 1) ** 2 + t**2).sqrt() / down
        # |z| / |2z + 1| is at most 1/2 for Re z >= 0
        return first + (-(c + 1) * e).exp() / 2

    def largest(self) -> arb:
        """Return epsilon."""
        return arb(self.epsilon)


@frozen(eq=False)
class BoundedRange(Pair):
    """The largest profile of ratios within a range of epsilon, as one pair.

    Each ratio with ends ``t - eps`` and t has ``(e^eps - e^t)(1 - e^{s-t}) / (e^eps - 1)`` at most,
    largest at ``t = (eps + s) / 2``. The profile is convex in e^s, so it is that of a pair, with
    the P-density ``e^{l/2} / (4 sinh(eps/2))`` on [-eps, eps].
    """

    epsilon: fmpq

    def profile(self, epsilon: arb) -> arb:
        """Return ``(1 - e^{(s-eps)/2})^2 / (1 - e^-eps)`` for |s| <= eps."""
        e = arb(self.epsilon)
        if self.epsilon == 0 or epsilon < -e:
            return positive(-epsilon.expm1())
        inside = positive(-((epsilon - e) / 2).expm1()) ** 2 / -(-e).expm1()
        return inside if epsilon > -e else inside.union(positive(-epsilon.expm1()))

    def moment(self, z: acb) -> acb:
        """Return ``sinh(we) / (2 w sinh(e/2))``, ``w = z + 1/2``."""
        e = arb(self.epsilon)
        w = (z + HALF) * e
        return (1j * w).sinc() * e / (2 * (e / 2).sinh())

    def tail(self, c: arb, t: arb) -> arb:
        """Return ``cosh(we) / (2 t sinh(e/2))``."""
        e = arb(self.epsilon)
        return ((c + HALF) * e).cosh() / (2 * t * (e / 2).sinh())

    def largest(self) -> arb:
        """Return epsilon."""
        return arb(self.epsilon)


# -----------------------------------------------------------------------------
# Mixtures of normal laws: Gaussian noise on a Poisson sample.
#
# With ``A = 1 - q + q e^{mu x - mu^2/2}`` and ``B = 1 - q + q e^{-mu x - mu^2/2}`` the ratios of
# the mixtures with N(mu, 1) and N(-mu, 1) to N(0, 1), a moment is ``int phi A^u B^v`` at some
# powers. The sum of the trapezoid rule with step h is off by at most ``2 N / (e^{2 pi a / h} -
# 1)``, N a bound of the integral of the modulus on ``Im x = +-a`` (Trefethen and Weideman 2014, Thm
# 5.1). There ``|phi| <= phi e^{a^2/2}``, ``A cos(mu a / 2) <= |A| <= A``, and its argument is at
# most ``mu a``; so for ``mu a <= pi/2`` N is at most the moment at the real parts times ``e^{a^2/2
# + (|Im u| + |Im v|) mu a} cos(mu a / 2)^{-n}``, n the sum of negative real powers.


Node = tuple[arb, arb, arb]

MOST_NODES = 2**20
"""How many nodes are kept for all sums together: each takes some 400 bytes."""

_KEPT: dict[tuple[object, int, int], tuple[int, list[Node]]] = {}
"""By owner, step and precision: the first node's index, and all from there on."""

_KEEPING = Lock()


def _keep(key: tuple[object, int, int], nodes: tuple[int, list[Node]]) -> None:
    """Keep the nodes, and leave out of the others those kept first while all are too many."""
    with _KEEPING:
        _KEPT.pop(key, None)
        _KEPT[key] = nodes
        count = sum(len(each) for _, each in _KEPT.values())
        while count > MOST_NODES:
            count -= len(_KEPT.pop(next(iter(_KEPT)))[1])


@frozen(eq=False)
class NormalMixture(Pair):
    """``(1-q) N(0, 1) + q N(mu, 1)`` against N(0, 1), or against ``(1-q) N(0, 1) + q N(-mu, 1)``.

    Parameters
    ----------
    mu, rate
        The shift, and the chance q of it, in (0, 1).
    replaced
        Whether Q is the mixture with -mu (replace-one), and not N(0, 1) (add/remove).
    reversed
        Whether P and Q are exchanged.
    """

    mu: arb
    rate: arb
    replaced: bool = False
    reversed: bool = False
    # by whom the nodes of its sums are kept, the same for both orders
    _owner: object = field(factory=object)
    _real: dict[tuple[str, int], arb] = field(factory=dict)
    _lines: dict[tuple[str, int], list[tuple[arb, arb]]] = field(factory=dict)

    def reverse(self) -> NormalMixture:
        """Return the other order; the mixtures with mu and with -mu mirror each other."""
        if self.replaced:
            return self
        return NormalMixture(self.mu, self.rate, False, not self.reversed, self._owner)

    def profile(self, epsilon: arb) -> arb:
        """Return the masses beyond the outcome whose loss is epsilon."""
        mu, q, half = self.mu, self.rate, self.mu**2 / 2
        if self.replaced:
            odds = (1 - q) / q * half.exp()
            x = (epsilon / 2 + (odds * (epsilon / 2).sinh()).asinh()) / mu
            rest = (1 - q) * normal_above(x)
            one, other = normal_above(x - mu), normal_above(x + mu)
            return positive(rest + q * one - epsilon.exp() * (rest + q * other))
        # removal: L > e where r > (e^e - 1)/q + 1; addition: where r < (e^-e - 1)/q + 1
        bound = 1 + (-epsilon if self.reversed else epsilon).expm1() / q
        if not bound > 0:
            least = arb(0) if self.reversed else positive(-epsilon.expm1())
            return least if bound < 0 else least.union(ONE)
        x = (bound.log() + half) / mu
        if self.reversed:
            absent, present = normal_above(-x), normal_above(mu - x)
            return positive(absent - epsilon.exp() * ((1 - q) * absent + q * present))
        absent, present = normal_above(x), normal_above(x - mu)
        return positive((1 - q) * absent + q * present - epsilon.exp() * absent)

    def _powers(self, z: acb) -> tuple[acb, acb]:
        if self.replaced:
            return z + 1, -z
        return (-z, acb(0)) if self.reversed else (z + 1, acb(0))

    def moment(self, z: acb) -> acb:
        """Return the trapezoid sum, with its proven error."""
        u, v = self._powers(z)
        digits = ctx.prec * math.log(2)
        spin = float(u.imag.abs_upper() + v.imag.abs_upper())
        negative = max(0.0, -float(u.real)) + max(0.0, -float(v.real))
        width = min(math.pi / (2 * float(self.mu)), 4.0)
        need = digits + width**2 / 2 + spin * float(self.mu) * width + negative
        # steps in eighths of an octave, so that many moments share their nodes
        level = math.ceil(8 * math.log2(need / (2 * math.pi * width)))
        step = arb(2) ** (arb(-level) / 8)
        right = self._reach(max(0.0, float(u.real)), digits + negative)
        left = self._reach(max(0.0, float(v.real)), digits + negative)
        total = acb(0)
        for weight, log_a, log_b in self._nodes(level, step, left, right):
            total += weight * (
                (u * log_a + v * log_b).exp() if self.replaced else (u * log_a).exp()
            )
        a, angle = exact(width), exact(width) * self.mu
        spread = a**2 / 2 + (u.imag.abs_upper() + v.imag.abs_upper()) * angle
        slack = arb(negative + 1e-9) * (angle / 2).cos().log()
        share = 2 * (spread - slack).exp() / (2 * arb.pi() * a / step).expm1()
        cut = self._cut(u.real, v.real, step, right) + self._cut(v.real, u.real, step, left)
        # the real moment is itself the size in its error: a share far below 1 of it
        alone = z.imag.is_zero()
        size = (total.real + cut) / (1 - share) if alone else self._size(z.real)
        wrong = ball(share * size + cut)
        return acb(total.real + wrong, total.imag + wrong)

    def modulus(self, z: acb) -> arb:
        """Return the larger of the moments at the ends, kept."""
        return self._size(z.real.lower()).max(self._size(z.real.upper()))

    def _size(self, c: arb) -> arb:
        """Return the moment at a real point, kept."""
        key = (c.str(30), ctx.prec)
        if key not in self._real:
            value = self.moment(acb(c))
            self._real[key] = value.real.abs_upper()
        return self._real[key]

    def _reach(self, power: float, digits: float) -> int:
        """Return about where ``phi A^power`` is negligible, beyond its mode."""
        mu, q = float(self.mu), float(self.rate)
        reach = math.ceil(power * mu) + 2
        while True:
            log_a = math.log1p(q * math.expm1(min(700.0, mu * reach - mu * mu / 2)))
            if power * log_a - reach * reach / 2 < -digits:
                return reach
            reach += 1

    def _nodes(self, level: int, step: arb, left: int, right: int) -> Iterable[Node]:
        """Return the nodes from -left to right: kept ones, but where they are too many."""
        first, stop = -math.ceil(left / float(step)), math.ceil(right / float(step)) + 1
        key = (self._owner, level, ctx.prec)
        start, nodes = _KEPT.get(key, (first, []))
        if first < start or stop > start + len(nodes):
            end = start + len(nodes)
            if max(stop, end) - min(first, start) > MOST_NODES // 4:
                return self._made(step, first, stop)
            before, after = self._made(step, first, start), self._made(step, end, stop)
            start, nodes = min(first, start), [*before, *nodes, *after]
            _keep(key, (start, nodes))
        return islice(nodes, first - start, stop - start)

    def _made(self, step: arb, first: int, stop: int) -> Iterator[Node]:
        """Yield weights and logarithms of A and B at the nodes ``j step``."""
        scale, half = step / (2 * arb.pi()).sqrt(), self.mu**2 / 2
        for j in range(first, stop):
            x = step * j
            log_a = (self.rate * (self.mu * x - half).expm1()).log1p()
            log_b = (self.rate * (-self.mu * x - half).expm1()).log1p()
            yield scale * (-x * x / 2).exp(), log_a, log_b

    def _cut(self, rising: arb, other: arb, step: arb, reach: int) -> arb:
        """Bound the nodes left out on one side, of the powers of the ratio that rises there.

        ``(log A)' <= mu``, so that beyond x = X ``A <= A(X) e^{mu (x - X)}``: what is left is a
        normal density of mean ``power mu``, which falls there. The other ratio is at most 1, both
        at least ``1 - q``.
        """
        power, x = positive(rising), arb(reach)
        beta, far = power * self.mu, x - power * self.mu
        least = (1 - self.rate) ** -(positive(-rising) + positive(-other))
        log_a = (self.rate * (self.mu * x - self.mu**2 / 2).expm1()).log1p()
        density = (-(far**2) / 2).exp() / (2 * arb.pi()).sqrt()
        grown = (power * log_a - beta * x + beta**2 / 2).exp()
        if not far > 0:
            return arb("inf")
        return least * grown * (step * density + normal_above(far))

    def tail(self, c: arb, t: arb) -> arb:
        """Return ``TV(h) / t`` with ``h = phi A^u B^v / L'``, or what is on a line of its own.

        The first is one integration by parts. The line is ``Im x = a``, to which the integral may
        be moved, on the side where the powers ``+-it`` leave ``e^{-t arg}``.
        """
        best = self._variation(c) / t
        for a in (1.0, 0.5, 0.25, 0.125):
            total = ZERO
            for weight, angle in self._moved(c, a * min(math.pi / (2 * float(self.mu)), 8.0)):
                total += weight * (-t * angle).exp()
            best = best.min(total)
        return best

    def _moved(self, c: arb, a: float) -> list[tuple[arb, arb]]:
        """Return for cells of x the integral of the modulus at t = 0, and the least angle there.

        The angles ``arg A`` and ``-arg B`` are positive for ``0 < mu a < pi``; one rises in x, the
        other falls. Beyond the cells they are taken for 0.
        """
        key = ("line" + c.str(20) + str(a), ctx.prec)
        if key in self._lines:
            return self._lines[key]
        powers = self._powers(acb(c))
        u, v, q, mu = powers[0].real, powers[1].real, self.rate, self.mu
        half, turn = mu**2 / 2, mu * exact(a)
        reach = math.ceil(float(mu * (u.abs_upper() + v.abs_upper() + 1))) + 20
        # of negative powers, |A| >= A cos(mu a / 2)
        spread = (exact(a) ** 2 / 2).exp() * (turn / 2).cos() ** -(positive(-u) + positive(-v))

        def angle(x: arb) -> arb:
            share = q * (mu * x - half).exp()
            return arb.atan2(share * turn.sin(), 1 - q + share * turn.cos())

        cells, edges = 8 * reach, [arb(i) / 8 for i in range(-8 * reach, 8 * reach + 1)]
        angles = [angle(x) for x in edges]
        found = []
        for i in range(2 * cells):
            x = (edges[i] + edges[i + 1]) / 2 + ball(arb(1) / 16)
            log_a = (q * (mu * x - half).expm1()).log1p()
            log_b = (q * (-mu * x - half).expm1()).log1p() if self.replaced else ZERO
            size = (-x * x / 2 + u * log_a + v * log_b).exp() / (2 * arb.pi()).sqrt() / 8
            least = angles[i] + (angles[2 * cells - i - 1] if self.replaced else ZERO)
            found.append(((size * spread).abs_upper(), least.lower()))
        ends = self._cut(u, v, ZERO, reach) + self._cut(v, u, ZERO, reach)
        found.append(((ends * spread).abs_upper(), ZERO))
        self._lines[key] = found
        return found

    def _variation(self, c: arb) -> arb:
        """Bound the total variation of h on cells, and beyond them where it is monotone.

        ``(log h)' = -x + u a - v b - L''/L'`` with ``a = A'/A``, ``b = -B'/B``; each of a and b is
        in [0, mu], and ``|L''/L'| <= mu``.
        """
        key = ("tv" + c.str(20), ctx.prec)
        if key in self._real:
            return self._real[key]
        powers = self._powers(acb(c))
        u, v = powers[0].real, powers[1].real
        drift = self.mu * (u.abs_upper() + v.abs_upper() + 1)
        reach = math.ceil(float(drift)) + 14
        cells = 32 * reach
        total = arb(0)
        for i in range(-cells, cells):
            x = (arb(2 * i + 1) / 64) + ball(arb(1) / 64)
            value, slope = self._smooth(u, v, x)
            total += (value * slope).abs_upper() / 32
        for end in (-reach, reach):
            total += self._smooth(u, v, arb(end))[0].abs_upper()
        self._real[key] = total
        return total

    def _smooth(self, u: arb, v: arb, x: arb) -> tuple[arb, arb]:
        """Return h and the slope of its logarithm."""
        mu, q, half = self.mu, self.rate, self.mu**2 / 2
        log_a = (q * (mu * x - half).expm1()).log1p()
        share_a = q * (mu * x - half - log_a).exp()
        if not self.replaced:
            rising, bend = mu * share_a, mu * (1 - share_a)
            value = (-x * x / 2 + u * log_a).exp() / (2 * arb.pi()).sqrt() / rising
            return value, -x + u * mu * share_a - bend
        log_b = (q * (-mu * x - half).expm1()).log1p()
        share_b = q * (-mu * x - half - log_b).exp()
        rising = mu * (share_a + share_b)
        bend = mu * ball(ONE)
        value = (-x * x / 2 + u * log_a + v * log_b).exp() / (2 * arb.pi()).sqrt() / rising
        return value, -x + u * mu * share_a - v * mu * share_b - bend


Shifts = tuple[tuple[arb, arb], ...]


@frozen(eq=False)
class ShiftMixture(Pair):
    """``sum_i p_i N(s_i, 1)`` against ``sum_j q_j N(-t_j, 1)``: the loss rises in the outcome.

    Each side is its shifts, none of them negative, with their probabilities.
    """

    some: Shifts
    others: Shifts
    reversed: bool = False

    def reverse(self) -> ShiftMixture:
        """Return the other order."""
        return evolve(self, reversed=not self.reversed)

    def profile(self, epsilon: arb) -> arb:
        """Return the masses beyond the outcome whose loss is epsilon, which bisection encloses."""
        level = -epsilon if self.reversed else epsilon
        low, high = arb(-200), arb(200)
        for _ in range(140):
            middle = ((low + high) / 2).mid()
            low, high = (middle, high) if self._loss(middle) < level else (low, middle)
        # either end of the bisection may be off by the rounding of a comparison
        x = low.union(high) + ball(arb(2) ** -100)
        side = -1 if self.reversed else 1
        present = sum((p * normal_above(side * (x - s)) for s, p in self.some), ZERO)
        absent = sum((q * normal_above(side * (x + t)) for t, q in self.others), ZERO)
        p, q = (absent, present) if self.reversed else (present, absent)
        # a loss that no outcome has: everything or nothing is beyond
        return positive((p - epsilon.exp() * q).max(-epsilon.expm1()))

    def _loss(self, x: arb) -> arb:
        some = sum((p * (s * x - s * s / 2).exp() for s, p in self.some), ZERO)
        others = sum((q * (-t * x - t * t / 2).exp() for t, q in self.others), ZERO)
        return some.log() - others.log()


# -----------------------------------------------------------------------------
# A sample of the units, for any pair.


@frozen(eq=False)
class Sampled(Pair):
    """``(1-q) Q + q P`` against Q, or Q against that; the profile follows from the inner pair's.

    ``((1-q) Q + q P - t Q)_+ = q (P - t' Q)_+`` with ``t' = 1 + (t-1)/q``; and
    ``(Q - t ((1-q) Q + q P))_+ = w (Q - (t q / w) P)_+`` with ``w = 1 - t (1-q)``, 0 for w <= 0.
    """

    inner: Pair
    rate: arb
    reversed: bool = False

    def reverse(self) -> Sampled:
        """Return the other order."""
        return evolve(self, reversed=not self.reversed)

    def profile(self, epsilon: arb) -> arb:
        """Return the inner profile at the inner epsilon, weighted."""
        q = self.rate
        if self.reversed:
            weight = 1 - epsilon.exp() * (1 - q)
            if not weight > 0:
                return ZERO if weight <= 0 else ZERO.union(weight.abs_upper())
            return weight * self.inner.reverse().profile(epsilon + (q / weight).log())
        ratio = epsilon.expm1() / q
        if not ratio > -1:
            least = positive(-epsilon.expm1())
            return least if ratio < -1 else least.union(ONE)
        return q * self.inner.profile(ratio.log1p())

    def moment(self, z: acb) -> acb | None:
        """Return the integral, where the inner pair is Laplace noise."""
        if not isinstance(self.inner, Laplace):
            return None
        e, q = arb(self.inner.epsilon), self.rate
        power = -z if self.reversed else z + 1

        def ratio(loss: arb) -> acb:
            return (power * (q * loss.expm1()).log1p()).exp()

        def density(loss: acb, analytic: bool) -> acb:
            log = (1 + q * loss.expm1()).log(analytic=analytic)
            return (power * log - (loss + e) / 2).exp() / 4

        # under Q the loss is -e with mass 1/2, e with mass e^-e / 2
        atoms = ratio(-e) / 2 + ratio(e) * ((-e).exp() / 2)
        return atoms + acb.integral(density, -e, e)

    def tail(self, c: arb, t: arb) -> arb | None:
        """Return the atoms, and an integral by parts of the rest.

        ``h = R^{u+1} e^{-(l+e)/2 - l} / (4q)``: the slope of log h is u + 1 times a logistic curve
        less 3/2, which is negative, or rises: h falls, or falls and then rises. So its variation
        is at most the sum of its ends.
        """
        if not isinstance(self.inner, Laplace):
            return None
        e, q = arb(self.inner.epsilon), self.rate
        u = -c if self.reversed else c + 1
        total = arb(0)
        for end, mass in ((e, (-e).exp() / 2), (-e, HALF)):
            log = (q * end.expm1()).log1p()
            total += mass * (u * log).exp()
            total += 2 * ((u + 1) * log - (end + e) / 2 - end).exp() / (4 * q) / t
        return total

    def largest(self) -> arb | None:
        """Return the log of the largest ratio."""
        inner = self.inner.reverse() if self.reversed else self.inner
        top = inner.largest()
        if top is None:
            return -(-self.rate).log1p() if self.reversed else None
        if self.reversed:
            return -(self.rate * (-top).expm1()).log1p()
        return (self.rate * top.expm1()).log1p()


def sampled(inner: Pair, rate: Fraction) -> Pair:
    """Return the pair on a Poisson sample, for neighbours of which one unit is absent."""
    if rate == 0:
        return on_lattice(fmpq(1), {0: ONE})
    if rate == 1:
        return inner
    q = exact(rate)
    if isinstance(inner, Gaussian):
        return NormalMixture(arb(inner.square).sqrt(), q) if inner.square else inner
    if not isinstance(inner, Finite):
        return Sampled(inner, q)
    losses, masses = [], []
    for loss, mass in zip(inner.losses, inner.masses, strict=True):
        losses.append((q * loss.expm1()).log1p())
        masses.append((1 - q) * mass * (-loss).exp() + q * mass)
    if inner.lost_reversed is None:  # nothing is known of it, nor of what becomes of it
        return two_points(Finite(tuple(losses), tuple(masses), inner.lost))
    # what Q alone has the sample has as well, at a ratio of 1 - q
    if not inner.lost_reversed.is_zero():
        losses.append((-q).log1p())
        masses.append((1 - q) * inner.lost_reversed)
    return two_points(Finite(tuple(losses), tuple(masses), q * inner.lost, lost_reversed=ZERO))


def two_points(pair: Finite) -> Finite:
    """Return a pair of two losses as one on a lattice that both are on."""
    if len(pair.losses) != 2:
        return pair
    first, second = pair.losses
    if first < second:
        return evolve(pair, lattice=(first, second - first, (0, 1)))
    return evolve(pair, lattice=(second, first - second, (1, 0))) if second < first else pair


@frozen(eq=False)
class Joint(Pair):
    """What advanced joint convexity leaves of a pair that is its own reverse, mixed at rate q.

    ``delta(e) = q delta_inner(log(1 + (e^e - 1)/q))`` for e >= 0; below, by symmetry
    (Balle, Barthe and Gaboardi 2018, Thm 2).
    """

    inner: Pair
    rate: arb

    def profile(self, epsilon: arb) -> arb:
        """Return the formula."""
        if epsilon < 0:
            return 1 - epsilon.exp() + epsilon.exp() * self.profile(-epsilon)
        inside = (positive(epsilon).expm1() / self.rate).log1p()
        return self.rate * self.inner.profile(inside)

    def largest(self) -> arb | None:
        """Return the log of the largest ratio."""
        top = self.inner.largest()
        return None if top is None else (self.rate * top.expm1()).log1p()


@frozen(eq=False)
class Bound(Pair):
    """A pair of which a bound of the profile is known at non-negative epsilons, and no more.

    A bound may lie above its chords in ``e^epsilon``, unless it is ``convex``.
    """

    bound: object = field()
    top: arb | None = None
    convex: bool = False

    def profile(self, epsilon: arb) -> arb:
        """Return the bound; below 0 by symmetry."""
        if epsilon < 0:
            return 1 - epsilon.exp() + epsilon.exp() * self.profile(-epsilon)
        value: arb = self.bound(epsilon)  # type: ignore[operator]
        return value.min(ONE)

    def largest(self) -> arb | None:
        """Return the pure epsilon, if there is one."""
        return self.top


@lru_cache(maxsize=16)  # a row of thousands of long integers is large
def binomials(n: int) -> tuple[int, ...]:
    """Return a row of Pascal's triangle."""
    row = [1]
    for k in range(n):
        row.append(row[-1] * (n - k) // (k + 1))
    return tuple(row)
