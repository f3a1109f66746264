"""Amplification by random allocation: each unit takes part in one of several steps.

Let r_1, ..., r_t be the steps' likelihood ratios of the unit present against absent, under the
laws without it. The unit lies in each step with probability 1/t, so the ratio of all steps
together is their mean X. Each ``E (r_i - s)_+`` is at most that of the body's pair, given all that
came before; since X is a mean, a convex function of X is convex in each ratio, and backwards from
the last step each can be exchanged for an independent ratio of the pair. So the pair of X, a
mean of t independent ratios, dominates (both directions: its reversed pair is of the same X).

Of k steps out of t each set of k equally likely: cut t at random into k blocks of ``t // k`` steps
(and a rest), then take one step of each block: that is such a set. Given the blocks, the ratio is a
product of k means, convex in each ratio; so it is dominated by k allocations to one of
``t // k`` steps (Feldman and Shenfeld 2025).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.errors import whole
from accountants.loss import PrivacyLoss
from accountants.losses.allocation import LOST, allocated, chords
from accountants.losses.composite import Composite
from accountants.losses.gaussian import GaussianPair
from accountants.losses.joint_convexity import body_pair, checked_body, is_single
from accountants.losses.unattained import Unattained
from accountants.pair import Pair
from accountants.rounding import Array, up


def _steps(value: int) -> int:
    return whole("Allocated.steps", value)


@frozen(cache_hash=True)
class Allocated(PrivacyLoss):
    """A body that runs ``steps`` times, on each unit in one of them (balls and bins).

    Each unit's step is uniform, and independent of the other units. Neighbours differ by one
    unit that is present or absent (add/remove, zero-out). The steps may depend on the outcomes
    of earlier ones.

    Parameters
    ----------
    body
        The loss of one step on a unit that takes part in it.
    steps
        An integer of at least 1.

    References
    ----------
    Feldman and Shenfeld 2025 and 2026 (random allocation); Chua et al. 2024 (balls and bins); the
    module's docstring has the proof.

    Examples
    --------
    >>> from accountants import Composite, Gaussian
    >>> one = Allocated(Composite({Gaussian(mu=1.0): 1}), steps=100)
    >>> one.profile(1.0).upper < Gaussian(mu=1.0).profile(1.0).upper / 100
    True
    """

    theorem: ClassVar[str] = "random allocation: Feldman & Shenfeld 2025; Chua et al. 2024"

    body: Composite = field(converter=checked_body)
    steps: int = field(converter=_steps)

    def failure(self) -> float:
        """Return the body's, and what underflows of the law of an unbounded loss."""
        failure = self.body.failure()
        cut = isinstance(self.pair(), Atoms) and isinstance(body_pair(self.body), GaussianPair)
        return min(1.0, up(failure + LOST)) if cut else failure

    def pair(self) -> Pair | None:
        """Return the pair of the mean, or the body's, which dominates it."""
        inner = body_pair(self.body)
        if inner is None or (self.steps == 1 and is_single(self.body)):
            return inner
        pair = inner if self.steps == 1 else allocated(inner, self.steps)
        return Unattained(pair) if pair == inner else pair

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the pair's profile, as an upper bound only."""
        if self.steps == 1:
            return self.body.profile(epsilon)
        known = super().profile(epsilon)
        return None if known is None else Bounds(0.0, known.upper)

    def pure(self) -> float | None:
        """Return the body's pure epsilon: all steps may have the largest ratio."""
        return self.body.pure()

    def renyi(self, orders: Array) -> Array | None:
        """Return the pair's curve, or the body's where that is less.

        Of the removal from a Gaussian body the exact moments are known (`chords`).
        """
        unsampled, inner, pair = self.body.renyi(orders), body_pair(self.body), self.pair()
        if unsampled is None or pair is None or not isinstance(pair, Atoms):
            return unsampled
        removal, addition = (_curve(one, orders) for one in (pair, pair.reversed()))
        if isinstance(inner, GaussianPair):
            removal = np.minimum(removal, chords(inner.mu, self.steps, orders))
        # the costlier direction, and never above the body's own curve
        return np.minimum(np.maximum(removal, addition), unsampled)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and steps: fewer dominate."""
        if isinstance(other, Allocated):
            return self.steps <= other.steps and self.body.dominates(other.body)
        return self == other


def _curve(pair: Pair, orders: Array) -> Array:
    known = pair.log_moment((orders - 1).astype(np.complex128))
    if known is None:
        return np.full_like(orders, np.inf)
    value = up((known[0].real + known[1]) / (orders - 1))
    return np.where(np.isnan(value), np.inf, np.maximum(value, 0.0))
