"""What each record of a session has spent: a function of the data and of the public history.

It is never stored and never told. Each spend of the ledger names a plan; what it costs each record
follows from that record's own rows, so that every session on the same data computes the same
state from the entries, in their order, whoever wrote them. What leaves a session (errors,
forecasts, what is left, certificates, the ledger) follows from the plans alone.
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
from accountants.filters.individual import IndividualFilter, IndividualState
from accountants.rounding import Array
from adaptive_dp.graph.charge import Charge, releases
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.individual import POSSIBLE, Price, Units, norms, price, release, units
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.roles import SourceOperation
from adaptive_dp.graph.run import Run, guarded
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.declared import Declarations, declarations
from adaptive_dp.session.identity import Identities
from adaptive_dp.session.kept import Kept
from adaptive_dp.session.ledger import Entry, require_ledger
from adaptive_dp.session.plans import Plans

INDIVIDUAL = "individual"
"""The accountant of sessions that keep a budget for each record."""

Active = dict[str, Secret[Units]]
"""Who takes part in each release, by its digest."""


@frozen(eq=False, repr=False)
class _State:
    """What the records of a data set, by its digest, have spent after so many spends."""

    spends: int
    source: str
    rows: Secret[Any]
    units: Secret[Units]
    spent: IndividualState


class Individuals:
    """The records of a session and what each has spent.

    Parameters
    ----------
    keeps
        The filter, the same for every record.
    edition
        Of the data.
    kept
        The session's data.
    """

    def __init__(self, keeps: IndividualFilter, edition: str, kept: Kept) -> None:
        self.filter = keeps
        self._edition, self._kept = edition, kept
        self._entries: list[Entry] = []
        self._state: _State | None = None
        self._identities, self._plans = Identities(), Plans()

    def clear(self) -> None:
        """Let go of everything."""
        self._entries.clear()
        self._state = None

    def take(self, entry: Entry) -> None:
        """Take in a spend of the ledger.

        Raises
        ------
        LedgerError
            If it was made on other data, of which nobody knows here who has spent what.
        """
        require_ledger(
            entry["edition"] == self._edition,
            f"entry {entry['number']} was spent on the edition {entry['edition']!r} of the data, "
            f"and this is {self._edition!r}; what each record has spent is known for one edition "
            "alone: open another ledger, with a budget of its own",
        )
        # whoever was interrupted takes an entry in again, and no record pays for it twice: other
        # sessions would find other records in the steps that follow
        if not self._entries or entry["number"] > self._entries[-1]["number"]:
            self._entries.append(entry)

    def admit(
        self, structure: Structure, new: Collection[Node], known: Declarations
    ) -> list[Charge]:
        """Return the charges of a step, or refuse one that has no price for each record.

        Raises
        ------
        InapplicableError, DeclarationError, BudgetError
            As `admitted`, by what is public alone.
        """
        return admitted(structure, new, known, self.filter)

    def ready(self, structure: Structure) -> None:
        """Refuse data of which single units cannot be left out, before anything is paid."""
        source = next(n for n in structure if isinstance(n.handle.operation, SourceOperation))
        if not callable(getattr(type(self._bound(structure, source).reveal()), "among", None)):
            raise InapplicableError(
                "records can leave the sums of data in memory alone; bind a frame or arrays"
            )

    def compute(
        self,
        run: Run,
        charges: Sequence[Charge],
        wanted: Collection[str],
        number: int,
    ) -> None:
        """Compute a step that was paid for by an entry: each release of who takes part in it."""
        active = self._replayed(number, run.structure) if charges else {}
        by_name = {charge.node.name: charge for charge in charges}
        for node in run.structure:
            if node.name not in wanted or node.loops or node.handle.color == "private":
                continue
            if node.name in by_name:
                assert self._state is not None
                release(run, by_name[node.name], self._state.rows, active[node.digest])
            else:
                run.value(node)

    def spent(self) -> Secret[Array]:
        """Return what each unit has spent, in squares of mu, in the order of first appearance."""
        if self._entries:
            self._replayed(None, None)
        if self._state is None:
            raise DeclarationError(
                "no step has read the data yet, so that there are no records; run one first"
            )
        rows, found = self._state.rows, self.filter.spent(self._state.spent)

        def ordered(spent: Array) -> Array:
            first = np.unique(rows.reveal().units, return_index=True)[1]
            return spent[np.argsort(first)]

        return found.map(ordered)

    def _replayed(self, number: int | None, structure: Structure | None) -> Active:
        """Bring the state up to an entry, or to the last; return who takes part in that one.

        The state is replaced once for each entry: whoever is interrupted goes on from there.
        """
        active: Active = {}
        for i, entry in enumerate(self._entries):
            if self._state is not None and i < self._state.spends:
                continue
            if number is not None and entry["number"] > number:
                break
            own = structure if entry["number"] == number else None
            if own is None:
                found = self._plans.read(entry).structure
            else:
                found = own
                self._plans.keep(entry, own)
            active = self._paid(found, entry["releases"])
        return active

    def _paid(self, structure: Structure, digests: Sequence[str]) -> Active:
        """Let each record pay an entry's releases, one after the other, or stay out."""
        charges = {c.node.digest: c for c in releases(structure)}
        before = self._state or self._opened(structure)
        state, active = before.spent, Active()
        for digest in digests:
            charge = charges.get(digest)
            require_ledger(
                charge is not None and charge.chain[0].digest == before.source,
                "a step was paid for that is not in its plan, or read other data",
            )
            assert charge is not None
            asked = price(charge)
            moved = norms(structure, charge, before.rows, before.units)
            state, active[digest] = guarded(
                charge.node.name, partial(self._pays, state, moved, asked, before.units)
            )
        self._state = evolve(before, spends=before.spends + 1, spent=state)
        return active

    def _pays(
        self, state: IndividualState, moved: Secret[Array], asked: Price, everyone: Secret[Units]
    ) -> tuple[IndividualState, Secret[Units]]:
        costs = self.filter.gaussian(moved, asked.sigma, asked.rounding)
        state, takes_part = self.filter.spend(state, costs)
        return state, Secret(everyone.reveal()[takes_part.reveal()])

    def _opened(self, structure: Structure) -> _State:
        source = next(n for n in structure if isinstance(n.handle.operation, SourceOperation))
        rows = self._bound(structure, source)
        everyone = units(rows)
        return _State(0, source.digest, rows, everyone, self.filter.start(len(everyone.reveal())))

    def _bound(self, structure: Structure, source: Node) -> Secret[Any]:
        """Return what is bound to the data set, the same for the whole session."""
        run = Run(structure, None)
        self._kept.bind(run, self._identities.of(structure), [source.name])
        return run.secrets[source.name]


