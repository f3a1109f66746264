"""Terms, losses and other values to and from JSON: public names, one codec, one object each."""

from __future__ import annotations

import json
import math
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import numpy as np
from attrs import frozen

from accountants import losses
from accountants.errors import DomainError
from accountants.loss import PrivacyLoss
from accountants.numerics import RoundedUp
from accountants.terms import Term

# -----------------------------------------------------------------------------
# Which classes of accountants, losses and terms are this package's, and where each is defined.
#
# The tables are the one place that knows which module defines a class. A class belongs to the
# package if it is the very object that a table names: the name of its module proves nothing, since
# any module may call itself ``accountants.extra``.


ACCOUNTANTS: Mapping[str, str] = {
    "advanced": "accountants.advanced:Advanced",
    "basic": "accountants.basic:Basic",
    "concentrated": "accountants.concentrated:Concentrated",
    "data-dependent renyi": "accountants.data_dependent:DataDependentRenyi",
    "distribution": "accountants.distribution:Distribution",
    "gaussian": "accountants.gaussian:GaussianDP",
    "renyi": "accountants.renyi:Renyi",
}
"""Accountants by the names under which certificates report their bounds."""

LOSSES: Mapping[str, str] = {
    "Allocated": "accountants.losses.allocation:Allocated",
    "Approximate": "accountants.losses.pure:Approximate",
    "BoundedRange": "accountants.losses.selection:BoundedRange",
    "Composite": "accountants.losses.composite:Composite",
    "Curved": "accountants.losses.given:Curved",
    "DataDependent": "accountants.data_dependent:DataDependent",
    "DiscreteGaussian": "accountants.losses.discrete:DiscreteGaussian",
    "DiscreteLaplace": "accountants.losses.discrete:DiscreteLaplace",
    "Envelope": "accountants.losses.composite:Envelope",
    "ExponentialNoisyMax": "accountants.losses.selection:ExponentialNoisyMax",
    "FiniteOutcomes": "accountants.losses.outcomes:FiniteOutcomes",
    "FixedSize": "accountants.losses.sampling:FixedSize",
    "Gaussian": "accountants.losses.gaussian:Gaussian",
    "GaussianBound": "accountants.losses.gaussian:GaussianBound",
    "GaussianMixture": "accountants.losses.mixture:GaussianMixture",
    "GaussianSparseVector": "accountants.losses.sparse_vector:GaussianSparseVector",
    "GumbelNoisyMax": "accountants.losses.selection:GumbelNoisyMax",
    "Laplace": "accountants.losses.laplace:Laplace",
    "LaplaceNoisyMax": "accountants.losses.selection:LaplaceNoisyMax",
    "Mixed": "accountants.losses.sampling:Mixed",
    "ObjectivePerturbation": "accountants.losses.perturbation:ObjectivePerturbation",
    "PermuteAndFlip": "accountants.losses.selection:PermuteAndFlip",
    "PoissonSelection": "accountants.losses.selection:PoissonSelection",
    "PrivacyProfile": "accountants.losses.given:PrivacyProfile",
    "PrivateSelection": "accountants.losses.selection:PrivateSelection",
    "Pure": "accountants.losses.pure:Pure",
    "PureBound": "accountants.losses.given:PureBound",
    "RandomizedResponse": "accountants.losses.discrete:RandomizedResponse",
    "RenyiCurve": "accountants.losses.given:RenyiCurve",
    "ReplacedSample": "accountants.losses.sampling:ReplacedSample",
    "Sampled": "accountants.losses.sampling:Sampled",
    "Shuffled": "accountants.losses.shuffling:Shuffled",
    "SmoothSanitization": "accountants.losses.gaussian:SmoothSanitization",
    "SparseVector": "accountants.losses.sparse_vector:SparseVector",
    "Tested": "accountants.losses.composite:Tested",
    "TradeOff": "accountants.losses.given:TradeOff",
    "TruncatedGaussian": "accountants.losses.truncated:TruncatedGaussian",
    "TruncatedLaplace": "accountants.losses.truncated:TruncatedLaplace",
    "StretchedShift": "accountants.losses.given:StretchedShift",
    "ZeroConcentrated": "accountants.losses.given:ZeroConcentrated",
}
"""Losses by the names of their classes."""

