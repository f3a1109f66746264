"""Audits of any Python function of a data set, by another library or by hand.

The function is called many times on the data and on neighbours of it, and whatever it returns is an
outcome. Nothing is known of its randomness, so its runs cannot be seeded from here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from attrs import evolve, frozen

from accountants.errors import DomainError, integer
from adaptive_dp.audit.claims import Claim, Claimed, allowed_error
from adaptive_dp.audit.claims import claim as as_claim
from adaptive_dp.audit.distinguishing import distinguish, draws
from adaptive_dp.audit.neighbors import Neighbors, Outcomes, Sampler
from adaptive_dp.audit.pipelines import Counter, Progress
from adaptive_dp.audit.result import Audit
from adaptive_dp.graph.errors import DataError
from adaptive_dp.noise.stream import Stream

MOST_PAIRS = 8
"""At most so many neighbours of the data are tried."""


def callable(  # the name users look for: ``audit.callable(f, data, claim=1.0)``
    function: Callable[[Any], Any],
    data: Any,
    claim: Claimed | Claim | Any,
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    neighbors: Literal["add_remove", "replace_one"] = "add_remove",
    samples: int = 5_000,
    confidence: float = 0.999,
    delta: float | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit a Python function of a data set against what is claimed of it.

    Parameters
    ----------
    function
        Called with a copy of a data set; returns an outcome of any kind (numbers, arrays, str,
        tuples and mappings of these). An exception is an outcome like any other.
    data
        A list, an array whose first axis counts rows, a mapping of columns of equal length, or a
        data frame of pandas or polars. Each row is a unit.
    claim
        An epsilon, (epsilon, delta), a `PrivacyLoss`, a `Guarantee` or a certificate; or what
        another library says (see `adaptive_dp.audit.claim`).
    pairs
        Pairs of neighbouring data sets of your own, in place of those that are made of the data.
    neighbors
        The relation of the claim. Of "add_remove" a row is left out, of "replace_one" it is
        exchanged for another row of the data: those with the least and the largest numbers of each
        column are tried, and the first row.
    samples
        Calls on each data set of a pair, on average.
    confidence, delta
        As for `distinguish`.
    progress
        Called as ``progress(done, total, seconds)`` with the calls that are made, how many there
        will be, and about how many seconds they will still take; at most ten times a second.

    Returns
    -------
    Audit
        As private as the data. That it finds nothing proves nothing: rows beyond those of the data
        may tell more, so give data whose rows are extreme, or ``pairs``.

    Raises
    ------
    DataError
        If the data have fewer than two rows, or are of another kind.
    DomainError
        As for `distinguish`.

    See Also
    --------
    distinguish : of samplers, which draw many outcomes in one call.

    Examples
    --------
    A mean of values in [0, 1], with noise for half of what a row can move it:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def mean(values):
    ...     return round(sum(values) / len(values) + rng.laplace(0, 0.5 / len(values)), 6)
    >>> callable(mean, [0.0, 1.0, 1.0, 1.0], claim=1.0, samples=2_000).verdict
    'violation'
    """
    allowed_error(confidence)
    calls = integer("samples", samples, least=100)
    if pairs is None:
        made = _pairs(data, neighbors)
    else:
        made = [("a given pair", one, other) for one, other in pairs]
    counter = Counter(progress)
    sides = [
        Neighbors(words, _sampler(function, a, counter.add), _sampler(function, b, counter.add))
        for words, a, b in made
    ]
    if sides:
        learn, tries = draws(sides, calls)
        counter.begin(2 * learn * len(sides) + tries)
    result = distinguish(
        sides,
        as_claim(claim, delta),
        samples=calls,
        confidence=confidence,
        assumptions=("calls of the function are independent of each other",),
    )
    note = "made with given data: this audit is as private as they are"
    return evolve(result, notes=(*result.notes, note))


def _sampler(
    function: Callable[[Any], Any], data: Any, count_calls: Callable[[int], None]
) -> Sampler:
    def once() -> Any:
        # its own copy for each call: a function may change what it is given
        outcome = _outcome(function, copy.deepcopy(data))
        count_calls(1)
        return outcome

    def sample(count: int, stream: Stream) -> Outcomes:
        return [once() for _ in range(count)]

    return sample


