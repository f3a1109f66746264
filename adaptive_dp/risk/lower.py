"""Lower bounds for every private method, and published rates whose constants are not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from accountants.errors import positive, probability
from adaptive_dp.risk.setting import Lower, Rate, Setting

ANGLES = np.linspace(math.pi / 4, math.pi / 2 - 1e-3, 60)
"""The angles phi that the packing argument tries; its count of vectors needs phi >= pi/4."""

CURVATURES = np.geomspace(1e-6, 1.0, 120)
"""The curvatures that quadratic instances try, over the largest that the setting allows."""


def lower_bound(setting: Setting, epsilon: float, delta: float = 0.0) -> Lower:
    """Return the largest lower bound that is proved here for the setting's class of losses.

    Linear instances where mu = 0 and the minimizer may lie on the boundary, quadratics of every
    curvature from mu to beta unless the model is linear. Shapes, mean form: ``L R p / (eps n)`` and
    ``(L^2 / mu) p^2 / (eps n)^2`` for delta = 0, ``L R sqrt p / (6 eps n)`` and
    ``(L^2 / mu) p / (72 (eps n)^2)`` for a small delta, p and n large.

    Notes
    -----
    W is the ball. There are three arguments. The first two are about data sets that differ in m
    records and are k steps of the neighbour relation apart: k = m if records are exchanged, 2m if
    they are left out and put in.

    *Two points.* Let a method be (eps, delta)-DP. On data sets k steps apart its laws overlap by
    ``integral of min(p, q) >= 2 (1 - delta_k) / (1 + e^{k eps})``,
    ``delta_k = delta (e^{k eps} - 1)/(e^eps - 1)`` (group privacy, and Kairouz, Oh and Viswanath
    2015 on the total variation). So if the excesses of any w on both add to at least s, one of the
    expected excesses is at least ``s (1 - delta_k) / (1 + e^{k eps})``.

    *Packing* (Hardt and Talwar 2010), delta = 0. Let K data sets, k steps apart, have disjoint sets
    of w with excess below a. If each expected excess were at most a/2, the first data set's law
    would give its own set at least 1/2 and every other at least ``e^{-k eps} / 2``, so
    ``K - 1 <= e^{k eps}``. Otherwise some expected excess is above a/2. There are
    ``K >= sin(phi)^{-p}`` unit vectors with pairwise angles of at least phi, for phi in
    [pi/4, pi/2]: caps of angle phi about a largest such set cover the sphere, and the cone over a
    cap, in the unit ball, lies in a ball of radius sin(phi) about ``cos(phi) v``.

    *Fingerprinting* (the lemma is that of Bun, Steinke and Ullman 2017), any delta. Let P be
    uniform on ``[-1, 1]^q``, X_1, ..., X_m in ``{-1, 1}^q`` independent with mean P, S their sum,
    and w the output, with ``|w| <= rho`` and ``E|w|^2 = r^2``. For a function f of bits of mean p
    the derivative of E f by p is ``E f sum (X_i - p) / (1 - p^2)``; integrated by parts,

        sum_i E <w, X_i - P> = 2 E <w, P>,    so    E <w, S> = (m + 2) E <w, P>.

    Let w' be the output where X_i is drawn again. ``<w', X_i - P>`` has mean 0 and a second moment
    of at most r^2 (up to rho^2 in general), and is at most ``2 rho sqrt q``. Privacy compares it
    with ``<w, X_i - P>``: the positive part grows by a factor of at most ``e^eps``, the negative
    part falls by one of at least ``e^-eps``, up to delta. Hence

        E <w, P> <= (m / 2) (sinh(eps) r + 2 (1 + e^-eps) delta rho sqrt q).

    - Linear, ``f = -(L / sqrt q) <X, w>``: the expected excess is
      ``(L / sqrt q) (R E|S| - E <S, w>)`` with
      ``E|S| >= m E|P| >= m (q/3)^{3/2} / (q/5 + q(q-1)/9)^{1/2}`` (Jensen, Hoelder), r = R.
    - Quadratic of curvature c, ``f = (c/2)|w|^2 - (a / sqrt q) <X, w>``: with ``w* = k S``,
      ``k = a / (n c sqrt q)``, the excess is ``(n c / 2)|w - w*|^2``, w may be taken within
      ``rho = k m sqrt q``, and ``E|S|^2 = q m (m + 2) / 3``. At the least over r this is

          (a^2 / (2 n c)) m (m + 2) (1/3 - m (m + 2) sinh(eps)^2 / (4 q) - 2 (1 + e^-eps) delta m).

    The other n - m records have no slope. Where records are left out an exchange is two steps:
    ``2 eps`` and ``(1 + e^eps) delta``.

    *Instances* of the first two. In both, m records have a vector ``u = L v`` or ``a v``,
    |v| = 1, the others 0.

    - Linear, ``f = -<u, w>``: excess ``m L (R - <v, w>)``. Opposite v add to ``2 m L R``; excess
      below ``m L R (1 - cos(phi/2))`` means an angle to v below phi/2.
    - Quadratic of curvature c, ``f = (c/2)|w|^2 - <u, w>``, ``|u| = a = L - c R``: the minimizer is
      ``s v``, ``s = m a / (n c)``, if that is at most R; excess ``(n c / 2)|w - s v|^2``. Opposite
      v add to ``n c s^2``; minimizers are ``2 s sin(phi/2)`` apart.

    Examples
    --------
    >>> setting = Setting(n=1000, width=100, lipschitz=1.0, radius=1.0)
    >>> lower_bound(setting, 1.0).mean > 0.001
    True
    """
    epsilon, delta = positive("epsilon", epsilon), probability("delta", delta, below_one=True)
    # 0 is a lower bound of every excess
    bounds = [(0.0, "none")]
    # opposite linear records move the minimizer across the ball, beyond any drift
    if setting.strong_convexity == 0 and not setting.stationary and setting.drift == math.inf:
        size = setting.lipschitz * setting.radius

        def linear(m: float, factor: float) -> float:
            """Half of ``2 m L R``, times a factor."""
            return m * size * factor

        bounds += _two_points_and_packing(setting, epsilon, delta, setting.n, linear, False)
        bounds += _linear_fingerprints(setting, epsilon, delta)
    # quadratic instances are no linear models
    if not setting.linear:
        for c in _curvatures(setting):
            # a record moves the minimizer by at most 2 a / (n c), which must be within drift / n
            a = min(setting.lipschitz - c * setting.radius, c * setting.drift / 2 * (1 - 1e-12))
            # s = m a / (n c) <= R, rounded down
            most = min(setting.n, math.floor(setting.n * c * setting.radius / a * (1 - 1e-12)))

            def quadratic(m: float, factor: float, c: float = c, a: float = a) -> float:
                """Half of ``n c s^2`` with ``s = m a / (n c)``, times a factor."""
                return (m * a) ** 2 / (2 * setting.n * c) * factor

            bounds += _two_points_and_packing(setting, epsilon, delta, most, quadratic, True)
            # the largest minimizer is k m sqrt q = m a / (n c), as above
            scale = a * a / (2 * setting.n * c)
            bounds += _quadratic_fingerprints(setting, epsilon, delta, most, scale)
    # each of them holds, so that the largest does
    total, theorem = max(bounds)
    return Lower(total, setting.n, f"{theorem} (own proof)")


def _exchange(setting: Setting, epsilon: float, delta: float) -> tuple[float, float]:
    """Return what a record's exchange costs: of two steps where it is left out and put in."""
    if setting.neighbors == "replace_one":
        return epsilon, delta
    # group privacy: delta (e^{2 eps} - 1) / (e^eps - 1)
    return 2 * epsilon, (1 + math.exp(min(epsilon, 700.0))) * delta


