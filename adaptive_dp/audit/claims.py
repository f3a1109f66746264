"""Claims that an audit tests: points (epsilon, delta) that must hold together.

A claim may be an epsilon, a pair (epsilon, delta), a `PrivacyLoss`, an `accountants.Guarantee`, or
a certificate; or what another library says: an accountant of dp-accounting or Opacus, an event of
dp-accounting, a measurement of OpenDP with an input distance, a mechanism or an accountant of
diffprivlib. These are known by what they can be asked, and none of them is imported.

Of a curve some points are taken; the learning draws choose which of them the test draws use, so
that the choice costs no confidence.
"""

from __future__ import annotations

import math
from typing import Any

from attrs import evolve, frozen

from accountants import Guarantee, PrivacyLoss, Spend, ZeroConcentrated, from_dp_event
from accountants.errors import DomainError, nonnegative, probability
from accountants.numerics import shown
from adaptive_dp.graph.certificate import Certificate

Claimed = PrivacyLoss | Guarantee | Certificate | tuple[float, float] | float

_DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.4)
"""The deltas above 0 at which a curve is tested."""


def allowed_error(confidence: float) -> float:
    """Return the probability of an error that a confidence allows.

    Raises
    ------
    DomainError
        If the confidence is not a number between 0 and 1, both excluded.
    """
    level = probability("confidence", confidence)
    if level in (0, 1):
        raise DomainError(
            f"confidence must be above 0 and below 1, such as 0.999, got {confidence!r}"
        )
    return 1 - level


@frozen
class Claim:
    """A claim, as points of its privacy profile.

    Parameters
    ----------
    words
        The claim as a sentence.
    points
        Pairs (epsilon, delta), epsilon in nats: for every event S, in both directions,
        ``P(S) <= e^epsilon Q(S) + delta``.
    mu
        The parameter, where the claim is Gaussian DP.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.audit.claim(1.0).points
    ((1.0, 0.0),)
    """

    words: str
    points: tuple[tuple[float, float], ...]
    mu: float | None = None


