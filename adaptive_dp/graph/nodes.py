"""From handles to nodes: the graph of a plan's outputs, its names, digests, groups and loops.

The second of the four forms of a release (handle, node, term, certificate row; see
`adaptive_dp.graph.compile`). Handles are expressions; `structure` makes nodes of those that lead to
a plan's outputs, in one topological order:

* Private transforms, queries and public values that are written twice are one node (`Merged`). A
  release, which is random, is a node of its own each time that it is written.
* A *digest* identifies a node by its operation and its inputs' digests (`digests`); equal random
  nodes (two releases of one query) are numbered in the order in which the outputs, sorted by name,
  lead to them. Else a digest depends neither on outputs, names or other branches, nor on the order
  in which handles were made. Digests make up a plan's fingerprint and seed simulations.
* A *name* is for people, unique in the plan (`names`).

A `Structure` is then shown as a `networkx` graph (`graph`), written as a document (`to_document`),
compiled to a term, and run.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

import attrs
import networkx as nx
from attrs import field, frozen

from accountants.document import Codec, place_of
from adaptive_dp.graph.errors import DeclarationError, DocumentError
from adaptive_dp.graph.handles import (
    Group,
    Handle,
    PartOperation,
    Post,
    PublicSource,
    Release,
    SourceOperation,
    part_title,
)
from adaptive_dp.graph.loops import Loop, State, inputs_and_bodies, nearest, ordered, upward
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.registry import Function, is_own, name_of
from adaptive_dp.graph.values import cut, fields_of

# -----------------------------------------------------------------------------
# The nodes of a plan, as everything above this module sees them.


Path = tuple[str, ...]
"""An output's names, outermost first, or the names of groups or loops around a node."""


@frozen(eq=False)
class Node:
    """A handle in a plan: an operation with its place in the graph.

    Parameters
    ----------
    handle
        The expression.
    name
        Unique in the plan.
    digest
        SHA-256, hexadecimal; equal for nodes that compute the same.
    inputs
        Names of the nodes that it reads.
    group
        Names of the groups around it, outermost first.
    loops
        Names of the repeats whose body it is in, outermost first.
    outputs
        The outputs that are this node.
    rank
        Its position in the graph's order: its inputs have lower ranks.
    """

    handle: Handle
    name: str
    digest: str
    inputs: tuple[str, ...]
    group: Path
    loops: Path
    outputs: tuple[Path, ...]
    rank: int

    @property
    def key(self) -> tuple[int, ...]:
        """The key of its random stream in a simulation: four 32-bit words of its digest."""
        # 32 hexadecimal digits, 8 for each word
        return tuple(int(self.digest[i : i + 8], 16) for i in range(0, 32, 8))


