"""AdaOPS: ridge regression by one posterior sample, as cold as the data at hand allow."""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen

from accountants.numerics import down
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, group, post, public
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.values import texts
from adaptive_dp.instance.posterior_mechanisms import (
    PerturbedCoefficients,
    PosteriorSample,
    TruncatedPosterior,
    bounds_of,
    largest_dominated_gamma,
    row_range,
)
from adaptive_dp.learning.base import Coefficients, Regression, budget, columns, inside, regression
from adaptive_dp.mechanisms.additive import largest_mu, sigma_for
from adaptive_dp.mechanisms.released_bounds import LowerBound, UpperBound, margin
from adaptive_dp.queries.moments import LEAST, MOST, REACH, SLACK, CoefficientNorm, LeastEigenvalue
from adaptive_dp.queries.table import Table

BOUND, FAILURE = 0.1, 1 / 16
"""Each bound's share of mu^2, and of delta."""

SAMPLE_FAILURE = 1 / 4
"""The sample's share of delta; the rest is the Gaussians'."""


@frozen
class AdaOPS:
    """Ridge regression by one posterior sample whose temperature follows the data, as a subgraph.

    Features and target are mapped from their declared bounds onto [-1, 1], rows (with an intercept)
    divided by their largest norm, or clipped to ``norm`` and divided by it. Released are

    1. a lower bound l of the least eigenvalue of ``X'X``; from it the ridge,
       ``max(1, h - l)`` by default, h where the draw's noise balances the bias;
    2. an upper bound of ``log(1 + |theta|)``, theta the ridge's coefficients: with
       ``h = ridge + l`` it moves by at most ``log(1 + 1/h)``;
    3. one draw of ``N(theta, (1/gamma) (X'X + ridge I)^-1)``, gamma the largest for which the exact
       loss is a Gaussian's of mu, by what 1 and 2 say, but for a failure.

    With gamma given, it is proposed and tested instead: where what 1 and 2 say does not allow it,
    the coefficients are NaN (generalised propose-test-release).

    *Privacy.* 1 and 2 are Gaussian releases whose losses hold for all data; that of 2 whatever 1
    says. 3 holds for all pairs of neighbours for which the bounds are right, and by the theorem of
    `adaptive_dp.mechanisms.released_bounds` each bound's failure costs its probability, once. So
    the
    whole is ``(epsilon, delta)`` with ``mu^2 = mu_1^2 + mu_2^2 + mu_3^2`` and
    ``delta = f_1 + f_2 + f_3 + (1 - f_1 - f_2 - f_3) delta_mu(epsilon)``; 1 and 2 take a tenth of
    mu^2 each. One row a unit, under add_remove or zero_out.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    norm
        By default the largest that the scaled features can have, so that nothing is clipped.
    ridge
        A public ridge, for rows of norm at most 1, instead of one that follows l.
    gamma
        A public gamma to propose, for rows of norm at most 1.

    References
    ----------
    Wang 2018 (AdaOPS); Redberg, Zhu and Wang 2023 (generalised propose-test-release). Neither the
    papers' constants nor their losses are used: those are not private as printed.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> model = people.solve(dp.AdaOPS(["age"], "days"), epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(model=model).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by distribution>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    norm: float | None = None
    ridge: float | None = None
    gamma: float | None = None

    def __attrs_post_init__(self) -> None:
        columns("AdaOPS", self.features, self.target)
        if self.ridge is not None:
            inside("AdaOPS.ridge", self.ridge, LEAST, MOST)
        if self.gamma is not None:
            inside("AdaOPS.gamma", self.gamma, 1e-100, 1e100)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first.

        Parameters
        ----------
        table
            The rows to learn from, one a unit.
        epsilon, delta
            The learner's budget.
        """
        total = budget("AdaOPS", epsilon, delta)
        rows = regression(table, self.features, self.target, self.norm)
        name = "AdaOPS" if self.gamma is None else "propose-test-release"
        return group(name, rows.coefficients(self._sample(rows, *total)), table)

    def _sample(self, rows: Regression, epsilon: float, delta: float) -> Released[object]:
        spare = delta * (1 - 2 * FAILURE - SAMPLE_FAILURE)
        mu = largest_mu(epsilon, spare) * (1 - 1e-9)
        failure = delta * FAILURE * (1 - 1e-9)
        ridge, bound, size = released_bounds(rows, mu, failure, self.ridge)
        share = mu * math.sqrt(1 - 2 * BOUND)
        promise = {"mu": share, "failure": delta * SAMPLE_FAILURE * (1 - 1e-9)}
        gamma = (
            post(allowed_gamma, ridge, bound, size, **promise)
            if self.gamma is None
            else public(float(self.gamma))
        )
        return rows.exact().release(
            PosteriorSample(**promise), given=[ridge, gamma, bound, size], name="posterior_sample"
        )


