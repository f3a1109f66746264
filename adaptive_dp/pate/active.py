"""Which questions to ask: some at random (`passive`), or what students disagree on (`active`).

Both are post-processing of answers that are released: what is asked hangs on public points and on
earlier answers alone. So a certificate has as many questions as are asked, whichever they are.

Passive and active student queries (PSQ, ASQ) are compared by Liu, Zhu, Chaudhuri and Wang 2021
(Revisiting model-agnostic private learning: faster rates and active learning). Their active queries
go through the points one by one and ask where hypotheses that agree with the answers disagree; here
answers are noisy, so hypotheses are students of resampled answers, and a round asks where most do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import Released, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Operation, Visibility
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import number, whole
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import (
    NEVER,
    known_answers,
    random_positions,
    record_answers,
    select_points,
    unasked,
)
from adaptive_dp.pate.model import check_settings, describe_model, train_model
from adaptive_dp.pate.teachers import PointsDomain, Teachers
from adaptive_dp.queries.labeled import open_handle

Labels = NDArray[np.int64]


def _check_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    return check_settings(dict(value), "a committee's model")


@frozen
class Disagreement(Operation):
    """Choose points that a committee disagrees on most, none that was asked before.

    Its members are trained on answers drawn with replacement. Points are ordered by how far the
    class of most members is ahead of the next; equals, all of them where there are no answers yet,
    are in random order.

    Parameters
    ----------
    model
        What a member is.
    classes
        How many there are.
    batch
        How many points are chosen.
    members
        How many members there are.
    seed
        Of the draws, which are public: the same for all data.
    settings
        Keyword arguments of the model.
    """

    kind: ClassVar[str] = "disagreement"
    visibility: ClassVar[Visibility] = "released"

    model: Function
    classes: int = field(converter=number)
    batch: int = field(converter=number)
    members: int = field(default=10, converter=number)
    seed: int = field(default=0, converter=number)
    settings: Mapping[str, Any] = field(factory=dict, converter=_check_settings)

    def __attrs_post_init__(self) -> None:
        for name, least, most in (
            ("classes", 1, 10**9),
            ("batch", 1, 10**9),
            ("members", 2, 10**4),
            ("seed", 0, 2**63 - 1),
        ):
            _check_int(f"active: {name}", getattr(self, name), least, most)

    def label(self) -> str:
        """Return what is chosen."""
        return f"{self.batch} questions"

    def detail(self) -> str:
        """Return who chooses."""
        return f"on which {self.members} {self.model.name.partition(':')[2]} disagree"

    def domain(self, inputs: Sequence[Any]) -> None:
        """Check that there are points and answers."""
        if len(inputs) != 2:
            raise DeclarationError("a committee reads points, and answers on them")

    def run(self, inputs: Sequence[Any], stream: Stream) -> Labels:
        """Return the positions of the points, shape (batch,)."""
        at, answers = np.array(inputs[0], dtype=np.float64), np.asarray(inputs[1])
        left, seen = np.flatnonzero(answers == NEVER), np.flatnonzero(answers >= 0)
        if answers.shape != at.shape[:1] or len(left) < self.batch:
            raise RunError(
                f"{self.batch} questions are to be chosen among {len(left)} points that were not "
                "asked yet; ask fewer, or in fewer rounds"
            )
        draw = np.random.default_rng([self.seed, len(left)])
        left = draw.permutation(left)
        votes = np.zeros((len(left), self.classes))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for _ in range(self.members if len(seen) else 0):
                mine = draw.choice(seen, len(seen))
                seed, said = int(draw.integers(2**31)), answers[mine].astype(np.int64)
                member = train_model(
                    self.model.resolve(), self.settings, at[mine], said, seed, self.classes
                )
                votes[np.arange(len(left)), member.votes(at[left])] += 1
        return left[np.argsort(_vote_gaps(votes), kind="stable")[: self.batch]]


def _vote_gaps(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much the first of each row is ahead of the second."""
    if votes.shape[1] == 1:
        return votes[:, 0]
    top = np.partition(votes, -2, axis=1)
    lead: NDArray[np.float64] = top[:, -1] - top[:, -2]
    return lead


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
    **parameters: Any,
) -> Released[Any]:
    """Return answers on points that were chosen by earlier answers: for each a position, or -1.

    In each round students of the answers so far choose ``batch`` points that they disagree on; the
    first round chooses at random. It costs ``rounds * batch`` questions.

    Parameters
    ----------
    teachers
        Who votes.
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
        Of the public randomness of their choice.
    parameters
        Of the model.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> bayes = "sklearn.naive_bayes:GaussianNB"
    >>> teachers = dp.pate.teachers(people, ["x"], "y", bayes, count=10)
    >>> pool = teachers.points("pool", 100)
    >>> labels = active(teachers, pool, dp.pate.GNMax(sigma=4), bayes, rounds=5, batch=6)
    >>> at_once = teachers.votes(teachers.points("some", 30)).release(dp.pate.GNMax(sigma=4))
    >>> plans = [dp.Pipeline(labels=x).with_delta(1e-6) for x in (labels, at_once)]
    >>> [round(plan.certify().epsilon, 6) for plan in plans]
    [10.577203, 10.577203]
    """
    at = open_handle("active: points", points)
    size = _check_size(
        "active",
        teachers,
        at,
        _check_int("active: rounds", rounds, 1, 10**9) * _check_questions(batch),
    )
    function, taken = describe_model(model)
    choose = Disagreement(
        function, len(teachers.domain.classes), batch, members, seed, {**taken, **parameters}
    )

    def ask(state: Released[Any]) -> Released[Any]:
        chosen: Released[Any] = Released(choose, (at, state))
        votes = teachers.votes(post(select_points, at, chosen), size=batch)  # type: ignore[arg-type]
        return post(record_answers, state, chosen, votes.release(mechanism))

    return post(known_answers, repeat(ask, rounds, start=post(unasked, public(size))))


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
    at = open_handle("passive: points", points)
    count = public(_check_size("passive", teachers, at, _check_questions(size)))
    chosen = post(
        random_positions, count, size=size, seed=_check_int("passive: seed", seed, 0, 2**63 - 1)
    )
    votes = teachers.votes(post(select_points, at, chosen), size=size)  # type: ignore[arg-type]
    return post(
        known_answers, post(record_answers, post(unasked, count), chosen, votes.release(mechanism))
    )


def _check_questions(value: Any) -> int:
    return _check_int("the number of questions", value, 1, 10**9)


def _check_int(what: str, value: Any, least: int, most: int) -> int:
    found = whole(value)
    if not (found is not None and least <= found <= most):
        raise DeclarationError(
            f"{what} must be a whole number from {least} to {most}, got {value!r}"
        )
    assert found is not None
    return found


def _check_size(what: str, teachers: Any, points: Any, asked: int) -> int:
    if not (isinstance(teachers, Teachers) and isinstance(points.domain, PointsDomain)):
        raise DeclarationError(
            f"{what} needs teachers (dp.pate.teachers) and points (teachers.points), got "
            f"{teachers!r} and {points!r}"
        )
    size: int = points.domain.size
    if not (asked <= size):
        raise DeclarationError(f"{what} would ask {asked} questions of {size} points; ask fewer")
    return size
