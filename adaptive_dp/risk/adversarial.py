"""Training against an adversary: each record's loss becomes ``max over v in V of f(w; x + v)``."""

from __future__ import annotations

import math

from attrs import evolve

from adaptive_dp.risk.setting import Setting


def adversarial(
    setting: Setting, *, lipschitz: float, smooth: float = math.inf, stationary: bool = False
) -> Setting:
    """Return the setting of the robust problem, for which every bound of this room then holds.

    A maximum of convex functions that are L-Lipschitz and mu-strongly convex is so too (the maximum
    of ``f - (mu/2)|w|^2`` is convex), and depends on its own record alone. So sensitivities,
    stability and the bounds follow as before, with no term for the size of V beside the one in L.
    The solver's primal gap is the ``gap`` of `output_perturbation`.

    A maximum of smooth functions need not be smooth (``max(w, -w)``), and a linear model's robust
    loss also depends on w's norm, so neither is kept. Nor is it kept that the minimizer lies inside
    of W: the adversary may move it to W's boundary.

    Parameters
    ----------
    setting
        Of the problem without adversary.
    lipschitz
        L over all that the adversary may choose: for a linear model with ``|v| <= rho`` and
        ``|x| <= B``, ``(B + rho) / B`` times as much.
    smooth
        beta of the maximum, where that is known.
    stationary
        Whether the gradient of the robust problem's F is known to vanish at its minimizer.

    Examples
    --------
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong=1.0, smooth=1.0)
    >>> robust = adversarial(setting, lipschitz=1.2)
    >>> robust.lipschitz, robust.strong, robust.smooth
    (1.2, 1.0, inf)
    """
    return evolve(
        setting,
        lipschitz=lipschitz,
        smooth=smooth,
        stationary=stationary,
        linear=False,
        rank=None,
    )
