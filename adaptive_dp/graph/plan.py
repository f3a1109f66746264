"""`Pipeline`, the plan of an analysis: its outputs with all that they need, and its verbs.

A plan is immutable and holds handles; nodes, terms and certificates are made of them when they are
first needed (see `adaptive_dp.graph.compile` for the four forms of a release).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import networkx as nx
import numpy as np
from attrs import evolve

import accountants
from accountants import ACCOUNTANTS, Accountant, Answer, DomainError, Term
from accountants.accountant import checked_accountant
from accountants.calibration import least_noise
from accountants.numerics import down
from accountants.secret import Secret
from accountants.terms import pruned
from adaptive_dp.extensions import provided
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.certificate import Certificate, checked_reasons, plan_text
from adaptive_dp.graph.certify import OURS, certificate, stamped
from adaptive_dp.graph.errors import (
    CalibrationError,
    DeclarationError,
    LeakError,
    NeighborError,
    NoIntervalError,
)
from adaptive_dp.graph.handles import (
    Average,
    Handle,
    PartOperation,
    PrivateQuery,
    Release,
    SampleOperation,
    SourceOperation,
    check_release,
    lineage,
    private_path,
    unaliased,
)
from adaptive_dp.graph.loops import Loop, inputs_and_bodies, rewritten, upward
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.nodes import (
    Known,
    Node,
    Structure,
    collection_paused,
    describe,
    differing,
    digest,
    graph,
    is_unclear,
    structure,
    to_document,
    unknown,
)
from adaptive_dp.graph.operation import UNBOUNDED, Change, Operation, Query
from adaptive_dp.graph.outputs import check_level, widest
from adaptive_dp.graph.passes import DataPass, passes
from adaptive_dp.graph.run import Expectation, Result, execute, expected, watch
from adaptive_dp.graph.values import (
    POSITIVE,
    as_int,
    as_tuple,
    evolved,
    json_text,
    number,
    positive,
    strings,
    visible,
)

# -----------------------------------------------------------------------------
# Arguments of certificates and calibrations, checked.


def check_accountants(chosen: Iterable[Accountant[Any]]) -> tuple[Accountant[Any], ...]:
    """Return the accountants as a tuple, or refuse what is not an accountant.

    Raises
    ------
    DeclarationError
        If there are none, one is a str or a class, or two have the same name.
    """
    rule = "accountants must be instances such as accountants.Renyi()"
    instances = as_tuple(chosen)
    if not instances:
        raise DeclarationError(f"{rule}, got none; leave the argument out to ask all of them")
    for each in instances:
        # the protocol by its members: a third party's accountant need not inherit
        try:
            checked_accountant(each)
        except DomainError as error:
            raise DeclarationError(str(error)) from None
        # certificates name accountants, and verification recomputes them, by name alone
        ours = OURS.get(each.name)
        if ours is not None and type(each) is not type(ours):
            raise DeclarationError(
                f"{type(each).__module__}.{type(each).__qualname__} calls itself {each.name!r}, "
                "which is the name of an accountant of the library: certificates would "
                "name the wrong one; rename it"
            )
    names = [each.name for each in instances]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DeclarationError(
            f"two accountants are called {', '.join(map(repr, twice))}; ask one of them"
        )
    return instances


def check_delta(delta: float) -> float:
    """Return a delta in [0, 1), or refuse it."""
    try:
        return accountants.errors.probability("delta", delta, below_one=True)
    except accountants.DomainError as error:
        raise DeclarationError(str(error)) from None


# -----------------------------------------------------------------------------
# The rules of a plan, checked when it is built: no private value gets out but by a release.


Path = tuple[str, ...]
DEPTH = 64
"""Parts and samples may be nested this deep."""


Arrivals = dict[Handle, tuple[SourceOperation, Change | None, int]]
"""What arrives at private handles: their data set, the change of one unit of it (None where nothing
on the way from there can bound its rows), and how many parts and samples are on the way."""


@collection_paused()
def check_outputs(
    outputs: Mapping[str, Any] | Sequence[tuple[Path, Handle]], known: Known = unknown
) -> list[tuple[Path, Handle]]:
    """Return the outputs as (path, handle) pairs, sorted by path: step 2 before step 10.

    What is above handles that ``known`` has a digest of was checked before.

    Raises
    ------
    LeakError
        If an output or an input of post-processing is private.
    NeighborError
        If data sets have different neighbour relations.
    DeclarationError
        If there are no outputs, or two data sets share a name.
    """
    flat = by_default(_flatten((), outputs)) if isinstance(outputs, Mapping) else list(outputs)
    if not flat:
        raise DeclarationError("a plan needs at least one output: Pipeline(name=released_handle)")
    # outputs first: the message names the output through which the value would get out
    for name, handle in flat:
        if handle.visibility == "private":
            raise LeakError(
                f"output {'.'.join(name)!r} is private: {private_path(handle)}; ask something of "
                "it that can be released, such as .count() of a table or .sum() of a column"
            )
    _check_paths([name for name, _ in flat])
    # then every node above, in the bodies of loops too: documents can hold any graph
    sources: dict[str, SourceOperation] = {}

    arrivals: Arrivals = {}
    taken: set[tuple[int, int]] = set()

    def before(handle: Handle) -> Sequence[Handle]:
        if known(handle) is not None:
            return ()
        check_flow(handle, arrivals)
        _check_taken_once(handle, taken)
        if isinstance(handle.operation, SourceOperation):
            check_declaration(handle.operation, sources)
        return inputs_and_bodies(handle)

    # each handle is checked when it is reached, before what it reads
    for _ in upward([handle for _, handle in flat], before):
        pass
    for name, handle in flat:
        # a loop as a node does not depend on its own state
        if handle.states:
            raise DeclarationError(
                f"output {'.'.join(name)!r} reads what belongs to the body of a loop from outside "
                "of it; return it as (a part of) the round's result"
            )
    # the names of parts stand in very many paths
    natural_order = cache(_natural_order)
    return sorted(flat, key=lambda pair: [natural_order(name) for name in pair[0]])


def by_default(outputs: Iterable[tuple[Path, Handle]]) -> list[tuple[Path, Handle]]:
    """Return the outputs with queries released by their default mechanisms.

    Equal queries are one release. Averages of the same rows, declared without a mechanism, share
    one count: that of the plan, where it has one whose noise is free.

    Raises
    ------
    DeclarationError
        If a query has no default mechanism.
    """
    released: dict[Any, Handle] = {}
    flat = []
    for path, handle in outputs:
        if isinstance(handle, PrivateQuery):
            key = _question(handle)
            if key not in released:
                try:
                    released[key] = handle.release()
                except DeclarationError as error:
                    raise DeclarationError(f"output {'.'.join(path)!r}: {error}") from None
            flat.append((path, released[key]))
        else:
            flat.append((path, handle))
    roots = [handle for _, handle in flat]
    # not into the bodies of loops: what is released there is released in each round
    above = list(upward(roots, lambda handle: handle.inputs))
    sharing: dict[Any, list[Average[Any]]] = {}
    for handle in above:
        if isinstance(handle, Average) and handle.may_share and not handle.states:
            sharing.setdefault(_question(handle.rows), []).append(handle)
    if not sharing:
        return flat
    for handle in above:
        if isinstance(handle.operation, Release) and handle.operation.mechanism.free():
            released.setdefault(_question(handle.inputs[0]), handle)
    shared: dict[Handle, Handle] = {}
    for key, averages in sharing.items():
        # one average by itself divides by the number of rows that have a value: less noise
        if key in released or len(averages) > 1:
            count: Any = released[key] if key in released else averages[0].rows.release()
            shared |= {each: each.over(count) for each in averages}
    new = rewritten(roots, replacements=shared)
    return [(path, new[handle]) for path, handle in flat]


def _question(query: Handle) -> tuple[Any, ...]:
    """Return what two queries of the same rows have in common: equal steps from the data set."""
    return tuple(
        # two samples are different, though they are drawn alike; so are steps that follow releases,
        # and functions that are described alike may differ
        id(each)
        if each.operation.random or len(each.inputs) > 1 or is_unclear(each.operation)
        # the class itself: two of third parties may share even their names
        else (type(each.operation), digest(describe(each.operation)))
        for each in lineage(query)
    )


def _natural_order(name: str) -> tuple[Any, ...]:
    """Return a key that orders names as people count: digits in them by their value."""
    parts = re.split("([0-9]+)", name)  # letters at even indices, digits at odd ones
    numbers = [part.lstrip("0") for part in parts[1::2]]
    # by length, then by digits: the order of the numbers, however many digits they have
    sizes = [(len(digits), digits) for digits in numbers]
    return [x for pair in zip(parts[::2], [*sizes, ()], strict=True) for x in pair], name


def _check_paths(paths: Sequence[Path]) -> None:
    """Refuse two outputs of one path, and an output inside of another."""
    for names in paths:
        if not (bool(names) and all(isinstance(name, str) and name != "" for name in names)):
            raise DeclarationError(f"an output's name must be a non-empty str, got {list(names)!r}")
    counts = Counter(paths)
    for names in paths:
        # an output named like a group of outputs would make one name mean two values
        inner = any(names[:i] in counts for i in range(1, len(names)))
        if not (counts[names] == 1 and not inner):
            raise DeclarationError(
                f"two outputs are named {'.'.join(names)!r}, or one is a part of the other; rename "
                "one"
            )


def _flatten(prefix: Path, outputs: Mapping[Any, Any]) -> Iterator[tuple[Path, Handle]]:
    for name, value in outputs.items():
        where = (*prefix, str(name))
        if isinstance(value, Mapping):
            if not value:
                raise DeclarationError(f"output {'.'.join(where)!r} is an empty mapping")
            yield from _flatten(where, value)
        elif isinstance(value, Handle):
            yield where, value
        else:
            raise DeclarationError(
                f"output {'.'.join(where)!r} must be a released handle or a mapping of such, got "
                f"{type(value).__name__}; a constant is dp.public(value)"
            )


def check_flow(handle: Handle, arrivals: Arrivals | None = None) -> None:
    """Check that private values flow along one input, and out through releases only.

    Parameters
    ----------
    handle
        The handle with its inputs.
    arrivals
        What arrives at handles that were checked before: filled, so that of many releases the paths
        that they share are followed once.
    """
    kind = handle.operation.kind
    # which inputs are private; a private value may only be in front
    inside = [i.visibility == "private" for i in handle.inputs]
    if isinstance(handle.operation, Loop) or kind == "group":
        if not (bool(inside) and not inside[0]):
            raise DeclarationError(f"the first input of a {kind} must be released")
        if isinstance(handle.operation, Loop) and handle.operation.result.visibility == "private":
            raise LeakError(
                "the body of a loop returns a private value: "
                f"{private_path(handle.operation.result)}; release it first"
            )
    elif kind == "release":
        # only a query has a sensitivity, so only a query can be released
        query = handle.inputs[0].operation if handle.inputs else None
        if inside[:1] != [True] or any(inside[1:]) or not isinstance(query, Query):
            raise DeclarationError(
                "a release has one private input, its first: a query, a private value with a "
                "sensitivity; beside it only released values"
            )
        check_release(query, handle.inputs[0].inputs[0].domain, handle.domain, len(inside) - 1)
        if (handle.domain.begins or handle.domain.continues) and handle.states:
            raise DeclarationError(
                f"{type(handle.domain).__name__} is of a run of several releases, and cannot be "
                "inside of a loop of a plan, whose rounds would share one noise; use a mechanism "
                "that is one release there, such as SparseVector or FollowTheLeader"
            )
        # what the mechanism's loss takes for granted of the inputs of this very release
        handle.domain.premises(handle)
        _check_rows_bounded(handle, {} if arrivals is None else arrivals)
    elif handle.visibility == "private":
        if isinstance(handle.operation, SourceOperation):
            if inside:
                raise DeclarationError("a dataset has no inputs")
        elif not inside or not inside[0] or any(inside[1:]):
            # one private input: how a change flows through a node is defined for a single path
            raise LeakError(
                f"{handle!r} must read one private value, its first input, and released values "
                "beside it"
            )
        else:
            if not (len(inside) - 1 <= handle.operation.max_released_inputs):
                raise DeclarationError(
                    f"{handle!r} reads {len(inside) - 1} values beside its private one, it can "
                    f"read {handle.operation.max_released_inputs}"
                )
            # a transform of a query would change its sensitivity unseen
            if isinstance(handle.inputs[0].operation, Query):
                raise DeclarationError(
                    f"{handle!r} reads a query's value; a query can only be released"
                )
    elif any(inside):
        leak = handle.inputs[inside.index(True)]
        raise LeakError(f"{handle!r} reads a private value: {private_path(leak)}; release it first")
    if kind == "post" and not inside:
        raise DeclarationError("a post reads at least one released value; a constant is public")
    if kind in ("public", "state") and inside:
        raise DeclarationError(f"a {kind} value has no inputs")


def _check_taken_once(handle: Handle, taken: set[tuple[int, int]]) -> None:
    """Refuse a second release in one place of a run, which the first one was paid for; add it."""
    operation = handle.operation
    if not (isinstance(operation, Release) and operation.mechanism.ordinal):
        return
    place = id(unaliased(handle.inputs[1])), operation.mechanism.ordinal
    if place in taken:
        raise DeclarationError(
            f"{handle!r} is a second release in place {place[1]} of a run that pays for one"
        )
    taken.add(place)


def _check_rows_bounded(release: Handle, arrivals: Arrivals) -> None:
    """Check that something bounds the rows of a unit on the way to a release."""
    # the change of one unit, followed along the path as the compiler follows it; from the first
    # handle on whose change is not yet in ``arrivals``, since releases share most of their paths
    path = [unaliased(release.inputs[0])]
    while path[-1] not in arrivals and path[-1].inputs:
        path.append(unaliased(path[-1].inputs[0]))
    for handle in reversed(path):
        operation = handle.operation
        if handle in arrivals:
            continue
        if not handle.inputs:
            if not isinstance(operation, SourceOperation):
                raise DeclarationError(f"the path to {release!r} does not begin at a dataset")
            arrivals[handle] = operation, operation.initial(), 0
            continue
        source, change, regions = arrivals[unaliased(handle.inputs[0])]
        part = isinstance(operation, PartOperation)
        sample = isinstance(operation, SampleOperation)
        # the compiler recurses once into each part and sample
        regions += part or sample
        exchanged = source.neighbors == "replace_one"
        if sample and exchanged and change is not None and not change.replaced:
            raise DeclarationError(
                f"{handle!r} is a sample of a Poisson sample of {source.name!r}, whose units are "
                "exchanged (replace_one), and nothing is proven of that; draw one sample, at the "
                "product of both rates"
            )
        one_part = not part or handle.inputs[0].domain.whole_units
        if change is not None:
            # a bound in each part does not bound their sum: what is unbounded before stays so
            bounded = one_part or change.rows != UNBOUNDED
            change = operation.change(change) if bounded else None
        arrivals[handle] = source, change, regions
    source, change, regions = arrivals[path[0]]
    # no finite sensitivity follows, whatever the query
    if change is None or change.rows == UNBOUNDED:
        raise DeclarationError(
            f"nothing bounds the rows of a unit ({source.unit}) of {source.name!r}; declare the "
            "data set with dataset(unit=..., rows_per_unit=...), a 'bound' node in a document"
        )
    if regions > DEPTH:
        raise DeclarationError(f"parts and samples are nested {regions} deep, the limit is {DEPTH}")
    if source.neighbors == "replace_one" and not change.replaced:
        compiler.check_noise_of_exchanged(release.operation.label(), release.domain)


def check_declaration(operation: SourceOperation, sources: dict[str, SourceOperation]) -> None:
    """Add a data set to ``sources``, or refuse it if its name or neighbours conflict."""
    # the claim is made under one neighbour relation
    for other in sources.values():
        if other.neighbors != operation.neighbors:
            raise NeighborError(
                f"the data sets {other.name!r} ({other.neighbors}) and {operation.name!r} "
                f"({operation.neighbors}) have different neighbour relations; declare both with "
                "the same neighbors=..."
            )
    earlier = sources.get(operation.name, operation)
    # digests, since == would take 1 and True for one category
    if earlier is not operation and digest(describe(earlier)) != digest(describe(operation)):
        differ = "; ".join(differing(describe(earlier)[1], describe(operation)[1]))
        raise DeclarationError(
            f"two different data sets are named {operation.name!r}"
            + (f" ({differ})" if differ else "")
            + "; declare it once and reuse the handle, or give the other another name"
        )
    sources.setdefault(operation.name, operation)


# -----------------------------------------------------------------------------
# Solving the free parameters of a plan for a total budget.


Outputs = Sequence[tuple[Path, Handle]]


def free_weights(nodes: Structure) -> dict[str, list[float]]:
    """Return the weights under each free parameter's name."""
    weights: dict[str, list[float]] = {}
    for node in nodes:
        if isinstance(node.handle.operation, Release):
            for free in node.handle.operation.mechanism.free().values():
                weights.setdefault(free.name, []).append(free.factor)
    return weights


