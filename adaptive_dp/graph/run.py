"""Running a plan: private values in, released values out."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants import ACCOUNTANTS
from accountants.errors import InapplicableError
from accountants.numerics import UNIT, Array, up
from accountants.secret import Secret
from adaptive_dp.data.engine import Checkpoint, reading, resuming
from adaptive_dp.data.grid import UnstableArithmeticError, check_arithmetic
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.data.scan import Pass, RowSum, passes
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph import outputs
from adaptive_dp.graph.certificate import (
    Certificate,
    claim_lines,
    result_html,
    result_text,
    stamp,
    table,
    table_html,
)
from adaptive_dp.graph.certify import certificate, stamped
from adaptive_dp.graph.errors import DataError, DeclarationError, NoIntervalError, RunError
from adaptive_dp.graph.handles import (
    Handle,
    Parameter,
    PartOperation,
    Post,
    PublicSource,
    Release,
    SourceOperation,
    lineage,
    part_key,
    shape_of,
)
from adaptive_dp.graph.loops import Case, Loop, Repeat, Select, folded, rebuilt, upward
from adaptive_dp.graph.nodes import Node, Path, ReleaseNode, Structure
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.outputs import Deferred, Entries, Intervals, Stored, Tabular
from adaptive_dp.graph.passes import (
    columns_needed,
    columns_read,
    in_run_order,
    is_row_sum,
    turns,
)
from adaptive_dp.graph.registry import Function, is_own
from adaptive_dp.graph.values import deep_copy, visible
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

if TYPE_CHECKING:
    from adaptive_dp.graph.plan import Pipeline

# -----------------------------------------------------------------------------
# Progress bars: rounds done, of a number of rounds that is public.


Watch = Callable[[Node, int], Iterable[int]]
"""Yields the rounds of a node, and may show progress."""


def watch(progress: bool) -> Watch:
    """Return a function that shows progress bars, or one that does not.

    Raises
    ------
    DeclarationError
        If bars are wanted, and rich is not installed.
    """
    if not progress:
        return silent
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        raise DeclarationError(
            "progress bars need rich: pip install 'adaptive-dp[cli]', or run without progress=True"
        ) from None
    return bars


def silent(node: Node, rounds: int) -> Iterable[int]:
    """Yield the rounds of a node."""
    return range(rounds)


def bars(node: Node, rounds: int) -> Iterable[int]:
    """Yield the rounds of a node, with a bar on standard error if it is not inside a repeat."""
    if node.loops or rounds < 2:
        return range(rounds)
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(
        # the standard error of now: what private steps print is dropped, bars are not
        console=Console(file=sys.stderr),
        transient=True,
        # what they print is not put above the bar either
        redirect_stdout=node.handle.visibility != "private",
        redirect_stderr=node.handle.visibility != "private",
    )
    return _with_bar(progress, node.name, rounds)


def _with_bar(progress: Any, name: str, rounds: int) -> Iterator[int]:
    with progress:
        yield from progress.track(range(rounds), description=name)


# -----------------------------------------------------------------------------
# An interrupted run: what it has released, and the plan of just that.


class Interrupted(KeyboardInterrupt):
    """A run was interrupted; it has released what `result` holds, and no more.

    Attributes
    ----------
    result
        The outputs that could be computed: of an interrupted repeat, after its last complete round.
        Its certificate is of the plan with that many rounds. None where nothing was released.
        It holds if when to stop was not chosen by what was released: if functions of the plan
        showed released values on the way, or stopped the run themselves, the certificate of the
        full plan is what covers it.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> rounds = iter(["first", "second", "third"])
    >>> def add(total, count):
    ...     if next(rounds, "") == "third":
    ...         raise KeyboardInterrupt  # stands for Ctrl-C
    ...     return total + count
    >>> people = dp.dataset("people", columns={})
    >>> def count(total, people):
    ...     return dp.post(add, total, people.count().release(dp.Laplace(scale=4)))
    >>> plan = dp.Pipeline(total=dp.repeat(count, 10, people, start=0.0))
    >>> plan.certify()
    <certificate epsilon=2.5 delta=0 by basic>
    >>> try:
    ...     plan.simulate(seed=1, people={"id": [1, 2, 3]})
    ... except dp.Interrupted as stopped:
    ...     stopped.result.certificate
    <certificate epsilon=0.5 delta=0 by basic>
    """

    def __init__(self, result: Result | None) -> None:
        super().__init__()
        self.result = result


def shorten(
    outputs: tuple[tuple[Path, Handle], ...],
    released: Container[int],
    rounds: Mapping[int, int],
) -> tuple[list[tuple[Path, Handle]], dict[int, int]]:
    """Return the outputs that follow from what was released, with repeats cut short.

    Handles are told apart by their identity.

    Parameters
    ----------
    outputs
        Of the plan.
    released
        The identities of the handles of releases and loops that are complete.
    rounds
        How many rounds of a repeat are complete, by its handle's identity.

    Returns
    -------
    outputs
        Those that can be computed.
    cut
        By the identity of a repeat that was cut short, that of the one it was.
    """

    def before(handle: Handle) -> tuple[Handle, ...]:
        # what was released stays as it is; private nodes are never cut
        closed = id(handle) in released or handle.visibility == "private"
        return () if closed else handle.inputs

    def make(handle: Handle, inputs: list[Handle | None]) -> Handle | None:
        closed = id(handle) in released or handle.visibility == "private"
        return handle if closed else _shorten_node(handle, inputs, rounds)

    shortened = folded([handle for _, handle in outputs], before, make)
    # by the identity of the new loop, that of the old one whose rounds it keeps
    cut = {
        id(new): id(old) for old, new in shortened.items() if new is not None and id(old) in rounds
    }
    pairs = [(path, shortened[handle]) for path, handle in outputs]
    return [(path, handle) for path, handle in pairs if handle is not None], cut


def _shorten_node(
    handle: Handle, inputs: Sequence[Handle | None], rounds: Mapping[int, int]
) -> Handle | None:
    operation = handle.operation
    # a repeat may stop after any round, as its result is released in each
    if isinstance(operation, Repeat) and rounds.get(id(handle), 0) > 0:
        operation = evolve(operation, times=rounds[id(handle)])
    elif isinstance(operation, Repeat | Release) or operation.random:
        # not finished: nothing of it was released, and what reads it goes too
        return None
    available = [each for each in inputs if each is not None]
    return rebuilt(handle, available, operation) if len(available) == len(inputs) else None


# -----------------------------------------------------------------------------
# Running a plan: private values in, released values out.


T = TypeVar("T")


@frozen(slots=False, eq=False, repr=False)
class Result(Tabular, Mapping[str, Any]):
    """What a run released: values by output name, and the certificate.

    Parameters
    ----------
    released
        Numbers, arrays, or what post-processing made of them; nested for outputs with parts.
    certificate
        Of the plan that ran, with where its randomness came from, or what computes it. Of a plan
        that was a step of a session it is the session's, when it is first asked for.
    intervals
        What computes how far the values may be off; none by default.
    entries
        For outputs that are released counts, a str for each that says what it counts; else None.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
    >>> towns = people["town"].histogram().release(dp.DiscreteLaplace(scale=2))
    >>> result = dp.Pipeline(towns=towns).simulate(seed=1, people={"town": ["A", "B", "A"] * 100})
    >>> result["towns"]
    array([201., 103.])
    >>> result["towns"].interval(0.95)
    ConfidenceInterval(low=array([195.,  97.]), high=array([207., 109.]))
    >>> print(result)
    output    value  95% interval
    --------  -----  ------------
    towns[A]  201    195 to 207
    towns[B]  103    97 to 109
    NOT FOR RELEASE: noise from seed 1
    >>> result.certificate
    <certificate epsilon=0.5 delta=0 by basic>
    """

    released: dict[str, Any]
    _certificate: Certificate | Callable[[], Certificate]
    _intervals: Intervals | Stored = field(factory=lambda: Stored({}))
    entries: dict[str, Any] = field(factory=dict)

    @cached_property
    def certificate(self) -> Certificate:
        """What is promised of the values."""
        return self._certificate() if callable(self._certificate) else self._certificate

    @cached_property
    def _placed(self) -> dict[str, Any]:
        return {
            name: outputs.placed_at(value, self._intervals, (name,), self.entries.get(name))
            for name, value in self.released.items()
        }

    def intervals(self, level: float = 0.95, *, sampling: bool = False) -> dict[str, Any]:
        """Return the interval of every output, by name and nested as the values are.

        The error that ``interval`` would raise stands for an output that has none. See
        `ReleasedFloat.interval` for what an interval is of.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.DiscreteLaplace(scale=2)))
        >>> plan.simulate(seed=1, people={"id": range(100)}).intervals(0.9)
        {'n': ConfidenceInterval(low=97.0, high=107.0)}
        """
        asked = outputs.check_level(level), bool(sampling)
        return {
            name: outputs.trees(value, self._intervals, (name,), *asked)
            for name, value in self.released.items()
        }

    def shown(
        self, level: float = 0.95, *, sampling: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return what is printed of the outputs: numbers, their intervals, and their labels.

        It is all of them, but for a model, which gives a summary.
        """
        intervals = self.intervals(level, sampling=sampling)
        return outputs.summarized(self.released, intervals, self.entries, level)

    def columns(self, level: float = 0.95, *, sampling: bool = False) -> dict[str, list[Any]]:
        """Return a table of all outputs, a row for each number, as lists by column.

        ``output``, with dots into nested ones; ``key``, what the number is of where the output has
        several; ``value``, ``low`` and ``high``; and ``note``, what is not a number, or why there
        is no interval. The numbers of a simulation are marked in a column of their own.
        """
        rows = list(outputs.rows("", *self.shown(level, sampling=sampling)))
        names = ("output", "key", "value", "low", "high", "note")
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        mark = stamp(self.certificate)
        return columns | ({"not for release": mark * len(rows)} if mark else {})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the numbers, since a plan's functions may not be pickled."""
        return Result, (self.released, self.certificate, self._intervals, self.entries)

    def __getitem__(self, name: str) -> Any:
        return self._placed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.released)

    def __len__(self) -> int:
        return len(self.released)

    def __str__(self) -> str:
        return "\n".join([result_text(*self.shown()), *stamp(self.certificate)])

    def __repr__(self) -> str:
        return visible(f"<released {', '.join(self.released)}; {self.certificate!r}>")

    def _repr_html_(self) -> str:
        lines = [*stamp(self.certificate), *claim_lines(self.certificate)]
        return result_html(*self.shown(), lines)


