"""What is known of each loss, from the theorem that its kind stands for, in ball arithmetic.

The numbers are those of the published theorems, worked out again here. Everything is an upper
bound for both directions; `Known.attained` says that the pair is that of some mechanism of the
kind, so that lower bounds follow from it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise

from attrs import evolve, field, frozen
from flint import acb, arb, arb_poly, ctx, fmpq

from accountants.independent.document import Node, NotCovered
from accountants.independent.pairs import (
    HALF,
    ONE,
    ZERO,
    Bound,
    BoundedRange,
    Finite,
    Gaussian,
    Joint,
    Laplace,
    NormalMixture,
    Pair,
    ShiftMixture,
    Shifts,
    discrete_gaussian,
    discrete_laplace,
    exact,
    gaussian_profile,
    normal_above,
    on_lattice,
    positive,
    rational,
    response,
    response_at,
    sampled,
    two_points,
)

Curve = Callable[[arb], arb]
"""An order above 1 in, a bound of the Renyi divergence out."""

LARGEST_SHIFT = 100_000
"""Noise on the integers is not covered for a larger sensitivity."""


@frozen(eq=False)
class Known:
    """What is known of a loss.

    Parameters
    ----------
    floor
        A probability on which nothing is promised; all else is beside it.
    pair
        A dominating pair, and ``attained`` whether some mechanism of the kind has it.
    pure, rho, mu
        The pure epsilon, the zCDP parameter, the Gaussian-DP parameter.
    renyi
        The Renyi curve.
    profile
        Bounds of delta at epsilon with the floor, where they say more than the pair.
    witness
        A pair that some mechanism of the kind has, its failures inside, where ``pair`` is not one.
    alone
        Whether each value of the pair's profile is that of some mechanism of the kind, of one
        release: no mechanism has all of them where ``pair`` is not attained.
    """

    floor: arb = field(factory=lambda: arb(0))
    pair: Pair | None = None
    attained: bool = False
    pure: arb | None = None
    rho: arb | None = None
    mu: arb | None = None
    renyi: Curve | None = None
    profile: Curve | None = None
    witness: Pair | None = None
    alone: bool = False

    def curve(self) -> Curve | None:
        """Return the curve: its own, or what its mu, its rho or its pure epsilon imply."""
        if self.renyi is not None:
            return self.renyi
        if self.mu is not None:
            half = self.mu**2 / 2
            return lambda order: order * half
        if self.rho is not None:
            rho = self.rho
            return lambda order: order * rho
        if self.pure is not None:
            eps = self.pure
            return lambda order: response_curve(eps, order)
        return None

    def best_rho(self) -> arb | None:
        """Return the least rho that follows."""
        found = [self.rho] if self.rho is not None else []
        if self.mu is not None:
            found.append(self.mu**2 / 2)
        if self.pure is not None:
            found.append(self.pure * (self.pure / 2).tanh())
        return _least(found)

    def best_mu(self) -> arb | None:
        """Return the least mu that follows; of a pure epsilon ``2 Phi^-1(e^eps / (1 + e^eps))``."""
        found = [self.mu] if self.mu is not None else []
        if self.pure is not None and self.pure < 80:
            # Phi(mu/2) = e^eps / (1 + e^eps): erf(mu / (2 sqrt 2)) = tanh(eps / 2)
            found.append((self.pure / 2).tanh().erfinv() * arb(8).sqrt())
        return _least(found)


def _least(values: Sequence[arb]) -> arb | None:
    best: arb | None = None
    for value in values:
        best = value if best is None else best.min(value)
    return best


def response_curve(eps: arb, order: arb) -> arb:
    """Return randomized response's: ``log(cosh((a - 1/2) eps) / cosh(eps/2)) / (a - 1)``."""
    x, y = (order - HALF) * eps, eps / 2
    logs = x - y + (-2 * x).exp().log1p() - (-2 * y).exp().log1p()
    return logs / (order - 1)


def pair_curve(pair: Pair) -> Curve:
    """Return that of a pair's costlier direction."""
    sides = [pair] if pair.reverse() is pair else [pair, pair.reverse()]

    def curve(order: arb) -> arb:
        every = [side.moment(acb(order - 1)) for side in sides]
        logs = [each.real.log() / (order - 1) for each in every if each is not None]
        return logs[0].max(logs[-1])

    return curve


