"""Student's t noise in proportion to the smooth sensitivity: pure epsilon."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import PrivacyLoss, Pure
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.fine_uniform import fine_uniform
from adaptive_dp.primitives.smooth import noisy, paid, room, steps_loss, usable


def smoothness(epsilon: float, degrees: float) -> float:
    """Return beta: the share of epsilon that goes to the changes of scale.

    It maximises ``beta a`` to first order in epsilon: the noise is least where values are evenly
    spaced, for which S is in proportion to 1/beta. With ``beta = c epsilon``, c solves
    ``2 + 3 (1 - d) c - 4 d c^2 = 0``, and does not depend on the data.
    """
    d = degrees
    return epsilon * (3 * (1 - d) + math.sqrt(9 * (1 - d) ** 2 + 32 * d)) / (8 * d)


def largest_shift(epsilon: float, beta: float, degrees: float) -> float:
    r"""Return the largest a at which the pair of `smooth` is epsilon-DP, rounded down.

    *The pair's exact loss.* Cauchy laws of location m and scale g are points (m, g) of the upper
    half-plane, and the largest log-ratio of two of them, either way, is their hyperbolic distance
    rho: ``cosh rho = 1 + ((m - m')^2 + (g - g')^2) / (2 g g')``. The density of Student's t with
    location m and scale ``g / sqrt d`` is proportional to ``g^{(d-1)/2}`` times the Cauchy density
    of (m, g) to the power (d+1)/2. So, for ``|log(g/g')| = b``, the loss is exactly

    ``(d-1)/2 b + (d+1)/2 rho``, ``cosh rho = cosh b + s^2 e^{-b} / (2 d)``,

    s the distance of locations in units of the smaller scale. It is at most epsilon if and only
    if ``s^2 <= 4 d e^b sinh((eps + b)/(d+1)) sinh((eps - d b)/(d+1))``. The right side is
    log-concave in b, so it is least at 0 or at beta: no other b need be looked at.

    (The sum of the parts, ``b d + s (d+1) / (2 sqrt d)``, bounds it: Bun and Steinke 2019.)

    Examples
    --------
    >>> round(largest_shift(1.0, 0.5, degrees=1.0), 4)  # 0.5 by the sum of the parts
    1.0422
    """
    d, b = degrees, beta
    if d * b >= epsilon:
        return 0.0
    still = math.sinh(epsilon / (d + 1)) ** 2
    moved = (
        math.exp(b) * math.sinh((epsilon + b) / (d + 1)) * math.sinh((epsilon - d * b) / (d + 1))
    )
    return math.sqrt(4 * d * min(still, moved)) * (1 - 1e-9)


def student(degrees: float, stream: Stream) -> float:
    """Return a draw of Student's t (Bailey 1994): ``sqrt(d (U^{-2/d} - 1)) cos(2 pi V)``."""
    radius = math.expm1(-2 / degrees * math.log(fine_uniform(stream)))
    return math.sqrt(degrees * radius) * math.cos(2 * math.pi * float(stream.uniform()))


def _degrees(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 1 <= value <= 1000):
        raise DeclarationError(
            f"SmoothStudent.degrees must be a number from 1 to 1000, got {value!r}; with 3, the "
            "default, noise has a variance, with 1 it is Cauchy's"
        )


class SmoothStudent(Mechanism):
    """Add ``S/a`` times Student's t to a number that follows the data, S its smooth sensitivity.

    Parameters
    ----------
    epsilon
        Pure, for one changed row; `smoothness` and `largest_shift` make beta and a of it.
    degrees
        d, at least 1; the noise has a variance from above 2 on, ``d/(d-2) (S/a)^2``.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (noise in proportion to S); Bun and
    Steinke 2019 (Student's t); the exact loss is derived in `largest_shift`.

    Examples
    --------
    >>> SmoothStudent(epsilon=1.0).loss(distance=1)
    Pure(epsilon=1.0)
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Stability
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; Bun & Steinke 2019; exact loss "
        "of Student's t (hyperbolic distance)"
    )
    sampler: ClassVar[str] = f"Student's t, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")
    degrees: float = attrs.field(default=3.0, converter=number, validator=_degrees)

    def release(self, value: Stability, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        epsilon = usable(self.epsilon)
        beta = smoothness(epsilon, self.degrees)
        shift = largest_shift(epsilon, room(beta), self.degrees)
        return noisy(value, beta, shift, lambda s: student(self.degrees, s), stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the pure loss of ``distance`` changed rows."""
        return steps_loss(Pure(paid(self.epsilon)), distance)
