"""Running a plan: private values in, released values out."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants import ACCOUNTANTS
from accountants.errors import InapplicableError
from accountants.numerics import UNIT, Array, up
from accountants.secret import Secret
from adaptive_dp.data.engine import Checkpoint, resuming
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.certificate import Certificate, claim_lines, result_html, result_text, stamp
from adaptive_dp.graph.certify import certificate, stamped
from adaptive_dp.graph.compile import ReleasePath, releases
from adaptive_dp.graph.errors import DataError, DeclarationError, RunError
from adaptive_dp.graph.handles import (
    Handle,
    Parameter,
    PublicSource,
    Release,
    SourceOperation,
    shape_of,
)
from adaptive_dp.graph.loops import Loop, Repeat, Select, folded, rebuilt, upward
from adaptive_dp.graph.nodes import Node, Path, Structure
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.registry import Function, is_own
from adaptive_dp.graph.values import fresh
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

if TYPE_CHECKING:
    from adaptive_dp.graph.plan import Pipeline

# -----------------------------------------------------------------------------
# Bars that show how far a run is: rounds done, of a number that is public.


Watch = Callable[[Node, int], Iterable[int]]
"""Yields the rounds of a node, and may show how far it is."""


def watch(progress: bool) -> Watch:
    """Return what shows rounds, or what does not.

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
    return _shown(progress, node.name, rounds)


def _shown(progress: Any, name: str, rounds: int) -> Iterator[int]:
    with progress:
        yield from progress.track(range(rounds), description=name)


# -----------------------------------------------------------------------------
# How much noise a run's outputs carry, estimated from what was released.


FAILURES = (Exception, SystemExit)
"""What a user's functions may raise on other noise than they got."""


def spread(
    outputs: Iterable[tuple[Path, Handle]],
    structure: Structure,
    raw: Mapping[str, Any],
    draws: int = 256,
) -> Iterator[tuple[Path, Any]]:
    """Yield each output's expected noise: a parametric bootstrap around the released values.

    Every release that was made gets fresh noise on top, what follows is recomputed, and the
    standard deviation over the draws is the answer; for a release itself it is the mechanism's
    own, where that is known, and nothing is drawn for it. It reads released values only: ``raw``
    holds those of each release, by its name, before they take their reader's form. What is
    released is released: whatever fails here costs its own estimate and no more.
    """
    outputs = list(outputs)
    known = {name: _exact(structure.nodes[name], raw) for name in _releases(outputs, structure)}
    drawn = [pair for pair in outputs if not known.get(structure.of(pair[1]).name)]
    reached = _reached(drawn, structure)
    again = [n for n in structure if n.name in reached and not n.loops]
    samples: dict[str, list[Any]] = {n.name: [] for n in again}
    failed: set[str] = set()  # functions that fail on other noise than they got
    with np.errstate(all="ignore"):
        for k in range(draws):
            values: dict[str, Any] = {}
            for node in again:
                name = node.name
                try:
                    found = None if name in failed else _redraw(node, structure, raw, values, k)
                except FAILURES:
                    found, failed = None, failed | {name}
                values[name] = found
                samples[name].append(found)
    for path, handle in outputs:
        name = structure.of(handle).name
        yield path, _estimate(known.get(name) or samples[name])


def _releases(outputs: Iterable[tuple[Path, Handle]], structure: Structure) -> set[str]:
    return {structure.of(h).name for _, h in outputs if isinstance(h.operation, Release)}


def _reached(outputs: Iterable[tuple[Path, Handle]], structure: Structure) -> set[str]:
    """Return the nodes whose redrawn values outputs need: none that only lead to a release."""

    def needed(name: str) -> tuple[str, ...]:
        node = structure.nodes[name]
        known = isinstance(node.handle.operation, Release | Parameter | Loop)
        return () if known else node.inputs  # without a release on the way, all is in the open

    # a group's node is its result's
    return set(upward([structure.of(handle).name for _, handle in outputs], needed))


