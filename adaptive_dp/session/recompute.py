"""Recomputing a ledger from its entries alone, on any machine, without trusting who wrote it.

The chain of hashes shows that entries are those that were written; this shows that what was written
is right:

- each spend costs at least what its plan costs, recomputed from the plan document, place by place,
  in every accounting unit of the session's filter;
- whatever a step computed was paid for in it, or released before;
- each recorded value belongs to a spend, and each spend has released once;
- the sums never exceed the budget, under the filter theorem of the first entry, and those of a part
  never exceed the share that its first spend gave it, which later spends repeat;
- a data set is declared once, and all protect units in the same sense;
- a budget was raised, and never lowered, and nothing was spent after the ledger was closed.

What it cannot show: whoever can write the ledger can replace all of it by another one that is
consistent, without the steps that no later step reads, or with declarations that do not describe
the data. Against the former, store the last hash elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from attrs import field, frozen

from accountants import AccountingError
from accountants.document import loads
from accountants.filters import SpentSums, UnitTotals
from accountants.individual import IndividualFilter
from accountants.numerics import bound, ceiling, declared
from adaptive_dp.graph.errors import DocumentError, LedgerError, PlanError
from adaptive_dp.graph.handles import Release
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.registry import permitted
from adaptive_dp.graph.verify import TOLERANCE
from adaptive_dp.session.budget import Account, Budget, Costs, PartPath, StepCosts, remaining_of
from adaptive_dp.session.entries import (
    FORMAT,
    GENESIS,
    KEEPER,
    Terms,
    broken_entries,
    check_format,
    costs_in,
    in_edition,
    part_in,
)
from adaptive_dp.session.individual import individual_releases
from adaptive_dp.session.plans import (
    LedgerPlans,
    check_declarations,
    costs_for,
    declarations,
    is_paid,
    paid_nodes,
    required_nodes,
)

_LEDGERS = "adaptive-dp/ledger/"
UNREADABLE = (
    PlanError,
    AccountingError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""Exceptions that an entry which is not of the declared form may raise when it is read."""


@frozen
class PartSpent:
    """What was spent in a part of a session, as recomputed.

    Parameters
    ----------
    share
        Its limit, as a fraction of the session's budget.
    epsilon
        What was spent in it, at its share of delta.
    left
        The remaining fraction of its limit, in the accounting unit that limits it or in the mass of
        delta; rounded down.
    """

    share: float
    epsilon: float
    left: float


@frozen
class Recomputed:
    """What a ledger has spent, recomputed, and why the ledger does not hold if it does not.

    Parameters
    ----------
    reasons
        Why the ledger does not hold, each with its entry; empty where it does.
    entries, spends
        How many there are.
    head
        The hash of the last entry: store it where those who write the ledger cannot change it.
    budget, theorem
        The session's budget and the filter's theorem; None and '' where the first entry cannot be
        read.
    epsilon
        What was spent, at the budget's delta, by the theorem of the odometer.
    left
        The remaining fraction of the budget, in the accounting unit that limits it or in the mass
        of delta; rounded down. Where each record has a budget of its own, that of a record that
        takes part in every step.
    spent, remaining
        Total and remaining cost in the accounting units of the filter.
    running
        For each spend, by its entry's number, the epsilon after it and the remaining fraction of
        the budget, as `left`.
    released
        The numbers of the spends whose values were released. Any other spend is paid for, and its
        session has stopped, or is computing, between the two entries.
    parts
        What was spent in each part, by its name.
    words
        What is left, in words.
    notes
        What its keeper did to the ledger, in lines: raised, restored or closed it.
    period, before
        What its budget is for, and the ledgers before it that it names: of each the period,
        epsilon, delta and the last hash.
    """

    reasons: tuple[str, ...]
    entries: int
    spends: int
    head: str
    budget: Budget | None = None
    theorem: str = ""
    epsilon: float = 0.0
    left: float = 1.0
    spent: UnitTotals | None = None
    remaining: UnitTotals | None = None
    running: dict[int, tuple[float, float]] = field(factory=dict)
    released: frozenset[int] = frozenset()
    parts: dict[str, PartSpent] = field(factory=dict)
    words: str = ""
    notes: tuple[str, ...] = ()
    period: str = ""
    before: tuple[tuple[str, float, float, str], ...] = ()

    @property
    def together(self) -> tuple[float, float] | None:
        """Epsilon and delta of this ledger's period and all before it, rounded up; None for one.

        By basic composition: each period's filter holds whatever the others have released, and it
        is the promise to a person who is in the data of all of them.
        """
        if not self.before or self.budget is None:
            return None
        epsilons = [declared(epsilon) for _, epsilon, _, _ in self.before]
        deltas = [Fraction(delta) for _, _, delta, _ in self.before]
        return (
            # what each period's filter admits: of a budget of 0.3, three tenths
            bound(sum(epsilons, declared(self.budget.epsilon))),
            ceiling(sum(deltas, Fraction(self.budget.delta))),
        )

    @property
    def holds(self) -> bool:
        """Whether the ledger holds: there is no reason against it."""
        return not self.reasons


