"""Values: converters of what users write, copies that share nothing, and JSON-like forms."""

from __future__ import annotations

import ctypes
import json
import math
import numbers
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Set
from copy import deepcopy
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from html import escape
from time import monotonic as time_now
from typing import Any, TypeVar, cast

import attrs
import numpy as np
from attrs import field, frozen

from accountants.document import short_repr
from adaptive_dp.graph.errors import DeclarationError, DocumentError, LimitError

# -----------------------------------------------------------------------------
# Converters of fields: what a user (or a document) writes, as immutable values.


def strings(value: Iterable[str]) -> tuple[str, ...]:
    """Return str values as a tuple.

    Raises
    ------
    DeclarationError
        If ``value`` is one str (which would fall apart into letters), or holds anything else.
    """
    items = as_tuple(value)
    for item in items:
        if not isinstance(item, str):
            raise DeclarationError(f"expected a list of str, got {item!r} in it")
    return items


def as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """Return values as a tuple.

    Raises
    ------
    DeclarationError
        If ``value`` is not a list; one str is not a list.
    """
    # a str is iterable too, character by character
    if isinstance(value, str):
        raise DeclarationError(f"expected a list, got the str {value!r}; write [{value!r}]")
    try:
        return tuple(value)
    except TypeError:
        raise DeclarationError(f"expected a list, got {value!r}") from None


