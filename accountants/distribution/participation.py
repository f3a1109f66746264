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
from accountants.losses.sampling import SampledGaussianPair
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
