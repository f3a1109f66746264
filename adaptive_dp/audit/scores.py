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
# Outcomes of any kind as a table: a pattern for each, equal or not, and columns of numbers.
#
# Whatever is not a finite number (a str, None, a bool, NaN, an infinity, a length) is part of the
# pattern, and so is a column with few values. A bool is a column too, 1 or -1, so that sums of
# answers are learned from far fewer runs than all of their patterns. Patterns are stored as 64-bit
# hashes: a collision costs power, never validity.


Hashes = NDArray[np.uint64]

_MAX_DISCRETE = 50
"""A column with at most so many different values is part of the pattern."""

_MAX_COLUMNS = 64
"""With more columns than this, none is part of the pattern."""


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

    def with_width(self, width: int) -> Table:
        """Return the table with so many columns: the last ones left out, or zeros added."""
        if width == self.numbers.shape[1]:
            return self
        numbers = np.zeros((len(self), width))
        shared = min(width, self.numbers.shape[1])
        numbers[:, :shared] = self.numbers[:, :shared]
        return Table(self.patterns, numbers)


def table(outcomes: Outcomes, width: int | None = None) -> Table:
    """Return outcomes as a table, with ``width`` columns where that is given."""
    converted = _numeric_table(outcomes)
    if converted is None:
        converted = _mixed_table([_flatten(each) for each in outcomes], width)
    # new outcomes may be wider or narrower than those that were learned from
    return _finite_table(converted if width is None else converted.with_width(width))


def _numeric_table(outcomes: Outcomes) -> Table | None:
    """Return an array of numbers as a table; None for anything else."""
    if not isinstance(outcomes, np.ndarray) or outcomes.dtype.kind not in "fiub":
        return None
    numbers = outcomes.reshape(len(outcomes), -1).astype(np.float64)
    return Table(np.zeros(len(outcomes), dtype=np.uint64), numbers)


def _mixed_table(flat: list[tuple[str, list[float]]], width: int | None) -> Table:
    columns = max((len(numbers) for _, numbers in flat), default=0) if width is None else width
    matrix = np.zeros((len(flat), columns))
    # equal patterns are hashed once
    hashes: dict[str, int] = {}
    patterns = np.empty(len(flat), dtype=np.uint64)
    for i, (pattern, numbers) in enumerate(flat):
        if pattern not in hashes:
            # eight bytes: a hash fits into the table's uint64
            hashes[pattern] = int.from_bytes(
                hashlib.blake2b(pattern.encode(errors="replace"), digest_size=8).digest()
            )
        patterns[i] = hashes[pattern]
        row = numbers[:columns]
        matrix[i, : len(row)] = row
    return Table(patterns, matrix)


def _flatten(value: Any) -> tuple[str, list[float]]:
    """Return a value's pattern, and the numbers in it, in order."""
    numbers: list[float] = []
    return _pattern(value, numbers), numbers


def _pattern(value: Any, numbers: list[float]) -> str:
    # before int, of which bool is a subclass
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
        # an int beyond float64 is compared by its digits
        except OverflowError:
            return repr(value)
        return "#"
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            return _pattern(value.tolist(), numbers)
        numbers.extend(np.ravel(value).astype(np.float64).tolist())
        return f"#{value.shape}"
    if isinstance(value, Mapping):
        # mappings that are equal give the same pattern in whatever order they were filled
        parts = sorted(value.items(), key=lambda item: repr(item[0]))
        return f"{{{','.join(f'{k!r}:{_pattern(v, numbers)}' for k, v in parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_pattern(each, numbers) for each in value)}]"
    if isinstance(value, BaseException):
        return f"raised {type(value).__name__}"
    return f"{type(value).__name__} {value!r}"


def _finite_table(features: Table) -> Table:
    """Return the table with NaN and infinities as part of the pattern."""
    numbers = features.numbers
    not_finite = ~np.isfinite(numbers)
    if not not_finite.any():
        return features
    # 1 for NaN, 2 for infinity, 3 for minus infinity, 0 for finite numbers
    kinds = np.where(np.isnan(numbers), 1.0, np.where(numbers > 0, 2.0, 3.0)) * not_finite
    return Table(hash_columns(features.patterns, kinds), np.where(not_finite, 0.0, numbers))


def hash_columns(patterns: Hashes, columns: Array) -> Hashes:
    """Return hashes of patterns together with the values in some columns."""
    hashes = patterns.copy()
    values = np.ascontiguousarray(columns + 0.0)  # one zero
    for column in values.T:
        # the bits of each float, mixed in by multiplication and shift, column after column
        word = np.ascontiguousarray(column).view(np.uint64)
        hashes = (hashes ^ word) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
        hashes ^= hashes >> np.uint64(32)
    return hashes


