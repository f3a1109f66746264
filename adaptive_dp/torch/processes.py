"""Sums that several processes of ``torch.distributed`` add up, of which one runs the plan.

The process of rank 0 runs the plan as it is: it alone draws samples and noise, charges, and steps.
Of each batch every process gets some of the units, and adds up their clipped gradients in integers;
the sums are added up as integers, and are the same whatever the processes are.

*A unit's share may depend on the process that computes it* (kernels differ between machines). So
each unit's process is drawn uniformly, independently of the others: given all processes, a unit
more adds one share, and the others' processes have the same law with and without it. The two laws
of the sum are mixtures of neighbours over the same weights, as for slots
(`adaptive_dp.torch.gradients`). (Own proof.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import RunError
from adaptive_dp.graph.loops import ancestors
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.torch.examples import uniform
from adaptive_dp.torch.networks import NetworkParts, library
from adaptive_dp.torch.training import HELPERS, UnitGradients, UnitGradientsOf


def _parts_of(plan: Pipeline) -> list[NetworkParts]:
    """Return what the networks of a plan are made of, in the plan's order."""
    found = []
    for handle in ancestors(*(handle for _, handle in plan.outputs), bodies=True):
        if isinstance(handle.operation, UnitGradientsOf):
            rows = handle.inputs[0].domain
            found.append(handle.operation.parts(rows.shape, by_unit=rows.table.unit is not None))
    if not found:
        raise RunError("the plan trains no network, whose sums processes could share")
    return found


def _sum(parts: Sequence[NetworkParts], task: dict[str, Any]) -> tuple[NDArray[np.int64], int]:
    """Return what one process adds up, and how many units are short."""
    engine = parts[task["network"]].engine()
    found: tuple[NDArray[np.int64], int] = engine.sums(*task["rows"], **task["how"])
    return found


def _added(dist: Any, total: NDArray[np.int64], short: int, failed: int) -> NDArray[np.int64]:
    """Return the processes' sums, counts and failures, added up at rank 0: integers below 2^63."""
    torch = library()
    found = torch.from_numpy(np.concatenate([total, [short, failed]]))
    dist.reduce(found, 0)
    return np.asarray(found.numpy())


@frozen
class _Lead:
    """Rank 0: it deals the units out, and adds up."""

    dist: Any
    parts: Sequence[NetworkParts]

    def __call__(
        self, gradients: UnitGradients, x: Any, y: Any, how: dict[str, Any]
    ) -> tuple[NDArray[np.int64], int]:
        """Return the sum over all units, and how many are short."""
        known = (i for i, p in enumerate(self.parts) if p.engine() is gradients.engine)
        network = next(known, None)
        if network is None:  # of another plan: the others have not declared it
            alone = gradients.theta, x, y, gradients.rows.units
            found: tuple[NDArray[np.int64], int] = gradients.engine.sums(
                *alone, **how, stream=gradients.stream
            )
            return found
        rows, processes = gradients.rows, self.dist.get_world_size()
        own = uniform(processes, rows.count, gradients.stream)
        of_rows = own if rows.units is None else own[rows.units]
        tasks: list[dict[str, Any] | None] = []
        for rank in range(processes):
            mine = of_rows == rank
            units = None if rows.units is None else rows.units[mine]
            given = np.asarray(gradients.theta), x[mine], y[mine], units
            tasks.append({"network": network, "rows": given, "how": how})
        self.dist.scatter_object_list([None], tasks, src=0)
        task = tasks[0]
        assert task is not None
        task["how"] = {**how, "stream": gradients.stream}
        try:
            total, short = _sum(self.parts, task)
        except BaseException:  # the others are waiting for this process's sum
            _added(self.dist, np.zeros(np.size(gradients.theta), np.int64), 0, 1)
            raise
        *whole, short, failed = _added(self.dist, total, short, 0)
        if failed:
            raise RunError("another process failed to add up its units")
        return np.array(whole, dtype=np.int64), int(short)

    def stop(self) -> None:
        """Let the others go."""
        self.dist.scatter_object_list([None], [None] * self.dist.get_world_size(), src=0)


def _serve(dist: Any, parts: Sequence[NetworkParts]) -> None:
    """Add up what rank 0 deals out, until it stops."""
    while True:
        box: list[Any] = [None]
        dist.scatter_object_list(box, None, src=0)
        task = box[0]
        if task is None:
            return
        try:
            total, short, failed = *_sum(parts, task), 0
        except Exception:  # whatever it is may show rows: rank 0 is told that there was one
            total, short, failed = np.zeros(np.size(task["rows"][0]), np.int64), 0, 1
        _added(dist, total, short, failed)


@contextmanager
def shared(plan: Pipeline) -> Iterator[bool]:
    """Have all processes of ``torch.distributed`` add up the gradients of a plan's networks.

    Every process declares the plan and enters; rank 0 alone runs it, and gets True. The others
    work until it leaves, and get False. The certificate, the sample and the noise are those of one
    process, and so, with a seed, is the result, to the bit where kernels are the same.

    Parameters
    ----------
    plan
        Or that of a round, ``loop.plan()``, for a loop in a session.

    Raises
    ------
    RunError
        Without a process group, such as of ``torch.distributed.init_process_group("gloo")``.

    Notes
    -----
    A plan of another network that runs meanwhile is computed by rank 0 alone. Where a process fails
    to add up, the run fails as that of a single process would, and no process is left waiting.
    Rows of a batch are sent to the processes that add them up, by the process group, which does not
    encrypt them. A process that waits for longer than the group's timeout fails.

    Examples
    --------
    In a script that ``torchrun`` starts in several processes, with data in that of rank 0 alone::

        torch.distributed.init_process_group("gloo")
        plan = dp.Pipeline(model=images.solve(training)).calibrate(epsilon=3, delta=1e-5)
        with dp.torch.shared(plan) as lead:
            if lead:
                result = plan.run(images=rows)
    """
    dist = library().distributed
    if not (dist.is_available() and dist.is_initialized()):
        raise RunError(
            "there is no process group: call torch.distributed.init_process_group('gloo') first, "
            "in each process"
        )
    parts = _parts_of(plan)
    if dist.get_rank() != 0:
        _serve(dist, parts)
        yield False
        return
    lead = _Lead(dist, parts)
    HELPERS.append(lead)
    try:
        yield True
    finally:
        HELPERS.remove(lead)
        lead.stop()
