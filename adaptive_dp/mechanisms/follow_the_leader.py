"""DP-FTRL: training on noisy prefix sums of gradients whose noise is correlated between rounds.

`FollowTheLeader` is the mechanism. Its noise comes from a factorization ``A = B C`` of the matrix A
of prefix sums (`Tree`, `Banded`): what is released is ``y = C X + Z``, where the rows of X are the
rounds' values, C is public and Z has independent Gaussian entries; B y estimates the prefix sums
A X with noise B Z. Here C is a matrix of integers over ``2^bits``, so that C X lies on a lattice
wherever X does, and y is drawn exactly; B y is computed from y in floats, which is post-processing.
(`Buffered` computes C X rounded to the lattice, and the loss counts what rounding adds.)

*Sensitivity.* Rounds go through b batches k times in one order: a unit takes part in rounds
``j, j + b, ..., j + (k-1) b`` of a j that is its own. It moves the rounds' values by vectors u_i of
norm at most 1, and C X by a matrix of squared norm ``sum_ij X_ij <u_i, u_j> <= sum_ij X_ij``,
``X = C'C``, since no entry of C is negative; equal vectors attain it. So the sensitivity is the
largest of ``|C 1_j|``, 1_j the indicator of the rounds of batch j.

*Rounding.* Where a run computes C X but for an error of each entry that is in an interval of length
e steps, whatever X is, the rows of two data sets with the same earlier rows are moved by C of the
move of X, and by at most e in each of T d entries: by at most ``Delta s + e sqrt(T d)`` steps in
all, for Delta in steps. (Own proof; e is 0 for `Tree` and `Banded`.)

*Amplification.* Each unit's batch is drawn uniformly and independently of all else, and is never
released: where a unit is present or absent that is allocation to balls-and-bins batches, whose loss
`accountants.allocated_matrix_factorization` bounds for a Toeplitz C (`Banded`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, Protocol

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import (
    Composite,
    GaussianBound,
    PrivacyLoss,
    Pure,
    Toeplitz,
    allocated_matrix_factorization,
    worlds,
)
from accountants.errors import AccountingError
from accountants.numerics import down, up
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import Constant, lineage, unaliased
from adaptive_dp.graph.mechanism import AdaptiveSums, Free, Mechanism, noise_parameter
from adaptive_dp.graph.values import as_int, number
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.noise.exact import LARGEST_SCALE
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import SecureStream, Stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Noise = Callable[[], Integers]
"""Draws new noise for one row of C X, in its steps."""

MAX_BANDS = 1024
"""A banded C has at most so many bands: a round costs as many additions of vectors."""

LARGEST_ROW = 2**60
"""Entries of C X stay below it in size, and noise below 2^62: their sums fit into 64 bits."""

# -----------------------------------------------------------------------------
# Factorizations of prefix sums, and the runs that release them round by round.


class Run(Protocol):
    """One run over the rounds: private sums, and the estimates that are released."""

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next round's value, both in the values' steps."""
        ...


class Factorization(Protocol):
    """A factorization ``A = B C`` of the prefix sums over ``batches * epochs`` rounds."""

    bits: ClassVar[int]

    @property
    def largest_row_sum(self) -> int:
        """What a run keeps of values is at most so many times the largest of them, in its steps."""
        ...

    @property
    def rounding(self) -> float:
        """How far apart two errors of an entry of C X may be, in steps (see the module)."""
        ...

    def sensitivity(self) -> float:
        """Return the largest ``|C 1_j|``, rounded up (see the module)."""
        ...

    def start(self, width: int) -> Run:
        """Return a run over vectors of shape (width,)."""
        ...


@frozen
class Tree:
    """The binary tree mechanism: C has a row for each complete node, the sum of its rounds.

    B y takes, for a node, the estimate of least variance from its own row and its children's
    estimates: ``v_h = 1 / (1 + 1 / (2 v_{h-1}))``, ``v_0 = 1`` (Honaker 2015, from below). A prefix
    sum is a sum of at most ``floor(log2 T) + 1`` nodes, its variance one of their v.

    Parameters
    ----------
    batches, epochs
        b and k; there are b k rounds.
    bands
        None: a tree has none.

    References
    ----------
    Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011; Honaker 2015; Kairouz et al.
    2021 (DP-FTRL).
    """

    bits: ClassVar[int] = 0

    batches: int
    epochs: int

    bands: int | None = None

    @property
    def largest_row_sum(self) -> int:
        """The number of rounds: the root adds up all of them, each with coefficient 1."""
        return self.batches * self.epochs

    @property
    def rounding(self) -> float:
        """None: C X is exact."""
        return 0.0

    def sensitivity(self) -> float:
        """Return the root of the largest ``sum_nodes (rounds of the batch below the node)^2``."""
        return up(math.sqrt(_tree_squared_sensitivity(self.batches, self.epochs)), 2)

    def start(self, width: int) -> TreeRun:
        """Return a run over vectors of shape (width,)."""
        return TreeRun(width)


