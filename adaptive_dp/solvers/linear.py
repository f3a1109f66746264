"""What learners of linear models share: their rows, their budget, and the way back to units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen

from accountants import ACCOUNTANTS
from adaptive_dp.graph.calibrate import free_weights, multiplier, scaled
from adaptive_dp.graph.handles import Handle, Released, meant, post
from adaptive_dp.graph.loop import RoundInput
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.structure import structure
from adaptive_dp.graph.traversal import ancestors, rewritten
from adaptive_dp.problems import Loss, Network
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.examples import standard
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.table import Table
from adaptive_dp.solvers.budget import both_or_neither
from adaptive_dp.solvers.regression import Coefficients

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
    require(
        not alone.states and not rows.states,
        f"{kind} has a budget of its own, but its table follows the rounds of a repeat or a "
        "selection; leave out epsilon and delta there, and calibrate the plan",
    )
    names = set(free_weights(structure([(("table",), rows)])))
    require(
        not names,
        f"{kind} has a budget of its own, but its table follows a release whose noise is free "
        f"({', '.join(sorted(names))}); fix that, or leave out the learner's epsilon and delta",
    )
    noise = multiplier([(("learned",), alone)], epsilon, delta, ACCOUNTANTS)
    return scaled([(("learned",), result)], noise)[0][1]


def outside_of_loops(handle: Handle) -> Handle:
    """Return a handle that reads the tables themselves where it reads a loop's own handles of them.

    It costs what one round's costs; it still depends on a loop's state where it reads that.
    """
    above = ancestors(handle, bodies=True)
    own = [h for h in above if isinstance(h.operation, RoundInput) and h.inputs[1] in handle.states]
    return rewritten([handle], known={each: meant(each) for each in own})[handle]
