"""The plans of a session's steps: what they compute, pay and declare, and their form in a ledger.

In reading order: which nodes a step computes and pays for; the declarations of its data sets; the
digests by which steps recognise each other's nodes; how the plans of a ledger's spends are written
and read; the `EarlierNodes` at which the plan of a step begins; and the `Journal`, which puts all
steps into one plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from adaptive_dp.graph.compile import branch_losses
from adaptive_dp.graph.document import loaded
from adaptive_dp.graph.errors import DeclarationError, DocumentError, NeighborError, PlanError
from adaptive_dp.graph.handles import (
    Handle,
    PublicSource,
    Release,
    SampleOperation,
    SourceOperation,
)
from adaptive_dp.graph.loops import Loop, rewritten, upward
from adaptive_dp.graph.nodes import Node, Structure, describe, differing, digest, excerpt
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.plan import Outputs, Pipeline
from adaptive_dp.graph.registry import Function, is_own, permitted
from adaptive_dp.graph.registry import fingerprint as function_document
from adaptive_dp.session.budget import Costs

# --- What a step computes, and which part of it is paid for ------------------------------------


def is_paid(node: Node) -> bool:
    """Return whether a node is paid for: a release or a loop that is in no loop itself."""
    # one payment for a loop covers all releases in its body, in all rounds
    return isinstance(node.handle.operation, Release | Loop) and not node.loops


def required_nodes(
    structure: Structure, ends: Iterable[Node], available: Iterable[str]
) -> set[str]:
    """Return the names of the nodes to compute for some, without those whose values are available.

    Parameters
    ----------
    structure
        The plan.
    ends
        The nodes that are asked for.
    available
        Names of nodes whose values need not be computed; nothing above them is required for them.
    """
    # the names in each loop's body, which running the loop computes
    bodies: dict[str, list[str]] = {}
    for node in structure:
        for loop in node.loops:
            bodies.setdefault(loop, []).append(node.name)
    # the walk stops at what is available: nothing above it is required for it
    stop = set(available)

    def before(name: str) -> list[str]:
        read = [*structure.nodes[name].inputs, *bodies.get(name, ())]
        return [each for each in read if each not in stop]

    return set(upward([end.name for end in ends if end.name not in stop], before))


def costs_for(structure: Structure, new: Iterable[Node]) -> Costs:
    """Return what making some releases and loops costs, branch by branch."""
    names = {node.name for node in new}
    # a release in a loop is paid through the outermost loop around it
    releases = [each for each in structure.releases if names & {each.name, *each.loops[:1]}]
    return tuple(branch_losses(releases))


def paid_nodes(structure: Structure, digests: Sequence[str]) -> list[Node]:
    """Return the nodes of digests, among those that are paid for."""
    paid = set(digests)
    return [node for node in structure if is_paid(node) and node.digest in paid]


# --- Declarations of data sets: one for each name, neighbours of one kind ----------------------

Declarations = Mapping[str, tuple[str, str]]
"""For each data set a digest of its declaration, and its neighbour relation or "public"."""


Fields = Mapping[str, Mapping[str, Any]]
"""The fields of declarations by their digests, as in a plan document; for messages."""


def declarations(
    structure: Structure,
    above: Mapping[str, Declarations] = MappingProxyType({}),
    fields: Fields = MappingProxyType({}),
) -> dict[str, tuple[str, str]]:
    """Return the declarations of what a plan reads.

    Parameters
    ----------
    structure
        The plan.
    above
        The declarations above those of its nodes that earlier steps have computed, by node name.
    fields
        The fields of declarations, as far as they are recorded.

    Raises
    ------
    DeclarationError
        If one name is declared twice.
    """
    declared: dict[str, tuple[str, str]] = {}
    for node in structure:
        new = above[node.name] if node.name in above else _declared_by(node.handle.operation)
        # the same rule within a plan as between steps: one declaration for each name
        check_declarations(new, declared, fields)
        declared |= new
    return declared


def _declared_by(operation: Operation) -> Declarations:
    if not isinstance(operation, SourceOperation | PublicSource):
        return {}
    kind = operation.neighbors if isinstance(operation, SourceOperation) else "public"
    return {operation.name: (digest(describe(operation)), kind)}


def declared_fields(structure: Structure) -> dict[str, Mapping[str, Any]]:
    """Return the fields of the declarations in a plan, by their digests."""
    sources = (
        n for n in structure if isinstance(n.handle.operation, SourceOperation | PublicSource)
    )
    return {digest(describe(n.handle.operation)): n.written for n in sources}


def written_fields(entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the fields of the declarations that a spend of a ledger names, by their digests."""
    named = {name: each[0] for name, each in entry["data"].items()}
    nodes = [n for n in entry["plan"].get("nodes", ()) if "inputs" not in n]
    return {named[n["name"]]: n for n in nodes if n.get("name") in named}


