"""Public rows with the features that teachers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import SchemaError, grid, read_rows
from adaptive_dp.graph.convert import number, texts, whole
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.roles import PublicSource, bindable
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Column
from adaptive_dp.queries.examples import ExamplesOf
from adaptive_dp.queries.source import reading


@frozen
class PointsDomain:
    """How many points there are, of how many features."""

    size: int
    width: int


@frozen
class Points(PublicSource):
    """Public rows, made into features as the private ones are; bound when the plan runs.

    Parameters
    ----------
    name
        By which a run binds them.
    size
        How many rows.
    features, norm, columns
        As the teachers have them.
    """

    kind: ClassVar[str] = "points"

    name: str
    size: int = field(converter=number)
    features: tuple[str, ...] = field(converter=texts)
    norm: float | None = field(default=None, converter=number)
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def __attrs_post_init__(self) -> None:
        bindable("points", self.name)
        found = whole(self.size)
        require(
            found is not None and 1 <= found <= 10**9,
            f"points' size must be a whole number of at least 1, got {self.size!r}",
        )
        missing = [name for name in self.features if self.columns.get(name) is None]
        require(
            bool(self.features) and not missing,
            f"points need at least one feature, each with bounds or categories; {missing!r} lack "
            "them",
        )

    def label(self) -> str:
        """Return the name."""
        return self.name

    def detail(self) -> str:
        """Return how many there are."""
        return f"{self.size} public rows"

    def domain(self, inputs: Sequence[Any]) -> PointsDomain:
        """Return how many there are, of how many features."""
        require(not inputs, "points have no inputs")
        made = _examples(self.features, self.norm, self.columns)
        return PointsDomain(self.size, len(made.scales()[0]))

    def bind(self, data: Any) -> NDArray[np.float64]:
        """Return the features, shape (size, width).

        Raises
        ------
        DataError
            If columns are missing, or there are more or fewer rows.
        """
        try:
            made = featured(data, self.features, self.norm, self.columns)
        except SchemaError as error:
            raise DataError(f"points {self.name!r}: {error}") from None
        if len(made) != self.size:
            raise DataError(
                f"points {self.name!r} are declared as {self.size} rows, got {len(made)}; pass so "
                "many, or declare the plan with another size"
            )
        return made

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds data."""
        raise DataError(f"nothing is bound to the points {self.name!r}; pass run({self.name}=...)")


def _examples(
    features: tuple[str, ...], norm: float | None, columns: Mapping[str, Column]
) -> ExamplesOf:
    # of the target only the length would be read
    return ExamplesOf(features, features[0], "class", norm, False, columns)


def featured(
    data: Any, features: tuple[str, ...], norm: float | None, columns: Mapping[str, Column]
) -> NDArray[np.float64]:
    """Return the features of rows in the data's own units, as teachers read them.

    Raises
    ------
    SchemaError
        If columns are missing.
    """
    found = read_rows(data, {name: reading(known) for name, known in columns.items()}, None)
    made = _examples(features, norm, columns)
    scales, norm = made.scales(), made.radius
    steps = found.integer_rows(lambda block: grid.ball_steps(made.vectors(block, scales), norm)[0])
    return np.asarray(steps * grid.ball(np.zeros((1, 1)), norm)[1], dtype=np.float64)
