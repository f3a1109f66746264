"""Training a pure function of JAX by noisy sums of clipped gradients: a learner of plans."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.registry import Function
from adaptive_dp.jax.gradients import ClippedSums, compiled, library
from adaptive_dp.torch.loop import Loop as NetworkLoop
from adaptive_dp.torch.networks import (
    SEED,
    Engine,
    NetworkParts,
    Shapes,
    in_precision,
    made_up,
    sizes,
)
from adaptive_dp.torch.training import (
    InitialState,
    NetworkParameters,
    NetworkStream,
    OptimizerStep,
    UnitGradientsOf,
    decided,
    inputs_of,
    refuse_another,
)
from adaptive_dp.torch.training import Training as NetworkTraining


def _function(value: Any) -> Function:
    if isinstance(value, Function):
        return value
    if not callable(value):
        raise DeclarationError(
            "a plan names code: a function from a key to initial parameters, or one that returns "
            f"an optimizer, such as lambda: optax.sgd(0.5), is needed, got a {type(value).__name__}"
        )
    return Function.of(value)


def initial(init: Function) -> tuple[Any, Shapes, NDArray[Any]]:
    """Return initial parameters of a public key: the tree, its leaves' names and shapes, and flat.

    Raises
    ------
    DeclarationError
        If the function returns another tree each time, or leaves that cannot be trained.
    """
    jax = library()
    with compiled():
        trees = [init.resolve()(jax.random.key(SEED)) for _ in range(2)]
        pairs = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in trees]
        leaves = [[(jax.tree_util.keystr(p), np.asarray(v)) for p, v in each] for each in pairs]
    precisions = {str(value.dtype) for _, value in leaves[0]}
    if precisions not in ({"float32"}, {"float64"}):
        raise DeclarationError(
            f"{init.name} must return a tree of arrays that are all float32, or all float64, got "
            f"{', '.join(sorted(precisions)) or 'none'}"
        )
    shapes, again = (tuple((name, v.shape) for name, v in each) for each in leaves)
    flat, other = (np.concatenate([v.reshape(-1) for _, v in each]) for each in leaves)
    if shapes != again or not np.array_equal(flat, other, equal_nan=True):
        raise DeclarationError(
            f"{init.name} returns other parameters each time: draw them from its key alone"
        )
    return trees[0], shapes, flat


def _tree(init: Function, theta: NDArray[Any]) -> Any:
    """Return flat parameters as the tree that a function returns."""
    jax = library()
    tree, shapes, flat = initial(init)
    ends = np.cumsum(sizes(shapes))[:-1]
    parts = np.split(np.asarray(theta, dtype=flat.dtype), ends)
    leaves = [
        jax.numpy.asarray(part.reshape(shape))
        for part, (_, shape) in zip(parts, shapes, strict=True)
    ]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), leaves)


# -----------------------------------------------------------------------------
# The nodes of the graph: those of networks, with another engine.


@frozen
class FunctionParts(NetworkParts):
    """What a function of JAX is made of: ``net`` returns its initial parameters."""

    def built(self) -> Engine:
        """Return a new engine, checked."""
        tree, shapes, flat = initial(self.net)
        x, y = (
            in_precision(each, flat.dtype) for each in made_up(self.shape, self.first, self.target)
        )
        try:
            sums = ClippedSums(
                self.loss.resolve(),
                tree,
                x,
                y,
                physical_batch=self.physical_batch,
                expected=self.expected,
                by_unit=self.by_unit,
            )
        except DeclarationError as error:
            raise DeclarationError(f"{self.loss.name}: {error}") from None
        return Engine(shapes, sums)


@frozen
class FunctionGradientsOf(UnitGradientsOf):
    """The gradient of each unit's loss by the parameters of a function of JAX, at released ones.

    See `UnitGradientsOf`: ``net`` returns initial parameters, ``loss`` is that of one row.
    """

    kind: ClassVar[str] = "function_gradients"
    column_fields: ClassVar[tuple[str, ...]] = ()
    made_of: ClassVar[type[NetworkParts]] = FunctionParts

    def label(self) -> str:
        """Return the loss's name and the number of parameters."""
        return f"gradients of {self.loss.label}, {sum(sizes(self.shapes)):,} parameters"

    def assumes(self) -> str:
        """Return what no program can check."""
        return (
            f"The gradient of a row with the loss {self.loss.name} is computed of that row and the "
            "parameters alone: it neither remembers rows, nor sends them elsewhere, and what it "
            "holds beside, such as frozen arrays, is public."
        )