@lru_cache(maxsize=64)
def _tree_squared_sensitivity(batches: int, epochs: int) -> int:
    """Return the largest ``|C 1_j|^2`` of a batch j, exactly, in integers."""
    rounds = np.arange(batches)[:, None] + batches * np.arange(epochs)
    squares = np.zeros(batches, dtype=np.int64)
    for height in range((batches * epochs).bit_length()):
        nodes = rounds >> height
        # only nodes all of whose leaves are rounds have a row in C
        is_complete = ((nodes + 1) << height) <= batches * epochs
        # a batch's rounds are in order, so that equal nodes stand side by side
        is_first = np.ones_like(is_complete)
        is_first[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
        starts = np.flatnonzero(is_first)
        counts = np.diff(np.append(starts, nodes.size))  # rounds of the batch below each node
        has_row = is_complete.reshape(-1)[starts]
        np.add.at(squares, starts[has_row] // epochs, counts[has_row] ** 2)
    return int(squares.max())


class TreeRun:
    """A run of `Tree`: the complete nodes that no larger one covers.

    Of each it keeps the exact sum, which is private, and the released estimate.
    """

    def __init__(self, width: int) -> None:
        self._nodes: list[tuple[Integers, Floats] | None] = []
        self._width = width

    def __repr__(self) -> str:
        return "<private sums of a tree>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value, shape (width,)."""
        exact = value
        estimate = (exact + noise()).astype(np.float64)
        variance = 1.0
        # as in binary counting, the new leaf completes a node for each carry
        for height, node in enumerate(self._nodes):
            if node is None:
                break
            self._nodes[height] = None
            exact = node[0] + exact
            from_children = node[1] + estimate
            # v_h = 2 v / (2 v + 1): the node's own row has variance 1, its children's sum 2 v, and
            # the mean of least variance weighs them by the other's variance (Honaker 2015)
            variance = 2 * variance / (2 * variance + 1)
            own = (exact + noise()).astype(np.float64)
            estimate = variance * own + (1 - variance) * from_children
        else:
            height = len(self._nodes)
            self._nodes.append(None)
        self._nodes[height] = (exact, estimate)
        # the prefix is the disjoint union of these nodes
        total = np.zeros(self._width)
        for node in self._nodes:
            if node is not None:
                total += node[1]
        return total


@frozen
class Banded:
    """The banded square root of the matrix of prefix sums, so that C and B are nearly alike.

    The square root is Toeplitz, ``c_j = binom(2j, j) / 4^j``; C has at most as many bands as there
    are batches, so that a unit's columns of C are orthogonal, and its sensitivity ``sqrt(k)`` times
    that of one epoch. With one epoch it is the full square root, whose largest error is next to
    the least of all factorizations (up to `MAX_BANDS` rounds).

    Column j of C 1 is column 0 moved down by j rows, of which fewer are left: batch 0 has the
    largest ``|C 1_j|``. Rounded to 2^-12, coefficients still do not grow, so that all roots of
    ``sum c_j x^j`` have modulus at least 1 (Enestrom and Kakeya): the recursion that inverts C is
    stable.

    Parameters
    ----------
    batches, epochs
        b and k; there are b k rounds.
    bands
        The number of bands, at most b; None for b. With 1 the noise is independent.

    References
    ----------
    Fichtenberger, Henzinger and Upadhyay 2023 (the square root); Choquette-Choo et al. 2023
    (banded); Kalinin and Lampert 2024 (banded square root).
    """

    bits: ClassVar[int] = 12

    batches: int
    epochs: int
    bands: int | None = None

    @property
    def largest_row_sum(self) -> int:
        """The sum of the coefficients, in steps of 2^-bits."""
        return int(self.coefficients().sum())

    @property
    def rounding(self) -> float:
        """None: C X is exact."""
        return 0.0

    def coefficients(self) -> Integers:
        """Return c_0, c_1, ... in steps of 2^-bits."""
        bands = min(self.bands or self.batches, self.batches, MAX_BANDS)
        ratios = 1 - 0.5 / np.arange(1, bands)  # c_j / c_{j-1} = (2j - 1) / (2j)
        exact = np.concatenate([[1.0], np.cumprod(ratios)])
        return np.rint(exact * 2.0**self.bits).astype(np.int64)

    def sensitivity(self) -> float:
        """Return ``|C 1_0|``, the norm of the sum of the columns of batch 0."""
        return up(math.sqrt(_banded_squared_sensitivity(self)) / 2.0**self.bits, 2)

    def start(self, width: int) -> BandedRun:
        """Return a run over vectors of shape (width,)."""
        return BandedRun(self.coefficients(), width, self.bits)


@lru_cache(maxsize=64)
def _banded_squared_sensitivity(factorization: Banded) -> int:
    """Return ``|C 1_0|^2`` in steps of 4^-bits, exactly."""
    # a unit's columns do not overlap, since there are at most as many bands as batches: so they
    # are orthogonal, and their squared norms add up; a column cut short at the end has less
    c = [int(v) for v in factorization.coefficients()]
    return factorization.epochs * sum(v * v for v in c)


class BandedRun:
    """A run of `Banded`: the values of the last rounds, and estimates of them.

    The exact values are private; the estimates solve ``C x = y`` for the released rows y.
    """

    def __init__(self, coefficients: Integers, width: int, bits: int) -> None:
        self._reversed = coefficients[::-1].copy()
        self._scale = 2.0**bits
        bands = len(coefficients)
        # twice as many rows as bands, so that they are moved back only once in so many rounds
        self._exact = np.zeros((2 * bands, width), dtype=np.int64)
        self._estimates = np.zeros((2 * bands, width))
        self._next = bands
        self._bands = bands
        self._total = np.zeros(width)

    def __repr__(self) -> str:
        return "<private sums of a band>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value, shape (width,)."""
        if self._next == 2 * self._bands:
            for rows in (self._exact, self._estimates):
                rows[: self._bands] = rows[self._bands :]
            self._next = self._bands
        first = self._next - self._bands + 1
        self._exact[self._next] = value
        row = self._reversed @ self._exact[first : self._next + 1]  # of C X, in integers
        released = (row + noise()).astype(np.float64) / self._scale
        # from here on only released rows are read; x_t = y_t - c_1 x_{t-1} - ..., for c_0 = 1
        earlier = (self._reversed[:-1] / self._scale) @ self._estimates[first : self._next]
        self._estimates[self._next] = released - earlier
        self._total += self._estimates[self._next]
        self._next += 1
        return self._total.copy()


BUFFERS = 8
"""Vectors that `Buffered` keeps of the rounds so far."""

BUFFER_BITS = 20
"""Decay rates and weights are multiples of 2^-20."""

GUARD_BITS = 4
"""Buffers have four bits more than sums."""

SLOWEST = 2.0**-15
"""Of a buffer, which forgets at least half this share in a round, the least rate that is tried."""


@frozen
class Buffered:
    """A buffered linear Toeplitz matrix: correlated noise by eight vectors, however many rounds.

    ``c_0 = 1`` and ``c_j = sum_i w_i u_i^(j-1)``: row t of C X is ``x_t + sum_i w_i S_i``, with
    buffers ``S_i <- u_i S_i + x_t``, and C is inverted by buffers of the same kind. A banded C
    keeps the values of as many rounds as it has bands.

    *Rates.* The square root of the matrix of prefix sums has ``c_j = (1 / pi) int e^(-sj) e^(-s/2)
    / sqrt(1 - e^-s) ds``; the sum by the trapezoidal rule at s from ``low`` to 4, evenly in log s,
    has positive w_i, with ``(sum_i w_i)^2 <= sum_i w_i u_i`` in all that is tried for up to 2^16
    rounds (enumerated). So coefficients are log-convex, and those of the inverse are at most 0 but
    for the first (Kaluza 1928). Of 24 values of ``low`` that with the least root mean square error
    times sensitivity is taken. No claim of privacy rests on this.

    *Rounding.* Rates and weights are integers a_i and b_i over 2^20. Buffers are integers ``U <-
    floor(u U) + 2^4 x``, in which errors are less than ``1 / (1 - u_i)`` apart for any two
    sequences; a row is ``x + floor(sum_i w_i U_i / 2^4)``, in which they are less than ``e = sum_i
    w_i / (1 - u_i) / 2^4 + 1`` apart. (Own proof.)

    *Sensitivity.* C is Toeplitz and not negative: column j of C 1 is column 0 moved down by j rows,
    of which fewer are left, so that batch 0 has the largest ``|C 1_j|``.

    Parameters
    ----------
    batches, epochs
        b and k; there are b k rounds.
    bands
        None: it has none.

    References
    ----------
    Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024, "Efficient and near-optimal noise
    generation for streaming differential privacy" (who optimize rates numerically); McMahan, Xu and
    Zhang 2024 (several epochs).

    Examples
    --------
    >>> one = Buffered(500, 1)
    >>> round(one.sensitivity(), 2), round(Banded(500, 1).sensitivity(), 2)
    (1.63, 1.74)
    """

    bits: ClassVar[int] = 0

    batches: int
    epochs: int
    bands: int | None = None

    @property
    def buffers(self) -> tuple[Integers, Integers]:
        """The decay rates and the weights, in steps of 2^-20, shape (8,)."""
        return _buffers(self.batches, self.epochs)

    @property
    def largest_row_sum(self) -> int:
        """What the slowest buffer holds of equal values, twice."""
        rates, _ = self.buffers
        return math.ceil((1 << (GUARD_BITS + 1)) / (1 - int(rates.max()) / 2.0**BUFFER_BITS))

    @property
    def rounding(self) -> float:
        """The e of the class docstring, rounded up."""
        rates, weights = (each / 2.0**BUFFER_BITS for each in self.buffers)
        return up(float((weights / (1 - rates)).sum() / 2**GUARD_BITS + 1), 64)

    def coefficients(self) -> Floats:
        """Return c_0, c_1, ... of all rounds, to within a share of 2^-48."""
        return _coefficients(*self.buffers, self.batches * self.epochs)

    def sensitivity(self) -> float:
        """Return ``|C 1_0|``, rounded up."""
        return _largest_norm(self.coefficients(), self.batches) * (1 + 2.0**-34)

    def start(self, width: int) -> BufferedRun:
        """Return a run over vectors of shape (width,)."""
        return BufferedRun(*self.buffers, width)


def _coefficients(rates: Integers, weights: Integers, rounds: int) -> Floats:
    u, w = rates[:, None] / 2.0**BUFFER_BITS, weights[:, None] / 2.0**BUFFER_BITS
    return np.concatenate([[1.0], (w * u ** np.arange(rounds - 1)).sum(axis=0)])


def _largest_norm(coefficients: Floats, batches: int) -> float:
    """Return ``|C 1_0|`` of a Toeplitz C, by its coefficients of all rounds."""
    columns = coefficients.reshape(-1, batches).cumsum(axis=0)
    return float(np.sqrt((columns**2).sum()))


@lru_cache(maxsize=64)
def _buffers(batches: int, epochs: int) -> tuple[Integers, Integers]:
    """Return the rates and weights with the least error, of those that are tried."""
    rounds, unit = batches * epochs, 2.0**BUFFER_BITS
    pairs = []
    for low in np.geomspace(max(SLOWEST, 0.1 / rounds), 1.0, 24):
        s = np.geomspace(low, 4.0, BUFFERS)
        width = math.log(4.0 / low) / (BUFFERS - 1)
        density = s * np.exp(-s / 2) / np.sqrt(-np.expm1(-s)) / math.pi
        u = np.minimum(np.exp(-s), 1 - SLOWEST / 2)
        pairs.append(np.rint(unit * np.stack([u, width * density * u])).astype(np.int64))
    u, w = np.stack(pairs, axis=1) / unit  # of all that are tried, side by side
    held, prefix = np.zeros_like(u), np.zeros(len(u))
    squares, area = np.zeros(len(u)), np.zeros(len(u))
    for t in range(rounds):  # coefficients of A C^-1, by which noise is multiplied
        inverse = float(t == 0) - (w * held).sum(axis=1)
        held = u * held + inverse[:, None]
        prefix += inverse
        squares += prefix**2
        area += squares
    norms = [_largest_norm(_coefficients(pair[0], pair[1], rounds), batches) for pair in pairs]
    rates, weights = pairs[int(np.argmin(np.sqrt(area) * norms))]
    for kept in (rates, weights):
        kept.setflags(write=False)
    return rates, weights


class BufferedRun:
    """A run of `Buffered`: buffers of the values, which are private, and of their estimates."""

    def __init__(self, rates: Integers, weights: Integers, width: int) -> None:
        self._rates, self._weights = rates[:, None], weights[:, None]
        self._exact = np.zeros((len(rates), width), dtype=np.int64)
        self._estimates = np.zeros((len(rates), width))
        self._total = np.zeros(width)

    def __repr__(self) -> str:
        return "<private sums of buffers>"

    def push(self, value: Integers, noise: Noise) -> Floats:
        """Return the noisy prefix sum with the next value, shape (width,)."""
        # floors of products, with a part of U that is divided out first: no product overflows
        bits = BUFFER_BITS + GUARD_BITS
        high, low = self._exact >> bits, self._exact & ((1 << bits) - 1)
        row = value + (high * self._weights).sum(axis=0)
        row += (low * self._weights).sum(axis=0) >> bits
        released = (row + noise()).astype(np.float64)
        high, low = self._exact >> BUFFER_BITS, self._exact & ((1 << BUFFER_BITS) - 1)
        self._exact = high * self._rates + ((low * self._rates) >> BUFFER_BITS)
        self._exact += value << GUARD_BITS
        # from here on only released rows are read
        scale = 2.0**BUFFER_BITS
        estimate = released - (self._weights / scale * self._estimates).sum(axis=0)
        self._estimates *= self._rates / scale
        self._estimates += estimate
        self._total += estimate
        return self._total.copy()


# -----------------------------------------------------------------------------
# The mechanism.


FACTORIZATIONS: dict[str, type[Tree] | type[Banded] | type[Buffered]] = {
    "tree": Tree,
    "banded": Banded,
    "buffered": Buffered,
}

MAX_ROUNDS = 2**16
"""The largest number of rounds."""


_check_rounds = checked(
    lambda v: 1 <= (as_int(v) or 0) <= MAX_ROUNDS, f"an integer between 1 and {MAX_ROUNDS}"
)


class Rounds:
    """The rounds of one training: its batches, its private sums, and where its noise comes from.

    Parameters
    ----------
    mechanism
        Whose rounds they are.
    stream
        All noise is drawn from it, and the batches before any gradient.

    Attributes
    ----------
    number
        How many rounds were begun: a round is begun when it is about to draw its noise.
    is_drawing
        Whether something is drawn just now; where that was interrupted, for ever.
    """

    def __init__(self, mechanism: FollowTheLeader, stream: Stream) -> None:
        self._mechanism, self._stream = mechanism, stream
        self._batches: Sequence[AdaptiveSums] = ()
        self._run: Run | None = None
        self._before: Floats | float = 0.0
        self.number, self.is_drawing = 0, False

    def __repr__(self) -> str:
        return f"<private rounds of a training, {self.number} are over>"

    def __reduce__(self) -> str:
        raise TypeError("the rounds of a training cannot be pickled: a copy would repeat its noise")

    def prefix(self, value: AdaptiveSums, parameters: Floats) -> Floats:
        """Return the noisy prefix sum with the next round's sum at parameters, shape (d,).

        Parameters
        ----------
        value
            Of all units; what it computes of them may be another function in each round.
        parameters
            At which it is computed; a function of what was released before.
        """
        own, factorization = self._mechanism, self._mechanism.matrices
        (width,) = value.shape
        scale = own.sigma / (value.step * 2.0**-factorization.bits)
        limit = LARGEST_ROW // factorization.largest_row_sum
        if self._run is None:
            # each unit's batch is drawn once, before any gradient: it stays there in all epochs
            self.is_drawing = True
            self._batches = value.split(own.batches, self._stream)
            self._run, self.is_drawing = factorization.start(width), False
        batch = value.among(self._batches[self.number % own.batches])
        # clamping, so that rows fit into 64 bits, moves no two sums apart
        sums = np.clip(batch.at(parameters), -limit, limit)
        # in this order: a round that was counted and not drawn would put batches in other rows
        self.is_drawing, self.number = True, self.number + 1
        noise = partial(rounded_gaussian, self._stream, scale, width)
        prefix = value.step * self._run.push(sums, noise)
        self.is_drawing = False
        return prefix

    def added(self, value: AdaptiveSums, parameters: Floats) -> Floats:
        """Return what the next round adds to the noisy prefix sums, shape (d,); see `prefix`."""
        prefix = self.prefix(value, parameters)
        added, self._before = prefix - self._before, prefix
        return added


class FollowTheLeader(Mechanism):
    """Train on batches in order by DP-FTRL: ``theta_t = -step (g_1 + ... + g_t + noise_t)``.

    g_t is the sum of clipped gradients of batch t at theta_{t-1}; the step is a released value, or
    a constant (``given=[dp.public(0.1)]``): the loss holds whatever it is. (Of networks the query
    says how theta follows from the noisy prefix sums: see `AdaptiveSums.course`.) The noise of the
    T prefix sums is correlated: it is B Z (see the module), far smaller than a sum of T independent
    noises. Released, of shape (2, d): the mean of theta_1, ..., theta_T, and theta_T.

    Privacy: the Gaussian mechanism's loss with ``mu = Delta s / sigma``, Delta the most that a unit
    moves its batch's sum in l2, s the factorization's sensitivity. The proof has two steps.

    *Batches.* Each unit goes into one of ``batches`` by its own uniform draw and stays there in
    each epoch. Let D and D' differ in the unit u. The batches of the others, and u's own, have the
    same law under both. Given all of these, D and D' differ in the rounds of one batch alone. What
    is proven for each such case holds for their mixture: with the batches released as well it
    would be the same, and not releasing them is post-processing.

    *Loss.* Let Delta be the most that u moves its batch's sum at equal parameters, s the
    factorization's sensitivity. Row r of ``y = C X + Z`` is drawn once the rounds are over that it
    adds up, and parameters are functions of earlier rows. Given these, D and D' have the same
    parameters, and the mean of row r moves by a vector m_r, a function of earlier rows with
    ``sum_r |m_r|^2 <= (Delta s)^2`` whatever they are. Let one more row, which tells nothing else,
    be moved by what is missing, so that the sum is exactly ``(Delta s)^2``. The log-likelihood
    ratio is then ``(Delta s)^2 / (2 sigma^2) + W``, ``W = sum_r <m_r, Z_r> / sigma^2``. As each m_r
    is known before Z_r is drawn, ``E exp(i l W + l^2 sum_r |m_r|^2 / (2 sigma^2)) = 1`` for all l
    (one row after the other), and the sum being constant, W is exactly normal with variance
    ``(Delta s / sigma)^2``; under D' likewise. That is the Gaussian mechanism's loss with ``mu =
    Delta s / sigma``, and the rows without the added one are post-processing (own proof; for
    lower triangular factorizations Denisov et al. 2022, Thm 2.1).

    Parameters
    ----------
    sigma
        The standard deviation of each entry of Z, in the units of a gradient.
    batches, epochs
        b and k, with ``T = b k``.
    factorization
        ``"tree"``, ``"banded"`` or ``"buffered"``.
    bands
        Of ``"banded"``: how many, at most as many as batches; None for as many.
    amplified
        Whether the loss counts that nobody knows a unit's batch: of ``"banded"``, and of a query
        that draws batches exactly uniformly and refuses units that are exchanged.

    Notes
    -----
    *Amplified*, the sums of a unit's rounds move by ``v_j`` of norm at most Delta, a function of
    the other units and of theta: given the others' batches, row r of y has Gaussian noise around
    what the others add, and ``sum_j C_rj v_j`` more over the rounds j of the unit's batch, which is
    one of b with probability 1/b each. That is the setting of the section *Bins* of
    `accountants.losses.tree`, with Delta / sigma for the norm of a row. Few bands amplify more, and
    correlate less.

    Noise: `adaptive_dp.noise.gaussian.rounded_gaussian`, one vector for each row of C X. Sums are
    integers of steps, C is integers of 2^-bits, and the noise is continuous noise rounded to the
    steps of C X: so the released y is the continuous mechanism's y rounded, exactly (see
    `adaptive_dp.noise.lattice`), and all that is computed in floats is computed from it. C X of
    ``"buffered"`` is rounded itself, and `cost` adds what that may move.

    References
    ----------
    Kairouz, McMahan, Song, Thakkar, Thakurta and Xu 2021 (DP-FTRL, tree); Denisov, McMahan, Rush,
    Smith and Thakurta 2022 (factorizations, adaptive streams).

    See Also
    --------
    Tree, Banded, Buffered : the factorizations.

    Examples
    --------
    >>> mechanism = FollowTheLeader(sigma=2.0, batches=512, factorization="tree")
    >>> round(mechanism.loss(distance=1.0).rho(), 9)  # ten nodes
    1.25
    """

    norm: ClassVar[float] = 2
    input_type: ClassVar[type] = AdaptiveSums
    no_interval: ClassVar[str] = "each batch is read where the noise of the batches before has led"
    released_inputs: ClassVar[int] = 1
    theorem: ClassVar[str] = "Denisov et al. 2022, Thm 2.1; Kairouz et al. 2021"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step, correlated exactly"

    sigma: float = noise_parameter("sigma")
    batches: int = attrs.field(converter=number, validator=_check_rounds)
    epochs: int = attrs.field(default=1, converter=number, validator=_check_rounds)
    factorization: str = attrs.field(
        default="banded",
        validator=checked(
            lambda v: isinstance(v, str) and v in FACTORIZATIONS, f"one of {list(FACTORIZATIONS)}"
        ),
    )

    bands: int | None = attrs.field(
        default=None,
        converter=number,
        validator=checked(
            lambda v: v is None or 1 <= (as_int(v) or 0) <= MAX_BANDS,
            f"an integer between 1 and {MAX_BANDS}, or None",
        ),
    )
    amplified: bool = attrs.field(
        default=False, validator=checked(lambda v: isinstance(v, bool), "a bool")
    )

    def __attrs_post_init__(self) -> None:
        if self.factorization != "banded" and (self.bands is not None or self.amplified):
            raise DeclarationError(
                f"FollowTheLeader: {self.factorization!r} has no bands, and its loss is not "
                "amplified; take factorization='banded'"
            )
        if not (self.batches * self.epochs <= MAX_ROUNDS):
            raise DeclarationError(
                f"FollowTheLeader runs at most {MAX_ROUNDS} rounds, got {self.batches} batches in "
                f"{self.epochs} epochs"
            )

    def release(self, value: AdaptiveSums, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the mean and the last of the parameters, shape (2, d)."""
        rounds = Rounds(self, stream)
        course = value.course(float(given[0]))
        theta, mean = course.parameters, np.zeros(value.shape)
        for t in range(self.batches * self.epochs):
            # theta is a function of released rows alone, so the next gradient may depend on it
            course.follow(rounds.prefix(value, theta))
            theta = course.parameters
            mean += (theta - mean) / (t + 1)
        return np.stack([mean, theta])

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of two vectors of parameters, (2, d)."""
        return (2, *value)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss where a unit moves its batch's sum by at most ``distance`` in l2."""
        plain = GaussianBound(up(distance * self.matrices.sensitivity() / self.sigma, 4))
        if not (self.amplified and self.batches > 1 and 0 < distance < math.inf):
            return plain
        matrices = self.matrices
        assert isinstance(matrices, Banded)
        return _allocated(matrices, down(self.sigma / distance, 4)) or plain

    def cost(self, distance: float, moved: int, step: float) -> PrivacyLoss:
        """Return the loss where C X of vectors of ``moved`` numbers is rounded to steps."""
        matrices = self.matrices
        if not matrices.rounding:
            return self.loss(distance)
        entries = math.sqrt(self.batches * self.epochs * moved)
        # Delta s + e sqrt(T d) of the head of this file, over s
        rounded = matrices.rounding * entries * step / matrices.sensitivity()
        return self.loss(up(distance + rounded, 16))

    def premises(self, release: Any) -> None:
        """Refuse noise that is too large to be drawn in the sums' steps."""
        query = release.inputs[0]
        if self.amplified and not getattr(query.operation, "presence", False):
            raise DeclarationError(
                "FollowTheLeader: the loss is amplified for batches that are drawn exactly "
                "uniformly, of units that are not exchanged: leave out amplified=True"
            )
        step = query.operation.step(query.inputs[0].domain) * 2.0**-self.matrices.bits
        if not isinstance(self.sigma, Free) and not (
            step > 0 and self.sigma <= LARGEST_SCALE * step
        ):
            raise DeclarationError(
                f"FollowTheLeader's sigma must be at most {LARGEST_SCALE * step:.3g} for this "
                f"clip norm, got {self.sigma!r}: nothing would be learned; raise the clip norm "
                "or epsilon"
            )

    @property
    def matrices(self) -> Factorization:
        """The factorization of the prefix sums over these rounds."""
        return FACTORIZATIONS[self.factorization](self.batches, self.epochs, self.bands)


# -----------------------------------------------------------------------------
# The same in single rounds, each a release of its own, between which others may come.


class FollowTheLeaderRun(FollowTheLeader):
    """Begin a training by DP-FTRL whose rounds are released one by one: all of them are paid here.

    `FollowTheLeaderRound` releases a round, at no further cost. Each may be chosen by the rounds
    before it, and by all else that was released. Released here is 1, whatever the data.
    `adaptive_dp.torch.Loop` makes these releases.

    Privacy: that of `FollowTheLeader`, although other releases come between the rounds, and however
    many rounds are taken.

    Proof. What comes between chooses the parameters, and with them the moves v_j of the rounds'
    sums, and it depends on the unit, but not on its batch. `FollowTheLeader` bounds the loss for
    any strategy: for all v_j that are functions of earlier rows, and for those who stop early, who
    have a part of all rows.

    *Renyi divergence.* Let P and Q be the laws of the rows for a strategy, and F(y) the largest
    ``E_Q[(P/Q)^a | y]`` over all strategies that go on from the rows y: ``F() <= e^((a-1) eps)``,
    eps the bound at order a; ``F(y) >= (P/Q)^a(y)``, as a strategy may stop; and over a next row F
    is a supermartingale under Q, whatever is asked. So is F times the factors of the releases in
    between, each over its own bound: given what was released before, a row's law does not depend on
    their noise, nor theirs on its. Its value at the end is at least ``(P/Q)^a`` of all that was
    released, over the bounds of the others: the bounds add up, and a filter or an odometer that has
    counted eps where the training began counts right at any time.

    *Without amplification* the rows are Gaussian releases of mu_r, functions of what was released
    before, whose squares add up to at most ``(Delta s / sigma)^2`` on every path: what is counted
    here is the sum of a fully adaptive composition of Gaussian releases, and the same holds with
    other releases among them.

    *Any trade-off function* that bounds each strategy's bounds the composition: an interactive
    mechanism of finitely many answers (rows are of 64 bits) is then post-processing of one pair of
    that trade-off function (Vadhan and Zhang 2023). So what holds of that pair but for a delta
    (`PrivacyLoss.delta_floor`), of which the first argument says nothing, adds up as well.

    Parameters
    ----------
    sigma, batches, epochs, factorization, bands, amplified
        As of `FollowTheLeader`.
    run
        Tells apart trainings that are alike.

    Notes
    -----
    The batches and the noise of the rounds before are in this process alone: a training that its
    process did not finish cannot be continued elsewhere, and has cost what all its rounds cost.

    References
    ----------
    Denisov et al. 2022; Vadhan and Wang 2021, Lyu 2022, Vadhan and Zhang 2023 (concurrent
    composition of interactive mechanisms); Haney et al. 2023 (with filters and odometers).

    See Also
    --------
    FollowTheLeader : all rounds at once.
    """

    begins: ClassVar[bool] = True
    ordinal: ClassVar[int | None] = 0
    released_inputs: ClassVar[int] = 0
    selectable: ClassVar[bool] = False
    theorem: ClassVar[str] = "Denisov et al. 2022, Thm 2.1; in single rounds: Vadhan & Zhang 2023"

    run: str = attrs.field(default="", kw_only=True)

    def begin(self, stream: Stream | None = None) -> Rounds:
        """Return the rounds, of which none is begun; nothing is drawn yet."""
        return Rounds(self, SecureStream() if stream is None else stream)

    def release(self, value: AdaptiveSums, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return 1: that the training has begun."""
        return np.array(1.0)

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of a number."""
        return ()

    def redrawn(self) -> bool:
        """Return False: the noise of rounds cannot be estimated by beginning once more."""
        return False

    def premises(self, release: Any) -> None:
        """Refuse, beside what a whole training refuses, rows that are drawn."""
        super().premises(release)
        if any(step.operation.random for step in lineage(release.inputs[0])):
            raise DeclarationError(
                "a training in single rounds reads the data, not a sample or random parts of them"
            )


class FollowTheLeaderRound(Mechanism):
    """Release a round of a training that `FollowTheLeaderRun` has begun, at no cost.

    Given are the beginning and the parameters, as `AdaptiveSums.at` reads them. Released is what
    the round adds to the noisy prefix sums, shape (d,): the round's sum with correlated noise.

    Privacy: what the training's beginning has paid covers all rounds (see there), each drawn once,
    in order, of the same units and with sums that move no farther. The gradients may be those of
    another function in each round. A round that is drawn and never released takes nothing from
    that: the others are a part of all.

    Parameters
    ----------
    round
        From 1 on.

    References
    ----------
    As of `FollowTheLeaderRun`.
    """

    norm: ClassVar[float] = 2
    input_type: ClassVar[type] = AdaptiveSums
    released_inputs: ClassVar[int] = 2
    continues: ClassVar[bool] = True
    selectable: ClassVar[bool] = False
    no_interval: ClassVar[str] = "its noise is correlated with that of the rounds before"
    theorem: ClassVar[str] = "paid for where its training begins"
    sampler: ClassVar[str] = FollowTheLeader.sampler

    round: int = attrs.field(converter=number, validator=_check_rounds)

    @property
    def ordinal(self) -> int:  # type: ignore[override]
        """The round."""
        return self.round

    def check_run(self, run: Rounds) -> None:
        """Refuse any round but the next one."""
        if run.is_drawing:
            raise RunError(
                f"round {run.number} was interrupted while its noise was drawn, and the training "
                "cannot go on; begin another one, which is paid for. Nothing was released."
            )
        if run.number + 1 != self.round:
            raise RunError(
                f"the next round of this training is {run.number + 1}, and round {self.round} was "
                "asked for, with other parameters than it was released with if it is one of "
                "before; begin another training, which is paid for. Nothing was released."
            )

    def release(
        self, value: AdaptiveSums, stream: Stream, run: Rounds, parameters: Any
    ) -> NDArray[Any]:
        """Return what the round adds to the noisy prefix sums."""
        return run.added(value, np.asarray(parameters, dtype=np.float64))

    def redrawn(self) -> bool:
        """Return False: the noise cannot be estimated by releasing a round once more."""
        return False

    def loss(self, distance: float) -> PrivacyLoss:
        """Return no loss: `premises` has compared what moves with what was paid for."""
        return Pure(0.0)

    def premises(self, release: Any) -> None:
        """Refuse a training that has not paid for this round."""
        query, begun, at = release.inputs
        _check_parameters(at, query.operation.dimension(query.inputs[0].domain))
        begun = unaliased(begun)
        mechanism = getattr(begun.operation, "mechanism", None)
        if not isinstance(mechanism, FollowTheLeaderRun):
            raise DeclarationError(
                "FollowTheLeaderRound continues a training in single rounds, and its first given "
                "value is none; take rounds by adaptive_dp.torch.Loop"
            )
        rounds = mechanism.batches * mechanism.epochs
        if self.round > rounds:
            raise DeclarationError(
                f"the training has {rounds} rounds, and round {self.round} was asked for"
            )
        first = begun.inputs[0]
        own, paid = query.inputs[0], first.inputs[0]
        # The sum moves as far as it was paid for: the same query of the same units, and of a
        # network gradients of as many parameters, which are shortened to the same norm
        varies = getattr(query.operation, "varies", False)
        alike = query.operation == first.operation and (
            type(own.operation) is type(paid.operation)
            and own.domain == paid.domain
            and len(own.inputs) == len(paid.inputs)
            and all(map(_are_same, own.inputs, paid.inputs))
            if varies
            else _are_same(own, paid)
        )
        if not alike:
            raise DeclarationError(
                "a training in single rounds is paid for where it begins, and all of its rounds "
                "are of the same rows, with the same threshold and as many parameters; begin "
                "another training for others"
            )


def _check_parameters(at: Any, size: int) -> None:
    """Refuse parameters of another shape that the plan holds: the round would fail, being paid."""
    if not isinstance(at.operation, Constant):
        return
    try:
        shape = np.asarray(at.operation.value, dtype=np.float64).shape
    except (TypeError, ValueError):
        shape = None
    if shape != (size,):
        found = "something else" if shape is None else f"shape {shape}"
        raise DeclarationError(
            f"a round of this training is computed at {size} numbers, in a list or an array of "
            f"shape ({size},), got {found}"
        )


def _are_same(one: Any, other: Any) -> bool:
    """Return whether two handles are one value: equal steps from the same data, none random."""
    one, other = unaliased(one), unaliased(other)
    return one is other or (
        not one.operation.random
        and type(one.operation) is type(other.operation)
        and one.operation == other.operation
        and len(one.inputs) == len(other.inputs)
        and all(map(_are_same, one.inputs, other.inputs))
    )


@lru_cache(maxsize=256)
def _allocated(factorization: Banded, noise: float) -> PrivacyLoss | None:
    """Return the loss on balls-and-bins batches, or None where that has no bound."""
    rounds = factorization.batches * factorization.epochs
    # integers over a power of two: exact
    coefficients = factorization.coefficients() / 2.0**factorization.bits
    try:
        term = allocated_matrix_factorization(
            Toeplitz(coefficients, rounds), noise, factorization.batches
        )
    except AccountingError:  # of next to no noise, or of very much
        return None
    (only,) = worlds(term)
    return Composite(only.spends)
