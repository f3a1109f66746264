"""Scores by which an auditor guesses: outcomes as numbers, and learned log-likelihood ratios."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.numerics import Array
from adaptive_dp.audit.neighbors import Outcomes

# -----------------------------------------------------------------------------
# Outcomes of any kind as numbers: a pattern that is compared as a whole, and columns.
#
# Whatever is no number (a text, None, a bool, NaN, an infinity, a length) is part of the pattern,
# and so is a column with few values. A bool is a column too, 1 or -1, so that answers that add up
# are
# learned from far fewer runs than all of their patterns. Patterns are kept as 64-bit hashes: that
# two
# may share one costs power, never truth.


Hashes = NDArray[np.uint64]

_MAX_DISCRETE = 50
"""A column with at most so many values is part of the pattern."""

_MAX_COLUMNS = 64
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
    found = _numeric_table(outcomes)
    if found is None:
        found = _mixed_table([_flatten(each) for each in outcomes], width)
    numbers = found.numbers
    if width is not None and numbers.shape[1] != width:
        fitted = np.zeros((len(numbers), width))
        some = min(width, numbers.shape[1])
        fitted[:, :some] = numbers[:, :some]
        numbers = fitted
    return _finite_table(Table(found.patterns, numbers))


def _numeric_table(outcomes: Outcomes) -> Table | None:
    """Return an array of numbers as a table; None for anything else."""
    if not isinstance(outcomes, np.ndarray) or outcomes.dtype.kind not in "fiub":
        return None
    numbers = outcomes.reshape(len(outcomes), -1).astype(np.float64)
    return Table(np.zeros(len(outcomes), dtype=np.uint64), numbers)


def _mixed_table(flat: list[tuple[str, list[float]]], width: int | None) -> Table:
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


def _flatten(value: Any) -> tuple[str, list[float]]:
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


def _finite_table(found: Table) -> Table:
    """Return the table with NaN and infinities as part of the pattern."""
    numbers = found.numbers
    strange = ~np.isfinite(numbers)
    if not strange.any():
        return found
    kinds = np.where(np.isnan(numbers), 1.0, np.where(numbers > 0, 2.0, 3.0)) * strange
    return Table(hash_columns(found.patterns, kinds), np.where(strange, 0.0, numbers))


def hash_columns(patterns: Hashes, columns: Array) -> Hashes:
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


def discrete_columns(both: Array) -> NDArray[np.bool_]:
    """Return which columns have few values, from the numbers of both sides."""
    width = both.shape[1]
    if width > _MAX_COLUMNS:
        return np.zeros(width, dtype=np.bool_)
    return np.array(
        [len(np.unique(both[:, j])) <= _MAX_DISCRETE for j in range(width)], dtype=np.bool_
    )


# -----------------------------------------------------------------------------
# Scores by which an auditor guesses: learned log-likelihood ratios of first against second.
#
# Each learner takes tables of both sides and returns `Scorer`s: a function from a table to a score
# for each row, with words for it. Scores need not be right, only useful: the events that they
# define
# are certified on draws that the learners never saw.


_BINS = 128
"""At most so many cells a column."""

_ROWS_PER_CELL = 25
"""At least so many training rows a cell, on average."""


@frozen(eq=False)
class Scorer:
    """A score and what it is."""

    words: str
    score: Callable[[Table], Array]


def scorers(first: Table, second: Table, rng: np.random.Generator) -> Iterator[Scorer]:
    """Return the scores learned from both sides' tables."""
    numbers = np.concatenate([first.numbers, second.numbers])
    width = numbers.shape[1]
    discrete = discrete_columns(numbers)
    key = _PatternKey(discrete)
    keys = np.unique(np.concatenate([key(first), key(second)]))
    varied = width > 0 and not discrete.all()
    if len(keys) > 1:
        score = _pattern_ratio(key, first, second)
        yield Scorer("the ratio of how often this very outcome was seen", score)
        if varied:
            yield Scorer(
                "its pattern's ratio, and the histograms of its numbers within the pattern",
                _pattern_histograms(key, keys, first, second),
            )
    if width:
        name = "the histogram of the value" if width == 1 else "histograms of each coordinate"
        yield Scorer(name, _histogram_sum(first.numbers, second.numbers))
        for j in range(min(width, 16)):
            where = "the value" if width == 1 else f"coordinate {j}"
            yield Scorer(where, _column(j))
            if not discrete[j]:
                yield Scorer(f"the exponent of the last bit of {where}", _bits(j, first, second))
    if width > 1:
        for j in range(min(width, 16)):
            yield Scorer(f"the histogram of coordinate {j}", _histogram_of(j, first, second))
        yield Scorer("a linear combination", _linear(first.numbers, second.numbers))
        yield Scorer("the largest number", lambda found: found.numbers.max(axis=1))
        yield Scorer("the smallest number", lambda found: found.numbers.min(axis=1))
        yield Scorer("a tree of cells", _tree(first.numbers, second.numbers))
        for i in range(4):
            direction = rng.standard_normal(width) / (numbers.std(axis=0) + 1e-300)
            yield Scorer(f"random projection {i}", _projected(direction, first, second))
            yield Scorer(
                f"distance from the mean, projection {i}",
                _projected(np.abs(direction), first, second, numbers.mean(axis=0)),
            )


