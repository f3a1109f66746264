"""Handles: immutable expressions over data, and the operations on released values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

import attrs
import numpy as np
from attrs import Factory, field, frozen

from accountants import ReplacedSample, Sampled, Term
from adaptive_dp.extensions import provided
from adaptive_dp.graph.errors import DeclarationError, LeakError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import (
    UNBOUNDED,
    Change,
    Neighbors,
    Operation,
    Query,
    Visibility,
)
from adaptive_dp.graph.registry import Function, is_own
from adaptive_dp.graph.values import deep_copy, fields_of, html_text, visible
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# The operations whose values are public: constants, releases and post-processing.


T = TypeVar("T", covariant=True)
T_Value = TypeVar("T_Value")
C = TypeVar("C", bound=Callable[..., Any])


_SHARED: dict[tuple[Any, ...], Any] = {}
"""Operations and mechanisms of the library by what is equal for equal ones."""

_SHARED_KEYS: dict[int, tuple[Any, ...]] = {}
"""What is equal for equal ones, by the identity of each object that is shared."""

_MOST_SHARED = 4096


def _shared(value: T_Value, key: tuple[Any, ...]) -> T_Value:
    """Return one object for all equal operations or mechanisms, as plans have very many of few.

    They never change, so nothing depends on which of them it is. They are fewer objects for
    Python's collector to visit, which else takes more than half of the time of declaring a million
    parts; and what is known of one (how it is written) is looked up by its identity.
    """
    shared: T_Value | None = _SHARED.get(key)
    if shared is None:
        if len(_SHARED) >= _MOST_SHARED:
            _SHARED.clear()
            _SHARED_KEYS.clear()
        # a copy: who made the value may change it by force, and others' plans must not follow
        shared = _SHARED[key] = deep_copy(value)
        _SHARED_KEYS[id(shared)] = key
    return shared


def _detached(value: Operation) -> Operation:
    """Return an operation that no one outside of the plan can change.

    A third party's may have a parameter in a list, which its owner changes later: with a copy the
    plan, its fingerprint and its certificates stay as they were declared. Parameters of the
    library's operations never change.
    """
    key = exact_key(value)
    if key is not None:
        return _shared(value, key)
    copy: Operation = value if is_own(type(value)) else deep_copy(value)
    return copy


_ATOMS = frozenset({str, int, bool, type(None)})
_FIELD_NAMES: dict[int, tuple[type, tuple[str, ...]]] = {}
"""The library's classes that `exact_key` has met, by `id`, and their fields."""

_LONGEST = 256
"""Tuples of more entries than this are not compared."""


def exact_key(value: Any) -> tuple[Any, ...] | None:
    """Return what two values share exactly if they have the same type and are written alike.

    None where a value is not the library's, or holds more than numbers, str and values of the
    library: it may change, or say itself what equals what.

    Parameters
    ----------
    value
        An operation, a mechanism, or a parameter of one.
    """
    kind = type(value)
    if kind in _ATOMS:
        return kind, value  # with its type, as 1 == True
    if kind is float:
        # 0.0 == -0.0, which are written as two numbers
        return kind, value if value else repr(value)
    parts: Any
    if kind is tuple:
        if len(value) > _LONGEST:
            return None
        parts = value
    elif id(value) in _SHARED_KEYS:
        return _SHARED_KEYS[id(value)]
    else:
        met = _FIELD_NAMES.get(id(kind))
        if met is None:
            meta: Any = type(kind)
            # a class may say itself what it is equal to
            if meta.__eq__ is not type.__eq__ or not _is_value_class(kind):
                return None
            names = tuple([each.name for each in fields_of(kind)])
            met = _FIELD_NAMES[id(kind)] = kind, names
        parts = [getattr(value, name) for name in met[1]]
    keys = [kind]
    for part in parts:
        # without a call where it can be done
        key: Any = (type(part), part) if type(part) in _ATOMS else exact_key(part)
        if key is None:
            return None
        keys.append(key)
    return tuple(keys)


