"""What learners share: their budget, their rows, and the way back to the data's units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants import ACCOUNTANTS
from adaptive_dp.erm import Loss, Network
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, Private, PrivateQuery, Released, meant, post
from adaptive_dp.graph.loops import RoundInput, ancestors, rewritten
from adaptive_dp.graph.nodes import structure
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.plan import free_weights, multiplier, scale_free
from adaptive_dp.graph.values import positive
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.examples import standard
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.moments import ExactMoments, MomentsOf
from adaptive_dp.queries.table import Table

# -----------------------------------------------------------------------------
# What a learner is told of its budget.


def both_or_neither(kind: str, epsilon: float | None, delta: float | None) -> None:
    """Refuse a budget of which one number is missing."""
    if (epsilon is None) != (delta is None):
        raise DeclarationError(
            f"{kind} needs epsilon and delta, or neither of them to leave its noise free"
        )


def budget(kind: str, epsilon: float | None, delta: float | None) -> tuple[float, float]:
    """Return the budget of a learner that needs one."""
    if not (epsilon is not None and delta is not None):
        raise DeclarationError(
            f"{kind} calibrates itself to a budget: solve({kind}(...), epsilon=..., delta=...)"
        )
    assert epsilon is not None
    assert delta is not None
    if not (0 < epsilon < math.inf and 1e-15 <= delta < 0.5):
        raise DeclarationError(
            f"{kind} needs epsilon > 0 and delta in [1e-15, 0.5), got {epsilon!r} and {delta!r}"
        )
    return float(epsilon), float(delta)


# -----------------------------------------------------------------------------
# What the regressions from exact moments share: their rows, and the way back to units.


Coefficients = dict[str, float]
Array = NDArray[np.float64]

ROOM = 2.0**-18
"""By how much a radius exceeds the longest row, for each coefficient: twice what rounding needs."""


@frozen(eq=False)
class Regression:
    """Features and target of a table, mapped from their declared bounds onto [-1, 1].

    Parameters
    ----------
    features, target
        Columns with bounds.
    radius
        By what the features, with an intercept, are divided to lie in the unit ball.
    moments
        Their exact second moments, private.
    """

    features: tuple[str, ...]
    bounds: list[list[float]]
    goal: list[float]
    radius: float
    moments: Private[Any]

    @property
    def width(self) -> int:
        """The number of coefficients, the intercept's included."""
        return len(self.features) + 1

    def query(self, operation: Query, *beside: Released[Any]) -> PrivateQuery[Any]:
        """Return a query of the moments."""
        return PrivateQuery(operation, (self.moments, *beside))

    def exact(self) -> PrivateQuery[Any]:
        """Return the moments as a query."""
        return self.query(ExactMoments())

    def coefficients(self, theta: Released[Any]) -> Released[Coefficients]:
        """Return coefficients of the unit ball in the data's units."""
        return of_the_ball(theta, self.features, self.bounds, self.goal, self.radius)


def of_the_ball(
    theta: Released[Any],
    features: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
    radius: float,
) -> Released[Coefficients]:
    """Return coefficients of features divided by ``radius`` in the data's units."""
    sides = [list(side) for side in bounds]
    return post(back, theta, names=list(features), bounds=sides, goal=list(goal), radius=radius)


def regression(
    table: Table, features: tuple[str, ...], target: str, norm: float | None
) -> Regression:
    """Return the regression of ``target`` on ``features``; longer rows are clipped to ``norm``.

    Without a norm the radius is a little more than any row's length, so that nothing is shortened,
    and nothing needs to be measured (see `MomentsOf`).
    """
    bounds = [table.domain.interval(name) for name in features]
    goal = table.domain.interval(target)
    vectors = table.vectors(features, scale=True, intercept=True)
    if norm is not None:
        vectors = vectors.clip(norm=norm)
    radius = vectors.domain.radius * (1.0 if norm is not None else 1 + vectors.domain.width * ROOM)
    moments: Private[Any] = Private(MomentsOf(radius, target, goal), (vectors,))
    sides = [[b.lower, b.upper] for b in bounds]
    return Regression(features, sides, [goal.lower, goal.upper], radius, moments)


def columns(kind: str, features: tuple[str, ...], target: str) -> None:
    """Refuse to learn from no features, or from the target itself."""
    if not (len(features) > 0):
        raise DeclarationError(f"{kind} needs at least one feature")
    if target in features:
        raise DeclarationError(f"{kind}'s target {target!r} is among its features; take it out")


def inside(what: str, value: Any, low: float, high: float) -> None:
    """Refuse a number that is not in [low, high]."""
    if not (positive(value) and low <= value <= high):
        raise DeclarationError(f"{what} must be a number in [{low:g}, {high:g}], got {value!r}")


def back(
    theta: Any,
    *,
    names: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
    radius: float,
) -> Coefficients:
    """Return coefficients in the data's units, from those of features divided by ``radius``."""
    return in_units(np.asarray(theta) / radius, names=names, bounds=bounds, goal=goal)


def in_units(
    theta: Array,
    *,
    names: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
) -> Coefficients:
    """Return coefficients for columns in their own units, from those for columns on [-1, 1]."""
    low, high = goal
    reach, middle = (high - low) / 2, (high + low) / 2
    slopes = {}
    intercept = middle + reach * float(theta[0])
    for name, (lower, upper), weight in zip(names, bounds, theta[1:], strict=True):
        half = (upper - lower) / 2
        slope = reach * float(weight) / half if half > 0 else 0.0
        slopes[name] = slope
        intercept -= slope * (upper + lower) / 2
    return {"intercept": intercept, **slopes}


