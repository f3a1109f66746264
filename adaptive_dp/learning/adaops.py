"""AdaOPS: ridge regression by one posterior sample, as cold as the data at hand allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional

from accountants.numerics import down
from adaptive_dp.erm import Logistic, Loss, Squared
from adaptive_dp.erm.losses import loss_string, read
from adaptive_dp.graph.errors import NeighborError
from adaptive_dp.graph.handles import (
    PrivateQuery,
    Released,
    change_at,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Change
from adaptive_dp.instance.following import group_failure
from adaptive_dp.instance.minimizers import (
    PerturbedMinimizer,
    minimizer_sensitivity,
    self_concordance,
)
from adaptive_dp.instance.posterior_mechanisms import (
    PerturbedCoefficients,
    PosteriorSample,
    TruncatedPosterior,
    bounds_of,
    largest_dominated_gamma,
    row_range,
)
from adaptive_dp.learning.base import (
    Coefficients,
    ColumnLearner,
    LearnerBudget,
    Regression,
    calibrated_to,
    linear,
    pure_budget,
    query_sensitivity,
    regression,
    required_budget,
    within,
)
from adaptive_dp.mechanisms.additive import largest_mu, sigma_for
from adaptive_dp.mechanisms.objective_perturbation import PerturbedObjective
from adaptive_dp.mechanisms.released_bounds import LowerBound, UpperBound, margin
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.moments import (
    LEAST,
    MOST,
    REACH,
    CoefficientNorm,
    LeastEigenvalue,
    clamp_released,
    unit,
)
from adaptive_dp.queries.table import Table

EIGENVALUE, SIZE = 0.05, 0.15
"""The bounds' shares of mu^2; the rest is that of what they bound."""

FAILURE = 1 / 16
"""Each bound's share of delta."""

GUESS = 0.5
"""The guess of ``|theta|``, before any release."""

START, DETERMINANT = 0.3, 0.1
"""The first model's shares of mu^2, and of epsilon for its determinants, where there is a loss."""

SAMPLE_FAILURE = 1 / 4
"""The sample's share of delta; the rest is the Gaussians'."""


@frozen
class _BoundedSensitivity(ColumnLearner[Coefficients]):
    """A learner whose noise follows released bounds of the least eigenvalue and of the size."""

    norm: float | None = None
    ridge: float | None = field(default=None, validator=optional(within(LEAST, MOST)))

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget:
        """Return the budget, which is needed: the bounds' failures are shares of delta."""
        return required_budget(type(self).__name__, epsilon, delta)


