"""Teachers: one classifier for each of several disjoint groups of people, and their training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Examples, MemoryRows, Rows, SchemaError, grid, read_rows
from adaptive_dp.data.workers import map_unordered
from adaptive_dp.graph.errors import DataError, DeclarationError, RunError
from adaptive_dp.graph.handles import Private, PublicSource, Released, check_data_name, post
from adaptive_dp.graph.operation import UNBOUNDED, Change, Operation
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import number, strings
from adaptive_dp.noise.stream import SeededStream, Stream
from adaptive_dp.pate.ballots import (
    AskTeachers,
    Ballots,
    VoteCounts,
    are_positions,
    check_int,
    check_points,
    int_within,
)
from adaptive_dp.pate.model import (
    FAILURES,
    Model,
    describe_model,
    fit_model,
    made_up_rows,
    predicted_positions,
    predictions,
    quiet,
    settings_parameter,
    train_model,
)
from adaptive_dp.pate.saved_teachers import Folder, current_folder
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Categories, Column, Table
from adaptive_dp.queries.examples import ExamplesOf, declarations, draw_parts
from adaptive_dp.queries.expressions import present
from adaptive_dp.queries.labeled import open_handle
from adaptive_dp.queries.source import reading
from adaptive_dp.queries.table import Table as TableHandle
from adaptive_dp.queries.table import complete_rows
from adaptive_dp.queries.transforms import category_index

# -----------------------------------------------------------------------------
# Public rows with the features that teachers read.


@frozen
class PointsDomain:
    """How many points there are, of how many features."""

    size: int
    width: int


@frozen
class Points(PublicSource):
    """Public rows, made into features as the private ones are; bound when the plan runs.

    Parameters
    ----------
    name
        By which a run binds them.
    size
        How many rows.
    features, norm, columns
        As the teachers have them.
    """

    kind: ClassVar[str] = "points"

    name: str
    size: int = field(converter=number, validator=int_within())
    features: tuple[str, ...] = field(converter=strings)
    norm: float | None = field(default=None, converter=number)
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def __attrs_post_init__(self) -> None:
        check_data_name("points", self.name)
        missing = [name for name in self.features if self.columns.get(name) is None]
        if missing or not self.features:
            raise DeclarationError(
                f"points need at least one feature, each with bounds or categories; {missing!r} "
                "lack them"
            )

    def label(self) -> str:
        """Return the name."""
        return self.name

    def detail(self) -> str:
        """Return how many there are."""
        return f"{self.size} public rows"

    def domain(self, inputs: Sequence[Any]) -> PointsDomain:
        """Return how many there are, of how many features."""
        if inputs:
            # points are bound from outside, so nothing comes before them
            raise DeclarationError("points have no inputs")
        examples = _examples(self.features, self.norm, self.columns)
        return PointsDomain(self.size, len(examples.scales()[0]))

    def bind(self, data: Any) -> NDArray[np.float64]:
        """Return the features, shape (size, width).

        Raises
        ------
        DataError
            If columns are missing, a row has no value in one, or there are more or fewer rows.
        """
        try:
            rows = public_rows(data, self.columns)
        except SchemaError as error:
            raise DataError(f"points {self.name!r}: {error}") from None
        # each row is a question: left out in silence, it would leave its answer without a row
        for name in self.features:
            there = rows.values(lambda c, n=name: present(c[n]).astype(np.float64))  # type: ignore[misc]
            if not there.all():
                raise DataError(
                    f"points {self.name!r}: {int((there == 0).sum())} rows have no value in "
                    f"{name!r}; leave them out and declare fewer points, or fill in a value"
                )
        features = make_features(rows, self.features, self.norm, self.columns)
        if len(features) != self.size:
            raise DataError(
                f"points {self.name!r} are declared as {self.size} rows, got {len(features)}; pass "
                "so many, or declare the plan with another size"
            )
        return features

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds data."""
        raise DataError(f"nothing is bound to the points {self.name!r}; pass run({self.name}=...)")


def _examples(
    features: tuple[str, ...], norm: float | None, columns: Mapping[str, Column]
) -> ExamplesOf:
    # of the target only the length would be read
    return ExamplesOf(features, features[0], "class", norm, False, columns)


