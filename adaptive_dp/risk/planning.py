"""Which method, how many records, what epsilon: planned by the bounds, before data are read."""

from __future__ import annotations

import math
from collections.abc import Callable

from attrs import evolve, frozen

from accountants.errors import DomainError, integer, positive, probability
from adaptive_dp.risk.descent import linear_descent, noisy_descent, smooth_descent, strong_descent
from adaptive_dp.risk.output_perturbation import (
    output_perturbation,
    regularized_output_perturbation,
    smooth_output_perturbation,
    smooth_regularized_output_perturbation,
    stability,
)
from adaptive_dp.risk.output_perturbation import population as population_bound
from adaptive_dp.risk.perturbation import exponential_mechanism, objective_perturbation
from adaptive_dp.risk.setting import Setting, Upper, unit_noise


def constant(setting: Setting, *, population: bool = False) -> Upper:
    """Return the bound of releasing the start, which reads no data (`Setting.trivial`).

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0)
    >>> round(constant(setting).mean, 6)
    1.0
    """
    return Upper(
        "a constant",
        setting.trivial,
        setting.n,
        "n min(L R, L^2 / (2 mu)) (own proof)",
        population=population,
    )


def plan(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    steps: int = 1000,
    population: bool = False,
) -> tuple[Upper, ...]:
    """Return every method's bound of the expected excess, least first.

    With ``delta > 0`` the pure methods are there too. A bound above that of releasing a constant
    says that this method is not known to learn anything: it is listed, after the constant, but not
    worth its budget.

    Parameters
    ----------
    setting
        What is known of the problem. What is left out (smoothness, stationary, linear, rank) is not
        used.
    epsilon, delta
        The budget, epsilon at most 500 for objective perturbation's sake.
    steps
        How many passes over the data gradient descent may take.
    population
        Whether to bound the population's excess.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=0.4)
    >>> [bound.method for bound in plan(setting, 1.0)][:2]
    ['exponential mechanism, pure', 'output perturbation, pure']
    >>> plan(setting, 0.001)[0].method
    'a constant'
    """
    epsilon = positive("epsilon", epsilon)
    # the limit of objective perturbation's bound
    if epsilon > 500:
        raise DomainError(f"epsilon must be at most 500, got {epsilon!r}")
    delta = probability("delta", delta, below_one=True)
    steps = integer("steps", steps)
    # a constant is always among the methods: no bound need be above it
    bounds = [constant(setting, population=population)]
    # a set: at delta = 0 the pure methods appear once
    for method_delta in {0.0, delta}:
        bounds += _perturbed(setting, epsilon, method_delta, population)
    # those without a bound of the population's excess of their own: `population` adds a uniform gap
    # a pure method, whatever the delta
    empirical = [exponential_mechanism(setting, epsilon)]
    if delta > 0:
        empirical.append(noisy_descent(setting, epsilon, delta, steps=steps))
        if setting.strong_convexity > 0:
            empirical.append(strong_descent(setting, epsilon, delta, steps=steps))
        if setting.smoothness < math.inf:
            bounds.append(
                smooth_descent(setting, epsilon, delta, steps=steps, population=population)
            )
        # by the span of these records: a bound of the empirical excess alone
        if setting.linear and setting.stationary and not population:
            empirical.append(linear_descent(setting, epsilon, delta, steps=steps))
    if population:
        empirical = [population_bound(setting, bound) for bound in empirical]
    # in total, so that means and sums are ordered alike
    return tuple(sorted(bounds + empirical, key=lambda bound: bound.total))


def _perturbed(setting: Setting, epsilon: float, delta: float, population: bool) -> list[Upper]:
    """Return the bounds of output and objective perturbation, the least of each family."""
    # a stationary minimizer, where the gradient is 0, makes the smooth bounds quadratic in |z|
    is_smooth = setting.stationary and setting.smoothness < math.inf
    regularized = [regularized_output_perturbation(setting, epsilon, delta, population=population)]
    if is_smooth:
        regularized.append(
            smooth_regularized_output_perturbation(setting, epsilon, delta, population=population)
        )
    bounds = [min(regularized, key=lambda bound: bound.total)]
    # without strong convexity output perturbation needs the regulariser
    if setting.strong_convexity > 0:
        strongly_convex_bounds = [
            output_perturbation(setting, epsilon, delta, population=population)
        ]
        if is_smooth:
            strongly_convex_bounds.append(
                smooth_output_perturbation(setting, epsilon, delta, population=population)
            )
        bounds.append(min(strongly_convex_bounds, key=lambda bound: bound.total))
    # the proof of objective perturbation is for linear models alone
    if is_smooth and setting.linear:
        bounds.append(objective_perturbation(setting, epsilon, delta, population=population))
    return bounds


