"""What tests share: whom they admit, the tails of noise, and laws under the hypothesis."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import PrivateQuery, Public, Released, change_at, parameter
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.outputs import ConfidenceInterval
from adaptive_dp.graph.values import number
from adaptive_dp.mechanisms import DiscreteLaplace, Gaussian, Laplace
from adaptive_dp.queries.sums import scale_noise
from adaptive_dp.queries.table import Table

Floats = NDArray[np.float64]

ALTERNATIVES = ("two-sided", "greater", "less")
NUISANCE = 1e-4
"""The probability that a bound of an unknown number of rows may be wrong: it is added to the
p-value, which then is one whatever the number is (Berger and Boos 1994, Lemma 1)."""

LEAST = 1e-300
"""No p-value is below this: read it as that or less."""

NO_INTERVAL = NoIntervalError("its law under the hypothesis is in the p-value")
"""Why a statistic and a p-value have none."""


def check_table(test: str, table: Table) -> None:
    """Refuse what is no table."""
    if not isinstance(table, Table):
        raise DeclarationError(
            f"{test} needs a table, such as dp.dataset(...) returns, got {type(table).__name__}; "
            "data are passed to a run"
        )


def check_units(test: str, table: Table) -> None:
    """Refuse what is no table, and units of several rows, which are no independent observations."""
    check_table(test, table)
    rows = change_at(table).rows
    if rows != 1:
        many = "any number of" if rows < 0 else f"up to {rows}"
        raise DeclarationError(
            f"{test} needs one row for each unit, since its law under the hypothesis is that of "
            f"independent rows, and here a unit has {many}; declare rows_per_unit=1"
        )


def public_rows(table: Table) -> int | None:
    """Return the public number of rows of a table of one row for each unit; None where private."""
    domain = table.domain
    # zeroed-out rows are rows of both data sets; under replace_one a filter may lose one
    known = domain.neighbors == "zero_out" or change_at(table).fixed
    size: int | None = domain.size if known else None
    return size


def check_alternative(alternative: str) -> str:
    """Return one of `ALTERNATIVES`, or refuse."""
    if not isinstance(alternative, str) or alternative not in ALTERNATIVES:
        raise DeclarationError(
            f"alternative must be one of {', '.join(map(repr, ALTERNATIVES))}, got {alternative!r}"
        )
    return alternative


def names_of(test: str, keys: Sequence[Any]) -> list[str]:
    """Return categories as names of what is released of each, or refuse those of one name."""
    names = [str(key) for key in keys]
    if len(set(names)) < len(names):
        raise DeclarationError(
            f"{test} releases a mapping by the categories' names, of which two are the same: "
            f"{list(keys)!r}; declare others"
        )
    return names


def check_inside(name: str, value: Any, low: float, high: float) -> float:
    """Return a number strictly between two, or refuse."""
    plain = number(value)
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not low < plain < high:
        raise DeclarationError(f"{name} must be above {low:g} and below {high:g}, got {value!r}")
    return float(plain)


# -----------------------------------------------------------------------------
# The noise of a release, as the function that computes a p-value knows it.


KINDS = {
    "DiscreteLaplace": "discrete_laplace",
    "Laplace": "laplace",
    "Gaussian": "gaussian",
    "Tulap": "tulap",
}
"""Mechanisms whose noise tests know, by class name."""


def known_noise(test: str, mechanism: Mechanism | None, default: Mechanism) -> Mechanism:
    """Return the mechanism of a test, or refuse one whose noise tests do not know."""
    if mechanism is None:
        return default
    if type(mechanism) not in (DiscreteLaplace, Laplace, Gaussian, type(default)):
        raise DeclarationError(
            f"{test} knows the noise of Laplace, DiscreteLaplace and Gaussian, got "
            f"{type(mechanism).__name__}"
        )
    return mechanism


def noise_of(release: Released[Any], mechanism: Mechanism) -> tuple[str, Public[float]]:
    """Return the kind of a release's noise and its parameter as a handle."""
    kind = KINDS[type(mechanism).__name__]
    return kind, parameter(release, "sigma" if kind == "gaussian" else "scale")