def released_bounds(
    rows: Regression, mu: float, failure: float, ridge: float | None
) -> tuple[Released[float], Released[float], Released[float]]:
    """Return a ridge, a lower bound of the least eigenvalue, an upper one of what it bounds.

    Parameters
    ----------
    mu, failure
        Of the whole: each bound takes a tenth of ``mu^2``, and fails with ``failure``.
    ridge
        A public one, or None for `least_ridge`.
    """
    sigma = sigma_for(mu * math.sqrt(BOUND), (1 + SLACK) * (1 + 1e-9), 1)
    noise = LowerBound(sigma, failure, REACH), UpperBound(sigma, failure, REACH)
    bound = rows.query(LeastEigenvalue()).release(noise[0], name="smallest_eigenvalue")
    chosen: Released[float]
    if ridge is None:
        share = mu * math.sqrt(1 - 2 * BOUND)
        wide = margin(sigma, failure, REACH)
        chosen = post(least_ridge, bound, width=rows.width, mu=share, margin=wide)
    else:
        chosen = public(float(ridge))
    size = rows.query(CoefficientNorm(), chosen, bound).release(noise[1], name="coefficient_norm")
    return chosen, bound, size


def least_ridge(bound: float, *, width: int, mu: float, margin: float) -> float:
    """Return the ridge: with ``h = ridge + bound`` the draw's noise falls, the bias rises.

    The draw adds ``d / gamma`` to the sum of squares, about ``d (1 + |theta|)^2 / (mu^2 h)``, and
    ``e^{2 margin / h}`` times as much where the bound of ``1 + |theta|`` is that far off; the ridge
    adds up to ``ridge |theta|^2``. The h that balances them at ``|theta| = 1`` is aimed at.
    """
    heights = np.geomspace(1.0, 2.0**30, 1000)
    with np.errstate(over="ignore"):
        noise = 4 * width / mu**2 * np.exp(2 * margin / heights) / heights
    height = float(heights[np.argmin(heights + noise)])
    return max(1.0, height - max(0.0, bound))


def allowed_gamma(ridge: float, bound: float, size: float, *, mu: float, failure: float) -> float:
    """Return the largest gamma that passes `PosteriorSample`'s test; 0 where none does."""
    known = bounds_of(ridge, bound, size)
    return 0.0 if known is None else largest_dominated_gamma(known, mu, failure)


# -----------------------------------------------------------------------------
# OPS: ridge regression by one posterior sample, for any data.


