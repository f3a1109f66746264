"""Aggregators: how teachers' votes become released answers."""

from __future__ import annotations

import math
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
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter, noise_parameter
from adaptive_dp.graph.values import number, whole
from adaptive_dp.mechanisms.selection import EXACT_CHOICE
from adaptive_dp.mechanisms.smooth_sensitivity import (
    charged_epsilon,
    delta_parameter,
    group_loss,
    noise_epsilon,
)
from adaptive_dp.mechanisms.sparse_vector import SparseVector, check_count, check_threshold
from adaptive_dp.noise import lattice
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import BallotsDomain, VoteCounts, check_probabilities

# -----------------------------------------------------------------------------
# Noise on counts in whole steps, added and compared as integers.
#
# A step is a power of two that divides 1, so that counts are whole steps, and at least `FINEST`:
# 2^30
# votes are 2^50 steps, and the noise, clamped to 2^62 steps, can be added to them in 64 bits.


Steps = NDArray[np.int64]

FINEST = 2.0**-20
"""Votes; finer noise would say nothing more about whole numbers."""

MAX_SCALE = 2.0**40
"""Noise beyond this drowns all votes there can be (and at it, 2^62 steps are 2^22 scales)."""


def step(scale: float) -> float:
    """Return the step of noise of this scale, in votes."""
    return min(max(lattice.step(scale), FINEST), 1.0)


def to_steps(counts: NDArray[Any], unit: float) -> Steps:
    """Return counts of at most 2^30 as whole steps."""
    return counts.astype(np.int64) * int(1 / unit)


def reaches(values: Steps, threshold: float, unit: float) -> NDArray[np.bool_]:
    """Return which values, in steps, are at least a threshold in votes."""
    least = min(max(math.ceil(threshold / unit), -(2**63)), 2**63 - 1)
    return values >= np.int64(least)


def check_noise(scale: float, what: str) -> None:
    """Refuse noise that drowns any number of votes."""
    if not (scale <= MAX_SCALE):
        raise DeclarationError(
            f"noise of {what} = {scale:g} drowns any number of votes; use at most {MAX_SCALE:g}"
        )


# -----------------------------------------------------------------------------
# GNMax: the class with the most votes after Gaussian noise.


MAX_SIGMA = 2.0**49
"""Noise beyond this drowns all votes there can be, and has no exact sampler."""


