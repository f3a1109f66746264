"""Boosted SSP: least squares by gradient steps that a noisy second-moment matrix scales.

First the post-processing of what is released, then the learner. Everything is in units in which
rows have norm at most 1 and targets lie on [-1, 1].
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional
from numpy.typing import NDArray
from scipy.special import lambertw

from adaptive_dp.erm import Squared
from adaptive_dp.graph.handles import PrivateQuery, Released, parameter, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.learning.base import (
    ColumnLearner,
    LearnerBudget,
    Model,
    gaussian_noise,
    linear,
    query_sensitivity,
)
from adaptive_dp.learning.ssp import nonnegative_spectrum, spectral_edge
from adaptive_dp.mechanisms.additive import checked, largest_mu
from adaptive_dp.queries.domains import Interval
from adaptive_dp.queries.table import Table

Array = NDArray[np.float64]

SHARE = 0.25
"""The matrix's share of mu^2; the steps share the rest evenly."""

SQUARES = 0.04
"""The part of a step's mu^2 that the size of its gradients is released with."""

STEPS = 10

SHORT = 0.5
"""The norm to which the matrix's rows are shortened, over the largest that they can have.

Then ``X'X <= 4 G``, and steps of half of ``G^{-1} g`` cannot diverge.
"""

RIDGE = 0.3
"""The ridge over the spectral norm of the matrix's noise."""

GUESS = 0.03
"""The mean squared norm of gradients that is thought likely before any release.

Its standard deviation, before any release, is as large.
"""

WANDER = 0.2
"""By how much of itself the mean squared norm is thought to change in a step."""

WIDE = 2.0
"""Where squared norms are clipped, over the root of what their mean is thought to be."""

MEAN, MEAN_ROWS = 0.2, 40.0
"""The largest share of mu^2 of the target's mean, and its noise, in rows, where that costs less.

With a share p the error of the mean is ``A / p`` and that of all slopes ``B / (1 - p)``, which
together are least at ``p = 1 / (1 + sqrt(B / A))``. B / A is taken as 16, about the number of
slopes: p is a fifth.
"""

FIRST, FIRST_MOST = 3.0, 0.3
"""The mean's share of mu^2 where n is public: 3 over n mu, at most .3.

The more rows there are, the more of what the start lacks is mended by the steps.
"""

COUNTED = 1 / 3
"""Of that the share of the number of rows, on which a mean near the middle depends less."""

PRIOR = 1 / 3
"""The variance that a mean is thought to have before anything is known of it.

That of a number which is uniform between its bounds, with half of their width as the unit.
"""

LEAST = 0.5
"""The narrowest clip, over the root mean square of the gradients' norms."""


def share_of_step(part: float) -> float:
    """Return the share of the learner's mu^2 that a part of one step has."""
    return (1 - SHARE) / STEPS * part


def mean_share(mu: float | None, part: float) -> float:
    """Return the share of the learner's mu^2 that the target's sum is released with.

    Examples
    --------
    >>> [round(mean_share(mu, 1.0), 4) for mu in (0.03, 0.25, 2.0)]
    [0.2, 0.01, 0.0002]
    """
    if mu is None:  # of noise that a plan calibrates nothing is known
        return MEAN / 4
    return min(MEAN, 1 / (MEAN_ROWS * mu) ** 2) / part


