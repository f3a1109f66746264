"""Choosing a candidate by its score: exponential mechanism, permute-and-flip, noisy max."""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import BoundedRange, Composite, PrivacyLoss, report_noisy_max
from accountants import PermuteAndFlip as PermuteAndFlipLoss
from accountants.numerics import rounded_up
from adaptive_dp.graph.mechanism import IN_PROPORTION, Mechanism, Ranked, noise_parameter
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.noise.bernoulli import first_success, permutation
from adaptive_dp.noise.choice import choose, choose_by_logs
from adaptive_dp.noise.continuous import Real, is_nonnegative_sum, laplace, nearest_sum
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# What the mechanisms that choose share: scores as exact numbers, and the epsilon of their moves.


Floats = NDArray[np.float64]

EXACT_CHOICE = "exact: rational arithmetic where 64 bits of randomness do not decide"


def finite_scores(values: Any) -> Floats:
    """Return the scores as one row of finite numbers, whatever the data.

    NaN counts as 0, infinite scores as the largest floats.
    """
    largest = sys.float_info.max
    # ravel: scores of any shape are numbered in one order, which is that of the candidates
    return np.nan_to_num(np.ravel(values), nan=0.0, posinf=largest, neginf=-largest)


def scaled_gaps(scores: Floats, scale: float) -> tuple[Floats, Callable[[int], Fraction]]:
    """Return ``(max q - q_i) / scale`` as floats, and as a function from i to the exact number.

    Each float is rounded twice, so it is off by less than 2^-51 of itself; past the largest float
    it is infinite. The samplers in `adaptive_dp.noise` decide by the floats where these suffice,
    and else by the exact numbers.
    """
    # gaps from the best are at least 0, so that weights e^{-gap} are at most 1
    best = float(scores.max())
    with np.errstate(over="ignore", under="ignore"):
        gaps = (best - scores) / float(scale)

    def exact_gap(index: int) -> Fraction:
        # rationals of the same floats: exact, whatever the floats above were rounded to
        return (Fraction(best) - Fraction(float(scores[index]))) / Fraction(scale)

    return gaps, exact_gap


def span_bound(distance: float, span: float | None) -> float:
    """Return the span, the most by which the moves of two scores differ.

    It is at most twice the distance, one score moving up and the other down, and that where no
    span is known.
    """
    # twice the distance bounds any span
    return 2 * distance if span is None else min(span, 2 * distance)


def span_epsilon(distance: float, span: float | None, scale: float) -> float:
    """Return ``span / scale``, rounded up."""
    # in rationals and rounded up: epsilon may only be too large
    return rounded_up(Fraction(span_bound(distance, span)) / Fraction(scale))


# -----------------------------------------------------------------------------
# The mechanisms that choose one of finitely many candidates.


class _Scored(Mechanism):
    """The base of the mechanisms that choose by scores; the loss is the exponential mechanism's."""

    norm: ClassVar[float] = math.inf
    uses_span: ClassVar[bool] = True
    rounds_outward: ClassVar[bool] = True  # `span_epsilon` is exact, here and below

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of scores that move by at most ``distance``, and apart by ``span``."""
        # one normaliser for all candidates: a range of s / b, not twice that
        return BoundedRange(span_epsilon(distance, span, self.scale))


class Exponential(_Scored):
    """Choose candidate i with probability proportional to ``e^{q_i / b}``, q_i its score.

    Privacy: the loss has a bounded range of ``epsilon = s / b``, where s is the span, the most by
    which the moves of two scores differ. The log-ratio of neighbours' probabilities is what q_i
    moves by over b, plus what the normaliser moves by, which is the same for all i. The span is at
    most 2 Delta, Delta the sensitivity in the maximum norm, and at most Delta where all scores move
    the same way, as counts do under add/remove.

    Parameters
    ----------
    scale
        b, in the units of the scores. For scores that move by at most Delta, ``b = 2 Delta /
        epsilon`` is the mechanism that is commonly written ``e^{epsilon q / (2 Delta)}``.

    Notes
    -----
    Noise: `adaptive_dp.noise.choice.choose` inverts a uniform number; its law is exact.

    References
    ----------
    McSherry and Talwar 2007, Thm 6; Durfee and Rogers 2019 (bounded range); Dong, Durfee and
    Rogers 2020 (its composition).

    See Also
    --------
    PermuteAndFlip : a better expected score for a single choice.
    QuantileExponential : the same on an interval of numbers.

    Examples
    --------
    >>> Exponential(scale=4.0).loss(distance=1.0)
    BoundedRange(epsilon=0.5)
    >>> Exponential(scale=4.0).loss(distance=1.0, span=1.0)
    BoundedRange(epsilon=0.25)
    """

    is_selection: ClassVar[bool] = True
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; Dong, Durfee & Rogers 2020"
    sampler: ClassVar[str] = f"exponential mechanism by inversion, {EXACT_CHOICE}"

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the index of the chosen candidate, shape ()."""
        return np.array(_choose_by_score(finite_scores(value), self.scale, stream))


