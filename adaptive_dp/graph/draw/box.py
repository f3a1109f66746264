"""A box: what is drawn as one thing, and how a node, or several, become one.

What has no known color is drawn as private: the careful reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaptive_dp.graph.visible import visible

COLOURS = ("private", "released", "public")  # the most careful first

Path = tuple[str, ...]


@dataclass(frozen=True)
class Box:
    """What is drawn as one box; `count` is the number of nodes that it stands for."""

    kind: str
    label: str
    detail: str
    color: str
    group: Path
    outputs: Path
    share: float | None
    count: int = 1
    folded: bool = False

    def lines(self) -> list[str]:
        """Return the lines of text: the label, and whatever else there is to say."""
        named = [name for name in self.outputs if name != self.label]
        outputs = "→ " + ", ".join(named) if named else ""
        return [self.label, *(line for line in (self.detail, outputs) if line)]


def read(key: str, node: Mapping[str, Any]) -> Box:
    """Read a node's attributes; no text in a box breaks a line, hides or reorders."""
    color, share = node.get("color"), node.get("share")
    return Box(
        kind=visible(node.get("kind", "")),
        label=visible(node.get("label") or key),
        detail=visible(node.get("detail") or ""),
        color=color if color in COLOURS else "private",
        group=tuple(map(visible, node.get("group") or ())),
        outputs=tuple(map(visible, node.get("outputs") or ())),
        share=None if share is None else min(1.0, max(0.0, float(share))),
    )


def together(boxes: Sequence[Box]) -> Box:
    """Return one box for several: "… and N more"."""
    count = sum(box.count for box in boxes)
    shares = [box.share for box in boxes if box.share is not None]
    kinds, details = ({box.kind for box in boxes}, {box.detail for box in boxes if not box.folded})
    return Box(
        kind=kinds.pop() if len(kinds) == 1 else "several kinds",
        label=f"… and {count:,} more",
        detail=details.pop() if len(details) == 1 else "",
        color=careful(boxes),
        group=common([box.group for box in boxes]),
        outputs=(),
        share=min(1.0, sum(shares)) if shares else None,
        count=count,
        folded=True,
    )


def careful(boxes: Sequence[Box]) -> str:
    """Return the most careful of the colors."""
    return min((box.color for box in boxes), key=COLOURS.index)


def common(paths: Sequence[Path]) -> Path:
    """Return the longest path with which all of `paths` begin."""
    first, last = min(paths), max(paths)
    same = [a == b for a, b in zip(first, last, strict=False)]
    return first[: [*same, False].index(False)]