@frozen(eq=False)
class ReleaseNode(Node):
    """A release in a plan, with the way from its data set to its query.

    Parameters
    ----------
    structure
        All nodes of the plan.
    """

    structure: Structure = field(repr=False)

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of the release."""
        operation = self.handle.operation
        assert isinstance(operation, Release)
        return operation.mechanism

    @property
    def source(self) -> SourceOperation:
        """The data set at the beginning of the steps."""
        operation = self.steps[0].handle.operation
        assert isinstance(operation, SourceOperation)
        return operation

    @property
    def query(self) -> Handle:
        """The query that is released: the last step."""
        return self.steps[-1].handle

    @cached_property
    def equal(self) -> tuple[Hashable, ...]:
        """What is equal for releases that have one loss: by equal mechanisms of equal queries."""
        query = self.query
        # a domain is large, and the parts of a partition share theirs: told apart as an object
        key = (_equal_to(self.mechanism), _equal_to(query.operation), id(query.domain))
        shared: tuple[Hashable, ...] = self.structure.computed.setdefault(key, key)
        return shared

    @cached_property
    def steps(self) -> tuple[Node, ...]:
        """The nodes from the data set to the query, and each loop where its body begins."""
        lineage = self.structure.lineage(self.structure.of(self.handle.inputs[0]))
        steps: list[Node] = []
        entered: set[str] = set()
        for step in [*lineage, self]:
            # loops that this step is the first to be inside of
            new = [loop for loop in step.loops if loop not in entered]
            entered.update(new)
            loops = [self.structure.nodes[loop] for loop in new]
            if step is self:
                # only the release itself is inside of these loops
                steps += loops
            elif isinstance(step.handle.operation, PartOperation):
                # which part it is does not change from round to round: the loop is inside of it
                steps += [step, *loops]
            else:
                steps += [*loops, step]
        if isinstance(steps[-1].handle.operation, Loop):
            # only the release is inside of the loop: its query still comes last
            query = lineage[-1]
            steps.remove(query)
            steps.append(query)
        return tuple(steps)


_PLAIN = frozenset({str, int, float, bool, type(None)})


def _equal_to(declared: Operation | Mechanism) -> Hashable:
    """Return what equals that of values that are equal: the value itself, if it is the library's.

    A third party's class says itself what equals what: only the very same object is taken.
    """
    plain = is_own(type(declared)) and all(map(_is_plain, declared.parameters().values()))
    return declared if plain else id(declared)


def _is_plain(value: Any) -> bool:
    """Return whether a parameter is a number, a str, or some of those in a value of the library."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is tuple:
        return all(map(_is_plain, value))
    own = kind.__module__.startswith(("adaptive_dp.", "accountants.")) and kind.__hash__ is not None
    return (
        own
        and attrs.has(kind)
        and all(_is_plain(getattr(value, each.name)) for each in fields_of(kind))
    )


@frozen(eq=False)
class Structure:
    """All nodes, in topological order, by name; groups are names around nodes, not nodes.

    Parameters
    ----------
    nodes
        By name.
    groups
        Each group's handle by its title.
    by_handle
        The node's name by the identity of a handle; a group's handle stands for its result.
    ranks
        The position of each handle, those of groups too, by its identity.
    has_twins
        Whether two random nodes differ in nothing but their order in the graph.
    known
        Names of the nodes above which nothing was looked at.
    described
        The parameters of each other node's operation as JSON, by the node's name.
    """

    nodes: dict[str, Node]
    groups: dict[str, Handle]
    by_handle: dict[int, str] = field(repr=False)
    ranks: dict[int, int] = field(repr=False)
    has_twins: bool = False
    known: frozenset[str] = frozenset()
    described: dict[str, dict[str, Any]] = field(factory=dict, repr=False)
    computed: dict[Any, Any] = field(factory=dict, init=False, repr=False)
    """What several releases share, such as equal sensitivities; filled by `compile`."""

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    @property
    def releases(self) -> list[ReleaseNode]:
        """The releases, in order."""
        return [node for node in self if isinstance(node, ReleaseNode)]

    def lineage(self, node: Node) -> list[Node]:
        """Return a private node and all it comes from, each the first input of the next."""
        steps = [node]
        while steps[-1].handle.inputs:
            steps.append(self.of(steps[-1].handle.inputs[0]))
        return steps[::-1]

    def of(self, handle: Handle) -> Node:
        """Return the node of a handle."""
        return self.nodes[self.by_handle[id(handle)]]


Known = Callable[[Handle], str | None]
"""Returns the digest of a handle above which nothing need be looked at; None for any other."""


def unknown(handle: Handle) -> None:
    """Return None: all that is above a handle is looked at."""


