"""Rows as networks read them: arrays or columns of numbers, and a target; samples, data sets."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants import Subset, Term
from adaptive_dp.data import MemoryRows, Reading, SchemaError, TensorReading, read_rows, sampling
from adaptive_dp.data.memory import stored_column
from adaptive_dp.data.sampling import RandomSource
from adaptive_dp.data.scan import ComputedRows
from adaptive_dp.graph.errors import DeclarationError, NeighborError, RunError
from adaptive_dp.graph.handles import Private, SampleOperation
from adaptive_dp.graph.operation import Change, Operation
from adaptive_dp.graph.values import number, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Floats,
    Interval,
    Strings,
    Table,
    Tensors,
    clipped,
)
from adaptive_dp.queries.examples import standard
from adaptive_dp.queries.transforms import Sample, category_index

Integers = NDArray[np.int64]

# -----------------------------------------------------------------------------
# The rows themselves: what is read of them is read for the rows of a sample alone.


@frozen(eq=False, repr=False)
class Part:
    """A column or several as rows of numbers, of which some rows are read when they are needed.

    Parameters
    ----------
    array
        As it is stored, shape (n, ...).
    places
        Of each row of the data in it; None where they are the same.
    declared
        What the rows are brought inside of; None for numbers that are ready.
    """

    array: Any
    places: Integers | None
    declared: Tensors | None

    def rows(self, index: Integers) -> NDArray[Any]:
        """Return some of the rows, inside of their bounds."""
        found = self.array[index if self.places is None else self.places[index]]
        return np.asarray(found) if self.declared is None else self.declared.inside(found)


@frozen(eq=False, repr=False)
class NetworkRows:
    """Private rows of a network: inputs and targets, read when a batch is made.

    Parameters
    ----------
    inputs, target
        What inputs are made of, and targets.
    index
        The places of the rows, shape (m,).
    units
        The unit of each of them, 0 to ``count`` - 1, shape (m,); None where each row is one.
    count
        The number of units that have a row here.
    slots
        The place of each row's unit among all units of the table, shape (m,).
    total
        The number of these: also those that have no row with a declared target.
    """

    inputs: tuple[Part, ...]
    target: Part
    index: Integers
    units: Integers | None
    count: int
    slots: Integers
    total: int

    def __repr__(self) -> str:
        return "<private rows>"

    def sample(self, rate: float, source: RandomSource) -> NetworkRows:
        """Return the rows of a Poisson sample of the units."""
        chosen = sampling.poisson_sample(source, rate, self.count)
        return self._kept(chosen if self.units is None else chosen[self.units])

    def sample_of(self, size: int, source: RandomSource) -> NetworkRows:
        """Return the rows of a sample of ``size`` of all units, each set equally likely."""
        return self._kept(sampling.fixed_size_sample(source, size, self.total)[self.slots])

    def split(self, parts: int, stream: Stream) -> list[NetworkRows]:
        """Return disjoint parts of the units, each in one by a uniform draw of its own."""
        own = uniform(parts, self.count, stream)
        of_rows = own if self.units is None else own[self.units]
        return [self._kept(of_rows == k) for k in range(parts)]

    def _kept(self, keep: NDArray[np.bool_]) -> NetworkRows:
        index, slots = self.index[keep], self.slots[keep]
        if self.units is None:
            return evolve(self, index=index, count=len(index), slots=slots)
        names, codes = np.unique(self.units[keep], return_inverse=True)
        units = codes.reshape(-1)
        return evolve(self, index=index, units=units, count=len(names), slots=slots)

    def batch(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the rows' inputs and targets, of shape (m, ...) each."""
        parts = [part.rows(self.index) for part in self.inputs]
        if len(parts) > 1:
            flat = [part.reshape(len(part), -1).astype(np.float32) for part in parts]
            return np.concatenate(flat, axis=1), self.target.rows(self.index)
        return parts[0], self.target.rows(self.index)


