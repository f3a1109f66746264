"""Linear models by objective perturbation: no step size, no clipping, no number of rounds."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional

from accountants import (
    Basic,
    Distribution,
    DomainError,
    Pure,
    Renyi,
    Repeated,
    Sequential,
    Spend,
    Term,
    calibrate,
)
from accountants import Gaussian as GaussianLoss
from accountants.numerics import down, up
from adaptive_dp.erm import Extended, Logistic, Loss, Multinomial, Poisson, Squared
from adaptive_dp.erm.losses import loss_string
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, parameter, post, public
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Change
from adaptive_dp.learning.base import (
    CHECK,
    WEIGHED,
    LearnerBudget,
    Model,
    WeightedLearner,
    check_share,
    checked_classes,
    gaussian_noise,
    linear,
    query_sensitivity,
    within,
)
from adaptive_dp.mechanisms.additive import Laplace, largest_mu
from adaptive_dp.mechanisms.objective_perturbation import (
    PerturbedObjective,
    PurePerturbedObjective,
    check_loss,
    log_determinant,
    softmax_classes,
)
from adaptive_dp.queries.table import Table

RIDGE, SEARCH = 0.1, 0.01
"""The shares of epsilon that go to the determinant and, where it is pure, to the search."""

REACH = 5.0
"""How far noise alone may move parameters along a direction that rows, of norm 1, do not have."""

BLUR = 400.0
"""The noise that hides the search's stopping point, over the Lipschitz constant, in units of sigma.

It costs a two-hundredth of the noise's mu, whose square is added: next to nothing."""


def _loss(value: Any) -> Loss:
    if not isinstance(value, Loss):
        raise DeclarationError(f"a loss such as dp.Logistic() is needed, got {value!r}")
    loss: Loss = value
    if isinstance(loss, Squared):
        loss = Extended(loss, reach=1.0)
    elif isinstance(loss, Poisson):
        loss = Extended(loss, reach=max(1.0, math.log(loss.most)))
    check_loss("ObjectivePerturbation", loss)
    return loss


