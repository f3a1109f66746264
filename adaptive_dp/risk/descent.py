"""Noisy full-batch gradient descent, T steps from the start, and its averaged iterate.

Each step adds N(0, sigma^2 I) to F's gradient (the sum's), which moves by at most ``move`` between
neighbours; T steps are one Gaussian release of ``mu = move sqrt(T) / sigma``, so sigma is
``move sqrt(T)`` times the noise at sensitivity 1 (written s here), whatever T. A step is
``w_{t+1} = P(w_t - eta (grad F(w_t) + z_t))``, P the projection onto W.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.errors import DomainError, integer, nonnegative, positive
from adaptive_dp.risk.output_perturbation import minimized
from adaptive_dp.risk.setting import Setting, Upper
from adaptive_dp.risk.setting import sigma as gaussian_noise

Floats = NDArray[np.float64]


def descent_gap(lipschitz: float, distance: float, steps: int) -> float:
    """Bound F(average) - min F of projected subgradient descent without noise: ``L D / sqrt T``.

    Here L is that of F itself and D at least the distance from the start to a minimizer, such as
    W's diameter; the step is ``D / (L sqrt T)``. With half the diameter instead it is false.

    Examples
    --------
    >>> descent_gap(2.0, 3.0, 36)
    1.0
    """
    steps = integer("steps", steps)
    # L D / sqrt T, at the step D / (L sqrt T)
    return positive("lipschitz", lipschitz) * positive("distance", distance) / math.sqrt(steps)


def noisy_descent(setting: Setting, epsilon: float, delta: float, *, steps: int) -> Upper:
    """Bound the expected excess of noisy gradient descent's average of w_1..w_T.

    It is ``R sqrt(n^2 L^2 + p sigma^2) / sqrt T``. With ``sigma^2 = move^2 T s^2`` it is
    ``R sqrt(n^2 L^2 / T + p move^2 s^2)``.

    *Proof.* P brings points no further apart, so ``|w_{t+1} - w*|^2 <= |w_t - w*|^2 - 2 eta <g_t +
    z_t, w_t - w*> + eta^2 |g_t + z_t|^2``. In expectation z_t has mean 0 given the past and
    ``E|g_t + z_t|^2 <= n^2 L^2 + p sigma^2 = G^2``; sum over t,
    ``F(w_t) - F(w*) <= <g_t, w_t - w*>``, and divide by ``2 eta T``:
    ``R^2 / (2 eta T) + eta G^2 / 2``, at ``eta = R / (G sqrt T)``.

    References
    ----------
    Bassily, Smith and Thakurta 2014 (the method); own constants.

    Examples
    --------
    >>> setting = Setting(n=10_000, width=10, lipschitz=1, radius=1)
    >>> round(noisy_descent(setting, 1.0, 1e-6, steps=10**6).mean, 4)
    0.0029
    """
    # the noise has p coordinates: E|z|^2 = p sigma^2
    return _averaged(setting, epsilon, delta, steps, setting.width, "noisy gradient descent", "")


def linear_descent(
    setting: Setting, epsilon: float, delta: float, *, steps: int, norm: float | None = None
) -> Upper:
    """Bound noisy descent of a linear model without projection, by the rank of the data, not by p.

    Let M project onto the span of the records, of rank r. F depends on Mw alone, its gradients lie
    in that span, and ``|M z|^2`` has mean ``r sigma^2``: the proof of `noisy_descent` holds with
    ``|v|_M = sqrt(v' M v)`` in place of the norm, ``E|g + z|_M^2 <= n^2 L^2 + r sigma^2``. So
    ``E excess <= |w*|_M sqrt(n^2 L^2 / T + r move^2 s^2)``, with
    ``eta = |w*|_M / sqrt(T (n^2 L^2 + r sigma^2))``. It is another analysis of the same mechanism;
    noise stays in all of R^p.

    Parameters
    ----------
    setting
        ``linear=True``, with its rank (p where none is given); without constraint.
    epsilon, delta, steps
        As for `noisy_descent`.
    norm
        At least ``|w* - start|_M``; by default R.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021; own constants.

    Examples
    --------
    >>> setting = Setting(
    ...     n=10_000, width=10_000, lipschitz=1, radius=1, linear=True, rank=10, stationary=True
    ... )
    >>> by_rank = linear_descent(setting, 1.0, 1e-6, steps=10**6)
    >>> by_rank.mean < noisy_descent(setting, 1.0, 1e-6, steps=10**6).mean / 10
    True
    """
    if not (setting.linear and setting.stationary):
        raise DomainError(
            "the bound by rank is for linear models without constraint: "
            "linear=True and stationary=True"
        )
    # the rank is at most n and p
    rank = min(setting.n, setting.width) if setting.rank is None else setting.rank
    return _averaged(
        setting,
        epsilon,
        delta,
        steps,
        rank,
        "noisy gradient descent, by rank",
        "no projection",
        norm=norm,
    )


@frozen(eq=False, repr=False)
class PotentialTrace:
    """The terms of the proof of `linear_descent` along one run: private, for studies by simulation.

    Parameters
    ----------
    potentials
        ``Psi_t = |w_t - w*|_M^2``, shape (T + 1,).
    squares
        ``|g_t + z_t|_M^2``, shape (T,); the proof says that their expectation is at most ``bound``.
    rank
        r, of the records' span.
    bound
        ``n^2 L^2 + r sigma^2``.

    Examples
    --------
    Two steps of gradient descent on ``w_1^2 / 2``, in two dimensions, without noise:

    >>> trace = potential_trace(
    ...     np.array([[1.0, 0.0], [0.5, 0.0], [0.25, 0.0]]), np.array([[1.0, 0.0]]), np.zeros(2),
    ...     step=0.5, lipschitz=1.0, sigma=0.0)
    >>> bool((trace.squares <= trace.bound).all()), trace.potentials.tolist()
    (True, [1.0, 0.25, 0.0625])
    """

    potentials: Floats
    squares: Floats
    rank: int
    bound: float


def potential_trace(
    points: Floats,
    records: Floats,
    minimizer: Floats,
    *,
    step: float,
    lipschitz: float,
    sigma: float,
) -> PotentialTrace:
    """Return how a run of noisy descent went, in the terms of the proof of `linear_descent`.

    Without projection ``w_{t+1} = w_t - eta (g_t + z_t)``, so that
    ``Psi_{t+1} = Psi_t - 2 eta <g_t + z_t, w_t - w*>_M + eta^2 |g_t + z_t|_M^2``. It reads the
    records and the minimizer, without any noise: nobody but the keeper of the data may see it.

    Parameters
    ----------
    points
        w_1, ..., w_{T+1}, shape (T + 1, p).
    records
        The features, shape (n, p), which span the range of M.
    minimizer
        w*, shape (p,).
    step
        eta; the proof's is ``|w*|_M / sqrt(T (n^2 L^2 + r sigma^2))``.
    lipschitz, sigma
        L of one record's loss, and the deviation of the noise on the sum's gradient.

    Examples
    --------
    >>> import numpy as np
    >>> trace = potential_trace(
    ...     np.array([[1.0, 5.0], [0.5, 7.0]]), np.array([[1.0, 0.0]]), np.zeros(2),
    ...     step=0.5, lipschitz=1.0, sigma=2.0)
    >>> trace.potentials.tolist(), trace.squares.tolist(), trace.rank, trace.bound
    ([1.0, 0.25], [1.0], 1, 5.0)
    """
    points, records = np.asarray(points, dtype=np.float64), np.asarray(records, dtype=np.float64)
    if points.ndim != 2 or records.ndim != 2 or points.shape[1] != records.shape[1]:
        raise DomainError(
            "points must be of shape (T + 1, p) and records of shape (n, p), got "
            f"{points.shape} and {records.shape}"
        )
    # M = V V', the projection onto the records' span
    values, basis = np.linalg.svd(records, full_matrices=False)[1:]
    is_in = values > max(records.shape) * 2.0**-52 * values.max(initial=0.0)
    away = (points - np.asarray(minimizer)) @ basis[is_in].T
    updates = np.diff(away, axis=0) / positive("step", step)
    rank = int(is_in.sum())
    return PotentialTrace(
        (away**2).sum(axis=1),
        (updates**2).sum(axis=1),
        rank,
        (len(records) * positive("lipschitz", lipschitz)) ** 2
        + rank * nonnegative("sigma", sigma) ** 2,
    )


def printed_rank_bound(
    n: int, rank: int, lipschitz: float, norm: float, epsilon: float, delta: float
) -> float:
    """Return the mean form as published: ``L |w*|_M sqrt(1 + 4 r log(1/delta)) / (eps n)``.

    It is the bound of `linear_descent` at ``T = n^2 eps^2`` and noise
    ``2 L sqrt(T log(1/delta)) / (n eps)`` on the mean gradient. That noise is enough under zero-out
    for epsilon up to 1 or so, and not under replace-one; `linear_descent` calibrates exactly.

    Examples
    --------
    >>> round(printed_rank_bound(1000, 5, 1.0, 1.0, 1.0, 1e-5), 5)
    0.01521
    """
    # the mean form: the excess of the sum over n
    return lipschitz * norm * math.sqrt(1 + 4 * rank * math.log(1 / delta)) / (epsilon * n)


def smooth_descent(
    setting: Setting, epsilon: float, delta: float, *, steps: int, population: bool = False
) -> Upper:
    """Bound the expected excess of the average of w_2..w_{T+1} for smooth losses.

    ``R^2 n beta / (2 T) + R sqrt(p) move s``: far fewer steps than `noisy_descent` needs.

    *Proof.* Let B = n beta. Projection says
    ``eta <g + z, w+ - w*> <= (|w - w*|^2 - |w+ - w*|^2 - |w+ - w|^2) / 2``; smoothness and
    convexity ``F(w+) - F(w*) <= <g, w+ - w*> + (B/2)|w+ - w|^2``. Together, with
    ``u = 1/eta - B > 0``, ``F(w+) - F(w*) <= (|w - w*|^2 - |w+ - w*|^2) / (2 eta) - <z, w - w*> -
    <z, w+ - w> - (u/2)|w+ - w|^2``, whose last two terms are at most ``|z|^2 / (2u)``. In
    expectation the average has excess at most ``R^2 (u + B) / (2T) + p sigma^2 / (2u)``, least at
    ``u = sigma sqrt(p T) / R``.

    *The population's excess.* A step of ``eta <= 2/B`` brings points no further apart, and an
    exchanged record moves each step by at most ``2 L eta``, the noise drawn alike: the average
    moves by at most ``L eta (T + 1)``, any record's expected loss by L times that, and n of it is
    added (Hardt, Recht and Singer 2016; see `stability`). The step is then the one that is best for
    the sum of all three.

    Examples
    --------
    >>> setting = Setting(n=10_000, width=10, lipschitz=1, radius=1, smoothness=1)
    >>> few = smooth_descent(setting, 1.0, 1e-6, steps=1_000)
    >>> few.mean < noisy_descent(setting, 1.0, 1e-6, steps=1_000).mean
    True
    """
    if setting.smoothness == math.inf:
        # u + B is the inverse step; without smoothness there is no such step
        raise DomainError("Setting.smoothness must be finite here, got inf; use noisy_descent")
    steps, noise = integer("steps", steps), _noise(setting, epsilon, delta, steps)
    curvature, square = setting.n * setting.smoothness, setting.width * noise**2
    # n L (L eta (T + 1)) with eta = 1 / (u + B): stability's part of the population's excess
    shift = setting.n * setting.lipschitz**2 * (steps + 1) if population else 0.0

    def bound(u: float) -> float:
        # R^2 (u + B) / (2T) + p sigma^2 / (2u), the proof's last line
        first = setting.radius**2 * (u + curvature) / (2 * steps)
        return first + square / (2 * u) + shift / (u + curvature)

    u = math.sqrt(square * steps) / setting.radius  # where the sum is least
    if population:
        # stability adds a term that falls in u, which moves the best u up
        u = minimized(bound, u + math.sqrt(2 * shift * steps) / setting.radius)
    return Upper(
        "noisy gradient descent, smooth",
        bound(u),
        setting.n,
        "R^2 n beta / (2T) + R sqrt(p / T) sigma (own proof)",
        # eta = 1 / (u + B)
        choices={"steps": steps, "sigma": noise, "step": 1 / (u + curvature)},
        population=population,
    )


def strong_descent(setting: Setting, epsilon: float, delta: float, *, steps: int) -> Upper:
    """Bound the expected excess, for strongly convex losses, of the average with weights t.

    ``2 (n^2 L^2 + p sigma^2) / (n mu (T + 1))``, at steps ``eta_t = 2 / (n mu (t + 1))``.

    *Proof.* Let m = n mu and d_t = E|w_t - w*|^2. As in `noisy_descent`, with strong convexity, ``E
    F(w_t) - F(w*) <= eta_t G^2 / 2 + (1/(2 eta_t) - m/2) d_t - d_{t+1} / (2 eta_t)``. Times t:
    ``t G^2 / (m (t + 1)) + (m/4)((t - 1) t d_t - t (t + 1) d_{t+1})``. The sum over t telescopes
    and is at most ``T G^2 / m``; the weights sum to ``T (T + 1) / 2``.

    References
    ----------
    Lacoste-Julien, Schmidt and Bach 2012 (weights and steps).

    Examples
    --------
    >>> setting = Setting(n=10_000, width=10, lipschitz=1, radius=1, strong_convexity=1)
    >>> strong_descent(setting, 1.0, 1e-6, steps=10**6).mean < 0.001
    True
    """
    # the bound divides by mu
    if not setting.strong_convexity > 0:
        raise DomainError(
            "Setting.strong_convexity must be positive here, got 0.0; use noisy_descent"
        )
    steps, noise = integer("steps", steps), _noise(setting, epsilon, delta, steps)
    # G^2 >= E|g_t + z_t|^2
    square = (setting.n * setting.lipschitz) ** 2 + setting.width * noise**2
    return Upper(
        "noisy gradient descent, strongly convex",
        2 * square / (setting.n * setting.strong_convexity * (steps + 1)),
        setting.n,
        "2 (n^2 L^2 + p sigma^2) / (n mu (T + 1)) (own proof)",
        choices={"steps": steps, "sigma": noise},
    )


def _noise(setting: Setting, epsilon: float, delta: float, steps: int) -> float:
    """Return sigma of a step: T steps are one Gaussian of ``mu = move sqrt(T) / sigma``."""
    if not delta > 0:
        raise DomainError("delta must be positive here, got 0: this noise is Gaussian")
    # sqrt(T) noise for each of T steps: the total cost does not depend on T
    return setting.move * math.sqrt(steps) * gaussian_noise(positive("epsilon", epsilon), delta)


def _averaged(
    setting: Setting,
    epsilon: float,
    delta: float,
    steps: int,
    rank: int,
    method: str,
    needs: str,
    norm: float | None = None,
) -> Upper:
    """Return ``R G / sqrt T``, ``G^2 = n^2 L^2 + r sigma^2``, at ``eta = R / (G sqrt T)``."""
    steps, noise = integer("steps", steps), _noise(setting, epsilon, delta, steps)
    distance = setting.radius if norm is None else nonnegative("norm", norm)
    # G of the docstring, with the rank in place of p where the noise is measured in the span
    gradient = math.sqrt((setting.n * setting.lipschitz) ** 2 + rank * noise**2)
    return Upper(
        method,
        # R G / sqrt T bounds the sum's excess; `Upper.mean` divides by n
        distance * gradient / math.sqrt(steps),
        setting.n,
        "R sqrt(n^2 L^2 + r sigma^2) / sqrt T (own proof)",
        choices={"steps": steps, "sigma": noise, "step": distance / (gradient * math.sqrt(steps))},
        needs=needs,
    )