def individual_filter(budget: Budget) -> IndividualFilter:
    """Return the filter that keeps a budget for each record.

    Raises
    ------
    DeclarationError, InapplicableError
        If the budget keeps a part of delta for failures, or has no delta.
    """
    if budget.failures:
        raise DeclarationError(
            f"the budget keeps {budget.failures!r} of its delta for mechanisms that may fail, "
            "and no release of accountant='individual' can; leave failures out"
        )
    return IndividualFilter.within(budget.epsilon, budget.delta)


def admitted(
    structure: Structure, new: Iterable[Node], known: Declarations, keeps: IndividualFilter
) -> list[Charge]:
    """Return the charges of nodes that are paid for, or refuse those without individual prices.

    Parameters
    ----------
    structure
        The plan.
    new
        The releases and loops.
    known
        Data sets that the session has read.
    keeps
        The filter of each record.

    Raises
    ------
    InapplicableError, DeclarationError
        If a release, or a loop, has no price for each record, or there are several data sets: a
        person may be in all of them, and whose sums add up nobody knows.
    BudgetError
        If no record could ever pay a release, of all that may contribute to it.
    """
    asked = {node.name for node in new}
    if any(isinstance(structure.nodes[name].handle.operation, Loop) for name in asked):
        raise InapplicableError(f"a loop has no price for each record by itself: {POSSIBLE}")
    charges = [c for c in releases(structure) if c.node.name in asked]
    for charge in charges:
        _affordable(charge, keeps.mu)
    every: Mapping[str, tuple[str, str]] = {**declarations(structure), **known}
    private = sorted(name for name, (_, neighbors) in every.items() if neighbors != "public")
    if len(private) > 1:
        raise DeclarationError(
            f"with accountant='individual' a session reads one data set, got {private}: of which "
            "record of the one belongs to which of the other nothing is known; use "
            "accountant='gaussian'"
        )
    return charges


def _affordable(charge: Charge, mu: float) -> None:
    asked = price(charge)
    least = asked.least / asked.sigma
    if least > mu:
        enough = asked.least / mu if mu else math.inf
        raise BudgetError(
            f"{charge.node.name!r}: whoever contributes moves it by at least {asked.least:g}, "
            f"{least:.4g} sigma, and each record has {mu:.4g} at most: nobody could take part; "
            f"sigma must be at least {enough:.4g}"
        )
