"""Which questions to ask: at random (`passive`), or those that students disagree on (`active`).

Both are post-processing of released answers: the choice of questions depends on public points and
on earlier answers alone. So a certificate counts the questions, whichever they are.

Passive and active student queries (PSQ, ASQ) are compared by Liu, Zhu, Chaudhuri and Wang 2021
(Revisiting model-agnostic private learning: faster rates and active learning). Their active queries
go through the points one by one and ask where hypotheses that agree with the answers disagree; here
answers are noisy, so hypotheses are students of resampled answers, and a round asks the points on
which they disagree most.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import Released, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Operation, Visibility
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import number
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import (
    NEVER,
    check_int,
    int_within,
    known_answers,
    random_positions,
    record_answers,
    select_points,
    unasked,
)
from adaptive_dp.pate.ensembles import PointsDomain, Teachers
from adaptive_dp.pate.model import describe_model, settings_parameter, train_model
from adaptive_dp.queries.labeled import open_handle

Labels = NDArray[np.int64]

NOISIEST = 0.25
"""The noise's standard deviation over the number of teachers, above which `active` asks at random.

On digits and cancer data random questions were ahead, or chosen ones no better, at .31 and more;
chosen ones were ahead at .22 and less, with a model that learns from points near its boundary.
"""

GENERATIVE = ("sklearn.discriminant_analysis", "sklearn.naive_bayes")
"""Modules of models of each class's distribution, for which `active` asks at random.

They take chosen points for a random sample of a class. On cancer data naive Bayes was behind with
chosen questions at epsilon 2 to 16.
"""


@frozen
class Disagreement(Operation):
    """Choose the points that a committee of models disagrees on most, none that was asked before.

    Its members are trained on answers resampled with replacement. Points are ordered by the gap
    between the votes of the top two classes; ties (all points while there are no answers) are in
    random order.

    Only as large a share of a batch is chosen so as the committee is *skilled*, and the rest is
    drawn at random: ``max(0, (right - most) / (1 - most))``, right how often an answer is what the
    members that were not trained on it say (by majority), most the share of the commonest answer.
    A committee that predicts no better than that has learned nothing yet, and knows not what it
    does not know: so it is with answers of much noise, or a model that chosen points mislead.

    Parameters
    ----------
    model
        The model of a member.
    classes
        How many there are.
    batch
        How many points are chosen.
    members
        How many members there are.
    seed
        Of the resampling, which is public: the same for all data.
    settings
        Keyword arguments of the model.
    """

    kind: ClassVar[str] = "disagreement"
    visibility: ClassVar[Visibility] = "released"

    model: Function
    classes: int = field(converter=number, validator=int_within())
    batch: int = field(converter=number, validator=int_within())
    members: int = field(default=10, converter=number, validator=int_within(2, 10**4))
    seed: int = field(default=0, converter=number, validator=int_within(0, 2**63 - 1))
    settings: Mapping[str, Any] = settings_parameter("a committee's model")

    def label(self) -> str:
        """Return the label."""
        return f"{self.batch} questions"

    def detail(self) -> str:
        """Return the size and the model of the committee."""
        return f"on which {self.members} {self.model.name.partition(':')[2]} disagree"

    def domain(self, inputs: Sequence[Any]) -> None:
        """Check that there are points and answers."""
        if len(inputs) != 2:
            raise DeclarationError("a committee reads points, and answers on them")

    def run(self, inputs: Sequence[Any], stream: Stream) -> Labels:
        """Return the positions of the points, shape (batch,)."""
        points, answers = np.array(inputs[0], dtype=np.float64), np.asarray(inputs[1])
        # NEVER is -2: not asked yet; -1 was asked and got no answer, so only 0 and above can be
        # learned
        unasked_points, answered = np.flatnonzero(answers == NEVER), np.flatnonzero(answers >= 0)
        if answers.shape != points.shape[:1] or len(unasked_points) < self.batch:
            raise RunError(
                f"{self.batch} questions are to be chosen among {len(unasked_points)} points that "
                "were not asked yet; ask fewer, or in fewer rounds"
            )
        # a public seed and the number of points left, so that each round draws anew, the same for
        # all data
        draw = np.random.default_rng([self.seed, len(unasked_points)])
        # in random order first: the stable sort below then breaks ties at random
        unasked_points = draw.permutation(unasked_points)
        votes = np.zeros((len(unasked_points), self.classes))
        # of each answer, what the members say that were not trained on it
        others = np.zeros((len(answered), self.classes))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            # without answers there is no member: all gaps are 0, and the choice is random
            for _ in range(self.members if len(answered) else 0):
                # bootstrap: as many answers as there are, with replacement
                drawn = draw.integers(len(answered), size=len(answered))
                resampled = answered[drawn]
                seed, labels = int(draw.integers(2**31)), answers[resampled].astype(np.int64)
                member = train_model(
                    self.model.resolve(),
                    self.settings,
                    points[resampled],
                    labels,
                    seed,
                    self.classes,
                )
                votes[np.arange(len(unasked_points)), member.votes(points[unasked_points])] += 1
                left_out = np.setdiff1d(np.arange(len(answered)), drawn)
                if len(left_out):
                    others[left_out, member.votes(points[answered[left_out]])] += 1
        # the smallest gaps first: there the committee is least sure
        order = np.argsort(_vote_gaps(votes), kind="stable")
        chosen = round(self.batch * _skill(others, answers[answered].astype(np.int64)))
        # the rest in the random order that the points are in
        return unasked_points[np.append(order[:chosen], np.sort(order[chosen:]))[: self.batch]]


def _skill(votes: NDArray[np.float64], answers: Labels) -> float:
    """Return by how much votes on answers are better than the commonest answer, from 0 to 1.

    Parameters
    ----------
    votes
        Of members that were not trained on the answer, shape (n, classes).
    answers
        Positions of classes, shape (n,).
    """
    known = votes.sum(axis=1) > 0
    if not known.any():
        return 0.0
    right = float(np.mean(votes[known].argmax(axis=1) == answers[known]))
    most = float(np.bincount(answers[known]).max() / known.sum())
    # where all answers are equal there is nothing to choose by
    return max(0.0, (right - most) / (1 - most)) if most < 1 else 0.0


def _vote_gaps(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gap between the top two counts of each row."""
    # against a second class that gets no votes
    if votes.shape[1] == 1:
        return votes[:, 0]
    top_two = np.partition(votes, -2, axis=1)
    gaps: NDArray[np.float64] = top_two[:, -1] - top_two[:, -2]
    return gaps


