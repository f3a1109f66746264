"""Votes of teachers as private counts, and functions of released values that PATE plans call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import Attribute, field, frozen
from numpy.typing import NDArray

from accountants.definitions import renyi_to_epsilon
from accountants.losses.gaussian import Sanitization
from accountants.numerics import up
from adaptive_dp.graph.errors import DataError, DeclarationError, RunError
from adaptive_dp.graph.handles import (
    Private,
    PrivateQuery,
    Released,
    SourceOperation,
    check_data_name,
)
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import NEIGHBORS, Change, Neighbors, Operation, Query
from adaptive_dp.graph.values import as_int, number
from adaptive_dp.mechanisms.additive import Validator
from adaptive_dp.mechanisms.smooth_sensitivity import grid_step
from adaptive_dp.noise import lattice
from adaptive_dp.noise.stream import Stream

Labels = NDArray[np.int64]


def check_int(name: str, value: Any, least: int = 1, most: float = 10**9) -> int:
    """Return an integer, NumPy's too, as an int.

    Raises
    ------
    DeclarationError
        If it is not an integer from ``least`` to ``most`` (which may be infinite).
    """
    exact = as_int(value)
    if exact is None or not least <= exact <= most:
        rule = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
        raise DeclarationError(f"{name} must be an int {rule}, got {value!r}")
    return exact


def int_within(least: int = 1, most: float = 10**9) -> Validator:
    """Return an attrs validator of integers from ``least`` to ``most``: see `check_int`."""

    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        check_int(f"{type(instance).__name__}.{attribute.name}", value, least, most)

    return check


def check_points(at: Any, *, size: int, width: int) -> Any:
    """Return rows to vote on as float64, of the declared shape.

    Raises
    ------
    RunError
        If it is not ``size`` rows of ``width`` numbers.
    """
    rows = np.asarray(at)
    if rows.dtype.kind not in "biuf" or rows.shape != (size, width):
        raise RunError(
            f"votes are declared on {size} rows of {width} features, got shape {rows.shape}; "
            "choose so many rows of the points, or declare votes(..., size=...) as they are"
        )
    return rows.astype(np.float64)


NEVER = -2
"""The answer of a point that was never asked."""


def unasked(size: int) -> Labels:
    """Return the answers of so many points of which none was asked."""
    return np.full(int(size), NEVER, dtype=np.int64)


def random_positions(count: int, *, size: int, seed: int) -> Labels:
    """Return ``size`` different positions among ``count``, drawn by a public seed."""
    # a permutation's beginning: no position twice
    return np.random.default_rng(seed).permutation(int(count))[:size]


def select_points(points: Any, chosen: Any) -> Any:
    """Return the points at some positions."""
    return np.asarray(points)[np.asarray(chosen)]


def record_answers(answers: Any, chosen: Any, new_answers: Any) -> Labels:
    """Return answers with new ones written at some positions."""
    updated = np.array(answers, dtype=np.int64)
    updated[np.asarray(chosen)] = np.asarray(new_answers)
    return updated


def known_answers(answers: Any) -> Labels:
    """Return answers, -1 where there is none."""
    # NEVER, which is -2, becomes -1
    return np.maximum(np.asarray(answers, dtype=np.int64), -1)


def check_probabilities(given: Any, *, questions: int, classes: int) -> Any:
    """Return the student's probabilities as float64, of the declared shape.

    Raises
    ------
    RunError
        If they are not ``questions`` rows of ``classes`` numbers from 0 to 1.
    """
    probabilities = np.asarray(given)
    if probabilities.dtype.kind not in "biuf" or probabilities.shape != (questions, classes):
        raise RunError(
            f"probabilities are of shape {(questions, classes)} (questions, classes), got shape "
            f"{probabilities.shape}; give one for each class of each question"
        )
    probabilities = probabilities.astype(np.float64)
    # comparisons with NaN are false, so it is refused too
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise RunError("probabilities must be numbers from 0 to 1, and not NaN")
    return probabilities


def spent_upper_bound(
    released: Any, sigma: float, beta: float, spread: float, *, failure: float, worst: float
) -> float:
    """Return an upper bound of f that is wrong with probability at most ``failure``.

    See `adaptive_dp.pate.Sanitized`.

    Parameters
    ----------
    released
        The two numbers that `Sanitized` released.
    sigma, beta, spread
        Its parameters.
    worst
        The worst case, which f does not exceed.
    """
    bound, logarithm = (float(v) for v in released)
    # the errors of rounding to the grids, and of S sigma, are added: the bound stays an upper one;
    # clipping at the public bounds makes neither number too small
    bound, logarithm = bound + grid_step(0.0, worst), logarithm + lattice.step(beta * spread) + 1e-9
    upper = Sanitization(sigma, beta, spread).upper(bound, logarithm, failure)
    # the worst case holds on all data, so the smaller of the two holds with the same probability
    return min(upper, worst)


def spent_epsilon(
    bound: float, *, order: float, delta: float, beside: float, worst: float
) -> float:
    """Return the epsilon at delta of divergences ``bound + beside`` at one order, or the worst."""
    # rounded up: the sum may only be too large
    total = np.array([up(bound + beside, 2)])
    # both hold, and the worst case is public: so does the smaller one
    return min(worst, max(0.0, float(renyi_to_epsilon(total, np.array([order]), delta)[0])))


# -----------------------------------------------------------------------------
# Ballots: for each question, one vote of each teacher.
#
# Neighbouring data sets differ in the votes of some *teachers*, one where units are split at random
# (`adaptive_dp.pate.ensembles`), on any number of questions. Every teacher votes, so the counts of
# a question sum to the number of teachers, and one teacher changes one vote in each of them.


@frozen
class BallotsDomain:
    """How many teachers vote, on how many questions, for how many classes."""

    teachers: int
    questions: int
    classes: int


@frozen(eq=False, repr=False)
class VoteCounts:
    """Private vote counts of each question, the input of aggregators.

    Parameters
    ----------
    counts
        Shape (questions, classes); each question's add up to ``teachers``.
    teachers
        How many vote.

    Examples
    --------
    >>> VoteCounts(np.array([[200, 40, 10], [5, 5, 240]]), teachers=250)
    <private votes>
    """

    counts: NDArray[np.int64]
    teachers: int

    def __repr__(self) -> str:
        return "<private votes>"

    @property
    def shape(self) -> tuple[int]:
        """One answer for each question."""
        return (len(self.counts),)


def class_positions(votes: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return votes as positions of classes; any other value counts as the first class."""
    with np.errstate(all="ignore"):
        floats = votes.astype(np.float64)
    return np.where(are_positions(floats, classes), floats, 0.0).astype(np.int64)


