"""Networks as models of learners, and the predictions of learned models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.data import grid, read_rows
from adaptive_dp.erm import Logistic, Loss, Multinomial, Network
from adaptive_dp.erm.network import Activation
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, post, public
from adaptive_dp.learning.additive import additive_scores
from adaptive_dp.learning.base import Linear
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.domains import column as declared_column
from adaptive_dp.queries.examples import ExamplesOf
from adaptive_dp.queries.source import reading

Array = NDArray[np.float64]

SEED = 20_150
"""The seed of the initial parameters: public, the same for all data."""


class NetworkModel(TypedDict):
    """A learned network, with everything that `predict` needs.

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


def initial_network(network: Network, problem: Linear) -> Released[Any]:
    """Return the parameters before the first round: random, from the public `SEED`."""
    sizes = [network.hidden, problem.width, network.outputs]
    # sizes are public, and so is the seed: nothing private is read
    return post(initial_parameters, public(sizes), radius=problem.radius)


def initial_parameters(sizes: list[int], *, radius: float) -> Array:
    """Return normal parameters, of deviation 1 / radius and, in W2, h^(-1/2).

    A row of norm ``radius`` then has standard normal scores in the hidden units.
    """
    hidden, width, outputs = (int(size) for size in sizes)
    # a generator of its own, so that the initial parameters do not depend on the run's noise
    draw = np.random.default_rng(SEED)
    inner = draw.normal(size=hidden * width) / radius
    # W2 has h + 1 columns: one for each hidden unit, and the bias
    return np.concatenate([inner, draw.normal(size=outputs * (hidden + 1)) / np.sqrt(hidden)])


def learned_model(problem: Linear, loss: Loss | Network, theta: Released[Any]) -> Released[Any]:
    """Return coefficients of a linear model, or a network with everything that prediction needs."""
    if isinstance(loss, Loss):
        # `ExamplesOf` has the declarations with which prediction must read new rows
        return problem.model(theta)
    operation = problem.rows.operation
    assert isinstance(operation, ExamplesOf)
    inputs = {name: _declaration(operation.columns[name]) for name in operation.features}
    goal = operation.columns[operation.target]
    return post(
        network_model,
        theta,
        hidden=loss.hidden,
        activation=loss.activation,
        inputs=inputs,
        norm=problem.radius,
        # a target with bounds has no classes, and its scores are mapped by `goal`
        classes=list(goal.values) if isinstance(goal, Categories) else [],
        goal=list(problem.target_scale),
    )


def _declaration(declared: Any) -> dict[str, list[Any]]:
    """Return a column's categories or bounds as lists, as a released model carries them."""
    if isinstance(declared, Categories):
        return {"values": list(declared.values)}
    assert isinstance(declared, Interval)
    return {"bounds": [declared.lower, declared.upper]}


def network_model(theta: Any, **constants: Any) -> NetworkModel:
    """Return the model with flat parameters ``theta``."""
    return cast(NetworkModel, {"weights": np.asarray(theta, dtype=np.float64), **constants})


def network_predictions(model: NetworkModel, data: Any) -> NDArray[Any]:
    """Return a learned network's prediction for each row: a category of the target, or a number."""
    scores = network_scores(model, data)
    classes = model["classes"]
    if not classes:
        # the learner's target is (value - middle) / half
        middle, half = model["goal"]
        return np.asarray(middle + half * scores[0])
    # one score: its sign decides between two classes; else the largest of k
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
    # bounds are a pair, categories a list: this is how `declared_column` tells them apart
    columns = {
        name: declared_column(
            name, tuple(spec["bounds"]) if "bounds" in spec else list(spec["values"])
        )
        for name, spec in inputs.items()
    }
    features, norm = tuple(columns), float(model["norm"])
    # the features exactly as the learner read them, lattice rounding included; a feature stands in
    # for the target, which is not read
    examples = ExamplesOf(features, features[0], "class", norm, True, columns)
    rows = read_rows(data, {name: reading(spec) for name, spec in columns.items()}, None)
    scales = examples.scales()
    # rows in integer steps of the ball's lattice, as in the learner's query
    steps = rows.integer_rows(
        lambda block: grid.ball_steps(examples.vectors(block, scales), norm)[0]
    )
    # steps times the lattice's step are the features as floats
    x = steps * grid.ball(np.zeros((1, 1)), norm)[1]
    weights = np.asarray(model["weights"], dtype=np.float64)
    hidden, width = int(model["hidden"]), x.shape[1]
    # len(weights) = hidden * width + outputs * (hidden + 1), solved for outputs
    outputs = (len(weights) - hidden * width) // (hidden + 1)
    loss = Logistic() if outputs == 1 else Multinomial(outputs)  # scores do not depend on it
    return Network(loss, hidden, model["activation"]).scores(weights, x.astype(np.float64))


