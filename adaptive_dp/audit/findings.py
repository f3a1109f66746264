"""Static audits: what looks wrong with a plan, without running it.

A finding does not prove a leak, and the absence of findings does not prove that there is none:
functions and mechanisms that are not the library's may leak in ways that no inspection finds.
"""

from __future__ import annotations

import dis
import functools
import inspect
import json
import math
import types
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Literal

import numpy as np
from attrs import asdict, frozen

from adaptive_dp.graph.handles import Release
from adaptive_dp.graph.nodes import Node, ReleaseNode, Structure
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.registry import FUNCTIONS, Function, is_own

FORMAT = "adaptive-dp/static-audit/1"

Severity = Literal["error", "warning", "note"]
_ORDER = ("error", "warning", "note")

LARGE_EPSILON = 10.0
"""An epsilon above this protects little: one event may be e^10 times as likely on a neighbour."""

LOOSE_RATIO = 1.05
"""Where the upper bound on epsilon is more than so many times the lower one, a finding says so."""


@frozen
class Finding:
    """One thing to look at.

    Parameters
    ----------
    node
        The node's name; empty for the plan itself.
    severity
        "error" where the plan promises nothing or seems to leak, "warning" where its certificate
        rests on something unchecked, "note" where something could be better.
    text
        The finding as a sentence.
    remedy
        What to do.
    """

    node: str
    severity: Severity
    text: str
    remedy: str


@frozen(repr=False)
class StaticAudit:
    """The findings of a static audit, the most severe first."""

    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        """Refuse: an audit is not a yes or no."""
        raise TypeError("an audit has no truth value; use its findings")

    def document(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        return {"format": FORMAT, "findings": [asdict(each) for each in self.findings]}

    def to_json(self) -> str:
        """Return the document as a JSON str."""
        return json.dumps(self.document(), sort_keys=True, indent=1, allow_nan=False) + "\n"

    def __str__(self) -> str:
        lines = [
            f"{each.severity:<8}{each.node or 'the plan'}: {each.text}\n        {each.remedy}"
            for each in self.findings
        ]
        return "\n".join(lines) if lines else "nothing was found, which proves nothing"

    def __repr__(self) -> str:
        counts = {s: sum(f.severity == s for f in self.findings) for s in _ORDER}
        return f"<static audit: {', '.join(f'{n} {s}s' for s, n in counts.items())}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td style='text-align:left'>{escape(text)}</td>"
                for text in (each.severity, each.node or "the plan", each.text, each.remedy)
            )
            + "</tr>"
            for each in self.findings
        )
        return f"<table>{rows}</table>"


def static(plan: Pipeline) -> StaticAudit:
    """Inspect a plan without running it.

    Parameters
    ----------
    plan
        Any plan, also with free parameters.

    Returns
    -------
    StaticAudit
        The findings, the most severe first.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> noisy = [people.count().release(dp.Laplace(scale=2)) for _ in range(2)]
    >>> print(static(dp.Pipeline(a=noisy[0], b=noisy[1])))
    warning a: the same query as in b is released once more, and paid for once more
            release it once and use the value twice, or average on purpose
    """
    structure = plan.structure
    findings = [
        *_foreign_code(structure),
        *_repeated_queries(structure),
        *_assumptions(structure),
        *_adaptive_steps(structure),
    ]
    # free noise has no certificate to look at
    findings += _free_noise(plan) if plan.free else _certificate_findings(plan)
    # a stable sort: within a severity findings stay in the order of the checks
    return StaticAudit(tuple(sorted(findings, key=lambda each: _ORDER.index(each.severity))))


def _foreign_code(structure: Structure) -> Iterator[Finding]:
    """Find operations, mechanisms and functions that are not the library's."""
    for node in structure:
        operation = node.handle.operation
        if isinstance(operation, Release) and not is_own(type(operation.mechanism)):
            name = type(operation.mechanism).__name__
            yield Finding(
                node.name,
                "warning",
                f"{name} is a mechanism from outside of the library: it is not checked that what "
                "it releases loses no more than it declares",
                "audit it: adaptive_dp.audit.mechanism, and audit.pipeline for what it does here",
            )
        if not is_own(type(operation)):
            yield Finding(
                node.name,
                "warning",
                f"{type(operation).__name__} is an operation from outside of the library: the "
                "sensitivity that it declares is not checked",
                "search for neighbours that move it further: adaptive_dp.audit.search",
            )
        for each in operation.parameters().values():
            if isinstance(each, Function):
                yield from _function_findings(node, each)


