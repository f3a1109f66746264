"""Training a network of PyTorch by noisy sums of clipped gradients: a learner of plans."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Literal, Self, TypedDict, cast

import numpy as np
from attrs import define, evolve, field, frozen
from attrs.validators import in_, instance_of
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, PlanError, RunError
from adaptive_dp.graph.handles import (
    Private,
    PrivateQuery,
    Released,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import AdaptiveSums, Free
from adaptive_dp.graph.operation import Change, Operation, Query, Visibility
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import as_tuple, number, positive, strings
from adaptive_dp.learning.base import Learner, LearnerBudget, within
from adaptive_dp.learning.descent import COUNT, Clipping, expected_rows
from adaptive_dp.mechanisms.additive import Gaussian
from adaptive_dp.mechanisms.follow_the_leader import FACTORIZATIONS, FollowTheLeader
from adaptive_dp.noise.stream import SeededStream, Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Categories, Column, Interval, Tensors
from adaptive_dp.queries.domains import Table as TableDomain
from adaptive_dp.queries.examples import standard
from adaptive_dp.queries.gradients import GradientsDomain
from adaptive_dp.queries.labeled import Gradients
from adaptive_dp.queries.table import Table
from adaptive_dp.torch.examples import (
    NetworkRows,
    NetworkRowsDomain,
    NetworkRowsOf,
    NetworkTable,
    exchanged_units,
    input_shape,
    new_inputs,
)
from adaptive_dp.torch.gradients import RULES
from adaptive_dp.torch.networks import (
    Engine,
    NetworkParts,
    Shapes,
    build,
    fill,
    flat,
    in_precision,
    library,
    loss_of,
    new_optimizer,
    remembered,
    remind,
    shapes_of,
    sizes,
    trainable,
)

MOST_PHASES = 64
"""Runs of equal sampling rates in a plan: each is a loop of its own."""

FLOOR = 0.01
"""A threshold that adapts stays above this share of the first, and below its inverse."""

MOST_PARAMETERS = 2**40
"""Of a network that a document declares; computing needs far fewer."""

FINEST = 30
"""Sums are handed on in steps of at most 2^-30 of the threshold, finer than the query's own."""


class NetworkParameters(TypedDict):
    """A trained network: everything that `predict` and `module` need but the code.

    ``parameters`` are flat, in the order of ``names``, whose shapes are ``shapes``. ``inputs`` has
    the declaration of each input column; ``classes`` are the target's categories, of a number
    none, and ``goal`` is its middle and half its width.

    Examples
    --------
    >>> sorted(NetworkParameters.__annotations__)
    ['classes', 'goal', 'inputs', 'names', 'parameters', 'shapes', 'threshold']
    """

    parameters: NDArray[Any]
    names: list[str]
    shapes: list[list[int]]
    inputs: dict[str, dict[str, Any]]
    classes: list[Any]
    goal: list[float]
    threshold: float


def _shapes(value: Any) -> Shapes:
    return tuple((str(name), tuple(int(n) for n in shape)) for name, shape in value)


def _settings(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): v for k, v in value.items()}


# -----------------------------------------------------------------------------
# The nodes of the graph.


HELPERS: list[Callable[..., tuple[NDArray[np.int64], int]]] = []
"""What adds gradients up instead of this process alone: the last one (`shared`)."""


@frozen(eq=False, repr=False)
class UnitGradients:
    """The gradients of a batch, one of each unit; they are computed when they are summed."""

    rows: NetworkRows
    theta: NDArray[Any]
    engine: Engine
    stream: Stream
    rule: str = "flat"
    by_layer: bool = False
    _known: dict[float, tuple[NDArray[np.int64], int]] = field(factory=dict, init=False)

    def __repr__(self) -> str:
        return "<private gradients>"

    def both(self, threshold: float) -> tuple[NDArray[np.int64], int]:
        """Return the sum in steps, and the number of units within the threshold; once for both."""
        if threshold not in self._known:
            x, y = (in_precision(each, self.theta.dtype) for each in self.rows.batch())
            how = self._how(threshold)
            if HELPERS:
                self._known[threshold] = HELPERS[-1](self, x, y, how)
            else:
                self._known[threshold] = self.engine.sums(
                    self.theta, x, y, self.rows.units, **how, stream=self.stream
                )
        return self._known[threshold]

    def clipped_sum(self, bound: float, *, relative: bool) -> tuple[Any, float]:
        """Return the exact sum in units of the bound, in integer steps, and the step."""
        assert relative, "the threshold of a network is a released value"
        exact, step = self.both(bound)[0], self.engine.sums.step
        finer = max(0, FINEST + round(math.log2(step)))
        return exact << finer, math.ldexp(step, -finer)

    def short(self, bound: float) -> int:
        """Return how many units have a gradient of at most the bound."""
        return self.both(bound)[1]

    def products(self, bound: float, direction: NDArray[Any]) -> NDArray[np.float64]:
        """Return each row's clipped gradient, over the bound, times a direction; for audits."""
        x, y = (in_precision(each, self.theta.dtype) for each in self.rows.batch())
        return self.engine.sums.products(self.theta, x, y, direction, **self._how(bound))

    def _how(self, threshold: float) -> dict[str, Any]:
        return {"threshold": threshold, "rule": self.rule, "by_layer": self.by_layer}


@frozen
class LaterGradientsDomain:
    """The domain of gradients at parameters that are chosen later, ``size`` of them.

    Parameters
    ----------
    size
        The number of parameters.
    examples
        The domain of the rows.
    """

    size: int
    examples: NetworkRowsDomain


