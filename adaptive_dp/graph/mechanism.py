"""The contract of a mechanism: its parameters, its release, its loss; and what it may read."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, dataclass_transform

import attrs
import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from accountants import PrivacyLoss
from adaptive_dp.extensions import provided
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.values import POSITIVE, evolved, fields_of, number, positive
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# A parameter left free, for `Pipeline.calibrate` to choose.


if TYPE_CHECKING:
    from typing import Self

    class _Number(float):
        def __new__(cls, name: str = "noise", weight: float | None = 1.0) -> Self: ...

else:
    _Number = object


@frozen(order=False)
class Free(_Number):
    """A noise (or budget) parameter that calibration solves.

    Every free parameter of a plan is ``multiplier * weight`` with one multiplier for the
    whole graph (``weight / multiplier`` for a budget parameter, which costs more as it
    grows), so weights say how the budget is shared.

    Type checkers see a subclass of float, so that ``Laplace(scale=Free("b"))`` fits a parameter
    annotated as ``float``. At run time it is not a number: whoever computes with one that has not
    been calibrated gets a TypeError.

    Parameters
    ----------
    name
        Parameters of one name belong together; `Pipeline.fix` sets them by it.
    weight
        Positive. None stands for the query's sensitivity, which takes its place when the query is
        released: releases of one kind of noise then cost the same. It is what mechanisms have by
        default: ``dp.Laplace()`` is ``dp.Laplace(scale=dp.Free("noise", weight=None))``.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> count = people.count().release(dp.Laplace(scale=dp.Free("b")))
    >>> total = people["age"].sum().release(dp.Laplace(scale=dp.Free("b", weight=100)))
    >>> plan = dp.Pipeline(count=count, total=total)
    >>> plan.free
    {'b': [1.0, 100]}
    >>> print(plan.calibrate(epsilon=1.0))
    node           visibility  what                                           reads
    -------------  ----------  ---------------------------------------------  -------------
    people         private     dataset: people, add/remove, protects one row
    count (count)  private     count                                          people
    count          released    Laplace(scale=2)                               count (count)
    age            private     column: age                                    people
    sum            private     sum in [0, 100]                                age
    total          released    Laplace(scale=200)                             sum
    """

    name: str = field(default="noise")
    weight: float | None = field(default=1.0, converter=number)

    @name.validator
    def _named(self, _: object, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"Free needs a name, got {name!r}; write Free('b')")

    @weight.validator
    def _positive(self, _: object, weight: float | None) -> None:
        if weight is not None and not positive(weight):
            raise DeclarationError(
                f"Free({self.name!r}).weight must be a {POSITIVE}, got {weight!r}"
            )

    @property
    def factor(self) -> float:
        """The weight as a number: 1 before a release has put its query's sensitivity there."""
        return 1.0 if self.weight is None else self.weight

    def __str__(self) -> str:
        return self.name if self.weight in (1, None) else f"{self.weight:g} {self.name}"


IN_PROPORTION = Free(weight=None)
"""Noise in proportion to the query's sensitivity, left for calibration."""


