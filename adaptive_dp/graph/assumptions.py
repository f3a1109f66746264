"""What a certificate's claim rests on that no program can check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adaptive_dp.graph.charge import Charge
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.roles import SourceOperation
from adaptive_dp.graph.structure import Structure

ASSUMPTIONS = (
    "It covers one run of the plan: each further run on the same data costs as much again.",
    "The declared bounds, categories, sizes, filters and noise were chosen without looking at "
    "the private data, and the types of the data's columns depend on no one's values.",
    "Nothing about the data leaves by another way than the plan's releases: functions of "
    "released values reach no private data, and running times and memory are not observed.",
)


def assumptions(
    structure: Structure, charges: Sequence[Charge], samplers: Sequence[str]
) -> list[str]:
    """Return the assumptions as sentences: those of every plan, then those of this one."""
    found = list(ASSUMPTIONS)
    for node in structure:
        if isinstance(node.handle.operation, SourceOperation):
            found += _of_source(node.handle.operation)
    found += sorted({n.handle.operation.assumes() for c in charges for n in c.chain} - {""})
    mechanisms = {type(charge.mechanism) for charge in charges}
    own = [m.__name__ for m in mechanisms if not is_own(m)]
    if own:
        found.append(
            f"The losses that {', '.join(sorted(set(own)))} declare are true of what they release "
            "(mechanisms from outside of the library)."
        )
    libraries = sorted({name for m in mechanisms for name in m.libraries})
    if libraries:
        found.append(
            f"What {', '.join(libraries)} computes of losses, and draws as noise, is right (from "
            "outside of the library)."
        )
    if any("float64" in sampler for sampler in samplers):
        found.append(
            "Noise is drawn in float64: the theorems hold for real numbers, and the lowest bits of "
            "a released number may tell more than they promise."
        )
    return found


def _of_source(source: SourceOperation) -> Iterator[str]:
    if source.unit is not None:
        yield (
            f"In {source.name!r} all rows of whom to protect carry the same {source.unit!r}, no "
            "two of them share one, and this column itself is not released. Rows without one are "
            "not used."
        )
    if source.neighbors != "add_remove":
        yield f"The number of units of {source.name!r} is public."