def claim(claimed: Claimed | Claim, delta: float | None = None) -> Claim:
    """Return what a mechanism is claimed to guarantee, as points (epsilon, delta).

    Parameters
    ----------
    claimed
        An epsilon, (epsilon, delta), a `PrivacyLoss`, a `Guarantee`, a certificate, or a `Claim`;
        or of another library: what has ``get_epsilon(delta)`` (Opacus' engine, accountants of
        dp-accounting and Opacus), ``total()`` (diffprivlib's `BudgetAccountant`), ``epsilon`` and
        ``delta`` (its mechanisms), an event of dp-accounting (of add/remove neighbours), or
        ``(measurement, d_in)`` of OpenDP.
    delta
        Of a curve, take the point at this delta alone; by default, points at several.

    Returns
    -------
    Claim
        Its points.

    Raises
    ------
    DomainError
        If nothing is claimed that an audit could refute (an infinite epsilon, a delta of 1), or
        another delta is given with a point (epsilon, delta).

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
        return _point_claim(claimed.epsilon, claimed.delta, delta, "certified: ")
    if isinstance(claimed, PrivacyLoss | Guarantee):
        return _curve_claim(claimed, delta)
    if isinstance(claimed, tuple) and len(claimed) == 2 and hasattr(claimed[0], "map"):
        return _mapped_claim(*claimed, delta)
    foreign = _foreign_claim(claimed, delta)
    if foreign is not None:
        return foreign
    if isinstance(claimed, tuple):
        if len(claimed) != 2:
            raise DomainError(f"a claim must be (epsilon, delta), got {len(claimed)} numbers")
        return _point_claim(*claimed, delta)
    return _point_claim(claimed, 0.0, delta)


def _foreign_claim(claimed: Any, delta: float | None) -> Claim | None:
    """Return what an object of another library says, by what it can be asked; None for no claim."""
    kind = type(claimed).__name__
    if callable(getattr(claimed, "get_epsilon", None)):
        deltas = _DELTAS if delta is None else (probability("delta", delta),)
        points = [(float(claimed.get_epsilon(each)), each) for each in deltas]
        points = [(epsilon, each) for epsilon, each in points if 0 <= epsilon < math.inf]
        if not points:
            raise DomainError(f"{kind} promises no finite epsilon at delta {deltas[0]:g}")
        return Claim(f"what {kind} says at each delta", tuple(points))
    if kind.endswith("DpEvent"):
        return evolve(_curve_claim(Guarantee(from_dp_event(claimed)), delta), words=repr(claimed))
    if callable(getattr(claimed, "total", None)):
        epsilon, spent_delta = claimed.total()
        return _point_claim(epsilon, spent_delta, delta, f"{kind}: ")
    if hasattr(claimed, "epsilon") and hasattr(claimed, "delta"):
        return _point_claim(claimed.epsilon, claimed.delta, delta, f"{kind}: ")
    return None


def _mapped_claim(measurement: Any, distance: Any, delta: float | None) -> Claim:
    """Return what a measurement of OpenDP says of inputs at a distance."""
    measure, answer = str(measurement.output_measure), measurement.map(distance)
    words = f"OpenDP of inputs {distance!r} apart: "
    if measure == "MaxDivergence":
        return _point_claim(answer, 0.0, delta, words)
    if measure == "Approximate(MaxDivergence)":
        epsilon, its_delta = answer
        return _point_claim(epsilon, its_delta, delta, words)
    if measure == "ZeroConcentratedDivergence":
        curve = _curve_claim(ZeroConcentrated(rho=answer), delta)
        return evolve(curve, words=f"{words}{answer:g}-zCDP")
    if callable(getattr(answer, "epsilon", None)):  # a privacy profile
        deltas = _DELTAS if delta is None else (probability("delta", delta),)
        points = tuple((float(answer.epsilon(each)), each) for each in deltas)
        return Claim(f"{words}a privacy profile", points)
    raise DomainError(
        f"a claim by the measure {measure} of OpenDP is not known; claim (epsilon, delta)"
    )


def _point_claim(epsilon: Any, claimed_delta: Any, delta: float | None, prefix: str = "") -> Claim:
    claimed_epsilon = nonnegative("the claim's epsilon", epsilon)
    point_delta = probability("the claim's delta", claimed_delta)
    # every mechanism is (epsilon, 1)-DP, so no run could refute it
    if point_delta >= 1:
        raise DomainError(
            "a claim at delta 1 promises nothing, so there is nothing to audit; claim a delta "
            "below 1"
        )
    # a single point says nothing about other deltas
    if delta is not None and delta != point_delta:
        raise DomainError(
            f"the claim is for delta {point_delta:g} alone, got delta={delta!r}; leave it out, or "
            "claim a privacy loss"
        )
    # the printed epsilon is rounded up: the sentence must not promise more than was claimed
    return Claim(
        f"{prefix}epsilon {shown(claimed_epsilon, upward=True)} at delta {point_delta:g}",
        ((claimed_epsilon, point_delta),),
    )


def _curve_claim(claimed: PrivacyLoss | Guarantee, delta: float | None) -> Claim:
    # a loss by itself is the guarantee of one release
    guarantee = claimed if isinstance(claimed, Guarantee) else Guarantee(Spend(claimed))
    mu = claimed.mu() if isinstance(claimed, PrivacyLoss) else None
    deltas = (0.0, *_DELTAS) if delta is None else (probability("delta", delta),)
    points: list[tuple[float, float]] = []
    # deltas ascend, so epsilons descend from point to point
    for point_delta in deltas:
        # the upper end of the bracket: a true claim must not be refuted for a bound's slack
        epsilon = guarantee.epsilon(point_delta).upper
        if epsilon == 0 and points:  # at larger deltas it is 0 as well
            break
        # at an infinite epsilon, or at delta 1, there is nothing to refute
        if epsilon < math.inf and point_delta < 1:
            points.append((epsilon, point_delta))
    if not points:
        raise DomainError(
            f"{claimed!r} promises no finite epsilon at delta {deltas[0]:g}, so there is nothing "
            "to audit; claim a larger delta"
        )
    return Claim(repr(claimed), tuple(points), mu)
