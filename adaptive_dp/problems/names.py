"""Loss functions as strings, such as ``Huber(width=0.5)``: how documents and tables name them.

A third party's loss is named with its module, ``my_module:Mine(width=0.5)``. A string never brings
code: such a loss is found only where the running program has already defined it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import attrs

from adaptive_dp.problems.absolute import Absolute
from adaptive_dp.problems.generalised import GeneralizedLinear, GeneralizedLinearCount
from adaptive_dp.problems.hinge import Hinge
from adaptive_dp.problems.huber import Huber
from adaptive_dp.problems.huber_hinge import HuberHinge
from adaptive_dp.problems.logistic import Logistic
from adaptive_dp.problems.loss import DEFINED, Loss
from adaptive_dp.problems.multinomial import Multinomial
from adaptive_dp.problems.poisson import Poisson
from adaptive_dp.problems.smoothed_hinge import SmoothedHinge
from adaptive_dp.problems.squared import Squared
from adaptive_dp.problems.zero_one import ZeroOne

LOSSES: Mapping[str, type[Loss]] = {
    "Absolute": Absolute,
    "GeneralizedLinear": GeneralizedLinear,
    "GeneralizedLinearCount": GeneralizedLinearCount,
    "Hinge": Hinge,
    "Huber": Huber,
    "HuberHinge": HuberHinge,
    "Logistic": Logistic,
    "Multinomial": Multinomial,
    "Poisson": Poisson,
    "SmoothedHinge": SmoothedHinge,
    "Squared": Squared,
    "ZeroOne": ZeroOne,
}
"""The library's loss functions by name; a class is the library's if it is one of these objects."""


def text(loss: Loss) -> str:
    """Return a loss as a text that `read` reads back."""
    kind = type(loss)
    given = ", ".join(f"{f.name}={getattr(loss, f.name)!r}" for f in attrs.fields(kind))
    module = "" if LOSSES.get(kind.__name__) is kind else f"{kind.__module__}:"
    return f"{module}{kind.__name__}({given})"


def read(written: str) -> Loss:
    """Return the loss of a text; one that the library ships.

    Raises
    ------
    ValueError
        If the text names none.

    Examples
    --------
    >>> read("Logistic()")
    Logistic()
    """
    hint = f"{written!r} is no loss; losses are {', '.join(LOSSES)}, such as 'Logistic()'"
    return _made(written, LOSSES, hint)


def read_any(written: str) -> Loss:
    """Return the loss of a text, which may be one that the program has defined.

    For those alone who need nothing of it to be true: they clip what it says.

    Raises
    ------
    ValueError
        If the text names none.
    """
    module, colon, call = written.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        return read(written)
    places = ((place.partition(":"), kind) for place, kind in DEFINED.items())
    known = {name: kind for (where, _, name), kind in places if where == module}
    hint = (
        f"{written!r} is no loss that the program has defined: import {module} first; its class is "
        "at the top level of a module, frozen by attrs, and its parameters are numbers and texts"
    )
    return _made(call, known, hint)


def _made(call: str, known: Mapping[str, type[Loss]], hint: str) -> Loss:
    try:
        found = ast.parse(call, mode="eval").body
        assert isinstance(found, ast.Call)
        assert isinstance(found.func, ast.Name)
        assert not found.args
        given: dict[str, Any] = {str(k.arg): ast.literal_eval(k.value) for k in found.keywords}
        kind = known[found.func.id]
    except (SyntaxError, AssertionError, KeyError, ValueError, RecursionError, MemoryError):
        raise ValueError(hint) from None
    return kind(**given)
