"""Tilted empirical risk, ``F_t(w) = (1/t) log((1/n) sum_i exp(t f_i(w)))`` with t > 0."""

from __future__ import annotations

import math

from accountants.errors import DomainError, nonnegative, positive
from adaptive_dp.risk.noise import unit_noise
from adaptive_dp.risk.output_perturbation import named
from adaptive_dp.risk.setting import Setting, Upper


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
    >>> setting = Setting(n=100, width=1, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> round(tilted_sensitivity(setting, tilt=1.0, span=1.0) / 2, 6)
    0.026724
    """
    if not setting.strong > 0 or setting.neighbors != "replace_one":
        raise DomainError("tilted risk needs Setting.strong > 0 and neighbors='replace_one'")
    power = positive("tilt", tilt) * nonnegative("span", span)
    share = 1 / (1 + (setting.n - 1) * math.exp(-power))
    return 2 * setting.lipschitz / setting.strong * share


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
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> mild = tilted_output_perturbation(setting, 1.0, tilt=0.5, span=1.0)
    >>> mild.mean < tilted_output_perturbation(setting, 1.0, tilt=2.0, span=1.0).mean
    True
    """
    slack = 2 * math.sqrt(2 * nonnegative("gap", gap) / (setting.strong or math.inf))
    size = tilted_sensitivity(setting, tilt=tilt, span=span) + slack
    noise = unit_noise(setting.width, epsilon, delta).times(size)
    mean = gap + setting.lipschitz * noise.mean_norm
    if setting.stationary and setting.smooth < math.inf:
        smooth = setting.smooth + tilt * setting.lipschitz**2
        mean = min(mean, smooth / setting.strong * gap + smooth / 2 * noise.mean_square)
    return Upper(
        named("tilted output perturbation", noise),
        setting.n * mean,
        setting.n,
        "L E|z| or (beta_t / 2) E|z|^2 (own proof; shape: Lowy and Razaviyayn 2021)",
        choices={"scale": noise.scale, "tilt": tilt},
        needs="losses in an interval of the given length",
    )