@frozen
class OPS:
    """Ridge regression by one draw of the posterior, kept to a ball: pure epsilon, any data.

    Features and target are mapped from their declared bounds onto [-1, 1], rows (with an intercept)
    divided by their largest norm R, or clipped to ``norm`` and divided by it. The draw's density is
    ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on ``|w| <= R radius``. A row that comes or goes
    moves the log density by a range of ``gamma (1 + R radius)^2 / 2`` (``2 gamma R radius`` where
    that is below 1), so a budget of epsilon gives ``gamma = 2 epsilon / (1 + R radius)^2``; delta
    is not used. `AdaOPS` knows the data, and
    therefore needs less noise where they are many.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    radius
        The largest norm of coefficients that there may be, of columns on [-1, 1].
    norm
        By default the largest that the scaled features can have.
    ridge
        For rows of norm at most 1.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Wang, Fienberg and Smola 2015 (one posterior sample); Durfee and Rogers 2019 (bounded range).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> plan = dp.Pipeline(model=people.solve(dp.OPS(["age"], "days"), epsilon=1.0, delta=0))
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    radius: float = 1.0
    norm: float | None = None
    ridge: float = LEAST
    free: str = "gamma"

    def __attrs_post_init__(self) -> None:
        columns("OPS", self.features, self.target)
        inside("OPS.radius", self.radius, 1e-3, 1e3)
        inside("OPS.ridge", self.ridge, LEAST, MOST)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first."""
        if epsilon is not None and not (1e-6 <= epsilon <= 1e6):
            raise DeclarationError(
                f"OPS needs an epsilon in [1e-6, 1e6], or none to leave gamma free, got {epsilon!r}"
            )
        rows = regression(table, self.features, self.target, self.norm)
        radius = rows.radius * self.radius
        weight = down(2 / row_range(radius), 32)
        gamma = weight * (1.0 if epsilon is None else epsilon)
        cold = Free(self.free, weight=weight) if epsilon is None else down(gamma, 4)
        sampler = TruncatedPosterior(cold, self.ridge, radius)
        sample = rows.exact().release(sampler, name="posterior_sample")
        return group("OPS", rows.coefficients(sample), table)


# -----------------------------------------------------------------------------
# Output perturbation whose noise follows the data: ridge regression.


@frozen
class AdaptiveOutputPerturbation:
    """Ridge regression with Gaussian noise scaled to a private bound of its local sensitivity.

    As `AdaOPS`, with the coefficients themselves in place of a posterior's draw: released are a
    lower bound of the least eigenvalue, from it the ridge, an upper bound of the coefficients'
    size, and the coefficients with noise ``(1 + T) / (h mu)``, h the ridge and the first bound, T
    the second. The noise falls as ``1 / h``, where output perturbation's at the worst case falls
    only with the ridge. One row a unit, under add_remove or zero_out.

    *Privacy.* As for `AdaOPS`: ``mu^2 = mu_1^2 + mu_2^2 + mu_3^2``, of which the bounds take a
    tenth each, and ``delta = f_1 + f_2 + (1 - f_1 - f_2) delta_mu(epsilon)``.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    norm
        By default the largest that the scaled features can have, so that nothing is clipped.
    ridge
        A public ridge, for rows of norm at most 1, instead of one that follows the first bound.

    References
    ----------
    Redberg, Zhu and Wang 2023; see `PerturbedCoefficients`.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> learner = dp.AdaptiveOutputPerturbation(["age"], "days")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by distribution>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    norm: float | None = None
    ridge: float | None = None

    def __attrs_post_init__(self) -> None:
        columns("AdaptiveOutputPerturbation", self.features, self.target)
        if self.ridge is not None:
            inside("AdaptiveOutputPerturbation.ridge", self.ridge, LEAST, MOST)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first."""
        total, failures = budget("AdaptiveOutputPerturbation", epsilon, delta)
        rows = regression(table, self.features, self.target, self.norm)
        mu = largest_mu(total, failures * (1 - 2 * FAILURE)) * (1 - 1e-9)
        ridge, bound, size = released_bounds(rows, mu, failures * FAILURE * (1 - 1e-9), self.ridge)
        found = rows.exact().release(
            PerturbedCoefficients(mu * math.sqrt(1 - 2 * BOUND)),
            given=[ridge, bound, size],
            name="coefficients",
        )
        return group("adaptive output perturbation", rows.coefficients(found), table)