@frozen
class ObjectivePerturbation(WeightedLearner[Model]):
    """A linear model that minimizes the sum of its losses with noise in the objective.

    ``sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, with rows divided by the largest norm that
    they can have. A tenth of epsilon pays for the determinant, which gives the ridge; next to
    nothing, or a hundredth where ``delta=0`` asks for pure epsilon, for stopping the search; the
    rest is noise. Of more than two classes the logistic loss is that of a softmax, one model of all
    classes. By other losses each class is learned against the rest: each of the models reads every
    row, and the budget covers them all. Of the logistic loss a part of the budget pays for a check:
    where the model is not right more often than the most frequent class, that is the answer
    (`adaptive_dp.learning.base.checked_classes`).

    A ridge that is given is used where it leaves epsilon for noise; else it is raised until
    half of epsilon is left, as the plan shows.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        A column of categories for losses of classes, with bounds for losses of numbers.
    loss
        A convex loss of one score with bounded first and second derivatives: `Logistic` (of several
        classes `Multinomial`), `SmoothedHinge` or `HuberHinge` of classes, `Huber` of numbers, or
        one of your own with `Loss.precise`. Squared and Poisson losses have no bounded slope, and
        the theorem takes no bound on the coefficients, which would bound it: they go on in a
        straight line for predictions beyond the target's bounds (`erm.Extended`, whose reach may
        be given).
    ridge
        For rows of norm at most 1; None to spend a tenth of epsilon on it, or less where the ridge
        would be too small for the noise.
    norm
        To which longer rows are clipped: by default 1 where the target is a class, none where it is
        a number. The intercept is penalised like the rest.
    class_weight, sample_weight
        As of `adaptive_dp.learning.base.WeightedLearner`: what rows weigh.
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

    loss: Loss = field(factory=Logistic, converter=_loss)
    ridge: float | None = field(default=None, validator=optional(within(1e-9, 1e12)))
    norm: float | None = None
    free: str = "sigma"

    title: ClassVar[str] = "objective perturbation"

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature in data units, of each class if several."""
        weights = self.weights(table, partial(self._class_noise, table, budget))
        problem = linear(
            table, self.features, self.target, self.loss, self.norm, classes=True, weights=weights
        )
        # several classes of log odds: one model of all; of other losses one for each against the
        # rest, so that their costs add up
        classes = len(problem.classes)
        softmax = bool(classes) and type(self.loss) is Logistic
        loss: Loss = Multinomial(classes) if softmax else self.loss
        count = 1 if softmax else classes or 1
        mechanism, check = self._mechanism(budget, change_at(table), count, problem.width, loss)
        if problem.classes and not softmax:
            fits = [
                problem.rows.as_query(against=k).release(
                    mechanism, name=f"{value} against the rest"
                )
                for k, value in enumerate(problem.classes)
            ]
            # in the order of the classes, which `linear_coefficients` reads row by row
            theta: Released[Any] = post(concatenate, *fits)
        else:
            theta = problem.rows.as_query().release(mechanism, name="coefficients")
        if not self._is_checked:
            return problem.model(theta)

        def release(
            query: PrivateQuery[Any], name: str, part: float
        ) -> tuple[Released[Any], Released[float]]:
            if budget is not None and budget.delta == 0:
                # epsilons add up; 1e-12 covers their rounding
                scale = query_sensitivity(query, table, 1) / (check * part) * (1 + 1e-12)
                released = query.release(Laplace(scale=scale), name=name)
                return released, public(math.sqrt(2) * scale)
            weight = math.sqrt((1 - CHECK) / (CHECK * part)) if budget is None else 1.0
            noise = gaussian_noise(
                query,
                table,
                check or None,
                free=self.free,
                share=part if check else 1.0,
                weight=weight,
            )
            released = query.release(noise, name=name)
            return released, parameter(released, "sigma")

        return problem.model(checked_classes(problem, self.target, theta, release))

    @property
    def _is_checked(self) -> bool:
        """Whether the parameters are compared with the most frequent class.

        Log odds alone are; and where rows weigh differently, to be right often is not all.
        """
        return isinstance(self.loss, Logistic) and not self.is_weighted

    @property
    def _counted(self) -> float:
        """The share of epsilon that the number of each class's rows has."""
        return WEIGHED if self.class_weight == "balanced" else 0.0

    def _class_noise(
        self, table: Table, budget: LearnerBudget | None, query: PrivateQuery[Any]
    ) -> Mechanism:
        """Return the noise of the number of each class's rows: pure, `WEIGHED` of epsilon."""
        sensitivity = query_sensitivity(query, table, 1)
        if budget is None:
            return Laplace(scale=Free(self.free, weight=sensitivity * (1 - WEIGHED) / WEIGHED))
        # rounded up: a larger scale costs less
        return Laplace(scale=up(sensitivity / (self._counted * budget.epsilon), 8))

    def _mechanism(
        self, budget: LearnerBudget | None, change: Change, count: int, width: int, loss: Loss
    ) -> tuple[Mechanism, float]:
        """Return the mechanism of each of ``count`` models, and what their check costs.

        ``width`` is the number of features, ``loss`` that of a model.

        The cost is a mu, an epsilon where delta is 0, and 0 where the noise is free.
        """
        loss_name, limits = loss_string(self.weighed(loss)), loss.constants()
        # the determinant of a row is at most (1 + curvature / ridge)^logs
        logs, curvature = 1, limits.smoothness
        if loss.outputs > 1:
            logs, curvature = loss.outputs - 1, 1 / loss.outputs
        if budget is None:
            ridge: Any = self.ridge or Free(self.free, weight=2 * limits.smoothness)
            sigma = Free(self.free, weight=limits.lipschitz)
            blur = Free(self.free, weight=BLUR)
            return PerturbedObjective(sigma, ridge, blur, loss_name), 0.0
        epsilon, delta = budget.epsilon, budget.delta
        if not (1e-6 <= epsilon <= 1e4 and 0 <= delta < 1):
            raise DeclarationError(
                f"ObjectivePerturbation needs epsilon in [1e-6, 1e4] and delta in [0, 1), got "
                f"{epsilon!r} and {delta!r}"
            )
        # what a model has of epsilon: of it are the ridge's share and, where delta is 0, all but
        # that of the check; 1e-9 covers the sum's rounding
        check = CHECK * epsilon if self._is_checked and delta == 0 else 0.0
        counted = self._counted * epsilon
        model_epsilon = (epsilon - counted - check) / count * (1 - 1e-9)
        # the noise of a budget without determinants; a softmax's delta is divided by the number of
        # other classes
        one = deviation_of(model_epsilon * (1 - RIDGE) * count, delta / logs, width * loss.outputs)
        one *= change.both * limits.lipschitz
        # what such noise spares of a softmax's determinants (`accountants.losses.perturbation`)
        spared = change.both / (2 * one * one) if delta else model_epsilon / (4 * change.both)
        # the ridge at which the determinants of all rows that may change cost RIDGE of epsilon
        cost = RIDGE * model_epsilon / change.rows
        ridge = self.ridge or ridge_for(loss_name, curvature, cost, spared)
        if self.ridge is None:
            # along a direction without rows parameters are the noise over the ridge: where epsilon
            # is large that ridge is too small for it, and a larger one costs less
            noise = one * (math.sqrt(count) if delta else count)
            if loss.outputs > 1:
                # what counts is the difference of two classes' scores
                noise *= math.sqrt(2)
            ridge = max(ridge, min(noise / REACH, limits.smoothness))
        # delta = 0: a part of epsilon pays for the search for the minimizer
        search = SEARCH * model_epsilon if delta == 0 else 0.0
        # a unit of several rows changes as many determinants: each has its share
        ridge, noise_epsilon = split_epsilon(
            (model_epsilon - search) / change.rows, curvature, ridge, logs
        )
        if delta == 0:
            # rounded down: the cost grows with the shift
            shift = down(noise_epsilon * change.rows / change.both, 16)
            if logs > 1:
                shift = _largest_shift(loss_name, ridge, model_epsilon - search, shift, change)
            noise = up(2 / (search - 2.0**-28), 8)
            return PurePerturbedObjective(shift, ridge, noise, loss_name), check
        if self._is_checked:
            # a share of what the determinants leave
            left = LearnerBudget(noise_epsilon * count * change.rows, delta)
            share = check_share(left, max(count, loss.outputs, 2))
            check = largest_mu(left.epsilon, delta) * math.sqrt(share)

        def trial(sigma: float) -> PerturbedObjective:
            return PerturbedObjective(sigma, ridge, BLUR * sigma / limits.lipschitz, loss_name)

        def models(sigma: float) -> Term:
            fits = Repeated(Spend(trial(sigma).loss(change.both, change.rows)), count)
            if counted:
                return Sequential([fits, Spend(Pure(counted))])
            return Sequential([fits, Spend(GaussianLoss(check))]) if check else fits

        alone = count == 1 and not counted and not check
        # near the solution: the noise's part of epsilon, as if all noise were one Gaussian; each
        # model's bound is so many times that Gaussian's profile (`accountants.losses`)
        times = 2 * change.both if change.both > 2 else change.both
        less = max(delta / logs * float(times) ** -count, 1e-300)
        alike = largest_mu(noise_epsilon * count * change.rows, less)
        square = (alike * alike - check * check) / count
        begin = change.both * limits.lipschitz / math.sqrt(square) if square > 0 else 0.0
        begin, digits = begin or limits.lipschitz, 1e-10 if alone else 1e-3
        try:
            while True:
                # all models in one budget, by the accountant that certifies them
                fit = calibrate(
                    models,
                    epsilon=epsilon,
                    delta=delta,
                    accountant=[Basic(), Renyi()] if alone else [Distribution(), Renyi()],
                    cost="decreasing",
                    start=begin,
                    between=(1e-2 * limits.lipschitz, 1e7 * limits.lipschitz),
                    digits=digits,
                )
                # at a large delta epsilon may fall by far more than sigma rises
                if fit.epsilon.upper >= 0.997 * epsilon or digits < 1e-9:
                    break
                begin, digits = float(fit.value), digits / 30
        except DomainError:
            # even the largest noise is not enough: the determinants cost too much
            raise DeclarationError(
                f"epsilon = {epsilon:g} leaves nothing for noise; raise the ridge"
            ) from None
        return trial(float(fit.value)), check