def _linear_fingerprints(
    setting: Setting, epsilon: float, delta: float
) -> Iterator[tuple[float, str]]:
    """Yield the lower bounds of linear instances by fingerprinting, for numbers of records m."""
    epsilon, delta = _exchange(setting, epsilon, delta)
    if epsilon > 20:  # sinh leaves nothing
        return
    # the records span q dimensions, no more than the setting's rank; any q gives a bound
    most = setting.width if setting.rank is None else setting.rank
    for q in {most, *np.geomspace(1, most, 12).astype(int).tolist()}:
        # E|P|, rounded down
        length = (q / 3) ** 1.5 / math.sqrt(q / 5 + q * (q - 1) / 9) * (1 - 1e-12)
        rate = math.sinh(epsilon) + 2 * (1 + math.exp(-epsilon)) * delta * math.sqrt(q)
        # m (E|P| - (m + 2) rate / 2) is largest near m = E|P| / rate
        for m in _near(length / rate - 1, setting.n):
            excess = m * (length - (m + 2) * rate / 2 * (1 + 1e-12)) / math.sqrt(q)
            yield setting.lipschitz * setting.radius * excess, "fingerprinting"


def _quadratic_fingerprints(
    setting: Setting, epsilon: float, delta: float, most: int, scale: float
) -> Iterator[tuple[float, str]]:
    """Yield the lower bounds of quadratic instances by fingerprinting; scale is a^2 / (2 n c)."""
    epsilon, delta = _exchange(setting, epsilon, delta)
    if epsilon > 20 or most < 1:
        return
    q, square = setting.width, math.sinh(epsilon) ** 2
    # m (m + 2) (1/3 - m (m + 2) sinh^2 / (4 q)) is largest near m = sqrt(2 q / 3) / sinh
    best = math.sqrt(2 * q / (3 * square)) - 1
    for share in (1.0, 0.5, 0.1, 0.01):  # less where delta's term counts
        for m in _near(best * share, most):
            pairs = m * (m + 2)
            lost = pairs * square / (4 * q) + 2 * (1 + math.exp(-epsilon)) * delta * m
            yield scale * pairs * (1 / 3 - lost * (1 + 1e-12)), "fingerprinting"


