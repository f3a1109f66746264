"""Teachers: one classifier for each of several disjoint groups of people.

Each unit goes to one teacher by its own uniform draw, from a law that no data touches, so that
nobody's teacher hangs on anyone else's presence. Let D and D' be neighbours that differ in the unit
u. Given all draws, the rows of every teacher but u's are the same, and so is the law of what it
learns: each is trained on its own rows, with randomness of its own. So one unit changes *one
teacher*, whatever it has of rows, and however the neighbour relation changes them. (Shuffling units
into groups of equal size would not do: one more unit moves others.)

With ``by`` each category of a column has a teacher of its own, a hospital, say. A unit's rows may
then be with several teachers: one that has up to r rows changes up to r of them (2 r where the rows
are exchanged, less where there are fewer teachers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Examples, Rows
from adaptive_dp.graph.change import UNBOUNDED, Change
from adaptive_dp.graph.convert import number, texts, whole
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.handles import Private, Released, post
from adaptive_dp.graph.operation import Operation, require
from adaptive_dp.noise.stream import SeededStream, Stream
from adaptive_dp.pate.ballots import Ask, Ballots
from adaptive_dp.pate.functions import checked_points
from adaptive_dp.pate.kept import current
from adaptive_dp.pate.model import described, settings
from adaptive_dp.pate.points import Points, PointsDomain
from adaptive_dp.pate.training import Ensemble, Part, Recipe, Rounds, rehearsed, trained
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Categories, Column, Table
from adaptive_dp.queries.examples import ExamplesOf, declarations
from adaptive_dp.queries.labeled import open_handle
from adaptive_dp.queries.partition import category_index
from adaptive_dp.queries.phases import drawn

MOST = 100_000
"""Teachers, at most."""


@frozen
class TeachersDomain:
    """Classifiers of the examples' features.

    Parameters
    ----------
    count
        How many.
    classes
        The target's categories, in order; teachers vote for one by its position.
    examples
        How features are made of columns.
    """

    count: int
    classes: tuple[Any, ...]
    examples: ExamplesOf
    width: int


def _settings(value: Mapping[str, Any]) -> dict[str, Any]:
    return settings(dict(value), "a teacher's model")


@frozen
class Teach(Operation):
    """Train a classifier on each of ``count`` disjoint groups of units; see the module.

    Features are made as those of `ExamplesOf`: numbers mapped from their bounds onto [-1, 1],
    categories onto 0 and 1. A teacher that has no rows, or whose training fails, votes for the
    first class; one that has rows of one class only, for that.

    Parameters
    ----------
    features, target
        Columns with bounds or categories, and the column of classes.
    model
        What is trained: see `adaptive_dp.pate.teachers`.
    settings
        Keyword arguments of the model.
    count
        The number of teachers; None with ``by``.
    by
        A column with categories, each of which has a teacher.
    norm
        To which longer rows are scaled down; None for none.
    columns
        The columns' declarations.
    """

    kind: ClassVar[str] = "teachers"
    reads: ClassVar[type] = Table
    random: ClassVar[bool] = True

    features: tuple[str, ...] = field(converter=texts)
    target: str
    model: Function
    settings: Mapping[str, Any] = field(factory=dict, converter=_settings)
    count: int | None = field(default=None, converter=number)
    by: str | None = None
    norm: float | None = field(default=None, converter=number)
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def label(self) -> str:
        """Return how many there are, or of what."""
        return f"{self.count} teachers" if self.by is None else f"a teacher for each {self.by}"

    def detail(self) -> str:
        """Return what they learn, and by which model."""
        return f"{self.target} by {len(self.features)} columns, {self.model.name.partition(':')[2]}"

    def examples(self) -> ExamplesOf:
        """Return how rows become examples."""
        inside = {name: self.columns[name] for name in (*self.features, self.target)}
        return ExamplesOf(self.features, self.target, "class", self.norm, False, inside)

    def domain(self, inputs: Sequence[Any]) -> TeachersDomain:
        """Return how many teachers there are, and what they tell apart."""
        table: Table = inputs[0]
        require(
            (self.count is None) != (self.by is None),
            "teachers need a count (units are then split at random) or by (a column, each category "
            "of which has a teacher), one of the two",
        )
        made = self.examples()
        width = made.domain([table]).width
        found = whole(self.count)
        if self.by is not None:
            require(
                self.by not in (*self.features, self.target),
                f"teachers by {self.by!r}: this column is a feature or the target; leave it out",
            )
            groups = table.find(self.by)
            require(
                isinstance(groups, Categories),
                f"teachers by {self.by!r} need a column that declares categories",
            )
            assert isinstance(groups, Categories)
            require(
                self.columns.get(self.by) == groups,
                f"the column {self.by!r} must be declared as {table.name!r} declares it",
            )
            found = len(groups.values)
        require(
            found is not None and 1 <= found <= MOST,
            f"teachers' count must be a whole number from 1 to {MOST}, got {self.count!r}",
        )
        goal = self.columns[self.target]
        assert isinstance(goal, Categories)
        assert found is not None
        return TeachersDomain(found, tuple(goal.values), made, width)

    def change(self, change: Change) -> Change:
        """Return how many teachers change: a teacher that changes is one exchanged."""
        if self.by is None:
            return Change(True, 1, True)
        if change.rows == UNBOUNDED:
            return change
        groups = self.columns[self.by]
        assert isinstance(groups, Categories)
        rows = change.both if change.replaced else change.rows
        return Change(True, min(rows, len(groups.values)), True)

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Train one teacher on made-up rows, and see to the folder; see `rehearsed`."""
        rehearsed(self._recipe(), self.domain(inputs).width)
        folder = current()
        if folder is not None:
            folder.claim(inputs[0].name, inputs[0].unit)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Ensemble:
        """Return the trained teachers."""
        return self.observed(inputs, stream, range)

    def observed(self, inputs: Sequence[Any], stream: Stream, rounds: Rounds) -> Ensemble:
        """Return the trained teachers, and show how many there are."""
        rows = self._usable(inputs[0])
        examples = self.examples().run([rows], stream).in_memory()
        # a simulation has its split from its seed, which a second one has too
        folder = None if isinstance(stream, SeededStream) else current()
        if self.by is not None:
            whose, count = self._groups(rows), len(self._categories(self.by))
        else:
            assert self.count is not None
            whose, count = _split(stream, examples, rows, self.count), self.count
        seeds = (stream if folder is None else folder.stream("seeds")).words(count)
        order = np.argsort(whose, kind="stable")
        ends = np.searchsorted(whose[order], np.arange(count + 1))

        def part(i: int) -> Part:
            mine = order[ends[i] : ends[i + 1]]
            labels = examples.labels[mine].astype(np.int64)
            return Part(examples.steps[mine], examples.unit, labels, int(seeds[i]))

        return trained(part, count, self._recipe(), rounds, current())

    def _recipe(self) -> Recipe:
        classes = len(self._categories(self.target))
        return Recipe(self.model.resolve(), dict(self.settings), classes)

    def _categories(self, name: str) -> tuple[Any, ...]:
        declared = self.columns[name]
        assert isinstance(declared, Categories)
        return tuple(declared.values)

    def _usable(self, rows: Rows) -> Rows:
        """Return the rows whose class, and group, is one of the declared."""
        for name in (self.target, *(() if self.by is None else (self.by,))):
            values = self._categories(name)
            rows = rows.where(lambda c, n=name, v=values: category_index(c[n], v) >= 0)  # type: ignore[misc]
        return rows

    def _groups(self, rows: Rows) -> NDArray[np.int64]:
        assert self.by is not None
        by, values = self.by, self._categories(self.by)
        index = rows.values(lambda c: category_index(c[by], values).astype(np.float64))
        return index.astype(np.int64)


