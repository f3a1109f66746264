"""DP-FTRL: linear models learned from a stream of batches, without sampling."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.erm import Logistic, Loss
from adaptive_dp.graph.handles import Released, post
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.learning.base import (
    ColumnLearner,
    LearnerBudget,
    Model,
    linear,
    within,
)
from adaptive_dp.learning.descent import released_row_count
from adaptive_dp.mechanisms.follow_the_leader import FollowTheLeader
from adaptive_dp.queries.table import Table

Array = NDArray[np.float64]


@frozen
class DPFTRL(ColumnLearner[Model]):
    """A linear model by follow-the-regularised-leader on correlated noise (DP-FTRL).

    Each unit goes into one of ``steps`` batches, which are read ``epochs`` times; the
    prefix sums of the batches' clipped gradients get noise that is correlated from round to round
    (see `FollowTheLeader`). The number of rows is released first, with one per cent of the cost.

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
        grows more slowly than what they learn, at epsilon .3 to 50 on three sets.
    learning_rate
        For rows of norm at most 1 and mean gradients of a batch.
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
    epochs: int = 10
    learning_rate: float = field(default=4.0, validator=within(1e-9, 1e9))
    clip: float = field(default=1.0, validator=within(1e-9, 1e9))
    norm: float | None = None
    factorization: str = "banded"
    free: str = "sigma"

    title: ClassVar[str] = "DP-FTRL"
    calibrated: ClassVar[bool] = True

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        problem = linear(table, self.features, self.target, self.loss, self.norm)
        unit = FollowTheLeader(1.0, self.steps, self.epochs, self.factorization)
        norm = self.clip * problem.radius
        # Prefix sums are B (C g + noise). A batch's gradient has norm at most the clip norm in each
        # of its epochs, and moves C g by at most that times the l2 norm of C's columns of the
        # batch's rounds, added up: the sensitivity of the matrices.
        sigma = Free(self.free, weight=norm * unit.matrices.sensitivity())
        mechanism = FollowTheLeader(sigma, self.steps, self.epochs, self.factorization)
        batch, _ = released_row_count(table, self.free, rate=1 / self.steps)
        step = post(step_size, batch, by=self.learning_rate / problem.radius**2)
        query = problem.rows.stream(self.loss, clip=norm)
        parameters = query.release(mechanism, given=[step], name="training")
        return problem.model(post(mean_parameters, parameters))


def step_size(rows: float, *, by: float) -> float:
    """Return the step of the parameters for a sum of gradients: ``by`` over the rows of a batch."""
    return by / float(rows)


def mean_parameters(released: Any) -> Array:
    """Return the mean of the parameters over the rounds."""
    mean: Array = np.asarray(released, dtype=np.float64)[0]
    return mean
