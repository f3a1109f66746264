"""Partition selection: which keys are released where no list of keys is declared, with what counts.

The private value is a map from keys to numbers of rows, or of units (`UnitsByKey`). That a key
occurs is private: one unit may be the only one that has it.

**The law.** Let D and D' be neighbours. Each mechanism here treats a key by itself, with noise of
its own, and never shows a key that no unit has. So the laws of what is released are products over
keys, in which those keys cancel whose units are the same in D and D'. Each of the others is of one
of two kinds:

* *in both data sets*: its count moves. The counts of all such keys together move by no more than
  the query's sensitivity; of a unit that is exchanged, that is of its rows before and after;
* *in one of them alone*: there the one unit that has changed is its only unit.

Let A be the keys of D alone, and B those of D' alone. That one of A shows has the probability a
under D and 0 under D'; for B it is b under D' and 0 under D. Where nothing of them shows, the
masses are 1 - a and 1 - b. So the divergence of this factor at epsilon >= 0 is ``a + max(0, (1 - a)
- e^epsilon (1 - b))``, which is at most ``max(a, b)`` in either order: the pair `Approximate(0,
max(a, b))` dominates it (Kairouz, Oh and Viswanath 2015, Thm 2.1; at negative epsilon by the
symmetry of both). So of a unit that is exchanged the keys before and those after do not add up:
delta is of the larger side alone. A product of dominating pairs dominates the product (Zhu, Dong
and Wang 2022, Thm 10), whatever keys are of which kind: so the loss is that of counts which move,
composed with that delta.

**How large a is.** A key whose count is n is hidden with the probability ``F(T - 1 - n)``, F the
noise's distribution function and T the threshold. Of log-concave noise, as Laplace and Gaussian
noise are, F is log-concave, so ``g(n) = -log F(T - 1 - n)`` is convex. A unit with r rows in its
keys hides all of them with the probability exp(-sum g(n_i)), where the n_i >= 1 sum to at most r.
For t keys a convex sum is largest where all but one are 1, and ``g(r - t + 1) + (t - 1) g(1)`` is
convex in t: so at t = 1 or t = r. Hence ``a <= max(1 - F(T - 1 - r), 1 - F(T - 2)^r)``: either all
rows in one key, or each in a key of its own. Where units are counted, the second alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, BoundedRange, PrivacyLoss, Pure, ZeroConcentrated, special
from accountants import DiscreteGaussian as DiscreteGaussianLoss
from accountants import DiscreteLaplace as DiscreteLaplaceLoss
from accountants import Gaussian as GaussianLoss
from accountants.losses.composite import Composite
from accountants.losses.discrete import upper_tail
from accountants.numerics import ceiling, down, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import change_at
from adaptive_dp.graph.mechanism import (
    IN_PROPORTION,
    Free,
    Mechanism,
    UnitsByKey,
    budget_parameter,
    noise_parameter,
)
from adaptive_dp.graph.operation import UNBOUNDED
from adaptive_dp.graph.values import evolved, number
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.mechanisms.discrete import check_scale
from adaptive_dp.mechanisms.selection import EXACT_CHOICE, scaled_gaps, span_epsilon
from adaptive_dp.noise.bernoulli import exp_bounds
from adaptive_dp.noise.choice import choose
from adaptive_dp.noise.gaussian import discrete_gaussian, rounded_gaussian
from adaptive_dp.noise.laplace import discrete_laplace
from adaptive_dp.noise.stream import Stream

Integers = NDArray[np.int64]


def any_of(delta: float, times: int) -> float:
    """Return ``1 - (1 - delta)^times``, rounded up."""
    if delta >= 1 or times == 1:
        return delta
    # log1p and expm1 lose a few units each; expm1 at x <= 0 has a condition number of at most 1
    return min(1.0, up(-math.expm1(times * math.log1p(-delta)), 16))


PART_OF_DELTA = Free("delta")
"""A part of the delta for which a plan is calibrated."""


def chance_of_one(default: Any = attrs.NOTHING) -> Any:
    """Declare the most probability with which a key shows that one unit alone has."""
    check = checked(
        lambda v: isinstance(v, Free) or (is_number(v) and 1e-60 <= v < 1),
        "a probability from 1e-60 on, below 1",
        "; it is how often a key may show that one unit alone has: 1e-8, say",
    )
    metadata = {"symbol": "delta", "role": "delta"}
    return attrs.field(
        kw_only=True, default=default, converter=number, validator=check, metadata=metadata
    )


class _KeyMechanism(Mechanism):
    """Base of the mechanisms that release keys, or keys with their counts."""

    norm: ClassVar[float] = 1
    input_type: ClassVar[type] = UnitsByKey
    rounds_outward: ClassVar[bool] = True
    no_interval: ClassVar[str] = (
        "keys are released, without numbers; dp.ThresholdLaplace releases both"
    )

    if TYPE_CHECKING:  # each class declares it, after its noise
        delta: float

    def shape(self, value: tuple[int, ...]) -> None:
        """Return None: which keys are released, and how many, is drawn."""

    def chance(self, units: int) -> float:
        """Return the probability with which a key of so many units shows.

        It depends on no data: print it before a run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define chance")

    def _refuse_free(self, what: str) -> None:
        if self.free():
            raise DeclarationError(
                f"{what} of {self} depends on a parameter that is still free; calibrate the plan "
                "first, and ask the mechanism of the calibrated plan"
            )


