"""Descent along noisy sums of clipped gradients: what gradient-perturbing learners share.

In rows divided by their largest norm R, parameters are v = R w. A round is

    g = (sum of clipped gradients + noise) / expected rows,
    u <- momentum u + g,  v <- v - learning_rate (g + momentum u)      (Nesterov's form)

and what is learned is the mean of the last half of the rounds' v. All of it but the sum is
post-processing. A network's parameters are taken as they are, in rows as they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import frozen

from adaptive_dp.erm import Loss, Network
from adaptive_dp.graph.handles import Released, parameter, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning import networks as network
from adaptive_dp.learning.base import Linear
from adaptive_dp.mechanisms.additive import Gaussian
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.table import Table

SECOND = 0.99
"""Adam's memory of squares, for some hundred rounds."""

COUNT = 0.01
"""The share of mu^2 that the number of rows is released with."""


@frozen
class Clipping:
    """A norm that follows a quantile of the gradients' norms, privately.

    After each round the norm C becomes ``C exp(-rate (b - quantile))``, b the share of gradients
    that are at most C long, as released with Gaussian noise.

    Parameters
    ----------
    quantile
        Of the norms, in (0, 1): where C goes.
    rate
        How fast C moves.
    share
        The part of a round's mu^2 that the released share costs.

    References
    ----------
    Andrew, Thakkar, McMahan and Ramaswamy 2021, Algorithm 1 and Thm 1 (whose pair of noises is, as
    here, two Gaussian releases: ``1/z^2 = 1/z_g^2 + 1/z_b^2``).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.NoisySGD(["age"], "ill", steps=50, adaptive=dp.Clipping(quantile=0.5))
    >>> plan = dp.Pipeline(model=people.solve(learner)).fix(sigma=1.0)
    >>> sorted(plan.certify(delta=1e-6).shares)
    ['NoisySGD.gradients', 'NoisySGD.number_of_rows', 'NoisySGD.short_gradients']
    """

    quantile: float = 0.9
    rate: float = 0.2
    share: float = 0.01


@frozen
class Descent:
    """How to descend.

    Parameters
    ----------
    steps
        The number of rounds.
    rate
        The share of units that a round samples; 1 for all.
    clip
        The largest norm of a gradient, of rows of norm at most 1 (of a network's as they are);
        where it adapts, at the start.
    learning_rate, momentum
        Of the mean gradient.
    adaptive
        None for a fixed norm.
    adam
        Whether each coordinate has its own step size, with ``momentum`` for the first moments.
    """

    steps: int
    rate: float
    clip: float
    learning_rate: float
    momentum: float
    adaptive: Clipping | None = None
    adam: bool = False


def descend(problem: Linear, loss: Loss | Network, how: Descent, free: str) -> Released[Any]:
    """Return the parameters learned, flat, with noise ``Free(free)``.

    The number of rows is released first, with `COUNT` of the whole cost in mu^2.
    """
    # a sampled round costs about rate / sigma in mu, T of them sqrt(T) times that
    weight = 1 / (math.sqrt(how.steps) * how.rate)
    expected, _ = counted(problem.table, free, weight=weight, rate=how.rate)
    if isinstance(loss, Network):
        radius = 1.0
        start = post(standing_at, network.start(loss, problem), clip=how.clip)
    else:
        radius = problem.radius
        start = post(standing, public(problem.width * loss.outputs), clip=how.clip)

    def step(state: Released[Any], rows: LabeledRows) -> Released[Any]:
        rows = rows if how.rate >= 1 else rows.sample(how.rate)
        return _round(rows, radius, loss, how, state, expected, free)

    return post(mean_of_last, repeat(step, how.steps, problem.rows, start=start), radius=radius)


def _round(
    rows: LabeledRows,
    radius: float,
    loss: Loss | Network,
    how: Descent,
    state: Released[Any],
    expected: Released[Any],
    free: str,
) -> Released[Any]:
    at = post(parameters, state, radius=radius)
    each = rows.gradients(loss, at=at)
    constants = {
        "learning_rate": how.learning_rate,
        "momentum": how.momentum,
        "half": how.steps // 2,
        "adam": how.adam,
    }
    if how.adaptive is None:
        norm = how.clip * radius
        total = each.sum(clip=norm).release(
            Gaussian(sigma=Free(free, weight=norm)), name="gradients"
        )
        noise = parameter(total, "sigma")
        return post(moved, state, total, expected, noise, scale=1 / radius, **constants)
    adaptive = how.adaptive
    norm_now: Released[Any] = post(norm_of, state, radius=radius)
    gradient, count = 1 / math.sqrt(1 - adaptive.share), 1 / math.sqrt(adaptive.share)
    total = each.sum(clip=norm_now).release(
        Gaussian(sigma=Free(free, weight=gradient)), name="gradients"
    )
    short = each.short(norm_now).release(
        Gaussian(sigma=Free(free, weight=count)), name="short_gradients"
    )
    following = {"quantile": adaptive.quantile, "rate": adaptive.rate}
    noise = parameter(total, "sigma")
    return post(moved_and_clipped, state, total, short, expected, noise, **following, **constants)


