"""What ``adaptive-dp list`` prints."""

from __future__ import annotations

import json
from argparse import Namespace

from attrs import asdict

from adaptive_dp.cli.output import say
from adaptive_dp.graph.table import table
from adaptive_dp.graph.visible import visible
from adaptive_dp.plugins import KINDS, Listed, listed


def parts(options: Namespace) -> int:
    """Print the parts of a kind, or of all kinds: name, distribution, theorem."""
    found = {kind: listed(kind) for kind in ([options.kind] if options.kind else KINDS)}
    if options.json:
        say(json.dumps({kind: [asdict(one) for one in every] for kind, every in found.items()}))
        return 0
    say("\n\n".join(_table(kind, every) for kind, every in found.items()))
    return 0


def _table(kind: str, every: list[Listed]) -> str:
    """Return a table of the parts, then the plug-ins that cannot be used, with the reason."""
    rows = [
        tuple(map(visible, (one.name, f"{one.distribution} {one.version}", one.theorem)))
        for one in every
        if not one.problem
    ]
    problems = [f"BROKEN: {visible(one.problem)}" for one in every if one.problem]
    return "\n".join([table((kind, "from", "theorem"), rows, whole=True), *problems])