def public_rows(data: Any, columns: Mapping[str, Column]) -> MemoryRows:
    """Return public rows in the data's own units.

    Raises
    ------
    SchemaError
        If columns are missing.
    """
    # read as the data set's own columns are, but public rows have no units
    return read_rows(data, {name: reading(column) for name, column in columns.items()}, None)


def make_features(
    rows: MemoryRows,
    features: tuple[str, ...],
    norm: float | None,
    columns: Mapping[str, Column],
) -> NDArray[np.float64]:
    """Return the features of rows as teachers read them; a missing number is the bound next to 0.

    Neither teachers nor points have rows with missing values: only a prediction may be asked of
    one, since each row that is asked of has an answer.
    """
    examples = _examples(features, norm, columns)
    scales, norm = examples.scales(), examples.radius
    # features on the same integer grid as the private rows'
    steps = rows.integer_rows(
        lambda block: grid.ball_steps(examples.vectors(block, scales), norm)[0]
    )
    # grid steps times the grid's unit, which depends on the norm alone
    return np.asarray(steps * grid.ball(np.zeros((1, 1)), norm)[1], dtype=np.float64)


# -----------------------------------------------------------------------------
# Training an ensemble: each teacher by itself, on its own rows alone.
#
# A teacher's rows are in memory of their own, aligned to 64 bytes, and it computes with one thread:
# what it learns is a function of its rows and its seed, wherever it is trained. (A library whose
# rounding depends on the addresses of its own allocations is beyond this.)


ALIGNMENT = 64
"""Bytes: the length of the widest vector registers and of a cache line."""

TEACHERS_PER_TASK = 16
"""How many teachers vote in one task: the points are sent once for all of them."""

Rounds = Callable[[int], Iterable[int]]


@frozen(eq=False, repr=False)
class TeacherRows:
    """The rows of one teacher, and the seed of its randomness.

    Parameters
    ----------
    steps
        Shape (n, p), integers; features are ``steps * unit``.
    y
        Positions of classes, shape (n,).
    """

    steps: NDArray[np.float32]
    unit: float
    y: NDArray[np.int64]
    seed: int

    def __repr__(self) -> str:
        return "<private rows>"


@frozen(eq=False, repr=False)
class Recipe:
    """The model that is trained for each teacher, its parameters, and the number of classes."""

    make: Callable[..., Any]
    parameters: Mapping[str, Any]
    classes: int


@frozen(eq=False, repr=False)
class Ensemble:
    """Trained teachers."""

    models: list[Model]
    classes: int

    def __repr__(self) -> str:
        return "<private teachers>"

    def counts(self, points: NDArray[np.float64]) -> VoteCounts:
        """Return how many teachers vote for each class on points of shape (m, p)."""
        groups = [
            self.models[i : i + TEACHERS_PER_TASK]
            for i in range(0, len(self.models), TEACHERS_PER_TASK)
        ]
        process = os.getpid()
        counts = np.zeros((len(points), self.classes), dtype=np.int64)
        with quiet(process):
            # tasks come back in any order, and sums of integers do not depend on it
            for group_counts in map_unordered(
                count_votes, ((group, points, self.classes, process) for group in groups)
            ):
                counts += group_counts
        return VoteCounts(counts, len(self.models))


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an empty array in memory of its own that starts at a multiple of `ALIGNMENT`."""
    item_type = np.dtype(dtype)
    size = int(np.prod(shape)) * item_type.itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array: NDArray[Any] = memory[start : start + size].view(item_type).reshape(shape)
    return array


def aligned_copy(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that starts at a multiple of `ALIGNMENT`."""
    copy = aligned_empty(values.shape, values.dtype)
    copy[...] = values
    return copy


def train_teacher(recipe: Recipe, part: TeacherRows, run: int) -> Model:
    """Return a teacher of its rows."""
    with quiet(run):
        x = aligned_empty(part.steps.shape, np.float64)
        # the product is made in the aligned array, without a copy of another alignment
        np.multiply(part.steps, part.unit, out=x, dtype=np.float64)
        return train_model(
            recipe.make, recipe.parameters, x, aligned_copy(part.y), part.seed, recipe.classes
        )