def _split(stream: Stream, examples: Examples, rows: Rows, count: int) -> NDArray[np.int64]:
    """Return each row's teacher, which is its unit's."""
    folder = None if isinstance(stream, SeededStream) else current()
    shares = [1 / count] * count
    if folder is None:
        return drawn(stream, shares, examples.count)[examples.units]
    # the data set's own numbers, which its filters and samples leave as they are
    return drawn(folder.stream("split"), shares, int(rows.units.max(initial=-1)) + 1)[rows.units]


@frozen(eq=False, repr=False)
class Teachers(Private[Any]):
    """Classifiers of disjoint groups of people; private, as their votes are.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> bayes = "sklearn.naive_bayes:GaussianNB"
    >>> found = dp.pate.teachers(people, ["x"], "y", bayes, count=250)
    >>> answers = found.votes(found.points("pool", 100)).release(dp.pate.GNMax(sigma=40))
    >>> dp.Pipeline(answers=answers).certify(delta=1e-6).epsilon < 2
    True
    """

    def points(self, name: str, size: int) -> Released[Any]:
        """Return public rows with the teachers' features, of a data set bound when the plan runs.

        Parameters
        ----------
        name
            As ``run(name=...)`` binds it: a frame or a mapping of the features to columns.
        size
            How many rows.
        """
        made: ExamplesOf = self.domain.examples
        inside = {name: made.columns[name] for name in made.features}
        return Released(Points(name, size, made.features, made.norm, inside))

    def votes(self, at: Released[Any], *, size: int | None = None) -> Ballots:
        """Return each teacher's vote on each of the rows; private.

        Parameters
        ----------
        at
            Rows as `points` gives them, shape (size, features); or rows chosen among them by
            `adaptive_dp.post`, from earlier answers, say.
        size
            How many rows ``at`` has; known where it comes from `points`.
        """
        handle = open_handle("votes: at", at)
        known = handle.domain.size if isinstance(handle.domain, PointsDomain) else None
        require(
            size is None or known is None or size == known,
            f"votes: size={size!r} was given, but the points are {known}; leave it out",
        )
        size = known if size is None else whole(size)
        require(
            size is not None and 1 <= size <= 10**9,
            "votes needs size=..., the number of rows to vote on: what a function returns does not "
            "say how many they are before the plan runs",
        )
        assert size is not None
        width = self.domain.width
        if known is None:
            at = post(checked_points, at, size=size, width=width)
        elif handle.domain.width != width:
            require(
                False,
                f"votes: the points have {handle.domain.width} features, the teachers {width}; "
                "take teachers.points(...)",
            )
        return Ballots(Ask(size), (self, at))