def deviation_of(epsilon: float, delta: float, width: int) -> float:
    """Return the deviation of each of d coordinates of noise that hides a move of 1.

    Gaussian, or where delta is 0 of density ``exp(-epsilon |b|)``, whose ``E |b|^2 = d (d + 1) /
    epsilon^2``.
    """
    return 1 / largest_mu(epsilon, delta) if delta else math.sqrt(width + 1) / epsilon


def ridge_for(of: str, curvature: float, cost: float, spared: float) -> float:
    """Return the ridge at which a row's determinant costs that much; a larger one costs less.

    Examples
    --------
    >>> round(ridge_for("Logistic()", 0.25, 0.1, 0.0), 4)
    2.3771
    >>> round(ridge_for("Multinomial(classes=10)", 0.1, 0.1, 0.01), 4)
    8.207
    """
    if softmax_classes(of) == 1:
        # det(B + a x x') / det(B) <= 1 + a / ridge, a the curvature; beyond e^700 the ridge is next
        # to none as it is
        return curvature / math.expm1(min(cost, 700.0))
    low, high = 1e-9, 1e12
    for _ in range(60):
        middle = math.sqrt(low * high)
        enough = log_determinant(of, middle, spared) <= cost
        low, high = (low, middle) if enough else (middle, high)
    return high