# -----------------------------------------------------------------------------
# Counts above a threshold.


def rows_of_a_unit() -> Any:
    """Declare how many keys, or rows in a key, one unit may have; None for those of the query."""
    check = checked(
        lambda v: v is None or (isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 2**40),
        "None or an int from 1 to 2^40",
        "; without it, it is taken from the query that is released",
    )
    return attrs.field(kw_only=True, default=None, converter=number, validator=check)


def _with_sides(mechanism: Any, query: Any) -> Any:
    """Return a mechanism with the keys of a unit, and its rows in one, of the query."""
    change = change_at(query.inputs[0]).one_sided
    if change.rows == UNBOUNDED:
        return mechanism
    sides = [query.operation.sensitivity(query.domain, change, p) for p in (1, math.inf)]
    keys, rows = (max(1, math.floor(side)) for side in sides)
    taken = {"keys": keys} if mechanism.keys is None else {}
    return evolved(mechanism, **taken, **({"rows": rows} if mechanism.rows is None else {}))


class _Threshold(_KeyMechanism):
    """Base of the mechanisms that release the noisy counts which reach a threshold."""

    no_interval: ClassVar[str] = ""
    uses_side: ClassVar[bool] = True

    if TYPE_CHECKING:  # each class declares them, after delta
        keys: int | None
        rows: int | None

    def of_query(self, query: Any) -> Mechanism:
        """Return the mechanism with the keys of a unit, and its rows in one, of the query."""
        mechanism: Mechanism = _with_sides(self, query)
        return mechanism

    @property
    def threshold(self) -> int:
        """The least noisy count that shows.

        The least T, above the rows that a unit may have in a key, with which a key that one unit
        alone has shows with a probability of at most delta.
        """
        self._refuse_free("the threshold")
        keys, rows = self.keys or 1, self.rows or 1
        return rows + _least(lambda j: self._alone(rows + j, keys, rows), self.delta)

    def _alone(self, threshold: int, keys: int, rows: int) -> float:
        """Return the bound of the module of how often a unit's own keys show, rounded up.

        Parameters
        ----------
        threshold
            T, above ``rows``.
        keys, rows
            How many keys the unit may have, and how many rows in one of them; of all together no
            more than the larger of the two.
        """
        apart = any_of(self.tail(threshold - 1), max(keys, rows))
        return max(apart, self.tail(threshold - rows))

    def release(self, value: UnitsByKey, stream: Stream) -> dict[str, float]:
        """Return the keys whose noisy counts reach the threshold, with these."""
        counts, least = value.counts(), self.threshold
        noisy = counts + self.noise(stream, len(counts))
        # a key that no unit has is not among them, so it never shows
        return {value.keys[i]: float(noisy[i]) for i in np.flatnonzero(noisy >= least).tolist()}

    def chance(self, units: int) -> float:
        """Return the probability with which a key of so many units shows: ``P(n + N >= T)``."""
        if units < 1:
            return 0.0
        least = self.threshold - units
        # the noise is symmetric: P(N >= j) = 1 - P(N >= 1 - j)
        return self.tail(least) if least >= 1 else 1 - self.tail(1 - least)

    def intervals(self, released: dict[str, float], level: float) -> dict[str, tuple[float, float]]:
        """Return the interval of each key's count, given that it shows.

        Of a count n the noisy count Y, given that it shows, has the law of ``n + N`` from T on. Its
        tails, ``P(Y >= y | Y >= T)`` and ``P(Y <= y | Y >= T)``, are monotone in n, as the noise is
        log-concave. The interval is of those n from 1 on of which neither is at most
        ``(1 - level) / 2``, extended to y where it ends before: so it holds n with at least the
        level's probability among the runs in which the key shows. Of a count near the threshold
        the lower end is 1: that a rare key shows by luck is then not ruled out.
        """
        miss = (1 - level) / 2 * (1 - 1e-9)  # outward: far more than the tails are rounded
        threshold = self.threshold
        reach = _least(self.tail, miss)  # the noise of one key that is not selected
        found: dict[int, tuple[int, int]] = {}

        def ends(count: int) -> tuple[int, int]:
            # far above the threshold the distance to the lower end no longer grows, and that to the
            # upper end stays below `reach`
            near = min(count, threshold + 16 * reach)
            if near not in found:
                found[near] = self._ends(near, threshold, miss, reach)
            low, high = found[near]
            return low + count - near, high if near == count else count + reach - 1

        return {key: ends(round(count)) for key, count in released.items()}

    def _ends(self, count: int, threshold: int, miss: float, reach: int) -> tuple[int, int]:
        """Return the ends of the interval of one noisy count."""

        def at_least(j: int) -> float:  # P(N >= j); the noise is symmetric
            return self.tail(j) if j >= 1 else 1 - self.tail(1 - j)

        def above(n: int) -> bool:  # P(Y >= y | Y >= T) > miss: true from some n <= y on
            return at_least(count - n) > miss * at_least(threshold - n)

        def below(n: int) -> bool:  # P(Y <= y | Y >= T) > miss: true up to some n
            beside = self.tail(n - threshold + 1)
            return self.tail(n - count) - beside > miss * at_least(threshold - n)

        low, high = 0, count  # the least n for which `above` holds, and `above(count)` does
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if above(middle) else (middle, high)
        least = high
        low, high = count, count + reach  # `reach` is farther than any n for which `below` holds
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if below(middle) else (low, middle)
        return least, low

    def noise(self, stream: Stream, count: int) -> Integers:
        """Return noise for so many keys."""
        raise NotImplementedError(f"{type(self).__name__} must define noise")

    def tail(self, least: int) -> float:
        """Return ``P(N >= least)`` for least >= 1, rounded up."""
        raise NotImplementedError(f"{type(self).__name__} must define tail")

    def _loss(
        self, counts: Callable[[int], tuple[PrivacyLoss, int]], side: tuple[float, float]
    ) -> PrivacyLoss:
        """Return the loss of counts that move, composed with that of keys of one unit alone.

        Parameters
        ----------
        counts
            Given the most by which one count moves: a loss, and how many times it occurs.
        side
            How many keys a unit may have in one data set, and how many rows in one of them.
        """
        keys, rows = (math.floor(each) for each in side)
        if keys == 0:
            return Pure(0.0)
        if keys <= (self.keys or 1) and rows <= (self.rows or 1):
            delta = self.delta  # the threshold is such that no more shows
        elif rows < self.threshold:
            delta = self._alone(self.threshold, keys, rows)
        else:
            delta = 1.0
        return Composite((counts(rows), (Approximate(0.0, delta), 1)))