def discrete_columns(both: Array) -> NDArray[np.bool_]:
    """Return which columns have few different values, from the numbers of both data sets."""
    width = both.shape[1]
    # patterns of so many columns would rarely be seen twice
    if width > _MAX_COLUMNS:
        return np.zeros(width, dtype=np.bool_)
    return np.array(
        [len(np.unique(both[:, j])) <= _MAX_DISCRETE for j in range(width)], dtype=np.bool_
    )


# -----------------------------------------------------------------------------
# Scores by which an auditor guesses: learned log-likelihood ratios of first against second.
#
# Each learner takes a view of the tables of both data sets' training draws (all columns, one of
# them, a projection), and returns a function from the same view of a table to a score for each row.
# A score need not be a likelihood ratio, only useful: the events that it defines are tested on new
# draws that no learner has seen.


_BINS = 128
"""At most so many histogram cells for a column."""

_ROWS_PER_CELL = 25
"""At least so many training rows for a cell, on average."""


@frozen(eq=False)
class Scorer:
    """A score for each row of a table, and its description for the result."""

    words: str
    score: Callable[[Table], Array]


_Learner = Callable[[Any, Any], Callable[[Any], Array]]
"""From the training rows of both data sets, or a view of them, a score for each row."""


def scorers(first: Table, second: Table, rng: np.random.Generator) -> Iterator[Scorer]:
    """Return the scores learned from the tables of both data sets."""
    numbers = np.concatenate([first.numbers, second.numbers])
    width = numbers.shape[1]
    discrete = discrete_columns(numbers)

    def learned(words: str, learn: _Learner, view: Callable[[Table], Any]) -> Scorer:
        """Return a score that is learned from one view of the tables, and reads no more."""
        score = learn(view(first), view(second))
        return Scorer(words, lambda rows: score(view(rows)))

    def pattern_key(rows: Table) -> Hashes:
        """Return the pattern of each row, with its columns of few values."""
        return hash_columns(rows.patterns, rows.numbers[:, discrete])

    keys = np.unique(np.concatenate([pattern_key(first), pattern_key(second)]))
    if len(keys) > 1:
        words = "the ratio of how often this very outcome was seen"
        yield learned(words, _frequency_ratio, pattern_key)
        # patterns alone cannot compare numbers of which each is seen once
        if not discrete.all():
            yield Scorer(
                "its pattern's ratio, and the histograms of its numbers within the pattern",
                _pattern_histograms(pattern_key, ~discrete, keys, first, second),
            )
    if width:
        words = "the histogram of the value" if width == 1 else "histograms of each coordinate"
        yield learned(words, _histograms, _all_columns)
        for j in range(min(width, 16)):
            where = "the value" if width == 1 else f"coordinate {j}"
            yield Scorer(where, _column(j))
            # a discrete column has few values: its histogram shows all that their last bits do
            if not discrete[j]:
                words = f"{LAST_BIT} of {where}"
                yield learned(words, _histogram, _last_bit_of(j))
    if width > 1:
        # of the first columns alone, so that learning time is bounded
        for j in range(min(width, 16)):
            yield learned(f"the histogram of coordinate {j}", _histogram, _column(j))
        yield learned("a linear combination", _linear, _all_columns)
        for i, direction in enumerate(_least_noisy(first.numbers, second.numbers)):
            words = f"the linear combination of least noise, number {i}"
            yield learned(words, _histogram, _projection(direction))
        yield Scorer("the largest number", lambda rows: rows.numbers.max(axis=1))
        yield Scorer("the smallest number", lambda rows: rows.numbers.min(axis=1))
        yield learned("a tree of cells", _tree, _all_columns)
        for i in range(4):
            # on the scale of each column; the tiny term is for constant ones
            direction = rng.standard_normal(width) / (numbers.std(axis=0) + 1e-300)
            yield learned(f"random projection {i}", _histogram, _projection(direction))
            yield learned(
                f"distance from the mean, projection {i}",
                _histogram,
                _projection(np.abs(direction), numbers.mean(axis=0)),
            )


# --- views of a table: what a score is learned from, and reads


def _all_columns(rows: Table) -> Array:
    return rows.numbers


def _column(j: int) -> Callable[[Table], Array]:
    return lambda rows: rows.numbers[:, j]


def _last_bit_of(j: int) -> Callable[[Table], Array]:
    """Return the view of a column's last set bits.

    Of naive floating-point noise they can reveal the value (Mironov 2012).
    """
    return lambda rows: _last_bit(rows.numbers[:, j])


