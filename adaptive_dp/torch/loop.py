"""A loop of one's own: a session pays for each round, and the loop decides what comes next."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from accountants.errors import BudgetError
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import Private, PrivateQuery, Public, Released, public
from adaptive_dp.graph.operation import Operation, Visibility
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import positive
from adaptive_dp.learning.descent import Clipping
from adaptive_dp.mechanisms.follow_the_leader import (
    FollowTheLeader,
    FollowTheLeaderRound,
    FollowTheLeaderRun,
)
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.table import Table
from adaptive_dp.torch.examples import NetworkTable
from adaptive_dp.torch.networks import library
from adaptive_dp.torch.training import (
    STREAM_BITS,
    NetworkParameters,
    TrainedNetwork,
    Training,
    UnitGradientsOf,
    module,
    next_threshold,
)


class Payer(Protocol):
    """What pays for a step before it is computed: a `Session`, or a part of one."""

    def run(self, query: Pipeline, *, name: str = "") -> Mapping[str, Any]:
        """Return what a plan releases, as one step."""
        ...


_HELD: dict[str, NDArray[Any]] = {}
"""Parameters that a round reads, by digest, while it is computed."""


@frozen
class ParametersAt(Operation):
    """Public parameters of a network that a document names by their digest and does not hold.

    What a round costs does not depend on them; they follow from what was released before.

    Parameters
    ----------
    digest
        SHA-256 of the numbers, in the order of the network's parameters.
    """

    kind: ClassVar[str] = "network_parameters"
    visibility: ClassVar[Visibility] = "public"

    digest: str

    def label(self) -> str:
        """Return the beginning of the digest."""
        return f"parameters {self.digest[:8]}"

    def run(self, inputs: Sequence[Any], stream: Stream) -> NDArray[Any]:
        """Return the parameters.

        Raises
        ------
        RunError
            If they are not in this process: a document of the step alone cannot run it.
        """
        if self.digest not in _HELD:
            raise RunError(
                f"the parameters {self.digest[:8]} of a loop's round are not in this process: a "
                "document names them and does not hold them"
            )
        return _HELD[self.digest]


_SETTLED = (
    "noise, sampling rate, number of steps and the rule of the threshold are settled by the first "
    "round of a loop with correlated noise, which pays for all of them; begin another loop, by "
    "another name, which is charged"
)


def digest_of(theta: NDArray[Any]) -> str:
    """Return the digest of parameters."""
    return hashlib.sha256(np.ascontiguousarray(theta).tobytes()).hexdigest()


@frozen
class Round:
    """What a round has released, and what follows from it.

    Parameters
    ----------
    number
        From 1 on.
    threshold
        C, with which its gradients were clipped.
    share
        The released share of gradients within C, of the expected number; None of a fixed one.

    Examples
    --------
    >>> Round(number=3, threshold=0.5, share=0.45).number
    3
    """

    number: int
    threshold: float
    share: float | None


def _each(value: Any, kind: type, made: Callable[[Any], Any]) -> Any:
    """Return a nested value with each array of a kind made into another."""
    if isinstance(value, kind):
        return made(value)
    if isinstance(value, Mapping):
        return {key: _each(own, kind, made) for key, own in value.items()}
    return [_each(own, kind, made) for own in value] if isinstance(value, list) else value


class Loop:
    """The rounds of a training one by one, each a step of a session.

    ``for round in loop`` takes a round at a time: the session charges it, then it is drawn and
    released, then the optimizer steps. The loop ends after the training's steps, or before a round
    that the session's budget does not allow. Between rounds anything may be done with what was
    released: the network tried on public data, the noise or the sampling rate changed, another loss
    taken (`step`), the loop left. The session's certificate is of what was run.

    Parameters
    ----------
    session
        Opened with the data; its ledger has each round, and no checkpoint has the ledger.
    table
        The rows to learn from.
    training
        What a round is; it needs a ``batch_size``, which is public, or samples of a fixed size.
    sigma
        The noise of a round's gradients, as a multiple of the threshold. Of correlated noise as
        `Pipeline.fix` takes it: without amplification all rounds cost what one Gaussian release of
        sensitivity 1 with this noise costs.
    name
        Of correlated noise: tells apart trainings of a session that are alike, each of which is
        charged.

    Notes
    -----
    *Correlated noise.* All rounds are one release, which the first round pays for: a loop that is
    left early has cost the whole, and its certificate says so. What a round learns from may be
    chosen as it comes (parameters, learning rate, loss); noise, sampling rate, number of steps and
    the rule of the threshold are settled by the first. The noise of earlier rounds is in this
    session alone: another one on the same ledger shows what was released, and takes no new round.

    *Checkpoints.* `state_dict` has the parameters, what the optimizer remembers, the threshold and
    the number of rounds: released values alone. A loop that goes on from an older checkpoint than
    its ledger asks for rounds again. One that reads just what it read before (the same parameters,
    rate, threshold and noise) is the same release, whose recorded value the session returns at no
    cost; any other is charged, and has fresh noise, or is refused where noise is correlated. No
    noise is used twice, and nothing is free that was not released already.

    Examples
    --------
    >>> import numpy as np, torch, adaptive_dp as dp
    >>> images = dp.dataset("images", columns={"image": dp.tensor((4,), (0, 1)), "y": [0, 1]})
    >>> training = dp.torch.Training(
    ...     lambda: torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss(),
    ...     lambda p: torch.optim.SGD(p, lr=1.0), steps=1_000, sampling_rate=0.1, batch_size=10,
    ... )
    >>> rows = {"image": np.random.default_rng(0).random((100, 4)), "y": [0, 1] * 50}
    >>> with dp.Session(budget=dp.Budget(1.0, 1e-5), seed=1, images=rows) as session:
    ...     loop = dp.torch.Loop(session, images, training, sigma=3.0)
    ...     for done in loop:
    ...         if done.number == 4:
    ...             break
    >>> loop.number, session.certificate().epsilon <= 1
    (4, True)
    """

    def __init__(
        self, session: Payer, table: Table, training: Training, *, sigma: float, name: str = ""
    ) -> None:
        if not isinstance(name, str):
            raise DeclarationError(f"name must be a str, got {name!r}")
        self._session, self._table, self._name = session, table, name
        # of correlated noise, once a round was taken: the release that pays for all
        self._begun: Released[Any] | None = None
        self._sigma = math.inf
        self._reads, self._gradients = training.operations(table.domain)
        self._training = training
        self.sigma = sigma
        initial = training.start_node(training.net, self._gradients.shapes)
        self._state: dict[str, Any] = initial.run([training.threshold], Stream())
        self._expected()

    @property
    def training(self) -> Training:
        """What the next round is; another may be set, with the same network and columns."""
        return self._training

    @training.setter
    def training(self, training: Training) -> None:
        gradients = self._gradients_of(training)
        if training.noise != self._training.noise and self.number:
            raise DeclarationError(_SETTLED)
        if self._begun is not None:
            query, mechanism = training.stream_of(gradients, self._table.domain)
            paid: Any = self._begun.inputs[0].operation
            release: Any = self._begun.operation
            settled = evolve(query, optimizer=paid.optimizer, schedule=paid.schedule)
            if settled != paid or self._run(mechanism) != release.mechanism:
                raise DeclarationError(_SETTLED)
        self._gradients, self._training = gradients, training
        self._expected()

    @property
    def sigma(self) -> float:
        """The noise of the next round's gradients, as a multiple of the threshold."""
        return self._sigma

    @sigma.setter
    def sigma(self, sigma: float) -> None:
        if not positive(sigma):
            raise DeclarationError(f"sigma must be a positive number, got {sigma!r}")
        if self._begun is not None and sigma != self._sigma:
            raise DeclarationError(_SETTLED)
        self._sigma = float(sigma)

    @property
    def number(self) -> int:
        """How many rounds were taken."""
        return int(self._state["round"])

    @property
    def threshold(self) -> float:
        """C, with which the next round's gradients are clipped."""
        return float(self._state["threshold"])

    def _expected(self) -> float:
        """Return the public number of units that a round is expected to have."""
        now = self._now
        size = now.public_size(self._table.domain, now.rates[0])
        if size is None:
            raise DeclarationError(
                "a loop divides by a public number of units: give Training its batch_size, such as "
                "sampling_rate times a number of units that was released"
            )
        return size

    @property
    def _now(self) -> Training:
        """The training of the next round, with its own sampling rate."""
        rates = self._training.rates
        if len(rates) == 1:
            return self._training
        return self._training.of_rate(rates[min(self.number, len(rates) - 1)])

    def __iter__(self) -> Iterator[Round]:
        """Yield each round, until the steps are taken or the budget allows no more.

        Raises
        ------
        BudgetError
            If the budget does not allow all rounds of correlated noise.
        """
        while self.number < self._training.steps:
            try:
                done = self.step()
            except BudgetError:
                if self._training.noise != "independent":  # no round is taken: this is no end
                    raise
                return
            yield done

    def plan(self) -> Pipeline:
        """Return the plan of the next round, as the session is asked for it.

        Of correlated noise it has what pays for all rounds in it.
        """
        return self._plan(self._gradients, self._beginning())

    def step(self, loss: Any = None) -> Round:
        """Take a round: charged, then drawn and released, then a step of the optimizer.

        Parameters
        ----------
        loss
            Of this round alone, as `Training` takes it; None for the training's. It is tried on
            made-up rows, as the training's was, and costs what that costs.

        Raises
        ------
        BudgetError
            If the session's budget does not allow it. Nothing is spent then.
        RunError
            If the noise is correlated, and the session cannot go on with its rounds: nothing is
            spent then, and nothing released.
        DeclarationError
            If the network cannot be trained by the loss row by row.
        """
        gradients = self._gradients
        if loss is not None:
            gradients = self._gradients_of(evolve(self._training, loss=loss))
        number, read, begun = self.number + 1, self._read(), self._beginning()
        digest = digest_of(read)
        _HELD[digest] = read
        try:
            plan = self._plan(gradients, begun)
            if begun is not None and number == 1:
                # by itself, so that a round that is interrupted does not pay for all rounds again
                self._session.run(Pipeline(begun=begun), name=self._name or "all rounds")
                self._begun = begun
            result = self._session.run(plan, name=f"round {number}")
        finally:
            _HELD.pop(digest, None)
        self._begun = begun
        expected, threshold, training = self._expected(), self.threshold, self._training
        total = np.asarray(result["gradients"], dtype=np.float64)
        short = result.get("short_gradients")
        if begun is not None and self._adapts:
            weight: Any = begun.inputs[0].operation
            total, short = total[:-1], total[-1] / math.ldexp(weight.short, -STREAM_BITS)
        told = training.is_told and begun is None
        deviation = self._sigma * training.sum_weight / expected if told else 0.0
        after = training.step_of(told=told).following(self._state, total / expected, deviation)
        share = None
        if isinstance(training.clipping, Clipping):
            share = float(short) / expected  # type: ignore[arg-type]
            quantile, rate = training.clipping.quantile, training.clipping.rate
            after["threshold"] = next_threshold(self._state, share, quantile, rate)
        self._state = after
        return Round(self.number, threshold, share)

    @property
    def _adapts(self) -> bool:
        """Whether the threshold follows what is released."""
        return isinstance(self._training.clipping, Clipping)

    def _gradients_of(self, training: Training) -> UnitGradientsOf:
        """Return the node of a training's gradients, checked, or refuse another network's."""
        reads, gradients = training.operations(self._table.domain)
        if (gradients.shapes, reads) != (self._gradients.shapes, self._reads):
            raise DeclarationError("a loop keeps its network and its columns; begin another loop")
        return gradients

    def _read(self) -> NDArray[Any]:
        """Return the parameters that the next round reads, with a correlated one's threshold."""
        theta: NDArray[Any] = self._state["parameters"]
        if self._training.noise == "independent":
            return theta
        theta = theta.astype(np.float64)
        return np.append(theta, self.threshold) if self._adapts else theta

    def _plan(self, gradients: UnitGradientsOf, begun: Released[Any] | None) -> Pipeline:
        """Return the plan of the next round, with these gradients."""
        training, rows = self._now, NetworkTable(self._reads, (self._table,))
        at: Public[Any] = Public(ParametersAt(digest_of(self._read())))
        if begun is None:
            released = training.releases(gradients, rows, at, public(self.threshold))
            return Pipeline(**released).fix(**{training.free: self._sigma})
        if not self._adapts and self.threshold != training.threshold:
            raise DeclarationError(
                f"the threshold of this training is {training.threshold:g}, and a checkpoint's "
                f"{self.threshold:g}: all rounds of correlated noise have the same"
            )
        stream: Any = begun.inputs[0].operation
        sums: PrivateQuery[Any] = PrivateQuery(stream, (Private(gradients, (rows,)),))
        one = FollowTheLeaderRound(round=self.number + 1)
        return Pipeline(gradients=sums.release(one, given=[begun, at], name="gradients"))

    def _beginning(self) -> Released[Any] | None:
        """Return the release that pays for all rounds of correlated noise."""
        if self._begun is not None or self._training.noise == "independent":
            return self._begun
        query, mechanism = self._training.stream_of(self._gradients, self._table.domain)
        rows = NetworkTable(self._reads, (self._table,))
        sums: PrivateQuery[Any] = PrivateQuery(query, (Private(self._gradients, (rows,)),))
        return sums.release(self._run(mechanism), name="all_rounds")

    def _run(self, mechanism: FollowTheLeader) -> FollowTheLeaderRun:
        """Return the beginning of a training's rounds, with this loop's noise and name."""
        fixed = mechanism.fixed(self._sigma)
        return FollowTheLeaderRun(**fixed.parameters(), run=self._name)

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint, for ``torch.save``: released values, and never the ledger."""
        torch = library()
        kept: dict[str, Any] = _each(
            self._state, np.ndarray, lambda v: torch.as_tensor(np.array(v))
        )
        return kept

    def load_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises
        ------
        DeclarationError
            If it is none of a network with these parameters.
        """
        state = _each(checkpoint, library().Tensor, lambda v: v.detach().numpy().copy())
        memory = state.get("memory")
        if not (isinstance(memory, list) and all(isinstance(own, Mapping) for own in memory)):
            raise DeclarationError(
                "a checkpoint's memory must be a list of what an optimizer keeps"
            )
        self._go_on_from(state)

    def _go_on_from(self, state: dict[str, Any]) -> None:
        """Take a checked state in the place of the present one."""
        if set(state) != set(self._state):
            raise DeclarationError(
                f"a checkpoint has {sorted(self._state)}, got {sorted(map(str, state))}"
            )
        old = self._state["parameters"]
        theta = np.asarray(state["parameters"])
        if theta.shape != old.shape or theta.dtype != old.dtype:
            raise DeclarationError("the checkpoint is of a network with other parameters")
        # what would fail where rows are read would be charged before
        for name in ("threshold", "first_threshold"):
            if not (positive(state[name]) and 1e-12 <= state[name] <= 1e12):
                raise DeclarationError(f"a checkpoint's {name} must be positive, got {state[name]}")
        if not (isinstance(state["round"], int) and state["round"] >= 0):
            raise DeclarationError("a checkpoint's round must be an int of at least 0")
        self._state = state

    @property
    def model(self) -> NetworkParameters:
        """The parameters of now, as `Training` releases them: for `predict` and `outputs`."""
        reads = self._reads
        trained = TrainedNetwork(
            self._gradients.shapes, reads.features, reads.target, reads.columns
        )
        return trained.run([self._state], Stream())

    def module(self) -> Any:
        """Return the network of now, in eval mode."""
        return module(self.model, self._training.net.resolve())