def active(
    teachers: Teachers,
    points: Released[Any],
    mechanism: Mechanism,
    model: Any,
    *,
    rounds: int,
    batch: int,
    members: int = 10,
    seed: int = 0,
    noisiest: float = NOISIEST,
    **parameters: Any,
) -> Released[Any]:
    """Return answers on points that were chosen by earlier answers: for each a position, or -1.

    In each round students of the answers so far choose ``batch`` points that they disagree on, or
    part of them, as far as they predict answers that they have not seen; the rest, and all of the
    first round, is drawn at random (`Disagreement`). It costs ``rounds * batch`` questions.

    *When it pays.* Where answers are mostly right: measured, at epsilon 8 and more with a linear
    model; at epsilon 4 and less it was behind `passive`, or no better, and with naive Bayes it is
    behind on some data at any epsilon. So where the noise has a standard deviation above
    ``noisiest`` times the number of teachers, or the model is scikit-learn's naive Bayes or
    discriminant analysis (`GENERATIVE`), this *is* `passive`, of as many questions and the same
    seed: all of that is public. Noise that is `Free` is not known yet, and does not count.

    Parameters
    ----------
    teachers
        The teachers that answer.
    points
        As `Teachers.points` gives them.
    mechanism
        The aggregator that answers a round, such as ``dp.pate.GNMax(sigma=40)``.
    model
        Of the students that choose, as `adaptive_dp.pate.teachers` takes it; best that of the
        student who learns from all answers in the end.
    rounds, batch
        How many rounds there are, of how many questions.
    members
        How many students choose.
    seed
        Of the public randomness of the choice.
    noisiest
        A share of the teachers, above 0; infinite to choose whatever the noise and the model.
    parameters
        Of the model.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> linear = "sklearn.linear_model:LogisticRegression"
    >>> teachers = dp.pate.teachers(people, ["x"], "y", linear, count=20)
    >>> pool = teachers.points("pool", 100)
    >>> labels = active(teachers, pool, dp.pate.GNMax(sigma=4), linear, rounds=5, batch=6)
    >>> at_once = teachers.votes(teachers.points("some", 30)).release(dp.pate.GNMax(sigma=4))
    >>> plans = [dp.Pipeline(labels=x).with_delta(1e-6) for x in (labels, at_once)]
    >>> [round(plan.certify().epsilon, 6) for plan in plans]
    [10.577203, 10.577203]
    """
    point_handle = open_handle("active: points", points)
    size = _check_size(
        "active",
        teachers,
        point_handle,
        # no point is asked twice, so all rounds together need as many points
        check_int("active: rounds", rounds) * check_int("active: batch", batch),
    )
    function, settings = describe_model(model, parameters)
    choice = Disagreement(function, len(teachers.domain.classes), batch, members, seed, settings)
    if not (isinstance(noisiest, (int, float)) and noisiest > 0):
        raise DeclarationError(
            f"active: noisiest must be a share of the teachers above 0, got {noisiest!r}"
        )
    # all of it is public: the mechanism, the number of teachers, the share, and the model
    misled = noisiest < math.inf and function.name.partition(":")[0] in GENERATIVE
    if misled or _deviation(mechanism) > noisiest * teachers.domain.count:
        return passive(teachers, points, mechanism, size=rounds * batch, seed=seed)

    def ask(state: Released[Any]) -> Released[Any]:
        # post-processing: the choice reads public points and released answers alone
        chosen: Released[Any] = Released(choice, (point_handle, state))
        votes = teachers.votes(post(select_points, point_handle, chosen), size=batch)  # type: ignore[arg-type]
        # the only release of a round: its votes, on `batch` questions
        return post(record_answers, state, chosen, votes.release(mechanism))

    # NEVER marks what may still be chosen during the rounds; outside it counts as no answer
    return post(known_answers, repeat(ask, rounds, start=post(unasked, public(size))))


