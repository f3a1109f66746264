"""Correlated Gaussian noise: tree aggregation, and matrix factorisation in general.

To release prefix sums (or any linear map A = B C) of a stream of rows, Gaussian noise is added to
C times the stream and B applied to that: post-processing. What one unit moves is a matrix
``sum_i C[:, i] u_i``, with its rows of norm at most 1 in the rounds i in which it takes part, so
the loss is Gaussian with ``mu = sensitivity(C) / noise_multiplier``, rows chosen adaptively
included (Denisov, McMahan, Rush, Smith and Thakurta 2022, Thm 2.1). With ``X = C^T C`` its square
is at most the largest ``sum_{i, j} |X_ij|`` over the rounds of one unit, and is that where X has
no negative entry.

*Samples.* Let C have b bands: a square matrix, ``C[i, j]`` 0 unless ``0 <= i - j < b``. Let each
unit have a group g of its own, one of b, and let round j sample each unit of group ``j mod b``
alone with probability p, by a fresh coin. A unit of group g, that is present or absent, takes part
in rounds ``j = g, g + b, ...`` at most, and column j of C lies in rows j to ``j + b - 1``: in a
block of its own. Given the coins of all other units, and all rows released before row i, the other
units' part of row i is known, and so is the unit's row u of round j from row j on, since it was
chosen before. So the block of column j, less what is known, is Gaussian noise around 0, or with
probability p around ``C[:, j] u``, and its coin is independent of all rows before. The noise is
spherical and only that direction counts: the block costs a sampled Gaussian of
``mu = |C[:, j]| |u| / sigma``, which rises in |u|. Blocks compose adaptively, so a group costs its
sampled Gaussians in sequence, and a unit the costliest group; with |u| = 1 in one direction, and
other units that add nothing, the laws are those. What would be wrong: a unit with two rounds less
than b apart, whose blocks overlap; groups that depend on other units (parts of one size).

*Toeplitz.* Let ``C[i, j] = c_{i-j}`` with n rounds, c_0, c_1, ... neither negative nor rising.
For ``i < j`` then ``X_ij = sum_s c_s c_{s+j-i}``, s up to n - 1 - j, has no fewer and no smaller
terms where j or j - i is less. The rounds i_0 < i_1 < ... of a unit that are b apart have
``i_m >= m b`` and ``i_m - i_l >= (m - l) b``: no X_ij of theirs is above that of rounds
0, b, 2b, ..., whose columns' sum has the largest norm (Kalinin and Lampert 2024, Thm 2). For any
other c it is a bound with ``max_{l >= i} |c_l|`` for c_i, since ``sum_s |c_s c_{s+j-i}|`` rises in
each ``|c_l|``; with at most b coefficients columns b apart are orthogonal, and their norms fall
with the round.

*Bins.* Let C be lower triangular, and let a unit that is present take part in the rounds of a set
S, drawn with probability p_S whatever else happens. Given the other units' coins, subtract what
they add: row i is Gaussian noise ``sigma z_i`` without the unit, and has the mean
``m_i^S = sum_{j in S} C_ij u_j`` more with it. The u_j were chosen before row j, not by S. So the
likelihood ratio is ``sum_S p_S e^{M^S - <M^S>/2}``, where M^S sums ``<m_i^S, z_i> / sigma``. To
``<M^S, M^S'>`` row i adds at most ``v_i^S v_i^S' / sigma^2``, ``v_i^S = sum_{j in S} |C_ij|``.

Kahane 1985: for Gaussian vectors X, Y with ``E X_S X_S' <= E Y_S Y_S'`` for all S, S', weights
``w_S >= 0`` and f convex, ``E f(sum_S w_S e^{X_S - E X_S^2 / 2})`` is at most that of Y. (Along
``sqrt(1-t) X + sqrt(t) Y`` it has the derivative ``1/2 sum_{S, S'} (E Y_S Y_S' - E X_S X_S') E[f''
a_S a_S'] >= 0``, a_S the summands.) Use it row by row, from the last one on, each given its past:
with f convex so is, in the weights, the expectation over all later rows, and no second derivative
of it is negative, mixed ones included. The hockey-sticks of both directions are expectations of
convex functions of the ratio. For them rows of one sign and norm 1 and the encoder ``|C|`` are the
worst, and their Gram matrix ``G_SS' = sum_i v_i^S v_i^S'`` may be made larger entry by entry.

Of b equally likely bins ``{g, g + b, ...}`` take r runs of m places on the circle of bins,
``floor(t b / r) + i s`` for t < r, i < m, in all b rotations: the ratio is the mean of the
rotations', so its convex functions are at most the largest of theirs. With d the largest ``G_SS``,
o_1 the largest ``G_SS'`` of two bins of a run and o_0 that of bins of two runs, its Gram matrix is
at most that of ``sqrt(o_0) Z + sqrt(o_1 - o_0) Z_t + sqrt(d - o_1) Z_ti``, all Z independent. That
is a Gaussian of ``mu = sqrt(o_0) / sigma``, and one of the second part and one of the third: the
third allocated to one of m places, both together to one of r runs. With one run of one place this
is the unsampled cost. Of a Toeplitz encoder ``G_SS'`` of bins g and g' is at most that of bins 0
and ``|g - g'|``: the columns of bin g sum to those of bin 0, moved down by g rows, of which fewer
are left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike

from accountants.errors import DomainError, integer, positive, probability
from accountants.losses.gaussian import Gaussian, GaussianBound
from accountants.numerics import UNIT, Array, up
from accountants.terms import Allocated, Parallel, Repeated, Sampled, Sequential, Spend, Term


def tree_nodes(rounds: int, *, padded: bool = True) -> int:
    """Return how many noisy nodes of the binary tree over ``rounds`` leaves one leaf lies in.

    Parameters
    ----------
    rounds
        T, at least 1.
    padded
        True where every node of the tree is released whose leaves are padded to a power of
        two: ``ceil(log2 T) + 1``. False where only nodes all of whose leaves are real rounds
        are: ``floor(log2 T) + 1``.

    Examples
    --------
    >>> tree_nodes(1000), tree_nodes(1000, padded=False)
    (11, 10)
    """
    count = integer("tree_nodes' rounds", rounds)
    return (count - 1).bit_length() + 1 if padded else count.bit_length()


def tree_aggregation(noise_multiplier: float, rounds: int, *, padded: bool = True) -> Gaussian:
    """Return the loss of one epoch of tree aggregation (the binary mechanism).

    Each unit touches one leaf, and so the nodes above it: ``mu = sqrt(nodes) / noise_multiplier``.
    Several epochs, each with a tree of its own, are `Repeated`.

    Parameters
    ----------
    noise_multiplier
        The standard deviation in each node, over the largest norm of a unit's row (twice that
        norm under replace-one).
    rounds, padded
        As for `tree_nodes`.

    References
    ----------
    Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011 (binary mechanism); Kairouz,
    McMahan, Song, Thakkar, Thakurta and Xu 2021, Thm 4.1 (adaptive rows).

    Examples
    --------
    >>> round(tree_aggregation(noise_multiplier=1.0, rounds=1000).rho(), 9)
    5.5
    """
    sigma = positive("tree_aggregation's noise_multiplier", noise_multiplier)
    # a unit is in one row: it moves each node above that row by at most 1, mu = sqrt(nodes) / sigma
    return Gaussian(up(math.sqrt(tree_nodes(rounds, padded=padded)) / sigma))


def _coefficients(value: ArrayLike) -> tuple[float, ...]:
    return tuple(_encoder([value])[0].tolist())


def _rounds(value: int) -> int:
    return integer("Toeplitz.rounds", value)


@frozen(cache_hash=True)
class Toeplitz:
    """A lower triangular Toeplitz encoder by its first column: ``C[i, j] = coefficients[i - j]``.

    It stands for the matrix wherever an encoder is asked for, and needs no memory of its size.

    Parameters
    ----------
    coefficients
        c_0, c_1, ..., at most as many as rounds; those not given are 0, so that b of them are a
        matrix of b bands.
    rounds
        n, the number of rows and of columns.

    Examples
    --------
    The square root of the prefix sums, which is next to the best factorization for them, and
    buffered coefficients (BLT), over 10^5 rounds:

    >>> n = 100_000
    >>> root = Toeplitz(np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, n))), rounds=n)
    >>> round(column_sensitivity(root), 6)
    2.175075
    >>> scales, decays = np.array([0.2, 0.05]), np.array([0.9, 0.999])
    >>> tail = scales @ decays[:, None] ** np.arange(n - 1)
    >>> buffered = Toeplitz(np.append(1.0, tail), rounds=n)
    >>> round(participation_sensitivity(buffered, participations=10, separation=10_000), 6)
    5.157016
    """

    coefficients: tuple[float, ...] = field(converter=_coefficients, repr=False)
    rounds: int = field(converter=_rounds)

    def __attrs_post_init__(self) -> None:
        if len(self.coefficients) > self.rounds:
            raise DomainError(
                f"a Toeplitz encoder of {self.rounds} rounds has at most so many coefficients, got "
                f"{len(self.coefficients)}; leave out those that no round reaches"
            )

    def bands(self) -> int:
        """Return how many coefficients there are up to the last one that is not 0."""
        return int(np.flatnonzero([1.0, *self.coefficients[1:]])[-1]) + 1

    def _column(self) -> Array:
        """Return the first column's moduli, shape (rounds,)."""
        column = np.zeros(self.rounds)
        column[: len(self.coefficients)] = np.abs(self.coefficients)
        return column