# -----------------------------------------------------------------------------
# Predictions of a learned model: post-processing, since models are released.


def predict(model: Any, data: Any, *, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """Return a learned model's prediction for each row: a number, or a category of the target.

    It computes with a released model and with rows that need not be private: it costs nothing.

    Parameters
    ----------
    model
        As a learner released it: coefficients by feature, those by class, an additive model's
        shapes, or a network.
    data
        A mapping of the features' names to columns, a structured array, or a frame, in the data's
        own units. A linear model takes values as they are, beyond the bounds of its data too.
    classes
        The target's two categories as they were declared, for the coefficients of two classes,
        which do not carry their names: where the score is positive it is the second. Without
        them scores are returned.

    Returns
    -------
    numpy.ndarray
        Of shape (n,): numbers for a regression, scores for two classes without ``classes``, else
        categories (of several classes, as str).

    Raises
    ------
    DeclarationError
        If ``model`` is not a learned model, or the data lack a feature.

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
    # a network's dictionary; coefficients have neither of these two keys together
    if {"weights", "inputs"} <= set(model):
        network: Any = model
        return network_predictions(network, data)
    # an additive model's dictionary
    if isinstance(model.get("shapes"), Mapping):
        additive: Any = model
        scores = additive_scores(additive, _columns(additive["shapes"], data))
        if scores.ndim == 2:
            best: NDArray[Any] = np.asarray(additive["classes"])[scores.argmax(axis=1)]
            return best
        return scores if classes is None else _class_of_sign(scores, classes)
    # several classes: a mapping of coefficients for each
    several = [isinstance(value, Mapping) for value in model.values()]
    if all(several):
        scores = np.stack([_scores(coefficients, data) for coefficients in model.values()])
        named: NDArray[Any] = np.asarray(list(model))[scores.argmax(axis=0)]
        return named
    if not ("intercept" in model and not any(several)):
        raise DeclarationError("a linear model has an 'intercept'")
    # one mapping of numbers: a regression, or the score of two classes
    scores = _scores(model, data)
    return scores if classes is None else _class_of_sign(scores, classes)


def _class_of_sign(scores: Array, classes: Any) -> NDArray[Any]:
    """Return the second of two classes where the score is positive, else the first."""
    if not (isinstance(classes, Sequence) and not isinstance(classes, str) and len(classes) == 2):
        raise DeclarationError(
            f"classes must be the two categories of the target as declared, got {classes!r}"
        )
    chosen: NDArray[Any] = np.asarray(list(classes))[(scores > 0).astype(np.intp)]
    return chosen


def _columns(names: Iterable[str], data: Any) -> dict[str, NDArray[Any]]:
    """Return columns of the data by name."""
    columns = {name: _column(name, data) for name in names}
    for name, column in columns.items():
        if column is None:
            raise DeclarationError(f"predict: the data have no column for the feature {name!r}")
    return {name: column for name, column in columns.items() if column is not None}


def _scores(model: Mapping[str, float], data: Any) -> Array:
    """Return the intercept plus each row's features times their coefficients."""
    # every entry but the intercept belongs to a feature
    parts = [weight * _feature(name, data) for name, weight in model.items() if name != "intercept"]
    return np.asarray(model["intercept"] + sum(parts), dtype=np.float64)


def _feature(name: str, data: Any) -> Array:
    """Return a column; of ``name=value`` 1 where the column has the value, else 0."""
    column = _column(name, data)
    if column is not None:
        try:
            # a column of that name is numeric: its values are multiplied as they are
            return column.astype(np.float64)
        except (TypeError, ValueError):
            raise DeclarationError(f"predict: the column {name!r} must be of numbers") from None
    # a column's name and a category may contain "=" themselves: the first split that names a column
    for i in (i for i, letter in enumerate(name) if letter == "="):
        column = _column(name[:i], data)
        if column is not None:
            # Python objects, so that their str is that of the category as it was declared
            cells = column.tolist()
            return np.array([_equals(cell, name[i + 1 :]) for cell in cells], dtype=np.float64)
    raise DeclarationError(f"predict: the data have no column for the feature {name!r}")


def _column(name: str, data: Any) -> NDArray[Any] | None:
    """Return a column of a mapping, structured array or frame, or None if there is none."""
    # mappings, structured arrays and frames raise different errors for a missing column
    try:
        return np.asarray(data[name])
    except (KeyError, ValueError, IndexError, TypeError, LookupError):
        return None
    except Exception as error:  # a polars frame's own
        if type(error).__name__ != "ColumnNotFoundError":
            raise
        return None


def _equals(cell: Any, value: str) -> bool:
    """Whether a cell is the category that is written ``value``; 1.0 is "1" too."""
    integer = isinstance(cell, float) and cell.is_integer()
    return str(cell) == value or (integer and str(int(cell)) == value)
