"""How boosted SSP goes on from what it has released: all of it is post-processing.

Everything is in units in which rows are at most 1 long and targets lie on [-1, 1].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray
from scipy.special import lambertw

from adaptive_dp.erm import Squared
from adaptive_dp.graph.handles import (
    PrivateQuery,
    Released,
    change_at,
    group,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.values import texts
from adaptive_dp.learning.base import Model, both_or_neither, columns, linear
from adaptive_dp.learning.ssp import edge, spectrum
from adaptive_dp.mechanisms.additive import Gaussian, largest_mu, sigma_for
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

GUESS = 0.05
"""The mean squared gradient that is believed before anything is released."""

WEIGHT = 50.0
"""How many times the noise of the squares' sum, in rows, the guess counts as much as."""

LEAST = 0.5
"""The narrowest clip, over the root mean square of the gradients' norms."""


def of_step(part: float) -> float:
    """Return the share of mu^2 of a part of one step."""
    return (1 - SHARE) / STEPS * part


def step_size(number: int) -> float:
    """Return eta of a step, counted from 0.

    Examples
    --------
    >>> [round(step_size(t), 2) for t in range(STEPS)]
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.33, 0.25, 0.2, 0.17, 0.14]
    """
    return 1 / (2 + max(0, number - STEPS // 2 + 1))


def inverse_root(gram: Array, sigma: float, *, square: float) -> dict[str, Any]:
    """Return what a noisy matrix of rows shortened to 1/2 says of steps.

    Parameters
    ----------
    gram, sigma
        The matrix G, shape (d, d), and the noise on its diagonal.
    square
        By what both are divided.

    Returns
    -------
    Eigenvalues v (those below 0 raised to it), eigenvectors, the ridge lambda, about how many rows
    there are (fewer than ``4 tr G`` there cannot be; the trace is taken as at least its noise, of
    standard deviation ``sqrt(d) sigma``), and c of `reach`.
    """
    matrix, noise = np.asarray(gram) / square, sigma / square
    values, basis = spectrum(matrix)
    ridge = RIDGE * edge(noise, len(values))
    rows = max(float(np.trace(matrix)), noise * math.sqrt(len(values))) / SHORT**2
    # G moves by 1/4 where g moves by 1; of an exchange by sqrt(2)/4 and 2, which is not looked at
    step = noise / SHORT**2 * math.sqrt(SHARE / of_step(1 - SQUARES))
    reached = reach(values, ridge, step, rows)
    return {"values": values, "basis": basis, "ridge": ridge, "rows": rows, "reach": reached}


def reach(values: Array, ridge: float, noise: float, rows: float) -> float:
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
    variances = np.zeros(len(values))
    for number in range(STEPS):
        variances = _later(variances, values, ridge, noise, number)
    k = float(np.sum(values * variances)) / rows * SHORT**2
    return max(float(lambertw(math.exp(-2) / max(k, 1e-300)).real) / 2, LEAST)


def _later(variances: Array, values: Array, ridge: float, noise: float, number: int) -> Array:
    """Return the variances of v along the eigenvectors after one step more."""
    eta = step_size(number)
    kept = 1 - eta * values / (values + ridge)
    return np.asarray(variances * kept**2 + (eta * noise / (values + ridge)) ** 2)


def clip_now(scaling: dict[str, Any], squares: float, spread: float, *, radius: float) -> float:
    """Return C times R, C at most 1.

    The squares' noisy sum is averaged with a guess, which counts the more the more noise there is.
    """
    rows, prior = float(scaling["rows"]), WEIGHT * spread
    mean = max((squares + prior * GUESS) / (rows + prior), 0.05 * GUESS)
    return radius * min(max(float(scaling["reach"]) * math.sqrt(mean), 2.0**-6), 1.0)


def standing(width: int) -> dict[str, Any]:
    """Return the state before the first step."""
    zero = np.zeros(int(width))
    return {"v": zero, "variances": zero, "round": 0}


def stepped(
    state: dict[str, Any],
    gradient: Any,
    sigma: float,
    clip: float,
    scaling: dict[str, Any],
    *,
    radius: float,
) -> dict[str, Any]:
    """Return the state after a step; ``gradient`` and its noise are in units of the clip."""
    number, size = int(state["round"]), clip / radius
    values, basis, ridge = scaling["values"], scaling["basis"], scaling["ridge"]
    along = (basis.T @ np.asarray(gradient)) * size / (values + ridge)
    v = np.asarray(state["v"]) - step_size(number) * (basis @ along)
    variances = _later(np.asarray(state["variances"]), values, ridge, sigma * size, number)
    return {"v": v, "variances": variances, "round": number + 1}


def coefficients(state: dict[str, Any], *, radius: float) -> Array:
    """Return the coefficients of features as they are, from those of features divided by R."""
    return np.asarray(state["v"]) / radius


def shrunk(state: dict[str, Any], scaling: dict[str, Any], *, radius: float) -> Array:
    """Return the coefficients, times ``1 - E v'Gv of noise alone / v'Gv`` where that is above 0.

    As James and Stein do, with the norm in which errors of predictions are measured.
    """
    values, along = scaling["values"], scaling["basis"].T @ np.asarray(state["v"])
    size = float(np.sum(values * along**2))
    noise = float(np.sum(values * np.asarray(state["variances"])))
    return coefficients(state, radius=radius) * max(0.0, 1 - noise / max(size, 1e-300))


# -----------------------------------------------------------------------------
# Boosted SSP: a noisy second-moment matrix, and steps on clipped gradients that it scales.


@frozen
class BoostedSSP:
    """Least squares by ten steps on clipped gradients, scaled by a noisy matrix, as a subgraph.

    Features are mapped from their declared bounds into [-1, 1] (where a bound is 0, 0 stays 0) and
    with an intercept divided by R, the largest norm that they can have; targets onto [-1, 1].
    Released are

    1. ``G``, the matrix X'X of rows shortened to 1/2, with a quarter of mu^2;
    2. ten times, with the rest: ``q``, the mean square of the gradients' norms ``|x| |y - x'v|``;
       and ``g``, the sum of the gradients ``x (y - x'v)``, each shortened to C. Each time
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
    noise and bias. *In the end* v is shrunk by the share of its size that noise alone explains.

    With a budget, all releases are calibrated together on Gaussian-DP's exact profile; without one
    the noise is ``Free``.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Tang et al. 2023 (boosted AdaSSP): its matrix is released with its least eigenvalue, its clip is
    fixed, and its steps are whole. Lev et al. 2026 (iterative Hessian mixing) draw a fresh sketch
    of the matrix for each step. James and Stein 1961: the shrinkage. The ridge, the clip, and the
    steps' sizes are our own; their constants were chosen on public data, where the error is flat in
    each of them.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> model = people.solve(dp.BoostedSSP(["age"], "days"), epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(model=model).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> {name: round(value, 1) for name, value in found.items()}
    {'intercept': 5.1, 'age': 0.3}
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    free: str = "sigma"

    def __attrs_post_init__(self) -> None:
        columns("BoostedSSP", self.features, self.target)

    def build(self, table: Table, epsilon: float | None, delta: float | None) -> Released[Model]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first.

        Parameters
        ----------
        table
            The rows to learn from.
        epsilon, delta
            The learner's budget, both or neither.
        """
        both_or_neither("BoostedSSP", epsilon, delta)
        vectors = table.vectors(self.features, scale=True, intercept=True, zero=True)
        problem = linear(table, self.features, self.target, Squared(), None)
        radius = problem.radius
        mu = None if epsilon is None or delta is None else largest_mu(epsilon, delta) * (1 - 1e-9)
        change = change_at(table)

        def noise(query: PrivateQuery[Any], share: float) -> Gaussian:
            asked, domain = query.operation, query.inputs[0].domain
            assert isinstance(asked, Query)
            size = asked.sensitivity(domain, change, 2)
            if mu is None:
                return Gaussian(sigma=Free(self.free, weight=size / math.sqrt(share)))
            return Gaussian(sigma=sigma_for(mu * math.sqrt(share), size, asked.dimension(domain)))

        query = vectors.clip(norm=SHORT * radius).gram()
        gram = query.release(noise(query, SHARE), name="second_moments")
        scaling = post(inverse_root, gram, parameter(gram, "sigma"), square=radius**2)

        def step(state: Released[Any]) -> Released[Any]:
            at = post(coefficients, state, radius=radius)
            each = problem.rows.gradients(Squared(), at=at)
            query = each.squares(clip=radius)
            squares = query.release(noise(query, of_step(SQUARES)), name="squares")
            spread = parameter(squares, "sigma")
            clip = post(clip_now, scaling, squares, spread, radius=radius)
            total = each.sum(clip=clip)
            share = of_step(1 - SQUARES)
            gradient = total.release(noise(total, share), name="gradient")
            sigma = parameter(gradient, "sigma")
            return post(stepped, state, gradient, sigma, clip, scaling, radius=radius)

        start = post(standing, public(problem.width))
        state = repeat(step, STEPS, start=start)
        return group(
            "BoostedSSP", problem.model(post(shrunk, state, scaling, radius=radius)), table
        )
