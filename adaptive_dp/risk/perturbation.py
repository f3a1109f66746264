"""Objective perturbation and the exponential mechanism: bounds of the excess risk."""

from __future__ import annotations

import math

from scipy import optimize, special

from accountants.errors import DomainError, positive, probability
from adaptive_dp.risk.output_perturbation import method_name, minimized, stability
from adaptive_dp.risk.setting import Noise, Setting, Upper

# -----------------------------------------------------------------------------
# Objective perturbation: the exact minimizer of ``F(w) + (lambda/2)|w|^2 + <b, w>`` over R^p.


def objective_noise(setting: Setting, epsilon: float, delta: float, penalty: float) -> Noise:
    """Return the law of the noise b of objective perturbation at a penalty lambda, of the sum.

    Raises
    ------
    DomainError
        If lambda is so small that the determinants alone cost epsilon.

    Notes
    -----
    For linear models alone: a record's gradient is ``s x`` and its Hessian ``a x x'``, with
    ``|x| <= 1``, ``|s| <= L`` and ``0 <= a <= beta``, continuous in w; w here is the distance from
    the start.

    *Privacy.* ``b = -grad F(w) - lambda w`` is a bijection of the output, so the output's density
    is that of b there, times ``det(Hess F + lambda I)``. Between neighbours the Hessian loses at
    most one ``a x x'`` and gains another, which never lowers a determinant in the denominator: with
    B what both share, ``det(B + a x x') / det(B) = 1 + a x' B^-1 x <= 1 + beta / lambda``. So the
    determinants cost ``log(1 + beta / lambda)``, once, and ``e = epsilon - log(1 + beta / lambda)``
    must be positive.

    Pure: for density ``exp(-e |b| / move)`` the noise's log ratio is at most e, since b moves by at
    most ``move``.

    Gaussian, N(0, sigma^2 I), with ``m = move / sigma``: b moves by g, whose log ratio is
    ``<b, g> / sigma^2 + |g|^2 / (2 sigma^2)`` (up to the sign of g). g depends on w, but it lies in
    the span V of the record's x, or of the two, which does not. So the log ratio is at most
    ``m |P_V b| / sigma + m^2 / 2``, where ``|P_V b| / sigma`` has the law of a chi variable of 1
    degree of freedom (zero-out) or 2 (replace-one), under the very law that the ratio favours. Its
    tail beyond ``t = e/m - m/2`` is a bound of delta: ``2 Phi(-t)``, or ``e^{-t^2/2}``. Hence
    ``m = sqrt(t^2 + 2e) - t`` with t the tail's quantile at delta.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, smoothness=0.25, linear=True)
    >>> objective_noise(setting, 1.0, 1e-6, penalty=10.0).width
    10
    >>> objective_noise(setting, 1.0, 1e-6, penalty=0.01)
    Traceback (most recent call last):
        ...
    accountants.errors.DomainError: penalty must be above 0.1454941767173316 at this epsilon, got
    0.01
    """
    epsilon, delta = positive("epsilon", epsilon), probability("delta", delta, below_one=True)
    # the determinants cost log(1 + beta / lambda); e is what remains for the noise
    remaining = epsilon - math.log1p(setting.smoothness / positive("penalty", penalty))
    if not remaining > 0:
        # the penalty at which log(1 + beta / lambda) = epsilon
        least = setting.smoothness / math.expm1(epsilon)
        raise DomainError(f"penalty must be above {least!r} at this epsilon, got {penalty!r}")
    if delta == 0:
        # density exp(-e |b| / move): a log ratio of at most e for b moved by `move`
        return Noise(setting.width, setting.move / remaining)
    if setting.neighbors == "replace_one":
        t = math.sqrt(-2 * math.log(delta))  # e^{-t^2/2} = delta: chi of 2 degrees of freedom
    else:
        t = -float(special.ndtri(delta / 2))  # 2 Phi(-t) = delta: chi of 1 degree of freedom
    # m = sqrt(t^2 + 2e) - t, without cancellation
    m = 2 * remaining / (math.sqrt(t * t + 2 * remaining) + t)
    # sigma = move / m
    return Noise(setting.width, setting.move / m, gaussian=True)