def _largest_shift(of: str, ridge: float, epsilon: float, least: float, change: Change) -> float:
    """Return the shift of which, with a softmax's determinants, all rows cost epsilon at most.

    ``least`` costs no more whatever the shift spares.
    """
    low, high = least, epsilon / change.both
    for _ in range(60):
        middle = (low + high) / 2
        cost = change.both * middle + change.rows * log_determinant(of, ridge, middle / 4)
        low, high = (middle, high) if cost <= epsilon else (low, middle)
    return down(low, 16)


def split_epsilon(
    epsilon: float, smoothness: float, ridge: float, logs: int = 1
) -> tuple[float, float]:
    """Return a ridge, and the part of epsilon that it leaves for the noise, which is positive.

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
    >>> [round(v, 4) for v in split_epsilon(1.0, 0.25, 1.0)]
    [1.0, 0.7769]
    >>> [round(v, 4) for v in split_epsilon(1.0, 0.25, 0.1, logs=2)]
    [0.8802, 0.5]
    """
    # det(B + a x x') / det(B) <= 1 + a / ridge, once for each logarithm
    noise_epsilon = epsilon - logs * math.log1p(smoothness / ridge)
    if noise_epsilon > 0:
        return ridge, noise_epsilon
    # logs log(1 + smoothness / ridge) = epsilon / 2, solved for the ridge; rounded up it costs less
    raised = smoothness / math.expm1(epsilon / (2 * logs))
    return up(raised, 16), epsilon / 2


def concatenate(*fits: Any) -> Any:
    """Return each class's parameters, one after the other."""
    return np.concatenate([np.asarray(fit, dtype=np.float64) for fit in fits])
