"""The norm mechanism: noise whose density falls with the distance in a chosen norm."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, gammaincinv

from accountants import Laplace, PrivacyLoss, Pure
from accountants.rounding import up
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise import lattice
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Floats, Stream


def _power(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not (plain and value >= 1):
        raise DeclarationError(
            f"Norm.p must be a number from 1 to math.inf, got {value!r}; 2 is the Euclidean norm"
        )


class Norm(Mechanism):
    """Add one vector of density ``exp(-|z|_p / b)`` in R^d: ``epsilon = Delta_p / b``.

    By the triangle inequality the density changes by a factor of at most ``e^{|v|_p / b}`` where
    the value moves by v. The noise is a radius of law Gamma(d, b) times a direction of the unit
    sphere's cone measure: coordinates of density ``exp(-|x|^p)`` over their norm (uniform ones
    for p = inf). Noise grows with d: a coordinate's is about b times d^{1 - 1/p}.

    Value and noise are rounded to whole steps, as `adaptive_dp.noise.lattice` says, which adds
    ``d^{1/p}`` steps to Delta_p. Noise itself is drawn in float64, which certificates say; of
    p = 1 the exact mechanism is `Laplace`.

    Parameters
    ----------
    scale
        b, in the query's units.
    p
        From 1 to ``math.inf``: which norm. Distances are known in l1, l2 and the maximum norm, and
        bounded between them.

    References
    ----------
    Hardt and Talwar 2010, section 4 (the K-norm mechanism); Schechtman and Zinn 1990 (cone
    measure).

    Examples
    --------
    >>> Norm(scale=2.0, p=2).loss(distance=1.0)
    Pure(epsilon=0.5)
    """

    theorem: ClassVar[str] = "Hardt & Talwar 2010, section 4"
    sampler: ClassVar[str] = f"norm ball, {FLOAT_SAMPLER}"

    scale: float = noise_parameter("b")
    p: float = attrs.field(
        default=2.0, converter=number, validator=_power, metadata={"symbol": "p", "role": "shape"}
    )

    @property
    def norm(self) -> float:  # type: ignore[override]
        """The norm in which distances are taken: p."""
        return self.p

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise."""
        unit = lattice.step(self.scale)
        z = ball_noise(stream, self.p, value.size) * (self.scale / unit)
        steps = np.rint(np.clip(z, -(2.0**62), 2.0**62)).astype(np.int64)
        return lattice.noisy(value, steps, unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l_p distance ``distance``."""
        return Pure(distance / self.scale)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss with what rounding adds; of one number it is the Laplace mechanism's."""
        added = dimension ** (1 / self.p) * lattice.rounding_distance(
            step, lattice.step(self.scale)
        )
        far = up(distance + up(added, 64), 8) if added else distance
        return Laplace(far / self.scale) if dimension == 1 else self.loss(far)


def ball_noise(stream: Stream, p: float, count: int) -> Floats:
    """Return a vector of density proportional to ``exp(-|z|_p)`` in R^count, in float64."""
    radius = -np.log(stream.uniform((count,))).sum()
    sign = np.where(stream.bernoulli(0.5, count), 1.0, -1.0)
    size = stream.uniform((count,)) if math.isinf(p) else _generalised(stream.uniform((count,)), p)
    largest = size.max(initial=0.0)
    if largest == 0:
        return np.zeros(count)
    size = size / largest
    length = 1.0 if math.isinf(p) else float((size**p).sum()) ** (1 / p)
    return np.asarray(radius / length * sign * size)


def _generalised(uniform: Floats, p: float) -> Floats:
    """Return |x| of density ``exp(-|x|^p)``: |x|^p has the law Gamma(1/p).

    Next to 0, where that power underflows, ``|x| = u Gamma(1 + 1/p)``.
    """
    power = gammaincinv(1 / p, uniform)
    near = uniform * gamma(1 + 1 / p)
    return np.asarray(np.where(power < 1e-200, near, power ** (1 / p)))
