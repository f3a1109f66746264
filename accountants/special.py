"""SciPy's special functions, imported when the first of them is called.

They take most of the package's import time, and the commonest questions need none.
"""

from __future__ import annotations

from functools import cache
from typing import Any


def __getattr__(name: str) -> Any:
    """Return ``scipy.special``'s function of that name, and keep it here."""
    if name.startswith("__"):
        raise AttributeError(name)
    function = globals()[name] = getattr(_scipy(), name)
    return function


@cache
def _scipy() -> Any:
    import scipy.special

    return scipy.special
