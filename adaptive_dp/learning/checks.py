"""What rows say of a released model: how well it does on new ones, and what was clipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptive_dp.erm import Loss, Network
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Group,
    Post,
    PrivateQuery,
    Released,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning import additive
from adaptive_dp.learning.base import ColumnLearner, Linear, Standardised, linear, query_sensitivity
from adaptive_dp.learning.descent import CLASS_CLIP
from adaptive_dp.learning.margin_boosting import with_steps
from adaptive_dp.learning.networks import network_model
from adaptive_dp.learning.tuning import WIDEST_ERROR, PredictionErrors
from adaptive_dp.mechanisms.additive import Laplace
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.examples import declarations
from adaptive_dp.queries.table import Table, complete_rows


def generalization(
    model: Released[Any],
    loss: Loss | None = None,
    *,
    features: Sequence[str],
    target: str,
    train: Table,
    held_out: Table,
    width: float = 1.0,
    norm: float | None = None,
    level: float = 0.95,
    free: str = "b",
) -> Released[dict[str, Any]]:
    """Return a released model's mean loss on its rows and on held-out ones, and the gap.

    Two sums and two numbers of rows are released with Laplace noise; all else is made of them. The
    *empirical risk* on the rows that the model was learned from is what a learner makes small; the
    *risk* is the mean loss of new rows of the same distribution, which held-out rows estimate. The
    interval is of the gap, risk less empirical risk: it covers the noise of all four releases and,
    for the held-out rows, which nothing was learned from and which are taken as independent,
    Hoeffding's inequality; it holds with probability ``level``, whatever the model and the loss.

    Parameters
    ----------
    model
        As a learner released it: coefficients by feature, or, without a loss, an additive model.
    loss
        For example `adaptive_dp.erm.ZeroOne`, or the loss that was minimized; clipped to ``width``.
        None for wrong predictions (of a number, mapped from its bounds onto [-1, 1], for squares of
        errors, each at most 1/4): then neither ``width`` nor ``norm`` is read.
    features, target, norm
        As of the learner.
    train, held_out
        Tables with the same columns: of two data sets, or disjoint parts of one.
    width
        The largest loss of a row that counts.
    level
        Of the interval.
    free
        The name of the free noise, for the plan's calibration.

    Returns
    -------
    Released
        ``"train"``, ``"held_out"``, ``"gap"`` and ``"interval"``.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> from adaptive_dp.erm import ZeroOne
    >>> columns = {"age": (0, 100), "ill": ["no", "yes"]}
    >>> people, others = (dp.dataset(name, columns=columns) for name in ("people", "others"))
    >>> learner = dp.ObjectivePerturbation(["age"], "ill")
    >>> model = people.solve(learner, epsilon=1.0, delta=0)
    >>> about = {"features": ["age"], "target": "ill", "train": people, "held_out": others}
    >>> plan = dp.Pipeline(report=dp.generalization(model, ZeroOne(), **about)).fix(b=5)
    >>> age = np.linspace(0, 100, 4_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> report = plan.simulate(seed=1, people=rows, others=rows)["report"]
    >>> report["held_out"] < 0.1, report["interval"][0] < 0 < report["interval"][1]
    (True, True)
    """
    if not 0 < level < 1:
        raise DeclarationError(f"generalization's level must be between 0 and 1, got {level!r}")
    made = _function(model)
    if made in NETWORKS or (loss is not None and made in ADDITIVE):
        raise DeclarationError(
            "generalization reads coefficients by feature, which this learner does not release"
            + (
                "; leave out the loss, and wrong predictions are counted"
                if made in ADDITIVE
                else ""
            )
        )
    releases: list[Released[Any]] = []
    for name, table in (("train", train), ("held_out", held_out)):
        goal = table.domain.find(target)
        # an additive model has scores of what is missing
        needed = (target,) if made in ADDITIVE else (*features, target)
        # of the rows that have all columns and a declared label, as the losses are
        complete = complete_rows(table, needed)
        if isinstance(goal, Categories):
            complete = complete.filter(complete[target].isin(goal.values))
        if loss is None:
            width = 1.0 if isinstance(goal, Categories) else WIDEST_ERROR**2
            errors = PredictionErrors(target, declarations(table.domain, (*features, target)))
            total: PrivateQuery[Any] = PrivateQuery(errors, (complete, model))
        else:
            problem = linear(table, features, target, loss, norm)
            theta = post(scaled_parameters, model, **units(problem))
            total = problem.rows.loss(loss, theta, width=width)
        for what, query in (("loss", total), ("rows", complete.count())):
            weight = max(query_sensitivity(query, table, 1), 1.0)
            noisy = query.release(Laplace(scale=Free(free, weight=weight)), name=f"{name}_{what}")
            releases += [noisy, parameter(noisy, "scale")]
    return post(risk_report, *releases, width=float(width), level=float(level))


ADDITIVE = (additive.shape_functions, additive.with_pairs, additive.better_of_both, with_steps)
"""Functions whose results are additive models."""

NETWORKS = (network_model,)
"""Those whose results are networks."""


def _function(model: Released[Any]) -> Any:
    """Return the function that a released value is a result of; None where it is something else."""
    while isinstance(model.operation, Group):
        model = model.inputs[0]  # type: ignore[assignment]
    operation = model.operation
    return operation.function.resolve() if isinstance(operation, Post) else None


def scaled_parameters(
    model: Any, *, scales: list[list[Any]], goal: list[float], classes: list[str]
) -> Any:
    """Return parameters for rows as learners scale them: the inverse of `linear_coefficients`."""
    target_middle, target_half = goal
    result = []
    for each in [model[name] for name in classes] if classes else [model]:
        intercept, slopes = float(each["intercept"]), []
        for name, middle, half in scales:
            slope = float(each[name])
            slopes.append(slope * half / target_half)
            intercept += slope * middle
        result.append([(intercept - target_middle) / target_half, *slopes])
    return np.array(result)


def risk_report(*releases: float, width: float, level: float) -> dict[str, Any]:
    """Return mean losses, their gap, and an interval of it: see `generalization`.

    Each of the four noises is at most ``b log(5 / (1 - level))`` in size but for a fifth of the
    chance to fail, and Hoeffding's inequality has the last fifth.
    """
    fail = (1 - level) / 5
    means, ends = [], []
    for total, b, rows, c in (releases[:4], releases[4:]):
        off, few = b * math.log(1 / fail), max(rows - c * math.log(1 / fail), 0.0)
        many = rows + c * math.log(1 / fail)
        low = max(0.0, (total - off) / many) if many > 0 else 0.0
        high = min(1.0, (total + off) / few) if few > 0 else 1.0
        means.append(min(max(total / max(rows, 1.0), 0.0), 1.0))
        ends.append((min(low, 1.0), max(high, 0.0), few))
    (low, high, _), (out_low, out_high, few) = ends
    # the mean of independent losses in [0, 1] is this near to its expectation
    sampling = math.sqrt(math.log(2 / fail) / (2 * few)) if few > 0 else 1.0
    least, most = max(out_low - sampling, 0.0) - high, min(out_high + sampling, 1.0) - low
    return {
        "train": width * means[0],
        "held_out": width * means[1],
        "gap": width * (means[1] - means[0]),
        "interval": (width * least, width * most),
    }


BINDS = 0.05
"""From which share of clipped rows on a report warns."""


def clipped(
    learner: ColumnLearner[Any] | Standardised,
    table: Table,
    model: Released[Any] | None = None,
    *,
    free: str = "b",
) -> Released[dict[str, Any]]:
    """Return how many rows a learner clips, released: bounds and a clip of gradients that bind.

    Bounds that are too narrow, and a clip that is too small, bias a model without a word. Which
    rows they concern is private, so that nothing is said of it for free: the numbers are releases
    with Laplace noise, nodes of the plan, which its calibration pays for with the rest.

    Released are the number of rows; for the target and each feature with bounds, how many rows lie
    outside of them; and with a released model of a loss that is known, how many rows have a
    gradient at that model which is longer than the learner's clip.

    Parameters
    ----------
    learner
        The learner, such as ``dp.NoisyGradientDescent(...)``.
    table
        Its rows.
    model
        What it released, for the gradients; None to report of bounds alone.
    free
        The name of the free noise, for the plan's calibration.

    Returns
    -------
    Released
        ``"rows"``; ``"outside"``, the share of rows outside of each column's bounds;
        ``"gradients"``, the share of clipped gradients, or None; and ``"warnings"``, a sentence for
        each share that is above 5 % by more than three deviations of its noise.

    Examples
    --------
    Days between 0 and 30 were declared, and a third of the rows have more:

    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 30)})
    >>> learner = dp.NoisyGradientDescent(["age"], "days", loss=dp.Huber(0.5), clip=0.1)
    >>> model = people.solve(learner, epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(model=model, report=dp.clipped(learner, people, model)).fix(b=5)
    >>> age = np.linspace(0, 100, 3_000)
    >>> report = plan.with_delta(1e-6).simulate(seed=1, people={"age": age, "days": 0.45 * age})
    >>> for warning in report["report"]["warnings"]:
    ...     print(warning)
    35% of the rows lie outside of the bounds of 'days', and are clipped to them: declare wider ones
    40% of the gradients are longer than the clip of 0.1: give a larger one
    """
    inner = learner.learner if isinstance(learner, Standardised) else learner
    if not isinstance(inner, ColumnLearner):
        raise DeclarationError(
            "clipped needs a learner of a column, such as dp.SSP(...), got "
            f"{type(learner).__name__}"
        )
    rows = inner.complete(table)
    declared = {name: table.domain.find(name) for name in (inner.target, *inner.features)}
    bounds = {name: each for name, each in declared.items() if isinstance(each, Interval)}
    outside = [
        (rows[name] < each.lower) | (rows[name] > each.upper) for name, each in bounds.items()
    ]
    releases: dict[str, Released[Any]] = {}

    def release(name: str, query: Any) -> None:
        weight = max(query_sensitivity(query, table, 1), 1.0)
        releases[name] = query.release(Laplace(scale=Free(free, weight=weight)), name=name)
        releases[f"{name}_noise"] = parameter(releases[name], "scale")

    release("rows", rows.count())
    if outside:
        release("outside", rows.counts(outside))
    clip = None if model is None else _clip_of(inner, table)
    if clip is not None and model is not None:
        problem, bound = clip
        at = post(scaled_parameters, model, **units(problem))
        loss = inner.loss  # type: ignore[attr-defined]
        short = problem.rows.gradients(loss, at=at).short(public(bound * problem.radius))
        release("short", short)
    return post(
        clipping_report,
        *releases.values(),
        names=list(releases),
        columns=list(bounds),
        clip=None if clip is None else clip[1],
    )


def _clip_of(learner: ColumnLearner[Any], table: Table) -> tuple[Linear, float] | None:
    """Return the rows of a learner that clips gradients of a linear model, and its first clip."""
    loss, clip = getattr(learner, "loss", None), getattr(learner, "clip", None)
    if not isinstance(loss, Loss) or isinstance(loss, Network) or not hasattr(learner, "clip"):
        return None
    if clip is None:
        # of numbers the clip follows from a released number, and is not known here
        if loss.labels not in ("sign", "class"):
            return None
        clip = CLASS_CLIP
    features, norm = learner.features, getattr(learner, "norm", None)
    return linear(table, features, learner.target, loss, norm), float(clip)


def clipping_report(
    *values: Any, names: Sequence[str], columns: Sequence[str], clip: float | None
) -> dict[str, Any]:
    """Return shares of clipped rows and warnings, of released numbers (post-processing)."""
    known = dict(zip(names, values, strict=True))
    count, noise = float(known["rows"]), float(known["rows_noise"])
    rows = max(count, noise, 1.0)
    shares, warnings = {}, []

    def above(share: float, scale: float) -> bool:
        # the deviation of Laplace noise is sqrt(2) times its scale
        return share - 3 * math.sqrt(2) * scale / rows > BINDS

    for name, number in zip(columns, np.ravel(known.get("outside", [])), strict=True):
        shares[name] = min(max(float(number) / rows, 0.0), 1.0)
        if above(shares[name], known["outside_noise"]):
            warnings.append(
                f"{shares[name]:.0%} of the rows lie outside of the bounds of {name!r}, and are "
                "clipped to them: declare wider ones"
            )
    gradients = None
    if "short" in known:
        gradients = min(max(1 - float(known["short"]) / rows, 0.0), 1.0)
        if above(gradients, noise + known["short_noise"]):
            warnings.append(
                f"{gradients:.0%} of the gradients are longer than the clip of {clip:g}: give a "
                "larger one"
            )
    return {"rows": count, "outside": shares, "gradients": gradients, "warnings": warnings}


def units(problem: Linear) -> dict[str, Any]:
    """Return how a linear model's coefficients are scaled, as `scaled_parameters` reads it."""
    return {
        "scales": [list(scale) for scale in problem.scales],
        "goal": list(problem.target_scale),
        "classes": list(problem.classes),
    }