# -----------------------------------------------------------------------------
# What learners of linear models share: their rows, their budget, and the way back to units.


Model = Coefficients | dict[str, Coefficients]
"""Coefficients by feature, ``"intercept"`` first; of several classes, by class."""


@frozen(eq=False)
class Linear:
    """Examples of a table, and how parameters for them read in the data's units.

    Parameters
    ----------
    table, rows
        The private rows, and the examples: numbers mapped onto [-1, 1], categories onto 0 and 1.
    scales
        For each feature but the intercept, its name, and the numbers (middle, half) such that the
        feature is ``(value - middle) / half``.
    goal
        Middle and half of the target, (0, 1) for labels.
    classes
        The target's categories where there are more than two.
    """

    table: Table
    rows: LabeledRows
    scales: tuple[tuple[str, float, float], ...]
    goal: tuple[float, float]
    classes: tuple[str, ...]

    @property
    def radius(self) -> float:
        """The largest norm of a row."""
        return float(self.rows.domain.radius)

    @property
    def width(self) -> int:
        """The number of features, the intercept's included."""
        return int(self.rows.domain.width)

    def model(self, theta: Released[Any]) -> Released[Model]:
        """Return parameters (k times p numbers) as coefficients in the data's units."""
        return post(
            coefficients,
            theta,
            scales=[list(scale) for scale in self.scales],
            goal=list(self.goal),
            classes=list(self.classes),
        )


def linear(
    table: Table,
    features: Sequence[str],
    target: str,
    loss: Loss | Network,
    norm: float | None,
    *,
    classes: bool = False,
) -> Linear:
    """Return the examples of a linear model with an intercept; rows are clipped to ``norm``.

    Without it, rows are kept as they are where the target is a number. Where it is a class they
    are clipped to 1, and an intercept makes them as long as that: which class scores highest does
    not change if a row is scaled. A network's are clipped to 1 in either case: with the intercept
    in front nothing of a row is lost, and its first parameters fit rows of that norm. With
    ``classes``, a loss of two classes learns several, one by one.
    """
    goal = table.domain.find(target)
    labels = loss.labels
    if classes and labels == "sign" and isinstance(goal, Categories) and len(goal.values) > 2:
        labels = "class"
    if norm is None and (labels in ("sign", "class") or isinstance(loss, Network)):
        norm = 1.0
    rows = table.examples(features, target, labels=labels, norm=norm)
    middle, half = 0.0, 1.0
    if isinstance(goal, Interval) and labels == "number":
        half = (goal.upper - goal.lower) / 2
        middle = goal.lower + half
    several = isinstance(goal, Categories) and labels == "class"
    names = tuple(str(v) for v in goal.values) if several else ()
    return Linear(table, rows, tuple(_scales(table, features)), (middle, half), names)


def _scales(table: Table, features: Sequence[str]) -> list[tuple[str, float, float]]:
    found = []
    for name in features:
        declared = table.domain.find(name)
        if isinstance(declared, Categories):
            found += [(f"{name}={value}", 0.0, 1.0) for value in declared.values]
        elif isinstance(declared, Interval):
            found.append((name, *standard(declared)))
    return found


def coefficients(
    theta: Any, *, scales: list[list[Any]], goal: list[float], classes: list[str]
) -> Model:
    """Return coefficients by feature in the data's units; by class where there are several."""
    weights = np.asarray(theta, dtype=np.float64).reshape(-1, len(scales) + 1)
    found = [_coefficients(row, scales, goal) for row in weights]
    return dict(zip(classes, found, strict=True)) if classes else found[0]


def _coefficients(row: Any, scales: list[list[Any]], goal: list[float]) -> Coefficients:
    middle, half = goal
    intercept, slopes = middle + half * float(row[0]), {}
    for (name, centre, width), weight in zip(scales, row[1:], strict=True):
        slope = half * float(weight) / width if width > 0 else 0.0
        slopes[name] = slope
        intercept -= slope * centre
    return {"intercept": intercept, **slopes}


def budgeted(
    kind: str, table: Table, result: Handle, epsilon: float | None, delta: float | None
) -> Any:
    """Return a learner's result with its free noise solved for a budget, if it has one.

    Raises
    ------
    DeclarationError
        If there is one of epsilon and delta alone, or the table follows a release whose own noise
        is still free, under whatever name: it would be solved with the learner's, and the learner
        would read a copy of it, another release than the one whose handle the caller has.
    """
    both_or_neither(kind, epsilon, delta)
    if epsilon is None or delta is None:
        return result
    alone, rows = outside_of_loops(result), outside_of_loops(table)
    if not (not alone.states and not rows.states):
        raise DeclarationError(
            f"{kind} has a budget of its own, but its table follows the rounds of a repeat or a "
            "selection; leave out epsilon and delta there, and calibrate the plan"
        )
    names = set(free_weights(structure([(("table",), rows)])))
    if names:
        raise DeclarationError(
            f"{kind} has a budget of its own, but its table follows a release whose noise is free "
            f"({', '.join(sorted(names))}); fix that, or leave out the learner's epsilon and delta"
        )
    noise = multiplier([(("learned",), alone)], epsilon, delta, ACCOUNTANTS)
    return scale_free([(("learned",), result)], noise)[0][1]


def outside_of_loops(handle: Handle) -> Handle:
    """Return a handle that reads the tables themselves where it reads a loop's own handles of them.

    It costs what one round's costs; it still depends on a loop's state where it reads that.
    """
    above = ancestors(handle, bodies=True)
    own = [h for h in above if isinstance(h.operation, RoundInput) and h.inputs[1] in handle.states]
    return rewritten([handle], known={each: meant(each) for each in own})[handle]