def count_votes(
    models: list[Model], points: NDArray[np.float64], classes: int, run: int
) -> NDArray[np.int64]:
    """Return how many of the models vote for each class, shape (m, classes)."""
    counts = np.zeros((len(points), classes), dtype=np.int64)
    rows = np.arange(len(points))
    with quiet(run):
        for model in models:
            # a copy for each teacher: a model that writes into it does not affect the next
            counts[rows, model.votes(aligned_copy(points))] += 1
    return counts


def train_teachers(
    part: Callable[[int], TeacherRows],
    count: int,
    recipe: Recipe,
    rounds: Rounds,
    folder: Folder | None = None,
) -> Ensemble:
    """Return the teachers of ``count`` parts.

    Parameters
    ----------
    part
        Returns a teacher's rows when they are needed, so that not all are in memory as float64.
    count
        The number of teachers.
    recipe
        The model that is trained.
    rounds
        Yields 0, ..., n - 1, and may show progress.
    folder
        Where trained teachers are saved; None for nowhere.
    """
    run = os.getpid()
    models: dict[int, Model] = {}
    steps = iter(rounds(count))  # while there is a standard error to show bars on
    with quiet(run):
        names = _file_names(part, count, recipe, folder)
        for i, name in names.items():
            model = None if folder is None else folder.load(name)
            # a file of another kind, or for other classes, is not used
            if isinstance(model, Model) and model.classes == recipe.classes:
                models[i] = model
        missing = [i for i in range(count) if i not in models]
        # parts are made as workers take them, so that few are in memory
        done = map_unordered(_train_numbered, ((i, recipe, part(i), run) for i in missing))
        # progress counts loaded teachers as done
        for _ in models:
            next(steps)
        # models come back in any order, each with its number
        for _, (i, model) in zip(steps, done, strict=True):
            models[i] = model
            if folder is not None:
                # as soon as each is trained, so that a run that is killed loses none of these
                folder.save(names[i], model)
    return Ensemble([models[i] for i in range(count)], recipe.classes)


def _train_numbered(i: int, recipe: Recipe, part: TeacherRows, run: int) -> tuple[int, Model]:
    return i, train_teacher(recipe, part, run)


def _file_names(
    part: Callable[[int], TeacherRows], count: int, recipe: Recipe, folder: Folder | None
) -> dict[int, str]:
    if folder is None:
        return {}
    names = {}
    for i in range(count):
        teacher_rows = part(i)
        settings = (recipe.classes, teacher_rows.seed, teacher_rows.unit, teacher_rows.steps.shape)
        arrays = (teacher_rows.steps, teacher_rows.y)
        names[i] = folder.name(recipe.make, recipe.parameters, settings, arrays)
    return names


def rehearse_model(recipe: Recipe, width: int) -> None:
    """Train a model on made-up rows and let it predict, so that its errors are public.

    Raises
    ------
    RunError
        If the model cannot be trained, or gives no classes.
    """
    x, y = made_up_rows(recipe.classes, width)
    # errors on made-up rows do not depend on data, so they may be shown in full
    try:
        with quiet(os.getpid()):
            predict = fit_model(recipe.make, recipe.parameters, aligned_copy(x), aligned_copy(y), 0)
            votes = predictions(predict, aligned_copy(x[:3]))
    except FAILURES as error:
        raise RunError(
            f"a teacher's model cannot be trained on made-up rows: {type(error).__name__}: {error}"
        ) from error
    # three rows show the form of all predictions
    if predicted_positions(votes, 3, recipe.classes) is None:
        raise RunError(
            "a teacher's model must predict one class position for each row, an array of shape "
            f"(rows,); of 3 made-up rows it gave {votes.dtype} of shape {votes.shape}"
        )
    # in a run such a vote counts for the first class: refusing it there would tell of the data
    if not are_positions(votes.astype(np.float64), recipe.classes).all():
        raise RunError(
            f"a teacher's model must predict positions of classes, integers from 0 to "
            f"{recipe.classes - 1}, as it was given them in y; of 3 made-up rows it predicted "
            f"{', '.join(map(str, votes.tolist()))}"
        )


