"""Descent along noisy sums of clipped gradients: what gradient-perturbing learners share.

In rows divided by their largest norm R, parameters are v = R w. A round is

    d = M^-1 (sum of clipped gradients + noise) / rate,
    u <- momentum u + d,  v <- v - learning_rate (d + momentum u)      (Nesterov's form)

and what is learned is the mean of the last half of the rounds' v. All of it but the sum is
post-processing. A network's parameters are not divided, nor are its rows.

*The scaling.* Of a linear model whose loss has a second derivative of at most h,

    M = h (G_+ + 0.3 E) + h (1 - rate) / rate + rho,

G the rows' second moments, released with `MOMENTS` of the cost, and E the edge of their noise's
spectrum. ``h X'X`` bounds the loss's second derivatives, so that a direction in which features vary
little gets as long a step as one in which they vary much: without that, of several classes all but
the few largest directions are hardly learned. The second term is for samples, whose moments may
exceed their mean. The last is what noise asks for: with t the steps' sizes added up and s the noise
of all rounds together, ``rho = s t / reach``, so that along a direction that the rows hardly have
noise moves v by at most about ``reach`` in all. It follows the budget and not the rows: of few rows
or with a small budget rho exceeds G, only the largest directions are learned, and none diverges; of
many rows M is h G, and what is learned is what would be without privacy. So how far the descent
goes follows the rows times the budget, and the number of rounds need not.

M is the expected number of rows instead of networks, of losses with kinks, of more than `WIDEST`
parameters a score, with Adam, and where a learning rate is given.

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
from attrs import evolve, frozen

from adaptive_dp.erm import Constants, Loss, Network, Squared
from adaptive_dp.graph.handles import (
    PrivateQuery,
    Released,
    parameter,
    post,
    public,
    reads_only,
)
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning.base import (
    WEIGHED,
    LearnerBudget,
    Linear,
    query_sensitivity,
)
from adaptive_dp.learning.boosted_ssp import mean_share, shrunk_mean
from adaptive_dp.learning.networks import initial_network
from adaptive_dp.learning.ssp import nonnegative_spectrum, spectral_edge
from adaptive_dp.mechanisms.additive import Gaussian, largest_mu
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.table import Table

SECOND = 0.99
"""Adam's decay rate of the second moments, beta_2, for some hundred rounds."""

COUNT = 0.01
"""The share of mu^2 that the number of rows is released with."""

MOMENTS = 0.02
"""The share of mu^2 that the rows' second moments are released with."""

WIDEST = 1024
"""The most parameters of a score for which second moments are released."""

MOVES = 120.0
"""The sizes of scaled steps add up to this; each is at most 1."""

CLASS_REACH, NUMBER_REACH = 5.0, 0.3
"""How far noise alone may move parameters, of rows of norm 1, along a direction without data.

About the size of parameters themselves: of scores whose sign is a class, and of numbers in [-1, 1].
"""

CLASS_CLIP = 0.5
"""The clip of gradients of rows of norm 1, where the target is a class."""

LEAST_CLIP = 0.2
"""The least clip where the target is a number in [-1, 1]."""

CLIPPED_ROWS = 25.0
"""From so many rows times mu, for each parameter, the clip of numbers is wider than the least."""

