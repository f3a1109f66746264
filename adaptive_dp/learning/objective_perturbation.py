"""Linear models by objective perturbation: no step size, no clipping, no number of rounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import field, frozen

from accountants import Renyi
from accountants.numerics import down, up
from adaptive_dp.erm import Logistic, Loss
from adaptive_dp.erm import losses as names
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, change_at, group, post
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.values import texts
from adaptive_dp.learning.base import Model, both_or_neither, columns, linear
from adaptive_dp.mechanisms.objective_perturbation import PerturbedObjective, PurePerturbedObjective
from adaptive_dp.queries.table import Table

RIDGE, SEARCH = 0.1, 0.01
"""The shares of epsilon that go to the determinant and, where it is pure, to the search."""

BLUR = 400.0
"""The search costs a two-hundredth of the noise's mu, whose square is added: next to nothing."""


def _loss(value: Any) -> Loss:
    if not isinstance(value, Loss):
        raise DeclarationError(f"a loss such as dp.Logistic() is needed, got {value!r}")
    return value


@frozen
class ObjectivePerturbation:
    """A linear model that minimizes the sum of its losses with noise in the objective.

    ``sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, with rows divided by the largest norm that
    they can have. A tenth of epsilon pays for the determinant, which gives the ridge; next to
    nothing, or a hundredth where ``delta=0`` asks for pure epsilon, for stopping the search; the
    rest is noise. Labels of more than two classes are learned one against the rest: each of the
    models reads every row, and the budget covers them all.

    A ridge that is given is kept where it leaves epsilon for noise; else it is raised until
    half of epsilon is left, as the plan shows.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        The labels: a column of categories for `Logistic`, with bounds for losses of numbers.
    loss
        A convex loss of one score with bounded first and second derivatives.
    ridge
        For rows of norm at most 1; None to spend a tenth of epsilon on it.
    norm
        To which longer rows are clipped: by default 1 where the target is a class, none where it is
        a number. The intercept is penalised like the rest.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2; Kifer, Smith and Thakurta 2012; Redberg,
    Koskela and Wang 2023 (the shares). The privacy proof is `accountants.losses`'s own.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.ObjectivePerturbation(["age"], "ill")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=0))
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> age = np.linspace(0, 100, 1_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"age": [20, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    loss: Loss = field(factory=Logistic, converter=_loss)
    ridge: float | None = None
    norm: float | None = None
    free: str = "sigma"

    def __attrs_post_init__(self) -> None:
        columns("ObjectivePerturbation", self.features, self.target)
        if self.ridge is not None and not (1e-9 <= self.ridge <= 1e12):
            raise DeclarationError(
                f"ObjectivePerturbation.ridge must be in [1e-9, 1e12] or None, got {self.ridge!r}"
            )

    def build(self, table: Table, epsilon: float | None, delta: float | None) -> Released[Model]:
        """Return the coefficients by feature in the data's units, of each class if several."""
        both_or_neither("ObjectivePerturbation", epsilon, delta)
        problem = linear(table, self.features, self.target, self.loss, self.norm, classes=True)
        count = len(problem.classes) or 1
        mechanism = self._mechanism(epsilon, delta, change_at(table), count)
        if problem.classes:
            fits = [
                problem.rows.every(against=k).release(mechanism, name=f"{value} against the rest")
                for k, value in enumerate(problem.classes)
            ]
            theta: Released[Any] = post(together, *fits)
        else:
            theta = problem.rows.every().release(mechanism, name="coefficients")
        return group("objective perturbation", problem.model(theta), table)

    def _mechanism(
        self, epsilon: float | None, delta: float | None, change: Change, count: int
    ) -> Mechanism:
        written, limits = names.text(self.loss), self.loss.constants()
        if epsilon is None or delta is None:
            ridge: Any = self.ridge or Free(self.free, weight=2 * limits.smoothness)
            sigma = Free(self.free, weight=limits.lipschitz)
            return PerturbedObjective(sigma, ridge, Free(self.free, weight=BLUR), written)
        if not (1e-6 <= epsilon <= 1e4 and 0 <= delta < 1):
            raise DeclarationError(
                f"ObjectivePerturbation needs epsilon in [1e-6, 1e4] and delta in [0, 1), got "
                f"{epsilon!r} and {delta!r}"
            )
        each = epsilon / count * (1 - 1e-12)
        ridge = self.ridge or limits.smoothness / math.expm1(RIDGE * each / change.rows)
        search = SEARCH * each if delta == 0 else 0.0
        ridge, left = remaining((each - search) / change.rows, limits.smoothness, ridge)
        if delta == 0:
            shift = down(left * change.rows / change.both, 16)
            return PurePerturbedObjective(shift, ridge, up(2 / (search - 2.0**-28), 8), written)

        def trial(sigma: float) -> PerturbedObjective:
            return PerturbedObjective(sigma, ridge, BLUR * sigma / limits.lipschitz, written)

        def enough(sigma: float) -> bool:
            loss = trial(sigma).loss(change.both, change.rows)
            if loss.profile(each).upper <= delta / count * (1 - 1e-12):  # type: ignore[union-attr]
                return True
            accountant = Renyi()
            state = accountant.compose(accountant.start(), loss, count)
            return count > 1 and accountant.epsilon(state, delta).upper <= each * count

        low, high = 1e-2 * limits.lipschitz, 1e7 * limits.lipschitz
        if not enough(high):
            raise DeclarationError(
                f"epsilon = {epsilon:g} leaves nothing for noise; raise the ridge"
            )
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        return trial(high)


def remaining(
    epsilon: float, smoothness: float, ridge: float, logs: int = 1
) -> tuple[float, float]:
    """Return a ridge, and what it leaves of epsilon for the noise: more than nothing.

    Parameters
    ----------
    epsilon
        For the determinant and the noise.
    smoothness
        Of a row's loss.
    ridge
        Kept if ``epsilon - logs * log(1 + smoothness / ridge)`` is positive; else raised until
        that is half of epsilon.
    logs
        How often the logarithm is paid for: 2 in Chaudhuri, Monteleoni and Sarwate 2011.

    Examples
    --------
    >>> [round(v, 4) for v in remaining(1.0, 0.25, 1.0)]
    [1.0, 0.7769]
    >>> [round(v, 4) for v in remaining(1.0, 0.25, 0.1, logs=2)]
    [0.8802, 0.5]
    """
    left = epsilon - logs * math.log1p(smoothness / ridge)
    if left > 0:
        return ridge, left
    raised = smoothness / math.expm1(epsilon / (2 * logs))
    return up(raised, 16), epsilon / 2


def together(*fits: Any) -> Any:
    """Return each class's parameters, one after the other."""
    return np.concatenate([np.asarray(fit, dtype=np.float64) for fit in fits])
