"""The operations in the open: constants, releases and post-processing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.extensions import provided
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.fresh import fresh
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Color, Operation, Query, require
from adaptive_dp.noise.stream import Stream


def _public(value: Any) -> Any:
    return plain(value, "public value")


@frozen
class Constant(Operation):
    """A public value."""

    kind: ClassVar[str] = "public"
    color: ClassVar[Color] = "public"

    value: Any = field(converter=_public)

    def label(self) -> str:
        """Return the value, shortened."""
        text = repr(self.value)
        return text if len(text) <= 24 else text[:21] + "..."

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return a copy of the value."""
        return fresh(self.value)


@frozen
class Release(Operation):
    """A mechanism's release of a query; the graph's only way out of private."""

    kind: ClassVar[str] = "release"
    color: ClassVar[Color] = "released"
    random: ClassVar[bool] = True

    mechanism: Mechanism
    name: str = ""

    def __attrs_post_init__(self) -> None:
        kind = type(self.mechanism)
        for method in ("release", "loss"):
            require(
                getattr(kind, method) is not getattr(Mechanism, method),
                f"{kind.__name__} defines no {method}, which a mechanism needs to be released "
                f"with; see the example in adaptive_dp.graph.mechanism",
            )
        require(
            isinstance(self.name, str),
            f"a release's name must be a text, got {self.name!r}; write name='total'",
        )

    def domain(self, inputs: Sequence[Any]) -> Mechanism:
        """Return the mechanism, which `Parameter` reads."""
        return self.mechanism

    def label(self) -> str:
        """Return the mechanism's name."""
        return self.name or type(self.mechanism).__name__

    def detail(self) -> str:
        """Return the mechanism with its parameters."""
        return str(self.mechanism)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the randomised value as float64; None where the mechanism gives no such."""
        value, *given = inputs
        if self.mechanism.reads is np.ndarray:
            value = np.array(value, dtype=np.float64)  # a copy: a mechanism may change it in place
        shape = self.mechanism.shape(shape_of(value))
        return conforming(self.mechanism.release(value, stream, *given), shape)

    def presented(self, query: Query, raw: NDArray[np.float64]) -> Any:
        """Return what was released in the form that its reader expects."""
        if self.mechanism.chooses:
            return None if np.isnan(raw) else query.candidate(int(raw))
        kept = type(self.mechanism).shape is Mechanism.shape
        return scalar(query.present(raw.copy()) if kept else raw.copy())


def admitted(query: Query, domain: Any, mechanism: Mechanism, given: int) -> None:
    """Refuse a mechanism that cannot release a query's value, or lacks what it is given.

    ``domain`` is that of the query's input.
    """
    kind, name = type(mechanism), type(mechanism).__name__
    if not issubclass(query.gives, kind.reads):
        raise DeclarationError(
            f"{name} reads {_words(kind.reads)}, but a {query.kind} gives {_words(query.gives)}; "
            f"{_instead(query)}"
        )
    single = type(query).candidate is Query.candidate and query.dimension(domain) == 1
    require(
        not (kind.chooses and single and kind.reads is np.ndarray),
        f"{name} chooses among several scores, but a {query.kind} is one number; to release it add "
        "noise, for example by dp.Laplace(), or choose a bin of a .histogram()",
    )
    require(
        kind.norm != 0 or query.gives is not np.ndarray,
        f"{name} counts the rows that change (norm 0), which numbers do not tell; say norm 1, 2 or "
        "math.inf",
    )
    require(
        given == kind.given,
        f"{name} follows {kind.given} released values, got {given}; pass them as given=[...]",
    )


def _words(kind: type) -> str:
    return "numbers" if kind is np.ndarray else kind.__name__


def _instead(query: Query) -> str:
    """Return which mechanisms do read what a query gives, for messages."""
    names = ", ".join(f"dp.{name}" for name in provided("primitives.readers")(query))
    if not names:
        return "choose a mechanism for it, or another query"
    return f"what reads it is among {names}; dp.suitable(query) says which, and why"


def shape_of(value: Any) -> tuple[int, ...]:
    """Return a query's value's shape: an array's, or what a value says of itself by ``shape``."""
    return tuple(getattr(value, "shape", ()))


def scalar(value: Any) -> Any:
    """Return an array without dimensions as a float, anything else as it is."""
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    return float(array) if array is not None and array.ndim == 0 else value


def conforming(released: Any, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Return what a mechanism released as an array of its own, or None if it breaks the contract.

    See `Mechanism.release`: real numbers, of that shape.
    """
    array = np.asarray(released)
    fits = array.dtype.kind in "biuf" and array.shape == shape
    return np.array(array, dtype=np.float64) if fits else None


@frozen
class Parameter(Operation):
    """A parameter of the mechanism behind a release: public, known once it is calibrated."""

    kind: ClassVar[str] = "parameter"
    color: ClassVar[Color] = "public"

    name: str

    def label(self) -> str:
        """Return the parameter's name."""
        return self.name

    def domain(self, inputs: Sequence[Any]) -> None:
        """Check that the input is a release whose mechanism has the parameter."""
        mechanism = inputs[0] if len(inputs) == 1 else None
        if not isinstance(mechanism, Mechanism) or self.name not in mechanism.parameters():
            has = f"{type(mechanism).__name__} has no {self.name!r}"
            if isinstance(mechanism, Mechanism):
                has += f", it has {', '.join(mechanism.parameters()) or 'none'}"
            else:
                has = "its input is none"
            raise DeclarationError(
                f"a parameter is read off a release, what .release(mechanism) returned; {has}"
            )

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the parameter; the executor passes the mechanism in place of its value."""
        return inputs[0].parameters()[self.name]


def _constants(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): plain(v, "constant") for k, v in dict(value).items()}


@frozen
class Post(Operation):
    """A function of released values."""

    kind: ClassVar[str] = "post"
    color: ClassVar[Color] = "released"

    function: Function
    constants: Mapping[str, Any] = field(factory=dict, converter=_constants)

    @classmethod
    def of(cls, function: Callable[..., Any], constants: Mapping[str, Any]) -> Post:
        """Return the operation for a callable."""
        return cls(Function.of(function), constants)

    def label(self) -> str:
        """Return the function's short name."""
        return self.function.label

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the function's value; it gets copies, and keeps none of what it returns."""
        return fresh(self.function.resolve()(*map(fresh, inputs), **fresh(self.constants)))


def plain(value: Any, what: str) -> Any:
    """Return ``value`` as numbers, texts, lists and mappings that a document can hold.

    Raises
    ------
    DeclarationError
        If it holds anything else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufU":
        return value.tolist()
    if isinstance(value, Mapping):
        wrong = [k for k in value if not isinstance(k, str)]
        if wrong or set(value) == {"float"}:
            raise DeclarationError(
                f"a mapping in a {what} needs texts as keys, got "
                f"{wrong[0] if wrong else 'float'!r}" + ("" if wrong else " alone (reserved)")
            )
        return {k: plain(v, what) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(v, what) for v in value]
    raise DeclarationError(
        f"a {what} must be a number, text, list or mapping, got {type(value).__name__}"
    )