Encoder = ArrayLike | Toeplitz
"""C: a matrix with a column for each round, or a `Toeplitz` one by its coefficients."""


def column_sensitivity(encoder: Encoder) -> float:
    """Return the largest column norm of C, rounded up: what a unit moves in one round.

    References
    ----------
    Denisov, McMahan, Rush, Smith and Thakurta 2022, Thm 2.1.

    Examples
    --------
    >>> round(column_sensitivity([[1, 0], [1, 1]]), 9)
    1.414213562
    """
    # a unit that takes part once moves the stream in one row, of norm 1: C moves by one column
    if isinstance(encoder, Toeplitz):
        # the first column has all coefficients, any other only the first of them
        return _norm(encoder._column())
    return max(_column_norms(_encoder(encoder)))


def participation_sensitivity(encoder: Encoder, participations: int, separation: int = 1) -> float:
    """Return what a unit moves at most that takes part several times, rounded up.

    ``sum_{i, j} |X_ij|`` over the rounds of a unit is ``sum_i (sum_j |X_ij|)``, at most the sum of
    what each round i has in its own costliest company. Both maxima are dynamic programmes over
    sets of rounds that are ``separation`` apart, so this is exact where columns that far apart
    are orthogonal (banded encoders), and an upper bound elsewhere. Of a Toeplitz encoder whose
    coefficients are neither negative nor rising the worst rounds are the first ones, as dense as
    may be: exact too, and quick.

    Parameters
    ----------
    encoder
        C, a column for each round, or a `Toeplitz`.
    participations
        k, the largest number of rounds of one unit.
    separation
        b: two rounds of one unit lie at least so many rounds apart.

    References
    ----------
    Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023 (b-min-separation);
    Kalinin and Lampert 2024, Thm 2 (Toeplitz).

    Examples
    --------
    >>> participation_sensitivity(np.eye(6), participations=2, separation=3)
    1.414213...
    """
    k, b = integer("participations", participations), integer("separation", separation)
    if isinstance(encoder, Toeplitz):
        return _toeplitz_sensitivity(encoder, k, b)
    c = _encoder(encoder)
    k = min(k, c.shape[1])
    if k == 1:
        return column_sensitivity(c)
    bound = math.inf
    if (toeplitz := _as_toeplitz(c)) is not None:
        bound = _toeplitz_sensitivity(toeplitz, k, b)
        if _is_attained(toeplitz, k, b):
            return bound
    size = np.abs(c)
    # each entry of X is off by at most so many units of the product of the moduli
    # |X_ij|, rounded up: an upper bound of every sum over a unit's rounds
    x = np.abs(c.T @ c) + 2 * (len(c) + 2) * UNIT * (size.T @ size)
    company = _company(x, k, b)
    # the heaviest set of k rounds, each with its own costliest company: an upper bound
    total = _heaviest(company[None, :], k, b)[0, -1]
    # both bound the same sum
    return min(bound, _root(float(total), 4 * k + len(c)))


