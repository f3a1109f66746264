"""Rows that stand out, for audits by one run: each is planted, or left out, by a coin of its own.

None of them changes what an audit may conclude. They change how much it finds: best are rows whose
gradients are long and at right angles to each other, or that move an answer by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountants.errors import DomainError, whole
from adaptive_dp.audit.sides import checked
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.operation import require
from adaptive_dp.queries.domains import Categories, Interval, Table

Canaries = dict[str, NDArray[Any]]


def corners(table: Handle, count: int, *, seed: int | None = None) -> Canaries:
    """Return rows at random corners of what a data set declares; they know no data.

    A number is its lower or upper bound, a category any of the declared, each with equal chances:
    of many numbers, gradients then point in random directions, nearly at right angles.

    Parameters
    ----------
    table
        A data set, all of whose columns but the unit's have bounds or categories.
    count
        m, how many rows.
    seed
        Of the choices.

    Returns
    -------
    dict
        Columns of shape (m,), by name.

    Raises
    ------
    DeclarationError
        If a column has neither bounds nor categories.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 90), "region": ["A", "B"]})
    >>> {name: column.tolist() for name, column in corners(people, 3, seed=0).items()}
    {'age': [90.0, 90.0, 90.0], 'region': ['A', 'A', 'A']}
    """
    domain = table.domain
    require(isinstance(domain, Table), f"corners are of a data set's rows, got {table!r}")
    m, draw = whole("count", count, least=1), np.random.default_rng(checked(seed))
    found = {}
    for name, declared in domain.columns.items():
        if name == domain.unit:
            continue
        require(
            declared is not None,
            f"column {name!r} of {domain.name!r} has neither bounds nor categories, so it has no "
            "corners; declare them, or make canaries of your own",
        )
        values: Sequence[Any] = ()
        if isinstance(declared, Interval):
            values = (declared.lower, declared.upper)
        elif isinstance(declared, Categories):
            values = declared.values
        found[name] = np.asarray(values)[draw.integers(len(values), size=m)]
    return found


def mislabeled(
    rows: Mapping[str, Any],
    target: str,
    values: Sequence[Any],
    count: int,
    *,
    seed: int | None = None,
) -> Canaries:
    """Return copies of rows with a label that is not theirs.

    For learners, copies of the data's own rows; for teachers that vote, copies of the questions,
    where one teacher's vote is to be moved.

    Parameters
    ----------
    rows
        Columns by name, each of shape (n,), the label's among them.
    target
        The label's column.
    values
        The labels that there are, at least two.
    count
        m, how many: each of another row, in random order; at most n.
    seed
        Of the choices.

    Raises
    ------
    DomainError
        If there are fewer rows than asked for, or fewer than two labels.

    Examples
    --------
    >>> mislabeled({"x": [1, 2, 3], "y": ["a", "b", "a"]}, "y", ["a", "b"], 3, seed=0)["y"].size
    3
    """
    columns = {name: np.asarray(column) for name, column in rows.items()}
    if target not in columns:
        raise DomainError(f"the label {target!r} is not among the columns {sorted(columns)}")
    known = list(values)
    size, m = len(columns[target]), whole("count", count, least=1)
    if len(known) < 2 or len(set(known)) < len(known):
        raise DomainError(f"values must be at least two different labels, got {len(known)}")
    if m > size:
        raise DomainError(f"count must be at most the number of rows, {size}, got {m}")
    if not set(columns[target].tolist()) <= set(known):
        raise DomainError(f"values must hold every label of the rows, got {len(known)} values")
    draw = np.random.default_rng(checked(seed))
    which = draw.permutation(size)[:m]
    found = {name: column[which] for name, column in columns.items()}
    steps = draw.integers(1, len(known), size=m)
    place = {label: i for i, label in enumerate(known)}
    pairs = zip(found[target].tolist(), steps.tolist(), strict=True)
    wrong = [known[(place[label] + step) % len(known)] for label, step in pairs]
    return {**found, target: np.asarray(wrong)}
