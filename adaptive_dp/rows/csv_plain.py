"""Lines of a CSV file that anybody would read alike, read by PyArrow: ten times as fast.

Lines without quotes, in which nothing ends a line but a line feed, have their cells between commas.
PyArrow splits them, and turns into floats what are plain decimal numbers, of so few digits that
they are neither too large nor too small for one: it gives the nearest float, as Python does. All
other cells are read by `adaptive_dp.rows.files.cell`, and lines that are not plain by nobody here.
"""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.rows.cells import number
from adaptive_dp.rows.files import Form, cell

STRANGE = ('"', "\r", "\0")
"""What no plain line has."""

DECIMAL = r"^-?[0-9]{1,30}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"
"""Numbers between 1e-140 and 1e130, or zero."""


def plain_columns(form: Form, text: str) -> dict[str, Any] | None:
    """Return what ``form.columns`` does, or None if the lines are not all plain.

    Parameters
    ----------
    form
        Of the file, of at least two columns (or there may be empty cells that are lines).
    text
        Whole lines.
    """
    lines = text.replace("\r\n", "\n")
    strange = any(each in lines for each in STRANGE) or lines.startswith("\ufeff")
    if form.width < 2 or not form.wanted or strange or _longest(lines) > csv.field_size_limit():
        return None
    try:
        import pyarrow as pa
        import pyarrow.csv as reader
    except ImportError:
        return None
    names = [str(i) for i in range(form.width)]
    data = lines.encode()
    try:
        table = reader.read_csv(
            pa.BufferReader(data),
            reader.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(quote_char=False, escape_char=False),
            reader.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[str(position) for _, position, _ in form.wanted],
            ),
        )
    except pa.ArrowException:  # no lines, or one of another width
        return None
    found: dict[str, Any] = {}
    for name, position, reading in form.wanted:
        column = table.column(str(position))
        if reading == "number":
            found[name] = _floats(column)
        else:
            found[name] = [cell(each, reading) for each in column.to_pylist()]
    return found


def _longest(lines: str) -> int:
    return max(map(len, lines.split("\n")))


def _floats(column: Any) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.match_substring_regex(column, DECIMAL)
    floats = pc.if_else(plain, column, "nan").cast(pa.float64()).to_numpy().copy()
    for i in np.flatnonzero(~plain.to_numpy()):
        floats[i] = number(cell(column[int(i)].as_py(), "number"))
    return floats  # type: ignore[no-any-return]
