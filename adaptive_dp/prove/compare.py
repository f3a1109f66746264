"""Whether a function is the program of a document: both run on plain fractions.

This is no part of a proof: it finds an executor that follows wrongly.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from adaptive_dp.prove import check_every
from adaptive_dp.prove.checker import (
    Drawn,
    Form,
    ProofError,
    extended,
    read_condition,
    read_form,
    require,
)


class _Script:
    """Noise that gives random fractions, or small integers, that tie, and notes what was asked."""

    def __init__(self, random: Random, ties: bool) -> None:
        self.random, self.ties = random, ties
        self.asked: list[Drawn] = []
        self.point: Form = {}

    def _next(self, kind: str, scale: Any, size: int | None) -> Any:
        if size is not None:
            drawn = np.empty(size, dtype=object)
            drawn[:] = [self._next(kind, scale, None) for _ in range(size)]
            return drawn
        number = Fraction(self.random.randrange(-(10**6), 10**6), 4 * 10**5) * Fraction(scale)
        number = Fraction(self.random.randrange(-2, 3)) if self.ties else number
        number = abs(number) if kind == "exponential" else number
        number = Fraction(round(number)) if kind == "geometric" else number
        self.point[f"v{len(self.asked)}"] = number
        self.asked.append((kind, Fraction(scale)))
        return number

    def laplace(self, scale: Any, name: str = "", *, size: int | None = None) -> Any:
        return self._next("laplace", scale, size)

    def exponential(self, scale: Any, name: str = "", *, size: int | None = None) -> Any:
        return self._next("exponential", scale, size)

    def gaussian(self, sigma: Any, name: str = "", *, size: int | None = None) -> Any:
        return self._next("gaussian", sigma, size)

    def geometric(self, scale: Any, name: str = "", *, size: int | None = None) -> Any:
        return self._next("geometric", scale, size)


def compare(
    function: Callable[..., Any], document: Mapping[str, Any], *, trials: int = 50, seed: int = 0
) -> None:
    """Run a function on plain fractions beside the tree of a document.

    This is no proof that they are the same: it finds an executor that follows wrongly.

    Raises
    ------
    ProofError
        If they draw other noise, or return something else.
    """
    random = Random(seed)
    if "loop" in document:
        _compare_every(function, document["loop"], trials, random)
        return
    nodes = document["program"]
    for trial in range(trials):
        noise = _Script(random, trial % 4 == 3)
        answers = _answers(random, trial, document["answers"])
        noise.point.update({f"q{i}": value for i, value in enumerate(extended(document, answers))})
        given = np.empty(len(answers), dtype=object)
        given[:] = answers
        returned = _ran(function, given, noise)
        drawn, expected = _run(nodes, noise.point)
        require(drawn == noise.asked, "the function draws other noise than the program")
        require(_alike(returned, expected), "the function returns something else than the program")


def _answers(random: Random, trial: int, count: int) -> list[Fraction]:
    """Return random answers: near, far, and some that tie."""
    if trial % 4 == 3:
        return [Fraction(random.randrange(-2, 3)) for _ in range(count)]
    size = (1, 10, 100)[trial % 3]
    return [Fraction(random.randrange(-999, 999), 333) * size for _ in range(count)]


def _ran(function: Callable[..., Any], given: Any, noise: _Script) -> Any:
    try:
        return _plain(function(given, noise))
    except Exception as error:
        raise ProofError(f"it fails there: {type(error).__name__}: {error}") from None


def _run(nodes: Sequence[Mapping[str, Any]], point: Form) -> tuple[list[Drawn], Any]:
    """Return what a tree draws, and what it returns, at a point."""
    at, drawn = 0, list[Drawn]()
    while "returns" not in nodes[at]:
        node = nodes[at]
        if "draw" in node:
            drawn.append((node["draw"], Fraction(node["scale"])))
            at = node["then"]
            continue
        form, strict = read_condition(node["test"])
        value = _value(form, point)
        at = node["yes" if (value > 0 if strict else value >= 0) else "no"]
    numbers = [_value(read_form(form), point) for form in nodes[at]["forms"]]
    return drawn, _filled(ast.literal_eval(nodes[at]["returns"]), iter(numbers))


def _compare_every(
    function: Callable[..., Any], loop: Mapping[str, Any], trials: int, random: Random
) -> None:
    """Run a function beside its start, its turns and its finish, at several lengths."""
    for trial in range(trials):
        noise = _Script(random, trial % 4 == 3)
        answers = _answers(random, trial, trial % 7)
        given = np.empty(len(answers), dtype=object)
        given[:] = answers
        returned = _ran(function, given, noise)
        drawn = list[Drawn]()
        emitted: list[Any] = []
        state: Any = None
        held: list[int] = []  # where the positions are that are kept, in the state's order
        for turn in range(-1, len(answers) + 1):
            if turn < 0:
                nodes = loop["start"]
            else:
                trees = loop["states"][check_every.written(_marked(state))]
                nodes = trees["step" if turn < len(answers) else "finish"]
            numbers = [] if state is None else _numbers(state)
            point = {f"q{j + 1}": x for j, x in enumerate(numbers)}
            if 0 <= turn < len(answers):
                point["q0"] = answers[turn]
            point |= {
                f"v{i}": noise.point[f"v{len(drawn) + i}"]
                for i in range(len(noise.asked) - len(drawn))
            }
            asked, ended = _run(nodes, point)
            drawn += asked
            if ended[0] == "return":
                value = _placed(ended[1], turn, held)
                break
            _, state, out = ended
            emitted += _placed(out[0], turn, held) if out else []
            kept = [each for each in _texts(state) if each.startswith("position:")]
            held = [_placed(each, turn, held) for each in kept]
            state = _named(state, iter(check_every.GUESSES))
        require(drawn == noise.asked, "the function draws other noise than the program")
        if isinstance(value, list):
            value = [*emitted, *value]
        elif isinstance(value, tuple):
            value = tuple([*emitted, *each] if isinstance(each, list) else each for each in value)
        require(_alike(returned, value), "the function returns something else than the program")


def _numbers(value: Any) -> list[Fraction]:
    """Return the unknown numbers of a state, which are fractions in it."""
    if isinstance(value, list | tuple):
        return [x for each in value for x in _numbers(each)]
    return [value] if isinstance(value, Fraction) else []


def _texts(value: Any) -> list[str]:
    """Return the texts of a state."""
    if isinstance(value, list | tuple):
        return [x for each in value for x in _texts(each)]
    return [value] if isinstance(value, str) else []


def _named(value: Any, names: Iterator[str]) -> Any:
    """Return a state with its positions as guessed ones, the first and the second."""
    if isinstance(value, list | tuple):
        return type(value)(_named(each, names) for each in value)
    return next(names) if isinstance(value, str) and value.startswith("position:") else value


def _marked(value: Any) -> Any:
    """Return a state with its numbers unknown."""
    if isinstance(value, list | tuple):
        return type(value)(map(_marked, value))
    return ... if isinstance(value, Fraction) else value


def _placed(value: Any, now: int, held: Sequence[int]) -> Any:
    """Return an output with positions in it."""
    if isinstance(value, list | tuple):
        return type(value)(_placed(each, now, held) for each in value)
    if isinstance(value, str) and value.startswith("position:"):
        return now if value == check_every.NOW else held[check_every.GUESSES.index(value)]
    return value


def _value(form: Form, point: Form) -> Fraction:
    return sum((v * point.get(n, Fraction(n == "1")) for n, v in form.items()), Fraction(0))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return type(value)(map(_plain, value)) if isinstance(value, list | tuple) else value


def _filled(skeleton: Any, numbers: Iterator[Fraction]) -> Any:
    if isinstance(skeleton, list | tuple):
        return type(skeleton)(_filled(each, numbers) for each in skeleton)
    return next(numbers) if skeleton is ... else skeleton


def _alike(one: Any, other: Any) -> bool:
    if isinstance(other, list | tuple):
        same = type(one) is type(other) and len(one) == len(other)
        return same and all(map(_alike, one, other))
    if isinstance(other, Fraction):  # a float in the function may have rounded
        return bool(abs(one - other) <= Fraction(1, 10**6) * (1 + abs(other)))
    return bool(one == other)