def _function_findings(node: Node, function: Function) -> Iterator[Finding]:
    # the library's own functions by public name
    if function.name in FUNCTIONS:
        return
    # a function that is only named, by a document, has nothing to look into
    captured = sorted(set(_captured_data(function.call))) if function.call is not None else []
    if captured:
        yield Finding(
            node.name,
            "error",
            f"the function {_function_name(function)} can reach what looks like data "
            f"({', '.join(captured)}): if any of it is private, the output leaks it",
            "pass released values and public constants as arguments, and nothing else",
        )
    elif function.call is None:
        yield Finding(
            node.name,
            "warning",
            f"the function {_function_name(function)} is named by the document and was not looked "
            "at",
            "read it, and load the plan with allow=[its module]",
        )
    elif function.name.startswith("lambda:"):
        yield Finding(
            node.name,
            "note",
            "no module holds the function that is called here, so a document cannot bring it along",
            "define it at the top level of a module",
        )


def _function_name(function: Function) -> str:
    return function.name.partition(":")[2] if ":" in function.name else function.name


def _captured_data(call: Any, depth: int = 0) -> Iterator[str]:
    """Yield the names under which a function holds tables, arrays or long lists.

    As deep as three calls, so that a function may hold itself.
    """
    if isinstance(call, functools.partial):
        values: dict[str, Any] = {f"argument {i}": v for i, v in enumerate(call.args)}
        values |= call.keywords
        # a function may hold itself through others, so the depth is bounded
        yield from _captured_data(call.func, depth + 1) if depth < 3 else ()
    elif isinstance(call, types.MethodType):
        values = {"self": call.__self__}
        yield from _captured_data(call.__func__, depth)
    elif isinstance(call, types.FunctionType):
        values = {}
        cells = call.__closure__ or ()
        # free variables in the order of their cells
        for name, cell in zip(call.__code__.co_freevars, cells, strict=True):
            try:
                values[name] = cell.cell_contents
            except ValueError:  # not filled yet
                continue
        # names that the code loads, not all that its module holds
        for name in _global_names(call.__code__):
            if name in call.__globals__:
                values[name] = call.__globals__[name]
        defaults = {**(call.__kwdefaults__ or {})}
        values |= defaults | {f"default {i}": v for i, v in enumerate(call.__defaults__ or ())}
    else:
        # an object with __call__: what it holds, and what its method reaches
        values = _attributes(call)
        method = inspect.getattr_static(type(call), "__call__", None)
        if isinstance(method, types.FunctionType):
            yield from _captured_data(method, depth)
    for name, value in values.items():
        if _looks_like_data(value):
            yield name
        elif callable(value) and depth < 3 and not isinstance(value, type):
            # functions of other modules, such as libraries, are not followed
            module = getattr(value, "__module__", "") or ""
            if module == getattr(call, "__module__", None):
                yield from _captured_data(value, depth + 1)
        # an instance of a class of the same module may hold data in its attributes
        elif type(value).__module__ == getattr(call, "__module__", None) and _looks_like_data(
            _attributes(value)
        ):
            yield name


def _attributes(instance: Any) -> dict[str, Any]:
    """Return what an object holds, in its dictionary and in its slots."""
    slots = [getattr(kind, "__slots__", ()) for kind in type(instance).__mro__]
    names = [s for each in slots for s in ((each,) if isinstance(each, str) else each)]
    values = {name: getattr(instance, name, None) for name in names if not name.startswith("__")}
    return values | dict(getattr(instance, "__dict__", {}))


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that code loads; names of attributes are not among them."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    yield from (str(each.argval) for each in dis.get_instructions(code) if each.opname in loads)
    # functions and comprehensions inside are constants of the code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _global_names(each)


_SMALL = 64
"""A list, a mapping or an array of at most so many values may be a table of constants."""


def _looks_like_data(value: Any) -> bool:
    """Return whether a value looks like data or contains some; each container is visited once."""
    visited: set[int] = set()
    remaining = [value]
    while remaining:
        item = remaining.pop()
        # containers are looked through; a table or a secret is known by its type's name
        if isinstance(item, np.ndarray | list | tuple | set | frozenset | Mapping):
            if (item.size if isinstance(item, np.ndarray) else len(item)) > _SMALL:
                return True
            if id(item) not in visited:  # it may hold itself
                visited.add(id(item))
                remaining += _elements(item)
        elif type(item).__name__ in _TABLES:
            return True
    return False


_TABLES = (
    *("DataFrame", "Series", "LazyFrame", "Table", "Tensor", "Secret"),
    *("MemoryRows", "PartitionedRows", "Examples", "PartitionedExamples"),
)


def _elements(container: Any) -> list[Any]:
    if isinstance(container, np.ndarray):
        return container.ravel().tolist() if container.dtype == object else []
    return list(container.values() if isinstance(container, Mapping) else container)