def uniform(parts: int, count: int, stream: Stream) -> Integers:
    """Return independent integers below ``parts``, each exactly uniform, shape (count,)."""
    # words beyond the largest multiple of `parts` are drawn again: the rest are uniform
    limit = np.uint64(2**64 // parts * parts - 1)
    words = sampling.words(stream, count)
    while len(again := np.flatnonzero(words > limit)):
        words[again] = stream.words(len(again))
    return (words % np.uint64(parts)).astype(np.int64)


# -----------------------------------------------------------------------------
# The nodes of the graph.


@frozen
class NetworkRowsDomain:
    """The domain of a network's rows.

    Parameters
    ----------
    shape
        Of an input's array.
    table
        That the rows are of.
    """

    shape: tuple[int, ...]
    table: Table


_READ: WeakKeyDictionary[MemoryRows, tuple[Any, NetworkRows]] = WeakKeyDictionary()
"""Of rows in memory, while they are there, what they were last read as."""


@frozen
class NetworkRowsOf(Operation):
    """Inputs and a target of a table's rows, as a network reads them.

    A single column of tensors keeps its shape. Else inputs are a vector: numbers are mapped from
    their bounds onto [-1, 1] (bounds with 0 as an end keep it), a column of k categories becomes k
    numbers of 0 and 1, tensors are flattened. A target of categories is the category's position; a
    number is mapped onto [-1, 1], of shape (1,). Values outside of bounds are the bound next to
    them, missing ones the point next to 0, undeclared categories of an input zeros. Rows whose
    target is none of the declared categories are left out.

    Parameters
    ----------
    features
        Columns of tensors, or with bounds or categories.
    target
        A column with bounds or categories, or of tensors.
    columns
        The columns' declarations.
    by_unit
        Whether the table has a column of units, whose rows are then added up before clipping, also
        where each has one row: how a unit's share is computed may not depend on other units' rows.
    """

    kind: ClassVar[str] = "network_rows"
    column_fields: ClassVar[tuple[str, ...]] = ("features", "target")
    input_type: ClassVar[type] = Table

    features: tuple[str, ...] = field(converter=strings)
    target: str
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)
    by_unit: bool = False

    def label(self) -> str:
        """Return the target and the inputs."""
        return f"{self.target} by {', '.join(self.features)}"

    def domain(self, inputs: Sequence[Any]) -> NetworkRowsDomain:
        """Return the shape of an input."""
        table: Table = inputs[0]
        if not self.features or len({*self.features, self.target}) != len(self.features) + 1:
            raise DeclarationError(
                f"a network's inputs and its target must be different columns, got "
                f"{list(self.features)} and {self.target!r}"
            )
        declared = {name: table.find(name) for name in (*self.features, self.target)}
        for name, column in declared.items():
            if column is None or isinstance(column, Strings):
                table.interval(name)  # raises with the remedy
        if dict(self.columns) != declared:
            raise DeclarationError(
                f"the columns of a network must be declared as {table.name!r} declares them"
            )
        if self.by_unit != (table.unit is not None):
            raise DeclarationError(
                f"by_unit must say whether {table.name!r} has a column of units, got {self.by_unit}"
            )
        return NetworkRowsDomain(input_shape(self.features, self.columns), table)

    def change(self, change: Change) -> Change:
        """Return the change, of units where they are declared, else of rows.

        *Own proof.* With a column of units what follows is computed of each unit as one, however
        many rows it has; a unit without a declared target has none. Where one appears or vanishes
        that is one unit, where it is exchanged one on each side.
        """
        if not self.by_unit:  # rows without a declared target are left out
            return evolve(change, fixed=False)
        both = min(change.both, 2) if change.replaced else min(change.both, 1)
        return Change(change.replaced, min(change.rows, 1), False, both)

    def run(self, inputs: Sequence[Any], stream: Stream) -> NetworkRows:
        """Return the rows; tensors are not read before they are in a sample."""
        rows: Any = inputs[0]
        # each round of a loop in a session reads the very same rows again
        if not isinstance(rows, MemoryRows):
            return self._read(rows)
        operation, found = _READ.get(rows, (None, None))
        if found is None or operation != self:
            found = self._read(rows)
            _READ[rows] = self, found
        return found

    def _read(self, rows: Any) -> NetworkRows:
        target = self.columns[self.target]
        units = np.asarray(rows.units)
        index = np.arange(len(units), dtype=np.int64)
        goals: Part
        if isinstance(target, Tensors):
            goals = Part(*stored_column(_stored(rows, self.target), self.target), target)
        elif isinstance(target, Categories):
            values = target.values
            found = rows.values(
                lambda c: category_index(c[self.target], values).astype(np.float64)
            ).astype(np.int64)
            goals, index = Part(found, None, None), np.flatnonzero(found >= 0)
        else:
            assert isinstance(target, Interval)
            found = rows.values(lambda c: scaled(c[self.target], target))
            goals = Part(found.astype(np.float32)[:, None], None, None)
        parts = tuple(self._parts(rows))
        # by the declaration, never by whether each unit has one row here
        if not self.by_unit:
            return NetworkRows(parts, goals, index, None, len(index), index, len(units))
        every, places = np.unique(units, return_inverse=True)
        slots = places.reshape(-1)[index]
        names, codes = np.unique(slots, return_inverse=True)
        return NetworkRows(parts, goals, index, codes.reshape(-1), len(names), slots, len(every))

    def _parts(self, rows: Any) -> list[Part]:
        parts: list[Part] = []
        for name in self.features:
            declared = self.columns[name]
            if isinstance(declared, Tensors):
                parts.append(Part(*stored_column(_stored(rows, name), name), declared))
            elif isinstance(declared, Categories):
                values = declared.values
                found = rows.values(
                    lambda c, name=name, values=values: category_index(c[name], values).astype(
                        np.float64
                    )
                )
                hot = found[:, None] == np.arange(len(values))
                parts.append(Part(hot.astype(np.float32), None, None))
            else:
                assert isinstance(declared, Interval)
                found = rows.values(
                    lambda c, name=name, declared=declared: scaled(c[name], declared)
                )
                parts.append(Part(found.astype(np.float32)[:, None], None, None))
        ready = [part for part in parts if part.declared is None]
        if len(ready) == len(parts) > 1:
            # columns of single values are one array, from which a sample is taken at once
            return [Part(np.concatenate([part.array for part in ready], axis=1), None, None)]
        return parts