def _least(tail: Callable[[int], float], delta: float) -> int:
    """Return the least ``j >= 1`` with ``tail(j) <= delta``, for a tail that falls."""
    high = 1
    while tail(high) > delta:
        high *= 2
    low = high // 2  # the tail is above delta there, or it is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle) <= delta else (middle, high)
    return high  # the tail was evaluated there, and is at most delta


class ThresholdLaplace(_Threshold):
    """Release the keys whose counts of units, with discrete Laplace noise, reach a threshold.

    For ``people.group_by("town").count()`` where the towns are not declared: a mapping from keys to
    noisy counts. The threshold is the least at which any key that one unit alone has shows with
    probability ``delta`` at most.

    Privacy: of a unit that moves the counts by D in l1, the loss of discrete Laplace noise on
    integers (epsilon ``D / b``), composed with delta: see the module.

    Parameters
    ----------
    scale
        b, in what is counted; at most 2^50. The noise has probabilities proportional to
        ``e^{-|x|/b}``.
    delta
        The most probability with which any key shows that one unit alone has, from 1e-60 to below
        1. Free by default: a part of the delta for which the plan is calibrated.
    keys, rows
        How many keys a unit may have, and how many rows in one of them; by default as many as the
        query allows.

    Notes
    -----
    Noise: `adaptive_dp.noise.laplace.discrete_laplace`, whose law is exact. What depends on how
    many keys there are, beside the release, is the time that a run takes, and its memory.

    References
    ----------
    Korolova, Kenthapadi, Mishra and Ntoulas 2009 (noisy counts above a threshold); the loss is
    derived in the module.

    See Also
    --------
    ThresholdGaussian : less noise where a unit has many keys.
    PartitionSelection : the keys alone.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> mechanism = dp.ThresholdLaplace(scale=2, delta=1e-6)
    >>> mechanism.threshold, [round(mechanism.chance(n), 3) for n in (1, 20, 28, 40)]
    (28, [0.0, 0.011, 0.622, 0.999])
    >>> people = dp.dataset("people", columns={"town": str})
    >>> plan = dp.Pipeline(towns=people.group_by("town").count()).calibrate(1.0, 1e-6)
    >>> round(plan.certify().epsilon, 6)
    1.0
    >>> data = {"town": ["Oslo"] * 500 + ["Rome"] * 90 + ["Ribe"] * 3}
    >>> plan.simulate(seed=1, people=data)["towns"]
    {'Oslo': 499.0, 'Rome': 83.0}
    """

    theorem: ClassVar[str] = (
        "noisy counts above a threshold: Korolova, Kenthapadi, Mishra & Ntoulas 2009"
    )
    sampler: ClassVar[str] = "discrete Laplace, exact"

    scale: float = noise_parameter("b", default=IN_PROPORTION)
    delta: float = chance_of_one(PART_OF_DELTA)
    keys: int | None = rows_of_a_unit()
    rows: int | None = rows_of_a_unit()

    def __attrs_post_init__(self) -> None:
        check_scale("ThresholdLaplace.scale", self.scale)

    def noise(self, stream: Stream, count: int) -> Integers:
        """Return discrete Laplace noise for so many keys."""
        return discrete_laplace(stream, self.scale, count)

    def tail(self, least: int) -> float:
        """Return ``P(N >= least)`` for least >= 1, rounded up."""
        # r^least / (1 + r), r = e^(-1/b)
        x = least / self.scale
        if x > 800:  # the tail is below the least positive float
            return 5e-324
        # x is off by a relative 2 units, its exponential by x times that; the rest by a few units
        return min(1.0, up(math.exp(-x) / (1 + math.exp(-1 / self.scale)), 16 + 4 * x))

    def loss(self, distance: float, side: tuple[float, float] | None = None) -> PrivacyLoss:
        """Return the loss of a unit that moves the counts by ``distance``."""
        moved = math.floor(distance)

        def counts(rows: int) -> tuple[PrivacyLoss, int]:
            # a vector that moves by D in l1 costs no more than a number that moves by D; counts
            # that move by 1 each are D numbers
            if rows > 1:
                return DiscreteLaplaceLoss(self.scale, moved), 1
            return DiscreteLaplaceLoss(self.scale), moved

        return self._loss(counts, side or (distance, distance))