def _is_value_class(kind: Any) -> bool:
    """Return whether instances of a class of the library are told apart by their fields alone."""
    if issubclass(kind, Operation | Mechanism):
        # loops give other parameters than their fields
        by_fields = kind.parameters in (Operation.parameters, Mechanism.parameters)
        return by_fields and is_own(kind)
    own = kind.__module__.startswith(("adaptive_dp.", "accountants."))
    return own and kind.__hash__ is not None and attrs.has(kind)


def _detached_mechanism(value: Mechanism) -> Mechanism:
    """Return a mechanism that no one outside of the plan can change.

    One of plain parameters never changes: a million releases by it share it.
    """
    key = exact_key(value)
    copy: Mechanism = deep_copy(value) if key is None else _shared(value, key)
    return copy


def _constant(value: Any) -> Any:
    return document_value(value, "public value")


@frozen
class Constant(Operation):
    """A public value."""

    kind: ClassVar[str] = "public"
    visibility: ClassVar[Visibility] = "public"

    value: Any = field(converter=_constant)

    def label(self) -> str:
        """Return the value, shortened."""
        text = repr(self.value)
        return text if len(text) <= 24 else text[:21] + "..."

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return a copy of the value."""
        return deep_copy(self.value)


@frozen
class Release(Operation):
    """A mechanism's release of a query; the graph's only way out of private."""

    kind: ClassVar[str] = "release"
    visibility: ClassVar[Visibility] = "released"
    random: ClassVar[bool] = True

    mechanism: Mechanism = field(converter=_detached_mechanism)
    name: str = ""

    def __attrs_post_init__(self) -> None:
        kind = type(self.mechanism)
        # the base's methods raise: refused now, since after the certificate it would be too late
        for method in ("release", "loss"):
            if getattr(kind, method) is getattr(Mechanism, method):
                raise DeclarationError(
                    f"{kind.__name__} defines no {method}, which a mechanism needs to be released "
                    f"with; see the example in adaptive_dp.graph.mechanism"
                )
        if not isinstance(self.name, str):
            raise DeclarationError(
                f"a release's name must be a str, got {self.name!r}; write name='total'"
            )

    def domain(self, inputs: Sequence[Any]) -> Mechanism:
        """Return the mechanism, which `Parameter` reads."""
        return self.mechanism

    def label(self) -> str:
        """Return the mechanism's name."""
        return self.name or type(self.mechanism).__name__

    def detail(self) -> str:
        """Return the mechanism with its parameters."""
        return str(self.mechanism)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the randomised value as float64; None where the mechanism breaks its contract."""
        value, *given = inputs
        if self.mechanism.input_type is np.ndarray:
            value = np.array(value, dtype=np.float64)  # a copy: a mechanism may change it in place
        shape = self.mechanism.shape(shape_of(value))
        # on a copy: a third party's mechanism may store something of a release in itself, and the
        # plan must stay what it was
        mechanism = self.mechanism if is_own(type(self.mechanism)) else deep_copy(self.mechanism)
        return conforming(mechanism.release(value, stream, *given), shape)

    def presented(self, query: Handle, raw: Any) -> Any:
        """Return a released value of a query in the form that users read: a key, a float, ...

        Parameters
        ----------
        query
            The query's handle.
        raw
            What the mechanism returned.
        """
        operation = query.operation
        assert isinstance(operation, Query)
        # a selection gives an index, NaN where it abstains, or several
        if self.mechanism.is_selection:
            named = operation.entries(query.inputs[0].domain)
            name = operation.candidate if named is None else named.__getitem__
            return self.mechanism.named(raw, lambda i: None if np.isnan(i) else name(int(i)))
        # only a value of the query's own shape can be presented by the query
        same_shape = type(self.mechanism).shape is Mechanism.shape
        return scalar(operation.present(raw.copy()) if same_shape else raw.copy())


def check_release(query: Query, domain: Any, mechanism: Mechanism, given: int) -> None:
    """Refuse a mechanism that cannot release a query's value, or reads another number of inputs.

    Parameters
    ----------
    query
        What is released.
    domain
        Of the query's input.
    mechanism
        What is to release it.
    given
        How many released values the mechanism is given.

    Raises
    ------
    DeclarationError
        With what the mechanism reads and what the query gives.
    """
    kind, name = type(mechanism), type(mechanism).__name__
    if not issubclass(query.output_type, kind.input_type):
        raise DeclarationError(
            f"{name} reads {_words(kind.input_type)}, but a {query.kind} gives "
            f"{_words(query.output_type)}; {_instead(query)}"
        )
    # one coordinate without candidates: nothing to choose from
    single = type(query).candidate is Query.candidate and query.dimension(domain) == 1
    if kind.is_selection and single and kind.input_type is np.ndarray:
        raise DeclarationError(
            f"{name} chooses among several scores, but a {query.kind} is one number; to release it "
            "add noise, for example by dp.Laplace(), or choose a bin of a .histogram()"
        )
    if kind.norm == 0 and query.output_type is np.ndarray:
        raise DeclarationError(
            f"{name} counts the rows that change (norm 0), and no bound of that is known for "
            "numbers; use norm 1, 2 or math.inf"
        )
    if given != kind.released_inputs:
        raise DeclarationError(
            f"{name} reads {kind.released_inputs} released values, got {given}; pass them as "
            "given=[...]"
        )


def _words(kind: type) -> str:
    return "numbers" if kind is np.ndarray else kind.__name__


def _instead(query: Query) -> str:
    """Return which mechanisms do read what a query gives, for messages."""
    # the list of all mechanisms is in a package above this module, so it is asked at run time
    names = ", ".join(f"dp.{name}" for name in provided("primitives.readers")(query))
    if not names:
        return "choose a mechanism for it, or another query"
    return f"mechanisms that read it are among {names}; dp.suitable(query) says which, and why"


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a query's value: that of an array, or a value's own ``shape``."""
    return tuple(getattr(value, "shape", ()))


