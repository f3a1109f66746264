"""Output perturbation: the minimizer plus noise, projected back onto W.

The lemma under all of it: let A be m-strongly convex on W and g be G-Lipschitz on W, with
directional derivatives. Then minimizers u of A and v of A + g over W are at most G / m apart.
*Proof.* Let d = |u - v|. Since u minimizes A, ``A(v) >= A(u) + (m/2) d^2``. Since v minimizes A +
g, ``A'(v; u - v) >= -g'(v; u - v) >= -G d``, so ``A(u) >= A(v) - G d + (m/2) d^2``. Add both:
``m d^2 <= G d``. Nothing need be smooth, and W may be anything closed and convex.

F is (n mu)-strongly convex and neighbours differ by a ``move``-Lipschitz function, so the
sensitivity of the minimizer is ``move / (n mu)``: 2L / (n mu) under replace-one. With a regulariser
``(lambda/2)|w - start|^2`` it is ``move / lambda``: the regulariser is the same for all data, so
its slope does not enter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import optimize

from accountants.errors import DomainError, nonnegative, positive
from adaptive_dp.risk.noise import Noise, unit_noise
from adaptive_dp.risk.setting import Setting, Upper

_SOURCE = "own proof; shape: Lowy and Razaviyayn 2021"


def sensitivity(setting: Setting, *, gap: float = 0.0) -> float:
    """Return how far the minimizer moves between neighbours, ``move / (n mu)``.

    With ``gap`` it is that of any point whose risk is within ``gap`` (of the sum) of the
    minimum: such a point is within ``sqrt(2 gap / (n mu))`` of the minimizer, by strong convexity,
    with n - 1 in n's place where a record is left out.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> round(sensitivity(setting), 6)  # 2 L / (n mu)
    0.002
    """
    _strong(setting)
    curvature = setting.n * setting.strong
    moved = setting.move / curvature
    if nonnegative("gap", gap) == 0:
        return moved
    less = curvature if setting.neighbors == "replace_one" else (setting.n - 1) * setting.strong
    if less == 0:
        raise DomainError("with one record, which may be left out, gap must be 0")
    return moved + math.sqrt(2 * gap / curvature) + math.sqrt(2 * gap / less)


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
        With ``strong > 0``.
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
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> round(output_perturbation(setting, epsilon=1.0).mean, 9)
    0.02
    """
    noise = unit_noise(setting.width, epsilon, delta).times(sensitivity(setting, gap=gap))
    length = noise.mean_norm if failure is None else noise.length(failure)
    total = strong_stability(setting, gap, failure) if population else 0.0
    total += gap + setting.n * setting.lipschitz * length
    return Upper(
        named("output perturbation", noise),
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
    ...     n=1000, width=10, lipschitz=1.0, radius=1.0, strong=1.0, smooth=1.0, stationary=True
    ... )
    >>> smooth_output_perturbation(setting, 1.0).mean < output_perturbation(setting, 1.0).mean / 10
    True
    """
    if not setting.stationary:
        raise DomainError(
            "the bound (n beta / 2) E|z|^2 needs a minimizer at which the gradient vanishes; pass "
            "stationary=True if that is known, or use output_perturbation"
        )
    if setting.smooth == math.inf:
        raise DomainError("Setting.smooth must be finite here, got inf; use output_perturbation")
    noise = unit_noise(setting.width, epsilon, delta).times(sensitivity(setting, gap=gap))
    half = setting.n * setting.smooth / 2
    if failure is None:
        total = setting.smooth / setting.strong * gap + half * noise.mean_square
    else:
        away = math.sqrt(2 * gap / (setting.n * setting.strong))
        total = half * (away + noise.length(failure)) ** 2
    if population:
        total += strong_stability(setting, gap, failure)
    return Upper(
        named("output perturbation", noise),
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
    one = unit_noise(setting.width, epsilon, delta)
    cost = setting.n * setting.lipschitz * setting.move * one.mean_norm
    if population:
        cost += stability(setting, 1.0)
    chosen = math.sqrt(2 * cost) / setting.radius
    weight = chosen if penalty is None else positive("penalty", penalty)
    return Upper(
        named("regularised output perturbation", one),
        weight * setting.radius**2 / 2 + cost / weight,
        setting.n,
        f"lambda R^2 / 2 + n L E|z| ({_SOURCE}, Prop. 2.7)",
        choices={"lambda": weight, "scale": one.scale * setting.move / weight},
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
    """The same for smooth losses with a stationary minimizer.

    Then the regularised minimizer u is stationary too: without constraint it is no further from the
    start than w*, since ``F_lambda(u) <= F_lambda(w*)`` and ``F(w*) <= F(u)``, so it lies in W.
    Hence ``F(P(u + z)) <= F_lambda(P(u + z)) <= F_lambda(u) + ((n beta + lambda) / 2)|z|^2`` and
    ``E excess <= lambda R^2 / 2 + ((n beta + lambda) / 2)(move / lambda)^2 E|z_1|^2``.

    Examples
    --------
    >>> setting = Setting(n=10_000, width=10, lipschitz=1, radius=1, smooth=1, stationary=True)
    >>> rough = regularized_output_perturbation(setting, 1.0)
    >>> smooth_regularized_output_perturbation(setting, 1.0).mean < rough.mean
    True
    """
    if not setting.stationary or setting.smooth == math.inf:
        raise DomainError(
            "needs a finite Setting.smooth and stationary=True; "
            "use regularized_output_perturbation otherwise"
        )
    one = unit_noise(setting.width, epsilon, delta)
    cost = setting.move**2 * one.mean_square
    other = stability(setting, 1.0) if population else 0.0

    def bound(weight: float) -> float:
        curvature = setting.n * setting.smooth + weight
        return weight * setting.radius**2 / 2 + curvature / 2 * cost / weight**2 + other / weight

    start = (2 * setting.n * setting.smooth * cost / setting.radius**2) ** (1 / 3)
    weight = best(bound, start) if penalty is None else positive("penalty", penalty)
    return Upper(
        named("regularised output perturbation", one),
        bound(weight),
        setting.n,
        f"lambda R^2 / 2 + ((n beta + lambda) / 2) E|z|^2 ({_SOURCE}, Prop. 2.8)",
        choices={"lambda": weight, "scale": one.scale * setting.move / weight},
        population=population,
        needs="a stationary minimizer",
    )


def stability(setting: Setting, curvature: float) -> float:
    """Return n times what exchanging a record may change any record's expected loss by.

    The minimizer of a (curvature)-strongly convex sum moves by at most ``2L / curvature``, and the
    noise, drawn alike, not at all: the loss changes by at most ``2 L^2 / curvature``. Then
    ``E (population risk - empirical risk) <= 2 L^2 / curvature``, each a mean (Bousquet and
    Elisseeff 2002: exchange the i-th record for a fresh one), and since the least empirical risk is
    in expectation at most the population's, the population's excess is at most the empirical excess
    and this. With ``curvature = n mu`` it is ``2 L^2 / (n mu)`` a record.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> round(stability(setting, curvature=1000.0), 6)
    2.0
    """
    return 2 * setting.n * setting.lipschitz**2 / curvature


def strong_stability(setting: Setting, gap: float, failure: float | None) -> float:
    """Return `stability` for strongly convex losses; a gap moves the output as it does noise's."""
    if failure is not None:
        raise DomainError("a population's bound is one of the expected excess: omit failure")
    curvature = setting.n * setting.strong
    slack = 2 * setting.n * setting.lipschitz * math.sqrt(2 * gap / curvature)
    return stability(setting, curvature) + slack


def best(bound: Callable[[float], float], start: float, spread: float = 12.0) -> float:
    """Return where a bound is least, near ``start``, over factors up to ``e^spread``.

    Whatever is returned, the bound holds there: this search decides how good it is, never
    whether it is right.
    """
    found = optimize.minimize_scalar(
        lambda u: bound(start * math.exp(u)),
        bounds=(-spread, spread),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return start * math.exp(float(found.x))


def named(method: str, noise: Noise) -> str:
    """Return the method with its law of noise."""
    return f"{method}, {'Gaussian' if noise.gaussian else 'pure'}"


def _strong(setting: Setting) -> None:
    if not setting.strong > 0:
        raise DomainError(
            "Setting.strong must be positive here, got 0.0; use regularized_output_perturbation"
        )