def weighted_noise(query: PrivateQuery[Any], mechanism: Mechanism, weight: float) -> Mechanism:
    """Return a mechanism whose noise is ``weight`` times what a query's sensitivity asks for."""
    operation = query.operation
    assert isinstance(operation, Query)
    domain, change = query.inputs[0].domain, change_at(query.inputs[0])
    size = float(operation.sensitivity(domain, change, mechanism.norm))
    if any(free.weight is None for free in mechanism.free().values()):
        mechanism = mechanism.weighted(size)
        return scale_noise(mechanism, weight)
    # a fixed noise is that of a query of sensitivity 1
    return scale_noise(mechanism, weight * size)


def variance_of(kind: str, scale: float) -> float:
    """Return the variance of noise."""
    if kind == "gaussian":
        return scale * scale
    if kind == "laplace":
        return 2 * scale * scale
    half = 0.5 / scale
    discrete = 0.5 / math.sinh(half) ** 2 if half < 300 else 0.0
    return discrete + (1 / 12 if kind == "tulap" else 0.0)


def tail(kind: str, scale: float, x: Any) -> Floats:
    """Return the probability that noise is at least x."""
    x = np.asarray(x, dtype=np.float64)
    if kind == "gaussian":
        return np.asarray(ndtr(-x / scale))
    if kind == "laplace":
        far = 0.5 * np.exp(-np.abs(x) / scale)
        return np.asarray(np.where(x >= 0, far, 1 - far))
    # discrete Laplace: P(K >= k) = q^k / (1 + q) for k >= 1, and 1 - P(K >= 1 - k) for k <= 0
    q = math.exp(-1 / scale)
    if kind == "discrete_laplace":
        k = np.ceil(x)
        far = np.exp(-np.maximum(k, 1 - k) / scale) / (1 + q)
        return np.asarray(np.where(k >= 1, far, 1 - far))
    # Tulap: K plus a uniform number in [-1/2, 1/2]; K >= k + 1 for certain, K = k with a share
    k = np.rint(x)
    above = np.exp(-np.maximum(k + 1, -k) / scale) / (1 + q)
    above = np.where(k + 1 >= 1, above, 1 - above)
    mass = np.exp(-np.abs(k) / scale) * (1 - q) / (1 + q)
    return np.asarray(above + mass * np.clip(k + 0.5 - x, 0.0, 1.0))


def quantile(kind: str, scale: float, beta: float) -> float:
    """Return a number that noise exceeds with probability at most beta, below 1/2."""
    if kind == "gaussian":
        return float(-ndtri(beta)) * scale
    if kind == "laplace":
        return scale * math.log(0.5 / beta)
    return math.ceil(scale * math.log(1 / beta)) + 1.0


def draw_noise(
    generator: np.random.Generator, kind: str, scale: float, shape: tuple[int, ...]
) -> Floats:
    """Return independent draws of noise, for the law of a statistic; never for a release."""
    if kind == "gaussian":
        return generator.normal(0.0, scale, shape)
    if kind == "laplace":
        return generator.laplace(0.0, scale, shape)
    share = -math.expm1(-1 / scale)
    return np.asarray(
        generator.geometric(share, shape) - generator.geometric(share, shape), dtype=np.float64
    )


def generator_of(*values: Any) -> np.random.Generator:
    """Return a generator seeded by released values, so that a p-value is a function of them."""
    text = "/".join(np.asarray(value, dtype=np.float64).tobytes().hex() for value in values)
    return np.random.Generator(
        np.random.Philox(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))
    )


def exceedance(statistic: float, draws: Floats) -> float:
    """Return the share of draws at least as large, the statistic itself counted among them.

    It is a p-value exactly, however many draws there are, where these have the statistic's law
    (Davison and Hinkley 1997, section 4.2).
    """
    return float((1 + np.sum(draws >= statistic)) / (1 + len(draws)))


# -----------------------------------------------------------------------------
# A normal number plus a Laplace one.


def normal_laplace_tail(t: Any, variance: Any, scale: Any) -> Floats:
    r"""Return ``P(Z + L >= t)``, Z normal of a variance and L Laplace of a scale, independent.

    ``Q(t/s) + (1/2) e^{s^2/(2 b^2)} [e^{-t/b} Phi(t/s - s/b) - e^{t/b} Q(t/s + s/b)]``.

    References
    ----------
    Reed 2006, section 2.
    """
    t = np.asarray(t, dtype=np.float64)
    if not np.any(np.asarray(variance) > 0):
        return tail("laplace", scale, t)
    s = np.sqrt(variance)
    a, x = s / scale, t / s
    low, high = (_scaled_tail(a, sign * x) for sign in (1, -1))
    return np.asarray(np.clip(ndtr(-x) + (low - high) / 2, 0.0, 1.0))


def _scaled_tail(a: Any, x: Floats) -> Floats:
    """Return ``e^{a^2/2 - a x} Q(a - x)``.

    Where ``a > x`` that is ``e^{-x^2/2} erfcx((a - x) / sqrt 2) / 2``, in which no large exponents
    cancel: a may be 1e10, where noise is little. Elsewhere the exponents are those of the tail.
    """
    u = np.asarray(a - x)
    # each of the two only where it is chosen
    inside = np.exp(-x * x / 2) * erfcx(np.maximum(u, 0.0) / math.sqrt(2)) / 2
    outside = np.minimum(u, 0.0)
    beyond = np.exp(outside * a - a * a / 2 + log_ndtr(-outside))
    return np.asarray(np.where(u > 0, inside, beyond))


def normal_noise_tail(t: Any, variance: Any, kind: str, scale: Any) -> Floats:
    """Return the tail of a normal number plus noise; integer noise counts as continuous."""
    if kind == "gaussian":
        return np.asarray(ndtr(-np.asarray(t) / np.sqrt(variance + scale * scale)))
    return normal_laplace_tail(t, variance, scale)


def normal_noise_quantile(beta: float, variance: float, kind: str, scale: float) -> float:
    """Return t where `normal_noise_tail` is beta, below 1/2."""
    high = math.sqrt(variance) * 40 + 800 * scale
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        if normal_noise_tail(middle, variance, kind, scale) > beta:
            low = middle
        else:
            high = middle
    return high


def sided(alternative: str, greater: float, less: float) -> float:
    """Return the p-value of an alternative from the two one-sided ones."""
    both = {"greater": greater, "less": less, "two-sided": 2 * min(greater, less)}
    return at_least(both[alternative])


def at_least(p: float) -> float:
    """Return a p-value of at most 1, and of at least 1e-300: a smaller one may have become 0.

    >>> at_least(0.0)
    1e-300
    """
    return float(min(1.0, max(p, LEAST)))


def share_beyond(level: float, sides: int = 2) -> float:
    """Return the probability left beyond each end of an interval."""
    return (1 - level) / sides


def rate_interval(
    hits: float, others: float, sizes: tuple[int, int], kind: str, variance: float, beta: float
) -> ConfidenceInterval:
    """Return the rates p for which ``hits - p (hits + others)`` is no surprise at either side.

    Parameters
    ----------
    hits, others
        Released counts.
    sizes
        Of how many counts each is the sum.
    kind, variance
        The noise of each count. Sums of Laplace noise are taken as one of their variance, whose
        tails are longer: a normal law of it would leave out a true rate five times too often at
        a level of 99.9 %.
    beta
        The probability beyond each end.
    """
    z, total = -float(ndtri(beta)), hits + others
    rows = max(total + z * math.sqrt(sum(sizes) * variance), 1.0)

    def spreads(p: Floats) -> tuple[Floats, Floats]:
        # the least keep a quotient of both defined
        noise = np.maximum(variance * (sizes[0] * (1 - p) ** 2 + sizes[1] * p**2), 1e-18)
        return np.maximum(rows * p * (1 - p), 1e-18), noise

    found = np.clip(np.array([hits / max(total, 1.0)]), 0.0, 1.0)
    near = np.sqrt(np.add(*spreads(found))) / max(total, 1.0)
    # a grid of all rates, and a finer one about the one found, which many rows tell exactly
    p = np.linspace(0.0, 1.0, 2001)
    p = np.unique(np.concatenate([p, np.clip(found + near * (20 * p - 10), 0.0, 1.0)]))
    sampling, noise = spreads(p)
    scale = np.sqrt(noise if kind == "gaussian" else noise / 2)
    holds = normal_noise_tail(np.abs(hits - p * total), sampling, kind, scale) >= beta
    if total <= 0 or not holds.any():  # a total that noise has made negative tells nothing
        return ConfidenceInterval(0.0, 1.0)
    inside = np.flatnonzero(holds)
    # the grid's step outward
    return ConfidenceInterval(
        float(p[max(0, inside[0] - 1)]), float(p[min(len(p) - 1, inside[-1] + 1)])
    )


def no_intervals(names: Sequence[str]) -> dict[str, Any]:
    """Return `NO_INTERVAL` for each name."""
    return dict.fromkeys(names, NO_INTERVAL)