@frozen
class UnitGradientsOf(Operation):
    """The gradient of each unit's loss by a network's parameters, at released ones.

    A unit's gradient is the sum of those of its rows, clipped as a whole: so a unit adds one vector
    whose norm is at most the threshold, however many rows it has. A row whose loss or gradient is
    not finite counts as zero.

    Parameters
    ----------
    net
        Returns a new ``torch.nn.Module``.
    loss, settings
        A function of outputs and targets, or a class that makes one with these settings.
    shapes
        The names and shapes of the parameters that are trained.
    first, target
        What inputs and targets are declared as: see `NetworkParts`.
    physical_batch
        How many rows are computed at once.
    expected
        About how many units a round has, where that is public: by it a physical batch is chosen.
    rule
        How a unit's gradient g is shortened, by a threshold C: ``"flat"`` to C, in units of C;
        ``"automatic"``, ``g / (|g| + C)``; ``"per_sample"``, ``g / (|g| + C / (|g| + C))``. The
        norm of each of them is at most 1, whatever g and C are.
    by_layer
        Whether the parts of g by each of the L modules (of JAX: arrays of the tree) are shortened
        each by itself, with the norm ``1 / sqrt(L)`` for 1: their root of squares is at most 1.
    """

    kind: ClassVar[str] = "unit_gradients"
    made_of: ClassVar[type[NetworkParts]] = NetworkParts
    draws: ClassVar[bool] = True  # the places of units in physical batches
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = NetworkRowsDomain
    max_released_inputs: ClassVar[int] = 1

    net: Function
    loss: Function
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(converter=_shapes)
    settings: Mapping[str, Any] = field(factory=dict, converter=_settings)
    first: Column = None
    target: Column = None
    physical_batch: int | None = None
    expected: int | None = None
    rule: str = field(default="flat", validator=in_(RULES))
    by_layer: bool = field(default=False, validator=instance_of(bool))

    def label(self) -> str:
        """Return the network's name and the number of parameters."""
        return f"gradients of {self.net.label}, {sum(sizes(self.shapes)):,} parameters"

    def detail(self) -> str:
        """Return the loss."""
        return f"loss {self.loss.label}"

    def assumes(self) -> str:
        """Return what no program can check."""
        return (
            f"The gradient of a row of {self.net.name} with the loss {self.loss.name} is computed "
            "of that row and the parameters alone: neither remembers rows, or sends them "
            "elsewhere, and what they hold beside, such as frozen parameters, is public. What "
            "PyTorch's float kernels compute of a row in a slot of a physical batch is a "
            "function of that row and of that slot alone, as it is for the made-up rows on which "
            "this is tried before a run."
        )

    def domain(self, inputs: Sequence[Any]) -> GradientsDomain | LaterGradientsDomain:
        """Return the number of parameters, with released ones or those that are chosen later."""
        size = sum(sizes(self.shapes))
        if any(n < 0 for _, shape in self.shapes for n in shape):
            raise DeclarationError("a parameter's shape has numbers of at least 0")
        if not 1 <= size <= MOST_PARAMETERS:
            raise DeclarationError(
                f"a network needs at least one parameter to train, and at most {MOST_PARAMETERS:,}"
            )
        return (GradientsDomain if len(inputs) == 2 else LaterGradientsDomain)(size, inputs[0])

    def change(self, change: Change) -> Change:
        """Return the change as it is: one vector for each unit that `NetworkRowsOf` counts.

        *Own proof.* What a unit adds is a function of its rows and of released parameters alone,
        of norm at most the threshold: as one row does.
        """
        return change

    def parts(self, shape: tuple[int, ...], *, by_unit: bool) -> NetworkParts:
        """Return what the network is made of."""
        return self.made_of(
            self.net,
            self.loss,
            self.settings,
            shape,
            self.first,
            self.target,
            self.physical_batch,
            self.expected,
            by_unit,
        )

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Build the network and try it on made-up rows.

        Raises
        ------
        RunError
            If it cannot be trained, or is not the network that the plan declares.
        """
        try:
            by_unit = inputs[0].table.unit is not None
            engine = self.parts(inputs[0].shape, by_unit=by_unit).engine()
        except PlanError as error:
            raise RunError(f"{error}. Nothing was released.") from None
        if engine.shapes != self.shapes:
            raise RunError(
                f"{self.net.name} has other parameters than the plan declares: "
                f"{_difference(self.shapes, engine.shapes)}. Nothing was released."
            )

    def run(self, inputs: Sequence[Any], stream: Stream) -> UnitGradients:
        """Return the gradients; nothing is computed yet."""
        rows, theta = (*inputs, None)[:2]
        # the engine was built when the plan was rehearsed
        shape = input_shape_of(rows)
        engine = self.parts(shape, by_unit=rows.units is not None).engine()
        if engine.shapes != self.shapes:
            raise RunError(f"{self.net.name} has other parameters than the plan declares")
        return UnitGradients(rows, np.asarray(theta), engine, stream, self.rule, self.by_layer)


def input_shape_of(rows: NetworkRows) -> tuple[int, ...]:
    """Return the shape of an input, which is declared."""
    widths = [tuple(part.array.shape[1:]) for part in rows.inputs]
    if len(widths) == 1:
        return widths[0]
    return (sum(int(np.prod(width, dtype=np.int64)) for width in widths),)


def _difference(declared: Shapes, found: Shapes) -> str:
    for old, new in zip(declared, found, strict=False):
        if old != new:
            return f"{old[0]} {old[1]} is declared, and it has {new[0]} {new[1]}"
    return f"{len(declared)} are declared, and it has {len(found)}"


class NetworkStateOperation(Operation):
    """Base of the steps that compute with released values of a network alone."""

    visibility: ClassVar[Visibility] = "released"


@frozen
class InitialState(NetworkStateOperation):
    """The state before the first round: initial parameters of a public seed, and the threshold.

    Parameters
    ----------
    net
        Returns a new ``torch.nn.Module``.
    shapes
        Of its parameters.
    """

    kind: ClassVar[str] = "network_start"

    net: Function
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(converter=_shapes)

    def label(self) -> str:
        """Return the network's name."""
        return f"initial {self.net.label}"

    def run(self, inputs: Sequence[Any], stream: Stream) -> dict[str, Any]:
        """Return the state: parameters, the threshold, what the optimizer remembers."""
        shapes, theta = self.built()
        if shapes != self.shapes:
            raise RunError(f"{self.net.name} has other parameters than the plan declares")
        return {
            "parameters": theta,
            "threshold": float(inputs[0]),
            "first_threshold": float(inputs[0]),
            "memory": [],
            "round": 0,
        }

    def built(self) -> tuple[Shapes, NDArray[Any]]:
        """Return the network's shapes, and its initial parameters."""
        module = build(self.net)
        return shapes_of(module), flat(module)