def scale_free(outputs: Outputs, multiplier: float) -> list[tuple[Path, Handle]]:
    """Return the outputs with every free parameter at a multiple of its weight."""
    return map_mechanisms(outputs, lambda mechanism: mechanism.fixed(multiplier))


SHARE_FOR_KEYS = 0.5
"""The part of a plan's delta that mechanisms which release keys get, where theirs is free."""


def delta_of_keys(nodes: Structure, delta: float) -> float:
    """Return the delta of each release of keys whose delta is free; 0 where there are none.

    What is in the body of a loop is released once in each round, and counts as so many releases.

    Raises
    ------
    CalibrationError
        If there is no delta to share.
    """
    keyed = [
        node
        for node in nodes
        if isinstance(node.handle.operation, Release)
        and node.handle.operation.mechanism.with_delta(0.5) is not node.handle.operation.mechanism
    ]
    if not keyed:
        return 0.0
    if not delta > 1e-50:
        raise CalibrationError(
            f"{', '.join(node.name for node in keyed)}: keys that nobody declared need a delta, as "
            "in calibrate(epsilon=1, delta=1e-6); a session takes it from its budget's reserve, "
            "dp.Budget(1.0, 1e-6, delta_reserve=5e-7)"
        )
    releases = 0
    for node in keyed:
        around = [nodes.nodes[name].handle.operation for name in node.loops]
        releases += math.prod([loop.rounds() for loop in around if isinstance(loop, Loop)])
    return down(delta / releases) if releases > 1 else delta


