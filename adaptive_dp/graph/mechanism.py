"""The contract of a mechanism: its parameters, its release, its loss.

Subclass `Mechanism`, annotate each parameter with `noise_parameter` or `budget_parameter`,
say in which norm distances are measured, and write `release` and `loss`, as the example at
`Mechanism` does.

It is a frozen attrs class: certify, calibrate, run, draw and the plan document know it. The
example rounds its value to whole steps g and adds whole steps of noise, since the low bits of
``value + stream.laplace(...)`` would tell the value (Mironov 2012); `cost` adds what rounding
moves.

A mechanism may read another kind of private value than an array (`reads`), release another shape
than its value's (`shape`), choose a candidate (`chooses`), or follow released values (`given`).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, dataclass_transform

import attrs
import numpy as np

from accountants import PrivacyLoss
from adaptive_dp.graph.convert import POSITIVE, number, positive
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.fields import evolved, fields_of
from adaptive_dp.graph.free import Free
from adaptive_dp.noise.stream import Stream


def noise_parameter(symbol: str, *, default: Any = attrs.NOTHING) -> Any:
    """Declare a positive parameter that is more private the larger it is (a noise scale).

    Examples
    --------
    >>> import accountants, adaptive_dp as dp
    >>> class Noisy(dp.Mechanism):
    ...     scale: float = dp.noise_parameter("b")
    ...     def loss(self, distance):
    ...         return accountants.Laplace(distance / self.scale)
    >>> Noisy(scale=2).loss(1)
    Laplace(epsilon=0.5)
    >>> Noisy(scale=dp.Free("b")).fixed(3.0)
    Noisy(scale=3.0)
    >>> Noisy(scale=0)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DeclarationError: Noisy.scale must be a positive finite number below
    1e300, got 0; pass Free('b') to have calibrate choose it
    """
    return _parameter(symbol, "noise", default)


def budget_parameter(symbol: str, *, default: Any = attrs.NOTHING) -> Any:
    """Declare a positive parameter that is less private the larger it is (an epsilon).

    Examples
    --------
    >>> import accountants, adaptive_dp as dp
    >>> class Chosen(dp.Mechanism):
    ...     epsilon: float = dp.budget_parameter("eps")
    ...     def loss(self, distance):
    ...         return accountants.BoundedRange(distance * self.epsilon)
    >>> Chosen(epsilon=0.5).loss(1)
    BoundedRange(epsilon=0.5)
    >>> Chosen(epsilon=dp.Free("eps")).fixed(4.0)  # four times the noise
    Chosen(epsilon=0.25)
    """
    return _parameter(symbol, "budget", default)


def _parameter(symbol: str, role: str, default: Any) -> Any:
    known = {"symbol": symbol, "role": role}
    return attrs.field(default=default, converter=number, validator=_positive, metadata=known)


def _positive(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, Free):
        return
    if not positive(value):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a {POSITIVE}, got {value!r}; "
            f"pass Free({attribute.metadata['symbol']!r}) to have calibrate choose it"
        )


@dataclass_transform(
    frozen_default=True, field_specifiers=(noise_parameter, budget_parameter, attrs.field)
)
class Mechanism:
    """Base of every mechanism; a subclass becomes a frozen attrs class by itself.

    Attributes
    ----------
    norm
        The norm in which `loss` takes its distance: 1, 2 or ``math.inf``; or 0, which counts the
        rows that change.
    reads
        The type of the private value that it needs; a query says what it gives.
    chooses
        True where it releases the index of a candidate, which the query then presents; NaN
        chooses none.
    given
        How many released values `release` gets after the stream: the loss must hold whatever
        they are, or `premises` must refuse those for which it does not.
    shifts
        True where it adds independent N(0, sigma^2) to each coordinate, with `deviation` for sigma,
        and releases what follows from that and from values rounded as `cost` says.
    spans
        True where `loss` takes the span beside the distance: see `Query.span`.
    exact
        True where `loss` and `cost` round up by themselves, so that a distance that is exact (see
        `Query.exact`) is given as it is. Other distances are rounded up by some units in the last
        place, for a division to lose.
    selectable
        False where what it says of its release, beside its loss, does not hold of the best of
        several runs: a private selection refuses it.
    theorem
        What the loss rests on, with author, year and number.
    sampler
        Which sampler `release` draws from, as certificates report it.
    libraries
        Installed distributions by which the loss or the release is computed, beside the one that
        the class is of; certificates name them with their versions.

    Examples
    --------
    >>> import accountants, adaptive_dp as dp
    >>> from accountants.rounding import up
    >>> from adaptive_dp.noise import lattice, rounded_laplace
    >>> class Noisy(dp.Mechanism):
    ...     scale: float = dp.noise_parameter("b")
    ...     norm = 1
    ...
    ...     def release(self, value, stream):
    ...         g = lattice.step(self.scale)
    ...         return lattice.noisy(value, rounded_laplace(stream, self.scale / g, value.size), g)
    ...
    ...     def cost(self, distance, dimension, step):
    ...         moved = dimension * lattice.rounding_distance(step, lattice.step(self.scale))
    ...         return self.loss(up(distance + moved, 4))
    ...
    ...     def loss(self, distance):
    ...         return accountants.Laplace(distance / self.scale)
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(total=people["age"].sum().release(Noisy(scale=200)))
    >>> plan.certify()
    <certificate epsilon=0.500001 delta=0 by basic>
    """

    norm: ClassVar[float] = 1
    reads: ClassVar[type] = np.ndarray
    chooses: ClassVar[bool] = False
    given: ClassVar[int] = 0
    shifts: ClassVar[bool] = False
    spans: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    selectable: ClassVar[bool] = True
    theorem: ClassVar[str] = ""
    sampler: ClassVar[str] = ""
    libraries: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Turn the subclass into a frozen attrs class, in place."""
        super().__init_subclass__()
        attrs.frozen(cls, slots=False)
        if not isinstance(cls.norm, property) and cls.norm not in (0, 1, 2, math.inf):
            raise DeclarationError(
                f"{cls.__name__}.norm must be 1, 2, math.inf, or 0 to count rows, got {cls.norm!r}"
            )

    def release(self, value: Any, stream: Stream, *given: Any) -> Any:
        """Return the randomised value.

        Parameters
        ----------
        value
            A float64 array of the query's shape, a scalar's is (); a copy, free to change. What
            the query gives, where `reads` says that it is no array.
        stream
            All randomness is drawn from it.
        given
            Copies of the released values that ``.release(..., given=[...])`` names.

        Returns
        -------
        numpy.ndarray
            Real numbers of the shape that `shape` says; the plan keeps them as float64. Anything
            else fails the run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define release(value, stream)")

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of what is released, from the value's: by default the same.

        A choice has the shape (); so has a value that is no array, unless it says another by a
        property ``shape``.
        """
        return () if self.chooses else value

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the privacy loss between values at most ``distance`` apart in `norm`.

        A mechanism that `spans` takes a second argument, ``span``: no two coordinates move farther
        apart than that.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss(distance)")

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of releasing a query: by default ``loss(distance)``.

        A mechanism that rounds its value before it adds noise adds here what that moves.

        Parameters
        ----------
        distance
            The most that one unit moves the query's value, in `norm`.
        dimension
            The number of its coordinates.
        step
            A number of which they are whole multiples, whatever the data; 0 where none is known.
        """
        return self.loss(distance)

    def premises(self, release: Any) -> None:
        """Refuse a release (a handle) whose inputs are not what the loss rests on.

        For a mechanism whose loss does not hold whatever is `given`, but for what certain
        releases give.

        Raises
        ------
        DeclarationError
            If they are others.
        """

    def deviation(self) -> float | None:
        """Return the noise's standard deviation on each coordinate; None to have it simulated."""
        return None

    def redrawn(self) -> bool:
        """Whether releasing what was released once more shows how much noise is in it."""
        kind = type(self)
        plain = kind.reads is np.ndarray and not kind.chooses and not kind.given
        return plain and kind.shape is Mechanism.shape

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    def free(self) -> dict[str, Free]:
        """Return the parameters that are still free, by field name."""
        return {name: v for name, v in self.parameters().items() if isinstance(v, Free)}

    def weighted(self, sensitivity: float) -> Mechanism:
        """Return the mechanism with the weights that are left to a query's sensitivity."""
        size = sensitivity if 0 < sensitivity < math.inf else 1.0
        roles = {f.name: f.metadata.get("role", "noise") for f in fields_of(type(self))}
        found = {
            name: attrs.evolve(free, weight=size if roles[name] == "noise" else 1.0)
            for name, free in self.free().items()
            if free.weight is None
        }
        return evolved(self, **found) if found else self

    def fixed(self, multiplier: float) -> Mechanism:
        """Return the mechanism with its free parameters at ``multiplier`` times their weights."""
        solved = {}
        roles = {f.name: f.metadata.get("role", "noise") for f in fields_of(type(self))}
        for name, free in self.free().items():
            noise = roles[name] == "noise"
            solved[name] = free.factor * multiplier if noise else free.factor / multiplier
        return evolved(self, **solved) if solved else self

    def __str__(self) -> str:
        inside = ", ".join(
            f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}"
            for k, v in self.parameters().items()
        )
        return f"{type(self).__name__}({inside})"
