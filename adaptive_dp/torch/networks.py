"""Networks of PyTorch in a plan: how they are built, named, and checked on made-up rows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.registry import Function
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Categories, Column, Tensors

SEED = 20_150
"""The seed of the initial parameters: public, the same for all data."""

MADE_UP = 4
"""Rows on which a network is tried before it sees any data."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""The names and shapes of the parameters that are trained, in the module's order."""


def library() -> Any:
    """Return PyTorch.

    Raises
    ------
    RunError
        If it is not installed.
    """
    try:
        return import_module("torch")
    except ImportError:
        raise RunError(
            "networks need PyTorch: install adaptive-dp[torch]; a plan of one can be certified "
            "and verified without it"
        ) from None


@contextmanager
def own_generator(seed: int) -> Iterator[None]:
    """Have PyTorch's generator of this thread draw from a public seed, and then as before."""
    torch = library()
    before = torch.get_rng_state()
    try:
        torch.default_generator.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(before)


def build(net: Function) -> Any:
    """Return a new network, with the same initial parameters each time.

    Raises
    ------
    DeclarationError
        If the function returns none, or one without parameters to train, or draws from elsewhere.
    """
    torch = library()
    with own_generator(SEED), torch.inference_mode(False):
        module = net.resolve()()
    if not isinstance(module, torch.nn.Module):
        raise DeclarationError(
            f"{net.name} must return a torch.nn.Module, got {type(module).__name__}"
        )
    trained = trainable(module)
    if not trained:
        raise DeclarationError(f"{net.name} has no parameter with requires_grad=True to train")
    if len({p.dtype for p in trained.values()}) > 1 or not all(
        p.dtype in (torch.float32, torch.float64) for p in trained.values()
    ):
        raise DeclarationError(
            f"{net.name}: parameters that are trained must all be float32, or all float64; to "
            "compute in bfloat16, let forward do it, by torch.autocast"
        )
    if any(each.device.type != "cpu" for each in (*module.parameters(), *module.buffers())):
        raise DeclarationError(
            f"{net.name} has parameters or buffers on another device than the processor, where "
            "plans compute; build it without a device"
        )
    return module


def trainable(module: Any) -> dict[str, Any]:
    """Return the parameters that are trained, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def shapes_of(module: Any) -> Shapes:
    """Return the names and shapes of the parameters that are trained."""
    return tuple((name, tuple(p.shape)) for name, p in trainable(module).items())


def sizes(shapes: Shapes) -> list[int]:
    """Return the number of entries of each parameter."""
    return [math.prod(shape) for _, shape in shapes]


def flat(module: Any) -> NDArray[Any]:
    """Return the parameters that are trained as one array, a copy."""
    parts = [p.detach().reshape(-1).numpy() for p in trainable(module).values()]
    return np.concatenate(parts)


def fill(module: Any, theta: NDArray[Any]) -> None:
    """Set the parameters that are trained."""
    torch = library()
    position = 0
    with torch.no_grad():
        for p in trainable(module).values():
            part = torch.as_tensor(np.array(theta[position : position + p.numel()]))
            p.copy_(part.reshape(p.shape))
            position += p.numel()


def loss_of(loss: Any) -> tuple[Function, dict[str, Any]]:
    """Return a loss's class or function with its name, and the settings that an instance has.

    Raises
    ------
    DeclarationError
        If it is no loss, or has settings that a document cannot hold.
    """
    if inspect.isclass(loss) or not hasattr(loss, "named_buffers"):
        if not callable(loss):
            raise DeclarationError(
                "a loss such as torch.nn.CrossEntropyLoss(), or a function of outputs and targets, "
                f"is needed, got {loss!r}"
            )
        return Function.of(loss), {}
    kept = [name for name, buffer in loss.named_buffers() if buffer is not None]
    kept += [name for name, _ in loss.named_parameters()]
    if kept:
        raise DeclarationError(
            f"{type(loss).__name__} holds {', '.join(kept)}, which a plan's document cannot: write "
            "a function of outputs and targets at the top level of a module"
        )
    given = {
        name: getattr(loss, name)
        for name in inspect.signature(type(loss)).parameters
        if hasattr(loss, name)
    }
    settings = {
        name: value
        for name, value in given.items()
        if value != inspect.signature(type(loss)).parameters[name].default
    }
    plain = all(isinstance(value, bool | int | float | str) for value in settings.values())
    # what the document says must be this loss: an attribute that it does not hold would be lost
    if not plain or not _same_attributes(loss, settings):
        raise DeclarationError(
            f"{type(loss).__name__} has settings that a plan's document cannot hold: numbers and "
            "str that it takes by name and keeps by the same name; write a function of outputs and "
            "targets at the top level of a module"
        )
    return Function.of(type(loss)), settings


def _same_attributes(loss: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether a loss made anew with these settings has the same attributes."""

    def own(each: Any) -> list[tuple[str, Any]]:
        inner = list(each.modules())
        return [(k, v) for m in inner for k, v in vars(m).items() if not k.startswith("_")]

    try:
        return bool(own(type(loss)(**settings)) == own(loss))
    except Exception:  # whatever a loss's own methods raise, or comparisons of what it holds
        return False


