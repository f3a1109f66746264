"""Confident-GNMax: answers only where the teachers agree, and a cheap test whether they do."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import ConfidentVotes, GaussianBound, PrivacyLoss, Pure
from accountants.rounding import up
from adaptive_dp.graph.convert import number, whole
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import VoteCounts
from adaptive_dp.pate.gnmax import changed, most
from adaptive_dp.pate.whole_steps import Steps, reaching, require_noise, step, steps
from adaptive_dp.primitives.sparse_vector import finite_threshold

SAMPLER = "Gaussian, exact, rounded to a power-of-two step"


def _answers(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    found = whole(value)
    require(
        value is None or (found is not None and 1 <= found <= 10**9),
        f"{type(instance).__name__}.answers must be a whole number of at least 1, or None to "
        f"answer every question that passes, got {value!r}",
    )


def answers_parameter() -> Any:
    """Declare how many questions are answered at most; None for all."""
    return attrs.field(default=None, converter=number, validator=_answers)


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
    reads: ClassVar[type] = VoteCounts
    theorem: ClassVar[str] = "Confident-GNMax: Papernot et al. 2018; Smith & Thakurta 2022"
    sampler: ClassVar[str] = SAMPLER

    threshold: float = attrs.field(converter=number, validator=finite_threshold)
    sigma_check: float = noise_parameter("sigma_check")
    sigma: float = noise_parameter("sigma")
    answers: int | None = answers_parameter()

    def release(self, value: VoteCounts, stream: Stream) -> NDArray[np.float64]:
        """Return answers, NaN for none; shape (questions,)."""
        unit = step(self.sigma_check)
        largest = steps(value.counts.max(axis=1), unit)
        passed = checked(self, largest, unit, stream)
        return answered(self, value, passed, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of one question where ``distance`` teachers change."""
        return self.cost(distance, 1, 0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of ``dimension`` questions."""
        return checks_loss(self, distance, dimension)

    def votes(self, teachers: int, classes: int) -> ConfidentVotes:
        """Return the loss of one question, as a function of its counts.

        Noise is rounded to the nearest step, so a question passes where continuous noise reaches a
        threshold that is a half step below a whole one. What is not checked loses nothing.
        """
        unit = step(self.sigma_check)
        threshold = (math.ceil(self.threshold / unit) - 0.5) * unit
        return ConfidentVotes(threshold, self.sigma_check, self.sigma, classes, teachers)


def checked(mechanism: Any, values: Steps, unit: float, stream: Stream) -> NDArray[np.bool_]:
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
    passed = reaching(values + noise, mechanism.threshold, unit)
    if mechanism.answers is not None:
        passed &= np.cumsum(passed) <= mechanism.answers
    return passed


def answered(
    mechanism: Any, value: VoteCounts, passed: NDArray[np.bool_], stream: Stream
) -> NDArray[np.float64]:
    """Return GNMax's answers to the questions that passed, NaN for the others."""
    found = np.full(len(value.counts), np.nan)
    found[passed] = most(value.counts[passed], mechanism.sigma, stream)
    return found


def checks_loss(mechanism: Any, distance: float, questions: int) -> PrivacyLoss:
    """Return the loss of so many checks, and as many answers as there may be."""
    require_noise(mechanism.sigma_check, "sigma_check")
    require_noise(mechanism.sigma, "sigma")
    teachers, limit = changed(distance), mechanism.answers
    if teachers == 0:
        return Pure(0.0)
    most_answers = questions if limit is None else min(limit, questions)
    checks = math.sqrt(questions) / mechanism.sigma_check
    return GaussianBound(
        up(teachers * math.hypot(checks, math.sqrt(2 * most_answers) / mechanism.sigma), 16)
    )
