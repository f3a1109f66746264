"""A subgraph under one name: a learner, which drawings open or close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from attrs import frozen

from adaptive_dp.graph.errors import LeakError
from adaptive_dp.graph.handles import Handle, Released, path
from adaptive_dp.graph.operation import Color, Operation
from adaptive_dp.noise.stream import Stream

T = TypeVar("T")


@frozen
class Group(Operation):
    """Its first input, unchanged; the nodes between the other inputs and it are the group."""

    kind: ClassVar[str] = "group"
    color: ClassVar[Color] = "released"
    alias: ClassVar[bool] = True

    name: str

    def label(self) -> str:
        """Return the group's name."""
        return self.name

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the result."""
        return inputs[0]


def group(name: str, result: Released[T], *boundary: Handle) -> Released[T]:
    """Return ``result``, with the nodes between ``boundary`` and it under one name.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> def share(part, whole):
    ...     return part / max(whole, 1)
    >>> every = people.count().release(dp.Laplace(scale=4))
    >>> old = people.filter(people["age"] >= 65).count().release(dp.Laplace(scale=4))
    >>> plan = dp.Pipeline(old=dp.group("share", dp.post(share, old, every), people))
    >>> [node for node in plan.graph if node.startswith("share.")]
    ['share.filter', 'share.count', 'share.noisy_count', 'share.count_2', 'share.noisy_count_2']
    """
    if result.color == "private":
        raise LeakError(f"group {name!r}: the result is private: {path(result)}")
    return Released(Group(name), (result, *boundary))
