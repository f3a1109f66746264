"""Aggregators: how teachers' votes become released answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import (
    Approximate,
    Composite,
    ConfidentVotes,
    GaussianBound,
    GaussianVotes,
    LaplaceVotes,
    PrivacyLoss,
    Pure,
    report_noisy_max,
)
from accountants.numerics import up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, post
from adaptive_dp.graph.mechanism import Free, Mechanism, budget_parameter, noise_parameter
from adaptive_dp.graph.values import as_int, number
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.mechanisms.selection import EXACT_CHOICE
from adaptive_dp.mechanisms.smooth_sensitivity import (
    charged_epsilon,
    delta_parameter,
    group_loss,
    noise_epsilon,
)
from adaptive_dp.mechanisms.sparse_vector import check_count, check_threshold
from adaptive_dp.noise import lattice
from adaptive_dp.noise.continuous import exponential, is_nonnegative_sum, nearest
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import Ballots, BallotsDomain, VoteCounts, check_probabilities

# -----------------------------------------------------------------------------
# Noise on counts in multiples of a step, added and compared as integers.
#
# A step is a power of two that divides 1, so that counts are multiples of it, and at least
# `FINEST`: 2^30 votes are 2^50 steps, and noise, clamped to 2^62 steps, is added to them in 64
# bits. So the comparisons of the proofs below are exact.


Steps = NDArray[np.int64]

FINEST = 2.0**-20
"""The finest step, in votes: counts are integers, so finer noise would make no difference."""

MAX_SCALE = 2.0**40
"""The largest scale of noise, in votes, above any number of teachers; 2^62 steps are 2^22 scales of
it, so that clamping has negligible probability."""


def step(scale: float) -> float:
    """Return the step of noise of this scale, in votes."""
    # at most 1, so that counts are integer numbers of steps
    return min(max(lattice.step(scale), FINEST), 1.0)


def to_steps(counts: NDArray[Any], unit: float) -> Steps:
    """Return counts of at most 2^30 as numbers of steps."""
    # exact: 1 / unit is a power of two
    return counts.astype(np.int64) * int(1 / unit)


def reaches(values: Steps, threshold: float, unit: float) -> NDArray[np.bool_]:
    """Return which values, in steps, are at least a threshold in votes."""
    # values are integers, so rounding the threshold up changes no comparison; clamped to 64 bits
    threshold_steps = min(max(math.ceil(threshold / unit), -(2**63)), 2**63 - 1)
    return values >= np.int64(threshold_steps)


def check_noise(scale: float, name: str) -> None:
    """Refuse a scale above `MAX_SCALE`.

    Raises
    ------
    DeclarationError
        If the scale is too large.
    """
    if not scale <= MAX_SCALE:
        raise DeclarationError(
            f"{name} must be at most {MAX_SCALE:g}, got {scale:g}: it would hide all votes"
        )


# -----------------------------------------------------------------------------
# GNMax: the class with the most votes after Gaussian noise.


MAX_SIGMA = 2.0**49
"""The largest sigma, in votes; beyond it there is no exact sampler."""


NO_NUMBER = "it is the class that noisy votes have chosen, not a number with noise"
"""Why what aggregators release has no interval."""


class _Aggregator(Mechanism):
    """The base of aggregators: they read vote counts, and distances count changed teachers."""

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    no_interval: ClassVar[str] = NO_NUMBER


class GNMax(_Aggregator):
    """Add N(0, sigma^2) to the votes of each class, and release which has the most.

    One teacher changes one vote: one count falls by 1 and another rises by 1, an l2 sensitivity of
    sqrt 2, so ``mu = sqrt(2) / sigma`` for each question by the Gaussian mechanism. It is an upper
    bound, since of the noisy counts only the position of the largest is released
    (post-processing).

    Parameters
    ----------
    sigma
        The noise's standard deviation, in votes.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Sec. 4.1 (GNMax); Dong, Roth
    and Su 2022, Thm 2 (the Gaussian's exact loss).

    Examples
    --------
    >>> GNMax(sigma=40.0).cost(1.0, 100, 1.0).mu().__round__(6)
    0.353553
    """

    theorem: ClassVar[str] = "GNMax: Papernot et al. 2018, sec. 4.1; Dong, Roth & Su 2022, Thm 2"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step"

    sigma: float = noise_parameter("sigma")

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, the first of equals; shape (questions,)."""
        return noisy_argmax(value.counts, self.sigma, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return GaussianBound(argmax_mu(distance, self.sigma))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        # m adaptive releases of mu-GDP each are sqrt(m) mu-GDP; rounded up: mu may only be too
        # large
        return GaussianBound(up(argmax_mu(distance, self.sigma) * math.sqrt(dimension), 4))

    def votes(self, teachers: int, classes: int) -> GaussianVotes:
        """Return the loss of one question, as a function of its counts."""
        return GaussianVotes(self.sigma, classes, teachers)


def noisy_argmax(counts: NDArray[Any], sigma: float, stream: Stream) -> NDArray[np.float64]:
    """Return the position of the largest of ``counts + N(0, sigma^2)``, along the last axis."""
    return np.asarray(np.argmax(noisy_counts(counts, sigma, stream), axis=-1), dtype=np.float64)


def noisy_counts(counts: NDArray[Any], sigma: float, stream: Stream) -> NDArray[np.float64]:
    """Return integer counts plus N(0, sigma^2), rounded to a power of two that divides 1.

    Rounding is a function of the exact sums (post-processing), so it does not add to the loss.
    """
    unit = min(lattice.step(sigma), 1.0)
    # noise in units of the step, so that counts plus noise lie on the grid
    noise = rounded_gaussian(stream, sigma / unit, counts.size)
    return lattice.noisy(counts.astype(np.float64), noise.reshape(-1), unit)


def argmax_mu(teachers: float, sigma: float) -> float:
    """Return mu of noisy counts where so many votes change: ``teachers sqrt(2) / sigma``."""
    if not sigma <= MAX_SIGMA:
        raise DeclarationError(
            f"sigma must be at most {MAX_SIGMA:g}, got {sigma:g}: it would hide all votes"
        )
    # rounded up: a loss may only be charged too high
    return up(changed_teachers(teachers) * math.sqrt(2) / sigma, 4)


def changed_teachers(distance: float) -> int:
    """Return the number of teachers that change, from a distance rounded up by a few ulps."""
    # the least integer, but not one more for a few ulps
    return math.ceil(distance * (1 - 1e-12))


# -----------------------------------------------------------------------------
# LNMax: the class with the most votes after Laplace noise.


class LNMax(_Aggregator):
    """Add Laplace noise of scale b to the votes of each class, and release which has the most.

    ``epsilon = 2 t / b`` for each question, where t teachers change.

    Proof (the vote-gap argument). A vote that changes takes 1 from one count and adds 1 to another,
    so t of them change the gap between two counts by at most 2 t. Hold the noise of all classes but
    one fixed: this class wins where its own noise is at least some x, and on the neighbour x
    differs by at most 2 t. Noise is rounded to steps that divide 1, so x is an integer number of
    steps (and a half: continuous noise is rounded to the nearest), as is its change; the
    probability of at least x falls by a factor of at most ``e^{2 t / b}`` (see
    `accountants.losses.selection`).

    Parameters
    ----------
    scale
        b, in votes.

    References
    ----------
    Papernot, Abadi, Erlingsson, Goodfellow and Talwar 2017, Sec. 3.1; Dwork and Roth 2014, Claim
    3.9.

    Examples
    --------
    >>> LNMax(scale=20.0).loss(1.0).pure()
    0.1
    """

    theorem: ClassVar[str] = "LNMax: Papernot et al. 2017, sec. 3.1; Dwork & Roth 2014, Claim 3.9"
    sampler: ClassVar[str] = "Laplace, exact, rounded to a power-of-two step"

    scale: float = noise_parameter("b")

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, the first of equals; shape (questions,)."""
        counts, unit = value.counts, step(self.scale)
        noise = rounded_laplace(stream, self.scale / unit, counts.size).reshape(counts.shape)
        # integers are compared, as the proof needs
        return np.asarray(np.argmax(to_steps(counts, unit) + noise, axis=1), dtype=np.float64)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        check_noise(self.scale, "scale")
        # t votes change gaps by at most 2 t: noisy max with sensitivity 2 t, one-sided
        return report_noisy_max(
            self.scale, 2 * changed_teachers(distance), noise="laplace", monotone=True
        )

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        loss = self.loss(distance)
        # no teacher changes: no number of questions has a loss
        if loss.pure() == 0:
            return Pure(0.0)
        return loss if dimension == 1 else Composite({loss: dimension})

    def votes(self, teachers: int, classes: int) -> LaplaceVotes:
        """Return the loss of one question, as a function of its counts."""
        return LaplaceVotes(self.scale, classes, teachers)


# -----------------------------------------------------------------------------
# Plurality: the class with the most votes without noise, for comparison.


class Plurality(_Aggregator):
    """Release the class with the most votes without noise: not private, and certified so.

    One vote may decide a question, so no epsilon holds at any delta below 1: the certificate says
    infinity, `Pipeline.run` refuses, and `Pipeline.simulate` compares utility.

    Examples
    --------
    >>> Plurality().loss(1.0).delta_floor()
    1.0
    """

    theorem: ClassVar[str] = "none: released without noise"
    sampler: ClassVar[str] = "none"

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes, the first of equals; shape (questions,)."""
        return np.asarray(np.argmax(value.counts, axis=1), dtype=np.float64)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return a loss of delta 1, or 0 where no teacher changes."""
        # delta 1 and epsilon 0: no accountant finds a finite epsilon at a delta below 1
        return Approximate(0.0, 1.0) if changed_teachers(distance) else Pure(0.0)


# -----------------------------------------------------------------------------
# Confident-GNMax: answers only where the largest count passes a noisy threshold.


_answers_check = checked(
    lambda v: v is None or 1 <= (as_int(v) or 0) <= 10**9,
    "an int of at least 1, or None to answer every question that passes",
)


class _CheckedGNMax(_Aggregator):
    """The base of GNMax after a noisy check: its parameters, the check, answers and loss."""

    sampler: ClassVar[str] = GNMax.sampler

    threshold: float = attrs.field(converter=number, validator=check_threshold)
    sigma_check: float = noise_parameter("sigma_check")
    sigma: float = noise_parameter("sigma")
    answers: int | None = attrs.field(default=None, converter=number, validator=_answers_check)

    def check_questions(self, values: Steps, unit: float, stream: Stream) -> NDArray[np.bool_]:
        """Return which questions pass: ``value + N(0, sigma_1^2) >= T``, the first ``answers``.

        Parameters
        ----------
        values
            Numbers of steps, shape (questions,).
        unit
            The step, in votes.
        stream
            The source of randomness.
        """
        noise = rounded_gaussian(stream, self.sigma_check / unit, len(values))
        passed = reaches(values + noise, self.threshold, unit)
        if self.answers is not None:  # the proof pays for at most c answers
            passed &= np.cumsum(passed) <= self.answers
        return passed

    def answer_passed(
        self, value: VoteCounts, passed: NDArray[np.bool_], stream: Stream
    ) -> NDArray[np.float64]:
        """Return GNMax's answers to the questions that passed, NaN for the others."""
        released = np.full(len(value.counts), np.nan)
        # noise independent of the check's, and only for questions that passed: which these are is
        # released anyway
        released[passed] = noisy_argmax(value.counts[passed], self.sigma, stream)
        return released

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` checks, and of the largest number of answers.

        ``mu^2 = m t^2 / sigma_1^2 + min(c, m) 2 t^2 / sigma_2^2``; see `ConfidentGNMax`.
        """
        check_noise(self.sigma_check, "sigma_check")
        check_noise(self.sigma, "sigma")
        teachers = changed_teachers(distance)
        if teachers == 0:
            return Pure(0.0)
        # the worst case: all answers are given that the limit allows
        most_answers = dimension if self.answers is None else min(self.answers, dimension)
        checks = math.sqrt(dimension) / self.sigma_check
        return GaussianBound(
            # the squares of mu add: hypot(sqrt(m) / sigma_1, sqrt(2 c) / sigma_2) for each teacher
            up(teachers * math.hypot(checks, math.sqrt(2 * most_answers) / self.sigma), 16)
        )


class ConfidentGNMax(_CheckedGNMax):
    """Answer a question by GNMax if its largest count, with noise, reaches a threshold.

    With sigma_1 the check's noise and sigma_2 that of GNMax, independent of it: for m questions of
    which at most c are answered, and t teachers that change,

        ``mu^2 = m t^2 / sigma_1^2 + min(c, m) 2 t^2 / sigma_2^2``.

    Proof. The largest count changes by at most t, all counts by at most ``t sqrt 2`` in l2: so each
    check is Gaussian with ``mu_i <= t / sigma_1``, each answer with ``t sqrt 2 / sigma_2``. Which
    of them are made depends on earlier outcomes, but the sum of their mu_i^2 is always at most
    mu^2, and that suffices: take two neighbours, and a Brownian motion W whose drift is 0 for one
    of them, 1 for the other, observed up to time mu^2. Each step takes the next ``mu_i^2`` of the
    time. W grows in it by N(0, mu_i^2) or N(mu_i^2, mu_i^2): divided by mu_i, this is the step's
    noisy value in the direction in which the neighbours differ; the noise in other directions is
    independent of them. So the output is a function of W up to mu^2, whose end, N(0, mu^2) against
    N(mu^2, mu^2), is a sufficient statistic: a pair of Gaussians mu apart. (This is full adaptive
    composition of GDP: Smith and Thakurta 2022.)

    A question that is not answered gives -1. Once c questions are answered, the rest are neither
    checked nor answered.

    Parameters
    ----------
    threshold
        T, in votes: a public number, chosen without looking at votes.
    sigma_check, sigma
        sigma_1 and sigma_2, in votes.
    answers
        c; None for no limit.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Alg. 1; Smith and Thakurta
    2022; the proof is our own.

    Examples
    --------
    >>> mechanism = ConfidentGNMax(threshold=200, sigma_check=150.0, sigma=40.0, answers=286)
    >>> mechanism.cost(1.0, 640, 1.0).mu().__round__(6)
    0.621244
    """

    theorem: ClassVar[str] = "Confident-GNMax: Papernot et al. 2018; Smith & Thakurta 2022"

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        # the step of the check's noise; the answers have noise and a step of their own
        unit = step(self.sigma_check)
        largest = to_steps(value.counts.max(axis=1), unit)
        passed = self.check_questions(largest, unit, stream)
        return self.answer_passed(value, passed, stream)

    def votes(self, teachers: int, classes: int) -> ConfidentVotes:
        """Return the loss of one question, as a function of its counts.

        Noise is rounded to the nearest step, so a question passes where continuous noise reaches a
        threshold half a step below a multiple of it. A question that is not checked loses nothing.
        """
        unit = step(self.sigma_check)
        # ceil(T / unit) steps are reached from half a step below, where rounding to nearest goes up
        threshold = (math.ceil(self.threshold / unit) - 0.5) * unit
        return ConfidentVotes(threshold, self.sigma_check, self.sigma, classes, teachers)


# -----------------------------------------------------------------------------
# Confident-GNMax in two steps of a session: the check first, then the answers that it allows.


class VoteCheck(_Aggregator):
    """Say for each question whether its largest count, with noise, reaches a threshold: 1 or 0.

    It is the first half of `ConfidentGNMax`, as a release of its own. For m questions and t
    teachers that change, ``mu = sqrt(m) t / sigma``: the largest count of each moves by at most t.

    Parameters
    ----------
    threshold
        T, in votes: a public number, chosen without looking at votes.
    sigma
        Of the noise, in votes.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Alg. 1, line 1; Smith and
    Thakurta 2022.

    See Also
    --------
    confident_answers : both halves, in a session.

    Examples
    --------
    >>> VoteCheck(threshold=200, sigma=150.0).cost(1.0, 225, 1.0).mu().__round__(6)
    0.1
    """

    theorem: ClassVar[str] = "Gaussian mechanism on largest counts: Papernot et al. 2018, Alg. 1"
    sampler: ClassVar[str] = GNMax.sampler

    threshold: float = attrs.field(converter=number, validator=check_threshold)
    sigma: float = noise_parameter("sigma_check")

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return 1 where the check passes, else 0; shape (questions,)."""
        unit = step(self.sigma)
        largest = to_steps(value.counts.max(axis=1), unit)
        noise = rounded_gaussian(stream, self.sigma / unit, len(largest))
        return reaches(largest + noise, self.threshold, unit).astype(np.float64)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        check_noise(self.sigma, "sigma")
        return GaussianBound(up(changed_teachers(distance) * math.sqrt(dimension) / self.sigma, 8))


class PassedGNMax(_Aggregator):
    """Answer by GNMax the questions that a released check has passed, so many at most.

    Released with ``given=[passed]``, shape (questions,), 1 for a question that is to be answered
    and 0 for others, which get -1. Whatever it holds, at most ``most`` questions are answered, the
    first: ``mu = sqrt(2 most) t / sigma`` for t teachers that change. In a session ``most`` may be
    the number of those that passed, which is public then.

    Parameters
    ----------
    sigma
        Of the noise, in votes.
    most
        How many questions are answered, at most.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Alg. 1, line 2; Smith and
    Thakurta 2022.

    See Also
    --------
    confident_answers : with the check, in a session.

    Examples
    --------
    >>> PassedGNMax(sigma=40.0, most=8).cost(1.0, 500, 1.0).mu().__round__(6)
    0.1
    """

    released_inputs: ClassVar[int] = 1
    theorem: ClassVar[str] = GNMax.theorem
    sampler: ClassVar[str] = GNMax.sampler

    sigma: float = noise_parameter("sigma")
    most: int = attrs.field(converter=number, validator=check_count)

    def release(self, value: VoteCounts, stream: Stream, *given: Any) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        passed = np.zeros(len(value.counts), dtype=bool)
        # what is of another length, or not 1, is not answered
        asked = np.ravel(np.asarray(given[0], dtype=np.float64))[: len(passed)]
        passed[: len(asked)] = asked == 1
        passed &= np.cumsum(passed) <= self.most
        released = np.full(len(passed), np.nan)
        released[passed] = noisy_argmax(value.counts[passed], self.sigma, stream)
        return released

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of the largest number of answers among ``dimension`` questions."""
        mu = argmax_mu(distance, self.sigma)
        return GaussianBound(up(mu * math.sqrt(min(self.most, dimension)), 4))


def confident_answers(
    run: Callable[..., Any],
    votes: Ballots,
    *,
    threshold: float,
    sigma_check: float,
    sigma: float,
    name: str = "",
) -> NDArray[np.int64]:
    """Return Confident-GNMax's answers, paid for by what was answered: two steps of a session.

    The first step checks all questions, and the second answers those that have passed. What the
    second costs follows from how many these are, which the first has released: so the session pays
    ``mu^2 = m t^2 / sigma_1^2 + k 2 t^2 / sigma_2^2`` for m questions of which k were answered,
    where `ConfidentGNMax` in a plan pays for all that may be. That a sum of squares of mu that
    depends on released values may be held against a budget is the theorem of the session's filter
    (Smith and Thakurta 2022; for Renyi divergences Feldman and Zrnic 2021).

    Parameters
    ----------
    run
        ``session.run``, or that of a part.
    votes
        The teachers' votes.
    threshold, sigma_check, sigma
        As of `ConfidentGNMax`: T, sigma_1 and sigma_2, in votes.
    name
        Of the steps.

    Raises
    ------
    BudgetError
        If the check, or the answers after it, do not fit. The check is paid for then; fewer answers
        may fit, by `PassedGNMax` of a smaller ``most``.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=50, classes=3)
    >>> counts = np.array([[230, 10, 10] if i < 10 else [90, 80, 80] for i in range(50)])
    >>> budget = dp.Budget(2.0, 1e-6)
    >>> with dp.Session(budget=budget, seed=1, votes={"counts": counts}) as session:
    ...     answers = confident_answers(
    ...         session.run, votes, threshold=180, sigma_check=40.0, sigma=30.0
    ...     )
    ...     paid = session.spent.costs[1]
    >>> worst = ConfidentGNMax(180, 40.0, 30.0).cost(1.0, 50, 1.0).mu() ** 2
    >>> int((answers >= 0).sum()), round(paid, 4), round(worst, 4)
    (10, 0.0535, 0.1424)
    """
    check = votes.release(VoteCheck(threshold, sigma_check))
    passed = np.asarray(run(check, name=f"{name or 'votes'}, check"))
    most = int((passed == 1).sum())
    if most == 0:
        return np.full(passed.shape, -1, dtype=np.int64)
    answers = votes.release(PassedGNMax(sigma, most), given=[check])
    return np.asarray(run(answers, name=f"{name or 'votes'}, answers"), dtype=np.int64)


# -----------------------------------------------------------------------------
# Interactive-GNMax: answers by votes only where the teachers contradict the student.


class InteractiveGNMax(_CheckedGNMax):
    """Answer by GNMax where the teachers contradict the student, else by the student's own class.

    With K teachers, votes n and the student's probabilities p, which are released: a question
    passes if ``max_j (n_j - K p_j) + N(0, sigma_1^2) >= T``, and is answered by GNMax with
    independent noise sigma_2. One that does not pass, or is no longer checked, gets the student's
    own most probable class if its probability is above ``confidence`` (which reads no votes), else
    -1.

    Its loss is that of `ConfidentGNMax`, by the same proof: p is the same for both neighbours, so
    the largest of ``n_j - K p_j`` changes by at most 1 for each teacher that changes. ``K p_j`` is
    rounded to a multiple of the step before votes are added.

    Parameters
    ----------
    threshold
        T, in votes: a public number, chosen without looking at votes.
    sigma_check, sigma
        sigma_1 and sigma_2, in votes.
    confidence
        In [0, 1].
    answers
        How many questions are answered by votes at most; the rest are not checked. None for all.

    Released with ``given=[probabilities]``, shape (questions, classes), in [0, 1].

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018, Alg. 2.

    Examples
    --------
    >>> mechanism = InteractiveGNMax(200, 150.0, 40.0, confidence=0.95, answers=286)
    >>> mechanism.cost(1.0, 640, 1.0).mu().__round__(6)
    0.621244
    """

    released_inputs: ClassVar[int] = 1
    theorem: ClassVar[str] = "Interactive-GNMax: Papernot et al. 2018; Smith & Thakurta 2022"

    confidence: float = attrs.field(  # type: ignore[misc]  # after `answers` of the base
        converter=number,
        validator=checked(lambda v: is_number(v) and 0 <= v <= 1, "a number from 0 to 1"),
    )
    # declared again, since it comes after the confidence
    answers: int | None = attrs.field(default=None, converter=number, validator=_answers_check)

    def admissible(self, given: Released[Any], ballots: BallotsDomain) -> Released[Any]:
        """Return the probabilities, checked as released values when the plan runs."""
        sizes = {"questions": ballots.questions, "classes": ballots.classes}
        return post(check_probabilities, given, **sizes)

    def release(self, value: VoteCounts, stream: Stream, *given: Any) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        counts, unit = value.counts, step(self.sigma_check)
        sizes = {"questions": counts.shape[0], "classes": counts.shape[1]}
        # checked again at the run: a caller may pass others than the plan's
        student = check_probabilities(given[0], **sizes)
        # K p_j in steps: a function of released values, the same for neighbours
        expected = np.rint(value.teachers * student / unit).astype(np.int64)
        excess = (to_steps(counts, unit) - expected).max(axis=1)
        passed = self.check_questions(excess, unit, stream)
        released = self.answer_passed(value, passed, stream)
        # this branch reads released probabilities and `passed`, no votes
        use_own = ~passed & (student.max(axis=1) > self.confidence)
        released[use_own] = np.argmax(student[use_own], axis=1)
        return released


# -----------------------------------------------------------------------------
# Exact answers where they are stable: a private test of distances to instability.


class StableVotes(_Aggregator):
    """Release the exact class of most votes where it is stable under few changed votes.

    With the gap between the two largest counts, a question's distance to instability is ``d =
    max(0, ceil(gap / 2) - 1)``: so many votes can change without a change of the answer. A question
    *passes* if ``d >= R + G``, and is answered exactly; else it *fails*, and the answer is -1. R is
    drawn once, from 1 to K with probabilities in proportion to ``e^{R/b}``: it is near K. G >= 0 is
    drawn for each question, with ``P(G >= j) = e^{-j/b_2}``. After c failures no more are answered.
    K is the least with ``P(R = 1) <= failure``, about ``b log(1 / (b failure))``.

    (epsilon, failure)-DP for one teacher that changes, however many questions there are, where
    ``epsilon = 1/b + 2c/b_2``.

    Proof. One vote that changes alters a gap by at most 2, d by at most 1. If neighbours have
    different answers, in whichever way ties are broken, both gaps are at most 2, so that both d are
    0; and such a question fails on both, since R is at least 1. So the output is one and the same
    function of the bits "passed" and "failed". Compare these bits on one data set given R = r with
    those on its neighbour given r - 1, for r >= 2. ``k = d - r`` becomes k', from k to k + 2. A
    question fails with probability ``h(k) = min(1, e^{-(k + 1)/b_2})``, which falls in k: one that
    passes is as likely to pass there, and one that fails at least ``e^{-2/b_2}`` times as likely to
    fail, of which there are at most c. And ``P(R = r) = e^{1/b} P(R = r - 1)``. Together, for any
    set S of outputs, and either of two neighbours as the first,

        ``P(S) <= P(R = 1) + e^{1/b + 2c/b_2} P'(S)``.

    So only failures are paid for with noise on questions, and it goes one way: it may fail a stable
    question, but never passes one of d = 0. A tail of noise that may do so (two-sided noise, as of
    a sparse vector on distances) would have to be less than the failure for all questions together.
    Several teachers: by group privacy.

    Parameters
    ----------
    epsilon, failure
        For one changed teacher.
    failures
        c. Only these cost privacy, not the questions.

    Notes
    -----
    Any b and b_2 of that epsilon will do. For m questions and ``x^2 = 2c log(1 + m/c) /
    log(1/failure)`` they are ``b = (1 + x) / epsilon`` and ``b_2 = 2c (1 + x) / (x epsilon)``: the
    least ``b log(1/failure) + b_2 log(1 + m/c)``, from about where on m stable questions use up no
    more than c failures. Noise is drawn exactly, from `adaptive_dp.noise.continuous.exponential`.

    References
    ----------
    After Bassily, Thakkar and Guha Thakurta 2018 (a sparse vector on distances to instability); the
    test and its proof are our own.

    Examples
    --------
    >>> StableVotes(epsilon=1.0, failure=1e-6, failures=10).loss(1.0)
    Approximate(epsilon=1.0, delta=1e-06)
    >>> StableVotes(epsilon=0.5, failure=1e-6, failures=7).noise(1000)  # b, b_2 and K
    (6.487..., 40.478..., 79)
    """

    theorem: ClassVar[str] = (
        "one-sided test of distances to instability: after Bassily, Thakkar & Guha Thakurta 2018"
    )
    sampler: ClassVar[str] = f"geometric threshold, continuous exponential noise, {EXACT_CHOICE}"

    epsilon: float = budget_parameter("epsilon")
    failure: float = delta_parameter()
    failures: int = attrs.field(default=1, converter=number, validator=check_count)

    def noise(self, questions: int) -> tuple[float, float, int]:
        """Return b, b_2 and K for so many questions.

        Raises
        ------
        DeclarationError
            If ``epsilon`` is still to be calibrated.
        """
        if isinstance(self.epsilon, Free):
            raise DeclarationError(
                f"the noise of StableVotes depends on epsilon, got {self.epsilon!r}; calibrate the "
                "plan first"
            )
        epsilon = noise_epsilon(self.epsilon)
        sure = max(1.0, -math.log(self.failure))
        x = math.sqrt(2 * self.failures * math.log1p(questions / self.failures) / sure)
        # 1/b + 2c/b_2 = epsilon: 1e-12 is more than the roundings, so both scales are rounded up
        scale = (1 + x) / epsilon * (1 + 1e-12)
        wide = 2 * self.failures * (1 + 1 / x) / epsilon * (1 + 1e-12)
        # P(R = 1) = (e^{1/b} - 1) / (e^{K/b} - 1) <= failure, solved for K and rounded up; the
        # logarithm of e^{1/b} - 1 is 1/b + log(1 - e^{-1/b}), which cannot overflow
        odds = 1 / scale + math.log(-math.expm1(-1 / scale)) - math.log(self.failure)
        most = math.ceil(scale * float(np.logaddexp(0.0, odds)) * (1 + 1e-12))
        return scale, wide, max(1, most)

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        counts = value.counts
        scale, wide, most = self.noise(max(1, len(counts)))
        # R = K - floor(b E), drawn again where it is below 1: P(R = r) ~ e^{r/b}, r from 1 to K
        least = 0
        while least < 1:
            # the integer nearest to b E - 1/2 is floor(b E)
            least = most - nearest(-0.5, scale, exponential(stream), 1.0)
        passed, left = np.zeros(len(counts), dtype=bool), self.failures
        for i, distance in enumerate(distances(counts).tolist()):
            if not left:
                break
            # floor(b_2 E) <= d - R where b_2 E < d - R + 1; as floats these integers are exact up
            # to 2^53, and where R is larger no question passes
            terms = ((-wide, exponential(stream)),)
            passed[i] = is_nonnegative_sum((float(distance - least + 1),), terms)
            left -= not passed[i]
        return np.where(passed, np.argmax(counts, axis=1), np.nan)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of any number of questions where ``distance`` teachers change."""
        return group_loss(Approximate(charged_epsilon(self.epsilon), self.failure), distance)


def distances(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the distances to instability of counts of shape (m, classes); shape (m,).

    A single class is compared with a second one that gets no votes.
    """
    # the gap to a class without votes is the count itself
    if counts.shape[1] == 1:
        counts = np.column_stack([counts, np.zeros_like(counts)])
    top_two = np.partition(counts.astype(np.int64), -2, axis=1)[:, -2:]
    # ceil(gap / 2) - 1 in integers
    return np.asarray(np.maximum(0, (top_two[:, 1] - top_two[:, 0] + 1) // 2 - 1), dtype=np.int64)
