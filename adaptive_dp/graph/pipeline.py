"""A plan: the graph above the outputs that are wanted."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import networkx as nx

import accountants
from accountants import Accountant, Answer, Term
from accountants.secret import Secret
from accountants.terms import pruned
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.arguments import asked, certified_at
from adaptive_dp.graph.calibrate import free_weights, solve, substituted
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.certify import certificate
from adaptive_dp.graph.check import checked
from adaptive_dp.graph.convert import texts, whole
from adaptive_dp.graph.diff import diff
from adaptive_dp.graph.draw import mermaid, svg
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.export import graph
from adaptive_dp.graph.fresh import copied
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
    0.5000000...
    """

    def __init__(self, **outputs: Any) -> None:
        self._outputs = tuple(checked(outputs))
        self._delta = 0.0
        self._adaptive: tuple[str, ...] = ()

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
        return plan

    @property
    def outputs(self) -> tuple[tuple[Path, Handle], ...]:
        """The outputs: pairs of a path of names and a handle."""
        return self._outputs

    @property
    def delta(self) -> float:
        """The delta that `certify` takes by default: that of the last calibration, or 0."""
        return self._delta

    @property
    def adaptive(self) -> tuple[str, ...]:
        """Of a session's plan, the outputs in the order in which they were run; else empty."""
        return self._adaptive

    @cached_property
    def structure(self) -> Structure:
        """The nodes above the outputs, in topological order."""
        return structure(self._outputs)

    @cached_property
    def term(self) -> Term:
        """What one unit can touch, as a term for the accountants."""
        return compiler.term(self.structure)

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The plan as a networkx graph: nodes by name with kind, color, label and detail.

        Of a session's plan, edges with ``kind="adaptive"`` lead from each step to the next.
        """
        return graph(self.structure, self._adaptive)

    @property
    def free(self) -> dict[str, list[float]]:
        """The free parameters: the weights under each name."""
        return free_weights(self.structure)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what the plan computes, the same after a round trip through a document."""
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
        )

    @cached_property
    def _paper(self) -> Certificate:
        return self.certify()

    def _stamped(self, randomness: Mapping[str, Any]) -> Certificate:
        """Return the certificate of a run.

        It is computed once, as long as the plan is what it was: a parameter that somebody's
        mechanism keeps in a list can be changed.
        """
        paper = self._paper
        if to_document(self) != paper.document["plan"]:
            paper = Pipeline.of(self._outputs, self._delta, adaptive=self._adaptive).certify()
        document = copied(paper.document)  # each run's own, which one may change
        document["randomness"] |= randomness
        return Certificate(document)

    def what_if(
        self,
        accountant: Accountant[Any],
        delta: float | None = None,
        *,
        only: Callable[[str], bool] = lambda name: True,
    ) -> Answer:
        """Return one accountant's answer for the releases whose names ``only`` accepts.

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
        >>> plan.what_if(accountants.Basic(), only=lambda name: name == "b").bounds.upper
        0.2500000...
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
        """Return the plan with the free parameters of given names set: ``value * weight``."""
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
        """
        room = importlib.import_module("adaptive_dp.audit")  # it stands on the graph
        return room.pipeline(
            self, data=data or None, samples=samples, confidence=confidence, seed=seed
        )

    def diff(self, other: Pipeline) -> str:
        """Return what differs between two plans, node by node; empty if nothing does."""
        require(isinstance(other, Pipeline), f"diff needs a Pipeline, got {type(other).__name__}")
        return diff(self.structure, other.structure)

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a JSON document; `load` reads it back with the same fingerprint."""
        return to_document(self)

    def to_json(self) -> str:
        """Return the plan document as JSON text."""
        return json.dumps(self.to_document(), indent=1, allow_nan=False) + "\n"

    def svg(self, *, closed: Sequence[str] = ()) -> str:
        """Return a drawing; ``closed`` names groups to draw as one box.

        Raises
        ------
        DeclarationError
            If no group has such a name.
        """
        groups = {name for _, groups in self.graph.nodes(data="group") for name in groups}
        unknown = sorted(set(texts(closed)) - groups)
        require(
            not unknown,
            f"no group is named {', '.join(map(repr, unknown))}; groups are "
            f"{', '.join(map(repr, sorted(groups))) or 'none'}",
        )
        return svg(self.graph, closed=closed)

    def mermaid(self) -> str:
        """Return the graph as Mermaid text."""
        return mermaid(self.graph)

    def __str__(self) -> str:
        return plan_text(self.structure)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(path[0] for path, _ in self._outputs))
        return f"<plan of {len(self.structure.nodes)} nodes: {names}>"

    def _repr_html_(self) -> str:
        return self.svg()