class ThresholdGaussian(_Threshold):
    """Release the keys whose counts of units, with discrete Gaussian noise, reach a threshold.

    As `ThresholdLaplace`, with less noise where units are counted, of which each has many keys.

    Privacy: of a unit that moves the counts by D in l2, rho ``D^2 / (2 sigma^2)``; of k counts that
    move by 1 each, the exact loss of k integers. Composed with delta: see the module.

    Parameters
    ----------
    sigma
        In what is counted; at most 2^50. Noise has probabilities proportional to
        ``e^{-x^2/(2 sigma^2)}``.
    delta, keys, rows
        As of `ThresholdLaplace`.

    Notes
    -----
    Noise: `adaptive_dp.noise.gaussian.discrete_gaussian`, whose law is exact. What depends on how
    many keys there are, beside the release, is the time that a run takes, and its memory.

    References
    ----------
    Canonne, Kamath and Steinke 2020, Thm 4 (the noise); the loss is derived in the module.

    See Also
    --------
    ThresholdLaplace : a pure epsilon beside delta; a lower threshold for one key a unit.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.ThresholdGaussian(sigma=5, delta=1e-8).threshold
    30
    >>> visits = dp.dataset("visits", columns={"doctor": str}, unit="patient", rows_per_unit=8)
    >>> doctors = visits.group_by("doctor").count_distinct().release(dp.ThresholdGaussian())
    >>> plan = dp.Pipeline(doctors=doctors).calibrate(epsilon=1, delta=1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by distribution>
    """

    norm: ClassVar[float] = 2
    theorem: ClassVar[str] = "discrete Gaussian: Canonne, Kamath & Steinke 2020, Thm 4"
    sampler: ClassVar[str] = "discrete Gaussian, exact"

    sigma: float = noise_parameter("sigma", default=IN_PROPORTION)
    delta: float = chance_of_one(PART_OF_DELTA)
    keys: int | None = rows_of_a_unit()
    rows: int | None = rows_of_a_unit()

    def __attrs_post_init__(self) -> None:
        check_scale("ThresholdGaussian.sigma", self.sigma)

    def noise(self, stream: Stream, count: int) -> Integers:
        """Return discrete Gaussian noise for so many keys."""
        return discrete_gaussian(stream, self.sigma, count)

    def tail(self, least: int) -> float:
        """Return ``P(N >= least)`` for least >= 1, rounded up."""
        # `upper_tail` is within 1e-12 of itself, and 1e-300
        # tails grow with sigma, and are 0 as floats for a small one
        sigma = max(float(self.sigma), 1e-3)
        near = float(upper_tail(sigma, np.array([float(least)]))[0])
        return min(1.0, near * (1 + 1e-11) + 1e-299)

    def loss(self, distance: float, side: tuple[float, float] | None = None) -> PrivacyLoss:
        """Return the loss of a unit that moves the counts by ``distance``."""
        # rounded up or exact: the floor loses no integer
        square = math.floor(Fraction(distance) ** 2)

        def counts(rows: int) -> tuple[PrivacyLoss, int]:
            if rows > 1:  # integers that are independent: their rhos add up
                return ZeroConcentrated(ceiling(square / (2 * Fraction(self.sigma) ** 2))), 1
            return DiscreteGaussianLoss(self.sigma), square

        return self._loss(counts, side or (square, distance))


# -----------------------------------------------------------------------------
# The keys alone.


BITS = 256
"""Probabilities of showing are multiples of 2^-256, far below the least delta."""
LONGEST = 2**20
"""From so many units on, the probability no longer grows with their number."""