@frozen
class FunctionStart(InitialState):
    """The state before the first round: parameters of a public key, and the threshold."""

    kind: ClassVar[str] = "function_start"

    def built(self) -> tuple[Shapes, NDArray[Any]]:
        """Return the parameters' shapes, and their initial values."""
        return initial(self.net)[1:]


_UPDATES: dict[Any, Any] = {}
"""A compiled step for each pair of functions: the last one alone."""


@frozen
class OptaxStep(OptimizerStep):
    """A step of an optax transformation along a released gradient; see `OptimizerStep`."""

    kind: ClassVar[str] = "optax_step"

    def initial(self) -> NDArray[Any]:
        """Return initial parameters."""
        return initial(self.net)[2]

    def following(
        self, state: Mapping[str, Any], mean: NDArray[Any], deviation: float = 0.0
    ) -> dict[str, Any]:
        """Return the state after a step along a released mean; the threshold stays."""
        jax = library()
        key = (self.net.resolve(), self.optimizer.resolve())
        if key not in _UPDATES:
            made = _update(self.net, self.optimizer)
            _UPDATES.clear()
            _UPDATES[key] = made
        first, update = _UPDATES[key]
        old = np.asarray(state["parameters"])
        with compiled():
            memory = first(old)
            if state["memory"]:
                kind = jax.tree_util.tree_structure(memory)
                memory = jax.tree_util.tree_unflatten(kind, state["memory"])
            theta, memory = update(old, np.asarray(mean, dtype=old.dtype), memory)
            theta = np.array(theta)
            kept = [np.array(leaf) for leaf in jax.tree_util.tree_leaves(memory)]
        after = {**state, "round": int(state["round"]) + 1}
        if not np.isfinite(theta).all():  # the steps are too long: keep the last finite parameters
            return after
        return {**after, "parameters": theta, "memory": kept}


