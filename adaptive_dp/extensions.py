"""Functions of higher rooms that lower rooms call by name, without importing those rooms.

Every import goes down. Where a method of a lower room is a convenience for what a higher one does
(`Pipeline.audit`), or a message of a lower room names what a higher one offers, the lower room asks
here for a function by its name. The face of the package, which knows all rooms, provides each when
it is imported, as a callable that imports the higher room at the first call: `import adaptive_dp`
itself stays cheap. A lower room cannot be reached without the face, since Python imports a package
before what is inside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FINDERS: dict[str, Callable[[], Callable[..., Any]]] = {}


def provide(name: str, find: Callable[[], Callable[..., Any]]) -> None:
    """Provide a function of a higher room.

    Parameters
    ----------
    name
        By which lower rooms ask for it.
    find
        Imports and returns the function.
    """
    _FINDERS[name] = find


def provided(name: str) -> Callable[..., Any]:
    """Return a function that the package's face has provided.

    Raises
    ------
    KeyError
        If none has this name.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> provided("audit.pipeline") is dp.audit.pipeline
    True
    """
    return _FINDERS[name]()