@frozen
class AdaOPS(_BoundedSensitivity):
    """Ridge regression by one posterior sample whose temperature follows the data, as a subgraph.

    Features and target are mapped from their declared bounds onto [-1, 1], rows (with an intercept)
    divided by their largest norm, or clipped to ``norm`` and divided by it. Released are

    1. a lower bound l of the least eigenvalue of ``X'X``; from it a first ridge,
       ``max(1, h - l)`` by default, h where the draw's noise balances the bias for a guess of
       ``|theta|``;
    2. an upper bound of ``log(1 + |theta|)``, theta that ridge's coefficients: with
       ``h = ridge + l`` it moves by at most ``log(1 + 1/h)``; from it the ridge, larger than the
       first where coefficients are small, so that the draw does not drown them;
    3. one draw of ``N(theta, (1/gamma) (X'X + ridge I)^-1)``, gamma the largest for which the exact
       loss is a Gaussian's of mu, by what 1 and 2 say, but for a failure.

    With gamma given, it is proposed and tested instead: where what 1 and 2 say does not allow it,
    the coefficients are NaN (generalised propose-test-release).

    *Privacy.* 1 and 2 are Gaussian releases whose losses hold for all data; that of 2 whatever 1
    says. 3 holds for all pairs of neighbours for which the bounds are right, and by the theorem of
    `adaptive_dp.mechanisms.released_bounds` each bound's failure costs its probability, once. So
    the learner is ``(epsilon, delta)``-DP with ``mu^2 = mu_1^2 + mu_2^2 + mu_3^2`` and
    ``1 - delta = (1 - f_1) (1 - f_2) (1 - f_3) (1 - delta_mu(epsilon))``; 1 and 2 take 5% and
    15% of mu^2. Where k rows of a unit come and go (2 where one is exchanged), each may cost
    ``mu_3 / k``, and somewhat less than ``f_3 / k`` (`PosteriorSample`).

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
    >>> theta = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(theta["age"], 1)
    0.3
    """

    gamma: float | None = field(default=None, validator=optional(within(1e-100, 1e100)))

    title: ClassVar[str] = "AdaOPS"

    def group_name(self) -> str:
        """Return the name of the method: with a proposed gamma it is propose-test-release."""
        return self.title if self.gamma is None else "propose-test-release"

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Coefficients]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first.

        Parameters
        ----------
        table
            The rows to learn from.
        budget
            What `budget` returned.
        """
        assert budget is not None
        delta = budget.delta
        rows = regression(table, self.features, self.target, self.norm)
        # f_1 = f_2 = delta / 16 for the two bounds, f_3 = delta / 4 for the sample; the Gaussians
        # get the rest. The factors 1 - 1e-9 keep each part below its share, rounding included.
        gaussian_delta = delta_beside(delta, [FAILURE, FAILURE, SAMPLE_FAILURE])
        mu = largest_mu(budget.epsilon, gaussian_delta) * (1 - 1e-9)
        failure = delta * FAILURE * (1 - 1e-9)
        changed = change_at(table).both
        row_mu = mu_of_row(mu, changed)
        row_failure = failure_of_row(delta * SAMPLE_FAILURE * (1 - 1e-9), row_mu, changed)
        promise = {"mu": row_mu, "failure": row_failure}
        first, bound, size = released_bounds(rows, table, mu, failure, self.ridge)
        ridge = first
        if self.ridge is None and self.gamma is None:
            spread = parameter(size, "sigma")
            scale = {
                "width": rows.width,
                "mu": row_mu,
                "failure": failure,
                "reach": changed * REACH,
            }
            ridge = post(shrinking_ridge, first, bound, size, spread, **scale)
        gamma = (
            post(largest_gamma, ridge, bound, size, first, **promise)
            if self.gamma is None
            else public(float(self.gamma))
        )
        theta = rows.exact().release(
            PosteriorSample(**promise),
            given=[ridge, gamma, bound, size, first],
            name="posterior_sample",
        )
        return rows.coefficients(theta)


def delta_beside(delta: float, shares: Sequence[float]) -> float:
    """Return what is left of delta beside failures that are independent and have shares of it.

    ``1 - delta = (1 - left) prod_i (1 - share_i delta)``.

    Examples
    --------
    >>> round(delta_beside(0.5, [0.25, 0.5]), 6)
    0.238095
    """
    left = math.log1p(-delta) - sum(math.log1p(-share * delta) for share in shares)
    return down(-math.expm1(left), 32)


def mu_of_row(mu: float, rows: int) -> float:
    """Return what is left of mu by the bounds, for each of some rows that come and go."""
    # mu^2 = mu_1^2 + mu_2^2 + (k mu_row)^2
    return mu * math.sqrt(1 - EIGENVALUE - SIZE) / rows


def failure_of_row(failure: float, mu: float, rows: int) -> float:
    """Return the failure that each of some rows may have, for them to have ``failure`` together.

    Raises
    ------
    NeighborError
        If even the least failure of a row, 1e-18, would be too much.
    """
    if rows == 1:
        return failure
    low, high = math.log(1e-18), math.log(failure)
    if not group_failure(math.exp(low), mu, rows) <= failure:
        raise NeighborError(
            f"AdaOPS at this budget is proven for fewer than {rows} rows of a unit that come and "
            "go (an exchanged row counts twice): the delta of what its sample promises grows with "
            "them beyond its share; lower epsilon, raise delta, or take SSP, AdaSSP or BoostedSSP, "
            "whose loss holds without one"
        )
    for _ in range(60):
        middle = (low + high) / 2
        fits = group_failure(math.exp(middle), mu, rows) <= failure
        low, high = (middle, high) if fits else (low, middle)
    return math.exp(low)


def released_bounds(
    rows: Regression, table: Table, mu: float, failure: float, ridge: float | None
) -> tuple[Released[float], Released[float], Released[float]]:
    """Return a ridge, a lower bound l of the least eigenvalue, an upper bound of the size.

    The size is ``log(1 + |theta|)``, theta the coefficients at that ridge.

    Parameters
    ----------
    rows, table
        The regression, and the learner's table, whose units are protected.
    mu, failure
        The learner's mu, of whose square the bounds take their shares, and the failure probability
        of each.
    ridge
        A public one, or None for `balanced_ridge`.
    """
    # By their queries a row moves either by at most 1 + SLACK (the least eigenvalue by Weyl's
    # inequality). Both bounds hold for all data sets that lie between neighbours, which differ in
    # up to `changed` rows.
    changed = change_at(table).both
    reach = changed * REACH

    def sigma(query: PrivateQuery[Any], share: float) -> float:
        sensitivity = query_sensitivity(query, table) * (1 + 1e-9)
        return sigma_for(mu * math.sqrt(share), sensitivity, 1)

    eigenvalue = rows.query(LeastEigenvalue())
    bound = eigenvalue.release(
        LowerBound(sigma(eigenvalue, EIGENVALUE), failure, reach), name="smallest_eigenvalue"
    )
    # the norm's sensitivity does not depend on what it is given
    spread = sigma(rows.query(CoefficientNorm(), public(1.0), bound), SIZE)
    chosen: Released[float]
    if ridge is None:
        width = margin(spread, failure, reach)
        chosen = post(
            balanced_ridge, bound, width=rows.width, mu=mu_of_row(mu, changed), margin=width
        )
    else:
        chosen = public(float(ridge))
    norm = rows.query(CoefficientNorm(), chosen, bound)
    size = norm.release(UpperBound(spread, failure, reach), name="coefficient_norm")
    return chosen, bound, size


def balanced_ridge(bound: float, *, width: int, mu: float, margin: float) -> float:
    """Return the ridge h - bound, h balancing the noise of the draw against the bias.

    The draw adds ``d / gamma`` to the sum of squares, about ``d (1 + |theta|)^2 / (mu^2 h)``, and
    ``e^{2 margin / h}`` times as much where the bound of ``1 + |theta|`` is that far off; the ridge
    adds up to ``ridge |theta|^2``. The h that balances them at ``|theta| = 1/2`` is aimed at.
    """
    heights = np.geomspace(1.0, 2.0**30, 1000)
    with np.errstate(over="ignore"):
        noise = width * ((1 + GUESS) / mu) ** 2 * np.exp(2 * margin / heights) / heights
    height = float(heights[np.argmin(noise + GUESS**2 * heights)])
    return max(1.0, height - max(0.0, bound))


def shrinking_ridge(
    first: float,
    bound: float,
    size: float,
    sigma: float,
    *,
    width: int,
    mu: float,
    failure: float,
    reach: float,
) -> float:
    """Return the ridge, at least the first, that balances noise and bias by the released size.

    As `balanced_ridge`, with the bound of ``1 + |theta|`` in the noise. The bias is at most
    ``ridge |theta|^2 / 4`` of the least squares' theta, which is longer than the released one: half
    of ``ridge |theta|^2`` is counted, of the released one a deviation above the middle.
    """
    bounds = bounds_of(first, bound, size)
    if bounds is None:
        return first
    first, bound = clamp_released(first, bound)
    middle = size - margin(sigma, failure, reach)
    length = math.expm1(min(max(0.0, middle + sigma) * unit(first, bound), 200.0))
    growth = np.geomspace(1.0, 1e6, 400)
    heights = growth * (first + bound)
    noise = width * (bounds.residual / mu) ** 2 / heights
    ridges = heights - bound
    return max(first, float(ridges[np.argmin(noise + ridges * length**2 / 2)]))


def largest_gamma(
    ridge: float,
    bound: float,
    size: float,
    first: float | None = None,
    *,
    mu: float,
    failure: float,
) -> float:
    """Return the largest gamma that passes `PosteriorSample`'s test; 0 where none does."""
    bounds = bounds_of(ridge, bound, size, first)
    return 0.0 if bounds is None else largest_dominated_gamma(bounds, mu, failure)


