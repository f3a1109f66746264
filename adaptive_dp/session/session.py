"""Adaptive analyses: each step may depend on every value released before it.

`Session.run` is a life cycle of six phases, in this order: admit, price, spend, compute, record,
release. `Session._run` below has them from top to bottom, and says at each why it comes where it
does. The order guarantees three things:

- a refusal changes nothing: no budget is spent, no value computed;
- a spend is durable before its value leaves: a crash can waste budget, never leak a value that is
  not paid for;
- a step that is interrupted where it draws nothing continues under its spend; one that may have
  drawn noise just then is paid for again.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn, TypeVar, overload
from uuid import uuid4

from attrs import evolve, field, frozen

from accountants import Secret
from accountants.errors import BudgetError
from accountants.filters import UnitTotals
from accountants.numerics import Array, ceiling, kept, shown
from adaptive_dp.graph.certificate import Certificate, table
from adaptive_dp.graph.errors import DeclarationError, LedgerError, PlanError, RunError
from adaptive_dp.graph.handles import Handle, PrivateQuery, PublicSource, Release, Released
from adaptive_dp.graph.loops import Loop, rewritten
from adaptive_dp.graph.nodes import Node, ReleaseNode, Structure
from adaptive_dp.graph.passes import in_run_order, turns
from adaptive_dp.graph.plan import Outputs, Pipeline, changed_handles, delta_of_keys
from adaptive_dp.graph.run import HiddenRun, Result, Run, rehearse, result_of
from adaptive_dp.graph.values import as_int, html_text
from adaptive_dp.graph.values import number as numeric
from adaptive_dp.session.budget import (
    Account,
    Budget,
    Costs,
    Forecast,
    PartPath,
    Reading,
    Remaining,
    StepCosts,
    StepLimit,
    Totals,
    check_price,
    difference,
    readings,
    remaining_of,
)
from adaptive_dp.session.certificate import certificate_of
from adaptive_dp.session.database import DatabaseLedger
from adaptive_dp.session.entries import (
    Entry,
    Terms,
    check_entry,
    check_head,
    costs_in,
    in_edition,
    of_user,
    open_entry,
    part_in,
    release_entry,
    spend_entry,
    told,
    unusable,
)
from adaptive_dp.session.generalization import Generalization, generalization_of
from adaptive_dp.session.individual import IndividualBudgets, individual_releases
from adaptive_dp.session.ledger import Ledger, MemoryLedger, create_ledger, open_ledger
from adaptive_dp.session.plans import (
    Declarations,
    EarlierNodes,
    Journal,
    LedgerPlans,
    SessionDigests,
    check_declarations,
    costs_for,
    declarations,
    declared_fields,
    is_paid,
    paid_nodes,
    required_nodes,
    written_fields,
)
from adaptive_dp.session.replay import DataCache, ReleasedValues, values_to_json
from adaptive_dp.session.sparse_vector import Holdout, OnlineSparseVector

T = TypeVar("T")


@frozen(eq=False, repr=False)
class _Request:
    """A step that the analyst asks for, before anything is spent.

    Parameters
    ----------
    plan
        What was asked for: one output for a handle, or the outputs of a plan.
    is_plan
        Whether a plan was asked for, so that a `Result` is returned and not a value.
    digests
        The session digest of each node.
    available
        Names of the nodes whose values were released before.
    required
        Names of the nodes to compute.
    new
        Those of them that the step pays for: releases and loops.
    data
        The declarations of the data sets above the output.
    part
        The part of the session that pays; () for none.
    again
        Whether a value that was released before is to be drawn again.
    solved
        Handles whose noise was free, and what is computed from them, with what replaces each.
    limit
        What the noise was solved for.
    """

    plan: Pipeline
    is_plan: bool
    digests: Mapping[str, str]
    available: Set[str]
    required: Set[str]
    new: Sequence[Node]
    data: Declarations
    part: PartPath
    again: bool
    solved: Mapping[Handle, Handle]
    limit: StepLimit

    @property
    def structure(self) -> Structure:
        """The plan's nodes."""
        return self.plan.structure

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies a request: one spend pays for requests with the same key."""
        paid = tuple(sorted(self.digests[node.name] for node in self.new))
        ends = [(path, self.structure.of(handle).name) for path, handle in self.plan.outputs]
        outputs = tuple((path, self.digests[name]) for path, name in ends)
        return paid, outputs, self.is_plan, self.part, self.again


@frozen(eq=False, repr=False)
class _Step:
    """A step that is being computed, and that may continue after an interruption.

    A spend pays for one draw of each of a step's mechanisms. What the step has computed, drawn
    values too, stays in `run`, where no caller sees it, and is never computed again: a step that
    continues has the same draws. Only the node that was interrupted starts again. If it draws at
    random (a mechanism, a sample, a loop of them), the interruption may depend on its first draw: a
    user's mechanism, say, may fail until its noise is small. The second draw would then be a second
    release, and must be paid for. So such a step does not continue, and its spend is lost.

    Parameters
    ----------
    request
        What was asked for.
    run
        The values so far.
    releases
        The releases that each record pays for by itself, where records have budgets.
    number
        Of its spend in the ledger; 0 for a step that pays for nothing.
    process
        In which it was begun, and which alone may release it. A function of the step can fork, and
        the copy of the step that a child has would release a second draw for one payment.
    """

    request: _Request
    run: Run
    releases: Sequence[ReleaseNode] = ()
    number: int = 0
    process: int = field(factory=os.getpid)

    def check_process(self) -> None:
        """Refuse to go on in a child that was forked while the step was computed.

        Raises
        ------
        LedgerError
            In such a child.
        """
        if self.process != os.getpid():
            raise unusable(
                "the process was forked while a step was computed, and the step is the parent's: "
                "its child releases nothing of it"
            )

    def compute(self) -> None:
        """Compute the nodes that have no value yet."""
        self.check_process()
        self.run.compute(self._nodes())

    @property
    def can_continue(self) -> bool:
        """Whether the step may continue: the node that was interrupted draws nothing.

        A step that has computed everything was interrupted while it was recorded. Whether the
        ledger has its values is not certain then, and they must not be recorded twice.
        """
        computed = self.run.public_values.keys() | self.run.secrets.keys()
        # nodes are computed in this order, so the first without a value was interrupted
        node = next((n for n in self._nodes() if n.name not in computed), None)
        if node is None:
            return False
        return not node.handle.operation.random or self.run.may_retake(node)

    def _nodes(self) -> list[Node]:
        structure, required = self.request.structure, self.request.required
        nodes = [n for n in structure if n.name in required and not n.loops]
        return in_run_order(nodes, turns(structure))


class Session:
    """A private analysis that is run step by step, under one budget.

    `run` takes the handles that a `Pipeline` takes, computes one and returns its value, which is
    public from then on: the next queries, and the noise that they are released with, may depend on
    it in any way. Whether a step fits is decided before anything is computed, by a *filter*: it
    admits a step only if everything released so far, together with the step, stays within the
    budget, however the steps were chosen. A step that does not fit is refused and changes nothing;
    a smaller one may follow.

    Parameters
    ----------
    budget
        What all steps together may cost.
    accountant
        In which accounting unit costs add up, one with a filter theorem. ``"best"``, which is right
        for most, adds up in three and admits steps while one of the three sums is within its
        limit; to name the right one saves a few percent: ``"gaussian"`` (only Gaussian noise),
        ``"renyi"``, ``"concentrated"``, ``"advanced"``, ``"basic"`` (epsilons add). Or
        ``"individual"``: squares of mu as under ``"gaussian"``, but each record has a budget of its
        own, and is left out unseen when that is spent.
    ledger
        Where spends are recorded: the path of an SQLite file, a URL, or a `Ledger`. The session
        continues with what remains of its budget. None records spends in memory, for the session's
        life alone.
    create
        True makes the ledger, with all of the budget, and refuses one that is there. By default it
        must be there: a mistyped name, and a ledger that was deleted or emptied, are refused.
    head
        The last hash that is known of the ledger, such as `head` of an earlier session. One that
        lacks it, such as an older copy, is refused; entries after it are those of others.
    user
        Who asks; every entry of the session names them.
    seed
        None for noise from the operating system. With an int of at least 0 the session is a
        simulation, never for release, and cannot have a ledger.
    edition
        A name for the state of the data, such as ``"2024-06"``. Spends in different parts of a
        partition concern different people only if all sessions of the ledger read the very same
        rows, in the same order. Sessions that name the same edition declare that they do; spends of
        different editions, or of sessions that name none, add up in whichever parts they are. With
        ``accountant="individual"`` a ledger is of one edition, which must be named.
    data
        For each data set, by its name, a frame or a mapping of column names to arrays. A column is
        copied when a step first needs it, so that no record moves to another part later; if one
        that was read before has changed by then, the step is refused.

    Raises
    ------
    DeclarationError
        If a parameter is out of its domain.
    LedgerError
        If the ledger is not there, cannot be used, or has another budget or accountant.

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
        create: bool = False,
        head: str | None = None,
        user: str | None = None,
        seed: int | None = None,
        edition: str | None = None,
        **data: Any,
    ) -> None:
        if not isinstance(budget, Budget):
            raise DeclarationError(
                f"a session's budget must be a Budget such as Budget(1.0, 1e-6), got {budget!r}"
            )
        if seed is not None and ledger is not None:
            raise DeclarationError(
                "a simulation (seed=...) writes to no ledger: it is not for release"
            )
        number = None if seed is None else as_int(seed)
        if seed is not None and (number is None or number < 0):
            raise DeclarationError(
                f"a session's seed must be an int of at least 0, or None, got {seed!r}"
            )
        if edition is not None and (not isinstance(edition, str) or edition == ""):
            raise DeclarationError(
                f"a session's edition must be a str that names the state of the data, got "
                f"{edition!r}"
            )
        if ledger is None and (create or head is not None):
            raise DeclarationError(
                "create=True and head=... are of a ledger; pass its path or URL as ledger=..."
            )
        self._by = of_user(user)
        self.budget, self.accountant, self._seed = budget, accountant, number
        # without a name, an edition of its own: its spends add up with those of all others
        self._edition = uuid4().hex if edition is None else edition
        self._account = Account(budget, accountant)
        self._individuals: IndividualBudgets | None = None
        each = self._account.unit.individual
        # budgets of records are computed from rows that are kept, whatever a later step reads
        self._cache = DataCache(data, by_column=each is None)
        if each is not None:
            if ledger is not None and edition is None:
                raise DeclarationError(
                    "with accountant='individual' what records have spent is recomputed from the "
                    "ledger's steps, on the very same rows; name their state, such as "
                    "edition='2024-06'"
                )
            self._individuals = IndividualBudgets(each, self._edition, self._cache)
        # One step at a time: `_lock` stops other threads. `_is_computing` stops the functions of a
        # step, which run in the thread that holds the lock and could take it again.
        self._lock, self._is_computing = threading.RLock(), False
        self._closed = False
        self._digests = SessionDigests()
        self._interrupted: dict[Any, _Step] = {}
        # what follows from the ledger's first `_seen` entries; `_head` is the hash of the last one
        self._seen, self._head = 0, ""
        self._declared: dict[str, tuple[str, str]] = {}
        # fields of declarations by their digests, which messages name
        self._fields: dict[str, Mapping[str, Any]] = {}
        self._released, self._offered = ReleasedValues(), set[str]()
        self._recorded = set[int]()  # the numbers of the spends that have released
        self._paid = set[str]()  # digests of what spends have paid for
        self._spends: list[Entry] = []
        # of the steps that this session has run: the nodes at which later plans begin, and by the
        # number of its spend each request that `pipeline` has not taken into the journal yet
        self._earlier_nodes = EarlierNodes()
        self._own: dict[int, _Request] = {}
        # releases and loops that steps of this session have run
        self._ran_before: set[Handle] = set()
        # handles whose noise earlier steps have solved: what replaces each, and what it was for
        self._solved: dict[Handle, Handle] = {}
        self._limits: dict[Handle, StepLimit] = {}
        # the hidden state of runs, by the handle and by the session digest of the release that has
        # begun each, and how many sparse vectors there are
        self._hidden: dict[Handle, HiddenRun] = {}
        self._begun: dict[str, HiddenRun] = {}
        self._sparse_vectors = self._holdouts = 0
        # what `pipeline` has made of the spends so far, and the handle of each by its number
        self._journal, self._plans, self._plans_read = Journal(), LedgerPlans(), 0
        self._journaled: dict[int, Outputs] = {}
        # what the entries of the ledger's keeper have left in force; None until they were read
        self._terms: Terms | None = None
        if create and isinstance(ledger, str | os.PathLike):
            create_ledger(ledger, budget, accountant, user=user)
        elif create:
            raise DeclarationError("create=True makes a ledger at a path or a URL; got an object")
        self._ledger: Ledger = MemoryLedger() if ledger is None else open_ledger(ledger)
        try:
            self._begin(head)
        except BaseException:
            self._ledger.close()
            raise

    def _begin(self, head: str | None) -> None:
        """Read the ledger, and refuse one with other terms or without the entry of a head."""
        entries = self._ledger.entries()
        if not entries and not isinstance(self._ledger, DatabaseLedger):
            # one in memory, or of a user's class, which the first session begins in a transaction
            mine = open_entry(self._account, **self._by)
            entries = self._ledger.spend(0, lambda others: None if others else mine)
        terms = Terms.of(entries)
        terms.check(self._account, str(getattr(self._ledger, "location", "LEDGER")))
        check_head(entries, head)
        self._read(entries)
        self._terms = terms

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the data and close the ledger, from which another session may continue."""
        with self._lock:
            self._closed = True
            self._cache.clear()
            self._interrupted.clear()
            self._hidden.clear()
            self._begun.clear()
            if self._individuals is not None:
                self._individuals.clear()
            self._ledger.close()

    def __repr__(self) -> str:
        kind = "" if self._seed is None else f"simulated with seed {self._seed}, "
        return f"<session: {kind}{self.budget}, {len(self._spends)} steps>"

    def __str__(self) -> str:
        with self._lock:
            if not self._closed:
                self._read_ledger()
            spends, last = len(self._spends), self._last_step(())
            text = state_text(self._account, spends, self._seed, last, closed=self._closed)
            lasts = isinstance(self._ledger, DatabaseLedger)
            notes = [] if self._terms is None else self._terms.notes()
            return "\n".join([text, *notes, *([f"head     {self._head}"] if lasts else [])])

    def _repr_html_(self) -> str:
        return html_text(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session holds private data and cannot be pickled; share its ledger")

    # --- The life cycle of a step --------------------------------------------------------------

    @overload
    def run(
        self,
        query: Pipeline,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        name: str = "",
        again: bool = False,
    ) -> Result: ...

    @overload
    def run(
        self,
        query: Released[T] | PrivateQuery[T],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        name: str = "",
        again: bool = False,
    ) -> T: ...

    def run(
        self,
        query: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        name: str = "",
        again: bool = False,
    ) -> Any:
        """Return the value of a handle, computed now; what it releases is public from here on.

        What was released before is not released again: the same mechanism on the same query gives
        the recorded value, at no cost. Each step that is paid for draws its own samples; random
        parts and groups are drawn once and stay the same for all steps of the session.

        Noise that is left free, such as ``dp.Laplace()``, is solved for ``epsilon`` or ``share``
        before anything is spent: the least for which the session's own filter counts no more for
        the step. That depends on the step and on the budget alone, never on data, nor on what was
        spent before; so equal steps have equal noise. It is solved once: later steps that read the
        same handle, or ask for it, have its recorded value at no cost.

        Parameters
        ----------
        query
            A released handle; it may read others, run before or not. A query, which is released by
            its default mechanism, as in a `Pipeline`. Or a `Pipeline`, which is one step: all of
            its outputs are released, or none.
        epsilon
            What the step may cost: no more than a session of the budget (epsilon, delta), with the
            same accountant, would admit as its only step.
        delta
            With ``epsilon``; by default the part of the budget's delta that epsilon is of its
            epsilon. Under ``"basic"``, and for noise with a pure epsilon, it is not needed.
        share
            What the step may cost, as a share of the session's whole budget (of a part's, in that),
            in the sum that the filter holds against it: four steps of 0.25 fill it. Where one of
            several sums has to last (``"best"``, ``"renyi"``, ``"advanced"``), it is the sum of
            epsilons for noise that has a pure epsilon, and else that in which the step needs the
            least noise; shares of the two kinds of steps together may not fit.
        name
            What tables and the session's pipeline call it.
        again
            Release once more, with fresh noise, at its full cost. The recorded value, and what
            follows from it, stays the first.

        Raises
        ------
        CalibrationError
            If no amount of free noise meets ``epsilon`` or ``share``.
        InapplicableError
            If a loss has no finite cost in the session's accounting unit, with the accountants
            under which it has one.
        BudgetError
            If it does not fit into what remains: with what it asks, what remains, and the largest
            that would fit. Nothing is spent then, and nothing computed.
        LedgerError
            If the ledger cannot be read or written.
        LeakError, DeclarationError, DataError, RunError
            As for a plan. A `RunError` comes after the spend is recorded. If a step fails, or is
            interrupted, while it computes something that draws no noise, this session can run it
            again and continues it at no further cost.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> rows = {"age": [30.0, 40.0, 50.0] * 100}
        >>> with dp.Session(budget=dp.Budget(1.0), people=rows) as session:
        ...     n = session.run(people.count().release(dp.Laplace()), share=0.2)
        ...     plan = dp.Pipeline(**people.describe(dp.Laplace()))
        ...     table = session.run(plan, epsilon=0.5)
        ...     print(session.what_if(people["age"].sum().release(dp.Laplace()), share=0.3))
        fits; the session's epsilon would then read 1
        >>> sorted(table)
        ['average', 'count']
        """
        return self._run(query, StepLimit(epsilon, delta, share), name, again, ())

    def _run(self, query: Any, limit: StepLimit, name: str, again: bool, part: PartPath) -> Any:
        """Take one step through its life cycle; see the module's docstring for its promises."""
        with self._lock:
            if self._is_computing:
                raise DeclarationError(
                    "a step is being computed, and its functions cannot start another one in the "
                    "same session; run that one by itself"
                )
            # 1. Admit. Reads what other sessions of the ledger have spent and released, determines
            #    which nodes of the step are new, and refuses what contradicts earlier steps. First,
            #    since whatever was released before is neither priced nor paid.
            request = self._admit(query, limit, again, part)
            if request.key in self._interrupted:
                # Its spend is in the ledger, and nothing was drawn for what is left to compute. It
                # is removed first: after a second interruption it is decided again whether it may
                # continue.
                step = self._interrupted.pop(request.key)
                # random parts that steps in between have drawn hold for the rest of this one too
                self._cache.bind(step.run, step.request.digests, step.request.required)
            else:
                # 2. Price, and prepare. What can fail for public reasons fails here, before
                #    anything is paid: a loss without a finite cost, a function that cannot be
                #    imported, a data set that is missing.
                costs, releases = self._price(request)
                run = self._prepare(request)
                # 3. Spend. When `_spend` returns, the cost is on the ledger's disk. From here to
                #    the end of 5. a crash wastes what was paid: no value has left.
                number = 0
                if request.new:
                    number = self._spend(request, costs, name, run)
                    run.round = (number,)  # of a simulation: each spend draws noise of its own
                    self._own[number] = request
                step = _Step(request, run, releases, number)
            self._remember_noise(request)
            # 4. Compute, noise included. 5. Record: the values are written into the ledger, from
            #    which this and other sessions read them when they ask for the same.
            recorded = False
            try:
                self._compute(step)
                step.check_process()
                self._record(step)
                # once more: `_record` calls the ledger, which may be of a user's class
                step.check_process()
                recorded = True
            finally:
                if not recorded and self._may_continue(step):
                    self._interrupted[request.key] = step
            self._store_nodes(step)
            # 6. Release, last: a value that a caller has is in the ledger. Were it returned first,
            #    a crash in between would make later sessions pay for a second draw of it.
            result = result_of(
                step.request.plan, step.run, self.certificate, self._earlier_nodes.released
            )
            return result if step.request.is_plan else result["value"]

    def _admit(self, query: Any, limit: StepLimit, again: bool, part: PartPath) -> _Request:
        """Return a step as a request, after reading what others have spent."""
        if self._closed:
            raise DeclarationError("the session is closed; open another one on its ledger")
        if isinstance(query, PrivateQuery):
            query = query.release()  # by its default mechanism, as in a plan
        if again:
            query = _drawable(query)
        if isinstance(query, Mapping):
            raise DeclarationError(
                "a step is a released handle or a plan, got a mapping; for one step of all its "
                "values write session.run(dp.Pipeline(**values))"
            )
        is_plan = isinstance(query, Pipeline)
        if not isinstance(query, Handle | Pipeline):
            Pipeline(value=query)  # raises, and says what a step should be
        asked: Outputs = query.outputs if is_plan else [(("value",), query)]
        self._read_ledger()
        solved = self._solve(asked, limit, again, part)
        outputs = [(path, solved.get(handle, handle)) for path, handle in asked]
        plan = self._earlier_nodes.plan(outputs, again=again)
        requested = partial(
            self._requested, is_plan=is_plan, part=part, again=again, solved=solved, limit=limit
        )
        request = requested(plan)
        if request.new and any(
            plan.structure.nodes[name].digest not in self._offered for name in plan.structure.known
        ):
            # The step reads a node that no entry of the ledger holds, such as one of a step that
            # paid for nothing. Its own entry must hold it then, so that the ledger is complete.
            plan = self._earlier_nodes.plan(outputs, again=again, offered=self._offered)
            request = requested(plan)
        check_declarations(request.data, self._declared, self._fields)
        return request

    def _requested(self, plan: Pipeline, *, again: bool, **asked: Any) -> _Request:
        """Return a step with what of its plan was released before, and what is new."""
        structure = plan.structure
        digests = self._digests.of(structure, self._earlier_nodes.digests(structure))
        ends = [structure.of(handle) for _, handle in plan.outputs]
        available = {n.name for n in structure if self._released.has(n, digests[n.name])}
        available |= structure.known
        available = available - {end.name for end in ends} if again else available
        required = required_nodes(structure, ends, available)
        self._fields |= declared_fields(structure)
        data = declarations(structure, self._earlier_nodes.declared(structure), self._fields)
        new = [n for n in structure if n.name in required and is_paid(n)]
        return _Request(
            plan=plan,
            digests=digests,
            available=available,
            required=required,
            new=new,
            data=data,
            again=again,
            **asked,
        )

    def _solve(
        self, asked: Outputs, limit: StepLimit, again: bool, part: PartPath
    ) -> dict[Handle, Handle]:
        """Return what replaces handles whose noise is free: by earlier steps, or solved here.

        It is a public computation, from the step, the budget and the steps of this session before
        it; neither the data nor what was spent has a part in it.

        Raises
        ------
        DeclarationError
            If noise is free and there is no limit, or a limit and no free noise.
        CalibrationError
            If the limit cannot be met.
        """
        solved: dict[Handle, Handle] = {}
        earlier: set[StepLimit] = set()
        if self._solved:
            roots = [handle for _, handle in asked]
            new = rewritten(roots, replacements=self._solved)
            solved = {old: each for old, each in new.items() if old is not each}
            earlier = {self._limits[old] for old in solved if old in self._limits}
        outputs = [(path, solved.get(handle, handle)) for path, handle in asked]
        plan = self._earlier_nodes.plan(outputs, again=again)
        limit.check(plan.free, earlier)
        if not plan.free:
            return solved
        structure = plan.structure
        # What this session has run costs the step nothing. What only the ledger has counts, so that
        # a session which repeats the steps of another solves them to the same noise, and reads them
        before = structure.known | {n.name for n in structure if n.handle in self._ran_before}
        ends = [structure.of(handle) for _, handle in outputs]
        required = required_nodes(structure, ends, before)
        paid = [n.handle for n in structure if n.name in required and is_paid(n)]
        stop = [structure.nodes[name].handle for name in structure.known]

        delta = delta_of_keys(structure, limit.reserve(self._account, part))

        def changed(multiple: float) -> dict[Handle, Handle]:
            return changed_handles(outputs, lambda m: m.with_delta(delta).fixed(multiple), stop)

        def costs(multiple: float) -> Costs:
            new = changed(multiple)
            step = self._earlier_nodes.plan([(p, new[h]) for p, h in outputs], again=again)
            return costs_for(step.structure, [step.structure.of(new[each]) for each in paid])

        new = changed(limit.multiple(costs, self._account, part))
        # handles as they were asked for, with what replaces each in the end
        solved = {old: new.get(each, each) for old, each in solved.items()}
        return solved | {old: each for old, each in new.items() if old is not each}

    def _remember_noise(self, request: _Request) -> None:
        """Store how a step's free noise was solved; not before it is paid for."""
        for old, new in request.solved.items():
            self._solved.setdefault(old, new)
            if request.limit.is_set:
                self._limits.setdefault(old, request.limit)

    def _price(self, request: _Request) -> tuple[Costs, Sequence[ReleaseNode]]:
        """Return what a step costs, and the releases that each record pays for by itself.

        Raises
        ------
        InapplicableError
            If the cost is not finite. Whether it fits is decided in `_spend`, where no other
            session can spend between the decision and the spend.
        """
        releases = self._individual_releases(request)
        costs = costs_for(request.structure, request.new)
        check_price(costs, self._account)
        return costs, releases

    def _individual_releases(self, request: _Request) -> Sequence[ReleaseNode]:
        """Return the releases that each record pays for by itself; none but under "individual".

        Raises
        ------
        InapplicableError, DeclarationError, BudgetError
            If a release has no cost for each record, by what is public alone.
        """
        if self._individuals is None:
            return ()
        limit = self._individuals.filter
        return individual_releases(request.structure, request.new, self._declared, limit)

    def _prepare(self, request: _Request) -> Run:
        """Return a run with the data and the earlier values that the step reads."""
        structure = request.structure
        rehearse(structure)
        run = Run(structure, self._seed)
        run.hidden = self._hidden
        self._find_runs(request)
        run.check_runs([structure.nodes[n] for n in request.required], request.digests)
        for name in request.available:
            node, key = structure.nodes[name], request.digests[name]
            # releases and loops are in the ledger; what was computed from them is not
            post_processed = name in structure.known and not is_paid(node)
            run.public_values[name] = (
                self._earlier_nodes.value(node.handle)
                if post_processed
                else self._released.value(node, key)
            )
            # the draw itself, from which a result computes the expected noise
            if not post_processed and (drawn := self._released.drawn(key)) is not None:
                run.raw[name] = drawn
        self._cache.bind(run, request.digests, request.required)
        if self._individuals is not None and request.new:
            self._individuals.check_data(structure)
        return run

    def _find_runs(self, request: _Request) -> None:
        """Give each run that a step continues to the handle by which the step knows it.

        Equal requests are one release, so a run that another handle has begun is continued.
        """
        for name in request.required:
            node = request.structure.nodes[name]
            if not (isinstance(node, ReleaseNode) and node.mechanism.continues):
                continue
            begun = request.structure.of(node.handle.inputs[1])
            run = self._begun.get(request.digests[begun.name])
            # The ledger knows runs by digest: of two equal beginnings in one plan, which are paid
            # for twice, the second one's handle alone in a step stands for the first
            if run is not None and begun.name in request.available:
                self._hidden[begun.handle] = run

    def _spend(self, request: _Request, costs: Costs, name: str, run: Run) -> int:
        """Write a step's cost into the ledger if it fits, and return the number of its entry."""
        placed = in_edition(costs, self._edition)

        def decide(others: Sequence[Entry]) -> Entry:
            # Inside the ledger's transaction: whatever others have spent since `_admit` is in
            # `others`, and none can spend between this check and the commit. A refusal raises,
            # which rolls the transaction back; what others have spent counts here all the same.
            self._read(others)
            check_declarations(request.data, self._declared, self._fields)
            self._individual_releases(request)  # again: others may have read another data set
            self._check_made_once(request)
            self._check_open()
            self._account.check(placed, request.part)
            # not before, since a refusal changes nothing; and not after the entry is written
            run.settle_places(request.new, request.digests)
            # `_offered` is read in the transaction: no node is offered by two entries
            return spend_entry(
                request.plan,
                request.new,
                costs,
                self._offered,
                data=request.data,
                name=name,
                part=request.part,
                edition=self._edition,
                **self._by,
            )

        appended = self._ledger.spend(self._seen, decide)
        # The own entry counts as any other, and only now: a commit that failed must not count. If
        # an interrupt comes before this line, the next reading of the ledger has the entry.
        self._read(appended[-1:])
        return int(appended[-1]["number"])

    def _check_made_once(self, request: _Request) -> None:
        """Refuse to pay again for what is made once, so that one process alone makes it."""
        for node in request.new:
            if not (isinstance(node, ReleaseNode) and node.mechanism.ordinal is not None):
                continue
            if node.digest in self._paid:
                raise RunError(
                    f"{node.name!r} was paid for before, and is made once: by another session, or "
                    "in a step that did not end; begin another run, by another name, which is paid "
                    "for. Nothing was released."
                )

    def _check_open(self) -> None:
        """Refuse a spend from a ledger that its keeper has closed, or whose budget was raised."""
        self._check_budget()
        if self._terms is not None and self._terms.closed is not None:
            raise unusable(f"it was closed {told(self._terms.closed)}; nothing more is spent")

    def _compute(self, step: _Step) -> None:
        """Compute what a step has not computed yet."""
        request = step.request
        with self._computing(request, step.run):
            if self._individuals is not None and request.new:
                self._individuals.compute(step.run, step.releases, request.required, step.number)
            else:
                step.compute()

    def _may_continue(self, step: _Step) -> bool:
        """Return whether an interrupted step may continue under its spend."""
        # a step that pays for nothing can simply be run again. Under individual budgets no step
        # continues: records have paid, and who took part is stored nowhere
        mine = step.process == os.getpid()
        return bool(step.request.new) and mine and self._individuals is None and step.can_continue

    @contextmanager
    def _computing(self, request: _Request, run: Run) -> Iterator[None]:
        """Let no other step start meanwhile, and store the random parts even if this one fails.

        An interrupted step may continue after others, or its functions may have seen what it
        released. If another step drew the random parts again, they would not be the same for all
        steps of the session.
        """
        try:
            self._is_computing = True
            yield
        finally:
            self._is_computing = False
            self._cache.store(run, request.digests)
            for node in request.new:
                if node.name in run.public_values and node.handle in self._hidden:
                    self._begun[request.digests[node.name]] = self._hidden[node.handle]
            self._declare_public(request)

    def _declare_public(self, request: _Request) -> None:
        """Remember what was read as public, which no later step may read as private.

        Private data sets are declared by the spends in the ledger; a public one may be read by a
        step that pays for nothing.
        """
        for node in request.structure:
            if node.name in request.required and isinstance(node.handle.operation, PublicSource):
                name = node.handle.operation.name
                self._declared.setdefault(name, request.data[name])

    def _record(self, step: _Step) -> None:
        """Record what was released, for later steps that ask for the same."""
        request, run = step.request, step.run
        if not request.new:
            return
        values = values_to_json(run, request.digests, request.new)
        entry = release_entry(step.number, values, **self._by)

        def decide(others: Sequence[Entry]) -> Entry:
            step.check_process()
            self._read(others)
            if step.number in self._recorded:
                raise unusable(f"spend {step.number} has released already, and is paid for once")
            return entry

        appended = self._ledger.spend(self._seen, decide)
        # Only now: a value costs nothing to later steps only once the ledger says that it was
        # released. And before the entry is read: this session has the value as it was computed,
        # even where the ledger has no form for it.
        self._released.add(run, request.digests, request.new)
        self._read(appended[-1:])

    def _store_nodes(self, step: _Step) -> None:
        """Store a step's released nodes, so that the plans of later steps begin there."""
        request, values = step.request, step.run.public_values
        self._ran_before.update(
            n.handle for n in request.structure if n.name in values and is_paid(n)
        )
        for node in request.structure:
            # The value of a release that counts is the first one, which another session or an
            # earlier step may have drawn. What this step computed from a draw of its own must not
            # be read together with that value, so none of its nodes is stored.
            if node.name in values and not node.loops and is_paid(node):
                key = request.digests[node.name]
                if self._released.value(node, key) is not values[node.name]:
                    return
        self._earlier_nodes.add(request.structure, request.digests, values, step.run.raw)

    def _read_ledger(self) -> None:
        """Read what was written since the last reading."""
        self._read(self._ledger.entries(self._seen))
        self._check_budget()

    def _check_budget(self) -> None:
        """Refuse to go on where the budget was raised: what was said of the smaller one is over."""
        if self._terms is not None and self._terms.budget != self.budget:
            raise unusable(
                f"its budget was raised {told(self._terms.raised[-1])}; open the session again, "
                f"with {self._terms.budget}"
            )

    def _read(self, entries: Iterable[Entry]) -> None:
        """Add up and store what entries of the ledger say, in order; the session's own too."""
        for entry in entries:
            check_entry(entry, self._seen)
            if entry["kind"] == "spend":
                if self._individuals is not None:
                    self._individuals.read(entry)
                self._account.add(costs_in(entry), part_in(entry))
                for name, (digest, neighbors) in entry["data"].items():
                    self._declared.setdefault(name, (digest, neighbors))
                self._fields = written_fields(entry) | self._fields
                self._offered.update(entry["offers"].values())
                self._paid.update(entry["releases"])
                self._spends.append(entry)
            elif entry["kind"] == "release":
                self._released.read(entry["values"])
                if isinstance(entry["of"], int):  # of a forged entry it may be anything
                    self._recorded.add(entry["of"])
            elif self._terms is not None:  # when a session opens, its terms are those of the end
                self._terms = self._terms.after(entry)
            # last: after an interrupt before this line the entry is read again and counts twice,
            # which may waste budget; in the other order it could be left out
            self._seen, self._head = self._seen + 1, entry["hash"]

    # --- Before a step: what it would cost, and parts ------------------------------------------

    def what_if(
        self,
        query: Released[Any] | PrivateQuery[Any] | Pipeline,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        again: bool = False,
    ) -> Forecast:
        """Return what a step would cost, and what would remain; no data are read, nothing is spent.

        Parameters
        ----------
        query, epsilon, delta, share, again
            As `run` takes them.

        Raises
        ------
        InapplicableError, CalibrationError, LeakError, DeclarationError, LedgerError
            As `run`. A step that does not fit raises nothing: the forecast says so.
        """
        return self._forecast(query, StepLimit(epsilon, delta, share), again, ())

    def solved(
        self,
        query: Released[T],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
    ) -> Released[T]:
        """Return the handle with its free noise as `run` would solve it; nothing is spent.

        So a plan can be run in parts, at the noise for which the session admits all of it.

        Parameters
        ----------
        query, epsilon, delta, share
            As `run` takes them.

        Raises
        ------
        DeclarationError, CalibrationError, LedgerError
            As `run`.
        """
        return self._solved_handle(query, StepLimit(epsilon, delta, share), ())

    def _solved_handle(self, query: Released[T], limit: StepLimit, part: PartPath) -> Released[T]:
        with self._lock:
            if self._closed:
                raise DeclarationError("the session is closed; open another one on its ledger")
            self._read_ledger()
            new = self._solve([(("value",), query)], limit, False, part)
            found: Released[T] = new.get(query, query)  # type: ignore[assignment]
            return found

    def _forecast(self, query: Any, limit: StepLimit, again: bool, part: PartPath) -> Forecast:
        with self._lock:
            request = self._admit(query, limit, again, part)
            if request.key in self._interrupted:
                request = evolve(request, new=[])  # it is paid for
            costs = costs_for(request.structure, request.new)
            if self._individuals is None:
                check_price(costs, self._account)
            placed = in_edition(costs, self._edition)
            totals = self._account.totals(part)
            sums = totals.filter_sums
            before = sums.maximum()
            try:
                if request.new:
                    self._check_open()
                self._individual_releases(request)
                self._account.check(placed, part)
            except (BudgetError, LedgerError) as error:
                cost = sums.meter.spent(difference(sums.maximum_after(placed), before))
                left = sums.meter.remaining(before)
                return Forecast(False, False, cost, left, totals.epsilon(), str(error))
            after = sums.maximum_after(placed)
            return Forecast(
                True,
                not request.new,
                sums.meter.spent(difference(after, before)),
                sums.meter.remaining(after),
                totals.epsilon(placed),
            )

    # --- Sparse vector: many questions, paid for by the answers "above" --------------------------

    def above_threshold(
        self,
        threshold: float,
        *,
        tops: int = 1,
        share: float | None = None,
        scale: float | None = None,
        sensitivity: float | None = None,
        monotone: bool = False,
        together: bool = False,
        name: str = "",
    ) -> OnlineSparseVector:
        """Return a sparse vector: whether numbers are above a threshold, asked one by one.

        A question is answered "above" or "below", and the next one may depend on that. One spend
        pays for all questions up to and including one answer "above": for any number of them. It is
        made when the first of them is asked. Each of up to ``tops`` answers "above" has its own.

        Parameters
        ----------
        threshold
            Public, in the units of the numbers.
        tops
            The largest number of answers "above".
        share
            Of the session's budget, for all tops together. The noise is solved for it.
        scale
            In place of a share: the scale of the Laplace noise on the threshold; see
            `adaptive_dp.SparseVector`.
        sensitivity
            The most that one unit may move any of the numbers; None for what it may move the first.
        monotone
            True where all numbers rise where a unit appears, as counts and sums of non-negative
            values do: half the noise under add/remove neighbours.
        together
            True for one spend, and one noise on the threshold, for all tops: less noise where
            epsilons add up and all tops will be used; those that are not are paid for as well.
        name
            Of the steps in the ledger; by default that of the first is "sparse vector 1". A session
            that continues on a ledger reads recorded answers by it.

        Raises
        ------
        DeclarationError
            If a parameter is out of its domain.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> rows = {"age": [float(i % 70) for i in range(700)]}
        >>> with dp.Session(budget=dp.Budget(1.0), seed=1, people=rows) as session:
        ...     with session.above_threshold(100, tops=2, share=0.5, monotone=True) as svt:
        ...         above = [a for a in range(0, 100, 5)
        ...                  if svt.ask(people.filter(people["age"] < a).count())]
        ...     spent = session.spent.costs[0]
        >>> above, svt.tops, round(spent, 6)
        ([15, 20], 0, 0.5)
        """
        return self._above_threshold(
            (),
            threshold=threshold,
            tops=tops,
            share=share,
            scale=scale,
            sensitivity=sensitivity,
            monotone=monotone,
            together=together,
            name=name,
        )

    def holdout(
        self,
        threshold: float,
        *,
        changes: int,
        share: float,
        sensitivity: float | None = None,
        name: str = "",
    ) -> Holdout:
        """Return a holdout that can be reused: guesses that fit are confirmed, others are answered.

        An analyst has other rows, and computes any number there: a guess. The session's rows are
        the holdout. `Holdout.ask` returns the guess where it is near the number on the holdout, and
        else that number, with noise. A guess that fits costs nothing, however many there are.

        Parameters
        ----------
        threshold
            How far a guess may be off before the holdout answers, in the units of the numbers.
        changes
            How many guesses may be answered in place of confirmed.
        share
            Of the session's budget: half of it for comparisons, half for answers.
        sensitivity
            As of `above_threshold`.
        name
            Of the steps; by default that of the first is "holdout 1".

        References
        ----------
        Dwork, Feldman, Hardt, Pitassi, Reingold and Roth 2015 (Thresholdout); Rogers, Roth, Smith,
        Srebro, Thakkar and Woodworth 2019 (guess and check).

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> tests = dp.dataset(
        ...     "tests", columns={"right": (0, 1)}, neighbors="replace_one", size=20_000
        ... )
        >>> rows = {"right": [float(i % 4 > 0) for i in range(20_000)]}
        >>> mean = tests["right"].fill(0).mean()
        >>> with dp.Session(budget=dp.Budget(1.0), seed=1, tests=rows) as session:
        ...     holdout = session.holdout(0.03, changes=5, share=1.0)
        ...     print(holdout.ask(mean, guess=0.76), round(holdout.ask(mean, guess=0.9), 3))
        ...     print(holdout.changes)
        0.76 0.749
        4
        """
        if not isinstance(name, str):
            raise DeclarationError(f"name must be a str, got {name!r}")
        with self._lock:
            self._holdouts += 1
            title = name or f"holdout {self._holdouts}"
        return Holdout(
            self,
            threshold=threshold,
            changes=changes,
            share=share,
            sensitivity=sensitivity,
            name=title,
        )

    def _above_threshold(
        self, part: PartPath, *, name: str, **parameters: Any
    ) -> OnlineSparseVector:
        if not isinstance(name, str):
            raise DeclarationError(f"name must be a str, got {name!r}")
        with self._lock:
            self._sparse_vectors += 1
            title = name or f"sparse vector {self._sparse_vectors}"
        return OnlineSparseVector(self, part, name=title, **parameters)

    def _has_run(self, begun: Handle) -> bool:
        """Return whether the noise of a run of sparse vector is in this process."""
        run = self._hidden.get(self._solved.get(begun, begun))
        return run is not None and run.is_here

    def _drop_run(self, begun: Handle) -> None:
        """Forget the noise of a run of sparse vector, which can answer nothing more then."""
        run = self._hidden.pop(self._solved.get(begun, begun), None)
        self._begun = {key: each for key, each in self._begun.items() if each is not run}

    def part(self, name: str, share: float) -> Part:
        """Return a sub-session that can spend at most a share of this session's budget.

        Parameters
        ----------
        name
            What the ledger calls it. Where a part of that name exists, it is continued.
        share
            In (0, 1]. Shares may sum to more than 1: each is a limit, not a reserve. The first
            spend in a part writes its share in the ledger, and so settles it.

        Raises
        ------
        DeclarationError
            If the part has another share, in this session or in the ledger.

        Notes
        -----
        A share limits what the part's steps add to the session's loss. It is no promise about what
        the part releases by itself: where its steps were chosen by what the rest of the session
        released, its releases tell of that, too, and only the session's own budget bounds them.
        """
        return self._part(name, share, ())

    def _part(self, name: str, share: float, around: PartPath) -> Part:
        value = numeric(share)
        if not isinstance(name, str) or name == "" or "/" in name:
            raise DeclarationError(f"a part's name must be a str without a slash, got {name!r}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 < value <= 1):
            raise DeclarationError(f"a part's share must be a number in (0, 1], got {share!r}")
        if self._individuals is not None:
            raise DeclarationError(
                "a session with accountant='individual' has no parts: what records have spent in "
                "a part is private, so that no step could be refused for it; open a session with "
                "a smaller budget and a ledger of its own"
            )
        with self._lock:
            self._read_ledger()
            return Part(self, self._account.open_part(around, name, float(value)))

    # --- What was spent, and what remains ------------------------------------------------------

    @property
    def remaining(self) -> Remaining:
        """What remains in each of the filter's accounting units, rounded down; `str` in words.

        With ``accountant="individual"``, a lower bound of what each record has left, from
        declarations alone: at 0 some records may be left out, and steps are still admitted.
        """
        return self._remaining(())

    @property
    def spent(self) -> UnitTotals:
        """What is spent in each of the filter's accounting units, rounded up.

        With ``accountant="individual"``, an upper bound for each record, from declarations alone.
        """
        return self._of_totals((), Totals.spent)

    @property
    def epsilon(self) -> float:
        """What was spent so far, as an epsilon at the budget's delta: the odometer's reading.

        It holds however the analyst chose when to stop, by the theorem of the odometer, and is
        never above the budget's epsilon, which the filter guarantees. Since it holds at any time,
        it rises faster than what is spent: `remaining` says what still fits. With
        ``accountant="individual"`` it is the budget's: what was spent of it is private.
        """
        return self._of_totals((), Totals.epsilon)

    @property
    def records(self) -> Secret[Array]:
        """What each record has spent, in squares of mu, where records have budgets.

        Shape (units,), in the order in which units first appear in the data. It is as private as
        they are: whoever calls `reveal` must neither publish the values nor choose a step by them,
        which no budget covers.

        Raises
        ------
        DeclarationError
            If records have no budgets of their own here, or nothing was run yet.
        """
        with self._lock:
            if self._individuals is None or self._closed:
                raise DeclarationError(
                    "only an open session with accountant='individual' has what each record has "
                    "spent"
                )
            self._read_ledger()
            return self._individuals.spent()

    @property
    def head(self) -> str:
        """The hash of the ledger's last entry.

        Keep it where those who can write the ledger cannot: `Session(head=...)`, and
        ``adaptive-dp ledger verify --head``, refuse a ledger that has lost what was recorded up to
        here.
        """
        with self._lock:
            if not self._closed:
                self._read_ledger()
            return self._head

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
            self._read_ledger()
            steps = [
                (str(entry["name"]) or f"step {i}", costs_in(entry), part_in(entry))
                for i, entry in enumerate(self._spends, 1)
            ]
            return tuple(readings(self.budget, self.accountant, steps))

    def _remaining(self, part: PartPath) -> Remaining:
        with self._lock:
            self._read_ledger()
            return remaining_of(self._account, part, self._last_step(part))

    def _last_step(self, part: PartPath) -> StepCosts | None:
        """Return the last step that was paid in a part; None where there is none."""
        for i, entry in reversed(list(enumerate(self._spends, 1))):
            if part_in(entry)[: len(part)] == part:
                return str(entry["name"]) or f"step {i}", costs_in(entry), part_in(entry)
        return None

    def _of_totals(self, part: PartPath, measure: Callable[[Totals], T]) -> T:
        with self._lock:
            self._read_ledger()
            return measure(self._account.totals(part))

    # --- All steps as one plan: its certificate and its audit ----------------------------------

    @property
    def pipeline(self) -> Pipeline:
        """All steps that were run under this budget, as one plan, in order.

        Steps of other sessions of the ledger are read from there. Each step may depend on all that
        was released before: in the graph, dashed edges of the kind ``"adaptive"`` lead from each
        step to the next.

        Raises
        ------
        DocumentError
            If a step of another session cannot be read here, such as one with an own mechanism.
        """
        with self._lock:
            self._read_ledger()
            return self._pipeline()

    def _pipeline(self) -> Pipeline:
        """Return the plan of the steps that were read from the ledger."""
        if not self._spends:
            raise DeclarationError("the session has run nothing yet")
        names: dict[str, Outputs] = {}
        for i, entry in enumerate(self._spends, 1):
            number, title = entry["number"], entry["name"]
            name, k = title or f"step {i}", 1
            while name in names:
                k += 1
                name = f"{title or f'step {i}'} ({k})"
            if number not in self._journaled:
                self._journaled[number] = self._journal.add(*self._ran(entry))
                self._own.pop(number, None)
            names[name] = self._journaled[number]
        # a step of one handle is one output; the outputs of a plan are below its name
        outputs = [
            ((name,) if path == ("value",) and len(step) == 1 else (name, *path), handle)
            for name, step in names.items()
            for path, handle in step
        ]
        return Pipeline.of(outputs, self.budget.delta, adaptive=tuple(names))

    def _ran(self, entry: Entry) -> tuple[Outputs, Structure, Mapping[str, str], Collection[str]]:
        """Return a step as `Journal.add` takes it; another session's is read from its entry."""
        own = self._own.get(entry["number"])
        if own is not None:
            structure, digests = own.structure, own.digests
            spent = {digests[node.name] for node in own.new}
            if not all(self._journal.has(structure.nodes[name].handle) for name in structure.known):
                # its plan begins at nodes that are not in the journal, such as those of a step that
                # paid for nothing: from the data sets on, then
                structure = Pipeline.of(own.plan.outputs).structure
                digests = self._digests.of(structure)
            names = [node.name for node in structure if digests[node.name] in spent]
            return own.plan.outputs, structure, digests, names
        # an entry may read nodes that any entry before it offers: all of them are read, once
        for before in self._spends[self._plans_read : self._spends.index(entry)]:
            with suppress(PlanError):  # an own mechanism: an error only if a later step reads it
                self._plans.read(before)
            self._plans_read += 1
        plan = self._plans.read(entry)
        self._plans_read += 1
        digests = self._digests.of(plan.structure)
        paid = [node.name for node in paid_nodes(plan.structure, entry["releases"])]
        return plan.outputs, plan.structure, digests, paid

    def audit(
        self,
        /,
        *,
        samples: int = 20_000,
        confidence: float = 0.999,
        seed: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
        **data: Any,
    ) -> Any:
        """Return an `adaptive_dp.audit.Audit`: a lower bound on what the steps leak, by experiment.

        What is audited is `pipeline`, all steps together, against what accountants certify of them
        as if they had been fixed before; a note names the session's certificate and what was spent.
        Each step is fixed as it was chosen, whatever the audit's own runs release before it: a leak
        by how steps were chosen in view of earlier values is not detected (the filter's theorem
        covers that). The session's data are not read, nothing is spent, and nothing recorded.

        Parameters
        ----------
        samples, confidence, seed, progress
            As for `Pipeline.audit`.
        data
            As for `Pipeline.audit`: data among which adversarial units are put, by the data sets'
            names; the result is then as private as they are. Without data, it is public.

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
        # the steps of its runs are fixed, so accountants of losses fixed in advance bound them
        fixed = Pipeline.of(plan.outputs, plan.delta)
        result = fixed.audit(
            samples=samples, confidence=confidence, seed=seed, progress=progress, **data
        )
        notes = (
            "each step is fixed as it was chosen: how it was chosen is not audited",
            f"the session's certificate: epsilon {shown(self.budget.epsilon, upward=True)} at "
            f"delta {shown(self.budget.delta, upward=True)}, epsilon "
            f"{shown(spent, upward=True)} is spent",
        )
        return evolve(result, notes=(*result.notes, *notes))

    def generalization(self, beta: float = 0.05) -> Generalization:
        """Return how far the answers may be from the population of which the rows are a sample.

        For rows that were drawn independently, each a unit of its own, and a public number of them
        (``neighbors="replace_one", size=n``): with a probability of at least ``1 - beta`` over rows
        and noise, the population's mean is within the bound of each answer that is a mean, a sum or
        a count over rows, and of each guess that sparse vector has confirmed, however queries were
        chosen. It follows from the session's epsilon so far and from the noise, and is public. A
        sum is told as a mean over all rows.

        Parameters
        ----------
        beta
            In (0, 1).

        Raises
        ------
        DeclarationError
            If beta is out of its domain, or there is no such answer.

        References
        ----------
        Jung, Ligett, Neel, Roth, Sharifi-Malvajerdi and Shenfeld 2020, with a smaller constant: the
        proof is at `adaptive_dp.session.generalization`.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> tests = dp.dataset(
        ...     "tests", columns={"right": (0, 1)}, neighbors="replace_one", size=20_000
        ... )
        >>> rows = {"right": [float(i % 4 > 0) for i in range(20_000)]}
        >>> with dp.Session(budget=dp.Budget(0.1), seed=1, tests=rows) as session:
        ...     mean = session.run(tests["right"].fill(0).mean().release(dp.Laplace()), share=1)
        ...     print(session.generalization(beta=0.05))
        with probability 0.95, at epsilon 0.1: reusing rows adds at most 0.0254853 of a range
        <BLANKLINE>
        answer  value   population within
        ------  ------  -----------------
        step 1  0.7501  0.03114
        """
        with self._lock:
            self._read_ledger()
            plan = self._pipeline()
            digests = self._digests.of(plan.structure)

            def value_of(release: ReleaseNode) -> Any:
                key = digests[release.name]
                has = self._released.has(release, key)
                return self._released.value(release, key) if has else None

            return generalization_of(
                plan,
                value_of,
                beta,
                reading=self._account.session_totals.epsilon(),
                promised=kept(self.budget.epsilon),
                delta=self.budget.delta,
            )

    def certificate(self) -> Certificate:
        """Return what the session promises, and what was spent of it.

        The claim is the filter's: whatever the steps were, and whatever they will be, all values
        together are within the budget. It names the odometer's reading, what remains, and the last
        hash of the ledger. `adaptive_dp.verify` recomputes all of it from the steps.
        """
        with self._lock:
            self._read_ledger()  # once, so that all its figures are of the same moment
            return certificate_of(
                self._pipeline(),
                self._account,
                head=self._head,
                entries=self._seen,
                seed=self._seed,
            )


class Part:
    """A sub-session: spends of the session's budget, and at most a share of it.

    `Session.part` makes one. All that is released through it together is within its share of
    epsilon, delta and delta_reserve, by a filter of its own, under the session's filter. What was
    released anywhere in the session can be read here as well, at no cost.

    The first spend in a part settles its share, for all sessions of the ledger: a session that
    opened it with another is refused from then on.

    Attributes
    ----------
    name
        As in the ledger: the names of the parts around it and its own, with slashes.
    share
        Of the session's budget, in (0, 1].

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"age": [30.0, 40.0]}) as session:
    ...     ages = session.part("ages", share=0.5)
    ...     count = ages.run(people.count().release(dp.Laplace(scale=4)))
    ...     left = ages.remaining.costs[0], session.remaining.costs[0]
    >>> ages
    <part 'ages': 0.5 of the session's budget>
    >>> [round(cost, 6) for cost in left]
    [0.25, 0.75]
    """

    def __init__(self, session: Session, path: PartPath) -> None:
        self._session, self._path = session, path
        self.name, self.share = path[-1]

    @overload
    def run(
        self,
        query: Pipeline,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        name: str = "",
        again: bool = False,
    ) -> Result: ...

    @overload
    def run(
        self,
        query: Released[T] | PrivateQuery[T],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        name: str = "",
        again: bool = False,
    ) -> T: ...

    def run(
        self,
        query: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        name: str = "",
        again: bool = False,
    ) -> Any:
        """Return the value of a handle, or the result of a plan; see `Session.run`.

        A ``share`` is of this part's budget.
        """
        limit = StepLimit(epsilon, delta, share)
        return self._session._run(query, limit, name, again, self._path)

    def what_if(
        self,
        query: Released[Any] | PrivateQuery[Any] | Pipeline,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
        again: bool = False,
    ) -> Forecast:
        """Return what a step would cost, and what would remain here; see `Session.what_if`."""
        limit = StepLimit(epsilon, delta, share)
        return self._session._forecast(query, limit, again, self._path)

    def above_threshold(self, threshold: float, *, name: str = "", **parameters: Any) -> Any:
        """Return a sparse vector that this part pays for; see `Session.above_threshold`."""
        return self._session._above_threshold(
            self._path, name=name, threshold=threshold, **parameters
        )

    def solved(
        self,
        query: Released[T],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        share: float | None = None,
    ) -> Released[T]:
        """Return the handle with its free noise solved; see `Session.solved`."""
        return self._session._solved_handle(query, StepLimit(epsilon, delta, share), self._path)

    def part(self, name: str, share: float) -> Part:
        """Return a part of this part, with at most that share of its budget."""
        return self._session._part(name, share, self._path)

    @property
    def remaining(self) -> Remaining:
        """What remains of the share, rounded down; the session may have less left."""
        return self._session._remaining(self._path)

    @property
    def spent(self) -> UnitTotals:
        """What was spent through this part, rounded up."""
        return self._session._of_totals(self._path, Totals.spent)

    @property
    def epsilon(self) -> float:
        """What was spent through this part, as an epsilon at its share of delta: an odometer."""
        return self._session._of_totals(self._path, Totals.epsilon)

    def __repr__(self) -> str:
        return f"<part {self.name!r}: {self.share:g} of the session's budget>"


def _drawable(handle: Any) -> Handle:
    """Return a release or a loop, which can be drawn once more; refuse anything else."""
    if not (isinstance(handle, Handle) and isinstance(handle.operation, Release | Loop)):
        raise DeclarationError(
            "again=True draws a release or a loop once more; ask for that handle itself"
        )
    if isinstance(handle.operation, Release) and handle.operation.mechanism.ordinal is not None:
        raise DeclarationError(
            f"{handle!r} is made once: begin another run, by another name, which is paid for"
        )
    return handle


def state_text(
    account: Account,
    steps: int,
    seed: int | None,
    last: StepCosts | None = None,
    *,
    closed: bool,
) -> str:
    """Return a session's state in a few lines, for `print`; all of it is public."""
    budget, totals, limit = account.budget, account.session_totals, account.unit.filter
    kind = "session" if seed is None else f"session, simulated with seed {seed}"
    lines = [
        f"{kind}: {steps} step{'s' * (steps != 1)}{', closed' * closed}",
        f"budget   epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        + (f", {budget.delta_reserve:g} of it for delta floors" if budget.delta_reserve else "")
        + f", enforced by the filter {account.accountant!r}",
        f"spent    epsilon {shown(totals.epsilon(), upward=True)}, wherever you stop",
    ]
    if not account.unit.refuses:
        return "\n".join([*lines, "left     what each record has left is private"])
    words = remaining_of(account, (), last).words
    lines.append(f"left     {words.removeprefix('left ').replace('%', '% of the budget', 1)}")
    spent, rest = totals.spent(), totals.remaining()
    sums = zip(limit.accounting_units.names, limit.budgets(), spent.costs, rest.costs, strict=True)
    # past its limit, a sum of several is of no use any more, and the others go on without it
    past = "exceeded" if limit.needs_every_unit or not totals.within_budget else "not in use"
    rows = [
        [
            unit,
            shown(cost, upward=True) if math.isfinite(cost) else "no bound",
            past if cost > most else shown(over, upward=False),
            shown(ceiling(most), upward=False),
        ]
        for unit, most, cost, over in sums
        if most >= 0
    ]
    how = "each must last" if limit.needs_every_unit else "a step fits while one lasts"
    if len(rows) > 1:
        lines.append(f"         of {len(rows)} sums, {how}")
    if limit.delta_reserve:
        over = "exceeded" if rest.delta_floor < 0 else shown(rest.delta_floor, upward=False)
        most = shown(limit.delta_reserve, upward=False)
        rows.append(["delta floor", shown(spent.delta_floor, upward=True), over, most])
    return "\n".join([*lines, "", table(["sum", "spent", "left", "of"], rows)])
