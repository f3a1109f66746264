"""A function with one loop over its answers, taken apart: a start, a step and a finish.

What is between two turns of the loop is a *state*: constants, and numbers that are unknown. The
step runs once on an unknown state and an unknown answer, for each of the constants that can occur,
and so is a decision tree, as the start and the finish are. Together they are the function for every
length of its answers.

Here the source of the function is read: where the loop begins and ends, and which variables live
across its turns. It is compiled again piece by piece, by Python itself; that the source is the
function's is checked against its code.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np
from attrs import field, frozen

from adaptive_dp.prove.program import (
    Expression,
    Program,
    ProgramError,
    Way,
    check_closed,
    tree_of,
)

MOST_STATES = 64
"""More constants than this between two turns are not followed: a count without a bound."""
MOST_STEP_PATHS = 256
"""More paths than this through one turn are not looked at."""

NOW, GUESS, OTHER = "position:now", "position:guess", "position:other"
SECOND = "position:second"
"""Where an answer is, as a state and an output write it: this turn's, the one that is returned in
the end (the first of two, or the second), or another."""
GUESSES = (GUESS, SECOND)
MARKS = ("position:", "fraction:", "unset:")


class Position:
    """Where an answer is, for every length: it may be kept and returned, and nothing else."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("_refuse", "_which")

    def __init__(self, which: str, refuse: Callable[[str], NoReturn]) -> None:
        self._which, self._refuse = which, refuse

    def _used(self, *_: Any) -> NoReturn:
        self._refuse(
            "a computation with a position, in a proof for every length: keep it or return it; "
            "count in a variable that begins again (such as size = 0 where a block is full)"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _used
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _used
    __bool__ = __int__ = __float__ = __index__ = __str__ = __repr__ = __format__ = _used
    __divmod__ = __and__ = __or__ = __xor__ = __neg__ = __abs__ = __lshift__ = __rshift__ = _used


@frozen
class Ending:
    """One way through a start, a step or a finish.

    Parameters
    ----------
    way
        Its draws and conditions: of answer ``q0`` and of the state's unknown numbers ``q1, ...``.
    after
        The state after it; None where the function returns.
    numbers
        The state's unknown numbers after it.
    symbol
        What is released: the constants of what is emitted or returned.
    released
        The numbers in it.
    """

    way: Way
    after: str | None
    numbers: tuple[Mapping[str, Fraction], ...]
    symbol: str
    released: tuple[Mapping[str, Fraction], ...]


@frozen
class Piece:
    """A start, a step or a finish: its tree, and the ways through it."""

    tree: Program = field(repr=False)
    endings: tuple[Ending, ...]


@frozen
class Loop:
    """A function for every length.

    Parameters
    ----------
    name
        Of the function.
    variables
        The names of a state's parts.
    start
        Before the first turn.
    steps, finishes
        For each state, written as text: one turn, and what is done after the last.
    """

    name: str
    variables: tuple[str, ...]
    start: Piece
    steps: Mapping[str, Piece]
    finishes: Mapping[str, Piece]


def places(state: str) -> int:
    """Return how many unknown numbers a state has."""
    return _places(ast.literal_eval(state))


def _places(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_places, value))
    return int(value is ...)


def text_of(value: Any) -> str:
    """Return a state or an output as Python text."""
    if value is ...:
        return "..."
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{text_of(each)}, " for each in value) + ")"
    return repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)


def renamed(state: str, now: str) -> str:
    """Return a state after its turn: this turn's position is one that is guessed, or another."""
    return state.replace(f"'{NOW}'", f"'{now}'")


def kept_in(text: str) -> int:
    """Return how many positions that were kept a state or an output has."""
    return sum(text.count(f"'{mark}'") for mark in (*GUESSES, OTHER))


def looped(function: Callable[..., Any]) -> Loop:
    """Return a function as its start, its steps and its finishes.

    Raises
    ------
    ProgramError
        If it is not one loop over its answers, or a state has no bound.
    """
    check_closed(function)
    parts = _Parts(function)
    one = _explored(parts, (GUESS, OTHER))
    if any(kept_in(state) > 1 for state in one.steps):
        return _explored(parts, (*GUESSES, OTHER))
    return one