def _estimate(draws: list[Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return _deviation(draws)
    except FAILURES:  # a value of a kind that has no deviation
        return None


def _redraw(
    node: Node, structure: Structure, raw: Mapping[str, Any], values: Mapping[str, Any], k: int
) -> Any:
    operation = node.handle.operation
    if isinstance(operation, Loop):
        return None
    if isinstance(operation, PublicSource):
        return raw[node.name]
    if isinstance(operation, Release):
        query = node.handle.inputs[0].operation
        assert isinstance(query, Query)
        if not operation.mechanism.redrawn():
            return None
        again = operation.run([raw[node.name]], SeededStream(k, *node.key))
        return operation.presented(query, again)
    if isinstance(operation, Parameter):
        return operation.run([node.handle.inputs[0].domain], SeededStream(k))
    inputs = [values[structure.of(i).name] for i in node.handle.inputs]
    if any(value is None for value in inputs):
        return None
    return operation.run(inputs, SeededStream(k))


def _exact(node: Node, raw: Mapping[str, Any]) -> list[Any]:
    """Return two draws whose standard deviation is the mechanism's; none where it is unknown.

    Where what the user wrote fails, a draw without a value, of which nothing is estimated.
    """
    release, query = node.handle.operation, node.handle.inputs[0].operation
    assert isinstance(release, Release)
    assert isinstance(query, Query)
    try:
        with np.errstate(all="ignore"):
            known = release.mechanism.deviation()
            if known is None:
                return []
            return [release.presented(query, raw[node.name] + sign * known) for sign in (-1, 1)]
    except FAILURES:
        return [None]


def _deviation(draws: list[Any]) -> Any:
    if not draws or any(draw is None for draw in draws):
        return None
    if isinstance(draws[0], Mapping):
        keys = draws[0].keys()
        if any(draw.keys() != keys for draw in draws):
            return None
        return {key: _deviation([draw[key] for draw in draws]) for key in keys}
    arrays = np.asarray(draws)
    if arrays.dtype.kind not in "biuf":
        return None
    with np.errstate(all="ignore"):
        deviation = arrays.astype(np.float64).std(axis=0)
    return float(deviation) if deviation.ndim == 0 else deviation


# -----------------------------------------------------------------------------
# What is left of a run that was interrupted: what was released before, and what it cost.


class Interrupted(KeyboardInterrupt):
    """A run was interrupted; it has released what `result` holds, and no more.

    Attributes
    ----------
    result
        The outputs that could be computed: of a repeat that was under way, after its last complete
        round. Its certificate is of the plan with that many rounds. None where nothing was there.
        It holds if when to stop was not chosen by what was released: if functions of the plan
        showed released values on the way, or stopped the run themselves, the certificate of the
        whole plan is what covers it.

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


def shortened(
    outputs: tuple[tuple[Path, Handle], ...],
    made: Container[int],
    rounds: Mapping[int, int],
) -> tuple[list[tuple[Path, Handle]], dict[int, int]]:
    """Return the outputs that follow from what was released, with repeats cut short.

    Handles are told apart by their identity.

    Parameters
    ----------
    outputs
        Of the plan.
    made
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
        closed = id(handle) in made or handle.visibility == "private"
        return () if closed else handle.inputs

    def make(handle: Handle, inputs: list[Handle | None]) -> Handle | None:
        closed = id(handle) in made or handle.visibility == "private"
        return handle if closed else _shortened(handle, inputs, rounds)

    done = folded([handle for _, handle in outputs], before, make)
    cut = {id(new): id(old) for old, new in done.items() if new is not None and id(old) in rounds}
    kept = [(path, done[handle]) for path, handle in outputs]
    return [(path, handle) for path, handle in kept if handle is not None], cut


def _shortened(
    handle: Handle, inputs: Sequence[Handle | None], rounds: Mapping[int, int]
) -> Handle | None:
    operation = handle.operation
    if isinstance(operation, Repeat) and rounds.get(id(handle), 0) > 0:
        operation = evolve(operation, times=rounds[id(handle)])
    elif isinstance(operation, Repeat | Release) or operation.random:
        return None
    known = [each for each in inputs if each is not None]
    return rebuilt(handle, known, operation) if len(known) == len(inputs) else None


# -----------------------------------------------------------------------------
# Running a plan: private values in, released values out.


T = TypeVar("T")


@frozen(slots=False, eq=False, repr=False)
class Result(Mapping[str, Any]):
    """What a run released: values by output name, and the certificate.

    Parameters
    ----------
    released
        Numbers, arrays, or what post-processing made of them; nested for outputs with parts.
    certificate
        Of the plan that ran, with where its randomness came from.
    noise
        The expected noise, or what computes it.
    entries
        For outputs that are released counts, what each of them counts, as texts; else None.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
    >>> towns = people["town"].histogram().release(dp.DiscreteLaplace(scale=2))
    >>> result = dp.Pipeline(towns=towns).simulate(seed=1, people={"town": ["A", "B", "A"] * 100})
    >>> result["towns"]
    array([201., 103.])
    >>> print(result)
    output    value  expected noise (1 sd)
    --------  -----  ---------------------
    towns[A]  201    +- 2.8
    towns[B]  103    +- 2.8
    >>> result.certificate
    <certificate epsilon=0.5 delta=0 by basic>
    """

    released: dict[str, Any]
    certificate: Certificate
    _noise: dict[str, Any] | Callable[[], dict[str, Any]] = field(factory=dict)
    entries: dict[str, Any] = field(factory=dict)

    @cached_property
    def noise(self) -> dict[str, Any]:
        """For each output the expected noise, one standard deviation, in the value's shape.

        None where it is not known. Computed from released values alone, when it is first asked
        for: noise is drawn some hundred times, and all that follows recomputed.
        """
        return self._noise() if callable(self._noise) else self._noise

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the numbers, since a plan's functions may not be pickled."""
        return Result, (self.released, self.certificate, self.noise, self.entries)

    def __getitem__(self, name: str) -> Any:
        return self.released[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.released)

    def __len__(self) -> int:
        return len(self.released)

    def __str__(self) -> str:
        return result_text(self.released, self.noise, self.entries)

    def __repr__(self) -> str:
        return f"<released {', '.join(self.released)}; {self.certificate!r}>"

    def _repr_html_(self) -> str:
        lines = [*stamp(self.certificate), *claim_lines(self.certificate)]
        return result_html(self.released, self.noise, self.entries, lines)


def execute(
    plan: Pipeline, data: Mapping[str, Secret[Any]], seed: int | None, watch: Watch
) -> Result:
    """Return the result of a run; ``seed`` makes it a simulation, stamped as such.

    Everything that can fail for the schema fails before the first release is drawn.
    """
    structure = plan.structure
    _settled(plan)
    paper = plan._stamped(seed)
    if seed is None and math.isinf(paper.epsilon):
        _noisy(structure)
        raise DeclarationError(
            f"no accountant bounds epsilon at delta = {plan.delta:g}, so a run would promise "
            "nothing (Gaussian noise, for one, has no finite epsilon at delta = 0); choose a delta "
            "with plan.with_delta(1e-6) ('delta' in a plan document), or calibrate the plan"
        )
    rehearsed(structure)
    run = Run(structure, seed, watch)
    run.bind(bound(structure, data))
    stopped = False
    try:
        run.all()
    except KeyboardInterrupt:
        stopped = True
    if stopped:  # outside of the handler, so that no traceback leads to frames that hold data
        raise Interrupted(_what_is_left(plan, run, seed))
    return _result(plan, run, paper)


def simulations(
    plan: Pipeline, data: Mapping[str, Secret[Any]], seeds: Iterable[int]
) -> Iterator[Result]:
    """Yield what simulations with these seeds release, without the expected noise.

    The certificate is made once: it is of the plan, and of the seed it has the stamp alone.
    """
    structure = plan.structure
    first: Certificate | None = None
    for seed in seeds:
        if first is None:
            result = execute(plan, data, seed, silent)
            first = result.certificate
            yield Result(result.released, first)
            continue
        run = Run(structure, seed)
        run.bind(bound(structure, data))
        run.all()
        values = _nested((path, fresh(run.open(structure.of(h).name))) for path, h in plan.outputs)
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
        Names of private nodes outside of loops that hang on no release.
    """
    structure = plan.structure
    _settled(plan)
    rehearsed(structure)
    run = Run(structure, seed)
    run.bind(bound(structure, data))
    above = set(upward(wanted, lambda name: structure.nodes[name].inputs))
    for node in structure:
        if node.name in above:
            run.value(node)
    return {name: run.secrets[name] for name in wanted}


def _settled(plan: Pipeline) -> None:
    if plan.free:
        raise DeclarationError(
            f"parameters are still free: {', '.join(sorted(plan.free))}; call "
            "plan.calibrate(epsilon=..., delta=...) first"
        )


def rehearsed(structure: Structure) -> None:
    """Fail where anything can fail whatever the data."""
    for node in structure:
        for parameter in node.handle.operation.parameters().values():
            if isinstance(parameter, Function):
                parameter.resolve()
        node.handle.operation.rehearse([handle.domain for handle in node.handle.inputs])


def _noisy(structure: Structure) -> None:
    """Refuse mechanisms that promise nothing at any delta."""
    paths = releases(structure)
    bare = [
        name
        for name, (loss, _) in compiler.release_losses(paths).items()
        if loss.delta_floor() >= 1
    ]
    if bare:
        raise DeclarationError(
            f"{', '.join(bare)}: released as it is, which no epsilon covers at any delta; choose a "
            "mechanism with noise, or compare by plan.simulate(seed=...), whose results are "
            "stamped as no release"
        )


def _result(plan: Pipeline, run: Run, paper: Certificate) -> Result:
    structure = run.structure
    public = {n.name for n in structure if isinstance(n.handle.operation, PublicSource)}
    # copies of what the caller may change before the noise is asked for
    raw = {name: fresh(v) if name in public else v for name, v in run.raw.items()}
    noise = partial(_expected, plan.outputs, structure, raw)
    entries = _nested((path, _entries(handle)) for path, handle in plan.outputs)
    return Result(released(plan, run), paper, noise, entries)


def _expected(
    outputs: Iterable[tuple[Path, Handle]], structure: Structure, raw: Mapping[str, Any]
) -> dict[str, Any]:
    return _nested(spread(outputs, structure, raw))


def _entries(handle: Handle) -> tuple[str, ...] | None:
    """Return what each entry of a released vector counts, where its query says so."""
    operation = handle.operation
    if not isinstance(operation, Release) or operation.mechanism.is_selection:
        return None
    asked = handle.inputs[0]
    query = asked.operation
    if not isinstance(query, Query) or type(query).candidate is Query.candidate:
        return None
    return tuple(str(query.candidate(i)) for i in range(query.dimension(asked.domain)))


def released(plan: Pipeline, run: Run) -> dict[str, Any]:
    """Return a run's outputs by name, nested for outputs with parts."""
    structure = run.structure
    # copies: no two outputs share an array or a list, nor does one with what the noise is read off
    return _nested((path, fresh(run.open(structure.of(h).name))) for path, h in plan.outputs)


def _what_is_left(plan: Pipeline, run: Run, seed: int | None) -> Result | None:
    """Return what an interrupted run has released, under a certificate of just that."""
    made = {id(n.handle): n for n in run.structure if n.name in run.opened and not n.loops}
    given = Release | Loop | PublicSource
    paid = {k: n for k, n in made.items() if isinstance(n.handle.operation, given)}
    outputs, cut = shortened(plan.outputs, paid, {k: rounds for k, (rounds, _) in run.cut.items()})
    if not outputs:
        return None
    part = type(plan).of(outputs, plan.delta)
    rest = Run(part.structure, run.seed, run.watch)
    for node in part.structure:
        handle = id(node.handle)
        if handle in paid:
            name = paid[handle].name
            rest.opened[node.name] = run.opened[name]
            rest.raw |= {node.name: run.raw[name]} if name in run.raw else {}
        elif handle in cut and not node.loops:
            rest.opened[node.name] = run.cut[cut[handle]][1]
    for node in part.structure:
        if not node.loops and node.handle.visibility != "private":
            rest.value(node)
    paper = certificate(
        part.structure, part.to_document(), part.fingerprint, part.delta, ACCOUNTANTS, seed=seed
    )
    return _result(part, rest, paper)


def bound(structure: Structure, data: Mapping[str, Secret[Any]]) -> dict[str, Secret[Any]]:
    """Return what is bound to each source, by its node; public data too, until it is opened."""
    sources: dict[str, SourceOperation | PublicSource] = {}
    readers: dict[str, str] = {}
    for node in structure:
        operation = node.handle.operation
        if isinstance(operation, SourceOperation | PublicSource):
            known = sources.get(operation.name, operation)
            twice = operation.name in sources and operation.visibility == "private"
            if twice or known != operation:  # equal public sources are one
                raise DeclarationError(
                    f"two data sets of the plan are called {operation.name!r}, and run binds data "
                    "by name; rename one"
                )
            sources[operation.name] = known
            readers[node.name] = operation.name
    unknown, missing = set(data) - set(sources), set(sources) - set(data)
    if unknown or missing:
        raise DataError(
            f"the plan reads the data sets {sorted(sources)}, run was given {sorted(data)}; pass "
            "each by its name, such as run(people=frame)"
        )
    found = {name: read(source, data[name]) for name, source in sources.items()}
    return {node: found[name] for node, name in readers.items()}


def read(
    source: SourceOperation | PublicSource, data: Secret[Any], *, copied: bool = False
) -> Secret[Any]:
    """Return data as its source reads it, or refuse it by an error that tells nothing of it.

    Parameters
    ----------
    source, data
        What is bound to what.
    copied
        Whether arrays are copied, so that nobody else can change them.
    """
    stopped, failed = False, ""
    try:
        found = source.bind(data.reveal())
        return Secret(_owned(found) if copied else found)
    except DataError as error:
        failed = str(error)
    except KeyboardInterrupt:
        stopped = True
    except BaseException:  # not even its type is told: it may depend on the data
        failed = (
            f"dataset {source.name!r} cannot be read; the cause is withheld, since it may carry "
            "private data"
        )
    # outside of the handler, so that no traceback leads to frames that hold the data
    if stopped:
        raise KeyboardInterrupt
    raise DataError(failed)


def _owned(value: Any) -> Any:
    """Return bound data that nobody else can change: arrays are copied, out-of-core rows are not.

    What a frame's owner writes into it later must not move a person from one part to another.
    """
    if isinstance(value, MemoryRows):
        return MemoryRows({k: v.copy() for k, v in value.columns.items()}, value.units.copy())
    if isinstance(value, np.ndarray):
        return value.copy()
    return value


def guarded(name: str, call: Callable[[], T]) -> T:
    """Return what a call on private values returns; of what it raises nothing is told.

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
        with np.errstate(all="ignore"):  # a warning would tell of the data
            return call()
    except KeyboardInterrupt:
        stopped = True
    except BaseException:  # the library's own too: an own mechanism may have set it off
        pass
    # outside of the handler, so that no traceback holds the cause or its data
    if stopped:
        raise KeyboardInterrupt
    raise RunError(
        f"node {name!r} failed; the cause is withheld, since it may carry private data. "
        "Nothing was released. Run the plan on made-up data of the same schema to find it."
    )


class Run:
    """The values of one run; private ones are kept as `Secret`."""

    def __init__(
        self,
        structure: Structure,
        seed: int | None,
        watch: Watch = silent,
    ) -> None:
        self.structure = structure
        self.watch = watch
        self.cut: dict[int, tuple[int, Any]] = {}
        self.seed = seed
        self.secrets: dict[str, Secret[Any]] = {}
        self.opened: dict[str, Any] = {}
        self.raw: dict[str, Any] = {}
        self.round: tuple[int, ...] = ()
        self.attempts: dict[str, Checkpoint] = {}

    def bind(self, given: Mapping[str, Secret[Any]]) -> None:
        """Take the data of each source; what is public is opened."""
        for name, value in given.items():
            if isinstance(self.structure.nodes[name].handle.operation, PublicSource):
                self.opened[name] = self.raw[name] = value.reveal()
            else:
                self.secrets[name] = value

    def all(self) -> None:
        """Compute every node."""
        for node in self.structure:
            if not node.loops:
                self.value(node)

    def open(self, name: str) -> Any:
        """Return a released value."""
        return self.opened[name]

    def value(self, node: Node) -> None:
        """Compute a node's value, unless it is there."""
        if node.name in self.opened or node.name in self.secrets:
            return
        operation = node.handle.operation
        if isinstance(operation, Loop):
            self.opened[node.name] = self._loop(node, operation)
            return
        names = [self.structure.of(i).name for i in node.handle.inputs]
        private = node.handle.visibility == "private" or isinstance(operation, Release)
        stream = self._stream(node) if operation.random else SecureStream()
        if private:
            value = self._guarded(node, names, stream)
        elif isinstance(operation, Parameter):
            value = operation.run([node.handle.inputs[0].domain], stream)
        else:
            value = self._followed(node, names, stream)
        if node.handle.visibility == "private":
            self.secrets[node.name] = Secret(value)
            return
        if isinstance(operation, Release):
            if value is None:
                raise self._misshapen(node, operation, names[0])
            query = node.handle.inputs[0].operation
            self.raw[node.name] = value
            assert isinstance(query, Query)
            value = operation.presented(query, value)
        self.opened[node.name] = value

    def _misshapen(self, node: Node, operation: Release, query: str) -> RunError:
        """Return the error of a mechanism that breaks its contract.

        What it returned may depend on the data, in its shape too: what is told is what it returns
        for zeros.
        """
        shape = shape_of(self.secrets[query].reveal())
        got = ""
        if operation.mechanism.redrawn():
            try:
                returned = operation.mechanism.release(np.zeros(shape), SeededStream(0))
                got = f"a {type(returned).__name__} of shape {np.shape(returned)}"
            except Exception as error:
                got = type(error).__name__
            got = f"; for zeros it gives {got}"
        return RunError(
            f"node {node.name!r}: {type(operation.mechanism).__name__}.release must return real "
            f"numbers of shape {operation.mechanism.shape(shape)}, which it did not{got}. "
            "Nothing was released."
        )

    def _guarded(self, node: Node, names: list[str], stream: Stream) -> Any:
        # what draws nothing is the same when it is begun again, and goes on where it stood
        again = None if node.handle.operation.random or node.loops else node.name
        attempt = None if again is None else self.attempts.setdefault(again, Checkpoint())
        # inputs are revealed in the call itself: no local variable of this frame holds them
        with resuming(attempt):
            value = guarded(
                node.name,
                lambda: node.handle.operation.observed(
                    [
                        fresh(self.opened[n]) if n in self.opened else self.secrets[n].reveal()
                        for n in names
                    ],
                    stream,
                    partial(self.watch, node),
                ),
            )
        self.attempts.pop(node.name, None)
        return value

    def _followed(self, node: Node, names: list[str], stream: Stream) -> Any:
        """Return the value of a step in the open; what it raises becomes a `RunError`."""
        try:
            return node.handle.operation.run([self.opened[n] for n in names], stream)
        except RunError as error:
            failed = str(error)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            failed = f"{type(error).__name__} in {line.name}, line {line.lineno} of {line.filename}"
        raise RunError(
            f"node {node.name!r} failed ({failed}); its message is withheld, since a function may "
            "know more than released values. Nothing was released: call it on made-up values to "
            "find out."
        )

    def _loop(self, node: Node, operation: Loop) -> Any:
        start = self.opened[self.structure.of(node.handle.inputs[0]).name]
        outer = self.round
        if isinstance(operation, Select):
            stream = self._stream(node)
            best = None
            for k in range(operation.draw(stream)):
                candidate = operation.candidate(start, stream)
                best = operation.better(best, candidate, self._round(node, operation, candidate, k))
                self.round = outer
            return best
        for k in self.watch(node, operation.rounds()):
            if not node.loops and k > 0:
                self.cut[id(node.handle)] = (k, start)
            start = self._round(node, operation, start, k)
            self.round = outer
        return start

    def _round(self, node: Node, operation: Loop, state: Any, k: int) -> Any:
        """Return what the body returns in one round, all that is random in it drawn afresh."""
        body = [n for n in self.structure if node.name in n.loops]
        for inner in body:
            self.opened.pop(inner.name, None)
            self.secrets.pop(inner.name, None)
        self.opened[self.structure.of(operation.state).name] = state
        self.round = (*self.round, k)
        for inner in body:
            if inner.loops[-1] == node.name:
                self.value(inner)
        return self.opened[self.structure.of(operation.result).name]

    def _stream(self, node: Node) -> Stream:
        if self.seed is None:
            return SecureStream()
        return SeededStream(self.seed, *node.key, *self.round)


def _nested(pairs: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for path, value in pairs:
        target = result
        for name in path[:-1]:
            target = target.setdefault(name, {})
        target[path[-1]] = value
    return result


# -----------------------------------------------------------------------------
# What each unit by itself would move of a release, and releases of some of the units.
#
# A release qualifies that adds Gaussian noise to a sum over rows, on a way from the data on which
# what becomes of a unit's rows depends on those rows and on the plan alone
# (`Operation.is_rowwise`). Then
# leaving out some units changes nothing of what the others add, and a unit that is in the sum moves
# it by what its own rows add: see `accountants.individual` for what follows.


Units = NDArray[np.int64]

POSSIBLE = (
    "what each record pays is known for dp.Gaussian releases of counts, sums, histograms and "
    "vector sums, of a data set with add_remove neighbours, after filters by constants, bounds of "
    "contributions, and partitions by a column; open a session with accountant='gaussian' for "
    "others"
)


@frozen
class Price:
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


def price(path: ReleasePath) -> Price:
    """Return the price of a release, or refuse one of which it is not known what a unit moves.

    Raises
    ------
    InapplicableError
        With what is possible. It hangs on the plan alone.
    """
    mechanism, query = path.mechanism, path.steps[-1].handle
    assert isinstance(query.operation, Query)
    kind = type(query.operation)
    _need(path, path.source.neighbors == "add_remove", "the neighbours are not add_remove")
    _need(path, not path.node.loops, "it is released in a loop")
    _need(
        path,
        mechanism.shifts and is_own(type(mechanism)) and len(path.node.handle.inputs) == 1,
        f"{type(mechanism).__name__} does not add Gaussian noise to a sum",
    )
    for node in path.steps[1:-1]:
        operation = node.handle.operation
        _need(
            path,
            operation.is_rowwise and is_own(type(operation)) and not operation.random,
            f"after a {operation.kind}, what one unit moves may hang on others, or on chance",
        )
    _need(
        path,
        all(len(node.handle.inputs) == 1 for node in path.steps[1:]),
        "it reads released values beside the data; run them first, and compare with their number",
    )
    _need(
        path,
        kind.contributions is not Query.contributions and is_own(type(query.operation)),
        f"a {query.operation.kind} is no plain sum over rows",
    )
    sigma, step = mechanism.deviation(), query.operation.step(query.domain)
    rounding = mechanism.cost(0.0, query.operation.dimension(query.domain), step).mu()
    assert sigma is not None
    assert rounding is not None
    return Price(sigma, up(rounding) if rounding else 0.0, step)


def norms(
    structure: Structure, path: ReleasePath, rows: Secret[Any], everyone: Secret[Units]
) -> Secret[Array]:
    """Return a bound of what each unit adds to a release's query, in l2.

    A unit's rows add at most the sum of what each of them adds (triangle inequality).

    Parameters
    ----------
    structure, path
        The plan, and its release.
    rows
        What is bound to the data set.
    everyone
        Their `units`.

    Returns
    -------
    Secret array
        Shape (units,); 0 only where the unit moves nothing.
    """
    run = _way(structure, path, rows)
    query = path.steps[-1].handle.operation
    assert isinstance(query, Query)

    def added() -> Secret[Array]:
        names = everyone.reveal()
        whose, each = query.contributions(run.secrets[path.steps[-2].name].reveal())
        index = np.searchsorted(names, whose)
        total, most = np.zeros(len(names)), np.ones(len(names))
        np.add.at(total, index, each)
        np.add.at(most, index, 1.0)
        # a float sum of k numbers is off by a relative k 2^-53; k of the unit's own rows, since
        # what a unit pays must not hang, by its last bit, on how many rows another one has
        return Secret(np.where(most > 2, total + total * (most * UNIT), total))

    return guarded(path.node.name, added)


def release(run: Run, path: ReleasePath, rows: Secret[Any], active: Secret[Units]) -> None:
    """Compute a release in a run, of the units that are active and no others.

    Parameters
    ----------
    run
        Where what is released goes; its private values are not used.
    path
        The release.
    rows
        What is bound to the data set.
    active
        Which units take part.
    """
    some = guarded(path.node.name, lambda: Secret(rows.reveal().among(active.reveal())))
    of = _way(run.structure, path, some, run.seed, run.round)
    of.value(path.steps[-1])
    of.value(path.node)
    run.opened[path.node.name] = of.opened[path.node.name]
    run.raw[path.node.name] = of.raw[path.node.name]


def units(rows: Secret[Any]) -> Secret[Units]:
    """Return the units of rows, in increasing order."""
    return guarded("data", lambda: Secret(np.unique(rows.reveal().units)))


def _way(
    structure: Structure,
    path: ReleasePath,
    rows: Secret[Any],
    seed: int | None = None,
    within: tuple[int, ...] = (),
) -> Run:
    """Return a run of what leads from the data to a release's query, on given rows."""
    run = Run(structure, seed)
    run.round = within
    run.bind({path.steps[0].name: rows})
    for node in path.steps[1:-1]:
        run.value(node)
    return run


def _need(path: ReleasePath, holds: bool, why: str) -> None:
    if not holds:
        raise InapplicableError(
            f"{path.node.name!r} has no price for each record by itself: {why}. With "
            f"accountant='individual', {POSSIBLE}"
        )
