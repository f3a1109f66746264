"""Descent along noisy sums of clipped gradients: what gradient-perturbing learners share.

In rows divided by their largest norm R, parameters are v = R w. A round is

    g = (sum of clipped gradients + noise) / expected rows,
    u <- momentum u + g,  v <- v - learning_rate (g + momentum u)      (Nesterov's form)

and what is learned is the mean of the last half of the rounds' v. All of it but the sum is
post-processing. A network's parameters are not divided, nor are its rows.

*Privacy of a round.* Each gradient is clipped to norm C, so that a row that comes or goes moves the
sum by at most C, and a row that is exchanged by at most 2C. The mean divides by a number of rows
that was released, or that its noise bounds, never by the number of rows of the batch, which is
private: under Poisson sampling that would also break the sampled Gaussian's analysis (Abadi et al.
2016, Algorithm 1; Mironov, Talwar and Zhang 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import frozen

from adaptive_dp.erm import Logistic, Loss, Multinomial, Network
from adaptive_dp.graph.handles import PrivateQuery, Released, parameter, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning.base import (
    WEIGHED,
    LearnerBudget,
    Linear,
    check_share,
    checked_classes,
    query_sensitivity,
)
from adaptive_dp.learning.networks import initial_network
from adaptive_dp.mechanisms.additive import Gaussian
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.table import Table

SECOND = 0.99
"""Adam's decay rate of the second moments, beta_2, for some hundred rounds."""

COUNT = 0.01
"""The share of mu^2 that the number of rows is released with."""


@frozen
class Clipping:
    """A clipping norm that follows a quantile of the gradients' norms, privately.

    After each round the norm C becomes ``C exp(-rate (b - quantile))``, b the share of gradients
    that are at most C long, as released with Gaussian noise.

    Parameters
    ----------
    quantile
        The quantile of the norms that C follows, in (0, 1).
    rate
        The step size of C, on a logarithmic scale.
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
    """The settings of a descent: rounds, sampling, clipping and step sizes.

    Parameters
    ----------
    steps
        The number of rounds.
    rate
        The probability with which a unit is in a round's Poisson sample; 1 for all units.
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


def descend(problem: Linear, loss: Loss | Network, settings: Descent, free: str) -> Released[Any]:
    """Return the parameters learned, flat, with noise ``Free(free)``.

    The number of rows is released first, with `COUNT` of the total cost in mu^2.
    """
    weight = count_weight(settings)
    expected, _ = released_row_count(
        problem.rows if problem.rows.domain.weighted else problem.table,
        free,
        weight=weight,
        rate=settings.rate,
    )
    if isinstance(loss, Network):
        radius = 1.0
        start = post(initial_state_at, initial_network(loss, problem), clip=settings.clip)
    else:
        radius = problem.radius
        start = post(initial_state, public(problem.width * loss.outputs), clip=settings.clip)

    def step(state: Released[Any], rows: LabeledRows) -> Released[Any]:
        # a round at rate 1 reads all rows, without a sample
        rows = rows if settings.rate >= 1 else rows.sample(settings.rate)
        return descent_round(rows, radius, loss, settings, state, expected, free)

    return post(
        mean_of_last, repeat(step, settings.steps, problem.rows, start=start), radius=radius
    )


def count_weight(settings: Descent) -> float:
    """Return the noise of a release that costs what the descent does, per noise of a round.

    A round on a sample costs about ``mu = rate / sigma``, and T rounds sqrt(T) times that (the
    central limit of Bu, Dong, Long and Su 2020, without its factor). It sets how the budget is
    split; what each part costs, the accountant computes from the graph.
    """
    return 1 / (math.sqrt(settings.steps) * settings.rate)


def class_noise(table: Table, settings: Descent, free: str) -> Callable[[PrivateQuery[Any]], Any]:
    """Return the noise of the number of each class's rows, which has `WEIGHED` of the cost."""
    share = math.sqrt((1 - WEIGHED) / WEIGHED) * count_weight(settings)
    return lambda query: Gaussian(sigma=Free(free, weight=share * query_sensitivity(query, table)))