def _last_bit(numbers: Array) -> Array:
    """Return the exponent of each float's last bit that is set; 0 for zero."""
    # fraction in [1/2, 1): times 2^53 it is an integer, since float64 has 53 bits
    fraction, exponent = np.frexp(numbers)
    mantissa = np.abs(fraction * 2.0**53).astype(np.int64)
    # m & -m keeps the lowest bit that is set
    last = (mantissa & -mantissa).astype(np.float64)
    exponents: Array = np.where(mantissa == 0, 0.0, exponent - 53 + np.log2(np.maximum(last, 1.0)))
    return exponents


def _projection(direction: Array, centre: Array | None = None) -> Callable[[Table], Array]:
    """Return the view of numbers, or of their distances from ``centre``, along a direction."""

    def project(rows: Table) -> Array:
        centred = rows.numbers if centre is None else np.abs(rows.numbers - centre)
        projected: Array = centred @ direction
        return projected

    return project


# --- patterns


def _frequency_ratio(first: Hashes, second: Hashes) -> Callable[[Hashes], Array]:
    """Return the log-ratio of how often a key was seen; 0 for a key that never was."""
    keys, inverse = np.unique(np.concatenate([first, second]), return_inverse=True)
    a = np.bincount(inverse[: len(first)], minlength=len(keys))
    b = np.bincount(inverse[len(first) :], minlength=len(keys))
    ratios = _log_ratio(a, b, len(first), len(second))

    def score(patterns: Hashes) -> Array:
        # the last key stands in for positions beyond it; unequal keys then score 0
        positions = np.minimum(np.searchsorted(keys, patterns), max(0, len(keys) - 1))
        return np.where(keys[positions] == patterns, ratios[positions], 0.0)

    return score


def _log_ratio(a: np.ndarray, b: np.ndarray, first: int, second: int) -> Array:
    """Return log-ratios of frequencies, with half a row added to each count so that none is 0."""
    ratio: Array = np.log((a + 0.5) / (first + 1)) - np.log((b + 0.5) / (second + 1))
    return ratio


LAST_BIT = "the exponent of the last bit"
"""How the score of a number's lowest bits begins."""

_MIN_PATTERN_ROWS = 200
"""A pattern with fewer training rows of a data set gets no histograms of its own."""


def _pattern_histograms(
    key: Callable[[Table], Hashes],
    continuous: NDArray[np.bool_],
    keys: Hashes,
    first: Table,
    second: Table,
) -> Callable[[Table], Array]:
    """Return the log-ratio of a row's pattern, and those of its numbers within the pattern.

    Parameters
    ----------
    key
        The patterns of rows.
    continuous
        Which columns are not part of the pattern.
    keys
        All patterns.
    first, second
        The training rows.
    """
    learned_by_pattern: dict[int, Callable[[Array], Array]] = {}
    a, b = key(first), key(second)
    pattern_ratio = _frequency_ratio(a, b)
    for pattern in keys.tolist():
        first_rows, second_rows = first.numbers[a == pattern], second.numbers[b == pattern]
        if min(len(first_rows), len(second_rows)) >= _MIN_PATTERN_ROWS:
            learned_by_pattern[pattern] = _histograms(
                first_rows[:, continuous], second_rows[:, continuous]
            )

    def score(rows: Table) -> Array:
        patterns = key(rows)
        # the ratio of the pattern, to which that of the numbers given the pattern is added
        total = pattern_ratio(patterns)
        for pattern, learned in learned_by_pattern.items():
            matches = patterns == np.uint64(pattern)
            if matches.any():
                total[matches] += learned(rows.numbers[matches][:, continuous])
        return total

    return score


# --- columns


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
    # fewer cells where there are few rows, at least two
    cells = int(np.clip(len(both) / _ROWS_PER_CELL, 2, _BINS))
    # equal numbers of rows between edges; edges that coincide are taken once
    edges = np.unique(np.quantile(both, np.linspace(0, 1, cells + 1)[1:-1], method="higher"))

    def place(numbers: Array) -> np.ndarray:
        """Return the index of each number's cell; a number equal to an edge is above it."""
        return np.searchsorted(edges, numbers, side="right")

    a = np.bincount(place(first), minlength=len(edges) + 1)
    b = np.bincount(place(second), minlength=len(edges) + 1)
    ratios = _log_ratio(a, b, len(first), len(second))
    return lambda numbers: ratios[place(numbers)]


def _linear(first: Array, second: Array) -> Callable[[Array], Array]:
    """Return Fisher's linear discriminant of clipped numbers, ridge-regularised."""
    both = np.concatenate([first, second])
    # heavy tails and outliers would dominate means and the scatter
    low, high = np.quantile(both, [0.001, 0.999], axis=0)
    a, b = np.clip(first, low, high), np.clip(second, low, high)
    scale = np.clip(both, low, high).std(axis=0)
    # a constant column has scale 1
    scale = np.where(scale > 0, scale, 1.0)
    a, b = a / scale, b / scale
    shift = a.mean(axis=0) - b.mean(axis=0)
    centred = np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)])
    scatter = centred.T @ centred / len(centred)
    # a ridge: columns that are linear in others would make the scatter singular
    scatter += 1e-6 * np.eye(len(scatter))
    # weights for unscaled numbers
    weights = np.linalg.solve(scatter, shift) / scale
    return lambda numbers: np.clip(numbers, low, high) @ weights