def scalar(value: Any) -> Any:
    """Return an array without dimensions as a float, anything else as it is."""
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    return float(array) if array is not None and array.ndim == 0 else value


def conforming(released: Any, shape: tuple[int, ...] | None) -> Any:
    """Return what a mechanism released as a value of its own, or None if it breaks the contract.

    See `Mechanism.release`: real numbers of that shape; where there is none, a mapping from str to
    finite numbers, or a list of different str, in the order of the str.
    """
    if shape is None:
        return _released_keys(released)
    # real numbers of the promised shape; complex ones or objects are refused
    array = np.asarray(released)
    fits = array.dtype.kind in "biuf" and array.shape == shape
    return np.array(array, dtype=np.float64) if fits else None


def _released_keys(released: Any) -> dict[str, float] | list[str] | None:
    if type(released) not in (dict, list) or not all(type(key) is str for key in released):
        return None
    # sorted: an order of another kind could tell more than what is released
    keys = sorted(released)
    if isinstance(released, list):
        return keys if len(set(keys)) == len(keys) else None
    numbers = {key: released[key] for key in keys}
    plain = all(type(each) in (int, float) and math.isfinite(each) for each in numbers.values())
    return {key: float(each) for key, each in numbers.items()} if plain else None


@frozen
class Parameter(Operation):
    """A parameter of a release's mechanism: public; a free one has a value after calibration."""

    kind: ClassVar[str] = "parameter"
    visibility: ClassVar[Visibility] = "public"

    name: str

    def label(self) -> str:
        """Return the parameter's name."""
        return self.name

    def domain(self, inputs: Sequence[Any]) -> None:
        """Check that the input is a release whose mechanism has the parameter."""
        mechanism = inputs[0] if len(inputs) == 1 else None
        if not isinstance(mechanism, Mechanism) or self.name not in mechanism.parameters():
            has = "its input is not a release"
            if isinstance(mechanism, Mechanism):
                own = ", ".join(mechanism.parameters()) or "none"
                has = f"{type(mechanism).__name__} has no {self.name!r}, it has {own}"
            raise DeclarationError(
                f"a parameter is read off a release, what .release(mechanism) returned; {has}"
            )

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the parameter; the executor passes the mechanism in place of its value."""
        return inputs[0].parameters()[self.name]


def reads_only(function: C) -> C:
    """Mark a function of the library's that changes nothing of what it is given.

    So that a plan need not copy its inputs, which may be a large matrix in each of many rounds. Of
    a function that is not the library's own the mark is ignored.
    """
    function.__dict__["reads_only"] = True
    return function


def _reads_only(function: Callable[..., Any]) -> bool:
    return getattr(function, "reads_only", False) is True and is_own(function)


def _constants(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): document_value(v, "constant") for k, v in dict(value).items()}


@frozen
class Post(Operation):
    """A function of released values."""

    kind: ClassVar[str] = "post"
    visibility: ClassVar[Visibility] = "released"

    function: Function
    constants: Mapping[str, Any] = field(factory=dict, converter=_constants)

    @classmethod
    def of(cls, function: Callable[..., Any], constants: Mapping[str, Any]) -> Post:
        """Return the operation for a callable."""
        return cls(Function.of(function), constants)

    def label(self) -> str:
        """Return the function's short name."""
        return self.function.label

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the function's value; inputs and result are copied, so it shares neither."""
        function = self.function.resolve()
        # a function of ours that says so changes nothing: its result alone is copied
        given = inputs if _reads_only(function) else [deep_copy(each) for each in inputs]
        return deep_copy(function(*given, **deep_copy(self.constants)))


