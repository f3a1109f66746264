"""Adaptive analyses: each step may depend on every value released before it."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from attrs import evolve

from accountants import Secret
from accountants.errors import BudgetError
from accountants.filters.sums import Amount
from accountants.rounding import Array, shown
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.charge import Charge
from adaptive_dp.graph.convert import number as numeric
from adaptive_dp.graph.convert import whole
from adaptive_dp.graph.errors import PlanError
from adaptive_dp.graph.fresh import fresh
from adaptive_dp.graph.handles import Handle, Released
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.roles import PublicSource
from adaptive_dp.graph.run import Run, rehearsed
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.session.account import Account, Inside, Sums
from adaptive_dp.session.begun import Begun, Step, asked
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.certificate import certificate_of
from adaptive_dp.session.declared import agree, declarations
from adaptive_dp.session.entries import costs_of, opening, part_of, placed, readable, spending
from adaptive_dp.session.forecast import Forecast, priced
from adaptive_dp.session.identity import Identities
from adaptive_dp.session.individual import Individuals
from adaptive_dp.session.kept import Kept
from adaptive_dp.session.known import Known, written
from adaptive_dp.session.ledger import Entry, Ledger, MemoryLedger
from adaptive_dp.session.needs import costs_for, needed, paid_nodes, pays
from adaptive_dp.session.opened import opened
from adaptive_dp.session.part import Part
from adaptive_dp.session.plans import Plans
from adaptive_dp.session.record import Record
from adaptive_dp.session.spends import grown
from adaptive_dp.session.state import state_text
from adaptive_dp.session.steps import Reading, history

T = TypeVar("T")


class Session:
    """A private analysis that is run step by step, under one budget.

    `run` takes the handles that a `Pipeline` takes, computes one and returns its value, which is
    public from then on: the next queries, and the noise that they are released with, may depend on
    it in any way. What a step may cost is decided before anything is computed, by a *filter*: it
    admits a step only if everything released so far together with it keeps the budget, whatever is
    chosen later. A step that does not fit is refused and changes nothing; a smaller one may follow.

    Parameters
    ----------
    budget
        What all steps together may cost.
    accountant
        In which currency costs add up, one with a filter theorem. ``"best"``, which is right for
        most, keeps three and goes on while one of them lasts; who knows which it will be saves a
        few percent by saying so: ``"gaussian"`` (only Gaussian noise), ``"renyi"``,
        ``"concentrated"``, ``"advanced"``, ``"basic"`` (epsilons add). Or ``"individual"``: squares
        of mu as under ``"gaussian"``, but each record has the budget for itself, and leaves unseen
        when it is spent.
    ledger
        Where spends are recorded: the path of an SQLite file, a URL, or a `Ledger`. A session that
        is opened on a ledger which is already there goes on where that stands. None keeps no
        record beyond the session's life.
    seed
        None for noise from the operating system. With a number the session is a simulation, never
        for release, and cannot have a ledger.
    edition
        Which state of the data this is, such as ``"2024-06"``. That spends in different parts of
        a partition touch different people holds between sessions of one ledger only where all of
        them read the very same rows, in the same order. Sessions that give one edition say so;
        spends of sessions that do not add up, in whichever parts they are. With
        ``accountant="individual"`` a ledger is of one edition, which must be named.
    data
        For each data set, by its name, a frame or a mapping of column names to arrays. Columns are
        copied when they are first read, so that nobody moves to another part later.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> rows = {"age": [30.0, 40.0, 50.0] * 100}
    >>> with dp.Session(budget=dp.Budget(1.0), people=rows) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=5)))
    ...     edges = [0, 50, 100] if n < 1000 else [0, 20, 40, 60, 80, 100]
    ...     ages = people["age"].histogram(edges=edges)
    ...     counts = session.run(ages.release(dp.Laplace(scale=4)))
    ...     left = session.remaining
    >>> len(counts), round(left.costs[0], 6)
    (2, 0.55)
    """

    def __init__(
        self,
        /,
        *,
        budget: Budget,
        accountant: str = "best",
        ledger: Ledger | str | os.PathLike[str] | None = None,
        seed: int | None = None,
        edition: str | None = None,
        **data: Any,
    ) -> None:
        require(
            isinstance(budget, Budget),
            f"a session's budget must be a Budget such as Budget(1.0, 1e-6), got {budget!r}",
        )
        require(
            seed is None or ledger is None,
            "a simulation (seed=...) writes to no ledger: it is not for release",
        )
        number = None if seed is None else whole(seed)
        require(
            seed is None or (number is not None and number >= 0),
            f"a session's seed must be a whole number of at least 0, or None, got {seed!r}",
        )
        require(
            edition is None or (isinstance(edition, str) and edition != ""),
            f"a session's edition must be a text that names the state of the data, got {edition!r}",
        )
        self.budget, self.accountant, self._seed = budget, accountant, number
        self._edition = uuid4().hex if edition is None else edition
        self._account, self._kept = Account(budget, accountant), Kept(data)
        self._individuals: Individuals | None = None
        each = self._account.currency.individual
        if each is not None:
            require(
                ledger is None or edition is not None,
                "with accountant='individual' what records have spent is found by going through "
                "the ledger's steps again, on the very same rows: say edition='2024-06' for them",
            )
            self._individuals = Individuals(each, self._edition, self._kept)
        self._lock = threading.RLock()
        self._seen, self._head, self._closed = 0, "", False
        self._declared: dict[str, tuple[str, str]] = {}
        self._identities, self._record = Identities(), Record()
        self._known, self._begun = Known(), Begun()
        self._plans, self._offered = Plans(), set[str]()
        self._read, self._busy = 0, False
        self._steps: list[Entry] = []
        self._own: dict[int, tuple[Handle, Structure, Mapping[str, str], list[str]]] = {}
        self._ran: dict[int, Handle] = {}
        self._ledger: Ledger = MemoryLedger() if ledger is None else opened(ledger)
        self._ledger.spend(0, partial(opening, self._account))
        self._take(self._ledger.entries())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the data and of the ledger, in which what is left of the budget stays."""
        with self._lock:
            self._closed = True
            self._kept.clear()
            self._begun.clear()
            if self._individuals is not None:
                self._individuals.clear()
            self._ledger.close()

    def __repr__(self) -> str:
        kind = "" if self._seed is None else f"simulated with seed {self._seed}, "
        return f"<session: {kind}{self.budget}, {len(self._steps)} steps>"

    def __str__(self) -> str:
        with self._lock:
            if not self._closed:
                self._take(self._ledger.entries(self._seen))
            return state_text(self._account, len(self._steps), self._seed, closed=self._closed)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session holds private data and cannot be pickled; share its ledger")

    def run(self, handle: Released[T], *, name: str = "", again: bool = False) -> T:
        """Return the value of a handle, computed now; what it releases is public from here on.

        What was released before is not released again: the same mechanism on the same query gives
        the recorded value, at no cost. Samples are drawn afresh for each step that is paid for;
        random parts and groups stay what they are for the whole session.

        Parameters
        ----------
        handle
            A released handle; it may read others, run before or not.
        name
            What tables and the session's pipeline call it.
        again
            Release once more, with fresh noise, at its full cost. The recorded value, and what
            follows from it, stays the first.

        Raises
        ------
        InapplicableError
            If a loss has no price in the session's currency, with the accountants that price it.
        BudgetError
            If it does not fit into what is left: with what it asks, what remains, and the largest
            that would fit. Nothing is spent then, and nothing computed.
        LeakError, DeclarationError, DataError, RunError
            As for a plan. A `RunError` comes after the spend is recorded. A step that fails, or is
            interrupted, while it computes without noise is paid for: if this session runs it
            again, it goes on at no cost.
        """
        return self._run(handle, name, again, ())  # type: ignore[no-any-return]

    def what_if(self, handle: Released[T], *, again: bool = False) -> Forecast:
        """Return what a step would cost, and what it would leave; nothing is read or spent.

        Parameters
        ----------
        handle, again
            As `run` takes them.
        """
        return self._forecast(handle, again, ())

    def part(self, name: str, share: float) -> Part:
        """Return a sub-session that can spend at most a share of this session's budget.

        Parameters
        ----------
        name
            What the ledger calls it. A part of that name goes on where it stood.
        share
            In (0, 1]. Shares may sum to more than 1: each is a limit, and no part is promised that
            others leave it as much. The first spend in a part writes its share in the ledger, and
            so settles it.

        Raises
        ------
        DeclarationError
            If the part has another share, in this session or in the ledger.
        """
        return self._part(name, share, ())

    def _run(self, handle: Any, name: str, again: bool, part: Inside) -> Any:
        with self._lock:
            require(
                not self._busy,
                "a step is under way: its functions can start no other in the same session; run "
                "that one by itself",
            )
            plan, handle = self._asked(handle, again)
            structure = plan.structure
            keys = self._identities.of(structure)
            end = structure.of(handle)
            known, wanted = self._wanted(structure, keys, end, again)
            self._admit(structure)
            new = [n for n in structure if n.name in wanted and pays(n)]
            key = asked(keys, new, end, part, again)
            if key in self._begun:
                step, number = self._begun.take(key)
                self._kept.bind(step.run, step.keys, step.wanted)  # what others have drawn since
                return self._continued(key, step, number)
            charges = self._priced(structure, new)
            rehearsed(structure)
            run = Run(structure, self._seed)
            for known_name in known:
                node = structure.nodes[known_name]
                run.opened[known_name] = self._known.value(node, keys[known_name])
            self._kept.bind(run, keys, wanted)
            if self._individuals is not None and new:
                self._individuals.ready(structure)
            step = Step(structure, keys, wanted, new, end, run)
            number = 0
            if new:
                number = self._pay(plan, structure, new, name, part)
                run.round = (number,)
                self._own[number] = (handle, structure, keys, [node.name for node in new])
            if self._individuals is not None and new:
                with self._lasting(step):
                    self._individuals.compute(run, charges, wanted, number)
                self._finished(step, number)
                return fresh(run.open(end.name))
            return self._continued(key, step, number)

    def _continued(self, key: Any, step: Step, number: int) -> Any:
        """Return the value of a step, whose rest is computed; if interrupted it may go on."""
        done = False
        try:
            with self._lasting(step):
                step.compute()
            self._finished(step, number)
            done = True
        finally:
            if not done and step.new:
                self._begun.keep(key, step, number)
        return fresh(step.run.open(step.end.name))

    @contextmanager
    def _lasting(self, step: Step) -> Iterator[None]:
        """Keep what later steps read, whatever becomes of this one.

        It may be interrupted and go on after others, or have told its functions what it released:
        random parts that others drew anew would not be the same for the whole session.
        """
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            self._kept.keep(step.run, step.keys)
            self._read_openly(step.structure, step.wanted)

    def _finished(self, step: Step, number: int) -> None:
        """Record what was released."""
        if step.new:
            self._note(step.run, step.keys, step.new, number)

    def _priced(self, structure: Structure, new: Sequence[Node]) -> Sequence[Charge]:
        """Refuse a step that has no price for each record, where records have budgets."""
        if self._individuals is None:
            return ()
        return self._individuals.admit(structure, new, self._declared)

    def _asked(self, handle: Any, again: bool) -> tuple[Pipeline, Any]:
        """Return a step as a plan, with everything that others have spent taken in."""
        require(not self._closed, "the session is closed; open another one on its ledger")
        if again:
            require(
                isinstance(handle, Handle) and isinstance(handle.operation, Release | Loop),
                "again=True makes a release or a loop once more; ask for that handle itself",
            )
        require(
            not isinstance(handle, Mapping),
            "a step is one released handle, got a mapping; run each of its values, one after the "
            "other: they share the session's budget",
        )
        plan = Pipeline(value=handle)
        require(
            not plan.free,
            f"parameters are still free: {', '.join(sorted(plan.free))}; a session calibrates "
            "nothing: say dp.Laplace(scale=5)",
        )
        self._take(self._ledger.entries(self._seen))
        return plan, handle

    def _wanted(
        self, structure: Structure, keys: Mapping[str, str], end: Node, again: bool
    ) -> tuple[set[str], set[str]]:
        """Return the nodes whose values are known, and those to compute for ``end``."""
        known = {n.name for n in structure if self._known.has(n, keys[n.name])}
        known -= {end.name} if again else set()
        return known, needed(structure, end, known)

    def _forecast(self, handle: Any, again: bool, part: Inside) -> Forecast:
        with self._lock:
            plan, handle = self._asked(handle, again)
            structure = plan.structure
            keys = self._identities.of(structure)
            _, wanted = self._wanted(structure, keys, structure.of(handle), again)
            self._admit(structure)
            new = [n for n in structure if n.name in wanted and pays(n)]
            if asked(keys, new, structure.of(handle), part, again) in self._begun:
                new = []  # it is paid for
            bare = tuple(costs_for(structure, new))
            if self._individuals is None:
                priced(bare, self._account.currency.filter, self.accountant, self.budget)
            costs = placed(bare, self._edition)
            sums = self._account.sums(part)
            spends = sums.spends
            before = spends.worst()
            try:
                self._priced(structure, new)
                self._account.check(costs, part)
            except BudgetError as error:
                refusal = str(error)
                left = spends.keeps.remaining(before)
                cost = spends.keeps.spent(grown(before, spends.after(costs)))
                return Forecast(False, False, cost, left, self._reading(part), refusal)
            after = spends.after(costs)
            return Forecast(
                True,
                not new,
                spends.keeps.spent(grown(before, after)),
                spends.keeps.remaining(after),
                sums.epsilon(costs),
            )

    def _part(self, name: str, share: float, around: Inside) -> Part:
        value = numeric(share)
        require(
            isinstance(name, str) and name != "" and "/" not in name,
            f"a part's name must be a text without a slash, got {name!r}",
        )
        require(
            isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1,
            f"a part's share must be a number in (0, 1], got {share!r}",
        )
        require(
            self._individuals is None,
            "a session with accountant='individual' has no parts: a share of each record's budget "
            "would be spent unseen, and nobody could say what the others have left; open a "
            "session with a smaller budget and a ledger of its own",
        )
        with self._lock:
            self._take(self._ledger.entries(self._seen))
            return Part(self, self._account.opened(around, name, float(value)))

    def _admit(self, structure: Structure) -> None:
        """Refuse a data set that the session knows by another declaration."""
        agree(declarations(structure), self._declared)

    def _read_openly(self, structure: Structure, wanted: Collection[str]) -> None:
        """Remember what was read as public, which no later step may take for private."""
        for node in structure:
            if node.name in wanted and isinstance(node.handle.operation, PublicSource):
                name = node.handle.operation.name
                self._declared.setdefault(name, declarations(structure)[name])

    def _pay(
        self, plan: Pipeline, structure: Structure, new: Sequence[Node], name: str, part: Inside
    ) -> int:
        bare = tuple(costs_for(structure, new))
        priced(bare, self._account.currency.filter, self.accountant, self.budget)
        costs = placed(bare, self._edition)
        edition = self._edition

        def decide(others: Sequence[Entry]) -> Entry:
            self._take(others)
            self._admit(structure)
            self._priced(structure, new)
            self._account.check(costs, part)
            # here: what was offered by others meanwhile is not offered a second time
            offered = self._offered
            return spending(plan, new, bare, offered, name=name, part=part, edition=edition)

        appended = self._ledger.spend(self._seen, decide)
        self._take(appended[-1:])
        return int(appended[-1]["number"])

    def _note(self, run: Run, keys: Mapping[str, str], new: Sequence[Node], number: int) -> None:
        """Record what was released, for whoever asks for the same."""
        entry: Entry = {"kind": "release", "of": number, "values": written(run, keys, new)}

        def decide(others: Sequence[Entry]) -> Entry:
            self._take(others)
            return entry

        appended = self._ledger.spend(self._seen, decide)
        # only now: a value is known at no cost if the ledger says that it was released
        self._known.add(run, keys, new)
        self._take(appended[-1:])

    def _take(self, entries: Iterable[Entry]) -> None:
        """Take in entries of the ledger, in order."""
        for entry in entries:
            readable(entry, self._seen)
            if entry["kind"] == "spend":
                if self._individuals is not None:
                    self._individuals.take(entry)
                self._account.add(costs_of(entry), part_of(entry))
                for name, (digest, neighbors) in entry["data"].items():
                    self._declared.setdefault(name, (digest, neighbors))
                self._offered.update(entry["offers"].values())
                self._steps.append(entry)
            elif entry["kind"] == "release":
                self._known.take(entry["values"])
            # last: an interrupt before this line counts an entry twice, none is ever left out
            self._seen, self._head = self._seen + 1, entry["hash"]

    @property
    def remaining(self) -> Amount:
        """What is left in each of the filter's currencies, rounded down.

        With ``accountant="individual"``, what every record has left at least, by what is declared:
        at 0 some may have left the sums, and steps go on.
        """
        return self._left(())

    @property
    def spent(self) -> Amount:
        """What is spent in each of the filter's currencies, rounded up.

        With ``accountant="individual"``, what no record has spent more than, by what is declared.
        """
        return self._gone(())

    @property
    def epsilon(self) -> float:
        """What was spent so far, as an epsilon at the budget's delta: the odometer's reading.

        It holds however the analyst chose when to stop, by the theorem of the odometer, and is
        never above the budget's, which the filter keeps. Being true at any time, it rises faster
        than what is spent: `remaining` says what still fits. With ``accountant="individual"`` it is
        the budget's: what was spent of it is private.
        """
        return self._reading(())

    @property
    def records(self) -> Secret[Array]:
        """What each record has spent, in squares of mu, where records have budgets.

        Shape (units,), in the order in which units first appear in the data. It is as private as
        they are: whoever opens it (`reveal`) may check the data's keeper, and must
        neither publish what is seen nor choose a step by it, which no budget covers.

        Raises
        ------
        DeclarationError
            If records have no budgets of their own here, or nothing was run yet.
        """
        with self._lock:
            require(
                self._individuals is not None and not self._closed,
                "what each record has spent is kept by open sessions with accountant='individual'",
            )
            assert self._individuals is not None
            self._take(self._ledger.entries(self._seen))
            return self._individuals.spent()

    def history(self) -> tuple[Reading, ...]:
        """Return what was spent after each step: of the filter's budget, and by the odometer.

        Steps that other sessions of the ledger paid for are among them.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}) as session:
        ...     n = session.run(people.count().release(dp.Laplace(scale=4)), name="first")
        ...     [(reading.step, round(reading.epsilon, 6)) for reading in session.history()]
        [('first', 0.25)]
        """
        with self._lock:
            self._take(self._ledger.entries(self._seen))
            return tuple(history(self.budget, self.accountant, self._steps))

    def _sums(self, part: Inside) -> Sums:
        self._take(self._ledger.entries(self._seen))
        return self._account.sums(part)

    def _left(self, part: Inside) -> Amount:
        with self._lock:
            return self._sums(part).remaining()

    def _gone(self, part: Inside) -> Amount:
        with self._lock:
            return self._sums(part).spent()

    def _reading(self, part: Inside) -> float:
        with self._lock:
            return self._sums(part).epsilon()

    @property
    def pipeline(self) -> Pipeline:
        """All that was run under this budget, as one plan, in order.

        What other sessions of the ledger ran is read from there. Each step may depend on all that
        was released before: in the graph, dashed edges of the kind ``"adaptive"`` lead from each
        step to the next.

        Raises
        ------
        DocumentError
            If a step of another session cannot be read here, such as one with an own mechanism.
        """
        with self._lock:
            self._take(self._ledger.entries(self._seen))
            return self._whole()

    def _whole(self) -> Pipeline:
        """Return what was run as far as the ledger was read."""
        require(bool(self._steps), "the session has run nothing yet")
        names: dict[str, Handle] = {}
        for i, entry in enumerate(self._steps, 1):
            number, title = entry["number"], entry["name"]
            name, k = title or f"step {i}", 1
            while name in names:
                k += 1
                name = f"{title or f'step {i}'} ({k})"
            if number not in self._ran:
                step = self._step(entry)
                self._ran[number] = self._record.add(*step)
                self._own.pop(number, None)
            names[name] = self._ran[number]
        return Pipeline.of(
            [((name,), handle) for name, handle in names.items()],
            self.budget.delta,
            adaptive=tuple(names),
        )

    def _step(self, entry: Entry) -> tuple[Handle, Structure, Mapping[str, str], list[str]]:
        """Return a step as `Record.add` takes it; what another session ran is read."""
        own = self._own.get(entry["number"])
        if own is not None:
            return own
        for before in self._steps[self._read : self._steps.index(entry)]:
            with suppress(PlanError):  # an own mechanism: only who reads that step needs it
                self._plans.read(before)
            self._read += 1
        plan = self._plans.read(entry)
        self._read += 1
        (_, handle), *_ = plan.outputs
        keys = self._identities.of(plan.structure)
        paid = [node.name for node in paid_nodes(plan.structure, entry["releases"])]
        return handle, plan.structure, keys, paid

    def audit(
        self,
        /,
        *,
        samples: int = 20_000,
        confidence: float = 0.95,
        seed: int | None = None,
        **data: Any,
    ) -> Any:
        """Return an `adaptive_dp.audit.Audit`: a lower bound on what the steps leak, by experiment.

        What is audited is `pipeline`, all steps together, against what accountants certify of them
        as if they had been fixed before; a note names the session's certificate and what was spent.
        Each step is held fixed as it was chosen, whatever the audit's own runs release before it: a
        leak by how steps were chosen in view of earlier values is not seen (the filter's theorem
        covers that). The session's data are not read, nothing is spent, and nothing recorded.

        Parameters
        ----------
        samples, confidence, seed
            As for `Pipeline.audit`.
        data
            As for `Pipeline.audit`: data among which adversarial units are put, by the data sets'
            names; what the audit says is then as private as they are. Without, it is public.

        Raises
        ------
        DeclarationError
            If the session has run nothing.
        DocumentError
            If a step of another session cannot be read here, such as one with an own mechanism: an
            audit without it would be of another analysis.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}) as session:
        ...     n = session.run(people.count().release(dp.Laplace(scale=2)))
        ...     session.audit(samples=1_000, seed=1).verdict != "violation"
        True
        """
        with self._lock:
            plan, spent = self.pipeline, self.epsilon
        # its runs choose no step: what bounds losses that were fixed before holds of them
        fixed = Pipeline.of(plan.outputs, plan.delta)
        found = fixed.audit(samples=samples, confidence=confidence, seed=seed, **data)
        notes = (
            "each step is held fixed as it was chosen: how it was chosen is not audited",
            f"the session's certificate: epsilon {shown(self.budget.epsilon, upward=True)} at "
            f"delta {shown(self.budget.delta, upward=True)}, of which "
            f"{shown(spent, upward=True)} is spent",
        )
        return evolve(found, notes=(*found.notes, *notes))

    def certificate(self) -> Certificate:
        """Return what the session promises, and what was spent of it.

        The claim is the filter's: whatever the steps were, and whatever they will be, all values
        together keep the budget. Beside it stand the odometer's reading, what is left, and the last
        hash of the ledger. `adaptive_dp.verify` recomputes all of it from the steps.
        """
        with self._lock:
            self._take(self._ledger.entries(self._seen))  # once: others may be spending
            sums = self._account.sums(())
            return certificate_of(
                self._whole(),
                self.budget,
                self.accountant,
                spent=sums.spent(),
                remaining=sums.remaining(),
                epsilon=sums.epsilon(),
                head=self._head,
                entries=self._seen,
                seed=self._seed,
            )