def optional_tuple(value: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """Return values as a tuple, or None where there are none."""
    return None if value is None else as_tuple(value)


POSITIVE = "positive finite number below 1e300"


def number(value: Any) -> Any:
    """Return a real number, NumPy's and fractions too, as a plain int or float.

    Anything else, a truth value included, is returned as it is, for a validator to refuse.

    Examples
    --------
    >>> from fractions import Fraction
    >>> number(Fraction(1, 4)), number(True)
    (0.25, True)
    """
    # a bool is a number in Python, and not one here
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    try:
        return float(value)
    except OverflowError:
        # too large for a float: left as it is, for the validator to refuse
        return value


def as_int(value: Any) -> int | None:
    """Return an integer, NumPy's too, as an int; None for anything else."""
    plain = number(value)
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None


def positive(value: Any) -> bool:
    """Whether a value is a plain positive number below 1e300."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    # infinity and NaN fail the comparisons
    return plain and 0 < value < 1e300


# -----------------------------------------------------------------------------
# Copies that share nothing: no function of a user's reaches into the plan, or into another's.


_FLAT = frozenset({type(None), bool, int, float, str})


def deep_copy(value: Any) -> Any:
    """Return a copy of a value that shares no mapping, list, tuple or array with it.

    Whatever else cannot be copied is passed on as it is.

    Examples
    --------
    >>> inner = [1.0]
    >>> deep_copy({"a": inner})["a"] is inner
    False
    """
    # immutable: no copy is needed
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # the usual list, of plain numbers and texts: many times as fast as one call for each
    if type(value) is list and _FLAT.issuperset(map(type, value)):
        return value.copy()
    try:
        return deepcopy(value)
    except Exception:  # a generator, say: what can be copied around it still is
        return _pieces(value)


def _pieces(value: Any) -> Any:
    # exact types: a subclass may hold more than its items
    if type(value) is dict:
        return {key: deep_copy(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(deep_copy(inner) for inner in value)
    # what cannot be copied is shared, as it is
    return value.copy() if isinstance(value, np.ndarray) else value


# -----------------------------------------------------------------------------
# Released values as JSON-like values, whatever a function made of them.
#
# A release is spent when it is drawn, so showing it must not fail: what has no form of its own is
# shown by its ``repr``, and what has not even that by its type.


MAX_SHOWN_DEPTH = 32
"""Values nested deeper than this are shown by their ``repr``."""
DIGITS = 300
"""Integers of more digits than a float can hold are written as str."""


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as numbers, str, bool, None, lists and mappings with str keys.

    Examples
    --------
    >>> import numpy as np
    >>> plain({1: np.arange(2.0), "b": (float("nan"), 1j)})
    {'1': [0.0, 1.0], 'b': ['nan', '1j']}
    """
    # never raises: the value was paid for
    try:
        return _plain_value(value, depth)
    except Exception:  # a type whose own methods fail
        return safe_repr(value)


def safe_repr(value: Any) -> str:
    """Return a value's ``repr``, or its type's name where that fails."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _plain_value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # subclasses of str, int and float become the plain types
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if abs(value) < 10**DIGITS else _huge(value)
    if isinstance(value, float):
        # JSON has no NaN and no infinities
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, complex | Decimal | Fraction | date | time | timedelta):
        return str(value)
    if isinstance(value, np.generic):
        return _generic(value, depth)
    if depth >= MAX_SHOWN_DEPTH:
        return safe_repr(value)
    if isinstance(value, Mapping):
        return _mapping(value, depth)
    if isinstance(value, np.ndarray):
        return _array(value, depth)
    # sets have no order of their own: sorted by their repr
    if isinstance(value, Set):
        return plain(sorted(value, key=safe_repr), depth + 1)
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return _frame(value, depth)


def _huge(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python writes in base ten
        return hex(value)


def _generic(value: np.generic, depth: int) -> Any:
    item = str(value) if value.dtype.kind in "mM" else value.item()
    return str(value) if isinstance(item, np.generic) else plain(item, depth)


def _array(value: np.ndarray[Any, Any], depth: int) -> Any:
    # millions of numbers as they are, unless JSON lacks one of them
    if value.dtype.kind in "bi" or (value.dtype.kind == "f" and np.isfinite(value).all()):
        return value.tolist() if depth + value.ndim < MAX_SHOWN_DEPTH else safe_repr(value)
    convertible = value.astype(np.str_) if value.dtype.kind in "mM" else value
    return plain(convertible.tolist(), depth + 1)


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    pairs = list(value.items())
    keys = [str(plain(key)) for key, _ in pairs]
    if len(set(keys)) < len(keys):  # such as 1 and "1"
        keys = [safe_repr(key) for key, _ in pairs]
    return {key: plain(item, depth + 1) for key, (_, item) in zip(keys, pairs, strict=True)}


def _frame(value: Any, depth: int) -> Any:
    """Return a pandas or polars object as its columns; anything else by its ``repr``."""
    # by the module's name, so that neither library has to be installed
    module = type(value).__module__.partition(".")[0]
    if module == "pandas" and hasattr(value, "index") and hasattr(value, "to_dict"):
        # repeated labels would overwrite each other in a mapping
        if value.index.is_unique and getattr(value, "columns", value.index).is_unique:
            return plain(value.to_dict(), depth + 1)
        return plain(value.to_numpy(), depth + 1)
    if module == "polars" and hasattr(value, "to_dict"):
        return plain(value.to_dict(as_series=False), depth + 1)
    if module == "polars" and hasattr(value, "to_list"):
        return plain(value.to_list(), depth + 1)
    return safe_repr(value)


# -----------------------------------------------------------------------------
# Strings as people should see them: on one line, without characters that hide or reorder others.


HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are not seen, or that move others (as U+202E does)."""


def visible(text: object) -> str:
    r"""Return a str with line breaks, control and direction characters written as escapes.

    Examples
    --------
    >>> print(visible("two\nlines"), visible("a\u202eb"), visible("漢字 é"))
    two\nlines a\u202eb 漢字 é
    """
    characters = str(text)
    if characters.isprintable():  # the usual case
        return characters
    return "".join(_escaped(c) if unicodedata.category(c) in HIDDEN else c for c in characters)


def html_text(text: object) -> str:
    """Return a str as HTML for a notebook, escaped and line by line as people should see it.

    Examples
    --------
    >>> html_text("2 < 3")
    '<pre>2 &lt; 3</pre>'
    """
    lines = "\n".join(map(visible, str(text).split("\n")))
    return f"<pre>{escape(lines)}</pre>"


def cut(text: str, width: int, *, end: bool = False) -> str:
    """Return a str shortened to a number of characters; with ``end`` its last ones stay.

    Examples
    --------
    >>> cut("a long name[0]", 11), cut("a long name[0]", 11, end=True)
    ('a long n...', 'a long...0]')
    """
    if len(text) <= width:
        return text
    room = max(0, width - 3)
    # a quarter of the room for the end
    tail = room // 4 if end else 0
    return text[: room - tail] + "..." + text[len(text) - tail :]


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


# -----------------------------------------------------------------------------
# What any document is made of, before anything is read from it.


MAX_DOCUMENT_DEPTH = 64
"""Documents may be nested this deep."""


def _positive(limits: Any, attribute: Any, value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and value > 0):
        raise DeclarationError(
            f"Limits.{attribute.name} must be a positive number, math.inf for none, got {value!r}"
        )


@frozen
class Limits:
    """What reading a document, or recomputing a certificate, may take before it is refused.

    The defaults leave room for every plan that the library was tried with, and end what would take
    all of a machine. Whoever reads documents of strangers takes `Limits.strangers`, or sets others.

    Parameters
    ----------
    size
        Characters of a document's text.
    nodes
        Nodes of a plan, those of loops' bodies among them.
    seconds
        Of the clock, from the call on; ``math.inf`` for no limit.
    memory
        Bytes by which the process may grow meanwhile, other threads' among them; ``math.inf`` for
        no limit. Enforced where ``/proc`` says how large a process is (Linux).

    Notes
    -----
    Size, nodes and depth (64) are counted before anything is computed. Seconds and memory are
    watched by a thread, every 20 milliseconds; the work is interrupted between two steps of the
    Python interpreter, which are short here. What it computed is dropped.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> text = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2))).to_json()
    >>> strict = Limits(size=100, nodes=1_000, seconds=1.0, memory=1e9)
    >>> dp.load(text, limits=strict)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LimitError: plan: a document of 418 characters, and at most 100 are
    read; see Limits.size
    """

    size: float = field(default=2.0**28, validator=_positive)
    nodes: float = field(default=2e6, validator=_positive)
    seconds: float = field(default=600.0, validator=_positive)
    memory: float = field(default=2.0**34, validator=_positive)

    @classmethod
    def strangers(cls) -> Limits:
        """Return limits for documents of strangers: each refuses within a second.

        A million characters, 10,000 nodes, 2^30 bytes, and 0.75 seconds for each call, which leaves
        a quarter of a second for the interruption.

        Examples
        --------
        >>> Limits.strangers()
        Limits(size=1000000.0, nodes=10000.0, seconds=0.75, memory=1073741824.0)
        """
        return cls(size=1e6, nodes=1e4, seconds=0.75, memory=2.0**30)

    def check_file(self, path: str | os.PathLike[str]) -> None:
        """Refuse a file that is surely too long, before it is read.

        Raises
        ------
        LimitError
            If so.
        """
        try:
            size = os.path.getsize(path)
        except OSError:  # whoever reads it says so
            return
        if size > 4 * self.size:  # a character has four bytes at most
            raise LimitError(
                f"{os.fspath(path)} has {size:,} bytes, and at most {self.size:,.0f} characters "
                "are read; see Limits.size"
            )

    def check_text(self, text: Any, name: str) -> None:
        """Refuse a text that is too long, or has a TOML key of so many parts that parsing is slow.

        Raises
        ------
        LimitError
            If so; ``name`` is what the document is called.
        """
        if not isinstance(text, str):
            return
        if len(text) > self.size:
            raise LimitError(
                f"{name}: a document of {len(text):,} characters, and at most {self.size:,.0f} are "
                "read; see Limits.size"
            )
        if text.lstrip().startswith("{"):  # JSON has no dotted keys
            return
        # what stands before "=" or behind "[" may be a key; tomllib takes quadratic time in it
        keys = (
            piece[0]
            for piece in _PIECES.finditer(text)
            if piece.end() - piece.start() > MAX_DOCUMENT_DEPTH
            and (text.startswith("=", piece.end()) or piece[0].lstrip().startswith("["))
        )
        parts = max((key.count(".") for key in keys), default=0) + 1
        if parts > MAX_DOCUMENT_DEPTH:
            raise LimitError(
                f"{name}: a key of {parts:,} parts is nested deeper than {MAX_DOCUMENT_DEPTH}; "
                "flatten it"
            )

    def check_nodes(self, nodes: Any, name: str) -> None:
        """Refuse a plan of too many nodes.

        Raises
        ------
        LimitError
            If so.
        """
        stack, count = [nodes], 0
        while stack:
            inside = stack.pop()
            if isinstance(inside, list | tuple):
                count += len(inside)
                stack += [each.get("body") for each in inside if isinstance(each, Mapping)]
        if count > self.nodes:
            raise LimitError(
                f"{name}: a plan of {count:,} nodes, and at most {self.nodes:,.0f} are read; see "
                "Limits.nodes"
            )

    def watched(self, name: str, work: Callable[[], T]) -> T:
        """Return what a function returns, interrupted when it takes too long, or too much memory.

        Raises
        ------
        LimitError
            If so.

        Notes
        -----
        A function, not a context manager: the second interruption of a slow machine may arrive
        while the first one rises, and in ``__exit__`` of a context manager it would lose the end
        of the watch, which then interrupts whatever runs next.
        """
        if math.isinf(self.seconds) and math.isinf(self.memory):
            return work()
        watch = _Watch(self)
        try:
            try:
                watch.start()
                return work()
            finally:
                # before anything is called: an interruption may arrive in every call
                watch.over = True
                # the one that was on its way arrives here, or is taken back
                watch.end()
        except watch.kind:  # type: ignore[misc]
            raise LimitError(f"{name}: {watch.reason}") from None


_PIECES = re.compile(r"[^={},\n]+")  # no lookahead: linear in any text

AGAIN = 1.0
"""Seconds between two interruptions of one thread: long beside what an exception takes to rise.

And beside what whoever reports one that was swallowed takes to write it down.
"""


class _Interrupted(BaseException):
    """Raised in a thread from outside; no ``except Exception`` on its way may stop it."""


class _Watch:
    """A thread that raises `_Interrupted` in the one that made it, once a limit is passed."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.reason, self.over = limits, "", False
        # a class of its own: of two watches one inside the other, each knows its interruption
        self.kind = type("_Interrupted", (_Interrupted,), {})
        self._target, self._ended = threading.get_ident(), threading.Event()
        self._lock = threading.Lock()
        self._until, self._most = time_now() + limits.seconds, _resident() + limits.memory

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, daemon=True, name="adaptive-dp limits").start()

    def end(self) -> None:
        """Stop; afterwards nothing is raised any more."""
        risen: _Interrupted | None = None
        while not self._ended.is_set():
            try:
                with self._lock:  # one that is being raised is raised before it is taken back
                    if self.reason:
                        _raise_in(self._target, None)
                    self._ended.set()
            except _Interrupted as interrupted:  # this watch's, or that of one around it
                risen = interrupted
        if risen is not None:
            raise risen

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            if time_now() > self._until:
                reason = f"it took longer than {self.limits.seconds:g} seconds; see Limits.seconds"
            elif _resident() > self._most:
                reason = f"it took more than {self.limits.memory:.3g} bytes; see Limits.memory"
            else:
                continue
            # again and again: one that lands in a callback of the garbage collector is swallowed
            while not self._ended.wait(AGAIN if self.reason else 0):
                # under the lock: once it is over, `end` waits for one that is being raised
                with self._lock:
                    if not self.over:
                        self.reason = reason
                        _raise_in(self._target, self.kind)
            return


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in another thread, at its next step; None takes back what is due."""
    thrown = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), thrown)


