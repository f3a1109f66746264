"""The audit of a whole plan by one run, with canaries planted among its rows.

Each canary is a unit of one row, in or out by a fair coin of its own; the plan runs once, as it is
declared, and all that the run releases is scored. By the theorem of `adaptive_dp.audit.one_run`
(Steinke, Nasr and Jagielski 2023) the claim must hold wherever one coin is turned and all else
stays: that a unit comes or goes (``add_remove``), or is zeroed while the number of units stays
(``zero_out``). It is what the plan's certificate says, for one unit. Under ``replace_one`` no unit
comes or goes, and a certificate of it promises nothing of that: such plans are refused.

Nothing outside of the plan hangs on how many canaries are in: a learner that divides by the number
of rows has released it, with noise that its certificate pays for. A canary in a sampled round is
drawn by the plan's own coins. Other data stay as they are on all sides, so a score may know them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.audit.along import Along
from adaptive_dp.audit.claims import allowed
from adaptive_dp.audit.one_run import one_run
from adaptive_dp.audit.result import Audit
from adaptive_dp.audit.sides import checked, stream
from adaptive_dp.audit.transcripts import Recorded, Transcripts, seeds
from adaptive_dp.audit.zeroed import Counted
from adaptive_dp.data import MemoryRows, Reading, cells, read_rows
from adaptive_dp.data.cells import columns_of
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.run import released
from adaptive_dp.queries.source import Source

RUN = 1
"""The stream of the run's seed; the coins have another."""


@frozen
class Seen:
    """All that one run shows.

    Parameters
    ----------
    released
        The outputs by name, as a run returns them.
    transcript
        Every release in order, each round of a loop for itself, then outputs that are none.

    Examples
    --------
    >>> Seen(released={"n": 12.0}, transcript=(12.0,)).released["n"]
    12.0
    """

    released: Mapping[str, Any]
    transcript: tuple[Any, ...] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        """Return an output."""
        return self.released[name]


Score = Callable[[Seen], ArrayLike]
"""``score(seen)``: a number for each canary, larger where it seems to be in."""


@frozen(eq=False, repr=False)
class Planted:
    """Data with some canaries, each a unit of its own, behind the others' rows.

    Parameters
    ----------
    data
        The others' rows, as a data set reads them; None for none.
    canaries
        A mapping of columns, a structured array or a frame: a canary a row.
    included
        Which of them are in, shape (m,).
    size
        The public number of units, out ones included; None where it is private.
    """

    data: Any
    canaries: Any
    included: NDArray[np.bool_]
    size: int | None = None

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        added = read_rows(_identified(self.canaries, columns, unit), columns, None).take(
            self.included
        )
        if self.data is None:
            joined, units = added.columns, np.arange(len(added.units), dtype=np.int64)
        else:
            found = read_rows(self.data, columns, unit)
            fresh = int(found.units.max(initial=-1)) + 1
            units = np.concatenate([found.units, fresh + np.arange(len(added.units))])
            joined = {
                name: _joined(found.columns[name], added.columns[name]) for name in added.columns
            }
        if self.size is None:
            return MemoryRows(joined, units)
        out = int(np.count_nonzero(~self.included))
        return Counted(joined, units, len(np.unique(units)) + out)


def _identified(canaries: Any, columns: Mapping[str, Reading], unit: str | None) -> Any:
    """Return canaries with a unit's column where one is declared, and they have none."""
    rest = {name: reading for name, reading in columns.items() if name != unit}
    if len(rest) == len(columns) or isinstance(canaries, str | os.PathLike):
        return canaries
    if unit in columns_of(canaries, [str(unit)]):
        return canaries
    count = len(read_rows(canaries, rest, None).units)
    names = [f"canary {i}" for i in range(count)]
    return {**columns_of(canaries, list(rest)), str(unit): names}