# -----------------------------------------------------------------------------
# The contract of a mechanism: its parameters, its release, its loss.
#
# Subclass `Mechanism`, annotate each parameter with `noise_parameter` or `budget_parameter`,
# say in which norm distances are measured, and write `release` and `loss`, as the example at
# `Mechanism` does.
#
# It is a frozen attrs class: certify, calibrate, run, draw and the plan document know it. The
# example rounds its value to a multiple of a step g and adds a multiple of g as noise, since the
# low bits of ``value + stream.laplace(...)`` would reveal the value (Mironov 2012); `cost` adds the
# distance that rounding may add.
#
# A mechanism may read another kind of private value than an array (`input_type`), release another
# shape than its value's (`shape`), select a candidate (`is_selection`), or depend on released
# values (`released_inputs`).


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
    input_type
        The type of the private value that it needs; `Query.output_type` says what a query gives.
    is_selection
        True where it releases the index of a candidate, which the query then presents; NaN
        chooses none.
    released_inputs
        How many released values `release` gets after the stream: the loss must hold whatever
        they are, or `premises` must refuse those for which it does not.
    shifts
        True where it adds independent N(0, sigma^2) to each coordinate, with `deviation` for sigma,
        and releases what follows from that and from values rounded as `cost` says.
    uses_span
        True where `loss` takes the span beside the distance: see `Query.span`.
    uses_side
        True where `loss` takes ``side`` beside the distance: how far a unit that appears moves the
        value, in l1 and in the maximum norm. Of a unit that is exchanged it is the larger side.
    rounds_outward
        True where `loss` and `cost` round up by themselves, so that a distance that rounds up by
        itself (see `Query.rounds_outward`) is given as it is, and the answer is taken as it is.
        Where they do not, the answer is rounded outward by some units in the last place. Distances
        that were computed with rounding are rounded up before.
    rounds_coordinates
        True where `cost` takes ``dimension`` for nothing but the number of coordinates that
        rounding may move apart: then it is that of `Query.coordinates_moved`. It is read of the
        library's own mechanisms alone.
    no_interval
        Why what is released does not tell how far it may be off, where that is so: see `error`.
    begins
        True where a release begins a run with hidden state, which later releases continue: the
        executor keeps what `begin` returns, unseen, and what is released is no more than that it
        has begun.
    continues
        True where `release` gets, in place of the first released value, the run that this release
        has begun.
    ordinal
        Of a run whose releases are each made once, and in order: 0 where it begins the run, else
        which of them it is, from 1 on. None where a run has any number of them, in any order.
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
    >>> from accountants.numerics import up
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
    input_type: ClassVar[type] = np.ndarray
    is_selection: ClassVar[bool] = False
    released_inputs: ClassVar[int] = 0
    shifts: ClassVar[bool] = False
    uses_span: ClassVar[bool] = False
    uses_side: ClassVar[bool] = False
    rounds_outward: ClassVar[bool] = False
    rounds_coordinates: ClassVar[bool] = False
    no_interval: ClassVar[str] = ""
    begins: ClassVar[bool] = False
    continues: ClassVar[bool] = False
    ordinal: ClassVar[int | None] = None
    selectable: ClassVar[bool] = True
    theorem: ClassVar[str] = ""
    sampler: ClassVar[str] = ""
    libraries: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Turn the subclass into a frozen attrs class, in place."""
        super().__init_subclass__()
        # without slots: attrs would make another class, and `super()` in methods would miss it
        attrs.frozen(cls, slots=False)
        # `norm` may depend on parameters, as a property; then it is checked where it is used
        if not isinstance(cls.norm, property) and cls.norm not in (0, 1, 2, math.inf):
            raise DeclarationError(
                f"{cls.__name__}.norm must be 1, 2, math.inf, or 0 to count rows, got {cls.norm!r}"
            )

    @staticmethod
    def from_function(
        function: Callable[..., Any],
        *,
        answers: int,
        epsilon: float | None = None,
        rho: float | None = None,
        neighbors: str = "each",
        scale: float = 1.0,
    ) -> Mechanism:
        """Return a plain Python function as a mechanism, whose loss is proved, not stated.

        Parameters
        ----------
        function
            ``f(answers, noise)``; see `adaptive_dp.prove.prove`, which proves its loss.
        answers
            The number of coordinates of the query that it releases.
        epsilon, rho
            A claim, which is refused where no proof of it is found; None for the least that is. Of
            Gaussian noise it is the rho of zCDP.
        neighbors
            ``"each"`` answer moves by at most the distance (the loss takes it in the maximum norm),
            ``"one"`` (in l1), or all of them ``"together"`` (with the span).
        scale
            By which the scale of all its noise is multiplied; may be `Free`.

        Raises
        ------
        DeclarationError
            If the claim is refuted, with the counterexample; if it is undecided; or if the function
            cannot be followed, with the line.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> def loudest(answers, noise):
        ...     return int((answers + noise.laplace(2, size=len(answers))).argmax())
        >>> people = dp.dataset("people", columns={"region": ["A", "B", "C"]})
        >>> chosen = dp.Mechanism.from_function(loudest, answers=3, scale=dp.Free("b"))
        >>> plan = dp.Pipeline(mode=people["region"].histogram().release(chosen))
        >>> plan.calibrate(epsilon=0.5).certify()
        <certificate epsilon=0.5 delta=0 by basic>
        """
        made: Mechanism = provided("prove.from_function")(
            function,
            answers=answers,
            epsilon=epsilon,
            rho=rho,
            neighbors=neighbors,
            scale=scale,
        )
        return made

    def release(self, value: Any, stream: Stream, *given: Any) -> Any:
        """Return the randomised value.

        Parameters
        ----------
        value
            A float64 array of the query's shape, a scalar's is (); a copy, free to change. What
            the query gives, where `input_type` is another type.
        stream
            All randomness is drawn from it.
        given
            Copies of the released values that ``.release(..., given=[...])`` names.

        Returns
        -------
        numpy.ndarray
            Real numbers of the shape that `shape` says; the plan keeps them as float64. Where
            that is None, a mapping or a list, which the plan keeps in the order of the str.
            Anything else fails the run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define release(value, stream)")

    def begin(self, stream: Stream | None = None) -> Any:
        """Return the hidden state of a run, where `begins`; it draws all its noise from the stream.

        Parameters
        ----------
        stream
            By default the operating system's randomness.
        """
        raise NotImplementedError(f"{type(self).__name__} begins no run")

    def check_run(self, run: Any) -> None:
        """Refuse, where it `continues`, a run that it cannot continue as it is now.

        What it says may depend on what was released alone. Where an `ordinal` is not refused, the
        run has drawn nothing for it yet.

        Raises
        ------
        RunError
            With what could be asked.
        """

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape of what is released, from the value's: by default the same.

        A choice has the shape (); so has a value that is not an array, unless it says another by a
        property ``shape``. None where keys are released, and which of them is drawn: a mapping from
        str to finite numbers, or a list of different str.
        """
        return () if self.is_selection else value

    def named(self, raw: Any, name: Callable[[float], Any]) -> Any:
        """Return a choice as users read it, where `is_selection`: by default the one candidate.

        Parameters
        ----------
        raw
            What `release` returned.
        name
            Returns the candidate of an index, None of NaN.
        """
        return name(float(raw))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the privacy loss between values at most ``distance`` apart in `norm`.

        With `uses_span` it takes a second argument, ``span``: no two coordinates move farther
        apart than that; with `uses_side` one called ``side``.

        Asked first at the distance itself (5 for five rows), then a little farther away, to see
        which numbers of the answer depend on the distance, and so are to be rounded outward. What
        it raises there is passed over.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss(distance)")

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss of releasing a query: by default ``loss(distance)``.

        A mechanism that rounds its value before it adds noise adds here the distance that rounding
        may add.

        Parameters
        ----------
        distance
            The most that one unit moves the query's value, in `norm`.
        dimension
            The number of its coordinates; where `rounds_coordinates`, of those that one unit can
            move.
        step
            A number whose integer multiples they are, whatever the data; 0 where none is known.
        """
        return self.loss(distance)

    def premises(self, release: Any) -> None:
        """Refuse a release (a handle) whose inputs are not what the loss rests on.

        For a mechanism whose loss does not hold whatever its released inputs are, but for those
        that certain releases give.

        Raises
        ------
        DeclarationError
            If they are others.
        """

    def deviation(self) -> float | None:
        """Return the standard deviation of independent noise on each coordinate; None for other."""
        return None

    def error(self, level: float, dimension: int, step: float) -> float | None:
        """Return how far a release may be off: t, or None to have it simulated.

        Each coordinate of the release lies within t of the query's value with a probability of at
        least ``level``, and of no more than the noise's law allows. What rounding adds is in t.

        Parameters
        ----------
        level
            In (0, 1).
        dimension, step
            As for `cost`: the number of coordinates, and a number whose multiples they are.
        """
        return None

    def intervals(self, released: Any, level: float) -> Mapping[str, tuple[float, float]] | None:
        """Return the intervals of numbers by key, given that their keys were released.

        Each holds the number without noise with a probability of at least ``level``, whatever that
        is, among the runs that release its key. None where no numbers are released by key.

        Parameters
        ----------
        released
            What `release` returned.
        level
            In (0, 1).
        """
        return None

    def redrawn(self) -> bool:
        """Whether releasing what was released once more shows how much noise is in it."""
        kind = type(self)
        # one value of the same shape in, noise on it out: then noise on the release shows its size
        plain = kind.input_type is np.ndarray and not kind.is_selection and not kind.released_inputs
        return plain and kind.shape is Mechanism.shape

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    def of_query(self, query: Any) -> Mechanism:
        """Return the mechanism with what it takes from the query (a handle) that it releases."""
        return self

    def free(self) -> dict[str, Free]:
        """Return the parameters that are still free, by field name."""
        return {name: v for name, v in self.parameters().items() if isinstance(v, Free)}

    def weighted(self, sensitivity: float) -> Mechanism:
        """Return the mechanism with the weights that are left to a query's sensitivity."""
        # no finite positive sensitivity: a neutral weight
        size = sensitivity if 0 < sensitivity < math.inf else 1.0
        roles = {f.name: f.metadata.get("role", "noise") for f in fields_of(type(self))}
        changed = {
            # noise grows with the sensitivity; a budget parameter does not depend on it
            name: attrs.evolve(free, weight=size if roles[name] == "noise" else 1.0)
            for name, free in self.free().items()
            if free.weight is None
        }
        return evolved(self, **changed) if changed else self

    def with_delta(self, delta: float) -> Mechanism:
        """Return the mechanism with that delta, where it has one that is free."""
        roles = {f.name: f.metadata.get("role") for f in fields_of(type(self))}
        # the product may round up by half a unit: one unit less
        solved = {
            name: math.nextafter(free.factor * delta, 0.0) if free.factor != 1 else delta
            for name, free in self.free().items()
            if roles[name] == "delta"
        }
        return evolved(self, **solved) if solved else self

    def fixed(self, multiplier: float) -> Mechanism:
        """Return the mechanism with its free parameters at ``multiplier`` times their weights."""
        solved = {}
        roles = {f.name: f.metadata.get("role", "noise") for f in fields_of(type(self))}
        for name, free in self.free().items():
            if roles[name] == "delta":  # a part of the plan's delta, whatever the noise
                continue
            noise = roles[name] == "noise"
            # more noise is a larger scale, or a smaller budget
            solved[name] = free.factor * multiplier if noise else free.factor / multiplier
        return evolved(self, **solved) if solved else self

    def __str__(self) -> str:
        inside = ", ".join(
            f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}"
            for k, v in self.parameters().items()
        )
        return f"{type(self).__name__}({inside})"