# -----------------------------------------------------------------------------
# The split: one unit changes one teacher.
#
# Each unit goes to one teacher by its own uniform draw, which no data affects, so that a unit's
# teacher does not depend on who else is in the data. Let D and D' be neighbours that differ in unit
# u. Given all draws, the rows of every teacher but u's are the same, and so is the law of what it
# learns: each is trained on its own rows, with randomness of its own. So one unit changes *one
# teacher*, however many rows it has, and whatever the neighbour relation does to them. (Shuffling
# units into groups of equal size would not do: one more unit would move others.)
#
# Rows that lack a value that teachers read are left out before, by a filter, and rows of no class
# here: each row by itself. So of D and D' the rows that are left differ in unit u alone again. All
# of u's rows may be left out, in one of the two: its draw is then not made, and as draws are
# independent and of one law, those of the other units may be taken to be the same. A teacher
# without any row votes as one whose rows say nothing: it is there, and the number of teachers, and
# of their votes, stays.
#
# With ``by`` each category of a column, such as a hospital, has a teacher of its own. A unit's rows
# may then be with several teachers: a unit of up to r rows changes up to r of them (2 r where the
# rows are exchanged, fewer where there are fewer teachers).


MAX_TEACHERS = 100_000
"""Teachers, at most."""


@frozen
class TeachersDomain:
    """Classifiers of the examples' features.

    Parameters
    ----------
    count
        How many.
    classes
        The target's categories, in order; teachers vote for positions.
    examples
        How features are computed from columns.
    width
        The number of features.
    """

    count: int
    classes: tuple[Any, ...]
    examples: ExamplesOf
    width: int


