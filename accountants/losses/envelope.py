"""The pointwise maximum of several losses: what holds whichever of them is paid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import DomainError, InapplicableError
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite
from accountants.notions.renyi import renyi_divergence
from accountants.pair import Pair
from accountants.rounding import Array, up


def _losses(value: Iterable[PrivacyLoss]) -> tuple[PrivacyLoss, ...]:
    losses = tuple(value) if isinstance(value, Iterable) else ()
    if not losses or not all(isinstance(loss, PrivacyLoss) for loss in losses):
        raise DomainError(
            f"Envelope needs at least one privacy loss and nothing else, got {value!r}"
        )
    return losses


@frozen(cache_hash=True)
class Envelope(PrivacyLoss):
    """A bound on every one of ``losses``: each functional is the largest of theirs.

    Sound, since each functional is an upper bound and accountants grow in it; looser than
    the dearest single loss, since one loss may be dearest at one order, another at another.

    Parameters
    ----------
    losses
        At least one; a functional that one of them lacks, the envelope lacks.

    Examples
    --------
    >>> from accountants import Gaussian, Laplace
    >>> either = Envelope([Gaussian(mu=0.5), Laplace(epsilon=0.6)])
    >>> either.renyi(np.array([2.0, 64.0])).round(3).tolist()  # of Laplace, of Gaussian noise
    [0.274, 8.0]
    >>> either.pure() is None  # a Gaussian has none
    True
    """

    theorem: ClassVar[str] = "pointwise maximum of the curves of all alternatives"

    losses: tuple[PrivacyLoss, ...] = field(converter=_losses)

    def failure(self) -> float:
        """Return the largest failure."""
        return max(loss.failure() for loss in self.losses)

    def pair(self) -> Pair | None:
        """Return a pair that its pure epsilon or its mu implies.

        A Renyi curve alone implies one too, but a dear one (`derived_pair.curve_pair`).
        """
        from accountants.losses.derived_pair import implied  # here: seldom needed

        return implied(self)

    def pure(self) -> float | None:
        """Return the largest pure epsilon."""
        return _largest([loss.pure() for loss in self.losses])

    def renyi(self, orders: Array) -> Array | None:
        """Return the largest divergence at each order; of compositions each loss is asked once."""
        asked: dict[PrivacyLoss, Array] = {}
        curves = [_curve(loss, orders, asked) for loss in self.losses]
        known = [curve for curve in curves if curve is not None]
        # each curve is an upper bound for its own loss: their maximum is one for all
        return np.max(known, axis=0) if len(known) == len(curves) else None

    def rho(self) -> float | None:
        """Return the largest rho."""
        return _largest([loss.rho() for loss in self.losses])

    def mu(self) -> float | None:
        """Return the largest mu."""
        return _largest([loss.mu() for loss in self.losses])

    def grouped(self, size: int) -> Envelope:
        """Return the envelope of the grouped losses."""
        return Envelope(tuple(loss.grouped(size) for loss in self.losses))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether one of the losses dominates ``other``."""
        return self == other or any(loss.dominates(other) for loss in self.losses)


def _curve(loss: PrivacyLoss, orders: Array, asked: dict[PrivacyLoss, Array]) -> Array | None:
    """Return a loss's curve; a composition's from those of its losses, each asked once."""
    if not isinstance(loss, Composite):
        return loss.renyi(orders)
    total = np.zeros_like(orders)
    for part, times in loss.spends:
        if part not in asked:
            try:
                asked[part] = renyi_divergence(part, orders)
            except InapplicableError:
                return None
        total = total + times * asked[part]
    # sums of n rounded products
    return up(total, 2 * len(loss.spends) + 2)


def _largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