# -----------------------------------------------------------------------------
# What mechanisms read that look at the data many times: sums, each at parameters of their own.
#
# A *sum* adds up, over the units of a batch, one bounded vector each, which is a function of
# the unit's rows and of parameters alone. The parameters of the next sum may depend on all that
# was released of the sums before.


class Course(Protocol):
    """Where the next sum is asked for: parameters that follow released prefix sums."""

    @property
    def parameters(self) -> NDArray[np.float64]:
        """The parameters of now, shape (d,)."""
        ...

    def follow(self, prefix: NDArray[np.float64]) -> None:
        """Go on from the noisy prefix sum of the rounds so far, in the sums' units."""
        ...


@define
class Prefix:
    """Parameters that are ``-step`` times the noisy prefix sum.

    Examples
    --------
    >>> course = Prefix(0.5, np.zeros(2))
    >>> course.follow(np.array([2.0, 4.0]))
    >>> course.parameters.tolist()
    [-1.0, -2.0]
    """

    step: float
    parameters: NDArray[np.float64]

    def follow(self, prefix: NDArray[np.float64]) -> None:
        """Set the parameters."""
        self.parameters = -self.step * prefix


class AdaptiveSums(ABC):
    """Private sums of vectors of shape (d,), in integer numbers of steps."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int]:
        """The shape of a sum, and of parameters: (d,); it does not depend on the data."""

    @property
    @abstractmethod
    def step(self) -> float:
        """The step in which sums are counted, a power of two that does not depend on the data."""

    def course(self, given: float) -> Course:
        """Return how parameters follow from noisy prefix sums: by default ``-given`` times them.

        A function of public and released values alone, whatever the rows are.
        """
        return Prefix(given, np.zeros(self.shape))

    @abstractmethod
    def split(self, parts: int, stream: Stream) -> Sequence[AdaptiveSums]:
        """Return disjoint batches: each unit goes into one of them by its own uniform draw."""

    def among(self, batch: AdaptiveSums) -> AdaptiveSums:
        """Return these sums of the units of a batch; by default the batch, of the same sums.

        Parameters
        ----------
        batch
            Of a value that differs in what it computes of each unit, and in nothing else.
        """
        return batch

    @abstractmethod
    def at(self, parameters: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the sum at parameters, in steps: a function of the set of units alone."""


