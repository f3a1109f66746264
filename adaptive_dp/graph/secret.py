"""Private values at run time: they print as ``<private>`` wherever they turn up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")


class Secret(Generic[T]):
    """A private value, held where no repr, log line, traceback or pickle can show it.

    Examples
    --------
    >>> Secret(42)
    <private>
    >>> f"{Secret('Ann')}"
    '<private>'
    """

    __slots__ = ("_reveal",)

    def __init__(self, value: T) -> None:
        self._reveal: Callable[[], T] = lambda: value

    def reveal(self) -> T:
        """Return the value; only code inside the trust boundary calls this."""
        return self._reveal()

    def __repr__(self) -> str:
        return "<private>"

    def __format__(self, spec: str) -> str:
        return "<private>"

    def __bool__(self) -> NoReturn:
        raise TypeError("a private value has no truth value: a branch on it would leak it")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private value cannot be pickled")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a private value cannot become an array outside of the plan")