def execute(
    plan: Pipeline, data: Mapping[str, Secret[Any]], seed: int | None, watch: Watch
) -> Result:
    """Return the result of a run; ``seed`` makes it a simulation, stamped as such.

    Everything that can fail for the schema fails before the first release is drawn.
    """
    structure = plan.structure
    # 1. Certify, before any data is read: a run without a guarantee must not begin.
    _check_nothing_free(plan)
    plan_certificate = plan._run_certificate(seed)
    if seed is None and math.isinf(plan_certificate.epsilon):
        _check_noise(structure)
        unbounded = [] if plan.delta else compiler.without_pure_epsilon(structure.releases)
        why = f" for {', '.join(unbounded)}: Gaussian noise needs a delta" if unbounded else ""
        raise DeclarationError(
            f"no accountant bounds epsilon at delta = {plan.delta:g}, so a run would guarantee "
            f"nothing{why}; choose a delta with plan.with_delta(1e-6) ('delta' in a plan "
            "document), or calibrate the plan"
        )
    # 2. What can fail whatever the data fails now, and so do data that do not fit: after the first
    #    release, an error would come when budget is spent.
    rehearse(structure)
    run = Run(structure, seed, watch)
    run.bind(bind_sources(structure, data))
    # 3. Compute. After an interrupt, the result is what was released, under a certificate of that.
    stopped = False
    try:
        run.all()
    except KeyboardInterrupt:
        stopped = True
    if stopped:  # outside of the handler, so that no traceback leads to frames that hold data
        raise Interrupted(_partial_result(plan, run, seed))
    return result_of(plan, run, plan_certificate)


def simulations(
    plan: Pipeline, data: Mapping[str, Secret[Any]], seeds: Iterable[int]
) -> Iterator[Result]:
    """Yield what simulations with these seeds release, without intervals.

    The certificate is made once: it is of the plan, and of the seed it has the stamp alone.
    """
    structure = plan.structure
    first: Certificate | None = None
    for seed in seeds:
        # compiled and certified once; all seeds have the same certificate but for the stamp
        if first is None:
            result = execute(plan, data, seed, silent)
            first = result.certificate
            yield Result(result.released, first)
            continue
        run = Run(structure, seed)
        run.bind(bind_sources(structure, data))
        run.all()
        values = _nest(
            (path, deep_copy(run.public_values[structure.of(h).name])) for path, h in plan.outputs
        )
        yield Result(values, stamped(first, seed))