@frozen
class Teach(Operation):
    """Train a classifier on each of ``count`` disjoint groups of units.

    Features are made as those of `ExamplesOf`: numbers mapped from their bounds onto [-1, 1],
    categories onto 0 and 1. A teacher that has no rows, or whose training fails, votes for the
    first class; one that has rows of one class only, for that.

    Parameters
    ----------
    features, target
        Columns with bounds or categories, and the column of classes.
    model
        The model: see `adaptive_dp.pate.teachers`.
    settings
        Keyword arguments of the model.
    count
        The number of teachers; None with ``by``.
    by
        A column with categories, each of which has a teacher.
    norm
        The l2 norm to which longer rows are scaled down; None for none.
    columns
        The columns' declarations.
    """

    kind: ClassVar[str] = "teachers"
    column_fields: ClassVar[tuple[str, ...]] = ("features", "target", "by")
    input_type: ClassVar[type] = Table
    random: ClassVar[bool] = True

    features: tuple[str, ...] = field(converter=strings)
    target: str
    model: Function
    settings: Mapping[str, Any] = settings_parameter("a teacher's model")
    count: int | None = field(default=None, converter=number)
    by: str | None = None
    norm: float | None = field(default=None, converter=number)
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def label(self) -> str:
        """Return the number of teachers, or the column that groups them."""
        return f"{self.count} teachers" if self.by is None else f"a teacher for each {self.by}"

    def detail(self) -> str:
        """Return the target and the model."""
        return f"{self.target} by {len(self.features)} columns, {self.model.name.partition(':')[2]}"

    def examples(self) -> ExamplesOf:
        """Return how rows become examples."""
        inside = {name: self.columns[name] for name in (*self.features, self.target)}
        return ExamplesOf(self.features, self.target, "class", self.norm, False, inside)

    def domain(self, inputs: Sequence[Any]) -> TeachersDomain:
        """Return the number of teachers, and their classes."""
        table: Table = inputs[0]
        # exactly one of the two
        if (self.count is None) == (self.by is None):
            raise DeclarationError(
                "teachers need a count (units are then split at random) or by (a column, each "
                "category of which has a teacher), one of the two"
            )
        examples = self.examples()
        width = examples.domain([table]).width
        if self.by is None:
            teacher_count = check_int("teachers' count", self.count, 1, MAX_TEACHERS)
        else:
            # inside a group the column is constant, and the points to vote on have no group
            if self.by in (*self.features, self.target):
                raise DeclarationError(
                    f"teachers by {self.by!r}: this column is a feature or the target; leave it out"
                )
            groups = table.find(self.by)
            if not isinstance(groups, Categories):
                raise DeclarationError(
                    f"teachers by {self.by!r} need a column that declares categories"
                )
            domains.check_declared(table, self.by, self.columns)
            teacher_count = check_int("teachers' count", len(groups.values), 1, MAX_TEACHERS)
        return TeachersDomain(teacher_count, self._categories(self.target), examples, width)

    def change(self, change: Change) -> Change:
        """Return how many teachers change; each that changes is replaced by another."""
        # split at random: one unit changes one teacher, whatever its rows are (see the proof above)
        if self.by is None:
            return Change(True, 1, True)
        # a unit of any number of rows may change every teacher
        if change.rows == UNBOUNDED:
            return change
        # rows before and after may be with different teachers, but there are not more than groups
        rows = change.both if change.replaced else change.rows
        return Change(True, min(rows, len(self._categories(self.by))), True)

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Train one teacher on made-up rows, and reserve the folder; see `rehearse_model`."""
        rehearse_model(self._recipe(), self.domain(inputs).width)
        folder = current_folder()
        # in the rehearsal, so that a folder of other data is refused before any data are read
        if folder is not None:
            folder.claim(inputs[0].name, inputs[0].unit)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Ensemble:
        """Return the trained teachers."""
        return self.observed(inputs, stream, range)

    def observed(self, inputs: Sequence[Any], stream: Stream, rounds: Rounds) -> Ensemble:
        """Return the trained teachers, and show how many there are."""
        rows = self._usable(inputs[0])
        examples = self.examples().run([rows], stream).in_memory()
        # a simulation derives its split from its seed, so a second one has the same
        folder = None if isinstance(stream, SeededStream) else current_folder()
        if self.by is not None:
            by, groups = self.by, self._categories(self.by)
            index = rows.values(lambda c: category_index(c[by], groups).astype(np.float64))
            teacher_of_row, count = index.astype(np.int64), len(groups)
        else:
            assert self.count is not None
            count = self.count
            teacher_of_row = _assign_teachers(stream, folder, examples, rows, count)
        # a seed for each teacher, the same in each run with the folder
        seeds = (stream if folder is None else folder.stream("seeds")).words(count)
        # rows by teacher: those of teacher i lie between ends[i] and ends[i + 1]
        order = np.argsort(teacher_of_row, kind="stable")
        ends = np.searchsorted(teacher_of_row[order], np.arange(count + 1))

        def part(i: int) -> TeacherRows:
            own_rows = order[ends[i] : ends[i + 1]]
            labels = examples.labels[own_rows].astype(np.int64)
            return TeacherRows(examples.steps[own_rows], examples.unit, labels, int(seeds[i]))

        return train_teachers(part, count, self._recipe(), rounds, current_folder())

    def _recipe(self) -> Recipe:
        classes = len(self._categories(self.target))
        return Recipe(self.model.resolve(), dict(self.settings), classes)

    def _categories(self, name: str) -> tuple[Any, ...]:
        declared = self.columns[name]
        assert isinstance(declared, Categories)
        return tuple(declared.values)

    def _usable(self, rows: Rows) -> Rows:
        """Return the rows whose class, and group, are declared."""
        for name in (self.target, *(() if self.by is None else (self.by,))):
            values = self._categories(name)
            # row by row, so that dropping a row does not depend on other rows
            rows = rows.where(lambda c, n=name, v=values: category_index(c[n], v) >= 0)  # type: ignore[misc]
        return rows


def _assign_teachers(
    stream: Stream, folder: Folder | None, examples: Examples, rows: Rows, count: int
) -> NDArray[np.int64]:
    """Return each row's teacher, which is its unit's."""
    shares = [1 / count] * count
    if folder is None:
        # a draw for each unit, given to all of its rows
        return draw_parts(stream, shares, examples.count)[examples.units]
    # by the data set's own unit numbers, which filters and samples leave unchanged
    count = int(rows.units.max(initial=-1)) + 1
    return draw_parts(folder.stream("split"), shares, count)[rows.units]


@frozen(eq=False, repr=False)
class Teachers(Private[Any]):
    """Classifiers trained on disjoint groups of people; private, as are their votes.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> bayes = "sklearn.naive_bayes:GaussianNB"
    >>> teachers = dp.pate.teachers(people, ["x"], "y", bayes, count=250)
    >>> votes = teachers.votes(teachers.points("pool", 100))
    >>> answers = votes.release(dp.pate.GNMax(sigma=40))
    >>> dp.Pipeline(answers=answers).certify(delta=1e-6).epsilon < 2
    True
    """

    def points(self, name: str, size: int) -> Released[Any]:
        """Return public rows with the teachers' features, of a data set bound when the plan runs.

        Parameters
        ----------
        name
            As ``run(name=...)`` binds it: a frame or a mapping of the features to columns, with
            a value in each row.
        size
            How many rows.
        """
        examples: ExamplesOf = self.domain.examples
        columns = {name: examples.columns[name] for name in examples.features}
        return Released(Points(name, size, examples.features, examples.norm, columns))

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
        # the size is declared with points, but not of rows that a function chooses
        known = handle.domain.size if isinstance(handle.domain, PointsDomain) else None
        if size is not None and known is not None and size != known:
            raise DeclarationError(
                f"votes: size={size!r} was given, but the points are {known}; leave it out"
            )
        size = known if size is None else size
        if size is None:
            raise DeclarationError(
                "votes needs size=..., the number of rows to vote on: of rows that a function "
                "returns it is not known before the plan runs"
            )
        operation, width = AskTeachers(size), self.domain.width
        # rows that a function returned are checked when the plan runs
        if known is None:
            at = post(check_points, at, size=operation.size, width=width)
        elif handle.domain.width != width:
            raise DeclarationError(
                f"votes: the points have {handle.domain.width} features, the teachers {width}; "
                "take teachers.points(...)"
            )
        return Ballots(operation, (self, at))


def teachers(
    table: TableHandle,
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
        A data set, or part of it. Rows in which a feature, the target or ``by`` is missing are left
        out, by a filter: a visible node. `Table.fill` imputes instead.
    features
        Columns with bounds (mapped onto [-1, 1]) or categories (each a feature of 0 and 1).
    target
        The column to predict, with categories.
    model
        A classifier with fit and predict, as scikit-learn's: its class, which is made with
        ``parameters``; an instance, whose parameters are taken (not what it has learned); or its
        name as ``"module:name"``. Or a function of ``(x, y, seed, **parameters)`` that returns what
        it has trained, a function of x or an object with predict (such as a pipeline): with x of
        shape (n, p), y of class positions of shape (n,), and an int to seed randomness. It is
        called once for each teacher, possibly in other processes, and must have no state between
        calls: the shared generators of NumPy, ``random`` and torch are seeded for each call, any
        other is to be made from ``seed``. A teacher that has no rows, or whose model fails, votes
        for the first class.
    count
        The number of teachers, among whom units are split at random.
    by
        In place of count, a column with categories, each of which has a teacher.
    norm
        To which longer rows are scaled down; None for none.
    parameters
        Of the model: numbers, str, lists and mappings of these.

    Notes
    -----
    Teachers are trained, and asked, by the workers that are set around the run with joblib (extra
    ``pate``), on this machine or by Dask on others; what is released does not depend on their
    number. Threads of one process take turns, since they share generators of random numbers:
    processes are faster. `saved` stores trained teachers, so that a run that was stopped resumes.

    .. code-block:: python

        with joblib.parallel_config(backend="loky", n_jobs=4), dp.pate.saved("teachers"):
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
    read = (*features, target, *(() if by is None else (by,)))
    declared = declarations(table.domain, read)
    function, settings = describe_model(model, parameters)
    operation = Teach(features, target, function, settings, count, by, norm, declared)
    return Teachers(operation, (complete_rows(table, read),))
