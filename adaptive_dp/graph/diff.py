"""What differs between two plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from adaptive_dp.graph.structure import Node, Structure


def diff(old: Structure, new: Structure) -> str:
    """Return one line for each difference: ``-`` gone, ``+`` new, ``~`` changed; empty if none.

    Nodes are compared by digest, so equal nodes under other names do not differ; a node of
    the same name whose own operation differs is changed.
    """
    return "\n".join(_lines(old, new))


def _lines(old: Structure, new: Structure) -> Iterator[str]:
    before, after = Counter(n.digest for n in old), Counter(n.digest for n in new)
    gone = [n for n in old if before[n.digest] > after[n.digest]]
    come = {n.name: n for n in new if after[n.digest] > before[n.digest]}
    for node in gone:
        other = come.get(node.name)
        if other is None:
            yield f"- {node.name}: {_text(node)}"
        elif _text(node) != _text(other):
            yield f"~ {node.name}: {_text(node)} -> {_text(other)}"
            come.pop(node.name)
        else:  # the node is the same, what it reads is not: that shows upstream
            come.pop(node.name)
    for node in come.values():
        yield f"+ {node.name}: {_text(node)}"
    paths = [{path: n.name for n in s for path in n.outputs} for s in (old, new)]
    for path in sorted(set(paths[0]) ^ set(paths[1])):
        yield f"{'-' if path in paths[0] else '+'} output {'.'.join(path)}"


def _text(node: Node) -> str:
    return f"{node.handle.operation.kind} {node.handle.operation.text()}"