@frozen
class StatePart(NetworkStateOperation):
    """One of the values of a network's state."""

    kind: ClassVar[str] = "network_value"

    part: Literal["parameters", "threshold"] = field(validator=in_(("parameters", "threshold")))

    def label(self) -> str:
        """Return which."""
        return self.part

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the value."""
        value = inputs[0][self.part]
        return value if self.part == "parameters" else float(value)


@frozen
class OptimizerStep(NetworkStateOperation):
    """A step of a PyTorch optimizer along a released gradient.

    Its inputs are the state, the released sum in units of the threshold, the expected number of
    units, and, of a threshold that adapts, the released number of units within it. The optimizer
    sees the sum over the expected number of units, which is public: never the sample's own.

    Parameters
    ----------
    net
        Returns a new ``torch.nn.Module``: the optimizer may ask for its parameters' shapes.
    optimizer
        From parameters to a ``torch.optim.Optimizer``.
    quantile, rate
        Of a threshold that adapts: see `Clipping`; None for a fixed one.
    schedule
        From an optimizer to a scheduler of ``torch.optim.lr_scheduler``, by the number of rounds.
    told
        Whether the optimizer is told the noise of the gradient: its deviation is the last input.
    """

    kind: ClassVar[str] = "optimizer_step"

    net: Function
    optimizer: Function
    quantile: float | None = None
    rate: float = 0.0
    schedule: Function | None = None
    told: bool = False

    def label(self) -> str:
        """Return the optimizer's name."""
        return f"step of {self.optimizer.label}"

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Make the optimizer once.

        Raises
        ------
        RunError
            If it cannot be made.
        """
        try:
            self.attempt()
        except PlanError as error:
            raise RunError(f"{error}. Nothing was released.") from None

    def attempt(self) -> None:
        """Take a step along zeros, so that an optimizer that cannot is refused before a run.

        Raises
        ------
        DeclarationError
            If it fails.
        """
        theta = self.initial()
        state = {"parameters": theta, "memory": [], "round": 0}
        try:
            self.following(state, np.zeros(len(theta)))
        except DeclarationError:
            raise
        except Exception as error:  # no data were read: it may be shown
            raise DeclarationError(
                f"the optimizer {self.optimizer.name} cannot step along a gradient: {error}"
            ) from None

    def initial(self) -> NDArray[Any]:
        """Return initial parameters."""
        return flat(build(self.net))

    def following(
        self, state: Mapping[str, Any], mean: NDArray[Any], deviation: float = 0.0
    ) -> dict[str, Any]:
        """Return the state after a step along a released mean; the threshold stays.

        Parameters
        ----------
        state
            Before the step.
        mean
            The released gradient over the expected number of units.
        deviation
            Of the noise of each of its coordinates.
        """
        with library().inference_mode(False):
            return _step(self, state, mean, deviation)

    def run(self, inputs: Sequence[Any], stream: Stream) -> dict[str, Any]:
        """Return the state after the step."""
        state, total, expected = inputs[0], np.asarray(inputs[1]), float(inputs[2])
        mean = total / expected
        deviation = float(inputs[-1]) / expected if self.told else 0.0
        after = self.following(state, mean, deviation)
        if self.quantile is not None:
            after["threshold"] = next_threshold(
                state, float(inputs[3]) / expected, self.quantile, self.rate
            )
        return after


@define
class _Made:
    """A module, its optimizer, and the scheduler with the number of rounds that it has seen."""

    module: Any
    optimizer: Any
    scheduler: Any
    rounds: int = 0

    @classmethod
    def of(cls, step: OptimizerStep) -> _Made:
        """Return all of them new."""
        module = build(step.net)
        made = new_optimizer(step.optimizer, module)
        scheduler = None if step.schedule is None else step.schedule.resolve()(made)
        if step.schedule is not None and not hasattr(scheduler, "step"):
            raise DeclarationError(
                "schedule must be a function from an optimizer to a scheduler, such as lambda o: "
                "torch.optim.lr_scheduler.LinearLR(o)"
            )
        return cls(module, made, scheduler)

    def advance(self, rounds: int) -> None:
        """Bring the scheduler to that many rounds."""
        with warnings.catch_warnings():  # rounds before a checkpoint are not stepped again
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
            while self.rounds < rounds:
                if self.scheduler is not None:
                    self.scheduler.step()
                self.rounds += 1


_OPTIMIZERS: dict[Any, _Made] = {}
"""What is made of each triple of functions: the last one alone."""


def _step(
    step: OptimizerStep, state: Mapping[str, Any], mean: NDArray[Any], deviation: float
) -> dict[str, Any]:
    torch = library()
    schedule = None if step.schedule is None else step.schedule.resolve()
    key, rounds = (step.net.resolve(), step.optimizer.resolve(), schedule), int(state["round"])
    kept = _OPTIMIZERS.get(key)
    if kept is None or kept.rounds > rounds:
        _OPTIMIZERS.clear()
        kept = _OPTIMIZERS[key] = _Made.of(step)
    kept.advance(rounds)
    module, made = kept.module, kept.optimizer
    if step.told:
        made.noise_deviation = deviation
    fill(module, state["parameters"])
    remind(made, module, state["memory"])
    position = 0
    for p in trainable(module).values():
        part = mean[position : position + p.numel()]
        p.grad = torch.as_tensor(part).to(p.dtype).reshape(p.shape).contiguous()
        position += p.numel()
    made.step()
    kept.advance(rounds + 1)  # its first call after a step, as schedulers expect
    theta = flat(module)
    if not np.isfinite(theta).all():  # the steps are too long: keep the last finite parameters
        return {**state, "round": int(state["round"]) + 1}
    memory = [
        {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in own.items()}
        for own in remembered(made, module)
    ]
    return {**state, "parameters": theta, "memory": memory, "round": int(state["round"]) + 1}


def next_threshold(state: Mapping[str, Any], share: float, quantile: float, rate: float) -> float:
    """Return ``C exp(-rate (b - quantile))`` (Andrew et al. 2021, Algorithm 1), within limits.

    The released share b of short gradients is kept in [-1, 2] against noise, and C within a factor
    `FLOOR` of the first threshold.
    """
    first = float(state["first_threshold"])
    share = min(max(share, -1.0), 2.0)
    # a document's rate may be any number: more than e^100 is beyond the limits
    power = min(max(-rate * (share - quantile), -100.0), 100.0)
    following = float(state["threshold"]) * math.exp(power)
    return min(max(following, first * FLOOR), first / FLOOR)


@frozen
class TrainedNetwork(NetworkStateOperation):
    """The trained parameters, with what is needed to read new rows: see `NetworkParameters`.

    Parameters
    ----------
    shapes
        The parameters' names and shapes.
    features, target, columns
        As of `NetworkRowsOf`.

    Notes
    -----
    Its input is the state after the last round; or, of correlated noise, the mean and the last of
    the parameters, with the threshold: behind them if it adapts, else a second, public input.
    """

    kind: ClassVar[str] = "trained_network"

    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(converter=_shapes)
    features: tuple[str, ...] = field(converter=strings)
    target: str
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def label(self) -> str:
        """Return the label."""
        return "trained network"

    def run(self, inputs: Sequence[Any], stream: Stream) -> NetworkParameters:
        """Return the model."""
        state, goal = inputs[0], self.columns[self.target]
        if not isinstance(state, Mapping):
            last, size = np.asarray(state)[1], sum(sizes(self.shapes))
            threshold = inputs[1] if len(inputs) > 1 else last[size]
            state = {"parameters": last[:size], "threshold": threshold}
        middle, half = standard(goal) if isinstance(goal, Interval) else (0.0, 1.0)
        return {
            "parameters": np.array(state["parameters"]),
            "names": [name for name, _ in self.shapes],
            "shapes": [list(shape) for _, shape in self.shapes],
            "inputs": {name: written(self.columns[name]) for name in self.features},
            "classes": list(goal.values) if isinstance(goal, Categories) else [],
            "goal": [middle, half],
            "threshold": float(state["threshold"]),
        }


def written(declared: Column) -> dict[str, Any]:
    """Return a column's declaration as a released model carries it."""
    if isinstance(declared, Tensors):
        return {"tensor": [list(declared.shape), declared.lower, declared.upper, declared.whole]}
    if isinstance(declared, Categories):
        return {"categories": list(declared.values)}
    assert isinstance(declared, Interval)
    return {"bounds": [declared.lower, declared.upper]}


# -----------------------------------------------------------------------------
# Correlated noise: all rounds are one release, whose batches are read in turn.

STREAM_BITS = 24
"""Sums are given in steps of 2^-24 of the threshold."""

MOST_SHORT = 2**30
"""Steps that a unit within a threshold that adapts may add."""


@define
class NetworkCourse:
    """The parameters of a network along noisy prefix sums: an optimizer's, of their differences.

    Parameters
    ----------
    step
        Of the optimizer.
    state
        Before the first round.
    expected
        The number of units that a round is expected to have, which is public or released.
    short
        What a gradient within the threshold adds to a sum's last number; 0 where there is none.
    """

    step: OptimizerStep
    state: Mapping[str, Any]
    expected: float
    short: float = 0.0
    _before: NDArray[np.float64] | float = 0.0

    @property
    def parameters(self) -> NDArray[np.float64]:
        """The parameters of now, shape (d,); with the threshold of now behind, if it adapts."""
        theta = np.asarray(self.state["parameters"], dtype=np.float64)
        return np.append(theta, self.state["threshold"]) if self.short else theta

    def follow(self, prefix: NDArray[np.float64]) -> None:
        """Step along the last round's noisy sum: what it has added to the prefix."""
        moved, self._before = prefix - self._before, prefix
        inputs: list[Any] = [self.state, moved, self.expected]
        if self.short:
            inputs = [self.state, moved[:-1], self.expected, moved[-1] / self.short]
        self.state = self.step.run(inputs, SeededStream(0))  # which draws nothing