def _resident() -> float:
    """Return the size of the process in bytes; 0 where that is not known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


LIMITS = Limits()
"""The default limits."""


def check_values(document: Any, name: str) -> None:
    """Check that a document is made of str, finite numbers, lists and mappings, not too deep.

    Raises
    ------
    DocumentError
        If not, with the place; ``name`` is what the document is called.
    """
    # most documents are right, and of those that are not the place is looked for
    whole = dict(document) if isinstance(document, Mapping) else document
    if _is_plain(whole, MAX_DOCUMENT_DEPTH):
        return
    # a stack instead of recursion: documents are nested as deep as their writers like
    stack: list[tuple[Any, str, int]] = [(document, name, 0)]
    while stack:
        value, where, depth = stack.pop()
        if depth > MAX_DOCUMENT_DEPTH:
            raise DocumentError(
                f"{where[:80]}...: nested deeper than {MAX_DOCUMENT_DEPTH}; flatten it"
            )
        prefix = "" if where == name else f"{where}."
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise DocumentError(f"{where}: a key must be a str, got {key!r}")
                stack.append((inner, f"{prefix}{key}", depth + 1))
        elif isinstance(value, list | tuple):
            stack.extend((inner, f"{where}[{i}]", depth + 1) for i, inner in enumerate(value))
        elif isinstance(value, int | float):
            # NaN fails this comparison as well; a bool passes, as 0 or 1
            if not -1e300 < value < 1e300:
                raise DocumentError(
                    f"{where} must be a finite number below 1e300 in size, got "
                    f"{short_repr(value)}; a constant that is not is written as "
                    f"{{'float': 'nan'}}, 'inf' or '-inf'"
                )
        elif value is not None and not isinstance(value, str):
            raise DocumentError(
                f"{where} must be a number, str, list or mapping, got {type(value).__name__}"
            )


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether a value is surely one that `check_values` admits, nested so deep at most."""
    if depth < 0:
        return False
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is float or kind is int:
        return bool(-1e300 < value < 1e300)  # not NaN either
    if kind is dict:
        return {str}.issuperset(map(type, value)) and all(
            _is_plain(inner, depth - 1) for inner in value.values()
        )
    return kind is list and all(_is_plain(inner, depth - 1) for inner in value)