def private_values(
    plan: Pipeline, data: Mapping[str, Secret[Any]], seed: int | None, wanted: Collection[str]
) -> dict[str, Secret[Any]]:
    """Return private values of nodes, as a run with that seed computes them; nothing is released.

    Parameters
    ----------
    plan
        The plan.
    data
        As for `execute`.
    seed
        As for `execute`.
    wanted
        Names of private nodes outside of loops that depend on no release.
    """
    structure = plan.structure
    _check_nothing_free(plan)
    rehearse(structure)
    run = Run(structure, seed)
    run.bind(bind_sources(structure, data))
    # only private values are returned, so only what lies above them is computed
    above = set(upward(wanted, lambda name: structure.nodes[name].inputs))
    run.compute(node for node in structure if node.name in above)
    return {name: run.secrets[name] for name in wanted}


def _check_nothing_free(plan: Pipeline) -> None:
    if plan.free:
        raise DeclarationError(
            f"parameters are still free: {', '.join(sorted(plan.free))}; call "
            "plan.calibrate(epsilon=..., delta=...) first"
        )


def rehearse(structure: Structure) -> None:
    """Fail where anything can fail whatever the data.

    Raises
    ------
    RunError
        If floating-point functions of this machine are not what exact sums rest on.
    """
    try:
        check_arithmetic()
    except UnstableArithmeticError as error:
        raise RunError(f"{error}. Nothing was released.") from None
    for node in structure:
        for parameter in node.handle.operation.parameters().values():
            if isinstance(parameter, Function):
                parameter.resolve()
        node.handle.operation.rehearse([handle.domain for handle in node.handle.inputs])


def _check_noise(structure: Structure) -> None:
    """Refuse mechanisms that guarantee nothing at any delta."""
    losses = compiler.release_losses(structure.releases)
    # a delta floor of 1: released as it is
    unprotected = [name for name, (loss, _) in losses.items() if loss.delta_floor() >= 1]
    if unprotected:
        raise DeclarationError(
            f"{', '.join(unprotected)}: released as it is, which has no finite epsilon at any "
            "delta; choose a mechanism with noise, or compare by plan.simulate(seed=...), whose "
            "results are stamped as not for release"
        )


Earlier = Mapping[Handle, tuple[Any, Any]]
"""What earlier steps of a session have released: of each handle its value, and its draw or None."""


def result_of(
    plan: Pipeline,
    run: Run,
    certificate: Certificate | Callable[[], Certificate],
    earlier: Earlier | None = None,
) -> Result:
    """Return what a run has released, as the plan's outputs.

    Parameters
    ----------
    earlier
        Of a session, whose plan may begin at released nodes of earlier steps: their intervals
        follow from what is above these too.
    """
    structure = run.structure
    public = {n.name for n in structure if isinstance(n.handle.operation, PublicSource)}
    # copies of what the caller may change before an interval is asked for
    raw = {name: deep_copy(v) if name in public else v for name, v in run.raw.items()}
    public_values = {
        n.name: run.public_values[n.name] for n in structure if n.name in run.public_values
    }
    if earlier is None:
        intervals = _intervals(plan, raw, public_values)
    else:
        # put together when one is asked for: a chain of steps takes no time for what is above
        own = {structure.nodes[k].handle: (v, raw.get(k)) for k, v in public_values.items()}
        whole = partial(type(plan).of, plan.outputs)
        intervals = Deferred(plan.outputs, partial(_intervals_of_session, whole, own, earlier))
    entries = _nest((path, _entries(handle)) for path, handle in plan.outputs)
    return Result(released_values(plan, run), certificate, intervals, entries)


def _intervals(plan: Pipeline, raw: Mapping[str, Any], values: Mapping[str, Any]) -> Intervals:
    # of the plan, and so the same whatever the data and the seed of a simulation
    seed = int(plan.fingerprint.rpartition(":")[2][:16], 16)
    return Intervals(plan.outputs, plan.structure, raw, values, seed)


def _intervals_of_session(
    whole: Callable[[], Pipeline], own: Earlier, earlier: Earlier
) -> Intervals:
    """Return the intervals of a step, by its plan from the data sets on."""
    plan, raw, values = whole(), dict[str, Any](), dict[str, Any]()
    for node in plan.structure:
        handle = node.handle
        if handle.visibility == "private" or node.loops:
            continue
        values[node.name], drawn = own[handle] if handle in own else earlier[handle]
        if drawn is not None:
            raw[node.name] = drawn
        elif isinstance(handle.operation, Release):
            raise NoIntervalError(f"what {node.name!r} has drawn is not known in this session")
    return _intervals(plan, raw, values)


ENTRYWISE = {"groups.ratios/1": 0, "groups.present_ratios/1": 1, "groups.matrix/1": 0}
"""Functions whose entries are of the same groups as those of one argument: its place."""
TOTAL = "all"
"""What stands for the keys of a margin."""


def _entries(handle: Handle) -> Entries | None:
    """Return what each entry of a released vector is of, where its query says so."""
    operation = handle.operation
    if isinstance(operation, Post):
        return _entries_of_function(handle, operation)
    if not isinstance(operation, Release) or operation.mechanism.is_selection:
        return None
    if operation.mechanism.shape(()) is None:
        return Entries(())  # the value is a mapping, and has its own keys
    query, domain = handle.inputs[0].operation, handle.inputs[0].inputs[0].domain
    if not isinstance(query, Query):
        return None
    named = query.entries(domain)
    if named is None:
        if type(query).candidate is Query.candidate:
            return None
        named = tuple(query.candidate(i) for i in range(query.dimension(domain)))
    return Entries(named, query.key_names(domain))