def _deviation(mechanism: Mechanism) -> float:
    """Return the standard deviation of the noise on votes, 0 where there is none or it is free."""
    scale = getattr(mechanism, "scale", 0.0)  # of Laplace noise
    found = getattr(mechanism, "sigma", scale if isinstance(scale, Free) else math.sqrt(2) * scale)
    return 0.0 if isinstance(found, Free) else float(found)


def passive(
    teachers: Teachers,
    points: Released[Any],
    mechanism: Mechanism,
    *,
    size: int,
    seed: int = 0,
) -> Released[Any]:
    """Return answers on ``size`` points chosen at random: for each point a position, or -1.

    Parameters
    ----------
    teachers, points, mechanism
        As `active` takes them.
    size
        How many questions are asked.
    seed
        Of the choice, which is public.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> bayes = "sklearn.naive_bayes:GaussianNB"
    >>> teachers = dp.pate.teachers(people, ["x"], "y", bayes, count=250)
    >>> pool = teachers.points("pool", 1_000)
    >>> labels = passive(teachers, pool, dp.pate.GNMax(sigma=40), size=100)
    >>> dp.Pipeline(labels=labels).certify(delta=1e-6).epsilon < 2  # of 100 answers, not of 1,000
    True
    """
    point_handle = open_handle("passive: points", points)
    questions = check_int("passive: size", size)
    pool_size = public(_check_size("passive", teachers, point_handle, questions))
    # the positions do not depend on any answer, so all questions are asked at once
    chosen = post(
        random_positions, pool_size, size=size, seed=check_int("passive: seed", seed, 0, 2**63 - 1)
    )
    votes = teachers.votes(post(select_points, point_handle, chosen), size=size)  # type: ignore[arg-type]
    return post(
        known_answers,
        post(record_answers, post(unasked, pool_size), chosen, votes.release(mechanism)),
    )


def _check_size(name: str, teachers: Any, points: Any, questions: int) -> int:
    if not (isinstance(teachers, Teachers) and isinstance(points.domain, PointsDomain)):
        raise DeclarationError(
            f"{name} needs teachers (dp.pate.teachers) and points (teachers.points), got "
            f"{teachers!r} and {points!r}"
        )
    size: int = points.domain.size
    if questions > size:
        raise DeclarationError(
            f"{name} would ask {questions} questions of {size} points; ask fewer"
        )
    return size
