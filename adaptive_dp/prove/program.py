"""A mechanism as a program: a plain Python function, executed on unknowns.

The function ``f(answers, noise)`` runs on *expressions*: linear forms in the answers and in the
draws, with exact rational coefficients. Its source is never read. Where it asks for the truth of a
comparison, the execution forks, and the function runs again from its beginning for each branch that
can occur. What comes out is a decision tree: draws, tests, and what is returned at each end. The
tree is the program, for that number of answers; all that is proved is proved of the tree.

What cannot be followed is refused with the line and what to write instead: see `ProgramError`.

A release runs the tree (`adaptive_dp.prove.mechanism`): what runs is what was proved.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from attrs import define, field, frozen

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.prove.exact import Form, Inequality, contradiction, plus, scaled, value_of

MOST_PATHS = 4096
"""More ends of a program than this are not looked at."""
MOST_EVENTS = 2000
"""So many draws and tests in one run: a loop that noise ends has no other bound."""
MOST_ROUNDED = 64
"""More numbers than this are not rounded in one program."""

_HERE = str(Path(__file__).parent)
_NUMPY = str(Path(np.__file__).parent)


class ProgramError(DeclarationError):
    """A program cannot be followed; the message names the line, the reason and what to write.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def rounded(answers, noise):
    ...     return float(answers[0]) + noise.laplace(1)
    >>> prove.prove(rounded, answers=1, epsilon=1)
    Traceback (most recent call last):
        ...
    adaptive_dp.prove.program.ProgramError: line 2 of rounded: float() of an unknown number: a
    proof must hold for all its values; compute with the number itself
    """


# -----------------------------------------------------------------------------
# The program as a decision tree.


@frozen
class Draw:
    """Noise is drawn: variable ``v<index>``, of a kind, with a scale that depends on no data."""

    index: int
    kind: str
    scale: Fraction
    name: str
    then: Node


@frozen
class Test:
    """A branch: ``form > 0`` if strict, else ``form >= 0``; a branch that cannot occur is None.

    ``why`` then has the multipliers of the conditions before it, and of the branch, whose sum is a
    contradiction (Farkas): it is None where both branches are followed.
    """

    condition: Inequality
    yes: Node | None
    no: Node | None
    why: Mapping[int, Fraction] | None = None


@frozen
class Leaf:
    """What is returned: a skeleton of constants, and the forms at its places."""

    skeleton: str
    forms: tuple[Form, ...]


Node = Draw | Test | Leaf

ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "even": round,
}
"""How a number is rounded to an integer; ``even`` is Python's ``round``, of halves to even."""


@frozen
class Rounded:
    """A number of the answers alone, rounded to an integer: one more answer of the program."""

    kind: str
    form: Form


@frozen
class Way:
    """One way from the root to an end: its draws, its conditions, what is returned."""

    number: int
    draws: tuple[Draw, ...]
    conditions: tuple[Inequality, ...]
    leaf: Leaf


