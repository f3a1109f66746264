"""Proportions: the uniformly most powerful private test of a share, with exact intervals."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from adaptive_dp.graph.handles import Released, group, post
from adaptive_dp.graph.mechanism import IN_PROPORTION, Mechanism, noise_parameter
from adaptive_dp.graph.outputs import ConfidenceInterval, released_ends
from adaptive_dp.mechanisms import DiscreteLaplace, Laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.expressions import Condition, as_condition
from adaptive_dp.queries.table import Column, Table
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import NUISANCE, Floats, sided, tail


class Tulap(DiscreteLaplace):
    """Add integer Laplace noise and a uniform number in [-1/2, 1/2] to a count.

    The noise of the most powerful private tests of a binomial proportion: its sum with a binomial
    number has a continuous law, so that a test has exactly its size.

    Privacy: that of `DiscreteLaplace`, since the uniform number is added to what that releases:
    ``epsilon = Delta_1 / b``.

    Parameters
    ----------
    scale
        b, in counts.

    References
    ----------
    Awan and Slavkovic 2018, Definition 4.1 (with q = 0) and Theorem 4.1: *truncated-uniform
    Laplace* noise is optimal for binomial data.

    See Also
    --------
    proportion : the test.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> dp.Pipeline(n=people.count().release(dp.statistics.Tulap(scale=2))).certify()
    <certificate epsilon=0.5 delta=0 by basic>
    """

    theorem: ClassVar[str] = "Awan & Slavkovic 2018, Thm 4.1; Ghosh et al. 2009, section 2"
    sampler: ClassVar[str] = "discrete Laplace, exact; a uniform number is added to it"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value, rounded, with noise."""
        # the integer release is private; what is added to it depends on no data
        counts = super().release(value, stream)
        return np.asarray(counts + (stream.uniform(np.shape(value)) - 0.5))

    def deviation(self) -> float | None:
        """Return the standard deviation: that of the integers, and 1/12 more in variance."""
        integers = super().deviation()
        return None if integers is None else math.sqrt(integers**2 + 1 / 12)

    def error(self, level: float, dimension: int, step: float) -> float:
        """Return an upper bound of what the noise exceeds with probability ``1 - level``."""
        return super().error(level, dimension, step) + 0.5


def proportion(
    table: Table,
    condition: Condition | Column[Any],
    null: float = 0.5,
    *,
    alternative: str = "two-sided",
    mechanism: Mechanism | None = None,
) -> Released[dict[str, float]]:
    r"""Test whether a share of the population is a given one, and estimate it.

    *Rows public* (``size=`` declared, ``replace_one`` or ``zero_out``). The count X of rows that
    meet the condition is released with `Tulap` noise; under the hypothesis it is
    ``Binomial(n, null)`` plus that noise, whose tails are sums of products: p-values are exact, and
    one-sided tests are uniformly most powerful among all private ones. The interval is that of the
    shares that the test does not reject.

    *Rows private* (``add_remove``). Rows that meet the condition, and those that do not, are one
    histogram. The statistic ``(1 - null) X - null Y`` has, for each number of rows, a law that is
    known; the p-value is its largest over numbers of rows that the released total admits but for
    probability 1e-4, plus that probability.

    Parameters
    ----------
    table
        One row for each unit.
    condition
        Such as ``people["age"] >= 65``; a missing value does not meet it.
    null
        The share under the hypothesis, inside (0, 1).
    alternative
        ``"two-sided"``, ``"greater"`` (the share is larger than ``null``) or ``"less"``.
    mechanism
        Noise of the counts: by default `Tulap`, or ``dp.Laplace()`` where rows are private; or
        ``dp.DiscreteLaplace()``, ``dp.Gaussian()``.

    Returns
    -------
    Released
        A mapping: ``"statistic"`` (the released count, less what is expected), ``"p_value"`` and
        ``"estimate"``, whose interval is of the population's share.

    References
    ----------
    Awan and Slavkovic 2018, Theorem 4.1 (tests), Theorem 5.1 (p-values), section 6 (intervals).
    Berger and Boos 1994, Lemma 1, where the number of rows is private.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"ill": bool}, neighbors="replace_one", size=1000)
    >>> test = dp.statistics.proportion(people, people["ill"], null=0.2, alternative="greater")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=0.5)
    >>> print(plan.simulate(seed=1, people={"ill": [True] * 250 + [False] * 750}))
    output          value       95% interval
    --------------  ----------  ----------------------------------------------------
    test.statistic  49.0046     none: its law under the hypothesis is in the p-value
    test.p_value    0.00011575  none: its law under the hypothesis is in the p-value
    test.estimate   0.249005    0.23 to 1.00
    NOT FOR RELEASE: noise from seed 1
    """
    null = nulls.check_inside("null", null, 0.0, 1.0)
    nulls.check_alternative(alternative)
    nulls.check_units("a test of a proportion", table)
    size = nulls.public_rows(table)
    if size is not None:
        noise = nulls.known_noise("a test of a proportion", mechanism, Tulap())
        count = table.filter(condition).count().release(noise, name="count")
        kind, scale = nulls.noise_of(count, noise)
        result = post(
            binomial_test,
            count,
            scale,
            size=size,
            null=null,
            alternative=alternative,
            kind=kind,
        )
        return group("proportion", result, table)
    noise = nulls.known_noise("a test of a proportion", mechanism, Laplace())
    met = table.with_columns(_met=as_condition(condition))["_met"]
    counts = met.histogram().release(noise, name="counts")
    kind, scale = nulls.noise_of(counts, noise)
    result = post(
        binomial_test_of_counts, counts, scale, null=null, alternative=alternative, kind=kind
    )
    return group("proportion", result, table)


