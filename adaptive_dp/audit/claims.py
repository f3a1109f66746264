"""What an audit holds a mechanism to: points (epsilon, delta) that must hold together.

A claim may be an epsilon, a pair (epsilon, delta), a `PrivacyLoss`, an `accountants.Guarantee`, or
a certificate. Of a whole curve, so many points are looked at; the learning half of the draws
chooses the one that the other half tests.
"""

from __future__ import annotations

import math
from typing import Any

from attrs import frozen

from accountants import Guarantee, PrivacyLoss, Spend
from accountants.errors import DomainError, nonnegative, probability
from accountants.numerics import shown
from adaptive_dp.graph.certificate import Certificate

Claimed = PrivacyLoss | Guarantee | Certificate | tuple[float, float] | float

_DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.4)
"""At these deltas a curve is tested, and at 0 where it is pure."""


def allowed(confidence: float) -> float:
    """Return the probability of an error that a confidence allows.

    Raises
    ------
    DomainError
        If the confidence is no number between 0 and 1, both excluded.
    """
    bad = isinstance(confidence, bool | str | bytes)
    try:
        level = math.nan if bad else float(confidence)
    except (TypeError, ValueError, OverflowError):
        level = math.nan
    if not 0 < level < 1:
        raise DomainError(
            "confidence must be a number between 0 and 1, both excluded, such as 0.95, got "
            f"{confidence!r}"
        )
    return 1 - level


@frozen
class Claim:
    """A claim, as points of its privacy profile.

    Parameters
    ----------
    words
        What is claimed.
    points
        Pairs (epsilon, delta), epsilon in nats: for every event S, in both directions,
        ``P(S) <= e^epsilon Q(S) + delta``.
    mu
        The parameter where the claim is Gaussian DP.
    """

    words: str
    points: tuple[tuple[float, float], ...]
    mu: float | None = None


def claim(claimed: Claimed | Claim, delta: float | None = None) -> Claim:
    """Return a claim; at one delta only where that is given.

    Raises
    ------
    DomainError
        If nothing is claimed that an audit could refute (an infinite epsilon, a delta of 1), or a
        delta is given beside a point (epsilon, delta).

    Examples
    --------
    >>> import accountants
    >>> claim((1.0, 1e-6))
    Claim(words='epsilon 1 at delta 1e-06', points=((1.0, 1e-06),), mu=None)
    >>> [(epsilon, delta)] = claim(accountants.Gaussian(mu=0.5), delta=1e-6).points
    >>> round(epsilon, 6), delta
    (2.254085, 1e-06)
    """
    if isinstance(claimed, Claim):
        return claimed
    if isinstance(claimed, Certificate):
        return _point(claimed.epsilon, claimed.delta, delta, "certified: ")
    if isinstance(claimed, PrivacyLoss | Guarantee):
        return _curve(claimed, delta)
    if isinstance(claimed, tuple):
        if len(claimed) != 2:
            raise DomainError(f"a claim must be (epsilon, delta), got {len(claimed)} numbers")
        return _point(*claimed, delta)
    return _point(claimed, 0.0, delta)


def _point(epsilon: Any, found: Any, delta: float | None, says: str = "") -> Claim:
    eps, at = nonnegative("the claim's epsilon", epsilon), probability("the claim's delta", found)
    if at >= 1:
        raise DomainError("a claim with delta 1 promises nothing; there is nothing to audit")
    if delta is not None and delta != at:
        raise DomainError(
            f"the claim is for delta {at:g} alone, got delta={delta!r}; leave it out, or claim a "
            "privacy loss"
        )
    return Claim(f"{says}epsilon {shown(eps, upward=True)} at delta {at:g}", ((eps, at),))


def _curve(claimed: PrivacyLoss | Guarantee, delta: float | None) -> Claim:
    whole = claimed if isinstance(claimed, Guarantee) else Guarantee(Spend(claimed))
    mu = claimed.mu() if isinstance(claimed, PrivacyLoss) else None
    deltas = (0.0, *_DELTAS) if delta is None else (probability("delta", delta),)
    points: list[tuple[float, float]] = []
    for each in deltas:
        epsilon = whole.epsilon(each).upper
        if epsilon == 0 and points:
            break
        if epsilon < math.inf and each < 1:
            points.append((epsilon, each))
    if not points:
        raise DomainError(
            f"{claimed!r} promises no finite epsilon at delta {deltas[0]:g}; there is nothing to "
            "audit"
        )
    return Claim(repr(claimed), tuple(points), mu)