def _near(best: float, most: int) -> set[int]:
    """Return whole numbers next to one, from 1 to ``most``: any of them gives a bound."""
    center = int(min(max(best, 1.0), float(most)))
    return {min(max(m, 1), most) for m in (center, center + 1)}


def _curvatures(setting: Setting) -> Iterator[float]:
    """Yield curvatures c in [mu, beta] with ``c R < L``, so that records have a slope left."""
    top = min(setting.smoothness, setting.lipschitz / setting.radius)
    # the setting's own mu, and a few curvatures up to the largest that leaves a slope
    for c in {setting.strong_convexity, *(CURVATURES * top)}:
        if max(
            setting.strong_convexity, 1e-300
        ) <= c <= setting.smoothness and c * setting.radius < (setting.lipschitz * (1 - 1e-9)):
            yield float(c)


def _two_points_and_packing(
    setting: Setting,
    epsilon: float,
    delta: float,
    most: int,
    excess: Callable[[float, float], float],
    square: bool,
) -> Iterator[tuple[float, str]]:
    """Yield lower bounds with their argument, for numbers of records m from 1 to ``most``.

    ``excess(m, factor)`` is half of the sum of the excesses of two opposite instances, times a
    factor; ``square`` says that it is one of squared distances (quadratic instances).
    """
    # the construction needs at least one record
    if most < 1:
        return
    # exchanging a record is one step; with zero-out it is two, out and in
    steps = 1 if setting.neighbors == "replace_one" else 2
    # any m gives a bound: a geometric grid comes close to the best
    for m in {1, *np.geomspace(1, most, 80).astype(int).tolist()}:
        # the proof's instances differ in m records
        k = steps * m * epsilon  # k steps cost k epsilon: group privacy
        # beyond that e^k leaves a factor of nothing
        if k < 600:
            # group privacy's delta: delta (e^k - 1) / (e^epsilon - 1)
            group = delta * (math.expm1(k) / math.expm1(epsilon)) if delta else 0.0
            # the overlap's lower bound; a negative one is no bound, and 0 stands beside it
            factor = 2 * (1 - group) / (1 + math.exp(k))
            yield excess(m, factor), "two points"
    # packing is an argument about pure privacy
    if delta == 0:
        for phi in ANGLES:
            # K >= sin(phi)^{-p}, rounded down; log is that of K - 1
            count = -setting.width * math.log(math.sin(phi)) * (1 - 1e-12)
            log = math.log(max(math.ceil(math.exp(count)) - 1, 1)) if count < 30 else count - 1e-9
            # the largest m with k eps < log(K - 1): then not every expected excess is below a/2
            m = min(most, math.ceil(log / (steps * epsilon) * (1 - 1e-12)) - 1)
            if m >= 1:
                # a, below which the sets are disjoint, over half the sum; the bound is a / 2
                factor = math.sin(phi / 2) ** 2 if square else 1 - math.cos(phi / 2)
                yield excess(m, factor / 2), "packing"


# -----------------------------------------------------------------------------
# Published rates whose constants are not known here: shapes to compare with, not bounds.


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
    # rates are in mean form, where a constant achieves L R
    p, n, slope = setting.width, setting.n, setting.lipschitz * setting.radius
    if delta == 0:
        k, name, case = p / (epsilon * n), "p / (eps n)", "delta = 0"
    else:
        k, name = (
            math.sqrt(p * math.log(1 / delta)) / (epsilon * n),
            "sqrt(p log(1/delta)) / (eps n)",
        )
        case = "delta > 0"
    source = f"Bassily, Smith and Thakurta 2014, {case}"
    if setting.strong_convexity > 0:
        curved = setting.lipschitz**2 / setting.strong_convexity
        rates = [Rate(min(slope, curved * k * k), f"(L^2 / mu) ({name})^2", source)]
    else:
        rates = [Rate(slope * min(1.0, k), f"L R {name}", source)]
    if delta > 0:
        authors = "Feldman, Koren and Talwar 2020"
        if setting.strong_convexity > 0:
            shape, formula = curved * (1 / n + k * k), f"(L^2 / mu) (1 / n + ({name})^2)"
        else:
            shape, formula = slope * (1 / math.sqrt(n) + k), f"L R (1 / sqrt n + {name})"
            authors = f"Bassily, Feldman, Talwar and Thakurta 2019; {authors}"
        # capped at what a constant achieves
        rates.append(Rate(min(slope, shape), f"population: {formula}", authors))
    return tuple(rates)
