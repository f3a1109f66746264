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

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from typing import Any

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
    exact_key,
    part_title,
)
from adaptive_dp.graph.loops import Loop, State, inputs_and_bodies, nearest, ordered, upward
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.registry import Function, is_own, name_of
from adaptive_dp.graph.values import copied, cut

# -----------------------------------------------------------------------------
# The cyclic garbage collector of Python, while a plan's values are made.


@contextmanager
def collection_paused() -> Iterator[None]:
    """Run a block, or a function as its decorator, without collections of cyclic garbage.

    Nodes, entries of documents and rows of certificates are made in one go, up to millions of them,
    and none is garbage; yet each time that their number has grown by a quarter Python traverses all
    objects of the process, in vain. This took up to half of the time of certifying 100,000
    releases. What the block drops is still freed at once, by its reference count.

    The switch is that of the process: only blocks that wait for nothing and leave no cyclic garbage
    may pause it; no accountant computes in one. It stays off where it was off before; of two
    threads that pause it at once the first to end switches it on, which only costs the other time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # whatever was raised, the process gets its collector back
        if enabled:
            gc.enable()


# -----------------------------------------------------------------------------
# The nodes of a plan, as everything above this module sees them.


Path = tuple[str, ...]
"""An output's names, outermost first, or the names of groups or loops around a node."""