def document_value(value: Any, what: str) -> Any:
    """Return ``value`` as numbers, str, lists and mappings that a document can hold.

    Raises
    ------
    DeclarationError
        If it holds anything else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufU":
        return value.tolist()
    if isinstance(value, Mapping):
        wrong = [k for k in value if not isinstance(k, str)]
        # {"float": ...} alone is how documents write infinities and NaN
        if wrong or set(value) == {"float"}:
            raise DeclarationError(
                f"a mapping in a {what} needs str keys, got "
                f"{wrong[0] if wrong else 'float'!r}" + ("" if wrong else " alone (reserved)")
            )
        return {k: document_value(v, what) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [document_value(v, what) for v in value]
    raise DeclarationError(
        f"a {what} must be a number, str, list or mapping, got {type(value).__name__}"
    )


# -----------------------------------------------------------------------------
# Handles: immutable expressions over data that is not there yet.
#
# Every handle has a visibility, in its static type and at run time. ``Private[T]`` stands for a
# value that must not leave; ``Released[T]`` for one that a mechanism has released, or that
# is computed from released ones; ``Public[T]`` for a constant. Functions of released values
# take released handles only, so a type checker finds a leak before the plan is built, and
# `Pipeline` refuses it when it is.


R = TypeVar("R")
_serials = itertools.count()


@frozen(eq=False, repr=False)
class Handle:
    """A node of the graph: an operation and the handles it reads.

    Parameters
    ----------
    operation
        What it does.
    inputs
        In order; the private one first.
    serial
        The order of creation. Nothing that a plan is, costs or releases follows from it: it says
        only what a loop's body has made, see `adaptive_dp.graph.loops.refuse_shared_draws`.

    Attributes
    ----------
    domain
        What is declared of the value: bounds, columns, categories; depends on no data.
    states
        The states of the loops on which the value depends; a loop itself does not depend on its
        own. A handle is inside of a loop exactly if it depends on the loop's state.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> people["age"].sum()
    <private sum in [0, 100]>
    >>> people["age"].sum().visibility, people["age"].sum().release(dp.Laplace(scale=50)).visibility
    ('private', 'released')
    >>> people.count() + 1
    Traceback (most recent call last):
        ...
    TypeError: <private count> is an expression, not a number; release it first, and compute with
    released values in dp.post(function, handle), such as dp.post(lambda a, b: a / b, total,
    count), or with what a run returns
    """

    operation: Operation = field(converter=_detached)
    inputs: tuple[Handle, ...] = ()
    serial: int = field(factory=_serials.__next__, kw_only=True)
    domain: Any = field(init=False)
    states: frozenset[Handle] = field(init=False)

    def __attrs_post_init__(self) -> None:
        # frozen: derived values are set once, before anyone sees the handle
        operation = self.operation
        domains = [handle.domain for handle in self.inputs]
        operation.admit(domains)
        object.__setattr__(self, "domain", operation.domain(domains))
        object.__setattr__(self, "states", operation.states(self))

    @property
    def visibility(self) -> Visibility:
        """Private, released or public."""
        return self.operation.visibility

    def __repr__(self) -> str:
        return visible(f"<{self.visibility} {unaliased(self).operation.text()}>")

    def _repr_html_(self) -> str:
        return html_text(repr(self))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is an expression and has no truth value; compute with released values in "
            "dp.post(function, handle)"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} is an expression and cannot be iterated over")

    if not TYPE_CHECKING:  # for type checkers there are no such methods, so that they refuse it

        def _number(self, *_: Any) -> NoReturn:
            cure = "release it first, and " if self.visibility == "private" else ""
            raise TypeError(
                f"{self!r} is an expression, not a number; {cure}compute with released values in "
                "dp.post(function, handle), such as dp.post(lambda a, b: a / b, total, count), or "
                "with what a run returns"
            )

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _number
        __rtruediv__ = __floordiv__ = __pow__ = __neg__ = __abs__ = __round__ = _number
        __float__ = __int__ = _number

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle cannot be pickled; write its plan as a document instead")


@frozen(eq=False, repr=False)
class Private(Handle, Generic[T]):
    """A value that depends on the data and has not been released.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> isinstance(people["age"], dp.Private)
    True
    >>> dp.Pipeline(age=people["age"])
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LeakError: output 'age' is private: people -> age; ask something of it
    that can be released, such as .count() of a table or .sum() of a column
    """


@frozen(eq=False, repr=False)
class Released(Handle, Generic[T]):
    """A value that a mechanism has released, or a function of such values.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> count = people.count().release(dp.DiscreteLaplace(scale=2))
    >>> count
    <released DiscreteLaplace(scale=2)>
    >>> dp.post(max, count, dp.public(0))
    <released max>
    """


@frozen(eq=False, repr=False)
class Average(Released[T]):
    """A released sum over a released count, with noise by default.

    In a plan of several, or with the count itself, all of them share that count: see
    `adaptive_dp.graph.plan.by_default`.

    Parameters
    ----------
    rows
        The number of all rows of which it is an average.
    over
        Returns it over a release of that number.
    """

    rows: PrivateQuery[Any] = field(kw_only=True)
    over: Callable[[Released[Any]], Released[T]] = field(kw_only=True)
    declared: tuple[Handle, ...] = field(
        kw_only=True, default=Factory(lambda self: self.inputs, takes_self=True)
    )

    @property
    def may_share(self) -> bool:
        """Whether it is as it was declared: no noise in it has been chosen since."""
        return all(a is b for a, b in zip(self.inputs, self.declared, strict=True))


@frozen(eq=False, repr=False)
class Public(Released[T]):
    """A constant of the plan.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.public([0, 18, 65])
    <public [0, 18, 65]>
    """


@frozen(eq=False, repr=False)
class PrivateQuery(Private[T]):
    """A query: a private value with a sensitivity, ready to be released.

    As an output of a `Pipeline`, or a step of a session, it is released by the default mechanism.
    """

    def release(
        self,
        mechanism: Mechanism | None = None,
        *,
        given: Sequence[Released[Any]] = (),
        name: str = "",
    ) -> Released[T]:
        """Return the value as ``mechanism`` releases it.

        Parameters
        ----------
        mechanism
            For example ``dp.Laplace(scale=2)``; parameters may be ``dp.Free``. The common ones are
            free by default: ``dp.Laplace()`` is noise in proportion to the query's sensitivity,
            for `Pipeline.calibrate` to choose. None for the first that ``dp.suitable(query)`` names
            of those that need no parameter, with its noise free.
        given
            Released values that the mechanism reads, where it needs any.
        name
            How tables call the release; by default the output's name.

        Each call is a release of its own, with its own noise and its own cost.
        """
        if mechanism is None:
            # the mechanisms are in a room above this one
            mechanism = provided("mechanisms.default")(self)
        if not isinstance(mechanism, Mechanism):
            raise DeclarationError(
                "release needs a Mechanism such as dp.Laplace(scale=1), got "
                f"{type(mechanism).__name__}"
            )
        assert isinstance(self.operation, Query)
        for i, handle in enumerate(given):
            if not (isinstance(handle, Handle) and handle.visibility != "private"):
                raise DeclarationError(
                    f"given[{i}] must be a released handle, got {handle!r}; release it first"
                )
        check_release(self.operation, self.inputs[0].domain, mechanism, len(given))
        mechanism = mechanism.of_query(self)
        # the weight of a mechanism in proportion to its query is the query's sensitivity
        if any(free.weight is None for free in mechanism.free().values()):
            mechanism = mechanism.weighted(_sensitivity(self, mechanism.norm))
        return Released(Release(mechanism, name), (self, *given))


def _sensitivity(query: Handle, norm: float) -> float:
    """Return how far one unit moves a query, as a weight: infinite where nothing bounds that."""
    # no weight follows; whether the release is allowed is checked with the plan
    change = change_at(query.inputs[0])
    if change.rows == UNBOUNDED or norm == 0:
        return math.inf
    assert isinstance(query.operation, Query)
    # queries bound three norms: the next smaller one is never below the norm that is asked for,
    # since ||x||_p falls as p rises
    order = next(p for p in (math.inf, 2, 1) if p <= norm)
    return float(query.operation.sensitivity(query.inputs[0].domain, change, order))


def change_at(handle: Handle) -> Change:
    """Return the change of one unit as it arrives at a private value that is not a query's."""
    first, *chain = lineage(handle)
    source: Any = first.operation
    change: Change = source.initial()
    for step in chain:
        change = step.operation.change(change)
    return change