# --- patterns


class _PatternKey:
    """The pattern of a row, with its columns of few values."""

    def __init__(self, discrete: np.ndarray) -> None:
        self.discrete = discrete

    def __call__(self, found: Table) -> Hashes:
        return hash_columns(found.patterns, found.numbers[:, self.discrete])


def _pattern_ratio(key: _PatternKey, first: Table, second: Table) -> Callable[[Table], Array]:
    lookup = _frequency_ratio(key(first), key(second))
    return lambda found: lookup(key(found))


def _frequency_ratio(first: Hashes, second: Hashes) -> Callable[[Hashes], Array]:
    """Return the log-ratio of how often a key was seen; 0 for a key that never was."""
    keys, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    a = np.bincount(place[: len(first)], minlength=len(keys))
    b = np.bincount(place[len(first) :], minlength=len(keys))
    ratios = _log_ratio(a, b, len(first), len(second))

    def score(asked: Hashes) -> Array:
        at = np.minimum(np.searchsorted(keys, asked), max(0, len(keys) - 1))
        return np.where(keys[at] == asked, ratios[at], 0.0)

    return score


def _log_ratio(a: np.ndarray, b: np.ndarray, first: int, second: int) -> Array:
    """Return log-ratios of frequencies, half a row added to each."""
    found: Array = np.log((a + 0.5) / (first + 1)) - np.log((b + 0.5) / (second + 1))
    return found


_MIN_PATTERN_ROWS = 200
"""A pattern with fewer training rows on a side gets no histograms of its own."""


def _pattern_histograms(
    key: _PatternKey, keys: Hashes, first: Table, second: Table
) -> Callable[[Table], Array]:
    lookup = _frequency_ratio(key(first), key(second))
    free = np.flatnonzero(~key.discrete)
    inner: dict[int, Callable[[Array], Array]] = {}
    a, b = key(first), key(second)
    for each in keys.tolist():
        one, two = first.numbers[a == each], second.numbers[b == each]
        if min(len(one), len(two)) >= _MIN_PATTERN_ROWS:
            inner[each] = _histograms(one[:, free], two[:, free])

    def score(found: Table) -> Array:
        asked = key(found)
        total = lookup(asked)
        for each, learned in inner.items():
            mine = asked == np.uint64(each)
            if mine.any():
                total[mine] += learned(found.numbers[mine][:, free])
        return total

    return score


# --- columns


def _histogram_sum(first: Array, second: Array) -> Callable[[Table], Array]:
    learned = _histograms(first, second)
    return lambda found: learned(found.numbers)


def _histograms(first: Array, second: Array) -> Callable[[Array], Array]:
    """Return the sum over columns of the log-ratios of their histograms."""
    columns = [_histogram(first[:, j], second[:, j]) for j in range(first.shape[1])]

    def score(numbers: Array) -> Array:
        total = np.zeros(len(numbers))
        for j, learned in enumerate(columns):
            total += learned(numbers[:, j])
        return total

    return score


def _histogram(first: Array, second: Array) -> Callable[[Array], Array]:
    both = np.concatenate([first, second])
    cells = int(np.clip(len(both) / _ROWS_PER_CELL, 2, _BINS))
    edges = np.unique(np.quantile(both, np.linspace(0, 1, cells + 1)[1:-1], method="higher"))

    def place(numbers: Array) -> np.ndarray:
        """Return the cell: a value equal to an edge is above it; each edge has a cell below."""
        return np.searchsorted(edges, numbers, side="right")

    a = np.bincount(place(first), minlength=len(edges) + 1)
    b = np.bincount(place(second), minlength=len(edges) + 1)
    ratios = _log_ratio(a, b, len(first), len(second))
    return lambda numbers: ratios[place(numbers)]


def _histogram_of(j: int, first: Table, second: Table) -> Callable[[Table], Array]:
    learned = _histogram(first.numbers[:, j], second.numbers[:, j])
    return lambda found: learned(found.numbers[:, j])


def _column(j: int) -> Callable[[Table], Array]:
    return lambda found: found.numbers[:, j]