MOMENTS_RIDGE = 0.3
"""The part of the edge of the moments' noise that is added to them, as in `BoostedSSP`."""


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
    >>> "NoisySGD.short_gradients" in plan.certify(delta=1e-6).shares
    True
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
        where it adapts, at the start. None for a default.
    learning_rate
        Of the mean gradient; None for scaled steps where the loss allows them, and else a default.
    momentum
        The share of the last step that is taken again.
    adaptive
        None for a fixed norm.
    adam
        Whether each coordinate has its own step size, with ``momentum`` for the first moments.
    reference
        After so many rounds the gradient of all rows is released anew, and samples correct it;
        None for samples alone.
    """

    steps: int
    rate: float
    clip: float | None
    learning_rate: float | None
    momentum: float
    adaptive: Clipping | None = None
    adam: bool = False
    reference: int | None = None

    @property
    def releases(self) -> float:
        """What a round costs, and the square of its noise, in units of one sum of a sample.

        With a reference, whose noise is `reference_weight`, both are three: two sums of a sample,
        and a share of the reference.
        """
        return 1.0 if self.reference is None else 3.0


def descend(
    problem: Linear,
    loss: Loss | Network,
    settings: Descent,
    free: str,
    *,
    target: str,
    budget: LearnerBudget | None,
) -> Released[Any]:
    """Return the parameters learned, flat, with noise ``Free(free)``.

    The number of rows is released first, with `COUNT` of the total cost in mu^2, and where steps
    are scaled the rows' second moments, with `MOMENTS` of it. With the squared loss the targets'
    sum is, too: steps start at the mean, and what they add to it is shrunk in the end by what noise
    alone explains (`mean_or_start`).

    Parameters
    ----------
    problem, loss, settings
        What is minimized, and how.
    free
        The name of the free noise.
    target
        The name of the target.
    budget
        What the noise will be calibrated to, by which the share of the targets' sum is chosen.
    """
    weight = count_weight(settings)
    expected, spread = released_row_count(
        problem.rows if problem.rows.domain.weighted else problem.table,
        free,
        weight=weight,
        rate=settings.rate,
    )
    clip = initial_clip(problem, loss, settings)
    smoothness = scaled_smoothness(problem, loss, settings)
    radius = 1.0 if isinstance(loss, Network) else problem.radius
    # the targets' sum is of rows without weights, and says nothing where bounds are equal
    plain = isinstance(loss, Squared) and not problem.rows.domain.weighted
    centred = 0.0
    if plain and smoothness is not None and problem.target_scale[1] > 0:
        mu = largest_mu(budget.epsilon, budget.delta) if budget and budget.delta > 0 else None
        centred = mean_share(mu, 1.0)
    if isinstance(loss, Network):
        assert clip is not None
        start = post(initial_state_at, initial_network(loss, problem), clip=clip)
    elif clip is not None:
        start = post(initial_state, public(problem.width * loss.outputs), clip=clip)
    else:
        most = constants_of(loss).lipschitz
        chosen = post(
            clip_of_noise,
            expected,
            spread,
            width=problem.width * loss.outputs,
            rate=settings.rate,
            most=min(most, 2.0),
        )
        start = post(initial_state_of, chosen, width=problem.width * loss.outputs)
    if centred:
        total, noise = released_target_sum(problem, target, free, weight, centred)
        units = {"half": problem.target_scale[1], "radius": radius, "rate": settings.rate}
        start = post(started_at_mean, start, total, noise, expected, spread, **units)
    scaling: tuple[Released[Any], ...] = ()
    if smoothness is None:
        rate = settings.learning_rate or default_rate(loss, settings)
    else:
        rate = min(1.0, MOVES / settings.steps)
        scaling = (released_scaling(problem, smoothness, settings, rate, free, weight),)
    settings = evolve(settings, clip=clip, learning_rate=rate)

    def step(state: Released[Any], rows: LabeledRows) -> Released[Any]:
        # a round at rate 1 reads all rows, without a sample
        rows = rows if settings.rate >= 1 else rows.sample(settings.rate)
        return descent_round(rows, radius, loss, settings, state, expected, free, scaling)

    def epoch(state: Released[Any], rows: LabeledRows) -> Released[Any]:
        assert settings.reference is not None
        at, weight = post(parameters, state, radius=radius), reference_weight(settings)
        total = gradient_sum(rows, at, loss, settings, state, radius, free, weight)
        begun = post(at_reference, state, total)
        return repeat(step, settings.reference, rows, start=begun)

    if settings.reference is None:
        end = repeat(step, settings.steps, problem.rows, start=start)
    else:
        start = post(at_reference, start, public([]))
        end = repeat(epoch, settings.steps // settings.reference, problem.rows, start=start)
    if not centred:
        return post(mean_of_last, end, radius=radius)
    own = {"steps": settings.steps, "learning_rate": rate, "momentum": settings.momentum}
    return post(mean_or_start, end, start, *scaling, **own, radius=radius)


def initial_clip(problem: Linear, loss: Loss | Network, settings: Descent) -> float | None:
    """Return the first round's clip, for rows of norm 1; None where `clip_of_noise` chooses it."""
    if settings.clip is not None:
        return settings.clip
    numbers = isinstance(loss, Loss) and loss.labels == "number"
    # half of the largest slope of a class
    return None if numbers and settings.adaptive is None else LEAST_CLIP if numbers else CLASS_CLIP


