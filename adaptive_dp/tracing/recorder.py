"""Who saw what: the words that rewritten code says, and what is made of them as it runs.

A value is *labelled* where it is computed from data: a label (`Label`) says from which data, and
whether it is one of rows or a few numbers made of them. Objects with an identity (frames, arrays,
lists) are labelled by that; numbers, booleans and strings, of which Python keeps one for many uses,
become *stand-ins*: subclasses that carry the label in variables and containers of the analysis.
They are taken off again before a library sees them, so that it computes what it always did.

Whether data are private is decided at the end: those that were read from a file, those that the
owner named, and those that a mechanism was applied to.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import linecache
import operator
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen

from accountants import PrivacyLoss
from adaptive_dp.tracing import libraries
from adaptive_dp.tracing.libraries import Called, Claim
from adaptive_dp.tracing.rewrite import NAME, Site, rewritten

_NONE: frozenset[int] = frozenset()


# --- Labels ---


@define
class Origin:
    """Data that came into the analysis at one place.

    Parameters
    ----------
    site, what
        Where, and by which call.
    private
        Whether they are private; data made in memory become so when a mechanism reads them.
    noise
        Whether they are random numbers that may serve as noise.
    name
        The variable that they were assigned to.
    """

    site: Site
    what: str
    private: bool = False
    noise: bool = False
    name: str = ""


@frozen
class Label:
    """What a value was computed from.

    Parameters
    ----------
    origins
        The data.
    of
        The operation that made it, in a word: ``"mean"``.
    level
        ``"rows"``: a part for each row. ``"size"``: the number of all rows. ``"few"``: anything
        else that was made of rows.
    mixed
        Why a row's value depends on other rows, which no mechanism accounts for: kind, words and
        data; or None.
    noised
        Random numbers that were added.
    part
        The part of a partition in which all its rows lie: a family of disjoint parts, and which.
    mask
        Of a condition, the part of the rows that meet it.
    each
        Whether its items, one by one, are the rows of different persons.
    moves
        The most that one row moves it, where that is known.
    clip
        The largest absolute value of its rows, where they were clipped by constants.
    released
        Whether it was released by a mechanism; it has no origins then.
    filtered
        Whether its rows were chosen among others.
    names
        Whether its columns' names were taken from the data.
    column
        The frame and the name of the column that it is, where it is one.
    main
        The data whose rows these are: others only helped to choose or to compute them.
    """

    origins: frozenset[int]
    of: str = ""
    level: str = "rows"
    mixed: tuple[str, str, frozenset[int]] | None = None
    noised: frozenset[int] = _NONE
    part: tuple[Any, Any] | None = None
    moves: float | None = None
    clip: float | None = None
    released: bool = False
    filtered: bool = False
    names: bool = False
    column: tuple[int, str] | None = None
    mask: tuple[Any, Any] | None = None
    each: bool = False
    main: frozenset[int] = field()

    @main.default
    def _main(self) -> frozenset[int]:
        return self.origins


class _StandIn:
    """A mark of the classes below: each holds the value that it stands for, and a label."""

    __slots__ = ()
    raw: Any
    label: Label


class _Int(int, _StandIn):
    def __reduce__(self) -> Any:
        return int, (int(self),)


class _Bool(int, _StandIn):
    def __reduce__(self) -> Any:
        return bool, (bool(int(self)),)

    def __repr__(self) -> str:
        return repr(self.raw)

    __str__ = __repr__

    def __invert__(self) -> Any:
        return ~self.raw


class _Float(float, _StandIn):
    def __reduce__(self) -> Any:
        return float, (float(self),)


class _Str(str, _StandIn):
    def __reduce__(self) -> Any:
        return str, (str.__str__(self),)


@functools.cache
def _numpy_stand_in(kind: Any) -> Any:
    def reduce(self: Any) -> Any:
        return self.raw.__reduce__()

    return type("_" + kind.__name__, (kind, _StandIn), {"__reduce__": reduce})


class _Bound:
    """A method of the value that a stand-in stands for; its owner is the stand-in."""

    def __init__(self, owner: Any, method: Any) -> None:
        self.__self__, self.method = owner, method
        self.__name__ = getattr(method, "__name__", "")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.method(*arguments, **named)


_CONTAINERS = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    collections.defaultdict,
    collections.OrderedDict,
    collections.Counter,
)
_PLAIN = (int, float, str, bool, type(None), bytes, complex)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


# --- What is found ---


@frozen
class Sighting:
    """What may be a finding: it is one if its data turn out to be private."""

    kind: str
    site: Site
    words: str
    origins: frozenset[int]
    noised: frozenset[int] = _NONE


@define
class Spent:
    """A release: what it was applied to, by which call, and what it is claimed to cost."""

    what: str
    site: Site
    origins: frozenset[int]
    claim: Claim
    part: tuple[Any, Any] | None
    budget: int
    loss: PrivacyLoss | None
    engine: Any = None
    doubts: tuple[tuple[str, frozenset[int]], ...] = ()


@define
class Budget:
    """An object that adds up what was spent."""

    name: str
    site: Site
    object: Any
    origins: set[int]
    continues: str = ""
    used: bool = False


@frozen
class _Condition:
    """What the code that runs now depends on."""

    frame: Any
    site: int
    kind: str
    label: Label | None
    part: tuple[Any, Any] | None = None


@define
class _Call:
    """A call under way."""

    frame: Any
    site: int
    kind: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    known: Called | None = None
    labels: list[Label] = field(factory=list)
    owner: Label | None = None
    detail: Any = None
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    copies: list[tuple[list[Any], list[Any]]] = field(factory=list)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow,
    "LShift": operator.lshift, "RShift": operator.rshift, "BitOr": operator.or_,
    "BitXor": operator.xor, "BitAnd": operator.and_, "MatMult": operator.matmul,
}  # fmt: skip
_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv, "Mod": operator.imod, "Pow": operator.ipow,
    "LShift": operator.ilshift, "RShift": operator.irshift, "BitOr": operator.ior,
    "BitXor": operator.ixor, "BitAnd": operator.iand, "MatMult": operator.imatmul,
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {
    "USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert, "Not": operator.not_,
}  # fmt: skip

_PATHS = sysconfig.get_paths()
_INSTALLED = tuple(
    str(Path(each).resolve())
    for each in (
        *(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parent.parent),
        str(Path(sys.modules["accountants"].__file__ or "").parent),
    )
)
"""Where libraries and Python's own modules lie, and this library's."""


def _is_installed(file: str) -> bool:
    """Whether a file belongs to a library, or to Python: its code is called and not rewritten."""
    if not file or file.startswith("<"):
        return True
    path = str(Path(file).resolve())
    return "site-packages" in path or path.startswith(_INSTALLED)


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}

_TRANSPARENT = frozenset({"zip", "enumerate", "map", "filter", "reversed", "iter", "next"})
_REBUILT = frozenset({"list", "tuple", "set", "frozenset", "dict", "sorted", "deque", "chain"})
_IN_FRAME = frozenset(
    {
        "locals",
        "globals",
        "vars",
        "dir",
        "super",
        "isinstance",
        "issubclass",
        "type",
        "id",
        "callable",
        "hasattr",
    }
)


class Recorder:
    """The recorder of one trace: rewritten code calls its methods, as ``__traced__``."""

    slice = slice

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.origins: list[Origin] = []
        self.sightings: list[Sighting] = []
        self.spent: list[Spent] = []
        self.budgets: list[Budget] = []
        self.touched: dict[tuple[str, Site], frozenset[int]] = {}
        self.unseen: dict[str, Site] = {}
        self.assumed: dict[str, Site] = {}
        self.shown: Callable[[Any], None] = lambda value: None
        self.watched: set[str] = set()
        self._threads = threading.local()
        self._conditions: list[_Condition] = []
        self._labels: dict[int, tuple[Any, Label]] = {}
        self._lengths: dict[int, tuple[Any, Label]] = {}
        self._iterated: dict[int, Label] = {}
        self._sifted: dict[int, Label] = {}
        self._last = Site("", 0, 0, "")
        self._private_losses: list[tuple[Any, Label]] = []
        self._held: dict[int, Any] = {}
        self._mutations = 0
        self._loops = 0
        self._inside: list[Label] = []
        self._functions: dict[Any, Any] = {}
        self._files: dict[str, Any] = {}

    @property
    def _calls(self) -> list[_Call]:
        """The calls under way in this thread."""
        try:
            return self._threads.calls  # type: ignore[no-any-return]
        except AttributeError:
            self._threads.calls = []
            return self._threads.calls  # type: ignore[no-any-return]

    # --- labels of values ---

    def label_of(self, value: Any) -> Label | None:
        """Return the label of a value itself, not of what it contains."""
        if isinstance(value, _StandIn):
            return value.label
        entry = self._labels.get(id(value))
        if entry is None:
            return None
        kept = entry[0]() if isinstance(entry[0], weakref.ref) else entry[0]
        return entry[1] if kept is value else None

    def length_of(self, value: Any) -> Label | None:
        """Return the label of how many items a container has."""
        entry = self._lengths.get(id(value))
        return entry[1] if entry is not None and entry[0] is value else None

    def labels_in(self, value: Any, depth: int = 6) -> Iterator[Label]:
        """Yield the labels of a value and of what it contains."""
        kind = type(value)
        if kind in _PLAIN:
            return
        own = self.label_of(value)
        if own is not None:
            yield own
            return
        if kind in _CONTAINERS or isinstance(value, tuple):
            size = self._lengths.get(id(value))
            if size is not None and size[0] is value:
                yield size[1]
            if depth:
                for item in value.values() if isinstance(value, dict) else value:
                    if type(item) not in _PLAIN:
                        yield from self.labels_in(item, depth - 1)
                if isinstance(value, dict):
                    for key in value:
                        if isinstance(key, _StandIn):
                            yield key.label
        elif kind in _VIEWS:
            yield from self.labels_in(list(value), depth)
        elif kind is slice:
            for end in (value.start, value.stop, value.step):
                if isinstance(end, _StandIn):
                    yield end.label
        elif depth and self._is_users(kind) and hasattr(value, "__dict__"):
            for item in vars(value).values():
                yield from self.labels_in(item, depth - 2 if depth > 2 else 0)
        elif isinstance(value, types.FunctionType) and not _is_installed(
            value.__code__.co_filename
        ):
            yield from self._closed_over(value)
        elif isinstance(value, functools.partial):
            yield from self.labels_in((value.args, value.keywords), depth - 1)

    def _closed_over(self, function: types.FunctionType) -> Iterator[Label]:
        """Yield the labels of the numbers that a function reads from around it."""
        for cell in function.__closure__ or ():
            try:
                inner = cell.cell_contents
            except ValueError:
                continue
            if isinstance(inner, _StandIn):
                yield inner.label
        for name in function.__code__.co_names:
            inner = function.__globals__.get(name)
            if isinstance(inner, _StandIn):
                yield inner.label

    def _is_users(self, kind: type) -> bool:
        module = sys.modules.get(kind.__module__)
        if kind.__module__ in ("__main__", "builtins"):
            return kind.__module__ == "__main__"
        return module is not None and not _is_installed(getattr(module, "__file__", "") or "")

    def put(self, value: Any, label: Label | None) -> Any:
        """Return a value with a label: itself, or a stand-in."""
        if label is None or value is None or value is Ellipsis or value is NotImplemented:
            return value
        if isinstance(value, _StandIn):
            value = value.raw
        kind: Any = type(value)
        if kind is bool or kind is np.bool_:
            made: Any = _Bool(bool(value))
        elif kind is int:
            made = _Int(value)
        elif kind is float:
            made = _Float(value)
        elif kind is str:
            made = _Str(value)
        elif isinstance(value, np.number):
            made = _numpy_stand_in(kind)(value)
        elif isinstance(value, tuple) and len(value) <= 64:
            parts = [self.put(item, self._child(label)) for item in value]
            if kind is tuple:
                return tuple(parts)
            return kind._make(parts) if hasattr(kind, "_make") else self._keep(value, label)
        else:
            return self._keep(value, label)
        made.raw, made.label = value, label
        return made

    def _child(self, label: Label) -> Label:
        return label if label.released else evolve(label, moves=None, mask=None, column=None)

    def _keep(self, value: Any, label: Label) -> Any:
        """Label an object by its identity."""
        if isinstance(value, types.ModuleType | type | types.FunctionType | types.MethodType):
            return value
        if isinstance(value, types.BuiltinMethodType | property) or type(value).__name__ == "dtype":
            return value
        key = id(value)
        try:
            kept: Any = weakref.ref(value, lambda _, key=key: self._labels.pop(key, None))  # type: ignore[misc]
        except TypeError:
            kept = value
        self._labels[key] = (kept, label)
        return value

    def plain(self, value: Any) -> Any:
        """Return what a stand-in stands for; anything else as it is."""
        return value.raw if isinstance(value, _StandIn) else value

    def deep(self, value: Any, copies: list[tuple[list[Any], list[Any]]] | None = None) -> Any:
        """Return a value without stand-ins; containers that hold some are copied."""
        if isinstance(value, _StandIn):
            return value.raw
        kind = type(value)
        if kind is list or kind is tuple or kind in (set, frozenset, collections.deque):
            items = [self.deep(item, copies) for item in value]
            if all(a is b for a, b in zip(items, value, strict=True)):
                return value
            made = items if kind is list else kind(items)
            if kind is list and copies is not None:
                copies.append((value, made))
            return made
        if kind in (dict, collections.OrderedDict):
            pairs = {self.plain(k): self.deep(item, copies) for k, item in value.items()}
            changed = any(pairs[self.plain(k)] is not item for k, item in value.items())
            return kind(pairs) if changed or any(isinstance(k, _StandIn) for k in value) else value
        if kind is slice:
            return slice(*(self.plain(end) for end in (value.start, value.stop, value.step)))
        if isinstance(value, tuple) and hasattr(kind, "_make"):
            items = [self.deep(item, copies) for item in value]
            same = all(a is b for a, b in zip(items, value, strict=True))
            return value if same else kind._make(items)
        return value

    # --- labels of results ---

    def derive(self, of: str, labels: Iterable[Label], value: Any = None) -> Label | None:
        """Return the label of what was computed of labelled values."""
        known = list(labels)
        own = [each for each in known if not each.released]
        if not own:
            return evolve(known[0], of=of) if known else None
        if len(own) < len(known) and all(e.level == "size" and not e.filtered for e in own):
            # a released value divided by the number of rows
            self._assume_size()
            return evolve(next(each for each in known if each.released), of=of)
        # a list that is written out, such as bins, is no data beside others
        if any(not self._is_literal(each) and not self._is_noise(each) for each in own):
            own = [each for each in own if not self._is_literal(each)]
        first = own[0]
        origins = frozenset().union(*(each.origins for each in own))
        few = [each for each in own if each.level == "few"]
        rows = [each for each in own if each.level == "rows"]
        mixed = next((each.mixed for each in own if each.mixed), None)
        level = "rows" if rows else "few" if few else "size"
        if rows and few and mixed is None:
            mixed = ("bounds", few[0].of, few[0].origins)
        parts = {each.part for each in own}
        noised = frozenset().union(*(each.noised for each in own))
        return Label(
            origins,
            of,
            level,
            mixed,
            noised,
            parts.pop() if len(parts) == 1 else None,
            None,
            first.clip if len(own) == 1 else None,
            False,
            any(each.filtered for each in own),
            any(each.names for each in own),
            main=frozenset().union(*(each.main for each in rows or own)),
        )

    def _assume_size(self, place: Site | None = None) -> None:
        site = place or (self.sites[self._calls[-1].site] if self._calls else self._last)
        self.assumed.setdefault("the number of rows is public", site)

    def made_few(self, of: str, label: Label) -> Label:
        """Return the label of a mean, a sum or the like."""
        level = "few"
        moves = None
        if of in libraries.SIZES and label.level != "few":
            level = "few" if label.filtered else "size"
            moves = 1.0
        elif of in ("count", "count_nonzero"):
            moves = 1.0
        elif of in ("sum", "nansum", "fsum"):
            moves = 1.0 if label.of == "compare" else label.clip
        part = label.part
        if label.mask is not None and of in ("sum", "count_nonzero"):
            part = label.mask  # only rows that meet the condition are counted
        return evolve(
            label, of=of, level=level, moves=moves, part=part, clip=None, mask=None, each=False
        )

    def data(
        self, site: Site, what: str, *, private: bool = False, noise: bool = False,
        each: bool = True,
    ) -> Label:  # fmt: skip
        """Return the label of data that come in at a place; a place has one origin."""
        for number, origin in enumerate(self.origins):
            if origin.site == site and origin.what == what:
                origin.private |= private
                return Label(
                    frozenset({number}), what, "few" if origin.noise else "rows", each=each
                )
        self.origins.append(Origin(site, what, private, noise))
        number = len(self.origins) - 1
        return Label(frozenset({number}), what, "few" if noise else "rows", each=each)

    # --- conditions ---

    def _live(self) -> list[_Condition]:
        """Return the conditions under which the code that runs now does so."""
        if not self._conditions:
            return []
        frames, frame = set(), sys._getframe(1)
        while frame is not None:
            frames.add(frame)
            frame = frame.f_back  # type: ignore[assignment]
        self._conditions = [each for each in self._conditions if each.frame in frames]
        return [each for each in self._conditions if each.label is not None]

    def _private_conditions(self, kinds: tuple[str, ...] = ("if", "keys")) -> list[_Condition]:
        return [
            each
            for each in self._live()
            if each.kind in kinds and each.label is not None and not each.label.released
        ]

    def test(self, site: int, value: Any) -> Any:
        """Return a condition's value, and remember what the code below depends on."""
        labels = list(self.labels_in(value))
        frame = sys._getframe(1)
        label = self.derive("condition", labels)
        if label is not None:
            last = self._conditions[-1] if self._conditions else None
            if last is None or last.site != site or last.frame is not frame:
                self._conditions.append(_Condition(frame, site, "if", label))
        return self.plain(value)

    def loop(self, site: int) -> None:
        """Begin a loop: what is remembered in it ends with it."""
        self._conditions.append(_Condition(sys._getframe(1), site, "loop", None))

    def done(self, site: int) -> None:
        """End a loop or a condition: what was remembered since it began is forgotten."""
        frame = sys._getframe(1)
        for index, each in enumerate(self._conditions):
            if each.frame is frame and each.site == site:
                del self._conditions[index:]
                return

    def choose(self, site: int, value: Any) -> Any:
        """Return the condition of a choice, ``a if condition else b``."""
        label = self.derive("condition", list(self.labels_in(value)))
        call = _Call(sys._getframe(1), site, "choice", (), {})
        call.detail = label
        self._calls.append(call)
        return self.plain(value)

    def chosen(self, site: int, value: Any) -> Any:
        """Return what was chosen: it depends on the condition."""
        call = self._pop(sys._getframe(1), site)
        if call is None or call.detail is None:
            return value
        labels = [call.detail, *self.labels_in(value)]
        return self.put(self.plain(value), self.derive("choice", labels))

    def sifted(self, site: int, value: Any) -> Any:
        """Return the value of a condition in a comprehension."""
        label = self.derive("condition", list(self.labels_in(value)))
        if label is not None:
            walked = self._iterated.get(site)
            by_row = walked is not None and walked.level == "rows" and label.mixed is None
            self._sifted[site] = evolve(label, level="rows" if by_row else "few")
            if self.plain(value):
                self._conditions.append(_Condition(sys._getframe(1), site, "if", label))
        return self.plain(value)

    # --- loops and containers ---

    def steps(self, site: int, value: Any, depth: int) -> Any:
        """Return what a loop goes through, item by item, each with its label.

        Items are taken apart to a depth, since Python's own unpacking drops labels.
        """
        label = self.label_of(value)
        size = self.length_of(value)
        if label is None and size is None:
            self._iterated.pop(site, None)
            return (
                (self._apart(item, depth) for item in value) if self._holds(value, depth) else value
            )
        known = label or size
        assert known is not None
        self._iterated[site] = known
        walked = self._walk(site, value, label, known, sys._getframe(1))
        return (self._apart(item, depth) for item in walked) if depth else walked

    def _holds(self, value: Any, depth: int) -> bool:
        """Whether items of a container that is no data itself are to be taken apart."""
        return depth > 0 and type(value).__name__ in (
            "list",
            "tuple",
            "zip",
            "enumerate",
            "dict_items",
            "dict_values",
            "generator",
        )

    def _apart(self, value: Any, depth: int) -> Any:
        label = self.label_of(value)
        if not depth or isinstance(value, str) or type(value).__name__ == "DataFrame":
            return value
        if label is not None and not isinstance(value, tuple):
            return [self._apart(self.put(item, label), depth - 1) for item in value]
        if isinstance(value, list | tuple) and depth > 1:
            return [self._apart(item, depth - 1) for item in value]
        return value

    def _walk(
        self, site: int, value: Any, label: Label | None, size: Label, frame: Any
    ) -> Iterator[Any]:
        kind = type(value).__name__
        is_grouped = "GroupBy" in kind
        if label is not None and label.released:
            for item in self._raw(value):
                yield self.put(item, label)
            return
        if kind in ("DataFrame", "NamedFrame") and label is not None and not label.names:
            yield from (
                value
                if type(value).__module__.startswith("pandas")
                else (self.put(item, label) for item in value)
            )  # the names of columns, or the columns
            return
        is_rows = size.level == "rows" and not is_grouped
        counts = size.level == "size"
        loads = "Loader" in kind
        self._loops += 1
        family = None
        if not loads and size.each and (is_rows or is_grouped):
            family = ("rows" if is_rows else "groups", self._loops)
        control = "batches" if loads else "rows" if is_rows or counts else "keys"
        for number, item in enumerate(self._raw(value)):
            depth = len(self._conditions)
            part = None if family is None else (family, number)
            condition = _Condition(frame, site, control, None if loads else size, part)
            self._conditions.append(condition)
            if label is None:
                yield item
            elif is_grouped and isinstance(item, tuple) and len(item) == 2:
                key, group = item
                below = evolve(
                    label, part=label.part or part, filtered=True, of="group", column=None
                )
                yield self.put(key, evolve(label, of="key", level="few")), self.put(group, below)
            else:
                own = part if label.part is None and not loads else label.part
                below = evolve(label, part=own) if is_rows else label
                below = evolve(below, each=False, mask=None, column=None)
                if label.level == "rows" and not libraries.is_table(item) and not loads:
                    below = evolve(below, of="row")
                yield self.put(item, below)
            del self._conditions[min(depth, len(self._conditions)) :]

    @staticmethod
    def _raw(value: Any) -> Iterable[Any]:
        return value  # type: ignore[no-any-return]

    def built(self, site: int, value: Any) -> Any:
        """Return what a comprehension made; how long it is depends on what it went through."""
        label = self._sifted.pop(site, None)
        walked = self._iterated.pop(site, None)
        known = label or walked
        if known is None or known.released:
            return value
        if isinstance(value, types.GeneratorType):
            # what adds up its items learns how many there were
            return self.put(value, evolve(known, of="count" if label else known.of))
        if known.level == "rows" and known.mixed is None:
            # rows chosen each by itself: how many they are is a count of rows
            made = evolve(
                known, of="selection", level="size", filtered=known.filtered or label is not None
            )
        else:
            mixed = label.mixed if label is not None else None
            made = evolve(known, of="selection", level="few", mixed=mixed)
        self._lengths[id(value)] = (value, made)
        return value

    def spread(self, site: int, value: Any) -> Any:
        """Return what ``*value`` takes apart, its items with their labels."""
        label = self.label_of(value)
        if label is None:
            return value
        return [self.put(item, evolve(label, each=False, mask=None)) for item in value]

    def unpacked(self, site: int, value: Any, depth: int) -> Any:
        """Return a value that is taken apart, its items with their labels."""
        return self._apart(value, depth)

    def literal(self, site: int, value: Any) -> Any:
        """Return a list that is written out: it may be data."""
        return self.put(value, self.data(self.sites[site], "list"))

    # --- operators ---

    def binary(self, site: int, name: str, left: Any, right: Any) -> Any:
        """Return ``left + right`` or the like."""
        return self._binary(site, name, _BINARY[name], left, right)

    def changed(self, site: int, name: str, left: Any, right: Any) -> Any:
        """Return what a variable is after ``left += right`` or the like."""
        value = self._binary(site, name, _INPLACE[name], left, right)
        return self._under_conditions(value, ("if", "keys", "rows"))

    def _under_conditions(self, value: Any, kinds: tuple[str, ...]) -> Any:
        if not self._conditions or (type(value) not in _PLAIN and not isinstance(value, _StandIn)):
            return value
        under = self._private_conditions(kinds)
        if not under:
            return value
        labels = [evolve(each.label, level="few", part=None) for each in under if each.label]
        own = self.label_of(value)
        if own is not None and not own.released:
            labels.append(evolve(own, part=None, level="few"))
        return self.put(self.plain(value), self.derive("count", labels))

    def _binary(
        self, site: int, name: str, how: Callable[[Any, Any], Any], left: Any, right: Any
    ) -> Any:
        one, other = self.label_of(left), self.label_of(right)
        inside = type(left) in (list, tuple, dict) or type(right) in (list, tuple, dict)
        if one is None and other is None and not inside:
            return how(left, right)
        keep = inside and one is None and other is None
        result = how(*((left, right) if keep else (self.deep(left), self.deep(right))))
        labels = [each for each in (one, other) if each is not None]
        if keep:  # lists that are joined keep their items' labels
            sizes = [each for each in map(self.length_of, (left, right)) if each is not None]
            if sizes and isinstance(result, list):
                self._lengths[id(result)] = (result, sizes[0])
            if isinstance(result, str):
                labels = [*self.labels_in(left), *self.labels_in(right)]
            else:
                return result
        label = self.derive(name, labels)
        if label is None:
            return result
        if name in ("Add", "Sub") and one is not None and other is not None:
            for a, b in ((one, other), (other, one)):
                if self._is_noise(a) and not self._is_noise(b):
                    label = evolve(label, noised=label.noised | a.origins, of=b.of)
                    if b.mixed is None:
                        label = evolve(label, mixed=None, level=b.level)
        rows = [each for each in self._of_data(labels) if each.level == "rows"]
        label = evolve(label, each=bool(rows) and all(each.each for each in rows))
        if name == "BitAnd":
            label = evolve(
                label, of="compare", mask=rows[0].mask or rows[-1].mask if rows else None
            )
        elif name in ("BitOr", "BitXor"):
            label = evolve(label, of="compare")
        if len(labels) == 1 and name in ("Mult", "Div") and label.moves is None:
            label = self._scaled(name, labels[0], label, left, right)
        return self.put(result, label)

    def _scaled(self, name: str, own: Label, label: Label, left: Any, right: Any) -> Label:
        """Keep the known reach of a sum that is multiplied by a constant."""
        factor = right if self.label_of(left) is not None else left
        if own.moves is None or not isinstance(factor, int | float) or not factor:
            return label
        if name == "Div" and factor is left:
            return label
        scale = abs(factor) if name == "Mult" else 1 / abs(factor)
        return evolve(label, moves=own.moves * scale)

    def _is_literal(self, label: Label) -> bool:
        """Whether a value comes from lists that are written out."""
        return label.released or all(self.origins[each].what == "list" for each in label.origins)

    def _of_data(self, labels: list[Label]) -> list[Label]:
        """Return the labels that are not of released values, and not of written lists alone."""
        own = [each for each in labels if not each.released]
        return [each for each in own if not self._is_literal(each)] or own

    def _is_noise(self, label: Label) -> bool:
        return bool(label.origins) and all(self.origins[each].noise for each in label.origins)

    def unary(self, site: int, name: str, value: Any) -> Any:
        """Return ``-value`` or the like."""
        label = self.label_of(value)
        if label is None:
            return _UNARY[name](value)
        result = _UNARY[name](self.plain(value))
        derived = self.derive("compare" if name in ("Not", "Invert") else label.of, [label])
        if derived is not None and name in ("Not", "Invert"):
            derived = evolve(derived, each=label.each)
        if derived is not None and name == "USub":
            derived = evolve(derived, moves=label.moves, each=label.each)
        return self.put(result, derived)

    def compare(self, site: int, names: tuple[str, ...], *values: Any) -> Any:
        """Return a comparison, or a chain of them."""
        labels = [each for each in map(self.label_of, values) if each is not None]
        if not labels and not any(type(each) in _CONTAINERS for each in values):
            plain = values
        else:
            plain = tuple(self.deep(each) for each in values)
        result: Any = True
        for index, name in enumerate(names):
            pair = plain[index : index + 2]
            if name in ("Is", "IsNot") and type(pair[0]) in _CONTAINERS:
                pair = values[index : index + 2]  # copies are other objects
            result = _COMPARE[name](*pair)
            if index < len(names) - 1 and not result:
                break
        if names[0] in ("In", "NotIn") and not labels:
            labels = [*self.labels_in(values[0])]
            size = self.length_of(values[-1])
            labels += [size] if size is not None else []
        if all(name in ("Is", "IsNot") for name in names) or not labels:
            return result
        label = self.derive("compare", labels)
        if label is None:
            return result
        if label.mixed is not None and label.mixed[0] == "bounds" and not label.released:
            before = next((each.mixed for each in labels if each.mixed), None)
            if before is None:
                label = evolve(label, mixed=("filter", *label.mixed[1:]))
        column = labels[0].column if labels[0].each else None
        is_constant = names == ("Eq",) and all(map(self._is_literal, labels[1:]))
        if is_constant and column and libraries.is_table(result):
            constant = values[1] if self.label_of(values[0]) is labels[0] else values[0]
            constant = self.plain(constant)
            if isinstance(constant, str | int | bool):
                family = ("equal", *column, self._mutations)
                label = evolve(label, mask=(family, constant))
        rows = [each for each in self._of_data(labels) if each.level == "rows"]
        return self.put(result, evolve(label, each=bool(rows) and all(e.each for e in rows)))

    def shown_in(self, value: Any) -> Iterator[Label]:
        """Yield the labels of what is seen where a value is printed."""
        kind = type(value)
        if kind in _PLAIN or not self._is_users(kind) or self.label_of(value) is not None:
            yield from self.labels_in(value)
            return
        methods: tuple[Any, Any] = (kind.__str__, kind.__repr__)
        for method in methods:
            if isinstance(method, types.FunctionType) and self._users(method) is not None:
                yield from self.labels_in(self._users(method)(value))
                return
        # an object that is shown by its address shows nothing of what it holds
        if methods != (object.__str__, object.__repr__):
            yield from self.labels_in(value)

    def joined(self, site: int, *parts: Any) -> Any:
        """Return an f-string."""
        text, labels = [], []
        for part in parts:
            if isinstance(part, str):
                text.append(part)
                continue
            value, conversion, form = part
            labels += list(self.shown_in(value))
            raw = self.deep(value)
            if conversion > 0:
                raw = _CONVERSIONS[chr(conversion)](raw)
            text.append(format(raw, self.plain(form)))
        return self.put("".join(text), self._text_label(labels))

    def _text_label(self, labels: list[Label]) -> Label | None:
        """Return the label of a text: that of its most telling part."""
        own = [each for each in labels if not each.released]
        if not own:
            return self.derive("text", labels)
        known = self.derive(own[0].of, own)
        assert known is not None
        return evolve(known, level=own[0].level, mixed=None)

    # --- attributes and items ---

    def attribute(self, site: int, value: Any, name: str) -> Any:
        """Return an attribute."""
        if isinstance(value, types.ModuleType):
            return getattr(value, name)
        label = self.label_of(value)
        if label is None:
            return getattr(value, name)
        if isinstance(value, _StandIn):
            result = getattr(value.raw, name)
            if callable(result):
                return _Bound(value, result)
            return self.put(result, label)
        result = getattr(value, name)
        if label.released:
            if isinstance(result, types.MethodType | types.BuiltinMethodType):
                return result
            return self.put(result, label)
        if (name in libraries.SCHEMA and not label.names) or isinstance(result, type):
            return result
        if isinstance(result, types.MethodType | types.BuiltinMethodType | types.FunctionType):
            return result
        if name == "shape" and isinstance(result, tuple):
            size = self.made_few("shape", label)
            return tuple(self.put(n, size) if i == 0 else n for i, n in enumerate(result))
        if name in libraries.MEANS or name in libraries.SIZES:
            return self.put(result, self.made_few(name, label))
        below = evolve(label, of=name if name in ("iloc", "loc", "index") else label.of)
        is_column = type(value).__name__ == "DataFrame" and name in self._columns(value)
        keeps = is_column or name in ("iloc", "loc", "values", "str", "dt")
        if type(value).__name__ == "DataFrame" and (is_column or name == "loc"):
            below = evolve(below, column=self._column(value, name))
        elif not (name == "values" and below.mask):
            below = evolve(below, column=None)
        return self.put(
            result,
            evolve(below, each=label.each and keeps, mask=label.mask if name == "values" else None),
        )

    @staticmethod
    def _columns(frame: Any) -> Any:
        try:
            return list(frame.columns)
        except Exception:  # another library's object: whatever it raises
            return ()

    def _column(self, frame: Any, name: str) -> tuple[int, str]:
        """Return which column of which frame it is; a kept frame keeps its id."""
        self._held[id(frame)] = frame
        return id(frame), name

    def item(self, site: int, value: Any, index: Any) -> Any:
        """Return ``value[index]``."""
        label = self.label_of(value)
        plain_index = self.deep(index)
        if label is None:
            result = value[plain_index]
            if isinstance(index, _StandIn) and not index.label.released:
                # which item it is was chosen by data
                own = list(self.labels_in(result))
                if not own and type(result) in _PLAIN and self._is_private(index.label):
                    return self.put(result, evolve(index.label, of="choice"))
            return result
        result = self.plain(value)[plain_index]
        return self.put(result, self._item_label(value, label, index, result))

    def _item_label(self, value: Any, label: Label, index: Any, result: Any) -> Label:
        if label.released:
            return label
        at = list(self.labels_in(index))
        own = [each for each in at if not each.released and each.level != "size"]
        below = evolve(label, moves=None, mask=None, column=None)
        plain = self.plain(index)
        if isinstance(plain, str) and libraries.is_table(result):
            is_frame = type(value).__name__ == "DataFrame"
            column = self._column(value, plain) if is_frame else None
            return evolve(below, column=column, each=label.each and is_frame)
        if isinstance(plain, list) and plain and all(isinstance(each, str) for each in plain):
            return below
        first = plain[0] if isinstance(plain, tuple) and plain else plain
        chosen_rows = isinstance(first, slice) or (
            libraries.is_table(first) and "bool" in str(getattr(first, "dtype", ""))
        )
        below = evolve(below, each=label.each and chosen_rows)
        if own:
            chosen = next((each.mixed for each in own if each.mixed), None)
            mixed = label.mixed
            if chosen is not None:
                mixed = ("filter", chosen[1], chosen[2])
            elif label.level == "rows" and own[0].level == "few" and libraries.is_table(result):
                mixed = ("filter", own[0].of, own[0].origins)
            below = evolve(
                below,
                origins=label.origins.union(*(each.origins for each in own)),
                mixed=mixed or label.mixed,
                part=label.part or self._part_of(value, label, own),
                filtered=True,
            )
            return below
        if (
            not libraries.is_table(result)
            and label.level == "rows"
            and not self._holds_rows(result)
        ):
            return evolve(below, of="cell", level="few")
        return evolve(below, filtered=label.filtered or isinstance(index, slice))

    @staticmethod
    def _part_of(value: Any, label: Label, masks: list[Label]) -> tuple[Any, Any] | None:
        """Return the part of rows that a condition chooses, where it is of the same frame."""
        part = masks[0].mask if len(masks) == 1 else None
        if part is None:
            return None
        same = part[0][1] == id(value) or (label.column or (0, ""))[0] == part[0][1]
        return part if same else None

    def _is_private(self, label: Label) -> bool:
        return any(self.origins[each].private for each in label.origins)

    def set_item(self, site: int, value: Any, container: Any, index: Any) -> None:
        """Do ``container[index] = value``."""
        kind = type(container)
        if kind in _CONTAINERS and self.label_of(container) is None:
            container[self.plain(index) if not isinstance(index, _StandIn) else index.raw] = value
            self._touch_length(container)
            return
        copies: list[tuple[list[Any], list[Any]]] = []
        container[self.deep(index)] = self.deep(value, copies)
        labels = [*self.labels_in(value), *self.labels_in(index)]
        self._mutations += 1
        if labels and any(not each.released for each in labels):
            self._absorb(container, "item", labels)

    def _absorb(self, holder: Any, of: str, labels: list[Label]) -> None:
        """Label an object that was given labelled values to keep."""
        known = self.label_of(holder)
        own = [each for each in labels if not each.released]
        derived = self.derive(known.of if known else of, ([known] if known else []) + own)
        if derived is not None and not isinstance(holder, types.ModuleType | type):
            if known is not None:
                derived = evolve(derived, each=known.each)
            self._keep(holder, derived)

    def set_attribute(self, site: int, value: Any, holder: Any, name: str) -> None:
        """Do ``holder.name = value``."""
        if self._is_users(type(holder)) and not isinstance(holder, _StandIn):
            setattr(holder, name, value)
            return
        setattr(holder, name, self.deep(value))
        labels = [each for each in self.labels_in(value) if not each.released]
        if labels and name != "columns":
            self._mutations += 1
            self._absorb(holder, name, labels)

    def change_item(self, site: int, name: str, value: Any, container: Any, index: Any) -> None:
        """Do ``container[index] += value`` or the like."""
        old = self.item(site, container, index)
        new = self._under_conditions(
            self._binary(site, name, _INPLACE[name], old, value), ("if", "keys", "rows")
        )
        self.set_item(site, new, container, index)

    def change_attribute(self, site: int, name: str, value: Any, holder: Any, at: str) -> None:
        """Do ``holder.at += value`` or the like."""
        old = self.attribute(site, holder, at)
        self.set_attribute(site, self._binary(site, name, _INPLACE[name], old, value), holder, at)

    def named(self, site: int, value: Any, name: str) -> Any:
        """Return what is assigned to a variable; the first one names the data."""
        label = self.label_of(value)
        if label is not None and len(label.origins) == 1:
            (number,) = label.origins
            origin = self.origins[number]
            if not origin.name and origin.site.line == self.sites[site].line:
                origin.name = name
        if type(value) in _PLAIN and self._conditions:
            return self._under_conditions(value, ("if",))
        return value

    def raised(self, site: int, error: Any) -> Any:
        """Return an error that is raised: its text is seen by whoever reads it."""
        label = self.label_of(error)
        if label is not None and not label.released and isinstance(error, BaseException):
            self._sink("printed", self.sites[site], "an exception", [label])
        return error

    def display(self, site: int, value: Any) -> None:
        """See the value that a notebook shows below a cell."""
        labels = list(self.shown_in(value))
        self._sink("printed", self.sites[site], "the value of the cell", labels)
        if self.deep(value) is not None:
            self.shown(self.deep(value))

    # --- calls ---

    def args(self) -> tuple[Any, ...]:
        """Return the arguments of the call under way."""
        return self._calls[-1].arguments

    def kwargs(self) -> dict[str, Any]:
        """Return its arguments by name."""
        return self._calls[-1].named

    def _pop(self, frame: Any, site: int) -> _Call | None:
        """Return the call under way at a place; calls above it have failed."""
        for index in range(len(self._calls) - 1, -1, -1):
            call = self._calls[index]
            if call.frame is frame and call.site == site:
                del self._calls[index:]
                return call
        return None

    def begin(self, site: int, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Look at a call before it is made; return what to call."""
        frame = sys._getframe(1)
        self._last = self.sites[site]
        call = _Call(frame, site, "plain", arguments, named)
        self._calls.append(call)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, types.ModuleType):
            owner = None
        target = function.method if isinstance(function, _Bound) else function
        users = self._users(target)
        if users is not None:
            call.kind = "user"
            return users
        known = call.known = libraries.called(target)
        if known.module == "builtins" and known.name in _IN_FRAME and owner is None:
            call.arguments = tuple(self.plain(each) for each in arguments)
            return target
        if known.module.startswith("adaptive_dp.tracing"):
            call.kind = "user"
            return target
        call.owner = self.label_of(function) if owner is None else self.label_of(owner)
        if call.owner is None and type(owner) in _CONTAINERS and owner is not None:
            return self._of_container(call, target, owner)
        if known.name in _TRANSPARENT and known.module in ("builtins", "itertools"):
            return self._transparent(call, target)
        given = (*arguments, *named.values())
        shows = known.module == "builtins" and known.name in ("print", "str", "repr", "format")
        inside = self.shown_in if shows else self.labels_in
        call.labels = [each for value in given for each in inside(value)]
        if known.name in ("query", "eval") and known.library == "pandas":
            call.labels += self._at_names(frame, given)
        rebuilt = known.name in _REBUILT and known.module in (
            "builtins",
            "collections",
            "itertools",
        )
        if rebuilt and all(self.label_of(each) is None for each in given):
            call.kind = "user"  # a new container of the same items
            sizes = [each for each in map(self.length_of, given) if each is not None]
            if sizes:
                call.kind, call.detail = "sized", sizes[0]
            return target
        if known.name == "len" and known.module == "builtins":
            own = self.label_of(given[0]) if given else None
            size = self.length_of(given[0]) if given else None
            call.labels = [each for each in (own, size) if each is not None]
        self._look(call, known)
        call.given = (arguments, named)
        labelled = bool(call.labels) or call.owner is not None
        wrapped = self._inner_functions if labelled else self.deep
        call.arguments = tuple(wrapped(each, call.copies) for each in arguments)
        call.named = {key: wrapped(each, call.copies) for key, each in named.items()}
        if labelled:
            self._inside.append(call.labels[0] if call.labels else call.owner)  # type: ignore[arg-type]
        return target

    def _users(self, function: Any) -> Any:
        """Return a function of the analysis itself, rewritten; None for a library's."""
        if isinstance(function, types.FunctionType):
            code = function.__code__
            if NAME in code.co_names or code.co_filename in self.watched:
                return function
            if _is_installed(code.co_filename):
                return None
            return self._rewritten(function)
        if isinstance(function, types.MethodType) and isinstance(
            function.__func__, types.FunctionType
        ):
            inner = self._users(function.__func__)
            return None if inner is None else types.MethodType(inner, function.__self__)
        if isinstance(function, type) and self._is_users(function):
            library = [each for each in function.__mro__ if not self._is_users(each)]
            # a subclass of a library's class is made by that library
            return function if library == [object] or issubclass(function, Exception) else None
        return None

    def _rewritten(self, function: types.FunctionType) -> Any:
        """Return a function of another file of the user's own, rewritten from its source."""
        code = function.__code__
        known = self._functions.get(code)
        if known is not None:
            found = known
        else:
            found = self._functions[code] = self._code_of(code)
        if found is None:
            where = f"{Path(code.co_filename).name}: {code.co_name}"
            self.unseen.setdefault(
                f"the inside of the function {where}, whose source is not there",
                self.sites[self._calls[-1].site],
            )
            return function
        made = types.FunctionType(
            found, function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def _code_of(self, code: types.CodeType) -> Any:
        file = code.co_filename
        if file not in self._files:
            text = "".join(linecache.getlines(file))
            try:
                tree = rewritten(ast.parse(text), text, self.sites, file=Path(file).name)
                self._files[file] = compile(tree, file, "exec", dont_inherit=True)
            except (SyntaxError, ValueError):
                self._files[file] = None
        whole = self._files[file]
        if whole is None:
            return None
        stack = [whole]
        while stack:
            each = stack.pop()
            same = each.co_name == code.co_name and each.co_firstlineno == code.co_firstlineno
            if same and each.co_freevars == code.co_freevars:
                return each
            stack += [inner for inner in each.co_consts if isinstance(inner, types.CodeType)]
        return None

    def _inner_functions(self, value: Any, copies: list[tuple[list[Any], list[Any]]]) -> Any:
        """Return an argument for a library; functions of the analysis return plain values to it."""
        if isinstance(value, types.FunctionType) and self._users(value) is not None:
            inner = self._users(value)

            @functools.wraps(value)
            def called(*arguments: Any, **named: Any) -> Any:
                return self.deep(inner(*arguments, **named))

            return called
        return self.deep(value, copies)

    def _of_container(self, call: _Call, target: Any, owner: Any) -> Any:
        """Begin a method of a list or dict that is no data itself: items keep their labels."""
        call.kind = "user"
        name = getattr(target, "__name__", "")
        if name in ("append", "add", "extend", "insert", "update", "setdefault", "appendleft"):
            self._touch_length(owner)
            if name in ("extend", "update"):
                call.arguments = tuple(
                    self.spread(call.site, each) if isinstance(each, list) else each
                    for each in call.arguments
                )
        elif name in ("get", "pop", "index", "remove", "discard", "setdefault"):
            call.arguments = tuple(
                self.plain(each) if index == 0 else each
                for index, each in enumerate(call.arguments)
            )
        if name in ("keys", "values", "items", "copy") and self.length_of(owner) is not None:
            call.kind, call.detail = "sized", self.length_of(owner)
        return target

    def _touch_length(self, container: Any) -> None:
        """Remember that a container grew under a condition on private data."""
        under = self._private_conditions(("if",)) if self._conditions else []
        if under and under[-1].label is not None:
            label = evolve(under[-1].label, of="selection", level="few", part=None)
            self._lengths[id(container)] = (container, label)

    def _transparent(self, call: _Call, target: Any) -> Any:
        """Begin ``zip`` and the like: each item keeps its own label."""
        call.kind = "user"
        walked = []
        for each in call.arguments:
            label = self.label_of(each)
            if label is None or callable(each) or isinstance(each, types.GeneratorType):
                walked.append(each)
            else:
                walked.append(self._labelled_items(each, label))
                call.kind, call.detail = "sized", label
        if call.known is not None and call.known.name == "next" and call.detail is not None:
            call.kind = "user"
        call.arguments = tuple(walked)
        call.named = {key: self.plain(each) for key, each in call.named.items()}
        return target

    def _labelled_items(self, value: Any, label: Label) -> Iterator[Any]:
        if type(value).__name__ == "DataFrame" and type(value).__module__.startswith("pandas"):
            return iter(value)  # the names of its columns
        if not hasattr(value, "__next__") and hasattr(value, "__len__"):
            return _Items(self, value, label)  # type: ignore[return-value]
        return (self.put(item, label) for item in value)

    def _at_names(self, frame: Any, given: tuple[Any, ...]) -> list[Label]:
        """Return the labels of ``@name`` in a query of pandas."""
        names = [
            word.partition("@")[2]
            for text in given
            if isinstance(text, str)
            for word in text.replace("(", " ").replace(")", " ").split()
            if "@" in word
        ]
        known: dict[str, Any] = {**frame.f_globals, **frame.f_locals}
        values = [known.get(name.strip("<>=!,")) for name in names]
        return [label for value in values for label in self.labels_in(value)]

    def _look(self, call: _Call, known: Called) -> None:
        """Say what kind of call it is."""
        given, named = call.arguments, call.named
        title = libraries.budget(known, named)
        release = libraries.release(known, given, named)
        way = libraries.leaves(known, given, named)
        if title:
            call.kind, call.detail = "budget", title
        elif release is not None:
            call.kind, call.detail = "mechanism", release
        elif way:
            call.kind, call.detail = "sink", way
        elif libraries.reads_data(known):
            call.kind = "source"

    def end(self, site: int, result: Any) -> Any:
        """Look at a call after it was made; return its result with its label."""
        call = self._pop(sys._getframe(1), site)
        if call is None or call.kind == "user":
            return result
        if call.kind == "sized":
            if call.detail is not None and not call.detail.released:
                self._lengths[id(result)] = (result, call.detail)
            return result
        if (call.labels or call.owner is not None) and self._inside:
            self._inside.pop()
        for original, copied in call.copies:
            if len(original) != len(copied) or any(
                self.plain(a) is not b for a, b in zip(original, copied, strict=True)
            ):
                labels = [label for each in original for label in self.labels_in(each)]
                original[:] = copied
                self._keep(original, self.derive("list", labels))  # type: ignore[arg-type]
        place, known = self.sites[site], call.known
        if known is None:
            return result
        labels = ([call.owner] if call.owner is not None else []) + call.labels
        if labels:
            own = frozenset().union(*(each.origins for each in labels))
            if own:
                key = (str(known), place)
                self.touched[key] = self.touched.get(key, _NONE) | own
        if call.kind == "source":
            by_row = not call.named.get("unpack")
            return self.put(result, self.data(place, str(known), private=True, each=by_row))
        if call.kind == "mechanism":
            return self._released(call, known, place, result)
        if call.kind == "budget":
            return self._budget(call, known, place, result)
        if call.kind == "sink":
            self._sink(call.detail, place, str(known), labels)
            # a plot that follows a leak is no news
            return result
        return self._derived(call, known, place, result, labels)

    def _derived(
        self, call: _Call, known: Called, place: Site, result: Any, labels: list[Label]
    ) -> Any:
        """Return the result of an ordinary computation, with its label."""
        if libraries.draws(known):
            drawn = self.data(place, str(known), noise=libraries.draws_noise(known))
            own = [each for each in labels if not each.released and each.level != "size"]
            if own and drawn.level == "few":  # noise around a value of the data
                label = self.derive(own[0].of, own)
                assert label is not None
                return self.put(result, evolve(label, noised=label.noised | drawn.origins))
            if not own:
                return self.put(result, drawn)
        if not labels:
            if libraries.is_table(result) and self.label_of(result) is None:
                return self.put(result, self.data(place, str(known)))
            return result
        private = [each for each in labels if not each.released]
        if not private:
            return self.put(result, labels[0]) if result is not None else result
        if len(private) < len(labels):
            together = self.derive(known.name, labels)
            if together is not None and together.released:
                return self.put(result, together)
        if libraries.builds_release(known):
            return self._built_release(call, known, place, result)
        if known.name in libraries.SCHEMA and not private[0].names:
            return result
        owner = call.owner
        if known.name == "items" and type(known.owner).__name__ == "DataFrame" and owner:
            column = evolve(owner, column=None)
            return iter([(name, self.put(each, column)) for name, each in result])
        if known.name in libraries.LEARNS and call.owner is None and known.owner is not None:
            self._absorb(
                known.owner, known.name, [self.made_few(known.name, each) for each in private]
            )
        if result is None:
            self._in_place(call, known, private)
            return None
        label = self._label_of_call(call, known, result, private)
        if isinstance(result, list | dict) and result is known.owner:
            return result
        return self.put(result, label)

    def _in_place(self, call: _Call, known: Called, private: list[Label]) -> None:
        if known.owner is not None and call.owner is not None and call.named.get("inplace") is True:
            self._keep(known.owner, self._label_of_call(call, known, known.owner, private))

    def _label_of_call(
        self, call: _Call, known: Called, result: Any, private: list[Label]
    ) -> Label:
        name = known.name
        if name in _SAME and len(private) == 1 and private[0].level != "rows":
            return private[0]
        label = self.derive(name if name in libraries.MEANS else private[0].of, private)
        assert label is not None
        rows = [each for each in self._of_data(private) if each.level == "rows"]
        if name in libraries.KEEPS_ROWS and rows and all(each.each for each in rows):
            masks = rows[0].mask if len(private) == 1 and name in libraries.KEEPS_VALUES else None
            label = evolve(label, each=True, mask=masks)
        if libraries.is_table(result) and _along_rows(call):
            return label
        if call.owner is not None and call.owner.level == "rows" and known.library != "builtins":
            label = evolve(label, main=call.owner.main)
        if (name in ("sum", "len", "count_nonzero", "count") and len(private) == 1) or (
            name in libraries.MEANS | libraries.SIZES and name != "item"
        ):
            base = label if len(private) > 1 else private[0]
            made = self.made_few(name, base)
            return evolve(made, mixed=label.mixed, origins=label.origins)
        if (
            not libraries.is_table(result)
            and label.level == "rows"
            and not self._holds_rows(result)
        ):
            label = evolve(label, level="few", of=label.of if label.of in ("cell", "row") else name)
        if name in libraries.FITTED:
            rowwise = type(known.owner).__name__ in libraries.ROWWISE
            if not rowwise and label.mixed is None:
                label = evolve(label, mixed=("bounds", name, label.origins))
        if name in libraries.CHOSEN and label.mixed is None:
            label = evolve(label, mixed=("filter", name, label.origins), filtered=True)
        if name == "cut" and len(call.arguments) > 1 and isinstance(call.arguments[1], int):
            label = evolve(label, mixed=label.mixed or ("bounds", "cut", label.origins))
        if name == "filter" and len(private) == 1 and "GroupBy" in type(known.owner).__name__:
            label = evolve(label, mixed=label.mixed or ("filter", "filter", label.origins))
        if name in ("filter", "query", "where", "dropna", "drop_nulls", "isin", "sample", "head"):
            if label.mixed is not None and label.mixed[0] == "bounds" and name != "isin":
                label = evolve(label, mixed=("filter", *label.mixed[1:]))
            label = evolve(label, filtered=True)
        if name in (
            "isin",
            "isna",
            "isnull",
            "notna",
            "notnull",
            "between",
            "is_in",
            "contains",
            "is_null",
            "is_between",
            "duplicated",
            "startswith",
            "ge",
            "gt",
            "le",
            "lt",
        ):
            label = evolve(label, of="compare")
            if label.mixed is not None and label.mixed[0] == "bounds":
                label = evolve(label, mixed=("filter", *label.mixed[1:]))
        if name in ("get_dummies", "pivot", "unstack", "transpose", "to_dummies"):
            label = evolve(label, names=True)
        if name in ("clip", "minimum", "maximum") and len(private) == 1:
            ends = [
                abs(self.plain(each))
                for each in (*call.arguments, *call.named.values())
                if isinstance(each, int | float) and not isinstance(each, bool)
            ]
            if name == "clip" and len(ends) == 2:
                label = evolve(label, clip=float(max(ends)))
        elif name not in (
            "dropna",
            "to_numpy",
            "tolist",
            "to_list",
            "astype",
            "fillna",
            "list",
            "copy",
            "head",
            "cast",
            "array",
            "asarray",
            "drop_nulls",
        ):
            label = evolve(label, clip=None)
        return label

    @staticmethod
    def _holds_rows(result: Any) -> bool:
        kind = type(result)
        if isinstance(result, list | tuple | dict | set | types.GeneratorType):
            return True
        return any(
            word in kind.__name__
            for word in (
                "GroupBy",
                "Indexer",
                "iterator",
                "Frame",
                "Dataset",
                "Loader",
                "Rolling",
                "zip",
                "map",
                "generator",
                "reader",
                "Matrix",
                "Query",
            )
        )

    def _built_release(self, call: _Call, known: Called, place: Site, result: Any) -> Any:
        """Look for parameters of a mechanism, or of a part of one, that follow the data."""
        given: dict[Any, Any] = dict(enumerate(call.given[0]))
        given |= call.given[1]
        labels = {
            name: [each for each in self.labels_in(value) if not each.released]
            for name, value in given.items()
            if libraries.called(type(value)).library != known.library
        }
        own = [each for found in labels.values() for each in found]
        self._followed(str(known), place, own)
        followed = [each for each in own if each.level != "size" or each.filtered]
        if known.library == "opendp" and (call.owner is not None or followed):
            # what OpenDP makes of it is as private: its map depends on it
            return self.put(result, call.owner or self.derive("parameter", followed))
        if followed and (labels.get("epsilon") or labels.get("delta") or labels.get(0)):
            self._private_losses.append((result, followed[0]))
        return result

    def _followed(self, what: str, place: Site, labels: list[Label]) -> None:
        for label in labels:
            if label.level == "size" and not label.filtered:
                self.assumed.setdefault(
                    "the number of rows is public: a parameter of a mechanism follows it", place
                )
                continue
            self.sightings.append(
                Sighting(
                    "bounds",
                    place,
                    f"a parameter of {what} is taken from the data ({_said(label)})",
                    label.origins,
                )
            )

    def _sink(self, way: str, place: Site, what: str, labels: list[Label]) -> None:
        """Note what leaves: values of data, or values that stand under a condition on them."""
        own = [each for each in labels if not each.released and each.origins]
        for label in own:
            kind, words = self._kind_of(way, label)
            self.sightings.append(Sighting(kind, place, words, label.origins, label.noised))
        if not own:
            for condition in self._private_conditions(("if",)):
                assert condition.label is not None
                self.sightings.append(
                    Sighting(
                        "filter",
                        place,
                        f"whether this is {way} depends on a condition on the data "
                        f"(line {self.sites[condition.site].line})",
                        condition.label.origins,
                    )
                )
            if self._inside and not own and way != "plotted":
                inner = self._inside[-1]
                if inner.origins and not self._calls_since_inside():
                    self.sightings.append(
                        Sighting("raw", place, f"a value of the data is {way}", inner.origins)
                    )

    def _calls_since_inside(self) -> bool:
        """Whether no library calls the analysis's own code now."""
        kinds = [
            each for each in self._calls if each.kind == "plain" and (each.labels or each.owner)
        ]
        return not kinds

    def _kind_of(self, way: str, label: Label) -> tuple[str, str]:
        if way == "plotted":
            return "plot", "a plot of the data"
        if label.of in ("cell", "row", "key") or label.level == "rows":
            thing = {
                "key": "a key that is in the data",
                "cell": "one person's value",
                "row": "one person's value",
            }.get(label.of, "rows of the data")
            return "raw", f"{thing}: {way} as they are" if thing.startswith(
                "rows"
            ) else f"{thing}: {way} as it is"
        if label.of == "selection":
            return "filter", f"which items are {way} was chosen by the data"
        return "mean", f"{_said(label)} without noise is {way}"

    def _released(self, call: _Call, known: Called, place: Site, result: Any) -> Any:
        """Note a release, with what it claims and what speaks against that."""
        release = call.detail
        data: list[Label] = []
        for each in release.data:
            data += list(self.labels_in(each))
        own = [each for each in data if not each.released]
        origins = self._mains(own)
        if not origins:
            origins = next(
                (frozenset(each.origins) for each in self.budgets
                 if each.object is release.budget and each.origins),
                _NONE,
            )  # fmt: skip
        if not origins:
            origins = self.data(place, f"what {known} reads", private=True).origins
        self._make_private(origins)
        for name, each in release.others.items():
            labels = list(self.labels_in(each))
            followed = [label for label in labels if not label.released]
            if followed:
                self._followed(f"{known} ({name})", place, followed)
            if name in ("epsilon", "delta", "noise_multiplier", "target_epsilon") and any(
                label.released for label in labels
            ):
                self._adaptive(known, place, release, origins)
        if release.takes_rows:
            for label in own:
                if label.mixed is not None:
                    kind, of, by = label.mixed
                    self.sightings.append(Sighting(kind, place, _mixed_words(kind, of), by))
        else:
            for label in own:
                if label.mixed is not None and label.mixed[0] == "filter":
                    kind, of, by = label.mixed
                    self.sightings.append(Sighting(kind, place, _mixed_words(kind, of), by))
        counts = known.library == "diffprivlib" and known.name == "count_nonzero"
        parts = {(each.mask if counts else None) or each.part for each in own}
        part = parts.pop() if len(parts) == 1 else None
        self._conditional(known, place, own)
        moves = own[0].moves if len(own) == 1 else None
        claim: Claim = release.claim(result, moves)
        doubts = tuple(self._doubts(call, release, part))
        for kind, words in claim.wrong:
            self.sightings.append(Sighting(kind, place, words, origins))
        budget = self._charge(known, release, origins)
        engine = release.budget if known.library in ("opacus",) or claim.why == "session" else None
        self.spent.append(
            Spent(str(known), place, origins, claim, part, budget, claim.loss, engine, doubts)
        )
        released = Label(_NONE, "release", "few", released=True)
        if known.library == "opacus" and own:
            for each in result if isinstance(result, tuple) else ():
                if "Loader" in type(each).__name__:  # it reads the same data
                    self._keep(each, own[0])
        if result is known.owner or known.library in ("opacus", "adaptive_dp", "opendp"):
            return (
                result if not isinstance(result, int | float | str) else self.put(result, released)
            )
        return self.put(result, released)

    def _doubts(self, call: _Call, release: Any, part: Any) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield why a claimed loss would itself tell of data, and of which: it is not said then."""
        names = [
            *(("epsilon", "delta") if release.takes_rows else ()),
            *(("noise_multiplier", "target_epsilon", "target_delta", "max_grad_norm")),
        ]
        own = [each for name in names for each in self.labels_in(release.others.get(name))]
        owner = call.known.owner if call.known is not None else None
        own += [label for each, label in self._private_losses if each is owner]
        is_opendp = call.known is not None and call.known.library == "opendp"
        if is_opendp and call.owner is not None and type(owner).__name__ == "Measurement":
            own.append(call.owner)
        for label in own:
            if not label.released:
                follows = "its loss was computed from the data, and is as private as they are"
                yield follows, label.origins
        if part is None or part[0][0] != "groups":
            for condition in self._private_conditions(("if", "keys")):
                assert condition.label is not None
                under = "whether, or how often, it is made depends on the data"
                yield under, condition.label.origins

    def _mains(self, labels: list[Label]) -> frozenset[int]:
        """Return the data whose rows are read; lists that are written out only if alone."""
        every: frozenset[int] = frozenset().union(*(each.main for each in labels))
        others = frozenset(n for n in every if self.origins[n].what != "list")
        return others or every

    def _make_private(self, origins: Iterable[int]) -> None:
        for number in origins:
            self.origins[number].private |= not self.origins[number].noise

    def _conditional(self, known: Called, place: Site, own: list[Label]) -> None:
        """Note a release that happens only under a condition on the data."""
        for condition in self._private_conditions(("if", "keys")):
            assert condition.label is not None
            line = self.sites[condition.site].line
            words = (
                f"whether {known} is called depends on a condition on the data (line {line}), "
                "which nothing accounts for"
                if condition.kind == "if"
                else f"{known} is called once for each key that is in the data (line {line}): "
                "which keys there are is released too, and nothing accounts for that"
            )
            self.sightings.append(Sighting("filter", place, words, condition.label.origins))

    def _adaptive(self, known: Called, place: Site, release: Any, origins: frozenset[int]) -> None:
        budget = release.budget or (
            libraries.default_accountant() if known.library == "diffprivlib" else None
        )
        limit = getattr(budget, "epsilon", float("inf"))
        if budget is None or limit == float("inf"):
            self.sightings.append(
                Sighting(
                    "filter",
                    place,
                    f"what {known} spends was chosen by released values, and no budget with a "
                    "limit (a privacy filter) bounds the sum",
                    origins,
                )
            )

    def _charge(self, known: Called, release: Any, origins: frozenset[int]) -> int:
        """Return the number of the budget that a release is charged to, -1 for none."""
        budget = release.budget
        if budget is None and known.library == "diffprivlib":
            budget = libraries.default_accountant()
        for number, each in enumerate(self.budgets):
            if each.object is budget and budget is not None:
                each.origins |= origins
                each.used = True
                return number
        return -1

    def _budget(self, call: _Call, known: Called, place: Site, result: Any) -> Any:
        """Note a new budget."""
        title = call.detail
        data = list(libraries.data_of_budget(title, *call.given))
        own = [each for value in data for each in self.labels_in(value) if not each.released]
        origins = self._mains(own)
        if data and not origins and title != "BudgetAccountant":
            origins = self.data(place, f"what {known} reads", private=True).origins
        self._make_private(origins)
        others = [each for each in call.labels if each not in own and not each.released]
        self._followed(str(known), place, others)
        for label in own:
            if label.mixed is not None:
                kind, of, by = label.mixed
                self.sightings.append(Sighting(kind, place, _mixed_words(kind, of), by))
        continues = libraries.continues(known, call.named, call.arguments)
        self.budgets.append(Budget(title, place, result, set(origins), continues))
        if title in ("Context.compositor",):
            return self.put(result, self.derive("context", own) if own else None)
        return result


class _Items:
    """The items of labelled data, each with the label: for ``zip`` and ``enumerate``."""

    def __init__(self, recorder: Recorder, value: Any, label: Label) -> None:
        self.recorder, self.value, self.label = recorder, value, label

    def __iter__(self) -> Iterator[Any]:
        return (self.recorder.put(item, self.label) for item in self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __reversed__(self) -> Iterator[Any]:
        return (self.recorder.put(item, self.label) for item in reversed(self.value))


_SAME = frozenset({"float", "int", "round", "abs", "item", "float64", "int64", "float32", "copy"})
"""Functions of a number that change nothing of what it is."""


def _along_rows(call: _Call) -> bool:
    """Whether a sum or the like is taken within each row."""
    axis = call.named.get("axis")
    at = 0 if call.owner is not None else 1
    if axis is None and len(call.arguments) > at and type(call.arguments[at]) is int:
        axis = call.arguments[at]
    return type(axis) in (int, str) and axis in (1, -1, "columns")


def _said(label: Label) -> str:
    """Return what a value is, in words."""
    of = label.of
    if of in ("len", "shape", "size", "height", "count"):
        return "a count of rows"
    if of in libraries.MEANS:
        return f"the {of.replace('_', ' ')} of rows"
    return "a number computed from rows" if of else "a value of the data"


def _mixed_words(kind: str, of: str) -> str:
    thing = f"the {of}" if of in libraries.MEANS else of or "a number"
    if kind == "filter":
        return (
            f"the rows that it reads were chosen by the data ({thing}): one person's data decide "
            "over other rows, which its claim does not count"
        )
    return (
        f"the rows that it reads were changed by what other rows are ({thing}): one person's data "
        "move other rows, which its claim does not count"
    )


def install(recorder: Recorder) -> None:
    """Make a recorder known to rewritten code.

    Raises
    ------
    RuntimeError
        If another trace runs in this process.
    """
    if hasattr(builtins, NAME):
        raise RuntimeError("another trace runs in this process: traces cannot be nested")
    setattr(builtins, NAME, recorder)


def remove() -> None:
    """Undo `install`."""
    if hasattr(builtins, NAME):
        delattr(builtins, NAME)