TERMS: Mapping[str, str] = {
    "Allocated": "accountants.terms:Allocated",
    "Grouped": "accountants.terms:Grouped",
    "Parallel": "accountants.terms:Parallel",
    "Repeated": "accountants.terms:Repeated",
    "ReplacedSample": "accountants.terms:ReplacedSample",
    "Sampled": "accountants.terms:Sampled",
    "Selected": "accountants.terms:Selected",
    "Sequential": "accountants.terms:Sequential",
    "Spend": "accountants.terms:Spend",
    "Subset": "accountants.terms:Subset",
}
"""Terms by the names of their classes."""


def locate(place: str) -> Any:
    """Return the object at ``module:qualified.name``, importing the module if need be.

    Raises
    ------
    ImportError, AttributeError
        If there is no such module or object.
    """
    module, _, name = place.partition(":")
    target = sys.modules.get(module) or import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target


def place_of(thing: Any) -> str:
    """Return ``module:qualified.name`` of a class or a function, as it describes itself."""
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"


_located = lru_cache(maxsize=None)(locate)
"""As `locate`, for places in the tables of this package and of those above it."""


def names(thing: Any, places: frozenset[str]) -> bool:
    """Return whether a class or a function is the very object that stands at one of the places."""
    place = place_of(thing)
    return place in places and _located(place) is thing


PLACES = frozenset([*ACCOUNTANTS.values(), *LOSSES.values(), *TERMS.values()])


def is_own(thing: Any) -> bool:
    """Return whether a class is an accountant, a loss or a term of this package.

    Examples
    --------
    >>> from accountants import Basic
    >>> class Cheap(Basic): ...
    >>> is_own(Basic), is_own(Cheap)
    (True, False)
    """
    return names(thing, PLACES)


# -----------------------------------------------------------------------------
# Values to and from JSON: the one codec of terms, plans, certificates and ledgers.
#
# ==============================  ==================================================================
# Python                          JSON
# ==============================  ==================================================================
# ``None, bool, int, str``        themselves
# ``float``                       a number with all its digits, so that it is read back bit for bit;
#                                 ``{"float": "inf"}``, ``"-inf"`` or ``"nan"`` where JSON has none
# ``Fraction``                    ``{"fraction": "1/3"}``; so is a float that was rounded up from it
# ``Enum``                        its value
# ``tuple, list``                 a list
# ``Mapping[str, X]``             an object
# a class by its key              ``{key: fields}``, see `keyed`
# another attrs class             an object of its fields, by name
# ==============================  ==================================================================
#
# What is written is decided by the value, what is read by the annotation of the field: a document
# names no class. Classes with a form of their own (a loss, which is one of many) are given to the
# `Codec`. Where a document is not of the declared form, the error names the place, such as
# ``nodes[3].mechanism.scale must be float, got str``.


NOT_FINITE = ("inf", "-inf", "nan")
"""The floats that JSON has no number for, as they stand under ``float``."""

Field = tuple["attrs.Attribute[Any]", Any]


def loads(text: str) -> Any:
    """Return the JSON value of a string.

    Raises
    ------
    ValueError
        If it is not JSON, a key stands twice in one object, or a number is none of JSON.
    RecursionError
        If it is nested too deep for the parser.
    """
    return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    # JSON allows a key twice, and parsers differ in which they take: refused
    if len(members) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return members


def _constant(text: str) -> float:
    raise ValueError(f'{text} is not a number of JSON; an infinity is {{"float": "inf"}}')


def keyed(cls: type) -> str | None:
    """Return the key under which a class's fields stand without their names; None for most.

    A class says so by ``document_key: ClassVar[str]``. With the key ``bounds``, an interval is
    ``{"bounds": [0, 1]}``; a class of one field has that field's value there.
    """
    return getattr(cls, "document_key", None)


def parameters(cls: Any) -> Mapping[str, Field]:
    """Return the fields of an attrs class, with their types, by the names of its parameters.

    A type that cannot be resolved, as in a third party's class, counts as ``Any``.
    """
    return _parameters(cls)