def recomputed(
    entries: Sequence[Any], *, head: str | None = None, allow: Collection[str] = ()
) -> Recomputed:
    """Return whether the spends of a ledger follow from the plans in it.

    Parameters
    ----------
    entries
        As `Ledger.entries` returns them, or read from an export; nothing about them is trusted.
    head
        A hash that some entry had when it was the last: it must still be among the entries.
    allow
        Modules from which the plans' own mechanisms may be imported.

    Raises
    ------
    DeclarationError
        If ``allow`` is not a list of module names.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.session.ledger import MemoryLedger
    >>> people, ledger = dp.dataset("people", columns={}), MemoryLedger()
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=ledger, people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> result = recomputed(ledger.entries())
    >>> result.holds, round(result.epsilon, 6)
    (True, 0.25)
    """
    # only modules that the reader allows are imported; a ledger may name any
    modules = permitted(allow)
    # the chain first: a changed entry is reported even where its content is plausible
    reasons = [f"entry {i} is not what was written there" for i in broken_entries(entries)]
    hashes = [str(e.get("hash")) if isinstance(e, dict) else "" for e in entries]
    last = hashes[-1] if hashes else GENESIS
    # the hash of an earlier last entry must still be in the chain, or entries were cut off
    if head is not None and head not in (GENESIS, *hashes):
        reasons.append(f"no entry has the hash {head}: entries were cut off, or are others")
    # without a valid first entry there is neither a budget nor a filter to compare with
    replay: _Replay | None = None
    with _reported(reasons, "entry 0 opens no session"):
        replay = _Replay(entries[0] if entries else None, modules)
    if replay is None:
        return Recomputed(tuple(reasons), len(entries), 0, last)
    for i, entry in enumerate(entries[1:], 1):
        # one entry's error does not end the replay: all reasons are reported, and later spends
        # counted
        with _reported(reasons, f"entry {i} cannot be read"):
            reasons += [f"entry {i}: {reason}" for reason in replay.read(i, entry)]
    account, parts = replay.account, {}
    for name, share in sorted(account.settled.items()):
        totals = account.part_totals(name)
        parts[name] = PartSpent(share, totals.epsilon(), totals.remaining_share())
    return Recomputed(
        tuple(reasons),
        len(entries),
        len(replay.releases),
        last,
        account.budget,
        account.unit.theorem,
        account.session_totals.epsilon(),
        account.session_totals.remaining_share(),
        account.session_totals.spent(),
        account.session_totals.remaining(),
        replay.running,
        frozenset(replay.released),
        parts,
        remaining_of(account, (), replay.last).words,
        tuple(replay.terms.notes()),
        replay.period,
        replay.before,
    )


@contextmanager
def _reported(reasons: list[str], what: str) -> Iterator[None]:
    """Add to the reasons what could not be read, and why, instead of raising."""
    try:
        yield
    except UNREADABLE as error:
        # messages of the library are complete, those of Python need the name of their class
        named = isinstance(error, PlanError | AccountingError)
        reasons.append(f"{what}: {error}" if named else f"{what}: {type(error).__name__} {error}")


