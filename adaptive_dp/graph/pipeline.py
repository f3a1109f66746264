"""A plan: the graph above the outputs that are wanted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import networkx as nx

import accountants
from accountants import Accountant, Answer, Term
from accountants.secret import Secret
from accountants.terms import pruned
from adaptive_dp.extensions import provided
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.arguments import asked, certified_at
from adaptive_dp.graph.calibrate import free_weights, solve, substituted
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.certify import certificate, stamped
from adaptive_dp.graph.charge import Charge, releases
from adaptive_dp.graph.check import checked
from adaptive_dp.graph.convert import texts, whole
from adaptive_dp.graph.diff import diff
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.export import graph
from adaptive_dp.graph.fresh import fresh
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.run import Result, execute
from adaptive_dp.graph.structure import Path, Structure, structure
from adaptive_dp.graph.table import plan_text
from adaptive_dp.graph.watch import watch
from adaptive_dp.graph.write import to_document


class Pipeline:
    """A private analysis, declared: certify, calibrate, run, simulate, draw or write it.

    Immutable. What no output needs is neither run nor paid for; what two outputs share is
    paid for once.

    Parameters
    ----------
    outputs
        Released handles by name; a mapping of released handles is an output with parts.

    Raises
    ------
    LeakError
        If an output is private, with the way from the data to it.
    DeclarationError
        If neighbour relations are mixed, or two data sets carry one name.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    >>> plan.certify().epsilon
    0.5
    """

    def __init__(self, **outputs: Any) -> None:
        self._outputs = tuple(checked(outputs))
        self._delta = 0.0
        self._adaptive: tuple[str, ...] = ()
        self._charges: tuple[dict[str, Any], list[Charge]] | None = None

    @classmethod
    def of(
        cls,
        outputs: Sequence[tuple[Path, Handle]],
        delta: float = 0.0,
        *,
        adaptive: Sequence[str] = (),
    ) -> Pipeline:
        """Return the plan of (path, handle) pairs; ``delta`` is what `certify` takes by default.

        Of a session, ``adaptive`` names the outputs in the order in which they were run: each may
        depend on all before it.
        """
        plan = cls.__new__(cls)
        plan._outputs = tuple(checked(outputs))
        plan._delta = accountants.errors.probability("delta", delta, below_one=True)
        plan._adaptive = tuple(adaptive)
        plan._charges = None
        return plan

    @property
    def outputs(self) -> tuple[tuple[Path, Handle], ...]:
        """The outputs: pairs of a path of names and a handle.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
        >>> towns = {k: v.count().release(dp.Laplace(scale=2)) for k, v in people.partition("town")}
        >>> [path for path, _ in dp.Pipeline(towns=towns).outputs]
        [('towns', 'A'), ('towns', 'B')]
        """
        return self._outputs

    @property
    def delta(self) -> float:
        """The delta that `certify` takes by default: that of the last calibration, or 0."""
        return self._delta

    @property
    def adaptive(self) -> tuple[str, ...]:
        """Of a session's plan, the outputs in the order in which they were run; else empty.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}) as session:
        ...     _ = session.run(people.count().release(dp.Laplace(scale=5)), name="first")
        ...     _ = session.run(people.count().release(dp.Laplace(scale=2)), name="again")
        ...     session.pipeline.adaptive
        ('first', 'again')
        """
        return self._adaptive

    @cached_property
    def structure(self) -> Structure:
        """The nodes above the outputs, in topological order.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> [node.name for node in plan.structure]
        ['people', 'count', 'n']
        """
        return structure(self._outputs)

    @cached_property
    def term(self) -> Term:
        """What one unit can touch, as a term for the accountants.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> plan.term
        Sequential(parts=(Spend(loss=Laplace(epsilon=0.5), name='n'),))
        """
        return compiler.term(self._priced(to_document(self)))

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The plan as a networkx graph: nodes by name with kind, color, label and detail.

        Of a session's plan, edges with ``kind="adaptive"`` lead from each step to the next.

        Examples
        --------
        >>> import networkx as nx, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=200)))
        >>> nx.shortest_path(plan.graph, "people", "total")
        ['people', 'age', 'sum', 'total']
        >>> plan.graph.nodes["sum"]["color"]
        'private'
        """
        return graph(self.structure, self._adaptive)

    @property
    def free(self) -> dict[str, list[float]]:
        """The free parameters: the weights under each name.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace()))
        >>> plan.free
        {'noise': [100.0]}
        """
        return free_weights(self.structure)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what the plan computes, the same after a round trip through a document.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> def plan(scale):
        ...     people = dp.dataset("people", columns={})
        ...     return dp.Pipeline(n=people.count().release(dp.Laplace(scale=scale)))
        >>> plan(2).fingerprint == plan(2).fingerprint, plan(2).fingerprint == plan(3).fingerprint
        (True, False)
        """
        described = [[list(path), self.structure.of(h).digest] for path, h in self._outputs]
        text = json.dumps(sorted(described), separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def certify(
        self,
        delta: float | None = None,
        *,
        accountants: Sequence[Accountant[Any]] = accountants.ACCOUNTANTS,
    ) -> Certificate:
        """Return the certificate at ``delta``: every accountant's bracket, the tightest named.

        Parameters
        ----------
        delta
            In [0, 1); by default that of the last calibration, or 0.
        accountants
            Those to ask.

        Of a session's plan only accountants whose bounds hold for adaptively chosen losses are
        asked; what covers all of it is `Session.certificate`.

        Raises
        ------
        DeclarationError
            If a parameter is still free.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Gaussian(sigma=5)))
        >>> print(plan.certify(delta=1e-6))
        epsilon <= 0.834118 at delta = 1e-06, by the basic accountant
        protects one row of 'people', added or removed
        <BLANKLINE>
        accountant    lower     upper
        ------------  --------  --------  --------
        basic         0.834117  0.834118  tightest
        advanced      0.834117  0.864521
        concentrated  0.834117  0.899936
        renyi         0.834117  0.899936
        gaussian      0.834117  0.834118
        distribution  0.834117  0.834118
        <BLANKLINE>
        release  mechanism          distance  costs   times  share
        -------  -----------------  --------  ------  -----  ------
        n        Gaussian(sigma=5)  1 (l2)    mu 0.2  1      100.0%
        """
        delta = self._delta if delta is None else certified_at(delta)
        chosen = asked(accountants)
        document = to_document(self)
        return certificate(
            self.structure,
            document,
            self.fingerprint,
            delta,
            chosen,
            adaptive=bool(self._adaptive),
            charges=self._priced(document),
        )

    def _priced(self, document: Mapping[str, Any]) -> list[Charge]:
        """Return the releases, whose losses are computed once.

        As long as the plan is what it was: a parameter that somebody's mechanism keeps in a list
        can be changed.
        """
        if self._charges is None or self._charges[0] != document:
            self._charges = fresh(document), releases(self.structure)
        return self._charges[1]

    @cached_property
    def _paper(self) -> Certificate:
        return self.certify()

    def _stamped(self, seed: int | None) -> Certificate:
        """Return the certificate of a run.

        It is computed once, as long as the plan is what it was: a parameter that somebody's
        mechanism keeps in a list can be changed.
        """
        paper = self._paper
        if to_document(self) != paper.plan:
            paper = Pipeline.of(self._outputs, self._delta, adaptive=self._adaptive).certify()
        return stamped(paper, seed)

    def measure(
        self,
        accountant: Accountant[Any],
        delta: float | None = None,
        *,
        only: Callable[[str], bool] = lambda name: True,
    ) -> Answer:
        """Return one accountant's answer for the releases whose names ``only`` accepts.

        As `accountants.measure` answers for their term. What one more step of a session would cost
        is asked by `Session.what_if`.

        Raises
        ------
        DeclarationError
            If ``accountant`` is none, such as its name or its class.

        Examples
        --------
        >>> import accountants, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(a=people.count().release(dp.Laplace(scale=2)),
        ...                    b=people.count().release(dp.Laplace(scale=4)))
        >>> plan.measure(accountants.Basic(), only=lambda name: name == "b").bounds.upper
        0.25
        """
        delta = self._delta if delta is None else certified_at(delta)
        asked((accountant,))
        kept = pruned(self.term, only)
        return accountants.measure(kept, accountant, delta=delta)

    def calibrate(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        accountants: Sequence[Accountant[Any]] = accountants.ACCOUNTANTS,
    ) -> Pipeline:
        """Return the plan with its free parameters solved for a total (epsilon, delta).

        All are multiples of their weights, with one multiplier: the least for which the
        tightest accountant's upper bound does not exceed ``epsilon``.

        Raises
        ------
        DeclarationError
            If epsilon is not positive, delta not in [0, 1), or nothing is free.
        CalibrationError
            If the releases with fixed noise cost too much already.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(age=people["age"].average(dp.Gaussian()))
        >>> plan = plan.calibrate(epsilon=1.0, delta=1e-6)
        >>> plan.certify()
        <certificate epsilon=1 delta=1e-06 by gaussian>
        """
        solved = solve(self._outputs, epsilon, certified_at(delta), asked(accountants))
        return Pipeline.of(solved, delta)

    def with_delta(self, delta: float) -> Pipeline:
        """Return the plan with another delta for `certify` to take by default, and for `run`.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Gaussian(sigma=5)))
        >>> plan.certify().epsilon, plan.with_delta(1e-6).certify().epsilon < 1
        (inf, True)
        """
        return Pipeline.of(self._outputs, certified_at(delta), adaptive=self._adaptive)

    def fix(self, **values: float) -> Pipeline:
        """Return the plan with the free parameters of given names set: ``value * weight``.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace()))
        >>> plan.fix(noise=2.0).certify()  # twice the sensitivity
        <certificate epsilon=0.5 delta=0 by basic>
        """
        unknown = set(values) - set(self.free)
        if unknown:
            raise DeclarationError(
                f"no free parameter is named {', '.join(sorted(unknown))}; free are "
                f"{', '.join(sorted(self.free)) or 'none'}"
            )
        return Pipeline.of(substituted(self._outputs, values), self._delta)

    def run(self, /, *, progress: bool = False, **data: Any) -> Result:
        """Return the released values, with noise from the operating system's secure source.

        Parameters
        ----------
        progress
            Show how many rounds of a repeat are done, and how many teachers are trained, on
            standard error.
        data
            For each data set, by its name, a frame or a mapping of column names to arrays.

        Raises
        ------
        DeclarationError
            If a parameter is still free, no accountant bounds epsilon at the plan's delta, or a
            document names a function that its reader did not allow. Nothing is spent then.
        DataError
            If data does not fit its declaration.
        RunError
            If a step fails; nothing is released then.
        Interrupted
            If the run is interrupted from the keyboard; a `KeyboardInterrupt` that keeps what was
            released until then, and its certificate.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=0.01)))
        >>> result = plan.run(people={"id": [1, 2, 3]})
        >>> round(result["n"])
        3
        >>> result.certificate.randomness.release
        True
        """
        data = {name: Secret(value) for name, value in data.items()}  # for tracebacks
        return execute(self, data, seed=None, watch=watch(progress))

    def simulate(self, /, *, seed: int, progress: bool = False, **data: Any) -> Result:
        """Return what a run with seeded noise would release: for research, never for release.

        Parameters
        ----------
        seed
            A whole number of at least 0; equal seeds give equal noise.
        progress
            As for `run`.
        data
            As for `run`.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> once, again = (plan.simulate(seed=1, people={"id": [1, 2, 3]}) for _ in range(2))
        >>> once["n"] == again["n"], once.certificate.randomness.release
        (True, False)
        """
        data = {name: Secret(value) for name, value in data.items()}  # for tracebacks
        number = whole(seed)
        require(
            number is not None and number >= 0,
            f"simulate's seed must be a whole number of at least 0, got {seed!r}; for noise from "
            "the operating system use run",
        )
        return execute(self, data, seed=number, watch=watch(progress))

    def audit(
        self,
        /,
        *,
        samples: int = 20_000,
        confidence: float = 0.95,
        seed: int | None = None,
        **data: Any,
    ) -> Any:
        """Return an `adaptive_dp.audit.Audit`: a lower bound on epsilon, from many runs.

        Runs are made on neighbouring data sets that a gallery makes from the declarations. For data
        sets with one of the names above, and for more to choose, see `adaptive_dp.audit.pipeline`.

        Parameters
        ----------
        samples
            Runs on each side of a pair, on average.
        confidence
            With which the bound holds.
        seed
            For reproducible audits.
        data
            Data, by the data sets' names, among which the gallery's units are put; all of them,
            those of public data sets alone, or none. What the audit says is as private as they are.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=100)))
        >>> found = plan.audit(samples=1_000, seed=1)
        >>> 0 < found.epsilon <= plan.certify().epsilon
        True
        """
        audit = provided("audit.pipeline")  # of a higher room
        return audit(self, data=data or None, samples=samples, confidence=confidence, seed=seed)

    def diff(self, other: Pipeline) -> str:
        """Return what differs between two plans, node by node; empty if nothing does.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> one = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> other = dp.Pipeline(n=people.count().release(dp.Laplace(scale=4)))
        >>> print(one.diff(other))
        ~ n: release Laplace(scale=2) -> release Laplace(scale=4)
        """
        require(isinstance(other, Pipeline), f"diff needs a Pipeline, got {type(other).__name__}")
        return diff(self.structure, other.structure)

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a JSON document; `load` reads it back with the same fingerprint.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> document = plan.to_document()
        >>> document["format"], [node["kind"] for node in document["nodes"]]
        ('adaptive-dp/plan/2', ['dataset', 'count', 'release'])
        """
        return to_document(self)

    def to_json(self) -> str:
        """Return the plan document as JSON text.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> print(plan.to_json().splitlines()[1])
         "format": "adaptive-dp/plan/2",
        """
        return json.dumps(self.to_document(), indent=1, allow_nan=False) + "\n"

    def svg(self, *, closed: Sequence[str] = ()) -> str:
        """Return a drawing; ``closed`` names groups to draw as one box.

        Raises
        ------
        DeclarationError
            If no group has such a name.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> plan.svg()[:4]
        '<svg'
        """
        groups = {name for _, groups in self.graph.nodes(data="group") for name in groups}
        unknown = sorted(set(texts(closed)) - groups)
        require(
            not unknown,
            f"no group is named {', '.join(map(repr, unknown))}; groups are "
            f"{', '.join(map(repr, sorted(groups))) or 'none'}",
        )
        return str(provided("report.svg")(self.graph, closed=closed))

    def mermaid(self) -> str:
        """Return the graph as Mermaid text.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> print(plan.mermaid())
        flowchart LR
          n0["people<br/>add/remove, protects one row"]:::private
          n1["count"]:::private
          n2(["n<br/>Laplace#40;scale=2#41;"]):::released
          n0 --> n1
          n1 --> n2
          classDef private fill:#fff1e6,stroke:#c2410c,color:#7c2d12,stroke-width:2px
          classDef released fill:#e8f4fc,stroke:#0369a1,color:#0c4a6e
          classDef public fill:#f3f4f6,stroke:#6b7280,color:#374151,stroke-dasharray:4 3
        """
        return str(provided("report.mermaid")(self.graph))

    def __str__(self) -> str:
        return plan_text(self.structure)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(path[0] for path, _ in self._outputs))
        return f"<plan of {len(self.structure.nodes)} nodes: {names}>"

    def _repr_html_(self) -> str:
        return self.svg()