@cache
def _parameters(cls: Any) -> Mapping[str, Field]:
    try:
        annotations = get_type_hints(cls)
    except Exception:  # a third party's annotation may name what does not exist
        annotations = {}
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
    return {(f.alias or f.name): (f, annotations.get(f.name, Any)) for f in fields if f.init}


def write_float(value: float) -> Any:
    """Return a float as JSON.

    Examples
    --------
    >>> write_float(0.1), write_float(math.inf)
    (0.1, {'float': 'inf'})
    """
    if isinstance(value, RoundedUp):
        return {"fraction": str(value.exact)}
    return float(value) if math.isfinite(value) else {"float": repr(float(value))}


@frozen
class Codec:
    """How values stand in one kind of document.

    Parameters
    ----------
    error
        What is raised for a value that has no form, or a document that is not of the form.
    writers
        Forms of their own: what writes a value of a class, given the value and its place.
    readers
        What reads the form of a type, given the JSON value and its place; by the annotation.
    required
        Classes of default values that a document must not leave out.

    Examples
    --------
    >>> @frozen
    ... class Grid:
    ...     step: float
    ...     names: tuple[str, ...] = ()
    >>> codec = Codec(ValueError)
    >>> codec.write(Grid(math.inf, ("a",)), "grid")
    {'step': {'float': 'inf'}, 'names': ['a']}
    >>> codec.read(Grid, {"step": 0.5}, "grid")
    Grid(step=0.5, names=())
    >>> codec.read(Grid, {"step": "0.5"}, "grid")
    Traceback (most recent call last):
        ...
    ValueError: grid.step must be float, got str
    """

    error: Callable[[str], Exception]
    writers: Mapping[type, Callable[[Any, str], Any]] = {}
    readers: Mapping[Any, Callable[[Any, str], Any]] = {}
    required: tuple[type, ...] = ()

    def write(self, value: Any, place: str) -> Any:
        """Return a value as JSON.

        Raises
        ------
        Exception
            The codec's, if it has no form there.
        """
        if value is None or type(value) in (str, bool, int):  # most are
            return value
        for cls, writer in self.writers.items():
            if isinstance(value, cls):
                return writer(value, place)
        if isinstance(value, list | tuple):
            if {str, bool, int}.issuperset(map(type, value)):  # as millions of keys are
                return list(value)
            return [self.write(v, f"{place}[{i}]") for i, v in enumerate(value)]
        if isinstance(value, Enum):
            return self.write(value.value, place)
        if isinstance(value, str):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return write_float(value)
        if isinstance(value, np.generic):
            return self.write(value.item(), place)
        if isinstance(value, Fraction):
            return {"fraction": str(value)}
        if isinstance(value, Mapping):
            return {str(k): self.write(v, f"{place}.{k}") for k, v in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.write(v, f"{place}[{i}]") for i, v in enumerate(value)]
        if attrs.has(type(value)):
            return self._written(value, place)
        raise self.error(f"{place}: a {type(value).__name__} has no form in a document")

    def _written(self, value: Any, place: str) -> dict[str, Any]:
        key = keyed(type(value))
        fields = self.fields(value, place)
        if key is None:
            return fields
        return {key: list(fields.values()) if len(fields) > 1 else next(iter(fields.values()))}

    def fields(self, value: Any, place: str) -> dict[str, Any]:
        """Return the fields of an attrs value as JSON, by the names of its parameters."""
        kind: Any = type(value)
        named = {name: getattr(value, f.name) for name, (f, _) in parameters(kind).items()}
        return {name: self.write(v, f"{place}.{name}") for name, v in named.items()}

    def read(self, kind: Any, value: Any, place: str) -> Any:
        """Return the value of a type that stands in a document.

        Parameters
        ----------
        kind
            The annotation.

        Raises
        ------
        Exception
            The codec's, if what stands there is not of the type, with the place.
        """
        reader = self.readers.get(kind) or self._of_base(kind)
        if reader is not None:
            return reader(value, place)
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self._one_of(inner, value, place)
        if origin is Literal:
            if value not in inner or isinstance(value, bool):
                raise self.error(
                    f"{place} must be one of {_listed(inner)}, got {short_repr(value)}"
                )
            return value
        if origin in (tuple, list, Sequence):
            return self._sequence(inner, value, place)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {
                k: self.read(inner[1], v, f"{place}.{k}") for k, v in mapping(self, value, place)
            }
        if kind in (str, int, bool, float, Fraction):
            return self._simple(kind, value, place)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._member(kind, value, place)
        if isinstance(kind, type) and attrs.has(kind):
            return self._object(kind, value, place)
        return self.constant(value, place)

    def _of_base(self, kind: Any) -> Callable[[Any, str], Any] | None:
        """Return the reader of a class's base, whose value must be of the class."""
        bases = kind.__mro__ if isinstance(kind, type) and get_origin(kind) is None else ()
        reader = next((self.readers[base] for base in bases if base in self.readers), None)
        if reader is None:
            return None

        def read(value: Any, place: str) -> Any:
            made = reader(value, place)
            if not isinstance(made, kind):
                raise self.error(f"{place} must be {kind.__name__}, got {type(made).__name__}")
            return made

        return read

    def _one_of(self, kinds: tuple[Any, ...], value: Any, place: str) -> Any:
        """Return a value of one of several types, which tells by its key which it is of."""
        if types.NoneType in kinds and (value is None or value == {}):  # TOML has no null
            return None
        others = [kind for kind in kinds if kind is not types.NoneType]
        if len(others) == 1:
            return self.read(others[0], value, place)
        keys = {keyed(kind): kind for kind in others}
        if isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in keys:
            return self.read(keys[next(iter(value))], value, place)
        forms = ", ".join(f"{{{key!r}: ...}}" for key in keys)
        raise self.error(f"{place} must be {forms} or {{}} for neither, got {short_repr(value)}")

    def _sequence(self, kinds: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise self.error(f"{place} must be list, got {type(value).__name__}")
        if kinds[-1] is ... or len(kinds) == 1:
            each = [kinds[0]] * len(value)
        elif len(value) != len(kinds):
            raise self.error(f"{place} must be a list of {len(kinds)}, got {len(value)}")
        else:
            each = list(kinds)
        pairs = zip(each, value, strict=True)
        return tuple(self.read(k, v, f"{place}[{i}]") for i, (k, v) in enumerate(pairs))

    def _simple(self, kind: type, value: Any, place: str) -> Any:
        if isinstance(value, Mapping) and kind in (float, Fraction):
            if set(value) == {"fraction"}:
                return self._fraction(value["fraction"], f"{place}.fraction")
            number = self.constant(value, place)
            if isinstance(number, float):
                return number
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise self.error(f"{place} must be {kind.__name__}, got {type(value).__name__}")
        return value

    def _member(self, kind: type[Enum], value: Any, place: str) -> Enum:
        try:
            return kind(value)
        except ValueError:
            allowed = _listed([each.value for each in kind])
            raise self.error(f"{place} must be one of {allowed}, got {short_repr(value)}") from None

    def _object(self, cls: type, value: Any, place: str) -> Any:
        key = keyed(cls)
        if key is None:
            return self.made(cls, self.arguments(cls, value, place), place)
        if isinstance(value, Mapping):
            self.only(value, {key}, {key}, place)
            value = value[key]
        named = parameters(cls)
        kinds = tuple(kind for _, kind in named.values())
        values = (
            self._sequence(kinds, value, place)
            if len(kinds) > 1
            else (self.read(kinds[0], value, f"{place}.{key}"),)
        )
        return self.made(cls, dict(zip(named, values, strict=True)), place)

    def made(self, cls: Callable[..., Any], arguments: Mapping[str, Any], place: str) -> Any:
        """Return what a class makes of arguments; what it refuses is refused with the place."""
        try:
            return cls(**arguments)
        except Exception as error:  # a class may refuse its arguments by any error
            raise self.error(f"{place}: {error}") from None

    def arguments(
        self,
        cls: type,
        value: Any,
        place: str,
        *,
        beside: Collection[str] = (),
        given: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return an attrs class's arguments as an object of a document has them.

        Parameters
        ----------
        beside
            Keys that the object has beside the class's fields, for its reader.
        given
            Arguments that its reader has read already.

        Raises
        ------
        Exception
            The codec's, if it is not an object, has an unknown key, or lacks one.
        """
        named, arguments = parameters(cls), dict(given or {})
        needed = {name for name, (f, _) in named.items() if self.needs(f)} - set(arguments)
        self.only(value, {*named, *beside}, needed, place)
        return arguments | {
            name: self.read(kind, value[name], f"{place}.{name}")
            for name, (_, kind) in named.items()
            if name in value
        }

    def needs(self, field: attrs.Attribute[Any]) -> bool:
        """Return whether a document must have a field."""
        return field.default is attrs.NOTHING or isinstance(field.default, self.required)

    def only(
        self, value: Any, allowed: Collection[str], required: Collection[str], place: str
    ) -> None:
        """Refuse what is not an object, has a key that is not known, or lacks a needed one."""
        mapping(self, value, place)
        unknown = sorted(set(value) - set(allowed), key=str)
        missing = sorted(set(required) - set(value))
        if unknown:
            raise self.error(
                f"{place}: unknown field {_listed(unknown)}; known are {_listed(sorted(allowed))}"
            )
        if missing:
            raise self.error(f"{place}: missing field {_listed(missing)}")

    def constant(self, value: Any, place: str) -> Any:
        """Return a value of any type: JSON as it is, with the numbers that JSON lacks."""
        if isinstance(value, Mapping):
            if set(value) == {"float"}:
                if value["float"] not in NOT_FINITE:
                    allowed = _listed(NOT_FINITE)
                    raise self.error(
                        f"{place}.float must be one of {allowed}, got {short_repr(value['float'])}"
                    )
                return float(value["float"])
            return {k: self.constant(v, f"{place}.{k}") for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.constant(v, f"{place}[{i}]") for i, v in enumerate(value)]
        return value

    def _fraction(self, text: Any, place: str) -> Fraction:
        try:
            # digits alone, and not too many: "1e99999999" would be computed for hours
            if _FRACTION.fullmatch(text := str(text)):
                return Fraction(text)
        except ZeroDivisionError:
            pass
        raise self.error(f"{place} must be a fraction such as '1/3', got {short_repr(text)}")


_FRACTION = re.compile("-?[0-9]{1,4000}(/[0-9]{1,4000})?")
"""A rational as documents have it; sums of costs have denominators of at most 8192 bits."""


def mapping(codec: Codec, value: Any, place: str) -> Collection[tuple[Any, Any]]:
    """Return the items of an object; refuse what is not one."""
    if not isinstance(value, Mapping):
        raise codec.error(f"{place} must be an object, got {type(value).__name__}")
    return value.items()


def short_repr(value: Any) -> str:
    """Return a value for a message, shortened."""
    try:
        return repr(value)[:40]
    except ValueError:  # an int of more digits than Python prints
        return "a huge int"


def _listed(values: Any) -> str:
    return ", ".join(map(repr, values))


# -----------------------------------------------------------------------------
# Terms to and from JSON: one object for each term and each loss, exact both ways.
#
#     {"kind": "Repeated", "times": 100, "part": {"kind": "Spend", "loss":
#         {"kind": "Laplace", "epsilon": 0.1}}}
#
# ``kind`` names a class of `accountants.terms` or, where a loss stands, of `accountants.losses`;
# the other keys are its parameters, and those that have a default may be left out. Values are
# written and read by the codec above.


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
                f"{place}: a {what} is an object with the key 'kind', got {short_repr(value)}"
            )
        name, classes = value["kind"], kinds(base)
        if not isinstance(name, str) or name not in classes:
            raise DomainError(
                f"{place}: no {what} is of kind {short_repr(name)}; there are {', '.join(classes)}"
            )
        node, rest = f"{place} ({name})", {k: v for k, v in value.items() if k != "kind"}
        return _CODEC.made(classes[name], _CODEC.arguments(classes[name], rest, node), node)

    return read


_CODEC = Codec(
    DomainError,
    writers={Term: _write(Term), PrivacyLoss: _write(PrivacyLoss)},
    readers={Term: _read(Term), PrivacyLoss: _read(PrivacyLoss)},
)