def _choose_by_score(scores: Floats, scale: float, stream: Stream) -> int:
    """Return i with probability proportional to ``e^{q_i / scale}``."""
    gaps, exact_gap = scaled_gaps(scores, scale)
    # multiplicity 1 for each candidate
    return choose(gaps, exact_gap, np.ones(len(gaps), dtype=np.int64), stream)


class TopK(_Scored):
    """Choose the k best candidates, best first: one pass of Gumbel noise in place of k choices.

    Noise of scale b is added to each score, and the indices of the k largest are released in their
    order. This has the law of k choices by `Exponential`, each among the candidates that are left.

    Privacy: each choice has a bounded range of ``epsilon = s / b``, whatever was chosen before: s
    is the span of all scores, and that of those that are left is no larger. So k of them compose.

    Parameters
    ----------
    k
        How many; of fewer candidates all are released, in an order.
    scale
        b, in the units of the scores.

    Notes
    -----
    Noise: `adaptive_dp.noise.choice.choose`, k times, on the scores that are left: the law of the k
    largest with Gumbel noise, exactly.

    References
    ----------
    Durfee and Rogers 2019, Lemma 4.2 (the two laws are one); Dong, Durfee and Rogers 2020.

    See Also
    --------
    Exponential : one choice.

    Examples
    --------
    >>> TopK(k=3, scale=4.0).loss(distance=1.0, span=1.0)
    Composite(spends=((BoundedRange(epsilon=0.25), 3),))
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B", "C"]})
    >>> plan = dp.Pipeline(towns=people["town"].histogram().release(dp.TopK(k=2)))
    >>> plan = plan.calibrate(epsilon=1.0)
    >>> plan.simulate(seed=1, people={"town": ["C"] * 90 + ["A"] * 60 + ["B"] * 10})["towns"]
    ['C', 'A']
    """

    is_selection: ClassVar[bool] = True
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "Durfee & Rogers 2019, Lemma 4.2; Dong, Durfee & Rogers 2020"
    sampler: ClassVar[str] = f"exponential mechanism without replacement, {EXACT_CHOICE}"

    k: int = attrs.field(
        kw_only=True,
        validator=checked(
            lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 1,
            "an int of at least 1",
        ),
    )

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the indices of the chosen candidates, shape (k,): the best first."""
        scores = finite_scores(value)
        left, chosen = np.arange(len(scores)), list[int]()
        while len(chosen) < min(self.k, len(scores)):
            place = _choose_by_score(scores[left], self.scale, stream)
            chosen.append(int(left[place]))
            left = np.delete(left, place)
        return np.array(chosen)

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return (k,), less where there are fewer candidates."""
        return (min(self.k, math.prod(value)),)

    def named(self, raw: Any, name: Callable[[float], Any]) -> list[Any]:
        """Return the candidates, the best first."""
        return [name(float(each)) for each in raw]

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of scores that move by at most ``distance``, and apart by ``span``."""
        return Composite([(super().loss(distance, span), self.k)])


class JointTopK(_Scored):
    """Choose k candidates in order at once: one exponential mechanism on all sequences of k.

    With ``q_(1) >= q_(2) >= ...`` the scores in order, the sequence ``s_1, ..., s_k`` has a
    probability ~ ``e^{u(s) / b}``, ``u(s) = - max_i (q_(i) - q_{s_i})``: it is as good as its worst
    place. There is one choice to pay for, not k: from about ten candidates on that is better than
    `TopK` where all choices are paid by pure epsilons, and better by far where the k best are
    spread out.

    Privacy: each of ``q_(i)`` and ``q_{s_i}`` moves by between m and M, ``M - m`` at most the span
    s, so u moves by at most s up or down: a bounded range of ``epsilon = 2 s / b``.

    Parameters
    ----------
    k
        How many; of fewer candidates all are released, in an order.
    scale
        b, in the units of the scores.

    Notes
    -----
    Scores are rounded to multiples of a power of two, at most 1 and near ``2^-30 b``; the loss
    includes what that moves, though integers are not moved. How many sequences have a given u is a
    product of integers, by which a level is chosen exactly, and then a sequence of it:
    `adaptive_dp.noise.choice`.

    References
    ----------
    Gillenwater, Joseph, Munoz and Ribero 2022, "A joint exponential mechanism for differentially
    private top-k" (the loss by the span, and the exact sampler, are derived here).

    See Also
    --------
    TopK : one choice after the other.

    Examples
    --------
    >>> round(JointTopK(k=3, scale=4.0).loss(distance=1.0, span=1.0).epsilon, 6)
    0.5
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B", "C", "D"]})
    >>> towns = {"town": ["C"] * 90 + ["A"] * 60 + ["B"] * 30}
    >>> plan = dp.Pipeline(towns=people["town"].histogram().release(JointTopK(k=3, scale=2.0)))
    >>> plan.simulate(seed=1, people=towns)["towns"]
    ['C', 'A', 'B']
    """

    is_selection: ClassVar[bool] = True
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = (
        "joint exponential mechanism: Gillenwater, Joseph, Munoz & Ribero 2022; "
        "Dong, Durfee & Rogers 2020"
    )
    sampler: ClassVar[str] = f"exponential mechanism on sequences, {EXACT_CHOICE}"

    k: int = attrs.field(
        kw_only=True,
        validator=checked(
            lambda v: isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 2**20,
            "an int from 1 to 2^20",
        ),
    )

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return (k,), less where there are fewer candidates."""
        return (min(self.k, math.prod(value)),)

    def named(self, raw: Any, name: Callable[[float], Any]) -> list[Any]:
        """Return the candidates, in order."""
        return [name(float(each)) for each in raw]

    def unit(self) -> float:
        """Return the power of two to whose multiples scores are rounded."""
        return min(1.0, math.ldexp(1.0, max(-1000, math.frexp(self.scale)[1] - 31)))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of scores that move by at most ``distance``, and apart by ``span``."""
        bound = span_bound(distance, span)
        if bound == 0 and distance == 0:
            return BoundedRange(0.0)
        # In units: a score that moves by x moves, rounded, by an integer from floor(x) to ceil(x).
        # Two that move by m and M do so apart by at most ceil(M) - floor(m) < M - m + 2, an
        # integer: so by at most ceil(M - m) + 1
        unit = Fraction(self.unit())
        moved = (math.ceil(Fraction(bound) / unit) + 1) * unit
        return BoundedRange(rounded_up(2 * moved / Fraction(self.scale)))

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the indices of the chosen candidates, shape (k,): the best first."""
        unit, scores = self.unit(), finite_scores(value)
        # clamped to 2^61 steps: 1-Lipschitz
        with np.errstate(over="ignore"):  # beyond all floats: clamped with the others
            steps = np.rint(np.clip(scores / unit, -(2.0**61), 2.0**61))
        order = np.argsort(-steps, kind="stable")
        ordered = steps[order].astype(np.int64)
        levels, totals = _joint_levels(ordered, min(self.k, len(ordered)))
        counts = [totals[0], *(b - a for a, b in itertools.pairwise(totals))]
        each = np.array([math.log(count) for count in counts])
        exponents = np.array(levels, dtype=np.float64) * (unit / self.scale)

        def exact(i: int) -> Fraction:
            return Fraction(levels[i]) * Fraction(unit) / Fraction(self.scale)

        level = levels[choose_by_logs(each - exponents, exact, counts, stream)]
        return order[_joint_sequence(ordered, min(self.k, len(ordered)), level, stream)]