@frozen(eq=False)
class Node:
    """A handle in a plan: an operation with its place in the graph.

    A plan may have a million nodes: what is said of one is looked up in its structure, which makes
    names and digests when one of them is first asked for.

    Parameters
    ----------
    handle
        The expression.
    rank
        Its position in the graph's order: its inputs have lower ranks.
    structure
        All nodes of the plan.
    """

    handle: Handle
    rank: int
    structure: Structure = field(repr=False)

    @property
    def name(self) -> str:
        """Unique in the plan."""
        return self.structure.names[self.rank]

    @property
    def digest(self) -> str:
        """SHA-256, hexadecimal; equal for nodes that compute the same."""
        return self.structure.digests[self.rank]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the nodes that it reads.

        Each once, in order: an edge of the graph says what is read, not how often. Of a loop its
        start and its body's result: what the body reads from outside is reached through its result;
        of one that earlier steps have, nothing.
        """
        names, reads = self.structure.names, self.structure.merged.reads[self.rank]
        if isinstance(self.handle.operation, Loop) and reads:
            reads = reads[0], reads[-1]
        return tuple(dict.fromkeys([names[each] for each in reads]))

    @property
    def group(self) -> Path:
        """Names of the groups around it, outermost first."""
        return tuple(self.structure.around.get(self.rank, ()))

    @cached_property
    def loops(self) -> Path:
        """Names of the repeats whose body it is in, outermost first."""
        structure = self.structure
        around = structure.merged.loops[self.rank]
        return tuple([structure.of(loop).name for loop in around]) if around else ()

    @property
    def outputs(self) -> tuple[Path, ...]:
        """The outputs that are this node."""
        return tuple(self.structure.named.get(self.rank, ()))

    @property
    def written(self) -> Mapping[str, Any]:
        """The parameters of its operation as JSON values; equal ones are one object, not to change.

        Empty for a node above which nothing was looked at.
        """
        return self.structure.merged.written[self.rank].parameters

    @property
    def key(self) -> tuple[int, ...]:
        """The key of its random stream in a simulation: four 32-bit words of its digest."""
        # 32 hexadecimal digits, 8 for each word
        return tuple(int(self.digest[i : i + 8], 16) for i in range(0, 32, 8))


@frozen(eq=False)
class ReleaseNode(Node):
    """A release in a plan, with the way from its data set to its query."""

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
        """What is equal for releases that have one loss: by equal mechanisms of equal queries.

        Of equal releases it is the same object.
        """
        query, computed = self.query, self.structure.computed
        # a domain is large, and the parts of a partition share theirs: told apart as an object
        key = (
            _equal_to(self.mechanism, computed),
            _equal_to(query.operation, computed),
            id(query.domain),
        )
        shared: tuple[Hashable, ...] = computed.setdefault(key, key)
        return shared

    @cached_property
    def steps(self) -> tuple[Node, ...]:
        """The nodes from the data set to the query, and each loop where its body begins."""
        lineage = self.structure.lineage(self.structure.of(self.handle.inputs[0]))
        # a release is inside of every loop that a step to it is inside of
        if not self.loops:
            return tuple(lineage)
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


def _equal_to(declared: Operation | Mechanism, computed: dict[Any, Any]) -> int:
    """Return a number that equal values share, if they are the library's.

    A third party's class says itself what equals what: only the very same object is taken.

    Parameters
    ----------
    declared
        What was declared; very many releases may share it.
    computed
        Of the structure: where the numbers are looked up.
    """
    exact = exact_key(declared)
    number: int = id(declared) if exact is None else computed.setdefault(exact, id(declared))
    return number


class Structure:
    """All nodes, in topological order, by name; groups are names around nodes, not nodes.

    Parameters
    ----------
    merged
        Which handles are one node, and in which order.
    named
        The outputs that are a node, by its rank.
    """

    def __init__(self, merged: Merged, named: Mapping[int, list[Path]]) -> None:
        self.merged, self.named = merged, named
        self.computed: dict[Any, Any] = {}
        """What several releases share, such as equal sensitivities; filled by `compile`."""
        self._made: dict[int, Node] = {}

    def __iter__(self) -> Iterator[Node]:
        return map(self.node, self.merged.order)

    def __len__(self) -> int:
        return len(self.merged.order)

    def __contains__(self, handle: Handle) -> bool:
        """Return whether a handle has a node."""
        return id(handle) in self.merged.rank

    def node(self, rank: int) -> Node:
        """Return the node of a rank."""
        node = self._made.get(rank)
        if node is None:
            handle = self.merged.handles[rank]
            # what a release at the boundary costs, and of what, is not looked at
            release = isinstance(handle.operation, Release) and rank not in self.merged.boundary
            node = self._made[rank] = (ReleaseNode if release else Node)(handle, rank, self)
        return node

    def of(self, handle: Handle) -> Node:
        """Return the node of a handle; a group's handle stands for its result."""
        return self.node(self.merged.of(handle))

    @cached_property
    @collection_paused()
    def nodes(self) -> dict[str, Node]:
        """The nodes, by name."""
        return {self.names[rank]: self.node(rank) for rank in self.merged.order}

    @cached_property
    def operations(self) -> list[Operation]:
        """The operations of the nodes, in order."""
        return [self.merged.handles[rank].operation for rank in self.merged.order]

    @property
    def releases(self) -> list[ReleaseNode]:
        """The releases, in order."""
        return [node for node in map(self.node, self.release_ranks) if type(node) is ReleaseNode]

    @cached_property
    def release_ranks(self) -> list[int]:
        """The ranks of the releases, in order."""
        pairs = zip(self.merged.order, self.operations, strict=True)
        boundary = self.merged.boundary
        return [r for r, each in pairs if isinstance(each, Release) and r not in boundary]

    @cached_property
    @collection_paused()
    def alike(self) -> Mapping[int, int]:
        """A number for each node, by its rank, equal for those that differ in their part alone."""
        return self.merged.alike()

    @cached_property
    def parts(self) -> Mapping[int, int | None]:
        """The rank of the innermost part around a node, by its rank; a part's is its own."""
        return self.merged.parts()

    @cached_property
    @collection_paused()
    def names(self) -> dict[int, str]:
        """The name of each node, by its rank."""
        return names(self.merged, self.named, self.around)

    @cached_property
    def groups(self) -> dict[str, Handle]:
        """Each group's handle by its title."""
        return titles(self.merged)

    @cached_property
    def around(self) -> dict[int, list[str]]:
        """The titles of the groups around a node, outermost first, by its rank."""
        return memberships(self.merged, self.groups)

    @cached_property
    def ranks(self) -> dict[int, int]:
        """The position of each group's handle, by its identity."""
        return {id(handle): self.merged.rank[id(handle)] for handle in self.groups.values()}

    @cached_property
    def known(self) -> frozenset[str]:
        """Names of the nodes at the boundary, above which nothing was looked at."""
        return frozenset([self.names[rank] for rank in self.merged.boundary])

    @property
    def digests(self) -> Mapping[int, str]:
        """The digest of each node, by its rank."""
        return self._digests[0]

    @property
    def has_twins(self) -> bool:
        """Whether two random nodes differ in nothing but their order in the graph."""
        return self._digests[1]

    @cached_property
    @collection_paused()
    def _digests(self) -> tuple[dict[int, str], bool]:
        return digests(self.merged)

    def lineage(self, node: Node) -> list[Node]:
        """Return a private node and all it comes from, each the first input of the next."""
        steps = [node]
        while inputs := steps[-1].handle.inputs:
            steps.append(self.of(inputs[0]))
        return steps[::-1]


