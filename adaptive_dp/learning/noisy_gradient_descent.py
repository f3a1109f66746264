"""Noisy gradient descent: every round sees all rows."""

from __future__ import annotations

from typing import ClassVar

from attrs import field, frozen
from attrs.validators import optional

from adaptive_dp.erm import Logistic, Loss, Network
from adaptive_dp.graph.handles import Released
from adaptive_dp.learning.base import (
    LearnerBudget,
    Model,
    WeightedLearner,
    checked_parameters,
    linear,
    within,
)
from adaptive_dp.learning.descent import Descent, class_noise, count_weight, descend
from adaptive_dp.learning.networks import NetworkModel, learned_model
from adaptive_dp.queries.table import Table


@frozen
class NoisyGradientDescent(WeightedLearner[Model | NetworkModel]):
    """A linear model, or a network, by descent on all rows, with Gaussian noise each round.

    A round releases the sum of the rows' gradients, each clipped to a norm C: it moves by at most C
    for a row that comes or goes. T rounds at noise sigma cost what one at ``sigma / sqrt(T)`` does
    (mu adds in squares), whatever the rounds before released. For generalised linear models the
    excess risk follows the rank of the rows, not their number of columns.

    With the squared loss steps start at the target's mean, released with noise of 40 rows, or where
    that costs more a fifth of mu^2; and what they add to it is shrunk in the end by the share of
    its size that noise alone explains: where that is all, the answer is the mean.

    Log odds (`Logistic`, `Multinomial`) are checked in the end: where they are not right more often
    than the most frequent class, that is the answer (`adaptive_dp.learning.base.checked_classes`).

    Parameters
    ----------
    features
        Columns with bounds (mapped onto [-1, 1]) or categories.
    target
        A column of two categories, of several, or with bounds, as the loss reads.
    loss
        For example ``Logistic()``, or ``Network(Logistic(), hidden=32)``.
    steps
        The number of rounds. How far they go follows the noise, not their number.
    learning_rate
        For rows of norm at most 1 (a network's: for rows as they are) and mean gradients. None, of
        a linear model with a smooth loss, for steps that are scaled by the features' second
        moments, released with 2 % of mu^2, and by the noise: see `adaptive_dp.learning.descent`.
    momentum
        The share of the last step that is taken again.
    clip
        The largest norm of a row's gradient, for the same rows; None for 1/2 where the target is
        a class, and where it is a number for 1/5 to 2, the wider the more rows there are for the
        noise, as the released number of rows says.
    norm
        To which longer rows are clipped: by default 1 where the target is a class, and for
        networks, none where it is a number.
    class_weight, sample_weight
        As of `adaptive_dp.learning.base.WeightedLearner`: what rows weigh.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Bassily, Smith and Thakurta 2014, Algorithm 1 (in full batches); Song, Steinke, Thakkar and
    Thakurta 2021 (rank); the cost is the Gaussian's own (Dong, Roth and Su 2022, Corollary 2).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.NoisyGradientDescent(["age"], "ill", steps=20)
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> age = np.linspace(0, 100, 5_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"age": [20, 90]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """

    loss: Loss | Network = field(factory=Logistic)
    steps: int = 120
    learning_rate: float | None = field(default=None, validator=optional(within(1e-9, 1e9)))
    momentum: float = 0.9
    clip: float | None = field(default=None, validator=optional(within(1e-9, 1e9)))
    norm: float | None = None
    free: str = "sigma"

    title: ClassVar[str] = "noisy gradient descent"
    calibrated: ClassVar[bool] = True

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model | NetworkModel]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first.

        Of a network, what `predict` reads: see `adaptive_dp.learning.networks.NetworkModel`.
        """
        loss = self.weighed(self.loss)
        # `Descent` is given in units of rows of norm at most 1; `descend` has the rows as they are
        # sampling rate 1: every round reads all rows, and nothing is amplified
        settings = Descent(self.steps, 1.0, self.clip, self.learning_rate, self.momentum)
        weights = self.weights(table, class_noise(table, settings, self.free))
        problem = linear(table, self.features, self.target, loss, self.norm, weights=weights)
        theta = descend(problem, loss, settings, self.free, target=self.target, budget=budget)
        theta = checked_parameters(
            problem, loss, self.target, theta, self.free, budget, unit=count_weight(settings)
        )
        # the last parameters are made of released gradients: what follows is post-processing
        return learned_model(problem, loss, theta)