class _Replay:
    """The state that follows from the entries that were read so far.

    Entries are read in order, each against the state that follows from those before it: the session
    that appended it had no more to decide by.
    """

    def __init__(self, first: Any, modules: Collection[str]) -> None:
        if not isinstance(first, dict) or first.get("kind") != "open":
            raise DocumentError("it must be of the kind 'open'")
        self.terms = Terms.begun(first)
        self.period = str(first.get("period", ""))
        self.before = tuple(
            (str(name), float(epsilon), float(delta), str(head))
            for name, epsilon, delta, head in first.get("before", [])
        )
        for _, epsilon, delta, _ in self.before:
            Budget(epsilon, delta)  # refuses what is no budget
        # plans are read in the order of the entries: one may read nodes that earlier ones offer
        self.plans = LedgerPlans(modules)
        name = first["accountant"]
        self.account = Account(Budget(*first["budget"]), name)
        self.unit = self.account.unit
        self.filter = self.unit.filter
        # the theorem follows from the accountant's name; a ledger cannot claim another
        if first["theorem"] != self.unit.theorem:
            raise DocumentError(f"the theorem of {name!r} is {self.unit.theorem!r}")
        # number of a spend -> digests of the nodes that it paid for
        self.releases: dict[int, list[str]] = {}
        # digests of nodes with released values, which are public for all later steps
        self.public_digests: set[str] = set()
        # the numbers of the spends that have released
        self.released: set[int] = set()
        # Of runs whose releases are made in order, by the digest of the release that has begun one:
        # the places that a spend pays for, by its number; up to which place spends have paid; and
        # the places that were released
        self.places: dict[int, list[tuple[str, int]]] = {}
        self.paid_up_to: dict[str, int] = {}
        self.taken: set[tuple[str, int]] = set()
        self.declared: dict[str, tuple[str, str]] = {}
        self.running: dict[int, tuple[float, float]] = {}
        # the edition of the data of the first spend; individual budgets allow no second
        self.edition: Any = None
        # every step as it counts, to be counted again where the budget is raised
        self.steps: list[StepCosts] = []

    def read(self, number: int, entry: Any) -> list[str]:
        """Read the next entry, and return what is wrong with it."""
        kind = entry.get("kind") if isinstance(entry, dict) else None
        if kind == "release":
            return self._release(entry)
        if kind not in ("spend", *KEEPER):
            return [f"its kind is {kind!r}, and only the first entry opens a session"]
        reasons: list[str] = []
        with _reported(reasons, "it cannot come here"):
            self.terms = self.terms.after(entry)
            if kind == "budget":
                reasons += self._raised(entry)
            if kind == "restore" and entry.get("entries") != number:
                reasons.append(f"it tells of {entry.get('entries')!r} entries before it")
        return [*reasons, *(self._spend(number, entry) if kind == "spend" else [])]

    def _raised(self, entry: dict[str, Any]) -> list[str]:
        """Count what was spent in a larger budget, and return what is wrong with it."""
        account = Account(self.terms.budget, self.terms.accountant)
        reasons = []
        if entry["theorem"] != account.unit.theorem:
            reasons.append(f"the theorem of {self.terms.accountant!r} is {account.unit.theorem!r}")
        within = self.account.session_totals.within_budget
        for _, costs, part in self.steps:
            account.add(costs, part)
        if within and not account.session_totals.within_budget:
            reasons.append("what was spent before does not fit into the larger budget")
        self.account = account
        self.unit, self.filter = account.unit, account.unit.filter
        return reasons

    @property
    def last(self) -> StepCosts | None:
        """The last step that was paid; None before the first."""
        return self.steps[-1] if self.steps else None

    def _spend(self, number: int, entry: dict[str, Any]) -> list[str]:
        digests = entry["releases"]
        # stored before anything can fail, so that a release of this entry is compared with it
        self.releases[number] = digests
        structure = self.plans.read(entry).structure
        # the nodes of its plan that the entry says it pays for
        new = paid_nodes(structure, digests)
        self.places[number] = _places(structure, new)
        for begun, place in self.places[number]:
            if place == self.paid_up_to.get(begun, 0) + 1:
                self.paid_up_to[begun] = place
        reasons = self._unpaid(structure, digests)
        if self.unit.individual is not None:
            reasons += self._individual(structure, new, entry, self.unit.individual)
        reasons += self._declares(structure, entry)
        unknown = len(digests) - len({node.digest for node in new})
        if unknown:
            reasons.append(f"{unknown} of its releases are not in its plan, or listed twice")
        # what the plan costs, recomputed from its mechanisms, in the edition that the entry names
        recomputed_costs = in_edition(costs_for(structure, new), str(entry["edition"]))
        claimed: Costs = ()
        with _reported(reasons, "its costs cannot be read"):
            claimed = costs_in(entry)
        short = self._short(claimed, recomputed_costs)
        reasons += short
        # an entry may claim more than its plan costs, and then more was spent; where it claims too
        # little, what its plan costs was spent
        costs = recomputed_costs if short else claimed
        part: PartPath = ()
        with _reported(reasons, "it is in no part"):
            claimed_part = part_in(entry)
            self.account.settle(claimed_part)
            # only now: a spend whose part contradicts earlier ones counts for the session alone
            part = claimed_part
        # each part around and the session have a budget; individual budgets refuse no step
        for name, sums in self.account.limits(part) if self.unit.refuses else ():
            try:
                sums.check(costs)
            except AccountingError as error:
                of = f" of the part {name!r}" if name else ""
                reasons.append(f"it does not fit into what was left{of}: {error}")
        # added even if it does not fit: the sums are of what was spent, admitted or not
        self.account.add(costs, part)
        title = str(entry.get("name") or f"step {len(self.steps) + 1}")
        self.steps.append((title, costs, part))
        totals = self.account.session_totals
        # the odometer after this entry, for a table of the session's course
        self.running[number] = totals.epsilon(), totals.remaining_share()
        return reasons

    def _release(self, entry: dict[str, Any]) -> list[str]:
        of = entry["of"]
        # `type`, since True would pass as the number 1
        if type(of) is not int or of not in self.releases:
            return [f"it releases for entry {of!r}, which is not a spend before it"]
        reasons = []
        # one payment covers one draw of noise; a second set of values would be a second release
        if of in self.released:
            reasons.append(f"entry {of} has released before, and was paid for once")
        for begun, place in self.places.get(of, ()):
            # A run pays for one release in each place: a second one would be free. One that was
            # paid for may be missing: its session was interrupted while it was drawn or recorded
            if (begun, place) in self.taken or place > self.paid_up_to.get(begun, 0):
                reasons.append(f"it releases in place {place} of a run, and the next one was due")
            self.taken.add((begun, place))
        self.released.add(of)
        self.public_digests.update(self.releases[of])
        # a session digest begins with the node's digest, 64 hexadecimal digits (`SessionDigests`)
        if not {key[:64] for key in entry["values"]} <= set(self.releases[of]):
            reasons.append(f"it has values that entry {of} did not pay for")
        return reasons

    def _unpaid(self, structure: Structure, digests: Sequence[str]) -> list[str]:
        """Return what a step computes without paying for it, and that was not released before.

        What was paid for but not released (its process was killed) has a value in no session: a
        step that needs it pays again.
        """
        # a node that this step pays for again is computed, though an earlier value is public
        before = self.public_digests - set(digests)
        available = [node.name for node in structure if is_paid(node) and node.digest in before]
        # all that the outputs read, back to values that are public already
        reads = required_nodes(structure, [n for n in structure if n.outputs], available)
        return [
            f"it computes {node.name!r}, which is not paid for"
            for node in structure
            # neither public nor paid for: the release would be drawn at no cost
            if node.name in reads and is_paid(node) and node.digest not in digests
        ]

    def _individual(
        self,
        structure: Structure,
        new: Sequence[Node],
        entry: dict[str, Any],
        limit: IndividualFilter,
    ) -> list[str]:
        """Return why a step has no cost for each record, or was made on other data."""
        reasons = []
        # the first spend fixes the edition: records are only identified within one
        self.edition = entry["edition"] if self.edition is None else self.edition
        if entry["edition"] != self.edition:
            reasons.append(f"its edition is not that of the spends before it, {self.edition!r}")
        try:
            individual_releases(structure, new, self.declared, limit)
        except (PlanError, AccountingError) as error:
            reasons.append(str(error))
        return reasons

    def _declares(self, structure: Structure, entry: dict[str, Any]) -> list[str]:
        """Return which data sets are declared differently than before, or than the entry says."""
        declared = declarations(structure)
        reasons = []
        if entry["data"] != {name: list(each) for name, each in declared.items()}:
            reasons.append("the declarations that it names are not those of its plan")
        try:
            check_declarations(declared, self.declared)
        except PlanError as error:
            reasons.append(f"{error}: their costs do not add up to one promise")
        # the first declaration of a data set stays, so that a later one is compared with it
        self.declared = declared | self.declared
        return reasons

    def _short(self, claimed: Costs, recomputed_costs: Costs) -> list[str]:
        """Return why the costs of an entry do not cover those of its plan, at each place."""
        # sums by place: the same losses may be listed in another order, or several as one
        expected, sums = self._sums(recomputed_costs), self._sums(claimed)
        zero = self.filter.start()
        short = [p for p, least in expected.items() if not _covers(sums.get(p, zero), least)]
        # a cost at a place that the plan does not touch would use up budget that no step has spent
        other = [p for p in sums if p not in expected]
        reasons = []
        if short:
            loss = next(loss for place, loss in recomputed_costs if place in short)
            reasons.append(f"its costs are too small: the plan costs {loss!r}, and less is claimed")
        if other:
            reasons.append("it claims costs at places that its plan does not touch")
        return reasons

    def _sums(self, costs: Costs) -> dict[Any, SpentSums]:
        zero, totals = self.filter.start(), dict[Any, SpentSums]()
        for place, loss in costs:
            before = totals.get(place, zero)
            # exact sums of costs and delta floors, as the filter adds them
            totals[place] = before.add(self.filter.costs(loss), loss.delta_floor(), 1)
        return totals