def are_positions(votes: NDArray[np.float64], classes: int) -> NDArray[np.bool_]:
    """Return which votes are positions of classes; NaN, infinities and fractions are none."""
    with np.errstate(all="ignore"):
        return np.asarray((votes >= 0) & (votes < classes) & (votes == np.floor(votes)))


def tally(votes: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return counts of shape (m, classes) from votes of shape (k, m)."""
    size = votes.shape[1]
    # cell m * classes + vote, so that one count covers all questions
    flat = votes.astype(np.int64) + classes * np.arange(size)
    return np.bincount(flat.reshape(-1), minlength=size * classes).reshape(size, classes)


@frozen
class AskTeachers(Operation):
    """The teachers' votes on public or released rows.

    A prediction that is not a position of a class counts as a vote for the first class.

    Parameters
    ----------
    size
        How many rows.
    """

    kind: ClassVar[str] = "votes"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 1

    size: int = field(converter=number, validator=int_within())

    def label(self) -> str:
        """Return on how many questions."""
        return f"votes on {self.size} questions"

    def domain(self, inputs: Sequence[Any]) -> BallotsDomain:
        """Return the size of the ballots."""
        # by attributes: the type itself is in a module that imports this one
        teachers_domain = inputs[0] if inputs else None
        teachers = getattr(teachers_domain, "count", None)
        classes = getattr(teachers_domain, "classes", None)
        if teachers is None or classes is None or len(inputs) != 2:
            raise DeclarationError("votes read teachers and the rows to vote on")
        return BallotsDomain(teachers, self.size, len(classes))

    def run(self, inputs: Sequence[Any], stream: Stream) -> VoteCounts:
        """Return the counts."""
        teachers, at = inputs
        return teachers.counts(np.asarray(at, dtype=np.float64))  # type: ignore[no-any-return]


@frozen
class BallotsSource(SourceOperation):
    """Votes from outside: what teachers that were trained elsewhere have answered.

    It is bound to an array of class positions, shape (teachers, questions), in which any other
    value counts as the first class; or ``{"counts": array}``, shape (questions, classes),
    whose rows add up to the number of teachers.

    Parameters
    ----------
    name
        By which a run binds them.
    teachers, questions, classes
        How many there are; all of them public.
    neighbors
        The neighbour relation of the data that the teachers were trained on. Whichever it is, one
        unit must have changed one teacher alone.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> source = BallotsSource("votes", teachers=250, questions=2, classes=3)
    >>> answers = Ballots(source).release(dp.pate.GNMax(sigma=4.0))
    >>> plan = dp.Pipeline(answers=answers).with_delta(1e-6)
    >>> counts = {"counts": np.array([[200, 40, 10], [5, 5, 240]])}
    >>> plan.simulate(seed=1, votes=counts)["answers"].tolist()
    [0, 2]
    """

    kind: ClassVar[str] = "ballots"
    column_fields: ClassVar[tuple[str, ...]] = ()

    name: str
    teachers: int = field(converter=number, validator=int_within())
    questions: int = field(converter=number, validator=int_within())
    classes: int = field(converter=number, validator=int_within())
    neighbors: Neighbors = "add_remove"
    unit: ClassVar[str | None] = None  # type: ignore[misc]
    size: ClassVar[int | None] = None  # type: ignore[misc]

    def __attrs_post_init__(self) -> None:
        check_data_name("ballots", self.name)
        if self.neighbors not in NEIGHBORS:
            raise DeclarationError(
                f"neighbors must be one of {', '.join(NEIGHBORS)}, got {self.neighbors!r}"
            )

    def label(self) -> str:
        """Return the name."""
        return self.name

    def detail(self) -> str:
        """Return how many teachers vote on how many questions."""
        return f"{self.teachers} teachers, {self.questions} questions, {self.classes} classes"

    def assumes(self) -> str:
        """Return the assumption on how the teachers were trained."""
        return (
            f"The votes in {self.name!r} are of teachers trained on disjoint data, so that one "
            "unit changes the votes of one teacher alone."
        )

    def domain(self, inputs: Sequence[Any]) -> BallotsDomain:
        """Return the size of the ballots."""
        return BallotsDomain(self.teachers, self.questions, self.classes)

    def initial(self) -> Change:
        """Return the change: one teacher's votes are exchanged for others."""
        # one teacher's ballot is exchanged, exactly one, whatever the unit's rows were
        return Change(True, 1, True)

    def bind(self, data: Any, columns: frozenset[str] | None = None) -> VoteCounts:
        """Return the counts; ballots have no columns.

        Raises
        ------
        DataError
            If the array has another shape, or counts are negative, not integers, or do not sum to
            the number of teachers; the message holds no vote.
        """
        # counts are all that an aggregator reads of the ballots
        if isinstance(data, Mapping):
            return VoteCounts(self._counts(data.get("counts")), self.teachers)
        votes, shape = np.asarray(data), (self.teachers, self.questions)
        if votes.dtype.kind not in "biuf" or votes.shape != shape:
            # the message shows shapes that were declared, never a value
            raise DataError(
                f"ballots {self.name!r} must be positions of classes, of shape {shape} (teachers, "
                'questions), or {"counts": ...} of shape ' + f"{(self.questions, self.classes)}"
            )
        return VoteCounts(tally(class_positions(votes, self.classes), self.classes), self.teachers)

    def _counts(self, data: Any) -> NDArray[np.int64]:
        counts, shape = np.asarray(data), (self.questions, self.classes)
        fits = counts.dtype.kind in "biuf" and counts.shape == shape
        if fits:
            fits = bool(((counts >= 0) & (counts <= self.teachers)).all())
            fits = fits and bool((counts == np.floor(counts)).all())
            # after the bounds: sums of narrow or unsigned integers could wrap around
            fits = fits and bool((counts.astype(np.int64).sum(axis=1) == self.teachers).all())
        if not fits:
            raise DataError(
                f"counts of ballots {self.name!r} must be integers of shape {shape} (questions, "
                f"classes), none negative, and those of a question must sum to {self.teachers}, "
                "the number of teachers"
            )
        return counts.astype(np.int64)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds data."""
        raise DataError(f"nothing is bound to the ballots {self.name!r}; pass run({self.name}=...)")


@frozen
class CountVotes(Query):
    """The counts of the votes, for aggregators."""

    kind: ClassVar[str] = "vote_counts"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = BallotsDomain
    output_type: ClassVar[type] = VoteCounts

    def label(self) -> str:
        """Return the label."""
        return "votes of each class"

    def domain(self, inputs: Sequence[Any]) -> BallotsDomain:
        """Return the size of the ballots."""
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: BallotsDomain, change: Change, norm: float) -> float:
        """Return the number of teachers that change; refuse any norm but 0."""
        if norm != 0:
            raise DeclarationError(
                "the sensitivity of votes is the number of teachers that change, not a distance of "
                f"counts: release them with an aggregator of norm 0, such as dp.pate.GNMax, got "
                f"norm {norm!r}"
            )
        # more teachers than there are cannot change
        return float(min(change.rows, domain.teachers))

    def dimension(self, domain: BallotsDomain) -> int:
        """Return the number of questions."""
        return domain.questions

    def run(self, inputs: Sequence[Any], stream: Stream) -> VoteCounts:
        """Return the counts."""
        return inputs[0]  # type: ignore[no-any-return]

    def present(self, value: Any) -> Any:
        """Return answers as positions of classes, -1 where there is none."""
        # aggregators release NaN where there is no answer
        return np.where(np.isnan(value), -1, np.nan_to_num(value)).astype(np.int64)


@frozen(eq=False, repr=False)
class Ballots(Private[Any]):
    """Votes on questions, ready for an aggregator.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=100, classes=10)
    >>> isinstance(votes, dp.pate.Ballots), votes.visibility
    (True, 'private')
    """

    def counts(self) -> PrivateQuery[Any]:
        """Return the counts of each question as a query, for aggregators to release."""
        return PrivateQuery(CountVotes(), (self,))

    def release(
        self, mechanism: Mechanism, *, given: Sequence[Released[Any]] = (), name: str = ""
    ) -> Released[Any]:
        """Return the aggregator's answers, shape (questions,): positions of classes, -1 for none.

        Parameters
        ----------
        mechanism
            For example ``dp.GNMax(sigma=40)``.
        given
            What an aggregator follows, such as the student's probabilities, which are checked
            for their shape.
        name
            How tables call the release.
        """
        check = getattr(mechanism, "admissible", None)
        # probabilities are checked in the plan, as released values, before they reach the
        # aggregator
        if check is not None:
            given = [check(handle, self.domain) for handle in given]
        return self.counts().release(mechanism, given=given, name=name)


def ballots(
    name: str, *, teachers: int, questions: int, classes: int, neighbors: Neighbors = "add_remove"
) -> Ballots:
    """Return votes of teachers that were trained elsewhere, bound by name when the plan runs.

    What is bound is an array of positions of classes, shape (teachers, questions), or ``{"counts":
    array}`` of shape (questions, classes).

    Parameters
    ----------
    name
        As ``run(name=...)`` binds them.
    teachers, questions, classes
        How many there are; public.
    neighbors
        The relation of the data that the teachers were trained on. Whichever it is, one unit must
        have changed one teacher alone, which cannot be checked here.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> votes = dp.pate.ballots("votes", teachers=250, questions=100, classes=10)
    >>> answers = votes.release(dp.pate.GNMax(sigma=40.0))
    >>> dp.Pipeline(answers=answers).certify(1e-5).epsilon.__round__(2)
    1.36
    """
    return Ballots(BallotsSource(name, teachers, questions, classes, neighbors))