def clip_of_noise(number: float, sigma: float, *, width: int, rate: float, most: float) -> float:
    """Return a clip of residuals that is the wider the less there is noise.

    Parameters
    ----------
    number, sigma
        The expected rows of a round, and the noise of the number of rows, by which the descent's
        mu is known: the number has `COUNT` of mu^2.
    width
        The number of parameters.
    rate
        The probability with which a row is in a round.
    most
        The largest slope of the loss; slopes above 2, at targets in [-1, 1], need not be seen.
    """
    mu = math.sqrt((1 - COUNT) / COUNT) / max(float(sigma), 1e-300)
    rows = float(number) / rate * mu / (width * CLIPPED_ROWS)
    return min(LEAST_CLIP * math.sqrt(max(rows, 1.0)), max(most, LEAST_CLIP), 2.0)


def scaled_smoothness(problem: Linear, loss: Loss | Network, settings: Descent) -> float | None:
    """Return the bound h of the loss's second derivative, or None where steps are not scaled."""
    given = settings.adam or settings.learning_rate is not None
    if given or isinstance(loss, Network) or problem.width > WIDEST:
        return None
    smoothness = constants_of(loss).smoothness
    return smoothness if 0 < smoothness < math.inf else None


def constants_of(loss: Loss) -> Constants:
    """Return a loss's constants; infinite ones of a loss that states none."""
    try:
        return loss.constants()
    except NotImplementedError:  # a user's loss that states no constants
        return Constants(math.inf, math.inf)


def released_scaling(
    problem: Linear,
    smoothness: float,
    settings: Descent,
    learning_rate: float,
    free: str,
    weight: float,
) -> Released[Any]:
    """Return what `gradient_step` scales steps by, from the rows' released second moments."""
    # as of the count: MOMENTS of the cost, where a row moves the moments by the radius squared
    spread = math.sqrt((1 - MOMENTS) / MOMENTS) * weight * problem.radius**2
    moments = problem.rows.second_moments().release(
        Gaussian(sigma=Free(free, weight=spread)), name="second_moments"
    )
    labels = problem.rows.domain.labels
    reach = NUMBER_REACH if labels in ("number", "count") else CLASS_REACH
    # rho over a round's noise: s t / reach, with t the steps' sizes added up, and s the round's
    # noise over the root of their number; a step's momentum carries it on by 1 / (1 - momentum)
    carried = learning_rate / max(1 - settings.momentum, 1e-3)
    return post(
        step_scaling,
        moments,
        parameter(moments, "sigma"),
        square=problem.radius**2,
        smoothness=smoothness,
        rate=settings.rate,
        damping=math.sqrt(settings.steps) * carried / reach,
    )


def count_weight(settings: Descent) -> float:
    """Return the noise of a release that costs what the descent does, per noise of a round.

    A round on a sample costs about ``mu = rate / sigma``, and T rounds sqrt(T) times that (the
    central limit of Bu, Dong, Long and Su 2020, without its factor). It sets how the budget is
    split; what each part costs, the accountant computes from the graph.
    """
    return 1 / (math.sqrt(settings.steps * settings.releases) * settings.rate)


def reference_weight(settings: Descent) -> float:
    """Return the noise of a reference's gradient, per noise of a sample's sum.

    Over m rounds at rate q a sum's noise s adds up to ``2 m s^2``, and that of the gradient of all
    rows, of which a round has q, to ``m^2 q^2 w^2 s^2``; they cost ``2 m q^2 / s^2`` and
    ``1 / (w s)^2``. The product is least at ``w^2 = 1 / (m q^2)``.
    """
    assert settings.reference is not None
    return 1 / (math.sqrt(settings.reference) * settings.rate)


