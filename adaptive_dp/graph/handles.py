"""Handles: immutable expressions over data that is not there yet.

Every handle has a color, in its static type and at run time. ``Private[T]`` stands for a
value that must not leave; ``Released[T]`` for one that a mechanism has released, or that
is computed from released ones; ``Public[T]`` for a constant. Functions of released values
take released handles only, so a type checker finds a leak before the plan is built, and
`Pipeline` refuses it when it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from attrs import field, frozen

from adaptive_dp.graph.change import UNBOUNDED, Change
from adaptive_dp.graph.errors import DeclarationError, LeakError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Color, Operation, Query, require
from adaptive_dp.graph.steps import Constant, Parameter, Post, Release, admitted

T = TypeVar("T", covariant=True)
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
        only what a loop's body has made, see `adaptive_dp.graph.loop.fresh_in_each_round`.

    Attributes
    ----------
    domain
        What is known of the value.
    states
        The states of the loops on which the value depends, as far as the handle is not a whole
        loop itself. A handle is inside of a loop exactly if it depends on the loop's state.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> people["age"].sum()
    <private sum in [0, 100]>
    >>> people["age"].sum().color, people["age"].sum().release(dp.Laplace(scale=50)).color
    ('private', 'released')
    >>> people.count() + 1
    Traceback (most recent call last):
        ...
    TypeError: <private count> is an expression, no number yet; release it first, and compute with
    released values in dp.post(function, handle), such as dp.post(lambda a, b: a / b, total,
    count), or with what a run returns
    """

    operation: Operation
    inputs: tuple[Handle, ...] = ()
    serial: int = field(factory=_serials.__next__, kw_only=True)
    domain: Any = field(init=False)
    states: frozenset[Handle] = field(init=False)

    def __attrs_post_init__(self) -> None:
        domains = [handle.domain for handle in self.inputs]
        self.operation.admit(domains)
        domain = self.operation.domain(domains)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "states", self.operation.states(self))

    @property
    def color(self) -> Color:
        """Private, released or public."""
        return self.operation.color

    def __repr__(self) -> str:
        return f"<{self.color} {meant(self).operation.text()}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is an expression and has no truth value; compute with released values in "
            "dp.post(function, handle)"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} is an expression and cannot be iterated over")

    if not TYPE_CHECKING:  # for type checkers there are no such methods, so that they refuse it

        def _number(self, *_: Any) -> NoReturn:
            cure = "release it first, and " if self.color == "private" else ""
            raise TypeError(
                f"{self!r} is an expression, no number yet; {cure}compute with released values in "
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
    >>> dp.Pipeline(age=people["age"].sum())
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LeakError: output 'age' is private: people -> age -> sum in [0, 100];
    release it first, for example with .release(dp.Laplace(scale=...))
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
    """A query: a private value with a sensitivity, ready to be released."""

    def release(
        self, mechanism: Mechanism, *, given: Sequence[Released[Any]] = (), name: str = ""
    ) -> Released[T]:
        """Return the value as ``mechanism`` releases it.

        Parameters
        ----------
        mechanism
            For example ``dp.Laplace(scale=2)``; parameters may be ``dp.Free``. The common ones are
            free by default: ``dp.Laplace()`` is noise in proportion to the query's sensitivity,
            for `Pipeline.calibrate` to choose.
        given
            Released values that the mechanism follows, where it needs any.
        name
            How tables call the release; by default the output's name.

        Each call is a release of its own, with its own noise and its own cost.
        """
        require(
            isinstance(mechanism, Mechanism),
            "release needs a Mechanism such as dp.Laplace(scale=1), got "
            f"{type(mechanism).__name__}",
        )
        assert isinstance(self.operation, Query)
        for i, handle in enumerate(given):
            require(
                isinstance(handle, Handle) and handle.color != "private",
                f"given[{i}] must be a released handle, got {handle!r}; release it first",
            )
        admitted(self.operation, self.inputs[0].domain, mechanism, len(given))
        if any(free.weight is None for free in mechanism.free().values()):
            mechanism = mechanism.weighted(_sensitivity(self, mechanism.norm))
        return Released(Release(mechanism, name), (self, *given))


def _sensitivity(query: Handle, norm: float) -> float:
    """Return how far one unit moves a query, as a weight: infinite where nothing bounds that."""
    change = change_at(query.inputs[0])
    if change.rows == UNBOUNDED or norm == 0:
        return math.inf
    assert isinstance(query.operation, Query)
    # the nearest norm that queries know, from above
    known = next(p for p in (math.inf, 2, 1) if p <= norm)
    return float(query.operation.sensitivity(query.inputs[0].domain, change, known))


def change_at(handle: Handle) -> Change:
    """Return the change of one unit as it arrives at a private value that is no query's."""
    first, *chain = lineage(handle)
    source: Any = first.operation
    change: Change = source.initial()
    for step in chain:
        change = step.operation.change(change)
    return change


def public(value: R) -> Public[R]:
    """Return a constant of the plan as a handle (a number, text, list or mapping of such).

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
        not reach private data by another way, which no library can check. After a run it is
        called 256 times more, on redrawn noise, for the expected noise of its result: it should
        be quick, and free of side effects. It gets copies, and may change them.
    inputs
        Released handles.
    constants
        Numbers, texts, lists or mappings of such.

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
    require(callable(function), f"post needs a function, got {type(function).__name__}")
    require(bool(inputs), "post needs at least one released handle; for a constant use dp.public")
    for i, handle in enumerate(inputs):
        if not isinstance(handle, Handle):
            raise DeclarationError(
                f"post: argument {i + 1} must be a released handle, got {type(handle).__name__}; "
                "pass constants by name, or as dp.public(value)"
            )
        if handle.color == "private":
            raise LeakError(
                f"post: argument {i + 1} is private: {path(handle)}; release it first with "
                ".release(dp.Laplace(scale=...))"
            )
    return Released(Post.of(function, constants), tuple(inputs))


def parameter(release: Released[Any], name: str) -> Public[float]:
    """Return a parameter of a release's mechanism as a public handle, such as its ``sigma``.

    It follows the calibration, so post-processing can use the noise that was chosen.

    Raises
    ------
    DeclarationError
        If the handle is no release, or its mechanism has no such parameter.

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
    require(
        isinstance(release, Handle) and isinstance(release.operation, Release),
        f"parameter needs a handle that .release(mechanism) returned, got {release!r}; what is "
        "computed from a release has no mechanism",
    )
    return Public(Parameter(name), (release,))


def meant(handle: Handle) -> Handle:
    """Return the handle for which an alias stands, such as that of a group's result."""
    while handle.operation.alias:
        handle = handle.inputs[0]
    return handle


def lineage(handle: Handle) -> list[Handle]:
    """Return a private handle and all it comes from, each the first input of the next."""
    steps = [meant(handle)]
    while steps[-1].inputs:
        steps.append(meant(steps[-1].inputs[0]))
    return steps[::-1]


def path(handle: Handle) -> str:
    """Return the way from the data to a private handle, for messages."""
    steps = [meant(handle)]
    while steps[-1].inputs and steps[-1].inputs[0].color == "private":
        steps.append(meant(steps[-1].inputs[0]))
    return " -> ".join(step.operation.label() for step in reversed(steps))


Outputs = Mapping[str, Any]
"""Released handles by name; a value may itself be a mapping of released handles."""