@frozen(eq=False, repr=False)
class NetworkSums(AdaptiveSums):
    """Sums of the clipped gradients of units, in units of the threshold.

    Parameters
    ----------
    gradients
        Of the units; their own parameters are not read.
    clip
        C; where it adapts, before the first round.
    start, optimizer
        The nodes of the parameters before the first round, and of a step.
    short
        The steps that a unit within the threshold adds to a number behind its gradient, if C
        adapts; else 0, and there is no such number.
    """

    gradients: UnitGradients
    clip: float
    start: InitialState
    optimizer: OptimizerStep
    short: int = 0

    def __repr__(self) -> str:
        return "<private gradients>"

    @property
    def shape(self) -> tuple[int]:
        """The number of parameters, and one more where the threshold adapts."""
        return (sum(sizes(self.gradients.engine.shapes)) + (self.short > 0),)

    @property
    def step(self) -> float:
        """2^-24."""
        return 2.0**-STREAM_BITS

    def course(self, given: float) -> NetworkCourse:
        """Return where the optimizer goes, by the number of units that a round is expected to have.

        It reads no row: initial parameters are of a public seed.
        """
        start = self.start.run([self.clip], SeededStream(0))
        return NetworkCourse(self.optimizer, start, given, self.short * self.step)

    def split(self, parts: int, stream: Stream) -> list[NetworkSums]:
        """Return disjoint batches: each unit is in one of them, by its own uniform draw."""
        split = self.gradients.rows.split(parts, stream)
        return [evolve(self, gradients=evolve(self.gradients, rows=rows)) for rows in split]

    def among(self, batch: AdaptiveSums) -> NetworkSums:
        """Return these sums of the units of a batch; the loss may be another one than before."""
        assert isinstance(batch, NetworkSums)
        return evolve(self, gradients=evolve(self.gradients, rows=batch.gradients.rows))

    def at(self, parameters: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the sum at parameters (and a threshold), in steps."""
        own, clip = self.gradients, self.clip
        if self.short:
            parameters, clip = parameters[:-1], float(parameters[-1])
        total, within = evolve(own, theta=parameters).both(clip)
        halvings = round(math.log2(self.step / own.engine.sums.step))
        sums = np.asarray((total + (1 << (halvings - 1))) >> halvings, dtype=np.int64)
        # clamping, as of the sums where they are released, moves no two data sets apart
        count = min(within * self.short, 2**62)
        return np.append(sums, np.int64(count)) if self.short else sums


@frozen
class NetworkStream(Query):
    """Sums of a network's clipped gradients, at parameters that an optimizer chooses adaptively.

    In units of the threshold. *Sensitivity*, in l2 alone. A unit is in one batch, so it moves one
    sum, whatever the parameters, by a vector of norm at most 1 where it appears or vanishes, and by
    at most 2 where it is exchanged; and by the rounding of each coordinate to steps, half a step
    for each of two data sets.

    *A threshold that adapts.* The sums have one number more: w for each unit within C. So a unit
    adds a vector of norm at most ``sqrt(1 + w^2)``, whatever C is, and C may be chosen by the noisy
    sums of the rounds before, as the parameters are: sums are in units of it, so that neither their
    sensitivity nor the noise depends on it. (Own proof; with independent noise it is Thm 1 of
    Andrew et al. 2021, and what is chosen adaptively Thm 2.1 of Denisov et al. 2022.)

    Parameters
    ----------
    net
        Returns a new ``torch.nn.Module``.
    optimizer
        From parameters to a ``torch.optim.Optimizer``.
    shapes
        The names and shapes of the parameters that are trained.
    clip
        C, the threshold; where it adapts, before the first round.
    presence
        Whether units may appear and vanish alone: then those that are exchanged are refused.
    quantile, rate
        Of a threshold that adapts: see `Clipping`; None for a fixed one.
    short
        Of a threshold that adapts, ``w 2^24``: an integer.
    schedule
        As of `OptimizerStep`.
    """

    kind: ClassVar[str] = "network_stream"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = LaterGradientsDomain
    output_type: ClassVar[type] = AdaptiveSums
    # whatever the gradients are, a unit's are shortened to one norm: see `FollowTheLeaderRound`
    varies: ClassVar[bool] = True
    start_node: ClassVar[type[InitialState]] = InitialState
    step_node: ClassVar[type[OptimizerStep]] = OptimizerStep

    net: Function
    optimizer: Function
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(converter=_shapes)
    clip: float = field(default=1.0, converter=number)
    presence: bool = False
    quantile: float | None = None
    rate: float = 0.0
    short: int = 0
    schedule: Function | None = None

    def label(self) -> str:
        """Return the threshold."""
        return f"sums of gradients clipped to {self.clip:g}"

    def domain(self, inputs: Sequence[Any]) -> LaterGradientsDomain:
        """Return the domain of the gradients; refuse other parameters, or no threshold."""
        if sum(sizes(self.shapes)) != inputs[0].size:
            raise DeclarationError("a network's sums are of the parameters of its gradients")
        if not (positive(self.clip) and 1e-9 <= self.clip <= 1e9):
            raise DeclarationError(f"a gradient's clip must be positive, got {self.clip!r}")
        adapts = self.quantile is not None
        if not (isinstance(self.short, int) and adapts <= self.short <= adapts * MOST_SHORT):
            raise DeclarationError(
                f"a unit within a threshold that adapts adds 1 to {MOST_SHORT:,} steps, and of a "
                f"fixed one 0, got {self.short!r}"
            )
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: LaterGradientsDomain) -> int:
        """Return the number of parameters, and one more where the threshold adapts."""
        return domain.size + (self.short > 0)

    def step(self, domain: LaterGradientsDomain) -> float:
        """Return 2^-24."""
        return 2.0**-STREAM_BITS

    def sensitivity(self, domain: LaterGradientsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; refuse any norm but 2."""
        if norm != 2:
            raise DeclarationError(
                "a network_stream is a sum in each round, which moves in l2: release it with "
                f"FollowTheLeader, whose norm is 2, got norm {norm!r}"
            )
        if self.presence and change.replaced:
            raise DeclarationError(
                "batches that are drawn at random amplify the privacy of units that appear or "
                "vanish, and not of those that are exchanged"
            )
        # half a step in each coordinate, for each of two data sets
        rounding = self.step(domain) * math.sqrt(domain.size)
        # |(g, w)| <= sqrt(1 + w^2) of each unit, on either side
        return (change.both * self.length + rounding) * (1 + 1e-12)

    @property
    def length(self) -> float:
        """The largest norm of what a unit adds, ``sqrt(1 + w^2)``, but for rounding."""
        return math.hypot(1.0, math.ldexp(self.short, -STREAM_BITS))

    def step_of(self) -> OptimizerStep:
        """Return the node of the optimizer's step."""
        made = self.step_node(self.net, self.optimizer)
        return evolve(made, quantile=self.quantile, rate=self.rate, schedule=self.schedule)

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Make the optimizer once.

        Raises
        ------
        RunError
            If it cannot be made.
        """
        self.step_of().rehearse([])

    def run(self, inputs: Sequence[Any], stream: Stream) -> NetworkSums:
        """Return the sums; nothing is computed yet."""
        start = self.start_node(self.net, self.shapes)
        return NetworkSums(inputs[0], self.clip, start, self.step_of(), self.short)


# -----------------------------------------------------------------------------
# The learner.


def _function(value: Any) -> Function:
    if isinstance(value, Function):
        return value
    if hasattr(value, "named_parameters") and not isinstance(value, type):
        raise DeclarationError(
            f"a network is given by a function or class that builds it, such as Net or lambda: "
            f"Net(64), got a {type(value).__name__} that is built already: a plan names the code, "
            "and draws initial parameters from a public seed"
        )
    if not callable(value):
        kind = type(value).__name__
        raise DeclarationError(
            "a plan names code: a function is needed, such as Net, lambda p: torch.optim.SGD(p, "
            "lr=0.5) of parameters, or lambda o: torch.optim.lr_scheduler.LinearLR(o) "
            f"of an optimizer, got a {kind} that is made already"
        )
    return Function.of(value)


def _optional_function(value: Any) -> Function | None:
    return None if value is None else _function(value)


def _threshold(value: Any) -> Any:
    return value if isinstance(value, Clipping | AutomaticClipping) else number(value)


def _rate(value: Any) -> Any:
    """Return one rate, a rate for each step, or a function of the step."""
    if callable(value) or isinstance(value, int | float):
        return value
    return tuple(number(rate) for rate in as_tuple(value))


@frozen
class AutomaticClipping:
    """Gradients that are divided by about their own norm, so that no threshold is chosen.

    A unit adds ``g / (|g| + gamma)`` to a round's sum, g its gradient: a vector shorter than 1,
    whatever g is; so the sum's sensitivity is 1, as that of gradients that are cut at a threshold
    is in units of it. Short gradients count nearly as much as long ones.

    Parameters
    ----------
    gamma
        Gradients far shorter than this keep their proportions.
    per_sample
        Whether a unit adds ``g / (|g| + gamma / (|g| + gamma))`` instead, which is longest for
        gradients of a norm of about the root of gamma, and keeps those that are short short
        (Xia et al. 2023).

    References
    ----------
    Bu, Wang, Zha and Karypis 2023, "Automatic clipping: differentially private deep learning made
    easier and stronger" (AUTO-S); Xia, Shen, Yao, Fu, Xu, Xu and Fu 2023, "Differentially private
    learning with per-sample adaptive clipping".

    Examples
    --------
    >>> AutomaticClipping().rule, AutomaticClipping(0.1, per_sample=True).rule
    ('automatic', 'per_sample')
    """

    gamma: float = field(default=0.01, converter=number, validator=within(1e-9, 1e9))
    per_sample: bool = field(default=False, validator=instance_of(bool))

    @property
    def rule(self) -> str:
        """The rule by which the nodes know it."""
        return "per_sample" if self.per_sample else "automatic"


def fixed_size(rate: float, units: int) -> int:
    """Return how many of the units a sample of a fixed size has: at least one.

    Examples
    --------
    >>> fixed_size(256 / 60_000, 60_000), fixed_size(1e-9, 100)
    (256, 1)
    """
    return min(units, max(1, round(rate * units)))


def _names(value: Any) -> tuple[str, ...] | None:
    return None if value is None else strings(value)


@frozen(slots=False)
class Training(Learner[NetworkParameters]):
    """A network of PyTorch, trained by noisy sums of clipped gradients of samples of the units.

    A round is

        total = sum over the sample's units of g / max(|g|, C) + noise    (one release),
        the optimizer steps along total / (expected number of units),
        C <- C exp(-rate (released share of |g| <= C - quantile))

    g a unit's gradient. The sum is in units of the threshold C, so that the step does not shrink
    where C does: with a fixed C, multiply the learning rate of other libraries by C.

    Parameters
    ----------
    net
        A class or function that returns a new ``torch.nn.Module``. One at the top level of a
        module is named in documents, with its parameters' names and shapes. It is called with
        PyTorch's generator at a public seed, which is put back afterwards.
    loss
        ``torch.nn.CrossEntropyLoss()`` or any other loss without weights, or a function from
        outputs and targets to a number. Targets are positions of categories, or numbers in
        [-1, 1] of shape (rows, 1), or tensors.
    optimizer
        From parameters to a ``torch.optim.Optimizer``, such as
        ``lambda p: torch.optim.SGD(p, lr=1.0)``.
    steps
        The number of rounds.
    sampling_rate
        The probability with which a unit enters a round; 1 for all units. A sequence, or a function
        of the step from 0 on, gives each step its own; at most `MOST_PHASES` runs of equal ones.
    sampling
        ``"poisson"``: each unit enters a round independently. ``"fixed_size"``: exactly
        ``round(sampling_rate * size)`` units do, each set of so many as likely as others; for
        neighbours that exchange a unit (``replace_one``) of a public number, ``size``.
    clipping
        A `Clipping` to follow a quantile of the norms, a number for a fixed threshold, or an
        `AutomaticClipping`.
    by_layer
        Whether each module's part of a gradient is shortened by itself, to ``1 / sqrt(L)`` of the
        threshold where there are L modules: no layer is silenced by another's long gradients.
    first_threshold
        Of a threshold that follows; it stays within a factor of 100 of this.
    features, target
        The input columns and the target's; None where the table has one column of tensors and one
        other.
    batch_size
        The number of units that a round is expected to have, where it is public; of rates that
        differ, the first round. None releases the number of units, with a hundredth of the cost,
        where it is not public. Samples of a fixed size have their own.
    physical_batch
        How many rows are computed at once; None for a default.
    schedule
        From an optimizer to a scheduler of learning rates that is stepped after each round, such
        as ``lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 2000)``.
    noise
        ``"independent"`` in each round; or correlated between rounds, ``"banded"``, ``"buffered"``
        or ``"tree"``: each unit is in one of ``1 / sampling_rate`` batches for the whole run, read
        in turn (see `FollowTheLeader`).
    bands
        Of banded noise: how many, 1 to the number of batches, None for as many. Fewer leave more to
        amplification by the random batches, and correlate less.
    free
        The name of the noise that a plan's calibration solves.

    References
    ----------
    Abadi et al. 2016, Algorithm 1; Mironov, Talwar and Zhang 2019 (the sampled Gaussian); Balle,
    Barthe and Gaboardi 2018, Thm 9 (samples of a fixed size); Andrew et al. 2021 (the threshold).

    Examples
    --------
    >>> import numpy as np, torch, adaptive_dp as dp
    >>> def net():
    ...     return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    >>> images = dp.dataset("images", columns={"image": dp.tensor((4, 4), (0, 1)), "dark": [0, 1]})
    >>> training = dp.torch.Training(
    ...     net, torch.nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, lr=2.0),
    ...     steps=30, sampling_rate=0.2,
    ... )
    >>> plan = dp.Pipeline(model=images.solve(training)).calibrate(epsilon=2, delta=1e-5)
    >>> x = np.random.default_rng(1).random((2_000, 4, 4))
    >>> x[::2] /= 2
    >>> y = (x.mean((1, 2)) < 0.375).astype(int)
    >>> model = plan.simulate(seed=1, images={"image": x, "dark": y})["model"]
    >>> bool((dp.torch.predict(model, net, x) == y).mean() > 0.9)
    True
    """

    net: Function = field(converter=_function)
    loss: Any
    optimizer: Function = field(converter=_function)
    steps: int = field(kw_only=True, converter=number)
    sampling_rate: Any = field(kw_only=True, converter=_rate)
    sampling: str = field(kw_only=True, default="poisson", validator=in_(("poisson", "fixed_size")))
    clipping: Clipping | AutomaticClipping | float = field(
        kw_only=True, default=Clipping(quantile=0.5), converter=_threshold
    )
    by_layer: bool = field(kw_only=True, default=False, validator=instance_of(bool))
    first_threshold: float = field(kw_only=True, default=1.0, validator=within(1e-9, 1e9))
    features: tuple[str, ...] | None = field(kw_only=True, default=None, converter=_names)
    target: str | None = field(kw_only=True, default=None)
    batch_size: float | None = field(kw_only=True, default=None, converter=number)
    physical_batch: int | None = field(kw_only=True, default=None)
    schedule: Function | None = field(kw_only=True, default=None, converter=_optional_function)
    noise: str = field(kw_only=True, default="independent")
    bands: int | None = field(kw_only=True, default=None)
    free: str = field(kw_only=True, default="sigma")

    title: ClassVar[str] = "Training"
    calibrated: ClassVar[bool] = True
    # the nodes of a round, which are the library's that the network is written in
    gradients_node: ClassVar[type[UnitGradientsOf]] = UnitGradientsOf
    start_node: ClassVar[type[InitialState]] = InitialState
    step_node: ClassVar[type[OptimizerStep]] = OptimizerStep
    stream_node: ClassVar[type[NetworkStream]] = NetworkStream

    def __attrs_post_init__(self) -> None:
        if not (
            isinstance(self.steps, int) and not isinstance(self.steps, bool) and self.steps > 0
        ):
            raise DeclarationError(f"steps must be an int of at least 1, got {self.steps!r}")
        self._check_rates()
        if not isinstance(self.clipping, Clipping | AutomaticClipping) and not (
            positive(self.clipping) and 1e-9 <= self.clipping <= 1e9
        ):
            raise DeclarationError(
                "clipping must be a dp.Clipping, a dp.torch.AutomaticClipping or a positive "
                f"number, got {self.clipping!r}"
            )
        if self.batch_size is not None and not positive(self.batch_size):
            raise DeclarationError(
                f"batch_size must be a positive number, or None, got {self.batch_size!r}"
            )
        size = self.physical_batch
        if size is not None and not (
            isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 2**20
        ):
            raise DeclarationError(f"physical_batch must be an int of at least 1, got {size!r}")
        if self.noise not in (NOISES := ("independent", *FACTORIZATIONS)):
            raise DeclarationError(f"noise must be one of {list(NOISES)}, got {self.noise!r}")
        if self.schedule is not None and self.step_node is not OptimizerStep:
            raise DeclarationError("a transformation of optax has its own schedule: leave it out")
        if self.bands is not None and self.noise != "banded":
            raise DeclarationError("bands are those of noise='banded'")
        if self.noise != "independent":
            self.correlated(1.0, amplified=False)
        if self.sampling == "fixed_size" and self.noise != "independent":
            raise DeclarationError(
                "correlated noise reads batches in turn: leave out sampling='fixed_size'"
            )
        if self.sampling == "fixed_size" and self.batch_size is not None:
            raise DeclarationError(
                "samples of a fixed size have round(sampling_rate * size) units: leave out "
                "batch_size"
            )

    def _check_rates(self) -> None:
        rates = self.rates
        if len(rates) not in (1, self.steps):
            raise DeclarationError(
                f"sampling_rate must be one number, or one for each of {self.steps} steps, got "
                f"{len(rates)}"
            )
        for rate in rates:
            if not (positive(rate) and 1e-12 <= rate <= 1):
                raise DeclarationError(
                    f"sampling_rate must be a number from 1e-12 to 1, got {rate!r}; a round's "
                    "sample has a random size: for about 64 of 10,000 units take 64 / 10_000"
                )
        if len(self.phases) > MOST_PHASES:
            raise DeclarationError(
                f"sampling_rate changes {len(self.phases) - 1} times: a plan has at most "
                f"{MOST_PHASES} runs of equal rates; let it change in larger steps"
            )

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The sampling rate of each step; of one that is the same in all, this one."""
        given = self.sampling_rate
        if callable(given):
            return tuple(number(given(step)) for step in range(self.steps))
        return given if isinstance(given, tuple) else (given,)

    @cached_property
    def phases(self) -> tuple[tuple[float, int], ...]:
        """The runs of equal sampling rates: each rate, and how many steps it has."""
        if len(self.rates) == 1:
            return ((self.rates[0], self.steps),)
        return tuple((rate, len([*run])) for rate, run in groupby(self.rates))

    def of_rate(self, rate: float, steps: int = 1) -> Self:
        """Return the training of steps with one sampling rate."""
        size = self.batch_size
        # a public number of units of the first round, in proportion
        size = None if size is None else size * (rate / self.rates[0])
        return evolve(self, sampling_rate=rate, steps=steps, batch_size=size)

    def correlated(self, sigma: Any, *, amplified: bool) -> FollowTheLeader:
        """Return the mechanism of correlated noise: batches, and how often each is read.

        Raises
        ------
        DeclarationError
            If the sampling rate is not one over a number of batches, or steps are not a multiple of
            that.
        """
        if len(self.rates) > 1:
            raise DeclarationError("correlated noise reads batches in turn: one sampling rate")
        batches = round(1 / self.sampling_rate)
        epochs = round(self.steps / batches)
        if abs(batches * self.sampling_rate - 1) > 1e-9 or self.steps != batches * epochs:
            raise DeclarationError(
                "correlated noise reads batches in turn: the sampling rate is one over their "
                f"number, of which steps are a multiple, got sampling_rate={self.sampling_rate!r} "
                f"and steps={self.steps}; take sampling_rate={1 / batches!r} and steps="
                f"{max(1, epochs) * batches}"
            )
        return FollowTheLeader(sigma, batches, epochs, self.noise, self.bands, amplified)

    @property
    def threshold(self) -> float:
        """C before the first round, fixed or not; of automatic clipping gamma."""
        if isinstance(self.clipping, AutomaticClipping):
            return self.clipping.gamma
        adapts = isinstance(self.clipping, Clipping)
        return float(self.first_threshold if adapts else self.clipping)  # type: ignore[arg-type]

    @cached_property
    def named_loss(self) -> tuple[Function, dict[str, Any]]:
        """The loss's class or function, and its settings."""
        return loss_of(self.loss)

    def read_columns(self, table: TableDomain) -> tuple[tuple[str, ...], str]:
        """Return the input columns and the target.

        Raises
        ------
        DeclarationError
            If they are neither given, nor follow from the table.
        """
        if self.features is not None and self.target is not None:
            return self.features, self.target
        names = [name for name in table.columns if name != table.unit]
        tensors = [name for name in names if isinstance(table.columns[name], Tensors)]
        others = [name for name in names if name not in tensors]
        if self.features is None and self.target in names and self.target is not None:
            return tuple(name for name in names if name != self.target), self.target
        if self.features is None and self.target is None and len(tensors) == len(others) == 1:
            return (tensors[0],), others[0]
        raise DeclarationError(
            f"which columns of {table.name!r} are inputs, and which is the target? It declares "
            f"{names}: give features=[...] and target=..."
        )

    def operations(self, table: TableDomain) -> tuple[NetworkRowsOf, UnitGradientsOf]:
        """Return the nodes of rows and of gradients, the network built and checked."""
        features, target = self.read_columns(table)
        columns = {name: table.find(name) for name in (*features, target)}
        rows = NetworkRowsOf(features, target, columns, table.unit is not None)
        rows.domain([table])
        loss, settings = self.named_loss
        first = columns[features[0]] if len(features) == 1 else None
        gradients = self.gradients_node(
            self.net,
            loss,
            (),
            settings,
            first if isinstance(first, Tensors) else None,
            columns[target],
            self.physical_batch,
            self.usual(table),
            self.clipping.rule if isinstance(self.clipping, AutomaticClipping) else "flat",
            self.by_layer,
        )
        shape = input_shape(features, columns)
        engine = gradients.parts(shape, by_unit=table.unit is not None).engine()
        self.step_of().attempt()
        return rows, evolve(gradients, shapes=engine.shapes)

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[NetworkParameters]:
        """Return the trained parameters; see `NetworkParameters`."""
        reads, gradients = self.operations(table.domain)
        rows = NetworkTable(reads, (table,))
        units = self.number_of_units(table)
        trained = TrainedNetwork(gradients.shapes, reads.features, reads.target, reads.columns)
        if self.noise != "independent":
            expected = self.expected_of(table, units)
            return Released(trained, self.in_turn(gradients, rows, expected))
        start: Released[Any] = Released(
            self.start_node(self.net, gradients.shapes), (public(self.threshold),)
        )

        state, told = start, self.is_told
        for rate, steps in self.phases:
            phase = self.of_rate(rate, steps) if len(self.phases) > 1 else self
            mean = phase.expected_of(table, units)

            def step(
                state: Released[Any],
                own: NetworkTable,
                phase: Training = phase,
                mean: Released[Any] = mean,
            ) -> Released[Any]:
                return phase.round(gradients, state, own, mean, told=told)

            state = repeat(step, steps, rows, start=state)
        return Released(trained, (state,))

    @cached_property
    def is_told(self) -> bool:
        """Whether the optimizer has a ``noise_deviation`` to be told."""
        if self.step_node is not OptimizerStep:
            return False
        return hasattr(new_optimizer(self.optimizer, build(self.net)), "noise_deviation")

    def step_of(self, *, told: bool = False) -> OptimizerStep:
        """Return the node of the optimizer's step."""
        if self.step_node is not OptimizerStep:
            return self.step_node(self.net, self.optimizer)
        return OptimizerStep(self.net, self.optimizer, schedule=self.schedule, told=told)

    def in_turn(
        self, gradients: UnitGradientsOf, rows: NetworkTable, expected: Released[Any]
    ) -> tuple[Released[Any], ...]:
        """Return the mean and the last of the parameters, and a fixed threshold: correlated noise.

        A threshold that adapts is the last of the parameters.

        Parameters
        ----------
        gradients, rows
            As of `operations`.
        expected
            The number of units that a round is expected to have.
        """
        query, mechanism = self.stream_of(gradients, rows.domain.table)
        sums: PrivateQuery[Any] = PrivateQuery(query, (Private(gradients, (rows,)),))
        last: Released[Any] = sums.release(mechanism, given=[expected], name="training")
        return (last,) if query.short else (last, public(self.threshold))

    def stream_of(
        self, gradients: UnitGradientsOf, table: TableDomain
    ) -> tuple[NetworkStream, FollowTheLeader]:
        """Return the query and the mechanism of correlated noise, its noise free."""
        presence = self.noise == "banded" and table.neighbors != "replace_one"
        query = self.stream_node(
            self.net,
            self.optimizer,
            gradients.shapes,
            self.threshold,
            presence,
            schedule=self.schedule,
        )
        if isinstance(self.clipping, Clipping):
            # of a round's mu^2 the number of short gradients costs w^2 / (1 + w^2): the share
            weight = math.sqrt(self.clipping.share / (1 - self.clipping.share))
            short = max(1, round(math.ldexp(weight, STREAM_BITS)))
            quantile, rate = self.clipping.quantile, self.clipping.rate
            query = evolve(query, quantile=quantile, rate=rate, short=short)
        unit = self.correlated(1.0, amplified=False)
        # the norm of C's columns of a batch: noise that costs without amplification what one
        # Gaussian release with this free parameter costs
        sigma = Free(self.free, weight=unit.matrices.sensitivity() * query.length)
        return query, self.correlated(sigma, amplified=presence)

    def round(
        self,
        gradients: UnitGradientsOf,
        state: Released[Any],
        rows: NetworkTable,
        expected: Released[Any],
        *,
        told: bool = False,
    ) -> Released[Any]:
        """Return the state after a round: a sample, its releases, a step of the optimizer."""
        at: Released[Any] = Released(StatePart("parameters"), (state,))
        threshold: Released[Any] = Released(StatePart("threshold"), (state,))
        released = self.releases(gradients, rows, at, threshold)
        step = self.step_of(told=told)
        if isinstance(self.clipping, Clipping):
            step = evolve(step, quantile=self.clipping.quantile, rate=self.clipping.rate)
        total, *short = released.values()
        noise = [parameter(total, "sigma")] if told else []
        return Released(step, (state, total, expected, *short, *noise))

    def releases(
        self,
        gradients: UnitGradientsOf,
        rows: NetworkTable,
        at: Released[Any],
        threshold: Released[Any],
    ) -> dict[str, Released[Any]]:
        """Return a round's releases by name: the sum, and the count of a threshold that adapts.

        Parameters
        ----------
        gradients, rows
            As of `operations`.
        at, threshold
            The parameters, and C.
        """
        of_units = Gradients(gradients, (self.sample(rows), at))
        adaptive = self.clipping if isinstance(self.clipping, Clipping) else None
        total = of_units.sum(clip=threshold).release(
            Gaussian(sigma=Free(self.free, weight=self.sum_weight)), name="gradients"
        )
        if adaptive is None:
            return {"gradients": total}
        short = of_units.short(threshold).release(
            Gaussian(sigma=Free(self.free, weight=1 / math.sqrt(adaptive.share))),
            name="short_gradients",
        )
        return {"gradients": total, "short_gradients": short}

    def sample(self, rows: NetworkTable) -> NetworkTable:
        """Return the rows of a round."""
        table = rows.domain.table
        if self.sampling == "fixed_size":
            units = exchanged_units(table)
            size = fixed_size(self.rates[0], units)
            return rows.sample_of(size, units) if size < units else rows
        if self.rates[0] == 1:
            return rows
        return rows.sample(self.rates[0])

    def public_size(self, table: TableDomain, rate: float) -> float | None:
        """Return how many units a round has, or is expected to have; None where that is private."""
        if self.sampling == "fixed_size":
            return float(fixed_size(rate, exchanged_units(table)))
        if self.batch_size is not None:
            return float(self.batch_size * (rate / self.rates[0]))
        units = table.public_units
        return None if units is None else float(units * rate)

    @property
    def sum_weight(self) -> float:
        """The noise of the sum, as a multiple of the free one.

        With noises z_g and z_b of the sum and the count the pair costs 1/z^2 = 1/z_g^2 + 1/z_b^2
        (Andrew et al. 2021, Thm 1): of it the sum has 1 - share, and the count share.
        """
        share = self.clipping.share if isinstance(self.clipping, Clipping) else 0.0
        return 1 / math.sqrt(1 - share)

    def usual(self, table: TableDomain) -> int | None:
        """Return about how many units a round has, rounded up; None where that is not public."""
        size = self.public_size(table, max(self.rates))
        return None if size is None else math.ceil(size)

    def expected_of(
        self, table: Table, units: tuple[Released[Any], Released[Any]] | None
    ) -> Released[Any]:
        """Return the number of units that a round is expected to have: public, or released.

        Parameters
        ----------
        table
            That is learned from.
        units
            As `number_of_units` returns it.
        """
        if units is not None:
            return post(expected_rows, *units, rate=self.rates[0])
        size = self.public_size(table.domain, self.rates[0])
        assert size is not None
        return public(size)

    def number_of_units(self, table: Table) -> tuple[Released[Any], Released[Any]] | None:
        """Return the released number of units, and its noise; None where it is public."""
        if self.public_size(table.domain, self.rates[0]) is not None:
            return None
        # COUNT of the whole cost in mu^2, where a round costs about rate / sigma, and all rounds of
        # correlated noise 1 / sigma
        square = sum(steps * rate**2 for rate, steps in self.phases)
        weight = 1 / math.sqrt(square) if self.noise == "independent" else 1.0
        spread = Free(self.free, weight=math.sqrt((1 - COUNT) / COUNT) * weight)
        query: PrivateQuery[Any] = (
            table.count() if table.domain.unit is None else table.count_distinct()
        )
        units = query.release(Gaussian(sigma=spread), name="number_of_units")
        return units, parameter(units, "sigma")