def gradient_sum(
    rows: LabeledRows,
    at: Released[Any],
    loss: Loss | Network,
    settings: Descent,
    state: Released[Any],
    radius: float,
    free: str,
    weight: float = 1.0,
) -> Released[Any]:
    """Return the released sum of clipped gradients, with noise of ``weight`` times the clip."""
    gradients = rows.gradients(loss, at=at)
    if settings.adaptive is None and settings.clip is not None:
        # a gradient is proportional to its row's norm: the clip is in units of that, and noise in
        # proportion to it, as the sum's sensitivity is
        norm = settings.clip * radius
        noise = Gaussian(sigma=Free(free, weight=norm * weight))
        return gradients.sum(clip=norm).release(noise, name="gradients")
    # the clip was chosen by released values: the sum is in its units, of sensitivity 1
    noise = Gaussian(sigma=Free(free, weight=weight))
    norm_now = post(clip_norm, state, radius=radius)
    return gradients.sum(clip=norm_now).release(noise, name="gradients")


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
    scaling: tuple[Released[Any], ...] = (),
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
    scaling
        What scales steps, released; empty where they are not scaled.
    """
    # released parameters, so that this round's query is adaptive composition
    at = post(parameters, state, radius=radius)
    constants = {
        "learning_rate": settings.learning_rate,
        "momentum": settings.momentum,
        "half": settings.steps // 2,
        "adam": settings.adam,
        "rate": settings.rate,
    }
    adaptive = settings.adaptive
    if adaptive is None:
        common = (loss, settings, state, radius, free)
        total = gradient_sum(rows, at, *common)
        noise: Released[float] = parameter(total, "sigma")
        if settings.reference is not None:
            # two sums of one sample, of which each of its rows moves both
            there = gradient_sum(rows, post(reference_point, state, radius=radius), *common)
            total = post(corrected_sum, state, total, there, rate=settings.rate)
            noise = post(scaled_noise, noise, by=math.sqrt(settings.releases))
        read = (state, total, expected, noise, *scaling)
        # scale 1/radius brings the sum to rows of norm at most 1
        scale = None if settings.clip is None else 1 / radius
        return post(gradient_step, *read, scale=scale, **constants)
    gradients = rows.gradients(loss, at=at)
    norm_now = post(clip_norm, state, radius=radius)
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
    clipping = {"quantile": adaptive.quantile, "following": adaptive.rate}
    noise = parameter(total, "sigma")
    read = (state, total, short, expected, noise, *scaling)
    return post(adaptive_clipping_step, *read, **clipping, **constants)


def default_rate(loss: Loss | Network, settings: Descent) -> float:
    """Return the learning rate of steps that are not scaled."""
    if settings.adam:
        return 0.1
    # a sample's gradients are noisier than those of all rows: a quarter of the step, which
    # networks do not need
    quarter = settings.rate < 1 and not isinstance(loss, Network)
    return step_size(loss) * (0.25 if quarter else 1.0)


def step_size(loss: Loss | Network) -> float:
    """Return a learning rate for rounds that see all rows, by the loss's smoothness alone.

    ``2 / smoothness``; twice that of several scores, whose bound is attained only where two classes
    tie, and half of it where the curvature does not decrease with the score. 4 where there is a
    kink, or the loss states no constants; a network's is half of its loss's. On Adult and MNIST
    nothing else was tuned.
    """
    if isinstance(loss, Network):
        return step_size(loss.loss) / 2
    limits = constants_of(loss)
    # a kink has no finite smoothness
    if not 0 < limits.smoothness < math.inf:
        return 4.0
    return 2 / limits.smoothness * (2 if loss.outputs > 1 else 0.5 if limits.curvature > 0 else 1)


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


def initial_state_of(clip: float, *, width: int) -> dict[str, Any]:
    """Return the state before the first round, with a released clip."""
    return initial_state(width, clip=float(clip))


def initial_state_at(v: Any, *, clip: float) -> dict[str, Any]:
    """Return the state before the first round, at parameters v."""
    zero = np.zeros(len(v))
    # v parameters, u momentum, `squares` second moments for Adam
    return {"v": v, "u": zero, "squares": zero, "mean": v, "round": 0, "clip": clip}


def parameters(state: dict[str, Any], *, radius: float) -> Any:
    """Return the parameters of a state, for rows as they are."""
    return np.asarray(state["v"]) / radius


def at_reference(state: dict[str, Any], total: Any) -> dict[str, Any]:
    """Return a state whose reference is where it is, with the sum of all rows' gradients there."""
    return {**state, "reference": state["v"], "total": np.asarray(total, dtype=np.float64)}


def reference_point(state: dict[str, Any], *, radius: float) -> Any:
    """Return the parameters of a state's reference, for rows as they are."""
    return np.asarray(state["reference"]) / radius


def corrected_sum(state: dict[str, Any], here: Any, there: Any, *, rate: float) -> Any:
    """Return a sample's part of the reference's sum, and by how much the sample's own differs."""
    return rate * np.asarray(state["total"]) + np.asarray(here) - np.asarray(there)