@lru_cache(maxsize=8)
def probabilities(epsilon: float, delta: float) -> tuple[int, ...]:
    """Return pi(n) for n = 0, 1, ... in multiples of ``2^-BITS``; beyond the last it stays.

    It is the largest that obeys ``pi(0) = 0`` and, for each n,

    ``pi(n+1) <= e^epsilon pi(n) + delta``,
    ``1 - pi(n) <= e^epsilon (1 - pi(n+1)) + delta``,

    but for rounding: each value is rounded down from the one before it, so that both hold exactly.
    The other two conditions, with n and n+1 exchanged, hold since pi grows: to a multiple of
    ``2^-BITS``, a bound that is no less than pi(n) is rounded down to no less than pi(n).
    """
    scale = 1 << BITS
    # a smaller epsilon is more private: beyond 700 nothing changes
    epsilon = min(epsilon, 700.0)
    bits = 2 * BITS + math.ceil(2 * epsilon)
    # r >= e^-epsilon, so 1/r <= e^epsilon: rounded to the private side
    r = exp_bounds(Fraction(epsilon), bits)[1]
    slack = math.floor(Fraction(delta) * scale)
    shares = [0]
    while shares[-1] < scale and len(shares) < LONGEST:
        share = shares[-1]
        # e^epsilon pi + delta, rounded down
        first = (share << bits) // r + slack
        # 1 - e^-epsilon (1 - pi - delta), rounded down: its second term is rounded up
        second = scale + (-r * (scale - share - slack) >> bits if share + slack < scale else 0)
        shares.append(min(first, second, scale))
    return tuple(shares)


@lru_cache(maxsize=8)
def _words(epsilon: float, delta: float) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return each probability as four words, the first the highest, and which of them are 1."""
    shares = probabilities(epsilon, delta)
    sure = np.array([share >> BITS > 0 for share in shares])
    below = b"".join(min(share, (1 << BITS) - 1).to_bytes(BITS // 8, "big") for share in shares)
    words = np.frombuffer(below, dtype=">u8").astype(np.uint64)
    return words.reshape(-1, BITS // 64), sure


class PartitionSelection(_KeyMechanism):
    """Release the keys alone, each with the largest probability that (epsilon, delta) allows.

    For ``people.group_by("town").count()`` where the towns are not declared: a list of towns, by
    which later steps of a session may group. A key of n units shows with probability pi(n),
    independently of other keys, where pi is the largest function with ``pi(0) = 0`` and

    ``pi(n+1) = min(e^epsilon pi(n) + delta, 1 - e^-epsilon (1 - pi(n) - delta), 1)``:

    of all (epsilon, delta) mechanisms for one key a unit none shows any key more often.

    Privacy: (epsilon, delta) for each key that a unit changes: composed k times for k keys, which
    are independent of each other. Of a unit that is exchanged, the keys before and those after:
    that a new key shows has an infinite loss, and so has that a key is hidden which shows for sure
    with one unit more. So neither side suffices alone, not even for delta.

    Parameters
    ----------
    epsilon
        In nats, for each key.
    delta
        The probability with which a key shows that one unit alone has, from 1e-60 to below 1.

    Notes
    -----
    Probabilities are multiples of 2^-256, rounded to the private side, and are drawn exactly. From
    2^20 units on, which matters for an epsilon below 1e-4 alone, pi no longer grows.

    References
    ----------
    Desfontaines, Voss, Gipson and Mandayam 2022, Thm 1 (the recursion, and that it is optimal).

    See Also
    --------
    WeightedGaussian : for many keys a unit.
    ThresholdLaplace : the noisy counts beside the keys.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> mechanism = dp.PartitionSelection(epsilon=0.5, delta=1e-6)
    >>> [round(mechanism.chance(n), 3) for n in (1, 20, 28, 40)]
    [0.0, 0.034, 0.869, 1.0]
    >>> people = dp.dataset("people", columns={"town": str})
    >>> plan = dp.Pipeline(towns=people.group_by("town").count().release(mechanism))
    >>> plan.with_delta(1e-6).certify()
    <certificate epsilon=0.5 delta=1e-06 by basic>
    >>> data = {"town": ["Oslo"] * 500 + ["Rome"] * 90 + ["Ribe"] * 3}
    >>> plan.with_delta(1e-6).simulate(seed=1, people=data)["towns"]
    ['Oslo', 'Rome']
    """

    theorem: ClassVar[str] = "Desfontaines, Voss, Gipson & Mandayam 2022, Thm 1"
    sampler: ClassVar[str] = "Bernoulli trials of multiples of 2^-256, exact"

    epsilon: float = budget_parameter("epsilon", default=IN_PROPORTION)
    delta: float = chance_of_one(PART_OF_DELTA)

    def of_query(self, query: Any) -> Mechanism:
        """Return the mechanism with a delta that is free divided by the keys of a unit."""
        keys = change_at(query.inputs[0]).both
        if not isinstance(self.delta, Free) or keys < 1:  # none, or unbounded
            return self
        return evolved(self, delta=attrs.evolve(self.delta, weight=self.delta.factor / keys))

    def release(self, value: UnitsByKey, stream: Stream) -> list[str]:
        """Return the keys that show."""
        counts = value.units()
        thresholds, sure = _words(float(self.epsilon), float(self.delta))
        place = np.minimum(counts, len(sure) - 1)
        least = thresholds[place]
        drawn = stream.words(least.size).reshape(least.shape)
        # a uniform integer below 2^256 is below pi(n) 2^256: compared word by word, highest first
        below, equal = sure[place], np.ones(len(counts), dtype=np.bool_)
        for i in range(least.shape[1]):
            below = below | (equal & (drawn[:, i] < least[:, i]))
            equal &= drawn[:, i] == least[:, i]
        return [value.keys[i] for i in np.flatnonzero(below).tolist()]

    def chance(self, units: int) -> float:
        """Return the probability with which a key of so many units shows: pi(n)."""
        self._refuse_free("the chance")
        shares = probabilities(float(self.epsilon), float(self.delta))
        return float(Fraction(shares[min(max(units, 0), len(shares) - 1)], 1 << BITS))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of a unit that changes so many keys."""
        keys = math.floor(distance)
        # each key is released by itself, so a unit that changes k of them pays for k
        one = Approximate(float(self.epsilon), self.delta)
        if keys <= 1:
            return one if keys else Pure(0.0)
        return Composite(((one, keys),))


