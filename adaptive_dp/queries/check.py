"""What the keeper of the data should know of them before anyone asks: private, and never released.

A plan reads data as they are declared, and nothing in them stops it: a decimal comma makes a number
missing, a category written otherwise is in no part. Only who holds the data may look for that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data import Reading, SchemaError, read_rows
from adaptive_dp.data.cells import day, identity, number, parse_number
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.values import cut, visible
from adaptive_dp.queries.domains import Categories, Column, Dates, Interval, Strings, Tensors
from adaptive_dp.queries.source import Source, reading
from adaptive_dp.queries.transforms import KeyLookup

SHOWN = 5
"""How many different cells are shown of those that are not as declared."""

_COMMA = re.compile(r"[+-]?\d{1,3}(\.?\d{3})*,\d+|[+-]?\d+,\d+")
_OTHER_ENCODING = re.compile("\ufffd|\u00c3[\u0080-\u00bf]|\u00c2[\u0080-\u00bf]|\u00e2\u20ac")
"""What is left of letters that were read in another encoding than they were written in."""


@frozen(repr=False)
class Check:
    """What a check found in the data: private, for their keeper alone.

    ``print(check)`` shows it. It depends on the data without any noise: nobody else may see it.

    Parameters
    ----------
    name
        The data set's.
    rows
        How many rows there are.
    findings
        Sentences by column, in the order of the declaration; a column without any is as declared.
    """

    name: str
    rows: int
    findings: tuple[tuple[str, tuple[str, ...]], ...]

    def __repr__(self) -> str:
        return "<private check; print it where nobody else reads>"

    def __str__(self) -> str:
        lines = [
            "PRIVATE: for the keeper of the data alone, computed without any noise.",
            f"{self.name}: {self.rows:,} rows",
        ]
        for column, found in self.findings:
            lines += [f"  {column}: {text}" for text in found or ("as declared",)]
        return "\n".join(lines)


def check_data(source: Source, rows_per_unit: int | None, data: Any) -> Check:
    """Return what a data set's cells are that their declaration does not expect.

    Parameters
    ----------
    source
        The declaration.
    rows_per_unit
        The bound on a unit's rows, where there is one.
    data
        As for a run; they are read into memory.

    Raises
    ------
    DataError
        If the data's columns do not fit.
    """
    readings: dict[str, Reading] = {}
    for name, declared in source.columns.items():
        own = reading(declared)
        # cells that spell no number or date are kept as they are, to be shown
        readings[name] = own if own == "text" or isinstance(declared, Tensors) else "value"
    try:
        rows = read_rows(data, readings, None)
    except SchemaError as error:
        raise DataError(f"dataset {source.name!r}: {error}") from None
    size = len(rows.units)
    findings = [
        (name, tuple(_of_tensors(rows.columns[name], declared)))
        if isinstance(declared, Tensors)
        else (name, tuple(_findings(rows.columns[name].tolist(), declared)))
        for name, declared in source.columns.items()
    ]
    if source.unit is not None:
        units = read_rows(data, {source.unit: "value"}, None).columns[source.unit]
        keys = [identity(cell) for cell in units.tolist()]
        findings.append((source.unit, tuple(_of_units(keys, rows_per_unit))))
    return Check(source.name, size, tuple(findings))


def _findings(cells: list[Any], declared: Column) -> Iterator[str]:
    there = [cell for cell in cells if identity(cell) is not None or not _is_empty(cell)]
    yield from _share("missing", len(cells) - len(there), len(cells))
    broken = [c for c in there if isinstance(c, str) and _OTHER_ENCODING.search(c)]
    yield from _listed("look like another encoding than UTF-8", broken, cells)
    if isinstance(declared, Interval):
        yield from _of_numbers(there, declared, cells)
    elif isinstance(declared, Categories):
        yield from _of_categories(there, declared, cells)
    elif isinstance(declared, Strings):
        yield from _listed("are no str", [c for c in there if not isinstance(c, str)], cells)


def _of_tensors(rows: NDArray[Any], declared: Tensors) -> Iterator[str]:
    flat = rows.reshape(len(rows), -1)
    for what, wrong in (
        ("have missing numbers, which count as the one next to 0", np.isnan(flat)),
        (f"have numbers below the bounds {declared.bounds}", flat < declared.lower),
        (f"have numbers above the bounds {declared.bounds}", flat > declared.upper),
    ):
        yield from _share(what, int(wrong.any(axis=1).sum()), len(rows))


def _is_empty(cell: Any) -> bool:
    return cell is None or cell != cell or cell == "" or str(cell) == "NaT"


def _of_numbers(there: list[Any], declared: Interval, cells: list[Any]) -> Iterator[str]:
    is_date = isinstance(declared, Dates)
    read = np.array([day(c) if is_date else number(c) for c in there], dtype=np.float64)
    wrong = [cell for cell, value in zip(there, read, strict=True) if np.isnan(value)]
    commas = [c for c in wrong if isinstance(c, str) and _COMMA.fullmatch(c.strip())]
    yield from _listed("have a decimal comma, and so count as missing", commas, cells)
    what = "no date" if is_date else "no number"
    others = [c for c in wrong if not (isinstance(c, str) and _COMMA.fullmatch(c.strip()))]
    yield from _listed(f"are {what}, and so count as missing", others, cells)
    for word, outside in (("below", read < declared.lower), ("above", read > declared.upper)):
        found = [cell for cell, is_outside in zip(there, outside, strict=True) if is_outside]
        yield from _listed(
            f"are {word} the bounds {declared}, and count as the bound", found, cells
        )


def _of_categories(there: list[Any], declared: Categories, cells: list[Any]) -> Iterator[str]:
    are_codes = not any(isinstance(value, str) for value in declared.values)
    # codes may be spelled, as in a CSV file
    spelled = [parse_number(c) if are_codes and isinstance(c, str) else c for c in there]
    array = np.empty(len(spelled), dtype=object)
    array[:] = spelled
    index = KeyLookup(declared.values)(array)
    others = [cell for cell, at in zip(there, index, strict=True) if at < 0]
    known = {_folded(value): value for value in declared.values}
    near = [c for c in others if _folded(c) in known]
    yield from _listed("differ from a category in case or spaces alone", near, cells)
    far = [c for c in others if _folded(c) not in known]
    yield from _listed("are none of the categories", far, cells)
    counts = Counter(index.tolist())
    unused = [repr(v) for i, v in enumerate(declared.values) if not counts[i]]
    if unused and cells:
        yield f"no row has {cut(', '.join(unused), 80)}"


def _folded(value: Any) -> str:
    return " ".join(str(value).casefold().split())


def _of_units(keys: Sequence[Any], rows_per_unit: int | None) -> Iterator[str]:
    counts = Counter(key for key in keys if key is not None)
    yield f"{len(counts):,} units"
    yield from _share("rows without an identifier, which are dropped", keys.count(None), len(keys))
    if rows_per_unit is not None:
        over = [count - rows_per_unit for count in counts.values() if count > rows_per_unit]
        if over:
            yield (
                f"{len(over):,} units have more than {rows_per_unit} rows, and {sum(over):,} of "
                "their rows are dropped"
            )


def _share(what: str, count: int, total: int) -> Iterator[str]:
    if count:
        yield f"{count:,} {what} ({count / total:.1%})"


def _listed(what: str, found: list[Any], cells: list[Any]) -> Iterator[str]:
    """Yield how many cells are not as declared, with the most frequent of them."""
    if not found:
        return
    shown = Counter(map(repr, found)).most_common(SHOWN)
    examples = ", ".join(cut(visible(text), 40) for text, _ in shown)
    more = ", ..." if len(set(map(repr, found))) > SHOWN else ""
    yield f"{len(found):,} cells {what} ({len(found) / len(cells):.1%}): {examples}{more}"
