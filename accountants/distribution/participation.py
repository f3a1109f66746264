r"""Sampled Gaussians of little noise: a contour without the outcomes in which no unit takes part.

With ``R = 1 - q + q r``, ``r = e^{mu x - mu^2/2}`` under ``x ~ N(0, 1)``, the moment of a pair is
``m(z) = E R^s``, ``s = 1 + z``. Let ``A(z)`` be its part where ``x <= mu/2``, so that ``R <= 1``,
and B(z) the rest. Where this holds in all steps the composed loss is not positive, and no delta at
``eps >= 0`` is met there. Without that event what is left is a positive measure, of at most mass 1,
with the moments

``N(z) = prod (A_i + B_i) - prod A_i = prod A_i (prod (1 + B_i / A_i) - 1)``,

which decay, where ``prod A_i`` swings on. All bounds of `accountants.distribution.contour` hold
for it at ``eps >= 0``.

With ``u = q r / (1 - q)`` at most 1 at ``x = mu/2``, and 1 at ``x = k``, for ``a = Re s >= 1``:

* ``|(1 + u)^s - 1| <= |s| 2^{a-1} u`` for ``u <= 1``, so that ``A = (1-q)^s (1 + alpha)`` with
  ``|alpha| <= |s| 2^{a-1} E[u; x <= mu/2] + P(x > mu/2)``;
* ``|(1 + u)^s - u^s| <= |s| (2 u)^{a-1}`` for ``u > 1``, and both are at most ``2^a`` where
  ``u <= 1``, so that ``B = (1-q)^s (E u^s + beta)`` with
  ``|beta| <= |s| 2^{a-1} E[u^{a-1}; x > k] + E[u^a; x <= k] + 2^a P(x > mu/2)``.

``E u^s = o^s e^{s (s-1) mu^2/2}``, o the odds of q, falls as ``e^{-t^2 mu^2/2}``.

The bounds of alpha and beta grow with t. So they are used up to a far ``t_1`` alone. Beyond it is
``|N(z)| <= N(c)``, which adds ``1/t_1`` to the integral of ``|N / N(c)| / t^2`` from any t on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from accountants import special
from accountants.distribution.contour import Composition
from accountants.losses.cut_sample import losses, on_panels, panels_between
from accountants.losses.sampling import ReplacedGaussianPair, SampledGaussianPair
from accountants.numerics import UNIT, Array, Complex, expm1, log1p, up
from accountants.pair import Pair, Reversed

LEAST = 25.0
"""The least mu: what lies beyond ``mu/2`` has a mass below 1e-35."""

_LARGE = 300.0
"""Of a larger logarithm 1 more makes no difference."""


def participation(spends: Sequence[tuple[Pair, int]]) -> Participation | None:
    """Return the composition of sampled Gaussians without what never matters; None of others."""
    found = []
    for pair, times in spends:
        if type(pair) is not SampledGaussianPair or not LEAST <= pair.body.mu <= 300:
            return None
        if not 1e-15 <= pair.rate <= 0.5:
            return None
        found.append((pair.body.mu, pair.rate, float(times)))
    columns = np.array(found)[:, :, None]
    return Participation(families=(), mu=columns[:, 0], rate=columns[:, 1], times=columns[:, 2])


def reversed_profile(
    spends: Sequence[tuple[Pair, int]], epsilons: Array
) -> tuple[Array, Array] | None:
    """Return bounds of delta of reversed pairs, ``eps >= 0``; None of others.

    As ``dP/dQ`` is at least ``w = prod (1 - q)``, delta is at most ``1 - e^eps w``. Any event E
    bounds it from below by ``Q(E) - e^eps P(E)``; that of ``x <= mu/2`` in all steps has
    ``Q(E) >= 1 - sum Phi(-mu/2)`` and ``P(E) <= prod (1 - q + q Phi(-mu/2))``.
    """
    logs, more, lost = Fraction(), 0.0, 0.0
    for pair, times in spends:
        body = pair.pair if isinstance(pair, Reversed) else None
        if type(body) is not SampledGaussianPair or body.body.mu < _TOLD_APART or body.rate > 0.5:
            return None
        each = math.log1p(-body.rate)
        beyond = math.exp(float(special.log_ndtr(-body.body.mu / 2))) * (1 + 1e-9)
        logs += Fraction(each) * times
        lost += times * beyond * (1 + 1e-9)
        more += times * (4 * UNIT * -each + 2 * body.rate * beyond)
    # log w within `more`, which rounds it up as well
    least, most = float(logs) * (1 + 4 * UNIT) - more, float(logs) * (1 - 4 * UNIT) + more
    noise = 8 * UNIT * (epsilons + abs(float(logs)))
    upper = np.maximum(0.0, -np.expm1(np.minimum(epsilons + least - noise, 1.0)))
    lower = -np.expm1(np.minimum(epsilons + most + noise, 1.0)) * (1 - 8 * UNIT) - lost
    return np.maximum(0.0, lower), np.minimum(1.0, up(upper, 8))


_TOLD_APART = 18.0
"""From this mu on ``P(x > mu/2)`` is below 1e-18."""


@frozen(slots=False, eq=False, kw_only=True)
class Participation(Composition):
    """The moments N of the module's docstring, at ``Re z > 0``; of no use elsewhere.

    Parameters
    ----------
    mu, rate, times
        Of each pair: columns.
    """

    mu: Array
    rate: Array
    times: Array

    def _parts(self, z: Complex) -> tuple[Complex, Array, Array]:
        """Return ``log E u^s``, and the logs of bounds of alpha and beta; pairs by points."""
        mu, odds = self.mu, np.log(self.rate) - np.log1p(-self.rate)
        s, half = z + 1, mu / 2
        a, log_size = s.real, np.log(np.abs(s))
        square, k, phi = mu * mu / 2, half - odds / mu, special.log_ndtr
        c = a - 1
        doubled = c * math.log(2)
        mean = s * odds + s * z * square
        alpha = np.logaddexp(log_size + doubled + odds, 0.0) + phi(-half)
        beta = log_size + doubled + c * odds + c * (c - 1) * square + phi(c * mu - k)
        beta = np.logaddexp(beta, a * odds + a * c * square + phi(k - a * mu))
        beta = np.logaddexp(beta, a * math.log(2) + phi(-half))
        # of all these formulas' own rounding
        sizes = 1 + np.abs(log_size) + a * (np.abs(odds) + (1 + a) * 2 * square)
        alpha, beta = (each + 1e-6 + 64 * UNIT * sizes for each in (alpha, beta))
        return mean, alpha, beta

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log N(z)`` and a bound of its error, infinite where it is not known."""
        z = np.ravel(z)
        good = (z.real > 0) & np.isfinite(z)
        value, error = np.zeros(len(z), dtype=np.complex128), np.full(len(z), np.inf)
        step = max(1, 2**18 // len(self.mu))
        for some in np.array_split(np.flatnonzero(good), -(-int(good.sum()) // step) or 1):
            if len(some):
                with np.errstate(all="ignore"):
                    value[some], error[some] = self._moments(z[some])
        known = np.isfinite(value) & np.isfinite(error)
        return np.where(known, value, 0.0), np.where(known, error, np.inf)

    def _moments(self, z: Complex) -> tuple[Complex, Array]:
        mean, alpha, beta = self._parts(z)
        s, log_rest = z + 1, np.log1p(-self.rate)
        wrong = 8 * UNIT * (4 + np.abs(s) * (np.abs(np.log(self.rate)) + 1))
        wrong = wrong + 8 * UNIT * np.abs(s) * np.abs(z) * self.mu**2
        # rho = (E u^s + beta) / (1 + alpha)
        alpha, small = np.exp(np.minimum(alpha, _LARGE)), mean.real < _LARGE
        known = (alpha < 1e-9) & (wrong < 0.1)
        ratio = np.exp(np.where(small, mean, 0.0))
        off = 2 * (wrong + alpha) * np.abs(ratio) + 2 * np.exp(np.minimum(beta, _LARGE))
        near, near_error = log1p(ratio, np.where(small, off, 0.0))
        # log(1 + rho) = log rho + log(1 + 1/rho); beta relative to E u^s
        relative = 2 * (wrong + alpha) + 2 * np.exp(np.minimum(beta - mean.real, 1.0))
        far_error = (
            np.where(relative < 0.4, 2 * relative, np.inf) + 4 * UNIT * np.abs(mean) + 1e-100
        )
        logs = np.where(small, near, mean)
        each = np.where(known, np.where(small, near_error, far_error), np.inf)
        total = (self.times * logs).sum(axis=0)
        count = len(self.mu) + 16
        error = (self.times * (each + count * UNIT * np.abs(logs))).sum(axis=0) * (1 + 1e-9)
        # log(e^w - 1)
        many = total.real > 40
        less = expm1(np.where(many, 0.0, total))
        moved = (np.abs(less) + 1) * 2 * error + 32 * UNIT * np.abs(less)
        moved = np.where(error < 0.5, moved / np.abs(less), np.inf)
        value = np.where(many, total, np.log(np.where(many, 1.0, less)))
        error = np.where(many, error + 1e-17, np.where(moved < 0.5, 2 * moved, np.inf))
        base = s * (self.times * log_rest).sum()
        base_error = np.abs(s) * count * UNIT * (self.times * np.abs(log_rest)).sum()
        base_error = base_error + (self.times * 2 * alpha).sum(axis=0)
        value = value + base
        return value, error + base_error + 16 * UNIT * (1 + np.abs(value) + np.abs(base))

    def log_modulus(self, z: Complex) -> Array:
        """Return upper bounds of ``log |N(z)|``: those of the real parts."""
        tilts, places = np.unique(z.real, return_inverse=True)
        return self.upper(tilts)[places]

    def decay(self, c: float, beyond: Array) -> Array:
        """Return bounds of ``log |N(c + it') / N(c)|`` from each t to t_1, and of ``t / t_1``."""
        value, error = self.log_moment(np.array([complex(c, 0.0)]))
        if not error[0] < 0.1:
            return np.zeros(len(beyond))
        far = self._far()
        with np.errstate(all="ignore"):
            mean, _, _ = self._parts(np.array([complex(c, 0.0)]))
            _, alpha, beta = self._parts(np.array([complex(c, far)]))
            if not (alpha < math.log(1e-9)).all():
                return np.zeros(len(beyond))
            # |B| / A(c) <= (E u^a e^{-t^2 mu^2/2} + |beta|) / (1 - |alpha|), A(c) at most as much
            fall = mean.real - (beyond * beyond * (1 - 1e-9)) * (self.mu * self.mu / 2)
            share = np.logaddexp(fall, beta) + 1e-6
            total = (self.times * np.logaddexp(0.0, share)).sum(axis=0) * (1 + 1e-9)
            # log(e^w - 1); where share is next to nothing so is w
            tiny = np.log((self.times * np.exp(np.minimum(share, 0.0))).sum(axis=0)) + 1e-6
            logs = np.where(total > 1e-3, np.log(np.expm1(np.minimum(total, 600.0))), tiny + 1e-3)
            logs = np.where(total > 600, total, logs)
            base = (c + 1) * float((self.times * np.log1p(-self.rate)).sum())
            base = base + 2 * float((self.times * np.exp(alpha)).sum()) + 1e-9 * (1 + abs(base))
            bound = logs + base - float(value[0].real) + float(error[0])
            bound = np.logaddexp(bound + 1e-9 * (1 + np.abs(bound)), np.log(beyond / far))
        bound = np.where(beyond < far, bound, 0.0)
        return np.asarray(np.minimum(0.0, np.where(np.isnan(bound), 0.0, bound)), dtype=np.float64)

    def decay_between(self, c: float, starts: Array, stops: Array) -> Array:
        """Return `decay`, where it holds up to the stop."""
        return np.where(stops < self._far(), self.decay(c, starts), 0.0)

    def _far(self) -> float:
        """Return t_1, at which alpha and beta are about the root of what they are at 1."""
        return math.exp(-float(special.log_ndtr(-float(self.mu.min()) / 2)) / 2)

    def missing(self) -> float:
        """Return the log of one over the probability that any unit takes part, about."""
        logs = float((self.times * np.log1p(-self.rate)).sum())
        return -math.log(max(-math.expm1(logs), 1e-300))

    def swing(self) -> float:
        """Return 0: all moments decay."""
        return 0.0

    def units(self, reach: float) -> int:
        """Return the number of pairs."""
        return len(self.mu)

    def upper(self, c: Array) -> Array:
        """Return upper bounds of ``log N``, infinite where nothing is known."""
        value, error = self.log_moment(c.astype(np.complex128))
        bound: Array = up(value.real + error, 4)
        return np.where(np.isfinite(bound) & np.isfinite(error), bound, np.inf)


# --- a few samples of a replaced unit, by cells of unequal width

# Of few samples no moments decay, and a lattice that resolves the losses of most outcomes does not
# reach the large ones. So losses are put on nodes that are next to each other where losses are
# small, and about epsilon. Mass p at a loss l between nodes a and a + h has the place w,
# ``(1 - e^{a - l}) = w (1 - e^{-h})``. From above ``p w`` of it goes to the right node and the rest
# to the left one: as much mass under P and under Q as before (a mean-preserving spread of dQ/dP, in
# which ``(1 - e^{eps - l})_+`` is convex). From below all of a cell is one atom at its mean of w
# (Jensen's inequality). After each convolution the products are put on the nodes again. What lies
# beyond the nodes moves up from above, to infinity at the end, and from below moves down or is left
# out.


_UnequalLaw = tuple[Array, Array, float, float]
"""Losses, masses under P, the mass at infinity, and by how much losses may be off."""


def few(
    spends: Sequence[tuple[Pair, int]], delta: float, lower: float, upper: float
) -> tuple[float, float] | None:
    """Return a bracket of epsilon inside of one; None of others than few samples of one unit."""
    steps = [
        (pair.mu, pair.rate, n) for pair, n in spends if isinstance(pair, ReplacedGaussianPair)
    ]
    total = sum(n for *_, n in steps)
    known = len(steps) == len(spends) <= 3 and 1 < total <= _FEW and 1e-90 < delta < 1
    if not (known and 1e-9 < upper < 100):
        return None
    if not all(0.05 <= mu <= 6 and 1e-12 <= rate <= 0.5 for mu, rate, _ in steps):
        return None
    for fine, coarse in ((60, 20), (300, 40)):
        nodes = _unequal(steps, delta, max(lower, upper / 1000), upper, fine, coarse)
        if nodes is None:
            break
        ends = [_composed(steps, nodes, side) for side in (-1, 1)]
        lower = _crossing(ends[0], -1, delta, lower, upper)
        upper = _crossing(ends[1], 1, delta, lower, upper)
    return lower, upper


_FEW = 64
_MOST_NODES = 3200


def _unequal(
    steps: list[tuple[float, float, int]],
    delta: float,
    lower: float,
    upper: float,
    fine: int,
    coarse: int,
) -> Array | None:
    """Return nodes, by e-fold ``fine`` about epsilon and ``coarse`` elsewhere; None of too many."""
    least, top = lower / 30, 1.5 * upper
    for mu, rate, _ in steps:
        least = min(least, rate * mu * math.exp(-mu * mu / 2) / 30)
        # so far out that what is beyond is of no account
        tails = special.log_ndtr(mu - _PLACES)
        far = _PLACES[np.searchsorted(-tails, -math.log(delta * 1e-10)).clip(0, len(tails) - 1)]
        top = max(top, float(losses((mu, rate, 40.0, 40.0), np.array([far]))[0][0]))

    def between(low: float, high: float, folds: int) -> Array:
        return np.geomspace(low, high, 2 + math.ceil(folds * math.log(high / low)))

    positive = [
        between(least, 0.2 * lower, coarse),
        between(0.2 * lower, min(3 * upper, top), fine)[1:],
    ]
    if top > 3 * upper:
        positive.append(between(3 * upper, top, coarse)[1:])
    negative = -between(least, top, coarse)[::-1]
    nodes = np.concatenate([negative, [0.0], *positive])
    pairs = [ReplacedGaussianPair(mu, rate) for mu, rate, _ in steps]
    near = all(float(pair.outcome(nodes[-1:])[0]) < 36 for pair in pairs)
    return nodes if near and len(nodes) <= _MOST_NODES else None


_PLACES = np.linspace(0.0, 34.0, 341)


def _composed(steps: list[tuple[float, float, int]], nodes: Array, side: int) -> _UnequalLaw:
    """Return a law above that of the sum of all losses (side 1), or below it (-1)."""
    total: _UnequalLaw | None = None
    for mu, rate, times in steps:
        power, left = _of_one(mu, rate, nodes, side), times
        while left:
            if left & 1:
                total = power if total is None else _convolved(nodes, total, power, side)
            left >>= 1
            power = _convolved(nodes, power, power, side) if left else power
    assert total is not None
    return total


def _of_one(mu: float, rate: float, nodes: Array, side: int) -> _UnequalLaw:
    """Return one sample's law."""
    x = ReplacedGaussianPair(mu, rate).outcome(nodes)
    panels = np.maximum(panels_between(x, mu), 1)
    firsts = np.cumsum(panels) - panels
    loss, logs, weights, wrong = on_panels((mu, rate, 40.0, 40.0), x, panels, float(nodes[-1]))
    masses = np.exp(loss + logs) * weights
    starts, widths = (np.repeat(each, panels)[:, None] for each in (nodes[:-1], np.diff(nodes)))
    places = np.clip(np.expm1(starts - loss) / np.expm1(-widths), 0.0, 1.0)
    mass, right = (np.add.reduceat(each.sum(axis=1), firsts) for each in (masses, masses * places))
    under = (1 - rate) * special.ndtr(x[0]) + rate * special.ndtr(x[0] - mu)
    over = (1 - rate) * special.ndtr(-x[-1]) + rate * special.ndtr(mu - x[-1])
    wrong_sum = wrong + 12 * UNIT * int(panels.max())
    return _placed(nodes, mass, right, (float(under), float(over)), wrong_sum, side, 8 * wrong)


def _placed(
    nodes: Array,
    mass: Array,
    right: Array,
    outside: tuple[float, float],
    wrong: float,
    side: int,
    slack: float,
) -> _UnequalLaw:
    """Return a law of cells' masses and of their sums of places, both within a share ``wrong``."""
    under, over = (each * (1 + side * (2 * wrong + 1e-9)) for each in outside)
    if side > 0:
        found = np.zeros(len(nodes))
        found[1:] += right * (1 + 2 * wrong)
        found[:-1] += mass * (1 + 2 * wrong) - right * (1 - 2 * wrong)
        found[0] += under
        return nodes, found, over + 1e-200, slack
    with np.errstate(all="ignore"):
        place = np.nan_to_num(right / mass) * (1 - 4 * wrong)
    at = nodes[:-1] - np.log1p(np.clip(place, 0.0, 1.0) * np.expm1(-np.diff(nodes)))
    found = np.append(mass * (1 - 2 * wrong), max(0.0, over - 1e-200))
    return np.append(at, nodes[-1]), found, 0.0, slack


def _convolved(nodes: Array, first: _UnequalLaw, second: _UnequalLaw, side: int) -> _UnequalLaw:
    """Return the law of the sum of both, on the nodes again."""
    some = [law[1] > 1e-180 for law in (first, second)]
    (l1, p1), (l2, p2) = (
        (law[0][s], law[1][s]) for law, s in zip((first, second), some, strict=True)
    )
    count, shares = len(nodes), -np.expm1(-np.diff(nodes))
    mass, right = np.zeros(count + 1), np.zeros(count + 1)
    for begin in range(0, len(l1), 256):
        loss = (l1[begin : begin + 256, None] + l2).ravel()
        product = (p1[begin : begin + 256, None] * p2).ravel()
        index = np.searchsorted(nodes, loss, "right")  # 0 below all, count above
        cell = np.clip(index - 1, 0, count - 2)
        place = np.clip(-np.expm1(nodes[cell] - loss) / shares[cell], 0.0, 1.0)
        mass += np.bincount(index, product, count + 1)
        right += np.bincount(index, product * place, count + 1)
    # sums one after the other, of so many terms at most, each within some units
    wrong = UNIT * (64.0 + len(l1) * len(l2))
    over = float(mass[count])
    if side > 0:  # what is at infinity, and what was left out
        over += first[2] + second[2] + 2e-180 * count
    slack = first[3] + second[3] + 32 * UNIT * float(nodes[-1])
    return _placed(nodes, mass[1:count], right[1:count], (float(mass[0]), over), wrong, side, slack)


def _crossing(law: _UnequalLaw, side: int, delta: float, lower: float, upper: float) -> float:
    """Return an end of epsilon's bracket: ``upper`` or ``lower`` where nothing better is seen."""
    at, mass, infinite, slack = law
    slack += 8 * UNIT * float(np.abs(at).max())
    room = UNIT * (64 + len(at))

    def enough(epsilon: float) -> bool:
        moved = epsilon - side * slack
        some = at > moved
        value = float(mass[some] @ -np.expm1(moved - at[some])) + infinite
        return value * (1 + side * room) <= delta

    low, high = max(lower, upper * 1e-6), upper
    if enough(low) or not enough(high):  # no crossing in between
        return upper if side > 0 and not enough(low) else low if side > 0 else lower
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if side > 0 else low
