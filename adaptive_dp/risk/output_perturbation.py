"""Output perturbation: bounds of the excess risk, and the settings that reduce to it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from attrs import evolve
from numpy.typing import ArrayLike
from scipy import optimize

from accountants.errors import DomainError, nonnegative, positive
from accountants.numerics import down, up
from adaptive_dp.risk.setting import ROUNDING, Neighbors, Noise, Setting, Upper, unit_noise

# -----------------------------------------------------------------------------
# Output perturbation: the minimizer plus noise, projected back onto W.


_SOURCE = "own proof; shape: Lowy and Razaviyayn 2021"


def sensitivity(setting: Setting, *, gap: float = 0.0) -> float:
    """Return how far the minimizer moves: the lesser of ``move / (n mu)`` and ``drift / n``.

    With ``gap`` it is that of any point whose risk is within ``gap`` (of the sum) of the
    minimum: such a point is within ``sqrt(2 gap / (n mu))`` of the minimizer, by strong convexity,
    with n - 1 in n's place where a record is left out.

    Notes
    -----
    *Lemma.* Let A be m-strongly convex on W and g be G-Lipschitz on W, with directional
    derivatives. Then minimizers u of A and v of A + g over W are at most G / m apart.

    *Proof.* Let d = |u - v|. Since u minimizes A, ``A(v) >= A(u) + (m/2) d^2``. Since v minimizes
    A + g, ``A'(v; u - v) >= -g'(v; u - v) >= -G d``, so ``A(u) >= A(v) - G d + (m/2) d^2``. Add
    both: ``m d^2 <= G d``. Nothing need be smooth, and W may be any closed convex set.

    F is (n mu)-strongly convex and neighbours differ by a ``move``-Lipschitz function, so the
    sensitivity is ``move / (n mu)``: 2L / (n mu) under replace-one. With a regulariser
    ``(lambda/2)|w - start|^2`` it is ``move / lambda``: the regulariser is the same for all data,
    so its slope does not enter.

    Quadratics of one matrix are better than the lemma says: their minimizer is the mean of the
    records, which moves by 2R/n whatever the curvature (`Setting.drift`).

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> round(sensitivity(setting), 6)  # 2 L / (n mu)
    0.002
    >>> steep = quadratic([[1.0, 0.0], [0.0, 8.0]], n=1000, radius=1.0)
    >>> round(sensitivity(steep), 6)  # 2 R / n, where 2 L / (n mu) is 0.256
    0.002
    """
    _check_strong(setting)
    curvature = setting.n * setting.strong_convexity
    # the lemma, G / m; or what is known of the minimizer itself
    exact = min(setting.move / curvature, setting.drift / setting.n)
    if nonnegative("gap", gap) == 0:
        return exact
    # a point within gap of the minimum is within sqrt(2 gap / m) of the minimizer, on both sides
    neighbor = (
        curvature
        if setting.neighbors == "replace_one"
        else (setting.n - 1) * setting.strong_convexity
    )
    if neighbor == 0:
        raise DomainError("with one record, which may be left out, gap must be 0")
    return exact + math.sqrt(2 * gap / curvature) + math.sqrt(2 * gap / neighbor)


def output_perturbation(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    gap: float = 0.0,
    failure: float | None = None,
    population: bool = False,
) -> Upper:
    """Bound the excess for strongly convex losses, smooth or not.

    ``F(P(w + z)) - F(w*) <= gap + nL|z|``, since F is nL-Lipschitz on W and projection brings
    points no further apart. So ``E excess <= gap + n L E|z|``; without a gap
    ``move L p / (mu eps)`` for delta = 0.

    Parameters
    ----------
    setting
        With ``strong_convexity > 0``.
    epsilon, delta
        The budget; ``delta = 0`` is noise of density exp(-eps |z| / S), otherwise Gaussian.
    gap
        What the solver guarantees: F(w) is at most this above the minimum, always.
    failure
        For a bound of the excess itself that fails with at most this probability.
    population
        Whether to bound the population's excess, by `stability`.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> round(output_perturbation(setting, epsilon=1.0).mean, 9)
    0.02
    """
    noise = unit_noise(setting.width, epsilon, delta).times(sensitivity(setting, gap=gap))
    length = noise.mean_norm if failure is None else noise.length(failure)
    total = strong_stability(setting, gap, failure) if population else 0.0
    total += gap + setting.n * setting.lipschitz * length
    return Upper(
        method_name("output perturbation", noise),
        total,
        setting.n,
        f"n L E|z| ({_SOURCE}, Prop. 2.3)",
        failure,
        {"scale": noise.scale},
        population=population,
    )


def smooth_output_perturbation(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    gap: float = 0.0,
    failure: float | None = None,
    population: bool = False,
) -> Upper:
    """Bound the excess for smooth and strongly convex losses with a stationary minimizer.

    With ``grad F(w*) = 0``: ``F(P(w + z)) - F(w*) <= (n beta / 2)|w - w* + z|^2``. In expectation
    the cross term vanishes and ``|w - w*|^2 <= 2 gap / (n mu)``:
    ``(beta/mu) gap + (n beta / 2) E|z|^2``. Without the condition the bound is false (a constraint
    that is active makes the excess grow as |z|).

    Examples
    --------
    >>> setting = Setting(
    ...     n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0, smoothness=1.0,
    ...     stationary=True,
    ... )
    >>> smooth_output_perturbation(setting, 1.0).mean < output_perturbation(setting, 1.0).mean / 10
    True
    """
    if not setting.stationary:
        raise DomainError(
            "the bound (n beta / 2) E|z|^2 needs a minimizer at which the gradient vanishes; pass "
            "stationary=True if that is known, or use output_perturbation"
        )
    if setting.smoothness == math.inf:
        raise DomainError(
            "Setting.smoothness must be finite here, got inf; use output_perturbation"
        )
    noise = unit_noise(setting.width, epsilon, delta).times(sensitivity(setting, gap=gap))
    half = setting.n * setting.smoothness / 2
    if failure is None:
        total = setting.smoothness / setting.strong_convexity * gap + half * noise.mean_square
    else:
        # |w - w*| <= sqrt(2 gap / (n mu)), by strong convexity
        distance = math.sqrt(2 * gap / (setting.n * setting.strong_convexity))
        total = half * (distance + noise.length(failure)) ** 2
    if population:
        total += strong_stability(setting, gap, failure)
    return Upper(
        method_name("output perturbation", noise),
        total,
        setting.n,
        f"(n beta / 2) E|z|^2 ({_SOURCE}, Prop. 2.4)",
        failure,
        {"scale": noise.scale},
        "a stationary minimizer",
        population,
    )


def regularized_output_perturbation(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    penalty: float | None = None,
    population: bool = False,
) -> Upper:
    """Bound the expected excess of the minimizer of ``F + (lambda/2)|w - start|^2`` plus noise.

    Let u be that minimizer. ``F(u) <= F(w*) + lambda R^2 / 2``, so, with
    ``|z| = (move / lambda)|z_1|``, ``E excess <= lambda R^2 / 2 + n L (move / lambda) E|z_1|``. The
    best lambda is ``sqrt(2 n L move E|z_1|) / R``, where the bound is ``lambda R^2``: 2 n L R
    sqrt(p / (eps n)) for pure epsilon and replace-one.

    Parameters
    ----------
    setting, epsilon, delta
        As for `output_perturbation`; strong convexity is neither needed nor used.
    penalty
        lambda, of the sum; by default the best.
    population
        Whether to bound the population's excess, by `stability`: ``2 n L^2 / lambda`` more.

    Examples
    --------
    >>> setting = Setting(n=10_000, width=10, lipschitz=1.0, radius=1.0)
    >>> bound = regularized_output_perturbation(setting, 1.0)
    >>> bound.mean < 0.1, sorted(bound.choices)
    (True, ['lambda', 'scale'])
    """
    unit = unit_noise(setting.width, epsilon, delta)
    cost = setting.n * setting.lipschitz * setting.move * unit.mean_norm
    if population:
        cost += stability(setting, 1.0)
    least = math.sqrt(2 * cost) / setting.radius  # of lambda R^2 / 2 + cost / lambda
    weight = least if penalty is None else positive("penalty", penalty)
    return Upper(
        method_name("regularised output perturbation", unit),
        weight * setting.radius**2 / 2 + cost / weight,
        setting.n,
        f"lambda R^2 / 2 + n L E|z| ({_SOURCE}, Prop. 2.7)",
        choices={"lambda": weight, "scale": unit.scale * setting.move / weight},
        population=population,
    )


def smooth_regularized_output_perturbation(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    penalty: float | None = None,
    population: bool = False,
) -> Upper:
    """Bound the same excess for smooth losses with a stationary minimizer.

    The regularised minimizer u is stationary too: without constraint it is no further from the
    start than w*, since ``F_lambda(u) <= F_lambda(w*)`` and ``F(w*) <= F(u)``, so it lies in W.
    Hence ``F(P(u + z)) <= F_lambda(P(u + z)) <= F_lambda(u) + ((n beta + lambda) / 2)|z|^2`` and
    ``E excess <= lambda R^2 / 2 + ((n beta + lambda) / 2)(move / lambda)^2 E|z_1|^2``.

    Examples
    --------
    >>> setting = Setting(n=10_000, width=10, lipschitz=1, radius=1, smoothness=1, stationary=True)
    >>> rough = regularized_output_perturbation(setting, 1.0)
    >>> smooth_regularized_output_perturbation(setting, 1.0).mean < rough.mean
    True
    """
    if not setting.stationary or setting.smoothness == math.inf:
        raise DomainError(
            "needs a finite Setting.smoothness and stationary=True; "
            "use regularized_output_perturbation otherwise"
        )
    unit = unit_noise(setting.width, epsilon, delta)
    cost = setting.move**2 * unit.mean_square
    stability_cost = stability(setting, 1.0) if population else 0.0

    def bound(weight: float) -> float:
        curvature = setting.n * setting.smoothness + weight
        excess = weight * setting.radius**2 / 2 + curvature / 2 * cost / weight**2
        return excess + stability_cost / weight

    start = (2 * setting.n * setting.smoothness * cost / setting.radius**2) ** (1 / 3)
    weight = minimized(bound, start) if penalty is None else positive("penalty", penalty)
    return Upper(
        method_name("regularised output perturbation", unit),
        bound(weight),
        setting.n,
        f"lambda R^2 / 2 + ((n beta + lambda) / 2) E|z|^2 ({_SOURCE}, Prop. 2.8)",
        choices={"lambda": weight, "scale": unit.scale * setting.move / weight},
        population=population,
        needs="a stationary minimizer",
    )


def stability(setting: Setting, curvature: float) -> float:
    """Return n times what exchanging a record may change any record's expected loss by.

    The minimizer of a (curvature)-strongly convex sum moves by at most ``2L / curvature``, and the
    noise, drawn alike, not at all: the loss changes by at most ``2 L^2 / curvature``. Then
    ``E (population risk - empirical risk) <= 2 L^2 / curvature``, each a mean (Bousquet and
    Elisseeff 2002: exchange the i-th record for an independent one), and since the least empirical
    risk is in expectation at most the population's, the population's excess is at most the
    empirical excess and this. With ``curvature = n mu`` it is ``2 L^2 / (n mu)`` a record.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> round(stability(setting, curvature=1000.0), 6)
    2.0
    """
    return 2 * setting.n * setting.lipschitz**2 / curvature


def strong_stability(setting: Setting, gap: float, failure: float | None) -> float:
    """Return `stability` for strongly convex losses and a solver within ``gap`` of the minimum."""
    if failure is not None:
        raise DomainError("a population's bound is one of the expected excess: omit failure")
    curvature = setting.n * setting.strong_convexity
    # on both data sets the solver is within sqrt(2 gap / (n mu)) of the minimizer
    slack = 2 * setting.n * setting.lipschitz * math.sqrt(2 * gap / curvature)
    # a record's loss changes by at most L times the minimizer's move, which drift / n bounds too
    # (an exchange is to leave a record out and to put one in)
    moves = 1 if setting.neighbors == "replace_one" else 2
    return min(stability(setting, curvature), moves * setting.lipschitz * setting.drift) + slack


def minimized(bound: Callable[[float], float], start: float, spread: float = 12.0) -> float:
    """Return the argument at which a bound is least, near ``start``, up to factors ``e^spread``.

    Whatever is returned, the bound holds there: this search decides how good it is, never
    whether it is right.
    """
    minimum = optimize.minimize_scalar(
        lambda u: bound(start * math.exp(u)),
        bounds=(-spread, spread),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return start * math.exp(float(minimum.x))


def method_name(method: str, noise: Noise) -> str:
    """Return the method with its law of noise."""
    return f"{method}, {'Gaussian' if noise.gaussian else 'pure'}"


def _check_strong(setting: Setting) -> None:
    """Refuse losses that are not strongly convex."""
    if not setting.strong_convexity > 0:
        raise DomainError(
            "Setting.strong_convexity must be positive here, got 0.0; use "
            "regularized_output_perturbation"
        )


# -----------------------------------------------------------------------------
# The population's risk against the data's, uniformly over W.


def uniform_gap(setting: Setting) -> float:
    """Return a bound of ``n E sup_W (population risk - empirical risk)``, means both.

    *Linear models*: ``2 L R sqrt n``. Symmetrisation gives twice the Rademacher average, which by
    contraction (Ledoux and Talagrand 1991, Thm 4.12; without absolute values Meir and Zhang 2003; a
    record's loss is an L-Lipschitz function of ``<x, w>``) is at most
    ``L R E|sum s_i x_i| / n <= L R / sqrt n``.

    *Others*: the least over a of ``2 n L a + L R sqrt(2 n p log(1 + 2R/a))``. W has a cover of
    ``(1 + 2R/a)^p`` points at distance a; the difference of risks, less its value at the start (of
    mean 0), is 2L-Lipschitz, and at each point the mean of n independent variables in an interval
    of length 2LR, hence (Hoeffding) subgaussian with variance ``L^2 R^2 / n``.

    Examples
    --------
    >>> linear = Setting(n=10_000, width=4, lipschitz=1.0, radius=1.0, linear=True)
    >>> round(uniform_gap(linear), 6)
    200.0
    """
    n, slope = setting.n, setting.lipschitz * setting.radius
    if setting.linear:
        return 2 * slope * math.sqrt(n)

    def bound(share: float) -> float:
        # a = share R: 2 n L a for the distance to the cover, and the maximum of e^cover
        # subgaussian variables of variance n L^2 R^2 (the sum's)
        cover = setting.width * math.log1p(2 / share)
        return 2 * n * slope * share + slope * math.sqrt(2 * n * cover)

    return bound(minimized(bound, math.sqrt(setting.width / n)))


def population(setting: Setting, empirical: Upper) -> Upper:
    """Return a bound of the population's expected excess, from one of the empirical excess.

    ``E excess <= E empirical excess + uniform_gap``, whatever the method, as long as its output is
    in W: the least empirical risk is in expectation at most the population's. Bounds by stability,
    ``population=True`` of the methods that have it, are most often smaller.

    Examples
    --------
    >>> from adaptive_dp.risk import output_perturbation
    >>> setting = Setting(n=10_000, width=4, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> bound = output_perturbation(setting, 1.0)
    >>> round(population(setting, bound).total - bound.total - uniform_gap(setting), 3)
    0.0
    """
    if empirical.failure is not None or empirical.population:
        raise DomainError("population() needs a bound of the expected empirical excess")
    if "without constraint" in empirical.needs or "no projection" in empirical.needs:
        raise DomainError(f"the output of {empirical.method} may lie outside of W")
    return evolve(
        empirical,
        total=empirical.total + uniform_gap(setting),
        theorem=f"{empirical.theorem} + uniform convergence",
        population=True,
    )


# -----------------------------------------------------------------------------
# Tilted empirical risk, ``F_t(w) = (1/t) log((1/n) sum_i exp(t f_i(w)))`` with t > 0.


def tilted_sensitivity(setting: Setting, *, tilt: float, span: float) -> float:
    """Return how far F_t's minimizer moves: ``(2L / mu) / (1 + (n - 1) e^{-t span})``.

    *Proof.* A subgradient is ``sum v_i g_i``, v the softmax of ``t f_i(w)``. Let q and q' be the
    weights of the exchanged record, g and g' its subgradients, h the others' mean by their own
    weights, which are alike on both sides. The subgradients differ by ``q (g - h) - q' (g' - h)``,
    of norm at most ``2 L max(q, q')``: for q >= q' it is ``(q - q')(g - h) + q' (g - g')``. A
    weight is at most ``1 / (1 + (n - 1) e^{-t span})``. F_t less ``(mu/2)|w|^2`` is a log-sum-exp
    of convex functions, so F_t is mu-strongly convex, and the lemma of `output_perturbation`
    applies.

    It is between ``2L / (n mu)`` at t = 0 and ``2L / mu``, the worst record's, and never above the
    printed ``(2L / mu) min(1, e^{t span} / n)``.

    Examples
    --------
    >>> setting = Setting(n=100, width=1, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> round(tilted_sensitivity(setting, tilt=1.0, span=1.0) / 2, 6)
    0.026724
    """
    if not setting.strong_convexity > 0 or setting.neighbors != "replace_one":
        raise DomainError(
            "tilted risk needs Setting.strong_convexity > 0 and neighbors='replace_one'"
        )
    power = positive("tilt", tilt) * nonnegative("span", span)
    # the largest softmax weight of a record: its loss is at most span above the others
    share = 1 / (1 + (setting.n - 1) * math.exp(-power))
    return 2 * setting.lipschitz / setting.strong_convexity * share


def tilted_output_perturbation(
    setting: Setting,
    epsilon: float,
    delta: float = 0.0,
    *,
    tilt: float,
    span: float,
    gap: float = 0.0,
) -> Upper:
    """Bound the expected excess of F_t, a mean (``Upper.mean``), for output perturbation.

    F_t is L-Lipschitz, mu-strongly convex and, for twice differentiable losses,
    ``(beta + t L^2)``-smooth: its Hessian is ``sum v_i H_i + t Cov_v(g)``. So
    ``E excess <= gap + L E|z|``, and for a stationary minimizer
    ``(beta_t / mu) gap + (beta_t / 2) E|z|^2``; the smaller counts.

    Parameters
    ----------
    setting, epsilon, delta
        As for `output_perturbation`.
    tilt
        t, positive.
    span
        All losses on W lie in an interval of this length.
    gap
        What the solver guarantees of F_t itself.

    Examples
    --------
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> mild = tilted_output_perturbation(setting, 1.0, tilt=0.5, span=1.0)
    >>> mild.mean < tilted_output_perturbation(setting, 1.0, tilt=2.0, span=1.0).mean
    True
    """
    # both neighbours' points are within sqrt(2 gap / mu) of their minimizers
    slack = 2 * math.sqrt(2 * nonnegative("gap", gap) / (setting.strong_convexity or math.inf))
    size = tilted_sensitivity(setting, tilt=tilt, span=span) + slack
    noise = unit_noise(setting.width, epsilon, delta).times(size)
    mean = gap + setting.lipschitz * noise.mean_norm
    if setting.stationary and setting.smoothness < math.inf:
        smoothness = setting.smoothness + tilt * setting.lipschitz**2
        mean = min(
            mean, smoothness / setting.strong_convexity * gap + smoothness / 2 * noise.mean_square
        )
    return Upper(
        method_name("tilted output perturbation", noise),
        setting.n * mean,
        setting.n,
        "L E|z| or (beta_t / 2) E|z|^2 (own proof; shape: Lowy and Razaviyayn 2021)",
        choices={"scale": noise.scale, "tilt": tilt},
        needs="losses in an interval of the given length",
    )


# -----------------------------------------------------------------------------
# Adversarial training: each record's loss becomes ``max over v in V of f(w; x + v)``.


def adversarial(
    setting: Setting, *, lipschitz: float, smoothness: float = math.inf, stationary: bool = False
) -> Setting:
    """Return the setting of the robust problem, for which every bound of `adaptive_dp.risk` holds.

    A maximum of convex functions that are L-Lipschitz and mu-strongly convex is so too (the maximum
    of ``f - (mu/2)|w|^2`` is convex), and depends on its own record alone. So sensitivities,
    stability and the bounds follow as before, with no term for the size of V beside the one in L.
    The solver's primal gap is the ``gap`` of `output_perturbation`.

    A maximum of smooth functions need not be smooth (``max(w, -w)``), and a linear model's robust
    loss also depends on w's norm, so neither is inherited. Nor is the minimizer assumed to lie in
    W's interior: the adversary may move it to the boundary.

    Parameters
    ----------
    setting
        Of the problem without adversary.
    lipschitz
        L over all that the adversary may choose: for a linear model with ``|v| <= rho`` and
        ``|x| <= B``, ``(B + rho) / B`` times as much.
    smoothness
        beta of the maximum, where that is known.
    stationary
        Whether the gradient of the robust problem's F is known to vanish at its minimizer.

    Examples
    --------
    >>> setting = Setting(
    ...     n=1000, width=4, lipschitz=1.0, radius=1.0, strong_convexity=1.0, smoothness=1.0
    ... )
    >>> robust = adversarial(setting, lipschitz=1.2)
    >>> robust.lipschitz, robust.strong_convexity, robust.smoothness
    (1.2, 1.0, inf)
    """
    return evolve(
        setting,
        lipschitz=lipschitz,
        smoothness=smoothness,
        stationary=stationary,
        linear=False,
        rank=None,
        drift=math.inf,
    )


# -----------------------------------------------------------------------------
# A quadratic instance: each record pulls w towards a point, ``f(w; x) = |A (w - x)|^2 / 2``.


def quadratic(
    matrix: ArrayLike, n: int, radius: float, *, neighbors: Neighbors = "replace_one"
) -> Setting:
    """Return the setting of ``|A (w - x)|^2 / 2`` with w and x in the ball of a radius.

    The Hessian is A'A: mu and beta are its least and greatest eigenvalue, the squares of A's
    singular values s. The gradient ``A'A (w - x)`` has norm at most ``2 R s_max^2``. The minimizer
    of the sum is the mean of the x, where the gradient vanishes. An exchange moves the mean by
    ``|x - x'| / n <= 2R / n``; without its i-th record it is ``(x_i - m) / n`` away, m the mean of
    the others, ``2R / n`` at most: the `Setting.drift` is 2R, where the lemma of `sensitivity` has
    ``4R s_max^2 / s_min^2``.

    Parameters
    ----------
    matrix
        A, public; shape (k, p), of rank p where mu is to be positive.
    n, radius, neighbors
        As for `Setting`.

    Examples
    --------
    >>> setting = quadratic([[1.0, 0.0], [0.0, 2.0]], n=100, radius=1.0)
    >>> round(setting.strong_convexity, 6), round(setting.smoothness, 6)
    (1.0, 4.0)
    >>> round(setting.lipschitz, 6)
    8.0
    """
    a = np.asarray(matrix, dtype=np.float64)
    if a.ndim != 2 or not a.size or not np.all(np.isfinite(a)):
        raise DomainError(f"matrix must be a finite array of shape (k, p), got shape {a.shape}")
    # mu and beta are squares of singular values: rounded outward, mu down and beta up
    values = np.linalg.svd(a, compute_uv=False)
    largest = float(values[0])
    slack = largest * max(a.shape) * 2.0**-50  # of LAPACK's singular values, absolute
    least = max(0.0, float(values[-1]) - slack) if a.shape[0] >= a.shape[1] else 0.0
    steepest = up((largest + slack) ** 2, ROUNDING)
    return Setting(
        n=n,
        width=a.shape[1],
        lipschitz=up(2 * positive("radius", radius) * steepest, ROUNDING),
        radius=radius,
        strong_convexity=max(0.0, down(least**2, ROUNDING)),
        smoothness=steepest,
        stationary=True,
        neighbors=neighbors,
        drift=up(2 * radius, ROUNDING),
    )
