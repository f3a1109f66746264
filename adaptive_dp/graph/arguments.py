"""Arguments of certificates and calibrations, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import accountants
from accountants import Accountant
from adaptive_dp.graph.convert import anything
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import require


def asked(chosen: Iterable[Accountant[Any]]) -> tuple[Accountant[Any], ...]:
    """Return the accountants, or refuse what is none.

    Raises
    ------
    DeclarationError
        If there are none, or one is a name or a class.
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
    return found


def certified_at(delta: float) -> float:
    """Return a delta in [0, 1), or refuse what is none."""
    try:
        return accountants.errors.probability("delta", delta, below_one=True)
    except accountants.DomainError as error:
        raise DeclarationError(str(error)) from None
