"""A pair whose privacy loss takes finitely many values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from attrs import field, frozen

from accountants.complexes import Complex, expm1, log1p
from accountants.errors import DomainError
from accountants.pair import Pair
from accountants.rounding import UNIT, Array, down, up


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


@frozen(slots=False, cache_hash=True)
class Atoms(Pair):
    """Finitely many losses, with their masses under P and under Q.

    Parameters
    ----------
    losses
        Rising, finite.
    p, q
        The masses, non-negative, as many; each sums to 1 but for rounding, and ``p`` is
        ``e^loss q`` but for rounding, within a relative ``error``.
    error
        Relative error of each mass.
    exact
        Whether the pair is attained by a mechanism.
    multiple
        d where every loss is a whole multiple of d.
    loss_error
        Relative error of each loss, at most a few units.

    Examples
    --------
    An answer that is told as it is with probability 3/4, and turned round with 1/4:

    >>> import math
    >>> pair = Atoms([-math.log(3), math.log(3)], p=[0.25, 0.75], q=[0.75, 0.25])
    >>> round(pair.top(), 3)  # log(3)
    1.099
    >>> low, high = pair.profile(np.array([0.5]))
    >>> round(float(high[0]), 6)
    0.33782
    """

    losses: tuple[float, ...] = field(converter=_floats)
    p: tuple[float, ...] = field(converter=_floats)
    q: tuple[float, ...] = field(converter=_floats)
    error: float = 8 * UNIT
    exact: bool = True
    multiple: float | None = None
    loss_error: float = 0.0

    def __attrs_post_init__(self) -> None:
        rising = np.all(np.diff(self.losses) > 0) and np.all(np.isfinite(self.losses))
        masses = np.array([*self.p, *self.q])
        same = len(self.losses) == len(self.p) == len(self.q) > 0
        if not (same and rising and np.all(masses >= 0)):
            raise DomainError(
                "Atoms needs rising finite losses with a non-negative mass under P and under Q "
                f"for each, got {len(self.losses)} losses, {len(self.p)} and {len(self.q)} masses"
            )

    @cached_property
    def _arrays(self) -> tuple[Array, Array, Array]:
        return np.array(self.losses), np.array(self.p), np.array(self.q)

    @cached_property
    def _tails(self) -> tuple[Array, Array, Array, Array]:
        """Return the masses of all atoms from i on (P, Q), and of all before i (P, Q)."""
        _, p, q = self._arrays
        zero = np.zeros(1)
        above = [np.concatenate([np.cumsum(m[::-1])[::-1], zero]) for m in (p, q)]
        below = [np.concatenate([zero, np.cumsum(m)]) for m in (p, q)]
        return above[0], above[1], below[0], below[1]

    def tail_error(self) -> float:
        """Return the masses' own error and that of their sums."""
        return self.error + (len(self.losses) + 2) * UNIT

    def attained(self) -> bool:
        """Return ``exact``."""
        return self.exact

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the sums over the atoms above."""
        at = np.searchsorted(self._arrays[0], loss, side="right")
        p, q, _, _ = self._tails
        return p[at], q[at]

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the sums over the atoms below."""
        at = np.searchsorted(self._arrays[0], loss, side="left")
        _, _, p, q = self._tails
        return p[at], q[at]

    def top(self) -> float:
        """Return the largest loss."""
        largest = self.losses[-1]
        return up(largest, self.loss_error / UNIT) if self.loss_error else largest

    def bottom(self) -> float:
        """Return the smallest loss."""
        smallest = self.losses[0]
        return down(smallest, self.loss_error / UNIT) if self.loss_error else smallest

    def spacing(self) -> float | None:
        """Return ``multiple``."""
        return self.multiple

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log sum p e^{z loss}``: near 0 of ``1 + sum p (e^{z loss} - 1)``."""
        points = np.asarray(z, dtype=np.complex128).reshape(-1, 1)
        losses, p, _ = self._arrays
        shift = np.maximum((points.real * losses).max(axis=1), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            near, far = self._near(points, losses, p), self._far(points, losses, p, shift)
        small = shift <= 1
        value = np.where(small, near[0], far[0]).reshape(np.shape(z))
        error = np.where(small, near[1], far[1]).reshape(np.shape(z))
        return value, error

    def _near(self, points: Complex, losses: Array, p: Array) -> tuple[Complex, Array]:
        terms, size = expm1(points * losses), np.abs(points * losses)
        steps = 48 + len(losses) + 4 * size.max(axis=1)
        # an exponent's own rounding counts even where its exponential is next to 1
        shaken = 4 * UNIT + 2 * self.loss_error
        steps = steps + size.max(axis=1) * self.loss_error / UNIT
        # error of the masses and of each term; then of the exponents, |z l| each
        wrong = (np.abs(terms) @ p) * (self.error + steps * UNIT) + shaken * (size @ p)
        return log1p(terms @ p, wrong)

    def _far(self, points: Complex, losses: Array, p: Array, shift: Array) -> tuple[Complex, Array]:
        """Take the largest exponential out."""
        exponents = points * losses - shift[:, None]
        terms = np.exp(exponents)
        total = np.asarray(terms @ p, dtype=np.complex128)
        size = np.abs(terms) @ p
        reach = np.abs(points * losses).max(axis=1)
        steps = 16 + len(losses) + (4 + 2 * self.loss_error / UNIT) * reach + 4 * shift
        # relative to the sum, whose terms may cancel
        moved = size * (self.error + steps * UNIT) / np.maximum(np.abs(total), 1e-300)
        value = np.asarray(np.log(np.where(total == 0, 1.0, total)) + shift, dtype=np.complex128)
        error = 2 * moved + 8 * UNIT * (1 + np.abs(value))
        return value, np.where(moved < 0.5, error, np.inf)