def _explored(parts: _Parts, marks: Sequence[str]) -> Loop:
    """Return the parts of a loop, where positions are kept under some marks."""
    start = _piece(parts, None, "start")
    steps: dict[str, Piece] = {}
    finishes: dict[str, Piece] = {}
    pending = list(_states_after(start, marks))
    while pending:
        state = pending.pop()
        if state in steps:
            continue
        if len(steps) >= MOST_STATES:
            parts.refuse(
                f"more than {MOST_STATES} constants between two turns of its loop: a count without "
                "a bound; return when it is reached, or begin it again"
            )
        finishes[state] = _piece(parts, state, "finish")
        steps[state] = _piece(parts, state, "step")
        pending += _states_after(steps[state], marks)
    return Loop(parts.name, tuple(parts.variables), start, steps, finishes)


def _states_after(piece: Piece, marks: Sequence[str]) -> Iterator[str]:
    for ending in piece.endings:
        if ending.after is not None:
            found = dict.fromkeys(renamed(ending.after, mark) for mark in marks)
            # a turn is that of one position: none is there twice
            yield from (s for s in found if all(s.count(mark) < 2 for mark in GUESSES))


def _piece(parts: _Parts, state: str | None, which: str) -> Piece:
    count = 0 if state is None else places(state)
    tree = tree_of(_Run(parts, state, which), 1 + count, MOST_STEP_PATHS)
    if tree.rounded:
        raise ProgramError(
            f"{parts.name}: rounding of an answer, in a proof for every length: prove it for a "
            "number of answers"
        )
    endings = []
    for way in tree.paths():
        kind, *rest = ast.literal_eval(way.leaf.skeleton)
        if kind == "next":
            after, emitted = rest
            size = _places(after)
            endings.append(
                Ending(
                    way,
                    text_of(after),
                    way.leaf.forms[:size],
                    text_of(("next", emitted)),
                    way.leaf.forms[size:],
                )
            )
        else:
            endings.append(Ending(way, None, (), text_of(("return", rest[0])), way.leaf.forms))
    return Piece(tree, tuple(endings))


class _Run:
    """A start, a step or a finish as a function of numbers and noise, to be followed."""

    def __init__(self, parts: _Parts, state: str | None, which: str) -> None:
        self.parts, self.state, self.which = parts, state, which
        self.__name__ = parts.name
        self.__code__ = parts.function.__code__

    def __call__(self, numbers: Any, noise: Any) -> Any:
        parts = self.parts
        tracer = numbers[0]._tracer
        rest = iter(numbers[1:])
        values: dict[str, Any] = {}
        if self.state is not None:
            written = ast.literal_eval(self.state)
            for name, value in zip(parts.variables, written, strict=True):
                if value != "unset:":
                    values[name] = _read(value, rest, tracer)
        if self.which == "start":
            ended = parts.start(noise)
        elif self.which == "step":
            item = (Position(NOW, tracer.refuse), numbers[0]) if parts.counted else numbers[0]
            ended = parts.step(values, item, noise)
        else:
            ended = parts.finish(values, noise)
        if ended[0] == "return":
            value = _written(ended[1], tracer)
            self._check_positions(_texts(value).replace(NOW, ""), GUESSES)
            return ("return", value)
        _, after, emitted = ended
        lists: list[int] = []
        for each in [*(after[name] for name in parts.variables if name in after), *emitted]:
            _lists(each, lists)
        if len(set(lists)) < len(lists):
            tracer.refuse("one list under two names between turns: copy it")
        state = tuple(
            _written(after[name], tracer, kept=True) if name in after else "unset:"
            for name in parts.variables
        )
        self._check_positions(_texts(state), (NOW, *GUESSES))
        out = _written(emitted, tracer)
        if any(mark in _texts(out) for mark in (*GUESSES, OTHER)):
            tracer.refuse("a kept position is returned at the end, in a proof for every length")
        return ("next", state, out)

    def _check_positions(self, texts: str, marks: Sequence[str]) -> None:
        if texts.count("position:") > 2:
            self.parts.refuse(
                "more than two positions that are kept between turns, in a proof for every length: "
                "prove it for a number of answers, such as answers=8"
            )
        if any(texts.count(mark) > 1 for mark in marks):
            self.parts.refuse(
                "one position under two names, in a proof for every length: keep it once"
            )


