"""Networks as learners see them: where descent starts, what is released, and how it predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.data import grid, read_rows
from adaptive_dp.graph.handles import Released, post, public
from adaptive_dp.problems import Logistic, Loss, Multinomial, Network
from adaptive_dp.problems.network import Activation
from adaptive_dp.queries.domains import Categories, Interval, column
from adaptive_dp.queries.examples import ExamplesOf
from adaptive_dp.queries.source import reading
from adaptive_dp.solvers.linear import Linear

Array = NDArray[np.float64]

SEED = 20_150
"""Of the parameters that descent starts from: public, the same for all data."""


class NetworkModel(TypedDict):
    """A network that was learned, with all that `predict` needs.

    ``weights`` are W1 of shape (h, p), row by row, and W2 of shape (k, h + 1). ``inputs`` has for
    each feature its bounds or its categories, ``norm`` is what longer rows are scaled to.
    ``classes`` are the target's categories; of a number it is none, and ``goal`` is its middle and
    half its width.
    """

    weights: Array
    hidden: int
    activation: Activation
    inputs: dict[str, dict[str, list[Any]]]
    norm: float
    classes: list[Any]
    goal: list[float]


def start(network: Network, problem: Linear) -> Released[Any]:
    """Return the parameters before the first round: random, of a seed that everyone knows."""
    sizes = [network.hidden, problem.width, network.outputs]
    return post(first, public(sizes), radius=problem.radius)


def first(sizes: list[int], *, radius: float) -> Array:
    """Return normal parameters, of deviation 1 / radius and, in W2, h^(-1/2).

    A row of norm ``radius`` then has standard normal scores in the hidden units.
    """
    hidden, width, outputs = (int(size) for size in sizes)
    draw = np.random.default_rng(SEED)
    into = draw.normal(size=hidden * width) / radius
    return np.concatenate([into, draw.normal(size=outputs * (hidden + 1)) / np.sqrt(hidden)])


def learnt(problem: Linear, loss: Loss | Network, theta: Released[Any]) -> Released[Any]:
    """Return coefficients of a linear model, or a network with all that prediction needs."""
    if isinstance(loss, Loss):
        return problem.model(theta)
    operation = problem.rows.operation
    assert isinstance(operation, ExamplesOf)
    inputs = {name: _written(operation.columns[name]) for name in operation.features}
    goal = operation.columns[operation.target]
    return post(
        described,
        theta,
        hidden=loss.hidden,
        activation=loss.activation,
        inputs=inputs,
        norm=problem.radius,
        classes=list(goal.values) if isinstance(goal, Categories) else [],
        goal=list(problem.goal),
    )


def _written(declared: Any) -> dict[str, list[Any]]:
    if isinstance(declared, Categories):
        return {"values": list(declared.values)}
    assert isinstance(declared, Interval)
    return {"bounds": [declared.lower, declared.upper]}


def described(theta: Any, **constants: Any) -> NetworkModel:
    """Return a model of flat parameters."""
    return cast(NetworkModel, {"weights": np.asarray(theta, dtype=np.float64), **constants})


def network_predictions(model: NetworkModel, data: Any) -> NDArray[Any]:
    """Return what a learned network says of each row: a category of the target, or a number."""
    scores = network_scores(model, data)
    classes = model["classes"]
    if not classes:
        middle, half = model["goal"]
        return np.asarray(middle + half * scores[0])
    best = scores.argmax(axis=0) if len(scores) > 1 else (scores[0] > 0).astype(np.intp)
    values: NDArray[Any] = np.asarray(classes)[best]
    return values


def network_scores(model: NetworkModel, data: Any) -> Array:
    """Return a learned network's scores, shape (k, n): one where the target has two categories.

    Parameters
    ----------
    model
        As `NoisySGD` with a `Network` releases it.
    data
        A mapping of the features' names to columns, a structured array, or a frame, in the data's
        own units.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> network = dp.Network(dp.Logistic(), hidden=4)
    >>> learner = dp.NoisyGradientDescent(["age"], "ill", network, steps=5)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> age = np.linspace(0, 100, 5_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> network_scores(model, {"age": [20.0, 50.0, 90.0]}).shape
    (1, 3)
    """
    inputs: Mapping[str, Any] = model["inputs"]
    columns = {
        name: column(name, tuple(given["bounds"]) if "bounds" in given else list(given["values"]))
        for name, given in inputs.items()
    }
    features, norm = tuple(columns), float(model["norm"])
    # the same features as the learner's; of the target only the length is read
    made = ExamplesOf(features, features[0], "class", norm, True, columns)
    found = read_rows(data, {name: reading(known) for name, known in columns.items()}, None)
    scales = made.scales()
    steps = found.integer_rows(lambda block: grid.ball_steps(made.vectors(block, scales), norm)[0])
    x = steps * grid.ball(np.zeros((1, 1)), norm)[1]
    weights = np.asarray(model["weights"], dtype=np.float64)
    hidden, width = int(model["hidden"]), x.shape[1]
    outputs = (len(weights) - hidden * width) // (hidden + 1)
    loss = Logistic() if outputs == 1 else Multinomial(outputs)  # scores do not hang on it
    return Network(loss, hidden, model["activation"]).scores(weights, x.astype(np.float64))