# -----------------------------------------------------------------------------
# A public number of rows: the noise's tail, averaged over a binomial number.


def _support(size: int, share: float) -> tuple[Floats, Floats]:
    """Return numbers that a binomial one is but for probability 1e-30, and their masses."""
    spread = 12 * math.sqrt(size * share * (1 - share)) + 40
    low, high = (
        max(0, math.floor(size * share - spread)),
        min(size, math.ceil(size * share + spread)),
    )
    x = np.arange(low, high + 1.0)
    return x, np.asarray(binom.pmf(x, size, share))


def count_tails(
    count: float, size: int, share: float, kind: str, scale: float
) -> tuple[float, float]:
    """Return ``P(X + N >= count)`` and ``P(X + N <= count)``, X binomial and N noise."""
    x, mass = _support(size, share)
    greater = float(mass @ tail(kind, scale, count - x))
    less = float(mass @ tail(kind, scale, x - count))  # noise is symmetric
    return min(1.0, greater), min(1.0, less)


def binomial_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    size: int,
    null: float,
    alternative: str,
    kind: str,
) -> dict[str, Any]:
    """Return the interval of a share, of a released count of a public number of rows."""
    count, scale = float(inputs[0]), float(inputs[1])

    def tails(share: float) -> tuple[float, float]:
        return count_tails(count, size, share, kind, scale)

    return {
        **nulls.no_intervals(["statistic", "p_value"]),
        "estimate": inverted(tails, level, alternative),
    }


def inverted(tails: Any, level: float, alternative: str) -> ConfidenceInterval:
    """Return the shares that a test of this level does not reject, by bisection.

    ``P(X + N >= t)`` grows with the share, since binomial numbers do stochastically.
    """
    beta = nulls.share_beyond(level, 2 if alternative == "two-sided" else 1)
    low, high = 0.0, 1.0
    if alternative != "less":
        low = _crossing(lambda share: tails(share)[0] <= beta)[0]
    if alternative != "greater":
        high = _crossing(lambda share: tails(share)[1] > beta)[1]
    return ConfidenceInterval(low, high)


def _crossing(below: Any) -> tuple[float, float]:
    """Return ends around where a condition that holds for small shares ceases to hold."""
    low, high = 0.0, 1.0
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