class GNMax(Mechanism):
    """Add N(0, sigma^2) to the votes of each class, and release which has the most.

    One teacher moves one vote, by sqrt 2 in l2: ``mu = sqrt(2) / sigma`` for each question. It is a
    bound: of the noisy counts no more is released than which is largest.

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

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
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
        return GaussianBound(up(argmax_mu(distance, self.sigma) * math.sqrt(dimension), 4))

    def votes(self, teachers: int, classes: int) -> GaussianVotes:
        """Return the loss of one question, as a function of its counts."""
        return GaussianVotes(self.sigma, classes, teachers)


def noisy_argmax(counts: NDArray[Any], sigma: float, stream: Stream) -> NDArray[np.float64]:
    """Return the position of the largest of ``counts + N(0, sigma^2)``, along the last axis."""
    return np.asarray(np.argmax(noisy_counts(counts, sigma, stream), axis=-1), dtype=np.float64)


def noisy_counts(counts: NDArray[Any], sigma: float, stream: Stream) -> NDArray[np.float64]:
    """Return whole numbers with N(0, sigma^2), rounded to a power of two that divides 1.

    A function of the exact sums, so that no rounding moves neighbours apart.
    """
    unit = min(lattice.step(sigma), 1.0)
    noise = rounded_gaussian(stream, sigma / unit, counts.size)
    return lattice.noisy(counts.astype(np.float64), noise.reshape(-1), unit)


def argmax_mu(teachers: float, sigma: float) -> float:
    """Return mu of counts among which so many votes move: ``teachers sqrt(2) / sigma``."""
    if not (sigma <= MAX_SIGMA):
        raise DeclarationError(
            f"noise of sigma = {sigma:g} drowns any number of votes; use at most {MAX_SIGMA:g}"
        )
    return up(changed_teachers(teachers) * math.sqrt(2) / sigma, 4)


def changed_teachers(distance: float) -> int:
    """Return the number of teachers that change; it arrives rounded up by a few last places."""
    return math.ceil(distance * (1 - 1e-12))


def repeated_loss(loss: PrivacyLoss, questions: int) -> PrivacyLoss:
    """Return what so many questions cost, each as much as ``loss``."""
    if loss.pure() == 0:
        return Pure(0.0)
    return loss if questions == 1 else Composite({loss: questions})


# -----------------------------------------------------------------------------
# LNMax: the class with the most votes after Laplace noise.


class LNMax(Mechanism):
    """Add Laplace noise of scale b to the votes of each class, and release which has the most.

    ``epsilon = 2 t / b`` for each question, where t teachers change.

    Proof. A vote that moves takes 1 from one count and gives 1 to another, so that t of them move
    no two counts apart by more than 2 t. Hold the noise of all classes but one fixed: it wins where
    its own noise is at least some x, and the neighbour moves x by at most 2 t. Noise is rounded to
    steps that divide 1, so x is a whole number of them (and a half: continuous noise is rounded to
    the nearest), as are its moves; the probability of at least x falls by a factor of at most
    ``e^{2 t / b}`` (see `accountants.losses.selection`).

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

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = "LNMax: Papernot et al. 2017, sec. 3.1; Dwork & Roth 2014, Claim 3.9"
    sampler: ClassVar[str] = "Laplace, exact, rounded to a power-of-two step"

    scale: float = noise_parameter("b")

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes after noise, the first of equals; shape (questions,)."""
        counts, unit = value.counts, step(self.scale)
        noise = rounded_laplace(stream, self.scale / unit, counts.size).reshape(counts.shape)
        return np.asarray(np.argmax(to_steps(counts, unit) + noise, axis=1), dtype=np.float64)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        check_noise(self.scale, "scale")
        return report_noisy_max(
            self.scale, 2 * changed_teachers(distance), noise="laplace", monotone=True
        )

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        return repeated_loss(self.loss(distance), dimension)

    def votes(self, teachers: int, classes: int) -> LaplaceVotes:
        """Return the loss of one question, as a function of its counts."""
        return LaplaceVotes(self.scale, classes, teachers)


# -----------------------------------------------------------------------------
# Plurality: what teachers say, without noise; for comparison.


class Plurality(Mechanism):
    """Release which class has the most votes, as it is: not private, and certified so.

    One vote may decide a question, so no epsilon holds, with any delta below 1: a certificate says
    infinity, `Pipeline.run` refuses, and `Pipeline.simulate` shows what the noise of others costs.

    Examples
    --------
    >>> Plurality().loss(1.0).delta_floor()
    1.0
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = "none: released without noise"
    sampler: ClassVar[str] = "none"

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return the class of most votes, the first of equals; shape (questions,)."""
        return np.asarray(np.argmax(value.counts, axis=1), dtype=np.float64)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return what promises nothing, unless nobody changes."""
        return Approximate(0.0, 1.0) if changed_teachers(distance) else Pure(0.0)


# -----------------------------------------------------------------------------
# Confident-GNMax: answers only where the teachers agree, and a cheap test whether they do.


SAMPLER = "Gaussian, exact, rounded to a power-of-two step"