def descent_round(
    rows: LabeledRows,
    radius: float,
    loss: Loss | Network,
    settings: Descent,
    state: Released[Any],
    expected: Released[Any],
    free: str,
) -> Released[Any]:
    """Return the state after a round: clipped gradients, noise, and a step.

    Parameters
    ----------
    rows
        The round's rows: a Poisson sample, or all.
    radius
        The largest norm of a row.
    loss, settings
        What is minimized, and how.
    state
        The state before the round.
    expected
        The number of rows that the round may be expected to have, released.
    free
        The name of the free noise.
    """
    # released parameters, so that this round's query is adaptive composition
    at = post(parameters, state, radius=radius)
    gradients = rows.gradients(loss, at=at)
    constants = {
        "learning_rate": settings.learning_rate,
        "momentum": settings.momentum,
        "half": settings.steps // 2,
        "adam": settings.adam,
    }
    if settings.adaptive is None:
        # a gradient is proportional to its row's norm: the clip is in units of that
        norm = settings.clip * radius
        # noise in proportion to the clip norm: the sum's sensitivity is a multiple of it
        total = gradients.sum(clip=norm).release(
            Gaussian(sigma=Free(free, weight=norm)), name="gradients"
        )
        noise = parameter(total, "sigma")
        # scale 1/radius brings the sum to rows of norm at most 1
        return post(gradient_step, state, total, expected, noise, scale=1 / radius, **constants)
    adaptive = settings.adaptive
    norm_now: Released[Any] = post(clip_norm, state, radius=radius)
    # The clip norm is computed from released values; the sum is in its units, of sensitivity 1 for
    # a row that comes or goes, as is the number of short gradients. With noises z_g and z_b the
    # pair costs 1/z^2 = 1/z_g^2 + 1/z_b^2 (Andrew et al. 2021, Thm 1): the weights give the
    # gradients 1 - share of it, and the count share.
    gradient_weight, count_weight = 1 / math.sqrt(1 - adaptive.share), 1 / math.sqrt(adaptive.share)
    total = gradients.sum(clip=norm_now).release(
        Gaussian(sigma=Free(free, weight=gradient_weight)), name="gradients"
    )
    short = gradients.short(norm_now).release(
        Gaussian(sigma=Free(free, weight=count_weight)), name="short_gradients"
    )
    following = {"quantile": adaptive.quantile, "rate": adaptive.rate}
    noise = parameter(total, "sigma")
    return post(
        adaptive_clipping_step, state, total, short, expected, noise, **following, **constants
    )


def step_size(loss: Loss | Network) -> float:
    """Return a learning rate for rounds that see all rows, by the loss's smoothness alone.

    ``2 / smoothness``; twice that of several scores, whose bound is attained only where two classes
    tie, and half of it where the curvature does not decrease with the score. 4 where there is a
    kink, or the loss states no constants; a network's is half of its loss's. On Adult and MNIST
    nothing else was tuned.
    """
    if isinstance(loss, Network):
        return step_size(loss.loss) / 2
    try:
        limits = loss.constants()
    except NotImplementedError:  # a user's loss that states no constants
        return 4.0
    # a kink has no finite smoothness
    if not 0 < limits.smoothness < math.inf:
        return 4.0
    return 2 / limits.smoothness * (2 if loss.outputs > 1 else 0.5 if limits.curvature > 0 else 1)


def checked(
    problem: Linear,
    loss: Loss | Network,
    settings: Descent,
    target: str,
    theta: Released[Any],
    free: str,
    budget: LearnerBudget | None,
) -> Released[Any]:
    """Return a descent's parameters, checked against the most frequent class (`checked_classes`).

    Only log odds are compared with those of the classes; the scores of other losses, and of
    networks, stay as they are.
    """
    if not isinstance(loss, Logistic | Multinomial):
        return theta
    # as of the number of rows, a half of the check's share for each of its counts
    goal = problem.table.domain.find(target)
    assert isinstance(goal, Categories)
    share = check_share(budget, len(goal.values))
    odds = math.sqrt((1 - share) / (share / 2)) / (math.sqrt(settings.steps) * settings.rate)

    def release(query: PrivateQuery[Any], name: str) -> tuple[Released[Any], Released[float]]:
        released = query.release(Gaussian(sigma=Free(free, weight=odds)), name=name)
        return released, parameter(released, "sigma")

    return checked_classes(problem, target, theta, release)


def released_row_count(
    rows: Table | LabeledRows, free: str, *, weight: float = 1.0, rate: float = 1.0
) -> tuple[Released[float], Released[float]]:
    """Return the number of rows to expect in a sample of ``rate``, and the count's noise sigma.

    Of rows with weights it is what they weigh together.

    The number is released with `COUNT` of the total cost in mu^2, where the releases that have the
    rest of it have noise of ``weight`` times their sensitivity.
    """
    # mu_count^2 / mu_rest^2 = COUNT / (1 - COUNT), and mu is sensitivity over sigma
    spread = Free(free, weight=math.sqrt((1 - COUNT) / COUNT) * weight)
    query = rows.weight() if isinstance(rows, LabeledRows) else rows.count()
    number = query.release(Gaussian(sigma=spread), name="number_of_rows")
    noise = parameter(number, "sigma")
    # what follows the noisy count is post-processing
    return post(expected_rows, number, noise, rate=rate), noise


