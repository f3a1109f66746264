"""Terms to and from JSON: one object for each term and each loss, exact both ways.

    {"kind": "Repeated", "times": 100, "part": {"kind": "Spend", "loss":
        {"kind": "Laplace", "epsilon": 0.1}}}

``kind`` names a class of `accountants.terms` or, where a loss stands, of `accountants.losses`; the
other keys are its parameters, and those that have a default may be left out. Values are written
and read by `accountants.codec`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from accountants import losses
from accountants.codec import Codec, loads, shown
from accountants.errors import DomainError
from accountants.loss import PrivacyLoss
from accountants.registry import LOSSES, TERMS, locate
from accountants.terms import Term

DEEPEST = 100
"""A document nested deeper than this is refused."""


def to_json(term: Term, indent: int | None = None) -> str:
    """Return a term as JSON.

    Examples
    --------
    >>> from accountants import Gaussian, Repeated, Spend
    >>> text = to_json(Repeated(Spend(Gaussian(mu=0.1)), 100))
    >>> from_json(text) == Repeated(Spend(Gaussian(mu=0.1)), 100)
    True
    """
    return json.dumps(to_document(term), indent=indent, allow_nan=False)


def from_json(text: str) -> Term:
    """Return the term of a JSON text.

    Raises
    ------
    DomainError
        If it is not JSON, or not a term: with the node, and what it lacks or should not have.

    Examples
    --------
    >>> from_json('{"kind": "Spend", "loss": {"kind": "Laplace", "epsilon": 0.5}, "name": "count"}')
    Spend(loss=Laplace(epsilon=0.5), name='count')
    >>> from_json('{"kind": "Spend", "loss": {"kind": "Laplace", "scale": 2}}')
    Traceback (most recent call last):
        ...
    accountants.errors.DomainError: term (Spend).loss (Laplace): unknown field 'scale'; known are
    'epsilon'
    """
    try:
        document = loads(text)
    except RecursionError:
        raise DomainError("term: nested too deep") from None
    except ValueError as error:
        raise DomainError(f"term: not JSON: {error}") from None
    return from_document(document)


def to_document(term: Term) -> dict[str, Any]:
    """Return a term as what JSON has: str, numbers, lists and dicts.

    Raises
    ------
    DomainError
        If a parameter has no form in JSON.
    """
    if not isinstance(term, Term):
        raise DomainError(f"a document is made of a term, got {term!r}; wrap a loss in Spend")
    document: dict[str, Any] = _CODEC.write(term, "term")
    return document


def from_document(document: Any) -> Term:
    """Return the term of what `to_document` returns.

    Raises
    ------
    DomainError
        As `from_json`.
    """
    _shallow(document)
    term: Term = _CODEC.read(Term, document, "term")
    return term


@cache
def kinds(base: type) -> dict[str, type]:
    """Return the classes that a document may name: of the terms, or of the losses."""
    table = TERMS if base is Term else {k: v for k, v in LOSSES.items() if k in losses.__all__}
    return {name: locate(place) for name, place in table.items()}


def _shallow(document: Any) -> None:
    """Refuse what is nested so deep that reading it would exhaust the interpreter's stack."""
    stack = [(document, 0)]
    while stack:
        value, depth = stack.pop()
        if depth > DEEPEST:
            raise DomainError(f"term: nested deeper than {DEEPEST}")
        inner = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, Mapping | list | tuple):
            stack.extend((each, depth + 1) for each in inner)


def _write(base: type) -> Callable[[Any, str], dict[str, Any]]:
    def write(value: Any, place: str) -> dict[str, Any]:
        name = type(value).__name__
        if kinds(base).get(name) is not type(value):
            raise DomainError(f"{place}: {name} has no form in a document")
        return {"kind": name} | _CODEC.fields(value, place)

    return write


def _read(base: type) -> Callable[[Any, str], Any]:
    what = "term" if base is Term else "loss"

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, Mapping) or "kind" not in value:
            raise DomainError(
                f"{place}: a {what} is an object with the key 'kind', got {shown(value)}"
            )
        name, known = value["kind"], kinds(base)
        if not isinstance(name, str) or name not in known:
            raise DomainError(
                f"{place}: no {what} is of kind {shown(name)}; there are {', '.join(known)}"
            )
        node, rest = f"{place} ({name})", {k: v for k, v in value.items() if k != "kind"}
        return _CODEC.made(known[name], _CODEC.arguments(known[name], rest, node), node)

    return read


_CODEC = Codec(
    DomainError,
    writers={Term: _write(Term), PrivacyLoss: _write(PrivacyLoss)},
    readers={Term: _read(Term), PrivacyLoss: _read(PrivacyLoss)},
)