def multiplier(
    outputs: Outputs, epsilon: float, delta: float, chosen: Sequence[Accountant[Any]]
) -> float:
    """Return the least multiple of the weights at which the outputs keep a budget."""
    epsilon = number(epsilon)
    if not positive(epsilon):
        raise DeclarationError(f"calibrate's epsilon must be a {POSITIVE}, got {epsilon!r}")
    if not free_weights(structure(outputs)):
        raise DeclarationError(
            "nothing is free to calibrate; give a mechanism a free parameter, such as "
            "dp.Laplace(scale=dp.Free('b'))"
        )

    def cost(multiple: float, candidates: Sequence[Accountant[Any]]) -> tuple[float, Any]:
        # compiled anew for each multiple: a loss is not linear in its parameter
        worlds = accountants.worlds(
            compiler.term(structure(scale_free(outputs, multiple)).releases)
        )
        answers = [accountants.measure(worlds, a, delta=delta) for a in candidates]
        bounded = [a for a in answers if a.bounds is not None]
        # no accountant applies at this multiple: more noise is needed
        if not bounded:
            return math.inf, None
        best = min(bounded, key=lambda a: a.bounds.upper if a.bounds else math.inf)
        return (best.bounds.upper if best.bounds else math.inf), best.accountant

    def epsilon_by(accountant: Accountant[Any]) -> Callable[[float], float]:
        return lambda multiple: cost(multiple, [accountant])[0]

    try:
        # all accountants find the neighbourhood of the answer, the tightest one there the answer
        start = least_noise(lambda m: cost(m, chosen)[0], epsilon, digits=1e-2)
        _, tightest = cost(start, chosen)
        while True:
            start, kept = least_noise(epsilon_by(tightest), epsilon, start=start), tightest
            reached, tightest = cost(start, chosen)
            # at the answer another accountant may promise less: less noise, then, is enough
            if tightest is kept or reached > epsilon * (1 - 1e-3):
                return start
    except accountants.DomainError as error:
        once = structure(scale_free(outputs, 1.0)).releases
        if delta == 0 and (unbounded := compiler.without_pure_epsilon(once)):
            raise CalibrationError(
                f"cannot meet epsilon={epsilon:g} at delta 0, where noise of no scale has a finite "
                f"epsilon for {', '.join(unbounded)}: Gaussian noise needs a delta, as in "
                f"calibrate(epsilon={epsilon:g}, delta=1e-6); dp.Laplace() needs none"
            ) from None
        raise CalibrationError(
            f"cannot meet epsilon={epsilon:g}, delta={delta:g}: {error}"
        ) from None