def public(value: R) -> Public[R]:
    """Return a constant of the plan as a handle (a number, str, list or mapping of such).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> count = people.count().release(dp.Laplace(scale=1e-9))
    >>> plan = dp.Pipeline(count=dp.post(max, count, dp.public(0)))
    >>> result = plan.simulate(seed=1, people={"id": [1, 2, 3]})
    >>> round(result["count"])
    3
    """
    return Public(Constant(value))


def post(function: Callable[..., R], /, *inputs: Released[Any], **constants: Any) -> Released[R]:
    """Return ``function`` of released values: post-processing, which costs nothing.

    Parameters
    ----------
    function
        Called with the values of ``inputs`` in order and with ``constants`` by name. A
        function at the top level of a module can be written into a plan document; it must
        not reach private data by another way, which no library can check. For the interval of its
        result it is called some 2,000 times more, on redrawn noise: it should be quick, and free
        of side effects. It gets copies, and may change them.
    inputs
        Released handles.
    constants
        Numbers, str, lists or mappings of such.

    Raises
    ------
    LeakError
        If an input is private.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> def share(part, whole, *, digits):
    ...     return round(part / max(whole, 1), digits)
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> every = people.count().release(dp.Laplace(scale=2))
    >>> old = people.filter(people["age"] >= 65).count().release(dp.Laplace(scale=2))
    >>> plan = dp.Pipeline(old=dp.post(share, old, every, digits=1))
    >>> plan.simulate(seed=1, people={"age": [30, 70] * 1000})["old"]
    0.5
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    """
    if not callable(function):
        raise DeclarationError(f"post needs a function, got {type(function).__name__}")
    if not inputs:
        raise DeclarationError(
            "post needs at least one released handle; for a constant use dp.public"
        )
    for i, handle in enumerate(inputs):
        if not isinstance(handle, Handle):
            raise DeclarationError(
                f"post: argument {i + 1} must be a released handle, got {type(handle).__name__}; "
                "pass constants by name, or as dp.public(value)"
            )
        if handle.visibility == "private":
            raise LeakError(
                f"post: argument {i + 1} is private: {private_path(handle)}; release it first with "
                ".release()"
            )
    return Released(Post.of(function, constants), tuple(inputs))


