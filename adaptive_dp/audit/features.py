"""Outcomes of any kind as numbers: a pattern that is compared as a whole, and columns.

Whatever is no number (a text, None, a bool, NaN, an infinity, a length) is part of the pattern,
and so is a column with few values. A bool is a column too, 1 or -1, so that answers that add up are
learned from far fewer runs than all of their patterns. Patterns are kept as 64-bit hashes: that two
may share one costs power, never truth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.rounding import Array
from adaptive_dp.audit.sides import Outcomes

Hashes = NDArray[np.uint64]

_FEW = 50
"""A column with at most so many values is part of the pattern."""

_WIDE = 64
"""In outcomes of more columns, none is."""


@frozen(eq=False)
class Table:
    """Outcomes as a pattern each, shape (n,), and numbers, shape (n, d), all finite."""

    patterns: Hashes
    numbers: Array

    def __len__(self) -> int:
        return len(self.patterns)

    def rows(self, chosen: Any) -> Table:
        """Return some of the rows."""
        return Table(self.patterns[chosen], self.numbers[chosen])


def table(outcomes: Outcomes, width: int | None = None) -> Table:
    """Return outcomes as a table, with ``width`` columns where that is given."""
    found = _plain(outcomes)
    if found is None:
        found = _rows([_flat(each) for each in outcomes], width)
    numbers = found.numbers
    if width is not None and numbers.shape[1] != width:
        fitted = np.zeros((len(numbers), width))
        some = min(width, numbers.shape[1])
        fitted[:, :some] = numbers[:, :some]
        numbers = fitted
    return _finite(Table(found.patterns, numbers))


def _plain(outcomes: Outcomes) -> Table | None:
    """Return an array of numbers as a table; None for anything else."""
    if not isinstance(outcomes, np.ndarray) or outcomes.dtype.kind not in "fiub":
        return None
    numbers = outcomes.reshape(len(outcomes), -1).astype(np.float64)
    return Table(np.zeros(len(outcomes), dtype=np.uint64), numbers)


def _rows(flat: list[tuple[str, list[float]]], width: int | None) -> Table:
    most = max((len(numbers) for _, numbers in flat), default=0) if width is None else width
    matrix = np.zeros((len(flat), most))
    known: dict[str, int] = {}
    patterns = np.empty(len(flat), dtype=np.uint64)
    for i, (pattern, numbers) in enumerate(flat):
        if pattern not in known:
            known[pattern] = int.from_bytes(
                hashlib.blake2b(pattern.encode(errors="replace"), digest_size=8).digest()
            )
        patterns[i] = known[pattern]
        some = numbers[:most]
        matrix[i, : len(some)] = some
    return Table(patterns, matrix)


def _flat(value: Any) -> tuple[str, list[float]]:
    """Return a value's pattern, and the numbers in it, in order."""
    numbers: list[float] = []
    return _pattern(value, numbers), numbers


def _pattern(value: Any, numbers: list[float]) -> str:
    if isinstance(value, bool | np.bool_):
        numbers.append(1.0 if value else -1.0)  # 0 where an outcome has ended before
        return str(value)
    if value is None:
        return "None"
    if isinstance(value, str | bytes):
        return repr(value)
    if isinstance(value, int | float | np.integer | np.floating):
        try:
            numbers.append(float(value))
        except OverflowError:
            return repr(value)
        return "#"
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            return _pattern(value.tolist(), numbers)
        numbers.extend(np.ravel(value).astype(np.float64).tolist())
        return f"#{value.shape}"
    if isinstance(value, Mapping):
        parts = sorted(value.items(), key=lambda item: repr(item[0]))
        return f"{{{','.join(f'{k!r}:{_pattern(v, numbers)}' for k, v in parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_pattern(each, numbers) for each in value)}]"
    if isinstance(value, BaseException):
        return f"raised {type(value).__name__}"
    return f"{type(value).__name__} {value!r}"


def _finite(found: Table) -> Table:
    """Return the table with NaN and infinities as part of the pattern."""
    numbers = found.numbers
    strange = ~np.isfinite(numbers)
    if not strange.any():
        return found
    kinds = np.where(np.isnan(numbers), 1.0, np.where(numbers > 0, 2.0, 3.0)) * strange
    return Table(mixed(found.patterns, kinds), np.where(strange, 0.0, numbers))


def mixed(patterns: Hashes, columns: Array) -> Hashes:
    """Return hashes of patterns together with the values in some columns."""
    found = patterns.copy()
    values = np.ascontiguousarray(columns + 0.0)  # one zero
    for column in values.T:
        word = np.ascontiguousarray(column).view(np.uint64)
        found = (found ^ word) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
        found *= np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(32)
    return found


def few(both: Array) -> NDArray[np.bool_]:
    """Return which columns have few values, from the numbers of both sides."""
    width = both.shape[1]
    if width > _WIDE:
        return np.zeros(width, dtype=np.bool_)
    return np.array([len(np.unique(both[:, j])) <= _FEW for j in range(width)], dtype=np.bool_)