def teachers(
    table: Private[Any],
    features: Sequence[str],
    target: str,
    model: Any,
    *,
    count: int | None = None,
    by: str | None = None,
    norm: float | None = None,
    **parameters: Any,
) -> Teachers:
    """Return teachers: a classifier for each of several disjoint groups of the table's units.

    Parameters
    ----------
    table
        A data set, or part of it.
    features
        Columns with bounds (mapped onto [-1, 1]) or categories (each a feature of 0 and 1).
    target
        The column to predict, with categories.
    model
        A classifier with fit and predict, as scikit-learn's: its class, which is made with
        ``parameters``; an instance, whose parameters are taken (not what it has learned); or its
        name as ``"module:name"``. Or a function of ``(x, y, seed, **parameters)`` that returns what
        it has trained, a function of x or an object with predict (a pipeline, say): with x of shape
        (n, p), y of class positions of shape (n,), and a whole number to draw randomness from. It
        is called once for each teacher, possibly in other processes, and must keep nothing from one
        call to the next: the shared generators of NumPy, ``random`` and torch are seeded for each
        call, any other is to be made from ``seed``. A teacher that has no rows, or whose model
        fails, votes for the first class.
    count
        The number of teachers, among whom units are split at random.
    by
        In place of count, a column with categories, each of which has a teacher.
    norm
        To which longer rows are scaled down; None for none.
    parameters
        Of the model: numbers, texts, lists and mappings of such.

    Notes
    -----
    Teachers are trained, and asked, by the workers that are set around the run with joblib (extra
    ``pate``), on this machine or by Dask on others; what is released does not hang on how many
    there are. Threads of one process take turns, since they share generators of random numbers:
    processes are faster. `kept` keeps trained teachers, so that a run that was stopped goes on.

    .. code-block:: python

        with joblib.parallel_config(backend="loky", n_jobs=4), dp.pate.kept("teachers"):
            result = plan.run(people=frame, pool=points, progress=True)

    With ``dask.distributed.Client(...)`` and ``backend="dask"`` the rows of each teacher, and what
    it has learned, travel to the cluster: it must be as trusted as this machine.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> dp.pate.teachers(people, ["x"], "y", "sklearn.naive_bayes:GaussianNB", count=10)
    <private 10 teachers y by 1 columns, GaussianNB>
    """
    declared = declarations(table.domain, (*features, target, *(() if by is None else (by,))))
    function, taken = described(model)
    operation = Teach(
        features, target, function, {**taken, **parameters}, count, by, norm, declared
    )
    return Teachers(operation, (table,))