def _stored(rows: Any, name: str) -> Any:
    """Return the rows that hold a column as it was given."""
    while isinstance(rows, ComputedRows):
        if name in dict(rows.functions):
            raise SchemaError(f"column {name!r} is computed, and holds no tensors")
        rows = rows.base
    return rows


def scaled(values: NDArray[Any], bounds: Interval) -> Floats:
    """Return numbers inside of their bounds, mapped onto [-1, 1] (see `standard`)."""
    middle, half = standard(bounds)
    return (clipped(values, bounds) - middle) / (half if half > 0 else 1.0)


def input_shape(features: Sequence[str], columns: Mapping[str, Column]) -> tuple[int, ...]:
    """Return the shape of a row's input."""
    first = columns[features[0]]
    if len(features) == 1 and isinstance(first, Tensors):
        return first.shape
    width = 0
    for name in features:
        column = columns[name]
        if isinstance(column, Tensors):
            width += column.size
        else:
            width += len(column.values) if isinstance(column, Categories) else 1
    return (width,)


@frozen(eq=False, repr=False)
class NetworkTable(Private[Any]):
    """A handle of private rows, as a network reads them."""

    def sample(self, rate: float) -> NetworkTable:
        """Return a Poisson sample: each unit enters with probability ``rate``."""
        return NetworkTable(SampleNetworkRows(rate), (self,))

    def sample_of(self, size: int, of: int) -> NetworkTable:
        """Return a sample of ``size`` of the ``of`` units, each set of so many equally likely."""
        return NetworkTable(FixedSizeNetworkRows(size, of), (self,))


@frozen
class SampleNetworkRows(Sample):
    """A Poisson sample of the units of a network's rows."""

    kind: ClassVar[str] = "sample_network_rows"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = NetworkRowsDomain

    def domain(self, inputs: Sequence[Any]) -> NetworkRowsDomain:
        """Return the rows, their number no longer public."""
        rows: NetworkRowsDomain = inputs[0]
        return evolve(rows, table=rows.table.uncounted())

    def run(self, inputs: Sequence[Any], stream: Stream) -> NetworkRows:  # type: ignore[override]
        """Return a new sample, independent of all others."""
        rows: NetworkRows = inputs[0]
        return rows.sample(self.rate, stream)