def step_size(number: int) -> float:
    """Return eta of a step, counted from 0.

    Examples
    --------
    >>> [round(step_size(t), 2) for t in range(STEPS)]
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.33, 0.25, 0.2, 0.17, 0.14]
    """
    return 1 / (2 + max(0, number - STEPS // 2 + 1))


def step_scaling(gram: Array, sigma: float, *, square: float) -> dict[str, Any]:
    """Return the scaling of steps by a noisy matrix of rows shortened to 1/2.

    Parameters
    ----------
    gram, sigma
        The matrix G, shape (d, d), and the noise on its diagonal.
    square
        By what both are divided.

    Returns
    -------
    Eigenvalues v (those below 0 raised to it), eigenvectors, the noise on the diagonal, the ridge
    lambda, about how many rows there are (fewer than ``4 tr G`` there cannot be; the trace is taken
    as at least its noise, of standard deviation ``sqrt(d) sigma``), and c of `clip_factor`.
    """
    matrix, noise = np.asarray(gram) / square, sigma / square
    values, basis = nonnegative_spectrum(matrix)
    ridge = RIDGE * spectral_edge(noise, len(values))
    rows = max(float(np.trace(matrix)), noise * math.sqrt(len(values))) / SHORT**2
    # the noise of g from that of G, by their sensitivities and shares of mu^2: G moves by 1/4
    # where g moves by 1 (exchanged rows, sqrt(2)/4 and 2, are not told apart: utility only)
    step = noise / SHORT**2 * math.sqrt(SHARE / share_of_step(1 - SQUARES))
    factor = clip_factor(values, ridge, step, rows)
    known = {"values": values, "basis": basis, "noise": noise}
    return {**known, "ridge": ridge, "rows": rows, "clip": factor}


def clip_factor(values: Array, ridge: float, noise: float, rows: float) -> float:
    """Return c, the clip over the root mean square of the gradients' norms, at least `LEAST`.

    *Noise.* With s the noise of a step in each coordinate for C = 1, the errors of all steps add
    ``C^2 s^2 sum F_i v_i / (v_i + lambda)^2 / n`` to the mean squared error, where ``F_i = sum_t
    (eta_t prod_{u > t} (1 - eta_u v_i / (v_i + lambda)))^2``. With ``C^2 = c^2 r^2 tr G / n``, r^2
    the mean squared residual and ``tr G = n / 4``, that is ``k c^2`` of r^2.

    *Bias.* Of residuals with an exponential tail on one side, in units of r, what is beyond c is
    ``exp(-(c + 1))`` on average. Its square is what the error grows by, if all of it went into the
    fit; half of that is counted.

    ``k c^2 + exp(-2 (c + 1)) / 2`` is least where ``2 k c = exp(-2 (c + 1))``, which is
    ``c = W(exp(-2) / k) / 2``, W Lambert's function.
    """
    # v starts at 0, without noise; each round adds its own
    variances = np.zeros(len(values))
    for number in range(STEPS):
        variances = next_variances(variances, values, ridge, noise, number)
    k = float(np.sum(values * variances)) / rows * SHORT**2
    # 1e-300 and `LEAST` keep the argument and the clip positive
    return max(float(lambertw(math.exp(-2) / max(k, 1e-300)).real) / 2, LEAST)


def next_variances(
    variances: Array, values: Array, ridge: float, noise: float, number: int
) -> Array:
    """Return the variances of v along the eigenvectors after another step."""
    eta = step_size(number)
    # along an eigenvector a step of size eta contracts v by this factor
    contraction = 1 - eta * values / (values + ridge)
    # independent noise: the old variance contracted, the new one added
    return np.asarray(variances * contraction**2 + (eta * noise / (values + ridge)) ** 2)


def squares_bound(state: dict[str, Any], *, radius: float) -> float:
    """Return the norm to which gradients' norms are clipped before they are squared and summed."""
    return radius * min(WIDE * math.sqrt(float(state["square"])), 1.0)


def measured(
    state: dict[str, Any], scaling: dict[str, Any], squares: float, spread: float
) -> dict[str, Any]:
    """Return the state that knows the mean squared norm of the gradients after another release.

    The mean q is thought of as a Gaussian number that wanders from step to step, of which each
    release is a noisy measurement (Kalman 1960). Norms are clipped at twice the root of what q was
    thought to be, so that noise is in proportion to q too; q may grow fourfold in a step.

    Parameters
    ----------
    state, scaling
        As of `initial_state` and `step_scaling`.
    squares, spread
        The noisy sum of squares over the squared bound (`squares_bound`), and its noise.
    """
    thought = float(state["square"])
    # the unit of the sum, over the number of rows
    unit = squares_bound(state, radius=1.0) ** 2 / float(scaling["rows"])
    doubt = float(state["doubt"]) + (WANDER * thought) ** 2
    noise = (unit * float(spread)) ** 2
    # the posterior mean of two Gaussians
    mean = thought + doubt / (doubt + noise) * (unit * float(squares) - thought)
    # a noisy sum may be negative: a step takes at most .7 of it away
    mean = min(max(mean, 0.3 * thought, 1e-4), 1.0)
    return {**state, "square": mean, "doubt": doubt * noise / (doubt + noise)}


def clip_norm(state: dict[str, Any], scaling: dict[str, Any], *, radius: float) -> float:
    """Return the clip norm C times R, C in [2^-6, 1]."""
    wanted = float(scaling["clip"]) * math.sqrt(float(state["square"]))
    return radius * min(max(wanted, 2.0**-6), 1.0)


def initial_state(width: int) -> dict[str, Any]:
    """Return the state before the first step, where it is at 0."""
    zero = np.zeros(int(width))
    known = {"square": GUESS, "doubt": GUESS**2, "rows": 0.0}
    return {"start": zero, "v": zero, "variances": zero, "round": 0, **known}


def start_at_mean(
    total: float,
    sigma: float,
    count: float,
    spread: float,
    *,
    half: float,
    width: int,
    radius: float,
) -> dict[str, Any]:
    """Return the state before the first step, where it predicts the target's mean for all rows.

    The mean of n rows is ``m = S / n``, and its error ``sqrt(sigma^2 + m^2 spread^2) / n``. It is
    shrunk towards the middle of the bounds: where rows are too few to tell, that is no worse an
    answer.

    Parameters
    ----------
    total, sigma
        The noisy sum of the targets less the middle of their bounds, and its noise.
    count, spread
        The noisy number of rows, and its noise; 0 of a public number.
    half
        Half of the width of the target's bounds, 1 in the units of v.
    width, radius
        The number of coefficients, the intercept's first, and R.
    """
    start = np.zeros(width)
    # rows are divided by R, and so is their 1
    start[0] = radius * shrunk_mean(total / half, sigma / half, count, spread)
    rows = max(float(count) - float(spread), 0.0)
    return {**initial_state(width), "start": start, "v": start, "rows": rows}


def shrunk_mean(total: float, sigma: float, count: float, spread: float) -> float:
    """Return the mean of numbers in [-1, 1] by their noisy sum and number, shrunk towards 0.

    Examples
    --------
    >>> [round(shrunk_mean(-40.0, noise, 100.0, 2.0), 3) for noise in (2.0, 20.0, 200.0)]
    [-0.399, -0.357, -0.031]
    """
    # a number of rows that noise explains is as large as its noise
    rows = max(float(count), 2 * float(spread), 1.0)
    mean = min(max(float(total) / rows, -1.0), 1.0)
    error = math.hypot(float(sigma), mean * float(spread)) / rows
    return shrunk(mean, error)


def shrunk(mean: float, error: float) -> float:
    """Return the posterior mean by a mean and its error, were noise and prior Gaussian."""
    return mean * PRIOR / (PRIOR + error**2)


def gradient_step(
    state: dict[str, Any],
    gradient: Any,
    sigma: float,
    clip: float,
    scaling: dict[str, Any],
    *,
    radius: float,
) -> dict[str, Any]:
    """Return the state after a step; ``gradient`` and its noise are in units of the clip."""
    number, norm = int(state["round"]), clip / radius
    values, basis, ridge = scaling["values"], scaling["basis"], scaling["ridge"]
    # (G_+ + lambda I)^-1 g in the eigenvectors' coordinates
    # the gradient is in units of the clip: `norm` brings it to those of rows of norm 1
    direction = (basis.T @ np.asarray(gradient)) * norm / (values + ridge)
    v = np.asarray(state["v"]) - step_size(number) * (basis @ direction)
    # the noise's deviation in the same units
    variances = next_variances(np.asarray(state["variances"]), values, ridge, sigma * norm, number)
    return {**state, "v": v, "variances": variances, "round": number + 1}


def coefficients(state: dict[str, Any], *, radius: float) -> Array:
    """Return the coefficients of features as they are, from those of features divided by R."""
    # a feature that is R times as large has a coefficient of 1/R
    return np.asarray(state["v"]) / radius


def shrunk_coefficients(state: dict[str, Any], scaling: dict[str, Any], *, radius: float) -> Array:
    """Return the coefficients: what steps added to the start, shrunk by the noise in it.

    What they added, u, is the mean prediction m, ``(G u)_0 / G_00`` of the intercept alone, and the
    rest, which is 0 on average over rows and across m in the norm in which errors of predictions
    are measured: ``u'Gu = m^2 G_00 + rest``. Noise moves m far less than the rest, which has all
    slopes. So both are shrunk apart, as James and Stein do, each by ``1 - E`` of its size by noise
    alone ``/`` its size, where that is above 0: where noise alone explains both, the start is the
    answer.

    To the rest's noise belongs that of the sample, since what few rows say by chance is as wrong of
    others as what was added for privacy. Residuals of mean square r^2 give g the covariance ``r^2
    G``, of which along an eigenvector of value v the steps follow the share ``f = 1 - prod (1 -
    eta_t v / (v + lambda))``: u'Gu is larger by r^2 times the sum of the f^2, less 1 for the mean.
    Gradients have the mean squared norm ``q = r^2 tr G / n`` where no row is shortened for G; q is
    taken two of its errors below what it is thought to be.
    """
    start = np.asarray(state["start"])
    rest = np.asarray(state["v"]) - start
    # `values` are the eigenvalues of G_+, in whose basis u'Gu is a weighted sum of squares
    values, basis = scaling["values"], scaling["basis"]
    variances = np.asarray(state["variances"])
    shares = values / (values + float(scaling["ridge"]))
    first = values * basis[0]
    # G_00 is no less than its noise: where it is lost in that, m is
    rows = max(float(first @ basis[0]), float(scaling["noise"]))
    mean = float(first @ (basis.T @ rest)) / rows
    moved = float(first**2 @ variances) / rows**2
    rest[0] -= mean
    size = float(values @ (basis.T @ rest) ** 2)
    noise = float(values @ variances) - rows * moved
    followed = 1 - np.prod([1 - step_size(t) * shares for t in range(STEPS)], axis=0)
    # at least as many rows as the matrix says
    counted = max(float(state["rows"]), float(scaling["rows"]))
    # surely so large: of a small budget hardly more is known of q than what was guessed
    square = max(float(state["square"]) - 2 * math.sqrt(float(state["doubt"])), 0.0)
    residual = square * counted / (float(scaling["rows"]) * SHORT**2)
    # the sample's, of all directions but the mean's
    noise += residual * max(float(followed @ followed) - 1, 0.0)
    shrunken = start + rest * kept(size, noise)
    shrunken[0] += mean * kept(mean**2, moved)
    return np.asarray(shrunken / radius)


def kept(size: float, noise: float) -> float:
    """Return what is left of numbers of some size of which noise alone explains a part."""
    return max(0.0, 1 - max(noise, 0.0) / max(size, 1e-300))


# -----------------------------------------------------------------------------
# The learner.


@frozen
class BoostedSSP(ColumnLearner[Model]):
    """Least squares by ten steps on clipped gradients, scaled by a noisy matrix, as a subgraph.

    Features are mapped from their declared bounds into [-1, 1] (where a bound is 0, 0 stays 0) and
    with an intercept divided by R, the largest norm that they can have; targets onto [-1, 1].
    Released are

    1. ``S``, the sum of the targets less the middle of their bounds, and the number of rows, with
       noise of about 40 rows, or where that costs more a fifth of mu^2: steps start at the mean of
       all rows. Of a public number of rows n the sum is released alone, with ``3 / (n mu)`` of
       mu^2, at most .3;
    2. ``G``, the matrix X'X of rows shortened to 1/2, with a quarter of the rest;
    3. ten times, with what is left: the sum of the squares of the gradients' norms
       ``|x| |y - x'v|``, each clipped to twice the root of what their mean ``q`` was before; and
       ``g``, the sum of the gradients ``x (y - x'v)``, each shortened to C. Each time
       ``v += eta (G_+ + lambda I)^{-1} g``.

    Against one release of X'X and X'y this has two advantages. The matrix's noise no longer moves
    the point at which the steps aim, only how fast they come there. And noise is in proportion to
    C, which follows the gradients as they shrink, in place of 1.

    What follows is computed from released values and costs nothing
    (`adaptive_dp.learning.boosted_ssp`). *The ridge* lambda is 0.3 of the edge of the matrix's
    noise (Wigner's semicircle, as in `SSP`). *Steps* are of 1/2 in the first half of the rounds and
    then of 1/3, 1/4, ...: these average the last rounds, where directions that the matrix knows
    have converged, so that their noise is that of several rounds together; directions buried in its
    noise only ever get small steps, and go on. *The clip* is ``C = c sqrt(q)``, c from balancing
    noise and bias, q from all squares so far (`measured`). *In the end* what steps added to the
    mean, and to slopes, is shrunk by the shares of their sizes that noise alone explains.

    With a budget, all releases are calibrated together on Gaussian-DP's exact profile; without one
    the noise is ``Free``.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    rows
        About how many rows there are, if that is public: where they are few, a number that is far
        off is a mean that is. The guarantee does not rest on it.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Tang et al. 2023 (boosted AdaSSP): its matrix is released with its least eigenvalue, its clip is
    fixed, and its steps have size 1. Lev et al. 2026 (iterative Hessian mixing) draw a new sketch
    of the matrix for each step. James and Stein 1961: the shrinkage. Kalman 1960: q. The ridge, the
    clip, and the steps' sizes are our own; their constants were chosen on public data, where the
    error is flat in each of them.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> model = people.solve(dp.BoostedSSP(["age"], "days"), epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(model=model).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> age = np.linspace(0, 100, 5_000)
    >>> model = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> {name: round(value, 1) for name, value in model.items()}
    {'intercept': 5.0, 'age': 0.3}
    """

    rows: int | None = field(
        default=None,
        kw_only=True,
        validator=optional(checked(lambda v: type(v) is int and v >= 1, "an int of at least 1")),
    )
    free: str = "sigma"

    title: ClassVar[str] = "BoostedSSP"

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        # the factor keeps the sum of the shares' squares below mu^2, rounding included
        mu = None
        if budget is not None:
            mu = largest_mu(budget.epsilon, budget.delta) * (1 - 1e-9)
        return self.share_of(table, mu, 1.0)

    def share_of(self, table: Table, mu: float | None, part: float) -> Released[Model]:
        """Return the coefficients, with a part of a mu^2 that is shared with other releases."""
        # `zero=True`: where a bound is 0, the value 0 stays 0
        vectors = table.vectors(self.features, scale=True, intercept=True, zero=True)
        problem = linear(table, self.features, self.target, Squared(), None)
        radius = problem.radius

        # bounds that are equal, or so near that half of their width is rounded to 0, have no mean
        wide = isinstance(table.domain.find(self.target), Interval) and problem.target_scale[1] > 0
        middle, half = problem.target_scale
        centre = mean_share(mu, part) if wide else 0.0
        if wide:
            # targets less the middle of their bounds: none is larger than half of the width
            total = (table[self.target] - middle).sum()
            if self.rows is not None and mu is not None:
                # rows times the learner's own mu, over the half widths by which a unit moves it
                own_mu = mu * math.sqrt(part) * half / query_sensitivity(total, table)
                centre = min(FIRST_MOST, FIRST / (self.rows * own_mu))

        # shares of mu^2: `centre` for the target's sum, of the rest SHARE for the matrix and
        # (1 - SHARE) / STEPS for each step, 1 in all
        def release(query: PrivateQuery[Any], share: float, name: str) -> Released[Any]:
            # a share of mu^2: sigma is sensitivity / (mu sqrt(share))
            own = share * (1 - centre) * part
            noise = gaussian_noise(query, table, mu, free=self.free, share=own)
            return query.release(noise, name=name)

        gram = release(vectors.clip(norm=SHORT * radius).gram(), SHARE, "second_moments")
        scaling = post(step_scaling, gram, parameter(gram, "sigma"), square=radius**2)

        def step(state: Released[Any]) -> Released[Any]:
            # the query is at released coefficients: adaptive composition covers it
            at = post(coefficients, state, radius=radius)
            gradients = problem.rows.gradients(Squared(), at=at)
            # clips are computed from released values: whatever they are, a row adds at most 1 to
            # both sums, in units of them
            bound = post(squares_bound, state, radius=radius)
            squares = release(gradients.squares(clip=bound), share_of_step(SQUARES), "squares")
            state = post(measured, state, scaling, squares, parameter(squares, "sigma"))
            clip = post(clip_norm, state, scaling, radius=radius)
            share = share_of_step(1 - SQUARES)
            gradient = release(gradients.sum(clip=clip), share, "gradient")
            sigma = parameter(gradient, "sigma")
            return post(gradient_step, state, gradient, sigma, clip, scaling, radius=radius)

        start = post(initial_state, public(problem.width))
        if wide:
            # a public number of rows is not released
            counted = COUNTED if self.rows is None else 0.0
            asked: list[tuple[str, float, PrivateQuery[Any]]] = [("target_sum", 1 - counted, total)]
            units: dict[str, Any] = {"count": self.rows, "spread": 0.0}
            if self.rows is None:
                asked, units = [*asked, ("number_of_rows", counted, table.count())], {}
            noisy: list[Released[Any]] = []
            for name, share, query in asked:
                own = share * centre * part
                noise = gaussian_noise(query, table, mu, free=self.free, share=own)
                released = query.release(noise, name=name)
                noisy += [released, parameter(released, "sigma")]
            units |= {"half": half, "width": problem.width, "radius": radius}
            start = post(start_at_mean, *noisy, **units)
        state = repeat(step, STEPS, start=start)
        # shrinkage reads released values only
        return problem.model(post(shrunk_coefficients, state, scaling, radius=radius))
