"""NoisySGD: every round sees a Poisson sample of the units."""

from __future__ import annotations

import math
from typing import ClassVar

from attrs import field, frozen
from attrs.validators import optional

from adaptive_dp.erm import Logistic, Loss, Network
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released
from adaptive_dp.learning.base import (
    LearnerBudget,
    Model,
    WeightedLearner,
    checked_parameters,
    linear,
    within,
)
from adaptive_dp.learning.descent import Clipping, Descent, class_noise, count_weight, descend
from adaptive_dp.learning.networks import NetworkModel, learned_model
from adaptive_dp.queries.table import Table


@frozen
class NoisySGD(WeightedLearner[Model | NetworkModel]):
    """A linear model, or a network, by noisy gradients of Poisson samples, clipped.

    Each round reads a Poisson sample: every unit is in it with probability ``sampling_rate``. The
    sum of the sample's clipped gradients is released with Gaussian noise and divided by the
    expected number of rows (not by the sample's own: that number is private). Rounds are amplified
    by sampling, under each neighbour relation, which every accountant takes from the graph.

    Parameters
    ----------
    features, target, loss, learning_rate, momentum, norm, free, class_weight, sample_weight
        As of `NoisyGradientDescent`.
    steps
        The number of rounds; ``steps * sampling_rate`` are the epochs.
    sampling_rate
        The probability with which a unit enters a round.
    clip
        The largest norm of a row's gradient, for rows of norm at most 1 (a network's: for rows as
        they are); with ``adaptive`` the first round's, and a norm that follows a quantile. None for
        a default, as of `NoisyGradientDescent`.
    adam
        A step size of its own for each coordinate; ``learning_rate`` is 0.1 then by default.
    adaptive
        A `Clipping` to follow a quantile of the norms; its count is released beside each gradient.
    reference
        Noisy SVRG: after so many rounds the sum of all rows' gradients is released, and a round
        adds to its share of that what a sample's gradients differ from those at the same point. It
        releases two sums of each sample, and was no better than samples alone: it is here to
        compare with.

    References
    ----------
    Abadi et al. 2016, Algorithm 1; Mironov, Talwar and Zhang 2019 (the sampled Gaussian); Lebeda,
    Regehr, Kamath and Steinke 2024 (the same where a unit is exchanged); Andrew et al. 2021
    (adaptive clipping); Wang, Ye and Xu 2017 (noisy SVRG); Kingma and Ba 2015, Algorithm 1, and
    Tang, Shpilevskiy and Lecuyer 2024 (Adam, freed of the noise's variance). The exact percentile
    of a round's norms, as it is sometimes printed, is not private: one row can move the sum by any
    amount.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.NoisySGD(["age"], "ill", steps=50, sampling_rate=0.1)
    >>> plan = dp.Pipeline(model=people.solve(learner)).fix(sigma=1.0)
    >>> plan.certify(delta=1e-6)
    <certificate epsilon=6.11888 delta=1e-06 by distribution>
    """

    loss: Loss | Network = field(factory=Logistic)
    steps: int = 500
    # a rate of 1 is allowed, and then a round reads all rows
    sampling_rate: float = field(default=0.02, validator=within(1e-12, 1))
    learning_rate: float | None = field(default=None, validator=optional(within(1e-9, 1e9)))
    momentum: float = 0.9
    clip: float | None = field(default=None, validator=optional(within(1e-9, 1e9)))
    adaptive: Clipping | None = None
    adam: bool = False
    reference: int | None = None
    norm: float | None = None
    free: str = "sigma"

    title: ClassVar[str] = "NoisySGD"
    calibrated: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        rounds = self.reference
        if rounds is None:
            return
        if type(rounds) is not int or rounds < 1 or self.steps % rounds:
            raise DeclarationError(
                f"NoisySGD.reference must be a number of rounds by which its {self.steps} steps "
                f"can be divided, got {rounds!r}"
            )
        if self.adaptive is not None or self.sampling_rate >= 1:
            raise DeclarationError(
                "NoisySGD with a reference needs a fixed clip and a sampling rate below 1: leave "
                "out adaptive, or take NoisyGradientDescent"
            )

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget, checked; refuse a delta that rounds without any noise would keep."""
        budget = super().budget(epsilon, delta)
        # the probability with which a unit is in any sample; where it is in none it tells nothing
        read = -math.expm1(self.steps * math.log1p(-min(self.sampling_rate, 1 - 1e-16)))
        # a reference reads every unit
        sampled = self.sampling_rate < 1 and self.reference is None
        if budget is not None and sampled and read <= budget.delta < 1:
            raise DeclarationError(
                f"NoisySGD needs a delta below {read:.3g}, the probability with which a unit is in "
                f"any of {self.steps} samples of rate {self.sampling_rate:g}, got {delta!r}: its "
                "rounds would keep that without noise"
            )
        return budget

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model | NetworkModel]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first.

        Of a network, what `predict` reads: see `adaptive_dp.learning.networks.NetworkModel`.
        """
        loss = self.weighed(self.loss)
        settings = Descent(
            self.steps,
            self.sampling_rate,
            self.clip,
            self.learning_rate,
            self.momentum,
            self.adaptive,
            self.adam,
            self.reference,
        )
        weights = self.weights(table, class_noise(table, settings, self.free))
        problem = linear(table, self.features, self.target, loss, self.norm, weights=weights)
        theta = descend(problem, loss, settings, self.free, target=self.target, budget=budget)
        theta = checked_parameters(
            problem, loss, self.target, theta, self.free, budget, unit=count_weight(settings)
        )
        # a linear model's parameters go back to data units, a network's stay as they are
        return learned_model(problem, loss, theta)
