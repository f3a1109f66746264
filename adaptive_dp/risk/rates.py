"""Published rates whose constants are not known here: shapes to compare with, no bounds."""

from __future__ import annotations

import math

from adaptive_dp.risk.setting import Rate, Setting


def known_rates(setting: Setting, epsilon: float, delta: float = 0.0) -> tuple[Rate, ...]:
    """Return the rates, mean forms, that the literature gives for the setting's class.

    Each is capped at L R, what a constant achieves.

    References
    ----------
    Bassily, Smith and Thakurta 2014 (empirical, upper and lower, up to logarithms); Bassily,
    Feldman, Talwar and Thakurta 2019 and Feldman, Koren and Talwar 2020 (population, delta > 0).

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0)
    >>> all(rate.shape <= 1.0 for rate in known_rates(setting, 1.0))
    True
    """
    p, n, slope = setting.width, setting.n, setting.lipschitz * setting.radius
    if delta == 0:
        k, name, said = p / (epsilon * n), "p / (eps n)", "delta = 0"
    else:
        k, name = (
            math.sqrt(p * math.log(1 / delta)) / (epsilon * n),
            "sqrt(p log(1/delta)) / (eps n)",
        )
        said = "delta > 0"
    source = f"Bassily, Smith and Thakurta 2014, {said}"
    if setting.strong > 0:
        curved = setting.lipschitz**2 / setting.strong
        found = [Rate(min(slope, curved * k * k), f"(L^2 / mu) ({name})^2", source)]
    else:
        found = [Rate(slope * min(1.0, k), f"L R {name}", source)]
    if delta > 0:
        who = "Feldman, Koren and Talwar 2020"
        if setting.strong > 0:
            shape, formula = curved * (1 / n + k * k), f"(L^2 / mu) (1 / n + ({name})^2)"
        else:
            shape, formula = slope * (1 / math.sqrt(n) + k), f"L R (1 / sqrt n + {name})"
            who = f"Bassily, Feldman, Talwar and Thakurta 2019; {who}"
        found.append(Rate(min(slope, shape), f"population: {formula}", who))
    return tuple(found)