def expected_rows(number: float, sigma: float, *, rate: float) -> float:
    """Return the expected rows of a round: at least twice the count's noise, or one, times rate."""
    # twice the noise keeps the division stable where the count is mostly noise
    return max(float(number), 2 * float(sigma), 1.0) * rate


def initial_state(width: int, *, clip: float) -> dict[str, Any]:
    """Return the state before the first round."""
    return initial_state_at(np.zeros(int(width)), clip=clip)


def initial_state_at(v: Any, *, clip: float) -> dict[str, Any]:
    """Return the state before the first round, at parameters v."""
    zero = np.zeros(len(v))
    # v parameters, u momentum, `squares` second moments for Adam
    return {"v": v, "u": zero, "squares": zero, "mean": v, "round": 0, "clip": clip}


def parameters(state: dict[str, Any], *, radius: float) -> Any:
    """Return the parameters of a state, for rows as they are."""
    return np.asarray(state["v"]) / radius


def clip_norm(state: dict[str, Any], *, radius: float) -> float:
    """Return the clipping norm of a state, for rows as they are."""
    return float(state["clip"]) * radius


def gradient_step(
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
    """Return the state after a step of descent (post-processing).

    Parameters
    ----------
    state
        As `initial_state_at` returns it: parameters v, momentum u, second moments ``squares``, the
        mean of the last rounds, the number of rounds, and the clip norm.
    total
        The released sum of gradients.
    expected
        The number of rows to divide by.
    sigma
        The noise of each coordinate of ``total``.
    scale
        A factor of the sum, for rows divided by their radius.
    learning_rate, momentum
        Of the mean gradient.
    half
        After how many rounds the mean of iterates begins.
    adam
        Whether each coordinate has its own step size.
    """
    # the sum over the expected number of rows, which is public: the sample's own is private
    mean, rounds = np.asarray(total) * (scale / expected), int(state["round"]) + 1
    u, squares = np.asarray(state["u"]), np.asarray(state["squares"])
    if adam:
        # the first moment, a moving average
        u = momentum * u + (1 - momentum) * mean
        squares = SECOND * squares + (1 - SECOND) * mean**2
        # Adam's bias correction of the second moments; the noise's variance, which is public, is
        # subtracted from them (Tang, Shpilevskiy and Lecuyer 2024), and what remains is at least a
        # twentieth of it
        noise = (sigma * scale / expected) ** 2
        signal = squares / (1 - SECOND**rounds) - noise
        # 1e-16 keeps the root positive where a coordinate has neither signal nor noise
        root = np.sqrt(np.maximum(signal, 0.05 * noise) + 1e-16)
        # Adam's bias correction of the first moment
        step = u / (1 - momentum**rounds) / root
    else:
        u = momentum * u + mean
        # Nesterov's form: the gradient and what the momentum will carry it on by
        step = mean + momentum * u
    v = np.asarray(state["v"]) - learning_rate * step
    if not np.isfinite(v).all():  # the steps are too long: keep the last finite iterate
        return {**state, "round": rounds}
    mean_before = np.asarray(state["mean"])
    # the running mean of the iterates after the first half of the rounds
    averaged = mean_before + (v - mean_before) / (rounds - half) if rounds > half else v
    return {**state, "v": v, "u": u, "squares": squares, "mean": averaged, "round": rounds}


def adaptive_clipping_step(
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
    """Return the state after a round whose sum is in units of the clip norm, which then follows.

    ``C <- C exp(-rate (b - quantile))``, b the released share of short gradients (Andrew et al.
    2021, Algorithm 1), kept in [-1, 2] against noise, and C in [1e-9, 1e9].
    """
    clip = float(state["clip"])
    # the sum is in units of the clip norm, which is therefore its scale
    after = gradient_step(state, total, expected, sigma, scale=clip, **constants)
    share = min(max(float(short) / expected, -1.0), 2.0)
    return {**after, "clip": min(max(clip * math.exp(-rate * (share - quantile)), 1e-9), 1e9)}


def mean_of_last(state: dict[str, Any], *, radius: float) -> Any:
    """Return the mean of the last half of the rounds' parameters, for rows as they are."""
    # parameters of rows divided by their radius, brought back to rows as they are
    return np.asarray(state["mean"]) / radius