FINE = 2**26
"""Weights are integers, in multiples of 2^-26."""


def _weights(keys: int) -> tuple[int, ...]:
    """Return ``1 / sqrt(t)`` for t = 1, ..., keys, in multiples of ``1 / FINE``, rounded down."""
    # t times the square is at most 1, exactly: the root of an integer is rounded down
    return tuple(math.isqrt(FINE * FINE // t) for t in range(1, keys + 1))


@lru_cache(maxsize=64)
def _weighted_threshold(sigma: float, delta: float, keys: int) -> int:
    """Return rho in multiples of ``1 / FINE``: see `WeightedGaussian`."""

    def least(times: int) -> int:
        # the noise that one of so many keys has to have, for all of them together at most delta
        return _least(lambda j: any_of(_rounded_tail(sigma * FINE, j), times), delta)

    return max(w + least(t) for t, w in enumerate(_weights(keys), start=1))


def _rounded_tail(sigma: float, least: int) -> float:
    """Return ``P(K >= least)`` of normal noise rounded to integers, rounded up; least >= 1."""
    # the argument is off by a relative 2 units, the tail by x^2 times that, and ndtr by 1e-14
    near = float(special.ndtr(-(least - 0.5) / sigma))
    return min(1.0, near * (1 + 1e-11) + 1e-299)


MOST_KEYS = 1000
"""The largest number of keys of a unit that get a share of its weight."""


def _count(name: str, most: int, hint: str, default: Any) -> Any:
    """Declare an int from 1 to ``most``, or None where that is the default."""
    check = checked(
        lambda v: (
            (v is None and default is None)
            or (isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= most)
        ),
        f"an int from 1 to {most}",
        f"; {hint}",
    )
    return attrs.field(
        kw_only=True,
        default=default,
        converter=number,
        validator=check,
        metadata={"symbol": name},
    )


class WeightedGaussian(_KeyMechanism):
    """Release the keys alone, where a unit has many: each of its keys gets a share of its weight.

    A unit that has t keys adds ``1 / sqrt(t)`` to each of them. Those keys are released whose sums,
    with normal noise, reach the threshold

    ``rho = max_{1 <= t <= keys} (1 / sqrt(t) + sigma Phi^-1((1 - delta)^{1/t}))``:

    of t keys that one unit alone has, each of weight ``1 / sqrt(t)``, none shows with probability
    ``Phi((rho - 1 / sqrt(t)) / sigma)^t >= 1 - delta``. In several rounds those that show are taken
    away, so that a unit's weight is shared by the others: rarer keys show (DP-SIPS).

    Privacy: a unit moves the sums by 1 in l2 where it appears or vanishes, and by sqrt(2) where it
    is exchanged, as two vectors without negative entries are no farther apart: the loss of Gaussian
    noise, ``mu = 1 / sigma`` or ``sqrt(2) / sigma``, composed with delta. The proof is that of the
    module, with weights in place of 1; delta is of all keys of a unit together. Of R rounds each
    has a delta of ``delta / R``, and the noise of the i-th is ``sigma 3^{(R - i) / 2}``; which keys
    are taken away is released, so rounds compose.

    Parameters
    ----------
    sigma
        The standard deviation of the last round's noise, where a unit's keys have weights of norm
        1; from 2^-20 to 2^16.
    keys
        The most keys of a unit that count, from 1 to 1000: its first ones, in the order of rows. By
        default as many as the query allows, 1000 at most. Fewer lower the threshold a little.
    rounds
        From 1 to 10.
    delta
        The most probability with which any key shows that one unit alone has, from 1e-60 to below
        1.

    Notes
    -----
    Noise: `adaptive_dp.noise.gaussian.rounded_gaussian`, whose law is exact; weights are multiples
    of 2^-26, rounded down. A key that has no weight, since it is none of the first of any unit, is
    never shown.

    References
    ----------
    Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020 (weighted Gaussian; their threshold is
    for half of the delta of both); Swanberg, Desfontaines and Haney 2023 (rounds).

    See Also
    --------
    PartitionSelection : for one key a unit.
    ThresholdGaussian : the noisy counts beside the keys.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> mechanism = dp.WeightedGaussian(sigma=4, keys=8, delta=1e-6)
    >>> round(mechanism.threshold, 2), round(mechanism.chance(30), 3)
    (20.98, 0.988)
    >>> [round(mechanism.chance(n, keys=4), 3) for n in (1, 30, 60)]
    [0.0, 0.067, 0.988]
    >>> visits = dp.dataset("visits", columns={"doctor": str}, unit="patient", rows_per_unit=20)
    >>> plan = dp.Pipeline(doctors=visits.group_by("doctor").count().release(mechanism))
    >>> plan.with_delta(1e-5).certify()
    <certificate epsilon=0.932845 delta=1e-05 by gaussian>
    """

    norm: ClassVar[float] = math.inf
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "weighted Gaussian: Gopi et al. 2020; Balle & Wang 2018, Thm 8"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to multiples of 2^-26"

    sigma: float = noise_parameter("sigma", default=IN_PROPORTION)
    keys: int | None = _count("keys", MOST_KEYS, "so many keys of a unit count at most", None)
    rounds: int = _count("rounds", 10, "one is the weighted Gaussian itself", default=1)
    delta: float = chance_of_one(PART_OF_DELTA)

    def __attrs_post_init__(self) -> None:
        if not self.free() and not (2.0**-20 <= self.sigma <= 2.0**16):
            raise DeclarationError(
                f"WeightedGaussian.sigma must be from 2^-20 to 2^16, got {self.sigma!r}: weights "
                "of a unit have norm 1"
            )

    def of_query(self, query: Any) -> Mechanism:
        """Return the mechanism with the keys that a unit may have in the query."""
        change = change_at(query.inputs[0]).one_sided
        if self.keys is not None or change.rows == UNBOUNDED:
            return self
        # how many keys count is a choice: whatever it is, a unit's weights have norm 1 at most
        keys = math.floor(query.operation.sensitivity(query.domain, change, 1))
        return evolved(self, keys=min(max(1, keys), MOST_KEYS))

    @property
    def _keys(self) -> int:
        if self.keys is None:
            raise DeclarationError(
                f"{self} takes its keys from the query that it releases; say keys=8, for example"
            )
        return self.keys

    @property
    def threshold(self) -> float:
        """The least noisy sum of weights that shows in the last round: rho."""
        return self._steps(self._sigmas()[-1]) / FINE

    def _sigmas(self) -> list[float]:
        """Return the noise of each round."""
        self._refuse_free("the threshold")
        return [self.sigma * 3.0 ** ((self.rounds - i) / 2) for i in range(1, self.rounds + 1)]

    def _steps(self, sigma: float) -> int:
        # rounded down: the deltas of all rounds add up to no more than delta
        one = float(self.delta) if self.rounds == 1 else down(self.delta / self.rounds)
        return _weighted_threshold(sigma, one, self._keys)

    def release(self, value: UnitsByKey, stream: Stream) -> list[str]:
        """Return the keys whose noisy sums reach the threshold, in any round."""
        left = np.ones(len(value.keys), dtype=np.bool_)
        for sigma in self._sigmas():
            sums = value.weighted(_weights(self._keys), left)
            noisy = sums + rounded_gaussian(stream, sigma * FINE, len(sums))
            # a key without weight may be one unit's alone: it must not show at all
            left &= ~((noisy >= self._steps(sigma)) & (sums > 0))
        return [value.keys[i] for i in np.flatnonzero(~left).tolist()]

    def chance(self, units: int, keys: int = 1) -> float:
        """Return the probability that a key shows which so many units have.

        In several rounds, where none of their other keys shows before; where some do, it is larger.

        Parameters
        ----------
        units
            How many units have it.
        keys
            How many keys each of them has.
        """
        hidden, weight = 1.0, units * _weights(self._keys)[min(keys, self._keys) - 1]
        for sigma in self._sigmas():
            least = self._steps(sigma) - weight
            # the noise is symmetric: P(K >= j) = 1 - P(K >= 1 - j)
            tail = _rounded_tail(sigma * FINE, max(least, 1 - least))
            hidden *= 1 - tail if least >= 1 else tail
        return 1 - hidden if units >= 1 else 0.0

    def loss(self, distance: float, span: float = 2.0) -> PrivacyLoss:
        """Return the loss of a unit whose keys move the same way (span 1), or either way (2)."""
        # the l2 distance is the root of the span
        rounds = [(GaussianLoss(up(math.sqrt(span) / sigma, 4)), 1) for sigma in self._sigmas()]
        _ = self._keys  # refused where it is not known yet
        # 1 - (1 - delta / R)^R is at most delta
        return Composite((*rounds, (Approximate(0.0, self.delta), 1)))


# -----------------------------------------------------------------------------
# The best few of keys that nobody declared.


class TopKeys(_KeyMechanism):
    """Release the k keys of the largest counts, in order, of keys that nobody declared; or fewer.

    Keys are chosen one after the other, each with a probability ~ ``e^{n / b}``, n its count, among
    those that are left and an end of the score T; once the end is chosen no more are released.
    ``T = rows + b log(keys / delta)``, for a unit with so many keys and so many rows in one of
    them. Released is the rank of each, 1 for the first. It costs k choices, whatever the number of
    keys of a unit: where a unit has one key, `ThresholdLaplace` releases counts too, for less.

    Privacy: k losses of a bounded range of ``s / b``, s the span, at a delta and next to no epsilon
    beside.

    Proof. Let x and x' be neighbours, and compare their laws P and P' with Q and Q': those of
    choosing among the keys that both have, by the counts of x or x'. Q against Q' is k exponential
    mechanisms, in which the end does not move. Of the keys that x alone has all are the unit's, so
    they weigh ``keys e^{rows / b}`` at most, against ``e^{T / b}`` of the end, which is there at
    every choice. So one of them is chosen before the end with a probability of at most delta; and
    of an outcome s without them ``(1 - delta)^k Q(s) <= P(s) <= Q(s)``, a factor of at least
    ``1 - delta`` for each choice. Given that none of them is chosen, P is thus within a factor
    ``(1 - delta)^{k + 1}`` of Q, and likewise P' of Q'. So, but for delta under both, P against P'
    has the loss of Q against Q' and ``(k + 1) log(1 / (1 - delta))``.

    Parameters
    ----------
    scale
        b, in units or rows.
    k
        How many keys, at most.
    keys, rows
        The most keys of a unit, and the most rows that it has in one. By default the query's.
    delta
        The most probability with which a key shows that one unit alone has.

    Notes
    -----
    Noise: `adaptive_dp.noise.choice.choose`, an exact choice. The order of equal keys is that of
    their str. What is chosen first is compared with the end by exact numbers.

    References
    ----------
    Durfee and Rogers 2019, "Practical differentially private top-k selection with pay-what-you-get
    composition" (an end of a noisy score, over an unknown domain); the delta, without a factor
    ``e^epsilon``, is proven above.

    See Also
    --------
    TopK : of declared candidates.
    ThresholdLaplace : all keys of large counts, with these.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> mechanism = TopKeys(scale=10.0, k=3, keys=4, delta=1e-6)
    >>> round(mechanism.threshold, 1), round(mechanism.chance(300), 3)
    (153.0, 1.0)
    >>> visits = dp.dataset("visits", columns={"page": str}, unit="user", rows_per_unit=4)
    >>> counts = visits.group_by("page").count()
    >>> plan = dp.Pipeline(pages=counts.release(TopKeys(scale=10.0, k=2, delta=1e-7)))
    >>> plan = plan.with_delta(1e-6)
    >>> log = {"page": ["home"] * 900 + ["help"] * 400 + ["x"], "user": range(1301)}
    >>> plan.simulate(seed=1, visits=log)["pages"]
    {'help': 2.0, 'home': 1.0}
    """

    norm: ClassVar[float] = math.inf
    uses_span: ClassVar[bool] = True
    theorem: ClassVar[str] = "top-k of unknown keys: after Durfee & Rogers 2019"
    sampler: ClassVar[str] = f"exponential mechanism without replacement, {EXACT_CHOICE}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)
    k: int = _count("k", 10**6, "so many keys are released at most", default=attrs.NOTHING)
    keys: int | None = rows_of_a_unit()
    rows: int | None = rows_of_a_unit()
    delta: float = chance_of_one(PART_OF_DELTA)

    def of_query(self, query: Any) -> Mechanism:
        """Return the mechanism with the keys of a unit, and its rows in one, of the query."""
        mechanism: Mechanism = _with_sides(self, query)
        return mechanism

    def premises(self, release: Any) -> None:
        """Refuse fewer keys, or rows in one, than a unit may have in the query."""
        most = _with_sides(evolved(self, keys=None, rows=None), release.inputs[0])
        for what in ("keys", "rows"):
            own, needed = getattr(self, what), getattr(most, what)
            if own is not None and needed is not None and own < needed:
                raise DeclarationError(
                    f"TopKeys({what}={own}): a unit may have {needed} {what} in this query; leave "
                    f"{what} out, or bound the contributions of a unit"
                )

    @property
    def threshold(self) -> float:
        """The score of the end, T, rounded up."""
        self._refuse_free("the threshold")
        keys, rows = self.keys or 1, self.rows or 1
        return up(rows + self.scale * math.log(keys / self.delta), 8)

    def release(self, value: UnitsByKey, stream: Stream) -> dict[str, float]:
        """Return the ranks of the chosen keys."""
        left = list(range(len(value.keys)))
        scores = np.append(value.counts().astype(np.float64), self.threshold)
        chosen: dict[str, float] = {}
        while left and len(chosen) < self.k:
            among = scores[[*left, len(scores) - 1]]
            gaps, exact = scaled_gaps(among, self.scale)
            place = choose(gaps, exact, np.ones(len(gaps), dtype=np.int64), stream)
            if place == len(left):
                break
            chosen[value.keys[left.pop(place)]] = len(chosen) + 1.0
        return chosen

    def chance(self, units: int) -> float:
        """Return the probability that a key of so many units is chosen before the end."""
        if units < 1:
            return 0.0
        return 1 / (1 + math.exp(min(700.0, (self.threshold - units) / self.scale)))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of a unit that moves each count by ``distance``, apart by ``span``."""
        if distance == 0:
            return Approximate(0.0, 0.0)
        choice = BoundedRange(span_epsilon(distance, span, self.scale))
        beside = up(-(self.k + 1) * math.log1p(-self.delta), 8)
        return Composite(((choice, self.k), (Approximate(beside, self.delta), 1)))
