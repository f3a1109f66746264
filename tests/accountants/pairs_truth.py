"""What pairs are checked against: exact laws, in mpmath.

A law is a list of ``(loss, P, Q)``; a moment is a function of a complex z.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence

import accountants_truth as truth
import mpmath as mp
import numpy as np

from accountants.loss import PrivacyLoss
from accountants.pair import Pair, slip

Law = Sequence[tuple[mp.mpf, mp.mpf, mp.mpf]]


def points(seed: int, count: int, low: float = -4, high: float = 2) -> np.ndarray:
    """Points on both sides of -1/2, of many sizes, and the special ones."""
    draw = np.random.default_rng(seed)
    size = 10 ** draw.uniform(low, high, count)
    some = (draw.normal(size=count) + 1j * draw.normal(size=count)) * size
    special = [0, -1, -0.5, -0.5 + 1e-9j, -0.5 + 1e-3j, 1, 5, -1 + 2j, 1e-9, -1 - 1e-9]
    return np.concatenate([some, special]).astype(np.complex128)


def moments_hold(
    pair: Pair, z: np.ndarray, log_moment: Callable[[mp.mpc], mp.mpc], unknown: int = 0
) -> None:
    """Assert that every log-moment is within its reported error; ``unknown`` may be infinite."""
    bracket = pair.log_moment(z)
    assert bracket is not None
    assert int(np.isinf(bracket[1]).sum()) <= unknown
    for point, value, error in zip(z, *bracket, strict=True):
        if np.isinf(error):
            continue
        with mp.workdps(110):
            off = mp.mpc(complex(value)) - log_moment(mp.mpc(complex(point)))
            off -= 2j * mp.pi * mp.nint(off.imag / (2 * mp.pi))
        assert abs(off) <= truth.real(float(error)) + mp.mpf(10) ** -60, (point, value, error)


def tails_hold(pair: Pair, law: Law, places: Sequence[mp.mpf] = ()) -> None:
    """Assert the tails at and about every loss of a law, or at some, and far from all."""
    losses = places or [loss for loss, _, _ in law]
    between = [(a + b) / 2 for a, b in itertools.pairwise(losses)]
    every = [losses[0] - 1, losses[-1] + 1, *between, *losses]
    at = np.array([float(place) for place in every])
    for side in (1, -1):
        tails = pair.above(at) if side > 0 else pair.below(at)
        outermost = sorted(law, key=lambda row: -side * row[0])
        depths = [-side * row[0] for row in outermost]  # rising
        sums = {which: running(row[which] for row in outermost) for which in (1, 2)}
        for i, loss in enumerate(at):
            slippage = float(slip(np.array([loss]))[0])
            place = -side * mp.mpf(float(loss))
            for which, tail in ((1, tails[0][i]), (2, tails[1][i])):
                low = sums[which][bisect.bisect_left(depths, place - slippage)]
                high = sums[which][bisect.bisect_left(depths, place + slippage)]
                error = truth.real(pair.tail_error())
                assert low * (1 - error) - mp.mpf(10) ** -300 <= tail, (loss, side, which)
                assert tail <= high * (1 + error) + mp.mpf(10) ** -300, (loss, side, which)


def running(masses: Iterable[mp.mpf]) -> list[mp.mpf]:
    """The sums of the first n of them."""
    return list(itertools.accumulate(masses, initial=mp.mpf(0)))


def composed(laws: Sequence[Law]) -> Law:
    """The law of the sum of independent losses; equal losses are merged."""
    total: Law = [(mp.mpf(0), mp.mpf(1), mp.mpf(1))]
    for law in laws:
        merged: dict[str, tuple[mp.mpf, mp.mpf, mp.mpf]] = {}
        for (x, a, b), (y, p, q) in itertools.product(total, law):
            key = mp.nstr(x + y, 30)
            _, c, d = merged.get(key, (x, mp.mpf(0), mp.mpf(0)))
            merged[key] = (x + y, c + a * p, d + b * q)
        total = list(merged.values())
    return total


def hockey(law: Law, epsilon: float | mp.mpf) -> mp.mpf:
    """delta(epsilon) of the law, P against Q, at any real epsilon."""
    grow = mp.exp(truth.real(epsilon))
    return mp.fsum(max(p - grow * q, mp.mpf(0)) for _, p, q in law)


def profiles_hold(loss: PrivacyLoss, law: Law, epsilons: Sequence[float], width: float) -> None:
    """Assert that the loss's profile brackets the law's, by at most ``width`` of it."""
    for epsilon in epsilons:
        bounds = loss.profile(epsilon)
        assert bounds is not None
        flipped = [(-at, q, p) for at, p, q in law]
        exact = max(hockey(law, epsilon), hockey(flipped, epsilon))
        assert bounds.lower <= exact * (1 + mp.mpf(10) ** -40), (epsilon, bounds, exact)
        assert exact <= bounds.upper * (1 + mp.mpf(10) ** -40), (epsilon, bounds, exact)
        slack = 16 * 2.0**-53 * (1 + abs(epsilon))  # at a jump: the loss itself is rounded
        assert bounds.upper - bounds.lower <= width * exact + slack, epsilon


def dominated(pair: Pair, law: Law, epsilons: Sequence[float]) -> None:
    """Assert that the pair's profile, both ways, is at least that of a law, at every epsilon."""
    for direction, rows in ((pair, law), (pair.reversed(), [(-at, q, p) for at, p, q in law])):
        _, upper = direction.profile(np.array(epsilons, dtype=np.float64))
        for epsilon, bound in zip(epsilons, upper, strict=True):
            assert hockey(rows, epsilon) <= bound * (1 + mp.mpf(10) ** -40), epsilon


def decays(
    pair: Pair, tilt: float, beyond: np.ndarray, modulus: Callable[[mp.mpc], mp.mpf]
) -> None:
    """Assert the decay against a fine grid of ``|M(tilt + it)/M(tilt)|`` up to ten times as far."""
    bounds = pair.decay(tilt, beyond)
    assert np.all(np.diff(bounds) <= 1e-12)
    at_zero = modulus(mp.mpc(tilt))
    for start, bound in zip(beyond, bounds, strict=True):
        for factor in np.geomspace(1, 10, 60):
            value = modulus(mp.mpc(tilt, float(start) * float(factor))) / at_zero
            assert value <= mp.exp(truth.real(float(bound))), (tilt, start, factor)
