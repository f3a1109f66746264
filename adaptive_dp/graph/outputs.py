"""What a run gives out: numbers and arrays that know how far they may be off.

*What an interval is of.* Of what the output would be without noise: the count of these rows, the
ratio of these two sums. With ``sampling`` it is of the population of which the rows are a random
sample. It is computed from released values, public parameters and public randomness alone, so it is
post-processing and costs nothing: two data sets of equal released values have equal intervals.

*One release* has its noise's exact law (`Mechanism.error`). Entries of a vector have an interval
each; that all of them hold at once is less likely. Numbers of released keys have the law given that
their keys show (`Mechanism.intervals`). Quantiles have one where its ends are released too.

*Functions of releases* are simulated: from each released value a new draw of its own mechanism's
noise is taken away, which gives a plausible value without noise; the function of many of these has
the interval's ends as quantiles. For noise of a symmetric law it is the percentile interval of a
parametric bootstrap. It is exact for monotone functions of one release, and transforms with the
output: where that is clamped, so is the interval. Measured coverage is in
``benchmarks/coverage.py``: ratios, shares, differences, clamped and rounded values, standard
deviations. It does not hold for functions with a kink where the data are, such as the largest of
nearly equal counts, or the size of a difference of about 0: there the noise alone moves the value
in one direction. Release differences with their sign.

*Where a function shrinks its value*, as a ridge does, what it gives without noise is not what it
estimates; such a function says what it estimates (`estimates`).
"""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from attrs import frozen
from scipy.special import stdtrit

from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import (
    Handle,
    Parameter,
    Post,
    PublicSource,
    Release,
    change_at,
)
from adaptive_dp.graph.loops import Loop, upward
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.values import MAX_SHOWN_DEPTH, plain
from adaptive_dp.noise.stream import SeededStream, standard_normals

if TYPE_CHECKING:
    from adaptive_dp.graph.nodes import Node, Path, Structure

F = TypeVar("F", bound=Callable[..., Any])

DRAWS = 1999
"""Draws of which quantiles are taken: one of 2000 equally likely places is left for the value."""
MOST_DRAWN = 2**25
"""Numbers that are drawn in all for one output; of large vectors there are fewer draws."""
FEWEST_DRAWS = 49
"""Of fewer draws than `DRAWS` the standard deviation is taken, and of no fewer than these."""
FAILURES = (Exception, SystemExit)
"""What a user's functions may raise on noise other than that of the run."""


class ConfidenceInterval(NamedTuple):
    """The ends of an interval: numbers, or arrays with one for each entry.

    Examples
    --------
    >>> low, high = ConfidenceInterval(2.0, 4.5)
    >>> ConfidenceInterval(2.0, 4.5).high
    4.5
    """

    low: Any
    high: Any


Tree = Any
"""Intervals, or the errors that say why there are none, in mappings and lists as the value is."""


# -----------------------------------------------------------------------------
# What a function of released values says of itself.


def estimates(draws: Callable[..., Sequence[Any]]) -> Callable[[F], F]:
    """Say what a function of released values estimates, where it shrinks its value.

    Parameters
    ----------
    draws
        ``draws(inputs, drawn, **constants)`` is given the function's inputs as they were released,
        and a list of plausible inputs without noise; it returns for each of these what is
        estimated. It raises `NoIntervalError` where the inputs do not tell.

    Examples
    --------
    >>> def unshrunk(inputs, drawn):
    ...     return [total for total, in drawn]
    >>> @estimates(unshrunk)
    ... def shrunk(total):
    ...     return total / 2
    >>> shrunk(3.0)
    1.5
    """

    def marked(function: F) -> F:
        function.__dict__["estimand"] = draws
        return function

    return marked


def varies(draws: Callable[..., Any]) -> Callable[[F], F]:
    """Say how a function of released values varies where the rows are a random sample.

    Parameters
    ----------
    draws
        ``draws(values, inputs, normals, **constants)`` is given plausible values of the function
        without noise, the inputs of each, and standard normal numbers in the shape of ``values``;
        it returns plausible values of the population.
    """

    def marked(function: F) -> F:
        function.__dict__["sampled"] = draws
        return function

    return marked


def released_ends(ends: Callable[..., Tree]) -> Callable[[F], F]:
    """Say that the ends of the interval of a function's value follow from its inputs.

    Parameters
    ----------
    ends
        ``ends(inputs, level, sampling, **constants)`` is given the inputs as they were released;
        it returns the interval, or raises `NoIntervalError` with the reason. Where the value is a
        mapping, so is what it returns, with such an error in place of an interval.
    """

    def marked(function: F) -> F:
        function.__dict__["ends"] = ends
        return function

    return marked


# -----------------------------------------------------------------------------
# The intervals of a result.