def structure(outputs: Sequence[tuple[Path, Handle]], known: Known = unknown) -> Structure:
    """Return the nodes that ``outputs`` need, and no others.

    Parameters
    ----------
    outputs
        Handles with their paths.
    known
        Handles that become nodes without inputs. They are released, and computed before: a session
        visits what is new in a step, not all steps before it.
    """
    merged = Merged([handle for _, handle in outputs], known)
    named: dict[int, list[Path]] = {}
    for path, handle in outputs:
        # one node may be several outputs
        named.setdefault(id(merged.of(handle)), []).append(path)
    groups = titles(merged)
    around = memberships(merged, groups)
    name = names(merged, named, around)
    digest, twins = digests(merged)
    # merged handles too: every handle of the user's finds its node
    by_handle = {i: name[id(h)] for i, h in merged.canonical.items()}
    read = frozenset(name[id(handle)] for handle in merged.known)
    result = Structure({}, groups, by_handle, merged.rank, twins, read)
    for handle in merged.order:
        is_known = handle in merged.known
        place = (
            handle,
            name[id(handle)],
            digest[id(handle)],
            # each input once, in order: an edge of the graph says what is read, not how often
            ()
            if is_known
            else tuple(dict.fromkeys(name[id(merged.of(i))] for i in _inputs_shown(handle))),
            tuple(around.get(id(handle), ())),
            tuple(name[id(loop)] for loop in merged.loops[id(handle)]),
            tuple(named.get(id(handle), ())),
            merged.rank[id(handle)],
        )
        # what a known release costs, and of what, is not looked at
        release = isinstance(handle.operation, Release) and not is_known
        if not is_known:
            result.described[name[id(handle)]] = merged.described[id(handle)][1]
        result.nodes[name[id(handle)]] = ReleaseNode(*place, result) if release else Node(*place)
    return result


def _inputs_shown(handle: Handle) -> Sequence[Handle]:
    """Return a node's inputs; of a loop its start and its body's result."""
    # what the body reads from outside is reached through its result
    if isinstance(handle.operation, Loop):
        return handle.inputs[0], handle.operation.result
    return handle.inputs


# -----------------------------------------------------------------------------
# Merging: which handles are one node, and in which loops and groups each is.