def check_declarations(
    new: Declarations, earlier: Declarations, fields: Fields = MappingProxyType({})
) -> None:
    """Refuse a data set under two declarations, and neighbours of two kinds.

    Sums of losses mean something for one notion of neighbours alone; and what one step reads as
    public, another must not read as private.

    Raises
    ------
    DeclarationError, NeighborError
        With the data sets and both declarations.
    """
    for name, (declaration, kind) in new.items():
        if name in earlier and earlier[name] != (declaration, kind):
            before, now = (fields.get(d) for d in (earlier[name][0], declaration))
            differ = [f"neighbors is {earlier[name][1]!r}, now {kind!r}"]
            if earlier[name][1] == kind:
                differ = differing(before, now) if before and now else []
            what = f": {'; '.join(differ)}" if differ else ", with other columns or another unit"
            raise DeclarationError(
                f"an earlier step has read the data set {name!r} under another declaration{what}; "
                "declare it once and reuse the handle, or open another session"
            )
        for other, (_, theirs) in earlier.items():
            # public data has no neighbours
            if "public" not in (kind, theirs) and kind != theirs:
                raise NeighborError(
                    f"the data sets {other!r} ({theirs}) and {name!r} ({kind}) have different "
                    "neighbour relations, under which one budget means nothing; declare both with "
                    "the same neighbors=..."
                )


# --- Digests: when two releases are one --------------------------------------------------------

PROCESS_LOCAL = "@"
"""Marks a digest that means something in this process alone."""


