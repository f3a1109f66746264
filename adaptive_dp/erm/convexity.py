"""A search for proof that a function is not convex."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from attrs import frozen

from adaptive_dp.erm.loss import Floats

ROUNDING = 1e-9
"""The share of the values that a violation must exceed: far above the function's own rounding."""


@frozen(eq=False)
class Witness:
    """Two points between which a function is above its chord.

    Parameters
    ----------
    a, b
        Shape (p,).
    share
        The weight of a, in (0, 1): the point is ``share a + (1 - share) b``.
    excess
        The function's value there less the largest that (strong) convexity allows.
    """

    a: Floats
    b: Floats
    share: float
    excess: float


def refute_convexity(
    f: Callable[[Floats], float],
    low: Floats,
    high: Floats,
    *,
    strength: float = 0.0,
    tries: int = 1000,
    seed: int = 0,
) -> Witness | None:
    """Search a witness that f is not convex on a box; return None where there is none.

    f is ``strength``-strongly convex where for all a, b and s in [0, 1], with c = s a + (1 - s) b,

        f(c) <= s f(a) + (1 - s) f(b) - (strength / 2) s (1 - s) |a - b|^2.

    (Without the half, as it is sometimes printed, it is twice as strong a condition.) A witness is
    a proof, up to the rounding that is allowed for; None proves nothing.

    Parameters
    ----------
    f
        From shape (p,) to a number; points where it is not finite are skipped.
    low, high
        The box, arrays of shape (p,).
    strength
        The strong convexity to refute; 0 for convexity.
    tries
        The number of pairs of points: half of them far apart, half close together at every scale.
    seed
        Of the search.

    Examples
    --------
    >>> box = np.array([-1.0]), np.array([1.0])
    >>> refute_convexity(lambda w: w[0] ** 2, *box) is None
    True
    >>> refute_convexity(lambda w: w[0] ** 3, *box).excess > 0.2
    True
    """
    low, high = np.asarray(low, float), np.asarray(high, float)
    if low.ndim != 1 or low.shape != high.shape or not np.all(low < high):
        raise ValueError("refute_convexity needs low < high, arrays of one shape (p,)")
    if not np.all(np.isfinite([low, high])):
        raise ValueError("refute_convexity needs a bounded box")
    rng = np.random.default_rng(seed)
    best: Witness | None = None
    for turn in range(tries):
        a = rng.uniform(low, high)
        b = rng.uniform(low, high)
        # odd turns: b close to a, at a scale from 1e-3 to 1 of the distance
        if turn % 2:
            b = a + (b - a) * 10.0 ** rng.uniform(-3, 0)
        # half of the turns of either kind test the middle, the others a point at random
        share = 0.5 if turn % 4 < 2 else float(rng.uniform(0.05, 0.95))
        # positive only if f is above its chord by more than rounding explains
        excess = _excess(f, a, b, share, strength)
        if excess > (best.excess if best else 0.0):
            best = Witness(a, b, share, excess)
    return best


def _excess(f: Callable[[Floats], float], a: Floats, b: Floats, s: float, mu: float) -> float:
    """Return f at the point less its chord there, less an allowance for rounding."""
    values = [float(f(point)) for point in (s * a + (1 - s) * b, a, b)]
    squared_distance = float((a - b) @ (a - b))
    # a point outside of f's domain proves nothing
    if not all(map(math.isfinite, values)):
        return 0.0
    strong_term = mu / 2 * s * (1 - s) * squared_distance
    # the definition of strong convexity, left side less right side
    excess = values[0] - s * values[1] - (1 - s) * values[2] + strong_term
    return excess - ROUNDING * (1e-300 + strong_term + max(map(abs, values)))
