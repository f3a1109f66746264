"""Private values at run time: they print as ``<private>`` wherever they turn up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Secret(Generic[T]):
    """A value that depends on the data and has not been released, held where nothing can show it.

    It prints as ``<private>``, has no truth value, cannot be pickled or copied, and is equal
    to itself only. Its content leaves by one door, `reveal`.

    Examples
    --------
    >>> count = Secret(17)
    >>> count, f"{count:>8}", str(count.map(lambda n: n + 1))
    (<private>, '<private>', '<private>')
    """

    __slots__ = ("__held",)
    __held: Callable[[], T]

    def __init__(self, value: T) -> None:
        # in a function, where no debugger or traceback that lists attributes shows it
        object.__setattr__(self, "_Secret__held", lambda: value)

    def map(self, function: Callable[[T], R]) -> Secret[R]:
        """Return ``function`` of the value, which is private too."""
        return Secret(function(self.__held()))

    def reveal(self) -> T:
        """Return the private value itself, which from here on nothing protects."""
        return self.__held()

    def __repr__(self) -> str:
        return "<private>"

    def __format__(self, specification: str) -> str:
        return "<private>"

    def __bool__(self) -> NoReturn:
        raise TypeError("a private value has no truth value: a branch on it would leak it")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a private value cannot become an array outside of the plan")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a private value cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a private value cannot be changed")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a private value cannot be pickled or copied; release it first")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private value cannot be pickled or copied; release it first")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a private value cannot be pickled or copied; release it first")
