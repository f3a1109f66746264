"""A mechanism that is only nearly sampled from."""

from __future__ import annotations

import math
from fractions import Fraction

from accountants.errors import InapplicableError, nonnegative, probability
from accountants.loss import PrivacyLoss
from accountants.losses.approximate import Approximate
from accountants.rounding import ceiling, up


def with_total_variation(
    loss: PrivacyLoss, distance: float, *, epsilon: float | None = None
) -> Approximate:
    """Return the loss of a mechanism whose sampler is within a total-variation distance of it.

    Let M have ``(epsilon, delta)``, and let M'(D) be within ``distance`` = t of M(D) for *every*
    data set D. For neighbours D, E and every set S of outputs

    ``M'(D)(S) <= M(D)(S) + t <= e^epsilon M(E)(S) + delta + t
    <= e^epsilon (M'(E)(S) + t) + delta + t``,

    so M' has ``(epsilon, delta + (1 + e^epsilon) t)``, under any neighbour relation. The factor is
    attained: where S has mass of at least t under M(E), ``e^epsilon`` times that under M(D), and
    the sampler adds t to it under D and takes t from it under E. So t is not a failure of the loss
    as others are, which would cost t alone: samples that are near in distribution need not be near
    on the same event.

    The distance must be a theorem about the sampler, with explicit constants, for all data sets. A
    Markov chain's trace plots, effective sample sizes or R-hat are none: they say that no
    difference was seen on the data at hand. Nor does the law of a chain that ran until a diagnostic
    was content have such a bound, since then its length depends on the data as well.

    Parameters
    ----------
    loss
        Of the mechanism that is meant.
    distance
        t, in [0, 1]: the most, over all sets, by which the probabilities differ, for any data set.
    epsilon
        At which the result holds; by default the loss's pure epsilon.

    References
    ----------
    Own proof, above; the same statement is in Wang, Fienberg and Smola 2015, for posterior samples.

    Examples
    --------
    >>> from accountants import Pure
    >>> near = with_total_variation(Pure(1.0), 1e-9)
    >>> near.epsilon, round(near.delta * 1e9, 6)
    (1.0, 3.718282)
    """
    near = probability("distance", distance)
    at = loss.pure() if epsilon is None else nonnegative("epsilon", epsilon)
    if at is None:
        raise InapplicableError(
            f"{type(loss).__name__} has no pure epsilon; pass epsilon= to say at which one the "
            "nearly sampled mechanism is to be certified"
        )
    if epsilon is None:
        delta: float | None = loss.failure()
    else:
        known = loss.profile(at)
        delta = None if known is None else known.upper
    if delta is None:
        raise InapplicableError(f"{type(loss).__name__} has no privacy profile")
    # e^epsilon is rounded up, and with it (1 + e^epsilon) t
    grown = up(math.exp(at), 8) if at < 700 else math.inf
    if near == 0:
        return Approximate(at, delta)
    total = 1.0 if grown == math.inf else ceiling(_exact(delta, grown, near))
    return Approximate(at, min(1.0, total))


def _exact(delta: float, grown: float, near: float) -> Fraction:
    return Fraction(delta) + (1 + Fraction(grown)) * Fraction(near)