def _repeated_queries(structure: Structure) -> Iterator[Finding]:
    """Find queries that are released more than once."""
    by_query: dict[str, list[Node]] = {}
    for node in structure:
        if isinstance(node.handle.operation, Release):
            query = structure.of(node.handle.inputs[0])
            by_query.setdefault(query.digest, []).append(node)
    for nodes in by_query.values():
        # all but the last release of a query are reported
        for node in nodes[:-1]:
            yield Finding(
                node.name,
                "warning",
                f"the same query as in {nodes[-1].name} is released once more, and paid for once "
                "more",
                "release it once and use the value twice, or average on purpose",
            )


def _assumptions(structure: Structure) -> Iterator[Finding]:
    """Find operations that rest on assumptions which no program can check."""
    for node in structure:
        assumption = node.handle.operation.assumes()
        if assumption:
            yield Finding(
                node.name,
                "note",
                f"it is assumed, not checked: {assumption}",
                "make sure that it holds",
            )


def _adaptive_steps(structure: Structure) -> Iterator[Finding]:
    """Find private steps that read released values."""
    for node in structure:
        if node.handle.visibility != "private":
            continue
        # a private step that reads released values makes the plan adaptive
        released_inputs = [
            name for name in node.inputs if structure.nodes[name].handle.visibility == "released"
        ]
        if released_inputs:
            yield Finding(
                node.name,
                "note",
                f"what is asked depends on released values ({', '.join(sorted(released_inputs))})",
                "the certificate covers this; check that they are what you mean to follow",
            )


def _free_noise(plan: Pipeline) -> Iterator[Finding]:
    names = ", ".join(sorted(plan.free))
    yield Finding(
        "",
        "note",
        f"noise is still free ({names}), so nothing is promised yet",
        "plan.calibrate(epsilon=..., delta=...), then look again",
    )


def _certificate_findings(plan: Pipeline) -> Iterator[Finding]:
    """Find what is notable in the certificate."""
    certificate = plan.certify()
    yield from _claim_findings(certificate.epsilon, certificate.delta, plan.structure.releases)
    # the best of all accountants' lower bounds of epsilon
    lower = max((each.lower for each in certificate.bounds.values()), default=0.0)
    # at delta 0 sums are exact, so that no bound is loose
    if certificate.delta > 0 and lower > 0 and certificate.epsilon < math.inf:
        # how much of epsilon may be due to the accountants, not to the plan
        ratio = certificate.epsilon / lower
        if ratio > LOOSE_RATIO:
            yield Finding(
                "",
                "note",
                f"the accountants bracket epsilon between {lower:.4g} and "
                f"{certificate.epsilon:.4g} (by {certificate.accountant}): up to "
                f"{100 * (ratio - 1):.0f}% may be lost to bounds",
                "ask accountants with finer grids: plan.certify(accountants=[...])",
            )
    # where worlds tie, more noise in one of them leaves the others as they are
    ties = certificate.ties
    for row in certificate.nodes:
        # of two releases one always has half
        if len(certificate.nodes) > 2 and row.share > 0.5 and row.in_worst_world and not ties:
            yield Finding(
                row.node,
                "note",
                f"it takes {100 * row.share:.0f}% of the budget",
                "a little more noise here would allow much less noise elsewhere",
            )
        if not row.in_worst_world:
            yield Finding(
                row.node,
                "note",
                "it is not in the worst world: units that it affects lose less than is certified",
                "its noise could be less at no cost to the certificate",
            )
        if "float64" in row.sampler:
            yield Finding(
                row.node,
                "warning",
                "its noise is drawn in float64, so the lowest bits of what it releases may tell "
                "more than is certified",
                "use a mechanism whose sampler is exact, or round what is published",
            )


def _claim_findings(epsilon: float, delta: float, paths: list[ReleaseNode]) -> Iterator[Finding]:
    if epsilon == math.inf:
        yield Finding(
            "",
            "error",
            f"no accountant bounds epsilon at delta = {delta:g}: the plan promises nothing",
            "choose a delta with plan.with_delta(1e-6), or noise with a bounded loss",
        )
    elif epsilon > LARGE_EPSILON:
        yield Finding(
            "",
            "warning",
            f"epsilon is {epsilon:.4g}: an observer's odds on a fact about a unit may grow by a "
            f"factor of e^{epsilon:.3g}",
            "calibrate to less, or say why so much is acceptable",
        )
    sizes = [getattr(path.source, "size", None) for path in paths]
    # units are counted where their number is declared
    size = max((each for each in sizes if each is not None), default=None)
    # the expected number of units that a mechanism of this delta might publish outright
    if size is not None and delta * size > 0.1:
        yield Finding(
            "",
            "warning",
            f"delta = {delta:g} for {size} units: a mechanism that publishes a unit at random with "
            f"probability {min(1.0, delta * size):.2g} would satisfy it",
            f"take a delta well below {1 / size:.1g}",
        )
    elif size is None and delta > 1e-3:
        yield Finding(
            "",
            "warning",
            f"delta = {delta:g} is large for more than a hundred units",
            "take a delta well below one by their number",
        )