class Merged:
    """The nodes of a graph, as handles.

    Which they are, and their order, follow from the graph alone: from the outputs in their order,
    and from each handle's inputs in theirs. When a handle was made does not matter.

    Parameters
    ----------
    roots
        The outputs' handles, in order.
    known
        As of `structure`.

    Attributes
    ----------
    order
        The handles that are nodes, in topological order.
    canonical
        Each handle's node (a group's is that of its result), by identity.
    rank
        The position of each handle among all, aliases included; inputs come before their readers.
    loops
        The loops whose body a node is in, outermost first.
    groups
        The groups around each node's value, with their names.
    described
        Each handle's operation, as `describe` returns it.
    descriptions
        The same as JSON.
    known
        The digests of the nodes above which nothing is looked at.
    """

    def __init__(self, roots: Sequence[Handle], known: Known = unknown) -> None:
        self.order: list[Handle] = []
        self.canonical: dict[int, Handle] = {}
        self.rank: dict[int, int] = {}
        self.loops: dict[int, tuple[Handle, ...]] = {}
        self.groups: dict[int, list[tuple[Handle, str]]] = {}
        self.described: dict[int, list[Any]] = {}
        self.descriptions: dict[int, str] = {}
        self._keys: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._written: dict[str, tuple[str, list[Any]]] = {}
        self._first: dict[tuple[int, tuple[int, ...]], Handle] = {}
        self.known: dict[Handle, str] = {}
        self._is_known = known
        self._enclosing = _Enclosing(roots, self._reads)
        # inputs first: all that `_add` looks up of a handle's inputs is there
        for rank, handle in enumerate(ordered(roots, self._reads)):
            self.rank[id(handle)] = rank
            self._add(handle)

    def of(self, handle: Handle) -> Handle:
        """Return the node of a handle."""
        return self.canonical[id(handle)]

    def above(self, roots: Sequence[Handle]) -> set[int]:
        """Return the identities of the nodes that roots are or read, bodies included."""
        return {id(node) for node in upward(map(self.of, roots), self.before)}

    def before(self, node: Handle) -> list[Handle]:
        """Return the nodes that a node reads, and of a loop the state and the body's result."""
        return [self.of(each) for each in self._reads(node)]

    def _reads(self, handle: Handle) -> tuple[Handle, ...]:
        known = self._is_known(handle)
        if known is None:
            return inputs_and_bodies(handle)
        self.known[handle] = known
        return ()

    def _add(self, handle: Handle) -> None:
        operation = handle.operation
        if handle in self.known:
            self.canonical[id(handle)] = handle
            # never merged, as nothing released is
            self._keys[id(handle)] = self._number(handle)
            self.loops[id(handle)] = ()
            self.order.append(handle)
            return
        # an alias is no node: it stands for its first input
        if operation.alias:
            inner = self.of(handle.inputs[0])
            self.canonical[id(handle)] = inner
            if isinstance(operation, Group):
                self.groups.setdefault(id(inner), []).append((handle, operation.name))
            return
        key = self._key(handle)
        loops = self._enclosing.loops(handle)
        # constants and private steps without randomness compute the same wherever they are written
        if operation.visibility != "released" and not operation.random:
            # within one body only: a round's step is run again, an equal one outside is not
            scope = tuple(id(loop) for loop in loops)
            first = self._first.setdefault((key, scope), handle)
            if first is not handle:
                self.canonical[id(handle)] = first
                return
        self.canonical[id(handle)] = handle
        # never merged, nor is what reads it: what is random, a round's state, or a function that
        # the digest cannot tell from another (two closures of one code)
        unique = operation.random or operation.kind in ("state", "post")
        self._keys[id(handle)] = self._number(handle) if unique else key
        self.loops[id(handle)] = loops
        self.order.append(handle)

    def _key(self, handle: Handle) -> int:
        """Return a key that is equal for handles that compute the same from the same nodes."""
        operation = handle.operation
        reads = [self._keys[id(self.of(each))] for each in self._reads_of_key(handle)]
        description = describe(operation)
        written = JSON.encode(description)
        # equal ones are one object: a plan may hold very many releases by equal mechanisms
        text, described = self._written.setdefault(written, (written, description))
        self.descriptions[id(handle)], self.described[id(handle)] = text, described
        # the class itself: two third-party classes may share even their names
        return self._number((text, type(operation), *reads))

    def _number(self, key: Hashable) -> int:
        """Return a number that stands for a key: keys of nodes would else grow with the graph."""
        return self._numbers.setdefault(key, len(self._numbers))

    def _reads_of_key(self, handle: Handle) -> Sequence[Handle]:
        if isinstance(handle.operation, Loop):
            return *handle.inputs, handle.operation.result
        return handle.inputs


class _Enclosing:
    """The loops in whose bodies handles are.

    A handle is inside of the loops on whose states it depends, and an inner loop's state is inside
    of all that the inner loop itself is in.
    """

    def __init__(
        self, roots: Sequence[Handle], reads: Callable[[Handle], tuple[Handle, ...]]
    ) -> None:
        self._chains: dict[Handle, tuple[Handle, ...]] = {}
        self._binds: dict[Handle, Handle] = {}
        for handle in upward(roots, reads):
            if isinstance(handle.operation, Loop):
                bound = self._binds.setdefault(handle.operation.state, handle)
                if bound is not handle:
                    raise DeclarationError(f"{bound!r} and {handle!r} share the state of one loop")

    def loops(self, handle: Handle) -> tuple[Handle, ...]:
        """Return the loops around a handle, outermost first."""
        # loops are nested, so the longest chain of all states contains the others
        chains = [self._chain(state) for state in handle.states]
        return max(chains, key=len, default=())

    def _chain(self, state: Handle) -> tuple[Handle, ...]:
        # the loop's own surroundings first, then the loop itself
        if state not in self._chains:
            loop = self._binds[state]
            self._chains[state] = (*self.loops(loop), loop)
        return self._chains[state]