@frozen
class Program:
    """A function on a number of answers, unrolled into its decision tree.

    Parameters
    ----------
    name
        Of the function.
    answers
        How many there are.
    root
        The tree.
    rounded
        What is rounded of the answers: of n answers the first is ``q<n>`` in the tree, and so on.
    """

    name: str
    answers: int
    root: Node = field(repr=False)
    rounded: tuple[Rounded, ...] = ()

    @property
    def width(self) -> int:
        """How many answers the tree has, with those that are rounded numbers."""
        return self.answers + len(self.rounded)

    def extended(self, answers: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """Return answers, and after them what is rounded of them."""
        values = list(answers)
        for each in self.rounded:
            number = value_of(each.form, {f"q{i}": x for i, x in enumerate(values)})
            values.append(Fraction(ROUNDINGS[each.kind](number)))
        return tuple(values)

    def paths(self) -> tuple[Way, ...]:
        """Return the ways from the root to an end, in the order yes before no."""
        found: list[Way] = []
        stack: list[tuple[Node, tuple[Draw, ...], tuple[Inequality, ...]]] = [(self.root, (), ())]
        while stack:
            node, draws, conditions = stack.pop()
            if isinstance(node, Leaf):
                found.append(Way(len(found), draws, conditions, node))
            elif isinstance(node, Draw):
                stack.append((node.then, (*draws, node), conditions))
            else:
                for branch, condition in (
                    (node.no, node.condition.negated()),
                    (node.yes, node.condition),
                ):
                    if branch is not None:
                        stack.append((branch, draws, (*conditions, condition)))
        return tuple(found)


def supports(draws: Sequence[Draw]) -> tuple[Inequality, ...]:
    """Return what holds of draws by their kind: exponential noise is not negative."""
    return tuple(
        Inequality({f"v{draw.index}": Fraction(1)}, False)
        for draw in draws
        if draw.kind == "exponential"
    )


# -----------------------------------------------------------------------------
# Expressions.


class Tracer(Protocol):
    """Who follows a run: decides comparisons, hands out draws."""

    def decide(self, condition: Inequality) -> bool:
        """Return which branch is taken."""
        ...

    def draw(self, kind: str, scale: Fraction, name: str) -> Form:
        """Return a new draw."""
        ...

    def round(self, kind: str, form: Form) -> Form:
        """Return a number of the answers, rounded to an integer."""
        ...

    def refuse(self, reason: str) -> NoReturn:
        """Refuse the program, at the line that is being executed."""
        ...

    def check(self) -> None:
        """Refuse an expression whose run is over."""
        ...


def _number(value: Any, tracer: Tracer) -> Fraction | None:
    """Return a number exactly; None if it is not one."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | Fraction):
        return Fraction(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            tracer.refuse(
                f"{value} in a computation or comparison: write the branch without it, such as "
                "the first value outside the loop"
            )
        return Fraction(value)
    return None


class Expression:
    """A number that depends on the answers and on noise: a linear form.

    Sums, differences, and products and quotients by numbers are expressions; comparisons with
    ``<``, ``<=``, ``>``, ``>=`` are conditions, whose truth may be asked for.
    """

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("_form", "_tracer")
    _form: Form
    _tracer: Tracer

    def __init__(self, form: Form, tracer: Tracer) -> None:
        object.__setattr__(self, "_form", form)
        object.__setattr__(self, "_tracer", tracer)

    def __setattr__(self, name: str, value: Any) -> None:
        self._refuse("an expression cannot be changed: compute another one")

    def _refuse(self, reason: str) -> NoReturn:
        self._tracer.refuse(reason)

    def _form_of(self, other: Any) -> Form | None:
        self._tracer.check()
        if isinstance(other, Expression):
            if other._tracer is not self._tracer:
                self._refuse("a value of another run: the function keeps state between its runs")
            return other._form
        number = _number(other, self._tracer)
        return None if number is None else plus({}, {"1": number})

    def _sum(self, other: Any, mine: int, its: int) -> Any:
        if isinstance(other, np.ndarray):
            return _each(other, lambda x: self._sum(x, mine, its))
        form = self._form_of(other)
        if form is None:
            return NotImplemented
        return Expression(plus(scaled(self._form, mine), scaled(form, its)), self._tracer)

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, 1, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._sum(other, -1, 1)

    def __neg__(self) -> Expression:
        return Expression(scaled(self._form, -1), self._tracer)

    def __pos__(self) -> Expression:
        return self

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return _each(other, lambda x: self * x)
        form = self._form_of(other)
        if form is None:
            return NotImplemented
        if isinstance(other, Expression):
            if set(form) <= {"1"}:
                return Expression(scaled(self._form, form.get("1", 0)), self._tracer)
            if set(self._form) <= {"1"}:
                return Expression(scaled(form, self._form.get("1", 0)), self._tracer)
            self._refuse(
                "a product of two unknown numbers: proofs are of sums, and products by numbers"
            )
        return Expression(scaled(self._form, form.get("1", 0)), self._tracer)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return _each(other, lambda x: self / x)
        form = self._form_of(other)
        if form is None:
            return NotImplemented
        if not set(form) <= {"1"}:
            self._refuse("a quotient by an unknown number: release both, and divide in dp.post")
        if not form:
            self._refuse("a quotient by 0")
        return Expression(scaled(self._form, 1 / form["1"]), self._tracer)

    def __rtruediv__(self, other: Any) -> Any:
        self._refuse("a quotient by an unknown number: release both, and divide in dp.post")

    def __abs__(self) -> Expression:
        return self if self >= 0 else -self

    def _compare(self, other: Any, sign: int, strict: bool) -> Any:
        if isinstance(other, np.ndarray):
            return _each(other, lambda x: bool(self._compare(x, sign, strict)))
        form = self._form_of(other)
        if form is None:
            return NotImplemented
        difference = scaled(plus(self._form, scaled(form, -1)), sign)
        return Condition(Inequality(difference, strict), self._tracer)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, 1, True)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, 1, False)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, -1, True)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, -1, False)

    def __eq__(self, other: Any) -> Any:
        self._refuse(
            "== or != of an unknown number (`in` and `index` ask for it too): write >= or <="
        )

    __ne__ = __eq__

    def __bool__(self) -> bool:
        self._refuse("the truth of an unknown number: write a comparison, such as x > 0")

    def __float__(self) -> float:
        self._refuse(
            "float() of an unknown number: a proof must hold for all its values; compute with the "
            "number itself"
        )

    def __int__(self) -> int:
        self._refuse(
            "int() of an unknown number: release it, and round in dp.post; of an answer, write "
            "math.floor(x) or round(x)"
        )

    def __complex__(self) -> complex:
        self._refuse("complex() of an unknown number")

    def __index__(self) -> int:
        self._refuse(
            "an unknown number as an index, or as the length of a loop: loop over all positions, "
            "and compare"
        )

    def _rounded(self, kind: str) -> Expression:
        self._tracer.check()
        return Expression(self._tracer.round(kind, self._form), self._tracer)

    def __floor__(self) -> Expression:
        return self._rounded("floor")

    def __ceil__(self) -> Expression:
        return self._rounded("ceil")

    def __round__(self, digits: int | None = None) -> Expression:
        if digits is None:
            return self._rounded("even")
        if isinstance(digits, bool) or not isinstance(digits, int) or abs(digits) > 30:
            self._refuse("the digits of round(x, digits) are an int")
        unit = Fraction(10) ** digits
        return Expression(scaled((self * unit)._rounded("even")._form, 1 / unit), self._tracer)

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return _each(other, lambda x: self // x)
        return (self / other)._rounded("floor")

    def _halfway(self, *_: Any) -> NoReturn:
        self._refuse(
            "NumPy's rounding, or one towards 0, of an unknown number: write round(x), "
            "math.floor(x) or math.ceil(x) of each answer"
        )

    __trunc__ = rint = trunc = _halfway  # what NumPy asks for
    floor, ceil = __floor__, __ceil__

    def _product(self, *_: Any) -> NoReturn:
        self._refuse(
            "a power, a remainder or another function that is not linear: only sums and "
            "products by numbers can be followed"
        )

    __pow__ = __rpow__ = __mod__ = __rmod__ = __rfloordiv__ = _product
    __divmod__ = __rdivmod__ = _product
    exp = log = sqrt = sin = cos = tanh = _product

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dtype":  # Python and NumPy ask what an object can
            raise AttributeError(name)
        self._refuse(
            f".{name} of an unknown number: only sums and products by numbers, and "
            "comparisons can be followed"
        )

    def __copy__(self) -> Expression:
        return self

    def __deepcopy__(self, memo: Any) -> Expression:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._refuse("a pickle of an unknown number")

    def __repr__(self) -> str:
        self._refuse("an unknown number in a text: release the number itself")

    def __format__(self, spec: str) -> str:
        self._refuse("an unknown number in a text: release the number itself")

    def __str__(self) -> str:
        self._refuse("an unknown number in a text: release the number itself")


class Condition:
    """A comparison of unknown numbers, whose truth forks the execution when it is asked for."""

    __slots__ = ("_condition", "_tracer")

    def __init__(self, condition: Inequality, tracer: Tracer) -> None:
        self._condition = condition
        self._tracer = tracer

    def __bool__(self) -> bool:
        self._tracer.check()
        return self._tracer.decide(self._condition)

    def __and__(self, other: Any) -> bool:
        return bool(self) & bool(other)

    def __or__(self, other: Any) -> bool:
        return bool(self) | bool(other)

    def __xor__(self, other: Any) -> bool:
        return bool(self) ^ bool(other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> bool:
        return not self

    def __eq__(self, other: Any) -> bool:
        return bool(bool(self) == other)

    def __ne__(self, other: Any) -> bool:
        return bool(bool(self) != other)

    def __hash__(self) -> int:  # in a set it is its truth
        return hash(bool(self))

    def __int__(self) -> int:
        return int(bool(self))

    __index__ = __int__

    def __float__(self) -> float:
        return float(bool(self))

    def __add__(self, other: Any) -> Any:
        return int(bool(self)) + other

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return int(bool(self)) * other

    __rmul__ = __mul__

    def __str__(self) -> str:
        self._tracer.refuse("a condition in a text: ask for its truth with bool()")

    __repr__ = __str__
    __format__ = __str__  # type: ignore[assignment]


def _each(array: Any, function: Callable[[Any], Any]) -> Any:
    flat = [function(x) for x in array.ravel()]
    out = np.empty(len(flat), dtype=object)
    for i, value in enumerate(flat):
        out[i] = value
    return out.reshape(array.shape)


class Noise:
    """What a program draws its noise from: the second argument of the function.

    Each method takes a positive scale that depends on no data, a ``name`` by which the formula of
    the loss calls the scale, and a ``size`` for an array of draws.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def noisy(answers, noise):
    ...     return answers + noise.laplace(3, "b", size=len(answers))
    >>> prove.prove(noisy, answers=3).formula
    '3/b_b'
    """

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def laplace(self, scale: float, name: str = "", *, size: int | None = None) -> Any:
        """Return noise of density ``exp(-|x|/scale) / (2 scale)``."""
        return self._draw("laplace", scale, name, size)

    def exponential(self, scale: float, name: str = "", *, size: int | None = None) -> Any:
        """Return noise of density ``exp(-x/scale) / scale``, x at least 0."""
        return self._draw("exponential", scale, name, size)

    def gaussian(self, sigma: float, name: str = "", *, size: int | None = None) -> Any:
        """Return noise of the normal law with standard deviation ``sigma``."""
        return self._draw("gaussian", sigma, name, size)

    def geometric(self, scale: float, name: str = "", *, size: int | None = None) -> Any:
        """Return an integer with masses proportional to ``exp(-|x|/scale)``: answers are integers.

        Ties have a probability: ``>`` and ``>=`` are not the same.
        """
        return self._draw("geometric", scale, name, size)

    def flip(self, chance: float) -> bool:
        """Return True with a probability: for programs whose answers have a finite domain."""
        self._tracer.refuse(
            "noise.flip belongs to programs whose answers have finitely many values: write "
            "prove(..., domain=(0, 1))"
        )

    def _draw(self, kind: str, scale: Any, name: str, size: Any) -> Any:
        if isinstance(scale, Expression):
            self._tracer.refuse(
                "a scale of noise that depends on an unknown number: a proof needs one scale for "
                "neighbouring answers; give a number, or branch between numbers"
            )
        number = _number(scale, self._tracer)
        if number is None or isinstance(scale, bool) or number <= 0:
            self._tracer.refuse(f"the scale of noise must be a positive number, got {scale!r}")
        if not isinstance(name, str):
            self._tracer.refuse(f"the name of a scale must be a str, got {type(name).__name__}")
        if size is not None and (
            isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0
        ):
            self._tracer.refuse("the size of an array of noise must be a non-negative int")
        if size is None:
            return Expression(self._tracer.draw(kind, number, name), self._tracer)
        drawn = np.empty(int(size), dtype=object)
        for i in range(int(size)):
            drawn[i] = Expression(self._tracer.draw(kind, number, name), self._tracer)
        return drawn

    def __getattr__(self, name: str) -> Any:
        self._tracer.refuse(
            f"noise.{name} is no kind of noise: write laplace, exponential, geometric or gaussian"
        )


# -----------------------------------------------------------------------------
# Unrolling.


@define
class _Growing:
    """A node of a tree that is being found."""

    what: Any = None  # None, "draw", "test", "leaf"
    facts: tuple[Any, ...] = ()
    children: dict[bool, _Growing] = field(factory=dict)
    why: Mapping[int, Fraction] | None = None
    line: int = 0


class _Symbolic:
    """Follows a run on unknowns along a list of decisions, and grows the tree where it is new."""

    def __init__(
        self,
        function: Callable[..., Any],
        root: _Growing,
        decisions: Sequence[bool],
        answers: int,
        rounded: dict[object, Rounded],
    ):
        self.function = function
        self.answers = answers
        self.rounded = rounded  # of all runs: the same number is the same answer in each
        self.node = root
        self.decisions = list(decisions)
        self.taken: list[bool] = []
        self.open: list[tuple[bool, ...]] = []
        self.conditions: list[Inequality] = []
        self.supports: list[Inequality] = []
        self.tested: set[str] = set()
        self.draws = 0
        self.events = 0
        self.over = False
        self.returned = False
        self.refusal: str | None = None

    def refuse(self, reason: str) -> NoReturn:
        # the first reason stays, also where the function catches the error and goes on
        if self.refusal is None:
            # what it returns is read when it has returned
            code = getattr(self.function, "__code__", None)
            where = getattr(code, "co_firstlineno", 0) if self.returned else _line()
            place = f"line {where} of " if where else ""
            name = getattr(self.function, "__name__", "the function")
            self.refusal = f"{place}{name}: {reason}"
        raise ProgramError(self.refusal)

    def check(self) -> None:
        if self.over:
            self.refuse("a value of another run: the function keeps state between its runs")

    def _at(self, what: str, facts: tuple[Any, ...]) -> _Growing:
        self.check()
        if self.refusal is not None:
            raise ProgramError(self.refusal)
        self.events += 1
        if self.events > MOST_EVENTS:
            self.refuse(
                f"more than {MOST_EVENTS} draws and comparisons in one run: a loop that noise ends "
                "has no bound; write for _ in range(k) with a number k"
            )
        node = self.node
        if node.what is None:
            node.what, node.facts, node.line = what, facts, _line()
        elif (node.what, node.facts) != (what, facts):
            self.refuse(
                "it did not do the same when it ran again: it depends on more than its arguments "
                "(a global, an object that it changes, random numbers, time); pass constants, and "
                "draw from noise"
            )
        return node

    def draw(self, kind: str, scale: Fraction, name: str) -> Form:
        index = self.draws
        self.draws += 1
        node = self._at("draw", (index, kind, scale, name))
        if kind == "exponential":
            self.supports.append(Inequality({f"v{index}": Fraction(1)}, False))
        self.node = node.children.setdefault(True, _Growing())
        return {f"v{index}": Fraction(1)}

    def round(self, kind: str, form: Form) -> Form:
        if self.refusal is not None:
            raise ProgramError(self.refusal)
        if set(form) <= {"1"}:
            return plus({}, {"1": ROUNDINGS[kind](form.get("1", Fraction(0)))})
        if any(name[0] == "v" for name in form):
            self.refuse("rounding of a noisy number: release it, and round in dp.post")
        key = (kind, tuple(sorted(form.items())))
        self.rounded.setdefault(key, Rounded(kind, form))
        if len(self.rounded) > MOST_ROUNDED:
            self.refuse(f"more than {MOST_ROUNDED} numbers are rounded: prove fewer answers")
        return {f"q{self.answers + list(self.rounded).index(key)}": Fraction(1)}

    def decide(self, condition: Inequality) -> bool:
        if set(condition.form) <= {"1"}:  # a comparison of numbers
            value = condition.form.get("1", Fraction(0))
            return value > 0 if condition.strict else value >= 0
        condition = condition.normal()
        node = self._at("test", (condition.key(),))
        new = not node.children
        if new:
            self._branch(node, condition)
        at = len(self.taken)
        if at < len(self.decisions):
            choice = self.decisions[at]
        else:
            choice = True in node.children
            if len(node.children) == 2:
                self.open.append((*self.taken, False))
        self.taken.append(choice)
        self.conditions.append(condition if choice else condition.negated())
        self.tested.update(condition.form)
        self.node = node.children[choice]
        return choice

    def _branch(self, node: _Growing, condition: Inequality) -> None:
        """Find which branches can occur; of one that cannot, why."""
        # an answer, or unbounded noise, that no comparison has looked at yet: both can occur
        one_sided = {name for each in self.supports for name in each.form}
        if not set(condition.form) - {"1"} <= self.tested | one_sided:
            node.children = {True: _Growing(), False: _Growing()}
            return
        before = [*self.supports, *self.conditions]
        whys = {
            branch: contradiction([*before, condition if branch else condition.negated()])
            for branch in (True, False)
        }
        for branch, why in whys.items():
            if why is None:
                node.children[branch] = _Growing()
            else:
                node.why = why
        if not node.children:  # the conditions before it contradict each other, which was not seen
            self.refuse("a branch that cannot occur was followed")

    def finish(self, returned: Any) -> None:
        self.returned = True
        skeleton, forms = _skeleton(returned, self)
        self._at("leaf", (skeleton, tuple(tuple(sorted(form.items())) for form in forms)))
        self.over = True


def _line() -> int:
    """Return the line of the user's code that is being executed; 0 if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _NUMPY)) and not name.startswith("<attrs"):
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def _skeleton(value: Any, tracer: _Symbolic) -> tuple[str, list[Form]]:
    """Return what is constant of a returned value, as text, and the forms at its places."""
    forms: list[Form] = []

    def text(x: Any, depth: int) -> str:
        if depth > 20:
            tracer.refuse("what it returns is nested too deep")
        if isinstance(x, Expression):
            if x._tracer is not tracer:
                tracer.refuse("it returns a value of another run: it keeps state between its runs")
            forms.append(x._form)
            return "..."
        if isinstance(x, Condition | np.bool_):
            x = bool(x)
        if isinstance(x, np.generic):
            x = x.item()
        if x is None or type(x) in (bool, int, str):
            return repr(x)
        if isinstance(x, float | Fraction):
            if math.isnan(x):
                tracer.refuse("it returns NaN: return None")
            if isinstance(x, Fraction) and not is_float(x):
                tracer.refuse(f"it returns {x}, which no float is: return an int or a float")
            # a literal that reads as infinity
            return repr(float(x)).replace("inf", "1e999")
        if isinstance(x, np.ndarray):
            x = x.tolist()
        if isinstance(x, list):
            return "[" + ", ".join(text(y, depth + 1) for y in x) + "]"
        if isinstance(x, tuple):
            return "(" + "".join(text(y, depth + 1) + ", " for y in x).rstrip() + ")"
        tracer.refuse(
            f"it returns a {type(x).__name__}: return numbers, bool, str, None, and tuples and "
            "lists of them"
        )

    return text(value, 0), forms


def is_float(value: Fraction) -> bool:
    """Whether a float is exactly this number: two that are near are two outputs."""
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def unroll(function: Callable[..., Any], answers: int, *, most_paths: int = MOST_PATHS) -> Program:
    """Return the decision tree of a program.

    Parameters
    ----------
    function
        ``f(answers, noise)``.
    answers
        How many there are.
    most_paths
        More ends than this are refused.

    Raises
    ------
    ProgramError
        If it cannot be followed.

    Examples
    --------
    >>> from adaptive_dp import prove
    >>> def largest(answers, noise):
    ...     return max(range(len(answers)), key=(answers + noise.laplace(1, size=3)).__getitem__)
    >>> for path in prove.unroll(largest, 3).paths()[:2]:
    ...     print(path.leaf.skeleton, *path.conditions, sep="; ")
    2; -q0 + q1 - v0 + v1 > 0; -q1 + q2 - v1 + v2 > 0
    1; -q0 + q1 - v0 + v1 > 0; q1 - q2 + v1 - v2 >= 0
    """
    if isinstance(answers, bool) or not isinstance(answers, int) or answers < 1:
        raise DeclarationError(f"answers must be a positive int, got {answers!r}")
    check_closed(function)
    return tree_of(function, answers, most_paths)


def tree_of(function: Callable[..., Any], answers: int, most_paths: int = MOST_PATHS) -> Program:
    """Return the decision tree of a program that `check_closed` has seen, or is made here."""
    root = _Growing()
    rounded: dict[object, Rounded] = {}
    pending: list[tuple[bool, ...]] = [()]
    every: list[tuple[bool, ...]] = []
    while pending:
        decisions = pending.pop()
        tracer = _follow(function, answers, root, decisions, rounded)
        pending.extend(tracer.open)
        every.append(tuple(tracer.taken))
        if len(every) > most_paths:
            raise ProgramError(
                f"{_name(function)} has more than {most_paths} paths for {answers} answers: prove "
                "it for fewer answers"
            )
    # in the other order once more: a function that counts its runs is seen
    for decisions in every[: 64 if len(every) > 64 else None]:
        _follow(function, answers, root, decisions, rounded)
    return Program(_name(function), answers, _frozen(root), tuple(rounded.values()))


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _follow(
    function: Callable[..., Any],
    answers: int,
    root: _Growing,
    decisions: Sequence[bool],
    rounded: dict[object, Rounded],
) -> _Symbolic:
    tracer = _Symbolic(function, root, decisions, answers, rounded)
    _execute(function, answers, tracer)
    return tracer


def _execute(function: Callable[..., Any], answers: int, tracer: _Symbolic) -> None:
    """Run a function under a tracer, which learns what it returns."""
    given = np.empty(answers, dtype=object)
    for i in range(answers):
        given[i] = Expression({f"q{i}": Fraction(1)}, tracer)
    try:
        returned = function(given, Noise(tracer))
        if tracer.refusal is not None:  # it was caught by the function
            raise ProgramError(tracer.refusal)
        tracer.finish(returned)
    except ProgramError:
        raise
    except RecursionError:
        raise ProgramError(
            f"{_name(function)}: it calls itself without end: write a loop with a bound"
        ) from None
    except Exception as error:
        if tracer.refusal is not None:
            raise ProgramError(tracer.refusal) from None
        place = _raised_at(error)
        if "__array_ufunc__" in str(error):
            raise ProgramError(
                f"{f'line {place} of ' if place else ''}{_name(function)}: a function of NumPy of "
                "one unknown number: write abs(x) or max(x, y); sums, products by numbers and "
                "comparisons can be followed"
            ) from None
        text = str(error).replace("\n", " ")[:200]
        raise ProgramError(
            f"{f'line {place} of ' if place else ''}{_name(function)}: {type(error).__name__}: "
            f"{text}; an error is an output that shows data: write the branch out, and use sums, "
            "products by numbers and comparisons alone"
        ) from None


def _raised_at(error: Exception) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_HERE, _NUMPY)):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _frozen(root: _Growing) -> Node:
    """Return the tree as values, from the ends upward."""
    done: dict[int, Node] = {}
    stack: list[tuple[_Growing, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if not ready:
            stack.append((node, True))
            stack.extend((child, False) for child in node.children.values())
            continue
        below = {branch: done[id(child)] for branch, child in node.children.items()}
        if node.what == "draw":
            index, kind, scale, name = node.facts
            done[id(node)] = Draw(index, kind, scale, name, below[True])
        elif node.what == "test":
            condition = Inequality.of(node.facts[0])
            done[id(node)] = Test(condition, below.get(True), below.get(False), node.why)
        else:
            skeleton, forms = node.facts
            done[id(node)] = Leaf(skeleton, tuple(dict(form) for form in forms))
    return done[id(root)]


# -----------------------------------------------------------------------------
# State outside of the function, as far as it can be seen.

_LOOKS = (
    *(isinstance, issubclass, type, id, hasattr, vars, dir),
    *(globals, locals, eval, exec, compile, open, input, callable),
)
"""What may show that a number is unknown, or reach outside of the function."""
_FORBIDDEN = {"random", "time", "secrets", "os", "datetime", "uuid", "threading", "sys", "gc"}


def check_closed(function: Callable[..., Any]) -> None:
    """Refuse a function that visibly depends on more than its arguments.

    Names of modules of randomness and time, of values that can change (lists, dictionaries, arrays)
    outside of the function, and assignments to names outside of it. What this does not see, a run
    shows that does not do the same when it is repeated; and a release runs the tree alone.

    Raises
    ------
    ProgramError
        If it does.
    """
    if not callable(function):
        raise DeclarationError(f"a program is a function f(answers, noise), got {function!r}")
    for code, outer, name in _codes(function):
        lazy = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
        if code.co_flags & lazy and code.co_name != "<genexpr>":
            raise ProgramError(
                f"{name} is a generator or a coroutine: write a function that returns its value"
            )
        for used, value in outer.items():
            if isinstance(value, types.ModuleType):
                if value.__name__.partition(".")[0] in _FORBIDDEN:
                    raise ProgramError(
                        f"line {code.co_firstlineno} of {name}: it uses the module "
                        f"{value.__name__!r}: what a program does must depend on its arguments "
                        "alone; draw from noise"
                    )
            elif any(value is each for each in _LOOKS):
                raise ProgramError(
                    f"line {code.co_firstlineno} of {name}: it uses {used}, which may tell an "
                    "unknown number from a plain one: do the same with all numbers"
                )
            elif _can_change(value):
                raise ProgramError(
                    f"line {code.co_firstlineno} of {name}: it reads {used!r} from outside, a "
                    f"{type(value).__name__}, which can change: write the numbers in the function, "
                    "or as a tuple"
                )


def _can_change(value: Any) -> bool:
    """Whether a value from outside visibly can change, or something in a tuple can."""
    if isinstance(value, tuple):
        return any(map(_can_change, value))
    return isinstance(
        value,
        list | dict | set | bytearray | np.ndarray | np.random.Generator | Iterator,
    )


def _codes(
    function: Callable[..., Any],
) -> Iterator[tuple[types.CodeType, Mapping[str, Any], str]]:
    """Yield the code of a function and of the Python functions that it names, with their names."""
    seen: set[int] = set()
    # what runs is the wrapper, which may call what it wraps
    stack: list[Any] = [function, inspect.unwrap(function)]
    while stack:
        each = stack.pop()
        if isinstance(each, types.MethodType):
            each = each.__func__
        if not isinstance(each, types.FunctionType) or id(each) in seen:
            continue
        if each.__module__ and each.__module__.partition(".")[0] in ("numpy", "math", "builtins"):
            continue
        seen.add(id(each))
        codes = [each.__code__]
        while codes:
            code = codes.pop()
            codes.extend(c for c in code.co_consts if isinstance(c, types.CodeType))
            used = {
                instruction.argval
                for instruction in dis.get_instructions(code)
                if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            }
            known = {**vars(builtins), **each.__globals__}
            outer = {n: known[n] for n in used if n in known}
            if code is each.__code__ and each.__closure__:
                for n, cell in zip(code.co_freevars, each.__closure__, strict=True):
                    try:
                        outer[n] = cell.cell_contents
                    except ValueError:
                        continue
            _refuse_assignments(code, each)
            yield code, outer, each.__name__
            stack.extend(v for v in outer.values() if isinstance(v, types.FunctionType))
        defaults = [*(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values()]
        for value in defaults:
            if _can_change(value):
                raise ProgramError(
                    f"{each.__name__}: a default argument that can change "
                    f"({type(value).__name__}): write a tuple"
                )


def _refuse_assignments(code: types.CodeType, function: types.FunctionType) -> None:
    before: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IS_OP" and any(isinstance(x, bool) for x in before[-2:]):
            raise ProgramError(
                f"line {code.co_firstlineno} of {function.__name__}: `is True` or `is False`, "
                "which an unknown comparison never is: write the comparison itself"
            )
        before.append(instruction.argval if instruction.opname == "LOAD_CONST" else None)
        if instruction.opname == "MATCH_CLASS" or instruction.argval in ("__class__", "__dict__"):
            raise ProgramError(
                f"line {code.co_firstlineno} of {function.__name__}: it asks for the class of a "
                "value, which tells an unknown number from a plain one: do the same with all of "
                "them"
            )
        if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
            raise ProgramError(
                f"line {code.co_firstlineno} of {function.__name__}: it assigns to the attribute "
                f"{instruction.argval!r}: state between runs cannot be followed; use a local "
                "variable"
            )
        outside = instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            instruction.opname in ("STORE_DEREF", "DELETE_DEREF")
            and code is function.__code__
            and instruction.argval in code.co_freevars
        )
        if outside:
            raise ProgramError(
                f"line {code.co_firstlineno} of {function.__name__}: it assigns to "
                f"{instruction.argval!r} outside of the function: state between runs cannot be "
                "followed; use a local variable"
            )