def risk_multiplier(
    outputs: Outputs,
    advantage: float | None,
    true_positive_rate: float | None,
    at: float | None,
    chosen: Sequence[Accountant[Any]] | None,
) -> float:
    """Return the least multiple of the weights at which attacks on membership are held off.

    The upper end of `accountants.Guarantee`'s bracket does not exceed the limit: it holds for every
    attacker (Dong, Roth and Su 2022, Prop. 6).
    """
    low = 0.0 if at is None else number(at)
    limit = number(advantage if true_positive_rate is None else true_positive_rate)
    what = "an advantage" if at is None else "a true positive rate above its false positive rate"
    # a guess has an advantage of 0, and a true positive rate of its false positive rate
    if not (positive(limit) and 0 <= low < limit < 1):
        raise DeclarationError(
            f"calibrate needs {what} below 1, got {limit!r}" + ("" if at is None else f" at {at!r}")
        )
    if not free_weights(structure(outputs)):
        raise DeclarationError(
            "nothing is free to calibrate; give a mechanism a free parameter, such as "
            "dp.Laplace(scale=dp.Free('b'))"
        )

    def risk(multiple: float) -> float:
        term = compiler.term(structure(scale_free(outputs, multiple)).releases)
        try:
            promise = accountants.Guarantee(term, chosen)
        except accountants.InapplicableError:  # more noise is needed
            return 1.0
        return (promise.advantage() if at is None else promise.true_positive_rate(low)).upper

    try:
        return least_noise(risk, limit, digits=1e-6)
    except accountants.DomainError as error:
        raise CalibrationError(f"cannot hold the risk to {limit:g}: {error}") from None