def built_loss(loss: Function, settings: Mapping[str, Any]) -> Any:
    """Return the loss, from outputs and targets to a number."""
    found: Any = loss.resolve()
    return found(**settings) if inspect.isclass(found) else found


def in_precision(values: NDArray[Any], precision: Any) -> NDArray[Any]:
    """Return numbers in the precision of a network's parameters; integers as they are."""
    return values.astype(precision, copy=False) if values.dtype.kind == "f" else values


def made_up(shape: tuple[int, ...], declared: Column, target: Column) -> tuple[Any, Any]:
    """Return inputs and targets of a few rows within what is declared.

    The largest and smallest whole numbers and the last category are among them: a network that
    fails on one of these fails now, and not where a private row has it.
    """
    draw = np.random.default_rng(SEED)
    many = (MADE_UP, *shape)
    if isinstance(declared, Tensors):
        values = draw.uniform(declared.lower, declared.upper, many)
        if declared.whole:
            ends = values[:2].reshape(-1)
            ends[0::2], ends[1::2] = declared.upper, declared.lower
            values[:2] = ends.reshape(values[:2].shape)
        x = declared.inside(values)
    else:
        x = draw.uniform(-1, 1, many).astype(np.float32)
    y: NDArray[Any]
    if isinstance(target, Categories):
        y = draw.integers(len(target.values), size=MADE_UP)
        y[:2] = len(target.values) - 1, 0
    elif isinstance(target, Tensors):
        y = target.inside(draw.uniform(target.lower, target.upper, (MADE_UP, *target.shape)))
    else:
        y = draw.uniform(-1, 1, (MADE_UP, 1)).astype(np.float32)
    return x, y


def refuse_side_effects(name: str, module: Any, x: Any) -> None:
    """Refuse a network that draws at random when it is called, or that remembers what it saw.

    Raises
    ------
    DeclarationError
        With the modules' names.
    """
    torch = library()
    drawing: list[str] = []
    states: dict[str, Any] = {}

    def before(path: str) -> Any:
        def hook(*_: Any) -> None:
            states[path] = torch.get_rng_state()

        return hook

    def after(path: str, kind: str) -> Any:
        def hook(*_: Any) -> None:
            if not torch.equal(states[path], torch.get_rng_state()):
                drawing.append(f"{path or 'the network'} ({kind})")

        return hook

    hooks = []
    for path, inner in module.named_modules():
        hooks.append(inner.register_forward_pre_hook(before(path)))
        hooks.append(inner.register_forward_hook(after(path, type(inner).__name__)))
    held = {key: value.clone() for key, value in module.named_buffers()}
    try:
        with own_generator(SEED), torch.no_grad():
            module(x)
    except Exception as error:  # of made-up rows: it may be shown
        raise DeclarationError(
            f"{name} fails on made-up rows of shape {tuple(x.shape)} and type {x.dtype}: {error}"
        ) from None
    finally:
        for hook in hooks:
            hook.remove()
    if drawing:
        raise DeclarationError(
            f"{name} draws at random: {drawing[0]}. What it draws comes from PyTorch's global "
            "generator, and a row's gradient would not depend on the row alone; leave it out, or "
            "put it into eval mode where the network is built"
        )
    changed = [k for k, v in module.named_buffers() if not torch.equal(held[k], v)]
    if changed:
        owner = changed[0].rpartition(".")[0]
        kind = type(module.get_submodule(owner)).__name__
        raise DeclarationError(
            f"{name}: {owner or 'the network'} ({kind}) keeps statistics of the rows that it sees "
            f"({changed[0]}), which no noise protects; take a norm of each row by itself, such as "
            "GroupNorm, or put it into eval mode where the network is built"
        )


class Sums(Protocol):
    """Exact sums of clipped gradients, such as `adaptive_dp.torch.gradients.ClippedSums`."""

    step: float

    def __call__(
        self,
        theta: Any,
        inputs: Any,
        targets: Any,
        units: Any = None,
        *,
        threshold: float,
        rule: str = "flat",
        by_layer: bool = False,
        stream: Stream | None = None,
    ) -> tuple[NDArray[np.int64], int]:
        """Return the sum in steps, and the number of units within the threshold."""
        ...

    def products(
        self,
        theta: Any,
        inputs: Any,
        targets: Any,
        direction: Any,
        *,
        threshold: float,
        rule: str = "flat",
        by_layer: bool = False,
    ) -> NDArray[np.float64]:
        """Return the products of each row's clipped gradient and a direction."""
        ...