Known = Callable[[Handle], str | None]
"""Returns the digest of a handle at the boundary of what is looked at; None for any other."""


def unknown(handle: Handle) -> None:
    """Return None for each handle: there is no boundary, all that leads to a plan is looked at."""


@collection_paused()
def structure(outputs: Sequence[tuple[Path, Handle]], known: Known = unknown) -> Structure:
    """Return the nodes that ``outputs`` need, and no others.

    Parameters
    ----------
    outputs
        Handles with their paths.
    known
        Returns the digest of a handle that becomes a node without inputs, at the *boundary* of what
        is looked at: it was released in an earlier step of a session, which visits what is new in a
        step, not all steps before it.
    """
    merged = Merged([handle for _, handle in outputs], known)
    named: dict[int, list[Path]] = {}
    for path, handle in outputs:
        # one node may be several outputs
        named.setdefault(merged.of(handle), []).append(path)
    return Structure(merged, named)


# -----------------------------------------------------------------------------
# Merging: which handles are one node, and in which loops and groups each is.


@frozen(eq=False)
class Written:
    """An operation as JSON, for all nodes that have an equal one.

    Parameters
    ----------
    text
        What `describe` returns, as JSON.
    parameters
        The operation's parameters as JSON values.
    number
        Tells it from others.
    exact
        Whether what is written says all: operations of the library are equal where it is equal.
    unclear
        Whether what is written may be equal for operations that are not: for functions that no
        module holds.
    """

    text: str
    parameters: Mapping[str, Any]
    number: int
    exact: bool = False
    unclear: bool = False


_NOT_WRITTEN = Written("", {}, -1)