def fix_free(outputs: Outputs, values: Mapping[str, float]) -> list[tuple[Path, Handle]]:
    """Return the outputs with free parameters set by name, each times its weight."""
    values = {name: number(value) for name, value in values.items()}
    for name, value in values.items():
        if not positive(value):
            raise DeclarationError(f"{name} must be a {POSITIVE}, got {value!r}")

    def change(mechanism: Mechanism) -> Mechanism:
        free = {k: f for k, f in mechanism.free().items() if f.name in values}
        return evolved(mechanism, **{k: values[f.name] * f.factor for k, f in free.items()})

    return map_mechanisms(outputs, change)


def map_mechanisms(
    outputs: Outputs, change: Callable[[Mechanism], Mechanism]
) -> list[tuple[Path, Handle]]:
    """Return the outputs with every mechanism changed; handles that do not change stay the same."""
    new = changed_handles(outputs, change)
    return [(path, new[handle]) for path, handle in outputs]


def changed_handles(
    outputs: Outputs,
    change: Callable[[Mechanism], Mechanism],
    stop: Collection[Handle] = (),
) -> dict[Handle, Handle]:
    """Return for each handle of the outputs the one that replaces it when mechanisms change.

    What is above ``stop`` handles, and they themselves, stay as they are.
    """

    def changed(handle: Handle) -> Operation:
        operation = handle.operation
        if not isinstance(operation, Release):
            return operation
        mechanism = change(operation.mechanism)
        # where nothing changed the operation stays the same object, and with it the handle
        same = mechanism is operation.mechanism
        return operation if same else evolve(operation, mechanism=mechanism)

    return rewritten(
        [handle for _, handle in outputs], changed, replacements={each: each for each in stop}
    )


# -----------------------------------------------------------------------------
# What differs between two plans.


def diff(old: Structure, new: Structure) -> str:
    """Return one line for each difference: ``-`` gone, ``+`` new, ``~`` changed; empty if none.

    Nodes are compared by digest, so equal nodes under other names do not differ; a node of
    the same name whose own operation differs is changed.
    """
    return "\n".join(map(visible, _lines(old, new)))


def _lines(old: Structure, new: Structure) -> Iterator[str]:
    # counted, since equal nodes may stand in a plan several times
    before, after = Counter(n.digest for n in old), Counter(n.digest for n in new)
    removed = [n for n in old if before[n.digest] > after[n.digest]]
    added = {n.name: n for n in new if after[n.digest] > before[n.digest]}
    for node in removed:
        other = added.get(node.name)
        if other is None:
            yield f"- {node.name}: {_text(node)}"
        elif _text(node) != _text(other):
            # same name and other text: a changed parameter
            yield f"~ {node.name}: {_text(node)} -> {_text(other)}"
            added.pop(node.name)
        else:  # the node is the same, what it reads is not: that shows upstream
            added.pop(node.name)
    for node in added.values():
        yield f"+ {node.name}: {_text(node)}"
    # outputs by path: one that was renamed shows here alone
    paths = [{path: n.name for n in s for path in n.outputs} for s in (old, new)]
    for path in sorted(set(paths[0]) ^ set(paths[1])):
        yield f"{'-' if path in paths[0] else '+'} output {'.'.join(path)}"


def _text(node: Node) -> str:
    return f"{node.handle.operation.kind} {node.handle.operation.text()}"


# -----------------------------------------------------------------------------
# The plan that users hold: declare, certify, calibrate, run, draw, write.