def _joint_levels(ordered: NDArray[np.int64], k: int) -> tuple[list[int], list[int]]:
    """Return the values that ``-u`` may have, ascending, and how many sequences have at most each.

    At the i-th place (from 0) of a sequence with ``-u <= v`` stands one of the n_i candidates whose
    score is at least ``q_(i) - v``. As n_i grows with i, n_i - i of them are left when those before
    are chosen: the product of these is the number of sequences.
    """
    drops = ordered[:k, None] - ordered[None, :]
    place, _ = np.nonzero(drops > 0)
    drop = drops[drops > 0]
    by_drop = np.argsort(drop, kind="stable")
    factors = (np.count_nonzero(drops <= 0, axis=1) - np.arange(k)).tolist()
    total = math.prod(factors)
    levels, totals = [0], [total]
    for i, v in zip(place[by_drop].tolist(), drop[by_drop].tolist(), strict=True):
        # one candidate more at the place i
        total = total // factors[i] * (factors[i] + 1)
        factors[i] += 1
        if v > levels[-1]:
            levels.append(v)
            totals.append(total)
        else:
            totals[-1] = total
    return levels, totals


def _joint_sequence(
    ordered: NDArray[np.int64], k: int, level: int, stream: Stream
) -> NDArray[np.int64]:
    """Return a uniform sequence with ``-u = level``, as ranks.

    The first place whose drop is exactly the level is chosen by how many sequences have it there:
    before it drops are smaller, after it at most the level.
    """
    drops = ordered[:k, None] - ordered[None, :]
    most, fewer = np.count_nonzero(drops <= level, axis=1), np.count_nonzero(drops < level, axis=1)
    before = [max(0, int(n) - i) for i, n in enumerate(fewer)]
    after = [int(n) - i for i, n in enumerate(most)]
    exactly = (most - fewer).tolist()
    ends = [*itertools.accumulate(reversed(after[1:]), initial=1, func=operator.mul)][::-1]
    starts = [*itertools.accumulate(before[:-1], initial=1, func=operator.mul)]
    weights = [a * e * b for a, e, b in zip(starts, exactly, ends, strict=True)]
    pick = uniform_below(sum(weights), stream)
    first = next(i for i, w in enumerate(itertools.accumulate(weights)) if pick < w)
    chosen: list[int] = []
    for i in range(k):
        if i == first:  # none of these was chosen before, where drops are smaller
            chosen.append(int(fewer[i]) + uniform_below(exactly[i], stream))
            continue
        left = before[i] if i < first else after[i]
        rank = uniform_below(left, stream)
        # the rank-th of those that are not chosen yet
        for used in sorted(chosen):
            rank += used <= rank
        chosen.append(rank)
    return np.array(chosen)