def scaled_noise(sigma: float, *, by: float) -> float:
    """Return a multiple of a noise."""
    return float(sigma) * by


def clip_norm(state: dict[str, Any], *, radius: float) -> float:
    """Return the clipping norm of a state, for rows as they are."""
    return float(state["clip"]) * radius


def step_scaling(
    moments: Any, sigma: float, *, square: float, smoothness: float, rate: float, damping: float
) -> dict[str, Any]:
    """Return what scales steps: M of the module's docstring, as far as it is known before them.

    Parameters
    ----------
    moments, sigma
        The rows' noisy second moments, and the noise on their diagonal.
    square
        The largest norm of a row, squared.
    smoothness
        h.
    rate
        The probability with which a row is in a round.
    damping
        rho over the noise of a round.

    Returns
    -------
    Eigenvalues of M without rho, those of h G_+ alone, eigenvectors, and the damping.
    """
    values, basis = nonnegative_spectrum(np.asarray(moments, dtype=np.float64) / square)
    edge = spectral_edge(float(sigma) / square, len(values))
    curvature = smoothness * values
    values = curvature + smoothness * (MOMENTS_RIDGE * edge + (1 - rate) / rate)
    # single precision: each round reads all of the basis twice, and noise is far above its rounding
    basis = basis.astype(np.float32)
    return {"values": values, "curvature": curvature, "basis": basis, "damping": damping}


