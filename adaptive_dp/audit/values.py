"""A query's private value on a data set, for audits and tests on made-up data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountants.secret import Secret
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.run import Run, bound
from adaptive_dp.graph.steps import Release


def released(plan: Pipeline, query: Handle | None = None) -> tuple[Handle, Handle]:
    """Return the release of a query in a plan, and the query; of the only one by default."""
    found = [n.handle for n in plan.structure if isinstance(n.handle.operation, Release)]
    release = next(h for h in found if query is None or h.inputs[0] is query)
    return release, release.inputs[0]


def value(plan: Pipeline, query: Handle, data: Mapping[str, Any], seed: int = 0) -> Any:
    """Return the private value of a query of a plan.

    Parameters
    ----------
    plan
        A plan in which the query is released.
    query
        The query's handle.
    data
        Made-up data, by the data sets' names.
    seed
        Of samples and releases that the query depends on.
    """
    structure = plan.structure
    run = Run(structure, seed)
    run.bind(bound(structure, {name: Secret(each) for name, each in data.items()}))
    target = structure.of(query)
    for node in structure:
        if not node.loops:
            run.value(node)
        if node.name == target.name:
            break
    return run.secrets[target.name].reveal()
