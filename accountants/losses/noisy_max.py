"""The losses of report noisy max: Gumbel, Laplace and exponential noise.

Noise of scale b is added to each of finitely many scores, and the largest one's index alone is
reported. Neighbours move each score by at most Delta; *monotone* scores move all up, or all down.

Proof of the pure epsilon, for the three noises. Hold the noise of all others fixed: candidate r
wins when its noise exceeds ``T = max_{j != r} (q_j + noise_j) - q_r``. Neighbours move T by at
most 2 Delta, by at most Delta where scores are monotone. The noise's hazard, its density over
the probability of more, is at most 1/b (Laplace: 1/b above 0, less below; exponential: 1/b above
0; Gumbel: ``u/(b (e^u - 1))`` with ``u = e^{-x/b}``). So the probability of more than T changes
by a factor of at most ``e^{2 Delta/b}``, or ``e^{Delta/b}``, and so does its mean over the
others' noise.

Gumbel noise is more: the answer has the law of the exponential mechanism, whose log-ratios have
bounded range. With the other two noises the ratios may range over more than epsilon.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from attrs import frozen

from accountants.errors import DomainError, nonnegative, positive
from accountants.loss import PrivacyLoss
from accountants.losses.bounded_range import BoundedRange
from accountants.losses.derived_pair import PureBound
from accountants.rounding import ceiling


def report_noisy_max(
    scale: float, sensitivity: float = 1.0, *, noise: str = "gumbel", monotone: bool = False
) -> PrivacyLoss:
    """Return the loss of reporting the index of the largest noisy score.

    Parameters
    ----------
    scale
        Of the noise: Gumbel with distribution function ``exp(-e^{-x/scale})``, Laplace with
        density ``e^{-|x|/scale}/(2 scale)``, exponential with ``e^{-x/scale}/scale``, x >= 0.
    sensitivity
        The most that one score moves between neighbours.
    noise
        ``"gumbel"``, ``"laplace"`` or ``"exponential"``.
    monotone
        Whether all scores of neighbours move the same way, such as counts under add/remove.

    Examples
    --------
    >>> report_noisy_max(2.0)
    GumbelNoisyMax(epsilon=1.0)
    >>> report_noisy_max(2.0, noise="laplace", monotone=True)
    LaplaceNoisyMax(epsilon=0.5)
    """
    width, reach = positive("scale", scale), nonnegative("sensitivity", sensitivity)
    if noise not in _LOSSES:
        raise DomainError(f"noise must be one of {', '.join(_LOSSES)}, got {noise!r}")
    if not isinstance(monotone, bool):
        raise DomainError(f"monotone must be True or False, got {monotone!r}")
    steps = 1 if monotone else 2
    return _LOSSES[noise](ceiling(steps * Fraction(reach) / Fraction(width)))


@frozen
class GumbelNoisyMax(BoundedRange):
    """Report noisy max with Gumbel noise of scale b: ``epsilon = 2 Delta/b``; monotone, Delta/b.

    The law is that of the exponential mechanism, ``P(r)`` proportional to ``e^{q_r/b}``.

    References
    ----------
    Durfee and Rogers 2019, Lemma 4.2 (Gumbel noise); see `BoundedRange` for the loss.

    Examples
    --------
    >>> GumbelNoisyMax(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = (
        "report noisy max, Gumbel noise, as an exponential mechanism: "
        "Durfee & Rogers 2019, Lemma 4.2; Dong, Durfee & Rogers 2020"
    )


@frozen
class LaplaceNoisyMax(PureBound):
    """Report noisy max with Laplace noise of scale b: ``epsilon = 2 Delta/b``; monotone, Delta/b.

    References
    ----------
    Dwork and Roth 2014, Claim 3.9 (counts, which are monotone); the proof for all scores is
    above, at the head of this module.

    Examples
    --------
    >>> LaplaceNoisyMax(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = "report noisy max, Laplace noise: Dwork & Roth 2014, Claim 3.9"


@frozen
class ExponentialNoisyMax(PureBound):
    """Report noisy max with exponential noise of scale b: ``epsilon = 2 Delta/b``, or Delta/b.

    The law is that of permute-and-flip with c = 1/b (`accountants.losses.permute_and_flip`).

    References
    ----------
    McKenna and Sheldon 2020, Thm 1; Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang 2021.

    Examples
    --------
    >>> ExponentialNoisyMax(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = (
        "report noisy max, exponential noise: McKenna & Sheldon 2020, Thm 1; Ding et al. 2021"
    )


_LOSSES: dict[str, type[GumbelNoisyMax] | type[LaplaceNoisyMax] | type[ExponentialNoisyMax]] = {
    "gumbel": GumbelNoisyMax,
    "laplace": LaplaceNoisyMax,
    "exponential": ExponentialNoisyMax,
}
