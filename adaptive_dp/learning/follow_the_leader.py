"""DP-FTRL: linear models learned from a stream of batches, without sampling."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional
from numpy.typing import NDArray

from adaptive_dp.erm import Logistic, Loss
from adaptive_dp.graph.handles import Released, post
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning.base import (
    ColumnLearner,
    LearnerBudget,
    Model,
    checked_parameters,
    linear,
    within,
)
from adaptive_dp.learning.descent import COUNT, released_row_count
from adaptive_dp.mechanisms.additive import largest_mu
from adaptive_dp.mechanisms.follow_the_leader import FollowTheLeader
from adaptive_dp.queries.table import Table

Array = NDArray[np.float64]

SLOW, FAST, CLEAR = 4.0, 16.0, 0.4
"""The least and the largest learning rate, and the mu from which on it is more than the least."""

EPOCHS, MORE_EPOCHS, LARGE = 10, 20, 4.0
"""The epochs, and those where mu is at least so large (at epsilon 25 and delta 1e-5)."""


@frozen
class DPFTRL(ColumnLearner[Model]):
    """A linear model by follow-the-regularised-leader on correlated noise (DP-FTRL).

    Each unit goes into one of ``steps`` batches, which are read ``epochs`` times; the
    prefix sums of the batches' clipped gradients get noise that is correlated from round to round
    (see `FollowTheLeader`). The number of rows is released first, with one per cent of the cost,
    and log odds are checked in the end, as those of `NoisyGradientDescent`.

    Its privacy rests on no sampling, so that it holds for data in their order, and where units are
    exchanged. Where epsilon is small and all rows can be read often, gradient descent on
    all of them is the better choice.

    Parameters
    ----------
    features
        Columns with bounds (mapped onto [-1, 1]) or categories.
    target
        A column of two categories, of several, or with bounds, as the loss reads.
    loss
        For example ``Logistic()``.
    steps
        The number of batches.
    epochs
        How often each batch is read; 1 for a stream that passes once. More passes cost noise that
        grows more slowly than what they learn, at epsilon .3 to 50 on three sets: by default there
        are 10, and 20 where the budget's mu is at least 4.
    learning_rate
        For rows of norm at most 1 and mean gradients of a batch. None for one that follows the
        noise: 4, and ``10 mu`` where that is more, but at most 16.
    clip
        The largest norm of a row's gradient, for rows of norm at most 1.
    norm
        To which longer rows are clipped: by default 1 where the target is a class, none where it is
        a number.
    factorization
        ``"banded"``, ``"buffered"`` or ``"tree"``.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Kairouz, McMahan, Song, Thakkar, Thakurta and Xu 2021; Choquette-Choo et al. 2023 (epochs).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.DPFTRL(["age"], "ill", steps=20)
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
    steps: int = 100
    epochs: int | None = None
    learning_rate: float | None = field(default=None, validator=optional(within(1e-9, 1e9)))
    clip: float = field(default=1.0, validator=within(1e-9, 1e9))
    norm: float | None = None
    factorization: str = "banded"
    free: str = "sigma"

    title: ClassVar[str] = "DP-FTRL"
    calibrated: ClassVar[bool] = True

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        problem = linear(table, self.features, self.target, self.loss, self.norm)
        epochs = self.epochs
        if epochs is None:
            is_large = (
                budget is not None
                and budget.delta > 0
                and largest_mu(budget.epsilon, budget.delta) >= LARGE
            )
            epochs = MORE_EPOCHS if is_large else EPOCHS
        unit = FollowTheLeader(1.0, self.steps, epochs, self.factorization)
        norm = self.clip * problem.radius
        # Prefix sums are B (C g + noise). A batch's gradient has norm at most the clip norm in each
        # of its epochs, and moves C g by at most that times the l2 norm of C's columns of the
        # batch's rounds, added up: the sensitivity of the matrices.
        sigma = Free(self.free, weight=norm * unit.matrices.sensitivity())
        mechanism = FollowTheLeader(sigma, self.steps, epochs, self.factorization)
        batch, noise = released_row_count(table, self.free, rate=1 / self.steps)
        own = {"learning_rate": self.learning_rate, "square": problem.radius**2}
        step = post(step_size, batch, noise, **own)
        query = problem.rows.stream(self.loss, clip=norm)
        parameters = query.release(mechanism, given=[step], name="training")
        theta = post(mean_parameters, parameters)
        theta = checked_parameters(problem, self.loss, self.target, theta, self.free, budget)
        return problem.model(theta)


def step_size(rows: float, sigma: float, *, learning_rate: float | None, square: float) -> float:
    """Return the step of the parameters for a sum of gradients.

    Parameters
    ----------
    rows, sigma
        Those of a batch, and the noise of the number of all rows, by which mu is known: the number
        has `COUNT` of mu^2.
    learning_rate
        For rows of norm 1; None to follow mu.
    square
        The largest squared norm of a row.

    Examples
    --------
    >>> [round(step_size(1.0, sigma, learning_rate=None, square=1.0), 2) for sigma in (99, 10, 1)]
    [4.0, 9.95, 16.0]
    """
    mu = math.sqrt((1 - COUNT) / COUNT) / float(sigma)
    rate = learning_rate or min(max(SLOW, SLOW / CLEAR * mu), FAST)
    return rate / square / float(rows)


def mean_parameters(released: Any) -> Array:
    """Return the mean of the parameters over the rounds."""
    mean: Array = np.asarray(released, dtype=np.float64)[0]
    return mean
