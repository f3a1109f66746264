"""Amplification by a sample of a fixed size, drawn without replacement."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.errors import DomainError, whole
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite
from accountants.losses.joint_convexity import Mixed, checked_body
from accountants.rounding import ceiling


def _size(value: int) -> int:
    return whole("FixedSize.size", value, least=0)


def _of(value: int) -> int:
    return whole("FixedSize.of", value)


@frozen(cache_hash=True)
class FixedSize(Mixed):
    """A body that runs on ``size`` of ``of`` units, each set of that many equally likely.

    Neighbours differ in the value of one unit (replace-one), and ``of`` is public. If the sample
    holds the unit, the body sees two samples that differ in it (A and A'); if not, the sample
    (B) is one of them with that unit replaced by another, so all three differ by one
    replacement, and `accountants.losses.joint_convexity` holds with ``q = size / of``.

    Parameters
    ----------
    body
        The body's loss on samples of which one unit is replaced: for a sum of vectors of norm 1
        with noise sigma, ``Gaussian(mu=2 / sigma)``.
    size, of
        Whole numbers, ``0 <= size <= of``.

    References
    ----------
    Balle, Barthe and Gaboardi 2018, Thm 9 (profile); Zhu, Dong and Wang 2022, Prop. 30 (pair).

    Examples
    --------
    >>> from accountants import Composite, Pure
    >>> round(FixedSize(Composite({Pure(epsilon=1.0): 1}), size=1, of=100).pure(), 6)
    0.017037
    """

    theorem: ClassVar[str] = (
        "sampling without replacement: Balle, Barthe & Gaboardi 2018, Thm 9; "
        "Zhu, Dong & Wang 2022, Prop. 30"
    )

    body: Composite = field(converter=checked_body)
    size: int = field(converter=_size)
    of: int = field(converter=_of)

    def __attrs_post_init__(self) -> None:
        if self.size > self.of:
            raise DomainError(
                f"FixedSize needs a sample no larger than the data, got {self.size} of {self.of}"
            )

    def mixture(self) -> tuple[Composite, float]:
        """Return the body and ``size / of``."""
        # a unit is in the sample with probability size / of
        return self.body, min(1.0, ceiling(Fraction(self.size, self.of)))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and rate (the bound is monotone in both)."""
        if isinstance(other, FixedSize):
            larger = self.mixture()[1] >= other.mixture()[1]
            return larger and self.body.dominates(other.body)
        return self == other