# -----------------------------------------------------------------------------
# Private values that are not arrays: some queries give them, and some mechanisms read them.


Floats = NDArray[np.float64]


class Ranked(ABC):
    """Scores on the points of a grid, constant between the data's points: which to choose.

    One choice, or several that are made by disjoint rows. Its query's sensitivity in the maximum
    norm is the most that one unit's change moves the score of any point by; for several choices
    the sum over them.
    """

    def at(self, scale: float) -> Ranked:
        """Return the scores for a mechanism of this scale: by default they are the same for all."""
        return self

    @abstractmethod
    def steps(self) -> Sequence[tuple[NDArray[np.int64], Floats]]:
        """Return starts and scores for each choice.

        Starts, of shape (m + 1,), ascend: the points from the i-th to the one before the next have
        the i-th of m scores. The first and the last of them do not depend on private values.
        """

    @abstractmethod
    def numbers(self, points: Sequence[int]) -> Floats:
        """Return what is released of the chosen points, in the shape `shape`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is released: () for a number; it does not depend on the data."""
        return ()


@frozen(eq=False, repr=False)
class UnitsByKey:
    """The keys that rows have, none of which is declared, and the units that have each of them.

    Which keys there are is private, and so is their number.

    Parameters
    ----------
    keys
        Different str, ascending.
    pairs
        Shape (pairs, 2): a unit and the position of a key that it has, each pair once, in the order
        of the rows that have them first.
    rows
        Of each key its number of rows, where these are counted; None to count units.
    """

    keys: Sequence[str]
    pairs: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return "<private keys>"

    def units(self) -> NDArray[np.int64]:
        """Return the number of units that have each key: at least 1."""
        return np.bincount(self.pairs[:, 1], minlength=len(self.keys)).astype(np.int64)

    def counts(self) -> NDArray[np.int64]:
        """Return what is counted of each key, rows or units: at least 1."""
        return self.units() if self.rows is None else self.rows

    def weighted(self, weights: Sequence[int], among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the sum of units' weights for each key; 0 where it has none.

        Of a unit its first ``len(weights)`` keys ``among`` which it is count, so t of them; each
        has ``weights[t - 1]``.
        """
        units, keys = self.pairs[among[self.pairs[:, 1]]].T
        order = np.argsort(units, kind="stable")
        ordered = units[order]
        first = np.searchsorted(ordered, ordered, side="left")
        every = np.searchsorted(ordered, ordered, side="right") - first
        counts = np.arange(len(order)) - first < len(weights)
        own = np.asarray(weights, dtype=np.int64)[np.minimum(every, len(weights)) - 1]
        totals = np.zeros(len(self.keys), dtype=np.int64)
        np.add.at(totals, keys[order][counts], own[counts])
        return totals


# -----------------------------------------------------------------------------
# Inputs of instance-based mechanisms: a number with its local sensitivities, or a choice with its
# distance to instability. Distances between data sets are counted in changed rows.


SLACK = 2.0**-43
"""Relative error, upward, of what `LocalSensitivity.smooth` returns."""


class LocalSensitivity(ABC):
    """A private number f(x) in declared bounds, with its local sensitivity at every distance.

    Subclass it for a query whose noise may depend on the data: give `value`, `max_distance` and
    `local`; the smooth sensitivity and the distances that mechanisms need are derived from them.

    Attributes
    ----------
    lower, upper
        Bounds of f that do not depend on the data, in units of f.

    Notes
    -----
    A *step* is one changed row: one added or removed, or one exchanged, as the query says. The
    *distance* of two data sets is the least number of steps between them. The *local sensitivity
    at distance k*, ``A_k(x)``, is the most that f moves in one step from any data set within k
    steps of x. It obeys two laws: ``A_0 <= A_1 <= ...``, and ``A_k(x) <= A_{k+1}(x')`` for
    neighbours x and x' (the data sets within k steps of x are within k + 1 steps of x').

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, Definitions 2.1 and 2.2, and section 3.1.

    See Also
    --------
    Choice : the same for a query that is not a number.

    Examples
    --------
    The largest of values in [0, 100]: from within k steps, one more moves it by no more than the
    way from the (k+2)nd largest to 100:

    >>> import adaptive_dp as dp
    >>> class Largest(dp.LocalSensitivity):
    ...     lower, upper = 0.0, 100.0
    ...
    ...     def __init__(self, values):
    ...         self.values = [self.lower, *sorted(values)]
    ...
    ...     @property
    ...     def value(self):
    ...         return self.values[-1]
    ...
    ...     @property
    ...     def max_distance(self):
    ...         return len(self.values) - 2
    ...
    ...     def local(self, distance):
    ...         return self.upper - self.values[-2 - min(distance, self.max_distance)]
    >>> largest = Largest([10.0, 80.0, 95.0, 99.0])
    >>> [largest.local(k) for k in range(4)], largest.distance_above(10.0)
    ([5.0, 20.0, 90.0, 100.0], 1)
    >>> round(largest.smooth(beta=1.0), 3)
    12.18
    """

    lower: float
    upper: float

    @property
    @abstractmethod
    def value(self) -> float:
        """f(x), inside the bounds."""

    @property
    @abstractmethod
    def max_distance(self) -> int:
        """A distance from which on the local sensitivity no longer grows, in steps."""

    @abstractmethod
    def local(self, distance: int) -> float:
        """Return A_k at ``k = distance``, or an upper bound of it.

        An upper bound serves as well if it keeps the two laws of the class: it grows with k, and
        ``local_k(x) <= local_{k+1}(x')``. At most ``upper - lower``, to a relative 2^-50.
        """

    def reach(self, steps: int) -> tuple[Floats, Floats]:
        """Return for k = 0, ..., steps two numbers between which all values within k steps lie.

        What x reaches in k steps, a neighbour must reach in k + 1; more may be said to be reached.
        By default the value plus or minus ``A_0 + ... + A_{k-1}``, which obeys that by the laws of
        `local`: see `adaptive_dp.InverseSensitivity`.

        Returns
        -------
        lows, highs
            Each of shape (steps + 1,).
        """
        width, last = self.upper - self.lower, min(steps, self.max_distance)
        local = [self.local(k) for k in range(last)]
        # from `max_distance` on the local sensitivity no longer grows
        local += [self.local(self.max_distance)] * (steps - last)
        moved = np.minimum(np.append(0.0, np.cumsum(local)), width)
        value = self.value
        return value - moved, value + moved

    def smooth(self, beta: float, least: float = 0.0) -> float:
        """Return the beta-smooth sensitivity ``S(x) = max_k e^{-beta k} A_k``, at least ``least``.

        The least function with ``S >= A_0`` and ``S(x) <= e^beta S(x')`` for neighbours (Nissim,
        Raskhodnikova and Smith 2007, Def. 2.2). Too large by at most a relative `SLACK`, while it
        is above 1e-200 of the width (``beta k`` is then rounded by less than 2^-44).
        """
        largest = _maximize(
            self.local, self.max_distance, lambda k, a: math.exp(-beta * k) * a, least
        )
        # outward: S may only be too large, since the noise is scaled by it
        return largest * (1 + SLACK / 2)

    def linear(self, slope: float, least: float = 0.0) -> float:
        """Return ``max_k A_k - slope k``, at least ``least``: it moves by at most ``slope`` a step.

        Where A_0 itself moves by no more, it is A_0. Never below A_0, and exact to 2^-42 of the
        width.
        """
        largest = _maximize(self.local, self.max_distance, lambda k, a: a - slope * k, least)
        return largest * (1 + SLACK / 2)  # outward, as in `smooth`

    def distance_above(self, bound: float) -> int:
        """Return the distance to the nearest data set whose local sensitivity exceeds ``bound``.

        The least k with ``A_k > bound``; `FOREVER` where there is none. By the second law it moves
        by at most 1 between neighbours. Found by doubling, then bisection: A_k grows with k.
        """
        # A_k is constant from the last distance on, so it never exceeds the bound
        if self.local(self.max_distance) <= bound:
            return FOREVER
        low, high = -1, self.max_distance
        # doubling steps bracket the distance, then bisection: A_k does not fall in k
        step = 1
        while low + step < high and self.local(low + step) <= bound:
            low, step = low + step, 2 * step
        high = min(high, low + step)
        # invariant: A_low <= bound < A_high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.local(middle) > bound else (middle, high)
        return high

    @staticmethod
    def brute_force(
        function: Callable[[Floats], Any],
        universe: Sequence[float],
        *,
        range: tuple[float, float] | None = None,
        exchange: bool = False,
        radius: int | None = None,
    ) -> Universe:
        """Return a function's exact local sensitivities, by trying all data sets that are near.

        Parameters
        ----------
        function
            Of the values of a data set, in ascending order.
        universe
            The values that a row may have: a few different numbers.
        range
            Bounds of the function, a number; without them it may be anything, and only its
            distance to instability is computed.
        exchange
            Whether a step exchanges a row (True), or adds or removes one (False).
        radius
            From what distance on the local sensitivity counts as the width of the range, and the
            function as unstable. By default the largest for which at most 20,000 data sets are
            near.

        Examples
        --------
        How often a 1 occurs, up to three times:

        >>> import adaptive_dp as dp
        >>> near = dp.LocalSensitivity.brute_force(
        ...     lambda values: min(3, int(sum(values))), [0, 1], range=(0, 3), radius=8
        ... )
        >>> ones = [1.0] * 7
        >>> [near.local(ones, k) for k in (0, 3, 4, 8)], near.instability(ones)
        ([0.0, 0.0, 1.0, 3.0], 4)
        >>> near(ones).smooth(beta=0.5).__round__(3), near(ones).distance_above(0.5)
        (0.135, 4)
        """
        if radius == 0:
            raise DeclarationError("radius must be from 1 to 1000 steps, got 0")
        return Universe(function, universe, range, exchange, 0 if radius is None else radius)


FOREVER = 2**53
"""A distance beyond any data set."""

MOST_NEAR = 20_000
"""The most data sets near another one that brute force tries by default."""


def _numbers(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(sorted({float(v) for v in values}))


@frozen(eq=False, repr=False)
class Universe:
    """All data sets of a small universe, with a function's local sensitivity at each distance.

    A data set is a multiset of the universe's values: how often each occurs. ``A_k(x)`` is the
    largest change of the function in one step from any data set within k steps of x, found by
    computing it for every data set within ``k + 1`` steps; and the distance to instability is that
    to the nearest one with another value of the function, less one. Both laws of `LocalSensitivity`
    hold by definition, and beyond the radius, a constant, by the width. The *distance to
    instability* moves by at most 1 in a step that keeps the function's value, and is 0 next to
    another value; it counts as ``radius`` where no other value is nearer than that.

    A function's own failures leave no process: NaN or an exception counts as the lower end of the
    range, a value outside as the nearest end, before anything is compared. Values of a data set
    count as the nearest of the universe, each by itself.

    Parameters
    ----------
    function, universe, range, exchange, radius
        See `LocalSensitivity.brute_force`, which makes it.
    """

    function: Callable[[Floats], Any]
    universe: tuple[float, ...] = field(converter=_numbers)
    range: tuple[float, float] | None = None
    exchange: bool = False
    radius: int = 0

    def __attrs_post_init__(self) -> None:
        m = len(self.universe)
        if not (2 <= m <= 64 and all(map(math.isfinite, self.universe))):
            raise DeclarationError(
                f"a universe needs 2 to 64 different numbers, got {len(self.universe)}; group the "
                "values of a column into few first"
            )
        if self.range is not None and not self.range[0] < self.range[1]:
            raise DeclarationError(f"range must be a lower and an upper bound, got {self.range!r}")
        if type(self.radius) is not int or not 0 <= self.radius <= 1000:
            raise DeclarationError(f"radius must be from 1 to 1000 steps, got {self.radius!r}")
        if not self.radius:
            largest = 1
            while self._near(largest + 1) <= MOST_NEAR and largest < 1000:
                largest += 1
            object.__setattr__(self, "radius", largest)

    def __repr__(self) -> str:
        return f"<universe of {len(self.universe)} values>"

    def __call__(self, values: Sequence[float]) -> LocalSensitivity:
        """Return the function's value at a data set, with its local sensitivities."""
        return _Exhaustive(self, self._counts(values))

    def local(self, values: Sequence[float], distance: int) -> float:
        """Return ``A_k`` at ``k = distance``, as `Column.instance` asks for it."""
        return self(values).local(distance)

    def instability(self, values: Sequence[float]) -> int:
        """Return the distance to instability: the nearest other value's, less one."""
        here = self._counts(values)
        same = self._value(here)
        # a value that is not comparable is another one
        for distance, counts, _ in self._spread(here):
            if distance and not _equal(self._value(counts), same):
                return distance - 1
        return self.radius

    def chosen(self, values: Sequence[float]) -> Any:
        """Return the function's value at a data set."""
        return self._value(self._counts(values))

    def _near(self, radius: int) -> int:
        """Return about how many data sets are within so many steps, where no count is near 0."""
        m = len(self.universe)
        if self.exchange:
            return sum(math.comb(m, j) * math.comb(radius, j) ** 2 for j in range(m))
        return sum(2**j * math.comb(m, j) * math.comb(radius, j) for j in range(m + 1))

    def _counts(self, values: Sequence[float]) -> tuple[int, ...]:
        """Return how often each value of the universe is the nearest to one of the data set."""
        numbers = np.nan_to_num(np.asarray(values, dtype=np.float64).ravel(), nan=self.universe[0])
        middles = (np.array(self.universe[1:]) + np.array(self.universe[:-1])) / 2
        near = np.searchsorted(middles, numbers, side="left")
        return tuple(np.bincount(near, minlength=len(self.universe)).tolist())

    def _value(self, counts: tuple[int, ...]) -> Any:
        """Return the function's value at a data set, brought into the range."""
        values = np.repeat(np.array(self.universe), counts)
        try:
            result = self.function(values)
            if self.range is None:
                return result
            number = float(result)
        except Exception:
            number = math.nan
        if self.range is None:
            return None
        low, high = self.range
        return low if math.isnan(number) else min(high, max(low, number))

    def _steps(self, counts: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the data sets one step away."""
        m, near = len(counts), []
        for i in range(m):
            up = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            if not self.exchange:
                near.append(up)
                if counts[i]:
                    near.append((*counts[:i], counts[i] - 1, *counts[i + 1 :]))
                continue
            for j in range(m):
                if j != i and counts[j]:
                    near.append((*up[:j], up[j] - 1, *up[j + 1 :]))
        return near

    def _spread(
        self, start: tuple[int, ...]
    ) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, ...]]]]:
        """Yield each data set within the radius, nearest first, with those one step from it."""
        layer, seen = [start], {start}
        for distance in range(self.radius + 1):
            following = []
            for counts in layer:
                near = self._steps(counts)
                yield distance, counts, near
                following += [each for each in near if each not in seen]
                seen.update(near)
            layer = list(dict.fromkeys(following))


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(np.all(np.asarray(a == b)))
    except Exception:
        return False


class _Exhaustive(LocalSensitivity):
    """A data set of a universe, with its local sensitivities; see `Universe`."""

    def __init__(self, universe: Universe, counts: tuple[int, ...]) -> None:
        if universe.range is None:
            raise DeclarationError(
                "local sensitivities are those of numbers: give brute_force a range"
            )
        self.lower, self.upper = (float(v) for v in universe.range)
        self._universe, self._counts = universe, counts
        self._largest: list[float] | None = None

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def value(self) -> float:
        """The function's value."""
        return float(self._universe._value(self._counts))

    @property
    def max_distance(self) -> int:
        """The radius."""
        return self._universe.radius

    def local(self, distance: int) -> float:
        """Return the largest change in one step from any data set so near; the width beyond."""
        if distance >= self.max_distance:
            return self.upper - self.lower
        if self._largest is None:
            values: dict[tuple[int, ...], float] = {}

            def at(counts: tuple[int, ...]) -> float:
                if counts not in values:
                    values[counts] = float(self._universe._value(counts))
                return values[counts]

            largest = [0.0] * self.max_distance
            for k, counts, near in self._universe._spread(self._counts):
                if k < self.max_distance:
                    most = max((abs(at(each) - at(counts)) for each in near), default=0.0)
                    largest[k] = max(largest[k], most)
            self._largest = list(accumulate(largest, max))
        return self._largest[distance]


@frozen
class Choice:
    """A private choice among candidates, and how many steps it withstands.

    Parameters
    ----------
    index
        f(x), a candidate's position.
    distance
        The least number of steps after which one more may change f: 0 where a neighbour has
        another f. A lower bound of it serves as well if it moves by at most 1 a step between
        data sets of the same f, and is 0 where a neighbour's f is another.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> from adaptive_dp.noise.stream import SeededStream
    >>> leads = dp.Choice(index=0, distance=40)  # forty steps until another may lead
    >>> leads
    <private choice>
    >>> test = dp.DistanceToInstability(epsilon=1.0, delta=1e-6)
    >>> test.release(leads, SeededStream(1)), test.release(dp.Choice(0, 1), SeededStream(1))
    (array(0.), array(nan))
    """

    index: int
    distance: int

    def __repr__(self) -> str:
        return "<private choice>"


def _maximize(
    local: Callable[[int], float],
    last: int,
    weight: Callable[[int, float], float],
    least: float,
) -> float:
    """Return the maximum of ``weight(k, A_k)`` over k = 0, ..., last, and of ``least``.

    The weight falls in k and grows in A_k, which grows in k. So ``weight(low + 1, A_high)`` bounds
    the weight of every k in (low, high]: an interval whose bound is not above the best value so
    far is skipped, and the interval of the largest bound is halved first (branch and bound).
    """
    local_0 = local(0)
    best = max(least, weight(0, local_0))
    queue: list[tuple[float, int, int, float]] = []
    local_last = local(last) if last > 0 else local_0
    # within (low, high] the weight is at most weight(low + 1, A_high): weights fall in k, A_k rises
    low, step = 0, 1
    # intervals of doubling lengths, up to where even A_last would weigh too little
    while low < last and weight(low + 1, local_last) > best:
        high = min(last, low + step)
        local_high = local(high)
        best = max(best, weight(high, local_high))
        # negated: heapq keeps the smallest in front, and the largest bound is wanted
        queue.append((-weight(low + 1, local_high), low, high, local_high))
        low, step = high, 2 * step
    heapq.heapify(queue)
    # stop when no interval's upper bound exceeds what was attained
    while queue and -queue[0][0] > best:
        _, low, high, local_high = heapq.heappop(queue)
        # an interval of one point was evaluated at its end
        if high - low < 2:
            continue
        middle = (low + high) // 2
        local_middle = local(middle)
        best = max(best, weight(middle, local_middle))
        heapq.heappush(queue, (-weight(low + 1, local_middle), low, middle, local_middle))
        heapq.heappush(queue, (-weight(middle + 1, local_high), middle, high, local_high))
    return best
