"""The private operations of which the graph must know more than that they are private.

Where data enters, where a unit's rows are bounded, sampled or parted: accounting, running and
certificates ask for what these bases promise, and queries implement them.
"""

from __future__ import annotations

from keyword import iskeyword
from typing import Any, ClassVar, Protocol

from adaptive_dp.graph.change import Change, Neighbors
from adaptive_dp.graph.handles import Handle, meant
from adaptive_dp.graph.operation import Color, Operation, require

RESERVED = (
    "self",
    "seed",
    "progress",
    "samples",
    "confidence",
    "budget",
    "accountant",
    "ledger",
    "edition",
)
"""What `Pipeline.run`, `simulate`, `audit` and `Session` call arguments of their own."""


def bindable(what: str, name: Any) -> None:
    """Refuse a name by which no run can bind data.

    Raises
    ------
    DeclarationError
        If it is no identifier, or an argument of `run` itself.
    """
    require(
        isinstance(name, str) and name.isidentifier() and not iskeyword(name),
        f"{what}'s name must be an identifier, got {name!r}: run(...) binds it by name",
    )
    require(
        name not in RESERVED,
        f"{what} cannot be named {name!r}, which run, simulate, audit or Session use themselves",
    )


class SourceOperation(Operation):
    """Where private data enters: bound by name when the plan runs."""

    name: str
    neighbors: Neighbors
    unit: str | None
    size: int | None

    def initial(self) -> Change:
        """Return the change that the neighbour relation makes here."""
        raise NotImplementedError(f"{type(self).__name__} must define initial")

    def bind(self, data: Any) -> Any:
        """Return the private value of ``data``, checked against the declaration.

        Raises
        ------
        DataError
            If the data's schema does not fit; the message depends on the schema only.
        """
        raise NotImplementedError(f"{type(self).__name__} must define bind")


class PublicSource(Operation):
    """Where data enters that everyone may see: bound by name when the plan runs."""

    color: ClassVar[Color] = "public"

    name: str

    def bind(self, data: Any) -> Any:
        """Return the value of ``data``, checked against the declaration.

        Raises
        ------
        DataError
            If it does not fit.
        """
        raise NotImplementedError(f"{type(self).__name__} must define bind")


class BoundOperation(Operation):
    """Where at most ``rows`` rows of each unit go on."""

    rows: int


class SampleOperation(Operation):
    """Where each unit goes on by itself, with probability ``rate``."""

    random: ClassVar[bool] = True

    rate: float


class PartitionOperation(Operation):
    """Where rows are parted by the column ``by``; its domain is a `PartsDomain`."""

    by: str


class PartOperation(Operation):
    """One part of the partition that it reads."""

    index: int


class PartsDomain(Protocol):
    """What is known of a partition's parts."""

    @property
    def keys(self) -> tuple[Any, ...]:
        """The parts' keys, in order."""
        ...

    @property
    def whole_units(self) -> bool:
        """Whether each unit lies in one part."""
        ...


def part_key(part: Handle) -> Any:
    """Return a part's key."""
    assert isinstance(part.operation, PartOperation)
    domain: PartsDomain = part.inputs[0].domain
    return domain.keys[part.operation.index]


def part_title(part: Handle) -> str:
    """Return a part's column and key, such as ``region = A``."""
    partition = meant(part.inputs[0]).operation
    assert isinstance(partition, PartitionOperation)
    return f"{partition.by} = {part_key(part)}"
