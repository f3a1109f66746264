"""What the accountants are checked against: enumeration and integrals at high precision.

Nothing here imports the package's own mathematics. A discrete pair is a list of
``(P, Q)`` masses in mpmath; a product of pairs is enumerated, merging equal outcomes only.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import mpmath as mp

DIGITS = 50
mp.mp.dps = DIGITS

Pair = list[tuple[mp.mpf, mp.mpf]]


def real(value: float | Fraction | str) -> mp.mpf:
    """The exact value of a float or a rational."""
    if isinstance(value, Fraction):
        return mp.mpf(value.numerator) / value.denominator
    return mp.mpf(value)


# --- small discrete mechanisms


def response(epsilon: float) -> Pair:
    """Binary randomized response."""
    grow = mp.exp(real(epsilon))
    return [(grow / (1 + grow), 1 / (1 + grow)), (1 / (1 + grow), grow / (1 + grow))]


def leaky(epsilon: float, delta: float) -> Pair:
    """Leak with probability delta, else randomized response."""
    d = real(delta)
    pairs = [((1 - d) * p, (1 - d) * q) for p, q in response(epsilon)]
    return [(d, mp.mpf(0)), (mp.mpf(0), d), *pairs]


def product(pairs: Iterable[Pair]) -> Pair:
    """The composition of independent pairs; certain leaks and outcomes of one ratio merged."""
    total: Pair = [(mp.mpf(1), mp.mpf(1))]
    for pair in pairs:
        merged: dict[object, tuple[mp.mpf, mp.mpf]] = {}
        for p, q in total:
            for r, s in pair:
                a, b = p * r, q * s
                key: object = (a, b)
                if b == 0 or a == 0:
                    key = (a > 0, b > 0)
                x, y = merged.get(key, (mp.mpf(0), mp.mpf(0)))
                merged[key] = (x + a, y + b)
        total = list(merged.values())
    return total


class Profile:
    """delta(epsilon) of a discrete pair, the larger of the two directions; sorted once."""

    def __init__(self, pair: Pair) -> None:
        flipped = [(q, p) for p, q in pair]
        self.sides = [self._sorted(pair), self._sorted(flipped)]

    @staticmethod
    def _sorted(pair: Pair):  # type: ignore[no-untyped-def]
        """Minus the loss of each outcome, rising, and the two running sums."""
        rows = sorted(((-mp.log(p / q) if q else -mp.inf), p, q) for p, q in pair if p)
        p_sums = list(itertools.accumulate(p for _, p, _ in rows))
        q_sums = list(itertools.accumulate(q for _, _, q in rows))
        return [row[0] for row in rows], p_sums, q_sums

    def __call__(self, epsilon: float | mp.mpf) -> mp.mpf:
        e = real(epsilon)
        return max(self._side(side, e) for side in self.sides)

    @staticmethod
    def _side(side, e: mp.mpf) -> mp.mpf:  # type: ignore[no-untyped-def]
        keys, p_sums, q_sums = side
        count = bisect.bisect_left(keys, -e)
        if count == 0:
            return mp.mpf(0)
        value = p_sums[count - 1] - mp.exp(e) * q_sums[count - 1]
        # below this it is the rounding of the sums (an outcome whose loss is e, exactly)
        return value if value > mp.mpf(10) ** (10 - mp.mp.dps) else mp.mpf(0)


def hockey(pair: Pair, epsilon: float | mp.mpf) -> mp.mpf:
    """delta(epsilon), the larger of the two directions."""
    return Profile(pair)(epsilon)


def renyi(pair: Pair, order: float) -> mp.mpf:
    """D_alpha, the larger of the two directions."""
    a = real(order)
    one = mp.fsum(p**a * q ** (1 - a) for p, q in pair)
    other = mp.fsum(q**a * p ** (1 - a) for p, q in pair)
    return mp.log(max(one, other)) / (a - 1)


def random_pair(seed: int, size: int) -> tuple[Pair, mp.mpf]:
    """A k-ary pair with random rational masses, and its exact pure epsilon."""
    draw = random.Random(seed)
    p = [draw.randint(1, 40) for _ in range(size)]
    q = [draw.randint(1, 40) for _ in range(size)]
    pair = [(mp.mpf(a) / sum(p), mp.mpf(b) / sum(q)) for a, b in zip(p, q, strict=True)]
    return pair, max(abs(mp.log(a / b)) for a, b in pair)


# --- continuous mechanisms


def gaussian_delta(mu: float | mp.mpf, epsilon: float | mp.mpf) -> mp.mpf:
    """The profile of N(0, 1) against N(mu, 1), as printed in Balle and Wang 2018, Thm 8."""
    m, e = real(mu), real(epsilon)
    with mp.workdps(DIGITS + 30 + int(mp.log10(1 + m + 1 / m))):
        # mpmath's ncdf(x) for x > 0 is 1 - erfc/2: differences of it lose digits
        first = mp.erfc(-(m / 2 - e / m) / mp.sqrt(2)) / 2
        second = mp.erfc((m / 2 + e / m) / mp.sqrt(2)) / 2
        return first - mp.exp(e) * second


def normal_expectation(value: Callable[[mp.mpf], mp.mpf], low: float, high: float, strip: float):
    """E value(X) for X ~ N(0, 1) by the trapezoid rule on [low, high].

    For an integrand that is analytic in |Im x| < strip the rule's error falls as
    ``e^{-2 pi strip / step}``; the step is chosen for about 25 digits.
    """
    step = mp.mpf(2 * 3.14159 * strip / (58 + strip * strip / 2))
    count = int((high - low) / step) + 1
    start = mp.mpf(low)
    total = mp.mpf(0)
    for i in range(count):
        x = start + i * step
        total += mp.exp(-x * x / 2) * value(x)
    return total * step / mp.sqrt(2 * mp.pi)


def laplace_expectation(value: Callable[[mp.mpf], mp.mpf], epsilon: float) -> mp.mpf:
    """E value(L) for L = log(P1/P0) of Lap(0) against Lap(epsilon), under P0."""
    e = real(epsilon)
    inside = mp.quad(lambda x: mp.exp(-x) / 2 * value(2 * x - e), mp.linspace(0, e, 2 + int(e / 2)))
    return value(-e) / 2 + mp.exp(-e) / 2 * value(e) + inside


def sampled_moments(
    expectation: Callable[[Callable[[mp.mpf], mp.mpf]], mp.mpf], rate: float, order: float
) -> tuple[mp.mpf, mp.mpf]:
    """D_alpha of ``(1-q) P0 + q P1`` against P0, and of P0 against it.

    ``expectation(f)`` is E_P0 f(log P1/P0).
    """
    q, a = real(rate), real(order)
    remove = expectation(lambda loss: (1 - q + q * mp.exp(loss)) ** a)
    add = expectation(lambda loss: (1 - q + q * mp.exp(loss)) ** (1 - a))
    return mp.log(remove) / (a - 1), mp.log(add) / (a - 1)


def gaussian_removal(mu: float, rate: float, order: int) -> mp.mpf:
    """D_alpha of the sampled Gaussian at an integer order, removal: the binomial sum."""
    m, q = real(mu), real(rate)
    total = mp.fsum(
        mp.binomial(order, i) * q**i * (1 - q) ** (order - i) * mp.exp(m * m * i * (i - 1) / 2)
        for i in range(order + 1)
    )
    return mp.log(total) / (order - 1)


def within(computed: float, truth: mp.mpf, tolerance: float, absolute: float = 0.0) -> None:
    """Assert ``truth <= computed <= truth (1 + tolerance) + absolute``; no slack below."""
    assert real(computed) >= truth * (1 - mp.mpf(10) ** -22), (computed, truth)
    assert real(computed) <= truth * (1 + real(tolerance)) + real(absolute), (computed, truth)


def proves(upper: float, delta_at: Callable[[mp.mpf], mp.mpf], delta: float) -> None:
    """Assert that the true delta at ``upper`` is at most ``delta``: upper is not below the truth.

    The slack of 1e-25 is that of the truth's own 50 digits.
    """
    if mp.isinf(upper):
        return
    assert delta_at(real(upper)) <= real(delta) * (1 + mp.mpf(10) ** -25), (upper, delta)


def refutes(lower: float, delta_at: Callable[[mp.mpf], mp.mpf], delta: float) -> None:
    """Assert that the true delta at ``lower`` is at least ``delta``: lower is not above it."""
    if lower > 0:
        assert delta_at(real(lower)) >= real(delta) * (1 - mp.mpf(10) ** -25), (lower, delta)


def root(delta_at: Callable[[mp.mpf], mp.mpf], delta: float, high: float) -> mp.mpf:
    """The true epsilon by bisection to 1e-30."""
    low, top = mp.mpf(0), real(high)
    if delta_at(low) <= real(delta):
        return low
    for _ in range(120):
        middle = (low + top) / 2
        low, top = (middle, top) if delta_at(middle) > real(delta) else (low, middle)
    return top


def binomial_delta(epsilon: float, times: int, failure: float = 0.0) -> Callable:
    """The profile of equal randomized responses with failures: a binomial sum, exactly."""
    e, f = real(epsilon), real(failure)
    lost = 1 - (1 - f) ** times
    grow = mp.exp(e)
    atoms: Sequence[tuple[mp.mpf, mp.mpf]] = [
        ((times - 2 * j) * e, mp.binomial(times, j) * grow ** (times - j) / (1 + grow) ** times)
        for j in range(times // 2 + 1)
    ]

    def delta_at(at: mp.mpf) -> mp.mpf:
        above = mp.fsum(m * (1 - mp.exp(at - loss)) for loss, m in atoms if loss > at)
        return lost + (1 - lost) * above

    return delta_at
