"""A pair of atoms with exponential tails: what a Renyi divergence of finite order leaves open.

An order ``alpha = 1 + c`` bounds the hockey-stick by ``K t^{-c}``, ``t = e^eps``, however large t
is. Beyond the last atom, at loss s, the pair has exactly the hockey-stick ``y e^{-c (l - s)}``:
``Q(L > l) = -d/dt``, so ``P(L > l) = (1 + c) y e^{-c (l - s)}`` and
``Q(L > l) = c y e^{-s} e^{-(1 + c)(l - s)}``; below the first atom, at -s, the mirror image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.discretise import Guarantees, Vertex, vertices
from accountants.pair import Symmetric
from accountants.rounding import UNIT, Array


@frozen(cache_hash=True)
class TailedAtoms(Symmetric):
    """Symmetric atoms, and beyond them tails that fall exponentially; not attained.

    Parameters
    ----------
    atoms
        The losses within [-s, s], both ends among them; with the tails' masses they add up to 1.
    mass
        P's above s, which is Q's below -s.
    rate
        c, positive: how fast P's upper tail falls.
    """

    atoms: Atoms = field()
    mass: float
    rate: float

    def tail_error(self) -> float:
        """Return the atoms', and that of an exponential which is above 1e-300."""
        return self.atoms.tail_error() + 4096 * UNIT

    def attained(self) -> bool:
        """Return False: it bounds, and no mechanism need attain it."""
        return False

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the upper tail, atoms included below it, or all but the lower tail."""
        loss = np.asarray(loss, dtype=np.float64)
        p, q = self.atoms.above(loss)
        tail_p, tail_q = self._tail(np.maximum(loss, self.atoms.top()))
        lost_q, lost_p = self._tail(np.maximum(-loss, self.atoms.top()))
        low = loss < -self.atoms.top()
        return np.where(low, 1 - lost_p, p + tail_p), np.where(low, 1 - lost_q, q + tail_q)

    def _tail(self, loss: Array) -> tuple[Array, Array]:
        """Return P's and Q's masses above losses of at least s."""
        start, c = self.atoms.top(), self.rate
        beyond = loss - start
        p = self.mass * np.exp(-c * beyond)
        return p, self.mass * (c / (1 + c)) * math.exp(-start) * np.exp(-(1 + c) * beyond)


def with_tails(guarantees: Guarantees, rate: float) -> TailedAtoms | None:
    """Return the pair of guarantees the last of which, (s, y), goes on as ``y e^{-rate (l - s)}``.

    The slope of the hull must not be above that of the tail where it ends; guarantees before
    the last are left out until it is not. None where that does not help.
    """
    kept = list(guarantees)
    while kept:
        atoms = vertices(kept)
        tail = Fraction(rate) * kept[-1][1]
        first, last = atoms[0], atoms[-1]
        # h stays convex where the tail begins: the last atom keeps a positive mass
        if len(atoms) > 1 and last.p > tail and last.loss > 0:
            t = last.p / last.q
            ends = (
                Vertex(first.loss, first.p - tail / t, first.q - tail),
                Vertex(last.loss, last.p - tail, last.q - tail / t),
            )
            mass = float(tail + kept[-1][1])
            return TailedAtoms(_atoms([ends[0], *atoms[1:-1], ends[1]]), mass, rate)
        kept = [*kept[:-2], kept[-1]] if len(kept) > 1 else []
    return None


def _atoms(hull: Sequence[Vertex]) -> Atoms:
    return Atoms(
        [v.loss for v in hull],
        [float(v.p) for v in hull],
        [float(v.q) for v in hull],
        exact=False,
    )