def matrix_factorization(
    encoder: Encoder, noise_multiplier: float, participations: int = 1, separation: int = 1
) -> Gaussian | GaussianBound:
    """Return the loss of releasing C times a stream with Gaussian noise.

    Parameters
    ----------
    encoder, participations, separation
        As for `participation_sensitivity`.
    noise_multiplier
        The standard deviation of each entry, over the largest norm of a unit's row.

    Returns
    -------
    Gaussian or GaussianBound
        The latter for more than one participation, where the sensitivity may not be attained: it
        is that of a `Toeplitz` encoder if its coefficients are not negative and either do not rise
        or are at most ``separation`` many.

    References
    ----------
    Denisov, McMahan, Rush, Smith and Thakurta 2022, Thm 2.1.

    Examples
    --------
    >>> matrix_factorization([[1, 0], [1, 1]], noise_multiplier=2.0)
    Gaussian(mu=0.7071067...)
    """
    sigma = positive("matrix_factorization's noise_multiplier", noise_multiplier)
    moved = participation_sensitivity(encoder, participations, separation)
    exact = participations == 1 or (
        isinstance(encoder, Toeplitz) and _is_attained(encoder, participations, separation)
    )
    return (Gaussian if exact else GaussianBound)(up(moved / sigma))


def banded_matrix_factorization(
    encoder: Encoder, noise_multiplier: float, bands: int, rate: float
) -> Parallel:
    """Return the cost of correlated noise with b bands, on Poisson samples of b groups in turn.

    Each unit is in one of b groups, which depends on that unit alone (drawn, or by its key), and
    round j, counted from 0, samples each unit of group ``j mod b`` with probability ``rate``. Rows
    may depend on all that earlier rounds released. Neighbours differ in one unit that is present or
    absent (add/remove, zero-out). Some mechanism attains the cost.

    Parameters
    ----------
    encoder
        C, of shape (rounds, rounds), with ``C[i, j]`` exactly 0 unless ``0 <= i - j < bands``; or a
        `Toeplitz` of at most so many coefficients.
    noise_multiplier
        The standard deviation of each entry, over the largest norm of a unit's row.
    bands
        b, the number of bands and of groups, at least 1. With 1, and C the identity, this is
        training on Poisson samples with independent noise.
    rate
        The probability p, in [0, 1], with which a unit of the round's group is sampled: for batches
        of B out of n units on average, ``b B / n``.

    Returns
    -------
    Parallel
        A choice for each group: its sampled Gaussians, of the norms of its own columns. Of a
        `Toeplitz` the first group alone, which is the costliest.

    Raises
    ------
    DomainError
        Where C is not square, or has an entry outside of its bands.

    See Also
    --------
    matrix_factorization : without sampling, for rounds that are some steps apart.

    References
    ----------
    Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023, "(Amplified) banded
    matrix factorization", with the largest norm for every column; the module's docstring proves
    the form here.

    Examples
    --------
    >>> from accountants import Distribution, measure
    >>> encoder = np.eye(100) + 0.5 * np.eye(100, k=-1)
    >>> term = banded_matrix_factorization(encoder, noise_multiplier=1.0, bands=2, rate=0.02)
    >>> print(measure(term, Distribution(), delta=1e-6).bounds)
    [2.03521, 2.03522]
    """
    sigma = positive("banded_matrix_factorization's noise_multiplier", noise_multiplier)
    b, p = integer("bands", bands), probability("rate", rate)
    if isinstance(encoder, Toeplitz):
        return _toeplitz_groups(encoder, sigma, b, p)
    c = _encoder(encoder)
    rounds = len(c)
    if c.shape != (rounds, rounds):
        raise DomainError(
            f"a banded encoder must be square, a row and a column for each round, got {c.shape}"
        )
    if np.any(np.triu(c, 1)) or np.any(np.tril(c, -b)):
        raise DomainError(
            f"an encoder of {b} bands must be 0 above its diagonal and from {b} below it on; set "
            "what is meant to be 0 to 0, or give all bands that it has"
        )
    mus = [up(norm / sigma) for norm in _column_norms(c)]
    # groups past the last round take part in none
    return _in_groups([Counter(mus[g::b]) for g in range(min(b, rounds))], p)