def parameter(release: Released[Any], name: str) -> Public[float]:
    """Return a parameter of a release's mechanism as a public handle, such as its ``sigma``.

    It follows the calibration, so post-processing can use the noise that was chosen.

    Raises
    ------
    DeclarationError
        If the handle is not a release, or its mechanism has no such parameter.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> count = people.count().release(dp.Gaussian())
    >>> plan = dp.Pipeline(count=count, sigma=dp.parameter(count, "sigma"))
    >>> result = plan.calibrate(epsilon=1.0, delta=1e-6).simulate(seed=1, people={"id": [1, 2, 3]})
    >>> round(result["sigma"], 3)
    4.225
    """
    if not (isinstance(release, Handle) and isinstance(release.operation, Release)):
        raise DeclarationError(
            f"parameter needs a handle that .release(mechanism) returned, got {release!r}; what is "
            "computed from a release has no mechanism"
        )
    return Public(Parameter(name), (release,))


def unaliased(handle: Handle) -> Handle:
    """Return the handle for which an alias stands, such as that of a group's result."""
    # an alias may stand for an alias
    while handle.operation.alias:
        handle = handle.inputs[0]
    return handle


def lineage(handle: Handle) -> list[Handle]:
    """Return a private handle and all it comes from, each the first input of the next."""
    steps = [unaliased(handle)]
    while steps[-1].inputs:
        steps.append(unaliased(steps[-1].inputs[0]))
    return steps[::-1]


