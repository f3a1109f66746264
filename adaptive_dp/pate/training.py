"""Training an ensemble: each teacher by itself, on its own rows alone.

A teacher's rows lie in memory of their own that starts at a multiple of 64 bytes, and it computes
with one thread: what it learns is a function of its rows and its seed, wherever it is trained.
(Where a model's own code puts what it allocates is up to the system; a library whose sums round
otherwise at another address is beyond this.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data.workers import map_unordered
from adaptive_dp.graph.errors import RunError
from adaptive_dp.pate.ballots import VoteCounts
from adaptive_dp.pate.kept import Folder
from adaptive_dp.pate.model import FAILURES, Model, answers, fitted, positions_of, taught
from adaptive_dp.pate.quiet import quiet

LINE = 64
"""Bytes: the longest vectors and the cache's lines."""

TOGETHER = 16
"""Teachers that are asked in one task: the points are sent once for all of them."""

Rounds = Callable[[int], Iterable[int]]


@frozen(eq=False, repr=False)
class Part:
    """A teacher's rows, and what its randomness is drawn from.

    Parameters
    ----------
    steps
        Shape (n, p), whole numbers; features are ``steps * unit``.
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
    """What is trained for each teacher, and which classes it tells apart."""

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
        groups = [self.models[i : i + TOGETHER] for i in range(0, len(self.models), TOGETHER)]
        run = os.getpid()
        found = np.zeros((len(points), self.classes), dtype=np.int64)
        with quiet(run):
            for part in map_unordered(
                asked, ((group, points, self.classes, run) for group in groups)
            ):
                found += part
        return VoteCounts(found, len(self.models))


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an empty array in memory of its own that starts at a multiple of `LINE`."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.empty(size + LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE
    found: NDArray[Any] = memory[start : start + size].view(kind).reshape(shape)
    return found


def copied(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that starts at a multiple of `LINE`."""
    found = aligned(values.shape, values.dtype)
    found[...] = values
    return found


def train(recipe: Recipe, part: Part, run: int) -> Model:
    """Return a teacher of its rows."""
    with quiet(run):
        x = aligned(part.steps.shape, np.float64)
        np.multiply(part.steps, part.unit, out=x, dtype=np.float64)
        return taught(recipe.make, recipe.parameters, x, copied(part.y), part.seed, recipe.classes)


def asked(
    models: list[Model], points: NDArray[np.float64], classes: int, run: int
) -> NDArray[np.int64]:
    """Return how many of the models vote for each class, shape (m, classes)."""
    found = np.zeros((len(points), classes), dtype=np.int64)
    every = np.arange(len(points))
    with quiet(run):
        for model in models:
            found[every, model.votes(copied(points))] += 1
    return found


def trained(
    part: Callable[[int], Part],
    count: int,
    recipe: Recipe,
    rounds: Rounds,
    folder: Folder | None = None,
) -> Ensemble:
    """Return the teachers of ``count`` parts.

    Parameters
    ----------
    part
        Makes a teacher's rows when they are needed, so that never all lie there as float64.
    count
        The number of teachers.
    recipe
        What is trained.
    rounds
        Yields 0, ..., n - 1, and may show how far it is.
    folder
        Where trained teachers are kept.
    """
    run = os.getpid()
    models: dict[int, Model] = {}
    steps = iter(rounds(count))  # while there is a standard error to show bars on
    with quiet(run):
        names = _names(part, count, recipe, folder)
        for i, name in names.items():
            model = None if folder is None else folder.load(name)
            if isinstance(model, Model) and model.classes == recipe.classes:
                models[i] = model
        missing = [i for i in range(count) if i not in models]
        done = map_unordered(_numbered, ((i, recipe, part(i), run) for i in missing))
        for _ in models:
            next(steps)
        for _, (i, model) in zip(steps, done, strict=True):
            models[i] = model
            if folder is not None:
                folder.save(names[i], model)
    return Ensemble([models[i] for i in range(count)], recipe.classes)


def _numbered(i: int, recipe: Recipe, part: Part, run: int) -> tuple[int, Model]:
    return i, train(recipe, part, run)


def _names(
    part: Callable[[int], Part], count: int, recipe: Recipe, folder: Folder | None
) -> dict[int, str]:
    if folder is None:
        return {}
    found = {}
    for i in range(count):
        mine = part(i)
        what = (recipe.classes, mine.seed, mine.unit, mine.steps.shape)
        arrays = (mine.steps, mine.y)
        found[i] = folder.name(recipe.make, recipe.parameters, what, arrays)
    return found


def rehearsed(recipe: Recipe, width: int) -> None:
    """Train and ask a model on rows made up of nothing, so that its errors come in the open.

    Raises
    ------
    RunError
        If the model cannot be trained, or gives no classes.
    """
    draw = np.random.default_rng(0)
    # features of any bounds have such values, but those of none above 0; some models need them
    x = draw.uniform(0, 1, (max(200, 20 * recipe.classes), width))
    y = np.arange(len(x)) % recipe.classes
    try:
        with quiet(os.getpid()):
            predict = fitted(recipe.make, recipe.parameters, copied(x), copied(y), 0)
            votes = answers(predict, copied(x[:3]))
    except FAILURES as error:
        raise RunError(
            f"a teacher's model cannot be trained on made-up rows: {type(error).__name__}: {error}"
        ) from error
    if positions_of(votes, 3, recipe.classes) is None:
        raise RunError(
            "a teacher's model must predict one class position for each row, an array of shape "
            f"(rows,); of 3 made-up rows it gave {votes.dtype} of shape {votes.shape}"
        )
