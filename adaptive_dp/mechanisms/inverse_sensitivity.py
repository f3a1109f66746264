"""Inverse sensitivity: numbers are the likelier, the fewer rows must change to reach them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss
from accountants.numerics import rounded_up
from adaptive_dp.graph.mechanism import IN_PROPORTION, LocalSensitivity, Mechanism, noise_parameter
from adaptive_dp.mechanisms.selection import EXACT_CHOICE, uniform_below
from adaptive_dp.mechanisms.smooth_sensitivity import grid_step
from adaptive_dp.noise.choice import choose
from adaptive_dp.noise.stream import Stream

MOST_STEPS = 2**16
"""Path lengths beyond this count as this: no larger one is looked at."""

SLACK = 2.0**-30
"""By which part of the bounds' size reached values are widened at each step: more than twice what
the rounding of a sum of `MOST_STEPS` local sensitivities may move them."""


class InverseSensitivity(Mechanism):
    """Choose a number t of a grid with probability ~ ``e^{-len(t) / b}``, len in changed rows.

    ``len(t)`` is the path length: how many rows must change at least, so that the query's value is
    t. It moves by at most 1 with each row, whatever the query is: so this is an exponential
    mechanism for every query of which path lengths are known, or bounds of them that move so too.
    Its error is what the data allow: about the local sensitivity at a distance of b.

    Privacy: the loss has a bounded range of ``epsilon = 2 k / b`` where k rows change: each path
    length moves by at most k, up or down.

    Which lengths. A query with a local sensitivity says for each k between which bounds its values
    within k steps lie (`LocalSensitivity.reach`); t is reached with the first k whose bounds
    include it. By default these are the value, plus or minus the sum of the local sensitivities at
    distances below k. Then len moves by at most 1 too: for neighbours x and x' the value moves by
    at most ``A_0(x')``, and ``A_j(x) <= A_{j+1}(x')``, so that what x reaches in k steps x' reaches
    in k + 1. Quantiles state theirs by order statistics.

    Parameters
    ----------
    scale
        b, in rows.

    Notes
    -----
    The grid is that of `adaptive_dp.mechanisms.smooth_sensitivity.grid_step`, which the query's
    bounds alone determine; a point is reached with its cell. Bounds are widened by a part of 2^-30
    of the query's bounds at each step, more than rounding moves them between neighbours. Lengths
    beyond a public number, where next to no probability is left, count as that number, which moves
    none of them farther. Every point has a positive probability, and the choice is exact
    (`adaptive_dp.noise.choice`).

    References
    ----------
    Asi and Duchi 2020, "Near instance-optimality in differential privacy" (inverse sensitivity);
    McSherry and Talwar 2007, Thm 6. That sums of local sensitivities may stand for path lengths is
    proven above.

    See Also
    --------
    QuantileExponential : quantiles by their rank, which is the same where values are distinct.
    SmoothLaplace : noise at the smooth sensitivity.

    Examples
    --------
    >>> InverseSensitivity(scale=4.0).loss(distance=1.0)
    BoundedRange(epsilon=0.5)
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> ages = {"age": np.arange(1001) % 80}
    >>> plan = dp.Pipeline(median=people["age"].median().release(InverseSensitivity(scale=2.0)))
    >>> round(plan.certify().epsilon, 6), round(plan.simulate(seed=1, people=ages)["median"])
    (1.0, 39)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    no_interval: ClassVar[str] = "how many rows it is away from the value is known, not how far"
    theorem: ClassVar[str] = "inverse sensitivity: Asi & Duchi 2020; McSherry & Talwar 2007, Thm 6"
    sampler: ClassVar[str] = f"exponential mechanism on a grid, {EXACT_CHOICE}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[Any]:
        """Return the chosen number, shape ()."""
        first, starts, lengths, unit = self.levels(value)
        counts = np.diff(starts)
        occupied = np.flatnonzero(counts)
        steps = lengths[occupied]
        # the least length is 0: the cell of the value
        exponents = (steps - steps.min()) / float(self.scale)

        def exact(i: int) -> Fraction:
            return Fraction(int(steps[i] - steps.min())) / Fraction(self.scale)

        place = occupied[choose(exponents, exact, counts[occupied], stream)]
        point = int(starts[place]) + uniform_below(int(counts[place]), stream)
        return np.array((first + point) * unit)

    def levels(
        self, value: LocalSensitivity
    ) -> tuple[int, NDArray[np.int64], NDArray[np.int64], float]:
        """Return the path length of every point of the grid, by ranges of points.

        Returns
        -------
        first
            The multiple of the unit that point 0 stands for.
        starts
            Ascending, shape (m + 1,): the first and the last depend on the bounds alone.
        lengths
            Of the points from ``starts[i]`` to ``starts[i + 1] - 1``, shape (m,).
        unit
            The distance of two points.
        """
        low, high = float(value.lower), float(value.upper)
        unit = grid_step(low, high)
        first, last = math.ceil(low / unit), math.floor(high / unit)
        if first > last:  # no multiple of the unit lies inside: public, since the bounds are
            first = last = int(low / unit)
        count = last - first + 1
        # beyond, all points together have less than e^-45 of the value's own cell
        most = min(MOST_STEPS, math.ceil(self.scale * (math.log(count) + 45)))
        size = max(abs(low), abs(high), high - low)
        lows, highs = value.reach(most)
        widened = np.arange(most + 1) * (SLACK * size)
        # what is no range counts as the whole one; none reaches less than the one before
        known = np.asarray(lows) <= np.asarray(highs)  # False for NaN
        lows, highs = np.where(known, lows - widened, low), np.where(known, highs + widened, high)
        lows = np.minimum.accumulate(np.clip(lows, low, high))
        highs = np.maximum.accumulate(np.clip(highs, low, high))
        left, right = (
            np.clip(np.rint(ends / unit), first, last).astype(np.int64) - first
            for ends in (lows, highs)
        )
        # from outside to inside and out again: the points before left[most] are farther than most
        starts = np.concatenate([[0], left[::-1], right + 1, [count]])
        lengths = np.concatenate(
            [[most + 1], np.arange(most, -1, -1), np.arange(1, most + 1), [most + 1]]
        )
        return first, starts, lengths, unit

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss where so many rows change."""
        return BoundedRange(rounded_up(2 * Fraction(distance) / Fraction(self.scale)))