class Intervals:
    """The intervals of a run's outputs, computed when they are asked for.

    Parameters
    ----------
    outputs, structure
        Of the plan.
    raw
        What each release drew, by its node's name, before it takes its reader's form.
    values
        What each node outside of loops gave, by name.
    seed
        Of the simulated noise; it follows from the plan, not from the data.
    common
        Whether plans that differ in their noise's scale alone draw the same noise but for its
        scale, so that what is computed of it changes smoothly.
    """

    def __init__(
        self,
        outputs: Iterable[tuple[Path, Handle]],
        structure: Structure,
        raw: Mapping[str, Any],
        values: Mapping[str, Any],
        seed: int,
        *,
        common: bool = False,
    ) -> None:
        self._handles = dict(outputs)
        self._structure, self._raw, self._values = structure, raw, values
        self._seed, self._common = seed, common
        self._trees: dict[tuple[Path, float, bool], Tree] = {}
        self._drawn: dict[tuple[str, bool, int], list[Any] | NoIntervalError] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the intervals of the usual levels, since a plan's functions may not be pickled."""
        return Stored, (
            {
                (path, level, sampling): self.tree(path, level, sampling)
                for path in self._handles
                for level in STORED
                for sampling in (False, True)
            },
        )

    @property
    def paths(self) -> frozenset[Path]:
        """The outputs' paths."""
        return frozenset(self._handles)

    def _stream(self, node: Node) -> SeededStream:
        # by digest: the same in a plan that was written and read; digests follow the noise's scale
        return SeededStream(self._seed, *([node.rank] if self._common else node.key))

    def tree(self, path: Path, level: float, sampling: bool) -> Tree:
        """Return the intervals of an output's numbers, in the form of its value."""
        key = (path, level, sampling)
        if key not in self._trees:
            node = self._structure.of(self._handles[path])
            try:
                self._trees[key] = self._of(node, level, sampling)
            except NoIntervalError as error:
                self._trees[key] = error
        return self._trees[key]

    def _of(self, node: Node, level: float, sampling: bool) -> Tree:
        operation = node.handle.operation
        if isinstance(operation, Release) and self._by_key(node):
            return self._of_keys(node, operation, level, sampling)
        if isinstance(operation, Release) and not sampling:
            exact = self._exact(node, operation, level)
            if exact is not None:
                return exact
        if isinstance(operation, Post):
            released = getattr(operation.function.resolve(), "ends", None)
            if released is not None:
                inputs = [self._values[self._structure.of(i).name] for i in node.handle.inputs]
                return released(inputs, level, sampling, **operation.constants)
        count = max(DRAWS, math.ceil(10 / (1 - level)) - 1)
        drawn = self._draws(node, sampling, self._affordable(node, count))
        try:
            with np.errstate(all="ignore"):
                return bounds(drawn, level, self._values[node.name])
        except FAILURES:  # values that contain themselves, or whose own methods fail
            raise NoIntervalError("it is not made of numbers") from None

    def _exact(self, node: Node, release: Release, level: float) -> ConfidenceInterval | None:
        """Return the interval of a release by its noise's law; None where it is simulated."""
        query, mechanism = _query(node), release.mechanism
        self._check_tells(node, node)
        if not _knows_law(type(mechanism)):
            return None
        domain = query.inputs[0].domain
        operation = query.operation
        assert isinstance(operation, Query)
        try:
            t = mechanism.error(level, operation.dimension(domain), operation.step(domain))
        except FAILURES as error:  # a user's own mechanism
            raise NoIntervalError(_failed("the mechanism's error", error)) from None
        if t is None:
            return None
        raw = self._raw[node.name]
        ends = [release.presented(query, raw + sign * t) for sign in (-1, 1)]
        # a form that turns signs around would exchange the ends
        low, high = np.minimum(*ends), np.maximum(*ends)
        return ConfidenceInterval(_scalar(low), _scalar(high))

    def _of_keys(self, node: Node, release: Release, level: float, sampling: bool) -> Tree:
        """Return the intervals of released keys' numbers, each given that its key was released."""
        self._check_tells(node, node)
        if sampling:
            raise NoIntervalError(
                "how often a key shows from sample to sample is not known; without sampling=True "
                "it has an interval of the noise alone"
            )
        try:
            found = release.mechanism.intervals(self._raw[node.name], level)
        except FAILURES as error:  # a user's own mechanism
            raise NoIntervalError(_failed("the mechanism's intervals", error)) from None
        if found is None:
            raise NoIntervalError("which keys are released depends on the noise")
        return {key: ConfidenceInterval(float(a), float(b)) for key, (a, b) in found.items()}

    def _check_tells(self, node: Node, asked: Node) -> None:
        """Refuse a release or loop that does not tell how far it may be off."""
        operation = node.handle.operation
        reason = ""
        if isinstance(operation, Loop):
            reason = "each round reads the data where the noise of the rounds before has led"
        elif isinstance(operation, Release):
            mechanism, kind = operation.mechanism, type(operation.mechanism)
            reason = mechanism.no_interval
            if not reason and self._by_key(node):
                reason = "" if node is asked else "which keys are released depends on the noise"
            elif not reason and mechanism.is_selection:
                reason = "it is a choice among candidates, not a number with noise"
            elif not reason and kind.error is Mechanism.error and not mechanism.redrawn():
                reason = (
                    f"{kind.__name__} does not say how far its release may be off, and its noise "
                    "cannot be drawn again without the data"
                )
        if reason:
            where = "" if node is asked else f"it follows {node.name!r}: "
            raise NoIntervalError(where + reason)

    def _by_key(self, node: Node) -> bool:
        """Whether a release is of keys, of which it is drawn which there are."""
        return isinstance(self._raw[node.name], dict | list)

    def _affordable(self, node: Node, count: int) -> int:
        """Return how many draws are made, at most ``count``: fewer of very many numbers."""
        size = max(
            1,
            *(_size(self._raw.get(each.name)) for each in self._above(node)),
            _size(self._values[node.name]),
        )
        if size * count <= MOST_DRAWN:
            return count
        if size * FEWEST_DRAWS > MOST_DRAWN:
            raise NoIntervalError(
                f"it follows {size:,} numbers, too many to simulate their noise; what it is "
                "computed from has intervals"
            )
        return max(FEWEST_DRAWS, MOST_DRAWN // size)

    def _above(self, node: Node) -> list[Node]:
        """Return a node and what it is computed from, in order, up to releases and loops."""

        def needed(name: str) -> tuple[str, ...]:
            each = self._structure.nodes[name]
            drawn = isinstance(each.handle.operation, Release | Parameter | Loop | PublicSource)
            return () if drawn else each.inputs

        names = set(upward([node.name], needed))
        return [each for each in self._structure if each.name in names]

    def _draws(self, node: Node, sampling: bool, count: int) -> list[Any]:
        """Return plausible values of a node without noise."""
        key = (node.name, sampling, count)
        if key not in self._drawn:
            try:
                self._drawn[key] = self._simulated(node, sampling, count)
            except NoIntervalError as error:
                self._drawn[key] = error
        drawn = self._drawn[key]
        if isinstance(drawn, NoIntervalError):
            raise drawn
        return drawn

    def _simulated(self, node: Node, sampling: bool, count: int) -> list[Any]:
        above = self._above(node)
        for each in above:  # before anything is drawn, and a function called many times
            self._check_tells(each, node)
        sample = self._sampled_at(node, above) if sampling else None
        values: dict[str, list[Any]] = {}
        for each in above:
            operation = each.handle.operation
            inputs = [self._structure.of(i).name for i in each.handle.inputs]
            try:
                with np.errstate(all="ignore"):
                    if isinstance(operation, Release):
                        drawn = self._without_noise(each, operation, sample is each, count)
                    elif isinstance(operation, PublicSource):
                        drawn = [self._raw[each.name]] * count
                    elif isinstance(operation, Parameter):
                        domain = each.handle.inputs[0].domain
                        drawn = [operation.run([domain], SeededStream(0))] * count
                    elif not inputs:
                        drawn = [operation.run([], SeededStream(0))] * count
                    else:
                        drawn = self._computed(each, [values[i] for i in inputs], inputs)
                        if sample is each:
                            drawn = self._with_sampling(each, drawn, [values[i] for i in inputs])
            except NoIntervalError as error:
                inside = each is node or str(error).startswith("it follows")
                where = "" if inside else f"it follows {each.name!r}: "
                raise NoIntervalError(f"{where}{error}") from None
            except FAILURES as error:
                raise NoIntervalError(_failed(each.name, error)) from None
            values[each.name] = drawn
        return values[node.name]

    def _without_noise(self, node: Node, release: Release, sampling: bool, count: int) -> list[Any]:
        """Return a release's value less new draws of its noise."""
        raw, mechanism = self._raw[node.name], release.mechanism
        stream = self._stream(node)
        query = _query(node)
        if is_own(type(mechanism)) and mechanism.deviation() is not None:
            # independent noise on each coordinate: one draw for all
            noise = mechanism.release(np.zeros((count, *raw.shape)), stream)
        else:
            # released around the value itself: a third party's noise may depend on it
            noise = np.stack([release.run([raw], stream) - raw for _ in range(count)])
        values = raw - noise
        if sampling:
            assert isinstance(query.operation, Query)
            normals = standard_normals(stream.words, values.size).reshape(values.shape)
            values = query.operation.sampled(query.inputs[0].domain, values, normals)
        return [release.presented(query, value) for value in values]

    def _computed(self, node: Node, inputs: list[list[Any]], names: list[str]) -> list[Any]:
        """Return what a function gives for each draw of its inputs, or what it estimates."""
        operation = node.handle.operation
        if isinstance(operation, Post):
            estimand = getattr(operation.function.resolve(), "estimand", None)
            if estimand is not None:
                released = [self._values[name] for name in names]
                drawn = list(zip(*inputs, strict=True))
                return list(estimand(released, drawn, **operation.constants))
        stream = SeededStream(0)  # what computes with released values draws nothing
        return [operation.run(list(each), stream) for each in zip(*inputs, strict=True)]

    def _with_sampling(self, node: Node, values: list[Any], inputs: list[list[Any]]) -> list[Any]:
        operation = node.handle.operation
        assert isinstance(operation, Post)
        array = np.asarray(values, dtype=np.float64)
        stream = self._stream(node)
        normals = standard_normals(stream.words, array.size).reshape(array.shape)
        sampled = operation.function.resolve().sampled  # type: ignore[attr-defined]
        each = [np.asarray(drawn, dtype=np.float64) for drawn in inputs]
        return list(sampled(array, each, normals, **operation.constants))

    def _sampled_at(self, node: Node, above: list[Node]) -> Node:
        """Return the node at which sampling enters: the only count above, or an average itself.

        Raises
        ------
        NoIntervalError
            If released values do not tell how the output varies with the sample.
        """
        releases = [each for each in above if isinstance(each.handle.operation, Release)]
        for each in releases:
            change = change_at(_query(each).inputs[0])
            if change.rows != 1:
                raise NoIntervalError(
                    f"a unit has up to {change.rows} rows, which do not vary independently of each "
                    "other; without sampling=True it has an interval of the noise alone"
                )
        operation = node.handle.operation
        if isinstance(operation, Post) and hasattr(operation.function.resolve(), "sampled"):
            return node
        if len(releases) == 1:
            query = _query(releases[0]).operation
            assert isinstance(query, Query)
            alone = releases[0] is node or query.disjoint
            if type(query).sampled is not Query.sampled and alone:
                return releases[0]
        raise NoIntervalError(
            "what is released does not tell how it varies from sample to sample: sampling=True is "
            "for counts, for functions of one histogram, and for averages of bounded columns"
        )


class Deferred(Intervals):
    """Intervals that need more than a step's own plan, which is put together when one is asked for.

    Parameters
    ----------
    outputs
        Of the step.
    make
        Returns the intervals of the full plan; `NoIntervalError` where a draw above it is unknown.
    """

    def __init__(self, outputs: Iterable[tuple[Path, Handle]], make: Callable[[], Intervals]):
        self._handles, self._make = dict(outputs), make

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the intervals of the usual levels."""
        return self._full.__reduce__()

    @cached_property
    def _full(self) -> Intervals | Stored:
        try:
            return self._make()
        except NoIntervalError as error:
            every = product(self._handles, STORED, (False, True))
            return Stored(dict.fromkeys(every, error))

    def tree(self, path: Path, level: float, sampling: bool) -> Tree:
        """Return the intervals of an output's numbers, in the form of its value."""
        return self._full.tree(path, level, sampling)


STORED = (0.5, 0.8, 0.9, 0.95, 0.99)
"""The levels whose intervals are kept in a pickle."""


class Stored:
    """The intervals of a result that was pickled, at `STORED` levels."""

    def __init__(self, trees: Mapping[tuple[Path, float, bool], Tree]) -> None:
        self._trees = trees

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the intervals."""
        return Stored, (self._trees,)

    @property
    def paths(self) -> frozenset[Path]:
        """The outputs' paths."""
        return frozenset(path for path, _, _ in self._trees)

    def tree(self, path: Path, level: float, sampling: bool) -> Tree:
        """Return the intervals of an output's numbers, in the form of its value."""
        levels = ", ".join(f"{each:g}" for each in STORED)
        missing = NoIntervalError(f"a pickled result keeps the levels {levels}, not {level:g}")
        return self._trees.get((path, level, sampling), missing)


def _query(node: Node) -> Handle:
    return node.handle.inputs[0]


def _knows_law(kind: type) -> bool:
    """Whether a mechanism's `error` is of its own `release`, and not of one that it replaces."""
    defines = next(c for c in kind.__mro__ if "error" in vars(c) or "release" in vars(c))
    return "error" in vars(defines)


def _size(value: Any) -> int:
    return value.size if isinstance(value, np.ndarray) else 1


def _failed(name: str, error: BaseException) -> str:
    return f"{name!r} fails on other noise than that of the run ({type(error).__name__})"


def _scalar(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def bounds(draws: Sequence[Any], level: float, value: Any = None) -> Tree:
    """Return the intervals of draws, in mappings and lists as each draw is.

    Of `DRAWS` draws or more they are quantiles; of fewer, as many standard deviations around
    ``value`` as a normal law has.
    """
    first = draws[0]
    if isinstance(first, Mapping):
        if any(not isinstance(each, Mapping) or each.keys() != first.keys() for each in draws):
            return NoIntervalError("its keys depend on the noise")
        inside = value if isinstance(value, Mapping) else {}
        return {key: bounds([each[key] for each in draws], level, inside.get(key)) for key in first}
    try:
        array = np.asarray(draws)
        numeric = array.dtype.kind in "iuf"
    except ValueError:  # lists of several lengths
        numeric = False
    if not numeric and isinstance(first, list | tuple):
        if any(not isinstance(each, list | tuple) or len(each) != len(first) for each in draws):
            return NoIntervalError("its length depends on the noise")
        items = value if isinstance(value, list | tuple) and len(value) == len(first) else first
        return [bounds([each[i] for each in draws], level, items[i]) for i in range(len(first))]
    if not numeric:
        return NoIntervalError("it is not a number")
    array = array.astype(np.float64)
    if len(draws) < DRAWS:
        half = stdtrit(len(draws) - 1, (1 + level) / 2) * array.std(axis=0, ddof=1)
        low, high = np.asarray(value) - half, np.asarray(value) + half
    else:
        # of n draws and the value itself each of n + 1 orders is equally likely: k of them are
        # beyond either end
        k = max(1, math.floor((len(draws) + 1) * (1 - level) / 2 * (1 + 1e-9)))
        ordered = np.partition(array, [k - 1, len(draws) - k], axis=0)
        low, high = ordered[k - 1], ordered[len(draws) - k]
    undefined = np.isnan(array).any(axis=0)
    if undefined.all() and undefined.size:
        return NoIntervalError("it is not a number (NaN) for some of the noise")
    low, high = np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)
    return ConfidenceInterval(_scalar(low), _scalar(high))


def check_level(level: float) -> float:
    """Return a level inside (0, 1), or refuse it."""
    if not (isinstance(level, float) and 0 < level <= 0.9999):
        raise DeclarationError(
            "an interval's level is a float above 0 and at most 0.9999, such as 0.95; got "
            f"{level!r}"
        )
    return float(level)


# -----------------------------------------------------------------------------
# Tables: of a result, and of each output that has several numbers.


@frozen(eq=False)
class Entries(Sequence[str]):
    """What the entries of a vector stand for, as str that are made when they are asked for.

    Parameters
    ----------
    candidates
        What they stand for; a tuple is written as its items.
    names
        What the parts of each are called, as columns of a table.
    """

    candidates: Sequence[Any]
    names: tuple[str, ...] = ("key",)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        named = self.candidates[index]
        return ", ".join(map(str, named)) if isinstance(named, tuple) else str(named)


class Summarized(ABC):
    """A released value that says what of it is shown where outputs are printed or drawn.

    For a value of which the numbers themselves say little to a reader, such as a model.
    """

    __slots__ = ()

    @abstractmethod
    def summary(self, level: float) -> tuple[Mapping[str, Any], Mapping[str, Any], dict[str, Any]]:
        """Return what is shown, by name: numbers and arrays; their intervals; their labels."""

    @abstractmethod
    def comparison(self) -> Comparison:
        """Return how made-up rows of the value compare with what was released."""


@frozen
class Comparison:
    """Synthetic rows beside what they were made of.

    Parameters
    ----------
    rows
        How many rows were made: 0 where none could be, as the notes say.
    columns
        By column the labels of its cells, the released counts and the ends of their intervals, and
        the counts of the rows, scaled to the released number of all rows.
    tables
        Of each released table its columns, its number of cells, how far it is off the truth at
        most, and how far the rows are off it: both as shares of all rows. Then how many of its
        cells may be empty, for all that was released, and the share of rows that are in them.
    notes
        What a reader should know beside.
    """

    rows: int
    columns: dict[str, tuple[list[str], list[float], list[float], list[float], list[float]]]
    tables: list[tuple[tuple[str, ...], int, float, float, int, float]]
    notes: list[str]


def summarized(
    values: Mapping[str, Any], trees: Mapping[str, Any], entries: Mapping[str, Any], level: float
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return outputs, their intervals and labels, of values that are summarized their summary."""
    shown, inside, labels = dict(values), dict(trees), dict(entries)
    for name, value in values.items():
        if isinstance(value, Summarized):
            own = value.summary(level)
            shown[name], inside[name], labels[name] = dict(own[0]), dict(own[1]), own[2]
    return shown, inside, labels


class Tabular:
    """What has columns, and so can be a table of other libraries.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> visits = dp.dataset("visits", columns={"town": ["B", "A"], "year": [2020, 2021]})
    >>> counts = visits.group_by("town", "year").count().release(dp.DiscreteLaplace(scale=1))
    >>> plan = dp.Pipeline(counts=counts)
    >>> data = {"town": ["A", "B"] * 50, "year": [2020, 2021] * 50}
    >>> result = plan.simulate(seed=1, visits=data)
    >>> result["counts"].to_pandas()
      town  year  value   low  high
    0    B  2020   -1.0  -4.0   2.0
    1    B  2021   51.0  48.0  54.0
    2    A  2020   50.0  47.0  53.0
    3    A  2021    0.0  -3.0   3.0
    >>> result.to_polars().columns
    ['output', 'key', 'value', 'low', 'high', 'note', 'not for release']
    """

    def columns(self, level: float = 0.95, *, sampling: bool = False) -> dict[str, list[Any]]:
        """Return the table's columns by name, as lists of one length.

        Parameters
        ----------
        level, sampling
            Of the intervals: see `WithInterval.interval`.
        """
        raise NotImplementedError

    def to_pandas(self, level: float = 0.95, *, sampling: bool = False) -> Any:
        """Return a pandas data frame of the `columns`."""
        return _library("pandas").DataFrame(self.columns(level, sampling=sampling))

    def to_polars(self, level: float = 0.95, *, sampling: bool = False) -> Any:
        """Return a polars data frame of the `columns`."""
        columns = self.columns(level, sampling=sampling)
        return _library("polars").DataFrame(columns, strict=False)

    def to_arrow(self, level: float = 0.95, *, sampling: bool = False) -> Any:
        """Return a PyArrow table of the `columns`."""
        return _library("pyarrow").table(self.columns(level, sampling=sampling))

    def to_csv(self, path: Any, level: float = 0.95, *, sampling: bool = False) -> None:
        """Write the `columns` to a file, with their names in its first line.

        What begins as a formula of a spreadsheet does gets an apostrophe in front.
        """
        columns = self.columns(level, sampling=sampling)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(map(_cell, columns))
            writer.writerows(map(_cell, row) for row in zip(*columns.values(), strict=True))


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs."""
    return (
        f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
    )


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise DeclarationError(
            f"a table of {name} needs it: pip install {name}; to_csv(path) needs nothing"
        ) from None


Row = tuple[str, str | None, float | None, float | None, float | None, str]
"""An output's name, what the number is of, the number, its interval, and a note."""


def rows(prefix: str, values: Mapping[Any, Any], tree: Tree, entries: Any) -> Iterator[Row]:
    """Yield a row for each number of outputs, and one for each value that is none."""
    for name, value in values.items():
        inside = tree.get(name) if isinstance(tree, Mapping) else tree
        labels = entries.get(name) if isinstance(entries, Mapping) else None
        if isinstance(value, Mapping):
            if isinstance(labels, Entries):  # released keys, each with its number
                for key, each in value.items():
                    own = inside.get(key) if isinstance(inside, Mapping) else inside
                    yield f"{prefix}{name}", key, *_row(each, own)
            else:
                yield from rows(f"{prefix}{name}.", value, inside, labels)
            continue
        array = np.asarray(value) if isinstance(value, np.ndarray) else None
        if array is not None and array.dtype.kind in "iuf" and array.ndim:
            keys = labels if labels is not None and len(labels) == array.size else None
            for place, index in enumerate(np.ndindex(array.shape)):
                key = ", ".join(map(str, index)) if keys is None else keys[place]
                yield f"{prefix}{name}", key, *_row(array[index], _entry(inside, index))
        elif isinstance(value, list | tuple):
            yield from rows(f"{prefix}{name}.", dict(enumerate(value)), _by_index(inside), None)
        else:
            yield f"{prefix}{name}", None, *_row(value, inside)


def _by_index(tree: Tree) -> Tree:
    if isinstance(tree, ConfidenceInterval) and np.ndim(tree.low):
        return {i: _entry(tree, (i,)) for i in range(len(tree.low))}
    return dict(enumerate(tree)) if isinstance(tree, list) else tree


def _entry(tree: Tree, index: tuple[int, ...]) -> Tree:
    if isinstance(tree, ConfidenceInterval) and np.ndim(tree.low):
        return ConfidenceInterval(tree.low[index], tree.high[index])
    return tree


def _row(value: Any, tree: Tree) -> tuple[float | None, float | None, float | None, str]:
    """Return a number with its interval and no note, or what there is in place of these."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return None, None, None, str(plain(value))
    if isinstance(tree, ConfidenceInterval):
        return float(value), float(tree.low), float(tree.high), ""
    return float(value), None, None, "" if tree is None else f"no interval: {tree}"


# -----------------------------------------------------------------------------
# Numbers and arrays with intervals: what `Result` gives out.


class Place(NamedTuple):
    """Where a number stands in a result: its output's path, and the keys inside of its value."""

    intervals: Intervals | Stored
    path: tuple[str, ...]
    keys: tuple[Any, ...]

    def inside(self, key: Any) -> Place:
        """Return the place of what stands under a key."""
        return self._replace(keys=(*self.keys, key))

    def interval(self, level: float, sampling: bool) -> ConfidenceInterval:
        """Return the interval of the number, or raise why it has none."""
        tree = self.intervals.tree(self.path, check_level(level), bool(sampling))
        for key in self.keys:
            if isinstance(tree, NoIntervalError):
                break
            inside = isinstance(tree, ConfidenceInterval)
            tree = ConfidenceInterval(tree.low[key], tree.high[key]) if inside else tree[key]
        if isinstance(tree, NoIntervalError):
            raise NoIntervalError(
                f"{'.'.join([*self.path, *map(str, self.keys)])!r} has no interval: {tree}"
            )
        return ConfidenceInterval(_scalar(tree.low), _scalar(tree.high))


class WithInterval:
    """What numbers and arrays of a result have beside those of anyone's."""

    _place: Place | None = None

    def interval(self, level: float = 0.95, *, sampling: bool = False) -> ConfidenceInterval:
        """Return an interval that holds the value without noise, with a probability of ``level``.

        Of an array, each entry has its own. It is computed from what was released, and costs
        nothing.

        Parameters
        ----------
        level
            Above 0, at most 0.9999.
        sampling
            For the population of which the rows are a random sample, in place of the rows. Counts
            then vary as independent rows make them (Poisson, or binomial where the number of rows
            is public), and an average m in bounds by at most the variance ``(high - m) (m - low)``
            of a row (Bhatia and Davis 2000), which is more than that of most columns.

        Raises
        ------
        NoIntervalError
            If released values do not tell how far this one may be off, with the reason.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(n=people.count().release(dp.DiscreteLaplace(scale=2)))
        >>> result = plan.simulate(seed=1, people={"age": [30, 40, 50] * 100})
        >>> result["n"], result["n"].interval()
        (299.0, ConfidenceInterval(low=293.0, high=305.0))
        >>> low, high = result["n"].interval(sampling=True)
        >>> low < 270, high > 330
        (True, True)
        """
        if self._place is None:
            raise NoIntervalError(
                "it was computed from outputs of a result; declare it in the plan, by dp.post, to "
                "have its interval"
            )
        return self._place.interval(level, sampling)


class ReleasedFloat(WithInterval, float):
    """A float of a result."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the number alone."""
        return float, (float(self),)


class ReleasedInt(WithInterval, int):
    """An int of a result."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the number alone."""
        return int, (int(self),)


class ReleasedFloat64(np.float64, WithInterval):  # type: ignore[misc]
    """A NumPy float of a result.

    NumPy's class comes first: of scalars it converts, NumPy 2.4 takes the first base for one of its
    own without a look, and crashes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the number alone."""
        return np.float64, (float(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        return np.float64(float(self))


class ReleasedArray(WithInterval, Tabular, np.ndarray[Any, Any]):
    """An array of a result; what is computed from it are arrays like any other."""

    _entries: Entries | None = None

    def columns(self, level: float = 0.95, *, sampling: bool = False) -> dict[str, list[Any]]:
        """Return a row for each entry: its keys by their columns' names, value, low and high.

        Rows are in the declared order of the keys. Low and high are None where there is no
        interval.
        """
        array, size = np.asarray(self), self.size
        if self._entries is not None and len(self._entries) == size:
            names: Sequence[str] = self._entries.names
            candidates = list(self._entries.candidates)
            keys = [key if isinstance(key, tuple) else (key,) for key in candidates]
        else:
            names = ["entry"] if self.ndim == 1 else [f"index {i}" for i in range(self.ndim)]
            keys = list(np.ndindex(self.shape))
        columns: dict[str, list[Any]] = {}
        for i, name in enumerate(names):
            taken = name in ("value", "low", "high") or name in columns
            columns[f"{name} (key)" if taken else name] = [key[i] for key in keys]
        try:
            ends = [np.ravel(end).tolist() for end in self.interval(level, sampling=sampling)]
        except NoIntervalError:
            ends = [[None] * size, [None] * size]
        return columns | {"value": array.ravel().tolist(), "low": ends[0], "high": ends[1]}

    def __array_finalize__(self, other: Any) -> None:
        """Forget the place: a part, a copy or a view is another array."""
        self._place = self._entries = None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return what functions compute of it as a plain array."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the numbers alone."""
        return np.array, (np.asarray(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        return np.array(self)


_KINDS: Mapping[type, Any] = {float: ReleasedFloat, int: ReleasedInt, np.float64: ReleasedFloat64}


def placed(value: Any, place: Place) -> Any:
    """Return a value whose numbers and arrays know their intervals."""
    kind = type(value)
    if len(place.keys) >= MAX_SHOWN_DEPTH or (kind is int and abs(value) >= 2**63):
        return value
    if kind is dict:
        return {key: placed(inner, place.inside(key)) for key, inner in value.items()}
    if kind in (list, tuple):
        return kind(placed(inner, place.inside(i)) for i, inner in enumerate(value))
    result: Any
    if kind is np.ndarray and value.dtype.kind in "iuf":
        result = value.view(ReleasedArray)
    elif kind in _KINDS:
        result = _KINDS[kind](value)
    else:
        return value
    result._place = place
    return result


class ReleasedParts(Tabular, dict[str, Any]):
    """Outputs with parts: their values by name, which are a table too."""

    _columns: Callable[..., dict[str, list[Any]]]

    def columns(self, level: float = 0.95, *, sampling: bool = False) -> dict[str, list[Any]]:
        """Return a row for each number, with the columns of `adaptive_dp.Result.columns`."""
        return self._columns(level, sampling)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the values alone."""
        return dict, (dict(self),)


def placed_at(value: Any, intervals: Intervals | Stored, path: Path, entries: Any) -> Any:
    """Return an output's value, or those of nested outputs, with intervals and labels."""
    if path in intervals.paths:
        result = placed(value, Place(intervals, path, ()))
        if isinstance(result, ReleasedArray):
            result._entries = entries
        return result
    if type(value) is not dict:
        return value
    labels = entries if isinstance(entries, Mapping) else {}
    parts = ReleasedParts(
        {k: placed_at(v, intervals, (*path, k), labels.get(k)) for k, v in value.items()}
    )

    def columns(level: float, sampling: bool) -> dict[str, list[Any]]:
        tree = trees(value, intervals, path, check_level(level), bool(sampling))
        table = list(rows("", value, tree, entries))
        names = ("output", "key", "value", "low", "high", "note")
        return {name: [row[i] for row in table] for i, name in enumerate(names)}

    parts._columns = columns
    return parts


def trees(
    value: Any, intervals: Intervals | Stored, path: Path, level: float, sampling: bool
) -> Tree:
    """Return the intervals of an output, or those of nested outputs."""
    if path in intervals.paths or type(value) is not dict:
        return intervals.tree(path, level, sampling)
    return {
        key: trees(inner, intervals, (*path, key), level, sampling) for key, inner in value.items()
    }


def ends(tree: Tree) -> tuple[Any, Any]:
    """Return the lower and the upper ends of intervals, each in the form of the values.

    None stands for what has no interval.
    """
    if isinstance(tree, ConfidenceInterval):
        return tree.low, tree.high
    if isinstance(tree, Mapping):
        pairs = {key: ends(inner) for key, inner in tree.items()}
        return {k: low for k, (low, _) in pairs.items()}, {
            k: high for k, (_, high) in pairs.items()
        }
    if isinstance(tree, list):
        both = [ends(inner) for inner in tree]
        return [low for low, _ in both], [high for _, high in both]
    return None, None


def half_widths(trees_of_seeds: Sequence[Tree]) -> Any:
    """Return half of intervals' widths, the median of several simulations, as the values are."""
    first = trees_of_seeds[0]
    wrong = next((tree for tree in trees_of_seeds if isinstance(tree, NoIntervalError)), None)
    if wrong is not None:
        return wrong
    if isinstance(first, ConfidenceInterval):
        try:
            widths = [np.subtract(tree.high, tree.low) / 2 for tree in trees_of_seeds]
            return _scalar(np.median(widths, axis=0))
        except ValueError:
            return NoIntervalError("its shape depends on the noise")
    if isinstance(first, Mapping):
        if any(tree.keys() != first.keys() for tree in trees_of_seeds):
            return NoIntervalError("which keys are released depends on the noise")
        return {key: half_widths([tree[key] for tree in trees_of_seeds]) for key in first}
    return [half_widths([tree[i] for tree in trees_of_seeds]) for i in range(len(first))]


def widest(widths: Any) -> float:
    """Return the largest of half widths, whatever they are nested in.

    Raises
    ------
    NoIntervalError
        If one of them is none.
    """
    if isinstance(widths, NoIntervalError):
        raise widths
    if isinstance(widths, Mapping | list):
        inner = widths.values() if isinstance(widths, Mapping) else widths
        return max(map(widest, inner), default=0.0)
    return float(np.max(widths, initial=0.0))