def objective_perturbation(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    penalty: float | None = None,
    failure: float | None = None,
    population: bool = False,
) -> Upper:
    """Bound the excess of objective perturbation: ``E|b|^2 / (2 lambda) + lambda R^2 / 2``.

    ``E|b|^2 = p (p + 1) (move / e)^2`` for pure epsilon, ``p sigma^2`` for the Gaussian; the proof
    of privacy is that of `objective_noise`.

    *Risk.* The output w minimizes G + <b, .>, ``G = F + (lambda/2)|w|^2``, so ``|grad G(w)| = |b|``
    and by strong convexity ``G(w) - min G <= |b|^2 / (2 lambda)``. Since
    ``min G <= F(w*) + lambda R^2/2``, ``excess <= |b|^2 / (2 lambda) + lambda R^2 / 2``, where R
    bounds the norm of a minimizer of F over R^p.

    Parameters
    ----------
    setting
        Linear, smooth, without constraint: ``linear=True`` and ``stationary=True``.
    epsilon, delta
        The budget.
    penalty
        lambda, of the sum; by default the best.
    failure
        For a bound of the excess itself that fails with at most this probability.
    population
        Whether to bound the population's excess, by `stability` at the same b.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011; Kifer, Smith and Thakurta 2012 (Gaussian, other
    constants); own proofs.

    Examples
    --------
    >>> setting = Setting(
    ...     n=10_000, width=10, lipschitz=1, radius=1, smoothness=0.25, linear=True, stationary=True
    ... )
    >>> round(objective_perturbation(setting, 1.0, 1e-6).mean, 4)
    0.0034
    """
    if not (setting.linear and setting.stationary) or setting.smoothness == math.inf:
        raise DomainError(
            "objective perturbation needs a linear model, smooth and without constraint: "
            "linear=True, stationary=True and a finite Setting.smoothness"
        )
    # stability bounds a mean: with a failure probability there is nothing to add it to
    if population and failure is not None:
        raise DomainError("a population's bound is one of the expected excess: omit failure")
    # the cap keeps expm1 finite
    least = setting.smoothness / math.expm1(min(positive("epsilon", epsilon), 700.0))

    def bound(weight: float) -> float:
        """E|b|^2 / (2 lambda) + lambda R^2 / 2, and what stability adds for the population."""
        noise = objective_noise(setting, epsilon, delta, weight)
        # E|b|^2 for the mean, or the square of a length that |b| exceeds with probability `failure`
        square = noise.mean_square if failure is None else noise.length(failure) ** 2
        total = square / (2 * weight) + weight * setting.radius**2 / 2
        return total + (stability(setting, weight) if population else 0.0)

    if penalty is None:
        # an admissible penalty at any epsilon, which gives the noise's order of magnitude
        first = objective_noise(setting, epsilon, delta, 2 * least + 1e-300)
        # balances E|b|^2 / (2 lambda) and lambda R^2 / 2 for that noise
        start = least + math.sqrt(first.mean_square) / setting.radius
        # minimized over lambda - least > 0, so that every penalty tried is admissible
        weight = least + minimized(lambda above: bound(least + above), start)
    else:
        weight = positive("penalty", penalty)
    noise = objective_noise(setting, epsilon, delta, weight)
    return Upper(
        method_name("objective perturbation", noise),
        bound(weight),
        setting.n,
        "E|b|^2 / (2 lambda) + lambda R^2 / 2 (own proof)",
        failure,
        {"lambda": weight, "scale": noise.scale},
        "an exact minimizer, without constraint",
        population,
    )


# -----------------------------------------------------------------------------
# The exponential mechanism on W: density proportional to ``exp(-c F(w))``.


def exponential_mechanism(
    setting: Setting, epsilon: float, *, failure: float | None = None
) -> Upper:
    """Bound the excess of a draw of density ``exp(-c F)`` on W, ``c = eps / (2 R move)``.

    *Privacy.* Neighbours' risks differ by h, which is ``move``-Lipschitz on a set of diameter at
    most 2R, so the log ratio of densities, ``-c h + c const``, with const in the range of h, is at
    most ``c 2R move = eps``.

    *Risk.* The excess is at most ``p / c`` in expectation, for W of dimension p. Let F be 0 at w*,
    and ``Z(t)`` the integral of ``exp(-tF)`` over W. With ``w = w* + (u - w*)/t``, ``t^p Z(t)`` is
    the integral of ``exp(-t F(w* + (u - w*)/t))`` over ``w* + t (W - w*)``. As t grows that set
    grows, and the exponent's ``t F(w* + (u - w*)/t)`` falls, by convexity. So
    ``p log t + log Z(t)`` rises, and its derivative ``p/t - E_t F`` is not negative. Moreover
    ``E_c e^{sF} = Z(c - s)/Z(c) <= (c / (c - s))^p``, the moment function of Gamma(p, 1/c);
    Chernoff's bound at ``x = y/c`` is ``e^{-(y - p)} (y/p)^p``.

    Parameters
    ----------
    setting
        Any convex losses.
    epsilon
        Pure: delta = 0.
    failure
        For a bound of the excess itself that fails with at most this probability.

    References
    ----------
    McSherry and Talwar 2007 (the mechanism); Bassily, Smith and Thakurta 2014 (its risk, other
    constants); own proof. A bound of the mean that does not grow with p, as is sometimes printed,
    is false: ``F = nL|w|`` attains ``p / c``.

    Examples
    --------
    >>> settings = [Setting(n=10**5, width=p, lipschitz=1, radius=1) for p in (1, 5, 50, 200)]
    >>> [round(exponential_mechanism(setting, 1.0).total, 6) for setting in settings]
    [4.0, 20.0, 200.0, 800.0]
    """
    # c = eps / (2 R move): the log ratio of densities is at most c 2 R move
    rate = positive("epsilon", epsilon) / (2 * setting.radius * setting.move)
    # the mean p of Gamma(p, 1), or its tail by Chernoff's bound; both over c
    count = setting.width if failure is None else _gamma_tail(setting.width, failure)
    return Upper(
        "exponential mechanism, pure",
        count / rate,
        setting.n,
        "p / c: a Gibbs law over a convex body (own proof)",
        failure,
        {"c": rate},
        "an exact sampler",
    )


def _gamma_tail(p: int, failure: float) -> float:
    """Return y that Gamma(p, 1) exceeds with probability at most ``failure``, by Chernoff's bound.

    It is the root of ``y - p - p log(y / p) = log(1 / failure)``, moved up past its rounding.
    """
    target = -math.log(positive("failure", probability("failure", failure, below_one=True)))

    def excess(y: float) -> float:
        # the target is raised by 1e-9, so that rounding can only move the root up
        return y - p - p * math.log(y / p) - target * (1 + 1e-9)

    # on y > p the function increases without bound: doubling brackets the root
    high = 2.0 * p + 4 * target + 1
    while excess(high) <= 0:
        high *= 2
    root = float(optimize.brentq(excess, p, high, xtol=1e-12 * p, rtol=1e-12))
    # past brentq's own tolerance: the tail may only be overestimated
    return root * (1 + 1e-9)