class Pipeline:
    """A private analysis, declared: certify, calibrate, run, simulate, draw or write it.

    Immutable. What no output needs is neither run nor paid for; what two outputs share is
    paid for once.

    Parameters
    ----------
    outputs
        Queries and released handles by name; a mapping of such is an output with parts. A query is
        released by its default mechanism, whose noise `calibrate` chooses: the first that
        ``dp.suitable(query)`` names of those that need no parameter.

    Raises
    ------
    LeakError
        If an output is private and no query, with the path from the data to it.
    DeclarationError
        If neighbour relations are mixed, two data sets share a name, or a query has no default
        mechanism.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count(), mean=people["age"].average()).calibrate(epsilon=1)
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> dp.Pipeline(n=people.count().release(dp.Laplace(scale=2))).certify().epsilon
    0.5
    """

    def __init__(self, **outputs: Any) -> None:
        self._outputs = tuple(check_outputs(outputs))
        self._delta = 0.0
        self._adaptive: tuple[str, ...] = ()
        self._reasons: Mapping[str, str] = {}

    @classmethod
    def of(
        cls,
        outputs: Sequence[tuple[Path, Handle]],
        delta: float = 0.0,
        *,
        adaptive: Sequence[str] = (),
        known: Known = unknown,
    ) -> Pipeline:
        """Return the plan of (path, handle) pairs; ``delta`` is what `certify` takes by default.

        Of a session, ``adaptive`` names the outputs in the order in which they were run: each may
        depend on all before it. A plan that stops at ``known`` handles (see
        `adaptive_dp.graph.nodes.structure`) is a step for its session to run, and certifies
        nothing.
        """
        plan = cls.__new__(cls)
        plan._outputs = tuple(check_outputs(outputs, known))
        # made at once: what is known changes as the session goes on
        if known is not unknown:
            vars(plan)["structure"] = structure(plan._outputs, known)
        plan._delta = accountants.errors.probability("delta", delta, below_one=True)
        plan._adaptive = tuple(adaptive)
        plan._reasons = {}
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
        """What one unit can be exposed to, as a term for the accountants.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> plan.term
        Sequential(parts=(Spend(loss=Laplace(epsilon=0.5), name='n'),))
        """
        return compiler.term(self.structure.releases)

    @cached_property
    def passes(self) -> tuple[DataPass, ...]:
        """How the data are read: the passes over each data set, and the columns that each reads.

        It follows from the plan alone. Sums over the same rows that wait for no release of each
        other are one pass. (A session, which runs its plan step by step, reads for each step.)

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "pay": (0, 9)})
        >>> total = people["age"].sum().release(dp.Laplace(scale=200), name="total")
        >>> old = people.filter(people["age"] > dp.post(lambda t: t / 9, total))
        >>> plan = dp.Pipeline(total=total, old=old["pay"].sum().release(dp.Laplace(scale=9)))
        >>> for each in plan.passes:
        ...     print(each)
        people: sum (total); reads age
        people: sum (old); reads age, pay
        """
        return tuple(passes(self.structure))

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The plan as a networkx graph: nodes by name with kind, visibility, label and detail.

        Of a session's plan, edges with ``kind="adaptive"`` lead from each step to the next.

        Examples
        --------
        >>> import networkx as nx, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=200)))
        >>> nx.shortest_path(plan.graph, "people", "total")
        ['people', 'age', 'sum', 'total']
        >>> plan.graph.nodes["sum"]["visibility"]
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
        merged, digests = self.structure.merged, self.structure.digests
        # nodes by digest, so that their names do not matter; sorted, nor does the outputs' order
        with collection_paused():
            described = [(path, digests[merged.of(handle)]) for path, handle in self._outputs]
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
        delta = self._delta if delta is None else check_delta(delta)
        chosen = check_accountants(accountants)
        certified = certificate(
            self.structure,
            self.to_document,
            self.fingerprint,
            delta,
            chosen,
            adaptive=bool(self._adaptive),
        )
        return evolve(certified, reasons=self._reasons) if self._reasons else certified

    @cached_property
    def _certificate(self) -> Certificate:
        return self.certify()

    def _run_certificate(self, seed: int | None) -> Certificate:
        """Return the certificate of a run, which is computed once."""
        return stamped(self._certificate, seed)

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
            If ``accountant`` is not an accountant, such as a str or a class.

        Examples
        --------
        >>> import accountants, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(a=people.count().release(dp.Laplace(scale=2)),
        ...                    b=people.count().release(dp.Laplace(scale=4)))
        >>> plan.measure(accountants.Basic(), only=lambda name: name == "b").bounds.upper
        0.25
        """
        delta = self._delta if delta is None else check_delta(delta)
        check_accountants((accountant,))
        part = pruned(self.term, only)
        return accountants.measure(part, accountant, delta=delta)

    def calibrate(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        error: Mapping[str, float] | None = None,
        rows: int | None = None,
        data: Mapping[str, Any] | None = None,
        level: float = 0.95,
        advantage: float | None = None,
        true_positive_rate: float | None = None,
        at: float | None = None,
        accountants: Sequence[Accountant[Any]] | None = None,
    ) -> Pipeline:
        """Return the plan with its free parameters solved for a budget, a risk or an error.

        All are multiples of their weights, with one multiplier: the least for which the risk is
        within its limit, or the largest for which errors are. One of ``epsilon``, ``advantage``,
        ``true_positive_rate`` and ``error`` is given.

        Parameters
        ----------
        epsilon
            The tightest accountant's upper bound does not exceed it.
        delta
            At which the plan is certified, whichever limit is given.
        error
            For outputs by name (dots lead into nested ones), the largest half width that is wanted
            of their intervals (`expect`): the least budget for which all have it.
        rows, data, level
            For ``error``: as for `expect`; data by the data sets' names.
        advantage
            At most so much do an attacker's true and false positive rates differ, who wants to
            know whether a unit is in the data.
        true_positive_rate, at
            At a false positive rate of ``at`` the attacker's true positive rate is at most this.
        accountants
            Those to ask; by default all of them, and for the risks of attacks the distribution
            accountant, which is tight.

        Raises
        ------
        DeclarationError
            If an argument is outside its domain, or nothing is free.
        CalibrationError
            If the releases with fixed noise cost too much already, or err too much.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(age=people["age"].average(dp.Gaussian()))
        >>> plan.calibrate(epsilon=1.0, delta=1e-6).certify()
        <certificate epsilon=1 delta=1e-06 by gaussian>
        >>> exact = plan.calibrate(error={"age": 0.5}, rows=20_000, delta=1e-6)
        >>> round(exact.expect(rows=20_000)["age"], 2), round(exact.certify().epsilon, 1)
        (0.5, 0.1)
        >>> plan.calibrate(advantage=0.1, delta=1e-6).certify().epsilon < 1.1
        True
        >>> rate = plan.calibrate(true_positive_rate=0.05, at=0.01, delta=1e-6)
        """
        chosen = None if accountants is None else check_accountants(accountants)
        delta = check_delta(delta)
        given = {
            "epsilon": epsilon,
            "error": error,
            "advantage": advantage,
            "true_positive_rate": true_positive_rate,
        }
        limits = [name for name, value in given.items() if value is not None]
        if len(limits) != 1:
            raise DeclarationError(
                f"calibrate needs one limit, of {', '.join(given)}; got "
                f"{' and '.join(limits) or 'none'}"
            )
        if (true_positive_rate is None) != (at is None):
            raise DeclarationError(
                "a true positive rate is one at a false positive rate: "
                "calibrate(true_positive_rate=0.05, at=0.01)"
            )
        each = delta_of_keys(self.structure, SHARE_FOR_KEYS * delta)
        if each:
            outputs = map_mechanisms(self._outputs, lambda m: m.with_delta(each))
            return self._giving_reasons(Pipeline.of(outputs)).calibrate(
                epsilon,
                delta,
                error=error,
                rows=rows,
                data=data,
                level=level,
                advantage=advantage,
                true_positive_rate=true_positive_rate,
                at=at,
                accountants=accountants,
            )
        if error is not None:
            bound, _ = public_data(self.structure, rows, data or {})
            factor = self._largest_noise(error, bound, check_level(level))
        elif epsilon is not None:
            factor = multiplier(self._outputs, epsilon, delta, chosen or ACCOUNTANTS)
        else:
            factor = risk_multiplier(self._outputs, advantage, true_positive_rate, at, chosen)
        return self._giving_reasons(Pipeline.of(scale_free(self._outputs, factor), delta))

    def _largest_noise(
        self, error: Mapping[str, float], data: Mapping[str, Any], level: float
    ) -> float:
        """Return the largest multiple of the weights at which half widths are within limits."""
        limits = {tuple(str(name).split(".")): number(limit) for name, limit in error.items()}
        paths = {path for path, _ in self._outputs}
        for path, limit in limits.items():
            name = ".".join(path)
            if path not in paths:
                named = ", ".join(sorted(".".join(each) for each in paths))
                raise DeclarationError(f"no output is named {name!r}; there are {named}")
            if not positive(limit):
                raise DeclarationError(f"the error of {name!r} must be a {POSITIVE}, got {limit!r}")
        asked = [(path, handle) for path, handle in self._outputs if path in limits]
        if not asked or not free_weights(structure(asked)):
            raise DeclarationError(
                "no noise of what error names is free to calibrate; give a mechanism a free "
                "parameter, such as dp.Laplace(), and name an output that follows it"
            )

        def excess(multiple: float) -> float:
            part = Pipeline.of(scale_free(asked, multiple))
            _, widths = expected(part, data, level)
            sizes: list[float] = []
            for path, limit in limits.items():
                inner: Any = widths
                for name in path:
                    inner = inner[name]
                sizes.append(widest(inner) / limit)
            return max(sizes)

        def fits(position: float) -> bool:
            try:
                return excess(math.exp(position)) <= 1
            except NoIntervalError:  # noise that hides all else
                return False

        # a bracket by steps of e^2 from 1, then bisection to a relative 1e-3; noise that fits was
        # tried: widths of simulations need not grow without a break
        low, high = 0.0, 2.0
        while not fits(low):
            low, high = low - 2, low
            if low < -60:
                try:
                    excess(math.exp(low))
                except NoIntervalError as reason:
                    raise CalibrationError(f"there is no interval to narrow: {reason}") from None
                raise CalibrationError(
                    "no noise is small enough for the error that is wanted: releases whose noise "
                    "is fixed err more already; free more of them, or allow more"
                )
        while fits(high):
            low, high = high, high + 2
            if high > 60:
                raise CalibrationError(
                    "the error stays within its limit whatever the noise is: on the rows that are "
                    "assumed it is clamped; give a smaller error"
                )
        while high - low > 1e-3:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return math.exp(low)

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
        plan = Pipeline.of(self._outputs, check_delta(delta), adaptive=self._adaptive)
        return self._giving_reasons(plan)

    def with_reasons(self, reasons: Mapping[str, str]) -> Pipeline:
        """Return the plan with reasons why values that it was given are public.

        A plan is private for edges, thresholds, candidates and other values that nobody chose by
        looking at the private data, which no program can check. Its certificates list these values
        (`Certificate.given`) with the reasons; those without one are shown as what must not be
        chosen by looking at the data. Nothing of the claim changes, nor the plan's document.

        Parameters
        ----------
        reasons
            By place, such as ``"ages.edges"``, or by a node's name for all of its values: one
            sentence each, in the words of who answers for it.

        Raises
        ------
        DeclarationError
            If no value was given at that place, or a reason is empty.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 120)})
        >>> ages = people["age"].histogram(edges=[0, 18, 65, 120]).release(dp.Laplace(scale=2))
        >>> plan = dp.Pipeline(ages=ages).with_reasons({"histogram": "the census's age bands"})
        >>> [(each.place, each.because) for each in plan.certify().given]
        [('people.age', ''), ('histogram.edges', "the census's age bands")]
        """
        plan = Pipeline.of(self._outputs, self._delta, adaptive=self._adaptive)
        plan._reasons = {**self._reasons, **checked_reasons(self.to_document(), reasons)}
        return plan

    def _giving_reasons(self, plan: Pipeline) -> Pipeline:
        """Return a plan of the same nodes with this one's reasons."""
        plan._reasons = self._reasons
        return plan

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
        return self._giving_reasons(Pipeline.of(fix_free(self._outputs, values), self._delta))

    def expect(
        self, /, rows: int | None = None, *, level: float = 0.95, **data: Any
    ) -> Expectation:
        """Return how wide the intervals of a run's outputs may be expected to be.

        Of single releases that is known without any data. The rest is simulated, on made-up rows
        whose columns are independent, and uniform over what is declared; or on data that are not
        private. It costs nothing: no private data are read.

        Parameters
        ----------
        rows
            How many rows to make up, in each data set that is not given; one for each unit.
        level
            Of the intervals.
        data
            Public data, or data made up otherwise, by the data sets' names.

        Raises
        ------
        DeclarationError
            If a parameter is still free, or the number of rows is missing.

        See Also
        --------
        calibrate : With ``error``, the least budget for half widths that are wanted.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
        >>> plan = dp.Pipeline(n=people.count().release(dp.DiscreteLaplace()),
        ...                    age=people["age"].average(dp.Laplace()))
        >>> plan = plan.calibrate(epsilon=1.0)
        >>> print(plan.expect(rows=20_000))
        output  answer   half width  relative
        ------  -------  ----------  --------
        age     50.1946  0.04812     0.0959%
        n       20003    9           0.045%
        half widths of 95% intervals, on 20,000 made-up rows, uniform over what is declared
        """
        level = check_level(level)
        bound, source = public_data(self.structure, rows, data)
        return Expectation(level, *expected(self, bound, level), source)

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
            An int of at least 0; equal seeds give equal noise.
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
        number = as_int(seed)
        if not (number is not None and number >= 0):
            raise DeclarationError(
                f"simulate's seed must be an int of at least 0, got {seed!r}; for noise "
                "from the operating system use run"
            )
        return execute(self, data, seed=number, watch=watch(progress))

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
        progress
            Called now and then with the runs that are made, how many there will be, and the seconds
            that the rest takes, about; such as ``lambda *told: print(*told)``.
        data
            Data, by the data sets' names, among which the gallery's units are put; all of them,
            those of public data sets alone, or none. What the audit says is as private as they are.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> plan = dp.Pipeline(total=people["age"].sum().release(dp.Laplace(scale=100)))
        >>> result = plan.audit(samples=1_000, seed=1)
        >>> 0 < result.epsilon <= plan.certify().epsilon
        True
        """
        audit = provided("audit.pipeline")  # of a higher room
        return audit(
            self,
            data=data or None,
            samples=samples,
            confidence=confidence,
            seed=seed,
            progress=progress,
        )

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
        if not isinstance(other, Pipeline):
            raise DeclarationError(f"diff needs a Pipeline, got {type(other).__name__}")
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
        return to_document(self.structure, self._outputs, self._delta)

    def to_json(self) -> str:
        """Return the plan's document as a str of JSON.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={})
        >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
        >>> print(plan.to_json().splitlines()[1])
         "format": "adaptive-dp/plan/2",
        """
        return json_text(self.to_document(), sort_keys=False)

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
        unknown = sorted(set(strings(closed)) - groups)
        if unknown:
            raise DeclarationError(
                f"no group is named {', '.join(map(repr, unknown))}; groups are "
                f"{', '.join(map(repr, sorted(groups))) or 'none'}"
            )
        return str(provided("report.svg")(self.graph, closed=closed))

    def mermaid(self) -> str:
        """Return the graph in the language of Mermaid, as a str.

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
        return visible(f"<plan of {len(self.structure)} nodes: {names}>")

    def _repr_html_(self) -> str:
        return self.svg()


def public_data(
    structure: Structure, rows: int | None, data: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return data for each data set, those that are not given made up; and what they are."""
    operations = [node.handle.operation for node in structure]
    sources = {o.name: o for o in operations if isinstance(o, SourceOperation)}
    bound, made = dict(data), 0
    for name, source in sources.items():
        if name in bound:
            continue
        number = source.size or as_int(rows)
        if number is None or number < 1:
            raise DeclarationError(
                f"how many rows has {name!r}? Give expect a number of at least 1, such as "
                f"rows=20_000, or data that are not private, got {rows!r}"
            )
        # by the data set's name: two of them are not alike
        draw = np.random.default_rng(list(name.encode()))
        bound[name] = source.made_up(number, draw)
        made = max(made, number)
    if not made:
        return bound, "data that were given"
    return bound, f"{made:,} made-up rows, uniform over what is declared"
