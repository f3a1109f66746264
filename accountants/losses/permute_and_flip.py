"""The loss of permute-and-flip: a pure epsilon, and no bounded range."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from accountants.losses.derived_pair import PureBound


@frozen
class PermuteAndFlip(PureBound):
    """Candidates in random order; each is taken with probability ``e^{c (q - max q)}``.

    With scores that move by at most Delta, ``epsilon = 2 c Delta``; ``c Delta`` where all of the
    scores move the same way (monotone). It is report noisy max with exponential noise of scale
    1/c, see `accountants.losses.noisy_max` for the proof.

    It has no bounded range of epsilon: of two equal scores that move apart by epsilon/c, one is
    taken with probability ``e^-eps / 2`` instead of 1/2, the other with ``1 - e^-eps / 2``, so
    that the log-ratios lie ``eps + log(2 - e^-eps)`` apart. What is known of it is the pure
    epsilon, and the accountants bound it by the worst pair of that.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.

    References
    ----------
    McKenna and Sheldon 2020, Thm 1 (privacy); Ding, Kifer, Saghaian, Steinke, Wang, Xiao and
    Zhang 2021 (as report noisy max).

    Examples
    --------
    >>> PermuteAndFlip(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = "permute-and-flip: McKenna & Sheldon 2020 (pure DP)"