def step_size(loss: Loss | Network) -> float:
    """Return a learning rate for rounds that see all rows, by the loss's smoothness alone.

    ``2 / smoothness``; twice that of several scores, whose bound is attained where two classes tie
    alone, and half of it where the curvature does not fall with the score. 4 where there is a
    kink, or nothing is known; a network's is half of its loss's. On Adult and MNIST nothing else
    was tuned.
    """
    if isinstance(loss, Network):
        return step_size(loss.loss) / 2
    try:
        limits = loss.constants()
    except NotImplementedError:  # a loss of one's own, of which nothing is known
        return 4.0
    if not 0 < limits.smoothness < math.inf:
        return 4.0
    return 2 / limits.smoothness * (2 if loss.outputs > 1 else 0.5 if limits.curvature > 0 else 1)


def counted(
    table: Table, free: str, *, weight: float = 1.0, rate: float = 1.0
) -> tuple[Released[float], Released[float]]:
    """Return the rows that a sample of ``rate`` may be expected to have, and the count's noise.

    Their number is released with `COUNT` of the whole cost in mu^2, where what costs the rest has
    noise of ``weight`` times the distance that it is released at.
    """
    spread = Free(free, weight=math.sqrt((1 - COUNT) / COUNT) * weight)
    number = table.count().release(Gaussian(sigma=spread), name="number_of_rows")
    noise = parameter(number, "sigma")
    return post(at_least, number, noise, rate=rate), noise


def at_least(number: float, sigma: float, *, rate: float) -> float:
    """Return the expected rows of a round: never fewer than the count's own noise, or one."""
    return max(float(number), 2 * float(sigma), 1.0) * rate


def standing(width: int, *, clip: float) -> dict[str, Any]:
    """Return the state before the first round."""
    return standing_at(np.zeros(int(width)), clip=clip)


def standing_at(v: Any, *, clip: float) -> dict[str, Any]:
    """Return the state before the first round, at parameters v."""
    zero = np.zeros(len(v))
    return {"v": v, "u": zero, "squares": zero, "mean": v, "round": 0, "clip": clip}


def parameters(state: dict[str, Any], *, radius: float) -> Any:
    """Return the parameters of a state, for rows as they are."""
    return np.asarray(state["v"]) / radius


def norm_of(state: dict[str, Any], *, radius: float) -> float:
    """Return the clipping norm of a state, for rows as they are."""
    return float(state["clip"]) * radius


def moved(
    state: dict[str, Any],
    total: Any,
    expected: float,
    sigma: float,
    *,
    scale: float,
    learning_rate: float,
    momentum: float,
    half: int,
    adam: bool,
) -> dict[str, Any]:
    """Return the state after a round of descent."""
    mean, rounds = np.asarray(total) * (scale / expected), int(state["round"]) + 1
    u, squares = np.asarray(state["u"]), np.asarray(state["squares"])
    if adam:
        u = momentum * u + (1 - momentum) * mean
        squares = SECOND * squares + (1 - SECOND) * mean**2
        noise = (sigma * scale / expected) ** 2
        own = squares / (1 - SECOND**rounds) - noise
        root = np.sqrt(np.maximum(own, 0.05 * noise) + 1e-16)
        step = u / (1 - momentum**rounds) / root
    else:
        u = momentum * u + mean
        step = mean + momentum * u
    v = np.asarray(state["v"]) - learning_rate * step
    if not np.isfinite(v).all():  # steps too long: stand still, as post-processing may
        return {**state, "round": rounds}
    kept = np.asarray(state["mean"])
    averaged = kept + (v - kept) / (rounds - half) if rounds > half else v
    return {**state, "v": v, "u": u, "squares": squares, "mean": averaged, "round": rounds}


def moved_and_clipped(
    state: dict[str, Any],
    total: Any,
    short: float,
    expected: float,
    sigma: float,
    *,
    quantile: float,
    rate: float,
    **constants: Any,
) -> dict[str, Any]:
    """Return the state after a round whose sum is in units of the clipping norm."""
    clip = float(state["clip"])
    after = moved(state, total, expected, sigma, scale=clip, **constants)
    share = min(max(float(short) / expected, -1.0), 2.0)
    return {**after, "clip": min(max(clip * math.exp(-rate * (share - quantile)), 1e-9), 1e9)}


def mean_of_last(state: dict[str, Any], *, radius: float) -> Any:
    """Return the mean of the last half of the rounds' parameters, for rows as they are."""
    return np.asarray(state["mean"]) / radius