class PermuteAndFlip(_Scored):
    """Look at candidates in random order; choose each with probability ``e^{(q_i - max q) / b}``.

    Privacy: pure ``epsilon = s / b``, where s is the span, the most by which the moves of two
    scores differ (at most 2 Delta). The expected score is never below that of `Exponential` at the
    same epsilon. The loss has no bounded range, though: over many choices, or at a delta, the
    exponential mechanism composes better.

    Parameters
    ----------
    scale
        b, in the units of the scores.

    Notes
    -----
    Noise: `adaptive_dp.noise.bernoulli.permutation` and ``first_success``, whose laws are exact.

    References
    ----------
    McKenna and Sheldon 2020, Thm 1 (privacy) and Thm 2 (utility). For the span instead of
    2 Delta see the proof in `accountants.losses.selection`: it holds the others' noise fixed, and
    no candidate's lead moves by more than the span.

    See Also
    --------
    Exponential : composes better over many choices.

    Examples
    --------
    >>> PermuteAndFlip(scale=4.0).loss(distance=1.0)
    PermuteAndFlip(epsilon=0.5)
    """

    is_selection: ClassVar[bool] = True
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "McKenna & Sheldon 2020, Thm 1"
    sampler: ClassVar[str] = f"permute-and-flip, {EXACT_CHOICE}"

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the index of the chosen candidate, shape ()."""
        return np.array(_permute_and_flip(finite_scores(value), self.scale, stream))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of scores that move by at most ``distance``, and apart by ``span``."""
        return PermuteAndFlipLoss(span_epsilon(distance, span, self.scale))


