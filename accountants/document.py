"""Terms to and from JSON: one object for each term and each loss, exact both ways.

    {"kind": "Repeated", "times": 100, "part": {"kind": "Spend", "loss":
        {"kind": "Laplace", "epsilon": 0.1}}}

``kind`` names a class of `accountants.terms` or, where a loss stands, of `accountants.losses`; the
other keys are its parameters, and those that have a default may be left out. A loss stands as
``loss`` of a Spend and inside of other losses, a term everywhere else. Numbers are written with
all their digits; infinities are {"float": "inf"}, fractions {"fraction": "1/3"}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any

import attrs
import numpy as np

from accountants import losses, terms
from accountants.errors import AccountingError, DomainError
from accountants.loss import PrivacyLoss
from accountants.terms import Term

DEEPEST = 200
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
    accountants.errors.DomainError: term.loss (Laplace): unknown key 'scale'; Laplace takes
    epsilon
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise DomainError("the term is nested too deep") from None
    except DomainError:
        raise
    except ValueError as error:
        raise DomainError(f"the term is not JSON: {error}") from None
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
    document: dict[str, Any] = _encoded(term, "term")
    return document


def from_document(document: Any) -> Term:
    """Return the term of what `to_document` returns.

    Raises
    ------
    DomainError
        As `from_json`.
    """
    term: Term = _node(document, "term", Term)
    return term


@cache
def kinds(base: type) -> dict[str, type]:
    """Return the classes that a document may name: of the terms, or of the losses."""
    if base is Term:
        return {
            name: kind
            for name, kind in vars(terms).items()
            if isinstance(kind, type) and issubclass(kind, Term) and kind is not Term
        }
    return {name: getattr(losses, name) for name in losses.__all__ if _is_loss(name)}


def _is_loss(name: str) -> bool:
    kind = getattr(losses, name)
    return isinstance(kind, type) and issubclass(kind, PrivacyLoss)


def _parameters(kind: type) -> dict[str, attrs.Attribute[Any]]:
    """Return the fields that make an object of a class, by the names of its parameters."""
    return {(f.alias or f.name): f for f in attrs.fields(kind) if f.init}


def _encoded(value: Any, place: str) -> Any:
    if isinstance(value, Term | PrivacyLoss):
        kind = type(value)
        known = kinds(Term if isinstance(value, Term) else PrivacyLoss)
        if known.get(kind.__name__) is not kind:
            raise DomainError(f"{place}: {kind.__name__} has no form in a document")
        inner = {k: getattr(value, f.name) for k, f in _parameters(kind).items()}
        return {"kind": kind.__name__} | {k: _encoded(v, f"{place}.{k}") for k, v in inner.items()}
    if isinstance(value, Enum):
        return _encoded(value.value, place)
    if isinstance(value, np.generic):
        return _encoded(value.item(), place)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and not math.isnan(value):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, tuple | list):
        return [_encoded(item, f"{place}[{i}]") for i, item in enumerate(value)]
    raise DomainError(f"{place}: {value!r} has no form in a document")


def _node(document: Any, place: str, base: type, depth: int = 0) -> Any:
    """Return the term or the loss that an object of a document describes."""
    what = "term" if base is Term else "loss"
    if not isinstance(document, Mapping) or "kind" not in document:
        raise DomainError(f"{place}: a {what} is an object with the key 'kind', got {document!r}")
    name, known = document["kind"], kinds(base)
    if not isinstance(name, str) or name not in known:
        raise DomainError(f"{place}: no {what} is of kind {name!r}; there are {_listed(known)}")
    expected, given = _parameters(known[name]), set(document) - {"kind"}
    node = f"{place} ({name})"
    if unknown := sorted(given - set(expected), key=str):
        raise DomainError(
            f"{node}: unknown key {unknown[0]!r}; {name} takes {_listed(expected) or 'no keys'}"
        )
    needed = [k for k, f in expected.items() if f.default is attrs.NOTHING]
    if missing := [key for key in needed if key not in given]:
        raise DomainError(f"{node}: {missing[0]!r} is missing; {name} takes {_listed(expected)}")
    inner = {
        key: _decoded(document[key], f"{place}.{key}", _inner_base(known[name], key), depth + 1)
        for key in expected
        if key in given
    }
    try:
        return known[name](**inner)
    except AccountingError as error:
        raise DomainError(f"{node}: {error}") from None


def _inner_base(kind: type, key: str) -> type:
    """Return what an object under a key is: a loss in a loss and in a Spend, else a term."""
    return Term if issubclass(kind, Term) and (kind, key) != (terms.Spend, "loss") else PrivacyLoss


def _decoded(document: Any, place: str, base: type, depth: int) -> Any:
    if depth > DEEPEST:
        raise DomainError(f"{place}: nested too deep")
    if isinstance(document, Mapping):
        if set(document) == {"fraction"}:
            return _fraction(document["fraction"], place)
        if document in ({"float": "inf"}, {"float": "-inf"}):  # JSON has no number for them
            return float(document["float"])
        return _node(document, place, base, depth)
    if isinstance(document, list | tuple):
        return tuple(
            _decoded(item, f"{place}[{i}]", base, depth + 1) for i, item in enumerate(document)
        )
    return document


def _fraction(text: Any, place: str) -> Fraction:
    try:
        return Fraction(str(text))
    except (ValueError, ZeroDivisionError):
        raise DomainError(f"{place}: {text!r} is not a fraction such as '1/3'") from None


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise DomainError(f"the key {twice!r} stands twice in one object")
    return entries


def _constant(text: str) -> float:
    raise DomainError(f'{text} is not a JSON number; an infinity is {{"float": "inf"}}')
