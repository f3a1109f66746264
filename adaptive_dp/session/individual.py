"""A budget for each record: what each has spent, and which of them take part in a step.

What a record has spent is a function of the data and of the public history. It is never written
anywhere and never released. Each spend of the ledger has a plan; what it costs each record follows
from that record's own rows, so that every session on the same data computes the same state from the
entries, in their order, whichever session wrote them. All that a session shows (errors, forecasts,
what remains, certificates, the ledger) follows from the plans alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import evolve, frozen

from accountants import Secret
from accountants.errors import BudgetError, InapplicableError
from accountants.individual import IndividualFilter, IndividualState
from accountants.numerics import Array
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import SourceOperation
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.nodes import Node, ReleaseNode, Structure
from adaptive_dp.graph.run import (
    SUPPORTED,
    Run,
    UnitCost,
    Units,
    compute_release,
    norms,
    run_guarded,
    unique_units,
    unit_cost,
)
from adaptive_dp.session.entries import Entry, unusable
from adaptive_dp.session.plans import Declarations, LedgerPlans, SessionDigests, declarations
from adaptive_dp.session.replay import DataCache

Active = dict[str, Secret[Units]]
"""Which units take part in each release, by its digest."""


@frozen(eq=False, repr=False)
class _State:
    """What the records of a data set have spent after some spends of the ledger.

    Parameters
    ----------
    spends
        How many spends are paid.
    source
        The digest of the data set's node.
    rows, units
        What is bound to it, and the units that have rows in it, in increasing order.
    spent
        What each unit has spent.
    """

    spends: int
    source: str
    rows: Secret[Any]
    units: Secret[Units]
    spent: IndividualState


class IndividualBudgets:
    """The records of a session and what each has spent.

    Parameters
    ----------
    limit
        The filter, the same for every record.
    edition
        Of the data.
    cache
        The session's data.
    """

    def __init__(self, limit: IndividualFilter, edition: str, cache: DataCache) -> None:
        self.filter = limit
        self._edition, self._cache = edition, cache
        # spends of the ledger, in order; the state is computed from them when it is needed
        self._entries: list[Entry] = []
        self._state: _State | None = None
        self._digests, self._plans = SessionDigests(), LedgerPlans()

    def clear(self) -> None:
        """Drop the spends, and the rows and units of the data."""
        self._entries.clear()
        self._state = None

    def read(self, entry: Entry) -> None:
        """Add a spend of the ledger, which records pay for when the state is next computed.

        Raises
        ------
        LedgerError
            If it was made on other data, so that what its records have spent cannot be computed.
        """
        # which record is which is certain only within one edition of the data
        if entry["edition"] != self._edition:
            raise unusable(
                f"entry {entry['number']} was spent on the edition {entry['edition']!r} of the "
                f"data, and this is {self._edition!r}; what each record has spent can be computed "
                "for one edition alone: open another ledger, with a budget of its own"
            )
        # A session that was interrupted may read an entry again. No record pays for it twice: other
        # sessions would leave other records out of the steps that follow.
        if not self._entries or entry["number"] > self._entries[-1]["number"]:
            self._entries.append(entry)

    def check_data(self, structure: Structure) -> None:
        """Refuse data whose single units cannot be left out, before anything is paid."""
        source = next(n for n in structure if isinstance(n.handle.operation, SourceOperation))
        if not callable(getattr(type(self._bound(structure, source).reveal()), "among", None)):
            # leaving a unit out needs its rows (`among`), which only data in memory has
            raise InapplicableError(
                "with accountant='individual' data must be in memory, so that single records can "
                "be left out; bind a frame or arrays"
            )

    def compute(
        self,
        run: Run,
        releases: Sequence[ReleaseNode],
        required: Collection[str],
        number: int,
    ) -> None:
        """Compute a step after its spend, each release over the units that take part.

        Parameters
        ----------
        run
            The step's.
        releases
            Those that the step pays for.
        required
            Names of the nodes to compute.
        number
            Of the entry of its spend.
        """
        # who takes part is decided by the spends up to this one, before anything of it is computed
        active = self._replay(number, run.structure) if releases else {}
        by_name = {release.name: release for release in releases}
        for node in run.structure:
            # private nodes are computed on the way to a release, over the rows of those who take
            # part
            if node.name not in required or node.loops or node.handle.visibility == "private":
                continue
            if node.name in by_name:
                assert self._state is not None
                compute_release(run, by_name[node.name], self._state.rows, active[node.digest])
            else:
                run.compute_node(node)

    def spent(self) -> Secret[Array]:
        """Return what each unit has spent, in squares of mu, in the order of first appearance.

        Raises
        ------
        DeclarationError
            If no step has read the data yet.
        """
        # every record pays all entries before the totals are read
        if self._entries:
            self._replay(None, None)
        if self._state is None:
            raise DeclarationError(
                "no step has read the data yet, so that there are no records; run one first"
            )
        rows, totals = self._state.rows, self.filter.spent(self._state.spent)

        def ordered(spent: Array) -> Array:
            # `np.unique` sorts the units; their first positions put them in the order of the data
            first = np.unique(rows.reveal().units, return_index=True)[1]
            return spent[np.argsort(first)]

        return totals.map(ordered)

    def _replay(self, number: int | None, structure: Structure | None) -> Active:
        """Bring the state up to an entry, or to the last; return who takes part in that one.

        The state is a value that is replaced once for each entry: after an interrupt in between,
        the next call starts the interrupted entry again, of which nothing was stored.

        Parameters
        ----------
        number
            Of the entry; None for the last.
        structure
            The plan of that entry, whose step is running; None where none is.
        """
        active: Active = {}
        for i, entry in enumerate(self._entries):
            # the first `spends` entries are in the state already
            if self._state is not None and i < self._state.spends:
                continue
            # later entries are of later steps, whose payments must not count here
            if number is not None and entry["number"] > number:
                break
            # the running step has its own structure; plans of others are read from the ledger
            if structure is not None and entry["number"] == number:
                paid = structure
                self._plans.remember(entry, paid)
            else:
                paid = self._plans.read(entry).structure
            active = self._pay(paid, entry["releases"])
        return active

    def _pay(self, structure: Structure, digests: Sequence[str]) -> Active:
        """Let each record pay an entry's releases, one after the other, or be left out."""
        releases = {release.digest: release for release in structure.releases}
        # the records start with nothing spent, when the first step reads the data
        before = self._state or self._start(structure)
        state, active = before.spent, Active()
        # in the order of the entry: a record that is left out of one release may pay a later one
        for digest in digests:
            release = releases.get(digest)
            if release is None or release.steps[0].digest != before.source:
                raise unusable("a step was paid for that is not in its plan, or read other data")
            cost = unit_cost(release)
            # how far each unit's own rows move the value: its individual sensitivity, private
            moved = norms(release, before.rows, before.units)
            # guarded: what an exception says could depend on a record
            state, active[digest] = run_guarded(
                release.name, partial(self._pay_or_leave_out, state, moved, cost, before.units)
            )
        # replaced at once, after all releases of the entry: an interrupt leaves the state before it
        self._state = evolve(before, spends=before.spends + 1, spent=state)
        return active

    def _pay_or_leave_out(
        self, state: IndividualState, moved: Secret[Array], cost: UnitCost, everyone: Secret[Units]
    ) -> tuple[IndividualState, Secret[Units]]:
        """Let each unit pay for its own contribution, before the release, or leave it out."""
        # in mu squared, rounded up: a record may only be charged too much
        costs = self.filter.gaussian(moved, cost.sigma, cost.rounding)
        state, takes_part = self.filter.spend(state, costs)
        # only units whose budget still covers the cost take part; the others' rows are left out
        return state, Secret(everyone.reveal()[takes_part.reveal()])

    def _start(self, structure: Structure) -> _State:
        source = next(n for n in structure if isinstance(n.handle.operation, SourceOperation))
        rows = self._bound(structure, source)
        everyone = unique_units(rows)
        return _State(0, source.digest, rows, everyone, self.filter.start(len(everyone.reveal())))

    def _bound(self, structure: Structure, source: Node) -> Secret[Any]:
        """Return what is bound to the data set, the same for all steps of the session."""
        # the cache binds the same value each time, so that all steps read the same records
        run = Run(structure, None)
        self._cache.bind(run, self._digests.of(structure), [source.name])
        return run.secrets[source.name]