def _places(structure: Structure, new: Sequence[Node]) -> list[tuple[str, int]]:
    """Return which places of runs a step takes, in order: the run's digest, and the place."""
    places = []
    for node in new:
        operation = node.handle.operation
        if isinstance(operation, Release) and operation.mechanism.ordinal:
            begun = structure.of(node.handle.inputs[1])
            places.append((begun.digest, operation.mechanism.ordinal))
    return sorted(places)


def _covers(above: SpentSums, below: SpentSums) -> bool:
    # a >= b up to a relative TOLERANCE, for the rounding of other versions of NumPy and SciPy
    pairs = zip((*above.sums, above.delta_floor), (*below.sums, below.delta_floor), strict=True)
    return all(a * (1 + Fraction(TOLERANCE)) >= b for a, b in pairs)


def exported(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a ledger as one document: all that `recomputed` needs.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.session.ledger import MemoryLedger
    >>> people, ledger = dp.dataset("people", columns={}), MemoryLedger()
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=ledger, people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> document = exported(ledger.entries())
    >>> sorted(document), document["head"] == ledger.entries()[-1]["hash"]
    (['entries', 'format', 'head'], True)
    """
    head = entries[-1]["hash"] if entries else GENESIS
    # of its first entry, where that is readable: an entry further on may say that it was migrated
    first = entries[0].get("format") if entries else FORMAT
    return {"format": first or FORMAT, "head": head, "entries": list(entries)}


def imported(text: str) -> list[Any] | None:
    """Return the entries of an export, one document or an entry a line; None where it is neither.

    Examples
    --------
    >>> import json
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.session.ledger import MemoryLedger
    >>> people, ledger = dp.dataset("people", columns={}), MemoryLedger()
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=ledger, people={"id": [1, 2, 3]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> imported(json.dumps(exported(ledger.entries()))) == ledger.entries()
    True
    >>> imported("no ledger") is None
    True
    """
    # two forms: one document with the list of entries, or one entry a line (JSON lines)
    try:
        document = loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and str(document.get("format")).startswith(_LEDGERS):
        check_format(document["format"])
        # an entry a line, with the first entry alone, parses as one document too
        if "entries" not in document:
            return [document] if document.get("kind") == "open" else None
        entries = document["entries"]
        if not isinstance(entries, list):
            raise DocumentError("the entries of a ledger's export must be a list")
        return entries
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        first = loads(lines[0]) if lines else None
        if not isinstance(first, dict) or not str(first.get("format")).startswith(_LEDGERS):
            return None
        check_format(first["format"])
        return [first, *map(loads, lines[1:])]
    except (ValueError, RecursionError) as error:
        # an error only where the text looks like a ledger; else the caller tries other forms
        if document is None and text.lstrip().startswith('{"') and _LEDGERS in lines[0]:
            raise LedgerError(f"a line of the ledger's export is not JSON: {error}") from None
        return None
