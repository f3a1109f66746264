"""Arguments of certificates and calibrations, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import accountants
from accountants import Accountant
from adaptive_dp.graph.convert import anything
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.plugins import OURS


def asked(chosen: Iterable[Accountant[Any]]) -> tuple[Accountant[Any], ...]:
    """Return the accountants, or refuse what is none.

    Raises
    ------
    DeclarationError
        If there are none, one is a name or a class, or carries a name that is another's.
    """
    what = "accountants must be instances such as accountants.Renyi()"
    found = anything(chosen)
    require(bool(found), f"{what}, got none; leave the argument out to ask all of them")
    for one in found:
        fits = not isinstance(one, type) and all(
            hasattr(one, name) for name in ("name", "start", "compose", "epsilon")
        )
        shown = f"the class {one.__name__}; write {one.__name__}()" if isinstance(one, type) else ""
        require(fits, f"{what}, got {shown or repr(one)}")
        ours = OURS.get(one.name)
        require(
            ours is None or type(one) is type(ours),
            f"{type(one).__module__}.{type(one).__qualname__} calls itself {one.name!r}, which is "
            "the name of an accountant of the library: certificates would say that it found what "
            "it did not; give it another name",
        )
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, f"two accountants are called {', '.join(map(repr, twice))}; ask one of them")
    return found


def certified_at(delta: float) -> float:
    """Return a delta in [0, 1), or refuse what is none."""
    try:
        return accountants.errors.probability("delta", delta, below_one=True)
    except accountants.DomainError as error:
        raise DeclarationError(str(error)) from None