def _bits(j: int, first: Table, second: Table) -> Callable[[Table], Array]:
    """Return the log-ratio of the exponents of the last bits (Mironov 2012: they may tell all)."""
    learned = _histogram(_last_bit(first.numbers[:, j]), _last_bit(second.numbers[:, j]))
    return lambda found: learned(_last_bit(found.numbers[:, j]))


def _last_bit(numbers: Array) -> Array:
    """Return the exponent of each float's last bit that is set; 0 for zero."""
    part, exponent = np.frexp(numbers)
    mantissa = np.abs(part * 2.0**53).astype(np.int64)
    last = (mantissa & -mantissa).astype(np.float64)
    found: Array = np.where(mantissa == 0, 0.0, exponent - 53 + np.log2(np.maximum(last, 1.0)))
    return found


def _linear(first: Array, second: Array) -> Callable[[Table], Array]:
    """Return Fisher's discriminant, of ranks' tails cut, ridge-regularised."""
    both = np.concatenate([first, second])
    low, high = np.quantile(both, [0.001, 0.999], axis=0)
    a, b = np.clip(first, low, high), np.clip(second, low, high)
    scale = np.clip(both, low, high).std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    a, b = a / scale, b / scale
    shift = a.mean(axis=0) - b.mean(axis=0)
    centred = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
    scatter = centred.T @ centred / len(centred)
    scatter += 1e-6 * np.eye(len(scatter))
    weights = np.linalg.solve(scatter, shift) / scale
    return lambda found: np.clip(found.numbers, low, high) @ weights


def _projected(
    direction: Array, first: Table, second: Table, centre: Array | None = None
) -> Callable[[Table], Array]:
    def onto(numbers: Array) -> Array:
        moved = numbers if centre is None else np.abs(numbers - centre)
        found: Array = moved @ direction
        return found

    learned = _histogram(onto(first.numbers), onto(second.numbers))
    return lambda found: learned(onto(found.numbers))


# --- a tree


_DEPTH = 7
_CUTS = 15
_MIN_LEAF = 100


def _tree(first: Array, second: Array) -> Callable[[Table], Array]:
    """Return the log-ratio of the leaf, in a tree that is grown by the gain in likelihood."""
    grown = _grow_tree(first, second, len(first), len(second), _DEPTH)

    def score(found: Table) -> Array:
        result = np.zeros(len(found))
        _descend(grown, found.numbers, np.arange(len(found)), result)
        return result

    return score


_Tree = tuple[int, float, "_Tree", "_Tree"] | float


def _grow_tree(first: Array, second: Array, m: int, n: int, depth: int) -> _Tree:
    leaf = float(_log_ratio(np.array(len(first)), np.array(len(second)), m, n))
    if depth == 0 or len(first) + len(second) < 2 * _MIN_LEAF:
        return leaf
    best = (1e-9, -1, 0.0)
    many = min(first.shape[1], 24)
    for j in range(many):
        best = max(best, _best_cut(first[:, j], second[:, j], j))
    _, j, at = best
    if j < 0:
        return leaf
    above, beside = first[:, j] >= at, second[:, j] >= at
    return (
        j,
        at,
        _grow_tree(first[~above], second[~beside], m, n, depth - 1),
        _grow_tree(first[above], second[beside], m, n, depth - 1),
    )


def _best_cut(first: Array, second: Array, j: int) -> tuple[float, int, float]:
    """Return the gain, the column and the place of its best cut."""
    both = np.concatenate([first, second])
    cuts = np.unique(np.quantile(both, np.linspace(0, 1, _CUTS + 2)[1:-1], method="higher"))
    a = np.searchsorted(np.sort(first), cuts, side="left").astype(np.float64)
    b = np.searchsorted(np.sort(second), cuts, side="left").astype(np.float64)
    m, n = len(first), len(second)
    big = np.minimum(a + b, m + n - a - b) >= _MIN_LEAF
    if not big.any():
        return 0.0, -1, 0.0
    gain = np.where(
        big,
        _log_likelihood(a, b)
        + _log_likelihood(m - a, n - b)
        - _log_likelihood(np.array(m), np.array(n)),
        0.0,
    )
    at = int(np.argmax(gain))
    return float(gain[at]), j, float(cuts[at])


def _log_likelihood(a: Array, b: Array) -> Array:
    """Return the log-likelihood of the sides of a + b rows, at their own frequency."""
    total = a + b + 1.0
    found: Array = (a + 0.5) * np.log((a + 0.5) / total) + (b + 0.5) * np.log((b + 0.5) / total)
    return found


def _descend(tree: _Tree, numbers: Array, rows: np.ndarray, result: Array) -> None:
    if isinstance(tree, float):
        result[rows] = tree
        return
    j, at, below, above = tree
    up = numbers[rows, j] >= at
    _descend(below, numbers, rows[~up], result)
    _descend(above, numbers, rows[up], result)
