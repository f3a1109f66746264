"""What is computed in each group, as ``groups.agg(n=dp.count(), mean=dp.average("visits"))``."""

from __future__ import annotations

from typing import Literal

from attrs import frozen


@frozen
class Aggregate:
    """One aggregate of a group's rows, for `Groups.agg`: made by `count`, `sum` and `average`.

    Parameters
    ----------
    kind
        Which it is.
    column
        The column, but for a count.
    """

    kind: Literal["count", "sum", "average"]
    column: str = ""


def count() -> Aggregate:
    """Return the number of rows of each group.

    See Also
    --------
    Table.count : of a whole table.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
    >>> people.group_by("town").agg(people=dp.count())
    {'people': <released DiscreteLaplace(scale=noise)>}
    """
    return Aggregate("count")


def sum(column: str) -> Aggregate:
    """Return the sum of a column in each group.

    See Also
    --------
    Column.sum : of a whole table.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.sum("visits")
    Aggregate(kind='sum', column='visits')
    """
    return Aggregate("sum", column)


def average(column: str) -> Aggregate:
    """Return the average of a column in each group.

    See Also
    --------
    Column.average : of a whole table.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.average("visits")
    Aggregate(kind='average', column='visits')
    """
    return Aggregate("average", column)