def smallest_n(
    setting: Setting,
    mean: float,
    epsilon: float,
    delta: float = 0.0,
    *,
    steps: int = 1000,
    population: bool = False,
) -> int:
    """Return a number of records at which the best bound, a mean, is at most ``mean``.

    The setting's own n is not used. The search is by doubling, then bisection, and the bound is
    evaluated at the number that is returned.

    Raises
    ------
    DomainError
        If 10^15 records are not enough, as with too few steps of descent and nothing else.

    Examples
    --------
    >>> setting = Setting(n=1, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> smallest_n(setting, 0.02, epsilon=1.0)
    1001
    """
    target = positive("mean", mean)

    def enough(n: float) -> bool:
        larger = evolve(setting, n=int(n))
        return plan(larger, epsilon, delta, steps=steps, population=population)[0].mean <= target

    # doubling, then bisection; ``high`` is always a number at which the bound was evaluated
    # a setting's rank is at most n: smaller n cannot be tried
    low, high = 0, max(setting.rank or 1, 1)
    while not enough(high):
        low, high = high, 2 * high
        if high > 10**15:
            raise DomainError(f"no method's bound is at most {mean!r} with 10**15 records")
    while high - low > 1:
        middle = (low + high) // 2
        # below the rank the setting would be refused
        if setting.rank is not None and middle < setting.rank:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def smallest_epsilon(
    setting: Setting,
    mean: float,
    delta: float = 0.0,
    *,
    steps: int = 1000,
    population: bool = False,
) -> float:
    """Return an epsilon at which the best bound's mean is at most ``mean``, to one in a thousand.

    Raises
    ------
    DomainError
        If 500 is not enough.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> round(smallest_epsilon(setting, 0.02), 2)
    1.0
    """
    target = positive("mean", mean)

    def enough(epsilon: float) -> bool:
        bounds = plan(setting, epsilon, delta, steps=steps, population=population)
        return bounds[0].mean <= target

    return _least_epsilon(enough, f"no method's bound is at most {mean!r} at epsilon 500")


def _least_epsilon(enough: Callable[[float], bool], refusal: str) -> float:
    """Return an epsilon that is enough, within one in a thousand of the least, by bisection."""
    # `plan` takes epsilons up to 500
    low, high = 1e-6, 500.0
    if not enough(high):
        raise DomainError(refusal)
    if enough(low):
        return low
    # a ratio of 1.001, so that bisection is on the logarithm: the middle is geometric
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    # the upper end, at which the bound was evaluated
    return high


# -----------------------------------------------------------------------------
# The cost of privacy: its part of the population's excess beside the statistical part.


@frozen
class PrivacyCost:
    """The two parts of output perturbation's bound of the population's excess, means.

    Parameters
    ----------
    statistical
        The bound without privacy.
    private
        The bound of what noise adds.

    Examples
    --------
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> cost = privacy_cost(setting, 4.0)
    >>> cost.private <= cost.statistical
    True
    """

    statistical: float
    private: float

    @property
    def free(self) -> bool:
        """Whether noise adds no more than the statistical part."""
        return self.private <= self.statistical


def privacy_cost(setting: Setting, epsilon: float, delta: float = 0.0) -> PrivacyCost:
    """Return both parts, for the best of output perturbation's bounds.

    Strongly convex: ``2 L^2 / (mu n)`` against ``L E|z|``, so that for pure epsilon and replace-one
    privacy is free where ``p / eps <= 1``; smooth with a stationary minimizer, against
    ``(beta / 2) E|z|^2``: ``p (p + 1) / eps^2 <= (mu / beta) n``. Only convex, at the penalty
    ``lambda = 2 L sqrt(n) / R`` that is best without privacy: ``2 L R / sqrt n`` against
    ``L E|z|``, free where ``p / eps <= 2``; smooth and stationary,
    ``((beta + lambda / n) / 2) E|z|^2``, of order ``p / eps <= n^(1/4)`` for ``beta R`` near L. A
    difference between two upper bounds, not a fact about the method.

    Examples
    --------
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> privacy_cost(setting, 4.0).free, privacy_cost(setting, 3.9).free
    (True, False)
    """
    n, unit = setting.n, unit_noise(setting.width, epsilon, delta)
    bias, added = 0.0, 0.0
    if setting.strong_convexity > 0:
        curvature = n * setting.strong_convexity
    else:
        # only convex: the penalty that is best without privacy provides the curvature
        curvature = 2 * setting.lipschitz * math.sqrt(n) / setting.radius
        # the penalty's bias lambda R^2 / 2, and its own part of the smoothness
        bias, added = curvature * setting.radius**2 / 2, curvature
    # the minimizer moves by at most move / curvature
    noise = unit.times(setting.move / curvature)
    # L |z|, by the Lipschitz constant
    private = setting.lipschitz * noise.mean_norm
    if setting.stationary and setting.smoothness < math.inf:
        # smooth losses at a stationary minimizer: (beta + lambda / n) / 2 |z|^2, if less
        private = min(private, (setting.smoothness + added / n) / 2 * noise.mean_square)
    return PrivacyCost((stability(setting, curvature) + bias) / n, private)