_ATOMS = frozenset({str, int, float, bool, type(None)})


def copied(value: Any) -> Any:
    """Return a copy of a JSON value, which shares nothing with it that could change."""
    # the exact types first: most values of a document of a million nodes are these
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {n: v if type(v) in _ATOMS else copied(v) for n, v in value.items()}
    if kind is list and _ATOMS.issuperset(map(type, value)):
        return value[:]
    if isinstance(value, Mapping):
        return {name: copied(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [copied(inner) for inner in value]
    return str(value) if isinstance(value, str) else value  # NumPy's str too


def json_text(document: Mapping[str, Any], *, sort_keys: bool = True) -> str:
    """Return a document as JSON, a line for each entry of a section.

    Lines are indented by one space for each level; what is inside of an entry is on its line. (An
    encoder that indents every level makes a str for each token: of a certificate of 100,000
    releases a gigabyte.)

    Examples
    --------
    >>> document = {"plan": {"nodes": [{"id": "n", "inputs": ["a", "b"]}]}, "delta": 0.5}
    >>> print(json_text(document), end="")
    {
     "delta": 0.5,
     "plan": {
      "nodes": [
       {"id": "n", "inputs": ["a", "b"]}
      ]
     }
    }
    """
    # without a search for circles: a document has none
    line = json.JSONEncoder(sort_keys=sort_keys, allow_nan=False, check_circular=False).encode
    lines: list[str] = []

    def write(value: Any, key: str, comma: str, depth: int) -> None:
        before = " " * depth + key
        entries = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
        sections = isinstance(value, dict | list) and bool(value) and depth < 2
        if not (sections or (entries and depth == 2)):
            lines.append(f"{before}{line(value)}{comma}")
            return
        named = isinstance(value, dict)
        keys = sorted(value) if named and sort_keys else value
        pairs = [(f"{line(k)}: ", value[k]) for k in keys] if named else [("", v) for v in value]
        lines.append(before + ("{" if named else "["))
        for i, (inside, each) in enumerate(pairs, 1):
            write(each, inside, "," if i < len(pairs) else "", depth + 1)
        lines.append(f"{' ' * depth}{'}' if named else ']'}{comma}")

    write(document, "", "", 0)
    return "\n".join(lines) + "\n"


# -----------------------------------------------------------------------------
# The attrs fields of a class that only its subclasses declare as attrs classes.
#
# Operations and mechanisms are attrs classes, their bases are not, so a type checker does not
# know that every instance has fields. These two functions are the one place that says so.


T = TypeVar("T")


_fields = cache(cast(Any, attrs.fields))


def fields_of(cls: type) -> tuple[attrs.Attribute[Any], ...]:
    """Return the fields of an attrs class, in order."""
    return _fields(cast(Any, cls))  # type: ignore[no-any-return]


def evolved(value: T, **changes: Any) -> T:
    """Return a copy of an attrs instance with some fields changed."""
    return cast(T, attrs.evolve(cast(Any, value), **changes))