@released_ends(binomial_ends)
def binomial_test(
    count: float, scale: float, *, size: int, null: float, alternative: str, kind: str
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `proportion`, of a released count."""
    greater, less = count_tails(float(count), size, null, kind, float(scale))
    return {
        "statistic": float(count) - size * null,
        "p_value": sided(alternative, greater, less),
        "estimate": float(np.clip(count / size, 0.0, 1.0)),
    }


# -----------------------------------------------------------------------------
# A private number of rows: the tail of (1 - p) L - p L', averaged over a binomial number.


SIZES = 9
"""Numbers of rows at which the p-value is computed, of those that the released total admits."""


def two_noises_tail(x: Floats, share: float, kind: str, scale: float) -> Floats:
    """Return ``P((1 - p) L - p L' >= x)`` for independent noises L and L'."""
    a, b = (1 - share) * scale, share * scale
    if kind == "gaussian":
        return tail(kind, math.hypot(a, b), x)
    # from scale 4 on integers count as continuous: their variance is less by 1/6 at most, and what
    # they are added to leaves no steps
    if kind == "discrete_laplace" and scale < 4:
        # the sum over what L' is, whose tails beyond 28 scales are below 1e-12
        j = np.arange(-math.ceil(28 * scale) - 1.0, math.ceil(28 * scale) + 2)
        q = math.exp(-1 / scale)
        mass = np.exp(-np.abs(j) / scale) * (1 - q) / (1 + q)
        # 1e-9: a multiple that is met but for rounding is met, which makes p-values larger
        at = (x[:, None] + share * j) / (1 - share) - 1e-9
        return np.asarray(tail(kind, scale, at) @ mass)
    far = np.abs(x)
    if abs(a - b) < 1e-4 * (a + b):
        mean = (a + b) / 2
        beyond = 0.5 * np.exp(-far / mean) * (1 + far / (2 * mean))
    else:
        # partial fractions of 1 / ((1 + a^2 t^2) (1 + b^2 t^2)), the characteristic function
        beyond = 0.5 * (a * a * np.exp(-far / a) - b * b * np.exp(-far / b)) / (a * a - b * b)
    return np.where(x >= 0, beyond, 1 - beyond)


def counts_tails(counts: Floats, share: float, kind: str, scale: float) -> tuple[float, float]:
    """Return p-values of ``greater`` and ``less`` for an unknown number of rows."""
    no, yes = map(float, counts)
    statistic = (1 - share) * yes - share * no
    # the total's noise is that of two counts: each within its own bound but for half of NUISANCE
    # for either side
    width = 2 * nulls.quantile(kind, scale, NUISANCE / 4)
    low, high = max(0.0, no + yes - width), max(0.0, no + yes + width)
    greater = less = 0.0
    for size in np.unique(np.rint(np.linspace(low, high, SIZES))):
        x, mass = _support(int(size), share)
        centered = statistic - (x - share * size)
        greater = max(greater, float(mass @ two_noises_tail(centered, share, kind, scale)))
        less = max(less, float(mass @ two_noises_tail(-centered, 1 - share, kind, scale)))
    return min(1.0, greater + NUISANCE), min(1.0, less + NUISANCE)


def _counts_ends(
    inputs: list[Any], level: float, sampling: bool, *, null: float, alternative: str, kind: str
) -> dict[str, Any]:
    counts, scale = np.asarray(inputs[0]), float(inputs[1])

    def tails(share: float) -> tuple[float, float]:
        return counts_tails(counts, min(max(share, 1e-9), 1 - 1e-9), kind, scale)

    return {
        **nulls.no_intervals(["statistic", "p_value"]),
        "estimate": inverted(tails, level, alternative),
    }


@released_ends(_counts_ends)
def binomial_test_of_counts(
    counts: Floats, scale: float, *, null: float, alternative: str, kind: str
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `proportion`, of two released counts."""
    greater, less = counts_tails(np.asarray(counts), null, kind, float(scale))
    no, yes = map(float, counts)
    return {
        "statistic": (1 - null) * yes - null * no,
        "p_value": sided(alternative, greater, less),
        "estimate": float(np.clip(yes / max(no + yes, 1.0), 0.0, 1.0)),
    }