def _joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return two columns as one; of different types, as cells: none must change what others are."""
    if first.dtype.kind != second.dtype.kind:
        first, second = (cells.objects(each.tolist()) for each in (first, second))
    return np.concatenate([first, second])


def planted(
    plan: Pipeline,
    canaries: Any,
    score: Score | None = None,
    *,
    data: Mapping[str, Any] | None = None,
    into: str | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
) -> Audit:
    """Audit a plan, such as a learner's, by one run with canaries among its rows.

    Parameters
    ----------
    plan
        Without free parameters, at a delta at which its epsilon is finite. What is claimed is its
        certificate.
    canaries
        m rows of the data set, a mapping of columns or a frame: see `corners` and `mislabeled`.
        Each becomes a unit of its own; a unit's column is not needed.
    score
        What is made of all that the run shows: a number for each canary, shape (m,), larger where
        it seems to be in; it may know all rows, and must not know which canaries are in. By default
        the products of each canary's clipped gradients and the plan's released sums of gradients,
        round by round, less what the other rows and half of the canaries would add.
    data
        What the plan reads beside the canaries, by the data sets' names. What the audit says is
        then as private as the data are. The canaries' data set may be left out: then it has none
        but canaries.
    into
        The name of the data set that gets the canaries, where the plan reads several.
    confidence
        Of the lower bound on epsilon.
    seed
        For a reproducible audit; by default coins and noise are the operating system's.

    Returns
    -------
    Audit
        As `one_run` returns it: the verdict rests on its theorem alone.

    Raises
    ------
    DeclarationError
        If neighbours exchange units (replace_one), no epsilon is certified, a parameter is free, or
        there is no default score.
    DataError
        If data do not fit their declaration.
    DomainError
        If there are fewer than 10 canaries, or scores have another shape.
    RunError
        If the run fails.

    References
    ----------
    Steinke, Nasr and Jagielski 2023, the main theorem.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (-1, 1), "y": ["no", "yes"]})
    >>> learner = dp.NoisySGD(features=["x"], target="y", steps=5, sampling_rate=1.0)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> canaries = dp.audit.corners(people, 50, seed=0)
    >>> dp.audit.planted(plan, canaries, seed=0).verdict != "violation"
    True
    """
    allowed(confidence)
    seed = checked(seed)
    require(isinstance(plan, Pipeline), f"planted audits a Pipeline, got {type(plan).__name__}")
    require(
        data is None or isinstance(data, Mapping),
        f"data must be a mapping from data sets' names to data, got {type(data).__name__}",
    )
    require(
        score is None or callable(score),
        f"score must be a function of what the run shows, got {type(score).__name__}",
    )
    source = _source(plan, into)
    require(
        not plan.free,
        f"parameters are still free: {', '.join(sorted(plan.free))}; calibrate the plan first",
    )
    paper = plan.certify()
    require(
        math.isfinite(paper.epsilon),
        f"no epsilon is certified at delta = {plan.delta:g}, so there is nothing to audit; choose "
        "a delta with plan.with_delta(1e-6)",
    )
    given = dict(data or {})
    others = given.pop(source.name, None)
    m = _count(canaries, source)
    _sized(source, others, m)

    def train(included: NDArray[np.bool_]) -> ArrayLike:
        def filled(rest: Any, which: NDArray[np.bool_]) -> dict[str, Any]:
            return {**given, source.name: Planted(rest, canaries, which, source.size)}

        told = Transcripts.of(plan, filled(others, included))
        (drawn,) = seeds(stream(seed, RUN), 1)
        run = Recorded(plan.structure, drawn, frozenset(told.shown), {})
        along = None
        if score is None:
            nobody, everybody = np.zeros(m, dtype=np.bool_), np.ones(m, dtype=np.bool_)
            alone = evolve(source, size=None)
            along = Along.of(
                plan.structure,
                told.shown,
                source,
                alone.bind(Planted(others, canaries, nobody)),
                alone.bind(Planted(None, canaries, everybody)),
            )
            run.watch_releases(along)
        told.begin(run)
        run.all()
        if along is not None:
            return along.scores
        assert score is not None
        return score(Seen(released(plan, run), tuple(run.told)))

    found = one_run(train, m, paper, confidence=confidence, seed=seed)
    notes = [f"a canary is a unit of {source.name!r} with one row ({source.neighbors})"]
    if data:
        notes.append("made with given data: this audit is as private as they are")
    return evolve(found, notes=(*found.notes, *notes))


def _count(canaries: Any, source: Source) -> int:
    """Return how many canaries there are."""
    columns = {name: each for name, each in source.columns.items() if name != source.unit}
    return evolve(source, unit=None, size=None, columns=columns).bind(canaries).size()


def _source(plan: Pipeline, into: str | None) -> Source:
    """Return the data set that gets the canaries; refuse exchanges."""
    operations = [node.handle.operation for node in plan.structure]
    found = {each.name: each for each in operations if isinstance(each, Source)}
    require(
        any(into == name for name in found) if into is not None else len(found) == 1,
        f"into must name one of the plan's data sets of rows, {sorted(found)}, got {into!r}",
    )
    source = found[into if into is not None else next(iter(found))]
    require(
        source.neighbors != "replace_one",
        f"{source.name!r} has replace_one neighbours, of which a certificate promises nothing "
        "where a canary comes or goes; declare neighbors='add_remove' or 'zero_out'",
    )
    return source


def _sized(source: Source, others: Any, canaries: int) -> None:
    if source.size is None:
        return
    bound = None if others is None else evolve(source, size=None).bind(others)
    units = canaries if bound is None else bound.size() + canaries
    if units != source.size:
        raise DataError(
            f"{source.name!r} declares {source.size} units, but those of the data and the "
            "canaries, out ones included, are another number"
        )