# -----------------------------------------------------------------------------
# The trained network: post-processing.


def module(model: NetworkParameters, net: Callable[[], Any]) -> Any:
    """Return a trained network as a ``torch.nn.Module`` in eval mode.

    Parameters
    ----------
    model
        As `Training` released it.
    net
        The class or function that builds the network: a model holds no code.

    Raises
    ------
    DeclarationError
        If the network has other parameters than the model.

    Examples
    --------
    >>> import numpy as np, torch, adaptive_dp as dp
    >>> images = dp.dataset("images", columns={"image": dp.tensor((4,), (0, 1)), "dark": [0, 1]})
    >>> net = lambda: torch.nn.Linear(4, 2)
    >>> loss, sgd = torch.nn.CrossEntropyLoss(), lambda p: torch.optim.SGD(p, lr=1.0)
    >>> training = dp.torch.Training(net, loss, sgd, steps=2, sampling_rate=0.5, batch_size=1)
    >>> plan = dp.Pipeline(model=images.solve(training)).fix(sigma=1.0)
    >>> rows = {"image": np.zeros((3, 4)), "dark": [0, 1, 1]}
    >>> model = plan.with_delta(1e-6).simulate(seed=1, images=rows)["model"]
    >>> dp.torch.module(model, net)
    Linear(in_features=4, out_features=2, bias=True)
    """
    made = build(_function(net))
    refuse_another(model, shapes_of(made))
    fill(made, np.asarray(model["parameters"]))
    return made.eval()