def _permute_and_flip(scores: Floats, scale: float, stream: Stream) -> int:
    """Return the index that permute-and-flip chooses (McKenna and Sheldon 2020, Alg. 1)."""
    gaps, exact_gap = scaled_gaps(scores, scale)
    # a uniform permutation, drawn before any trial: the order is independent of the scores
    order = permutation(len(gaps), stream)
    # Bernoulli trials in this order; the best candidate's succeeds with probability 1
    return int(order[first_success(gaps[order], lambda i: exact_gap(int(order[i])), stream)])


_NOISES = ("laplace", "gumbel", "exponential")


class NoisyMax(_Scored):
    """Add noise of scale b to each score, and release only which is the largest: report noisy max.

    Privacy: ``epsilon = s / b``, where s is the span, the most by which the moves of two scores
    differ: at most 2 Delta, and at most Delta where all move the same way.

    Parameters
    ----------
    scale
        b, in the units of the scores.
    noise
        ``"laplace"``, ``"gumbel"`` or ``"exponential"``; the last is the most useful for one
        choice, Gumbel's composes the best.

    Notes
    -----
    Noise: Laplace noise is drawn from `adaptive_dp.noise.continuous`, as many bits of it as the
    comparison needs, so the law is exact. Gumbel noise gives the law of `Exponential`, exponential
    noise that of `PermuteAndFlip` (Ding et al. 2021), and they are drawn as these.

    References
    ----------
    Dwork and Roth 2014, Claim 3.9; Durfee and Rogers 2019, Lemma 4.2; Ding, Kifer, Saghaian,
    Steinke, Wang, Xiao and Zhang 2021. The proof for the span is at `accountants.losses.selection`.

    See Also
    --------
    Exponential, PermuteAndFlip : the same laws as with Gumbel and exponential noise.

    Examples
    --------
    >>> NoisyMax(scale=2.0).loss(distance=1.0)
    LaplaceNoisyMax(epsilon=1.0)
    >>> NoisyMax(scale=2.0, noise="gumbel").loss(distance=1.0, span=1.0)
    GumbelNoisyMax(epsilon=0.5)
    """

    is_selection: ClassVar[bool] = True
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = (
        "report noisy max: Dwork & Roth 2014, Claim 3.9; Durfee & Rogers 2019, Lemma 4.2; "
        "Ding et al. 2021"
    )
    sampler: ClassVar[str] = f"report noisy max, {EXACT_CHOICE}"

    noise: str = attrs.field(
        default="laplace", validator=checked(_NOISES.__contains__, f"one of {', '.join(_NOISES)}")
    )

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the index of the largest score after noise, shape ()."""
        scores = finite_scores(value)
        # Ding et al. 2021: exponential noise has the law of permute-and-flip
        if self.noise == "exponential":
            return np.array(_permute_and_flip(scores, self.scale, stream))
        # Gumbel noise has the law of the exponential mechanism
        if self.noise == "gumbel":
            return np.array(_choose_by_score(scores, self.scale, stream))
        return np.array(_laplace_argmax(scores, self.scale, stream))

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of scores that move by at most ``distance``, and apart by ``span``."""
        # monotone scores of sensitivity s have the span s, and the loss s / b
        sensitivity = span_bound(distance, span)
        return report_noisy_max(self.scale, sensitivity, noise=self.noise, monotone=True)