def _update(init: Function, optimizer: Function) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what an optimizer remembers first, and its step along flat values, compiled."""
    jax = library()
    optax = import_module("optax")
    tree, _, flat = initial(init)
    _, unravel = import_module("jax.flatten_util").ravel_pytree(tree)
    ravel = import_module("jax.flatten_util").ravel_pytree
    made = optimizer.resolve()()
    if not (hasattr(made, "init") and hasattr(made, "update")):
        raise DeclarationError(
            f"optimizer must be a function that returns an optax transformation, such as lambda: "
            f"optax.sgd(0.5); {optimizer.name} returns a {type(made).__name__}"
        )

    def step(theta: Any, slope: Any, memory: Any) -> Any:
        at = unravel(theta)
        updates, memory = made.update(unravel(slope), memory, at)
        return ravel(optax.apply_updates(at, updates))[0].astype(flat.dtype), memory

    return jax.jit(lambda theta: made.init(unravel(theta))), jax.jit(step)


@frozen
class FunctionStream(NetworkStream):
    """Sums of the clipped gradients of a function of JAX; see `NetworkStream`."""

    kind: ClassVar[str] = "function_stream"
    column_fields: ClassVar[tuple[str, ...]] = ()
    start_node: ClassVar[type[InitialState]] = FunctionStart
    step_node: ClassVar[type[OptimizerStep]] = OptaxStep


# -----------------------------------------------------------------------------
# The learner.


@frozen(slots=False)
class Training(NetworkTraining):
    """A pure function of JAX, trained by noisy sums of clipped gradients of samples of the units.

    Its rounds are those of `adaptive_dp.torch.Training`: of a sample of the units, each
    unit's gradient is shortened to the threshold C, their sum in units of C is released with
    Gaussian noise, and the optimizer steps along it over the expected number of units.

    Parameters
    ----------
    loss
        The loss of ONE row, a pure function ``loss(parameters, x, y)`` to a number. The target y is
        the position of a category, or a number in [-1, 1] of shape (1,), or an array.
    init
        A function from a key of `jax.random` to initial parameters: any tree of arrays that are all
        float32, or all float64. The key is the library's, and public.
    optimizer
        Returns an optax transformation, such as ``lambda: optax.sgd(1.0)``.
    steps, sampling_rate, clipping, by_layer, first_threshold, features, target, batch_size
        As of `adaptive_dp.torch.Training`; a layer is an array of the tree.
    sampling, noise, bands
        As of `adaptive_dp.torch.Training`.
    free
        As of `adaptive_dp.torch.Training`.
    physical_batch
        How many rows are computed at once, in a program that is compiled once; None for 8 to 256,
        by the expected number of rows and the function's size.

    Notes
    -----
    Functions at the top level of a module are named in documents, with the parameters' names and
    shapes. Nothing comes from a generator that a user can seed: `jax.random` has none.

    See Also
    --------
    adaptive_dp.torch.Training : the same of modules of PyTorch.

    References
    ----------
    Abadi et al. 2016, Algorithm 1; Mironov, Talwar and Zhang 2019 (the sampled Gaussian); Andrew et
    al. 2021 (the threshold).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, optax, adaptive_dp as dp
    >>> def init(key):
    ...     return {"w": 0.1 * jax.random.normal(key, (16, 2)), "b": jnp.zeros(2)}
    >>> def apply(parameters, x):
    ...     return x.reshape(-1) @ parameters["w"] + parameters["b"]
    >>> def loss(parameters, x, y):
    ...     return optax.softmax_cross_entropy_with_integer_labels(apply(parameters, x), y)
    >>> images = dp.dataset("images", columns={"image": dp.tensor((4, 4), (0, 1)), "dark": [0, 1]})
    >>> training = dp.jax.Training(
    ...     loss, init, lambda: optax.sgd(2.0), steps=30, sampling_rate=0.2
    ... )
    >>> plan = dp.Pipeline(model=images.solve(training)).calibrate(epsilon=2, delta=1e-5)
    >>> x = np.random.default_rng(1).random((2_000, 4, 4))
    >>> x[::2] /= 2
    >>> y = (x.mean((1, 2)) < 0.375).astype(int)
    >>> model = plan.simulate(seed=1, images={"image": x, "dark": y})["model"]
    >>> bool((dp.jax.predict(model, init, apply, x) == y).mean() > 0.9)
    True
    """

    loss: Function = field(converter=_function)
    # the nodes call it net: what the initial parameters come from
    net: Function = field(converter=_function, alias="init")
    optimizer: Function = field(converter=_function)

    gradients_node: ClassVar[type[UnitGradientsOf]] = FunctionGradientsOf
    start_node: ClassVar[type[InitialState]] = FunctionStart
    step_node: ClassVar[type[OptimizerStep]] = OptaxStep
    stream_node: ClassVar[type[NetworkStream]] = FunctionStream

    @property
    def named_loss(self) -> tuple[Function, dict[str, Any]]:
        """The loss; a function has no settings."""
        return self.loss, {}


class Loop(NetworkLoop):
    """The rounds of a training of a function of JAX one by one, each a step of a session.

    As `adaptive_dp.torch.Loop`: the session charges a round, then it is drawn and released, then
    optax steps; the loop ends after the training's steps, or before a round that the budget does
    not allow.

    Parameters
    ----------
    session, table, training, sigma, name
        As of `adaptive_dp.torch.Loop`, with a `Training` of this room.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, optax, adaptive_dp as dp
    >>> images = dp.dataset("images", columns={"image": dp.tensor((4,), (0, 1)), "y": [0, 1]})
    >>> def loss(w, x, y):
    ...     return optax.softmax_cross_entropy_with_integer_labels(x @ w, y)
    >>> training = dp.jax.Training(
    ...     loss, lambda key: jnp.zeros((4, 2)), lambda: optax.sgd(1.0), steps=1_000,
    ...     sampling_rate=0.1, batch_size=10,
    ... )
    >>> rows = {"image": np.random.default_rng(0).random((100, 4)), "y": [0, 1] * 50}
    >>> with dp.Session(budget=dp.Budget(1.0, 1e-5), seed=1, images=rows) as session:
    ...     loop = dp.jax.Loop(session, images, training, sigma=3.0)
    ...     for done in loop:
    ...         if done.number == 4:
    ...             break
    >>> loop.number, loop.parameters.shape, session.certificate().epsilon <= 1
    (4, (4, 2), True)
    """

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint of NumPy arrays: released values, and never the ledger."""
        return copy.deepcopy(self._state)

    def load_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises
        ------
        DeclarationError
            If it is none of a function with these parameters.
        """
        if not isinstance(checkpoint.get("memory"), list):
            raise DeclarationError("a checkpoint's memory must be a list of arrays")
        self._go_on_from(copy.deepcopy(dict(checkpoint)))

    @property
    def parameters(self) -> Any:
        """The parameters of now, as the tree that the function returns."""
        return _tree(self._training.net, self._state["parameters"])

    def module(self) -> Any:
        """Refuse: of a function of JAX the parameters are a tree.

        Raises
        ------
        DeclarationError
            Always; `parameters` has them.
        """
        raise DeclarationError("a function of JAX is no module: take loop.parameters")


# -----------------------------------------------------------------------------
# The trained parameters: post-processing.


def parameters(model: NetworkParameters, init: Callable[[Any], Any]) -> Any:
    """Return trained parameters as the tree that a function returns.

    Parameters
    ----------
    model
        As `Training` released it: a mapping, with flat ``parameters``.
    init
        The function that returns initial parameters: a model holds no code.

    Raises
    ------
    DeclarationError
        If its tree has other parameters than the model.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> model = {"parameters": np.arange(3.0), "names": ["['b']", "['w']"], "shapes": [[], [2]]}
    >>> tree = parameters(model, lambda key: {"w": jnp.zeros(2), "b": jnp.zeros(())})
    >>> {name: leaf.tolist() for name, leaf in tree.items()}
    {'b': 0.0, 'w': [1.0, 2.0]}
    """
    named = _function(init)
    refuse_another(model, initial(named)[1])
    return _tree(named, np.asarray(model["parameters"]))


def outputs(
    model: NetworkParameters,
    init: Callable[[Any], Any],
    apply: Callable[[Any, Any], Any],
    data: Any,
) -> NDArray[Any]:
    """Return what a trained function computes for rows that need not be private, shape (n, ...).

    Parameters
    ----------
    model, init
        As of `parameters`.
    apply
        A pure function of parameters and ONE row's input, such as the loss calls.
    data
        A mapping of the input columns, or a frame, in the data's own units; of a single column of
        tensors also the array itself.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> model = {"parameters": np.array([1.0, 0, 0, 1]), "names": [""], "shapes": [[2, 2]],
    ...          "inputs": {"image": {"tensor": [[2], 0.0, 1.0, False]}},
    ...          "classes": ["left", "right"], "goal": [0.0, 1.0], "threshold": 1.0}
    >>> outputs(model, lambda key: jnp.zeros((2, 2)), lambda w, x: w @ x, np.array([[0.2, 0.8]]))
    array([[0.2, 0.8]], dtype=float32)
    """
    jax = library()
    tree = parameters(model, init)
    x = inputs_of(model, data)
    x = in_precision(x, jax.tree_util.tree_leaves(tree)[0].dtype)
    many = jax.jit(jax.vmap(apply, in_axes=(None, 0)))
    # blocks of one size, so that they are compiled once
    size = min(1024, max(1, len(x)))
    blocks = max(1, -(-len(x) // size))
    full = np.zeros((blocks * size, *x.shape[1:]), x.dtype)
    full[: len(x)] = x
    parts = [np.asarray(many(tree, block)) for block in np.split(full, blocks)]
    return np.concatenate(parts)[: len(x)]


def predict(
    model: NetworkParameters,
    init: Callable[[Any], Any],
    apply: Callable[[Any, Any], Any],
    data: Any,
) -> NDArray[Any]:
    """Return a trained function's prediction for each row: a category of the target, or a number.

    Parameters
    ----------
    model, init, apply, data
        As of `outputs`. Of one output its sign decides between two categories, of k the largest.

    Returns
    -------
    numpy.ndarray
        Shape (n,); the outputs themselves where the target is a column of tensors.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> model = {"parameters": np.array([1.0, 0, 0, 1]), "names": [""], "shapes": [[2, 2]],
    ...          "inputs": {"image": {"tensor": [[2], 0.0, 1.0, False]}},
    ...          "classes": ["left", "right"], "goal": [0.0, 1.0], "threshold": 1.0}
    >>> rows = np.array([[0.2, 0.8], [0.9, 0.1]])
    >>> predict(model, lambda key: jnp.zeros((2, 2)), lambda w, x: w @ x, rows).tolist()
    ['right', 'left']
    """
    return decided(model, outputs(model, init, apply, data))