class SessionDigests:
    """Digests of nodes that tell apart what `Node.digest` cannot.

    A node's digest names a user's function by its code and what it closes over, as far as that can
    be written down, and a user's class by its name. Two that differ may share it: closures over
    objects, or a function of a notebook that was redefined. A value that the one has released must
    not be shown for the other. So the digest of such a node has a *mark* here, as a suffix: a hash
    of the function's body, or the address of an object of this process. The object is held, so that
    no other gets its address.
    """

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def of(
        self, structure: Structure, earlier: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """Return each node's digest by its name.

        Parameters
        ----------
        structure
            The plan.
        earlier
            The session digests of those of its nodes that earlier steps have computed, by name.
        """
        marks: dict[str, str] = {}
        for node in structure:
            if node.name in earlier:
                # nothing above such a node is in the plan, so its mark comes from its own step
                marks[node.name] = earlier[node.name].removeprefix(node.digest)
                continue
            operation = node.handle.operation
            # a mark is inherited: what reads a process-local node is process-local
            reads = [marks.get(name, "") for name in node.inputs]
            if isinstance(operation, Loop):
                # a loop computes its body, whose marks count for it
                reads += [marks.get(n.name, "") for n in structure if node.name in n.loops]
            own = self._mark(operation)
            above = sorted({mark for mark in (own, *reads) if mark})
            joined = "".join(above)
            short = hashlib.sha256(joined.encode()).hexdigest()[:16]
            marks[node.name] = joined and (PROCESS_LOCAL if PROCESS_LOCAL in joined else "") + short
        return {node.name: node.digest + marks[node.name] for node in structure}

    def _mark(self, operation: Operation) -> str:
        mechanism = operation.mechanism if isinstance(operation, Release) else None
        marks = []
        for thing in (operation, mechanism):
            # code of a third party: its class says nothing about what it computes
            if thing is not None and not is_own(type(thing)):
                marks.append(self._local(type(thing)))
            parameters = thing.parameters() if thing is not None else {}
            marks += [self._function(v) for v in parameters.values() if isinstance(v, Function)]
        return "".join(marks)

    def _function(self, function: Function) -> str:
        call = function.call
        module = function.name.partition(":")[0]
        # functions of modules are named by their module; the others need a look at their code
        if call is None or module not in ("lambda", "__main__"):
            return ""
        body = repr(function_document(call))
        # refers to objects that no digest describes: only this very function is the same
        if "'object'" in body or "'around'" in body:
            return self._local(call)
        # the digest of a lambda's name covers its code already
        return "" if module == "lambda" else hashlib.sha256(body.encode()).hexdigest()

    def _local(self, thing: type | Callable[..., Any]) -> str:
        # held, so that no other object gets the same id
        self._objects[id(thing)] = thing
        return f"{PROCESS_LOCAL}{id(thing)}"


# --- Plans in a ledger, each written without the nodes of earlier ones --------------------------
#
# A step that reads earlier ones has all that is above them in its plan. Written out each time, a
# chain of steps would take a ledger as long as the square of its length. So an entry's plan leaves
# out the nodes that are released or random (releases, loops, what is computed from them, samples,
# random parts) and stand in an earlier entry, with all above them. Under ``reads`` it has their
# digests; under ``offers`` the digests of the nodes that it adds itself. A digest names a node by
# all that it computes, the digests of its inputs among it. So the node that a reader puts in place
# of one that was left out is the same, with the same costs, declarations and digests.
#
# Twins (two equal random nodes of one plan) have digests by their rank in that plan, which would be
# another in an excerpt of it. A plan that has twins is written in full, and offers nothing. No
# other plan has twins when it is read: a node that was offered once is read from then on and not
# written again, so that there is one random handle for each digest.


def plan_fields(plan: Pipeline, offered: Collection[str]) -> dict[str, Any]:
    """Return what an entry of a ledger says of a step's plan: ``plan``, ``reads``, ``offers``.

    Parameters
    ----------
    plan
        The step, with an output for each value that it returns.
    offered
        The digests that the entries before it offer.
    """
    structure = plan.structure
    if _has_twins(structure):
        return {"plan": plan.to_document(), "reads": {}, "offers": {}}
    named = {n.name: n.digest for n in structure if _is_written_once(n)}
    # what earlier entries hold is not written again
    written_before = {name for name, digest in named.items() if digest in offered}
    ends = [structure.of(handle) for _, handle in plan.outputs]
    own = _nodes_to_write(structure, ends, written_before)
    document, reads = excerpt(structure, plan.outputs, plan.delta, structure.nodes.keys() - own)
    # only nodes that this plan adds itself: every digest is offered by one entry
    offers = {name: digest for name, digest in named.items() if name in own}
    return {"plan": document, "reads": reads, "offers": offers}


def _nodes_to_write(
    structure: Structure, ends: Sequence[Node], written_before: Collection[str]
) -> set[str]:
    """Return the names of the nodes that a plan writes: what is computed, and groups with it."""
    own = required_nodes(structure, ends, written_before)
    waiting = list(structure.groups.values())
    # a group is written with its boundary, which what is computed need not read. One boundary may
    # lead to a further group: until no more is reached
    while inside := [group for group in waiting if structure.of(group).name in own]:
        waiting = [group for group in waiting if group not in inside]
        for group in inside:
            for each in group.inputs:
                own |= required_nodes(structure, [structure.of(each)], written_before)
    return own


def _is_written_once(node: Node) -> bool:
    """Return whether a node is random or not private, and in no loop; the rest costs little."""
    return not node.loops and (node.handle.operation.random or node.handle.visibility != "private")


def _has_twins(structure: Structure) -> bool:
    """Return whether a plan has two random nodes that differ in nothing but their rank."""
    # two equal random nodes are told apart by rank alone, which another excerpt would change
    if not structure.has_twins:
        return False
    seen: set[tuple[Any, ...]] = set()
    for node in structure:
        operation = node.handle.operation
        if operation.random:
            reads = [*node.handle.inputs]
            if isinstance(operation, Loop):
                reads.append(operation.result)
            above = tuple(structure.of(handle).digest for handle in reads)
            key = (digest(describe(operation)), above, len(node.loops))
            if key in seen:
                return True
            seen.add(key)
    return False


class LedgerPlans:
    """Reads the plans of a ledger's spends, in their order.

    Parameters
    ----------
    allow
        Modules from which the plans' own mechanisms may be imported.
    """

    def __init__(self, allow: Collection[str] = ()) -> None:
        self._modules = permitted(allow)
        self._handles: dict[str, Handle] = {}

    def read(self, entry: Mapping[str, Any]) -> Pipeline:
        """Return the plan of a spend, and remember the nodes that it offers.

        Raises
        ------
        DocumentError
            If it is not a plan, or it does not read and offer what it says.
        """
        # by digest, not by name: names are those of the plan that reads
        reads = _digests(entry, "reads")
        given = {}
        for name, node_digest in reads.items():
            if node_digest not in self._handles:
                raise DocumentError(
                    f"its plan reads {name!r}, which no earlier entry offers (digest {node_digest})"
                )
            given[name] = self._handles[node_digest]
        plan, handles = loaded(entry["plan"], self._modules, given)
        structure = plan.structure
        for name, node_digest in reads.items():
            handle = given[name]
            # checked after the plan is built, as its digests only exist then
            # a rank among twins is another where the twins are left out
            if handle not in structure or structure.of(handle).digest != node_digest:
                raise DocumentError(
                    f"its plan claims to read {name!r} of digest {node_digest!r}, and does not"
                )
        self._remember(entry, structure, handles)
        return plan

    def remember(self, entry: Mapping[str, Any], structure: Structure) -> None:
        """Remember the nodes that a spend offers which this process has written.

        They are read back from the entry, so that they stand on the handles that earlier entries
        offer. The handles that were run are others: in a plan that reads both they would be twins.
        Where a mechanism of the user's cannot be read here, the handles that were run are taken.
        """
        try:
            self.read(entry)
        except PlanError:
            handles = {node.name: node.handle for node in structure}
            self._remember(entry, structure, handles)

    def _remember(
        self, entry: Mapping[str, Any], structure: Structure, handles: Mapping[str, Handle]
    ) -> None:
        for name, node_digest in _digests(entry, "offers").items():
            handle = handles.get(name)
            node = None
            if handle is not None and handle in structure:
                node = structure.of(handle)
            # an offer must be what its digest says, since later entries are priced by it
            if node is None or node.digest != node_digest or node.loops:
                raise DocumentError(f"its plan has no node {name!r} of the digest {node_digest!r}")
            self._handles.setdefault(node_digest, node.handle)


def _digests(entry: Mapping[str, Any], what: str) -> dict[str, str]:
    digests = entry[what]
    if not isinstance(digests, dict) or not all(isinstance(v, str) for v in digests.values()):
        raise DocumentError(f"{what!r} must name digests, got {digests!r}")
    return digests


# --- Nodes of earlier steps: where the plan of a step begins ------------------------------------


@frozen(eq=False)
class _EarlierNode:
    """A released node that an earlier step has computed.

    Parameters
    ----------
    digest, session_digest
        Of the node.
    value
        What it released, or what was computed of that.
    declared
        The declarations of the data sets above it.
    """

    digest: str
    session_digest: str
    value: Any
    declared: Declarations


class EarlierNodes:
    """Released nodes of the steps that a session has run.

    A step that reads the handle of an earlier one has all that is above it in its plan. Were it
    visited again by each step, a chain of steps would take time, and memory, as the square of its
    length. So a step's plan begins at the released nodes of earlier steps (`Structure.known`).

    That changes no digest. A digest names all that a node computes, whatever else is in the plan,
    unless the plan has *twins*: equal random nodes, which are told apart by their order in it. So a
    step that may have twins (one of its random nodes equals another one of this session) has its
    full plan, from the data sets on, and none of its nodes is stored here. Then of two twins the
    later one is visited by each step that depends on it, and seen to equal the other.
    """

    def __init__(self) -> None:
        self._nodes: dict[Handle, _EarlierNode] = {}
        # of each of them its value, and what its mechanism has drawn
        self.released: dict[Handle, tuple[Any, Any]] = {}
        # the one random node of each digest, and the one loop of each state
        self._random: dict[str | Handle, Handle] = {}

    def plan(
        self, outputs: Outputs, *, again: bool, offered: Collection[str] | None = None
    ) -> Pipeline:
        """Return the plan of a step, which begins at nodes of earlier steps.

        Parameters
        ----------
        outputs
            What was asked for: paths and handles.
        again
            Whether the one output is drawn again, though an earlier step may have released it.
        offered
            The plan begins at nodes of these digests alone; None for all earlier nodes.

        Raises
        ------
        LeakError, DeclarationError
            As `Pipeline`.
        """
        drawn = {handle for _, handle in outputs} if again else set()

        def earlier_digest(each: Handle) -> str | None:
            node = self._nodes.get(each)
            if node is None or each in drawn:
                return None
            return node.digest if offered is None or node.digest in offered else None

        plan = Pipeline.of(outputs, known=earlier_digest)
        return Pipeline.of(outputs) if self._may_have_twins(plan.structure) else plan

    def digests(self, structure: Structure) -> dict[str, str]:
        """Return the session digest of each earlier node at which a plan begins, by its name."""
        return {name: self._of(structure, name).session_digest for name in structure.known}

    def declared(self, structure: Structure) -> dict[str, Declarations]:
        """Return the declarations above each earlier node at which a plan begins, by its name."""
        return {name: self._of(structure, name).declared for name in structure.known}

    def value(self, handle: Handle) -> Any:
        """Return the value of an earlier node."""
        return self._nodes[handle].value

    def add(
        self,
        structure: Structure,
        digests: Mapping[str, str],
        values: Mapping[str, Any],
        raw: Mapping[str, Any],
    ) -> None:
        """Store the released nodes of a step.

        Parameters
        ----------
        structure
            The plan of the step.
        digests
            The session digest of each node.
        values
            By name: what was released before, or in this step, and what was computed from that.
        raw
            By name: what mechanisms have drawn, as far as it is known.
        """
        if self._may_have_twins(structure):
            return
        declared: dict[str, Declarations] = self.declared(structure)
        for node in structure:
            handle, operation = node.handle, node.handle.operation
            if node.name in structure.known:
                continue
            # inputs come first: what is declared above each of them is there
            own = dict(_declared_by(operation))
            for name in node.inputs:
                own |= declared[name]
            declared[node.name] = own
            if operation.random:
                self._random[node.digest] = handle
            if isinstance(operation, Loop):
                self._random[operation.state] = handle
            if handle.visibility == "released" and not node.loops and node.name in values:
                earlier = _EarlierNode(node.digest, digests[node.name], values[node.name], own)
                if self._nodes.setdefault(handle, earlier) is earlier:
                    self.released[handle] = values[node.name], raw.get(node.name)

    def _of(self, structure: Structure, name: str) -> _EarlierNode:
        return self._nodes[structure.nodes[name].handle]

    def _may_have_twins(self, structure: Structure) -> bool:
        """Return whether a plan has twins, or may have one above the earlier nodes it begins at.

        Or a loop whose state is that of another loop, which only the full plan refuses.
        """
        if structure.has_twins:
            return True
        for node in structure:
            handle, operation = node.handle, node.handle.operation
            if node.name in structure.known:
                continue
            keys: list[str | Handle] = [node.digest] if operation.random else []
            keys += [operation.state] if isinstance(operation, Loop) else []
            if any(self._random.get(key, handle) is not handle for key in keys):
                return True
        return False


# --- The journal: all that a session has run, as handles of one plan ---------------------------


class Journal:
    """Puts steps into one plan, in which equal nodes are the same only if they were drawn once.

    The handles that were asked for do not say what was drawn. A step that asks for a twin of an
    earlier release got the value of that; a step that reads an earlier step's sample drew another
    one. Here the former becomes the same node, the latter a copy. Whatever a step has paid for is a
    node of its own: a release that was drawn again, or one whose first attempt failed, was drawn
    twice and counts twice. All else of a step is in the plan as it is.

    What was paid for is recognised by its session digest. A ledger of another process does not have
    that (functions of a notebook are not in it, see `SessionDigests`); there the node digest is
    enough, since whatever a step reads without paying for it was released before.
    """

    def __init__(self) -> None:
        # by digest, the node of this plan that the first draw became
        self._drawn: dict[str, Handle] = {}
        # random handles that are in this plan, each of which stands for one draw
        self._used: set[Handle] = set()
        # of handles that steps had: their node in this plan, the first where there are several, as
        # the first value of a release is the one that later steps read
        self._node_of: dict[Handle, Handle] = {}

    def has(self, handle: Handle) -> bool:
        """Return whether a handle of an earlier step has a node in this plan."""
        return handle in self._node_of

    def add(
        self,
        outputs: Outputs,
        structure: Structure,
        digests: Mapping[str, str],
        paid: Collection[str],
    ) -> Outputs:
        """Return the outputs of a step with what it drew as nodes of its own, and store those.

        Parameters
        ----------
        outputs, structure
            Of the step.
        digests
            The session digest of each node.
        paid
            Names of the releases and loops that the step has paid for.
        """
        new = {digests[name] for name in paid}
        # handles of the step that are nodes of this plan already
        replacements: dict[Handle, Handle] = {}
        # those that it has drawn, with the digests by which later steps recognise them
        drawn: dict[Handle, tuple[str, str]] = {}
        samples: set[Handle] = set()

        begin = {structure.nodes[name].handle for name in structure.known}
        roots = [handle for _, handle in outputs]
        for old in upward(roots, lambda each: () if each in begin else each.inputs):
            if old in begin:
                replacements[old] = self._node_of[old]
                continue
            node = structure.of(old)
            if not old.operation.random:
                # what is not random follows from its inputs, and is the same by itself
                continue
            # each step draws a sample of its own, which amplification by sampling needs
            if _is_sampled(old):
                samples.add(old)
                continue
            keys = digests[node.name], node.digest if is_paid(node) else digests[node.name]
            earlier = next((self._drawn[key] for key in keys if key in self._drawn), None)
            if earlier is not None and keys[0] not in new:
                # released before, and not paid for now: it is the same node
                replacements[old] = earlier
            else:
                drawn[old] = keys
        # one handle that two steps have drawn is two nodes
        copied = {old for old in (*samples, *drawn) if old in self._used}
        nodes = rewritten(roots, replacements=replacements, copied=copied)
        self._used.update(each for each in nodes.values() if each.operation.random)
        # in reverse: `upward` goes from the result to the data; the first draw of a digest counts
        for old in reversed(drawn):
            for key in drawn[old]:
                if old in nodes:
                    self._drawn.setdefault(key, nodes[old])
        for old, node_handle in nodes.items():
            if old.visibility != "private":
                self._node_of.setdefault(old, node_handle)
        return [(path, nodes[handle]) for path, handle in outputs]


def _is_sampled(handle: Handle) -> bool:
    """Return whether a private handle is a sample, or is computed from one."""
    while handle.visibility == "private" and handle.inputs:
        if isinstance(handle.operation, SampleOperation):
            return True
        handle = handle.inputs[0]
    return False