class Merged:
    """The nodes of a graph, as positions of handles in one topological order.

    Which they are, and their order, follow from the graph alone: from the outputs in their order,
    and from each handle's inputs in theirs. When a handle was made does not matter.

    All is in lists by position, since a plan may have a million handles.

    Parameters
    ----------
    roots
        The outputs' handles, in order.
    known
        As of `structure`.

    Attributes
    ----------
    handles
        All handles, aliases and merged ones too; inputs come before their readers.
    rank
        The position of each handle, by its identity.
    node
        The position of the handle that is its node (a group's is that of its result).
    order
        The positions of the handles that are nodes, ascending.
    reads
        The positions of the nodes that a node reads, and of a loop then those of the state and of
        the body's result; of any other handle empty.
    loops
        The loops whose body a node is in, outermost first.
    groups
        The groups around the value of a node, with their names, by its position.
    written
        The operation of a node as JSON.
    boundary
        The digests of the nodes above which nothing is looked at, by position.
    """

    def __init__(self, roots: Sequence[Handle], known: Known = unknown) -> None:
        boundary: dict[int, str] = {}

        def reads(handle: Handle) -> tuple[Handle, ...]:
            node_digest = known(handle)
            if node_digest is None:
                return inputs_and_bodies(handle)
            boundary[id(handle)] = node_digest
            return ()

        self.handles = list(ordered(roots, inputs_and_bodies if known is unknown else reads))
        self.rank = {id(handle): rank for rank, handle in enumerate(self.handles)}
        self.boundary = {self.rank[i]: digest for i, digest in boundary.items()}
        self.node: list[int] = []
        self.order: list[int] = []
        self.reads: list[tuple[int, ...]] = []
        self.loops: list[tuple[Handle, ...]] = []
        self.groups: dict[int, list[tuple[Handle, str]]] = {}
        self.written: list[Written] = []
        self._by_value: dict[Hashable, Written] = {}
        self._by_text: dict[str, int] = {}
        self._by_object: dict[int, Written] = {}
        # of each handle, a number that handles share which compute the same from the same nodes:
        # the position of the first of them
        self._keys: list[int] = []
        self._first_of_key: dict[Hashable, int] = {}
        self._first_in_scope: dict[Hashable, int] = {}
        self._enclosing = _Enclosing(self.handles, self.boundary)
        # inputs first: all that is looked up of a handle's inputs is there
        for rank, handle in enumerate(self.handles):
            if rank in self.boundary:
                # never merged, as nothing released is
                self._append(rank, rank, (), (), _NOT_WRITTEN)
            elif handle.operation.alias:
                # an alias is no node: it stands for its first input
                inner = self.of(handle.inputs[0])
                if isinstance(handle.operation, Group):
                    self.groups.setdefault(inner, []).append((handle, handle.operation.name))
                self._append(inner, self._keys[inner], (), (), _NOT_WRITTEN)
            else:
                self._add(rank, handle)
        # looked up while handles are merged; as large as all the rest
        del self._by_value, self._by_text, self._by_object
        del self._keys, self._first_of_key, self._first_in_scope, self._enclosing

    def of(self, handle: Handle) -> int:
        """Return the position of the node of a handle."""
        return self.node[self.rank[id(handle)]]

    def above(self, roots: Sequence[Handle]) -> set[int]:
        """Return the positions of the nodes that roots are or read, bodies included."""
        return set(upward(map(self.of, roots), self.reads.__getitem__))

    def alike(self) -> dict[int, int]:
        """Return a number for each node, equal for those that differ in their part alone.

        Two nodes are alike if their operations are equal and they read nodes that are alike; parts
        of one partition are. Whatever is declared of alike nodes is equal then, and so is what a
        unit's rows change there: of very many parts that ask the same, one stands for all.

        A node is like no other where more than its place could tell it apart: in a loop, where its
        operation is random (but for a release), or code of third parties.
        """
        numbers: dict[Hashable, int] = {}
        result: dict[int, int] = {}
        for rank in self.order:
            handle, written, reads = self.handles[rank], self.written[rank], self.reads[rank]
            operation = handle.operation
            key: Hashable = rank
            if written.exact and reads and not handle.states:
                first, *others = reads
                if isinstance(operation, PartOperation):
                    # the parts of a partition share what is declared of them, as one object
                    key = type(operation), result[first], id(handle.domain)
                elif isinstance(operation, Release) or (
                    handle.visibility == "private" and not operation.random
                ):
                    key = written.number, type(operation), result[first], *others
            result[rank] = numbers.setdefault(key, rank)
        return result

    def parts(self) -> dict[int, int | None]:
        """Return the position of the innermost part around each node, and of a part its own."""
        result: dict[int, int | None] = {}
        for rank in self.order:
            handle, reads = self.handles[rank], self.reads[rank]
            operation = handle.operation
            if isinstance(operation, PartOperation):
                result[rank] = rank
            else:
                # a private value lies where its private input does, and so does its release
                inside = handle.visibility == "private" or isinstance(operation, Release)
                result[rank] = result[reads[0]] if reads and inside else None
        return result

    def _add(self, rank: int, handle: Handle) -> None:
        operation, node, position = handle.operation, self.node, self.rank
        above = inputs_and_bodies(handle) if isinstance(operation, Loop) else handle.inputs
        reads = tuple([node[position[id(each)]] for each in above])
        written = self._write(operation)
        loops = self._enclosing.loops(handle) if handle.states else ()
        # never merged, nor is what reads it: what is random, a round's state, or a function that
        # the digest cannot tell from another (two closures of one code)
        if operation.random or operation.kind in ("state", "post") or written.unclear:
            self._append(rank, rank, reads, loops, written)
            return
        # the class itself: two third-party classes may share even their names
        keys = self._keys
        key = self._first_of_key.setdefault(
            (written.number, type(operation), *[keys[each] for each in reads]), rank
        )
        # constants and private steps without randomness compute the same wherever they are written
        if operation.visibility != "released":
            # within one body only: a round's step is run again, an equal one outside is not
            scope = (key, *map(id, loops)) if loops else key
            first = self._first_in_scope.setdefault(scope, rank)
            if first != rank:
                self._append(first, key, (), (), _NOT_WRITTEN)
                return
        self._append(rank, key, reads, loops, written)

    def _append(
        self,
        node: int,
        key: int,
        reads: tuple[int, ...],
        loops: tuple[Handle, ...],
        written: Written,
    ) -> None:
        """Say of the next handle which node it is, and of a node what it reads and is."""
        if node == len(self.node):
            self.order.append(node)
        self.node.append(node)
        self.reads.append(reads)
        self.loops.append(loops)
        self.written.append(written)
        self._keys.append(key)

    def _write(self, operation: Operation) -> Written:
        """Return an operation as JSON; equal ones share it, as a plan may have very many."""
        # most equal operations are one object
        written = self._by_object.get(id(operation))
        if written is None:
            written = self._by_object[id(operation)] = self._write_new(operation)
        return written

    def _write_new(self, operation: Operation) -> Written:
        exact = exact_key(operation)
        written = None if exact is None else self._by_value.get(exact)
        if written is None:
            description = describe(operation)
            text = JSON.encode(description)
            number = self._by_text.setdefault(text, len(self._by_text))
            unclear = exact is None and is_unclear(operation)
            written = Written(text, description[1], number, exact is not None, unclear)
            if exact is not None:
                self._by_value[exact] = written
        return written