def _entries_of_function(handle: Handle, post: Post) -> Entries | None:
    """Return what the entries are of that the library's own functions compute."""
    name, inputs = post.function.name, handle.inputs
    if name in ENTRYWISE:
        return _entries(inputs[ENTRYWISE[name]])
    if name == "groups.with_margins/1":
        cells, first, second, _ = map(_entries, inputs)
        if cells is None or first is None or second is None:
            return None
        rows, columns = ([*axis.candidates, TOTAL] for axis in (first, second))
        return Entries([(row, column) for row in rows for column in columns], cells.names)
    if name == "quantiles.numbers/1":
        return Entries(tuple(post.constants["wanted"]), ("quantile",))
    if name == "quantiles.with_ends/1":
        return None if post.constants["single"] else _entries(inputs[0])
    if name == "quantiles.cumulative_shares/1":
        edges = inputs[0].inputs[0].operation.parameters().get("edges")
        return None if edges is None else Entries(tuple(edges), ("below",))
    if name == "groups.stacked/1":  # a row for each part, an entry for each quantile
        candidates: list[Any] = []
        names: tuple[str, ...] = ()
        for row in inputs:
            inner = _entries(row)
            if inner is None or inner.names != ("quantile",):
                return None
            parts = [h for h in lineage(row) if isinstance(h.operation, PartOperation)]
            names = (*(part.inputs[0].operation.parameters()["by"] for part in parts), "quantile")
            keys = tuple(part_key(part) for part in parts)
            candidates += [(*keys, order) for order in inner.candidates]
        return Entries(candidates, names)
    return None


def released_values(plan: Pipeline, run: Run) -> dict[str, Any]:
    """Return a run's outputs by name, nested for outputs with parts."""
    structure = run.structure
    # copies: outputs share no array or list with each other, nor with the values that intervals
    # are computed from
    return _nest(
        (path, deep_copy(run.public_values[structure.of(h).name])) for path, h in plan.outputs
    )


def _partial_result(plan: Pipeline, run: Run, seed: int | None) -> Result | None:
    """Return what an interrupted run has released, under a certificate of just that."""
    kinds = Release | Loop | PublicSource
    released = {
        id(n.handle): n
        for n in run.structure
        if n.name in run.public_values and not n.loops and isinstance(n.handle.operation, kinds)
    }
    outputs, cut = shorten(
        plan.outputs, released, {k: rounds for k, (rounds, _) in run.completed_rounds.items()}
    )
    if not outputs:
        return None
    partial_plan = type(plan).of(outputs, plan.delta)
    structure = partial_plan.structure
    partial_run = Run(structure, run.seed, run.watch)
    # what was released is copied; the rest follows from it without the data
    for node in structure:
        handle = id(node.handle)
        if handle in released:
            name = released[handle].name
            partial_run.public_values[node.name] = run.public_values[name]
            partial_run.raw |= {node.name: run.raw[name]} if name in run.raw else {}
        elif handle in cut and not node.loops:
            partial_run.public_values[node.name] = run.completed_rounds[cut[handle]][1]
    # post-processing only: all that draws noise was copied
    partial_run.compute(
        node for node in structure if not node.loops and node.handle.visibility != "private"
    )
    plan_certificate = certificate(
        structure,
        partial_plan.to_document,
        partial_plan.fingerprint,
        partial_plan.delta,
        ACCOUNTANTS,
        seed=seed,
    )
    return result_of(partial_plan, partial_run, plan_certificate)


def bind_sources(structure: Structure, data: Mapping[str, Secret[Any]]) -> dict[str, Secret[Any]]:
    """Return the data of each source by its node's name, public data too; see `Run.bind`."""
    sources: dict[str, SourceOperation | PublicSource] = {}
    readers: dict[str, str] = {}
    for node in structure:
        operation = node.handle.operation
        if isinstance(operation, SourceOperation | PublicSource):
            earlier = sources.get(operation.name, operation)
            twice = operation.name in sources and operation.visibility == "private"
            if twice or earlier != operation:  # equal public sources are one
                raise DeclarationError(
                    f"two data sets of the plan are called {operation.name!r}, and run binds data "
                    "by name; rename one"
                )
            sources[operation.name] = earlier
            readers[node.name] = operation.name
    unknown, missing = set(data) - set(sources), set(sources) - set(data)
    if unknown or missing:
        raise DataError(
            f"the plan reads the data sets {sorted(sources)}, run was given {sorted(data)}; pass "
            "each by its name, such as run(people=frame)"
        )
    needed = {readers[node]: names for node, names in columns_needed(structure).items()}
    tables = {
        name: bind_source(source, data[name], columns=needed.get(name))
        for name, source in sources.items()
    }
    return {node: tables[name] for node, name in readers.items()}


def bind_source(
    source: SourceOperation | PublicSource,
    data: Secret[Any],
    *,
    columns: frozenset[str] | None = None,
    copied: bool = False,
) -> Secret[Any]:
    """Return data as its source reads it, or refuse it with an error that says nothing about it.

    Parameters
    ----------
    source, data
        What is bound to what.
    columns
        The columns of private data that will be read; None for all.
    copied
        Whether arrays are copied, so that no one else can change them.
    """
    stopped, failed = False, ""
    try:
        if isinstance(source, SourceOperation):
            table = source.bind(data.reveal(), columns)
        else:
            table = source.bind(data.reveal())
        return Secret(_copy_arrays(table) if copied else table)
    except DataError as error:
        failed = str(error)
    except KeyboardInterrupt:
        stopped = True
    except BaseException:  # its type is withheld too: it may depend on the data
        failed = (
            f"dataset {source.name!r} cannot be read; the cause is withheld, since it may contain "
            "private data"
        )
    # outside of the handler, so that no traceback leads to frames that hold the data
    if stopped:
        raise KeyboardInterrupt
    raise DataError(failed)


def _copy_arrays(value: Any) -> Any:
    """Return bound data that no one else can change: arrays are copied, out-of-core rows are not.

    What a frame's owner writes into it later must not move a person from one part to another.
    """
    if isinstance(value, MemoryRows):
        return value.copied()
    if isinstance(value, np.ndarray):
        return value.copy()
    return value


def run_guarded(name: str, call: Callable[[], T]) -> T:
    """Return what a call on private values returns; what it raises is withheld.

    Parameters
    ----------
    name
        Of the node, for the error.
    call
        The call.

    Raises
    ------
    RunError
        If it fails, whatever the cause.
    """
    stopped = False
    try:
        with np.errstate(all="ignore"):  # a warning may depend on the data
            return call()
    except KeyboardInterrupt:
        stopped = True
    except BaseException:  # the library's own errors too: their cause may be the data
        pass
    # outside of the handler, so that no traceback holds the cause or its data
    if stopped:
        raise KeyboardInterrupt
    raise withheld(name)


