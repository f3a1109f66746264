"""Approximate DP: the pair is (epsilon, delta)-indistinguishable.

A loss that knows its privacy profile delta(epsilon) is approximate DP at every point of
that curve; the epsilon for a given delta is the root of the profile's upper end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from accountants.bounds import Bounds
from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.roots import crossing


@lru_cache(maxsize=4096)  # worlds have most losses in common, and a share of delta
def approximate_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """Return an epsilon with ``profile(epsilon).upper <= delta``, to the last bits.

    Raises
    ------
    InapplicableError
        If the loss knows no profile.
    """
    known = loss.epsilon_at(delta)
    return (
        known.upper if known is not None else profile_root(_known_profile(loss), delta, upper=True)
    )


@lru_cache(maxsize=4096)  # each accountant asks for it
def approximate_epsilon_floor(loss: PrivacyLoss, delta: float) -> float:
    """Return a lower bound of the tight epsilon at ``delta``: there the profile exceeds delta."""
    known = loss.epsilon_at(delta)
    if known is not None:
        return known.lower
    try:
        return profile_root(_known_profile(loss), delta, upper=False)
    except InapplicableError:
        return 0.0


def _known_profile(loss: PrivacyLoss) -> Callable[[float], Bounds]:
    def profile(epsilon: float) -> Bounds:
        bounds = loss.profile(epsilon)
        if bounds is None:
            raise InapplicableError(f"{type(loss).__name__} has no privacy profile")
        return bounds

    return profile


def profile_root(profile: Callable[[float], Bounds], delta: float, *, upper: bool) -> float:
    """Return where a profile's upper or lower end falls to ``delta``, on that end's safe side."""
    target = math.log(delta) if delta > 0 else 0.0
    # the target's own rounding, to the safe side: an upper root needs a smaller delta
    target -= (1 if upper else -1) * 2**-51 * (1 + abs(target))  # the logarithm's own rounding

    def excess(epsilon: float) -> float:
        bounds = profile(epsilon)
        value = bounds.upper if upper else bounds.lower
        if delta == 0:
            return value if value > 0 else -1.0
        return (math.log(value) if value > 0 else -1e6) - target

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    # delta falls in epsilon: double until it is below the target
    while excess(high) > 0:
        low, high = high, 2 * high
        if high > 1e300:
            return math.inf if upper else low
    left, right = crossing(excess, low, high)
    # `crossing` has evaluated both ends: on the right delta is at most the target, on the left
    # above
    return right if upper else left