class _Enclosing:
    """The loops in whose bodies handles are.

    A handle is inside of the loops on whose states it depends, and an inner loop's state is inside
    of all that the inner loop itself is in.
    """

    def __init__(self, handles: Sequence[Handle], without: Collection[int]) -> None:
        self._chains: dict[Handle, tuple[Handle, ...]] = {}
        self._binds: dict[Handle, Handle] = {}
        for rank, handle in enumerate(handles):
            if isinstance(handle.operation, Loop) and rank not in without:
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
            # of a query in a body that is still being written there is no loop yet
            loop = self._binds.get(state)
            self._chains[state] = () if loop is None else (*self.loops(loop), loop)
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


def is_unclear(operation: Operation) -> bool:
    """Return whether operations that are described alike may differ: in what functions close over.

    A function that no module holds is described by its code, and objects in it by their types.
    """
    return any(
        isinstance(value, Function) and value.name.startswith("lambda:")
        for value in operation.parameters().values()
    )


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


def _sha256(message: str) -> str:
    return hashlib.sha256(message.encode()).hexdigest()


def digests(nodes: Merged) -> tuple[dict[int, str], bool]:
    """Return each node's digest by its position, and whether there are equal random nodes.

    Those are told apart by their order in the graph.
    """
    result: dict[int, str] = dict(nodes.boundary)
    copies: dict[str, int] = {}
    handles, all_reads, all_loops, all_written = (
        nodes.handles,
        nodes.reads,
        nodes.loops,
        nodes.written,
    )
    for rank in nodes.order:
        if rank in nodes.boundary:
            continue
        operation = handles[rank].operation
        reads, loops = all_reads[rank], all_loops[rank]
        more = ""
        if isinstance(operation, Loop):
            # what its body reads is in its result, in no order
            more = f'"{result[reads[-1]]}",'
            reads = reads[:1]
        # a state has no inputs: its digest is made of the loop's start and parameters
        elif operation.kind == "state":
            loop = loops[-1]
            start = result[nodes.of(loop.inputs[0])]
            more = f'"{start}",{JSON.encode(loop.operation.parameters())},'
        # the inputs' digests stand for all above them; most nodes have one
        if len(reads) == 1:
            inputs = f'"{result[reads[0]]}"'
        else:
            inputs = ",".join([f'"{result[each]}"' for each in reads])
        # one JSON list: what the operation is, the digests of what it reads, and the depth in
        # loops, as equal nodes in a body and outside of it are two
        node_digest = _sha256(f"{all_written[rank].text[:-1]},[{inputs}],{more}{len(loops)}]")
        if operation.random:
            copies[node_digest] = copies.get(node_digest, -1) + 1
            node_digest = _sha256(f'["{node_digest}",{copies[node_digest]}]')
        result[rank] = node_digest
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
    """Return the titles of the groups around each node by its position, outermost first."""
    members: dict[int, list[str]] = {}
    for title, wrapper in groups.items():
        # what the boundary is computed from lies outside of the group
        outside = nodes.above(wrapper.inputs[1:])
        for rank in nodes.above(wrapper.inputs[:1]) - outside:
            members.setdefault(rank, []).append(title)
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
    nodes: Merged, named: Mapping[int, list[Path]], groups: Mapping[int, list[str]]
) -> dict[int, str]:
    """Return a name for each node by its position, unique in the plan.

    Parameters
    ----------
    nodes
        The nodes.
    named
        The outputs that are a node, by its position.
    groups
        The titles of the groups around a node, outermost first, by its position.
    """
    result: dict[int, str] = {}
    taken: set[str] = set()
    numbers: dict[tuple[str, str], int] = {}  # the last one given

    def claim(rank: int, base: str, owner: str = "") -> None:
        """Give a node a name, with a number where the name is taken."""
        name = f"{base} ({owner})" if owner else base
        # numbered by the form of the name: a base may itself end in a number
        form = (base, owner)
        while name in taken:
            number = numbers[form] = numbers.get(form, 1) + 1
            name = f"{base} {number} ({owner})" if owner else f"{base}_{number}"
        taken.add(name)
        result[rank] = name

    ends = {rank: min(named[rank]) for rank in nodes.order if rank in named}
    # outputs first: no other node may take an output's name
    for rank, path in sorted(ends.items(), key=lambda pair: pair[1]):
        claim(rank, ".".join(path))
    # for every other node the nearest output, or what the paths of equally near ones share
    owners = nearest(ends, nodes.reads.__getitem__, _common_prefix)
    released: list[int] = []
    others: list[int] = []
    for rank in nodes.order:
        if rank not in ends:
            release = isinstance(nodes.handles[rank].operation, Release)
            (released if release else others).append(rank)
    # releases are named before the private nodes that they read, which are seldom referred to
    for ranks in (released, others):
        for base, same in _by_base(nodes, ranks, groups).items():
            # no output: what only a merged duplicate reads, since the first copy is the node
            owned = [".".join(owners.get(rank, ())) for rank in same]
            unambiguous = len(same) == 1 and base not in taken
            ambiguous = len(set(owned)) > 1 or base in taken
            for rank, owner in zip(same, owned, strict=True):
                claim(rank, base, "" if unambiguous or not ambiguous else owner)
    return result