def refuse_another(model: NetworkParameters, found: Shapes) -> None:
    """Refuse what no training released, or a network with other parameters than were released.

    Raises
    ------
    DeclarationError
        With the first that differs.
    """
    if not (isinstance(model, Mapping) and {"parameters", "names", "shapes"} <= set(model)):
        raise DeclarationError(
            "a model that a Training released is needed, such as result['model'], got "
            f"{type(model).__name__}"
        )
    shapes = _shapes(zip(model["names"], model["shapes"], strict=True))
    if found != shapes:
        raise DeclarationError(
            f"the network has other parameters than the model: {_difference(shapes, found)}"
        )


def outputs(model: NetworkParameters, net: Callable[[], Any], data: Any) -> NDArray[Any]:
    """Return what a trained network computes for rows that need not be private, shape (n, ...).

    Parameters
    ----------
    model, net
        As of `module`.
    data
        A mapping of the input columns, or a frame, in the data's own units; of a single column of
        tensors also the array itself.

    Examples
    --------
    >>> import numpy as np, torch
    >>> model = {"parameters": np.array([1.0, 0, 0, 1, 0, 0]), "names": ["weight", "bias"],
    ...          "shapes": [[2, 2], [2]], "inputs": {"image": {"tensor": [[2], 0.0, 1.0, False]}},
    ...          "classes": ["left", "right"], "goal": [0.0, 1.0], "threshold": 1.0}
    >>> outputs(model, lambda: torch.nn.Linear(2, 2), np.array([[0.2, 0.8]]))
    array([[0.2, 0.8]], dtype=float32)
    """
    torch = library()
    made = module(model, net)
    x = torch.as_tensor(inputs_of(model, data))
    kind = next(iter(made.parameters())).dtype
    x = x.to(kind) if x.is_floating_point() else x
    with torch.no_grad():
        parts = [made(x[i : i + 1024]) for i in range(0, max(1, len(x)), 1024)]
    return np.asarray(torch.cat(parts).numpy())