@frozen
class FixedSizeNetworkRows(SampleOperation):
    """A sample of ``size`` of the ``of`` units of a network's rows, drawn without replacement.

    For neighbours that exchange a unit (replace-one) among a public number n of them. Every set of
    B of the n units is equally likely, whatever the data are: one without a row that a network
    reads (no declared target) keeps its place, and adds nothing.

    *Privacy.* Let u be the unit that is exchanged, and M what is released from a sample: any
    mechanism that a pair (P, Q) dominates, in either order, on two sets of B units that differ in
    one of them. Here M releases the sum of clipped gradients, which an exchange moves by up to 2 C,
    and with a threshold that adapts how many of them are short, which it moves by up to 1. Given
    the other data, the laws of a round are ``q A + (1 - q) R`` and ``q A' + (1 - q) R``, with
    ``q = B / n``: A and A' of samples that hold u, R of one that does not. A uniform sample without
    u is one with u in which another unit of the data, uniformly chosen among those that are not in
    it, takes the place of u. So A, A' and R are mixtures, by that same choice, of laws which differ
    by one exchange each. By advanced joint convexity, for ``e^eps' = 1 + q (e^eps - 1)``, the
    divergence of order ``e^eps'`` is at most q times that of (P, Q) of order ``e^eps``, in both
    directions (Balle, Barthe and Gaboardi 2018, Thms 2 and 9): the term is `accountants.Subset`.
    Rounds compose, each with a new sample.

    Where units appear or vanish n is private, and so would be the sample's law; where one is zeroed
    out a Poisson sample costs less.

    Parameters
    ----------
    size
        B, from 1 to ``of``.
    of
        n, as the data set declares it.
    """

    kind: ClassVar[str] = "fixed_size_network_rows"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = NetworkRowsDomain

    size: int = field(converter=number)
    of: int = field(converter=number)

    def __attrs_post_init__(self) -> None:
        are_ints = all(
            isinstance(each, int) and not isinstance(each, bool) for each in (self.size, self.of)
        )
        if not (are_ints and 1 <= self.size <= self.of):
            raise DeclarationError(
                f"a sample of a fixed size has 1 to all of the units, got {self.size!r} of "
                f"{self.of!r}"
            )

    @property
    def rate(self) -> float:
        """The probability with which a unit is in the sample."""
        return self.size / self.of

    def label(self) -> str:
        """Return the sizes."""
        return f"sample of {self.size:,} of {self.of:,}"

    def term(self, body: Term, *, exchanged: bool) -> Term:
        """Return the body's term, amplified; see the class docstring."""
        return Subset(body, self.size, self.of)

    def domain(self, inputs: Sequence[Any]) -> NetworkRowsDomain:
        """Return the rows, their number no longer public; refuse another number of units."""
        rows: NetworkRowsDomain = inputs[0]
        units = exchanged_units(rows.table)
        if units != self.of:
            raise DeclarationError(
                f"a sample of a fixed size is of all units of {rows.table.name!r}: {units:,} are "
                f"declared, got {self.of:,}"
            )
        return evolve(rows, table=rows.table.uncounted())

    def change(self, change: Change) -> Change:
        """Return the change of a unit in the sample, without `fixed`: units may be left out."""
        if not change.replaced:  # as in a part, which has no public number of units
            raise DeclarationError("a sample of a fixed size is of units that are exchanged")
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> NetworkRows:
        """Return a new sample, independent of all others."""
        rows: NetworkRows = inputs[0]
        if rows.total != self.of:  # which is public, and checked when data are bound
            raise RunError(f"{self.of:,} units are declared, and the data have another number")
        return rows.sample_of(self.size, stream)


def exchanged_units(table: Table) -> int:
    """Return the public number of units of a table, one of which neighbours exchange.

    Raises
    ------
    NeighborError
        If units appear or vanish, or their number is not public.
    """
    if table.neighbors != "replace_one":
        raise NeighborError(
            "samples of a fixed size are for units that are exchanged among a public number, and "
            f"{table.name!r} has {table.neighbors} neighbours; leave out sampling='fixed_size', "
            "for Poisson samples, or declare neighbors='replace_one' and size=..."
        )
    found = table.public_units
    if found is None:
        raise NeighborError(
            f"samples of a fixed size need a public number of units, and that of {table.name!r} is "
            "none: declare size=..., and filter no rows before; or leave out "
            "sampling='fixed_size', for Poisson samples"
        )
    return found