# -----------------------------------------------------------------------------
# OPS: the same sampler with a temperature for the worst case, and so for any data.


@frozen
class OPS(ColumnLearner[Coefficients]):
    """Ridge regression by one draw of the posterior, truncated to a ball: pure epsilon, any data.

    Features and target are mapped from their declared bounds onto [-1, 1], rows (with an intercept)
    divided by their largest norm R, or clipped to ``norm`` and divided by it. The draw's density is
    ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on ``|w| <= R radius``. A row that comes or goes
    moves the log density by a range of ``gamma (1 + R radius)^2 / 2`` (``2 gamma R radius`` where
    that is below 1), so a budget of epsilon gives ``gamma = 2 epsilon / (1 + R radius)^2``; delta
    is not used. `AdaOPS` follows the data, and therefore needs less noise where they are many.

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
    >>> theta = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(theta["age"], 1)
    0.3
    """

    radius: float = field(default=1.0, validator=within(1e-3, 1e3))
    norm: float | None = None
    ridge: float = field(default=LEAST, validator=within(LEAST, MOST))
    free: str = "gamma"

    title: ClassVar[str] = "OPS"

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget: epsilon alone, for a pure mechanism."""
        return pure_budget("OPS", epsilon, (1e-6, 1e6))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Coefficients]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        rows = regression(table, self.features, self.target, self.norm)
        radius = rows.radius * self.radius
        # A row moves gamma F by a range of gamma row_range / 2, so k rows by k times that, and
        # bounded range costs as much epsilon (Durfee and Rogers 2019): gamma <= 2 epsilon /
        # (k row_range). Rounded down, so that the sampler is at most as cold as the budget allows.
        changed = query_sensitivity(rows.exact(), table, norm=0)
        weight = down(2 / (changed * row_range(radius)), 32)
        gamma: float | Free
        if budget is None:
            gamma = Free(self.free, weight=weight)
        else:
            gamma = down(weight * budget.epsilon, 4)
        sampler = TruncatedPosterior(gamma, self.ridge, radius)
        return rows.coefficients(rows.exact().release(sampler, name="posterior_sample"))


# -----------------------------------------------------------------------------
# Adaptive output perturbation: the bounds of AdaOPS, with Gaussian noise on the coefficients.


@frozen
class AdaptiveOutputPerturbation(_BoundedSensitivity):
    """A linear model with Gaussian noise scaled to a private bound of its local sensitivity.

    As `AdaOPS`, with the coefficients themselves in place of a posterior's draw: released are a
    lower bound of the least eigenvalue, from it the ridge, an upper bound of the coefficients'
    size, and the coefficients with noise ``(1 + T) / (h mu)``, h the ridge and the first bound, T
    the second. The noise falls as ``1 / h``, where output perturbation's at the worst case falls
    only with the ridge.

    With a loss such as ``Logistic()`` what is released before is a first model, by
    `PerturbedObjective`; the least curvature and the gradient there, as bounds; then the minimizer
    (`PerturbedMinimizer`). They have 30%, 5%, 15% and 50% of what is spent. Where the bounds say
    little, the first model is the answer. `ObjectivePerturbation`
    alone is usually more accurate: it follows the curvature in each direction by itself.

    *Privacy.* As for `AdaOPS`: ``mu^2 = mu_1^2 + mu_2^2 + mu_3^2``, of which the bounds take
    5% and 15%, and ``1 - delta = (1 - f_1) (1 - f_2) (1 - delta_mu(epsilon))``. Where k rows of a
    unit come and go, each costs ``mu_3 / k``.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    norm
        By default the largest that the scaled features can have, so that nothing is clipped.
    ridge
        A public ridge, for rows of norm at most 1, instead of one that follows the first bound; by
        default 1 where there is a loss.
    loss
        Of one score, generalised self-concordant, such as ``Logistic()``; by default
        ``Logistic()`` for a target of two categories, and ridge regression for numbers.

    References
    ----------
    Redberg, Zhu and Wang 2023; see `PerturbedCoefficients` and `PerturbedMinimizer`.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> learner = dp.AdaptiveOutputPerturbation(["age"], "days")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by distribution>
    >>> age = np.linspace(0, 100, 5_000)
    >>> theta = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(theta["age"], 1)
    0.3
    """

    loss: Loss | None = None

    title: ClassVar[str] = "adaptive output perturbation"

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Coefficients]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        assert budget is not None
        loss = self.loss
        if loss is None and isinstance(table.domain.find(self.target), Categories):
            loss = Logistic()
        if loss is not None and not isinstance(loss, Squared):
            return self._minimizer(table, budget, loss)
        rows = regression(table, self.features, self.target, self.norm)
        # f_1 = f_2 = delta / 16, as in AdaOPS
        gaussian_delta = delta_beside(budget.delta, [FAILURE, FAILURE])
        mu = largest_mu(budget.epsilon, gaussian_delta) * (1 - 1e-9)
        failure = budget.delta * FAILURE * (1 - 1e-9)
        ridge, bound, size = released_bounds(rows, table, mu, failure, self.ridge)
        theta = rows.exact().release(
            PerturbedCoefficients(mu_of_row(mu, change_at(table).both)),
            given=[ridge, bound, size],
            name="coefficients",
        )
        return rows.coefficients(theta)

    def _minimizer(self, table: Table, budget: LearnerBudget, loss: Loss) -> Released[Coefficients]:
        """Return the model of a loss of one score: all noise free, solved for the budget."""
        self_concordance(loss)  # refuses a loss that has none
        problem = linear(table, self.features, self.target, loss, self.norm)
        rows, change, limits = problem.rows, change_at(table), loss.constants()
        name, ridge = loss_string(loss), 1.0 if self.ridge is None else float(self.ridge)
        failure = budget.delta * FAILURE * (1 - 1e-9)
        # what a release costs is its sensitivity over its noise: noise by the root of its share
        first = limits.lipschitz * change.both / math.sqrt(START)
        # a tenth of epsilon pays for the determinants of the first model, as in
        # `ObjectivePerturbation`
        easy = limits.smoothness / math.expm1(DETERMINANT * budget.epsilon / change.rows)
        start = rows.as_query().release(
            PerturbedObjective(
                sigma=Free("sigma", weight=first),
                ridge=easy,
                blur=Free("sigma", weight=400.0 * first / limits.lipschitz),
                of=name,
            ),
            name="first_model",
        )

        def bound(kind: type[LowerBound | UpperBound], query: Any, share: float, label: str) -> Any:
            sensitivity = query_sensitivity(query, table) * (1 + 1e-9)
            row = query.operation.sensitivity(query.inputs[0].domain, Change(False, 1, False), 2)
            noise = Free("sigma", weight=sensitivity / math.sqrt(share))
            reach = change.both * row * (1 + 1e-9)
            return query.release(kind(noise, failure, reach), name=label)

        least = bound(LowerBound, rows.least_curvature(loss, start), EIGENVALUE, "least_curvature")
        size = bound(
            UpperBound, rows.gradient_norm(loss, start, ridge=ridge), SIZE, "gradient_norm"
        )
        rest = math.sqrt(1 - START - EIGENVALUE - SIZE) / change.both
        theta = rows.as_query().release(
            PerturbedMinimizer(mu=Free("sigma", weight=rest), ridge=ridge, of=name),
            given=[start, least, size],
            name="coefficients",
        )
        chosen = post(nearer_model, theta, start, least, size, ridge=ridge, easy=easy, of=name)
        model: Released[Coefficients] = problem.model(chosen)  # type: ignore[assignment]
        return calibrated_to(budget, type(self).__name__, table, model)


def nearer_model(
    theta: Any, first: Any, least: float, size: float, *, ridge: float, easy: float, of: str
) -> Any:
    """Return the noisy minimizer, or the first model where the bounds prove less curvature.

    The noise of the first model falls with the curvature where it is, that of the other with what
    is proven on the way to the minimizer: half of the former must be left of it. A rule for
    accuracy alone; all that it reads is released.

    Parameters
    ----------
    theta, first
        The two models; theta is NaN where nothing is bounded.
    least, size
        The released bounds of curvature and gradient, in units of what a row adds.
    ridge, easy
        The ridges of the two.
    of
        The loss.
    """
    loss = read(of)
    bend = max(0.0, float(least)) * loss.constants().smoothness if least == least else 0.0
    gradient = max(0.0, float(size)) * loss.constants().lipschitz
    if not (np.isfinite(theta).all() and gradient < 1e9 and bend < 1e15):
        return first
    moved = minimizer_sensitivity(loss, ridge=ridge, curvature=bend, gradient=gradient)
    return theta if 2 * loss.constants().lipschitz / moved >= bend + easy else first
