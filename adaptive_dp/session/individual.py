"""A budget for each record: what each has spent, and which of them take part in a step.

What a record has spent is a function of the data and of the public history. It is never stored and
never released. Each spend of the ledger has a plan; what it costs each record follows from that
record's own rows, so that every session on the same data computes the same state from the entries,
in their order, whichever session wrote them. What leaves a session (errors, forecasts, what
remains, certificates, the ledger) follows from the plans alone.
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
    """What the records of a data set, by its digest, have spent after so many spends."""

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
        # spends as the ledger gives them, in order; the state is computed from them when needed
        self._entries: list[Entry] = []
        self._state: _State | None = None
        self._digests, self._plans = SessionDigests(), LedgerPlans()

    def clear(self) -> None:
        """Let go of everything."""
        self._entries.clear()
        self._state = None

    def read(self, entry: Entry) -> None:
        """Take in a spend of the ledger.

        Raises
        ------
        LedgerError
            If it was made on other data, so that what its records have spent cannot be computed.
        """
        # what each record has spent is known for the rows of one edition only
        if entry["edition"] != self._edition:
            raise unusable(
                f"entry {entry['number']} was spent on the edition {entry['edition']!r} of the "
                f"data, and this is {self._edition!r}; what each record has spent is known for one "
                "edition alone: open another ledger, with a budget of its own"
            )
        # A session that was interrupted takes an entry in again, and no record pays for it twice:
        # other sessions would find other records in the steps that follow.
        if not self._entries or entry["number"] > self._entries[-1]["number"]:
            self._entries.append(entry)

    def paths(
        self, structure: Structure, new: Collection[Node], earlier: Declarations
    ) -> list[ReleaseNode]:
        """Return the releases of a step, or refuse one that has no price for each record.

        Raises
        ------
        InapplicableError, DeclarationError, BudgetError
            As `individual_releases`, by what is public alone.
        """
        return individual_releases(structure, new, earlier, self.filter)

    def check_data(self, structure: Structure) -> None:
        """Refuse data whose single units cannot be left out, before anything is paid."""
        source = next(n for n in structure if isinstance(n.handle.operation, SourceOperation))
        if not callable(getattr(type(self._bound(structure, source).reveal()), "among", None)):
            # leaving a unit out needs its rows (`among`), which only data in memory has
            raise InapplicableError(
                "records can leave the sums of data in memory alone; bind a frame or arrays"
            )

    def compute(
        self,
        run: Run,
        paths: Sequence[ReleaseNode],
        required: Collection[str],
        number: int,
    ) -> None:
        """Compute a step that was paid for by an entry, each release over those who take part."""
        # who takes part is decided by the spends up to this one, before anything of it is computed
        active = self._replay(number, run.structure) if paths else {}
        by_name = {path.name: path for path in paths}
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
        # everything up to the last entry is paid before the totals are read
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
        the next call goes on with the entry that was under way, of which nothing was kept.
        """
        active: Active = {}
        for i, entry in enumerate(self._entries):
            # the first `spends` entries are in the state already
            if self._state is not None and i < self._state.spends:
                continue
            # entries after the asked one are of later steps: their payments must not count here
            if number is not None and entry["number"] > number:
                break
            # a step that is running has its structure; others are read back from the ledger
            own = structure if entry["number"] == number else None
            if own is None:
                released = self._plans.read(entry).structure
            else:
                released = own
                self._plans.keep(entry, own)
            active = self._pay(released, entry["releases"])
        return active

    def _pay(self, structure: Structure, digests: Sequence[str]) -> Active:
        """Let each record pay an entry's releases, one after the other, or stay out."""
        paths = {c.digest: c for c in structure.releases}
        # the records start with nothing spent, when the first step reads the data
        before = self._state or self._start(structure)
        state, active = before.spent, Active()
        # in the order of the entry: a record that leaves one release may still pay for a later one
        for digest in digests:
            path = paths.get(digest)
            if path is None or path.steps[0].digest != before.source:
                raise unusable("a step was paid for that is not in its plan, or read other data")
            cost = unit_cost(path)
            # how far each unit's own rows move the value: the individual sensitivity, private
            moved = norms(path, before.rows, before.units)
            # an exception's text could tell about a record, so that the step runs guarded
            state, active[digest] = run_guarded(
                path.name, partial(self._pay_or_leave, state, moved, cost, before.units)
            )
        # replaced at once, after all releases of the entry: an interrupt leaves the state before it
        self._state = evolve(before, spends=before.spends + 1, spent=state)
        return active

    def _pay_or_leave(
        self, state: IndividualState, moved: Secret[Array], cost: UnitCost, everyone: Secret[Units]
    ) -> tuple[IndividualState, Secret[Units]]:
        """Let each unit pay, before the release, what its own contribution can move it by."""
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
        """Return what is bound to the data set, the same for the whole session."""
        # the cache binds the same value each time, so that all steps see the same records
        run = Run(structure, None)
        self._cache.bind(run, self._digests.of(structure), [source.name])
        return run.secrets[source.name]


def individual_releases(
    structure: Structure, new: Iterable[Node], earlier: Declarations, limit: IndividualFilter
) -> list[ReleaseNode]:
    """Return the releases among nodes with their paths, or refuse those without a price per record.

    Parameters
    ----------
    structure
        The plan.
    new
        The releases and loops.
    earlier
        Data sets that the session has read.
    limit
        The filter of each record.

    Raises
    ------
    InapplicableError, DeclarationError
        If a release, or a loop, has no price for each record, or there are several data sets: one
        person may be in all of them, and it is not known which of their records are the same.
    BudgetError
        If no record could ever pay a release, of all that may contribute to it.
    """
    names = {node.name for node in new}
    if any(isinstance(structure.nodes[name].handle.operation, Loop) for name in names):
        raise InapplicableError(f"a loop has no price for each record by itself: {SUPPORTED}")
    paths = [c for c in structure.releases if c.name in names]
    for path in paths:
        _check_affordable(path, limit.mu)
    every: Mapping[str, tuple[str, str]] = {**declarations(structure), **earlier}
    # public data sets hold nobody's records
    private = sorted(name for name, (_, neighbors) in every.items() if neighbors != "public")
    if len(private) > 1:
        raise DeclarationError(
            f"with accountant='individual' a session reads one data set, got {private}: which "
            "record of the one belongs to which of the other is not known; use "
            "accountant='gaussian'"
        )
    return paths


def _check_affordable(path: ReleaseNode, mu: float) -> None:
    cost = unit_cost(path)
    # the least that a contributing unit can move the value by, in units of sigma
    least = cost.least / cost.sigma
    # in mu: a record that contributes would pay at least this, and could never do so
    if least > mu:
        enough = cost.least / mu if mu else math.inf
        raise BudgetError(
            f"{path.name!r}: whoever contributes moves it by at least {cost.least:g}, "
            f"{least:.4g} sigma, and each record has {mu:.4g} at most: no record could take part; "
            f"sigma must be at least {enough:.4g}"
        )