_LEAST_NOISY = 3
"""So many combinations of least noise are scores."""


def _least_noisy(first: Array, second: Array) -> list[Array]:
    """Return the linear combinations whose noise varies least, beside that of single numbers.

    Noise that two numbers share cancels in one of their combinations, also where they share it most
    of the time alone.
    """
    # a quartile range is in proportion to noise that is shared, whatever its tails
    ranges = np.subtract(*np.quantile(first, [0.75, 0.25], axis=0))
    scale = np.where(ranges > 0, ranges, np.inf)
    a, b = first / scale, second / scale
    centred = np.concatenate([a - np.median(a, axis=0), b - np.median(b, axis=0)])
    # tails that are far out would hide what the others share
    centred = np.clip(centred, -10, 10)
    # eigenvalues ascend; those of columns without noise, all 0 here, are left out
    values, directions = np.linalg.eigh(centred.T @ centred)
    noisy = np.flatnonzero(values > 0)[:_LEAST_NOISY]
    return [directions[:, i] / scale for i in noisy]


# --- a tree


_DEPTH = 7
_CUTS = 15
_MIN_LEAF = 100


def _tree(first: Array, second: Array) -> Callable[[Array], Array]:
    """Return the log-ratio of a row's leaf, in a tree grown by the gain in log-likelihood."""
    tree = _grow_tree(first, second, len(first), len(second), _DEPTH)

    def score(numbers: Array) -> Array:
        result = np.zeros(len(numbers))
        _descend(tree, numbers, np.arange(len(numbers)), result)
        return result

    return score


_Tree = tuple[int, float, "_Tree", "_Tree"] | float


def _grow_tree(first: Array, second: Array, m: int, n: int, depth: int) -> _Tree:
    # relative to all rows of both sides, so that leaves are log-ratios of probabilities
    leaf = float(_log_ratio(np.array(len(first)), np.array(len(second)), m, n))
    if depth == 0 or len(first) + len(second) < 2 * _MIN_LEAF:
        return leaf
    # a cut has to gain more than rounding errors do
    best = (1e-9, -1, 0.0)
    columns = min(first.shape[1], 24)
    for j in range(columns):
        best = max(best, _best_cut(first[:, j], second[:, j], j))
    _, j, threshold = best
    if j < 0:
        return leaf
    first_above, second_above = first[:, j] >= threshold, second[:, j] >= threshold
    return (
        j,
        threshold,
        _grow_tree(first[~first_above], second[~second_above], m, n, depth - 1),
        _grow_tree(first[first_above], second[second_above], m, n, depth - 1),
    )


def _best_cut(first: Array, second: Array, j: int) -> tuple[float, int, float]:
    """Return the gain, the column and the threshold of its best cut."""
    both = np.concatenate([first, second])
    cuts = np.unique(np.quantile(both, np.linspace(0, 1, _CUTS + 2)[1:-1], method="higher"))
    a = np.searchsorted(np.sort(first), cuts, side="left").astype(np.float64)
    b = np.searchsorted(np.sort(second), cuts, side="left").astype(np.float64)
    m, n = len(first), len(second)
    # both sides of a cut have at least _MIN_LEAF rows
    large_enough = np.minimum(a + b, m + n - a - b) >= _MIN_LEAF
    if not large_enough.any():
        return 0.0, -1, 0.0
    gain = np.where(
        # the log-likelihood of both parts, less that of all rows
        large_enough,
        _log_likelihood(a, b)
        + _log_likelihood(m - a, n - b)
        - _log_likelihood(np.array(m), np.array(n)),
        0.0,
    )
    best = int(np.argmax(gain))
    return float(gain[best]), j, float(cuts[best])


def _log_likelihood(a: Array, b: Array) -> Array:
    """Return the log-likelihood of a rows of the first and b of the second data set in one cell."""
    total = a + b + 1.0
    value: Array = (a + 0.5) * np.log((a + 0.5) / total) + (b + 0.5) * np.log((b + 0.5) / total)
    return value


def _descend(tree: _Tree, numbers: Array, rows: np.ndarray, result: Array) -> None:
    if isinstance(tree, float):
        result[rows] = tree
        return
    j, threshold, below, above = tree
    is_above = numbers[rows, j] >= threshold
    _descend(below, numbers, rows[~is_above], result)
    _descend(above, numbers, rows[is_above], result)
