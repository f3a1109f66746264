"""The certificate: what a plan promises, by which theorem, under which assumptions."""

from __future__ import annotations

import difflib
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from html import escape
from itertools import accumulate, islice
from textwrap import fill
from typing import Any, Literal, TypeGuard, overload

import attrs
import numpy as np
from attrs import field, frozen

from accountants import Bounds
from accountants.document import Codec, loads
from accountants.numerics import COSTS, RoundedUp, bound, ceiling, shown
from adaptive_dp.graph.errors import DeclarationError, DocumentError
from adaptive_dp.graph.handles import PartOperation, part_key
from adaptive_dp.graph.nodes import Node, Structure, collection_paused
from adaptive_dp.graph.outputs import ConfidenceInterval
from adaptive_dp.graph.values import (
    LIMITS,
    Limits,
    check_values,
    copied,
    cut,
    json_text,
    plain,
    visible,
)

# -----------------------------------------------------------------------------
# Text tables: of any rows, of plans and of results, which are HTML in a notebook.


Row = Sequence[str]
LIMIT = 40
"""Tables of more rows than this show the first ones and say how many more there are."""
ROOM = 120
"""Characters of a line; the longest cells of a wider table are cut."""
LEAST = 30
"""The last column is cut to no less than this before others are cut."""
RESULT = ("output", "value", "95% interval")
LISTED = 12
"""Entries of a value that get a row each; of more, the first few stand in one row."""
FIRST, LAST = 5, 2
"""Of more entries that have labels, the first and the last get a row each."""


def table(
    header: Row, rows: Sequence[Row], *, most: int | None = LIMIT, rest: str = "", of: int = 0
) -> str:
    """Return rows under a header, columns aligned by spaces: the first ``most``, or all of them.

    ``rest`` says, in brackets, how to see those that are left out; ``of`` how many there are in
    all, where fewer are given.
    """
    limit, of = len(rows) if most is None else most, max(of, len(rows))
    cells = [[visible(cell) for cell in row] for row in rows[:limit]]
    # cells of the shown rows only: one long cell further down must not widen the table
    columns = list(zip(header, *cells, strict=True))
    widths = _fitted([max(map(len, column)) for column in columns])
    lines = [_line(header, widths), _line(["-" * w for w in widths], widths)]
    lines += [_line(row, widths) for row in cells]
    if of > limit:
        lines.append(f"... and {of - limit} more{f' ({rest})' if rest else ''}")
    return "\n".join(lines)


def _fitted(widths: Sequence[int]) -> list[int]:
    """Return widths that fit in a line: the last column is cut first, then the widest."""
    # two spaces between columns
    room = ROOM - 2 * (len(widths) - 1)
    *others, last = widths
    # the last column holds prose: it gives way first, though not below LEAST
    fitted = [*others, max(min(last, LEAST), room - sum(others))] if sum(widths) > room else widths
    most = max(fitted)
    # then all columns share a common maximum, lowered until the line fits
    while most > 8 and sum(min(width, most) for width in fitted) > room:
        most -= 1
    return [min(width, most) for width in fitted]


def _line(row: Row, widths: Sequence[int]) -> str:
    (name, *rest), (first, *others) = row, widths
    cells = [cut(cell, width).ljust(width) for cell, width in zip(rest, others, strict=True)]
    return "  ".join([cut(name, first, end=True).ljust(first), *cells]).rstrip()


def plan_text(structure: Structure) -> str:
    """Return the plan: each node with its visibility, what it is and what it reads."""
    rows = [(n.name, n.handle.visibility, _what(n), ", ".join(n.inputs)) for n in structure]
    return table(("node", "visibility", "what", "reads"), rows)


def _what(node: Node) -> str:
    operation = node.handle.operation
    detail = operation.detail()
    if isinstance(operation, PartOperation):
        return f"part {part_key(node.handle)}"
    if operation.kind == "release":
        return detail
    label, kind = operation.label(), operation.kind
    known = label.startswith((kind, kind.replace("_", " ")))
    said = label if known else f"{kind}: {label}"
    return f"{said}{', ' + detail if detail else ''}"


def result_text(
    values: Mapping[str, Any],
    intervals: Mapping[str, Any],
    entries: Mapping[str, Any],
    *,
    most: int | None = LIMIT,
    rest: str = "",
) -> str:
    """Return released values with their intervals, the first ``most``, or all of them."""
    rows = list(_values("", plain(values), intervals, entries))
    return table(RESULT, rows, most=most, rest=rest)


def result_html(
    values: Mapping[str, Any],
    intervals: Mapping[str, Any],
    entries: Mapping[str, Any],
    lines: Sequence[str],
) -> str:
    """Return lines, then released values with their intervals, for a notebook."""
    rows = list(_values("", plain(values), intervals, entries))
    said = "".join(f"<div>{escape(visible(line))}</div>" for line in lines)
    return said + table_html(RESULT, rows)


def table_html(header: Row, rows: Sequence[Row]) -> str:
    """Return rows under a header as HTML, the first ones of many."""
    head, body = _cells("th", header), "".join(_cells("td", row) for row in rows[:LIMIT])
    more = f"<div>... and {len(rows) - LIMIT} more</div>" if len(rows) > LIMIT else ""
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{more}"


