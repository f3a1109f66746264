"""Linear regression with inference: each coefficient with an interval and a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import Released, group, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.outputs import ConfidenceInterval, released_ends
from adaptive_dp.graph.values import strings
from adaptive_dp.mechanisms import Gaussian
from adaptive_dp.queries.table import Table
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import Floats

CLEAR = 3.0
"""The least eigenvalue of the features' moments, in units of the edge of their noise's spectrum,
from which on coefficients have intervals and p-values below 1."""

MARGIN = 1.0
"""By how many standard deviations of its noise the residual variance is raised."""


def coefficients(
    table: Table,
    features: Sequence[str],
    target: str,
    *,
    mechanism: Mechanism | None = None,
) -> Released[dict[str, dict[str, float]]]:
    r"""Fit a linear regression, and say of each coefficient how sure it is.

    One release: the second moments of a 1, the features and the target, scaled from their bounds to
    [-1, 1]. Of noisy moments ``G = X'X + E`` and ``c = X'y + e`` the coefficients are
    ``b = G^{-1} c``, without a ridge. To first order in the noise they are off by
    ``G^{-1} (X'(y - X beta) + e - E beta)``, whose covariance is

    ``G^{-1} (v G + (s^2/2) ((1 + |b|^2) I + b b')) G^{-1}``

    with v the residual variance, of the same moments, and s^2 the variance of the noise on a
    diagonal entry (half of it off the diagonal).

    Parameters
    ----------
    table
        One row for each unit; rows that lack a value are left out.
    features, target
        Columns with bounds.
    mechanism
        ``dp.Gaussian()``, the default, which needs a delta: the law of the estimates is normal
        where the noise is.

    Returns
    -------
    Released
        By feature, ``"intercept"`` first, a mapping of ``"estimate"``, in the columns' units, with
        an interval of the population's coefficient, and ``"p_value"`` of the two-sided test of 0,
        at least 1e-300: read that as 1e-300 or less.

    Notes
    -----
    The law is for rows whose residuals have one variance, and for moments that stand clear of their
    noise: where the least eigenvalue of G is below 3 edges of the noise's spectrum, p-values are 1
    and there are no intervals. More rows, more budget or fewer features help, or bounds that fit.

    References
    ----------
    Sheffet 2017 (inference from perturbed second moments); Ferrando, Wang and Sheldon 2022.

    See Also
    --------
    adaptive_dp.AdaSSP : coefficients for prediction, with a ridge.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "dose": (0, 10), "days": (0, 40)})
    >>> fit = dp.statistics.coefficients(people, ["age", "dose"], "days")
    >>> plan = dp.Pipeline(fit=fit).calibrate(epsilon=1.0, delta=1e-6)
    >>> rng = np.random.default_rng(1)
    >>> age, dose = rng.uniform(0, 100, 20_000), rng.uniform(0, 10, 20_000)
    >>> days = 10 + 0.1 * age + rng.normal(0, 2, 20_000)
    >>> fit = plan.simulate(seed=1, people={"age": age, "dose": dose, "days": days})["fit"]
    >>> [f"{name} {each['estimate']:.2f} {each['p_value']:.3f}" for name, each in fit.items()]
    ['intercept 9.93 0.000', 'age 0.10 0.000', 'dose 0.01 0.429']
    """
    names = strings(features)
    nulls.check_units("inference of coefficients", table)
    table.domain.find(target)
    if not names or target in names or len(set(names)) < len(names):
        raise DeclarationError(
            f"a regression needs different features, the target not among them; got {list(names)} "
            f"and {target!r}"
        )
    columns = (*names, target)
    bounds = [table.domain.interval(name) for name in columns]
    noise = Gaussian() if mechanism is None else mechanism
    if type(noise) is not Gaussian:
        raise DeclarationError(
            f"inference of coefficients knows the law of Gaussian noise, got {type(noise).__name__}"
        )
    moments = table.vectors(columns, scale=True, intercept=True).gram()
    released = moments.release(noise, name="moments")
    kind, scale = nulls.noise_of(released, noise)
    result = post(
        regression_test,
        released,
        scale,
        names=list(names),
        middle=[b.lower / 2 + b.upper / 2 for b in bounds],
        half=[(b.upper - b.lower) / 2 or 1.0 for b in bounds],
        kind=kind,
    )
    return group("coefficients", result, table)


def estimates(
    moments: Floats, deviation: float, middle: Sequence[float], half: Sequence[float]
) -> tuple[Floats, Floats | None]:
    """Return coefficients and their standard errors in data units; None where noise hides them.

    Parameters
    ----------
    moments
        Of a 1, the features and the target, shape (d + 1, d + 1).
    deviation
        Of the noise on the diagonal.
    middle, half
        Of the bounds of features and target.
    """
    d = len(moments) - 1
    gram, cross, square = moments[:d, :d], moments[:d, d], float(moments[d, d])
    least = float(np.linalg.eigvalsh(gram)[0])
    edge = deviation * math.sqrt(2 * d)  # Wigner's semicircle
    if least < CLEAR * edge:
        b = np.asarray(np.linalg.lstsq(gram + max(0.0, edge - least) * np.eye(d), cross)[0])
        return _in_units(b, np.zeros((d, d)), middle, half)[0], None
    inverse = np.linalg.inv(gram)
    b = inverse @ cross
    n = max(float(moments[0, 0]), d + 1.0)
    # |y - X b|^2 has the noise u'(noise)u, u = (b, -1): of deviation s |u|^2
    residual = square - 2 * float(b @ cross) + float(b @ gram @ b)
    residual += MARGIN * deviation * (1 + float(b @ b))
    variance = max(residual, 0.0) / max(n - d, 1.0)
    noise = deviation**2 / 2 * ((1 + float(b @ b)) * np.eye(d) + np.outer(b, b))
    covariance = inverse @ (variance * gram + noise) @ inverse
    values, covariance = _in_units(b, covariance, middle, half)
    return values, np.sqrt(np.maximum(covariance.diagonal(), 0.0))


def _in_units(
    b: Floats, covariance: Floats, middle: Sequence[float], half: Sequence[float]
) -> tuple[Floats, Floats]:
    *centers, center = middle
    *widths, width = half
    transform = np.diag([width, *(width / each for each in widths)])
    transform[0, 1:] = [-width * m / h for m, h in zip(centers, widths, strict=True)]
    values = transform @ b
    values[0] += center
    return values, transform @ covariance @ transform.T


def _estimates(inputs: Sequence[Any], kind: str, **bounds: Any) -> tuple[Floats, Floats | None]:
    deviation = math.sqrt(nulls.variance_of(kind, float(inputs[1])))
    return estimates(np.asarray(inputs[0]), deviation, bounds["middle"], bounds["half"])


def _regression_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    names: Sequence[str],
    middle: Sequence[float],
    half: Sequence[float],
    kind: str,
) -> dict[str, Any]:
    values, errors = _estimates(inputs, kind, middle=middle, half=half)
    hidden = NoIntervalError(
        "the noise nearly hides some combination of the features; have more rows, more budget or "
        "fewer features"
    )
    z = -float(ndtri(nulls.share_beyond(level)))
    ends = {}
    for i, name in enumerate(["intercept", *names]):
        interval: Any = hidden
        if errors is not None:
            low, high = values[i] - z * errors[i], values[i] + z * errors[i]
            interval = ConfidenceInterval(float(low), float(high))
        ends[name] = {"estimate": interval, "p_value": nulls.NO_INTERVAL}
    return ends


@released_ends(_regression_ends)
def regression_test(
    moments: Floats,
    scale: float,
    *,
    names: Sequence[str],
    middle: Sequence[float],
    half: Sequence[float],
    kind: str,
) -> dict[str, dict[str, float]]:
    """Return the estimate and p-value of each coefficient of `coefficients`."""
    values, errors = _estimates([moments, scale], kind, middle=middle, half=half)
    result = {}
    for i, name in enumerate(["intercept", *names]):
        p = 1.0 if errors is None else 2 * float(ndtr(-abs(values[i]) / max(errors[i], 1e-300)))
        result[name] = {"estimate": float(values[i]), "p_value": nulls.at_least(p)}
    return result