def individual_releases(
    structure: Structure, new: Iterable[Node], earlier: Declarations, limit: IndividualFilter
) -> list[ReleaseNode]:
    """Return the releases among nodes, or refuse those that have no cost for each record.

    Parameters
    ----------
    structure
        The plan.
    new
        The releases and loops.
    earlier
        The declarations of the data sets that the session has read.
    limit
        The filter of each record.

    Raises
    ------
    InapplicableError, DeclarationError
        If a release, or a loop, has no cost for each record, or there are several data sets: one
        person may be in all of them, and nothing says which of their records are the same.
    BudgetError
        If no record that contributes to a release could ever pay for it.
    """
    names = {node.name for node in new}
    if any(isinstance(structure.nodes[name].handle.operation, Loop) for name in names):
        raise InapplicableError(f"a loop has no cost for each record by itself: {SUPPORTED}")
    releases = [each for each in structure.releases if each.name in names]
    for release in releases:
        _check_affordable(release, limit.mu)
    every: Mapping[str, tuple[str, str]] = {**declarations(structure), **earlier}
    # public data sets have no private records
    private = sorted(name for name, (_, neighbors) in every.items() if neighbors != "public")
    if len(private) > 1:
        raise DeclarationError(
            f"with accountant='individual' a session reads one data set, got {private}: nothing "
            "says which records of the one and of the other are the same person's; use "
            "accountant='gaussian'"
        )
    return releases


def _check_affordable(release: ReleaseNode, mu: float) -> None:
    cost = unit_cost(release)
    # the least that a contributing unit can move the value by, in units of sigma
    least = cost.least / cost.sigma
    # in mu: a record that contributes would pay at least this, and could never do so
    if least > mu:
        enough = cost.least / mu if mu else math.inf
        raise BudgetError(
            f"{release.name!r}: a record that contributes moves it by at least {cost.least:g}, "
            f"which is {least:.4g} sigma, and its budget is {mu:.4g}: no record could take part; "
            f"sigma must be at least {enough:.4g}"
        )