def _outcome(function: Callable[[Any], Any], data: Any) -> Any:
    try:
        return _plain(function(data))
    except Exception as error:
        # its type is an outcome; its message may differ from run to run, or be that of a library
        return f"raised {type(error).__name__}"


def _plain(value: Any) -> Any:
    """Return a released frame or other array-like as an array."""
    if isinstance(value, np.ndarray | np.generic | str | bytes | int | float | Mapping):
        return value
    return np.asarray(value) if hasattr(value, "__array__") else value


# -----------------------------------------------------------------------------
# Neighbours of a data set of any common kind.


@frozen(eq=False)
class _Rows:
    """A data set's rows, so that some can be taken: ``take(data, indices)``.

    Parameters
    ----------
    count
        The number of rows.
    take
        Returns a data set of the same kind with the rows of some indices.
    numbers
        The columns of numbers, by name.
    """

    count: int
    take: Callable[[Sequence[int]], Any]
    numbers: Mapping[str, np.ndarray]


def _rows(data: Any) -> _Rows:
    if isinstance(data, Mapping):
        columns = {name: np.asarray(column) for name, column in data.items()}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise DataError("a mapping of columns needs columns of one length")

        def of_mapping(indices: Sequence[int]) -> Any:
            return {
                name: column[list(indices)]
                if isinstance(column, np.ndarray)
                else type(column)(column[i] for i in indices)
                for name, column in data.items()
            }

        return _Rows(lengths.pop(), of_mapping, _numbers(columns))
    if isinstance(data, np.ndarray):
        flat = data.reshape(len(data), -1)
        columns = {f"column {j}": flat[:, j] for j in range(min(flat.shape[1], MOST_PAIRS))}
        return _Rows(len(data), lambda indices: data[list(indices)], _numbers(columns))
    if isinstance(data, list | tuple):
        columns = {"values": np.asarray(data)} if _is_flat(data) else {}
        kind = type(data)
        return _Rows(len(data), lambda indices: kind(data[i] for i in indices), _numbers(columns))
    if hasattr(data, "columns") and hasattr(data, "__len__"):  # a frame
        columns = {str(name): np.asarray(data[name]) for name in data.columns}
        take = data.iloc.__getitem__ if hasattr(data, "iloc") else data.__getitem__
        return _Rows(len(data), lambda indices: take(list(indices)), _numbers(columns))
    raise DataError(
        f"data must be a list, an array, a mapping of columns or a data frame, got a "
        f"{type(data).__name__}; pass pairs= of neighbouring data sets for anything else"
    )


def _is_flat(data: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float | np.number) for each in data)


def _numbers(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    # NaN is neither the least nor the largest
    return {
        name: np.nan_to_num(column.astype(np.float64))
        for name, column in columns.items()
        if column.ndim == 1 and column.dtype.kind in "biuf"
    }


def _pairs(data: Any, neighbors: str) -> list[tuple[str, Any, Any]]:
    """Return the data beside neighbours, in words and as data sets."""
    if neighbors not in ("add_remove", "replace_one"):
        raise DomainError(f"neighbors must be 'add_remove' or 'replace_one', got {neighbors!r}")
    rows = _rows(data)
    if rows.count < 2:
        raise DataError(f"an audit of given data needs at least two rows, got {rows.count}")
    ends = {
        name: (int(np.argmin(column)), int(np.argmax(column)))
        for name, column in rows.numbers.items()
    }
    everyone = range(rows.count)
    pairs: list[tuple[str, list[int]]] = []
    for name, (least, largest) in ends.items():
        for gone, come, which in ((largest, least, "largest"), (least, largest, "least")):
            if neighbors == "replace_one":
                words = f"the row of the {which} {name!r} exchanged for one of the other end"
                pairs.append((words, [come if i == gone else i for i in everyone]))
            else:
                words = f"without the row of the {which} {name!r}"
                pairs.append((words, [i for i in everyone if i != gone]))
    if neighbors == "replace_one":
        pairs.append(("the first row exchanged for the last", [rows.count - 1, *everyone[1:]]))
    else:
        pairs.append(("without the first row", list(everyone[1:])))
    # each neighbour once, so that no runs are spent on it twice
    distinct = {tuple(indices): words for words, indices in reversed(pairs)}
    chosen = [(words, list(indices)) for indices, words in reversed(distinct.items())]
    return [
        (f"the given data; {words}", data, rows.take(indices))
        for words, indices in chosen[:MOST_PAIRS]
    ]