def new_inputs(features: Sequence[str], columns: Mapping[str, Column], data: Any) -> NDArray[Any]:
    """Return the inputs of rows that need not be private, made as those of training are.

    Parameters
    ----------
    features, columns
        The columns, and their declarations.
    data
        A mapping of columns, or a frame; of a single column of tensors also the array itself.
    """
    given = cast(Any, data)
    is_array = hasattr(given, "__array__") and getattr(given, "dtype", None) is not None
    if is_array and len(features) == 1 and isinstance(columns[features[0]], Tensors):
        given = {features[0]: given}
    names = {name: columns[name] for name in features}
    rows = read_rows(given, {name: _reading(each) for name, each in names.items()}, None)
    operation = NetworkRowsOf(features, "", names)
    index = np.arange(rows.length)
    found = NetworkRows(
        tuple(operation._parts(rows)),
        Part(np.zeros(rows.length), None, None),
        index,
        None,
        rows.length,
        index,
        rows.length,
    )
    return found.batch()[0]


def _reading(declared: Column) -> Reading:
    from adaptive_dp.queries.source import reading

    return reading(declared)


# -----------------------------------------------------------------------------
# Data sets with an index, as PyTorch's loaders read them.


LARGE = 2**30
"""Bytes of a column of tensors from which on it is kept in a temporary file."""


@frozen(repr=False)
class MapStyle:
    """A data set with ``len`` and ``[i]``, each item a tuple of columns: a source of rows.

    It is read once, item by item, when a plan is bound to it; what an item's code draws at random
    is drawn once. An item whose array has another shape than declared is missing.

    Parameters
    ----------
    dataset
        Has ``__len__`` and ``__getitem__``.
    names
        Of the columns, in the order of an item's values.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> pairs = [(np.zeros((2, 2)), 1), (np.ones((2, 2)), 0)]
    >>> images = dp.dataset("images", columns={"image": dp.tensor((2, 2), (0, 1)), "y": [0, 1]})
    >>> plan = dp.Pipeline(n=images.count().release(dp.Laplace(scale=1e-9)))
    >>> round(plan.simulate(seed=1, images=dp.torch.MapStyle(pairs, ["image", "y"]))["n"])
    2
    """

    dataset: Any
    names: tuple[str, ...] = field(converter=strings)

    def __attrs_post_init__(self) -> None:
        if not (hasattr(self.dataset, "__len__") and hasattr(self.dataset, "__getitem__")):
            raise DeclarationError(
                f"MapStyle needs a data set with len and [i], got {type(self.dataset).__name__}"
            )

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows of the named columns."""
        wanted = [*columns, *([] if unit is None or unit in columns else [unit])]
        missing = [name for name in wanted if name not in self.names]
        if missing:
            raise SchemaError(f"the data set's items have {self.names}, and no {missing[0]!r}")
        length = len(self.dataset)
        arrays: dict[str, Any] = {}
        for name in wanted:
            reading = columns.get(name)
            if isinstance(reading, TensorReading):
                arrays[name] = _room((length, *reading.shape))
            else:
                arrays[name] = []
        places = {name: self.names.index(name) for name in wanted}
        for i in range(length):
            item = self.dataset[i]
            for name, place in places.items():
                column = arrays[name]
                if isinstance(column, list):
                    column.append(_plain(item[place]))
                else:
                    column[i] = _row(item[place], column.shape[1:])
        return read_rows(arrays, columns, unit)


def _room(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array to fill, in a temporary file where it is large."""
    if int(np.prod(shape)) * 4 < LARGE:
        return np.empty(shape, dtype=np.float32)
    with tempfile.TemporaryFile() as file:  # without a name: it goes with the map
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


def _row(cell: Any, shape: tuple[int, ...]) -> Any:
    try:
        array = np.asarray(cell, dtype=np.float32)
    except Exception:  # whatever an item's own methods raise
        return np.nan
    return array if array.shape == shape else np.nan


def _plain(cell: Any) -> Any:
    """Return a tensor or array of one number as that number; anything else as it is."""
    if hasattr(cell, "item") and getattr(cell, "ndim", 0) == 0:
        return cell.item()
    return cell