def _by_base(
    nodes: Merged, ranks: Iterable[int], groups: Mapping[int, list[str]]
) -> dict[str, list[int]]:
    """Return positions of nodes by the names that they would have where these are unique."""
    by_base: dict[str, list[int]] = {}
    for rank in ranks:
        prefix = "".join([f"{title}." for title in groups.get(rank, ())])
        by_base.setdefault(prefix + _operation_name(nodes.handles[rank]), []).append(rank)
    return by_base


def _common_prefix(first: Path, second: Path) -> Path:
    """Return the names that two outputs' paths share at the beginning, or the lesser path."""
    shared = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        shared += 1
    return first[:shared] if shared else min(first, second)


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


@collection_paused()
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
        entries = [(n.rank, self._node(n)) for n in inside if not _is_state(n)]
        if self.groups:
            of = {n.name for n in inside}
            rank = self.structure.ranks
            # groups stand where their wrapper does, in the order of the graph
            entries += [
                (rank[id(handle)], self._group(handle))
                for handle in self.structure.groups.values()
                if self.structure.of(handle).name in of
            ]
            entries.sort(key=itemgetter(0))
        return [entry for _, entry in entries]

    def reference(self, handle: Handle) -> str:
        """Return the id of a handle's entry."""
        node = self.structure.of(handle)
        name = (self.groups and self.groups.get(id(handle))) or node.name
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
        for name, value in node.written.items():
            entry[name] = copied(value)
        return entry

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