@reads_only
def gradient_step(
    state: dict[str, Any],
    total: Any,
    expected: float,
    sigma: float,
    scaling: dict[str, Any] | None = None,
    *,
    scale: float | None,
    learning_rate: float,
    momentum: float,
    half: int,
    adam: bool,
    rate: float,
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
    scaling
        As `step_scaling` returns it, or None to divide by the expected number of rows.
    scale
        A factor of the sum, for rows divided by their radius; None for the state's clip norm, of a
        sum in units of that.
    learning_rate, momentum
        Of the mean, or scaled, gradient.
    half
        After how many rounds the mean of iterates begins.
    adam
        Whether each coordinate has its own step size.
    rate
        The probability with which a row is in a round.
    """
    rounds = int(state["round"]) + 1
    scale = float(state["clip"]) if scale is None else scale
    if scaling is None:
        # the sum over the expected number of rows, which is public: the sample's own is private
        mean = np.asarray(total) * (scale / expected)
    else:
        # single precision too where the basis was read from a document: the same steps follow
        values = np.asarray(scaling["values"])
        basis = np.asarray(scaling["basis"], dtype=np.float32)
        # the sum over all rows that this round's is expected to be, and its noise; 1e-300 keeps
        # the quotient finite where neither data nor noise is left
        gradient = np.asarray(total).reshape(-1, len(values)) * (scale / rate)
        noise_of_round = sigma * scale / rate
        state = {**state, "noise": noise_of_round}
        rho = scaling["damping"] * noise_of_round
        # columns of a few scores: of the transposes OpenBLAS takes three quarters of the time
        columns = np.ascontiguousarray(gradient.T, dtype=basis.dtype)
        along = basis.T @ columns / (values + rho + 1e-300)[:, None]
        mean = (basis @ along.astype(basis.dtype)).T.reshape(-1)
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


@reads_only
def adaptive_clipping_step(
    state: dict[str, Any],
    total: Any,
    short: float,
    expected: float,
    sigma: float,
    scaling: dict[str, Any] | None = None,
    *,
    quantile: float,
    following: float,
    **constants: Any,
) -> dict[str, Any]:
    """Return the state after a round whose sum is in units of the clip norm, which then follows.

    ``C <- C exp(-rate (b - quantile))``, b the released share of short gradients (Andrew et al.
    2021, Algorithm 1), kept in [-1, 2] against noise, and C in [1e-9, 1e9].
    """
    clip = float(state["clip"])
    after = gradient_step(state, total, expected, sigma, scaling, scale=None, **constants)
    share = min(max(float(short) / expected, -1.0), 2.0)
    return {**after, "clip": min(max(clip * math.exp(-following * (share - quantile)), 1e-9), 1e9)}


def released_target_sum(
    problem: Linear, target: str, free: str, weight: float, share: float
) -> tuple[Released[float], Released[float]]:
    """Return the sum of the targets less the middle of their bounds, and its noise's deviation.

    It is released with a share of the total cost in mu^2.
    """
    middle, _ = problem.target_scale
    query = (problem.table[target] - middle).sum()
    spread = math.sqrt((1 - share) / share) * weight * query_sensitivity(query, problem.table)
    total = query.release(Gaussian(sigma=Free(free, weight=spread)), name="target_sum")
    return total, parameter(total, "sigma")


def started_at_mean(
    state: dict[str, Any],
    total: float,
    sigma: float,
    expected: float,
    spread: float,
    *,
    half: float,
    radius: float,
    rate: float,
) -> dict[str, Any]:
    """Return the state before the first round, where it predicts the mean for every row.

    The mean is shrunk towards the middle of the bounds (`boosted_ssp.shrunk_mean`).

    Parameters
    ----------
    state
        Of zeros.
    total, sigma
        The noisy sum of the targets less the middle of their bounds, and its noise.
    expected, spread
        The number of rows to expect in a round, and the noise of the number of all rows.
    half
        Half of the width of the target's bounds.
    radius
        The largest norm of a row.
    rate
        The probability with which a row is in a round.
    """
    v = np.zeros(len(np.asarray(state["v"])))
    # rows are divided by R, and so is their 1
    v[0] = radius * shrunk_mean(total / half, sigma / half, expected / rate, spread)
    return {**state, "v": v, "mean": v}


def noise_variances(
    values: Any, divisors: Any, noise: float, *, steps: int, learning_rate: float, momentum: float
) -> Any:
    """Return the variance that noise alone gives the mean of the last half of a descent's rounds.

    Along an eigenvector of the matrix of second derivatives, of value H, a round is linear:
    ``d = (H v + noise) / M``, ``u <- momentum u + d``, ``v <- v - learning_rate (d + momentum u)``.
    The covariance of v, u and the mean follows from round to round.

    Parameters
    ----------
    values, divisors
        H and M, shapes (d,).
    noise
        The deviation of a round's noise.
    steps, learning_rate, momentum
        Of the descent.
    """
    contraction, added = values / divisors, noise / divisors
    count = len(contraction)
    zero, one = np.zeros(count), np.ones(count)
    own = learning_rate * (1 + momentum)
    v = np.stack([one - own * contraction, -learning_rate * momentum**2 * one, zero], axis=1)
    u = np.stack([contraction, momentum * one, zero], axis=1)
    entry = np.stack([-own * added, added, zero], axis=1)
    spread = np.zeros((count, 3, 3))
    for number in range(1, steps + 1):
        weight = 1 / max(number - steps // 2, 1)
        mean = weight * v + (1 - weight) * np.array([0.0, 0.0, 1.0])
        move = np.stack([v, u, mean], axis=1)
        jump = entry.copy()
        jump[:, 2] = weight * entry[:, 0]
        spread = move @ spread @ np.swapaxes(move, 1, 2) + jump[:, :, None] * jump[:, None, :]
    return spread[:, 2, 2]


def mean_or_start(
    state: dict[str, Any],
    start: dict[str, Any],
    scaling: dict[str, Any],
    *,
    steps: int,
    learning_rate: float,
    momentum: float,
    radius: float,
) -> Any:
    """Return the mean of the last half of the rounds' parameters, as far as it is no noise.

    What the rounds added to the start is shrunk by the share of its size that noise alone explains
    (James and Stein 1961), in the norm of errors of predictions.
    """
    noise = float(state["noise"])
    divisors = np.asarray(scaling["values"]) + float(scaling["damping"]) * noise + 1e-300
    curvature = np.asarray(scaling["curvature"])
    own: dict[str, Any] = {"steps": steps, "learning_rate": learning_rate, "momentum": momentum}
    variances = noise_variances(curvature, divisors, noise, **own)
    begun = np.asarray(start["v"])
    added = np.asarray(state["mean"]) - begun
    size = float(np.sum(curvature * (np.asarray(scaling["basis"]).T @ added) ** 2))
    kept = max(0.0, 1 - float(np.sum(curvature * variances)) / max(size, 1e-300))
    return (begun + kept * added) / radius


def mean_of_last(state: dict[str, Any], *, radius: float) -> Any:
    """Return the mean of the last half of the rounds' parameters, for rows as they are."""
    # parameters of rows divided by their radius, brought back to rows as they are
    return np.asarray(state["mean"]) / radius