def _toeplitz_groups(encoder: Toeplitz, sigma: float, b: int, p: float) -> Parallel:
    """Return the cost of the first group, which no other exceeds: norms fall with the round."""
    if encoder.bands() > b:
        raise DomainError(
            f"an encoder of {b} bands must have at most {b} coefficients that are not 0, got "
            f"{encoder.bands()}; give all bands that it has"
        )
    column, n = encoder._column(), encoder.rounds
    mus: Counter[float] = Counter()
    # of b bands every column but those of the last b - 1 rounds is whole: one of a group at most
    last = (n - 1) // b * b
    for start, times in ((0, last // b), (last, 1)):
        if times:
            mus[up(_norm(column[: n - start]) / sigma)] += times
    return _in_groups([mus], p)


def _in_groups(groups: list[Counter[float]], p: float) -> Parallel:
    """Return a choice for each group, of so many Gaussians of each mu on samples of rate p."""
    # a unit is in one group, which one is unknown
    return Parallel(
        [
            Sequential(
                [
                    Repeated(Sampled(Spend(Gaussian(mu)), p), times)
                    for mu, times in sorted(group.items(), reverse=True)
                ]
            )
            for group in groups
        ],
        labels=[f"group = {g}" for g in range(len(groups))],
    )


def allocated_matrix_factorization(
    encoder: Encoder, noise_multiplier: float, batches: int
) -> Sequential:
    """Return the cost of correlated noise, on balls-and-bins batches.

    Each unit is in one of b bins, drawn uniformly and independently of all else, for the whole run:
    round j, counted from 0, takes all units of bin ``j mod b``, so an epoch is b rounds. Rows may
    depend on all that earlier rounds released. Neighbours differ in one unit that is present or
    absent (add/remove, zero-out). Any bands: what the columns of different bins share is paid
    unsampled, what is left by random allocation. An upper bound.

    Parameters
    ----------
    encoder
        C, lower triangular, of shape (rounds, rounds), or a `Toeplitz`.
    noise_multiplier
        The standard deviation of each entry, over the largest norm of a unit's row.
    batches
        b, the number of bins, at least 1.

    Returns
    -------
    Sequential
        A Gaussian that all places of a unit share, one that those of a run of places share, and one
        of each place's own, `Allocated` to one of the runs and of its places. Of all ways to choose
        the places, that of the least chi-square divergence.

    Raises
    ------
    DomainError
        Where C is not square or not lower triangular.

    See Also
    --------
    Allocated : for independent noise, and for bins that are drawn anew in each epoch.
    banded_matrix_factorization : on Poisson samples of groups in turn.

    References
    ----------
    Choquette-Choo, Ganesh, Haque, Steinke and Thakurta 2025 (the sampling, by Monte Carlo);
    Kahane 1985 (the convexity inequality); the module's docstring has the proof.

    Examples
    --------
    >>> from accountants import Distribution, measure
    >>> encoder = Toeplitz([1.0, 0.5, 0.375, 0.3125], rounds=2000)
    >>> term = allocated_matrix_factorization(encoder, noise_multiplier=4.0, batches=200)
    >>> print(measure(term, Distribution(), delta=1e-6).bounds)
    [0, 0.979147]
    """
    sigma = positive("allocated_matrix_factorization's noise_multiplier", noise_multiplier)
    b = integer("batches", batches)
    power, together = (
        _toeplitz_bins(encoder, b) if isinstance(encoder, Toeplitz) else _bins(encoder, b)
    )
    # places on a circle: what two bins share, that many apart one way or the other
    shared = np.maximum(together, np.append(together[:1], together[:0:-1]))
    # Cauchy and Schwarz, up to rounding: d is the largest
    shared[0] = square = float(shared.max())
    scale = math.ldexp(1.0, power) / sigma
    _, runs, places, far, near = min(_clusters(shared, scale))

    def gaussian(part: float) -> list[Term]:
        moved = math.ldexp(_root(up(part), 0), power) / sigma
        return [Spend(GaussianBound(up(moved)))] if part > 0 else []

    def allocated(parts: list[Term], steps: int) -> list[Term]:
        if steps == 1 or not parts:
            return parts
        return [Allocated(parts[0] if len(parts) == 1 else Sequential(parts), steps)]

    # G_SS = d = o_0 + (o_1 - o_0) + (d - o_1), each rounded up
    if places == 1:
        run = gaussian(square - far)
    else:
        run = gaussian(near - far) + allocated(gaussian(square - near), places)
    return Sequential(gaussian(far) + allocated(run, runs))


_WIDEST = 170.0
"""The largest log-ratio of a nested allocation, which `Allocated` follows up to 190."""


def _clusters(shared: Array, scale: float) -> Iterator[tuple[float, int, int, float, float]]:
    """Yield ways to choose places: a cost, runs, the places of each, o_0 and o_1.

    The cost is the log of 1 and the chi-square divergence, near enough: each way is a bound.
    """
    b, square = len(shared), float(shared[0])
    # what bins share that are so far apart, or farther, both ways round
    half = shared[: b // 2 + 1]
    beyond = np.maximum.accumulate(half[::-1])[::-1].tolist()
    counts = [n for n in sorted({round(2 ** (i / 2)) for i in range(40)}) if n <= b]
    within = {step: np.maximum.accumulate(shared[step::step]).tolist() for step in counts}
    for runs in sorted({b // gap for gap in range(1, b + 1)}):
        for step in counts:
            for places in counts:
                # the least gap between the starts of two runs, and from a run's end to the next
                free = b // runs - (places - 1) * step
                if free < 1:
                    break
                if places == 1 and step > 1:
                    continue
                far = beyond[min(free, b - free, b // 2)] if runs > 1 else 0.0
                near = max(within[step][places - 2], far) if places > 1 else far
                parts = [(part * scale) * scale for part in (far, near - far, square - near)]
                if runs > 1 and places > 1:
                    mus = [math.sqrt(part) for part in parts[1:]]
                    # outside of what a nested allocation follows
                    if sum(mu * mu / 2 + 38 * mu for mu in mus) > _WIDEST or mus[1] < 1e-6:
                        continue
                    if 0 < mus[0] < 1e-6:
                        continue
                cost = parts[0] + _log_mean(parts[1] + _log_mean(parts[2], places), runs)
                yield cost, runs, places, far, near


def _log_mean(log_square: float, steps: int) -> float:
    """Return ``log(1 + (e^x - 1) / steps)``, of the second moment of a mean."""
    rest = math.log1p(-1 / steps) if steps > 1 else -math.inf
    return float(np.logaddexp(rest, log_square - math.log(steps)))


_LEAST_ENTRY = 1e-150
"""Entries that are not 0 count as so much of the largest one at least: no product underflows."""


def _moduli(c: Array) -> tuple[int, Array]:
    """Return the exponent of a power of two, and the moduli of C's entries over it."""
    power = int(np.frexp(np.abs(c).max())[1])
    size = np.ldexp(np.abs(c), -power)
    return power, np.where(size > 0, np.maximum(size, _LEAST_ENTRY), 0.0)


def _bins(encoder: ArrayLike, b: int) -> tuple[int, Array]:
    """Return an exponent and, over its power's square, the largest G of bins so many apart."""
    c = _encoder(encoder)
    n = len(c)
    if c.shape != (n, n) or np.any(np.triu(c, 1)):
        raise DomainError(
            f"an encoder on balls-and-bins batches must be square and 0 above its diagonal, got "
            f"shape {c.shape}; rotate the noise so that row i needs no later rounds"
        )
    power, size = _moduli(c)
    # bins that no round reaches share nothing
    used = min(b, n)
    sums = np.stack([size[:, g::b].sum(axis=1) for g in range(used)], axis=1)
    gram = sums.T @ sums
    together = np.zeros(b)
    for gap in range(used):
        together[gap] = np.diagonal(gram, gap).max()
    return power, _raised(together, 3 * n + 4)


def _toeplitz_bins(encoder: Toeplitz, b: int) -> tuple[int, Array]:
    """Return the same: of bin 0, and of the bin that far from it."""
    power, size = _moduli(encoder._column())
    n = encoder.rounds
    w = _added(size, -(-n // b), b)
    together = np.zeros(b)
    for gap in range(min(b, n)):
        together[gap] = w[gap:] @ w[: n - gap]
    return power, _raised(together, n + 4 * n.bit_length() + 4)


def _raised(sums: Array, steps: int) -> Array:
    """Return sums of so many products rounded up; those of none stay 0, which is exact."""
    return np.where(sums > 0, up(sums, steps), 0.0)


def _encoder(value: ArrayLike | list[ArrayLike]) -> Array:
    try:
        c = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise DomainError(
            "an encoder must be a matrix of numbers, a column for each round"
        ) from None
    if c.ndim != 2 or 0 in c.shape or not np.all(np.isfinite(c)):
        raise DomainError(
            f"an encoder must be a matrix of finite numbers, a column for each round, got shape "
            f"{c.shape}; check for missing or infinite entries"
        )
    largest = float(np.abs(c).max())
    if largest > 1e100 or 0 < largest < 1e-100:
        raise DomainError(
            f"an encoder's largest entry must lie between 1e-100 and 1e100, got {largest:g}; "
            "scale the encoder and the noise"
        )
    return c


def _column_norms(c: Array) -> list[float]:
    """Return each column's norm, rounded up."""
    # each column over a power of two next to its largest entry, which is exact: no square of
    # what counts underflows, and zeros add no rounding
    powers = np.frexp(np.abs(c).max(axis=0))[1]
    scaled = np.ldexp(c, -powers)
    terms = int(np.count_nonzero(c, axis=0).max())
    roots = [_root(square, terms) for square in (scaled * scaled).sum(axis=0).tolist()]
    return [up(math.ldexp(r, power)) for r, power in zip(roots, powers.tolist(), strict=True)]


def _norm(vector: Array) -> float:
    """Return the norm of a vector, rounded up."""
    # over a power of two, which is exact, so that no square that counts underflows
    power = int(np.frexp(np.abs(vector).max())[1])
    scaled = np.ldexp(vector, -power)
    return up(math.ldexp(_root(math.fsum(scaled * scaled), 2), power))


def _root(square: float, terms: int) -> float:
    """Return the root of a sum of so many rounded terms, rounded up."""
    return up(math.sqrt(up(square, 2 * terms + 4)), 2) if square else 0.0


def _as_toeplitz(c: Array) -> Toeplitz | None:
    """Return the encoder by its coefficients, if it is lower triangular and Toeplitz."""
    n = len(c)
    is_toeplitz = c.shape == (n, n) and np.array_equal(c[1:, 1:], c[:-1, :-1])
    return Toeplitz(c[:, 0], n) if is_toeplitz and not np.any(c[0, 1:]) else None


def _is_attained(encoder: Toeplitz, k: int, b: int) -> bool:
    """Whether `_toeplitz_sensitivity` is the norm of a sum of columns of C, b apart."""
    c = np.array(encoder.coefficients)
    falls = bool(np.all(np.diff(c) <= 0))
    return bool(np.all(c >= 0)) and (falls or k == 1 or encoder.bands() <= b)


def _toeplitz_sensitivity(encoder: Toeplitz, k: int, b: int) -> float:
    """Return the norm of the sum of the columns 0, b, 2b, ..., at most k, rounded up."""
    k = min(k, -(-encoder.rounds // b))
    column = encoder._column()
    if encoder.bands() <= b:
        # orthogonal columns, whose squares add up; all but the last of them are whole
        last = column[: encoder.rounds - (k - 1) * b]
        return up(math.hypot(math.sqrt(k - 1) * _norm(column), _norm(last)), 8)
    if k > 1:
        # no smaller, and not rising: an upper bound, and the coefficients themselves if they fall
        column = np.maximum.accumulate(column[::-1])[::-1]
    return up(_norm(_added(column, k, b)), 4 * k.bit_length())


def _added(column: Array, k: int, b: int) -> Array:
    """Return the sum of k copies of a column, each b rows below the one before, by doubling.

    No more additions follow on one another than twice the bits of k.
    """
    total, done, double, power = np.zeros_like(column), 0, column, 1
    while True:
        if k & power:
            total = total + _lowered(double, done * b)
            done += power
        if done == k:
            return total
        double = double + _lowered(double, power * b)
        power *= 2


def _lowered(column: Array, by: int) -> Array:
    """Return the column so many rows below, with zeros above it."""
    return np.concatenate([np.zeros(min(by, len(column))), column[: max(len(column) - by, 0)]])


def _company(x: Array, k: int, b: int) -> Array:
    """Return for each round i the most that ``sum_j x_ij`` is over sets of rounds with i in it."""
    n = len(x)
    before = [np.zeros(n)]
    after = [np.zeros(n)]
    for m in range(1, k):
        before.append(_until(x, m, b))
        after.append(_until(x[::-1, ::-1], m, b)[::-1])
    # m rounds before i and k - 1 - m after it, for the best m
    both = [left + right for left, right in zip(before, reversed(after), strict=True)]
    return np.asarray(np.diagonal(x) + np.max(both, axis=0), dtype=np.float64)


def _until(x: Array, m: int, b: int) -> Array:
    """Return for each row i the heaviest sum of at most m entries b apart, up to column i - b."""
    best, n = _heaviest(x, m, b), len(x)
    last = np.arange(n) - b + 1
    return np.where(last >= 0, best[np.arange(n), np.maximum(last, 0)], 0.0)


def _heaviest(x: Array, m: int, b: int) -> Array:
    """Return per row the heaviest sum of at most m entries, b apart, of the first j columns.

    Column j of the result is for the first j columns, so it has one more than ``x``.
    """
    best = np.zeros((x.shape[0], x.shape[1] + 1))
    for _ in range(m):
        # either column j is taken, on top of the best b columns before it, or it is not
        taken = np.concatenate([np.zeros((x.shape[0], 1)), x + _after_gap(best, b)], axis=1)
        best = np.maximum.accumulate(taken, axis=1)
    return best


def _after_gap(best: Array, b: int) -> Array:
    """Return, for each column j, the best of the columns up to j - b."""
    n = best.shape[1] - 1
    shifted = np.zeros((best.shape[0], n))
    if b <= n:
        shifted[:, b - 1 :] = best[:, : n - b + 1]
    return shifted