def _read(value: Any, rest: Iterator[Any], tracer: Any) -> Any:
    """Return a value of a state: its text, with unknown numbers and positions in it."""
    if value is ...:
        return next(rest)
    if isinstance(value, list | tuple):
        return type(value)(_read(each, rest, tracer) for each in value)
    if isinstance(value, str) and value.startswith("position:"):
        return Position(value, tracer.refuse)
    if isinstance(value, str) and value.startswith("fraction:"):
        return Fraction(value.removeprefix("fraction:"))
    return value


def _written(value: Any, tracer: Any, *, kept: bool = False) -> Any:
    """Return a value as a state or an output writes it."""
    if isinstance(value, Position):
        return value._which
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if kept:
            tracer.refuse("an array that is kept between turns: keep numbers, or a list of them")
        value = value.tolist()
    if type(value) in (list, tuple):
        return type(value)(_written(each, tracer, kept=kept) for each in value)
    if isinstance(value, str) and any(mark in value for mark in MARKS):
        tracer.refuse(f"a text with one of {', '.join(MARKS)} in it: these are taken")
    if isinstance(value, Fraction):
        return f"fraction:{value}" if kept else value
    plain = value is None or type(value) in (bool, int, str, float) or not kept
    if kept and (value is ... or not (plain or isinstance(value, Expression) or _truth(value))):
        tracer.refuse(
            f"a {type(value).__name__} that is kept between turns: keep numbers, bool, str, None, "
            "and tuples and lists of them; a list of what is released is only appended to"
        )
    return bool(value) if kept and _truth(value) else value


def _texts(value: Any) -> str:
    """Return all texts in a value."""
    if isinstance(value, list | tuple):
        return " ".join(map(_texts, value))
    return value if isinstance(value, str) else ""


def _lists(value: Any, found: list[int]) -> None:
    if isinstance(value, list | tuple):
        if isinstance(value, list):
            found.append(id(value))
        for each in value:
            _lists(each, found)


def _truth(value: Any) -> bool:
    return type(value).__name__ == "Condition"


# -----------------------------------------------------------------------------
# The source.

FORBIDDEN = {
    ast.Try: "try",
    ast.TryStar: "try",
    ast.Delete: "del",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.ClassDef: "class",
    ast.With: "with",
    ast.Match: "match",
}
LOOKS = ("locals", "vars", "globals", "eval", "exec", "dir", "id")