@frozen
class Engine:
    """A network that is built and checked: its parameters' shapes, its clipped gradients' sums."""

    shapes: Shapes
    sums: Sums


_ENGINES: dict[Any, Engine] = {}
"""The engines of this process, by what they were made of; the last few."""

_MOST_ENGINES = 8


@frozen
class NetworkParts:
    """What a network is made of, as a plan has it.

    Parameters
    ----------
    net
        Returns a new module.
    loss, settings
        The loss, and its keyword arguments where it is a class.
    shape
        Of an input.
    first, target
        Of what an input is declared as (None where it is a vector of several columns), and the
        target.
    physical_batch
        How many rows are computed at once; None for a default.
    expected
        About how many units are computed in all, where that is public.
    by_unit
        Whether rows are of units, declared as such.
    """

    net: Function
    loss: Function
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    first: Column
    target: Column
    physical_batch: int | None = field(default=None)
    expected: int | None = field(default=None)
    by_unit: bool = field(default=False)

    def engine(self) -> Engine:
        """Return the engine: built and checked once in a process.

        Raises
        ------
        DeclarationError
            If the network cannot be trained row by row, with the reason.
        """
        net, loss = self.net.resolve(), self.loss.resolve()
        settings = repr(tuple(sorted(self.settings.items())))
        size = self.physical_batch, self.expected, self.by_unit
        key = (type(self), net, loss, settings, self.shape, self.first, self.target, size)
        if key not in _ENGINES:
            made = self.built()
            while len(_ENGINES) >= _MOST_ENGINES:
                _ENGINES.pop(next(iter(_ENGINES)))
            _ENGINES[key] = made
        return _ENGINES[key]

    def built(self) -> Engine:
        """Return a new engine, checked."""
        from adaptive_dp.torch.gradients import ClippedSums  # here, as it imports PyTorch

        name, torch = self.net.name, library()
        module, again = build(self.net), build(self.net)
        if shapes_of(module) != shapes_of(again) or not np.array_equal(
            flat(module), flat(again), equal_nan=True
        ):
            raise DeclarationError(
                f"{name} returns another network each time: draw initial parameters from "
                "PyTorch's generator alone, which has a public seed there"
            )
        precision = flat(module).dtype
        x, y = (
            torch.as_tensor(in_precision(each, precision))
            for each in made_up(self.shape, self.first, self.target)
        )
        refuse_side_effects(name, module, x)
        function = built_loss(self.loss, self.settings)
        sums = ClippedSums(
            module,
            function,
            x,
            y,
            physical_batch=self.physical_batch,
            expected=self.expected,
            by_unit=self.by_unit,
        )
        try:
            sums(flat(module), x, y, np.arange(len(x)) if self.by_unit else None, threshold=1.0)
        except Exception as error:  # of made-up rows: it may be shown
            raise DeclarationError(
                f"{name} with the loss {self.loss.name} fails on made-up rows: {error}"
            ) from None
        return Engine(shapes_of(module), sums)


# -----------------------------------------------------------------------------
# The optimizer: what it remembers is computed of released gradients, and is part of the state.


def new_optimizer(optimizer: Function, module: Any) -> Any:
    """Return the optimizer of a module's trained parameters.

    Raises
    ------
    DeclarationError
        If the function returns none.
    """
    torch = library()
    made = optimizer.resolve()(list(trainable(module).values()))
    if not isinstance(made, torch.optim.Optimizer):
        raise DeclarationError(
            f"optimizer must be a function from parameters to a torch.optim.Optimizer, such as "
            f"lambda p: torch.optim.SGD(p, lr=0.5); {optimizer.name} returns a "
            f"{type(made).__name__}"
        )
    return made


def remembered(optimizer: Any, module: Any) -> list[dict[str, Any]]:
    """Return what an optimizer remembers of each parameter: arrays and numbers, by name."""
    torch = library()
    memory = []
    for p in trainable(module).values():
        own = optimizer.state.get(p, {})
        memory.append({k: v.detach().numpy() if torch.is_tensor(v) else v for k, v in own.items()})
    return memory


def remind(optimizer: Any, module: Any, memory: list[dict[str, Any]]) -> None:
    """Give an optimizer what it remembered of each parameter."""
    torch = library()
    optimizer.state.clear()
    for p, own in zip(trainable(module).values(), memory, strict=False):
        if own:
            optimizer.state[p] = {
                k: torch.tensor(v) if isinstance(v, np.ndarray | np.generic) else v
                for k, v in own.items()
            }