def _cells(tag: str, row: Row) -> str:
    cells = [escape(cut(visible(cell), ROOM // 2)) for cell in row]
    marked = "".join(f'<{tag} style="text-align:left">{cell}</{tag}>' for cell in cells)
    return f"<tr>{marked}</tr>"


def _values(
    prefix: str, values: Mapping[str, Any], intervals: Any, entries: Any
) -> Iterator[tuple[str, str, str]]:
    for name, value in values.items():
        # an error says of all that is inside why it has no interval
        interval = _inside(intervals, name)
        inside = entries.get(name) if isinstance(entries, Mapping) else None
        if isinstance(value, Mapping) and value and isinstance(inside, Sequence):
            # released keys with their numbers: entries of one output, not outputs of their own
            if isinstance(interval, Mapping):
                interval = [_inside(interval, key) for key in value]
            inside, value = list(value), list(value.values())
        if isinstance(value, Mapping) and value:
            # nested outputs are named by their path, with dots
            yield from _values(f"{prefix}{name}.", value, interval, inside)
        elif inside is not None and (flat := flat_matrix(value)) and _fits(inside, flat):
            # a matrix whose entries have labels: row by row
            ends = ConfidenceInterval(*map(np.ravel, interval)) if _has_ends(interval) else interval
            yield from _values(prefix, {name: flat}, {name: ends}, {name: inside})
        elif _flat(value) and (len(value) <= LISTED or _fits(inside, value)):
            # the query's candidates label the entries only if there is one for each
            counted: Any = inside if _fits(inside, value) else range(len(value))
            for i in _shown(len(value)):
                if i is None:
                    more = f"{len(value) - FIRST - LAST:,} more of {len(value):,} entries"
                    yield f"{prefix}{name}[...]", more, ""
                    continue
                shown = interval_text(entry_interval(interval, i))
                yield f"{prefix}{name}[{counted[i]}]", short(value[i]), shown
        else:
            yield f"{prefix}{name}", short(value), interval_text(interval)


def _inside(intervals: Any, name: str) -> Any:
    """Return what stands under a key, which is a str here and may be another in a value."""
    if not isinstance(intervals, Mapping):
        return intervals
    if name in intervals:
        return intervals[name]
    return next((inner for key, inner in intervals.items() if str(plain(key)) == name), None)


def entry_interval(intervals: Any, index: int) -> Any:
    """Return the interval of one entry of a vector or list."""
    if isinstance(intervals, ConfidenceInterval) and np.ndim(intervals.low) == 1:
        return ConfidenceInterval(float(intervals.low[index]), float(intervals.high[index]))
    return intervals[index] if type(intervals) is list else intervals


def interval_text(interval: Any) -> str:
    """Return an interval's ends, with two digits of half its width, or why there is none.

    Of several entries, half of their intervals' mean width.
    """
    if isinstance(interval, ConfidenceInterval) and not np.size(interval.low):
        return ""
    if not isinstance(interval, ConfidenceInterval):
        return "" if interval is None else f"none: {interval}"
    width = float(np.mean(np.subtract(interval.high, interval.low))) / 2
    if np.ndim(interval.low):
        return f"+- {width:.3g} on average"
    ends = [float(end) for end in interval]
    if all(end.is_integer() and abs(end) < 1e15 for end in ends):
        return f"{ends[0]:.0f} to {ends[1]:.0f}"
    # so many decimals that half of the width has two digits
    decimals = 1 - math.floor(math.log10(width)) if 0 < width < math.inf else 99
    if decimals > 9 or not all(abs(end) < 1e15 for end in ends):
        return f"{ends[0]:.6g} to {ends[1]:.6g}"
    return " to ".join(f"{end:.{max(0, decimals)}f}" for end in ends)


def _fits(labels: Any, value: Any) -> bool:
    """Whether there is a label for each entry of a value."""
    return labels is not None and len(labels) == len(value)


def _shown(count: int) -> Iterator[int | None]:
    """Yield the positions that get a row each, and None for those in between that do not."""
    if count <= LISTED:
        yield from range(count)
        return
    yield from range(FIRST)
    yield None
    yield from range(count - LAST, count)


def _flat(value: Any) -> TypeGuard[list[Any]]:
    """Whether a value is a non-empty list of numbers and str."""
    return (
        isinstance(value, list)
        and bool(value)
        and not any(isinstance(item, list | Mapping) for item in value)
    )


def flat_matrix(value: Any) -> list[Any]:
    """Return the entries of a matrix of numbers, row by row; none of anything else."""
    if not isinstance(value, list) or not all(map(_flat, value)):
        return []
    return [entry for row in value for entry in row]


def _has_ends(interval: Any) -> bool:
    return isinstance(interval, ConfidenceInterval) and bool(np.ndim(interval.low))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def short(value: Any) -> str:
    """Return a plain value on one line."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.6g}" if abs(value) < 1e300 else str(value)
    if isinstance(value, list) and value:
        first = [short(item) for item in islice(_leaves(value), 4)]
        if _flat(value) and len(value) < 4:
            return f"[{', '.join(first)}]"
        return f"{_shape(value)}: [{', '.join(first[:3])}{', ...' if len(first) > 3 else ''}]"
    return cut(str(value), ROOM)


def _shape(value: list[Any]) -> str:
    """Return the shape of a matrix, or the number of entries."""
    # -1 stands for rows that are no lists, and no width
    inner = {len(row) if isinstance(row, list) else -1 for row in value}
    width = inner.pop() if len(inner) == 1 else -1
    return f"{len(value)} x {width}" if width >= 0 else f"{len(value)} entries"


# -----------------------------------------------------------------------------
# The certificate: what a plan promises, by which theorem, under which assumptions.
#
# A `Certificate` is made of plain attrs values, one class for each section of its document. Each is
# made in one place (`adaptive_dp.graph.certify` and, of sessions,
# `adaptive_dp.session.certificate`),
# read from JSON by `Certificate.from_json`, and compared with a recomputation field by field by
# `adaptive_dp.verify`. How a field is compared stands beside it: see `UPPER`, `LOWER` and `STATED`.


FORMAT = "adaptive-dp/certificate/2"
PLAN = "adaptive-dp/plan/"

Kind = Literal["accountant", "library", "loss", "mechanism", "query"]
"""What code from elsewhere can be, on which a claim rests."""

UPPER = {"compare": "upper"}
"""An upper bound: a certificate may claim more than is recomputed, never less."""
LOWER = {"compare": "lower"}
"""A lower bound: a certificate may claim less than is recomputed, never more."""
STATED = {"compare": "stated"}
"""Stated by whoever wrote the certificate: nothing in it allows to recompute it."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(value: Any) -> Any:
    if isinstance(value, RoundedUp):  # it knows the rational that it bounds
        return bound(value.exact)
    return float(value) if _is_number(value) else value  # anything else is for the validator


def _as_floats(values: Any) -> Any:
    return tuple(map(_as_float, values))


def _not_negative(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    # "not >=" refuses NaN as well
    if value is not None and not (_is_number(value) and value >= 0):
        raise DeclarationError(f"{attribute.name} must be a number of at least 0, got {value!r}")


def _none_negative(_: object, attribute: attrs.Attribute[Any], values: Any) -> None:
    for value in values:
        _not_negative(_, attribute, value)


def _probability(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not (_is_number(value) and 0 <= value < 1):
        raise DeclarationError(f"{attribute.name} must be in [0, 1), got {value!r}")


def _is_str(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, str):
        remedy = "; of a date write date.isoformat()" if attribute.name == "date" else ""
        raise DeclarationError(f"{attribute.name} must be a str, got {value!r}{remedy}")


@frozen
class Claim:
    """The guarantee: (epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon
        In nats; infinite where no accountant bounds it at this delta.
    delta
        In [0, 1).
    accountant
        The accountant whose theorem gives epsilon; of a session, that of its filter.
    """

    epsilon: float = field(converter=_as_float, validator=_not_negative, metadata=UPPER)
    delta: float = field(converter=_as_float, validator=_probability)
    accountant: str


@frozen
class Protected:
    """Whom the guarantee protects in one data set.

    Parameters
    ----------
    data
        The name of the data set.
    neighbors
        The neighbour relation.
    unit
        The column that identifies a unit; None where each row is a unit.
    rows_per_unit
        The most rows that a unit has after its contributions are bounded.
    size
        The number of units where it is public, else None.
    """

    data: str
    neighbors: Literal["add_remove", "replace_one", "zero_out"]
    unit: str | None
    rows_per_unit: int
    size: int | None

    def __str__(self) -> str:
        """Return whom the data set protects, in words.

        Examples
        --------
        >>> print(Protected("people", "add_remove", "id", 2, None))
        one id with at most 2 rows of 'people', added or removed
        """
        who = f"one {self.unit}" if self.unit else "one row"
        most = self.rows_per_unit
        rows = f" with at most {most} row{'' if most == 1 else 's'}" if self.unit else ""
        relation = {
            "add_remove": "added or removed",
            "replace_one": "replaced",
            "zero_out": "zeroed",
        }[self.neighbors]
        return f"{who}{rows} of {self.data!r}, {relation}"


@frozen
class LossRow:
    """The privacy loss of one release, for people to read.

    Parameters
    ----------
    kind
        The name of the loss's class, such as ``Laplace``.
    parameters
        Its parameters by name; of losses made of losses, these in words.
    """

    kind: str
    parameters: Mapping[str, Any] = field(hash=False)


@frozen
class ReleaseRow:
    """One release of the plan: what it is, and what it costs.

    Parameters
    ----------
    node
        Its name in the plan.
    query, of
        What is released, and the steps from the data set to it.
    mechanism, parameters
        The mechanism's name, and its parameters as in a plan document.
    norm
        The norm in which ``distance`` is measured: 1, 2, infinite, or 0 where changed rows count.
    distance
        How far one unit moves the query's value: the global sensitivity. In a Poisson sample of
        units that are exchanged, how far one does that is in it or is not: the amplification
        theorem counts both.
    loss
        The privacy loss at that distance.
    theorem, source
        The theorems of the mechanism and of its loss.
    sampler
        How the noise is drawn.
    conversions
        By the name of each accountant that applies, by which theorem it reads the loss.
    times
        How often the release is paid for: the rounds of the loops around it.
    region
        The partitions' parts, samples and loops around it, outermost first.
    share
        Its share of the budget of the worst world, in the accounting unit of the tightest
        accountant.
    in_worst_world
        Whether a worst world lies where this release does: the one that is named, or one whose
        bound is as large. The shares of the releases in one world add up to 1.
    """

    node: str
    query: str
    of: str
    mechanism: str
    parameters: Mapping[str, Any] = field(hash=False)
    norm: float = field(converter=_as_float, validator=_not_negative)
    distance: float = field(converter=_as_float, validator=_not_negative)
    loss: LossRow
    theorem: str
    source: str
    sampler: str
    conversions: Mapping[str, str] = field(hash=False)
    times: int
    region: tuple[str, ...]
    share: float = field(converter=_as_float, validator=_not_negative)
    in_worst_world: bool


Place = tuple[str, tuple[str, ...]]
"""A release's name, and the regions around it."""

SHARED = 16
"""So many equal rows that follow each other are written once, with the places of their releases."""


class ReleaseRows(Sequence[ReleaseRow]):
    """The rows of a plan's releases, in the plan's order, made when they are first looked at.

    Rows that follow each other and are equal but for their release's place are kept once: a plan
    may have a million releases of few kinds.

    Parameters
    ----------
    rows
        In order: each a row, or a row with the places of the releases that it is of.
    """

    def __init__(self, rows: Iterable[ReleaseRow | tuple[ReleaseRow, Iterable[Place]]]) -> None:
        pairs = (
            (each, [(each.node, each.region)]) if isinstance(each, ReleaseRow) else each
            for each in rows
        )
        self._make: Callable[[], Iterable[tuple[ReleaseRow, Iterable[Place]]]] = lambda: pairs

    @classmethod
    def later(cls, make: Callable[[], Iterable[tuple[ReleaseRow, Iterable[Place]]]]) -> ReleaseRows:
        """Return the rows that a function returns, which is called once, when they are needed."""
        rows = cls(())
        rows._make = make
        return rows

    @cached_property
    def runs(self) -> tuple[tuple[ReleaseRow, tuple[Place, ...]], ...]:
        """Rows that differ from the one before, each with the places of the releases it is of."""
        runs: list[tuple[ReleaseRow, list[Place]]] = []
        for row, places in self._make():
            if not (runs and _equal_but_place(runs[-1][0], row)):
                runs.append((row, []))
            runs[-1][1].extend(places)
        del self._make
        return tuple([(_placed(row, places[0]), tuple(places)) for row, places in runs if places])

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(places) for _, places in self.runs))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[ReleaseRow]:
        return (_placed(row, place) for row, places in self.runs for place in places)

    @overload
    def __getitem__(self, index: int) -> ReleaseRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ReleaseRow, ...]: ...
    def __getitem__(self, index: int | slice) -> ReleaseRow | tuple[ReleaseRow, ...]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return tuple([self[each] for each in positions])
        run = bisect_right(self._ends, positions)
        row, places = self.runs[run]
        return _placed(row, places[positions - self._ends[run]])

    def __eq__(self, other: object) -> bool:
        return self.runs == other.runs if isinstance(other, ReleaseRows) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.runs)

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> Any:
        return ReleaseRows, (self.runs,)  # made now, as a plan has handles and cannot be pickled

    def to_document(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values: of many equal ones one, with a list of their places."""
        written = []
        for row, places in self.runs:
            if len(places) < SHARED:
                written += [CODEC.fields(_placed(row, place), "a release") for place in places]
                continue
            shared = CODEC.fields(row, "a release")
            # in most runs all releases are in the same regions
            around = {region for _, region in places}
            several = {"each": [list(region) for _, region in places]} if len(around) > 1 else {}
            names = [name for name, _ in places]
            written.append(shared | {"node": {"each": names}, "region": several or [*row.region]})
        return written

    @classmethod
    def from_document(cls, value: Any, place: str) -> ReleaseRows:
        """Return the rows of a JSON value, nothing about which is trusted."""
        if not isinstance(value, list):
            raise DocumentError(f"{place} must be list, got {type(value).__name__}")
        return cls([_read_row(each, f"{place}[{i}]") for i, each in enumerate(value)])


def _as_rows(rows: Any) -> Any:
    # one row after the other, as `attrs.evolve` may give them; what is none of this, readers refuse
    several = isinstance(rows, tuple | list) and all(isinstance(r, ReleaseRow) for r in rows)
    return ReleaseRows(rows) if several else rows


def _placed(row: ReleaseRow, place: Place) -> ReleaseRow:
    """Return the row of another release, equal but for its place."""
    if (row.node, row.region) == place:
        return row
    # as `attrs.evolve`, which would check again what was checked
    other = ReleaseRow.__new__(ReleaseRow)
    for name in _SHARED_FIELDS:
        object.__setattr__(other, name, getattr(row, name))
    object.__setattr__(other, "node", place[0])
    object.__setattr__(other, "region", place[1])
    return other


_SHARED_FIELDS = [f.name for f in attrs.fields(ReleaseRow) if f.name not in ("node", "region")]


def _equal_but_place(one: ReleaseRow, other: ReleaseRow) -> bool:
    return one is other or all(getattr(one, n) == getattr(other, n) for n in _SHARED_FIELDS)


def _read_row(value: Any, place: str) -> tuple[ReleaseRow, list[Place]]:
    """Return a row of a document, and the places of the releases that it is of."""
    names, around = (_each(value, field) for field in ("node", "region"))
    if names is None:
        row: ReleaseRow = CODEC.read(ReleaseRow, value, place)
        return row, [(row.node, row.region)]
    if not (names and {str}.issuperset(map(type, names))):
        raise DocumentError(f"{place}.node.each must be a list of at least one str")
    inside = {**value, "node": names[0]}
    if around is not None:
        kinds = {list}.issuperset(map(type, around)) and all(
            {str}.issuperset(map(type, region)) for region in around
        )
        if not kinds or len(around) != len(names):
            raise DocumentError(
                f"{place}.region.each must be a list of str for each of the {len(names)} releases"
            )
        inside["region"] = around[0]
    row = CODEC.read(ReleaseRow, inside, place)
    regions = [row.region] * len(names) if around is None else list(map(tuple, around))
    return row, list(zip(names, regions, strict=True))


def _each(value: Any, name: str) -> list[Any] | None:
    """Return what stands for each of several equal releases; None where it is said of all."""
    inside = value.get(name) if isinstance(value, Mapping) else None
    if not (isinstance(inside, Mapping) and set(inside) == {"each"}):
        return None
    return inside["each"] if isinstance(inside["each"], list) else None


@frozen
class AccountantRow:
    """What one accountant finds.

    Parameters
    ----------
    name, theorem
        The accountant's name, and the theorem by which its bound holds.
    applies
        Whether it bounds epsilon for these losses.
    reason
        Why it does not apply; empty where it does.
    lower, upper
        Its bracket of epsilon at the claim's delta, in nats; None where it does not apply.
    world
        The world that attains the upper bound: a label for each partition.
    """

    name: str
    theorem: str
    applies: bool
    reason: str
    lower: float | None = field(converter=_as_float, validator=_not_negative, metadata=LOWER)
    upper: float | None = field(converter=_as_float, validator=_not_negative, metadata=UPPER)
    world: tuple[str, ...]


class AccountantRows(Sequence[AccountantRow]):
    """The rows of accountants, in the order in which they were asked.

    Parameters
    ----------
    rows
        The rows, or what returns them: it is called once, when they are first looked at.
    """

    def __init__(
        self, rows: Iterable[AccountantRow] | Callable[[], Iterable[AccountantRow]]
    ) -> None:
        self._make: Callable[[], Iterable[AccountantRow]] = rows if callable(rows) else lambda: rows

    @cached_property
    def _rows(self) -> tuple[AccountantRow, ...]:
        rows = tuple(self._make())
        del self._make
        return rows

    @overload
    def __getitem__(self, index: int) -> AccountantRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AccountantRow, ...]: ...
    def __getitem__(self, index: int | slice) -> AccountantRow | tuple[AccountantRow, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, AccountantRows) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        return repr(self._rows)

    def __reduce__(self) -> Any:
        return AccountantRows, (self._rows,)  # made now, as accountants' states are large

    @classmethod
    def from_document(cls, value: Any, place: str) -> AccountantRows:
        """Return the rows of a JSON value, nothing about which is trusted."""
        return cls(CODEC.read(tuple[AccountantRow, ...], value, place))


def _as_accountants(rows: Any) -> Any:
    return AccountantRows(rows) if isinstance(rows, tuple | list) else rows


@frozen
class WorldsRow:
    """The worlds (branches of parallel composition) over which epsilon is the maximum.

    Parameters
    ----------
    count
        How many were compared.
    exact
        Whether each was compared by itself; False where some are bounded by their envelope.
    worst
        The world in which a unit loses the most: a label for each partition.
    """

    count: int
    exact: bool
    worst: tuple[str, ...]


@frozen
class Randomness:
    """Where the noise comes from.

    Parameters
    ----------
    source
        ``the operating system``, or ``seed n`` for a simulation.
    release
        Whether the values may be released: False for a simulation.
    samplers
        How the mechanisms of the plan draw their noise.
    """

    source: str
    release: bool
    samplers: tuple[str, ...]


@frozen
class ThirdParty:
    """Code on which the claim rests and that is not the library's.

    Parameters
    ----------
    kind
        What it is: a library is what a mechanism computes its loss by.
    code
        The class, as ``module:name``.
    distribution, version
        The installed distribution that it comes from; None where it comes from none.
    """

    kind: Kind
    code: str
    distribution: str | None
    version: str | None = field(metadata=STATED)

    def __str__(self) -> str:
        """Return whose code it is, in words.

        Examples
        --------
        >>> print(ThirdParty("loss", "a.b:C", "a-dist", "1.0"))
        the loss a.b:C of a-dist 1.0
        >>> print(ThirdParty("loss", "__main__:C", None, None))
        the loss __main__:C, of no installed distribution
        """
        if self.distribution is None:
            return f"the {self.kind} {self.code}, of no installed distribution"
        holder = f"{self.distribution} {self.version or '(not installed here)'}"
        if self.kind == "library":
            return f"the library {holder}, by which {self.code} computes its loss"
        return f"the {self.kind} {self.code} of {holder}"


@frozen
class OdometerRow:
    """What the odometer of a session reads: what was spent until the certificate was made.

    Parameters
    ----------
    epsilon
        In nats, at the delta of the claim.
    theorem
        By which it holds wherever the analyst stops.
    """

    epsilon: float = field(converter=_as_float, validator=_not_negative, metadata=UPPER)
    theorem: str


@frozen
class LedgerRow:
    """Where the ledger of a session stood when the certificate was made.

    Parameters
    ----------
    head
        The hash of the last entry, 64 hexadecimal digits.
    entries
        The number of entries.
    """

    head: str = field(metadata=STATED)
    entries: int = field(metadata=STATED)


@frozen
class SessionRow:
    """What the certificate of a session says in addition: its filter, and what was spent.

    Parameters
    ----------
    delta_reserve
        The part of delta that the budget sets aside for the delta floors of losses.
    theorem
        The theorem of the filter.
    steps
        The names of the plan's outputs in the order in which they were run.
    accounting_units
        The accounting units of the filter.
    spent, remaining
        Total and remaining cost, one number for each accounting unit.
    delta_floor
        The sum of the losses' delta floors.
    odometer
        What was spent, as an epsilon.
    ledger
        Where the ledger stood.
    """

    delta_reserve: float = field(converter=_as_float, validator=_probability)
    theorem: str
    steps: tuple[str, ...]
    accounting_units: tuple[str, ...]
    spent: tuple[float, ...] = field(converter=_as_floats, validator=_none_negative, metadata=UPPER)
    remaining: tuple[float, ...] = field(
        converter=_as_floats, validator=_none_negative, metadata=LOWER
    )
    delta_floor: float = field(converter=_as_float, validator=_not_negative, metadata=UPPER)
    odometer: OdometerRow
    ledger: LedgerRow


@frozen(kw_only=True)
class Description:
    """What a certificate's author says of an analysis, for people to read; it certifies nothing.

    Nothing of it is checked or recomputed, and the date is what it is given: never the clock's.

    Parameters
    ----------
    title, purpose
        What the analysis is called, and what it is for.
    author, source
        Who answers for it, and where the data come from.
    date, retention
        When it was made, and until when data or results are kept, as str.

    Examples
    --------
    >>> Description(title="Visits to physicians", date="2026-03-01").date
    '2026-03-01'
    """

    title: str = field(default="", validator=_is_str)
    purpose: str = field(default="", validator=_is_str)
    author: str = field(default="", validator=_is_str)
    source: str = field(default="", validator=_is_str)
    date: str = field(default="", validator=_is_str)
    retention: str = field(default="", validator=_is_str)


@frozen
class Given:
    """A value that the analyst gave a plan: chosen by looking at the private data, it is a leak.

    No program sees how a person chose a histogram's edges, a filter's threshold or the candidates
    of a choice. A plan's privacy holds for values that would be the same if any one unit's rows
    were others.

    Parameters
    ----------
    place
        The node's name and the parameter's, such as ``ages.edges``; of a data set, the column's.
    value
        The value as it stands in the plan's document, shortened.
    because
        Why it is public, as the data's owner says (`Pipeline.with_reasons`); ``""`` where nobody
        does.
    """

    place: str
    value: str
    because: str = ""


STRUCTURE = frozenset(
    {
        # what a node is, what it reads, and whom it protects
        "id",
        "kind",
        "inputs",
        "state",
        "body",
        "result",
        "name",
        "names",
        "column",
        "columns",
        "by",
        "on",
        "features",
        "labels",
        "target",
        "of",
        "against",
        "call",
        "rests_on",
        "unit",
        "neighbors",
        "index",
        "last",
        "number",
        "game",
        "model",
        "mechanism",
        "test",
        "function",
        "net",
        "part",
        "digest",
        # what is derived from the declared columns, which are listed with their data set
        "balanced",
        "bounds",
        "by_unit",
        "declared",
        "first",
        "exchange",
        "missing",
        "step_size",
        "width",
        "presence",
        "told",
        # noise and budgets, which the releases' rows show
        "scale",
        "sigma",
        "epsilon",
        "delta",
    }
)
"""Parameters of nodes and mechanisms that no analyst picks, or that are shown elsewhere."""

LONGEST_GIVEN = 80
"""So many characters of a given value are shown."""


def _given(nodes: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the values in a plan's nodes: the node, the parameter or column, and the value.

    The plan of a certificate that is not verified may have any form: what is no node is left out.
    """
    for node in nodes if isinstance(nodes, Sequence) else ():
        if not isinstance(node, Mapping):
            continue
        name, known = str(node.get("id")), dict(node)
        columns = node.get("columns")  # of a data set: a domain for each
        for column, domain in columns.items() if isinstance(columns, Mapping) else ():
            yield name, column, domain
        inner = known.get("mechanism")
        # the parameters of a mechanism, beside those of its release
        known |= inner if isinstance(inner, Mapping) else {}
        for key, value in sorted(known.items()):  # a document may have its keys in any order
            # a switch, or what was left out, is no value that data could choose
            if key not in STRUCTURE and not isinstance(value, bool) and value not in (None, "", []):
                yield name, key, value
        yield from _given(node.get("body"))


def checked_reasons(plan: Mapping[str, Any], reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons, or refuse one of a place where a plan's document has no given value."""
    known = {name for node, key, _ in _given(plan.get("nodes")) for name in (node, f"{node}.{key}")}
    for place, because in reasons.items():
        if place not in known:
            near = difflib.get_close_matches(str(place), known, 3) or sorted(known)[:5]
            raise DeclarationError(
                f"no value was given at {short(place)}; there is {', '.join(near)}, and "
                "certify().given lists all"
            )
        if not isinstance(because, str) or not because.strip():
            raise DeclarationError(
                f"the reason why {place} is public must be a sentence, got {short(because)}"
            )
    return dict(reasons)


class PlanDocument(Mapping[str, Any]):
    """The document of a plan, a JSON value; made when it is first read.

    Parameters
    ----------
    make
        Returns the document, a new one each time, or is the document.
    """

    def __init__(self, make: Callable[[], dict[str, Any]] | Mapping[str, Any]) -> None:
        self._make = make

    @cached_property
    def _document(self) -> Mapping[str, Any]:
        return self._make if isinstance(self._make, Mapping) else self._make()

    def fresh(self) -> dict[str, Any]:
        """Return the document as one that shares nothing with this one."""
        if isinstance(self._make, Mapping):
            made: dict[str, Any] = copied(self._make)
            return made
        return self._make()

    def __getitem__(self, key: str) -> Any:
        return self._document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)

    def __repr__(self) -> str:
        return repr(self._document)

    def __reduce__(self) -> Any:
        return PlanDocument, (self.fresh(),)


def _as_document(plan: Any) -> Any:
    given = isinstance(plan, Mapping) and not isinstance(plan, PlanDocument)
    return PlanDocument(plan) if given else plan


def _as_it_stands(value: Any, place: str) -> Any:
    """Return a JSON value as it stands: a plan's document, or parameters as they stand in one."""
    if not isinstance(value, Mapping):
        raise DocumentError(f"{place} must be an object, got {type(value).__name__}")
    return copied(value)


EXACT = "exact"
"""The key of the rational of which the bound beside it is the rounding."""

BOUNDS: Mapping[type, str] = {Claim: "epsilon", AccountantRow: "upper", OdometerRow: "epsilon"}
"""The classes whose bound of epsilon may be a rational that no float is, with its field."""


def _with_exact(value: Any, place: str) -> dict[str, Any]:
    """Return a value's fields, its bound as a float and, where its text is shorter, exactly too.

    A program that reads the float has an upper bound, as 0.30000000000000004 is one of 3/10.
    """
    epsilon = getattr(value, name := BOUNDS[type(value)])
    if not isinstance(epsilon, RoundedUp):
        return CODEC.fields(value, place)
    fields = CODEC.fields(attrs.evolve(value, **{name: float(epsilon)}), place)
    return fields | {EXACT: str(epsilon.exact)}


def _exact_reader(cls: type) -> Callable[[Any, str], Any]:
    name = BOUNDS[cls]

    def read(value: Any, place: str) -> Any:
        arguments = CODEC.arguments(cls, value, place, beside=(EXACT,))
        if EXACT in value:
            # a number of a few digits: a hostile document must not cost a power of ten
            if not re.fullmatch("[0-9]{1,700}/[0-9]{1,700}", text := str(value[EXACT])):
                raise DocumentError(f"{place}.{EXACT} must be a fraction such as '3/10'")
            try:
                exact = bound(Fraction(text))
            except ZeroDivisionError:
                raise DocumentError(f"{place}.{EXACT}: its denominator is 0") from None
            if float(exact) != arguments[name]:
                raise DocumentError(f"{place}.{name} must be {EXACT} rounded up, {float(exact)!r}")
            arguments[name] = exact
        return CODEC.made(cls, arguments, place)

    return read


CODEC = Codec(
    DocumentError,
    writers={
        ReleaseRows: lambda rows, _: rows.to_document(),
        PlanDocument: lambda plan, _: plan.fresh(),
        **dict.fromkeys(BOUNDS, _with_exact),
    },
    readers={
        Mapping[str, Any]: _as_it_stands,
        PlanDocument: _as_it_stands,
        ReleaseRows: ReleaseRows.from_document,
        AccountantRows: AccountantRows.from_document,
        **{cls: _exact_reader(cls) for cls in BOUNDS},
    },
)
"""Reads and writes certificates, by the fields of the classes above."""


@frozen(repr=False)
class Certificate:
    """The claim of a plan, or of a session, with everything that it rests on.

    Parameters
    ----------
    claim
        The guarantee.
    protects
        Whom it protects, a row for each data set.
    fingerprint
        The digest of the plan.
    plan
        The document of the plan, from which all else can be recomputed.
    nodes
        A row for each release.
    accountants
        A row for each accountant that was asked.
    worlds
        Over how many worlds epsilon is the maximum, and which is the worst.
    assumptions
        What no program can check, a sentence each.
    randomness
        Where the noise comes from.
    versions
        Of the programs that computed it, by name.
    third_party
        Code on which it rests and that is not the library's.
    session
        Of a session: its filter, and what was spent. None for the certificate of a plan.
    description
        Title, purpose, author, source, date and retention, where they were given: see `described`.
    reasons
        Why values that the analyst gave are public, by their places: see `given`.

    See Also
    --------
    adaptive_dp.verify : Recompute a certificate.
    adaptive_dp.report : A certificate as a page.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
    >>> plan = dp.Pipeline(
    ...     count=people.count().release(dp.Gaussian(sigma=20)),
    ...     towns=people["town"].histogram().release(dp.Gaussian(sigma=10)),
    ... )
    >>> certificate = plan.certify(delta=1e-6)
    >>> certificate
    <certificate epsilon=0.447153 delta=1e-06 by gaussian>
    >>> round(certificate.bounds["gaussian"].upper, 4), certificate.shares
    (0.4472, {'count': 0.2, 'towns': 0.8})
    >>> [(row.node, row.mechanism, row.distance) for row in certificate.nodes]
    [('count', 'Gaussian', 1.0), ('towns', 'Gaussian', 1.0)]
    >>> Certificate.from_json(certificate.to_json()) == certificate
    True
    """

    claim: Claim
    protects: tuple[Protected, ...]
    fingerprint: str
    plan: PlanDocument = field(hash=False, converter=_as_document)
    nodes: ReleaseRows = field(converter=_as_rows)
    accountants: AccountantRows = field(converter=_as_accountants)
    worlds: WorldsRow
    assumptions: tuple[str, ...]
    randomness: Randomness
    versions: Mapping[str, str] = field(hash=False, metadata=STATED)
    third_party: tuple[ThirdParty, ...] = ()
    session: SessionRow | None = None
    description: Description | None = field(default=None, metadata=STATED)
    reasons: Mapping[str, str] = field(factory=dict, hash=False, metadata=STATED)

    @property
    def given(self) -> tuple[Given, ...]:
        """The values that the analyst gave, in the order of the plan, each with why it is public.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 120)})
        >>> adults = people.filter(people["age"] >= 18)
        >>> plan = dp.Pipeline(n=adults.count().release(dp.Laplace(scale=2)))
        >>> plan = plan.with_reasons({"filter.operand": "the age of majority"})
        >>> for each in plan.certify().given:
        ...     print(each.place, each.value, each.because or "?")
        people.age {"bounds": [0.0, 120.0]} ?
        filter.operand 18 the age of majority
        """
        rows = []
        for node, key, value in _given(self.plan.get("nodes")):
            place = f"{node}.{key}"
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            because = self.reasons.get(place) or self.reasons.get(node, "")
            rows.append(Given(place, cut(text, LONGEST_GIVEN), because))
        return tuple(rows)

    def with_reasons(self, reasons: Mapping[str, str]) -> Certificate:
        """Return the certificate with the reasons why given values are public, added to its own.

        They change nothing of the claim, and are checked by no program: whoever gives one answers
        for it. Of a plan see `Pipeline.with_reasons`.

        Parameters
        ----------
        reasons
            By the place of the value, as `given` has it, or by the name of a node for all of its
            values: one sentence each.

        Raises
        ------
        DeclarationError
            If there is no such place, or a reason is empty.
        """
        return attrs.evolve(self, reasons={**self.reasons, **checked_reasons(self.plan, reasons)})

    def described(self, **fields: str) -> Certificate:
        """Return the certificate with a description, which changes nothing of what it claims.

        Parameters
        ----------
        fields
            Any of ``title``, ``purpose``, ``author``, ``source``, ``date`` and ``retention``, each
            a str. The date is never taken from the clock.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> certificate = plan.certify().described(title="Census of May", date="2026-05-04")
        >>> certificate.description.title, dp.verify(certificate).holds
        ('Census of May', True)
        """
        names = [each.name for each in attrs.fields(Description)]
        unknown = sorted(set(fields) - set(names))
        if unknown:
            raise DeclarationError(
                f"a description has no field {unknown[0]!r}; it has {', '.join(names)}"
            )
        return attrs.evolve(self, description=Description(**fields))

    @property
    def epsilon(self) -> float:
        """The certified epsilon: the least upper bound of all accountants, in nats."""
        return self.claim.epsilon

    @property
    def delta(self) -> float:
        """The delta at which epsilon is certified."""
        return self.claim.delta

    @property
    def accountant(self) -> str:
        """The name of the tightest accountant."""
        return self.claim.accountant

    @property
    def bounds(self) -> dict[str, Bounds]:
        """Each accountant's bracket of epsilon, for those that apply."""
        # accountants that do not apply have no bracket
        return {
            row.name: Bounds(row.lower, row.upper)
            for row in self.accountants
            if row.lower is not None and row.upper is not None
        }

    @property
    def shares(self) -> dict[str, float]:
        """Each release's share of the budget, in the tightest accountant's accounting unit."""
        return {row.node: row.share for row in self.nodes}

    @property
    def ties(self) -> bool:
        """Whether other worlds are as bad as the one that is named as the worst."""
        # the shares of one world add up to 1
        return math.fsum(row.share for row in self.nodes if row.in_worst_world) > 1 + 1e-6

    @property
    def worst_world(self) -> tuple[str, ...]:
        """Where the unit lies that can lose the most: one label for each partition."""
        return self.worlds.worst

    def to_document(self) -> dict[str, Any]:
        """Return the certificate as a JSON value, which shares nothing with it.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> plan.certify().to_document()["claim"]
        {'epsilon': 0.5, 'delta': 0.0, 'accountant': 'basic'}
        """
        return {"format": FORMAT} | CODEC.fields(self, "certificate")

    @classmethod
    def from_document(cls, document: Any) -> Certificate:
        """Return the certificate of a JSON value, nothing about which is trusted.

        Raises
        ------
        DocumentError
            If it has not the form of a certificate, with the place.
        """
        # the format comes first: a plan given by mistake gets the remedy, not a list of wrong
        # fields
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            format_ = document.get("format") if isinstance(document, Mapping) else None
            remedy = "; a plan is read by dp.load(text)" if str(format_).startswith(PLAN) else ""
            raise DocumentError(
                f"not a certificate: 'format' must be {FORMAT!r}, got {format_!r}{remedy}"
            )
        check_values(document, "certificate")
        inside = {name: value for name, value in document.items() if name != "format"}
        read: Certificate = CODEC.read(cls, inside, "certificate")
        return read

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, and a line for each entry of a section.

        Rows of many equal releases are one, with a list of their names.
        """
        with collection_paused():
            return json_text(self.to_document())

    @classmethod
    def from_json(cls, text: str, *, limits: Limits = LIMITS) -> Certificate:
        """Return the certificate of a JSON str.

        Parameters
        ----------
        text
            The document.
        limits
            How long it may be, and what reading it may take.

        Raises
        ------
        DocumentError
            If it is not JSON, or has not the form of a certificate, with the place.
        LimitError
            If it passes a limit.
        """
        limits.check_text(text, "certificate")

        def read() -> Certificate:
            try:
                with collection_paused():
                    document = loads(text)
            except (ValueError, RecursionError) as error:
                raise DocumentError(f"not a certificate: {error}") from None
            return cls.from_document(document)

        return limits.watched("certificate", read)

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        epsilon, delta = (shown(bound, upward=True) for bound in (self.epsilon, self.delta))
        return f"<certificate epsilon={epsilon} delta={delta} by {self.accountant}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(_text(self))}</pre>"


# --- as text --------------------------------------------------------------------------------------


def _text(certificate: Certificate) -> str:
    """Return the certificate: the claim, the accountants side by side, each node's share."""
    parts = [
        *claim_lines(certificate),
        "",
        _side_by_side(certificate),
        "",
        table(
            ("release", "mechanism", "distance", "costs", "times", "share"),
            # no more than the table shows
            [_release_cells(row) for row in certificate.nodes[:LIMIT]],
            of=len(certificate.nodes),
        ),
    ]
    if certificate.worlds.worst:
        worst = "; ".join(map(visible, certificate.worlds.worst))
        equal = ", and others are equal" if certificate.ties else ""
        parts += ["", fill(f"worst world: {worst}{equal}", ROOM)]
    if not certificate.worlds.exact:
        parts.append("(too many worlds: some are bounded together, by their envelope)")
    foreign = [fill(f"trusts {visible(str(row))}", ROOM) for row in certificate.third_party]
    parts += ["", *foreign] if foreign else []
    parts += ["", *stamp(certificate)] if not certificate.randomness.release else []
    return "\n".join(parts)


def stamp(certificate: Certificate) -> list[str]:
    """Return the line that marks a simulation; none for a run."""
    if certificate.randomness.release:
        return []
    return [f"NOT FOR RELEASE: noise from {visible(certificate.randomness.source)}"]


NEEDS_DELTA = "Gaussian noise has no finite epsilon at delta 0: certify(delta=1e-6), for example"
"""What a certificate without a finite epsilon at delta 0 says of it."""


def claim_lines(certificate: Certificate) -> list[str]:
    """Return what a certificate claims, and whom it protects."""
    claim, session = certificate.claim, certificate.session
    gaussian = any("Gaussian" in row.mechanism for row, _ in certificate.nodes.runs)
    needs_delta = gaussian and claim.delta == 0 and math.isinf(claim.epsilon)
    return [
        f"epsilon <= {_bound(claim.epsilon, upward=True)} at delta = "
        f"{_bound(claim.delta, upward=True)}, by the {visible(claim.accountant)} "
        + ("accountant" if session is None else "filter, whatever is run"),
        *([NEEDS_DELTA] if needs_delta else []),
        *([] if session is None else [_session_line(session)]),
        *(f"protects {visible(str(row))}" for row in certificate.protects),
    ]


def _session_line(session: SessionRow) -> str:
    if session.odometer.theorem == session.theorem:  # a filter of each record
        return f"{len(session.steps)} steps; what each record has spent of it is private"
    read = _bound(session.odometer.epsilon, upward=True)
    return f"spent so far: epsilon {read}, in {len(session.steps)} steps, by the odometer"


def _side_by_side(certificate: Certificate) -> str:
    """Return the accountants as a table; one sentence, if all say that they do not apply."""
    rows = certificate.accountants
    reasons = {visible(row.reason) for row in rows if not row.applies}
    if len(reasons) == 1 and not any(row.applies for row in rows):
        return fill(f"no accountant of plans applies: {reasons.pop()}", ROOM)
    return table(("accountant", "lower", "upper", ""), list(_accountants(certificate)))


def _accountants(certificate: Certificate) -> Iterator[Sequence[str]]:
    for row in certificate.accountants:
        if row.lower is None or row.upper is None:
            if certificate.session is None:  # few apply to what was chosen as it ran
                yield row.name, "-", "-", f"does not apply: {row.reason}"
        else:
            mark = "tightest" if row.name == certificate.accountant else ""
            lower, upper = _bound(row.lower, upward=False), _bound(row.upper, upward=True)
            yield row.name, lower, upper, mark


def _release_cells(row: ReleaseRow) -> Sequence[str]:
    inside = ", ".join(
        f"{k}={short(v)}" for k, v in row.parameters.items() if not isinstance(v, dict)
    )
    spent = row.loss.parameters
    if row.loss.kind == "DiscreteLaplace":  # in the words of other noise with a pure epsilon
        spent = {"epsilon": ceiling(Fraction(spent["sensitivity"]) / Fraction(spent["scale"]))}
    loss = ", ".join(
        f"{k} {_bound(v, upward=True) if k in COSTS else short(v)}" for k, v in spent.items()
    )
    return (
        row.node,
        f"{row.mechanism}({inside})",
        f"{_bound(row.distance, upward=True)} (l{row.norm:g})",
        loss,
        str(row.times),
        f"{row.share:.1%}" + ("" if row.in_worst_world else " (elsewhere)"),
    )


def _bound(value: Any, *, upward: bool) -> str:
    """Return a bound, rounded outward: what is shown never promises more than what holds."""
    return shown(value, upward=upward) if isinstance(value, float) else str(value)