class _Parts:
    """The start, the step and the finish of a function, compiled from its source.

    Parameters
    ----------
    function
        Whose source is read.
    """

    start: Callable[..., Any]
    step: Callable[..., Any]
    finish: Callable[..., Any]

    def __init__(self, function: Any) -> None:
        self.name = str(getattr(function, "__name__", "the function"))
        if not isinstance(function, FunctionType):
            self.refuse(f"it is a {type(function).__name__}: write a function with def")
        self.function = function
        tree = self._source()
        arguments = tree.args
        if (
            len(arguments.args) != 2
            or arguments.posonlyargs
            or arguments.kwonlyargs
            or arguments.vararg
            or arguments.kwarg
        ):
            self.refuse("its arguments must be (answers, noise): close over constants")
        self.answers, self.noise = (each.arg for each in arguments.args)
        self._refuse_what_is_not_followed(tree)
        body = [part for each in tree.body for part in _single(each)]
        loops = [i for i, each in enumerate(body) if isinstance(each, ast.For) and self._over(each)]
        if len(loops) != 1:
            self.refuse(
                f"a proof for every length needs one loop `for answer in {self.answers}:`, at the "
                f"outer level of the function; it has {len(loops)}"
            )
        before, loop, after = body[: loops[0]], body[loops[0]], body[loops[0] + 1 :]
        assert isinstance(loop, ast.For)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Name)
                and node.id == self.answers
                and node is not self._over(loop)
            ):
                self.refuse(
                    f"{self.answers} is used outside of `for answer in {self.answers}:`; a proof "
                    "for every length reads each answer in its turn",
                    node,
                )
        self.counted = isinstance(loop.iter, ast.Call)
        outputs = self._outputs(before, [*before, *loop.body, *loop.orelse, *after])
        if len(outputs) > 1:
            self.refuse("one list of what is released, in a proof for every length: append tuples")
        ending = [*loop.orelse, *after]
        stored = {n for each in [*before, loop, *after] for n in _stores(each)}
        # after `break` the loop's else does not run: what it binds, or where it returns, is no end
        live = _live(loop.body, _stores(loop.target))[0] | _loads(loop.target)
        live |= _live(ending, set())[0] | _live(after, set())[0]
        if self.noise in stored:
            self.refuse(f"it assigns to {self.noise}: use another name")
        self.variables = sorted((live & stored) - outputs)
        self._compile(before, loop, after, sorted(outputs), sorted(stored))

    def refuse(self, reason: str, node: ast.AST | None = None) -> NoReturn:
        """Refuse the function, at a line of it."""
        line = getattr(node, "lineno", 0)
        raise ProgramError(f"{f'line {line} of ' if line else ''}{self.name}: {reason}")

    def _source(self) -> ast.FunctionDef:
        code = self.function.__code__
        try:
            lines = inspect.getsource(self.function)
            tree = ast.parse(textwrap.dedent(lines)).body[0]
        except (OSError, TypeError, SyntaxError, IndexError):
            self.refuse("its source is not found: write it in a file or a notebook")
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list:
            self.refuse("write it as a function with def, without decorators")
        ast.increment_lineno(tree, code.co_firstlineno - tree.lineno)
        # what runs is the code: a file that was edited since has another
        again = self._within([tree], tree.name)
        if not _alike(again.__code__, code):
            self.refuse("its source has changed since it was read: import it again")
        return tree

    def _within(self, body: Sequence[ast.stmt], name: str) -> Any:
        """Return what a name is bound to by statements, in the scope of the function."""
        try:
            contents = [cell.cell_contents for cell in self.function.__closure__ or ()]
        except ValueError:
            self.refuse("it reads a name from outside that is not bound yet")
        cells = dict(zip(self.function.__code__.co_freevars, contents, strict=True))
        outer = ast.parse(f"def outer({', '.join([*cells, *HELPERS])}): return {name}").body[0]
        assert isinstance(outer, ast.FunctionDef)
        outer.body = [*body, *outer.body]
        # Python compiles a call of an imported module's function in another way: which are imported
        known = self.function.__globals__
        used = {each.id for part in body for each in ast.walk(part) if isinstance(each, ast.Name)}
        imported = [
            ast.alias(known[each].__name__, each)
            for each in sorted(used & known.keys())
            if isinstance(known[each], ModuleType)
        ]
        dead: list[ast.stmt] = (
            [ast.If(ast.Constant(False), [ast.Import(imported)], [])] if imported else []
        )
        module = ast.fix_missing_locations(ast.Module([*dead, outer], []))
        for node in ast.walk(module):
            if isinstance(
                node, ast.stmt | ast.expr | ast.excepthandler | ast.arg
            ):  # parts that are made here are at no line
                node.end_lineno = max(node.end_lineno or 0, node.lineno)
                node.end_col_offset = max(node.end_col_offset or 0, node.col_offset)
        names: dict[str, Any] = {}
        exec(compile(module, self.function.__code__.co_filename, "exec"), names)
        made = FunctionType(names["outer"].__code__, self.function.__globals__)
        return made(*cells.values(), *HELPERS.values())

    def _refuse_what_is_not_followed(self, tree: ast.FunctionDef) -> None:
        for node in ast.walk(tree):
            for kind, word in FORBIDDEN.items():
                if isinstance(node, kind):
                    self.refuse(f"{word} in a proof for every length", node)
            if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not tree:
                self.refuse(
                    "a function inside of it, in a proof for every length: write helpers outside",
                    node,
                )
            if isinstance(node, ast.Name) and node.id in LOOKS:
                self.refuse(f"{node.id}() in a proof for every length", node)
            if isinstance(node, ast.Name) and node.id.startswith("ADP_"):
                self.refuse(f"the name {node.id}: names that begin with ADP_ are taken", node)
            if isinstance(node, ast.Compare) and any(
                isinstance(op, ast.Is | ast.IsNot)
                and not (isinstance(right, ast.Constant) and right.value is None)
                for op, right in zip(node.ops, node.comparators, strict=True)
            ):
                self.refuse("`is` in a proof for every length is followed with None alone", node)

    def _over(self, loop: ast.For) -> ast.Name | None:
        """Return the name of the answers in a loop over them."""
        over, code = loop.iter, self.function.__code__
        if (
            isinstance(over, ast.Call)
            and isinstance(over.func, ast.Name)
            and over.func.id == "enumerate"
            and over.func.id not in self.function.__globals__
            and over.func.id not in (*code.co_freevars, *code.co_varnames, *code.co_cellvars)
            and getattr(self.function, "__builtins__", {}).get("enumerate") is enumerate
            and len(over.args) == 1
            and not over.keywords
        ):
            over = over.args[0]
        return over if isinstance(over, ast.Name) and over.id == self.answers else None

    def _outputs(self, before: Sequence[ast.stmt], every: Sequence[ast.stmt]) -> set[str]:
        """Return the lists that are only appended to, and returned."""
        begun = [
            node.targets[0].id
            for each in every
            for node in ast.walk(each)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.List)
            and not node.value.elts
        ]
        found = {name for each in before for name in _stores(each) if name in begun}
        for name in sorted(found):
            uses = sum(
                isinstance(n, ast.Name) and n.id == name for each in every for n in ast.walk(each)
            )
            known = sum(_known_uses(n, name) for each in every for n in ast.walk(each))
            appended = any(
                _known_uses(n, name) and isinstance(n, ast.Expr)
                for each in every
                for n in ast.walk(each)
            )
            if not appended:
                found.discard(name)
            elif uses != known or name not in begun or begun.count(name) > 1:
                self.refuse(
                    f"{name} grows with the answers, and is read: in a proof for every length it "
                    f"is only appended to (`{name}.append(...)`) and returned; count in a variable"
                )
        return found

    def _compile(
        self,
        before: Sequence[ast.stmt],
        loop: ast.For,
        after: Sequence[ast.stmt],
        outputs: Sequence[str],
        stored: Sequence[str],
    ) -> None:
        # a variable of the function is none of the module's in a piece that does not bind it
        own = "\n".join(["if False:", *(f"  {name} = None" for name in stored), "  pass"])
        loaded = [
            f"if {name!r} in ADP_state:\n  {name} = ADP_state[{name!r}]" for name in self.variables
        ]
        empty = [f"{name} = []" for name in outputs]
        emitted = "[" + ", ".join(outputs) + "]"
        goes_on = f"return ADP_next(locals(), {emitted})"
        returns = _Returns()
        ending = [returns.visit(each) for each in [*_copied(loop.orelse), *_copied(after)]]
        ends = [*ending, *_parsed("return ADP_end(None)")]
        turn = ast.For(
            target=loop.target,
            iter=ast.parse("(ADP_item,)", mode="eval").body,
            body=[returns.visit(each) for each in _copied(loop.body)],
            orelse=_parsed(goes_on),
            lineno=loop.lineno,
            col_offset=loop.col_offset,
        )
        after_break = [*[returns.visit(each) for each in _copied(after)]]
        pieces = {
            f"def ADP_start({self.noise}): pass": [
                *(returns.visit(each) for each in _copied(before)),
                *_parsed(goes_on),
            ],
            f"def ADP_step(ADP_state, ADP_item, {self.noise}): pass": [
                *_parsed("\n".join([*loaded, *empty]) or "pass"),
                turn,
                *after_break,
                *_parsed("return ADP_end(None)"),
            ],
            f"def ADP_finish(ADP_state, {self.noise}): pass": [
                *_parsed("\n".join([*loaded, *empty]) or "pass"),
                *ends,
            ],
        }
        made = []
        for head, body in pieces.items():
            piece = _parsed(head)[0]
            assert isinstance(piece, ast.FunctionDef)
            piece.body = [*body, *_parsed(own)]
            made.append(self._within([piece], piece.name))
        self.start, self.step, self.finish = made