def _laplace_argmax(scores: Floats, scale: float, stream: Stream) -> int:
    """Return the index of the largest of ``score + scale * Laplace``, compared exactly."""
    # lazily drawn: each noise gains bits only as comparisons need them
    return _largest([(score, laplace(stream)) for score in scores.tolist()], scale)


def _largest(candidates: Sequence[tuple[float, Real]], scale: float) -> int:
    """Return the index of the largest ``score + scale * noise``."""
    best = 0
    for i, (score, noise) in enumerate(candidates):
        best_score, best_noise = candidates[best]
        # the best so far stays while its noisy score less this one's is not negative
        terms = ((scale, best_noise), (-scale, noise))
        if i and not is_nonnegative_sum((best_score, -score), terms):
            best = i
    return best


class NoisyMaxWithGap(_Scored):
    """Report noisy max with Laplace noise, and by how much the largest noisy score leads: free.

    Privacy: ``epsilon = s / b`` as without the gap, s the span, the most by which the moves of two
    scores differ. Fix the noise of all scores but the i-th. The outcome "i, with the gap g" needs
    one value of i's noise: g more than what the best other noisy score leads q_i by. Between
    neighbours the best other noisy score moves by at most as much as one of the others does, in
    that direction, and q_i by its own move: the value that is needed moves by at most s, and
    the density of Laplace noise there by a factor of at most ``e^{s/b}``.

    Parameters
    ----------
    scale
        b, in the units of the scores.

    Notes
    -----
    Noise: `adaptive_dp.noise.continuous`, as many bits as comparisons and the rounding need: the
    exact gap is rounded to a multiple of a power of two near ``2^-20 b``, which is post-processing
    of the law above. A single score has no gap: 0.

    References
    ----------
    Ding, Wang, Zhang and Kifer 2019, "Free gap information from the differentially private sparse
    vector and noisy max mechanisms" (the proof above is for the span).

    See Also
    --------
    NoisyMax : the choice alone.

    Examples
    --------
    >>> NoisyMaxWithGap(scale=2.0).loss(distance=1.0)
    LaplaceNoisyMax(epsilon=1.0)
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B", "C"]})
    >>> plan = dp.Pipeline(town=people["town"].histogram().release(NoisyMaxWithGap(scale=2.0)))
    >>> town, gap = plan.simulate(seed=1, people={"town": ["C"] * 90 + ["A"] * 60})["town"]
    >>> town, round(gap, 2)
    ('C', 31.96)
    """

    is_selection: ClassVar[bool] = True
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "report noisy max with gap: Ding, Wang, Zhang & Kifer 2019"
    sampler: ClassVar[str] = f"report noisy max with its gap, {EXACT_CHOICE}"

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the index of the largest score after noise, and its lead, shape (2,)."""
        candidates = [(score, laplace(stream)) for score in finite_scores(value).tolist()]
        best = _largest(candidates, self.scale)
        others = candidates[:best] + candidates[best + 1 :]
        if not others:
            return np.array([best, 0.0])
        (score, noise), (second, its_noise) = candidates[best], others[_largest(others, self.scale)]
        unit = 2.0 ** max(-1022, math.frexp(self.scale)[1] - 20)
        terms = ((self.scale, noise), (-self.scale, its_noise))
        gap = nearest_sum((score, -second), terms, unit) * Fraction(unit)
        return np.array([best, float(min(gap, Fraction(sys.float_info.max)))])

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return (2,): an index and a gap."""
        return (2,)

    def named(self, raw: Any, name: Callable[[float], Any]) -> tuple[Any, float]:
        """Return the candidate and the gap."""
        return name(float(raw[0])), float(raw[1])

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss of scores that move by at most ``distance``, and apart by ``span``."""
        sensitivity = span_bound(distance, span)
        return report_noisy_max(self.scale, sensitivity, noise="laplace", monotone=True)


# -----------------------------------------------------------------------------
# The exponential mechanism on a grid, for scores that are constant between data points.


class QuantileExponential(_Scored):
    """Choose a number t of a grid, such as a median, with probability ~ ``e^{q(t) / b}``.

    Privacy: that of `Exponential`: a bounded range of ``epsilon = s / b``, where s is the span of
    the moves of q, at most 2 Delta. Several numbers that are chosen from disjoint rows are charged
    as one, with the sum of the moves of their scores.

    Parameters
    ----------
    scale
        b, in the units of the score q: ranks, for a quantile.

    Notes
    -----
    The numbers are multiples of a unit in the declared bounds, which alone determine it. The rows
    of each number are spread evenly over 2^24 points (`adaptive_dp.queries.order_statistics`), so
    that a number that many rows have in common has many points of a good score. Between two rows q
    is constant, so the probability of such an interval is proportional to the number of its points
    times ``e^{q/b}``, and inside of it all points are equally likely. Every number has a positive
    probability, whatever the data: neighbours reach the same numbers.

    Noise: `adaptive_dp.noise.choice.choose`, then a uniform integer from `uniform_below`; both
    laws are exact.

    References
    ----------
    McSherry and Talwar 2007, Thm 6; Smith 2011, Alg. 2 (of quantiles, by intervals).

    See Also
    --------
    Exponential : a choice among candidates that can be listed.

    Examples
    --------
    >>> QuantileExponential(scale=2.0).loss(distance=0.5)
    BoundedRange(epsilon=0.5)
    """

    input_type: ClassVar[type] = Ranked
    no_interval: ClassVar[str] = (
        "its rank is known, not the values around it; declare it with interval=0.95, which "
        "releases two ends too"
    )
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; Smith 2011, Alg. 2"
    sampler: ClassVar[str] = f"exponential mechanism on a grid, {EXACT_CHOICE}"

    def release(self, value: Ranked, stream: Stream) -> NDArray[Any]:
        """Return the chosen number, shape (), or one for each of the value's choices."""
        ranked = value.at(self.scale)
        return ranked.numbers([self._choose(*steps, stream) for steps in ranked.steps()])

    def _choose(self, starts: NDArray[np.int64], scores: Floats, stream: Stream) -> int:
        """Return a point; those from ``starts[i]`` to ``starts[i + 1] - 1`` have the i-th score."""
        counts = np.diff(starts)
        # an interval without points has no weight; an exact choice needs positive counts
        occupied = np.flatnonzero(counts)
        gaps, exact_gap = scaled_gaps(finite_scores(scores)[occupied], self.scale)
        interval = occupied[choose(gaps, exact_gap, counts[occupied], stream)]
        # the interval's points are equally likely, since their scores are equal
        return int(starts[interval]) + uniform_below(int(counts[interval]), stream)


def uniform_below(count: int, stream: Stream) -> int:
    """Return a uniform integer in [0, count), exactly.

    A word is drawn again where it lies above the last multiple of ``count``, so that all residues
    are equally likely.
    """
    words = max(1, -(-count.bit_length() // 64))
    span = 2 ** (64 * words)
    # the largest multiple of `count` up to the span
    limit = (span // count) * count
    while True:
        number = 0
        for word in stream.words(words).tolist():
            number = number << 64 | int(word)
        # numbers below the limit are uniform over the residues
        if number < limit:
            return number % count
