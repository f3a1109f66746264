"""The operations in the open: constants, releases and post-processing."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Colour, Operation
from adaptive_dp.noise.stream import Stream


def _public(value: Any) -> Any:
    return plain(value, "public value")


@frozen
class Constant(Operation):
    """A public value."""

    kind: ClassVar[str] = "public"
    colour: ClassVar[Colour] = "public"

    value: Any = field(converter=_public)

    def label(self) -> str:
        """Return the value, shortened."""
        text = repr(self.value)
        return text if len(text) <= 24 else text[:21] + "..."

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the value."""
        return self.value


@frozen
class Release(Operation):
    """A mechanism's release of a query; the graph's only way out of private."""

    kind: ClassVar[str] = "release"
    colour: ClassVar[Colour] = "released"
    random: ClassVar[bool] = True

    mechanism: Mechanism
    name: str = ""

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
        """Return the randomised value."""
        return self.mechanism.release(np.asarray(inputs[0], dtype=np.float64), stream)


@frozen
class Parameter(Operation):
    """A parameter of the mechanism behind a release: public, known once it is calibrated."""

    kind: ClassVar[str] = "parameter"
    colour: ClassVar[Colour] = "public"

    name: str

    def label(self) -> str:
        """Return the parameter's name."""
        return self.name

    def domain(self, inputs: Sequence[Any]) -> None:
        """Check that the input is a release whose mechanism has the parameter."""
        mechanism = inputs[0] if len(inputs) == 1 else None
        if not isinstance(mechanism, Mechanism) or self.name not in mechanism.parameters():
            raise DeclarationError(
                f"a parameter is read off a release; {type(mechanism).__name__} has no "
                f"{self.name!r}"
            )

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the parameter; the executor passes the mechanism in place of its value."""
        return inputs[0].parameters()[self.name]


@frozen
class Function:
    """A user's function, by dotted name where it has one.

    Parameters
    ----------
    name
        ``module:qualified.name``, or ``lambda:digest`` for one that no module holds.
    call
        The function itself, or None until it is needed.
    """

    name: str
    call: Callable[..., Any] | None = field(default=None, eq=False, repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Function:
        """Return the function with its dotted name, or with a digest of its code."""
        module = getattr(function, "__module__", "") or ""
        name = getattr(function, "__qualname__", "") or ""
        if module and name and "<" not in name and _found(module, name) is function:
            return cls(f"{module}:{name}", function)
        code = getattr(function, "__code__", None)
        body = (
            repr(
                (
                    code.co_code,
                    code.co_names,
                    [c for c in code.co_consts if not hasattr(c, "co_code")],
                )
            )
            if code
            else repr(type(function))
        )
        digest = hashlib.sha256(body.encode()).hexdigest()[:16]
        return cls(f"lambda:{digest}", function)

    def resolve(self) -> Callable[..., Any]:
        """Return the callable, imported by name if need be.

        Raises
        ------
        RunError
            If it cannot be found.
        """
        if self.call is not None:
            return self.call
        module, _, name = self.name.partition(":")
        if module == "lambda":
            raise RunError(
                f"the plan calls {self.name}, a function that no module holds, so the document "
                "cannot bring it along; define it at the top level of a module"
            )
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a module's code may raise
            raise RunError(
                f"the plan calls {self.name}, but module {module!r} cannot be imported "
                f"({type(error).__name__})"
            ) from None
        found = _found(module, name)
        if not callable(found):
            raise RunError(f"the plan calls {self.name}, but {module!r} has no function {name!r}")
        return found  # type: ignore[no-any-return]


def _found(module: str, name: str) -> Any:
    target: Any = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return target


def _constants(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): plain(v, "constant") for k, v in dict(value).items()}


@frozen
class Post(Operation):
    """A function of released values."""

    kind: ClassVar[str] = "post"
    colour: ClassVar[Colour] = "released"

    function: Function
    constants: Mapping[str, Any] = field(factory=dict, converter=_constants)

    @classmethod
    def of(cls, function: Callable[..., Any], constants: Mapping[str, Any]) -> Post:
        """Return the operation for a callable."""
        return cls(Function.of(function), constants)

    def label(self) -> str:
        """Return the function's short name."""
        module, _, name = self.function.name.partition(":")
        return "function" if module == "lambda" else name.rpartition(".")[2].lstrip("_")

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the function's value."""
        return self.function.resolve()(*inputs, **self.constants)


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