def private_path(handle: Handle) -> str:
    """Return the path from the data to a private handle, for messages."""
    steps = [unaliased(handle)]
    # only the private part of the path: released inputs are not a leak
    while steps[-1].inputs and steps[-1].inputs[0].visibility == "private":
        steps.append(unaliased(steps[-1].inputs[0]))
    return " -> ".join(step.operation.label() for step in reversed(steps))


Outputs = Mapping[str, Any]
"""Released handles by name; a value may itself be a mapping of released handles."""


# -----------------------------------------------------------------------------
# A subgraph under one name: a learner, which drawings open or close.


S = TypeVar("S")


@frozen
class Group(Operation):
    """Its first input, unchanged; the nodes between the other inputs and it are the group."""

    kind: ClassVar[str] = "group"
    visibility: ClassVar[Visibility] = "released"
    alias: ClassVar[bool] = True

    name: str

    def label(self) -> str:
        """Return the group's name."""
        return self.name

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the result."""
        return inputs[0]


def group(name: str, result: Released[S], *boundary: Handle) -> Released[S]:
    """Return ``result``, with the nodes between ``boundary`` and it under one name.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> def share(part, whole):
    ...     return part / max(whole, 1)
    >>> every = people.count().release(dp.Laplace(scale=4))
    >>> old = people.filter(people["age"] >= 65).count().release(dp.Laplace(scale=4))
    >>> plan = dp.Pipeline(old=dp.group("share", dp.post(share, old, every), people))
    >>> [node for node in plan.graph if node.startswith("share.")]
    ['share.filter', 'share.count', 'share.noisy_count', 'share.count_2', 'share.noisy_count_2']
    """
    if result.visibility == "private":
        raise LeakError(f"group {name!r}: the result is private: {private_path(result)}")
    return Released(Group(name), (result, *boundary))


# -----------------------------------------------------------------------------
# Bases of the private operations that accounting, running and certificates must recognise: where
# data enters, and where a unit's rows are bounded, sampled or partitioned. The classes of
# `adaptive_dp.queries` implement them.


RESERVED = (
    "self",
    "seed",
    "progress",
    "samples",
    "confidence",
    "budget",
    "accountant",
    "ledger",
    "edition",
)
"""What `Pipeline.run`, `simulate`, `audit` and `Session` call arguments of their own."""


def check_data_name(what: str, name: Any) -> None:
    """Refuse a name by which no run can bind data.

    Raises
    ------
    DeclarationError
        If it is not an identifier, or an argument of `run` itself.
    """
    # data is bound by keyword, so the name must be usable as one
    if not (isinstance(name, str) and name.isidentifier() and not iskeyword(name)):
        raise DeclarationError(
            f"{what}'s name must be an identifier, got {name!r}: run(...) binds it by name"
        )
    if name in RESERVED:
        raise DeclarationError(
            f"{what} cannot be named {name!r}, which run, simulate, audit or Session use themselves"
        )


class SourceOperation(Operation):
    """Where private data enters: bound by name when the plan runs."""

    makes_rows: ClassVar[bool] = True

    name: str
    neighbors: Neighbors
    unit: str | None
    size: int | None

    def initial(self) -> Change:
        """Return the change that the neighbour relation makes here."""
        raise NotImplementedError(f"{type(self).__name__} must define initial")

    def bind(self, data: Any, columns: frozenset[str] | None = None) -> Any:
        """Return the private value of ``data``, checked against the declaration.

        Parameters
        ----------
        data
            What is bound.
        columns
            The columns that will be read of it; None for all. The others are checked like these.

        Raises
        ------
        DataError
            If the data's schema does not fit; the message depends on the schema only.
        """
        raise NotImplementedError(f"{type(self).__name__} must define bind")

    def made_up(self, rows: int, draw: np.random.Generator) -> Any:
        """Return made-up data of the declared form, for `Pipeline.expect`.

        Parameters
        ----------
        rows
            How many rows, of as many units.
        draw
            All of it follows from this and from what is declared.
        """
        raise NotImplementedError(f"{type(self).__name__} must define made_up")


class PublicSource(Operation):
    """Where public data enters: bound by name when the plan runs."""

    visibility: ClassVar[Visibility] = "public"

    name: str

    def bind(self, data: Any) -> Any:
        """Return the value of ``data``, checked against the declaration.

        Raises
        ------
        DataError
            If it does not fit.
        """
        raise NotImplementedError(f"{type(self).__name__} must define bind")


class BoundOperation(Operation):
    """At most ``rows`` rows of each unit; the others are dropped."""

    makes_rows: ClassVar[bool] = True

    rows: int


class SampleOperation(Operation):
    """A sample of the units, drawn at random without the data: each is in it as likely as others.

    It is a Poisson sample, which each unit enters independently, unless `term` says otherwise. Of
    neighbours that exchange a unit, `change` says whether the body is charged for a unit that is
    exchanged in the sample, or for one that is there or is not.
    """

    random: ClassVar[bool] = True
    makes_rows: ClassVar[bool] = True

    @property
    def rate(self) -> float:
        """The probability with which a unit is in the sample."""
        raise NotImplementedError(f"{type(self).__name__} must define rate")

    def term(self, body: Term, *, exchanged: bool) -> Term:
        """Return what releases from the sample cost.

        Parameters
        ----------
        body
            What they cost where `change` arrives at them.
        exchanged
            Whether neighbours exchange a unit. Then it may also leave the sampled part of a
            partition for another: samples where one vanishes and samples where one appears are
            composed, for which the worse of both directions of all of them is not known to be
            enough. The pair of an exchange is symmetric, and above.
        """
        return ReplacedSample(body, self.rate) if exchanged else Sampled(body, self.rate)


class PartitionOperation(Operation):
    """A partition of the rows by the column ``by``; its domain is a `PartsDomain`."""

    by: str


class PartOperation(Operation):
    """One part of the partition that it reads."""

    index: int


class PartsDomain(Protocol):
    """What is declared of a partition's parts."""

    @property
    def keys(self) -> tuple[Any, ...]:
        """The parts' keys, in order."""
        ...

    @property
    def whole_units(self) -> bool:
        """Whether each unit lies in one part."""
        ...


def part_key(part: Handle) -> Any:
    """Return a part's key."""
    assert isinstance(part.operation, PartOperation)
    domain: PartsDomain = part.inputs[0].domain
    return domain.keys[part.operation.index]


def part_title(part: Handle) -> str:
    """Return a part's column and key, such as ``region = A``."""
    partition = unaliased(part.inputs[0]).operation
    assert isinstance(partition, PartitionOperation)
    return f"{partition.by} = {part_key(part)}"