# -----------------------------------------------------------------------------
# Digests: operations and parameters as JSON values, and their SHA-256.


def encode(value: Any) -> Any:
    """Return a parameter as JSON.

    Raises
    ------
    DocumentError
        If it has no form in a document.
    """
    return _CODEC.write(value, "a parameter")


def _free(value: Free, place: str) -> dict[str, Any]:
    return {"free": value.name, "weight": value.weight}


def _function(value: Function, place: str) -> dict[str, Any]:
    return {"function": value.name}


def _mechanism(value: Mechanism, place: str) -> dict[str, Any]:
    named = {"mechanism": name_of(type(value), type(value).__name__)}
    return named | {k: _CODEC.write(v, f"{place}.{k}") for k, v in value.parameters().items()}


_CODEC = Codec(DocumentError, {Free: _free, Function: _function, Mechanism: _mechanism})


def describe(operation: Operation) -> list[Any]:
    """Return an operation as JSON values: its kind and its parameters.

    A kind names one of the library's own operations; third-party classes may share a kind, so
    theirs is followed by the class's module and name.
    """
    # a third party's kind is told apart by its class: two may use the same word
    kind, cls = operation.kind, type(operation)
    if not is_own(cls):
        kind += f" {place_of(cls)}"
    return [kind, encode(operation.parameters())]


def differing(old: Mapping[str, Any], new: Mapping[str, Any], within: str = "") -> list[str]:
    """Return which fields of two descriptions differ, each with both values; at most three.

    Examples
    --------
    >>> differing({"unit": None, "columns": {"age": [0, 9]}}, {"columns": {"age": [0, 8]}})
    ['columns.age is [0, 9], now [0, 8]']
    """
    lines: list[str] = []
    for name in sorted({*old, *new} - {"id", "kind"}):
        before, now = old.get(name), new.get(name)
        if before == now:
            continue
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            lines += differing(before, now, f"{within}{name}.")
        else:
            said = [cut(repr(v), 60) if v is not None else "not declared" for v in (before, now)]
            lines.append(f"{within}{name} is {said[0]}, now {said[1]}")
    return lines if len(lines) <= 3 else [*lines[:3], f"and {len(lines) - 3} more"]


JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, hexadecimal."""
    return _sha256(JSON.encode(value))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digests(nodes: Merged) -> tuple[dict[int, str], bool]:
    """Return each node's digest, and whether there are equal random nodes.

    Those are told apart by their order in the graph.
    """
    result: dict[int, str] = {}
    copies: dict[str, int] = {}
    for handle in nodes.order:
        if handle in nodes.known:
            result[id(handle)] = nodes.known[handle]
            continue
        operation = handle.operation
        reads = handle.inputs
        if isinstance(operation, Loop):  # what its body reads is in its result, in no order
            reads = reads[:1]
        # the inputs' digests stand for all above them
        parts: list[Any] = [[result[id(nodes.of(i))] for i in reads]]
        if isinstance(operation, Loop):
            parts.append(result[id(nodes.of(operation.result))])
        # a state has no inputs: its digest is made of the loop's start and parameters
        if operation.kind == "state":
            loop = nodes.loops[id(handle)][-1]
            start = result[id(nodes.of(loop.inputs[0]))]
            parts += [start, loop.operation.parameters()]
        # with the depth in loops: equal nodes in a body and outside of it are two
        parts.append(len(nodes.loops[id(handle)]))
        # one list: what the operation is, as JSON already, and these parts
        node_digest = _sha256(f"{nodes.descriptions[id(handle)][:-1]},{JSON.encode(parts)[1:]}")
        if operation.random:
            copies[node_digest] = copies.get(node_digest, -1) + 1
            node_digest = digest([node_digest, copies[node_digest]])
        result[id(handle)] = node_digest
    return result, any(copies.values())


# -----------------------------------------------------------------------------
# Groups around nodes.


def titles(nodes: Merged) -> dict[str, Handle]:
    """Return the groups by title, outermost first; groups of one name are numbered."""
    wrappers = [wrapper for around in nodes.groups.values() for wrapper in around]
    # the outermost group comes last: it reads the others
    wrappers.sort(key=lambda wrapper: -nodes.rank[id(wrapper[0])])
    # counted down, as the outermost comes first: numbers rise in the order of the graph
    remaining = Counter(name for _, name in wrappers)
    repeated = {name for name, count in remaining.items() if count > 1}
    result = {}
    for handle, name in wrappers:
        result[f"{name} {remaining[name]}" if name in repeated else name] = handle
        remaining[name] -= 1
    return result


def memberships(nodes: Merged, groups: dict[str, Handle]) -> dict[int, list[str]]:
    """Return the titles of the groups around each node, outermost first."""
    members: dict[int, list[str]] = {}
    for title, wrapper in groups.items():
        # what the boundary is computed from lies outside of the group
        outside = nodes.above([nodes.of(b) for b in wrapper.inputs[1:]])
        inside = nodes.above([nodes.of(wrapper.inputs[0])]) - outside
        for handle in nodes.order:
            if id(handle) in inside:
                members.setdefault(id(handle), []).append(title)
    return members


# -----------------------------------------------------------------------------
# Names of nodes, for people.
#
# An output's node has the output's name. Any other is named by its operation (``count``, a
# release's own name, ``noisy_count``), after the groups that it is in (``share.count``). Where
# several have the same operation, the output to which each leads on the shortest path tells them
# apart: ``count (mean)``; where several outputs are as near, the beginning that their names share:
# ``partition (towns)`` for ``towns.A`` and ``towns.B``. Those that lead to the same output are
# numbered in the graph's order: ``count (mean)``, ``count 2 (mean)``.


def names(
    nodes: Merged, named: dict[int, list[tuple[str, ...]]], groups: dict[int, list[str]]
) -> dict[int, str]:
    """Return a name for each node, unique in the plan.

    Parameters
    ----------
    nodes
        The nodes.
    named
        The outputs that are a node, by its identity.
    groups
        The titles of the groups around a node, outermost first, by its identity.
    """
    result: dict[int, str] = {}
    taken: set[str] = set()
    numbers: dict[str, int] = {}  # the last one given

    def claim(handle: Handle, name: str, again: str) -> None:
        """Give a node a name; ``again`` is a form with a number, for names that are taken."""
        while name in taken:
            numbers[again] = numbers.get(again, 1) + 1
            name = again.format(numbers[again])
        taken.add(name)
        result[id(handle)] = name

    ends = {handle: min(named[id(handle)]) for handle in nodes.order if id(handle) in named}
    # outputs first: no other node may take an output's name
    for handle, path in sorted(ends.items(), key=lambda pair: pair[1]):
        name = ".".join(path)
        claim(handle, name, _escaped(name) + "_{}")
    # for every other node the nearest output, or what the paths of equally near ones share
    owners = nearest(ends, nodes.before, _common_prefix)
    rest = [handle for handle in nodes.order if id(handle) not in result]
    released = [handle for handle in rest if isinstance(handle.operation, Release)]
    others = [handle for handle in rest if not isinstance(handle.operation, Release)]
    # releases are named before the private nodes that they read, which are seldom referred to
    for kind in (released, others):
        for base, same in _by_base(kind, groups).items():
            # no output: what only a merged duplicate reads, since the first copy is the node
            owned = [".".join(owners.get(handle, ())) for handle in same]
            unambiguous = len(same) == 1 and base not in taken
            ambiguous = len(set(owned)) > 1 or base in taken
            for handle, owner in zip(same, owned, strict=True):
                if unambiguous or not ambiguous or not owner:
                    claim(handle, base, _escaped(base) + "_{}")
                else:
                    claim(
                        handle,
                        f"{base} ({owner})",
                        f"{_escaped(base)} {{}} ({_escaped(owner)})",
                    )
    return result


def _by_base(handles: Iterable[Handle], groups: dict[int, list[str]]) -> dict[str, list[Handle]]:
    by_base: dict[str, list[Handle]] = {}
    for handle in handles:
        prefix = "".join(f"{g}." for g in groups.get(id(handle), ()))
        by_base.setdefault(prefix + _operation_name(handle), []).append(handle)
    return by_base


def _common_prefix(first: Path, second: Path) -> Path:
    """Return the names that two outputs' paths share at the beginning, or the lesser path."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(name for name, _ in pairs) or min(first, second)


