"""Phased ERM: each phase learns on rows of its own, near the result of the phase before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.erm import Logistic, Loss
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, post, public
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.values import as_int
from adaptive_dp.learning.base import (
    ColumnLearner,
    LearnerBudget,
    Linear,
    Model,
    checked_parameters,
    linear,
    within,
)
from adaptive_dp.learning.descent import COUNT, released_row_count
from adaptive_dp.mechanisms.additive import Gaussian
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.table import Table


@frozen
class PhasedERM(ColumnLearner[Model]):
    """A linear model by localisation: regularised problems on disjoint parts of the data.

    Each unit goes into one of the phases by its own draw, into phase i with probability near
    ``2^-i``. Phase i minimizes, over its own rows,

    ``sum loss + |w - w_{i-1}|^2 / eta_i``, ``eta_i = eta 4^{1-i}``,

    by gradient descent with noise, centred at the result of the phase before; ``eta = (distance /
    clip) mu / sqrt(d)`` for d parameters and a phase that costs mu. (The source's eta is also at
    most ``(distance / clip) / sqrt(n)``, for losses in general; of linear models that is too strong
    a regulariser at any budget, and its bound of the risk is given up here.) As
    the regulariser grows fourfold, the effect of the same gradient noise on the minimizer falls
    fourfold: few rows are left for the last phases, which only refine. Phases read disjoint rows,
    so that their costs do not add up: all together cost what the costliest does. The number
    of rows is released first, with one per cent of the cost.

    Steps are those of the smoothness of the loss; a phase ends at the mean of its iterates, of
    which the t-th has weight t. Privacy holds for any steps. Log odds are checked in the end, as
    those of `NoisyGradientDescent`.

    Parameters
    ----------
    features
        Columns with bounds (mapped onto [-1, 1]) or categories.
    target
        A column of two categories, of several, or with bounds, as the loss reads.
    loss
        A smooth one, for example ``Logistic()``.
    distance
        A guess of how far the solution is from 0, for rows of norm at most 1.
    phases
        How many.
    rounds
        Steps of gradient descent in a phase.
    clip
        The largest norm of a row's gradient, for rows of norm at most 1.
    norm
        To which longer rows are clipped: by default 1 where the target is a class, none where it is
        a number.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Feldman, Koren and Talwar 2020 (phased ERM, which perturbs an exact minimizer in each phase).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.PhasedERM(["age"], "ill", phases=2, rounds=20)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> age = np.linspace(0, 100, 5_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"age": [20, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """

    loss: Loss = field(factory=Logistic)
    distance: float = field(default=32.0, validator=within(1e-9, 1e9))
    phases: int = 3
    rounds: int = 200
    clip: float = field(default=1.0, validator=within(1e-9, 1e9))
    norm: float | None = None
    free: str = "sigma"

    title: ClassVar[str] = "phased ERM"
    calibrated: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        # steps are inverse to the smoothness: a loss with kinks has none
        if not (isinstance(self.loss, Loss) and math.isfinite(self.loss.constants().smoothness)):
            raise DeclarationError(
                f"PhasedERM.loss must be a smooth Loss such as Logistic(), got {self.loss!r}"
            )
        for name, most in (("phases", 30), ("rounds", 10**6)):
            value = getattr(self, name)
            count = as_int(value)
            # booleans and fractions are not counts: `whole` returns None for them
            if not (count is not None and 1 <= count <= most):
                raise DeclarationError(
                    f"PhasedERM.{name} must be an int between 1 and {most}, got {value!r}"
                )

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        problem = linear(table, self.features, self.target, self.loss, self.norm)
        size = self.loss.outputs * problem.width
        rows, noise = released_row_count(table, self.free)
        # distance / clip for rows of norm R: the distance is 1/R, gradients are R times as large
        reach = self.distance / (self.clip * problem.radius**2)
        eta = post(step_size, noise, reach=reach, size=size)
        # the first phase is centred at 0, which is public
        centre: Released[Any] = public([0.0] * size)
        # the phases' rows are disjoint: a unit is in one of them, and the costs do not add up
        for i, part in enumerate(problem.rows.phases(phase_shares(self.phases))):
            centre = self._phase(problem, part, i, centre, rows, eta)
        # the most expensive phase costs what one release at the free noise does
        checked = checked_parameters(problem, self.loss, self.target, centre, self.free, budget)
        return problem.model(checked)

    def _phase(
        self,
        problem: Linear,
        part: LabeledRows,
        index: int,
        centre: Released[Any],
        rows: Released[float],
        eta: Released[float],
    ) -> Released[Any]:
        """Return a phase's result: its weighted mean iterate, after noisy gradient descent."""
        # a row's gradient is proportional to its norm, and so is the clip
        norm = self.clip * problem.radius
        # T Gaussian releases at sigma sqrt(T) cost what one at sigma does (mu adds in squares)
        noise = Gaussian(sigma=Free(self.free, weight=norm * math.sqrt(self.rounds)))
        # a phase's smoothness per row of the table, of which only this share is in the phase
        steepest = (
            self.loss.constants().smoothness * problem.radius**2 * phase_shares(self.phases)[index]
        )

        def body(state: Released[Any]) -> Released[Any]:
            # the parameters are released values, so that the query at them is adaptive composition
            gradients = part.gradients(self.loss, at=post(parameters, state))
            total = gradients.sum(clip=norm).release(noise, name=f"gradients_{index + 1}")
            # eta_i = eta 4^{1-i}, with i counted from 1
            constants = {"steepest": steepest, "shrink": 0.25**index}
            return post(gradient_step, state, total, centre, rows, eta, **constants)

        # the mean of released iterates is post-processing
        return post(weighted_mean, repeat(body, self.rounds, start=post(initial_state, centre)))


def phase_shares(phases: int) -> list[float]:
    """Return each phase's share of the units: half that of the phase before.

    Examples
    --------
    >>> [round(7 * share, 9) for share in phase_shares(3)]
    [4.0, 2.0, 1.0]
    """
    # shares are 2^-i over their sum, 2^phases - 1 in units of the last phase's
    return [2.0 ** (phases - 1 - i) / (2.0**phases - 1) for i in range(phases)]


def step_size(sigma: float, *, reach: float, size: int) -> float:
    """Return eta, ``reach mu / sqrt(size)``.

    Parameters
    ----------
    sigma
        The noise of the released number of rows.
    reach
        The distance to the solution over the clip norm, for rows as they are.
    size
        The number of parameters.
    """
    # the count has COUNT of the cost, mu_count^2 = 1 / sigma^2, and a phase has the rest
    mu = math.sqrt((1 - COUNT) / COUNT) / float(sigma)
    return reach * mu / math.sqrt(size)


def initial_state(centre: Sequence[float]) -> list[Any]:
    """Return the state before the first step.

    The number of steps, the iterate, the iterates' mean, and the point of the next gradient.
    """
    return [0, list(centre), list(centre), list(centre)]


def parameters(state: Sequence[Any]) -> list[float]:
    """Return the point at which the next gradient is taken."""
    return list(state[3])


def weighted_mean(state: Sequence[Any]) -> list[float]:
    """Return the mean of the iterates, in which step t has weight t."""
    return list(state[2])


def gradient_step(
    state: Sequence[Any],
    gradient: Any,
    centre: Any,
    rows: float,
    eta: float,
    *,
    steepest: float,
    shrink: float,
) -> list[Any]:
    """Return the state after a step on ``sum loss + |w - centre|^2 / (eta shrink)``.

    The step is the inverse of the objective's smoothness, ``L = steepest rows + 2 / (eta shrink)``,
    and with ``r = sqrt(m / L)``, m = ``2 / (eta shrink)`` the strong convexity, the next gradient
    is taken ``(1 - r) / (1 + r)`` of the last move ahead: ``1 / r`` steps do what ``1 / r^2`` do
    without that (Nesterov 2004, Section 2.2.1, constant step scheme III).
    """
    count, before, mean = state[0] + 1, np.asarray(state[1]), np.asarray(state[2])
    ahead = np.asarray(state[3])
    # the regulariser |w - c|^2 / eta_i has the derivative 2 (w - c) / eta_i
    penalty_curvature = 2 / (eta * shrink)
    slope = np.asarray(gradient) + penalty_curvature * (ahead - np.asarray(centre))
    # `rows` is a released count: the step is public, and privacy does not depend on it
    smoothness = steepest * rows + penalty_curvature
    theta = ahead - slope / smoothness
    root = math.sqrt(penalty_curvature / smoothness)
    ahead = theta + (1 - root) / (1 + root) * (theta - before)
    # weight t among 1..t is t / (t (t + 1) / 2) = 2 / (t + 1): a running weighted mean
    mean = mean + 2 / (count + 1) * (theta - mean)
    return [count, theta.tolist(), mean.tolist(), ahead.tolist()]