def inputs_of(model: NetworkParameters, data: Any) -> NDArray[Any]:
    """Return rows that need not be private as a released model's network reads them."""
    columns = {
        name: domains.column(name, domains.of_document(spec))
        for name, spec in model["inputs"].items()
    }
    return new_inputs(tuple(columns), columns, data)


def predict(model: NetworkParameters, net: Callable[[], Any], data: Any) -> NDArray[Any]:
    """Return a trained network's prediction for each row: a category of the target, or a number.

    Parameters
    ----------
    model, net, data
        As of `outputs`. Of one output its sign decides between two categories, of k the largest.

    Returns
    -------
    numpy.ndarray
        Shape (n,); the outputs themselves where the target is a column of tensors.

    Examples
    --------
    >>> import numpy as np, torch
    >>> model = {"parameters": np.array([1.0, 0, 0, 1, 0, 0]), "names": ["weight", "bias"],
    ...          "shapes": [[2, 2], [2]], "inputs": {"image": {"tensor": [[2], 0.0, 1.0, False]}},
    ...          "classes": ["left", "right"], "goal": [0.0, 1.0], "threshold": 1.0}
    >>> predict(model, lambda: torch.nn.Linear(2, 2), np.array([[0.2, 0.8], [0.9, 0.1]])).tolist()
    ['right', 'left']
    """
    return decided(model, outputs(model, net, data))


def decided(model: NetworkParameters, scores: NDArray[Any]) -> NDArray[Any]:
    """Return what a network's outputs say: a category of the target for each row, or a number."""
    classes = model["classes"]
    if not classes:
        middle, half = model["goal"]
        return np.asarray(middle + half * (scores[:, 0] if scores.shape[1:] == (1,) else scores))
    flat_scores = scores.reshape(len(scores), -1)
    best = (
        flat_scores.argmax(1) if flat_scores.shape[1] > 1 else (flat_scores[:, 0] > 0).astype(int)
    )
    return cast("NDArray[Any]", np.asarray(classes)[best])