def _escaped(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def _operation_name(handle: Handle) -> str:
    """Return the name of a node's operation."""
    operation = handle.operation
    if isinstance(operation, Release):
        return operation.name or f"noisy_{handle.inputs[0].operation.kind}"
    if isinstance(operation, SourceOperation | PublicSource | Post) or operation.kind == "column":
        return operation.label()
    return operation.kind


# -----------------------------------------------------------------------------
# The plan as a networkx graph, for drawings and for users' own algorithms.


def graph(structure: Structure, adaptive: Sequence[str] = ()) -> nx.DiGraph[str]:
    """Return a directed acyclic graph: an edge from each input to the node that reads it.

    Node attributes: ``kind``, ``label``, ``detail``, ``visibility`` (private, released or
    public), ``group`` (names of learners and repeats around it, outermost first),
    ``outputs``, ``digest``, ``name`` of the mechanism's norm and parameters where it is a
    release. Where ``adaptive`` names outputs, each may depend on all before it: an edge with
    ``kind="adaptive"`` leads from each to what the next one releases.
    """
    result: nx.DiGraph[str] = nx.DiGraph()
    for node in structure:
        result.add_node(node.name, **_attributes(node, structure))
    for node in structure:
        for name in node.inputs:
            result.add_edge(name, node.name)
    _adaptive_edges(result, structure, adaptive)
    return result


def _adaptive_edges(result: nx.DiGraph[str], structure: Structure, adaptive: Sequence[str]) -> None:
    """Add an edge from each step of a session to what the next one releases."""
    # a step is one output, or several below one name
    ends: dict[str, list[str]] = {}
    for node in structure:
        for path in node.outputs:
            ends.setdefault(path[0], []).append(node.name)
    # nodes that earlier steps have computed are not of this step
    seen: set[str] = set()
    last: list[str] = []

    def new(name: str) -> list[str]:
        return [i for i in structure.nodes[name].inputs if i not in seen]

    for step in adaptive:
        added = list(upward([end for end in ends[step] if end not in seen], new))
        seen.update(added)
        for name in added:
            node = structure.nodes[name]
            # an edge only to what the step pays for: post-processing costs nothing
            costs = isinstance(node.handle.operation, Release | Loop) and not node.loops
            for end in last if costs else ():
                if not result.has_edge(end, node.name):
                    result.add_edge(end, node.name, kind="adaptive")
        last = ends[step]


def _attributes(node: Node, structure: Structure) -> dict[str, Any]:
    operation = node.handle.operation
    label = operation.label()
    if isinstance(operation, PartOperation):
        label = part_title(node.handle)
    loops = [_loop_title(structure.nodes[name]) for name in node.loops]
    attributes: dict[str, Any] = {
        "kind": operation.kind,
        "label": label,
        "detail": operation.detail(),
        "visibility": node.handle.visibility,
        "group": (*loops, *node.group),
        "outputs": tuple(".".join(path) for path in node.outputs),
        "digest": node.digest,
    }
    if isinstance(operation, Release):
        attributes["label"] = node.name
        attributes["parameters"] = operation.mechanism.parameters()
    return attributes


def _loop_title(node: Node) -> str:
    assert isinstance(node.handle.operation, Loop)
    return f"{node.name}: {node.handle.operation.label()}"


# -----------------------------------------------------------------------------
# The plan as a document: JSON values, nodes in order, outputs by path (read by `document`).


FORMAT = "adaptive-dp/plan/2"
"""The format of plan documents and its version."""


def to_document(
    structure: Structure, outputs: Sequence[tuple[Path, Handle]], delta: float
) -> dict[str, Any]:
    """Return a plan as JSON values: nodes in order, outputs by path."""
    return excerpt(structure, outputs, delta, ())[0]


def excerpt(
    structure: Structure,
    outputs: Sequence[tuple[Path, Handle]],
    delta: float,
    without: Collection[str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a plan as JSON values without some of its nodes, and the digests of those it reads.

    Parameters
    ----------
    structure, outputs, delta
        The plan.
    without
        Names of the nodes that the reader has already. `document.load` refuses such an excerpt;
        `document.loaded` reads it, given these nodes' handles by the ids in the second value.
    """
    writer = _Writer(structure, frozenset(without))
    document = {
        "format": FORMAT,
        "delta": delta,
        "nodes": writer.nodes(None),
        "outputs": [
            {"path": list(path), "node": writer.reference(handle)} for path, handle in outputs
        ],
    }
    return document, writer.read


class _Writer:
    """The entries of a structure's nodes and groups; inputs are named by their ids."""

    def __init__(self, structure: Structure, without: frozenset[str] = frozenset()) -> None:
        self.structure, self.without = structure, without
        self.read: dict[str, str] = {}
        self.groups = {id(h): self._unused(f"group {t}") for t, h in structure.groups.items()}

    def nodes(self, loop: str | None) -> list[dict[str, Any]]:
        """Return the entries of a loop's body, or of what is in no loop: inputs before readers."""
        # the nodes whose innermost loop is this one; bodies of inner loops are written with these
        inside = [n for n in self.structure if _innermost(n) == loop and n.name not in self.without]
        nodes = [n for n in inside if not _is_state(n)]
        entries = [(n.rank, self._node(n)) for n in nodes]
        of = {n.name for n in inside}
        groups = self.structure.groups.values()
        rank = self.structure.ranks
        # groups stand where their wrapper does, in the order of the graph
        entries += [
            (rank[id(h)], self._group(h)) for h in groups if self.structure.of(h).name in of
        ]
        return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]

    def reference(self, handle: Handle) -> str:
        """Return the id of a handle's entry."""
        node = self.structure.of(handle)
        name = self.groups.get(id(handle)) or node.name
        # left out here: it is read by its digest from an earlier document
        if node.name in self.without:
            self.read[name] = node.digest
        return name

    def _unused(self, title: str) -> str:
        while title in self.structure.nodes:
            title += "'"
        return title

    def _node(self, node: Node) -> dict[str, Any]:
        operation = node.handle.operation
        entry: dict[str, Any] = {"id": node.name, "kind": name_of(type(operation), operation.kind)}
        if isinstance(operation, Loop):
            return entry | self._loop(node, operation)
        if node.handle.inputs:
            entry["inputs"] = [self.reference(i) for i in node.handle.inputs]
        return entry | self.structure.described[node.name]

    def _loop(self, node: Node, operation: Loop) -> dict[str, Any]:
        return {
            "inputs": [self.reference(node.handle.inputs[0])],
            **operation.parameters(),
            "state": self.structure.of(operation.state).name,
            "body": self.nodes(node.name),
            "result": self.reference(operation.result),
        }

    def _group(self, handle: Handle) -> dict[str, Any]:
        inputs = [self.reference(i) for i in handle.inputs]
        entry = {"id": self.reference(handle), "kind": "group", "inputs": inputs}
        return entry | handle.operation.parameters()


def _innermost(node: Node) -> str | None:
    return node.loops[-1] if node.loops else None


def _is_state(node: Node) -> bool:
    return isinstance(node.handle.operation, State)
