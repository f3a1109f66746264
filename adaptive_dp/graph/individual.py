"""What each unit by itself would move of a release, and releases of some of the units.

A release qualifies that adds Gaussian noise to a sum over rows, on a way from the data on which
what becomes of a unit's rows hangs on those rows and on the plan alone (`Operation.alone`). Then
leaving out some units changes nothing of what the others add, and a unit that is in the sum moves
it by what its own rows add: see `accountants.filters.individual` for what follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import Secret
from accountants.errors import InapplicableError
from accountants.rounding import UNIT, Array, up
from adaptive_dp.graph.charge import Charge
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.run import Run, guarded
from adaptive_dp.graph.structure import Structure

Units = NDArray[np.int64]

POSSIBLE = (
    "what each record pays is known for dp.Gaussian releases of counts, sums, histograms and "
    "vector sums, of a data set with add_remove neighbours, after filters by constants, bounds of "
    "contributions, and partitions by a column; open a session with accountant='gaussian' for "
    "others"
)


@frozen
class Price:
    """How a unit's contribution becomes a mu: ``norm / sigma + rounding``; 0 for none.

    Parameters
    ----------
    sigma
        Of the noise, in the query's units.
    rounding
        The mu by which the mechanism's rounding moves apart values that differ.
    least
        The least norm of a contribution that is not 0, or 0 where none is known.
    """

    sigma: float
    rounding: float
    least: float


def price(charge: Charge) -> Price:
    """Return the price of a release, or refuse one of which it is not known what a unit moves.

    Raises
    ------
    InapplicableError
        With what is possible. It hangs on the plan alone.
    """
    mechanism, query = charge.mechanism, charge.chain[-1].handle
    assert isinstance(query.operation, Query)
    kind = type(query.operation)
    _need(charge, charge.source.neighbors == "add_remove", "the neighbours are not add_remove")
    _need(charge, not charge.node.loops, "it is released in a loop")
    _need(
        charge,
        mechanism.shifts and is_own(type(mechanism)) and len(charge.node.handle.inputs) == 1,
        f"{type(mechanism).__name__} does not add Gaussian noise to a sum",
    )
    for node in charge.chain[1:-1]:
        operation = node.handle.operation
        _need(
            charge,
            operation.alone and is_own(type(operation)) and not operation.random,
            f"after a {operation.kind}, what one unit moves may hang on others, or on chance",
        )
    _need(
        charge,
        all(len(node.handle.inputs) == 1 for node in charge.chain[1:]),
        "it reads released values beside the data; run them first, and compare with their number",
    )
    _need(
        charge,
        kind.contributions is not Query.contributions and is_own(type(query.operation)),
        f"a {query.operation.kind} is no plain sum over rows",
    )
    sigma, step = mechanism.deviation(), query.operation.step(query.domain)
    rounding = mechanism.cost(0.0, query.operation.dimension(query.domain), step).mu()
    assert sigma is not None
    assert rounding is not None
    return Price(sigma, up(rounding) if rounding else 0.0, step)


def norms(
    structure: Structure, charge: Charge, rows: Secret[Any], everyone: Secret[Units]
) -> Secret[Array]:
    """Return a bound of what each unit adds to a release's query, in l2.

    A unit's rows add at most the sum of what each of them adds (triangle inequality).

    Parameters
    ----------
    structure, charge
        The plan, and its release.
    rows
        What is bound to the data set.
    everyone
        Their `units`.

    Returns
    -------
    Secret array
        Shape (units,); 0 only where the unit moves nothing.
    """
    run = _way(structure, charge, rows)
    query = charge.chain[-1].handle.operation
    assert isinstance(query, Query)

    def added() -> Secret[Array]:
        names = everyone.reveal()
        whose, each = query.contributions(run.secrets[charge.chain[-2].name].reveal())
        index = np.searchsorted(names, whose)
        total, most = np.zeros(len(names)), np.ones(len(names))
        np.add.at(total, index, each)
        np.add.at(most, index, 1.0)
        # a float sum of k numbers is off by a relative k 2^-53; k of the unit's own rows, since
        # what a unit pays must not hang, by its last bit, on how many rows another one has
        return Secret(np.where(most > 2, total + total * (most * UNIT), total))

    return guarded(charge.node.name, added)


def release(run: Run, charge: Charge, rows: Secret[Any], active: Secret[Units]) -> None:
    """Compute a release in a run, of the units that are active and no others.

    Parameters
    ----------
    run
        Where what is released goes; its private values are not used.
    charge
        The release.
    rows
        What is bound to the data set.
    active
        Which units take part.
    """
    some = guarded(charge.node.name, lambda: Secret(rows.reveal().among(active.reveal())))
    of = _way(run.structure, charge, some, run.seed, run.round)
    of.value(charge.chain[-1])
    of.value(charge.node)
    run.opened[charge.node.name] = of.opened[charge.node.name]
    run.raw[charge.node.name] = of.raw[charge.node.name]


def units(rows: Secret[Any]) -> Secret[Units]:
    """Return the units of rows, in increasing order."""
    return guarded("data", lambda: Secret(np.unique(rows.reveal().units)))


def _way(
    structure: Structure,
    charge: Charge,
    rows: Secret[Any],
    seed: int | None = None,
    within: tuple[int, ...] = (),
) -> Run:
    """Return a run of what leads from the data to a release's query, on given rows."""
    run = Run(structure, seed)
    run.round = within
    run.bind({charge.chain[0].name: rows})
    for node in charge.chain[1:-1]:
        run.value(node)
    return run


def _need(charge: Charge, holds: bool, why: str) -> None:
    if not holds:
        raise InapplicableError(
            f"{charge.node.name!r} has no price for each record by itself: {why}. With "
            f"accountant='individual', {POSSIBLE}"
        )