def least_over(
    function: Callable[[float], float], low: float, high: float, cells: int = 24
) -> float:
    """Return about where a function of a positive number is least."""
    logs = [math.log(low) + (math.log(high) - math.log(low)) * i / cells for i in range(cells + 1)]
    values = [function(math.exp(x)) for x in logs]
    i = min(range(len(values)), key=lambda k: values[k])
    a, b = logs[max(0, i - 1)], logs[min(cells, i + 1)]
    ratio = (math.sqrt(5) - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    at_c, at_d = function(math.exp(c)), function(math.exp(d))
    # a given curve has corners, next to which nothing is flat
    for _ in range(50):
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - ratio * (b - a)
            at_c = function(math.exp(c))
        else:
            a, c, at_c = c, d, at_d
            d = a + ratio * (b - a)
            at_d = function(math.exp(d))
    best, at = (c, at_c) if at_c <= at_d else (d, at_d)
    return math.exp(best if at <= values[i] else logs[i])


def number(value: arb) -> float:
    """Return about the value; infinite where it is none."""
    result = float(value)
    return result if math.isfinite(result) else math.inf


# -----------------------------------------------------------------------------
# Each kind.


@lru_cache(maxsize=64)
def _known(node: Node, precision: int) -> Known:
    made = KINDS.get(node.kind)
    if made is None:
        raise NotCovered(f"{node.kind} is not covered")
    return made(node)


def known(node: Node) -> Known:
    """Return what is known of a loss, at the precision of the moment.

    Raises
    ------
    NotCovered
        If nothing is.
    """
    return _known(node, ctx.prec)


def _gaussian(node: Node) -> Known:
    return _of_mu(rational(node["mu"]), attained=node.kind == "Gaussian")


def _of_mu(mu: fmpq, *, attained: bool) -> Known:
    pure = ZERO if mu == 0 else None
    return Known(pair=Gaussian(mu * mu), attained=attained, mu=arb(mu), pure=pure)


def _laplace(node: Node) -> Known:
    return _of_laplace(rational(node["epsilon"]))


def _of_laplace(eps: fmpq) -> Known:
    if eps == 0:
        return _of_mu(eps, attained=True)
    pair = Laplace(eps)
    # the noise is log-concave: rho of Laplace noise is at most that of randomized response
    return Known(
        pair=pair, attained=True, pure=arb(eps), renyi=pair_curve(pair), rho=_laplace_rho(eps)
    )


def _laplace_rho(eps: fmpq) -> arb:
    """Return ``eps - 1 + e^-eps``, the limit of D_a at a = 1, which bounds D_a / a."""
    return arb(eps) + (-arb(eps)).expm1()


def _pure(node: Node) -> Known:
    return _of_pure(node["epsilon"], attained=node.kind == "Pure")


def _of_pure(epsilon: float | Fraction, *, attained: bool, floor: arb = ZERO) -> Known:
    eps = exact(epsilon)
    return Known(
        floor=floor,
        pair=response(epsilon),
        attained=attained,
        pure=eps,
        rho=eps * (eps / 2).tanh(),
        renyi=lambda order: response_curve(eps, order),
    )


def _approximate(node: Node) -> Known:
    return _of_pure(node["epsilon"], attained=True, floor=exact(node["delta"]))


def _randomized_response(node: Node) -> Known:
    eps, k = exact(node["epsilon"]), node["categories"]
    pair = response(node["epsilon"], k)
    rho = eps * (eps / 2).tanh()
    if k > 2 and number((k - 2) * (-eps / 2).exp() / 2) <= 1 - 1e-9:
        # F(t) = cosh(eps sqrt t) + (k-2)/2 e^{-eps/2}: the limit at order 1
        rho = eps * eps.expm1() / (eps.exp() + k - 1)
    return Known(pair=pair, attained=True, pure=eps, rho=rho, renyi=pair_curve(pair))


def _truncated_laplace(node: Node) -> Known:
    """Return randomized noise on [-A, A] by its profile (Geng et al. 2020, Thm 1, for F)."""
    eps = exact(node["epsilon"])
    u = (-eps * exact(node["bound"])).exp()

    def above(x: arb) -> arb:
        # in units of the sensitivity, mass of the noise above x of (0, A]
        return ((-eps * x).exp() - u) / (2 * (1 - u))

    return _truncated(above, eps, lambda e: (e / eps + 1) / 2, node["bound"])


def _truncated_gaussian(node: Node) -> Known:
    mu = exact(node["mu"])
    tail = normal_above(mu * exact(node["bound"]))

    def above(x: arb) -> arb:
        return (normal_above(mu * x) - tail) / (1 - 2 * tail)

    top = mu * mu * (exact(node["bound"]) - HALF)
    return _truncated(above, top, lambda e: e / (mu * mu) + HALF, node["bound"])


def _truncated(above: Curve, top: arb, at: Curve, bound: float) -> Known:
    """Return symmetric noise on [-A, A], by its mass above x and where the loss is epsilon.

    That mass is known for x from 0 to A; below, it is one minus the mirror image's.
    """

    def tail(x: arb) -> arb:
        return above(x) if x >= 0 else 1 - above(-x)

    floor = tail(exact(bound) - 1)

    def profile(epsilon: arb) -> arb:
        if not epsilon < top:
            return ZERO
        x = at(epsilon)
        return positive(tail(x - 1) - epsilon.exp() * tail(x) - floor) / (1 - floor)

    return Known(floor=floor, pair=Bound(profile, top, convex=True), pure=top, alone=True)


def _bounded_range(node: Node) -> Known:
    return _of_range(rational(node["epsilon"]))


def _of_range(epsilon: fmpq) -> Known:
    eps = arb(epsilon)
    if epsilon == 0:
        return _of_mu(epsilon, attained=True)

    def k(x: arb) -> arb:
        return ((x / 2).sinh() / (x / 2)).log()

    def curve(order: arb) -> arb:
        # of each order the worst pair of two points
        every = order * k(order * eps) - (order - 1) * k((order - 1) * eps) - k(eps)
        return (every / (order - 1)).min(eps)

    rho = k(eps) + (eps / 2 / (eps / 2).tanh() - 1)
    # two outcomes attain the profile at each epsilon, and exponential tilts the range of a group
    return Known(pair=BoundedRange(epsilon), pure=eps, rho=rho, renyi=curve, alone=True)


def _shift(value: int) -> int:
    if value > LARGEST_SHIFT:
        raise NotCovered(f"noise on the integers with a sensitivity above {LARGEST_SHIFT}")
    return value


def _discrete_laplace(node: Node) -> Known:
    shift = _shift(node["sensitivity"])
    return _of_discrete_laplace(1 / rational(node["scale"]), shift)


def _of_discrete_laplace(rate: fmpq, shift: int) -> Known:
    pair, s = discrete_laplace(rate, shift), arb(rate)
    rho = s * shift - s / s.sinh() * (1 - (-s * shift).exp())
    return Known(pair=pair, attained=True, pure=s * shift, rho=rho, renyi=pair_curve(pair))


def _discrete_gaussian(node: Node) -> Known:
    sigma, shift = node["sigma"], _shift(node["sensitivity"])
    if not 1e-3 <= sigma <= 3e3:
        raise NotCovered("a discrete Gaussian with a sigma outside of [0.001, 3000]")
    pair = discrete_gaussian(sigma, shift)
    rho = arb(fmpq(shift * shift) / (2 * rational(sigma) ** 2))

    def curve(order: arb) -> arb:
        # exact moments: the theta functions' sums, cut where the masses are negligible
        half, shifted = 1 / (2 * exact(sigma) ** 2), (order - 1) * shift
        count = int(12 * sigma) + 40
        middle = round(float(shifted))
        top = [(-((y - shifted) ** 2) * half).exp() for y in range(middle - count, middle + count)]
        low = [(-(arb(y) ** 2) * half).exp() for y in range(-count, count)]
        spare = sum(top, ZERO) * arb(2) ** -90  # 12 sigma leave e^-72
        exact_value = order * rho + ((sum(top, ZERO) + spare) / sum(low, ZERO)).log() / (order - 1)
        return exact_value.min(order * rho)

    return Known(pair=pair, attained=True, rho=rho, renyi=curve)


def _composite(node: Node) -> Known:
    return together([(known(loss), times) for loss, times in node["spends"] if times])


def together(spends: Sequence[tuple[Known, int]]) -> Known:
    """Return what is known of losses paid at once: each functional adds up.

    Of the pairs a single one, one Gaussian of several, or what the pure epsilon implies.
    """
    if len(spends) == 1 and spends[0][1] == 1:
        return spends[0][0]
    floor = sum((each.floor * n for each, n in spends), ZERO).min(ONE)
    pure = _sum((each.pure, n) for each, n in spends)
    rho = _sum((each.best_rho(), n) for each, n in spends)
    squares = _sum((None if (m := each.best_mu()) is None else m**2, n) for each, n in spends)
    curves = [(each.curve(), n) for each, n in spends]

    def curve(order: arb) -> arb:
        return sum((c(order) * n for c, n in curves if c is not None), ZERO)

    mu = None if squares is None else squares.sqrt()
    pairs = [each.pair for each, _ in spends]
    pair: Pair | None = None
    attained = False
    if all(isinstance(one, Gaussian) for one in pairs):
        square = sum(
            (each.pair.square * n for each, n in spends if isinstance(each.pair, Gaussian)), fmpq()
        )
        pair, attained = Gaussian(square), all(each.attained for each, _ in spends)
    elif pure is not None:
        pair = response_at(pure)
    elif mu is not None:
        pair = Bound(lambda epsilon: gaussian_profile(mu, epsilon))
    every = all(c is not None for c, _ in curves)
    return Known(floor, pair, attained, pure, rho, mu, curve if every else None)


def _sum(values: Iterable[tuple[arb | None, int]]) -> arb | None:
    total = arb(0)
    for value, times in values:
        if value is None:
            return None
        total += value * times
    return total


def _envelope(node: Node) -> Known:
    every = [known(loss) for loss in node["losses"]]

    def largest(values: Sequence[arb | None]) -> arb | None:
        found = [value for value in values if value is not None]
        if len(found) < len(values):
            return None
        best = found[0]
        for value in found[1:]:
            best = best.max(value)
        return best

    pure = largest([each.pure for each in every])
    rho, mu = largest([e.best_rho() for e in every]), largest([e.best_mu() for e in every])
    curves = [each.curve() for each in every]
    known_curves = [c for c in curves if c is not None]

    def curve(order: arb) -> arb:
        best = largest([c(order) for c in known_curves])
        return ZERO if best is None else best

    pairs = [each.pair for each in every]
    known_pairs = [p for p in pairs if p is not None]

    def profile(epsilon: arb) -> arb:
        values = [side.profile(epsilon) for p in known_pairs for side in {p, p.reverse()}]
        best = largest(values)
        return ONE if best is None else best

    pair: Pair | None = None
    if len(known_pairs) == len(pairs):
        pair = known_pairs[0] if len(pairs) == 1 else Bound(profile, pure)
    floor = largest([each.floor for each in every])
    return Known(
        floor if floor is not None else ONE,
        pair,
        len(every) == 1 and every[0].attained,
        pure,
        rho,
        mu,
        curve if len(known_curves) == len(curves) else None,
    )


# --- samples


def _convex(curve: Curve, q: arb) -> Curve:
    """Return ``log(1 - q + q e^{(a-1) D_a}) / (a - 1)``: the moments are jointly convex."""

    def mixed(order: arb) -> arb:
        c = order - 1
        value = curve(order)
        return value.min((q * (c * value).expm1()).log1p() / c)

    return mixed


def _sampled(node: Node) -> Known:
    return _sample_of(known(node["body"]), Fraction(node["rate"]))


def _sample_of(body: Known, rate: Fraction) -> Known:
    q = exact(rate)
    if rate == 0:
        return _of_mu(fmpq(0), attained=True)
    if rate == 1:
        return body
    pure = None if body.pure is None else (q * body.pure.expm1()).log1p()
    pair = None if body.pair is None else sampled(body.pair, rate)
    unsampled = body.curve()
    curve = None if unsampled is None else _convex(unsampled, q)
    curves = [curve] if curve is not None else []
    if pair is not None and pair.moment(acb(1)) is not None:
        curves.append(pair_curve(pair))
    if body.pure is not None:
        curves.append(pair_curve(sampled(response_at(body.pure), rate)))
    witness: Pair | None = None
    if body.attained and not body.floor.is_zero() and isinstance(body.pair, Finite):
        # of a body that fails at a point of its own under each of its laws: q of the one failure
        # is left under P, and the other is 1 - q times as likely under P as under Q
        masses = tuple(mass * (1 - body.floor) for mass in body.pair.masses)
        fails = Finite(body.pair.losses, masses, body.floor, lost_reversed=body.floor)
        witness = sampled(fails, rate)
    return Known(
        floor=q * body.floor,
        pair=pair,
        attained=body.attained and body.floor.is_zero(),
        pure=pure,
        renyi=None if curve is None else _lowest(curves),
        witness=witness,
    )


def _lowest(curves: Sequence[Curve]) -> Curve:
    def curve(order: arb) -> arb:
        best = curves[0](order)
        for other in curves[1:]:
            value = other(order)
            best = best.min(value) if value.is_finite() else best
        return best

    return curve


def _mixed(body: Known, rate: Fraction) -> Known:
    """Return the bound of advanced joint convexity, of the loss of a replaced unit."""
    if rate == 0:
        return _of_mu(fmpq(0), attained=True)
    if rate == 1:
        return body
    q = exact(rate)
    pure = None if body.pure is None else (q * body.pure.expm1()).log1p()
    unsampled = body.curve()
    pair: Pair | None = None
    if isinstance(body.pair, Finite) and body.pure is not None and len(body.pair.losses) == 2:
        less = 1 / (1 + body.pure.exp())
        rise = q * body.pure.expm1()
        middle = (1 - q) * (1 - 2 * less)
        pair = on_lattice(rise.log1p(), {1: less * (1 + rise), 0: middle, -1: less})
    elif body.pair is not None and body.pair.reverse() is body.pair:
        pair = Joint(body.pair, q)
    return Known(
        floor=q * body.floor,
        pair=pair,
        pure=pure,
        renyi=None if unsampled is None else _convex(unsampled, q),
    )


def _fixed_size(node: Node) -> Known:
    body, rate = known(node["body"]), Fraction(node["size"], node["of"])
    # all others have the value by which the unit's is replaced
    return _seen_if_drawn(_mixed(body, rate), body, rate)


def _replaced_sample(node: Node) -> Known:
    rate, body = Fraction(node["rate"]), known(node["body"])
    two = known(Node("Replaced", (("loss", node["body"]),)))
    generic = _mixed(two, rate)
    if not 0 < rate < 1:
        return generic
    q = exact(rate)
    if isinstance(body.pair, Gaussian) and body.pair.square:
        pair = NormalMixture(arb(body.pair.square).sqrt(), q, replaced=True)
        curves = [c for c in (generic.renyi, pair_curve(pair)) if c is not None]
        return evolve(generic, pair=pair, attained=body.attained, renyi=_lowest(curves))
    if body.pure is not None and body.floor.is_zero() and not body.pure.is_zero():
        less = 1 / (1 + body.pure.exp())
        rise, fall = 1 + q * body.pure.expm1(), 1 + q * (-body.pure).expm1()
        three = {1: less * rise, 0: (1 - 2 * less) * fall, -1: less * fall}
        pair3 = on_lattice((rise / fall).log(), three)
        single = len(node["body"]["spends"]) == 1 and node["body"]["spends"][0][1] == 1
        attained = single and node["body"]["spends"][0][0].kind in ("Pure", "Approximate")
        curves = [c for c in (generic.renyi, pair_curve(pair3)) if c is not None]
        top = (rise / fall).log()
        pure = top if generic.pure is None else top.min(generic.pure)
        made = evolve(generic, pair=pair3, attained=attained, pure=pure, renyi=_lowest(curves))
        return made if attained else _seen_if_drawn(made, body, rate)
    return _seen_if_drawn(generic, body, rate)


def _seen_if_drawn(made: Known, body: Known, rate: Fraction) -> Known:
    """Return the same with a witness: the unit's other value is as if it were not drawn."""
    if rate == 1:
        return made
    one = _sample_of(body, rate)
    return evolve(made, witness=one.pair if one.attained else one.witness)


MOST_COUNTS = 4096
"""A random allocation of finitely many losses is summed over no more counts of them than this."""


def _allocated(node: Node) -> Known:
    """Return the mean of the steps' ratios, of few losses; else a step that every unit is in.

    The mean of ratios is no wider than one. It is that of the composition without the unit, of
    whose outcomes only counts matter (Feldman and Shenfeld 2025: of the pairs that dominate).
    """
    body, steps = known(node["body"]), node["steps"]
    if steps == 1:
        return body
    bound, pair = evolve(body, attained=False, alone=False, witness=None), body.pair
    if not isinstance(pair, Finite) or not pair.lost.is_zero() or pair.lost_reversed is not None:
        return bound
    m = len(pair.losses)
    if math.comb(steps + m - 1, m - 1) > MOST_COUNTS:
        return bound
    ratios = [loss.exp() for loss in pair.losses]
    chances = [mass / ratio for mass, ratio in zip(pair.masses, ratios, strict=True)]
    every: list[tuple[int, arb, arb]] = [(steps, ZERO, ONE)]
    for i, (ratio, chance) in enumerate(zip(ratios, chances, strict=True)):
        every = [
            (left - k, total + ratio * k, mass * chance**k * math.comb(left, k))
            for left, total, mass in every
            for k in (range(left + 1) if i < m - 1 else [left])
        ]
    means = [(total / steps, mass) for _, total, mass in every]
    losses, masses = [mean.log() for mean, _ in means], [mean * mass for mean, mass in means]
    found = Finite(tuple(losses), tuple(masses), lost_reversed=ZERO)
    curves = [pair_curve(found)] + [c for c in [body.curve()] if c is not None]
    attained = body.attained and body.floor.is_zero()
    return evolve(bound, pair=found, attained=attained, renyi=_lowest(curves))


# --- given guarantees


def _points(node: Node) -> Known:
    points, back = node["points"], node["reverse"] or node["points"]
    both = []
    for e in sorted({e for e, _ in (*points, *back)}):
        # what holds both ways at the epsilon
        sides = [[d for at, d in side if at <= e] for side in (points, back)]
        if all(sides):
            both.append((exact(e).exp(), exact(max(map(min, sides)))))
    if not both:
        return Known(floor=ONE, pair=on_lattice(fmpq(1), {0: ONE}), pure=ZERO)
    return _hull(both)


def _finite_outcomes(node: Node) -> Known:
    """Return the pair of the outcomes' ratios; what one law alone has is told apart."""
    masses: dict[Fraction, Fraction] = {}
    lost, back = Fraction(), Fraction()
    for p, q in zip(map(Fraction, node["p"]), map(Fraction, node["q"]), strict=True):
        if p and q:
            masses[p / q] = masses.get(p / q, Fraction()) + p
        else:
            lost, back = lost + p, back + q
    if not masses:
        return Known(floor=ONE, pair=on_lattice(fmpq(1), {0: ONE}), pure=ZERO)
    losses = tuple(exact(ratio).log() for ratio in masses)
    pair = two_points(
        Finite(losses, tuple(map(exact, masses.values())), exact(lost), lost_reversed=exact(back))
    )
    if lost or back:
        return Known(pair=pair, attained=node["attained"])
    top = pair.largest()
    assert top is not None
    for loss in losses:
        top = top.max(-loss)
    return Known(pair=pair, attained=node["attained"], pure=top, renyi=pair_curve(pair))


def _gaussian_mixture(node: Node) -> Known:
    opposite = (node["opposite_shifts"], node["opposite_probabilities"])
    some = _shifts_of(node["shifts"], node["probabilities"])
    return Known(pair=ShiftMixture(some, _shifts_of(*opposite)), attained=True)


def _shifts_of(shifts: Sequence[float], probabilities: Sequence[float]) -> Shifts:
    rest = exact(1 - sum(map(Fraction, probabilities)))
    return ((ZERO, rest), *zip(map(exact, shifts), map(exact, probabilities), strict=True))


def _hull(points: list[tuple[arb, arb]]) -> Known:
    """Return the pair of the lower hull, in e^epsilon, of guarantees that hold both ways."""
    floor = points[0][1]
    for _, value in points[1:]:
        floor = floor.min(value)
    if not floor < 1:
        return Known(floor=ONE, pair=on_lattice(fmpq(1), {0: ONE}), pure=ZERO)
    every = {ZERO.str(): (ZERO, ONE)}
    for t, value in points:
        scaled = (value - floor) / (1 - floor)
        every[t.str(40)] = (t, scaled)
        # the other way round: h(1/t) = 1 - 1/t + h(t)/t
        every[(1 / t).str(40)] = (1 / t, 1 - 1 / t + scaled / t)
    order = sorted(every.values(), key=lambda point: number(point[0]))
    hull: list[tuple[arb, arb]] = []
    for point in order:
        if hull and point[0].overlaps(hull[-1][0]):
            hull[-1] = (hull[-1][0], hull[-1][1].min(point[1]))
            continue
        while len(hull) > 1 and not _turns(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    while len(hull) > 1 and not hull[-1][1] < hull[-2][1]:
        hull.pop()
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    losses, masses = [], []
    for (t, _), before, after in zip(hull[1:], slopes, [*slopes[1:], ZERO], strict=True):
        losses.append(t.log())
        masses.append(positive(after - before) * t)
    pair = Finite(tuple(losses), tuple(masses))
    largest = pair.largest()
    return Known(floor=floor, pair=pair, pure=None if largest is None else positive(largest))


def _turns(a: tuple[arb, arb], b: tuple[arb, arb], c: tuple[arb, arb]) -> bool:
    return bool((b[1] - a[1]) * (c[0] - b[0]) < (c[1] - b[1]) * (b[0] - a[0]))


def _trade_off(node: Node) -> Known:
    """Return the guarantees of points of a trade-off function T, which is convex and self-inverse.

    ``T(a) >= b`` forces ``T(x) >= 1 - (1-b) x / a`` right of a and ``T(x) >= b (1-x) / (1-a)`` left
    of it. So ``delta(t) = sup 1 - t x - T(x)``, at most the largest over the corners of these
    lines.
    """
    points = {(exact(a), exact(b)) for a, b in node["points"] if a and b}
    points |= {(b, a) for a, b in points}
    if not points:
        return Known(floor=ONE, pair=on_lattice(fmpq(1), {0: ONE}), pure=ZERO)
    lines = [(a, ONE, -(1 - b) / a) for a, b in points]  # right of a: 1 + slope x
    rising = [(a, b / (1 - a), -b / (1 - a)) for a, b in points]  # left of a: level + slope x
    edges = sorted({ZERO.str(40): ZERO, ONE.str(40): ONE}.items())
    xs = [x for _, x in edges] + [a for a, _ in points]
    for _, level_a, slope_a in lines:
        if not slope_a.is_zero():
            xs.append(-level_a / slope_a)
        for _, level_b, slope_b in rising:
            if not (slope_a - slope_b).contains(0):
                xs.append((level_b - level_a) / (slope_a - slope_b))
    xs = [x for x in xs if (x >= 0 and x <= 1) or x.overlaps(ZERO) or x.overlaps(ONE)]

    def least(x: arb, *, right: bool) -> arb:
        # at an edge both one-sided limits count: the lower is the corner
        best = ZERO
        for a, level, slope in lines:
            if x > a or (right and x.overlaps(a)):
                best = best.max(level + slope * x)
        for a, level, slope in rising:
            if x < a or (not right and x.overlaps(a)):
                best = best.max(level + slope * x)
        return best

    corners = [(x, least(x, right=side)) for x in xs for side in (True, False)]

    def delta(t: arb) -> arb:
        best = ZERO
        for x, y in corners:
            best = best.max(1 - t * x - y)
        return best

    kinks = sorted(
        {
            Fraction(float((y1 - y2) / (x2 - x1)))
            for x1, y1 in corners
            for x2, y2 in corners
            if not (x2 - x1).contains(0)
            and number((y1 - y2) / (x2 - x1)) >= 1
            and number((y1 - y2) / (x2 - x1)) < 1e300
        }
        | {Fraction(1)}
    )
    return _hull([(exact(t), delta(exact(t))) for t in kinks])


def _renyi_curve(node: Node) -> Known:
    orders = [exact(a) for a in node["orders"]]
    given = [exact(d) for d in node["divergences"]]
    if min(node["divergences"]) == 0:
        return _of_mu(fmpq(0), attained=True)
    for i in range(len(given) - 2, -1, -1):
        given[i] = given[i].min(given[i + 1])
    moments = [(ONE, ZERO), *((a, (a - 1) * d) for a, d in zip(orders, given, strict=True))]

    def curve(order: arb) -> arb:
        # any higher order's value, and any chord of the convex (a - 1) D_a
        best = arb("inf")
        for i, (right, high) in enumerate(moments):
            if i and order <= right:
                best = best.min(given[i - 1])
                for left, low in moments[:i]:
                    if left <= order:
                        share = (order - left) / (right - left)
                        best = best.min(((1 - share) * low + share * high) / (order - 1))
        return best

    return _of_curve(curve)


def _zero_concentrated(node: Node) -> Known:
    rho = exact(node["rho"])
    if rho.is_zero():
        return _of_mu(fmpq(0), attained=True)
    return evolve(_of_curve(lambda order: order * rho), rho=rho)


def _stretched_shift(node: Node) -> Known:
    shift, stretch = exact(node["shift"]), exact(node["stretch"])
    if shift.is_zero() and stretch.is_zero():
        return _of_mu(fmpq(0), attained=True)
    rho = (shift / arb(2).sqrt() + stretch.sqrt()) ** 2

    def curve(order: arb) -> arb:
        best = (order * rho).min(order * stretch + shift)
        for j in range(-30, 31):
            k = 1 + arb(10) ** (arb(j) / 10)
            best = best.min(order * stretch * k / (k - 1) + response_curve(shift, k * order))
        return best

    return evolve(_of_curve(curve), rho=rho)


def _of_curve(curve: Curve, pure: arb | None = None, floor: arb = ZERO) -> Known:
    # each order proves a bound of its own: those of a grid are worked out once
    proven: list[tuple[arb, arb]] = []

    def profile(epsilon: arb) -> arb:
        if not proven:
            proven.extend(_lines(curve))
        best = ONE
        for slope, level in proven:
            best = best.min((level - slope * epsilon).exp())
        return best

    if pure is not None:
        eps, worst = pure, response_at(pure)
        return Known(
            floor, Bound(lambda e: profile(e).min(worst.profile(e)), eps), pure=eps, renyi=curve
        )
    return Known(floor, Bound(profile), renyi=curve)


def _lines(curve: Curve) -> list[tuple[arb, arb]]:
    """Return ``a - 1`` and the log of delta at epsilon 0 for a grid of orders."""
    lines = []
    for k in range(241):
        c = arb(round(2.0 ** (10 + k / 10))) / 2**20
        level = c * curve(1 + c) + c * (-1 / (1 + c)).log1p() - (1 + c).log()
        if level.is_finite():
            lines.append((c, level))
    return lines


def renyi_delta(curve: Curve, epsilon: arb) -> arb:
    """Return the least delta of Canonne, Kamath and Steinke 2020, Prop. 12, over all orders.

    ``E_P (1 - e^{e - L})_+ <= max_y (1 - e^-y) e^{-(a-1) y} E_P e^{(a-1)(L - e)}``, that is
    ``log delta = (a-1)(D_a - e) + (a-1) log(1 - 1/a) - log a``.
    """

    def log_delta(order: arb) -> arb:
        c = order - 1
        return c * (curve(order) - epsilon) + c * (-1 / order).log1p() - order.log()

    with ctx.workprec(64):
        best = least_over(lambda c: number(log_delta(1 + arb(c))), 1e-4, 1e9, cells=96)
    value = log_delta(1 + arb(best))
    return value.exp().min(ONE) if value.is_finite() else ONE


# --- mechanisms of which a curve is proven


def _smooth(node: Node) -> Known:
    sigma, beta = exact(node["sigma"]), exact(node["beta"])

    def curve(order: arb) -> arb:
        c = (order - 1) * (2 * beta).expm1()
        if not c < 1:
            return arb("inf")
        return order / (2 * (1 - c) * sigma**2) - beta - (-c).log1p() / (2 * (order - 1))

    return _of_curve(curve)


def _sparse_vector(node: Node) -> Known:
    threshold, queries = exact(node["threshold"]), exact(node["queries"])
    numbers, hits = exact(node["numbers"]), node["hits"]
    pure = threshold + queries + numbers
    if node["monotone"]:
        # all queries fall, and the threshold stays; or they rise, and each "above" pays for its
        # comparison where it stays behind, or for its number where it rises with the others
        falling, behind, rising = queries + numbers, threshold + queries, threshold + numbers
        pure = falling.max(behind).max(rising)

    def laplace(eps: arb, order: arb) -> arb:
        # (a e^{(a-1) e} + (a-1) e^{-a e}) / (2a - 1)
        moment = order * ((order - 1) * eps).exp() + (order - 1) * (-order * eps).exp()
        return (moment / (2 * order - 1)).log() / (order - 1)

    def curve(order: arb) -> arb:
        total = queries + laplace(threshold, order)
        if node["numbers"]:
            total += hits * laplace(numbers / hits, order)
        return total.min(response_curve(pure, order))

    return Known(pair=response_at(pure), pure=pure, rho=pure * (pure / 2).tanh(), renyi=curve)


def _gaussian_sparse_vector(node: Node) -> Known:
    """Return the bound of Zhu and Wang 2020: ``a/(2 s1^2) + c log(1 + K (M - 1)) / (a - 1)``."""
    first, second = exact(node["threshold_noise"]), exact(node["query_noise"])
    count, hits = node["queries"], node["hits"]
    moved = (1 if node["monotone"] else 2) / second

    def curve(order: arb) -> arb:
        moment = order * (order - 1) * moved**2 / 2
        bound: arb = order / (2 * first**2) + hits * (count * moment.expm1()).log1p() / (order - 1)
        least: arb = bound.min(order * count / (2 * second**2))
        return least

    return _of_curve(curve)


def _private_selection(node: Node) -> Known:
    base = known(node["base"])
    curve, eta, gamma = base.curve(), exact(node["shape"]), exact(node["stopping"])
    if curve is None:
        raise NotCovered("a selection among runs that have no Renyi curve")
    power = eta * gamma.log()
    ratio = ONE if power.is_zero() else power / power.expm1()
    runs = (1 - gamma) / (gamma * -gamma.log()) * ratio

    def second(order: arb) -> arb:
        return (1 - 1 / order) * curve(order) - gamma.log() / order

    with ctx.workprec(64):
        best = least_over(lambda c: number(second(1 + arb(c))), 1e-3, 1e6)
    least = second(1 + arb(best))
    pure = None
    if base.pure is not None:
        least, pure = least.min(base.pure), (2 + eta) * base.pure

    def bound(order: arb) -> arb:
        return curve(order) + (1 + eta) * least + runs.max(ONE).log() / (order - 1)

    floor = (base.floor * runs).min(ONE)
    made = _of_curve(_lowered(bound, pure), pure, floor)
    if base.mu is None or not 1e-4 <= number(base.mu) <= 30:
        return made
    pair, best_of = made.pair, _best_of_gaussians(base.mu, eta, gamma, runs)
    assert pair is not None
    return evolve(
        made, profile=lambda e: floor + (1 - floor) * best_of(e).min(pair.profile(e)).min(ONE)
    )


def _best_of_gaussians(mu: arb, eta: arb, gamma: arb, runs: arb) -> Curve:
    """Return a bound of the delta of the best of some runs that are mu-GDP, whatever the score.

    An outcome y than which a run is better with chance s, and on the neighbour at most ``k(s) =
    Phi(Phi^-1(s) + mu)``, has the densities ``p f'(1 - s)`` and at least ``q f'(1 - k(s))``. So
    delta is at most the expected ``h(epsilon - L)`` of a normal L, ``h(u)`` the largest ``f'(1 - s)
    - e^u f'(1 - k(s))`` or 0, which is convex in ``e^u``. Floats bound h from above, with 1e-9 for
    their rounding, cell of s by cell; on each cell of u it is at most its value at the lower end.
    The best cell of s moves one way as u does, so the places are found by halving.
    """
    m, power, g, k = number(mu), 1 + number(eta), number(gamma), number(runs)
    cells, steps = 1 << 15, 1 << 13

    def below(z: float) -> float:
        return math.erfc(-z / math.sqrt(2)) / 2

    def slope(s: float) -> float:
        return k * math.pow(g / (g + (1 - g) * s), power)

    edges = [-9 + 18 * i / cells for i in range(cells + 1)]
    high = [k, *(slope(below(z)) for z in edges)]
    low = [*(slope(below(z + m)) for z in edges), slope(1.0)]
    start = max(math.log(a / b) for a, b in zip(high, low, strict=True)) + 1e-9
    places, values = [start - 16 * m * j / steps for j in range(steps + 1)], [0.0] * (steps + 1)
    todo = [(1, steps, 0, cells + 1)]
    while todo:
        first, last, left, right = todo.pop()
        if first > last:
            continue
        middle = (first + last) // 2
        t = math.exp(places[middle])
        best = max(range(left, right + 1), key=lambda i: high[i] - t * low[i])
        values[middle] = max(0.0, high[best] - t * low[best]) + 1e-11 * k
        # a smaller u, further on, wants a larger f', at a smaller s
        todo += [(first, middle - 1, best, right), (middle + 1, last, left, best)]
    tops = list(accumulate(values, max))
    rises = [b - a for a, b in pairwise(tops)] + [max(0.0, k - tops[-1])]

    def profile(epsilon: arb) -> arb:
        e = number(epsilon)
        total = sum(
            rise * below((u + m * m / 2 - e) / m) for rise, u in zip(rises, places, strict=True)
        )
        return arb(total * (1 + 1e-9)).min(ONE)

    return profile


def _lowered(bound: Curve, pure: arb | None) -> Curve:
    """Return the least bound at the order or a higher one; at most randomized response's."""
    with ctx.workprec(64):
        # where the bound is least over all orders: below it, it holds
        best = 1 + arb(least_over(lambda c: number(bound(1 + arb(c))), 1e-3, 1e6))

    def curve(order: arb) -> arb:
        value = bound(best) if order < best else bound(order)
        return value if pure is None else value.min(response_curve(pure, order))

    return curve


def _poisson_selection(node: Node) -> Known:
    base, mean = known(node["base"]), exact(node["mean"])
    curve, pair = base.curve(), base.pair
    if curve is None:
        raise NotCovered("a selection among runs that have no Renyi curve")

    def delta(epsilon: arb) -> arb:
        value = renyi_delta(curve, epsilon)
        if pair is not None:
            sides = pair.profile(epsilon).max(pair.reverse().profile(epsilon))
            value = value.min(sides)
        return value

    def bound(order: arb) -> arb:
        c = order - 1
        inner = c * (curve(order) + mean * delta(-(-1 / order).log1p()))
        return (mean * inner.exp() + (-mean).exp()).log() / c

    pure = None if base.pure is None else base.pure + mean * delta(ZERO)
    return _of_curve(_lowered(bound, pure), pure, (base.floor * mean).min(ONE))


def _tested(node: Node) -> Known:
    worst, eps = known(node["worst"]), exact(node["epsilon"])
    inner, order_, budget = worst.curve(), exact(node["order"]), exact(node["divergence"])
    if inner is None:
        raise NotCovered("a test of a model that has no Renyi curve")

    def curve(order: arb) -> arb:
        model = inner(order)
        if order <= order_:
            model = model.min(budget)
        return response_curve(eps, order) + model

    floor = exact(node["delta"])
    made = _of_curve(curve, None if worst.pure is None else eps + worst.pure, floor)
    rho = worst.rho if worst.rho is not None else None if worst.mu is None else worst.mu**2 / 2
    pair = made.pair
    assert pair is not None
    # the curve holds, or the test fails with probability delta: never both
    return evolve(
        made,
        rho=None if rho is None else eps * (eps / 2).tanh() + rho,
        profile=lambda epsilon: pair.profile(epsilon).max(floor),
    )


def _objective(node: Node) -> Known:
    """Return the bounds of a perturbed objective: G the profile of N(0, 1) against N(m, 1).

    One row: ``G(e - c; m)`` for e >= c the one way, ``2 G(e; m)`` for e >= m^2/2 the other; of
    several: ``k' G(e - c; m)`` from ``c + m^2/2 + m z`` on, with k' = 2 and z^2 = 3 for two, 2k and
    ``P(Z > z) = 1/(4k)`` for k. Of a softmax of q classes, ``k (q - 1) G(e - c; m)`` from c on for
    one row, from ``c + m^2/2`` on for several.
    """
    mu, c, rows = exact(node["mu"]), exact(node["determinant"]), node["rows"]
    others = node["classes"] - 1
    search = exact(node["search"])
    m = (mu**2 + search**2).sqrt()
    margin = 40 * search

    def one(epsilon: arb) -> arb:
        if epsilon >= c + margin and epsilon >= m**2 / 2 + margin:
            return gaussian_profile(m, epsilon - c).max(2 * gaussian_profile(m, epsilon))
        return ONE

    def several(epsilon: arb) -> arb:
        # 1 - Phi(sqrt 3) = 0.0416: any z with 2 P(Z > z) * factor below 1 will do
        factor, z = (
            (2, arb(3).sqrt()) if rows == 2 else (2 * rows, (2 * arb(4 * rows).log()).sqrt())
        )
        if epsilon >= c + m * (m / 2 + z) + margin:
            return factor * gaussian_profile(m, epsilon - c)
        return ONE

    def softmax(epsilon: arb) -> arb:
        if epsilon >= c + margin + (m**2 / 2 if rows > 1 else 0):
            every: arb = rows * others * gaussian_profile(m, epsilon - c)
            return every
        return ONE

    def curve(order: arb) -> arb:
        k = order - 1
        if others:
            # the largest of 0 and X_j: of m^2/2 + m Z for one row, else of m Z, beside m^2/2
            cut = mu / 2 if rows == 1 else arb(0)
            grown = (k * mu * (cut + k * mu / 2)).exp() * normal_above(-k * mu - cut)
            logs = (1 + others * (grown - normal_above(-cut))).log()
            # a divergence at a higher order is no less: the accountants may use that, here not
            mean = arb(0) if rows == 1 else mu**2 / 2
            largest: arb = c + mean + logs / k + order * search**2 / 2
            return largest
        sided = mu**2 / 2 + k * mu**2 / 2 + (2 * normal_above(-k * mu)).log() / k
        extra = order * search**2 / 2
        if rows > 1:
            return c + sided + extra
        grown = (order * k * mu**2 / 2).exp() * normal_above(-(k + HALF) * mu)
        return (c + (normal_above(mu / 2) + grown).log() / k).max(sided) + extra

    room = 1 + arb(10) ** -15  # what the search adds where it is hidden
    bound = softmax if others else one if rows == 1 else several
    return Known(pair=Bound(lambda e: (bound(e) * room).min(ONE)), renyi=curve)


def _shuffled(node: Node) -> Known:
    """Return the clones' pair, given how many clones there are (Feldman et al. 2023, Thm 3.1).

    Few randomized responses have their own. With C of Bin(n-1, e^-eps) clones, ``A`` of Bin(C,
    1/2), and the unit's own report. Given C = c, a count a out of c + 1 has the masses ``2 g(a) (w
    x + (1-w)(1-x))`` and with w exchanged, ``x = a / (c+1)``, ``w = e^eps / (1 + e^eps)``, g of
    Bin(c + 1, 1/2).
    """
    local, others = node["local"], node["reports"] - 1
    eps = known(local).pure
    if eps is None:
        raise NotCovered(f"the shuffling of {local.kind}")
    if others == 0:
        return known(local)
    # of more, clones bound randomized responses too
    if local.kind == "RandomizedResponse" and others <= 150:
        k = local["categories"]
        few = _of_all_values(eps, others) if k == 2 else _blanket(eps, k, others)
        return Known(pair=Bound(few, eps, convex=True), pure=eps, alone=k == 2)
    if others > 200_000:
        raise NotCovered("the shuffling of more than 200,000 reports")
    w, chance = eps.exp() / (1 + eps.exp()), (-eps).exp()

    def profile(epsilon: arb) -> arb:
        grown = epsilon.exp()
        # where w x + (1-w)(1-x) > t ((1-w) x + w (1-x)): a line in x
        slope, level = (2 * w - 1) * (1 + grown), (1 - w) - grown * w
        start = -level / slope
        if start >= 1:
            return ZERO
        if not start > 0:
            return positive(-epsilon.expm1()).union(ONE)
        mean = float(others * chance)
        reach = 12 * math.sqrt(mean + 40) + 60
        low, high = max(0, int(mean - reach)), min(others, int(mean + reach) + 1)
        # outside of the range of counts delta is at most 1
        total = ZERO
        if low > 0:
            total += 1 - _at_least(others, chance, low)
        if high < others:
            total += _at_least(others, chance, high + 1)
        mass = _binomial(others, chance, low)
        # P(Bin(n, 1/2) >= a) and P(Bin(n, 1/2) = a - 1), n = c, a the first count above start
        n, a = low, max(1, _first(start, low + 1))
        tail, point = _at_least(n, HALF, a), _binomial(n, HALF, a - 1)
        for c in range(low, high + 1):
            # a moves on by one at most, as c does
            if a < _first(start, c + 1):
                point = point * (n - a + 1) / a
                tail, a = tail - point, a + 1
            # counts of c + 1: P(Bin(n + 1) >= a) = (P(Bin(n) >= a) + P(Bin(n) >= a - 1)) / 2, and
            # sum a g(a) = (n + 1) / 2 P(Bin(n) >= a - 1)
            more = tail + point
            total += mass * positive(2 * (level * (tail + more) / 2 + slope * more / 2))
            mass = mass * (others - c) / (c + 1) * chance / (1 - chance)
            # from n to n + 1
            tail, point = (
                tail + point / 2,
                point * (n + 1) / (2 * (n - a + 2)) if a < n + 2 else ZERO,
            )
            n += 1
        return total

    return Known(pair=Bound(profile, eps, convex=True), pure=eps)


def _of_all_values(eps: arb, others: int) -> Callable[[arb], arb]:
    """Return the largest profile over the others' values, of two answers.

    The number of ones of j others with a one has the generating function ``(r + (1-r) x)^j ((1-r) +
    r x)^(n-1-j)``, r = 1 / (e^eps + 1). All j in one direction are all j in the other.
    """
    r = 1 / (eps.exp() + 1)
    kept, turned = arb_poly([r, 1 - r]), arb_poly([1 - r, r])
    laws = [(kept**j * turned ** (others - j)).coeffs() for j in range(others + 1)]

    def profile(epsilon: arb) -> arb:
        t, worst = epsilon.exp(), ZERO
        a, b = 1 - r - t * r, t * (1 - r) - r
        for law in laws:
            every = zip([ZERO, *law], [*law, ZERO], strict=True)
            worst = worst.max(sum((positive(a * x - b * y) for x, y in every), ZERO))
        return worst

    return profile


def _blanket(eps: arb, answers: int, others: int) -> Callable[[arb], arb]:
    """Return the profile of the privacy blanket (Balle et al. 2019, Lemma 5.3).

    Of others, ``Bin(others, share)`` give a uniform answer, ``share = k / (e^eps + k - 1)``. With m
    the unit added, a and b of m give the unit's two answers: delta is the mean of ``share / m ((g
    a + m) - t (g b + m))_+``, g = e^eps - 1, over uniform answers of all m.
    """
    gain = eps.expm1()
    share, half = answers / (gain + answers), arb(fmpq(2, answers))
    # 2^N P(Bin(N, 1/2) >= a), at index a
    tails = [
        [*accumulate(math.comb(n, a) for a in range(n, -1, -1))][::-1] for n in range(others + 2)
    ]
    # of two answers all reports are one of both
    both = [
        [(n, _binomial(m, half, n)) for n in range(1, m + 1)] if answers > 2 else [(m, ONE)]
        for m in range(1, others + 2)
    ]
    masses = [_binomial(others, share, c) for c in range(others + 1)]

    def profile(epsilon: arb) -> arb:
        t, total = epsilon.exp(), ZERO
        slope = gain * (1 + t)
        for m, (counts, mass) in enumerate(zip(both, masses, strict=True), 1):
            part = ZERO
            for n, chance in counts:
                level = m * (1 - t) - t * gain * n
                first = max(0, int((-level / slope).mid().floor().unique_fmpz() or 0) + 1)
                if first <= n:
                    above, moment = tails[n][first], n * tails[n - 1][max(0, first - 1)]
                    part += chance * positive(level * above + slope * moment) / arb(2) ** n
            total += mass * part * share / m
        return total

    return profile


def _first(start: arb, total: int) -> int:
    """Return the least count whose share of the total is above the start; one off is no matter."""
    return int((start * total).mid().floor().unique_fmpz() or 0) + 1


def _at_least(n: int, chance: arb, least: int) -> arb:
    if least <= 0:
        return ONE
    if least > n:
        return ZERO
    return chance.beta_lower(arb(least), arb(n - least + 1), regularized=True)


def _binomial(n: int, chance: arb, k: int) -> arb:
    if k > n:
        return ZERO
    logs = arb(n + 1).lgamma() - arb(k + 1).lgamma() - arb(n - k + 1).lgamma()
    return (logs + k * chance.log() + (n - k) * (-chance).log1p()).exp()


# --- groups of units

MOST_DRAWN = 200
"""Groups of more units in a sample are not covered."""


def _drawn(node: Node, leaving: int, joining: int) -> Known:
    """Return Gaussian noise around how many units are in a sample of either data set."""
    body = known(node["body"])
    if not isinstance(body.pair, Gaussian) or not body.pair.square:
        return _chained(node, max(leaving, joining))
    if max(leaving, joining) > MOST_DRAWN:
        raise NotCovered(f"a group of more than {MOST_DRAWN} units of {node.kind}")
    mu, q = arb(body.pair.square).sqrt(), Fraction(node["rate"])

    def side(size: int) -> Shifts:
        chances = (math.comb(size, j) * q**j * (1 - q) ** (size - j) for j in range(size + 1))
        return tuple((mu * j, exact(chance)) for j, chance in enumerate(chances))

    return Known(pair=ShiftMixture(side(leaving), side(joining)), attained=body.attained)


def _chained(node: Node, k: int) -> Known:
    """Return the guarantee of k steps of a pure loss and its floor (Vadhan 2017, Lemma 2.2)."""
    one = known(node)
    if one.pure is None:
        raise NotCovered(f"a group of units of {node.kind} without a pure epsilon")
    grown = arb(k) if one.pure.is_zero() else (one.pure * k).expm1() / one.pure.expm1()
    return _of_pure_ball(one.pure * k, (one.floor * grown).min(ONE))


def _of_pure_ball(eps: arb, floor: arb) -> Known:
    return Known(
        floor=floor,
        pair=response_at(eps),
        pure=eps,
        rho=eps * (eps / 2).tanh(),
        renyi=lambda order: response_curve(eps, order),
    )


def _replaced(node: Node) -> Known:
    """Return what is known of a loss where one unit leaves as another joins."""
    loss = node["loss"]
    match loss.kind:
        case "Sampled":
            return known(Node("ReplacedSample", (("body", loss["body"]), ("rate", loss["rate"]))))
        case "GaussianMixture" if not loss["opposite_shifts"]:
            some = _shifts_of(loss["shifts"], loss["probabilities"])
            return Known(pair=ShiftMixture(some, some), attained=True)
        case "GaussianMixture":
            raise NotCovered("a replaced unit of GaussianMixture with shifts to both sides")
        case "Composite":
            inner = [(Node("Replaced", (("loss", a),)), n) for a, n in loss["spends"]]
            return known(Node("Composite", (("spends", tuple(inner)),)))
        case "Envelope":
            each = tuple(Node("Replaced", (("loss", a),)) for a in loss["losses"])
            return known(Node("Envelope", (("losses", each),)))
        case "PrivateSelection" | "PoissonSelection":
            return known(loss.having(base=Node("Replaced", (("loss", loss["base"]),))))
        case "Group" | "GroupBound" | "Replaced":
            raise NotCovered("a replaced unit of a group")
    return known(Node("Group", (("loss", loss), ("size", 2))))


def _group(node: Node) -> Known:
    loss, k = node["loss"], node["size"]
    if k == 1:
        return known(loss)
    match loss.kind:
        case "Gaussian" | "GaussianBound":
            return _of_mu(rational(loss["mu"]) * k, attained=loss.kind == "Gaussian")
        case "Sampled" if 0 < loss["rate"] < 1:
            return _drawn(loss, k, 0)
        case "ReplacedSample" if 0 < loss["rate"] < 1:
            return _drawn(loss, k, k)
        case "Laplace":
            return _of_laplace(rational(loss["epsilon"]) * k)
        case "Pure" | "LaplaceNoisyMax" | "ExponentialNoisyMax" | "PermuteAndFlip":
            return _pure_group(loss, k)
        case "Approximate":
            eps, delta = exact(loss["epsilon"]), exact(loss["delta"])
            factor = k if eps.is_zero() else (k * eps).expm1() / eps.expm1()
            floor = (delta * factor).min(ONE)
            return _of_pure(Fraction(loss["epsilon"]) * k, attained=False, floor=floor)
        case "DiscreteGaussian" | "DiscreteLaplace":
            return known(loss.having(sensitivity=loss["sensitivity"] * k))
        case "BoundedRange" | "GumbelNoisyMax":
            return _of_range(rational(loss["epsilon"]) * k)
        case "ZeroConcentrated":
            return _zero_concentrated(loss.having(rho=Fraction(loss["rho"]) * k * k))
        case "StretchedShift":
            rho = known(loss).rho
            assert rho is not None
            return evolve(_of_curve(lambda order: order * rho * k * k), rho=rho * k * k)
        case "Composite":
            inner = [(Node("Group", (("loss", a), ("size", k))), n) for a, n in loss["spends"]]
            return known(Node("Composite", (("spends", tuple(inner)),)))
        case "Envelope":
            each = tuple(Node("Group", (("loss", a), ("size", k))) for a in loss["losses"])
            return known(Node("Envelope", (("losses", each),)))
        case "Group" | "GroupBound":
            return known(loss.having(size=loss["size"] * k))
        case "SparseVector":
            more = {name: Fraction(loss[name]) * k for name in ("threshold", "queries", "numbers")}
            return known(loss.having(**more))
        case "GaussianSparseVector":
            less = {n: Fraction(loss[n]) / k for n in ("threshold_noise", "query_noise")}
            return known(loss.having(**less))
        case "ObjectivePerturbation":
            more = {name: Fraction(loss[name]) * k for name in ("mu", "determinant", "search")}
            return known(loss.having(rows=loss["rows"] * k, **more))
        case "PrivateSelection" | "PoissonSelection":
            return known(loss.having(base=Node("Group", (("loss", loss["base"]), ("size", k)))))
        case "PrivacyProfile":
            points = []
            for e, d in loss["points"]:
                eps = exact(e)
                factor = k if eps.is_zero() else (k * eps).expm1() / eps.expm1()
                points.append(((k * eps).exp(), (exact(d) * factor).min(ONE)))
            return _hull(points)
        case "FiniteOutcomes":
            return _chained(loss, k)
    raise NotCovered(f"a group of units of {loss.kind}")


def _pure_group(loss: Node, k: int) -> Known:
    """Return what a chain of k + 1 laws loses from end to end, each within epsilon of the next.

    Of an event with the probability a under one law let ``F(a)`` be the most that it has under the
    next: ``min(e^eps a, 1 - e^-eps (1 - a))``, which rises, so that k steps are at most F k times.
    Of noise of masses ``e^{-eps |x|}`` on the integers, the event ``x <= t`` has just that when t
    moves by one; F k times is a polygon, whose corners those are.
    """
    epsilon = Fraction(loss["epsilon"])
    if not epsilon or k > LARGEST_SHIFT:
        return _of_pure(epsilon * k, attained=False)
    noise = _of_discrete_laplace(rational(epsilon), k)
    return evolve(noise, attained=loss.kind == "Pure")


def _group_bound(node: Node) -> Known:
    """Return what a group's loss is at most: nothing says that a mechanism loses as much."""
    return evolve(_group(Node("Group", node.fields)), attained=False, witness=None, alone=False)


KINDS: dict[str, Callable[[Node], Known]] = {
    "Allocated": _allocated,
    "Approximate": _approximate,
    "BoundedRange": _bounded_range,
    "Composite": _composite,
    "DiscreteGaussian": _discrete_gaussian,
    "DiscreteLaplace": _discrete_laplace,
    "Envelope": _envelope,
    "ExponentialNoisyMax": _pure,
    "FiniteOutcomes": _finite_outcomes,
    "FixedSize": _fixed_size,
    "Gaussian": _gaussian,
    "GaussianBound": _gaussian,
    "GaussianMixture": _gaussian_mixture,
    "GaussianSparseVector": _gaussian_sparse_vector,
    "Group": _group,
    "GroupBound": _group_bound,
    "GumbelNoisyMax": _bounded_range,
    "Laplace": _laplace,
    "LaplaceNoisyMax": _pure,
    "ObjectivePerturbation": _objective,
    "PermuteAndFlip": _pure,
    "PoissonSelection": _poisson_selection,
    "PrivacyProfile": _points,
    "PrivateSelection": _private_selection,
    "Pure": _pure,
    "RandomizedResponse": _randomized_response,
    "RenyiCurve": _renyi_curve,
    "Replaced": _replaced,
    "ReplacedSample": _replaced_sample,
    "Sampled": _sampled,
    "Shuffled": _shuffled,
    "SmoothSanitization": _smooth,
    "SparseVector": _sparse_vector,
    "StretchedShift": _stretched_shift,
    "Tested": _tested,
    "TradeOff": _trade_off,
    "TruncatedGaussian": _truncated_gaussian,
    "TruncatedLaplace": _truncated_laplace,
    "ZeroConcentrated": _zero_concentrated,
}
"""How each kind of loss is read."""
