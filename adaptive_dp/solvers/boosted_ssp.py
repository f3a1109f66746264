"""Boosted SSP: a noisy second-moment matrix, and steps on clipped gradients that it scales."""

from __future__ import annotations

import math
from typing import Any

from attrs import field, frozen

from adaptive_dp.graph.convert import texts
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.group import group
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, parameter, post, public
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.repeat import repeat
from adaptive_dp.primitives.gaussian import Gaussian, largest_mu, sigma_for
from adaptive_dp.problems import Squared
from adaptive_dp.queries.table import Table
from adaptive_dp.solvers import boosted_steps as steps
from adaptive_dp.solvers.budget import both_or_neither
from adaptive_dp.solvers.linear import Model, linear
from adaptive_dp.solvers.regression import columns


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
    (`adaptive_dp.solvers.boosted_steps`). *The ridge* lambda is 0.3 of the edge of the matrix's
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
    {'intercept': 5.0, 'age': 0.3}
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

        query = vectors.clip(norm=steps.SHORT * radius).gram()
        gram = query.release(noise(query, steps.SHARE), name="second_moments")
        scaling = post(steps.scaling, gram, parameter(gram, "sigma"), square=radius**2)

        def step(state: Released[Any]) -> Released[Any]:
            at = post(steps.coefficients, state, radius=radius)
            each = problem.rows.gradients(Squared(), at=at)
            query = each.squares(clip=radius)
            squares = query.release(noise(query, steps.of_step(steps.SQUARES)), name="squares")
            spread = parameter(squares, "sigma")
            clip = post(steps.clip_now, scaling, squares, spread, radius=radius)
            total = each.sum(clip=clip)
            share = steps.of_step(1 - steps.SQUARES)
            gradient = total.release(noise(total, share), name="gradient")
            sigma = parameter(gradient, "sigma")
            return post(steps.stepped, state, gradient, sigma, clip, scaling, radius=radius)

        start = post(steps.standing, public(problem.width))
        state = repeat(step, steps.STEPS, start=start)
        return group(
            "BoostedSSP", problem.model(post(steps.shrunk, state, scaling, radius=radius)), table
        )