def _check_answers(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    found = whole(value)
    if value is not None and not (found is not None and 1 <= found <= 10**9):
        raise DeclarationError(
            f"{type(instance).__name__}.answers must be a whole number of at least 1, or None to "
            f"answer every question that passes, got {value!r}"
        )


def answers_parameter() -> Any:
    """Declare how many questions are answered at most; None for all."""
    return attrs.field(default=None, converter=number, validator=_check_answers)


class ConfidentGNMax(Mechanism):
    """Answer a question by GNMax if its largest count, with noise, reaches a threshold.

    With sigma_1 the check's noise and sigma_2 that of GNMax, drawn afresh: for m questions of which
    at most c are answered, and t teachers that change,

        ``mu^2 = m t^2 / sigma_1^2 + min(c, m) 2 t^2 / sigma_2^2``.

    Proof. The largest count moves by at most t, all counts by at most ``t sqrt 2`` in l2: so each
    check is Gaussian with ``mu_i <= t / sigma_1``, each answer with ``t sqrt 2 / sigma_2``. Which
    of them are made depends on earlier outcomes, but the sum of their mu_i^2 is at most mu^2 for
    certain, and that suffices: take two neighbours, and a Brownian motion W whose drift is 0 for
    one of them, 1 for the other, seen up to time mu^2. Each step takes the next ``mu_i^2`` of the
    time. W grows in it by N(0, mu_i^2) or N(mu_i^2, mu_i^2): divided by mu_i, this is the step's
    noisy value along the direction in which the neighbours differ, and the rest of the noise is
    drawn apart. So what is released is a function of W up to mu^2, of which its end, N(0, mu^2)
    against N(mu^2, mu^2), tells all: a pair of Gaussians mu apart. (This is how GDP adds up under
    full adaptivity: Smith and Thakurta 2022.)

    What is not answered is -1. Once c questions are answered, the rest are neither checked nor
    answered.

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

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = "Confident-GNMax: Papernot et al. 2018; Smith & Thakurta 2022"
    sampler: ClassVar[str] = SAMPLER

    threshold: float = attrs.field(converter=number, validator=check_threshold)
    sigma_check: float = noise_parameter("sigma_check")
    sigma: float = noise_parameter("sigma")
    answers: int | None = answers_parameter()

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        unit = step(self.sigma_check)
        largest = to_steps(value.counts.max(axis=1), unit)
        passed = check_questions(self, largest, unit, stream)
        return answer_passed(self, value, passed, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        return confident_loss(self, distance, dimension)

    def votes(self, teachers: int, classes: int) -> ConfidentVotes:
        """Return the loss of one question, as a function of its counts.

        Noise is rounded to the nearest step, so a question passes where continuous noise reaches a
        threshold that is a half step below a whole one. What is not checked loses nothing.
        """
        unit = step(self.sigma_check)
        threshold = (math.ceil(self.threshold / unit) - 0.5) * unit
        return ConfidentVotes(threshold, self.sigma_check, self.sigma, classes, teachers)


def check_questions(
    mechanism: Any, values: Steps, unit: float, stream: Stream
) -> NDArray[np.bool_]:
    """Return which questions pass: ``value + N(0, sigma_1^2) >= T``, the first ``answers`` of them.

    Parameters
    ----------
    mechanism
        With ``threshold``, ``sigma_check`` and ``answers``.
    values
        Whole steps, shape (questions,).
    unit
        The step, in votes.
    stream
        Where noise comes from.
    """
    noise = rounded_gaussian(stream, mechanism.sigma_check / unit, len(values))
    passed = reaches(values + noise, mechanism.threshold, unit)
    if mechanism.answers is not None:
        passed &= np.cumsum(passed) <= mechanism.answers
    return passed


def answer_passed(
    mechanism: Any, value: VoteCounts, passed: NDArray[np.bool_], stream: Stream
) -> NDArray[np.float64]:
    """Return GNMax's answers to the questions that passed, NaN for the others."""
    found = np.full(len(value.counts), np.nan)
    found[passed] = noisy_argmax(value.counts[passed], mechanism.sigma, stream)
    return found


def confident_loss(mechanism: Any, distance: float, questions: int) -> PrivacyLoss:
    """Return the loss of so many checks, and as many answers as there may be."""
    check_noise(mechanism.sigma_check, "sigma_check")
    check_noise(mechanism.sigma, "sigma")
    teachers, limit = changed_teachers(distance), mechanism.answers
    if teachers == 0:
        return Pure(0.0)
    most_answers = questions if limit is None else min(limit, questions)
    checks = math.sqrt(questions) / mechanism.sigma_check
    return GaussianBound(
        up(teachers * math.hypot(checks, math.sqrt(2 * most_answers) / mechanism.sigma), 16)
    )


# -----------------------------------------------------------------------------
# Interactive-GNMax: answers only where the teachers differ from what the student says already.


def _check_confidence(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 0 <= value <= 1):
        raise DeclarationError(
            f"InteractiveGNMax.confidence must be a probability from 0 to 1, got {value!r}; a "
            "student that is surer than that keeps its own label, and 1 leaves it none"
        )


class InteractiveGNMax(Mechanism):
    """Answer by GNMax where the teachers contradict the student; else take what it is sure of.

    With K teachers, votes n and the student's probabilities p, which are released: a question
    passes if ``max_j (n_j - K p_j) + N(0, sigma_1^2) >= T``, and is answered by GNMax with fresh
    noise sigma_2. One that does not pass, or is no longer checked, gets the student's own most
    probable class if its probability is above ``confidence`` (which reads no votes), else -1.

    It costs what `ConfidentGNMax` does, by the same proof: p is the same for both neighbours, so
    the largest of ``n_j - K p_j`` moves by at most 1 for each teacher that changes. ``K p_j`` is
    rounded to whole steps before the votes come in.

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

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    released_inputs: ClassVar[int] = 1
    theorem: ClassVar[str] = "Interactive-GNMax: Papernot et al. 2018; Smith & Thakurta 2022"
    sampler: ClassVar[str] = SAMPLER

    threshold: float = attrs.field(converter=number, validator=check_threshold)
    sigma_check: float = noise_parameter("sigma_check")
    sigma: float = noise_parameter("sigma")
    confidence: float = attrs.field(converter=number, validator=_check_confidence)
    answers: int | None = answers_parameter()

    def admissible(self, given: Released[Any], ballots: BallotsDomain) -> Released[Any]:
        """Return the probabilities, checked in the open when the plan runs."""
        sizes = {"questions": ballots.questions, "classes": ballots.classes}
        return post(check_probabilities, given, **sizes)

    def release(self, value: VoteCounts, stream: Stream, *given: Any) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        counts, unit = value.counts, step(self.sigma_check)
        sizes = {"questions": counts.shape[0], "classes": counts.shape[1]}
        student = check_probabilities(given[0], **sizes)
        expected = np.rint(value.teachers * student / unit).astype(np.int64)
        passed = check_questions(
            self, (to_steps(counts, unit) - expected).max(axis=1), unit, stream
        )
        found = answer_passed(self, value, passed, stream)
        own = ~passed & (student.max(axis=1) > self.confidence)
        found[own] = np.argmax(student[own], axis=1)
        return found

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        return confident_loss(self, distance, dimension)


# -----------------------------------------------------------------------------
# Exact answers where few votes could not change them: sparse vector on distances.


class StableVotes(Mechanism):
    """Release the class of most votes itself where it is far from changing; pay where it is not.

    With the gap between the two largest counts, a question's distance to instability is ``d =
    max(0, ceil(gap / 2) - 1)``: so many votes can move and leave the answer as it is. A question
    *passes* if ``d + nu > T + rho``, and is answered exactly; else it *fails*, and the answer is
    -1. Laplace noise rho, of scale b, is drawn once, nu, of scale ``b (2c)^(1/3)``, for each
    question. After c failures no more are answered. T is the least (by a bound) for which m
    questions of d = 0 all fail, but for a probability of ``failure``.

    (epsilon, failure)-DP for one teacher that changes, however many questions there are, where
    ``epsilon = 1/b + 2c / (b (2c)^(1/3))``.

    Proof. One vote that moves changes a gap by at most 2, and d by at most 1. Where neighbours have
    different answers, in whichever way ties are broken, both gaps are at most 2, so that both d are
    0. Take two neighbours, and let B be the event that one of the questions where they differ
    passes: of probability at most ``failure`` on both. The bits "passed" or "failed" are those of a
    sparse vector on -d that stops after c "above", which is failed (Lyu, Su and Li 2017, Alg. 7;
    the d may move in any direction, apart by 2): epsilon. Outside B what is released is one and the
    same function of the bits, so

        ``P(S) <= P(S without B) + failure <= e^epsilon P'(S) + failure``.

    Bound of T: with scales ``b < b_2``, ``P(b_2 X + b Y > T) <= b_2^2 e^{-T/b_2} / (2 (b_2^2 -
    b^2))`` for T >= 0, times m. Several teachers: by group privacy.

    Parameters
    ----------
    epsilon, failure
        For one changed teacher.
    failures
        c. The budget is for these, not for questions.

    References
    ----------
    Bassily, Thakkar and Guha Thakurta 2018 (sparse vector on distances to instability); Lyu, Su and
    Li 2017, Alg. 7; the constants are proven above.

    Examples
    --------
    >>> StableVotes(epsilon=1.0, failure=1e-6, failures=10).loss(1.0)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = (
        "sparse vector on distances to instability: Bassily, Thakkar & Guha Thakurta 2018; "
        "Lyu, Su & Li 2017, Alg. 7"
    )
    sampler: ClassVar[str] = f"sparse vector, continuous Laplace noise, {EXACT_CHOICE}"

    epsilon: float = budget_parameter("epsilon")
    failure: float = delta_parameter()
    failures: int = attrs.field(default=1, converter=number, validator=check_count)

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        counts = value.counts
        run = self.sparse_vector(len(counts)).begin(stream)
        passed = [run.ask(-d) is False for d in distances(counts).tolist()]
        return np.where(passed, np.argmax(counts, axis=1), np.nan)

    def sparse_vector(self, questions: int) -> SparseVector:
        """Return what reads -d and says where it is above -T: which questions fail."""
        moved = 2.0 * self.failures
        scale = (1 + math.cbrt(moved) ** 2) / noise_epsilon(self.epsilon) * (1 + 1e-12)
        plain = SparseVector(scale, 0.0, self.failures)
        wide = plain.query_scale()
        odds = questions * wide**2 / (2 * (wide**2 - scale**2) * self.failure)
        threshold = wide * max(0.0, math.log(odds) + 1e-12) * (1 + 1e-12)
        return SparseVector(scale, -threshold, self.failures)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of any number of questions where ``distance`` teachers change."""
        epsilon = self.sparse_vector(1).loss(1.0, 2.0).pure()
        assert epsilon is not None
        return group_loss(
            Approximate(max(epsilon, charged_epsilon(self.epsilon)), self.failure), distance
        )


def distances(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the distances to instability of counts of shape (m, classes); shape (m,).

    One class alone has nobody beside it: a second that gets no votes stands for that.
    """
    if counts.shape[1] == 1:
        counts = np.column_stack([counts, np.zeros_like(counts)])
    top = np.partition(counts.astype(np.int64), -2, axis=1)[:, -2:]
    return np.asarray(np.maximum(0, (top[:, 1] - top[:, 0] + 1) // 2 - 1), dtype=np.int64)