def withheld(name: str) -> RunError:
    """Return the error of a node that failed, without the cause."""
    return RunError(
        f"node {name!r} failed; the cause is withheld, since it may contain private data. "
        "Nothing was released. Run plan.simulate(seed=1, ...) on made-up data of the same schema "
        "to find it: it shows what a mechanism of your own raises."
    )


@frozen(eq=False, repr=False)
class _RunningPasses:
    """Passes that have started: their nodes, their sums, and a checkpoint of each pass."""

    names: frozenset[str]
    passes: list[tuple[Pass, list[str], Checkpoint]]
    requests: dict[str, RowSum]


@frozen(eq=False, repr=False)
class HiddenRun:
    """The hidden state of a run that a release has begun, and that later releases continue.

    Parameters
    ----------
    state
        What the mechanism's `begin` returned.
    process
        In which it was begun, and which alone may continue it: a child that was forked has a copy,
        and both would answer with the same noise, for one payment.
    asked
        What was asked of it in each place (`Mechanism.ordinal`), by digest.
    """

    state: Secret[Any]
    process: int = field(factory=os.getpid)
    asked: dict[int, str] = field(factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether this process has begun it."""
        return self.process == os.getpid()


class Run:
    """The values of one run, by node name: private ones as `Secret`, the others as they are.

    Parameters
    ----------
    structure
        The plan that runs.
    seed
        Of a simulation; None for noise from the operating system.
    watch
        Yields the rounds of loops and of iterative queries, and may show progress.

    Attributes
    ----------
    secrets
        Private values.
    public_values
        Values that are public: data of public sources, releases, and what is computed from them.
    raw
        What mechanisms returned, before it is presented as its query's reader expects, and data of
        public sources.
    completed_rounds
        For each repeat in no loop, by its handle's identity, how many rounds are complete and the
        result of the last: what an interrupted run has released of it.
    round
        The indices of the rounds around, which are part of a simulation's random streams.
    hidden
        The state of runs that releases have begun (`Mechanism.begins`), by the handle of these.
    """

    def __init__(
        self,
        structure: Structure,
        seed: int | None,
        watch: Watch = silent,
    ) -> None:
        self.structure = structure
        self.watch = watch
        self.completed_rounds: dict[int, tuple[int, Any]] = {}
        self.seed = seed
        self.secrets: dict[str, Secret[Any]] = {}
        self.public_values: dict[str, Any] = {}
        self.raw: dict[str, Any] = {}
        self.round: tuple[int, ...] = ()
        self.hidden: dict[Handle, HiddenRun] = {}
        # of single nodes that were interrupted, and of passes: both hold rows
        self._checkpoints: dict[str, Checkpoint] = {}
        self._running_passes: Secret[_RunningPasses] | None = None
        self._turns, self._columns = turns(structure), columns_read(structure)

    def bind(self, given: Mapping[str, Secret[Any]]) -> None:
        """Take the data of each source by its node's name; public data are revealed."""
        for name, value in given.items():
            if isinstance(self.structure.nodes[name].handle.operation, PublicSource):
                self.public_values[name] = self.raw[name] = value.reveal()
            else:
                self.secrets[name] = value

    def all(self) -> None:
        """Compute every node."""
        self.compute(node for node in self.structure if not node.loops)

    def compute(self, nodes: Iterable[Node]) -> None:
        """Compute nodes that have all that they read among them, unless it is there.

        Pass by pass: sums over rows that have the same turn are computed together.
        """
        for _, group in groupby(in_run_order(nodes, self._turns), lambda n: self._turns[n.name]):
            together = list(group)
            sums = [n for n in together if is_row_sum(n.handle.operation)]
            if sums:
                self._scan(sums)
            for node in together:
                self.compute_node(node)

    def compute_node(self, node: Node) -> None:
        """Compute a node's value, unless it is there."""
        if node.name in self.public_values or node.name in self.secrets:
            return
        operation = node.handle.operation
        if isinstance(operation, Loop):
            self.public_values[node.name] = self._loop(node, operation)
            return
        names = [self.structure.of(i).name for i in node.handle.inputs]
        # a release reads a private value too, so it runs guarded
        private = node.handle.visibility == "private" or isinstance(operation, Release)
        # an operation that draws nothing ignores its stream: no seeded one is spent on it
        drawing = operation.random or operation.draws
        stream = self._stream(node) if drawing else SecureStream()
        if isinstance(operation, Release) and operation.mechanism.continues:
            self._check_run(node)
        if private:
            value = self._guarded(node, stream)
        elif isinstance(operation, Parameter):
            value = operation.run([node.handle.inputs[0].domain], stream)
        else:
            value = self._post_processed(node, names, stream)
        if node.handle.visibility == "private":
            self.secrets[node.name] = Secret(value)
            return
        if isinstance(operation, Release):
            # None: the release broke its contract, and nothing of it is shown
            if value is None:
                raise self._shape_error(node, operation, names[0])
            # the raw draw is stored beside what is presented: intervals are computed from it, and a
            # ledger records it
            self.raw[node.name] = value
            value = operation.presented(node.handle.inputs[0], value)
            if operation.mechanism.begins:
                self.hidden[node.handle] = HiddenRun(Secret(operation.mechanism.begin(stream)))
        self.public_values[node.name] = value

    def check_runs(self, nodes: Sequence[Node], digests: Mapping[str, str]) -> None:
        """Refuse, before anything is paid, nodes that continue a run which they cannot continue.

        Parameters
        ----------
        nodes
            All that a step computes.
        digests
            Of each node, by name: what is asked of a run in one place must stay the same.

        Raises
        ------
        RunError
            If the run is not in this process, or is not where they continue it.
        """
        begun = {node.handle for node in nodes}
        for node in nodes:
            operation = node.handle.operation
            if not (isinstance(operation, Release) and operation.mechanism.continues):
                continue
            place = operation.mechanism.ordinal
            if self._run_of(node) in begun:  # it begins now
                beginning: Any = self._run_of(node).operation
                operation.mechanism.check_run(beginning.mechanism.begin())
                continue
            self._check_run(node)
            # two releases in one place would be paid for once, also if one was never finished
            asked = self.hidden[self._run_of(node)].asked
            if place is not None and asked.get(place, digests[node.name]) != digests[node.name]:
                raise RunError(
                    f"node {node.name!r} was asked for with other parameters before, and was "
                    "interrupted: ask for it as it was. Nothing was released."
                )

    def settle_places(self, nodes: Sequence[Node], digests: Mapping[str, str]) -> None:
        """Store what nodes ask of runs in their places: once nothing refuses their payment."""
        for node in nodes:
            operation = node.handle.operation
            if isinstance(operation, Release) and operation.mechanism.ordinal:
                run = self.hidden.get(self._run_of(node))
                if run is not None:
                    run.asked.setdefault(operation.mechanism.ordinal, digests[node.name])

    def may_retake(self, node: Node) -> bool:
        """Return whether nothing was drawn yet for a node that continues a run in its own place."""
        operation = node.handle.operation
        if not (isinstance(operation, Release) and operation.mechanism.continues):
            return False
        if operation.mechanism.ordinal is None:
            return False
        try:
            self._check_run(node)
        except RunError:
            return False
        return True

    def _check_run(self, node: Node) -> None:
        """Refuse to continue a run whose hidden state is not here: it ends with its process."""
        run = self.hidden.get(self._run_of(node))
        if run is None or not run.is_here:
            raise RunError(
                f"node {node.name!r} continues a run whose noise is not in this process; begin "
                "another one, which is paid for. Nothing was released."
            )
        operation: Any = node.handle.operation
        refused = ""
        try:
            operation.mechanism.check_run(run.state.reveal())
        except RunError as error:
            refused = str(error)
        # outside of the handler, so that no traceback leads to frames that hold the state
        if refused:
            raise RunError(refused)

    def _run_of(self, node: Node) -> Handle:
        """Return the release that has begun the run which a node continues."""
        return self.structure.of(node.handle.inputs[1]).handle

    def _scan(self, nodes: Sequence[Node]) -> None:
        """Compute private sums over rows in one pass over each data set.

        Where a pass for several fails, each of them is left for `compute_node`, whose error names
        the node.
        """
        new = [n for n in nodes if n.name not in self.secrets]
        shared = len(new) > 1 or self._running_passes is not None
        if not new or not (shared or any(self._columns[n.name] is not None for n in new)):
            return  # nothing to share, and no column to leave out
        stopped, failed = False, False
        try:
            with np.errstate(all="ignore"):  # a warning may depend on the data
                self._scan_once(new)
        except KeyboardInterrupt:
            stopped = True
        except BaseException:  # its message may quote the data, and its type depend on them
            failed = True
        # outside of the handler, so that no traceback leads to frames that hold data
        if stopped:
            raise KeyboardInterrupt
        self._running_passes = None
        if failed and len(new) == 1:
            raise withheld(new[0].name)
        # of several, `compute_node` computes each by itself, and names those that fail again

    def _scan_once(self, nodes: Sequence[Node]) -> None:
        # An interrupted pass continues where it was: its sums are the same objects. Not in a loop,
        # where the inputs of the sums are computed again in each round.
        running = None
        if self._running_passes is not None and not nodes[0].loops:
            running = self._running_passes.reveal()
        if running is None or not running.names.issuperset(n.name for n in nodes):
            names = [node.name for node in nodes]
            requests = {node.name: self._row_sum(node) for node in nodes}
            made = passes(list(requests.values()), [self._columns[name] for name in names])
            running = _RunningPasses(
                frozenset(names),
                [(each, [names[i] for i in each.members], Checkpoint()) for each in made],
                requests,
            )
            self._running_passes = Secret(running)
        for one, names, checkpoint in running.passes:
            if all(name in self.secrets for name in names):
                continue
            with resuming(checkpoint):
                totals = one.totals()
            for name, total in zip(names, totals, strict=True):
                self.secrets[name] = Secret(running.requests[name].finish(total))

    def _row_sum(self, node: Node) -> RowSum:
        return node.handle.operation.row_sum(self._revealed_inputs(node))

    def _revealed_inputs(self, node: Node) -> list[Any]:
        """Return the values of a node's inputs, private ones too: for guarded calls alone."""
        names = [self.structure.of(each).name for each in node.handle.inputs]
        values = [
            # copies of public values: an operation may change what it is given
            deep_copy(self.public_values[n])
            if n in self.public_values
            else self.secrets[n].reveal()
            for n in names
        ]
        operation = node.handle.operation
        if isinstance(operation, Release) and operation.mechanism.continues:
            values[1] = self.hidden[self._run_of(node)].state.reveal()
        return values

    def _shape_error(self, node: Node, operation: Release, query: str) -> RunError:
        """Return the error of a mechanism that breaks its contract.

        What it returned may depend on the data, in its shape too: the message says what it returns
        for zeros.
        """
        shape = shape_of(self.secrets[query].reveal())
        got = ""
        # the mechanism is tried on zeros, so that the message depends on no data
        if operation.mechanism.redrawn():
            try:
                returned = operation.mechanism.release(np.zeros(shape), SeededStream(0))
                got = f"a {type(returned).__name__} of shape {np.shape(returned)}"
            except Exception as error:
                got = type(error).__name__
            got = f"; for zeros it gives {got}"
        expected = operation.mechanism.shape(shape)
        wanted = "a mapping from str to numbers, or a list of str"
        if expected is not None:
            wanted = f"real numbers of shape {expected}"
        return RunError(
            f"node {node.name!r}: {type(operation.mechanism).__name__}.release must return "
            f"{wanted}, which it did not{got}. "
            "Nothing was released."
        )

    def _guarded(self, node: Node, stream: Stream) -> Any:
        # what draws nothing gives the same when it is restarted: it resumes from its checkpoint
        resumable = not (node.handle.operation.random or node.loops)
        checkpoint = self._checkpoints.setdefault(node.name, Checkpoint()) if resumable else None
        # a release reads what its query left to be read, such as examples where the rows are
        released = isinstance(node.handle.operation, Release)
        columns = self._columns[node.inputs[0] if released else node.name]
        # inputs are revealed in the call itself: no local variable of this frame holds them
        with resuming(checkpoint), reading(columns):
            guard = self._shown if self._shows_errors(node) else run_guarded
            value = guard(
                node.name,
                lambda: node.handle.operation.observed(
                    self._revealed_inputs(node),
                    stream,
                    partial(self.watch, node),
                ),
            )
        self._checkpoints.pop(node.name, None)
        return value

    def _shows_errors(self, node: Node) -> bool:
        """Whether the errors of a node's author are shown.

        They are those of a simulation, whose values protect nobody either: its noise is known.
        """
        operation = node.handle.operation
        by_others = isinstance(operation, Release) and not is_own(type(operation.mechanism))
        return self.seed is not None and by_others

    @staticmethod
    def _shown(name: str, call: Callable[[], T]) -> T:
        """Return what a call returns; what it raises is shown as it is, with the node's name."""
        try:
            return call()
        except Exception as error:
            error.add_note(f"in the release of {name!r}, simulated; a run withholds this error")
            raise

    def _post_processed(self, node: Node, names: list[str], stream: Stream) -> Any:
        """Return the value of post-processing; what it raises becomes a `RunError`."""
        try:
            return node.handle.operation.run([self.public_values[n] for n in names], stream)
        except RunError as error:
            failed = str(error)
        except Exception as error:
            # where it failed, not what it said
            line = traceback.extract_tb(error.__traceback__)[-1]
            failed = f"{type(error).__name__} in {line.name}, line {line.lineno} of {line.filename}"
        raise RunError(
            f"node {node.name!r} failed ({failed}); its message is withheld, since a function may "
            "hold more than released values. Nothing was released: call it on made-up values to "
            "find out."
        )

    def _loop(self, node: Node, operation: Loop) -> Any:
        start = self.public_values[self.structure.of(node.handle.inputs[0]).name]
        outer = self.round
        if isinstance(operation, Select):
            stream = self._stream(node)
            best = None
            # K is drawn first: no released value may decide how many runs there are
            for k in range(operation.draw(stream)):
                candidate = operation.candidate(start, stream)
                best = operation.better(best, candidate, self._round(node, operation, candidate, k))
                self.round = outer
            return best
        if isinstance(operation, Case):
            if not operation.runs(start):
                return None
            value = self._round(node, operation, start, 0)
            self.round = outer
            return value
        for k in self.watch(node, operation.rounds()):
            # inside of other loops no round is stored: a round of those is released as a unit
            if not node.loops and k > 0:
                self.completed_rounds[id(node.handle)] = (k, start)
            start = self._round(node, operation, start, k)
            self.round = outer
        return start

    def _round(self, node: Node, operation: Loop, state: Any, k: int) -> Any:
        """Return what the body returns in one round, all that is random in it drawn afresh."""
        body = [n for n in self.structure if node.name in n.loops]
        # values of the round before are dropped, so that each is computed again
        for inner in body:
            self.public_values.pop(inner.name, None)
            self.secrets.pop(inner.name, None)
        self.public_values[self.structure.of(operation.state).name] = state
        self.round = (*self.round, k)
        # bodies of inner loops are run by their own loop
        self.compute(inner for inner in body if inner.loops[-1] == node.name)
        return self.public_values[self.structure.of(operation.result).name]

    def _stream(self, node: Node) -> Stream:
        if self.seed is None:
            return SecureStream()
        # by digest and rounds: independent of the order in which nodes are computed
        return SeededStream(self.seed, *node.key, *self.round)


def _nest(pairs: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for path, value in pairs:
        target = result
        for name in path[:-1]:
            target = target.setdefault(name, {})
        target[path[-1]] = value
    return result


# -----------------------------------------------------------------------------
# Before a run: how wide intervals will be.


SEEDS = 5
"""Simulations of which the median half width is taken."""
FORECAST = ("output", "answer", "half width", "relative")


class Expectation(Mapping[str, Any]):
    """Half widths of intervals that a run may expect, by output and nested as its values are.

    Of a release they are those of its noise, whatever the data. What is computed of releases, and
    the relative width, follow from the answers that were assumed.

    Parameters
    ----------
    level
        Of the intervals.
    answers
        What simulations on the assumed data gave: of several the first.
    widths
        Half of each interval's width, the median of the simulations; an error that says why
        where there is no interval.
    source
        In words, the data that were assumed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.DiscreteLaplace(scale=2)))
    >>> expected = plan.expect(rows=1_000)
    >>> expected["n"]
    6.0
    >>> print(expected)
    output  answer  half width  relative
    ------  ------  ----------  --------
    n       1000    6           0.6%
    half widths of 95% intervals, on 1,000 made-up rows, uniform over what is declared
    """

    def __init__(
        self, level: float, answers: Mapping[str, Any], widths: Mapping[str, Any], source: str
    ) -> None:
        self.level, self.answers, self._widths, self.source = level, answers, widths, source

    def __getitem__(self, name: str) -> Any:
        return self._widths[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._widths)

    def __len__(self) -> int:
        return len(self._widths)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a line for each output: of a vector the median of its entries."""
        return list(_expected("", self._widths, self.answers))

    @property
    def note(self) -> str:
        """Of what the half widths are, and on which data."""
        return f"half widths of {100 * self.level:g}% intervals, on {self.source}"

    def __str__(self) -> str:
        return "\n".join([table(FORECAST, self.rows()), self.note])

    def __repr__(self) -> str:
        return visible(f"<expected {', '.join(self)}: {self.note}>")

    def _repr_html_(self) -> str:
        said = table_html(FORECAST, self.rows())
        return f"{said}<div>{escape(self.note)}</div>"


def _expected(prefix: str, widths: Any, answers: Any) -> Iterator[tuple[str, str, str, str]]:
    for name, width in widths.items():
        answer = answers.get(name) if isinstance(answers, Mapping) else None
        if isinstance(width, Mapping):
            yield from _expected(f"{prefix}{name}.", width, answer)
            continue
        label = f"{prefix}{name}"
        if isinstance(width, NoIntervalError):
            yield label, "", f"none: {width}", ""
            continue
        try:
            sizes = np.abs(np.asarray(answer, dtype=np.float64))
            halves = np.asarray(width, dtype=np.float64)
        except (ValueError, TypeError):  # lists of several lengths
            yield label, "", "of several kinds", ""
            continue
        typical = float(np.median(sizes)) if sizes.size else math.nan
        half = float(np.median(halves)) if halves.size else math.nan
        shown = f"{100 * half / typical:.3g}%" if typical > 0 else ""
        count = f" (median of {halves.size:,})" if halves.size > 1 else ""
        sign = float(np.median(np.asarray(answer, dtype=np.float64))) if sizes.size else math.nan
        yield f"{label}{count}", f"{sign:.6g}", f"{half:.4g}", shown


def expected(
    plan: Pipeline, data: Mapping[str, Any], level: float, seeds: Iterable[int] = range(SEEDS)
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a plan gives on data that are not private, and the half widths of intervals.

    No certificate is computed, and nothing of it is a release.
    """
    structure = plan.structure
    _check_nothing_free(plan)
    rehearse(structure)
    answers: list[dict[str, Any]] = []
    trees: list[dict[str, Any]] = []
    for seed in seeds:
        run = Run(structure, seed)
        run.bind(bind_sources(structure, {k: Secret(v) for k, v in data.items()}))
        run.all()
        values = released_values(plan, run)
        intervals = Intervals(
            plan.outputs, structure, run.raw, run.public_values, seed, common=True
        )
        answers.append(values)
        trees.append(
            {k: outputs.trees(v, intervals, (k,), level, sampling=False) for k, v in values.items()}
        )
    return answers[0], outputs.half_widths(trees)


# -----------------------------------------------------------------------------
# Individual accounting: what each unit contributes to a release, and releases of some units.
#
# A release qualifies that adds Gaussian noise to a sum over rows, on a path from the data on which
# what becomes of a unit's rows depends on those rows and on the plan alone
# (`Operation.is_rowwise`). Then leaving out some units changes nothing of what the others add, and
# a unit that is in the sum moves it by what its own rows add: see `accountants.individual`.


Units = NDArray[np.int64]

SUPPORTED = (
    "what each record pays is known for dp.Gaussian releases of counts, sums, histograms and "
    "vector sums, of a data set with add_remove neighbours, after filters by constants, bounds of "
    "contributions, and partitions by a column; open a session with accountant='gaussian' for "
    "others"
)


@frozen
class UnitCost:
    """How a unit's contribution becomes a mu: ``norm / sigma + rounding``; 0 for none.

    Parameters
    ----------
    sigma
        Of the noise, in the query's units.
    rounding
        The mu by which the mechanism's rounding moves apart values that differ.
    least
        The least norm of a contribution that is not 0, or 0 where none is known.
    """

    sigma: float
    rounding: float
    least: float


def unit_cost(release: ReleaseNode) -> UnitCost:
    """Return a release's cost for one unit, or refuse one whose contributions are not known.

    Raises
    ------
    InapplicableError
        With what is supported. It depends on the plan alone.
    """
    mechanism, query = release.mechanism, release.query
    assert isinstance(query.operation, Query)
    kind = type(query.operation)
    _require(release, release.source.neighbors == "add_remove", "the neighbours are not add_remove")
    _require(release, not release.loops, "it is released in a loop")
    _require(
        release,
        mechanism.shifts and is_own(type(mechanism)) and len(release.handle.inputs) == 1,
        f"{type(mechanism).__name__} does not add Gaussian noise to a sum",
    )
    for node in release.steps[1:-1]:
        operation = node.handle.operation
        _require(
            release,
            operation.is_rowwise and is_own(type(operation)) and not operation.random,
            f"after a {operation.kind}, one unit's contribution may depend on others, or on chance",
        )
    _require(
        release,
        all(len(node.handle.inputs) == 1 for node in release.steps[1:]),
        "it reads released values beside the data; run them first, and compare with their number",
    )
    _require(
        release,
        kind.contributions is not Query.contributions and is_own(type(query.operation)),
        f"a {query.operation.kind} is not a sum over rows",
    )
    sigma, step = mechanism.deviation(), query.operation.step(query.domain)
    rounding = mechanism.cost(0.0, query.operation.dimension(query.domain), step).mu()
    assert sigma is not None
    assert rounding is not None
    return UnitCost(sigma, up(rounding) if rounding else 0.0, step)


def norms(release: ReleaseNode, rows: Secret[Any], everyone: Secret[Units]) -> Secret[Array]:
    """Return a bound of what each unit adds to a release's query, in l2.

    A unit's rows add at most the sum of what each of them adds (triangle inequality).

    Parameters
    ----------
    release
        The release.
    rows
        What is bound to the data set.
    everyone
        Their units: see `unique_units`.

    Returns
    -------
    Secret array
        Shape (units,); 0 only where the unit moves nothing.
    """
    run = _run_to_query(release, rows)
    query = release.query.operation
    assert isinstance(query, Query)

    def added() -> Secret[Array]:
        names = everyone.reveal()
        unit_of_row, row_norms = query.contributions(run.secrets[release.steps[-2].name].reveal())
        index = np.searchsorted(names, unit_of_row)
        total, terms = np.zeros(len(names)), np.ones(len(names))
        np.add.at(total, index, row_norms)
        np.add.at(terms, index, 1.0)
        # outward: a float sum of k numbers is off by a relative k 2^-53. k counts the unit's own
        # rows: what a unit pays must not depend, in its last bit, on other units' rows
        return Secret(np.where(terms > 2, total + total * (terms * UNIT), total))

    return run_guarded(release.name, added)


def compute_release(
    run: Run, release: ReleaseNode, rows: Secret[Any], active: Secret[Units]
) -> None:
    """Compute a release in a run, of the units that are active and no others.

    Parameters
    ----------
    run
        Where what is released goes; its private values are not used.
    release
        The release.
    rows
        What is bound to the data set.
    active
        Which units take part.
    """
    active_rows = run_guarded(release.name, lambda: Secret(rows.reveal().among(active.reveal())))
    partial_run = _run_to_query(release, active_rows, run.seed, run.round)
    partial_run.compute_node(release.steps[-1])
    partial_run.compute_node(release)
    run.public_values[release.name] = partial_run.public_values[release.name]
    run.raw[release.name] = partial_run.raw[release.name]


def unique_units(rows: Secret[Any]) -> Secret[Units]:
    """Return the units of rows, in increasing order."""
    return run_guarded("data", lambda: Secret(np.unique(rows.reveal().units)))


def _run_to_query(
    release: ReleaseNode,
    rows: Secret[Any],
    seed: int | None = None,
    within: tuple[int, ...] = (),
) -> Run:
    """Return a run of what leads from the data to a release's query, on given rows."""
    run = Run(release.structure, seed)
    run.round = within
    run.bind({release.steps[0].name: rows})
    for node in release.steps[1:-1]:
        run.compute_node(node)
    return run


def _require(release: ReleaseNode, holds: bool, why: str) -> None:
    if not holds:
        raise InapplicableError(
            f"{release.name!r} has no cost for each record: {why}. With "
            f"accountant='individual', {SUPPORTED}"
        )
