"""Correlated noise on samples some rounds apart, by simulation: an estimate with a confidence.

A unit is *free* in a round if it took part in none of the ``b - 1`` rounds before it; where it is
free, it takes part with probability p. This is b-min-sep sampling (Dong and Ganesh 2026): with
``b = 1`` Poisson sampling, with ``p = 1`` balls and bins. No closed form is known. But the worst
unit's likelihood ratio is (`accountants.losses.tree`): it has rows of 1 and an encoder C with no
negative entry, whose columns of its rounds are added to Gaussian noise. So that ratio is drawn,
with the unit and without it, and the hockey-stick is a mean of numbers in [0, 1]:

``delta(eps) = E_P (1 - e^{eps - L})_+``, or ``E_Q (1 - e^{eps + L})_+`` in the other direction.

A coin for each of them, that falls with that probability, makes it a binomial one, whose exact
confidence bounds hold for any number of draws (`accountants.confidence`).

With ``p = 1`` the ratio is a mean over the bins. Else, with at most b bands, the blocks of a unit's
rounds do not overlap, so a free unit's ratio of all rows from i on follows from those of later
ones, with l_i the ratio of the rows of column i:

``R_i = (1 - p) R_{i+1} + p l_i R_{i+b}``.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen

from accountants import confidence
from accountants.errors import DomainError, integer, nonnegative, positive, probability
from accountants.losses.tree import Toeplitz
from accountants.numerics import Array, shown

_AT_ONCE = 2**21
"""So many numbers are drawn at once."""

_ROUNDING = 1e-10
"""More than the rounding error of a mean over the draws."""


@frozen
class SimulatedDelta:
    """A confidence interval of a delta, from draws: not a bound, and no accountant certifies by it.

    Parameters
    ----------
    estimate
        The mean of the draws, in the costlier direction.
    lower, upper
        An interval that holds the delta but for a probability of ``failure``.
    failure
        The probability, over the draws, that the interval is wrong.
    draws
        How many draws there were with the unit, and as many without it.

    Examples
    --------
    >>> print(SimulatedDelta(0.0119, lower=0.0082, upper=0.0161, failure=1e-6, draws=10_000))
    about 0.012, in [0.0082, 0.017] but for a probability of 1e-06
    """

    estimate: float
    lower: float
    upper: float
    failure: float
    draws: int

    def __str__(self) -> str:
        low = shown(self.lower, upward=False, digits=2)
        high = shown(self.upper, upward=True, digits=2)
        wrong = shown(self.failure, upward=True, digits=2)
        return f"about {self.estimate:.2g}, in [{low}, {high}] but for a probability of {wrong}"


def simulated_matrix_factorization(
    encoder: Toeplitz,
    noise_multiplier: float,
    *,
    separation: int,
    rate: float,
    epsilon: float,
    draws: int,
    rng: np.random.Generator,
    failure: float = 1e-6,
) -> SimulatedDelta:
    """Estimate delta of correlated noise on samples some rounds apart (b-min-sep sampling).

    Each unit takes part with probability ``rate`` in each round in which it is free: in which it
    took part in none of the ``separation - 1`` rounds before. The first round is as any other:
    sampling started long before. Rows may depend on all that earlier rounds released. Neighbours
    differ in one unit that is present or absent (add/remove, zero-out).

    Parameters
    ----------
    encoder
        C, with no negative coefficients; at most ``separation`` many where the rate is below 1.
    noise_multiplier
        The standard deviation of each entry, over the largest norm of a unit's row.
    separation
        b, at least 1. With 1 this is Poisson sampling in every round.
    rate
        The probability p, in (0, 1]. With 1 each unit is in one of b bins, for the whole run: balls
        and bins.
    epsilon
        Non-negative, in nats.
    draws
        How many likelihood ratios are drawn in each direction. The interval is narrow where
        ``draws`` times delta is large.
    rng
        For research alone: the answer is as random as its generator.
    failure
        The probability with which the interval may be wrong, in (0, 1).

    Returns
    -------
    SimulatedDelta
        Not a proof: for one, see `allocated_matrix_factorization`, `banded_matrix_factorization`.

    References
    ----------
    Choquette-Choo, Ganesh, Haque, Steinke and Thakurta 2025 (balls and bins, Monte Carlo); Dong and
    Ganesh 2026 (b-min-sep sampling, the recursion); Clopper and Pearson 1934.

    Examples
    --------
    >>> from accountants import Toeplitz
    >>> answer = simulated_matrix_factorization(
    ...     Toeplitz([1.0, 0.5], rounds=40),
    ...     noise_multiplier=1.0,
    ...     separation=4,
    ...     rate=0.1,
    ...     epsilon=1.0,
    ...     draws=10_000,
    ...     rng=np.random.default_rng(1),
    ... )
    >>> print(answer)
    about 0.088, in [0.077, 0.11] but for a probability of 1e-06
    """
    sigma = positive("simulated_matrix_factorization's noise_multiplier", noise_multiplier)
    b, p = integer("separation", separation), probability("rate", rate)
    eps, tries = nonnegative("epsilon", epsilon), integer("draws", draws)
    if min(encoder.coefficients) < 0:
        raise DomainError(
            "simulated_matrix_factorization needs coefficients that are not negative, got one of "
            f"{min(encoder.coefficients):g}; give their moduli, which cost no less"
        )
    if p == 0 or (p < 1 and encoder.bands() > b):
        raise DomainError(
            f"simulated_matrix_factorization needs a rate above 0, and of 1 where an encoder has "
            f"more bands than the separation, got a rate of {p:g}, {encoder.bands()} bands and a "
            f"separation of {b}; see allocated_matrix_factorization for a bound"
        )
    if not 0 < failure < 1:
        raise DomainError(f"failure must lie between 0 and 1, got {failure!r}")
    sums, hits = np.zeros(2), np.zeros(2, dtype=np.int64)
    scaled = Toeplitz(np.array(encoder.coefficients) / sigma, encoder.rounds)
    most = max(1, _AT_ONCE // (encoder.rounds + b))
    for start in range(0, tries, most):
        count = min(most, tries - start)
        noise = rng.normal(size=(2, count, encoder.rounds))
        noise[0] += _convolved(scaled, _rounds_of_units(encoder.rounds, b, p, count, rng))
        for side, sign in enumerate((1, -1)):
            loss = sign * log_ratios(scaled, b, p, noise[side])
            # (1 - e^{eps - L})_+, L the loss in either direction
            value = -np.expm1(np.minimum(eps - loss, 0.0))
            sums[side] += value.sum()
            hits[side] += int((rng.random(count) < value).sum())
    # two bounds for each direction: one of them is wrong with a probability of at most failure
    ends = [
        [bound(int(n), tries, failure / 4) for n in hits]
        for bound in (confidence.lower, confidence.upper)
    ]
    return SimulatedDelta(
        float(sums.max() / tries),
        max(0.0, max(ends[0]) - _ROUNDING),
        min(1.0, max(ends[1]) + _ROUNDING),
        failure,
        tries,
    )


def log_ratios(scaled: Toeplitz, b: int, p: float, rows: Array) -> Array:
    """Return log-likelihood ratios of rows, shape (draws, rounds), noise of variance 1.

    Parameters
    ----------
    scaled
        The encoder over sigma.
    b, p
        The separation and the rate.
    """
    if p == 1:
        return _of_bins(scaled, b, rows)
    n = scaled.rounds
    single = _log_ratios_of_columns(scaled._column(), rows)
    # from the last round on; past it nothing is told apart
    logs = np.zeros((n + b, len(rows)))
    stay, take = math.log1p(-p), math.log(p)
    for i in range(n - 1, -1, -1):
        logs[i] = np.logaddexp(stay + logs[i + 1], take + single[:, i] + logs[i + b])
    # sampling began long ago: in round 0 a unit is free, or will first be so in one of b - 1 rounds
    logs[1:b] += take
    first = logs[:b]
    return np.asarray(np.logaddexp.reduce(first, axis=0) - math.log1p((b - 1) * p))


def _of_bins(scaled: Toeplitz, b: int, rows: Array) -> Array:
    """Return log-likelihood ratios of one of b bins, by all columns of each."""
    n = scaled.rounds
    together = np.zeros(n)
    for first in range(0, n, b):
        together[first:] += scaled._column()[: n - first]
    of_bins = np.zeros((len(rows), b))
    used = min(b, n)  # bins that no round reaches have a ratio of 1
    of_bins[:, :used] = _log_ratios_of_columns(together, rows)[:, :used]
    return np.asarray(np.logaddexp.reduce(of_bins, axis=1) - math.log(b))


def _log_ratios_of_columns(column: Array, rows: Array) -> Array:
    """Return for each round j the log-ratio of rows around the column moved down by j."""
    n = len(column)
    size = 2 * n
    shifted = np.fft.rfft(rows, size) * np.conj(np.fft.rfft(column, size))
    inner = np.fft.irfft(shifted, size)[:, :n]
    # the first n - j entries are left of it
    return np.asarray(inner - np.cumsum(column * column)[::-1] / 2)


def _convolved(scaled: Toeplitz, rounds: Array) -> Array:
    """Return C times each row of ``rounds``, shape (draws, rounds)."""
    size = 2 * scaled.rounds
    product = np.fft.rfft(rounds, size) * np.fft.rfft(scaled._column(), size)
    return np.asarray(np.fft.irfft(product, size)[:, : scaled.rounds])


def _rounds_of_units(n: int, b: int, p: float, count: int, rng: np.random.Generator) -> Array:
    """Return which rounds units take part in, 0 or 1, shape (count, n)."""
    # round 0 finds a unit free, or with 1 to b - 1 rounds still to wait
    odds = np.append(1.0, np.full(b - 1, p)) / (1 + (b - 1) * p)
    at = rng.choice(b, p=odds, size=count) + rng.geometric(p, size=count) - 1
    rounds, units = np.zeros((count, n)), np.arange(count)
    while len(units := units[at[units] < n]):
        rounds[units, at[units]] = 1.0
        at[units] += b - 1 + rng.geometric(p, size=len(units))
    return rounds
