"""How far the population's risk can be from the data's, over all of W at once."""

from __future__ import annotations

import math

from attrs import evolve

from accountants.errors import DomainError
from adaptive_dp.risk.output_perturbation import best
from adaptive_dp.risk.setting import Setting, Upper


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
        cover = setting.width * math.log1p(2 / share)
        return 2 * n * slope * share + slope * math.sqrt(2 * n * cover)

    return bound(best(bound, math.sqrt(setting.width / n)))


def population(setting: Setting, empirical: Upper) -> Upper:
    """Return a bound of the population's expected excess, from one of the empirical excess.

    ``E excess <= E empirical excess + uniform_gap``, whatever the method, as long as its output is
    in W: the least empirical risk is in expectation at most the population's. Bounds by stability,
    ``population=True`` of the methods that have it, are most often smaller.

    Examples
    --------
    >>> from adaptive_dp.risk import output_perturbation
    >>> setting = Setting(n=10_000, width=4, lipschitz=1.0, radius=1.0, strong=1.0)
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
