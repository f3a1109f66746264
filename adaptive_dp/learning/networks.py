"""Networks as learners see them, and what a learned model says of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.data import grid, read_rows
from adaptive_dp.erm import Logistic, Loss, Multinomial, Network
from adaptive_dp.erm.network import Activation
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, post, public
from adaptive_dp.learning.base import Linear
from adaptive_dp.queries.domains import Categories, Interval, column
from adaptive_dp.queries.examples import ExamplesOf
from adaptive_dp.queries.source import reading

# -----------------------------------------------------------------------------
# Networks as learners see them: where descent starts, what is released, and how it predicts.


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


# -----------------------------------------------------------------------------
# What a learned model says of rows: free, since models are released.


def predict(model: Any, data: Any, *, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """Return what a learned model says of each row: a number, or a category of the target.

    It computes with a released model and with rows that need not be private: it costs nothing.

    Parameters
    ----------
    model
        As a learner released it: coefficients by feature, those by class, or a network.
    data
        A mapping of the features' names to columns, a structured array, or a frame, in the data's
        own units. A linear model takes values as they are, beyond the bounds of its data too.
    classes
        The target's two categories as they were declared, for the coefficients of two classes,
        which do not tell their names: where the score is positive it is the second. Without them
        scores are returned.

    Returns
    -------
    numpy.ndarray
        Of shape (n,): numbers for a regression, scores for two classes without ``classes``, else
        categories (of several classes their texts).

    Raises
    ------
    DeclarationError
        If it is no model, or the data lack a feature.

    Examples
    --------
    >>> predict({"intercept": 10.0, "age": 2.0, "town=Ulm": 5.0},
    ...         {"age": [20, 30], "town": ["Ulm", "Bonn"]})
    array([55., 70.])
    >>> predict({"intercept": -1.0, "age": 0.04}, {"age": [20, 30]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """
    if not (isinstance(model, Mapping) and ("weights" in model or len(model) > 0)):
        raise DeclarationError(
            f"predict needs a model that a learner released, got {type(model).__name__}; read it "
            "off the result, such as result['model']"
        )
    if {"weights", "inputs"} <= set(model):
        network: Any = model
        return network_predictions(network, data)
    several = [isinstance(value, Mapping) for value in model.values()]
    if all(several):
        scores = np.stack([_scores(each, data) for each in model.values()])
        named: NDArray[Any] = np.asarray(list(model))[scores.argmax(axis=0)]
        return named
    if not ("intercept" in model and not any(several)):
        raise DeclarationError("a linear model has an 'intercept'")
    scores = _scores(model, data)
    if classes is None:
        return scores
    if not (isinstance(classes, Sequence) and not isinstance(classes, str) and len(classes) == 2):
        raise DeclarationError(
            f"classes must be the two categories of the target as declared, got {classes!r}"
        )
    chosen: NDArray[Any] = np.asarray(list(classes))[(scores > 0).astype(np.intp)]
    return chosen


def _scores(model: Mapping[str, float], data: Any) -> Array:
    """Return the intercept plus each row's features times their coefficients."""
    parts = [weight * _feature(name, data) for name, weight in model.items() if name != "intercept"]
    return np.asarray(model["intercept"] + sum(parts), dtype=np.float64)


def _feature(name: str, data: Any) -> Array:
    """Return a column; of ``name=value`` 1 where the column has the value, else 0."""
    found = _column(name, data)
    if found is not None:
        try:
            return found.astype(np.float64)
        except (TypeError, ValueError):
            raise DeclarationError(f"predict: the column {name!r} must be of numbers") from None
    for place in (i for i, letter in enumerate(name) if letter == "="):
        found = _column(name[:place], data)
        if found is not None:
            cells = found.tolist()
            return np.array([_is(cell, name[place + 1 :]) for cell in cells], dtype=np.float64)
    raise DeclarationError(f"predict: the data have no column for the feature {name!r}")


def _column(name: str, data: Any) -> NDArray[Any] | None:
    try:
        return np.asarray(data[name])
    except (KeyError, ValueError, IndexError, TypeError, LookupError):
        return None
    except Exception as error:  # a polars frame's own
        if type(error).__name__ != "ColumnNotFoundError":
            raise
        return None


def _is(cell: Any, value: str) -> bool:
    whole = isinstance(cell, float) and cell.is_integer()
    return str(cell) == value or (whole and str(int(cell)) == value)