def _next(values: Mapping[str, Any], emitted: Any) -> Any:
    return "next", dict(values), emitted


def _end(value: Any) -> Any:
    return "return", value


HELPERS = {"ADP_next": _next, "ADP_end": _end}


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _copied(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    import copy

    return copy.deepcopy(list(body))


class _Returns(ast.NodeTransformer):
    """``return x`` becomes ``return ADP_end(x)``."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.Constant(None)
        call = ast.Call(ast.Name("ADP_end", ast.Load()), [value], [])
        return ast.copy_location(ast.Return(ast.copy_location(call, node)), node)


def _single(each: ast.stmt) -> list[ast.stmt]:
    """Return ``a, b = x, y`` as two statements, where y does not read a."""
    if (
        isinstance(each, ast.Assign)
        and len(each.targets) == 1
        and isinstance(each.targets[0], ast.Tuple)
        and isinstance(each.value, ast.Tuple)
        and len(each.targets[0].elts) == len(each.value.elts)
        and all(isinstance(target, ast.Name) for target in each.targets[0].elts)
        and not any(isinstance(value, ast.Starred) for value in each.value.elts)
        and not _names(each.targets[0]) & _names(each.value)
    ):
        return [
            ast.copy_location(ast.Assign([target], value), each)
            for target, value in zip(each.targets[0].elts, each.value.elts, strict=True)
        ]
    return [each]


def _alike(one: CodeType, other: CodeType) -> bool:
    """Whether two codes do the same: instructions and names, and constants, which may be codes."""
    if (one.co_code, one.co_names, one.co_varnames, one.co_freevars) != (
        other.co_code,
        other.co_names,
        other.co_varnames,
        other.co_freevars,
    ) or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _alike(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else repr(a) == repr(b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _known_uses(node: ast.AST, name: str) -> int:
    """Return how often a statement uses a list as one that only grows may be used."""

    def is_it(each: ast.AST) -> bool:
        return isinstance(each, ast.Name) and each.id == name

    if isinstance(node, ast.Assign):
        return int(
            len(node.targets) == 1
            and is_it(node.targets[0])
            and isinstance(node.value, ast.List)
            and not node.value.elts
        )
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        return int(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "append"
            and is_it(call.func.value)
        )
    if isinstance(node, ast.Return) and node.value is not None:
        parts = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else [node.value]
        return sum(map(is_it, parts))
    return 0


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _stores(node: ast.AST) -> set[str]:
    """Return the names that a statement may bind, but those of comprehensions."""
    found: set[str] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        if isinstance(each, SCOPES):
            stack += [n for n in ast.walk(each) if isinstance(n, ast.NamedExpr)]
        else:
            stack += list(ast.iter_child_nodes(each))
    return found


def _live(body: Sequence[ast.stmt], defined: set[str]) -> tuple[set[str], set[str] | None]:
    """Return the names that are read before they are surely bound, and those bound at the end.

    None at the end where it is never reached.
    """
    read: set[str] = set()
    bound: set[str] | None = set(defined)
    for each in body:
        if bound is None:
            break
        if isinstance(each, ast.If):
            read |= _loads(each.test) - bound
            branches = [_live(part, bound) for part in (each.body, each.orelse)]
            read |= branches[0][0] | branches[1][0]
            ends = [end for _, end in branches if end is not None]
            bound = set.intersection(*ends) if ends else None
        elif isinstance(each, ast.For | ast.While):
            head = each.iter if isinstance(each, ast.For) else each.test
            target = _stores(each.target) if isinstance(each, ast.For) else set()
            read |= _loads(head) - bound
            read |= _loads(each.target) - bound if isinstance(each, ast.For) else set()
            read |= _live(each.body, bound | target)[0] | _live(each.orelse, bound)[0]
        else:
            augmented = _names(each.target) if isinstance(each, ast.AugAssign) else set()
            read |= (_loads(each) | augmented) - bound
            if isinstance(each, ast.Return | ast.Break | ast.Continue | ast.Raise):
                bound = None
            elif isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign):
                plain = [*each.targets] if isinstance(each, ast.Assign) else [each.target]
                if not isinstance(each, ast.AnnAssign) or each.value is not None:
                    for target_ in plain:
                        parts = target_.elts if isinstance(target_, ast.Tuple) else [target_]
                        bound |= {part.id for part in parts if isinstance(part, ast.Name)}
    return read, bound


def _loads(node: ast.AST) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }
