"""All that a session has run, as handles of one plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.roles import SampleOperation
from adaptive_dp.graph.structure import Structure
from adaptive_dp.graph.traversal import ancestors, rewritten
from adaptive_dp.session.needs import pays


class Record:
    """Puts steps into one plan: what was recorded before is the same node, samples are fresh.

    A step that asks for a twin of an earlier release got its value, and a step that reads an
    earlier step's sample drew another: the handles that were asked for do not say so, these do.
    What a step has paid for is a node of its own: a release once more, or one whose first attempt
    failed, was drawn twice and counts twice.
    What was paid for is known by its identity; where a ledger does not tell that (it brings no
    functions along, see `adaptive_dp.session.identity`), by its digest, as what a step reads and
    does not pay for was released before. All else of a step is in the plan as it is.
    """

    def __init__(self) -> None:
        self._made: dict[str, Handle] = {}
        self._taken: set[Handle] = set()

    def add(
        self,
        handle: Handle,
        structure: Structure,
        keys: Mapping[str, str],
        paid: Collection[str],
    ) -> Handle:
        """Return the handle of a step as it was run, with a record of what it made.

        Parameters
        ----------
        handle, structure
            Of the step.
        keys
            The identity of each node.
        paid
            Names of the releases and loops that the step has paid for.
        """
        new = {keys[name] for name in paid}
        known: dict[Handle, Handle] = {}
        drawn: dict[Handle, tuple[str, str]] = {}
        fresh: set[Handle] = set()
        for old in ancestors(handle):
            node = structure.of(old)
            if not old.operation.random:
                continue
            if _sampled(old):
                fresh.add(old)
                continue
            found = keys[node.name], node.digest if pays(node) else keys[node.name]
            made = next((self._made[key] for key in found if key in self._made), None)
            if made is not None and found[0] not in new:
                known[old] = made
            else:
                drawn[old] = found
        # one handle that two steps have drawn is two nodes
        again = {old for old in (*fresh, *drawn) if old in self._taken}
        copies = rewritten([handle], known=known, anew=again)
        self._taken.update(each for each in copies.values() if each.operation.random)
        for old in reversed(drawn):
            for key in drawn[old]:
                if old in copies:
                    self._made.setdefault(key, copies[old])
        return copies[handle]


def _sampled(handle: Handle) -> bool:
    """Whether a private handle is a sample, or is drawn from one."""
    while handle.color == "private" and handle.inputs:
        if isinstance(handle.operation, SampleOperation):
            return True
        handle = handle.inputs[0]
    return False
