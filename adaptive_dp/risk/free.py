"""Whether privacy is for free: its part of the population's excess against the sample's own."""

from __future__ import annotations

import math

from attrs import frozen

from adaptive_dp.risk.noise import unit_noise
from adaptive_dp.risk.output_perturbation import stability
from adaptive_dp.risk.setting import Setting


@frozen
class PrivacyCost:
    """The two parts of output perturbation's bound of the population's excess, means.

    Parameters
    ----------
    statistical
        What would be there without privacy.
    private
        What noise adds.

    Examples
    --------
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> cost = privacy_cost(setting, 4.0)
    >>> cost.private <= cost.statistical
    True
    """

    statistical: float
    private: float

    @property
    def free(self) -> bool:
        """Whether noise adds no more than there is without it."""
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
    >>> setting = Setting(n=1000, width=4, lipschitz=1.0, radius=1.0, strong=1.0)
    >>> privacy_cost(setting, 4.0).free, privacy_cost(setting, 3.9).free
    (True, False)
    """
    n, one = setting.n, unit_noise(setting.width, epsilon, delta)
    bias, added = 0.0, 0.0
    if setting.strong > 0:
        curvature = n * setting.strong
    else:
        curvature = 2 * setting.lipschitz * math.sqrt(n) / setting.radius
        bias, added = curvature * setting.radius**2 / 2, curvature
    noise = one.times(setting.move / curvature)
    private = setting.lipschitz * noise.mean_norm
    if setting.stationary and setting.smooth < math.inf:
        private = min(private, (setting.smooth + added / n) / 2 * noise.mean_square)
    return PrivacyCost((stability(setting, curvature) + bias) / n, private)
